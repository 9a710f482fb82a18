"""Texts that come in the order of a sorted file.

In:   how much of their beginnings, and of their words, neighbouring rows have in common, as the watch saw it; losses.
Out:  findings of `SortedTexts`, `SortedOpenings`, `ForgottenTexts`.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import known, usual
from barograph.doctor.kernel.curve import between, rounded
from barograph.doctor.kernel.kinds import of_other_kind
from barograph.doctor.kernel.stages import has_stages, is_curriculum
from barograph.doctor.rules.data.alike import SortedExamples, by_wording
from barograph.doctor.rules.data.examples import Place, WatchRule, carries_state, watched
from barograph.doctor.rules.data.order import BY_SOURCE, in_time, jumps_of_loss
from barograph.doctor.rules.data.turns import at_least

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_PART, _EVALUATIONS = 8, 3  # rows; evaluations at least


class SortedTexts(WatchRule):
    """Texts come in the order of a sorted file: each begins as the one before it, from batch to batch.

    In five looks in a row, a row and the one before it begin with three tokens more in common than rows of steps that
    are far apart, and half as many again; so do, over the first steps, the first row of a batch and the last one of the
    batch before; and rows half a batch apart have less in common than neighbours have (`model/beginnings_next`,
    `beginnings_far`, `beginnings_border`, `beginnings_half`). Batches of one prompt or one task each end where the next
    one begins, and what all rows begin with, any two have. And the order does harm, as far as is logged: the evaluation
    loss is 1.15 times the training loss, or more, and 0.05 above it. Of a log that is read once, in the order of time,
    and foretells what comes, of a curriculum, of rewards, and of states that are carried from batch to batch, nothing
    is said.

    What to do: shuffle, in each epoch anew, whatever the file's order is.
    """

    name, family, kind, severity = "sorted_texts", "data", "data", "warning"
    proves = "training"
    series = "model/beginnings_next"
    needs = ("=model/beginnings_next", "loss", "eval_loss")
    least = 5
    about = "Texts come in the order of a sorted file."
    thresholds: ClassVar = {
        "tokens": (3.0, "more in common; ours"),
        "times": (1.5, "as many as of rows that are far apart; ours"),
        "worse": (1.15, "times the training loss, an evaluation's; ours"),
        "above": (0.05, "above the training loss; ours"),
        "looks": (5.0, "in a row; ours"),
    }
    causes = ("data sorted: texts come in the order of a sorted file, and are not shuffled",)
    remedies = ("shuffle the examples anew in each epoch: `DataLoader(..., shuffle=True)`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        half, border, far = (watched(history, f"beginnings_{name}", place) for name in ("half", "border", "far"))
        least = max(far + self.at["tokens"], self.at["times"] * far)
        if not (value >= least and border >= least and value > half):
            self._row = []
            return
        self._row = [*self._row, place][-int(self.at["looks"]) :]
        ours, theirs = usual(history.role("loss"), *place, 16), known(history.role("eval_loss"), *place)
        harm = theirs >= max(self.at["worse"] * ours, ours + self.at["above"])
        other = is_curriculum(history) or history.role("reward") is not None or carries_state(history, place)
        if harm and not other and len(self._row) >= self.at["looks"] and self.first(place[2]):
            yield self.finding(
                0, f"A row begins with {value:.3g} tokens that the one before it begins with, and with {far:.3g} of "
                f"those of rows of another time: they come in the order of a sorted file. The evaluation loss is "
                f"{theirs:.4g}, and the training's {ours:.4g}.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"next": rounded(value), "far": rounded(far), "standing": True},
            )  # fmt: skip


class SortedOpenings(WatchRule):
    """Texts come by what they begin with: all rows of a batch have one task or source, and those of a later batch
    another one.

    The watch knows how many tokens all rows of a batch begin with, and which (`model/opening_common`,
    `opening_mark`): a language, an instruction, a mark of the source. In half of the last looks or more (12 to 48)
    there are two such beginnings or more, of as many tokens, of three looks each: rows that are drawn from all of the
    data begin with both. A batch has eight rows or more. From look to look the beginning stays the same, more often
    than in one of five hundred by chance: batches of one task each that are drawn at random are a plan. So are a
    curriculum, stages, and answers to one prompt that are rewarded.

    What to do: shuffle the examples of all tasks together.
    """

    name, family, kind, severity = "sorted_openings", "data", "data", "warning"
    proves = "training"
    series = "model/opening_mark"
    needs = ("=model/opening_mark", "=model/opening_common")
    least = 12
    about = "Texts come by what they begin with: by task, or by source."
    thresholds: ClassVar = {
        "looks": (12.0, "of which half are such; ours"),
        "last": (48.0, "looks, at most; ours"),
        "each": (3.0, "looks of each of two beginnings; ours"),
        "chance": (0.002, "of a beginning that stays as often, by the shares of all; ours"),
    }
    causes = ("data sorted: batches are of one task or source each, in the order of a file",)
    remedies = ("shuffle the examples: `DataLoader(..., shuffle=True)`",)

    def begin(self) -> None:
        self._looks: deque[tuple[int, float, float]] = deque(maxlen=int(self.at["last"]))

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._looks.append((place[0], watched(history, "opening_common", place), value))
        looks = list(self._looks)
        if len(looks) < self.at["looks"]:
            return
        lengths = Counter(length for _, length, _ in looks if length > 0)
        for length in lengths:
            steps, marks = zip(*((step, mark) for step, common, mark in looks if common == length), strict=True)
            counts = Counter(marks)
            often = sum(count >= self.at["each"] for count in counts.values())
            if 2 * len(marks) < len(looks) or often < 2:
                continue
            meant = is_curriculum(history) or has_stages(history, place[1]) or carries_state(history, place)
            if _stays(steps, marks) > self.at["chance"] or meant or history.role("reward") is not None:
                continue
            if self.first(place[2]):
                yield self.finding(
                    looks[0][0], f"All rows of a batch begin with the same {length:.0f} tokens in {len(marks)} of "
                    f"{len(looks)} looks, with {len(counts)} different beginnings one after the other: texts come by "
                    "task or source.", found=place[0], segment=place[2], confidence=0.95,
                    evidence={"looks": len(marks), "beginnings": len(counts), "standing": True},
                )  # fmt: skip


def _stays(steps: Sequence[int], marks: Sequence[float]) -> float:
    """How likely it is by chance that the mark stays as often from look to look, by the shares of all marks; or, if
    that is less, from step to step, by those of looks that are apart. Of two questions each has half."""
    near = [later - step <= _NEXT for step, later in pairwise(steps)]
    alike = [one == other for one, other in pairwise(marks)]
    chance = at_least(sum(alike), len(alike), _by_chance(marks))
    apart = [mark for mark, goes_on in zip(marks, [*near, False], strict=True) if not goes_on]
    if sum(near) >= _PAIRS <= len(apart):
        chance = min(chance, at_least(sum(itertools.compress(alike, near)), sum(near), _by_chance(apart)))
    return 2 * chance


def _by_chance(marks: Sequence[float]) -> float:
    return sum((count / len(marks)) ** 2 for count in Counter(marks).values())


_NEXT, _PAIRS = 2, 6  # steps; pairs of looks


class ForgottenTexts(WatchRule):
    """Texts come by what they are about, and what is learnt of one part is lost in the next.

    Sketches of which tokens a row has lie by a twentieth of their variance or more between batches
    (`model/wording_apart`), batches that follow each other lie half as far apart as any two, or less
    (`model/wording_beside`), and four fifths of the variance of the batches' means are more than the variance of their
    rows explains (`model/wording_beyond`), in sixteen batches or more of eight texts or more: so it is of any text that
    is read from its beginning. Of batches of four texts to seven, whose means are of few rows, half of that variance is
    enough, where the loss jumps besides, three times, by three tenths and for four rows, as where another part begins.
    A warning where it does harm: the loss fell below all that evaluations have had, by a fifth, in the middle one of
    eight rows, and came back up to there. Of a curriculum, of what is learnt in the order of time by the configuration,
    of rewards, and of states that are carried from batch to batch nothing is said.

    What to do: draw windows from the whole text at random, or shuffle documents before they are packed.
    """

    name, family, kind, severity = "forgotten_texts", "data", "data", "warning"
    proves = "training"
    series = "model/wording_apart"
    needs = ("=model/wording_apart", "loss", "eval_loss")
    least = 16
    about = "Texts come by what they are about, and what is learnt of one part is lost in the next."
    thresholds: ClassVar = {
        **{name: SortedExamples.thresholds[name] for name in ("worded", "compared", "beside", "surely", "jump")},
        "batches": (16.0, "of texts; ours"),
        "rows": (8.0, "texts of a batch; ours"),
        "below": (0.8, "of the least evaluation loss, the training's; ours"),
        "few": (4.0, "texts of a batch, where the loss jumps; ours"),
        "partly": (0.5, "of the variance of their means, that their rows do not explain, there; ours"),
    }
    causes = (BY_SOURCE,)
    remedies = ("draw windows from the whole text at random, or shuffle documents before they are packed",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("example_rows", "wording_batches", "wording_beyond")
        rows, batches, beyond = (watched(history, name, place) for name in names)
        enough = rows >= self.at["rows"] and beyond >= self.at["surely"]
        few = self.at["few"] <= rows < self.at["rows"] and beyond >= self.at["partly"]
        enough |= few and jumps_of_loss(history, place, self.at["jump"]) > 0
        enough &= batches >= self.at["batches"]
        alike = enough and by_wording(self.at, history, place) and not in_time(history, place)
        if alike and self._is_forgotten(history, place) and self.first(place[2]):
            yield self.finding(
                0, f"Batches of texts that follow each other are alike: {100 * beyond:.0f}% of the variance of their "
                "means is beyond what shuffled texts give. The loss falls below all evaluation losses within a part, "
                "and comes back up to them in the next.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"beyond": rounded(beyond), "apart": rounded(value), "standing": True},
            )  # fmt: skip

    def _is_forgotten(self, history: RunHistory, place: Place) -> bool:
        evaluation, loss = history.role("eval_loss"), between(history.role("loss"), 0, place[0] + 1, place[2])
        theirs = between(evaluation, 0, place[0] + 1, place[2])
        if of_other_kind(history, evaluation, *place) or len(loss) < 4 * _PART or len(theirs) < _EVALUATIONS:
            return False
        middle = numpy.median(numpy.lib.stride_tricks.sliding_window_view(loss, _PART), axis=1)
        fell = numpy.flatnonzero(middle <= self.at["below"] * theirs.min())
        return bool(len(fell)) and bool(middle[fell[0] :].max() >= theirs.min())


RULES = (SortedTexts, SortedOpenings, ForgottenTexts)
