"""Rows for alignment tests, and what came out of it in a form that can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.align import AlignSettings, JobAligner
from ingest.catalogue import Catalogue
from ingest.samples import KEY_FIELDS, Rejected
from ingest.ticks import Panel, TickBlock

SECOND = 1_000_000_000
START = 1_700_000_040 * SECOND
"""A whole minute, so that every tick length begins here."""

Row = Mapping[str, object]


def row(at: float, machine: str, gpu: int | None = None, **metrics: float | None) -> Row:
    """One row, ``at`` seconds after START; ``x__counter`` is the column ``x:counter``."""
    values = {name.replace("__counter", ":counter"): value for name, value in metrics.items()}
    return {"ts": START + round(at * SECOND), "machine": machine, "gpu": gpu, **values}


def table(rows: Iterable[Row], metrics: Sequence[str] | None = None) -> pa.Table:
    """Rows as a batch."""
    listed = list(rows)
    names = metrics or list(dict.fromkeys(k for r in listed for k in r))
    fields = [*KEY_FIELDS]
    fields += [pa.field(n, pa.float64()) for n in names if n not in ("ts", "job", "machine", "gpu")]
    filled = [{"job": "job", **r} for r in listed]
    return pa.Table.from_pylist(filled, schema=pa.schema(fields))


@dataclass
class Outcome:
    """Everything that an aligner said."""

    aligner: JobAligner
    blocks: list[TickBlock]
    rejected: list[Rejected]

    def machine(self, metric: str, machine: str) -> list[float]:
        """A machine's values, tick by tick over all blocks (NaN where it is not on the roster)."""
        out: list[float] = []
        for block in self.blocks:
            panel = block.machine_panel
            if metric in panel.metrics and machine in block.machines:
                at = panel.metrics.index(metric), block.machines.index(machine)
                out.extend(panel.values[at].tolist())
            else:
                out.extend([float("nan")] * block.ticks)
        return out

    def fresh(self, metric: str, machine: str) -> list[bool]:
        """Whether each of these values was measured in its tick."""
        out: list[bool] = []
        for block in self.blocks:
            panel = block.machine_panel
            known = metric in panel.metrics and machine in block.machines
            at = (panel.metrics.index(metric), block.machines.index(machine)) if known else None
            out.extend([False] * block.ticks if at is None else panel.fresh[at].tolist())
        return out

    def ticks(self) -> list[object]:
        """Each tick with all that detection sees of it, whatever the cut into blocks."""
        out: list[object] = []
        for block in self.blocks:
            for k in range(block.ticks):
                start = block.start_ns + k * block.tick_ns
                panels = [_seen(block.machine_panel, k)]
                if block.gpu_panel is not None:
                    panels.append(_seen(block.gpu_panel, k))
                out.append((block.run, block.roster, start, block.tick_ns, block.machines, panels))
        return out


def _seen(panel: Panel, k: int) -> object:
    values: NDArray[np.float64] = np.ascontiguousarray(panel.values[:, :, k])
    keys = (panel.scope, panel.metrics, panel.machine.tolist(), panel.gpu.tolist())
    return (*keys, values.tobytes(), panel.fresh[:, :, k].tobytes())


def align(
    tables: Iterable[pa.Table], settings: AlignSettings | None = None, *, flush: bool = True
) -> Outcome:
    """All batches through one aligner, advancing after each."""
    aligner = JobAligner("job", Catalogue.default(), settings)
    outcome = Outcome(aligner, [], [])
    for batch in tables:
        feed(outcome, batch)
    if flush:
        finish(outcome)
    return outcome


def feed(outcome: Outcome, batch: pa.Table) -> None:
    """One more batch."""
    outcome.rejected += outcome.aligner.add(batch)
    outcome.blocks += outcome.aligner.advance()


def finish(outcome: Outcome) -> None:
    """The end of input."""
    outcome.blocks += outcome.aligner.flush()
    outcome.rejected += outcome.aligner.take_rejected()


def cut(batch: pa.Table, sizes: Sequence[int]) -> list[pa.Table]:
    """A table cut into batches of the given sizes, over and over."""
    out, at, i = [], 0, 0
    while at < len(batch):
        out.append(batch.slice(at, sizes[i % len(sizes)]))
        at += sizes[i % len(sizes)]
        i += 1
    return out


def arrived(batch: pa.Table, lateness_seconds: float, seed: int) -> pa.Table:
    """The rows in an order in which none comes later than the allowed lateness."""
    ts = batch["ts"].to_numpy().astype(np.int64)
    rng = np.random.default_rng(seed)
    delay = rng.integers(0, round(lateness_seconds * SECOND), ts.size)
    return batch.take(np.argsort(ts + delay, kind="stable"))
