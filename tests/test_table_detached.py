"""An output that is made with the embedding's table, and does not train it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.doctor import diagnose

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402


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
