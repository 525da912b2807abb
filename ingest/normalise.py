"""Raw wide tables, whatever their columns are called -> the canonical sample batch.

Order matters: blank sentinels and texts become missing before anything else looks at a value;
then units are converted; then physical limits apply. Columns of one metric are never mixed by
averaging: per row the most exact one that has a value wins (`Resolution.rank`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.catalogue import Catalogue
from ingest.metric import Resolution
from ingest.rules import NameBudget, Rules
from ingest.samples import KEY_COLUMNS, KEY_FIELDS, Decoded, Rejected, empty_samples
from ingest.timestamps import UTC_NS, to_ns
from ingest.values import Floats, canonical, numbers, without_blanks

Origin = str | Callable[[int], str]
"""Where rows come from: a name, to which the row number is added, or a function of the row."""

ITEMISED = 100
"""Rejected rows named one by one per reason and call; further ones share one summary."""

Mask = NDArray[np.bool_]


def normalise(
    table: pa.Table,
    catalogue: Catalogue,
    origin: Origin,
    rules: Rules | None = None,
    budget: NameBudget | None = None,
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

    Returns
    -------
    Decoded
        Every input row is either in ``samples`` or stands in ``rejected`` (sum of its
        ``rows``), except rows of MIG instances, see `Rules.mig`. Reasons: ``bad_timestamp``,
        ``no_machine``, ``localhost``, ``no_job``, ``bad_gpu``.
    """
    rules = rules or Rules()
    budget = budget or NameBudget(rules.max_unknown_metrics)
    if table.num_rows == 0:
        return Decoded(empty_samples())
    columns = _Columns(table)
    counts: Counter[str] = Counter()
    keys, rejected = _keys(columns, table.num_rows, rules, origin)
    metrics = _metrics(columns, catalogue, rules, budget, counts)
    samples = pa.table(
        [*keys.arrays, *(pa.array(v, from_pandas=True) for v in metrics.values())],
        schema=pa.schema([*KEY_FIELDS, *(pa.field(name, pa.float64()) for name in metrics)]),
    )
    if keys.instance.any():
        samples = _fold_instances(samples, keys, catalogue, rules, counts)
    elif not keys.usable.all():
        samples = samples.filter(pa.array(keys.usable))
    return Decoded(samples, rejected, +counts)


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

    def at(self, index: int) -> pa.Array:
        column = self.table.column(index)
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


@dataclass(slots=True)
class _Keys:
    arrays: list[pa.Array]
    usable: Mask
    instance: Mask


def _keys(
    columns: _Columns, rows: int, rules: Rules, origin: Origin
) -> tuple[_Keys, list[Rejected]]:
    identity = rules.identity
    ns, timed = np.zeros(rows, np.int64), np.zeros(rows, bool)
    for column in columns.take(identity.time):
        candidate, usable = to_ns(column, rules.time_unit)
        ns, timed = np.where(timed, ns, candidate), timed | usable
    machine = _name(columns.take(identity.machine), rows)
    job = _name(columns.take(identity.row_job), rows)
    gpu, gpu_ok = _gpu(columns.take(identity.gpu), rows)
    instance = _name(columns.take(identity.mig), rows)

    lost: dict[str, Mask] = {
        "bad_timestamp": ~timed,
        "no_machine": np.asarray(machine.is_null()),
        "localhost": np.asarray(
            pc.is_in(pc.utf8_lower(machine), pa.array(sorted(identity.refused), pa.string()))
        ),
        "no_job": np.asarray(job.is_null()),
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
    "bad_gpu": "the GPU index is not a whole number from 0 to 9999",
}


def _name(candidates: list[pa.Array], rows: int) -> pa.Array:
    found = pa.nulls(rows, pa.string())
    for column in candidates:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
            continue
        text = pc.utf8_trim_whitespace(column.cast(pa.string()))
        found = pc.coalesce(found, pc.if_else(pc.equal(text, ""), None, text))
    return found


def _gpu(candidates: list[pa.Array], rows: int) -> tuple[pa.Array, Mask]:
    index, good = np.full(rows, np.nan), np.ones(rows, bool)
    for column in candidates:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_floating(column.type):
            present = ~np.isnan(column.to_numpy(zero_copy_only=False))
        else:
            present = np.asarray(column.is_valid())
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
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
    raw = _RawColumns(columns, rules, counts)
    found: dict[str, list[tuple[Resolution, Floats]]] = {}
    for name, places in columns.places.items():
        resolution = catalogue.resolve(name, dcgm_ids=rules.dcgm_ids)
        if not resolution.metric.known and catalogue.is_denominator(name):
            continue
        for place in places:
            values = raw.numbers(place)
            if values is None:
                continue
            values = without_blanks(values, resolution.metric, counts)
            divisor = raw.divisor(resolution.per)
            if resolution.per and divisor is None:
                continue
            values = canonical(values, resolution, divisor, counts)
            present = int(np.count_nonzero(~np.isnan(values)))
            if not present:
                continue
            if not resolution.metric.known and (
                len(name) > rules.max_name_length or not budget.admits(resolution.metric.name)
            ):
                counts["unknown_name"] += present
                continue
            found.setdefault(resolution.metric.name, []).append((resolution, values))
    out: dict[str, Floats] = {}
    for metric in sorted(found):
        out.update(_choose(found[metric]))
    return out


class _RawColumns:
    """Columns as floats, each read once."""

    def __init__(self, columns: _Columns, rules: Rules, counts: Counter[str]) -> None:
        self._columns = columns
        self._labels = frozenset(rules.identity.labels)
        self._counts = counts

    def numbers(self, place: int) -> Floats | None:
        column = self._columns.at(place)
        if column.null_count == len(column):
            return None
        if self._is_label(place, column):
            return None
        return numbers(column, self._counts)

    def divisor(self, name: str) -> Floats | None:
        places = self._columns.places.get(name) if name else None
        return numbers(self._columns.at(places[0]), Counter()) if places else None

    def _is_label(self, place: int, column: pa.Array) -> bool:
        kind = column.type
        value_type: Any = kind.value_type if pa.types.is_dictionary(kind) else kind
        textual = pa.types.is_string(value_type) or pa.types.is_large_string(value_type)
        return textual and self._columns.table.schema.names[place] in self._labels


def _choose(candidates: list[tuple[Resolution, Floats]]) -> dict[str, Floats]:
    """One metric's columns -> its batch columns: parts added up, then the best per row."""
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
