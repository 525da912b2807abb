"""From the signature of an alert's evidence to probable types of fault.

A multinomial logistic regression whose coefficients are learned from labelled incidents
(`replay.train_fault_types`), scaled to be calibrated (temperature scaling: Guo et al., ICML 2017,
section 4.2), mixed with the types' published shares and kept as JSON. Inference is one matrix
product.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.evidence_model import ModelError

FORMAT = "weaklink-fault-types"
FORMAT_VERSION = 2
SHIPPED = "fault_types.json"

SOURCES: tuple[str, ...] = (
    "power", "compute", "tensor", "memory_traffic", "clock", "thermal", "memory", "pcie", "nvlink",
    "network", "pause_frames", "cpu", "host_memory", "disk", "tcp",
)  # fmt: skip
"""Metric families of the catalogue, finer where parts of one family speak of different things."""
WAYS: tuple[str, ...] = ("high", "low", "gone")
MANIFESTATIONS: tuple[str, ...] = ("fail_stop", "fail_slow", "fail_hang", "silent")
GONE_RATIO = 0.45
"""Below this ratio to the peers a low value is one of a machine (or job) that rests."""
ONE_OF_EIGHT = (0.80, 0.93)
"""The ratio to the peers that a machine's mean has when one GPU of eight rests."""
KNOWN_SHARE = 0.6
"""Evidence of which less comes from what the model has learned has no known signature."""

FEATURES: tuple[str, ...] = (
    *(f"{source}:{way}" for source in SOURCES for way in WAYS),
    *(f"manifestation:{name}" for name in MANIFESTATIONS),
    "group",
    "one_gpu",
    "one_of_eight",
    "age",
)
"""Names of the features, in order."""
CELLS = len(SOURCES) * len(WAYS)


@dataclass(frozen=True, slots=True)
class Witness:
    """One metric of the evidence: whose it is, which way it lies, by how much.

    ``ratio`` is the value relative to the peers' median, None where there is none; ``share``
    its part of the evidence.
    """

    source: str
    direction: str
    share: float
    ratio: float | None

    @property
    def cell(self) -> str | None:
        """Its feature; None if the metric is not known."""
        if self.source not in SOURCES or self.direction not in ("high", "low"):
            return None
        gone = self.direction == "low" and self.ratio is not None and self.ratio < GONE_RATIO
        return f"{self.source}:{'gone' if gone else self.direction}"


def features(
    witnesses: Sequence[Witness],
    manifestation: str,
    *,
    group: bool,
    one_gpu: bool,
    age_seconds: float,
) -> NDArray[np.float64]:
    """``float64 [F]`` as in `FEATURES`, each 0..1.

    Of each cell the root of its share of the known evidence: that a metric speaks at all tells
    more than how much of the evidence it is, which depends on what else the job reports.
    ``age_seconds`` is how long the evidence took to suffice.
    """
    out = dict.fromkeys(FEATURES, 0.0)
    total = sum(w.share for w in witnesses if w.cell is not None)
    for w in witnesses:
        if w.cell is None or total <= 0:
            continue
        out[w.cell] += w.share / total
        low, high = ONE_OF_EIGHT
        if w.cell.endswith(":low") and w.ratio is not None and low <= w.ratio <= high:
            out["one_of_eight"] += w.share / total
    x = np.array(list(out.values()))
    x[:CELLS] = np.sqrt(x[:CELLS])
    if manifestation in MANIFESTATIONS:
        x[FEATURES.index(f"manifestation:{manifestation}")] = 1.0
    x[FEATURES.index("group")], x[FEATURES.index("one_gpu")] = group, one_gpu
    x[FEATURES.index("age")] = min(1.0, math.log10(1.0 + max(0.0, age_seconds)) / 3.0)
    return x


@dataclass(frozen=True, slots=True)
class SignatureModel:
    """Learned coefficients.

    Attributes
    ----------
    types
        Types of fault, length K.
    weights, bias
        ``[K][F]`` and ``[K]``, calibrated: the softmax of ``weights @ x + bias``.
    prior
        ``[K]``, the types' shares among all incidents; sums to 1.
    doubt
        The part of every probability that comes from the prior whatever the evidence says:
        clusters differ from what the model was trained on.
    learned
        Cells (features of evidence) that enough examples had.
    confidence
        Nothing is said unless the two most probable types together reach this.
    least, most
        Types less probable than ``least`` are not listed, nor more than ``most`` types.
    """

    types: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]
    bias: tuple[float, ...]
    prior: tuple[float, ...]
    learned: tuple[str, ...]
    doubt: float = 0.05
    confidence: float = 0.5
    least: float = 0.08
    most: int = 4
    trained_on: dict[str, Any] = field(default_factory=dict)
    quality: dict[str, Any] = field(default_factory=dict)

    def probabilities(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """``float64 [K]``, sums to 1."""
        logits = np.array(self.weights) @ x + np.array(self.bias)
        odds = np.exp(logits - logits.max())
        prior = np.array(self.prior)
        return np.asarray((1.0 - self.doubt) * odds / odds.sum() + self.doubt * prior)

    def knows(self, witnesses: Sequence[Witness], manifestation: str) -> bool:
        """Whether evidence is of a kind that was learned: most of it lies in learned cells."""
        if manifestation == "silent":
            return True
        total = sum(w.share for w in witnesses)
        return 0 < total * KNOWN_SHARE <= sum(w.share for w in witnesses if w.cell in self.learned)

    def say(self, x: NDArray[np.float64]) -> tuple[tuple[str, float], ...]:
        """Probable types, most probable first; empty where nothing can be said."""
        if not self.types:
            return ()
        p = self.probabilities(x)
        order = sorted(range(len(p)), key=lambda k: (-float(p[k]), self.types[k]))
        if sum(float(p[k]) for k in order[:2]) < self.confidence:
            return ()
        listed = [k for k in order if p[k] >= self.least][: self.most]
        return tuple((self.types[k], round(float(p[k]), 3)) for k in listed)

    @classmethod
    def silent(cls) -> SignatureModel:
        """Knows no type and says nothing."""
        return cls((), (), (), (), ())

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
                prior=tuple(map(float, data.pop("prior"))),
                learned=tuple(data.pop("learned")),
                **data,
            )
        except (TypeError, KeyError, ValueError) as error:
            raise ModelError(f"{origin}: {error!r}") from error
        numbers = [*model.bias, *model.prior, *(w for row in model.weights for w in row)]
        shaped = all(len(row) == len(FEATURES) for row in model.weights)
        sizes = {len(model.types), len(model.weights), len(model.bias), len(model.prior)}
        if not shaped or len(sizes) != 1:
            raise ModelError(f"{origin}: weights do not fit types and features")
        if not all(math.isfinite(n) for n in numbers):
            raise ModelError(f"{origin}: a weight is not a number")
        return model


@cache
def shipped_signatures() -> SignatureModel:
    """The model in the wheel, learned from simulated incidents."""
    resource = resources.files("models") / "data" / SHIPPED
    return SignatureModel.from_json(resource.read_text(), "shipped fault types")
