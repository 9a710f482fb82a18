"""Evaluations whose examples are among those that were trained on, to the last number.

In:   figures of the watch: which of an evaluation's rows were trained on before.
Out:  findings of `EvaluationExamples`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.purpose import overfits_on_purpose
from barograph.doctor.rules.data.examples import WatchRule, watched
from barograph.doctor.rules.rl.preference import margins_of

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding
    from barograph.doctor.rules.data.examples import Place

_PROOF = 0.95
_ALL, _MORE = 0.9, 1.5  # of the rows: another epoch; times as many as are expected by those before
_REPEATS, _NONE = 0.25, 3.0  # of rows that had come before: another epoch; rows, that none of a sample may stand for
_END = 1 << 62
_BOUND = 1.645  # deviations of a count, with these three: what it stands for at most, in 95 of 100 samples


_OF_TRAINING = expression(  # names of evaluations that are of what was trained on, and say so
    r"(?i)(?:^|.*[/._-])(?:eval(?:uat\w+)?|valid(?:ation)?|val|test|seen|on|of|from|in|fit)[_-](?:the[_-])?"
    r"train(?:ing|ed)?(?:[/._-].*|$)|"
    r"(?:^|.*[/._-])train(?:ing|ed)?[_-](?:rows|pairs|examples|samples|subset|set|data|texts|images|logs|split|seen)"
    r"(?:[/._-].*|$)|(?:^|.*[/._-])(?:already[_-])?seen[_-]\w+(?:/.*|$)"
)


def says_trained(history: RunHistory) -> bool:
    """Whether each evaluation, by its series' name, is one of rows that were trained on (`train_subset/loss`)."""
    roles = (history.role(name) for name in ("eval_loss", "eval_accuracy", "evaluation"))
    names = [channel.name for channel in roles if channel is not None]
    return bool(names) and all(_OF_TRAINING.match(name) for name in names)


def sides(history: RunHistory, place: Place) -> int:
    """Of how many kinds the training's rows are, of which those of an evaluation that are looked at may be one: of
    answers that are compared these are often the ones that were liked."""
    return 2 if watched(history, "loss_ranks", place) >= 0 or margins_of(history) is not None else 1


class EvaluationExamples(WatchRule):
    """Evaluations are given examples that were trained on.

    Fingerprints of some of an evaluation's rows are compared with those of the training's rows: of the steps that
    were looked at, and of all steps (`model/evaluated_known`). An eighth of the rows and four or more, and some in
    each pass, in two evaluations in a row, is a warning; a twentieth, as where short rows are alike by chance, an
    info finding. So is as many as chance gives, by how many new rows of the training had come before, which is a
    count of some rows (its bound in 95 of 100 samples is taken), and one more: fewer than four deviations more; of
    steps that were looked at up to a quarter, unless of texts, or all where chance gives two fifths. Of answers that
    are compared chance gives twice as many: the evaluation's that are looked at may all be liked ones. Series of
    numbers, three quarters of which differ (`model/evaluated_overlap_varied`), are copies, whatever the training
    repeats. Of a run that is over, with one evaluation alone that was seen, but for one without such rows behind
    its last step, as of a test set, a quarter is enough, of 64 rows or more. Rows of all passes of a step count, as
    of its micro-batches. Where the training has fewer than three batches of different rows, as of a graph that is
    one input, or rows are alike by chance, nothing is said; nor of what a policy has generated. Passes without
    gradients beside which no evaluation is logged are none, where one is beside others: they look for hard
    examples, or fill a memory. Where the names of all evaluations say that these are of what was trained on
    (`train_subset/loss`, `eval_on_train/acc`), or the configuration has a few batches learnt by heart
    (`overfit_batches: 3`), it is an info finding.

    What to do: split before anything is drawn, by what belongs together (documents, persons, scenes).
    """

    name, family, kind, severity = "evaluation_examples", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/evaluated_trained"
    needs = ("=model/evaluated_trained", "eval_loss|eval_accuracy|evaluation")
    least = 1
    about = "Evaluations are given examples of the training."
    thresholds: ClassVar = {
        "share": (0.125, "of an evaluation's rows that were looked at; ours"),
        "some": (0.05, "of them, which inform; ours"),
        "rows": (4.0, "ours"),
        "evaluations": (2.0, "in a row; ours"),
        "single": (64.0, "rows that were looked at of an evaluation that is the only one; ours"),
        "batches": (3.0, "of different rows that the training has had; ours"),
        "again": (0.25, "of a batch that had come before: the training begins to repeat its examples; ours"),
        "spreads": (4.0, "more than by chance; ours"),
        "all": (0.9, "of an evaluation's rows, that no chance explains; ours"),
        "half": (0.4, "the same by chance, of a small space, where as many prove nothing; ours"),
        "varied": (0.9, "of an evaluation's rows, that are series of numbers three quarters of which differ; ours"),
        "most": (0.25, "of an evaluation's rows, that chance may explain: rows may be copied before a split; ours"),
    }
    causes = ("validation leak: evaluation examples are among those of the training",)
    remedies = ("split before anything is drawn, and by what belongs together: documents, persons, scenes",)

    def begin(self) -> None:
        self._some = self._count = 0
        self._single: tuple[float, Place] | None = None  # of a launch's first evaluation, with copies enough

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from super().examine(history)
        if history.facts.get("finished") and self._segment >= 0 and self._count == 1 and self._single is not None:
            value, place = self._single
            if not _is_none(history, place, (_END, _END, place[2])) and self.first(place[2]):
                yield self._say(history, value, place, place[0], True)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if _is_none(history, place, place):
            return
        names = ("evaluated_rows", "distinct_rows", "example_rows", "evaluated_last")
        rows, distinct, batch, last = (watched(history, name, place) for name in names)
        asked = distinct >= self.at["batches"] * max(1.0, batch) and history.role("reward") is None
        every = watched(history, "evaluated_known", place)  # of all steps
        some = asked and self._are_some(value, rows, watched(history, "evaluated_trained_passes", place))
        any_step = asked and self._are_some(every, rows, watched(history, "evaluated_known_passes", place))
        has = some or any_step
        self._some, self._count = self._some + 1 if has else 0, self._count + (has or last != 1 or not self._count)
        by_chance = min(1.0, sides(history, place) * chance_of_all(history, place))
        small = by_chance >= self.at["half"] and every < self.at["all"]
        small = small and not self._is_beyond(every, rows, by_chance)
        # of a series of numbers most of which differ, no row is another one's copy by chance
        exact = watched(history, "evaluated_overlap_varied", place) >= self.at["varied"]
        small = small and not exact
        beyond_any = any_step and (exact or self._is_beyond(every, rows, by_chance))
        # numbers with fractions are alike where they are copies; texts of few words by chance, too
        words = math.isfinite(watched(history, "token_mean", place)) and math.isfinite(by_chance)
        copied = exact or (value >= self.at["most"] and (beyond_any or not words or every >= self.at["all"]))
        beyond = (
            some
            and not small
            and (copied or self._is_beyond(value, rows, sides(history, place) * self._chance(history, place)))
        )
        share = every if any_step else value
        single = (beyond or beyond_any) and share >= self.at["most"] and rows >= self.at["single"]
        self._single = (share, place) if single and self._count == 1 else self._single
        holds = (beyond and value >= self.at["share"]) or (beyond_any and every >= self.at["share"])
        many = self.lasts(holds, place, self.at["evaluations"])
        some = self._some == self.at["evaluations"] and not says_trained(history)
        if many or (some and self.first(place[2], "some")):
            yield self._say(history, share, place, self._row[0][0] if many else place[0], many)

    def _are_some(self, share: float, rows: float, passes: float) -> bool:
        return share * rows >= self.at["rows"] and share >= self.at["some"] and passes == 1

    def _is_beyond(self, share: float, rows: float, chance: float) -> bool:
        return share * rows >= rows * chance + self.at["spreads"] * math.sqrt(rows * chance + 1)

    def _say(self, history: RunHistory, value: float, place: Place, step: int, many: bool) -> Finding:
        rows = watched(history, "evaluated_rows", place)
        meant = overfits_on_purpose(history)
        sure, named = many and not meant and not says_trained(history), ", as is meant" if meant else ""
        named = ", as its name says" if says_trained(history) else named
        return self.finding(
            step, f"Of {rows:.0f} examples of an evaluation that were looked at {value * rows:.0f} were trained on "
            f"before{named}.", severity=self.severity if sure else "info", key="" if many else "some",
            found=place[0], segment=place[2], confidence=_PROOF if sure else 0.3, evidence={"share": value},
        )  # fmt: skip

    def _chance(self, history: RunHistory, place: Place) -> float:
        """The share of an evaluation's rows that came in the training by chance, as new ones of its own had before: of
        a step's first pass those that are in the first passes before, of its others those that are in any."""
        names = ("rows_again", "example_rows", "distinct_rows", "beside_again", "beside_rows", "beside_distinct")
        found = (_until(history.channel(f"model/{name}"), place) for name in names)
        seen, rows, distinct, again, beside, others = found
        had = pairs = before = all_before = 0.0
        for step, count in distinct.items():
            first, other = rows.get(step, 0.0), beside.get(step, 0.0)
            here = seen.get(step, 0.0) * first + again.get(step, 0.0) * other
            if here > self.at["again"] * (first + other):
                break
            had, pairs = had + here, pairs + before * first + all_before * other
            before, all_before = count, count + others.get(step, 0.0)
        every = max(distinct.values(), default=0.0) + max(others.values(), default=0.0)
        return 1 - math.exp(-had / pairs * every) if pairs else 0.0


class EvaluationCopies(WatchRule):
    """Evaluations are given rows of the training, which has them several times.

    Where batches have the same row twice, rows may be of a small space, and alike by chance. Here they are not: in a
    column of theirs nine tenths or more of the different rows have a number of their own. A quarter of an
    evaluation's rows or more, 16 at least, and some in each pass, are rows of the training in all that the model is
    given (`model/evaluated_copies`), in two evaluations in a row: a table that has its rows several times was split
    row by row. Where the training has fewer than three batches of different rows, or a reward is logged, nothing is
    said; where the names of all evaluations say that they are of what was trained on (`train_subset/loss`), it is an
    info finding.

    What to do: take each row once, or split by what rows are of.
    """

    name, family, kind, severity = "evaluation_copies", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/evaluated_copies"
    needs = ("=model/evaluated_copies", "eval_loss|eval_accuracy|evaluation")
    least = 2
    about = "Evaluations are given rows of the training, which has them several times."
    thresholds: ClassVar = {
        "share": (0.25, "of an evaluation's rows that were looked at; ours"),
        "rows": (16.0, "of them; ours"),
        "evaluations": (2.0, "in a row; ours"),
        "batches": (3.0, "of different rows that the training has had; ours"),
    }
    causes = ("validation leak: the data has rows several times, and was split row by row",)
    remedies = ("take each row once before the split, or split by what rows are of",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if _is_none(history, place, place):
            return
        rows, passes, of = (watched(history, f"evaluated_copies_{name}", place) for name in ("rows", "passes", "of"))
        several = of >= self.at["batches"] * max(1.0, watched(history, "example_rows", place))
        has = several and value >= self.at["share"] and value * rows >= self.at["rows"] and passes == 1
        if self.lasts(has and history.role("reward") is None, place, self.at["evaluations"]):
            named = says_trained(history)
            yield self.finding(
                self._row[0][0], f"Of {rows:.0f} rows of an evaluation that were looked at {value * rows:.0f} are rows "
                "of the training in all that the model is given, and the training has rows several times.",
                found=place[0], segment=place[2], severity="info" if named else "warning",
                confidence=0.3 if named else 0.9, evidence={"share": value},
            )  # fmt: skip


def _is_none(history: RunHistory, place: Place, by: Place) -> bool:
    """Whether no evaluation was logged between the training's row before these passes and the one that they are counted
    to, and one was beside other passes. by: up to where that is known."""
    roles = (history.role(name) for name in ("eval_loss", "eval_accuracy", "evaluation"))
    logged = numpy.unique(numpy.concatenate([_steps(channel, by) for channel in roles]))
    trained = numpy.unique(_steps(history.role("loss"), by))

    def is_logged(step: int) -> bool:
        at = int(numpy.searchsorted(trained, step))
        before = int(trained[at - 1]) if at else step - 1
        return bool(((logged >= before) & (logged <= step)).any())

    passes = _steps(history.channel("model/evaluated_apart"), by)
    return len(logged) > 0 and not is_logged(place[0]) and any(map(is_logged, passes.tolist()))


def _steps(channel: Channel | None, by: Place) -> Any:
    """The steps of a launch's rows that had come by a place."""
    if channel is None or not channel.end:
        return numpy.empty(0, dtype=int)
    rows = channel.rows()
    return rows.step[(rows.segment == by[2]) & (rows.step <= by[0]) & (rows.time <= by[1])]


def chance_of_all(history: RunHistory, place: Place) -> float:
    """The share of an evaluation's rows that came in any step of the training by chance, as new ones of its own had
    before, between two looks: at most, by the bound of their count; NaN where that is not known."""
    names = ("between_rows", "between_again", "between_known")
    rows, again, known = (_until(history.channel(f"model/{name}"), place) for name in names)
    had = pairs = newest = of = 0.0
    for step, count in rows.items():
        share, before = again.get(step, 0.0), known.get(step, 0.0)
        expected = 1 - math.exp(-(had + _NONE) / pairs * before) if pairs else 1.0
        if share > _REPEATS and share > min(_ALL, _MORE * expected):
            break  # another epoch, and not more and more of a small space
        had, pairs, newest, of = had + share * count, pairs + before * count, share, before
    count = watched(history, "evaluated_known_of", place)
    if not pairs or not count >= 0:
        return math.nan
    chance = 1 - math.exp(-(had + _NONE + _BOUND * math.sqrt(had)) / pairs * count)
    return max(chance, newest * min(1.0, count / of) if of else 0.0)


def _until(channel: Channel | None, place: Place) -> dict[int, float]:
    """Step → figure of a launch, up to a place."""
    if channel is None or not channel.end:
        return {}
    rows = channel.rows()
    here = (rows.segment == place[2]) & (rows.step <= place[0])
    return dict(zip(rows.step[here].tolist(), rows.value[here].tolist(), strict=True))


RULES = (EvaluationExamples, EvaluationCopies)
