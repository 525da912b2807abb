"""Learns the shipped model of fault types: ``python -m replay.train_fault_types``.

Simulated labelled incidents, the same number of each type, go through the default detector; the
signatures of right alerts are the examples. Types are weighted by their published share, so the
probabilities hold for the mix that clusters see.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from detect.alert import Alert
from detect.fault_types import signature
from ingest.catalogue import Catalogue
from ingest.simulate import FAULT_MIX, Wishes
from models.signature import FEATURES, SignatureModel
from replay.quality.measure import deciding
from replay.quality.sources import Simulated
from replay.runner import ReplayOptions, replay_recording

Array = NDArray[np.float64]

FIRST_SEED = 101
FOLDS = 5
TEMPERATURES = np.geomspace(0.5, 5.0, 24)
BINS = 8


def examples(per_type: int, minutes: float, workers: int) -> list[tuple[str, Array]]:
    """``(type, features)`` of right alerts on ``per_type`` incidents of every type."""
    work = (
        delayed(_example)(FIRST_SEED + t, i, fault, minutes)
        for i in range(per_type)
        for t, fault in enumerate(FAULT_MIX)
    )
    out = []
    for done, found in enumerate(Parallel(n_jobs=workers, return_as="generator")(work), 1):
        if found is not None:
            out.append(found)
        if done % 10 == 0:
            click.echo(f"{done}/{per_type * len(FAULT_MIX)} incidents", err=True)
    return out


def _example(seed: int, index: int, fault: str, minutes: float) -> tuple[str, Array] | None:
    wishes = Wishes(fault=fault, machines=(6, 12), minutes=minutes, cadence_seconds=1.0)
    catalogue = Catalogue.default()
    opened = Simulated(seed, index, wishes=wishes).opened("example", catalogue, Path())
    result = replay_recording(opened.recording, ReplayOptions(catalogue=catalogue))
    alert: Alert | None = deciding(result)
    if alert is None or result.score.outcome != "right":
        return None
    x = signature(alert)
    return None if x is None else (fault, x)


def learn(found: Sequence[tuple[str, Array]], seed: int = 0) -> SignatureModel:
    """Fit, calibrate on folds that were left out, and measure on them.

    Types with fewer examples than folds are not learned.
    """
    counts = {t: sum(f == t for f, _ in found) for t in FAULT_MIX}
    types = sorted(t for t, n in counts.items() if n >= FOLDS)
    kept = [(types.index(t), x) for t, x in found if t in types]
    y = np.array([k for k, _ in kept])
    x = np.array([row for _, row in kept])
    weight = np.array([FAULT_MIX[types[k]] / counts[types[k]] for k in y])
    weight *= len(weight) / weight.sum()
    logits = np.zeros((len(y), len(types)))
    for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(x, y):
        logits[test] = _logits(_fit(x[train], y[train], weight[train]), x[test])
    losses = [_loss(logits / t, y, weight) for t in TEMPERATURES]
    temperature = float(TEMPERATURES[int(np.argmin(losses))])
    fitted = _fit(x, y, weight)
    model = SignatureModel(
        types=tuple(types),
        weights=tuple(tuple(row) for row in np.round(fitted.coef_ / temperature, 5).tolist()),
        bias=tuple(np.round(fitted.intercept_ / temperature, 5).tolist()),
        trained_on={"examples": len(y), "by_type": counts, "temperature": round(temperature, 3)},
    )
    quality = _quality(_softmax(logits / temperature), y, weight, model.confidence)
    return SignatureModel(
        model.types, model.weights, model.bias, trained_on=model.trained_on, quality=quality
    )


def _fit(x: Array, y: NDArray[np.int64], weight: Array) -> LogisticRegression:
    return LogisticRegression(C=3.0, max_iter=2000).fit(x, y, sample_weight=weight)


def _logits(fitted: LogisticRegression, x: Array) -> Array:
    return np.asarray(x @ fitted.coef_.T + fitted.intercept_)


def _softmax(logits: Array) -> Array:
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def _loss(logits: Array, y: NDArray[np.int64], weight: Array) -> float:
    p = _softmax(logits)[np.arange(len(y)), y]
    return float(np.average(-np.log(np.maximum(p, 1e-12)), weights=weight))


def _quality(p: Array, y: NDArray[np.int64], weight: Array, confidence: float) -> dict[str, Any]:
    """All on examples that were left out, weighted by the types' shares."""
    best, top = p.argmax(axis=1), p.max(axis=1)
    right = best == y
    said = top >= confidence
    three = np.argsort(-p, axis=1)[:, :3]
    error = 0.0
    for low in np.arange(BINS) / BINS:
        inside = (top > low) & (top <= low + 1 / BINS)
        if inside.any():
            share = weight[inside].sum() / weight.sum()
            mean = np.average(top[inside] - right[inside], weights=weight[inside])
            error += share * abs(float(mean))
    return {
        "says_something": round(float(np.average(said, weights=weight)), 3),
        "first_right_when_said": round(float(np.average(right[said], weights=weight[said])), 3)
        if said.any()
        else None,
        "among_first_three": round(
            float(np.average((three == y[:, None]).any(axis=1), weights=weight)), 3
        ),
        "calibration_error": round(float(error), 3),
        "log_loss": round(_loss(np.log(np.maximum(p, 1e-12)), y, weight), 3),
    }


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("models/data/fault_types.json")
)
@click.option("--per-type", type=click.IntRange(FOLDS), default=30, show_default=True)
@click.option("--minutes", type=click.FloatRange(5.0), default=15.0, show_default=True)
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True)
def main(out: Path, per_type: int, minutes: float, workers: int) -> None:
    """Simulate, detect, learn, and write the model."""
    found = examples(per_type, minutes, workers)
    model = learn(found)
    assert all(len(row) == len(FEATURES) for row in model.weights)
    model.save(out)
    click.echo(f"{out}: {model.trained_on}")
    click.echo(f"{model.quality}")


if __name__ == "__main__":
    main()
