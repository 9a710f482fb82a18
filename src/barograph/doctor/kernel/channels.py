"""Columns as a rule sees them: rows that came so far, one channel a series.

In:   blocks of rows, in the order in which they were logged.
Out:  `RunHistory`: channels by name, by role or by layer; facts about the run; events.

A channel keeps its newest rows and counts all: rows have absolute numbers, so that a rule remembers how far it has
looked. What a rule needs of older rows it keeps itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from barograph.core.configuration import Configuration
from barograph.core.record import Record
from barograph.core.roles import logarithm_of, may_play
from barograph.doctor.kernel.growing import Growing
from barograph.doctor.kernel.local import Local
from barograph.doctor.kernel.played import PlayedRoles

if TYPE_CHECKING:
    from numpy.typing import NDArray


KEEP = 32_768  # rows of a channel; the longest window of a rule is far shorter
KEEP_LAYER = 128  # rows of a channel of a table of layers, of which there may be many thousands
ROUNDS = 32  # rows of such a channel for which rules wait at most
_MESSAGES = 20_000
_TOGETHER = 1000  # sets of series that come together
_ALWAYS = (1 << 63) - 1  # µs; later than any row
_ASKED = 16  # answers of a channel that are kept until it grows
_PATIENT = 10e6  # µs; a warning that comes so much later is as good
_WAITING = 64  # blocks of a channel that wait for somebody to look
LAYERED = {
    "gradients": {"norm", "std", "mean", "max", "nan", "inf", "zeros"},
    "weights": {"norm", "std", "nan", "inf"},
    "updates": {"ratio", "update_norm", "weight_norm"},
    "optimizer": {"below_eps", "non_finite", "second_moment_norm"},
    "activations": {
        "rms",
        "dead",
        "saturated",
        "zeros",
        "max",
        "tail",
        "kurtosis",
        "l2_norm",
        "attention_logit_max",
        "attention_entropy",
    },
    "spectral": {"norm", "stable_rank"},
    "shape": {"modes", "kurtosis", "shift", "zero"},
}
"""Tables of layers, and the quantities that rules look at; the others are not kept."""
_SERIES = {
    "data",
    "eval",
    "gpu",
    "host",
    "memory",
    "model",
    "ranks",
    "span",
    "speed",
    "test",
    "train",
    "val",
}  # families


class ChannelRows:
    """Columns of one length. `first`: the absolute number of the first row; time in µs since 1970.

    What several rules ask of the same rows is found out once, when the first of them asks: `lowest` and `highest`
    value (NaN if one is), whether all are `finite`; `gaps`, each step's distance from the one before [n - 1]; `cuts`,
    the rows with which another segment begins than that of the row before.
    """

    __slots__ = ("cuts", "finite", "first", "gaps", "highest", "lowest", "segment", "step", "time", "value")
    lowest: float
    highest: float
    finite: bool
    gaps: NDArray[numpy.int64]
    cuts: list[int]

    def __init__(
        self,
        first: int,
        step: NDArray[numpy.int64],
        value: NDArray[numpy.float64],
        time: NDArray[numpy.int64],
        segment: NDArray[numpy.int32],
    ):
        self.first, self.step, self.value, self.time, self.segment = first, step, value, time, segment

    def __getattr__(self, name: str) -> Any:
        """What nobody has asked for yet."""
        if name not in _FOUND:
            raise AttributeError(name)
        result = _FOUND[name](self)
        setattr(self, name, result)
        return result

    def __len__(self) -> int:
        return len(self.value)

    def part(self, low: int, high: int) -> ChannelRows:
        """Rows `low` to `high` (not with it) of these."""
        if low == 0 and high == len(self.value):
            return self
        some = slice(low, high)
        return ChannelRows(self.first + low, self.step[some], self.value[some], self.time[some], self.segment[some])

    def all_of(self, segment: int | None) -> bool:
        """Whether all rows are of this segment."""
        return bool(self.segment[0] == segment) and not self.cuts


_FOUND: dict[str, Callable[[ChannelRows], Any]] = {
    "lowest": lambda rows: float(numpy.minimum.reduce(rows.value)),
    "highest": lambda rows: float(numpy.maximum.reduce(rows.value)),
    "finite": lambda rows: -math.inf < rows.lowest and rows.highest < math.inf,
    "gaps": lambda rows: rows.step[1:] - rows.step[:-1],
    "cuts": lambda rows: (numpy.flatnonzero(rows.segment[1:] != rows.segment[:-1]) + 1).tolist(),
}


class Clock:
    """Up to when a rule may know: the time of the row that it looks at, in µs since 1970."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = _ALWAYS


class Channel:
    """One series, growing. `end`: how many rows there ever were.

    Blocks are put into columns when somebody looks: of many series nobody ever does.
    """

    def __init__(self, name: str, keep: int = KEEP, unread: int = 0, clock: Clock | None = None):
        self.name, self.keep, self.clock = name, keep, clock or Clock()
        self.end = 0
        self.first = float("nan")  # its first value
        self.began = 0, 0  # step and time of its first row
        self._columns = Growing((numpy.int64, numpy.float64, numpy.int64, numpy.int32), keep, unread)
        self._waiting: list[tuple[Any, Any, Any, Any, Any]] = []  # count, step, value, time, segment of each block
        self._asked: dict[int, ChannelRows] = {}  # rows that were asked for, by the first, up to the newest
        self._finite, self._finite_to = True, 0  # whether all values are, of the rows that were looked at

    @property
    def start(self) -> int:
        """The oldest row kept."""
        return self._known().start

    def __len__(self) -> int:
        return self.end

    def add(self, step: Any, value: Any, time: Any, segment: Any) -> None:
        """Rows [n], or one row, behind those that are there. Arrays must not be changed later."""
        count = len(value) if isinstance(value, numpy.ndarray) else 1
        waiting = self._waiting
        waiting.append((count, step, value, time, segment))
        if self._asked:
            self._asked = {}
        if not self.end and count:
            self.first = float(numpy.ravel(value)[0])
            self.began = int(numpy.ravel(step)[0]), int(numpy.ravel(time)[0])
        self.end = end = self.end + count
        if len(waiting) >= _WAITING:
            self._known()
        elif end >= KEEP:
            while end - self._columns.end - waiting[0][0] >= KEEP:  # nobody has looked for so long
                self._columns.restart(self._columns.end + waiting.pop(0)[0])

    def _known(self) -> Growing:
        """All rows, as columns."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._columns.add_blocks(waiting)
        return self._columns

    def rows(self, first: int = 0, last: int | None = None) -> ChannelRows:
        """Rows `first` to `last` (not with it), as far as they are kept. Views: not to be changed."""
        if last is None or last >= self.end:
            found = self._asked.get(first)
            if found is None:
                if len(self._asked) >= _ASKED:
                    self._asked = {}
                found = self._asked[first] = self._rows(first, None)
            return found
        return self._rows(first, last)

    def _rows(self, first: int, last: int | None) -> ChannelRows:
        columns = self._known() if self._waiting else self._columns
        columns.read = columns.end
        return ChannelRows(*columns.views(first, last))

    def is_finite(self) -> bool:
        """Whether all values are, without putting new blocks into columns. Each is looked at once: a sum that is not
        finite counts as a value.
        """
        if self._finite and self._finite_to != self.end:
            at = self._columns.end
            blocks = [self._columns.view(1, self._finite_to)] if self._finite_to < at else []
            for block in self._waiting:
                if at >= self._finite_to:
                    blocks.append(block[2])
                at += block[0]
            for value in blocks:
                if not math.isfinite(numpy.add.reduce(value, None)):
                    self._finite = False
            self._finite_to = self.end
        return self._finite

    @property
    def last(self) -> float:
        """The newest value; NaN if there is none."""
        return float(self._known().view(1, self.end - 1)[0]) if self.end else float("nan")

    @property
    def last_step(self) -> int:
        return int(self._known().view(0, self.end - 1)[0]) if self.end else 0

    def at(self, step: int, segment: int | None = None) -> float:
        """The value at the last row whose step is not beyond `step`; NaN if there is none."""
        rows = self.rows()
        known = rows.step <= step
        if segment is not None:
            known &= rows.segment == segment
        places = numpy.flatnonzero(known)
        return float(rows.value[places[-1]]) if len(places) else float("nan")


class RunHistory:
    """Everything a run has shown so far.

    facts: what is known of the run: `config` (flat, lower case), `vocabulary`, `planned_steps`, `world_size`,
    `checkpoints` [(step, path)], `finished` (no more rows will come), … A rule takes what it finds there.
    events: records without numbers: segment, checkpoint, oom, straggler, stacks, sample, end, in log order.
    """

    def __init__(self, facts: dict[str, Any] | None = None):
        self.facts: dict[str, Any] = facts or {}
        self.clock = Clock()
        self.events: list[Record] = []
        self.kinds: set[str] = set()  # of these events
        self.channels: dict[str, Channel] = {}
        self.rows = 0  # of the longest channel
        self.rounds = 0  # of the longest one of a table of layers
        self._messages = 0
        self.catching_up = False  # rules look at all there is, however little that is
        self._longest: Channel | None = None
        self._patience = -1, 0, 1  # rows and limit when it was asked for, and the answer
        self._spaced = -1, 1.0  # the longest channel's end when the time between its rows was looked up, and that time
        self.played = PlayedRoles(self.channels, self.facts)
        self.asked: set[str] = set()  # the roles that were asked for
        self._layers: dict[tuple[str, str], tuple[int, dict[str, Channel]]] = {}
        self._locals: dict[tuple[str, bool, int], Local] = {}
        self._options: tuple[Mapping[str, Any], Configuration] | None = None
        self._logarithms: dict[str, Channel] = {}  # of perplexities, by their names
        self._together: dict[tuple[str, ...], list[Channel | None]] = {}  # the channels of series that come together

    def as_of(self, time: int | None = None) -> None:
        """From now on `role`, `channel`, and what `curve.before` and `curve.between` give, end at this time: a rule
        sets it to that of its row, so that what it finds does not depend on what else has come by then. None: no end.
        """
        self.clock.now = _ALWAYS if time is None else int(time)

    @property
    def options(self) -> Configuration:
        """The configuration by the names that trainers give their options."""
        config = self.facts.get("config") or {}
        if self._options is None or self._options[0] is not config:
            self._options = config, Configuration(config)
        return self._options[1]

    # -- filling -------------------------------------------------------------------------------------

    def add(self, name: str, step: Any, value: Any, time: Any = 0, segment: Any = 1) -> None:
        """Rows of a series: arrays [n], or one row."""
        channel = None if self._logarithms else self.channels.get(name)
        if channel is None:
            channel = self._channel_for(name)
        if channel is not None:
            self._grow(channel, step, value, time, segment)

    def add_block(self, names: tuple[str, ...], step: Any, values: Any, time: Any, segment: Any) -> None:
        """Rows [n] of several series, each of which is there once; values: [series, n]."""
        channels = self._together.get(names)
        if channels is None:
            if len(self._together) >= _TOGETHER:
                self._together.clear()
            channels = self._together[names] = [self._channel_for(name) for name in names]
        for channel, value in zip(channels, values, strict=True):
            if channel is not None:
                self._grow(channel, step, value, time, segment)

    def _grow(self, channel: Channel, step: Any, value: Any, time: Any, segment: Any) -> None:
        channel.add(step, value, time, segment)
        if self._logarithms and (logarithm := self._logarithms.get(channel.name)) is not None:
            step, value, time, segment = numpy.broadcast_arrays(*numpy.atleast_1d(step, value, time, segment))
            able = ~(value <= 0)
            logarithm.add(step[able], numpy.log(value[able]), time[able], segment[able])
        if channel.keep == KEEP_LAYER and channel.end > self.rounds:
            self.rounds = channel.end
        if channel.end > self.rows:
            self.rows, self._longest = channel.end, channel

    def _channel_for(self, name: str) -> Channel | None:
        """The channel of a series, a new one if need be; None for one that no rule looks at."""
        channel = self.channels.get(name)
        if channel is None and is_wanted(name):
            channel = self.channels[name] = _channel_of(name, self.clock)
            logarithm = logarithm_of(name)
            if logarithm and logarithm not in self.channels:
                self._logarithms[name] = self.channels[logarithm] = _channel_of(logarithm, self.clock)
        # an imported run has it as a series of its own too
        return None if channel in self._logarithms.values() else channel

    def source_of(self, name: str) -> str:
        """The logged series that a channel comes from: its own, or the perplexity of a logarithm."""
        return next((source for source, channel in self._logarithms.items() if channel.name == name), name)

    def happened(self, event: Record) -> None:
        """A record without numbers. Of messages the first 20,000 are kept."""
        if event.kind == "info":
            self._messages += 1
            if self._messages > _MESSAGES:
                return
        self.events.append(event)
        self.kinds.add(event.kind)
        if event.kind == "checkpoint":
            self.facts.setdefault("checkpoints", []).append((event.step, str(event.fields.get("path", ""))))

    def patience(self, most: int) -> int:
        """How many rows a look may wait for: a thirty-second of the run, `most` at most, no more than came in ten
        seconds by the times of the newest rows; none while rules catch up.
        """
        if self.catching_up:
            return 1
        if self._patience[:2] != (self.rows, most):
            wait = max(32, min(self.rows // 32, most))
            if self._longest is not None:
                wait = max(1, min(wait, int(_PATIENT / self._spacing())))
            self._patience = self.rows, most, wait
        return self._patience[2]

    def _spacing(self) -> float:
        """Time between the newest rows of the longest channel, µs; looked up again when there are 64 rows more."""
        channel = self._longest
        assert channel is not None
        if self._spaced[0] < 0 or channel.end - self._spaced[0] >= 64:
            time = channel.rows(channel.end - 64).time
            each = float(time[-1] - time[0]) / max(1, len(time) - 1)
            self._spaced = channel.end, max(each, 1.0)
        return self._spaced[1]

    # -- looking -------------------------------------------------------------------------------------

    def channel(self, name: str) -> Channel | None:
        """The series of that name, None if it has no row."""
        return self._begun(self.channels.get(name))

    def _begun(self, channel: Channel | None) -> Channel | None:
        return None if channel is None or channel.began[1] > self.clock.now else channel

    def role(self, role: str) -> Channel | None:
        """The series that plays a part, by the names it may have (`roles.ROLES`); None if there is none.

        Another may turn out to play it (`played`): a rule that asked of it then begins anew (`Examiner`).
        """
        self.asked.add(role)
        return self._begun(self.played.channel(role))

    def layers(self, family: str, quantity: str) -> dict[str, Channel]:
        """`{family}/{layer}/{quantity}` of every layer, in the order in which they came."""
        key = (family, quantity)
        known = self._layers.get(key)
        if known is None or known[0] != len(self.channels):
            head, tail = f"{family}/", f"/{quantity}"
            found = {
                name[len(head) : -len(tail)]: channel
                for name, channel in self.channels.items()
                if name.startswith(head) and name.endswith(tail) and len(name) > len(head) + len(tail)
            }
            known = self._layers[key] = (len(self.channels), found)
        return known[1]

    def local(self, channel: Channel, *, log: bool = False, window: int = 128) -> Local:
        """Level and noise of a channel around each row, from rows before it: `local.Local`, shared by rules."""

        key = (channel.name, log, window)
        result = self._locals.get(key)
        if result is None or not result.is_of(channel):  # a rule that begins anew makes its own channels anew
            result = self._locals[key] = Local(channel, log=log, window=window)
        result.extend()
        return result

    def events_of(self, *kinds: str) -> Iterator[Record]:
        """Events of these kinds."""
        return (event for event in self.events if event.kind in kinds)

    def checkpoint_before(self, step: int) -> tuple[int, str] | None:
        """The last checkpoint that was saved before a step: its step and path."""
        saved: Sequence[tuple[int, str]] = self.facts.get("checkpoints", ())
        earlier = [item for item in saved if item[0] < step]
        return max(earlier) if earlier else None


def is_wanted(name: str) -> bool:
    """Whether any rule may look at a series of that name."""
    family, _, rest = name.partition("/")
    wanted = LAYERED.get(family)
    return wanted is None or "/" not in rest or rest.rpartition("/")[2] in wanted


def _channel_of(name: str, clock: Clock) -> Channel:
    """An empty channel, which keeps as much as rules look back in a series of that name."""
    family, _, rest = name.partition("/")
    if "/" in rest and (family in LAYERED or family == "moe"):
        return Channel(name, KEEP_LAYER, KEEP, clock)
    alone = "/" not in rest or family in _SERIES or may_play(name)
    return Channel(name, KEEP if alone else KEEP_LAYER, 0, clock)
