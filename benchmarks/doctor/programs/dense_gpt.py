"""A small GPT over the bytes of Python's own library, as pre-training is written today.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run (the one resumed, where there is a resume), with steps timed by `run.step`, phases, evaluations, the
      model watched from inside and the batches watched.
"""

from __future__ import annotations

import math
import sysconfig
from pathlib import Path
from typing import Any

import torch
from injections import Trouble, clock, pause, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

import barograph

EVERY = 25
HELD_OUT = 4096  # bytes of text to evaluate on
CONFIG: dict[str, Any] = {
    "width": 32, "layers": 2, "heads": 4, "context": 32, "batch_size": 10, "learning_rate": 6e-3, "warmup_steps": 20,
    "schedule": "cosine", "final_rate": 0.1, "weight_decay": 0.1, "epsilon": 1e-8, "betas": [0.9, 0.95], "clip": 1.0,
    "dropout": 0.0, "precision": "fp32", "accumulation": 1, "examples": 0, "eval_every": EVERY,
}  # fmt: skip
MODULES = """
argparse ast asyncio/base_events asyncio/tasks codecs configparser copy csv datetime decimal difflib dis doctest
email/message enum fractions functools inspect ipaddress json/decoder locale logging/__init__ mailbox optparse
os pathlib pdb pickle platform plistlib random shutil smtplib socket statistics subprocess tarfile tempfile
textwrap threading tokenize traceback turtle typing unittest/mock urllib/request uuid zipfile
"""
_texts: list[Tensor] = []


def read_text() -> tuple[Tensor, Tensor]:
    """Bytes to train on and to evaluate on; read once a process."""
    if not _texts:
        root = Path(sysconfig.get_path("stdlib"))
        files = [path.read_bytes() for name in MODULES.split() if (path := root / f"{name}.py").exists()]
        _texts[:] = [torch.frombuffer(bytearray(b"\0".join(part)), dtype=torch.uint8).long()
                     for part in (files[:-3], files[-3:])]  # fmt: skip
    return _texts[0], _texts[1]


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.scale = heads, 1.0
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.act = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.ReLU()
        self.dropout = nn.Dropout(dropout)
        self.half, self.growth = False, 1.0

    def forward(self, x: Tensor) -> Tensor:
        rows, time_steps, width = x.shape
        q, k, v = self.qkv(self.norm_attention(x)).view(rows, time_steps, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=self.scale / math.sqrt(q.shape[-1])
        )
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(rows, time_steps, width)))
        inner = self.act(self.up(self.norm_mlp(x)))
        if self.half:  # what a half-precision matrix product would be given, and give back in backward
            inner = (inner * self.growth).half().float() / self.growth
        return x + self.dropout(self.down(inner))


class GPT(nn.Module):
    def __init__(self, config: dict[str, Any], trouble: Trouble):
        super().__init__()
        width = config["width"]
        self.embedding, self.position = nn.Embedding(256, width), nn.Embedding(config["context"], width)
        self.blocks = nn.ModuleList(Block(width, config["heads"], config["dropout"]) for _ in range(config["layers"]))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02 if "down" in name or "out" in name else 0.08)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        self.trouble, self.step = trouble, 0

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(self.trouble.output(self.step, x)))


class Text:
    """Windows of the text in an order of chance that a state brings back."""

    def __init__(self, seed: int, examples: int):
        train, held_out = read_text()
        self.held_out = held_out[:HELD_OUT]
        self.train = train[:examples] if examples else train
        self.seed, self.drawn, self.dice = seed, 0, torch.Generator().manual_seed(seed)

    def draw(self, rows: int, length: int, source: Tensor | None = None) -> tuple[Tensor, Tensor]:
        text = self.train if source is None else source
        starts = torch.randint(0, len(text) - length - 1, (rows,), generator=self.dice)
        windows = text[starts[:, None] + torch.arange(length + 1)]
        self.drawn += 1
        return windows[:, :-1], windows[:, 1:]


def rate_at(config: dict[str, Any], step: int, total: int) -> float:
    """The learning rate by the schedule in the config."""
    peak, warmup, low = config["learning_rate"], config["warmup_steps"], config["final_rate"]
    if step < warmup:
        return peak * (step + 1) / warmup
    if config["schedule"] == "constant":
        return peak
    if config["schedule"] == "wsd":
        return peak * min(1.0, max(0.02, (total - step) / (0.25 * total)))
    if config["schedule"] == "rewarm":
        half = total // 2
        if step >= half:
            step, total, peak, warmup = step - half, total - half, 0.8 * peak, 2 * warmup
            if step < warmup:
                return peak * (0.15 + 0.85 * (step + 1) / warmup)
        else:
            total = half
    share = min(1.0, (step - warmup) / max(1, total - warmup))
    return peak * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * share)))


class Training:
    """The model, its optimizer and its data, so that a checkpoint can bring them back."""

    def __init__(self, config: dict[str, Any], seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.config, self.trouble = config, trouble
        self.model = GPT(config, trouble)
        trouble.spoil_model(self.model)
        self.optimizer = self._optimizer()
        if trouble.name == "optimizer_stale":
            fresh = GPT(config, trouble)
            fresh.load_state_dict(self.model.state_dict())
            self.model = fresh
        self.scaler = None
        if config["precision"] == "fp16":
            self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=60)
            for block in self.model.blocks:
                block.half = True
        self.text = Text(seed, config["examples"])

    def _optimizer(self) -> torch.optim.Optimizer:
        config = self.config
        return torch.optim.AdamW(
            self.model.parameters(), lr=config["learning_rate"], betas=tuple(config["betas"]), eps=config["epsilon"],
            weight_decay=config["weight_decay"], fused=True,
        )  # fmt: skip

    def save(self, run: Any, step: int) -> None:
        path = run.dir / "checkpoints" / f"model_{step:06d}.pt"
        path.parent.mkdir(exist_ok=True)
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, path)
        run.save_checkpoint(path, step)

    def resume(self, run: Any, step: int) -> Any:
        """End the run and go on with it from the checkpoint made just before `step`."""
        path = run.dir / "checkpoints" / f"model_{step - 1:06d}.pt"
        run.finish("interrupted")
        resumed = barograph.init(
            project=run.project, output_dir=str(run.dir), resume=True, resume_step=step, verbosity=-2, git=False,
            machine=False, watchdog=False,
        )  # fmt: skip
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        self.optimizer = self._optimizer()
        if self.trouble.name != "optimizer_state_lost":
            self.optimizer.load_state_dict(state["optimizer"])
        if self.trouble.name == "data_replayed":
            self.text.dice.manual_seed(self.text.seed)
        return resumed


def evaluate(training: Training, run: Any, step: int, began_tokens: int) -> None:
    """The mean loss over fixed windows of the held-out text."""
    model, config, trouble = training.model, training.config, training.trouble
    began = clock()
    model.train(trouble.on("training_mode_in_evaluation", step))
    dice = torch.Generator().manual_seed(1)
    losses = []
    with torch.no_grad(), run.phase("eval"):
        for _ in range(2):
            starts = torch.randint(0, len(training.text.held_out) - config["context"] - 1, (24,), generator=dice)
            windows = training.text.held_out[starts[:, None] + torch.arange(config["context"] + 1)]
            if trouble.on("tokenizer_mismatch", step):
                windows = torch.randperm(256, generator=torch.Generator().manual_seed(5))[windows]
            logits = model(windows[:, :-1])
            losses.append(functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()))
    model.train()
    loss = float(torch.stack(losses).mean())
    run.log_eval(step, 0.0, 48 * config["context"], (clock() - began) * 1000, loss)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    config = dict(run.config)
    trouble = Trouble(fault, seed)
    training = Training(config, seed, trouble)
    model = training.model

    def look() -> Any:
        time_by_own_clock(run)
        run.watch(model, training.optimizer, gradients=5, updates=1, weights=50, histograms=0, activations=10,
                  optimizer_state=25, scaler=training.scaler)  # fmt: skip
        return run.watch_data()

    data = look()
    resume_at = trouble.resume_at(healthy, steps // 2 // EVERY * EVERY)
    for step in range(steps):
        if step == resume_at:
            training.save(run, step - 1)
            memory = data.state()
            run = training.resume(run, step)
            data = look()
            data.restore(memory)
        trouble.freeze(step, model.blocks[0])
        model.step = step
        rate = trouble.rate(step, rate_at(config, *trouble.early(step, steps)))
        rows, length = shape_at(config, healthy, step, steps)
        for group in training.optimizer.param_groups:
            group["lr"] = rate
        began = clock()
        with run.step(tokens=rows * length, step=step) as timed:
            if trouble.clears(step):
                model.zero_grad(set_to_none=True)
            loss = torch.zeros(())
            for _ in range(config["accumulation"]):
                with run.phase("data"):
                    inputs, targets = next_batch(training, healthy, step, rows, length)
                    trouble.delay(step, 0.012)
                data.observe((inputs, targets), step=step)
                with run.phase("forward"):
                    if trouble.at("attention_temperature", step):
                        for block in model.blocks:
                            block.scale = 24.0
                    if trouble.on("fp16_overflow", step):
                        for block in model.blocks:
                            block.growth *= 1.5
                    logits = model(inputs)
                    part = functional.cross_entropy(logits.flatten(0, 1), targets.flatten()) / config["accumulation"]
                    part = trouble.loss(step, part)
                with run.phase("backward"):
                    (part if training.scaler is None else training.scaler.scale(part)).backward()
                loss = loss + part.detach()
            with run.phase("optimizer"):
                trouble.gradients(step, model, model.blocks[1])
                norm = update(training, config)
            trouble.leak(step)
            trouble.work(step, began)
            timed.set(loss=float(loss), norm=norm, lr=rate)
        trouble.telemetry(run, step, healthy)
        if healthy == "checkpoint_stalls" and step % 40 == 39:
            with run.phase("checkpoint"):
                training.save(run, step)
                pause(0.15)
        if healthy == "evaluation_pauses" and step % EVERY == EVERY - 1:
            with run.phase("eval"):
                pause(0.12)
        if step % EVERY == 0 or step == steps - 1:
            evaluate(training, run, step, 0)
    return run


def update(training: Training, config: dict[str, Any]) -> float:
    """Clip and step; the norm before clipping."""
    scaler, optimizer = training.scaler, training.optimizer
    if scaler is not None:
        scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(training.model.parameters(), config["clip"] or math.inf)
    if scaler is not None:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    return float(norm)


def shape_at(config: dict[str, Any], healthy: str | None, step: int, steps: int) -> tuple[int, int]:
    """Rows and columns of the step's batches."""
    rows, length = config["batch_size"], config["context"]
    if healthy == "batch_ramp":
        rows = rows // 2 * (1 + (step >= steps // 3) + 2 * (step >= 2 * steps // 3))
    if healthy == "sequence_ramp":
        length = length // 3 * (1 + (step >= steps // 3) + (step >= 2 * steps // 3))
    return rows, length


def next_batch(training: Training, healthy: str | None, step: int, rows: int, length: int) -> tuple[Tensor, Tensor]:
    """The step's inputs and targets."""
    text, trouble = training.text, training.trouble
    source = text.train
    if healthy == "curriculum":  # programs with few long words first, then everything
        source = source[: len(source) // 4] if step < training.config["curriculum_step"] else source[len(source) // 4 :]
    if trouble.on("validation_leak", step) and step % 2:
        source = text.held_out
    inputs, targets = text.draw(rows, length, source)
    if healthy == "small_spike" and step in training.config["odd_batches"]:
        noise = torch.rand(targets.shape, generator=trouble.dice) < 0.04
        targets = torch.where(noise, torch.randint(32, 127, targets.shape, generator=trouble.dice), targets)
    return trouble.batch(step, inputs, targets, 256)
