"""What people said of alerts, as labels of recordings.

One opinion a line of JSON, or handed over as data: this package knows no service.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from detect.alert import rfc3339
from ingest.catalogue import Catalogue
from ingest.recording import Label, Recording, read_recording
from ingest.recording_parts import scan

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FeedbackError(ValueError):
    """Feedback cannot be read; one line with file, line, key and reason."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What somebody found out about one alert.

    ``accused`` are the machines that the alert named, ``machine`` is the one it really was, if
    somebody said so. Times are event time in nanoseconds.
    """

    alert: str
    job: str
    right: bool
    accused: tuple[str, ...]
    machine: str | None
    onset_ns: int
    detected_at_ns: int

    @property
    def faulty(self) -> frozenset[str]:
        """The machines that were at fault; empty for a false alarm."""
        if self.machine is not None:
            return frozenset({self.machine})
        return frozenset(self.accused) if self.right else frozenset()

    def to_json(self) -> dict[str, Any]:
        """The form of a line, see `read_feedback`."""
        return {
            "alert": self.alert,
            "job": self.job,
            "verdict": "right" if self.right else "wrong",
            "machines": list(self.accused),
            "machine": self.machine,
            "onset": rfc3339(self.onset_ns),
            "detected_at": rfc3339(self.detected_at_ns),
        }


@dataclass(frozen=True, slots=True)
class FeedbackLabels:
    """Labels of recordings that have none of their own.

    ``left_out`` are recordings of which people said that something was wrong, and not with
    which machine: neither healthy nor labelled. ``remarks`` are lines for a person.
    """

    labels: dict[Path, Label]
    left_out: tuple[Path, ...]
    remarks: tuple[str, ...]


def read_feedback(path: Path) -> list[Opinion]:
    """Opinions of a JSONL file, in its order: ``alert``, ``job``, ``verdict`` (right or wrong),
    ``machines`` (those the alert named), ``machine`` (or null), ``onset``, ``detected_at``.

    Raises `FeedbackError`, or `OSError` if there is no such file.
    """
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        try:
            item = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise FeedbackError(f"{where}: not JSON: {error}") from None
        if not isinstance(item, dict):
            raise FeedbackError(f"{where}: not a JSON object")
        found.append(_opinion(item, where))
    return found


def label_recordings(
    paths: Sequence[Path], opinions: Iterable[Opinion], catalogue: Catalogue
) -> FeedbackLabels:
    """Labels from opinions, by job and time; of several on one alert the last counts.

    An opinion speaks of a recording that holds its job and some time between the alert's onset
    and its detection. A recording's own label stands; where an opinion contradicts it, a remark
    says so.
    """
    latest = {opinion.alert: opinion for opinion in opinions}
    jobs = {opinion.job for opinion in latest.values()}
    labels: dict[Path, Label] = {}
    left_out: list[Path] = []
    remarks: list[str] = []
    used: set[str] = set()
    for path in paths if latest else ():
        recording = read_recording(path, catalogue)
        if recording.label is not None and recording.label.job not in jobs:
            continue
        here, first, last = _extent(recording)
        about = [
            o
            for o in latest.values()
            if o.job in here and o.onset_ns <= last and o.detected_at_ns >= first
        ]
        used.update(o.alert for o in about)
        if recording.label is not None:
            remarks += _contradictions(recording.name, recording.label, about, first)
            continue
        unclear = [o.alert for o in about if o.right and not o.faulty]
        if unclear:
            left_out.append(path)
            remarks.append(f"{recording.name}: left out: {unclear[0]} was right, and names nobody")
        elif about:
            labels[path] = _label(about, first)
    if labels:
        faulty = sum(bool(label.faulty_machines) for label in labels.values())
        remarks.append(
            f"feedback labels {len(labels)} recordings: {faulty} faulty, "
            f"{len(labels) - faulty} healthy"
        )
    if len(used) < len(latest):
        remarks.append(
            f"feedback on {len(latest) - len(used)} of {len(latest)} alerts is about no recording"
        )
    return FeedbackLabels(labels, tuple(left_out), tuple(remarks))


def _label(about: Sequence[Opinion], first_ns: int) -> Label:
    faulty = frozenset[str]().union(*(o.faulty for o in about))
    note = "feedback on " + ", ".join(o.alert for o in about)
    if not faulty:
        return Label(about[0].job, (), note=note)
    onset_ns = min(o.onset_ns for o in about if o.faulty)
    return Label(
        about[0].job,
        tuple(sorted(faulty)),
        onset_ns=onset_ns if onset_ns > first_ns else None,
        note=note,
    )


def _contradictions(name: str, label: Label, about: Sequence[Opinion], first_ns: int) -> list[str]:
    """Opinions that accuse whom the label does not, or clear whom it names at that time."""
    named = frozenset(label.faulty_machines)
    begun_ns = first_ns if label.onset_ns is None else label.onset_ns
    lines = []
    for opinion in about:
        during = opinion.detected_at_ns >= begun_ns and (
            label.halt_ns is None or opinion.detected_at_ns < label.halt_ns
        )
        cleared = frozenset() if opinion.right else frozenset(opinion.accused) - opinion.faulty
        if not opinion.faulty <= named or (during and cleared & named):
            ours = ", ".join(sorted(named)) or "healthy"
            theirs = ", ".join(sorted(opinion.faulty)) or f"not {', '.join(opinion.accused)}"
            lines.append(
                f"{name}: its own label ({ours}) stands against feedback on {opinion.alert} "
                f"({theirs})"
            )
    return lines


def _extent(recording: Recording) -> tuple[set[str], int, int]:
    """The recording's jobs, and its first and last time."""
    jobs: set[str] = set()
    for part in recording.parts:
        for group in range(len(part.group_rows)):
            for _, table in part.chunks(group, ["job"]):
                jobs.update(v for v in table.column("job").unique().to_pylist() if v is not None)
    spans = [chunk.span for chunk in scan(recording.parts).chunks if chunk.span is not None]
    if not spans:
        return jobs, 0, -1
    return jobs, min(s[0] for s in spans), max(s[1] for s in spans)


def _opinion(item: dict[str, Any], where: str) -> Opinion:
    def text(key: str) -> str:
        value = item.get(key)
        if not isinstance(value, str) or not value:
            raise FeedbackError(f"{where}: {key}: must be text")
        return value

    def moment(key: str) -> int:
        try:
            at = datetime.fromisoformat(text(key))
        except ValueError as error:
            if isinstance(error, FeedbackError):
                raise
            raise FeedbackError(f"{where}: {key}: not a time in RFC 3339") from None
        if at.tzinfo is None:
            raise FeedbackError(f"{where}: {key}: has no offset from UTC")
        return (at - _EPOCH) // timedelta(microseconds=1) * 1000

    machines = item.get("machines")
    if not isinstance(machines, list) or not all(isinstance(m, str) for m in machines):
        raise FeedbackError(f"{where}: machines: must be a list of names")
    if item.get("verdict") not in ("right", "wrong"):
        raise FeedbackError(f"{where}: verdict: must be right or wrong")
    return Opinion(
        alert=text("alert"),
        job=text("job"),
        right=item["verdict"] == "right",
        accused=tuple(machines),
        machine=None if item.get("machine") is None else text("machine"),
        onset_ns=moment("onset"),
        detected_at_ns=moment("detected_at"),
    )
