"""What a tracker adds to each step of Hugging Face's Trainer that logs at every step.

    python benchmarks/frameworks.py [--steps N] [TOOL …]

Each of barograph, wandb (offline), tensorboard, mlflow and trackio in a process of its own, by `report_to`, in its
default local mode. Counted is the processor time of the training's thread within the tracker's callback, from the
beginning of a step to the beginning of the next: median and mean over the steps after the first ten. Gradients are not
watched (`run.watch` has its own figures: benchmarks/monitor.py). A tool that is not installed is named.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

TOOLS = ("barograph", "wandb", "tensorboard", "mlflow", "trackio")
QUIET = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_TRACKING_URI": "sqlite:///mlflow.db",
    "TRACKIO_DIR": "trackio",
    "BAROGRAPH_CONSOLE": "none",
    "BAROGRAPH_GIT": "false",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}
SKIPPED = 10  # steps


def train(tool: str, steps: int) -> None:
    """In the process of one tool: prints {"median": …, "mean": …} in microseconds."""
    import torch
    from transformers import PrinterCallback, Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def forward(self, x: Any) -> dict[str, Any]:
            return {"loss": self.layer(x).square().mean()}

    if tool == "barograph":
        from barograph.integrations.huggingface import BarographCallback

        chosen: dict[str, Any] = {"callbacks": [BarographCallback(watch=False)]}
    else:
        chosen = {}
    args = TrainingArguments(
        "out", max_steps=steps, logging_steps=1, per_device_train_batch_size=2, use_cpu=True, disable_tqdm=True,
        report_to="none" if chosen else tool, save_strategy="no", logging_nan_inf_filter=False,
    )  # fmt: skip
    trainer = Trainer(Model(), args, train_dataset=[{"x": torch.ones(8)} for _ in range(64)], **chosen)
    trainer.remove_callback(PrinterCallback)
    spent = [0.0]
    for callback in trainer.callback_handler.callbacks:
        if tool not in type(callback).__name__.lower():
            continue
        for name in ("on_step_begin", "on_pre_optimizer_step", "on_optimizer_step", "on_step_end", "on_log"):
            setattr(callback, name, timed(getattr(callback, name), spent, name == "on_step_begin"))
    trainer.train()
    taken = [seconds * 1e6 for seconds in spent[SKIPPED:]]
    print("\n" + json.dumps({"median": statistics.median(taken), "mean": statistics.mean(taken)}))


def timed(call: Callable[..., Any], spent: list[float], begins: bool) -> Callable[..., Any]:
    """The call, its time added to that of the step in progress."""

    def method(*given: Any, **named: Any) -> Any:
        if begins:
            spent.append(0.0)
        began = time.thread_time()
        result = call(*given, **named)
        spent[-1] += time.thread_time() - began
        return result

    return method


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", nargs="*", default=TOOLS, metavar="TOOL")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return train(options.tools[0], options.steps)
    for tool in options.tools:
        words = [sys.executable, os.path.abspath(__file__), tool, "--inside", "--steps", str(options.steps)]
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(words, cwd=folder, env=os.environ | QUIET, capture_output=True, text=True)
        rows = [line for line in done.stdout.splitlines() if line.startswith('{"median"')]
        if rows:
            found = json.loads(rows[-1])
            print(f"{tool:<12} median {found['median']:8.0f} µs   mean {found['mean']:8.0f} µs", flush=True)
        else:
            print(
                f"{tool:<12} not measured: {(done.stderr.strip().splitlines() or ['no output'])[-1][:100]}", flush=True
            )


if __name__ == "__main__":
    main()
