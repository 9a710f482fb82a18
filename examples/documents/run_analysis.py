"""Everything in the course note on run analysis: python examples/documents/run_analysis.py [FOLDER]

In:   a folder to work in.
Out:  a log of the course's form, read with its plan, tokens, devices and final score; a base run and its fine-tuning,
      compared and reported; runs with the note's signs of trouble. Each step is checked.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import barograph
from barograph.trackers.sync import sync

QUIET: dict[str, Any] = {"git": False, "machine": False, "sidecar": False, "console": "none"}
LINE = (
    "step 05567/05568 (99.98%) | loss: 2.336916 | lrm: 0.05 | dt: 997.40ms | tok/sec: 1,051,311 | bf16_mfu: 63.45 | "
    "epoch: 1 pq: 122 rg: 80 | total time: 92.46m | eta: 0.0m"
)


def print_log(path: Path, steps: int = 240, planned: int = 400) -> Path:
    """A log as the course's training prints it."""
    average, lines = 0.0, ["Autodetected device type: cuda", "using world size 8"]
    for step in range(steps):
        loss = 10.4 * math.exp(-step / 60) + 2.3 + 0.03 * math.sin(7 * step)
        average = 0.9 * average + 0.1 * loss
        eta = "" if step <= 10 else f" | eta: {(planned - step) / 60:.1f}m"
        lines.append(
            f"step {step:05d}/{planned:05d} ({100 * step / planned:.2f}%)"
            f" | loss: {average / (1 - 0.9 ** (step + 1)):.6f} | lrm: 1.00 | dt: 997.40ms | tok/sec: 1,051,311"
            f" | bf16_mfu: 63.45 | epoch: 1 pq: {step // 80} rg: {step % 80} | total time: {step / 60:.2f}m{eta}"
        )
    lines.append("Final: 12/24 (50.00%)")
    path.write_text("\n".join(lines) + "\n")
    return path


def one_line(folder: Path) -> None:
    """The note's line: every field by its own name."""
    (folder / "line.log").write_text(LINE + "\n")
    (run,) = barograph.read(folder / "line.log")
    last = {name: float(run.series(name).value[-1]) for name in run.names()}
    wanted = {"train/loss": 2.336916, "train/lr_multiplier": 0.05, "train/duration_ms": 997.4, "data/pq_idx": 122,
              "train/tokens_per_second": 1_051_311, "data/rg_idx": 80, "train/epoch": 1}  # fmt: skip
    assert wanted.items() <= last.items(), (wanted, last)
    assert any(round(last[name], 4) in (63.45, 0.6345) for name in last if name.endswith("mfu"))
    assert run.config["total_steps"] == 5568 and run.series("train/loss").step.tolist() == [5567]


def course_log(folder: Path) -> None:
    """A run from its printed lines alone: forecast, time and cost, final score."""
    (log,) = barograph.read(print_log(folder / "speed.log"))
    assert log.config["total_steps"] == 400 and log.config["world_size"] == 8
    assert log.series("eval/accuracy").value.tolist() == [0.5]
    outlook = barograph.forecast(log, target=2.35)
    assert outlook.final is not None and outlook.planned_steps == 400 and barograph.forecast_sentences(outlook)
    barograph.report(folder / "speed.log", folder / "log-report", price=2.5)
    written = (folder / "log-report" / "report.md").read_text()
    assert "The run cost" in written and "tokens a second" in written and "50.00%" in written


def train(folder: Path, name: str, rate: float, text: str) -> barograph.Run:
    """A run with the note's artifacts: log, manifest, checkpoints with the loader's place, samples, its intent."""
    with barograph.init(
        project="course", id=name, dir=folder / "runs", config={"stage": name, "lr": rate, "seed": 1}, total_steps=100,
        notes="does fine-tuning at a low rate keep what the base run learnt?", **QUIET,
    ) as run:  # fmt: skip
        for step in range(1, 101):
            run.log_step(step, 0, 4096, 50.0, 0.8, 2 + 3 / step, rate, pq=step // 40, rg=step % 40)
            if step % 50 == 0:
                path = folder / f"{name}_{step:06d}.pt"
                path.write_bytes(b"weights")
                place = {"pq_idx": step // 40, "rg_idx": step % 40, "epoch": 1}
                run.save_checkpoint(path, step, val_loss=2.1 + 3 / step, val_bpb=1.1, loader_state=place)
        run.log_sample(100, text, "What is the capital of France?")
        run.log_message(100, "Rank 7 | 0/3 (0.00%)")
    return run


def artifacts(run: barograph.Run, folder: Path) -> None:
    """The note's four places of evidence."""
    stored = barograph.StoredRun(run.dir)
    manifest = json.loads((run.dir / "run_manifest.json").read_text())
    assert {"config", "status", "command", "final_metrics"} <= set(manifest)
    assert [one["step"] for one in stored.checkpoints()] == [50, 100]
    metadata = json.loads(next(folder.glob("*sft*000100*.json"), folder / "meta_000100.json").read_text())
    assert {"step", "val_bpb", "dataloader_state_dict"} <= metadata.keys()
    assert metadata["dataloader_state_dict"]["pq_idx"] == 2
    assert json.loads((run.dir / "training.json").read_text())[-1]["log"] == "end"
    assert sync([run.dir], "tensorboard", out=str(folder / "tb")) == 0


def compared(base: barograph.Run, tuned: barograph.Run, folder: Path) -> None:
    """Which variable changed, and what can be said of it; the report of each, with all that the note wants in it."""
    made = barograph.compare(base, tuned)
    assert "lr" in made.text(100) and "stage" in made.text(100)
    barograph.report([base, tuned], folder / "comparison")
    both = (folder / "comparison" / "report.md").read_text()
    assert "Paris is the capital" in both and "the the the" in both and "changed: stage and lr" in both
    barograph.report(tuned, folder / "report", price=2.5, devices=8)
    own = (folder / "report" / "report.md").read_text()
    for word in ("Hardware", "Run time", "Learning rate", "Throughput", "Checkpoints", "Samples", "device hours"):
        assert word in own, word
    rows = barograph.sql("select run, step, loss from runs order by run", runs=[base, tuned]).to_pylist()
    assert [row["run"] for row in rows] == ["base", "sft"] and rows[0]["step"] == 100


Row = Callable[[int], dict[str, Any]]
SIGNS: dict[str, tuple[Row, str]] = {
    # the note's sign of trouble: what is logged at a step; the rule that finds it
    "loss is flat": (lambda step: {"loss": 10.4 + math.sin(step) / 50}, "not_learning"),
    "loss rises": (lambda step: {"loss": 3 + max(0, step - 500) / 100}, "divergence"),
    "gradient norm spikes": (lambda step: {"norm": 60.0} if step % 97 == 0 else {}, "gradient_spike"),
    "gradient norm becomes nan": (lambda step: {"norm": math.nan} if step > 500 else {}, "non_finite_gradient"),
    "step time drifts upward": (lambda step: {"duration_ms": 500 * (1 + step / 1000)}, "step_time_drift"),
    "GPU utilization remains low": (lambda step: {"gpu_util": 12}, "low_utilization"),
    "dataset retries": (lambda step: {"message": f"dataset read failed, retrying shard_{step}"}, "repeated_messages"),
    "validation diverges": (lambda step: {"eval": 3 + max(0, step - 300) / 200}, "overfitting"),
}


def signs(folder: Path) -> None:
    """Each of the note's signs of trouble is a finding; a healthy run has none of them."""
    for sign, (row, rule) in {"": (lambda step: {}, ""), **SIGNS}.items():
        draw = random.Random(7)
        run = barograph.init("course", sign or "healthy", dir=folder / "signs", total_steps=1000, **QUIET)
        for step in range(1, 1001):
            noise = draw.gauss(0, 1)
            given = {"loss": 2.3 + 8 * (1 + step / 30) ** -0.8 + 0.02 * noise, "norm": 0.8 * (1 + 0.1 * abs(noise)),
                     "duration_ms": 500 * (1 + 0.01 * noise), **row(step)}  # fmt: skip
            run.log_step(step, step / 1000, 4096, given["duration_ms"], given["norm"],
                         given["loss"], 3e-4 * (1 - step / 1010))  # fmt: skip
            if "eval" in given and step % 50 == 0:
                run.log_eval(step, step / 1000, 100, 0.1, given["eval"])
            if "gpu_util" in given and step % 10 == 0:
                run.log_gpu_state(step, 0, {"gpu_util": given["gpu_util"], "mem_util": 5})
            if "message" in given and step % 3 == 0:
                run.log_message(step, given["message"])
        run.finish()
        found = {one["rule"] for one in barograph.diagnose(run)["findings"]}
        assert rule in found if rule else not found, (sign, found)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.redirect_stdout(io.StringIO()):
        one_line(folder)
        course_log(folder)
        base = train(folder, "base", 1e-3, "the the the")
        tuned = train(folder, "sft", 1e-5, "Paris is the capital of France.")
        artifacts(tuned, folder)
        compared(base, tuned, folder)
        signs(folder)
    print("all of the note holds")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()).resolve())
