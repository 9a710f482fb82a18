"""The reader that all dialects share: chunks of lines become blocks of numbers.

In:   a log, and a dialect's forms of lines.
Out:  `ImportedPoints` by the thousand, `Restart`s, what was not understood, and `ImportMark`s from which to go on.

A row is taken once: from the lowest rank that prints such rows, and once a step. A step that goes back is a restart; at
the first step again, behind another beginning of the program, it is another run. The first dialect's rows say where
segments begin; others, the plain reader among them, read the lines that it leaves, under names that it does not have.
"""

from __future__ import annotations

import contextlib
import copy
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from barograph.core import roles
from barograph.core.aliases import Names
from barograph.importing.source import AS_STEPS, Fact, FoundRun, ImportedPoints, ImportMark, Item, Restart, Unread
from barograph.importing.textlogs import choice, chunks, forms, kinds, messages, patterns
from barograph.importing.textlogs.blocks import LOSS, NOT_A_ROW, ROW, Block, ordered, planned_steps
from barograph.importing.textlogs.segments import Segments

SHOWN = 200  # bytes of a line in an `Unread`
UNREAD = 1000  # told one by one in a file; the rest is counted
SHAPES = 2000  # sets of names in a file; more is damage
_SAID_TOO = 0.25  # of another dialect's rows: that many of the first one's have the same series, and are enough
_NO_ROW = "looks like a row and isn't one"
_BUFFERED, _NEAR = 2, 8  # rows behind the end of a job, and how many lines behind it
WIDEST = 1 << 14  # bytes of a row; longer lines are none

Aliases = Mapping[str, str | tuple[str, float]]
Clock = Mapping[str, tuple[str, float]]


class Dialect:
    """One way to print a training. A dialect's file sets these and adds what is its own."""

    kind = ""
    about = ""
    shapes: tuple[forms.Form | forms.Lines, ...] = ()
    hints: tuple[bytes, ...] = ()  # every row has one of these in it
    looks: Any = None  # a pattern: the beginning of a row; a line that has it and is not a row is `Unread`
    begins: tuple[bytes, ...] = ()  # what the program prints once, before its first row
    clock: ClassVar[Clock] = {}  # name → "duration" of a step or "elapsed", and how many µs one is
    aliases: ClassVar[Aliases] = {}  # name → canonical name, and the factor to its unit
    closers: tuple[bytes, ...] = ()  # a last line that ends with one of these is whole without its line break
    last_resort = False
    of_the_rest, whole_runs = False, False  # reads only what others left; and lists ahead of strays
    bare = False  # lines are read without what a logger writes before them

    def rows_in(self, text: bytes) -> tuple[int, int]:
        """How many lines of some text are rows of this dialect, and how many of them rows of training."""
        if not any(hint in text for hint in self.hints):
            return 0, 0
        lines = self.prepare(chunks.shown(text, self.bare), {}).split(b"\n")
        picks = self.candidates(lines)
        rows, left = self.rows_of(lines, picks, {})
        main = sum(len(row.where) for row in rows if row.main and any(name[0] != "_" for name in row.names))
        return len(picks) - len(left), main

    def candidates(self, lines: list[bytes]) -> list[int]:
        """The lines worth looking at: with a hint, and not so long that looking takes long."""
        if len(self.hints) == 1:
            return [index for index, line in enumerate(lines) if self.hints[0] in line and len(line) <= WIDEST]
        if len(self.hints) < 4:
            one, two, three = (*self.hints, self.hints[-1])[:3]
            return [
                index
                for index, line in enumerate(lines)
                if (one in line or two in line or three in line) and len(line) <= WIDEST
            ]
        search = patterns.one_of(self.hints).search
        return [index for index, line in enumerate(lines) if len(line) <= WIDEST and search(line)]

    def rows_of(self, lines: list[bytes], picks: list[int], own: dict[str, Any]) -> tuple[list[forms.Raw], list[int]]:
        """The rows among lines worth looking at, and which of these are none. own: as in `place`."""
        rows: list[forms.Raw] = []
        for form in self.shapes:
            if not picks:
                break
            found, picks = form.take(lines, picks)
            rows += found
        return rows, picks

    def prepare(self, text: bytes, own: dict[str, Any]) -> bytes:
        """Text with the same number of line breaks, in which each row is on one line. own: as in `place`."""
        return text

    def hold(self, text: bytes) -> int:
        """How many bytes at the end of whole lines belong to a row that isn't whole yet."""
        return 0

    def settings(self, preamble: bytes) -> dict[str, Any]:
        """The configuration that stands before the first row."""
        return {}

    def place(self, lines: list[bytes], rows: list[forms.Raw], own: dict[str, Any], ahead: bytes) -> list[forms.Raw]:
        """Rows with steps that only the lines around them, or rows before, can say.

        own: what is remembered from chunk to chunk, and kept in marks. ahead: some text behind the lines.
        """
        return rows

    def refine(self, points: ImportedPoints, own: dict[str, Any], segment: int) -> Iterator[Item]:
        """Points as they leave: a dialect corrects known artefacts here and says so once."""
        yield points

    def find(self, path: Path, head: bytes) -> Iterable[FoundRun]:
        return choice.runs(self, path, head) if head and choice.choose(path, head) is self else ()

    def read(self, run: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
        return LogReading(self, run, since).items()


class LogReading(Segments):
    """One run being read: where we are, and what the next rows are compared with."""

    def __init__(self, dialect: Dialect, found: FoundRun, since: ImportMark | None) -> None:
        self.dialect, self.path, self.key = dialect, found.path, found.key
        state = copy.deepcopy(since.state) if since is not None else {}
        opening = b""
        with contextlib.suppress(OSError):  # a file that is away says nothing of what was read
            with self.path.open("rb") as file:
                opening = file.read(256)
            # a fingerprint of the opening tells a file that grew from one that was written anew
            length = min(int(state.get("opening_bytes", len(opening))), len(opening))
            if state and zlib.crc32(opening[:length]) != state.get("opening"):
                state = {}
        if not state:
            state = {"opening": zlib.crc32(opening), "opening_bytes": len(opening)}
        self.state: dict[str, Any] = {
            "offset": None, "line": 1, "lines": 0, "matched": 0, "unread": 0, "other_ranks": 0, "repeated": 0,
            "first": None, "last": None, "carry": 0, "tops": {}, "ranks": {}, "crowded": None, "clock": 0,
            "restarts": 0, "own": {}, "end": None, "others": {}, "counts": {}, "steps": False, "said": {},
            "messages": 0, "reach": {}, "ending": None, "launches": [None, 0], "ahead": [], "opened": [], "commas": {},
        } | state  # fmt: skip
        self.readers = [_Reader(dialect, self.state["own"])]
        self.names = Names(dialect.kind, dialect.aliases)
        self.launched: list[int] = []  # lines of a chunk that begin a launch, in a text without rows

    def items(self) -> Iterator[Item]:
        state = self.state
        try:
            begin, line, end = choice.span(self.dialect, self.path, self.key, state["offset"], state["first"])
            if state["offset"] is None:
                state["offset"], state["line"] = begin, line
            end = state["end"] = end if state["end"] is None else state["end"]  # once another run follows, it stays
            self.add_readers(choice.beside(self.path, state["others"]))
            for chunk in chunks.chunks(self.path, state["offset"], state["line"], end, self.hold, self.dialect.bare):
                if chunk.dropped:
                    state["unread"] += chunk.dropped
                    yield Unread(self.path, chunk.line, "", f"a line of more than {chunks.LONGEST >> 20} MB")
                yield from self.take(chunk)
                state["offset"], state["line"] = chunk.end, chunk.line + chunk.breaks.count(b"\n")
                if chunk.text:
                    yield self.mark()
            if end is None:
                yield from self.close()
            yield from self.ending()
        except OSError as problem:
            yield Unread(self.path, state["line"], "", f"can't be read: {problem.strerror or problem}")
        yield self.mark()

    def add_readers(self, dialects: Iterable[Dialect]) -> None:
        """Other dialects, which read what the first one leaves."""
        for dialect in dialects:
            if all(reader.dialect is not dialect for reader in self.readers):
                self.readers.append(_Reader(dialect, self.state["others"].setdefault(dialect.kind, {"second": True})))

    def hold(self, text: bytes) -> int:
        return max(reader.dialect.hold(text) for reader in self.readers)

    def mark(self) -> ImportMark:
        return ImportMark(copy.deepcopy(self.state))

    def close(self) -> Iterator[Item]:
        """A last line that has no line break but ends as only whole rows end."""
        state = self.state
        if not self.dialect.closers:
            return
        last = chunks.tail(self.path, state["offset"])
        if last and last.rstrip().endswith(self.dialect.closers) and self.dialect.rows_in(last)[0] == 1:
            yield from self.take(chunks.Chunk(last, last, state["line"], 0, 0, 0, b""))
            state["offset"] += sum(map(len, chunks.blocks(self.path, state["offset"])))

    def take(self, chunk: chunks.Chunk) -> Iterator[Item]:
        """A chunk's rows, in order, and what looked like one and wasn't."""
        state = self.state
        if not chunk.text:
            return
        text = chunk.text
        for reader in self.readers:
            text = reader.dialect.prepare(text, reader.own)
        lines = text.split(b"\n")
        state["lines"] += chunk.breaks.count(b"\n")
        blocks: list[Block] = []
        unlike: dict[int, str] = {}  # lines that look like rows, and why they are none
        rest = lines
        for reader in self.readers:
            dialect = reader.dialect
            rows, left = dialect.rows_of(lines, dialect.candidates(rest), reader.own)
            if dialect.looks is not None:
                like = [index for index in left if dialect.looks.search(lines[index])]
                unlike |= dict.fromkeys(kinds.damaged(lines, like, reader.own), _NO_ROW)
            rest = list(rest)
            valued = [row for row in rows if any(name[0] != "_" for name in row.names)]
            for index in unlike:
                rest[index] = b""  # nobody else reads a damaged row in part
            for row in valued:
                whole = any(map(LOSS.search, row.names))
                for index in row.where.tolist():  # a loss that stands on it and was not read is left to others
                    rest[index] = b"" if whole or not ROW.search(lines[index]) else rest[index]
            if self.readers[0] is not reader and state["steps"]:
                # rows that say an epoch alone, or nothing, are among rows that count steps
                reader.own["steps"] = reader.own["beside"] = True
            for placed in dialect.place(lines, rows, reader.own, chunk.ahead):
                for part in forms.split(placed):
                    block, bad = self.number(lines, part)
                    unlike |= dict.fromkeys(bad, "a value is not a number")
                    if block is not None and len(block.where):
                        block.reader = reader
                        blocks.append(block)
            for index in reader.own.pop("dropped", ()):
                unlike.setdefault(index, "a loss without a step")
            if self.readers[0] is reader:
                state["steps"] |= any(
                    block.main
                    and block.x in AS_STEPS
                    and not all(roles.plays("eval_loss", name) for name in block.names)
                    for block in blocks
                )
        if state["steps"]:
            for block in blocks:
                block.main &= block.reader is self.readers[0]
        for index, line in enumerate(rest):
            if line and len(line) <= WIDEST and ROW.search(line) and not NOT_A_ROW.search(line):
                unlike.setdefault(index, "a step and a loss that were not understood")
        for index in sorted(unlike):
            state["unread"] += 1
            if state["unread"] <= UNREAD:
                shown = lines[index][:SHOWN].decode("utf-8", "replace").strip()
                yield Unread(self.path, chunk.number(index), shown, unlike[index])
        blocks = self.choose_ranks(lines, blocks, chunk.leads)
        yield from self.plan(lines, blocks)
        blocks.sort(key=lambda block: int(block.where[0]))  # however a row was read, the order is the file's
        said = [
            (found, chunk.number(found.place))
            for found in messages.messages(*chunk.as_written(text, lines, rest), state["said"])
            if found.end or found.place not in unlike
        ][: max(messages.MOST - state["messages"], 0)]
        state["messages"] += len(said)
        self.before_rows(lines, blocks)
        self.launched = [] if state["matched"] else messages.launches(lines, state["launches"])
        if blocks or said or (self.launched and state["ending"]):
            yield from self.arrange(lines, blocks, said)
        state["launches"][1] += len(self.launched)

    def plan(self, lines: list[bytes], blocks: list[Block]) -> Iterator[Item]:
        """The planned steps, where they are new."""
        for block in blocks:
            steps = planned_steps(lines, block)
            if steps is not None and steps != self.state["own"].get("plan"):
                self.state["own"]["plan"] = steps
                yield Fact("option", 0, 0, {"name": "total_steps", "value": steps})

    def number(self, lines: list[bytes], row: forms.Raw) -> tuple[Block | None, list[int]]:
        """Text as numbers; the lines of those that are none."""
        if not row.columns:
            return None, []
        self.state["matched"] += len(row.where)
        values, bad = [], set()
        for name, column in zip(row.names, row.columns, strict=True):
            numbers, wrong = forms.floats(column, name, self.state["commas"])
            values.append(numbers)
            bad.update(wrong)
        steps = None if row.steps is None else forms.whole(row.steps)
        starts = np.array(row.starts, np.int64)
        block = Block(row.names, row.where, starts, steps, np.stack(values, axis=1), row.main, row.x)
        if not bad:
            return block, []
        self.state["matched"] -= len(bad)
        keep = np.ones(len(row.where), bool)
        keep[list(bad)] = False
        return block.part(keep), row.where[~keep].tolist()

    def arrange(
        self, lines: list[bytes], blocks: list[Block], said: list[tuple[messages.Message, int]]
    ) -> Iterator[Item]:
        """Steps for all rows, segments, times; each step once. said: messages with the numbers of their lines."""
        state = self.state
        before = state["last"]
        stepped = [block for block in blocks if block.steps is not None]
        cuts: list[tuple[int, int]] = []  # a line's index, and the step of the segment that begins there
        if stepped:
            where, steps = ordered(stepped)
            main = [block for block in stepped if block.main]
            if not main and state["last"] is None:
                main = stepped
            if main:
                cuts = self.restarts(lines, main, where, steps)
            self.borrow_steps(blocks, where, steps)
        for block in blocks:
            if block.steps is None:
                block.steps = np.full(len(block.where), state["carry"], np.int64)
        self.tell_time(lines, blocks)
        edges = [cut[0] for cut in cuts] + [len(lines)]
        begin = 0
        for number, edge in enumerate(edges):
            if number:
                yield from self.ending()
                state["restarts"] += 1
                state["tops"], state["reach"] = {}, {}
                yield Restart(cuts[number - 1][1], self.time_at(blocks, begin))
            parts = []
            for block in blocks:
                low, high = np.searchsorted(block.where, (begin, edge))
                if low < high:
                    parts.append(block.part(slice(low, high)))
            # the first dialect's rows go before those that may say the same
            for part in sorted(parts, key=lambda part: part.reader is not self.readers[0]):
                yield from self.once(part)
            yield from self.speak(parts, [item for item in said if begin <= item[0].place < edge], before)
            begin = edge

    def speak(
        self, blocks: list[Block], said: list[tuple[messages.Message, int]], before: int | None
    ) -> Iterator[Item]:
        """What a segment's lines say in words, each at the step of the row before it (before: of those ahead of these);
        ahead of all rows there is none. What would be the program's end is none if rows follow."""
        state = self.state
        rows = [block for block in blocks if block.steps is not None]
        where, steps = ordered(rows) if rows else (np.zeros(0, np.int64), np.zeros(0, np.int64))
        if len(where) and state["ending"] is not None:
            yield self.went_on()
        since = 0  # the line of the last end
        for message, line in said:
            if self.is_launched_again(since, message.place):
                yield self.went_on()
            since = message.place if message.end else since
            at = int(np.searchsorted(where, message.place, "right"))
            step = int(steps[at - 1]) if at else int(before or 0)
            origin = {"line": line} if at or before is not None else {"line": line, "no_step": True}
            fields, ahead = {"reason": f"line {line:,}: {message.text}", **origin}, "no_step" in origin
            yield from [Fact("oom", step, 0, message.memory | origin)] if message.memory and not ahead else ()
            buffered = message.of_job and _are_buffered(where[at:], message.place)
            if (at >= len(where) or buffered) and (message.end or (message.memory and ahead)):
                memory = message.memory | origin if message.memory and ahead else {}
                kept = state["ending"] = state["ending"] or [step, message.end | fields, memory]
                worker = kept[1].get("status") == "failed" and "exception" not in kept[1] and "exception" in message.end
                kept[1] = kept[1] if "status" in kept[1] and not worker else message.end | fields
                kept[2:] = kept[2:] if any(kept[2:]) else [memory]  # another program's, behind one that failed
            elif message.end or ahead or not message.memory:
                yield Fact("info", step, 0, {"message": fields.pop("reason")} | fields)
        if self.is_launched_again(since, 1 << 60):
            yield self.went_on()

    def is_launched_again(self, since: int, until: int) -> bool:
        """Whether a program without rows that has ended is launched once more between two lines of a chunk."""
        state = self.state
        if state["ending"] is None or state["matched"]:
            return False
        ahead = state["launches"][1] + sum(place < since for place in self.launched)
        return ahead == 1 and any(since < place < until for place in self.launched)

    def went_on(self) -> Fact:
        """What looked like the end, and was none."""
        (step, fields, *_), self.state["ending"] = self.state["ending"], None
        return Fact("info", step, 0, {"message": fields["reason"]} | {
            name: fields[name] for name in ("line", "no_step") if name in fields})  # fmt: skip

    def ending(self) -> Iterator[Item]:
        """The end of the program, or of one of its launches, where the log says it."""
        if self.state["ending"] is not None:
            (step, fields, *memory), self.state["ending"] = self.state["ending"], None
            yield from (Fact("oom", step, 0, asked) for asked in memory if asked)
            if "status" in fields:
                yield Fact("end", step, int(self.state["clock"]), fields)

    def borrow_steps(self, blocks: list[Block], where: NDArray[Any], steps: NDArray[Any]) -> None:
        """Rows that say no step: that of the row before, of their own dialect's where those say any."""
        state, first = self.state, self.readers[0]
        own = [block for block in blocks if block.reader is first and block.steps is not None]
        if own and len(self.readers) > 1:
            where, steps = ordered(own)
        elif state["last"] is not None and not own:
            return
        for block in blocks:
            if block.steps is None:
                at = np.searchsorted(where, block.where) - 1
                block.steps = np.where(at < 0, state["carry"], steps[np.maximum(at, 0)])
        state["carry"] = int(steps[-1])

    def once(self, block: Block) -> Iterator[Item]:
        """Rows of one segment, without those whose step was the last of the same names."""
        tops, key = self.state["tops"], "\n".join(block.names)
        steps = block.steps
        assert steps is not None
        if key not in tops and len(tops) >= SHAPES:
            self.state["unread"] += len(steps)
            return
        previous = np.concatenate(([tops.get(key, -1)], steps[:-1]))
        if self.state["crowded"]:
            previous = np.maximum.accumulate(previous)
            keep = steps > previous
        else:
            keep = steps != previous
        tops[key] = int(max(steps[-1], previous[-1])) if self.state["crowded"] else int(steps[-1])
        if not keep.all():
            self.state["repeated"] += int((~keep).sum())
            block = block.part(keep)
            steps = block.steps
            assert steps is not None
        if len(block.where):
            times = block.times if block.times is not None else np.zeros(len(block.where), np.int64)
            points = ImportedPoints(block.names, steps, times, block.values, block.x)
            reader = block.reader
            for item in reader.dialect.refine(points, reader.own, self.state["restarts"]):
                yield from self.beside(reader, item) if isinstance(item, ImportedPoints) else (item,)

    def beside(self, reader: _Reader, points: ImportedPoints) -> Iterator[ImportedPoints]:
        """Another dialect's rows under names that need no table of its own, and without what the first one's rows
        say too: of a series that both have, the rows ahead of the first one's and behind them."""
        counts, reach = self.state["counts"], self.state["reach"]
        if reader is self.readers[0]:
            if len(self.readers) > 1 and len(counts) < SHAPES:
                for name in points.names:
                    canonical = self.names.canonical(name).name
                    counts[canonical] = counts.get(canonical, 0) + len(points.steps)
                    if points.x in AS_STEPS:
                        ends = [int(points.steps.min()), int(points.steps.max()), *reach.get(canonical, ())[:2]]
                        reach[canonical] = [min(ends), max(ends), name]
            yield points
            return
        named, key = [reader.names.canonical(name) for name in points.names], "beside\n" + "\n".join(points.names)
        if key in counts or len(counts) < SHAPES:
            counts[key] = counts.get(key, 0) + len(points.steps)
        rows, names = counts.get(key, 0), [alias.name for alias in named]
        keep = [
            at for at, name in enumerate(names) if counts.get(name, 0) < _SAID_TOO * rows and name not in names[:at]
        ]
        if rows < 2 and not any(names[at].startswith(("eval/", "test/")) for at in keep):
            return
        both = [at for at, name in enumerate(names) if at not in keep and name in reach and name not in names[:at]]
        both = both if points.x in AS_STEPS else []
        if keep:
            values = points.values[:, keep] * np.array([named[at].factor for at in keep])
            yield points._replace(names=tuple(names[at] for at in keep), values=values)
        for at in both:
            low, high, original = reach[names[at]]
            apart = (points.steps < low) | (points.steps > high)
            if apart.any():
                values = points.values[apart][:, [at]] * (named[at].factor / self.names.canonical(original).factor)
                yield ImportedPoints((original,), points.steps[apart], points.times[apart], values)


class _Reader:
    """A dialect that reads a file, and what it remembers from chunk to chunk."""

    def __init__(self, dialect: Dialect, own: dict[str, Any]) -> None:
        self.dialect, self.own = dialect, own
        self.names = Names(dialect.kind, dialect.aliases)


def _are_buffered(where: NDArray[Any], place: int) -> bool:
    """Whether the rows behind the end of a job are so few and so near that they were in a buffer."""
    return len(where) <= _BUFFERED and bool((where <= place + _NEAR).all())


def note(points: ImportedPoints, message: str) -> Fact:
    """A sentence about an artefact, at the first of some points."""
    return Fact("info", int(points.steps[0]), int(points.times[0]), {"message": message})
