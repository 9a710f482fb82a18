"""The training loop of the newer programs, with the mistakes that are made in loops.

In:   a task: its model, batches and the loss of each target; a run.
Out:  the run, with what the task logs.

The loop accumulates micro-batches, clips, steps a scheduler, averages weights, evaluates and resumes, each by the
config. A fault of the loop is the line that a person gets wrong, under its name.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from injections import Trouble, clock, go_on, pause, time_by_own_clock
from torch import Tensor, nn

WATCHED = dict(gradients=10, updates=5, weights=40, histograms=0, activations=20, optimizer_state=40)
Batch = tuple[Tensor, ...]


class Task:
    """What a program gives the loop: `model`, `held_out`, `batch`, `losses`.

    names: what the loop's figures are called, if the program logs by `run.log`; without them it uses `run.step`.
    watched: how the model is watched; without anything, as the guide shows it.
    """

    every = 20
    names: dict[str, str] = {}  # noqa: RUF012
    watched: dict[str, int] = WATCHED
    model: nn.Module
    block: nn.Module  # the one that fails, where one layer does
    held_out: list[Batch]

    def __init__(self, config: dict[str, Any], trouble: Trouble, seed: int):
        self.config, self.trouble, self.seed, self.step, self.epoch = config, trouble, seed, 0, 0
        self.figures: dict[str, float] = {}

    def batch(self, rows: int) -> Batch:
        """Inputs first, targets last."""
        raise NotImplementedError

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of each target."""
        raise NotImplementedError

    def prepared(self, batch: Batch) -> Batch:
        """The batch as a faulty collator hands it to the training."""
        return batch

    def evaluated(self, batch: Batch) -> Batch:
        """The batch as an evaluation's own loader hands it out."""
        return batch

    def freeze_wrongly(self) -> None:
        """Freeze what should be trained."""
        raise NotImplementedError

    def changed_late(self) -> None:
        """Change the model after its optimizer was made."""

    def trained(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def optimizer(self) -> torch.optim.Optimizer:
        config = self.config
        return torch.optim.AdamW(self.trained(), lr=config["learning_rate"], betas=(0.9, 0.98),
                                 weight_decay=config["weight_decay"])  # fmt: skip

    def observed(self, batch: Batch) -> Any:
        """The batch for the watch of data."""
        inputs, targets = batch[0], batch[-1]
        if inputs.dtype.is_floating_point:
            return inputs.flatten(1), targets.flatten(1) if targets.dim() > 1 else targets[:, None]
        return {"input_ids": inputs, "labels": targets if targets.dim() > 1 else targets[:, None]}

    def after(self, run: Any, loss: float, norm: float) -> None:
        """At a step's end."""


def factor(config: dict[str, Any], total: int, step: int) -> float:
    """The schedule: its share of the peak at a step."""
    schedule, warmup = config["schedule"], config["warmup_steps"]
    if step < warmup:
        return (step + 1) / warmup
    if schedule == "constant":
        return 1.0
    if schedule == "inverse_sqrt":
        return (max(warmup, 1) / (step + 1)) ** 0.5
    if schedule == "restarts":  # four cosines, each begun at the peak
        return 0.5 * (1 + math.cos(math.pi * (4 * (step - warmup) / max(total - warmup, 1) % 1)))
    share = min(1.0, (step - warmup) / max(total - warmup, 1))
    if schedule == "wsd":
        return min(1.0, max(0.01, (1 - share) / 0.25))
    return 0.5 * (1 + math.cos(math.pi * share))


class Loop:
    """One training."""

    def __init__(self, run: Any, task: Task, steps: int, healthy: str | None):
        self.run, self.task, self.healthy = run, task, healthy
        self.config, self.trouble, self.model = task.config, task.trouble, task.model
        self.parts = int(self.config.get("accumulation", 1))
        self.steps = steps
        self.kept: list[Tensor] = []
        if self.trouble.name == "wrong_group_frozen":
            task.freeze_wrongly()
        self.set_up()
        task.changed_late()
        if self.trouble.name == "weight_tying_broken":  # as loading a checkpoint by hand does
            self.model.head.weight = nn.Parameter(self.model.head.weight.detach().clone())
        if self.trouble.name == "optimizer_stale":
            self.model = task.model = copy.deepcopy(self.model)
        self.average = copy.deepcopy(self.model).requires_grad_(False) if self.config.get("ema") else None
        self.scaler = (
            torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=50)
            if self.config.get("precision") == "fp16" else None
        )  # fmt: skip
        self.watch()

    def set_up(self) -> None:
        self.optimizer = self.task.optimizer()
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: factor(self.config, self.steps, step)
        )

    def watch(self, memory: Any = None) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer, scaler=self.scaler, **self.task.watched)
        self.data = self.run.watch_data()
        if memory is not None:
            self.data.restore(memory)

    def resume(self, step: int) -> None:
        """A checkpoint, an end, and a beginning from the checkpoint."""
        state = [self.model.state_dict(), self.optimizer.state_dict(), self.scheduler.state_dict()]
        memory = self.data.state()
        self.run, (weights, moments, schedule) = go_on(self.run, step, state)
        self.model.load_state_dict(weights)
        self.set_up()
        if self.trouble.name != "optimizer_state_lost":
            self.optimizer.load_state_dict(moments)
        if self.trouble.name != "schedule_restarted":
            self.scheduler.load_state_dict(schedule)
        for group, rate in zip(self.optimizer.param_groups, self.scheduler.get_last_lr(), strict=True):
            group["lr"] = rate
        self.watch(memory)

    def all_steps(self) -> Any:
        resume_at = self.trouble.resume_at(self.healthy, 5 * self.task.every)
        for step in range(self.steps):
            if step == resume_at:
                self.resume(step)
            self.task.step = step
            self.one(step)
            self.trouble.telemetry(self.run, step, self.healthy)
            if step % self.task.every == 0 or step == self.steps - 1:
                self.evaluate(step)
        return self.run

    def one(self, step: int) -> None:
        run, task, trouble = self.run, self.task, self.trouble
        trouble.freeze(step, task.block)
        rate = trouble.rate(step, self.optimizer.param_groups[0]["lr"])
        if trouble.name == "learning_rate_jump":
            self.optimizer.param_groups[0]["lr"] = rate
        began = clock()
        with run.step(step=step) as timed:
            if trouble.clears(step):
                self.optimizer.zero_grad()
                self.model.zero_grad()
            total = sum(self.backward(step) for _ in range(self.parts))
            norm = self.move(step)
            trouble.leak(step)
            figures = {"loss": total, "norm": norm, "lr": rate, "epoch": task.epoch}
            if not task.names:
                timed.set(**figures, **task.figures)
        if task.names:
            named = {task.names[name]: value for name, value in figures.items() if name in task.names}
            run.log(named | task.figures | {"step_time": clock() - began}, step=step)
        task.after(run, total, norm)
        if self.healthy == "checkpoint_stalls" and step % 40 == 39:
            pause(0.12)

    def backward(self, step: int) -> float:
        """One micro-batch; its share of the step's loss."""
        task, trouble = self.task, self.trouble
        with self.run.phase("data"):
            batch = self.batch(step)
            self.data.observe(task.observed(batch), step=step, epoch=task.epoch)
        losses = task.losses(self.model, batch)
        loss = losses.sum() if trouble.on("loss_summed", step) else losses.mean()
        if not trouble.on("accumulation_undivided", step):
            loss = loss / self.parts
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        if trouble.on("scheduler_per_micro_batch", step):
            self.scheduler.step()
        return float(loss.detach())

    def batch(self, step: int) -> Batch:
        task, trouble = self.task, self.trouble
        rows = int(self.config["batch_size"])
        batch = task.batch(rows)
        if trouble.on("data_exhausted", step):
            self.first = batch = getattr(self, "first", batch)
        if trouble.on("validation_leak", step):
            pool = [torch.cat(some) for some in zip(*task.held_out, strict=True)]
            chosen = torch.randint(0, len(pool[0]), (rows * 3 // 4,), generator=trouble.dice)
            batch = tuple(
                torch.cat([mine[: rows - len(chosen)], theirs[chosen]])
                for mine, theirs in zip(batch, pool, strict=True)
            )
        if trouble.on("labels_shuffled", step):
            batch = (*batch[:-1], batch[-1][torch.randperm(len(batch[-1]), generator=trouble.dice)])
        return task.prepared(batch)

    def move(self, step: int) -> float:
        """Clip, step, average; the norm before clipping."""
        trouble, parameters = self.trouble, self.task.trained()
        if self.scaler is not None and trouble.name != "clipped_while_scaled":
            self.scaler.unscale_(self.optimizer)
        trouble.gradients(step, self.model, self.task.block)
        norm = nn.utils.clip_grad_norm_(parameters, self.config["clip"] or math.inf)
        if hasattr(norm, "full_tensor"):
            norm = norm.full_tensor()
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        if trouble.name != "scheduler_per_micro_batch":
            self.scheduler.step()
        if self.average is not None and trouble.name != "ema_not_updated":
            with torch.no_grad():
                for old, new in zip(self.average.parameters(), self.model.parameters(), strict=True):
                    old.lerp_(new, 1 - self.config["ema"])
                for old, new in zip(self.average.buffers(), self.model.buffers(), strict=True):
                    old.copy_(new)
        return float(norm)

    def evaluate(self, step: int) -> None:
        """The mean loss over what is held out, of the average of the weights where there is one."""
        task, trouble, began = self.task, self.trouble, clock()
        model = self.model if self.average is None else self.average
        model.train(trouble.on("training_mode_in_evaluation", step))
        forgotten = trouble.on("no_grad_missing", step)
        figures, task.figures = task.figures, {}
        with torch.set_grad_enabled(forgotten), self.run.phase("eval"):
            losses = [task.losses(model, task.evaluated(batch)).mean() for batch in task.held_out]
            if forgotten:  # a list of losses, each with its graph
                self.kept += losses
            loss = float(torch.stack([one.detach() for one in losses]).mean())
        found, task.figures = task.figures, figures
        self.model.train(not trouble.on("evaluation_mode_left_on", step))
        if self.average is not None and trouble.on("ema_not_swapped_back", step):
            self.model.load_state_dict(self.average.state_dict())
        if task.names:
            self.run.log({"eval_loss": loss} | {f"eval_{name}": value for name, value in found.items()}, step=step)
        else:
            rows = sum(len(batch[0]) for batch in task.held_out)
            self.run.log_eval(step, task.epoch, rows, (clock() - began) * 1000, loss, **found)


def train(make: type[Task], run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    torch.manual_seed(seed)
    trouble = Trouble(fault, seed)
    task = make(dict(run.config), trouble, seed)
    trouble.spoil_model(task.model)
    return Loop(run, task, steps, healthy).all_steps()
