"""DeepSpeed's own lines, for training scripts that print none.

In:   `[Rank 0] step=10, skipped=0, lr=[1e-05, 1e-05], mom=[(0.9, 0.999)]`,
      `steps: 10 loss: 2.3010 iter time (s): 0.512 samples/sec: 125.0` (pipelines),
      `epoch=0/micro_step=100/global_step=10, RunningAvgSamplesPerSec=4.1, CurrSamplesPerSec=4.2, …`,
      `time (ms) | fwd_microstep: 71.12 | bwd_microstep: 140.93 | …`,
      `OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768`, and between them the script's
      own `step 10: loss = 2.3`.
Out:  the names as printed; lr is the first parameter group's, `lr[1]` … the others'.
"""

from __future__ import annotations

from typing import Any, ClassVar

from barograph.core.patterns import expression
from barograph.importing.textlogs import engine, forms

_STEP = expression(rb"(?<![\w./])step=(\d{1,15}), skipped=(\d+), lr=\[([^\]]*)\], mom=\[")
_TIMES = expression(rb"(?<![\w.])time \(ms\) \| (?=\w+: )")
_TIME = expression(rb"(?<!\w)(\w{1,60}): (" + forms.NUMBER + rb")(?=\s*(?:\||$))")
_LIST = expression(forms.NUMBER)


def _step(line: bytes) -> forms.Parsed | None:
    match = _STEP.search(line)
    if match is None:
        return None
    rates = _LIST.findall(match[3].replace(b", ", b" "))
    names: dict[str, Any] = {"skipped": match[2]}
    for index, rate in enumerate(rates[:64]):
        names[f"lr[{index}]" if index else "lr"] = rate
    return match.start(), match[1], tuple(names), tuple(names.values()), True


def _times(line: bytes) -> forms.Parsed | None:
    match = _TIMES.search(line)
    parts = dict(_TIME.findall(line, match.end())) if match else {}
    if match is None or not parts:
        return None
    return match.start(), None, tuple(f"time (ms)/{name.decode()}" for name in parts), tuple(parts.values()), False


class DeepSpeed(engine.Dialect):
    kind = "deepspeed"
    about = "DeepSpeed's own lines"
    hints = (b"skipped=", b"steps: ", b"global_step=", b"time (ms) | ", b"loss scale: ", b"oss")
    looks = expression(rb"(?<![\w./])(?:step=\d+, skipped=|steps: \d+ loss: |global_step=\d+, RunningAvg)")
    shapes = (
        forms.Lines(_step),
        forms.pairs(
            rb"(?<![\w./])steps: (\d{1,15}) (?=loss: )",
            rb"([A-Za-z][\w /()]{0,60}?): (" + forms.NUMBER + rb")(?=\s|$)",
        ),
        forms.pairs(
            rb"(?<![\w.])(?:epoch=\d+/micro_step=\d+/)?global_step=(\d{1,15}), ",
            rb"(?<!\w)(\w{1,60})=(" + forms.NUMBER + rb")(?:GB)?(?=\s*(?:,|$))",
        ),
        forms.Lines(_times),
        forms.Form(
            rb"OVERFLOW! Rank \d+ Skipping step\. Attempted loss scale: [\d.]+, reducing to ([\d.]+)",
            ("loss_scale",),
            main=False,
        ),
        forms.Form(
            rb"(?<![\w./])(?i:(?:global[_ ]?)?step)[\s:=]{1,3}(\d{1,15})(?![\d.])[^\n]{0,80}?"
            rb"(?<!\w)(?i:loss)[\s:=]{1,3}(" + forms.NUMBER + rb")(?![\w/])",
            ("step", "loss"),
            main=False,
        ),
    )
    clock: ClassVar[engine.Clock] = {"iter time (s)": ("duration", 1e6)}
    aliases: ClassVar[engine.Aliases] = {
        "lr": "train/lr",
        "loss_scale": "train/loss_scale",
        "skipped": "train/skipped_steps",
        "loss": "train/loss",
        "lm loss": "train/lm_loss",
        "iter time (s)": ("train/duration_ms", 1000.0),
        "samples/sec": "train/samples_per_second",
        "CurrSamplesPerSec": "train/samples_per_second",
        "RunningAvgSamplesPerSec": "train/mean_samples_per_second",
        "MemAllocated": "memory/allocated_gb",
        "MaxMemAllocated": "memory/peak_allocated_gb",
    }

    def rows_in(self, text: bytes) -> tuple[int, int]:
        """A script's own lines count only beside DeepSpeed's."""
        return super().rows_in(text) if self.looks.search(text) or b"time (ms) | " in text else (0, 0)


SOURCE = DeepSpeed()
