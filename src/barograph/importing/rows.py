"""Rows of numbers as records of the log file.

In:   named columns, by canonical names.
Out:  `step`, `eval` and `metrics` records whose numbers have the same names again; derived columns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy
from numpy.typing import NDArray

from barograph.core.record import Record
from barograph.core.roles import logarithm_of

MOST_STEP = 2**63 - 1  # steps and times are kept in 64 bits
_LOSS = re.compile(r"(?i)loss|nll|x_?ent|cross_?entropy|bpb|log_perplexity")
_THROUGHPUT = (("train/tokens_per_second", "train/step_tokens"), ("eval/tokens_per_second", "eval/eval_tokens"))


def records_of(
    names: tuple[str, ...], steps: NDArray[Any], times: NDArray[Any], values: NDArray[Any]
) -> Iterator[Record]:
    """A record for each row and family of names: `train/…` is a step, `eval/…` an evaluation, the rest metrics.

    names: n; steps, times: m; values: m × n.
    """
    families: dict[str, list[tuple[str, int]]] = {}
    for column, name in enumerate(names):
        family, _, rest = name.partition("/")
        kind = {"train": "step", "eval": "eval"}.get(family, "metrics") if rest else "metrics"
        # a step's field moe_… would become another series
        if kind == "step" and rest.startswith("moe_"):
            kind = "metrics"
        families.setdefault(kind, []).append((rest if kind != "metrics" else name, column))
    for step, time, row in zip(steps.tolist(), times.tolist(), values.tolist(), strict=True):
        for kind, fields in families.items():
            yield Record(kind, time, step, {name: row[column] for name, column in fields})


def real(value: float) -> float:
    """A number as a float; a whole number beyond 1e308 is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def table(rows: Sequence[Sequence[float]]) -> NDArray[numpy.float64]:
    """Rows of equally many numbers as an array, m × n."""
    try:
        return numpy.array(rows, numpy.float64)
    except OverflowError:
        return numpy.array([[real(value) for value in row] for row in rows], numpy.float64)


def derive(names: tuple[str, ...], values: NDArray[Any]) -> tuple[tuple[str, ...], NDArray[Any]]:
    """The columns, with the throughput that a record of them would have, tokens / duration_ms × 1000, and the logarithm
    of a perplexity where no loss stands beside it."""
    for throughput, tokens in _THROUGHPUT:
        duration = f"{throughput.partition('/')[0]}/duration_ms"
        if throughput in names or tokens not in names or duration not in names:
            continue
        took = values[:, names.index(duration)]
        with numpy.errstate(divide="ignore", invalid="ignore"):
            made = values[:, names.index(tokens)] / took * 1000.0
        if bool((took > 0).all()):  # else some rows have none: those records derive it themselves
            names, values = (*names, throughput), numpy.column_stack([values, made])
    if not any(map(_LOSS.search, names)):
        for at, name in enumerate(names):
            column = values[:, at]
            if (logged := logarithm_of(name)) and not (column <= 0).any():
                names, values = (*names, logged), numpy.column_stack([values, numpy.log(column)])
    return names, values
