"""From a panel's numbers to what a person reads: evidence, onset, manifestation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from detect.alert import Evidence, Manifestation
from detect.panel import PanelEvidence
from detect.peers import compare_with_peers
from detect.phase import JobPhase
from detect.residuals import SHAPE
from ingest.catalogue import Catalogue

MOST_EVIDENCE = 8
WEAKEST_SHARE = 0.03
IDLE_RATIO = 0.25


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is said about one row."""

    evidence: tuple[Evidence, ...]
    onset_ns: int
    signature: str
    gpu: int | None


def explain(panel: PanelEvidence, row: int, catalogue: Catalogue) -> Explanation:
    """Evidence of one row, strongest first; the signature is its strongest metric and direction."""
    strength = panel.strength[:, row].astype(np.float64)
    witness = float(panel.state["witness"][row])
    total = float(strength.sum()) + witness or 1.0
    order = np.argsort(-strength, kind="stable")[:MOST_EVIDENCE]
    raw, gpu = panel.state["raw"], _gpu(panel, row)
    evidence = []
    for m in order.tolist():
        share = float(strength[m]) / total
        if share < WEAKEST_SHARE:
            break
        name = panel.metrics[m]
        one = compare_with_peers(
            name,
            catalogue.metric(name).seen_unit,
            raw[m],
            row,
            since_ns=int(panel.state["rose_ns"][m, row]),
            share=share,
            gpu=gpu,
        )
        up = panel.sums.is_high(m, row)
        if panel.sums.test_of(m, row) == SHAPE and one.peer_median is not None:
            # The shape test knows no direction: a pattern is stranger, its mean above or below.
            up = bool(raw[m, row] >= one.peer_median)
        evidence.append(replace(one, direction="high" if up else "low"))
    if witness / total >= WEAKEST_SHARE:
        evidence.append(_event(panel, row, witness / total, catalogue))
        evidence.sort(key=lambda e: -e.share)
    strongest = [e for e in evidence if e.share >= 0.5 * evidence[0].share]
    onset = min((e.since_ns for e in strongest), default=int(panel.state["since_ns"][row]))
    first = evidence[0] if evidence else None
    return Explanation(
        tuple(evidence),
        onset,
        f"{first.metric}:{first.direction}" if first else "",
        gpu,
    )


def _event(panel: PanelEvidence, row: int, share: float, catalogue: Catalogue) -> Evidence:
    """The latest code or count that moved on the row."""
    metric, at_ns = panel.events.latest(row)
    name = panel.events.metrics[metric]
    one = compare_with_peers(
        name,
        catalogue.metric(name).seen_unit,
        panel.events.state["last"][metric],
        row,
        since_ns=at_ns,
        share=share,
        gpu=_gpu(panel, row),
    )
    # A code is no smaller or larger than another.
    return replace(one, direction="high")


def _gpu(panel: PanelEvidence, row: int) -> int | None:
    return int(panel.gpu[row]) if panel.gpu[row] >= 0 else None


def manifestation(evidence: Sequence[Evidence], phase: JobPhase) -> Manifestation:
    """Fail-stop: the machine does nothing. Fail-hang: the job stands, the machine does not rest.

    Fail-slow: the job goes on (Astral, SIGCOMM'25, names the four kinds).
    """
    ratios = [
        e.value / e.peer_median
        for e in evidence
        if e.direction == "low" and e.value is not None and e.peer_median
    ]
    idle = bool(ratios) and float(np.median(ratios)) < IDLE_RATIO
    if idle:
        return "fail_stop"
    if phase.name in ("idle", "stalled"):
        return "fail_hang"
    return "fail_slow" if evidence else "unknown"
