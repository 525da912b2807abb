"""The Parquet parts of a recording: checked at the door, read in chunks, their times known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ingest.recording_label import RecordingError
from ingest.timestamps import to_ns

CHUNK_ROWS = 1 << 16
_SAMPLE = 1 << 18


@dataclass(frozen=True, slots=True)
class Part:
    """One Parquet file whose columns have been checked."""

    path: Path
    columns: tuple[str, ...]
    group_rows: tuple[int, ...]

    def chunks(
        self, group: int, columns: Sequence[str] | None = None
    ) -> Iterator[tuple[int, pa.Table]]:
        """The rows of a row group, chunk by chunk, with the number of the first in the file."""
        row = sum(self.group_rows[:group])
        wanted = list(self.columns if columns is None else columns)
        try:
            with pq.ParquetFile(self.path) as file:
                for batch in file.iter_batches(
                    CHUNK_ROWS, row_groups=[group], columns=wanted, use_threads=False
                ):
                    _check_texts(self.path, batch)
                    yield row, pa.Table.from_batches([batch])
                    row += len(batch)
        except (pa.ArrowException, OSError) as error:
            raise RecordingError(self.path, f"row group {group}", _first_line(error)) from error


@dataclass(frozen=True, slots=True)
class Chunk:
    """Time span of some rows of a part; None when no row has a usable time."""

    part: Part
    group: int
    rows: int
    span: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Scan:
    """All chunks in reading order (row groups by their first time), and a sample of times."""

    chunks: tuple[Chunk, ...]
    times: NDArray[np.int64]


def open_parts(folder: Path) -> tuple[Part, ...]:
    """The parts of a recording by name; an error if there is none, or one cannot be used."""
    if not folder.is_dir():
        raise RecordingError(folder, "", "not a folder" if folder.exists() else "does not exist")
    paths = sorted(folder.glob("*.parquet"))
    if not paths:
        raise RecordingError(folder, "", "holds no *.parquet file")
    parts = tuple(_open(path) for path in paths)
    if not any(sum(part.group_rows) for part in parts):
        raise RecordingError(folder if len(parts) > 1 else paths[0], "", "holds no rows")
    return parts


def scan(parts: Sequence[Part]) -> Scan:
    """Read the time column alone, to know in which order to read the rest."""
    groups: list[tuple[int, list[Chunk]]] = []
    times: list[NDArray[np.int64]] = []
    step = max(1, sum(sum(part.group_rows) for part in parts) // _SAMPLE)
    for part in parts:
        for group in range(len(part.group_rows)):
            chunks: list[Chunk] = []
            for _, table in part.chunks(group, ["ts"]):
                ns, usable = to_ns(table.column("ts").combine_chunks())
                known = ns[usable]
                span = (int(known.min()), int(known.max())) if known.size else None
                chunks.append(Chunk(part, group, len(table), span))
                times.append(known[::step])
            first = min((c.span[0] for c in chunks if c.span), default=0)
            groups.append((first, chunks))
    groups.sort(key=lambda item: item[0])
    ordered = tuple(chunk for _, chunks in groups for chunk in chunks)
    return Scan(ordered, np.sort(np.concatenate(times)) if times else np.zeros(0, np.int64))


def _open(path: Path) -> Part:
    try:
        with pq.ParquetFile(path) as file:
            schema, meta = file.schema_arrow, file.metadata
            rows = tuple(meta.row_group(g).num_rows for g in range(meta.num_row_groups))
    except (pa.ArrowException, OSError) as error:
        raise RecordingError(path, "", f"not a Parquet file: {_first_line(error)}") from error
    names = schema.names
    for name in names:
        if names.count(name) > 1:
            raise RecordingError(path, f"column {name}", "appears more than once")
    for name in ("ts", "job", "machine"):
        if name not in names:
            raise RecordingError(path, f"column {name}", f"missing; there are {', '.join(names)}")
    # Data frames leave their index behind as a column of this name.
    kept = tuple(name for name in names if not name.startswith("__index_level_"))
    for name in kept:
        wanted, fits = _wanted(name, schema.field(name).type)
        if not fits:
            found = schema.field(name).type
            raise RecordingError(path, f"column {name}", f"must hold {wanted}, not {found}")
    return Part(path, kept, rows)


def _check_texts(path: Path, batch: pa.RecordBatch) -> None:
    """Parquet files are not bound to hold in a column of text what is one."""
    for name in ("job", "machine"):
        if name in batch.schema.names:
            try:
                batch.column(name).validate(full=True)
            except pa.ArrowInvalid as error:
                raise RecordingError(path, f"column {name}", _first_line(error)) from error


def _wanted(name: str, found: Any) -> tuple[str, bool]:
    types = pa.types
    inner = found.value_type if types.is_dictionary(found) else found
    if name == "ts":
        return "timestamps", types.is_timestamp(found)
    if name in ("job", "machine"):
        text = types.is_string(inner) or types.is_large_string(inner) or types.is_string_view(inner)
        return "text", text or types.is_null(found)
    number = types.is_integer(inner) or types.is_floating(inner) or types.is_null(inner)
    if name == "gpu":
        return "whole numbers", number
    return "numbers", number or types.is_decimal(inner) or types.is_boolean(inner)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
