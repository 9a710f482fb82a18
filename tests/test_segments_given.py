"""Numbers beside texts that say which of two parts a place belongs to, in the training and in evaluations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rule_columns import findings  # noqa: E402

from barograph.doctor.rules.data.segments import SegmentsMissing  # noqa: E402
from barograph.probes.model.segments_given import SegmentsGiven  # noqa: E402

END = 2


class Kept:
    """A round that keeps what is put."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}

    def put(self, family: str, names: Any, values: Any) -> None:
        self.found = dict(zip(names, values.tolist(), strict=True))


def pairs(seed: int, parts: str = "told", rows: int = 16, ends: bool = True) -> list[Any]:
    """Texts of two parts with padding, a mask, and numbers of the parts."""
    dice = torch.Generator().manual_seed(seed)
    text = torch.randint(5, 60, (rows, 20), generator=dice)
    mask, numbers = torch.ones_like(text), torch.zeros_like(text)
    for row in range(rows):
        first, last = 4 + row % 3, 19 - row % 4
        if ends:
            text[row, first] = END
        text[row, last] = END
        text[row, last + 1 :] = 0
        mask[row, last + 1 :] = 0
        if parts == "told":
            numbers[row, first + 1 : last + 1] = 1
        elif parts == "anywhere":
            numbers[row, first + 1 + row % 2 : last + 1] = 1
    return [text, mask, numbers]


def seen(ours: str, theirs: str, ends: bool = True) -> dict[str, float]:
    look, kept = SegmentsGiven(), Kept()
    for seed in range(4):
        look.given(pairs(seed, ours), True, True)
    look.given(pairs(9, theirs, ends=ends), False, False)
    look.put(kept)  # type: ignore[arg-type]
    return kept.found


@pytest.mark.parametrize(("theirs", "share"), [("told", 1.0), ("none", 0.0)])
def test_parts_of_an_evaluation_s_texts_are_looked_for(theirs: str, share: float) -> None:
    assert seen("told", theirs) == {"parts_rows": 64, "parts_told": 1, "eval_parts_rows": 16, "eval_parts_told": share}


def test_numbers_that_follow_no_token_say_nothing() -> None:
    assert seen("anywhere", "none")["parts_told"] == 0 == seen("none", "none")["parts_told"]
    assert seen("told", "none", ends=False)["eval_parts_rows"] == 0  # texts of one part
    look, kept = SegmentsGiven(), Kept()
    look.given([torch.randint(5, 60, (16, 20)), torch.rand(16, 20)], True, True)
    look.put(kept)  # type: ignore[arg-type]
    assert kept.found == {}


@pytest.mark.parametrize(("told", "theirs", "held", "says"), [(1.0, 0.0, 50.0, 1), (1.0, 0.1, 50.0, 0),
                                                              (0.5, 0.0, 50.0, 0), (1.0, 0.0, 8.0, 0)])  # fmt: skip
def test_parts_that_evaluations_lack_are_a_finding(told: float, theirs: float, held: float, says: int) -> None:
    figures = {"parts_rows": 128.0, "parts_told": told, "eval_parts_rows": held, "eval_parts_told": theirs}
    columns = {f"model/{name}": (np.array([20, 40, 60]), np.full(3, value)) for name, value in figures.items()}
    assert len(findings([SegmentsMissing()], columns)) == says
