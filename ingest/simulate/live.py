"""A running job: samples as time goes by, with faults injected at any moment."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from ingest.simulate.agents import BLOCK
from ingest.simulate.benign import SLOT_S, events_of_slot
from ingest.simulate.cluster import build_cluster
from ingest.simulate.effects import Effect, Halt, Level, Observe, Slow, Stop, end_of
from ingest.simulate.fault_types import effects_of
from ingest.simulate.faults import Scene
from ingest.simulate.levels import build_levels
from ingest.simulate.metrics import INDEX, METRICS
from ingest.simulate.occupancy import Stopped
from ingest.simulate.permanent import permanent
from ingest.simulate.phases import Phase
from ingest.simulate.randomness import Key, stream
from ingest.simulate.sampler import Sampled, Sampler
from ingest.simulate.spec import BadSimulationError, FaultSpec, JobSpec
from ingest.simulate.table import to_table
from ingest.simulate.timeline import Timeline
from ingest.simulate.workers import Workers

_CELLS = 400_000
_NEVER = float("inf")


class LiveJob:
    """Simulates one job from its start, in as many pieces as wanted.

    The samples do not depend on how time is cut into pieces. Memory is bounded by the length
    of one step and one piece, not by how long the job has run.

    Examples
    --------
    >>> from ingest.simulate import FaultSpec, JobSpec, LiveJob
    >>> job = LiveJob(JobSpec(machines=4), seed=1)
    >>> job.step(60.0).num_rows
    240
    >>> label = job.inject(FaultSpec("ecc_error", machines=(2,)))
    """

    def __init__(self, spec: JobSpec, seed: int) -> None:
        self.spec = spec
        self.seed = seed
        self.cluster = build_cluster(spec, seed)
        self._levels = build_levels(spec, seed)
        self._workers = Workers.create(spec.machines, spec.gpus_per_machine, spec.per_gpu)
        self._timeline = Timeline(spec, self.cluster, self._workers, seed)
        self._sources = self._make_sources()
        self._now = 0.0
        self._effects: list[Effect] = []
        self._faults: list[FaultSpec] = []
        self._gpu: int | None = None
        self._halt_s: float | None = None
        for slot in (0, 1):
            self._effects += events_of_slot(spec, seed, slot)
        self._cut = SLOT_S
        self._effects += permanent(spec, seed)
        for fault in spec.faults:
            self._add_fault(fault)
        self._renew()

    @property
    def now_s(self) -> float:
        """Seconds simulated so far."""
        return self._now

    @property
    def machines(self) -> tuple[str, ...]:
        """Host names, by machine index."""
        return self.cluster.names

    @property
    def faults(self) -> tuple[FaultSpec, ...]:
        """The faults so far, with their onsets."""
        return tuple(self._faults)

    @property
    def gpu(self) -> int | None:
        """The GPU that a fault slows, stops or silences by itself, None if there is none.

        Where the launcher takes all processes of the machine down at once, nothing in the
        telemetry tells the GPU at fault from its neighbours.
        """
        return self._gpu

    @property
    def halt_s(self) -> float | None:
        """When a fault halts the whole job, in seconds; None if none does."""
        return self._halt_s

    @property
    def held(self) -> int:
        """How many steps and events are in memory."""
        return len(self._timeline.steps().start) + len(self._effects)

    def inject(self, fault: FaultSpec) -> FaultSpec:
        """Let a fault begin now (or at its ``onset_s`` if that lies ahead)."""
        onset = self._now if fault.onset_s is None else fault.onset_s
        if onset < self._now:
            raise BadSimulationError(f"onset {onset:g} s has passed; it is {self._now:g} s now")
        if max(fault.machines) >= self.spec.machines:
            raise BadSimulationError(f"the job has {self.spec.machines} machines only")
        placed = replace(fault, onset_s=onset)
        self._timeline.rewind(self._now)
        self._add_fault(placed)
        self._renew()
        return placed

    def step(self, until_s: float) -> pa.Table:
        """Samples taken since the last call and up to ``until_s`` seconds from the start.

        Columns are the key columns of `ingest.samples` and the job's metrics in canonical
        names. A sample is delivered when its sampling interval has ended everywhere.
        """
        pieces: list[Sampled] = []
        rows = max(len(s.rows.machine) for s in self._sources)
        shortest = min(s.agents.cadence_s for s in self._sources)
        span = shortest * max(1, min(BLOCK, _CELLS // rows))
        while self._now < until_s:
            self._now = min(until_s, self._now + span)
            self._advance(self._now)
            for source in self._sources:
                pieces += self._sample(source)
            oldest = min(s.needs_from for s in self._sources)
            # Whoever has stopped stays at that moment for ever: its step is kept.
            self._timeline.forget(min(oldest, self._first_stop))
            self._effects = [
                e
                for e in self._effects
                if isinstance(e, Slow | Stop | Halt) or end_of(e) > oldest - 1.0
            ]
        return to_table(self.spec, self.cluster.names, pieces)

    def _make_sources(self) -> list[Sampler]:
        spec = self.spec
        names = tuple(sorted(spec.metrics))
        gpu = tuple(m for m in names if METRICS[INDEX[m]].scope == "gpu")
        host = tuple(m for m in names if METRICS[INDEX[m]].scope == "machine")
        node = spec.node_cadence_seconds
        parts: list[tuple[tuple[str, ...], bool, float]]
        if not spec.per_gpu and node is None:
            parts = [(names, False, spec.cadence_seconds)]
        else:
            parts = [(gpu, spec.per_gpu, spec.cadence_seconds)] if gpu else []
            if host:
                parts.append((host, False, node or spec.cadence_seconds))
        begin = self._timeline.time
        return [
            Sampler(
                spec,
                self.cluster,
                self._levels,
                self._workers,
                self.seed,
                number,
                metrics,
                per_gpu,
                cadence,
                begin,
            )
            for number, (metrics, per_gpu, cadence) in enumerate(parts)
        ]

    def _add_fault(self, fault: FaultSpec) -> None:
        if fault.gpu is not None and not self.spec.per_gpu:
            for machine in fault.machines:
                parent = self._workers.split(machine, fault.gpu)
                if parent is not None:
                    self._timeline.add_worker(parent)
                    for source in self._sources:
                        source.split(parent)
        rng = stream(self.seed, Key.FAULT, len(self._faults))
        arrival = self._timeline.arrival_s()
        scene = Scene(self.spec, self.cluster, self._workers, arrival, fault, rng)
        effects = effects_of(scene)
        halts = [e.at_s for e in effects if isinstance(e, Halt)]
        if halts:
            self._halt_s = min([*halts, *([self._halt_s] if self._halt_s is not None else [])])
        if any(isinstance(e, Slow | Stop | Observe) and e.gpu is not None for e in effects):
            self._gpu = fault.gpu
        self._effects += effects
        self._faults.append(fault)

    def _advance(self, until: float) -> None:
        while True:
            ended = self._timeline.time > self._last_halt
            while self._cut <= (until if ended else min(self._timeline.time, until)):
                slot = round(self._cut / SLOT_S) + 1
                self._effects += events_of_slot(self.spec, self.seed, slot)
                old = (slot - 4) * SLOT_S
                self._effects = [
                    e for e in self._effects if not isinstance(e, Slow) or end_of(e) > old
                ]
                self._cut += SLOT_S
                self._renew()
            if ended or self._timeline.time > until:
                return
            self._timeline.advance(min(until, self._last_halt), self._cut)

    def _renew(self) -> None:
        """Hand the events that act on speeds to the timeline; find who has stopped."""
        slows = [e for e in self._effects if isinstance(e, Slow)]
        stops = [e for e in self._effects if isinstance(e, Stop)]
        self._timeline.set_events(slows, stops)
        count = self._workers.count
        at = np.full(count, _NEVER)
        halt = np.full(count, _NEVER)
        stays = []
        ordered = sorted(stops, key=lambda s: s.at_s)
        for i, stop in enumerate(ordered):
            who = self._workers.of(stop.machines, stop.gpu)
            at[who] = np.minimum(at[who], stop.at_s)
            for worker in who:
                later = [
                    s.at_s
                    for s in ordered[i + 1 :]
                    if worker in self._workers.of(s.machines, s.gpu)
                ]
                until = min(later, default=_NEVER)
                stays.append((np.asarray([worker]), stop.phase, stop.at_s, until))
        for event in self._effects:
            if isinstance(event, Halt):
                rng = stream(self.seed, Key.FAULT, 1_000_000, round(event.at_s * 1000))
                stagger = rng.random(self.spec.machines) * event.stagger_s
                ends = event.at_s + stagger
                for machine in event.busy:
                    ends[machine] += event.busy_s
                    who = self._workers.of((machine,))
                    at[who] = np.minimum(at[who], event.at_s)
                    stays.append((who, Phase.CHECKPOINT, event.at_s, _NEVER))
                halt = np.minimum(halt, ends[self._workers.machine])
        self._stopped = Stopped(at, halt, stays)
        self._first_stop = float(min(at.min(), halt.min()))
        self._last_halt = float(halt.max())

    def _sample(self, source: Sampler) -> list[Sampled]:
        """Everything a source has sampled by now, block by block."""
        goal = int(np.floor(self._now / source.agents.cadence_s + 1e-9))
        levels = [e for e in self._effects if isinstance(e, Level)]
        observes = [e for e in self._effects if isinstance(e, Observe)]
        out = []
        while source.next < goal:
            last = min(goal, (source.next // BLOCK + 1) * BLOCK)
            steps = self._timeline.steps()
            out.append(source.sample(last, steps, self._stopped, levels, observes))
        return out
