"""The order of examples that have no length and no class: batches whose examples are alike.

In:   figures of the watch: examples that come again, and which part of their variance lies between batches.
Out:  findings of `SortedExamples`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.stages import is_curriculum
from barograph.doctor.rules.data.examples import KnownBatches, Place, Source, carries_state, watched
from barograph.doctor.rules.data.lengths import BY_LENGTH, along_epoch
from barograph.doctor.rules.data.order import BY_SOURCE, BatchOrder, in_time, jumps_of_loss, reads_on

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_BY_SIZE = "data sorted: by how bright or loud examples are, and not shuffled"
_ONE_CLASS = "data sorted: batches are of one class or group each, and not shuffled"
_SELDOM = 64  # rows between two looks at all lengths so far


class SortedExamples(BatchOrder):
    """Each epoch has the same batches in the same order, as `same_order` tells, and the examples of a batch are alike:
    they come one speaker, one place, one time or one brightness after the other.

    Of rows of numbers the watch keeps sketches: their mean, their size, and sums with fixed signs. In one of them
    half or more of the variance lies between batches (`model/rows_apart`), in eight batches of different examples or
    more, of eight examples or more each. Of shuffled examples as much as chance gives does: a tenth, say. Groups that
    are drawn anew in each epoch, and a stream that is read once, are other things, as is text, which is read from its
    beginning; so are streams whose state is carried from each batch into the next (`model/state_carried`).

    A loss that compares the examples of a batch with each other finds each harder to tell from the rest of its batch:
    a fifth of the variance in one direction is enough there, in twelve batches or more of sixteen examples or more,
    which is several times what chance gives.

    So it is with texts, where half of the sketches of which tokens a row has, or more, have a twentieth of their
    variance between batches (`model/wording_apart`), in twelve batches or more of sixteen or more, and batches that
    follow each other lie half as far apart as any two, or less (`model/wording_beside`): they come by what they are
    about. Of batches that are made of one kind each, in an order that is drawn, this is not so.

    Such a loss needs no examples that come again, as augmented ones
    never do: where batches are of one class each, nearly all that an example is compared with is of its own class. Half
    of the sketches or more have three tenths of their variance between batches, in twelve batches or more, of rows of
    mean 0 and deviation 1: a brightness that is drawn once for a batch does not count. The means of batches that are a
    number of steps apart, eight or more, are nearly the same (`model/apart_period`): one domain, or few classes, that
    are drawn for each batch on purpose, or take turns, are another thing.

    Nor does a model of denoising, which is given a time with a number a row: the noise hides which examples come again,
    and half of their variance. Three twentieths of it in half of the sketches, and three tenths in one direction, are
    enough there, in sixteen batches or more of sixteen examples or more, with batches that are alike as above.

    Examples that are augmented anew in each epoch never come again, and their order shows all the same: the mean or the
    size of batches rises, or falls, through each of two epochs or more, whose length fits (`model/apart_rising`: a
    correlation of 0.95 in sixteen batches), and half or more of its variance lies between batches. That is said of
    cross-entropies alone: a series that is read in the order of time may have a trend. A fifth is enough where the loss
    compares the examples of a batch, sixteen or more, with each other, or with more, as some that were mined
    (`model/loss_candidates`); of a curriculum nothing is said.

    So does what is augmented behind the watch of data, which knows the batches of earlier epochs again: sixteen in a
    row came one number of steps before, eight or more (`data/repeats_after`; `data/repeat_of`, where it is given no
    epochs). A tenth of the variance in half of the sketches, and three tenths in one direction, lie between sixteen
    batches or more of sixteen examples or more, and batches that follow each other lie half as far apart as any two, or
    less (`model/apart_beside`): what is drawn once for a batch, as a mixture's share, is another in the next. Of a
    curriculum nothing is said.

    Wherever the same batches come in the same order, in one of these ways, or two whole batches of sixteen examples or
    more came again, eight steps or more before, and a multiple of that, it is enough that two fifths of the variance
    of the batches' means are more than the variance of their rows explains (`model/apart_beyond`,
    `model/wording_beyond`), in twelve batches or more of eight examples or more, and that those which follow each other
    lie four fifths as far apart as any two, or less. Texts without padding, with targets at several places of each row,
    may be one text that is read from its beginning: there the loss has to jump besides, three times, as where another
    source begins. Where eight texts or more begin within the rows, and the loss leaves out their first tokens
    (`model/ignored_inside`), or each row begins with a token that stands nowhere else (`model/eval_opens_with`), rows
    are texts by themselves, or packed of such, and it is enough that batches which follow each other lie half as far
    apart as any two.

    So it is with lengths: where the same batches come in the same order, and lengths are recorded, twelve batches or
    more of an epoch are put in the order in which they come in it. Their mean lengths vary by four times what their
    rows' do by chance, and those that are neighbours lie half as far apart as any two, or less, by three and a half
    deviations of what is so by chance (`sorted_lengths` names what begins anew, and goes one way).

    And in the first epoch, or in a training that has no other: batches come in blocks (`model/apart_blocks`,
    `model/wording_blocks`), four or more, as one source has been read, and the next one begins; four fifths of the
    variance of the batches' means are more than the variance of their rows explains, in sixteen batches or more of
    sixteen examples or more. Three blocks, of eight examples or more in a batch, are enough where the loss jumps three
    times besides, by three tenths and for four rows; of a text that may be one that is read on, too. Of texts it is
    enough that batches which follow each other lie a fifth as far apart as any two, or less, in three looks in a row.
    What is learnt online, in the order of time, in stages or of a replay buffer by the configuration, or by rewards, is
    another thing, as are other texts that may be one that is read on.

    What to do: shuffle, in each epoch anew.
    """

    name, severity = "sorted_examples", "warning"
    proves = "training"
    needs = ("=model/rows_apart|=model/wording_apart|=data/repeats_after|=data/repeat_of",)
    about = "The training's examples come in an order in which those of a batch are alike."
    thresholds: ClassVar = {
        **BatchOrder.thresholds,
        "apart": (0.5, "of the variance, that lies between batches; ours"),
        "different": (8.0, "batches of different examples; ours"),
        "even": (0.3, "of the variance in half of the sketches, of a loss of pairs; ours"),
        "compared": (12.0, "batches of a loss of pairs; ours"),
        "paired": (0.2, "of the variance in one direction, of a loss of pairs; ours"),
        "worded": (0.05, "of the variance in half of the sketches of texts, of a loss of pairs; ours"),
        "beside": (0.5, "of the squared distance of any two batches of texts, of those that follow each other; ours"),
        "noised": (0.15, "of the variance in half of the sketches, of what is noised; ours"),
        "way": (0.3, "of the variance in one direction, of what is noised; ours"),
        "noisy": (16.0, "batches of what is noised; ours"),
        "pairs": (16.0, "examples of a batch of such a loss; ours"),
        "followed": (16.0, "batches in a row that came in an earlier epoch, as many steps before; ours"),
        "twice": (2.0, "whole batches that came again, of batches whose neighbours are alike; ours"),
        "dealt": (0.1, "of the variance in half of the sketches, of such batches; ours"),
        "beyond": (0.4, "of the variance of batches' means, that their rows do not explain; ours"),
        "near": (0.8, "of the squared distance of any two such batches, of those that follow each other; ours"),
        "rows_of": (8.0, "examples of such a batch; ours"),
        "blocks": (4.0, "blocks of batches that are alike, one behind the other; ours"),
        "jumping": (3.0, "of these, where the loss jumps, too; ours"),
        "jump": (1.3, "times what the loss was before, for four rows, there; ours"),
        "texts": (8.0, "beginnings within the rows, which the loss leaves out: several texts in each row; ours"),
        "line": (0.2, "of the squared distance of any two, of batches of texts that follow each other; ours"),
        "lined": (3.0, "in a row, in which they do; ours"),
        "surely": (0.8, "of the variance of their means, that their rows do not explain; ours"),
    }
    causes = ("data sorted: the examples of a batch are alike, and not shuffled",)
    remedies = ("shuffle the examples anew in each epoch: `DataLoader(..., shuffle=True)`",)

    def reset(self) -> None:
        super().reset()
        self._known = KnownBatches()
        self._asked = 0  # times that lengths could be asked for
        self._line: list[int] = []  # steps of looks in a row in which neighbours are alike
        self.begin()

    def asked(self, history: RunHistory) -> list[Source]:
        rising = history.channel("model/apart_rising")
        return [*super().asked(history), (history.channel("model/rows_apart_even"), self._of_means),
                (rising, self._of_rising), (history.channel("data/repeats_after"), self._of_batches),
                (history.channel("data/repeat_of"), partial(_as_steps, self._of_batches)),
                *((history.channel(f"model/{name}_blocks"), partial(self._of_blocks, name))
                  for name in ("apart", "wording")),
                (history.channel("model/wording_beside"), self._of_line)]  # fmt: skip

    def _of_line(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        """value: how far apart batches of texts are that follow each other, of the squared distance of any two."""
        rows, beyond, batches = (
            watched(history, name, place) for name in ("example_rows", "wording_beyond", "wording_batches")
        )
        near = value <= self.at["line"] and beyond >= self.at["surely"] and rows >= self.at["pairs"]
        near = near and batches >= self.at["noisy"] and not (self._mixed or self._drawn)
        self._line = [*self._line, place[0]] if near else []
        other = len(self._line) < self.at["lined"] or reads_on(history, rows, place) or in_time(history, place)
        if not other and self.first(place[2]):
            yield self.finding(
                self._line[0], f"Batches of texts that follow each other lie {100 * value:.0f}% as far apart as any "
                f"two: {100 * beyond:.0f}% of the variance of the means of {batches:.0f} batches is beyond what "
                "shuffled texts give.", found=place[0], segment=place[2], confidence=0.85,
                evidence={"beside": value, "beyond": beyond}, causes=[BY_SOURCE, *self.causes],
            )  # fmt: skip

    def _of_blocks(self, figures: str, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        """value: how many blocks of batches that are alike have come one behind the other. figures: of which rows."""
        jumps = value >= self.at["jumping"] and jumps_of_loss(history, place, self.at["jump"]) > 0
        if not (jumps or value >= self.at["blocks"]) or self._mixed or self._drawn:
            return
        rows = watched(history, "example_rows", place)
        beyond, batches = (watched(history, f"{figures}_{name}", place) for name in ("beyond", "batches"))
        enough = beyond >= self.at["surely"] and batches >= self.at["noisy"] and rows >= self.at["pairs"]
        enough = enough or (jumps and beyond >= self.at["surely"] and batches >= self.at["noisy"] and (
            rows >= self.at["rows_of"]
        ))  # fmt: skip
        read_on = figures == "wording" and reads_on(history, rows, place) and not jumps
        if enough and not read_on and not in_time(history, place) and self.first(place[2]):
            yield self.finding(
                place[0], f"Batches come in {value:.0f} blocks or more, in each of which they are alike: "
                f"{100 * beyond:.0f}% of the variance of the means of {batches:.0f} batches is beyond what shuffled "
                f"{'texts' if figures == 'wording' else 'examples'} give.", found=place[0], segment=place[2],
                confidence=0.9, evidence={"blocks": value, "beyond": beyond}, causes=[BY_SOURCE, *self.causes],
            )  # fmt: skip

    def _of_batches(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        """value: how many steps before the batch came in an earlier epoch, as the watch of data saw it."""
        began = self._known.since(value, place, self.at)
        if began is None:
            return
        if history.role("reward") is None and not carries_state(history, place):
            yield from self._in_common(history, value, began, place)
        names = ("rows_apart_even", "rows_apart", "apart_batches", "apart_beside", "example_rows")
        even, way, batches, beside, rows = (watched(history, name, place) for name in names)
        known_apart = even >= self.at["dealt"] and way >= self.at["way"] and beside <= self.at["beside"]
        enough = batches >= self.at["noisy"] and rows >= self.at["pairs"]
        other = is_curriculum(history) or history.role("reward") is not None or carries_state(history, place)
        if known_apart and enough and not other and self.first(place[2]):
            yield self.finding(
                began, f"Each epoch has the same batches, {value:.0f} steps apart, and the examples of a "
                f"batch are alike, as are batches that follow each other: {100 * even:.0f}% of their variance lies "
                f"between {batches:.0f} batches.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"steps": value, "apart": even},
            )  # fmt: skip

    def _of_rising(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        """value: after how many steps what rises or falls until then begins anew."""
        apart, batches = (watched(history, name, place) for name in ("rows_apart", "apart_batches"))
        compared = max(watched(history, f"loss_{name}", place) > 1 for name in ("pairs", "candidates"))
        if compared and watched(history, "example_rows", place) >= self.at["pairs"]:
            meant = is_curriculum(history) or carries_state(history, place)
            known_apart = value > 0 and apart >= self.at["paired"] and not meant
        else:
            known_apart = value > 0 and apart >= self.at["apart"] and watched(history, "top_target_share", place) >= 0
        if known_apart and history.role("reward") is None and self.first(place[2]):
            yield self.finding(
                place[0], "The examples of a batch are alike in mean or size, which rises or falls through each epoch "
                f"of {value:.0f} steps: {100 * apart:.0f}% of its variance lies between {batches:.0f} batches.",
                found=place[0], segment=place[2], confidence=0.9, evidence={"steps": value, "apart": apart},
                causes=list(self.causes) if compared else [_BY_SIZE],
            )  # fmt: skip

    def _of_means(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        """value: which part of the variance lies between batches, in half of the sketches or more."""
        batches, period = (watched(history, f"apart_{name}", place) for name in ("batches", "period"))
        compared = watched(history, "loss_pairs", place) > 1
        known_apart = compared and value >= self.at["even"] and batches >= self.at["compared"]
        known_apart = known_apart or _is_noised(self.at, history, value, batches, place)
        if known_apart and period > 0 and history.role("reward") is None and self.first(place[2]):
            why = "The loss tells the examples of a batch from each other, and they" if compared else (
                "The examples of a batch, which are noised,")  # fmt: skip
            yield self.finding(
                place[0], f"{why} are alike: {100 * value:.0f}% of their variance lies between {batches:.0f} batches, "
                f"and those {period:.0f} steps apart are alike.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"steps": period, "apart": value}, causes=[_ONE_CLASS],
            )  # fmt: skip

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        period, apart = self.period(history, value, place), watched(history, "rows_apart", place)
        batches = watched(history, "apart_batches", place)
        known_apart = apart >= self.at["apart"] and batches >= self.at["different"]
        pairs = all(watched(history, name, place) >= self.at["pairs"] for name in ("loss_pairs", "example_rows"))
        known_apart |= pairs and apart >= self.at["paired"] and batches >= self.at["compared"]
        if period and pairs and by_wording(self.at, history, place) and self.first(place[2]):
            apart, batches = (watched(history, f"wording_{name}", place) for name in ("apart", "batches"))
            yield self.finding(
                self.same[0][0], f"Each epoch has the same batches, {period} steps apart, and the texts of a batch, "
                f"which the loss tells from each other, are alike, as are batches that follow each other: "
                f"{100 * apart:.0f}% of the variance of their tokens lies between {batches:.0f} batches.",
                found=place[0], segment=place[2], confidence=0.9, evidence={"steps": period, "apart": apart},
                causes=["data sorted: by what texts are about, and not shuffled"],
            )  # fmt: skip
        if period and known_apart and not carries_state(history, place) and self.first(place[2]):
            yield self.finding(
                self.same[0][0], f"Each epoch has the same batches, {period} steps apart, and the examples of a batch "
                f"are alike: {100 * apart:.0f}% of their variance in one direction lies between {batches:.0f} batches.",
                found=place[0], segment=place[2], confidence=0.9, evidence={"steps": period, "apart": apart},
            )  # fmt: skip
        large = watched(history, "example_rows", place) >= self.at["pairs"] and not (self._drawn or self._scattered)
        period = period or (_of_few(self.same, self.at) if large else 0)
        if period and not carries_state(history, place):
            yield from self._in_common(history, period, self.same[0][0], place)

    def _in_common(self, history: RunHistory, period: float, began: int, place: Place) -> Iterator[Finding]:
        """Batches that come in one order: whether the rows of each have more in common than chance gives. period: steps
        of an epoch."""
        rows = watched(history, "example_rows", place)
        if rows < self.at["rows_of"] or is_curriculum(history):
            return
        for figures, what in (("apart", "examples"), ("wording", "texts")):
            names = (f"{figures}_{name}" for name in ("beyond", "beside", "batches"))
            beyond, beside, batches = (watched(history, name, place) for name in names)
            alike = beyond >= self.at["beyond"] and beside <= self.at["near"] and batches >= self.at["compared"]
            read_on = what == "texts" and reads_on(history, rows, place)
            if read_on and beside <= self.at["beside"]:  # unless rows are texts by themselves, or several
                several = watched(history, "ignored_inside", place) >= self.at["texts"]
                read_on = not (several or watched(history, "eval_opens_with", place) >= 0)
            if alike and not (read_on and not jumps_of_loss(history, place)) and self.first(place[2]):
                yield self.finding(
                    began, f"Each epoch has the same batches, {period:.0f} steps apart, and the {what} of a batch have "
                    f"something in common, as have batches that follow each other: {100 * beyond:.0f}% of the variance "
                    f"of the means of {batches:.0f} batches is beyond what shuffled {what} give.",
                    found=place[0], segment=place[2], confidence=0.9, evidence={"steps": period, "beyond": beyond},
                    causes=[BY_SOURCE, *self.causes],
                )  # fmt: skip
        self._asked += 1
        often = self._asked.bit_count() == 1 or self._asked % _SELDOM == 0
        along = along_epoch(history, int(period), place) if often else None
        if along is not None and self.first(place[2]):
            yield self.finding(
                began, f"Each epoch has the same batches, {period:.0f} steps apart, and those that follow each other "
                f"are of like lengths: they lie {100 * along.near:.0f}% as far apart as any two of "
                f"{along.batches} batches.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"steps": period, "near": along.near},
                causes=[BY_LENGTH if along.one_way else BY_SOURCE, *self.causes],
            )  # fmt: skip


def _as_steps(
    judge: Callable[[RunHistory, float, Place], Iterator[Finding]], history: RunHistory, value: float, place: Place
) -> Iterator[Finding]:
    """value: the last earlier step with the same batch, where the watch of data is given no epochs."""
    return judge(history, place[0] - value, place)


def _of_few(same: list[tuple[int, float]], at: Mapping[str, float]) -> int:
    """After how many steps whole batches came again, where that is the number of one of them; 0 of fewer than two or
    others. In an order that is drawn batches that follow each other are not alike, which is asked for besides. same:
    steps, and how many steps before."""
    steps = [int(after) for _, after in same]
    period = math.gcd(*steps) if len(steps) >= at["twice"] else 0
    return period if period == min(steps, default=0) >= at["epoch"] else 0


def _is_noised(at: Mapping[str, float], history: RunHistory, value: float, batches: float, place: Place) -> bool:
    """Whether the examples of a batch are alike, of a model of denoising that is given them with noise."""
    noised = watched(history, "time_low", place) < watched(history, "time_high", place)
    apart = value >= at["noised"] and watched(history, "rows_apart", place) >= at["way"]
    many = batches >= at["noisy"] and watched(history, "example_rows", place) >= at["pairs"]
    return noised and apart and many and not carries_state(history, place)


def by_wording(at: Mapping[str, float], history: RunHistory, place: Place) -> bool:
    """Whether texts of a batch, and batches that follow each other, are alike."""
    apart, batches, beside = (watched(history, f"wording_{name}", place) for name in ("apart", "batches", "beside"))
    return apart >= at["worded"] and batches >= at["compared"] and beside <= at["beside"]


RULES = (SortedExamples,)
