"""Preferences beside their reference: does it begin as the policy, and how strongly does it hold?

In:   the implicit rewards that trainers of preferences log; the watch's look at a second
      network of the policy's make.
Out:  findings of `ReferenceApart`, `ReferenceCopied`, `ReferenceTrained`, `ReferenceMode`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import is_first_step
from barograph.doctor.kernel.curve import between, rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.rl.preference import margins_of, rewards_of

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding

_PROOF = 0.95
_GRAPH = "=model/loss_ranks|=model/preference_compared"
_OTHER = "reference is another network: not a copy of the policy"


class ReferenceApart(Rule):
    """Before the first step, policy and reference give different log probabilities: implicit rewards are not 0.

    DPO's rewards are β times the difference of both, and both begin as one network. In the first row of a training that
    begins, one of the rewards is 1 or more in size, which dropout does not make of it, and the watch saw a second
    network of the policy's make run without gradients. Where that is a tenth of the weights' size or more away from the
    policy, it is another network; where it is no further away than the steps made it, four times what the first three
    looks show of each, log probabilities are computed in two ways; between the two, one of them was trained a little,
    which is an info finding. A loss that the configuration says has no reference (`simpo`, `orpo`, `cpo`,
    `reference_free`) has other rewards. Whatever is logged, it warns where the loss is logistic, of differences, the
    second network is asked about the same examples, and in the first three looks at the weights both are eight tenths
    of them or more apart, as networks that were drawn apart, with a twentieth of it or less between these looks: not by
    the policy's own steps.

    Where no rewards are logged, the loss says it: one that is logistic of differences, from which those of a reference
    are subtracted, with no other term and no dropout, begins at ln 2, or a multiple of it where losses are added. It
    warns where the first row is a fifth away from ln 2 or more, no whole multiple of it, and the second network, which
    is asked about the same examples, is no further away than the steps made it. A margin in the configuration, which is
    not 0, may be meant, and so may weights. Answers that are judged one by one, as with a thumb up or down, have a loss
    that is none of pairs, and weights of their two kinds: of these nothing is said by the loss.

    Where one of the two rewards of the first row is 0, to rounding, and the other is not, both are one network, and the
    reference was asked about other answers than the policy.

    A policy that goes on from an earlier stage beside the model from before it is meant, and nearer to it: it is left
    alone where the configuration says so (`iteration: 2`, `round`, a `ref_model` of its own), or where the first
    margin is at least half as large as the larger reward, as one that was learnt before.

    A first row of a later step, as where each fifth is logged, tells nothing of it.

    What to do: `reference = copy.deepcopy(policy)` before the first step; one function for both log probabilities.
    """

    name, family, kind, severity = "reference_apart", "rl", "config", "critical"
    needs = ("=model/other_apart",)
    about = "Before the first step, policy and reference give different log probabilities."
    thresholds: ClassVar = {
        "reward": (1.0, "of the first row, in size; ours"),
        "one": (0.001, "of the first row, in size, where the other reward is 0; ours"),
        "steps": (5.0, "from the beginning, at most; ours"),
        "apart": (0.1, "of the weights' size; ours"),
        "drawn": (0.8, "of the weights' size, of another network; those that were drawn apart are 1.4 away; ours"),
        "learnt": (0.5, "of the larger reward: a margin of an earlier stage; ours"),
        "looks": (3.0, "at the weights; ours"),
        "own": (4.0, "times what each step adds to the distance; ours"),
        "stays": (0.05, "of the distance, from look to look; ours"),
        "begins": (0.2, "of ln 2, that the first loss is away from it; ours"),
        "whole": (0.01, "of ln 2, that a whole multiple of it is off at most; ours"),
    }
    remedies = (
        "copy the policy before the first step: `reference = copy.deepcopy(policy).requires_grad_(False)`",
        "compute both log probabilities with one function, of the same tokens and with the same sum or mean",
    )

    def reset(self) -> None:
        self._done = self._over = False

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        apart = history.channel("model/other_apart")
        if apart is None or not apart.end or apart.rows(0, 1).step[0] > self.at["steps"]:
            return
        chosen, rejected = rewards_of(history)
        near = apart.rows(0, 1).value[0] < self.at["apart"] and apart.end < self.at["looks"]
        here = chosen is not None and rejected is not None and min(chosen.end, rejected.end)
        if not self._done and here and not (near and not history.facts.get("finished")):
            self._done = True
            assert chosen is not None
            assert rejected is not None
            yield from self._rewarded(history, chosen, rejected, apart)
        if not self._over and apart.end >= self.at["looks"]:
            self._over = True
            yield from self._weighed(history, apart)
            if chosen is None and rejected is None:
                yield from self._by_loss(history, apart)

    def _by_loss(self, history: RunHistory, apart: Channel) -> Iterator[Finding]:
        """By the loss of the first row, where policy and reference are one network."""
        loss, away = history.role("loss"), apart.rows(0, int(self.at["looks"]))
        first = loss.rows(0, 1) if loss is not None and loss.end else None
        if first is None or not is_first_step(history, int(first.step[0])) or first.segment[0] != away.segment[0]:
            return
        place = int(away.step[-1]), int(away.time[-1]), int(away.segment[-1])
        names = ("preference_averaged", "loss_terms", "dropout", "other_same_input")
        averaged, terms, dropout, same = (watched(history, name, place) for name in names)
        steps = away.step - away.step[0]
        each = float((away.value[-1] - away.value[0]) / max(1, steps[-1]))
        copied = away.value[0] <= self.at["own"] * max(each * max(1, int(away.step[0])), _ROUNDING)
        margin = any(OWN_MARGIN.search(name.lower()) and isinstance(value, (int, float)) and value
                     for name, value in history.options.found.items())  # fmt: skip
        paired = watched(history, "loss_ranks", place) != 0
        alone = averaged >= 0 and terms <= 2 and dropout == 0 and same == 1 and paired
        times = float(first.value[0]) / math.log(2)
        near = max(1, round(times)) if math.isfinite(times) else times
        off = abs(times - 1) >= self.at["begins"] and abs(times - near) > self.at["whole"]
        meant = margin or weighs_rows(history) or has_no_reference(history)
        if copied and alone and off and math.isfinite(times) and not meant:
            yield self.finding(
                int(first.step[0]), f"The loss begins at {first.value[0]:.4g}, where policy and reference are one "
                f"network, so that it should be ln 2, {math.log(2):.4g}.", found=place[0], severity="warning",
                segment=int(first.segment[0]), confidence=0.9,
                evidence={"loss": rounded(float(first.value[0])), "standing": True},
                causes=["log probabilities differ: those of policy and reference are computed in two ways",
                        "wrong reduction: one is a sum over an answer's tokens, the other a mean"],
            )  # fmt: skip

    def _rewarded(self, history: RunHistory, chosen: Channel, rejected: Channel, apart: Channel) -> Iterator[Finding]:
        """By the rewards of the first row."""
        first, away = chosen.rows(0, 1), apart.rows(0, int(self.at["looks"]))
        if first.step[0] != rejected.rows(0, 1).step[0]:
            return  # a batch may have answers of one side alone, where they are judged one by one
        good, bad = float(first.value[0]), float(rejected.rows(0, 1).value[0])
        reward, distance = max(abs(good), abs(bad)), float(away.value[0])
        if min(abs(good), abs(bad)) <= _ROUNDING < self.at["one"] <= reward < math.inf and not has_no_reference(
            history
        ):
            yield from self._of_others("rejected" if abs(bad) > abs(good) else "chosen", reward, first, away)
            return
        if distance < self.at["drawn"] and (goes_on(history) or good - bad >= self.at["learnt"] * reward):
            return
        begins = is_first_step(history, int(first.step[0]))
        if not begins or not self.at["reward"] <= reward < math.inf or has_no_reference(history):
            return
        self._over = True
        other = distance >= self.at["apart"]
        steps = away.step.astype(float)
        made = 0.0 if other else (away.value[-1] - distance) / max(1.0, steps[-1] - steps[0]) * max(1.0, steps[0])
        trained = not other and distance > self.at["own"] * max(made, _ROUNDING) and len(steps) > 1
        differ = ": their weights differ" if other or trained else ", and their weights are the same"
        yield self.finding(
            int(first.step[0]), f"In the first row an implicit reward is {reward:.3g} in size, where policy and "
            f"reference should give 0{differ}.", severity="info" if trained else "critical",
            found=int(away.step[0 if other else -1]), segment=int(first.segment[0]),
            confidence=0.3 if trained else _PROOF, evidence={"reward": rounded(reward), "standing": True},
            causes=[_OTHER if other or trained else
                    "log probabilities differ: those of policy and reference are computed in two ways"],
        )  # fmt: skip

    def _of_others(self, which: str, reward: float, first: ChannelRows, away: ChannelRows) -> Iterator[Finding]:
        """Policy and reference are one network by the reward of the other answers, which is 0."""
        self._over = True
        yield self.finding(
            int(first.step[0]), f"In the first row the implicit reward of {which} answers is {reward:.3g} in size, and "
            "that of the others is 0, as both should be: the reference's log probabilities of them are of other texts.",
            found=int(away.step[0]), segment=int(first.segment[0]), confidence=_PROOF,
            evidence={"reward": rounded(reward), "standing": True},
            causes=[f"loss on the wrong tensor: the reference is asked about others than the {which} answers"],
            remedies=[f"give the reference the same {which} tokens and mask as the policy, and print both of one pair"],
        )  # fmt: skip

    def _weighed(self, history: RunHistory, apart: Channel) -> Iterator[Finding]:
        """By the weights of both, where the policy can't have gone so far in the steps that it has made."""
        rows = apart.rows(0, int(self.at["looks"]))
        step, time, segment = int(rows.step[-1]), int(rows.time[-1]), int(rows.segment[-1])
        moved = history.channel("model/other_moved")
        still = moved is not None and not between(moved, 0, step + 1, segment).any()
        far = float(rows.value.min()) >= self.at["drawn"] and numpy.ptp(rows.value) <= self.at["stays"] * rows.value[0]
        if still and far and step <= 4 * self.at["steps"] and prefers(history, (step, time, segment)):
            yield self.finding(
                int(rows.step[0]), f"The reference's weights are {rows.value[0]:.2g} of their size away from the "
                "policy's in the first steps, and both should begin as one.", found=step, segment=segment,
                confidence=_PROOF, severity="warning", causes=[_OTHER],
                evidence={"apart": rounded(float(rows.value[0])), "standing": True},
            )  # fmt: skip


def has_no_reference(history: RunHistory) -> bool:
    """Whether the configuration says that the loss has no reference."""
    return any(
        (value is True and plain == "reference_free")
        or (isinstance(value, str) and _FREE.fullmatch(value.lower()) and _LOSS.search(plain))
        for name, value in history.options.found.items()
        if (plain := name.rpartition(".")[2].lower())
    )


def weighs_rows(history: RunHistory) -> bool:
    """Whether the configuration has weights of pairs, or of the two kinds of answers, that are not 1."""
    return any(
        _WEIGHTS.search(name.lower()) and value not in (None, False, 0, 1, "", "none")
        for name, value in history.options.found.items()
    )


def reference_moved(history: RunHistory, low: int, high: int, segment: int) -> bool:
    """Whether a preference's reference was another one at step `high` than at `low`: losses are of different things."""
    seen = (history.channel(f"model/{name}") for name in ("loss_ranks", "preference_compared"))
    if margins_of(history) is None and all(one is None for one in seen):
        return False
    moved = history.channel("model/other_moved")
    return moved is not None and bool((between(moved, low, high + 1, segment) > 0).any())


def goes_on(history: RunHistory) -> bool:
    """Whether the configuration says that the policy goes on from a stage before, or names another model as the
    reference."""
    found = history.options.found
    return any(
        (_ROUND.fullmatch(plain) and isinstance(value, (int, float)) and value >= 1)
        or (_APART.fullmatch(plain) and isinstance(value, str) and value.lower() not in _NO_OTHER
            and {other.rpartition(".")[2].lower() for other, its in found.items() if its == value} == {plain})
        for name, value in found.items()
        if (plain := name.rpartition(".")[2].lower())
    )  # fmt: skip


def prefers(history: RunHistory, place: Place) -> bool:
    """Whether the loss is logistic, of differences, or compares log probabilities of answers by squares or hinges, as
    its graph says, and the other network is asked about the very examples that are trained on."""
    return (
        (watched(history, "loss_ranks", place) >= 0 or watched(history, "preference_compared", place) >= 1)
        and watched(history, "other_same_input", place) == 1
        and history.role("reward") is None
    )


class ReferenceCopied(WatchRule):
    """The reference of a preference is copied from the policy at each step.

    The loss is logistic, of differences of log probabilities, or compares these by squares or hinges, as IPO does, and
    a second network of the policy's make is asked about the same examples without gradients. In eight looks in a row it
    is exactly the policy, though both have moved: the margin is 0 but for dropout, and a logistic loss stays at ln 2,
    IPO's at the square of 1 / 2β. One that is copied now and then, or follows slowly, is
    apart in between.

    What to do: load the reference once, before the training.
    """

    name, family, kind, severity = "reference_copied", "rl", "rl", "critical"
    series = "model/other_moved"
    needs = ("=model/other_moved", "=model/other_apart", _GRAPH)
    least = 8
    about = "The reference of a preference is copied from the policy at each step."
    thresholds: ClassVar = {"looks": (8.0, "in a row; ours")}
    causes = ("reference is the policy: it is copied from it at each step, so that the margin is 0",)
    remedies = ("load the reference once: `copy.deepcopy(policy).requires_grad_(False)`, before the first step",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        holds = value > 0 and watched(history, "other_apart", place) == 0
        if self.lasts(holds, place, self.at["looks"]) and prefers(history, place):
            yield self.finding(
                self._row[0][0], "The reference has moved in each of eight looks, and is exactly the policy in each of "
                "them.", found=place[0], segment=place[2], confidence=_PROOF, evidence={"standing": True},
            )  # fmt: skip


class ReferenceTrained(WatchRule):
    """The reference of a preference gets gradients.

    The loss is logistic, of differences of log probabilities, or compares these by squares, as IPO does, or by hinges,
    and a second network of the policy's make, which is asked about the same examples, has gradients when the optimizer
    steps: it is run without `no_grad`, and is trained the other way where its parameters are in an optimizer.

    What to do: `torch.no_grad()` around the reference's passes, and `requires_grad_(False)` for its parameters.
    """

    name, family, kind, severity = "reference_trained", "rl", "rl", "warning"
    series = "model/other_gradient"
    needs = ("=model/other_gradient", _GRAPH)
    least = 1
    about = "The reference of a preference gets gradients."
    causes = ("reference not frozen: it gets gradients, as the policy does",)
    remedies = ("run the reference under `torch.no_grad()`, and set `reference.requires_grad_(False)`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if value == 1 and prefers(history, place) and self.first(place[2]):
            yield self.finding(
                0, "A second network of the policy's make is asked about the same examples and gets gradients.",
                found=place[0], segment=place[2], confidence=_PROOF, evidence={"standing": True},
            )  # fmt: skip


class ReferenceMode(WatchRule):
    """The reference of a preference runs in training mode: dropout changes its log probabilities at each call.

    The loss is logistic, of differences of log probabilities, or compares these by squares, as IPO does, or by hinges,
    and in three looks in a row a second network of the policy's make, which is asked about the same examples without
    gradients, has dropout and is in training mode.

    What to do: `reference.eval()`.
    """

    name, family, kind, severity = "reference_mode", "rl", "rl", "warning"
    series = "model/other_training"
    needs = ("=model/other_training", _GRAPH)
    least = 3
    about = "The reference of a preference runs in training mode."
    thresholds: ClassVar = {"looks": (3.0, "in a row; ours")}
    causes = ("reference in training mode: dropout changes its log probabilities",)
    remedies = ("`reference.eval()`, once, before the training",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.lasts(value == 1 and prefers(history, place), place, self.at["looks"]):
            yield self.finding(
                0, "The reference is called in training mode, with dropout.", found=place[0], segment=place[2],
                confidence=_PROOF, evidence={"standing": True},
            )  # fmt: skip


_ROUND = expression(
    r"(?:(?:dpo|current|outer|train|training)_)?(?:iteration|iter|round)(?:_id|_index|_number)?|(?:dpo|training)_stage"
)
_APART = expression(r"ref(?:erence)?_(?:model|policy|checkpoint|ckpt|path|init)\w*")
_FREE = expression(r"(?:alpha_?)?(?:simpo|orpo|cpo|slic|slic_hf)(?:_\w+)?")
_LOSS = expression(r"loss|method|algo|objective|trainer|alignment|mode$|variant|recipe|task|tuning|preference")
_WEIGHTS = expression(r"(?:^|[._])(?:weights?|weighting|weighted|reweight\w*)$")
_ROUNDING = 1e-6  # of the weights' size
_NO_OTHER = frozenset({"", "none", "null", "copy", "policy", "self"})
OWN_MARGIN = expression(r"(?:^|[._])(?:margin|gamma|offset|delta)(?:$|_)")

RULES = (ReferenceApart, ReferenceCopied, ReferenceTrained, ReferenceMode)
