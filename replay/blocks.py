"""Recordings as the very blocks of ticks that a detector would get."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from detect.alert import AlertChange
from detect.detector import ScoreFrame, State
from detect.pipeline import Pipeline, PipelineSettings
from ingest.catalogue import Catalogue
from ingest.recording import Label, Recording, read_recording
from ingest.ticks import TickBlock
from replay.runner import Replayable


class BlockTap:
    """A `JobDetector` that says nothing and hands its blocks on."""

    def __init__(self, sink: list[TickBlock]) -> None:
        self._sink = sink

    def update(self, block: TickBlock) -> list[AlertChange]:
        """Keep the block for whoever drains the sink."""
        self._sink.append(block)
        return []

    def finish(self, at_ns: int) -> list[AlertChange]:  # noqa: ARG002
        """Nothing is open."""
        return []

    def take_scores(self) -> list[ScoreFrame]:
        """There are none."""
        return []

    def snapshot(self) -> State:
        """There is no state."""
        return {}

    def restore(self, state: State) -> None:
        """There is no state."""


def recorded_blocks(
    path: Path, catalogue: Catalogue, label: Label | None = None
) -> tuple[Recording, Iterator[TickBlock]]:
    """A recording and its blocks, through the pipeline of the live path.

    ``label`` is the recording's if it has none of its own.

    Raises `ingest.recording.RecordingError` if the recording cannot be read at all.
    """
    recording = read_recording(path, catalogue, label)
    return recording, blocks_of(recording, catalogue)


def blocks_of(recording: Replayable, catalogue: Catalogue) -> Iterator[TickBlock]:
    """The blocks of a recording that is open already."""
    sink: list[TickBlock] = []
    settings = PipelineSettings(keep_history=False)
    pipeline = Pipeline(catalogue, lambda job: BlockTap(sink), settings)  # noqa: ARG005
    for decoded in recording.batches():
        if decoded.samples.num_rows:
            pipeline.feed(decoded.samples)
            yield from sink
            sink.clear()
    pipeline.finish()
    yield from sink
