"""Hugging Face's `trainer_state.json`: what the Trainer keeps beside its checkpoints.

In:   a `trainer_state.json`, or the output folder of a training with its `checkpoint-N` folders.
Out:  the log history as points; what the state says of the training as configuration.

The file is written anew at each save. Its history is compared with what was read before, so that only new
entries are added; where an old entry has changed, the training was resumed from an earlier step.

With `logging_nan_inf_filter`, which is on by default, the Trainer replaces a loss that is not finite by the
average of the losses before (transformers 5.23, training_args.py): that these logs have no NaN does not mean that there
was none. That is reported with every run; a history of which some losses are not finite was made without it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy

from barograph.importing.rows import MOST_STEP
from barograph.importing.source import Fact, FoundRun, ImportedPoints, ImportMark, Item, Restart, Unread

FILE = "trainer_state.json"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_ROWS = 8192
# What of the state describes the training; the rest is the history, or changes with each save.
_CONFIG = (
    "max_steps", "num_train_epochs", "train_batch_size", "logging_steps", "eval_steps", "save_steps", "trial_name",
    "num_input_tokens_seen", "total_flos", "best_metric", "best_model_checkpoint", "best_global_step",
)  # fmt: skip
_FILTERED = (
    "Losses as the Trainer logs them: with logging_nan_inf_filter, its default, a loss that is not finite is "
    "replaced by the average of those before it."
)


class HuggingFaceSource:
    kind = "huggingface"
    about = "Hugging Face Trainer's trainer_state.json, its checkpoints' too"
    rewrites = True  # each save writes the whole file; `read` finds out itself what is new

    def find(self, path: Path, head: bytes) -> list[FoundRun]:
        text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
        if not path.name.endswith(".json") or not text.startswith(b"{"):
            return []
        if path.name == FILE and any(key in text for key in (b'"log_history"', b'"best_model_checkpoint"')):
            folder = path.parent
            if _CHECKPOINT.fullmatch(folder.absolute().name):  # every checkpoint has the history up to its step
                folder = folder.absolute().parent
            return [FoundRun(self.kind, folder, FILE, folder.absolute().name)]
        if b'"log_history"' in text and b'"global_step"' in text:  # under another name
            return [FoundRun(self.kind, path, "", path.stem)]
        return []

    def read(self, run: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
        path = _newest(run.path) if run.path.is_dir() else run.path
        before: dict[str, Any] = since.state if since else {}
        state, why = _load(path) if path is not None else (None, "there is no trainer_state.json any more")
        if path is None or state is None:
            if before.get("unread") == why:  # told before
                yield ImportMark(before)
                return
            yield Unread(path or run.path, 0, "", why)
            yield ImportMark(before | {"unread": why})
            return
        history = [entry for entry in state.get("log_history") or () if isinstance(entry, dict)]
        chain, known = _chain(history), str(before.get("chain", ""))
        begin = _shared(chain, known)
        if begin == len(history) and known:  # nothing new: the same state, or one of before
            yield ImportMark(before)
            return
        if known and not begin:
            yield ImportMark({})  # another training
        elif 4 * begin < len(known):
            yield Restart(_step(history[begin]), 0)
        if not begin:
            yield from _facts(state, history)
        yield from _rows(path, history, begin)
        yield from _end(history, begin)
        yield ImportMark({"chain": chain})


def _newest(folder: Path) -> Path | None:
    """The state of the training in an output folder: its own, or that of the last checkpoint."""
    candidates = [folder / FILE] if (folder / FILE).is_file() else []
    try:
        for path in folder.iterdir():
            if _CHECKPOINT.fullmatch(path.name) and (path / FILE).is_file():
                candidates.append(path / FILE)
    except OSError:
        return None
    if len(candidates) == 1 and candidates[0].parent == folder:
        return candidates[0]

    def place(path: Path) -> tuple[float, float]:
        match = _CHECKPOINT.fullmatch(path.parent.name)
        return (float(match[1]) if match else math.inf, path.stat().st_mtime)

    try:
        return max(candidates, key=place, default=None)
    except OSError:
        return None


def _load(path: Path) -> tuple[dict[str, Any] | None, str]:
    """The state, or why there is none. Python's own writer leaves NaN and Infinity bare."""
    try:
        state = json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        return None, f"line {error.lineno}: not whole JSON ({error.msg}); the Trainer may be writing it now"
    except (OSError, ValueError, RecursionError) as error:
        return None, str(error)
    if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
        return None, "it has no log_history"
    return state, ""


def _chain(history: list[dict[str, Any]]) -> str:
    """Four letters an entry, of a digest of all entries up to it: where two histories part, so do their chains."""
    digest, chain = hashlib.sha256(), []
    for entry in history:
        digest.update(json.dumps(entry, sort_keys=True, default=str).encode())
        chain.append(digest.hexdigest()[:4])
    return "".join(chain)


def _shared(chain: str, before: str) -> int:
    """How many entries two histories have in common."""
    if before.startswith(chain) or chain.startswith(before):
        return min(len(chain), len(before)) // 4
    return next(at for at, (item, other) in enumerate(zip(chain, before, strict=False)) if item != other) // 4


def _step(entry: dict[str, Any]) -> int:
    """0 where there is none that 64 bits can hold."""
    step = entry.get("step")
    return int(step) if isinstance(step, (int, float)) and -MOST_STEP <= step < MOST_STEP else 0


def _facts(state: dict[str, Any], history: list[dict[str, Any]]) -> Iterator[Fact]:
    for name in _CONFIG:
        value = state.get(name)
        if isinstance(value, (bool, int, float, str)):
            yield Fact("option", 0, 0, {"name": name, "value": value})
    losses = [entry["loss"] for entry in history if isinstance(entry.get("loss"), float)]
    if losses and all(map(math.isfinite, losses)):
        yield Fact("info", 0, 0, {"type": "flag", "flag": "logging_nan_inf_filter", "message": _FILTERED})


def _end(history: list[dict[str, Any]], begin: int) -> Iterator[Fact]:
    """The Trainer's last entry tells how long the training took; it comes at the end alone."""
    for entry in history[begin:][-3:]:
        seconds = entry.get("train_runtime")
        if isinstance(seconds, (int, float)):
            yield Fact("end", _step(entry), 0, {"status": "finished", "wall_seconds": seconds})


def _rows(path: Path, history: list[dict[str, Any]], begin: int) -> Iterator[Item]:
    """Entries of the same names in one block; the step is the entry's own."""
    groups: dict[tuple[str, ...], tuple[list[int], list[list[float]]]] = {}
    for number, entry in enumerate(history[begin:], begin + 1):
        if not isinstance(entry.get("step"), (int, float)) or (entry["step"] and not _step(entry)):
            yield Unread(path, number, json.dumps(entry, default=str), "an entry of log_history without a step")
            continue
        named: dict[str, float] = {}
        for name, value in entry.items():
            if name == "step":
                continue
            if isinstance(value, (bool, int, float)):
                named[name] = float(value) if abs(value) < 1e300 or isinstance(value, float) else math.inf
            elif value is not None:
                shown = json.dumps({name: value}, default=str)
                yield Unread(path, number, shown, f"{name} of an entry of log_history is not a number")
        if not named:
            continue
        steps, values = groups.setdefault(tuple(named), ([], []))
        steps.append(_step(entry))
        values.append(list(named.values()))
        if len(steps) >= _ROWS:
            yield _block(tuple(named), *groups.pop(tuple(named)))
    for names, (steps, values) in groups.items():
        yield _block(names, steps, values)


def _block(names: tuple[str, ...], steps: list[int], values: list[list[float]]) -> ImportedPoints:
    whole = numpy.array(steps, numpy.int64)
    return ImportedPoints(names, whole, numpy.zeros(len(steps), numpy.int64), numpy.array(values, numpy.float64))


SOURCE = HuggingFaceSource()
