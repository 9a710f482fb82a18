"""torchtitan: coloured metrics in their versions, validation, and the table of losses it compares runs by.

In:   `[titan] 2025-01-01 12:00:00,123 - root - INFO - step:  1  loss: 12.2683  grad_norm:  1.2345
      memory: 40.45GiB(42.57%)  tps: 1,234  tflops: 12.34  mfu: 1.25%`, with wps in older versions;
      `validate step:  10  loss: 4.2  …`; `17 3.0181124210357666`.
Out:  the names as printed; memory in GiB and `memory(%)`; "validate" before those of validation.

tps (older: wps) is tokens a second of one device.
"""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

from barograph.core.patterns import expression
from barograph.importing.textlogs import engine, forms

_STEP = expression(rb"(?<![\w./:])(validate )?step:\s+(\d{1,15})\s+(?=[a-z_]+:)")
_PAIR = expression(
    rb"(?<![\w/])([a-z][\w/]{0,60}(?:\([^)\s]{1,12}\))?):\s*("
    + forms.NUMBER
    + rb")(?:GiB|MiB|%|s)?(?:\(("
    + forms.NUMBER
    + rb")%\))?(?=\s|$)"
)
_TABLE = expression(rb"^(\d{1,12}) (-?\d+\.\d+(?:[eE][-+]\d+)?|nan|inf)$")


def _step(line: bytes) -> forms.Parsed | None:
    match = _STEP.search(line)
    if match is None:
        return None
    names: dict[str, Any] = {}
    prefix = "validate " if match[1] else ""
    for key, value, percent in _PAIR.findall(line, match.end()):
        name = prefix + key.decode()
        names[name] = value
        if percent:
            names[f"{name}(%)"] = percent
    if not names or not any("loss" in name for name in names):
        return None
    return match.start(), match[2], tuple(names), tuple(names.values()), not prefix


def _table(line: bytes) -> forms.Parsed | None:
    match = _TABLE.match(line)
    return (0, match[1], ("loss",), (match[2],), True) if match else None


class Torchtitan(engine.Dialect):
    kind = "torchtitan"
    about = "torchtitan's metrics and its tables of losses"
    hints = (b"step: ", b".")
    looks = expression(rb"(?<![\w./:])(?:validate )?step:\s+\d+\s+loss:")
    shapes = (forms.Lines(_step), forms.Lines(_table))
    begins = (b"Starting job: ",)
    closers = (b"%",)
    aliases: ClassVar[engine.Aliases] = {
        "loss": "train/loss",
        "grad_norm": "train/norm",
        "lr": "train/lr",
        "tps": "train/tokens_per_second_per_device",
        "wps": "train/tokens_per_second_per_device",
        "tflops": "train/tflops_per_device",
        "mfu": ("train/mfu", 0.01),
        "memory": "memory/peak_reserved_gib",
        "memory(%)": "memory/peak_reserved_percent",
        "validate loss": "eval/loss",
        "validate memory": "eval/memory_gib",
        "validate memory(%)": "eval/memory_percent",
        "validate tps": "eval/tokens_per_second_per_device",
    }

    def candidates(self, lines: list[bytes]) -> list[int]:
        return [index for index, line in enumerate(lines) if b"step: " in line or (b"." in line and len(line) < 40)]

    def rows_in(self, text: bytes) -> tuple[int, int]:
        """A table counts only if nothing else is in it: two numbers a line are nobody's own."""
        if b"step: " in text:
            return super().rows_in(text)
        lines_ = [line.rstrip(b"\r") for line in text.split(b"\n")[:-1]]
        if len(lines_) >= 3 and all(map(_TABLE.match, lines_)):
            steps = [int(line.split()[0]) for line in lines_]
            if all(a < b for a, b in itertools.pairwise(steps)):
                return len(lines_), len(lines_)
        return 0, 0


SOURCE = Torchtitan()
