"""Other words for the same on both sides of a split: what says so, and what looks like it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_columns import findings

import barograph
from barograph.doctor import diagnose

torch = pytest.importorskip("torch")

from barograph.doctor.rules.data.overlaps import EvaluationOverlaps  # noqa: E402
from barograph.probes.model.rounds import ModelRound  # noqa: E402
from barograph.probes.model.siblings import HAD, SiblingLook, Siblings, things_had  # noqa: E402

FACTS, PHRASINGS, FIELDS = 200, 3, 5


def seen(given: Any, held_out: Any) -> dict[str, float]:
    """What is said of an evaluation of two passes."""
    known = Siblings()
    for rows in given.split(32):
        known.keep(things_had(rows).double().numpy())
    passes = [str(2 * at // len(held_out)) for at in range(len(held_out))]
    rows = things_had(held_out).double().numpy()
    return known.seen(rows, passes)


def facts(phrasings: int) -> Any:
    """Texts [facts, phrasings, places] in a language of few words: five fields and what follows from each two, told
    with some words between that say nothing, and padding behind."""
    dice = torch.Generator().manual_seed(4)
    fields = torch.randint(0, 10, (FACTS, FIELDS), generator=dice)
    answer = 60 + (3 * fields[:, :3] + 7 * fields[:, 1:4]) % 10
    rows = torch.zeros(FACTS, phrasings, 16, dtype=torch.long)
    for fact in range(FACTS):
        for phrasing in range(phrasings):
            said = torch.randint(80, 96, (int(torch.randint(0, 4, (1,), generator=dice)),), generator=dice)
            own = fields[fact] + 10 * torch.arange(FIELDS)
            row = torch.cat([torch.tensor([99]), own[:1], said, own[1:], torch.tensor([98]), answer[fact]])
            rows[fact, phrasing, : len(row)] = row + 1
    return rows


def shuffled(rows: Any) -> Any:
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))]


def test_phrasings_of_one_fact_on_both_sides_are_seen_and_facts_that_are_kept_together_are_not() -> None:
    rows = facts(PHRASINGS)
    dealt = shuffled(rows.flatten(0, 1))
    found = seen(dealt[64:], dealt[:64])
    assert found["evaluated_siblings"] > 0.4 and found["evaluated_siblings_passes"] == 1
    together = seen(rows[32:].flatten(0, 1), rows[:32].flatten(0, 1))
    assert together["evaluated_siblings"] <= 0.1
    alone = facts(1)[:, 0]
    assert seen(alone[64:], alone[:64])["evaluated_siblings"] <= 0.1


def test_tellings_in_another_order_are_seen() -> None:
    dice = torch.Generator().manual_seed(3)
    pieces = torch.randint(1, 40, (120, 4, 6), generator=dice)
    told = torch.stack([torch.stack([one[torch.randperm(4, generator=dice)].flatten() for one in pieces])
                        for _ in range(3)], 1)  # fmt: skip
    dealt = shuffled(told.flatten(0, 1))
    assert seen(dealt[64:], dealt[:64])["evaluated_siblings"] > 0.6
    assert seen(told[20:].flatten(0, 1), told[:20].flatten(0, 1))["evaluated_siblings"] == 0


def test_facts_that_are_told_by_other_forms_are_seen_by_their_names() -> None:
    dice = torch.Generator().manual_seed(6)
    forms = torch.randint(1, 100, (8, 3, 9), generator=dice)  # of eight relations, told in three ways
    names = torch.randint(100, 400, (200, 9), generator=dice)
    relation = torch.randint(8, (200,), generator=dice)
    told = torch.stack([torch.cat([names[:, :5], forms[relation, way], names[:, 5:]], 1) for way in range(3)], 1)
    dealt = shuffled(told.flatten(0, 1))
    assert seen(dealt[64:], dealt[:64])["evaluated_siblings"] > 0.5
    assert seen(told[32:].flatten(0, 1), told[:32].flatten(0, 1))["evaluated_siblings"] <= 0.05


@pytest.mark.parametrize(
    "kind",
    [
        "two fields",
        "sums",
        "trained before",
        "one more word",
        "forms",
        "the same rows",
        "one template",
        "few rows",
        "a mask",
    ],
)
def test_what_is_no_other_wording_is_not_taken_for_one(kind: str) -> None:
    dice = torch.Generator().manual_seed(2)
    long = torch.randint(1, 300, (300, 33), generator=dice)
    given, held_out = long[:, :32], torch.randint(1, 300, (64, 32), generator=dice)
    if kind == "sums":  # of all there are, a third is held out
        both = shuffled(torch.cartesian_prod(torch.arange(32), torch.arange(32)))
        digits = [both[:, 0] // 10, both[:, 0] % 10, both[:, 1] // 10, both[:, 1] % 10]
        total = both.sum(1)
        rows = torch.stack([*digits[:2], torch.full_like(total, 11), *digits[2:], torch.full_like(total, 12),
                            total // 10, total % 10, torch.full_like(total, 13)], 1)  # fmt: skip
        given, held_out = rows[340:], rows[:64]
    elif kind == "two fields":  # and what follows from them, with a word that says nothing
        one, other, said = torch.randint(0, 20, (3, 500), generator=dice)
        rows = torch.stack(
            [one, said + 100, other + 20, *(40 + 20 * by + (one * by + other) % 20 for by in (1, 2, 3))], 1
        )
        rows = torch.cat([rows, torch.full((500, 1), 120)], 1)
        given, held_out = rows[64:], rows[:64]
    elif kind == "trained before":  # the last one of each is asked for
        held_out = long[:64, 1:]
    elif kind == "one more word":
        given = torch.where(torch.arange(32) < 24, given, 0)
        held_out = torch.where(torch.arange(32) < 25, long[:64, :32], 0)
    elif kind == "forms":  # that many rows have
        forms = torch.randint(1, 300, (6, 24), generator=dice)
        given, held_out = given.clone(), held_out.clone()
        given[:, 4:28] = forms[torch.randint(6, (len(given),), generator=dice)]
        held_out[:, 4:28] = forms[torch.randint(6, (64,), generator=dice)]
    elif kind == "one template":  # with two words that are drawn from a few
        form = torch.randint(1, 300, (32,), generator=dice).repeat(300, 1)
        form[:, 7], form[:, 20] = torch.randint(300, 320, (2, 300), generator=dice)
        given, held_out = form[64:], form[:64]
    elif kind == "few rows":
        given, held_out = long[:100, :32], long[:64, :32].flip(1)
    elif kind == "a mask":
        lengths = torch.randint(6, 33, (300, 1), generator=dice)
        given, held_out = (torch.arange(32) < lengths).long(), (torch.arange(32) < lengths[:64].flip(0)).long()
    elif kind == "the same rows":  # are said to be trained on
        assert not seen(given, given[:64])
        return
    assert seen(given, held_out).get("evaluated_siblings", 0) <= 0.1


def test_padding_on_either_side_and_other_rows_of_a_batch_change_nothing() -> None:
    row = torch.tensor([[3, 5, 3, 8, 9, 2, 7, 3]])
    own = things_had(row)[0] // 1024
    behind = torch.nn.functional.pad(row, (0, 5))
    before = torch.nn.functional.pad(row, (4, 0), value=1)
    for one in (behind, before):
        assert (things_had(torch.cat([one, one.flip(1)]))[0] // 1024 == own).all()
    assert (own >= 0).sum() == 15 and things_had(row.float()) is None and things_had(row[:, :3]) is None
    assert things_had(torch.arange(4000).view(2, 2000)).shape == (2, HAD)


def test_evaluations_are_looked_at_less_often_where_nothing_new_was_trained_on() -> None:
    rows = torch.randint(1, 300, (400, 16), generator=torch.Generator().manual_seed(5))
    look = SiblingLook()

    def asked(given: Any) -> bool:
        if given is not None:
            look.trained(given)
            look.put(ModelRound(0, frozenset()), False)
        look.evaluated(rows[:64])
        current = ModelRound(1, frozenset())
        look.put(current, True)
        return any(column.family == "evaluated_things" for column in current.columns)

    assert not asked(rows[64:191])  # too few rows of the training
    assert [asked(rows[191:264]), *(asked(None) for _ in range(4))] == [True] * 3 + [False] * 2
    assert not asked(rows[264:313]) and asked(rows[313:314])


@pytest.mark.parametrize(
    ("changed", "padded", "said"),
    [({}, 2.0, True), ({"": 0.14}, 2.0, False), ({"_rows": 53.0}, 2.0, False), ({"_passes": 0.5}, 2.0, False),
     ({"_passes": 0.75}, 2.0, True), ({"": 0.3, "_passes": 0.75}, 2.0, False),
     ({}, 0.0, False)],  # the last: as rows of a table, and windows that begin anywhere
)  # fmt: skip
def test_siblings_of_texts_in_two_evaluations_are_a_warning(
    changed: dict[str, float], padded: float, said: bool
) -> None:
    at = np.array([40, 80, 120])
    names = {"": 0.15, "_rows": 64.0, "_passes": 1.0} | changed
    columns: dict[str, Any] = {
        f"model/evaluated_siblings{name}": (at, np.full(3, value)) for name, value in names.items()
    }  # fmt: skip
    columns |= {"val_loss": (at, np.full(3, 1.0)), "model/distinct_rows": (at, np.full(3, 400.0)),
                "model/example_rows": (at, np.full(3, 16.0)), "model/targets": (at, np.full(3, 48.0)),
                "model/input_length_std": (at, np.full(3, padded))}  # fmt: skip
    for cuts in ((), (50, 100)):
        found = findings([EvaluationOverlaps()], columns, cuts=cuts)
        assert [one.kind for one in found.values()] == ["eval"] * said
    one = {name: (steps[:1], values[:1]) for name, (steps, values) in columns.items()}
    assert not findings([EvaluationOverlaps()], one)
    assert not findings([EvaluationOverlaps()], columns | {"rollout/reward": (at, np.full(3, 1.0))})


@pytest.mark.parametrize("dealt", [True, False])
def test_the_watch_finds_phrasings_on_both_sides(tmp_path: Path, dealt: bool) -> None:
    rows = facts(PHRASINGS)
    given, held_out = rows[24:].flatten(0, 1), rows[:24].flatten(0, 1)
    if dealt:
        both = shuffled(rows.flatten(0, 1))
        given, held_out = both[72:], both[:72]
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Embedding(101, 16), torch.nn.Linear(16, 101))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    run = barograph.init(dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)

    def loss_of(some: Any) -> Any:
        said = model(some[:, :-1]).flatten(0, 1)
        return torch.nn.functional.cross_entropy(said, some[:, 1:].flatten(), ignore_index=0)

    for step in range(1, 121):
        batch = given[torch.randperm(len(given))[:48]]
        loss_of(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
        logged = {"loss": 1.0}
        if step % 20 == 0:
            with torch.no_grad():
                logged["val_loss"] = loss_of(held_out).item()
        run.log(logged, step=step)
    run.finish()
    found = [one["rule"] for one in diagnose(barograph.StoredRun(run.dir))["findings"] if one["severity"] != "info"]
    assert ("evaluation_overlaps" in found) == dealt
