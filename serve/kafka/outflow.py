"""A recording as the messages that a live cluster would send: order, format, disorder, dirt."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from detect.pipeline import by_job
from ingest.recording_label import RecordingError
from ingest.recording_parts import Scan, open_parts, scan
from ingest.samples import KEY_FIELDS
from ingest.time_order import pooled, spilled

Form = Literal["json", "json-array", "arrow"]

CONTENT_TYPES: dict[Form, bytes] = {
    "json": b"application/json",
    "json-array": b"application/json",
    "arrow": b"application/vnd.apache.arrow.stream",
}
SECOND = 1_000_000_000
POOL_ROWS = 2_000_000


@dataclass(frozen=True, slots=True)
class Dirt:
    """What goes wrong on the way, from a seed. Shares are of all messages.

    ``disorder_seconds``: each message is late by up to so much event time. ``duplicates``:
    sent twice. ``poison``: further messages that nobody can read.
    """

    disorder_seconds: float = 0.0
    duplicates: float = 0.0
    poison: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Letter:
    """A message and the event time at which it leaves (before any shift of time)."""

    due_ns: int
    number: int
    key: bytes = field(compare=False)
    value: bytes = field(compare=False)
    content_type: bytes = field(compare=False)
    poison: bool = field(default=False, compare=False)
    rows: int = field(default=0, compare=False)


def span_ns(folder: Path) -> tuple[int, int]:
    """First and last event time of a recording; RecordingError if it cannot be read."""
    times = [span for chunk in scan(open_parts(folder)).chunks if (span := chunk.span)]
    if not times:
        raise RecordingError(folder, "column ts", "holds no time between 2000 and 2100")
    return min(first for first, _ in times), max(last for _, last in times)


def letters(
    folder: Path,
    *,
    form: Form = "json",
    rows_per_message: int = 50,
    shift_ns: int = 0,
    job: str | None = None,
    dirt: Dirt | None = None,
) -> Iterator[Letter]:
    """Messages in the order in which they are sent.

    ``shift_ns`` is added to every time stamp (``due_ns`` stays as recorded); ``job`` replaces
    the recorded name. A message holds rows of one job and, if it holds several, of one second.
    """
    dirt = dirt or Dirt()
    chance = random.Random(dirt.seed)
    waiting: list[Letter] = []
    number = 0
    for table in _in_time(folder):
        for second in _by_second(table if job is None else _renamed(table, job)):
            now_ns = int(second["ts"][0].value)
            while waiting and waiting[0].due_ns < now_ns:
                yield heapq.heappop(waiting)
            for name, rows in by_job(second):
                for value, count in message_values(
                    _shifted(rows, shift_ns), form, rows_per_message
                ):
                    key, kind = name.encode(), CONTENT_TYPES[form]
                    number += 1
                    copies = 1 + (chance.random() < dirt.duplicates)
                    for _ in range(copies):
                        late = round(chance.uniform(0, dirt.disorder_seconds) * SECOND)
                        due = now_ns + late
                        heapq.heappush(waiting, Letter(due, number, key, value, kind, False, count))
                    if chance.random() < dirt.poison:
                        number += 1
                        poison, kind = _poison(chance, value)
                        heapq.heappush(waiting, Letter(now_ns, number, key, poison, kind, True))
    while waiting:
        yield heapq.heappop(waiting)


def _in_time(folder: Path) -> Iterator[pa.Table]:
    """The rows as recorded, in the order of time."""
    found = scan(open_parts(folder))
    rows = sum(chunk.rows for chunk in found.chunks)
    if rows <= POOL_ROWS:
        yield from pooled(_followed(found))
        return
    with TemporaryDirectory(prefix="weaklink-") as scratch:
        tables = (table for table, _ in _followed(found))
        yield from spilled(tables, found.times, rows, Path(scratch))


def _followed(found: Scan) -> Iterator[tuple[pa.Table, int | None]]:
    """Every chunk, with the earliest time of those that follow it."""
    firsts = [chunk.span[0] if chunk.span else None for chunk in found.chunks]
    groups: dict[tuple[int, int], list[int]] = {}
    for index, chunk in enumerate(found.chunks):
        groups.setdefault((id(chunk.part), chunk.group), []).append(index)
    for indices in groups.values():
        chunk = found.chunks[indices[0]]
        for index, (_, table) in zip(indices, chunk.part.chunks(chunk.group), strict=True):
            after = [first for first in firsts[index + 1 :] if first is not None]
            yield _canonical(table), min(after, default=None)


def _canonical(table: pa.Table) -> pa.Table:
    """The key columns in their types; the metric columns as they are; usable times only."""
    keys = {}
    for wanted in KEY_FIELDS:
        if wanted.name in table.column_names:
            keys[wanted.name] = table[wanted.name].cast(wanted.type)
        else:
            keys[wanted.name] = pa.nulls(table.num_rows, wanted.type)
    rest = {name: table[name] for name in table.column_names if name not in keys}
    made = pa.table(keys | rest)
    return made.filter(pc.and_(pc.is_valid(made["ts"]), pc.is_valid(made["job"])))


def _renamed(table: pa.Table, job: str) -> pa.Table:
    index = table.column_names.index("job")
    return table.set_column(index, "job", pa.array([job] * table.num_rows, pa.string()))


def _by_second(table: pa.Table) -> Iterator[pa.Table]:
    ns = _ns(table)
    starts = np.flatnonzero(np.diff(ns // SECOND, prepend=ns[:1] // SECOND - 1))
    for start, end in zip(starts, [*starts[1:], table.num_rows], strict=True):
        yield table.slice(start, end - start)


def _ns(table: pa.Table) -> NDArray[np.int64]:
    ts = table["ts"].cast(pa.timestamp("ns", tz="UTC")).cast(pa.int64())
    found: NDArray[np.int64] = ts.to_numpy()
    return found


def _shifted(table: pa.Table, shift_ns: int) -> pa.Table:
    if not shift_ns:
        return table
    ts = pa.array(_ns(table) + shift_ns).cast(pa.timestamp("ns", tz="UTC"))
    return table.set_column(table.column_names.index("ts"), "ts", ts)


def message_values(
    table: pa.Table, form: Form, rows_per_message: int
) -> Iterator[tuple[bytes, int]]:
    """Rows of one job as values of messages, each with its number of rows."""
    if form == "arrow":
        kept = [n for n in table.column_names if table[n].null_count < table.num_rows or n == "gpu"]
        for start in range(0, table.num_rows, rows_per_message):
            part = table.select(kept).slice(start, rows_per_message)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, part.schema) as writer:
                writer.write_table(part)
            yield sink.getvalue().to_pybytes(), part.num_rows
        return
    rows = _rows(table)
    if form == "json":
        yield from ((orjson.dumps(row), 1) for row in rows)
        return
    for start in range(0, len(rows), rows_per_message):
        part = rows[start : start + rows_per_message]
        yield orjson.dumps(part), len(part)


def _rows(table: pa.Table) -> list[dict[str, object]]:
    """Rows as the JSON format has them: milliseconds where they are exact, no empty values."""
    ns = _ns(table)
    stamps: list[object] = (ns // 1_000_000).tolist()
    for index in np.flatnonzero(ns % 1_000_000).tolist():
        stamps[index] = f"{np.datetime64(int(ns[index]), 'ns')}Z"
    rows = []
    for stamp, row in zip(stamps, table.drop_columns(["ts"]).to_pylist(), strict=True):
        rows.append({"ts": stamp} | {k: v for k, v in row.items() if v is not None})
    return rows


def _poison(chance: random.Random, value: bytes) -> tuple[bytes, bytes]:
    """Something that no decoder can read, and what it says that it is."""
    json, arrow = CONTENT_TYPES["json"], CONTENT_TYPES["arrow"]
    kinds: list[tuple[bytes, bytes]] = [
        (b"{" + value[: len(value) // 2], json),
        (b"\xff\xfe\x00 not text", json),
        (b'{"ts": "yesterday", "job": 7, "machine": ["m"]}', json),
        (b'"only a string"', json),
        (b"ARROW1 but not really", arrow),
        (value, b"application/x-unheard-of"),
    ]
    return chance.choice(kinds)
