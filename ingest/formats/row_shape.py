"""The keys that the rows of a topic have, learned, and the typed decoder compiled from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import astuple

from ingest.formats.number_matrix import number_matrix
from ingest.formats.protocol import Context
from ingest.formats.raw_table import Column, number_column, text_column, time_column
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

    def columns(self, rows: Sequence[msgspec.Struct]) -> tuple[dict[str, Column], int]:
        """Decoded rows as columns, and how many of their values are not null."""
        fields = list(map(astuple, rows))
        arrays: dict[str, pa.Array] = {
            name: self.builds[name]([f[at] for f in fields]) for at, name in self._others
        }
        matrix = number_matrix([f[len(self._others) :] for f in fields])
        if matrix is None:  # a text, or a null that is written: one by one
            for at, name in self._numbers:
                values = [f[at] for f in fields]
                arrays[name] = number_column([None if v != v else v for v in values])
        present = sum(len(array) - array.null_count for array in arrays.values())
        if matrix is None:
            return arrays, present
        present += int(np.count_nonzero(~np.isnan(matrix)))
        names = (name for _, name in self._numbers)
        return arrays | dict(zip(names, matrix, strict=True)), present

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
        numbers = {name for name, build in self.builds.items() if build is number_column}
        names = sorted(self.builds, key=numbers.__contains__)  # the others first
        placed = list(enumerate(names))
        first = len(names) - len(numbers)
        self._others, self._numbers = placed[:first], placed[first:]
        # Without int, the decoder makes floats of whole numbers at once. JSON has no NaN: here
        # it says that the key is absent, so that the numbers of a row are floats alone.
        number: tuple[Any, Any] = (float | str | None, math.nan)
        other: tuple[Any, Any] = (int | float | str | None, None)
        row = msgspec.defstruct(
            "Row",
            [(f"f{at}", *(number if name in numbers else other)) for at, name in placed],
            rename={f"f{at}": name for at, name in placed},
            forbid_unknown_fields=True,
            gc=False,
        )
        self.one = msgspec.json.Decoder(row).decode
        self.many = msgspec.json.Decoder(list[row]).decode  # type: ignore[valid-type]
