"""The keys that the rows of a topic have, learned, and the typed decoder compiled from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import astuple

from ingest.formats.protocol import Context
from ingest.formats.raw_table import number_column, text_column, time_column
from ingest.rules import NameBudget

Build = Callable[[Sequence[Any]], pa.Array]


class RowShape:
    """Known keys, each with what makes a column of its values.

    ``one`` decodes a JSON object, ``many`` an array of them, into structs that have a field a
    key; both refuse keys that are not known and values that are no number, text or null.
    """

    def __init__(self, context: Context, budget: NameBudget) -> None:
        self._context = context
        self._budget = budget
        self.builds: dict[str, Build] = {}
        self._compile()

    def columns(self, rows: Sequence[msgspec.Struct]) -> dict[str, pa.Array]:
        """Decoded rows as columns."""
        values = zip(*map(astuple, rows), strict=True)
        return {
            name: build(column)
            for (name, build), column in zip(self.builds.items(), values, strict=True)
        }

    def unknown(self, rows: Iterable[Mapping[str, Any]]) -> dict[str, Build]:
        """Keys of rows that are not known yet and may become so, within the bounds."""
        new: dict[str, Build] = {}
        for row in rows:
            for key in row:
                if key not in self.builds and key not in new and self._welcome(key):
                    new[key] = self._build(key)
        return new

    def learn(self, new: Mapping[str, Build]) -> None:
        """Take in keys; structs decoded before have another shape."""
        self.builds.update(new)
        self._compile()

    def _welcome(self, key: str) -> bool:
        rules = self._context.rules
        if key in rules.identity.key_names() or key in rules.identity.labels:
            return True
        catalogue = self._context.catalogue
        metric = catalogue.resolve(key, dcgm_ids=rules.dcgm_ids).metric
        return metric.known or catalogue.is_denominator(key) or self._budget.admits(metric.name)

    def _build(self, key: str) -> Build:
        identity = self._context.rules.identity
        if key in identity.time:
            return partial(time_column, unit=self._context.rules.time_unit)
        if key in (*identity.machine, *identity.row_job, *identity.mig):
            return text_column
        return number_column

    def _compile(self) -> None:
        names = {f"f{index}": name for index, name in enumerate(self.builds)}
        # Without int, the decoder makes floats of whole numbers at once.
        kinds: dict[bool, Any] = {True: float | str | None, False: int | float | str | None}
        row = msgspec.defstruct(
            "Row",
            [(f, kinds[self.builds[name] is number_column], None) for f, name in names.items()],
            rename=names,
            forbid_unknown_fields=True,
            gc=False,
        )
        self.one = msgspec.json.Decoder(row).decode
        self.many = msgspec.json.Decoder(list[row]).decode  # type: ignore[valid-type]
