"""What tests of Minder share."""

from __future__ import annotations

from models.denoise import registry
from models.minder_model import MINDER_METRICS, MinderModel

PLAIN = MinderModel(
    name="plain",
    window=8,
    metrics=MINDER_METRICS,
    limits=dict.fromkeys(MINDER_METRICS, (0.0, 1.0)),
    denoisers={m: registry.denoiser("identity") for m in MINDER_METRICS},
)
"""Compares windows as they are."""
