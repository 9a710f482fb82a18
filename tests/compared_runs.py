"""Runs for the tests of comparisons, written as files: fast, and as a recorder leaves them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from barograph.analysis.compare.comparison import Comparison
from barograph.core.record import format_time
from barograph.query.stored import StoredRun

START = 1_767_225_600_000_000  # µs: 2026-01-01


def falling(final: float, seed: int, noise: float = 0.02) -> Callable[[int], float]:
    """A loss that falls to a final value, with the noise of its batches."""
    random = np.random.default_rng(seed)
    return lambda step: float(final + 4 * np.exp(-step / 25) + random.standard_normal() * noise)


def make_run(
    root: Path,
    name: str,
    loss: Callable[[int], float] | None = None,
    *,
    project: str = "p",
    steps: int = 200,
    first: int = 1,
    every: int = 1,
    config: Mapping[str, Any] | None = None,
    evaluate: Callable[[int], float] | None = None,
    eval_every: int = 50,
    tokens: int | None = 4096,
    seconds: float = 0.5,
    about: Mapping[str, Any] | None = None,
    extra: Callable[[int], Mapping[str, float]] | None = None,
    records: list[dict[str, Any]] | None = None,
    metric: str = "loss",
) -> StoredRun:
    """A finished run. loss, evaluate: the value at a step. extra: more numbers of a step, by their series' names."""
    folder = root / project / name
    (folder / "segments").mkdir(parents=True)
    segment = {"segment": 1, "kind": "start", "start_step": None, "parent": None, "time": START}
    (folder / "segments" / "0001.json").write_text(json.dumps(segment))
    known = {"id": name, "name": name, "project": project, "status": "finished", "world_size": 1, "config": config}
    manifest = {key: value for key, value in (known | dict(about or {})).items() if value is not None}
    (folder / "run_manifest.json").write_text(json.dumps(manifest))
    rows = [dict(one) for one in records or ()]
    for step in range(first, first + steps, every):
        time = format_time(START + int(step * seconds * 1e6))
        row: dict[str, Any] = {"log": "step", "time": time, "step": step}
        if loss is not None:
            row[metric] = _plain(loss(step))
        if tokens is not None:
            row["step_tokens"] = tokens
        rows.append(row)
        if extra is not None:
            rows.append({"log": "metrics", "time": time, "step": step} | {k: _plain(v) for k, v in extra(step).items()})
        if evaluate is not None and step % eval_every == 0:
            rows.append({"log": "eval", "time": time, "step": step, "loss": _plain(evaluate(step))})
    for row in rows:
        row.setdefault("time", format_time(START))
        row.setdefault("step", 0)
    (folder / "training.json").write_text("[" + ",\n".join(json.dumps(row) for row in rows) + "]")
    return StoredRun(folder)


def _plain(value: float) -> Any:
    if value != value:
        return "NaN"
    return value


CONFIG = {"optimizer": {"lr": 1e-3, "weight_decay": 0.1}, "batch_size": 32, "block_size": 128, "seed": 1}


def changed(**changes: Any) -> dict[str, Any]:
    config = {**CONFIG, "optimizer": dict(CONFIG["optimizer"])}  # type: ignore[call-overload]
    for key, value in changes.items():
        if key in ("lr", "weight_decay"):
            config["optimizer"][key] = value
        else:
            config[key] = value
    return config


def seeds_of(root: Path, name: str, final: float, config: dict[str, Any], seeds: range, spread: float = 0.01) -> None:
    for seed in seeds:
        shift = float(np.random.default_rng((seed, 7)).standard_normal()) * spread
        make_run(root, f"{name}_{seed}", falling(final + shift, seed), config=config | {"seed": seed}, steps=60)


def said(made: Comparison) -> str:
    return " ".join([*made.verdict.sentences, *(one.sentence for one in made.refusals), *made.notes, *made.cautions])


def row(made: Comparison, name: str) -> list[float | None]:
    found = min((one for one in made.rows if one.name.startswith(name)), key=lambda one: one.name != name)
    return [cell.value if cell is not None else None for cell in found.cells]
