"""Raw values -> canonical floats: blanks and corrupt reads become missing, and are counted.

DCGM marks "no value" with numbers at the top of each type's range (``dcgm_structs.h``): 16 each
from 2**31 - 16 (int32), from 2**47 (double) and from 2**63 - 16 (int64, which as a double is
2**63). Everything here works on whole columns; NaN stands for "missing".
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.metric import Metric, Resolution

Floats = NDArray[np.float64]

BLANK_INT32 = 2.0**31 - 16
BLANK_FP64 = 2.0**47
BLANK_INT64 = 2.0**63
SATURATED_UINT32 = 2.0**32 - 1

BLANK_TEXTS = (
    "", "N/A", "[N/A]", "n/a", "NA", "N/A (no PMA)", "<<<NULL>>>", "<<<NOT_FOUND>>>",
    "<<<NOT_SUPPORTED>>>", "<<<NOT_PERM>>>", "[Not Supported]", "[Unknown Error]", "-", "null",
    "None",
)  # fmt: skip
NAN_TEXTS = ("nan", "+nan", "-nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity")
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"

_BLANK_SET = pa.array(BLANK_TEXTS)
_NAN_SET = pa.array(NAN_TEXTS)


def numbers(column: pa.Array, counts: Counter[str]) -> Floats | None:
    """A column as floats, NaN where missing; None if its type can hold no numbers.

    Counts texts that mean "no value" as ``blank``, others that are no number as
    ``non_numeric``, and NaN and infinities as ``not_finite``.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = _texts(column, counts)
    elif pa.types.is_boolean(kind) or not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    ):
        counts["non_numeric"] += len(column) - column.null_count
        return None
    floats = column.cast(pa.float64(), safe=False)
    present = len(floats) - floats.null_count
    out: Floats = floats.to_numpy(zero_copy_only=False)  # nulls become NaN
    infinite = np.isinf(out)
    if infinite.any():
        out = np.where(infinite, np.nan, out)
    lost = present - int(np.count_nonzero(~np.isnan(out)))
    if lost:
        counts["not_finite"] += lost
    return out


def without_blanks(raw: Floats, metric: Metric, counts: Counter[str]) -> Floats:
    """``raw`` with the metric's blank sentinels missing (counted as ``blank``)."""
    if metric.blank == "none" or not (raw >= BLANK_INT32).any():
        return raw
    blank = (
        ((raw >= BLANK_INT32) & (raw < BLANK_INT32 + 16))
        | ((raw >= BLANK_FP64) & (raw < BLANK_FP64 + 16))
        | (raw >= BLANK_INT64)
    )
    return _drop(raw, blank, "blank", counts)


def canonical(
    raw: Floats, resolution: Resolution, divisor: Floats | None, counts: Counter[str]
) -> Floats:
    """Blank-free raw values in the metric's unit; what is physically impossible is missing.

    Counts ``saturated`` (a 32-bit counter at its maximum says nothing any more) and ``limit``.
    Of a counter only the sign can be judged here: limits apply to the rate.
    """
    metric = resolution.metric
    if resolution.counter and metric.saturating:
        raw = _drop(raw, raw == SATURATED_UINT32, "saturated", counts)
    if divisor is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            raw = np.where(divisor > 0, raw / divisor, np.nan)
    if resolution.factor != 1.0 or resolution.offset != 0.0:
        with np.errstate(over="ignore"):
            raw = raw * resolution.factor + resolution.offset
    if resolution.counter:
        impossible = (raw < 0) | np.isinf(raw)
    else:
        impossible = (raw < metric.lower) | (raw > metric.upper) | np.isinf(raw)
    return _drop(raw, impossible, "limit", counts)


def _drop(values: Floats, bad: NDArray[np.bool_], reason: str, counts: Counter[str]) -> Floats:
    count = int(np.count_nonzero(bad))
    if not count:
        return values
    counts[reason] += count
    return np.where(bad, np.nan, values)


def _texts(column: pa.Array, counts: Counter[str]) -> pa.Array:
    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
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
