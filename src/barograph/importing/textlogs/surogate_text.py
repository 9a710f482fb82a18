"""Surogate's console.

In:   `:: step      10 [  0.2%] \\ loss 2.3010 | norm  1.2345 |  123.4k tps |   512 ms | sol 45.2 | eta 00h12m | phase`,
      with aux, imbal, util, hot, ent of experts and kd of distillation;
      `>> eval                      loss 2.1000 | gap +0.0123 |  130.0k tps |   900 ms`;
      `[G] step    10 [gpu  0] | power  312 W   | temp  61 / 90°C | clock 1980 MHz`.
Out:  the names as printed; tps in tokens a second; power in milliwatts as everywhere else; an evaluation has the
      step of the row before it.

tps is printed in thousands with one decimal, so it has that precision. `[%]` is the part of the epoch.
"""

from __future__ import annotations

from typing import Any, ClassVar

from barograph.core.patterns import expression
from barograph.importing.textlogs import engine, forms

_STEP = expression(
    rb"(?<![\w:]):: step\s+(\d{1,15}) \[\s*([\d.]+)%\][ \\/]+loss\s+(" + forms.NUMBER + rb") \| norm\s*[ !]\s*("
    + forms.NUMBER + rb") \|\s+(" + forms.NUMBER + rb")k tps \|\s+(\d+) ms(?=\s*(?:\||$))"
)  # fmt: skip
_EVAL = expression(
    rb">> eval\s+loss\s+(" + forms.NUMBER + rb")(?: \| gap\s+(" + forms.NUMBER + rb"))? \|\s+("
    + forms.NUMBER + rb")k tps \|\s+(\d+) ms\s*$"
)  # fmt: skip
_MORE = expression(rb"\| ([a-z]+)\s+(" + forms.NUMBER + rb")%?(?=\s*(?:\||$))")
GPU = expression(
    rb"\[G\] step\s+(\d{1,15}) \[gpu\s+(\d{1,4})\] \| power\s+(\d+) W\s+"
    rb"\| temp\s+(\d+) /\s*(\d+)\S{0,4}C \| clock\s+(\d+) MHz"
)


def _step(line: bytes) -> forms.Parsed | None:
    match = _STEP.search(line)
    if match is None:
        return None
    names: dict[str, Any] = {"loss": match[3], "norm": match[4], "tps": _thousands(match[5]), "ms": match[6]}
    for key, value in _MORE.findall(line, match.end()):
        names.setdefault(key.decode(), value)
    return match.start(), match[1], tuple(names), tuple(names.values()), True


def _eval(line: bytes) -> forms.Parsed | None:
    match = _EVAL.search(line)
    if match is None:
        return None
    names: dict[str, Any] = {"eval loss": match[1], "eval tps": _thousands(match[3]), "eval ms": match[4]}
    if match[2]:
        names["gap"] = match[2]
    return match.start(), None, tuple(names), tuple(names.values()), False


def read_gpu(line: bytes) -> forms.Parsed | None:
    """A device's line, which llmq prints too."""
    match = GPU.search(line)
    if match is None:
        return None
    device = f"gpu/{int(match[2])}"
    names = (f"{device}/power", f"{device}/temperature", f"{device}/clock")
    return match.start(), match[1], names, (float(match[3]) * 1000.0, match[4], match[6]), False


def _thousands(text: bytes) -> float:
    return round(float(text.replace(b",", b"")) * 1000.0, 3)


class SurogateText(engine.Dialect):
    kind = "surogate_text"
    about = "Surogate's console lines"
    hints = (b":: step ", b">> eval ", b"[G] step ")
    looks = expression(rb"(?<![\w:]):: step\s+\d+ \[|^>> eval\s+loss")
    shapes = (forms.Lines(_step), forms.Lines(_eval), forms.Lines(read_gpu))
    closers = (b" ms",)
    clock: ClassVar[engine.Clock] = {"ms": ("duration", 1e3)}
    aliases: ClassVar[engine.Aliases] = {
        "loss": "train/loss",
        "norm": "train/norm",
        "tps": "train/tokens_per_second",
        "ms": "train/duration_ms",
        "sol": "train/sol_percent",
        "kd": "train/kd_loss",
        "aux": "moe/aux_loss",
        "imbal": "moe/load_imbalance",
        "util": "moe/expert_utilization",
        "hot": "moe/max_expert_fraction",
        "ent": "moe/router_entropy",
        "eval loss": "eval/loss",
        "eval tps": "eval/tokens_per_second",
        "eval ms": "eval/duration_ms",
        "gap": "eval/gap",
    }


SOURCE = SurogateText()
