"""What a run keeps by layer: heat maps of any statistic, distributions over time, the loads of experts.

In:   a run's names and columns.
Out:  frames: layers × steps, histograms, layers × steps × experts. Empty ones for a run that has nothing of the kind;
      who asks for something by a name that the run hasn't got gets an error that says so.

A series `TABLE/LAYER/FIELD` belongs to a table if the name of its field is a plain word; a layer may have slashes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from barograph.views.server.frames import Frame
from barograph.views.server.places import RunPlace
from barograph.views.server.reading import SeriesPoints, SeriesReading

if TYPE_CHECKING:
    from numpy.typing import NDArray

TABLES = ("gradients", "weights", "updates", "activations", "optimizer", "spectral")
_LOAD = re.compile(r"moe/(.+)/load/(\d+)")
_FIRST_FIELDS = ("norm", "ratio", "rms", "momentum_norm", "std", "mean")
MOST_LAYERS = 2_000
MOST_BUCKETS = 2_000
MOST_HISTOGRAMS = 500
_MOST_CELLS = 8_000_000  # 64 MB
_MOST_MARKS = 2_000
_MOST_EXPERTS = 1_024


class NotThere(LookupError):
    """The run has nothing of this name; the message says what it lacks."""


def tables(names: list[str]) -> dict[str, dict[str, list[str]]]:
    """Table → field → its layers, in the order of the model. A table of one layer is none, unless it is a known one."""
    found: dict[str, dict[str, dict[str, None]]] = {}
    for name in names:
        table, slash, rest = name.partition("/")
        layer, slash, field = rest.rpartition("/")
        if slash and layer and field and not field.isdigit():
            found.setdefault(table, {}).setdefault(field, {})[layer] = None
    made = {}
    for table, fields in found.items():
        layers = {layer for each in fields.values() for layer in each}
        if table in TABLES or (len(layers) > 1 and table not in ("ranks", "gpu", "allocator", "moe", "speed")):
            made[table] = {field: in_depth(list(each)) for field, each in fields.items()}
    return dict(sorted(made.items(), key=lambda item: (_place(item[0], TABLES), item[0])))


def in_depth(layers: list[str]) -> list[str]:
    """Embeddings first, blocks in order, what comes after them last."""

    def place(name: str) -> tuple[int, list[int], str]:
        numbers = [int(item[:18]) for item in re.findall(r"\d+", name)]
        early = any(word in name for word in ("embed", "wte", "wpe", "tokens", "position"))
        return (1 if numbers else 0 if early else 2, numbers, name)

    return sorted(layers, key=place)


def heat_map(reading: SeriesReading, place: RunPlace, table: str | None, field: str | None, buckets: int) -> bytes:
    """The frame of one field of a table. value [layers × steps]: of each bucket of steps the value of largest size.

    NaN where a layer has none. Those that are not finite themselves are `marks`: [layer, column, kind]; the value there
    is the finite one. Raises NotThere.
    """
    import numpy

    known = tables(reading.names(place))
    if not known and table:
        raise NotThere("this run has nothing by layer; run.watch(model, optimizer) records it")
    if not known:
        return _nothing("step", "value", tables=[], table="", fields=[], field="", layers=[], layers_total=0, steps=0)
    table = table or next(iter(known))
    if table not in known:
        raise NotThere(f"this run has no table {table[:60]!r}; there are {', '.join(list(known)[:12])}")
    fields = sorted(known[table], key=lambda item: (_place(item, _FIRST_FIELDS), item))
    field = field or fields[0]
    if field not in known[table]:
        raise NotThere(f"the table {table} has no field {field[:60]!r}; there are {', '.join(fields[:20])}")
    layers = known[table][field][:MOST_LAYERS]
    found = reading.series(place, [f"{table}/{layer}/{field}" for layer in layers])
    columns = [one.live() if (one := found.get(f"{table}/{layer}/{field}")) is not None else None for layer in layers]
    steps, edges = _grid(columns, min(max(buckets, 1), MOST_BUCKETS, max(1, _MOST_CELLS // max(len(layers), 1))))
    value = numpy.full((len(layers), len(steps)), numpy.nan)
    marks: list[list[Any]] = []
    for row, points in enumerate(columns):
        if points is not None and len(points):
            _largest(points, edges, value[row], marks, row)
    frame = Frame()
    header = {
        "table": table,
        "field": field,
        "fields": fields,
        "tables": list(known),
        "layers": layers,
        "layers_total": len(known[table][field]),
        "steps": len(steps),
        "marks": marks[:_MOST_MARKS],
        "marks_total": len(marks),
        "columns": {"step": frame.column(steps), "value": frame.column(value)},
    }
    return frame.bytes(header)


def _grid(columns: list[SeriesPoints | None], most: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The columns of a map: each step that has a point, or `most` buckets of them; and where each begins."""
    import numpy

    steps = [points.step for points in columns if points is not None and len(points)]
    if not steps:
        return numpy.empty(0, numpy.int64), numpy.empty(0, numpy.int64)
    if all(len(step) == len(steps[0]) and (step == steps[0]).all() for step in steps[1:]):
        every = numpy.unique(steps[0])
    else:
        every = numpy.unique(numpy.concatenate(steps))
    if len(every) <= most:
        return every, every
    low, high = int(every[0]), int(every[-1])
    edges = low + numpy.arange(most) * ((high - low + 1) / most)
    used = numpy.unique(numpy.searchsorted(edges, every, "right") - 1)
    first = numpy.searchsorted(every, edges[used], "left")
    return every[first], edges[used]


def _largest(points: SeriesPoints, edges: NDArray[Any], out: NDArray[Any], marks: list[list[Any]], row: int) -> None:
    """Of each bucket the finite value that is farthest from 0; what is not finite goes to the marks."""
    import numpy

    place = numpy.searchsorted(edges, points.step, "right") - 1
    finite = numpy.isfinite(points.value)
    if not finite.all():
        odd = numpy.flatnonzero(~finite)
        kinds = {(int(place[at]), _kind(float(points.value[at]))): None for at in odd[: 10 * _MOST_MARKS].tolist()}
        marks += [[row, column, kind] for column, kind in kinds]
    place, values = place[finite], points.value[finite]
    order = numpy.argsort(numpy.abs(values), kind="stable")
    out[place[order]] = values[order]  # of several to one place the last one stays


def _kind(value: float) -> str:
    return "nan" if value != value else "+inf" if value > 0 else "-inf"


def _place(name: str, ordered: tuple[str, ...]) -> int:
    return ordered.index(name) if name in ordered else len(ordered)


def histograms(reading: SeriesReading, place: RunPlace, name: str | None, most: int) -> bytes:
    """The frame of a distribution over time: `most` of its steps, evenly chosen, the first and last among them.

    Histogram i has edges[offsets[i] : offsets[i + 1]]; its counts, one fewer, begin at offsets[i] − i. Raises NotThere.
    """
    import numpy

    names = reading.names(place, histograms=True)
    if not names and not name:
        return _nothing("edges", "counts", "offsets", name="", names=[], steps=[], times=[], total=0)
    name = name or names[0]
    if name not in names:
        raise NotThere(f"this run has no histogram {name[:100]!r}")
    rows = reading.run(place).histograms(name)
    most = min(max(most, 2), MOST_HISTOGRAMS)
    if len(rows) > most:
        chosen = numpy.unique(numpy.linspace(0, len(rows) - 1, most).round().astype(int))
        shown = [rows[at] for at in chosen]
    else:
        shown = rows
    offsets = numpy.cumsum([0, *(len(row.edges) for row in shown)])
    frame = Frame()
    columns = {
        "edges": frame.column(numpy.concatenate([row.edges for row in shown]) if shown else []),
        "counts": frame.column(numpy.concatenate([row.counts for row in shown]) if shown else []),
        "offsets": frame.column(offsets),
    }
    header = {
        "name": name,
        "names": names[:5_000],
        "steps": [row.step for row in shown],
        "times": [row.time for row in shown],
        "total": len(rows),
        "columns": columns,
    }
    return frame.bytes(header)


def experts(reading: SeriesReading, place: RunPlace, buckets: int) -> bytes:
    """The frame of the experts' loads, load [layer × step × expert]: means over buckets of steps."""
    import numpy

    loads: dict[str, dict[int, str]] = {}
    for name in reading.names(place):
        if name.startswith("moe/") and (match := _LOAD.fullmatch(name)) and len(match[2]) < 6:
            loads.setdefault(match[1], {})[int(match[2])] = name
    if not loads:
        return _nothing("step", "load", layers=[], experts=0, steps=0)
    layers = in_depth(list(loads))[:MOST_LAYERS]
    count = min(1 + max(max(load) for load in loads.values()), _MOST_EXPERTS)
    wanted = [name for layer in layers for expert, name in loads[layer].items() if expert < count]
    found = {name: item.live() for name, item in reading.series(place, wanted).items()}
    room = max(1, _MOST_CELLS // (len(layers) * count))
    steps, edges = _grid(list(found.values()), min(max(buckets, 1), MOST_BUCKETS, room))
    load = numpy.full((len(layers), len(steps), count), numpy.nan)
    for row, layer in enumerate(layers):
        for expert, name in loads[layer].items():
            if name in found and expert < count:
                load[row, :, expert] = _means(found[name], edges)
    frame = Frame()
    header = {
        "layers": layers,
        "experts": count,
        "steps": len(steps),
        "columns": {"step": frame.column(steps), "load": frame.column(load)},
    }
    return frame.bytes(header)


def _nothing(*columns: str, **header: Any) -> bytes:
    """The frame of a run that has nothing of a kind: its columns, empty."""
    frame = Frame()
    return frame.bytes(header | {"columns": {name: frame.column([]) for name in columns}})


def _means(points: SeriesPoints, edges: NDArray[Any]) -> NDArray[Any]:
    import numpy

    finite = numpy.isfinite(points.value)
    place = numpy.searchsorted(edges, points.step[finite], "right") - 1
    sums = numpy.bincount(place, points.value[finite], len(edges))
    counts = numpy.bincount(place, minlength=len(edges))
    return numpy.where(counts > 0, sums / numpy.maximum(counts, 1), numpy.nan)
