"""Unusable input as JSON lines in a file that never grows beyond its bound."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson
import structlog

from detect.alert import rfc3339
from ingest.samples import Rejected

_log = structlog.stdlib.get_logger("weaklink.rejects")
_PAYLOAD_BYTES = 4096


class RejectFile:
    """Appends to ``path``; beyond ``limit_bytes`` it becomes ``path.1`` and a new one begins.

    A full disk is logged and does not stop detection: the rows are counted in any case.
    """

    def __init__(self, path: Path, limit_bytes: int, clock: Callable[[], int]):
        self.path = path
        self.limit_bytes = limit_bytes
        self.clock = clock

    def write(self, rejected: Sequence[Rejected]) -> None:
        """Append one line each."""
        at = rfc3339(self.clock())
        lines = b"".join(orjson.dumps(_line(r, at)) + b"\n" for r in rejected)
        try:
            if self.path.exists() and self.path.stat().st_size + len(lines) > self.limit_bytes:
                self.path.replace(self.path.with_name(self.path.name + ".1"))
            with self.path.open("ab") as file:
                file.write(lines)
        except OSError as error:
            _log.error("reject file", path=str(self.path), reason=error.strerror)


def _line(rejected: Rejected, at: str) -> dict[str, str]:
    line = {
        "at": at,
        "reason": rejected.reason,
        "origin": rejected.origin,
        "detail": rejected.detail,
    }
    if rejected.payload is not None:
        payload = rejected.payload[:_PAYLOAD_BYTES]
        try:
            line["payload"] = payload.decode()
        except UnicodeDecodeError:
            line["payload_base64"] = base64.b64encode(payload).decode()
    return line
