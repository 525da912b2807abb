"""Which code a result was measured with."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

CODE = ("ingest", "models", "detect", "replay")


@dataclass(frozen=True, slots=True)
class Origin:
    """Which code was measured, as version control tells it."""

    commit: str
    date: str

    def __str__(self) -> str:
        return f"commit {self.commit} of {self.date}"


def measured_origin() -> Origin:
    """The commit and its date; ``+changes`` where the measured code differs from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    commit, date = git("log", "-1", "--format=%h"), git("log", "-1", "--format=%cs")
    if not commit:
        return Origin("unknown", "an unknown date")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", *CODE)
    return Origin(f"{commit}+changes" if changed else commit, date)
