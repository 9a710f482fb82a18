"""What part of its targets' variance an evaluation explains, where that is logged as R².

In:   the evaluation's R² and loss, and the training's loss.
Out:  findings of `EvaluationUnexplained`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy

from barograph.core.heldout import HELD_OUT
from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import known, named, usual
from barograph.doctor.kernel.curve import again, rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.data.targets import others_scale

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_PROOF = 0.95
_NAME = r"(?:r2|r\^2|r_?squared?|rsq|r2_?score|explained_?var(?:iance)?)"
_EXPLAINED = expression(
    rf"(?i)(?:(?:.*[/_. ])?{HELD_OUT}[/_. ](?:.*[/_. ])?{_NAME}|(?:.*[/_. ])?{_NAME}[/_. ]{HELD_OUT})"
)


class EvaluationUnexplained(WatchRule):
    """In no evaluation is the model better than the mean of the targets: R² is about 0, or below.

    R² says how much of the targets' variance the outputs explain: 0 is what their mean does. With the evaluation's mean
    square it gives the variance, as one number in all evaluations, and so what a training loss in the same unit is
    worth. Each evaluation since the first one counts.

    - R² at −10 or less in five: the outputs are several times further away than the targets ever are. Where the
      training's loss has fallen by half, and began in the same unit, it is the evaluation's inputs that are of another
      scale, if the watch has seen that they are; has it seen that they are not, its targets, or the statistics of batch
      norm. Where the variance is ten times the training's first loss, it is its targets.
    - At most 0.05, while the training's loss was a tenth of the variance by the third evaluation and is a twentieth
      now. Where the log counts epochs, and that was the fifth or an earlier one, it is hardly learnt by heart: the
      training's inputs have the answer, those of the evaluation do not. Else overfitting is named first.
    - At most 0.02 in twenty, while the training's loss falls below nine tenths of the variance: what is learnt is
      learnt by heart, and inputs and targets have nothing to do with each other.
    - Between −0.02 and 0.02 in twenty, and the training's loss within 3% of its start: not even by heart. With a usual
      learning rate that is a loss that is least at the mean: each output is compared with the targets of all rows.
      Below 1e-5 the rate is too low.

    Where a later evaluation is better than 0.05 after all, the finding becomes an info finding.

    What to do: print ten examples of each set as they go into the model, inputs and targets.
    """

    name, family, kind, severity = "evaluation_unexplained", "eval", "data", "warning"
    needs = ("loss", "eval_loss")
    least = 5
    about = "In no evaluation is the model better than the mean of the targets."
    thresholds: ClassVar = {
        "far": (-10.0, "R²; ours"),
        "few": (5.0, "evaluations; ours"),
        "many": (20.0, "evaluations; ours"),
        "known": (0.05, "of the variance, the training's loss that shows the answer; ours"),
        "nothing": (0.02, "R²; ours"),
        "heart": (0.9, "of the variance, the training's loss; ours"),
        "still": (0.03, "of the training's first loss; ours"),
        "rate": (1e-5, "that is too low from scratch; ours"),
        "epochs": (5.0, "up to the third evaluation; ours"),
    }

    def channel(self, history: RunHistory) -> Channel | None:
        explained = named(history, _EXPLAINED)
        return explained if history.role("eval_loss") is not None and history.role("reward") is None else None

    def begin(self) -> None:
        self._values: list[float] = []
        self._variances: list[float] = []
        self._third = math.nan, math.nan  # the training's loss and the epoch at the third evaluation
        self._began: Place | None = None
        self._told: Finding | None = None

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        loss = history.role("loss")
        if value > self.at["known"] or self._values[:1] == [math.inf]:
            self._values = [math.inf]  # it has been better: there is nothing to say any more
            yield from self._after_all(value, place)
            return
        if loss is None or not math.isfinite(value) or self._told is not None:
            return
        self._began = self._began or place
        self._values.append(value)
        self._variances.append(known(history.role("eval_loss"), *place) / (1 - value))
        ours = usual(loss, *place, 3)
        if len(self._values) == 3:
            self._third = ours, known(history.role("epoch"), *place)
        if len(self._values) < self.at["few"] or not math.isfinite(ours) or not loss.end:
            return
        said = self._said(history, ours, float(loss.first), place)
        if said is None:
            return
        sure = len(said.causes) == 1
        self._told = self.finding(
            self._began[0], f"In {len(self._values)} evaluations R² is {value:.3g} now and {max(self._values):.3g} at "
            "best: " + said.message, found=place[0], segment=place[2], confidence=_PROOF if sure else 0.9,
            kind=said.kind, causes=said.causes,
            remedies=[said.remedy, "print ten examples of the training and the evaluation, as they go into the model"],
            evidence={"r2": rounded(value), "training": rounded(ours)} | ({"standing": True} if sure else {}),
        )  # fmt: skip
        yield again(self._told)

    def _far(self, history: RunHistory, place: Place) -> _Case:
        """What is said of outputs far out of the range of the targets, by what is known of the inputs."""
        known_ones = watched(history, "eval_input_std", place)
        if known_ones != known_ones:
            return _OTHER_INPUTS._replace(causes=_OTHER_INPUTS.causes + _ELSEWHERE.causes)
        return _OTHER_INPUTS if others_scale(history, place) else _ELSEWHERE

    def _after_all(self, value: float, place: Place) -> Iterator[Finding]:
        """An evaluation is better than the mean."""
        if self._told is not None:
            told, self._told = self._told, None
            told.severity, told.message = "info", f"{told.message} At step {place[0]} it was {value:.3g}."
            yield again(told)

    def _said(self, history: RunHistory, ours: float, first: float, place: Place) -> _Case | None:
        variance = float(numpy.median(self._variances))
        spread = max(abs(one - variance) for one in self._variances)
        if not 0 < variance < math.inf or spread > _SAME * variance:
            return None  # the evaluation's loss is another one than the mean square
        best, third, epoch = max(self._values), *self._third
        if best <= self.at["far"]:
            learns = ours <= 0.5 * max(first, variance)
            return None if not learns else _OTHER_TARGETS if variance > 10 * first else self._far(history, place)
        known_ones = self.at["known"] * variance
        if ours <= known_ones and third <= 2 * known_ones:
            return _ANSWERS if epoch <= self.at["epochs"] else _FITTED
        if len(self._values) < self.at["many"]:
            return None
        if best <= self.at["nothing"] and ours <= self.at["heart"] * variance and ours <= first:
            return _BY_HEART
        last = self._values[-int(self.at["many"]) :]
        nothing = max(map(abs, last)) <= self.at["nothing"] and abs(ours / first - 1) <= self.at["still"]
        if not nothing or abs(first / variance - 1) > _ALIKE:
            return None
        rates = history.role("lr")
        rows = rates.rows() if rates is not None else None
        highest = float(rows.value[rows.time <= place[1]].max(initial=0.0)) if rows is not None else math.nan
        return _TOO_LOW if 0 < highest <= self.at["rate"] else _THE_MEAN


class _Case(NamedTuple):
    """What is said behind R²."""

    message: str
    causes: list[str]
    remedy: str
    kind: str = "data"


_SAME = 0.02  # of the variance, from one evaluation to the next
_ALIKE = 0.25  # of the variance: the training's first loss, where nothing is learnt
_UNRELATED = "labels shuffled: nothing in the inputs says what the targets are"
_SEEN = "labels can be seen: the training's inputs have the answer, the evaluation's do not"
_MEMORIZED = "overfitting: the examples are memorized"
_OTHER_TARGETS = _Case(
    "the evaluation's targets are of another scale than the training's.",
    ["targets not scaled: the evaluation's are of another scale than the training's"],
    "subtract the training's mean from the evaluation's targets, and divide by its deviation",
)
_OTHER_INPUTS = _Case(
    "its outputs are far out of the range of the targets, while the training learns.",
    ["inputs not normalised: the evaluation's are of another scale than the training's"],
    "do to the evaluation's inputs what is done to the training's, with the same mean and deviation",
)
_ELSEWHERE = _Case(
    "its outputs are far from the targets, while the training learns, and its inputs have the training's scale.",
    ["targets not scaled: the evaluation's are not shifted or divided as the training's",
     "batch norm's statistics are stale: an evaluation has those, and the training its batches' own"],
    "compare mean and deviation of the targets of both, as they go into the loss",
)  # fmt: skip
_ANSWERS = _Case(
    "the training fits its targets, after three passes nearly so, and nothing of it holds elsewhere.",
    [_SEEN, _MEMORIZED],
    "look for a column that is made of the target, or of what is known only afterwards",
)
_FITTED = _ANSWERS._replace(
    message="the training fits its targets early, and nothing of it holds elsewhere.", causes=[_MEMORIZED, _SEEN]
)
_BY_HEART = _Case(
    "what the training learns holds for its own examples alone.",
    ["labels shuffled: inputs and targets don't belong together", _MEMORIZED],
    "look at what joins inputs and targets: the key, the order of the rows",
)
_TOO_LOW = _Case(
    "the training's loss stays at its start, at a rate that moves nothing.",
    ["learning rate too low", _UNRELATED],
    "raise the learning rate a hundredfold",
    "learning_rate",
)
_THE_MEAN = _Case(
    "the mean of the targets is all that is learnt, and the training's loss stays there too.",
    ["targets broadcast: each output is compared with the targets of all rows", _UNRELATED, "learning rate too low"],
    "make the shapes equal before the loss: `output.squeeze(-1)`, or `targets[:, None]`",
)

RULES = (EvaluationUnexplained,)
