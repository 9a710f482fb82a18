"""A mirror: one backend that gets what a run's folder holds, from where it stood.

In:   a run's folder, also while it is written; its position for this backend.
Out:  rows, histograms, configuration, texts and notes handed to a `LoggingBackend`; a new position.

It works in the thread of the backend's sender, which asks it (`Sender.feed`). A backend that stands still holds up
nothing but this: all that it has not got yet is on the disk.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from barograph.core.aliases import Alias, renamed
from barograph.core.values import flatten
from barograph.trackers import names
from barograph.trackers.backend import LoggingBackend
from barograph.trackers.position import Place, Position
from barograph.trackers.replay import Logged, Replay, Wide
from barograph.trackers.wide import Distribution

OFFSET = "barograph_offset"  # in a row: the byte of the log file up to which it tells
WIDE = "barograph_wide"  # in a row: the number of a wide row in its log
_MOST = 1000  # items handed over between two looks at whether the backend is still there
_NOTE_SECONDS = 1.0
_LARGEST_NUMBER = 1 << 45  # of a wide row; what is larger is a time that an earlier version has sent
_PART = 16  # a record that is sent in several parts has the last byte's number, less its share of one

_logger = logging.getLogger("barograph")


class Mirror:
    """Sends a run's folder, or a bare log file, to a backend. `source` is for `Sender.feed`.

    wanted: which names are sent; all if not given. aliases: a user's names, by the names that they are sent as.
    idle: all that was there at the last look was sent and noted.
    """

    def __init__(
        self,
        path: Path,
        backend: LoggingBackend,
        position: Position,
        told: Callable[[], Any] = lambda: None,
        wanted: Callable[[str], bool] | None = None,
        aliases: Mapping[str, Alias] | None = None,
    ):
        self.position = position
        self.idle = False
        self.new = self.refused = 0  # rows that this process sent, or tried to
        self._path, self._backend, self._told, self._wanted = path, backend, told, wanted
        self._aliases = aliases or {}
        self._replay: Replay | None = None
        self._skip: dict[str, float] = {}  # what of each log file the backend holds, to a part of a record
        self._skip_wide: dict[str, int] = {}
        self._noted_at = 0.0
        self._unnoted = self._unflushed = False
        self._waiting: list[tuple[names.Row, int, int, str, float]] = []  # rows of one step, not sent yet

    @property
    def rows(self) -> int:
        """Rows sent so far, by all processes that had a turn."""
        return self.position.rows

    def left(self) -> int:
        """Bytes of the log files that are still to be sent; from the backend's thread."""
        return self._replay.size() if self._replay is not None else 0

    def source(self) -> bool:
        """Send some more; whether there is more at once."""
        try:
            return self._send_some()
        except Exception as error:
            self._backend.sender.turn_off(f"the run could not be read for {self._backend.name}: {_told(error)}")
            return False

    def _send_some(self) -> bool:
        if self._replay is None:
            self._begin()
        assert self._replay is not None
        if self._unflushed and not self._flush():
            return False
        items = self._replay.read(_MOST)
        for item in items:
            if self._backend.sender.off:
                return False
            self._send(item)
        self._send_waiting()
        self._unnoted |= bool(items)
        done = not items
        if self._unnoted and (done or time.monotonic() - self._noted_at > _NOTE_SECONDS):
            self._note()
        self._told()
        self.idle = done and not self._unnoted
        return not done

    def finish(self) -> bool:
        """After the backend was closed: whether it has everything; noted."""
        backend, position = self._backend, self.position
        if self._replay is not None:
            self._replay.close()
        done = self.idle and not backend.sender.failed
        position.clean = done
        if done:
            position.base = position.place
            position.trouble = ""
        if self._replay is not None and done:
            position.write()
        return done

    # -- where to begin --------------------------------------------------------------------------------

    def _begin(self) -> None:
        """The backend is open: find out where it stands."""
        backend, position = self._backend, self.position
        if backend.begins_anew:
            position.place, position.base, position.rows = Place(), Place(), 0
        elif not position.clean and (held := self._held(OFFSET)) is not None:
            self._believe(held)
        position.base = position.base if not position.clean else copy.deepcopy(position.place)
        position.clean = position.ended = False
        position.state = self._state()
        position.write()
        self._replay = Replay(self._path, position.place)
        self._noted_at = time.monotonic()

    def _believe(self, held: list[float]) -> None:
        """What an interrupted process sent is what the backend holds, whatever was noted."""
        noted = self.position.place
        place = copy.deepcopy(self.position.base)
        logs = {"training.json", *noted.offsets, *place.offsets, *noted.wide, *place.wide}
        for log in logs:
            found = held if _mark(OFFSET, log) == OFFSET else self._held(_mark(OFFSET, log)) or []
            reached = max(found, default=0.0)
            if reached > place.offsets.get(log, 0):
                self._skip[log] = reached
            numbers = [number for number in self._held(_mark(WIDE, log)) or () if number < _LARGEST_NUMBER]
            if max(numbers, default=0.0) > place.wide.get(log, 0):
                self._skip_wide[log] = int(max(numbers))
        self.position.place = place

    def _held(self, name: str) -> list[float] | None:
        return None if self._backend._held is None else self._backend._held(name)

    def _state(self) -> dict[str, Any]:
        """What another process needs to go on with the backend's run."""
        backend = self._backend
        if backend._state is not None:
            return backend._state()
        return {"run_id": backend.run_id} if backend.run_id else {}

    # -- one item ----------------------------------------------------------------------------------------

    def _send(self, item: Logged | Wide) -> None:
        if isinstance(item, Wide):
            self._send_waiting()
            self._send_wide(item)
            return
        record, log, end = item
        made = list(names.sent(record))
        for number, one in enumerate(made):
            mark = end - (len(made) - 1 - number) / _PART
            if mark <= self._skip.get(log, 0.0):
                continue
            if isinstance(one, names.Row):
                self._add_row(one, record.step, record.time, log, mark)
                continue
            self._send_waiting()
            self._mark({_mark(OFFSET, log): mark})
            self._send_other(one, record.step, record.time / 1e6)

    def _add_row(self, row: names.Row, step: int, moment: int, log: str, mark: float) -> None:
        """Records of one step that stand side by side are one row, if they don't name the same thing twice."""
        if self._waiting:
            same = self._waiting[0][1] == step and self._waiting[0][3] == log
            if not same or any(not row.values.keys().isdisjoint(other[0].values) for other in self._waiting):
                self._send_waiting()
        self._waiting.append((row, step, moment, log, mark))

    def _send_waiting(self) -> None:
        if not self._waiting:
            return
        values: dict[str, Any] = {}
        for row, *_ in self._waiting:
            values |= row.values
        _, step, moment, log, mark = self._waiting[-1]
        self._waiting.clear()
        self._write(values, step, moment, {_mark(OFFSET, log): mark})

    def _send_wide(self, item: Wide) -> None:
        row = item.row
        moment, step, name = row.key
        if item.number <= self._skip_wide.get(item.log, 0):
            return
        mark = {_mark(WIDE, item.log): float(item.number)}
        if isinstance(row, Distribution):
            if self._wanted is not None and not self._wanted(name):
                return
            self._mark(mark)
            self._deliver(self._backend._write_histogram, name, row.edges, row.counts, step, moment / 1e6)
        else:
            values = {names.wide_name(name): value for name, value in zip(row.names, row.values, strict=True)}
            self._write(values, step, moment, mark)

    def _send_other(self, sent: names.Sent, step: int, seconds: float) -> None:
        backend = self._backend
        if isinstance(sent, names.Config):
            self._deliver(backend._write_config, flatten(sent.values, backend.sender.odd))
        elif isinstance(sent, names.Text):
            self._deliver(backend._write_text, sent.name, sent.content, step, seconds)
        elif isinstance(sent, names.Note):
            self._deliver(backend._write_note, sent.title, sent.content, sent.level, step, seconds)
        elif isinstance(sent, names.Parts):
            self._deliver(backend._write_parts, sent.name, sent.title, sent.parts, step, seconds)
        elif isinstance(sent, names.Rewind):
            self._deliver(backend._write_rewind, sent.step, seconds)
        elif isinstance(sent, names.End) and sent.rank == 0:
            backend.exit_code = 0 if sent.status == "finished" else 1
            self.position.ended = True

    def _write(self, values: dict[str, Any], step: int, moment: int, mark: dict[str, float]) -> None:
        if not self._backend.takes_text:
            values = {name: value for name, value in values.items() if not isinstance(value, str)}
        if self._wanted is not None:
            values = {name: value for name, value in values.items() if self._wanted(name)}
        if not values:
            return
        if self._aliases:
            values = renamed(values, self._aliases)
        self._mark(mark)
        if self._deliver(self._backend._write, values | self._backend.mark, step, moment / 1e6):
            self.position.rows += 1
            self.new += 1

    def _mark(self, mark: dict[str, float]) -> None:
        self._backend.mark = mark if self._backend.marks else {}

    def _deliver(self, hook: Callable[..., None] | None, *arguments: Any) -> bool:
        """One call, if the backend has it."""
        if hook is None:
            return False
        taken = self._backend.sender.deliver(hook, *arguments)
        self.position.refused += not taken
        self.refused += not taken
        return taken

    # -- what has arrived ----------------------------------------------------------------------------------

    def _flush(self) -> bool:
        """Whether the backend could pass on all that it got. What it could not, it keeps and tries again."""
        self._unflushed = not self._backend.sender.flush()
        return not self._unflushed

    def _note(self) -> None:
        """Write how far the backend has come, unless it may be about to go."""
        if not self._flush() or self._backend.sender.refusing or self._backend.sender.off:
            return
        assert self._replay is not None
        self._noted_at = time.monotonic()
        self._replay.settle()
        self.position.state = self._state()
        try:
            self.position.write()
            self._unnoted = False
        except OSError as error:
            self._backend.sender.trouble(f"how far {self._backend.name} has come can't be noted ({error})", key="note")


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"


def _mark(mark: str, log: str) -> str:
    return mark if log == "training.json" else f"{mark}/{log}"
