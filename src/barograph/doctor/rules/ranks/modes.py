"""Ranks whose layers are in other modes than those of the others.

In:   the records `ranks` that say so.
Out:  findings of `RanksModes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from barograph.doctor.kernel.cursor import splits_model
from barograph.doctor.rules.ranks.ranks import EventRule, ranks_named

if TYPE_CHECKING:
    from barograph.core.record import Record
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class RanksModes(EventRule):
    """Some ranks train in evaluation mode, and others don't.

    The watches of ranks that hold copies of one model exchange how many of their layers that drop numbers, or normalise
    by batches, are in training mode in a pass with gradients. Where in three compared steps in a row some ranks have
    fewer of the same number of layers, these drop nothing, or normalise by running statistics that the others renew.

    What to do: `model.train()` on every rank behind an evaluation, and not on the rank that evaluates alone.
    """

    name, family, kind, severity = "ranks_modes", "ranks", "eval", "warning"
    needs = ("!ranks",)
    about = "Some ranks train in evaluation mode."
    event = "ranks"
    causes = ("evaluation mode left on: on some ranks `model.training` is False while they train",)
    remedies = ("call `model.train()` on every rank behind an evaluation",)

    def take(self, history: RunHistory, event: Record) -> Iterator[Finding]:
        away, count = event.fields.get("modes_apart"), history.facts.get("world_size")
        if not away or splits_model(history):
            return
        others = f"the other {count - len(away)}" if isinstance(count, int) and count > len(away) else "the others"
        yield self.finding(
            max(0, int(event.fields.get("modes_since", event.step))), f"{ranks_named(away).capitalize()} trained with "
            f"layers in evaluation mode that {others} had in training mode.", found=event.step, confidence=0.95,
            evidence={"ranks": list(away)[:64], "standing": True},
        )  # fmt: skip


RULES = (RanksModes,)
