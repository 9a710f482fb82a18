"""Trainings as trackers and scripts keep them: tables, JSON, events.

In:   a `Training`, the path to write.
Out:  the file, or the folder of TensorBoard's events.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from logs.curves import Training
from logs.text import TRAINER_NAMES

EVENTS_BEGIN = 1_700_000_000.0  # seconds since 1970


def rows_of(one: Training) -> Iterator[dict[str, Any]]:
    """Each row by names, with `val_loss` where there was an evaluation; numbers of ten digits."""
    for row, step in enumerate(one.step.tolist()):
        numbers = {one.loss_name: one.loss[row]} | {name: values[row] for name, values in one.columns.items()}
        made: dict[str, Any] = {"step": step} | {name: float(f"{value:.10g}") for name, value in numbers.items()}
        if step in one.evaluations:
            made["val_loss"] = float(f"{one.evaluations[step][1]:.10g}")
        yield made


def write_table(path: Path, header: list[str], rows: Iterator[dict[str, Any]], missing: str = "") -> None:
    """A file of comma-separated values; missing: what a cell without a value holds."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, header, restval=missing, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def step_table(one: Training, path: Path, missing: str = "") -> None:
    """A table with a row a step; cells of evaluations that were not made are empty."""
    names = ["step", one.loss_name, *one.columns] + ["val_loss"] * bool(one.evaluations)
    write_table(path, names, rows_of(one), missing)


def filled_table(one: Training, path: Path) -> None:
    """The same with `nan` in the empty cells, as pandas can be asked to write them."""
    step_table(one, path, "nan")


def epoch_table(one: Training, path: Path) -> None:
    """A table with a row an epoch."""
    rows = ({"epoch" if name == "step" else name: value for name, value in row.items()} for row in rows_of(one))
    write_table(path, ["epoch", "loss", *one.columns, "val_loss"], rows)


def json_lines(one: Training, path: Path) -> None:
    """An object a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows_of(one)))


def lightning(one: Training, path: Path) -> None:
    """Lightning's CSVLogger: learning rate, training and evaluation in rows of their own."""

    def rows() -> Iterator[dict[str, Any]]:
        for row in rows_of(one):
            epoch = int(one.epochs * row["step"] / (one.step[-1] + 1))
            yield {"epoch": epoch, "step": row["step"], "train_loss": row["loss"]}
            if "lr" in row:
                yield {"lr-AdamW": row["lr"], "step": row["step"]}
            if "val_loss" in row:
                yield {"epoch": epoch, "step": row["step"], "val_loss": row["val_loss"]}

    write_table(path, ["epoch", "lr-AdamW", "step", "train_loss", "val_loss"], rows())


def wandb_export(one: Training, path: Path) -> None:
    """A chart's export from the page of Weights & Biases."""
    name = "run-a1 - train/loss"
    lines = [f'"Step","{name}","{name}__MIN","{name}__MAX"']
    for row in rows_of(one):
        lines.append(f'"{row["step"]}"' + f',"{row["loss"]}"' * 3)
    path.write_text("\n".join(lines) + "\n")


def trainer_state(one: Training, path: Path) -> None:
    """Hugging Face's trainer_state.json."""
    total = int(one.step[-1])
    history: list[dict[str, Any]] = []
    for row, step in enumerate(one.step.tolist()):
        epoch = {"epoch": round(one.epochs * step / max(total, 1), 4)}
        columns = {TRAINER_NAMES.get(name, name): float(values[row]) for name, values in one.columns.items()}
        history.append(epoch | {"loss": round(float(one.loss[row]), 4)} | columns | {"step": step})
        if step in one.evaluations:
            history.append(epoch | {"eval_loss": one.evaluations[step][1], "eval_runtime": 12.3, "step": step})
    history.append({"epoch": one.epochs, "step": total, "train_loss": 1.0, "train_runtime": 3600.0})
    state = {
        "epoch": one.epochs,
        "global_step": total,
        "is_world_process_zero": True,
        "log_history": history,
        "logging_steps": int(one.step[1] - one.step[0]),
        "max_steps": total,
        "num_train_epochs": one.epochs,
        "train_batch_size": 4,
    }
    path.write_text(json.dumps(state, indent=2))


def llama_factory(one: Training, path: Path) -> None:
    """LLaMA-Factory's trainer_log.jsonl."""
    total, rates = int(one.step[-1]), one.column("lr", 1e-4)
    lines = []
    for row, step in enumerate(one.step.tolist()):
        part = step / max(total, 1)
        passed = f"{step // 3600}:{step // 60 % 60:02d}:{step % 60:02d}"
        progress = {"epoch": round(one.epochs * part, 4), "percentage": round(100 * part, 2), "elapsed_time": passed}
        begin = {"current_steps": step, "total_steps": total}
        loss = {"loss": round(float(one.loss[row]), 4), "lr": float(rates[row])}
        lines.append(json.dumps(begin | loss | progress | {"remaining_time": "0:10:00"}))
        if step in one.evaluations:
            evaluated = {"eval_loss": one.evaluations[step][1]}
            lines.append(json.dumps(begin | evaluated | progress | {"remaining_time": "0:10:00"}))
    path.write_text("\n".join(lines) + "\n")


def tensorboard(one: Training, path: Path) -> None:
    """TensorBoard's events, a second a row, named as trackers name them: `train/loss`, `val/loss`."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    names = {"lr": "train/learning_rate", "grad_norm": "train/grad_norm", "loss": "train/loss", "val_loss": "val/loss"}
    writer = EventFileWriter(str(path))
    for at, row in enumerate(rows_of(one)):
        step = row.pop("step")
        values = [Summary.Value(tag=names.get(name, name), simple_value=value) for name, value in row.items()]
        writer.add_event(Event(step=step, wall_time=EVENTS_BEGIN + at, summary=Summary(value=values)))
    writer.close()
