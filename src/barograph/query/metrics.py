"""What a run's metrics have come to: which is better, which of them matter, their last and best values.

In:   names of metrics; stored runs.
Out:  directions; values by name. The page's rows, `barograph ls` and groups take them from here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from barograph.core import liveness
from barograph.core.heldout import HELD_OUT
from barograph.core.lazy import lazy
from barograph.core.roles import plays
from barograph.query.losses import RunLosses, told_beside, told_losses
from barograph.query.stored import StoredRun

if TYPE_CHECKING:
    import numpy
else:
    numpy = lazy("numpy")

MOST_METRICS = 40  # of which a row has the values
_BEST = 8  # series whose best value is looked for in the columns of a run that has ended
_LAST_FAMILIES = ("goodput", "energy", "host", "gpu", "allocator", "span", "sol", "data", "memory", "ranks", "model")
_RISING = re.compile(
    r".*(?:acc(?:uracy)?|reward|score|bleu|rouge|f1|exact_match|win_?rate|pass_?at|pass@|centered|core_metric|hellaswag"
    r"|mmlu|goodput|mfu|hfu|tokens_per_second|samples_per_second|utilization|correct)(?:[/_@.]?\w*)?",
    re.IGNORECASE,
)
_FALLING = re.compile(
    r".*(?:loss(?:es)?|perplexity|ppl|bpb|bpc|nll|bits_per_\w+|error|wer|cer|norm|duration_ms|_seconds|step_ms|mse|mae|rmse)"
    r"(?:[/_.]\w*)?",
    re.IGNORECASE,
)
_EVALUATED = re.compile(rf"(?:.*[/_. ])?(?:{HELD_OUT}|core)(?:[/_. ].*)?", re.IGNORECASE)


NONE_TOLD = RunLosses()


def direction(metric: str, told: RunLosses = NONE_TOLD) -> int:
    """1 if larger is better, −1 if smaller is, 0 if the name does not tell. told: losses that their rows tell."""
    if metric in told.training or metric in told.evaluations:
        return -1
    if _FALLING.fullmatch(metric):
        return -1
    if _RISING.fullmatch(metric):
        return 1
    return -1 if plays("loss", metric) or plays("eval_loss", metric) else 0


def is_evaluation(metric: str) -> bool:
    """Whether a metric is measured on data held out."""
    return _EVALUATED.fullmatch(metric) is not None and not metric.lower().startswith("train")


@lru_cache(maxsize=1 << 14)
def interest(name: str) -> tuple[int, int, str]:
    """The order in a row: losses, evaluations, norm, learning rate, speed, then the rest."""
    family, _, leaf = name.rpartition("/")
    if plays("loss", name):
        place = 0
    elif plays("eval_loss", name):
        place = 1
    elif "loss" in leaf:
        place = 2
    elif is_evaluation(name):
        place = 3
    elif leaf in ("norm", "grad_norm", "grad_norm_before"):
        place = 4
    elif leaf in ("lr", "learning_rate"):
        place = 5
    elif leaf in ("tokens_per_second", "mfu", "samples_per_second", "step_ms", "duration_ms"):
        place = 6
    elif family.split("/")[0] in _LAST_FAMILIES:
        place = 8
    else:
        place = 7
    return name.count("/") > 1, place, name


def by_interest(names: Iterable[str], told: RunLosses = NONE_TOLD) -> list[str]:
    """Names in the order of a row, in which losses that their rows tell stand where others do."""
    places = {name: (False, place, name) for place, some in enumerate(told) for name in some}
    return sorted(names, key=lambda name: places.get(name) or interest(name)) if places else sorted(names, key=interest)


def chosen(values: Mapping[str, Any], told: RunLosses = NONE_TOLD) -> dict[str, Any]:
    """The values that a row has room for, the interesting ones first. NaN and infinities may be words, as in JSON."""
    plain = {name: value for name, value in values.items() if name != "step" and _is_number(value)}
    return {name: plain[name] for name in by_interest(plain, told)[:MOST_METRICS]}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or value in ("NaN", "Infinity", "-Infinity")


def last_values(run: StoredRun) -> dict[str, float]:
    """The last value of each metric: as the run's end recorded them, else from the columns."""
    final = run.manifest.get("final_metrics")
    values = {}
    if isinstance(final, Mapping) and run.status not in liveness.OPEN:
        values = chosen(final, told_beside(run, final))
    return {name: float(value) for name, value in values.items()} or read_last_values(run)[0]


def read_last_values(run: StoredRun) -> tuple[dict[str, float], int | None]:
    """Last values, and the last step, from the columns of a run: it was killed, or recorded no end."""
    every = run.names()
    told = told_losses(run, every)
    names = by_interest((name for name in every if name.count("/") < 2), told)[:MOST_METRICS]
    found: dict[str, float] = {}
    last: int | None = None
    for name, (step, moment, value, _, _) in run.points_of(names):
        newest = int(numpy.lexsort((moment, step))[-1])
        found[name] = float(value[newest])
        last = max(int(step[newest]), last or 0)
    return found, last


def best_names(names: Iterable[str], told: RunLosses = NONE_TOLD) -> list[str]:
    """The metrics whose best value a row has."""
    own = {*told.training, *told.evaluations}
    return [name for name in names if name in own or (direction(name) and interest(name)[1] < 7)][:_BEST]


def best_values(run: StoredRun, names: Iterable[str], told: RunLosses = NONE_TOLD) -> dict[str, float]:
    """The lowest or highest finite value on the live branch of metrics of which it is known which is better."""
    result = {}
    for name, (_, _, values, _, _) in run.points_of([name for name in names if direction(name, told)]):
        values = values[numpy.isfinite(values)]
        if len(values):
            result[name] = float(values.max() if direction(name, told) > 0 else values.min())
    return result
