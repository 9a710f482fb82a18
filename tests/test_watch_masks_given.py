"""Evaluations that give no mask of their padding, where the training does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_curves import found

import barograph
from barograph.doctor import diagnose
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.rules.data.padded import EvaluationUnmasked

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from barograph.probes.model.masks_given import FIGURES, MasksGiven  # noqa: E402
from barograph.probes.model.rounds import ModelRound, finite_of  # noqa: E402

PLACES = 14


def texts(seed: int, count: int = 24, padded: bool = True) -> tuple[Any, Any]:
    """Tokens, and their mask."""
    dice = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, 20, (count, PLACES), generator=dice)
    long = torch.randint(6, PLACES - 3, (count, 1), generator=dice) if padded else torch.full((count, 1), PLACES)
    mask = torch.arange(PLACES)[None] < long
    return tokens * mask, mask


def counted(training: list[list[Any]], evaluated: list[list[Any]]) -> dict[str, float]:
    masks, current = MasksGiven(), ModelRound(1, frozenset())
    kept: dict[str, Any] = {}
    current.put = lambda family, names, values: kept.update({family: (names, values.numpy()[None])})  # type: ignore
    for one in training:
        masks.given(one, True, True)
    for one in evaluated:
        masks.given(one, False, False)
    masks.put(current)
    return finite_of(kept, "masks_given")


def test_a_mask_lengths_and_neither_are_told_apart() -> None:
    both, lengths = list(texts(0)), [texts(1)[0], texts(1)[1].sum(1)]
    alone, whole = [texts(2)[0]], [texts(3, padded=False)[0]]
    said = counted([both, both, both], [alone])
    assert tuple(said) == FIGURES and list(said.values())[:4] == [3, 3, 1, 0] and 0.1 < said["eval_padding_share"] < 0.6
    assert list(counted([lengths], [lengths, lengths]).values())[:4] == [1, 1, 2, 2]
    assert list(counted([alone, both], [both]).values())[:4] == [2, 1, 1, 1]
    none = counted([both], [whole])
    assert none["eval_padded_passes"] == 0 and "eval_padding_share" not in none
    front = [[one.flip(1) for one in texts(4)], [texts(4)[0].flip(1)]]
    assert list(counted([both], front).values())[-2:] == [2, 1]
    assert list(counted([both], [both, whole]).values())[-2:] == [0, 0]
    assert not counted([both], []) and not counted([[torch.rand(8, 4)]], [[torch.rand(8, 4)]])


@pytest.mark.parametrize(("of_mask", "kept"), [(1, 1.0), (0, 0.0), (2, 0.0), (None, 0.0)])
def test_a_mask_that_takes_the_first_filler_for_text_is_told(of_mask: int | None, kept: float) -> None:
    tokens, mask = texts(5)
    long = mask.sum(1, keepdim=True)
    given = [tokens] if of_mask is None else [tokens, (torch.arange(PLACES)[None] < long + of_mask).long()]
    masks, current, found = MasksGiven(), ModelRound(1, frozenset()), {}
    current.put = lambda family, names, values: found.update({family: values.tolist()})  # type: ignore
    masks.given(given, True, True)
    masks.put(current)
    masks.put(current)
    assert found == {"filler_kept": [kept]}


def judged(pieces: tuple[int, ...] = (), **changed: float) -> list[Finding]:
    here = np.arange(20, 100, 20)
    figures = {
        "padded_passes": 5.0, "padding_said": 5.0, "eval_padded_passes": 1.0, "eval_padding_said": 0.0,
        "eval_padding_share": 0.3, "next_reached": 0.5, "tokens_compared_in_evaluation": 0.0, "padding_share": np.nan,
    } | changed  # fmt: skip
    curves = {f"model/{name}": (here, value + 0.0 * here) for name, value in figures.items()}
    return found([EvaluationUnmasked()], curves | {"train/loss": (np.arange(100), np.ones(100))}, pieces)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 100, 7))])
def test_a_mask_that_evaluations_lack_is_a_warning(pieces: tuple[int, ...]) -> None:
    assert [(one.step, one.severity) for one in judged(pieces)] == [(20, "warning")]
    assert judged(pieces, next_reached=0.0, padding_share=0.2)  # one line for a whole text
    assert not judged(pieces, next_reached=0.0)  # a model that reads from left to right
    assert not judged(pieces, padding_said=4.0) and not judged(pieces, eval_padding_said=1.0)
    assert not judged(pieces, tokens_compared_in_evaluation=1.0)
    assert not judged(pieces, tokens_compared_in_evaluation=np.nan)  # it was not looked at
    front = {"eval_front_passes": 2.0, "eval_front_said": 0.0}
    for given in ({"eval_padded_passes": 0.0}, {"eval_padding_said": 1.0}, {"next_reached": 0.0}):
        assert judged(pieces, **given, **front)  # whatever a model reads, it reads what is in front
    assert not judged(pieces, eval_padding_said=1.0, eval_front_passes=2.0, eval_front_said=1.0)
    assert not judged(pieces, eval_padding_said=1.0, eval_front_passes=1.0, eval_front_said=0.0)
    assert not judged(pieces, tokens_compared_in_evaluation=1.0, **front)
    assert not judged(pieces, padded_passes=2.0, padding_said=2.0) and not judged(pieces, eval_padding_share=0.01)


class Reader(nn.Module):
    """Its mask is what it is given; or one that it makes itself where it is given none."""

    def __init__(self, makes: bool):
        super().__init__()
        self.words, self.head, self.makes = nn.Embedding(20, 16), nn.Linear(16, 3), makes
        self.block = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)

    def forward(self, tokens: Any, mask: Any = None) -> Any:
        if mask is None and self.makes:
            mask = tokens != 0
        return self.head(self.block(self.words(tokens), src_key_padding_mask=None if mask is None else ~mask))


@pytest.mark.parametrize(
    ("forgotten", "makes", "says"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_a_training_says_it_where_the_model_makes_no_mask_itself(
    tmp_path: Path, forgotten: bool, makes: bool, says: bool
) -> None:
    torch.manual_seed(0)
    model = Reader(makes)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    run = barograph.init(project="readers", dir=tmp_path)
    run.watch(model, optimizer)
    for step in range(44):
        model.train()
        tokens, mask = texts(step)
        tags = torch.where(mask, tokens % 3, -100)
        loss = functional.cross_entropy(model(tokens, mask).flatten(0, 1), tags.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.log({"loss": loss.item()}, step=step)
        if step % 10 == 9:
            model.eval()
            held, known = texts(1000)
            with torch.no_grad():
                out = model(held) if forgotten else model(held, known)
            told = torch.where(known, held % 3, -100)
            run.log({"val/loss": functional.cross_entropy(out.flatten(0, 1), told.flatten()).item()}, step=step)
    run.finish()
    rules = [one["rule"] for one in diagnose(barograph.StoredRun(run.dir))["findings"] if one["severity"] == "warning"]
    assert ("evaluation_unmasked" in rules) == says
