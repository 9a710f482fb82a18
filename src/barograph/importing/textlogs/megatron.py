"""Megatron-LM and Megatron-DeepSpeed: the iteration line in its versions, and validation.

In:   ` iteration      100/    1000 | consumed samples: 400 | elapsed time per iteration (ms): 6736.4 |
      learning rate: 1.499E-04 | global batch size: 4 | lm loss: 3.169739E+01 | grad norm: 13.641 | …`;
      ` validation loss at iteration 1000 | lm loss value: 2.72E+00 | lm loss PPL: 1.52E+01 |`, also with
      "on validation set", "on test set", the name of a data set, or "at the end of training for …".
Out:  every name between bars as printed; for validation, "validation" or "test" (and the data set) before it.

The printed loss is the mean over the steps since the last row; skipped steps aren't in it. A mean that is not above 0
is not printed: beside a gradient norm of NaN it is NaN.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from barograph.core.patterns import expression
from barograph.importing.textlogs import engine, forms

_BAR = rb"([^:|]{1,100}):\s{0,60}(" + forms.NUMBER + rb")(?=\s*(?:\||$))"
_VALIDATION = expression(
    rb"validation loss at (?:iteration (\d{1,15})|the end of training)([^|]{0,200}?)\s*\|(?=.*lm loss value|.*value:)"
)
_PAIRS = expression(_BAR)
_NO_LOSS = expression(
    rb"(?m)^(?=[^\n]{0,400}\biteration {1,20}\d{1,15}/ {0,20}\d{1,15} \|)(?![^\n]{0,4000}loss: )"
    rb"(?=[^\n]{0,4000}\| grad norm: nan \|)(?=[^\n]{0,4000}\| number of skipped iterations: {1,9}0 \|)"
    rb"([^\n]{0,4000}\| )grad norm: nan \|"
)


def _validation(line: bytes) -> forms.Parsed | None:
    match = _VALIDATION.search(line)
    if match is None:
        return None
    about = match[2].decode("utf-8", "replace")
    split = "test" if re.search(r"\btest\b", about) else "validation"
    which = re.search(r"\[([^\]]{1,60})\]", about)
    prefix = f"{split} {which[1]} " if which else f"{split} "
    names: dict[str, Any] = {}
    for key, value in _PAIRS.findall(line, match.end()):
        names.setdefault(prefix + " ".join(key.decode("utf-8", "replace").split()), value)
    if not names:
        return None
    return match.start(), match[1], tuple(names), tuple(names.values()), False


class Megatron(engine.Dialect):
    kind = "megatron"
    about = "Megatron-LM and Megatron-DeepSpeed"
    hints = (b"iteration ", b"validation loss at the end")
    looks = expression(rb"(?<![\w./])(?:iteration\s+\d+/\s*\d+\s*\||validation loss at iteration \d+[^|]*\|)")
    shapes = (
        forms.pairs(
            rb"(?<![\w./])iteration\s+(\d{1,15})/\s*\d+\s*\|(?=.*\|\s*$)",
            rb"([^:|]{1,100}):\s{0,60}([^\s|]{1,60}) {0,20}\|",
        ),
        forms.Lines(_validation),
    )
    begins = (b"using world size:",)
    closers = (b"|",)
    clock: ClassVar[engine.Clock] = {
        "elapsed time per iteration (ms)": ("duration", 1e3),
        "elapsed time per iteration (s)": ("duration", 1e6),
    }
    aliases: ClassVar[engine.Aliases] = {
        "lm loss": "train/loss",
        "loss": "train/loss",
        "grad norm": "train/norm",
        "learning rate": "train/lr",
        "elapsed time per iteration (ms)": "train/duration_ms",
        "elapsed time per iteration (s)": ("train/duration_ms", 1000.0),
        "consumed samples": "data/samples_seen",
        "consumed tokens": "data/tokens_seen",
        "global batch size": "train/batch_size",
        "loss scale": "train/loss_scale",
        "params norm": "model/param_norm",
        "num zeros": "model/zero_gradients",
        "number of skipped iterations": "train/skipped_steps",
        "number of nan iterations": "train/nan_steps",
        "throughput per GPU (TFLOP/s/GPU)": "train/tflops_per_device",
        "TFLOPs": "train/tflops_per_device",
        "samples per second": "train/samples_per_second",
        "validation lm loss value": "eval/loss",
        "validation lm loss PPL": "eval/perplexity",
        "test lm loss value": "test/loss",
        "test lm loss PPL": "test/perplexity",
    }

    def prepare(self, text: bytes, own: dict[str, Any]) -> bytes:
        """With a loss of NaN on the rows that leave it out for that."""
        if b"grad norm: nan |" not in text:
            return text
        return _NO_LOSS.sub(rb"\1lm loss: nan | grad norm: nan |", text)

    def settings(self, preamble: bytes) -> dict[str, Any]:
        """The list of arguments: `  hidden_size ........ 1024`."""
        rows = re.findall(rb"(?m)^(?:\[?\w+\]?: ?)?  (\w{1,80}) \.{2,} ([^\n]{1,300})$", preamble)
        return {name.decode(): value.decode("utf-8", "replace").strip() for name, value in rows}


SOURCE = Megatron()
