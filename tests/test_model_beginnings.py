"""Texts that begin as those before them: what is seen of a file in its sorted order, and what warns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from rule_columns import findings

from barograph.doctor.rules.data.beginnings import SortedOpenings, SortedTexts

torch = pytest.importorskip("torch")

from barograph.probes.model.beginnings import Beginnings  # noqa: E402
from barograph.probes.model.openings import Openings  # noqa: E402


def looked(rows: list[Any], every: int = 1) -> list[dict[str, float]]:
    """What is recorded of batches of steps in a row, and then of one of `every`."""
    look, found = Beginnings(), []
    for at, one in enumerate(rows):
        step = at if at < 8 else 8 + every * (at - 8)
        put: list[Any] = []
        look.trained(one)
        look.put(SimpleNamespace(put=lambda *given, to=put: to.append(given)), step)  # type: ignore[arg-type]
        numbers = {name: (names, values.reshape(1, -1).numpy()) for name, names, values in put}
        found.append(look.fields_of(numbers))
    return found


def file_of(kind: str) -> Any:
    dice = torch.Generator().manual_seed(1)
    rows = torch.randint(2, 4, (24 * 16, 20), generator=dice)
    rows[:, 0] += 2
    if kind == "sorted":
        rows = torch.tensor(sorted(rows.tolist()))
    if kind == "heading":
        rows[:, :8] = torch.arange(10, 18)
    if kind == "one prompt a batch":
        rows[:, :8] = rows[::16, :8].repeat_interleave(16, 0)
    if kind == "padded in front":
        rows[:, 0], count = 1, torch.randint(0, 12, (24 * 16,), generator=dice).sort().values
        rows = torch.where(torch.arange(20) <= count[:, None], 1, rows)
    return rows


@pytest.mark.parametrize("kind", ["sorted", "shuffled", "heading", "one prompt a batch", "padded in front"])
def test_a_sorted_file_is_told_from_what_rows_have_in_common_otherwise(kind: str) -> None:
    found = looked(list(file_of(kind).split(16)), every=4)
    assert not any(found[:10]) and all(found[10:])
    last = {name.removeprefix("beginnings_"): value for name, value in found[-1].items()}
    near = {name: last[name] > last["far"] + 3 for name in ("next", "border")}
    assert near == {"next": kind in ("sorted", "one prompt a batch"), "border": kind == "sorted"}
    if kind == "sorted":
        assert last["next"] > last["half"]


def test_few_rows_numbers_and_passes_that_trained_nothing_are_left_out() -> None:
    look, current = Beginnings(), SimpleNamespace(put=None)
    for one in (torch.zeros(7, 20).long(), torch.zeros(16, 20), torch.zeros(16).long()):
        look.trained(one)
        look.put(current, 0)  # type: ignore[arg-type]
    look.trained(torch.zeros(16, 20).long())
    look.trained_no_more()
    look.put(current, 0)  # type: ignore[arg-type]
    assert look.fields_of({}) == {}


@pytest.mark.parametrize("cuts", [(), (50, 90)])
@pytest.mark.parametrize(
    ("figures", "eval_loss", "more", "told"),
    [
        ({}, 1.15, {}, True),
        ({}, 1.14, {}, False),
        ({"next": 12.0, "far": 9.0, "half": 11.0}, 2.0, {}, False),
        ({"next": 6.0, "far": 3.0}, 2.0, {}, True),
        ({"next": 5.9, "far": 3.0}, 2.0, {}, False),
        ({"border": 4.0}, 2.0, {}, False),  # batches of one prompt each
        ({"half": 12.0}, 2.0, {}, False),  # all of the batch begins so
        ({}, 2.0, {"curriculum": True}, False),
    ],
)
def test_texts_in_the_order_of_a_sorted_file_warn_where_evaluations_are_worse(
    figures: dict[str, float], eval_loss: float, more: dict[str, Any], told: bool, cuts: tuple[int, ...]
) -> None:
    looks = numpy.arange(20, 120, 10)
    known = {"next": 12.0, "half": 5.0, "border": 11.0, "far": 2.0} | figures
    columns: dict[str, Any] = {f"model/beginnings_{name}": (looks, numpy.full(10, one)) for name, one in known.items()}
    columns |= {"train/loss": numpy.full(120, 1.0), "val/loss": (looks - 1, numpy.full(10, eval_loss))}
    found = findings([SortedTexts()], columns, cuts=cuts, facts={"config": more})
    assert [(one.severity, one.step, one.found) for one in found.values()] == [("warning", 0, 60)] * told


def test_a_look_that_is_otherwise_begins_the_count_anew() -> None:
    looks, following = numpy.arange(20, 120, 10), numpy.full(10, 12.0)
    following[[3, 7]] = 2.0
    columns: dict[str, Any] = {f"model/beginnings_{name}": (looks, numpy.full(10, 1.0)) for name in ("half", "far")}
    columns |= {"model/beginnings_next": (looks, following), "model/beginnings_border": (looks, numpy.full(10, 12.0))}
    columns |= {"train/loss": numpy.full(120, 1.0), "val/loss": (looks - 1, numpy.full(10, 2.0))}
    assert not findings([SortedTexts()], columns)


def openings_of(rows: list[Any]) -> dict[str, tuple[Any, Any]]:
    """Series of how batches begin, one a step."""
    look, found = Openings(), []
    for one in rows:
        put: list[Any] = []
        look.given([one], True, True)
        look.put(SimpleNamespace(put=lambda *given, to=put: to.append(given)))  # type: ignore[arg-type]
        ((_, names, values),) = put
        found.append(dict(zip(names, values.tolist(), strict=True)))
    steps = numpy.arange(len(rows))
    return {f"model/{name}": (steps, numpy.array([one[name] for one in found])) for name in found[0]}


def batches_of(kind: str) -> list[Any]:
    """Of 30 steps, texts with a mark, the task's token behind it or in front, and 12 others."""
    dice = torch.Generator().manual_seed(2)
    texts = torch.randint(10, 40, (30, 16, 14), generator=dice)
    task = torch.arange(30).repeat_interleave(16).reshape(30, 16) // 10  # one behind the other
    if kind == "shuffled":
        task = torch.randint(3, (30, 16), generator=dice)
    elif kind == "batches of one task":
        task = torch.randint(3, (30, 1), generator=dice).expand(-1, 16)
    elif kind == "mostly one":
        task = (torch.rand(30, 16, generator=dice) < 0.02).long()
    elif kind == "some sorted":
        task[::3, 0] = 4
    elif kind == "all in one":
        task = torch.zeros_like(task)
    texts[..., 0], texts[..., 1] = (task + 3, 1) if kind == "in front" else (1, task + 3)
    if kind == "padded in front":
        texts = torch.cat([torch.zeros(30, 16, 4, dtype=torch.long), texts], 2)
        texts[:, 0, 3] = 1
    return list(texts)


@pytest.mark.parametrize("cuts", [(), (7, 13, 20)])
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("sorted", True),
        ("in front", True),
        ("some sorted", True),
        ("shuffled", False),
        ("batches of one task", False),
        ("mostly one", False),
        ("all in one", False),
        ("padded in front", False),  # rows of several lengths: their padding alone is what all begin with
    ],
)
def test_texts_that_come_by_task_are_told_by_what_all_rows_begin_with(
    kind: str, told: bool, cuts: tuple[int, ...]
) -> None:
    found = findings([SortedOpenings()], openings_of(batches_of(kind)), cuts=cuts)
    assert [one.rule for one in found.values()] == ["sorted_openings"] * told


@pytest.mark.parametrize(("steady", "told"), [(True, True), (False, False)])
def test_looks_step_by_step_show_an_order_whose_blocks_later_looks_jump_over(steady: bool, told: bool) -> None:
    dice = numpy.random.default_rng(4)
    steps = numpy.array([*range(1, 9), *range(18, 200, 7)])
    marks = dice.integers(1, 4, len(steps)).astype(float)
    marks[:8] = 2.0 if steady else marks[:8]
    columns = {"model/opening_mark": (steps, marks), "model/opening_common": (steps, numpy.full(len(steps), 2.0))}
    found = findings([SortedOpenings()], columns)
    assert [one.rule for one in found.values()] == ["sorted_openings"] * told
