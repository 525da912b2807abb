"""Which types of fault an alert's evidence looks like, with calibrated probabilities."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from detect.alert import Alert, Evidence
from detect.events import ERRORS
from ingest.catalogue import Catalogue
from models.signature import SignatureModel, Witness, features, shipped_signatures

NAMING = frozenset({"machine", "group"})
FINER = {
    "gpu_tensor_active_ratio": "tensor",
    "gpu_dram_active_ratio": "memory_traffic",
    "pfc_tx_packets_per_second": "pause_frames",
    "pfc_rx_packets_per_second": "pause_frames",
}
"""What tells more than the rest of its family."""


def fault_types(alert: Alert, model: SignatureModel | None = None) -> tuple[tuple[str, float], ...]:
    """``(type, probability)``, most probable first; empty where the evidence does not tell.

    The probabilities of all types sum to 1; those below a few percent are left out. Nothing is
    said of an alert that names nobody, of evidence unlike what was learned, and where no type or
    two are probable enough. Uses verdict, manifestation, GPU, times and evidence of the alert
    only, so the same alert always has the same types.
    """
    model = model or shipped_signatures()
    if alert.manifestation == "silent" and alert.gpu is not None:
        # What was learned of silence is whole machines'.
        return ()
    if alert.verdict not in NAMING or not model.knows(_witnesses(alert), alert.manifestation):
        return ()
    return model.say(signature(alert))


def signature(alert: Alert) -> NDArray[np.float64]:
    """An alert's features, see `models.signature.FEATURES`."""
    return features(
        _witnesses(alert),
        alert.manifestation,
        group=alert.verdict == "group",
        one_gpu=alert.gpu is not None,
        age_seconds=(alert.detected_at_ns - alert.onset_ns) / 1e9,
    )


def _witnesses(alert: Alert) -> list[Witness]:
    return [
        Witness(_source(e.metric), str(e.direction), e.share, _ratio(e))
        for e in alert.evidence
        # Errors go with any type; what was learned is how the values lie.
        if _source(e.metric) != ERRORS
    ]


def _ratio(evidence: Evidence) -> float | None:
    if evidence.value is None or not evidence.peer_median:
        return None
    return evidence.value / evidence.peer_median


@cache
def _source(metric: str) -> str:
    return FINER.get(metric) or Catalogue.default().metric(metric).family
