"""Housekeeping in a thread of its own: retention, and gauges of what is stored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import structlog

from serve.metrics import Metrics
from serve.observe import Swept, describe
from serve.store.base import Database
from serve.store.retention import Sweeper, measure

_log = structlog.stdlib.get_logger("weaklink")


class Maintenance:
    """Runs the sweepers every ``every_seconds``; a failure is logged and tried again."""

    def __init__(
        self,
        database: Database,
        metrics: Metrics,
        sweepers: Sequence[Sweeper],
        *,
        refresh: Callable[[], None] = lambda: None,
        every_seconds: float = 60.0,
    ):
        self.database = database
        self.metrics = metrics
        self.sweepers = sweepers
        self.refresh = refresh
        self.every_seconds = every_seconds
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def run_once(self) -> None:
        """One round."""
        for sweeper in self.sweepers:
            Swept(sweeper()).emit(self.metrics)
        measure(self.database, self.metrics)
        self.refresh()

    def start(self) -> None:
        """Run in a thread until `stop`."""
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the round under way."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(30.0)

    @property
    def ended(self) -> bool:
        """Whether its thread has ended although nobody stopped it."""
        thread = self._thread
        return thread is not None and not thread.is_alive() and not self._stop.is_set()

    def _run(self) -> None:
        while True:
            try:
                self.run_once()
            except Exception as error:  # noqa: BLE001 - housekeeping must not end the service
                _log.error("maintenance failed", error=describe(error))
            if self._stop.wait(self.every_seconds):
                return
