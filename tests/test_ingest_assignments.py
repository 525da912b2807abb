"""Which job a machine worked for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ingest.assignments import FOREVER, Assignment, Assignments, parse_assignment
from ingest.samples import Rejected

T = 1_700_000_000 * 10**9


def jobs(assignments: Assignments, machine: str, *ns: int) -> list[str | None]:
    found: list[str | None] = assignments.jobs(
        pa.array([machine] * len(ns)), np.array(ns, np.int64)
    ).to_pylist()
    return found


def test_a_message_is_read_with_times_in_any_form() -> None:
    text = b'{"job": 7, "machines": ["a", "b", "a"], "start": "2023-11-14T22:13:20Z", "end": null}'
    assert parse_assignment(text, "o") == Assignment("7", ("a", "b"), T, FOREVER)
    numbers = b'{"job": "x", "machines": ["a"], "start": 1700000000, "end": 1700000001000}'
    assert parse_assignment(numbers, "o") == Assignment("x", ("a",), T, T + 10**9)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"job": "x"}',
        b'{"job": "x", "machines": []}',
        b'{"job": "", "machines": ["a"]}',
        b'{"job": "x", "machines": "a"}',
        b'{"job": "x", "machines": ["a"], "start": "soon"}',
        b'{"job": "x", "machines": ["a"], "start": 17}',
        b'{"job": "x", "machines": ["a"], "start": 1700000001, "end": 1700000000}',
    ],
)
def test_a_message_that_cannot_be_used_is_rejected_with_its_origin(text: bytes) -> None:
    found = parse_assignment(text, "topic/0@5")
    assert isinstance(found, Rejected)
    assert (found.reason, found.origin, found.payload) == ("bad_assignment", "topic/0@5", text)


def test_start_is_inside_and_end_is_outside() -> None:
    assignments = Assignments()
    assignments.add(Assignment("j", ("a",), T, T + 10))
    assert jobs(assignments, "a", T - 1, T, T + 9, T + 10) == [None, "j", "j", None]


def test_the_job_that_started_last_holds() -> None:
    assignments = Assignments()
    assignments.add(Assignment("second", ("a",), T + 5))
    assignments.add(Assignment("first", ("a",), T))
    assert jobs(assignments, "a", T, T + 4, T + 5) == ["first", "first", "second"]


def test_an_end_may_be_told_later() -> None:
    assignments = Assignments()
    assignments.add(Assignment("j", ("a",), T))
    assignments.add(Assignment("j", ("a",), T, T + 5))
    assert jobs(assignments, "a", T, T + 5) == ["j", None]
    assert len(assignments) == 1


def test_patterns_answer_where_no_message_does() -> None:
    assignments = Assignments(patterns={"node-*": "pool"})
    assignments.add(Assignment("j", ("node-1",), T, T + 5))
    assert jobs(assignments, "node-1", T, T + 5) == ["j", "pool"]
    assert jobs(assignments, "other", T) == [None]


def test_rows_without_machine_have_no_job() -> None:
    assignments = Assignments(patterns={"*": "j"})
    found = assignments.jobs(pa.array([None, "a"], pa.string()), np.array([T, T]))
    assert found.to_pylist() == [None, "j"]


def test_memory_is_bounded_per_machine_and_in_machines() -> None:
    assignments = Assignments(max_per_machine=3, max_machines=2)
    for index in range(10):
        assignments.add(Assignment(f"j{index}", ("a",), T + index))
    assert jobs(assignments, "a", T + 6, T + 7, T + 9) == [None, "j7", "j9"]
    assignments.add(Assignment("x", ("b",), T))
    assignments.add(Assignment("x", ("c",), T))
    assert jobs(assignments, "a", T + 9) == [None]
    assert jobs(assignments, "c", T) == ["x"]


def test_what_has_ended_is_forgotten() -> None:
    assignments = Assignments()
    assignments.add(Assignment("old", ("a", "b"), T, T + 5))
    assignments.add(Assignment("new", ("a",), T + 5))
    assignments.forget(T + 5)
    assert jobs(assignments, "a", T, T + 5) == [None, "new"]
    assert len(assignments) == 1
