"""What the files are called that are made of recordings, one each."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path


def file_name(incident: str) -> str:
    """The incident's name as a file name; a changed one keeps apart by its hash."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", incident).lstrip(".")[:120]
    if plain and plain == incident:
        return plain
    return f"{plain or 'incident'}-{hashlib.sha256(incident.encode()).hexdigest()[:8]}"


def file_names(recordings: Sequence[Path]) -> dict[Path, str]:
    """Distinct file names of distinct folders: where their own names clash, with the folders
    above as far as these are needed to tell them apart.
    """
    left = {path: path.resolve().parts for path in recordings}
    names: dict[Path, str] = {}
    for depth in range(1, max(map(len, left.values()), default=0) + 1):
        seen = Counter(parts[-depth:] for parts in left.values())
        alone = [path for path, parts in left.items() if seen[parts[-depth:]] == 1]
        names |= {path: file_name("/".join(left.pop(path)[-depth:])) for path in alone}
    return names
