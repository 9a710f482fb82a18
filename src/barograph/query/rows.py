"""The rows of each table, read run by run as they are asked for.

In:   stored runs; the condition that the rows of a table must meet.
Out:  Arrow record batches. Nothing is read of a run or a series that the condition leaves out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy

from barograph.core.aliases import Names
from barograph.core.record import mark_non_finite
from barograph.core.roles import plays
from barograph.query import given
from barograph.query.findings import findings_of
from barograph.query.leaves import flat, moment, number, number_in, plain_text, sound, whole
from barograph.query.losses import told_losses
from barograph.query.pushdown import Condition
from barograph.query.shelf import RunEntry, Shelf, latest, series_of
from barograph.query.tables import schema

if TYPE_CHECKING:
    import pyarrow

    from barograph.store.columns import Ranked

_BATCH_ROWS = 1 << 17


def points(shelf: Shelf, condition: Condition, columns: frozenset[str] | None) -> Iterator[pyarrow.RecordBatch]:
    """Rows of `points`."""
    yield from _packed("points", series_of(shelf, condition))


def all_points(shelf: Shelf, condition: Condition, columns: frozenset[str] | None) -> Iterator[pyarrow.RecordBatch]:
    """Rows of `all_points`."""
    yield from _packed("all_points", series_of(shelf, condition, every_branch=True))


def _packed(table: str, found: Iterator[tuple[RunEntry, str, Ranked]]) -> Iterator[pyarrow.RecordBatch]:
    """Series put together into batches of some size."""
    waiting: list[tuple[RunEntry, str, Ranked]] = []
    rows = 0
    for item in found:
        waiting.append(item)
        rows += len(item[2][0])
        if rows >= _BATCH_ROWS:
            yield _points_batch(table, waiting)
            waiting, rows = [], 0
    if waiting:
        yield _points_batch(table, waiting)


def _points_batch(table: str, found: list[tuple[RunEntry, str, Ranked]]) -> pyarrow.RecordBatch:
    import pyarrow

    lengths = [len(columns[0]) for _, _, columns in found]
    step, time, value, segment, rank = (
        numpy.concatenate([columns[at] for _, _, columns in found]) if len(found) > 1 else found[0][2][at]
        for at in range(5)
    )
    arrays = [
        _repeated([entry.project for entry, _, _ in found], lengths),
        _repeated([entry.key for entry, _, _ in found], lengths),
        _repeated([name for _, name, _ in found], lengths),
        pyarrow.array(step),
        pyarrow.array(time, mask=time <= 0).cast(pyarrow.timestamp("us", "UTC")),
        pyarrow.array(value),
        pyarrow.array(segment, pyarrow.int64()),
        pyarrow.array(rank, pyarrow.int64()),
    ]
    if table == "all_points":
        live = [_live(entry, columns[0], columns[3]) for entry, _, columns in found]
        arrays.append(pyarrow.array(numpy.concatenate(live)))
    return pyarrow.record_batch(arrays, schema=schema(table))


def _live(entry: RunEntry, step: Any, segment: Any) -> Any:
    """Which points belong to the live branch, bool [n]."""
    live = entry.branch.mask(step, segment)
    return numpy.ones(len(step), bool) if live is None else live


def _repeated(values: list[str], lengths: list[int]) -> Any:
    """A column of text in which each value is repeated that many times."""
    import pyarrow

    codes = numpy.repeat(numpy.arange(len(values), dtype=numpy.int32), lengths)
    return pyarrow.DictionaryArray.from_arrays(codes, pyarrow.array(map(sound, values))).dictionary_decode()


# -- runs ---------------------------------------------------------------------------------------------


def runs(shelf: Shelf, condition: Condition, columns: frozenset[str] | None) -> Iterator[pyarrow.RecordBatch]:
    """Rows of `runs`. Losses and steps are looked for only if `columns` names them (None: they are)."""
    look = columns is None or bool(columns & {"step", "loss", "eval_loss"})
    status = columns is None or "status" in columns
    spent = columns is None or bool(columns & {"wall_seconds", "gpu_hours", "cost"})

    def rows() -> Iterator[dict[str, Any]]:
        for entry in shelf.matching(condition):
            about, run = entry.about, entry.run
            row: dict[str, Any] = {key: plain_text(about.get(key)) for key in ("name", "notes", "host", "repo_commit")}
            row |= {key: number(value) for key, value in given.spent(run).items()} if spent else {}
            row |= {key: whole(about.get(key)) for key in ("world_size", "total_steps")}
            row |= {key: moment(about.get(key)) for key in ("created", "finished")}
            row["name"] = run.id if row["name"] is None else row["name"]
            row["tags"] = [str(tag) for tag in run.tags]
            row["status"] = run.status if status else None
            row |= latest(entry) if look else {}
            yield {"project": entry.project, "run": entry.key, "dir": str(run.dir)} | row

    yield from _batches("runs", rows())


def configs(shelf: Shelf, condition: Condition, columns: frozenset[str] | None) -> Iterator[pyarrow.RecordBatch]:
    """Rows of `configs`."""

    def rows() -> Iterator[dict[str, Any]]:
        for entry in shelf.matching(condition):
            for key, value in flat(entry.run.config):
                labels = {"project": entry.project, "run": entry.key}
                yield labels | {"key": key, "value": plain_text(value), "number": number_in(value)}

    yield from _batches("configs", rows())


def checkpoints(shelf: Shelf, condition: Condition, columns: frozenset[str] | None) -> Iterator[pyarrow.RecordBatch]:
    """Rows of `checkpoints`."""

    def rows() -> Iterator[dict[str, Any]]:
        for entry in shelf.matching(condition):
            for item in entry.run.checkpoints():
                row: dict[str, Any] = {"step": whole(item.get("step")), "segment": whole(item.get("segment"))}
                row |= {key: plain_text(item.get(key)) for key in ("path", "metadata")}
                row |= {key: number(item.get(key)) for key in ("val_loss", "val_bpb")}
                yield {"project": entry.project, "run": entry.key, "live": item["live"]} | row

    yield from _batches("checkpoints", rows())


def findings(shelf: Shelf, condition: Condition, columns: frozenset[str] | None) -> Iterator[pyarrow.RecordBatch]:
    """Rows of `findings`: those that stand."""

    def rows() -> Iterator[dict[str, Any]]:
        for entry in shelf.matching(condition):
            for record in findings_of(entry.run):
                fields = record.fields
                row: dict[str, Any] = {"project": entry.project, "run": entry.key, "time": record.time or None}
                for key in ("rule", "family", "kind", "severity", "message"):
                    row[key] = plain_text(fields.get(key))
                row["step"] = record.step
                row |= {key: whole(fields.get(key)) for key in ("last_step", "found", "segment")}
                for key in ("causes", "remedies"):
                    listed = fields.get(key)
                    row[key] = [plain_text(item) for item in listed] if isinstance(listed, list) else None
                row["evidence"] = json.dumps(mark_non_finite(fields.get("evidence") or {}), default=str)
                row["confidence"] = number(fields.get("confidence"))
                yield row

    yield from _batches("findings", rows())


class _Evaluations(Condition):
    """The names that evaluations are read from, among those that a condition lets through; of the runs on a shelf."""

    BESIDE = ("eval/eval_tokens", "eval/duration_ms")

    def __init__(self, inner: Condition, shelf: Shelf):
        self._inner = inner
        self._runs = {entry.key: entry.run for entry in shelf.entries}
        self._told: dict[str, tuple[str, ...]] = {}
        self._names = Names()
        self._known: dict[str, bool] = {}

    def is_loss(self, name: str) -> bool:
        if name not in self._known:
            self._known[name] = self._names.canonical(name).name == "eval/loss" or plays("eval_loss", name)
        return self._known[name]

    def allows(self, keys: Mapping[str, str]) -> bool:
        name = keys.get("name", "")
        if name in self.BESIDE:
            return self._inner.allows({key: value for key, value in keys.items() if key != "name"})
        known = "name" not in keys or self.is_loss(name) or name in self._told_of(keys.get("run", ""))
        return known and self._inner.allows(keys)

    def _told_of(self, run: str) -> tuple[str, ...]:
        """The evaluations of a run that their rows tell."""
        if run not in self._told:
            self._told[run] = told_losses(self._runs[run]).evaluations if run in self._runs else ()
        return self._told[run]

    def exact(self, column: str) -> frozenset[str] | None:
        return None if column == "name" else self._inner.exact(column)


def evaluations(shelf: Shelf, condition: Condition, columns: frozenset[str] | None) -> Iterator[pyarrow.RecordBatch]:
    """Rows of `evaluations`."""
    import pyarrow

    wanted = _Evaluations(condition, shelf)
    for entry, group in groupby(series_of(shelf, wanted), key=lambda found: found[0]):
        held = {name: found for _, name, found in group}
        for name, (step, time, value, segment, _) in held.items():
            if name in wanted.BESIDE:
                continue
            others = [held.get(other) if name == "eval/loss" else None for other in wanted.BESIDE]
            arrays = [
                *(_repeated([text], [len(step)]) for text in (entry.project, entry.key, name)),
                pyarrow.array(step),
                pyarrow.array(time, mask=time <= 0).cast(pyarrow.timestamp("us", "UTC")),
                pyarrow.array(value),
                *(_beside(step, time, segment, other) for other in others),
                pyarrow.array(segment, pyarrow.int64()),
            ]
            yield pyarrow.record_batch(arrays, schema=schema("evaluations"))


def _beside(step: Any, time: Any, segment: Any, other: Ranked | None) -> Any:
    """A series' values at the very records of another, null where there is none."""
    import pyarrow

    known: dict[tuple[int, int, int], float] = {}
    if other is not None:
        keys = zip(other[0].tolist(), other[1].tolist(), other[3].tolist(), strict=True)
        known = dict(zip(keys, other[2].tolist(), strict=True))
    places = zip(step.tolist(), time.tolist(), segment.tolist(), strict=True)
    return pyarrow.array([known.get(place) for place in places], pyarrow.float64())


PROVIDERS: dict[str, Callable[[Shelf, Condition, frozenset[str] | None], Iterator[Any]]] = {
    "runs": runs,
    "points": points,
    "all_points": all_points,
    "configs": configs,
    "findings": findings,
    "checkpoints": checkpoints,
    "evaluations": evaluations,
}


def _batches(table: str, rows: Iterator[dict[str, Any]]) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow

    made = schema(table)
    waiting: list[dict[str, Any]] = []
    for row in rows:
        waiting.append({key: sound(value) for key, value in row.items()})
        if len(waiting) == 4096:
            yield pyarrow.RecordBatch.from_pylist(waiting, schema=made)
            waiting = []
    if waiting:
        yield pyarrow.RecordBatch.from_pylist(waiting, schema=made)
