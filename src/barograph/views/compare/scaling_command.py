"""The command `barograph scaling`.

In:   runs as typed, what to predict.
Out:  the law on the terminal, or JSON; an exit code.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from functools import partial

from barograph.analysis.scaling.fit import fit_scaling
from barograph.core.record import json_text
from barograph.query.filters import matches, parse
from barograph.query.folders import runs_folder
from barograph.views.compare.scaling_page import optimum_lines, page, prediction_lines


def run_scaling(
    paths: Sequence[str],
    *,
    dir: str | None = None,
    metric: str | None = None,
    parameters: str | None = None,
    condition: str | None = None,
    predict: Sequence[str] = (),
    budget: Sequence[str] = (),
    level: float = 0.95,
    anyway: bool = False,
    as_json: bool = False,
) -> int:
    """Fit the law and print it with what was asked to be predicted; returns the exit code 0.

    paths: without any, the folder of runs. condition: a filter that runs must meet. predict: texts such as
    `7e9,2e12`, or `7B,2T`: N and D. budget: texts such as `1e22`, FLOPs. The rest is as in `scaling.fit`. Raises
    KeyError, ValueError and OSError with one sentence.
    """
    places = [_pair(item) for item in predict]
    budgets = [amount(item, "--budget") for item in budget]
    keep = partial(matches, parse(condition)) if condition else None
    paths = paths or [str(runs_folder(dir or None))]
    scaling = fit_scaling(*paths, dir=dir, metric=metric, parameters=parameters, keep=keep, level=level, anyway=anyway)
    predictions = [scaling.predict(*place) for place in places]
    optima = [scaling.optimal(budget) for budget in budgets]
    if as_json:
        told = scaling.as_dict()
        told["predictions"] = [prediction.as_dict() for prediction in predictions]
        told["optima"] = [item.as_dict() for item in optima]
        print(json_text(told))
        return 0

    columns = min(120, shutil.get_terminal_size((100, 24)).columns)
    lines = [line for prediction in predictions for line in prediction_lines(prediction, scaling, columns)]
    lines += [line for item in optima for line in optimum_lines(item, scaling, columns)]
    print(page(scaling, columns) + ("\n\n" + "\n".join(lines) if lines else ""))
    return 0


_LETTERS = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


def amount(word: str, option: str) -> float:
    """A number as people write it: 7e9, 7B, 124M, 1.5k. Raises ValueError naming the option."""
    text = word.strip().lower().replace("_", "")
    factor = _LETTERS.get(text[-1:], 1.0)
    try:
        value = float(text[:-1] if text[-1:] in _LETTERS else text) * factor
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{option} {word} is not a number above 0; write it as 7e9 or 7B")
    return value


def _pair(word: str) -> tuple[float, float]:
    parts = word.split(",")
    if len(parts) != 2:
        raise ValueError(f"--predict {word} is not N,D; write parameters and tokens as 7e9,2e12 or 7B,2T")
    return amount(parts[0], "--predict"), amount(parts[1], "--predict")
