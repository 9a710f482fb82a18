"""A run made small: of each series the points that show what each bucket of steps had, and what the others sum up to.

In:   a folder of a run that is sealed whole and that nobody else writes; the number of steps of a bucket.
Out:  its parts and logs with the points that stay; `Bucket`s of all that there were; a file that says so.

Of a bucket stay the first, the lowest, the highest and the last point, and the first that is not finite: each is a
point that was logged. A segment's points that a later one supersedes have buckets of their own. A record of a log goes
if none of its points stays; in its place is white space and a record that readers pass over, so that every place of the
log that something else names is where it was.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.core import manifest
from barograph.core.damage import Problems
from barograph.core.lazy import lazy
from barograph.core.record import HAS_NUMBERS, Record, encode, format_time, numbers
from barograph.core.text import count
from barograph.log.files import log_of_store, stores_of
from barograph.log.parts import REMOVED
from barograph.log.read import records_from
from barograph.store.branch import Branch
from barograph.store.columns import Array
from barograph.store.folder import Folder
from barograph.store.part import DamagedPart, GroupCache, Part
from barograph.store.part import numbers as column_of
from barograph.store.run import RunStore
from barograph.store.schema import TABLES
from barograph.store.sort import Slice, rows_table
from barograph.store.tail import stored_name
from barograph.store.write import write_part

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")

FILE = "thinned.json"
MARK = "thinned"  # in a part's header: the steps of a bucket, as text
_REDUCED = "metrics"  # of these records single values go
_WHOLE = frozenset(
    {"step", "moe", "gpu", "host", "speed", "model", "memory", "data", "ranks"}
)  # these stay or go whole
_MIX = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)


class Bucket(NamedTuple):
    """Columns: of each bucket of one series, rank and segment. bucket: its first step by `steps`, 0 where a bucket is
    the whole run; live: no later segment supersedes it; finite: how many values are, of which the sum is."""

    name: list[str]
    rank: Array
    segment: Array
    bucket: Array
    live: Array
    points: Array
    finite: Array
    sum: Array
    minimum: Array
    maximum: Array
    first_step: Array
    first: Array
    last_step: Array
    last: Array


@dataclass
class Thinned:
    """What thinning has done. parts: log, kind and path of each that it changed, with its buckets if it has points."""

    points: int = 0
    points_left: int = 0
    parts: list[tuple[str, str, Path, Bucket | None]] = field(default_factory=list)


def thinned_sentence(folder: Path) -> str:
    """What a thinned run says of itself, "" of another."""
    about = manifest.read_json(folder / FILE)
    steps, left = about.get("steps"), about.get("points_left")
    if not isinstance(steps, int) or not isinstance(left, int):
        return ""
    each = f"to buckets of {count(steps, 'step')}" if steps else "to one bucket a series"
    points = count(about.get("points"), "point")
    return f"thinned on {str(about.get('time'))[:10]} {each}: {left:,} of {points} are left"


def steps_of(folder: Path) -> int | None:
    """The steps of a thinned run's buckets; None: it is not thinned."""
    steps = manifest.read_json(folder / FILE).get("steps")
    return steps if isinstance(steps, int) else None


def thin(folder: Path, steps: int, now: int) -> Thinned:
    """Thin a run; steps: of a bucket, 0: the whole run is one. now: µs since 1970. Raises DamagedPart, OSError."""
    look = RunStore(folder).look()
    branch = look.branch()
    done, problems = Thinned(), Problems()
    for home in stores_of(folder):
        log = folder / log_of_store(home)
        for kind in TABLES:
            for part in Folder(home, GroupCache(1 << 20), problems).parts(kind):
                rows = _rows(part, kind)
                before = bool(part.header.get(MARK))
                buckets = None
                groups = _groups(part, rows, branch, steps)
                keep = np.ones(part.rows, bool)
                if kind == "points":
                    if not before:
                        buckets = _buckets(part, rows, groups, branch, steps)
                        keep = _shown(rows["value"], groups)
                    _thin_log(log, part, rows, keep, before)
                    done.points, done.points_left = done.points + part.rows, done.points_left + int(keep.sum())
                elif not before:
                    keep = np.zeros(part.rows, bool)
                    keep[groups.ends - 1] = True
                if not before:
                    _rewrite(part, kind, rows, keep, steps)
                    done.parts.append((home.name, kind, part.path, buckets))
                part.close()
    if problems:
        raise DamagedPart("; ".join(problems.values()))
    if not (folder / FILE).exists():
        about = {"time": format_time(now), "steps": steps, "points": done.points, "points_left": done.points_left}
        manifest.write_json(folder / FILE, about)
    return done


class _Groups(NamedTuple):
    """Rows that follow each other in one bucket: where each group starts and ends; which one each row is of."""

    starts: Array
    ends: Array
    of: Array


def _rows(part: Part, kind: str) -> dict[str, Any]:
    values = ("value",) if kind == "points" else ("edges", "counts")
    tables = list(part.read(0, part.rows, ("step", "time", *values, "segment", "rank")))

    def column(name: str) -> Any:
        if name in ("edges", "counts"):
            return [
                np.array(row.values, "f8") for table in tables for chunk in table.column(name).chunks for row in chunk
            ]
        arrays = [array for table in tables for array in column_of(table, name)]
        return np.concatenate(arrays) if arrays else np.empty(0, "f8" if name == "value" else "i8")

    return {name: column(name) for name in ("step", "time", "segment", "rank", *values)}


def _groups(part: Part, rows: dict[str, Any], branch: Branch, steps: int) -> _Groups:
    if not part.rows:
        nothing = np.empty(0, np.int64)
        return _Groups(nothing, nothing, nothing)
    begins = np.zeros(part.rows, bool)
    begins[part.starts[:-1]] = True
    for key in (rows["segment"], rows["rank"], _live(rows, branch), _bucket(rows["step"], steps)):
        begins[1:] |= key[1:] != key[:-1]
    starts = np.flatnonzero(begins)
    return _Groups(starts, np.append(starts[1:], part.rows), np.cumsum(begins) - 1)


def _bucket(step: Array, steps: int) -> Array:
    result: Array = step // steps * steps if steps else np.zeros(len(step), np.int64)
    return result


def _live(rows: dict[str, Any], branch: Branch) -> Array:
    live = branch.mask(rows["step"], rows["segment"])
    return live if live is not None else np.ones(len(rows["step"]), bool)


def _shown(value: Array, groups: _Groups) -> Array:
    """Which points stay."""
    keep = np.zeros(len(value), bool)
    if not len(value):
        return keep
    keep[groups.starts] = keep[groups.ends - 1] = True
    finite = np.isfinite(value)
    low, high = _extremes(value, groups.starts)
    for chosen in (~finite, finite & (value == low[groups.of]), finite & (value == high[groups.of])):
        places = np.flatnonzero(chosen)
        keep[places[np.unique(groups.of[places], return_index=True)[1]]] = True
    return keep


def _extremes(value: Array, starts: Array) -> tuple[Array, Array]:
    """Of each group the lowest and the highest finite value."""
    finite = np.isfinite(value)
    lowest = np.minimum.reduceat(np.where(finite, value, np.inf), starts)
    return lowest, np.maximum.reduceat(np.where(finite, value, -np.inf), starts)


def _buckets(part: Part, rows: dict[str, Any], groups: _Groups, branch: Branch, steps: int) -> Bucket:
    starts, ends, value = groups.starts, groups.ends, rows["value"]
    finite = np.isfinite(value)
    if len(value):
        low, high = _extremes(value, starts)
        held = np.add.reduceat(finite.astype(np.int64), starts)
        total = np.add.reduceat(np.where(finite, value, 0), starts)
    else:
        low = high = total = held = np.empty(0)
    named = np.searchsorted(part.starts, starts, "right") - 1
    return Bucket(
        [part.names[at] for at in named.tolist()], rows["rank"][starts], rows["segment"][starts],
        _bucket(rows["step"][starts], steps), _live(rows, branch)[starts], ends - starts, held, total,
        np.where(held > 0, low, np.nan), np.where(held > 0, high, np.nan),
        rows["step"][starts], value[starts], rows["step"][ends - 1], value[ends - 1],
    )  # fmt: skip


def _rewrite(part: Part, kind: str, rows: dict[str, Any], keep: Array, steps: int) -> None:
    """A part's rows that stay, in its place."""
    counts = np.add.reduceat(keep.astype(np.int64), part.starts[:-1]) if part.rows else np.empty(0, np.int64)
    there = np.flatnonzero(counts)
    names = [part.names[at] for at in there.tolist()]
    left = np.flatnonzero(keep)
    held = {
        name: column[left] if isinstance(column, np.ndarray) else [column[at] for at in left.tolist()]
        for name, column in rows.items()
    }
    windows = [Slice(names, counts[there].tolist(), rows_table(kind, **held))] if names else []
    header: dict[str, Any] = {
        key: part.header[key] for key in ("log", "wide", "segments", "first") if key in part.header
    }
    header[MARK] = str(steps)
    write_part(part.path.parent, part.path.name, kind, len(names), len(left), iter(windows), header)


# -- logs -----------------------------------------------------------------------------------------


class _Logged(NamedTuple):
    """A record of numbers in a log. begin, end: its bytes with the comma before it; place: of its first point among
    those of all records; loose: single values of it may go; whole: it may go."""

    record: Record
    begin: int
    end: int
    place: int
    loose: bool
    whole: bool


def _thin_log(log: Path, part: Part, rows: dict[str, Any], keep: Array, before: bool) -> None:
    """Take points that don't stay out of a log. What can't be taken out stays in the part too: `keep` is changed.
    before: the part was thinned before, and has not what is to go."""
    if not any(stop > start for start, stop in part.log_spans) or not log.exists():
        return
    place_of = {name: place for place, name in enumerate(part.names)}
    named = np.repeat(np.arange(len(part.names)), np.diff(part.starts))
    here = _hash(named, rows["step"], rows["time"], rows["value"])
    logged: list[_Logged] = []
    columns: list[list[Any]] = [[], [], [], []]
    for start, stop in part.log_spans:
        for item in _logged(log, start, stop):
            found = [(place_of.get(stored_name(name), -1), value) for name, value in numbers(item.record)]
            logged.append(item._replace(place=len(columns[0])))
            columns[0] += [place for place, _ in found]
            columns[1] += [item.record.step] * len(found)
            columns[2] += [item.record.time] * len(found)
            columns[3] += [value for _, value in found]
    if not logged:
        return
    kinds = (np.int64, np.int64, np.int64, np.float64)
    there = _hash(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))
    ends = np.array([*(item.place for item in logged[1:]), len(there)])
    stays, known = np.isin(there, here[keep]), np.isin(there, here)
    for item, end in zip(logged, ends.tolist(), strict=True):
        of = slice(item.place, end)
        if not item.whole or not (before or known[of].all()) or (not item.loose and stays[of].any()):
            stays[of] = True
    keep |= np.isin(here, there[stays])
    stays = np.isin(there, here[keep])  # of two points that are the same neither goes alone
    with open(log, "r+b") as file:
        gone = (0, 0)
        for item, end in zip(logged, ends.tolist(), strict=True):
            left = stays[item.place : end]
            if item.whole and not left.any() and not _others(item.record):
                if gone[1] != item.begin:
                    _blank(file.fileno(), *gone, REMOVED)
                    gone = (item.begin, item.begin)
                gone = (gone[0], item.end)
            elif item.loose and not left.all():
                of_number = iter(left.tolist())
                fields = {
                    name: value
                    for name, value in item.record.fields.items()
                    if not isinstance(value, (int, float)) or next(of_number)
                }
                _blank(file.fileno(), item.begin, item.end, encode(item.record._replace(fields=fields)))
        _blank(file.fileno(), *gone, REMOVED)


def _logged(log: Path, start: int, stop: int) -> Iterator[_Logged]:
    begin = start
    for record, end in records_from(log, 0 if start <= 1 else start):
        if end > stop:
            return
        if record.kind in HAS_NUMBERS:
            room = end - begin if begin > 1 else 0
            loose = record.kind == _REDUCED and len(encode(record)) + 2 <= room
            whole = (loose or record.kind in _WHOLE) and len(REMOVED) + 2 <= room
            yield _Logged(record, begin, end, 0, loose and whole, whole)
        begin = end


def _others(record: Record) -> bool:
    """Whether a record says something besides numbers that are points."""
    return record.kind == _REDUCED and not all(isinstance(value, (int, float)) for value in record.fields.values())


def _blank(file: int, begin: int, end: int, text: bytes) -> None:
    """A record and white space in the place of what is there."""
    if end > begin:
        os.pwrite(file, (b",\n" + text).ljust(end - begin), begin)


def _hash(name: Array, step: Array, time: Array, value: Array) -> Array:
    """What tells a point from others of its part."""
    result = np.ascontiguousarray(value, "<f8").view("<u8") * np.uint64(_MIX[0])
    for column, factor in ((time, _MIX[1]), (step, _MIX[2]), (name, _MIX[0])):
        result = ((result ^ (result >> np.uint64(29))) + column.astype(np.int64).view(np.uint64)) * np.uint64(factor)
    return result ^ (result >> np.uint64(32))
