"""Evaluations that are given parts of what was trained on: windows that overlap, and examples in another order.

In:   figures of the watch, of rows of numbers.
Out:  findings of `EvaluationOverlaps`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import RowCursor, came_by, evaluations_of, usual
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.data.examples import Place, of_look, watched
from barograph.doctor.rules.data.trained_rows import chance_of_all, says_trained, sides

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


_SURE = 0.2  # of the rows, that have a passage by chance, up to which that is well known
_SHORT = 8  # tokens of a passage by which short rows are compared
_KEPT = 2048  # rows of the training that the watch keeps sketches of
_GROUPED = ", as {:.0f}% of the training's are to each other: groups of examples are on both sides"


class EvaluationOverlaps(Rule):
    """Evaluations are given windows or texts that overlap with the training's, or its examples mirrored or turned.

    Of rows of floating point numbers the watch compares more than whole rows. Of a series it takes fingerprints of four
    pieces, a quarter of the window long, chosen by what is in them and not by their place: a piece that was trained on,
    at an earlier place of its window, is one of a window that overlaps and goes on behind the evaluation's. Where it
    stood later, the training's window ended before, as where each series is split by time and the past is given to
    say what follows. Of a picture it takes one fingerprint of all its
    numbers, whatever their order, which is the same when it is mirrored, turned or rolled. Exact numbers are compared:
    noise, or a normalisation of each window by itself, hides all of it, and what is alike by chance is not found. Rows
    in which numbers are repeated say nothing, and where all examples are made of a few, as drawn letters are, their
    order is the task.

    Of a picture it takes the sixteen squares with the least fingerprints, too, a quarter of its shorter side long
    (`model/evaluated_cuts`): cuts of one larger picture that overlap have all in common that both have, in squares at
    other places that all lie equally far apart. What was drawn into two pictures has other things around it in
    each.

    Near copies, as with noise or another brightness, show in sketches of rows of eight numbers or more, of which three
    quarters differ, or 32: the nearest row of the training is nearer than three fifths of the distance of the tenth
    nearest, or half of it where rows are pictures, or than one in twenty is by chance where the dimensions are few, as
    the fortieth nearest tells. Of pictures it is that or the same for the amplitudes of their spectra, which mirrors
    and moves leave as they are. Of pictures in many dimensions, where chance brings hardly any that near, three in
    twenty are enough: of copies that are cut, moved and wiped out in part anew for each epoch many are not known again.
    Groups of ten examples or more that are that near each other, as classes are, say nothing; nor do classes of fewer
    than thirty rows each, of those of the training that were looked at. Where the share of the training's own rows that
    are that near to another (`model/evaluated_near_groups`) is half of the evaluation's or more, the examples come in
    groups, as a customer's months or a machine's recordings do, which may be on both sides on purpose: that is an info
    finding. Pictures are photographs of one thing then, and it is a warning, unless pairs are matched
    (`model/loss_pairs`). So it is of rows with classes, three tenths of which or more are that near, unless an option
    of the split says so (`split: within subject`, `validation: last weeks`).

    Where as many rows are exactly ones of the training (`evaluation_examples`), that says it all.

    A model of denoising is given examples that noise hides. Input and target of a row span a plane in which its example
    lies, whatever the noise (`model/evaluated_near_noised`): there the least angle between the planes of two rows is
    their distance, and it takes three quarters of the rows, each a third as far as the tenth nearest: pictures of a few
    spots or waves are alike by chance more often than a number of dimensions says.

    Of texts it takes fingerprints of eight passages of a row, of eight tokens, and of eight passages of 32, again by
    what is in them: rows that have a document in common have some of these in common, however it is packed, cut or
    masked. As many as the evaluation's own rows have in common with each other, or the training's first batches with
    those before, are there by chance; batches of like texts (`model/wording_beyond`) have less in common with each
    other, and it takes three tenths of the rows.

    Windows of one text overlap with each other on each side, too, so that passages say nothing of them. There the end
    of an evaluation's row is the beginning of a row that was trained on, in half of the row or more: all passages of
    that part that can be compared are the same in both, equally far apart. What texts share by chance is as often at
    the same place of two rows; it is allowed for, and a window that was trained on and ends before is none of these.

    Other wordings and editions of one text are near copies: of eight passages of twelve tokens five or more are those
    of one row of the training or a few (`model/evaluated_kin`), and one at most is that of the tenth nearest, as what
    texts of one kind share is. A row of the training that ends before is none of these. Of rows with less than 24
    places passages have eight tokens, and it takes two fifths of the rows, for these are alike by chance more often; of
    longer ones it takes half where nine rows in ten or more have a passage in common with the training by chance, as
    lists of a few words do.

    Other words for the same, as phrasings of one fact or tellings in another order, have no long passage in common.
    There a row and its sibling in the training have three fifths or more of all that the row weighs, by tokens and
    pairs of them, of which those weigh most that few rows have, and eight such tokens or ten such pairs; and from there
    to the tenth nearest row it is two and a half times as far as from that to the hundredth, where it is about as far
    by chance (`model/evaluated_siblings`); or four times where it is weighed by what few of the fifty nearest rows
    have, as the names in texts of one form. It takes three in twenty of the rows. Rows of the training that are ours so
    far, as users' histories, are none; nor are rows without padding, as of a table in which a user comes in several, or
    windows of a text that begin anywhere.

    Pictures of one thing, as frames of one film, need not be so near: noise, and what augmentation does to the
    training's, lie between. The first four ranks of an evaluation's distances to the training say it of all rows
    together (`model/evaluated_leap`). Of pictures that were drawn one by one these lie about as far apart, times their
    rank, as later ones, in means over blocks and in the directions in which the evaluation varies most. Where it is
    1.9 times as far in the mean of 16, 24 and 32 directions, and 1.7 times in each (`model/evaluated_leap_least`), in
    two evaluations in a row, siblings are in the training. Pictures of a few smooth parts leap in many directions
    alone. Where the training's rows that were looked at are fewer than thirty for each of the model's outputs, which
    may be classes, and where pairs are matched, nothing is said.

    A quarter of the rows that were looked at (beyond chance three in twenty of passages, and half of what chance gives
    above a fifth on top, for that is an estimate, and three standard errors; one in ten of windows of a text; for the
    watch keeps only those of the steps that it looks at), eight or more, and some in each pass, or in seven tenths of
    them and three times as large a share of the passes as of the rows, in two evaluations in a
    row. Where a series is split by time, the first windows of the evaluation may overlap with the last ones of the
    training: a few of many. Where a reward is logged, nothing is said.

    Where the names of all evaluations say that these are of what was trained on (`train_subset/loss`), it is an info
    finding. Of texts nothing is said where a quarter of the evaluation's or more come whole in the training, half as
    many again at most as by chance, by how often new ones of the training had come before: they are of a small
    language, whose texts are near each other. Of answers that are compared it may be twice that: the evaluation's rows
    that are looked at are those of one side, the training's of both.

    What to do: cut the series first, and windows out of each part; split originals, and augment only those of the
    training.
    """

    name, family, kind, severity = "evaluation_overlaps", "eval", "eval", "warning"
    proves = "evaluation"
    needs = ("=model/evaluated_overlap|=model/evaluated_rearranged|=model/evaluated_near|=model/evaluated_passages|"
             "=model/evaluated_windows|=model/evaluated_kin|=model/evaluated_siblings|=model/evaluated_leap|"
             "=model/evaluated_cuts",
             "eval_loss|eval_accuracy|evaluation")  # fmt: skip
    least = 2
    about = "Evaluations are given windows or texts that overlap with the training's, or its examples mirrored."
    thresholds: ClassVar = {
        "known": (0.9, "of the near copies, rows that are exactly ones of the training; ours"),
        "share": (0.25, "of an evaluation's rows that were looked at; ours"),
        "passages": (0.15, "of them, of passages, beyond those that chance gives; ours"),
        "windows": (0.1, "the same, of windows of a text; ours"),
        "siblings": (0.15, "of them, of texts that say the same in other words; ours"),
        "short": (0.4, "of them, of near copies of texts that are compared by passages of eight tokens; ours"),
        "often": (0.9, "of an evaluation's rows, that have a passage in common by chance: texts of a few words; ours"),
        "of_often": (0.5, "of them, of near copies of such texts; ours"),
        "pictures": (0.15, "of them, of pictures, where hardly any are that near by chance; ours"),
        "none": (0.005, "of pictures, that are that near by chance, at most, for that; ours"),
        "noised": (0.75, "of them, of examples behind noise; ours"),
        "rows": (8.0, "ours"),
        "passes": (0.7, "of the evaluation, that have some of them, unless all have; ours"),
        "spread": (3.0, "times that share of the rows, that those passes are: rows at a border are in a few; ours"),
        "evaluations": (2.0, "in a row; ours"),
        "batches": (3.0, "of different rows that the training has had; ours"),
        "classes": (30.0, "rows of the training that were looked at for each class; ours"),
        "chance": (0.5, "of the rows, that have a passage by chance, at most; ours"),
        "alike": (0.6, "of the variance of batches' means, beyond chance: batches of like texts; ours"),
        "of_alike": (0.3, "of the rows, of passages, beyond chance, where batches are of like texts; ours"),
        "unsure": (0.5, "of these above a fifth of the rows, by which there have to be more: it is an estimate; ours"),
        "errors": (3.0, "standard errors of what chance gives, beyond it; ours"),
        "leap": (1.9, "times what later ranks lie apart, that the first four do, of pictures; ours"),
        "each": (1.7, "the same, in each number of directions; ours"),
        "matched": (1.0, "pairs of a loss that matches them, at most, for that; ours"),
        "whole": (0.25, "of an evaluation's texts, that come whole by chance, as of a small language; ours"),
        "grouped": (0.5, "of the evaluation's share, that the training's rows near another are; ours"),
        "labelled": (0.3, "of the evaluation's rows, where they have classes; ours"),
    }

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._row: dict[str, list[tuple[int, int]]] = {}

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from self._parts_of(history)
        yield from self._leaps(history)

    def _leaps(self, history: RunHistory) -> Iterator[Finding]:
        """Evaluations whose pictures have siblings in the training."""
        for place, value in self._cursor.each(history.channel("model/evaluated_leap")):
            row = self._row.setdefault("leap", [])
            enough = value >= self.at["leap"]
            enough = enough and watched(history, "evaluated_leap_least", place) >= self.at["each"]
            other = self._by_class(history, place, True) or watched(history, "loss_pairs", place) > self.at["matched"]
            if not enough or other or (row and row[0][1] != place[2]):
                row.clear()
            if not enough or other or history.role("reward") is not None:
                continue
            row.append((place[0], place[2]))
            known = came_by(evaluations_of(history), place[1])
            if known and len(row) >= self.at["evaluations"] and self.first("near", place[2]):
                count = watched(history, "evaluated_leap_rows", place)
                _, cause, remedy = _PARTS["near"]
                yield self.finding(
                    row[0][0], f"Of {count:.0f} pictures of an evaluation the first few that are nearest in the "
                    f"training lie {value:.1f} times as far apart, by rank, as those behind them: pictures of the same "
                    "things are on both sides.", key="near", found=place[0], segment=place[2], confidence=0.85,
                    evidence={"leap": value}, causes=[cause], remedies=[remedy],
                )  # fmt: skip

    def _parts_of(self, history: RunHistory) -> Iterator[Finding]:
        """Evaluations of which a share of the rows has something of the training."""
        for name, (what, cause, remedy) in _PARTS.items():
            for (step, time, segment), value in self._cursor.each(history.channel(f"model/evaluated_{name}")):
                place, value = (step, time, segment), value
                row = self._row.setdefault(name, [])
                count = watched(history, f"evaluated_{name}_rows", place)
                batches = watched(history, "distinct_rows", place) / max(1.0, watched(history, "example_rows", place))
                least = self.at[name if name in ("passages", "windows", "siblings") else "share"]
                pictures = name == "near" and watched(history, "evaluated_near_pictures", place) == 1
                if pictures and watched(history, "evaluated_near_chance", place) <= self.at["none"]:
                    least = self.at["pictures"]
                if name == "near" and of_look(history, "evaluated_near_noised", place) == 1:
                    least = self.at["noised"]
                if name == "passages" and watched(history, "wording_beyond", place) >= self.at["alike"]:
                    least = self.at["of_alike"]
                if name == "kin":
                    least = self._of_kin(history, place)
                of_texts = name in ("passages", "windows")
                many = value >= least and value * count >= self.at["rows"]
                passes = watched(history, f"evaluated_{name}_passes", place)
                spread = passes == 1 or passes >= max(self.at["passes"], self.at["spread"] * value)
                many = many and (name == "kin" or spread)
                many = many and not (name == "near" and self._by_class(history, place))
                many = many and not (name == "near" and self._are_whole(history, value, place))
                many = many and (name != "siblings" or _are_texts(history, place))
                many = many and not (name in _OF_TEXTS and self._are_alike(history, place))
                if of_texts:
                    chance = watched(history, f"evaluated_{name}_chance", place)
                    beyond = (value - chance) / max(1 - chance, 1e-9)
                    unsure = self.at["unsure"] * max(0.0, chance - _SURE) if name == "passages" else 0.0
                    many = many and chance <= self.at["chance"] and beyond >= least + unsure
                    error = math.sqrt(max(0.0, chance * (1 - chance)) / max(1.0, count))
                    many = many and beyond * count >= self.at["rows"] and value - chance >= self.at["errors"] * error
                if not (many and batches >= self.at["batches"]) or (row and row[0][1] != place[2]):
                    row.clear()
                if not (many and batches >= self.at["batches"]) or history.role("reward") is not None:
                    continue
                row.append((place[0], place[2]))
                known = came_by(evaluations_of(history), place[1])
                groups = watched(history, "evaluated_near_groups", place) if name == "near" else 0.0
                grouped = groups >= self.at["grouped"] * value
                labelled = value >= self.at["labelled"] and watched(history, "top_target_share", place) >= 0
                one_thing = (pictures or (labelled and not _is_split_so(history))) and not (
                    watched(history, "loss_pairs", place) > 1)  # fmt: skip
                meant = (grouped and not one_thing) or says_trained(history)
                if known and len(row) >= self.at["evaluations"] and self.first(name, place[2]):
                    yield self.finding(
                        row[0][0], f"Of {count:.0f} examples of an evaluation that were looked at {value * count:.0f} "
                        f"{what}{_GROUPED.format(100 * groups) if grouped else ''}.", key=name, found=place[0],
                        segment=place[2], severity="info" if meant else self.severity,
                        confidence=0.5 if meant else 0.9 if grouped else 0.95, evidence={"share": value},
                        causes=[cause], remedies=[remedy],
                    )  # fmt: skip

    def _of_kin(self, history: RunHistory, place: Place) -> float:
        """The share of an evaluation's rows that takes near copies, by how alike texts are by chance."""
        if watched(history, "evaluated_kin_size", place) == _SHORT:
            return float(self.at["short"])
        often = watched(history, "evaluated_passages_chance", place) >= self.at["often"]
        return float(self.at["of_often" if often else "share"])

    def _are_alike(self, history: RunHistory, place: Place) -> bool:
        """Whether many of an evaluation's texts come whole in the training, and no more of them than by chance."""
        whole = watched(history, "evaluated_known", place)
        most = sides(history, place) * _ABOUT * chance_of_all(history, place)
        return whole >= self.at["whole"] and whole <= most

    def _are_whole(self, history: RunHistory, value: float, place: Place) -> bool:
        """Whether as many of an evaluation's rows are exactly ones that were trained on: that is said by itself."""
        return watched(history, "evaluated_known", place) >= self.at["known"] * value

    def _by_class(self, history: RunHistory, place: Place, mixed: bool = False) -> bool:
        """Whether rows that are near each other may be those of one class. mixed: of targets that may be mixed, too,
        which are not seen to be classes."""
        classes = watched(history, "output_width", place)
        has_classes = mixed or watched(history, "top_target_share", place) >= 0
        rows = min(_KEPT, watched(history, "distinct_rows", place))
        return has_classes and rows < self.at["classes"] * classes


def _is_split_so(history: RunHistory) -> bool:
    """Whether the configuration says that evaluations are of what the training knows: later rows of the same, or a
    closed set."""
    return any(
        isinstance(value, str) and _SPLIT.search(name.rpartition(".")[2]) and _KNOWN.search(value)
        for name, value in history.options.found.items()
    )


def _are_texts(history: RunHistory, place: Place) -> bool:
    """Whether rows of tokens are whole texts, most batches of which have padding: not a table's, and no windows that
    begin anywhere, as of a language of few words, which are alike by chance."""
    return usual(history.channel("model/input_length_std"), *place) > 0


_SPLIT = expression(
    r"(?i)split|hold_?out|held_out|fold|(?:^|_)(?:valid(?:ation)?|eval(?:uation)?|test)(?:_(?:set|on|of|by|rows|data))?$"
)
_KNOWN = expression(r"(?i)(?<![a-z])(?:time|later|next|last|within|closed|dependent|known|same|seen)(?![a-z])")
_ABOUT = 1.5  # times what chance gives, which is an estimate
_OF_TEXTS = ("passages", "windows", "kin", "siblings")
_PARTS = {  # by series: what is said, why, and what to do
    "overlap": (
        "overlap with windows that were trained on and that go on behind them",
        "validation leak: windows of one series overlap, and were split after they had been cut",
        "cut the series into parts for training and evaluation first, then windows out of each part",
    ),
    "cuts": (
        "have a part in common with a picture that was trained on, at another place, and all that is around it",
        "validation leak: cuts of one picture overlap, and were split after they had been cut",
        "split the pictures, or the parts of a large one, first, and cut each side by itself",
    ),
    "rearranged": (
        "have exactly the numbers of an example that was trained on, if in another order",
        "validation leak: evaluation examples are those of the training, mirrored, turned or rolled",
        "split the originals before anything is augmented, and augment the training's alone",
    ),
    "passages": (
        "have a passage of text that was trained on",
        "validation leak: texts of the evaluation are among those of the training, packed, cut or masked anew",
        "split the documents first, then pack, cut and mask those of each part",
    ),
    "windows": (
        "end as rows of text begin that were trained on and that go on behind them",
        "validation leak: windows of one text overlap, and were split after they had been cut",
        "cut the text into parts for training and evaluation first, then windows out of each part",
    ),
    "kin": (
        "have most of their passages in common with one or a few rows of text that were trained on, few with others",
        "validation leak: texts of the evaluation are near copies of those of the training, as other wordings of them",
        "split the originals first, and keep what was made of one, or says the same, on one side",
    ),
    "siblings": (
        "have most of their tokens in common with one or a few rows that were trained on, far more than with others",
        "validation leak: other wordings of evaluation examples are among those of the training",
        "split by what rows are about: keep all wordings, copies and pieces of one thing on one side",
    ),
    "near": (
        "are nearly an example that was trained on, far nearer than examples are to each other",
        "validation leak: evaluation examples are near copies of those of the training",
        "split the originals before anything is augmented or cut, and keep what belongs together on one side",
    ),
}

RULES = (EvaluationOverlaps,)
