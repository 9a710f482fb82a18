"""A stored run given to the rules as it was logged.

In:   a stored run.
Out:  an examiner that has seen all of it.

Series are given in pieces, in the order in which they were logged: by time where the log has times, else by segment
and step. Of several ranks rank 0 counts, or the lowest that has a series (`query.ranks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy

from barograph.core.liveness import ALIVE, LOST, reason
from barograph.core.record import Record
from barograph.doctor.events import events_of
from barograph.doctor.kernel.examiner import Examiner
from barograph.doctor.kernel.facts import facts_of, with_rank
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.shapes import KEPT, QUANTITIES, is_wanted, shape_of
from barograph.doctor.outlook import outlook_of
from barograph.log.files import rank_in
from barograph.query.ranks import MOST_SERIES, chosen_rank, first_series
from barograph.query.stored import StoredRun

if TYPE_CHECKING:
    from numpy.typing import NDArray

    BlockColumns = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]  # step, time, value, segment

_PIECE = 8192  # rows of the longest series
_FEW = 8  # pieces that a short run is cut into


def replay(
    run: StoredRun, rules: Iterable[Rule] | None = None, series: Mapping[str, BlockColumns] | None = None
) -> Examiner:
    """Let rules see a run from its first row to its last. series: where they have been read."""
    examiner = Examiner(rules, _facts(run))
    given = run.all_columns("all", chosen_rank) if series is None else series
    if len(given) > MOST_SERIES:
        names = first_series({name: int(column[1].min()) for name, column in given.items() if len(column[1])})
        given = {name: given[name] for name in sorted(names)}
    columns = {name: _in_order(column) for name, column in given.items()} | _shapes(run)
    events = _events(run)
    keys, cuts = _cuts(columns, events)
    feed(examiner, columns, events, keys, cuts)
    return examiner


def feed(
    examiner: Examiner,
    columns: dict[str, BlockColumns],
    events: list[tuple[int, Record]],
    keys: dict[str, NDArray[Any]],
    cuts: NDArray[Any],
) -> None:
    """Rows and events up to each cut in turn, examined between; `keys` place rows among the cuts."""
    pieces: list[list[tuple[str, int, int]]] = [[] for _ in cuts]
    for name, key in keys.items():
        ends = numpy.searchsorted(key, cuts, side="right")
        ends[-1] = len(key)
        for piece, (low, high) in zip(pieces, pairwise([0, *ends.tolist()]), strict=True):
            if high > low:
                piece.append((name, low, high))
    waiting = list(reversed(events))
    seen = examiner.seen
    for at, piece in enumerate(pieces):
        while waiting and (waiting[-1][0] <= cuts[at] or at == len(pieces) - 1):
            seen.happened(waiting.pop()[1])
        for name, low, high in piece:
            step, time, value, segment = columns[name]
            seen.add(name, step[low:high], value[low:high], time[low:high], segment[low:high])
        if at < len(pieces) - 1:
            examiner.examine()
    if "ends" in seen.facts:
        seen.facts["finished"] = True
    examiner.catch_up()


def counts_of(run: StoredRun) -> dict[str, str]:
    """What the steps of an imported run's series count where that is something else: `epoch`, `row`, `samples`, …"""
    source = run.manifest.get("source")
    counts = source.get("x") if isinstance(source, dict) else None
    return counts if isinstance(counts, dict) else {}


def _facts(run: StoredRun) -> dict[str, Any]:
    about = run.manifest
    source = about.get("source")
    return facts_of(
        run.config,
        world_size=about.get("world_size"),
        planned_steps=about.get("total_steps"),
        source=source.get("kind") if isinstance(source, dict) else "barograph",
        counts=counts_of(run),
        ends=run.status not in ALIVE or None,
        outlook=outlook_of,
        lost={"status": run.status, "reason": reason(about)} if run.status in LOST else None,
    )


def _shapes(run: StoredRun) -> dict[str, BlockColumns]:
    """The shapes of the gradients' histograms, as series."""
    result: dict[str, BlockColumns] = {}
    for name in run.histogram_names():
        rows = (
            [(item, shape_of(item.edges, item.counts)) for item in run.histograms(name, "all")]
            if is_wanted(name)
            else []
        )
        rows = [(item, shape) for item, shape in rows if shape]
        if rows:
            step, time = (numpy.array(column, numpy.int64) for column in (
                [item.step for item, _ in rows], [round(item.time * 1e6) for item, _ in rows]))  # fmt: skip
            segment = numpy.array([item.segment for item, _ in rows], numpy.int32)
            for quantity in QUANTITIES:
                value = numpy.array([shape[quantity] for _, shape in rows])
                result[f"{KEPT}/{name}/{quantity}"] = _in_order((step, time, value, segment))
    return result


def _in_order(column: BlockColumns) -> BlockColumns:
    """A series in the order in which it was logged."""
    step, time, value, segment = column
    if len(segment) and (segment[1:] < segment[:-1]).any():
        order = numpy.argsort(segment, kind="stable")
        step, time, value, segment = step[order], time[order], value[order], segment[order]
    return step, time, value, segment


def _cuts(
    columns: dict[str, BlockColumns], events: list[tuple[int, Record]]
) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """The position of each row in the order of logging, and where the pieces end."""
    if not columns:
        return {}, numpy.array([numpy.iinfo(numpy.int64).max])
    longest = max(columns.values(), key=lambda column: len(column[0]))
    timed = bool((numpy.diff(longest[1]) > 0).mean() > 0.5) if len(longest[1]) > 1 else bool(longest[1].any())
    made: dict[tuple[int, ...], NDArray[Any]] = {}  # series that were logged together share their arrays
    keys = {}
    for name, (step, time, _, part) in columns.items():
        arrays = (id(step), id(time), id(part))
        if arrays not in made:
            # never back, so that it can be searched
            made[arrays] = numpy.maximum.accumulate(time if timed else (part.astype(numpy.int64) << 44) + step)
        keys[name] = made[arrays]
    main = max(keys.values(), key=len)
    size = min(_PIECE, max(256, len(main) // _FEW))
    cuts = [*main[size - 1 : -1 : size].tolist(), numpy.iinfo(numpy.int64).max]
    if not timed:
        segment = 0
        for at, (_, event) in enumerate(events):
            segment = int(event.fields.get("segment", 0) or 0) if event.kind == "segment" else segment
            events[at] = ((segment << 44) + event.step if segment else 0, event)
        events.sort(key=lambda item: item[0])
    return keys, numpy.array(cuts)


def _events(run: StoredRun) -> list[tuple[int, Record]]:
    """Records without numbers that rules ask for, in the order of time."""
    found = [
        (record.time, with_rank(record, rank_in(path.name))) for path in run.log_files() for record in events_of(path)
    ]
    return sorted(found, key=lambda item: item[0])
