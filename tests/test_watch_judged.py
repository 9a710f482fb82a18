"""Answers that are judged one by one: the watch sees which tokens a loss is of, whichever way each row is pushed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rule_curves
from test_watch_examples import Reader, train

from barograph.doctor.rules.data.padded import PaddingTargets
from barograph.doctor.rules.data.targets import TargetShift

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from barograph.probes.model import judged  # noqa: E402


class Walker(nn.Module):
    """A policy without attention."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.walk, self.head = nn.Embedding(61, 12), nn.GRU(12, 20, batch_first=True), nn.Linear(20, 61)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.walk(self.words(tokens))[0])


def likelihood(output: Any, tokens: Any, mask: Any, own: bool) -> Any:
    """Log probabilities of answers [rows]."""
    if not own:
        output, tokens, mask = output[:, :-1], tokens[:, 1:], mask[:, 1:]
    return (output.log_softmax(-1).gather(2, tokens[..., None])[..., 0] * mask).sum(1)


def by_entropy(output: Any, tokens: Any, mask: Any, own: bool) -> Any:
    """The same by torch's cross-entropy."""
    if not own:
        output, tokens, mask = output[:, :-1], tokens[:, 1:], mask[:, 1:]
    return -(functional.cross_entropy(output.transpose(1, 2), tokens, reduction="none") * mask).sum(1)


LOSSES = {
    "judged one by one": lambda logs, sign: (1 - (0.1 * sign * (logs - logs.detach() + 0.3)).sigmoid()).mean(),
    "odds": lambda logs, sign: functional.softplus(-0.2 * sign * (logs / 20)).mean(),
    "advantages": lambda logs, sign: (
        -torch.minimum((logs - logs.detach()).exp() * sign, (logs - logs.detach()).exp().clamp(0.8, 1.2) * sign).mean()
    ),
}


@pytest.mark.parametrize("fault", ["none", "own place", "padding"])
@pytest.mark.parametrize(("kind", "policy", "says"), [
    ("judged one by one", Reader, likelihood), ("odds", Walker, by_entropy), ("advantages", Walker, likelihood),
])  # fmt: skip
def test_tokens_of_judged_answers_are_known(tmp_path: Path, kind: str, policy: Any, says: Any, fault: str) -> None:
    generator = torch.Generator().manual_seed(5)

    def batch(step: int) -> tuple[Any, Any]:
        rows = torch.randint(1, 40, (9, 18), generator=generator)
        ends = torch.randint(9, 16, (9, 1), generator=generator)
        rows = rows.masked_fill(torch.arange(18)[None] >= ends, 0)
        mask = (torch.arange(18)[None] >= 5) & ((torch.arange(18)[None] < ends) | (fault == "padding"))
        sign = torch.where(torch.rand(9, generator=generator) < 0.5, 1.0, -1.0)
        sign[:2] = torch.tensor([1.0, -1.0])
        return rows, (rows, mask, sign)

    def loss_of(output: Any, target: Any) -> Any:
        rows, mask, sign = target
        return LOSSES[kind](says(output, rows, mask.float(), fault == "own place"), sign)

    found = train(tmp_path, policy(), batch, steps=40, loss_of=loss_of)
    assert (found.get("target_shift") == "warning") == (fault == "own place")
    assert (found.get("padding_targets") == "warning") == (fault == "padding")


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 60, 7))])
def test_judged_answers_are_said_once_beside_others(pieces: tuple[int, ...]) -> None:
    step = np.arange(60)
    both = {"model/padding_targets": (step, 0.0 * step), "model/judged_padding": (step, 0.2 + 0.0 * step),
            "model/judged_shift": (step, 0.0 * step), "model/target_shift": (step, 1 + 0.0 * step)}  # fmt: skip
    found = rule_curves.found([PaddingTargets(), TargetShift()], both, pieces)
    assert sorted(one.rule for one in found) == ["padding_targets", "target_shift"]
    few = both | {"model/judged_padding": (step[:4], 0.2 + 0.0 * step[:4]), "model/judged_shift": (step, step % 2)}
    assert not rule_curves.found([PaddingTargets(), TargetShift()], few, pieces)


@pytest.mark.parametrize("lowered", ["second half", "every other row", "within prompts"])
def test_answers_of_one_prompt_that_are_raised_together_are_counted(lowered: str) -> None:
    dice = torch.Generator().manual_seed(1)
    prompts = torch.randint(1, 20, (8, 4), generator=dice)
    answers = torch.randint(1, 20, (16, 6), generator=dice)
    tokens = torch.cat([torch.cat([prompts, prompts]), answers], 1)
    alive = torch.zeros(16, 10, dtype=torch.bool)
    alive[:, 3:9] = True
    place = torch.arange(16)
    sides = {"second half": place >= 8, "every other row": place % 2 == 1, "within prompts": place % 8 < 4}[lowered]
    together, same = judged.of_pairs(tokens, alive, sides).tolist()[:2]
    assert together == float(lowered != "second half") and (same == 0 or lowered == "within prompts")
    twice = torch.cat([tokens[:8], tokens[:8]])
    assert judged.of_pairs(twice, alive, place >= 8).tolist() == [0, 1, 0, 0, 0, 0]
    assert judged.of_pairs(twice, alive, place % 3 == 0).isnan().all()  # nothing says which two are a pair
    others = torch.randint(1, 20, (16, 10), generator=dice)
    assert judged.of_pairs(others, alive, place >= 8)[0].isnan()  # no two rows have one prompt
    assert judged.of_pairs(others, alive, place >= 8)[2] == 1


@pytest.mark.parametrize(
    ("ends", "apart", "ended"),
    [("none", 0.0, 0.0), ("raised", 0.0, 1.0), ("lowered", 0.0, -1.0), ("both", 0.0, 0.0), ("some", 0.0, 0.0),
     ("late", 1.0, 0.0), ("padded", 0.0, 0.0), ("yes and no", 0.0, 0.0)],
)  # fmt: skip
@pytest.mark.parametrize("turns", [False, True])
def test_prompts_and_ends_of_a_pair_are_compared(ends: str, apart: float, ended: float, turns: bool) -> None:
    """In halves of the batch, and by turns. padded: in front of prompts, to another length in each row."""
    dice = torch.Generator().manual_seed(2)
    prompts = torch.randint(1, 20, (8, 5), generator=dice)
    rows, begins = [], []
    for side in range(2):
        for pair in range(8):
            answer = torch.randint(1, 20, (6,), generator=dice)
            ending = {"raised": side == 0, "lowered": side == 1, "both": True, "some": side == 0 and pair > 0}
            if ending.get(ends, False):
                answer[-1] = 30
            if ends == "yes and no":
                answer[-1] = 30 + side
            left = (pair + side) % 3 if ends == "padded" else 2
            prompt = prompts[pair - (ends == "late" and side == 1)]
            rows.append(torch.cat([torch.zeros(left, dtype=torch.long), prompt, answer, torch.zeros(3 - left).long()]))
            begins.append(left + 4)
    alive = torch.zeros(16, 14, dtype=torch.bool)
    for row, begin in enumerate(begins):
        alive[row, begin : begin + 6] = True
    tokens, lowered = torch.stack(rows), torch.arange(16) >= 8
    if turns:
        order = torch.arange(16).view(2, 8).T.flatten()
        tokens, alive, lowered = tokens[order], alive[order], lowered[order]
    assert judged.of_pairs(tokens, alive, lowered)[2:4].tolist() == [apart, ended]
