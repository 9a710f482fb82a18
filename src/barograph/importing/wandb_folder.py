"""The files beside a `.wandb` file: configuration, summary, console output, what the machine was.

In:   a folder of an offline run, `offline-run-…` or `run-…`.
Out:  the configuration; facts, for runs whose `.wandb` file lacks them or is broken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from barograph.importing.event_values import is_moderate
from barograph.importing.source import Fact, Unread

RUN_FOLDER = re.compile(r"(?:offline-)?run-\d{8}_\d{6}-(\w+)")
_LARGEST = 8 << 20  # bytes of a file of JSON
_LARGEST_YAML = 512 << 10  # bytes; reading YAML takes seconds a megabyte


def wandb_files(folder: Path) -> list[Path]:
    """The `.wandb` files in a folder."""
    try:
        return sorted(path for path in folder.glob("*.wandb") if path.is_file())
    except OSError:
        return []


def is_run_folder(folder: Path) -> bool:
    """Whether a folder is one run: it has a `.wandb` file, or W&B's name and files."""
    return bool(wandb_files(folder)) or (
        RUN_FOLDER.fullmatch(folder.resolve().name) is not None and (folder / "files").is_dir()
    )


def _read(path: Path, largest: int = _LARGEST) -> str:
    try:
        if path.is_file() and path.stat().st_size <= largest:
            return path.read_text("utf-8", "replace")
    except OSError:
        pass
    return ""


def _read_object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_read(path) or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration in files/config.yaml, or config.yaml beside the run."""
    for path in (folder / "files" / "config.yaml", folder / "config.yaml"):
        text = _read(path, _LARGEST_YAML)
        if not text:
            continue
        try:
            import yaml

            found = yaml.safe_load(text)
        except Exception:  # a broken file beside the log costs the configuration, not the run
            continue
        if isinstance(found, dict) and is_moderate(found):
            return unwrap_config(found)
    return {}


def unwrap_config(config: Mapping[Any, Any]) -> dict[str, Any]:
    """Names and values, out of W&B's `{"lr": {"desc": …, "value": …}}`, less its own."""
    result = {}
    for name, value in config.items():
        if name in ("_wandb", "wandb_version"):
            continue
        wrapped = isinstance(value, Mapping) and "value" in value and set(value) <= {"value", "desc"}
        result[str(name)] = value["value"] if wrapped else value
    return result


def read_summary(folder: Path) -> dict[str, Any]:
    """The last values in wandb-summary.json."""
    return _read_object(folder / "files" / "wandb-summary.json") or _read_object(folder / "wandb-summary.json")


def read_metadata(folder: Path) -> Iterator[Fact]:
    """The command line and the devices in wandb-metadata.json."""
    found = _read_object(folder / "files" / "wandb-metadata.json") or _read_object(folder / "wandb-metadata.json")
    if found:
        program, args = found.get("program") or found.get("codePath"), found.get("args")
        devices = found.get("gpu_nvidia") or found.get("gpu_amd") or found.get("gpu_devices")
        yield from make_machine_facts(
            str(program or ""),
            [str(argument) for argument in args] if isinstance(args, list) else [],
            [device for device in devices if isinstance(device, dict)] if isinstance(devices, list) else [],
            0,
        )


def make_machine_facts(program: str, args: list[str], devices: list[dict[str, Any]], time: int) -> Iterator[Fact]:
    """`cmd` and `gpu-model` records."""
    if program:
        yield Fact("cmd", 0, time, {"cmd": " ".join([program, *args])})
    for number, device in enumerate(devices):
        fields: dict[str, Any] = {"id": number, "name": str(device.get("name", ""))}
        memory = device.get("memoryTotal", device.get("memory_total"))
        try:
            if memory is not None:
                fields["memory"] = int(memory)
        except (TypeError, ValueError, OverflowError):
            pass
        yield Fact("gpu-model", 0, time, fields)


def read_output(folder: Path, offset: int, step: int) -> Iterator[Fact | int]:
    """Console lines in output.log from `offset` on, and where reading ended; the last line once it is whole."""
    for path in (folder / "files" / "output.log", folder / "output.log"):
        if not path.is_file():
            continue
        with path.open("rb") as file:
            file.seek(offset)
            while line := file.readline(1 << 20):
                if not line.endswith(b"\n") and len(line) < 1 << 20:
                    break
                offset += len(line)
                text = shown_line(line.decode("utf-8", "replace"))
                if text:
                    yield Fact("info", step, 0, {"type": "output", "message": text})
        break
    yield offset


def shown_line(text: str) -> str:
    """What a terminal shows of a line at its end: what stands behind the last carriage return."""
    return text.rstrip("\r\n").rpartition("\r")[2].rstrip()


def read_old_history(folder: Path) -> Iterator[dict[str, Any] | Unread]:
    """Rows of wandb-history.jsonl, which W&B wrote before there were `.wandb` files."""
    path = folder / "wandb-history.jsonl"
    if not path.is_file():
        path = folder / "files" / "wandb-history.jsonl"
    if not path.is_file():
        return
    with path.open("rb") as file:
        number = 0
        while line := file.readline(_LARGEST):
            number += 1
            try:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError
            except (ValueError, RecursionError):
                yield Unread(path, number, line[:80].decode("utf-8", "replace"), "no JSON object")
            else:
                yield row
