"""Keeps the trouble of one job from the others.

A job whose detection raises is dropped and begins anew; its rows are refused for a while that
doubles with every further failure, so a job that always fails costs next to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from detect.pipeline import Pipeline, PipelineOutput, by_job
from ingest.samples import Rejected
from serve.observe import JobFailed

FIRST_PAUSE_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 3_600.0
FORGET_SECONDS = 6 * 3_600.0


@dataclass(slots=True)
class _Record:
    failures: int = 0
    until_ns: int = 0


@dataclass(slots=True)
class JobGuard:
    """Feeds and advances a pipeline job by job, catching what a job raises."""

    pipeline: Pipeline
    failed: list[JobFailed] = field(default_factory=list)
    _records: dict[str, _Record] = field(default_factory=dict)

    def feed(self, table: pa.Table, now_ns: int) -> PipelineOutput:
        """`Pipeline.feed`, one job at a time."""
        out = PipelineOutput()
        for job, rows in by_job(table):
            record = self._records.get(job)
            if record is not None and now_ns < record.until_ns:
                out.rejected.append(_refused("quarantined", job, rows, "after repeated failures"))
                continue
            try:
                out.extend(self.pipeline.feed(rows))
            except Exception as error:  # noqa: BLE001 - whatever it is, other jobs go on
                out.rejected.append(_refused("detector_failed", job, rows, repr(error)))
                self._failed(job, error, now_ns)
        return out

    def advance(self, now_ns: int) -> PipelineOutput:
        """`Pipeline.advance`; if a job raises, the others advance without it."""
        out = PipelineOutput()
        self.pipeline.advanced_ns = now_ns
        for state in self.pipeline.jobs():
            if state.job in self.pipeline.held:
                continue
            try:
                out.extend(self.pipeline.advance(now_ns, [state.job]))
            except Exception as error:  # noqa: BLE001 - whatever it is, other jobs go on
                self._failed(state.job, error, now_ns)
        return out

    def take_failures(self) -> list[JobFailed]:
        """Failures since the last call."""
        failed, self.failed = self.failed, []
        return failed

    def _failed(self, job: str, error: Exception, now_ns: int) -> None:
        self.pipeline.drop(job)
        for name in [j for j, r in self._records.items() if _forgotten(r, now_ns)]:
            del self._records[name]
        record = self._records.setdefault(job, _Record())
        pause = min(FIRST_PAUSE_SECONDS * 2**record.failures, LONGEST_PAUSE_SECONDS)
        record.failures += 1
        record.until_ns = now_ns + round(pause * 1e9)
        self.failed.append(JobFailed(job, error, pause))


def _forgotten(record: _Record, now_ns: int) -> bool:
    return now_ns - record.until_ns > FORGET_SECONDS * 1e9


def _refused(reason: str, job: str, rows: pa.Table, detail: str) -> Rejected:
    return Rejected(reason, f"job {job!r}", f"{rows.num_rows} rows: {detail}")
