"""From a lasting candidate to the finding that an alert states."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detect.alert_book import Finding
from detect.peers import compare_with_peers, largest_differences
from ingest.catalogue import Catalogue


def describe(
    machine: int,
    spoke: dict[str, tuple[float, int]],
    *,
    metrics: tuple[str, ...],
    machines: tuple[str, ...],
    values: NDArray[np.float64],
    at_ns: int,
    catalogue: Catalogue,
) -> Finding:
    """A finding about one machine.

    Parameters
    ----------
    machine
        Row of the accused machine.
    spoke
        Channel to (share of the threshold, event time since which it lasts). A channel that is
        no metric judges all metrics together; the evidence then lists those that differ most.
    metrics, machines, values
        ``values`` is ``float64 [metric, machine]`` at detection.
    at_ns
        Event time of detection.
    """
    onset = min(since for _, since in spoke.values())
    named = {c: s for c, s in spoke.items() if c in metrics}
    total = sum(share for share, _ in named.values())
    evidence = tuple(
        compare_with_peers(
            channel,
            catalogue.metric(channel).seen_unit,
            values[metrics.index(channel)],
            machine,
            since_ns=named[channel][1],
            share=named[channel][0] / total if total > 0 else 1.0 / len(named),
        )
        for channel in sorted(named, key=lambda c: -named[c][0])
    )
    if not named:
        units = [catalogue.metric(m).seen_unit for m in metrics]
        evidence = largest_differences(metrics, units, values, machine, since_ns=onset)
    return Finding(machines[machine], onset, at_ns, evidence)
