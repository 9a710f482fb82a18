"""With which weight each target's loss is in what is differentiated: of a sum, and of micro-batches.

In:   the watch's figures of the loss's gradient and graph, what backward passes were called with, the logged loss.
Out:  findings of `LossWeight`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.configuration import ACCUMULATION
from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.cursor import (
    RowCursor,
    came_by,
    known,
    numeric_setting,
    scaled_loss,
    summed_by_choice,
)
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.data.examples import Place, watched
from barograph.doctor.rules.loss.given import Given, GivenLosses, divided_by, is_one_weight

if TYPE_CHECKING:
    from barograph.doctor.kernel.finding import Finding

_FIRST = 3  # steps, before anything is learnt


class LossWeight(Rule):
    """The loss that is differentiated is summed, or its accumulation is divided too often or not at all.

    The gradient of a cross-entropy shows with which weight a target's loss is in the whole: times the number of targets
    (`model/loss_weight`) that is 1 for a mean, n for a sum over n targets, and 1 / k for a mean that is divided by k
    micro-batches. In three looks in a row it is, within 0.2% (3% of half precision):

    - the number of targets, 8 or more, or up to twice that where the graph ends in one sum, as of focal losses, each
      of which has a factor of its own: the loss is summed. A warning where the first logged loss, too, is more than
      twice ln of the output's width, or gradients are clipped to a norm of 10 or less and a half or less of theirs,
      which is logged as the passes left it. Else an info finding, for gradients may be divided later; and where the
      configuration says `reduction: sum`, for the rate may be chosen for it. Of weighted classes the graph says so
      (`model/loss_summed`).
    - 1, where the configuration says that gradients of k micro-batches are accumulated, and k passes were seen in the
      step, or the watch has seen k backward passes add up, three at least, of one forward pass each: they are added,
      not averaged.
      Where clipping has divided them by k, they were averaged behind the passes.
    - 1 / k², there, or one part in n of it where a wrapper averages over n ranks (`model/averaged_ranks`): the loss is
      divided twice. Of a mean square (`model/square_weight`) it is said where k is 3 or more: half of it, divided by
      two, is as it is meant.
    - 1 / k, where the configuration says so and each step has one pass, in one process, in six looks in a row: the
      optimizer is stepped at each micro-batch.
    - the share of places that have a target, of all places of the output (`model/places`) or seven eighths of them and
      more, where a tenth or more have none and the share changes by a twentieth: the loss is divided by all places,
      padding too. So it is where the share stays as it is, within 0.2% in six looks, unless it is a simple fraction,
      which a weight may be by choice; and only there where another network of the same make is asked in each step: a
      reference or a teacher, from which weights of their own come. Examples of one place each are not padded.

    It is stepped at each micro-batch, too, where the configuration says that k are accumulated, each step of the
    optimizer had one pass, and at the end of the run the optimizer has counted k steps for each step that the loop has
    logged.

    Of a loss in bits (its mean has a weight of 1 / ln 2), what is said of micro-batches holds as well. Losses that a
    scaler multiplies count where the watch was given the scaler.

    Of any loss, as those of pairs and preferences, the graph that autograd keeps shows the last operations. Where that
    is a mean, or several that are added, and nothing divides or multiplies it (`model/loss_undivided`), or one of them
    where others have weights (`model/term_undivided`), micro-batches are added as above. A sum of cross-entropies or
    logistic losses that nothing divides (`model/loss_summed`), written out or by torch's functions, is a finding as
    above: a warning where the first logged loss is more than twice ln of the number of its terms. So it is of a
    preference's answers, though its tokens have weights of their own.

    Where neither says anything, as of a loss that the model computes in pieces, or whose classes have weights of their
    own (three looks show weights that differ by more than three tenths), there is what the backward passes were called
    with (`model/loss_given`): over a step with k passes it is k times the loss that is logged, in three looks in a row,
    within 0.2%. Then k times that loss is differentiated, and micro-batches are added as above: also two, which may be
    two losses else. Or it is so within 30%, as where the last micro-batch's loss is logged, k is 3 or more, and the
    mean of what the passes were called with is the evaluation's loss, within the power 0.3 of k; or, without an
    evaluation, before the fourth step and with 4 passes or more, 0.8 to 1.4 times the loss of a guess among the
    classes of its cross-entropy. Where each loss is of the pairs of all micro-batches, the others' outputs from passes
    without gradients, as gradients are cached, their sum is meant.
    """

    name, family, kind, severity = "loss_weight", "loss", "exploding", "warning"
    proves = "training"
    needs = ("=model/loss_weight|=model/square_weight|=model/loss_undivided|=model/loss_given",)
    least = 1
    about = "The loss is summed, or divided too often or not at all."
    thresholds: ClassVar = {
        "looks": (3.0, "in a row; ours"),
        "same": (0.002, "of the number; ours"),
        "half": (0.03, "of the number, for half precision; ours"),
        "bits": (0.005, "of the number, of a loss in bits; ours"),
        "targets": (8.0, "ours"),
        "heavy": (2.0, "times the number of targets, the weight of a sum of losses with factors of their own; ours"),
        "single": (6.0, "looks in a row at steps of one pass; ours"),
        "passes": (3.0, "backward passes; two may be of two losses; ours"),
        "steps": (20.0, "of the loop, to each of which the optimizer's are counted; ours"),
        "noise": (0.3, "of the number of passes: of a logged loss that is one of theirs; ours"),
        "alike": (0.3, "of the logarithm of that number: of such a loss and the evaluation's; ours"),
        "from": (0.8, "of a guess's loss: one before training that nothing divides; ours"),
        "to": (1.4, "of a guess's loss; ours"),
        "clipped": (0.5, "of the gradients, that clipping leaves of a sum; ours"),
        "limit": (10.0, "of the clipped norm: a larger one is chosen for a sum; ours"),
        "exactly": (6.0, "looks at one share of places with a target, which is the weight to `same`; ours"),
        "simple": (0.05, "between the share, times 12 or less, and a whole number, at most: one may be chosen; ours"),
        "ahead": (0.05, "steps of the optimizer for one of the loop, beyond the micro-batches; ours"),
    }

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._row: list[tuple[int, int, str]] = []
        self._added: list[tuple[int, int, str]] = []
        self._given, self._times = GivenLosses(), list[tuple[int, int, str]]()
        self._exact = 0  # looks in a row at a loss that is divided by all places to `same`
        self._divided: list[tuple[float, float]] = []  # by how many of all places; what share of them has a target

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        weight = history.channel("model/loss_weight")
        of_squares = weight is None or not weight.end
        shown = history.channel("model/square_weight") if of_squares else weight
        channels = shown, history.channel("model/loss_summed"), history.channel("model/backwards")
        looks = self._of_weight, self._of_sum, self._of_graph
        # in the order of their times: what says something first is the same live and in replay
        rows: list[tuple[int, int, Iterator[Finding]]] = []
        for which, place, value in self._cursor.in_order(*channels):
            rows.append((place[1], which, looks[which](history, value, place, of_squares)))
        rows += [(one.place[1], len(looks), self._of_given(history, one)) for one in self._given.new(history)]
        for _, _, found in sorted(rows, key=lambda row: row[:2]):
            yield from found
        yield from self._of_counts(history)

    def _of_weight(self, history: RunHistory, value: float, place: Place, of_squares: bool) -> Iterator[Finding]:
        """The weight of a target's loss in the whole, as the gradient of the output shows it."""
        what = self._what(history, value, *place) or ("" if of_squares else self._of_bits(history, value, *place))
        half = numeric_setting(history, *ACCUMULATION) == 2  # half of a mean square, divided by two, is meant
        if of_squares and (what != "twice" or half or scaled_loss(history, place[1])):
            what = ""  # see `squares_summed` and `loss_divided`
        if not what or (self._row and self._row[0][1:] != (place[2], what)):
            self._row = []
        if not what:
            return
        self._row.append((place[0], place[2], what))
        looks = self.at["single" if what == "stepped" else "looks"]
        if len(self._row) == looks and self.first(place[2], what):
            yield self._say(history, value, what, place, self._row[0][0])

    def _of_counts(self, history: RunHistory) -> Iterator[Finding]:
        """The optimizer's own count of steps beside those of the loop, at the end of a run that was launched once."""
        loss, ages = history.role("loss"), history.channel("model/optimizer_age")
        parts, single = numeric_setting(history, *ACCUMULATION), (history.facts.get("world_size") or 1) == 1
        if not (history.facts.get("finished") and parts >= 2 and single and loss is not None and ages is not None):
            return
        logged, counted = loss.rows(), ages.rows()
        if not len(logged) or len(counted) < 2 or len({*logged.segment.tolist(), *counted.segment.tolist()}) > 1:
            return
        steps = int(logged.step[-1] - logged.step[0]) + 1
        made = float(counted.value[-1] - counted.value[0])
        segment, step, end = int(logged.segment[0]), int(logged.step[-1]), 1 << 62
        names = ("backwards", "losses_given")
        passes = [known(history.channel(f"model/{name}"), 1 << 62, end, segment) for name in names]
        alone = 1 in passes and all(one == 1 for one in passes if one == one)
        ahead = (parts - 1 / 2) * steps <= made <= (parts + self.at["ahead"]) * steps
        if steps >= self.at["steps"] and len(logged) == steps and alone and ahead and self.first(segment, "stepped"):
            yield self._say(history, 1 / parts, "stepped", (step, end, segment), int(logged.step[0]))

    def _of_given(self, history: RunHistory, one: Given) -> Iterator[Finding]:
        """What backward passes were called with, where neither gradient nor graph shows the loss's weight."""
        step, time, segment = one.place
        shown = is_one_weight(history.channel("model/loss_weight"), one.place, self.at["looks"])
        shown = shown or known(history.channel("model/loss_undivided"), *one.place) == 1
        shown = shown and self._parts(history, one.passes, *one.place) >= 2
        scale = known(history.channel("model/loss_scale"), *one.place) if scaled_loss(history, time) else 1.0
        times, parts = one.times / scale, numeric_setting(history, *ACCUMULATION)
        enough = one.passes >= self.at["passes"] or abs(times / 2 - 1) < self.at["same"]  # two, by their mean
        parts = parts if parts == parts else one.passes if enough else math.nan
        clipped = known(history.channel("model/clip_coefficient"), *one.place)
        half = known(history.channel("model/half_parameters"), *one.place) > 0
        added = one.passes == parts >= 2 and abs(times / parts - 1) < self.at["half" if half else "same"]
        added = added or (one.passes == parts and self._whole(history, one, times))
        if shown or not added or abs(clipped * parts - 1) < 0.002 or _compares_all(history, one.passes, one.place):
            self._times = []
            return
        self._times = [look for look in self._times if look[1] == segment] + [(step, segment, "added")]
        if len(self._times) == self.at["looks"] and self.first(segment, "added"):
            yield self._say(history, times, "added", one.place, self._times[0][0])

    def _whole(self, history: RunHistory, one: Given, times: float) -> bool:
        """Whether what a step's passes were called with are losses as an evaluation has them, or a guess among the
        classes before any training: the logged one is one of them, so that their sum is a multiple of it by chance
        alone."""
        parts, (step, time, segment) = one.passes, one.place
        if parts < self.at["passes"] or abs(times / parts - 1) > self.at["noise"]:
            return False
        each, evaluations = times * one.logged / parts, history.role("eval_loss")
        theirs = known(evaluations, step - 1, time, segment)
        if theirs == theirs:
            return each > 0 and abs(math.log(max(theirs, 1e-300) / each)) < self.at["alike"] * math.log(parts)
        guess = math.log(max(1.0, known(history.channel("model/loss_classes"), *one.place)))
        first = step <= _FIRST and parts > self.at["passes"]
        return first and guess > 0 and self.at["from"] <= each / guess <= self.at["to"]

    def _of_sum(self, history: RunHistory, value: float, place: Place, alone: bool) -> Iterator[Finding]:
        """A sum that the loss's own graph shows, alone, where the gradient of the output is none of a cross-entropy."""
        if not alone and not known(history.channel("model/loss_ranks"), *place) >= 0:
            return  # a preference's output is of tokens, and its loss of answers
        if value >= self.at["targets"] and self.first(place[2], "summed"):
            yield self._say(history, value, "summed", place, place[0])

    def _of_graph(self, history: RunHistory, value: float, place: Place, _: bool) -> Iterator[Finding]:
        """A mean that nothing divides, as that graph shows it, over the passes of a step."""
        if not self._adds(history, value, *place):
            self._added = []
            return
        self._added.append((place[0], place[2], "added"))
        if len(self._added) == self.at["looks"] and self.first(place[2], "added"):
            yield self._say(history, 1.0, "added", place, self._added[0][0])

    def _adds(self, history: RunHistory, counted: float, step: int, time: int, segment: int) -> bool:
        """Whether the micro-batches of a step are added, by the loss's graph."""
        whole, term, passes = (known(history.channel(f"model/{name}"), step, time, segment)
                               for name in ("loss_undivided", "term_undivided", "passes"))  # fmt: skip
        parts = self._parts(history, counted, step, time, segment)
        clipped = known(history.channel("model/clip_coefficient"), step, time, segment)
        apart = bool(self._added) and self._added[-1][1] != segment
        several = (whole == 1 or term == 1) and not _compares_all(history, parts, (step, time, segment))
        several = several and parts >= 2 and parts == counted and passes % counted == 0
        return several and not apart and not scaled_loss(history, time) and abs(clipped * parts - 1) >= 0.002

    def _of_bits(self, history: RunHistory, weight: float, step: int, time: int, segment: int) -> str:
        """The same of a loss in bits, whose mean has a weight of 1 / ln 2: what is said of micro-batches."""
        nats, passes = weight * math.log(2), known(history.channel("model/passes"), step, time, segment)
        parts = self._parts(history, passes, step, time, segment)
        near = any(abs(nats * parts**power - 1) < self.at["bits"] for power in (0, 2))
        what = self._what(history, nats, step, time, segment) if near else ""
        return what if what in ("added", "twice") else ""

    def _what(self, history: RunHistory, weight: float, step: int, time: int, segment: int) -> str:
        place = step, time, segment
        targets, passes, half = (watched(history, name, place) for name in ("targets", "passes", "half_parameters"))
        scaled = scaled_loss(history, time)
        if scaled and not came_by(history.channel("model/loss_scale"), time):
            return ""
        same = self.at["half" if scaled or half > 0 else "same"]
        places, examples = (watched(history, name, place) for name in ("places", "example_rows"))
        of_all = targets / weight / places if weight and places else math.nan
        left = targets / weight if weight else math.nan
        exact = any(abs(left / one - 1) < self.at["same"] for one in (places, places - examples) if one > 0)
        if places > examples and abs(of_all * places / (places - examples) - 1) < same:
            of_all = 1.0  # each row has a place without a target, its last
        alone = places <= examples  # one place an example: without a gradient it is fitted, and no padding
        alone = alone or known(history.channel("model/loss_ranks"), *place) >= 0  # or of answers, which are preferred
        beside = known(history.channel("model/other_asked"), *place) == 1  # a reference, or a teacher, says how much
        if targets >= self.at["targets"] and weight <= 0.9 and 7 / 8 <= of_all < 1 + same and not alone:
            self._divided.append((of_all, weight))
            self._exact = (self._exact + 1) * exact
            all_alike = all(abs(one / of_all - 1) < same for one, _ in self._divided)
            weights = [one for _, one in self._divided]
            changes = max(weights) > 1.05 * min(weights)
            chosen = min(abs(weight * one - round(weight * one)) for one in range(1, 13)) < self.at["simple"]
            exactly = self._exact == len(weights) >= self.at["exactly"] and not chosen
            return "padded" if all_alike and (exactly if beside else changes or exactly) else ""
        terms, slope = (watched(history, name, place) for name in ("loss_summed", "class_weight_slope"))
        plain = watched(history, "loss_adds", place) == 1 and watched(history, "loss_terms", place) == 1
        heavy = plain and targets <= weight < self.at["heavy"] * targets  # each by a factor of its own
        weighs = targets > 0 and (abs(weight / targets - 1) < same or (terms == targets and slope == slope))
        if targets >= self.at["targets"] and (weighs or heavy):
            return "summed"
        parts = self._parts(history, passes, step, time, segment)
        alone = passes == known(history.channel("model/backwards"), step, time, segment) == 1
        if alone and parts >= 2 and abs(weight * parts - 1) < same and (history.facts.get("world_size") or 1) == 1:
            return "stepped"
        if not parts >= 2 or passes != parts:
            return ""
        clipped = known(history.channel("model/clip_coefficient"), step, time, segment)
        if abs(clipped * parts - 1) < 0.002:
            return ""  # gradients are divided behind the passes
        ranks = known(history.channel("model/averaged_ranks"), step, time, segment)
        twice = any(abs(weight * parts * parts * often - 1) < same for often in (1.0, ranks))
        return "added" if abs(weight - 1) < same else "twice" if twice else ""

    def _is_clipped_whole(self, history: RunHistory, step: int, time: int, segment: int) -> bool:
        """Whether gradients are clipped to a usual length, and their logged norm is that of what the passes left:
        nothing divides them before."""
        names = ("clip_coefficient", "grad_norm")
        left, norm = (known(history.channel(f"model/{name}"), step, time, segment) for name in names)
        clipped = left < self.at["clipped"] and norm <= self.at["limit"]
        return clipped and abs(divided_by(history, (step, time, segment)) - 1) < self.at["same"]

    def _parts(self, history: RunHistory, passes: float, step: int, time: int, segment: int) -> float:
        """Micro-batches of a step: by the configuration, else backward passes that add up, of one forward pass each."""
        parts = numeric_setting(history, *ACCUMULATION)
        counted = known(history.channel("model/backwards"), step, time, segment)
        alone = counted if counted == passes and counted >= self.at["passes"] else math.nan
        return parts if parts == parts else alone

    def _say(self, history: RunHistory, weight: float, what: str, place: Place, since: int) -> Finding:
        step, time, segment = place
        passes, loss = known(history.channel("model/passes"), step, time, segment), history.role("loss")
        parts = self._parts(history, passes, step, time, segment)
        if parts != parts:
            parts = known(history.channel("model/losses_given"), step, time, segment)
        if what == "summed":
            terms = known(history.channel("model/loss_summed"), step, time, segment)
            width = terms if terms > 1 else known(history.channel("model/output_width"), step, time, segment)
            sums = known(history.channel("model/sums_added"), step, time, segment) if terms > 1 else 1.0
            guess = math.log(width) * max(1.0, sums) if width > 1 else math.nan
            first = loss.first if loss is not None and came_by(loss, time) else math.nan
            whole = self._is_clipped_whole(history, step, time, segment)
            shown = (first > 2 * guess or whole) and not summed_by_choice(history)
            targets = known(history.channel("model/targets"), step, time, segment)
            classes = terms == targets and abs(weight / targets - 1) > self.at["half"]
            number, its = (terms, "the weight of its class") if classes else (weight, "a weight of 1")
            if not classes and targets > 0 and abs(weight / targets - 1) > self.at["half"]:
                number, its = targets, f"{weight / targets:.2f} times its weight in a cross-entropy, in the mean"
            message = f"The loss is summed over {number:.0f} targets: each of them has {its}"
            cause = f"loss summed: over {number:.0f} targets, not averaged"
        elif what == "padded":
            shown, number = True, 1.0
            message = "The loss is divided by the number of all places of the output: those without a target count too"
            cause = "padding in the mean: the loss is averaged over padding too"
        elif what == "stepped":
            shown, number = True, parts
            message = f"Gradients of {parts:.0f} micro-batches are to be added, and each step of the optimizer has one"
            cause = "optimizer stepped at each micro-batch: gradients are not accumulated"
        else:
            shown, often = True, "not at all" if what == "added" else "twice"
            how = "are not divided by their number" if what == "added" else "are divided by their number twice"
            message = f"The losses of {parts:.0f} micro-batches {how}"
            cause = f"gradient accumulation scaled wrongly: divided {often} by {parts:.0f}"
            if what == "twice" and (ranks := round(1 / weight / parts / parts)) > 1:
                message += f", and by that of the {ranks} ranks, over which gradients are averaged"
                cause += f", and by {ranks} ranks"
            number = parts
        return self.finding(
            since, message, found=step, segment=segment, severity="warning" if shown else "info",
            kind={"padded": "padding", "twice": "vanishing"}.get(what, self.kind),
            evidence={"weight": rounded(weight)}, causes=[cause], confidence=0.95 if shown else 0.6,
            remedies=[_REMEDIES.get(what, _REMEDIES["summed"]).format(number=number)],
        )  # fmt: skip


def _compares_all(history: RunHistory, parts: float, place: Place) -> bool:
    """Whether each of a step's losses is of the pairs of all its micro-batches, of which the others' outputs come from
    passes without gradients: each has the gradient of its own rows, and their sum is that of the whole."""
    pairs, rows, without = (known(history.channel(f"model/{name}"), *place)
                            for name in ("loss_pairs", "places", "passes_without_gradients"))  # fmt: skip
    return without == 1 and parts >= 2 and rows > 1 and pairs >= parts * rows


_REMEDIES = {
    "summed": "Divide the loss by {number:.3g} before `backward()`, or use `reduction='mean'`.",
    "stepped": "Call `optimizer.step()` and `zero_grad()` once behind {number:.0f} micro-batches.",
    "twice": "Divide the loss by {number:.3g} once.",
    "padded": "Divide the summed loss by the number of targets: `loss.sum() / mask.sum()`.",
}
