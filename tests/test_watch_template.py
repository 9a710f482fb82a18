"""Texts of evaluations that lack a line of the training's template, or have one more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.kernel.finding import Finding
from barograph.doctor.rules.data.template import EvaluationTemplate

torch = pytest.importorskip("torch")

from barograph.probes.model.rounds import ModelRound  # noqa: E402
from barograph.probes.model.template import FIGURES, Templates  # noqa: E402

LINE, MARK, END, PADDING = 60, 61, 62, 0


def texts(seed: int, count: int, line: bool = True, answer: bool = True, longest: int = 24) -> Any:
    """Prompts of different lengths, a line, a mark, and an answer with its end."""
    dice, rows = np.random.default_rng(seed), torch.full((count, longest), PADDING)
    for row in rows:
        said = dice.integers(5, 50, dice.integers(4, 9)).tolist()
        reply = [*dice.integers(5, 50, dice.integers(2, 5)).tolist(), END] if answer else []
        whole = [1, *said, *([LINE] if line else []), MARK, *reply]
        row[: len(whole)] = torch.tensor(whole)
    return rows


def counted(training: Any, evaluated: Any, shift: int = 0) -> dict[str, float]:
    templates, current = Templates(), ModelRound(1, frozenset())
    for seed in range(3):
        templates.given([training(seed) + shift], True, True)
    for seed in range(3, 5):
        templates.given([evaluated(seed) + shift], False, False)
    kept: dict[str, Any] = {}
    current.put = lambda family, names, values: kept.update(zip(names, values.tolist(), strict=True))  # type: ignore
    templates.put(current)
    assert tuple(kept) == FIGURES
    return kept


@pytest.mark.parametrize("shift", [0, 5000])
def test_a_line_in_front_of_a_common_mark_counts(shift: int) -> None:
    said = counted(lambda seed: texts(seed, 40), lambda seed: texts(seed, 30, line=False), shift)
    assert said == {"template_lost": 1, "template_added": 0, "template_rows": 120, "eval_template_rows": 60}
    other = counted(lambda seed: texts(seed, 40, line=False), lambda seed: texts(seed, 30), shift)
    assert (other["template_lost"], other["template_added"]) == (0, 1)


@pytest.mark.parametrize("longest", [24, 18])
def test_prompts_without_answers_and_other_lengths_say_nothing(longest: int) -> None:
    for answer in (True, False):
        said = counted(lambda seed: texts(seed, 40), lambda seed: texts(seed, 30, True, answer, longest))  # noqa: B023
        assert (said["template_lost"], said["template_added"]) == (0, 0)
    plain = counted(lambda seed: torch.randint(0, 40, (40, 20)), lambda seed: torch.randint(0, 40, (40, 20)))
    assert (plain["template_lost"], plain["template_added"]) == (0, 0)


def judged(
    pieces: tuple[int, ...] = (), lost: float = 1.0, added: float = 0.0, rows: float = 300.0, theirs: float = 64.0,
    loss: float = 1.3, config: dict[str, Any] | None = None, **watched: Any,
) -> list[Finding]:  # fmt: skip
    step, here = np.arange(200), np.arange(20, 200, 20)
    columns = {"fit/loss": (step, 1 + 0.01 * np.sin(step)), "val/loss": (here - 1, loss + 0.0 * here)}
    figures = dict(zip(FIGURES, (lost, added, rows, theirs), strict=True))
    columns |= {
        f"model/{name}": (here, value + 0.0 * here)
        for name, value in (figures | watched).items()
        if name != "answer_from"
    }
    if "answer_from" in watched:
        columns["model/answer_from"] = np.arange(0, 200, 4), watched["answer_from"] + np.zeros(50)
    return found([EvaluationTemplate()], columns, pieces, config=config or {})


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 200, 7))])
def test_a_template_that_differs_is_said_where_the_evaluation_is_worse(pieces: tuple[int, ...]) -> None:
    for one in (judged(pieces), judged(pieces, lost=0.0, added=2.0)):
        assert [(finding.step, finding.severity) for finding in one] == [(20, "warning")]
    assert not judged(pieces, loss=1.1) and not judged(pieces, lost=0.0)
    assert not judged(pieces, rows=100.0) and not judged(pieces, theirs=16.0)
    assert not judged(pieces, config={"eval_domain": "law"})


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 200, 30))])
def test_evaluations_that_lack_the_mark_behind_which_answers_begin_are_told(pieces: tuple[int, ...]) -> None:
    ahead = {"answer_from": 2.0, "target_shift": 1.0, "eval_target_shift": 1.0}
    (one,) = judged(pieces, lost=0.0, **ahead)
    assert "behind which all answers" in one.message and one.causes[0].startswith("prompt template differs")
    assert not judged(pieces, lost=0.0, **ahead, eval_answer_from=2.0)
    assert not judged(pieces, lost=0.0, **ahead, loss_ranks=1.0)  # of answers: masks of log probabilities
    assert not judged(pieces, lost=0.0, **ahead, preference_compared=2.0)
    assert not judged(pieces, lost=0.0, **ahead, eval_answer_first=3.0)  # see `answers_late`
    assert not judged(pieces, lost=0.0, answer_from=2.0, target_shift=1.0)  # its targets are not known
    assert not judged(pieces, lost=0.0, loss=1.1, **ahead)
    several = ahead | {"answer_from": np.arange(50) % 2}
    assert not judged(pieces, lost=0.0, **several)  # of several kinds of prompts
