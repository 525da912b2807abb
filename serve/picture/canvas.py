"""A canvas for charts on Pillow: drawn twice as large, then halved, so that lines are smooth."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

_FINE = 2
Color = tuple[int, int, int]
Point = tuple[float, float]


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


class Canvas:
    """Coordinates in pixels of the finished picture, from the upper left."""

    def __init__(self, width: int, height: int, background: Color) -> None:
        self.width, self.height = width, height
        self._image = Image.new("RGB", (width * _FINE, height * _FINE), background)
        self._draw = ImageDraw.Draw(self._image)

    def text(self, at: Point, text: str, size: int, color: Color, *, room: float) -> float:
        """Text below and right of ``at``, cut to ``room``; returns its width."""
        font = _font(size * _FINE)
        shown = text[:300]
        while shown and self._draw.textlength(shown, font) > room * _FINE:
            shown = shown[:-2].rstrip() + "…" if len(shown) > 2 else ""
        self._draw.text((at[0] * _FINE, at[1] * _FINE), shown, color, font)
        return float(self._draw.textlength(shown, font)) / _FINE

    def wrapped(self, at: Point, text: str, size: int, color: Color, room: float) -> int:
        """Text in at most two lines; returns how many."""
        font, words, first = _font(size * _FINE), text[:300].split(" "), ""
        while words and self._draw.textlength(f"{first} {words[0]}", font) <= room * _FINE:
            first = f"{first} {words.pop(0)}".strip()
        if not first or not words:
            self.text(at, text, size, color, room=room)
            return 1
        self.text(at, first, size, color, room=room)
        self.text((at[0], at[1] + size * 1.2), " ".join(words), size, color, room=room)
        return 2

    def line(self, points: Sequence[Point], color: Color, width: float) -> None:
        """A line through all points; a single one is a dot."""
        if len(points) == 1:
            self.dot(points[0], width, color)
            return
        fine = [(x * _FINE, y * _FINE) for x, y in points]
        self._draw.line(fine, color, round(width * _FINE), joint="curve")

    def dashed(self, x: float, top: float, bottom: float, color: Color, width: float) -> None:
        """A vertical dashed line."""
        for y in np.arange(top, bottom, 12.0):
            self.line([(x, y), (x, min(bottom, y + 7))], color, width)

    def area(self, points: Sequence[Point], color: Color) -> None:
        """A filled polygon."""
        self._draw.polygon([(x * _FINE, y * _FINE) for x, y in points], color)

    def box(self, left: float, top: float, right: float, bottom: float, color: Color) -> None:
        """A filled rectangle."""
        self.area([(left, top), (right, top), (right, bottom), (left, bottom)], color)

    def dot(self, at: Point, radius: float, color: Color) -> None:
        """A filled circle."""
        x, y, r = at[0] * _FINE, at[1] * _FINE, radius * _FINE
        self._draw.ellipse((x - r, y - r, x + r, y + r), color)

    def cells(
        self, colors: NDArray[np.uint8], left: float, top: float, right: float, bottom: float
    ) -> None:
        """Colours ``[row, column, 3]`` as rectangles that fill the given one."""
        size = (max(1, round((right - left) * _FINE)), max(1, round((bottom - top) * _FINE)))
        cells = Image.fromarray(np.ascontiguousarray(colors)).resize(size, Image.Resampling.NEAREST)
        self._image.paste(cells, (round(left * _FINE), round(top * _FINE)))

    def png(self, height: float) -> bytes:
        """The finished picture, cut to ``height``."""
        out = BytesIO()
        used = self._image.crop((0, 0, self.width * _FINE, round(min(height, self.height)) * _FINE))
        used.reduce(_FINE).save(out, "PNG", compress_level=6)
        return out.getvalue()
