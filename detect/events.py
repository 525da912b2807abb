"""Error codes and error counts that move on a machine: a witness beside its peers' metrics.

Most of them need no action and name nobody. One that moves on a machine which grows odd at the
same time is the machine's own account of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detect.phase import Moment
from detect.state import PanelState

Array = NDArray[np.float64]

ERRORS = "error"
"""Family of the catalogue's error codes and counts."""
WEIGHT = {
    "gpu_xid_error": 1.0,
    "ib_link_downed": 1.0,
    "gpu_ecc_uncorrectable_errors": 1.0,
    "gpu_ecc_uncorrectable_errors_ever": 1.0,
    "gpu_rows_remapped_uncorrectable": 1.0,
    "gpu_rows_remapped_correctable": 0.4,
    "ib_symbol_errors": 0.4,
    "nvlink_crc_flit_errors": 0.4,
    "nvlink_crc_data_errors": 0.4,
    "nvlink_replay_errors": 0.4,
    "nvlink_recovery_errors": 0.4,
    "gpu_ecc_correctable_errors": 0.3,
    "gpu_ecc_correctable_errors_ever": 0.3,
    "pcie_replays": 0.3,
}
"""What one event counts, in units of one family's full evidence. Cables and memory err now and
then."""
STORM = 2.5
STORM_SECONDS = 25.0
"""Errors again and again, for so many of the last `FADE_SECONDS` more than is usual for the row,
count so much by themselves: nobody else has them."""
CALM_SECONDS = 15.0
"""Up to so many they are single errors."""
USUAL_SECONDS = 1800.0
MOST_EVENT_SECONDS = 15.0
"""One sample stands for no longer."""
FADE_SECONDS = 180.0
ALONE = 0.5
"""Most that an event adds beyond what the values show,"""
COINCIDES = 3.0
COINCIDES_SECONDS = 60.0
"""unless the job began to run slower, or stopped, within so many seconds of it: then it counts so
much, and does not fade while that lasts."""
MANY = 0.3
"""Share of the rows from which an event is the job's (its processes were killed)."""


class Events:
    """The last event of each error metric and row of one panel.

    ``sticky`` says of a metric that it keeps its last code: an event only when that changes.
    """

    def __init__(self, sticky: Callable[[str], bool]) -> None:
        self.sticky = sticky
        self.state = PanelState()
        self.state.add("last", "mr", np.nan)
        self.state.add("at_ns", "mr", 0, dtype=np.int64)
        self.state.add("storm", "mr", 0.0)
        self.state.add("usual", "mr", 0.0)
        self.state.add("since", "mr", np.inf)
        self.state.add("known", "r", 0.0)
        self.metrics: tuple[str, ...] = ()
        self._weight: Array = np.zeros((0, 1))
        self._sticky: NDArray[np.bool_] = np.zeros((0, 1), np.bool_)

    def reindex(self, metrics: tuple[str, ...], rows: tuple[str, ...]) -> None:
        """Follow the roster."""
        self.metrics = metrics
        self.state.reindex(metrics, rows)
        self._weight = np.array([WEIGHT.get(m, 0.0) for m in metrics])[:, None]
        self._sticky = np.array([self.sticky(m) for m in metrics], np.bool_)[:, None]

    def step(
        self,
        x: Array,
        fresh: NDArray[np.bool_],
        at_ns: int,
        tick_seconds: float,
        score: Array,
        moment: Moment,
    ) -> Array:
        """One tick of codes and rates ``x`` ``[E, R]``; what they add to ``score``, ``[R]`` each.

        ``fresh`` ``bool [E, R]``: samples of this tick, not held from an earlier one. ``score``
        is that of the values, higher is worse; ``moment`` tells since when the job runs slower.
        """
        nothing = np.zeros(x.shape[1])
        if not self.metrics:
            return nothing
        self.state["known"] += tick_seconds
        last, at = self.state["last"], self.state["at_ns"]
        with np.errstate(invalid="ignore"):
            happens = (x > 0) & np.where(self._sticky, (x != last) & np.isfinite(last), True)
        # Of a rate the last that was none of zero is what there is to tell.
        np.copyto(last, x, where=np.isfinite(x) & (self._sticky | (x > 0) | np.isnan(last)))
        np.copyto(at, at_ns, where=happens)
        if not at.any():
            return nothing
        storm = self._storms(happens & ~self._sticky, fresh, tick_seconds)
        ago = (at_ns - at) / 1e9
        lately = np.where(at > 0, np.exp(ago / -FADE_SECONDS), 0.0)
        # What happened to many lately happened to the job.
        many = max(MANY, 1.0 / x.shape[1])
        lately *= ((lately > 0.1).mean(axis=1, keepdims=True) <= many) * self._weight
        storm *= ((storm > 0).mean(axis=1, keepdims=True) <= many) * (self._weight > 0)
        lately += storm
        most = score + ALONE + storm.max(axis=0)
        if moment.held_up or moment.stalled:
            began = moment.rest_seconds
            if not moment.stalled:
                began = moment.slower_seconds + moment.noticed_seconds
            coincides = (lately > 0) & (at > 0) & (np.abs(ago - began) <= COINCIDES_SECONDS)
            coincides &= coincides.mean(axis=1, keepdims=True) <= many
            lately = np.where(coincides, np.maximum(COINCIDES * self._weight, lately), lately)
            most = np.where(coincides.any(axis=0), np.inf, most)
        return np.asarray(np.minimum(lately.max(axis=0), most))

    def _storms(
        self, happens: NDArray[np.bool_], fresh: NDArray[np.bool_], tick_seconds: float
    ) -> Array:
        """What errors count that come again and again, ``[E, R]`` in 0..`STORM`."""
        s = self.state
        storm, usual = s["storm"], s["usual"]
        s["since"] += tick_seconds
        # A sample stands for the time since the one before.
        errs = np.where(happens & fresh, np.minimum(s["since"], MOST_EVENT_SECONDS), 0.0)
        s["since"][fresh] = 0.0
        storm *= np.exp(-tick_seconds / FADE_SECONDS)
        storm += errs
        # So high errors as frequent as usual would have risen by now.
        expected = usual * (FADE_SECONDS * -np.expm1(-s["known"] / FADE_SECONDS))
        more = np.clip((storm - expected - CALM_SECONDS) / STORM_SECONDS, 0.0, 1.0)
        # A row that errs all the time errs as usual; a storm does not teach.
        gain = np.minimum(1.0, tick_seconds / np.minimum(s["known"], USUAL_SECONDS))
        usual += gain * (errs / tick_seconds - usual) * (more == 0)
        return np.asarray(STORM * more)

    def latest(self, row: int) -> tuple[int, int]:
        """Position of the metric of the row's latest event, and its event time."""
        at = self.state["at_ns"][:, row]
        metric = int(np.argmax(at))
        return metric, int(at[metric])

    def snapshot(self) -> dict[str, Any]:
        """State tree."""
        return self.state.snapshot()

    def restore(self, tree: dict[str, Any]) -> None:
        """Inverse of `snapshot`."""
        self.state.restore(tree)
