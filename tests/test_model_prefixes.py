"""Learned rows in front of a sequence, and what is cut off behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.rules.activations.forward import PrefixLeft

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from barograph.probes.model.prefixes import figures  # noqa: E402


class Prefixed(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.table = way, nn.Embedding(10, 8).requires_grad_(way != "from a frozen table")
        self.prefix = nn.Parameter(torch.randn(1, 1 if way == "one row" else 3, 8))
        self.layer, self.head = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 2)

    def forward(self, ids: Any) -> Any:
        x, rows = self.table(ids), self.prefix.expand(len(ids), -1, -1)
        if self.way == "at the end":
            return self.head(self.layer(torch.cat([x, rows], 1))[:, :-3])
        if self.way == "a start, moved behind":
            return self.head(self.layer(torch.cat([rows, x], 1)[:, :-3]))
        h = self.layer(torch.cat([rows, x], 1))
        if self.way == "taken off":
            h = h[:, 3:]
        elif self.way == "both sides":
            h = torch.cat([h[:, 3:], h[:, :-3]], 1)
        elif self.way == "queries":
            h = h[:, :3]
        elif self.way == "as long as the sequence":
            h = h[:, :3] + 0 * h[:, :1]
        else:
            h = h[:, : -self.prefix.shape[1]]
        return self.head(h)


@pytest.mark.parametrize(
    ("way", "long", "left"),
    [
        ("left", 5, 3),
        ("from a frozen table", 5, 3),
        ("taken off", 5, None),
        ("at the end", 5, None),
        ("a start, moved behind", 5, None),
        ("both sides", 5, None),
        ("queries", 5, None),
        ("as long as the sequence", 3, None),
        ("one row", 5, None),  # what a text's shift leaves
    ],
)
def test_places_cut_off_at_the_other_end_than_a_prefix_are_counted(way: str, long: int, left: int | None) -> None:
    torch.manual_seed(0)
    loss = Prefixed(way)(torch.randint(10, (4, long))).square().mean()
    assert figures(loss.grad_fn) == ({} if left is None else {"prefix_left": float(left)})


@pytest.mark.parametrize(("later", "told"), [(None, True), (0.8, True), (0.0, False)])
def test_a_prefix_that_is_left_is_told_where_no_mask_hides_what_comes_later(later: float | None, told: bool) -> None:
    columns = {"model/prefix_left": (np.array([1]), np.array([4.0]))}
    columns |= {} if later is None else {"model/attention/later": (np.array([0]), np.array([later]))}
    findings = found([PrefixLeft()], columns)
    assert [(one.rule, one.severity) for one in findings] == [("prefix_left", "warning")] * told
