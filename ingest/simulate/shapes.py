"""How strongly an event acts over time: a piecewise linear amplitude between 0 and 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

FOREVER = 1e12
"""A time after everything, in seconds; finite so that arithmetic stays finite."""

_EDGE_S = 1e-3
_STAIR_S = 2.0
_MAX_STAIRS = 60


@dataclass(frozen=True, slots=True)
class Envelope:
    """Amplitude over time; ``times`` increase strictly, the amplitude is 0 before the first."""

    times: tuple[float, ...]
    values: tuple[float, ...]

    @property
    def start_s(self) -> float:
        """When the event begins to act."""
        return self.times[0]

    @property
    def end_s(self) -> float:
        """When it has ceased to act (`FOREVER` if it does not)."""
        return self.times[-1] if self.values[-1] == 0.0 else FOREVER

    def integral(self, at: FloatArray) -> FloatArray:
        """The amplitude integrated from the start to each time in ``at`` (any shape)."""
        times = np.asarray(self.times)
        values = np.asarray(self.values)
        steps = np.diff(times) * 0.5 * (values[1:] + values[:-1])
        sums = np.concatenate(([0.0], np.add.accumulate(steps)))
        index = np.clip(np.searchsorted(times, at, side="right") - 1, 0, len(times) - 1)
        following = np.minimum(index + 1, len(times) - 1)
        gap = times[following] - times[index]
        slope = np.where(
            gap > 0, (values[following] - values[index]) / np.where(gap > 0, gap, 1), 0
        )
        elapsed = np.maximum(at - times[index], 0.0)
        area: FloatArray = sums[index] + elapsed * (values[index] + 0.5 * slope * elapsed)
        return area

    def stairs(self) -> tuple[list[float], list[float]]:
        """The amplitude as a step function: times at which it changes, and to what."""
        times: list[float] = []
        values: list[float] = []
        for t0, t1, v0, v1 in zip(
            self.times, self.times[1:], self.values, self.values[1:], strict=False
        ):
            if t1 - t0 <= 2 * _EDGE_S or v0 == v1:
                times.append(t0)
                values.append(v1)
                continue
            count = int(min(max((t1 - t0) / _STAIR_S, 1), _MAX_STAIRS))
            for i in range(count):
                times.append(t0 + (t1 - t0) * i / count)
                values.append(v0 + (v1 - v0) * (i + 0.5) / count)
        times.append(self.times[-1])
        values.append(self.values[-1])
        return times, values


def pulse(start_s: float, seconds: float = FOREVER, ramp_s: float = 0.0) -> Envelope:
    """Full strength for ``seconds`` after rising linearly over ``ramp_s``."""
    ramp = max(ramp_s, _EDGE_S)
    if seconds >= FOREVER:
        return Envelope((start_s, start_s + ramp), (0.0, 1.0))
    end = start_s + max(seconds, ramp + _EDGE_S)
    return Envelope((start_s, start_s + ramp, end, end + _EDGE_S), (0.0, 1.0, 1.0, 0.0))


def blinking(rng: np.random.Generator, start_s: float, until_s: float, mean_s: float) -> Envelope:
    """On and off in turns of random length around ``mean_s``, on first, off after ``until_s``."""
    times: list[float] = []
    values: list[float] = []
    t = start_s
    on = True
    while t < until_s and len(times) < 2000:
        times += [t, t + _EDGE_S]
        values += [0.0, 1.0] if on else [1.0, 0.0]
        t += mean_s * (0.3 + 1.4 * float(rng.random())) + 2 * _EDGE_S
        on = not on
    if values[-1] == 1.0:
        times += [t, t + _EDGE_S]
        values += [1.0, 0.0]
    return Envelope(tuple(times), tuple(values))
