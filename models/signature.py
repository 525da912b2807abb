"""From the signature of an alert's evidence to probable types of fault.

A multinomial logistic regression whose coefficients are learned from labelled incidents
(`replay.train_fault_types`), scaled to be calibrated (temperature scaling: Guo et al., ICML 2017,
section 4.2) and kept as JSON. Inference is one matrix product.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.evidence_model import ModelError

FORMAT = "weaklink-fault-types"
FORMAT_VERSION = 1

FAMILIES: tuple[str, ...] = (
    "power", "compute", "clock", "thermal", "memory", "pcie", "nvlink", "network", "cpu",
    "host_memory", "disk", "tcp",
)  # fmt: skip
PAUSE_FRAMES = "pause_frames"
"""Pause frames speak of another trouble than the traffic of the same network."""
SOURCES: tuple[str, ...] = (*FAMILIES, PAUSE_FRAMES)
DIRECTIONS: tuple[str, ...] = ("high", "low")
MANIFESTATIONS: tuple[str, ...] = ("fail_stop", "fail_slow", "fail_hang", "silent", "unknown")
KNOWN_SHARE = 0.5
"""Evidence of which less comes from known metrics has no signature."""

FEATURES: tuple[str, ...] = (
    *(f"{source}:{direction}" for source in SOURCES for direction in DIRECTIONS),
    *(f"manifestation:{name}" for name in MANIFESTATIONS),
    "group",
    "one_gpu",
)
"""Names of the features, in order: shares of the evidence, then zeros and ones."""


def features(
    shares: Mapping[tuple[str, str], float], manifestation: str, *, group: bool, one_gpu: bool
) -> NDArray[np.float64] | None:
    """``float64 [F]`` as in `FEATURES`; None where the evidence is of unknown metrics.

    ``shares`` are parts of the evidence by (source, direction); they are taken relative to
    their sum.
    """
    known = {k: v for k, v in shares.items() if k[0] in SOURCES and k[1] in DIRECTIONS}
    total, of_known = sum(shares.values()), sum(known.values())
    if manifestation != "silent" and (of_known <= 0 or of_known < KNOWN_SHARE * total):
        return None
    out = dict.fromkeys(FEATURES, 0.0)
    for (source, direction), share in known.items():
        out[f"{source}:{direction}"] += share / of_known
    if manifestation in MANIFESTATIONS:
        out[f"manifestation:{manifestation}"] = 1.0
    out["group"], out["one_gpu"] = float(group), float(one_gpu)
    return np.array(list(out.values()))


@dataclass(frozen=True, slots=True)
class SignatureModel:
    """Learned coefficients.

    Attributes
    ----------
    types
        Types of fault, length K.
    weights, bias
        ``[K][F]`` and ``[K]``, calibrated: the softmax of ``weights @ x + bias`` is the
        probability of each type.
    confidence
        Below this probability of the most probable type nothing is said.
    least
        Types less probable than this are not listed.
    """

    types: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]
    bias: tuple[float, ...]
    confidence: float = 0.4
    least: float = 0.05
    trained_on: dict[str, Any] = field(default_factory=dict)
    quality: dict[str, Any] = field(default_factory=dict)

    def probabilities(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """``float64 [K]``, sums to 1."""
        logits = np.array(self.weights) @ x + np.array(self.bias)
        odds = np.exp(logits - logits.max())
        return np.asarray(odds / odds.sum())

    def say(self, x: NDArray[np.float64] | None) -> tuple[tuple[str, float], ...]:
        """Probable types, most probable first; empty where nothing can be said."""
        if x is None:
            return ()
        p = self.probabilities(x)
        if p.max() < self.confidence:
            return ()
        order = sorted(range(len(p)), key=lambda k: (-float(p[k]), self.types[k]))
        return tuple((self.types[k], round(float(p[k]), 3)) for k in order if p[k] >= self.least)

    def save(self, path: Path) -> None:
        """Write JSON."""
        data = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "features": list(FEATURES),
            **asdict(self),
        }
        path.write_text(json.dumps(data, indent=1) + "\n")

    @classmethod
    def from_json(cls, text: str, origin: str) -> SignatureModel:
        """Inverse of `save`; `ModelError` that names ``origin`` and the reason."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise ModelError(f"{origin}: not JSON: {error}") from error
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise ModelError(f"{origin}: not a model of fault types")
        if data.pop("format_version", None) != FORMAT_VERSION:
            raise ModelError(f"{origin}: format_version is not {FORMAT_VERSION}")
        if data.pop("features", None) != list(FEATURES):
            raise ModelError(f"{origin}: was trained on other features")
        try:
            model = cls(
                types=tuple(data.pop("types")),
                weights=tuple(tuple(map(float, row)) for row in data.pop("weights")),
                bias=tuple(map(float, data.pop("bias"))),
                **data,
            )
        except (TypeError, KeyError, ValueError) as error:
            raise ModelError(f"{origin}: {error!r}") from error
        numbers = [*model.bias, *(w for row in model.weights for w in row)]
        shaped = all(len(row) == len(FEATURES) for row in model.weights)
        if not shaped or not len(model.types) == len(model.weights) == len(model.bias):
            raise ModelError(f"{origin}: weights do not fit types and features")
        if not all(math.isfinite(n) for n in numbers):
            raise ModelError(f"{origin}: a weight is not a number")
        return model


def summed_shares(rows: Sequence[tuple[str, str, float]]) -> dict[tuple[str, str], float]:
    """Shares summed by (source, direction)."""
    out: dict[tuple[str, str], float] = {}
    for source, direction, share in rows:
        out[source, direction] = out.get((source, direction), 0.0) + share
    return out


@cache
def shipped_signatures() -> SignatureModel:
    """The model in the wheel, learned from simulated incidents."""
    resource = resources.files("models") / "data" / "fault_types.json"
    return SignatureModel.from_json(resource.read_text(), "shipped fault types")
