"""Attention without a mask in evaluations, where that of the training is causal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.rules.evaluation.masks import EvaluatedLater

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from barograph.probes.model.evaluated import EvaluatedLook, told_by  # noqa: E402

CAUSAL = torch.ones(6, 6).triu(1).bool()


class Called(nn.Module):
    """Whose forward pass is a function."""

    def __init__(self, call: Callable[[Any], Any]) -> None:
        super().__init__()
        self.call, self.heads = call, nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, given: Any) -> Any:
        return self.call(self)(given)


def torch_attention(**named: Any) -> Callable[[Any], Any]:
    return lambda model: lambda given: functional.scaled_dot_product_attention(given, given, given, **named)


def heads(**named: Any) -> Callable[[Any], Any]:
    return lambda model: lambda given: model.heads(given, given, given, need_weights=True, **named)[0]


@pytest.mark.parametrize(
    ("call", "later"),
    [
        (torch_attention(), 1.0),
        (torch_attention(is_causal=True), 0.0),
        (torch_attention(attn_mask=~CAUSAL), None),
        (lambda model: lambda given: functional.scaled_dot_product_attention(given[:, -1:], given, given), None),
        (lambda model: lambda given: torch_attention(is_causal=True)(model)(torch_attention()(model)(given)), 0.0),
        (heads(attn_mask=CAUSAL), None),
        (lambda model: lambda given: given, None),
    ],
)
def test_attention_without_a_mask_is_seen_in_an_evaluation(call: Callable[[Any], Any], later: float | None) -> None:
    model = Called(call).eval()
    look = EvaluatedLook(model)
    with torch.no_grad():
        model(torch.randn(2, 6, 4))
    look.close()
    assert told_by([look]).get("later_in_evaluation") == later


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ({}, True),
        ({"attention/later": 1.0}, False),
        ({"later_in_evaluation": 0.0}, False),
        ({"eval_target_shift": 0.0}, False),
        ({"target_shift": 0.0}, False),
    ],
)
def test_it_is_found_where_the_training_hides_what_comes(figures: dict[str, float], says: bool) -> None:
    figures = {
        "attention/later": 0.0,
        "target_shift": 1.0,
        "eval_target_shift": 1.0,
        "later_in_evaluation": 1.0,
    } | figures
    columns = {f"model/{name}": (np.array([20]), np.array([value])) for name, value in figures.items()}
    assert bool(found([EvaluatedLater()], columns)) is says
