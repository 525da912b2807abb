"""Raw wide tables, whatever their columns are called -> the canonical sample batch.

Order matters: blank sentinels and texts become missing before anything else looks at a value;
then units are converted; then physical limits apply. Columns of one metric are never mixed by
averaging: per row the most exact one that has a value wins (`Resolution.rank`).
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.assignments import Assignments
from ingest.catalogue import Catalogue
from ingest.metric import Resolution
from ingest.rules import NameBudget, Rules
from ingest.samples import KEY_COLUMNS, KEY_FIELDS, Decoded, Rejected, empty_samples
from ingest.timestamps import UTC_NS, to_ns
from ingest.values import Floats, canonical, numbers, plain

Origin = str | Callable[[int], str]
"""Where rows come from: a name, to which the row number is added, or a function of the row."""

ITEMISED = 1000
"""Rejected rows named one by one per reason and call; further ones share one summary."""

Mask = NDArray[np.bool_]


def normalise(
    table: pa.Table,
    catalogue: Catalogue,
    origin: Origin,
    rules: Rules | None = None,
    budget: NameBudget | None = None,
    assignments: Assignments | None = None,
) -> Decoded:
    """A raw wide table as a canonical batch, see `ingest.samples`.

    Parameters
    ----------
    table
        One row per (machine, gpu, instant). Key columns are found by `Rules.identity`; every
        other column is a metric by any name that the catalogue resolves, of any type: numbers,
        texts that hold numbers, dictionaries of either.
    origin
        Names the place in each `Rejected`.
    budget
        Bounds unknown names over several calls; by default over this call.
    assignments
        Tells the job of rows that do not say it themselves.

    Returns
    -------
    Decoded
        Every input row is either in ``samples`` or stands in ``rejected`` (sum of its
        ``rows``), except rows of MIG instances, see `Rules.mig`. Reasons: ``bad_timestamp``,
        ``no_machine``, ``localhost``, ``no_job``, ``bad_name``, ``bad_gpu``.
    """
    rules = rules or Rules()
    budget = budget or NameBudget.of(rules)
    if table.num_rows == 0:
        return Decoded(empty_samples())
    columns = _Columns(table)
    counts: Counter[str] = Counter()
    keys, rejected = _keys(columns, table.num_rows, rules, origin, assignments)
    metrics = _metrics(columns, catalogue, rules, budget, counts)
    samples = pa.table(
        [*keys.arrays, *map(_nullable, metrics.values())],
        schema=pa.schema([*KEY_FIELDS, *(pa.field(name, pa.float64()) for name in metrics)]),
    )
    if keys.instance.any():
        samples = _fold_instances(samples, keys, catalogue, rules, counts)
    elif not keys.usable.all():
        samples = samples.filter(pa.array(keys.usable))
    return Decoded(samples, rejected, +counts)


def _nullable(values: Floats) -> pa.Array:
    """NaN as null; to look for it first costs less than what Arrow does, and mostly is all."""
    return pa.array(values, from_pandas=bool(np.isnan(values).any()))


class _Columns:
    """The table's columns by name, combined, in order; several may share a name."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.places: dict[str, list[int]] = {}
        for index, name in enumerate(table.schema.names):
            self.places.setdefault(name, []).append(index)

    def take(self, names: Sequence[str]) -> list[pa.Array]:
        """The columns of these names, which are then no metrics."""
        return [self.at(index) for name in names for index in self.places.pop(name, [])]

    def numbers(self, places: Sequence[int]) -> Floats | None:
        """The first of some columns as floats, without counting what is lost."""
        return numbers(self.at(places[0]), Counter()) if places else None

    def at(self, index: int) -> pa.Array:
        column = self.table.column(index)
        return plain(column.chunk(0) if column.num_chunks == 1 else column.combine_chunks())


@dataclass(slots=True)
class _Keys:
    arrays: list[pa.Array]
    usable: Mask
    instance: Mask


def _keys(
    columns: _Columns,
    rows: int,
    rules: Rules,
    origin: Origin,
    assignments: Assignments | None,
) -> tuple[_Keys, list[Rejected]]:
    identity = rules.identity
    ns, timed = np.zeros(rows, np.int64), np.zeros(rows, bool)
    for column in columns.take(identity.time):
        candidate, usable = to_ns(column, rules.time_unit)
        ns, timed = np.where(timed, ns, candidate), timed | usable
    machine = _name(columns.take(identity.machine), rows, identity.refused)
    job = _name(columns.take(identity.row_job), rows)
    if assignments and job.null_count:
        job = pc.coalesce(job, assignments.jobs(machine, ns))
    gpu, gpu_ok = _gpu(columns.take(identity.gpu), rows)
    instance = _name(columns.take(identity.mig), rows)

    lost: dict[str, Mask] = {
        "bad_timestamp": ~timed,
        "no_machine": np.asarray(machine.is_null()),
        "localhost": np.asarray(pc.fill_null(pc.equal(machine, _REFUSED), False)),
        "no_job": np.asarray(job.is_null()),
        "bad_name": ~(_printable(machine) & _printable(job)),
        "bad_gpu": ~gpu_ok,
    }
    bad = np.zeros(rows, bool)
    rejected: list[Rejected] = []
    for reason, mask in lost.items():
        rejected += _rejections(reason, np.flatnonzero(mask & ~bad), origin)
        bad |= mask
    arrays = [pa.array(ns).cast(UTC_NS), job, machine, gpu]
    return _Keys(arrays, ~bad, np.asarray(instance.is_valid()) & ~bad), rejected


def _rejections(reason: str, rows: NDArray[np.intp], origin: Origin) -> list[Rejected]:
    def place(row: int) -> str:
        return f"{origin}, row {row}" if isinstance(origin, str) else origin(row)

    found = [Rejected(reason, place(int(row)), _DETAILS[reason]) for row in rows[:ITEMISED]]
    if len(rows) > ITEMISED:
        rest = len(rows) - ITEMISED
        detail = f"{_DETAILS[reason]}; {rest} more rows, up to {place(int(rows[-1]))}"
        found.append(Rejected(reason, place(int(rows[ITEMISED])), detail, rows=rest))
    return found


_DETAILS = {
    "bad_timestamp": "no time stamp, or none between 2000 and 2100 (wrong unit?)",
    "no_machine": "no machine name",
    "localhost": "the machine calls itself localhost",
    "no_job": "no job, and none assigned to the machine",
    "bad_name": "a control character in the name of the machine or the job",
    "bad_gpu": "the GPU index is not a whole number from 0 to 9999",
}


def _nameable(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind))


_REFUSED = ""
"""Stands for a name that is refused; an empty one is none."""


def _name(
    candidates: list[pa.Array], rows: int, refused: Collection[str] = frozenset()
) -> pa.Array:
    def cleaned(name: str) -> str | None:
        name = name.strip()
        return _REFUSED if name.lower() in refused else name or None

    found: pa.Array | None = None
    for column in candidates:
        if not _nameable(column.type):
            continue
        if pa.types.is_floating(column.type):
            # Whole numbers that became doubles because some were missing.
            column = pc.if_else(pc.is_finite(column), column, None)
            if pc.all(pc.equal(column, pc.floor(column))).as_py():
                column = column.cast(pa.int64(), safe=False)
        text = _each(column.cast(pa.string()), cleaned)
        found = text if found is None else pc.coalesce(found, text)
        if not found.null_count:
            break
    return pa.nulls(rows, pa.string()) if found is None else found


def _each(names: pa.Array, change: Callable[[str], str | None]) -> pa.Array:
    """``change`` of each name; as names repeat, it is called once for each distinct one."""
    coded = names.dictionary_encode()
    before = coded.dictionary.to_pylist()
    after = [change(name) for name in before]
    return names if after == before else pa.array(after, pa.string()).take(coded.indices)


def _printable(names: pa.Array) -> Mask:
    """Which names hold no control character: databases, logs and headers refuse some of them."""

    def checked(name: str) -> str | None:
        odd = not name.isprintable() and any(unicodedata.category(c) == "Cc" for c in name)
        return None if odd else name

    return np.asarray(_each(names, checked).is_valid())


def _gpu(candidates: list[pa.Array], rows: int) -> tuple[pa.Array, Mask]:
    index, good = np.full(rows, np.nan), np.ones(rows, bool)
    for column in candidates:
        if pa.types.is_floating(column.type):
            present = ~np.isnan(column.to_numpy(zero_copy_only=False))
        else:
            present = np.asarray(column.is_valid())
        if pa.types.is_string(column.type):
            present &= np.asarray(pc.fill_null(pc.not_equal(column, ""), False))
        values = numbers(column, Counter())
        if values is None:
            values = np.full(rows, np.nan)
        fresh = np.isnan(index) & good
        whole = (values >= 0) & (values <= 9999) & (values == np.floor(values))
        good &= ~(fresh & present & ~whole)
        index = np.where(fresh & whole, values, index)
    missing = np.isnan(index)
    return pa.array(np.where(missing, 0, index).astype(np.int32), mask=missing), good


def _metrics(
    columns: _Columns,
    catalogue: Catalogue,
    rules: Rules,
    budget: NameBudget,
    counts: Counter[str],
) -> dict[str, Floats]:
    resolutions: list[Resolution] = []
    raw: list[Floats] = []
    divisors: dict[int, Floats] = {}
    for name, places in columns.places.items():
        resolution = catalogue.resolve(name, dcgm_ids=rules.dcgm_ids)
        if not resolution.metric.known and catalogue.is_denominator(name):
            continue
        divisor = columns.numbers(columns.places.get(resolution.per, ()))
        if resolution.per and divisor is None:
            continue
        for place in places:
            column = columns.at(place)
            if column.null_count == len(column):
                continue
            if pa.types.is_string(column.type) and name in rules.identity.labels:
                continue
            values = numbers(column, counts)
            if values is not None:
                if divisor is not None:
                    divisors[len(raw)] = divisor
                raw.append(values)
                resolutions.append(resolution)
    if not raw:
        return {}
    clean = canonical(np.array(raw), resolutions, divisors, counts)
    empty = np.isnan(np.fmax.reduce(clean, axis=1)).tolist()
    found: dict[str, list[tuple[Resolution, Floats]]] = {}
    for resolution, values, nothing in zip(resolutions, clean, empty, strict=True):
        metric = resolution.metric
        if nothing:
            continue
        if not metric.known and not budget.admits(metric.name):
            counts["unknown_name"] += int(np.count_nonzero(~np.isnan(values)))
            continue
        found.setdefault(metric.name, []).append((resolution, values))
    out: dict[str, Floats] = {}
    for name in sorted(found):
        out.update(_choose(found[name]))
    return out


def _choose(candidates: list[tuple[Resolution, Floats]]) -> dict[str, Floats]:
    """One metric's columns -> its batch columns: parts added up, then the best per row."""
    if len(candidates) == 1:
        resolution, values = candidates[0]
        return {resolution.column(): values}
    wholes: dict[tuple[int, str], tuple[Resolution, Floats]] = {}
    for index, (resolution, values) in enumerate(candidates):
        key = (resolution.rank, resolution.part or f"#{index}")
        if key in wholes:
            other = wholes[key][1]
            both = np.where(
                np.isnan(other), values, np.where(np.isnan(values), other, other + values)
            )
            wholes[key] = (resolution, both)
        else:
            wholes[key] = (resolution, values)
    taken: Mask | None = None
    out: dict[str, Floats] = {}
    for _, (resolution, values) in sorted(wholes.items(), key=lambda item: item[0]):
        column = resolution.column()
        if taken is not None:
            values = np.where(taken, np.nan, values)
        out[column] = (
            values if column not in out else np.where(np.isnan(out[column]), values, out[column])
        )
        present = ~np.isnan(values)
        taken = present if taken is None else taken | present
    return out


def _fold_instances(
    samples: pa.Table, keys: _Keys, catalogue: Catalogue, rules: Rules, counts: Counter[str]
) -> pa.Table:
    whole = samples.filter(pa.array(keys.usable & ~keys.instance))
    counts["mig"] += int(np.count_nonzero(keys.instance))
    if rules.mig == "drop":
        return whole
    parts = samples.filter(pa.array(keys.instance))
    names = parts.schema.names[len(KEY_COLUMNS) :]
    folds = [(name, catalogue.resolve(name).metric.fold) for name in names]
    grouped = parts.group_by(list(KEY_COLUMNS), use_threads=False).aggregate(folds)
    grouped = grouped.select([*KEY_COLUMNS, *(f"{name}_{fold}" for name, fold in folds)])
    return pa.concat_tables(
        [whole, grouped.rename_columns(samples.schema.names).cast(samples.schema)]
    )
