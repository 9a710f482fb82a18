"""Run analysis from a course's document, on a printed log and on two recorded runs.

    python examples/documents/run_analysis.py [FOLDER]

A log of the course's form is read, with its plan, tokens, devices and final score: forecast, report, cost. Then a base
run and its fine-tuning: compared, reported side by side with their samples, examined, asked with SQL, drawn in
TensorBoard.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import barograph
from barograph.trackers.sync import sync
from barograph.views.report.command import run_report


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


def train(folder: Path, name: str, rate: float, text: str) -> barograph.StoredRun:
    with barograph.init(
        project="course", id=name, dir=folder / "runs", config={"stage": name, "lr": rate, "seed": 1}, total_steps=100,
        notes="does fine-tuning at a low rate keep what the base run learnt?", machine=False, git=False, console="none",
    ) as run:  # fmt: skip
        for step in range(1, 101):
            run.log_step(step, 0, 4096, 50.0, 0.8, 2 + 3 / step, rate, pq=step // 40, rg=step % 40)
            if step % 50 == 0:
                path = folder / f"{name}_{step:06d}.pt"
                path.write_bytes(b"weights")
                run.save_checkpoint(path, step, val_loss=2.1 + 3 / step)
        run.log_sample(100, text, "What is the capital of France?")
    return barograph.StoredRun(run.dir)


def main(folder: Path) -> dict[str, object]:
    log = barograph.read(print_log(folder / "speed.log"))[0]
    outlook = barograph.forecast(log, target=2.35)
    print("\n".join(barograph.forecast_sentences(outlook)))
    run_report([str(folder / "speed.log")], out=folder / "log-report", price=2.5)
    base = train(folder, "base", 1e-3, "the the the")
    tuned = train(folder, "sft", 1e-5, "Paris is the capital of France.")
    made = barograph.compare(base, tuned)
    print(made.text(100))
    run_report([str(base.dir), str(tuned.dir)], out=folder / "comparison")
    run_report([str(tuned.dir)], out=folder / "report", price=2.5, devices=8)
    sync([tuned.dir], "tensorboard", out=str(folder / "tb"))
    return {"log": log, "forecast": outlook, "comparison": made, "base": base, "tuned": tuned}


if __name__ == "__main__":
    where = Path(sys.argv[1] if len(sys.argv) > 1 else "course-example")
    where.mkdir(parents=True, exist_ok=True)
    main(where)
