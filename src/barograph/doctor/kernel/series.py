"""Rules over one series, and over the medians of its blocks.

In:   channels of a run.
Out:  `SeriesRule`, given each row of a series once; `BlockRule`, given the median of each sixteen.

A rule that waits is asked for sixteen new rows or more where a run is long; it looks at each row by what was known
then, so waiting changes nothing but the time of its answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from barograph.doctor.kernel.blocks import BlockColumns, NewBlocks
from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.rule import Rule

PATIENT_FROM = 256  # rows of a channel from which on rules wait for more


class SeriesRule(Rule):
    """A rule over one series. series: a role, or `=` and a name. waits: whether it may wait for more rows.

    `look` is given the rows that are new; `end` is asked once when the run is over, after the last rows. Where another
    series takes the role the rule forgets what it saw and begins with that one's first row.
    """

    series: ClassVar[str] = "loss"
    waits: ClassVar[bool] = True

    def __init__(self, **changed: float):
        super().__init__(**changed)
        self._followed: str | None = None
        self._next_row = 0
        self._is_over = False

    def channel(self, history: RunHistory) -> Channel | None:
        """The series that it looks at; None while there is none."""
        return history.channel(self.series[1:]) if self.series.startswith("=") else history.role(self.series)

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        history.as_of(None)
        channel = self.channel(history)
        if channel is None:
            return
        end, finished, same = channel.end, bool(history.facts.get("finished")), channel.name == self._followed
        if same and end == self._next_row and (self._is_over or not finished):
            return
        if not same:
            if self._followed is not None:
                self.reset()
            self._followed, self._next_row = channel.name, 0
        if finished:
            self._is_over = True
        elif self.waits and end > PATIENT_FROM and end - self._next_row < history.patience(512):
            return
        rows = channel.rows(self._next_row)
        self._next_row = end
        if len(rows):
            yield from self.look(history, channel, rows)
        history.as_of(None)
        if finished:
            yield from self.end(history, channel)

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        """New rows, at least one."""
        raise NotImplementedError

    def end(self, history: RunHistory, channel: Channel) -> Iterator[Finding]:
        """The run is over."""
        yield from ()


class BlockRule(Rule):
    """A rule over the medians of sixteen rows in a row of one series; `look` is given the blocks that are new."""

    def reset(self) -> None:
        self._blocks = NewBlocks()

    def channel(self, history: RunHistory) -> Channel | None:
        """The series that it looks at; None while there is none."""
        raise NotImplementedError

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        blocks = self._blocks.new(history, self.channel(history))
        if blocks is not None:
            yield from self.look(history, blocks)

    def look(self, history: RunHistory, new: BlockColumns) -> Iterator[Finding]:
        """New blocks, at least one."""
        raise NotImplementedError
