"""Answers of which the loss is of one side alone: those that come one side after the other, or have no gradient.

In:   implicit rewards of both sides, each logged where a batch has such answers; the loss, and what its graph says.
Out:  findings of `SidesInTurn`, `SideDetached`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import RowCursor, came_by, known
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.rl.preference import is_preference, rewards_of

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class SidesInTurn(Rule):
    """Answers that are judged one by one come in blocks: good ones alone, then bad ones alone.

    Where answers are judged one by one, a batch may have some of one side alone, and the reward of the other one is not
    logged then. Three blocks of eight steps or more follow each other, each of one side alone, with at most one step
    between two of them that has both. Of shuffled answers even batches of one have such a block once in some hundred
    steps, and three in a row never. Each block teaches the policy to raise, or to lower, whatever it is given.

    What to do: shuffle good and bad answers together, `DataLoader(..., shuffle=True)`.
    """

    name, family, kind, severity = "sides_in_turn", "data", "data", "warning"
    proves = "training"
    needs = ("chosen_reward",)
    least = 8
    about = "Good and bad answers come one after another, in blocks."
    thresholds: ClassVar = {
        "steps": (8.0, "of a block; ours"),
        "blocks": (3.0, "one behind the other; ours"),
        "between": (1.0, "steps between two with answers of both sides, at most; ours"),
    }
    causes = ("data sorted: answers of one side come after those of the other, and are not shuffled",)
    remedies = ("shuffle answers of both sides together: `DataLoader(..., shuffle=True)`",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._segment, self._step = -1, -1
        self._sides: set[int] = set()  # of the newest step, which may not be complete
        self._blocks: list[list[int]] = []  # side, first step, steps
        self._both = 0  # steps with both since the last block

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        chosen, rejected = rewards_of(history)
        if chosen is None or rejected is None:
            return
        for side, (step, _, segment), _ in self._cursor.in_order(chosen, rejected):
            if segment != self._segment or step < self._step:
                self._segment, self._blocks, self._both, self._sides = segment, [], 0, set()
            elif step > self._step and self._sides:
                yield from self._passed()
                self._sides = set()
            self._step = step
            self._sides.add(side)

    def _passed(self) -> Iterator[Finding]:
        """A step that is complete."""
        if len(self._sides) == 2:
            self._both += 1
            if self._both > self.at["between"]:
                self._blocks = []
            return
        (side,) = self._sides
        if self._blocks and self._blocks[-1][0] == side and not self._both:
            self._blocks[-1][2] += 1
        else:
            short = bool(self._blocks) and self._blocks[-1][2] < self.at["steps"]
            same = bool(self._blocks) and self._blocks[-1][0] == side
            self._blocks = [*([] if short or same else self._blocks), [side, self._step, 1]]
        self._both = 0
        count = int(self.at["blocks"])
        blocks = self._blocks[-count:]
        if len(blocks) == count and blocks[-1][2] >= self.at["steps"] and self.first(self._segment):
            names = [("good", "bad")[side] for side, _, _ in blocks]
            yield self.finding(
                blocks[0][1], f"Steps {blocks[0][1]} to {self._step} have answers of one side alone: "
                f"{names[0]} ones for {blocks[0][2]} steps, {names[1]} ones for {blocks[1][2]}, then {names[2]} ones "
                "again.", found=self._step, segment=self._segment, confidence=0.95,
                evidence={"steps": blocks[0][2], "standing": True},
            )  # fmt: skip


class SideDetached(Rule):
    """Of a pair of answers one has no gradient: the policy is asked for both, and the loss is of one of them.

    The loss is the logarithm of a sigmoid, and its graph has no difference of two answers (`model/loss_ranks` is 0).
    From the first step on, and in 20 steps without an exception, there is an output of the policy that no backward pass
    comes to, beside one to which one does (`model/graphs_unused`). And a preference is learnt, by the rewards or
    margins that are logged: of one answer alone, as in unlearning, there would be none. So the rejected answers are
    pushed down and the chosen ones are not raised, or the other way round.

    What to do: detach what is logged, behind the loss, and not what the loss is made of.
    """

    name, family, kind, severity = "side_detached", "rl", "rl", "warning"
    proves = "training"
    needs = ("=model/graphs_unused", "=model/loss_ranks", "loss")
    least = 20
    about = "Of chosen and rejected answers one side has no gradient."
    thresholds: ClassVar = {"steps": (20.0, "since the first one, without an exception; ours")}
    causes = ("detached by mistake: one side of each pair has no gradient, so that only the other is learnt",)
    remedies = ("detach the rewards that are logged, behind the loss: `(chosen - reference).detach()`",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._segment, self._began, self._asked = -1, -1, False

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for (step, time, segment), _ in self._cursor.each(history.role("loss")):
            if segment != self._segment:
                self._segment, self._began, self._asked = segment, step, False
            if self._asked or step < self._began + self.at["steps"]:
                continue
            self._asked = True
            if self._is_of_one_side(history, step, time, segment) and self.first(segment):
                yield self.finding(
                    self._began, "In each step the policy answers for both sides of its pairs, and the loss is the "
                    "logarithm of a sigmoid of one side alone: no gradient comes to the other.", found=step,
                    segment=segment, confidence=0.95, evidence={"steps": step - self._began, "standing": True},
                )  # fmt: skip

    def _is_of_one_side(self, history: RunHistory, step: int, time: int, segment: int) -> bool:
        """Whether there was an output without gradient in all steps so far, and the loss is of one side."""
        unused, chosen = history.channel("model/graphs_unused"), rewards_of(history)[0]
        if unused is None or known(history.channel("model/loss_ranks"), step, time, segment) != 0:
            return False
        rows = unused.rows()
        here = (rows.segment == segment) & (rows.time <= time)
        always = here.sum() == 1 and rows.value[here][0] == 1 and rows.step[here][0] <= self._began + 1
        return bool(always) and (is_preference(history, time) or came_by(chosen, time))


RULES = (SidesInTurn, SideDetached)
