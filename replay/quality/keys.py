"""What a result depends on, as a hash: only then may a stored result be used again."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from importlib import resources, util
from pathlib import Path

from replay.quality.sources import Simulated
from replay.quality.workloads import Item

PACKAGES = ("ingest", "models", "detect", "replay")
SHARED = ("replay.runner", "replay.quality.measure", "replay.quality.sources")
SIMULATOR = "ingest.simulate"
ROOTS = {
    "evidence": ("detect.evidence",),
    "minder": ("detect.minder",),
    "minder-best": ("detect.minder",),
    "mahalanobis": ("detect.mahalanobis", "detect.streaming"),
    "ratio": ("detect.ratio_rule", "detect.streaming"),
    "null": ("detect.floors", "detect.streaming"),
    "random": ("detect.floors", "detect.streaming"),
}
DATA = {
    "evidence": ("evidence.json",),
    "minder": ("minder.npz",),
    "minder-best": ("minder.npz",),
}
NOT_FOLLOWED = frozenset({"detect.registry"})
"""It imports every detector; each is followed from its own root instead."""


@cache
def code_hash(detector: str, simulated: bool) -> str:
    """Hash of every first-party module and data file that a detector's results depend on."""
    name = detector.partition("@")[0]
    roots = (*SHARED, *ROOTS[name], *((SIMULATOR,) if simulated else ()))
    cut = NOT_FOLLOWED if simulated else NOT_FOLLOWED | {SIMULATOR}
    digest = hashlib.sha256()
    for module, source in sorted(_closure(roots, cut).items()):
        digest.update(module.encode() + b"\0" + source + b"\0")
    for package, file in (
        ("ingest", "catalogue.toml"),
        *(("models", f"data/{f}") for f in DATA.get(name, ())),
    ):
        digest.update((resources.files(package) / file).read_bytes())
    return digest.hexdigest()[:12]


def result_key(item: Item, detector: str) -> str:
    """Names one incident's result of one detector, at the present code."""
    return f"{item.id} {detector} {code_hash(detector, isinstance(item.source, Simulated))}"


def _closure(roots: tuple[str, ...], cut: frozenset[str]) -> dict[str, bytes]:
    """Sources of the roots and of what they import, imports inside functions included."""
    found: dict[str, bytes] = {}
    queue = list(roots)
    while queue:
        module = queue.pop()
        if module in found or module in cut:
            continue
        path = _path(module)
        if path is None:
            continue
        found[module] = path.read_bytes()
        for node in ast.walk(ast.parse(found[module])):
            if isinstance(node, ast.ImportFrom) and node.module:
                if node.module.partition(".")[0] in PACKAGES:
                    queue.append(node.module)
                    queue.extend(f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Import):
                queue.extend(a.name for a in node.names if a.name.partition(".")[0] in PACKAGES)
    return found


def _path(module: str) -> Path | None:
    """A module's file; None if there is no such module (an imported name is none)."""
    try:
        spec = util.find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None
