"""MLPerf's result logs: `:::MLLOG` and a JSON object a line, as `mlperf_logging` prints them.

In:   `:::MLLOG {"namespace": "", "time_ms": 1759984537596, "event_type": "POINT_IN_TIME", "key": "eval_accuracy",
      "value": 3.28, "metadata": {"file": "…", "lineno": 128, "samples_count": 12256}}`, among any other lines and
      behind any beginning that a launcher puts before it.
Out:  numbers that say a step, a count of samples or an epoch as rows, the others as the run's configuration;
      `run_stop` as the end.

Several ranks may print the same line: it is taken once. In the language models' benchmarks `eval_accuracy` is the
log perplexity, a loss; that is said once in the run. A second `run_start` is a restart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy

from barograph.importing.rows import MOST_STEP, real
from barograph.importing.source import Fact, FoundRun, ImportedPoints, ImportMark, Item, Restart, Unread
from barograph.importing.textlogs import choice, chunks

TOKEN = b":::MLLOG"
# metadata that say where a number stands, the finest first; in the policies of the suite's rounds
_PLACES = (
    ("step", "step"), ("step_num", "step"), ("iteration", "step"), ("samples_count", "samples"),
    ("epoch_num", "epoch"), ("epoch_count", "epoch"), ("current_epoch_num", "epoch"),
)  # fmt: skip
# mlcommons/training_policies: the quality of these is "log perplexity" or "eval loss"
_LOSSES = ("gpt3", "llama", "deepseek", "mixtral", "moe")
_LOSS_NOTE = "In this benchmark eval_accuracy is the validation loss (log perplexity), so it is kept as eval/loss."
_ENDS = {"success": "finished", "aborted": "failed", "": "finished"}
_TOLD = 1000  # damaged lines told one by one
_MOST_NAMES = 2000


class MLPerf:
    kind = "mlperf"
    about = "MLPerf's :::MLLOG lines"
    aliases: ClassVar[dict[str, str | tuple[str, float]]] = {
        "eval_accuracy": "eval/accuracy",
        "eval_loss": "eval/loss",
        "throughput": "train/samples_per_second",
        "samples_per_second": "train/samples_per_second",
    }

    def find(self, path: Path, head: bytes) -> Iterable[FoundRun]:
        """A file with such lines, unless a dialect has more rows in its beginning."""
        text = chunks.opening(path, head) if head else b""
        count = text.count(TOKEN)
        if not count or not any(_entry(line) for line in text.splitlines() if TOKEN in line):
            return []
        dialect = choice.choose(path, head)
        if dialect is not None and dialect.rows_in(text)[0] > count:
            return []
        first = next((made for line in text.splitlines() if (made := _entry(line))), {})
        return [FoundRun(self.kind, path, "", choice.name_of(path), created=_time(first) / 1e6)]

    def read(self, run: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
        reading = _MlperfLog(run.path, dict(since.state) if since else {})
        try:
            for chunk in chunks.chunks(run.path, reading.state["offset"], reading.state["line"]):
                yield from reading.take(chunk)
                yield reading.mark()
            last = chunks.tail(run.path, reading.state["offset"])
            if TOKEN in last and _entry(last):  # an object says itself where it ends
                size = sum(map(len, chunks.blocks(run.path, reading.state["offset"])))
                at = reading.state["offset"] + size
                yield from reading.take(chunks.Chunk(last, b"", reading.state["line"], at, 0, 0, b""))
        except OSError as problem:
            yield Unread(run.path, reading.state["line"], "", f"can't be read: {problem.strerror or problem}")
        yield reading.mark()


class _MlperfLog:
    """One log being read. `state` is what marks keep."""

    def __init__(self, path: Path, state: dict[str, Any]):
        self._path = path
        self.state: dict[str, Any] = {
            "offset": 0, "line": 1, "bad": 0, "benchmark": "", "started": 0, "again": False, "noted": False,
            "last": {}, "said": {},  # said again they are another rank's
        } | state  # fmt: skip
        self._rows: dict[tuple[tuple[str, ...], str], tuple[list[int], list[int], list[list[float]]]] = {}

    def mark(self) -> ImportMark:
        return ImportMark(json.loads(json.dumps(self.state)))

    def take(self, chunk: chunks.Chunk) -> Iterator[Item]:
        lines = chunk.text.split(b"\n")
        entries = [(index, _entry(line)) for index, line in enumerate(lines) if TOKEN in line]
        counted = {entry["metadata"].get("samples_count") for _, entry in entries if entry}
        for index, entry in entries:
            if entry is None:
                self.state["bad"] += 1
                if self.state["bad"] <= _TOLD:
                    shown = lines[index][:200].decode("utf-8", "replace").strip()
                    yield Unread(self._path, chunk.number(index), shown, "no whole :::MLLOG object")
                continue
            yield from self._take(entry, counted)
        yield from self._blocks()
        self.state["offset"], self.state["line"] = chunk.end, chunk.line + chunk.breaks.count(b"\n")

    def _take(self, entry: dict[str, Any], counted: set[Any]) -> Iterator[Item]:
        key, value, about, moment = entry["key"], entry.get("value"), entry["metadata"], _time(entry)
        step, axis = _place(about, counted)
        if entry.get("event_type") != "POINT_IN_TIME":
            if key == "run_start":
                if self.state["started"] and self.state["last"]:
                    yield from self._blocks()
                    yield Restart(step or 0, moment)
                    self.state["last"] = {}
                self.state["started"] = self.state["started"] or moment
            elif key == "run_stop":
                yield from self._blocks()
                yield self._end(step or 0, moment, about)
            return
        if key == "submission_benchmark" and isinstance(value, str):
            self.state["benchmark"] = value
        named = value if isinstance(value, dict) else {key: value}
        numbers = {str(name): real(item) for name, item in named.items() if isinstance(item, (int, float))}
        if step is None or not numbers:
            yield from self._option(key, value, moment)
            return
        if "eval_accuracy" in numbers and any(item in self.state["benchmark"].lower() for item in _LOSSES):
            numbers["eval_loss"] = numbers.pop("eval_accuracy")
            if not self.state["noted"]:
                self.state["noted"] = True
                yield Fact("info", step, moment, {"message": _LOSS_NOTE})
        names = tuple(numbers)
        place = [step, *numbers.values()]
        text = "\n".join(names)
        if self.state["last"].get(text) == repr(place):  # another rank says the same
            return
        if len(self.state["last"]) < _MOST_NAMES:
            self.state["last"][text] = repr(place)
        steps, times, values = self._rows.setdefault((names, axis), ([], [], []))
        steps.append(step)
        times.append(moment)
        values.append(list(numbers.values()))

    def _option(self, key: str, value: Any, moment: int) -> Iterator[Fact]:
        """A hyper-parameter; said once, however many ranks print it."""
        if value is None or self.state["said"].get(key) == repr(value)[:200]:
            return
        if len(self.state["said"]) < _MOST_NAMES:
            self.state["said"][key] = repr(value)[:200]
        yield Fact("option", 0, moment, {"name": key, "value": value})

    def _end(self, step: int, moment: int, about: dict[str, Any]) -> Fact:
        status = about.get("status")
        fields: dict[str, Any] = {"status": _ENDS.get(status if isinstance(status, str) else "", "failed")}
        if 0 < self.state["started"] <= moment:
            fields["wall_seconds"] = (moment - self.state["started"]) / 1e6
        return Fact("end", step, moment, fields)

    def _blocks(self) -> Iterator[ImportedPoints]:
        for (names, axis), (steps, times, values) in self._rows.items():
            step, when = numpy.array(steps, numpy.int64), numpy.array(times, numpy.int64)
            yield ImportedPoints(names, step, when, numpy.array(values, numpy.float64), axis)
        self._rows.clear()


def _entry(line: bytes) -> dict[str, Any] | None:
    """The object behind the token, with a key and metadata; None if the line has none that is whole."""
    text = line[line.find(TOKEN) + len(TOKEN) :].strip()
    try:
        result = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(result, dict) or not isinstance(result.get("key"), str):
        return None
    result["metadata"] = result["metadata"] if isinstance(result.get("metadata"), dict) else {}
    return result


def _time(entry: dict[str, Any]) -> int:
    """Microseconds since 1970; 0 if the line says none."""
    moment = entry.get("time_ms")
    return int(moment) * 1000 if isinstance(moment, (int, float)) and 0 < moment < 1e15 else 0


def _place(about: dict[str, Any], counted: set[Any]) -> tuple[int | None, str]:
    """Where a number stands, and what that counts.

    counted: counts of samples in the lines around. Where a step is one of them, it counts samples too: some
    submissions give both under the one name.
    """
    for name, axis in _PLACES:
        place = about.get(name)
        if isinstance(place, (int, float)) and not isinstance(place, bool) and 0 <= place < MOST_STEP:
            return int(place), "samples" if axis == "step" and place in counted else axis
    return None, "step"


SOURCE = MLPerf()
