"""Named, numbered models in a folder: store, list, compare, promote, roll back.

A store is a folder of model folders; a model folder holds numbered versions::

    weaklink-models/            the store
      promoted.json             what is in use, and what was before
      mine/                     a model
        1/model.json            its first version; minder.npz beside it where one was trained

Versions are never changed. Everything is written beside its place and then renamed, so a reader
never sees half of it. Files are JSON and arrays; no pickle.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from models.evidence_model import EvidenceModel, MetricScale, ModelError
from models.minder_model import MinderModel

STORE_VARIABLE = "WEAKLINK_MODELS"
DEFAULT_STORE = Path("weaklink-models")
MODEL_FILE = "model.json"
MINDER_FILE = "minder.npz"
PROMOTED_FILE = "promoted.json"
SHIPPED = "shipped"
"""Names the model in the wheel wherever a name is asked for."""


@dataclass(frozen=True, slots=True)
class ModelRef:
    """One version of one model; ``path`` is its folder."""

    name: str
    version: int
    path: Path

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def has_minder(self) -> bool:
        """Whether a model of the Minder detector lies beside it."""
        return (self.path / MINDER_FILE).is_file()

    def evidence(self) -> EvidenceModel:
        """The default detector's model; `ModelError` if it cannot be read."""
        return EvidenceModel.load(self.path / MODEL_FILE)

    def minder(self) -> MinderModel:
        """The Minder detector's model; `ModelError` if there is none or it cannot be read."""
        if not self.has_minder:
            raise ModelError(
                f"{self}: holds no model of the minder detector; train with --denoiser"
            )
        try:
            return MinderModel.load(self.path / MINDER_FILE)
        except ValueError as error:
            raise ModelError(str(error)) from error


def default_store(environ: Mapping[str, str] | None = None) -> Path:
    """``WEAKLINK_MODELS``, or ``weaklink-models`` in the working directory."""
    given = (os.environ if environ is None else environ).get(STORE_VARIABLE)
    return Path(given) if given else DEFAULT_STORE


def versions(folder: Path) -> list[ModelRef]:
    """The versions in a model's folder, oldest first."""
    if not folder.is_dir():
        return []
    found = [
        ModelRef(folder.resolve().name, int(entry.name), entry)
        for entry in folder.iterdir()
        if entry.name.isascii() and entry.name.isdecimal() and (entry / MODEL_FILE).is_file()
    ]
    return sorted(found, key=lambda ref: ref.version)


def save_version(folder: Path, model: EvidenceModel, minder: MinderModel | None = None) -> ModelRef:
    """Add the next version to a model's folder; its name is the folder's.

    Raises `ModelError` if the folder cannot be written.
    """
    name = folder.resolve().name
    if not name or name.isdecimal() or "@" in name:
        raise ModelError(f"{folder}: {name!r} cannot be a model's name (no number, no '@')")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            known = [int(e.name) for e in folder.iterdir() if e.name.isdecimal()]
            version = max(known, default=0) + 1
            made = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
            try:
                replace(model, name=name, version=version).save(made / MODEL_FILE)
                if minder is not None:
                    replace(minder, name=f"{name}-{version}").save(made / MINDER_FILE)
                made.chmod(0o755)
                made.rename(folder / str(version))
            except FileExistsError:
                continue  # another process took this number
            finally:
                shutil.rmtree(made, ignore_errors=True)
            return ModelRef(name, version, folder / str(version))
    except OSError as error:
        raise ModelError(f"{folder}: {error.strerror}") from error


class ModelStore:
    """The models of one folder; see the module."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = default_store() if root is None else root

    def models(self) -> list[ModelRef]:
        """Every version of every model, by name and number."""
        if not self.root.is_dir():
            return []
        folders = sorted(e for e in self.root.iterdir() if e.is_dir() and e.name[0] != ".")
        return [ref for folder in folders for ref in versions(folder)]

    def resolve(self, text: str) -> ModelRef:
        """``NAME``, ``NAME@VERSION``, or the folder of a model or of a version.

        Without a version the newest counts. `ModelError` if there is none.
        """
        name, _, number = text.partition("@")
        folder = self.root / name
        if "/" in text or os.sep in text or not folder.is_dir():
            found = _in_folder(Path(text))
            if found is not None:
                return found
        known = versions(folder) if name not in ("", ".", "..") else []
        for ref in reversed(known):
            if not number or str(ref.version) == number:
                return ref
        if known:
            have = ", ".join(str(ref) for ref in known)
            raise ModelError(f"{text}: there is no such version; there are {have}")
        names = ", ".join(dict.fromkeys(ref.name for ref in self.models())) or "none"
        raise ModelError(
            f"{text}: neither a model's folder nor a model in {self.root} (there: {names})"
        )

    def promoted(self) -> ModelRef | None:
        """What is in use; None = the shipped model."""
        history = self.history()
        if not history or history[-1] == SHIPPED:
            return None
        return self.resolve(history[-1])

    def history(self) -> list[str]:
        """What was promoted and not rolled back, newest last."""
        path = self.root / PROMOTED_FILE
        try:
            given = json.loads(path.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise ModelError(f"{path}: {error}") from error
        names = given.get("promoted") if isinstance(given, dict) else None
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            raise ModelError(f"{path}: promoted must be a list of NAME@VERSION")
        return names

    def promote(self, text: str) -> str:
        """Take a model of this store (or ``shipped``) into use; returns ``NAME@VERSION``."""
        if text == SHIPPED:
            chosen = SHIPPED
        else:
            ref = self.resolve(text)
            if ref.path.resolve().parent.parent != self.root.resolve():
                raise ModelError(f"{text}: is not in the store {self.root}; train with --out there")
            ref.evidence()  # what cannot be read must not be taken into use
            chosen = str(ref)
        history = self.history()
        if history[-1:] != [chosen]:
            self._write_history([*history, chosen])
        return chosen

    def rollback(self) -> str:
        """Return to what was in use before; ``NAME@VERSION`` or ``shipped``."""
        history = self.history()
        if not history:
            raise ModelError(f"{self.root}: nothing was promoted, so nothing can be rolled back")
        self._write_history(history[:-1])
        return history[-2] if len(history) > 1 else SHIPPED

    def _write_history(self, names: list[str]) -> None:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=".promoted-", dir=self.root)
            with os.fdopen(handle, "w") as file:
                file.write(json.dumps({"promoted": names}, indent=1) + "\n")
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).chmod(0o644)
            Path(temporary).replace(self.root / PROMOTED_FILE)
        except OSError as error:
            raise ModelError(f"{self.root / PROMOTED_FILE}: {error.strerror}") from error


def load_model(
    name: str, detector: str = "evidence", store: Path | None = None
) -> EvidenceModel | MinderModel | None:
    """The model for a detector by name or folder.

    An empty name means the promoted one; None (nothing promoted, or ``shipped``) lets the
    detector take the one in the wheel. Raises `ModelError` with one line.
    """
    models = ModelStore(store)
    if name == SHIPPED:
        return None
    if not name:
        promoted = models.promoted()
        if promoted is None or (detector != "evidence" and not promoted.has_minder):
            return None
        return promoted.evidence() if detector == "evidence" else promoted.minder()
    path = Path(name)
    if path.suffix == ".json" and path.is_file() and detector == "evidence":
        return EvidenceModel.load(path)
    ref = models.resolve(name)
    if detector in ("minder", "minder-best"):
        return ref.minder()
    if detector != "evidence":
        raise ModelError(f"{name}: the detector {detector} has no model")
    return ref.evidence()


def differences(one: EvidenceModel, other: EvidenceModel) -> list[tuple[str, str, str]]:
    """What two models differ in: ``(key, of one, of other)``, quality first."""
    keys = [f"quality.{k}" for k in sorted({*one.quality, *other.quality})]
    pairs = [(k, one.quality.get(k[8:]), other.quality.get(k[8:])) for k in keys]
    names = ("tail_intercept", "tail_slope", "tail_power", "false_alarms_per_job_week")
    pairs += [(name, getattr(one, name), getattr(other, name)) for name in names]
    for metric in sorted({*one.metrics, *other.metrics}):
        mine, theirs = one.metrics.get(metric), other.metrics.get(metric)
        pairs += [
            (f"{metric}.{key}", getattr(mine, key, None), getattr(theirs, key, None))
            for key in MetricScale.__slots__
        ]
    return [(key, _shown(a), _shown(b)) for key, a, b in pairs if a != b]


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _in_folder(path: Path) -> ModelRef | None:
    """A version's folder, or the newest version in a model's folder."""
    if (path / MODEL_FILE).is_file():
        whole = path.resolve()
        if whole.name.isdecimal():
            return ModelRef(whole.parent.name, int(whole.name), path)
        return ModelRef(whole.name, EvidenceModel.load(path / MODEL_FILE).version, path)
    known = versions(path)
    return known[-1] if known else None
