"""Values that a policy is trained by, beside what its episodes return; the network that its targets come from.

In:   logged values and returns; figures of the watch about a second network.
Out:  findings of `ValuesAboveReturns`, `TargetNetwork`, `NextStates`, `ValuesOutweigh`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import came_by, known, named, newest, numeric_setting, usual
from barograph.doctor.kernel.curve import VALUES, rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.rl.objective import PARTS

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_RETURN = expression(r"(?i)(?:.*[^a-z])?(?:ep|eps|episode|episodic|returns?|ret|score)(?:[^a-z].*)?")
_EVERY = 64  # rows
_BEFORE = 8  # looks, one of 64 rows


class ValuesAboveReturns(WatchRule):
    """The values of a policy's actions are far above anything that an episode has returned.

    A value is the discounted return that is expected, and no more than what episodes return. The mean of the logged
    values is twice the largest return of the last 1,024 rows (in size) or more, in four looks in a row, 64 rows apart,
    after 512 rows, and does not fall; one and a half times are enough where it rose by 15% in the last 512 rows. Three
    causes: the end of an episode is not one for the target, `r + γ max Q`
    without `(1 − done)`; targets follow the network that they train, so that overestimates feed themselves; or rewards
    are multiplied for the training, and returns are logged without that. Where the watch saw no network but the trained
    one give values to chosen actions, or one that is always equal to it, the second cause comes first; else, of values
    30 times the returns or more, the third.

    What to do: `target = r + γ (1 − done) max Q'`, with a network Q' that is a copy of some hundred steps ago.
    """

    name, family, kind, severity = "values_above_returns", "rl", "rl", "warning"
    needs = ("loss", "reward")
    least = 512
    about = "The values of a policy's actions are far above anything that an episode has returned."
    thresholds: ClassVar = {
        "rows": (512.0, "ours"),
        "times": (2.0, "the largest return of late, in size; ours"),
        "looks": (4.0, "in a row; ours"),
        "rising": (1.5, "the same, of values that go on rising; ours"),
        "rises": (1.15, "times the values of 512 rows before; ours"),
        "scale": (30.0, "times the returns; ours"),
    }
    remedies = (
        "`target = r + gamma * (1 - done) * q_target(next).max(1)`: nothing follows the end of an episode",
        "copy the network into the one that targets come from every some hundred steps, or average it with 0.005",
        "log returns in the units of the rewards that are trained on",
    )

    def channel(self, history: RunHistory) -> Channel | None:
        values, returns = named(history, VALUES), history.role("reward")
        return values if returns is not None and _RETURN.fullmatch(returns.name) else None

    def begin(self) -> None:
        self._count = 0
        self._sizes: list[float] = []  # of the returns of the last rows, the largest of each 64
        self._levels: list[float] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._count += 1
        if self._count % _EVERY:
            return
        before = (place[0] - 1, *place[1:])  # of rows whose step is over
        values, returns = named(history, VALUES), history.role("reward")
        assert values is not None and returns is not None
        self._sizes = [*self._sizes[-15:], _size(returns, before)]
        most = max(self._sizes)
        level = _median(values, before)
        self._levels = [*self._levels[-15:], level]
        last = self._levels[-int(self.at["looks"]) :]
        rises = len(self._levels) > _BEFORE and level >= self.at["rises"] * self._levels[-1 - _BEFORE]
        times = self.at["rising" if rises else "times"]
        above = 0 < times * most <= min(last) and last[-1] >= 0.9 * last[0]
        if not above or self._count < self.at["rows"] or not self.first(place[2]):
            return
        yield self.finding(
            0, f"The values' mean is {level:.4g} at step {place[0]}, and episodes return {most:.4g} at most.",
            found=place[0], segment=place[2], confidence=0.9,
            causes=self._causes(history, most, before),
            evidence={"values": rounded(level), "returns": rounded(most), "standing": True},
        )  # fmt: skip

    def _causes(self, history: RunHistory, most: float, place: Place) -> list[str]:
        """The likeliest first."""
        terminals = "terminal states bootstrapped: targets go on after the end of an episode"
        moving = "target network missing or updated at each step: targets follow the values that they train"
        scaled = "reward scale: rewards are multiplied for the training, and returns are logged without that"
        other = history.channel("model/other_apart")
        apart = 0.0 if other is None else float(newest(other, *place, 64)[-32:].max())
        if watched(history, "loss_of_chosen", place) == 1 and not apart > 0:
            return [moving, scaled, terminals]
        return (
            [scaled, terminals, moving] if self._levels[-1] >= self.at["scale"] * most else [terminals, moving, scaled]
        )


def _size(channel: Channel, place: Place) -> float:
    values = newest(channel, *place, _EVERY)
    values = values[numpy.isfinite(values)]
    return float(numpy.abs(values).max()) if len(values) else 0.0


def _median(channel: Channel, place: Place) -> float:
    values = newest(channel, *place, _EVERY)
    values = values[numpy.isfinite(values)]
    return float(numpy.median(values)) if len(values) else math.nan


_UPDATED = (
    "target_update", "target_update_interval", "target_update_freq", "target_update_every", "target_network_frequency",
    "target_network_update_freq", "update_target_every", "sync_target_every",
)  # fmt: skip


class TargetNetwork(WatchRule):
    """The network that the targets of values come from is never updated, or at each step.

    The watch finds a network of the same make as the trained one, or as a critic that is trained beside an actor, which
    gets no gradients; and the loss is an error of the values of chosen actions, or such values (`q`) are logged beside
    a reward. One that is equal to the trained one at each of 20 steps in a row, and at all later looks up to the 200th
    step, holds nothing back: targets move with the values. One that has not changed in the whole run, of 300 steps or
    more, or in 5,000 steps, or in three times as many as the configuration gives it, 100 or more, while the trained one
    has: its targets are those of a network that knows nothing. One that is nearer to the trained one than a tenth of a
    step, at 20 looks in a row and up to the 200th step, is averaged with the weights swapped: 0.995 of the new, 0.005
    of the old.

    What to do: copy the network into it every some hundred steps, or average it with a share of 0.005.
    """

    name, family, kind, severity = "target_network", "rl", "rl", "warning"
    series = "model/other_apart"
    needs = ("=model/other_apart", "=model/loss_of_chosen|reward")
    least = 20
    about = "The network that the targets of values come from is never updated, or at each step."
    thresholds: ClassVar = {
        "looks": (20.0, "in a row; ours"),
        "steps": (200.0, "in which it is always equal; ours"),
        "run": (300.0, "steps of a run in which it never changes; ours"),
        "long": (5000.0, "steps, of a run that goes on; ours"),
        "least": (100.0, "steps in which it never changes, where the configuration says how often it does; ours"),
        "times": (3.0, "as many steps as the configuration says; ours"),
        "often": (10.0, "steps from one change to the next that the configuration says, at least; ours"),
        "apart": (0.01, "of the weights' size, how far the trained one has come; ours"),
        "near": (0.1, "of a step, the median layer's; ours"),
    }
    remedies = ("`target.load_state_dict(network.state_dict())` every some hundred steps; or average with 0.005",)

    def begin(self) -> None:
        self._equal = self._still = self._near = 0
        self._began = self._last = (0, 0, 0)
        self._apart = 0.0

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from super().examine(history)
        if history.facts.get("finished") and self._segment >= 0:
            yield from self._never(history, self.at["run"])

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        logged = came_by(named(history, VALUES), place[1]) and came_by(history.role("reward"), place[1])
        if watched(history, "loss_of_chosen", place) != 1 and not logged:
            return
        if not self._equal and not self._still:
            self._began = place
        moved = history.channel("model/other_moved")
        here = known(moved, *place)
        first = self._last == (0, 0, 0)
        self._last, self._apart = place, value
        self._equal = self._equal + 1 if value == 0 and self._equal >= 0 else -1
        self._still = self._still + 1 if (first or here == 0) and self._still >= 0 else -1
        long = place[0] - self._began[0] >= self.at["steps"]
        if self._equal >= self.at["looks"] and self._still < 0 and long and self.first(place[2]):
            yield self.finding(
                self._began[0], "The network that targets come from is equal to the trained one at each step: it is "
                "copied anew after every step.", found=place[0], segment=place[2], confidence=_PROOF,
                causes=["target network updated at each step: targets follow the values that they train"],
                evidence={"standing": True},
            )  # fmt: skip
        step = usual(history.channel("model/update_p50"), *place)
        way = here if here > 0 else step  # of it since the look before, or of a step of the trained one
        if value > 0 and way == way:
            self._near = self._near + 1 if value <= self.at["near"] * way and self._near >= 0 else -1
        if self._near >= self.at["looks"] and long and self.first(place[2]):
            of_what = "what it moves from look to look" if here > 0 else "a step"
            yield self.finding(
                self._began[0], f"The network that targets come from is {value / way:.2g} of {of_what} away from the "
                "trained one, at each look.", found=place[0], segment=place[2], confidence=_PROOF,
                causes=["target network updated at each step: the weights of its average are swapped"],
                remedies=["`target = 0.995 * target + 0.005 * network`, not the other way round"],
                evidence={"standing": True},
            )  # fmt: skip
        often = numeric_setting(history, *_UPDATED)  # in steps of an environment, perhaps: those are more
        said = max(self.at["least"], self.at["times"] * often) if often >= self.at["often"] else math.inf
        yield from self._never(history, min(self.at["long"], said))

    def _never(self, history: RunHistory, steps: float) -> Iterator[Finding]:
        """Whether it has not changed in this number of steps."""
        count = self._last[0] - self._began[0]
        if self._still < self.at["looks"] or count < steps or not self._apart >= self.at["apart"]:
            return
        if self.first(self._last[2]):
            yield self.finding(
                self._began[0], f"The network that targets come from has not changed in {count} steps, while the "
                f"trained one is {100 * self._apart:.2g}% of its size away from it.", found=self._last[0],
                segment=self._last[2], confidence=_PROOF, evidence={"standing": True},
                causes=["target network not updated: targets come from a network that was never trained"],
            )  # fmt: skip


class NextStates(WatchRule):
    """The target's network is asked about the states that the values are of, not about those that followed.

    The watch compares what the network that the targets come from is given with what the trained one is given in the
    same step: in 8 looks in a row all rows are the same, and differ from each other. The loss is an error of the values
    of chosen actions. Where the other network is asked about other states as well, nothing is said.

    What to do: store a copy of the state before the move (`state.copy()`, `.clone()`): games often write the next one
    into the same array.
    """

    name, family, kind, severity = "next_states", "rl", "rl", "warning"
    series = "model/other_same_input"
    needs = ("=model/other_same_input", "=model/loss_of_chosen")
    least = 8
    about = "Next states are the states themselves."
    thresholds: ClassVar = {"looks": (8.0, "in a row; ours")}
    causes = ("states overwritten: the next state is the state, as it is stored or as it is given",)
    remedies = ("store copies: `state.copy()`, or `.clone()`, before the game moves on",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        holds = value == 1 and watched(history, "loss_of_chosen", place) == 1
        holds = holds and not watched(history, "loss_ranks", place) > 0
        if self.lasts(holds, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], "The network that targets come from is given the states that the values are of, row "
                "by row, not those that followed.", found=place[0], segment=place[2], confidence=_PROOF,
                evidence={"standing": True},
            )  # fmt: skip


class ValuesOutweigh(WatchRule):
    """The loss of values outweighs that of the policy, and clipping leaves a thousandth of the gradient.

    Both losses are logged. In the medians of the last 256 rows the value's is above 10,000, and a hundred times the
    policy's in size; where the watch measured it, clipping left a thousandth of the gradient or less in the median of
    eight looks; and the reward's mean over the last 128 rows is not above that of the first 128 by one of its
    deviations. Where the value's loss is 100,000 times the policy's, 64 rows, their halves and a hundredth of the
    gradient are enough. What is left for the policy is next to nothing, where both share layers or a norm.

    What to do: divide rewards or returns by their deviation; a value weight that is smaller by that much.
    """

    name, family, kind, severity = "values_outweigh", "rl", "config", "warning"
    needs = ("loss", "reward", "=model/clip_coefficient")
    least = 64
    about = "The loss of values outweighs that of the policy, and clipping leaves a thousandth of the gradient."
    thresholds: ClassVar = {
        "rows": (256.0, "ours"),
        "level": (1e4, "of the value loss; ours"),
        "times": (100.0, "the policy loss, in size; ours"),
        "far": (1e5, "the same, where 64 rows are enough; ours"),
        "left": (1e-3, "of the gradient; ten times that of 64 rows; ours"),
        "looks": (8.0, "ours"),
    }
    causes = ("rewards not scaled: the value loss outweighs the policy's, and clipping takes the rest",)
    remedies = (
        "divide rewards by the deviation of returns, or normalise the targets of values",
        "clip gradients of policy and values apart, or give them networks of their own",
    )

    def channel(self, history: RunHistory) -> Channel | None:
        worth = named(history, PARTS["value"])
        return worth if named(history, PARTS["policy"]) is not None and history.role("reward") is not None else None

    def begin(self) -> None:
        self._count = 0
        self._early = math.nan

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._count += 1
        if self._count % _EVERY:
            return
        before = (place[0] - 1, *place[1:])  # of rows whose step is over
        worth, policy, reward = named(history, PARTS["value"]), named(history, PARTS["policy"]), history.role("reward")
        left = history.channel("model/clip_coefficient")
        if worth is None or policy is None or reward is None:
            return
        half = min(self._count // 2, 2 * _EVERY)
        rewards = newest(reward, *before, self._count - 1 if self._count <= 2 * _EVERY else 2 * _EVERY)
        if self._count <= 2 * _EVERY:
            early = rewards[:half] if self._count == _EVERY else rewards
            early = early[~numpy.isnan(early)]
            self._early = float(early.mean()) if len(early) else math.nan
        if left is None:
            return
        worths, policies = (newest(one, *before, min(self._count, 4 * _EVERY) - 1) for one in (worth, policy))
        # a row may be many of the optimizer's steps, by whose number the watch goes
        kept, rewards = newest(left, 1 << 62, *before[1:], int(self.at["looks"])), rewards[-half:]
        level, other = float(numpy.median(worths)), float(numpy.median(numpy.abs(policies)))
        seen = kept[numpy.isfinite(kept)]
        share = float(numpy.median(seen)) if 2 * len(seen) >= self.at["looks"] else math.inf
        heavy = level >= max(self.at["level"], self.at["times"] * other) and share <= self.at["left"]
        heavy = heavy and self._count >= self.at["rows"]
        far = level >= max(self.at["level"], self.at["far"] * other) and share <= 10 * self.at["left"]
        if (heavy or far) and rewards.mean() <= self._early + rewards.std() and self.first(place[2]):
            yield self.finding(
                0, f"The value loss is {level:.3g}, the policy's {other:.3g} in size, and clipping leaves {share:.2g} "
                "of the gradient.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"value": rounded(level), "policy": rounded(other), "left": rounded(share)},
            )  # fmt: skip


_PROOF = 0.95

RULES = (ValuesAboveReturns, TargetNetwork, NextStates, ValuesOutweigh)
