"""The log itself: rows that are missing, steps that go back, clocks, several runs in one file.

In:   the steps and times of the loss, or of the longest series.
Out:  findings of `MissingRows`, `StepsGoBack`, `ClockSkew`, `RunsInOneFile`: how far the others can be trusted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy

from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
from barograph.doctor.kernel.curve import again
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.series import SeriesRule


class _Steps(SeriesRule):
    """A rule that looks at steps and times of the loss; the last row of the call before comes first."""

    family, kind, severity = "run", "logging", "info"
    needs = ("loss",)

    def reset(self) -> None:
        self._told: Finding | None = None

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        yield from self.steps(history, channel.rows(max(rows.first - 1, 0), rows.first + len(rows)))

    def steps(self, history: RunHistory, rows: ChannelRows) -> Iterator[Finding]:
        """New rows behind one that is known."""
        raise NotImplementedError


class MissingRows(_Steps):
    """Steps are missing: the distance to the next row is four times the usual one, or more, and then the usual again.

    The usual distance is the commonest so far. Three such distances in a row are another interval of logging: a log
    that has each of the first steps, and then one in a hundred, has no gaps.
    """

    name = "missing_rows"
    least = 20
    about = "Steps are missing in the log."
    thresholds: ClassVar = {"times": (4.0, "ours"), "others": (3.0, "in a row: another interval; ours")}
    causes = ("logging: the writing process died or was paused",)
    remedies = ("Look whether the training went on between these steps.",)

    def reset(self) -> None:
        super().reset()
        self._spacings: dict[int, int] = {}
        self._open: list[tuple[int, int, int]] = []  # steps before and behind a gap, and the segment
        self._gaps = 0
        self._lost = 0

    def steps(self, history: RunHistory, rows: ChannelRows) -> Iterator[Finding]:
        apart = rows.gaps
        if len(apart) and self._spacings and not rows.cuts and not self._open:
            usual = max(self._spacings, key=lambda item: self._spacings[item])
            if (apart == usual).all():
                self._spacings[usual] += len(apart)
                return
        same = rows.segment[1:] == rows.segment[:-1]
        for at in range(len(apart)):
            distance = int(apart[at])
            if distance <= 0 or not same[at]:
                continue
            total = sum(self._spacings.values())
            usual = max(self._spacings, key=lambda item: self._spacings[item]) if self._spacings else distance
            regular = total >= 16 and self._spacings[usual] > 0.8 * total
            if regular and distance >= self.at["times"] * usual:
                self._open.append((int(rows.step[at]), int(rows.step[at + 1]), int(rows.segment[at])))
                if len(self._open) >= self.at["others"]:
                    self._spacings, self._open = {distance: len(self._open)}, []
                continue
            yield from self._missing(usual, int(rows.step[at + 1]))
            if len(self._spacings) < 64 or distance in self._spacings:
                self._spacings[distance] = self._spacings.get(distance, 0) + 1

    def _missing(self, usual: int, found: int) -> Iterator[Finding]:
        """Gaps behind which rows come as before."""
        for step, behind, segment in self._open:
            self._gaps += 1
            self._lost += (behind - step) // usual - 1
            if self._told is None:
                self._told = self.finding(step, "", last_step=step, found=found, segment=segment, confidence=0.6)
            self._told.last_step = behind
            self._told.evidence = {"gaps": self._gaps, "rows_missing": self._lost, "spacing": usual}
            gaps = f"{self._gaps} gap{'s' * (self._gaps > 1)}"
            self._told.message = f"{self._lost} rows are missing in {gaps}, the first behind step {self._told.step}"
            if self._gaps < 100:
                yield again(self._told)
        self._open = []


class StepsGoBack(_Steps):
    """Steps go back, or are logged twice, within a segment: several writers in one file, or a restart that was not
    recorded.

    Rules still take the rows in the order in which they were logged.
    """

    name = "steps_go_back"
    about = "Steps are not in order."
    causes = ("logging: several processes write one series", "logging: a restart that is not recorded as one")
    remedies = ("Log from rank 0 alone, or give each writer its own file.",)

    def reset(self) -> None:
        super().reset()
        self._back = self._twice = 0

    def steps(self, history: RunHistory, rows: ChannelRows) -> Iterator[Finding]:
        apart = rows.gaps
        bad = apart <= 0
        if not bad.any():
            return
        bad &= rows.segment[1:] == rows.segment[:-1]
        if not bad.any():
            return
        for at in numpy.flatnonzero(bad).tolist():
            self._back += int(apart[at] < 0)
            self._twice += int(apart[at] == 0)
            step = int(rows.step[at + 1])
            if self._told is None:
                self._told = self.finding(
                    step,
                    "",
                    found=step,
                    segment=int(rows.segment[at]),
                    confidence=0.6,
                )
        told = self._told
        assert told is not None
        told.last_step = max(told.last_step, int(rows.step[1:][bad].max()))
        told.evidence = {"back": self._back, "twice": self._twice}
        went = f"went back {self._back} times" if self._back else ""
        twice = f"were logged twice {self._twice} times" if self._twice else ""
        told.message = f"Steps {' and '.join(filter(None, (went, twice)))}, first at step {told.step}"
        yield again(told)


class ClockSkew(_Steps):
    """Times go back by more than a second from one row to the next: a clock was set, or machines differ.

    Durations and rates around it are not to be trusted.
    """

    name = "clock_skew"
    about = "Timestamps go backwards."
    thresholds: ClassVar = {"seconds": (1.0, "ours")}
    causes = ("logging: a clock was changed",)
    remedies = ("Synchronize the machines' clocks with NTP.",)

    def steps(self, history: RunHistory, rows: ChannelRows) -> Iterator[Finding]:
        if self._told is not None:
            return
        apart = rows.time[1:] - rows.time[:-1]
        back = apart < -1e6 * self.at["seconds"]
        if not back.any():
            return
        back &= (rows.segment[1:] == rows.segment[:-1]) & (rows.gaps > 0)
        if not back.any():
            return
        at = int(numpy.flatnonzero(back)[0])
        self._told = self.finding(
            int(rows.step[at + 1]),
            f"The clock went back by {-apart[at] / 1e6:.3g} seconds at step {int(rows.step[at + 1])}",
            found=int(rows.step[at + 1]),
            segment=int(rows.segment[at]),
            confidence=0.8,
            evidence={"seconds": round(float(-apart[at]) / 1e6, 3)},
        )
        yield again(self._told)


class RunsInOneFile(_Steps):
    """One log holds several runs: segments begin again at the first step, three of them or more.

    A sweep that writes into one file looks like one run that restarts. Split it before curves are compared.
    """

    name = "runs_in_one_file"
    about = "The log holds several runs."
    thresholds: ClassVar = {"segments": (3.0, "ours")}
    causes = ("logging: several runs write one file",)
    remedies = ("Give each run its own folder or file.",)

    def reset(self) -> None:
        super().reset()
        self._first: int | None = None
        self._begun = 0
        self._segment = -1

    def steps(self, history: RunHistory, rows: ChannelRows) -> Iterator[Finding]:
        if self._segment == rows.segment[0] == rows.segment[-1]:
            return
        for at in (0, *rows.cuts):
            if int(rows.segment[at]) == self._segment:
                continue
            self._segment = int(rows.segment[at])
            step = int(rows.step[at])
            self._first = step if self._first is None else self._first
            self._begun += abs(step - self._first) <= 1
            if self._begun >= self.at["segments"] and abs(step - self._first) <= 1:
                self._told = self.finding(
                    step,
                    f"The log begins at step {self._first} {self._begun} times: it holds several runs",
                    found=step,
                    segment=self._told.segment if self._told else self._segment,
                    confidence=0.6,
                    evidence={"runs": self._begun},
                )
                yield again(self._told)


RULES = (MissingRows, StepsGoBack, ClockSkew, RunsInOneFile)
