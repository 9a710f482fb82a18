"""The same examples beneath another noise, or other masks: what is said of them, and what the watch sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_columns import findings, only

from barograph.doctor.rules.data.noised import MaskShare, NoisedAgain, PlacesHidden
from barograph.probes.model import masked_rows, noising

LOOKS = np.r_[2:9, 18, 25, 32, 49, 56, 63, 80, 87, 94, 101, 118]
MARKS = np.random.default_rng(5).normal(size=400)
LAST = int(LOOKS[-1])


def said(marks: Any, cuts: Any = (), **config: Any) -> list[tuple[str, str]]:
    rows = {"model/clean_mark": (LOOKS, np.asarray(marks, float))}
    found = findings([NoisedAgain()], rows, facts={"config": config}, cuts=cuts)
    return [(str(one.severity), one.key) for one in only(found, "noised_again")]


@pytest.mark.parametrize(
    ("marks", "config", "told"),
    [
        (MARKS[LOOKS], {}, []),  # drawn anew
        (MARKS[LOOKS // 20], {}, [("warning", "stays")]),  # a batch for each twenty steps
        (0 * LOOKS + 1.3 + 1e-6 * MARKS[LOOKS], {"batch_size": 32}, [("warning", "stays")]),
        (0 * LOOKS + 1.3, {}, [("info", "stays")]),  # perhaps all there is
        (0 * LOOKS + 1.3, {"batch_size": 32, "overfit_batches": 1}, [("info", "stays")]),
        (MARKS[LOOKS % 16], {}, [("info", "order")]),
        (MARKS[LOOKS % 2], {}, []),  # of two batches
        (MARKS[LOOKS // 3], {"batch_size": 32}, []),  # three steps each
    ],
)
@pytest.mark.parametrize("cuts", [(), (7, 19, 60)])
def test_batches_that_come_again_beneath_another_noise(
    marks: Any, config: dict[str, Any], told: list[tuple[str, str]], cuts: tuple[int, ...]
) -> None:
    assert said(marks, cuts, **config) == told


def test_texts_that_come_again_beneath_other_masks() -> None:
    rows = {"model/text_mark": (LOOKS, MARKS[LOOKS // 20])}
    (found,) = findings([NoisedAgain()], rows).values()
    assert (found.severity, found.key) == ("warning", "stays")
    assert not findings([NoisedAgain()], rows | {"model/rows_again": (LOOKS, 0.0 * LOOKS + 1)})  # as they were


PLACES = 0b1001_0100_0010_0000_0001


def hidden(of_look: Any, cuts: Any = (), **config: Any) -> list[str]:
    """What is said of texts of 24 places of which these are hidden."""
    bits = [of_look(int(step), np.random.default_rng(int(step))) for step in LOOKS]
    rows = {"hidden_places": bits, "hidden_share": [one.bit_count() / 24 for one in bits], "text_mark": MARKS[LOOKS]}
    columns = {f"model/{name}": (LOOKS, np.array(values, float)) for name, values in rows.items()}
    found = findings([PlacesHidden()], columns, facts={"config": config}, cuts=cuts)
    return [str(one.severity) for one in found.values()]


def drawn(step: int, dice: Any, rows: int = 8) -> int:
    return sum(1 << place for place in range(24) if (dice.random(rows) < 0.2).any())


@pytest.mark.parametrize("cuts", [(), (7, 19, 60)])
def test_places_that_are_hidden_in_all_steps(cuts: Any) -> None:
    def cut(step: int, dice: Any) -> int:  # some texts end ahead of the last place
        return PLACES if step % 3 else PLACES & 0xFFFF

    assert hidden(cut, cuts, mlm_probability=0.2) == ["warning"]
    assert hidden(cut, cuts) == ["info"]
    assert hidden(lambda step, dice: 0b1110, cuts, mlm_probability=0.2) == []  # one blank
    assert hidden(drawn, cuts, mask_ratio=0.2) == []
    assert hidden(lambda step, dice: drawn(step, dice, 1), cuts, mask_ratio=0.2) == []


@pytest.mark.parametrize(
    ("targets", "config", "figures", "told"),
    [
        (230, {"mlm_probability": 0.2}, {}, True),
        (230, {"data.mask_ratio": 0.2}, {}, True),
        (60, {"mlm_probability": 0.2}, {}, False),
        (150, {"mlm_probability": 0.2}, {}, False),  # not twice as many
        (230, {}, {}, False),
        (230, {"mlm_probability": 0.75}, {}, False),
        (230, {"mask_prob": 0.2, "mask_length": 10}, {}, False),  # spans
        (230, {"mlm_probability": 0.2, "mask_ratio": 0.5}, {}, False),  # which one
        (230, {"mlm_probability": 0.2}, {"copied_targets": 0.8}, False),  # what is seen counts: another rule's
        (320, {"mlm_probability": 0.2}, {"target_shift": 1.0}, False),
    ],
)
def test_more_is_masked_than_configured(
    targets: float, config: dict[str, Any], figures: dict[str, float], told: bool
) -> None:
    given = {"targets": targets, "places": 320.0, "target_shift": -1.0, "copied_targets": 0.0} | figures
    columns = {f"model/{name}": (LOOKS, 0.0 * LOOKS + value) for name, value in given.items()}
    found = findings([MaskShare()], columns, facts={"config": config}, cuts=(9, 40))
    assert [str(one.severity) for one in found.values()] == ["warning"] * told


torch = pytest.importorskip("torch")


def masked(seed: int, text_seed: int = 1, *, follows: bool = True, next_token: bool = False) -> dict[str, float]:
    """Of texts of 30 places beneath a mask of this seed. next_token: each place has a target, the token behind it."""
    texts = torch.randint(1, 40, (16, 31), generator=torch.Generator().manual_seed(text_seed))
    hidden = torch.rand(16, 30, generator=torch.Generator().manual_seed(seed)) < 0.05
    tokens, targets = texts[:, :30], texts[:, 1:] if next_token else texts[:, :30]
    alive = torch.ones_like(hidden) if next_token else hidden
    gradient = torch.full((16, 30, 42), 1 / 42)
    gradient.scatter_(2, targets[..., None], 1 / 42 - 1.0)
    found = masked_rows.of_masked(
        tokens if next_token else torch.where(hidden, 41, tokens), gradient * alive[..., None], torch.tensor(follows)
    )
    return dict(zip(masked_rows.TEXTS[-3:], found.tolist(), strict=True))


def test_a_text_has_one_mark_whatever_is_hidden_of_it() -> None:
    first, second, other = masked(1), masked(2), masked(1, 5)
    assert first["text_mark"] == second["text_mark"] != other["text_mark"]
    assert first["hidden_places"] == other["hidden_places"] != second["hidden_places"]
    assert first["hidden_share"] == int(first["hidden_places"]).bit_count() / 30
    for one in (masked(1, follows=False), masked(1, next_token=True)):
        assert np.isnan(list(one.values())).all()


def mark(examples: Any, seed: int, *, to_noise: bool = False, itself: bool = False, most: float = 1.0) -> float:
    """Of a batch of these examples, with noise and times of this seed. itself: the examples are the targets."""
    torch.manual_seed(seed)
    time, noise = torch.rand(len(examples)) * most, torch.randn_like(examples)
    share = (time / most)[:, None]
    given = (1 - share) * noise + share * examples
    target = examples if itself else noise - examples if to_noise else examples - noise
    output = torch.randn_like(target)
    found = noising.figures(given, time, tuple(given.shape), output, (output - target) * 2 / output.numel(),
                            output.numel())  # fmt: skip
    return dict(zip(noising.FIGURES, found.tolist(), strict=True))["clean_mark"]


@pytest.mark.parametrize(
    ("more", "normal"),
    [
        ({}, False),
        ({"to_noise": True}, False),
        ({"itself": True, "most": 1000.0}, False),
        ({}, True),  # of which neighbours are alike
        ({"to_noise": True}, True),
    ],
)
def test_the_mark_is_that_of_the_examples_whatever_their_noise_is(more: dict[str, Any], normal: bool) -> None:
    torch.manual_seed(1)
    some, others = (
        (torch.randn(32, 16, 1) + 0.1 * torch.randn(32, 16, 4)).flatten(1) if normal else torch.rand(32, 64) ** 3
        for _ in range(2)
    )
    marks = [mark(some, seed, **more) for seed in range(4)]
    assert max(marks) - min(marks) < 1e-5 * max(map(abs, marks))
    assert abs(mark(others, 1, **more) - marks[0]) > 1e-2


def test_noise_has_no_mark() -> None:
    dice = torch.Generator().manual_seed(2)
    noise = torch.randn(32, 64, generator=dice)
    assert np.isnan(mark(noise, 1)) and np.isnan(mark(noise, 1, itself=True, most=1000.0))


@pytest.mark.parametrize("rows", [3, 32])
def test_targets_that_are_alike_in_all_rows_and_single_ones_have_no_mark(rows: int) -> None:
    row = torch.rand(1, 64, generator=torch.Generator().manual_seed(2)) ** 3
    for examples in (
        torch.zeros(rows, 64),
        torch.ones(rows, 64),
        row.expand(rows, 64),
        row * torch.arange(3.0)[:, None],
    ):
        assert np.isnan(mark(examples, 1, itself=True, most=1000.0))


def test_outputs_of_other_places_than_the_tokens_say_nothing_of_masks() -> None:
    tokens = torch.randint(1, 40, (16, 20), generator=torch.Generator().manual_seed(1))
    assert masked_rows.of_masked(tokens, torch.rand(16, 30, 42) - 0.5, torch.tensor(True)).isnan().all()
