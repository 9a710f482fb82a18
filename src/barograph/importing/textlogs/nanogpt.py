"""nanoGPT and what grew out of it: llama2.c, build-nanogpt, forks with a field more or less.

In:   `iter 100: loss 2.3010, time 123.45ms, mfu 12.30%`, `step 1000: train loss 2.29, val loss 2.31`,
      `100 | loss 2.3 | lr 3e-4 | 345.67ms | mfu 12.3%`,
      `step   10 | loss: 9.5 | lr 1e-5 | norm: 5.3 | dt: 339.35ms | tok/sec: …`.
Out:  the names as printed; times in milliseconds. A printed mfu of -100 means "not known yet" and is left out.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from barograph.core.patterns import expression
from barograph.importing.textlogs import engine, forms

_FINE = expression(rb"^(\d{1,15}) (train|val|hella) (\S+)[ \t]*$")


def _log_file(line: bytes) -> forms.Parsed | None:
    """A line of build-nanogpt's own log file: `250 val 6.1234`."""
    match = _FINE.match(line)
    if match is None:
        return None
    name = {b"train": "train loss", b"val": "val loss", b"hella": "hella"}[match[2]]
    return 0, match[1], (name,), (match[3],), match[2] == b"train"


class NanoGPT(engine.Dialect):
    kind = "nanogpt"
    about = "nanoGPT, llama2.c, build-nanogpt"
    hints = (b"iter ", b"step", b" | loss ", b" val ", b" train ", b" hella ", b"validation loss: ", b"HellaSwag")
    looks = expression(rb"(?<![\w./])(?:iter \d+: loss|step \d+: train loss|(?<![a-z] )\d+ \| loss [\d.]+ \|)")
    shapes = (
        forms.Form(
            rb"(?<![\w./])iter (\d{1,15}): loss ([^\s,]+), time ([^\s,m]+)ms"
            rb"(?:, mfu (?:-100(?:\.0+)?|([^\s%,]+))%)?[ \t]*$",
            ("step", "loss", "time", "mfu"),
        ),
        forms.Form(
            rb"(?<![\w./])step (\d{1,15}): train loss ([^\s,]+), val loss ([^\s,]+)[ \t]*$",
            ("step", "train loss", "val loss"),
            main=False,
        ),
        forms.Form(
            rb"(?<![\w./|])(\d{1,15}) \| loss ([^\s|]+) \| lr ([^\s|]+) \| ([^\s|m]+)ms"
            rb" \| mfu (?:-100(?:\.0+)?|([^\s%|]+))%[ \t]*$",
            ("step", "loss", "lr", "time", "mfu"),
        ),
        forms.Form(
            rb"(?<![\w./])step\s+(\d{1,15}) \| loss: ([^\s|]+) \| lr:? ([^\s|]+) \| norm: ([^\s|]+)"
            rb" \| dt: ([^\s|m]+)ms \| tok/sec: ([^\s|]+)[ \t]*$",
            ("step", "loss", "lr", "norm", "dt", "tok/sec"),
        ),
        forms.Form(rb"(?<![\w./])iter (\d{1,15}): loss (\S+) ([^\sm]+) ms/iter[ \t]*$", ("step", "loss", "time")),
        forms.Form(
            rb"(?<![\w./])iter (\d{1,15}): train (\S+) val (\S+)(?: lr (\S+))?[ \t]*$",
            ("step", "train loss", "val loss", "lr"),
            main=False,
        ),
        forms.Lines(_log_file),
        forms.Form(rb"^validation loss: (\S+)[ \t]*$", ("val loss",), main=False),
        forms.Form(rb"^HellaSwag accuracy: (\d+)/(\d+)=(\S+)[ \t]*$", ("_right", "_all", "hella"), main=False),
        forms.pairs(
            rb"(?<![\w./])step (\d{1,15}): (?=train loss [\d.nai]+, val loss [\d.nai]+,)",
            rb"(?<!\w)([A-Za-z_][\w/]{0,40}(?: [a-z]\w{0,40}){0,3}):? (" + forms.NUMBER + rb")(?:ms|s|%)?(?=,|\s*$)",
            main=False,
        ),
        # forks: any further `, name value`
        forms.pairs(
            rb"(?<![\w./])iter (\d{1,15}): (?=loss [\d.nai]+, .*(?:ms|%|\d)\s*$)",
            rb"(?<!\w)([A-Za-z_][\w/]{0,40}(?: [a-z]\w{0,40}){0,3}):? (" + forms.NUMBER + rb")(?:ms|s|%)?(?=,|\s*$)",
        ),
    )
    begins = (b"tokens per iteration will be:",)
    closers = (b"ms", b"%")
    clock: ClassVar[engine.Clock] = {"time": ("duration", 1e3), "dt": ("duration", 1e3)}
    aliases: ClassVar[engine.Aliases] = {
        "loss": "train/loss",
        "train loss": "eval/train_loss",
        "val loss": "eval/loss",
        "time": "train/duration_ms",
        "dt": "train/duration_ms",
        "mfu": ("train/mfu", 0.01),
        "lr": "train/lr",
        "norm": "train/norm",
        "tok/sec": "train/tokens_per_second",
        "hella": "eval/hellaswag",
    }

    def settings(self, preamble: bytes) -> dict[str, Any]:
        """`name = value` lines of the configuration file that nanoGPT prints, as they were last."""
        result: dict[str, Any] = {}
        for name, value in re.findall(rb"(?m)^([a-z_]\w{0,60}) ?= ?([^\n#]{1,200})", preamble):
            result[name.decode()] = value.decode("utf-8", "replace").strip().strip("'\"")
        for name, value in re.findall(rb"(?m)^Overriding: (\w{1,60}) = ([^\n]{1,200})$", preamble):
            result[name.decode()] = value.decode("utf-8", "replace").strip()
        if tokens := re.search(rb"tokens per iteration will be: ([\d,]{1,30})", preamble):
            result["tokens_per_iteration"] = int(tokens[1].replace(b",", b""))
        return result


SOURCE = NanoGPT()
