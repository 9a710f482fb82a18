"""Aim's repositories: the sequences of each run in RocksDB, what runs are called in SQLite.

In:   a folder `.aim`, also while a training writes into it; no lock is taken.
Out:  runs with their parameters, tags and notes, every number with its context, distributions and texts.

Aim has one value a step: one that was tracked again has replaced the first, so there are no rewinds to find.
Steps are hashed in the keys and come sorted out of here. A context `{"subset": "val"}` becomes `val/loss`;
others stand behind the name, as in `loss{rank=1}`. System metrics count their own steps in Aim; they get the step
of their moment. Keys and values: aim/storage/encoding/encoding.pyx; sequences: aim/sdk/tracker.py.
"""

from __future__ import annotations

import array
import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barograph.core.lazy import lazy
from barograph.importing.rocksdb import items
from barograph.importing.series import MARKS
from barograph.importing.source import Fact, FoundRun, ImportedDistribution, ImportedPoints, ImportMark, Item, Unread
from barograph.importing.sqlite import has, open_database, select, tables, word

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = lazy("sqlite3")

_SENTINEL = 0xFE
_BLOBS = b"BLOBS\xfe"
_SYSTEM = "__system__"
_HIDDEN = ("__system_params",)  # packages and environment variables: no configuration, and perhaps secret
_NUMBERS = ("int", "float", "float64", "number")
_MOST_BLOBS = 64 << 20  # bytes of texts and distributions of a run in memory
_MARKED = 50  # sequences from one mark to the next
_OBJECTS = ("aim.distribution", "aim.text")

_Path = tuple[str | int, ...]
_Sequence = tuple[int, str]  # the context's number and the name


class _Meta(NamedTuple):
    """What a run's meta database says."""

    attributes: dict[str, Any]
    contexts: dict[int, dict[str, Any]]
    kinds: dict[_Sequence, str]
    ended: bool
    damage: list[Unread]


class Aim:
    """Aim's repositories."""

    kind = "aim"
    about = "Aim: .aim repositories"

    def find(self, path: Path, head: bytes) -> Iterable[FoundRun]:
        """The runs of a repository: a folder with `meta/chunks` and `seqs/chunks`."""
        if head or not (path / "meta" / "chunks").is_dir() or not (path / "seqs" / "chunks").is_dir():
            return []
        known = _known_runs(path)
        return [_found(path, folder.name, known) for folder in sorted((path / "meta" / "chunks").iterdir())]

    def read(self, run: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
        """One sequence after the other, its steps in order; the system's at the end."""
        meta = _meta(run.path, run.key)
        yield from meta.damage
        reader = _SequenceReader(run, meta, since.state if since is not None else {})
        yield from reader.items()


SOURCE = Aim()


def _found(path: Path, key: str, known: Mapping[str, Mapping[str, Any]]) -> FoundRun:
    about = known.get(key, {})
    meta = _meta(path, key)
    attributes = {name: value for name, value in meta.attributes.items() if name not in _HIDDEN}
    config = attributes.pop("hparams", {})
    return FoundRun(
        kind=SOURCE.kind,
        path=path,
        key=key,
        name=str(about.get("name") or key[:8]),
        project=str(about.get("experiment") or ""),
        config={**(config if isinstance(config, dict) else {"hparams": config}), **attributes},
        tags=tuple(about.get("tags", ())),
        notes="\n\n".join(part for part in (about.get("description"), *about.get("notes", ())) if part),
        created=about.get("created", 0.0),
        status="finished" if meta.ended else "running" if (path / "meta" / "progress" / key).exists() else "",
    )


def _known_runs(path: Path) -> dict[str, dict[str, Any]]:
    """Names, experiments, tags and notes by a run's hash."""
    result: dict[str, dict[str, Any]] = {}
    try:
        with open_database(path / "run_metadata.sqlite") as connection:
            known = tables(connection)
            if not has(known, "run", "id", "hash", "name", "created_at", "experiment_id"):
                return result
            experiments = {key: word(name) for key, name in select(connection, "SELECT id, name FROM experiment")}
            about = "description" if "description" in known["run"] else "NULL"
            by_number = {}
            command = f"SELECT id, hash, name, {about}, created_at, experiment_id FROM run"
            for number, key, name, description, created, experiment in select(connection, command):
                by_number[number] = result[word(key)] = {
                    "name": word(name),
                    "description": word(description),
                    "created": _seconds(word(created)),
                    "experiment": experiments.get(experiment, ""),
                    "tags": [],
                    "notes": [],
                }
            command = "SELECT run_tag.run_id, tag.name FROM run_tag JOIN tag ON tag.id = run_tag.tag_id"
            for number, name in select(connection, command):
                if number in by_number:
                    by_number[number]["tags"].append(word(name))
            for number, content in select(connection, "SELECT run_id, content FROM note ORDER BY id"):
                if number in by_number:
                    by_number[number]["notes"].append(word(content))
    except (OSError, sqlite3.Error):
        pass  # the sequences are there without their names
    return result


def _seconds(text: str) -> float:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return 0.0


# ---------------------------------------------------------------------------------------------
# Keys and values


def _path(key: bytes) -> _Path:
    """The parts of a key: text up to a byte that UTF-8 never has, or that byte and eight of a number."""
    parts: list[str | int] = []
    at = 0
    while at < len(key):
        if key[at] == _SENTINEL:
            parts.append(int.from_bytes(key[at + 1 : at + 9], "big", signed=True))
            at += 10
        else:
            end = key.find(b"\xfe", at)
            end = len(key) if end < 0 else end
            parts.append(key[at:end].decode("utf-8", "replace"))
            at = end + 1
    return tuple(parts)


def _value(data: bytes) -> Any:
    """A value: a byte for its type, then its content. Lists and objects are marks: their parts have own keys."""
    kind, content = data[:1], data[1:]
    if kind == b"\x03" and len(content) == 8:
        return struct.unpack("<d", content)[0]
    if kind == b"\x02" and len(content) == 8:
        return int.from_bytes(content, "little", signed=True)
    if kind == b"\x01":
        return content != b"\0"
    if kind == b"\x04":
        return content.decode("utf-8", "replace")
    if kind == b"\x05":
        return content
    return {b"\x06": [], b"\x07": {}}.get(kind)


def _meta(path: Path, key: str) -> _Meta:
    meta = _Meta({}, {}, {}, False, [])
    ended = False
    folder = path / "meta" / "chunks" / key
    for place, data in items(folder, lambda file, where, why: meta.damage.append(Unread(file, where, "", why))):
        if place.startswith(_BLOBS):
            continue
        parts = _path(place)
        if parts[:3] != ("meta", "chunks", key) or len(parts) < 4:
            continue
        about, rest = parts[3], parts[4:]
        if about == "attrs":
            _put(meta.attributes, rest, _value(data))
        elif about == "contexts" and rest and isinstance(rest[0], int):
            _put(meta.contexts.setdefault(rest[0], {}), rest[1:], _value(data))
        elif about == "traces" and len(rest) == 3 and rest[2] == "dtype" and isinstance(rest[0], int):
            meta.kinds[rest[0], str(rest[1])] = str(_value(data))
        elif about == "end_time":
            ended = _value(data) is not None
    return meta._replace(ended=ended, attributes=_lists(meta.attributes), contexts=_lists(meta.contexts))


def _put(tree: dict[Any, Any], path: _Path, value: Any) -> None:
    """A value at its place in nested dictionaries; numbers as keys stand for places in a list."""
    if not path:
        return
    for part in path[:-1]:
        below = tree.get(part)
        if not isinstance(below, dict):
            below = tree[part] = {}
        tree = below
    if value not in ([], {}) or not isinstance(tree.get(path[-1]), dict):
        tree[path[-1]] = value


def _lists(tree: Any, depth: int = 32) -> Any:
    """Dictionaries whose keys are all numbers as lists, except at the top."""
    result = {}
    for key, value in tree.items():
        if isinstance(value, dict) and depth:
            value = _lists(value, depth - 1)
            if value and all(isinstance(part, int) for part in value):
                value = [value[part] for part in sorted(value)]
        result[key] = value
    return result


def name_of(name: str, context: Mapping[str, Any]) -> str:
    """A sequence's name with its context: `val/loss`, `loss{rank=1}`."""
    rest = dict(context)
    subset = rest.pop("subset", None)
    if isinstance(subset, str) and subset and not name.startswith(f"{subset}/"):
        name = f"{subset}/{name}"
    shown = ",".join(f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in rest.items())
    return f"{name}{{{shown}}}" if shown else name


# ---------------------------------------------------------------------------------------------
# Sequences


class _Columns:
    """One sequence while its four arrays go by: the hashes of steps and what each column has there."""

    def __init__(self, is_hashed: bool = False):
        self.is_hashed = is_hashed  # else the keys are the steps
        self.hashes = {name: array.array("q") for name in ("val", "step", "time")}
        self.values = {name: array.array("d") for name in ("val", "step", "time")}
        self.objects: dict[int, dict[Any, Any]] = {}

    def aligned(self, begin: str) -> tuple[NDArray[Any], ...]:
        """Steps, times and values where a column (`val`, or `time` for objects) has an entry."""
        wanted = np.array(self.hashes[begin], np.int64)
        values = np.array(self.values[begin], np.float64)
        steps, has_step = self._at("step", wanted) if self.is_hashed else (wanted, np.True_)
        times, has_time = self._at("time", wanted)
        whole = np.broadcast_to(has_step & has_time, wanted.shape)  # a writer's last row may still lack a part
        with np.errstate(invalid="ignore"):
            moments = np.where((times > 0) & (times < 1e11), times * 1e6, 0).round().astype(np.int64)
            numbers = np.where(abs(steps) < 2**62, steps, 0).astype(np.int64)
        order = np.lexsort((moments, numbers))
        order = order[whole[order]]
        return numbers[order], moments[order], values[order], wanted[order]

    def _at(self, column: str, wanted: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """A column's values at these hashes, and which of them it has."""
        hashes, values = np.array(self.hashes[column], np.int64), np.array(self.values[column], np.float64)
        if not len(hashes):
            return np.zeros(len(wanted)), np.zeros(len(wanted), np.bool_)
        order = np.argsort(hashes)
        at = order[np.minimum(np.searchsorted(hashes, wanted, sorter=order), len(hashes) - 1)]
        return values[at], hashes[at] == wanted


class _SequenceReader:
    """One run's sequences, read in the order of their keys."""

    def __init__(self, found: FoundRun, meta: _Meta, state: Mapping[str, Any]):
        self._folder = found.path / "seqs" / "chunks" / found.key
        self._meta = meta
        known = state.get("sequences")
        self._read: dict[str, int] = {
            str(name): int(time) for name, time in (known.items() if isinstance(known, Mapping) else ())
        }
        self._blobs: dict[tuple[int, str, int], bytes] = {}
        self._blob_bytes = 0
        self._clock: tuple[NDArray[Any], NDArray[Any]] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        self._left_out: set[str] = set()

    def items(self) -> Iterator[Item]:
        damaged: list[Unread] = []
        system: list[tuple[_Sequence, _Columns]] = []
        for count, (sequence, columns) in enumerate(self._sequences(damaged)):
            if sequence[1].startswith(MARKS):
                continue
            if sequence[1].startswith(_SYSTEM):
                system.append((sequence, columns))
            else:
                yield from self._sequence(sequence, columns)
                if count % _MARKED == _MARKED - 1:
                    yield ImportMark({"sequences": dict(self._read)})
        for sequence, columns in system:
            yield from self._system(sequence, columns)
        yield from damaged
        yield ImportMark({"sequences": dict(self._read)})

    def _sequences(self, damaged: list[Unread]) -> Iterator[tuple[_Sequence, _Columns]]:
        """Each sequence once all of it has gone by: its keys stand side by side."""
        current: _Sequence | None = None
        columns = _Columns()
        prefix, column, numbers = b"", "", False
        for key, data in items(self._folder, lambda file, at, why: damaged.append(Unread(file, at, "", why))):
            if prefix and len(key) == len(prefix) + 10 and key.startswith(prefix):
                if column and numbers:
                    self._number(columns, column, key, data)
                    continue
            elif key.startswith(_BLOBS):
                self._blob(_path(key[len(_BLOBS) :]), data)
                continue
            parts = _path(key)
            at = 4 if parts[1:2] == ("v2",) else 3
            if len(parts) < at + 3 or parts[0] != "seqs" or not isinstance(parts[at], int):
                continue
            sequence = (int(parts[at]), str(parts[at + 1]))
            if sequence != current:
                if current is not None:
                    yield current, columns
                current, columns = sequence, _Columns(is_hashed=at == 4)
            column = str(parts[at + 2]) if parts[at + 2] in ("val", "step", "time") else ""
            if len(parts) == at + 3:
                prefix = key
                # an array of objects has more keys below each of its own
                numbers = column != "val" or self._meta.kinds.get(sequence, "float") in _NUMBERS
            elif column == "val" and not numbers and isinstance(parts[at + 3], int):
                if self._meta.kinds.get(sequence) in _OBJECTS:
                    _put(columns.objects.setdefault(int(parts[at + 3]), {}), parts[at + 4 :], _value(data))
            elif column and isinstance(parts[at + 3], int):
                self._number(columns, column, key, data)
        if current is not None:
            yield current, columns

    def _number(self, columns: _Columns, column: str, key: bytes, data: bytes) -> None:
        value = _value(data)
        if isinstance(value, (int, float)):
            columns.hashes[column].append(int.from_bytes(key[-9:-1], "big", signed=True))
            columns.values[column].append(value)

    def _blob(self, parts: _Path, data: bytes) -> None:
        """Blobs come before everything else, so those that are wanted are kept."""
        at = 4 if parts[1:2] == ("v2",) else 3
        if len(parts) == at + 5 and parts[-1] == "data" and isinstance(parts[at + 3], int):
            sequence = (int(parts[at]), str(parts[at + 1]))
            if self._meta.kinds.get(sequence) in _OBJECTS and self._blob_bytes + len(data) <= _MOST_BLOBS:
                self._blob_bytes += len(data)
                self._blobs[(*sequence, int(parts[at + 3]))] = data

    def _new(self, sequence: _Sequence, times: NDArray[Any]) -> NDArray[Any]:
        """Which rows were tracked after what was read before."""
        key = f"{sequence[0]}/{sequence[1]}"
        before = self._read.get(key, -1)
        if len(times):
            self._read[key] = max(before, int(times.max()))
        return times > before

    def _name(self, sequence: _Sequence) -> str:
        return name_of(sequence[1], self._meta.contexts.get(sequence[0], {}))

    def _sequence(self, sequence: _Sequence, columns: _Columns) -> Iterator[Item]:
        kind = self._meta.kinds.get(sequence, "float")
        if kind in _NUMBERS:
            steps, times, values, _ = columns.aligned("val")
            if len(steps) > len(self._clock[0]):
                order = np.argsort(times, kind="stable")
                self._clock = (times[order], steps[order])
            new = self._new(sequence, times)
            if new.any():
                yield ImportedPoints((self._name(sequence),), steps[new], times[new], values[new, None])
        elif kind in _OBJECTS:
            steps, times, _, hashes = columns.aligned("time")
            new = self._new(sequence, times)
            for step, time, number in zip(*(part[new].tolist() for part in (steps, times, hashes)), strict=True):
                yield self._object(sequence, kind, step, time, number, columns.objects.get(number, {}))
        elif kind not in self._left_out:
            self._left_out.add(kind)
            yield Unread(self._folder, 0, sequence[1][:80], f"values of the type {kind} were left out")

    def _object(self, sequence: _Sequence, kind: str, step: int, time: int, number: int, about: dict[Any, Any]) -> Item:
        name, blob = self._name(sequence), _value(self._blobs.get((*sequence, number), b""))
        if kind == "aim.text" and isinstance(blob, str):
            return Fact("metrics", step, time, {name: blob})
        try:
            counts = np.frombuffer(blob, np.dtype(str(about["dtype"]))).astype(np.float64)
            low, high = _lists({"range": about["range"]})["range"]
            if kind == "aim.distribution" and len(counts):
                return ImportedDistribution(
                    name, step, time, np.linspace(float(low), float(high), len(counts) + 1), counts
                )
        except (KeyError, TypeError, ValueError):
            pass
        return Unread(self._folder, 0, name[:80], f"a value of the type {kind} is not whole")

    def _system(self, sequence: _Sequence, columns: _Columns) -> Iterator[Item]:
        _, times, values, _ = columns.aligned("val")
        new = self._new(sequence, times)
        moments, steps = self._clock
        if new.any():
            order = np.argsort(times[new], kind="stable")
            times, values = times[new][order], values[new][order]
            at = np.searchsorted(moments, times, "right") - 1
            own = steps[np.maximum(at, 0)] if len(steps) else np.zeros(len(times), np.int64)
            yield ImportedPoints((self._name(sequence),), own, times, values[:, None])
