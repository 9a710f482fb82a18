"""Prompts whose mask is a place too long or too short, and rows of which nothing is asked.

In:   figures of the watch: where targets of answers begin, and how many rows have any, in the training and in
      evaluations.
Out:  findings of `AnswersLate`, `RowsSilent`, `PromptsPartly`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import newest, setting
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, of_look, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding


_NOT_PROMPTS = ("train_on_prompts", "train_on_prompt", "train_on_inputs", "train_on_input", "loss_on_prompt",
                "loss_on_prompts")  # fmt: skip
_ANSWERS = ("completion_only_loss", "assistant_only_loss", "completion_only", "answers_only", "train_on_responses_only",
            "train_on_completions_only", "mask_prompt", "mask_prompts", "mask_inputs")  # fmt: skip


def answers_alone(history: RunHistory) -> bool:
    """Whether the configuration says that prompts do not count in the loss."""
    off = any(setting(history, name) is False for name in _NOT_PROMPTS)
    return off or any(setting(history, name) is True for name in _ANSWERS)


class AnswersLate(WatchRule):
    """The first token of each answer is not a target, or the last one of each prompt is: the mask of the prompt is one
    place too long, or too short, in the training or in evaluations.

    The targets are one place ahead of the inputs, and begin behind a prompt. In three looks in a row, of eight rows or
    more with prompts of different lengths, the token in front of the first place with a target is one and the same, and
    stands nowhere else in the prompt: it ends the prompt. At the first place with a target stand different tokens,
    three quarters of which are targets elsewhere, in this look or before: these are the first of the answers, and the
    loss does not ask for them. Or the targets go on one place behind the token that ends each text, into its padding,
    as under a mask that is not shifted with the targets. The model never learns to begin an answer, and no loss shows
    it. Where a prompt ends with a token of its own kind, such as a language, that is never a target, nothing is said,
    unless the evaluation asks for it: the loss of two evaluations in a row has its first targets at the very token in
    front of the training's first ones. So it is the other way round, where the token behind which the training's
    targets begin comes just before that of the evaluation's; and where the token that is each answer's first target on
    one side, in all rows, is the one behind which the targets of the other side begin: there the prompt's last token is
    asked for, too.

    What to do: labels shifted by the loss are masked up to the prompt's length, `labels[:, :prompt] = -100`; those that
    are shifted already one place less, `labels[:, :prompt - 1] = -100`.
    """

    name, family, kind, severity = "answers_late", "data", "data", "warning"
    proves = "training"
    series = "model/answer_late"
    needs = ("=model/answer_late|=model/answer_after|=model/answer_first|=model/answer_from", "=model/target_shift")
    least = 3
    about = "The first token of each answer is not a target, or the last one of each prompt is."
    thresholds: ClassVar = {"looks": (3.0, "in a row; ours"), "evaluations": (2.0, "in a row; ours")}
    causes = ("prompt mask off by one: labels of the prompt are masked one place too far",)
    remedies = (
        "where the loss shifts labels, `labels[:, :prompt] = -100`; of labels that are shifted already, one place less",
        "generate an answer: what it begins with was never trained",
    )

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        holds = value == 1 and watched(history, "target_shift", place) == 1
        if self.lasts(holds, place, self.at["looks"]):
            yield self._say(self._row[0][0], place, "")

    def asked(self, history: RunHistory) -> list[Source]:
        theirs = [history.channel(f"model/eval_answer_{name}") for name in ("from", "first")]
        return [*super().asked(history), *((one, self._evaluated) for one in theirs)]

    def reset(self) -> None:
        super().reset()
        self._asked = -1, -1  # step and segment of the last evaluation
        self._before: list[tuple[int, str]] = []  # evaluations in a row that begin elsewhere: segments, and where

    def _evaluated(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        """Where an evaluation's targets begin."""
        if (place[0], place[2]) == self._asked:
            return
        self._asked = place[0], place[2]
        own, after, first = (watched(history, f"answer_{name}", place) for name in ("from", "after", "first"))
        theirs = {name: of_look(history, f"eval_answer_{name}", place) for name in ("from", "after", "first")}
        why = ""
        if watched(history, "target_shift", place) == 1:
            if theirs["from"] == after and own != theirs["from"]:
                why = "late"
            elif theirs["from"] == first and own != own:
                why = "early"
            elif own == theirs["after"] and theirs["from"] != own:
                why = "evaluation late"
            elif own == theirs["first"] and theirs["from"] != theirs["from"]:
                why = "evaluation early"
        self._before = [*self._before, (place[2], why)] if why else []
        if self._before.count((place[2], why)) >= self.at["evaluations"] and self.first(place[2]):
            late = "; those of the evaluation begin behind that token"
            yield self._say(0, place, late) if why == "late" else self._aside(place, why)

    def _aside(self, place: Place, why: str) -> Finding:
        """What one side asks for, and the other does not."""
        side, other = ("evaluation", "training")[:: 1 if "evaluation" in why else -1]
        what = (
            "The last token of each prompt is a target, the same in all rows"
            if "early" in why
            else "The first token of each answer is not a target"
        )
        return self.finding(
            0, f"{what} in the {side}: its targets begin one place {'before' if 'early' in why else 'behind'} those of "
            f"the {other}.", found=place[0], segment=place[2], confidence=0.9,
            causes=[f"prompt mask off by one: labels of the {side}'s prompts are masked one place too "
                    f"{'short' if 'early' in why else 'far'}",
                    "labels shifted: training and evaluation mask their prompts to different lengths"],
            evidence={"standing": True},
        )  # fmt: skip

    def _say(self, step: int, place: Place, more: str) -> Finding:
        return self.finding(
            step, "Targets begin one place behind the token that ends each prompt: the first token of an answer is not "
            f"a target{more}.", found=place[0], segment=place[2], confidence=0.9, evidence={"standing": True},
        )  # fmt: skip


_OF_JUDGED = ("loss_ranks", "preference_averaged", "preference_compared", "judged_shift", "ratio_not_raised")


def _is_of_judged(history: RunHistory, place: Place) -> bool:
    """Whether a loss raises some texts and lowers others, or compares them, or clips how far they move."""
    if history.role("reward") is not None:
        return True
    return any(not math.isnan(watched(history, name, place)) for name in _OF_JUDGED)


class RowsSilent(WatchRule):
    """A part of the training's texts has no target at all, and those of evaluations have.

    Of a language model, in the first three looks of a launch and in the last one, a twentieth of the texts or more has
    no target anywhere, though none is padding alone, and none was cut in front of its answer; in two evaluations in
    a row each text has one. Nothing is learnt of these texts: most often the mark behind which targets begin is not
    found in them, or their prompts are counted too long. Of masked models, whose places are drawn, of policies and of
    answers that are judged or compared, of which some count for nothing, nothing is said: a hinge lets go of pairs that
    are far enough apart, and a clipped ratio of what has moved far enough. Nor where each text of six looks in a row
    had targets before any had none: a loss with a margin lets go of what is learnt.

    What to do: count the labels that are not -100 in each row of the prepared data, and look at rows that have none.
    """

    name, family, kind, severity = "rows_silent", "data", "data", "warning"
    proves = "training"
    series = "model/eval_rows_silent"
    needs = ("=model/rows_silent", "=model/eval_rows_silent", "=model/target_shift")
    least = 2
    about = "A part of the training's texts has no target, and those of evaluations have."
    thresholds: ClassVar = {
        "share": (0.05, "of the texts; ours"),
        "looks": (3.0, "the first ones; ours"),
        "evaluations": (2.0, "in a row; ours"),
        "all": (6.0, "looks in which each text had targets; ours"),
    }
    causes = (
        "labels masked out: in some texts all labels are ignored, as where the mark of the answer is not found",
        "prompt mask wrong: the prompts of some texts are counted longer than the texts",
    )
    remedies = ("count the labels of each row that are not ignored, and print a row that has none",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        channel = history.channel("model/rows_silent")
        least = 0.0
        plain = not _is_of_judged(history, place) and watched(history, "target_shift", place) == 1
        if value == 0 and channel is not None and plain:
            rows = channel.rows()
            known = rows.value[(rows.segment == place[2]) & (rows.time <= place[1])]
            looks = int(self.at["looks"])
            least = min((*known[:looks].tolist(), float(known[-1]))) if len(known) > looks else 0.0
            least = 0.0 if self._had_all(history, rows, place) else least
        if self.lasts(least >= self.at["share"], place, self.at["evaluations"]):
            yield self.finding(
                0, f"In each look {100 * least:.0f}% of the training's texts or more have no target that counts; each "
                "text of the evaluation has one.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"share": rounded(least), "standing": True},
            )  # fmt: skip

    def _had_all(self, history: RunHistory, silent: ChannelRows, place: Place) -> bool:
        """Whether each text had targets in the looks that came before any had none."""
        cut = history.channel("model/rows_cut")
        if cut is None:
            return False
        rows, first = cut.rows(), silent.step[silent.segment == place[2]].min(initial=place[0])
        none = rows.value[(rows.segment == place[2]) & (rows.time <= place[1]) & (rows.step < first)] == 0
        return len(none) >= self.at["all"] and bool(none.all())


class PromptsPartly(WatchRule):
    """A part of each prompt counts in the loss, though the configuration says that only answers do.

    The configuration has `train_on_prompts` (or `train_on_inputs`, …) off, or `completion_only_loss`
    (`assistant_only_loss`, `mask_prompt`, …) on. In two evaluations in a row all targets begin behind one and the same
    token (`model/eval_answer_from`), which ends the prompts. That token stands once in each text of the training, too,
    and is a target there itself, in three looks or more: the targets of these texts begin at and behind different
    tokens, in front of it (`model/prompt_told`). In no look do they begin behind one token, as where prompts end in the
    training. So it is where a mask has another length than the prompt, as that of the answer, or of the text without
    its template.

    What to do: `labels[:, :len(prompt)] = -100` with the tokens that the prompt has in the text.
    """

    name, family, kind, severity = "prompts_partly", "data", "data", "warning"
    proves = "training"
    series = "model/eval_answer_from"
    needs = ("=model/prompt_told", "=model/eval_answer_from", "=model/target_shift", "config")
    least = 2
    about = "A part of each prompt counts in the loss, though the configuration says that only answers do."
    thresholds: ClassVar = {"looks": (3.0, "at the training's texts; ours"), "evaluations": (2.0, "in a row; ours")}
    causes = ("prompt mask wrong: it has another length than the prompt, a part of which counts in the loss",)
    remedies = ("mask as many labels as the prompt has tokens, its template with them, and print a row of labels",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        told, count = history.channel("model/prompt_told"), int(self.at["looks"])
        marks = newest(told, *place, count) if told is not None else numpy.empty(0)
        holds = len(marks) == count and bool((marks == value).all()) and answers_alone(history)
        holds = holds and math.isnan(watched(history, "answer_from", place))
        ahead = watched(history, "target_shift", place) == 1 and of_look(history, "eval_target_shift", place) == 1
        if self.lasts(holds and ahead, place, self.at["evaluations"]):
            yield self.finding(
                0, "The configuration says that prompts do not count in the loss, and in the training targets begin "
                "within the prompt: the token behind which those of the evaluation begin is a target itself.",
                found=place[0], segment=place[2], confidence=0.9, evidence={"token": value, "standing": True},
            )  # fmt: skip


RULES = (AnswersLate, RowsSilent, PromptsPartly)
