"""Numbers that are added to the logits of classes, as the gradient of the loss shows them.

In:   figures of the watch.
Out:  findings of `ClassOffsetsInverted`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.rules.data.examples import Place, WatchRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class ClassOffsetsInverted(WatchRule):
    """Logits are adjusted to how frequent classes are, the wrong way round.

    Something is added to each class's logit before the cross-entropy; the gradient shows how much, exactly. Logit
    adjustment, as a balanced softmax, adds the logarithms of the frequencies while the model trains, so that it makes
    up for them, and adds nothing when it is evaluated. Here the numbers go by a negative power of the frequencies,
    three tenths or more, in five looks in a row: the model learns to make frequent classes more likely than they are,
    and rare ones are lost.

    What to do: `cross_entropy(logits + prior.log(), targets)` in training, and the logits alone in evaluations; or the
    logits alone in training, and `logits - prior.log()` in evaluations.
    """

    name, family, kind, severity = "class_offsets_inverted", "data", "config", "warning"
    proves = "training"
    series = "model/class_offset_slope"
    needs = ("=model/class_offset_slope",)
    least = 5
    about = "Logits are adjusted to how frequent classes are, the wrong way round."
    thresholds: ClassVar = {"power": (0.3, "of the frequency; ours"), "looks": (5.0, "in a row; ours")}
    causes = ("logit adjustment with the wrong sign: the logarithms of frequencies are taken away in training",)
    remedies = (
        "add them in training, and nothing in evaluations: `cross_entropy(logits + prior.log(), targets)`",
        "or train with the logits alone, and take them away in evaluations: `logits - prior.log()`",
    )

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.lasts(value <= -self.at["power"], place, self.at["looks"]):
            yield self.finding(
                0, f"Numbers are added to the logits that go by the power {value:.2f} of how frequent classes are: "
                "rare ones are raised in training, and so held down in the model.", found=place[0], segment=place[2],
                confidence=0.95, evidence={"power": value, "standing": True},
            )  # fmt: skip


RULES = (ClassOffsetsInverted,)
