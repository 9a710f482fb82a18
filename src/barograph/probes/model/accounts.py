"""What an optimizer says of itself: its count of steps, its schedule's share of the rate, its decay, how far it can go.

In:   torch optimizers, before and after their steps.
Out:  figures for the `model` record at the first step and every tenth, from numbers on the host; nothing waits.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from barograph.probes.model import graphs, samplers, schedulers
from barograph.probes.model.findings import listed
from barograph.probes.model.scaled_after import ScaledAfter
from barograph.probes.model.settings import group_settings, is_coupled
from barograph.probes.model.spent import SpentGradient

if TYPE_CHECKING:
    from barograph.probes.model.parameters import Owned
    from barograph.probes.model.rounds import ModelRound

_EVERY = 10  # steps


class OptimizerAccounts:
    """Follows the watched optimizers."""

    def __init__(self) -> None:
        self._steps, self._next, self._reads = -1, 0, False
        self._said, self._says = 0, False  # the step behind which the next figures are said; whether this one is it
        self._empty: dict[int, bool] = {}  # by optimizer: whether it had no state before the first step seen
        self._settings: dict[str, float] = {}
        self._highest = 0.0  # rate of a group
        self._rateless = False  # whether a group had a rate of 0 beside others
        self._travel: dict[int, list[float]] = {}  # by optimizer: of each group, the sum of its rates so far
        self._scaled, self._spent = ScaledAfter(), SpentGradient()

    def before(
        self, current: ModelRound, optimizer: Any, own: Owned, rates: list[float | None], watched: bool = True
    ) -> None:
        """A step begins. rates: of each group, None where it is not known without waiting. watched: whether they are
        the watched parameters, and not copies of them."""
        first, travel = self.count(current, optimizer, rates)
        self._scaled.begins(current, optimizer)
        self._spent.begins(current, optimizer, own)
        if self._empty.get(id(optimizer)) is None:
            self._empty[id(optimizer)] = not any(optimizer.state.get(item) for item in own.parameters)
            current.figures |= _listed_twice(own)
        if first:
            self._reads = "norms" in current.due and self._steps >= self._next
            self._next = self._steps + _EVERY if self._reads else self._next
            self._says = self._steps >= self._said
            self._said = self._steps + _EVERY if self._says else self._said
        groups = optimizer.param_groups
        if watched and self._reads and all("betas" in group for group in groups):
            current.travel.append((own, tuple(travel)))
        if not first or not self._says:
            return
        chosen = [(groups[number], rates[number]) for number in dict.fromkeys(own.groups)]
        shares = [
            rate / float(base)
            for group, rate in chosen
            if rate is not None and isinstance(base := base_rate(group), (int, float)) and base > 0
        ] or self._of_highest(rates)
        fresh = group_settings(group for group, _ in chosen)
        current.figures |= {name: value for name, value in fresh.items() if self._settings.get(name) != value}
        self._settings |= fresh
        current.figures |= self._of_groups(own, rates) | self._of_scheduler(optimizer) | samplers.figures()
        current.figures |= graphs.figures()
        if shares:
            current.figures["rate_share"] = max(shares)
        if (known := [rate for _, rate in chosen if rate is not None]) and not any(map(_warms_itself, groups)):
            current.figures["rate_in_force"] = max(known)
        if all(_follows(group) for group in groups):
            current.figures["rate_sum"] = max(travel)
        lost = [rate * float(group.get("weight_decay") or 0.0) for group, rate in chosen if rate and _shrinks(group)]
        if lost:
            current.figures["decay_share"] = max(lost)

    def count(self, current: ModelRound, optimizer: Any, rates: list[float | None]) -> tuple[bool, list[float]]:
        """A step begins, which may not be looked at. Whether it is its first optimizer's; `travel` of this one."""
        first = len(current.begun) == 1
        self._steps += first
        schedulers.follow(optimizer)
        travel = self._travel.setdefault(id(optimizer), [])
        travel += [0.0] * (len(rates) - len(travel))
        for number, rate in enumerate(rates):
            travel[number] += rate or 0.0
        return first, travel

    def _of_scheduler(self, optimizer: Any) -> dict[str, float]:
        """What its schedulers say, beside the optimizer's steps since the watch began."""
        found = schedulers.figures(optimizer)
        return found | ({"scheduled_steps": float(self._steps)} if "scheduler_steps" in found else {})

    def _of_highest(self, rates: list[float | None]) -> list[float]:
        """Where no scheduler has left its mark: the share of the highest rate so far."""
        rate = max((one for one in rates if one is not None), default=0.0)
        self._highest = max(self._highest, rate)
        return [rate / self._highest] if self._highest > 0 else []

    def _of_groups(self, own: Owned, rates: list[float | None]) -> dict[str, Any]:
        """Which parameters have a rate of 0 while others have one."""
        if not any(rates[number] for number in own.groups):
            return {}
        idle = [name for name, number in zip(own.names, own.groups, strict=True) if rates[number] == 0]
        before, self._rateless = self._rateless, bool(idle)
        found: dict[str, Any] = {"rateless_parameters": float(len(idle))} if idle or before else {}
        return found | ({"rateless": listed(idle)} if idle and not before else {})

    def after(self, current: ModelRound, optimizer: Any, own: Owned) -> None:
        """A step has ended."""
        self._scaled.ended(optimizer, own)
        self._spent.ended(optimizer, own)
        if not self._says or len(current.begun) != 1:
            return
        states = [state for item in own.parameters if item.grad is not None and (state := optimizer.state.get(item))]
        if not states:
            return
        age = states[0].get("step")
        if age is None:
            if self._empty[id(optimizer)] and not self._steps:
                current.figures["optimizer_age"] = 0.0
        elif isinstance(age, (int, float)) or age.device.type == "cpu":
            current.figures["optimizer_age"] = float(age) - 1
        else:
            current.put("optimizer_age", ("",), age.reshape(1) - 1)


def _listed_twice(own: Owned) -> dict[str, Any]:
    """How many parameters an optimizer was given more than once, and which."""
    if len(set(own.names)) == len(own.names):
        return {}
    twice = [name for name, count in Counter(own.names).items() if count > 1]
    return {"listed_twice": float(len(twice)), "shared": listed(twice)}


def base_rate(group: dict[str, Any]) -> Any:
    """The rate that a group's scheduler starts from, or that it means to reach; None where there is no scheduler."""
    return group.get("initial_lr") and group.get("max_lr", group["initial_lr"])


def _warms_itself(group: dict[str, Any]) -> bool:
    """Whether an optimizer has a schedule of its own beside the rate of its groups."""
    return any("warmup" in key or key == "scheduled_lr" for key in group)


def _follows(group: dict[str, Any]) -> bool:
    """Whether a step is the rate times a gradient, or a mean of gradients, as SGD's: what divides by a gradient's size,
    or takes its sign, has no dampening, or an epsilon beside it."""
    return "momentum" in group and "dampening" in group and not {"betas", "eps", "alpha"} & group.keys()


def _shrinks(group: dict[str, Any]) -> bool:
    """Whether a step takes rate × decay of each weight: not where the decay is part of Adam's gradient."""
    return not is_coupled(group) and (
        "betas" not in group or bool(group.get("decoupled_weight_decay", "eps" not in group))
    )
