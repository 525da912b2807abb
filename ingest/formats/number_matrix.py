"""Python's floats to an array, faster than one by one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

_pack = msgspec.msgpack.Encoder().encode
_FLOAT64 = 0xCB
"""MessagePack: this octet, then eight of a double, the most significant first."""


def number_matrix(rows: Sequence[tuple[object, ...]]) -> NDArray[np.float64] | None:
    """Tuples of one length as ``[column, row]``; None unless all they hold is floats.

    MessagePack writes every float in nine octets, so rows of floats alone are records of one
    size, which NumPy reads where they stand: a third of the time of making arrays of the columns.
    """
    count = len(rows)
    width = len(rows[0]) if rows else 0
    if not width:
        return np.empty((0, count))
    packed = _pack(rows)
    record, start = _record(width), _head(count)
    if len(packed) != start + count * record.itemsize:
        return None
    found = np.frombuffer(packed, record, count, start)["fields"]
    if not (found["kind"] == _FLOAT64).all():
        return None  # a text of eight octets is as long as a float
    return np.ascontiguousarray(found["number"].T).astype(np.float64)


@lru_cache(maxsize=256)
def _record(width: int) -> np.dtype[np.void]:
    fields = np.dtype([("kind", np.uint8), ("number", ">f8")])
    return np.dtype([("head", f"V{_head(width)}"), ("fields", fields, (width,))])


def _head(length: int) -> int:
    """Octets before the items of an array."""
    return 1 if length < 16 else 3 if length < 1 << 16 else 5
