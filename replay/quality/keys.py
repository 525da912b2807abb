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
SHARED = ("replay.together", "replay.quality.measure", "replay.quality.sources")
SIMULATOR = "ingest.simulate"
ROOTS = {
    "evidence": ("detect.evidence",),
    "minder": ("detect.minder",),
    "minder-best": ("detect.minder",),
    "mahalanobis": ("detect.mahalanobis", "detect.sparse", "detect.streaming"),
    "ratio": ("detect.ratio_rule", "detect.streaming"),
    "null": ("detect.floors", "detect.streaming"),
    "random": ("detect.floors", "detect.streaming"),
}
DATA = {
    "evidence": ("evidence.json",),
    "minder": ("minder.npz",),
    "minder-best": ("minder.npz",),
}
NOT_FOLLOWED = frozenset({"detect.registry", "replay.quality.workloads"})
"""The first imports every detector; each is followed from its own root instead. Of the second an
incident's own source is part of its key."""
OF_EVIDENCE = frozenset({"models.evidence_model"})
"""Named by what all share, used by one detector."""


@cache
def code_hash(detector: str, simulated: bool) -> str:
    """Hash of every first-party module and data file that a detector's results depend on.

    What only people read (comments, docstrings, layout) does not count.
    """
    name = detector.partition("@")[0]
    roots = (*SHARED, *ROOTS[name], *((SIMULATOR,) if simulated else ()))
    cut = NOT_FOLLOWED if simulated else NOT_FOLLOWED | {SIMULATOR}
    if name != "evidence":
        cut |= OF_EVIDENCE
    digest = hashlib.sha256()
    for module, code in sorted(_closure(roots, cut).items()):
        digest.update(f"{module}\0{code}\0".encode())
    for package, file in (
        ("ingest", "catalogue.toml"),
        *(("models", f"data/{f}") for f in DATA.get(name, ())),
    ):
        digest.update((resources.files(package) / file).read_bytes())
    return digest.hexdigest()[:12]


def result_key(item: Item, detector: str) -> str:
    """Names one incident's result of one detector, at the present code."""
    source = hashlib.sha256(repr(item.source).encode()).hexdigest()[:8]
    code = code_hash(detector, isinstance(item.source, Simulated))
    return f"{item.id} {source} {detector} {code}"


def _closure(roots: tuple[str, ...], cut: frozenset[str]) -> dict[str, str]:
    """Code of the roots and of what they import, imports inside functions included."""
    found: dict[str, str] = {}
    queue = list(roots)
    while queue:
        module = queue.pop()
        if module in found or module in cut:
            continue
        path = _path(module)
        if path is None:
            continue
        found[module], imported = _parsed(path)
        queue.extend(imported)
    return found


@cache
def _parsed(path: Path) -> tuple[str, tuple[str, ...]]:
    """A module's syntax tree without docstrings, and what of ours it may import."""
    tree = ast.parse(path.read_bytes())
    imported: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module.partition(".")[0] in PACKAGES:
                imported.append(node.module)
                imported.extend(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            imported.extend(a.name for a in node.names if a.name.partition(".")[0] in PACKAGES)
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [n for n in body if not _is_text(n)]  # type: ignore[attr-defined]
    return ast.dump(tree), tuple(imported)


def _is_text(node: ast.AST) -> bool:
    """A docstring, or a string that stands under an attribute to explain it."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _path(module: str) -> Path | None:
    """A module's file; None if there is no such module (an imported name is none)."""
    try:
        spec = util.find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None
