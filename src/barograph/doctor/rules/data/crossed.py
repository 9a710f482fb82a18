"""Outputs that are compared with the targets of all rows, for sizes differ.

In:   a line of gradients over outputs; what the graph of the loss shows of sizes.
Out:  findings of `BroadcastTargets`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import RowCursor
from barograph.doctor.kernel.rule import Rule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_KEPT = 64  # looks of a launch that are compared


class BroadcastTargets(Rule):
    """Each output is compared with the targets of all rows: their shapes differ, and were broadcast.

    Outputs [n, 1] against targets [n] give n × n differences; the gradient of their mean square is then a line over
    the output, as if all rows had one target: the batch's mean. Five looks with four different such targets prove it,
    in nine of ten of all looks: where targets really are equal, as those of a discriminator are, they are the same in
    each batch. Where the loss's own graph shows n × n differences of n outputs (`model/loss_crossed`), as in all its
    looks up to the 20th row of the loss (or of the reward, where there is none), that is proof; so is one column of
    outputs that is compared with several of targets (`model/loss_widened`). So it is where n outputs of several numbers
    each, as [n, length] against [n, 1, length], became n × n in a mean of all squares (`model/rows_crossed`), and n is
    the number of examples of a pass: views of one example are compared with each other on purpose. The model learns
    the mean, whatever its inputs.

    What to do: `output.squeeze(-1)`, or `targets[:, None]`.
    """

    name, family, kind, severity = "broadcast_targets", "data", "data", "warning"
    proves = "training"
    needs = ("=model/broadcast_target|=model/loss_crossed|=model/rows_crossed|=model/loss_widened",)
    about = "Each output is compared with the targets of all rows."
    thresholds: ClassVar = {
        "looks": (5.0, "ours"),
        "different": (4.0, "ours"),
        "apart": (0.03, "of the largest: two targets; ours"),
        "share": (0.9, "of all looks; ours"),
        "rows": (20.0, "of the loss, up to which its graph shows it in each look; ours"),
        "counted": (64.0, "examples of a pass, at most; ours"),
        "rows_least": (4.0, "examples of a pass; fewer may be views; ours"),
    }
    causes = ("targets broadcast: the shapes of outputs and targets differ",)
    remedies = ("make the shapes equal before the loss: `output.squeeze(-1)`, or `targets[:, None]`",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._values: list[tuple[int, int, float]] = []
        self._counted = 0, -1  # rows of the loss, of a segment
        self._judged: set[int] = set()

    def _crossed(self, history: RunHistory) -> Iterator[Finding]:
        """What the graph of the loss shows."""
        widened = history.channel("model/loss_widened")
        crossed, of_rows = (history.channel(f"model/{name}") for name in ("loss_crossed", "rows_crossed"))
        if of_rows is not None and of_rows.end and self._as_many(history, of_rows.first):
            crossed = of_rows
        channel = widened or crossed
        loss = history.role("loss") or history.role("reward")  # of an actor and its critic, each has a loss of its own
        rows = self._cursor.new(loss) if channel is not None and loss is not None else None
        for at in range(len(rows) if rows is not None else 0):
            assert rows is not None and channel is not None
            step, time, segment = int(rows.step[at]), int(rows.time[at]), int(rows.segment[at])
            count = 1 if segment != self._counted[1] else self._counted[0] + 1
            self._counted = count, segment
            if count < self.at["rows"] or segment in self._judged:
                continue
            looks = channel.rows()
            here = (looks.segment == segment) & (looks.step < step) & (looks.time <= time)
            if here.any():  # the watch's records come behind the rows of a fast loop
                self._judged.add(segment)
            if here.any() and (looks.value[here] > 1).all() and self.first("graph", segment):
                size = float(looks.value[here][0])
                yield self.finding(
                    int(looks.step[here][0]), f"One column of outputs is compared with {size:.0f} columns of targets."
                    if widened is not None else f"{size:.0f} outputs are compared with {size:.0f} targets in "
                    f"{size * size:.0f} differences: each output with the targets of all rows.",
                    key="graph", found=step, segment=segment, confidence=0.95, evidence={"outputs": size},
                )  # fmt: skip

    def _as_many(self, history: RunHistory, outputs: float) -> bool:
        """Whether there are as many of them as examples in a pass, which are counted up to a number."""
        examples = history.channel("model/example_rows")
        return (
            examples is not None
            and bool(examples.end)
            and min(outputs, self.at["counted"]) == examples.first >= self.at["rows_least"]
        )

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from self._crossed(history)
        rows = self._cursor.new(history.channel("model/broadcast_target"))
        for at in range(len(rows) if rows is not None else 0):
            assert rows is not None
            step, segment, value = int(rows.step[at]), int(rows.segment[at]), float(rows.value[at])
            if self._values and self._values[0][1] != segment:
                self._values = []
            if len(self._values) == _KEPT:  # later looks only lower their share
                continue
            self._values.append((step, segment, value))
            values = numpy.array([one[2] for one in self._values])
            size = float(numpy.abs(values).max())
            different = len({round(one / size / self.at["apart"]) for one in values}) if 0 < size < math.inf else 0
            if len(values) < self.at["looks"] or different < self.at["different"]:
                continue
            looks = history.channel("model/output_spread")
            count = 0
            if looks is not None:
                known_ones = looks.rows()
                here = (known_ones.segment == segment) & (known_ones.time <= int(rows.time[at]))
                count = int((here & (known_ones.step >= self._values[0][0]) & (known_ones.step <= step)).sum())
            if len(values) >= self.at["share"] * count and self.first(segment):
                yield self.finding(
                    self._values[0][0], "Every output is compared with the mean target of its batch: the gradient is a "
                    f"line over the outputs in {len(values)} looks, with another target in each.",
                    found=step, segment=segment, confidence=0.95,
                    evidence={"looks": len(values), "different": different},
                )  # fmt: skip


RULES = (BroadcastTargets,)
