"""Spikes of the training loss.

In:   the series of the loss, and beside it gradient norm and learning rate.
Out:  findings of `LossSpike`.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
from barograph.doctor.kernel.cursor import exp, numeric_setting
from barograph.doctor.kernel.curve import before, between, evaluation_holds, goes_below_zero, is_game, rounded
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.grouped import is_outermost
from barograph.doctor.kernel.local import median, windows
from barograph.doctor.kernel.series import SeriesRule
from barograph.doctor.kernel.stages import WITH_STAGE, stage_begins
from barograph.doctor.rules.loss.rise import falling_term

if TYPE_CHECKING:
    from numpy.typing import NDArray


_STAYED = 16  # rows up to the end of a run: a level, not a spike
_CHANGES = 4  # of the number of layers that are left out
_ROWS = ("batch_size", "train_batch_size", "per_device_train_batch_size", "micro_batch_size", "bs")
_YOUNG = 256  # rows of a segment that are looked at with their neighbours on both sides


class LossSpike(SeriesRule):
    """A loss that rises above its course within a few rows.

    z = (ln loss − level) / deviation, with level and robust standard deviation of the 128 rows before (medians, so
    that a spike does not hide itself), and the lift e^(ln loss − level). A spike begins where z passes the threshold
    and the lift 1.15; where a curve's own noise has heavy tails the threshold is 1.3 times its furthest dip and 1.5
    times its third furthest rise in the last 1,024 rows. The step is the row at which the rise starts. It is over when
    the median of 3 rows is back within 3 deviations of the old level: fast within 50 rows, slow within 200, else it
    does not recover.

    A spike that recovers is an info finding; it is a warning where it lifts the loss by half for two rows or
    threefold for one, or comes with one in the gradient norm, and does not lie in the first 5% of the run's rows;
    so is one that has not recovered after 50 rows, or in the last 16 of a run, or took 100 from a lift of 1.25. One
    of 16 rows or more that the validation loss did not share is an info finding, and so are one beside which the
    logged term that was nearly all of the loss has fallen, and one with which a stage of the training begins: a
    logged number of a round, task or stage, or of the length or size of the examples, changes there, or the loss
    gets another term, or the configuration has something start. Where a batch has so few targets that three of
    them, guessed as at the start, lift its mean as far, one row or two are an info finding. So is one that
    recovered from a loss of less than a thousandth of the first, and rose to no more than a fiftieth of it: nearly
    all is learnt still, and Adam makes such jumps at a constant rate. So is a spike over which the loss rose nearly
    as far, and came back, three times in the 128 rows before: its batches are of several sorts. So is a row whose batch
    has the shortest, or the longest, texts, where batches are grouped by length. So is one of a row
    or two that chance makes in a run of a hundred as long: where a wrong guess costs the first loss and ln (first
    loss / level), as with a model that is as sure as it is right, the number of them in a batch is Poisson's; below
    a tenth of the first loss the targets of a row count as one. So is one of a training whose layers are left out
    by chance: their number changed four times in the 128 steps before, and each batch has a model of its own. Of a
    loss that was below 0 before nothing is said.
    """

    name, family, kind, severity = "loss_spike", "loss", "spike", "warning"
    needs = ("loss",)
    least = 13
    about = "The loss spikes."
    sources = (
        "OLMo-core: 6 standard deviations over 128 values",
        "ml-engineering: fast, slow and non-recovering spikes",
    )
    thresholds: ClassVar = {
        "z": (8.0, "six healthy runs of 130M to 1.2B parameters stayed below 4.5 in z of log loss"),
        "lift": (1.15, "bad batches lift the loss by 1.2 to 1.9"),
        "large": (1.5, "lift of a spike that is worth a look although it recovered; ours"),
        "fast": (50.0, "rows; ml-engineering's fast spikes are back within about 50 steps"),
        "fitted": (1e-3, "of the first loss; ours"),
        "little": (0.02, "of the first loss, at a spike's peak; ours"),
        "chance": (0.01, "of runs as long, that have such a batch; ours"),
        "learnt": (
            0.1,
            "of the first loss: below it a batch has as many targets as rows, if the watch knows no number, or as the "
            "configuration says",
        ),
        "slow": (200.0, "rows; BLOOM's one spike recovered in 200 steps"),
    }

    def reset(self) -> None:
        self._dips = self._rises = self._rest = numpy.empty(0)
        self._open: dict[str, Any] | None = None
        self._recent: list[tuple[float, int]] = []  # logarithm and step of the first rows of a segment
        self._apart: list[float] = []  # how far each was from its neighbours, the farthest last
        self._early = -1  # the segment of these rows
        self._segments = self._age = 0
        self._last = -1  # the row at which the last spike was over
        self._spacing = 1.0

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        history.local(channel, log=True)
        at = 0
        while at < len(rows):
            segment = int(rows.segment[at])
            if segment != self._early:
                self._early, self._recent, self._apart, self._age = segment, [], [], 0
                self._segments += 1
            change = numpy.flatnonzero(rows.segment[at:] != segment)
            end = at + int(change[0]) if len(change) and self._segments <= 16 else len(rows)
            young = self._age < _YOUNG and self._segments <= 16
            if young:
                end = min(end, at + _YOUNG - self._age)
                self._age += end - at
            yield from self._look(history, channel, rows.part(at, end), young)
            at = end

    def end(self, history: RunHistory, channel: Channel) -> Iterator[Finding]:
        if self._open is not None and not self._open["ended"]:
            self._open["ended"] = True
            if self._open["rows"] >= _STAYED and self._open["above"] >= 0.8 * self._open["rows"]:
                self._open["course"] = "not"
            if self._open["rows"] > 3:
                yield from self._tell(history, channel)

    def _look(self, history: RunHistory, channel: Channel, rows: ChannelRows, young: bool) -> Iterator[Finding]:
        level, spread, z = history.local(channel, log=True).rows(rows.first, rows.first + len(rows))
        needed = young or self._open is not None or numpy.fmax.reduce(z) > self.at["z"]  # no limit is lower
        limit = self._limits(z, needed)
        if limit is None:
            return
        hot = (z > limit) & (z * spread > math.log(self.at["lift"]))
        if not young and self._open is None and not hot.any():
            return
        at = 0
        while at < len(rows):
            history.as_of(rows.time[at])
            if self._open is not None:
                yield from self._go_on(history, channel, rows, at)
            elif hot[at]:
                if self._begin(history, channel, rows, at, level, spread, z):
                    yield from self._tell(history, channel)
            elif not young:
                places = numpy.flatnonzero(hot[at:])
                if not len(places):
                    break
                at += int(places[0])
                continue
            if young:
                yield from self._pulse(history, channel, rows, at)
            at += 1

    def _pulse(self, history: RunHistory, channel: Channel, rows: ChannelRows, at: int) -> Iterator[Finding]:
        """Among the first rows of a segment: one row, or two, above the three before and the three behind.

        Here the curve still bends, and a level told from rows before is uncertain; the neighbours are not.
        """
        value, segment = float(rows.value[at]), int(rows.segment[at])
        if not math.isfinite(value) or value <= 0:
            return
        self._recent.append((math.log(value), int(rows.step[at])))
        if len(self._recent) < 8:
            return
        part = self._recent[-7:]
        around = sorted(item[0] for nth, item in enumerate(part) if nth != 3)
        normal = (around[2] + around[3]) / 2
        apart = part[3][0] - normal
        known = self._apart
        if len(known) < 6:
            insort(known, abs(apart))
            return
        noise = max(1.4826 * known[len(known) // 2], 0.004)
        limit = self.at["z"] * noise * (1 + 6 / len(known))
        # the farthest earlier ones are what this curve does anyway; one of them may be a spike itself
        limit = max(limit, math.log(self.at["lift"]), 2.0 * known[-2])
        insort(known, abs(apart))
        row = rows.first + at
        due = apart > limit and self._open is None and row > self._last + 3
        if due and not goes_below_zero(channel, row, segment):
            self._spacing = (part[-1][1] - part[0][1]) / 6
            above = 1 + (part[4][0] - normal > 0.5 * apart)
            early, late = sorted(part[:3])[1][0], sorted(part[4:])[1][0]
            if part[2][0] - normal > 0.5 * apart:
                return
            stays = late - early > 0.5 * (part[3][0] - early)  # it has not come back
            normal, above = (early, 4) if stays else (normal, above)
            self._open = {
                "row": len(self._recent) - 4,
                "step": part[3][1],
                "segment": segment,
                "found": part[-1][1],
                "level": normal,
                "spread": noise,
                "z": (part[3][0] - normal) / noise,
                "peak": exp(part[3][0]),
                "peak_step": part[3][1],
                "above": above,
                "rows": above if stays else 1 + above,
                "recent": [item[0] for item in part[4:]] if stays else [],
                "course": "" if stays else "fast",
                "last": part[3 + above - 1][1],
                "ended": not stays,
                "co": None,
                "first": part[3][0] - normal,
                "nth": len(self._recent) - 4,
            }
            yield from self._tell(history, channel)
            self._open = self._open if stays else None
            self._last = rows.first + at if stays else self._last

    def _limits(self, z: NDArray[Any], needed: bool) -> NDArray[Any] | None:
        """The threshold for each row, by the tails of the blocks of 32 rows before it; None where it is not needed."""
        held = len(self._rest)
        known = numpy.concatenate([self._rest, z]) if held else z
        whole = len(known) // 32
        blocks = known[: whole * 32]
        blocks = numpy.where(numpy.isfinite(blocks), blocks, 0.0).reshape(whole, 32)
        dips = numpy.concatenate([self._dips, numpy.minimum(-blocks.min(axis=1), 60.0) if whole else []])
        rises = numpy.concatenate([self._rises, numpy.partition(blocks, 29, axis=1)[:, 29] if whole else []])
        before_it = len(self._dips)
        self._dips, self._rises, self._rest = dips[-32:], rises[-32:], known[whole * 32 :].copy()
        if not needed:
            return None
        limits = numpy.full(whole + 1, self.at["z"])
        for tails, times in ((dips, 1.3), (rises, 1.5)):
            # the 32 blocks before each one, fewer at the beginning
            padded = numpy.concatenate([numpy.full(32, -numpy.inf), tails])
            highest = windows(padded[before_it : before_it + whole + 32], 32).max(axis=1)
            limits = numpy.maximum(limits, times * highest)
        limit = numpy.repeat(limits, 32)[held : held + len(z)]
        if not before_it:  # a spread of a dozen rows is itself uncertain
            nth = numpy.arange(held, min(held + len(z), 32))
            limit[: len(nth)] = self.at["z"] * (1.0 + 6.0 / numpy.maximum(nth - 6.0, 6.0))
        return limit

    def _begin(
        self,
        history: RunHistory,
        channel: Channel,
        rows: ChannelRows,
        at: int,
        level: NDArray[Any],
        spread: NDArray[Any],
        z: NDArray[Any],
    ) -> bool:
        row = self._last = rows.first + at
        if goes_below_zero(channel, row, int(rows.segment[at])):
            return False
        behind = channel.rows(max(row - 16, 0), row + 1)
        self._spacing = median(numpy.diff(behind.step)) if len(behind) > 1 else 1.0
        old = history.local(channel, log=True).rows(behind.first, row + 1)[2]
        onset = len(behind) - 1
        for step_back in range(len(behind) - 2, -1, -1):
            if behind.segment[step_back] != rows.segment[at] or not old[step_back] > 3.0:
                break
            onset = step_back
        self._open = {
            "row": behind.first + onset,
            "step": int(behind.step[onset]),
            "segment": int(rows.segment[at]),
            "found": int(rows.step[at]),
            "level": float(level[at]),
            "spread": float(spread[at]),
            "z": float(z[at]),
            "peak": float(rows.value[at]),
            "peak_step": int(rows.step[at]),
            "above": 1,
            "rows": 1,
            "recent": [math.log(rows.value[at])],
            "severity": "info",
            "course": "",
            "last": int(rows.step[at]),
            "ended": False,
            "co": None,
            "first": math.log(rows.value[at]) - float(level[at]),
            "nth": behind.first + onset,
        }
        return True

    def _go_on(self, history: RunHistory, channel: Channel, rows: ChannelRows, at: int) -> Iterator[Finding]:
        one = self._open
        assert one is not None
        value = float(rows.value[at])
        if rows.segment[at] != one["segment"] or one["ended"]:
            self._open = None
            return
        one["rows"] += 1
        self._last = rows.first + at
        if not math.isfinite(value) or value <= 0:
            one["course"] = "to nonfinite" if not math.isfinite(value) else one["course"]
            one["last"] = int(rows.step[at])
            if not math.isfinite(value):
                yield from self._tell(history, channel)
                self._open = None
            return
        one["last"] = int(rows.step[at])
        height = math.log(value)
        one["recent"] = [*one["recent"][-2:], height]
        changed = False
        z = (height - one["level"]) / one["spread"]
        if z > max(3.0, 0.2 * one["z"]):
            one["above"] += 1
            changed = one["above"] == 2
        if value > one["peak"]:
            changed |= value > 1.2 * one["peak"]
            one["peak"], one["peak_step"] = value, int(rows.step[at])
            one["z"] = max(one["z"], z)
        middle = sorted(one["recent"])[1] if len(one["recent"]) == 3 else math.inf
        margin = max(3.0 * one["spread"], 0.2 * (math.log(one["peak"]) - one["level"]))
        if middle < one["level"] + margin or (one["rows"] == 2 and z < 1.0):
            one["course"] = "fast" if one["rows"] <= self.at["fast"] else "slow"
            yield from self._tell(history, channel)
            self._open = None
        elif one["rows"] == int(self.at["fast"]) or changed:
            yield from self._tell(history, channel)
        elif one["rows"] >= self.at["slow"]:
            one["course"] = "not"
            yield from self._tell(history, channel)
            self._open = None

    def _grade(self, history: RunHistory, channel: Channel) -> str:
        """The severity by what is known of the spike so far."""
        one = self._open
        assert one is not None
        lift = exp(min(math.log(one["peak"]) - one["level"], 50.0))
        stays = one["rows"] >= _STAYED and one["course"] != "to nonfinite"
        if is_game(history, channel) or (
            stays and evaluation_holds(history, one["step"], one["last"], one["segment"], math.log(max(lift, 1.0)))
        ):
            return "info"
        if stays and falling_term(history, one["step"], one["last"], one["segment"]):
            return "info"
        one["meant"] = one["course"] != "to nonfinite" and stage_begins(history, one["step"], one["segment"])
        if one["meant"]:
            return "info"
        if one["course"] in ("not", "to nonfinite") or (one["course"] == "" and one["rows"] >= self.at["fast"]):
            return "warning" if lift >= 1.3 else "info"
        fitted = exp(one["level"]) < self.at["fitted"] * channel.first
        if fitted and one["course"] in ("fast", "slow") and one["peak"] < self.at["little"] * channel.first:
            return "info"
        if one["course"] == "slow" and one["rows"] >= 2 * self.at["fast"] and lift >= 1.25:
            return "warning"  # what a hundred rows had learnt is lost
        large = lift >= 2 * self.at["large"] or (lift >= self.at["large"] and (one["above"] >= 2 or one["co"]))
        sparse = self._spacing >= 5
        if not large or one["nth"] < (16 if sparse else 64):
            return "info"
        few = one["above"] <= 2 and self._is_of_few(history, channel)
        left_out = between(history.channel("model/left_out"), one["step"] - 128, one["last"] + 1, one["segment"])
        if len(left_out) >= _CHANGES and one["course"] in ("fast", "slow", ""):
            return "info"
        if one["above"] == 1 and is_outermost(history, one["peak_step"], one["segment"]):
            return "info"
        return "info" if few or self._is_usual(history, channel, math.log(lift)) else "warning"

    def _is_usual(self, history: RunHistory, channel: Channel, lift: float) -> bool:
        """Whether the loss rose by four fifths of a lift, in ln, and came back, three times in the 128 rows before."""
        one = self._open
        assert one is not None
        rows = channel.rows()
        known = numpy.flatnonzero((rows.segment == one["segment"]) & (rows.step < one["step"]))[-128:]
        if len(known) < 32:
            return False
        _, spread, z = history.local(channel, log=True).rows(
            rows.first + int(known[0]), rows.first + int(known[-1]) + 1
        )
        with numpy.errstate(invalid="ignore"):
            high = z * spread > 0.8 * lift
        return int((high[1:-1] & ~high[2:]).sum()) >= 3  # the last row may be of the spike itself

    def _is_of_few(self, history: RunHistory, channel: Channel) -> bool:
        """Whether a batch has so few targets that three of them, guessed as at the start, lift its mean as far, or as
        many wrong guesses as it takes, of targets or of rows whose targets are wrong together, come by chance in a run
        as long.
        """
        one = self._open
        assert one is not None
        level, first = exp(one["level"]), channel.first
        counts = between(history.channel("model/targets"), 0, one["step"] + 1, one["segment"])
        learnt, told = level < self.at["learnt"] * first, math.nan
        if learnt:
            told = numeric_setting(history, *_ROWS)
            rows = between(history.channel("model/example_rows"), 0, one["step"] + 1, one["segment"])
            told = float(rows[-1]) if len(rows) else told
        if not len(counts) and not told >= 1:
            return False
        count = max(1.0, float(counts[-1]) if len(counts) else told)
        if one["peak"] - level <= 3 * first / count:
            return True
        count = max(1.0, min(count, told)) if told >= 1 else count  # what is wrong with a row is with all its targets
        cost = first + math.log(max(first / level, 1.0)) if first > 0 else math.inf
        wrong = math.ceil(count * one["peak"] / cost)
        return bool(_at_least(wrong, count * level / cost) * max(1, one["nth"]) >= self.at["chance"])

    def _tell(self, history: RunHistory, channel: Channel) -> Iterator[Finding]:
        one = self._open
        assert one is not None
        norm = history.role("norm")
        step = one["step"]
        around = between(norm, step - 1, one["peak_step"] + 1, one["segment"])
        calm = between(norm, 0, step - 1, one["segment"])[-128:]
        if len(around) and len(calm) >= 16 and median(calm) > 0:
            one["co"] = float(around.max()) > 4.0 * float(numpy.percentile(calm, 90))
        severity = self._grade(history, channel)
        normal = exp(one["level"])
        lift = one["peak"] / normal
        evidence = {
            "loss": rounded(one["peak"]),
            "expected": rounded(normal),
            "lift": rounded(lift, 3),
            "z": rounded(one["z"], 3),
            "spread": rounded(one["spread"], 3),
            "peak_step": one["peak_step"],
            "rows_above": one["above"],
            "course": one["course"] or "open",
            "rows": one["rows"],
        }
        if len(around) and len(calm):
            evidence |= {"norm": rounded(float(around.max())), "norm_before": rounded(median(calm))}
            evidence["with_gradient_spike"] = bool(one["co"])
        course = {
            "fast": ", and recovered after %d rows",
            "slow": ", and recovered after %d rows",
            "not": ", and has not recovered in %d rows",
            "to nonfinite": ", and became NaN or infinite after %d rows",
        }
        message = f"The loss jumped from {normal:.4g} to {one['peak']:.4g} ({lift:.3g} times) at step {step}"
        message += course[one["course"]] % one["rows"] if one["course"] else ""
        message += WITH_STAGE if one.get("meant") else ""
        causes = ["bad batch: its data differ from the rest", "learning rate too high: close to the stability limit"]
        if one["course"] in ("not", "to nonfinite") or one["rows"] >= self.at["fast"]:
            causes = [
                "learning rate too high: the weights left the stable region",
                "labels shifted: targets or their order changed",
                "labels shuffled: targets no longer match inputs",
                "bad batch: different data since this step",
            ]
            if one["first"] > 0.7 * (math.log(one["peak"]) - one["level"]):  # weights don't leave it in one step
                causes = [causes[2], causes[1], causes[3], causes[0]]
        elif one["course"] and one["above"] >= 6:  # more than a few batches: other targets, and they are learnt
            causes = ["labels shifted: targets changed, and the new ones are learnt", *causes]
        remedies = []
        checkpoint = history.checkpoint_before(step)
        last = one["peak_step"] if one["course"] != "not" else one["last"]
        if checkpoint and severity == "warning":
            remedies.append(
                f"Go back to the checkpoint of step {checkpoint[0]} ({checkpoint[1]}) and skip the batches of "
                f"steps {step} to {last}."
            )
        elif one["course"] == "not":
            remedies.append(f"Compare data, labels and configuration before and after step {step}.")
        else:
            remedies.append(_skip(step, last))
        if len(calm) >= 16:
            remedies.append(
                f"Clip the gradient norm at {rounded(float(numpy.percentile(calm, 95)), 2):g}: 95% of the steps "
                "before were below."
            )
        if (lr := before(history.role("lr"), step, one["segment"])) > 0 and math.isfinite(lr):
            evidence["lr"] = rounded(lr)
            if one["course"] == "not":
                remedies.append(f"Try a learning rate of {lr / 3:.2g}; it was {lr:.2g}.")
        yield self.finding(
            step,
            message,
            severity=severity,
            last_step=one["last"],
            found=one["found"],
            evidence=evidence,
            causes=[] if one.get("meant") else causes,
            remedies=[] if one.get("meant") else remedies,
            segment=one["segment"],
            confidence=0.9 if severity == "warning" else 0.7,
        )


def _at_least(count: int, mean: float) -> float:
    """How likely this many or more are, by Poisson."""
    if mean <= 0 or count > 512:
        return 0.0
    fewer = sum(math.exp(nth * math.log(mean) - mean - math.lgamma(nth + 1)) for nth in range(count))
    return max(0.0, 1.0 - fewer)


def _skip(step: int, last: int) -> str:
    """The advice to look at the batches from a step to a last one."""
    if last > step:
        return f"Look at the batches of steps {step} to {last}, or skip them."
    return f"Look at the batch of step {step}, or skip it."
