"""A training loss that falls for another reason than learning.

In:   the series of the loss, and beside it evaluation, learning rate, epoch.
Out:  findings of `LossJumpDown`, `LossSlide`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
from barograph.doctor.kernel.cursor import exp
from barograph.doctor.kernel.curve import again, before, between, fell_at_once, is_game, noise_of, rounded
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.local import median
from barograph.doctor.kernel.series import SeriesRule

if TYPE_CHECKING:
    from numpy.typing import NDArray


_EQUAL = 1.05  # the largest over the smallest distance of falls that are epochs'
_NOISY = 0.02  # in ln, of evaluations: from there on one is high or low by chance
_WORSE = 1.02  # of two evaluations
_YOUNG = 256  # rows of a run in which a shorter window counts too
_NEAR = 32  # rows of that window
_TREND = 21  # rows before a fall, of which the first five and the last five say how steep the curve is there
_AS_LOW = 3  # of these rows, that were no higher than those behind the fall are: no level of its own
_DEEPER = 40  # rows after which a fall is looked at once more
_UNFROZEN = 16  # rows from a change of what is trained to a fall of the loss
_CHANGED = ("model/trained_elements", "model/optimizers_replaced")  # what explains a fall
_WORDS = 6.9  # the first loss, ln 1000: of a text's tokens, not of a task that may be solved at once


def _seen_before(history: RunHistory, low: int, high: int, segment: int) -> list[str]:
    """Causes of a fall to the loss of examples seen before: the data first where batches are known to repeat."""
    causes = [
        "overfitting: the examples are memorized",
        "data replayed: batches that were seen before",
        "data exhausted: the same batch at every step",
    ]
    repeats = between(history.channel("data/repeats"), low, high + 1, segment)
    return causes[::-1] if (repeats > 0).any() else causes


def _was_there(channel: Channel, row: int, new: float) -> bool:
    """Whether several of the rows before one were as low as a level already: the noise has grown since the curve fell,
    as that of a hinge near 0."""
    return int((channel.rows(max(row - _TREND, 0), row).value <= new).sum()) >= _AS_LOW


class LossJumpDown(SeriesRule):
    """A loss that falls at once, and stays down, while the evaluation does not follow.

    Such a fall is not learning: the loss is divided once more or masked, or data come again. A fall begins where
    z ≤ −10 (as in `loss_spike`) and the loss loses 10%; it counts if the median of the next 8 rows is below 0.9 of
    the old level too, half of that is more than the rows before fall by, and fewer than three of the 21 rows before
    were as low already. Falls at the border of an epoch, right
    after the learning rate was cut, layers were unfrozen (`model/trained_elements`), another optimizer took over
    (`model/optimizers_replaced`), or in a new segment are expected and silent.

    It is a warning where the loss loses more than 40% and the evaluation that follows is not better than the last one
    by a fifth of that and by 3% (the medians of three or seven, where evaluations are noisy); otherwise an info
    finding. Falls at equal distances are those of epochs: data come again. Without an evaluation it is a warning where
    more than 70% are lost; or where a model of a vocabulary of a thousand tokens or more (by its first loss) has a
    tenth of its loss left 40 rows later: no text is that easy unless the answer is in the inputs. In the first 256
    rows, in which the loss still bends, a fall by 40% also counts by the level and noise of the last 32 rows.
    """

    name, family, kind, severity = "loss_jump_down", "loss", "jump_down", "warning"
    needs = ("loss",)
    least = 24
    about = "The loss drops suddenly with no change of the schedule."
    thresholds: ClassVar = {
        "z": (10.0, "ours"),
        "fall": (0.9, "ratio; ours"),
        "large": (0.6, "ratio that warns; ours"),
        "rows": (8.0, "rows after the fall that must stay down; ours"),
        "given": (0.1, "of the loss of a language model, 40 rows later; ours"),
    }
    causes = (
        "gradient accumulation scaled wrongly: the loss is divided once more",
        "loss masked out: most labels are ignored",
        "data replayed: batches that were seen before, as in each epoch",
        "data exhausted: the same batch at every step",
    )

    def reset(self) -> None:
        self._open: dict[str, Any] | None = None
        self._told: list[tuple[Finding, float, float]] = []  # with the evaluation before, and the ratio
        self._jumps: list[Finding] = []  # the last ones of one segment
        self._deeper: list[tuple[Finding, int, float]] = []  # those that may go on, their rows, and the loss before
        self._since: list[tuple[Finding, int, int]] = []  # each with the steps between which layers may be unfrozen
        self._quiet, self._dropped = 0, False  # dropped: whether a row so far was far below the one before
        self._segment, self._segment_row = -1, 0  # the segment of the last row, and its first row

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        yield from self._search(history, channel, rows)
        history.as_of(None)
        while self._deeper and channel.end >= self._deeper[0][1] + _DEEPER:
            yield from self._go_deeper(channel, *self._deeper.pop(0))
        yield from self._follow(history)
        yield from self._lower(history)

    def end(self, history: RunHistory, channel: Channel) -> Iterator[Finding]:
        yield from self._follow(history, last=True)
        yield from self._lower(history)

    def _lower(self, history: RunHistory) -> Iterator[Finding]:
        """What the watch says of layers that were unfrozen comes behind the rows of a fast loop."""
        for item in list(self._since):
            finding, low, high = item
            if any(len(between(history.channel(name), low, high, finding.segment)) for name in _CHANGED):
                self._since.remove(item)
                self._told = [one for one in self._told if one[0] is not finding]
                self._deeper = [one for one in self._deeper if one[0] is not finding]
                finding.severity = "info"
                yield again(finding)

    def _search(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        local = history.local(channel, log=True)
        young = rows.first < _YOUNG
        usual = self._open is None and not young and rows.all_of(self._segment)
        if usual and not local.extremes(rows.first)[0] < -self.at["z"]:
            return
        level, spread, z = local.rows(rows.first)
        low = (z < -self.at["z"]) & (z * spread < math.log(self.at["fall"]))
        dropped = self._dropped_by(channel, rows) if young else numpy.zeros(len(rows), bool)
        if dropped.any():  # the noise of the long window is mostly how the curve bends
            near = history.local(channel, log=True, window=_NEAR).rows(rows.first)
            here = (near[2] < -self.at["z"]) & (near[2] * near[1] < math.log(self.at["large"])) & ~low
            here &= dropped & (numpy.arange(rows.first, rows.first + len(rows)) < _YOUNG)
            level, z, low = numpy.where(here, near[0], level), numpy.where(here, near[2], z), low | here
        low &= self._nth(rows) >= 48  # a curve falls fast at its beginning
        if self._open is None and not low.any():
            return
        at = 0
        while at < len(rows):
            if self._open is None:
                places = numpy.flatnonzero(
                    low[at:] & (numpy.arange(rows.first + at, rows.first + len(rows)) >= self._quiet)
                )
                if not len(places):
                    return
                at += int(places[0])
                self._open = {
                    "row": rows.first + at,
                    "step": int(rows.step[at]),
                    "segment": int(rows.segment[at]),
                    "level": float(level[at]),
                    "z": float(z[at]),
                    "after": [],
                }
            one = self._open
            if rows.segment[at] != one["segment"]:
                self._open = None
                continue
            one["after"].append(float(rows.value[at]))
            at += 1
            if len(one["after"]) == int(self.at["rows"]):
                history.as_of(rows.time[at - 1])
                told = list(self._judge(history, channel, int(rows.step[at - 1])))
                yield from told
                self._quiet, self._open = one["row"] + (64 if told else 0), None

    def _dropped_by(self, channel: Channel, rows: ChannelRows) -> NDArray[numpy.bool_]:
        """Of each row whether it, or any before it, is far below the one before."""
        value = channel.rows(max(rows.first - 1, 0), rows.first + len(rows)).value
        fell = value[1:] < math.sqrt(self.at["large"]) * value[:-1]
        fell = fell if len(fell) == len(rows) else numpy.concatenate([[False], fell])
        fell[max(0, _YOUNG - rows.first) :] = False
        dropped: NDArray[numpy.bool_] = numpy.logical_or.accumulate(fell) | self._dropped
        self._dropped = bool(dropped[-1])
        return dropped

    def _nth(self, rows: ChannelRows) -> NDArray[Any]:
        """The number of each row since its segment began."""
        edges = numpy.flatnonzero(numpy.diff(rows.segment, prepend=self._segment))
        starts = numpy.zeros(len(rows), numpy.int64)
        starts[edges] = rows.first + edges
        starts = numpy.maximum(numpy.maximum.accumulate(starts), self._segment_row)
        self._segment, self._segment_row = int(rows.segment[-1]), int(starts[-1])
        return numpy.arange(rows.first, rows.first + len(rows)) - starts

    def _judge(self, history: RunHistory, channel: Channel, found: int) -> Iterator[Finding]:
        one = self._open
        assert one is not None
        after = numpy.array([value for value in one["after"] if math.isfinite(value)])
        old = exp(one["level"])
        if len(after) < 5 or after.min() < 0:
            return  # where a loss passes zero ratios say nothing
        new = float(numpy.median(after))
        ratio = new / old
        if not ratio < self.at["fall"] or is_game(history, channel):
            return
        step, segment = one["step"], one["segment"]
        near = channel.rows(max(one["row"] - 4, 0), one["row"] + 1)
        back = int(near.step[0])
        epochs = between(history.role("epoch"), back, found + 1, segment)
        if len(epochs) > 1 and math.floor(epochs.min() + 1e-6) != math.floor(epochs.max() + 1e-6):
            return
        behind = int(channel.rows(max(one["row"] - _UNFROZEN, 0), one["row"] + 1).step[0])
        if any(len(between(history.channel(name), behind, found + 1, segment)) for name in _CHANGED):
            return  # others are trained since then, as layers were unfrozen, or another optimizer steps them
        rate = history.role("lr")
        lr_before, lr_now = before(rate, back, segment), before(rate, found + 1, segment)
        if lr_now < 0.7 * lr_before:
            return
        earlier = between(channel, int(near.step[0]) - 1, step, segment)
        sudden = len(earlier) == 0 or float(numpy.median(earlier)) > 0.5 * (old + new)
        if not sudden or self._goes_on(channel, one["row"], old, new) or _was_there(channel, one["row"], new):
            return
        evals = before(history.role("eval_loss"), step, segment)
        message = f"The loss fell from {old:.4g} to {new:.4g} at step {step} and stays there"
        finding = self.finding(
            step,
            message,
            severity="info",
            found=found,
            segment=segment,
            confidence=0.5,
            evidence={
                "before": rounded(old),
                "after": rounded(new),
                "ratio": rounded(ratio, 3),
                "z": rounded(one["z"], 3),
            },
            remedies=[f"Compare a batch of step {step} with one before: labels, mask, divisor of the loss."],
        )
        if math.isfinite(evals):
            finding.evidence["evaluation_before"] = rounded(evals)
        elif ratio < 0.5 * self.at["large"]:
            finding.severity, finding.confidence = "warning", 0.6
        elif channel.first > _WORDS:
            self._deeper.append((finding, one["row"], old))
        self._told.append((finding, evals, ratio))
        self._since = [*self._since[-15:], (finding, behind, found + 1)]
        self._jumps = [*(jump for jump in self._jumps if jump.segment == segment), finding][-16:]
        gaps = [later.step - jump.step for jump, later in pairwise(self._jumps)]
        gaps = [*gaps, self._jumps[0].step] if len(gaps) == 1 else gaps  # the first epoch begins with the first step
        if len(gaps) > 1 and max(gaps) < _EQUAL * min(gaps):
            for jump in self._jumps:
                jump.causes.sort(key=lambda cause: not cause.startswith("data replayed"))
                yield again(jump)
            return
        yield again(finding)

    def _goes_on(self, channel: Channel, row: int, old: float, new: float) -> bool:
        """Whether the fall is one that the rows before it had, too: without noise each bend of a curve is large."""
        rows = channel.rows(max(row - _TREND, 0), row).value
        if len(rows) < _TREND or not (rows > 0).all() or not new > 0:
            return False
        first, last = (float(numpy.median(numpy.log(rows[part]))) for part in (slice(0, 5), slice(-5, None)))
        apart = 3 + (self.at["rows"] - 1) / 2  # rows, from the middle of the last five to the middle of those behind
        expected = max(0.0, first - last) / (_TREND - 5) * apart
        return last - math.log(new) - expected < 0.5 * math.log(old / new)

    def _go_deeper(self, channel: Channel, finding: Finding, row: int, old: float) -> Iterator[Finding]:
        """Whether next to nothing is left of the loss some rows after a fall."""
        rows = channel.rows(row + _DEEPER - 8, row + _DEEPER)
        if not len(rows) or not rows.all_of(finding.segment):
            return
        now, step = median(rows.value), int(rows.step[-1])
        if 0 < now < self.at["given"] * old:
            finding.severity, finding.confidence, finding.found = "warning", 0.7, max(finding.found, step)
            finding.message += f", and is {now:.4g} at step {step}"
            finding.causes = [
                "labels shifted: the targets can be seen in the inputs",
                *(cause for cause in finding.causes if cause[:4] == "data"),
                *(cause for cause in finding.causes if cause[:4] != "data"),
            ]
            yield again(finding)

    def _follow(self, history: RunHistory, last: bool = False) -> Iterator[Finding]:
        """The evaluation after a fall says whether it was learning; where single ones are noisy, the median of three,
        or of seven, beside that of as many before. last: no more will come.
        """
        channel = history.role("eval_loss")
        if channel is None or not self._told:
            return
        later = channel.rows()
        for item in list(self._told):
            finding, evals, ratio = item
            if not math.isfinite(evals):
                self._told.remove(item)
                continue
            places = numpy.flatnonzero(
                (later.step > finding.step) & (later.segment == finding.segment) & numpy.isfinite(later.value)
            )
            earlier = later.value[(later.step < finding.step) & (later.segment == finding.segment)]
            earlier = earlier[numpy.isfinite(earlier)]
            noise = noise_of(earlier[-24:].tolist())
            count = 7 if noise > 3 * _NOISY else 3 if noise > _NOISY else 1
            if not len(places) or (len(places) < count and not last):
                continue
            value, step = median(later.value[places[:count]]), int(later.step[places[:count][-1]])
            evals = median(earlier[-count:]) if count > 1 else evals
            self._told.remove(item)
            finding.evidence["evaluation_after"] = rounded(value)
            finding.found = max(finding.found, step)
            # a learning rate that is cut lowers both, the training's loss by more
            if value > evals * (1 - max(0.03, 0.2 * (1 - ratio))):
                finding.severity = "warning" if ratio < self.at["large"] else "info"
                finding.message += f", while the evaluation went from {evals:.4g} to {value:.4g}"
                finding.confidence = 0.8
                if value > evals * _WORSE:  # a divisor or a mask changes no evaluation
                    again_seen = _seen_before(history, finding.step, step, finding.segment)
                    finding.causes = [*again_seen, *(cause for cause in finding.causes if cause[:4] != "data")]
            else:
                finding.confidence = 0.3
                finding.message += f"; the evaluation fell too, from {evals:.4g} to {value:.4g}"
            yield again(finding)


_EMPTY: tuple[NDArray[Any], ...] = (numpy.empty(0), numpy.empty(0, numpy.int64), numpy.empty(0, numpy.int32))


class LossSlide(SeriesRule):
    """A loss that had nearly stopped falling drops fast, while the evaluation gets worse.

    Labels that can be seen in the inputs, or the same batch at every step, are learnt within some dozen steps: the
    median of 9 rows falls below 0.6 of what it was 64 rows before, while in the 64 rows before that it fell by less
    than a tenth. It is judged at the next evaluation: if that is worse by 2% than the one before the fall, and by the
    noise of the loss, it is a warning; if it fell too, the model has learnt something, and there is no finding. It is
    critical where the training loss falls below a tenth of the evaluation: no data are that easy unless the answer is
    in the inputs.
    A loss that falls from one row to the next falls faster than weights move: its examples come again, as they do in
    each epoch. That is an info finding.
    """

    name, family, kind, severity = "loss_slide", "loss", "jump_down", "warning"
    needs = ("loss", "eval_loss")
    least = 128
    about = "The training loss falls fast while the evaluation gets worse."
    thresholds: ClassVar = {
        "fall": (0.6, "ratio; ours"),
        "worse": (1.02, "ratio of the evaluations; ours"),
        "given": (0.1, "of the evaluation loss; ours"),
    }
    causes = (
        "labels shifted: the targets can be seen in the inputs",
        "data exhausted: the same batch at every step",
    )

    def reset(self) -> None:
        self._levels: list[tuple[float, int, int]] = []  # median of 8 rows, step of the first, segment
        self._rest = _EMPTY
        self._waiting: list[tuple[int, int, float, float, int]] = []
        self._quiet = self._count = 0

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        value: NDArray[Any] = numpy.concatenate([self._rest[0], rows.value])
        step: NDArray[Any] = numpy.concatenate([self._rest[1], rows.step])
        segment: NDArray[Any] = numpy.concatenate([self._rest[2], rows.segment])
        whole = len(value) // 8 * 8
        if whole:
            middle = numpy.partition(value[:whole].reshape(-1, 8), 4, axis=1)[:, 4]
            first, last, of = step[:whole:8], step[7:whole:8], segment[:whole:8]
            course = numpy.concatenate([[level[0] for level in self._levels], middle])
            near = course[8:] < self.at["fall"] * course[:-8]
            if near.any() or segment[0] != segment[whole - 1] or len(middle) < 16:
                for at in range(len(middle)):
                    if self._levels and self._levels[-1][2] != of[at]:
                        self._levels = []
                    self._levels = [*self._levels[-15:], (float(middle[at]), int(first[at]), int(of[at]))]
                    self._look(self._levels, int(last[at]), self._count + at)
            else:
                tail = (middle[-16:].tolist(), first[-16:].tolist(), of[-16:].tolist())
                self._levels = list(zip(*tail, strict=True))
            self._count += len(middle)
        self._rest = (value[whole:], step[whole:], segment[whole:])
        if self._waiting and not is_game(history, channel):
            yield from self._follow(history, channel)

    def _look(self, levels: list[tuple[float, int, int]], found: int, block: int) -> None:
        if block < self._quiet or len(levels) < 16 or not all(level[0] > 0 for level in levels):
            return
        early = [level[0] for level in levels[:8]]
        old, middle = sorted(early[:4])[2], sorted(early[4:])[1]
        now = max(levels[14][0], levels[15][0])
        noise = max(early) / min(early)  # what the medians did while the loss was level
        if now < self.at["fall"] * middle and middle > 0.9 * old and now * noise * math.sqrt(noise) < middle:
            step = next(level[1] for level in levels[8:] if level[0] < middle - 0.15 * (middle - now))
            self._waiting.append((step, levels[-1][2], middle, levels[15][0], found))
            self._quiet = block + 17

    def _follow(self, history: RunHistory, channel: Channel) -> Iterator[Finding]:
        evaluations = history.role("eval_loss")
        if evaluations is None:
            return
        known = evaluations.rows()
        for item in list(self._waiting):
            step, segment, old, new, found = item
            mine = (known.segment == segment) & numpy.isfinite(known.value)
            early = numpy.flatnonzero(mine & (known.step < step))
            late = numpy.flatnonzero(mine & (known.step > step))
            if not len(late):
                continue
            self._waiting.remove(item)
            noise = noise_of(between(channel, 0, step, segment)[-64:].tolist())
            worse = max(self.at["worse"], math.exp(noise))  # an evaluation of a few batches has a part of their noise
            if not len(early) or known.value[late[0]] < worse * known.value[early[-1]]:
                continue
            before_it, behind = float(known.value[early[-1]]), float(known.value[late[0]])
            found = max(found, int(known.step[late[0]]))
            sudden = fell_at_once(channel, step - 64, step + 64, segment, old, new)
            yield self.finding(
                step,
                f"The loss fell from {old:.4g} to {new:.4g} since step {step}, while the evaluation went from "
                f"{before_it:.4g} to {behind:.4g}",
                severity="info" if sudden else "critical" if new < self.at["given"] * behind else "warning",
                found=found,
                causes=_seen_before(history, step, found, segment) if sudden else list(self.causes),
                segment=segment,
                confidence=0.8,
                evidence={
                    "before": rounded(old),
                    "after": rounded(new),
                    "evaluation_before": rounded(before_it),
                    "evaluation_after": rounded(behind),
                },
                remedies=[
                    f"Compare batches before and after step {step}: inputs, labels, and whether batches differ at all."
                ],
            )
