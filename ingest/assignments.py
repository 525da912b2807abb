"""Which job a machine worked for at an instant, when the samples do not say so themselves.

Two sources: messages ``{"job", "machines": [..], "start", "end"}`` as a scheduler's hook sends
them, and a fixed map of machine name patterns from the configuration (it answers last).
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.samples import Rejected
from ingest.timestamps import number_to_ns, parse_ns

FOREVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Assignment:
    """``machines`` work for ``job`` from ``start_ns`` (inclusive) to ``end_ns`` (exclusive)."""

    job: str
    machines: tuple[str, ...]
    start_ns: int = 0
    end_ns: int = FOREVER


class _Message(msgspec.Struct):
    job: str | int
    machines: list[str]
    start: str | int | float | None = None
    end: str | int | float | None = None


def parse_assignment(payload: bytes, origin: str) -> Assignment | Rejected:
    """A ``job.assignments`` message; times are RFC 3339 or epoch numbers, absent = unbounded."""
    try:
        message = msgspec.json.decode(payload, type=_Message)
    except (msgspec.MsgspecError, RecursionError) as error:
        return Rejected("bad_assignment", origin, str(error), payload)
    start, end = _instant(message.start, 0), _instant(message.end, FOREVER)
    job = str(message.job).strip()
    machines = tuple(dict.fromkeys(m.strip() for m in message.machines if m.strip()))
    if start is None or end is None:
        return Rejected("bad_assignment", origin, "start or end is not a time", payload)
    if not job or not machines or start >= end:
        detail = "needs a job, at least one machine, and start before end"
        return Rejected("bad_assignment", origin, detail, payload)
    return Assignment(job, machines, start, end)


def _instant(value: str | int | float | None, default: int) -> int | None:
    if value is None:
        return default
    return parse_ns(value) if isinstance(value, str) else number_to_ns(value)


@dataclass(slots=True)
class Assignments:
    """All assignments that may still matter; bounded per machine and in machines.

    When several cover an instant, the one that started last wins; of equal starts the one that
    came last. A message with the same job, machine and start replaces the earlier one, so an
    end can be told later.
    """

    patterns: Mapping[str, str] = field(default_factory=dict)
    """Machine name pattern (``*``, ``?``) -> job, for machines that no message mentions."""

    max_per_machine: int = 32
    max_machines: int = 100_000
    _spans: dict[str, list[tuple[int, int, str]]] = field(default_factory=dict)

    def add(self, assignment: Assignment) -> None:
        """Take in one assignment."""
        for machine in assignment.machines:
            # Taken out and put back: the machine told of longest ago is the first to go.
            spans = self._spans.pop(machine, [])
            spans = [s for s in spans if (s[0], s[2]) != (assignment.start_ns, assignment.job)]
            spans.append((assignment.start_ns, assignment.end_ns, assignment.job))
            spans.sort(key=lambda span: span[0])
            self._spans[machine] = spans[-self.max_per_machine :]
        while len(self._spans) > self.max_machines:
            del self._spans[next(iter(self._spans))]

    def forget(self, before_ns: int) -> None:
        """Drop what ended before an instant."""
        for machine, spans in list(self._spans.items()):
            kept = [span for span in spans if span[1] > before_ns]
            if kept:
                self._spans[machine] = kept
            else:
                del self._spans[machine]

    def snapshot(self) -> list[tuple[str, int, int, str]]:
        """Every span as (machine, start, end, job), oldest told first; fit for JSON."""
        return [(machine, *span) for machine, spans in self._spans.items() for span in spans]

    def restore(self, spans: Iterable[Sequence[Any]]) -> None:
        """Replace what is known by a `snapshot`."""
        self._spans = {}
        for machine, start, end, job in spans:
            self._spans.setdefault(machine, []).append((start, end, job))

    def __len__(self) -> int:
        return sum(map(len, self._spans.values()))

    def __bool__(self) -> bool:
        return bool(self._spans or self.patterns)

    def jobs(self, machine: pa.Array, ns: NDArray[np.int64]) -> pa.Array:
        """The job of each row (``string``, null where none is known)."""
        coded = machine.dictionary_encode()
        names = coded.dictionary.to_pylist()
        codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        jobs: dict[str, int] = {}
        out = np.full(len(machine), -1, np.int64)
        for code, name in enumerate(names):
            spans = self._spans.get(name)
            fixed = self._fixed(name)
            if not spans and fixed is None:
                continue
            rows = np.flatnonzero(codes == code)
            if fixed is not None:
                out[rows] = jobs.setdefault(fixed, len(jobs))
            for start, end, job in spans or ():
                inside = rows[(ns[rows] >= start) & (ns[rows] < end)]
                out[inside] = jobs.setdefault(job, len(jobs))
        known = pa.array(list(jobs), pa.string())
        return known.take(pa.array(out, mask=out < 0))

    def _fixed(self, machine: str) -> str | None:
        for pattern, job in self.patterns.items():
            if fnmatch.fnmatchcase(machine, pattern):
                return job
        return None
