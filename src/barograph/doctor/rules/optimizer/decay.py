"""Weight decay that takes more from the weights than the training gives.

In:   `model/decay_share`, `model/coupled_decay`, the norm of all parameters, the loss.
Out:  findings of `DecayDominates`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import half_rate, known, param_norm_of
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.optimizer.accounts import level, outweighed

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding


class DecayDominates(Rule):
    """Weight decay takes more from the weights than the training gives them.

    Each step takes learning rate × decay of every weight. Where that is a five-hundredth or more, weights remember
    some hundred steps; it is a warning where the norm of all parameters is below 0.7 of what it was, or each step
    takes a fiftieth (gains without decay may keep the norm up), and the run ends with a loss that is 10% above its
    lowest stretch, and by a twentieth of its fall, or that has not fallen by a third, or where the norm is below
    0.3 of what it was, too, by a half of its first row; or, whatever the loss does, where a quarter of the looks of
    100 steps or more have a fiftieth: no weight remembers more than some fifty steps then. Where a quarter of the
    looks have a five-hundredth over a run of three such memories, with Adam's decay above 1 (10 times the usual; 1
    is taken where what is learnt by heart should be unlearnt), it is a warning where the loss no longer moves, by a
    fiftieth in its last half, and has kept a third of its first value: decay and gradient hold each other there.
    The rate is to blame where Adam's decay is a usual one, or where the weights had grown before: decay makes
    nothing grow.

    A decay that is added to the gradient, as that of torch's Adam, is divided by the gradient's size with it: where it
    is larger than the loss's gradient in the first looks, steps go where weights get smaller, at the full rate. A
    warning where the norm is below 0.7 of what it was and the loss has not fallen by a third.

    What to do: a decay of which a step takes 1e-5 to 1e-4; none on gains, biases and embeddings. `AdamW` instead of
    `Adam`.
    """

    name, family, kind, severity = "decay_dominates", "optimizer", "weight_growth", "warning"
    proves = "training"
    needs = ("=model/decay_share|=model/coupled_decay", "param_norm", "loss")
    about = "Weight decay takes more than the training gives."
    sources = ("AdamW: each step takes lr × decay of a weight",)
    thresholds: ClassVar = {
        "each": (2e-3, "of a weight in a step; usual are 1e-5 to 1e-4; ours"),
        "share": (0.7, "of the largest norm; ours"),
        "much": (0.02, "of a weight in a step, whatever the norm; ours"),
        "quarter": (0.25, "of the looks that have it, a schedule's highest; ours"),
        "steps": (100.0, "of these looks; ours"),
        "vanished": (0.3, "of the largest norm, with that; ours"),
        "loss": (1.1, "times its lowest stretch; ours"),
        "lost": (0.05, "of what the loss fell: less may be its noise near 0; ours"),
        "fall": (1 / 3, "of the first loss; ours"),
        "decay": (0.5, "usual with Adam are 0 to 0.3; ours"),
        "many": (1.0, "Adam's decay; ours"),
        "memories": (3.0, "of the weights, in the steps of the run; ours"),
        "still": (0.02, "of the loss, by the halves of its last half; ours"),
        "grown": (1.5, "times the first norm; ours"),
        "times": (1.0, "the loss's gradient: a decay that is added to it; ours"),
    }

    def _added(self, history: RunHistory) -> Iterator[Finding]:
        """Of a decay that is added to the gradient."""
        norm, loss = param_norm_of(history), history.role("loss")
        if not history.facts.get("finished") or norm is None or loss is None:
            return
        rows, end = norm.rows(), loss.rows(max(0, loss.end - 1))
        norms = rows.value[numpy.isfinite(rows.value)]
        times = outweighed(history, int(end.time[-1])) if len(end) and len(norms) >= 5 else math.nan
        first, _, last = level(history)
        if not self.at["times"] <= times < math.inf or not norms[-1] <= self.at["share"] * norms.max():
            return
        if last > (1 - self.at["fall"]) * first and self.first("added"):
            yield self.finding(
                int(rows.step[0]), f"The decay of weights is {times:.3g} times the loss's gradient from the start: the "
                f"weights' norm fell from {norms.max():.4g} to {norms[-1]:.4g}, and the loss went from {first:.4g} to "
                f"{last:.4g}.", found=int(end.step[-1]), segment=int(rows.segment[-1]), confidence=0.95, key="added",
                evidence={"times": rounded(times), "param_norm": rounded(float(norms[-1])), "standing": True},
                causes=["weight decay too high: its part of the gradient outweighs that of the loss"],
                remedies=[f"divide the weight decay by {10 ** max(1, math.ceil(math.log10(10 * times))):.0f}, or take "
                          "`AdamW`, whose decay goes past the gradient"],
            )  # fmt: skip

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from self._added(history)
        channel, norm = history.channel("model/decay_share"), param_norm_of(history)
        if not history.facts.get("finished") or channel is None or norm is None or not self.first():
            return
        rows, norms = channel.rows(), norm.rows().value
        norms = norms[numpy.isfinite(norms)]
        each = float(numpy.where(numpy.isfinite(rows.value), rows.value, 0.0).max(initial=0.0))
        if not each >= self.at["each"] or len(norms) < 3:
            return
        shrunk = norms[-1] <= self.at["share"] * norms.max()
        first, lowest, last = level(history)
        held = self._held(history, rows, last > self.at["fall"] * first)
        if not shrunk and each < self.at["much"] and not held:
            return
        rises = last > self.at["loss"] * lowest and last - lowest > self.at["lost"] * (first - lowest)
        vanished = norms[-1] <= self.at["vanished"] * norms.max() and each >= self.at["much"]
        half = vanished and last > 0.5 * _first_row(history) > 0
        usual = float(numpy.quantile(rows.value, 1 - self.at["quarter"]))
        always = usual >= self.at["much"] and rows.step[-1] - rows.step[0] >= self.at["steps"]
        proven = rises or half or always or last > (1 - self.at["fall"]) * first
        if not (proven or held):
            return
        at = int(numpy.argmax(rows.value >= self.at["each"]))
        step, segment = int(rows.step[at]), int(rows.segment[at])
        rate = known(history.role("lr"), step, int(rows.time[at]), segment)
        counts = history.channel("model/optimizer_age")  # of Adam and its kind
        modest = counts is not None and counts.end > 0 and rate > 0 and float(rows.value[at]) <= self.at["decay"] * rate
        cause, remedy = ("weight decay too high: it takes more from the weights than the training gives",
                         f"divide the weight decay by {10 ** max(1, round(math.log10(each / 1e-4))):.0f}")  # fmt: skip
        if modest or norms.max() > self.at["grown"] * norms[0]:
            cause, remedy = ("learning rate too high: it moves the weights too far, and multiplies the decay",
                             half_rate(history, step, int(rows.time[at]), segment))  # fmt: skip
        yield self.finding(
            step, f"Each step takes {each:.2g} of every weight that decays"
            + (f": their norm fell from {norms.max():.4g} to {norms[-1]:.4g}" if shrunk else "")
            + (f", and the loss ends at {last:.4g}, lowest {lowest:.4g}." if rises
               else f", and the loss went from {first:.4g} to {last:.4g}" + (" and stays there." if held else ".")),
            found=int(rows.step[-1]), segment=int(rows.segment[-1]), confidence=0.95 if proven else 0.8,
            evidence={"each_step": rounded(each), "param_norm": rounded(float(norms[-1]))},
            causes=[cause], remedies=[remedy, "leave gains, biases and embeddings without decay"],
        )  # fmt: skip

    def _held(self, history: RunHistory, rows: ChannelRows, high: bool) -> bool:
        """Whether weights remember a part of the run alone, by Adam's decay, and the loss stays where it is. high:
        whether it has kept a third of its first value."""
        each = float(numpy.quantile(rows.value, 1 - self.at["quarter"]))
        loss, counts = history.role("loss"), history.channel("model/optimizer_age")
        if not each >= self.at["each"] or not high or loss is None or counts is None or not counts.end:
            return False
        step, time, segment = int(rows.step[-1]), int(rows.time[-1]), int(rows.segment[-1])
        rate = known(history.role("lr"), step, time, segment)
        values = loss.rows().value
        quarters = [float(numpy.median(part)) for part in numpy.array_split(values[len(values) // 2 :], 2) if len(part)]
        return bool(
            rows.value[-1] > self.at["many"] * rate > 0
            and len(values) >= 64
            and (step - rows.step[0]) * each >= self.at["memories"]
            and abs(quarters[0] - quarters[1]) < self.at["still"] * quarters[1]
        )


def _first_row(history: RunHistory) -> float:
    loss = history.role("loss")
    return float(loss.first) if loss is not None and loss.end else math.nan


RULES = (DecayDominates,)
