"""Inference of the long short-term memory variational autoencoder, in NumPy alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.denoise.protocol import DenoiserState, Windows
from models.denoise.rows import check_width, complete_rows

Weights = dict[str, NDArray[np.float64]]
"""``enc_x [1, 4h]``, ``enc_h [h, 4h]``, ``enc_b [4h]``: encoder; ``mu_w [h, z]``, ``mu_b [z]``:
mean of the latent; ``var_w``, ``var_b``: its log-variance (training only); ``dec_x [z, 4h]``,
``dec_h [h, 4h]``, ``dec_b [4h]``: decoder; ``out_w [h, 1]``, ``out_b [1]``: sample. Gates stand
in the order input, forget, candidate, output."""

_CHUNK = 1024
"""Rows worked on at once: the gates of a chunk stay in the processor's cache."""


def weight_shapes(hidden: int, latent: int) -> dict[str, tuple[int, ...]]:
    """Shape of every weight."""
    gates = 4 * hidden
    return {
        "enc_x": (1, gates),
        "enc_h": (hidden, gates),
        "enc_b": (gates,),
        "mu_w": (hidden, latent),
        "mu_b": (latent,),
        "var_w": (hidden, latent),
        "var_b": (latent,),
        "dec_x": (latent, gates),
        "dec_h": (hidden, gates),
        "dec_b": (gates,),
        "out_w": (hidden, 1),
        "out_b": (1,),
    }


class LstmVaeDenoiser:
    """One-layer LSTM variational autoencoder of one metric, as in Minder.

    A window is read by an LSTM, its last hidden state gives mean and variance of a Gaussian
    latent, and a second LSTM that sees the latent at every step writes the window back.
    Denoising takes the latent's mean, so that it is deterministic. Sizes after Minder
    (arXiv 2411.01791, section 4): one layer, hidden 4, latent 8, window 8.

    Training needs the optional extra ``lstm``; inference needs NumPy alone. Cost: about 2 µs a
    row. It fails on values far outside those it was trained on: the gates saturate and
    different machines are reconstructed alike.

    Parameters
    ----------
    window, hidden, latent
        Sizes of the window, the LSTMs' hidden state and the latent.
    seed
        Seed of training. The same rows and seed give the same weights on the same platform.
    steps
        Training steps in `fit`.

    Attributes
    ----------
    weights_
        The trained weights, None before the first `fit` or `restore`.
    reconstruction_error_
        Mean squared error on the rows it was trained on (normalised units), None if unknown.
    """

    name = "lstm_vae"
    adapts = False

    def __init__(
        self,
        window: int = 8,
        hidden: int = 4,
        latent: int = 8,
        seed: int = 0,
        steps: int = 4000,
    ) -> None:
        self.window = window
        self.hidden = hidden
        self.latent = latent
        self.seed = seed
        self.steps = steps
        self.weights_: Weights | None = None
        self.reconstruction_error_: float | None = None

    def fit(self, windows: Windows) -> None:
        """Train with JAX; ImportError that names the extra if it is not installed."""
        check_width(windows, self.window)
        rows = complete_rows(windows)
        if not len(rows):
            raise ValueError("no complete window to learn from")
        try:
            from models.denoise.lstm_vae_train import train
        except ImportError as error:
            raise ImportError(
                "training an LSTM-VAE needs JAX and Optax: pip install 'weaklink[lstm]'"
            ) from error
        self.weights_ = train(
            rows, hidden=self.hidden, latent=self.latent, seed=self.seed, steps=self.steps
        )
        self.reconstruction_error_ = float(np.mean((self.denoise(rows) - rows) ** 2))

    def encode(self, windows: Windows) -> NDArray[np.float64]:
        """Means of the latent, ``[row, latent]``; the windows themselves before training."""
        check_width(windows, self.window)
        if self.weights_ is None:
            return windows.copy()
        return self._by_chunks(windows, self._encode)

    def denoise(self, windows: Windows) -> Windows:
        """Reconstructed windows."""
        check_width(windows, self.window)
        if self.weights_ is None:
            return windows.copy()
        return self._by_chunks(windows, self._reconstruct)

    def _by_chunks(self, windows: Windows, work: Any) -> NDArray[np.float64]:
        parts = [
            work(np.ascontiguousarray(windows[at : at + _CHUNK].T))
            for at in range(0, max(len(windows), 1), _CHUNK)
        ]
        joined: NDArray[np.float64] = np.ascontiguousarray(np.concatenate(parts, axis=1).T)
        return joined

    def _encode(self, ticks: NDArray[np.float64]) -> NDArray[np.float64]:
        """Latent means ``[latent, row]`` of ``[window, row]``."""
        w = self._trained()
        hidden = cell = np.zeros((self.hidden, ticks.shape[1]))
        for tick in ticks:
            driven = _affine(tick[None, :], w["enc_x"], w["enc_b"])
            hidden, cell = _lstm_step(driven, hidden, cell, w["enc_h"])
        return _affine(hidden, w["mu_w"], w["mu_b"])

    def _reconstruct(self, ticks: NDArray[np.float64]) -> NDArray[np.float64]:
        """Reconstruction ``[window, row]`` of ``[window, row]``."""
        w = self._trained()
        driven = _affine(self._encode(ticks), w["dec_x"], w["dec_b"])
        hidden = cell = np.zeros((self.hidden, ticks.shape[1]))
        out = np.empty_like(ticks)
        for k in range(self.window):
            hidden, cell = _lstm_step(driven, hidden, cell, w["dec_h"])
            out[k] = _affine(hidden, w["out_w"], w["out_b"])[0]
        return out

    def _trained(self) -> Weights:
        assert self.weights_ is not None
        return self.weights_

    def state(self) -> DenoiserState:
        """Sizes and weights."""
        return {
            "name": self.name,
            "window": self.window,
            "hidden": self.hidden,
            "latent": self.latent,
            "reconstruction_error": self.reconstruction_error_,
            "weights": {} if self.weights_ is None else dict(self.weights_),
        }

    def restore(self, state: DenoiserState) -> None:
        """Take over weights; their shapes must fit the state's sizes."""
        if state.get("name") != self.name or state.get("window") != self.window:
            raise ValueError(f"not a state of {self.name!r} with window {self.window}")
        hidden, latent = int(state["hidden"]), int(state["latent"])
        weights = {key: np.asarray(value) for key, value in state["weights"].items()}
        shapes = {key: value.shape for key, value in weights.items()}
        if weights and shapes != weight_shapes(hidden, latent):
            raise ValueError(f"weights of {self.name!r} do not fit its sizes")
        self.hidden, self.latent = hidden, latent
        self.weights_ = weights or None
        self.reconstruction_error_ = state["reconstruction_error"]


def _affine(
    x: NDArray[np.float64], weight: NDArray[np.float64], bias: NDArray[np.float64]
) -> NDArray[np.float64]:
    """``weight.T @ x + bias`` for ``x [in, row]``, summed in one fixed order."""
    out: NDArray[np.float64] = weight[0][:, None] * x[0] + bias[:, None]
    for k in range(1, len(weight)):
        out += weight[k][:, None] * x[k]
    return out


def _lstm_step(
    driven: NDArray[np.float64],
    hidden: NDArray[np.float64],
    cell: NDArray[np.float64],
    recurrent: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One step of an LSTM (Hochreiter & Schmidhuber 1997, with the forget gate of Gers 2000).

    ``driven [4h, row]`` is what input and bias give to the gates; ``hidden`` and ``cell`` are
    ``[h, row]``.
    """
    n = len(hidden)
    gates = driven.copy()
    for k in range(n):
        gates += recurrent[k][:, None] * hidden[k]
    # The logistic function through tanh, which cannot overflow.
    gates[: 2 * n] *= 0.5
    gates[3 * n :] *= 0.5
    np.tanh(gates, out=gates)
    opened = 0.5 * (1.0 + gates)
    cell = opened[n : 2 * n] * cell + opened[:n] * gates[2 * n : 3 * n]
    return opened[3 * n :] * np.tanh(cell), cell
