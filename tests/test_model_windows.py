"""Windows of one text that overlap, of which some are trained on and others evaluated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_columns import findings

torch = pytest.importorskip("torch")

from barograph.doctor.rules.data.overlaps import EvaluationOverlaps  # noqa: E402
from barograph.probes.model.passages import placed_marks  # noqa: E402
from barograph.probes.model.windows import COLUMN, Windows, size_of  # noqa: E402

WORDS = 300


def text(count: int, seed: int, likely: int = 6) -> Any:
    """Tokens of which each has few that are likely to follow."""
    dice = torch.Generator().manual_seed(seed)
    follow = torch.randint(1, WORDS, (WORDS, likely), generator=torch.Generator().manual_seed(0)).tolist()
    words = [1]
    for chosen in torch.randint(0, likely, (count - 1,), generator=dice).tolist():
        words.append(follow[words[-1]][chosen])
    return torch.tensor(words)


def cut(words: Any, long: int, stride: int) -> Any:
    return words.unfold(0, long, stride).contiguous()


def seen(given: Any, held_out: Any) -> dict[str, float]:
    """What is said of an evaluation of two passes."""
    windows = Windows()
    for rows in given.split(64):
        windows.keep(placed_marks(rows).double().numpy())
    passes = [str(2 * at // len(held_out)) for at in range(len(held_out))]
    return windows.seen(placed_marks(held_out).double().numpy(), passes)


def dealt(rows: Any) -> tuple[Any, Any]:
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
    return rows[order[64:]], rows[order[:64]]


@pytest.mark.parametrize(("long", "stride"), [(16, 1), (24, 4), (32, 8), (64, 16), (256, 64)])
def test_windows_that_are_dealt_out_to_both_sides_are_seen(long: int, stride: int) -> None:
    found = seen(*dealt(cut(text(400 * stride, 1), long, stride)))
    assert found["evaluated_windows"] > 0.7 and found["evaluated_windows_chance"] < 0.1
    assert found["evaluated_windows_rows"] == 64 and found["evaluated_windows_passes"] == 1


@pytest.mark.parametrize(
    "kind", ["by time", "another text", "trained before", "in a row", "same phrases", "masked", "the same rows"]
)
def test_what_is_no_window_of_a_text_that_was_trained_on_is_not_taken_for_one(kind: str) -> None:
    words = text(3000, 1)
    given = cut(words[:2400], 32, 4)
    held_out = cut(words[2400:] if kind == "by time" else text(600, 2), 32, 8)[:64]
    if kind == "trained before":  # histories, and what came next: each ends behind the ones that were trained on
        given, held_out = cut(words, 32, 40), cut(words[8:], 32, 40)[:64]
    elif kind == "in a row":
        given, held_out = dealt(cut(words, 32, 32))
    elif kind == "same phrases":  # in one row of three a phrase that is longer than half of the row, wherever
        both = torch.cat([given, held_out]).clone()
        dice = torch.Generator().manual_seed(4)
        for row in both[::3]:
            at = int(torch.randint(0, 12, (1,), generator=dice))
            row[at : at + 20] = words[:20]
        given, held_out = both[:-64], both[-64:]
    elif kind == "masked":
        hidden = torch.rand(given.shape, generator=torch.Generator().manual_seed(5)) < 0.15
        given, held_out = given.masked_fill(hidden, 0), given[:64]
    elif kind == "the same rows":  # are said to be trained on
        held_out = given[:64]
        assert not seen(given, held_out)
        return
    found = seen(given, held_out)
    chance = found["evaluated_windows_chance"]
    assert chance > 0.5 or found["evaluated_windows"] - chance < 0.1, found


def test_rows_are_compared_by_passages_of_half_of_their_length_at_most() -> None:
    assert [size_of(length) for length in (8, 15, 16, 24, 32, 63, 64, 1024)] == [0, 0, 8, 12, 16, 16, 32, 32]
    assert (placed_marks(cut(text(64, 3), 12, 4))[:, COLUMN] == -1).all()


@pytest.mark.parametrize(
    ("share", "chance", "passes", "said"),
    [(0.13, 0.0, 1.0, True), (0.11, 0.0, 1.0, False), (0.4, 0.2, 1.0, True), (0.27, 0.2, 1.0, False),
     (0.9, 0.6, 1.0, False), (0.5, 0.0, 0.5, False)],
)  # fmt: skip
def test_windows_on_both_sides_are_said_beyond_what_chance_gives(
    share: float, chance: float, passes: float, said: bool
) -> None:
    at = np.array([20, 40, 60])
    steps = np.arange(0, 61, 5)
    columns = {"model/evaluated_windows": (at, np.full(3, share)), "val_loss": (at, np.full(3, 1.0))}
    for name, value in (("chance", chance), ("passes", passes), ("rows", 64.0)):
        columns[f"model/evaluated_windows_{name}"] = at, np.full(3, value)
    for name, value in (("example_rows", 32.0), ("distinct_rows", 400.0)):
        columns[f"model/{name}"] = steps, np.full(len(steps), value)
    assert bool(findings([EvaluationOverlaps()], columns)) == said
