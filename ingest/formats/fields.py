"""Telegraf's model of a measurement: a name, tags, and several fields at one instant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ingest.formats.assembly import Assembler
from ingest.formats.protocol import Context
from ingest.values import BLANK_TEXTS, as_float

Tags = tuple[tuple[str, str], ...]


class FieldReader:
    """Hands the fields of measurements to an assembler, each as series ``NAME_FIELD``."""

    def __init__(self, context: Context) -> None:
        identity = context.rules.identity
        jobs = tuple(dict.fromkeys((*identity.row_job, *identity.series_job)))
        self.assembler = Assembler(context, jobs, hold=True)

    def add(
        self, name: str, tags: Tags, fields: Iterable[tuple[str, Any]], ts_ns: int, origin: str
    ) -> None:
        """Take one measurement."""
        assembler = self.assembler
        for field, raw in fields:
            value = self._number(raw)
            if value is None:
                continue
            key = (name, field, tags)
            target = assembler.known(key)
            if target is None:
                series = f"{name}_{field}" if name else field
                target = assembler.target(key, series, dict(tags), "gauge")
            if isinstance(target, str):
                assembler.counts[target] += 1
            else:
                assembler.add(target, ts_ns, value, origin)

    def _number(self, raw: Any) -> float | None:
        if isinstance(raw, (int, float)) and not isinstance(raw, bool):
            return as_float(raw)
        if raw is None:
            return None
        if isinstance(raw, str):
            if raw.strip() in BLANK_TEXTS:
                self.assembler.counts["blank"] += 1
                return None
            try:
                return float(raw)
            except ValueError:
                pass
        self.assembler.counts["non_numeric"] += 1
        return None
