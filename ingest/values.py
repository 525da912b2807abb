"""Raw values -> canonical floats: blanks and corrupt reads become missing, and are counted.

DCGM marks "no value" with numbers at the top of each type's range (``dcgm_structs.h``): 16 each
from 2**31 - 16 (int32), from 2**47 (double) and from 2**63 - 16 (int64, which as a double is
2**63). Everything here works on whole columns; NaN stands for "missing".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.metric import Resolution

Floats = NDArray[np.float64]

BLANK_INT32 = 2.0**31 - 16
BLANK_FP64 = 2.0**47
BLANK_INT64 = 2.0**63
SATURATED_UINT32 = 2.0**32 - 1
LARGEST = float(np.finfo(np.float64).max)

BLANK_TEXTS = (
    "", "N/A", "[N/A]", "n/a", "NA", "N/A (no PMA)", "<<<NULL>>>", "<<<NOT_FOUND>>>",
    "<<<NOT_SUPPORTED>>>", "<<<NOT_PERM>>>", "[Not Supported]", "[Unknown Error]", "-", "null",
    "None",
)  # fmt: skip
NAN_TEXTS = ("nan", "+nan", "-nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity")
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"

_BLANK_SET = pa.array(BLANK_TEXTS)
_NAN_SET = pa.array(NAN_TEXTS)


def plain(column: pa.Array) -> pa.Array:
    """The same values without dictionary, run-end or extension dress, texts as ``string``."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain(column.storage)
    if pa.types.is_dictionary(kind):
        return plain(column.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return plain(pc.run_end_decode(column))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    return column


def numbers(column: pa.Array, counts: Counter[str]) -> Floats | None:
    """A `plain` column as floats, NaN where missing; None if its type can hold no numbers.

    Counts texts that mean "no value" as ``blank``, others that are no number as
    ``non_numeric``, and NaN as ``not_finite``; infinities stay.
    """
    kind = column.type
    if pa.types.is_string(kind):
        column = _texts(column, counts)
    elif pa.types.is_boolean(kind) or not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    ):
        counts["non_numeric"] += len(column) - column.null_count
        return None
    if column.type != pa.float64():
        column = column.cast(pa.float64(), safe=False)
    out: Floats = column.to_numpy(zero_copy_only=False)  # nulls become NaN
    counts["not_finite"] += int(np.count_nonzero(np.isnan(out))) - column.null_count
    return out


def canonical(
    raw: Floats,
    resolutions: Sequence[Resolution],
    divisors: Mapping[int, Floats],
    counts: Counter[str],
) -> Floats:
    """Raw values ``[column, row]`` in canonical units; what cannot be a value is missing.

    Counts, in the order in which they are looked for: ``not_finite`` (infinities), ``blank``
    (sentinels), ``saturated`` (a 32-bit counter at its maximum says nothing any more) and
    ``limit``. Of a counter only the sign can be judged here: its limits apply to the rate.
    ``divisors`` holds the values by which a column is divided (see `Resolution.per`).
    """
    metrics = [r.metric for r in resolutions]
    lowest, highest = _range(raw)
    infinite = np.isinf(lowest) | np.isinf(highest)
    raw = _drop(raw, infinite, lambda part, _: np.isinf(part), "not_finite", counts)
    high = highest >= BLANK_INT32
    can_be_blank = np.array([m.blank == "dcgm" for m in metrics])
    can_saturate = np.array([r.counter and r.metric.saturating for r in resolutions])
    raw = _drop(raw, high & can_be_blank, lambda part, _: _is_blank(part), "blank", counts)
    raw = _drop(
        raw, high & can_saturate, lambda part, _: part == SATURATED_UINT32, "saturated", counts
    )
    converted = any(r.factor != 1.0 or r.offset != 0.0 for r in resolutions)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        if divisors:
            raw = raw.copy()
            for row, divisor in divisors.items():
                raw[row] = np.where(divisor > 0, raw[row] / divisor, np.nan)
        if converted:
            raw = raw * _rows([r.factor for r in resolutions])
            raw += _rows([r.offset for r in resolutions])
    if divisors or converted:
        lowest, highest = _range(raw)
    lower = _rows([0.0 if r.counter else max(r.metric.lower, -LARGEST) for r in resolutions])
    upper = _rows([LARGEST if r.counter else min(r.metric.upper, LARGEST) for r in resolutions])
    beyond = (lowest < lower[:, 0]) | (highest > upper[:, 0])
    return _drop(
        raw, beyond, lambda part, at: (part < lower[at]) | (part > upper[at]), "limit", counts
    )


def as_float(value: float | str) -> float:
    """One number or text as a float, infinity beyond any float; ValueError if it is none."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def countable(value: float, resolution: Resolution) -> bool:
    """Whether one raw value is neither missing, blank nor saturated, so that it may be added."""
    if not math.isfinite(value):
        return False
    if value < BLANK_INT32:
        return True
    if resolution.counter and resolution.metric.saturating and value == SATURATED_UINT32:
        return False
    blank = value >= BLANK_INT64 or any(
        start <= value < start + 16 for start in (BLANK_INT32, BLANK_FP64)
    )
    return not blank or resolution.metric.blank == "none"


def _is_blank(raw: Floats) -> NDArray[np.bool_]:
    blank: NDArray[np.bool_] = (
        ((raw >= BLANK_INT32) & (raw < BLANK_INT32 + 16))
        | ((raw >= BLANK_FP64) & (raw < BLANK_FP64 + 16))
        | (raw >= BLANK_INT64)
    )
    return blank


def _rows(numbers_: Sequence[float]) -> Floats:
    return np.array(numbers_, dtype=np.float64)[:, None]


def _range(values: Floats) -> tuple[Floats, Floats]:
    """Smallest and largest value of each column, NaN where there is none."""
    return np.fmin.reduce(values, axis=1), np.fmax.reduce(values, axis=1)


def _drop(
    values: Floats,
    suspect: NDArray[np.bool_],
    bad: Callable[[Floats, NDArray[np.intp]], NDArray[np.bool_]],
    reason: str,
    counts: Counter[str],
) -> Floats:
    """The values without the bad ones, which only ``suspect`` columns may have: mostly none."""
    at = np.flatnonzero(suspect)
    if not at.size:
        return values
    part = values[at]
    found = bad(part, at)
    count = int(np.count_nonzero(found))
    if not count:
        return values
    counts[reason] += count
    kept = values.copy()
    kept[at] = np.where(found, np.nan, part)
    return kept


def _texts(column: pa.Array, counts: Counter[str]) -> pa.Array:
    text = pc.utf8_trim_whitespace(column)
    blank = pc.fill_null(pc.is_in(text, _BLANK_SET), False)
    nan = pc.fill_null(pc.is_in(pc.utf8_lower(text), _NAN_SET), False)
    number = pc.fill_null(pc.match_substring_regex(text, NUMBER), False)
    counts["blank"] += pc.sum(blank).as_py() or 0
    counts["not_finite"] += pc.sum(nan).as_py() or 0
    usable = pc.sum(number).as_py() or 0
    counts["non_numeric"] += (
        len(text) - text.null_count - usable - (pc.sum(pc.or_(blank, nan)).as_py() or 0)
    )
    kept = pc.if_else(number, text, pa.scalar(None, pa.string()))
    # Arrow's number parser knows no leading plus sign.
    return pc.replace_substring_regex(kept, r"^\+", "").cast(pa.float64())
