"""Parameters that a model and its frozen copy have in common, and a copy that is made the model again.

In:   the watch's look at a second network of the model's make; how many parameters are trained.
Out:  findings of `SharedFrozen`, `ReferenceUpdated`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import options_on
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.rl.reference import prefers

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class SharedFrozen(WatchRule):
    """A part of the model is that of its frozen copy, and frozen with it.

    A second network of the model's make is asked, as a reference or a teacher. Some of its parameters are the model's
    own, the same tensors, and no gradient is asked for them (`model/other_shared`): who froze the copy froze them in
    the model, too. Of the model four times as many are trained, none of them adapters, whose frozen base is shared on
    purpose. Where the configuration names what is frozen or held, nothing is said.

    What to do: `copy.deepcopy(model)` before the copy is frozen, or share what is meant to stay as it is, and say so.
    """

    name, family, kind, severity = "shared_frozen", "rl", "frozen", "warning"
    proves = "training"
    series = "model/other_shared"
    needs = ("=model/other_shared", "=model/trained_parameters")
    least = 1
    about = "A part of the model is that of its frozen copy, and frozen with it."
    thresholds: ClassVar = {"times": (4.0, "as many parameters that are trained; ours")}
    causes = ("layer frozen: it is shared with the frozen copy of the model",)
    remedies = ("make the copy whole, `copy.deepcopy(model)`, before it is frozen with `requires_grad_(False)`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        trained, adapters = (watched(history, f"trained_{name}", place) for name in ("parameters", "adapters"))
        few = math.isfinite(trained) and trained >= self.at["times"] * value and not adapters > 0
        if few and not _is_named(history) and self.first(place[2]):
            yield self.finding(
                place[0], f"{value:.0f} of the model's parameters {'is' if value == 1 else 'are'} also of another "
                f"network of its make, and frozen with it; {trained:.0f} are trained.", found=place[0],
                segment=place[2], confidence=0.95,
                evidence={"shared": value, "standing": True},
            )  # fmt: skip


def _is_named(history: RunHistory) -> bool:
    """Whether the configuration says that something is frozen."""
    words = ("freez", "frozen", "held", "hold", "fixed", "share")
    return any(word in name.lower() for name, _ in options_on(history) for word in words)


class ReferenceUpdated(WatchRule):
    """The reference of a preference is made the policy again, now and then.

    The watch looks at a second network of the policy's make, which is asked about the same examples. In two looks or
    more it has moved, by half or more of the distance that it had from the policy, and it rested in eight or more: from
    there on margins begin at 0 again, and so do losses, so that they say nothing of those before. Trainers do it on
    purpose (TR-DPO, arXiv:2404.09656): where the configuration has a word of it, as `sync_ref_model`, `ref_every` or
    `rounds`, it is an info finding. What is copied behind an evaluation by chance does the same.

    What to do: copy the reference once, with `copy.deepcopy`, before the training, if it is to stay; else compare
    losses from one such step to the next alone.
    """

    name, family, kind, severity = "reference_updated", "rl", "rl", "warning"
    proves = "training"
    series = "model/other_moved"
    needs = ("=model/other_moved", "=model/other_apart")
    least = 8
    about = "The reference of a preference is made the policy again, now and then."
    thresholds: ClassVar = {
        "moves": (2.0, "looks in which it has; ours"),
        "rests": (8.0, "looks in which it has not; ours"),
        "far": (0.5, "of its distance from the policy, that it has moved; ours"),
    }
    causes = ("reference moves: it is made the policy again within the training",)
    remedies = ("copy the reference once, before the training, unless it is to follow the policy",)

    def begin(self) -> None:
        self._moves: list[int] = []
        self._rests = 0
        self._apart = math.nan  # in the look before
        self._prefers = False  # in some look: behind an evaluation the other network was asked about its examples

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        far = value >= self.at["far"] * self._apart
        self._apart = watched(history, "other_apart", place)
        self._rests += value == 0
        self._prefers = self._prefers or prefers(history, place)
        if value > 0 and far:
            self._moves.append(place[0])
        enough = len(self._moves) >= self.at["moves"] and self._rests >= self.at["rests"]
        if enough and self._prefers and self.first(place[2]):
            yield self.finding(
                self._moves[0], f"The reference was made the policy again by step {self._moves[0]}, and by step "
                f"{self._moves[-1]}: margins and losses begin anew there.", found=place[0], segment=place[2],
                severity="info" if (meant := _is_to_move(history)) else self.severity,
                confidence=0.5 if meant else 0.85, evidence={"moves": len(self._moves)},
            )  # fmt: skip


_MOVES = expression(  # what is made anew in turns, or now and then
    r"sync|round|iteration|outer|phase|online|tr_?dpo|generation|"
    r"ref(?!erence_free).*(?:every|update|refresh|renew|mov|follow|interval|steps|mix|alpha|tau|ema|decay)"
)


def _is_to_move(history: RunHistory) -> bool:
    """Whether the configuration has a word of a reference that is made anew."""
    return any(_MOVES.search(name.lower()) for name, _ in options_on(history))


RULES = (SharedFrozen, ReferenceUpdated)
