"""What the watch and its rules say of the ends of texts, of rows that are cut off, and of targets in another order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from rule_columns import findings

torch = pytest.importorskip("torch")

from barograph.doctor.rules.data.texts import (  # noqa: E402
    AnswersCut,
    EndUntold,
    PaddedApart,
    TagsElsewhere,
)
from barograph.doctor.rules.rl.crossed import SideUntrained  # noqa: E402
from barograph.probes.model import texts  # noqa: E402

LENGTHS = torch.tensor([[5], [8], [6], [9], [7], [12]])
PLACES, END, PADDING = torch.arange(12), 31, 0


def written(end: bool = False, padding: int = PADDING) -> torch.Tensor:
    """Rows of other tokens, the last of them a token of the end."""
    tokens = torch.randint(1, 30, (6, 12), generator=torch.Generator().manual_seed(2))
    tokens[torch.arange(6), LENGTHS[:, 0] - 1] = torch.tensor([END] * 6 if end else [3, 4, 5, 6, 7, 8])
    return torch.where(PLACES < LENGTHS, tokens, padding)


def ended(ends: list[int], inside: int = 0) -> torch.Tensor:
    """The same rows, which end with these tokens in turn."""
    tokens = written()
    tokens[torch.arange(6), LENGTHS[:, 0] - 1] = torch.tensor((ends * 6)[:6])
    tokens[:3, 2] = torch.where(torch.tensor(inside > 0), inside, tokens[:3, 2])
    return tokens


def told(first: int, behind: int) -> torch.Tensor:
    """Where there is a target, the next token: from a place on, up to so many places behind the last token."""
    return (first <= PLACES) & (LENGTHS - 1 + behind > PLACES) & (PLACES < 11)


@pytest.mark.parametrize(
    ("tokens", "alive", "untold"),
    [
        (written(), told(2, 0), 1.0),  # the padding is the end, and is ignored: or there is none
        (written(), told(2, 1), 0.0),  # the first of the padding is learnt, as an end
        (written(), told(0, 6), 0.0),
        (written(end=True), told(2, 0), math.nan),  # an end of its own, which is learnt
        (torch.where(LENGTHS > 0, written()[5:], 0), told(2, 0), math.nan),  # rows without padding
        (written().flip(1), told(2, 0), math.nan),  # padding in front
        (ended([33, 34, 35]), told(2, 0), math.nan),  # a full stop, a question and a cry: they stand at ends alone
        (ended([33, 34, 35], inside=34), told(2, 0), 1.0),  # of which one is within a text, too
        (ended([33, 34, 35, 36, 37, 38]), told(2, 0), 1.0),  # each ends one row
        (written(), (LENGTHS - 4 <= PLACES) & (LENGTHS - 2 >= PLACES), math.nan),  # answers of three tokens
    ],
)
def test_an_end_that_is_never_a_target_is_known(tokens: torch.Tensor, alive: torch.Tensor, untold: float) -> None:
    assert float(texts.of_ends(tokens, alive)[0]) == pytest.approx(untold, nan_ok=True)


@pytest.mark.parametrize(
    ("alive", "before", "token"),
    [
        (told(2, -1), None, END),  # labels are -100 where they are the end
        (told(2, 0), None, math.nan),  # the end is a target
        (told(2, -1), 9, math.nan),  # one token stands in front of it in all rows, as a line's end behind an end
        ((LENGTHS - 4 <= PLACES) & (LENGTHS - 3 >= PLACES), None, math.nan),  # answers of two tokens
        (told(2, -2), None, math.nan),  # more than the end has no target
        (told(2, -1) | (PLACES == 0), None, END),
    ],
)
@pytest.mark.parametrize("padding", [PADDING, 27])
def test_a_token_of_the_end_that_is_never_a_target_is_known(
    alive: torch.Tensor, before: int | None, token: float, padding: int
) -> None:
    tokens = written(end=True, padding=padding)
    if before is not None:
        tokens[torch.arange(6), LENGTHS[:, 0] - 2] = before
    found = dict(zip(texts.ENDS, texts.of_ends(tokens, alive), strict=True))
    assert float(found["end_ignored"]) == pytest.approx(token, nan_ok=True)
    assert float(found["end_untold"]) == pytest.approx(1.0 if token == END else math.nan, nan_ok=True)
    tokens[0, 3] = END  # a turn before, which is a target
    found = dict(zip(texts.ENDS, texts.of_ends(tokens, alive | (PLACES == 2)), strict=True))
    assert math.isnan(found["end_ignored"])


@pytest.mark.parametrize(
    ("lengths", "prompts", "share"),
    [
        ([12] * 6, [9, 14, 13, 10, 15, 12], 0.5),  # three prompts are longer than the row, one as long
        ([12, 12, 12, 7, 12, 9], [9, 14, 13, 4, 15, 6], 0.5),
        ([12] * 6, [0, 14, 13, 10, 15, 12], math.nan),  # a row that counts from its beginning
        ([12, 6, 12, 7, 12, 9], [9, 14, 13, 4, 15, 6], math.nan),  # a short row without a target: not cut off
        ([12] * 6, [20] * 6, math.nan),  # no row has one: nothing says where answers are
        ([12] * 6, [5] * 6, 0.0),
    ],
)
def test_rows_that_end_within_the_prompt_are_known(lengths: list[int], prompts: list[int], share: float) -> None:
    dice = torch.Generator().manual_seed(3)
    tokens = torch.randint(1, 30, (6, 12), generator=dice)
    ends, begins = torch.tensor(lengths)[:, None], torch.tensor(prompts)[:, None]
    alive = (begins - 1 <= PLACES) & (torch.where(ends < 12, ends - 1, 12) > PLACES)
    found = texts.of_ends(torch.where(ends > PLACES, tokens, PADDING), alive)[2]
    assert float(found) == pytest.approx(share, nan_ok=True)


@pytest.mark.parametrize(
    ("tokens", "alive", "late", "everything"),
    [
        (written(end=True), told(0, 0), math.nan, 1.0),
        (written(end=True), told(0, 6), math.nan, 1.0),
        (written(end=True), told(2, 0), math.nan, 0.0),  # prompts are no targets
        (written(end=True), PLACES < 2, 29 / 41, 0.0),  # answers are no targets
        (written(end=True), (PLACES < 2) | (PLACES == 6), math.nan, 0.0),
        (written(end=True)[5:].expand(6, 12), told(0, 0), math.nan, math.nan),  # nothing is padded
    ],
)
def test_which_part_of_a_text_is_a_target_is_known(
    tokens: torch.Tensor, alive: torch.Tensor, late: float, everything: float
) -> None:
    found = dict(zip(texts.ENDS, texts.of_ends(tokens, alive.expand(6, 12)), strict=True))
    assert float(found["late_untold"]) == pytest.approx(late, nan_ok=True)
    assert float(found["all_targets"]) == pytest.approx(everything, nan_ok=True)


@pytest.mark.parametrize(
    ("start", "later", "twice"), [((30, 30), None, 1.0), ((30, 29), None, 0.0), ((30, 30), 30, 0.0)]
)
def test_a_start_that_stands_twice_is_known(start: tuple[int, int], later: int | None, twice: float) -> None:
    tokens = written()
    tokens[:, :2] = torch.tensor(start)
    if later is not None:
        tokens[2, 4] = later
    assert float(texts.of_ends(tokens, told(0, 0))[4]) == twice


def test_a_masked_model_has_no_rows_that_are_cut_off() -> None:
    tokens = torch.randint(1, 30, (6, 12), generator=torch.Generator().manual_seed(3))
    alive = (tokens % 5 == 0) & (torch.arange(6)[:, None] > 1)
    assert math.isnan(texts.of_ends(tokens, alive)[2])


@pytest.mark.parametrize("way", ["targets", "outputs", "none"])
def test_outputs_and_targets_that_are_flattened_in_another_order_are_known(way: str) -> None:
    text = torch.randint(0, 30, (4, 13), generator=torch.Generator().manual_seed(1))
    tokens, after = text[:, :-1], text[:, 1:]
    target = {
        "targets": after.T.reshape(-1).view(4, 12),
        "outputs": after.reshape(-1).view(12, 4).T,  # output (row, place) was compared with what stands at place, row
        "none": after,
    }[way]
    gradient = 0.1 - torch.nn.functional.one_hot(target, 30).double()
    assert float(texts.elsewhere(tokens, gradient, torch.tensor(True))) == (0.0 if way == "none" else 2.0)


LOOKS = np.array([1, 2, 3, 4, 12])
ENDS_IN_PADDING = {"model/padding_token": 2, "model/end_token": 2}


@pytest.mark.parametrize(
    ("rows", "silent"),
    [([0, 0, 0, 1, 1, 1], 1.0), ([1, 1, 1, 0, 0, 0], 1.0), ([0, 1, 0, 1, 1, 1], 0.0), ([0, 0, 0, 1, 0, 1], 0.0),
     ([0] * 6, 0.0), ([1] * 6, 0.0), ([0, 0, 0, 1, 1], math.nan), ([0, 0, 1, 1], math.nan)],
)  # fmt: skip
def test_half_of_the_rows_without_a_gradient_is_seen(rows: list[int], silent: float) -> None:
    alive = torch.zeros(len(rows), 5, dtype=torch.bool)
    alive[:, 3] = torch.tensor(rows).bool()
    assert float(texts.half_silent(alive)) == pytest.approx(silent, nan_ok=True)


@pytest.mark.parametrize("cuts", [(), (2, 3)])
@pytest.mark.parametrize(
    ("values", "preference", "step"),
    [([1, 1, 1, 1, 1], True, 1), ([1, 1, 0, 1, 1], True, None), ([1, 1, 1, 1, 1], False, None)],
)
def test_one_side_of_pairs_without_a_gradient_is_found(
    values: list[float], preference: bool, step: int | None, cuts: tuple[int, ...]
) -> None:
    columns = {"model/half_silent": (LOOKS, np.array(values, float))}
    if preference:
        columns["model/preference_averaged"] = LOOKS[:1], np.zeros(1)
    found = findings([SideUntrained()], columns, cuts=cuts).values()
    assert [one.step for one in found] == ([] if step is None else [step])


@pytest.mark.parametrize("cuts", [(), (2, 3)])
@pytest.mark.parametrize(
    ("values", "shift", "says"),
    [([1, 1, 1, 1, 1], 1, True), ([1, 1, 0.5, 1, 1], 1, False), ([1, 1, 1, 1, 1], 0, False),
     ([0, 0, 0, 0, 0], 1, False)],
)  # fmt: skip
def test_a_text_without_an_end_is_found_after_three_looks(
    values: list[float], shift: int, says: bool, cuts: tuple[int, ...]
) -> None:
    columns = {
        "model/target_shift": (LOOKS, np.full(5, shift, float)),
        "model/end_untold": (LOOKS, np.array(values, float)),
    }
    found = findings([EndUntold()], columns, cuts=cuts, facts={"config": {"eos_token_id": 31}}).values()
    assert [(one.step, one.last_step, one.severity) for one in found] == ([(1, 3, "warning")] if says else [])


@pytest.mark.parametrize(
    ("config", "seen", "severity"),
    [
        ({"eos_token_id": 31}, {}, "warning"),  # wherever it is, no text has it at its end
        ({}, ENDS_IN_PADDING, "warning"),
        ({}, {"model/padding_token": 0, "model/end_token": 2}, "info"),  # a configuration that nobody has filled in
        ({"eos_token_id": None}, {"model/padding_token": 0}, "info"),
        ({}, {}, "info"),  # of a log of before
        ({}, {"model/end_ignored": 31}, "warning"),
        ({}, {"model/filler_kept": 1}, "warning"),
        ({}, {"model/filler_kept": 0}, "info"),
    ],
)
def test_a_text_without_an_end_is_a_fault_where_there_is_an_end(
    config: dict[str, Any], seen: dict[str, float], severity: str
) -> None:
    columns = {"model/target_shift": 1.0, "model/end_untold": 1.0} | seen
    laid = {name: (LOOKS, np.full(5, value)) for name, value in columns.items()}
    assert [one.severity for one in findings([EndUntold()], laid, facts={"config": config}).values()] == [severity]


@pytest.mark.parametrize(
    "more",
    [{"model/loss_ranks": 1}, {"rewards/margins": 0.1}, {"model/passes": 2, "model/backwards": 1},
     {"model/all_targets": 1}],
)  # fmt: skip
def test_answers_that_are_compared_and_pieces_of_a_text_need_no_end(more: dict[str, float]) -> None:
    columns = {"model/target_shift": 1.0, "model/end_untold": 1.0} | ENDS_IN_PADDING | more
    found = findings([EndUntold()], {name: (LOOKS, np.full(5, value)) for name, value in columns.items()}).values()
    assert [one.severity for one in found] == ["info"]


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([0.5, 0.4, 0.9, 0.6, 0.5], 1),
        ([0.1, 0.4, 0.9, 0.6, 0.5], 2),
        ([0.2] * 5, None),
        ([0.5, 0.5, 0, 0.5, 0.5], None),
    ],
)
def test_answers_that_are_cut_off_are_found_after_three_looks(values: list[float], step: int | None) -> None:
    found = findings([AnswersCut()], {"model/rows_cut": (LOOKS, np.array(values))}).values()
    assert [one.step for one in found] == ([] if step is None else [step])


TAGGED = {
    "beside": None, "laid one after another": 2 / 13, "cut": 0.0, "with padding": 0.0, "one end each": None,
    "context behind": None,
}  # fmt: skip


@pytest.mark.parametrize("way", TAGGED)
def test_tags_that_stop_before_their_text_does_are_seen(way: str) -> None:
    """Texts of 10, 5, 6 and 5 tokens, in rows of ten."""
    sizes = torch.tensor([10, 5, 6, 5])
    places = torch.arange(10)
    tokens = (1 + torch.arange(40).view(4, 10)) * (places < sizes[:, None])
    ends = {"laid one after another": [7, 5, 5, 5], "one end each": [9, 4, 5, 4], "context behind": [2, 2, 1, 1]}
    alive = places < torch.tensor(ends.get(way, [10, 5, 6, 5]))[:, None]
    if way == "cut":
        alive &= places % 4 != 3
    elif way == "with padding":
        alive |= True
    share = float(texts.of_ends(tokens, alive)[texts.ENDS.index("tail_untold")])
    wanted = TAGGED[way]
    assert math.isnan(share) if wanted is None else share == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("values", "shift", "says"),
    [([0.1, 0.2, 0.1, 0.1, 0.1], -1, True), ([0.1, 0.2, 0, 0.1, 0.1], -1, False), ([0.1] * 5, 1, False)],
)
def test_tags_laid_beside_pieces_of_words_are_found_after_three_looks(
    values: list[float], shift: int, says: bool
) -> None:
    columns = {"model/target_shift": (LOOKS, np.full(5, shift, float)), "model/tail_untold": (LOOKS, np.array(values))}
    assert [one.step for one in findings([TagsElsewhere()], columns).values()] == ([1] if says else [])


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize(("first", "told"), [(0, 1.0), (1, 0.0)])
def test_tags_from_the_mark_on_leave_the_last_word_without_one(closed: bool, first: int, told: float) -> None:
    """A mark (90), words, an end (91) or none, padding (0); tags for each word."""
    dice = torch.Generator().manual_seed(2)
    tokens, alive = torch.zeros(12, 14).long(), torch.zeros(12, 14).bool()
    for at, row in enumerate(tokens):
        words = torch.randint(1, 60, (4 + at % 6,), generator=dice).tolist()
        whole = [90, *words, *([91] if closed else [])]
        row[: len(whole)] = torch.tensor(whole)
        alive[at, first : first + len(words)] = True
    assert float(texts.of_ends(tokens, alive)[texts.ENDS.index("mark_told")]) == told
    tokens[:, 0] = torch.arange(12) + 1  # no mark
    assert float(texts.of_ends(tokens, alive)[texts.ENDS.index("mark_told")]) == 0


@pytest.mark.parametrize(
    ("told", "shift", "following", "says"),
    [(1.0, -1, 0.5, True), (0.0, -1, 0.5, False), (1.0, 1, 0.5, False), (1.0, -1, 0.0, False)],
)
def test_tags_one_place_early_are_found_where_the_model_reads_on(
    told: float, shift: int, following: float, says: bool
) -> None:
    figures = {"target_shift": shift, "mark_told": told, "next_reached": following}
    columns = {f"model/{name}": (LOOKS, np.full(5, value, float)) for name, value in figures.items()}
    found = list(findings([TagsElsewhere()], columns).values())
    assert [one.causes[0][:14] for one in found] == ["labels shifted"] * says


def apart(
    inputs: str = "left", targets: str = "right", copies: bool = False, long: tuple[int, ...] = (4, 7, 9)
) -> float:
    """What is said of 24 rows of a text, padded at one side, and their targets, padded at one."""
    dice, places, classes = torch.Generator().manual_seed(3), 12, 30
    tokens = torch.zeros(24, places, dtype=torch.long)
    gradient = torch.full((24, places, classes), 0.01)
    alive = torch.zeros(24, places, dtype=torch.bool)
    for row in range(24):
        size = long[row % len(long)]
        text = torch.randint(1, classes, (size + 1,), generator=dice)
        given, wanted = text[:size], text[:size] if copies else text[1:]
        at, to = (places - size if side == "left" else 0 for side in (inputs, targets))
        tokens[row, at : at + size] = given
        gradient[row, torch.arange(to, to + size), wanted] = -1.0
        alive[row, to : to + size] = True
    return float(texts.padded_apart(tokens, gradient, alive, torch.tensor(0.0)))


def test_targets_that_are_padded_at_another_side_than_inputs_are_seen() -> None:
    assert apart() == 1.0
    assert apart("right", "left") == 1.0
    assert apart("right", "right") == apart("left", "left") == 0.0
    assert math.isnan(apart(copies=True))  # what is given is asked for, as of a text that is written again
    assert math.isnan(apart(long=(7,)))  # all rows stand apart by one number of places: not by their padding
    assert math.isnan(apart(long=(12,)))  # no padding


@pytest.mark.parametrize(("values", "step"), [([1.0] * 5, 1), ([1, 1, 0, 1, 1], None), ([0.0] * 5, None)])
def test_targets_padded_at_another_side_are_said_after_three_looks(values: list[float], step: int | None) -> None:
    columns = {"model/padded_apart": (LOOKS, np.array(values, float))}
    assert [one.step for one in findings([PaddedApart()], columns).values()] == ([] if step is None else [step])


@pytest.mark.parametrize(("goes_on", "token"), [(True, END), (False, math.nan)])
def test_a_full_stop_in_front_of_the_end_ends_no_text_where_it_stands_within_texts_too(
    goes_on: bool, token: float
) -> None:
    tokens, alive = written(end=True), told(1, -1)
    tokens[tokens == 9] = 8
    tokens[torch.arange(6), LENGTHS[:, 0] - 2] = 9
    tokens[:, 1] = 9
    alive = alive if goes_on else alive & (PLACES != 1)  # what follows a turn's end is masked
    found = dict(zip(texts.ENDS, texts.of_ends(tokens, alive), strict=True))
    assert float(found["end_ignored"]) == pytest.approx(token, nan_ok=True)


@pytest.mark.parametrize(("lengths", "token"), [([8, 8, 10, 10, 12, 12], END), ([8] * 5 + [12], math.nan)])
def test_a_token_of_the_end_is_known_in_rows_with_little_padding(lengths: list[int], token: float) -> None:
    """Of the rows with padding of three places or more all have as many targets."""
    many = torch.tensor(lengths)[:, None]
    tokens = torch.randint(1, 30, (6, 12), generator=torch.Generator().manual_seed(3))
    tokens[torch.arange(6), many[:, 0] - 1] = END
    tokens[:, 2] = torch.arange(12, 18)
    tokens = torch.where(many > PLACES, tokens, PADDING)
    alive = (many // 2 - 1 <= PLACES) & (many - 2 > PLACES)
    found = dict(zip(texts.ENDS, texts.of_ends(tokens, alive), strict=True))
    assert float(found["end_ignored"]) == pytest.approx(token, nan_ok=True)
