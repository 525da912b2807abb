"""A dispatcher in a process of its own, for the tests that kill it.

``python -m tests.notify_process DATABASE_URL WEBHOOK_URL`` delivers until it is killed.
"""

from __future__ import annotations

import sys
import threading
import time

from serve.notify.config import build_receivers
from serve.notify.pace import Backoff
from serve.store.base import Database
from tests.notify_support import SIGNING_SECRET, make_dispatcher, webhook_settings


def main(database_url: str, url: str) -> None:
    """Deliver for ever."""
    settings = webhook_settings(
        url,
        timeout_seconds=2,
        rate_limit_per_minute=60_000,
        rate_burst=1_000,
        signing_secrets=[SIGNING_SECRET],
    )
    dispatcher = make_dispatcher(
        Database(database_url, clock=time.time_ns),
        *build_receivers(settings).values(),
        poll_seconds=0.02,
        lease_margin_seconds=0.0,
        backoff=Backoff(base_seconds=0.05, cap_seconds=0.5),
    )
    dispatcher.start()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
