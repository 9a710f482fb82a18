"""Answers of an evaluation beside their classes: one number beside, few classes, rows that are misaligned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rule_columns import findings

torch = pytest.importorskip("torch")
from test_model_compared import dice, moved, said  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import barograph  # noqa: E402
from barograph.doctor.rules.evaluation.compared import AnswersBeside, AnswersUnrelated  # noqa: E402
from barograph.probes.model import compared  # noqa: E402

SKEWED = (0.6, 0.2, 0.12, 0.05, 0.03)  # of five classes


@pytest.mark.parametrize("cuts", [(), (30, 50)])
@pytest.mark.parametrize(
    ("by", "sure", "told"),
    [
        (1, 0.8, True),
        (-1, 0.8, True),
        (0, 0.8, False),
        (1, 0.4, False),  # half of the answers are others
        (2, 0.8, False),
        (None, 0.8, False),  # the most frequent class, whatever comes
    ],
)
def test_answers_one_class_beside_are_told_where_most_rows_are_of_two_classes(
    by: int | None, sure: float, told: bool, cuts: tuple[int, ...]
) -> None:
    random = np.random.default_rng(4)
    target = random.choice(5, 300, p=SKEWED) + 2
    answers = np.where(random.random(300) < sure, target + (by or 0), random.choice(5, 300, p=SKEWED) + 2)
    answers = answers if by is not None else np.full(300, 2)
    counts = np.zeros((9, 9))
    np.add.at(counts, (target, answers), 1)
    found = {"rows": 300.0, "own": float((answers == target).mean()), "off": 0.1, "by": 1.0, "width": 9.0}
    found |= compared.shifted(counts)
    columns = {f"model/compared_{name}": (np.array([20, 40, 60]), np.full(3, value)) for name, value in found.items()}
    columns["model/wrong_share"] = (np.arange(0, 60, 5), np.full(12, 0.2))
    one = list(findings([AnswersBeside()], columns, cuts=cuts).values())
    assert [each.causes[0].split(":")[0] for each in one] == ["labels shifted"] * told
    if told:
        assert ("above" in one[0].message) is (by == 1) and found["lift_next"] > 0.5
    assert compared.shifted(counts / 300) == {}


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", ["right", "a row behind", "a row before", "others", "by chance"])
def test_answers_of_few_classes_are_compared_with_what_chance_gives(kind: str, classes: int) -> None:
    target = torch.randint(0, classes, (256,), generator=dice(2))
    wrong = torch.rand(256, generator=dice(3)) < 0.4
    answers = torch.where(wrong, torch.randint(0, classes, (256,), generator=dice(4)), target)
    asked = {"a row behind": target.roll(1), "a row before": target.roll(-1), "others": (target + 1) % classes,
             "by chance": target[torch.randperm(256, generator=dice(5))]}.get(kind, target)  # fmt: skip
    counts = compared.beside(answers, asked, asked >= 0)
    figures = dict(zip(("rows", "own", "before", "behind", "chance"), compared.by_chance(counts).tolist(), strict=True))
    columns = {f"model/compared_beside_{name}": (np.array([20, 40, 60]), np.full(3, value))
               for name, value in figures.items()}  # fmt: skip
    told = len(findings([AnswersBeside()], columns)) == 1
    assert told is (kind in ("a row behind", "a row before")) and figures["rows"] == 256
    columns["model/compared_beside_rows"] = (np.array([20, 40, 60]), np.full(3, 40.0))
    assert not findings([AnswersBeside()], columns)


def test_an_evaluation_s_rows_of_three_classes_that_are_misaligned_are_seen(tmp_path: Path) -> None:
    for kind in ("right", "a row behind"):
        run = barograph.init(dir=str(tmp_path / kind), console="none", machine=False, sidecar=False, git=False)
        torch.manual_seed(4)
        model = nn.Linear(8, 3)
        optimizer = torch.optim.Adam(model.parameters(), 1e-1)
        run.watch(model, optimizer)
        for step in range(60):
            given = torch.randn(96, 8, generator=dice(step))
            loss = functional.cross_entropy(model(given), given[:, :3].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            row = {"train/loss": loss.item()}
            if step % 20 == 19:
                given = torch.randn(96, 8, generator=dice(900))
                with torch.no_grad():
                    row["val/loss"] = functional.cross_entropy(model(given), moved(kind, given[:, :3].argmax(1))).item()
            run.log(row, step=step)
        run.finish()
        assert ("answers_beside" in said(run)) is (kind != "right")


@pytest.mark.parametrize(
    ("own", "chance", "loss", "rows", "told"),
    [(0.4, 0.33, 0.8, 200.0, True), (-1.1, 0.5, 0.3, 200.0, True), (3.0, 0.33, 0.8, 200.0, False),
     (-5.0, 0.33, 0.8, 200.0, False), (0.4, 0.33, 1.0, 200.0, False), (0.4, 0.9, 0.1, 200.0, False),
     (0.0, 0.5, 0.3, 200.0, False), (0.4, 0.33, 0.8, 64.0, False)],
)  # fmt: skip
@pytest.mark.parametrize("cuts", [(), (15, 35)])
def test_answers_at_chance_beside_a_training_that_is_learnt_are_a_finding(
    own: float, chance: float, loss: float, rows: float, told: bool, cuts: tuple[int, ...]
) -> None:
    figures = {"own": own, "chance": chance, "rows": rows, "before": 0.3, "behind": -0.2}
    columns = {f"model/compared_beside_{name}": (np.array([20, 40, 60]), np.full(3, value))
               for name, value in figures.items()}  # fmt: skip
    columns |= {"train/loss": (np.arange(61), np.full(61, loss)), "model/loss_weight": (np.arange(61), np.ones(61))}

    def rules() -> list[str]:
        return [one.rule for one in findings([AnswersUnrelated()], columns, cuts=cuts).values()]

    assert rules() == ["answers_unrelated"] * told
    columns["model/loss_weight"] = (np.arange(61), np.full(61, 32.0))  # a sum, or a loss with weights
    assert not rules()
