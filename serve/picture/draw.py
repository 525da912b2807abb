"""An alert's picture: lines over the peers' band, onset and detection, a strip of scores.

800 pixels wide with letters of 24 and more: shrunk to a phone's width they still can be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detect.alert import Evidence, rfc3339
from replay.band import Band
from replay.view.grid import ScoreGrid
from replay.view.words import (
    alert_headline,
    clock_time,
    evidence_sentence,
    format_value,
    metric_title,
)
from serve.notify.text import one_line
from serve.picture.canvas import Canvas, Color, Point
from serve.picture.story import MOST_COLUMNS, Story

WIDTH = 800
MARGIN = 28
TITLE, TEXT, SMALL = 36, 26, 24
PLOT_HEIGHT, STRIP_HEIGHT, ROW_HEIGHT = 150, 120, 84
MOST_ITEMS = 4
_ROOM = WIDTH - 2 * MARGIN

Floats = NDArray[np.float64]

PAPER: Color = (255, 255, 255)
INK: Color = (26, 37, 48)
QUIET: Color = (90, 104, 116)
PLOT: Color = (246, 248, 250)
BAND: Color = (203, 213, 222)
MEDIAN: Color = (117, 132, 146)
MACHINE: Color = (201, 31, 85)
ONSET: Color = (179, 92, 0)
DETECTED: Color = (26, 37, 48)
_HEAT = np.array(
    [[236, 240, 243], [236, 240, 243], [250, 214, 140], [227, 93, 60], [110, 8, 40]], np.float64
)
_HEAT_AT = np.array([0.0, 0.3, 0.7, 1.0, 2.0])
"""Scores: 0 is healthy, 1 an alarm."""


@dataclass(frozen=True, slots=True)
class _Times:
    start_ns: int
    end_ns: int

    def x(self, at_ns: int) -> float:
        part = (at_ns - self.start_ns) / max(1, self.end_ns - self.start_ns)
        return MARGIN + float(np.clip(part, 0.0, 1.0)) * _ROOM


def draw(story: Story) -> bytes:
    """The picture as PNG."""
    alert = story.alert
    headline = one_line(alert_headline(alert.to_json()))
    items = () if story.panels else alert.evidence[:MOST_ITEMS]
    tallest = len(story.panels) * (PLOT_HEIGHT + 62) + len(items) * ROW_HEIGHT + STRIP_HEIGHT
    canvas = Canvas(WIDTH, tallest + 400, PAPER)
    lines = canvas.wrapped((MARGIN, MARGIN), headline, TITLE, INK, _ROOM)
    y = MARGIN + lines * TITLE * 1.2 + 4
    canvas.text((MARGIN, y), one_line(f"job {alert.job}"), TEXT, QUIET, room=_ROOM)
    y += 40
    times = _Times(story.start_ns, story.end_ns)
    _marks(canvas, story, y)
    y += 46
    for metric, unit, band in story.panels:
        _panel(canvas, times, y, metric_title(metric), unit, band)
        _moments(canvas, times, story, y + 36, PLOT_HEIGHT)
        y += PLOT_HEIGHT + 62
    if not story.panels:
        told = "No telemetry is stored of it; as it was told:"
        canvas.text((MARGIN, y), told, SMALL, QUIET, room=_ROOM)
        y += 40
        for item in items:
            _item(canvas, y, item)
            y += ROW_HEIGHT
    if story.grid is not None:
        _strip(canvas, times, y, story, story.grid)
        _moments(canvas, times, story, y + 36, STRIP_HEIGHT)
        y += STRIP_HEIGHT + 56
    if story.panels or story.grid is not None:
        _axis(canvas, times, y - 14)
        y += 14
    return canvas.png(y + MARGIN)


def _moments(canvas: Canvas, times: _Times, story: Story, top: float, height: float) -> None:
    """Onset and detection across a plot; what lies before it stands at its edge."""
    canvas.dashed(times.x(story.alert.onset_ns), top, top + height, ONSET, 2.5)
    at = times.x(story.alert.detected_at_ns)
    canvas.line([(at, top), (at, top + height)], DETECTED, 2.5)


def _marks(canvas: Canvas, story: Story, y: float) -> None:
    alert = story.alert
    onset, detected = (clock_time(rfc3339(t)) for t in (alert.onset_ns, alert.detected_at_ns))
    canvas.dashed(MARGIN + 4, y + 2, y + 28, ONSET, 3)
    width = canvas.text((MARGIN + 16, y), f"onset {onset}", SMALL, ONSET, room=250)
    x = MARGIN + 16 + width + 24
    canvas.line([(x, y + 2), (x, y + 28)], DETECTED, 3)
    width = canvas.text((x + 12, y), f"alert {detected} UTC", SMALL, DETECTED, room=280)
    if not story.panels:
        return
    x += 12 + width + 24
    canvas.line([(x, y + 15), (x + 22, y + 15)], MACHINE, 4)
    width = canvas.text(
        (x + 30, y), one_line(story.machine or ""), SMALL, MACHINE, room=max(40, 650 - x)
    )
    x += 30 + width + 20
    canvas.box(x, y + 6, x + 22, y + 24, BAND)
    canvas.text((x + 30, y), "peers", SMALL, QUIET, room=max(0, WIDTH - MARGIN - x - 30))


def _panel(canvas: Canvas, times: _Times, y: float, title: str, unit: str, band: Band) -> None:
    low, high = _extent(band)
    top, bottom = y + 36, y + 36 + PLOT_HEIGHT
    canvas.box(MARGIN, top, WIDTH - MARGIN, bottom, PLOT)
    span = f"{format_value(low, unit)} to {format_value(high, unit)}"
    width = canvas.text((MARGIN, y), one_line(title), TEXT, INK, room=440)
    canvas.text((MARGIN + width + 16, y + 2), span, SMALL, QUIET, room=_ROOM - width - 16)
    pad = 0.08 * (high - low) or 1.0
    low, high = low - pad, high + pad

    def points(values: Floats, at: NDArray[np.int64]) -> list[Point]:
        ys = bottom - (values - low) / (high - low) * (bottom - top)
        return [(times.x(int(t)), float(v)) for t, v in zip(at, ys, strict=True)]

    stamps, value, median, below, above = _thinned(band)
    for part in _runs(below + above):
        outline = points(above[part], stamps[part]) + points(below[part], stamps[part])[::-1]
        if len(outline) > 2:
            canvas.area(outline, BAND)
    for values, color, width in ((median, MEDIAN, 2.0), (value, MACHINE, 3.5)):
        for part in _runs(values):
            canvas.line(points(values[part], stamps[part]), color, width)


def _extent(band: Band) -> tuple[float, float]:
    every = np.concatenate([band.value, band.low, band.high]).astype(np.float64)
    finite = every[np.isfinite(every)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def _thinned(band: Band) -> tuple[NDArray[np.int64], Floats, Floats, Floats, Floats]:
    """At most about two points a pixel; of several the band's widest and the latest value."""
    step = -(-band.times_ns.size // (2 * MOST_COLUMNS))
    starts = np.arange(0, band.times_ns.size, max(1, step))

    def of(values: NDArray[np.float32], how: np.ufunc | None = None) -> Floats:
        known = np.where(np.isfinite(values), values, np.nan).astype(np.float64)
        return known[starts] if how is None else np.asarray(how.reduceat(known, starts))

    if not starts.size:
        nothing = np.zeros(0, np.float64)
        return band.times_ns, nothing, nothing, nothing, nothing
    return (
        band.times_ns[starts],
        of(band.value),
        of(band.median),
        of(band.low, np.fmin),
        of(band.high, np.fmax),
    )


def _runs(values: Floats) -> Iterator[slice]:
    """Stretches without a gap."""
    known = np.concatenate([[False], np.isfinite(values), [False]])
    edges = np.flatnonzero(known[1:] != known[:-1])
    for start, stop in edges.reshape(-1, 2).tolist():
        yield slice(start, stop)


def _item(canvas: Canvas, y: float, item: Evidence) -> None:
    """One piece of evidence as its alert holds it: the machine on the scale of its peers."""
    row = {"metric": item.metric, "unit": item.unit, "value": item.value, "gpu": item.gpu}
    words = row | {
        "peer_median": item.peer_median,
        "direction": item.direction,
        "since": rfc3339(item.since_ns),
    }
    canvas.text((MARGIN, y), one_line(evidence_sentence(words)), SMALL, INK, room=_ROOM)
    known = [v for v in (item.value, item.peer_low, item.peer_high, item.peer_median) if v == v]
    finite = [float(v) for v in known if v is not None and np.isfinite(v)]
    if not finite:
        return
    low, high = min(0.0, *finite), max(0.0, *finite)

    def x(value: float) -> float:
        return MARGIN + 8 + (value - low) / ((high - low) or 1.0) * (_ROOM - 16)

    middle = y + 50
    canvas.box(MARGIN, middle - 10, WIDTH - MARGIN, middle + 10, PLOT)
    if item.peer_low is not None and item.peer_high is not None:
        left, right = x(item.peer_low), x(item.peer_high)
        if np.isfinite(left) and np.isfinite(right):
            canvas.box(left - 2, middle - 10, right + 2, middle + 10, BAND)
    if item.value is not None and np.isfinite(item.value):
        canvas.dot((x(item.value), middle), 9, MACHINE)


def _strip(canvas: Canvas, times: _Times, y: float, story: Story, grid: ScoreGrid) -> None:
    rows = len(grid.machines)
    of = f"{rows} of {story.machines}" if rows < story.machines else f"{rows}"
    first = f", {one_line(story.machine)} on top" if story.machine in grid.machines else ""
    title = f"scores of {of} machines{first}"
    canvas.text((MARGIN, y), title, SMALL, INK, room=_ROOM)
    top, end_ns = y + 36, grid.start_ns + grid.step_ns * grid.scores.shape[1]
    canvas.box(MARGIN, top, WIDTH - MARGIN, top + STRIP_HEIGHT, PLOT)
    known = np.isfinite(grid.scores)
    scores = np.where(known, grid.scores, 0.0)
    channels = [np.interp(scores, _HEAT_AT, _HEAT[:, c]) for c in range(3)]
    colors = np.where(known[..., None], np.stack(channels, axis=-1), 255).astype(np.uint8)
    left, right = times.x(grid.start_ns), times.x(end_ns)
    if right > left:
        canvas.cells(colors, left, top, right, top + STRIP_HEIGHT)


def _axis(canvas: Canvas, times: _Times, y: float) -> None:
    start, end = (clock_time(rfc3339(t)) for t in (times.start_ns, times.end_ns))
    canvas.text((MARGIN, y), start, SMALL, QUIET, room=200)
    canvas.text((WIDTH - MARGIN - 106, y), end, SMALL, QUIET, room=200)
