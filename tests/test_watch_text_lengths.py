"""Texts that end at one length on one side alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.kernel.finding import Finding
from barograph.doctor.rules.data.cut import PaddingSide, TextsCut

torch = pytest.importorskip("torch")

from barograph.probes.model.rounds import ModelRound, finite_of  # noqa: E402
from barograph.probes.model.text_lengths import FIGURES, TextLengths  # noqa: E402


def texts(seed: int, cut: int = 30, count: int = 40, wide: int = 30) -> Any:
    """Rows of 6 to 25 tokens, padded behind; those that are longer than `cut` end there."""
    dice = np.random.default_rng(seed)
    rows = torch.zeros(count, wide).long()
    for row in rows:
        long = min(int(dice.integers(6, 26)), cut)
        row[:long] = torch.tensor(dice.integers(1, 90, long))
    return rows


def counted(ours: int, theirs: int, wide: int = 30, shift: int = 0) -> dict[str, float]:
    lengths, current = TextLengths(), ModelRound(1, frozenset())
    kept: dict[str, Any] = {}
    current.put = lambda family, names, values: kept.update({family: (names, values.numpy()[None])})  # type: ignore
    for seed in range(8):
        lengths.given([texts(seed, ours) + shift], True, True)
        lengths.given([texts(seed, ours) + shift], True, False)  # not looked at
    for seed in range(8, 10):
        lengths.given([texts(seed, theirs, wide=wide) + shift], False, False)
    lengths.put(current)
    return finite_of(kept, "text_lengths")


@pytest.mark.parametrize("shift", [0, 7])
@pytest.mark.parametrize("wide", [30, 64])
def test_lengths_of_both_sides_are_counted(shift: int, wide: int) -> None:
    said = counted(16, 30, wide, shift)
    assert tuple(said) == FIGURES
    assert (said["text_rows"], said["eval_text_rows"]) == (320, 80)
    assert (said["text_longest"], said["text_longer"]) == (16, 0) and said["eval_text_longest"] > 22
    assert said["text_full"] > 0.4 > 4 * said["text_beside"] and 0.3 < said["eval_text_longer"] < 0.6
    assert counted(30, 16)["text_longer"] > 0.3


def test_nothing_is_counted_while_no_padding_is_known() -> None:
    lengths = TextLengths()
    current = ModelRound(1, frozenset())
    whole = torch.randint(1, 90, (40, 16))
    lengths.given([whole], True, True)
    lengths.given([whole], False, False)
    put: list[Any] = []
    current.put = lambda *given: put.append(given)  # type: ignore[method-assign]
    lengths.put(current)
    assert [values[0].item() for _, _, values in put] == [0.0] * len(put)  # rows
    lengths.given([torch.rand(40, 16)], True, True)
    lengths.given([torch.rand(40, 16)], False, False)
    lengths.put(current)


@pytest.mark.parametrize(
    ("ours", "theirs", "longest"), [((16, 16), 24, 16), ((16, 16), 18, 0), ((16, 17), 24, 0), ((16, 16), 16, 0)]
)
@pytest.mark.parametrize("closed", [False, True])
def test_rows_of_one_length_without_padding_are_as_long_as_they_are(
    ours: tuple[int, int], theirs: int, longest: int, closed: bool
) -> None:
    lengths, current = TextLengths(), ModelRound(1, frozenset())
    kept: dict[str, Any] = {}
    current.put = lambda family, names, values: kept.update({family: (names, values.numpy()[None])})  # type: ignore
    for wide in ours:
        rows = torch.arange(40 * wide).reshape(40, wide) % 89
        rows[0, -3:] = torch.tensor([7, 7, 7]) if closed else rows[0, -3:]
        lengths.given([rows], True, True)
    lengths.given([torch.arange(40 * theirs).reshape(40, theirs) % 89], False, False)
    lengths.put(current)
    said = finite_of(kept, "text_lengths")
    longest = 0 if closed else longest
    assert (said["text_longest"], said["text_rows"]) == (longest, 80.0 * (longest > 0))
    assert not longest or (said["text_full"], said["eval_text_longer"], said["eval_text_longest"]) == (1, 1, 24)


def judged(
    pieces: tuple[int, ...] = (), config: dict[str, Any] | None = None, evaluated: float = 1.0, **changed: float
) -> list[Finding]:
    here = np.arange(20, 100, 20)
    ours, theirs = (320.0, 16.0, 0.4, 0.05, 0.0, 0.0), (80.0, 25.0, 0.04, 0.05, 0.4, 0.0)
    figures = dict(zip(FIGURES, (*ours, *theirs), strict=True)) | changed
    curves = {f"model/{name}": (here, value + 0.0 * here) for name, value in figures.items()}
    curves |= {"train/loss": (np.arange(100), np.ones(100)), "val/loss": (here - 1, evaluated + 0.0 * here)}
    return found([TextsCut(), PaddingSide()], curves, pieces, config=config or {})


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 100, 7))])
def test_texts_that_are_cut_on_one_side_are_a_warning(pieces: tuple[int, ...]) -> None:
    assert [(one.step, one.severity) for one in judged(pieces)] == [(0, "warning")]
    other = {
        name.replace("eval_", "") if "eval_" in name else f"eval_{name}": value
        for name, value in zip(
            FIGURES, (320.0, 16.0, 0.4, 0.05, 0.0, 0.0, 300.0, 25.0, 0.04, 0.05, 0.4, 0.0), strict=True
        )
    }
    assert [(one.step, one.severity) for one in judged(pieces, **other)] == [(20, "warning")]
    assert not judged(pieces, text_full=0.1) and not judged(pieces, text_beside=0.3)
    assert not judged(pieces, eval_text_longer=0.05) and not judged(pieces, eval_text_rows=16.0)
    assert not judged(pieces, text_rows=200.0) and not judged(pieces, config={"curriculum": True})
    assert not judged(pieces, config={"eval_domain": "law"})
    for said in (15, 18):
        assert [one.severity for one in judged(pieces, config={"max_length": said})] == ["info"]
    assert [one.severity for one in judged(pieces, config={"max_length": 32, "batch": 16})] == ["warning"]


@pytest.mark.parametrize(
    ("config", "evaluated", "told"),
    [
        ({}, 1.5, ["warning"]),
        ({}, 1.1, []),  # no worse than the training
        ({"digits": 4, "eval_digits": 8}, 1.5, []),
        ({"eval_batch": 8}, 1.5, ["warning"]),
        ({"length_generalisation": True}, 1.5, []),
        ({"block_size": 17}, 1.5, ["info"]),
    ],
)
def test_rows_of_one_length_are_told_where_evaluations_are_worse(
    config: dict[str, Any], evaluated: float, told: list[str]
) -> None:
    some = {"lr": 0.1, "batch": 4, "seed": 1}
    assert [one.severity for one in judged((), some | config, evaluated, text_full=1.0, text_beside=0.0)] == told
    assert not judged((), {"lr": 0.1}, evaluated, text_full=1.0, text_beside=0.0)


def test_rows_of_one_length_are_told_where_they_are_padded_to_that_of_longer_ones() -> None:
    some = {"lr": 0.1, "batch": 4, "seed": 1}
    padded = {"text_full": 1.0, "text_beside": 0.0, "eval_padding_share": 0.3}
    assert [one.severity for one in judged((), some, 0.8, **padded)] == ["warning"]
    assert not judged((), some, 0.8, **padded | {"eval_padding_share": 0.0})
    assert not judged((), some | {"train_len": 16, "eval_len": 25}, 0.8, **padded)
    assert [one.severity for one in judged((), some | {"max_words": 17}, 0.8, **padded)] == ["info"]
    assert not judged((), {"lr": 0.1}, 0.8, **padded)


@pytest.mark.parametrize(
    ("end", "count", "rows", "longest"), [(0, 4, 40, 12), (0, 2, 40, 0), (0, 4, 6, 0), (5, 4, 40, 0)]
)
def test_one_token_that_all_rows_end_with_is_padding(end: int, count: int, rows: int, longest: int) -> None:
    lengths, current = TextLengths(), ModelRound(1, frozenset())
    kept: dict[str, Any] = {}
    current.put = lambda family, names, values: kept.update({family: (names, values.numpy()[None])})  # type: ignore
    ours = 1 + torch.arange(rows * 12).reshape(rows, 12) % 89  # 5 is in some of them, 0 in none
    lengths.given([torch.cat([ours, torch.full((rows, count), end)], 1)], True, True)
    theirs = torch.cat([ours, 1 + ours[:, : count - 1] % 89, torch.full((rows, 1), end)], 1)
    lengths.given([theirs], False, False)
    lengths.put(current)
    said = finite_of(kept, "text_lengths")
    assert said.get("text_longest", 0) == longest
    assert not longest or (said["text_full"], said["eval_text_longer"], said["eval_text_longest"]) == (1, 1, 15)


@pytest.mark.parametrize(
    ("way", "before"), [("none", 1.0), ("mask", 0.0), ("lengths", 1.0), ("behind", 0.0), ("one", 0.0)]
)
def test_padding_in_front_is_none_of_a_text_s_length(way: str, before: float) -> None:
    lengths, current = TextLengths(), ModelRound(1, frozenset())
    kept: dict[str, Any] = {}
    current.put = lambda family, names, values: kept.update({family: (names, values.numpy()[None])})  # type: ignore
    for seed in range(8):
        lengths.given([texts(seed)], True, True)
    rows = texts(9)
    turned = torch.stack([torch.cat([row[row == 0], row[row > 0]]) for row in rows])
    if way == "one":  # each begins with the token that is the padding, too
        turned = torch.cat([torch.zeros(len(rows), 1).long(), rows], 1)
    mask = (turned != 0).long()
    beside = {"mask": [mask], "lengths": [mask.sum(1)]}.get(way, [])
    for _ in range(2):
        lengths.given([rows if way == "behind" else turned, *beside], False, False)
    lengths.put(current)
    said = finite_of(kept, "text_lengths")
    assert (said["text_before"], said["eval_text_before"]) == (0, before)
    assert said["eval_text_longest"] == max((rows != 0).sum(1)) + (way == "one")


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 100, 7))])
def test_padding_in_front_on_one_side_is_a_warning_where_the_evaluation_is_worse(pieces: tuple[int, ...]) -> None:
    alike = dict.fromkeys(("text_longest", "eval_text_longest"), 25.0)
    sides = [
        [(one.rule, one.step, one.severity) for one in judged(pieces, evaluated=evaluated, **alike, **changed)]
        for evaluated, changed in (
            (2.0, {"eval_text_before": 1.0}), (2.0, {"text_before": 0.9}), (1.1, {"eval_text_before": 1.0}),
            (2.0, {"eval_text_before": 0.3}), (2.0, {"eval_text_before": 1.0, "text_before": 0.2}),
            (2.0, {"eval_text_before": 1.0, "text_rows": 20.0}),
        )
    ]  # fmt: skip
    warns = [("padding_side", 20, "warning")]
    assert sides == [warns, warns, [], [], [], []]
