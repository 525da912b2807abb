"""The columnar batch that every source yields, and what a source could not use.

A batch is an Arrow table with one row per (machine, gpu, sampling instant):

========== ======================== ===========================================
column     Arrow type               meaning
========== ======================== ===========================================
``ts``     ``timestamp[ns, UTC]``   event time of the sample
``job``    ``string``               training job the machine works for
``machine`` ``string``              host name (never ``localhost``)
``gpu``    ``int32``, nullable      GPU index; null = a machine-level row
*metric*   ``float64``, nullable    a canonical metric; null = not measured
*metric*``:counter`` ``float64``    a monotonic counter that alignment turns
                                    into the rate called *metric*
========== ======================== ===========================================

Errors at the edge are data: a row or message that cannot be used becomes a `Rejected`,
it never raises and never hides its neighbours.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa

KEY_FIELDS: tuple[pa.Field, ...] = (
    pa.field("ts", pa.timestamp("ns", tz="UTC"), nullable=False),
    pa.field("job", pa.string(), nullable=False),
    pa.field("machine", pa.string(), nullable=False),
    pa.field("gpu", pa.int32()),
)
"""The key columns of every batch, in this order, before the metric columns."""

KEY_COLUMNS: tuple[str, ...] = tuple(f.name for f in KEY_FIELDS)

COUNTER_SUFFIX = ":counter"
"""Marks a column that holds a monotonic counter instead of a value or rate."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """One row or message that could not be used.

    ``reason`` is a short stable word (``undecodable``, ``bad_timestamp``, ``no_machine``,
    ``localhost``, ``future``, ``late``, ``duplicate``, ``too_large``, ``unknown_format``, ...)
    fit for a metric label; ``detail`` is one line for a person; ``origin`` names the place
    (file and row, or topic/partition/offset); ``payload`` is what was received, if kept;
    ``rows`` is how many rows it stands for (a message that could not be read counts as one).
    """

    reason: str
    origin: str
    detail: str = ""
    payload: bytes | None = None
    rows: int = 1


@dataclass(slots=True)
class Decoded:
    """What a decoder made of some messages: usable samples and the rejected rest.

    ``counts`` says how many single values were lost by reason (``blank``, ``non_numeric``,
    ``not_finite``, ``limit``, ``saturated``, ``unknown_name``, ``ignored``, ``mig``): fit for a
    counter with the reason as its label.
    """

    samples: pa.Table
    rejected: list[Rejected] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def empty_samples() -> pa.Table:
    """A batch with the key columns and no rows."""
    return pa.schema(KEY_FIELDS).empty_table()
