"""Columns as a rule sees them: rows that came so far, one channel a series.

In:   blocks of rows, in the order in which they were logged.
Out:  `Seen`: channels by name, by role or by layer; facts about the run; events.

A channel keeps its newest rows and counts all: rows have absolute numbers, so that a rule remembers how far it has
looked. What a rule needs of older rows it keeps itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from barograph.record import Record
from barograph.rules.growing import Growing
from barograph.rules.roles import candidates

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barograph.rules.local import Local

KEEP = 32_768  # rows of a channel; the longest window of a rule is far shorter
KEEP_LAYER = 128  # rows of a channel of a layer, of which there may be many thousands
_WAITING = 64  # blocks of a channel that wait for somebody to look
LAYERED = {
    "gradients": {"norm", "std", "mean", "nan", "inf", "zeros"},
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
}
"""Tables of layers, and the quantities that rules look at; the others are not kept."""


class Rows(NamedTuple):
    """Columns of one length. `first`: the absolute number of the first row; time in µs since 1970."""

    first: int
    step: NDArray[numpy.int64]
    value: NDArray[numpy.float64]
    time: NDArray[numpy.int64]
    segment: NDArray[numpy.int32]

    def __len__(self) -> int:  # the number of rows, not of columns
        return len(self.value)


class Channel:
    """One series, growing. `end`: how many rows there ever were.

    Blocks are put into columns when somebody looks: of many series nobody ever does.
    """

    def __init__(self, name: str, keep: int = KEEP):
        self.name = name
        self.end = 0
        self._columns = Growing((numpy.int64, numpy.float64, numpy.int64, numpy.int32), keep)
        self._waiting: list[tuple[Any, Any, Any, Any, Any]] = []  # count, step, value, time, segment of each block

    @property
    def start(self) -> int:
        """The oldest row kept."""
        return self._known().start

    def __len__(self) -> int:
        return self.end

    def add(self, step: Any, value: Any, time: Any, segment: Any) -> None:
        """Rows [n], or one row, behind those that are there. Arrays must not be changed later."""
        count = len(value) if isinstance(value, numpy.ndarray) else 1
        self._waiting.append((count, step, value, time, segment))
        self.end += count
        if len(self._waiting) >= _WAITING:
            self._known()
            return
        while self.end - self._columns.end - self._waiting[0][0] >= KEEP:  # nobody has looked for so long
            self._columns.restart(self._columns.end + self._waiting.pop(0)[0])

    def _known(self) -> Growing:
        """All rows, as columns."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._columns.add_blocks(waiting)
        return self._columns

    def rows(self, first: int = 0, last: int | None = None) -> Rows:
        """Rows `first` to `last` (not with it), as far as they are kept. Views: not to be changed."""
        return Rows(*(self._known() if self._waiting else self._columns).views(first, last))

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


class Seen:
    """Everything a run has shown so far.

    facts: what is known of the run: `config` (flat, lower case), `vocabulary`, `planned_steps`, `world_size`,
    `checkpoints` [(step, path)], `finished` (no more rows will come), … A rule takes what it finds there.
    events: records without numbers: segment, checkpoint, oom, straggler, stacks, sample, end, in log order.
    """

    def __init__(self, facts: dict[str, Any] | None = None):
        self.facts: dict[str, Any] = facts or {}
        self.events: list[Record] = []
        self.kinds: set[str] = set()  # of these events
        self.channels: dict[str, Channel] = {}
        self.rows = 0  # of the longest channel
        self._roles: dict[str, tuple[int, Channel | None]] = {}
        self._layers: dict[tuple[str, str], tuple[int, dict[str, Channel]]] = {}
        self._locals: dict[tuple[str, bool, int], Local] = {}

    # -- filling -------------------------------------------------------------------------------------

    def add(self, name: str, step: Any, value: Any, time: Any = 0, segment: Any = 1) -> None:
        """Rows of a series: arrays [n], or one row."""
        channel = self.channels.get(name)
        if channel is None:
            if not is_wanted(name):
                return
            # phases have names as long as a layer's, and are few
            keep = KEEP_LAYER if name.count("/") > 1 and not name.startswith("speed/") else KEEP
            channel = self.channels[name] = Channel(name, keep)
        channel.add(step, value, time, segment)
        self.rows = max(self.rows, channel.end)

    def happened(self, event: Record) -> None:
        """A record without numbers."""
        self.events.append(event)
        self.kinds.add(event.kind)
        if event.kind == "checkpoint":
            self.facts.setdefault("checkpoints", []).append((event.step, str(event.fields.get("path", ""))))

    def patience(self, most: int) -> int:
        """How many rows a look may wait for: a thirty-second of the run, `most` at most, no more than come in half a
        minute where `facts` tell the pace (`seconds_between_rows`).
        """
        wait = max(32, min(self.rows // 32, most))
        seconds = self.facts.get("seconds_between_rows")
        return wait if not seconds else max(1, min(wait, int(30.0 / seconds)))

    # -- looking -------------------------------------------------------------------------------------

    def channel(self, name: str) -> Channel | None:
        """The series of that name, None if it has no row."""
        return self.channels.get(name)

    def role(self, role: str) -> Channel | None:
        """The series that plays a part, by the names it may have (`roles.ROLES`); None if there is none."""
        known = self._roles.get(role)
        if known is None or known[0] != len(self.channels):
            found = next((self.channels[name] for name in candidates(role, self.channels)), None)
            known = self._roles[role] = (len(self.channels), found)
        return known[1]

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
        from barograph.rules.local import Local

        key = (channel.name, log, window)
        if key not in self._locals:
            self._locals[key] = Local(channel, log=log, window=window)
        known = self._locals[key]
        known.extend()
        return known

    def events_of(self, *kinds: str) -> Iterator[Record]:
        """Events of these kinds."""
        return (event for event in self.events if event.kind in kinds)

    def checkpoint_before(self, step: int) -> tuple[int, str] | None:
        """The last checkpoint that was saved before a step: its step and path."""
        saved: Sequence[tuple[int, str]] = self.facts.get("checkpoints", ())
        earlier = [one for one in saved if one[0] < step]
        return max(earlier) if earlier else None


def is_wanted(name: str) -> bool:
    """Whether any rule may look at a series of that name."""
    family, _, rest = name.partition("/")
    wanted = LAYERED.get(family)
    return wanted is None or "/" not in rest or rest.rpartition("/")[2] in wanted
