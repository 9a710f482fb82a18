"""Why an evaluation is apart from the training before anything could be memorized.

In:   the first evaluation, the best one and the last, each with the training loss beside it.
Out:  causes for `Overfitting`, the likeliest first; the cause where another set of the evaluation falls still.
"""

from __future__ import annotations

import math

from barograph.core.patterns import expression
from barograph.core.roles import evaluation_losses
from barograph.core.unnamed import evaluation_called
from barograph.doctor.kernel.channels import Channel, RunHistory
from barograph.doctor.kernel.cursor import named
from barograph.doctor.kernel.curve import between
from barograph.doctor.rules.data.examples import Place, few_examples, watched
from barograph.doctor.rules.evaluation.evaluations import EvaluationPoint
from barograph.doctor.rules.evaluation.ranking import AREA

_SEEN = "overfitting: the examples are memorized"
_LABELS = "evaluation labels are others: they don't go with their inputs as the training's do"
_DATA = "evaluation data differ: other inputs than the training's, or not prepared as those"
_APART = (_LABELS, _DATA, "tokenizer mismatch: evaluation uses another vocabulary or numbering")
_UNSCALED = "inputs not normalised: those of the evaluation in the way of the training's"
_UNRELATED = "labels shuffled: inputs and targets of the training don't belong together"
_FITTED = (
    "labels can be seen: the training's inputs give them away, or they are all alike",
    "data exhausted: few different examples, each of them many times in an epoch",
)
_SOON_ABOVE = 1.25  # the evaluation over the mean of an epoch in which each example is new, which lags behind it
_FAR_ABOVE = 4 / 3  # the same, where nobody knows whether examples were new
_FAR = 4.0  # the same, of inputs that are far out
_EASY = 0.05  # of the first epoch's loss: what is left where the answers are given
_AT_FIRST = 1.15  # the first evaluation over a training loss that lags behind it: no chance, of noise that is new
_LEARNS = 0.8  # of the training loss at the best evaluation: it had much to learn still
_A_GUESS = 0.97  # of the loss of a guess: no better, but by chance
_MOST_RIGHT = 0.75  # of the first evaluation's answers: its labels are those of the training
_AGAIN, _LOOKS = 0.25, 8  # of a batch's examples, seen before in the last looks: they may be memorized
_LOWER_AT_FIRST = 0.8  # of the evaluation at first: another set's loss is of data nearer to the training's
_STILL_LOW = 1.03  # times its lowest evaluation: it doesn't rise
_LEARNT = 0.5  # of its first evaluation
_OF_TRAINED = expression(r"(?i)train|seen|known|memor|heart|replay|fit|same|probe")  # a set that may be trained on
_MEASURE = "measure is not the loss's: it is of other outputs, or of another sign"
_FEW = 3  # evaluations
_NEAR_HALF = 0.05  # of an area under the curve: a guess's noise with 150 examples


def beside_falls(history: RunHistory, channel: Channel, point: EvaluationPoint) -> str:
    """The cause where the data of an evaluation that rises are others than the training's: the loss of another set,
    evaluated at the same steps, was a fifth below it at first, has lost half, and doesn't rise. Empty if none did."""
    rows = channel.rows()
    here = (rows.segment == point.segment) & (rows.step <= point.step)
    parts = channel.name.split("/")
    for name in evaluation_losses(history.channels) if here.any() else ():
        words, other = name.split("/"), history.channel(name)
        apart = [pair for pair in zip(words, parts, strict=False) if pair[0] != pair[1]]
        if other is None or len(words) != len(parts) or len(apart) != 1 or words[-1] != parts[-1]:
            continue
        theirs = other.rows()
        same = (theirs.segment == point.segment) & (theirs.step <= point.step)
        values = theirs.value[same]
        if _OF_TRAINED.search(apart[0][0]) or theirs.step[same].tolist() != rows.step[here].tolist():
            continue
        nearer = values[0] <= _LOWER_AT_FIRST * rows.value[here][0]
        if nearer and 0 < values[-1] <= min(_STILL_LOW * values.min(), _LEARNT * values[0]):
            return f"evaluation data differ: the loss of another set, {name}, does not rise"
    return ""


def causes_apart(
    history: RunHistory, start: EvaluationPoint, best: EvaluationPoint, point: EvaluationPoint, fresh: bool
) -> list[str]:
    """Causes; empty where the two were not apart. fresh: no example had come again at the first evaluation."""
    if own := _own_falls(history, point):
        return [f"{_MEASURE}; {own}, called as the training's loss is, falls with it"]
    apart = min(start.value / start.train, best.value / best.train) if min(start.train, best.train) > 0 else 0.0
    right = between(history.role("eval_accuracy"), 0, start.step + 1, start.segment)[-1:]
    if len(right) and _MOST_RIGHT <= right[0] <= 1:
        return []
    if apart > _SOON_ABOVE and fresh:
        easy = _FITTED if point.train < _EASY * start.train else ()
        return [*easy, *([_UNSCALED] if start.value > _FAR * start.train else []), *_APART]
    if _guessed(history, point):
        return list(_APART)
    loss, place = history.role("loss"), _place(history, point)
    if loss is None or loss.start or place is None or start.segment != point.segment:
        return []
    classes = _classes(history, place)
    begin = math.log(classes) if classes > 1 else _first(loss, start.step)
    again = between(history.channel("model/rows_again"), 0, start.step + 1, start.segment)[-_LOOKS:]
    memory = len(again) > 0 and float(again.mean()) > _AGAIN  # the first evaluation came late
    never = apart > _FAR_ABOVE and best.value >= begin > 0 and not memory
    unscaled = [_UNSCALED] if never and best.value > _FAR * begin else []
    if watched(history, "noise_target", place) == 1:  # the noise is new each time: nothing is memorized early
        begun = start.value > _AT_FIRST * start.train > 0 and best.value > _FAR_ABOVE * best.train > 0
        early = begun and point.train < _LEARNS * best.train
        return [*unscaled, _DATA, _SEEN] if never or early else []
    if never:
        return [*unscaled, *_APART, _SEEN]
    # as good as a guess at the first evaluation: what was learnt since holds for the training's own examples alone
    guessed = classes > 1 and min(start.train, best.value) >= _A_GUESS * math.log(classes)
    if guessed and few_examples(history, place):
        return [_SEEN, _UNRELATED, _LABELS]
    return [_UNRELATED, _SEEN, _LABELS] if guessed else []


def _own_falls(history: RunHistory, point: EvaluationPoint) -> str:
    """Another evaluation than the one that rises, called as the training's loss is, that has fallen by a fifth and is
    no higher than ever: empty if there is none."""
    loss, channel = history.role("loss"), history.role("eval_loss")
    name = None if loss is None else evaluation_called(loss.name, history.channels)
    own = None if name is None or channel is None or name == channel.name else history.channel(name)
    if own is None or own.start:
        return ""
    values = between(own, 0, point.step + 1, point.segment)
    falls = len(values) >= _FEW and 0 < values[-1] <= min(_LEARNS * values[0], _STILL_LOW * values.min())
    return str(name) if falls else ""


def _place(history: RunHistory, point: EvaluationPoint) -> Place | None:
    channel = history.role("eval_loss")
    rows = channel.rows(point.row, point.row + 1) if channel is not None else None
    return (point.step, int(rows.time[0]), point.segment) if rows is not None and len(rows) else None


def _classes(history: RunHistory, place: Place) -> float:
    """Among how many a guess is made; NaN where the watch has not said."""
    pairs = watched(history, "loss_pairs", place)
    return pairs if pairs > 1 else watched(history, "loss_classes", place)


def _first(loss: Channel, step: int) -> float:
    """The loss that the training began with, NaN if it is not in the log: its rows have to begin with the first step,
    and four of them have to come before the first evaluation."""
    rows = loss.rows(0, 4)
    if len(rows) < 4 or rows.step[3] > step or rows.step[0] > max(1, int(rows.step[1] - rows.step[0])):
        return math.nan
    return float(rows.value[0])


def _guessed(history: RunHistory, point: EvaluationPoint) -> bool:
    """Whether an area under the curve has been that of a guess in each of four evaluations or more."""
    area = named(history, AREA)
    values = between(area, 0, point.step + 1, point.segment)
    return len(values) >= 4 and float(abs(values - 0.5).max()) <= _NEAR_HALF
