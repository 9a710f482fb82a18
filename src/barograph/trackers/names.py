"""What other trackers get of a record, under the names and in the units that the documents promise.

In:   a record, a row of wide data, or the name of a histogram.
Out:  rows of named values, configuration, texts, notes, the parts of a whole, rewinds.

Surogate's `train/…`, `eval/…`, `gpu/{id}/…` and `moe/…`, sizes in MiB where it says so; KempnerForge's
`train/grad_norm`, `smoothed/…` and `gpu/allocated_gb` beside them; of what watches the model, speedrun-mup's
`grad_norm` and `{layer}_l2_norm` and the stability guide's `gradients/{layer}/norm`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from barograph.core.record import Record, numbers

MIB = 1024.0 * 1024.0


class Row(NamedTuple):
    """Named values of one moment: numbers, and text."""

    values: dict[str, Any]


class Config(NamedTuple):
    """Options: flat or nested names."""

    values: dict[str, Any]


class Text(NamedTuple):
    """A text of many lines."""

    name: str
    content: str


class Note(NamedTuple):
    """What a person should see now; level: info, warning or critical."""

    title: str
    content: str
    level: str


class Parts(NamedTuple):
    """The parts of a whole."""

    name: str
    title: str
    parts: dict[str, float]


class Rewind(NamedTuple):
    """From this step on, what was sent before is an old branch."""

    step: int


class End(NamedTuple):
    """How a process of the run ended."""

    status: str
    rank: int = 0


Sent = Row | Config | Text | Note | Parts | Rewind | End

# what is not a number of the step, or is said by another name
_LEFT_OUT = frozenset({"log", "time", "step", "id", "at"})
# speedrun-mup's names have no family
_BARE = frozenset({"grad_norm", "param_norm", "spectral_norm_max", "spectral_norm_mean", "spectral_norm_std"})
_ACTIVATIONS = frozenset({"mean", "std", "max", "min", "l2_norm"})
_OF_FIRST = frozenset({"power", "clock"})  # of the first GPU under the documents' names too
_IN_MIB = frozenset({"dram_free", "pcie_rx", "pcie_tx"})
_MEMORY = frozenset({"allocated_gb", "peak_gb", "reserved_gb", "total_gb", "mem_utilization"})
_SPEED = {"tokens_per_second": "train/tokens_per_sec", "mfu": "train/mfu"}


def sent(record: Record) -> Iterator[Sent]:
    """What a record is to another tracker, in the order in which it is to be sent; often nothing."""
    make = _MAKERS.get(record.kind)
    if make is not None:
        yield from make(record)
        return
    values = dict(numbers(record))
    if values:
        yield Row(values)


def wide_name(name: str) -> str:
    """The name of a series of wide data, such as `gradients/{layer}/norm`; an activation's are speedrun-mup's."""
    if name.startswith("activations/"):
        layer, _, statistic = name[12:].rpartition("/")
        if layer and statistic in _ACTIVATIONS:
            return f"{layer}_{statistic}"
    return name


def _step(record: Record) -> Iterator[Sent]:
    values: dict[str, Any] = dict(numbers(record))
    if "train/norm" in values:
        values["train/grad_norm"] = values["train/norm"]  # KempnerForge's name
    for name, value in record.fields.items():
        if isinstance(value, str) and name not in _LEFT_OUT:
            values[f"train/{name}"] = value
    yield Row(values)


def _metrics(record: Record) -> Iterator[Sent]:
    values = {
        name: _number(value) if isinstance(value, (int, float)) else value
        for name, value in record.fields.items()
        if isinstance(value, (int, float, str))
    }
    if values:
        yield Row(values)


def _gpu(record: Record) -> Iterator[Sent]:
    values: dict[str, Any] = {}
    for name, value in numbers(record):
        last = name.rpartition("/")[2]
        values[name] = value / MIB if last in _IN_MIB else value
        if last in _OF_FIRST and record.fields.get("id", 0) == 0:
            values[f"gpu/{last}"] = values[name]
    for name, value in record.fields.items():
        if isinstance(value, str) and value and name not in _LEFT_OUT:
            values[f"gpu/{record.fields.get('id', 0)}/{name}"] = value
    if values:
        yield Row(values)


def _model(record: Record) -> Iterator[Sent]:
    named = ((name, name.removeprefix("model/"), value) for name, value in numbers(record))
    values = {bare if bare in _BARE else name: value for name, bare, value in named}
    if values:
        yield Row(values)


def _speed(record: Record) -> Iterator[Sent]:
    values = dict(numbers(record))
    smoothed = record.fields.get("smoothed")
    if isinstance(smoothed, Mapping):  # a step of MetricsTracker: KempnerForge's keys
        for name, value in smoothed.items():
            if isinstance(value, (int, float)):
                values.pop(f"speed/smoothed/{name}", None)
                values[f"smoothed/{name}"] = _number(value)
        for name, key in _SPEED.items():
            if f"speed/{name}" in values:
                values[key] = values[f"speed/{name}"]
        if "speed/step_ms" in values:
            values["train/step_time_sec"] = values["speed/step_ms"] / 1e3
    if values:
        yield Row(values)


def _memory(record: Record) -> Iterator[Sent]:
    values = dict(numbers(record))
    for name in _MEMORY & record.fields.keys():
        if f"memory/{name}" in values:
            values[f"gpu/{name}"] = values[f"memory/{name}"]
    if values:
        yield Row(values)


def _allocator(record: Record) -> Iterator[Sent]:
    parts: dict[str, float] = {}
    values: dict[str, Any] = {}
    stats = record.fields.get("stats")
    for segment in stats if isinstance(stats, list) else ():
        if isinstance(segment, Mapping) and isinstance(segment.get("device"), (int, float)):
            name = str(segment.get("name", ""))
            parts[name] = _number(segment["device"]) / MIB
            values[f"allocator/{name}_mib"] = parts[name]
    if values:
        yield Parts("allocations", "GPU Allocations (MiB)", parts)
        yield Row(values)


def _sol(record: Record) -> Iterator[Sent]:
    known = {name: record.fields.get(name) for name in ("blocks", "lm_head", "attention")}
    parts = {name: _number(value) for name, value in known.items() if isinstance(value, (int, float))}
    values: dict[str, Any] = {f"flops/{name}": value for name, value in parts.items()}
    values |= {name: value for name, value in numbers(record) if name.partition("/")[2] not in parts}
    if parts:
        shown = {"blocks": "Blocks", "lm_head": "LM-Head", "attention": "Attention"}
        yield Parts("ops", "FLOPs", {shown[name]: value for name, value in parts.items()})
    if values:
        yield Row(values)


def _option(record: Record) -> Iterator[Sent]:
    name = record.fields.get("name")
    if isinstance(name, str) and name:
        yield Config({name: record.fields.get("value")})


def _command(record: Record) -> Iterator[Sent]:
    words = record.fields.get("cmd")
    yield Config({"cmd": " ".join(map(str, words)) if isinstance(words, list) else str(words)})


def _gpu_model(record: Record) -> Iterator[Sent]:
    number = record.fields.get("id", record.fields.get("rank", 0))
    about = {name: value for name, value in record.fields.items() if name not in _LEFT_OUT}
    yield Config({"gpu" if number in (0, None) else f"gpu-{number}": about})


def _dataset(record: Record) -> Iterator[Sent]:
    about = {name: value for name, value in record.fields.items() if name not in _LEFT_OUT and name != "split"}
    yield Config({"dataset": {str(record.fields.get("split", "train")): about}})


def _sample(record: Record) -> Iterator[Sent]:
    prompt, content = record.fields.get("prompt"), record.fields.get("text")
    yield Text("sample", f"{prompt}\n\n{content}" if prompt else str(content))


def _checkpoint(record: Record) -> Iterator[Sent]:
    fields = {name: value for name, value in record.fields.items() if name not in _LEFT_OUT}
    yield Text("checkpoint", "\n".join(f"{name}: {value}" for name, value in fields.items()))
    values = {f"checkpoint/{name}": _number(v) for name, v in fields.items() if isinstance(v, (int, float))}
    if values:
        yield Row(values)


_SEVERITIES = {"critical": "critical", "red": "critical", "error": "critical", "info": "info"}


def _finding(record: Record) -> Iterator[Sent]:
    fields = record.fields
    if fields.get("merged") is True:
        return
    rule = str(fields.get("rule") or fields.get("kind") or "finding")
    more = [str(fields.get("message", ""))]
    for name in ("causes", "remedies"):
        found = fields.get(name)
        more += (
            [f"{name}: {item}" for item in found] if isinstance(found, list) else [f"{name}: {found}"] if found else []
        )
    level = _SEVERITIES.get(str(fields.get("severity", "")), "warning")
    yield Note(f"{rule} at step {record.step}", "\n".join(filter(None, more)), level)


def _out_of_memory(record: Record) -> Iterator[Sent]:
    yield Note(f"out of memory at step {record.step}", str(record.fields.get("error", ""))[:2000], "critical")
    values = dict(numbers(record))
    if values:
        yield Row(values)


def _standstill(record: Record) -> Iterator[Sent]:
    if record.fields.get("resumed"):
        return
    waited = record.fields.get("waited_seconds")
    shown = f" for {waited:.0f} s" if isinstance(waited, (int, float)) and math.isfinite(waited) else ""
    yield Note(f"no step came{shown} after step {record.step}", "every thread's stack is in the run's log", "critical")


def _straggler(record: Record) -> Iterator[Sent]:
    told = ", ".join(f"{name} {value}" for name, value in record.fields.items() if isinstance(value, (int, float, str)))
    yield Note(f"a rank that the others wait for at step {record.step}", told, "warning")


def _segment(record: Record) -> Iterator[Sent]:
    start = record.fields.get("start_step")
    if record.fields.get("kind") in ("rewind", "resume") and isinstance(start, int) and start > 0:
        yield Rewind(start)


def _end(record: Record) -> Iterator[Sent]:
    rank = record.fields.get("rank")
    yield End(str(record.fields.get("status", "")), rank if isinstance(rank, int) else 0)


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


_MAKERS: dict[str, Callable[[Record], Iterator[Sent]]] = {
    "step": _step,
    "metrics": _metrics,
    "gpu": _gpu,
    "model": _model,
    "speed": _speed,
    "memory": _memory,
    "allocator": _allocator,
    "sol": _sol,
    "option": _option,
    "cmd": _command,
    "gpu-model": _gpu_model,
    "dataset": _dataset,
    "sample": _sample,
    "checkpoint": _checkpoint,
    "finding": _finding,
    "oom": _out_of_memory,
    "stacks": _standstill,
    "hang": _standstill,
    "straggler": _straggler,
    "segment": _segment,
    "end": _end,
}
