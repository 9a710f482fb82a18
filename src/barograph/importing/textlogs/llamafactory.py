"""LLaMA-Factory's `trainer_log.jsonl`.

In:   `{"current_steps": 10, "total_steps": 8660, "loss": 2.7, "lr": 1e-6, "epoch": 0.005, "percentage": 0.12,
      "elapsed_time": "0:00:23", "remaining_time": "5:41:14", "throughput": 0.0, "total_tokens": 0}`
Out:  the names as they are; elapsed_time in seconds. A throughput of 0 and 0 tokens mean "not measured" and
      are left out.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from barograph.core.patterns import expression
from barograph.importing.textlogs import engine, forms

_TIME = expression(r"^(?:(\d{1,9}) days?, )?(\d{1,9}):(\d\d):(\d\d)")


def _row(line: bytes) -> forms.Parsed | None:
    start = line.find(b'{"current_steps"')
    if start < 0:
        start = line.find(b"{")
    try:
        entry = json.loads(line[start:])
        step = entry["current_steps"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(step, int) or not 0 <= step < 10**15:
        return None
    names: dict[str, Any] = {}
    for name, value in entry.items():
        if name in ("current_steps", "total_steps", "remaining_time", "percentage"):
            continue
        if name == "elapsed_time" and isinstance(value, str) and (match := _TIME.match(value)):
            days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
            value = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                continue
        if isinstance(value, (int, float)) and not (value == 0 and name in ("throughput", "total_tokens")):
            names[str(name)] = float(value) if abs(value) < 1e300 else value
    if not names:
        return None
    main = not any(name.startswith(("eval_", "predict_")) for name in names)
    return start, step, tuple(names), tuple(names.values()), main


class LlamaFactory(engine.Dialect):
    kind = "llamafactory"
    about = "LLaMA-Factory's trainer_log.jsonl"
    hints = (b'"current_steps"',)
    looks = expression(rb'"current_steps": ?\d')
    shapes = (forms.Lines(_row),)
    closers = (b"}",)
    aliases: ClassVar[engine.Aliases] = {
        "loss": "train/loss",
        "learning_rate": "train/lr",
        "lr": "train/lr",
        "epoch": "train/epoch",
        "elapsed_time": "train/elapsed_seconds",
        "throughput": "train/tokens_per_second",
        "total_tokens": "data/tokens_seen",
        "eval_loss": "eval/loss",
        "accuracy": "train/accuracy",
        "reward": "train/reward",
    }


SOURCE = LlamaFactory()
