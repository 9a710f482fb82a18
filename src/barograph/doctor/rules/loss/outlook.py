"""What a run will come to: whether it reaches the target that its configuration names.

In:   the series of the loss and the learning rate; the plan and the target in the configuration.
Out:  findings of `TargetOutOfReach`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy

from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.rule import Rule


class TargetOutOfReach(Rule):
    """A training that ends above its target costs all of its plan before anybody knows.

    When a quarter, half and three quarters of the planned steps are done, the final loss is forecast from what was
    seen and the learning rate to come (docs/guides/forecast.md). The finding is given where the chance of reaching
    `target_loss` within the plan is below 1%; it stays silent where no forecast can be made, and where the target is
    only unlikely.

    What to do: stop and change the plan (more steps, a larger model, a better learning rate), or the target.
    """

    name, family, kind, severity = "target_out_of_reach", "loss", "forecast", "warning"
    needs = ("loss", "target_loss", "planned_steps", "outlook")
    least = 40
    about = "The forecast says that the run will not reach its target loss."
    sources = (
        "stability guide: phase 4, training convergence prediction",
        "learning rate annealing: the law of docs/guides/forecast.md",
    )
    thresholds: ClassVar = {"chance": (0.01, "of reaching the target, below which it is out of reach; ours")}

    _SHARES = (0.25, 0.5, 0.75)
    _MOST = 4096  # rows that are kept for the fit; every second one goes when there are more
    causes = ("learning rate too low: the loss falls too slowly for the plan", "data exhausted: the plan is too short")

    def reset(self) -> None:
        self._row = 0
        self._kept: list[tuple[int, float, int]] = []  # step, loss, segment
        self._stride = 1
        self._done = 0  # of the shares

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        channel, plan = history.role("loss"), history.facts.get("planned_steps")
        target = history.facts.get("target_loss")
        if (
            channel is None
            or not plan
            or target is None
            or "outlook" not in history.facts
            or self._done >= len(self._SHARES)
        ):
            return
        while self._done < len(self._SHARES):
            due = self._SHARES[self._done] * plan
            rows = channel.rows(self._row)
            count = int(numpy.searchsorted(rows.step, due)) if len(rows) else 0
            reached = count < len(rows)
            self._keep(rows, count)
            if not reached:
                return
            self._done += 1
            yield from self._judge(history, int(rows.step[count]), float(target), int(plan))

    def _keep(self, rows: Any, count: int) -> None:
        for at in range(count):
            if (rows.first + at) % self._stride == 0:
                self._kept.append((int(rows.step[at]), float(rows.value[at]), int(rows.segment[at])))
                if len(self._kept) > self._MOST:
                    self._kept = self._kept[::2]
                    self._stride *= 2
        self._row = rows.first + count

    def _judge(self, history: RunHistory, step: int, target: float, plan: int) -> Iterator[Finding]:
        if len(self._kept) < self.least:
            return
        steps, losses, _ = (numpy.array(column) for column in zip(*self._kept, strict=True))
        rates = None
        lr = history.role("lr")
        if lr is not None:
            known = lr.rows()
            if len(known) and known.step[0] <= steps[0]:
                places = numpy.searchsorted(known.step, steps, side="right") - 1
                rates = known.value[places]
        outlook = history.facts["outlook"](steps, losses, rates, history.facts["config"], plan, target)
        if outlook is None or outlook.chance >= self.at["chance"]:
            return
        message = (
            f"The run will not reach its target {target:g}: at step {plan:,} the loss will be about "
            f"{outlook.final:.4g} ({outlook.low:.4g} to {outlook.high:.4g})"
        )
        yield self.finding(
            step,
            message,
            evidence={"target": target, "final": outlook.final, "low": outlook.low, "high": outlook.high, "plan": plan},
            remedies=[
                f"Plan for a loss of {outlook.final:.4g}, or change the plan: `barograph forecast RUN` shows it."
            ],
            confidence=0.8,
            key="target",
        )


RULES = (TargetOutOfReach,)
