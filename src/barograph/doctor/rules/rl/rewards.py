"""A reward that is lost again, or that does not move.

In:   series by role: reward, KL, the lengths of completions.
Out:  findings of `RewardCollapse`, `RewardConstant`.

Rows are looked at in blocks of 8, since single batches of rewards say little.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec
import numpy

from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.curve import again
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.wording import Case
from barograph.doctor.rules.rl.policy import BLOCK, PolicyRule, RowBlock


class RewardCollapse(PolicyRule):
    """The reward that was gained is lost again.

    Four blocks of 8 rows lie below the best by more than half of what was gained since the start, by more than 3 robust
    standard deviations of single rows, and by 6 times the usual change from block to block: an info finding; a warning
    where eight blocks lie below by four fifths, or four by all and a deviation more. Where the fall is beyond all
    noise, of 8 deviations and 12 usual changes, an eighth of the run, four blocks at least, is enough for four fifths.
    Where two blocks lie above the best again, it is an info finding from then on. Over-optimisation against the reward
    model, or a learning rate that is too high, ends that way.

    A mean over the last episodes stays the same until one ends, and moves little then: its rows say nothing of how
    single rewards vary. Where a quarter of all rows repeat the one before, those don't count, and both gain and fall
    are a quarter of the best level or more.
    """

    name, severity = "reward_collapse", "warning"
    series = "reward"
    needs = ("reward",)
    least = 64
    about = "The reward falls after it had risen."
    thresholds: ClassVar = {
        "lost": (0.5, "share of the gain; ours"),
        "spreads": (3.0, "ours"),
        "repeated": (0.25, "of the rows, of a mean over episodes; ours"),
        "fell": (0.25, "of such a mean's best level; ours"),
        "clear": (8.0, "deviations from which on four blocks may be enough for a warning; ours"),
    }

    cases: ClassVar = {
        "all": Case(
            "The reward fell from {best:.4g} to {reward:.4g} since step {step}",
            (
                "reward hacking or KL blow-up: the policy exploits the reward",
                "learning rate too high",
            ),
            ("Go back to before step {step}; raise the KL coefficient or lower the learning rate.",),
        )
    }

    def reset(self) -> None:
        super().reset()
        self._last, self._rows, self._repeated = math.nan, 0, 0
        self._again = False  # whether it got over a fall

    def repeats(self, value: float) -> bool:
        """Whether a row of a mean over episodes is the one before."""
        self._rows, same = self._rows + 1, value == self._last
        self._last, self._repeated = value, self._repeated + same
        return same and self._averaged()

    def _averaged(self) -> bool:
        return self._rows >= 16 and self._repeated >= self.at["repeated"] * self._rows

    def block(self, history: RunHistory, blocks: list[RowBlock]) -> Iterator[Finding]:
        if len(blocks) < 8:
            return
        yield from self._recovered(blocks)
        start = float(numpy.median([block.level for block in blocks[:2]]))
        best = max(blocks, key=lambda item: item.level)
        gain = best.level - start
        least = self.at["fell"] * abs(best.level)
        if self._averaged() and min(gain, best.level - blocks[-1].level) < least:
            return
        bound = max(best.level - self.at["lost"] * gain, best.level - 1e18)
        spread = max(float(numpy.median([block.spread for block in blocks])), 1e-9)
        wander = _wander([block.level for block in blocks[4:]]) if len(blocks) > 6 else 0.0
        if best.level - blocks[-1].level < 6 * wander:
            return
        if gain < 2 * spread or best.level - blocks[-1].level < self.at["spreads"] * spread:
            return
        if all(block.level < bound for block in blocks[-4:]):
            near = best.level - max(0.2 * gain, spread)  # the best of many blocks lies above the level by its noise
            last = max(nth for nth, block in enumerate(blocks) if block.level >= near)
            step = blocks[min(last + 1, len(blocks) - 1)].step
            fall = best.level - blocks[-1].level
            clear = len(blocks) > 7 and fall > max(self.at["clear"] * spread, 12 * wander)
            needed = min(8, max(4, len(blocks) // 8)) if clear else 8
            lost = all(block.level < best.level - 0.8 * gain for block in blocks[-needed:])
            worse = all(block.level < start - spread for block in blocks[-4:])
            severity = "warning" if (clear and lost) or (len(blocks) > 15 and (lost or worse)) else "info"
            levels: dict[str, Any] = {"best": best.level, "reward": blocks[-1].level, "start": start}
            for finding in self.tell(history, step, blocks[-1], severity, **levels):
                if history.role("kl") is None:  # no reference, and hardly a reward model
                    finding.causes = list(_FORGETS)
                    finding.remedies = [f"lower the learning rate; go back to before step {step}"]
                yield finding

    def _recovered(self, blocks: list[RowBlock]) -> Iterator[Finding]:
        """Two blocks are above what the reward fell from: it was no collapse, as where a policy explores less."""
        told = self._told
        if told is None or told.severity == "info" or self._again:
            return
        if min(block.level for block in blocks[-2:]) > told.evidence["best"]:
            self._again, told.severity, told.last_step = True, "info", blocks[-2].step
            told.message += f"; it has been higher again since step {blocks[-2].step}"
            yield again(told)


def _wander(levels: list[float]) -> float:
    """The usual change from one block to the next; of a reward that rises or falls steadily what is beside that."""
    bends = numpy.abs(numpy.diff(levels, 2))
    each = float(numpy.median(numpy.abs(numpy.diff(levels))))
    return min(each, _OF_BENDS * float(numpy.median(bends))) if len(bends) > 3 else each


_OF_BENDS = 0.58  # a change over a bend (the difference of two changes), of noise: √2 / √6
_FORGETS = (
    "policy forgets what it had learnt: the learning rate is too high, or its examples are all of late",
    "learning rate too high",
)


class RewardConstant(PolicyRule):
    """Every batch has the same mean reward, to the last digit, for 16 rows, after rewards that varied.

    A reward function that fails gives one value to all; no advantage is left, and nothing is learnt. At the highest
    reward ever seen the task is solved: an info finding. Since the start it takes 128 rows, for the first episodes may
    all end at their limit of steps; a reward that varies later makes it an info finding. Where rewards were the same in
    four rows in a row before, as a mean over the last episodes is until one ends, only a stretch four times as long as
    any before counts.
    """

    name, severity = "reward_constant", "critical"
    series = "reward"
    needs = ("reward",)
    least = 24
    about = "The reward is constant."
    sources = ("TRL: frac_reward_zero_std",)
    thresholds: ClassVar = {"rows": (128.0, "since the start; ours")}

    cases: ClassVar = {
        "all": Case(
            "The reward is {reward:.6g} in every row since step {step}",
            ("loss masked out: the reward function fails and gives one value to all",),
            ("Call the reward function on completions of step {step} by hand.",),
        )
    }

    def reset(self) -> None:
        super().reset()
        self._count, self._varied = 0, False

    def block(self, history: RunHistory, blocks: list[RowBlock]) -> Iterator[Finding]:
        self._count += 1
        first, block = blocks[0].low, blocks[-1]
        if not self._varied and not block.low == block.high == first:
            self._varied = True
            if self._told is not None:
                told, self._told = self._told, None  # it may be said of a later stretch once more
                yield msgspec.structs.replace(told, severity="info", confidence=0.4)
        if len(blocks) < 2 or any(block.low != block.high for block in blocks[-2:]) or blocks[-1].low != blocks[-2].low:
            return
        if not self._varied and self._count * BLOCK < self.at["rows"]:
            return
        value = blocks[-1].low
        if not _longest_yet(history, blocks[-1]):
            return
        solved = self._varied and value >= max(block.high for block in blocks)
        step = blocks[-2].step
        for block in reversed(blocks[:-2]):
            if block.low != block.high or block.low != value:
                break
            step = block.step
        yield from self.tell(history, step, blocks[-1], "info" if solved else "critical", reward=value)


def _longest_yet(history: RunHistory, block: RowBlock) -> bool:
    """Whether the reward is the same for four times as many rows as ever before, where it was in four rows or more."""
    channel = history.role("reward")
    assert channel is not None
    rows = channel.rows()
    values = rows.value[(rows.segment == block.segment) & (rows.step <= block.last) & (rows.time <= block.time)]
    cuts = numpy.flatnonzero(values[1:] != values[:-1]) + 1
    lengths = numpy.diff(numpy.concatenate([[0], cuts, [len(values)]]))
    before = int(lengths[:-1].max(initial=0))
    return before < _SAME or int(lengths[-1]) >= _SAME * before


_SAME = 4  # rows in a row; times as many as before
