"""TensorBoard's event files as runs: scalars, histograms, texts, hyper-parameters, restarts.

In:   a folder with `events.out.tfevents.*` files, in it or in parts of it, or one such file.
Out:  `FoundRun` runs (see `event_folders`), and from each points by tag, distributions and facts.

Files are read in the order in which they were made. A new segment begins where a writer says so (`SessionLog`
START, what torch's `purge_step` writes), and where a later file repeats steps of a tag that an earlier one has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.importing.event_folders import PEEK, EventPart, event_files, run_parts, runs_below, single_part
from barograph.importing.event_scalars import EventColumns, ScalarDecoder, read_tensor
from barograph.importing.event_values import (
    Event,
    EventValue,
    flatten,
    is_moderate,
    make_options,
    make_text_facts,
    read_event,
    read_histogram,
    read_histogram_tensor,
    read_hyperparameters,
    read_media,
    read_texts,
)
from barograph.importing.protobuf import Malformed
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
from barograph.importing.tfrecord import RecordBlock, checksum, read_blocks

_MOST_POINTS = 500_000  # held before they are given away: 20 MB
_MOST_TAGS = 256  # tags by which a restart is known; they are in every mark
_GENERIC = frozenset({"tb", "tb_logs", "tensorboard", "tensorboard_logs", "logs", "log", "runs", "events", "tfevents"})
# Tags whose steps count something else: Megatron-LM's "… vs samples", DeepSpeed's monitor, Megatron-DeepSpeed's
# "…/y=…,x=…".
_ENDINGS = ((" vs samples", "samples"), (",x=samples", "samples"), (" vs tokens", "tokens"), (",x=tokens", "tokens"))
_BEGINNINGS = (("Train/Samples/", "samples"), ("Train/Eigenvalues/", "samples"))


def count_of(tag: str) -> str:
    """What a tag's steps count: "step", "samples" or "tokens"."""
    for ending, unit in _ENDINGS:
        if tag.endswith(ending):
            return unit
    for beginning, unit in _BEGINNINGS:
        if tag.startswith(beginning):
            return unit
    return "step"


class TensorBoardSource:
    """Event files of TensorBoard, whoever wrote them."""

    kind = "tensorboard"
    about = "TensorBoard event files (events.out.tfevents.*)"

    def find(self, path: Path, head: bytes) -> Iterable[FoundRun]:
        if path.is_dir():
            if not run_parts(path)[0]:
                return
            for folder, parts in runs_below(path):
                key = "" if folder == path else folder.relative_to(path).as_posix()
                yield self._found(folder, key, parts)
        elif _is_event_file(path, head):
            yield self._found(path, "", [single_part(path)])

    def _found(self, path: Path, key: str, parts: list[EventPart]) -> FoundRun:
        config, created = _peek(parts)
        folder = path if path.is_dir() else path.parent
        config = _read_yaml(folder / "hparams.yaml") | config
        name = key or folder.resolve().name
        if not key and (name.lower() in _GENERIC or name.startswith("version_")):
            name = f"{folder.resolve().parent.name}/{name}"
        return FoundRun(self.kind, path, key, name, config=config, created=created)

    def read(self, run: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
        parts = run_parts(run.path)[0] if run.path.is_dir() else [single_part(run.path)]
        yield from _EventFiles(run, since).read(parts)


def _is_event_file(path: Path, head: bytes) -> bool:
    """Whether a file is one: its name and a right first length, or an event's first bytes in a right record."""
    if len(head) < 12:
        return "tfevents" in path.name and not head
    right = checksum(head[:8]) == int.from_bytes(head[8:12], "little")
    return "tfevents" in path.name or (right and head[12:13] == b"\x09" and b"brain.Event:" in head[:64])


def _peek(parts: list[EventPart]) -> tuple[dict[str, Any], float]:
    """The options at the beginning of a run's first files, and when the run began, in seconds since 1970."""
    config: dict[str, Any] = {}
    created = 0.0
    # those put aside hold nothing but options; a run's own come next
    for part in sorted(parts, key=lambda item: (item.role != "", item.folder == "", item.made))[:4]:
        try:
            reading = _EventFiles(None, None)
            for item in reading.read_file(part, PEEK):
                if isinstance(item, Fact) and item.kind == "option":
                    config[item.fields["name"]] = item.fields["value"]
                if isinstance(item, ImportMark):
                    break
            if reading.first_time:
                created = min(created or reading.first_time / 1e6, reading.first_time / 1e6)
        except OSError:
            continue
    return config, created


def _read_yaml(path: Path) -> dict[str, Any]:
    """The flat names and values of a YAML file of at most 256 kB, {} if it can't be read."""
    try:
        if not path.is_file() or path.stat().st_size > PEEK:
            return {}
        import yaml

        found = yaml.safe_load(path.read_text("utf-8", "replace"))
    except Exception:  # a configuration beside the log is welcome, not needed
        return {}
    return flatten(found) if isinstance(found, dict) and is_moderate(found) else {}


class _EventFiles:
    """One pass over a run's files."""

    def __init__(self, found: FoundRun | None, since: ImportMark | None):
        state = since.state if since else {}
        self.found = found
        self.first_time = 0
        self._files: dict[str, list[Any]] = {key: list(value) for key, value in state.get("files", {}).items()}
        # name → its last step and how many restarts there had been; also, under "\0" + folder, a part's highest step
        self._last: dict[str, list[int]] = {key: list(value) for key, value in state.get("last", {}).items()}
        self._restarts: list[int] = list(state.get("restarts", []))
        self._others: dict[str, dict[str, str]] = {key: dict(value) for key, value in state.get("others", {}).items()}
        self._decoders: dict[str, ScalarDecoder] = {}
        self._held: list[EventColumns] = []
        self._points = 0
        self._passed: dict[str, tuple[int, Path, int]] = {}

    def read(self, parts: list[EventPart]) -> Iterator[Item]:
        for part in parts:
            try:
                size = part.file.stat().st_size
                done = self._files.get(part.key, [0, False])[0]
                if size < done:
                    why = f"the file is shorter than the {done:,} bytes that were read before; it is not read again"
                    yield Unread(part.file, 0, "", why)
                elif size > done:
                    yield from self.read_file(part)
            except OSError as error:
                yield Unread(part.file, 0, "", f"could not be read: {error.strerror or error}")
        for what, (count, file, where) in self._passed.items():
            yield Unread(file, where, what, f"values of the kind {what!r} are not imported ({count:,} of them)")
        yield self._mark()

    def _mark(self) -> ImportMark:
        last = {name: list(value) for name, value in self._last.items()}
        files = {key: list(value) for key, value in self._files.items()}
        others = {folder: dict(tags) for folder, tags in self._others.items() if tags}
        return ImportMark({"files": files, "last": last, "restarts": list(self._restarts), "others": others})

    def read_file(self, part: EventPart, chunk: int | None = None) -> Iterator[Item]:
        """A file's items from where it was left; a mark behind each stretch. chunk: read in pieces of this."""
        decoder = self._decoders.get(part.folder)
        if decoder is None:
            decoder = self._decoders[part.folder] = ScalarDecoder()
            decoder.others = self._others.setdefault(part.folder, {})
        offset, searching = self._files.get(part.key, [0, False])
        # the tags' last steps in files before this one, for a new file alone
        earlier = {name: list(value) for name, value in self._last.items()} if not offset else None
        self._started = False
        blocks = (
            read_blocks(part.file, offset, searching, chunk) if chunk else read_blocks(part.file, offset, searching)
        )
        for item in blocks:
            if isinstance(item, RecordBlock):
                yield from self._read_block(part, decoder, item, earlier)
                self._files[part.key] = [item.end, False]
            else:
                if not (searching and item.searching):  # told before
                    yield Unread(part.file, item.where, "", item.why)
                self._files[part.key] = [max(item.end, self._files.get(part.key, [0])[0]), item.searching]
            if self._points >= _MOST_POINTS or len(decoder.tags) > 2 * _MOST_POINTS // 10 or chunk:
                yield from self._flush(part, decoder)
                yield self._mark()
                if len(decoder.tags) > _MOST_POINTS // 10:
                    decoder.forget()
        yield from self._flush(part, decoder)

    def _read_block(
        self, part: EventPart, decoder: ScalarDecoder, block: RecordBlock, earlier: dict[str, list[int]] | None
    ) -> Iterator[Item]:
        columns, rest = decoder.decode(block)
        if not self.first_time and len(columns.times):
            self.first_time = int(columns.times[0])
        single: list[tuple[int, int, int, int, float]] = []  # row, tag, step, time, value
        items: list[tuple[int, Item]] = []
        begins: list[tuple[int, int, int]] = []  # rows at which a writer begins anew: row, step, time
        for row in rest.tolist():
            start = int(block.starts[row])
            try:
                event = read_event(block.data, start, start + int(block.lengths[row]))
                if not self.first_time:
                    self.first_time = event.time
                if event.starts:
                    begins.append((row, event.step, event.time))
                if event.message:
                    items.append((row, Fact("info", event.step, event.time, {"type": "log", "message": event.message})))
                for value in event.values:
                    for item in self._read_value(part, decoder, block, event, value, start):
                        if isinstance(item, float):
                            single.append((row, decoder.number(value.tag), event.step, event.time, item))
                        else:
                            items.append((row, item))
            except Malformed as error:
                text = block.data[start : start + 80].decode("latin-1")
                items.append((row, Unread(part.file, block.offset + start, text, f"no event: {error}")))
        columns = _merge(columns, single)
        if earlier and not self._started:
            begins += self._find_return(part, decoder, columns, earlier)
        done = 0
        for row, step, time in sorted(begins):
            upto = int(np.searchsorted(columns.rows, row))
            self._hold(part, decoder, columns.part(slice(done, upto)))
            done = upto
            if self._is_new_start(part, step):
                yield from (item for at, item in items if at < row)
                items = [(at, item) for at, item in items if at >= row]
                yield from self._flush(part, decoder)
                self._restarts.append(step)
                yield Restart(step, time)
            self._started = True
        self._hold(part, decoder, columns.part(slice(done, None)))
        yield from (item for _, item in items)

    def _read_value(
        self, part: EventPart, decoder: ScalarDecoder, block: RecordBlock, event: Event, value: EventValue, start: int
    ) -> Iterator[Item | float]:
        """One value as an item; a scalar as a float."""
        data, name = block.data, part.name(value.tag)
        plugin = value.plugin or decoder.others.get(value.tag, "")
        if value.plugin and value.plugin != "scalars" and len(decoder.others) < _MOST_TAGS:
            decoder.others[value.tag] = value.plugin
        distribution: ImportedDistribution | None = None
        if value.scalar is not None:
            yield value.scalar
            return
        if plugin == "hparams":
            for fact in make_options(flatten(read_hyperparameters(value.content) or {}), event.time):
                if self.found is None or self.found.config.get(fact.fields["name"]) != fact.fields["value"]:
                    yield fact
            return
        if (value.media is not None or (value.tensor is not None and plugin in ("images", "audio"))) and (
            facts := read_media(data, value, plugin, name, event)
        ):
            yield from facts
            return
        if value.histogram is not None:
            distribution = read_histogram(data, value.histogram, name, event)
        elif value.tensor is not None and plugin in ("", "scalars", "text", "histograms"):
            tensor = read_tensor(data, *value.tensor)
            if tensor.texts:
                for fact in make_text_facts(name, read_texts(data, value.tensor), event):
                    config = self.found.config if self.found else {}
                    if fact.kind != "option" or config.get(fact.fields["name"], fact) != fact.fields["value"]:
                        yield fact
                return
            if plugin in ("", "scalars") and tensor.values is not None and len(tensor.values) == 1:
                yield float(tensor.values[0])
                return
            if tensor.values is not None and not len(tensor.values):
                return  # a histogram of nothing, an empty text
            if tensor.values is not None and plugin != "text":
                distribution = read_histogram_tensor(tensor.values, tensor.shape, name, event)
        elif not plugin and not value.other:
            return
        else:
            what = value.other or plugin
            count, file, where = self._passed.get(what, (0, part.file, block.offset + start))
            self._passed[what] = count + 1, file, where
            return
        if distribution is None:
            yield Unread(part.file, block.offset + start, value.tag, "neither a scalar nor a histogram nor a text")
        else:
            yield distribution

    def _find_return(
        self, part: EventPart, decoder: ScalarDecoder, columns: EventColumns, earlier: dict[str, list[int]]
    ) -> list[tuple[int, int, int]]:
        """Where a new file first has a step of a tag that an earlier file has already: row, step, time."""
        tags, firsts = np.unique(columns.tags, return_index=True)
        found = []
        for tag, first in zip(tags.tolist(), firsts.tolist(), strict=True):
            known = earlier.get(part.name(decoder.tags[tag]))
            if known is not None and int(columns.steps[first]) <= known[0]:
                found.append(first)
        if not found:
            return []
        # at the row of the first of them; the lowest step, so that no tag is left behind
        first = min(found)
        step = min(int(columns.steps[item]) for item in found)
        return [(int(columns.rows[first]), step, int(columns.times[first]))]

    def _is_new_start(self, part: EventPart, step: int) -> bool:
        """Whether what the part has had from `step` on is still in force, and no restart has put an end to it."""
        known = self._last.get("\0" + part.folder)
        return known is not None and known[0] >= step and min(self._restarts[known[1] :], default=step + 1) > step

    def _hold(self, part: EventPart, decoder: ScalarDecoder, columns: EventColumns) -> None:
        """Keep scalars until they are many, and what their last steps are."""
        if not len(columns.rows):
            return
        self._held.append(columns)
        self._points += len(columns.rows)
        generation = len(self._restarts)
        tags, backward = np.unique(columns.tags[::-1], return_index=True)
        highest = None
        for tag, place in zip(tags.tolist(), backward.tolist(), strict=True):
            name = decoder.tags[tag]
            if count_of(name) != "step":
                continue
            step = int(columns.steps[len(columns.steps) - 1 - place])
            highest = step if highest is None else max(highest, step)
            name = part.name(name)
            if name in self._last or len(self._last) < _MOST_TAGS:
                self._last[name] = [step, generation]
        if highest is not None:
            before = self._last.get("\0" + part.folder)
            if before is not None and before[1] == generation:
                highest = max(highest, before[0])
            self._last["\0" + part.folder] = [highest, generation]

    def _flush(self, part: EventPart, decoder: ScalarDecoder) -> Iterator[ImportedPoints]:
        """The scalars held, tag by tag; tags of the same steps and times together."""
        if not self._held:
            return
        tags, steps, times, values = (np.concatenate([item[place] for item in self._held]) for place in range(1, 5))
        self._held, self._points = [], 0
        order = np.argsort(tags, kind="stable")
        cuts = np.flatnonzero(np.diff(tags[order])) + 1
        together: dict[tuple[str, bytes, bytes], list[tuple[str, NDArray[Any]]]] = {}
        for mine in np.split(order, cuts):
            tag = decoder.tags[int(tags[mine[0]])]
            key = count_of(tag), steps[mine].tobytes(), times[mine].tobytes()
            together.setdefault(key, []).append((part.name(tag), values[mine]))
        for (unit, its_steps, its_times), columns in together.items():
            yield ImportedPoints(
                tuple(name for name, _ in columns),
                np.frombuffer(its_steps, np.int64),
                np.frombuffer(its_times, np.int64),
                np.stack([column for _, column in columns], axis=1),
                unit,
            )


def _merge(columns: EventColumns, single: list[tuple[int, int, int, int, float]]) -> EventColumns:
    """Columns and single scalars in the order of their rows."""
    if not single:
        return columns
    rows, tags, steps, times, values = zip(*single, strict=True)
    both = EventColumns(
        np.concatenate([columns.rows, np.array(rows, np.int64)]),
        np.concatenate([columns.tags, np.array(tags, np.int64)]),
        np.concatenate([columns.steps, np.array(steps, np.int64)]),
        np.concatenate([columns.times, np.array(times, np.int64)]),
        np.concatenate([columns.values, np.array(values, np.float64)]),
    )
    order = np.argsort(both.rows, kind="stable")
    return both.part(order)


SOURCE = TensorBoardSource()
__all__ = ["SOURCE", "TensorBoardSource", "count_of", "event_files"]
