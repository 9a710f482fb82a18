"""The default line of a step and an evaluation: names and values in the usual units, what is missing left out.

In:   a `ShownStep` or an `Evaluation` of the course.
Out:  a line in parts, such as `step 12/400 | loss 2.31 | norm 0.8 | lr 0.0003 | 12.3k tok/s | eta 02m10s`.
"""

from __future__ import annotations

from barograph.core import text
from barograph.core.terminal import TextLine, TextPart
from barograph.training.console.course import Evaluation, ShownStep, mfu_percent
from barograph.training.console.lines import news


def plain_step(step: ShownStep) -> TextLine:
    """`step 12/400 | loss 2.31 | norm 0.8 | lr 0.0003 | 12.3k tok/s | eta 02m10s`; `!` before a norm: a spike."""
    fields = step.fields
    mfu = mfu_percent(fields)
    parts = [TextPart(_place("step", step.step, step.total))]
    if step.total is None and step.progress is not None:
        parts.append(TextPart(f" ({text.number(step.progress, 3)}%)", "", 1))
    _add(parts, "loss", step.loss, text.number(step.loss, 5))
    spike = "!" if step.spike else ""
    _add(parts, "norm", step.norm, spike + text.number(step.norm, 4), colour="yellow" if step.spike else "")
    _add(parts, "lr", step.lr, text.number(step.lr, 4), spare=3)
    _add(parts, "aux", step.aux_loss, text.number(step.aux_loss, 4), spare=6)
    _add(parts, "imbalance", step.imbalance, text.number(step.imbalance, 3), spare=7)
    _add(parts, "", step.tokens_per_second, f"{text.compact(step.tokens_per_second)} tok/s", spare=2)
    _add(parts, "mfu", mfu, f"{text.number(mfu, 3)}%", spare=5)
    if mfu is None:
        _add(parts, "sol", step.sol, f"{text.number(step.sol, 3)}%", spare=5)
    if step.eta is not None and step.eta < 3.6e8:  # a hundred thousand hours are not an estimate
        _add(parts, "eta", step.eta, text.duration(step.eta), spare=4)
    if phase := fields.get("phase"):
        parts.append(TextPart(f" | {text.escape(phase, 60)}", "", 8))
    return tuple(parts)


def plain_evaluation(evaluation: Evaluation) -> TextLine:
    """`eval at step 100/400 | loss 2.25 | gap +0.02 | 31.2k tok/s`"""
    name = f"eval {evaluation.name}".rstrip()
    parts = [TextPart(_place(f"{name} at step", evaluation.step, evaluation.total), "bold")]
    _add(parts, "loss", evaluation.loss, text.number(evaluation.loss, 5), colour="bold")
    gap = evaluation.gap
    _add(parts, "gap", gap, text.signed(gap, 3), spare=2)
    _add(parts, "", evaluation.tokens_per_second, f"{text.compact(evaluation.tokens_per_second)} tok/s", spare=3)
    return tuple(parts)


def _place(word: str, step: int, total: float | None) -> str:
    return f"{word} {step}/{total:.0f}" if total is not None else f"{word} {step}"


def _add(parts: list[TextPart], name: str, value: float | None, shown: str, spare: int = 0, colour: str = "") -> None:
    if value is not None:
        parts.append(TextPart(f" | {name} {shown}" if name else f" | {shown}", news(value, colour), spare))
