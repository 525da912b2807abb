"""Bringing jobs back to where they were; what fails costs the one job that it belongs to."""

from __future__ import annotations

import structlog

from detect.pipeline import Pipeline, by_job
from detect.snapshot import decode_state
from serve.kafka.partition import Replayed

_log = structlog.stdlib.get_logger("weaklink")


def restore(pipeline: Pipeline, job: str, state: bytes, limit_bytes: int) -> bool:
    """A job as a snapshot holds it. False if that is of no use: the job begins anew."""
    try:
        pipeline.restore(job, decode_state(state, limit_bytes=limit_bytes))
    except Exception as error:  # noqa: BLE001 - whatever it holds, other jobs go on
        pipeline.drop(job)
        _log.warning("job begins anew: its state is of no use", job=job, reason=str(error))
        return False
    return True


def repeat(pipeline: Pipeline, call: Replayed, jobs: list[str]) -> None:
    """One call as it was made before, job by job: one that fails begins anew."""
    for job, rows in by_job(call.samples):
        try:
            pipeline.feed(rows)
        except Exception as error:  # noqa: BLE001 - other jobs go on
            pipeline.drop(job)
            _log.warning("job begins anew: reading again failed", job=job, reason=str(error))
    if call.advanced_ns is None:
        return
    for job in jobs:
        try:
            pipeline.advance(call.advanced_ns, [job])
        except Exception as error:  # noqa: BLE001 - other jobs go on
            pipeline.drop(job)
            _log.warning("job begins anew: reading again failed", job=job, reason=str(error))
