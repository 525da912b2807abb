"""Training of the LSTM variational autoencoder with JAX (optional extra ``lstm``).

The network is that of `models.denoise.lstm_vae`, which documents the weights. Imported only by
`LstmVaeDenoiser.fit`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from models.denoise.lstm_vae import Weights, weight_shapes
from models.denoise.protocol import Windows

BATCH_ROWS = 512
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
        Steps of Adam with a cosine-decaying rate.
    """
    key = jax.random.key(seed)
    weights = _initial(np.random.default_rng(seed), rows, hidden, latent)
    optimiser = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, steps)),
    )
    moments = optimiser.init(weights)
    data = jnp.asarray(rows, dtype=jnp.float32)
    trained, _ = _run(weights, moments, data, key, optimiser=optimiser, steps=steps)
    return {name: np.asarray(value, dtype=np.float64) for name, value in trained.items()}


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


@partial(jax.jit, static_argnames=("optimiser", "steps"))
def _run(
    weights: Any, moments: Any, data: jax.Array, key: jax.Array, *, optimiser: Any, steps: int
) -> tuple[Any, Any]:
    """All training steps as one compiled loop."""

    def step(carry: Any, key: jax.Array) -> tuple[Any, None]:
        weights, moments = carry
        pick, noise = jax.random.split(key)
        batch = data[jax.random.randint(pick, (BATCH_ROWS,), 0, data.shape[0])]
        slope = jax.grad(_loss)(weights, batch, noise)
        change, moments = optimiser.update(slope, moments, weights)
        return (optax.apply_updates(weights, change), moments), None

    (weights, moments), _ = jax.lax.scan(step, (weights, moments), jax.random.split(key, steps))
    return weights, moments


def _loss(weights: Any, batch: jax.Array, key: jax.Array) -> jax.Array:
    """Mean squared error plus the weighted divergence of the latent."""
    rows, window = batch.shape
    hidden = jnp.zeros((rows, weights["enc_h"].shape[0]))
    cell = hidden
    for k in range(window):
        driven = batch[:, k : k + 1] @ weights["enc_x"] + weights["enc_b"]
        hidden, cell = _lstm_step(driven, hidden, cell, weights["enc_h"])
    mean = hidden @ weights["mu_w"] + weights["mu_b"]
    logvar = hidden @ weights["var_w"] + weights["var_b"]
    latent = mean + jnp.exp(0.5 * logvar) * jax.random.normal(key, mean.shape)
    driven = latent @ weights["dec_x"] + weights["dec_b"]
    hidden = cell = jnp.zeros_like(cell)
    out = []
    for _ in range(window):
        hidden, cell = _lstm_step(driven, hidden, cell, weights["dec_h"])
        out.append(hidden @ weights["out_w"] + weights["out_b"])
    error = jnp.mean((jnp.concatenate(out, axis=1) - batch) ** 2)
    divergence = -0.5 * jnp.mean(1.0 + logvar - mean**2 - jnp.exp(logvar))
    return error + DIVERGENCE_WEIGHT * divergence


def _lstm_step(
    driven: jax.Array, hidden: jax.Array, cell: jax.Array, recurrent: jax.Array
) -> tuple[jax.Array, jax.Array]:
    gates = driven + hidden @ recurrent
    into, forget, candidate, out = jnp.split(gates, 4, axis=1)
    cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(into) * jnp.tanh(candidate)
    return jax.nn.sigmoid(out) * jnp.tanh(cell), cell
