"""llmq's console.

In:   `[T] step   100 [ 2.0%] | time:   512 ms | norm   1.234000 | loss   2.301000 | tps 123k | sol 45.2%`,
      `[V] step   100 [ 2.0%] | time:   900 ms | eval   2.100000 | train   2.290000 | tps 140k`, `[G] step …`.
Out:  the names as printed; time in milliseconds (printed in seconds from 100 on), tps in tokens a second.
"""

from __future__ import annotations

from typing import Any, ClassVar

from barograph.core.patterns import expression
from barograph.importing.textlogs import engine, forms
from barograph.importing.textlogs.surogate_text import read_gpu

_STEP = expression(rb"(?<!\w)\[([TV])\] step\s+(\d{1,15}) \[\s*[\d.]+%\](?=\s*\|)")
_PAIR = expression(rb"\|\s*([a-z][\w ]{0,40}?):?\s{1,20}(" + forms.NUMBER + rb")\s?(ms|s|[kM])?%?(?=\s*(?:\||$))")
_FACTORS = {b"s": 1000.0, b"k": 1e3, b"M": 1e6}


def _step(line: bytes) -> forms.Parsed | None:
    match = _STEP.search(line)
    if match is None:
        return None
    names: dict[str, Any] = {}
    prefix = "" if match[1] == b"T" else "eval "
    for key, value, unit in _PAIR.findall(line, match.end()):
        name = key.decode()
        if prefix and name not in ("eval", "train"):
            name = prefix + name
        try:
            names[name] = float(value.replace(b",", b"")) * _FACTORS[unit] if unit in _FACTORS else value
        except ValueError:
            return None
    if not ({"loss", "eval"} & names.keys()):
        return None
    return match.start(), match[2], tuple(names), tuple(names.values()), match[1] == b"T"


class LlmqText(engine.Dialect):
    kind = "llmq_text"
    about = "llmq's console lines"
    hints = (b"[T] step ", b"[V] step ", b"[G] step ")
    looks = expression(rb"(?<!\w)\[[TV]\] step\s+\d+ \[")
    shapes = (forms.Lines(_step), forms.Lines(read_gpu))
    closers = (b"%",)
    clock: ClassVar[engine.Clock] = {"time": ("duration", 1e3)}
    aliases: ClassVar[engine.Aliases] = {
        "loss": "train/loss",
        "norm": "train/norm",
        "time": "train/duration_ms",
        "tps": "train/tokens_per_second",
        "sol": "train/sol_percent",
        "eval": "eval/loss",
        "train": "eval/train_loss",
        "eval time": "eval/duration_ms",
        "eval tps": "eval/tokens_per_second",
    }


SOURCE = LlmqText()
