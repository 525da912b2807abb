"""Where samples come from: the seam between the outside and the worker."""

from __future__ import annotations

import queue
import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from sqlalchemy.orm import Session

from detect.pipeline import Pipeline
from ingest.samples import Decoded, Rejected, empty_samples


@dataclass(slots=True)
class Polled:
    """What one poll brought.

    ``position`` is the source's own (opaque) way to say "everything up to here"; None if
    there is nothing to commit. ``detail`` is free for the source's use in `Source.prepare`
    and `Source.save` (partitions taken over or lost, for instance).
    """

    decoded: Decoded
    position: Any = None
    detail: Any = None


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """How the source is doing. ``lag_seconds`` is event time behind the newest input known,
    None if the source cannot tell; ``problem`` is one line, empty if all is well."""

    connected: bool = True
    lag_seconds: float | None = None
    lag_messages: int | None = None
    problem: str = ""
    detail: dict[str, Any] = field(default_factory=dict)


class StepLostError(Exception):
    """Raised by `Source.save`: the samples' owner is another worker by now. Nothing of this
    step may be stored; poll again."""


class Source(Protocol):
    """Yields samples. Only the worker's thread calls it, always in this order:

    ``poll`` → ``prepare`` → (`Pipeline.feed`, then `Pipeline.advance`) → (rejects written) →
    ``save`` → (transaction committed) → ``commit``.

    ``commit`` comes strictly after everything that the poll led to is stored, and after every
    such step, whether or not the poll brought samples. When the transaction fails, it may be
    tried again from ``save`` on with the same output. A ``poll`` without the ``commit`` of the
    one before gives the step up: the source goes back to what is stored and brings the same
    again; after `StepLostError` from ``save`` that is the only way. A poll that fails for a
    passing reason returns an empty `Polled` and tells so in `health`; an
    exception is logged, counted and retried with back-off, never fatal. `health` may be
    called from any thread.
    """

    name: str

    def poll(self, timeout_seconds: float) -> Polled:
        """Wait up to ``timeout_seconds`` for samples; bounded in rows and bytes."""
        ...

    def prepare(self, pipeline: Pipeline, polled: Polled) -> None:
        """Before detection: restore jobs taken over, drop jobs that moved away."""
        ...

    def save(self, session: Session, pipeline: Pipeline, polled: Polled) -> None:
        """In the transaction of the alert changes: store checkpoints, if there are any."""
        ...

    def commit(self, position: Any) -> None:
        """Everything up to ``position`` is stored and need not come again."""
        ...

    def health(self) -> SourceHealth:
        """Connection and lag; callable from any thread."""
        ...

    def close(self) -> None:
        """Stop; called once, after the last commit."""
        ...


class PushFullError(Exception):
    """The push queue is full; try again after ``retry_after_seconds``."""

    def __init__(self, retry_after_seconds: int):
        super().__init__(f"queue is full; retry after {retry_after_seconds} s")
        self.retry_after_seconds = retry_after_seconds


class PushSource:
    """Samples that arrive by HTTP: a queue bounded by rows, between the API and the worker.

    `offer` is called from the API's threads. What has been accepted but not yet stored is
    lost if the process is killed; who needs more than that sends through Kafka.
    """

    name = "push"

    def __init__(self, limit_rows: int = 2_000_000, batch_rows: int = 200_000):
        self.limit_rows = limit_rows
        self.batch_rows = batch_rows
        self._queue: queue.SimpleQueue[Decoded] = queue.SimpleQueue()
        self._rows = 0
        self._lock = threading.Lock()

    def offer(self, decoded: Decoded) -> None:
        """Take in a batch, or raise `PushFullError` and take nothing."""
        rows = decoded.samples.num_rows + len(decoded.rejected)
        with self._lock:
            if self._rows and self._rows + rows > self.limit_rows:
                raise PushFullError(retry_after_seconds=5)
            self._rows += rows
        self._queue.put(decoded)

    @property
    def waiting_rows(self) -> int:
        """Rows accepted and not yet polled."""
        return self._rows

    def poll(self, timeout_seconds: float) -> Polled:
        """Everything that waits, up to about ``batch_rows`` rows."""
        parts: deque[Decoded] = deque()
        rows = 0
        try:
            parts.append(self._queue.get(timeout=timeout_seconds))
            rows = _rows(parts[0])
            while rows < self.batch_rows:
                parts.append(self._queue.get_nowait())
                rows += _rows(parts[-1])
        except queue.Empty:
            pass
        with self._lock:
            self._rows -= rows
        return Polled(concat_decoded(list(parts)))

    def prepare(self, pipeline: Pipeline, polled: Polled) -> None:
        """Nothing moves."""

    def save(self, session: Session, pipeline: Pipeline, polled: Polled) -> None:
        """Nothing to remember."""

    def commit(self, position: Any) -> None:
        """Nothing to commit."""

    def health(self) -> SourceHealth:
        """Always connected; the queue's fill stands in ``detail``."""
        return SourceHealth(detail={"waiting_rows": self._rows, "limit_rows": self.limit_rows})

    def close(self) -> None:
        """Nothing to close."""


def concat_decoded(parts: list[Decoded]) -> Decoded:
    """Several batches as one; columns that a batch lacks are null there."""
    rejected: list[Rejected] = [r for part in parts for r in part.rejected]
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part.counts)
    tables = [part.samples for part in parts if part.samples.num_rows]
    if not tables:
        return Decoded(empty_samples(), rejected, counts)
    if len(tables) == 1:
        return Decoded(tables[0], rejected, counts)
    return Decoded(pa.concat_tables(tables, promote_options="default"), rejected, counts)


def _rows(decoded: Decoded) -> int:
    return int(decoded.samples.num_rows) + len(decoded.rejected)
