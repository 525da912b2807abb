"""Helpers of the service's tests: a clock moved by hand, alerts made to order."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection
from sqlalchemy.orm import Session

from detect.alert import Alert, AlertChange, Evidence
from detect.detector import ScoreFrame, State
from detect.pipeline import Pipeline
from ingest.catalogue import Catalogue
from ingest.samples import Decoded, empty_samples
from ingest.ticks import TickBlock
from serve.config import AlertSettings, WorkerSettings
from serve.lifecycle import Lifecycle
from serve.links import Links
from serve.metrics import Metrics
from serve.notice import Notice
from serve.source import Polled, Source, SourceHealth
from serve.store.base import Database
from serve.worker import Worker, WorkerParts

START_NS = 1_700_000_000_000_000_000
SECOND = 1_000_000_000


@dataclass
class HandClock:
    """Time that only moves when told."""

    now_ns: int = START_NS

    def __call__(self) -> int:
        return self.now_ns

    def forward(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ns += round(seconds * SECOND)


@cache
def _schema() -> bytes:
    """The migrated, empty database; migrating once spares a second a test."""
    database = Database("sqlite://", clock=HandClock())
    database.migrate()
    with database.engine.connect() as connection:
        return bytes(_raw(connection).serialize())


def _raw(connection: Connection) -> sqlite3.Connection:
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    return raw


def memory_database(clock: HandClock | None = None) -> Database:
    """A migrated SQLite database in memory."""
    database = Database("sqlite://", clock=clock or HandClock())
    with database.engine.connect() as connection:
        _raw(connection).deserialize(_schema())
    return database


def make_alert(machine: str | None = "m-3", /, *, job: str = "llama", **fields: Any) -> Alert:
    """An open alert that names ``machine``; any field can be given."""
    at = fields.get("detected_at_ns", START_NS)
    alert = Alert(
        id=f"{job}-{machine}",
        status="open",
        verdict="machine" if machine else "undetermined",
        job=job,
        machine=machine,
        machines=(machine,) if machine else (),
        gpu=None,
        manifestation="fail_slow",
        onset_ns=at - 30 * SECOND,
        detected_at_ns=at,
        score=4.0,
        false_alarms_per_job_week=1e-4,
        evidence=(
            Evidence(
                metric="gpu_tensor_active_ratio",
                unit="ratio",
                value=0.02,
                peer_median=0.55,
                peer_low=0.5,
                peer_high=0.6,
                direction="low",
                since_ns=at - 30 * SECOND,
                share=0.7,
            ),
        ),
        fault_types=(("ecc_error", 0.4),),
        recommended_action="Drain the machine.",
        model="evidence-test",
    )
    return replace(alert, **fields)


def change(kind: str, alert: Alert, at_ns: int | None = None) -> AlertChange:
    """A change of detection at ``at_ns`` (default: when the alert was detected)."""
    at = alert.detected_at_ns if at_ns is None else at_ns
    return AlertChange(kind, alert, at)  # type: ignore[arg-type]


class ThresholdDetector:
    """A detector for tests: a machine below half of its peers' median power is faulty.

    Opens on the first such tick, resolves on the first other one.
    """

    def __init__(self, job: str):
        self.job = job
        self.open: dict[str, Alert] = {}
        self.frames: list[ScoreFrame] = []

    def update(self, block: TickBlock) -> list[AlertChange]:
        """See `JobDetector`."""
        power = block.machine_panel.values[block.machine_panel.metrics.index("gpu_power_watts")]
        with np.errstate(invalid="ignore"):
            low = power < 0.5 * np.median(power, axis=0)
        changes = []
        for tick in range(block.ticks):
            at = block.start_ns + tick * block.tick_ns
            for row, machine in enumerate(block.machines):
                if low[row, tick] and machine not in self.open:
                    alert = make_alert(machine, job=self.job, detected_at_ns=at)
                    self.open[machine] = alert
                    changes.append(AlertChange("opened", alert, at))
                elif not low[row, tick] and machine in self.open:
                    changes.append(AlertChange("resolved", self.open.pop(machine), at))
        scores = np.where(low, 1.2, 0.1).astype(np.float32)
        self.frames.append(
            ScoreFrame(block.start_ns, block.tick_ns, block.machines, scores, "steady")
        )
        return changes

    def finish(self, at_ns: int) -> list[AlertChange]:
        """See `JobDetector`."""
        done = [AlertChange("resolved", alert, at_ns) for alert in self.open.values()]
        self.open.clear()
        return done

    def take_scores(self) -> list[ScoreFrame]:
        """See `JobDetector`."""
        frames, self.frames = self.frames, []
        return frames

    def snapshot(self) -> State:
        """See `JobDetector`."""
        return {"open": list(self.open)}

    def restore(self, state: State) -> None:
        """See `JobDetector`."""
        self.open = {m: make_alert(m, job=self.job) for m in state["open"]}


def rows(
    *, job: str = "llama", machines: int = 4, start: int = 0, ticks: int = 30, low: str = ""
) -> pa.Table:
    """A second-by-second batch from `START_NS`; the machine ``low`` has little power."""
    names = [f"m-{k}" for k in range(machines)]
    stamps = START_NS + np.repeat(np.arange(start, start + ticks), machines) * SECOND
    power = [20.0 if name == low else 300.0 for name in names] * ticks
    return pa.table(
        {
            "ts": pa.array(stamps, pa.timestamp("ns", tz="UTC")),
            "job": pa.array([job] * machines * ticks, pa.string()),
            "machine": pa.array(names * ticks, pa.string()),
            "gpu": pa.nulls(machines * ticks, pa.int32()),
            "gpu_power_watts": pa.array(power, pa.float64()),
        }
    )


def pipeline() -> Pipeline:
    """The real pipeline around `ThresholdDetector`."""
    return Pipeline(Catalogue.default(), ThresholdDetector)


class ListSource:
    """A source for tests: gives prepared batches, remembers what was committed.

    An exception in the list is raised by the poll in its place.
    """

    name = "list"

    def __init__(self, *batches: pa.Table | Decoded | Exception):
        self.batches = list(batches)
        self.at = 0
        self.committed: list[int] = []
        self.closed = False

    def poll(self, timeout_seconds: float) -> Polled:
        """See `Source`."""
        if self.at >= len(self.batches):
            return Polled(Decoded(empty_samples()), position=self.at)
        batch = self.batches[self.at]
        self.at += 1
        if isinstance(batch, Exception):
            raise batch
        decoded = batch if isinstance(batch, Decoded) else Decoded(batch)
        return Polled(decoded, position=self.at)

    def prepare(self, pipeline: Pipeline, polled: Polled) -> None:
        """See `Source`."""

    def save(self, session: Session, pipeline: Pipeline, polled: Polled) -> None:
        """See `Source`."""

    def commit(self, position: int) -> None:
        """See `Source`."""
        self.committed.append(position)

    def health(self) -> SourceHealth:
        """See `Source`."""
        return SourceHealth(lag_seconds=0.0)

    def close(self) -> None:
        """See `Source`."""
        self.closed = True


class KeptOutbox:
    """An outbox for tests: keeps the notices."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def enqueue(self, session: Session, notices: Sequence[Notice]) -> None:
        """See `Outbox`."""
        self.notices += notices


def make_worker(source: Source, clock: HandClock, **fields: Any) -> Worker:
    """A worker on a database in memory; between two tries it does not wait."""
    parts: dict[str, Any] = {
        "pipeline": pipeline(),
        "database": memory_database(clock),
        "lifecycle": Lifecycle(AlertSettings(), Links("http://wl")),
        "outbox": KeptOutbox(),
        "metrics": Metrics("test"),
        "settings": WorkerSettings(id="w1", poll_seconds=0, history_flush_seconds=0),
    }
    worker = Worker(WorkerParts(source=source, **(parts | fields)))
    worker.wait = lambda seconds: worker.stopping
    return worker
