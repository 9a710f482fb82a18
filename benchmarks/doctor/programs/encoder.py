"""An encoder that learns to classify sequences, epoch by epoch over a data set of its own.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, with loss, accuracy, norm and rate of each step, evaluations with accuracy, watch of model and batches.

The task: a sequence begins with a question (one of 3) and holds three answers somewhere, one for each question. The
class is the answer that was asked for: attention has to look it up. A few labels are wrong, as in real data.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from injections import Trouble, clock, go_on, pause, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

EVERY = 20
CLASSES, VOCABULARY, LENGTH, MARKERS = 6, 40, 24, 3
NOISE = 0.08  # share of labels that are of chance
CONFIG: dict[str, Any] = {
    "hidden": 32, "layers": 2, "heads": 4, "batch_size": 32, "learning_rate": 6e-3, "warmup_steps": 26,
    "schedule": "linear", "weight_decay": 0.01, "epsilon": 1e-8, "clip": 1.0, "dropout": 0.05, "precision": "fp32",
    "examples": 4096, "label_smoothing": 0.0,
}  # fmt: skip


def make_data(seed: int, number: int) -> tuple[Tensor, Tensor]:
    """Sequences (number, LENGTH) and their classes (number,)."""
    dice = torch.Generator().manual_seed(seed)
    filler = torch.randint(MARKERS + MARKERS * CLASSES, VOCABULARY - 1, (number, LENGTH), generator=dice)
    asked = torch.randint(0, MARKERS, (number,), generator=dice)
    answers = torch.randint(0, CLASSES, (number, MARKERS), generator=dice)
    places = torch.rand(number, LENGTH - 1, generator=dice).argsort(1)[:, :MARKERS] + 1
    rows = torch.arange(number)
    for marker in range(MARKERS):  # a token for each pair of marker and value
        filler[rows, places[:, marker]] = MARKERS + marker * CLASSES + answers[:, marker]
    filler[:, 0] = asked
    classes = answers[rows, asked]
    wrong = torch.rand(number, generator=dice) < NOISE
    return filler, torch.where(wrong, torch.randint(0, CLASSES, (number,), generator=dice), classes)


class Layer(nn.Module):
    """Post-norm, as BERT has it."""

    def __init__(self, config: dict[str, Any]):
        super().__init__()
        width = config["hidden"]
        self.heads, self.temperature = config["heads"], 1.0
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output, self.up, self.down = (
            nn.Linear(width, width),
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
        )
        self.relu, self.dropout = nn.ReLU(), nn.Dropout(config["dropout"])
        self.attention_norm, self.output_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.half, self.growth = config["precision"] == "fp16", 1.0

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        q, k, v = (
            one(x).view(rows, length, self.heads, -1).transpose(1, 2) for one in (self.query, self.key, self.value)
        )
        scores = (self.temperature / math.sqrt(q.shape[-1])) * (q @ k.transpose(-1, -2))
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(rows, length, width)
        x = self.attention_norm(x + self.dropout(self.output(mixed)))
        inner = self.relu(self.up(x))
        if self.half:
            inner = (inner * self.growth).half().float() / self.growth
        return self.output_norm(x + self.dropout(self.down(inner)))


class Encoder(nn.Module):
    def __init__(self, config: dict[str, Any], trouble: Trouble):
        super().__init__()
        width = config["hidden"]
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(3 * LENGTH, width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["layers"]))
        self.sigmoids = nn.Sequential(
            *(
                part
                for _ in range(trouble.hidden.get("sigmoids", 0))
                for part in (nn.Linear(width, width), nn.Sigmoid())
            )
        )
        self.classifier = nn.Linear(width, CLASSES)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.3)
        self.trouble, self.step = trouble, 0

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.classifier(self.sigmoids(self.trouble.output(self.step, x)[:, 0]))


def make_optimizer(model: nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=config["learning_rate"], eps=config["epsilon"],
        betas=(0.9, 0.98), weight_decay=config["weight_decay"], fused=True,
    )  # fmt: skip


def rate_at(config: dict[str, Any], step: int, total: int) -> float:
    """Linear warm-up and decay, or what the config says."""
    peak, warmup, schedule = config["learning_rate"], config["warmup_steps"], config["schedule"]
    if schedule == "rewarm" and step >= total // 2:
        step, total, peak, warmup = step - total // 2, total - total // 2, 0.7 * peak, 2 * warmup
    elif schedule == "rewarm":
        total = total // 2 + total // 10
    if step < warmup:
        return peak * (step + 1) / warmup
    if schedule == "constant":
        return peak
    if schedule == "wsd":
        return peak * min(1.0, max(0.01, (total - step) / (0.2 * total)))
    return peak * max(0.0, (total - step) / (total - warmup)) if step < total else 0.0


class Epochs:
    """Batches of a data set, shuffled anew in each epoch."""

    def __init__(self, inputs: Tensor, targets: Tensor, seed: int):
        self.inputs, self.targets, self.seed, self.epoch, self.place = inputs, targets, seed, 0, 0
        self._shuffle()

    def _shuffle(self) -> None:
        self.order = torch.randperm(
            len(self.inputs), generator=torch.Generator().manual_seed(self.seed * 1000 + self.epoch)
        )

    def take(self, rows: int) -> tuple[Tensor, Tensor]:
        if self.place + rows > len(self.order):
            self.epoch, self.place = self.epoch + 1, 0
            self._shuffle()
        chosen = self.order[self.place : self.place + rows]
        self.place += rows
        return self.inputs[chosen], self.targets[chosen]

    def restart(self) -> None:
        self.epoch, self.place = 0, 0
        self._shuffle()


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    config, trouble = dict(run.config), Trouble(fault, seed)
    torch.manual_seed(seed)
    model = Encoder(config, trouble)
    trouble.spoil_model(model)
    if healthy == "frozen_backbone":
        model.positions.requires_grad_(False)
    optimizer = make_optimizer(model, config)
    if trouble.name == "optimizer_stale":
        copy = Encoder(config, trouble)
        copy.load_state_dict(model.state_dict())
        model = copy
    data = Epochs(*make_data(seed + 50, config["examples"]), seed)
    held_out = make_data(999, 256)
    scaler = (
        torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=60) if config["precision"] == "fp16" else None
    )
    resume_at = trouble.resume_at(healthy, 7 * EVERY)

    def look() -> Any:
        time_by_own_clock(run)
        run.watch(model, optimizer, gradients=10, updates=2, weights=40, histograms=0, activations=10,
                  optimizer_state=20, scaler=scaler)  # fmt: skip
        return run.watch_data()

    watch = look()
    for step in range(steps):
        if step == resume_at:
            run, optimizer = continued(run, model, config, optimizer, step, trouble)
            memory, watch = watch.state(), look()
            watch.restore(memory)
            if trouble.name == "data_replayed":
                data.restart()
        trouble.freeze(step, model.layers[1])
        model.step = step
        for group in optimizer.param_groups:
            group["lr"] = trouble.rate(step, rate_at(config, *trouble.early(step, steps)))
        began = clock()
        with run.step(step=step) as timed:
            with run.phase("data"):
                inputs, targets = batch_of(data, config, held_out, healthy, trouble, step, steps)
                trouble.delay(step, 0.010)
                if healthy == "loader_hiccups" and step in (70, 131, 215):
                    pause(0.09)
                watch.observe({"input_ids": inputs, "labels": targets[:, None]}, step=step, epoch=data.epoch)
            with run.phase("forward"):
                if trouble.at("attention_temperature", step):
                    for layer in model.layers:
                        layer.temperature = 24.0
                for layer in model.layers if trouble.on("fp16_overflow", step) else ():
                    layer.growth *= 1.5
                logits = model(inputs)
                loss = trouble.loss(step, loss_of(logits, targets, trouble))
            with run.phase("backward"):
                if trouble.clears(step):
                    optimizer.zero_grad(set_to_none=True)
                    model.zero_grad(set_to_none=True)
                (loss if scaler is None else scaler.scale(loss)).backward()
            with run.phase("optimizer"):
                if scaler is not None:
                    scaler.unscale_(optimizer)
                trouble.gradients(step, model, model.layers[0])
                norm = nn.utils.clip_grad_norm_(model.parameters(), config["clip"] or math.inf)
                if scaler is None:
                    optimizer.step()
                else:
                    scaler.step(optimizer)
                    scaler.update()
            trouble.leak(step)
            trouble.work(step, began)
            accuracy = (logits.argmax(-1) == targets).float().mean()
            timed.set(loss=loss.item(), norm=norm.item(), lr=optimizer.param_groups[0]["lr"], epoch=data.epoch,
                      tokens=inputs.numel(), accuracy=accuracy.item())  # fmt: skip
        trouble.telemetry(run, step, healthy)
        hold_up(run, healthy, step)
        if step % EVERY == 0 or step == steps - 1:
            evaluate(run, model, held_out, trouble, step, data.epoch)
    return run


def loss_of(logits: Tensor, targets: Tensor, trouble: Trouble) -> Tensor:
    """Cross entropy; 0, as careful programs have it, where every label is ignored."""
    if trouble.name == "loss_masked" and bool((targets == -100).all()):
        return 0.0 * logits.sum()
    return functional.cross_entropy(logits, targets)


def continued(
    run: Any, model: nn.Module, config: dict[str, Any], optimizer: Any, step: int, trouble: Trouble
) -> tuple[Any, Any]:
    """Save, end the run, go on with it from what was saved."""
    run, (weights, state) = go_on(run, step, [model.state_dict(), optimizer.state_dict()])
    model.load_state_dict(weights)
    optimizer = make_optimizer(model, config)
    if trouble.name != "optimizer_state_lost":
        optimizer.load_state_dict(state)
    return run, optimizer


def batch_of(
    data: Epochs, config: dict[str, Any], held_out: tuple[Tensor, Tensor], healthy: str | None, trouble: Trouble,
    step: int, steps: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The step's sequences and classes."""
    rows = int(config["batch_size"])
    if healthy == "batch_ramp":
        rows = rows // 2 * (1 + (step >= steps // 3) + 2 * (step >= 2 * steps // 3))
    inputs, targets = data.take(rows)
    if trouble.on("validation_leak", step):
        chosen = torch.randint(0, len(held_out[0]), (rows * 3 // 4,), generator=trouble.dice)
        inputs = torch.cat([inputs[: rows - len(chosen)], held_out[0][chosen]])
        targets = torch.cat([targets[: rows - len(chosen)], held_out[1][chosen]])
    if healthy == "sequence_ramp":  # longer by filler
        longer = (step >= steps // 3) + (step >= 2 * steps // 3)
        more = torch.randint(
            MARKERS + MARKERS * CLASSES, VOCABULARY - 1, (rows, LENGTH * longer), generator=trouble.dice
        )
        inputs = torch.cat([inputs, more], 1)
    if healthy == "curriculum" and step < config["curriculum_step"]:  # easy ones first: the first question alone
        inputs, targets = inputs.clone(), targets
        easy = inputs[:, 0] == 0
        filled = torch.where(easy)[0]
        if len(filled):  # a third of the batch
            pick = torch.arange(rows)
            pick[: rows // 3] = filled[torch.arange(rows // 3) % len(filled)]
            inputs, targets = inputs[pick], targets[pick]
    if healthy == "small_spike" and step in config["odd_batches"]:
        wrong = max(1, rows // 25)
        targets = torch.cat([(targets[:wrong] + 1) % CLASSES, targets[wrong:]])
    return trouble.batch(step, inputs, targets, CLASSES)


def hold_up(run: Any, healthy: str | None, step: int) -> None:
    """What holds a healthy training up between steps."""
    if healthy == "checkpoint_stalls" and step % 40 == 39:
        with run.phase("checkpoint"):
            pause(0.12)
    if healthy == "evaluation_pauses" and step % EVERY == 0:
        with run.phase("eval"):
            pause(0.08)


def evaluate(
    run: Any, model: Encoder, held_out: tuple[Tensor, Tensor], trouble: Trouble, step: int, epoch: int
) -> None:
    """Loss and accuracy on 256 held-out sequences."""
    began = clock()
    inputs, targets = held_out
    if trouble.on("tokenizer_mismatch", step):
        inputs = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(3))[inputs]
    model.train(trouble.on("training_mode_in_evaluation", step))
    with torch.no_grad(), run.phase("eval"):
        logits = model(inputs)
        loss = functional.cross_entropy(logits, targets).item()
        accuracy = (logits.argmax(-1) == targets).float().mean().item()
    model.train(not trouble.on("evaluation_mode_left_on", step))
    run.log_eval(step, epoch, inputs.numel(), (clock() - began) * 1000, loss, accuracy=accuracy)
