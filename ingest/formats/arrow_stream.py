"""Arrow IPC streams (and files) with the columns of a recorded incident."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.ipc as ipc

from ingest.formats.protocol import Context, rejected, too_large
from ingest.normalise import normalise
from ingest.samples import Decoded, Rejected, empty_samples

MAX_COLUMNS = 4096


class ArrowDecoder:
    """Messages of one schema are decoded together and without copying.

    Reasons: ``too_large``, ``undecodable``, ``too_many_columns``, ``too_many_rows``, and those
    of `ingest.normalise`.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self._budget = context.budget()

    def decode(
        self,
        messages: Sequence[bytes],
        origins: Sequence[str],
        received_ns: Sequence[int] | None = None,
    ) -> Decoded:
        """See `Decoder`."""
        del received_ns
        refused: list[Rejected] = []
        by_schema: dict[str, list[tuple[str, pa.Table]]] = {}
        for message, origin in zip(messages, origins, strict=True):
            table = self._read(message, origin)
            if isinstance(table, Rejected):
                refused.append(table)
            elif table.num_rows:
                by_schema.setdefault(table.schema.to_string(), []).append((origin, table))
        parts = [self._normalise(tables) for tables in by_schema.values()]
        samples = [part.samples for part in parts] or [empty_samples()]
        return Decoded(
            pa.concat_tables(samples, promote_options="default"),
            refused + [fault for part in parts for fault in part.rejected],
            sum((part.counts for part in parts), Counter()),
        )

    def flush(self) -> Decoded:
        """Rows are never held back."""
        return Decoded(empty_samples())

    def _read(self, message: bytes, origin: str) -> pa.Table | Rejected:
        rules = self.context.rules
        fault = too_large(message, origin, rules)
        if fault is not None:
            return fault
        try:
            is_file = message[:6] == b"ARROW1"
            with ipc.open_file(message) if is_file else ipc.open_stream(message) as reader:
                if len(reader.schema) > MAX_COLUMNS:
                    detail = f"{len(reader.schema)} columns, allowed are {MAX_COLUMNS}"
                    return Rejected("too_many_columns", origin, detail)
                table = reader.read_all()
            # Offsets and indices come from outside: without this they could lead anywhere.
            table.validate(full=True)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            return rejected("undecodable", origin, error, message)
        if table.num_rows > rules.max_rows_per_message:
            return Rejected("too_many_rows", origin, f"{table.num_rows} rows", rows=table.num_rows)
        if not table.num_columns:
            return rejected("undecodable", origin, "no columns", message)
        return table

    def _normalise(self, tables: list[tuple[str, pa.Table]]) -> Decoded:
        starts = [0]
        for _, table in tables:
            starts.append(starts[-1] + table.num_rows)

        def origin(row: int) -> str:
            index = bisect_right(starts, row) - 1
            return f"{tables[index][0]}, row {row - starts[index]}"

        # In one call: half of what column by column takes later.
        whole = pa.concat_tables([table for _, table in tables]).combine_chunks()
        context = self.context
        return normalise(
            whole,
            context.catalogue,
            origin,
            context.rules,
            self._budget,
            context.assignments,
        )
