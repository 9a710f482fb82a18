"""JAX: arrays are logged as they are, and nobody waits for them. (A training with Optax is among the examples.)"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import barograph
from barograph.core.values import DeviceValues, on_device

jax = pytest.importorskip("jax")


class Coming:
    """An array of JAX's that is still computed: reading it would wait."""

    shape = ()

    def __init__(self, platform: str):
        self.device = SimpleNamespace(platform=platform)
        self.there, self.copied = False, False

    def is_ready(self) -> bool:
        return self.there

    def copy_to_host_async(self) -> None:
        self.copied = True

    def item(self) -> float:
        assert self.there, "the training waits"
        return 2.5


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_an_array_that_is_still_computed_is_not_waited_for(platform: str, tmp_path: Path) -> None:
    value = Coming(platform)
    assert all(hasattr(jax.numpy.ones(()), name) for name in ("is_ready", "copy_to_host_async", "device", "item"))
    with barograph.init(dir=tmp_path, console="none", blackbox=False, git=False) as run:
        run.log({"loss": value, "lr": 0.1}, step=4)
        assert value.copied
        value.there = True
    found = barograph.StoredRun(run.dir)
    assert (list(found.series("loss").step), list(found.series("loss").value)) == ([4], [2.5])


def test_arrays_that_are_there_are_values_like_any_other() -> None:
    value = jax.block_until_ready(jax.numpy.float32(3.0))
    assert not on_device({"loss": value}) and DeviceValues({"loss": value}).ready()
