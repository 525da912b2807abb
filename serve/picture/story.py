"""What an alert's picture shows: strongest metrics over the peers' band, and scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from detect.alert import Alert
from replay.band import Band
from replay.view.grid import ScoreGrid
from serve.store.history import HistoryStore, TooMuchHistoryError

_SECOND = 1_000_000_000
BEFORE_ONSET_NS = 300 * _SECOND
LONGEST_BEFORE_NS = 1_800 * _SECOND
"""No further back than metrics are kept around an alert (`serve.store.retention`)."""
AFTER_NS = 300 * _SECOND
MOST_PANELS = 3
MOST_ROWS = 24
MOST_COLUMNS = 370


@dataclass(frozen=True, slots=True)
class Story:
    """All that is drawn. ``panels`` are metric, unit and band, the strongest first.

    ``machine`` is whose lines they are; None where nobody is named. ``grid`` has the named
    machines' rows first, ``machines`` counts all of the job's. Both are empty where nothing is
    stored (any more): then the alert's own evidence is drawn.
    """

    alert: Alert
    machine: str | None
    start_ns: int
    end_ns: int
    panels: tuple[tuple[str, str, Band], ...]
    grid: ScoreGrid | None
    machines: int


def tell_story(
    alert: Alert,
    history: HistoryStore,
    unit: Callable[[str], str],
    in_time: Callable[[], bool] = lambda: True,
) -> Story:
    """Collect what is stored around an alert.

    ``in_time`` is asked before each reading; once it says no, what is missing stays out.
    """
    detected = alert.detected_at_ns
    start_ns = max(alert.onset_ns - BEFORE_ONSET_NS, detected - LONGEST_BEFORE_NS)
    end_ns = detected + AFTER_NS
    machine = alert.machine or (alert.machines[0] if alert.machines else None)
    panels: list[tuple[str, str, Band]] = []
    for metric in dict.fromkeys(item.metric for item in alert.evidence):
        if machine is None or len(panels) == MOST_PANELS or not in_time():
            break
        try:
            band = history.band(alert.job, machine, metric, start_ns, end_ns)
        except TooMuchHistoryError:
            continue
        if band is not None:
            panels.append((metric, unit(metric), band))
    grid, machines = None, 0
    if in_time():
        try:
            found = history.scores(alert.job, start_ns, end_ns)
        except TooMuchHistoryError:
            found = None
        if found is not None and found.machines:
            machines = len(found.machines)
            grid = _named_first(found.pooled(MOST_COLUMNS), alert.machines)
    ends = [int(band.times_ns[-1]) for _, _, band in panels if band.times_ns.size]
    if grid is not None:
        ends.append(grid.start_ns + grid.step_ns * grid.scores.shape[1])
    # No empty stretch on the right of what is still young.
    shown_ns = max([detected + 15 * _SECOND, *ends])
    return Story(alert, machine, start_ns, min(end_ns, shown_ns), tuple(panels), grid, machines)


def _named_first(grid: ScoreGrid, named: tuple[str, ...]) -> ScoreGrid:
    kept = grid.worst_rows(MOST_ROWS, keep=named)
    order = sorted(range(len(kept.machines)), key=lambda row: kept.machines[row] not in named)
    return ScoreGrid(
        kept.job,
        kept.start_ns,
        kept.step_ns,
        tuple(kept.machines[row] for row in order),
        kept.scores[order],
        kept.phases,
    )
