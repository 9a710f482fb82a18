"""Surogate's lines, to the character, and the lines of the kinds that every style shares.

In:   a `ShownStep` or an `Evaluation` of the course, or a record's fields.
Out:  lines in parts. Nothing here remembers anything or writes anywhere.

Where a value is missing its column holds `-`; NaN and infinity are red.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from barograph.core.record import Record
from barograph.core.terminal import TextLine, TextPart, line
from barograph.core.text import escape
from barograph.core.values import text
from barograph.training.console.course import Evaluation, ShownStep, finite, number, positive

_MEBI = 1 << 20
# What NVML-based loggers write for "not supported" into unsigned fields.
_NOT_SUPPORTED = {4294967295.0, 4294967295.0 / 1000, float(2**64 - 1)}
_DOWN, _DASH = "\\", "-"
_FILES_SHOWN = 10
_SAMPLE_LINES, _SAMPLE_WIDTH = 8, 100


def fixed(value: float | None, width: int, decimals: int, sign: str = "") -> str:
    """A number in a column; from 1e8 on in powers of ten, so that nonsense does not fill the screen."""
    if value is None:
        return _DASH.rjust(width)
    if abs(value) < 1e8:
        return f"{value:{sign}{width}.{decimals}f}"
    return f"{value:{sign}{width}.3g}"


def milliseconds(value: float | None) -> str:
    """A duration in five columns; one decimal below 10 ms where there is one."""
    small = value is not None and 0 < value < 10 and value != int(value)
    return fixed(value, 5, 1 if small else 0)


def thousands(value: float | None) -> str:
    """Tokens per second, always in k."""
    return f"{fixed(value / 1000 if value is not None else None, 5, 1)}k tps"


def clock(seconds: float) -> str:
    """Hours and minutes as `02h15m`."""
    minutes = int(seconds // 60)
    return f"{minutes // 60:02d}h{minutes % 60:02d}m"


def news(value: float | None, colour: str = "") -> str:
    """Red where a value is NaN or infinite."""
    return "red" if value is not None and not math.isfinite(value) else colour


def step_line(step: ShownStep) -> TextLine:
    """A training step, dense or with a mixture of experts' `aux` and `imbal`."""
    parts = [
        TextPart(f":: step {step.step:7d}"),
        TextPart(f" [{fixed(step.progress, 5, 1)}%]", "", 1),
        TextPart(" "),
        TextPart(step.trend, "green" if step.trend == _DOWN else "dim"),
        TextPart(f" loss {fixed(step.loss, 6, 4)}", news(step.loss)),
        TextPart(" | norm "),
        TextPart("!" if step.spike else " ", "red bold"),
        TextPart(fixed(step.norm, 6, 4), news(step.norm)),
        TextPart(f" | {thousands(step.tokens_per_second)}", "", 2),
        TextPart(f" | {milliseconds(step.duration_ms)} ms", "", 7),
    ]
    if step.aux_loss is not None:
        parts.append(TextPart(f" | aux {fixed(step.aux_loss, 0, 4)}", news(step.aux_loss), 6))
    if step.imbalance is not None:
        parts.append(TextPart(f" | imbal {fixed(step.imbalance, 0, 2)}", news(step.imbalance), 5))
    if step.sol is not None:
        low = step.sol < 60  # Surogate: sustained below 60% may be a bottleneck
        parts.append(TextPart(f" | sol {fixed(step.sol, 4, 1)}", "yellow" if low else "", 4))
    if step.eta is not None and step.eta < 3.6e8:  # a hundred thousand hours say nothing
        parts.append(TextPart(f" | eta {clock(step.eta)}", "dim", 3))
    if phase := step.fields.get("phase"):
        parts.append(TextPart(f" | {escape(phase, 60)}", "", 8))
    return tuple(parts)


def evaluation_line(evaluation: Evaluation) -> TextLine:
    """An evaluation, with its gap to the training loss."""
    return (
        TextPart(f">> {f'eval {evaluation.name}':<25} ", "bold"),
        TextPart(f"loss {fixed(evaluation.loss, 6, 4)}", f"bold {news(evaluation.loss)}"),
        TextPart(f" | gap {fixed(evaluation.gap, 7, 4, '+')}", "bold", 1),
        TextPart(f" | {thousands(evaluation.tokens_per_second)}", "bold", 2),
        TextPart(f" | {milliseconds(evaluation.duration_ms)} ms", "bold", 3),
    )


def router_line(record: Record) -> TextLine:
    """Router statistics that came on their own."""
    names = {"aux": "aux_loss", "z": "z_loss", "util": "expert_utilization", "imbal": "load_imbalance"}
    values = (f"{short} {fixed(number(record.fields.get(name)), 0, 4)}" for short, name in names.items())
    return line(f"[M] step {record.step:5d} | " + " | ".join(values))


# -- what the machine can do -----------------------------------------------------------------------


def sol_lines(fields: Mapping[str, Any]) -> list[TextLine]:
    """The speed-of-light block: peaks of the precisions in use, FLOPs by part, tokens per second."""
    common = fields.get("dtype")
    by_part = common if isinstance(common, Mapping) else {}
    default = common if isinstance(common, str) and common else "bf16"
    kinds = {
        part: escape(fields.get(f"{part}_dtype") or by_part.get(part) or default, 20)
        for part in ("blocks", "lm_head", "attention")
    }
    shown = [line("[Speed of Light]", "bold")]
    for kind in dict.fromkeys(kinds.values()):
        name = {"fp32": "tf32", "float32": "tf32", "bfloat16": "bf16", "float16": "fp16"}.get(kind, kind)
        name = "fp8" if name.startswith(("fp8", "float8", "e4m3", "e5m2")) else name
        if kind in ("fp32", "float32") and positive(fields.get("fp32_peak")) is not None:
            name = "fp32"  # measured, or of a device without shorter products
        peak = positive(fields.get(f"{name}_peak"))  # -1 is "not known"
        if peak is not None:
            rate = f"{fixed(peak, 8, 1)} TFLOP/s" if peak >= 1 else f"{fixed(peak * 1e3, 8, 1)} GFLOP/s"
            shown.append(line(f"  {f'Peak {name.upper()}:':<11}{rate}"))
    for part, title in {"blocks": "Blocks:", "lm_head": "LM-Head:", "attention": "Attention:"}.items():
        count, unit = _flop(number(fields.get(part)))
        shown.append(line(f"  {title:<11}{count} {unit}   in {kinds[part]}"))
    tps = positive(fields.get("tps"))
    shown.append(line(f"  {'SOL:':<11}" + (f"{fixed(tps, 9, 0)} tok/s" if tps is not None else "unavailable")))
    return shown


def _flop(value: float | None) -> tuple[str, str]:
    if value is None or not math.isfinite(value) or abs(value) <= 2e9:
        return fixed(value / 1e6 if value is not None else None, 8, 1), "MFLOP"
    if abs(value) < 1e14:
        return fixed(value / 1e9, 8, 1), "GFLOP"
    return fixed(value / 1e12, 8, 1), "TFLOP"


def gpu_lines(record: Record) -> list[TextLine]:
    """One device's telemetry."""
    fields = record.fields

    def value(name: str, divisor: float = 1, width: int = 4) -> str:
        found = number(fields.get(name))
        known = finite(found) and found is not None and found >= 0 and found not in _NOT_SUPPORTED
        return fixed(found / divisor if known and found is not None else None, width, 0)

    head = f"[G] step {record.step:5d} [gpu {value('id', 1, 2)}]"
    first = (
        f"{head} | power {value('power', 1000)} W   | temp {value('temperature', 1, 3)} /"
        f"{value('temp_slowdown', 1, 3)}°C | clock {value('clock')} MHz"
    )
    second = (
        f"{' ' * len(head)} | util  {value('gpu_util')} %   | free {value('dram_free', _MEBI, 7)} MiB"
        f" | pcie {value('pcie_rx', _MEBI)} MiB/s in {value('pcie_tx', _MEBI)} MiB/s out"
    )
    throttle = fields.get("throttle")
    if isinstance(throttle, str) and throttle not in ("", "no cap", "not supported"):
        second += f" | {escape(throttle, 60)}"
    return [line(first), line(second)]


def gpu_model_lines(fields: Mapping[str, Any]) -> list[TextLine]:
    """What a device is."""
    rank, index = number(fields.get("rank")), number(fields.get("id"))
    shown = [line(f"[System {fixed(rank or 0, 0, 0)}]", "bold")]
    about = [escape(fields.get("name", "unknown device"), 100)]
    if finite(number(fields.get("sm_count"))):
        about.append(f"{fixed(number(fields['sm_count']), 0, 0)} SMs")
    if finite(number(fields.get("major"))):
        about.append(f"compute {escape(fields['major'], 9)}.{escape(fields.get('minor', 0), 9)}")
    shown.append(line(f"  Device {fixed(index or 0, 0, 0)}: " + ", ".join(about)))
    memory, free = number(fields.get("memory")), number(fields.get("free"))
    if memory is not None and finite(memory):
        used = f"{fixed((memory - free) / _MEBI, 0, 0)} MiB / " if free is not None and finite(free) else ""
        shown.append(line(f"  Memory: {used}{fixed(memory / _MEBI, 0, 0)} MiB"))
    versions = [f"{name} {escape(fields[key], 20)}" for key, name in _CUDA.items() if fields.get(key)]
    if versions:
        shown.append(line(f"  CUDA version: {', '.join(versions)}"))
    return shown


_CUDA = {"cuda_driver": "driver", "cuda_runtime": "runtime"}


def allocator_lines(fields: Mapping[str, Any]) -> list[TextLine]:
    """Memory by segment, in MiB; places that hold nothing are left out."""
    shown = []
    stats = fields.get("stats")
    for item in stats if isinstance(stats, (list, tuple)) else ():
        if not isinstance(item, Mapping):
            continue
        held = {place: positive(item.get(place)) for place in ("device", "managed", "pinned", "pageable")}
        amounts = [f"{fixed(size / _MEBI, 9, 1)} MiB {place}" for place, size in held.items() if size is not None]
        shown.append(line(f"  {escape(item.get('name', ''), 60) + ':':<14}{', '.join(amounts) or ' empty'}"))
    return shown


# -- what the run is -------------------------------------------------------------------------------


def dataset_lines(fields: Mapping[str, Any], every_file: bool) -> list[TextLine]:
    """What a split holds; the first ten of its files, or every file."""
    files, names = fields.get("files"), fields.get("file_names")
    if isinstance(files, (list, tuple, Mapping)):
        files, names = len(files), files
    if isinstance(names, Mapping):
        named = list(names.items())
    else:
        named = [(name, None) for name in names] if isinstance(names, (list, tuple)) else []
    about = [f"{_count(number(fields.get('tokens')))} tokens"]
    held = number(files)
    if finite(held):
        about.append(f"{fixed(held, 0, 0)} file{'' if held == 1 else 's'}")
    about += [f"{short} {fixed(number(fields[key]), 0, 0)}" for key, short in _POSITION.items() if key in fields]
    shown = [line(f"  {escape(fields.get('split', ''), 40) + ':':<7}{', '.join(about)}")]
    for name, given in named if every_file else named[:_FILES_SHOWN]:
        size = number(given)
        shown.append(line(f"    {escape(name, 200)}" + (f" : {fixed(size, 10, 0)}" if size is not None else "")))
    if not every_file and len(named) > _FILES_SHOWN:
        shown.append(line(f"    … and {len(named) - _FILES_SHOWN:,} more"))
    return shown


_POSITION = {"file_index": "at file", "chunk_index": "chunk", "seed": "seed"}


def _count(tokens: float | None) -> str:
    """Tokens as k, M, B or T; one decimal below 20."""
    if tokens is None or not math.isfinite(tokens):
        return fixed(tokens, 0, 0)
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if abs(tokens) >= size:
            return f"{fixed(tokens / size, 0, 1 if abs(tokens) < 20 * size else 0)}{unit}"
    return f"{tokens / 1e3:.0f}k" if abs(tokens) >= 1e3 else f"{tokens:.0f}"


def option_line(fields: Mapping[str, Any]) -> TextLine:
    """One configuration value."""
    return line(f"  {escape(fields.get('name', ''), 200)} = {escape(fields.get('value'), 400)}")


def command_line(fields: Mapping[str, Any]) -> TextLine:
    """The command that started the run."""
    words = fields.get("cmd")
    words = words if isinstance(words, (list, tuple)) else [words]
    return line("[Command] " + escape(" ".join(escape(word) for word in words)))


# -- what happens ----------------------------------------------------------------------------------


def took(milliseconds: float | None) -> str:
    """A section's duration: milliseconds below two seconds, else seconds."""
    if milliseconds is None or not math.isfinite(milliseconds):
        return "an unknown time"
    if milliseconds < 2000:
        return f"{fixed(milliseconds, 0, 0)} ms"
    return f"{fixed(milliseconds // 1000, 0, 0)} s"


def sample_lines(record: Record) -> list[TextLine]:
    """Text the model generated: its first lines, set off so that they pass for nothing else."""
    prompt = text(record.fields.get("prompt") or "")
    after = f", prompt {prompt[:60]!r}{'…' if len(prompt) > 60 else ''}" if prompt else ""
    rows = text(record.fields.get("text", "")).expandtabs(4).splitlines()
    shown = [line(f"-- sample at step {record.step}{after}", "bold")]
    shown += [line(f"   | {escape(row, _SAMPLE_WIDTH)}") for row in rows[:_SAMPLE_LINES]]
    if len(rows) > _SAMPLE_LINES:
        shown.append(line(f"   … {len(rows) - _SAMPLE_LINES:,} more lines", "dim"))
    return shown


def finding_lines(record: Record) -> list[TextLine]:
    """What is wrong, since when, why, and the first thing to do."""
    fields = record.fields
    severity = escape(fields.get("severity", ""), 20)
    colour = {"critical": "red", "warning": "yellow"}.get(severity, "")
    rule, message = escape(fields.get("rule", ""), 60), escape(fields.get("message", ""), 400)
    shown = [line(f"!! {severity} | step {record.step} | {rule}: {message}", colour)]
    for lead, name in (("because", "causes"), ("do", "remedies")):
        first = next(iter(fields[name]), "") if isinstance(fields.get(name), (list, tuple)) else ""
        if first:
            shown.append(line(f"     {lead:<8}{escape(first, 400)}"))
    return shown


def checkpoint_line(record: Record) -> TextLine:
    """A checkpoint that was saved."""
    scores = [
        f"{name} {fixed(number(record.fields[name]), 0, 4)}"
        for name in ("val_loss", "val_bpb")
        if number(record.fields.get(name)) is not None
    ]
    path = escape(record.fields.get("path", ""), 400)
    return line(f"-- checkpoint at step {record.step}: {path}" + (f" ({', '.join(scores)})" if scores else ""))


_BEGAN = {"resume": "resumed at", "rewind": "went back to", "fork": "forked at"}


def segment_line(record: Record) -> TextLine | None:
    """A resume, rewind or fork; a first start needs no line."""
    began = _BEGAN.get(str(record.fields.get("kind")))
    if began is None:
        return None
    start = number(record.fields.get("start_step"))
    at = f"{start:.0f}" if start is not None and finite(start) else str(record.step)
    return line(f"-- {began} step {at}, segment {escape(record.fields.get('segment', '?'), 20)}")


def end_line(record: Record) -> TextLine | None:
    """How the run ended, where that is news."""
    status = record.fields.get("status", "finished")
    return None if status == "finished" else line(f"-- the run ended: {escape(status, 200)}", "yellow")
