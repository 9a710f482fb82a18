"""An output that is made with the embedding's table, and does not train it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rule_curves

import barograph
from barograph.doctor import diagnose
from barograph.doctor.rules.activations.reach import TableDetached

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from barograph.probes.model.reach import detached_table  # noqa: E402


class Tied(nn.Module):
    """Tokens to tokens. kind: how the output's weight is had."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind, self.words, self.mix = kind, nn.Embedding(48, 16), nn.Linear(16, 16)
        nn.init.normal_(self.words.weight, std=0.2)
        self.bias = nn.Parameter(torch.zeros(48))
        if kind == "frozen copy":
            self.out = nn.Linear(16, 48)
            self.out.weight.data.copy_(self.words.weight.data)
            self.out.weight.requires_grad_(False)
        self.words.weight.requires_grad_(kind != "frozen")

    def forward(self, tokens: Any) -> Any:
        x = functional.gelu(self.mix(self.words(tokens)))
        table = self.words.weight
        if self.kind == "frozen copy":
            return self.out(x)
        if self.kind in ("detached", "in half", "said"):
            table = table.detach()
        if self.kind == "other numbers":
            table = functional.normalize(table.detach(), dim=1)
        if self.kind == "by hand":
            return x @ table.data.t() + self.bias
        return functional.linear(x, table, self.bias)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("detached", "warning"),
        ("by hand", "warning"),
        ("in half", "warning"),
        ("said", "info"),
        ("tied", ""),
        ("frozen", ""),
        ("frozen copy", ""),
        ("other numbers", ""),
    ],
)
def test_an_output_of_a_detached_table_is_told(tmp_path: Path, kind: str, told: str) -> None:
    torch.manual_seed(0)
    model, lot = Tied(kind), torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], 3e-3)
    config = {"detach_output": True} if kind == "said" else {}
    with barograph.init(
        dir=str(tmp_path), config=config, console="none", machine=False, sidecar=False, git=False
    ) as run:
        run.watch(model, optimizer)
        for step in range(14):
            tokens = torch.randint(48, (8, 12), generator=lot)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=kind == "in half"):
                logits = model(tokens)
            loss = functional.cross_entropy(logits.float().flatten(0, 1), tokens.flip(1).flatten())
            loss.backward()
            optimizer.step()
            run.log({"loss": loss.item()}, step=step)
    found = [one for one in diagnose(run.dir)["findings"] if one["rule"] == "table_detached"]
    assert [one["severity"] for one in found] == [told] * bool(told)


class Extended(nn.Module):
    """Tokens to tokens, with rows for four tokens behind a frozen table. kind: which rows the output has."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind, self.words, self.mix = kind, nn.Embedding(44, 16), nn.Linear(16, 16)
        nn.init.normal_(self.words.weight, std=0.2)
        self.words.weight.requires_grad_(kind == "all trained")
        added = 0.2 * torch.randn(4, 16)
        self.added = added if kind == "kinds" else nn.Parameter(added, requires_grad=kind != "none trained")
        self.kinds = nn.Embedding(4, 16) if kind == "kinds" else None

    def forward(self, tokens: Any) -> Any:
        table = torch.cat([self.words.weight, self.added])
        x = functional.gelu(self.mix(table[tokens] if self.kinds is None else self.words(tokens % 44)))
        if self.kinds is not None:  # four of them, as it happens, and an output that is filled up
            x = x + self.kinds(tokens % 4)
        rest = {
            "mean": self.words.weight.detach().mean(0).expand(4, -1), "detached": self.added.detach(),
            "all trained": self.added.detach(), "zeros": torch.zeros(4, 16), "kinds": torch.ones(4, 16),
            "none trained": torch.ones(4, 16),
        }.get(self.kind, self.added)  # fmt: skip
        if self.kind == "other numbers":
            return x @ torch.randn(48, 16, generator=torch.Generator().manual_seed(4)).t()
        return x @ torch.cat([self.words.weight.detach() if self.kind != "alike" else self.words.weight, rest]).t()


@pytest.mark.parametrize(
    ("kind", "told"),
    [("mean", True), ("detached", True), ("all trained", True), ("tied", False), ("alike", False), ("zeros", False),
     ("kinds", False), ("none trained", False), ("other numbers", False)],
)  # fmt: skip
def test_rows_that_are_added_to_the_embedding_alone_are_told(kind: str, told: bool) -> None:
    torch.manual_seed(0)
    model = Extended(kind)
    logits = model(torch.randint(48, (8, 12)))
    with torch.no_grad():
        found = detached_table(model, logits)
    assert (0.0 if found is None else float(found)) == 2.0 * told


@pytest.mark.parametrize(("value", "says"), [(1.0, "the output takes"), (2.0, "rows that were added"), (0.0, "")])
def test_which_rows_have_no_gradient_by_the_output_is_said(value: float, says: str) -> None:
    steps = np.array([0, 4, 9])
    series = {"model/table_detached": (steps, np.full(3, value)), "model/softmax_twice": (steps, np.zeros(3))}
    said = rule_curves.found([TableDetached()], series)
    assert [one.causes[0].split(": ")[1].startswith(says) for one in said] == [True] * bool(says)
