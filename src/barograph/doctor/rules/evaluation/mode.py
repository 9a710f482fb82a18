"""Layers that are in evaluation mode while the model is trained, told from gradients that cannot be.

In:   tables of gradients; the modes that the watch records.
Out:  findings of `EvaluationMode`, `ModelMode`, `DropoutGone`, `StaleStatistics`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import RowCursor, came_by, evaluations_of, known
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.layers import TableRule
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.tables import in_order, shown
from barograph.doctor.rules.loss.given import until

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding
    from barograph.doctor.kernel.tables import LayerRound, LayerTable


class EvaluationMode(TableRule):
    """Parameters without effect in training mode get a gradient, as they do in evaluation mode.

    Batch norm in training mode subtracts the mean of each batch, so a bias in front of it has no effect, and its
    gradient is rounding: a millionth of the others'. In evaluation mode the running statistics are used instead, the
    bias has an effect, and its gradient is like the others'. Layers whose norm was below 1e-5 of the table's median in
    five tables at least, and is above 1e-2 of it in two in a row, say that the model is trained in evaluation mode
    since
    then: `model.train()` was not called after an evaluation.

    What to do: `model.train()` at the end of each evaluation.
    """

    name, family, kind, severity = "evaluation_mode", "eval", "eval", "warning"
    tables = (("gradients", "norm"),)
    needs = ("gradients/*/norm",)
    least = 7
    about = "The model is trained in evaluation mode."
    sources = ("batch normalisation: a bias before it has no effect",)
    thresholds: ClassVar = {
        "none": (1e-5, "of the median: rounding of single precision; ours"),
        "some": (1e-2, "of the median; ours"),
        "before": (5.0, "tables; ours"),
        "tables": (2.0, "in a row; ours"),
    }
    causes = ("evaluation mode left on: batch norm uses its running statistics, dropout is off",)
    remedies = ("call `model.train()` at the end of each evaluation",)

    def reset(self) -> None:
        super().reset()
        self._still = numpy.zeros(0, numpy.int64)  # tables in a row in which a layer had no gradient to speak of
        self._moved = numpy.zeros(0, numpy.int64)  # and since then some
        self._since = numpy.zeros(0, numpy.int64)
        self._segment = -1
        self._said = False

    def look(self, history: RunHistory, family: str, table: LayerTable, current: LayerRound) -> Iterator[Finding]:
        if current.segment != self._segment:
            self._segment, self._said = current.segment, False
            self._still = self._moved = self._since = numpy.zeros(0, numpy.int64)
        more = len(current.value) - len(self._still)
        if more > 0:
            self._still, self._moved, self._since = (
                numpy.concatenate([kept, numpy.zeros(more, numpy.int64)])
                for kept in (self._still, self._moved, self._since)
            )
        known = current.value[numpy.isfinite(current.value) & (current.value > 0)]
        if self._said or len(known) < 4:
            return
        middle = float(numpy.median(known))
        with numpy.errstate(invalid="ignore"):
            none = current.value < self.at["none"] * middle
            some = (current.value > self.at["some"] * middle) & (self._still >= self.at["before"])
        fresh = some & (self._moved == 0)
        self._since[fresh] = current.step
        self._moved = numpy.where(some, self._moved + 1, 0)
        self._still = numpy.where(none, self._still + 1, numpy.where(some, self._still, 0))
        due = numpy.flatnonzero(self._moved >= self.at["tables"])
        if not len(due):
            return
        self._said = True
        began = int(self._since[due].min())
        names = in_order(table.names[at] for at in due)
        evaluations = history.role("eval_loss")
        steps = evaluations.rows().step if evaluations is not None else numpy.zeros(0, numpy.int64)
        earlier = steps[steps <= began]
        since = f", after the evaluation of step {int(earlier[-1])}" if len(earlier) else ""
        yield self.finding(
            began, f"{shown(names)} had no gradient because batch norm cancels it, and "
            f"{'has' if len(names) == 1 else 'have'} one since step {began}{since}: "
            "the model is in evaluation mode.", found=current.step,
            segment=current.segment, confidence=0.85, evidence={"layers": names[:8], "count": len(names)},
            )  # fmt: skip


class ModelMode(Rule):
    """The model is trained in evaluation mode, or evaluated in training mode.

    The watch records in which mode passes with gradients and passes without them run, of models with dropout or
    batch norm, for which it makes a difference. Passes without gradients count where an evaluation is logged and no
    policy is trained, which generates without gradients too; nor do they where each step of the training has some
    and evaluations are rarer, as where the model makes labels for examples that have none. Of two such passes in
    evaluation mode it sees each function: one that drops numbers all the same, a mask that is drawn by hand if the
    share that it keeps divides the rest, evenly drawn numbers that are added to embeddings of tokens, or a batch norm
    with the statistics of the batch beside its running ones, is what does not know the mode of the model, and is named.
    Where dropout modules alone were put into training mode, within modules that are in evaluation mode, predictions are
    drawn with dropout on purpose, and their dropout does not count. Where the configuration says that they are (Monte
    Carlo dropout, under a name such as `mc_dropout`), and the model has no batch norm, it is an info finding.

    Two such evaluations are a finding. Of a run that is over, the one behind its last step counts as well, and is
    enough by itself where it was logged.

    A copy of the model, as an average of its weights, or a momentum encoder, has a mode of its own
    (`model/copy_training_in_evaluation`). Two evaluations in a row, of which all passes through copies are in training
    mode, are a finding. One that is called in each step, as a teacher is, is evaluated where it has more than twice as
    many passes as in the steps before. Where some are in evaluation mode, those in training mode gather the statistics
    of batch norm, as `update_bn` does.

    Where a pass of an evaluation is in evaluation mode and two or more behind it are in training mode
    (`model/training_within_evaluation`), training mode is set again within the loop. Two evaluations in a row; of a
    model without batch norm, whose other steps have no such passes, and where rows behind the first pass are others:
    predictions of the same rows that are drawn with dropout on are meant. Where all passes in evaluation mode come
    first, and others behind them in training mode (`model/training_behind_evaluation`), of rows that were not trained
    on, training mode is set again at the end of the first of several sets: that counts where two series or more that
    end in the same word are logged in the evaluations' steps alone, and no predictions are to be drawn with dropout.

    Where each step has passes without gradients, in training mode, an evaluation is where more than twice as many come
    as in the steps before (`model/evaluated_in_training`), and a loss or a measure of one is logged at that step, or
    the one before. Two in a row, of which all passes are in training mode, are a finding.

    Where some of what drops numbers was in training mode before the first evaluation, and is in evaluation mode behind
    two in a row, while other such parts are in training mode (`model/part_in_evaluation`), a part of the model was left
    in evaluation mode, as one tower of two. It counts where its parameters are trained.

    What to do: `model.train()` before training, `model.eval()` before each evaluation; `training=self.training` for
    functions.
    """

    name, family, kind, severity = "model_mode", "eval", "eval", "warning"
    needs = ("=model/training|=model/training_in_evaluation|=model/dropout_in_evaluation"
             "|=model/noise_in_evaluation|=model/batch_statistics_in_evaluation"
             "|=model/copy_training_in_evaluation|=model/training_within_evaluation"
             "|=model/training_behind_evaluation"
             "|=model/part_in_evaluation|=model/evaluated_in_training",)  # fmt: skip
    about = "The model is trained in evaluation mode, or evaluated in training mode."
    thresholds: ClassVar = {"steps": (2.0, "steps or evaluations in the wrong mode; ours")}

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._wrong: dict[str, tuple[int, int]] = {}  # step and segment since which a mode is wrong
        self._evaluations: dict[str, list[tuple[int, int]]] = {}  # in a row, that are known to be in a wrong mode

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        rights = {"training": 1.0, "training_in_evaluation": 0.0}
        rights |= dict.fromkeys((_COPY, _PART, _BURST, _WITHIN, _BEHIND, *_FUNCTIONS), 0.0)
        for name, right in rights.items():
            rows = self._cursor.new(history.channel(f"model/{name}"))
            for at in range(len(rows) if rows is not None else 0):
                assert rows is not None
                if name in _IN_A_ROW:
                    yield from self._in_a_row(history, name, rows, at)
                    continue
                yield from self._end(history, name, int(rows.step[at]))
                if rows.value[at] == right:
                    self._wrong.pop(name, None)
                else:
                    self._wrong.setdefault(name, (int(rows.step[at]), int(rows.segment[at])))
            yield from self._end(history, name, None)

    def _in_a_row(self, history: RunHistory, name: str, rows: Any, at: int) -> Iterator[Finding]:
        """An evaluation, of which it is known by itself whether its mode was wrong."""
        place = int(rows.step[at]), int(rows.segment[at])
        row = self._evaluations.setdefault(name, [])
        if rows.value[at] != 1 or (row and row[0][1] != place[1]):
            row.clear()
        if rows.value[at] != 1 or evaluations_of(history) is None or history.role("reward") is not None:
            return
        unsaid = name == _BURST and not _is_logged(history, *place)
        moment = *place, int(rows.time[at])
        if unsaid or (name == _BEHIND and (_draws_predictions(history) or not _has_several_sets(history, *moment))):
            return
        row.append(place)
        if len(row) >= self.at["steps"] and self.first(name, place[1]):
            said, cause, remedy = _IN_A_ROW[name]
            yield self.finding(
                row[0][0], said.format(row[0][0]), key=name, segment=place[1], found=place[0], confidence=0.95,
                causes=[cause], remedies=[remedy],
            )  # fmt: skip

    def _end(self, history: RunHistory, name: str, step: int | None) -> Iterator[Finding]:
        """A mode that has been wrong up to a step; None: up to now."""
        if name not in self._wrong:
            return
        began, segment = self._wrong[name]
        channel = history.role("loss") if name == "training" else evaluations_of(history)
        if channel is None or (name != "training" and history.role("reward") is not None):
            return
        rows = channel.rows()
        later = rows.step[(rows.segment == segment) & (rows.step >= began)]
        if step is not None:
            later = later[later < step]
        elif len(later) and int(rows.segment[-1]) == segment and not history.facts.get("finished"):
            later = later[later < int(later[-1])]  # the mode in the newest step may come behind its loss
        enough = self.at["steps"]
        if step is None and name != "training" and (behind := _behind_last(history, rows, began, segment)) is not None:
            later, enough = behind, enough - 1
        if name == "training_in_evaluation":
            later = self._evaluated(history, later, segment)
        if len(later) < enough or not self.first(name, segment):
            return
        found = int(later[int(enough) - 1])
        if name == "training":
            meant = _holds_norms(history)
            yield self.finding(
                began, f"The model is trained in evaluation mode since step {began}: dropout is off, and batch norm "
                "uses its running statistics.", severity="info" if meant else self.severity,
                key=name, segment=segment, found=found, confidence=0.3 if meant else 0.95,
                causes=["evaluation mode left on: `model.training` is False while it is trained"],
                remedies=["call `model.train()` before training, and at the end of each evaluation"],
            )  # fmt: skip
            return
        meant = name in _OF_DROPOUT and _draws_predictions(history)
        severity, confidence = ("info", 0.3) if meant else (self.severity, 0.95)
        if name in _FUNCTIONS:
            what, cause, remedy = _FUNCTIONS[name]
            yield self.finding(
                began, f"An evaluation before step {began} has {what}, though the model is in evaluation mode.",
                key=name, segment=segment, found=found, severity=severity, confidence=confidence, causes=[cause],
                remedies=[remedy],
            )  # fmt: skip
            return
        yield self.finding(
            began, f"The model is evaluated in training mode, seen at step {began}: dropout and batch norm change what "
            "is measured.",
            key=name, segment=segment, found=found, severity=severity, confidence=confidence,
            causes=["evaluation in training mode: `model.training` is True in passes without gradients"],
            remedies=["call `model.eval()` before each evaluation, and `model.train()` after it"],
        )  # fmt: skip

    def _evaluated(self, history: RunHistory, later: Any, segment: int) -> Any:
        """Of the steps of evaluations, those at which passes without gradients may be theirs: not where each step of
        the training has some, and evaluations are rarer."""
        channel = history.channel("model/labels_in_training")
        if channel is None or not len(later):
            return later
        rows = channel.rows()
        steps, values = (column[rows.segment == segment] for column in (rows.step, rows.value))
        if not len(steps):
            return later
        places = numpy.searchsorted(steps, later, side="right") - 1
        labels = (places >= 0) & (values[numpy.maximum(places, 0)] == 1)
        often = numpy.diff(later, prepend=later[0] - 2) <= 1
        return later[~(labels & ~often)]


def _behind_last(history: RunHistory, rows: ChannelRows, began: int, segment: int) -> Any:
    """Of a run that is over, steps of evaluations in a mode that was wrong up to its end. The watch has told of the one
    behind the last step, which is one more than those at or behind the step that showed it; where it was the first
    that was wrong, it is what was logged behind the training's last loss. None where there was none."""
    last, loss = history.channel("model/evaluated_last"), history.role("loss")
    if last is None or loss is None or not history.facts.get("finished"):
        return None
    ends, trained = last.rows(), loss.rows()
    ends_here = ends.step[ends.segment == segment]
    trained_here = trained.time[trained.segment == segment]
    if not len(ends_here) or not len(trained_here):
        return None
    first = began == int(ends_here[-1])
    here = (rows.segment == segment) & (rows.time >= trained_here[-1] if first else rows.step >= began)
    return rows.step[here] if here.any() else None


_TIMES = expression(r"until|after|steps?|epochs?|sched|anneal|decay|final|_end|end_|stop|early|warm|ramp")


def _holds_norms(history: RunHistory) -> bool:
    """Whether the configuration says that batch norm stays in evaluation mode, and no layer drops anything."""
    dropout = history.channel("model/dropout")
    drops = dropout is not None and dropout.end > 0 and dropout.first > 0
    return not drops and any(
        value not in (None, False, 0, "") and _HELD.search(name.lower())
        for name, value in history.options.found.items()
    )


def _draws_predictions(history: RunHistory) -> bool:
    """Whether the configuration says that evaluations draw their predictions with dropout on, and no batch norm is
    there that would be in training mode with it."""
    return history.channel("model/norm_momentum") is None and any(
        value not in (None, False, 0, "") and _DRAWN.search(f"{name} {value if isinstance(value, str) else ''}".lower())
        for name, value in history.options.found.items()
    )


_DRAWN = expression(
    r"(?<![a-z])(?:mc|monte[ _-]?carlo|bayes\w*)[ _-]?drop(?:out)?"
    r"|drop(?:out)?_?(?:samples|draws|at_(?:test|eval|inference))"
)
_OF_DROPOUT = frozenset(("training_in_evaluation", "dropout_in_evaluation"))
_HELD = expression(
    r"(?:freez\w*|frozen|fix(?:ed)?|eval|hold)_?(?:bn|batch_?norms?|norms?|stat\w*)|(?:bn|batch_?norms?)_?(?:eval|froz|freez|fix)"
)
_COPY, _WITHIN = "copy_training_in_evaluation", "training_within_evaluation"
_BEHIND = "training_behind_evaluation"
_PART, _BURST = "part_in_evaluation", "evaluated_in_training"


def _is_logged(history: RunHistory, step: int, segment: int) -> bool:
    """Whether a loss or a measure of an evaluation is logged at a step, or at the one before."""
    channel = evaluations_of(history)
    if channel is None:
        return False
    rows = channel.rows()
    return bool(((rows.segment == segment) & (rows.step <= step) & (rows.step >= step - 1)).any())


def _has_several_sets(history: RunHistory, step: int, segment: int, time: int) -> bool:
    """Whether another series has a row in each of the evaluations' steps alone, and ends in the same word, up to a
    moment; and no rows of the training are among those looked at, as where examples are chosen by the model."""
    channel, place = evaluations_of(history), (step, time, segment)
    if channel is None or known(history.channel("model/evaluated_known"), *place) > _KNOWN:
        return False
    mine, word = until(channel, place)[0], _LAST.findall(channel.name)[-1:]
    same = (one for name, one in history.channels.items() if name != channel.name and _LAST.findall(name)[-1:] == word)
    return len(mine) > 0 and any(numpy.array_equal(until(one, place)[0], mine) for one in same)


_KNOWN, _LAST = 0.02, expression(r"[A-Za-z0-9]+")  # of an evaluation's rows; a word

_IN_A_ROW = {  # by series: what is said, with the step; why, and what to do
    _COPY: (
        "A copy of the model, as an average of its weights is, is evaluated in training mode, seen before step {}: "
        "dropout and batch norm change what is measured.",
        "evaluation in training mode: the copy of the model that is evaluated was never told `eval()`",
        "call `eval()` of the copy, or average, where it is made or before each evaluation",
    ),
    _WITHIN: (
        "Of an evaluation before step {} the first pass is in evaluation mode, and all others behind it are in "
        "training mode: dropout changes what is measured.",
        "evaluation in training mode: training mode is set again within the loop over what is held out",
        "call `model.train()` behind the loop over evaluation batches, not within it",
    ),
    _BEHIND: (
        "Of an evaluation before step {} the first passes are in evaluation mode, and all behind them, of other rows, "
        "in training mode: dropout changes what is measured on all sets but the first.",
        "evaluation in training mode: training mode is set again behind the first of several sets",
        "call `model.train()` behind the last set, or `model.eval()` before each",
    ),
    _BURST: (
        "The model is evaluated in training mode, seen at step {}: more than twice as many passes without gradients as "
        "in other steps are all in that mode, and dropout or batch norm changes what is measured.",
        "evaluation in training mode: `model.training` is True in passes without gradients",
        "call `model.eval()` before each evaluation, and `model.train()` behind it",
    ),
    _PART: (
        "Behind the evaluation before step {} a part of the model is trained in evaluation mode, and the rest in "
        "training mode: of what drops numbers, some does not.",
        "evaluation mode left on: a part of the model, put into it for an evaluation, is not set back",
        "call `train()` of the whole model behind each evaluation, not of some of its parts",
    ),
}
_FUNCTIONS = {  # by series: what an evaluation has, why, and what to do
    "dropout_in_evaluation": (
        "dropout",
        "dropout left on: in evaluations, where a function or a part does not follow the model's mode",
        "`dropout(x, p, training=self.training)`, `dropout_p=p if self.training else 0.0` of an attention; "
        "`model.eval()` behind what puts a part into training mode",
    ),
    "noise_in_evaluation": (
        "noise on its embeddings",
        "randomness in evaluation: noise on embeddings is for the training, and does not follow the model's mode",
        "add noise to embeddings under `if self.training:`, and take the hook that does it away for evaluations",
    ),
    "batch_statistics_in_evaluation": (
        "a batch norm with the statistics of the batch",
        "batch norm left in training mode: evaluations have the statistics of their own batches, not the running ones",
        "`batch_norm(..., training=self.training)`; `model.eval()` behind what puts a part into training mode",
    ),
}


class DropoutGone(Rule):
    """Dropout was set to 0 for an evaluation, and stays there.

    The watch reads the largest share that a layer drops, at the start and behind passes without gradients. In one
    launch it was above 0, and is 0 behind an evaluation that was logged. Where the configuration names a time of
    dropout, as its end or its schedule, nothing is said.

    What to do: leave the shares as they are, and call `model.eval()` for the evaluation and `model.train()` behind it.
    """

    name, family, kind, severity = "dropout_gone", "eval", "eval", "warning"
    needs = ("=model/dropout", "eval_loss|eval_accuracy|evaluation")
    least = 2
    about = "Dropout was set to 0 for an evaluation, and stays there."
    causes = ("evaluation mode left on: dropout was set to 0 for an evaluation, and not set back",)
    remedies = ("leave the shares of dropout as they are; `model.eval()` and `model.train()` turn it off and on",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._before: tuple[int, float] = (-1, 0.0)  # segment and share

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for (step, time, segment), value in self._cursor.each(history.channel("model/dropout")):
            (last, before), self._before = self._before, (segment, value)
            fell = last == segment and before > 0 and value == 0
            if fell and came_by(evaluations_of(history), time) and not _ends(history) and self.first(segment):
                yield self.finding(
                    step, f"No layer drops anything since an evaluation before step {step}; it was {before:.3g} "
                    "before.", found=step, segment=segment, confidence=0.9,
                    evidence={"dropout": rounded(before), "standing": True},
                )  # fmt: skip


def _ends(history: RunHistory) -> bool:
    """Whether the configuration says that dropout changes on purpose."""
    named = [name.lower() for name in history.options.found if "drop" in name.lower()]
    return any(_TIMES.search(name) for name in named)


class StaleStatistics(Rule):
    """Batch norm's running statistics do not move, though the model is trained in training mode.

    The watch compares them every tenth step (`model/stale_statistics`). Twenty steps without a change, to the last bit,
    say that the momentum is 0, or that they are put back: an evaluation uses them, and has those of another model.
    Layers that are in evaluation mode, as frozen ones are, don't count. But where such layers are trained through, the
    rest of the model in training mode, and their statistics are a mean of 0 and a variance of 1 in two looks
    (`model/unset_statistics`), nothing was ever gathered in them: they normalise nothing. The same is so where the
    first batch norm has a mean of 0 and a variance of 1 in two evaluations, behind steps in which it was in training
    mode (`model/reset_statistics`): they are made anew for each evaluation.
    """

    name, family, kind, severity = "stale_statistics", "eval", "eval", "warning"
    proves = "evaluation"
    needs = ("=model/stale_statistics|=model/unset_statistics|=model/reset_statistics",)
    about = "Batch norm's running statistics do not move."
    sources = ("batch normalisation: evaluation uses running statistics",)
    thresholds: ClassVar = {"rows": (2.0, "in a row; ours")}
    causes = ("batch norm's statistics are stale: its momentum is 0, or they are overwritten",)
    remedies = (
        "set the momentum of batch norm: torch's is the share of the new batch, 0.1, and not of the old value",
        "look for what loads or copies buffers during the training",
    )

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._row: list[tuple[int, int]] = []
        self._unset: dict[int, int] = {}  # by segment: looks
        self._anew: dict[int, int] = {}  # by segment: evaluations

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from self._never(history)
        yield from self._made_anew(history)
        for (step, _, segment), value in self._cursor.each(history.channel("model/stale_statistics")):
            if value != 1 or (self._row and self._row[0][1] != segment):
                self._row = []
            if value == 1:
                self._row.append((step, segment))
                if len(self._row) == self.at["rows"] and self.first(segment):
                    yield self.finding(
                        max(0, self._row[0][0] - 10), "Batch norm's running statistics are the same at each look since "
                        f"step {self._row[0][0]}, though the model is trained: evaluations use old ones.",
                        found=step, segment=segment, confidence=0.95,
                    )  # fmt: skip

    def _never(self, history: RunHistory) -> Iterator[Finding]:
        """Layers in evaluation mode whose statistics are as torch makes them."""
        for (step, _, segment), value in self._cursor.each(history.channel("model/unset_statistics")):
            self._unset[segment] = self._unset.get(segment, 0) + 1 if value == 1 else 0
            if self._unset[segment] == self.at["rows"] and self.first(segment, "unset"):
                yield self.finding(
                    0 if step <= self.at["rows"] else step, "Batch norm is in evaluation mode while the model is "
                    "trained, and its running statistics are as torch makes them: it normalises nothing.",
                    key="unset", found=step, segment=segment, confidence=0.95, evidence={"standing": True},
                    causes=["evaluation mode left on: batch norm's statistics were never gathered"],
                    remedies=["leave batch norm in training mode, or load weights with statistics before"],
                )  # fmt: skip

    def _made_anew(self, history: RunHistory) -> Iterator[Finding]:
        """Evaluations with statistics as torch makes them, of a layer that has gathered others."""
        for (step, _, segment), value in self._cursor.each(history.channel("model/reset_statistics")):
            self._anew[segment] = self._anew.get(segment, 0) + 1 if value == 1 else 0
            if self._anew[segment] == self.at["rows"] and self.first(segment, "anew"):
                yield self.finding(
                    step, "In evaluations the running statistics of batch norm are as torch makes them, 0 and 1, "
                    "though the training has gathered others: there it normalises nothing.",
                    key="anew", found=step, segment=segment, confidence=0.95,
                    causes=["batch norm's statistics are reset: evaluations have them as torch makes them"],
                    remedies=["leave out `reset_running_stats()`, or gather statistics anew before the evaluation"],
                )  # fmt: skip


RULES = (EvaluationMode, ModelMode, DropoutGone, StaleStatistics)
