"""Padding that a loss counts, and padding of evaluations that no mask is given of.

In:   figures of the watch: the share of targets that lie in padding, of a cross-entropy and of judged answers; passes
      in which something says where padding is.
Out:  findings of `PaddingTargets`, `EvaluationUnmasked`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, watched

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


class EvaluationUnmasked(WatchRule):
    """Evaluations give the model no mask of their padding, and the training does.

    In each pass of the training that was looked at and had padding, three or more, something beside the tokens said
    where it is: a mask, or the rows' lengths. In two evaluations in a row nothing did, though their texts have padding,
    a fiftieth of the places or more; nor did the model compare tokens with a number, as one does that makes its mask
    itself. And places read later ones, or the output has one line for a whole text: a model that reads from left to
    right needs no mask. It does where padding is in front of the texts, as of prompts that are answered: there it takes
    two passes in each of two evaluations, none of which has a mask.

    What to do: give the model in evaluations what the training's loop gives it.
    """

    name, family, kind, severity = "evaluation_unmasked", "eval", "padding", "warning"
    proves = "evaluation"
    series = "model/eval_padded_passes"
    needs = ("=model/eval_padded_passes", "=model/tokens_compared_in_evaluation")
    least = 2
    about = "Evaluations give the model no mask of their padding, and the training does."
    thresholds: ClassVar = {
        "passes": (3.0, "of the training, with padding that is said; ours"),
        "share": (0.02, "of the evaluation's places, that are padding; ours"),
        "front": (2.0, "passes of an evaluation with padding in front; ours"),
        "evaluations": (2.0, "in a row; ours"),
    }
    causes = ("attention mask forgotten: evaluations don't give it, and the model reads padding as text",)
    remedies = ("give the model in evaluations what the training's loop gives it: tokens and their mask, or lengths",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("padded_passes", "padding_said", "eval_padding_said", "eval_padding_share", "next_reached",
                 "padding_share", "tokens_compared_in_evaluation")  # fmt: skip
        ours, said, theirs, share, following, whole, compared = (watched(history, name, place) for name in names)
        reads = following > 0 or math.isfinite(whole)
        given = ours >= self.at["passes"] and said == ours and compared == 0
        missing = value > 0 and theirs == 0 and share >= self.at["share"]
        front, told = (watched(history, f"eval_front_{what}", place) for what in ("passes", "said"))
        before = front >= self.at["front"] and told == 0
        if self.lasts(given and ((missing and reads) or before), place, self.at["evaluations"]):
            where = (f"in none of the evaluations': {100 * share:.0f}% of their places are" if missing and reads
                     else f"in none of {front:.0f} of an evaluation with texts that begin behind")  # fmt: skip
            yield self.finding(
                self._row[0][0], f"In all of {ours:.0f} passes of the training with padding the model is given where "
                f"that is, and {where} padding, which it reads as text.", found=place[0], segment=place[2],
                confidence=0.9,
                evidence=({"share": rounded(share)} if missing and reads else {"passes": front}) | {"standing": True},
            )  # fmt: skip


RULES = (PaddingTargets, EvaluationUnmasked)
