"""Training of the LSTM variational autoencoder with JAX (optional extra ``lstm``).

The network is that of `models.denoise.lstm_vae`, which documents the weights. Imported only by
`LstmVaeDenoiser.fit`.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from models.denoise.lstm_vae import Weights, weight_shapes
from models.denoise.protocol import Windows

BATCH_ROWS = 512
CHUNK_STEPS = 250
"""Steps in one call of the compiled loop, which bounds the memory for their batches."""

LEARNING_RATE = 1e-2
DIVERGENCE_WEIGHT = 1e-7
"""Weight of the divergence from the unit Gaussian beside the squared error. A larger one pulls
the latent together until the error on healthy windows passes Minder's 1e-4."""


def train(rows: Windows, *, hidden: int, latent: int, seed: int, steps: int) -> Weights:
    """Weights that minimise squared error plus divergence (Kingma & Welling 2014).

    Parameters
    ----------
    rows
        ``[row, window]`` without NaN, normalised to about 0..1.
    hidden, latent
        Sizes.
    seed
        Seeds the initial weights, the batches and the latent noise.
    steps
        Steps of Adam with a cosine-decaying rate, rounded up to whole chunks.
    """
    rng = np.random.default_rng(seed)
    weights = _initial(rng, rows, hidden, latent)
    chunk = min(steps, CHUNK_STEPS)
    optimiser = _optimiser(steps)
    moments = optimiser.init(weights)
    for key in jax.random.split(jax.random.key(seed), -(-steps // chunk)):
        picks = rng.integers(0, len(rows), (chunk, BATCH_ROWS))
        batches = jnp.asarray(rows[picks], dtype=jnp.float32)
        weights, moments = _run(weights, moments, batches, key, optimiser=optimiser)
    return {name: np.asarray(value, dtype=np.float64) for name, value in weights.items()}


@cache
def _optimiser(steps: int) -> Any:
    # Cached, because the compiled loop is kept per optimiser object.
    rate = optax.cosine_decay_schedule(LEARNING_RATE, steps)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))


def _initial(
    rng: np.random.Generator, rows: Windows, hidden: int, latent: int
) -> dict[str, jax.Array]:
    """Glorot-scaled weights; forget gates open; the output starts at the rows' mean."""
    weights = {}
    for name, shape in weight_shapes(hidden, latent).items():
        if len(shape) == 2:
            value = rng.normal(0.0, np.sqrt(2.0 / sum(shape)), shape)
        else:
            value = np.zeros(shape)
            if name in ("enc_b", "dec_b"):
                value[hidden : 2 * hidden] = 1.0
            elif name == "out_b":
                value[:] = rows.mean()
            elif name == "var_b":
                value[:] = -6.0
        weights[name] = jnp.asarray(value, dtype=jnp.float32)
    return weights


@partial(jax.jit, static_argnames=("optimiser",))
def _run(
    weights: Any, moments: Any, batches: jax.Array, key: jax.Array, *, optimiser: Any
) -> tuple[Any, Any]:
    """One chunk of steps; ``batches`` is ``[step, row, window]``."""

    def step(carry: Any, xs: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
        weights, moments = carry
        batch, noise = xs
        slope = jax.grad(_loss)(weights, batch, noise)
        change, moments = optimiser.update(slope, moments, weights)
        return (optax.apply_updates(weights, change), moments), None

    keys = jax.random.split(key, len(batches))
    (weights, moments), _ = jax.lax.scan(step, (weights, moments), (batches, keys))
    return weights, moments


def _loss(weights: Any, batch: jax.Array, key: jax.Array) -> jax.Array:
    """Mean squared error plus the weighted divergence of the latent."""
    zero = jnp.zeros((len(batch), weights["enc_h"].shape[0]))

    def read(state: Any, tick: jax.Array) -> tuple[Any, None]:
        driven = tick[:, None] @ weights["enc_x"] + weights["enc_b"]
        return _lstm_step(driven, state[0], state[1], weights["enc_h"]), None

    (hidden, _), _ = jax.lax.scan(read, (zero, zero), batch.T)
    mean = hidden @ weights["mu_w"] + weights["mu_b"]
    logvar = hidden @ weights["var_w"] + weights["var_b"]
    latent = mean + jnp.exp(0.5 * logvar) * jax.random.normal(key, mean.shape)
    driven = latent @ weights["dec_x"] + weights["dec_b"]

    def write(state: Any, _: None) -> tuple[Any, jax.Array]:
        state = _lstm_step(driven, state[0], state[1], weights["dec_h"])
        return state, (state[0] @ weights["out_w"] + weights["out_b"])[:, 0]

    _, out = jax.lax.scan(write, (zero, zero), None, length=batch.shape[1])
    divergence = -0.5 * jnp.mean(1.0 + logvar - mean**2 - jnp.exp(logvar))
    return jnp.mean((out.T - batch) ** 2) + DIVERGENCE_WEIGHT * divergence


def _lstm_step(
    driven: jax.Array, hidden: jax.Array, cell: jax.Array, recurrent: jax.Array
) -> tuple[jax.Array, jax.Array]:
    gates = driven + hidden @ recurrent
    into, forget, candidate, out = jnp.split(gates, 4, axis=1)
    cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(into) * jnp.tanh(candidate)
    return jax.nn.sigmoid(out) * jnp.tanh(cell), cell
