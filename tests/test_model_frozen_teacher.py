"""A teacher that is a frozen part of the watched model, and what looks like one."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

import barograph

torch = pytest.importorskip("torch")
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

NAMES = ("teacher_still", "teacher_swapped", "teacher_unset", "teacher_gradients")


def encoder() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(12, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 8)
    )


class Both(nn.Module):
    """A student and its teacher in one module, as MoCo's and BYOL's are."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.how, self.encoder_q = how, encoder()
        self.encoder_k: Any = (encoder() if how == "random" else copy.deepcopy(self.encoder_q)).requires_grad_(False)
        self.m = {"swapped": 0.01, "halves": 0.5, "copy": 0.0, "still": 1.0, "random": 1.0}.get(how, 0.95)

    @torch.no_grad()
    def update(self) -> None:
        for mine, other in zip(self.encoder_k.parameters(), self.encoder_q.parameters(), strict=True):
            mine.mul_(self.m).add_(other, alpha=1 - self.m)
        if self.how == "buffers":
            for mine, other in zip(self.encoder_k.buffers(), self.encoder_q.buffers(), strict=True):
                mine.copy_(other)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        with torch.no_grad():
            self.update()
            if self.how in ("evaluates", "buffers", "random"):
                self.encoder_k.eval()
            target = self.encoder_k(second)
        return 2 - 2 * functional.cosine_similarity(self.encoder_q(first), target).mean()


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("average", None), ("halves", None), ("copy", None), ("buffers", None), ("random", None),
        ("still", "teacher_still"), ("swapped", "teacher_swapped"), ("evaluates", "teacher_unset"),
    ],
)  # fmt: skip
def test_a_teacher_within_the_model(tmp_path: Path, how: str, told: str | None) -> None:
    model = Both(how)
    optimizer = torch.optim.SGD(model.encoder_q.parameters(), 0.1, momentum=0.9)
    found = trained(tmp_path, model, optimizer, lambda one, other: model(one, other))
    assert found == ({told} if told else set())


class Wrapped(nn.Module):
    """Another module around the network, as DistributedDataParallel is."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Any:
        return self.module(x)


def test_a_wrapper_around_the_watched_network_is_no_teacher(tmp_path: Path) -> None:
    torch.manual_seed(2)
    model = encoder()
    around = Wrapped(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    found = trained(tmp_path, model, optimizer, lambda one, other: (around(one) - other[:, :8]).square().mean())
    assert found == set()


def trained(tmp_path: Path, model: nn.Module, optimizer: Any, loss_of: Any) -> set[str]:
    """The rules that spoke of a teacher."""
    torch.set_num_threads(1)
    run = barograph.init(
        project="p", name="n", dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(model, optimizer)
    dice = torch.Generator().manual_seed(4)
    for step in range(150):
        first = torch.randn(24, 12, generator=dice)
        loss = loss_of(first, first + 0.3 * torch.randn(24, 12, generator=dice))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"train/loss": loss.item()}, step=step)
    run.finish()
    findings = barograph.diagnose(str(run.dir))["findings"]
    told = [part for one in findings for part in (*one["evidence"].get("story", ()), one)]
    return {one["rule"] for one in told if one["severity"] != "info"} & set(NAMES)
