"""Rules over the shapes of gradient histograms: several modes, heavy tails, a shifted centre, a collapse to zero.

In:   the shapes of histograms, `shape/{histogram}/{modes|kurtosis|shift|zero}`.
Out:  findings of the family `gradient`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import RowCursor
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.shapes import KEPT, QUANTITIES

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_MOST_NAMED = 5
_WORDS = {
    "collapsed": ("is one spike at zero", "zero", ["dead gradients: a layer that nothing comes back to"],
                  ["check connections, initialisation and activation functions of the layer"]),
    "modes": ("has several peaks", "modes", ["parts of the layer that behave unlike each other", "a mixture of data"],
              ["look at the layer's parts apart, such as the heads or experts in it"]),
    "tails": ("has heavy tails", "kurtosis", ["single examples with very large gradients"],
              ["clip gradients", "look at the batches with the largest gradients"]),
    "shifted": ("is not centred at zero", "shift", ["all gradients of the layer point one way: a bias that is missing"],
                ["check the layer's inputs: normalise them, or give the layer a bias"]),
}  # fmt: skip


class HistogramShape(Rule):
    """The histogram of a layer's gradient does not have its usual shape, a bell around zero.

    The stability guide's four shapes, each in three histograms of a layer in a row. Several modes: two peaks with a
    tenth of the numbers each, and a valley of less than half the lower one's density between them. Heavy tails: a
    kurtosis above 100, as gradients have tails anyway. Shifted: the mean is more than a standard deviation from zero.
    Collapsed: all but a thousandth of the numbers in the cell at zero. The last warns, the others inform. Histograms of
    fewer than 256 numbers are not looked at. Layers with the same shape are one finding.
    """

    name, family, kind, severity = "histogram_shape", "gradient", "vanishing", "warning"
    needs = ("shape/*/modes",)
    least = 3
    about = "The histogram of a layer's gradient is not a bell around zero."
    sources = ("stability guide: interpreting histogram shapes",)
    thresholds: ClassVar = {
        "modes": (2.0, "peaks; stability guide"),
        "kurtosis": (100.0, "3 is a normal distribution's; ours"),
        "shift": (1.0, "standard deviations; ours"),
        "zero": (0.999, "share of the numbers; ours"),
        "tables": (3.0, "histograms in a row; ours"),
    }

    def reset(self) -> None:
        self._cursors = {quantity: RowCursor() for quantity in QUANTITIES}
        self._in_a_row: dict[tuple[str, str], list[int]] = {}
        self._layers: dict[tuple[str, int], dict[str, tuple[int, int, float]]] = {}

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        changed: set[tuple[str, int]] = set()
        tables = {quantity: history.layers(KEPT, quantity) for quantity in QUANTITIES}
        for layer, channel in tables["modes"].items():
            rows = {quantity: self._cursors[quantity].new(tables[quantity].get(layer)) for quantity in QUANTITIES}
            modes = rows["modes"]
            if modes is None or any(row is None or len(row) != len(modes) for row in rows.values()):
                continue  # all four come together
            for at in range(len(modes)):
                shape = {quantity: float(row.value[at]) for quantity, row in rows.items() if row is not None}
                step, segment = int(modes.step[at]), int(modes.segment[at])
                for word in self._shapes(shape, layer, step, channel.name):
                    value = shape[_WORDS[word][1]]
                    first = self._in_a_row[layer, word][0]
                    known = self._layers.setdefault((word, segment), {})
                    known.setdefault(layer, (first, step, value))
                    changed.add((word, segment))
        for word, segment in sorted(changed):
            yield self._say(word, segment)

    def _shapes(self, shape: dict[str, float], layer: str, step: int, name: str) -> Iterator[str]:
        """The shapes that a layer has had in enough histograms in a row."""
        collapsed = shape["zero"] >= self.at["zero"]
        has = {
            "collapsed": collapsed,
            "modes": not collapsed and shape["modes"] >= self.at["modes"],
            "tails": not collapsed and shape["kurtosis"] > self.at["kurtosis"],
            "shifted": not collapsed and abs(shape["shift"]) > self.at["shift"],
        }
        for word, there in has.items():
            steps = [*self._in_a_row.get((layer, word), []), step][:8] if there else []
            self._in_a_row[layer, word] = steps
            if len(steps) >= self.at["tables"]:
                yield word

    def _say(self, word: str, segment: int) -> Finding:
        layers = self._layers[word, segment]
        what, quantity, causes, remedies = _WORDS[word]
        first = min(layers, key=lambda layer: (layers[layer][0], layer))
        step, found, value = layers[first]
        more = f" and {len(layers) - 1} more" if len(layers) > 1 else ""
        collapsed = word == "collapsed"
        return self.finding(
            step, f"The histogram of {first}{more} {what} since step {step} ({quantity} {value:.3g}).", key=word,
            severity="warning" if collapsed else "info", kind="vanishing" if collapsed else "spike", found=found,
            segment=segment, causes=list(causes), remedies=list(remedies), confidence=0.6 if collapsed else 0.3,
            evidence={quantity: value, "layers": list(layers)[:_MOST_NAMED], "count": len(layers)},
        )  # fmt: skip


RULES = (HistogramShape,)
