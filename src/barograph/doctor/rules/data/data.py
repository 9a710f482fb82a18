"""What the model is fed: batches that come again, padding, labels, tokens.

In:   series `data/…` of the probe of batches, tokens of each step.
Out:  findings of `RepeatedBatches`, `RepeatedRows`, `IgnoredLabels`, `Padding`, `StepTokens`, and those of
      `targets`, `examples`, `labels`, `objectives`, `unrelated` and `regression`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy

from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
from barograph.doctor.kernel.cursor import known
from barograph.doctor.kernel.curve import again, rounded
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.series import SeriesRule
from barograph.doctor.kernel.stages import is_curriculum
from barograph.doctor.rules.data import (
    examples,
    labels,
    latents,
    objectives,
    other_labels,
    regression,
    targets,
    unrelated,
)


class RepeatedBatches(SeriesRule):
    """Batches that were seen before in the same epoch.

    From `data/repeats` of the batch probe, which compares fingerprints: it counts batches, not chance. One or two are
    an info finding (a file listed twice, a sampler that draws with replacement); three are a warning. Where the last 16
    records all repeat, the data ended or the loop asks for no new batch.
    """

    name, family, kind, severity = "repeated_batches", "data", "repeated_data", "warning"
    series = "=data/repeats"
    needs = ("=data/repeats",)
    about = "Batches repeat within an epoch."
    thresholds: ClassVar = {
        "batches": (3.0, "ours"),
        "records": (16.0, "all of them repeat: the data are exhausted; ours"),
    }

    def reset(self) -> None:
        self._told: Finding | None = None
        self._count = self._row = self._quiet = self._same = 0

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        for at in numpy.flatnonzero((rows.value > 0) & numpy.isfinite(rows.value)).tolist():
            row, step = rows.first + at, int(rows.step[at])
            if self._told is not None and (row - self._row > 64 or self._told.segment != rows.segment[at]):
                self._told = None
            if self._told is None:
                self._count, self._begin, self._streak = 0, row, 0
                self._told = self.finding(
                    step, "", severity="info", found=step, segment=int(rows.segment[at]), confidence=0.9
                )
            told = self._told
            self._streak = self._streak + 1 if row == self._row + 1 else 1
            self._row = row
            self._count += int(rows.value[at])
            told.last_step = step
            told.severity = "warning" if self._count >= self.at["batches"] else "info"
            exhausted = self._streak >= self.at["records"]
            told.message = (
                f"{self._count} batch{'es' if self._count > 1 else ''} from step {told.step} on had been seen before"
            )
            told.evidence = {"batches": self._count, "in_a_row": self._streak}
            place = (step, int(rows.time[at]), int(rows.segment[at]))
            self._same = self._same + 1 if known(history.channel("data/repeat_of"), *place) == step - 1 else 0
            causes = [
                "data replayed: the loader restarted",
                "data exhausted: the loader restarted without a new epoch number",
            ]
            told.causes = causes[::-1] if exhausted else causes
            if self._same >= self.at["records"]:  # one batch, again and again
                told.causes = [examples.SEEDED, *told.causes]
            told.remedies = [
                f"Look at the loader and its file list at step {told.step}; pass the epoch if a new one began."
            ]
            if self._count <= 4 or self._streak == self.at["records"] or self._count >= self._quiet:
                self._quiet = 2 * self._count if self._count > 4 else 0
                yield again(told)

    def end(self, history: RunHistory, channel: Channel) -> Iterator[Finding]:
        if self._told is not None:
            yield again(self._told)


class RepeatedRows(SeriesRule):
    """Rows of a batch repeat earlier rows of the epoch, though the batch as a whole is new.

    From `data/repeated_rows_share` of the batch probe. Two records in a row in which half of the rows are repeats,
    after 32 in which hardly any were, are batches built from one row, or used twice. Where the mean of 16 records has
    risen from below 0.1 to above 0.4 within 48, the same few rows are mixed in repeatedly: such as those of the
    evaluation; where the configuration names a curriculum, which begins with a part of the rows, that is an info
    finding. Rows drawn with replacement repeat too, but their share grows slowly.
    """

    name, family, kind, severity = "repeated_rows", "data", "repeated_data", "warning"
    series = "=data/repeated_rows_share"
    needs = ("=data/repeated_rows_share",)
    least = 34
    about = "Rows of a batch repeat earlier rows."
    thresholds: ClassVar = {
        "half": (0.5, "of the rows of two batches in a row; ours"),
        "share": (0.4, "mean of 16 records; ours"),
        "before": (0.1, "mean of 32 records before; ours"),
    }

    def reset(self) -> None:
        self._segment = -1
        self._past: list[float] = []  # the newest 64 records
        self._steps: list[int] = []
        self._told: Finding | None = None

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        whole = (rows.segment == self._segment).all() and len(rows) >= 64
        if whole and not rows.value.any() and not any(self._past):  # nothing repeats
            self._past, self._steps = rows.value[-64:].tolist(), rows.step[-64:].tolist()
            return
        for at in range(len(rows)):
            value, step, segment = float(rows.value[at]), int(rows.step[at]), int(rows.segment[at])
            if segment != self._segment:
                self._segment, self._past, self._steps, self._told = segment, [], [], None
            self._past = [*self._past[-63:], value if value == value else 0.0]
            self._steps = [*self._steps[-63:], step]
            yield from self._judge(history, step, segment)

    def _judge(self, history: RunHistory, step: int, segment: int) -> Iterator[Finding]:
        past = self._past
        if self._told is not None and self._told.key == "mixed":
            return
        calm = past[-34:-2]
        burst = len(calm) == 32 and min(past[-2:]) >= self.at["half"] and sum(calm) < 32 * self.at["before"] / 2
        early, late = past[:32], past[-16:]
        mixed = len(past) == 64 and sum(late) >= 16 * self.at["share"] and sum(early) < 32 * self.at["before"]
        if mixed:
            begin = _risen_at(past)
            leaked = "validation leak: rows of a small set, such as the evaluation's, are mixed in"
            causes = [leaked, "data replayed: the loader restarted", "data exhausted"]
            if self._told is not None:
                causes = ["data exhausted: the same rows repeat", leaked]
            self._told = self._say(self._steps[begin], step, segment, "mixed", sum(late) / 16, causes)
            self._told.severity = "info" if is_curriculum(history) else self.severity
            yield again(self._told)
        elif burst and self._told is None:
            causes = ["bad batch: rows that are all alike", "data exhausted", "data replayed"]
            self._told = self._say(self._steps[-2], step, segment, "burst", min(past[-2:]), causes)
            yield again(self._told)

    def _say(self, step: int, found: int, segment: int, key: str, share: float, causes: list[str]) -> Finding:
        return self.finding(
            step,
            f"{share:.0%} of the rows of a batch were seen before, since step {step}",
            found=found,
            segment=segment,
            key=key,
            confidence=0.8,
            evidence={"share": rounded(share), "series": "data/repeated_rows_share"},
            causes=causes,
            remedies=[f"Print the rows of the batch of step {step}, and where the loader took them from."],
        )


def _risen_at(values: list[float]) -> int:
    """Where the values rise for good: the cut, after 16 of them, that parts them best (least squares)."""
    whole, before, best, place = sum(values), 0.0, 0.0, len(values) - 1
    for at, value in enumerate(values):
        gap = (whole - before) / (len(values) - at) - before / max(1, at)
        if at >= 16 and gap > 0 and gap * gap * at * (len(values) - at) > best:
            best, place = gap * gap * at * (len(values) - at), at
        before += value
    return place


class _Share(SeriesRule):
    """A share that is too high in all of the last records."""

    family = "data"
    thresholds: ClassVar = {}

    def reset(self) -> None:
        self._streak = 0
        self._step = self._segment = 0
        self._told: Finding | None = None

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        high = rows.value > self.at["share"]
        if not high.any():
            self._streak, self._told = 0, None
            return
        for at in range(len(rows)):
            if not high[at]:
                if self._told is not None:
                    yield again(self._told)
                self._streak, self._told = 0, None
                continue
            if not self._streak:
                self._step, self._segment = int(rows.step[at]), int(rows.segment[at])
            self._streak += 1
            if self._streak >= self.at["records"]:
                if self._told is None:
                    self._told = self.tell(history, self._step, int(rows.step[at]), float(rows.value[at]))
                    self._told.segment = self._segment
                    yield again(self._told)
                self._told.last_step = int(rows.step[at])
                self._told.evidence["records"] = self._streak
        if self._told is not None:
            yield again(self._told)

    def tell(self, history: RunHistory, step: int, found: int, value: float) -> Finding:
        """The finding."""
        raise NotImplementedError


class IgnoredLabels(_Share):
    """Batches whose labels are all ignored (−100): the loss has nothing to average, and is NaN or 0.

    Five records in a row in which no label counts. Ignored shares below 1 are common in fine-tuning.
    """

    name, kind, severity = "ignored_labels", "padding", "critical"
    series = "=data/ignored_share"
    needs = ("=data/ignored_share",)
    about = "All labels are ignored."
    thresholds: ClassVar = {"share": (0.999, "all labels"), "records": (5.0, "ours")}
    causes = ("loss masked out: no label is left",)

    def tell(self, history: RunHistory, step: int, found: int, value: float) -> Finding:
        return self.finding(
            step,
            f"All labels are ignored since step {step}",
            found=found,
            confidence=0.95,
            evidence={"ignored_share": rounded(value)},
            remedies=[f"Check how the batch of step {step} was labelled: chat template, response mask, truncation."],
        )


class Padding(_Share):
    """More than half of the positions are padding in 32 records in a row: time spent on nothing. An info finding."""

    name, kind, severity = "padding", "padding", "info"
    series = "=data/padding_share"
    needs = ("=data/padding_share",)
    about = "More than half of the batch is padding."
    sources = ("SageMaker Debugger: NLPSequenceRatio, 50%",)
    thresholds: ClassVar = {"share": (0.5, "SageMaker Debugger"), "records": (32.0, "ours")}
    causes = ("padding: sequences of very different lengths",)

    def tell(self, history: RunHistory, step: int, found: int, value: float) -> Finding:
        return self.finding(
            step,
            f"{100 * value:.0f}% of the positions are padding since step {step}",
            found=found,
            evidence={"padding_share": rounded(value)},
            remedies=[
                f"Pack sequences, or batch them by length: up to {1 / max(1 - value, 0.01):.1f} times the throughput."
            ],
            confidence=0.9,
        )


class StepTokens(SeriesRule):
    """The tokens of a step change, and stay changed.

    The lower median of 16 rows differs from that of the 16 before by more than 10%. A batch or sequence ramp does that,
    as does a rank that is lost: an info finding. Steps without a token are a warning.
    """

    name, family, kind, severity = "step_tokens", "data", "data", "warning"
    series = "step_tokens"
    needs = ("step_tokens",)
    least = 32
    about = "The tokens per step change permanently."
    thresholds: ClassVar = {"change": (0.1, "ours"), "empty": (5.0, "rows without tokens; ours")}

    def reset(self) -> None:
        self._rest: list[tuple[float, int, int]] = []
        self._before: list[tuple[float, int, int]] = []  # the block before
        self._level: float | None = None
        self._empty = 0
        self._empty_step = 0

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        constant = self._level is not None and not self._rest and not self._empty
        if constant and (rows.value == self._level).all():
            extra = len(rows) % 16
            if len(rows) >= 16:
                self._before = []  # all as the level
            if extra:
                self._rest = [
                    (float(rows.value[at]), int(rows.step[at]), int(rows.segment[at]))
                    for at in range(len(rows) - extra, len(rows))
                ]
            return
        for at in range(len(rows)):
            value, step, segment = float(rows.value[at]), int(rows.step[at]), int(rows.segment[at])
            if value == 0:
                self._empty_step = step if not self._empty else self._empty_step
                self._empty += 1
                if self._empty == self.at["empty"]:
                    yield self.finding(
                        self._empty_step,
                        f"Steps have no tokens since step {self._empty_step}",
                        segment=segment,
                        found=step,
                        evidence={"rows": self._empty},
                        confidence=0.7,
                        key="empty",
                        causes=["data exhausted: empty batches", "loss masked out"],
                        remedies=["Check the loader and what is counted as a token."],
                    )
            else:
                self._empty = 0
            self._rest.append((value, step, segment))
            if len(self._rest) < 16:
                continue
            level = sorted(item[0] for item in self._rest)[7]  # one of them: between two there may be none
            old = self._level
            if old is not None and old > 0 and level > 0 and abs(level / old - 1) > self.at["change"]:
                both = [*self._before, *self._rest]
                begin = next((item for item in both if abs(item[0] - old) > abs(item[0] - level)), self._rest[0])
                yield self.finding(
                    begin[1],
                    f"A step has {level:.6g} tokens since step {begin[1]}; it had {old:.6g}",
                    severity="info",
                    found=step,
                    segment=begin[2],
                    confidence=0.6,
                    evidence={"before": rounded(old, 6), "after": rounded(level, 6)},
                    causes=["data: another batch size or sequence length"],
                    remedies=["Compare losses over tokens, not steps, across this step."],
                )
            self._level, self._before, self._rest = level, self._rest, []


RULES = (
    RepeatedBatches,
    RepeatedRows,
    IgnoredLabels,
    Padding,
    StepTokens,
    *targets.RULES,
    *examples.RULES,
    *labels.RULES,
    *other_labels.RULES,
    *objectives.RULES,
    *unrelated.RULES,
    *regression.RULES,
    *latents.RULES,
)
