"""Stable names for alerts."""

from __future__ import annotations

import hashlib


def alert_id(job: str, run: int, subject: str, start_ns: int) -> str:
    """The same fault gives the same id in every process: 16 hex digits.

    ``subject`` is the machine (or what a group shares), ``start_ns`` the event time at which
    detection named it, a whole tick.
    """
    text = "\x00".join((job, str(run), subject, str(start_ns)))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
