"""Padding that a loss counts.

In:   figures of the watch: the share of targets that lie in padding, of a cross-entropy and of judged answers.
Out:  findings of `PaddingTargets`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.rules.data.examples import Place, Source, WatchRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class PaddingTargets(WatchRule):
    """The loss counts padding.

    Behind the second of three or more equal tokens at the end of a row, targets have a gradient: a fiftieth of all
    targets or more, in five looks in a row. The loss is then that of a text of which a part says nothing, and falls for
    it. So it is of judged answers, whose likelihood is raised in some rows and lowered in others
    (`model/judged_padding`).

    What to do: `ignore_index=pad`, labels of −100, or a mask of 0 where a row is padded.
    """

    name, family, kind, severity = "padding_targets", "data", "padding", "warning"
    proves = "training"
    series = "model/padding_targets"
    needs = ("=model/padding_targets|=model/judged_padding",)
    least = 5
    about = "The loss counts padding."
    thresholds: ClassVar = {"share": (0.02, "of all targets; ours"), "looks": (5.0, "in a row; ours")}
    causes = ("padding in the loss: padded places are targets",)
    remedies = (
        "leave padding out of the loss: `ignore_index=pad`, or labels of -100 where a row is padded",
        "multiply the log probabilities of an answer's tokens by a mask that is 0 at padding",
    )

    def reset(self) -> None:
        super().reset()
        self._judged: list[Place] = []

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/judged_padding"), self._of_judged)]

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.lasts(value >= self.at["share"], place, self.at["looks"]):
            yield self._say(value, self._row[0], place)

    def _of_judged(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        holds = value >= self.at["share"]
        self._judged = [*(one for one in self._judged if one[2] == place[2]), place] if holds else []
        if len(self._judged) >= self.at["looks"] and self.first(place[2]):
            yield self._say(value, self._judged[0], place)

    def _say(self, share: float, since: Place, place: Place) -> Finding:
        return self.finding(
            since[0], f"{100 * share:.0f}% of the targets lie in the padding at the end of rows.", found=place[0],
            segment=place[2], confidence=0.95, evidence={"share": share},
        )  # fmt: skip


RULES = (PaddingTargets,)
