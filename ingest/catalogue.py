"""The metric catalogue: canonical names, physical limits, and every alias with its conversion.

The entries stand in ``catalogue.toml``; a configuration adds or overrides some with
`Catalogue.extended`. A name that the catalogue does not hold is an unbounded gauge of family
``other``: it is never guessed into a known metric.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ingest.catalogue_entries import NOTHING, Entries, merge, read_toml
from ingest.metric import CatalogueError, Metric, Resolution
from ingest.samples import COUNTER_SUFFIX

__all__ = ["Catalogue", "CatalogueError", "Metric", "Resolution"]


@dataclass(frozen=True)
class Catalogue:
    """All known metrics and aliases. Immutable; build one by `default` and `extended`."""

    entries: Entries
    _folded: Mapping[str, Resolution] = field(init=False, repr=False, compare=False)
    _denominators: frozenset[str] = field(init=False, repr=False, compare=False)
    _ignore: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        folded = {
            n.lower(): r for n, r in self.entries.aliases.items() if n.lower().startswith("dcgm_")
        }
        pattern = "|".join(fnmatch.translate(glob) for glob in self.entries.ignore) or r"(?!)"
        object.__setattr__(self, "_folded", folded)
        object.__setattr__(
            self, "_denominators", frozenset(r.per for r in self.entries.aliases.values() if r.per)
        )
        object.__setattr__(self, "_ignore", re.compile(pattern))

    @classmethod
    def default(cls) -> Catalogue:
        """The catalogue that ships with weaklink."""
        return _default()

    def extended(self, entries: Mapping[str, Any] | str | Path) -> Catalogue:
        """A copy with a user's entries added; theirs win over what is there.

        ``entries`` has the layout of ``catalogue.toml`` (``{"metrics": {...}, "ignore":
        {"names": [...]}}``), or is the path of such a file. A known metric keeps what an entry
        does not mention; aliases are added to it, and an alias taken from another metric moves.

        Raises
        ------
        CatalogueError
            One line that names the file (if it is one), the key and the reason.
        """
        if not isinstance(entries, (str, Path)):
            return Catalogue(merge(self.entries, entries))
        try:
            return Catalogue(merge(self.entries, read_toml(Path(entries))))
        except CatalogueError as error:
            where = "" if str(error).startswith(f"{entries}: ") else f"{entries}: "
            raise CatalogueError(f"{where}{error}") from error

    def metric(self, name: str) -> Metric:
        """The metric of a canonical name; an unbounded unknown gauge for any other name."""
        return self.entries.metrics.get(name) or Metric(name=name, known=False)

    def resolve(self, column: str, *, dcgm_ids: bool = False) -> Resolution:
        """What a column or series name means.

        Exact names come first, then DCGM names in any case, then (only if ``dcgm_ids``) DCGM
        field ids such as ``155``. ``NAME:counter`` is NAME as a monotonic counter. What is left
        is an unknown gauge.
        """
        bare = column.removesuffix(COUNTER_SUFFIX)
        found = self.entries.aliases.get(bare) or self._folded.get(bare.lower())
        if found is None and dcgm_ids:
            found = self.entries.dcgm_fields.get(bare)
        if found is None:
            found = Resolution(Metric(name=bare, known=False))
        return found if bare == column or found.counter else replace(found, counter=True)

    def ignored(self, name: str) -> bool:
        """Whether a series of this name is never a machine's metric (unless it is an alias)."""
        return self._ignore.match(name) is not None and name not in self.entries.aliases

    def is_denominator(self, column: str) -> bool:
        """Whether a column only serves to divide another one (see `Resolution.per`)."""
        return column in self._denominators

    def __iter__(self) -> Iterator[Metric]:
        return iter(self.entries.metrics.values())


@cache
def _default() -> Catalogue:
    text = files("ingest").joinpath("catalogue.toml").read_text(encoding="utf-8")
    return Catalogue(merge(NOTHING, tomllib.loads(text)))
