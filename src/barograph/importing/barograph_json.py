"""JSON logs of records: our own, of whole run folders or single files, Surogate's and llmq's.

In:   a run's folder, or a JSON array of records, whole, torn or damaged.
Out:  its records as facts; of a folder also what is in its store.

Two things that Surogate and llmq write are not measurements and are left out: -1 for a utilisation that the
device does not tell, and -1 in a field without sign (4294967295 mW, 18446744073709551615 bytes/s).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy

from barograph.core.manifest import FILE as MANIFEST
from barograph.core.manifest import read as read_manifest
from barograph.core.record import HAS_NUMBERS, KINDS, Record, RouterFigures, decode, numbers, parse_time
from barograph.importing.jsonrecords import pieces, whole_records
from barograph.importing.rows import MOST_STEP, table
from barograph.importing.source import (
    Fact,
    FoundRun,
    ImportedDistribution,
    ImportedPoints,
    ImportMark,
    Item,
    Restart,
    Unread,
)
from barograph.log.read import records_from
from barograph.query.stored import StoredRun

_CHUNK = 8 << 20  # more than twice the longest record that is repaired
_ROWS = 4096
_MOST_SERIES = 20_000  # of a folder: how far each was read is kept up to here
_THEIR_TIME = re.compile(rb'"time"\s*:\s*"\d{4}-\d\d-\d\d \d')  # a blank where ours has a T
_UNSUPPORTED = frozenset({4294967295, 18446744073709551615})
_ROW_KINDS = frozenset({"step", "eval", "metrics"})
_OFTEN = frozenset({*_ROW_KINDS, "gpu", "moe", "host", "speed", "memory", "data", "ranks", "model"})
_HEAD = ("log", "time", "step")  # of every record, in this order
_NUMBERS = frozenset({int, float})


class JsonLogSource:
    """Log files of records. `theirs`: Surogate's and llmq's, which write times with a blank."""

    def __init__(self, kind: str, about: str, theirs: bool):
        self.kind, self.about, self._theirs = kind, about, theirs
        self._second = "", 0  # the second of the time read last

    def find(self, path: Path, head: bytes) -> list[FoundRun]:
        text = head.lstrip(b"\xef\xbb\xbf \t\r\n\0")
        if not text.startswith(b"["):
            return []
        first = next((piece.item for piece in pieces(head, last=False) if piece.item is not None), None)
        if first is None or not isinstance(first.get("log"), str) or "time" not in first:
            return []
        if bool(_THEIR_TIME.search(head)) != self._theirs:
            return []
        name = path.parent.name if path.stem in ("training", "log", "metrics") else path.stem
        return [FoundRun(self.kind, path, "", name or path.stem, created=parse_time(first["time"]) / 1e6)]

    def read(self, run: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
        first: dict[str, Any] = {"offset": 0, "line": 1, "records": 0, "step": None, "segment": 1}
        state = dict(since.state) if since else first
        routed = RouterFigures()
        with open(run.path, "rb") as file:
            while True:
                begin = int(state["offset"])
                file.seek(begin)
                data = file.read(_CHUNK)
                last = len(data) < _CHUNK
                yield from self._chunk(run.path, data, last, state, routed)
                yield ImportMark(dict(state))
                if last or state["offset"] == begin:
                    return

    def _chunk(
        self, path: Path, data: bytes, last: bool, state: dict[str, Any], routed: RouterFigures
    ) -> Iterator[Item]:
        """The items in a stretch of the file; `state` says how far it was read."""
        rows = BarographRows(routed)
        begin, line, counted, used = int(state["offset"]), int(state["line"]), 0, 0
        whole, stop = whole_records(data)
        for record in whole:
            yield from self._record(record, state, rows)
        state["records"] += len(whole)
        used = stop
        for item, start, end in pieces(data, last, stop):
            used = end
            if item is not None and isinstance(item.get("log"), str):
                yield from self._record(item, state, rows)
                state["records"] += 1
                continue
            line += data.count(b"\n", counted, start)
            counted = start
            text = data[start : min(end, start + 200)].decode("utf-8", "replace")
            yield Unread(path, line, text, "no whole record" if item is None else 'a record without "log"')
        yield from rows.take()
        state["line"] = line + data.count(b"\n", counted, used)
        state["offset"] = begin + used

    def _record(self, item: dict[str, Any], state: dict[str, Any], rows: BarographRows) -> Iterator[Item]:
        kind, step = item["log"], item.get("step")
        if type(step) is int:
            for name in rows.routed.repeated(kind, step, item):
                del item[name]
        if kind in _ROW_KINDS and type(step) is int and -MOST_STEP <= step <= MOST_STEP:
            names = tuple(item)
            values = [*item.values()][3:]
            if names[:3] == _HEAD and {*map(type, values)} <= _NUMBERS:  # columns lose nothing of it
                if state["step"] is None or step < state["step"] or "pending" in state:
                    yield from self._order(kind, step, item, state, rows)
                elif kind == "step":
                    state["step"] = step
                if block := rows.add(_series(kind, names[3:]), step, self._moment(item["time"]), values):
                    yield block
                return
        record = decode(item)
        kind, fields = record.kind, record.fields
        if kind == "segment":
            number = fields.get("segment", 1)
            if isinstance(number, int) and number > state["segment"]:
                state |= {"segment": number, "restart": fields.get("start_step"), "pending": True}
            return
        if kind in _ROW_KINDS:
            yield from self._order(kind, record.step, item, state, rows)
        if kind == "abs-maxes":
            listed = [item for item in fields.get("abs_maxes") or () if isinstance(item, dict)]
            kind, fields = "metrics", {f"abs_maxes/{item.get('name')}": item.get("value") for item in listed}
        elif kind == "gpu":
            fields = {name: value for name, value in fields.items() if not _is_unsupported(name, value)}
        if kind not in _OFTEN:  # what a reader of the log sees between two steps stays there
            yield from rows.take()
        if kind in KINDS:
            yield Fact(kind, record.step, record.time, fields)
        else:
            yield Fact("info", record.step, record.time, {"type": kind, **fields})

    def _order(
        self, kind: str, step: int, item: dict[str, Any], state: dict[str, Any], rows: BarographRows
    ) -> Iterator[ImportedPoints | Restart]:
        """A restart, where a segment begins or the steps go back."""
        back = kind == "step" and state["step"] is not None and step < state["step"]
        if state.pop("pending", False) or back:
            rows.routed.clear()
            yield from rows.take()
            at = state.pop("restart", None)
            yield Restart(at if isinstance(at, int) and abs(at) <= MOST_STEP else step, self._moment(item.get("time")))
            state["step"] = None
        if kind == "step":
            state["step"] = step

    def _moment(self, text: Any) -> int:
        """`parse_time`, quick for times of the same second."""
        if not isinstance(text, str) or len(text) < 20 or text[19] != "." or not text[20:].isdigit():
            return parse_time(text)
        if text[:19] != self._second[0]:
            self._second = text[:19], parse_time(text[:19])
        return self._second[1] + int(text[20:26].ljust(6, "0")) if self._second[1] else 0


def _series(kind: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The series of a row's fields, as `record.numbers` names them."""
    result = _known_series.get((kind, names))
    if result is None:
        if len(_known_series) > 1000:
            _known_series.clear()
        # a duration of 0: the throughput is derived where there is one
        named = dict(numbers(Record(kind, 0, 0, dict.fromkeys(names, 0.0))))
        result = _known_series[kind, names] = tuple(named)
    return result


_known_series: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}


def _is_unsupported(name: str, value: Any) -> bool:
    return (isinstance(value, (int, float)) and value in _UNSUPPORTED) or (name.endswith("_util") and value == -1)


class BarographRows:
    """Rows put into blocks of the same names. routed: which router figures were read already."""

    def __init__(self, routed: RouterFigures) -> None:
        self.routed = routed
        self._groups: dict[tuple[str, ...], tuple[list[int], list[int], list[list[float]]]] = {}

    def add(self, names: tuple[str, ...], step: int, time: int, values: list[float]) -> ImportedPoints | None:
        """Keep a row; gives a block when one is full."""
        if not names:
            return None
        steps, times, kept = self._groups.setdefault(names, ([], [], []))
        steps.append(step)
        times.append(time)
        kept.append(values)
        return self._block(names, *self._groups.pop(names)) if len(steps) >= _ROWS else None

    def take(self) -> Iterator[ImportedPoints]:
        """What is left."""
        for names, columns in self._groups.items():
            yield self._block(names, *columns)
        self._groups.clear()

    def _block(
        self, names: tuple[str, ...], steps: list[int], times: list[int], values: list[list[float]]
    ) -> ImportedPoints:
        step, when = numpy.array(steps, numpy.int64), numpy.array(times, numpy.int64)
        return ImportedPoints(names, step, when, table(values))


class RunFolderSource:
    """Whole run folders of ours: the live branch of every series, histograms, and the facts of all ranks."""

    kind = "barograph"
    about = "a run's folder of Barograph"
    rewrites = True

    def find(self, path: Path, head: bytes) -> list[FoundRun]:
        if head or not path.is_dir() or not (path / "segments").is_dir() or not (path / "training.json").is_file():
            return []
        about = read_manifest(path)
        if about.get("source"):  # an import itself: its own source is to be imported
            return []
        known = ("config", "tags", "notes", "status")
        given = {key: about[key] for key in known if about.get(key)}
        given["tags"] = tuple(given.get("tags", ()))
        created = parse_time(about.get("created")) / 1e6
        name, project = str(about.get("name") or path.name), str(about.get("project") or "")
        return [FoundRun(self.kind, path, "", name, project, created=created, **given)]

    def read(self, found: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
        run = StoredRun(found.path)
        before: dict[str, Any] = since.state if since else {}
        counts: dict[str, int] = dict(before.get("counts") or {})
        distributions: dict[str, int] = dict(before.get("histograms") or {})
        logs: dict[str, Any] = dict(before.get("logs") or {})
        names, known = run.names(), [segment for segment in run.segments if segment.number > 1]
        if before and before.get("wide") and before.get("signature") != _signature(found.path):
            yield ImportMark({})
            counts, distributions, logs, before = {}, {}, {}, {}
        signature = _signature(found.path)
        if before and before.get("signature") == signature:
            yield since or ImportMark(before)
            return
        restarted = int(before.get("segments") or 0)
        for made in known[restarted:]:
            if before and made.start_step is not None:
                yield Restart(made.start_step, made.time)
                for name in counts:
                    steps = run.series(name).step
                    counts[name] = min(counts[name], int((steps < made.start_step).sum()))
        for path in run.log_files():
            yield from self._facts(path, logs)
        for name in names:
            series = run.series(name)
            begin = counts.get(name, 0)
            if len(series) > begin:
                when = numpy.rint(series.time[begin:] * 1e6).astype(numpy.int64)
                yield ImportedPoints((name,), series.step[begin:], when, series.value[begin:, None])
            counts[name] = len(series)
        for name in run.histogram_names():
            rows = run.histograms(name)
            for row in rows[distributions.get(name, 0) :]:
                yield ImportedDistribution(name, row.step, round(row.time * 1e6), row.edges, row.counts)
            distributions[name] = len(rows)
        for problem in run.problems:
            yield Unread(found.path, 0, "", problem)
        state = {"signature": signature, "segments": len(known), "logs": logs, "wide": len(names) > _MOST_SERIES}
        if not state["wide"]:
            state |= {"counts": counts, "histograms": distributions}
        yield ImportMark(state)

    def _facts(self, path: Path, logs: dict[str, Any]) -> Iterator[Item]:
        """Records whose numbers the store does not hold."""

        for record, end in records_from(path, int(logs.get(path.name, 0))):
            logs[path.name] = end
            if record.kind not in HAS_NUMBERS and record.kind != "segment":
                yield Fact(record.kind, record.step, record.time, record.fields)


def _signature(folder: Path) -> list[Any]:
    """Sizes and times of what a run writes: equal if nothing was written in between."""
    result = []
    for pattern in (MANIFEST, "training*.json", "segments/*.json", "store/*/*.arrows", "store/*/*.parquet"):
        for path in sorted(folder.glob(pattern)):
            with contextlib.suppress(OSError):
                state = path.stat()
                result.append([path.relative_to(folder).as_posix(), state.st_size, state.st_mtime_ns])
    if len(result) > 100:  # a number instead of a list that would fill every mark
        import hashlib

        return [len(result), hashlib.sha256(repr(result).encode()).hexdigest()]
    return result


SOURCES = (
    RunFolderSource(),
    JsonLogSource("barograph_log", "a JSON log of Barograph's records", theirs=False),
    JsonLogSource("surogate", "JSON logs of Surogate and llmq", theirs=True),
)
