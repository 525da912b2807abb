"""One recording through several detectors: each says what it says alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from detect.alert import AlertChange
from detect.registry import make_detector
from ingest.catalogue import Catalogue
from ingest.simulate import Wishes
from ingest.ticks import Panel, TickBlock
from replay.blocks import BlockTap
from replay.quality.sources import Simulated
from replay.runner import ReplayOptions, replay_recording
from replay.together import LEAST_TICKS, Maker, Together, replay_together
from tests.ticks_support import block_of, cut, healthy_values

CATALOGUE = Catalogue.default()
DETECTORS = ("ratio", "minder-best", "mahalanobis", "random")


class Listener(BlockTap):
    """Keeps the blocks it gets, and when it was told of the end."""

    def __init__(self) -> None:
        self.blocks: list[TickBlock] = []
        self.ended: list[int] = []
        super().__init__(self.blocks)

    def finish(self, at_ns: int) -> list[AlertChange]:
        self.ended.append(at_ns)
        return super().finish(at_ns)


def heard(blocks: list[TickBlock]) -> Listener:
    listener = Listener()
    together = Together({"a": listener}, lambda *_: None, lambda *_: None)
    for block in blocks:
        assert together.update(block) == []
    together.finish(1)
    return listener


def test_each_detector_says_what_it_says_alone() -> None:
    wishes = Wishes(machines=6, fault="ecc_error", minutes=20.0, cadence_seconds=1.0, per_gpu=False)
    source = Simulated(103, 0, wishes=wishes)
    recording = source.opened("x", CATALOGUE, Path()).recording

    def maker(name: str) -> Maker:
        return lambda job: make_detector(name, job, catalogue=CATALOGUE)

    results = replay_together(recording, {name: maker(name) for name in DETECTORS}, CATALOGUE)
    assert any(r.changes for r in results.values())
    for name in DETECTORS:
        alone = replay_recording(recording, ReplayOptions(detector=name, history=True))
        same = replace(alone, compute_seconds=0.0, histories={})
        assert replace(results[name], compute_seconds=0.0) == same


def test_small_blocks_are_handed_on_as_large_ones() -> None:
    whole = block_of(healthy_values(3, LEAST_TICKS + 100))
    listener = heard(cut(whole, [50] * 14))
    assert [b.ticks for b in listener.blocks] == [LEAST_TICKS, 100]
    joined = np.concatenate([b.machine_panel.values for b in listener.blocks], axis=2)
    assert np.array_equal(joined, whole.machine_panel.values)
    assert listener.ended == [1]


def test_blocks_that_do_not_follow_are_not_joined() -> None:
    values = healthy_values(3, 40)
    first = block_of(values)
    at = first.start_ns + 40 * first.tick_ns
    for other in (
        block_of(values, start_ns=at + first.tick_ns),
        block_of(values, start_ns=at, run=1),
        block_of(values, start_ns=at, roster=1),
    ):
        assert [b.ticks for b in heard([first, other]).blocks] == [40, 40]


def test_gpu_panels_are_joined_too() -> None:
    pieces = cut(block_of(healthy_values(3, 40)), [20])
    gpus = [
        replace(
            b,
            gpu_panel=Panel("gpu", ("x",), np.zeros(1, np.int64), np.zeros(1, np.int64),
                            np.full((1, 1, 20), float(k)), np.ones((1, 1, 20), np.bool_)),
        )
        for k, b in enumerate(pieces)
    ]  # fmt: skip
    (block,) = heard(gpus).blocks
    assert block.gpu_panel is not None
    assert block.gpu_panel.values[0, 0].tolist() == [0.0] * 20 + [1.0] * 20
