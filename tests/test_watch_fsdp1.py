"""A model that FSDP's older kind shards is watched on two processes, and trains as it does unwatched."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

import barograph

torch = pytest.importorskip("torch")
from torch import distributed, nn  # noqa: E402


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Any) -> Any:
        return x + self.down(self.up(self.norm(x)).relu())


def on_a_rank(rank: int, folder: str) -> None:
    for watched, original in product((False, True), repeat=2):
        train(rank, f"{folder}/{original}", watched, original)


def train(rank: int, folder: str, watched: bool, original: bool) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    meeting = Path(folder) / f"meeting-{watched}"
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    torch.manual_seed(3)
    plain = nn.Sequential(nn.Embedding(30, 16), Layer(), Layer(), nn.Linear(16, 30))
    model = FullyShardedDataParallel(
        plain, auto_wrap_policy=ModuleWrapPolicy({Layer}), device_id=torch.device("cpu"), use_orig_params=original
    )
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    run = barograph.init(
        project="p", name=f"{watched}-{rank}", dir=folder, console="none", machine=False, sidecar=False, git=False
    )
    if watched:
        run.watch(model, optimizer, budget=None)
    dice = torch.Generator().manual_seed(rank)
    losses = []
    for step in range(12):
        tokens = torch.randint(30, (4, 9), generator=dice)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        run.log({"train/loss": losses[-1]}, step=step)
        with torch.no_grad():
            model(tokens)
    run.finish()
    torch.save(losses, f"{folder}/{watched}-{rank}.pt")
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes have trained, unwatched at first."""
    folder = tmp_path_factory.mktemp("trained")
    for original in (True, False):
        (folder / f"{original}").mkdir()
    torch.multiprocessing.spawn(on_a_rank, (str(folder),), nprocs=2)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("original", [True, False])
def test_two_ranks_have_the_losses_of_a_training_that_nobody_watches(trained: Path, original: bool) -> None:
    for rank in range(2):
        with_watch, without = (
            torch.load(trained / f"{original}" / f"{watched}-{rank}.pt") for watched in (True, False)
        )
        assert with_watch == without
