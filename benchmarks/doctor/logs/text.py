"""Trainings as public programs print them: one function a program.

In:   a `Training`.
Out:  the lines of its log.
"""

from __future__ import annotations

import math

import numpy as np

from logs.curves import Training

BATCH_TOKENS = 524_288
NANOGPT_HEAD = [
    "Overriding: dataset = openwebtext",
    "tokens per iteration will be: 491,520",
    "found vocab_size = 50304 (inside data/meta.pkl)",
    "Initializing a new model from scratch",
    "number of parameters: 123.59M",
    "using fused AdamW: True",
    "compiling the model... (takes a ~minute)",
]
# modded-nanogpt begins its log with its own source
MODDED_HEAD = [
    "=" * 100,
    "import os",
    "import sys",
    "with open(sys.argv[0]) as f:",
    "    code = f.read() # read the code of this file ASAP, for logging",
    "import torch",
    "for step in range(args.num_iterations + 1):",
    '    print0(f"step:{step}/{args.num_iterations} val_loss:{val_loss:.4f} train_time:{training_time_ms:.0f}ms")',
    "    if not math.isfinite(loss): raise ValueError('loss is nan')",
    "=" * 100,
    "Running pytorch 2.6.0.dev20241119+cu124 compiled for CUDA 12.4",
]


def clock(row: int) -> str:
    """A time of day that passes by a second a row."""
    return f"{row // 3600 % 24:02d}:{row // 60 % 60:02d}:{row % 60:02d}"


def perplexity(loss: float, base: float) -> float:
    """What a program prints beside a loss, NaN and infinity included."""
    return float(base ** min(60.0, loss)) if math.isfinite(loss) else loss


def nanogpt(one: Training) -> list[str]:
    """nanoGPT's train.py."""
    lines = list(NANOGPT_HEAD)
    times = one.column("milliseconds", 250.0)
    for row, step in enumerate(one.step.tolist()):
        evaluated = one.evaluations.get(step)
        if evaluated:
            lines.append(f"step {step}: train loss {evaluated[0]:.4f}, val loss {evaluated[1]:.4f}")
            lines += ["saving checkpoint to out"] * (row > 0)
        took = times[row] * (12 if evaluated and row else 1)
        used = -100.0 if row == 0 else 35 + row * 37 % 100 / 100
        lines.append(f"iter {step}: loss {one.loss[row]:.4f}, time {took:.2f}ms, mfu {used:.2f}%")
        lines += one.said.get(step, [])
    return lines + one.last_words


def build_nanogpt(one: Training) -> list[str]:
    """The program of the lecture "Let's reproduce GPT-2"."""
    lines = [
        "using device: cuda",
        f"total desired batch size: {BATCH_TOKENS}",
        "=> calculated gradient accumulation steps: 32",
    ]
    rates, norms, times = one.column("lr", 6e-4), one.column("grad_norm", 0.3), one.column("milliseconds", 330.0)
    for row, step in enumerate(one.step.tolist()):
        if step in one.evaluations:
            lines.append(f"validation loss: {one.evaluations[step][1]:.4f}")
        lines.append(
            f"step {step:5d} | loss: {one.loss[row]:.6f} | lr {rates[row]:.4e} | norm: {norms[row]:.4f} | "
            f"dt: {times[row]:.2f}ms | tok/sec: {BATCH_TOKENS / times[row] * 1000:.2f}"
        )
        lines += one.said.get(step, [])
    return lines + one.last_words


def llm_c(one: Training) -> list[str]:
    """llm.c's main.log."""
    lines = []
    rates, norms = one.column("lr", 6e-4), one.column("grad_norm", 0.3)
    for row, step in enumerate(one.step.tolist()):
        if step in one.evaluations:
            lines.append(f"s:{step} tel:{one.evaluations[step][1]:.4f}")
        lines.append(f"s:{step} trl:{one.loss[row]:.4f} lr:{rates[row]:.6f} norm:{norms[row]:.2f}")
    return lines


def modded_nanogpt(one: Training) -> list[str]:
    """modded-nanogpt's records, which begin with the source."""
    lines = list(MODDED_HEAD)
    total, passed = int(one.step[-1]), 0.0
    times = one.column("milliseconds", 150.0)
    for row, step in enumerate(one.step.tolist()):
        passed += times[row]
        timing = f"train_time:{passed:.0f}ms step_avg:{passed / max(step, 1):.2f}ms"
        if step in one.evaluations:
            lines.append(f"step:{step}/{total} val_loss:{one.evaluations[step][1]:.4f} {timing}")
        lines.append(f"step:{step + 1}/{total} train_loss:{one.loss[row]:.4f} {timing}")
    return lines


def megatron(one: Training) -> list[str]:
    """Megatron-LM."""
    total = int(one.step[-1])
    lines = [
        "using world size: 8, data-parallel-size: 2, tensor-model-parallel size: 4",
        "setting global batch size to 256",
        " > padded vocab (size: 50257) with 47 dummy tokens (new size: 50304)",
    ]
    rates, norms, times = one.column("lr", 6e-4), one.column("grad_norm", 0.3), one.column("milliseconds", 800.0)
    scales, skipped = one.column("loss_scale", 1.0), one.column("skipped", 0.0)
    for row, step in enumerate(one.step.tolist()):
        lines.append(
            f" [2024-05-01 {clock(row)}] iteration {step:8d}/{total:8d} | consumed samples: {step * 256:12d} | "
            f"elapsed time per iteration (ms): {times[row]:.1f} | learning rate: {rates[row]:.6E} | "
            f"global batch size:   256 | lm loss: {one.loss[row]:.6E} | loss scale: {scales[row]:.1f} | "
            f"grad norm: {norms[row]:.3f} | number of skipped iterations: {skipped[row]:3.0f} | "
            "number of nan iterations:   0 |"
        )
        if step in one.evaluations:
            loss = one.evaluations[step][1]
            rule = "-" * 100
            named = f" validation loss at iteration {step} | lm loss value: {loss:.6E}"
            lines += [rule, f"{named} | lm loss PPL: {perplexity(loss, math.e):.6E} | ", rule]
        lines += one.said.get(step, [])
    return lines + one.last_words


def torchtitan(one: Training) -> list[str]:
    """torchtitan, one rank's lines."""
    lines = ["[rank0]:2024-11-01 10:00:00,123 - root - INFO - Starting job: Llama 3 8B training"]
    norms, times = one.column("grad_norm", 0.3), one.column("milliseconds", 1000.0)
    usual = float(np.median(times))
    for row, step in enumerate(one.step.tolist()):
        speed = usual / times[row]
        lines.append(
            f"[rank0]:2024-11-01 {clock(row)},123 - root - INFO - step: {step:2d}  loss: {one.loss[row]:.4f}  "
            f"grad_norm: {norms[row]:.4f}  memory: 47.44GiB(49.94%)  tps: {int(8192 * speed):,}  "
            f"tflops: {400 * speed:.2f}  mfu: {40 * speed:.2f}%"
        )
    return lines


def fairseq(one: Training) -> list[str]:
    """fairseq's simple log format."""
    lines = ["2023-01-01 10:00:00 | INFO | fairseq_cli.train | task: LanguageModelingTask"]
    rates, norms, scales = one.column("lr", 6e-4), one.column("grad_norm", 0.3), one.column("loss_scale", 64.0)
    for row, step in enumerate(one.step.tolist()):
        epoch = 1 + row * 10 // one.rows
        lines.append(
            f"2023-01-01 {clock(row)} | INFO | train_inner | epoch {epoch:03d}:  {step % 10000:5d} / 10000 "
            f"loss={one.loss[row]:.3f}, ppl={perplexity(one.loss[row], 2):.2f}, wps=35000, ups=2.1, wpb=16384, bsz=32, "
            f"num_updates={step}, lr={rates[row]:.6g}, gnorm={norms[row]:.3f}, loss_scale={scales[row]:g}, "
            f"train_wall=47, gb_free=10.2, wall={row * 48}"
        )
        if step in one.evaluations:
            loss = one.evaluations[step][1]
            lines.append(
                f"2023-01-01 {clock(row)} | INFO | valid | epoch {epoch:03d} | valid on 'valid' subset | "
                f"loss {loss:.3f} | ppl {perplexity(loss, 2):.2f} | wps 90000 | wpb 2048 | bsz 4 | "
                f"num_updates {step} | best_loss {loss:.3f}"
            )
    return lines


def trainer_printed(one: Training) -> list[str]:
    """What Hugging Face's Trainer prints: dictionaries with epochs and no steps."""
    total = int(one.step[-1])
    lines = [
        "***** Running training *****",
        "  Num examples = 52,002",
        f"  Num Epochs = {one.epochs}",
        "  Instantaneous batch size per device = 4",
        f"  Total optimization steps = {total}",
    ]
    for row, step in enumerate(one.step.tolist()):
        epoch = {"epoch": round(one.epochs * step / max(total, 1), 2)}
        columns = {TRAINER_NAMES.get(name, name): float(values[row]) for name, values in one.columns.items()}
        lines.append(str({"loss": round(float(one.loss[row]), 4)} | columns | epoch))
        if step in one.evaluations:
            lines.append(str({"eval_loss": one.evaluations[step][1], "eval_runtime": 10.2} | epoch))
        lines += one.said.get(step, [])
    return lines + one.last_words


TRAINER_NAMES = {"lr": "learning_rate"}


def progress_bar(one: Training) -> list[str]:
    """A tqdm bar that is redrawn: all rows are one line."""
    total, rates = int(one.step[-1]), one.column("lr", 1e-3)
    drawn = ""
    for row, step in enumerate(one.step.tolist()):
        part = step / max(total, 1)
        drawn += (
            f"\rTraining: {int(100 * part):3d}%|{'#' * int(10 * part):10}| {step}/{total} "
            f"[{step // 60:02d}:{step % 60:02d}<10:00,  3.21it/s, loss={one.loss[row]:.3g}, lr={rates[row]:.2e}]"
        )
    return [drawn]


def logger_lines(one: Training) -> list[str]:
    """Python's logging with names and values."""
    rates, norms = one.column("lr", 1e-3), one.column("grad_norm", 1.0)
    lines = [
        f"2024-03-01 {clock(row)},123 - INFO - step={step} loss={one.loss[row]:.6g} lr={rates[row]:.3e} "
        f"grad_norm={norms[row]:.3f}"
        for row, step in enumerate(one.step.tolist())
    ]
    return lines + one.last_words


def step_lines(one: Training) -> list[str]:
    """The plainest log of a script."""
    return [f"step: {step}, train_loss: {one.loss[row]:.6f}" for row, step in enumerate(one.step.tolist())]


def counted_lines(one: Training) -> list[str]:
    """A script that prints how far it is."""
    total = int(one.step[-1])
    return [f"[{step:6d}/{total}] loss: {one.loss[row]:.4f}  time: 0.35s" for row, step in enumerate(one.step.tolist())]


def tutorial_lines(one: Training) -> list[str]:
    """A tutorial's script: batches begin anew with each epoch, printed every tenth."""
    rows_an_epoch = 100
    epochs = (one.rows - 1) // rows_an_epoch + 1
    return [
        f"Epoch [{row // rows_an_epoch + 1}/{epochs}], Step [{(row % rows_an_epoch + 1) * 10}/{rows_an_epoch * 10}], "
        f"Loss: {one.loss[row]:.4f}"
        for row in range(one.rows)
    ]


def keras(one: Training) -> list[str]:
    """Keras's `fit`, an epoch in two lines."""
    accuracy, evaluation_accuracy = one.column("accuracy", 0.5), one.column("val_accuracy", 0.5)
    lines = []
    for row, step in enumerate(one.step.tolist()):
        lines += [
            f"Epoch {row + 1}/{one.rows}",
            f"1563/1563 [==============================] - 12s 8ms/step - loss: {one.loss[row]:.4f} - "
            f"accuracy: {accuracy[row]:.4f} - val_loss: {one.evaluations[step][1]:.4f} - "
            f"val_accuracy: {evaluation_accuracy[row]:.4f}",
        ]
    return lines


def epoch_bars(one: Training) -> list[str]:
    """A script's line an epoch, with bars between the parts and percent."""
    accuracy = one.column("val_accuracy", 0.5)
    return [
        f"Epoch {row + 1}/{one.rows} | Train Loss: {one.loss[row]:.4f} | Val Loss: {one.evaluations[step][1]:.4f} | "
        f"Val Acc: {100 * accuracy[row]:.2f}%"
        for row, step in enumerate(one.step.tolist())
    ]


def epoch_blanks(one: Training) -> list[str]:
    """A script's line an epoch, with blanks between the parts."""
    accuracy = one.column("val_accuracy", 0.5)
    return [
        f"Epoch: [{row}] train_loss: {one.loss[row]:.4f} val_loss: {one.evaluations[step][1]:.4f} "
        f"val_acc: {accuracy[row]:.4f}"
        for row, step in enumerate(one.step.tolist())
    ]


def epoch_pairs(one: Training) -> list[str]:
    """A script's line an epoch, names and values joined by a sign."""
    return [
        f"[Epoch {row + 1:03d}] loss={one.loss[row]:.4f} val_loss={one.evaluations[step][1]:.4f} "
        f"lr={1e-3 * 0.98**row:.2e}"
        for row, step in enumerate(one.step.tolist())
    ]
