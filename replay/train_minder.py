"""Learning the Minder detector's model from recordings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from detect.minder import MinderSettings
from ingest.catalogue import Catalogue
from ingest.recording import Label, read_recording
from ingest.ticks import TickBlock
from models.denoise.lstm_vae import LstmVaeDenoiser
from models.denoise.registry import denoiser
from models.minder_model import MINDER_METRICS, MinderModel
from models.priority import learn_priority
from replay.blocks import recorded_blocks
from replay.zscore_tape import ZScoreTape, taped_detector

WINDOWS_PER_RECORDING = 3_000
PRIORITY_EVERY_TICKS = 15
HEADROOM = 1.1


def train_minder(
    paths: Sequence[Path],
    *,
    name: str = "minder",
    denoiser_name: str = "lstm_vae",
    window: int = 8,
    seed: int = 0,
    catalogue: Catalogue | None = None,
    steps: int = 8_000,
    labels: Mapping[Path, Label] | None = None,
) -> MinderModel:
    """Learn limits, one denoiser a metric, and the order of the metrics.

    Parameters
    ----------
    paths
        Recordings. Windows come from healthy ones and from before the onset of faulty ones;
        the order of metrics needs both healthy and faulty time, and stays as published without.
    denoiser_name, window
        Which denoiser, over how many ticks.
    seed
        Seeds the choice of windows, the training and the tree.
    steps
        Training steps of each LSTM-VAE; other denoisers have none.
    labels
        Of recordings that have none of their own.

    Raises
    ------
    ValueError
        If no recording has one of Minder's metrics.
    """
    catalogue, given = catalogue or Catalogue.default(), labels or {}
    windows: dict[str, list[NDArray[np.float64]]] = {m: [] for m in MINDER_METRICS}
    for index, path in enumerate(paths):
        rng = np.random.default_rng([seed, index])
        recording, blocks = recorded_blocks(path, catalogue, given.get(path))
        for metric, rows in _healthy_windows(list(blocks), recording.label, window, rng).items():
            windows[metric].append(rows)
    metrics = tuple(m for m in MINDER_METRICS if windows[m])
    if not metrics:
        raise ValueError("no recording has a metric that Minder uses")
    limits, denoisers, errors = {}, {}, {}
    for metric in metrics:
        rows = np.concatenate(windows.pop(metric))
        low, high = limits[metric] = _limits(metric, rows, catalogue)
        made = denoiser(denoiser_name, window)
        if isinstance(made, LstmVaeDenoiser):
            made.seed, made.steps = seed, steps
        scaled = (rows - low) / (high - low)
        made.fit(scaled)
        errors[metric] = float(np.mean((made.denoise(scaled) - scaled) ** 2))
        denoisers[metric] = made
    trained_on = {"recordings": len(paths), "seed": seed, "reconstruction_error": errors}
    model = MinderModel(name, window, metrics, limits, denoisers, trained_on)
    order = _learned_order(paths, model, catalogue, seed, given)
    return MinderModel(name, window, order, limits, denoisers, trained_on)


def _limits(metric: str, rows: NDArray[np.float64], catalogue: Catalogue) -> tuple[float, float]:
    """Fixed limits: 0 to 1 for a ratio, else up to what training saw and a tenth more.

    The catalogue's physical limits only say what is a corrupt read; most lie orders of
    magnitude above what machines reach, and would squeeze every window to a flat line.
    """
    if catalogue.metric(metric).unit == "ratio":
        return 0.0, 1.0
    low = min(0.0, float(rows.min()))
    return low, max(low + 1e-9, HEADROOM * float(rows.max()))


def _healthy_windows(
    blocks: Sequence[TickBlock], label: Label | None, window: int, rng: np.random.Generator
) -> dict[str, NDArray[np.float64]]:
    """Some complete windows of every metric, in its unit, from healthy time."""
    kept: dict[str, list[NDArray[np.float64]]] = {}
    ticks = sum(b.ticks for b in blocks) or 1
    for block in blocks:
        end = _healthy_ticks(block, label)
        share = int(np.ceil(WINDOWS_PER_RECORDING * block.ticks / ticks))
        for metric in MINDER_METRICS:
            if metric not in block.machine_panel.metrics or end < window:
                continue
            values = block.machine_panel.values[block.machine_panel.metrics.index(metric), :, :end]
            of_block = sliding_window_view(values, window, axis=1).reshape(-1, window)
            picked = of_block[rng.integers(0, len(of_block), share)]
            kept.setdefault(metric, []).append(picked[np.isfinite(picked).all(axis=1)])
    joined = {metric: np.concatenate(rows) for metric, rows in kept.items()}
    return {metric: rows for metric, rows in joined.items() if len(rows)}


def _healthy_ticks(block: TickBlock, label: Label | None) -> int:
    """How many of the block's ticks lie before any fault."""
    if label is None or not label.faulty_machines:
        return block.ticks
    if label.onset_ns is None:
        return 0
    return int(np.clip((label.onset_ns - block.start_ns) // block.tick_ns, 0, block.ticks))


def _learned_order(
    paths: Sequence[Path],
    model: MinderModel,
    catalogue: Catalogue,
    seed: int,
    given: Mapping[Path, Label],
) -> tuple[str, ...]:
    """Order of the metrics from labelled time; the model's own if only one kind is there."""
    features, faulty = [], []
    if not any(_is_faulty(path, catalogue, given.get(path)) for path in paths):
        return model.metrics
    for path in paths:
        recording, blocks = recorded_blocks(path, catalogue, given.get(path))
        label = recording.label
        if label is None:
            continue
        tape: ZScoreTape = {}
        detector = taped_detector(recording.name, catalogue, model, MinderSettings.best(), tape)
        tick_ns = 0
        for block in blocks:
            tick_ns = block.tick_ns
            detector.update(block)
        for start_ns, (metrics, zscores) in tape.items():
            at = start_ns + np.arange(len(zscores)) * tick_ns
            after = np.full(len(at), bool(label.faulty_machines))
            if label.onset_ns is not None:
                after &= at >= label.onset_ns
            # After the halt nothing runs: it is neither health nor a fault's pattern.
            running = at < (label.halt_ns or at[-1] + tick_ns)
            largest = _largest(zscores, metrics, model.metrics)
            features.append(largest[running][::PRIORITY_EVERY_TICKS])
            faulty.append(after[running][::PRIORITY_EVERY_TICKS])
    labels = np.concatenate(faulty) if faulty else np.zeros(0, dtype=np.bool_)
    if labels.all() or not labels.any():
        return model.metrics
    return learn_priority(np.concatenate(features), labels, model.metrics, seed=seed)


def _is_faulty(path: Path, catalogue: Catalogue, given: Label | None) -> bool:
    """Whether a recording's label names a faulty machine."""
    label = read_recording(path, catalogue, given).label
    return bool(label and label.faulty_machines)


def _largest(
    zscores: NDArray[np.float64], metrics: tuple[str, ...], wanted: tuple[str, ...]
) -> NDArray[np.float64]:
    """Largest z-score over the machines, ``[T, wanted]`` of ``[T, metrics, N]``."""
    out = np.full((len(zscores), len(wanted)), np.nan)
    for c, metric in enumerate(metrics):
        if metric in wanted:
            out[:, wanted.index(metric)] = np.fmax.reduce(zscores[:, c], axis=1)
    return out
