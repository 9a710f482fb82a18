"""Trainings that log as public programs do, each with the module `wandb` that it is given."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from typing import Any

import numpy
import pandas
import torch


def step_in_the_values(wandb: Any) -> None:
    """nanoGPT: two calls, the iteration among the values."""
    wandb.init(project="owt", name="gpt2-124M", config={"batch_size": 12, "compile": False})
    for iteration in range(0, 50, 10):
        losses = {"train": torch.tensor(3.0 / (iteration + 1)), "val": torch.tensor(3.1 / (iteration + 1))}
        wandb.log(
            {"iter": iteration, "train/loss": losses["train"], "val/loss": losses["val"], "lr": 6e-4, "mfu": -100}
        )


class NoWandb:
    """What such programs use where W&B is off."""

    def log(self, *arguments: Any, **named: Any) -> None: ...

    def finish(self) -> None: ...


def no_logger_or_wandb(wandb: Any) -> None:
    """nanochat: a class of its own in W&B's place on other ranks; `step` among the values, and `finish`."""
    config = {"depth": 4, "run": "d4"}
    for rank in (1, 0):
        run = NoWandb() if rank else wandb.init(project="nanochat", name="d4", config=config)
        for step in range(5):
            run.log({"step": step, "total_training_flops": 1e12 * step, "val/bpb": 1.1 - step / 100})
            run.log({"step": step, "train/loss": 3.0 - step / 10, "train/lrm": 1.0, "train/mfu": 51.3})
        run.finish()


def logger_class(wandb: Any) -> None:
    """torchtune: a logger object, the configuration after `init`, values at a given step, one name a call too."""
    if wandb.run is None:
        run = wandb.init(project="torchtune", entity=None, group="sft", reinit="default", resume="allow", dir="logs")
    run._label(repo="torchtune")
    run.define_metric("global_step")
    run.define_metric("*", step_metric="global_step", step_sync=True)
    run.config.update({"optimizer": {"lr": 2e-5}}, allow_val_change=True)
    wandb.save("missing.yaml", base_path=".")
    for step in range(1, 6):
        run.log({"loss": 1.0 / step, "lr": 2e-5, "global_step": step})
        run.log({"tokens_per_second_per_gpu": torch.tensor(1e4), "global_step": step})
    wandb.finish()


def tables_of_completions(wandb: Any) -> None:
    """TRL: a data frame of prompts, completions and rewards beside the numbers of the step."""
    wandb.init(project="huggingface", name="grpo")
    wandb.config.update({"learning_rate": 1e-6}, allow_val_change=True)
    if getattr(wandb, "define_metric", None):
        wandb.define_metric("train/global_step")
        wandb.define_metric("*", step_metric="train/global_step", step_sync=True)
    wandb.watch(torch.nn.Linear(2, 2), log="all", log_freq=100)
    wandb.run._label(code="transformers_trainer")
    for step in range(1, 4):
        frame = pandas.DataFrame({"step": step, "prompt": ["2+2="], "completion": ["4"], "reward": [1.0]})
        wandb.log({"completions": wandb.Table(dataframe=frame)})
        wandb.log({"train/loss": 0.5 / step, "train/reward": 0.1 * step, "train/global_step": step})
    dict(wandb.summary).items()
    wandb.run.summary["train_runtime"] = 12.5
    wandb.finish()


def writer_beside_wandb(wandb: Any) -> None:
    """CleanRL: `sync_tensorboard`, a namespace as configuration, films."""
    args = argparse.Namespace(exp_name="ppo", seed=1, track=True)
    wandb.init(
        project="cleanRL", entity=None, sync_tensorboard=True, config=vars(args), name="ppo__1", monitor_gym=True,
        save_code=True,
    )  # fmt: skip
    for step in range(3):
        wandb.log({"charts/episodic_return": step, "video": wandb.Video(numpy.zeros((2, 3, 4, 4)), fps=4)}, step=step)


@dataclasses.dataclass
class Config:
    lr: float = 1e-3
    layers: int = 2


def gradient_accumulation(wandb: Any) -> None:
    """Rows that are put together by `commit=False`; a dataclass; a context; alerts; several runs one after another."""
    for seed in range(2):
        with wandb.init(project="seeds", group="lr-1e-3", job_type="train", config=Config(), reinit=True) as run:
            assert run is wandb.run
            for step in range(4):
                for _ in range(2):
                    wandb.log({"micro/loss": 2.0 - step}, commit=False)
                wandb.log({"loss": 2.0 - step, "seed": seed})
            run.summary.update({"best": {"loss": 0.1}})
            run.alert(title="done", text="the run ends", level=wandb.AlertLevel.INFO, wait_duration=60)
    assert wandb.run is None


def pretraining_at_scale(wandb: Any) -> None:
    """Megatron-LM: the module is the writer; names with blanks; many calls of one iteration; artifacts."""
    with open("latest.txt", "w") as file:
        file.write("1")
    wandb.init(
        dir="wandb_save", name="gpt", project="megatron", config={"tp": 2}, settings=wandb.Settings(x_primary=True)
    )
    writer = wandb
    for iteration in range(1, 4):
        writer.log({"samples vs steps": 32 * iteration}, iteration)
        writer.log({"lm loss": torch.tensor(2.0 / iteration)}, iteration)
        writer.log({"validation loss": 2.0 / iteration}, iteration)
    artifact = writer.Artifact("checkpoints", type="model", metadata={"iteration": 3})
    artifact.add_reference("file:///checkpoints/3", checksum=False)
    artifact.add_file("latest.txt")
    writer.run.log_artifact(artifact, aliases=["iter_3"])
    assert isinstance(f"{writer.run.entity}/{writer.run.project}", str)
    writer.run.use_artifact("checkpoints:iter_3")


def resumed_by_id(wandb: Any) -> None:
    """OLMo and others: an id that is kept with the checkpoint; a launch that goes on with it."""
    wandb.login(key="0" * 40)
    kept = wandb.util.generate_id()
    for start in (0, 3):
        wandb.init(project="olmo", id=kept, resume="allow", tags=("7b", "annealing"), notes="second try")
        assert wandb.run.id == kept and wandb.run.resumed == bool(start)
        for step in range(start, start + 3):
            wandb.log({"train/CrossEntropyLoss": 3.0 - step / 10, "optim/total_grad_norm": 1.0}, step=step)
        wandb.finish(exit_code=0, quiet=True)


def evaluation_report(wandb: Any) -> None:
    """Fine-tuning scripts: pictures, plots, histograms, pages; values before and after; what does not exist here."""
    wandb.require("core")
    run = wandb.init(project="finetune", config={"epochs": 2}, mode="online", anonymous="allow")
    wandb.config.seed = 7
    assert run.config.seed == wandb.config["seed"] == 7 and run.config.get("missing", 1) == 1
    table = wandb.Table(columns=["id", "text"])
    table.add_data(1, "a")
    for epoch in range(run.config.epochs):
        wandb.log({"epoch": epoch, "eval": {"accuracy": 0.5, "f1": 0.4}, "weights": wandb.Histogram(numpy.ones(9))})
    wandb.log(
        {"page": wandb.Html("<p>x</p>"), "chart": wandb.plot.line(table, "id", "text", title="t"), "table": table}
    )
    wandb.log({"confusion": wandb.plot.confusion_matrix(probs=None, y_true=[0], preds=[0], class_names=["a"])})
    api = wandb.Api()
    for _ in api.runs("finetune"):
        raise AssertionError
    wandb.sdk.wandb_run.Run.log_code(".")
    with contextlib.suppress(ZeroDivisionError):
        wandb.termwarn("careful")
        wandb.unwatch()
        1 / 0  # noqa: B018
    run.finish()


def monitor_of_an_engine(wandb: Any) -> None:
    """DeepSpeed and GPT-NeoX: one name a call at a count of samples, `commit=None`; the step of each metric its own."""
    wandb.init(project="neox", group="g", entity="team", name="n", save_code=False, force=False)
    wandb.config.update({"zero": {"stage": 2}}, allow_val_change=True)
    for samples in range(32, 128, 32):
        for label in ("Train/Samples/train_loss", "Train/Samples/lr", "Train/Samples/loss_scale"):
            wandb.log({label: torch.tensor(1.0)}, step=samples, commit=None)


def disabled(wandb: Any) -> None:
    """Nothing is recorded, and everything can be called."""
    run = wandb.init(project="off", mode="disabled", config={"a": 1})
    assert run.config.a == 1
    for step in range(3):
        run.log({"loss": step})
    run.summary["best"] = 1
    run.watch(torch.nn.Linear(2, 2))
    run.log_artifact("nothing.txt")
    wandb.finish()


# program: (project, series, its steps)
PROGRAMS = {
    step_in_the_values: ("owt", "train/loss", [0, 10, 20, 30, 40]),
    no_logger_or_wandb: ("nanochat", "train/loss", [0, 1, 2, 3, 4]),
    logger_class: ("torchtune", "loss", [1, 2, 3, 4, 5]),
    tables_of_completions: ("huggingface", "train/loss", [1, 2, 3]),
    writer_beside_wandb: ("cleanRL", "charts/episodic_return", [0, 1, 2]),
    gradient_accumulation: ("seeds", "loss", [0, 1, 2, 3]),
    pretraining_at_scale: ("megatron", "lm loss", [1, 2, 3]),
    resumed_by_id: ("olmo", "train/CrossEntropyLoss", [0, 1, 2, 3, 4, 5]),
    evaluation_report: ("finetune", "eval/accuracy", [0, 1]),
    monitor_of_an_engine: ("neox", "Train/Samples/train_loss", [32, 64, 96]),
}
