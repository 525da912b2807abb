"""Denoisers and their states as files: one NumPy archive of arrays and JSON, never pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson

from models.denoise.protocol import DenoiserState

_TREE = "tree"
_ARRAY = "$array"


def save_state(target: Path | BinaryIO, state: DenoiserState) -> None:
    """Write a state; the same state gives the same bytes."""
    arrays: dict[str, Any] = {}

    def walk(node: Any) -> Any:
        if isinstance(node, np.ndarray):
            name = f"a{len(arrays)}"
            arrays[name] = node
            return {_ARRAY: name}
        if isinstance(node, dict):
            return {key: walk(value) for key, value in node.items()}
        if isinstance(node, list | tuple):
            return [walk(value) for value in node]
        return node

    tree = orjson.dumps(walk(state))
    np.savez(target, allow_pickle=False, **{_TREE: np.frombuffer(tree, np.uint8)}, **arrays)


def load_state(source: Path | BinaryIO) -> DenoiserState:
    """Inverse of `save_state`; ValueError if the file is not such an archive."""
    try:
        with np.load(source, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        tree = orjson.loads(arrays[_TREE].tobytes())
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ValueError(f"{source}: not a saved state: {error}") from error

    def walk(node: Any) -> Any:
        if isinstance(node, dict):
            if _ARRAY in node:
                return arrays[node[_ARRAY]]
            return {key: walk(value) for key, value in node.items()}
        if isinstance(node, list):
            return [walk(value) for value in node]
        return node

    state = walk(tree)
    if not isinstance(state, dict):
        raise ValueError(f"{source}: not a saved state")
    return state
