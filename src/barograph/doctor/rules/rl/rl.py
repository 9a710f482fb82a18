"""Reinforcement learning: reward, KL, entropy, completions.

In:   series by role: reward, KL, entropy, clip ratio, and what TRL logs beside them.
Out:  findings of `KlBlowUp`, `EntropyCollapse`, `ZeroAdvantage`, `PolicyClipping`, `SamplingMismatch`,
      `ClippedCompletions`; those of `rewards.py`, `objective.py` and `preference.py`.

Rows are looked at in blocks of 8, since single batches of rewards say little.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.channels import Channel, RunHistory
from barograph.doctor.kernel.cursor import named
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.wording import Case
from barograph.doctor.rules.rl import objective, preference
from barograph.doctor.rules.rl.policy import BLOCK, PolicyRule, RowBlock, began_with, rewarded
from barograph.doctor.rules.rl.rewards import RewardCollapse, RewardConstant


class KlBlowUp(PolicyRule):
    """The policy runs away from its reference.

    Two blocks of 8 rows have a KL of more than 5 times the highest of the blocks before (8 blocks at least, or all) and
    above 0.1; above 10 it is critical. A single row of 50 times the median of the blocks before, four at least, is a
    warning, where an eighth of these at most had a row of a fifth of it; three in a row above 5 times the median, the
    last of them so high, are the policy running away. A KL that grows slowly while the reward rises is what training
    does.
    """

    name, severity = "kl_blow_up", "critical"
    series = "kl"
    needs = ("kl", "reward")
    least = 48
    about = "The KL to the reference policy jumps."
    sources = ("TRL: kl",)
    thresholds: ClassVar = {
        "times": (5.0, "ours"),
        "least": (0.1, "nats; ours"),
        "critical": (10.0, "nats; ours"),
        "row": (50.0, "times the median, of a single row; ours"),
        "near": (0.125, "of the blocks before, with a row of a fifth of it; ours"),
    }

    cases: ClassVar = {
        "all": Case(
            "The KL rose from {before:.3g} to {kl:.3g} since step {step}",
            (
                "reward hacking or KL blow-up: nothing holds the policy near its reference",
                "learning rate too high",
            ),
            ("Raise the KL coefficient, lower the learning rate, go back to before step {step}.",),
        ),
        "row": Case(
            "The KL was {kl:.3g} at step {step}, where its median is {before:.3g}",
            ("bad batch: its log probabilities or answers are far from the others'", "learning rate too high"),
            ("Look at the batch of step {step}; clip gradients, or lower the learning rate.",),
        ),
    }

    def block(self, history: RunHistory, blocks: list[RowBlock]) -> Iterator[Finding]:
        usual = sorted(block.level for block in blocks[:-1])[len(blocks) // 2 - 1] if len(blocks) > 4 else math.nan
        usual = max(usual, _LEAST) if usual == usual else usual  # an estimate from samples may be 0 or below
        near = sum(self.at["times"] * block.high >= blocks[-1].high for block in blocks[:-1])
        rare = near <= self.at["near"] * len(blocks)
        if rare and blocks[-1].high > max(self.at["row"] * usual, self.at["least"]) and self._told is None:
            row, high = blocks[-1].peak, blocks[-1].high
            since = self._since(history, blocks[-1], self.at["times"] * usual)
            if since is not None:
                severity = "critical" if high > self.at["critical"] else "warning"
                yield from self.tell(history, since, blocks[-1], severity, before=usual, kl=high)
                return
            yield from self.tell(history, row, blocks[-1], "warning", "row", before=usual, kl=high)
        if len(blocks) < 6:
            return
        # against the blocks just before, and against those of some time ago
        for known, least in ((blocks[-10:-2], 1.0), (blocks[-6:-2], 1.0), (blocks[-18:-10], 2.0)):
            if len(known) < 4 or (least > 1 and len(blocks) < 24):
                continue
            old = max(abs(item.level) for item in known)
            now = min(abs(block.level) for block in blocks[-2:])
            if now > max(self.at["times"] * max(old, _LEAST), least * self.at["least"]):
                bound = old * 1.5
                step = self.begin(blocks, bound)
                first, best, last, spread = rewarded(history, blocks[-1])
                better = last >= best - 2 * spread and last > first + 2 * spread
                severity = "critical" if now > self.at["critical"] else "info" if better else "warning"
                yield from self.tell(history, step, blocks[-1], severity, before=old, kl=blocks[-1].level)
                return

    def _since(self, history: RunHistory, block: RowBlock, bound: float) -> int | None:
        """The first of three rows or more, one after the other up to the block's end, whose KL is above a bound."""
        channel = history.role("kl")
        assert channel is not None
        rows = channel.rows()
        here = (rows.segment == block.segment) & (rows.step <= block.last) & (rows.time <= block.time)
        value, step = rows.value[here], rows.step[here]
        low = numpy.flatnonzero(~(value > bound))
        first = int(low[-1]) + 1 if len(low) else 0
        return int(step[first]) if len(value) - first >= _IN_A_ROW else None


_IN_A_ROW = 3  # rows; one may be an odd batch
_LEAST = 1e-3  # nats: less is noise of samples


_NUMBERS = expression(
    r"(?i)(?:(?:train|policy|actor|losses|charts)[/_.])?std"
    r"|(?:.*[/_.])?(?:(?:action|policy)_std|log_?std|ent_coef|log_alpha|alpha_loss)"
)


class EntropyCollapse(PolicyRule):
    """The policy gives nearly the same answer every time.

    Four blocks of 8 rows have less than a tenth of the entropy of the first: a warning if the reward is not better than
    at the start, or has fallen from its best; with a reward that rose the task may be solved: an info finding, once, at
    that time. Four blocks below a hundredth are a warning even so, as the policy no longer explores; but not where the
    reward is at its best and hardly varies, by a fiftieth of its rise (since its first two rows, where a small task was
    learnt within a block): the task is solved for good. The step is the block in which the fall began, each block lower
    than the last by a seventh. The entropy of actions that are numbers may be 0 and below in a policy that is well:
    where one of its last rows is below 0, or the deviation of the actions
    or the coefficient of the entropy (`std`, `ent_coef`) is logged, nothing is said.
    """

    name, severity = "entropy_collapse", "warning"
    series = "entropy"
    needs = ("entropy", "reward")
    least = 40
    about = "The policy's entropy has collapsed."
    sources = ("DAPO: entropy against reward",)
    thresholds: ClassVar = {
        "share": (0.1, "of the first block; ours"),
        "gone": (0.01, "of the first block; ours"),
        "steady": (0.02, "of the rise of the reward, that single rows differ by; ours"),
    }

    cases: ClassVar = {
        "all": Case(
            "The entropy fell from {start:.3g} to {entropy:.3g}, since step {step} at the latest",
            (
                "reward hacking or KL blow-up: the policy collapsed to one answer",
                "learning rate too high",
            ),
            ("Add an entropy bonus or a KL term, or raise the sampling temperature.",),
        )
    }

    def block(self, history: RunHistory, blocks: list[RowBlock]) -> Iterator[Finding]:
        start = blocks[0].level
        if len(blocks) < 5 or start <= 0 or any(block.level > self.at["share"] * start for block in blocks[-4:]):
            return
        if any(block.low < 0 for block in blocks[-4:]) or named(history, _NUMBERS) is not None:
            return
        gone = all(block.level <= self.at["gone"] * start for block in blocks[-4:])
        if self._told is not None and not gone:
            return
        first, best, last, spread = rewarded(history, blocks[-1])
        better = last > first + 2 * spread and last >= best - max(2 * spread, 0.1 * (best - first))
        # a reward that hardly varies any more and is at its best: nothing is left to explore
        rise = best - min(first, began_with(history, blocks[-1]))
        gone = gone and not (better and spread <= self.at["steady"] * rise)
        if gone:
            self._told = None if self._told is not None and self._told.severity == "info" else self._told
        at = len(blocks) - 4
        while at > 0 and blocks[at].level < blocks[at - 1].level / 1.15:
            at -= 1
        step = blocks[at + 1].step if blocks[at + 1].level < blocks[at].level / 1.15 else blocks[at].step
        yield from self.tell(
            history,
            step,
            blocks[-1],
            "info" if better and not gone else "warning",
            start=start,
            entropy=blocks[-1].level,
        )


class ZeroAdvantage(PolicyRule):
    """In most groups all completions earn the same, so there is nothing to learn from.

    `frac_reward_zero_std` is above 0.8 in four blocks of 8 rows, or is 1 in each row of a shorter run, 8 at least. With
    a reward at its best the task is solved: an info finding.
    """

    name, severity = "zero_advantage", "warning"
    series = "equal_rewards"
    needs = ("equal_rewards", "reward")
    least = 8
    about = "Most groups of completions have equal rewards."
    sources = ("TRL: frac_reward_zero_std",)
    thresholds: ClassVar = {"share": (0.8, "ours")}

    cases: ClassVar = {
        "all": Case(
            "{share:.0%} of the groups have equal rewards since step {step}",
            (
                "loss masked out: with equal rewards the advantage is zero",
                "reward hacking or KL blow-up: the policy collapsed to one answer",
            ),
            ("Use harder or easier prompts, larger groups, or a higher temperature.",),
        )
    }

    def block(self, history: RunHistory, blocks: list[RowBlock]) -> Iterator[Finding]:
        if not self.held(blocks, 4, self.at["share"]):
            return
        first, best, last, spread = rewarded(history, blocks[-1])
        solved = last > first and last >= best - max(2 * spread, 0.1 * abs(best - first))
        step = self.begin(blocks, self.at["share"])
        yield from self.tell(history, step, blocks[-1], "info" if solved else "warning", share=blocks[-1].level)

    def end(self, history: RunHistory, channel: Channel) -> Iterator[Finding]:
        rows = channel.rows()
        if self._told is None and BLOCK <= len(rows) < 4 * BLOCK and not rows.cuts and bool((rows.value == 1).all()):
            place = rows.step.tolist(), int(rows.segment[0]), int(rows.time[-1])
            block = RowBlock(1.0, 0.0, 1.0, 1.0, place[0][0], place[0][0], place[0][-1], *place[1:])
            yield from self.tell(history, place[0][0], block, "warning", share=1.0)


class PolicyClipping(PolicyRule):
    """More than 30% of the tokens are clipped by the trust region in four blocks of 8 rows: the updates are too
    large."""

    name, severity = "policy_clipping", "warning"
    series = "clip_ratio"
    needs = ("clip_ratio", "reward")
    least = 32
    about = "The policy's ratio is clipped too often."
    sources = ("TRL: clip_ratio",)
    thresholds: ClassVar = {"share": (0.3, "ours")}

    cases: ClassVar = {
        "all": Case(
            "{share:.0%} of the tokens are clipped since step {step}",
            (
                "learning rate too high: the policy leaves the trust region",
                "reward hacking or KL blow-up",
            ),
            ("Lower the learning rate or the number of updates a batch.",),
        )
    }

    def block(self, history: RunHistory, blocks: list[RowBlock]) -> Iterator[Finding]:
        if self.held(blocks, 4, self.at["share"]):
            step = self.begin(blocks, self.at["share"])
            yield from self.tell(history, step, blocks[-1], "warning", share=blocks[-1].level)


class SamplingMismatch(PolicyRule):
    """The sampler and the trainer disagree on how likely tokens are: by more than 0.5 nats on average, in two blocks.

    Other weights, another precision or another tokenizer in the sampler make every advantage one for another policy.
    """

    name, severity = "sampling_mismatch", "warning"
    series = "sampling_difference"
    needs = ("sampling_difference", "reward")
    least = 16
    about = "Log probabilities of sampler and trainer differ."
    sources = ("TRL: sampling_logp_difference",)
    thresholds: ClassVar = {"difference": (0.5, "nats a token; ours")}

    cases: ClassVar = {
        "all": Case(
            "Sampler and trainer differ by {difference:.2g} nats a token since step {step}",
            (
                "optimizer holds other parameters: the sampler's weights are not the trainer's",
                "tokenizer mismatch",
            ),
            ("Check that weights are sent to the sampler after each step.",),
        )
    }

    def block(self, history: RunHistory, blocks: list[RowBlock]) -> Iterator[Finding]:
        if self.held(blocks, 2, self.at["difference"]):
            step = self.begin(blocks, self.at["difference"])
            yield from self.tell(history, step, blocks[-1], "warning", difference=blocks[-1].level)


class ClippedCompletions(PolicyRule):
    """Completions run into the length limit.

    More than half of them, in four blocks of 8 rows, with at least 0.3 more than in the first block: a warning, since a
    policy that earns by length is the commonest hack. The same share from the start on: an info finding, the limit is
    low.
    """

    name, severity = "clipped_completions", "warning"
    series = "truncated"
    needs = ("truncated", "reward")
    least = 32
    about = "Most completions are truncated at the length limit."
    sources = ("TRL: completions/clipped_ratio",)
    thresholds: ClassVar = {"share": (0.5, "ours"), "more": (0.3, "ours")}

    cases: ClassVar = {
        "all": Case(
            "{share:.0%} of the completions are truncated since step {step}",
            ("reward hacking or KL blow-up: length is rewarded",),
            ("Read completions from step {step} on; penalize length, or raise the limit.",),
        )
    }

    def block(self, history: RunHistory, blocks: list[RowBlock]) -> Iterator[Finding]:
        if self.held(blocks, 4, self.at["share"]):
            grown = blocks[-1].level - blocks[0].level > self.at["more"]
            step = self.begin(blocks, self.at["share"])
            yield from self.tell(
                history, step, blocks[-1], "warning" if grown else "info", share=blocks[-1].level, start=blocks[0].level
            )


RULES = (
    RewardCollapse,
    RewardConstant,
    KlBlowUp,
    EntropyCollapse,
    ZeroAdvantage,
    PolicyClipping,
    SamplingMismatch,
    ClippedCompletions,
    *preference.RULES,
    *objective.RULES,
)
