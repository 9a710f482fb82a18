"""What a model is given, as the watch saw it: examples that come again, and padding.

In:   figures of the watch.
Out:  findings of `CopiedExamples`, `RepeatedExamples`, `LaterTokens`, `PaddingMask`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from barograph.core.configuration import BATCH
from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import (
    RowCursor,
    came_by,
    known,
    numbers_named,
    numeric_setting,
    setting,
    usual,
)
from barograph.doctor.kernel.curve import again
from barograph.doctor.kernel.purpose import overfits_on_purpose
from barograph.doctor.kernel.rule import Rule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_PROOF = 0.95
_FEW, _AGAIN = 500, 0.9  # examples; of those of the last looks, that were known
SEEDED = "seed set in each step: what draws batches is made, or seeded, anew for each"
_STATES = "few examples in all: fewer than a batch has, as the states of a small game"
_ALL = ", which may be all examples"  # where no batch size is configured
_TRAINED = expression(  # how many examples a training has
    r"(?:(?:n|num|number|max|limit)[_-](?:of[_-])?)?train(?:ing)?[_-](?:set[_-])?"
    r"(?:rows|samples|examples|size|items|images|pairs|texts|sentences|documents|points)|(?:n|num|max)[_-]train(?:ing)?"
)
Place = tuple[int, int, int]  # step, time, segment
Source = tuple["Channel | None", Callable[["RunHistory", float, Place], "Iterator[Finding]"]]


class KnownBatches:
    """Batches in a row that the watch of data knows of an earlier epoch, all as many steps before."""

    def __init__(self) -> None:
        self._first, self._count = (0, 0.0, 0), 0  # its step, steps since the batch came before, launch

    def since(self, value: float, place: Place, at: Mapping[str, float]) -> int | None:
        """The step of the first, of `followed` of them or more, in an epoch of `epoch` steps or more; None of others.
        value: how many steps before this one came."""
        goes_on = self._count > 0 and self._first[1:] == (value, place[2])
        self._first, self._count = (self._first, self._count + 1) if goes_on else ((place[0], value, place[2]), 1)
        return self._first[0] if self._count >= at["followed"] and at["epoch"] <= value < math.inf else None


class WatchRule(Rule):
    """A rule that is asked for each row of its series, and counts rows in a row that are alike; or of several series,
    in the order of their times: which of them says something first is the same live and in replay."""

    series: ClassVar[str] = ""

    def channel(self, history: RunHistory) -> Channel | None:
        """The series whose rows it is asked for, as far as it is there."""
        return history.channel(self.series)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._row: list[Place] = []
        self._segment = -1

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        channels, looks = zip(*self.asked(history), strict=True)
        for which, place, value in self._cursor.in_order(*channels):
            yield from looks[which](history, value, place)

    def asked(self, history: RunHistory) -> list[Source]:
        """Series, and what is asked for each row of each."""
        return [(self.channel(history), self._own)]

    def _own(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if place[2] != self._segment:
            self._segment, self._row = place[2], []
            self.begin()
        yield from self.look(history, value, place)

    def begin(self) -> None:
        """Another launch."""

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        """A row."""
        raise NotImplementedError

    def lasts(self, holds: bool, place: Place, count: float) -> bool:
        """Whether something held in `count` rows up to this one, for the first time in a launch."""
        if not holds:
            self._row = []
            return False
        if len(self._row) < count:
            self._row.append(place)
        return len(self._row) >= count and self.first(place[2])


SAME_VIEWS = "views are the same: each example is there twice, as both sides of its pair"
_VIEWS = ("draw the augmentation of each view by itself: two calls of it, not one whose result is used twice",)
ALIKE = "chosen and rejected alike: the same examples, or cut to what they have in common"


def watched(history: RunHistory, name: str, place: Place) -> float:
    """What the watch last said of something at a place; NaN if nothing."""
    return known(history.channel(f"model/{name}"), *place)


def of_look(history: RunHistory, name: str, place: Place) -> float:
    """What the watch said of something in the look of a place; NaN if nothing, whatever an earlier look said."""
    channel = history.channel(f"model/{name}")
    if channel is None:
        return math.nan
    rows = channel.rows()
    here = rows.value[(rows.step == place[0]) & (rows.time <= place[1]) & (rows.segment == place[2])]
    return float(here[-1]) if len(here) else math.nan


def few_examples(history: RunHistory, place: Place) -> bool:
    """Whether the training has the same few hundred examples again and again: all of the last looks were known."""
    share = usual(history.channel("model/rows_again"), *place)
    return watched(history, "distinct_rows", place) < _FEW and share >= _AGAIN


def carries_state(history: RunHistory, place: Place) -> bool:
    """Whether the model's state was carried from one step into the next, in this launch so far: it reads streams."""
    carried = history.channel("model/state_carried")
    if carried is None or not came_by(carried, place[1]):
        return False
    rows = carried.rows()
    return bool((rows.value[(rows.segment == place[2]) & (rows.time <= place[1])] > 0).any())


def without_logarithm(history: RunHistory, place: Place) -> bool:
    """Whether it is `nll_loss` of what has no logarithm: below 0, whatever its sign is."""
    return any(watched(history, name, place) == 1 for name in ("nll_of_scores", "nll_of_probabilities"))


def _has_no_more(history: RunHistory, size: float, rows: float) -> bool:
    """Whether the configuration says that the training has no more examples than a batch. rows: those that were seen,
    as many as are looked at."""
    return any(rows <= number <= size for _, number in numbers_named(history, _TRAINED))


def _is_full(history: RunHistory) -> bool:
    """Whether the configuration says that each step has all examples."""
    return setting(history, "full_batch", "fullbatch", "use_full_batch") in (True, 1)


class CopiedExamples(WatchRule):
    """Half of a batch's examples or more are copies of others in it, in five looks in a row.

    Rows are compared by fingerprints of what the model is given. Where a policy is trained, a prompt is answered
    several times, and there is no finding; nor where all examples were seen before, and there are fewer of them than a
    batch has, as the states of a small game; where that is seen later, for its states come one by one, the finding
    becomes an info finding. Where the loss is a logistic one of differences of scores, or of their log
    probabilities, as its graph shows, and exactly half are copies, the chosen and the rejected of each pair are the
    same. Where exactly half are, and the loss matches rows with each other, the two views of an example are the same;
    so they are where nine tenths of the rows of a step's first two passes, or of the two inputs of a pass, are, and the
    loss is of pairs in the batch, of an answer beside a queue, of distances between two outputs or of cosines with what
    has no gradient. Two passes over one text that differ by their dropout are meant so.

    What to do: look at the sampler and at the collation: an index that is repeated, an `expand` or `repeat`; draw the
    augmentation of each view by itself.
    """

    name, family, kind, severity = "copied_examples", "data", "repeated_data", "warning"
    proves = "training"
    series = "model/batch_copies"
    needs = ("=model/batch_copies",)
    least = 5
    about = "A batch holds the same examples several times."
    thresholds: ClassVar = {
        "share": (0.5, "of a batch's examples; ours"),
        "looks": (5.0, "in a row; ours"),
        "views": (0.9, "of the rows of a step's two passes; ours"),
        "known": (0.99, "of a batch's examples, that were seen before; ours"),
    }
    causes = ("copied examples: a batch holds the same examples several times",)
    remedies = ("look at the sampler and at the collation: an index that comes again, an `expand` or `repeat`",)

    def begin(self) -> None:
        self._told: Finding | None = None

    def _matched(self, history: RunHistory, place: Place) -> bool:
        """Whether the loss matches what the model is given with each other, and no dropout tells two passes apart."""
        matched = watched(history, "loss_pairs", place) > 1 or watched(history, "loss_attracts", place) == 1
        matched = matched or watched(history, "loss_queue", place) > 0 or watched(history, "loss_aligns", place) == 1
        return matched and not watched(history, "dropout", place) > 0

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        policy = history.role("reward") is not None
        half, matched = value == 0.5, self._matched(history, place)
        if half and not matched and watched(history, "loss_pairs", place) > 1:
            return  # two passes over one text differ by their dropout
        both = matched and watched(history, "beside_copies", place) >= self.at["views"]
        few = watched(history, "distinct_rows", place) < watched(history, "example_rows", place)
        few = few and watched(history, "rows_again", place) >= self.at["known"]
        if few and self._told is not None and self._told.severity == "warning":
            self._told.severity, self._told.confidence, self._told.causes = "info", 0.3, [_STATES]
            yield again(self._told)
        if self.lasts((both or (value >= self.at["share"] and not few)) and not policy, place, self.at["looks"]):
            why = [ALIKE] * bool(watched(history, "loss_ranks", place) >= 0)
            if matched and (both or half):
                yield self.finding(
                    self._row[0][0], "The two views of an example are the same: a step's two passes are given the same "
                    "examples." if both else "The two views of an example are the same: each is in its batch twice.",
                    found=place[0], segment=place[2], confidence=_PROOF, causes=[SAME_VIEWS, *self.causes],
                    remedies=[*_VIEWS, *self.remedies], evidence={"share": value},
                )  # fmt: skip
                return
            self._told = self.finding(
                self._row[0][0], f"{100 * value:.0f}% of a batch's examples are copies of others in it.",
                found=place[0], segment=place[2], confidence=_PROOF, evidence={"share": value},
                causes=[*(why if value == 0.5 else []), *self.causes],
            )  # fmt: skip
            yield again(self._told)


class RepeatedExamples(WatchRule):
    """The first batches are the same, or each is used in several steps in a row.

    Of the first steps each is looked at. Where all examples of six looks in a row were seen before, the training has
    one batch: a warning where the configuration has a batch size, for data that fit a batch as a whole need none, or
    where an evaluation has four times as many rows; else, where the configuration says that one is to be learnt by
    heart (`overfit_batches`, `data: overfit_64_rows`), or that there are no more examples than a batch has
    (`train_rows`), an info finding. Where, of seven looks at consecutive steps,
    at least half repeat a batch that is at most four steps old, and new ones come after them, each batch is used
    several times; in a second epoch none is new. Where weights are written from outside with each new batch, and at
    no other of these steps, a batch has an inner loop, as in Reptile, and there is no finding. Later, where the
    examples of five looks in a row are those of the look before each of them, after others came, the batch has stayed:
    looks are 7 and 17 steps apart, so that no order of batches does it. Policies are trained on a batch several times
    on purpose.

    What to do: ask the loader for a new batch in each step.
    """

    name, family, kind, severity = "repeated_examples", "data", "repeated_data", "warning"
    proves = "training"
    series = "model/rows_again"
    needs = ("=model/rows_again",)
    least = 6
    about = "The same batch is trained on in several steps in a row."
    thresholds: ClassVar = {
        "share": (0.9, "of a batch's examples, and at most the rest of it where it is new; ours"),
        "looks": (6.0, "in a row: one batch; ours"),
        "steps": (4.0, "to the last look that had them; ours"),
        "looked": (64.0, "rows of a batch that are looked at: it may have more; the watch's"),
        "more": (4.0, "times as many rows of an evaluation, or of the configured batch; ours"),
        "worse": (3.0, "times the training's loss, of an evaluation of other rows; ours"),
        "stays": (5.0, "looks in a row with the examples of the look before; ours"),
    }
    causes = ("data exhausted: the same batch comes again in the next steps",)
    remedies = ("ask the loader for a new batch in each step: `next(batches)`, not the batch that is there",)

    def begin(self) -> None:
        self._near: list[bool] = []
        self._came: list[tuple[int, bool]] = []  # the steps of these, and whether a batch came again
        self._returned = False  # a new batch came after one that was there before: not a second epoch
        self._last = -2
        self._told: Finding | None = None
        self._wide = False  # the one batch has far more rows than are looked at
        self._stays: list[int] = []  # looks in a row with the same examples, the first one too

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if history.role("reward") is not None:
            return
        comes, rows = value >= self.at["share"], watched(history, "distinct_rows", place)
        after = watched(history, "rows_again_after", place) if comes else math.nan
        one = rows < 2 * watched(history, "example_rows", place)
        self._stays = [*(self._stays or [self._last]), place[0]] if comes and after == place[0] - self._last else []
        follows, self._last = self._last < 0 or place[0] == self._last + 1, place[0]
        if not one and len(self._stays) > self.at["stays"] and self.first("stays", place[2]):
            yield self.finding(
                self._stays[0], f"The {watched(history, 'example_rows', place):.0f} examples of step {self._stays[0]} "
                f"are those of the {len(self._stays) - 1} looks behind it.", key="stays", found=place[0],
                segment=place[2], confidence=_PROOF, evidence={"looks": len(self._stays)},
                causes=["data exhausted: the loader gives the same batch again and again"],
            )  # fmt: skip
        if self.lasts(comes and one, place, self.at["looks"]):
            size = numeric_setting(history, *BATCH)
            whole = _is_full(history)
            self._wide = not whole and size >= self.at["more"] * self.at["looked"] <= self.at["more"] * rows
            whole = whole or _has_no_more(history, size, rows)
            sized = size > 0 and not self._wide and not whole and not overfits_on_purpose(history)
            self._told = self.finding(
                self._row[0][0], "Each step is trained on the same " + (
                    f"{rows:.0f} examples." if rows < self.at["looked"] else f"batch: {rows:.0f} of its rows are seen."
                ),
                found=place[0], segment=place[2], confidence=_PROOF if sized else 0.5,
                severity="warning" if sized else "info", evidence={"examples": rows, "certain": True},
                causes=["data exhausted: the same batch in each step" + ("" if sized else _ALL), *[SEEDED] * sized],
                remedies=list(self.remedies) if sized else [f"Unless these are all examples: {self.remedies[0]}"],
            )  # fmt: skip
            yield again(self._told)
        told, small = self._told, watched(history, "example_rows", place) < self.at["looked"]
        more = small and watched(history, "evaluated_rows", place) >= self.at["more"] * rows
        if (
            told is not None
            and told.severity == "info"
            and comes
            and one
            and (more or (self._wide and self._is_worse(history, place)))
            and not overfits_on_purpose(history)
        ):
            told.severity, told.confidence = "warning", _PROOF
            told.causes, told.remedies = [told.causes[0].removesuffix(_ALL)], list(self.remedies)
            yield again(told)
        if follows and len(self._near) < 7 and (comes or value <= 1 - self.at["share"]):
            self._near.append(comes and after <= self.at["steps"])
            self._came.append((place[0], bool(comes)))
            self._returned = self._returned or (not comes and True in self._near)
            enough = self._returned and len(self._near) >= 6 and sum(self._near) >= 0.5 * len(self._near)
            if enough and not self._is_inner(history, place) and self.first("several", place[2]):
                yield self.finding(
                    place[0] - len(self._near) + 1, "A batch is trained on in several steps in a row: of "
                    f"{len(self._near)} steps {sum(self._near)} had one of the steps before.",
                    key="several", found=place[0], segment=place[2], confidence=_PROOF,
                    evidence={"steps": sum(self._near)},
                )  # fmt: skip

    def _is_worse(self, history: RunHistory, place: Place) -> bool:
        """Whether the last evaluation, of rows that none of the training are, is far worse than the training."""
        if watched(history, "evaluated_trained", place) != 0:
            return False
        ours, theirs = usual(history.role("loss"), *place, 16), known(history.role("eval_loss"), *place)
        return ours > 0 and theirs > self.at["worse"] * ours

    def _is_inner(self, history: RunHistory, place: Place) -> bool:
        """Whether weights are written with each new batch, and at no other step: each batch has an inner loop."""
        channel = history.channel("model/written")
        if channel is None:
            return False
        rows = channel.rows()
        here = (rows.segment == place[2]) & (rows.time <= place[1]) & (rows.value > 0)
        written = set(rows.step[here].tolist())
        return all((step in written) != again for step, again in self._came)


class LaterTokens(WatchRule):
    """A language model's attention sees the tokens that it is to predict.

    The targets are one place ahead of the inputs, and the attention has no mask that hides the next place: half of the
    queries or more see it. In a model that is given one row of tokens any layer that shows it is enough; where there
    are several, as in an encoder and decoder, the layer that shows the least. The loss falls far, and what is generated
    makes no sense. Where earlier places are hidden instead, the mask is inverted; where the next one
    is seen and not the one behind it, it is off by one.

    What to do: `is_causal=True`, or a mask that hides the places behind a query's own.
    """

    name, family, kind, severity = "later_tokens", "data", "data", "warning"
    proves = "training"
    series = "model/attention/next"
    needs = ("=model/attention/next", "=model/target_shift")
    about = "A language model sees the tokens that it is to predict."
    thresholds: ClassVar = {"share": (0.5, "of the queries that see the next place; ours")}
    causes = ("labels can be seen: the attention has no causal mask",)
    remedies = ("mask later places: `is_causal=True`, or a triangular mask that is added before the softmax",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        sees = value >= self.at["share"] and watched(history, "target_shift", place) == 1
        if not self.lasts(sees, place, 1):
            return
        second, earlier = (watched(history, f"attention/{name}", place) for name in ("second", "earlier"))
        causes, remedies = list(self.causes), list(self.remedies)
        if earlier == 0:
            causes = ["attention mask inverted: it hides earlier places, and shows those to be predicted"]
            remedies = ["torch's own layers take True for hidden, `scaled_dot_product_attention` True for seen"]
        elif second == 0:
            causes = ["attention mask off by one: each place sees the next one, which it is to predict"]
            remedies = ["`torch.triu(…, diagonal=1)` hides what comes; of what is seen it is `tril(diagonal=0)`"]
        yield self.finding(
            place[0], "The targets are one place ahead of the inputs, and the attention sees later places: the "
            "model is given what it is to predict.", found=place[0], segment=place[2], confidence=_PROOF,
            evidence={"next": value}, causes=causes, remedies=remedies,
        )  # fmt: skip


class PaddingMask(WatchRule):
    """The attention's mask of padding is inverted: it shows the padding, and hides the tokens.

    Padding is known from the tokens that the model is given: three times or more the same one at the end of several
    rows. In some layer nine tenths of all tokens are hidden from every query that was looked at, and in each nine
    tenths of the padding can be seen. Where the model's tables say which token is padding (`padding_idx`), one layer
    that hides nine tenths of the tokens of a text from all queries, and shows nine tenths of its padding, is enough
    (`model/attention/inverted`), as the encoder of two texts. Where nothing is masked, and each place sees all others,
    it is an info finding: the model has to learn by itself that padding says nothing. A warning where the model is
    given a mask or lengths that say where padding is: the attention does not use them.

    What to do: torch's own layers take True for hidden (`key_padding_mask = tokens == pad`); where scores are filled by
    hand it is the other way.
    """

    name, family, kind, severity = "padding_mask", "data", "padding", "warning"
    series = "model/attention/seen_padding"
    needs = ("=model/attention/seen_padding|=model/attention/inverted",)
    about = "The attention's mask of padding is inverted, or there is none."
    thresholds: ClassVar = {"share": (0.9, "of all tokens, and of the padding; ours")}
    causes = ("padding mask inverted: the attention sees the padding, and not the tokens",)
    remedies = ("torch's own layers take True for hidden: `key_padding_mask = tokens == pad`",)

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/attention/inverted"), self._inverted)]

    def _inverted(self, history: RunHistory, share: float, place: Place) -> Iterator[Finding]:
        if share >= self.at["share"] and self.first("inverted", place[2]):
            yield self.finding(
                place[0], f"In some layer {100 * share:.0f}% at least of a text's padding are seen, and of its tokens "
                "as many are hidden.", found=place[0], segment=place[2], confidence=_PROOF,
                evidence={"share": share, "standing": True},
            )  # fmt: skip

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if not value >= self.at["share"]:
            return
        hidden, following = (watched(history, f"attention/{name}", place) for name in ("hidden_tokens", "next"))
        if hidden >= self.at["share"] and self.first("inverted", place[2]):
            yield self.finding(
                place[0], f"The attention sees {100 * value:.0f}% of the padding, and {100 * hidden:.0f}% of the "
                "tokens are hidden from it.", found=place[0], segment=place[2], confidence=_PROOF,
                evidence={"hidden": hidden, "padding": value, "standing": True},
            )  # fmt: skip
        given = watched(history, "padding_given", place) == 1
        if hidden == 0 and following >= self.at["share"] and self.first("given" if given else "none", place[2]):
            yield self.finding(
                place[0], "The attention has no mask of padding: all places see it"
                f"{', though the model is given where it is' if given else ''}.", found=place[0], segment=place[2],
                severity="warning" if given else "info", confidence=0.9 if given else 0.6,
                evidence={"padding": value}, key="given" if given else "none",
                causes=["no padding mask: padding is read like tokens"],
                remedies=["hide padding from the attention: `key_padding_mask = tokens == pad`"],
            )  # fmt: skip


RULES = (CopiedExamples, RepeatedExamples, LaterTokens, PaddingMask)
