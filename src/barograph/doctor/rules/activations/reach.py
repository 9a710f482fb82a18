"""Layers that the loss does not reach, that are two or one, and outputs that are the same for every input.

In:   figures of the watch.
Out:  findings of `UnreachedParameters`, `OutsideParameters`, `UntiedWeights`, `RepeatedLayer`, `TableDetached`,
      `ConstantOutput`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import RowCursor, came_by, known, names_of, param_norm_of, whole
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.activations.meant import said_frozen, said_table
from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


_SHARES = expression(r"shar|\btie|tied|tying|repeat|recur|loop|unroll|reuse|iterat|universal|albert|cross_layer", re.I)
_DETACHES = expression(r"detach|stop_?grad", re.I)
# words of options such as `tie_weights`, `tied_embeddings`, `share_decoder_input_output_embed`
_TIED = frozenset({"tie", "tied", "ties", "tying"})
_SHARED = frozenset({"share", "shared", "shares", "sharing"})
_TWO_SIDES = expression(r"(?i)enc|dec|src|tgt|source|target|tower|query|key|left|right")
_TABLES = frozenset({
    "weight", "weights", "embed", "embeds", "embedding", "embeddings", "emb", "embs", "wte", "word", "words", "token",
    "tokens", "vocab", "head", "lm", "softmax", "output", "outputs", "input", "inputs", "in", "out", "decoder",
    "proj", "projection", "unembed", "unembedding", "logits", "and", "table", "tables",
})  # fmt: skip


class UnreachedParameters(Rule):
    """Layers run with gradients, are in the optimizer, and the loss does not reach them.

    The watch listens to layers without a gradient in the first twenty steps: those that run in the next one are
    computed, and their output is cut off before the loss, by `detach()`, `.data`, `no_grad()`, a new tensor made from
    numbers, or is left out of it. A twentieth of the trained elements or more is a warning, and so are a router, by its
    name, and a critic, where a loss of values is logged; less is an info finding: a pooling layer that nobody asks is
    usual, whatever its size, and so is the critic of a model that learns by groups of answers. Where not one parameter
    had a gradient, nothing is trained. Layers that no batch uses don't count. Layers that run under `no_grad()` are a
    warning where their weights are as torch draws them, or an adapter's factor behind is all zero, as it begins, beside
    whatever its layer is held in: nobody trained them before. `checkpoint(..., use_reentrant=True)` is such a place if
    no input of it has a gradient, as behind a frozen embedding. So is an embedding of random numbers in a model whose
    gains are all exactly 1 at the start, where a configuration of three options or more says nothing of what is frozen.

    What to do: look for what cuts the graph behind them; else freeze them with `requires_grad_(False)`.
    """

    name, family, kind, severity = "unreached_parameters", "model", "frozen", "warning"
    needs = ("=model/unreached_parameters|=model/without_graph_parameters",)
    about = "The loss does not reach layers that run."
    thresholds: ClassVar = {
        "share": (0.05, "of the trained elements; ours"),
        "all": (0.999, "of them: nothing is trained; ours"),
    }
    causes = ("graph cut: no gradient reaches layers that run, because their output is detached or not in the loss",)
    remedies = (
        "look for `detach()`, `.data`, `no_grad()` or `torch.tensor(...)` behind these layers",
        "checkpoint with `use_reentrant=False`, or let the inputs have a gradient (`enable_input_require_grads()`)",
        "freeze them with `requires_grad_(False)`, if that is meant",
    )

    def reset(self) -> None:
        self._cursor = RowCursor()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for (step, time, segment), value in self._cursor.each(history.channel("model/unreached_parameters")):
            share = known(history.channel("model/unreached_share"), step, time, segment)
            names = names_of(history, "unreached", step, time)
            count = whole(value)
            if count > 0 and self.first(segment, names):
                grave = "critical" if share >= self.at["all"] else "warning"
                grave = "info" if _POOLER.match(names) else grave
                yield self.finding(
                    max(0, step - 20), f"{count} parameters had no gradient in 20 steps, though their layers ran: "
                    f"{names}.", found=step, segment=segment, confidence=0.95,
                    severity=grave if share >= self.at["share"] or _is_needed(history, names, time) else "info",
                    evidence={"parameters": count, "share": rounded(share), "standing": True},
                )  # fmt: skip
        yield from self._without(history)

    def _without(self, history: RunHistory) -> Iterator[Finding]:
        """Layers in the optimizer that run under `no_grad()`."""
        for (step, time, segment), value in self._cursor.each(history.channel("model/without_graph_parameters")):
            share = known(history.channel("model/without_graph_share"), step, time, segment)
            drawn = known(history.channel("model/without_graph_as_drawn"), step, time, segment)
            random = known(history.channel("model/without_graph_random_tables"), step, time, segment)
            new = known(history.channel("model/untrained"), step, time, segment) == 1
            names = names_of(history, "without_graph", step, time)
            if random > 0 and new and said_table(history) is False and not said_frozen(history, names):
                drawn = random
            if value > 0 and self.first(segment, names, "without"):
                yield self.finding(
                    max(0, step - 20), f"{whole(value)} parameters in the optimizer had no gradient in "
                    f"20 steps, for their layers run without gradients: {names}"
                    f"{'; their weights are as they were drawn' if drawn > 0 else ''}.",
                    found=step, segment=segment, confidence=0.95 if drawn > 0 else 0.4, key="without",
                    severity="warning" if share >= self.at["share"] and drawn > 0 else "info", causes=[_WITHOUT],
                    evidence={"parameters": whole(value), "share": rounded(share)}
                    | ({"standing": True} if drawn > 0 else {}),
                )  # fmt: skip


_WITHOUT = "graph cut: layers run under `no_grad()`, so that they are not trained"
# layers without which nothing is learnt, though they are few elements
_ROUTER = expression(r"(?:^|[ ._])(?:gate|router|gating|wg)(?:[._]|$)", re.I)
_CRITIC = expression(r"(?:^|[ ._])(?:(?:value|critic|vf?)(?:_?(?:head|fn|function|net|out))?|baseline)(?:[._]|$)", re.I)
_POOLER = expression(r"(?:[\w.]*\bpool(?:er|ing)?\b[\w.]*(?:, | and )?)+$", re.I)  # and nothing else
_OF_VALUES = expression(r"(?:value|critic|vf?|baseline)_?(?:fn|function)?[_/]?(?:loss|error)|explained_var", re.I)


def _is_needed(history: RunHistory, names: str, time: int) -> bool:
    """Whether a router is among layers, or a critic whose loss is logged: one that nobody trains may be left over."""
    if _ROUTER.search(names):
        return True
    logged = (channel for name, channel in history.channels.items() if _OF_VALUES.search(name))
    return bool(_CRITIC.search(names)) and any(came_by(channel, time) for channel in logged)


class OutsideParameters(Rule):
    """The loss reaches parameters that belong neither to the watched model nor to an optimizer.

    They have gradients that nothing uses: in the second backward pass and in the 25th they are leaves of the loss's
    graph, and their numbers are the same. Half or more of them are as they were drawn (evenly, normally, all 0 or all
    1): nobody trained them before, and nobody does now. So it is with layers in a plain list or dictionary, which
    `model.parameters()` doesn't have, and with a criterion of weights that were not given to the optimizer. Others,
    such as a trained network that is a part of a loss, are an info finding.

    What to do: `nn.ModuleList` or `nn.ModuleDict` for lists and dictionaries of layers; `[*model.parameters(),
    *criterion.parameters()]` in the optimizer.
    """

    name, family, kind, severity = "outside_parameters", "model", "frozen", "warning"
    needs = ("=model/outside_parameters",)
    about = "Parameters that the loss reaches are in no optimizer, nor in the model."
    thresholds: ClassVar = {"drawn": (0.5, "of those of which it can be known; ours")}
    causes = ("layers not registered: in a plain list, so that the model's parameters, and the optimizer, lack them",)
    remedies = (
        "`nn.ModuleList` or `nn.ModuleDict` for layers in a list or dictionary, before the optimizer is made",
        "give the optimizer the criterion's parameters, too",
    )

    def reset(self) -> None:
        self._cursor = RowCursor()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for place, value in self._cursor.each(history.channel("model/outside_parameters")):
            count = whole(value)
            if not count > 0 or not self.first(place[2]):
                continue
            drawn, elements = (
                known(history.channel(f"model/outside_{name}"), *place) for name in ("drawn", "elements")
            )
            fresh = drawn >= self.at["drawn"]
            yield self.finding(
                0, f"{count} parameters get gradients from the loss, and are neither in the watched model nor in an "
                f"optimizer: they stay as they {'were drawn' if fresh else 'are'}.", found=place[0], segment=place[2],
                severity="warning" if fresh else "info", confidence=0.95 if fresh else 0.4,
                evidence={"parameters": count, "elements": elements} | ({"standing": True} if fresh else {}),
            )  # fmt: skip


class UntiedWeights(Rule):
    """An embedding and an output layer that should be one tensor are two.

    At the first watched step they hold the same numbers in two places (a copy made by hand, by loading, by moving or
    wrapping one of them); or the configuration says that embeddings are tied (`tie_weights`, `tied_embeddings`, the
    model's own `config.tie_word_embeddings`; `share_embeddings`, where nothing else is shared, and neither is of an
    encoder, a decoder or a tower), and no output layer has the embedding's tensor. One of the two may have
    some rows more, up to a fifth, as behind a resize; or as many rows, of which up to a fifth are others in the two, as
    where both were resized apart, and one of them is trained. Two layers of one shape alone say nothing. Where the
    configuration says that they are not tied (`tie_embeddings: false`), equal numbers are an info finding.

    Or they are two parameters in one memory (`model/tied_twice`), as behind `load_state_dict(assign=True)` or
    `head.weight.data = embedding.weight.data`, both trained by an optimizer whose steps don't grow with the gradient
    (`model/scale_free`), as Adam: each makes a whole step by its part of the gradient, so that the weights make two.

    So are two trained tables of one shape with the same numbers (`model/copied_tables`), as behind `deepcopy`, where
    the configuration says that something is shared or tied (`share_vocab: true`), other than layers or heads; and two
    with other numbers, where it says that there is one (`one_table`, `shared_embedding: true`).

    What to do: `head.weight = embedding.weight` after loading and moving, before the optimizer is made.
    """

    name, family, kind, severity = "untied_weights", "model", "frozen", "warning"
    needs = ("=model/untied|=model/tied_twice|=model/copied_tables",)
    about = "Weights that should be tied are two tensors."
    causes = ("weight tying broken: the embedding and the output layer are two tensors",)
    remedies = ("tie them, `head.weight = embedding.weight`, after loading and before the optimizer is made",)

    def reset(self) -> None:
        self._cursor, self._twice, self._copied = RowCursor(), RowCursor(), RowCursor()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from self._in_one_memory(history)
        for (step, time, segment), same in self._copied.each(history.channel("model/copied_tables")):
            two = _shares_something(history) if same == 1 else _has_one_table(history)
            if two and self.first(segment, "tables"):
                what = "hold the same numbers in" if same == 1 else "are"
                yield self.finding(
                    step, f"{names_of(history, 'untied_weights', step, time)} {what} two tensors, and the "
                    "configuration shares: what one learns the other does not.", found=step, segment=segment,
                    confidence=0.9, evidence={"same": same == 1, "configured": True},
                    causes=["weight tying broken: two tables that should be one are two tensors"],
                    remedies=["give both modules the one table, and no copy of it"],
                )  # fmt: skip
        for (step, time, segment), _ in self._cursor.each(history.channel("model/untied")):
            same = known(history.channel("model/untied_copy"), step, time, segment) == 1
            names = names_of(history, "untied_weights", step, time)
            said = known(history.channel("model/untied_said"), step, time, segment) == 1
            said = said or _says_tied(history, sides=names)
            if not (same or said) or not self.first(segment):
                continue
            what = "hold the same numbers in two tensors" if same else "are two tensors, though they should be tied"
            meant = not said and _says_tied(history, False, names)
            yield self.finding(
                step, f"{names} {what}: what one learns the other does not.", found=step, segment=segment,
                severity="info" if meant else self.severity, confidence=0.3 if meant else 0.95,
                evidence={"same": same, "configured": said},
            )  # fmt: skip

    def _in_one_memory(self, history: RunHistory) -> Iterator[Finding]:
        for (step, time, segment), _ in self._twice.each(history.channel("model/tied_twice")):
            free = known(history.channel("model/scale_free"), step, time, segment) == 1
            if free and self.first(segment, "twice"):
                names = names_of(history, "untied_weights", step, time)
                yield self.finding(
                    step, f"{names} are two parameters in one memory: the optimizer makes a step of each, by a part of "
                    "the gradient.", found=step, segment=segment, confidence=0.95, evidence={"twice": True},
                    causes=["weight tying broken: the embedding and the output layer are two parameters"],
                )  # fmt: skip


class RepeatedLayer(WatchRule):
    """All layers of a list are one object: `[Layer()] * n` makes one layer, and n names for it.

    A container whose places are numbered holds one object with trained parameters in each of them, two or more. Where
    the configuration speaks of layers that are shared, tied, repeated or looped, or of such a model by its name, as
    ALBERT's or a universal transformer's, it is an info finding.

    What to do: `[Layer() for _ in range(n)]`.
    """

    name, family, kind, severity = "repeated_layer", "model", "frozen", "warning"
    series = "model/repeated_layers"
    needs = ("=model/repeated_layers",)
    least = 1
    about = "All layers of a list are one layer."
    causes = ("weight tying broken: layers of a list are one object, and share their weights",)
    remedies = ("`[Layer() for _ in range(n)]` in place of `[Layer()] * n`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if not self.first(place[2]):
            return
        name = names_of(history, "repeated", place[0], place[1])
        said = any(
            given not in (None, False, "") and _SHARES.search(f"{option} {given if isinstance(given, str) else ''}")
            for option, given in history.options.found.items()
        )
        yield self.finding(
            place[0], f"The {value:.0f} layers of {name} are one object: they share their weights.", found=place[0],
            segment=place[2], severity="info" if said else self.severity, confidence=0.4 if said else 0.85,
            evidence={"layers": value, "standing": True},
        )  # fmt: skip


class TableDetached(WatchRule):
    """The output is made with the embedding's own table, and no gradient comes back to it that way.

    In three looks, at the first, fifth and tenth step, the product that makes a model's output has the whole table of
    an embedding as its matrix: the weights are tied. The embedding is trained, and the graph of the output is cut
    there, as by `detach()` or `.data`, so that the table is trained as an input alone. Or its matrix has the table's
    numbers, trained or frozen, and some rows behind them, as many as a parameter of the model has that is trained: of
    rows that were added to the embedding the output has others, or the same without their gradient. A softmax follows
    (`model/softmax_twice`): the outputs are scores of the table's rows. Where an option speaks of detached or stopped
    gradients, it is an info finding; an embedding that is frozen gives none, nor does a frozen copy.

    What to do: `head.weight = embedding.weight`, or `linear(hidden, embedding.weight)` without `detach()`.
    """

    name, family, kind, severity = "table_detached", "model", "frozen", "warning"
    proves = "training"
    series = "model/table_detached"
    needs = ("=model/table_detached", "=model/softmax_twice")
    least = 3
    thresholds: ClassVar = {"looks": (3.0, "in a row; ours")}
    about = "The tied output layer is cut off from its gradient."
    causes = ("weight tying broken: the output takes the embedding's table detached, and does not train it",)
    remedies = ("take `detach()`, `.data` or `no_grad()` from the weight that the output is made with",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        scores = watched(history, "softmax_twice", place) >= 0
        if self.lasts(value > 0 and scores, place, self.at["looks"]):
            meant = any(_DETACHES.search(name) and bool(value) for name, value in history.options.found.items())
            message = "The output is a product with the embedding's table, and the gradient does not come back to the "
            message += "table by it: it is trained as an input alone."
            if value == 2:
                message = "The output is a product with the embedding's table and rows behind it, and no gradient "
                message += "comes back by it to rows that were added to the embedding: they are trained as input alone."
            yield self.finding(
                self._row[0][0], message, found=place[0], segment=place[2],
                severity="info" if meant else self.severity, confidence=0.3 if meant else 0.9,
                causes=[_ADDED] if value == 2 else list(self.causes), evidence={"standing": True},
                remedies=[_BOTH] if value == 2 else list(self.remedies),
            )  # fmt: skip


_ADDED = "weight tying broken: rows that were added to the embedding are trained, and the output has other ones"
_BOTH = "make the rows once in each pass, and take them for the embedding and for the output: `cat([table, added])`"


def _words(option: str) -> set[str]:
    """The words of an option's own name, in small letters: `model.shareWeights` has share and weights."""
    return set(re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", option.rpartition(".")[2]).lower()))


def _says_tied(history: RunHistory, tied: bool = True, sides: str = "") -> bool:
    """Whether the configuration says, in whatever words, that the output layer is the embedding, or that it is not.
    sides: the names of both, where embeddings that are shared, and nothing else, may be these two."""
    of_tables, of_others = [], 0
    for name, value in history.options.found.items():
        words = _words(name)
        shares = bool(_SHARED & words)
        if value is tied and words & _TIED and words <= _TIED | _TABLES:
            return True
        if value is tied and shares and words <= _SHARED | _TABLES:
            of_tables.append(len(words & _TABLES))
        elif value and (shares or words & _TIED):
            of_others += 1
    alone = bool(sides) and not of_others and not _TWO_SIDES.search(sides)
    return any(count > 1 or alone for count in of_tables)


def _shares_something(history: RunHistory) -> bool:
    """Whether an option that is on says that something is shared or tied, other than layers or heads."""
    return any(
        value is True and words & (_SHARED | _TIED) and not words & _NO_TABLES
        for name, value in history.options.found.items()
        for words in [_words(name)]
    )


def _has_one_table(history: RunHistory) -> bool:
    """Whether an option that is on says that there is one table for several parts of the model, and nothing else."""
    return any(
        value is True and words & _ONE and words & _A_TABLE and words <= _ONE | _A_TABLE | _OF_PARTS
        for name, value in history.options.found.items()
        for words in [_words(name)]
    )


_ONE = _SHARED | {"one", "single", "same", "common", "joint"}
_A_TABLE = frozenset({"table", "embedding", "embeddings", "emb"})
_OF_PARTS = frozenset({"for", "both", "the", "of", "word", "token", "tokens", "words", "towers", "sides", "use"})
_NO_TABLES = frozenset({"layer", "layers", "block", "blocks", "head", "heads", "kv", "expert", "experts", "memory"})


class ConstantOutput(Rule):
    """The model's output is the same for every input.

    Over the rows of a batch, outputs of two numbers or more vary by less than a thousandth of their size, or logits of
    a cross-entropy, less what all classes of a row have in common, by less than a hundredth, in five looks in a row
    over fifty steps, after the first twenty: representations have collapsed to one, or units in between
    are dead and the biases behind them answer alone. Where the inputs' mean or deviation is 10 or more, that is the
    first cause; where their deviation is below a hundredth, and a hundredth of their mean's size, and outputs were the
    same from the start, it is the cause for certain. Where gradients of layers are far apart, they vanish; where it was
    so at every look from the start, the initialisation is the first cause; where the norm of all parameters has doubled
    since, the learning rate; where less than a third of it is left, weight decay.

    So it is where outputs are embeddings of eight numbers or more whose length is 1 in each look, and vary by less than
    a quarter of that in eight looks in a row over fifty steps, and by less than two fifths of what they did at first:
    nothing keeps those of different inputs apart, as in a loss without negatives. Where they vary by a seventh more
    than they did at least, in the mean of three looks, they come apart again.

    What to do: of a contrastive loss, negatives or a stopped gradient; else see the layers before: dead units, a rate
    that was too high, an initialisation far from zero.
    """

    name, family, kind, severity = "constant_output", "model", "dead", "warning"
    needs = ("=model/output_spread",)
    least = 5
    about = "The output is the same for every input."
    thresholds: ClassVar = {
        "spread": (1e-3, "of the output's size; ours"),
        "logits": (1e-2, "of the logits' size; ours"),
        "looks": (5.0, "in a row; ours"),
        "steps": (50.0, "ours"),
        "vanish": (1e5, "largest over smallest gradient of a layer; ours"),
        "first": (20.0, "steps that don't count; ours"),
        "inputs": (10.0, "mean or deviation of inputs that nobody normalised; ours"),
        "alike": (0.01, "deviation of inputs, and of their mean's size if that is above 1; ours"),
        "near": (0.25, "of embeddings of length 1; ours"),
        "fallen": (0.4, "of what these varied by at first; ours"),
        "length": (1e-3, "that this may be off; ours"),
        "width": (8.0, "numbers of an embedding; ours"),
        "longer": (8.0, "looks in a row at these; ours"),
        "parting": (1.15, "times the least that they varied by, of three looks each: they come apart again; ours"),
    }
    causes = ("outputs collapsed: every input gives the same output",)
    remedies = (
        "look at the spread of each layer's output over a batch, from the first layer on",
        "of a contrastive loss: check that it has negatives, or a gradient that is stopped on one side",
    )

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._row: list[tuple[int, int]] = []
        self._varied = False
        self._near: list[tuple[int, int, float]] = []  # looks in a row at embeddings that are nearly one
        self._first = math.nan  # what they varied by in the first look

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        width, logits = history.channel("model/output_width"), history.channel("model/logit_spread")
        for (step, time, segment), value in self._cursor.each(history.channel("model/output_spread")):
            yield from self._of_length(history, value, (step, time, segment))
            apart = known(logits, step, time, segment)
            value, least = (apart, self.at["logits"]) if apart == apart else (value, self.at["spread"])
            same = known(width, step, time, segment) > 1 and value < least
            self._varied |= not same
            if not same or (self._row and self._row[0][1] != segment):
                self._row = []
            if not same or step < self.at["first"]:
                continue
            self._row.append((step, segment))
            began = self._row[0][0]
            if len(self._row) >= self.at["looks"] and step - began >= self.at["steps"] and self.first(segment):
                alike = self._alike(history, step, time, segment) if not self._varied else []
                yield self.finding(
                    began, f"The output is the same for every input since step {began}: it varies by "
                    f"{value:.2g} of its size over a batch.",
                    found=step, segment=segment, confidence=0.95 if alike else 0.9,
                    evidence={"spread": rounded(value)} | ({"standing": True} if alike else {}),
                    causes=alike or self._causes(history, step, time, segment), kind="data" if alike else self.kind,
                )  # fmt: skip

    def _of_length(self, history: RunHistory, spread: float, place: tuple[int, int, int]) -> Iterator[Finding]:
        """Embeddings of length 1 that have come near each other. spread: what they vary by."""
        width, size = (known(history.channel(f"model/output_{name}"), *place) for name in ("width", "size"))
        unit = width >= self.at["width"] and abs(size * math.sqrt(width) - 1) < self.at["length"]
        self._first = spread if math.isnan(self._first) else self._first
        near = unit and spread < min(self.at["near"], self.at["fallen"] * self._first)
        if not near or (self._near and self._near[0][1] != place[2]):
            self._near = []
        if not near:
            return
        self._near.append((place[0], place[2], spread))
        began, threes = self._near[0][0], numpy.convolve([one[2] for one in self._near], numpy.ones(3), "valid")
        long = len(self._near) >= self.at["longer"] and place[0] - began >= self.at["steps"]
        if long and float(threes[-1]) <= self.at["parting"] * float(threes.min()) and self.first(place[2]):
            yield self.finding(
                began, f"The embeddings have a length of 1, and those of a batch vary by {spread:.2g} of it, at first "
                f"by {self._first:.2g}: different inputs get nearly the same.", found=place[0], segment=place[2],
                confidence=0.9, evidence={"spread": rounded(spread)},
                causes=["outputs collapsed: nothing keeps the embeddings of different inputs apart"],
            )  # fmt: skip

    def _alike(self, history: RunHistory, step: int, time: int, segment: int) -> list[str]:
        """The cause, where the inputs themselves hardly differ."""
        mean, deviation = (
            known(history.channel(f"model/input_{name}"), step, time, segment) for name in ("mean", "std")
        )
        alike = deviation < self.at["alike"] * max(1.0, abs(mean))
        return [f"inputs not normalised: their mean is {mean:.3g}, and they differ by {deviation:.2g}"] * alike

    def _causes(self, history: RunHistory, step: int, time: int, segment: int) -> list[str]:
        norm = param_norm_of(history)
        times = known(norm, step, time, segment) / norm.first if norm is not None and norm.first > 0 else 1.0
        sizes = [abs(known(history.channel(f"model/input_{name}"), step, time, segment)) for name in ("mean", "std")]
        said = {
            "inputs not normalised: they are far from 0, and the first layers' functions at their bounds": any(
                size >= self.at["inputs"] for size in sizes
            ),
            "gradients vanish: those of the first layers are next to nothing": self._spread(
                history, step, time, segment
            ),
            "weight decay too high: the weights have shrunk": times < 0.3,
            "learning rate too high": times > 2,
            "bad initialisation: units are dead, and biases answer alone": not self._varied,
            self.causes[0]: True,
        }
        return sorted(said, key=lambda cause: not said[cause])

    def _spread(self, history: RunHistory, step: int, time: int, segment: int) -> bool:
        return known(history.channel("model/flow_spread"), step, time, segment) > self.at["vanish"]


RULES = (UnreachedParameters, OutsideParameters, UntiedWeights, RepeatedLayer, TableDetached, ConstantOutput)
