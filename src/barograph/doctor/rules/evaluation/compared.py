"""Evaluations whose answers are right for what is beside: the next class, the next row.

In:   figures of the watch: what evaluations compare answers with, which classes a model is given.
Out:  findings of `AnswersBeside`, `AnswersUnrelated`, `AnswersUnaligned`, `AnswersWithin`, `EvaluationShift`,
      `ClassesRenamed`, `GivenClasses`, `GivenUnseen`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import known, numbers_named, usual
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.stages import is_curriculum
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, watched
from barograph.doctor.rules.data.scales import elsewhere

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_ACCURACY = expression(r"(?i)(?:.*[^a-z])?(?:acc|accuracy|knn|top|hits?|recall|r|exact|right|correct)(?:[^a-z].*)?")


class AnswersBeside(WatchRule):
    """The answers of evaluations are not their targets, and are those of the next class, or of the next row.

    Behind the passes of an evaluation the watch sees what is compared: the targets of a cross-entropy, or whole numbers
    as accuracies have them. In two evaluations in a row a quarter of the answers or more, without the two classes that
    come most, are one class above the target, or below it, or are the target of the row before, or of the one behind;
    and of a cross-entropy's at most a quarter as many are the target itself. That is what a model gives that is asked
    for other labels than it has learnt: classes are counted from 0 on one side and from 1 on the other, labels lie a
    row, or a place of a text, away from their inputs, or the two sides of pairs do. It is said where the training's
    answers are right in four of ten rows, or its loss is below three quarters of that of a guess; of whole numbers
    where a logged accuracy is the share that is equal, to 0.02; and of pairs where a tenth of the answers are beside
    and these are ten times as many as of a guess, which nothing comes to that has not been learnt, whatever else a loss
    with several terms is of. A model that is biased by one class has others right, too. It takes 64 rows, of pairs 32.
    Where most rows are of a few classes, it is enough that the rows of a class have the answer above it, or below it,
    more often by a half of them than those of other classes have, in the mean of three classes or more
    (`model/compared_lift_next`), and that their own are a quarter of that share at most.

    Of a language model whose targets are one place ahead in the training (`model/target_shift`), the watch compares an
    evaluation's with its own tokens, too (`model/eval_target_shift`). Where all are the tokens of their own places, or
    two places ahead, and more answers are the target of the place behind, or before, than their own, no share has to be
    reached.

    Of two or three classes a share says little, since chance gives much of it. There the answers agree with the target
    of the row before, or behind, six standard errors more often than by chance, of how often each class is asked for
    and answered, and with their own at most two and a half more often, and no more seldom (`model/compared_beside_own`
    and the like).

    What to do: print ten answers of the evaluation beside their targets.
    """

    name, family, kind, severity = "answers_beside", "eval", "data", "warning"
    proves = "evaluation"
    series = "model/compared_off"
    needs = ("=model/compared_off|=model/compared_beside_own",)
    about = "The evaluation's answers are the next class, or those of the next row."
    thresholds: ClassVar = {
        "beside": (0.25, "of the answers; ours"),
        "own": (0.25, "of these, are the target; ours"),
        "rows": (64.0, "ours"),
        "pairs": (32.0, "rows, of pairs; ours"),
        "faint": (0.1, "of the answers, of pairs; ours"),
        "times": (10.0, "times a guess's share of pairs, the same; ours"),
        "wrong": (0.6, "of the training's answers, at most; ours"),
        "learnt": (0.75, "of the loss of a guess; ours"),
        "alike": (0.02, "a logged accuracy against what was seen; ours"),
        "lift": (0.5, "more often than the rows of other classes have that answer, in the mean of classes; ours"),
        "errors": (6.0, "standard errors over chance, of two or three classes; ours"),
        "chance": (2.5, "the same, of the answers' own targets, at most; ours"),
        "evaluations": (2.0, "in a row; ours"),
    }
    remedies = ("print ten answers of the evaluation beside their targets: an index that begins at 1, a header's row",)

    def reset(self) -> None:
        super().reset()
        self._few: list[Place] = []  # evaluations in a row, of few classes

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/compared_beside_own"), self._of_few)]

    def _of_few(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        """Of two or three classes. value: how far the answers agree with their own targets."""
        names = ("rows", "before", "behind")
        rows, before, behind = (watched(history, f"compared_beside_{name}", place) for name in names)
        beside = abs(value) <= self.at["chance"] and max(before, behind) >= self.at["errors"]
        beside = beside and rows >= self.at["rows"] and history.role("reward") is None
        self._few = [*self._few, place] if beside and (not self._few or self._few[-1][2] == place[2]) else []
        if len(self._few) >= self.at["evaluations"] and self.first(place[2]):
            where = "before" if before > behind else "behind"
            yield self.finding(
                self._few[0][0], f"The evaluation's answers agree with the target of the row {where} "
                f"{max(before, behind):.3g} standard errors more often than by chance, and with their own not.",
                found=place[0], segment=place[2], confidence=0.95, causes=[_ROWS],
                evidence={"own": rounded(value), "beside": rounded(max(before, behind))},
            )  # fmt: skip

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        own, rows, width, by = (watched(history, f"compared_{name}", place) for name in ("own", "rows", "width", "by"))
        enough = rows >= (self.at["pairs"] if width == rows else self.at["rows"])
        sure = width == rows and value * width >= self.at["times"] and value >= self.at["faint"]
        beside = enough and (sure or value >= self.at["beside"]) and own <= self.at["own"] * value
        learns = _is_logged(history, own, place, self.at) if not width else sure or _learns(history, place, self.at)
        ahead = watched(history, "eval_target_shift", place)
        told = watched(history, "target_shift", place) == 1 and by == _BESIDE.get(ahead)
        lift, moved = (watched(history, f"compared_lift_{name}", place) for name in ("next", "by"))
        lifted = enough and lift >= self.at["lift"] and own <= self.at["own"] * lift
        beside = (beside and learns) or (told and enough and own < value) or (width > 0 and lifted and learns)
        beside = beside and history.role("reward") is None
        by, value = (moved, lift) if lifted else (by, value)
        if self.lasts(beside, place, self.at["evaluations"]):
            what = "one class above the target" if by == 1 else "one class below the target"
            what = what if abs(by) == 1 else f"the target of the row {'before' if by < 0 else 'behind'}"
            where = "tokens of their own places, or of those before" if ahead == 0 else "tokens two places ahead"
            more = f": its targets are the {where}, and the training's are one place ahead." if told else "."
            shown = f"{100 * value:.3g}% at least are {what}"
            shown = f"{what} is answered {100 * value:.3g}% more often than elsewhere" if lifted else shown
            yield self.finding(
                self._row[0][0], f"Of the evaluation's answers {100 * own:.3g}% are the target, and {shown}{more}",
                found=place[0], segment=place[2], confidence=0.95,
                causes=[_PAIRS if width == rows else _CLASSES if abs(by) == 1 else _ROWS],
                evidence={"own": rounded(own), "beside": rounded(value)},
            )  # fmt: skip


class AnswersUnrelated(WatchRule):
    """The answers of evaluations have nothing to do with their targets, though those of the training are right.

    Behind the passes of an evaluation the watch sees a cross-entropy over two or three classes. In two evaluations in a
    row of 128 rows or more its answers, which are not all one class, agree with their targets no more often than by
    chance, and no more seldom, to two standard errors (`model/compared_beside_own`); and the training's loss, the mean
    of a cross-entropy, is in the median of its last sixteen rows at most four fifths of what that chance gives, its
    logarithm turned round. What is learnt in any measure helps there a little: so the labels lie in another order than
    the inputs, as behind a sort of the one alone, or the evaluation is of something else, or the training knows its
    rows by heart and has learnt nothing. Where the configuration speaks of other data for evaluations, nothing is said.

    What to do: print ten answers of the evaluation beside their targets.
    """

    name, family, kind, severity = "answers_unrelated", "eval", "data", "warning"
    proves = "evaluation"
    series = "model/compared_beside_own"
    needs = ("=model/compared_beside_own", "loss")
    least = 2
    about = "The evaluation's answers have nothing to do with its targets."
    thresholds: ClassVar = {
        "errors": (2.0, "standard errors over chance, at most; ours"),
        "rows": (128.0, "ours"),
        "learnt": (0.8, "of the loss of chance, that the training has at most; ours"),
        "weight": (0.05, "that the loss's weight may be off one; ours"),
        "evaluations": (2.0, "in a row; ours"),
    }
    causes = (
        "evaluation misaligned: labels lie in another order than their inputs",
        "other data: the evaluation asks for something that the training does not have",
        "learnt by heart: what the training knows of its rows holds for no others",
    )
    remedies = ("print ten answers of the evaluation beside their inputs and their targets",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("rows", "before", "behind", "chance")
        rows, before, behind, chance = (watched(history, f"compared_beside_{name}", place) for name in names)
        loss, mean = usual(history.role("loss"), *place, 16), abs(watched(history, "loss_weight", place) - 1)
        apart = 0 < abs(value) <= self.at["errors"] and max(before, behind) <= 2 * self.at["errors"]
        learns = 0 < chance < 1 and mean <= self.at["weight"] and loss <= -self.at["learnt"] * math.log(chance)
        apart = apart and rows >= self.at["rows"] and learns
        apart = apart and history.role("reward") is None and not elsewhere(history)
        if self.lasts(apart, place, self.at["evaluations"]):
            yield self.finding(
                self._row[0][0], f"The evaluation's answers agree with their targets no more often than the "
                f"{100 * chance:.3g}% of chance, in {rows:.0f} rows; the training has learnt its own, and its loss "
                f"is {loss:.3g}.",
                found=place[0], segment=place[2], confidence=0.8,
                evidence={"errors": rounded(value), "training": rounded(loss)},
            )  # fmt: skip


def _learns(history: RunHistory, place: Place, limits: Mapping[str, float]) -> bool:
    """Whether the training's own answers are its targets."""
    pairs, classes = watched(history, "loss_pairs", place), watched(history, "loss_classes", place)
    count = pairs if pairs > 1 else classes
    guess = math.log(count) if count > 1 else 0.0
    low = usual(history.role("loss"), *place, 16) < limits["learnt"] * guess
    return low or usual(history.channel("model/wrong_share"), *place, 8) <= limits["wrong"]


def _is_logged(history: RunHistory, own: float, place: Place, limits: Mapping[str, float]) -> bool:
    """Whether an accuracy is the share of equal numbers."""
    channels = [channel for name, channel in history.channels.items()
                if _ACCURACY.fullmatch(name) and not name.startswith("model/")]  # fmt: skip
    last = (known(channel, *place) for channel in [history.role("eval_accuracy"), *channels] if channel is not None)
    return any(abs(value - own) <= limits["alike"] for value in last)


class AnswersUnaligned(WatchRule):
    """An evaluation's answers are compared with the targets of other rows than those that its loss compares them with.

    Behind the passes of an evaluation the watch sees the targets of a cross-entropy, and which whole numbers are
    compared, as accuracies have them. Each class comes among the answers, and among the targets, as often in the one as
    in the other, to four standard errors; but of the cross-entropy's answers those that are the target are more than
    half of what lies between chance and all, and of the whole numbers no more are equal than by chance, to three and a
    half standard errors: the answers of some rows stand beside the targets of others. It takes 64 rows of two classes
    or more, in two evaluations in a row. Predictions that several ranks have made, and that are put together rank by
    rank where rows were dealt out in turn, are so, as are a loader's that is shuffled and targets that are not.

    What to do: gather targets as answers are gathered, and compare the two row by row.
    """

    name, family, kind, severity = "answers_unaligned", "eval", "data", "warning"
    proves = "evaluation"
    series = "model/compared_aligned_own"
    needs = ("=model/compared_aligned_own",)
    least = 2
    about = "The evaluation's accuracy compares answers with the targets of other rows."
    thresholds: ClassVar = {
        "rows": (64.0, "ours"),
        "right": (0.5, "of what lies between chance and all, of the cross-entropy's answers, at least; ours"),
        "chance": (0.7, "of the rows, that are equal by chance, at most; ours"),
        "errors": (3.5, "standard errors of chance, at most; ours"),
        "same": (4.0, "standard errors by which a class comes more often, at most; ours"),
        "evaluations": (2.0, "in a row; ours"),
    }
    causes = ("evaluation misaligned: answers are in another order than the targets they are compared with",)
    remedies = ("gather the targets in the same way as the answers, and compare row by row",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("loss", "rows", "chance", "off")
        loss, rows, chance, off = (watched(history, f"compared_aligned_{name}", place) for name in names)
        apart = rows >= self.at["rows"] and off <= self.at["same"] and chance <= self.at["chance"]
        apart = apart and loss - chance >= self.at["right"] * (1 - chance)
        apart = apart and value - chance <= self.at["errors"] * math.sqrt(chance * (1 - chance) / rows)
        if self.lasts(apart, place, self.at["evaluations"]):
            yield self.finding(
                self._row[0][0], f"Of the answers that the evaluation's loss is of {100 * loss:.3g}% are right; of "
                f"those that are compared with classes {100 * value:.3g}%, and chance gives {100 * chance:.3g}%.",
                found=place[0], segment=place[2], confidence=0.95,
                evidence={"loss": rounded(loss), "equal": rounded(value), "chance": rounded(chance)},
            )  # fmt: skip


class AnswersWithin(WatchRule):
    """Evaluations compare answers within a batch with numbers of the whole set.

    Behind the passes of an evaluation the watch sees which whole numbers are compared. Of a comparison of n rows the
    targets count on from n or more, as rows of the whole set do behind the first batch, and all answers are below n,
    as the likeliest of n columns is: none can be right. A tenth of the answers or more, and ten times as many as by
    chance, are the target's place in its batch, so that they are right there. It takes 32 such rows, in two evaluations
    in a row. Where answers are searched for in the whole set, some of them are beyond n.

    What to do: `torch.arange(len(batch))` without what came before, or compare with the whole set.
    """

    name, family, kind, severity = "answers_within", "eval", "data", "warning"
    proves = "evaluation"
    series = "model/compared_beyond"
    needs = ("=model/compared_beyond",)
    about = "Answers within a batch are compared with numbers of the whole set."
    thresholds: ClassVar = {
        "rows": (32.0, "ours"),
        "within": (0.1, "of the answers, that are right within their batch; ours"),
        "times": (10.0, "times what chance gives, the same; ours"),
        "evaluations": (2.0, "in a row; ours"),
    }
    causes = ("labels shifted: rows of the evaluation are counted on, where each batch has answers of its own",)
    remedies = ("`torch.arange(len(batch))` for each batch, or look for the answers in the whole set",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        within, chance = (watched(history, name, place) for name in ("compared_within", "compared_within_chance"))
        beyond = value >= self.at["rows"] and within >= max(self.at["within"], self.at["times"] * chance)
        if self.lasts(beyond, place, self.at["evaluations"]):
            yield self.finding(
                self._row[0][0], f"Of the evaluation's answers {value:.0f} are compared with numbers that no answer "
                f"within their batch can be; {100 * within:.3g}% are the target's place in the batch.",
                found=place[0], segment=place[2], confidence=0.95,
                evidence={"rows": value, "within": rounded(within)},
            )  # fmt: skip


class EvaluationShift(WatchRule):
    """An evaluation asks for other places of its texts than the training.

    The targets of the training are the tokens one place ahead (`model/target_shift`). Those of the evaluation, of a
    cross-entropy or as log probabilities are taken from those of all tokens, are the tokens of their own places, or two
    ahead (`model/eval_target_shift`), in two evaluations in a row. Of a cross-entropy whose answers the watch has seen
    `answers_beside` says it.

    What to do: shift logits and labels by one place once: `logits[:, :-1]`, `labels[:, 1:]`.
    """

    name, family, kind, severity = "evaluation_shift", "eval", "data", "warning"
    proves = "evaluation"
    series = "model/eval_target_shift"
    needs = ("=model/eval_target_shift", "=model/target_shift")
    about = "An evaluation asks for other places of its texts than the training."
    thresholds: ClassVar = {"evaluations": (2.0, "in a row; ours")}
    causes = ("labels shifted: the evaluation's are not those of the next place of a text",)
    remedies = ("shift logits and labels by one place once: `logits[:, :-1]`, `labels[:, 1:]`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        learnt = watched(history, "target_shift", place) == 1
        if self.lasts(learnt and value in _BESIDE, place, self.at["evaluations"]):
            where = "tokens of their own places, or of those before" if value == 0 else "tokens two places ahead"
            yield self.finding(
                self._row[0][0], f"The targets of the evaluation are the {where}; those of the training are one place "
                "ahead.", found=place[0], segment=place[2], confidence=0.97, evidence={"places": value},
            )  # fmt: skip


class ClassesRenamed(WatchRule):
    """Several classes have each the name of another one in evaluations.

    Behind the passes of an evaluation the watch sees what is compared, and counts which answers the rows of each class
    have, of 64 classes at most. In two evaluations in a row two classes or more, of four or more with eight rows or
    more, have the answer of another class in half of their rows or more, and their own in a tenth or less. No two of
    them have the same one, nor has another class that one as its most frequent answer, and each is such a class itself,
    or comes in no row of the evaluation: the model knows them from each other, and calls them otherwise. Classes that
    it mixes up have the answer of a class that has it, too. So it is where a table leaves a class out on one side, or
    sorts, or counts otherwise, and others keep their numbers. It takes a training that learns, and is left to
    `answers_beside` where all are moved by one.

    Of a model that is wrong often, too, four classes or more say it together: three of them or more have each an answer
    of another class that their rows have more often than all others have it, by 0.15 on the average over classes, and
    by four times as much at least as their own (`model/compared_lift_other`, `compared_lift`).

    What to do: print the names and numbers of classes of both sides, and make them in one place.
    """

    name, family, kind, severity = "classes_renamed", "eval", "data", "warning"
    proves = "evaluation"
    series = "model/compared_renamed"
    needs = ("=model/compared_renamed", "=model/compared_own")
    about = "Several classes have each the name of another one in evaluations."
    thresholds: ClassVar = {
        "classes": (2.0, "with another name; ours"),
        "named": (4.0, "with rows enough, in all; ours"),
        "wrong": (0.6, "of the training's answers, at most; ours"),
        "learnt": (0.75, "of the loss of a guess; ours"),
        "alike": (0.02, "a logged accuracy against what was seen; ours"),
        "evaluations": (2.0, "in a row; ours"),
        "lift": (0.15, "of the rows, by which a class has an answer more often than others; ours"),
        "own_lift": (0.25, "of that, of its own answer, at most; ours"),
        "moved": (3.0, "classes that have another answer; ours"),
    }
    causes = ("labels shifted: classes are numbered otherwise in the evaluation than in the training",)
    remedies = ("print the names and numbers of classes on both sides, and make them in one place for both",)

    def begin(self) -> None:
        self._others: list[int] = []  # steps of evaluations in a row

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("named", "own", "off", "width", "class", "answer")
        classes, own, off, width, one, other = (watched(history, f"compared_{name}", place) for name in names)
        learns = _is_logged(history, own, place, self.at)
        if width:
            low = usual(history.role("loss"), *place, 16) < self.at["learnt"] * math.log(width)
            learns = low or _learns(history, place, self.at)
        moved = value >= self.at["classes"] and classes >= self.at["named"] and learns
        beside = off >= AnswersBeside.thresholds["beside"][0] and own <= AnswersBeside.thresholds["own"][0] * off
        yield from self._together(history, place, learns and not beside)
        if self.lasts(moved and not beside and history.role("reward") is None, place, self.at["evaluations"]):
            yield self.finding(
                self._row[0][0], f"Of {classes:.0f} classes of the evaluation {value:.0f} have each the answer of "
                f"another class in most of their rows, and no two have the same: class {one:.0f} that of class "
                f"{other:.0f}.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"classes": classes, "renamed": value},
            )  # fmt: skip

    def _together(self, history: RunHistory, place: Place, learns: bool) -> Iterator[Finding]:
        """What all classes say, of a model that is wrong often."""
        lift, other, moved = (watched(history, f"compared_lift{name}", place) for name in ("", "_other", "_moved"))
        holds = learns and other >= self.at["lift"] and lift <= self.at["own_lift"] * other
        self._others = [*self._others, place[0]] if holds and moved >= self.at["moved"] else []
        if len(self._others) == self.at["evaluations"] and history.role("reward") is None and self.first(place[2]):
            yield self.finding(
                self._others[0], f"{moved:.0f} classes of the evaluation have each another class's answer: "
                f"{100 * other:.0f}% more of their rows have it than of others, on the average, and "
                f"{100 * lift:.0f}% more their own.", found=place[0], segment=place[2], confidence=0.96,
                evidence={"lift": rounded(lift), "other": rounded(other), "classes": moved},
            )  # fmt: skip


_BESIDE = {0.0: 2.0, 2.0: -2.0}  # where answers are one place ahead: whose targets they are, by where those are
_CLASSES = "labels shifted: the evaluation's classes are counted from another number than the training's"
_ROWS = "labels shifted: the evaluation's are those of the next row, or of the next place of a text"
_PAIRS = "labels shifted: in the evaluation each side of a pair stands beside the next one's other side"


class GivenClasses(WatchRule):
    """The classes that a model is given in evaluations are those of the training, each one higher, or one lower.

    Of whole numbers, one a row, or rows that have a 1 in one column, which a model is given beside its inputs, as a
    kind that is to be drawn, the watch counts which ones come. Three classes or more have come in the training, of 256
    rows or more, and an evaluation, in 64 rows or more, has each of these one higher, or each one lower, and no other,
    but for one that both may have for none: one is in eight rows or more of the evaluation and in none of the training,
    and one in the training that should have been in eight rows of the evaluation is in none. So it is where 0 was set
    aside for no class on one side alone: each class has the number of another. It takes two evaluations in a row.

    What to do: one function that makes a class's number, for both.
    """

    name, family, kind, severity = "given_classes", "eval", "data", "warning"
    proves = "evaluation"
    series = "model/eval_given_moved"
    needs = ("=model/eval_given_moved", "eval_loss|eval_accuracy|evaluation")
    about = "The classes that a model is given in evaluations are one higher, or lower."
    thresholds: ClassVar = {
        "rows": (256.0, "of the training that were looked at; ours"),
        "evaluated": (64.0, "rows of evaluations; ours"),
        "classes": (3.0, "ours"),
        "came": (8.0, "rows, in which a class came, or should have come; ours"),
        "evaluations": (2.0, "in a row; ours"),
    }
    causes = ("labels shifted: classes that the model is given are counted from another number in evaluations",)
    remedies = ("number classes in one place for both, and add what is set aside for none there",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("given_rows", "eval_given_rows", "given_classes", "eval_given_new", "eval_given_missed")
        rows, theirs, classes, new, missed = (watched(history, name, place) for name in names)
        moved = abs(value) == 1 and rows >= self.at["rows"] and theirs >= self.at["evaluated"]
        moved = moved and classes >= self.at["classes"] and min(new, missed) >= self.at["came"]
        moved = moved and history.role("reward") is None
        if self.lasts(moved, place, self.at["evaluations"]):
            yield self.finding(
                self._row[0][0], f"Of {classes:.0f} classes that the model is given in the training, evaluations have "
                f"each one {'higher' if value > 0 else 'lower'}: one that was in no row of the training is in "
                f"{new:.0f} of theirs.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"moved": value, "classes": classes},
            )  # fmt: skip


class GivenUnseen(WatchRule):
    """Evaluations give the model a class that never came in the training.

    Of whole numbers, one a row, which a model is given beside its inputs, the watch counts which ones come
    (`model/given_classes`). One that an evaluation has in a sixteenth of its rows or more came
    in none of the training's, sixteen of which should have had it: what the model has for it is as it was drawn.
    Batches of one class each (`model/input_class_share`) say nothing, as some may not have come yet. Such a class is
    that of none, which guidance takes, where no row of the training lost its class; or one too many, where classes are
    counted from another number. It takes two evaluations in a row. Where the configuration has a guidance of 0 or 1,
    what is asked without a class counts for nothing, and nothing is said of a class that half of the rows have. Of a
    curriculum, in which some come later, it is an info finding. Lengths of padded rows don't count: the greatest is how
    many places the longest row has, in each batch.

    What to do: give some rows of the training the class of none; number classes in one place.
    """

    name, family, kind, severity = "given_unseen", "eval", "data", "warning"
    proves = "evaluation"
    series = "model/eval_given_unseen"
    needs = ("=model/eval_given_unseen", "=model/eval_given_unseen_share")
    least = 2
    about = "Evaluations give the model a class that never came in the training."
    thresholds: ClassVar = {
        "share": (1 / 16, "of an evaluation's rows; ours"),
        "came": (16.0, "rows of the training that should have had it; ours"),
        "mixed": (0.75, "of a batch, that its most frequent class has, at most; ours"),
        "evaluations": (2.0, "in a row; ours"),
    }
    causes = (
        "class never trained: guidance takes the class of none, which no row of the training had",
        "labels shifted: classes that the model is given are counted from another number in evaluations",
    )
    remedies = ("give a tenth of the training's rows the class of none", "number classes in one place for both")

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        share, rows = watched(history, "eval_given_unseen_share", place), watched(history, "given_rows", place)
        mixed = usual(history.channel("model/input_class_share"), *place) <= self.at["mixed"]
        unseen = share >= self.at["share"] and share * rows >= self.at["came"] and history.role("reward") is None
        unseen = unseen and not (share >= _HALF and any(size in (0, 1) for _, size in numbers_named(history, _GUIDES)))
        if self.lasts(unseen and mixed, place, self.at["evaluations"]):
            yield self.finding(
                self._row[0][0], f"Class {value:.0f}, which the model is given in {100 * share:.0f}% of an evaluation's"
                f" rows, came in none of the training's {rows:.0f} that were looked at.", found=place[0],
                segment=place[2], confidence=0.9, evidence={"class": value, "rows": rows},
                severity="info" if is_curriculum(history) else self.severity,
                causes=list(self.causes[:: 1 if share >= _HALF else -1]),
            )  # fmt: skip


_GUIDES = expression(r"(?:.*_)?(?:cfg|guidance|guide|guiding)(?:_(?:scale|weight|strength|w))?")
_HALF = 0.3  # of an evaluation's rows, from which on a class is that of none: guidance asks with it and without

RULES = (
    AnswersBeside,
    AnswersUnrelated,
    AnswersUnaligned,
    AnswersWithin,
    EvaluationShift,
    ClassesRenamed,
    GivenClasses,
    GivenUnseen,
)
