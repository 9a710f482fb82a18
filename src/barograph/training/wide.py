"""Wide rows and histograms: thousands of numbers a step, into the block file beside the log.

In:   named numbers, tables by layer, loads by expert, distributions.
Out:  one block each, in the kernel's hands when the call returns.
"""

from __future__ import annotations

import array
import operator
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barograph.core.values import flatten, text
from barograph.log.blocks import BlockWriter
from barograph.training.guard import guarded
from barograph.training.shapes import Shape

if TYPE_CHECKING:
    from barograph.training.recorder import Recorder


class WideRows:
    """The block files of one writer."""

    def __init__(self, recorder: Recorder):
        self._out = recorder
        self.blocks = self._open()

    def _open(self) -> BlockWriter:
        out = self._out
        about = {"run": out.id, "writer": out.writer, "rank": out.rank, "log": out.log_path.name}
        return BlockWriter(Path(out.dir), out.stem, about, out.warn)

    @guarded("wide record")
    def row(self, values: Mapping[str, float], step: int | None = None, *, advance: bool = True) -> None:
        """Thousands of named numbers at a step.

        advance: `log` without a step counts on from here; not for what comes late, or from another thread."""
        if not isinstance(values, Mapping):
            self._out.odd(
                f"run.model.wide takes ({{name: number, …}}, step), and the first is of type {type(values).__name__}"
            )
            return
        names = tuple(values)
        shape = self._out.shapes.find(names)
        if shape is None or not shape.wide:
            if any(type(name) is not str for name in names):
                values = flatten(values, self._out.odd)
                names = tuple(values)
            shape = self._out.shapes.add(names, False, True)
        self.pack(shape, values.values(), step, advance)

    def pack(self, shape: Shape, values: Any, step: int | None, advance: bool = True) -> None:
        """The values of a known set of names. Raises struct.error for what is not a number."""
        out = self._out
        if out.closed or (out.finished and advance):
            out.refuse()
            return
        packed = shape.pack(*values)
        now = time.time_ns() // 1000
        out.ready()
        self.blocks.row(shape.names, packed, out.at(step, advance), now, out.segment.number, out.log.position)
        out.tick(now // 1_000_000)

    @guarded("layer table")
    def layers(
        self, step: int, layers: Mapping[str, Mapping[str, float]], prefix: str = "layers", *, advance: bool = True
    ) -> None:
        """Statistics by layer: `{layer: {statistic: value}}` becomes series `{prefix}/{layer}/{statistic}`.
        advance: as for `row`."""
        if not isinstance(layers, Mapping) or not all(isinstance(row, Mapping) for row in layers.values()):
            self._out.odd("run.model.layers takes (step, {layer: {statistic: number}}); what was given is not recorded")
            return
        shape = self._out.shapes.of_table(prefix, layers)
        self.pack(shape, [value for statistics in layers.values() for value in statistics.values()], step, advance)

    @guarded("set of expert loads")
    def expert_loads(
        self, step: int, loads: Mapping[str, Sequence[float]], prefix: str = "moe", *, advance: bool = True
    ) -> None:
        """Tokens by expert: `{layer: [load, …]}` becomes series `{prefix}/{layer}/load/{expert}`.
        advance: as for `row`."""
        if not isinstance(loads, Mapping) or not all(hasattr(row, "__len__") for row in loads.values()):
            self._out.odd("run.model.expert_loads takes (step, {layer: [load, …]}); what was given is not recorded")
            return
        table = {
            f"{layer}/load": {str(expert): float(load) for expert, load in enumerate(row)}
            for layer, row in loads.items()
        }
        self.layers(step, table, prefix, advance=advance)

    @guarded("histogram")
    def histogram(
        self,
        name: str,
        values: Any,
        step: int | None = None,
        *,
        edges: Any = None,
        bins: int = 64,
        advance: bool = True,
    ) -> None:
        """A distribution: raw `values` of any shape, counted into `bins` by the reader; or, with
        `edges` (n + 1 of them), n counts. Non-finite values are left out. advance: as for `row`."""
        out = self._out
        if out.closed or (out.finished and advance):
            out.refuse()
            return
        numbers = _doubles(values)
        borders = None if edges is None else _doubles(edges)
        if numbers is None or (edges is not None and borders is None):
            out.odd(f"the histogram {text(name)[:60]!r} takes real numbers; what was given is not recorded")
            return
        bins = operator.index(bins)
        if bins < 1:
            raise ValueError(f"a histogram needs one bin or more, not {bins}")
        if borders is not None and len(borders) != len(numbers) + 8:
            raise ValueError(f"{len(numbers) // 8} counts need {len(numbers) // 8 + 1} edges, not {len(borders) // 8}")
        now = time.time_ns() // 1000
        out.ready()
        packed, bins = (numbers, bins) if borders is None else (borders + numbers, 0)
        number = out.segment.number
        self.blocks.histogram(text(name), packed, bins, out.at(step, advance), now, number, out.log.position)
        out.tick(now // 1_000_000)

    def forked(self) -> None:
        """In a forked child: the parent's file is the parent's."""
        self.blocks.abandon()
        self.blocks = self._open()


def _doubles(values: Any) -> bytes | None:
    """Numbers of any shape as little-endian doubles; None for what is not real numbers. NumPy is not imported."""
    if hasattr(values, "detach"):  # a tensor
        values = values.detach().double().cpu().numpy()
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    if kind is not None:
        return values.astype("<f8").tobytes() if kind in "biuf" else None
    flat: list[Any] = []
    _flatten(values, flat)
    try:
        return array.array("d", flat).tobytes()
    except TypeError:
        return None


def _flatten(values: Any, flat: list[Any], depth: int = 16) -> None:
    if isinstance(values, (str, bytes, Mapping)) or not depth:
        flat.append(values)
    elif hasattr(values, "__iter__"):
        for value in values:
            _flatten(value, flat, depth - 1)
    else:
        flat.append(values)
