"""State of a job as bytes and back, without pickle.

Layout: ``b"WLS1"`` then a zstd frame of an uncompressed NumPy archive whose member ``tree``
is the JSON structure; arrays stand in it as ``{"$array": "a<k>"}``.
"""

from __future__ import annotations

import io
from typing import Any, cast

import numpy as np
import orjson
import zstandard

from detect.detector import State

MAGIC = b"WLS1"


def encode_state(state: State, *, limit_bytes: int = 256 << 20) -> bytes:
    """Serialise a state tree; ValueError beyond ``limit_bytes`` before compression."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}

    def walk(node: Any) -> Any:
        if isinstance(node, np.ndarray):
            name = f"a{len(arrays)}"
            arrays[name] = node
            return {"$array": name}
        if isinstance(node, dict):
            return {str(k): walk(v) for k, v in node.items()}
        if isinstance(node, list | tuple):
            return [walk(v) for v in node]
        if isinstance(node, np.generic):
            return node.item()
        if isinstance(node, float) and not np.isfinite(node):
            return {"$float": repr(node)}
        if node is None or isinstance(node, bool | int | float | str):
            return node
        raise TypeError(f"a state holds a {type(node).__name__}")

    tree = orjson.dumps(walk(state))
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, tree=np.frombuffer(tree, np.uint8), **arrays)
    if buffer.tell() > limit_bytes:
        raise ValueError(f"state of {buffer.tell()} bytes is over the bound of {limit_bytes}")
    return MAGIC + zstandard.ZstdCompressor(level=1).compress(buffer.getvalue())


def decode_state(data: bytes, *, limit_bytes: int = 256 << 20) -> State:
    """Inverse of `encode_state`; ValueError if the bytes are not such a state."""
    if data[:4] != MAGIC:
        raise ValueError("not a weaklink state (or of another version)")
    try:
        raw = zstandard.ZstdDecompressor().decompress(data[4:], max_output_size=limit_bytes)
        archive = np.load(io.BytesIO(raw), allow_pickle=False)
        arrays = {name: archive[name] for name in archive.files}
    except (zstandard.ZstdError, ValueError, OSError, KeyError) as error:
        raise ValueError(f"damaged state: {error}") from error

    def walk(node: Any) -> Any:
        if isinstance(node, dict):
            if "$array" in node:
                return arrays[node["$array"]]
            if "$float" in node:
                return float(node["$float"])
            return {k: walk(v) for k, v in node.items()}
        if isinstance(node, list):
            return [walk(v) for v in node]
        return node

    return cast(State, walk(orjson.loads(arrays["tree"].tobytes())))
