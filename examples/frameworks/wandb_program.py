"""A program written for W&B, recorded by Barograph: only its import is another.

python examples/frameworks/wandb_program.py FOLDER
"""

import math
import sys

import barograph
import barograph.compat.wandb as wandb  # was: import wandb

config = {"lr": 1e-3, "batch_size": 32}
with wandb.init(project="compat", name="demo", dir=sys.argv[1], config=config, tags=["example"]) as run:
    wandb.define_metric("train/*", step_metric="train/step", summary="min")
    for step in range(0, 100, 10):
        wandb.log({"train/step": step, "train/loss": math.exp(-step / 50), "lr": wandb.config.lr})
    answers = wandb.Table(columns=["prompt", "completion"], data=[["2+2=", "4"]])
    wandb.log({"answers": answers, "weights": wandb.Histogram([0.1, 0.2, 0.2])})
    wandb.summary["best"] = wandb.summary["train/loss.min"]
    folder = run.barograph.dir

stored = barograph.StoredRun(folder)
assert list(stored.series("train/loss").step) == list(range(0, 100, 10))
assert stored.manifest["status"] == "finished" and stored.histogram_names() == ["weights"]
print("a program written for W&B holds")
