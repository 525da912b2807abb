"""Telemetry that must not be mistaken for hardware: frozen, zeroed or never measured values.

Each rule turns values into "missing", a state of its own: neither evidence of health nor a
verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detect.averages import counts
from detect.state import PanelState

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

FROZEN_SECONDS = 5.0
FROZEN_TICKS = 3
QUIET_Z = 3.0
WHOLE, WHOLE_FIELDS = 0.7, 4
"""Share of each exporter's fields that move as a rule, and number of all, that must repeat a value
above zero for a row to be frozen whole."""
PROFILED = frozenset({"compute", "pcie", "nvlink"})
NOT_PROFILED = frozenset({"gpu_utilization_ratio", "gpu_memory_copy_ratio"})
"""Of the driver, which goes on when profiling pauses."""
EXPORTERS = 2
"""The GPUs' and the host's: they run, and freeze, each for itself."""
POWER_LIKE_PEERS = 0.8
TRAFFIC_LIKE_PEERS = 0.5
TRAFFIC_SECONDS = 10.0
"""So long a machine that works may send nothing, between two bursts of its steps."""
NEVER_ZERO = frozenset({"power", "thermal"})
"""Families in which a GPU that is there is never at nothing."""


class Found(NamedTuple):
    """Rows, ``bool [R]`` each, whose profiling fields were ``zeroed``, and that were ``frozen``
    whole: both are missing now.
    """

    zeroed: Mask
    frozen: Mask

    def of(self, rows: NDArray[np.int64]) -> Found:
        """The same of some rows, in their order."""
        return Found(self.zeroed[rows], self.frozen[rows])


class TelemetryFaults:
    """Masks one panel's values, tick by tick."""

    def __init__(self, family: Callable[[str], str], scope: Callable[[str], str]) -> None:
        self.family = family
        self.scope = scope
        self.state = s = PanelState()
        s.add("last", "mr", np.nan)
        s.add("moves", "m", 0.0)
        s.add("same", "r", 0.0, (EXPORTERS,))
        s.add("calm", "r", True, (EXPORTERS,), dtype=np.bool_)
        s.add("was_nonzero", "mr", False, dtype=np.bool_)
        s.add("still", "r", 0.0)
        self._profiled: Mask = np.zeros(0, np.bool_)
        self._activity: Mask = np.zeros(0, np.bool_)
        """Of the profiled, what tells of activity; all of them if nothing does."""
        self._first = 0
        self._power: Mask = np.zeros(0, np.bool_)
        self._traffic: Mask = np.zeros(0, np.bool_)
        self._never: Mask = np.zeros(0, np.bool_)
        self._rates: Mask = np.zeros(0, np.bool_)
        self._inlet: Mask = np.zeros(0, np.bool_)
        self._exporters: tuple[Mask, ...] = ()
        self.found = Found(np.zeros(0, np.bool_), np.zeros(0, np.bool_))
        """At the last tick."""

    def reindex(self, metrics: tuple[str, ...], rows: tuple[str, ...]) -> None:
        """Follow the roster."""
        self.state.reindex(metrics, rows)
        self._configure()

    def _configure(self) -> None:
        families = [self.family(m) for m in self.state.metrics]
        self._profiled = np.array(
            [
                f in PROFILED and m not in NOT_PROFILED
                for f, m in zip(families, self.state.metrics, strict=True)
            ],
            np.bool_,
        )
        activity = np.array([f == "compute" for f in families], np.bool_) & self._profiled
        if not activity.any():
            activity = self._profiled
        self._activity = activity[self._profiled]
        self._first = int(activity.argmax()) if activity.size else 0
        self._power = np.array([f == "power" for f in families], np.bool_)
        self._rates = np.array(
            [m.endswith("_bytes_per_second") for m in self.state.metrics], np.bool_
        )
        self._traffic = self._rates & np.array([f == "network" for f in families], np.bool_)
        of_gpus = np.array([self.scope(m) == "gpu" for m in self.state.metrics], np.bool_)
        self._exporters = (of_gpus, ~of_gpus)
        self._inlet = self._power & ~of_gpus
        self._never = of_gpus & np.array([f in NEVER_ZERO for f in families], np.bool_)

    def mask(
        self,
        x: Array,
        worst_z: NDArray[np.floating],
        tick_seconds: float,
        of_machine: Found | None = None,
    ) -> Array:
        """Make unusable values of ``x`` ``[M, R]`` NaN, in place; returns it.

        ``worst_z`` ``[R]`` is each row's largest fast ``|z|`` at the last tick: a value that
        froze while in line with the peers is the exporter's, one that jumped first is real.
        ``of_machine``, of GPUs: what was found of their machines.
        """
        self._mask_impossible(x)
        zeroed = self._zeroed(x, tick_seconds, of_machine)
        if zeroed.any():
            x[(x == 0) & self._profiled[:, None] & zeroed] = np.nan
        frozen = self._mask_frozen(x, worst_z, tick_seconds)
        self.found = Found(zeroed, frozen)
        if of_machine is not None and of_machine.frozen.any():
            x[:, of_machine.frozen] = np.nan
        self._mask_never_measured(x)
        return x

    def _mask_frozen(self, x: Array, worst_z: NDArray[np.floating], tick_seconds: float) -> Mask:
        """All that moves as a rule stands still, of the GPUs' or of the host's.

        A counter that is no longer read has a rate of zero, so falling to zero is no movement
        while another value stands still above zero. Where nearly all of both stands still above
        zero it does not matter how odd it is: no machine, dead or alive, is so quiet. Those rows
        are returned, ``bool [R]``.
        """
        s = self.state
        last = s["last"]
        present = np.isfinite(x)
        changed = x != last
        changed &= present
        # A metric that most rows repeat (a limit, a step function) tells nothing of freezing.
        peers = np.maximum(counts(present), 1)
        s["moves"] += 0.1 * (counts(changed) / peers - s["moves"])
        lively = s["moves"] > 0.5
        need = max(FROZEN_TICKS, math.ceil(FROZEN_SECONDS / tick_seconds))
        nonzero = x != 0
        moved = changed & nonzero
        # Of what is missing the last value stays. To put it back costs less than to choose.
        places = np.flatnonzero(~present)
        kept = last.reshape(-1)[places]
        last[...] = x
        last.reshape(-1)[places] = kept
        whole = np.ones(x.shape[1], np.bool_)
        left = np.zeros(x.shape[1], np.int64)
        flows = np.zeros((EXPORTERS, x.shape[1]), np.bool_)
        for of, same, calm, flow in zip(self._exporters, s["same"], s["calm"], flows, strict=True):
            fields = np.flatnonzero(of & lively)
            stands = ~moved[fields].any(axis=0)
            if not stands.any():
                # As a rule: something moves on every row.
                same.fill(0.0)
                whole[:] = False
                continue
            still = nonzero[fields] & present[fields]
            still &= ~changed[fields]
            count = counts(still, axis=0)
            stands &= count > 0
            most = count >= WHOLE * fields.size
            flow[:] = most & (count >= WHOLE_FIELDS) & still[self._rates[fields]].any(axis=0)
            whole &= stands & most
            left += count
            np.copyto(calm, worst_z < QUIET_Z, where=stands & (same == 0))
            same += 1
            same *= stands
        whole &= (left >= WHOLE_FIELDS) & (s["same"] >= need).all(axis=0)
        for of, same, calm, flow in zip(self._exporters, s["same"], s["calm"], flows, strict=True):
            frozen = (same >= need) & (calm | flow | whole)
            if frozen.any():
                x[np.ix_(of, frozen)] = np.nan
        return whole

    def _mask_impossible(self, x: Array) -> None:
        """What is none of a machine that sends anything: a power of nothing at its inlet, GPUs that
        do nothing, at 0 degrees or drawing nothing. Meter and exporter are at fault.
        """
        inlet = x[self._inlet]
        if not inlet.all():
            x[self._inlet] = np.where(inlet == 0, np.nan, inlet)
        never = x[self._never]
        if never.all():
            return
        gpus = x[self._exporters[0]]
        # A field that nobody fills says nothing.
        zeroed = ((never == 0) & self.state["was_nonzero"][self._never]).any(axis=0)
        zeroed &= ~(np.abs(gpus) > 0).any(axis=0)
        if zeroed.any():
            x[np.ix_(self._exporters[0], zeroed)] = np.nan

    def _zeroed(self, x: Array, tick_seconds: float, of_machine: Found | None) -> Mask:
        """Rows ``bool [R]``: activity and most profiling fields zero while the machine works as
        its peers do.

        Its power tells, or where that is unknown its traffic with the others; a GPU that has
        neither shares what was found of its machine.
        """
        still, nobody = self.state["still"], np.zeros(x.shape[1], np.bool_)
        if self._profiled.sum() < 2:
            return nobody
        # Mostly one field alone says that no row is dark.
        if (np.abs(x[self._first]) > 0).all():
            still.fill(0.0)
            return nobody
        fields = x[self._profiled]
        lights = np.abs(fields) > 0
        # Some fields may come another way; all that tells of activity does not.
        dark = np.asarray(2 * counts(lights, axis=0) < counts(np.isfinite(fields), axis=0))
        dark &= ~lights[self._activity].any(axis=0)
        if not dark.any() or dark.all():
            still.fill(0.0)
            return nobody
        # What nobody has at the moment is not missing.
        lit = ~dark & np.isfinite(fields)
        shown = np.count_nonzero(lit & (fields != 0), axis=1) * 2 > np.count_nonzero(lit, axis=1)
        dark &= np.isfinite(fields[shown]).any(axis=0)
        metered = np.isfinite(x[self._power]).any(axis=0)
        sends = self._like_peers(x[self._traffic], dark, TRAFFIC_LIKE_PEERS)
        still += tick_seconds
        still[sends | ~dark] = 0.0
        sends = still < TRAFFIC_SECONDS
        sends &= np.isfinite(x[self._traffic]).any(axis=0)
        if of_machine is not None:
            sends |= of_machine.zeroed
        draws = self._like_peers(x[self._power], dark, POWER_LIKE_PEERS)
        return np.asarray(dark & np.where(metered, draws, sends))

    @staticmethod
    def _like_peers(values: Array, dark: Mask, share: float) -> Mask:
        """Rows ``bool [R]`` with more than a ``share`` of what those that are not dark have."""
        like = np.zeros(dark.size, np.bool_)
        for own in values:
            lit = own[~dark & np.isfinite(own)]
            if lit.size:
                usual = float(np.median(lit))
                like |= (own > share * usual) & (usual > 0)
        return like

    def _mask_never_measured(self, x: Array) -> None:
        """A field that was zero on this row ever since, while its peers' is not: not exported."""
        s = self.state
        nonzero = s["was_nonzero"]
        # Once all of a metric's rows have been something there is nothing to look for.
        for m in np.flatnonzero(~nonzero.all(axis=1)).tolist():
            nonzero[m] |= np.isfinite(x[m]) & (x[m] != 0)
            if 2 * np.count_nonzero(nonzero[m]) > nonzero[m].size:
                x[m, ~nonzero[m] & (x[m] == 0)] = np.nan

    def snapshot(self) -> dict[str, Any]:
        """State tree."""
        return self.state.snapshot()

    def restore(self, tree: dict[str, Any]) -> None:
        """Inverse of `snapshot`."""
        self.state.restore(tree)
        self._configure()
