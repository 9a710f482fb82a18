"""Which number was the first that was none: followed through records and tables as they come.

In:   records and rows in the order in which they were written.
Out:  for loss, gradients, weights, activations and optimizer state the first step at which they were not finite, and
      where; of those that still are.

Within a step the order is that of cause and effect: weights that came into it, activations, the loss, gradients
(backward comes from the output, so the last layer's was the first), optimizer state, weights that it left behind.
What is finite again at a later step is over: a GradScaler's probing of its scale is not an incident.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from barograph.core.heldout import APART, WORDS
from barograph.core.record import Record
from barograph.core.text import number

ORDER = ("weight before", "buffer", "activation", "loss", "gradient", "optimizer state", "weight")
_MARKS = (b'"NaN"', b'Infinity"')
_NAMES = frozenset({"first_non_finite_gradient", "first_non_finite_weight"})
_SHAPES = 256  # sets of names remembered
# columns of tables by layer: those that must be finite, and those that count what is not
_VALUES = {
    "gradients": {"norm"},
    "weights": {"norm"},
    "updates": {"update_norm"},
    "activations": {"mean", "rms", "l2_norm", "max", "min"},
    "optimizer": {"momentum_norm", "second_moment_norm"},
}
_COUNTS = {"nan", "inf", "non_finite"}
_WHAT = {
    "gradients": "gradient",
    "weights": "weight",
    "updates": "weight",
    "activations": "activation",
    "optimizer": "optimizer state",
}
_WORD = re.compile(r"[a-z0-9]+")
_HELD_OUT = {*WORDS, *APART, "heldout", "holdout"}


class Bad(NamedTuple):
    """Something that is not finite. `layer`: "" where only the whole is known; `layers`: how many are."""

    step: int
    what: str
    layer: str
    series: str
    value: str
    layers: int

    @property
    def kind(self) -> str:
        """gradient, weight, activation, buffer, loss, optimizer state."""
        return self.what.removesuffix(" before")

    def fields(self) -> dict[str, Any]:
        """As it is written into a black box."""
        return self._asdict() | {"what": self.kind}


class NonFinite:
    """Belongs to the pump's thread, but for `found`."""

    def __init__(self) -> None:
        self._open: dict[str, Bad] = {}  # by kind
        self._columns: dict[int, tuple[tuple[str, ...], Any]] = {}
        self._roles: dict[str, str] = {}

    def copied(self) -> NonFinite:
        """One that goes its own way from here."""
        other = NonFinite()
        other._open = dict(self._open)
        return other

    def found(self) -> list[Bad]:
        """What is not finite, the first first."""
        return sorted(list(self._open.values()), key=lambda bad: (bad.step, ORDER.index(bad.what)))

    def take(self, record: Record, data: bytes) -> None:
        """A record and its text."""
        marked = any(mark in data for mark in _MARKS)
        fields = record.fields
        if not marked and not self._open and _NAMES.isdisjoint(fields):
            return
        if record.kind == "step":
            self._scalar(record.step, "loss", "train/loss", fields.get("loss"))
            self._scalar(record.step, "gradient", "train/norm", fields.get("norm"))
        elif record.kind == "metrics":
            for name, value in fields.items():
                role = self._role(name)
                if role:
                    self._scalar(record.step, role, name, value)
        elif record.kind == "model":
            self._model(record.step, fields)
        elif record.kind == "segment":
            self._open.clear()

    def _role(self, name: str) -> str:
        role = self._roles.get(name)
        if role is None:
            words = _WORD.findall(name.lower())
            role = ""
            if words and not _HELD_OUT & set(words):
                if "loss" in words or words[-1].endswith("loss"):
                    role = "loss"
                elif "norm" in words[-1] and any(word.startswith("grad") for word in words):
                    role = "gradient"
            if len(self._roles) < 10_000:
                self._roles[name] = role
        return role

    def _scalar(self, step: int, what: str, series: str, value: Any) -> None:
        if isinstance(value, (int, float)):
            if math.isfinite(value):
                self._close(step, what.removesuffix(" before"))
            else:
                self._put(Bad(step, what, "", series, number(value), 1))

    def _model(self, step: int, fields: dict[str, Any]) -> None:
        for what, series in (("gradient", "grad_norm"), ("weight", "param_norm")):
            value = fields.get(series)
            kind = "weight before" if what == "weight" else what
            layer = fields.get(f"first_non_finite_{what}")
            if layer is not None:
                count = int(fields.get(f"non_finite_{what}s", 1))
                shown = number(value) if isinstance(value, float) and not math.isfinite(value) else "not finite"
                self._put(Bad(step, kind, str(layer), f"model/{series}", shown, count))
            else:
                self._scalar(step, kind, f"model/{series}", value)

    def take_row(self, names: tuple[str, ...], values: Any, step: int) -> None:
        """A row: values [n] as an array of float64."""
        import numpy

        known = self._columns.get(id(names))
        if known is None:
            if len(self._columns) >= _SHAPES:
                self._columns.clear()
            known = self._columns[id(names)] = (names, _columns(names))
        if known[1] is None:
            return
        places, counts, kinds = known[1]
        chosen = values[places]
        with numpy.errstate(invalid="ignore"):
            fine = numpy.isfinite(chosen) & ~(counts & (chosen > 0))
        if fine.all():
            if self._open:
                for kind in kinds:
                    self._close(step, kind)
            return
        bad: dict[str, list[tuple[str, str, float]]] = {}
        for place, value in zip(places[~fine].tolist(), chosen[~fine].tolist(), strict=True):
            family, layer, _ = _split(names[place])
            bad.setdefault(_WHAT[family], []).append((layer, names[place], value))
        for kind, cells in bad.items():
            layers = list(dict.fromkeys(layer for layer, _, _ in cells))
            layer = layers[-1] if kind == "gradient" else layers[0]
            series, value = next((series, value) for its, series, value in cells if its == layer)
            shown = number(value) if not math.isfinite(value) else f"{value:.0f} {series.rpartition('/')[2]}"
            self._put(Bad(step, kind, layer, series, shown, len(layers)))

    def _put(self, bad: Bad) -> None:
        known = self._open.get(bad.kind)
        if known is None or bad.step < known.step or (bad.step == known.step and bad.layer and not known.layer):
            self._open[bad.kind] = bad

    def _close(self, step: int, kind: str) -> None:
        known = self._open.get(kind)
        if known is not None and step > known.step:
            del self._open[kind]


def _columns(names: tuple[str, ...]) -> Any:
    """Places of the columns to look at, which of them count, and the kinds of tensor they are of; None of none."""
    import numpy

    places, counts, kinds = [], [], set()
    for place, name in enumerate(names):
        family, layer, column = _split(name)
        if layer and family in _VALUES and (column in _VALUES[family] or column in _COUNTS):
            places.append(place)
            counts.append(column in _COUNTS)
            kinds.add(_WHAT[family])
    if not places:
        return None
    return numpy.array(places), numpy.array(counts), tuple(kinds)


def _split(name: str) -> tuple[str, str, str]:
    family, _, rest = name.partition("/")
    layer, _, column = rest.rpartition("/")
    return family, layer, column


def first_of(recorded: Iterable[Bad], live: Iterable[Bad]) -> Bad | None:
    """The first bad tensor of what was recorded and what a look at the model found now.

    What was recorded with a layer stands. A loss or a norm of which no layer is known is traced to what stands before
    it in the order of causes, or is the same by name; weights that are all bad have only taken it over, and weights
    of which a watch said nothing when it named that step's gradients were fine.
    """
    ordered = list(recorded)
    present = sorted(live, key=lambda bad: ORDER.index(bad.what))
    if not ordered:
        return present[0] if present else None
    first = ordered[0]
    if first.layer:
        return first
    weights_were_fine = any(bad.step == first.step and bad.kind == "gradient" and bad.layer for bad in ordered)
    for bad in present:
        before = ORDER.index(bad.what) < ORDER.index(first.what)
        if bad.what == first.what or (before and first.kind == "loss" and not weights_were_fine):
            return bad._replace(step=first.step)
    return first
