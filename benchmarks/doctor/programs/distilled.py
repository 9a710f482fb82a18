"""Distillation: a small decoder learns what a larger one, trained before, says of each next letter.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss, loss_hard, loss_soft, grad_norm, lr, val_loss; the watch of the student.

The loss is the divergence from the teacher at a temperature, and the cross-entropy of the text, half and half.
"""

from __future__ import annotations

from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

from .language import pretrained
from .loop import factor
from .moe_gpt import LETTERS
from .parts import Decoder, Text

EVERY = 20
TEACHER = {"width": 48, "heads": 4, "layers": 2, "length": 32, "dropout": 0.1}
CONFIG: dict[str, Any] = {
    "width": 32, "heads": 2, "layers": 1, "length": 32, "dropout": 0.0, "batch_size": 24, "learning_rate": 4e-3,
    "warmup_steps": 15, "schedule": "cosine", "weight_decay": 0.01, "clip": 1.0, "temperature": 2.0, "soft": 0.5,
    "teacher_steps": 250,
}  # fmt: skip


class Distiller(nn.Module):
    """Student and teacher; an optimizer takes what is to be trained of both."""

    def __init__(self, config: dict[str, Any], name: str):
        super().__init__()
        self.student, self.mistake = Decoder(config), name
        self.teacher = Decoder(TEACHER) if name == "teacher_not_loaded" else pretrained(
            TEACHER, language=12, steps=config["teacher_steps"])  # fmt: skip
        if name != "teacher_trained":
            self.teacher.requires_grad_(False)
        self.temperature = config["temperature"]

    def forward(self, letters: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of the text, and that of the teacher."""
        mine, theirs = self.student(letters), self.teacher(letters)
        hard = functional.cross_entropy(mine.flatten(0, 1), targets.flatten())
        rows, wanted = (mine / self.temperature).flatten(0, 1), (theirs / self.temperature).flatten(0, 1).softmax(-1)
        said = rows.softmax(-1) if self.mistake == "divergence_without_logarithm" else rows.log_softmax(-1)
        return hard, functional.kl_div(said, wanted, reduction="batchmean") * self.temperature**2


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    config, trouble = dict(run.config), Trouble(fault, seed)
    torch.manual_seed(seed)
    model = Distiller(config, trouble.name)
    model.teacher.eval()
    trouble.spoil_model(model.student)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=config["learning_rate"], weight_decay=config["weight_decay"])
    text, held_out = Text(seed + 1, config["length"]), Text(787, config["length"], words=1500).take(64)
    time_by_own_clock(run)
    run.watch(model, optimizer)
    kept: Any = None
    for step in range(steps):
        rate = trouble.rate(step, config["learning_rate"] * factor(config, steps, step))
        optimizer.param_groups[0]["lr"] = rate
        batch = text.take(int(config["batch_size"]))
        if trouble.on("data_exhausted", step):
            kept = batch = kept or batch
        hard, soft = model(*batch)
        loss = config["soft"] * soft + (1 - config["soft"]) * hard
        if trouble.clears(step):
            optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(trained, config["clip"])
        optimizer.step()
        run.log({"loss": loss.detach(), "loss_hard": hard.detach(), "loss_soft": soft.detach(), "grad_norm": norm,
                 "lr": rate}, step=step)  # fmt: skip
        if step % EVERY == 0 or step == steps - 1:
            model.student.eval()
            with torch.no_grad():
                logits = model.student(held_out[0])
                error = functional.cross_entropy(logits.view(-1, LETTERS), held_out[1].flatten())
            model.student.train()
            run.log({"val_loss": error}, step=step)
    return run
