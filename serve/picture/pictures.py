"""Pictures on demand, bounded: one is drawn at a time, a few are remembered."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from detect.alert import Alert
from serve.picture.draw import draw
from serve.picture.story import AFTER_NS, tell_story
from serve.store.history import HistoryStore

WAIT_SECONDS = 5.0
READ_SECONDS = 5.0
"""What has not been read by then stays out of the picture."""
FRESH_NS = 10 * 10**9
MOST_KEPT = 64


class BusyError(Exception):
    """Others' pictures are drawn; ask again soon."""


class Pictures:
    """Draws pictures. To be called from threads, never from the event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._drawing = threading.Lock()
        self._kept: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()

    def png(
        self,
        alert: Alert,
        version: int,
        history: HistoryStore,
        unit: Callable[[str], str],
        *,
        now_ns: int,
    ) -> bytes:
        """The picture of one version of an alert, at most `FRESH_NS` old while it still grows.

        Raises `BusyError` after `WAIT_SECONDS` of waiting for other pictures.
        """
        settled = now_ns > alert.detected_at_ns + 2 * AFTER_NS
        key = (alert.id, version, -1 if settled else now_ns // FRESH_NS)
        if not self._drawing.acquire(timeout=WAIT_SECONDS):
            raise BusyError
        try:
            kept = self._kept.get(key)
            if kept is None:
                ends = self.clock() + READ_SECONDS
                story = tell_story(alert, history, unit, lambda: self.clock() < ends)
                kept = self._kept[key] = draw(story)
            self._kept.move_to_end(key)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
            return kept
        finally:
            self._drawing.release()
