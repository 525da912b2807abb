"""Helpers for tests of catalogue, normalisation and wire formats."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings

from ingest.catalogue import Catalogue
from ingest.formats.protocol import Context
from ingest.rules import Rules
from ingest.samples import KEY_COLUMNS, Decoded

PAYLOADS = Path(__file__).resolve().parents[1] / ".." / "shared" / "data" / "payloads"
FUZZ = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""No time limits: a loaded machine must not fail a test."""

T0_MS = 1_700_000_000_000
T0_NS = T0_MS * 10**6


def payload(name: str) -> bytes:
    """One sample payload; the test is skipped where the data are not at hand."""
    path = PAYLOADS / name
    if not path.exists():
        pytest.skip(f"sample payload {name} is not in ../shared/data/payloads")
    return path.read_bytes()


def context(rules: Rules | None = None) -> Context:
    """A context with the default catalogue."""
    return Context(Catalogue.default(), rules or Rules())


def raw(**columns: Any) -> pa.Table:
    """A raw table of one job's machine ``n1``; columns may be lists or single values."""
    lengths = [len(v) for v in columns.values() if isinstance(v, (list, pa.Array))]
    rows = max(lengths, default=1)
    full = {"ts": T0_MS, "job": "j", "machine": "n1", **columns}
    return pa.table(
        {k: v if isinstance(v, (list, pa.Array)) else [v] * rows for k, v in full.items()}
    )


def values(decoded: Decoded, column: str) -> list[float | None]:
    """One column of a batch."""
    result: list[float | None] = decoded.samples.column(column).to_pylist()
    return result


def metrics(decoded: Decoded) -> list[str]:
    """Names of a batch's metric columns."""
    return [name for name in decoded.samples.schema.names if name not in KEY_COLUMNS]


def rows(decoded: Decoded) -> list[dict[str, Any]]:
    """Rows without their nulls, the time as whole nanoseconds."""
    ns = decoded.samples.column("ts").cast(pa.int64()).to_pylist()
    out = []
    for at, row in zip(ns, decoded.samples.to_pylist(), strict=True):
        out.append({k: v for k, v in {**row, "ts": at}.items() if v is not None})
    return out


def reasons(decoded: Decoded) -> dict[str, int]:
    """Rejected rows by reason."""
    found: dict[str, int] = {}
    for item in decoded.rejected:
        found[item.reason] = found.get(item.reason, 0) + item.rows
    return found


def origins(decoded: Decoded) -> list[str]:
    """Where the rejected came from."""
    return [item.origin for item in decoded.rejected]


def close(left: float | None, right: float) -> bool:
    """Equal up to rounding."""
    return left is not None and math.isclose(left, right, rel_tol=1e-12)
