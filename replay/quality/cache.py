"""Results that are already known, one JSON line each; a run cut short goes on from here."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TextIO

import orjson

from replay.quality.measure import Row

FILE = "results.jsonl"
_FIELDS = frozenset(f.name for f in fields(Row))


class ResultCache:
    """Appends only; what another version of the code wrote is kept and not used.

    Parameters
    ----------
    folder
        Where the lines are; None keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self.known: dict[str, Row] = {}
        self._file: TextIO | None = None
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE
        whole = True
        if path.exists():
            data = path.read_bytes()
            whole = not data or data.endswith(b"\n")
            for line in data.splitlines():
                self._read(line)
        self._file = path.open("a", encoding="utf-8")
        if not whole:
            # The last run was killed within a line.
            self._file.write("\n")

    def _read(self, line: bytes) -> None:
        try:
            given = orjson.loads(line)
        except orjson.JSONDecodeError:
            return
        if (
            isinstance(given, dict)
            and set(given) == {"key", "row"}
            and set(given["row"]) == _FIELDS
        ):
            self.known[given["key"]] = Row(**given["row"])

    def add(self, key: str, row: Row) -> None:
        """Remember one result at once, also on disk."""
        self.known[key] = row
        if self._file is not None:
            self._file.write(orjson.dumps({"key": key, "row": row.to_json()}).decode() + "\n")
            self._file.flush()

    def close(self) -> None:
        """Nothing is added after this."""
        if self._file is not None:
            self._file.close()
