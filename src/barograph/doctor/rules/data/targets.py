"""What a loss compares the output with, told from the gradient that the output gets; what evaluations are given.

In:   figures of the watch.
Out:  findings of `TargetShift`, `TargetsElsewhere`, `EvaluationInputs`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.doctor.kernel.cursor import RowCursor, came_by, known, newest, usual
from barograph.doctor.kernel.curve import is_game, rounded
from barograph.doctor.kernel.kinds import both_losses
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.stages import is_curriculum
from barograph.doctor.rules.data.prepared import EXCHANGED, channels_apart, exchanged
from barograph.doctor.rules.data.scales import below_black, beyond_all, beyond_doubt, elsewhere, narrower

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_BEHIND = -2  # said of targets that are one place behind
_HUNDREDS = 500.0  # targets of a batch

Floats = numpy.ndarray[Any, numpy.dtype[numpy.float64]]


class TargetShift(Rule):
    """The targets of a language model are not one place ahead of its inputs.

    The gradient of a cross-entropy shows each row's target. Where all targets of a sequence are its own inputs, the
    shift is lost, and the model copies (where only some places are targets and the model sees later places, they were
    not masked, or, where most of these are one token, labels were taken from what was masked already); two or three
    places ahead, it is there twice: in the data and in the model. Three looks in a row that show the same. One place
    behind (−2), the shift goes the wrong way: that is said where neighbours in the text say a twentieth of a nat or
    more of each other, as an echo of random tokens may be the task, and where the attention sees earlier places. Those
    that are one place ahead, or no such thing (−1), give no finding. The same is said of a text that a model is asked
    for beside its answer (`model/side_shift`), as a classifier for the next event, and of judged answers, whose
    likelihood is raised in some rows and lowered in others (`model/judged_shift`), but for −2.

    What to do: shift once. Models that take `labels` shift them themselves.
    """

    name, family, kind, severity = "target_shift", "data", "data", "warning"
    proves = "training"
    needs = ("=model/target_shift|=model/side_shift|=model/judged_shift",)
    about = "Targets are not one place ahead of the inputs."
    thresholds: ClassVar = {
        "looks": (3.0, "in a row; ours"),
        "waits": (7.0, "looks, for what the model sees, where some places are targets; ours"),
        "one": (0.5, "of the targets are one token, where some places are targets; ours"),
        "text": (0.05, "nats, that a token says of the next one in a text; ours"),
    }

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._row: list[tuple[int, int, float]] = []
        self._some_looks = 0
        self._beside_rows: dict[int, list[tuple[int, int, float]]] = {}

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        channels = (history.channel(f"model/{name}_shift") for name in ("target", "side", "judged"))
        for which, (step, time, segment), value in self._cursor.in_order(*channels):
            if which == 0:
                yield from self._of_answer(history, time, (step, segment, value))
                continue
            before = self._beside_rows.get(which, [])
            row = [one for one in before if value in (0, 2, 3) and one[1:] == (segment, value)]
            self._beside_rows[which] = [*row, (step, segment, value)][: int(self.at["looks"])]
            if value in (0, 2, 3) and len(row) + 1 >= self.at["looks"] and self.first(segment, value):
                yield self._say(row[0][0], (step, segment, value), False, 0.0)

    def _of_answer(self, history: RunHistory, time: int, here: tuple[int, int, float]) -> Iterator[Finding]:
        """Of the model's answer. here: step, segment, shift."""
        if here[2] not in (0, 2, 3, _BEHIND) or (self._row and self._row[0][1:] != here[1:]):
            self._row = []
        if here[2] not in (0, 2, 3, _BEHIND):
            return
        self._row = [*self._row, here][: int(self.at["looks"])]
        if here[2] == _BEHIND and not self._reads(history, time, here):
            return
        some = here[2] == 0 and self._some(history, time, here)
        self._some_looks += some
        if some and not self._is_causal(history, time, here) and self._some_looks < self.at["waits"]:
            return
        if len(self._row) == self.at["looks"] and self.first(*here[1:]):
            one = known(history.channel("model/one_target"), here[0], time, here[1])
            some = some and not self._is_causal(history, time, here)
            yield self._say(self._row[0][0], here, some, one)

    def _reads(self, history: RunHistory, time: int, here: tuple[int, int, float]) -> bool:
        """Whether the tokens are a text, and the model may see earlier ones."""
        text, earlier = (
            known(history.channel(f"model/{name}"), here[0], time, here[1])
            for name in ("text_along", "attention/earlier")
        )
        return text >= self.at["text"] and earlier != 0

    def _is_causal(self, history: RunHistory, time: int, here: tuple[int, int, float]) -> bool:
        """Whether outputs don't depend on later places: it predicts, and fills no masks."""
        names = ("attention/next", "attention/later", "next_reached", "past_reached")
        seen = [known(history.channel(f"model/{name}"), here[0], time, here[1]) for name in names]
        return 0 in seen[:2] or (seen[2] == 0 and seen[3] > 0)

    def _some(self, history: RunHistory, time: int, here: tuple[int, int, float]) -> bool:
        """Whether only some places are targets, as of a masked language model."""
        targets, places = (history.channel(f"model/{name}") for name in ("targets", "places"))
        return known(targets, here[0], time, here[1]) < 0.5 * known(places, here[0], time, here[1])

    def _say(self, step: int, here: tuple[int, int, float], some: bool, one: float) -> Finding:
        ahead = int(here[2])
        if some and ahead == 0:
            return self.finding(
                step, "Less than half of all places are targets, and each of them is the input of its own place"
                + (f"; {100 * one:.0f}% of them are one token." if one >= self.at["one"] else "."),
                found=here[0], segment=here[1], confidence=0.95, evidence={"places": max(ahead, -1)},
                causes=["labels taken after masking: what is to be found is the mask itself" if one >= self.at["one"]
                        else "labels can be seen: inputs are not masked where there are targets"],
                remedies=["copy the labels before tokens are masked: `labels = tokens.clone()`"
                          if one >= self.at["one"] else
                          "give the model the tokens with the mask in place of those that are targets"],
            )  # fmt: skip
        what = "are the inputs of the same places" if ahead == 0 else f"are {ahead} places ahead of the inputs"
        what = "are one place behind the inputs" if ahead == _BEHIND else what
        return self.finding(
            step, f"The targets of a sequence {what}, not one place ahead of them.", found=here[0], segment=here[1],
            confidence=0.95, evidence={"places": max(ahead, -1)},
            causes=["labels shifted: targets are the inputs, so that the model learns to copy" if ahead == 0
                    else "labels shifted: the wrong way, to tokens that the model was given a place before"
                    if ahead == _BEHIND else f"labels shifted: {ahead} places instead of one"],
            remedies=["shift targets by one place, once: `logits[:, :-1]` against `tokens[:, 1:]`; a model that is "
                      "given `labels` does it itself"],
        )  # fmt: skip


class TargetsElsewhere(Rule):
    """The targets of a language model are the next tokens of other places than those that the outputs are of.

    In the first steps of a small batch all targets are compared with all inputs. Either each row's targets are another
    row's inputs, of the same places or one ahead: rows were rolled or shuffled on one side. Or outputs and targets were
    flattened in another order, rows first and places first. Three looks in a row. The model learns how often tokens
    come, and nothing else.

    What to do: print a row of inputs with its targets; `transpose` before `view` or `reshape` on both sides, or none.
    """

    name, family, kind, severity = "targets_elsewhere", "data", "data", "critical"
    needs = ("=model/targets_elsewhere",)
    least = 3
    about = "The targets of a language model are those of other places."
    thresholds: ClassVar = {"looks": (3.0, "in a row; ours")}

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._row: list[tuple[int, int, float]] = []

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        rows = self._cursor.new(history.channel("model/targets_elsewhere"))
        for at in range(len(rows) if rows is not None else 0):
            assert rows is not None
            here = int(rows.step[at]), int(rows.segment[at]), float(rows.value[at])
            if not here[2] or (self._row and self._row[0][1:] != here[1:]):
                self._row = []
            if here[2]:
                self._row.append(here)
            if len(self._row) >= self.at["looks"] and self.first(here[1]):
                crossed = here[2] == 2
                yield self.finding(
                    self._row[0][0], "The targets are the next tokens of other places: "
                    + ("outputs and targets are flattened in another order." if crossed else
                       "each row has the tokens of another row of its batch."),
                    found=here[0], segment=here[1], confidence=0.95, evidence={"standing": True},
                    causes=["labels shuffled: outputs and targets are flattened in another order of rows and places"
                            if crossed else "labels shuffled: each row has the targets of another row"],
                    remedies=["`transpose` both before `view` or `reshape`, or none of them" if crossed else
                              "roll or shift along the places, not along the rows", "print a row with its targets"],
                )  # fmt: skip


class EvaluationInputs(Rule):
    """Evaluations are given inputs of another mean or scale than the training, and their loss is worse.

    At three evaluations in a row the inputs' mean is further than two standard deviations from that of the
    training's inputs, or their standard deviation is less than a quarter or more than four times theirs, as that of
    pictures is whose normalisation is left out, or both are outside of all looks at the training's, by half a
    deviation and a factor of 1.5, while the configuration names no other domain; and the evaluation's loss is half
    as large again as the training's. Where the training's inputs are normalised (mean 0 and deviation 1, to a
    tenth), a third of a deviation and a factor of 1.5 are enough, and with a whole deviation a loss larger by a
    fifth; but not a third of a deviation alone, as of series that are higher in the time that is held out; with a
    deviation of 0.75 to 1.25, as where some numbers are padding, it takes a third of a deviation and a factor of
    1.22. Pictures of one normalisation have the same black: where the least number of the training's is the same in
    eight looks or more, to a fiftieth of their range, the evaluation's is lower by a twentieth of it, and their
    mean is a third of a deviation away, other numbers were subtracted, or divided by. So they were where one of two
    or three channels of pictures lies above all looks at the training's and another one below, by a third of its
    deviation each and by a whole one in all, which the mean of all numbers hides. Evaluations whose inputs have a
    mean below 0 and 2.5 times the deviation are normalised twice: it is enough that their loss is not better than
    the training's. Where theirs are about normal, and the training's lie a deviation or more below them, those of
    the training are. Where the training's own inputs change (by more than a fifth between looks, a tenth of them on
    each side left out), as in a curriculum, there is nothing to say, unless the evaluation's are further from all
    of them, in mean and deviation, than these are from each other; where the configuration names a curriculum, it
    is an info finding. Pictures that are normalised in the training and differ by half a deviation and a factor of
    1.22 in the evaluation are said whatever the loss, for a training that augments has a larger one. Those of a
    classifier whose deviation is half of that of each look at the training or less, and which have a hundredth of
    their numbers at each end of a range that is half as wide, are not pictures of less contrast, but divided by
    less: a loss a tenth above the training's is enough, for one that mixes examples or smooths labels is larger.
    The step is that of the first evaluation from which on inputs are such, whatever its loss. A hundred times as
    large, as bytes beside shares of 255 are, or as small, is said whatever the loss: a normalisation within the
    model may take it out again. So it is where the evaluation's inputs are normalised, and those of the training
    lie a whole deviation away, which is four times as large, or a quarter: a model that answers each input alike
    has one loss for both. Where the loss is of classes or of pairs, the training's inputs are normalised, and the
    evaluation's lie outside of all looks at them in both, their mean by a quarter of a deviation and their
    deviation by a factor of 1.35, and what the mean is away, in deviations, and the logarithm of the scale are 2
    together, or 1.2 of pictures, the loss needs not be worse, nor known, unless the configuration names another
    domain; nor where their mean alone lies a deviation and a half outside of all looks. Where their red and blue
    are the training's exchanged (`evaluation_pictures`), that is the first cause.

    What to do: one normalisation for both, with the training's statistics.
    """

    name, family, kind, severity = "evaluation_inputs", "eval", "eval", "warning"
    proves = "evaluation"
    needs = ("=model/eval_input_std", "=model/input_std", "loss")
    least = 3
    about = "Evaluations are given inputs of another scale."
    thresholds: ClassVar = {
        "mean": (2.0, "standard deviations; those of ImageNet's pictures are 2.1 from 0"),
        "scale": (4.0, "times; ImageNet's is 1 / 0.23"),
        "worse": (1.5, "evaluation over training loss; ours"),
        "worse_far": (1.2, "the same, where normalised inputs are a whole deviation away; ours"),
        "far": (100.0, "times as large or small, whatever the loss; 255 of bytes beside shares; ours"),
        "normal": (0.1, "from mean 0 and deviation 1: normalised; ours"),
        "about": (0.25, "from deviation 1: normalised but for some of the numbers; ours"),
        "apart": (0.2, "in ln, of these deviations, beside means that are apart; ours"),
        "near_mean": (1 / 3, "standard deviations, of normalised inputs; ours"),
        "near_scale": (1.5, "times, of normalised inputs; ours"),
        "drift": (0.1, "of the deviation, in ln, within which normalised inputs have only drifted; ours"),
        "steady": (1.2, "of the training's inputs, largest over smallest scale; ours"),
        "narrow": (2.0, "times smaller than of all looks, deviation and range of full pictures; ours"),
        "ends": (0.01, "of their numbers, at each end of that range; ours"),
        "worse_narrow": (1.1, "evaluation over training loss, of these; ours"),
        "plain": (0.5, "deviations, and another scale, of pictures that are normalised: whatever the loss; ours"),
        "other_scale": (0.3, "in ln, beyond all looks, of normalised inputs of classes or pairs; ours"),
        "outside": (0.25, "deviations, of the mean, beyond all looks, of these; ours"),
        "alone": (1.5, "deviations, of the mean, beyond all looks, of these, whatever the scale; ours"),
        "both": (2.0, "deviations of the mean and ln of the scale together, of these: whatever the loss; ours"),
        "both_of_pictures": (1.2, "the same, of pictures; ours"),
        "floor": (0.02, "of the range of pictures, in which their least numbers lie; ours"),
        "below": (0.05, "of that range, by which the evaluation's least number is lower; ours"),
        "looks": (8.0, "at pictures of the training; ours"),
        "opposed": (1.0, "deviation of a channel, by which two are apart that were moved opposite ways; ours"),
        "twice": (2.5, "deviation of inputs that were normalised twice; pictures have one of 3.2 to 4.5; ours"),
        "evaluations": (3.0, "in a row; ours"),
    }
    causes = ("inputs not normalised: those of the evaluation in the way of the training's",)
    remedies = ("normalise inputs of training and evaluation with the same numbers, those of the training",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._row: list[tuple[int, int]] = []
        self._since: tuple[int, int] | None = None  # step and segment of the first evaluation with other inputs

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        loss = history.role("loss")
        if loss is None or is_game(history, loss):
            return
        for place, value in self._cursor.each(history.channel("model/eval_input_std")):
            other = _other_scale(history, value, place, self.at)
            if not other or self._since is None or self._since[1] != place[2]:
                self._since = (place[0], place[2]) if other else None
            apart = other and self._apart(history, value, *place)
            if not apart or (self._row and self._row[0][1] != place[2]):
                self._row = []
            if not apart:
                continue
            self._row.append((place[0], place[2]))
            if len(self._row) == self.at["evaluations"] and self.first(place[2]):
                mean, deviation = (usual(history.channel(f"model/input_{name}"), *place) for name in ("mean", "std"))
                here = known(history.channel("model/eval_input_mean"), *place)
                yield self.finding(
                    self._since[0] if self._since else self._row[0][0],
                    f"Evaluations are given inputs of mean {here:.3g} and deviation {value:.3g}, "
                    f"where those of the training have {mean:.3g} and {deviation:.3g}"
                    f"{_OPPOSED if channels_apart(history, place, self.at) else ''}.",
                    found=place[0], segment=place[2], confidence=0.3 if is_curriculum(history) else 0.95,
                    severity="info" if is_curriculum(history) else self.severity,
                    causes=[*([EXCHANGED] if exchanged(history, place) else []),
                            *([_TWICE] if self._twice(history, value, place) else []),
                            *([_TRAINED_TWICE] if self._trained_twice(mean, here, value) else []),
                            *self.causes],
                    evidence={"mean": rounded(mean), "deviation": rounded(deviation), "eval_mean": rounded(here),
                              "eval_deviation": rounded(value)},
                )  # fmt: skip

    def _apart(self, history: RunHistory, deviation: float, step: int, time: int, segment: int) -> bool:
        place = step, time, segment
        if history.role("eval_loss") is None:
            return beyond_doubt(history, deviation, place, self.at)
        ours, theirs = both_losses(history, *place)
        worse = self.at["worse_far"] if self._far(history, place) else self.at["worse"]
        worse = self.at["worse_narrow"] if narrower(history, deviation, place, self.at) else worse
        worse = 1.0 if self._twice(history, deviation, place) else worse
        usually = usual(history.channel("model/input_std"), *place)
        if min(deviation, usually) > 0 and abs(math.log(deviation / usually)) >= math.log(self.at["far"]):
            return True  # a normalisation within the model may take it out again
        if deviation > 0 and self._alone_normal(history, deviation, place):
            return True  # a model that answers both with a constant has one loss
        if self._of_pictures(history, deviation, place) or beyond_doubt(history, deviation, place, self.at):
            return True  # a training that augments has a larger loss than an evaluation has
        return 0 < worse * ours < theirs < math.inf

    def _alone_normal(self, history: RunHistory, deviation: float, place: tuple[int, int, int]) -> bool:
        """Whether the evaluation's inputs are normalised, and those of the training far from that in both."""
        mean, scale = (usual(history.channel(f"model/input_{name}"), *place) for name in ("mean", "std"))
        here = known(history.channel("model/eval_input_mean"), *place)
        near = abs(here) <= self.at["near_mean"] and abs(math.log(deviation)) <= math.log(self.at["near_scale"])
        return near and abs(mean - here) >= scale > 0 and abs(math.log(scale / deviation)) >= math.log(self.at["scale"])

    def _of_pictures(self, history: RunHistory, deviation: float, place: tuple[int, int, int]) -> bool:
        """Whether inputs are pictures, normalised in the training, and the evaluation's differ in mean and scale."""
        mean, scale = (usual(history.channel(f"model/input_{name}"), *place) for name in ("mean", "std"))
        away = abs(known(history.channel("model/eval_input_mean"), *place) - mean)
        normal = abs(mean) <= self.at["normal"] and abs(scale - 1) <= self.at["normal"]
        colours = known(history.channel("model/eval_input_red"), *place)
        other = deviation > 0 and abs(math.log(deviation / scale)) >= self.at["apart"]
        return normal and other and colours == colours and away >= self.at["plain"] * scale

    def _far(self, history: RunHistory, place: tuple[int, int, int]) -> bool:
        """Whether inputs are normalised in the training, and the evaluation's mean is a deviation or more away."""
        mean, scale = (usual(history.channel(f"model/input_{name}"), *place) for name in ("mean", "std"))
        normal = abs(mean) <= self.at["normal"] and abs(scale - 1) <= self.at["normal"]
        return normal and abs(known(history.channel("model/eval_input_mean"), *place) - mean) >= scale

    def _trained_twice(self, mean: float, here: float, deviation: float) -> bool:
        """Whether the evaluation's inputs are about normal, and the training's below them by a deviation or more: what
        is subtracted are numbers of what lies above 0."""
        near = abs(here) <= self.at["near_mean"] and 1 / self.at["near_scale"] <= deviation <= self.at["near_scale"]
        return near and mean < here - 1

    def _twice(self, history: RunHistory, deviation: float, place: tuple[int, int, int]) -> bool:
        """Whether the evaluation's inputs are as those of the training, normalised, would be if that were done again:
        what is subtracted from them and what they are divided by are numbers of what lies above 0."""
        mean, scale = (usual(history.channel(f"model/input_{name}"), *place) for name in ("mean", "std"))
        normal = abs(mean) <= self.at["normal"] and abs(scale - 1) <= self.at["normal"]
        here = known(history.channel("model/eval_input_mean"), *place)
        return normal and deviation > self.at["twice"] and -here > self.at["near_mean"]


_OPPOSED = "; of their channels one lies above the training's, and another one below"
_TRAINED_TWICE = "inputs normalised twice: those of the training"
_TWICE = "inputs normalised twice: those of the evaluation"


def others_scale(history: RunHistory, place: tuple[int, int, int]) -> bool:
    """Whether the last evaluation had inputs of another mean or scale than the training."""
    deviation = known(history.channel("model/eval_input_std"), *place)
    return deviation == deviation and _other_scale(history, deviation, place, _limits())


def _limits() -> dict[str, float]:
    return {name: value for name, (value, _) in EvaluationInputs.thresholds.items()}


def same_few(history: RunHistory, place: tuple[int, int, int], most: float) -> bool:
    """Whether the training has the same few examples again and again: fewer distinct ones than `most`; where they are
    not counted, a batch with fewer targets, in which the most frequent class has one share in the last eight looks,
    or those that there are."""
    rows = known(history.channel("model/distinct_rows"), *place)
    share, targets = history.channel("model/top_target_share"), known(history.channel("model/targets"), *place)
    if rows == rows or share is None or not targets < most:
        return rows < most
    shares = newest(share, *place, 8)
    shares = shares[numpy.isfinite(shares)]
    return len(set(shares.tolist())) == 1


def by_heart(history: RunHistory, place: tuple[int, int, int]) -> bool:
    """Whether each step has the same few hundred examples, of a kind that is not told apart: tuples of numbers."""
    return not came_by(history.channel("model/distinct_rows"), place[1]) and same_few(history, place, _HUNDREDS)


def _other_scale(
    history: RunHistory, deviation: float, place: tuple[int, int, int], limits: Mapping[str, float]
) -> bool:
    deviations = history.channel("model/input_std")
    if deviations is None:
        return False
    if channels_apart(history, place, limits) or narrower(history, deviation, place, limits):
        return True
    if beyond_doubt(history, deviation, place, limits):
        return True
    step, time, segment = place
    scale, mean = usual(deviations, *place), usual(history.channel("model/input_mean"), *place)
    rows = deviations.rows()
    past = numpy.sort(rows.value[(rows.segment == segment) & (rows.time <= time) & (rows.step <= step)])
    whole, past = past, past[len(past) // 10 : len(past) - len(past) // 10]  # some small batches are far from others
    if len(past) < 3 or not min(past[0], scale) > 0:
        return False
    if past[-1] > limits["steady"] * past[0] and not beyond_all(history, deviation, whole, place, limits):
        return False
    normal = abs(mean) <= limits["normal"] and abs(scale - 1) <= limits["normal"]
    most, times = (limits["near_mean"], limits["near_scale"]) if normal else (limits["mean"], limits["scale"])
    if normal and abs(math.log(deviation / scale) if deviation > 0 else math.inf) < limits["drift"]:
        most = limits["mean"]
    away = abs(known(history.channel("model/eval_input_mean"), *place) - mean)
    if away > limits["near_mean"] * scale and below_black(history, place, limits):
        return True
    about = abs(mean) <= limits["normal"] and abs(scale - 1) <= limits["about"]  # some numbers are padding, or a count
    both = away > limits["near_mean"] * scale and deviation > 0 and abs(math.log(deviation / scale)) >= limits["apart"]
    if about and both:
        return True
    if beyond_all(history, deviation, whole, place, limits) and not elsewhere(history):
        return True
    return bool(away > most * scale or not scale / times < deviation < times * scale)


RULES = (TargetShift, TargetsElsewhere, EvaluationInputs)
