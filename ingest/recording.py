"""Recorded incidents: a folder of Parquet parts to batches in the order of time.

The rows may stand in any order in any number of parts; what `Recording.batches` yields depends
on the set of rows alone, and its memory does not depend on their number.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from ingest.catalogue import Catalogue
from ingest.normalise import normalise
from ingest.recording_label import (
    Label,
    RecordingError,
    Topology,
    read_label,
    read_topology,
)
from ingest.recording_parts import Chunk, Part, Scan, open_parts, scan
from ingest.rules import NameBudget, Rules
from ingest.samples import Decoded, Rejected, empty_samples
from ingest.time_order import pooled, spilled

__all__ = ["Label", "Recording", "RecordingError", "Topology", "find_recordings", "read_recording"]

POOL_ROWS = 600_000
"""Rows out of order that may wait in memory; a recording with more goes through files."""

BATCH_ROWS = 1 << 17


@dataclass(frozen=True)
class Recording:
    """A recorded incident whose files and columns have been checked.

    ``label`` is None where nobody said what happened; ``topology`` may be empty.
    """

    path: Path
    name: str
    label: Label | None
    topology: Topology
    catalogue: Catalogue
    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        """Rows in all parts."""
        return sum(sum(part.group_rows) for part in self.parts)

    def batches(self) -> Generator[Decoded, None, None]:
        """Canonical samples in the order of time, at most `BATCH_ROWS` at once.

        Rows that cannot be used come in ``rejected`` of some batch, in the order of the file.

        Raises
        ------
        RecordingError
            A part turns out to be damaged, or not one row of the recording is usable.
        """
        found = scan(self.parts)
        reader = _Reader(self, NameBudget(Rules().max_unknown_metrics))
        usable = 0
        for table in self._in_order(reader, found):
            usable += len(table)
            for start in range(0, len(table), BATCH_ROWS):
                yield reader.told(table.slice(start, BATCH_ROWS))
        rest = reader.told(empty_samples())
        if rest.rejected or rest.counts:
            yield rest
        if not usable:
            reason = f"none of {self.rows} rows is usable"
            raise RecordingError(self.path, "", f"{reason}; {reader.first or 'no reason known'}")

    def _in_order(self, reader: _Reader, found: Scan) -> Iterator[pa.Table]:
        if _peak(found) <= POOL_ROWS:
            yield from pooled(reader.followed(found))
            return
        with TemporaryDirectory(prefix="weaklink-") as folder:
            yield from spilled(reader.tables(found), found.times, self.rows, Path(folder))


def read_recording(path: Path, catalogue: Catalogue, label: Label | None = None) -> Recording:
    """Check a recording's folder and read all but its telemetry.

    ``label`` is the recording's if it has none of its own.

    Raises
    ------
    RecordingError
        One line that names file, column or key, and reason.
    """
    return Recording(
        path=path,
        name=path.resolve().name,
        label=read_label(path / "incident.json") or label,
        topology=read_topology(path / "topology.json"),
        catalogue=catalogue,
        parts=open_parts(path),
    )


def find_recordings(paths: Iterable[Path]) -> list[Path]:
    """The folders with Parquet files at or below the given ones, each once, in order.

    Raises
    ------
    RecordingError
        A path does not exist, is no folder, or has no recording below it.
    """
    found: dict[str, Path] = {}
    for path in paths:
        if not path.is_dir():
            raise RecordingError(path, "", "not a folder" if path.exists() else "does not exist")
        below = dict(_with_tables(path))
        if not below:
            raise RecordingError(path, "", "holds no recording: no *.parquet in it or below")
        for real, folder in sorted(below.items(), key=lambda item: item[1]):
            found.setdefault(real, folder)
    return list(found.values())


def _with_tables(path: Path) -> Iterator[tuple[str, Path]]:
    """Folders with Parquet files at or below ``path``, each once: what it is, and where it was
    found, behind links only if nowhere else.
    """
    told: set[str] = set()
    for links in (False, True):
        seen: set[str] = set()
        for folder, below, files in os.walk(path, followlinks=links):
            real = os.path.realpath(folder)
            if real in seen:
                below.clear()
                continue
            seen.add(real)
            below.sort()
            if real not in told and any(file.endswith(".parquet") for file in files):
                told.add(real)
                yield real, Path(folder)


class _Reader:
    """Chunks of a recording as canonical tables; keeps what was rejected until it is told."""

    def __init__(self, recording: Recording, budget: NameBudget) -> None:
        self._recording = recording
        self._budget = budget
        self._rejected: list[Rejected] = []
        self._counts: Counter[str] = Counter()
        self._read = 0
        self.first: str | None = None

    def tables(self, found: Scan) -> Iterator[pa.Table]:
        """All rows, in reading order."""
        groups = dict.fromkeys((chunk.part, chunk.group) for chunk in found.chunks)
        for part, group in groups:
            for row, table in part.chunks(group):
                self._read += len(table)
                origin = partial(_origin, f"{self._recording.name}/{part.path.name}", row)
                decoded = normalise(table, self._recording.catalogue, origin, budget=self._budget)
                self._rejected += decoded.rejected
                self._counts += decoded.counts
                if decoded.rejected and self.first is None:
                    one = decoded.rejected[0]
                    self.first = f"{one.origin}: {one.reason} {one.detail}".strip()
                yield decoded.samples

    def followed(self, found: Scan) -> Iterator[tuple[pa.Table, int | None]]:
        """All rows, each table with the earliest time that can still follow it."""
        earliest = _earliest_after(found.chunks)
        ends = np.cumsum([chunk.rows for chunk in found.chunks])
        for table in self.tables(found):
            done = int(np.searchsorted(ends, self._read, side="right"))
            yield table, earliest[done]

    def told(self, samples: pa.Table) -> Decoded:
        """A batch that carries what was rejected since the last one."""
        out = Decoded(samples, self._rejected, self._counts)
        self._rejected, self._counts = [], Counter()
        return out


def _origin(file: str, first: int, row: int) -> str:
    return f"{file} row {first + row}"


def _earliest_after(chunks: tuple[Chunk, ...]) -> list[int | None]:
    """``[k]``: the earliest time in any chunk from the k-th on; None for no chunk."""
    out: list[int | None] = [None]
    earliest: int | None = None
    for chunk in reversed(chunks):
        if chunk.span is not None:
            earliest = chunk.span[0] if earliest is None else min(earliest, chunk.span[0])
        out.append(earliest)
    return out[::-1]


def _peak(found: Scan) -> int:
    """At most how many rows wait at once if read in order, counted in whole chunks."""
    waiting: list[Chunk] = []
    peak = 0
    for chunk, follows in zip(found.chunks, _earliest_after(found.chunks)[1:], strict=True):
        waiting.append(chunk)
        peak = max(peak, sum(c.rows for c in waiting))
        if follows is not None:
            waiting = [c for c in waiting if c.span is not None and c.span[1] >= follows]
    return peak
