"""Which column of a table is the step, which the time, which the name; and what a cell says.

In:   the names of columns, cells as text or JSON values.
Out:  the columns that are not metrics, numbers, times in microseconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from barograph.core.aliases import normal
from barograph.core.record import parse_time

# In the order in which they are chosen; what they count.
_STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("step", (
        "step", "global_step", "_step", "train/global_step", "trainer/global_step", "iteration", "iter", "it", "iters",
        "iterations", "n_iter", "steps", "current_steps", "train_step", "training_step", "global_steps", "update",
        "num_updates", "updates", "train/step", "step_num", "batch_idx", "batch", "optimizer_step", "total_timesteps",
        "num_timesteps", "timesteps", "timestep", "env_steps", "time/total_timesteps",
    )),
    ("samples", ("samples", "consumed_samples", "n_samples", "num_samples", "samples_seen", "examples")),
    ("tokens", ("tokens", "consumed_tokens", "tokens_seen", "n_tokens", "num_tokens", "total_tokens", "train/tokens")),
    ("epoch", ("epoch", "epochs", "_epoch", "epoch_num", "epoch_idx")),
    ("episode", ("episode", "episodes", "episode_num", "episode_idx", "n_episodes")),
    ("step", ("generation",)),
)  # fmt: skip
_WRAPPERS = frozenset(("fields", "data", "payload", "jsonpayload", "extra", "record", "body", "attributes", "params"))
_TIMES = (
    "_timestamp", "timestamp", "wall_time", "walltime", "datetime", "date_time", "time", "date", "created_at", "ts",
    "logged_at", "_wall_time",
)  # fmt: skip
_NAMES = ("name", "metric", "tag", "metric_name", "key", "variable", "series")
_VALUES = ("value", "metric_value", "val", "scalar", "y")
_SPLITS = ("split", "phase", "mode", "set", "stage", "subset", "type", "event", "kind", "dataset", "log_type")
# Words of a split column, and the family that a loss of such rows belongs to.
SPLITS = {
    "train": "train", "training": "train", "val": "eval", "valid": "eval", "validation": "eval", "eval": "eval",
    "evaluation": "eval", "dev": "eval", "test": "test", "testing": "test",
}  # fmt: skip
_TRAINING = {name: ("train", "eval") for name in ("train", "training", "is_train", "is_training", "training_phase")} | {
    name: ("eval", "train") for name in ("is_val", "is_valid", "is_validation", "is_eval")
}  # columns of True and False → what each of these says
MISSING = frozenset({"", "none", "null", "na", "n/a", "-", "--", "<na>", "no log"})
_NOT_FINITE = {
    "nan": math.nan, "inf": math.inf, "+inf": math.inf, "-inf": -math.inf, "infinity": math.inf, "-infinity": -math.inf,
    "+infinity": math.inf, "-nan": math.nan, "1.#qnan": math.nan, "1.#inf": math.inf, "-1.#inf": -math.inf,
}  # fmt: skip
_WORDS = {"true": 1.0, "false": 0.0}
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_COMMA = re.compile(r"[+-]?\d+,\d+(e[+-]?\d+)?", re.IGNORECASE)
_TENSOR = re.compile(r"tensor\(\s*([^\s,()\[\]]+)\s*[,)].*")


class ImportAxes(NamedTuple):
    """Which columns a table's rows are placed by; None where there is none.

    x: what the step column counts; "row" where rows are counted because nothing else is.
    name, value: of a table with a row a point. split: a column that tells training from evaluation.
    """

    step: str | None
    x: str
    time: str | None
    name: str | None
    value: str | None
    split: str | None


def choose(columns: Iterable[str], rows: list[dict[str, Any]]) -> ImportAxes:
    """The axes of a table by its columns' names and its first rows (cells as text or JSON values)."""
    known: dict[str, str] = {}
    for column in columns:
        known.setdefault(normal(column), column)
    within = {name.rpartition("/")[2]: column for name, column in known.items() if name.partition("/")[0] in _WRAPPERS}
    step, x = next(
        (
            (place[name], x)
            for place in (known, within)  # rows with an object for their figures
            for x, names in _STEPS
            for name in names
            if name in place and _counts(place[name], rows)
        ),
        (None, "row"),
    )
    if step is not None and x == "step" and (higher := _counted_within(step, known, rows)) is not None:
        step, x = higher
    every = within | known
    time = next((every[name] for name in _TIMES if name in every and _is_time(every[name], rows)), None)
    name, value = (next((every[word] for word in words if word in every), None) for words in (_NAMES, _VALUES))
    if name is None or value is None or name == value or not _are_words(name, rows):
        name = value = None
    splits = _SPLITS if value is not None else (*_SPLITS, *_NAMES)
    split = next((known[item] for item in splits if item in known and _splits(known[item], rows)), None)
    if split is None:
        split = next((known[item] for item in _TRAINING if item in known and _says_whether(known[item], rows)), None)
    return ImportAxes(step, x, time, name, value, split)


def _cells(column: str, rows: list[dict[str, Any]]) -> list[Any]:
    cells = [row[column] for row in rows if row.get(column) is not None]
    return [cell for cell in cells if not (isinstance(cell, str) and cell.strip().lower() in MISSING)]


def _counts(column: str, rows: list[dict[str, Any]]) -> bool:
    """Whether a column holds whole numbers from 0, but for some that are damaged, and in more than a few rows."""
    cells = _cells(column, rows)
    whole = [number(cell) for cell in cells]
    good = sum(1 for item in whole if item is not None and item >= 0 and item == item // 1)
    if normal(column) == "batch" and len({*whole}) < 2:
        return False  # the size of a batch
    return bool(good) and good > 0.5 * len(cells) and (len(cells) >= 0.5 * len(rows) or len(cells) > 1)


def _counted_within(step: str, known: dict[str, str], rows: list[dict[str, Any]]) -> tuple[str, str] | None:
    """The column of epochs or episodes, and what it counts, where the column of steps says how many each of them had:
    it is the same in all rows, or one number for each of two sets by turns, and the other grows."""
    counts = [number(cell) for cell in _cells(step, rows)]
    by_turns = len(counts) >= 4 and counts[2:] == counts[:-2]
    if not by_turns and (len(counts) < 2 or len({*counts}) > 1):
        return None
    for x, names in _STEPS:
        for column in (known[name] for name in names if name in known and x in ("epoch", "episode")):
            others = [value for cell in _cells(column, rows) if (value := number(cell)) is not None]
            if len(others) == len(counts) and others == sorted(others) and 2 * len({*others}) >= len(others):
                return column, x
    return None


def _is_time(column: str, rows: list[dict[str, Any]]) -> bool:
    cells = _cells(column, rows)
    return bool(cells) and sum(1 for cell in cells if moment(cell)) >= 0.9 * len(cells)


def _are_words(column: str, rows: list[dict[str, Any]]) -> bool:
    cells = _cells(column, rows)
    return bool(cells) and all(isinstance(cell, str) and number(cell) is None for cell in cells)


def _splits(column: str, rows: list[dict[str, Any]]) -> bool:
    cells = _cells(column, rows)
    words = sum(1 for cell in cells if isinstance(cell, str) and cell.strip().lower() in SPLITS)
    return bool(words) and words >= 0.5 * len(cells)


def _says_whether(column: str, rows: list[dict[str, Any]]) -> bool:
    """Whether a column says True in some rows and False in others."""
    return {str(cell).strip().lower() for cell in _cells(column, rows)} == {"true", "false"}


def family(column: str, cell: Any) -> str:
    """The family that a cell of a split column says, empty if it says none."""
    word = str(cell).strip().lower()
    if (said := _TRAINING.get(normal(column))) and word in ("true", "false"):
        return said[word == "false"]
    return SPLITS.get(word, "")


def number(cell: Any, comma: bool = False) -> float | None:
    """The number in a cell, None if there is none. comma: the decimal mark is a comma."""
    if isinstance(cell, (bool, int, float)):
        try:
            return float(cell)
        except OverflowError:
            return math.inf if cell > 0 else -math.inf
    if not isinstance(cell, str):
        return None
    text = cell.strip()
    if comma and _COMMA.fullmatch(text):
        text = text.replace(",", ".")
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        pass
    lower = text.lower()
    if lower in _NOT_FINITE or lower in _WORDS:
        return _NOT_FINITE.get(lower, _WORDS.get(lower))
    if text.endswith("%"):
        return number(text[:-1], comma)
    if not comma and _THOUSANDS.fullmatch(text):
        return float(text.replace(",", ""))
    if match := _TENSOR.fullmatch(text):
        return number(match[1])
    return None


def moment(cell: Any) -> int:
    """Microseconds since 1970 of a cell that is a time of day and date, 0 if it is not.

    Numbers count where they are seconds, milliseconds, microseconds or nanoseconds of the years 2001 to 2096.
    """
    value = number(cell)
    if value is not None:
        for scale in (1.0, 1e3, 1e6, 1e9):
            if 1e9 <= value / scale < 4e9:
                return round(value / scale * 1e6)
        return 0
    if not isinstance(cell, str) or len(cell) < 10:
        return 0
    return parse_time(cell.strip().removesuffix(" UTC").replace("/", "-", 2))


def moments(values: NDArray[numpy.float64]) -> NDArray[numpy.int64]:
    """`moment` of a column of numbers."""
    known = numpy.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    made = numpy.zeros(len(known), numpy.float64)
    for scale in (1.0, 1e3, 1e6, 1e9):
        fits = (known / scale >= 1e9) & (known / scale < 4e9)
        made[fits] = known[fits] / scale * 1e6
    return numpy.rint(made).astype(numpy.int64)
