"""All denoisers by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from models.denoise.identity import IdentityDenoiser
from models.denoise.lstm_vae import LstmVaeDenoiser
from models.denoise.online import OnlineDenoiser
from models.denoise.pca import PcaDenoiser
from models.denoise.protocol import Denoiser, DenoiserState
from models.denoise.storage import load_state, save_state

_MAKERS: dict[str, Callable[[int], Denoiser]] = {
    "identity": IdentityDenoiser,
    "lstm_vae": LstmVaeDenoiser,
    "online": OnlineDenoiser,
    "pca": PcaDenoiser,
}

DENOISERS: tuple[str, ...] = tuple(sorted(_MAKERS))
"""Every registered name."""


def denoiser(name: str, window: int = 8) -> Denoiser:
    """A fresh denoiser with its default settings; ValueError for an unknown name."""
    try:
        make = _MAKERS[name]
    except KeyError:
        raise ValueError(f"unknown denoiser {name!r}; there are {', '.join(DENOISERS)}") from None
    return make(window)


def from_state(state: DenoiserState) -> Denoiser:
    """The denoiser that a state came from; ValueError for an unknown name."""
    made = denoiser(str(state.get("name")), int(state.get("window", 8)))
    made.restore(state)
    return made


def save(made: Denoiser, path: Path) -> None:
    """Write a denoiser as one file."""
    save_state(path, made.state())


def load(path: Path) -> Denoiser:
    """Read a denoiser; ValueError if the file is not one."""
    return from_state(load_state(path))
