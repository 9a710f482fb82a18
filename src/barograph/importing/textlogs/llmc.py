"""llm.c: its log file and what it prints.

In:   `s:250 trl:5.8812 lr:0.000215 norm:1.05`, `s:250 tel:5.8954`, `s:250 eval:0.2463`;
      `step  343/19560 | loss 5.863029 (-1.51z)| norm 0.9487 (+0.34z)| lr 2.94e-04 | 4185.37 ms | 32.3% bf16 MFU |
      124693 tok/s`,
      `val loss 4.723455`, `HellaSwag: 2991/10042 = 0.297849`.
Out:  the names as printed (`ms`: of a step). A printed MFU of -100 or -1 means "unknown device" and is left out.

The log file counts steps from 0, the screen from 1: the same step is one less in the file.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from barograph.core.patterns import expression
from barograph.importing.textlogs import engine, forms

_MFU = rb"(?:-\d[\d.]*|([^\s%|]+))% [^|]*?MFU"


class LlmC(engine.Dialect):
    kind = "llmc"
    about = "llm.c: main.log and the screen"
    hints = (b"s:", b"step ", b"val loss ", b"HellaSwag: ")
    looks = expression(rb"(?:^s:\d+ (?:trl|tel|eval):|(?<![\w./])step\s+\d+/\d+:? (?:\| )?(?:train )?loss )")
    shapes = (
        forms.Form(
            rb"^s:(\d{1,15}) trl:([^\s:]+)(?: lr:([^\s:]+))?(?: norm:([^\s:]+))?[ \t]*$", ("step", "trl", "lr", "norm")
        ),
        forms.Form(rb"^s:(\d{1,15}) (?:tel:([^\s:]+)|eval:([^\s:]+))[ \t]*$", ("step", "tel", "eval"), main=False),
        forms.Form(
            rb"(?<![\w./])step\s+(\d{1,15})/(\d+) \| (?:train )?loss\s+([^\s|]+) (?:\(([^\s)]+)z\))?\s*"
            rb"\| norm\s+([^\s|]+)"
            rb" (?:\(([^\s)]+)z\))?\s*\| lr\s+([^\s|]+) \|\s+([^\s|]+) ms \|\s+"
            + _MFU
            + rb" \|\s+([^\s|]+) tok/s[ \t]*$",
            ("step", "_total", "loss", "loss z", "norm", "norm z", "lr", "ms", "MFU", "tok/s"),
        ),
        forms.Form(
            rb"(?<![\w./])step\s+(\d{1,15})/(\d+): (?:train )?loss ([^\s|]+)(?: \(acc ([^\s)]+)\))?"
            rb"(?: \| norm ([^\s|]+))?(?: \| lr ([^\s|]+))? \(([^\s|]+) ms, ([^\s|]+) tok/s\)[ \t]*$",
            ("step", "_total", "loss", "acc", "norm", "lr", "ms", "tok/s"),
        ),
        forms.Form(rb"^val loss ([^\s|]+)[ \t]*$", ("val loss",), main=False),
        forms.Form(rb"(?:^|\r)HellaSwag: (\d+)/(\d+) = ([\d.]+)[ \t]*$", ("_right", "_all", "HellaSwag"), main=False),
    )
    begins = (b"| train data pattern ",)
    closers = (b"tok/s",)
    clock: ClassVar[engine.Clock] = {"ms": ("duration", 1e3)}
    aliases: ClassVar[engine.Aliases] = {
        "trl": "train/loss",
        "tel": "eval/loss",
        "eval": "eval/hellaswag",
        "HellaSwag": "eval/hellaswag",
        "loss": "train/loss",
        "loss z": "train/loss_z",
        "norm": "train/norm",
        "norm z": "train/norm_z",
        "lr": "train/lr",
        "ms": "train/duration_ms",
        "MFU": ("train/mfu", 0.01),
        "tok/s": "train/tokens_per_second",
        "val loss": "eval/loss",
        "acc": "train/mean_loss",
    }

    def settings(self, preamble: bytes) -> dict[str, Any]:
        rows = re.findall(rb"(?m)^\| ([^|\n]{1,60}?) *\| ([^|\n]{1,300}?) *\|$", preamble)
        return {
            name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
            for name, value in rows
            if name != b"Parameter" and value != b"Value"
        }


SOURCE = LlmC()
