"""Properties: whatever fails and whoever dies, order holds and nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from serve.notice import NoticeKind
from serve.notify.dedup import REASONS, decide
from serve.notify.note import Note, Told
from serve.notify.outbox import backlog
from serve.notify.receiver import Context, Traits
from serve.notify.result import Delivered, GaveUp, Result, Retry
from serve.store.base import Base, Database
from tests.notify_support import (
    FakeReceiver,
    enqueue,
    fake,
    make_dispatcher,
    make_note,
    make_notice,
)
from tests.serve_support import HandClock, memory_database

MACHINES = ("m-1", "m-2", "m-3")


class ProcessKilled(BaseException):
    """Ends a step as a kill would: nothing after it runs."""


@dataclass
class Unreliable(FakeReceiver):
    """Does what the plan says; ``accepted`` is what really reached the other side."""

    plan: list[str] = field(default_factory=list)
    accepted: list[Note] = field(default_factory=list)

    def send(self, note: Note, context: Context) -> Result:
        act = self.plan.pop(0) if self.plan else "take"
        if act in {"take", "die after", "late"}:
            self.accepted.append(note)
        if act.startswith("die"):
            raise ProcessKilled
        if act == "take":
            return Delivered()
        return GaveUp("HTTP 400") if act == "refuse" else Retry(act, whole_receiver=act == "down")


@lru_cache(maxsize=1)
def shared() -> tuple[Database, HandClock]:
    clock = HandClock()
    return memory_database(clock), clock


def clean() -> tuple[Database, HandClock]:
    database, clock = shared()
    with database.write() as session:
        for name in ("outbox_attempts", "outbox", "outbox_lanes", "outbox_receivers"):
            session.execute(Base.metadata.tables[name].delete())
    clock.forward(86_400)
    return database, clock


ACTS = st.sampled_from(["take", "take", "retry", "down", "late", "die before", "die after"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["change", "deliver", "wait"]), st.sampled_from(MACHINES))
)
LIVELY = st.sampled_from(["take", "retry", "down", "refuse"])
LIFE: tuple[NoticeKind, ...] = ("opened", "corrected", "acknowledged", "resolved")


def play(
    pending: Literal["every", "latest"], steps: list[tuple[str, str]], acts: list[str]
) -> tuple[list[Note], list[Note]]:
    """What was enqueued and what reached the receiver, in order."""
    database, clock = clean()
    receiver = Unreliable(fake().settings, Traits(pending=pending, past=True), plan=list(acts))
    sequences = dict.fromkeys(MACHINES, 0)
    written: list[Note] = []

    def deliver(steps: int) -> None:
        # Every delivery is a process of its own, as after a restart.
        dispatcher = make_dispatcher(database, receiver)
        try:
            for _ in range(steps):
                if dispatcher.step("fake") is None:
                    break
        except ProcessKilled:
            clock.forward(0.5)

    for what, machine in steps:
        if what == "change" and sequences[machine] < len(LIFE):
            kind = LIFE[sequences[machine]]
            sequences[machine] += 1
            fields = {"sequence": sequences[machine], "machine": machine, "at_ns": clock()}
            enqueue(database, make_notice(kind, **fields))  # type: ignore[arg-type]
            written.append(make_note(kind, **fields))  # type: ignore[arg-type]
        elif what == "deliver":
            deliver(2)
        else:
            clock.forward(7)
    while left(database):
        deliver(100)
        clock.forward(120)
    return written, receiver.accepted


def left(database: Database) -> int:
    with database.read() as session:
        return sum(entry["pending"] for entry in backlog(session).values())


def of(notes: list[Note], machine: str) -> list[int]:
    return [n.sequence for n in notes if n.key == f"llama-{machine}"]


@settings(max_examples=40, deadline=None)
@given(steps=STEPS, acts=st.lists(ACTS, max_size=12))
def test_where_every_message_counts_all_arrive_in_order(
    steps: list[tuple[str, str]], acts: list[str]
) -> None:
    written, accepted = play("every", steps, acts)
    for machine in MACHINES:
        arrived = of(accepted, machine)
        assert arrived == sorted(arrived)
        assert list(dict.fromkeys(arrived)) == of(written, machine)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS, acts=st.lists(ACTS, max_size=12))
def test_where_the_state_counts_it_never_goes_back_and_the_last_arrives(
    steps: list[tuple[str, str]], acts: list[str]
) -> None:
    written, accepted = play("latest", steps, acts)
    for machine in MACHINES:
        arrived = of(accepted, machine)
        assert arrived == sorted(arrived)
        assert arrived[-1:] == of(written, machine)[-1:]


@settings(max_examples=40, deadline=None)
@given(
    steps=STEPS, acts=st.lists(st.sampled_from(["take", "retry", "down", "refuse"]), max_size=12)
)
def test_without_deaths_and_late_answers_nothing_arrives_twice(
    steps: list[tuple[str, str]], acts: list[str]
) -> None:
    written, accepted = play("every", steps, acts)
    keys = [n.idempotency_key for n in accepted]
    assert len(keys) == len(set(keys))
    assert set(keys) <= {n.idempotency_key for n in written}


TOLD = st.builds(
    Told,
    status=st.sampled_from(["", "open", "acknowledged", "resolved"]),
    sequence=st.integers(0, 5),
)
TRAITS = st.builds(Traits, pending=st.sampled_from(["every", "latest"]), past=st.booleans())


@given(
    kind=st.sampled_from(LIFE),
    sequence=st.integers(1, 5),
    told=TOLD,
    traits=TRAITS,
    send_resolved=st.booleans(),
)
def test_dedup_always_has_a_known_reason_and_never_repeats_a_state(
    kind: NoticeKind, sequence: int, told: Told, traits: Traits, send_resolved: bool
) -> None:
    note = make_note(kind, sequence=sequence)
    decision = decide(note, told, traits, send_resolved=send_resolved)
    assert decision.reason in REASONS
    if traits.pending == "latest" and sequence <= told.sequence:
        assert not decision.send
    if kind != "resolved" and sequence > told.sequence:
        assert decision.send
    assert decide(note, told, traits, send_resolved=send_resolved, repeat=True).send
