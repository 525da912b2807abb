"""Where the rows of one job enter alignment: who sent them, and whether their time can be true."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.align_settings import AlignSettings, Spans
from ingest.batch import Batch
from ingest.cadence import SECOND
from ingest.ledger import Ledger, shown
from ingest.open_rows import OpenRows
from ingest.series import SeriesTable
from ingest.watermark import Lag, Quorum, median_claim


class Intake:
    """The open rows of a job, its machines, and how far their quorum has come.

    ``held`` tells whether a machine (code) is on the roster, and must not be forgotten;
    ``freed`` is told the ids of series that were, before others can get them.
    """

    def __init__(
        self,
        job: str,
        settings: AlignSettings,
        held: Callable[[int], bool],
        freed: Callable[[NDArray[np.int64]], None],
    ) -> None:
        self.ledger = Ledger(job, settings.max_machines)
        self.table = SeriesTable(settings.max_machines)
        self.rows = OpenRows()
        self.quorum = Quorum()
        self.lag = Lag()
        self._settings = settings
        self._held = held
        self._freed = freed

    def take(self, batch: Batch, spans: Spans, closed_ns: int | None, now_ns: int | None) -> None:
        """Take in rows that came together; ``closed_ns`` is where open ticks begin, if any did."""
        frontier = self.quorum.frontier_ns
        if frontier is not None:
            limit, span = spans.max_lateness_ns, 2 * spans.stalled_ns
            self.lag.note(frontier, batch.ts, limit_ns=limit, span_ns=span)
        batch = self._usable(batch, closed_ns)
        if not batch.ts.size:
            return
        codes = self.table.encode(batch.names)
        if (codes < 0).any():
            self.forget(self.quorum.stalled(spans.stalled_ns))
            codes = self.table.encode(batch.names)
            limit = self._settings.max_machines
            refused = codes[batch.name] < 0
            batch = self._refuse(batch, refused, "too_many_machines", f"more than {limit} machines")
            if not batch.ts.size:
                return
        machine = codes[batch.name]
        claims = self.quorum.step(
            machine, batch.ts, cap_ns=spans.slice_ns, stalled_ns=spans.stalled_ns
        )
        reached = self._reached(claims, batch.ts, spans.future_ns)
        if now_ns is not None:
            reached = min(reached, now_ns + spans.future_ns)
        self.quorum.reach(reached, binding=closed_ns is not None)
        known = self.rows.index
        columns = [
            (at, values)
            for name, values in batch.columns
            if (at := known.get(name, -1)) >= 0 or (at := self._new_column(name)) >= 0
        ]
        series = self.table.ids(machine, batch.gpu)
        self.rows.append(batch.ts, series, columns, entered=self.quorum.frontier_ns or 0)

    def sweep(self, future_ns: int, *, final: bool) -> None:
        """Reject stamps in quarantine that the quorum did not come near to in time."""
        frontier = self.quorum.frontier_ns
        if frontier is None or self.rows.latest_ns <= frontier + future_ns:
            return
        future = self.rows.ts > frontier + future_ns
        if not final:
            future &= self.rows.entered < frontier - future_ns
        if future.any():
            self._drop("future", future, f"over {future_ns // SECOND} s ahead of the others")

    def forget(self, codes: NDArray[np.int64]) -> None:
        """Free the codes of machines that are neither on the roster nor have open rows."""
        if not codes.size:
            return
        waiting = set(self.table.machine[self.rows.series].tolist())
        free = [c for c in codes.tolist() if c not in waiting and not self._held(c)]
        gone = np.array(free, dtype=np.int64)
        self.quorum.forget(gone)
        self._freed(self.table.forget(gone))

    def snapshot(self) -> dict[str, Any]:
        return {
            "ledger": self.ledger.snapshot(),
            "table": self.table.snapshot(),
            "rows": self.rows.snapshot(),
            "quorum": self.quorum.snapshot(),
            "lag": self.lag.snapshot(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.ledger.restore(state["ledger"])
        self.table.restore(state["table"])
        self.rows.restore(state["rows"])
        self.quorum.restore(state["quorum"])
        self.lag.restore(state["lag"])

    def _usable(self, batch: Batch, closed_ns: int | None) -> Batch:
        most = self._settings.max_gpus
        if int(batch.gpu.min()) < -1 or int(batch.gpu.max()) >= most:
            bad = (batch.gpu < -1) | (batch.gpu >= most)
            batch = self._refuse(batch, bad, "bad_gpu", f"gpu is not in 0..{most - 1}")
        if closed_ns is not None and batch.ts.size and int(batch.ts.min()) < closed_ns:
            late = batch.ts < closed_ns
            batch = self._refuse(batch, late, "late", f"ticks before {shown(closed_ns)} are closed")
        room = self._settings.max_open_rows - self.rows.size
        if batch.ts.size > room:
            over = np.arange(batch.ts.size) >= room
            most = self._settings.max_open_rows
            batch = self._refuse(batch, over, "too_many_rows", f"{most} rows are waiting already")
        return batch

    def _refuse(self, batch: Batch, mask: NDArray[np.bool_], reason: str, detail: str) -> Batch:
        self.ledger.reject(reason, batch.names, batch.name[mask], batch.ts[mask], detail)
        return batch.at(np.flatnonzero(~mask))

    def _drop(self, reason: str, mask: NDArray[np.bool_], detail: str) -> None:
        machine = self.table.machine[self.rows.series[mask]]
        self.ledger.reject(reason, self.table.names, machine, self.rows.ts[mask], detail)
        self.rows.keep(~mask)

    def _new_column(self, name: str) -> int:
        if len(self.rows.index) < self._settings.max_metrics:
            return self.rows.add_column(name)
        self.ledger.refuse_metric(name, self._settings.max_metrics)
        return -1

    def _reached(self, claims: NDArray[np.int64], ts: NDArray[np.int64], future_ns: int) -> int:
        """Where the quorum stands after rows of times ``ts`` came in."""
        reached, frontier = median_claim(claims), self.quorum.frontier_ns
        if frontier is None or claims.size > 1 or reached <= frontier + future_ns:
            return reached
        # A lone machine has no peers to contradict it: it must leap twice to be believed.
        open_ts, bound = self.rows.ts, frontier + future_ns
        ahead = np.concatenate([open_ts[open_ts > bound], ts[ts > bound]])
        if np.unique(ahead).size >= 2:
            return reached
        near = ts[ts <= bound]
        return int(near.max()) if near.size else frontier
