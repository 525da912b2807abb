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


def to_ns(column: pa.Array, unit: TimeUnit = "ms") -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Nanoseconds since the epoch and a mask of the rows that have a usable time.

    ``column`` holds timestamps (naive ones are UTC), dates, numbers of ``unit``, or RFC 3339
    texts; a text without zone is UTC. Unusable rows are 0 and False, never an error.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return to_ns(column.dictionary_decode(), unit)
    if pa.types.is_timestamp(kind):
        return _scaled(column.cast(pa.int64()), NS_PER_UNIT[kind.unit])
    if pa.types.is_date(kind):
        return to_ns(column.cast(pa.timestamp("ms")), unit)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _scaled(column, NS_PER_UNIT[unit])
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _texts(column)
    return np.zeros(len(column), np.int64), np.zeros(len(column), bool)


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


def _scaled(numbers: pa.Array, factor: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
    valid = np.asarray(numbers.is_valid())
    if pa.types.is_integer(numbers.type):
        whole = numbers.fill_null(0).to_numpy(zero_copy_only=False)
        usable = valid & (whole >= EARLIEST_NS // factor) & (whole < LATEST_NS // factor)
        return np.where(usable, whole, 0).astype(np.int64) * factor, usable
    real = numbers.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
    usable = valid & (real >= EARLIEST_NS / factor) & (real < LATEST_NS / factor)
    real = np.where(usable, real, 0.0)
    # Whole and fractional part apart: a double holds no nanoseconds of today.
    whole = np.floor(real)
    return whole.astype(np.int64) * factor + np.rint((real - whole) * factor).astype(
        np.int64
    ), usable


def _texts(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[Any]]:
    try:
        return _scaled(pc.cast(column, UTC_NS).cast(pa.int64()), 1)
    except pa.ArrowInvalid:
        pass
    # Some text is odd; many rows share one instant, so each distinct text is parsed once.
    coded = column.dictionary_encode()
    parsed = [None if t is None else parse_ns(t) for t in coded.dictionary.to_pylist()]
    bounded = [p if p is not None and EARLIEST_NS <= p < LATEST_NS else None for p in parsed]
    return _scaled(pa.array(bounded, pa.int64()).take(coded.indices), 1)
