"""Wakes the event streams of this process when something was stored."""

from __future__ import annotations

import asyncio
import threading


class Broadcast:
    """Any thread may `notify`; coroutines `wait`. A wake-up says "look again", no more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self.closed = False
        self.streams = 0
        """Open event streams; only the event loop's thread changes it."""

    def notify(self) -> None:
        """Wake everybody who waits."""
        with self._lock:
            for event, loop in self._waiting.items():
                if not loop.is_closed():
                    loop.call_soon_threadsafe(event.set)

    def close(self) -> None:
        """Wake everybody for the last time: streams end."""
        self.closed = True
        self.notify()

    async def wait(self, timeout_seconds: float) -> None:
        """Until somebody notifies, at most for the time given."""
        event = asyncio.Event()
        with self._lock:
            self._waiting[event] = asyncio.get_running_loop()
        try:
            if not self.closed:
                await asyncio.wait_for(event.wait(), timeout_seconds)
        except TimeoutError:
            pass
        finally:
            with self._lock:
                del self._waiting[event]
