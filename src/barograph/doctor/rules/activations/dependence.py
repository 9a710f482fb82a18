"""Outputs that depend on what they must not see, or on nothing but their own place.

In:   what the watch found by asking single outputs for their gradient.
Out:  findings of `RowsDependent`, `PlacesAhead`, `ContextUnused`, `ReadAcross`, `PaddingRead`, `SinglePlace`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.curve import again, rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_PROOF = 0.95
_MASK = 0.5  # of the queries that see the next place, from which on `later_tokens` finds a mask missing


class RowsDependent(WatchRule):
    """What the model says of an example depends on the others in its batch.

    The gradient of every other row's output, with respect to what the first layer gave, is not 0 in rows that were not
    asked. The loss has one target a row or a place, and no layer normalises over the batch. Where `rows_mixed` knows
    the layer, that says it. Where each output that was asked depends on its own row, and they reach some of the others
    only, examples may be mixed with one another on purpose, as by mixup within a model: an info finding.

    What to do: look for a `view` or `reshape` where a `transpose` or `permute` is meant, for a softmax, a mean or a
    normalisation over dimension 0, and for attention whose first dimension is the batch.
    """

    name, family, kind, severity = "rows_dependent", "model", "config", "warning"
    series = "model/rows_reached"
    needs = ("=model/rows_reached",)
    about = "What the model says of an example depends on the others in its batch."
    thresholds: ClassVar = {
        "share": (0.1, "of the rows that were not asked; ours"),
        "all": (0.9, "of them: partners drawn at random reach half; ours"),
    }
    causes = ("rows of the batch mixed: by a reshape in place of a transpose, or a softmax or mean over the batch",)
    remedies = (
        "look for `view` or `reshape` where `transpose` is meant, and for a softmax, mean or norm over dimension 0",
    )

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        single = any(math.isfinite(watched(history, name, place)) for name in ("softmax_twice", "target_std"))
        if watched(history, "rows_mixed", place) == 1 or not single:
            return
        paired = value < self.at["all"] and watched(history, "own_reached", place) == 1
        if self.lasts(value >= self.at["share"], place, 1):
            yield self.finding(
                0, f"Outputs depend on other rows of the batch: the gradient of some reaches {100 * value:.0f}% of "
                "the rows that have nothing to do with them.", found=place[0], segment=place[2],
                severity="info" if paired else "warning", confidence=0.4 if paired else _PROOF,
                evidence={"share": value, "standing": not paired},
            )  # fmt: skip


class RevisedRule(WatchRule):
    """A rule whose finding is another one once the attention, which is looked at more seldom, was seen."""

    def reset(self) -> None:
        super().reset()
        self._told: Finding | None = None

    def begin(self) -> None:
        self._told = None


class PlacesAhead(RevisedRule):
    """A language model sees the token that it is to predict, by another way than attention without a mask.

    The targets are one place ahead of the inputs, and the gradient of a place's output is not 0 at the next place. The
    places that are asked lie in the second half, behind a prompt that may be read as a whole. Where `later_tokens`
    finds a mask missing, that says it.

    What to do: a `transpose` where heads are split by `view`, padding on the left of a convolution, a normalisation
    over the features alone, a recurrence in one direction.
    """

    name, family, kind, severity = "places_ahead", "data", "data", "warning"
    series = "model/next_reached"
    needs = ("=model/next_reached", "=model/target_shift")
    about = "A language model's outputs depend on the next token, which they are to predict."
    thresholds: ClassVar = {"share": (0.9, "of the places that were asked; ours")}
    causes = ("labels can be seen: each place's output depends on the next place",)
    remedies = (
        "look for a convolution that is not padded on the left alone, a `view` where heads are to be transposed, a "
        "normalisation or recurrence over the places",
    )

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from super().examine(history)
        if self._told is None:
            return
        seen = history.channel("model/attention/next")
        rows = seen.rows() if seen is not None else None
        if rows is not None and ((rows.segment == self._told.segment) & (rows.value >= _MASK)).any():
            self._told.severity = "info"  # the attention is looked at more seldom, and says where
            yield again(self._told)
            self._told = None

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if watched(history, "attention/next", place) >= _MASK:
            return
        if self.lasts(value >= self.at["share"] and watched(history, "target_shift", place) == 1, place, 1):
            self._told = self.finding(
                0, "The targets are one place ahead of the inputs, and the outputs depend on the next place: the model "
                "is given what it is to predict.", found=place[0], segment=place[2], confidence=_PROOF,
                evidence={"share": value, "standing": True},
            )  # fmt: skip
            yield again(self._told)


class ContextUnused(WatchRule):
    """A language model's outputs depend on the token at their own place alone.

    The model has attention, recurrence or convolutions, the targets are one place ahead of the inputs, and of the
    places that were asked none has a gradient at any earlier one. It is said at the 107th step, when layers that begin
    by handing nothing on have moved.

    What to do: look at the mask (True for hidden in torch's own layers), at the dimension that attention runs over, and
    at states that are set back at each place.
    """

    name, family, kind, severity = "context_unused", "model", "attention", "warning"
    series = "model/past_reached"
    needs = ("=model/past_reached", "=model/target_shift")
    about = "A language model's outputs depend on the token at their own place alone."
    thresholds: ClassVar = {"looks": (2.0, "in a row, at the 7th and the 107th step; ours")}
    causes = ("context not used: no earlier place reaches an output",)
    remedies = ("look at the attention's mask and at the dimension that it runs over: places, not heads or rows",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        unused = value == 0 and watched(history, "target_shift", place) == 1
        if self.lasts(unused, place, self.at["looks"]):
            yield self.finding(
                0, "Each output depends on the token at its own place alone: nothing of the text before it is used.",
                found=place[0], segment=place[2], confidence=0.9, evidence={"standing": True},
            )  # fmt: skip


class ReadAcross(WatchRule):
    """A model of texts reads along one dimension of its tokens, and the texts go along the other.

    The targets are one place ahead of the inputs in one dimension alone; or, of a tagger and any other model that says
    something of each token, rows of several lengths end in padding, along one dimension alone
    (`model/padded_dimension`). Single outputs depend on other tokens of the other dimension, and on none of that of the
    texts: what the model reads beside a token are tokens of other texts.

    What to do: `batch_first=True` of recurrent layers, or `.t()` of the batch; a loop over the places runs over
    dimension 1 of [rows, places], over dimension 0 of [places, rows].
    """

    name, family, kind, severity = "read_across", "data", "data", "critical"
    series = "model/read_dimension"
    needs = ("=model/read_dimension", "=model/text_dimension|=model/padded_dimension")
    about = "A model of texts reads along another dimension than theirs."
    causes = ("batch and time exchanged: the model reads along the other dimension than its targets go",)
    remedies = (
        "check `batch_first`, and whether tokens and targets are [rows, places] or [places, rows], as the loop, "
        "attention or convolution of the model takes them",
    )

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        text, padded = (watched(history, f"{name}_dimension", place) for name in ("text", "padded"))
        what = "The targets are the next tokens along" if text == text else "Texts end in padding along"
        text = text if text == text else padded
        if math.isfinite(text) and self.lasts(value != text, place, 1):
            yield self.finding(
                0, f"{what} dimension {text:.0f} of the inputs, and the outputs depend on other tokens along "
                f"dimension {value:.0f} alone: those of other texts.", found=place[0], segment=place[2],
                confidence=_PROOF, evidence={"reads": value, "text": text, "standing": True},
            )  # fmt: skip


_BEHIND = ": a state of a recurrent layer is read which has gone on over it, though the model is given where it is"


class PaddingRead(RevisedRule):
    """What the model says of a text depends on its padding.

    Rows of tokens are padded at their ends, and the output has one line for a whole text. The gradient of that line,
    with respect to what the first layers gave, is not 0 at the padding. A warning where four fifths of it or more are
    there, though a twentieth to three fifths of the places are padding (the last place is read, which is padding in
    most rows), and where the attention hides the padding, so that it can only come from what pools the places: a mean
    or a maximum over all of them, or the last one. An info finding else: recurrence and convolutions without masks see
    padding, and may learn to pass over it. Where the model is given the rows' lengths or a mask, and the last state of
    a recurrent layer is read all the same, or its output at one place of the padding, it has gone on over that: a
    warning. So it is of records of several numbers a place, which end with three equal places or more.

    What to do: pool by the mask, `(x * mask).sum(1) / mask.sum(1)`; read the last token by the rows' lengths;
    `pack_padded_sequence` for recurrent layers.
    """

    name, family, kind, severity = "padding_read", "data", "padding", "warning"
    series = "model/padding_read"
    needs = ("=model/padding_read", "=model/padding_share")
    about = "What the model says of a text depends on its padding."
    thresholds: ClassVar = {
        "some": (0.02, "of the gradient; ours"),
        "most": (0.8, "of the gradient; ours"),
        "padding": (0.6, "of the places, at most; ours"),
        "least": (0.05, "of the places, at least: equal tokens at the end of a row or two may be no padding; ours"),
    }
    causes = ("padding is read: places are pooled without their mask, or the last place is read, which is padding",)
    remedies = (
        "pool by the mask: `(x * mask).sum(1) / mask.sum(1)`; a maximum over `x.masked_fill(~mask, -inf)`",
        "read the last token by the rows' lengths; `pack_padded_sequence` for recurrent layers",
    )

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from super().examine(history)
        told, seen = self._told, history.channel("model/attention/seen_padding")
        if told is None or told.severity != "info" or seen is None:
            return
        rows = seen.rows()  # the attention is looked at more seldom
        if ((rows.segment == told.segment) & (rows.value == 0)).any():
            told.severity, told.confidence = "warning", 0.9
            told.message = f"{told.message[:-1]}, though the attention hides it."
            yield again(told)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        there = watched(history, "padding_share", place)
        state, known_place = (watched(history, name, place) == 1 for name in ("state_behind_padding", "padding_given"))
        behind = state and known_place
        most = behind or (value >= self.at["most"] and self.at["least"] <= there <= self.at["padding"])
        if value >= self.at["some"] and self.first(place[2]):
            what = f"{100 * value:.0f}% of what the outputs depend on is padding, of which the texts have "
            what = "The outputs read a row's padding, of which rows have " if behind and value == 1 else what
            self._told = self.finding(
                0, f"{what}{100 * there:.0f}%{_BEHIND if behind else ''}.", found=place[0], segment=place[2],
                severity="warning" if most else "info", confidence=0.9 if most else 0.4,
                evidence={"read": rounded(value), "padding": rounded(there)} | ({"standing": True} if most else {}),
            )  # fmt: skip
            yield again(self._told)


class SinglePlace(WatchRule):
    """What the model says of a text depends on the token at one place alone.

    The output has one line for a whole text, and the model has attention, recurrence or convolutions. In both looks,
    at the 7th and the 107th step, or in one where the loss does not fall, the gradient of every line that was asked
    is at one and the same place, and nowhere else. So it is where a model that reads from left to right is asked at
    its first place.

    What to do: read the last token, by the rows' lengths, of a model that reads from left to right.
    """

    name, family, kind, severity = "single_place", "model", "data", "warning"
    series = "model/single_place"
    needs = ("=model/single_place",)
    about = "What the model says of a text depends on one token alone."
    thresholds: ClassVar = {"looks": (2.0, "in a row, at the 7th and the 107th step; ours")}
    causes = ("wrong token pooled: the place that is read has seen no other one",)
    remedies = ("read the last token, by the rows' lengths, where the model reads from left to right",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.lasts(value >= 0, place, self.at["looks"]):
            yield self.finding(
                0, f"What is said of each text depends on its token at place {value:.0f} alone: nothing of the others "
                "is used.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"place": value, "standing": True},
            )  # fmt: skip


RULES = (RowsDependent, PlacesAhead, ContextUnused, ReadAcross, PaddingRead, SinglePlace)
