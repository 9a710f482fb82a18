"""More programs' ways to print a training: one function each.

In:   a `Training`.
Out:  the lines of its log.
"""

from __future__ import annotations

import json
import math

from logs.curves import Training
from logs.text import clock

BATCHES = 120  # of an epoch, in formats that count anew in each


def losses_first(one: Training) -> list[str]:
    """The loss, then the step, and the speed on lines between."""
    lines = []
    for row, step in enumerate(one.step.tolist()):
        lines.append(f"INFO:tensorflow:loss = {one.loss[row]:.7g}, step = {step} (4.{row % 1000:03d} sec)")
        if row % 10 == 9:
            lines.append(f"INFO:tensorflow:global_step/sec: 22.{row % 997:03d}")
        if step in one.evaluations:
            lines.append(
                f"INFO:tensorflow:Saving dict for global step {step}: global_step = {step}, "
                f"loss = {one.evaluations[step][1]:.7g}"
            )
        lines += one.said.get(step, [])
    return lines


def completed(one: Training) -> list[str]:
    """What was done in a step, its speed, and the loss behind."""
    times = one.column("milliseconds", 1200.0)
    lines = ["Memstats: After params initialized:", "number parameters: 1.104 billion"]
    for row, step in enumerate(one.step.tolist()):
        seconds = times[row] / 1000
        lines.append(
            f"completed step: {step}, seconds: {seconds:.3f}, TFLOP/s/device: {218.2 / seconds:.3f}, "
            f"Tokens/s/device: {9830.4 / seconds:.3f}, total_weights: 65536, loss: {one.loss[row]:.3f}"
        )
        if step in one.evaluations:
            lines.append(
                f"eval metrics after step: {step}, loss={one.evaluations[step][1]:.3f}, total_weights=524288.0"
            )
    return lines + one.last_words


def keyed(one: Training) -> list[str]:
    """Keys and values behind a time, a level and a message; every column."""
    lines = []
    for row, step in enumerate(one.step.tolist()):
        columns = " ".join(f"{name}={values[row]:.6g}" for name, values in one.columns.items())
        head = f'time="2025-03-11T{clock(row)}Z" level=info msg=train'
        lines.append(f"{head} step={step} {one.loss_name}={one.loss[row]:.6g} {columns}".rstrip())
        if step in one.evaluations:
            head = head.replace("msg=train", "msg=eval")
            lines.append(f"{head} step={step} eval_loss={one.evaluations[step][1]:.6g}")
    return lines + one.last_words


def json_messages(one: Training) -> list[str]:
    """An object a line, with the values in one of their own."""
    lines = []
    for row, step in enumerate(one.step.tolist()):
        values = {one.loss_name: float(f"{one.loss[row]:.7g}")}
        values |= {name: float(f"{column[row]:.6g}") for name, column in one.columns.items()}
        at = {"ts": 1_741_690_000.5 + row, "level": "INFO", "event": "train"}
        lines.append(json.dumps(at | {"step": step, "metrics": values}))
        if step in one.evaluations:
            seen = {"step": step, "metrics": {"eval_loss": float(f"{one.evaluations[step][1]:.7g}")}}
            lines.append(json.dumps(at | {"event": "eval"} | seen))
    return lines


def pipeline(one: Training) -> list[str]:
    """Epoch and iteration, and every value behind a bar."""
    total = int(one.step[-1])
    rates = one.column("lr", 6e-4)
    return [
        f"Training epoch 0, iteration {step}/{total} | lr: {rates[row]:.4g} | global_batch_size: 256 | "
        f"global_step: {step} | reduced_train_loss: {one.loss[row]:.4g} | train_step_timing in s: 1.2{row % 10} | "
        f"consumed_samples: {(step + 1) * 256}"
        + (f" | val_loss: {one.evaluations[step][1]:.4g}" if step in one.evaluations else "")
        for row, step in enumerate(one.step.tolist())
    ] + one.last_words


def batches_of_epochs(one: Training) -> list[str]:
    """Batches that begin anew with each epoch, with their share; value and average."""
    lines, total, rates = [], 0.0, one.column("lr", 1e-3)
    for row in range(one.rows):
        epoch, batch = divmod(row, BATCHES)
        total = one.loss[row] if batch == 0 else total + one.loss[row]
        lines.append(
            f"Train: {epoch} [{batch * 10:>4d}/{BATCHES * 10} ({100 * batch // BATCHES:>3d}%)]  "
            f"Loss: {one.loss[row]:#.4g} ({total / (batch + 1):#.3g})  Time: 0.312s, 1641.02/s  LR: {rates[row]:.3e}"
        )
    return lines


def epochs_said(one: Training) -> list[str]:
    """An epoch a line, with loss and accuracy of both sets in percent."""
    mine, its = one.column("accuracy", 0.5), one.column("val_accuracy", 0.5)
    return [
        f"epoch {row + 1:3d}: train loss {one.loss[row]:.4f} acc {100 * mine[row]:.2f}% | "
        f"val loss {one.evaluations[step][1]:.4f} acc {100 * its[row]:.2f}%"
        for row, step in enumerate(one.step.tolist())
    ]


def epochs_below(one: Training) -> list[str]:
    """A heading an epoch, and its values on lines below."""
    mine, its = one.column("accuracy", 0.5), one.column("val_accuracy", 0.5)
    lines = []
    for row, step in enumerate(one.step.tolist()):
        lines += [f"Epoch {row + 1}/{one.rows}", "-" * 10, f"train Loss: {one.loss[row]:.4f} Acc: {mine[row]:.4f}"]
        lines += [f"val Loss: {one.evaluations[step][1]:.4f} Acc: {its[row]:.4f}", ""]
    return lines


def epochs_short(one: Training) -> list[str]:
    """The training loss of each epoch and nothing else."""
    return [f"Epoch: {row + 1:03d}, Loss: {one.loss[row]:.5f}, Time: 3.2s" for row in range(one.rows)]


def validations(one: Training) -> list[str]:
    """Evaluations alone, with their perplexity."""
    lines = []
    for step, (_, seen) in one.evaluations.items():
        perplexity = math.exp(min(50.0, seen)) if math.isfinite(seen) else seen
        lines.append(f"[eval] step {step}: val_loss {seen:.4f}, val_ppl {perplexity:.2f}, took 31.2s")
        lines += one.said.get(step, [])
    return lines


def perplexities(one: Training) -> list[str]:
    """Perplexity instead of the loss."""
    rates = one.column("lr", 1e-3)
    return [
        f"| step {step:6d} | lr {rates[row]:.2e} | ms/batch 41.20 | ppl {math.exp(min(80.0, one.loss[row])):10.2f} |"
        for row, step in enumerate(one.step.tolist())
    ]


def updates(one: Training) -> list[str]:
    """A table of dashes an update, with headings for its parts, as policies' libraries print."""
    lines = []
    for row, step in enumerate(one.step.tolist()):
        rows: list[tuple[str, str]] = [("rollout/", "")]
        rows += [(f"   {name}", f"{one.columns[name][row]:.3g}") for name in ("ep_len_mean", "ep_rew_mean")]
        rows += [("time/", ""), ("   iterations", str(row + 1)), ("   total_timesteps", str(step)), ("train/", "")]
        others = [name for name in one.columns if not name.startswith("ep_")]
        rows += [(f"   {name}", f"{one.columns[name][row]:.6g}") for name in others]
        rows.append(("   loss", f"{one.loss[row]:.4g}"))
        lines += ["-" * 42, *(f"| {name:<22} | {value:<13} |" for name, value in rows), "-" * 42]
    return lines


def adversarial(one: Training) -> list[str]:
    """Epoch and batch in brackets, the losses of both players, what the critic says."""
    other = one.column("g_loss", 1.0)
    return [
        f"[{row // BATCHES}/25][{row % BATCHES}/{BATCHES}] Loss_D: {one.loss[row]:.4f} Loss_G: {other[row]:.4f} "
        f"D(x): {0.5 + 0.1 * (row % 7) / 7:.4f}"
        for row in range(one.rows)
    ]


def words(one: Training) -> list[str]:
    """A text that is no training."""
    return one.last_words
