"""Learns the shipped model of fault types: ``python -m replay.train_fault_types``.

Simulated labelled incidents go through the default detector; what its right alerts show are the
examples (`replay.fault_examples`). An example weighs what its type's published share asks for, so
that the probabilities hold for the mix that clusters see. The temperature is chosen on folds that
were left out; quality is measured on seeds that neither taught nor chose anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold

from detect.alert import Alert
from detect.fault_types import fault_types, signature
from ingest.simulate import FAULT_MIX
from models.evidence_model import ModelError
from models.signature import CELLS, FEATURES, SHIPPED, SignatureModel, shipped_signatures
from replay.fault_examples import (
    Example,
    Incident,
    of_each_type,
    of_the_mix,
    read_examples,
    simulated,
    write_line,
)

Array = NDArray[np.float64]

TRAIN_SEEDS = tuple(range(111, 130))
REPORT_SEEDS = tuple(range(8201, 8211))
FOLDS = 5
STRENGTH = 1.0
"""Inverse of the penalty on the coefficients."""
TEMPERATURES = np.geomspace(0.6, 3.0, 24)
THINNED = 2
"""Copies of every example from which some metrics were taken away: jobs report few, or others."""
THINNING = (0.1, 0.7)
LEAST_SEEN = 5
"""A cell of the evidence is learned from this many incidents on."""
BINS = 8


def learn(examples: Sequence[Example], seed: int = 0) -> SignatureModel:
    """Fit on examples, calibrated on folds of incidents that were left out.

    Types with fewer right alerts than folds are not learned. Incidents without a right alert
    count too: what is seldom found is seldom what an alert is about.
    """
    found = [e for e in examples if e.alerts]
    right = Counter(e.fault for e in found)
    tried = Counter(e.fault for e in examples)
    types = tuple(sorted(t for t, n in right.items() if n >= FOLDS))
    x, y, weight, group = _rows([e for e in found if e.fault in types], types, tried, seed)
    logits = np.zeros((len(y), len(types)))
    folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed)
    for train, test in folds.split(x, y, group):
        logits[test] = _logits(_fit(x[train], y[train], weight[train]), x[test])
    losses = [_loss(_softmax(logits / t), y, weight) for t in TEMPERATURES]
    temperature = float(TEMPERATURES[int(np.argmin(losses))])
    fitted = _fit(x, y, weight)
    prior = np.array([FAULT_MIX[t] * right[t] / tried[t] for t in types])
    seen = [len(set(group[x[:, c] > 0])) for c in range(CELLS)]
    return SignatureModel(
        types=types,
        weights=tuple(tuple(row) for row in np.round(fitted.coef_ / temperature, 5).tolist()),
        bias=tuple(np.round(fitted.intercept_ / temperature, 5).tolist()),
        prior=tuple(np.round(prior / prior.sum(), 5).tolist()),
        learned=tuple(FEATURES[c] for c in range(CELLS) if seen[c] >= LEAST_SEEN),
        trained_on={
            "incidents": len(examples),
            "right_alerts": {t: right[t] for t in FAULT_MIX},
            "seeds": sorted({e.seed for e in examples}),
            "temperature": round(temperature, 3),
        },
    )


def _rows(
    found: Sequence[Example], types: Sequence[str], tried: Counter[str], seed: int
) -> tuple[Array, NDArray[np.int64], Array, NDArray[np.int64]]:
    """Features, type, weight and incident of every state of every alert, thinned ones too."""
    rng = np.random.default_rng(seed)
    x, y, weight, group = [], [], [], []
    for k, example in enumerate(found):
        states = list(example.alerts)
        states += [_thinned(a, rng) for a in example.alerts for _ in range(THINNED)]
        for state in states:
            x.append(signature(state))
            y.append(types.index(example.fault))
            weight.append(FAULT_MIX[example.fault] / tried[example.fault] / len(states))
            group.append(k)
    w = np.array(weight)
    return np.array(x), np.array(y), w * len(found) / w.sum(), np.array(group)


def _thinned(alert: Alert, rng: np.random.Generator) -> Alert:
    """The alert as it were if the job reported fewer metrics; one stays at least."""
    stays = rng.random(len(alert.evidence)) > rng.uniform(*THINNING)
    if len(stays) and not stays.any():
        stays[rng.integers(len(stays))] = True
    evidence = tuple(e for e, s in zip(alert.evidence, stays, strict=True) if s)
    return replace(alert, evidence=evidence)


def _fit(x: Array, y: NDArray[np.int64], weight: Array) -> LogisticRegression:
    return LogisticRegression(C=STRENGTH, max_iter=2000).fit(x, y, sample_weight=weight)


def _logits(fitted: LogisticRegression, x: Array) -> Array:
    return np.asarray(x @ fitted.coef_.T + fitted.intercept_)


def _softmax(logits: Array) -> Array:
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def _loss(p: Array, y: NDArray[np.int64], weight: Array) -> float:
    chance = np.maximum(p[np.arange(len(y)), y], 1e-6)
    return float(np.average(-np.log(chance), weights=weight))


def quality(model: SignatureModel, examples: Sequence[Example]) -> dict[str, Any]:
    """How good the probabilities are on right alerts as they opened, drawn from the usual mix.

    ``calibration_error`` is the expected one of the most probable type, over all alerts and over
    those of which something is said. ``prior`` is who always answers with the published shares.
    """
    found = [e for e in examples if e.alerts]
    p = np.array([model.probabilities(signature(e.alerts[0])) for e in found])
    said = np.array([bool(fault_types(e.alerts[0], model)) for e in found])
    everyone = np.ones(len(found), np.bool_)
    prior = np.tile(np.array(model.prior), (len(found), 1))
    return {
        "alerts": len(found),
        "said": round(float(said.mean()), 3),
        "when_said": _figures(p, found, model.types, said),
        "all": _figures(p, found, model.types, everyone),
        "prior": _figures(prior, found, model.types, everyone),
    }


def _figures(
    p: Array, found: Sequence[Example], types: Sequence[str], which: NDArray[np.bool_]
) -> dict[str, float]:
    # A type that was never learned is never right.
    y = np.array([types.index(e.fault) if e.fault in types else -1 for e in found])[which]
    p = p[which]
    order = np.argsort(-p, axis=1, kind="stable")
    hit = order == y[:, None]
    top = p.max(axis=1)
    of = np.minimum((top * BINS).astype(int), BINS - 1)
    gaps = [abs(float((top - hit[:, 0])[of == b].sum())) for b in range(BINS)]
    chance = np.where(y >= 0, p[np.arange(len(y)), y], 0.0)
    return {
        "first_right": round(float(hit[:, 0].mean()), 3),
        "first_two": round(float(hit[:, :2].any(axis=1).mean()), 3),
        "first_three": round(float(hit[:, :3].any(axis=1).mean()), 3),
        "calibration_error": round(sum(gaps) / len(y), 3),
        "log_loss": round(float(-np.log(np.maximum(chance, 1e-6)).mean()), 3),
    }


def _examples(path: Path | None, incidents: Sequence[Incident], workers: int) -> list[Example]:
    """From the cache, the missing ones simulated and added to it."""
    have = {(e.seed, e.index): e for e in (read_examples(path) if path else [])}
    missing = [i for i in incidents if (i.seed, i.index) not in have]
    for done, example in enumerate(simulated(missing, workers), 1):
        have[example.seed, example.index] = example
        if path:
            with path.open("a") as lines:
                lines.write(write_line(example) + "\n")
        if done % 20 == 0:
            click.echo(f"{done}/{len(missing)} incidents", err=True)
    return [have[i.seed, i.index] for i in incidents]


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("models/data/fault_types.json")
)
@click.option("--incidents", type=click.IntRange(100), default=600, show_default=True)
@click.option("--report", type=click.IntRange(20), default=200, show_default=True)
@click.option(
    "--cache", type=click.Path(path_type=Path), help="Keeps the alerts, for another training."
)
@click.option(
    "--also",
    type=click.Path(path_type=Path, exists=True),
    multiple=True,
    help="Further labelled alerts, lines as in the cache.",
)
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True)
def main(
    out: Path,
    incidents: int,
    report: int,
    cache: Path | None,
    also: tuple[Path, ...],
    workers: int,
) -> None:
    """Simulate, detect, learn, measure, and write the model."""
    try:
        shipped_signatures()
    except ModelError:
        # Of other features, or damaged: detection must run to learn a new one.
        SignatureModel.silent().save(Path(str(resources.files("models") / "data"), SHIPPED))
        shipped_signatures.cache_clear()
    teaching = _examples(cache, of_each_type(TRAIN_SEEDS, incidents), workers)
    model = learn(teaching + [e for path in also for e in read_examples(path)])
    measured = quality(model, _examples(cache, of_the_mix(REPORT_SEEDS, report), workers))
    measured["seeds"] = [REPORT_SEEDS[0], REPORT_SEEDS[-1]]
    replace(model, quality=measured).save(out)
    click.echo(f"{out}: {model.trained_on}")
    click.echo(f"{measured}")


if __name__ == "__main__":
    main()
