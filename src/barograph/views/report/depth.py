"""The model from inside: statistics of layers as heat maps over depth and steps, the experts' loads.

In:   the subject of a report.
Out:  a section.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from barograph.views.draw.heat import HeatMap
from barograph.views.inside import block_of, in_depth
from barograph.views.report import figures
from barograph.views.report.content import Block, Chart, Heat, Section, Sentence, say, section
from barograph.views.report.learning import of_series
from barograph.views.report.subject import LOWEST, Subject

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MOST_HEATS = 8
MOST_ROWS = 128
_LIKELY = (
    (("gradients", "norm"), "Gradient norm by layer"),
    (("updates", "ratio"), "Update over weight, by layer"),
    (("weights", "norm"), "Weight norm by layer"),
    (("activations", "rms"), "Activation RMS by layer"),
    (("activations", "max"), "Largest activation by layer"),
    (("activations", "attention_logit_max"), "Largest attention logit by layer"),
    (("activations", "attention_entropy"), "Attention entropy by layer"),
    (("activations", "dead"), "Dead units by layer"),
    (("spectral", "norm"), "Spectral norm by layer"),
    (("moe", "load"), "Load of each expert"),
)
_MIXTURE = (
    ("moe/aux_loss", "Auxiliary loss of the router"),
    ("moe/load_imbalance", "Load imbalance of the experts"),
    ("moe/expert_utilization", "Share of experts in use"),
)
# not one for a heat map: counts of what should not be, and quantiles
_DULL = re.compile(r"nan|inf|zeros|mean|min|p\d+|non_finite|weight_norm|lr_ratio|step_mean|step_max|below_eps")


def depth(subject: Subject) -> Section | None:
    """Layers over steps."""
    found = subject.layered
    order = [(key, title) for key, title in _LIKELY if key in found]
    order += [
        (key, f"{key[0]}/…/{key[1]}")
        for key in sorted(found, key=lambda key: (-len(found[key]), key))
        if key not in dict(_LIKELY) and not _DULL.fullmatch(key[1]) and len(found[key]) > 3
    ]
    blocks: list[Block | None] = []
    for number, (key, title) in enumerate(order[:MOST_HEATS]):
        blocks.append(_heat(subject, f"layers-{number}", key, title))
    mixture = [(name, title) for name, title in _MIXTURE if subject.first_of((name,))]
    blocks += [
        Chart(name.replace("/", "-"), title, tuple(of_series(subject.series, name)), families=("moe",))
        for name, title in mixture
    ]
    if not any(blocks):
        return None
    left = sum(len(layers) for layers in found.values())
    shown = sum(len(found[key]) for key, _ in order[:MOST_HEATS])
    if left > shown:
        whole, drawn = figures.count(left, "series of layers", "series of layer"), figures.count(shown, "heat maps")
        blocks.append(say("{drawn} of {whole} are drawn here; `barograph show` lists all.", "dim",
                          drawn=drawn, whole=whole))  # fmt: skip
    return section("layers", "Inside the model", blocks)


def _heat(subject: Subject, slug: str, key: tuple[str, str], title: str) -> Heat | None:
    layers = subject.layered[key]
    names = in_depth(layers)
    lowest = bool(LOWEST.fullmatch(key[1]))
    rows = [subject.cells(layers[name]) for name in names]
    labels = names
    said: list[Sentence] = []
    if len(names) > MOST_ROWS:
        labels, rows = _by_block(names, rows, lowest)
        one = figures.count(len(names), "series"), figures.count(len(labels), "rows")
        said.append(say("{layers} layers are merged into {rows} rows, a block each.", "dim",
                        layers=one[0], rows=one[1]))  # fmt: skip
    if len(labels) > MOST_ROWS:
        half = MOST_ROWS // 2
        left = figures.count(len(labels) - MOST_ROWS, "rows")
        said.append(say("{left} rows in the middle are left out.", "dim", left=left))
        labels, rows = [*labels[:half], *labels[-half:]], [*rows[:half], *rows[-half:]]
    values = np.array([row[0] for row in rows])
    odd = np.array([row[1] for row in rows])
    edges = subject.edges
    filled = np.isfinite(values).any(axis=0) | odd.any(axis=0)
    if not filled.any():
        return None
    if not filled.all():
        values, odd, edges = _widened(values, odd, edges, filled, lowest)
    positive = values[values > 0]
    finite = values[np.isfinite(values)]
    log = len(positive) > 0.9 * len(finite) and len(positive) > 0 and float(positive.max() / positive.min()) > 8
    said = [*_extremes(key, labels, values, odd, edges, lowest), *said]
    how = "least" if lowest else "largest"
    return Heat(slug, HeatMap(title, tuple(labels), edges, values, odd, log), how, tuple(said))


def _by_block(
    names: list[str], rows: list[tuple[Floats, NDArray[np.bool_]]], lowest: bool
) -> tuple[list[str], list[tuple[Floats, NDArray[np.bool_]]]]:
    joined: dict[str, tuple[Floats, NDArray[np.bool_]]] = {}
    pick = np.fmin if lowest else np.fmax
    for name, (values, odd) in zip(names, rows, strict=True):
        block = name.partition(" · ")[0] if " · " in name else block_of(name)
        if block in joined:
            joined[block] = (pick(joined[block][0], values), joined[block][1] | odd)
        else:
            joined[block] = (values, odd)
    return list(joined), list(joined.values())


def _widened(
    values: Floats, odd: NDArray[np.bool_], edges: Floats, filled: NDArray[np.bool_], lowest: bool
) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """Cells between two looks join the one before them: a look stands for the steps up to the next."""
    starts = np.flatnonzero(filled)
    if starts[0] > 0:
        starts[0] = 0  # what was looked at late is drawn from the beginning of its cell on
    pick = np.fmin if lowest else np.fmax
    with np.errstate(invalid="ignore"):
        joined = pick.reduceat(values, starts, axis=1)
    return joined, np.logical_or.reduceat(odd, starts, axis=1), np.append(edges[starts], edges[-1])


def _extremes(
    key: tuple[str, str], labels: list[str], values: Floats, odd: NDArray[np.bool_], edges: Floats, lowest: bool
) -> Iterator[Sentence]:
    source = f"{key[0]}/…/{key[1]}"
    if np.isfinite(values).any():
        place = int(np.nanargmin(values) if lowest else np.nanargmax(values))
        row, column = np.unravel_index(place, values.shape)
        yield say("{which}: {value}, in {layer}, near step {step}.",
                  which=figures.word("Least" if lowest else "Largest", source),
                  value=figures.number(float(values[row, column]), source),
                  layer=figures.word(labels[row], source, 100),
                  step=figures.count(edges[column], source))  # fmt: skip
    if odd.any():
        count = figures.count(int(odd.any(axis=1).sum()), source, "row")
        first = figures.count(edges[int(np.flatnonzero(odd.any(axis=0))[0])], source)
        yield say(
            "{count} had values that are not finite, from about step {first} on.", "bad", count=count, first=first
        )
