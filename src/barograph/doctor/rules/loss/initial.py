"""Whether a model begins where an untrained one does.

In:   the first loss, the vocabulary, what the watch says of the output.
Out:  findings of `InitialLoss`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.cursor import came_by, divided_by_rows, summed_by_choice
from barograph.doctor.kernel.curve import is_game, rounded
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.data.objectives import of_pairs_far_apart
from barograph.doctor.rules.rl.preference import margins_of


def _first(history: RunHistory, name: str, time: int) -> float:
    """The first figure of the watch by that name, if it had come by a time; NaN if not."""
    channel = history.channel(f"model/{name}")
    return channel.first if channel is not None and came_by(channel, time) else math.nan


def _trained_before(history: RunHistory, by: int) -> bool:
    """Whether normalisation weights are others than the ones they begin with: those that are trained, or those that are
    not, however little of the model they are, for layers of few bits have no parameters; or adapters begin at 0, or are
    beside frozen layers none of which is as torch draws it, as is done to what was trained before."""
    frozen = _first(history, "frozen_gains_new", by) == 0
    adapted = _first(history, "trained_adapters", by) > 0 and _first(history, "frozen_as_drawn", by) == 0
    return frozen or adapted or _first(history, "untrained", by) == 0 or _first(history, "adapters_drawn", by) == 0


_SAME = 0.002  # of a loss's weight: the targets of a row
_WAITS = 8  # rows for what the watch saw of the first step
_ADDED = "gradient accumulation scaled wrongly: the losses of micro-batches are added"
_SUMMED = "loss summed: each target has more weight than in a mean"
_OTHER_TASK = "the model was trained before: it is sure of other answers"
_KNOWN = "If these data should be what it knows: compare tokenizer, vocabulary and labels with those of then."
_RAW = "inputs not normalised: their mean is {:.3g}, their deviation {:.3g}"
_TIED = "bad initialisation: the output matrix is the embedding, of deviation {:.2g}, and logits begin far apart"
_TOO_LARGE = "bad initialisation: the output is far too large before any training"


class InitialLoss(Rule):
    """A first loss that an untrained model can't have.

    An untrained model knows nothing: its loss is ln of the vocabulary. One that is more than 0.5 above is badly
    initialised, or the loss is a sum: an info finding, as where the configuration says so (`reduction: sum`, or
    `normalise: rows` of one that is divided by rows); above twice that number a warning. One below is a model trained
    before: silent. Looked at in a run whose first row is among its first 20 steps and whose vocabulary is known; or,
    where it is watched, the width of the output, 16 or more, that a cross-entropy follows (`model/softmax_twice` is
    recorded): few classes can be guessed wrongly by chance. Where the loss is one cross-entropy and nothing else
    (`model/loss_classes`) and nothing is frozen, any number of classes counts from three times ln of it; and if it is a
    mean, that is proof. Inputs whose mean or deviation is ten or more were never normalised, and are the cause then;
    else an embedding that is the output matrix too, if its deviation is 0.3 or more (torch draws it with 1). Of pairs
    it is their similarities: embeddings that have no length of 1, or a temperature that is too low. A step of several
    backward passes may log their sum: the accumulation is named first. Preferences, of which margins are logged, begin
    at ln 2 whatever the vocabulary. Cosines of which that of the target is made less, by a margin, begin far above a
    guess on purpose (`model/loss_margin`). A loss that the watch knows to be a multiple of the mean
    (`model/loss_weight`) is compared as that: a sum is found by `loss_weight`; where it is larger even so, that each
    target has more weight comes first. Where other losses are added, as the graph shows, and the weight of that of the
    output is not known, the guess is of a part alone: an info finding. So is one up to four times that number (of the
    sum of undivided losses of micro-batches, as many times more) of a model that was trained before, as its
    normalisation weights show, or adapters that begin at 0, or are beside frozen layers that are other than torch draws
    them: it is sure of what it had learnt, and the new task has other answers."""

    name, family, kind, severity = "initial_loss", "loss", "logits", "warning"
    needs = ("loss", "vocabulary|=model/softmax_twice|=model/loss_classes")
    about = "The initial loss is above that of a uniform guess."
    thresholds: ClassVar = {
        "above": (0.5, "nats; ours"),
        "bits": (0.01, "of 1 / ln 2, the weight of a mean in bits; ours"),
        "times": (2.0, "of ln V; ours: healthy speed runs begin at 1.5"),
        "sure": (4.0, "of ln V, of a model that was trained before; ours"),
        "width": (16.0, "of an output whose vocabulary is not known; ours"),
        "tied": (0.3, "deviation of an embedding that is the output matrix; usual are 0.02 to 1 / √width; ours"),
        "inputs": (10.0, "mean or deviation of inputs that nobody normalised; ours"),
    }
    causes = (
        "bad initialisation: output weights are too large",
        "learning rate too high: the first step was too large",
        "gradient accumulation scaled wrongly: the loss is summed",
        "temperature too low: the logits are multiplied by too much",
    )
    remedies = ("Scale the output layer's initial weights down, or start it at zero; check that the loss is a mean.",)

    def reset(self) -> None:
        self._done = False

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        if self._done:
            return
        channel = history.role("loss")
        vocabulary = history.facts.get("vocabulary")
        if channel is None or channel.end == 0:
            return
        by = channel.began[1]  # what comes later says nothing here: a live look would not know it
        if vocabulary:
            finished = bool(history.facts.get("finished"))
            if channel.end < _WAITS and not finished and channel.first > self.at["times"] * math.log(vocabulary):
                return  # the watch's figures of the first step come behind it
            by = int(channel.rows(0, _WAITS).time[-1])
        else:
            names = ("output_width", "softmax_twice", "loss_classes")
            width, look, graph = (history.channel(f"model/{name}") for name in names)
            look = look if look is not None and look.end else graph  # logarithms of chances show no softmax
            if look is None or not look.end or width is None or not width.end:
                return
            self._done, by = True, look.began[1]
            # where the graph alone says it, the output may be what another layer makes the logits of
            few = look is graph or width.first < self.at["width"]
            classes, frozen = (_first(history, name, by) for name in ("loss_classes", "frozen_parameters"))
            # a model with frozen parameters was trained before
            unsure = few and (not classes >= 2 or frozen > 0 or not channel.first >= 3 * math.log(classes) + 1)
            if look.began[0] > 20 or unsure:
                return
            vocabulary = int(classes if few else width.first)
        self._done = True
        rows = channel.rows(0, 1)
        if rows.first != 0 or rows.step[0] > 20 or not math.isfinite(rows.value[0]) or is_game(history, channel):
            return
        if came_by(margins_of(history), by):
            return  # of a preference indifference is ln 2, whatever the vocabulary
        if _first(history, "loss_margin", by) == 1:
            return  # of cosines, a margin times their scale above a guess is meant
        loss, guess = float(rows.value[0]), math.log(vocabulary)
        if loss <= guess + self.at["above"]:
            return
        weight, passes, count = (_first(history, name, by) for name in ("loss_weight", "backwards", "targets"))
        in_bits = abs(weight * (passes if passes > 1 else 1) * math.log(2) - 1) < self.at["bits"]
        weighs = 1 / math.log(2) if in_bits else weight
        if weighs > 1 and loss <= weighs * (guess + self.at["above"]):
            return  # it is a multiple of a mean, as of one in bits, or one that is summed: see `loss_weight`
        step = int(rows.step[0])
        # other losses are added to that of the output, as far as the graph shows, and nobody logs their guess
        known = not math.isnan(weight) or not math.isnan(_first(history, "loss_classes", by))
        mixed = not known and _first(history, "loss_undivided", by) == 0
        parts = passes if passes * weight > 1.01 else 1.0  # what is logged of undivided ones is their sum
        before = loss <= parts * self.at["sure"] * guess and _trained_before(history, by)
        of_rows = divided_by_rows(history) and abs(weight * _first(history, "example_rows", by) / count - 1) < _SAME
        chosen = weight > 1 and (summed_by_choice(history) or of_rows)
        serious = loss > self.at["times"] * guess and not mixed and not before and not chosen
        added = passes > 1 and loss <= passes * self.at["times"] * guess  # it may be a sum over micro-batches
        added = added and not passes * weight <= 1.01  # each one's loss is divided by their number
        proven = not (added or before) and _first(history, "loss_undivided", by) == 1 and loss > 3 * guess + 1
        mean, deviation = _first(history, "input_mean", by), _first(history, "input_std", by)
        raw = max(abs(mean), deviation) >= self.at["inputs"]
        tied = _first(history, "tied_deviation", by)
        large = tied >= self.at["tied"] and not raw
        cause = _RAW.format(mean, deviation) if raw else _TIED.format(tied) if large else _TOO_LARGE
        if not (raw or large) and _first(history, "loss_pairs", by) > 1:
            paired = of_pairs_far_apart(history, (step, by, int(rows.segment[0])))
            cause, proven = paired[0], proven and len(paired) == 1
        else:
            paired = []
        yield self.finding(
            step,
            f"The first loss is {loss:.4g}; a uniform guess among {vocabulary} gives {guess:.4g}",
            severity="warning" if serious else "info",
            segment=int(rows.segment[0]),
            evidence={"loss": rounded(loss), "guess": rounded(guess), "vocabulary": vocabulary}
            | ({"standing": True} if proven else {}),
            confidence=0.95 if proven else 0.8 if serious else 0.4,
            causes=[_ADDED, *self.causes[:2]] if added else [_OTHER_TASK] if before else [cause] if proven else
                   [*([_SUMMED] if weight > 1 else []), *(paired or ([cause] if large else [])), *self.causes],
            remedies=["Draw the embedding with a deviation of 0.02, or 1 / √width; multiply it by √width where it is "
                      "read, if it should be larger there."] if large else
                     [_KNOWN] if before and not added else list(self.remedies),
        )  # fmt: skip
