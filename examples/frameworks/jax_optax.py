"""A training with JAX and Optax: `run.log` takes arrays as they are, and waits for none.

python examples/frameworks/jax_optax.py FOLDER
"""

import sys

import jax
import jax.numpy as jnp
import optax

import barograph

weights, optimizer = jnp.ones(8), optax.adamw(0.1)
state = optimizer.init(weights)


@jax.jit
def step(weights, state):
    loss, gradient = jax.value_and_grad(lambda weights: jnp.square(weights - 3).mean())(weights)
    updates, state = optimizer.update(gradient, state, weights)
    return optax.apply_updates(weights, updates), state, loss, optax.global_norm(gradient)


with barograph.init("jax", dir=sys.argv[1], config={"lr": 0.1}, console="none") as run:
    for at in range(20):
        weights, state, loss, norm = step(weights, state)
        run.log({"train/loss": loss, "train/grad_norm": norm}, step=at)
assert list(barograph.StoredRun(run.dir).series("train/loss").step) == list(range(20))
print("a training with JAX holds")
