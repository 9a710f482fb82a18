"""Outputs that have one line for a whole text: what they depend on, and targets that a mask hides."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_columns import findings

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from watched_trainings import findings_of_training  # noqa: E402

from barograph.doctor.rules.activations.dependence import PaddingRead, SinglePlace  # noqa: E402
from barograph.doctor.rules.data.examples import PaddingMask  # noqa: E402
from barograph.doctor.rules.data.outputs import HiddenTargets  # noqa: E402
from barograph.probes.model import attention, dependence, padding, softmaxes  # noqa: E402

NOTHING = torch.full((), math.nan)
LENGTHS = torch.tensor([[5], [8], [6], [10]])
REAL = torch.arange(10) < LENGTHS
TOKENS = torch.where(REAL, torch.arange(1, 41).reshape(4, 10), 0)


@pytest.mark.parametrize(
    ("size", "read", "single"),
    [
        (REAL.float(), 0.0, math.nan),
        (torch.ones(4, 10), 0.45, math.nan),  # a mean over all places; of the rows that end with padding for sure
        (functional.one_hot(torch.tensor([9] * 4), 10).float(), 1.0, 9.0),
        (functional.one_hot(torch.tensor([0] * 4), 10).float(), 0.0, 0.0),
        (functional.one_hot(LENGTHS[:, 0] - 1, 10).float(), 0.0, math.nan),
    ],
)
def test_what_is_said_of_a_text_may_depend_on_its_padding(size: Any, read: float, single: float) -> None:
    found = dependence._of_whole(size, TOKENS, NOTHING)
    assert float(found[0]) == pytest.approx(read)
    assert float(found[2]) == pytest.approx(single, nan_ok=True)


def test_texts_without_padding_say_nothing_of_it() -> None:
    found = dependence._of_whole(torch.ones(4, 10), torch.arange(40).reshape(4, 10), NOTHING)
    assert all(math.isnan(one) for one in found)


@pytest.mark.parametrize(
    ("other", "given"),
    [
        (LENGTHS[:, 0], True),
        (LENGTHS[:, 0] - 1, True),  # the last token's place
        (REAL.long(), True),
        (~REAL, True),
        (REAL.float(), True),
        (torch.tensor([1, 0, 1, 0]), False),  # labels
        (torch.arange(40).reshape(4, 10), False),
        (torch.zeros(4, 10), False),
        (torch.arange(10) < 9 - torch.zeros(4, 1), False),  # of another text
    ],
)
def test_lengths_and_masks_say_where_padding_is(other: Any, given: bool) -> None:
    tail, sure = padding.tails(TOKENS)
    assert bool(sure)
    assert bool(padding.is_given(tail, [torch.randn(4, 3), other])) == given


@pytest.mark.parametrize(("other", "known"), [(REAL.long(), True), (TOKENS.flip(1), False), (None, True)])
def test_attention_knows_padding_beside_a_mask_and_not_beside_another_text(other: Any, known: bool) -> None:
    look = attention.AttentionLook([TOKENS] if other is None else [TOKENS, other])
    scores = torch.zeros(4, 1, 10, 10)
    look.keep(lambda: attention.of_scores(scores, 10), lambda: (None, True))
    seen = look.figures()["attention/seen_padding"]
    assert float(seen) == 1.0 if known else math.isnan(float(seen))


@pytest.mark.parametrize("cuts", [(), (7, 110)])
@pytest.mark.parametrize(
    ("given", "following", "severity"),
    [(1.0, 1.0, "warning"), (0.0, 1.0, "info"), (None, 1.0, "info"), (1.0, 0.0, None)],
)  # fmt: skip
def test_attention_to_padding_is_a_warning_where_the_model_knows_of_it(
    given: float | None, following: float, severity: str | None, cuts: tuple[int, ...]
) -> None:
    at = np.array([109])
    columns = {"model/attention/seen_padding": (at, np.ones(1)), "model/attention/hidden_tokens": (at, np.zeros(1)),
               "model/attention/next": (at, np.array([following]))}  # fmt: skip
    if given is not None:
        columns["model/padding_given"] = (np.array([6]), np.array([given]))
    found = findings([PaddingMask()], columns, cuts=cuts).values()
    assert [one.severity for one in found] == ([severity] if severity else [])


@pytest.mark.parametrize(("inverted", "told"), [(1.0, True), (0.6, False), (math.nan, False)])
def test_one_layer_that_hides_tokens_and_shows_their_padding_is_enough(inverted: float, told: bool) -> None:
    at = np.array([50, 109])
    columns = {"model/attention/seen_padding": (at, np.full(2, math.nan)),
               "model/attention/inverted": (at, np.full(2, inverted))}  # fmt: skip
    found = findings([PaddingMask()], columns).values()
    assert [(one.severity, one.step) for one in found] == [("warning", 50)] * told


@pytest.mark.parametrize(
    ("state", "given", "severity"), [(1.0, 1.0, "warning"), (1.0, 0.0, "info"), (0.0, 1.0, "info")]
)
def test_a_state_behind_padding_is_a_warning_where_the_model_knows_of_it(
    state: float, given: float, severity: str
) -> None:
    figures = {"padding_read": 0.4, "padding_share": 0.4, "state_behind_padding": state, "padding_given": given}
    columns = {f"model/{name}": (LOOKS, np.full(2, value)) for name, value in figures.items()}
    assert [one.severity for one in findings([PaddingRead()], columns).values()] == [severity]


LOOKS = np.array([6, 106])


@pytest.mark.parametrize("cuts", [(), (7, 50, 110)])
@pytest.mark.parametrize(
    ("read", "there", "seen", "severity"),
    [(0.95, 0.4, None, "warning"), (0.4, 0.4, None, "info"), (0.4, 0.4, 0.0, "warning"), (0.4, 0.4, 1.0, "info"),
     (0.95, 0.9, None, "info"), (0.0, 0.4, 0.0, None)],
)  # fmt: skip
def test_a_warning_says_that_mostly_padding_is_read_or_that_it_was_to_be_hidden(
    read: float, there: float, seen: float | None, severity: str | None, cuts: tuple[int, ...]
) -> None:
    columns = {"model/padding_read": (LOOKS, np.full(2, read)), "model/padding_share": (LOOKS, np.full(2, there))}
    if seen is not None:
        columns["model/attention/seen_padding"] = (np.array([109]), np.array([seen]))
    found = findings([PaddingRead()], columns, cuts=cuts).values()
    assert [one.severity for one in found] == ([severity] if severity else [])


@pytest.mark.parametrize(("values", "says"), [([0.0, 0.0], True), ([0.0], False), ([-1.0, 0.0], False)])
def test_a_single_place_is_said_of_two_looks(values: list[float], says: bool) -> None:
    columns = {"model/single_place": (LOOKS[: len(values)], np.array(values))}
    assert bool(findings([SinglePlace()], columns)) == says


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("way", ["last place", "last token", "last state"])
def test_a_recurrent_layer_that_is_read_behind_its_texts_is_found(tmp_path: Path, way: str, frozen: bool) -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.words, self.layer, self.head = nn.Embedding(30, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 2)
            self.words.requires_grad_(not frozen)

        def forward(self, tokens: Any) -> Any:
            found, state = self.layer(self.words(tokens))
            lengths = (tokens > 0).sum(1)
            if way == "last state":
                return self.head(state[-1])
            last = lengths - 1 if way == "last token" else torch.full_like(lengths, -1)
            return self.head(found[torch.arange(len(tokens)), last])

    def loss_of(model: nn.Module, step: int) -> Any:
        dice = torch.Generator().manual_seed(step)
        tokens, lengths = torch.randint(1, 30, (12, 20), generator=dice), torch.randint(6, 17, (12, 1), generator=dice)
        return functional.cross_entropy(model(torch.where(torch.arange(20) < lengths, tokens, 0)), tokens[:, 0] % 2)

    found = findings_of_training(tmp_path, Reader(), loss_of, 10).get("padding_read")
    assert (found is not None and found["severity"] == "warning") == (way != "last token")


@pytest.mark.parametrize(
    ("way", "blank", "says"),
    [
        ("sum", True, False),
        ("sum", False, True),
        ("layer", True, True),  # a layer with a bias makes something of nothing
        ("not zero", True, True),
    ],
)
def test_a_table_whose_padding_is_zero_adds_nothing_to_a_sum(tmp_path: Path, way: str, blank: bool, says: bool) -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.words, self.head = nn.Embedding(30, 8, padding_idx=0 if blank else None), nn.Linear(8, 2)
            self.layer = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
            if way == "not zero":
                nn.init.normal_(self.words.weight)

        def forward(self, tokens: Any) -> Any:
            found = self.words(tokens)
            found = self.layer(found) if way == "layer" else found
            return self.head(found.sum(1) / (tokens > 0).sum(1, keepdim=True))

    def loss_of(model: nn.Module, step: int) -> Any:
        dice = torch.Generator().manual_seed(step)
        tokens, lengths = torch.randint(1, 30, (12, 20), generator=dice), torch.randint(6, 17, (12, 1), generator=dice)
        return functional.cross_entropy(model(torch.where(torch.arange(20) < lengths, tokens, 0)), tokens[:, 0] % 2)

    assert (findings_of_training(tmp_path, Reader(), loss_of, 10).get("padding_read") is not None) == says


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("way", "given", "severity"),
    [("last place", True, "warning"), ("last state", True, "warning"), ("last place", False, None),
     ("own end", True, None), ("mean", True, None), ("packed", True, None)],
)  # fmt: skip
def test_records_that_are_read_behind_their_ends_are_found(
    tmp_path: Path, way: str, given: bool, severity: str | None, first: bool
) -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.inputs, self.layer, self.head = nn.Linear(5, 8), nn.LSTM(8, 8, batch_first=first), nn.Linear(8, 2)

        def forward(self, records: Any, lengths: Any = None) -> Any:
            x, ends = self.inputs(records), (records != 0).any(2).sum(1)
            x = x if first else x.transpose(0, 1)
            if way == "packed":
                x = nn.utils.rnn.pack_padded_sequence(x, ends, batch_first=first, enforce_sorted=False)
            found, (state, _) = self.layer(x)
            if way in ("last state", "packed"):
                return self.head(state[-1])
            found = found if first else found.transpose(0, 1)
            if way == "mean":
                return self.head(found.mean(1))
            return self.head(
                found[torch.arange(len(found)), ends - 1 if way == "own end" else torch.full_like(ends, -1)]
            )

    def loss_of(model: nn.Module, step: int) -> Any:
        dice = torch.Generator().manual_seed(step)
        records, lengths = torch.randn(12, 20, 5, generator=dice), torch.randint(6, 17, (12,), generator=dice)
        target = (records[:, 0, 0] > 0).long()
        records = torch.where(torch.arange(20)[None, :, None] < lengths[:, None, None], records, 0.0)
        return functional.cross_entropy(model(records, lengths) if given else model(records), target)

    found = findings_of_training(tmp_path, Reader(), loss_of, 10).get("padding_read")
    assert (found and found["severity"]) == severity


def test_records_in_which_the_padding_stands_elsewhere_have_none_for_sure() -> None:
    records = torch.randn(6, 12, 3, generator=torch.Generator().manual_seed(1))
    records = torch.where(torch.arange(12)[None, :, None] < torch.tensor([4, 6, 8, 7, 9, 5])[:, None, None], records, 0)
    assert bool(padding.tails(padding.places_of(records))[1])
    records[0, :2] = 0.0  # as in a picture that is read line by line
    assert not bool(padding.tails(padding.places_of(records))[1])


@pytest.mark.parametrize(
    ("hides", "value", "share"),
    [("targets", -1e4, 0.25), ("targets", -1e9, 0.25), ("others", -1e4, 0.0), ("far", 0.0, 0.0), ("none", 0.0, 0.0)],
)
def test_targets_that_a_mask_hides_are_known(hides: str, value: float, share: float) -> None:
    output = torch.randn(16, 6, generator=torch.Generator().manual_seed(1))
    target = torch.arange(16) % 6
    if hides == "targets":
        output[torch.arange(4), target[:4]] = value + torch.arange(4.0)  # a mask that is added
    elif hides == "others":
        output[torch.arange(16), (target + 1) % 6] = value
    elif hides == "far":
        output *= 1e5  # a training that blows up
    found = softmaxes.hidden(output, target, torch.ones(16, dtype=torch.bool))
    assert float(found) == pytest.approx(share)


@pytest.mark.parametrize(("values", "step"), [([0.1, 0.0, 0.1, 0.2], 3), ([0.0, 0.0, 0.0], None), ([0.01] * 4, None)])
def test_hidden_targets_are_found_in_two_looks(values: list[float], step: int | None) -> None:
    columns = {"model/hidden_targets": (np.arange(1, len(values) + 1), np.array(values))}
    assert [one.step for one in findings([HiddenTargets()], columns).values()] == ([step] if step else [])
