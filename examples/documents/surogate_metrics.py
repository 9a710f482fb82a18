"""Everything in the guide "Training Metrics & Monitoring": python examples/documents/surogate_metrics.py [FOLDER]

In:   a folder to work in.
Out:  the guide's log file, read back; its console lines; copies for trackers. Each step is checked.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import barograph as _surogate  # the one line of the guide's Python that changes

OPTIONS = """\
model: my-model            # the training's own settings stay in the same file
learning_rate: 0.0002
output_dir: ./output
report_to: [wandb]
wandb_project: my-project
wandb_name: my-run
aim_experiment: my-experiment
aim_repo: ./aim
aim_name: my-run
barograph:
  git: false
  machine: false
"""
GPU = {"clock": 1800, "max_clock": 2100, "fan": 65, "power": 350000, "power_limit": 400000, "temperature": 72,
       "temp_slowdown": 83, "gpu_util": 98, "mem_util": 85, "throttle": "", "dram_free": 8589934592,
       "pcie_rx": 1073741824, "pcie_tx": 536870912}  # fmt: skip
SEGMENTS = {"weights": 4294967296, "gradients": 1073741824, "optimizer": {"device": 2147483648, "pinned": 8589934592}}


def lines_of(call: Any) -> list[str]:
    """What is printed meanwhile."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        call()
    return shown.getvalue().splitlines()


def log_everything(path: Path, heard: list[str]) -> None:
    """All calls of the guide, dense and with experts."""
    logger = _surogate.TrainingRunLogger(path, callback=heard.append, verbosity=_surogate.LogVerbosity.DEFAULT)
    logger.log_cmd(["train.py", "config.yaml"])
    logger.log_options({"learning_rate": 2e-4, "model": {"layers": 32}})
    logger.log_dataset({"files": 12, "tokens": 2_000_000, "file_index": 0, "chunk_index": 0, "seed": 7})
    logger.log_dataset(split="eval", files=1, tokens=32768)
    logger.log_gpu_model(name="NVIDIA H100 80GB HBM3", sm_count=132, major=9, minor=0, memory=85e9, free=84e9,
                         l2_size=52428800, uuid="GPU-0", ecc=True, cuda_driver=12040, cuda_runtime=12040)  # fmt: skip
    logger.log_sol_estimate(blocks=123.4e9, lm_head=45.6e9, attention=78.9e9, tps=160_000, bf16_peak=989.5)
    logger.log_allocator(SEGMENTS)
    logger.set_training_tokens(8 * 100 * 16384)
    for step in range(1, 101):
        loss = 3 - step / 100 + (1e-3 if step % 2 else 0)
        logger.log_step(step, 1 + step / 400, 16384, 156, 0.1234 if step < 99 else 2.0, loss, 2e-4)
    logger.log_eval(100, 1.25, 32768, 234, 2.1234)
    logger.log_gpu_state(100, 0, GPU)
    logger.log_step(101, 1.25, 16384, 156, 0.1234, 2.3456, 2e-4,
                    moe_aux_loss=0.0234, moe_z_loss=0.0012, moe_load_imbalance=1.45)  # fmt: skip
    logger.log_moe_stats(101, aux_loss=0.0234, z_loss=0.0012, expert_utilization=0.9375, load_imbalance=1.45)
    logger.log_section_start(101, "Saving")
    logger.log_section_end(101)
    logger.log_message(101, "done")
    logger.close()


def read_back(path: Path) -> None:
    """The guide's own lines over the file."""
    with open(path) as file:
        logs = json.load(file)
    train_steps = [entry for entry in logs if entry.get("log") == "step"]
    eval_steps = [entry for entry in logs if entry.get("log") == "eval"]
    moe_logs = [entry for entry in logs if entry.get("log") == "moe"]
    assert len(train_steps) == 101 and len(eval_steps) == len(moe_logs) == 1
    dense = ["log", "time", "step", "epoch", "step_tokens", "duration_ms", "norm", "loss", "lr"]
    assert list(train_steps[0]) == dense
    assert list(train_steps[-1]) == [*dense, "moe_aux_loss", "moe_z_loss", "moe_load_imbalance"]
    assert list(eval_steps[0]) == ["log", "time", "step", "epoch", "eval_tokens", "duration_ms", "loss"]
    assert {"aux_loss", "z_loss", "expert_utilization", "load_imbalance"} <= set(moe_logs[0])
    (gpu,) = (entry for entry in logs if entry["log"] == "gpu")
    assert list(gpu) == ["log", "time", "step", "id", *GPU]
    (memory,) = (entry for entry in logs if entry["log"] == "allocator")
    assert memory["stats"][0] == {"name": "weights", "device": 4294967296, "managed": 0, "pinned": 0, "pageable": 0}
    (run,) = _surogate.read(path)
    assert run.series("moe/aux_loss").step.tolist() == [101], "inline and alone, one point"
    assert round(run.series("train/tokens_per_second").value[0]) == round(16384 / 156 * 1000)


def configured(folder: Path) -> None:
    """The guide's YAML beside the training's settings, and a run with it."""
    (folder / "config.yaml").write_text(OPTIONS)
    os.environ.setdefault("WANDB_MODE", "offline")
    run = _surogate.init(config_file=folder / "config.yaml", verbosity=-1, report_to="none", doctor=False)
    run.log_step(1, 0.1, 16384, 156, 0.1, 2.0, 2e-4)
    run.finish()
    assert run.log_file.resolve() == (folder / "output" / "training.json").resolve()
    assert _surogate.read_log(run.log_file)[-1]["log"] == "end"


def best_practices(folder: Path) -> None:
    """What the guide asks to watch is found: imbalance, unused experts, a speed that can't be."""
    run = _surogate.init("guide", "watched", dir=folder / "runs", verbosity=-2, git=False, machine=False)
    run.log_sol_estimate(blocks=1e9, lm_head=1e8, attention=1e8, tps=70_000)
    for step in range(1, 301):
        run.log_step(step, step / 300, 16384, 156, 0.5, 4 * step**-0.1, 2e-4 * (1 - step / 301))
        run.log_moe_stats(step, 0.02, 0.001, 0.65, 2.7)
    run.finish()
    found = {finding["rule"] for finding in _surogate.diagnose(run.dir)["findings"]}
    assert {"load_imbalance", "expert_utilization", "impossible_sol"} <= found, found


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    heard: list[str] = []
    shown = lines_of(lambda: log_everything(folder / "training.json", heard))
    assert [json.loads(line)["log"] for line in heard[:2]] == ["cmd", "option"]
    assert "[Speed of Light]" in shown and "  Peak BF16:    989.5 TFLOP/s" in shown
    steps = [line for line in shown if line.startswith(":: step")]
    assert steps[1].startswith(":: step       2 [  0.2%] \\ loss 2.98"), steps[1]
    assert "norm !2.0000" in steps[98] and "| sol 65.6 |" in steps[98]
    assert steps[-1].split(" | ")[4:6] == ["aux 0.0234", "imbal 1.45"]
    (evaluation,) = (line for line in shown if line.startswith(">> eval"))
    assert evaluation.startswith(">> eval                      loss 2.1234 | gap -0.") and "140.0k tps" in evaluation
    read_back(folder / "training.json")
    configured(folder)
    best_practices(folder)
    print("all of the guide holds")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()).resolve())
