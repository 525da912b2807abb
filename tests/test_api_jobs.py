"""Jobs, scores, metrics and pushed telemetry over HTTP."""

from __future__ import annotations

import gzip
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
import zstandard

from ingest.catalogue import Catalogue
from ingest.rules import Rules
from replay.view.grid import MEDIA_TYPE, decode_grid
from serve.decoding import FormatDecoder
from serve.metrics import Metrics
from serve.source import PushSource
from serve.store.history import HistoryStore
from serve.store.tables import JobRow
from serve.worker import Worker
from tests.api_support import Api
from tests.serve_support import SECOND, START_NS, ListSource, make_worker, rows

START = datetime.fromtimestamp(START_NS // SECOND, UTC)


def _at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


@pytest.fixture
def api() -> Api:
    """A job of five machines has run for 60 s; m-2 is slow from the 30th on."""
    api = Api()
    api.clock.forward(70)
    source = ListSource(
        rows(machines=5), rows(machines=5, start=30, low="m-2"), rows(job="team/other", machines=3)
    )
    worker = make_worker(source, api.clock, database=api.database)
    for _ in range(3):
        worker.step(0)
        api.clock.forward(1)
    api.clock.forward(9)
    worker.step(0)
    api.services.history = HistoryStore(api.database, worker)
    api.services.metric_unit = lambda metric: Catalogue.default().metric(metric).unit
    return api


def test_jobs_are_listed_with_machines_phase_state_and_lag(api: Api) -> None:
    other, job = sorted(api.get("jobs").json()["items"], key=lambda j: -len(j["job"]))
    assert (job["job"], job["machines"], job["phase"]) == ("llama", 5, "steady")
    assert job["state"] == "running"
    assert 10 < job["lag_seconds"] < 60
    assert other["job"] == "team/other"


def test_a_job_whose_name_holds_a_slash_is_found(api: Api) -> None:
    for path in ("jobs/team%2Fother", "jobs/team/other"):
        detail = api.get(path).json()
        assert detail["machines"] == ["m-0", "m-1", "m-2"]
    assert api.get("jobs/team%2Fother/scores").json()["job"] == "team/other"


def test_a_job_tells_its_metrics_and_the_time_of_its_history(api: Api) -> None:
    detail = api.get("jobs/llama").json()
    assert detail["metrics"] == ["gpu_power_watts"]
    assert detail["tick_seconds"] == 1.0
    assert detail["history_start"] == "2023-11-14T22:13:20.000Z"
    assert detail["history_end"] > _at(50)[:19]


def test_a_job_without_machines_yet_has_empty_scores(api: Api) -> None:
    with api.database.write() as session:
        row = session.get_one(JobRow, "llama")
        body = row.body | {"machines": [], "watermark_ns": 0}
        session.add(JobRow(job="young", worker="w", body=body, updated_at_ns=api.clock()))
    assert api.get("jobs/young").status_code == 200
    for query in ({}, {"start": _at(0), "end": _at(60)}):
        answer = api.get("jobs/young/scores", params=query)
        assert (answer.status_code, answer.json()["machines"]) == (200, [])
    answer = api.get("jobs/young/machines/m/metrics")
    assert "machine 'm'" in answer.json()["detail"]


def test_a_job_not_heard_of_is_unattended(api: Api) -> None:
    api.clock.forward(120)
    assert api.get("jobs/llama").json()["state"] == "unattended"


def test_an_unknown_job_is_not_found(api: Api) -> None:
    for path in ("jobs/nothing", "jobs/nothing/scores", "jobs/nothing/machines/m/metrics"):
        assert api.get(path).status_code == 404
    wide = {"start": _at(0), "end": _at(10)}
    assert api.get("jobs/nothing/scores", params=wide).status_code == 404


def test_scores_come_as_json_with_the_faulty_machine_evident(api: Api) -> None:
    view = api.get("jobs/llama/scores").json()
    assert view["machines"] == [f"m-{k}" for k in range(5)]
    scores = np.array(view["scores"], float)
    assert scores.shape[0] == 5
    assert np.nanmax(scores[2]) == pytest.approx(1.2)
    assert np.nanmax(np.delete(scores, 2, axis=0)) == pytest.approx(0.1)
    assert view["step_seconds"] == 1.0
    assert view["phases"][0]["phase"] == "steady"


@pytest.mark.parametrize("form", [MEDIA_TYPE, "application/vnd.apache.arrow.stream"])
def test_scores_in_every_form_say_the_same(api: Api, form: str) -> None:
    window = {"start": _at(5), "end": _at(45)}
    plain = np.array(api.get("jobs/llama/scores", params=window).json()["scores"], float)
    answer = api.get("jobs/llama/scores", params=window, headers={"Accept": form})
    assert answer.headers["content-type"] == form
    if form == MEDIA_TYPE:
        grid = decode_grid(answer.content)
        assert grid.start_ns == START_NS + 5 * SECOND
        scores = grid.scores
    else:
        table = pa.ipc.open_stream(answer.content).read_all()
        assert table["machine"].to_pylist() == [f"m-{k}" for k in range(5)]
        scores = np.array([table[k].to_numpy() for k in range(1, table.num_columns)]).T
    np.testing.assert_allclose(scores, plain, atol=0.006)
    assert plain.shape == (5, 40)


def test_the_best_accepted_form_is_sent(api: Api) -> None:
    accept = f"application/json;q=0.1, {MEDIA_TYPE};q=0.9, text/html"
    answer = api.get("jobs/llama/scores", headers={"Accept": accept})
    assert answer.headers["content-type"] == MEDIA_TYPE
    anything = api.get("jobs/llama/scores", headers={"Accept": "*/*"})
    assert anything.headers["content-type"] == "application/json"


def test_pooled_columns_keep_the_worst(api: Api) -> None:
    grid = api.get("jobs/llama/scores?max_columns=4").json()
    assert len(grid["scores"][0]) <= 4
    assert max(v for v in grid["scores"][2] if v is not None) == pytest.approx(1.2)


def test_scores_of_one_machine_come_alone(api: Api) -> None:
    assert api.get("jobs/llama/scores?machine=m-2").json()["machines"] == ["m-2"]
    assert api.get("jobs/llama/scores?machine=m-9").status_code == 404


def test_a_time_without_scores_is_empty_and_no_error(api: Api) -> None:
    view = api.get("jobs/llama/scores", params={"start": _at(-7200), "end": _at(-3600)}).json()
    assert (view["machines"], view["scores"]) == ([], [])


def test_an_empty_or_reversed_range_is_refused(api: Api) -> None:
    for start, end in ((10, 10), (20, 10)):
        answer = api.get("jobs/llama/scores", params={"start": _at(start), "end": _at(end)})
        assert answer.status_code == 422


def test_too_much_at_once_is_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.store.history.MAX_CELLS", 10)
    assert api.get("jobs/llama/scores").status_code == 413
    assert api.get("jobs/llama/machines/m-1/metrics").status_code == 413


def test_the_same_scores_are_not_sent_twice(api: Api) -> None:
    window = {"start": _at(5), "end": _at(20)}
    first = api.get("jobs/llama/scores", params=window)
    tag = {"If-None-Match": first.headers["etag"]}
    assert api.get("jobs/llama/scores", params=window, headers=tag).status_code == 304


def test_a_machine_is_shown_against_its_peers(api: Api) -> None:
    view = api.get("jobs/llama/machines/m-2/metrics?metric=gpu_power_watts").json()
    (series,) = view["series"]
    assert series["unit"] == "W"
    lengths = {len(series[k]) for k in ("times_ms", "value", "low", "median", "high", "peers")}
    assert len(lengths) == 1
    late = series["times_ms"].index(START_NS // 1_000_000 + 40_000)
    assert series["value"][late] == pytest.approx(20, rel=1e-3)
    assert series["median"][late] == pytest.approx(300, rel=1e-3)
    assert series["peers"][late] == 4


def test_a_metric_nobody_measured_is_left_out(api: Api) -> None:
    view = api.get("jobs/llama/machines/m-2/metrics?metric=nonsense").json()
    assert view["series"] == []
    assert api.get("jobs/llama/machines/nobody/metrics").status_code == 404


def test_jobs_come_in_pages(api: Api) -> None:
    first = api.get("jobs?limit=1").json()
    second = api.get("jobs", params={"limit": 1, "cursor": first["next_cursor"]}).json()
    assert [j["job"] for j in first["items"] + second["items"]] == ["llama", "team/other"]
    assert second["next_cursor"] is None


class Taking(Api):
    """An API that takes pushes."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.source = PushSource(limit_rows=1000)
        self.services.push = self.source
        self.services.decoder = FormatDecoder(Catalogue.default(), Rules(), {})

    def push(self, body: bytes, kind: str = "application/json", **headers: str) -> Any:
        """POST telemetry."""
        return self.ask("POST", "telemetry", content=body, headers={"Content-Type": kind} | headers)


def _rows(count: int = 3) -> bytes:
    made = [
        {
            "ts": START_NS // 1_000_000 + k * 1000,
            "job": "llama",
            "machine": "m-1",
            "gpu_power_watts": 300.0,
        }
        for k in range(count)
    ]
    return orjson.dumps(made)


def test_pushed_rows_reach_the_worker() -> None:
    api = Taking()
    answer = api.push(_rows())
    assert (answer.status_code, answer.json()["rows"]) == (202, 3)
    assert api.source.poll(0).decoded.samples["machine"].to_pylist() == ["m-1"] * 3


def test_pushed_arrow_reaches_the_worker() -> None:
    api = Taking()
    table = rows(ticks=2)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    answer = api.push(body, "application/vnd.apache.arrow.stream")
    assert (answer.status_code, answer.json()["rows"]) == (202, 8)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_a_compressed_body_is_understood(encoding: str) -> None:
    packed = {
        "gzip": gzip.compress(_rows()),
        "deflate": zlib.compress(_rows()),
        "zstd": zstandard.compress(_rows()),
    }
    answer = Taking().push(packed[encoding], **{"Content-Encoding": encoding})
    assert answer.json()["rows"] == 3


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "br"])
def test_a_damaged_or_unknown_compression_is_refused(encoding: str) -> None:
    answer = Taking().push(b"not compressed", **{"Content-Encoding": encoding})
    assert answer.status_code == 415
    cut = {"gzip": gzip.compress(_rows(50))[:60]}.get(encoding)
    if cut is not None:
        assert Taking().push(cut, **{"Content-Encoding": encoding}).status_code == 415


def test_a_small_body_that_unpacks_to_a_huge_one_is_refused() -> None:
    api = Taking(http={"body_limit_bytes": 100_000})
    bomb = gzip.compress(b"[" + b" " * 5_000_000 + b"]")
    assert len(bomb) < 10_000
    assert api.push(bomb, **{"Content-Encoding": "gzip"}).status_code == 413


def test_a_body_beyond_the_limit_is_refused_with_and_without_its_length() -> None:
    api = Taking(http={"body_limit_bytes": 100_000})
    assert api.push(b" " * 100_001).status_code == 413

    async def pieces() -> Any:
        for _ in range(3):
            yield b" " * 50_000

    streamed = api.ask("POST", "telemetry", content=pieces())
    assert streamed.status_code == 413
    assert streamed.headers["content-type"] == "application/problem+json"


def test_an_unknown_format_is_refused_and_the_known_ones_named() -> None:
    answer = Taking().push(_rows(), "application/x-protobuf")
    assert answer.status_code == 415
    assert "application/vnd.apache.arrow.stream" in answer.json()["detail"]


def test_the_usable_part_is_taken_and_the_rest_told() -> None:
    api = Taking()
    good = orjson.loads(_rows(2))
    answer = api.push(orjson.dumps([*good, {"machine": "m-1", "gpu_power_watts": 1}]))
    assert (answer.status_code, answer.json()["rows"]) == (202, 2)
    assert answer.json()["rejected"] == 1
    assert answer.json()["examples"][0]["reason"]


def test_rows_and_values_that_are_lost_are_counted() -> None:
    api = Taking()
    row = orjson.loads(_rows(1))[0]
    lost = [{"gpu_power_watts": 1}] * 1500
    told = api.push(orjson.dumps([row, row | {"gpu_power_watts": "a lot"}, *lost])).json()
    assert (told["rows"], told["rejected"], told["lost_values"]) == (2, 1500, {"non_numeric": 1})


@pytest.mark.parametrize("body", [b"{nonsense", b"\xff\xfe", b'[{"a": 1}]', b"null"])
def test_what_cannot_be_used_at_all_is_a_problem_and_still_counted(body: bytes) -> None:
    api = Taking()
    answer = api.push(body)
    assert answer.status_code == 422
    assert answer.json()["errors"]
    assert api.source.poll(0).decoded.rejected


def test_a_full_queue_says_when_to_come_again() -> None:
    api = Taking()
    api.push(_rows(900))
    answer = api.push(_rows(200))
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0
    assert api.source.waiting_rows == 900


def test_a_process_without_a_push_source_says_so() -> None:
    answer = Api().post("telemetry", [])
    assert answer.status_code == 409


def test_a_pushed_fault_becomes_an_alert() -> None:
    api = Taking()
    api.clock.forward(70)
    worker: Worker = make_worker(api.source, api.clock, database=api.database, metrics=Metrics())
    table = rows(low="m-2", ticks=40).to_pylist()
    body = orjson.dumps([r | {"ts": r["ts"].isoformat()} for r in table])
    assert api.push(body).status_code == 202
    worker.step(0)
    assert [a["machine"] for a in api.get("alerts").json()["items"]] == ["m-2"]
