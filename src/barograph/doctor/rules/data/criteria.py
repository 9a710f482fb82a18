"""Losses of a special make that can't be meant so, as their graph shows them: alignments and divergences.

In:   figures of the watch, which reads lengths and functions from autograd's graph of the loss.
Out:  findings of `Alignment`, `AlignmentLengths`, `DivergenceInput`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule
from barograph.doctor.rules.data.objectives import GraphRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_PROOF = 0.95


class Alignment(GraphRule):
    """The outputs of a connectionist temporal classification (CTC) are reshaped where they should be transposed, or
    come without a log-softmax.

    The loss wants places before rows, `[T, N, classes]`. A `view` or `reshape` from `[N, T, classes]` leaves the
    numbers where they are, and mixes the places of all examples. And it wants the result of `log_softmax`: the graph
    has none.

    What to do: `output.log_softmax(-1).transpose(0, 1)`.
    """

    name, family, kind, severity = "alignment", "data", "config", "critical"
    figures = ("ctc_reshaped", "ctc_unnormalised")
    needs = ("=model/ctc_reshaped", "loss")
    least = 20
    about = "The outputs of an alignment loss are reshaped, or come without a log-softmax."
    thresholds: ClassVar = {"rows": (20.0, "ours")}
    remedies = ("`functional.ctc_loss(output.log_softmax(-1).transpose(0, 1), …)` of an output `[N, T, classes]`",)

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        said = {
            "ctc_reshaped": ("outputs are reshaped to places before rows: numbers stay where they are, and the places "
                             "of all examples are mixed", "reshaped, not transposed: examples are mixed"),
            "ctc_unnormalised": ("outputs are not logarithms of chances: no log-softmax comes before the loss",
                                 "log_softmax missing: the loss takes logits for logarithms of chances"),
        }  # fmt: skip
        if figure == 1:
            text, cause = said[name]
            yield self.finding(
                place[0], f"The {text}.", found=found, segment=place[2], confidence=_PROOF, key=name, causes=[cause],
                evidence={"standing": True},
            )  # fmt: skip


class AlignmentLengths(WatchRule):
    """Sequences are shorter than their targets, so that no alignment is possible.

    By the lengths that a CTC loss is given, a tenth of the sequences or more have fewer places than targets, in the
    median of the first four looks and of all later ones. Their loss is infinite, or 0 with `zero_infinity`.

    What to do: lengths are those of the outputs, after what the model leaves out of the sequence; targets' lengths
    count targets, not padding.
    """

    name, family, kind, severity = "alignment_lengths", "data", "data", "warning"
    series = "model/ctc_short"
    needs = ("=model/ctc_short", "loss")
    about = "Sequences are shorter than their targets, so that no alignment is possible."
    thresholds: ClassVar = {"share": (0.1, "of the sequences; ours"), "rows": (20.0, "of the loss; ours")}
    causes = ("lengths wrong: sequences are shorter than their targets",)
    remedies = (
        "give the lengths of the outputs: those of the inputs, divided once by what the model subsamples",
        "give the lengths of the targets without padding",
    )

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        short, loss = history.channel(self.series), history.role("loss")
        if short is None or loss is None:
            return
        rows = self._cursor.new(loss)
        for at in range(len(rows) if rows is not None else 0):
            assert rows is not None
            place = int(rows.step[at]), int(rows.time[at]), int(rows.segment[at])
            if rows.first + at + 1 != int(self.at["rows"]):
                continue
            seen = short.rows()
            here = (seen.segment == place[2]) & (seen.step < place[0]) & (seen.time <= place[1])
            share = float(numpy.median(seen.value[here])) if here.any() else 0.0
            if share >= self.at["share"]:
                yield self.finding(
                    int(seen.step[here][0]), f"{100 * share:.0f}% of the sequences have fewer places than targets.",
                    found=place[0], segment=place[2], confidence=_PROOF,
                    evidence={"share": rounded(share), "standing": True},
                )  # fmt: skip


class DivergenceInput(GraphRule):
    """A divergence is given chances where it takes their logarithms.

    `kl_div` takes the logarithms of chances first. The graph has a softmax there, and no logarithm: what is summed is
    below 0, where a divergence never is, and smallest where all chances are one.

    What to do: `functional.kl_div(student.log_softmax(-1), teacher.softmax(-1), reduction="batchmean")`.
    """

    name, family, kind, severity = "divergence_input", "data", "config", "critical"
    figures = ("divergence_of_chances",)
    needs = ("=model/divergence_of_chances", "loss")
    least = 20
    about = "A divergence is given chances where it takes their logarithms."
    thresholds: ClassVar = {"rows": (20.0, "ours")}
    causes = ("logarithm missing: `kl_div` is given chances, not their logarithms",)
    remedies = ('`functional.kl_div(student.log_softmax(-1), teacher.softmax(-1), reduction="batchmean")`',)

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        if figure == 1:
            yield self.finding(
                place[0], "The graph of the loss has a divergence of chances, where it takes their logarithms.",
                found=found, segment=place[2], confidence=_PROOF, evidence={"standing": True},
            )  # fmt: skip


RULES = (Alignment, AlignmentLengths, DivergenceInput)
