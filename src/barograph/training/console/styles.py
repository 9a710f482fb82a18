"""The styles of the lines for steps and evaluations, by name, with those of modded-nanogpt, KempnerForge, picoLLM.

In:   a `ShownStep` or an `Evaluation` of the course.
Out:  a line in parts; a value that is not known is left out with its name.

Beside a step's own fields they show these extras of it: `lrm`, `pq`, `rg` (picoLLM), `mfu`, `peak_gb`,
`total_gb` (KempnerForge).
`training_time_ms` (speedrun-mup) and `total_training_time` in seconds (picoLLM) replace the console's own sums, for
loops that keep them in their checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barograph.core.terminal import TextLine, TextPart
from barograph.core.text import escape
from barograph.core.text import number as text_number
from barograph.training.console.course import Evaluation, ShownStep, finite, mfu_percent, number
from barograph.training.console.lines import evaluation_line, fixed, news, step_line
from barograph.training.console.plain import plain_evaluation, plain_step


class Style(NamedTuple):
    """How steps and evaluations are drawn."""

    step: Callable[[ShownStep], TextLine]
    evaluation: Callable[[Evaluation], TextLine]


def find(name: str) -> Style | None:
    """The style of that name, None for "none"; ValueError, naming the nearest, if there is none."""
    if name in STYLES:
        return STYLES[name]
    import difflib  # only for the mistake: importing barograph must stay quick

    near = difflib.get_close_matches(str(name).lower(), STYLES, n=1, cutoff=0.3) or ["plain"]
    raise ValueError(
        f"console style {str(name)[:60]!r} is unknown; did you mean {near[0]!r}? There are {', '.join(STYLES)}"
    )


def _grouped(value: float | None, whole: bool = False) -> str:
    """A count with commas; `whole`: what is after the point is dropped, not rounded."""
    if value is None or not finite(value):
        return fixed(value, 0, 0)
    return f"{int(value):,}" if whole else f"{value:,.0f}"


def _timed(duration: float | None) -> float | None:
    """A duration; None where it is NaN: the time of a step that was not begun is not known."""
    return None if duration is None or duration != duration else duration


# -- modded-nanogpt --------------------------------------------------------------------------------


def _speedrun(at: ShownStep | Evaluation, middle: TextPart | None) -> TextLine:
    total = f"/{at.total:.0f}" if at.total is not None else ""
    parts = [TextPart(f"step:{at.step}{total}")]
    if middle is not None:
        parts.append(middle)
    if at.trained_ms is not None:
        parts.append(TextPart(f" train_time:{fixed(at.trained_ms, 0, 1)}ms", "", 2))
    if at.step_ms is not None:
        parts.append(TextPart(f" step_avg:{fixed(at.step_ms, 0, 2)}ms", "", 1))
    return tuple(parts)


def speedrun_step(step: ShownStep) -> TextLine:
    """`step:1000/1750 train_time:180420.0ms step_avg:180.42ms`"""
    return _speedrun(step, None)


def speedrun_evaluation(evaluation: Evaluation) -> TextLine:
    """The same with `val_loss:3.2847` after the step."""
    colour = f"bold {news(evaluation.loss)}"
    lead = f"{evaluation.name}/" if evaluation.name else ""
    return _speedrun(evaluation, TextPart(f" {lead}val_loss:{fixed(evaluation.loss, 0, 4)}", colour))


# -- picoLLM ---------------------------------------------------------------------------------------


def pico_step(step: ShownStep) -> TextLine:
    """`step 05567/05568 (99.98%) | loss: 2.336916 | lrm: 0.05 | dt: 997.40ms | …`; the loss is smoothed."""
    of = f"/{step.total:05.0f}" if step.total is not None else ""
    percent = f" ({fixed(100 * step.step / step.total, 0, 2)}%)" if step.total is not None else ""
    parts = [
        TextPart(f"step {step.step:05d}{of}"),
        TextPart(percent, "", 1),
        TextPart(f" | loss: {fixed(step.smoothed, 0, 6)}", news(step.smoothed)),
    ]

    def add(name: str, value: float | None, shown: str, spare: int) -> None:
        if value is not None:
            parts.append(TextPart(f" | {name}: {shown}", "", spare))

    lrm, mfu = number(step.fields.get("lrm")), mfu_percent(step.fields)
    add("lrm", lrm, fixed(lrm, 0, 2), 4)
    duration = _timed(step.duration_ms)
    add("dt", duration, f"{fixed(duration, 0, 2)}ms", 6)
    add("tok/sec", step.tokens_per_second, _grouped(step.tokens_per_second, whole=True), 3)
    add("bf16_mfu", mfu, fixed(mfu, 0, 2), 5)
    if position := _position(step):
        parts.append(TextPart(f" | {position}", "", 8))
    add("total time", step.warm_seconds, f"{fixed(step.warm_seconds / 60, 0, 2)}m", 7)
    if step.warm_eta is not None:
        add("eta", step.warm_eta, f"{fixed(step.warm_eta / 60, 0, 1)}m", 2)
    return tuple(parts)


def _position(step: ShownStep) -> str:
    """`epoch: 1 pq: 122 rg: 80`. picoLLM counts epochs from 1, so 0.25 is in the first and 1.25 in the second."""
    words = []
    if step.epoch is not None and finite(step.epoch):
        words.append(f"epoch: {step.epoch // 1 + (step.epoch % 1 > 0):.0f}")
    for name in ("pq", "rg"):
        value = number(step.fields.get(name))
        if value is not None:
            words.append(f"{name}: {fixed(value, 0, 0)}")
    return " ".join(words)


def pico_evaluation(evaluation: Evaluation) -> TextLine:
    """`Step 00250 | Validation bpb: 1.086329`, or the loss where bits per byte are not given."""
    bits = number(evaluation.fields.get("val_bpb", evaluation.fields.get("bpb")))
    name, value = ("bpb", bits) if bits is not None else ("loss", evaluation.loss)
    name = f"{evaluation.name} {name}".lstrip()
    shown = TextPart(f"Validation {name}: {fixed(value, 0, 6)}", f"bold {news(value)}")
    return (TextPart(f"Step {evaluation.step:05d} | ", "bold"), shown)


# -- KempnerForge ----------------------------------------------------------------------------------


def kempner_step(step: ShownStep) -> TextLine:
    """`[step 100] loss=2.3456 | lr=2.00e-04 | grad_norm=0.123 | tok/s=125,300 | mfu=45.2% | …`"""
    shown: list[tuple[str, float | None, str, int]] = [
        ("loss", step.loss, fixed(step.loss, 0, 4), 0),
        ("lr", step.lr, f"{step.lr:.2e}" if step.lr is not None else "", 3),
        ("grad_norm", step.norm, fixed(step.norm, 0, 3), 0),
        ("tok/s", step.tokens_per_second, _grouped(step.tokens_per_second), 1),
    ]
    mfu, fields = mfu_percent(step.fields), step.fields
    shown.append(("mfu", mfu, f"{fixed(mfu, 0, 1)}%", 2))
    peak, held = number(fields.get("peak_gb")), number(fields.get("total_gb"))
    memory = fixed(peak, 0, 1) + (f"/{fixed(held, 0, 0)}GB" if held is not None else "GB")
    shown.append(("mem", peak, memory, 5))
    duration = _timed(step.duration_ms)
    seconds = duration / 1000 if duration is not None else None
    shown.append(("step_time", seconds, f"{fixed(seconds, 0, 2)}s", 4))
    return _assignments(step.step, shown, "")


EVALUATION_FIELDS = ("loss", "eval_tokens", "duration_ms", "tokens_per_second")


def kempner_evaluation(evaluation: Evaluation) -> TextLine:
    """`[step 500] eval/loss=2.1234 | tok/s=145,200 | step_time=0.23s`, then the other figures by their names."""
    duration = _timed(evaluation.duration_ms)
    seconds = duration / 1000 if duration is not None else None
    lead = f"eval/{evaluation.name}" if evaluation.name else "eval"
    shown: list[tuple[str, float | None, str, int]] = [
        (f"{lead}/loss", evaluation.loss, fixed(evaluation.loss, 0, 4), 0),
        ("tok/s", evaluation.tokens_per_second, _grouped(evaluation.tokens_per_second), 1),
        ("step_time", seconds, f"{fixed(seconds, 0, 2)}s", 2),
    ]
    for name, given in evaluation.fields.items():
        if name not in EVALUATION_FIELDS and (value := number(given)) is not None:
            shown.append((escape(name, 60), value, text_number(value, 5), 3))
    return _assignments(evaluation.step, shown, "bold")


def _assignments(step: int, shown: list[tuple[str, float | None, str, int]], colour: str) -> TextLine:
    parts = [TextPart(f"[step {step}]", colour)]
    for name, value, written, spare in shown:
        if value is not None:
            gap = " " if len(parts) == 1 else " | "
            parts.append(TextPart(f"{gap}{name}={written}", f"{colour} {news(value)}".strip(), spare))
    return tuple(parts)


STYLES: dict[str, Style | None] = {
    "plain": Style(plain_step, plain_evaluation),
    "surogate": Style(step_line, evaluation_line),
    "modded-nanogpt": Style(speedrun_step, speedrun_evaluation),
    "picollm": Style(pico_step, pico_evaluation),
    "kempnerforge": Style(kempner_step, kempner_evaluation),
    "none": None,
}
