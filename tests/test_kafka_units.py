"""The parts of the Kafka source, one by one, without Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError
from prometheus_client import CollectorRegistry, generate_latest
from pydantic import SecretStr, ValidationError

from ingest.assignments import Assignment, Assignments
from ingest.formats.protocol import Decoder
from ingest.samples import Decoded, Rejected, empty_samples
from serve.kafka.alerts_topic import AlertsTopic
from serve.kafka.consumer import told_session_seconds
from serve.kafka.dead_letter import MOST_A_TURN, DeadLetters
from serve.kafka.flood import FloodGate
from serve.kafka.heartbeat import Heartbeat
from serve.kafka.journal import Rerun
from serve.kafka.metrics import EVENTS, KafkaCollector
from serve.kafka.producer import Outgoing, Producer
from serve.kafka.reader import Origins, PartitionReader, offset_of
from serve.kafka.security import (
    KafkaSetupError,
    TokenProvider,
    check_client,
    client_options,
    tls_context,
)
from serve.kafka.settings import KafkaSettings, SaslSettings, TlsSettings
from serve.kafka.topics import ensure_topics, wanted_topics
from serve.source import SourceHealth
from tests.kafka_fakes import FakeProducer, Record
from tests.serve_support import HandClock

# ---------------------------------------------------------------- re-reading


@given(
    cuts=st.lists(st.integers(0, 60), max_size=12).map(sorted),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=30),
)
def test_re_reading_cuts_the_messages_as_they_were_cut(cuts: list[int], sizes: list[int]) -> None:
    end = max(cuts, default=0)
    messages = [Record(offset, None, b"") for offset in range(end + 5)]
    rerun: Rerun[Record] = Rerun(0, [(cut, None) for cut in cuts])
    steps, fresh, at = [], [], 0
    for size in [*sizes, len(messages)]:
        steps += rerun.add(messages[at : at + size])
        at = min(at + size, len(messages))
        if rerun.finished:
            fresh += rerun.rest()
    assert [step.messages[-1].offset + 1 if step.messages else None for step in steps] == [
        cut if cut > before else None for before, cut in zip([0, *cuts], cuts, strict=False)
    ]
    read = [m.offset for step in steps for m in step.messages] + [m.offset for m in fresh]
    assert read == list(range(len(messages)))


def test_re_reading_ends_at_the_partition_s_end_when_messages_are_gone() -> None:
    rerun: Rerun[Record] = Rerun(0, [(5, 1), (9, 2)])
    assert [len(s.messages) for s in rerun.add([Record(k, None, b"") for k in range(5)])] == [5]
    assert rerun.add([]) == []
    assert [(s.messages, s.advanced_ns) for s in rerun.add([], end=True)] == [([], 2)]
    assert rerun.finished


# ---------------------------------------------------------------- floods


def _arrivals(counts: list[tuple[int, bytes, int]]) -> list[Record]:
    found: list[Record] = []
    for second, key, count in counts:
        found += [Record(len(found) + k, key, b"x", second * 1000) for k in range(count)]
    return found


def test_a_key_may_send_its_limit_in_every_second() -> None:
    gate = FloodGate(10)
    messages = _arrivals([(1, b"a", 10), (1, b"b", 10), (2, b"a", 10)])
    assert gate.admit(messages) == (messages, [])


def test_what_a_key_sends_beyond_its_limit_is_refused_and_others_pass() -> None:
    gate = FloodGate(10)
    passed, floods = gate.admit(_arrivals([(1, b"a", 25), (1, b"b", 3)]))
    assert [m.key for m in passed] == [b"a"] * 10 + [b"b"] * 3
    (flood,) = floods
    assert (flood.key, flood.messages, flood.first_offset, flood.last_offset) == (b"a", 15, 10, 24)


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([b"a", b"b"])), max_size=80))
def test_the_flood_limit_does_not_depend_on_the_cut(arrivals: list[tuple[int, bytes]]) -> None:
    messages = _arrivals([(second, key, 1) for second, key in sorted(arrivals)])
    whole, _ = FloodGate(5).admit(messages)
    gate = FloodGate(5)
    parts: list[Record] = []
    for at in range(0, len(messages), 7):
        restored = FloodGate(5)
        restored.restore(orjson.loads(orjson.dumps(gate.snapshot())))
        gate = restored
        parts += gate.admit(messages[at : at + 7])[0]
    assert parts == list(whole)


# ---------------------------------------------------------------- reading


class EchoDecoder:
    """Rejects every message with what it was given."""

    def __init__(self, kind: str):
        self.kind = kind

    def decode(self, messages: Any, origins: Any, received_ns: Any = None) -> Decoded:
        found = zip(messages, origins, received_ns, strict=True)
        rejected = [Rejected(self.kind, f"{o}, row 3", f"{at}") for _, o, at in found]
        return Decoded(empty_samples(), rejected)

    def flush(self) -> Decoded:
        return Decoded(empty_samples(), [Rejected("held_back", self.kind)])


def _reader(**options: Any) -> PartitionReader:
    def make(kind: str, assignments: Assignments) -> Decoder | None:
        del assignments
        return EchoDecoder(kind) if kind in ("json", "arrow") else None

    bounds = {"payload_bytes": 4, "message_bytes": 100, "messages_per_second": 1000}
    limits = bounds | options
    return PartitionReader("telemetry", 3, make, "json", **limits)


def test_the_header_tells_the_format_and_the_topic_s_format_counts_without_one() -> None:
    header = (("trace", b"1"), ("Content-Type", b"arrow"))
    decoded = _reader().read([Record(5, None, b"abcdefg", 7), Record(6, None, b"hij", 8, header)])
    assert [(r.reason, r.origin, r.detail, r.payload) for r in decoded.rejected] == [
        ("json", "telemetry/3/5, row 3", "7000000", b"abcd"),
        ("arrow", "telemetry/3/6, row 3", "8000000", b"hij"),
    ]


def test_a_message_that_is_too_large_is_refused_unread() -> None:
    decoded = _reader().read([Record(5, None, b"x" * 101, 7)])
    assert [(r.reason, r.origin, r.detail, r.payload) for r in decoded.rejected] == [
        ("too_large", "telemetry/3/5", "101 bytes, allowed are 100", b"xxxx")
    ]


def test_invented_content_types_do_not_grow_without_bound() -> None:
    reader = _reader()
    for number in range(500):
        reader.read([Record(number, None, b"x", 0, (("content-type", b"%d" % number),))])
    assert len(reader._decoders) <= 64


def test_a_snapshot_of_reading_holds_the_assignments_and_flushing_empties_the_decoders() -> None:
    reader = _reader()
    reader.assignments.add(Assignment("llama", ("m-1",), 5, 10))
    reader.read([Record(0, b"k", b"x", 1000)])
    assert [r.reason for r in reader.flush().rejected] == ["held_back"]
    other = _reader()
    other.restore(orjson.loads(orjson.dumps(reader.snapshot())))
    assert other.assignments.snapshot() == [("m-1", 5, 10, "llama")]
    assert other.snapshot()["gate"] == reader.snapshot()["gate"]


@pytest.mark.parametrize(
    ("origin", "offset"),
    [("t/1/42", 42), ("t/1/42, row 7", 42), ("t/1/", -1), ("t/1/x", -1), ("t/2/4", -1), ("", -1)],
)
def test_an_origin_tells_its_offset(origin: str, offset: int) -> None:
    assert offset_of(origin, "t/1") == offset


def test_origins_are_a_sequence() -> None:
    origins = Origins("t/1", [4, 6, 9])
    assert list(origins) == ["t/1/4", "t/1/6", "t/1/9"]
    assert list(origins[1:]) == ["t/1/6", "t/1/9"]
    assert (origins[-1], len(origins)) == ("t/1/9", 3)


# ---------------------------------------------------------------- writing


def test_a_producer_is_replaced_after_a_failure() -> None:
    clients = [FakeProducer(fail=1), FakeProducer()]
    opened = iter(clients)
    producer = Producer(KafkaSettings(), lambda: next(opened))
    with pytest.raises(KafkaTimeoutError):
        producer.send("t", [Outgoing(b"k", b"1"), Outgoing(b"k", b"2")])
    assert clients[0].closed
    producer.send("t", [Outgoing(b"k", b"1")])
    assert [message["value"] for _, message in clients[1].sent] == [b"1"]


def test_a_dead_letter_carries_reason_origin_and_what_was_received() -> None:
    client = FakeProducer()
    letters = DeadLetters(Producer(KafkaSettings(), lambda: client), "dead")
    letters.write([Rejected("late", "telemetry/3/9", "too late", b"{}", rows=3)])
    ((topic, message),) = client.sent
    assert (topic, message["value"]) == ("dead", b"{}")
    assert dict(message["headers"]) == {
        "reason": b"late",
        "origin": b"telemetry/3/9",
        "detail": b"too late",
        "rows": b"3",
    }


def test_an_avalanche_of_rejects_is_bounded_and_says_so() -> None:
    client = FakeProducer()
    letters = DeadLetters(Producer(KafkaSettings(), lambda: client), "dead")
    letters.write([Rejected("late", f"t/0/{k}") for k in range(MOST_A_TURN + 5)])
    last = dict(client.sent[-1][1]["headers"])
    assert len(client.sent) == MOST_A_TURN + 1
    assert (last["reason"], last["rows"]) == (b"too_many_rejects", b"5")


def test_a_heartbeat_is_sent_now_and_then_while_turns_are_completed() -> None:
    client, clock = FakeProducer(), HandClock()
    producer = Producer(KafkaSettings(), lambda: client)
    heart = Heartbeat(producer, "beats", "w1", every_seconds=5, now_ns=clock)
    for _ in range(11):
        heart.beat(SourceHealth(lag_seconds=0.5, lag_messages=3))
        clock.forward(1)
    heart.beat(SourceHealth(connected=False))
    bodies = [orjson.loads(message["value"]) for _, message in client.sent]
    assert [body["at"][-13:] for body in bodies] == [
        "22:13:20.000Z",
        "22:13:25.000Z",
        "22:13:30.000Z",
    ]
    assert bodies[0] | {"at": ""} == {
        "worker": "w1",
        "at": "",
        "lag_seconds": 0.5,
        "lag_messages": 3,
    }


def test_a_heartbeat_that_cannot_be_sent_does_not_stop_the_worker() -> None:
    client = FakeProducer(fail=1)
    producer = Producer(KafkaSettings(), lambda: client)
    heart = Heartbeat(producer, "beats", "w1", every_seconds=5, now_ns=HandClock())
    heart.beat(SourceHealth())
    assert client.closed


def test_every_event_is_explained_in_the_docs() -> None:
    page = Path(__file__).parent.parent / "docs" / "kafka.md"
    text = page.read_text()
    assert [event for event in EVENTS if f"`{event}`" not in text] == []


class ListTail:
    """`Tail` for tests."""

    def __init__(self, *news: tuple[str, int]):
        self.waiting = list(news)

    def news(self) -> list[tuple[str, int]]:
        found, self.waiting = self.waiting, []
        return found

    def close(self) -> None:
        pass


def _alert(version: int) -> bytes:
    return orjson.dumps({"id": "a", "version": version})


def test_what_was_published_before_a_crash_is_not_published_again() -> None:
    client = FakeProducer()
    tail = ListTail(("a", 1), ("a", 2))
    topic = AlertsTopic(Producer(KafkaSettings(), lambda: client), tail, "alerts")
    topic.publish([("a", _alert(2)), ("a", _alert(3)), ("b", _alert(1))])
    sent = [(m["key"], orjson.loads(m["value"])["version"]) for _, m in client.sent]
    assert sent == [(b"a", 3), (b"b", 1)]


def test_alerts_without_a_version_are_always_published() -> None:
    client = FakeProducer()
    topic = AlertsTopic(Producer(KafkaSettings(), lambda: client), ListTail(("a", -1)), "alerts")
    topic.publish([("a", b"{}"), ("a", b"not json")])
    assert len(client.sent) == 2


# ---------------------------------------------------------------- metrics


class Observed:
    """A source as the collector sees it."""

    def __init__(self) -> None:
        self.counts = {"takeovers": 3}

    def partitions(self) -> list[dict[str, Any]]:
        one = {"topic": "t", "partition": 1, "lag_messages": 7, "next_offset": 9, "jobs": 2}
        return [one | {"watermark_seconds": None, "up_to_date": True}]


def test_every_event_has_a_series_from_the_start_and_every_partition_its_gauges() -> None:
    registry = CollectorRegistry()
    registry.register(KafkaCollector(Observed()))
    text = generate_latest(registry).decode()
    for event in EVENTS:
        count = 3.0 if event == "takeovers" else 0.0
        assert f'weaklink_kafka_events_total{{event="{event}"}} {count}' in text
    assert 'weaklink_kafka_lag_messages{partition="1",topic="t"} 7.0' in text
    assert 'weaklink_kafka_up_to_date{partition="1",topic="t"} 1.0' in text
    assert "weaklink_kafka_watermark_timestamp_seconds{" not in text


# ---------------------------------------------------------------- topics


class FakeAdmin:
    """`serve.kafka.topics.Admin` with topics in a dict."""

    def __init__(self, present: dict[str, str], refuse: bool = False):
        self.present = present
        self.refuse = refuse
        self.created: dict[str, Any] = {}

    def list_topics(self) -> list[str]:
        return list(self.present)

    def create_topics(self, new_topics: Any, **options: Any) -> None:
        if self.refuse:
            raise TopicAuthorizationFailedError("no")
        self.created |= new_topics

    def describe_configs(self, config_resources: Any, **options: Any) -> Any:
        name = config_resources[0].name
        return {"topic": {name: {"cleanup.policy": {"value": self.present[name]}}}}


def test_missing_topics_are_created_with_settings_that_suit_them() -> None:
    admin = FakeAdmin({"telemetry": "delete"})
    made = ensure_topics(admin, wanted_topics(KafkaSettings()), create=True)
    assert made == ["telemetry.dead-letter", "weaklink.alerts"]
    alerts = admin.created["weaklink.alerts"]
    assert alerts["configs"]["cleanup.policy"] == "compact"
    assert alerts["num_partitions"] == 1
    assert admin.created["telemetry.dead-letter"]["configs"]["cleanup.policy"] == "delete"


@pytest.mark.parametrize(
    ("present", "create", "refuse", "reason"),
    [
        ({}, False, False, "no topic telemetry, telemetry.dead-letter, weaklink.alerts (create"),
        ({}, True, True, "no topic telemetry, and we are not allowed to create it"),
        (
            {"telemetry": "", "telemetry.dead-letter": "", "weaklink.alerts": "delete"},
            True,
            False,
            "weaklink.alerts has cleanup.policy=delete, must be compact",
        ),
    ],
)
def test_a_topic_that_is_not_as_it_must_be_is_named(
    present: dict[str, str], create: bool, refuse: bool, reason: str
) -> None:
    with pytest.raises(KafkaSetupError, match=r"^kafka: ") as caught:
        ensure_topics(FakeAdmin(present, refuse), wanted_topics(KafkaSettings()), create=create)
    assert reason in str(caught.value)


# ---------------------------------------------------------------- settings and security


@pytest.mark.parametrize(
    ("session", "heartbeat", "told"),
    [(15, 1, 13), (15, 3, 9), (7, 1, 6), (6, 1, 6), (3, 1, 3), (7, 3.5, 6)],
)
def test_the_broker_is_told_a_session_that_leaves_time_to_take_over(
    session: float, heartbeat: float, told: float
) -> None:
    settings = KafkaSettings(session_timeout_seconds=session, heartbeat_interval_seconds=heartbeat)
    assert told_session_seconds(settings) == told


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"bootstrap_servers": ""}, "bootstrap_servers is empty"),
        ({"topics": {}}, "at least 1 item"),
        ({"heartbeat_interval_seconds": 10}, "at most half of session_timeout_seconds"),
        ({"alerts_topic": "telemetry"}, "must all differ"),
        ({"instance_id": "not allowed!"}, "should match pattern"),
        ({"compression": "brotli"}, "Input should be"),
        ({"sasl": {"mechanism": "PLAIN"}}, "PLAIN needs username and password"),
        ({"sasl": {"mechanism": "OAUTHBEARER"}}, "needs either token_file or token_url"),
        (
            {"sasl": {"mechanism": "OAUTHBEARER", "token_url": "http://x"}},
            "token_url needs client_id and client_secret",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        KafkaSettings(**fields)


def test_bootstrap_servers_may_be_one_string() -> None:
    assert KafkaSettings.model_validate({"bootstrap_servers": "a:1, b:2"}).bootstrap_servers == (
        "a:1",
        "b:2",
    )


def test_the_client_s_fast_parts_are_in_use() -> None:
    assert check_client() == []


@pytest.mark.parametrize(
    ("module", "name", "package"),
    [
        ("kafka.record.util", "crc32c_c", "crc32c"),
        ("kafka.codec", "zstd", "zstandard"),
        ("kafka.codec", "snappy", "python-snappy"),
    ],
)
def test_a_missing_fast_part_is_named_at_the_start(
    module: str, name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{module}.{name}", None)
    with pytest.raises(KafkaSetupError, match=package):
        check_client()


def test_secrets_reach_the_client_and_no_message() -> None:
    sasl = {"mechanism": "SCRAM-SHA-512", "username": "u", "password": "s3cret"}
    settings = KafkaSettings.model_validate({"sasl": sasl})
    options = client_options(settings)
    assert options["security_protocol"] == "SASL_PLAINTEXT"
    assert options["sasl_plain_password"] == "s3cret"
    assert "s3cret" not in repr(settings)


def test_a_certificate_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(KafkaSetupError, match=r"kafka\.tls\.ca_file /nowhere: No such file"):
        tls_context(TlsSettings(ca_file=Path("/nowhere")))
    with pytest.raises(KafkaSetupError, match=r"kafka\.tls\.certificate_file /nowhere"):
        tls_context(TlsSettings(certificate_file=Path("/nowhere")))


def _oauth(answers: list[httpx.Response], now: list[float]) -> TokenProvider:
    sasl = SaslSettings(
        mechanism="OAUTHBEARER",
        token_url="https://id/token",
        client_id="me",
        client_secret=SecretStr("s3cret"),
    )
    request = httpx.Request("POST", sasl.token_url)

    def post(url: str, **fields: Any) -> httpx.Response:
        assert fields["auth"] == ("me", "s3cret")
        assert fields["data"] == {"grant_type": "client_credentials"}
        answer = answers.pop(0)
        answer.request = request
        return answer

    return TokenProvider(sasl, now_seconds=lambda: now[0], post=post)


def test_a_token_is_asked_for_again_before_it_expires() -> None:
    now = [0.0]
    tokens = [
        httpx.Response(200, json={"access_token": name, "expires_in": 100}) for name in ("a", "b")
    ]
    provider = _oauth(tokens, now)
    assert provider.token() == "a"
    now[0] = 79.0
    assert provider.token() == "a"
    now[0] = 81.0
    assert provider.token() == "b"


def test_a_token_that_is_refused_is_told_without_the_secret() -> None:
    provider = _oauth([httpx.Response(401, json={})], [0.0])
    with pytest.raises(KafkaSetupError, match="401") as caught:
        provider.token()
    assert "s3cret" not in str(caught.value)
