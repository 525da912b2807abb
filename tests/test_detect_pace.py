"""Whether the job runs slower than it used to, and for how long that counts."""

from __future__ import annotations

import numpy as np
import pytest

from detect.pace import NOTICED_SECONDS, PATIENT_SECONDS, Pace


def run(pace: Pace, progress: float, seconds: int, noise: float = 0.01) -> None:
    rng = np.random.default_rng(7)
    for one in rng.normal(progress, noise, seconds):
        pace.step(float(one), 1.0)


@pytest.mark.parametrize("progress", [0.6, 0.9])
def test_a_job_that_stays_slower_is_slower_until_that_is_its_new_pace(progress: float) -> None:
    pace = Pace()
    run(pace, 1.0, 1200)
    assert pace.slower_seconds == 0
    run(pace, progress, 400)
    assert pace.slower_seconds == pytest.approx(400 - NOTICED_SECONDS, abs=10)
    run(pace, progress, int(PATIENT_SECONDS) + 1200)
    assert pace.slower_seconds == 0


def test_a_short_pause_and_a_pace_that_swings_are_no_slowness() -> None:
    pace = Pace()
    for _ in range(20):
        run(pace, 1.0, 120)
        run(pace, 0.8, 90, noise=0.0)
    assert pace.slower_seconds == 0
    run(pace, 1.0, 600)
    run(pace, 0.0, 20)
    assert pace.slower_seconds == 0


def test_a_restored_pace_goes_on_as_the_one_that_was_stored() -> None:
    whole, cut = Pace(), Pace()
    for pace in (whole, cut):
        run(pace, 1.0, 700)
    tree = cut.snapshot()
    cut = Pace()
    cut.restore(tree)
    for pace in (whole, cut):
        run(pace, 0.7, 300)
    assert cut.snapshot() == whole.snapshot()
    assert cut.slower_seconds > 0
