"""Jinja filters of the page's own templates (the shared ones are in `replay.view.words`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote


def path_segment(text: str) -> str:
    """A name as one segment of an address, whatever it holds."""
    return quote(text, safe="")


def literal_pattern(name: str) -> str:
    """A name as a silence's pattern that matches nothing else.

    Patterns are shell-like; ``[`` is the one character besides ``*`` and ``?`` that means
    something there, and names that hold a bare ``*`` or ``?`` do not occur as host names.
    """
    return name.replace("[", "[[]") if name != "*" else name


def lag(seconds: float | None) -> str:
    """``3 s``, ``4 min``, ``2 h``; a dash when unknown."""
    if seconds is None:
        return "–"
    if seconds < 100:
        return f"{max(0, round(seconds))} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86_400:.0f} d"


def delay_words(alert: Mapping[str, Any]) -> str:
    """``23 s after its estimated onset``."""
    onset = datetime.fromisoformat(alert["onset"])
    seconds = (datetime.fromisoformat(alert["detected_at"]) - onset).total_seconds()
    return f"{lag(seconds)} after its estimated onset"


def date_time(stamp: str) -> str:
    """``2026-11-29 12:03`` of an RFC 3339 time."""
    return stamp[:16].replace("T", " ")


def capitalize_first(text: str) -> str:
    """The first letter large, the rest as it is."""
    return text[:1].upper() + text[1:]


def story_signature(alert: Mapping[str, Any]) -> str:
    """Changes when other charts belong into an alert's story."""
    charts = [f"{item['metric']} {item['gpu']}" for item in alert["evidence"]]
    return ", ".join([str(alert["machine"]), alert["onset"], *charts])


def marks(alerts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the heat map needs to know of alerts."""
    keys = ("id", "status", "machines", "onset", "detected_at", "verdict")
    return [{key: alert[key] for key in keys} for alert in alerts]


FILTERS = {
    "path_segment": path_segment,
    "urlencode_all": path_segment,
    "literal_pattern": literal_pattern,
    "lag": lag,
    "delay_words": delay_words,
    "date_time": date_time,
    "capitalize_first": capitalize_first,
    "marks": marks,
    "story_signature": story_signature,
}
