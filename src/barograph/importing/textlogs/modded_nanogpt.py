"""modded-nanogpt in its generations, and what prints its line: the speedrun's logs.

In:   the source code and nvidia-smi, then `step:1000/1750 val_loss:3.5012 train_time:98765ms step_avg:98.77ms`, with
      train_loss in older logs, neither between validations in newer ones.
Out:  train_loss, val_loss, train_time (ms), step_avg (ms), peak memory (MiB).

Older versions set their clock back after step 10, so that compiling isn't counted: train_time falls there.
"""

from __future__ import annotations

from typing import ClassVar

from barograph.core.patterns import expression
from barograph.importing.textlogs import engine, forms


class ModdedNanoGPT(engine.Dialect):
    kind = "modded_nanogpt"
    about = "modded-nanogpt's logs, all generations"
    hints = (b"step:", b"peak memory")
    looks = expression(rb"(?<![\w./])step:\d+/\d+ (?:train|val)_")
    shapes = (
        forms.Form(
            rb"(?<![\w./])step:(\d{1,15})/(\d+) (?:train_loss:([^\s:]+) )?(?:val_loss:([^\s:]+) )?"
            rb"train_time:([^\s:m]+)ms(?: step_avg:([^\s:m]+)ms)?[ \t]*$",
            ("step", "_total", "train_loss", "val_loss", "train_time", "step_avg"),
        ),
        forms.Form(
            rb"peak memory (?:allocated|consumption): (\d+) MiB(?: reserved: (\d+) MiB)?[ \t]*$",
            ("peak memory allocated", "peak memory reserved"),
            main=False,
        ),
        forms.pairs(
            rb"(?<![\w./])step:(\d{1,15})/\d+ (?=.*(?:ms|s|\d)\s*$)",
            rb"(?<![\w./])([a-z]\w{0,60}):\s?(" + forms.NUMBER + rb")(?:ms|%)?(?=[\s,|]|$)",
        ),
    )
    begins = (b"Running Python ", b"Running pytorch ")
    closers = (b"ms",)
    clock: ClassVar[engine.Clock] = {"train_time": ("elapsed", 1e3)}
    aliases: ClassVar[engine.Aliases] = {
        "train_loss": "train/loss",
        "val_loss": "eval/loss",
        "train_time": "train/elapsed_ms",
        "step_avg": "train/mean_duration_ms",
        "peak memory allocated": "memory/peak_allocated_mib",
        "peak memory reserved": "memory/peak_reserved_mib",
    }


SOURCE = ModdedNanoGPT()
