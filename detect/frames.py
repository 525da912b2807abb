"""Score frames waiting to be taken, bounded."""

from __future__ import annotations

from collections import deque

from detect.detector import ScoreFrame


class FrameQueue:
    """Keeps the newest frames: at most ``limit_frames``, of ``limit_cells`` machine-ticks."""

    def __init__(self, limit_cells: int = 4_000_000, limit_frames: int = 4096) -> None:
        self.limit_cells = limit_cells
        self.limit_frames = limit_frames
        self._frames: deque[ScoreFrame] = deque()
        self._cells = 0

    def add(self, frame: ScoreFrame) -> None:
        """Append a frame, dropping the oldest ones beyond the bounds."""
        self._frames.append(frame)
        self._cells += frame.scores.size
        while len(self._frames) > 1 and (
            self._cells > self.limit_cells or len(self._frames) > self.limit_frames
        ):
            self._cells -= self._frames.popleft().scores.size

    def take(self) -> list[ScoreFrame]:
        """All frames, oldest first; the queue is empty afterwards."""
        frames = list(self._frames)
        self._frames.clear()
        self._cells = 0
        return frames
