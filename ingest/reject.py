"""A file of what could not be used, one JSON object a line, bounded in size."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import orjson

from ingest.samples import Rejected


class RejectFile:
    """Writes `Rejected` items as JSON lines ``{reason, origin, detail, rows, payload_base64}``.

    The file is made when the first item comes, so that a clean run leaves none. Once
    ``max_bytes`` are reached, items are only counted, and `close` writes one last line that
    says how many are missing and why they were rejected.

    Attributes
    ----------
    counts
        Rejected rows by reason, written or not.
    """

    def __init__(
        self, path: Path, *, max_bytes: int = 64 * 1024 * 1024, max_payload_bytes: int = 64 * 1024
    ) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.max_payload_bytes = max_payload_bytes
        self.counts: Counter[str] = Counter()
        self._omitted: Counter[str] = Counter()
        self._written = 0
        self._file: BinaryIO | None = None

    def write(self, items: Iterable[Rejected]) -> None:
        """Add some items; OSError if the file cannot be written."""
        for item in items:
            self.counts[item.reason] += item.rows
            line = self._line(item)
            if self._omitted or self._written + len(line) > self.max_bytes:
                self._omitted[item.reason] += item.rows
            else:
                self._append(line)

    def close(self) -> None:
        """Finish the file, if there is one."""
        if self._omitted:
            rest = {"reason": "omitted", "rows": self._omitted.total(), "by_reason": self._omitted}
            self._append(orjson.dumps(rest) + b"\n")
            self._omitted = Counter()
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> RejectFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _append(self, line: bytes) -> None:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("wb")
        self._file.write(line)
        self._written += len(line)

    def _line(self, item: Rejected) -> bytes:
        entry: dict[str, str | int | bool] = {
            "reason": item.reason,
            "origin": item.origin,
            "detail": item.detail,
            "rows": item.rows,
        }
        if item.payload is not None:
            kept = item.payload[: self.max_payload_bytes]
            entry["payload_base64"] = base64.b64encode(kept).decode("ascii")
            if len(kept) < len(item.payload):
                entry["payload_bytes"] = len(item.payload)
        return orjson.dumps(entry) + b"\n"
