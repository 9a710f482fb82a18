"""KempnerForge: its one line.

In:   `[step 100] loss=2.3010 | lr=3.00e-04 | grad_norm=1.234 | tok/s=123,456 | mfu=45.6% | mem=34.5/80.0GB |
      step_time=0.45s`
Out:  the names as printed; mem and mem_total in GiB (the source says GB), step_time in seconds, mfu in percent.

Steps whose loss was not finite are left out by the source itself.
"""

from __future__ import annotations

from typing import ClassVar

from barograph.core.patterns import expression
from barograph.importing.textlogs import engine, forms


class KempnerForge(engine.Dialect):
    kind = "kempnerforge"
    about = "KempnerForge's console lines"
    hints = (b"[step ",)
    looks = expression(rb"\[step \d+\] loss=")
    shapes = (
        forms.Form(
            rb"\[step (\d{1,15})\] loss=([^\s|]+) \| lr=([^\s|]+) \| grad_norm=([^\s|]+) \| tok/s=([^\s|]+)"
            rb" \| mfu=([^\s|%]+)% \| mem=([^\s|/]+)/([^\s|G]+)GB \| step_time=([^\s|s]+)s[ \t]*$",
            ("step", "loss", "lr", "grad_norm", "tok/s", "mfu", "mem", "mem_total", "step_time"),
        ),
        forms.pairs(
            rb"\[step (\d{1,15})\] (?=(?:eval_)?loss=.*[\d%sBn]\s*$)",
            rb"(?<!\w)([A-Za-z][\w/]{0,60})=("
            + forms.NUMBER
            + rb")(?:%|s|/"
            + forms.NUMBER
            + rb"GB|GB)?(?=\s*(?:[|,]|$))",
        ),
    )
    closers = (b"s",)
    clock: ClassVar[engine.Clock] = {"step_time": ("duration", 1e6)}
    aliases: ClassVar[engine.Aliases] = {
        "loss": "train/loss",
        "lr": "train/lr",
        "grad_norm": "train/norm",
        "tok/s": "train/tokens_per_second",
        "mfu": ("train/mfu", 0.01),
        "mem": "memory/peak_gb",
        "mem_total": "memory/total_gb",
        "step_time": ("train/duration_ms", 1000.0),
    }


SOURCE = KempnerForge()
