"""Tables of any shape: JSON lines, JSON documents, CSV with any delimiter.

In:   a file that no other source knows.
Out:  its columns of numbers. Which column is the step, which the time: `axes`.

Rows are placed by the step that the table itself has. Where it counts samples, tokens or epochs instead, that is
told; where it counts nothing, rows are numbered from 0 and that is reported too.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy

from barograph.core import roles
from barograph.core.aliases import CANONICAL, Names, normal
from barograph.importing import delimited, documents
from barograph.importing.axes import SPLITS, ImportAxes, choose, family, number
from barograph.importing.blocks import Order, repeated, split
from barograph.importing.epochs import Epochs, column_of
from barograph.importing.jsonrecords import BARE
from barograph.importing.objects import ObjectRows, flatten
from barograph.importing.source import AS_STEPS, Fact, FoundRun, ImportedPoints, ImportMark, Item, Unread

_CHUNK = 4 << 20
_MOST_LINE = 4 << 20
_SAMPLE_LINES = 200
_MOST_DOCUMENT = 256 << 20  # a document is parsed whole
_TRIED_DOCUMENT = 4 << 20  # up to here it is parsed to find out whether it holds series
_METRIC = re.compile(
    r"(^|[^a-z])(loss|losses|nll|bpb|ppl|perplexity|acc|accuracy|lr|learning rate|reward|mfu)([^a-z]|$)"
)
_METRIC_LIST = re.compile(
    rb'"[^"\n]*(loss|perplexity|accuracy|learning_rate|grad_norm|reward)[^"\n]*"\s*:\s*[\[\d-]', re.I
)
_TEXT_ENDINGS = frozenset({".txt", ".log", ".dat"})
_TABLE_ENDINGS = frozenset({".csv", ".tsv"})
_INDENTED = re.compile(rb"\{[ \t]*\r?\n")  # an object over several lines
_CHUNK_STATE = {"offset": 0, "line": 1}

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_decode_numbers = msgspec.json.Decoder(dict[str, float]).decode_lines
_names = Names()


def is_metric(name: str) -> bool:
    """Whether a name is one of those that trainings log."""
    if _names.canonical(name).name in CANONICAL or _METRIC.search(normal(name).replace("_", " ")) is not None:
        return True
    return "loss" in name.lower() and (roles.plays("loss", name) or roles.plays("eval_loss", name))


def _tag(path: Path) -> str:
    """The series that a file is named for, as TensorBoard names what it exports: `run-train-tag-epoch_loss.csv`."""
    name = re.split(r"(?i)(?:^|[-_.])tag[-_.]", path.stem)[-1]
    return name if is_metric(name) else ""


def _name(path: Path) -> str:
    """What to call the run: the file, and its folder where the file's name says nothing."""
    plain = {"log", "logs", "metrics", "history", "train", "training", "results", "train_log", "progress", "stats"}
    parent = path.absolute().parent.name
    return f"{parent} {path.stem}" if path.stem.lower() in plain and parent else path.stem


class LinesSource:
    kind = "jsonl"
    about = "JSON lines with numbers in them"
    patient = False

    def find(self, path: Path, head: bytes) -> list[FoundRun]:
        text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
        if not text.startswith(b"{"):
            return []
        lines = text.split(b"\n")
        whole = lines[:-1] if len(head) == 64 << 10 else lines
        rows = [flatten(row) for row in map(_object, whole[:_SAMPLE_LINES]) if row is not None]
        chosen_lines = [line for line in whole[:_SAMPLE_LINES] if line.strip()]
        if not rows or _object(chosen_lines[0]) is None or len(rows) < 0.5 * len(chosen_lines):
            return []
        if len(chosen_lines) == 1 and path.suffix == ".json":
            return []  # a document
        axes = choose(dict.fromkeys(name for row in rows for name in row), rows)
        numeric = {name for row in rows for name, cell in row.items() if number(cell) is not None} - {
            axes.step,
            axes.time,
        }
        if not numeric or not (axes.step or any(map(is_metric, numeric))):
            return []
        return [FoundRun(self.kind, path, "", _name(path))]

    def read(self, run: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
        state: dict[str, Any] = dict(since.state) if since else dict(_CHUNK_STATE)
        with open(run.path, "rb") as file:
            head = file.read(64 << 10).removeprefix(b"\xef\xbb\xbf").split(b"\n")[:_SAMPLE_LINES]
            sample = [flatten(row) for row in map(_object, head) if row is not None]
            chosen = choose(dict.fromkeys(name for row in sample for name in row), sample)
            axes = ImportAxes(*state["axes"]) if "axes" in state else chosen  # a file that grows keeps its axes
            rows = ObjectRows(axes, run.path, state.get("rows"))
            while True:
                file.seek(state["offset"])
                data = file.read(_CHUNK)
                at_end = len(data) < _CHUNK
                used = data.rfind(b"\n") + 1
                rest = data[used:].strip()
                if at_end and rest and _object(rest) is not None:  # an object says itself where it ends
                    used = len(data)
                if not used and not at_end:
                    used = len(data)  # a line of 4 MB is not a row
                yield from _rows_of(run.path, data[:used], int(state["line"]), rows)
                yield from rows.take()
                state = {"offset": state["offset"] + used, "line": state["line"] + data.count(b"\n", 0, used)}
                state |= {"rows": rows.state, "axes": list(axes)}
                yield ImportMark(state)
                if at_end:
                    return


def _rows_of(path: Path, data: bytes, line: int, rows: ObjectRows) -> Iterator[Item]:
    """Whole lines as items; lines of nothing but numbers under the same names at once."""
    try:
        block = rows.plain(_decode_numbers(data)) if b"{" in data else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        block = None
    if block is not None:
        yield from rows.take()
        yield block
        return
    objects: list[dict[str, Any]] = []
    lines: list[int] = []
    for number_, text in enumerate(data.split(b"\n"), line):
        if stripped := text.strip(b" \t\r\0\xef\xbb\xbf"):
            row = _object(stripped)
            if row is not None:
                objects.append(row)
                lines.append(number_)
            else:
                yield Unread(path, number_, stripped[:200].decode("utf-8", "replace"), "no JSON object")
    yield from rows.add_many(objects, lines)


def _object(line: bytes) -> dict[str, Any] | None:
    """The object in a line; Python's bare NaN and Infinity, and others' bare nan, are read too."""
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    if not line.lstrip().startswith(b"{") or len(line) > _MOST_LINE:
        return None
    text = line.decode("utf-8", "replace")
    for attempt in (text, BARE.sub(r'"\1\2"', text)):
        try:
            item = json.loads(attempt)
        except (ValueError, RecursionError):
            continue
        return item if isinstance(item, dict) else None
    return None


class CsvSource:
    kind = "csv"
    about = "CSV and the like, a row a step or a row a point"
    patient = False  # set when a file is followed: a last row without a line break waits for it

    def find(self, path: Path, head: bytes) -> list[FoundRun]:
        made = _layout(path, head)
        if made is None:
            return []
        numeric = [
            column
            for column in made.columns
            if column and column not in made.texts and column not in (made.axes.step, made.axes.time)
        ]
        told = made.axes.step is not None and made.axes.x != "row"
        if made.axes.name is not None:
            known = told
        elif path.suffix.lower() in _TABLE_ENDINGS:
            known = bool(numeric) and (told or any(map(is_metric, numeric)))
        else:  # other files must look like a training's table, not like a text with commas
            measures = sum(map(is_metric, numeric))
            bare = measures > 1 and not made.texts and made.delimiter in "\t " and path.suffix.lower() in _TEXT_ENDINGS
            known = bool(measures) and (told or bare)
        return [FoundRun(self.kind, path, "", _name(path))] if known else []

    def read(self, run: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
        with open(run.path, "rb") as file:
            head = file.read(64 << 10)
        made = _layout(run.path, head)
        if made is None:
            yield Unread(run.path, 1, head[:200].decode("utf-8", "replace"), "no header of a table")
            yield since or ImportMark(dict(_CHUNK_STATE))
            return
        state: dict[str, Any] = dict(since.state) if since else {"offset": made.begin, "line": made.lines + 1}
        if "axes" in state:  # a file that grows keeps its axes
            made.axes, made.texts, made.comma = (
                ImportAxes(*state["axes"]),
                frozenset(state["texts"]),
                bool(state["comma"]),
            )
        reader = delimited.DelimitedReader(run.path, made, int(state["offset"]), int(state["line"]), self.patient)
        taker = TableRows(made, run.path, state)
        for piece in reader.stretches():
            if isinstance(piece, Unread):
                yield piece
                continue
            yield from taker.take(piece, reader.line)
            yield ImportMark({"offset": reader.offset, "line": reader.line} | taker.state)
        yield ImportMark({"offset": reader.offset, "line": reader.line} | taker.state)


def _layout(path: Path, head: bytes) -> delimited.Layout | None:
    whole = len(head) < 64 << 10
    result = delimited.layout(head, whole)
    if result is None and path.suffix.lower() in _TABLE_ENDINGS:
        result = delimited.without_header(head, whole)
        if result is None and is_metric(path.stem):
            result = delimited.of_one_metric(head, whole, "loss" if "loss" in path.stem.lower() else path.stem)
    if result is not None and sorted(map(str.lower, result.columns)) == ["step", "value", "wall time"] and _tag(path):
        result.columns = [_tag(path) if name.lower() == "value" else name for name in result.columns]
    return result


class TableRows:
    """Stretches of a table as items. `state` is plain JSON."""

    def __init__(self, layout: delimited.Layout, where: Path, state: dict[str, Any]):
        self._layout, self._where = layout, where
        self._order = Order(state.get("order"))
        self._row = int(state.get("row", 0))
        self._words: dict[str, str] = dict(state.get("words") or {})
        self._epochs = Epochs(state.get("epochs"))
        axes = layout.axes
        aside = {axes.step, axes.time, axes.split} | ({axes.name, axes.value} if axes.name else set())
        self._metrics = tuple(
            column for column in layout.columns if column and column not in layout.texts and column not in aside
        )

    @property
    def state(self) -> dict[str, Any]:
        made = self._layout
        kept = {"axes": list(made.axes), "texts": sorted(made.texts), "comma": made.comma}
        return {"order": self._order.state, "row": self._row, "words": self._words, "epochs": self._epochs.state} | kept

    def take(self, piece: delimited.DelimitedStretch, line: int) -> Iterator[Item]:
        """The items of a stretch that begins about `line`."""
        if not piece.rows:
            return
        axes, x = self._layout.axes, self._layout.axes.x
        times = delimited.moments(piece, axes.time)
        order: Order | None = self._order
        if axes.step is None:
            steps, order = numpy.arange(self._row, self._row + piece.rows), None
            placed = numpy.ones(piece.rows, bool)
        else:
            counts, there = piece.cells[axes.step], piece.given[axes.step]
            placed = there & numpy.isfinite(counts) & (counts == numpy.floor(counts)) & (numpy.abs(counts) < 2**53)
            steps = numpy.where(placed, counts, 0).astype(numpy.int64)
            epoch = column_of(piece.cells, axes.step)
            if epoch is not None and axes.split is None and axes.name is None:
                steps[placed] = self._epochs.steps(steps[placed], piece.cells[epoch][placed])
            for row in numpy.flatnonzero(~placed).tolist():
                yield Unread(
                    self._where, line + row, self._shown(piece, row), f"a row whose {axes.step} is not a whole number"
                )
        self._row += piece.rows
        yield from self._said(piece)
        rows = slice(None) if bool(placed.all()) else numpy.flatnonzero(placed)
        if axes.name is not None and axes.value is not None:
            yield from self._long(piece, steps, times, placed, x)
            return
        if not self._metrics:
            return
        values = numpy.column_stack([piece.cells[name] for name in self._metrics])
        given = numpy.column_stack([piece.given[name] for name in self._metrics])
        if axes.split is None:
            if axes.step is not None and x in AS_STEPS:
                placed &= ~repeated(steps, values, given)
                rows = slice(None) if bool(placed.all()) else numpy.flatnonzero(placed)
            yield from split(self._metrics, steps[rows], times[rows], values[rows], given[rows], x, order)
            return
        said: list[Any] = piece.words.get(axes.split) or [bool(cell == 1) for cell in piece.cells[axes.split]]
        words = numpy.array([family(axes.split, word) for word in said])
        for word in dict.fromkeys(words.tolist()):
            lead = f"{word}/" if word else ""
            names = tuple(name if name.partition("/")[0] in SPLITS else lead + name for name in self._metrics)
            mine = numpy.flatnonzero((words == word) & placed)
            yield from split(names, steps[mine], times[mine], values[mine], given[mine], x, None)

    def _long(
        self, piece: delimited.DelimitedStretch, steps: Any, times: Any, placed: Any, x: str
    ) -> Iterator[ImportedPoints]:
        """A row a point: the points of each name as a block."""
        axes = self._layout.axes
        assert axes.name is not None and axes.value is not None
        names, which = numpy.unique(numpy.array(piece.words[axes.name]), return_inverse=True)
        values, given = piece.cells[axes.value], piece.given[axes.value] & placed
        for number_, name in enumerate(names.tolist()):
            rows = numpy.flatnonzero((which == number_) & given)
            if len(rows) and name.strip():
                yield ImportedPoints((name.strip(),), steps[rows], times[rows], values[rows, None], x)

    def _said(self, piece: delimited.DelimitedStretch) -> Iterator[Fact]:
        """What a column of words says in the first row where it says something: configuration."""
        axes = self._layout.axes
        for name, words in piece.words.items():
            if name not in self._words and name not in (axes.name, axes.split, axes.time):
                word = next((word.strip() for word in words if word.strip()), "")
                if word:
                    self._words[name] = word[:100]
                    yield Fact("option", 0, 0, {"name": name, "value": word[:500]})

    def _shown(self, piece: delimited.DelimitedStretch, row: int) -> str:
        cells = {name: values[row] for name, values in piece.cells.items() if piece.given[name][row]}
        return ", ".join(f"{name}={value:g}" for name, value in cells.items())[:200]


class DocumentSource:
    kind = "json"
    about = "JSON documents with lists of numbers or of objects"
    rewrites = True  # the whole file is written anew; `read` finds out itself what is new

    def find(self, path: Path, head: bytes) -> list[FoundRun]:
        text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
        ending = path.suffix.lower()
        indented = ending in _TEXT_ENDINGS | {".jsonl"} and _INDENTED.match(text) is not None
        if not indented and (ending != ".json" or not text.startswith((b"{", b"["))):
            return []
        size = path.stat().st_size
        if size <= _TRIED_DOCUMENT:
            document, _ = _parse(path)
            found = documents.understand(document, _tag(path))
            known = any(is_metric(name) for columns in found.columns for name in columns.names)
            known = known or any(
                is_metric(name) for _, rows in found.objects for row in rows[:20] for name in flatten(row)
            )
        else:
            known = bool(_METRIC_LIST.search(head))
        return [FoundRun(self.kind, path, "", _name(path))] if known else []

    def read(self, run: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
        before: dict[str, Any] = since.state if since else {}
        document, why = _parse(run.path)
        if document is None:
            if before.get("unread") != why:
                yield Unread(run.path, 0, "", why)
            yield ImportMark(before | {"unread": why})
            return
        understood = documents.understand(document, _tag(run.path))
        made = list(documents.items(understood, run.path))
        prints: dict[str, list[Any]] = {}
        fresh: list[Item] = []
        for item in made:
            if not isinstance(item, ImportedPoints):
                fresh += [item] if not before else []
                continue
            key = "\0".join(item.names)
            told = prints.setdefault(key, [])
            earlier = (before.get("prints") or {}).get(key) or []
            old = earlier[len(told)] if len(told) < len(earlier) else None
            told.append([len(item.steps), _print(item, len(item.steps))])
            if old is None:
                fresh.append(item)
            elif old[0] > len(item.steps) or _print(item, old[0]) != old[1]:
                yield ImportMark({})  # what was read before is not there any more
                yield from self.read(run)
                return
            elif old[0] < len(item.steps):
                rows = slice(old[0], None)
                fresh.append(item._replace(steps=item.steps[rows], times=item.times[rows], values=item.values[rows]))
        for name, value in understood.scalars.items() if not before else ():
            yield Fact("option", 0, 0, {"name": name, "value": value})
        yield from fresh
        yield ImportMark({"prints": prints})


def _print(points: ImportedPoints, rows: int) -> str:
    values = numpy.ascontiguousarray(points.values[:rows])
    return hashlib.sha256(numpy.ascontiguousarray(points.steps[:rows]).tobytes() + values.tobytes()).hexdigest()[:16]


def _parse(path: Path) -> tuple[Any, str]:
    """The document, or None and why there is none."""
    size = path.stat().st_size
    if size > _MOST_DOCUMENT:
        return (
            None,
            f"a JSON document of {size >> 20} MB; up to {_MOST_DOCUMENT >> 20} are read, as JSON lines any size",
        )
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    try:
        return json.loads(text), ""
    except json.JSONDecodeError as error:
        several = _several(text)
        if several:
            return several, ""
        return None, f"line {error.lineno}: not whole JSON ({error.msg})"
    except ValueError:  # Python's own limit
        return None, "it holds a number of thousands of digits"
    except RecursionError:
        return None, "nested too deeply"


def _several(text: str) -> list[dict[str, Any]]:
    """Objects that stand one behind the other, each over several lines; none where there are fewer than two. The last
    may be half written.
    """
    found: list[dict[str, Any]] = []
    decoder, at = json.JSONDecoder(), 0
    while (at := text.find("{", at)) >= 0 and not text[at - 1 : at].strip():
        try:
            item, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        if not isinstance(item, dict):
            break
        found.append(item)
    return found if len(found) > 1 else []


SOURCES = (LinesSource(), DocumentSource(), CsvSource())
