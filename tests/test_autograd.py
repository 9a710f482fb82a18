"""What a graph keeps is read without unpacking it: a watched training with checkpoints goes on as if nobody looked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.probes import autograd

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

PACKAGE = Path(__file__).parents[1] / "src" / "barograph"


def numbers(**how: Any) -> Any:
    return torch.arange(4.0, requires_grad=True, **how)


def test_settings_are_read_and_tensors_in_their_place_are_not() -> None:
    assert autograd.setting((numbers() ** 2).grad_fn, "exponent") == 2
    assert autograd.setting((numbers() ** torch.full((4,), 2.0)).grad_fn, "exponent", 7) == 7
    assert autograd.setting(numbers().sum().grad_fn, "no such", 7) == 7


def test_whether_a_tensor_is_kept_is_said_of_packed_ones_too() -> None:
    def attend(x: Any, mask: Any) -> Any:
        return functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    x = torch.randn(1, 1, 4, 8, requires_grad=True)
    for made in (attend, lambda *given: checkpoint(attend, *given, use_reentrant=False)):
        for mask in (None, torch.ones(4, 4, dtype=torch.bool)):
            node = made(x, mask).grad_fn
            assert autograd.has(node, "attn_mask") is (mask is not None)
            assert autograd.has(node, "no such") is False


def test_what_hooks_have_packed_is_never_unpacked() -> None:
    unpacked = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpacked.append):
        packed = (numbers() * torch.ones(4)).grad_fn
    plain = (numbers() * torch.ones(4)).grad_fn
    assert (autograd.is_packed(packed, "other"), autograd.is_packed(plain, "other")) == (True, False)
    assert autograd.tensor(packed, "other") is None
    assert autograd.tensor(plain, "other").tolist() == [1, 1, 1, 1]
    assert autograd.tensor(plain, "no such") is None
    assert autograd.has(packed, "other") is True
    assert unpacked == []


def test_a_graph_that_is_gone_says_nothing() -> None:
    loss = numbers().exp()
    loss.sum().backward()
    assert autograd.tensor(loss.grad_fn, "result") is None
    assert autograd.has(loss.grad_fn, "result") is None


def test_nothing_else_of_the_package_reads_what_a_node_saved() -> None:
    readers = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"\._saved_[a-z]+\b|[\"']_saved_", path.read_text()) and "probes" in path.parts
    }
    assert readers <= {"probes/autograd.py"}


class Block(nn.Module):
    """Attention with a mask, squares, limits, and products with what has no gradient: each keeps tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Any, mask: Any, weights: Any) -> Any:
        parts = self.mixed(x).view(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts, attn_mask=mask).transpose(1, 2).reshape(x.shape)
        mixed = torch.clamp(mixed, min=-weights) * weights + (mixed - weights) ** (weights * 2)
        return x * weights + self.out(mixed) * weights


class Checkpointed(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.embedding, self.head, self.how = nn.Embedding(20, 16), nn.Linear(16, 20), how
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, ids: Any, answers: Any) -> Any:
        x, mask = self.embedding(ids), torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
        weights = torch.ones_like(x)
        for block in self.blocks:
            x = block(x, mask, weights) if self.how == "plain" else self.kept(block, x, mask, weights)
        return functional.cross_entropy(self.head(x).flatten(0, 1), answers.flatten())

    def kept(self, call: Any, *given: Any) -> Any:
        if self.how == "offloaded":
            with torch.autograd.graph.save_on_cpu():
                return call(*given)
        return checkpoint(call, *given, use_reentrant=self.how == "reentrant")


def gradients(folder: Path, how: str, watched: bool) -> list[Any]:
    torch.manual_seed(5)
    model = Checkpointed(how)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    run = barograph.init(
        project="p", name="n", dir=str(folder), console="none", machine=False, sidecar=False, git=False
    )
    if watched:
        run.watch(model, optimizer, budget=None)
    for step in range(8):
        for _ in range(2):
            ids = torch.randint(20, (4, 9))
            (model(ids[:, :-1], ids[:, 1:]) / 2).backward()
        found = [parameter.grad.clone() for parameter in model.parameters()]
        optimizer.step()
        optimizer.zero_grad()
        run.log({"train/loss": 1.0}, step=step)
    run.finish()
    return found


@pytest.mark.parametrize("how", ["plain", "checkpointed", "reentrant", "offloaded"])
def test_a_watched_model_has_the_gradients_of_one_that_is_not(tmp_path: Path, how: str) -> None:
    alone, watched = (gradients(tmp_path / str(each), how, each) for each in (False, True))
    assert all(torch.equal(one, other) for one, other in zip(alone, watched, strict=True))
