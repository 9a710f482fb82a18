"""A policy's objective: what its graph and its logged parts prove.

In:   figures of the watch; the loss, and its parts where they are logged beside it; reward and entropy.
Out:  findings of `PolicyObjective`, `PolicyTerms`, `LossParts`, `PolicyReversed`, `ExplorationStays`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.doctor.kernel.cursor import named, newest, usual
from barograph.doctor.kernel.curve import EPSILON
from barograph.doctor.kernel.sums import weights_of
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.rl.policy import PolicyRule, RowBlock

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_PROOF = 0.95
PARTS = {
    "policy": re.compile(r"(?i)(?:.*[/_.])?(?:policy|pg|pi|actor|surrogate|clip)_?loss"),
    "value": re.compile(r"(?i)(?:.*[/_.])?(?:value|vf?|critic|baseline)(?:_?(?:function|fn))?_?loss"),
    "entropy": re.compile(r"(?i)(?:.*[/_.])?(?:policy_|mean_)?entropy"),
}


class RewardedRule(WatchRule):
    """A rule for the rows of the loss of a training with a reward."""

    def channel(self, history: RunHistory) -> Channel | None:
        loss = history.role("loss")
        return loss if history.role("reward") is not None else None


class PolicyObjective(RewardedRule):
    """What the graph of a clipped policy objective proves.

    Of the lesser of two products, of the ratio and of the clipped ratio with the advantage, the graph tells how far the
    ratio is let (5 or more holds nothing), whether old and new log probability are one tensor, so that the ratio is 1
    and has no gradient, and whether the lesser is minimised, where it is to be maximised; the last while no reward
    rises.

    What to do: `ratio = (new - old.detach()).exp()`; `-torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()`.
    """

    name, family, kind, severity = "policy_objective", "rl", "config", "critical"
    proves = "training"
    needs = ("=model/ratio_clip|=model/ratio_constant|=model/policy_reversed", "loss", "reward")
    least = 20
    about = "The clipped policy objective can't be meant so."
    thresholds: ClassVar = {"rows": (20.0, "ours"), "clip": (5.0, "of the ratio, beside 1; usual are 0.1 to 0.3")}
    remedies = ("`ratio = (new - old.detach()).exp()`, `-torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()`",)

    def begin(self) -> None:
        self._rows = 0

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._rows += 1
        if self._rows < self.at["rows"] or self._rows % 10:
            return
        step = place[0] - 1  # whose records are complete
        constant, clip, sign = (
            usual(history.channel(f"model/{name}"), step, *place[1:])
            for name in ("ratio_constant", "ratio_clip", "policy_reversed")
        )
        if constant == 1 and self.first("constant", place[2]):
            yield self.finding(
                0, "The policy's ratio is that of a tensor with itself: it is 1, and has no gradient.", found=place[0],
                segment=place[2], confidence=_PROOF, key="constant",
                causes=["old probabilities not stored: the old log probability is the new one, and not detached"],
            )  # fmt: skip
        if clip >= self.at["clip"] and self.first("clip", place[2]):
            yield self.finding(
                0, f"The policy's ratio is clipped at {1 + clip:.4g}, which holds nothing.", found=place[0],
                segment=place[2], confidence=_PROOF, key="clip", severity="warning", evidence={"clip": clip},
                causes=["clip range too wide: nothing holds the policy near the one that sampled"],
                remedies=["clip the ratio at 0.1 to 0.3 beside 1"],
            )  # fmt: skip
        if sign == 1 and self._rows >= 10 * self.at["rows"] and self.first("sign", place[2]):
            reward = history.role("reward")
            assert reward is not None
            rewards = newest(reward, step, *place[1:], self._rows)
            rewards = rewards[numpy.isfinite(rewards)]
            part = len(rewards) // 4
            if part >= 8 and rewards[-part:].mean() <= rewards[:part].mean():
                yield self.finding(
                    0, "The lesser of ratio and clipped ratio times advantage is minimised, and the reward does not "
                    "rise.", found=place[0], segment=place[2], confidence=_PROOF, key="sign",
                    causes=["sign reversed: the policy's objective is minimised, not maximised"],
                )  # fmt: skip


class PolicyTerms(WatchRule):
    """What the graph proves of the products that a policy's loss is made of.

    Where a reward is logged: log probabilities of n actions are multiplied with the advantages of all n, in n × n
    products. A clipped ratio is the exponential of a difference of probabilities, where it takes that of their
    logarithms; or it is such a difference itself, which lies around 0 and is clipped around 1. The greater of the two
    products is maximised, so that nothing is clipped where it matters. Where nothing is clipped, advantages are
    multiplied with the probabilities of the chosen actions, or with scores that no softmax has seen, not with log
    probabilities. An error is of the greatest value of each row, not of that of the action that was done.

    What to do: `log = Categorical(logits=scores).log_prob(actions)`; `ratio = (log - old.detach()).exp()`;
    `-torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()`, all of shape (n,).
    """

    name, family, kind, severity = "policy_terms", "rl", "config", "critical"
    least = 20
    needs = (
        "reward",
        "=model/policy_crossed|=model/likelihood|=model/ratio_of_chances|=model/ratio_not_raised|=model/ratio_greater"
        "|=model/greatest_trained",
    )
    about = "The products of a policy's loss can't be meant so."
    proofs: ClassVar = {
        "policy_crossed": (
            "Each of {value:.0f} actions is multiplied with the advantages of all of them.",
            "advantages broadcast: the shapes of log probabilities and advantages differ",
            "give both one shape: `.squeeze(-1)` the one that has (n, 1)",
        ),
        "ratio_of_chances": (
            "The policy's ratio is the exponential of a difference of probabilities, not of their logarithms.",
            "logarithm missing: probabilities where log probabilities are meant",
            "take `Categorical(logits=scores).log_prob(actions)`",
        ),
        "ratio_not_raised": (
            "The policy's ratio is a difference of log probabilities, which is clipped around 1, and lies around 0.",
            "ratio not exponentiated: it is the difference of log probabilities itself",
            "`ratio = (log - old.detach()).exp()`",
        ),
        "ratio_greater": (
            "The greater of ratio and clipped ratio times advantage is maximised: nothing holds the policy.",
            "clipping reversed: the greater of the two products is taken, not the lesser",
            "`-torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()`",
        ),
        "likelihood": (
            "Advantages are multiplied with {what} of the chosen actions, not with their log probabilities.",
            "logarithm missing: the policy's gradient is that of log probabilities",
            "take `Categorical(logits=scores).log_prob(actions)`",
        ),
        "greatest_trained": (
            "The error is that of the greatest value of each row, not of the value of the action that was done.",
            "wrong action: the value of the best action is trained, not that of the one that was done",
            "`values.gather(1, actions[:, None])[:, 0]`",
        ),
    }
    thresholds: ClassVar = {"rows": (20.0, "ours")}
    causes = tuple(case[1] for case in proofs.values())
    remedies = tuple(case[2] for case in proofs.values())

    def channel(self, history: RunHistory) -> Channel | None:
        return history.role("reward")

    def begin(self) -> None:
        self._rows = 0

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._rows += 1
        if self._rows < self.at["rows"] or self._rows % 10:
            return
        before = (place[0] - 1, *place[1:])  # whose records are complete
        for name, (message, cause, remedy) in self.proofs.items():
            said = watched(history, name, before)
            if said > 0 and self.first(place[2], name):
                what = "probabilities" if said == 1 else "scores, which no softmax has seen,"
                yield self.finding(
                    0, message.format(value=said, what=what), found=place[0], segment=place[2], confidence=_PROOF,
                    key=name, causes=[cause], remedies=[remedy], evidence={"standing": True},
                )  # fmt: skip


class LossParts(RewardedRule):
    """The weights of a loss's parts, from its logged numbers.

    Loss, policy loss, value loss and entropy are logged: where the loss is a weighted sum of the others in all of 64
    rows, to a thousandth of how it varies, the weights are known. An entropy that is added is minimised: the bonus has
    the wrong sign. One that is taken away with a weight of 0.3 or more, while it stays within 3% of where it began, is
    all that is optimised: in 256 rows, or in 64 where what is taken away is a hundred times the policy's loss in size.
    A value loss with a weight of 20 or more leaves nothing to the policy.

    What to do: `loss = policy_loss + 0.5 * value_loss - 0.01 * entropy`.
    """

    name, family, kind, severity = "loss_parts", "rl", "config", "warning"
    needs = ("loss", "reward", "entropy")
    least = 64
    about = "A part of the policy's loss has the wrong sign or weight."
    thresholds: ClassVar = {
        "rows": (64.0, "ours"),
        "exact": (1e-3, "of the loss's deviation; ours"),
        "entropy": (0.3, "ours; usual are 0 to 0.05"),
        "value": (20.0, "ours; usual are 0.25 to 1"),
        "stays": (0.97, "of the first entropy; ours"),
        "drowned": (100.0, "times the policy's loss, in size: the entropy's part of the loss; ours"),
    }
    remedies = ("`loss = policy_loss + 0.5 * value_loss - 0.01 * entropy`",)

    def begin(self) -> None:
        self._rows = 0
        self._first = math.nan

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._rows += 1
        if self._rows <= self.at["rows"] or self._rows % 64 != 1:
            return
        place = (place[0] - 1, *place[1:])  # a step whose records are complete
        found = self._weights(history, place)
        if found is None:
            return
        weights, entropies = found
        entropy, worth = weights.get("entropy", 0.0), weights.get("value", 0.0)
        self._first = float(entropies[:8].mean()) if math.isnan(self._first) else self._first
        about = {"found": place[0], "segment": place[2], "confidence": _PROOF}
        if entropy > 1e-4 and (entropies >= 0).all() and self.first("sign", place[2]):
            yield self.finding(
                0, f"The loss is the sum of its parts with the entropy added {entropy:.3g} times: it is minimised.",
                key="sign", causes=["entropy's sign reversed: the entropy is minimised, not rewarded"], **about,
            )  # fmt: skip
        drowned = -entropy * float(entropies.mean()) >= self.at["drowned"] * self._policy(history, place)
        long = drowned or self._rows >= 4 * self.at["rows"]
        stays = long and entropies.min() >= self.at["stays"] * self._first > 0
        if entropy <= -self.at["entropy"] and stays and self.first("entropy", place[2]):
            yield self.finding(
                0, f"The entropy is taken from the loss {-entropy:.3g} times, and stays at "
                f"{entropies[-8:].mean():.3g}.",
                key="entropy", causes=["entropy weight too high: the policy is held at random"], **about,
            )  # fmt: skip
        if worth >= self.at["value"] and self.first("value", place[2]):
            yield self.finding(
                0, f"The value loss is in the loss {worth:.4g} times.", key="value",
                causes=["value weight too high: the critic's gradient leaves nothing to the policy"], **about,
            )  # fmt: skip

    def _policy(self, history: RunHistory, place: Place) -> float:
        """The policy's loss of the last rows, in size; infinite where it is not known."""
        values = newest(channel, *place, 64) if (channel := named(history, PARTS["policy"])) else numpy.zeros(0)
        values = numpy.abs(values[numpy.isfinite(values)])
        return float(numpy.median(values)) if len(values) else math.inf

    def _weights(self, history: RunHistory, place: Place) -> tuple[dict[str, float], Any] | None:
        """Weights of the loss's parts and the entropies of the last rows; None where it is no such sum."""
        loss, count = history.role("loss"), int(self.at["rows"])
        parts: dict[str, Channel] = {}
        for name in history.channels:
            part = next((part for part, words in PARTS.items() if words.fullmatch(name)), None)
            if part is not None and part not in parts and (channel := history.channel(name)) is not None:
                parts[part] = channel
        if loss is None or "entropy" not in parts or len(parts) < 2:
            return None
        target = newest(loss, *place, count)
        columns = numpy.stack([newest(channel, *place, count) for channel in parts.values()], axis=1)
        weights = weights_of(columns, target, self.at["exact"])
        if weights is None:
            return None
        known = dict(zip(parts, weights, strict=True))
        return {name: float(weight) for name, weight in known.items()}, columns[:, list(parts).index("entropy")]


class PolicyReversed(PolicyRule):
    """The policy becomes surer of what earns less: the sign of its objective, of the advantage or of the reward is
    reversed.

    Since the start the entropy has fallen by a quarter, and the reward too, by three robust standard deviations of
    single rows: in the last eight of twelve or more blocks of 8 rows it was below that of the first, in none above, and
    it does not rise again. A first block that is one number, as before any episode is over, is left out.

    What to do: look at one action with a high reward: its probability must rise.
    """

    name, severity = "policy_reversed", "critical"
    proves = "training"
    series = "reward"
    needs = ("reward", "entropy")
    least = 96
    about = "The policy becomes surer of what earns less."
    thresholds: ClassVar = {"entropy": (0.75, "of that of the start; ours"), "spreads": (3.0, "ours")}
    causes = ("sign reversed: of the policy's objective, the advantage or the reward",)
    remedies = ("look at one action that earned more than the others: the step must make it more probable",)

    def block(self, history: RunHistory, blocks: list[RowBlock]) -> Iterator[Finding]:
        entropy = history.role("entropy")
        if len(blocks) < 12 or entropy is None or not self.first_time(blocks[-1].segment):
            return
        start, last = blocks[0], blocks[-1]
        spread = max(float(numpy.median([block.spread for block in blocks])), 1e-9)
        fell = all(block.level < start.level - self.at["spreads"] * spread for block in blocks[-8:])
        if not fell or any(block.level > start.level + spread for block in blocks):
            return
        rises = last.level > min(block.level for block in blocks[-8:]) + self.at["spreads"] * spread
        if rises or start.low == start.high:  # it learns; or no episode was over yet
            return
        rows = entropy.rows(0, 8)
        before = float(numpy.median(rows.value)) if len(rows) else math.nan
        now = usual(entropy, last.last, last.time, last.segment, 8)
        if not 0 <= now < self.at["entropy"] * before:
            return
        self._said.add(last.segment)
        yield self.finding(
            start.step, f"The reward fell from {start.level:.4g} to {last.level:.4g} since the start, and the entropy "
            f"from {before:.3g} to {now:.3g}: the policy becomes surer of what earns less.",
            found=last.last, segment=last.segment, confidence=_PROOF,
        )  # fmt: skip

    def reset(self) -> None:
        super().reset()
        self._said: set[int] = set()

    def first_time(self, segment: int) -> bool:
        """Whether nothing was said of a segment."""
        return segment not in self._said


class ExplorationStays(RewardedRule):
    """Every action is drawn at random, and stays so: the exploration rate is never lowered.

    A logged epsilon is 0.9 or more in each of 256 rows, and the last is not below the first. Of a run that has ended it
    takes all of its rows, 128 or more.

    What to do: lower it over the first tenth to half of the training, to 0.05 or so.
    """

    name, family, kind, severity = "exploration_stays", "rl", "rl", "warning"
    needs = ("loss", "reward")
    least = 128
    about = "The exploration rate is never lowered."
    thresholds: ClassVar = {
        "rows": (256.0, "ours"),
        "ended": (128.0, "rows of a run that has ended; ours"),
        "rate": (0.9, "ours"),
    }
    causes = ("exploration never lowered: actions stay random",)
    remedies = ("lower epsilon over the first tenth to half of the training, to 0.05 or so",)

    def reset(self) -> None:
        super().reset()
        self.begin()

    def begin(self) -> None:
        self._rows = 0
        self._place: Place | None = None

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from super().examine(history)
        if history.facts.get("finished") and self._place is not None and self._rows >= self.at["ended"]:
            yield from self._judge(history, self._place, self._rows)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._rows, self._place = self._rows + 1, place
        if self._rows >= self.at["rows"] and not self._rows % 64:
            yield from self._judge(history, (place[0] - 1, *place[1:]), int(self.at["rows"]) - 1)

    def _judge(self, history: RunHistory, place: Place, count: int) -> Iterator[Finding]:
        """Whether exploration was high in this number of rows up to a place."""
        for name in history.channels:
            if not EPSILON.fullmatch(name) or (channel := history.channel(name)) is None:
                continue
            values = newest(channel, *place, count)
            high = numpy.isfinite(values).all() and values.min() >= self.at["rate"] and values.max() <= 1
            if high and values[-1] >= values[0] and self.first(place[2]):
                yield self.finding(
                    0, f"`{name}` is {values[-1]:.3g} up to step {place[0]}: actions are drawn at random.",
                    found=place[0], segment=place[2], confidence=_PROOF,
                )  # fmt: skip


RULES = (PolicyObjective, PolicyTerms, LossParts, PolicyReversed, ExplorationStays)
