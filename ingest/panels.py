"""From the two grids of a job (machine rows, GPU rows) to the panels of a block."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from ingest.ticks import Panel

Layer = tuple[tuple[str, ...], NDArray[np.float64], NDArray[np.bool_]]
"""Metrics (sorted), values and freshness, both ``[metric, tick, row]``."""


def blank(metrics: tuple[str, ...], ticks: int, rows: int) -> Layer:
    """Nothing known, in any number of ticks, without memory for them (read-only)."""
    shape = (len(metrics), ticks, rows)
    return metrics, np.broadcast_to(np.nan, shape), np.broadcast_to(np.False_, shape)


def gpu_panel(layer: Layer, machine: NDArray[np.int64], gpu: NDArray[np.int64]) -> Panel:
    """The panel of single GPUs; a row is the given GPU of the given machine."""
    metrics, values, fresh = layer
    return Panel("gpu", metrics, machine, gpu, values.transpose(0, 2, 1), fresh.transpose(0, 2, 1))


def machine_panel(layer: Layer, machines: int) -> Panel:
    """The panel of machines."""
    metrics, values, fresh = layer
    return Panel(
        "machine",
        metrics,
        np.arange(machines, dtype=np.int64),
        np.full(machines, -1, dtype=np.int64),
        values.transpose(0, 2, 1),
        fresh.transpose(0, 2, 1),
    )


def over_gpus(
    layer: Layer, machine: NDArray[np.int64], machines: int, sticky: Collection[str]
) -> Layer:
    """Each machine's mean over its GPUs that have a value; the largest code of sticky metrics.

    ``machine`` is sorted, one entry per GPU row. A machine without GPU rows is NaN.
    """
    metrics, values, fresh = layer
    owners, starts = np.unique(machine, return_index=True)
    present = np.isfinite(values)
    count = np.add.reduceat(present, starts, axis=2, dtype=np.int64)
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.add.reduceat(np.where(present, values, 0.0), starts, axis=2)
        mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    for index, metric in enumerate(metrics):
        if metric in sticky:
            mean[index] = np.fmax.reduceat(values[index], starts, axis=1)
    any_fresh = np.logical_or.reduceat(fresh, starts, axis=2)
    if owners.size == machines:
        return metrics, mean, any_fresh
    shape = (len(metrics), values.shape[1], machines)
    all_values, all_fresh = np.full(shape, np.nan), np.zeros(shape, dtype=np.bool_)
    all_values[:, :, owners], all_fresh[:, :, owners] = mean, any_fresh
    return metrics, all_values, all_fresh


def united(own: Layer, of_gpus: Layer) -> Layer:
    """Machine-level values where there are any, else those taken over the GPUs."""
    metrics = tuple(sorted({*own[0], *of_gpus[0]}))
    values = np.empty((len(metrics), *own[1].shape[1:]))
    fresh = np.empty(values.shape, dtype=np.bool_)
    for index, metric in enumerate(metrics):
        sources = [
            (layer[1][layer[0].index(metric)], layer[2][layer[0].index(metric)])
            for layer in (own, of_gpus)
            if metric in layer[0]
        ]
        values[index], fresh[index] = sources[0]
        if len(sources) == 2:
            gap = np.isnan(values[index])
            values[index][gap], fresh[index][gap] = sources[1][0][gap], sources[1][1][gap]
    return metrics, values, fresh
