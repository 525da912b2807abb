"""One source of samples: what its agents measure, with noise, inertia and resolution."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.simulate.agents import BLOCK, Agents
from ingest.simulate.cluster import Cluster
from ingest.simulate.disturb import Disturbances
from ingest.simulate.effects import Level, Observe
from ingest.simulate.levels import Levels
from ingest.simulate.metrics import INDEX, METRICS
from ingest.simulate.occupancy import Stopped, cumulative
from ingest.simulate.phases import Phase
from ingest.simulate.physics import Physics, Rows, Shares, to_rows
from ingest.simulate.randomness import Key, log_uniform, rounded, stream
from ingest.simulate.spec import JobSpec
from ingest.simulate.timeline import Steps
from ingest.simulate.workers import Workers

FloatArray = NDArray[np.float64]
Totals = tuple[dict[Phase, FloatArray], FloatArray]

_GAUGES = ("gpu_power_watts", "gpu_utilization_ratio", "gpu_sm_clock_hertz")
_MEMORY_S = 8.0


@dataclass(frozen=True, slots=True)
class Sampled:
    """Samples of one source: ``stamps_ns`` ``[T, R]``, ``values`` ``[M, T, R]`` (NaN = none)."""

    metrics: tuple[str, ...]
    rows: Rows
    stamps_ns: NDArray[np.int64]
    values: FloatArray


class Sampler:
    """Samples the rows of one source in order; state is carried from block to block."""

    def __init__(
        self,
        spec: JobSpec,
        cluster: Cluster,
        levels: Levels,
        workers: Workers,
        seed: int,
        source: int,
        metrics: tuple[str, ...],
        per_gpu: bool,
        cadence_s: float,
        begin_s: float,
    ) -> None:
        n, g = spec.machines, spec.gpus_per_machine
        machine = np.arange(n, dtype=np.int64)
        if per_gpu:
            rows = Rows(np.repeat(machine, g), np.tile(np.arange(g, dtype=np.int64), n), g)
        else:
            rows = Rows(machine, machine * 0 - 1, g)
        self.agents = Agents(spec, cluster, seed, source, cadence_s)
        self.rows = rows
        self.metrics = metrics
        self.next = 0
        self._workers = workers
        self._levels = levels
        self._physics = Physics(levels, cluster, rows)
        self._disturb = Disturbances(rows, metrics)
        self._seed = seed
        self._source = source
        self._begin_s = begin_s
        window = spec.gauge_window_s
        self._window = window if window is not None and window < cadence_s else None
        self._before: FloatArray | None = None
        self._totals: Totals | None = None
        self._state: dict[str, FloatArray] = {}
        self._block: tuple[int, FloatArray, FloatArray] | None = None
        rng = stream(seed, Key.AGENTS, 1000 + source)
        scale = [spec.noise * log_uniform(rng, 0.3, 2.5) for _ in METRICS]
        chosen = [METRICS[INDEX[name]] for name in metrics]
        self._noise = [m.noise * scale[INDEX[m.name]] for m in chosen]
        self._floor = [m.floor * min(scale[INDEX[m.name]], 1.0) for m in chosen]
        self._wander = [m.wander * scale[INDEX[m.name]] for m in chosen]
        self._wandering = [k for k, w in enumerate(self._wander) if w > 0]
        self._slowness = math.exp(-cadence_s / log_uniform(rng, 60.0, 600.0))

    @property
    def needs_from(self) -> float:
        """The earliest true time that the next sample looks back to."""
        if self._before is not None:
            return float(self._before.min())
        return self._begin_s

    def split(self, parent: int) -> None:
        """A worker was split off another one: carried totals are the same for both."""
        if self._totals is None or self._before is None:
            return
        self._before = np.concatenate((self._before, self._before[:, [parent]]), axis=1)
        spent, progress = self._totals
        spent = {p: np.concatenate((s, s[:, [parent]]), axis=1) for p, s in spent.items()}
        self._totals = spent, np.concatenate((progress, progress[:, :, [parent]]), axis=2)

    def sample(
        self,
        last: int,
        steps: Steps,
        stopped: Stopped,
        levels: list[Level],
        observes: list[Observe],
    ) -> Sampled:
        """Samples ``next .. last-1`` (of one block of instants)."""
        first, self.next = self.next, last
        per_machine = self.agents.instants(first, last)
        at = per_machine[:, self._workers.machine]
        if self._totals is None:
            self._before = np.maximum(at[:1] - self.agents.cadence_s, self._begin_s)
            self._totals = cumulative(steps, self._before, stopped)
        assert self._before is not None
        begin = np.concatenate((self._before, at[:-1]))
        now = cumulative(steps, at, stopped)
        shares = self._shares(_prepend(self._totals, now), now, at - begin)
        self._before, self._totals = at[-1:].copy(), _tail(now)

        ends = per_machine[:, self.rows.machine]
        begins = begin[:, : self._workers.base]
        if self._workers.per_gpu and not self.rows.per_gpu:
            begins = begins[:, :: self._workers.gpus_per_machine]
        gauges, opens = shares, begins
        if self._window is not None:
            opened = np.maximum(at - self._window, begin)
            gauges = self._shares(cumulative(steps, opened, stopped), now, at - opened)
            opens = np.maximum(ends - self._window, begins)

        opens_s, ends_s = float(begins.min()), float(ends.max())
        by_metric: dict[str, list[Level]] = {}
        for effect in levels:
            if effect.shape.start_s < ends_s and effect.shape.end_s > opens_s:
                by_metric.setdefault(effect.metric, []).append(effect)
        observes = [e for e in observes if e.start_s <= ends_s and e.end_s > opens_s]
        values = np.empty((len(self.metrics), *ends.shape))
        power: FloatArray | None = None
        wanted = list(self.metrics)
        if "gpu_temperature_celsius" in wanted:  # power first: it heats
            wanted = ["gpu_power_watts", *(m for m in wanted if m != "gpu_power_watts")]
        for name in wanted:
            about = by_metric.get(name, [])
            gauge = name in _GAUGES
            value = self._physics.value(
                name, gauges if gauge else shares, about, opens if gauge else begins, ends
            )
            if name == "gpu_power_watts":
                power = value = self._inert(name, value, self._levels.power_s)
            elif name == "gpu_temperature_celsius":
                assert power is not None
                heat = power * self._levels.temperature_per_watt + self._physics.ambient
                value = self._inert(name, heat + value, self._levels.temperature_s)
            elif name == "memory_usage_ratio":
                value = self._inert(name, value, _MEMORY_S)
            if name in self.metrics:
                values[self.metrics.index(name)] = value
        self._measure(values, first, last)
        self._disturb.apply(values, ends, observes)
        stamps = self.agents.stamps_ns(per_machine)[:, self.rows.machine]
        return Sampled(self.metrics, self.rows, stamps, values)

    def _shares(self, before: Totals, now: Totals, seconds: FloatArray) -> Shares:
        workers, per_gpu = self._workers, self.rows.per_gpu
        phases = {}
        extra = range(workers.base, workers.count) if not per_gpu else ()
        odd: dict[tuple[int, int], dict[Phase, FloatArray]] = {
            (int(workers.machine[w]), int(workers.gpu[w])): {} for w in extra
        }
        for phase, spent in now[0].items():
            earlier = before[0].get(phase)
            gained = spent - earlier if earlier is not None else spent
            if gained.any():
                share = gained / seconds
                phases[phase] = to_rows(share, workers, per_gpu)
                for w in extra:
                    odd[int(workers.machine[w]), int(workers.gpu[w])][phase] = share[:, w]
        rate = to_rows((now[1] - before[1]) / seconds, workers, per_gpu)
        return Shares(phases, rate, odd)

    def _inert(self, name: str, target: FloatArray, seconds: float) -> FloatArray:
        """First-order lag, row by row so that no library's rounding matters."""
        rate = rounded(1.0 - math.exp(-self.agents.cadence_s / seconds))
        state = self._state.get(name)
        if state is None:
            state = target[0].copy()
        out = np.empty_like(target)
        for t in range(len(target)):
            state = state + rate * (target[t] - state)
            out[t] = state
        self._state[name] = state
        return out

    def _measure(self, values: FloatArray, first: int, last: int) -> None:
        """Add noise and slow fluctuation, clip to the possible, round to the resolution."""
        block = first // BLOCK
        if self._block is None or self._block[0] != block:
            rng = stream(self._seed, Key.SAMPLES, self._source, block)
            count = len(self.rows.machine)
            sizes = ((BLOCK, len(self.metrics), count), (BLOCK, len(self._wandering), count))
            # Single precision is twice as fast to draw, and noise needs no more.
            drawn = [rng.standard_normal(s, dtype=np.float32).astype(np.float64) for s in sizes]
            self._block = (block, drawn[0], drawn[1])
        rows = slice(first - block * BLOCK, last - block * BLOCK)
        white, slow = self._block[1][rows], self._block[2][rows]
        wander = self._wander_on(slow)
        for k, name in enumerate(self.metrics):
            metric = METRICS[INDEX[name]]
            value = values[k]
            if k in self._wandering:
                value = value * (1.0 + self._wander[k] * wander[:, self._wandering.index(k)])
            z = white[:, k]
            value = value + (self._noise[k] * value + self._floor[k]) * z
            value = np.clip(value, metric.low, metric.high)
            if metric.quantum >= 1.0:
                values[k] = np.rint(value / metric.quantum) * metric.quantum
            else:
                scale = round(1.0 / metric.quantum)
                values[k] = np.rint(value * scale) / scale

    def _wander_on(self, shocks: FloatArray) -> FloatArray:
        """A stationary first-order random walk with unit variance."""
        state = self._state.get("wander")
        keep = rounded(self._slowness)
        push = rounded(math.sqrt(1.0 - keep * keep))
        out = np.empty_like(shocks)
        for t in range(len(shocks)):
            state = shocks[t] if state is None else keep * state + push * shocks[t]
            out[t] = state
        assert state is not None
        self._state["wander"] = state
        return out


def _prepend(before: Totals, now: Totals) -> Totals:
    """Totals at the beginning of each interval: the last ones, then all but the newest."""
    zero = np.zeros_like(before[1][0])
    spent = {p: np.concatenate((before[0].get(p, zero), s[:-1])) for p, s in now[0].items()}
    return spent, np.concatenate((before[1], now[1][:, :-1]), axis=1)


def _tail(now: Totals) -> Totals:
    return {p: s[-1:].copy() for p, s in now[0].items()}, now[1][:, -1:].copy()
