"""The score grid: scores of all machines over time, compact enough to send to a browser.

The binary form (media type `MEDIA_TYPE`) is little-endian:

======== =================================================================================
bytes    meaning
======== =================================================================================
4        magic ``WLG1``
4        ``uint32`` length H of the header
H        UTF-8 JSON: ``job``, ``start_ms`` (since the epoch), ``step_ms``, ``columns``,
         ``scale``, ``machines`` (names, in row order), ``phases`` (``[[start_ms, name], …]``),
         padded with blanks so that the codes start at a multiple of 8
2·R·C    ``uint16`` codes, row by row: 0 = no data, else score = (code - 1) · scale
======== =================================================================================

A healthy score is 0, the alarm threshold 1. Zero for "no data" makes the maximum over cells
ignore cells without data, which is how a zoomed-out heat map keeps the worst cell visible.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import orjson
from numpy.typing import NDArray

MEDIA_TYPE = "application/vnd.weaklink.scores"
MAGIC = b"WLG1"
SCALE = 0.01
"""One code step in units of the alarm threshold."""

_LARGEST = np.iinfo(np.uint16).max
_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class ScoreGrid:
    """Scores ``float32 [machine, column]`` (NaN = no data) on an even time grid.

    Column *k* starts at ``start_ns + k*step_ns``. ``phases`` are the starts of the job's
    phases within the grid, in time order.
    """

    job: str
    start_ns: int
    step_ns: int
    machines: tuple[str, ...]
    scores: NDArray[np.float32]
    phases: tuple[tuple[int, str], ...] = ()

    def pooled(self, max_columns: int) -> ScoreGrid:
        """At most ``max_columns`` columns, each the maximum of the columns it replaces."""
        rows, columns = self.scores.shape
        factor = -(-columns // max(1, max_columns))
        if factor <= 1:
            return self
        padded = np.full((rows, -(-columns // factor) * factor), np.nan, np.float32)
        padded[:, :columns] = self.scores
        pooled = np.fmax.reduce(padded.reshape(rows, -1, factor), axis=2)
        return replace(self, step_ns=self.step_ns * factor, scores=pooled)

    def worst_rows(self, max_rows: int, keep: Sequence[str] = ()) -> ScoreGrid:
        """At most ``max_rows`` machines: those in ``keep`` and the highest, in their order."""
        rows = self.scores.shape[0]
        if rows <= max_rows:
            return self
        peak = np.fmax.reduce(self.scores, axis=1, initial=-1.0)
        kept = np.isin(np.asarray(self.machines, dtype=object), np.asarray(keep, dtype=object))
        chosen = np.sort(np.lexsort((np.arange(rows), -peak, ~kept))[:max_rows])
        machines = tuple(self.machines[i] for i in chosen)
        return replace(self, machines=machines, scores=self.scores[chosen])

    def codes(self) -> NDArray[np.uint16]:
        """The scores as ``uint16`` codes (see the module's table)."""
        scaled = np.clip(np.rint(self.scores / np.float32(SCALE)) + 1, 1, _LARGEST)
        codes: NDArray[np.uint16] = np.nan_to_num(scaled, nan=0.0).astype(np.uint16)
        return codes

    def encode(self) -> bytes:
        """The binary form."""
        header = orjson.dumps(
            {
                "job": self.job,
                "start_ms": self.start_ns // _MS,
                "step_ms": self.step_ns / _MS,
                "columns": int(self.scores.shape[1]),
                "scale": SCALE,
                "machines": self.machines,
                "phases": [[start // _MS, name] for start, name in self.phases],
            }
        )
        header += b" " * (-len(header) % 8)
        return (
            MAGIC + struct.pack("<I", len(header)) + header + self.codes().astype("<u2").tobytes()
        )


def decode_grid(data: bytes) -> ScoreGrid:
    """The inverse of `ScoreGrid.encode` (to its resolution). Raises ValueError if malformed."""
    if data[:4] != MAGIC or len(data) < 8:
        raise ValueError("not a score grid: it does not start with WLG1")
    (length,) = struct.unpack_from("<I", data, 4)
    head = orjson.loads(data[8 : 8 + length])
    shape = (len(head["machines"]), int(head["columns"]))
    codes = np.frombuffer(data, "<u2", offset=8 + length)
    if codes.size != shape[0] * shape[1]:
        raise ValueError(f"score grid: {codes.size} cells, expected {shape[0]} x {shape[1]}")
    scores = (codes.reshape(shape).astype(np.float32) - 1) * np.float32(head["scale"])
    scores[codes.reshape(shape) == 0] = np.nan
    return ScoreGrid(
        job=head["job"],
        start_ns=int(head["start_ms"]) * _MS,
        step_ns=round(head["step_ms"] * _MS),
        machines=tuple(head["machines"]),
        scores=scores,
        phases=tuple((int(start) * _MS, name) for start, name in head["phases"]),
    )


def even_grid(
    job: str,
    machines: Sequence[str],
    times_ns: NDArray[np.int64],
    scores: NDArray[np.float32],
    phases: Sequence[str] = (),
) -> ScoreGrid:
    """Scores ``[machine, time]`` at ascending times as a grid; what lies between has no data.

    The step is the shortest distance between two times. ``phases`` names the phase at each
    time (empty = unknown).
    """
    steps = np.diff(times_ns)
    step = int(steps[steps > 0].min()) if (steps > 0).any() else 1_000_000_000
    start = int(times_ns[0]) if times_ns.size else 0
    column = (times_ns - start) // step
    grid = np.full((len(machines), int(column[-1]) + 1 if column.size else 0), np.nan, np.float32)
    grid[:, column] = scores
    changes: list[tuple[int, str]] = []
    for at, name in zip(times_ns.tolist(), phases, strict=False):
        if not changes or changes[-1][1] != name:
            changes.append((at, name))
    return ScoreGrid(job, start, step, tuple(machines), grid, tuple(changes))
