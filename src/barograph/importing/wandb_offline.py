"""W&B's offline runs: history, configuration, system metrics, console output.

In:   a folder `offline-run-…` or `run-…` of W&B, or its `run-….wandb` file alone.
Out:  a `FoundRun` run, and from it points, histograms and facts.

The `.wandb` file is read by our own code, live, truncated or damaged. What it lacks comes from the files beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from barograph.importing import wandb_records as records
from barograph.importing.event_values import flatten, make_options
from barograph.importing.leveldb import BLOCK, Batch, is_log, read_batches
from barograph.importing.protobuf import Malformed
from barograph.importing.source import Fact, FoundRun, ImportedPoints, ImportMark, Item, Unread
from barograph.importing.wandb_axes import STEP_COLUMNS, WandbAxes, whole_steps
from barograph.importing.wandb_folder import (
    RUN_FOLDER,
    is_run_folder,
    make_machine_facts,
    read_config,
    read_metadata,
    read_old_history,
    read_output,
    read_summary,
    shown_line,
    wandb_files,
)
from barograph.importing.wandb_history import History, HistoryRows, Spans
from barograph.importing.wandb_history import flatten as flatten_row
from barograph.importing.wandb_rows import read_spans

_LONGEST_LINE = 1 << 16  # characters of a console line that has not ended


class WandbOfflineSource:
    """Runs of W&B on this disk."""

    kind = "wandb_offline"
    about = "W&B offline runs (offline-run-*/run-*.wandb)"

    def find(self, path: Path, head: bytes) -> Iterable[FoundRun]:
        if path.is_dir():
            if is_run_folder(path):
                yield self._found(path.resolve(), next(iter(wandb_files(path)), None))
        elif is_log(head):
            yield self._found(path, path)

    def _found(self, path: Path, file: Path | None) -> FoundRun:
        folder = path if path.is_dir() else path.parent
        named = RUN_FOLDER.fullmatch(folder.name)
        run = records.RunRecord(run_id=named[1] if named else path.stem.removeprefix("run-"))
        status = ""
        if file is not None:
            run, status = _peek(file, run)
        config = run.config if run.config or path != folder else read_config(folder)
        return FoundRun(
            self.kind,
            path,
            run.run_id,
            run.name or run.run_id,
            run.project,
            dict(config),
            run.tags,
            run.notes,
            run.created / 1e6,
            status,
        )

    def read(self, run: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
        folder = run.path if run.path.is_dir() else None
        file = next(iter(wandb_files(folder)), None) if folder else run.path
        yield from _OfflineRun(run, file, folder, since).read()


def _peek(file: Path, run: records.RunRecord) -> tuple[records.RunRecord, str]:
    """Who the run in a file is, by its first records, and how it ended, by its last ones."""
    status = ""
    try:
        first = next((item for item in read_batches(file, blocks=8) if isinstance(item, Batch)), None)
        for number, start, stop in _messages(first):
            if number == records.RUN:
                found = records.read_run(first.data, start, stop) if first else run
                run = found._replace(run_id=found.run_id or run.run_id)
                break
        begin = max((file.stat().st_size // BLOCK - 1) * BLOCK, 7)
        for batch in read_batches(file, begin):
            if isinstance(batch, Batch):
                for number, start, stop in _messages(batch):
                    if number == records.EXIT:
                        status = records.read_exit(batch.data, start, stop)["status"]
    except (OSError, Malformed):
        pass
    return run, status


def _messages(batch: Batch | None) -> Iterator[tuple[int, int, int]]:
    """The messages of a batch's records: field number, and where each begins and ends."""
    if batch is None:
        return
    for start, length in zip(batch.starts.tolist(), batch.lengths.tolist(), strict=True):
        try:
            yield from records.record_parts(batch.data, start, start + length)
        except Malformed:
            continue


class _OfflineRun:
    """One pass over a run."""

    def __init__(self, found: FoundRun, file: Path | None, folder: Path | None, since: ImportMark | None):
        state = since.state if since else {}
        self.found = found
        self.file = file
        self.folder = folder
        self.axes = WandbAxes(state.get("axes"))
        self.history = History(file or found.path, self.axes, state.get("seen", []), dict(state.get("summary", {})))
        self._offset = state.get("offset", 7)
        self._told = state.get("told", -1)  # damage in a file's last block is reported once
        self._lines: dict[str, list[Any]] = {key: list(value) for key, value in state.get("lines", {}).items()}
        self._printed = state.get("printed", False)  # the file has console output itself
        self._log = state.get("log", 0)  # bytes of output.log that are read
        self._machine = state.get("machine", False)
        self._ended: dict[str, Any] | None = state.get("ended")
        self._over = state.get("over", False)
        self._time = state.get("time", 0)
        self._config = flatten(found.config)
        self._stats: dict[tuple[str, ...], list[tuple[int, int, list[float]]]] = {}

    def _mark(self) -> ImportMark:
        return ImportMark(
            {
                "offset": self._offset,
                "axes": self.axes.state,
                "seen": self.history.names,
                "summary": dict(self.history.summary),
                "told": self._told,
                "lines": {stream: list(line) for stream, line in self._lines.items()},
                "printed": self._printed,
                "log": self._log,
                "machine": self._machine,
                "over": self._over,
                "ended": self._ended,
                "time": self._time,
            }
        )

    def read(self) -> Iterator[Item]:
        try:
            if self.file is not None:
                with self.file.open("rb") as file:
                    head = file.read(7)
                if is_log(head):
                    yield from self._read_log(self.file)
                elif len(head) == 7:
                    why = "the file does not begin like one of W&B's; what the files beside it have is read"
                    if self._told < 0:
                        yield Unread(self.file, 0, head.decode("latin-1"), why)
                        self._told = 0
            if self.folder is not None:
                yield from self._read_beside(self.folder)
        except OSError as error:
            yield Unread(self.found.path, 0, "", f"could not be read: {error.strerror or error}")
        for kind, (count, step) in self.history.passed.items():
            why = f"values of the kind {kind!r} are not imported ({count:,} of them, the first in step {step:,})"
            yield Unread(self.found.path, 0, kind, why)
        if self._ended is not None and not self._over:
            yield from self._finish(self._ended)
        yield self._mark()

    def _read_log(self, file: Path) -> Iterator[Item]:
        size = file.stat().st_size
        if size < self._offset:
            yield Unread(
                file, 0, "", f"the file is shorter than the {self._offset:,} bytes read before; not read again"
            )
            return
        for item in read_batches(file, self._offset):
            if isinstance(item, Batch):
                yield from self._read_batch(item)
                self._offset = item.end
                yield self._mark()
            elif item.where > self._told:
                self._told = item.where
                yield Unread(file, item.where, "", item.why)

    def _read_batch(self, batch: Batch) -> Iterator[Item]:
        kinds = (records.HISTORY, records.SUMMARY)
        history, summary = read_spans(batch.data, batch.starts, batch.lengths, kinds)
        left = np.ones(len(batch.starts), np.bool_)
        left[history[0]] = left[summary[0]] = False
        others: list[tuple[int, int, int, int]] = []  # record, message, where it begins and ends
        late: dict[int, list[tuple[int, int, int]]] = {records.HISTORY: [], records.SUMMARY: []}
        for index in np.flatnonzero(left).tolist():
            start = int(batch.starts[index])
            try:
                for number, first, last in records.record_parts(batch.data, start, start + int(batch.lengths[index])):
                    if number == records.METRIC:
                        self.axes.define(*records.read_metric(batch.data, first, last))
                    elif number in late:
                        late[number].append((index, first, last))
                    else:
                        others.append((index, number, first, last))
            except Malformed as error:
                text = batch.data[start : start + 80].decode("latin-1")
                yield Unread(self.found.path, batch.end, text, f"no record of W&B's: {error}")
        rows = HistoryRows(*(np.zeros(0, np.int64),) * 3)
        before = self.axes.last
        spans = _join(history, late[records.HISTORY])
        if len(spans[0]):
            for item in self.history.read(batch.data, spans, batch.end):
                if isinstance(item, HistoryRows):
                    rows = item
                else:
                    yield item
        if len(rows.times):
            self._time = int(rows.times[-1]) or self._time
        self.history.read_summary(batch.data, _join(summary, late[records.SUMMARY]), spans)
        places = (np.searchsorted(rows.records, np.array([other[0] for other in others], np.int64)) - 1).tolist()
        for (_, number, first, last), place in zip(others, places, strict=True):
            step = int(rows.steps[place]) if place >= 0 else before
            try:
                yield from self._read_message(batch.data, number, first, last, step)
            except Malformed as error:
                text = batch.data[first : first + 80].decode("latin-1")
                yield Unread(self.found.path, batch.end, text, f"a record of W&B's is damaged: {error}")
        for names, those in self._stats.items():
            yield ImportedPoints(
                names,
                np.array([item[0] for item in those], np.int64),
                np.array([item[1] for item in those], np.int64),
                np.array([item[2] for item in those], np.float64),
            )
        self._stats = {}

    def _read_message(self, data: bytes, number: int, first: int, last: int, step: int) -> Iterator[Item]:
        """A record that is not a row."""
        if number in (records.OUTPUT_RAW, records.OUTPUT):
            yield from self._read_output(*records.read_output_record(data, first, last), step)
        elif number == records.STATS:
            time, values = records.read_stats(data, first, last)
            if values:
                names = tuple(sorted(values))
                self._stats.setdefault(names, []).append((step, time, [values[name] for name in names]))
        elif number == records.RUN:
            run = records.read_run(data, first, last)
            self._time = self._time or run.created
            yield from self._read_options(run.config)
        elif number == records.CONFIG:
            yield from self._read_options(records.read_config_update(data, first, last))
        elif number == records.ALERT:
            yield Fact("info", step, self._time, {"type": "alert", "message": records.read_alert(data, first, last)})
        elif number == records.PREEMPTING:
            yield Fact("info", step, self._time, {"type": "preempting", "message": "the run is being preempted"})
        elif number == records.ENVIRONMENT and not self._machine:
            self._machine = True
            yield from make_machine_facts(*records.read_environment(data, first, last), self._time)
        elif number == records.EXIT:
            self._ended = records.read_exit(data, first, last)

    def _read_options(self, config: Mapping[str, Any]) -> Iterator[Fact]:
        """Options that the run had not when it was found."""
        for fact in make_options(config, self._time):
            name, value = fact.fields["name"], fact.fields["value"]
            if name not in self._config or self._config[name] != value:
                self._config[name] = value
                yield fact

    def _read_output(self, stream: str, time: int, text: str, step: int) -> Iterator[Fact]:
        """Console output, line by line: W&B records it as it was written, in pieces."""
        self._printed = True
        kept = self._lines.setdefault(stream, [time, ""])
        if not kept[1]:
            kept[0] = time
        *whole, rest = (kept[1] + text).split("\n")
        for line in whole:
            shown = shown_line(line)
            if shown:
                yield Fact("info", step, kept[0], {"type": stream, "message": shown})
            kept[0] = time
        kept[1] = rest[-_LONGEST_LINE:]

    def _read_beside(self, folder: Path) -> Iterator[Item]:
        """What the run's other files have that its log has not."""
        if not self._machine:
            for fact in read_metadata(folder):
                self._machine = True
                yield fact
        if not self._printed:
            for line in read_output(folder, self._log, self.axes.last):
                if isinstance(line, int):
                    self._log = line
                else:
                    yield line
        if self._offset > 7 or self._over:
            return
        yield from self._read_options(read_config(folder))
        rows = 0
        for row in read_old_history(folder):
            if isinstance(row, Unread):
                yield row
                continue
            rows += 1
            yield from self._read_old_row(row)
        fields = {f"summary/{name}": value for name, value in flatten_row(read_summary(folder)) if name[:1] != "_"}
        if fields and not rows:
            yield Fact("metrics", self.axes.last, self._time, {k: v for k, v in fields.items() if _is_plain(v)})
        self._over = bool(rows or fields)

    def _read_old_row(self, row: dict[str, Any]) -> Iterator[ImportedPoints]:
        """A row of wandb-history.jsonl."""
        numbers = {k: float(v) for k, v in flatten_row(row) if isinstance(v, (int, float)) and abs(v) < 1e308}
        step = next((numbers[name] for name in (*STEP_COLUMNS, "_step") if name in numbers), 0.0)
        whole = whole_steps(np.array([step]))
        time = numbers.get("_timestamp", 0.0)
        self._time = round(time * 1e6) if 0 < time < 9.2e9 else self._time
        names = tuple(name for name in numbers if not name.startswith("_"))
        if names:
            steps = whole if whole is not None else np.array([self.axes.last], np.int64)
            self.axes.last = int(steps[0])
            yield ImportedPoints(
                names, steps, np.array([self._time], np.int64), np.array([[numbers[name] for name in names]])
            )

    def _finish(self, fields: dict[str, Any]) -> Iterator[Fact]:
        """What is known once a run is over."""
        self._over = True
        for stream, (time, text) in self._lines.items():
            if shown := shown_line(text):
                yield Fact("info", self.axes.last, time, {"type": stream, "message": shown})
        self._lines = {}
        summary = self.history.summary_fields()
        if summary:
            yield Fact("metrics", self.axes.last, self._time, summary)
        self.history.summary.clear()
        yield Fact("end", self.axes.last, self._time, fields)


def _is_plain(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str))


def _join(spans: Spans, late: list[tuple[int, int, int]]) -> Spans:
    """Messages found side by side and those found in a loop, in the order of their records."""
    if not late:
        return spans
    more = np.array(late, np.int64).T
    records_, starts, stops = (np.concatenate([span, other]) for span, other in zip(spans, more, strict=True))
    order = np.argsort(records_, kind="stable")
    return records_[order], starts[order], stops[order]


SOURCE = WandbOfflineSource()
