"""Which types of fault an alert's evidence looks like, with calibrated probabilities."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from detect.alert import Alert
from ingest.catalogue import Catalogue
from models.signature import PAUSE_FRAMES, features, shipped_signatures, summed_shares

NAMING = frozenset({"machine", "group"})


def fault_types(alert: Alert) -> tuple[tuple[str, float], ...]:
    """``(type, probability)``, most probable first; empty where the evidence does not tell.

    The probabilities of all types sum to 1; those below a few percent are left out. Nothing is
    said of an alert that names nobody, of evidence from unknown metrics, and where no type is
    probable enough. Uses verdict, manifestation, GPU and evidence of the alert only.
    """
    if alert.verdict not in NAMING:
        return ()
    return shipped_signatures().say(signature(alert))


def signature(alert: Alert) -> NDArray[np.float64] | None:
    """An alert's features, see `models.signature.FEATURES`; None where it has none."""
    rows = [(_source(e.metric), str(e.direction), e.share) for e in alert.evidence]
    return features(
        summed_shares(rows),
        alert.manifestation,
        group=alert.verdict == "group",
        one_gpu=alert.gpu is not None,
    )


@cache
def _source(metric: str) -> str:
    if metric.startswith("pfc_"):
        return PAUSE_FRAMES
    return Catalogue.default().metric(metric).family
