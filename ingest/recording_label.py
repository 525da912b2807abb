"""What stands beside a recording's telemetry: its label, its topology, and the error they share."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ingest.formats.json_text import parse
from ingest.timestamps import parse_ns

Topology = Mapping[str, Mapping[str, Any]]
"""By machine: what it hangs on (``leaf_switch``, ``rack``, ``pipeline_stage``, ...)."""


class RecordingError(ValueError):
    """A recording that cannot be used; one line that names file, place in it and reason."""

    def __init__(self, file: Path | str, place: str, reason: str) -> None:
        super().__init__(str(file), place, reason)
        self.file = str(file)
        self.place = place
        self.reason = " ".join(reason.split())

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.place, self.reason) if part)


@dataclass(frozen=True, slots=True)
class Label:
    """The truth about a recording. No faulty machine: healthy. No onset: from the start."""

    job: str
    faulty_machines: tuple[str, ...]
    fault_type: str | None = None
    onset_ns: int | None = None
    halt_ns: int | None = None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """The form of ``incident.json``."""
        return {
            "job": self.job,
            "faulty_machines": list(self.faulty_machines),
            "fault_type": self.fault_type,
            "onset": _rfc3339(self.onset_ns),
            "halt": _rfc3339(self.halt_ns),
            "note": self.note,
        }


def read_label(file: Path) -> Label | None:
    """``incident.json``, or None if there is no such file."""
    if not file.exists():
        return None
    given = _object(file)
    machines = given.get("faulty_machines")
    if not isinstance(machines, list):
        raise RecordingError(file, "faulty_machines", "must be a list of machine names")
    for index, machine in enumerate(machines):
        if not isinstance(machine, str) or not machine:
            place = f"faulty_machines[{index}]"
            raise RecordingError(file, place, f"must be a machine name, not {_shown(machine)}")
    onset, halt = _time(file, given, "onset"), _time(file, given, "halt")
    if onset is not None and halt is not None and halt < onset:
        raise RecordingError(file, "halt", "is before onset")
    return Label(
        job=_text(file, given, "job") or "",
        faulty_machines=tuple(dict.fromkeys(machines)),
        fault_type=_text(file, given, "fault_type"),
        onset_ns=onset,
        halt_ns=halt,
        note=_text(file, given, "note") or "",
    )


def read_topology(file: Path) -> Topology:
    """``topology.json`` as {machine: {attribute: value}}; empty if there is no such file."""
    if not file.exists():
        return {}
    machines = _object(file).get("machines")
    if not isinstance(machines, dict):
        raise RecordingError(file, "machines", "must be an object of machine names")
    for name, attributes in machines.items():
        if not isinstance(attributes, dict):
            raise RecordingError(file, f"machines.{name}", "must be an object of attributes")
        for key, value in attributes.items():
            usable = math.isfinite(value) if isinstance(value, float) else True
            if not usable or (value is not None and not isinstance(value, str | int | float)):
                place = f"machines.{name}.{key}"
                raise RecordingError(file, place, f"must be a text or number, not {_shown(value)}")
    return machines


def _object(file: Path) -> dict[str, Any]:
    try:
        given = parse(file.read_bytes())
    except OSError as error:
        raise RecordingError(file, "", error.strerror or "cannot be read") from error
    except RecursionError as error:
        raise RecordingError(file, "", "nested too deeply") from error
    except ValueError as error:
        raise RecordingError(file, "", f"not JSON: {error}") from error
    if not isinstance(given, dict):
        raise RecordingError(file, "", f"must be a JSON object, not {_shown(given)}")
    return given


def _text(file: Path, given: Mapping[str, Any], key: str) -> str | None:
    value = given.get(key)
    if value is not None and not isinstance(value, str):
        raise RecordingError(file, key, f"must be a text or null, not {_shown(value)}")
    return value


def _time(file: Path, given: Mapping[str, Any], key: str) -> int | None:
    value = _text(file, given, key)
    if value is None:
        return None
    ns = parse_ns(value)
    if ns is None:
        raise RecordingError(file, key, f"must be an RFC 3339 time, not {_shown(value)}")
    return ns


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _rfc3339(ns: int | None) -> str | None:
    if ns is None:
        return None
    seconds, rest = divmod(ns, 1_000_000_000)
    stamp = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
    digits = f"{rest:09d}".rstrip("0")
    return f"{stamp}.{digits:0<3}Z" if digits else f"{stamp}Z"
