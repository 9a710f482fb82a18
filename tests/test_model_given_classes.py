"""Which classes a model is given in the training and in evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_columns import findings

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import barograph  # noqa: E402
from barograph.doctor import diagnose  # noqa: E402
from barograph.doctor.rules.evaluation.compared import GivenUnseen  # noqa: E402
from barograph.probes.model.given_classes import GivenClassCounts, counts, fields_of  # noqa: E402

KINDS = 5


class Drawer(nn.Module):
    def __init__(self, hot: bool) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.hot = hot
        self.kind: nn.Module = nn.Linear(KINDS + 1, 16, bias=False) if hot else nn.Embedding(KINDS + 1, 16)
        self.inner, self.out = nn.Linear(6, 16), nn.Linear(16, 6)

    def forward(self, x: Any, kind: Any) -> Any:
        return self.out(torch.tanh(self.inner(x) + self.kind(kind)))


def told(kind: Any, hot: bool) -> Any:
    return nn.functional.one_hot(kind, KINDS + 1).float() if hot else kind


EVALUATIONS: dict[str, Any] = {
    "as trained": lambda kind: kind + 1,
    "one lower": lambda kind: kind,
    "one alone": lambda kind: kind * 0,
    "some": lambda kind: kind.clamp(1, 3),
    "none told": lambda kind: (kind + 1) * (torch.arange(len(kind)) % 2),
}


@pytest.mark.parametrize("hot", [False, True])
@pytest.mark.parametrize("kind", EVALUATIONS)
@pytest.mark.parametrize("untold", [0.0, 0.2])
def test_classes_that_are_one_lower_in_evaluations_are_told(
    tmp_path: Path, kind: str, hot: bool, untold: float
) -> None:
    """untold: how often the training gives none, which is class 0, or no 1 at all."""
    model, dice = Drawer(hot), torch.Generator().manual_seed(3)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    run = barograph.init(dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    for step in range(100):
        x, some = torch.randn(48, 6, generator=dice), torch.randint(0, KINDS, (48,), generator=dice)
        given, none = told(some + 1, hot), torch.rand(48, generator=dice) < untold
        given = given * (~none[:, None] if hot else ~none)
        loss = (model(x, given) - x * some[:, None]).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        row = {"train/loss": loss.item()}
        if step % 20 == 19:
            with torch.no_grad():
                x, some = torch.randn(128, 6, generator=dice), torch.randint(0, KINDS, (128,), generator=dice)
                said = model(x, told(EVALUATIONS[kind](some), hot))
                row["val/loss"] = (said - x * some[:, None]).square().mean().item()
        run.log(row, step=step)
    run.finish()
    findings = diagnose(barograph.StoredRun(run.dir))["findings"]
    rules = {part["rule"] for one in findings for part in (*one["evidence"].get("story", ()), one)}
    # where 0 is none told, the training has it too, and cannot be said to lack it
    assert ("given_classes" in rules) is (kind == "one lower" and (hot or not untold))
    # of rows with a 1 it is not known whether batches are mixed
    lacks_one = kind in ("one lower", "one alone", "none told") and not hot and not untold
    assert ("given_unseen" in rules) is lacks_one


@pytest.mark.parametrize(
    ("trained", "evaluated", "by"),
    [
        ([1, 2, 3, 4], [0, 1, 2, 3], -1),
        ([0, 1, 2], [1, 2, 3], 1),
        ([1, 2, 3, 7], [0, 1, 2, 7], -1),  # 7 is for none
        ([1, 2, 3], [0, 1, 2, 3], 0),
        ([1, 2, 3, 7], [1, 2, 3, 0], 0),
        ([0, 1, 2, 3], [1, 2, 3], 0),
        ([2, 4, 6], [3, 5, 9], 0),
    ],
)
def test_classes_of_evaluations_are_all_one_higher_or_lower(trained: list[int], evaluated: list[int], by: int) -> None:
    tables = torch.stack([counts(torch.tensor(one * 9)) for one in (trained, evaluated)]).numpy()
    assert fields_of({"given_classes": ((), tables)})["eval_given_moved"] == by


def test_the_one_class_that_an_evaluation_lacks_is_known() -> None:
    trained, whole = torch.tensor([5] * 80 + [0, 1, 2, 3] * 5), torch.tensor([0, 1, 2, 3] * 4)
    said = fields_of({"given_classes": ((), torch.stack([counts(trained), counts(whole)]).numpy())})
    assert (said["given_alone"], said["given_alone_share"]) == (5, 0.8)
    for other in (torch.tensor([0, 1, 2] * 4), torch.tensor([0, 1, 2, 3, 5] * 4), torch.tensor([0, 1, 2, 3, 4] * 4)):
        said = fields_of({"given_classes": ((), torch.stack([counts(trained), counts(other)]).numpy())})
        assert "given_alone" not in said


class Kept:
    """What was put."""

    def __init__(self) -> None:
        self.tables: list[Any] = []

    def put(self, family: str, names: Any, values: Any) -> None:
        self.tables.append(values)


@pytest.mark.parametrize(("moved", "by"), [(-1, -1), (0, 0)])
def test_classes_behind_times_of_whole_numbers_are_counted_too(moved: int, by: int) -> None:
    look, kept, dice = GivenClassCounts(), Kept(), torch.Generator().manual_seed(5)
    for trains in (True, False):
        for _ in range(3):
            kind = torch.randint(1, 5, (32,), generator=dice) + (0 if trains else moved)
            times = torch.randint(0, 200, (32,), generator=dice)
            look.given([torch.randn(32, 1, 8, 8), times, kind], trains, True)
    look.put(kept)  # type: ignore[arg-type]
    assert len(kept.tables) == 2
    assert fields_of({"given_classes": ((), torch.cat(kept.tables, 1).numpy())})["eval_given_moved"] == by


@pytest.mark.parametrize(("lacks", "unseen"), [(0, 0.0), (2, None), (None, None)])
def test_a_class_that_the_training_lacks_is_seen_behind_times_of_few_levels(
    lacks: int | None, unseen: float | None
) -> None:
    """Times have all their levels on both sides; the kinds behind them are one higher in the training, and either side
    has one more for none, as bins that are counted from the right have. lacks: what is added to them."""
    look, kept, dice = GivenClassCounts(), Kept(), torch.Generator().manual_seed(9)
    for trains in (True, False):
        for _ in range(8):
            kind = torch.randint(0, 6, (64,), generator=dice) + (1 if trains and lacks == 0 else 0)
            kind = torch.where(torch.rand(64, generator=dice) < 0.3, 6 if lacks is not None else 0, kind)
            look.given([torch.randn(64, 12), torch.arange(64) % 20, kind], trains, True)
    look.put(kept)  # type: ignore[arg-type]
    said = fields_of({"given_classes": ((), torch.cat(kept.tables, 1).numpy())})
    assert said.get("eval_given_unseen") == unseen
    assert said["given_classes"] == (6 if lacks == 0 else 20)


@pytest.mark.parametrize(
    ("longest", "least", "known"),
    [(12, 4, False), (12, 0, True), (7, 4, True)],  # of the padded rows; classes are counted from 0, or end elsewhere
)
def test_lengths_of_padded_rows_are_no_classes(longest: int, least: int, known: bool) -> None:
    """Short rows come first, so an evaluation has lengths that the training lacks."""
    look, kept, dice = GivenClassCounts(), Kept(), torch.Generator().manual_seed(7)
    for trains in (True, False):
        for most in (8, 7) if trains else (12,):
            given = torch.randint(least, most + 1, (32,), generator=dice)
            given[:2] = torch.tensor([least, most])
            places = most if longest == 12 else longest + 10
            look.given([torch.randn(32, places, 4), given], trains, True)
    look.put(kept)  # type: ignore[arg-type]
    fields = fields_of({"given_classes": ((), torch.cat(kept.tables, 1).numpy())})
    assert ("eval_given_unseen" in fields) is known


def test_rows_of_other_numbers_are_no_classes() -> None:
    assert counts(torch.tensor([[0.0, 1, 0], [0, 0, 0], [1, 0, 0]]))[:3].tolist() == [1, 1, 0]
    assert counts(torch.tensor([[0.5, 1, 0], [0, 2, 0]]))[-1] == 2
    assert counts(torch.tensor([3, -1, 99, 3]))[[3, -1]].tolist() == [2, 2]


@pytest.mark.parametrize(
    ("share", "rows", "most", "told"),
    [(0.1, 264.0, 0.3, True), (0.5, 264.0, 0.3, True), (0.1, 120.0, 0.3, False), (0.03, 900.0, 0.3, False),
     (0.17, 320.0, 1.0, False)],
)  # fmt: skip
def test_a_class_that_evaluations_alone_have_is_a_warning_where_batches_are_mixed(
    share: float, rows: float, most: float, told: bool
) -> None:
    evaluations = np.array([16, 32, 48])
    figures = {"eval_given_unseen": 5.0, "eval_given_unseen_share": share, "given_rows": rows}
    columns = {f"model/{name}": (evaluations, np.full(3, value)) for name, value in figures.items()}
    columns |= {
        "model/input_class_share": (np.arange(50), np.full(50, most)),
        "train/loss": (np.arange(50), np.ones(50)),
    }
    found = findings([GivenUnseen()], columns).values()
    assert [(one.step, one.found) for one in found] == [(16, 32)] * told
    assert [one.causes[0][:5] for one in found] == ["class" if share >= 0.3 else "label"] * told


@pytest.mark.parametrize(
    ("config", "share", "told"),
    [({"guidance": 0.0}, 0.5, False), ({"model": {"cfg_scale": 1}}, 0.5, False), ({"guidance": 2.0}, 0.5, True),
     ({"guidance": 0.0}, 0.1, True), ({"guide": 0.0}, 0.38, False)],
)  # fmt: skip
def test_the_class_of_none_counts_for_nothing_where_nothing_is_guided(
    config: dict[str, Any], share: float, told: bool
) -> None:
    evaluations = np.array([16, 32, 48])
    figures = {"eval_given_unseen": 5.0, "eval_given_unseen_share": share, "given_rows": 264.0}
    columns = {f"model/{name}": (evaluations, np.full(3, value)) for name, value in figures.items()}
    columns |= {
        "model/input_class_share": (np.arange(50), np.full(50, 0.3)),
        "train/loss": (np.arange(50), np.ones(50)),
    }
    assert bool(findings([GivenUnseen()], columns, facts={"config": config})) == told


@pytest.mark.parametrize(
    ("config", "severity"),
    [({}, "warning"), ({"stages_first": 60}, "info"), ({"data": {"plain_first_epochs": 2}}, "info"),
     ({"stages_first": 0}, "warning"), ({"channels_first": True, "kernel_first": 7, "kinds_at_first": 9}, "warning")],
)  # fmt: skip
def test_of_a_curriculum_a_class_may_come_later(config: dict[str, Any], severity: str) -> None:
    evaluations = np.array([16, 32, 48])
    figures = {"eval_given_unseen": 3.0, "eval_given_unseen_share": 0.27, "given_rows": 346.0}
    columns = {f"model/{name}": (evaluations, np.full(3, value)) for name, value in figures.items()}
    columns |= {
        "model/input_class_share": (np.arange(50), np.full(50, 0.3)),
        "train/loss": (np.arange(50), np.ones(50)),
    }
    (one,) = findings([GivenUnseen()], columns, facts={"config": config}).values()
    assert one.severity == severity


@pytest.mark.parametrize(("columns", "rows", "counted"), [(2, 32, 2), (4, 32, 4), (5, 32, 0), (2, 31, 0)])
@pytest.mark.parametrize("split", ["moved", "a new one", "one lacks"])
def test_columns_of_a_table_are_told_where_they_are_moved(columns: int, rows: int, counted: int, split: str) -> None:
    look, kept, dice = GivenClassCounts(), Kept(), torch.Generator().manual_seed(6)
    for trains in (True, False):
        for _ in range(4):
            table = torch.randint(0, 4, (rows, columns), generator=dice)
            if split == "moved":
                table[:, -1] += trains
            elif not trains:  # by months, as it were: the newest one is in the evaluation alone, or the first is not
                table[:, -1] = 4 if split == "a new one" else table[:, -1].clamp(min=1)
            look.given([torch.randn(32, 12), table], trains, True)
    look.put(kept)  # type: ignore[arg-type]
    assert len(kept.tables) == counted
    if counted:
        said = fields_of({"given_columns": ((), torch.cat(kept.tables, 1).numpy())})
        assert said.get("eval_given_moved") == (-1 if split == "moved" else None)
        assert "eval_given_unseen" not in said and "given_alone" not in said
