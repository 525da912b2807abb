"""Reads catalogue entries, ours or a user's, and says in one line what is wrong with them."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

from ingest.metric import Blank, CatalogueError, Family, Fold, Kind, Metric, MetricScope, Resolution
from ingest.samples import COUNTER_SUFFIX, KEY_COLUMNS


@dataclass(frozen=True, slots=True)
class Entries:
    """All known metrics, aliases, DCGM field ids, and globs of names to leave out."""

    metrics: Mapping[str, Metric]
    aliases: Mapping[str, Resolution]
    dcgm_fields: Mapping[str, Resolution]
    ignore: tuple[str, ...]


NOTHING = Entries({}, {}, {}, ())


def read_toml(path: Path) -> Mapping[str, Any]:
    """The entries in a file; `CatalogueError` names the file and the reason."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CatalogueError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CatalogueError(f"{path}: not valid TOML: {error}") from error


_METRIC_KEYS = {f.name for f in fields(Metric)} - {"name", "known"} | {"aliases"}
_ALIAS_KEYS = {"name", "factor", "offset", "counter", "field", "per", "over", "several", "where"}
_CHOICES: dict[str, tuple[str, ...]] = {
    "kind": get_args(Kind),
    "scope": get_args(MetricScope),
    "family": get_args(Family),
    "blank": get_args(Blank),
    "fold": get_args(Fold),
}


def merge(base: Entries, entries: Mapping[str, Any]) -> Entries:
    """``base`` with the entries of one source added; the source wins.

    Raises `CatalogueError` with one line that names the key and the reason.
    """
    _only(entries, {"metrics", "ignore"}, "catalogue")
    added = _table(entries.get("metrics", {}), "metrics")
    metrics = dict(base.metrics)
    for name, entry in added.items():
        metrics[name] = _metric(base.metrics.get(name), name, entry)

    aliases = {n: r for n, r in base.aliases.items() if r.rank > 0}
    dcgm_fields = dict(base.dcgm_fields)
    taken: dict[str, str] = {}
    for name, entry in added.items():
        rank = sum(r.metric.name == name for r in aliases.values())
        for index, spec in enumerate(_list(entry.get("aliases", []), f"metrics.{name}.aliases")):
            key = f"metrics.{name}.aliases[{index}]"
            rank += 1
            for alias, resolution, field_id in _alias(metrics[name], spec, rank, key):
                if alias in metrics:
                    raise CatalogueError(f"{key}: {alias!r} is itself a metric")
                if alias in taken:
                    raise CatalogueError(f"{key}: {alias!r} is already an alias of {taken[alias]}")
                taken[alias] = name
                aliases[alias] = resolution
                if field_id:
                    dcgm_fields[field_id] = resolution

    # An overridden metric must reach the aliases that stood there before, too.
    aliases = {n: replace(r, metric=metrics[r.metric.name]) for n, r in aliases.items()}
    dcgm_fields = {n: replace(r, metric=metrics[r.metric.name]) for n, r in dcgm_fields.items()}
    for name, metric in metrics.items():
        aliases[name] = Resolution(metric, counter=metric.kind == "counter")

    ignore = _table(entries.get("ignore", {}), "ignore")
    _only(ignore, {"names"}, "ignore")
    names = _list(ignore.get("names", []), "ignore.names")
    if not all(isinstance(glob, str) for glob in names):
        raise CatalogueError("ignore.names: must be texts")
    return Entries(metrics, aliases, dcgm_fields, (*base.ignore, *names))


def _metric(known: Metric | None, name: str, entry: Any) -> Metric:
    key = f"metrics.{name}"
    if not name or name in KEY_COLUMNS or name.endswith(COUNTER_SUFFIX):
        raise CatalogueError(f"{key}: this name cannot be a metric")
    values = dict(_table(entry, key))
    _only(values, _METRIC_KEYS, key)
    values.pop("aliases", None)
    for option, allowed in _CHOICES.items():
        if option in values and values[option] not in allowed:
            raise CatalogueError(
                f"{key}.{option}: {values[option]!r} is not one of {', '.join(allowed)}"
            )
    for option in ("lower", "upper"):
        if option in values:
            values[option] = _number(values[option], f"{key}.{option}")
    for option, kind in (("unit", str), ("sticky", bool), ("saturating", bool)):
        if option in values and not isinstance(values[option], kind):
            raise CatalogueError(f"{key}.{option}: {values[option]!r} is not a {kind.__name__}")
    metric = replace(known or Metric(name=name), **values)
    if not metric.lower < metric.upper:
        raise CatalogueError(f"{key}.lower: {metric.lower:g} is not below upper {metric.upper:g}")
    return metric


def _alias(
    metric: Metric, spec: Any, rank: int, key: str
) -> Iterator[tuple[str, Resolution, str | None]]:
    spec = {"name": spec} if isinstance(spec, str) else _table(spec, key)
    _only(spec, _ALIAS_KEYS, key)
    name = spec.get("name")
    if not isinstance(name, str) or not name or name in KEY_COLUMNS:
        raise CatalogueError(f"{key}.name: {name!r} cannot be an alias")
    factor = _number(spec.get("factor", 1), f"{key}.factor")
    offset = _number(spec.get("offset", 0), f"{key}.offset")
    counter = spec.get("counter", metric.kind == "counter")
    if factor == 0 or not math.isfinite(factor) or not math.isfinite(offset):
        raise CatalogueError(f"{key}.factor: must be finite and not 0, offset must be finite")
    if not isinstance(counter, bool):
        raise CatalogueError(f"{key}.counter: {counter!r} is not a bool")
    if counter and (factor < 0 or offset != 0):
        raise CatalogueError(f"{key}.factor: a counter cannot be inverted or shifted")
    several = spec.get("several", metric.scope == "port" or bool(spec.get("over")))
    if not isinstance(several, bool):
        raise CatalogueError(f"{key}.several: {several!r} is not a bool")
    for option in ("per", "over"):
        if not isinstance(spec.get(option, ""), str):
            raise CatalogueError(f"{key}.{option}: must be a text")
    field_id = spec.get("field")
    if field_id is not None and (not isinstance(field_id, int) or field_id < 1):
        raise CatalogueError(f"{key}.field: {field_id!r} is not a DCGM field id")
    names = _expand(name)
    resolution = Resolution(
        metric=metric,
        factor=factor,
        offset=offset,
        counter=counter,
        rank=rank,
        part=name if len(names) > 1 else "",
        per=spec.get("per", ""),
        over=spec.get("over", ""),
        several=several,
        where=_where(spec.get("where", {}), f"{key}.where"),
    )
    for each in names:
        yield each, resolution, None if field_id is None else str(field_id)


def _expand(name: str) -> list[str]:
    match = re.fullmatch(r"(.*)\[(\d)-(\d)\](.*)", name)
    if match is None:
        return [name]
    return [
        f"{match[1]}{digit}{match[4]}" for digit in range(int(match[2]), int(match[3]) + 1)
    ] or [name]


def _where(value: Any, key: str) -> tuple[tuple[str, re.Pattern[str], bool], ...]:
    rules = []
    for label, pattern in _table(value, key).items():
        if not isinstance(pattern, str):
            raise CatalogueError(f"{key}.{label}: must be a regular expression")
        try:
            rules.append((label, re.compile(pattern.removeprefix("!")), pattern[:1] != "!"))
        except re.error as error:
            raise CatalogueError(f"{key}.{label}: not a regular expression: {error}") from error
    return tuple(rules)


def _only(table: Mapping[str, Any], allowed: set[str], key: str) -> None:
    unknown = sorted(set(_table(table, key)) - allowed)
    if unknown:
        raise CatalogueError(
            f"{key}.{unknown[0]}: unknown key; known: {', '.join(sorted(allowed))}"
        )


def _table(value: Any, key: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise CatalogueError(f"{key}: must be a table")
    return value


def _list(value: Any, key: str) -> list[Any]:
    if not isinstance(value, list):
        raise CatalogueError(f"{key}: must be a list")
    return value


def _number(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise CatalogueError(f"{key}: {value!r} is not a number")
    return float(value)
