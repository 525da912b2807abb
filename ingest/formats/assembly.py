"""Single series (name, labels, time, value) -> rows of one machine or GPU at one instant.

Prometheus, OpenTelemetry and Telegraf send one value at a time, labelled. Several series may
belong to one value of a machine: eight ports, sixty-four CPUs. They are folded by the metric's
rule before anything looks at them, blanks left out. Where a scrape may be cut into several
messages (``hold``), such values wait until the next scrape of the same machine has begun;
otherwise the sum over half the ports would look like a fault.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from ingest.formats.protocol import Context
from ingest.metric import Resolution
from ingest.normalise import normalise
from ingest.rules import Identity, Rules
from ingest.samples import COUNTER_SUFFIX, Decoded, Rejected, empty_samples
from ingest.values import countable

Declared = Literal["counter", "gauge", "distribution"]

_TS, _JOB, _MACHINE, _GPU, _MIG = " ts", " job", " machine", " gpu", " mig"
"""Key columns of the raw table; no series can have such a name."""

_GPU_INDEX = re.compile(r"(?:nvidia|gpu|GPU|card)?(\d{1,4})")
_GPU_DEVICE = re.compile(r"nvidia(\d{1,4})")
_PORT = re.compile(r"(.+?):\d+")


@dataclass(slots=True)
class Slot:
    """One raw column of one machine or GPU, fed by one series or by several."""

    machine: str | None
    job: str | None
    gpu: int | None
    mig: str | None
    column: str
    resolution: Resolution
    several: bool
    members: set[int] = field(default_factory=set)
    since_ns: int = -1
    waiting: dict[Target, float] = field(default_factory=dict)
    origin: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """Where the values of one series go."""

    slot: Slot
    over: str


class Assembler:
    """Folds series into rows; one per decoder, as it remembers series.

    Parameters
    ----------
    job_labels
        Labels that name the training job, the first one with a value wins.
    hold
        Whether one scrape may be spread over several messages.
    """

    def __init__(self, context: Context, job_labels: tuple[str, ...], *, hold: bool) -> None:
        self.context = context
        self.counts: Counter[str] = Counter()
        self._job_labels = job_labels
        self._hold = hold
        self._budget = context.budget()
        self._rules: Rules = replace(
            context.rules,
            identity=Identity(
                time=(_TS,),
                machine=(_MACHINE,),
                row_job=(_JOB,),
                gpu=(_GPU,),
                mig=(_MIG,),
                labels=(),
                refused=context.rules.identity.refused,
            ),
            time_unit="ns",
        )
        self._targets: dict[Hashable, Target | str] = {}
        self._slots: dict[tuple[str | None, str | None, int | None, str | None, str], Slot] = {}
        self._rows: dict[tuple[int, str | None, str | None, int | None, str | None], int] = {}
        self._origins: list[str] = []
        self._cells: dict[str, dict[int, float | dict[Target, float]]] = {}

    # ------------------------------------------------------------ which series is what

    def known(self, key: Hashable) -> Target | str | None:
        """The target (or why there is none) remembered under a decoder's own series key."""
        return self._targets.get(key)

    def target(
        self, key: Hashable, name: str, labels: Mapping[str, str], declared: Declared
    ) -> Target | str:
        """Where a series goes, or the reason why nowhere; remembered under ``key``."""
        if len(self._targets) >= self.context.rules.max_series:
            self._forget()
        found = self._resolve(name, labels, declared)
        self._targets[key] = found
        return found

    def _resolve(self, name: str, labels: Mapping[str, str], declared: Declared) -> Target | str:
        catalogue, rules = self.context.catalogue, self.context.rules
        resolution = catalogue.resolve(name, dcgm_ids=rules.dcgm_ids)
        metric, column = resolution.metric, name
        if not metric.known and not catalogue.is_denominator(name):
            # No value of a machine, or one whose meaning nobody has told us.
            if declared == "distribution" or catalogue.ignored(name):
                return "ignored"
            if not self._budget.admits(metric.name):
                return "unknown_name"
            if declared == "counter":
                metric = replace(metric, fold="sum")
                resolution = replace(resolution, metric=metric, counter=True)
                column = metric.name + COUNTER_SUFFIX
        if not resolution.admits(labels):
            return "ignored"
        gpu = self._gpu(labels) if metric.scope == "gpu" or not metric.known else None
        mig = self._first(rules.identity.mig, labels) if gpu is not None else None
        job = self._first(self._job_labels, labels)
        where = (self._machine(labels), job, gpu, mig, column)
        slot = self._slots.get(where)
        if slot is None:
            slot = self._slots[where] = Slot(*where, resolution, resolution.several)
        slot.members.add(hash(frozenset(labels.items())))
        slot.several |= len(slot.members) > 1
        return Target(slot, labels.get(resolution.over, ""))

    def _machine(self, labels: Mapping[str, str]) -> str | None:
        identity = self.context.rules.identity
        refused = None
        for label in identity.machine:
            name = labels.get(label, "").strip()
            if label == "instance" and (port := _PORT.fullmatch(name)):
                name = port[1].strip("[]")
            if name and name.lower() not in identity.refused:
                return name
            refused = refused or name or None
        return refused

    def _gpu(self, labels: Mapping[str, str]) -> int | None:
        identity = self.context.rules.identity
        for label in (*identity.gpu, *identity.series_gpu):
            match = _GPU_INDEX.fullmatch(labels.get(label, ""))
            if match is not None:
                return int(match[1])
        match = _GPU_DEVICE.fullmatch(labels.get("device", ""))
        return None if match is None else int(match[1])

    @staticmethod
    def _first(names: tuple[str, ...], labels: Mapping[str, str]) -> str | None:
        return next((labels[name] for name in names if labels.get(name)), None)

    # ------------------------------------------------------------ values

    def add(self, target: Target, ts_ns: int, value: float, origin: str) -> None:
        """One value of a series."""
        slot = target.slot
        if not (slot.several and self._hold):
            self._put(slot, target, ts_ns, value, origin)
        elif ts_ns == slot.since_ns and slot.waiting:
            slot.waiting[target] = value
        elif ts_ns > slot.since_ns:
            self._release(slot)
            slot.since_ns, slot.waiting, slot.origin = ts_ns, {target: value}, origin
        else:
            self.counts["late_series"] += 1

    def _put(self, slot: Slot, target: Target, ts_ns: int, value: float, origin: str) -> None:
        row = self._row(slot, ts_ns, origin)
        cells = self._cells.setdefault(slot.column, {})
        if not slot.several:
            cells[row] = value
            return
        cell = cells.setdefault(row, {})
        if not isinstance(cell, dict):
            # The slot had one series when this row began.
            cell = cells[row] = {Target(slot, ""): cell}
        cell[target] = value

    def _release(self, slot: Slot) -> None:
        if slot.waiting:
            row = self._row(slot, slot.since_ns, slot.origin)
            self._cells.setdefault(slot.column, {})[row] = slot.waiting
            slot.waiting = {}

    def _row(self, slot: Slot, ts_ns: int, origin: str) -> int:
        key = (ts_ns, slot.machine, slot.job, slot.gpu, slot.mig)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = len(self._origins)
            self._origins.append(origin)
        return row

    def take(self, rejected: list[Rejected], *, all_of_it: bool = False) -> Decoded:
        """The rows gathered so far, as a batch; with ``all_of_it`` also what still waits."""
        if all_of_it:
            for slot in self._slots.values():
                self._release(slot)
        counts, self.counts = self.counts, Counter()
        if not self._rows:
            return Decoded(empty_samples(), rejected, +counts)
        table, origins = self._table(), self._origins
        self._rows, self._origins, self._cells = {}, [], {}
        context = self.context
        done = normalise(
            table,
            context.catalogue,
            origins.__getitem__,
            self._rules,
            self._budget,
            context.assignments,
        )
        return Decoded(done.samples, rejected + done.rejected, counts + done.counts)

    def _table(self) -> pa.Table:
        ts, machine, job, gpu, mig = zip(*self._rows, strict=True)
        columns = {
            _TS: pa.array(ts, pa.int64()),
            _MACHINE: pa.array(machine, pa.string()),
            _JOB: pa.array(job, pa.string()),
            _GPU: pa.array(gpu, pa.int32()),
            _MIG: pa.array(mig, pa.string()),
        }
        for name, cells in self._cells.items():
            values: list[float | None] = [None] * len(ts)
            for row, cell in cells.items():
                values[row] = fold(cell) if isinstance(cell, dict) else cell
            columns[name] = pa.array(values, pa.float64())
        return pa.table(columns)

    def _forget(self) -> None:
        """Start over with series; what waits is released, so that nothing is lost."""
        for slot in self._slots.values():
            self._release(slot)
        self._targets.clear()
        self._slots.clear()
        self.counts["series_forgotten"] += 1


def fold(values: Mapping[Target, float]) -> float | None:
    """Several series' values as one, by the metric's rule; None if none has a value."""
    resolution = next(iter(values)).slot.resolution
    usable = {t: v for t, v in values.items() if countable(v, resolution)}
    if not usable:
        return None
    if resolution.over:
        return sum(usable.values()) / len({t.over for t in usable})
    rule = "sum" if resolution.counter else resolution.metric.fold
    if rule == "max":
        return max(usable.values())
    total = sum(usable.values())
    return total / len(usable) if rule == "mean" else total
