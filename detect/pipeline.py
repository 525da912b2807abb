"""The one path from samples to alert changes: route by job, align, detect.

The service and the replay both call this and nothing else, so a replay says what live said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from detect.alert import AlertChange
from detect.detector import JobDetector, ScoreFrame, State
from detect.history import History
from ingest.align import AlignSettings, JobAligner
from ingest.catalogue import Catalogue
from ingest.samples import Rejected
from ingest.ticks import TickBlock

SNAPSHOT_VERSION = 1


class DetectorFactory(Protocol):
    """Makes a fresh detector for one run of a job."""

    def __call__(self, job: str) -> JobDetector: ...


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Bounds of a pipeline.

    ``max_jobs`` at once (rows of further ones are rejected), ``forget_after_ns`` of wall-clock
    silence before a job's memory is given back.
    """

    align: AlignSettings = field(default_factory=AlignSettings)
    max_jobs: int = 5_000
    forget_after_ns: int = 3_600 * 1_000_000_000
    history_bytes: int = 64 << 20
    keep_history: bool = True


@dataclass(slots=True)
class PipelineOutput:
    """What feeding or the passing of time led to."""

    changes: list[AlertChange] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)

    def extend(self, other: PipelineOutput) -> None:
        """Append another output, keeping order."""
        self.changes.extend(other.changes)
        self.rejected.extend(other.rejected)


@dataclass(frozen=True, slots=True)
class JobState:
    """A job as the API shows it. Times are event time in nanoseconds."""

    job: str
    run: int
    machines: tuple[str, ...]
    phase: str
    state: str
    tick_ns: int
    watermark_ns: int
    ticks: int
    rejected: dict[str, int]


class JobPipeline:
    """Alignment and detection of one job."""

    def __init__(self, job: str, catalogue: Catalogue, make: DetectorFactory, s: PipelineSettings):
        self.job = job
        self.aligner = JobAligner(job, catalogue, s.align)
        self.detector = make(job)
        self.history = History(s.history_bytes) if s.keep_history else None
        self.rejected: Counter[str] = Counter()
        self._fed = False
        self._seen_ns = 0
        self._make = make
        self._run = 0
        self._machines: tuple[str, ...] = ()
        self._ticks = 0
        self._end_ns = 0
        self._tick_ns = 0
        self._phase = "waiting"
        self._frames: list[ScoreFrame] = []

    def feed(self, table: pa.Table) -> PipelineOutput:
        """Samples of this job, any order within the allowed lateness."""
        self._fed = True
        rejected = self.aligner.add(table)
        return self._detect(self.aligner.advance(), rejected)

    def advance(self, now_ns: int) -> PipelineOutput:
        """The wall clock has reached ``now_ns``: close what an idle source left open."""
        if self._fed or not self._seen_ns:
            self._fed, self._seen_ns = False, now_ns
        return self._detect(self.aligner.idle(now_ns), self.aligner.take_rejected())

    def silent_ns(self, now_ns: int) -> int:
        """Wall-clock time since the last samples, to the precision of calls to `advance`."""
        return 0 if self._fed else now_ns - self._seen_ns

    def finish(self) -> PipelineOutput:
        """End of input: close every tick and resolve what is still open."""
        out = self._detect(self.aligner.flush(), self.aligner.take_rejected())
        out.changes.extend(self.detector.finish(self._end_ns))
        self._phase = "ended"
        return out

    def _detect(self, blocks: list[TickBlock], rejected: list[Rejected]) -> PipelineOutput:
        for one in rejected:
            self.rejected[one.reason] += one.rows
        out = PipelineOutput(rejected=rejected)
        for block in blocks:
            if block.run != self._run and self._ticks:
                # A new run starts clean: no phase, baseline or open alert survives it.
                out.changes.extend(self.detector.finish(self._end_ns))
                self.detector = self._make(self.job)
            self._run = block.run
            self._machines = block.machines
            self._ticks += block.ticks
            self._tick_ns = block.tick_ns
            self._end_ns = block.start_ns + block.ticks * block.tick_ns
            out.changes.extend(self.detector.update(block))
            frames = self.detector.take_scores()
            if frames:
                self._phase = frames[-1].phase
            if self.history is not None:
                self.history.add(block, frames)
                self._frames.extend(frames)
                # Nobody may be reading (replay without a page): bounded either way.
                del self._frames[:-512]
        return out

    def take_frames(self) -> list[ScoreFrame]:
        """Score frames since the last call."""
        frames, self._frames = self._frames, []
        return frames

    def state(self) -> JobState:
        """The job as the API shows it."""
        return JobState(
            job=self.job,
            run=self._run,
            machines=self._machines,
            phase=self._phase,
            state="ended" if self._phase == "ended" else "running" if self._ticks else "waiting",
            tick_ns=self._tick_ns,
            watermark_ns=self.aligner.watermark_ns,
            ticks=self._ticks,
            rejected=dict(self.rejected),
        )

    def snapshot(self) -> State:
        """Aligner and detector state; history is rebuilt from new ticks."""
        return {
            "version": SNAPSHOT_VERSION,
            "aligner": self.aligner.snapshot(),
            "detector": self.detector.snapshot(),
            "run": self._run,
            "machines": list(self._machines),
            "ticks": self._ticks,
            "end_ns": self._end_ns,
            "tick_ns": self._tick_ns,
            "phase": self._phase,
            "fed": self._fed,
            "seen_ns": self._seen_ns,
        }

    def restore(self, state: State) -> None:
        """Continue from `snapshot`; ValueError if it is of another version."""
        if state.get("version") != SNAPSHOT_VERSION:
            raise ValueError(f"snapshot version {state.get('version')}, not {SNAPSHOT_VERSION}")
        self.aligner.restore(state["aligner"])
        self.detector.restore(state["detector"])
        self._run = state["run"]
        self._machines = tuple(state["machines"])
        self._ticks = state["ticks"]
        self._end_ns = state["end_ns"]
        self._tick_ns = state["tick_ns"]
        self._phase = state["phase"]
        self._fed = state["fed"]
        self._seen_ns = state["seen_ns"]


class Pipeline:
    """All jobs of one process.

    ``held`` are jobs whose source is behind: the wall clock says nothing about them.
    ``advanced_ns`` is the wall clock last passed to `advance` for all jobs.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        detector_factory: DetectorFactory,
        settings: PipelineSettings | None = None,
    ):
        self.catalogue = catalogue
        self.detector_factory = detector_factory
        self.settings = settings or PipelineSettings()
        self.held: set[str] = set()
        self.advanced_ns: int | None = None
        self._jobs: dict[str, JobPipeline] = {}

    def feed(self, table: pa.Table) -> PipelineOutput:
        """Samples of any jobs. One job's trouble never touches another's rows."""
        out = PipelineOutput()
        for job, rows in by_job(table):
            pipeline = self._jobs.get(job)
            if pipeline is None:
                if len(self._jobs) >= self.settings.max_jobs:
                    out.rejected.append(
                        Rejected("too_many_jobs", f"job {job!r}", f"{rows.num_rows} rows refused")
                    )
                    continue
                pipeline = self._add(job)
            out.extend(pipeline.feed(rows))
        return out

    def advance(self, now_ns: int, jobs: Collection[str] | None = None) -> PipelineOutput:
        """The wall clock has moved on, for ``jobs`` (default: all but the held ones).

        Called after `feed`. Replay never calls this.
        """
        if jobs is None:
            self.advanced_ns = now_ns
            jobs = [job for job in self._jobs if job not in self.held]
        out = PipelineOutput()
        for job in jobs:
            pipeline = self._jobs.get(job)
            if pipeline is None:
                continue
            out.extend(pipeline.advance(now_ns))
            if pipeline.silent_ns(now_ns) > self.settings.forget_after_ns:
                out.extend(pipeline.finish())
                del self._jobs[job]
        return out

    def finish(self) -> PipelineOutput:
        """End of input for every job."""
        out = PipelineOutput()
        for pipeline in self._jobs.values():
            out.extend(pipeline.finish())
        return out

    def jobs(self) -> list[JobState]:
        """Every job, by name."""
        return [self._jobs[j].state() for j in sorted(self._jobs)]

    def history(self, job: str) -> History | None:
        """Recent ticks and scores of a job, for the page and the report."""
        pipeline = self._jobs.get(job)
        return pipeline.history if pipeline else None

    @property
    def history_bytes(self) -> int:
        """Memory that the history of all jobs takes now."""
        return sum(p.history.nbytes for p in self._jobs.values() if p.history is not None)

    def take_frames(self) -> list[tuple[str, ScoreFrame]]:
        """Score frames of every job since the last call."""
        return [(job, frame) for job, p in self._jobs.items() for frame in p.take_frames()]

    def snapshot(self, job: str) -> State:
        """One job's state; KeyError for a job that is not here."""
        return self._jobs[job].snapshot()

    def restore(self, job: str, state: State) -> None:
        """Take a job over from where a snapshot left it."""
        pipeline = JobPipeline(job, self.catalogue, self.detector_factory, self.settings)
        pipeline.restore(state)
        self._jobs[job] = pipeline

    def rests(self, job: str) -> bool:
        """Whether a job's state only changes with new samples, until it is forgotten."""
        return job in self._jobs and self._jobs[job].aligner.rests

    def drop(self, job: str) -> None:
        """Forget a job without a word (another process has taken it over)."""
        self._jobs.pop(job, None)

    def _add(self, job: str) -> JobPipeline:
        pipeline = JobPipeline(job, self.catalogue, self.detector_factory, self.settings)
        self._jobs[job] = pipeline
        return pipeline


def by_job(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Split a batch by job, keeping each job's row order."""
    if table.num_rows == 0:
        return
    encoded = table["job"].combine_chunks().dictionary_encode()
    names: list[str] = encoded.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], table
        return
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    cuts = np.flatnonzero(codes[1:] != codes[:-1]) + 1
    if cuts.size + 1 == len(names):
        # Each job's rows stand together, as they do when a message is of one job: no copies.
        edges = [0, *cuts.tolist(), codes.size]
        for name, code in sorted((name, code) for code, name in enumerate(names)):
            yield name, table.slice(edges[code], edges[code + 1] - edges[code])
        return
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(names) + 1))
    ordered = table.take(pa.array(order))
    for code, name in sorted(enumerate(names), key=lambda item: item[1]):
        yield name, ordered.slice(starts[code], starts[code + 1] - starts[code])
