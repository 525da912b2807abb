"""Score frames waiting to be taken, bounded."""

from __future__ import annotations

from collections import deque

from detect.detector import ScoreFrame


class FrameQueue:
    """Keeps the newest frames within ``limit_cells`` machine-ticks."""

    def __init__(self, limit_cells: int = 4_000_000) -> None:
        self.limit_cells = limit_cells
        self._frames: deque[ScoreFrame] = deque()
        self._cells = 0

    def add(self, frame: ScoreFrame) -> None:
        """Append a frame, dropping the oldest ones beyond the bound."""
        self._frames.append(frame)
        self._cells += frame.scores.size
        while self._cells > self.limit_cells and len(self._frames) > 1:
            self._cells -= self._frames.popleft().scores.size

    def take(self) -> list[ScoreFrame]:
        """All frames, oldest first; the queue is empty afterwards."""
        frames = list(self._frames)
        self._frames.clear()
        self._cells = 0
        return frames
