"""Event times in whatever form they arrive -> nanoseconds UTC, column by column."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.rules import TimeUnit

UTC_NS = pa.timestamp("ns", tz="UTC")
NS_PER_UNIT: dict[str, int] = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}

EARLIEST_NS = 946_684_800 * 10**9  # 2000-01-01
LATEST_NS = 4_102_444_800 * 10**9  # 2100-01-01
"""Outside these years a time stamp is a wrong unit or an unset clock, not an event time."""


def to_ns(column: pa.Array, unit: TimeUnit = "auto") -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Nanoseconds since the epoch and a mask of the rows that have a usable time.

    ``column`` holds timestamps (naive ones are UTC), dates, numbers of ``unit``, or RFC 3339
    texts; a text without zone is UTC. Unusable rows are 0 and False, never an error. The unit
    ``auto`` is no guess: of seconds, milli-, micro- and nanoseconds, at most one puts a number
    between `EARLIEST_NS` and `LATEST_NS`.
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _numbers(column.cast(pa.int64()), kind.unit)
    if pa.types.is_date(kind):
        return to_ns(column.cast(pa.timestamp("ms")), unit)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _numbers(column, unit)
    if pa.types.is_string(kind):
        return _texts(column)
    return np.zeros(len(column), np.int64), np.zeros(len(column), bool)


def number_to_ns(value: int | float, unit: TimeUnit = "auto") -> int | None:
    """One bare number of ``unit`` as nanoseconds; None if it is no time of this century."""
    for factor in _factors(unit):
        if EARLIEST_NS <= value * factor < LATEST_NS:
            whole = int(value)
            return whole * factor + round((value - whole) * factor)
    return None


def parse_ns(text: str) -> int | None:
    """One RFC 3339 text (zone optional, then UTC) as nanoseconds; None if it is none."""
    head, dot, rest = text.strip().partition(".")
    digits = len(rest) - len(rest.lstrip("0123456789")) if dot else 0
    fraction, zone = rest[:digits], rest[digits:]
    try:
        moment = datetime.fromisoformat((head + zone).replace("z", "Z").replace("t", "T"))
    except ValueError:
        return None
    if dot and not fraction:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = int(moment.timestamp())
    return seconds * 10**9 + int(f"{fraction[:9]:0<9}") if fraction else seconds * 10**9


def _factors(unit: TimeUnit) -> tuple[int, ...]:
    return tuple(NS_PER_UNIT.values()) if unit == "auto" else (NS_PER_UNIT[unit],)


def _numbers(column: pa.Array, unit: TimeUnit) -> tuple[NDArray[np.int64], NDArray[Any]]:
    whole = pa.types.is_integer(column.type)
    if not whole:
        column = column.cast(pa.float64())
    raw = column.fill_null(0) if column.null_count else column
    values = raw.to_numpy(zero_copy_only=False)
    ns, usable = np.zeros(len(values), np.int64), np.zeros(len(values), bool)
    for factor in _factors(unit):
        good = (values >= EARLIEST_NS / factor) & (values < LATEST_NS / factor)
        if not good.any():
            continue
        plausible = np.where(good, values, 0)
        seconds = np.floor(plausible)
        # Whole and fractional part apart: a double holds no nanoseconds of today.
        ns += seconds.astype(np.int64) * factor
        if not whole:
            ns += np.rint((plausible - seconds) * factor).astype(np.int64)
        usable |= good
        if usable.all():
            break
    return ns, usable


def _texts(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[Any]]:
    try:
        return _numbers(pc.cast(column, UTC_NS).cast(pa.int64()), "ns")
    except pa.ArrowInvalid:
        pass
    # Some text is odd; many rows share one instant, so each distinct text is parsed once.
    coded = column.dictionary_encode()
    parsed = [None if t is None else parse_ns(t) for t in coded.dictionary.to_pylist()]
    bounded = [p if p is not None and EARLIEST_NS <= p < LATEST_NS else None for p in parsed]
    return _numbers(pa.array(bounded, pa.int64()).take(coded.indices), "ns")
