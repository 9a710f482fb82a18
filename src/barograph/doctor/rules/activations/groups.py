"""Which parameters are trained, and which were left out.

In:   what the watch records of parameters that are frozen.
Out:  findings of `FrozenGroup`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from barograph.doctor.kernel.cursor import RowCursor, known, whole
from barograph.doctor.kernel.rule import Rule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class FrozenGroup(Rule):
    """Parameters that should be trained are frozen since the start, and others are not.

    Freezing is usual, so an info finding says how much of the model is trained and what is not. Four things are never
    meant, and warn. Adapters, by their names, of which none is trained while other parameters are; and the other way
    round, layers that are trained beside the LoRA matrices that are added to them. And frozen blocks
    between parameters that are trained, before and after them, whose normalisation weights are all exactly 1: these
    blocks were never trained by anybody. So were frozen layers whose weights are as torch draws them, uniform up to one
    over the root of their inputs, while what is before them is trained. A linear probe on top of frozen blocks stays an
    info finding.

    What to do: look at the test that chooses what `requires_grad` is set for; most often it is the wrong way round.
    """

    name, family, kind, severity = "frozen_group", "model", "frozen", "warning"
    needs = ("=model/frozen_parameters",)
    about = "Parameters that should be trained are frozen since the start."
    causes = ("layer frozen: `requires_grad` is off for what should be trained",)
    remedies = ("check what sets `requires_grad`, and print the names that the optimizer is given",)

    def reset(self) -> None:
        self._cursor = RowCursor()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        rows = self._cursor.new(history.channel("model/frozen_parameters"))
        for at in range(len(rows) if rows is not None else 0):
            assert rows is not None
            step, time, segment = int(rows.step[at]), int(rows.time[at]), int(rows.segment[at])
            count, figures = whole(float(rows.value[at])), {
                name: known(history.channel(f"model/{name}"), step, time, segment)
                for name in ("trained_parameters", "trained_adapters", "frozen_adapters", "frozen_share",
                             "trained_carriers", "frozen_untrained", "frozen_blocks", "frozen_as_drawn")
            }  # fmt: skip
            carried = figures["trained_carriers"] > 0
            if (count > 0 or carried) and figures["trained_parameters"] > 0 and self.first(segment, count):
                yield self._say(history, step, time, segment, count, figures)

    def _say(
        self, history: RunHistory, step: int, time: int, segment: int, count: int, figures: dict[str, float]
    ) -> Finding:
        trained = whole(figures["trained_parameters"])
        names = next(
            (str(event.fields["frozen"]) for event in history.events_of("model")
             if "frozen" in event.fields and event.step == step and event.time <= time), "names are not recorded",
        )  # fmt: skip
        severity, key, causes = "warning", "adapters", list(self.causes)
        if figures["trained_carriers"] > 0:
            key, carriers = "carriers", whole(figures["trained_carriers"])
            message = f"{carriers} layers that have adapters are trained themselves."
            causes = ["base not frozen: layers are trained beside the adapters that are added to them"]
        elif figures["frozen_adapters"] > 0 and figures["trained_adapters"] == 0:
            adapters = whole(figures["frozen_adapters"])
            message = f"None of {adapters} parameters of adapters is trained, but {trained} others are."
        elif figures["frozen_untrained"] == 1 and not figures["trained_adapters"] > 0:
            key, blocks = "blocks", whole(figures["frozen_blocks"])
            message = f"{blocks} blocks between layers that are trained are frozen as they were initialised ({names})."
        elif figures["frozen_as_drawn"] > 0 and not figures["trained_adapters"] > 0:
            key, layers = "drawn", whole(figures["frozen_as_drawn"])
            message = f"{layers} layer{'s are' if layers > 1 else ' is'} frozen as torch has drawn it ({names})."
        else:
            severity, key, share = "info", "share", 1 - figures["frozen_share"]
            message = (
                f"{trained} of {trained + count} parameters are trained, {share:.2g} of all elements; not: {names}."
            )
        return self.finding(
            step, message, severity=severity, key=key, found=step, segment=segment,
            confidence=0.95 if severity == "warning" else 0.3, causes=causes,
            evidence={"trained": trained, "frozen": count, "frozen_share": figures["frozen_share"]},
        )  # fmt: skip


RULES = (FrozenGroup,)
