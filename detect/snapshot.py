"""State of a job as bytes and back, without pickle.

Layout: ``b"WLS1"``, then a zstd frame of: the length of the tree (8 bytes, little-endian), the
tree as JSON, and the arrays one after the other, each at a multiple of 8 bytes. An array stands
in the tree as ``{"$array": [dtype, shape, offset]}``.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import orjson
import zstandard

from detect.detector import State

MAGIC = b"WLS1"
_KINDS = frozenset("biufUSMm")
"""Kinds of arrays that may stand in a state: plain numbers, texts and times, never objects."""


def encode_state(state: State, *, limit_bytes: int = 256 << 20) -> bytes:
    """Serialise a state tree; ValueError beyond ``limit_bytes`` before compression."""
    blocks: list[bytes | memoryview] = []
    size = 0

    def place(array: np.ndarray[Any, Any]) -> dict[str, Any]:
        nonlocal size
        if array.dtype.kind not in _KINDS:
            raise TypeError(f"a state holds an array of {array.dtype}")
        found = {"$array": [array.dtype.str, list(array.shape), size]}
        octets = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        padding = bytes(-octets.size % 8)
        blocks.extend((octets.data, padding))
        size += octets.size + len(padding)
        return found

    def walk(node: Any) -> Any:
        if isinstance(node, np.ndarray):
            return place(node)
        if isinstance(node, dict):
            return {str(k): walk(v) for k, v in node.items()}
        if isinstance(node, list | tuple):
            # Rosters are long, and stand in a state many times.
            return node if all(type(v) is str for v in node) else [walk(v) for v in node]
        if isinstance(node, np.generic):
            return walk(node.item())
        if isinstance(node, float) and not np.isfinite(node):
            return {"$float": repr(node)}
        if node is None or isinstance(node, bool | int | float | str):
            return node
        raise TypeError(f"a state holds a {type(node).__name__}")

    tree = orjson.dumps(walk(state))
    tree += b" " * (-len(tree) % 8)
    total = 8 + len(tree) + size
    if total > limit_bytes:
        raise ValueError(f"state of {total} bytes is over the bound of {limit_bytes}")
    body = b"".join((len(tree).to_bytes(8, "little"), tree, *blocks))
    return MAGIC + zstandard.ZstdCompressor(level=1, write_checksum=True).compress(body)


def decode_state(data: bytes, *, limit_bytes: int = 256 << 20) -> State:
    """Inverse of `encode_state`; ValueError if the bytes are not such a state."""
    if data[:4] != MAGIC:
        raise ValueError("not a weaklink state (or of another version)")
    try:
        size = zstandard.get_frame_parameters(data[4:]).content_size
        if size > limit_bytes:
            raise ValueError(f"{size} bytes are over the bound of {limit_bytes}")
        raw = zstandard.ZstdDecompressor().decompress(data[4:], max_output_size=limit_bytes)
        start = 8 + int.from_bytes(raw[:8], "little")
        tree = orjson.loads(raw[8:start])
    except (zstandard.ZstdError, ValueError) as error:
        raise ValueError(f"damaged state: {error}") from error

    def array(kind: str, shape: list[int], offset: int) -> np.ndarray[Any, Any]:
        dtype = np.dtype(kind)
        if dtype.kind not in _KINDS or min(shape, default=0) < 0 or offset < 0:
            raise ValueError(f"an array of {kind} {shape} at {offset}")
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(raw, dtype, count, start + offset).reshape(shape).copy()

    def walk(node: Any) -> Any:
        if isinstance(node, dict):
            if "$array" in node:
                return array(*node["$array"])
            if "$float" in node:
                return float(node["$float"])
            return {k: walk(v) for k, v in node.items()}
        if isinstance(node, list):
            return [walk(v) for v in node]
        return node

    try:
        return cast(State, walk(tree))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"damaged state: {error}") from error
