"""W&B's records that are not rows: the run, its configuration, system metrics, console output, its end.

In:   one record of a `.wandb` file, or the beginning of one.
Out:  plain values.

Field numbers: `wandb_internal.proto` of W&B (MIT), the same from 0.10 to 0.31.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from barograph.importing.protobuf import BYTES, VARINT, read_fields, read_text, read_timestamp, signed
from barograph.importing.wandb_rows import read_update

HISTORY, SUMMARY, OUTPUT, CONFIG, STATS, ALERT, METRIC, OUTPUT_RAW = 2, 3, 4, 5, 7, 10, 12, 13
RUN, EXIT, PREEMPTING, ENVIRONMENT = 17, 18, 23, 26


class RunRecord(NamedTuple):
    """Who a run is. `created`: microseconds since 1970."""

    run_id: str = ""
    project: str = ""
    name: str = ""
    notes: str = ""
    tags: tuple[str, ...] = ()
    config: Mapping[str, Any] = MappingProxyType({})
    created: int = 0


def record_parts(data: bytes, start: int, stop: int) -> list[tuple[int, int, int]]:
    """A record's messages: field number, and where each begins and ends. Raises `Malformed`."""
    return [(number, a, b) for number, wire, a, b in read_fields(data, start, stop) if wire == BYTES]


def read_run(data: bytes, start: int, stop: int) -> RunRecord:
    texts: dict[int, str] = {}
    tags: list[str] = []
    config: dict[str, Any] = {}
    created = 0
    for number, wire, first, last in read_fields(data, start, stop):
        if wire != BYTES:
            continue
        if number in (1, 3, 8, 9):
            texts[number] = read_text(data, first, last)
        elif number == 10:
            tags.append(read_text(data, first, last))
        elif number == 4:
            config = read_config_update(data, first, last)
        elif number == 17:
            created = read_timestamp(data, first, last)
    run_id, project, name, notes = (texts.get(number, "") for number in (1, 3, 8, 9))
    return RunRecord(run_id, project, name, notes, tuple(tags), config, created)


def read_config_update(data: bytes, start: int, stop: int) -> dict[str, Any]:
    """A `ConfigRecord`: new values by name, nested where the name is; W&B's own left out."""
    result: dict[str, Any] = {}
    for path, value in read_update(data, start, stop):
        if not path or path[0] == "_wandb" or len(path) > 30:
            continue
        here = result
        for part in path[:-1]:
            below = here.setdefault(part, {})
            if not isinstance(below, dict):
                below = here[part] = {}
            here = below
        here[path[-1]] = value
    return result


def read_stats(data: bytes, start: int, stop: int) -> tuple[int, dict[str, float]]:
    """A `StatsRecord`: microseconds since 1970, and system metrics by W&B's names behind `system/`."""
    time = 0
    values: dict[str, float] = {}
    for number, wire, first, last in read_fields(data, start, stop):
        if number == 2 and wire == BYTES:
            time = read_timestamp(data, first, last)
    for path, value in read_update(data, start, stop, field=3):
        name = "system/" + ".".join(path)
        pairs = [(name, value)]
        if isinstance(value, dict):
            pairs = [(f"{name}.{key}", item) for key, item in value.items()]
        values |= {key: float(item) for key, item in pairs if isinstance(item, (int, float)) and abs(item) < 1e300}
    return time, values


def read_output_record(data: bytes, start: int, stop: int) -> tuple[str, int, str]:
    """Console output: "stdout" or "stderr", microseconds since 1970, text."""
    stream, time, text = "stderr", 0, ""
    for number, wire, first, last in read_fields(data, start, stop):
        if number == 1 and wire == VARINT:
            stream = "stdout" if first == 1 else "stderr"
        elif number == 2 and wire == BYTES:
            time = read_timestamp(data, first, last)
        elif number == 3 and wire == BYTES:
            text = read_text(data, first, last)
    return stream, time, text


def read_metric(data: bytes, start: int, stop: int) -> tuple[str, str, str]:
    """`define_metric`: a name or a glob, and its step metric."""
    texts = {n: read_text(data, a, b) for n, w, a, b in read_fields(data, start, stop) if n in (1, 2, 4) and w == BYTES}
    return texts.get(1, ""), texts.get(2, ""), texts.get(4, "")


def read_alert(data: bytes, start: int, stop: int) -> str:
    texts = {n: read_text(data, a, b) for n, w, a, b in read_fields(data, start, stop) if n in (1, 2) and w == BYTES}
    return ": ".join(text for text in (texts.get(1), texts.get(2)) if text)


def read_exit(data: bytes, start: int, stop: int) -> dict[str, Any]:
    """How a run ended: the fields of an `end` record."""
    numbers = {n: signed(a) for n, w, a, _ in read_fields(data, start, stop) if w == VARINT}
    fields: dict[str, Any] = {"status": "failed" if numbers.get(1) else "finished", "exit_code": numbers.get(1, 0)}
    if numbers.get(2):
        fields["wall_seconds"] = numbers[2]
    return fields


def read_environment(data: bytes, start: int, stop: int) -> tuple[str, list[str], list[dict[str, Any]]]:
    """An `EnvironmentRecord`: program, arguments, devices."""
    program, args = "", []
    devices: list[dict[str, Any]] = []
    for number, wire, first, last in read_fields(data, start, stop):
        if wire != BYTES:
            continue
        if number == 5:
            args.append(read_text(data, first, last))
        elif number == 6:
            program = read_text(data, first, last)
        elif number in (24, 26):  # gpu_nvidia, gpu_amd
            devices.append(_read_device(data, first, last, number))
    return program, args, devices


def _read_device(data: bytes, start: int, stop: int, kind: int) -> dict[str, Any]:
    """GpuNvidiaInfo: name 1, memory_total 2. GpuAmdInfo: series 8."""
    device: dict[str, Any] = {}
    for number, wire, first, last in read_fields(data, start, stop):
        if kind == 24 and number == 1 and wire == BYTES:
            device["name"] = read_text(data, first, last)
        elif kind == 24 and number == 2 and wire == VARINT:
            device["memory_total"] = first
        elif kind == 26 and number == 8 and wire == BYTES:
            device["name"] = read_text(data, first, last)
    return device
