"""Pairs of a preference that were taken apart wrongly, or cut to what they have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_columns import findings

torch = pytest.importorskip("torch")
from test_watch_judged import Walker  # noqa: E402
from torch.nn import functional  # noqa: E402

import barograph  # noqa: E402
from barograph.doctor import diagnose  # noqa: E402
from barograph.doctor.rules.rl.pairs import (  # noqa: E402
    AnswersBeginLate,
    AnswersByOther,
    AnswersEnded,
    AnswersTwice,
    PairsCrossed,
)
from barograph.probes.model import judged  # noqa: E402

LOOKS = np.arange(0, 60, 10)


def rules(together: float, same: float, pairs: bool = True, looks: int = 6) -> list[str]:
    columns: dict[str, Any] = {
        "model/judged_together": (LOOKS[:looks], np.full(looks, together)),
        "model/judged_same": (LOOKS[:looks], np.full(looks, same)),
    }
    if pairs:
        columns["model/preference_averaged"] = (LOOKS[:1], np.zeros(1))
    return [one.rule for one in findings([PairsCrossed(), AnswersTwice()], columns).values()]


def test_pairs_are_said_where_the_loss_compares_answers() -> None:
    assert rules(1.0, 0.0) == ["pairs_crossed"] and rules(0.0, 0.3) == ["answers_twice"]
    assert not rules(1.0, 0.3, pairs=False) and not rules(0.9, 0.2) and not rules(1.0, 0.3, looks=2)


@pytest.mark.parametrize(("apart", "ended", "looks", "said"), [
    (1.0, 0.0, 6, ["pairs_crossed"]), (0.95, 0.0, 5, ["pairs_crossed"]), (1.0, 0.0, 4, []), (0.8, 0.0, 6, []),
    (0.0, 1.0, 5, ["answers_ended"]), (0.0, -1.0, 6, ["answers_ended"]), (0.0, 1.0, 4, []), (0.0, 0.0, 6, []),
])  # fmt: skip
@pytest.mark.parametrize("cuts", [(), (3, 25)])
def test_pairs_of_two_prompts_and_ends_on_one_side_are_warnings(
    apart: float, ended: float, looks: int, said: list[str], cuts: tuple[int, ...]
) -> None:
    columns: dict[str, Any] = {
        "model/judged_apart": (LOOKS[:looks], np.full(looks, apart)),
        "model/judged_ended": (LOOKS[:looks], np.full(looks, ended)),
        "model/preference_averaged": (LOOKS[:1], np.zeros(1)),
    }
    told = findings([PairsCrossed(), AnswersEnded()], columns, cuts=cuts).values()
    assert [(one.rule, one.severity) for one in told] == [(rule, "warning") for rule in said]


@pytest.mark.parametrize(("share", "looks", "pairs", "told"), [
    (0.4, 5, True, True), (0.1, 6, True, False), (0.4, 4, True, False), (0.4, 6, False, False),
])  # fmt: skip
@pytest.mark.parametrize("cuts", [(), (3, 25)])
def test_the_mask_of_the_other_answer_is_a_warning(
    share: float, looks: int, pairs: bool, told: bool, cuts: tuple[int, ...]
) -> None:
    columns: dict[str, Any] = {"model/judged_by_other": (LOOKS[:looks], np.full(looks, share))}
    if pairs:
        columns["model/preference_averaged"] = (LOOKS[:1], np.zeros(1))
    assert [one.severity for one in findings([AnswersByOther()], columns, cuts=cuts).values()] == ["warning"] * told


@pytest.mark.parametrize(("shares", "pairs", "told"), [
    ([0.3] * 8, True, True), ([0.3, 0.3, 0.0] * 3, True, True), ([0.3] * 7, True, False), ([0.3] * 8, False, False),
    ([0.3] * 4 + [-1.0] + [0.3] * 4, True, False),  # prompts of other tokens, too
    ([0.03] * 8, True, False), ([0.0] * 8, True, False), ([1.0] * 8, True, False),  # a mark of either answer
])  # fmt: skip
@pytest.mark.parametrize("cuts", [(), (3, 25)])
def test_answers_whose_first_token_does_not_count_are_a_warning(
    shares: list[float], pairs: bool, told: bool, cuts: tuple[int, ...]
) -> None:
    columns: dict[str, Any] = {"model/judged_late": (np.arange(len(shares)), np.array(shares))}
    if pairs:
        columns["model/preference_averaged"] = (LOOKS[:1], np.zeros(1))
    found = findings([AnswersBeginLate()], columns, cuts=cuts).values()
    assert [(one.severity, one.step) for one in found] == [("warning", 0)] * told


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize(("how", "share"), [
    ("own", 0.0), ("one late", 0.625), ("two late", -1.0), ("one side late", -1.0), ("alike", 0.0), ("others", -1.0),
])  # fmt: skip
def test_pairs_that_differ_in_front_of_their_targets_alone_are_counted(how: str, share: float, turns: bool) -> None:
    """Five of eight pairs begin with different tokens."""
    dice = torch.Generator().manual_seed(11)
    prompts, answers = torch.randint(1, 30, (8, 5), generator=dice), torch.randint(1, 30, (16, 6), generator=dice)
    answers[8:, 0] = torch.where((torch.arange(8) < 5) & (how != "alike"), answers[:8, 0] + 30, answers[:8, 0])
    answers[8:, 1] = answers[:8, 1] + 30
    others = prompts + 30 * (torch.arange(8) == 2)[:, None] if how == "others" else prompts
    tokens = torch.cat([torch.cat([prompts, others]), answers], 1)
    late = {"own": 0, "two late": 2}.get(how, 1)
    begins = 4 + late * torch.ones(16, 1)
    begins[8:] -= int(how == "one side late")
    alive = (torch.arange(11) >= begins) & (torch.arange(11) < 10)
    lowered = torch.arange(16) >= 8
    order = torch.arange(16).view(2, 8).T.flatten() if turns else torch.arange(16)
    assert float(judged.of_pairs(tokens[order], alive[order], lowered[order])[5]) == share


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("how", ["own", "chosen", "rejected", "whole", "equal"])
def test_the_mask_of_the_other_answer_is_seen(how: str, turns: bool) -> None:
    dice = torch.Generator().manual_seed(5)
    tokens = torch.randint(1, 60, (16, 12), generator=dice)
    ends = torch.randint(7, 12, (16,), generator=dice)
    if how == "equal":
        ends[8:] = ends[:8]
    tokens[torch.arange(12) >= ends[:, None]] = 0
    alive = (tokens[:, 1:] != 0) & (torch.arange(11) >= 4)
    alive = torch.cat([alive, torch.zeros(16, 1, dtype=torch.bool)], 1)
    if how in ("chosen", "rejected"):
        alive = (alive[:8] if how == "chosen" else alive[8:]).repeat(2, 1)
    elif how == "whole":
        alive = (torch.arange(12) >= 4).expand(16, -1)
    lowered = torch.arange(16) >= 8
    order = torch.arange(16).view(2, 8).T.flatten() if turns else torch.arange(16)
    said = float(judged.of_pairs(tokens[order], alive[order], lowered[order])[4])
    wrong = float((ends[:8] != ends[8:]).float().mean())
    assert said == pytest.approx(wrong if how in ("chosen", "rejected") else 0.0) and wrong > 0.5 - (how == "equal")


@pytest.mark.parametrize(
    ("how", "told"),
    [("halves", ""), ("turns", "pairs_crossed"), ("cut", "answers_twice"), ("late", "pairs_crossed"),
     ("ended", "answers_ended")],
)  # fmt: skip
def test_pairs_of_a_training_are_known(tmp_path: Path, how: str, told: str) -> None:
    dice = torch.Generator().manual_seed(3)
    torch.manual_seed(3)
    model = Walker()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    run = barograph.init(dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    for step in range(60):
        prompts, answers = (torch.randint(1, 60, size, generator=dice) for size in ((8, 6), (16, 5)))
        tokens = torch.cat([torch.cat([prompts, prompts.roll(1, 0) if how == "late" else prompts]), answers], 1)
        if how == "ended":
            tokens[:8, -1] = 0
        if how == "cut":
            tokens[8:11] = tokens[:3]
        each = model(tokens)[:, :-1].log_softmax(-1).gather(2, tokens[:, 1:, None])[..., 0]
        logs = (each * (torch.arange(10) >= 5)).sum(1)
        good, bad = (logs[::2], logs[1::2]) if how == "turns" else logs.chunk(2)
        known = good.detach() - 0.01, bad.detach() + 0.01  # of a reference
        loss = -functional.logsigmoid(0.1 * ((good - bad) - (known[0] - known[1]))).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()}, step=step)
    run.finish()
    said = {part["rule"] for one in diagnose(barograph.StoredRun(run.dir))["findings"]
            for part in (*one["evidence"].get("story", ()), one)}  # fmt: skip
    assert said & {"pairs_crossed", "answers_twice", "answers_ended"} == ({told} if told else set())
