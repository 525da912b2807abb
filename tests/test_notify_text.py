"""The words of a message."""

from __future__ import annotations

import pytest

from serve.actions import ActionSettings
from serve.notify.text import confidence, message, one_line, title
from tests.notify_support import make_note
from tests.serve_support import SECOND, START_NS

# START_NS is 22:13:20 UTC; the alert's onset 30 s before.
FIRST = "[PAGE] llama: m-3 is slow since 22:12:50 UTC (0.0001 false alarms per job-week)"


def test_the_first_line_says_job_machine_what_since_when_and_how_sure() -> None:
    assert title(make_note()) == FIRST


def test_a_whole_message_reads_top_down() -> None:
    note = make_note(alert_fields={"gpu": 3, "recommended_action": ""})
    words = message(note, START_NS, ActionSettings(schedulers=("slurm",)))
    assert words.plain == (
        "[PAGE] llama: m-3 GPU 3 is slow since 22:12:50 UTC"
        " (0.0001 false alarms per job-week)\n"
        "\n"
        "Confidence: a healthy job would show this about once in 192 years.\n"
        "Likely fault: ECC error (40%).\n"
        "\n"
        "Evidence:\n"
        "  tensor activity 0.02, peers 0.55 since 22:12:50\n"
        "\n"
        "Proposed: Drain the machine at the next checkpoint; check clocks, heat, PCIe, links.\n"
        "\n"
        "Commands (nothing has been run):\n"
        "  # on the machine, look first\n"
        "  nvidia-smi -i 3 -q -d CLOCK,PERFORMANCE,TEMPERATURE\n"
        "  # Slurm: no new jobs on the machine\n"
        "  scontrol update nodename=m-3 state=drain"
        ' reason="weaklink llama-m-3: fail_slow job llama"\n'
        "\n"
        "page: https://weaklink.example/alerts/llama-m-3"
    )


@pytest.mark.parametrize(
    ("kind", "start"),
    [
        ("opened", "[PAGE] llama: m-3 is slow since"),
        ("corrected", "[CORRECTED] llama: m-3 is slow since"),
        ("acknowledged", "[ACKNOWLEDGED] llama: m-3 is slow since"),
        ("reopened", "[BACK AGAIN] llama: m-3 is slow since"),
        ("test", "[TEST] llama: m-3 is slow since"),
        ("resolved", "[RESOLVED] llama: m-3 is slow since 22:12:50 UTC, over at 22:13:21 UTC"),
    ],
)
def test_the_first_word_says_what_kind_of_message_it_is(kind: str, start: str) -> None:
    assert title(make_note(kind)).startswith(start)  # type: ignore[arg-type]


def test_an_onset_of_another_day_shows_its_date() -> None:
    note = make_note(at_ns=START_NS + 7_200 * SECOND)
    assert "since 2023-11-14 22:12:50 UTC" in title(note)


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        (0.02, "0.02 false alarms per job-week"),
        (0.0123456, "0.012 false alarms per job-week"),
        (3.0, "3 false alarms per job-week"),
        (1e-9, "under 0.0001 false alarms per job-week"),
        (0.0, "under 0.0001 false alarms per job-week"),
        (None, "confidence unknown"),
    ],
)
def test_confidence_is_a_rate_of_false_alarms(rate: float | None, words: str) -> None:
    assert confidence({"false_alarms_per_job_week": rate}) == words


def test_the_likeliest_fault_types_come_first() -> None:
    types = (("aoc_error", 0.1), ("nic_dropout", 0.7), ("hdfs_error", 0.15), ("x", 0.05))
    plain = message(make_note(alert_fields={"fault_types": types}), START_NS).plain
    assert (
        "Likely fault: NIC dropout (70%), HDFS error (15%), optical cable error (10%).\n" in plain
    )


def test_a_resolved_message_accuses_and_proposes_nothing() -> None:
    words = message(make_note("resolved"), START_NS)
    assert (words.evidence, words.action, words.commands) == ((), "", ())


def test_a_late_message_says_so() -> None:
    note = make_note()
    assert "late" not in message(note, note.at_ns + 60 * SECOND).plain
    late = message(note, note.at_ns + 600 * SECOND).plain
    assert "decided at 2023-11-14T22:13:21.000Z and is late" in late


def test_what_the_life_cycle_adds_is_said_once() -> None:
    text = (
        "Acknowledged by kim.\n"
        "tensor activity 0.02, peers 0.55 since 22:12:50\n"
        "Drain the machine.\n"
        "m-3 was named in 2 earlier incident(s)."
    )
    plain = message(make_note("acknowledged", text=text), START_NS).plain
    for once in (*text.splitlines(),):
        assert plain.count(once) == 1


def test_a_storm_counts_and_names_its_worst() -> None:
    note = make_note(
        "storm",
        title="12 more alerts in job llama",
        text="9 of them open. Machines: m-1, m-2.",
        count=12,
        machines=("m-1", "m-2"),
    )
    words = message(note, START_NS)
    assert words.title == "[STORM] 12 more alerts in job llama"
    assert words.notes == ("9 of them open. Machines: m-1, m-2.",)
    assert words.evidence == ("m-3: tensor activity 0.02, peers 0.55 since 22:12:50",)
    assert words.commands == ()


def test_the_breaker_speaks_without_an_alert() -> None:
    note = make_note("breaker_open", alert=None, job="", title="Paging is held", machines=())
    assert message(note, START_NS).title == "[PAGING HELD] Paging is held"


def test_a_group_names_what_it_shares() -> None:
    fields = {"verdict": "group", "machines": tuple("abcd"), "shared": "leaf-7"}
    first = title(make_note(machine=None, alert_fields=fields))
    assert "4 machines that share leaf-7 are slow [a, b, c, …]" in first


def test_a_hostile_name_stays_on_its_line() -> None:
    name = "m\n[RESOLVED] all is well\x1b[2J\u2028x"
    words = message(make_note(machine=name), START_NS)
    assert "\n" not in words.title
    assert words.title.isprintable()
    assert words.plain.splitlines()[0] == words.title
    assert one_line("a\u202eb") == "a b"


def test_only_web_links_are_shown_the_page_first() -> None:
    links = {"api": "https://x/api", "page": "https://x/p", "bad": "javascript:alert(1)"}
    words = message(make_note(links=links), START_NS)
    assert words.links == (("page", "https://x/p"), ("api", "https://x/api"))
