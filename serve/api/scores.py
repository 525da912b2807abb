"""``/jobs/{job}/scores`` and a machine's metrics against its peers.

For the heat map of thousands of machines ask for ``Accept: application/vnd.weaklink.scores``:
`replay.view.grid` describes the binary form (two bytes a cell; 2,000 machines × 30 minutes at
1 s are 7 MB, sent compressed where the client accepts gzip).
``application/vnd.apache.arrow.stream`` has a column ``machine`` and one of 32-bit floats a time
(its name is the time); JSON is the default. ``max_columns`` pools columns by their maximum, so
the worst cell stays visible.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any

import numpy as np
import orjson
import pyarrow as pa
from fastapi import APIRouter, Query
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from detect.alert import rfc3339
from replay.band import Band
from replay.view.grid import MEDIA_TYPE as GRID
from replay.view.grid import ScoreGrid
from serve.api.auth import Reader, Using
from serve.api.problems import ProblemError, responses
from serve.api.schemas import ScoresView, SeriesView
from serve.api.shared import (
    PREFIX,
    Instant,
    JobName,
    MachineName,
    Name,
    answer,
    nanoseconds_of,
    tagged,
)
from serve.services import Services
from serve.store.history import TooMuchHistoryError
from serve.store.tables import JobRow

router = APIRouter(prefix=PREFIX, tags=["jobs"])

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
DEFAULT_NS = 30 * 60 * 10**9
MOST_METRICS = 64

_FORMS: dict[str, Any] = {
    GRID: {"schema": {"type": "string", "format": "binary"}},
    ARROW: {"schema": {"type": "string", "format": "binary"}},
}
Start = Annotated[Instant | None, Query(description="Default: 30 minutes before the end.")]
End = Annotated[Instant | None, Query(description="Default: the end of what there is.")]


@router.get(
    "/jobs/{job:path}/scores",
    response_model=ScoresView,
    responses=responses(404, 413) | {200: {"content": _FORMS}},
)
def scores(
    request: Request,
    services: Using,
    _who: Reader,
    job: JobName,
    start: Start = None,
    end: End = None,
    machine: Annotated[Name | None, Query(description="Only this machine's row.")] = None,
    max_columns: Annotated[int, Query(ge=1, le=100_000)] = 4_000,
) -> Response:
    """Scores of all machines over time: 0 = healthy, 1 = alarm, above = beyond."""
    start_ns, end_ns = _range(services, job, start, end)
    try:
        grid = services.history.scores(job, start_ns, end_ns)
    except TooMuchHistoryError as error:
        raise ProblemError(413, f"That is too much at once ({error}); ask for less time.") from None
    if grid is None:
        grid = ScoreGrid(job, start_ns, 10**9, (), np.zeros((0, 0), np.float32))
    if machine is not None:
        if machine not in grid.machines:
            raise ProblemError(404, f"There are no scores of machine {machine!r} in that time.")
        row = grid.machines.index(machine)
        grid = replace(grid, machines=(machine,), scores=grid.scores[row : row + 1])
    grid = grid.pooled(max_columns)
    form = _preferred(request.headers.get("accept", ""), (JSON, GRID, ARROW))
    body = {GRID: ScoreGrid.encode, ARROW: _arrow, JSON: _json}[form](grid)
    return tagged(request, body, f'W/"{len(body):x}.{zlib.crc32(body):08x}"', form)


@router.get(
    "/jobs/{job:path}/machines/{machine:path}/metrics",
    response_model=SeriesView,
    responses=responses(404, 413),
)
def machine_metrics(
    request: Request,
    services: Using,
    _who: Reader,
    job: JobName,
    machine: MachineName,
    metric: Annotated[list[Name] | None, Query(description="Default: all of the job.")] = None,
    start: Start = None,
    end: End = None,
) -> Response:
    """One machine's metrics and the 10th to 90th percentile of its peers'."""
    start_ns, end_ns = _range(services, job, start, end)
    names = dict.fromkeys(metric or services.history.metrics(job))
    if len(names) > MOST_METRICS:
        raise ProblemError(413, f"At most {MOST_METRICS} metrics at once.")
    series = []
    try:
        for name in names:
            band = services.history.band(job, machine, name, start_ns, end_ns)
            if band is not None:
                series.append(_series(name, services.metric_unit(name), band))
    except TooMuchHistoryError as error:
        raise ProblemError(413, f"That is too much at once ({error}); ask for less time.") from None
    if not series and machine not in (_machines(services, job) or ()):
        raise ProblemError(404, f"Nothing is known of machine {machine!r} in job {job!r}.")
    return answer(request, {"job": job, "machine": machine, "series": series})


def _range(
    services: Services, job: str, start: datetime | None, end: datetime | None
) -> tuple[int, int]:
    if start is None or end is None:
        span = services.history.span(job)
        if span is None and _machines(services, job) is None:
            raise ProblemError(404, f"There is no job {job!r}.")
        newest = span[1] if span else services.database.clock()
    end_ns = nanoseconds_of(end) if end else newest
    start_ns = nanoseconds_of(start) if start else end_ns - DEFAULT_NS
    if start_ns >= end_ns:
        raise ProblemError(422, "query.start: must be before the end")
    if start is not None and end is not None and _machines(services, job) is None:
        raise ProblemError(404, f"There is no job {job!r}.")
    return start_ns, end_ns


def _machines(services: Services, job: str) -> list[str] | None:
    """The job's machines, none yet where it has just begun; None if there is no such job."""
    with services.database.read() as session:
        row = session.get(JobRow, job)
        return list(row.body["machines"]) if row else None


def _series(metric: str, unit: str, band: Band) -> dict[str, Any]:
    return {
        "metric": metric,
        "unit": unit,
        "times_ms": band.times_ns // 1_000_000,
        "value": _finite(band.value),
        "low": _finite(band.low),
        "median": _finite(band.median),
        "high": _finite(band.high),
        "peers": band.peers,
    }


def _finite(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(np.isfinite(values), values, np.float32(np.nan))


def _json(grid: ScoreGrid) -> bytes:
    rounded = np.round(grid.scores.astype(np.float64), 2).astype(np.float32)
    view = {
        "job": grid.job,
        "start": rfc3339(grid.start_ns),
        "step_seconds": grid.step_ns / 1e9,
        "machines": grid.machines,
        "phases": [{"start": rfc3339(at), "phase": name} for at, name in grid.phases],
        "scores": np.ascontiguousarray(rounded),
    }
    return orjson.dumps(view, option=orjson.OPT_SERIALIZE_NUMPY)


def _arrow(grid: ScoreGrid) -> bytes:
    stamps = grid.start_ns + np.arange(grid.scores.shape[1], dtype=np.int64) * grid.step_ns
    columns = {"machine": pa.array(grid.machines, pa.string())}
    columns |= {rfc3339(int(at)): pa.array(grid.scores[:, k]) for k, at in enumerate(stamps)}
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _preferred(accept: str, offered: tuple[str, ...]) -> str:
    """The best of ``offered`` (the first is the default) by the request's preferences."""
    best, best_quality = offered[0], 0.0
    for part in accept.split(","):
        media, *parameters = (p.strip() for p in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        if media in offered and quality > best_quality:
            best, best_quality = media, quality
    return best
