"""Answers whose first tokens are no targets, and texts without any, as the watch and its rules see them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from rule_columns import findings

torch = pytest.importorskip("torch")

from test_model_ends import LOOKS, told, written  # noqa: E402

from barograph.doctor.rules.data.prompts import AnswersLate, PromptsPartly, RowsSilent  # noqa: E402
from barograph.probes.model import texts  # noqa: E402
from barograph.probes.model.prompts import Asked  # noqa: E402


def asked(late: int, language: bool = False, lengths: tuple[int, ...] = (3, 4, 5, 6), first: int = 0,
          ends: int = 0) -> float:  # fmt: skip
    """What is said of sixteen rows: a prompt, its end (30), an answer, padding. late: places behind it. ends: 1 where
    the longest answers fill their rows and all end with 40; 2 where that is a target's place, too."""
    dice = torch.Generator().manual_seed(3)
    tokens = torch.zeros(16, 20, dtype=torch.long)
    alive = torch.zeros(16, 20, dtype=torch.bool)
    for row in range(16):
        prompt = lengths[row % len(lengths)]
        tokens[row, :prompt] = torch.randint(1, 20, (prompt,), generator=dice)
        tokens[row, prompt] = 30
        tokens[row, prompt + 1 : prompt + 8] = torch.randint(1, 20, (7,), generator=dice)
        if language:
            tokens[row, prompt + 1] = 21 + row % 8  # a language behind the end of the prompt, which is no target
        if first:
            tokens[row, prompt + 1] = first
        alive[row, prompt + late : prompt + 7] = True
        if ends:
            last = 19 if row % 4 == 3 else prompt + 8
            tokens[row, prompt + 8 : last] = 5
            tokens[row, last] = 40
            alive[row, prompt + late : last + (ends == 2)] = True
            alive[row, 19] = False
    return float(texts.of_ends(tokens, alive)[texts.ENDS.index("answer_late")])


def test_answers_whose_first_token_is_no_target_are_known() -> None:
    assert asked(1) == 1.0
    assert asked(0) == 0.0
    assert math.isnan(asked(1, language=True))
    assert asked(1, first=25) == 0.0  # two tokens end each prompt
    assert math.isnan(asked(1, lengths=(4,)))  # of one length: a word may stand between
    assert asked(1, language=True, ends=2) == 1.0  # targets reach into the padding: all are a place too late
    assert math.isnan(asked(1, language=True, ends=1)) and asked(0, language=True, ends=2) == 0.0
    assert math.isnan(asked(-1))  # the end of the prompt is a target, as templates have it
    assert math.isnan(asked(2))
    assert math.isnan(float(texts.of_ends(written(), told(0, 1))[texts.ENDS.index("answer_late")]))  # no prompts


@pytest.mark.parametrize(("silent", "share"), [(0, 0.0), (3, 0.25)])
def test_rows_without_any_target_are_counted(silent: int, share: float) -> None:
    tokens, alive = torch.zeros(16, 12, dtype=torch.long), torch.zeros(16, 12, dtype=torch.bool)
    tokens[:12, :8] = torch.randint(1, 30, (12, 8), generator=torch.Generator().manual_seed(1))
    alive[silent:12, 3:8] = True  # the last four rows are padding alone
    assert float(texts.of_ends(tokens, alive)[texts.ENDS.index("rows_silent")]) == share


@pytest.mark.parametrize(
    ("looks", "evaluated", "shift", "warned"),
    [
        ([0.2, 0.3, 0.2, 0.25, 0.2], [0.0, 0.0, 0.0], 1.0, True),
        ([0.2, 0.0, 0.2, 0.25, 0.2], [0.0, 0.0, 0.0], 1.0, False),
        ([0.0, 0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.0], 1.0, False),  # what is learnt has no gradient any more
        ([0.2, 0.3, 0.2, 0.25, 0.0], [0.0, 0.0, 0.0], 1.0, False),
        ([0.2, 0.3, 0.2, 0.25, 0.2], [0.2, 0.2, 0.2], 1.0, False),  # on both sides
        ([0.2, 0.3, 0.2, 0.25, 0.2], [0.0, 0.0, 0.0], 0.0, False),  # a masked model
    ],
)
@pytest.mark.parametrize(
    "more", ["", "train/reward", *(f"model/{name}" for name in ("loss_ranks", "preference_averaged",
             "preference_compared", "judged_shift", "ratio_not_raised"))],
)  # fmt: skip
@pytest.mark.parametrize("cuts", [(), (40,)])
def test_texts_without_any_target_in_the_training_alone_warn(
    looks: list[float], evaluated: list[float], shift: float, warned: bool, cuts: tuple[int, ...], more: str
) -> None:  # fmt: skip
    columns = {"model/rows_silent": (np.arange(0, 50, 10), np.array(looks)),
               "model/eval_rows_silent": (np.array([45, 60, 75]), np.array(evaluated)),
               "model/target_shift": (np.arange(0, 50, 10), np.full(5, shift))}  # fmt: skip
    columns |= {more: (np.arange(0, 50, 10), np.ones(5))} if more else {}
    said = [one.rule for one in findings([RowsSilent()], columns, cuts=cuts).values()]
    assert said == ["rows_silent"] * (warned and not more)  # some answers of a policy, or pairs, count for nothing


@pytest.mark.parametrize(("before", "warned"), [([0.0] * 8, False), ([0.0] * 4, True), ([0.0] * 7 + [0.1], True)])
def test_texts_whose_targets_end_once_they_are_learnt_are_no_texts_without_any(
    before: list[float], warned: bool
) -> None:
    """As of a loss with a margin: each had some in the first looks, where no row is cut off before its answer."""
    columns = {"model/rows_cut": (np.arange(len(before)), np.array(before)),
               "model/rows_silent": (np.arange(10, 60, 10), np.array([0.2, 0.3, 0.2, 0.25, 0.4])),
               "model/eval_rows_silent": (np.array([45, 60, 75]), np.zeros(3)),
               "model/target_shift": (np.arange(0, 50, 10), np.ones(5))}  # fmt: skip
    said = [one.rule for one in findings([RowsSilent()], columns, cuts=(40,)).values()]
    assert said == ["rows_silent"] * warned


@pytest.mark.parametrize(("late", "told"), [(1, 1.0), (0, 0.0)])
def test_first_tokens_of_answers_are_known_by_the_targets_of_other_looks(late: int, told: float) -> None:
    dice, known, seen = torch.Generator().manual_seed(3), Asked(), []
    for _ in range(12):
        tokens, alive = torch.full((8, 14), 0), torch.zeros(8, 14, dtype=torch.bool)
        for row in range(8):
            prompt = 3 + row % 4
            tokens[row, :prompt] = torch.randint(1, 200, (prompt,), generator=dice)
            tokens[row, prompt] = 230
            tokens[row, prompt + 1 : prompt + 4] = torch.randint(1, 40, (3,), generator=dice)
            alive[row, prompt + late : prompt + 3] = True
        seen.append(float(texts.of_ends(tokens, alive, known)[texts.ENDS.index("answer_late")]))
    assert seen[-4:] == [told] * 4 and (math.isnan(seen[0]) or not late)


@pytest.mark.parametrize(
    ("values", "shift", "step"),
    [([1.0] * 5, 1.0, 1), ([1, 1, 0, 1, 1], 1.0, None), ([1.0] * 5, 0.0, None), ([0.0] * 5, 1.0, None)],
)
def test_late_answers_are_said_after_three_looks(values: list[float], shift: float, step: int | None) -> None:
    columns = {"model/answer_late": (LOOKS, np.array(values, float)), "model/target_shift": (LOOKS, np.full(5, shift))}
    assert [one.step for one in findings([AnswersLate()], columns).values()] == ([] if step is None else [step])


@pytest.mark.parametrize(
    ("trained", "evaluated", "said"),
    [
        ({"from": 30.0}, {"from": 30.0}, ""),
        ({"first": 30.0}, {"from": 30.0}, "short in the training"),
        ({"after": 30.0}, {"from": 30.0}, "behind that token"),
        ({"from": 30.0}, {"first": 30.0}, "short in the evaluation"),
        ({"from": 30.0}, {"after": 30.0, "from": 7.0}, "far in the evaluation"),
        ({"first": 30.0}, {"first": 30.0}, ""),  # a template that both ask for
        ({"from": 30.0, "first": 7.0}, {"from": 7.0, "first": 9.0}, ""),  # both sides have a token of their own
        ({"first": 30.0}, {"from": 29.0}, ""),
    ],
)
def test_prompts_that_are_masked_to_another_length_on_one_side_are_known(
    trained: dict[str, float], evaluated: dict[str, float], said: str
) -> None:
    late = np.array([10, 30])
    columns = {"model/target_shift": (LOOKS, np.ones(5))}
    columns |= {f"model/answer_{name}": (LOOKS, np.full(5, value)) for name, value in trained.items()}
    columns |= {f"model/eval_answer_{name}": (late, np.full(2, value)) for name, value in evaluated.items()}
    found = list(findings([AnswersLate()], columns).values())
    assert len(found) == bool(said)
    if said:
        words = said.partition(" in the ")
        assert all(one in f"{found[0].message} {found[0].causes[0]}" for one in (words[0], words[2]))


@pytest.mark.parametrize(
    ("mask", "mark"), [("answer", 30.0), ("none", math.nan), ("prompt", math.nan), ("one short", math.nan),
                       ("far", math.nan)],
)  # fmt: skip
def test_the_end_of_prompts_that_is_a_target_itself_is_known(mask: str, mark: float) -> None:
    """Of rows of a start, a prompt, its end (30), an answer, and the end of the text (40) with a sign behind it."""
    dice = torch.Generator().manual_seed(3)
    tokens, alive = torch.zeros(16, 24, dtype=torch.long), torch.zeros(16, 24, dtype=torch.bool)
    for row in range(16):
        prompt, answer = 8 + row % 4, 3 + row // 4
        last = prompt + answer + 1
        tokens[row, : last + 2] = torch.randint(1, 20, (last + 2,), generator=dice)
        tokens[row, 0], tokens[row, prompt], tokens[row, last], tokens[row, last + 1] = 31, 30, 40, 5
        begin = {"answer": answer - 1, "none": 0, "prompt": prompt, "one short": prompt - 1, "far": prompt + 1}[mask]
        alive[row, begin : last + 1] = True
    told = float(texts.of_ends(tokens, alive)[texts.ENDS.index("prompt_told")])
    assert told == mark or (math.isnan(told) and math.isnan(mark))


@pytest.mark.parametrize(
    ("more", "config", "warned"),
    [
        ({}, {"train_on_prompt": False}, True),
        ({}, {"completion_only_loss": True}, True),
        ({}, {"train_on_prompt": True}, False),
        ({}, {}, False),  # the part may be meant
        ({"prompt_told": [5.0, 5.0, 6.0]}, {"train_on_prompt": False}, False),
        ({"prompt_told": [5.0, 5.0]}, {"train_on_prompt": False}, False),
        ({"eval_answer_from": [6.0, 6.0, 6.0]}, {"train_on_prompt": False}, False),
        ({"eval_answer_from": [5.0]}, {"train_on_prompt": False}, False),
        ({"answer_from": [5.0]}, {"train_on_prompt": False}, False),
        ({"target_shift": [0.0, 0.0, 0.0]}, {"train_on_prompt": False}, False),
    ],
)
@pytest.mark.parametrize("cuts", [(), (20, 41)])
def test_prompts_a_part_of_which_counts_are_told(
    more: dict[str, list[float]], config: dict[str, bool], warned: bool, cuts: tuple[int, ...]
) -> None:
    figures = {"prompt_told": [5.0] * 3, "target_shift": [1.0] * 3, "eval_answer_from": [5.0] * 3,
               "eval_target_shift": [1.0] * 3} | more  # fmt: skip
    columns = {
        f"model/{name}": (
            np.arange(len(values)) * 20 + 12 if "eval" in name else np.arange(len(values)) * 5,
            np.array(values),
        )
        for name, values in figures.items()
    }
    said = [one.rule for one in findings([PromptsPartly()], columns, facts={"config": config}, cuts=cuts).values()]
    assert said == ["prompts_partly"] * warned
