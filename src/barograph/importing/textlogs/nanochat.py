"""nanochat and picoLLM: pre-training, fine-tuning, validation, CORE.

In:   `step 00100/05568 (1.80%) | loss: 6.043210 | lrm: 1.00 | dt: 645.43ms | tok/sec: 812,307 | bf16_mfu: 50.77 | …`,
      `Step 00250 | Validation bpb: 1.086329`, `Step 03000 | CORE metric: 0.1697`, a line for each task of CORE,
      `Final: 12/24 (50.00%)` of an evaluation by chat.
Out:  the names as printed; `loss_raw`, the loss of each step out of the printed moving average; the corrected
      `loss` of fine-tuning, with `loss_printed` beside it.

The printed loss is a moving average (0.9 of the old, 0.1 of the new) divided by 1 - 0.9^(step + 1). Its steps
come back from two neighbouring rows to about 1e-5, twenty times the print's precision. Fine-tuning counts the
step before it divides, so its first losses are too small, the first by 0.526; that is undone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from barograph.core.patterns import expression
from barograph.importing.source import ImportedPoints, Item
from barograph.importing.textlogs import engine, forms

_BETA = 0.9  # the source's `ema_beta`
_VALUES = (
    rb" \| loss: ([^ |]+) \| lrm: ([^ |]+) \| dt: ([^ |m]+)ms \| tok/sec: ([^ |]+)"
    rb" \| (?:bf16_mfu: ([^ |]+)|mfu: ([^ |]+))(?: \| epoch: (\d+)(?: pq: (\d+) rg: (\d+))?)?"
    rb" \| total time: ([^ |m]+)m(?: \| eta: ([^ |m]+)m)?[ \t]*$"
)
_NAMES = ("lrm", "dt", "tok/sec", "bf16_mfu", "mfu", "epoch", "pq", "rg", "total time", "eta")
_PAIR = rb"(?<=[|\d ]) ?([A-Za-z_][\w/]{0,40}(?: [a-z]\w{0,40}){0,3}): ([-+]?(?:[\d.,]+(?:[eE][-+]?\d+)?|nan|inf))"
_TASK = expression(
    rb"Evaluating: ([\w./-]{1,64}) \((\d+)-shot[^)]*\)\.\.\. "
    rb"accuracy: ([^ |]+) \| centered: ([^ |]+)(?: \| time: ([^ |s]+)s)?[ \t]*$"
)


def _task(line: bytes) -> forms.Parsed | None:
    match = _TASK.search(line)
    if match is None:
        return None
    task = match[1].decode()
    names = (f"CORE/{task}/accuracy", f"CORE/{task}/centered")
    return match.start(), None, names, (match[3], match[4]), False


class Nanochat(engine.Dialect):
    kind = "nanochat"
    about = "nanochat and picoLLM: training, fine-tuning, validation, CORE"
    hints = (b"step ", b"Step ", b"Evaluating: ", b"Final: ")
    looks = expression(
        rb"(?<![\w./])(?:step \d+(?:/\d+)? \([\d.]+%\) \||Step \d+ \| (?:Validation|CORE)"
        rb"|Evaluating: \w+ \(\d+-shot[^)]*\)\.\.\. a)"
    )
    shapes = (
        forms.Form(rb"(?<![\w./])step (\d{1,15})/(\d+) \([^ )]+%\)" + _VALUES, ("step", "_total", "loss", *_NAMES)),
        forms.Form(rb"(?<![\w./])step (\d{1,15}) \([^ )]+%\)" + _VALUES, ("step", "loss_printed", *_NAMES)),
        forms.Form(
            rb"(?<![\w./])Step (\d{1,15}) \| Validation bpb: (\S+)[ \t]*$", ("step", "Validation bpb"), main=False
        ),
        forms.Form(rb"(?<![\w./])Step (\d{1,15}) \| CORE metric: (\S+)[ \t]*$", ("step", "CORE metric"), main=False),
        forms.Lines(_task),
        forms.Form(rb"^Final: (\d+)/(\d+) \(([^ )%]+)%\)[ \t]*$", ("_right", "_asked", "Final"), main=False),
        # other versions: more fields, or fewer
        forms.pairs(rb"(?<![\w./])step (\d{1,15})(?:/\d+)? \([\d.]+%\) (?=\|.*[ms]\s*$)", _PAIR),
        forms.pairs(
            rb"(?<![\w./])Step (\d{1,15})/\d+ (?=\| (?!Example step)[A-Z][\w ]*: )",
            rb"\| ?([A-Za-z][\w@ ]{0,60}): ([-+]?(?:[\d.,]+(?:[eE][-+]?\d+)?|nan|inf))(?=\s*(?:\||$))",
        ),
        forms.pairs(
            rb"(?<![\w./])Step (\d{1,15}) (?=\| [A-Za-z][\w@ ]*: [-+\dni])",
            rb"[|,] ?([A-Za-z][\w@ ]{0,60}): ([-+]?(?:\d[\d.]*(?:,\d+)*(?:[eE][-+]?\d+)?|nan|inf))(?=\s*(?:[,|]|$))",
            main=False,
        ),
    )
    begins = (b"Autodetected device type:",)
    closers = (b"m",)
    clock: ClassVar[engine.Clock] = {"dt": ("duration", 1e3)}
    aliases: ClassVar[engine.Aliases] = {
        "loss": "train/loss",
        "loss_raw": "train/loss_raw",
        "loss_printed": "train/loss_printed",
        "lrm": "train/lr_multiplier",
        "dt": "train/duration_ms",
        "tok/sec": "train/tokens_per_second",
        "mfu": ("train/mfu", 0.01),
        "bf16_mfu": ("train/mfu", 0.01),
        "epoch": "train/epoch",
        "pq": "data/pq_idx",
        "rg": "data/rg_idx",
        "Validation bpb": "eval/bpb",
        "Validation loss": "eval/loss",
        "Training loss": "train/loss",
        "CORE metric": "eval/core_metric",
        "Final": ("eval/accuracy", 0.01),
    }

    def settings(self, preamble: bytes) -> dict[str, Any]:
        text = preamble[max(preamble.rfind(b"Autodetected device type"), 0) :]
        result = {}
        for name, value in re.findall(rb"(?m)^([A-Za-z][\w :/]{1,60}?) *: +([^\n]{1,80})$", text):
            result[name.decode()] = _plain(value.decode("utf-8", "replace"))
        return result

    def refine(self, points: ImportedPoints, own: dict[str, Any], segment: int) -> Iterator[Item]:
        if "loss" in points.names and "lrm" in points.names:
            yield from self.unsmooth(points, own, segment)
        elif "loss_printed" in points.names:
            yield from self.undo(points, own, segment)
        else:
            yield points

    def unsmooth(self, points: ImportedPoints, own: dict[str, Any], segment: int) -> Iterator[Item]:
        """The loss of each step, where the row of the step before is known."""
        printed = points.values[:, points.names.index("loss")]
        steps = points.steps.astype(np.float64)
        with np.errstate(all="ignore"):  # a loss may be infinite
            average = printed * -np.expm1((steps + 1) * np.log(_BETA))
        known = own.get("average") if own.get("segment") == segment else None
        before = np.concatenate(([known[0] if known else -2], points.steps[:-1]))
        last = np.concatenate(([known[1] if known else 0.0], average[:-1]))
        first = points.steps == 0
        has = first | (before == points.steps - 1)
        own["segment"], own["average"] = segment, [int(points.steps[-1]), float(average[-1])]
        yield points
        if has.any():
            with np.errstate(all="ignore"):
                raw = (average - _BETA * np.where(first, 0.0, last)) / (1 - _BETA)
            extra = ImportedPoints(("loss_raw",), points.steps[has], points.times[has], raw[has][:, None], points.x)
            if not own.get("told"):
                own["told"] = True
                yield engine.note(
                    points,
                    "The printed loss is a moving average over steps (0.9) of one rank's last micro-batch; "
                    "loss_raw is each step's own value, computed from it.",
                )
            yield extra

    def undo(self, points: ImportedPoints, own: dict[str, Any], segment: int) -> Iterator[Item]:
        """Fine-tuning divides by 1 - 0.9^(step + 1) where 1 - 0.9^step is right, if it counts from 1."""
        if own.get("tuned_segment") != segment:
            own["tuned_segment"], own["tuned_first"] = segment, int(points.steps[0])
        at = points.names.index("loss_printed")
        names = (*points.names[:at], "loss", *points.names[at + 1 :])
        if own["tuned_first"] != 1:
            yield points._replace(names=names)
            return
        steps = points.steps.astype(np.float64)
        printed = points.values[:, at]
        values = points.values.copy()
        with np.errstate(all="ignore"):
            values[:, at] = printed * np.expm1((steps + 1) * np.log(_BETA)) / np.expm1(steps * np.log(_BETA))
        if not own.get("tuned_told"):
            own["tuned_told"] = True
            yield engine.note(
                points,
                "The printed loss of fine-tuning is too small in its first steps (the first is 0.526 of the true one), "
                "because the step is counted before the average is corrected; loss is the true average, "
                "loss_printed what was printed.",
            )
        yield points._replace(names=(*names, "loss_printed"), values=np.column_stack((values, printed)))


def _plain(text: str) -> Any:
    """A number where the text is one."""
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        return text.strip()
    return int(number) if number.is_integer() and "." not in text and "e" not in text.lower() else number


SOURCE = Nanochat()
