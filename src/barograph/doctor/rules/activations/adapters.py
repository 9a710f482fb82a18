"""By which number adapters are multiplied, beside what the configuration says of them; adapters that are not trained.

In:   the scale and the rank that the watch saw; alpha, rank and rate of the configuration; parameters that get no
      gradient any more, and evaluations; which share of an evaluation's passes ran without adapters; how strong these
      are there.
Out:  findings of `AdapterScale`, `AdapterAlone`, `AdaptersHeld`, `AdaptersLeftOff`, `AdaptersBaseMoves`,
      `AdaptersOffInEvaluation`, `AdaptersStrength`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import evaluations_of, numbers_named, numeric_setting, setting
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.activations.meant import in_stages, said_frozen, said_part
from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_OF_ADAPTERS = r"(?:(?:lora|adapter|peft|network|dora|low_?rank)_?)?"
_ALPHA = expression(_OF_ADAPTERS + "alpha")
_RANK = expression(_OF_ADAPTERS + "(?:r|rank|dim)")
_STRENGTH = expression(r"(?:eval|test|infer|merge|interpolat)\w*?_?(?:strength|scale|weight|factor|alpha)")


class AdapterScale(WatchRule):
    """Adapters of low rank are multiplied by another number than alpha over their rank.

    The graph of an adapted layer shows by which number the product of both factors is multiplied, and their shapes
    the rank r. Where the configuration has that rank, and one alpha, alpha over r is usual, or alpha over the root of
    r. It is a finding if the scale is alpha itself, 4 or more, and r is 2 or more; alpha times r, or times its
    root; alpha over r twice; or r over alpha, the other way round. Or the scale is what alpha and r say, 8 or more, and
    times the configured learning rate and the root of r it is a fifth or more, with Adam: each step then changes a
    layer by about as much of its size, as where alpha is that of a recipe with a larger rank.

    What to do: `scale = alpha / r`; alpha of once or twice the rank.
    """

    name, family, kind, severity = "adapter_scale", "model", "config", "warning"
    series = "model/adapter_scale"
    needs = ("=model/adapter_scale",)
    least = 1
    about = "Adapters are multiplied by another number than alpha over their rank."
    thresholds: ClassVar = {
        "same": (0.001, "of the number; ours"),
        "alpha": (4.0, "that is the scale itself; ours"),
        "scale": (8.0, "that alpha and the rank give; ours"),
        "change": (0.2, "of a layer's size in a step: rate times scale times the root of the rank; ours"),
    }
    remedies = ("`scale = alpha / r`, with an alpha of once or twice the rank",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        rank = watched(history, "adapter_rank", place)
        alphas, ranks = ({one for _, one in numbers_named(history, words)} for words in (_ALPHA, _RANK))
        if len(alphas) != 1 or rank not in ranks or not rank >= 2 or not value > 0:
            return
        alpha = alphas.pop()
        what = self._wrong(value, alpha, rank) if alpha > 0 else ""
        if what and self.first(place[2]):
            yield self.finding(
                0, f"What adapters add is multiplied by {value:.4g}, which is {what}: alpha is {alpha:.4g} and the "
                f"rank {rank:.0f}, so that alpha over the rank is {alpha / rank:.4g}.", found=place[0],
                segment=place[2], confidence=0.9, evidence={"scale": rounded(value), "standing": True},
                causes=[f"adapter scale wrong: it is {what}, and not alpha over the rank"],
            )  # fmt: skip
        elif self._is_large(history, value, rank) and self.first(place[2]):
            yield self.finding(
                0, f"What adapters add is multiplied by {value:.4g}, alpha over the rank: with this rate a step "
                "changes a layer by about as much as it is large.", found=place[0], segment=place[2], confidence=0.8,
                evidence={"scale": rounded(value), "standing": True},
                causes=["adapter scale wrong: alpha is too high for the rank", "learning rate too high"],
                remedies=["an alpha of once or twice the rank, or a lower rate"],
            )  # fmt: skip

    def _wrong(self, scale: float, alpha: float, rank: float) -> str:
        """What the scale is; empty if it is as usual, or something else."""
        root = math.sqrt(rank)

        def is_it(number: float) -> bool:
            return abs(scale / number - 1) < self.at["same"]

        if any(map(is_it, (1.0, alpha / rank, alpha / root))):
            return ""
        if is_it(alpha):
            return "alpha itself" if alpha >= self.at["alpha"] else ""
        numbers = {"alpha times the rank": alpha * rank, "alpha times the rank's root": alpha * root,
                   "alpha over the rank twice": alpha / rank / rank, "the rank over alpha": rank / alpha}  # fmt: skip
        return next((what for what, number in numbers.items() if is_it(number)), "")

    def _is_large(self, history: RunHistory, scale: float, rank: float) -> bool:
        """Whether steps change layers by much of their size, whatever the gradient."""
        rate, optimizer = numeric_setting(history, "learning_rate", "lr"), str(setting(history, "optimizer", "optim"))
        change = rate * scale * math.sqrt(rank)
        return "adam" in optimizer.lower() and scale >= self.at["scale"] and change >= self.at["change"]


class AdapterAlone(WatchRule):
    """An adapted layer gives what its adapter gives, and nothing of the layer that it is for.

    The watch listens to a few layers with an adapter of low rank until one was called with gradients. It holds weights
    that are frozen, or whole numbers, of the size of the factors' product; the graph of its output has nothing but that
    product with an input, and scales, and nothing that is added; and the layer that holds the weights is not called in
    the step by anybody else (`model/adapter_alone`). The sum with the layer's own output is missing.

    What to do: `return self.base_layer(x) + self.scaling * self.lora_B(self.lora_A(x))`.
    """

    name, family, kind, severity = "adapter_alone", "model", "config", "critical"
    series = "model/adapter_alone"
    needs = ("=model/adapter_alone",)
    least = 1
    about = "An adapted layer gives its adapter's part alone."
    causes = ("base left out: an adapted layer returns the adapter's part, without the layer's own output",)
    remedies = ("return the sum: `self.base_layer(x) + self.scaling * self.lora_B(self.lora_A(x))`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if value == 1 and self.first(place[2]):
            yield self.finding(
                0 if place[0] <= _FIRST else place[0], "The output of an adapted layer is its adapter's part alone: "
                "that of the frozen layer is not in it.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"standing": True},
            )  # fmt: skip


class AdaptersHeld(WatchRule):
    """Adapters that run are frozen as they began, where they add nothing, while others are trained.

    The watch listens to modules with two frozen matrices that can be multiplied through fewer dimensions, where others
    of that make are trained. Two of them or more ran in a pass with gradients, and one of their matrices is all 0
    (`model/held_factors`): they were made to be trained, and are not. Those that no pass uses, as of another task, are
    none. Where the configuration says that they will be trained later, or freezes parts by these names, it is an info
    finding.

    What to do: look at what sets `requires_grad`, as a test of the first letters of a name.
    """

    name, family, kind, severity = "adapters_held", "model", "frozen", "warning"
    series = "model/held_factors"
    needs = ("=model/held_factors",)
    least = 1
    about = "Adapters that run are frozen at 0, while others are trained."
    thresholds: ClassVar = {"layers": (2.0, "ours")}
    causes = ("layer frozen: adapters that should be trained are not, by the name that freezes them",)
    remedies = ("check what sets `requires_grad`, and print the names that the optimizer is given",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if not value >= self.at["layers"] or not self.first(place[2]):
            return
        names = next((str(one.fields["frozen"]) for one in history.events if "frozen" in one.fields), "")
        meant = in_stages(history) or (bool(names) and (said_frozen(history, names) or said_part(history, names)))
        yield self.finding(
            0 if place[0] <= _FIRST else place[0], f"{value:.0f} adapters run and are frozen at 0, where they add "
            "nothing; others are trained.", found=place[0], segment=place[2], severity="info" if meant else "warning",
            confidence=0.3 if meant else 0.9, evidence={"layers": value, "standing": True},
        )  # fmt: skip


_FIRST = 4  # steps, in which modules are listened to


class AdaptersLeftOff(WatchRule):
    """Some adapters get no gradient any more since an evaluation, and others do.

    Parameters of adapters that had a gradient have none in the step behind an evaluation, nor in any of the next 20,
    though they are to be trained (`requires_grad`), and no other parameter is without one (`model/left_out`,
    `model/left_out_adapters`). The evaluation switched adapters off, as for a comparison with the base, and not all of
    them are on again. Where the configuration says that adapters are trained in stages, nothing is said.

    What to do: `with model.disable_adapter():`, or switch all of them on again, in `finally`.
    """

    name, family, kind, severity = "adapters_left_off", "model", "frozen", "warning"
    proves = "training"
    needs = ("=model/left_out_adapters", "loss", "eval_loss|eval_accuracy|evaluation")
    about = "Some adapters get no gradient any more since an evaluation."
    thresholds: ClassVar = {"steps": (20.0, "without an exception; ours"), "factors": (2.0, "ours")}
    causes = ("adapters left off: an evaluation switched them off, and some are not on again",)
    remedies = ("switch adapters off with `with model.disable_adapter():`, which puts all of them back",)

    def channel(self, history: RunHistory) -> Channel | None:
        return history.role("loss") if history.channel("model/left_out_adapters") is not None else None

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        lost, evaluations = history.channel("model/left_out"), evaluations_of(history)
        if lost is None or evaluations is None or in_stages(history):
            return
        rows, known = lost.rows(), evaluations.rows()
        here = (rows.segment == place[2]) & (rows.time <= place[1])
        if here.sum() != 1:
            return  # by chance, now and then
        since, count = int(rows.step[here][0]), float(rows.value[here][0])
        before = (known.segment == place[2]) & (known.step <= since) & (known.time <= place[1])
        behind = before.any() and since - int(known.step[before][-1]) <= 1
        alone = count >= self.at["factors"] and watched(history, "left_out_adapters", place) == count
        if behind and alone and place[0] - since >= self.at["steps"] and self.first(place[2]):
            yield self.finding(
                since, f"{count:.0f} parameters of adapters get no gradient since the evaluation before step {since}, "
                "and all others do: these adapters are off.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"parameters": count, "standing": True},
            )  # fmt: skip


class AdaptersBaseMoves(WatchRule):
    """The base is asked with adapters switched off, and is not what it was: its batch norm goes on gathering.

    Of the passes of two evaluations in a row some ran with adapters and some without (`model/adapters_off`), as where
    it is looked at what the base still knows, and layers of batch norm whose weights are frozen are in training mode in
    the training (`model/frozen_norms_gather`): their running statistics follow the new data, and no adapter that is
    switched off takes that back.

    What to do: behind each `model.train()`, `.eval()` of the base's layers of batch norm.
    """

    name, family, kind, severity = "adapters_base_moves", "model", "config", "warning"
    proves = "training"
    series = "model/adapters_off"
    needs = ("=model/adapters_off", "=model/frozen_norms_gather")
    least = 2
    about = "A frozen base that is asked without its adapters has batch norm that goes on gathering."
    thresholds: ClassVar = {"evaluations": (2.0, "in a row; ours")}
    causes = ("training mode of frozen batch norm: its running statistics are those of the new data",)
    remedies = ("behind `model.train()`: `.eval()` of each batch norm of the base, whose weights are frozen",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        layers = watched(history, "frozen_norms_gather", place)
        if self.lasts(0 < value < 1 and layers > 0, place, self.at["evaluations"]):
            yield self.finding(
                self._row[0][0], "Evaluations ask the base with adapters switched off, and its batch norm, whose "
                "weights are frozen, is in training mode: its running statistics follow the new data.",
                found=place[0], segment=place[2], confidence=0.9, evidence={"layers": layers, "standing": True},
            )  # fmt: skip


class AdaptersOffInEvaluation(WatchRule):
    """Evaluations run with adapters that are switched off: they are of the base.

    An adapted layer gave another output than the frozen layer within it in the training's last pass, and in all passes
    of two evaluations in a row that layer's own, with weights that are the same: nothing was merged
    (`model/adapters_off`). So it is with an adapter that is a module of its own and gives what it is given. There are
    as many evaluations as such passes were seen behind: a reference that is asked without adapters in between, as for
    a preference, is none. An evaluation that measures both the base and the adapted model has passes of both kinds.

    What to do: leave `with model.disable_adapter():` before the evaluation, or switch adapters on again in `finally`.
    """

    name, family, kind, severity = "adapters_off_in_evaluation", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/adapters_off"
    needs = ("=model/adapters_off", "eval_loss|eval_accuracy|evaluation")
    least = 2
    about = "Evaluations run with adapters that are switched off."
    thresholds: ClassVar = {"evaluations": (2.0, "in a row; ours")}
    causes = ("adapters disabled in the evaluation: it is of the base, without what is learnt",)
    remedies = ("evaluate outside of `model.disable_adapter()`, or switch adapters on again in `finally`",)

    def begin(self) -> None:
        self._looks = 0

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        evaluations = evaluations_of(history)
        if evaluations is None:
            return
        rows = evaluations.rows()
        self._looks += 1
        known = int(((rows.segment == place[2]) & (rows.time <= place[1])).sum())
        if self.lasts(value == 1 and known >= self._looks, place, self.at["evaluations"]):
            yield self.finding(
                self._row[0][0], "In all passes of evaluations an adapter adds nothing to what its layer gives, and "
                "something in the training: adapters are switched off there.", found=place[0], segment=place[2],
                confidence=0.95, evidence={"standing": True},
            )  # fmt: skip


class AdaptersStrength(WatchRule):
    """Evaluations have adapters of another strength than the training.

    An adapted layer is linear in what it is given. In the training its output is that of the layer it is for, and the
    scale times the product of both factors; the watch knows the scale from the graph, and the layer from a few hundred
    rows, whatever it is held in. In all passes of two evaluations in a row the same layer has another output, and what
    is more, or less, is along the factors' product (`model/adapters_by`): twice as much is added, as where adapters are
    merged into the base and still added; or the product itself, where the scale is another number, as where they are
    merged without it. Half of what is more may be something else, as where a layer of few bits is rounded anew. Nothing
    is said of other strengths, of passes of several, where the configuration has a strength for evaluations or merging
    (`merge_scale`), and of layers with more than 512 inputs.

    What to do: merge by the model's own `merge_adapter()`, or add `scale * B @ A` to the weight, and skip the adapter
    in the forward pass for as long.
    """

    name, family, kind, severity = "adapters_strength", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/adapters_by"
    needs = ("=model/adapters_by", "=model/adapters_by_error", "=model/adapters_by_rest", "=model/adapters_by_scale")
    least = 2
    about = "Evaluations have adapters of another strength than the training."
    thresholds: ClassVar = {
        "evaluations": (2.0, "in a row; ours"),
        "near": (0.1, "of a strength, to twice the training's, or to that of the product itself; ours"),
        "apart": (0.25, "of the training's strength, at least; ours"),
        "errors": (6.0, "standard errors; ours"),
        "rest": (0.5, "of what is more, squared, that is something else; ours"),
    }
    remedies = ("merge `scale * B @ A` into the base, and do not add the adapter besides, until it is taken out again",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        error, rest, scale = (watched(history, f"adapters_by_{name}", place) for name in ("error", "rest", "scale"))
        near = self.at["near"]
        sure = abs(value - 1) > max(self.at["apart"], self.at["errors"] * error) and rest <= self.at["rest"]
        twice, bare = abs(value / 2 - 1) <= near, abs(value * scale - 1) <= near
        sure = sure and not any(numbers_named(history, _STRENGTH))
        if self.lasts(sure and (twice or bare), place, self.at["evaluations"]):
            causes = ["adapters applied twice: merged into the base for the evaluation, and still added"] * twice
            causes += [
                "merged without scaling: adapters are merged for the evaluation without alpha over the rank"
            ] * bare
            yield self.finding(
                self._row[0][0], f"In evaluations an adapted layer adds {value:.3g} times what its adapter adds in the "
                f"training{'' if twice else f', whose scale is {scale:.4g}: the product of both factors as it is'}.",
                found=place[0], segment=place[2], confidence=0.95, causes=causes,
                evidence={"times": rounded(value), "scale": rounded(scale), "standing": True},
            )  # fmt: skip


RULES = (
    AdapterScale, AdapterAlone, AdaptersHeld, AdaptersLeftOff, AdaptersBaseMoves, AdaptersOffInEvaluation,
    AdaptersStrength,
)  # fmt: skip
