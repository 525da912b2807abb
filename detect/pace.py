"""Whether the job makes less progress per second than it used to: somebody holds it up.

Medians forget what is short (a checkpoint, an evaluation) and see what stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SAMPLE_SECONDS = 5.0
LATELY = 12
"""Samples that are the present: a minute."""
NOTICED_SECONDS = SAMPLE_SECONDS * LATELY / 2
"""So late their median shows what stays, or later where a tick is longer than a sample."""
EVERY = 4
USUAL = 60
"""Medians of the present, one every few samples, that are the past: twenty minutes."""
LEAST_PAST = 8
PATIENT_SECONDS = 600.0
"""Slower for so long is the job's new pace; until then, or until it passes, it is no past,"""
LEAST_SETTLED = 30
"""for a job with so much of it: at first the usual itself is still being found."""
SLOWER = 0.05
SWING_QUANTILE = 20.0
"""Slower by this share of the usual, and by more than the slowest fifth of the past."""


class Pace:
    """Follows one job's progress; a few dozen floats."""

    def __init__(self) -> None:
        self.slower_seconds = 0.0
        """So long the job has run slower than it used to; 0 if it does not."""
        self._lately: list[float] = []
        self._usual: list[float] = []
        self._held: list[float] = []
        """What will be the past when the job is no longer slower."""
        self._sum = 0.0
        self._seconds = 0.0
        self._samples = 0
        self._slower = False
        self._sample_seconds = SAMPLE_SECONDS

    @property
    def noticed_seconds(self) -> float:
        """Seconds from when the job became slower until that is seen."""
        return LATELY / 2 * self._sample_seconds

    def step(self, progress: float, seconds: float) -> None:
        """Take ``seconds`` of work at ``progress``, a share of what is usual of the metrics."""
        self._sum += progress * seconds
        self._seconds += seconds
        if self._seconds >= SAMPLE_SECONDS:
            self._sample_seconds = self._seconds
            self._sample(self._sum / self._seconds)
            self._sum = self._seconds = 0.0
        self.slower_seconds = self.slower_seconds + seconds if self._slower else 0.0

    def _sample(self, mean: float) -> None:
        self._lately = [*self._lately, mean][-LATELY:]
        now = float(np.median(self._lately))
        self._slower = False
        if len(self._usual) >= LEAST_PAST:
            usual, low = np.percentile(self._usual, (50.0, SWING_QUANTILE))
            self._slower = bool(usual - now > max(SLOWER * usual, usual - low))
        self._samples += 1
        if self._samples % EVERY == 0 and len(self._lately) == LATELY:
            self._held = [*self._held, now]
        settled = len(self._usual) >= LEAST_SETTLED
        if not (self._slower and settled) or self.slower_seconds >= PATIENT_SECONDS:
            self._usual = [*self._usual, *self._held][-USUAL:]
            self._held = []

    def snapshot(self) -> dict[str, Any]:
        """State tree."""
        return {
            "slower_seconds": self.slower_seconds,
            "lately": self._lately,
            "usual": self._usual,
            "held": self._held,
            "sum": self._sum,
            "seconds": self._seconds,
            "samples": self._samples,
            "slower": self._slower,
            "sample_seconds": self._sample_seconds,
        }

    def restore(self, tree: dict[str, Any]) -> None:
        """Inverse of `snapshot`."""
        self.slower_seconds = tree["slower_seconds"]
        self._lately, self._usual = list(tree["lately"]), list(tree["usual"])
        self._held = list(tree["held"])
        self._sum, self._seconds = tree["sum"], tree["seconds"]
        self._samples, self._slower = tree["samples"], tree["slower"]
        self._sample_seconds = tree["sample_seconds"]
