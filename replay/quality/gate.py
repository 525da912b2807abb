"""Fails when quality falls: figures against a stored baseline, each with its direction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = "weaklink-quality-baseline"


class BaselineError(ValueError):
    """A baseline that cannot be used; one line with the file and the reason."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a figure may fall before the gate fails.

    ``better`` says which way is up; the figure may be worse by ``absolute`` plus ``relative``
    of the baseline.
    """

    better: str
    absolute: float
    relative: float = 0.0

    def allows(self, base: float, now: float) -> bool:
        """Whether ``now`` is no worse than the baseline allows."""
        slack = self.absolute + self.relative * abs(base) + 1e-9
        return now >= base - slack if self.better == "higher" else now <= base + slack


TOLERANCES: dict[str, Tolerance] = {
    "precision": Tolerance("higher", 0.04),
    "recall": Tolerance("higher", 0.04),
    "f1": Tolerance("higher", 0.03),
    "delay_seconds_p50": Tolerance("lower", 5.0, 0.2),
    "delay_seconds_p90": Tolerance("lower", 30.0, 0.3),
    "false_alarms": Tolerance("lower", 1.0),
}
GATED = ("evidence",)
"""Detectors that are held to the baseline; the others are references."""
FLOORS = ("null", "random", "ratio")
"""The gated detectors must stay above these."""


def baseline_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """What is stored: the gated figures of every workload in a result."""
    workloads = {}
    for name, entry in result["workloads"].items():
        detectors = {
            detector: {figure: found[figure] for figure in TOLERANCES}
            for detector, found in entry["detectors"].items()
            if detector in GATED
        }
        workloads[name] = {"version": entry["version"], "detectors": detectors}
    return {"format": FORMAT, "commit": result["commit"], "workloads": workloads}


def read_baseline(path: Path) -> dict[str, Any]:
    """A stored baseline; `BaselineError` if it is missing or malformed."""
    try:
        given = json.loads(path.read_bytes())
    except OSError as error:
        raise BaselineError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise BaselineError(f"{path}: not JSON: {error}") from error
    if not isinstance(given, dict) or given.get("format") != FORMAT:
        raise BaselineError(f"{path}: not a quality baseline")
    return given


def failures(result: Mapping[str, Any], baseline: Mapping[str, Any]) -> list[str]:
    """One line for each reason to fail; empty = passed.

    A partial result, a workload without baseline and a baseline of another version fail too: a
    gate that measured nothing has not been passed.
    """
    out = []
    if result["partial"]:
        out.append(f"only {result['measured']} of {result['planned']} results were measured")
    for name, entry in result["workloads"].items():
        base = baseline["workloads"].get(name)
        if base is None or base["version"] != entry["version"]:
            out.append(f"{name}: the baseline has no version {entry['version']} of it")
            continue
        for detector, figures in base["detectors"].items():
            out += _fallen(name, detector, figures, entry["detectors"])
    if not result["workloads"]:
        out.append("nothing was measured")
    return out


def _fallen(
    workload: str, detector: str, base: Mapping[str, Any], found: Mapping[str, Any]
) -> Sequence[str]:
    now = found.get(detector)
    if now is None:
        return [f"{workload}: {detector} was not measured"]
    out = []
    for figure, tolerance in TOLERANCES.items():
        was, is_ = base.get(figure), now[figure]
        if was is None:
            continue
        if is_ is None or not tolerance.allows(was, is_):
            shown = "undefined" if is_ is None else f"{is_:.3f}"
            out.append(
                f"{workload}: {detector} {figure} is {shown}, was {was:.3f} "
                f"({tolerance.better} is better)"
            )
    for floor in FLOORS:
        below = found.get(floor)
        if below is not None and (now["f1"] or 0.0) <= (below["f1"] or 0.0):
            out.append(f"{workload}: {detector} F1 is not above that of {floor}")
    return out
