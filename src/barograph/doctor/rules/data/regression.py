"""What a mean square compares.

In:   figures of the watch, which knows the targets of a loss that is nothing but a mean square; logged terms of a loss.
Out:  findings of `TargetsOutOfRange`, `UnscaledTargets`, `UnexplainedTargets`, `OutlierInputs`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel import depth
from barograph.doctor.kernel.cursor import named, newest, usual
from barograph.doctor.kernel.curve import is_game, rounded
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, watched
from barograph.doctor.rules.data.leaks import in_order

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_PROOF = 0.95
_LARGE = 10.0  # deviation or mean of inputs that nobody normalised
_RAW = 1000.0  # of inputs that steps of a usual rate get nowhere with
_SAME = 1e-6  # spread of outputs that are one
RECONSTRUCTION = expression(
    r"(?i)(?!.*(?:val|eval|test))(?:.*[/_.])?(?:re_?con(?:struct(?:ion)?)?|rec)(?:_?(?:loss|error|mse|bce))?"
)
"""Names of the term of an autoencoder that compares its output."""


class TargetsOutOfRange(WatchRule):
    """Targets lie where the output's last function can't reach.

    The graph says that the loss is nothing but the mean square of the outputs, and that a sigmoid, softmax, tanh or
    ReLU made these. Its gradient then shows the targets: a tenth of them or more are beyond the range of that function,
    in five looks in a row. So it is where a square or a logistic loss of all outputs is a part of the loss, and the
    targets are the model's inputs, as those of an autoencoder. Of a mean of absolute errors, or of others that are not
    larger, the graph says the same of the function, and the watch knows the value: where it is above the width of the
    range in two looks, targets are beyond it.

    Or the loss is nothing but such errors and logistic losses, and below 0 in five rows of 20: a logistic loss is so
    where a target is above 1, or below 0, and no other of these ever. Losses of players are left out, for the graph may
    be that of another one. Of an autoencoder, whose loss is nothing but
    logistic losses and the divergence of its latent numbers, the logged reconstruction was above 0, and is below.

    What to do: no function behind the last layer, or targets that are scaled into its range.
    """

    name, family, kind, severity = "targets_out_of_range", "data", "config", "warning"
    series = "model/out_of_range"
    needs = ("=model/out_of_range|=model/loss_error|=model/latent_logistic",)
    least = 2
    about = "Targets lie where the output's last function can't reach."
    thresholds: ClassVar = {
        "share": (0.1, "of the targets; ours"),
        "looks": (5.0, "in a row; ours"),
        "wide": (1.05, "times the width of the range, of a mean error; ours"),
        "values": (2.0, "in a row, of a mean error; ours"),
    }
    causes = ("targets out of reach: the output's last function can't give them",)
    remedies = ("leave the function behind the last layer out, or scale targets into its range",)

    def reset(self) -> None:
        super().reset()
        self._far = 0
        self._below: dict[str, list[bool]] = {}
        self._above: set[str] = set()

    def asked(self, history: RunHistory) -> list[Source]:
        errors = history.channel("model/loss_value") if history.channel("model/loss_bounded") is not None else None
        return [*super().asked(history), (errors, self._of_errors)]

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from super().examine(history)
        yield from self._logistic(history, history.role("loss"), "loss_error")
        if history.channel("model/latent_logistic") is not None:
            yield from self._logistic(history, named(history, RECONSTRUCTION), "latent_logistic")

    def _of_errors(self, history: RunHistory, error: float, place: Place) -> Iterator[Finding]:
        """Means of absolute errors, of outputs in a range."""
        wide = watched(history, "loss_bounded", place)
        mean = watched(history, "loss_error", place) == 1 and watched(history, "loss_undivided", place) == 1
        self._far = self._far + 1 if mean and error > self.at["wide"] * wide else 0
        if self._far >= self.at["values"] and self.first(place[2]):
            yield self.finding(
                0, f"Outputs are {error:.4g} away from their targets on the average at step {place[0]}, and their "
                f"last function has a range of {wide:.3g}.", found=place[0], segment=place[2], confidence=_PROOF,
                evidence={"error": rounded(error), "standing": True},
            )  # fmt: skip

    def _logistic(self, history: RunHistory, channel: Channel | None, figure: str) -> Iterator[Finding]:
        """Rows of what is nothing but logistic losses or errors, by a figure of the watch."""
        if channel is not None and figure == "loss_error" and is_game(history, channel):
            return  # the graph may be that of another player's loss
        for (step, time, segment), value in self._cursor.each(channel):
            place, value = (step, time, segment), value
            below = self._below[figure] = [*self._below.get(figure, ())[-19:], value < 0]
            self._above |= {figure} if value > 0 else set()
            whole = figure == "loss_error"
            logistic = sum(below) >= self.at["looks"] and (whole or figure in self._above)
            if logistic and watched(history, figure, place) == 1 and self.first(place[2], "logistic"):
                what = (
                    f"The loss is {value:.4g} at step {place[0]}, and is nothing but logistic losses, or errors beside "
                    "targets" if whole else
                    f"The reconstruction is {value:.4g} at step {place[0]}, and is nothing but logistic losses"
                )  # fmt: skip
                yield self.finding(
                    0, f"{what}: below 0 are those whose targets are not between 0 and 1.",
                    found=place[0], segment=place[2], confidence=_PROOF, key="logistic", severity="critical",
                    kind="data", causes=["targets out of range: those of a logistic loss are not between 0 and 1"],
                    remedies=["scale targets to 0 and 1: `mask = (mask > 0).float()`, of an image `/ 255`"],
                    evidence={"standing": True},
                )  # fmt: skip

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.lasts(value >= self.at["share"], place, self.at["looks"]):
            given = not_normalised(history, place) if watched(history, "input_target", place) == 1 else ""
            yield self.finding(
                self._row[0][0], f"{100 * value:.0f}% of the targets are out of the range of the output's last "
                f"function{', and they are the inputs: ' + given if given else ''}.", found=place[0],
                segment=place[2], confidence=_PROOF,
                causes=[*(["inputs not normalised: they are the targets, too"] if given else []), *self.causes],
                evidence={"share": rounded(value), "standing": True},
            )  # fmt: skip


class UnscaledTargets(WatchRule):
    """Targets are far larger than what the model gives, and stay so.

    Of a loss that is nothing but a mean square the watch knows the targets. After a hundred steps they are above 30 in
    size, and ten times as large as the outputs, in eight looks in a row: steps of the learning rate don't take the
    output there. Of a mean of absolute errors, or others beside targets, it knows the value: behind the hundredth step
    it is above 30 and ten times as large as the outputs in two looks in a row, which are fifty passes apart.

    What to do: subtract the mean of the training's targets and divide by their deviation; undo it where it is used.
    """

    name, family, kind, severity = "unscaled_targets", "data", "config", "warning"
    proves = "training"
    series = "model/output_rms"
    needs = ("=model/output_rms|=model/loss_value",)
    least = 8
    about = "Targets are far larger than what the model gives."
    thresholds: ClassVar = {
        "size": (30.0, "of the targets; ours"),
        "times": (10.0, "the outputs' size; ours"),
        "looks": (8.0, "in a row; ours"),
        "steps": (100.0, "that don't count; ours"),
    }
    causes = ("targets not scaled: they are far larger than the outputs",)
    remedies = ("subtract the mean of the training's targets, and divide them by their deviation",)

    def reset(self) -> None:
        super().reset()
        self._far: list[Place] = []

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/loss_value"), self._of_errors)]

    def _of_errors(self, history: RunHistory, error: float, place: Place) -> Iterator[Finding]:
        """A mean of errors beside targets other than their squares."""
        size = watched(history, "output_size", place)
        mean = watched(history, "loss_error", place) == 1 and watched(history, "loss_undivided", place) == 1
        far = mean and place[0] >= self.at["steps"] and error >= max(self.at["size"], self.at["times"] * size)
        same = self._far[-1:] and self._far[-1][2] == place[2]
        self._far = [*(self._far if same else []), place] if far else []
        if len(self._far) >= 2 and self.first(place[2]):
            yield self.finding(
                0, f"Outputs are {error:.4g} away from their targets on the average"
                + (f", and their own size is {size:.4g}" if size == size else "") + f", at step {place[0]}.",
                found=place[0], segment=place[2], confidence=_PROOF,
                evidence={"error": rounded(error), "outputs": rounded(size), "standing": True},
            )  # fmt: skip

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        size = math.hypot(watched(history, "target_std", place), watched(history, "target_mean", place))
        apart = place[0] >= self.at["steps"] and size >= self.at["size"] and size >= self.at["times"] * value
        if self.lasts(apart, place, self.at["looks"]):
            yield self.finding(
                0, f"The targets' size is {size:.4g}, that of the outputs {value:.4g} at step {place[0]}.",
                found=place[0], segment=place[2], confidence=_PROOF,
                evidence={"targets": rounded(size), "outputs": rounded(value), "standing": True},
            )  # fmt: skip


class UnexplainedTargets(WatchRule):
    """A regression explains nothing of its targets: a constant would do as well.

    Of a loss that is nothing but a mean square the watch knows the targets, and which part of their variance the
    outputs explain. After 200 steps that is a hundredth or less in the mean of the last sixteen looks, and of those
    before, it is no more in the median of the last four, and it neither rises by a tenth from these to those nor lies
    below minus a fifth (a model that has yet to learn the mean of its targets explains less than nothing); weights
    change by steps of a usual size, the learning rate does not rise any more, and no evaluation has got better than the
    variance of the targets. Where inputs have a deviation or a mean of ten or more, they were never normalised; where
    it is a thousand, a tenth of the variance is as good as nothing, whatever an evaluation says. Where targets are
    unscaled, `unscaled_targets` speaks, `constant_output` where all outputs are one, and `ordered_targets` where
    batches lie further apart than the targets within one. Values of a policy, and losses of two players, give no
    finding. Where the first block's gradient is below a thousandth of the last block's, the first cause is that
    gradients vanish.

    Of a model of denoising, whose input has the shape of its output, targets may be what inputs say little of at first.
    Where they are noise of mean 0 and deviation 1 in all looks, that is not so. Else it takes 1,000 steps, and a loss
    whose mean has not fallen by four standard errors between 500 rows and the next.

    What to do: look at ten examples with their targets; look at which part of the output goes on.
    """

    name, family, kind, severity = "unexplained_targets", "data", "data", "warning"
    proves = "training"
    series = "model/explained"
    needs = ("=model/explained", "=model/target_std", "loss", "=model/update_p50|=model/param_norm")
    least = 24
    about = "A regression explains nothing of its targets."
    thresholds: ClassVar = {
        "share": (0.01, "of the targets' variance; ours"),
        "raw": (0.1, "the same, where inputs are in the thousands; ours"),
        "looks": (16.0, "ours"),
        "steps": (200.0, "ours"),
        "better": (0.95, "the last evaluation over the first; ours"),
        "denoising": (1000.0, "steps, where an input has the shape of the output; ours"),
    }
    causes = ("labels shuffled: nothing that the model reads of the inputs says what the targets are",)
    remedies = (
        "print ten inputs with their targets, as they go into the loss: what joined them may be off by one",
        "look at what of a sequence or a batch goes on: the last place, not the first",
    )

    def begin(self) -> None:
        self._values: list[float] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        looks = int(self.at["looks"])
        if _rises(history, place):
            self._values = []
            return
        self._values = [*self._values[1 - 2 * looks :], max(value, -1.0)]
        late, early = self._values[-looks:], self._values[:-looks]
        if len(late) < looks or len(early) < looks / 2 or place[0] < self.at["steps"]:
            return
        size = math.hypot(watched(history, "target_std", place), watched(history, "target_mean", place))
        limits = {name: bound for name, (bound, _) in UnscaledTargets.thresholds.items()}
        unscaled = size >= limits["size"] and size >= limits["times"] * watched(history, "output_rms", place)
        scale = input_scale(history, place)
        share = self.at["raw" if scale >= _RAW else "share"]
        if max(numpy.mean(late), numpy.mean(early)) > share or unscaled or not _moves(history, place):
            return
        # a mean that is still to be learnt makes outputs worse than a constant, and what is on its way rises
        behind = numpy.mean(late) < -2 * _ON_ITS_WAY or numpy.mean(late) - numpy.mean(early) > _ON_ITS_WAY
        if (behind and not scale >= _RAW) or numpy.median(late[-_NEWEST:]) > share:
            return
        if watched(history, "output_spread", place) < _SAME or in_order(history, place):
            return
        loss = history.role("loss")
        evaluation = history.role("eval_loss")
        if loss is None or is_game(history, loss) or history.role("reward") is not None:
            return
        if evaluation is not None and evaluation.end and not scale >= _RAW:
            last, deviation = usual(evaluation, *place, 1), usual(history.channel("model/target_std"), *place)
            if last < self.at["better"] * min(evaluation.first, deviation * deviation):
                return
        noise = self._noise(history, place)
        if noise == "other" and (place[0] < self.at["denoising"] or _falls(loss, place)):
            return
        if not self.first(place[2]):
            return
        given, vanished = not_normalised(history, place), depth.vanishes(history, *place)
        yield self.finding(
            0, f"After {place[0]} steps the outputs explain {max(0.0, 100 * numpy.mean(late)):.2g}% of the variance of "
            f"the targets: a constant would do as well{', and ' + given if given else ''}.",
            found=place[0], segment=place[2], confidence=_PROOF if given else 0.9,
            causes=["inputs not normalised: " + given] if given else [depth.CAUSE, *self.causes] if vanished else
            list(_CAUSES.get(noise, self.causes)),
            remedies=list(depth.REMEDIES if vanished and not given else self.remedies),
            evidence={"explained": rounded(float(numpy.mean(late)))},
        )  # fmt: skip

    def _noise(self, history: RunHistory, place: Place) -> str:
        """Of a model of denoising, whether its targets are noise, and the inputs have it; empty of another one."""
        targets, share = history.channel("model/noise_target"), history.channel("model/noise_share")
        if targets is None or not targets.end:
            return ""
        seen = newest(targets, *place, int(self.at["looks"]))
        if not (seen == 1).all() or share is None:
            return "other"
        return "absent" if abs(usual(share, *place, int(self.at["looks"]))) < _ABSENT else "present"


_ON_ITS_WAY = 0.1  # of the variance, from sixteen looks to the next; twice that below 0
_NEWEST = 4  # looks, of which the median says what the outputs explain now
_ABSENT = 0.05  # factor of a noise in an input that does not have it
_CAUSES = {
    "absent": ("noise of the targets is not in the inputs: it was drawn anew, or nothing was added to the inputs",),
    "present": ("time not normalised: the noise is in the inputs, and what else goes in is far larger",),
}


def _falls(loss: Channel, place: Place) -> bool:
    """Whether the loss's mean of 500 rows is below that of the 500 before by four standard errors."""
    values = newest(loss, *place, 1000)
    values = values[numpy.isfinite(values)]
    early, late = values[: len(values) // 2], values[len(values) // 2 :]
    if len(early) < 2:
        return False
    error = math.sqrt(float(early.var() + late.var()) / len(early))
    return bool(early.mean() - late.mean() > 4 * error)


def _moves(history: RunHistory, place: Place) -> bool:
    """Whether steps change the weights by what is usual."""
    change = usual(history.channel("model/update_p50"), *place)
    return change != change or change > 1e-4


def _rises(history: RunHistory, place: Place) -> bool:
    """Whether the learning rate is that of a warm-up."""
    rate = history.role("lr")
    values = newest(rate, *place, 32) if rate is not None else numpy.zeros(0)
    values = values[numpy.isfinite(values)]
    return len(values) > 1 and bool(values[-1] > values[0])


def not_normalised(history: RunHistory, place: Place) -> str:
    """Of inputs that nobody normalised, how large they are; empty where they are of a usual size, or not known."""
    if not input_scale(history, place) >= _LARGE:
        return ""
    mean, deviation = _inputs(history, place)
    return f"their mean is {mean:.3g}, their deviation {deviation:.3g}"


def input_scale(history: RunHistory, place: Place) -> float:
    """Mean or deviation of the inputs, the larger; NaN where they are not known."""
    mean, deviation = _inputs(history, place)
    return max(abs(mean), deviation)


def _inputs(history: RunHistory, place: Place) -> tuple[float, float]:
    mean, deviation = (usual(history.channel(f"model/input_{name}"), *place, 8) for name in ("mean", "std"))
    return mean, deviation


_BEHIND = 8  # rows that are waited for, once a record of the watch is there: those of the next steps may come late


class OutlierInputs(WatchRule):
    """A batch has inputs a hundred times as large as usual, and the loss jumps with it.

    The watch compares the largest input of each step with those of the steps before. A finding where the loss of the
    same step is twice that of the rows before, or not finite. Three such steps in a row are another scale of the inputs
    (`input_scale`).

    What to do: look at the examples of these steps; clip inputs, or leave such examples out.
    """

    name, family, kind, severity = "outlier_inputs", "data", "data", "warning"
    needs = ("=model/input_outlier", "loss")
    about = "A batch has inputs far larger than usual, and the loss jumps with it."
    thresholds: ClassVar = {"times": (2.0, "the loss of the rows before; ours"), "several": (3.0, "batches; ours")}
    causes = ("bad batch: some of its inputs are a hundred times as large as usual, or more",)
    remedies = ("look at the examples of these steps; clip inputs, or leave such examples out",)

    def channel(self, history: RunHistory) -> Channel | None:
        return history.role("loss")

    def begin(self) -> None:
        self._waited: dict[int, int] = {}  # step of a record → rows since it is there
        self._before = 0  # the step of the loss's row before
        self._steps: list[int] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        channel, loss = history.channel("model/input_outlier"), history.role("loss")
        assert channel is not None and loss is not None
        if not channel.end or channel.began[0] >= place[0]:
            return
        rows, low, self._before = channel.rows(), self._before - 128, place[0]  # the watch's records may come late
        here = (rows.segment == place[2]) & (rows.step >= low) & (rows.step < place[0]) & (rows.time <= place[1])
        known = set(rows.step[here].tolist())
        for step, times in zip(rows.step[here].tolist(), rows.value[here].tolist(), strict=True):
            self._waited[step] = self._waited.get(step, -1) + 1
            if self._waited[step] != _BEHIND:
                continue
            if {step - 1, step + 1} <= known or {step + 1, step + 2} <= known or {step - 1, step - 2} <= known:
                continue  # inputs of another scale from then on: `input_scale` is about that
            before = usual(loss, step - 1, *place[1:], 16)
            worst = newest(loss, step, *place[1:], 1)[0]
            if not (math.isfinite(worst) and worst <= self.at["times"] * before):
                self._steps.append(step)
                yield self._say(times, place)

    def _say(self, times: float, place: Place) -> Finding:
        several = len(self._steps) >= self.at["several"]
        count = f"; so {len(self._steps)} times" if len(self._steps) > 1 else ""
        return self.finding(
            self._steps[0], f"The largest input of step {self._steps[-1]} is {times:.3g} times that of the steps "
            f"before, and the loss jumps with it{count}.", found=place[0], last_step=self._steps[-1],
            segment=place[2], confidence=_PROOF,
            evidence={"times": rounded(times), "batches": len(self._steps)} | ({"standing": True} if several else {}),
        )  # fmt: skip


RULES = (TargetsOutOfRange, UnscaledTargets, UnexplainedTargets, OutlierInputs)
