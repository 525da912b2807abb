"""Joining neighbouring tick blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ingest.ticks import Panel, TickBlock

_MOST_CELLS = 1_000_000


def joined(blocks: Sequence[TickBlock]) -> list[TickBlock]:
    """The same ticks in fewer blocks: neighbours with one roster become one block."""
    out: list[TickBlock] = []
    group: list[TickBlock] = []
    cells = 0
    for block in blocks:
        size = block.machine_panel.values.size
        if block.gpu_panel is not None:
            size += block.gpu_panel.values.size
        if group and (not _follows(group[-1], block) or cells + size > _MOST_CELLS):
            out.append(_join(group))
            group, cells = [], 0
        group.append(block)
        cells += size
    if group:
        out.append(_join(group))
    return out


def _follows(before: TickBlock, after: TickBlock) -> bool:
    end = before.start_ns + before.ticks * before.tick_ns
    return (before.run, before.roster, end) == (after.run, after.roster, after.start_ns)


def _join(blocks: list[TickBlock]) -> TickBlock:
    if len(blocks) == 1:
        return blocks[0]
    gpu_panels = [b.gpu_panel for b in blocks if b.gpu_panel is not None]
    return replace(
        blocks[0],
        machine_panel=_join_panels([b.machine_panel for b in blocks]),
        gpu_panel=_join_panels(gpu_panels) if gpu_panels else None,
    )


def _join_panels(panels: list[Panel]) -> Panel:
    # Stacked as [metric, time, row], so that one tick of one metric is contiguous.
    values = np.concatenate([p.values.transpose(0, 2, 1) for p in panels], axis=1)
    fresh = np.concatenate([p.fresh.transpose(0, 2, 1) for p in panels], axis=1)
    return replace(panels[0], values=values.transpose(0, 2, 1), fresh=fresh.transpose(0, 2, 1))
