"""The life of an alert, told by hand-moved time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from detect.alert import Alert, AlertChange
from serve.config import AlertSettings
from serve.lifecycle import AlertOverError, Applied, Lifecycle, NoSuchAlertError, find_alert
from serve.links import Links
from serve.silences import NewSilence, add_silence, end_silence
from serve.store.codec import alert_from_row, alert_json
from serve.store.events import events_after
from serve.store.tables import AlertRow, FeedbackRow, OffenderRow, SilenceRow
from tests.serve_support import SECOND, START_NS, HandClock, change, make_alert, memory_database


class Desk:
    """A database, a life cycle and a clock, with short words for the tests."""

    def __init__(self, settings: AlertSettings | None = None) -> None:
        self.clock = HandClock()
        self.database = memory_database(self.clock)
        self.life = Lifecycle(settings or AlertSettings(), Links("http://wl"))
        self.told: list[tuple[str, str]] = []

    def see(self, *changes: AlertChange) -> Applied:
        with self.database.write() as session:
            return self._keep(self.life.apply(session, changes, now_ns=self.clock()))

    def wait(self, seconds: float, watermarks: dict[str, int] | None = None) -> Applied:
        self.clock.forward(seconds)
        with self.database.write() as session:
            return self._keep(
                self.life.pass_time(session, now_ns=self.clock(), watermarks=watermarks)
            )

    def _keep(self, applied: Applied) -> Applied:
        self.told += [(n.kind, n.key) for n in applied.notices]
        return applied

    def row(self, alert_id: str = "llama-m-3") -> AlertRow:
        with self.database.read() as session:
            return find_alert(session, alert_id)

    def offences(self) -> dict[str, int]:
        with self.database.read() as session:
            return {r.machine: r.incidents for r in session.scalars(select(OffenderRow))}

    def later(self, kind: str, seconds: float, alert: Alert | None = None) -> AlertChange:
        return change(kind, alert or make_alert(), START_NS + round(seconds * SECOND))


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_an_opened_alert_is_stored_and_paged_once(desk: Desk) -> None:
    applied = desk.see(change("opened", make_alert()))
    assert desk.told == [("opened", "llama-m-3")]
    assert applied.decisions == {"page": 1}
    assert (desk.row().status, desk.row().page_reason) == ("open", "page")
    desk.wait(60)
    assert len(desk.told) == 1


def test_the_notice_says_what_where_and_why(desk: Desk) -> None:
    (notice,) = desk.see(change("opened", make_alert())).notices
    assert notice.title == "m-3 is slow in job llama"
    assert "tensor activity 0.02, peers 0.55" in notice.text
    assert notice.links["page"] == "http://wl/alerts/llama-m-3"
    assert notice.idempotency_key == "llama-m-3:1"


def test_applying_the_same_changes_again_changes_nothing(desk: Desk) -> None:
    stronger = replace(make_alert(), score=6.0)
    changes = [
        change("opened", make_alert()),
        change("updated", stronger),
        desk.later("updated", 5, replace(make_alert(), score=7.0)),
        desk.later("resolved", 9),
    ]
    desk.see(*changes)
    with desk.database.read() as session:
        before = alert_json(find_alert(session, "llama-m-3"), desk.life.links)
        events = len(events_after(session, 0))
    applied = desk.see(*changes)
    with desk.database.read() as session:
        assert alert_json(find_alert(session, "llama-m-3"), desk.life.links) == before
        assert len(events_after(session, 0)) == events
    assert applied.decisions == {"replayed": 4}
    assert applied.notices == []


def test_two_changes_of_one_tick_are_both_applied(desk: Desk) -> None:
    desk.see(change("opened", make_alert()), change("updated", replace(make_alert(), score=9.0)))
    assert alert_from_row(desk.row()).score == 9.0


def test_the_alert_comes_back_from_the_database_as_it_went_in(desk: Desk) -> None:
    alert = make_alert(gpu=3, shared="leaf-2", note="x")
    desk.see(change("opened", alert))
    assert alert_from_row(desk.row()) == alert


def test_growing_evidence_updates_without_a_message(desk: Desk) -> None:
    desk.see(change("opened", make_alert()))
    applied = desk.see(desk.later("updated", 5, replace(make_alert(), score=8.0)))
    assert applied.events == {"alert.updated": 1}
    assert applied.notices == []


def test_a_corrected_machine_is_told_after_the_verdict_has_settled(desk: Desk) -> None:
    desk.see(change("opened", make_alert()))
    other = replace(make_alert(), machine="m-5", machines=("m-5",))
    assert desk.see(desk.later("updated", 5, other)).events == {"alert.corrected": 1}
    assert desk.told == [("opened", "llama-m-3")]
    (notice,) = desk.wait(31).notices
    assert (notice.kind, notice.key, notice.machines) == ("corrected", "llama-m-3", ("m-5",))
    assert "Told before: m-3" in notice.text
    assert desk.wait(31).notices == []


def test_a_correction_that_goes_back_says_nothing(desk: Desk) -> None:
    desk.see(change("opened", make_alert()))
    desk.see(desk.later("updated", 5, replace(make_alert(), machine="m-5", machines=("m-5",))))
    desk.see(desk.later("updated", 6))
    assert desk.wait(60).notices == []


def test_the_end_is_told_after_the_hold_time(desk: Desk) -> None:
    desk.see(change("opened", make_alert()))
    desk.see(desk.later("resolved", 60))
    assert desk.row().status == "resolved"
    assert desk.wait(119).notices == []
    (notice,) = desk.wait(1).notices
    assert (notice.kind, notice.resolves, notice.sequence) == ("resolved", True, 2)
    assert desk.wait(600).notices == []


def test_flapping_within_the_hold_time_says_nothing(desk: Desk) -> None:
    desk.see(change("opened", make_alert()))
    for k in range(5):
        desk.see(desk.later("resolved", 60 + 20 * k))
        desk.wait(10)
        desk.see(desk.later("opened", 70 + 20 * k))
        desk.wait(10)
    assert desk.told == [("opened", "llama-m-3")]
    assert desk.row().status == "open"


def test_what_comes_back_after_its_end_was_told_pages_under_a_new_key(desk: Desk) -> None:
    desk.see(change("opened", make_alert()))
    desk.see(desk.later("resolved", 10))
    desk.wait(200)
    desk.see(desk.later("opened", 200))
    assert desk.told == [
        ("opened", "llama-m-3"),
        ("resolved", "llama-m-3"),
        ("reopened", "llama-m-3.2"),
    ]
    assert desk.row().episode == 2


def test_an_acknowledged_alert_that_flaps_stays_acknowledged(desk: Desk) -> None:
    desk.see(change("opened", make_alert()))
    with desk.database.write() as session:
        desk.life.acknowledge(session, "llama-m-3", by="ann", now_ns=desk.clock())
    desk.see(desk.later("resolved", 10), desk.later("opened", 20))
    assert desk.row().status == "acknowledged"


def test_the_same_machine_under_a_new_id_is_the_same_incident(desk: Desk) -> None:
    desk.see(change("opened", make_alert()))
    desk.see(desk.later("opened", 30, make_alert(id="after-restart")))
    desk.see(desk.later("updated", 31, make_alert(id="after-restart", score=9.0)))
    assert desk.told == [("opened", "llama-m-3")]
    assert desk.row("after-restart").id == "llama-m-3"
    assert alert_from_row(desk.row()).score == 9.0


def test_the_same_machine_long_after_its_end_is_another_incident(desk: Desk) -> None:
    desk.see(change("opened", make_alert()))
    desk.see(desk.later("resolved", 10))
    desk.clock.forward(3600)
    desk.see(desk.later("opened", 3600, make_alert(id="second")))
    assert desk.row("second").id == "second"


def test_another_job_on_the_same_machine_is_another_incident(desk: Desk) -> None:
    desk.see(change("opened", make_alert()), change("opened", make_alert(job="opt")))
    assert [key for _, key in desk.told] == ["llama-m-3", "opt-m-3"]


def test_time_alone_never_resolves(desk: Desk) -> None:
    desk.see(change("opened", make_alert()))
    desk.wait(30 * 86_400)
    assert desk.row().status == "open"


def test_an_old_alert_does_not_page_while_catching_up(desk: Desk) -> None:
    desk.clock.forward(7200)
    applied = desk.see(change("opened", make_alert()), desk.later("resolved", 60))
    assert applied.notices == []
    assert desk.wait(10, {"llama": desk.clock()}).notices == []
    assert desk.row().page_reason == "stale"


def test_an_old_alert_that_is_still_open_when_caught_up_pages(desk: Desk) -> None:
    desk.clock.forward(7200)
    desk.see(change("opened", make_alert()))
    assert desk.wait(10).notices == []
    desk.wait(1, {"llama": desk.clock()})
    assert desk.told == [("opened", "llama-m-3")]


def test_an_alert_that_does_not_page_is_stored_and_silent(desk: Desk) -> None:
    applied = desk.see(change("opened", make_alert(pages=False)))
    assert applied.decisions == {"not_paging": 1}
    assert desk.wait(60).notices == []
    assert desk.row().status == "open"


def test_a_shadow_job_is_recorded_and_not_sent() -> None:
    desk = Desk(AlertSettings(shadow_jobs=("lla*",)))
    assert desk.see(change("opened", make_alert())).decisions == {"shadow": 1}
    assert desk.row().page_reason == "shadow"


def _silence(desk: Desk, seconds: float, **fields: str) -> str:
    new = {"kind": "silence", "job": "*", "machine": "m-*", "comment": "", "created_by": "ann"}
    with desk.database.write() as session:
        row = add_silence(
            session,
            NewSilence(
                starts_at_ns=desk.clock(),
                ends_at_ns=desk.clock() + round(seconds * SECOND),
                **(new | fields),  # type: ignore[arg-type]
            ),
            now_ns=desk.clock(),
        )
        return row.id


def test_a_silenced_alert_pages_when_the_silence_ends_and_it_is_still_open(desk: Desk) -> None:
    _silence(desk, 100)
    assert desk.see(change("opened", make_alert())).decisions == {"silence": 1}
    assert desk.wait(99).notices == []
    desk.wait(2)
    assert desk.told == [("opened", "llama-m-3")]


def test_a_deleted_silence_ends_at_once(desk: Desk) -> None:
    silence = _silence(desk, 1000, kind="maintenance")
    assert desk.see(change("opened", make_alert())).decisions == {"maintenance": 1}
    with desk.database.write() as session:
        end_silence(session, session.get_one(SilenceRow, silence), now_ns=desk.clock(), by="ann")
    assert len(desk.wait(1).notices) == 1


def test_a_silence_of_one_machine_does_not_hide_a_group_with_another(desk: Desk) -> None:
    _silence(desk, 100, machine="m-3")
    group = make_alert(verdict="group", machine=None, machines=("m-3", "m-4"))
    assert desk.see(change("opened", group)).decisions == {"page": 1}


def test_a_silence_of_another_job_does_not_hide(desk: Desk) -> None:
    _silence(desk, 100, job="opt*")
    assert desk.see(change("opened", make_alert())).decisions == {"page": 1}


def test_a_machine_silence_does_not_hide_an_alert_without_machines(desk: Desk) -> None:
    _silence(desk, 100)
    assert desk.see(change("opened", make_alert(None))).decisions == {"page": 1}


def test_many_alerts_of_one_job_become_one_message_with_their_count(desk: Desk) -> None:
    desk.see(*(change("opened", make_alert(f"m-{k}")) for k in range(3)))
    (first,) = desk.see(change("opened", make_alert("m-3"))).notices
    assert (first.kind, first.count) == ("storm", 1)
    desk.see(*(change("opened", make_alert(f"m-{k}")) for k in range(4, 40)))
    (later,) = desk.wait(301).notices
    assert (later.kind, later.key, later.count) == ("storm", first.key, 37)
    assert len([k for k, _ in desk.told if k == "opened"]) == 3
    assert len(desk.told) <= 8
    assert "37 of them open" in later.text


def test_a_storm_is_over_when_all_of_it_is(desk: Desk) -> None:
    desk.see(*(change("opened", make_alert(f"m-{k}")) for k in range(6)))
    desk.see(*(desk.later("resolved", 9, make_alert(f"m-{k}")) for k in range(5)))
    assert not any(n.resolves and n.kind == "storm" for n in desk.wait(1).notices)
    desk.see(desk.later("resolved", 20, make_alert("m-5")))
    (over,) = desk.wait(1).notices
    assert (over.kind, over.resolves, over.count) == ("storm", True, 3)


def test_other_jobs_page_on_during_a_storm(desk: Desk) -> None:
    desk.see(*(change("opened", make_alert(f"m-{k}")) for k in range(6)))
    assert desk.see(change("opened", make_alert(job="opt"))).decisions == {"page": 1}


def test_the_breaker_holds_pages_and_says_so_once() -> None:
    desk = Desk(AlertSettings(breaker_pages=4, storm_alerts=4))
    desk.see(*(change("opened", make_alert(job=f"job-{k}")) for k in range(4)))
    (notice,) = desk.see(
        *(change("opened", make_alert(job=f"job-{k}")) for k in range(4, 30))
    ).notices
    assert notice.kind == "breaker_open"
    assert "4 pages within 10 minutes" in notice.title
    assert desk.row("job-20-m-3").page_reason == "breaker"


def test_the_breaker_closes_after_quiet_and_names_what_is_open() -> None:
    desk = Desk(AlertSettings(breaker_pages=4, storm_alerts=4))
    desk.see(*(change("opened", make_alert(job=f"job-{k}")) for k in range(6)))
    assert desk.wait(599).notices == []
    (notice,) = desk.wait(2).notices
    assert (notice.kind, notice.count, notice.resolves) == ("breaker_closed", 2, True)
    assert "m-3 (job-5)" in notice.text
    assert desk.wait(600).notices == []
    assert desk.see(change("opened", make_alert(job="after"))).decisions["stale"] == 1
    now = replace(make_alert(job="new"), detected_at_ns=desk.clock())
    assert desk.see(change("opened", now)).decisions == {"page": 1}


def test_acknowledging_is_told_where_the_alert_was(desk: Desk) -> None:
    desk.see(change("opened", make_alert()))
    with desk.database.write() as session:
        applied = desk.life.acknowledge(session, "llama-m-3", by="ann", now_ns=desk.clock())
        again = desk.life.acknowledge(session, "llama-m-3", by="bob", now_ns=desk.clock())
    assert [n.kind for n in applied.notices] == ["acknowledged"]
    assert (again.notices, again.events) == ([], {})
    assert desk.row().acknowledged_by == "ann"


def test_a_resolved_alert_cannot_be_acknowledged(desk: Desk) -> None:
    desk.see(change("opened", make_alert()), desk.later("resolved", 1))
    with desk.database.write() as session, pytest.raises(AlertOverError):
        desk.life.acknowledge(session, "llama-m-3", by="ann", now_ns=desk.clock())


def test_an_unknown_alert_is_refused(desk: Desk) -> None:
    with desk.database.write() as session, pytest.raises(NoSuchAlertError):
        desk.life.resolve(session, "nothing", by="ann", now_ns=desk.clock())


def test_what_a_person_resolved_stays_so_while_detection_goes_on(desk: Desk) -> None:
    desk.see(change("opened", make_alert()))
    with desk.database.write() as session:
        applied = desk.life.resolve(session, "llama-m-3", by="ann", now_ns=desk.clock())
    assert [n.kind for n in applied.notices] == ["resolved"]
    desk.see(desk.later("updated", 30, replace(make_alert(), score=9.0)))
    assert desk.row().status == "resolved"
    assert desk.wait(600).notices == []


def test_a_person_resolves_at_the_time_they_do_so(desk: Desk) -> None:
    desk.see(change("opened", make_alert()))
    desk.wait(3600)
    with desk.database.write() as session:
        desk.life.resolve(session, "llama-m-3", by="ann", now_ns=desk.clock())
    assert desk.row().resolved_at_ns == desk.clock()


def test_what_a_person_resolved_opens_again_for_another_machine(desk: Desk) -> None:
    desk.see(change("opened", make_alert()))
    with desk.database.write() as session:
        desk.life.resolve(session, "llama-m-3", by="ann", now_ns=desk.clock())
    desk.see(desk.later("updated", 30, replace(make_alert(), machine="m-5", machines=("m-5",))))
    assert desk.row().status == "open"
    assert desk.told == [("opened", "llama-m-3"), ("reopened", "llama-m-3.2")]


def test_feedback_is_kept_for_training(desk: Desk) -> None:
    desk.see(change("opened", make_alert()))
    with desk.database.write() as session:
        desk.life.feedback(
            session,
            "llama-m-3",
            verdict="wrong",
            machine="m-5",
            note="cable",
            by="ann",
            now_ns=desk.clock(),
        )
    with desk.database.read() as session:
        row = session.scalars(select(FeedbackRow)).one()
    assert (row.alert_id, row.verdict, row.machine, row.author) == (
        "llama-m-3",
        "wrong",
        "m-5",
        "ann",
    )


def test_a_host_named_before_is_remembered_across_jobs(desk: Desk) -> None:
    desk.see(change("opened", make_alert()), desk.later("resolved", 10))
    (notice,) = desk.see(change("opened", make_alert(job="opt"))).notices
    assert "m-3 was named in 1 earlier incident(s)" in notice.text


def test_a_corrected_host_is_no_offender(desk: Desk) -> None:
    desk.see(change("opened", make_alert()))
    desk.see(desk.later("updated", 5, replace(make_alert(), machine="m-5", machines=("m-5",))))
    assert desk.offences() == {"m-3": 0, "m-5": 1}


def test_a_host_counts_once_it_is_accused_and_while_it_is(desk: Desk) -> None:
    both: dict[str, Any] = {"machine": None, "machines": ("m-3", "m-5")}
    desk.see(change("opened", replace(make_alert(), verdict="undetermined", **both)))
    assert desk.offences() == {}
    desk.see(desk.later("updated", 5, replace(make_alert(), pages=False)))
    assert desk.offences() == {}
    desk.see(desk.later("updated", 10))
    desk.see(desk.later("updated", 15))
    assert desk.offences() == {"m-3": 1}
    desk.see(desk.later("updated", 20, replace(make_alert(), verdict="group", **both)))
    assert desk.offences() == {"m-3": 1, "m-5": 1}
    desk.see(desk.later("updated", 25))
    assert desk.offences() == {"m-3": 1, "m-5": 0}


def test_every_change_stands_in_the_event_log_in_order(desk: Desk) -> None:
    desk.see(change("opened", make_alert()))
    with desk.database.write() as session:
        desk.life.acknowledge(session, "llama-m-3", by="ann", now_ns=desk.clock())
    desk.see(desk.later("resolved", 60))
    with desk.database.read() as session:
        events = events_after(session, 0)
    assert [e.kind for e in events] == ["alert.opened", "alert.acknowledged", "alert.resolved"]
    assert [e.body["version"] for e in events] == [1, 2, 3]
    assert events[1].body["acknowledged_by"] == "ann"
