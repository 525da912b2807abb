"""Publishing a recording, without Kafka: what is sent, when, and what goes wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kafka.errors import KafkaTimeoutError

from ingest.catalogue import Catalogue
from ingest.formats.protocol import Context, Decoder
from ingest.formats.registry import format_of, make_decoder
from ingest.recording import RecordingError, read_recording
from serve.kafka.outflow import Dirt, Form, letters, span_ns
from serve.kafka.publish import Published, PublishOptions, publish
from serve.kafka.security import KafkaSetupError
from serve.kafka.settings import KafkaSettings
from tests.serve_support import SECOND, START_NS, HandClock

CATALOGUE = Catalogue.default()


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Two jobs, three machines, 20 s, in two parts and in no order; a raw exporter's names."""
    folder = tmp_path / "incident"
    folder.mkdir()
    rng = np.random.default_rng(3)
    rows = [
        {
            "ts": START_NS + second * SECOND,
            "job": job,
            "machine": f"{job}-{machine}",
            "gpu": machine if machine else None,
            "DCGM_FI_DEV_POWER_USAGE": float(rng.integers(100, 300)),
            "node_disk_read_bytes_total": None if machine == 2 else second * 1000.0,
        }
        for job in ("llama", "qwen")
        for second in range(20)
        for machine in range(3)
    ]
    rows = [rows[k] for k in rng.permutation(len(rows))]
    for number, part in enumerate((rows[:50], rows[50:])):
        table = pa.Table.from_pylist(part)
        ts = table["ts"].cast(pa.timestamp("ns", tz="UTC"))
        table = table.set_column(0, "ts", ts)
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=20)
    return folder


def _decoded(folder: Path, form: Form, **options: Any) -> pa.Table:
    """What the service would read of the messages, in one order."""
    decoders: dict[str, Decoder] = {}
    tables = []
    for letter in letters(folder, form=form, **options):
        kind = format_of(letter.content_type.decode())
        assert kind is not None
        decoder = decoders.setdefault(kind, make_decoder(kind, Context(CATALOGUE)))
        done = decoder.decode([letter.value], ["x"])
        assert not done.rejected
        tables.append(done.samples)
    return _sorted(pa.concat_tables(tables, promote_options="default"))


def _sorted(table: pa.Table) -> pa.Table:
    table = table.select(sorted(table.column_names)).combine_chunks()
    keys = [(n, "ascending") for n in ("job", "ts", "machine", "gpu_power_watts")]
    return table.sort_by(keys).unify_dictionaries()


@pytest.mark.parametrize("form", ["json", "json-array", "arrow"])
@pytest.mark.parametrize("disorder", [0.0, 7.0])
def test_what_is_sent_reads_as_what_was_recorded(
    recording: Path, form: Form, disorder: float
) -> None:
    batches = [b.samples for b in read_recording(recording, CATALOGUE).batches()]
    expected = _sorted(pa.concat_tables(batches, promote_options="default"))
    found = _decoded(recording, form, dirt=Dirt(disorder_seconds=disorder, seed=5))
    assert found.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize(("form", "messages"), [("json", 120), ("json-array", 80), ("arrow", 80)])
def test_a_message_holds_rows_of_one_job_and_second(
    recording: Path, form: Form, messages: int
) -> None:
    sent = list(letters(recording, form=form, rows_per_message=2))
    assert len(sent) == messages
    assert sum(letter.rows for letter in sent) == 120
    assert {letter.key for letter in sent} == {b"llama", b"qwen"}


def test_messages_leave_in_the_order_of_time_unless_disorder_is_wanted(recording: Path) -> None:
    def stamps(dirt: Dirt) -> list[int]:
        return [orjson.loads(letter.value)["ts"] for letter in letters(recording, dirt=dirt)]

    assert stamps(Dirt()) == sorted(stamps(Dirt()))
    mixed = stamps(Dirt(disorder_seconds=5, seed=1))
    assert mixed != sorted(mixed)
    assert sorted(mixed) == stamps(Dirt())
    late = [before - now for before, now in zip(np.maximum.accumulate(mixed), mixed, strict=True)]
    assert max(late) <= 5000


def test_the_same_seed_makes_the_same_trouble(recording: Path) -> None:
    dirt = Dirt(disorder_seconds=3, duplicates=0.2, poison=0.2, seed=9)
    one, two = (list(letters(recording, dirt=dirt)) for _ in range(2))
    assert one == two
    assert [letter.value for letter in one] == [letter.value for letter in two]
    other = letters(recording, dirt=Dirt(3, 0.2, 0.2, seed=10))
    assert [letter.value for letter in one] != [letter.value for letter in other]


def test_duplicates_and_poison_come_on_top_of_the_rows(recording: Path) -> None:
    sent = list(letters(recording, dirt=Dirt(duplicates=0.25, poison=0.1, seed=4)))
    poison = [letter for letter in sent if letter.poison]
    good = [letter.value for letter in sent if not letter.poison]
    assert 5 <= len(poison) <= 20
    assert 15 <= len(good) - 120 <= 45
    assert len(set(good)) == 120


def test_every_poison_message_is_refused_as_a_whole(recording: Path) -> None:
    poison = [x for x in letters(recording, dirt=Dirt(poison=1.0, seed=2)) if x.poison]
    assert len(poison) == 120
    for letter in poison:
        kind = format_of(letter.content_type.decode())
        if kind is not None:
            done = make_decoder(kind, Context(CATALOGUE)).decode([letter.value], ["x"])
            assert done.samples.num_rows == 0
            assert len(done.rejected) == 1


@dataclass
class FakeWire:
    """`serve.kafka.publish.Wire`: what was sent, and when."""

    clock: HandClock
    sent: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    refuse: bool = False
    closed: bool = False

    def send(self, topic: str, **message: Any) -> FakeWire:
        assert topic == "telemetry"
        self.sent.append((self.clock.now_ns, message["key"], message["value"]))
        return self

    def add_errback(self, tell: Callable[[BaseException], None]) -> None:
        if self.refuse:
            tell(KafkaTimeoutError("no acknowledgement"))

    def flush(self, timeout: float | None = None) -> None:
        pass

    def close(self, timeout: float | None = None) -> None:
        self.closed = True
        if self.refuse:  # as the real one does with messages that it could not send
            raise KafkaTimeoutError("not all is sent")


def _publish(folder: Path, clock: HandClock, wire: FakeWire, **options: Any) -> Published:
    return publish(
        folder,
        KafkaSettings(),
        "telemetry",
        PublishOptions(**options),
        now_ns=clock,
        sleep=clock.forward,
        open_wire=lambda _settings, _topic: wire,
    )


def test_at_speed_one_every_time_stamp_is_now_when_it_is_sent(recording: Path) -> None:
    clock = HandClock(START_NS + 400 * 86_400 * SECOND)
    wire = FakeWire(clock)
    done = _publish(recording, clock, wire)
    assert done == Published(messages=120, rows=120, poison=0)
    assert wire.closed
    apart = {orjson.loads(v)["ts"] - at // 1_000_000 for at, _, v in wire.sent}
    assert all(abs(difference) <= 2 for difference in apart)


def test_at_a_higher_speed_the_last_time_stamp_is_now_when_it_is_sent(recording: Path) -> None:
    clock = HandClock(START_NS + 400 * 86_400 * SECOND)
    wire = FakeWire(clock)
    begun = clock.now_ns
    _publish(recording, clock, wire, speed=10)
    assert clock.now_ns - begun == pytest.approx(1.9 * SECOND, rel=1e-3)
    at, _, value = wire.sent[-1]
    assert abs(orjson.loads(value)["ts"] - at // 1_000_000) <= 2


def test_recorded_times_and_names_can_be_kept_or_replaced(recording: Path) -> None:
    clock = HandClock()
    wire = FakeWire(clock)
    _publish(recording, clock, wire, speed=0, keep_times=True, job="copy-7")
    rows = [orjson.loads(value) for _, _, value in wire.sent]
    assert rows[0]["ts"] == START_NS // 1_000_000
    assert {row["job"] for row in rows} == {"copy-7"}
    assert {key for _, key, _ in wire.sent} == {b"copy-7"}


def test_a_message_that_was_not_taken_ends_it_with_one_line(recording: Path) -> None:
    clock = HandClock()
    with pytest.raises(KafkaSetupError, match=r"telemetry: .*no acknowledgement"):
        _publish(recording, clock, FakeWire(clock, refuse=True), speed=0)


def test_a_folder_that_is_no_recording_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=str(tmp_path)):
        span_ns(tmp_path)


def test_times_that_milliseconds_cannot_hold_are_sent_as_text(tmp_path: Path) -> None:
    table = pa.table(
        {
            "ts": pa.array([START_NS + 123_456_789], pa.timestamp("ns", tz="UTC")),
            "job": ["a"],
            "machine": ["m"],
            "x": [1.0],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    (letter,) = letters(tmp_path)
    row = orjson.loads(letter.value)
    assert row == {"ts": "2023-11-14T22:13:20.123456789Z", "job": "a", "machine": "m", "x": 1.0}
