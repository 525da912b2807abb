"""Which metric to look at first, learned by a decision tree as in Minder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier


def learn_priority(
    features: NDArray[np.float64],
    faulty: NDArray[np.bool_],
    metrics: Sequence[str],
    *,
    depth: int = 7,
    seed: int = 0,
) -> tuple[str, ...]:
    """Order metrics by how near to a decision tree's root they split (arXiv 2411.01791).

    Parameters
    ----------
    features
        ``float64 [window, metric]``: the largest z-score over the machines in that window, as
        `detect.similarity.distance_zscores` gives it. NaN counts as 0, "nobody stands out".
    faulty
        ``bool [window]``: a machine was faulty during the window.
    metrics
        Names of the columns.
    depth, seed
        Depth of the tree, and the seed of its tie-breaks.

    Returns
    -------
    tuple of str
        All metrics, best first: by the depth of the first split on them, then by the tree's
        importance, then as given. Metrics that the tree does not use come last.

    Raises
    ------
    ValueError
        If all windows have the same label.
    """
    if faulty.all() or not faulty.any():
        raise ValueError("learning a priority needs both healthy and faulty windows")
    tree = DecisionTreeClassifier(max_depth=depth, class_weight="balanced", random_state=seed)
    tree.fit(np.nan_to_num(features, nan=0.0, posinf=0.0, neginf=0.0), faulty)
    nodes = tree.tree_
    first: dict[int, int] = {}
    level, at = [0], 0
    while level:
        for node in level:
            if nodes.feature[node] >= 0:
                first.setdefault(int(nodes.feature[node]), at)
        level = [
            int(child)
            for node in level
            for child in (nodes.children_left[node], nodes.children_right[node])
            if child >= 0
        ]
        at += 1
    order = sorted(
        range(len(metrics)),
        key=lambda m: (first.get(m, at), -float(tree.feature_importances_[m]), m),
    )
    return tuple(metrics[m] for m in order)
