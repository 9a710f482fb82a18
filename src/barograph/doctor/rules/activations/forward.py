"""How the forward pass is put together: skips that are cut, attention over the wrong dimension, layers that never run.

In:   what the watch saw of single passes.
Out:  findings of `DetachedSkip`, `DetachedLayer`, `AttentionAcross`, `RowsMixed`, `OnePlace`, `PositionsElsewhere`,
      `MixedViews`, `PrefixLeft`, `UnusedParameters`, `InputScale`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core import text
from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import RowCursor, known, names_of, whole
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.rule import Rule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_PLACE = expression(r"(?:^|[._])w?p(?:os|e)(?:[._]|$)|pos_?emb|position", re.I)
_EXPERT = expression(r"expert", re.I)
_CONDITION = expression(r"(?:^|[ ._])(?:cond\w*|film\w*|ada_?(?:ln|in|norm)\w*)(?=[._])", re.I)
_TIME = expression(
    r"(?:^|[ ._])(?:t|time|temb|time_?steps?|sigma|noise_?levels?)"
    r"(?:_?(?:emb\w*|mlp|proj\w*|net|encod\w*|layers?))?(?=[._])",
    re.I,
)
_LEVEL = expression(r"(?:^|[ ._])(?:noise_?)?levels?(?:_?(?:emb\w*|mlp|proj\w*|layers?))?(?=[._])", re.I)


class ForwardRule(Rule):
    """What was counted in a forward pass that the watch followed, said once in a segment."""

    series: ClassVar[str]
    counted: ClassVar[str]
    least_count: ClassVar[int] = 1

    def reset(self) -> None:
        self._cursor = RowCursor()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        rows = self._cursor.new(history.channel(self.series))
        for at in range(len(rows) if rows is not None else 0):
            assert rows is not None
            step, segment, count = int(rows.step[at]), int(rows.segment[at]), whole(float(rows.value[at]))
            meant = self.is_meant(history, step, int(rows.time[at]), segment)
            if count >= self.least_count and not meant and self.first(segment):
                yield self.finding(
                    0 if not rows.first + at else step, self.sentence(count), found=step, segment=segment,
                    confidence=0.95, evidence={self.counted: count, "standing": True},
                )  # fmt: skip

    def is_meant(self, history: RunHistory, step: int, time: int, segment: int) -> bool:
        """Whether it may be as it is on purpose."""
        return False

    def sentence(self, count: int) -> str:
        """What is said then."""
        raise NotImplementedError


class DetachedSkip(ForwardRule):
    """A skip connection hands its input on without gradient.

    In a forward pass that the watch followed, a tensor was detached and then added to, or joined with, one that was
    computed from it with gradient. The layers before it are trained through the other branch alone. Tensors that are
    detached and go nowhere else count for nothing: targets, straight-through estimates, the state of a next step.

    What to do: leave out the `detach()` or `.data`.
    """

    name, family, kind, severity = "detached_skip", "model", "frozen", "warning"
    needs = ("=model/detached_skips",)
    about = "A skip connection is cut off from the gradient."
    causes = ("graph cut: a skip connection is detached",)
    remedies = ("leave out the `detach()`, `.data` or `no_grad()` on the skip connection",)

    series = "model/detached_skips"
    counted = "skips"

    def sentence(self, count: int) -> str:
        return (
            f"{count} skip connection{'s hand their inputs' if count > 1 else ' hands its input'} on without gradient: "
            "detached, and added to what was computed from it."
        )


class DetachedLayer(ForwardRule):
    """A layer beside its adapter is passed on without gradient.

    In a forward pass that the watch followed, what a layer made without gradient was added to what an adapter of low
    rank, known by the shapes of its two matrices, made of the same input with gradient: the layer's output or its input
    is detached, or it is computed under `no_grad`. Parameters in front are trained through the adapters alone, by a
    gradient that is not that of the loss. It is so in two layers or more, behind which parameters are trained; the
    first layer's input has no gradient to be lost.

    What to do: freeze the layer's own weights by `requires_grad_(False)`, and let the gradient pass through it to its
    input.
    """

    name, family, kind, severity = "detached_layer", "model", "frozen", "warning"
    needs = ("=model/detached_layers",)
    about = "A layer beside its adapter is cut off from the gradient of its input."
    causes = ("graph cut: frozen layers beside adapters are detached, or computed under `no_grad`",)
    remedies = (
        "freeze the layer by `requires_grad_(False)` alone, without `detach()`, `.data` or `no_grad()` in its forward "
        "pass: the gradient has to pass through it to the layers before",
    )

    series = "model/detached_layers"
    counted = "layers"
    least_count = 2

    def sentence(self, count: int) -> str:
        return (
            f"{count} layers beside their adapters hand on no gradient to their inputs: what lies in front is trained "
            "through the adapters alone."
        )


class AttentionAcross(ForwardRule):
    """Attention weights sum to 1 over the queries, not over the keys.

    In a forward pass that the watch followed, the result of a softmax over one dimension was multiplied as a matrix
    along another one: what comes out does not average the values.

    What to do: `softmax(dim=-1)` on scores of (…, queries, keys).
    """

    name, family, kind, severity = "attention_across", "model", "attention", "warning"
    needs = ("=model/softmax_across",)
    about = "Attention is normalised over the wrong dimension."
    causes = ("softmax over the wrong dimension: attention weights sum to 1 over the queries, not over the keys",)
    remedies = ("take the softmax of attention scores over their last dimension, `softmax(dim=-1)`",)

    series = "model/softmax_across"
    counted = "softmaxes"

    def sentence(self, count: int) -> str:
        return (
            f"{count} softmax{'es sum' if count > 1 else ' sums'} to 1 over another dimension than the matrix product "
            "that follows adds up."
        )


class RowsMixed(ForwardRule):
    """Recurrence or attention runs over the rows of the batch, not along the sequence.

    A recurrent layer or attention with `batch_first=False` takes the first dimension of its input for places. In the
    passes that the watch followed that dimension has as many places as rows go into the model and come out of it, and
    the second another number: each example's output is made of the examples before it.

    What to do: `batch_first=True`, or `transpose(0, 1)` before the layer and behind it.
    """

    name, family, kind, severity = "rows_mixed", "model", "config", "critical"
    needs = ("=model/rows_mixed",)
    about = "Recurrence or attention runs over the rows of the batch, not along the sequence."
    causes = ("batch_first missing: the layer takes the rows of the batch for places of a sequence",)
    remedies = ("`batch_first=True`, or `transpose(0, 1)` before the layer and behind it",)

    series = "model/rows_mixed"
    counted = "mixed"

    def sentence(self, count: int) -> str:
        return (
            "A recurrent layer or attention runs over the rows of the batch: its first dimension has as many places as "
            "the batch has rows."
        )


class OnePlace(ForwardRule):
    """A positional embedding is asked for one row only: all places of a text are the same to the model.

    In a forward pass that the watch followed, the table was given eight places or more in a row, and all of them were
    one number. Known by its name (`pos`, `wpe`, `position…`).

    What to do: `torch.arange(length)`, one number for each place.
    """

    name, family, kind, severity = "one_place", "model", "attention", "warning"
    needs = ("=model/one_place",)
    about = "A positional embedding is asked for one row only."
    causes = ("positions are all the same: the model can't tell places apart",)
    remedies = ("give the positional embedding `torch.arange(length)`, one number for each place",)

    series = "model/one_place"
    counted = "tables"

    def sentence(self, count: int) -> str:
        return f"{count} positional embedding{'s are' if count > 1 else ' is'} asked for one and the same place only."


class PositionsElsewhere(ForwardRule):
    """Positions run along another dimension than the places of a text.

    In a forward pass that the watch followed, a table of positions (sines and cosines, whose first line is that of
    place 0, or an embedding that is named so) was added to activations, or multiplied with them, with a line for each
    row of the batch or for each head, and the same for all places: it has another number of lines than the attention
    has keys, and the activations have a dimension of the keys beside.

    What to do: `pe[:, :x.size(1)]` for [rows, places, width], `pe[:x.size(0)]` for places first; rotary tables of
    [places, size] for queries and keys of [rows, heads, places, size].
    """

    name, family, kind, severity = "positions_elsewhere", "model", "attention", "warning"
    needs = ("=model/positions_elsewhere",)
    about = "Positions run along another dimension than the places of a text."
    causes = ("wrong dimension: positions run along rows or heads, and all places of a text have the same one",)
    remedies = (
        "give the table the shape [places, size] where activations end with these dimensions: `pe[:, :x.size(1)]` of "
        "[1, places, width] for rows first",
    )

    series = "model/positions_elsewhere"
    counted = "tables"

    def sentence(self, count: int) -> str:
        return (
            f"{text.count(count, 'table')} of positions along another dimension than the attention's keys: all places "
            "of a text have the same position."
        )


class MixedViews(ForwardRule):
    """A view exchanges dimensions without moving a number: what belongs to one place lies in several.

    In the graph of the loss a layer's output was given the sizes that a transposition of it has, and none came before:
    a convolution's [rows, channels, height, width] as [rows, places, channels], a layer's [rows, places, channels] as
    [rows, heads, places, size], or attention's [rows, heads, places, size] as [rows, places, channels]. Sizes that can
    be had by joining or dividing dimensions say nothing.

    What to do: `x.flatten(2).transpose(1, 2)` for patches; `x.view(rows, places, heads, size).transpose(1, 2)` for
    heads, and `x.transpose(1, 2).reshape(rows, places, -1)` behind the attention.
    """

    name, family, kind, severity = "mixed_views", "model", "config", "warning"
    needs = ("=model/mixed_views",)
    about = "A view exchanges dimensions without moving a number."
    causes = ("wrong dimension: a view instead of a transposition, which mixes places and channels",)
    remedies = (
        "`x.flatten(2).transpose(1, 2)` for patches, `x.view(rows, places, heads, size).transpose(1, 2)` for heads",
        "`x.transpose(1, 2).reshape(rows, places, -1)` behind the attention",
    )

    series = "model/mixed_views"
    counted = "views"

    def sentence(self, count: int) -> str:
        return (
            f"{text.count(count, 'view')} of a layer's output as the sizes of its transposed, and nothing was "
            "transposed: numbers of one place lie in several."
        )


class PrefixLeft(ForwardRule):
    """Learned rows go through a model in front of a sequence, and as many places are cut off at its end.

    In the graph of the loss two rows of a parameter or more are joined with a sequence in front of it, as a prefix or a
    prompt is, and behind layers the last places are cut off, as many as there are such rows, and the first ones nowhere
    (`model/prefix_left`). What comes out has the right length, and stands that many places late: the first tokens get
    the outputs of the learned rows, and the last tokens' outputs are lost. Where attention sees what is in front of a
    place alone, it may be a delay, and nothing is said.

    What to do: `h[:, n:]` of n rows in front, and `h[:, :-n]` of n rows at the end.
    """

    name, family, kind, severity = "prefix_left", "model", "data", "warning"
    needs = ("=model/prefix_left",)
    about = "Learned rows in front of a sequence are left, and places at its end cut off."
    causes = ("labels shifted: outputs stand as many places late as there are learned rows in front",)
    remedies = ("cut the learned rows off where they are: `h[:, n:]` of n rows in front of the sequence",)

    series = "model/prefix_left"
    counted = "rows"

    def is_meant(self, history: RunHistory, step: int, time: int, segment: int) -> bool:
        """A model that sees nothing behind a place may say what comes some places later."""
        return known(history.channel("model/attention/later"), step, time, segment) == 0

    def sentence(self, count: int) -> str:
        return (
            f"{text.count(count, 'learned row')} in front of a sequence stay in the output, and as many places at its "
            "end are cut off: each token has the output of another."
        )


class UnusedParameters(Rule):
    """Layers in the optimizer never ran in the first hundred steps, or a positional embedding had no gradient.

    A positional embedding that is not used is a warning: the model can't tell places apart. So are experts while
    others of their kind run: no token is routed to them. So are, by their names, layers that embed a time: the model
    does not know how much noise there is; and layers that are named after a condition, which then has no influence.
    So is what is named after a level, of noise, in each block of a list, two or more, while others of each block run.
    Other layers are an info finding, for a head may wait for its data, and a layer that another one takes the place of
    may have been left.
    """

    name, family, kind, severity = "unused_parameters", "model", "frozen", "warning"
    needs = ("=model/unused_parameters",)
    about = "Layers of the model never run."
    remedies = ("use these layers in `forward`, or leave them out of model and optimizer",)

    def reset(self) -> None:
        self._cursor = RowCursor()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for (step, time, segment), value in self._cursor.each(history.channel("model/unused_parameters")):
            count, names = whole(value), names_of(history, "unused", step, time)
            if not count > 0 or not self.first(segment, names):
                continue
            share = known(history.channel("model/unused_share"), step, time, segment)
            place, expert, time_layer = _PLACE.search(names), _EXPERT.search(names), _TIME.search(names)
            condition = _CONDITION.search(names)
            blocks = whole(known(history.channel("model/unused_in_blocks"), step, time, segment))
            level = blocks > 1 and _LEVEL.search(names)
            cause = (
                "positional embedding not used: the model can't tell places apart" if place
                else "unused experts: no token is routed to them" if expert
                else "timestep not used: the layers that embed it never run" if time_layer or level
                else "condition not used: the layers that embed it never run" if condition
                else "layers are not used in the forward pass"
            )  # fmt: skip
            certain = bool(place or expert or time_layer or condition or level)
            where = f", in each of {blocks} blocks" if blocks > 1 else ""
            alone = place and not any(name.endswith((".weight", ".bias")) for name in names.split(", "))
            yield self.finding(
                0, f"{count} parameters had no gradient in {step + 1} steps, and are in no layer that ran{where}: "
                f"{names}.",
                found=step, segment=segment, severity="warning" if certain else "info",
                causes=[cause, _WITHOUT_GRADIENT] if alone else [cause],
                kind="dead_expert" if expert else self.kind, confidence=0.95 if certain else 0.4,
                evidence={"parameters": count, "share": rounded(share)} | ({"standing": True} if place else {}),
            )  # fmt: skip


_WITHOUT_GRADIENT = "graph cut: a parameter of no layer is added under `no_grad`, or detached"


class InputScale(Rule):
    """The model's inputs are of another size since a step.

    In three looks in a row their standard deviation is more than thirty times that of the looks before, or less than a
    thirtieth.

    What to do: look for what scales the data twice, or not at all: a normalisation, a unit, an augmentation.
    """

    name, family, kind, severity = "input_scale", "data", "data", "warning"
    needs = ("=model/input_std",)
    least = 8
    about = "The inputs change their scale."
    thresholds: ClassVar = {"times": (30.0, "ours"), "looks": (3.0, "in a row; ours"), "before": (5.0, "looks; ours")}
    causes = ("inputs scaled: the data are multiplied by another number since this step",)
    remedies = ("look for what scales the data twice, or not at all: a normalisation, a unit, an augmentation",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._before: list[float] = []
        self._row: list[tuple[int, int]] = []

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for (step, _, segment), value in self._cursor.each(history.channel("model/input_std")):
            usual = sorted(self._before)[len(self._before) // 2] if self._before else 0.0
            times = value / usual if usual > 0 else 1.0
            if len(self._before) < self.at["before"] or not (
                times > self.at["times"] or 0 < times < 1 / self.at["times"]
            ):
                self._before, self._row = [*self._before[-31:], value], []
                continue
            self._row = [look for look in self._row if look[1] == segment] + [(step, segment)]
            if len(self._row) >= self.at["looks"] and self.first(segment):
                yield self.finding(
                    self._row[0][0], f"The standard deviation of the inputs is {value:.3g} since step "
                    f"{self._row[0][0]}, {times:.3g} times what it was.", found=step, segment=segment, confidence=0.95,
                    evidence={"std": rounded(value), "before": rounded(usual), "standing": True},
                )  # fmt: skip


RULES = (
    DetachedSkip, DetachedLayer, AttentionAcross, RowsMixed, OnePlace, PositionsElsewhere, MixedViews, PrefixLeft,
    UnusedParameters, InputScale,
)  # fmt: skip
