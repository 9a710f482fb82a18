"""A vision transformer of torch's own layers tells which of three strokes a noisy picture has: eight kinds.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step` (loss, lr, norm, accuracy, epoch) and `log_eval`; the watch of model and data.

A class token, learned positions, batches as dicts from a `DataLoader`; NAdam, a linear warm-up, then a cosine.
"""

from __future__ import annotations

from typing import Any

import torch
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset

from .parts import all_steps

EVERY, SIDE, PATCH, KINDS = 20, 20, 5, 8
MEAN, DEVIATION = 0.35, 0.4
CONFIG: dict[str, Any] = {
    "dim": 32, "depth": 2, "heads": 4, "dropout": 0.0, "batch_size": 24, "learning_rate": 2e-3, "warmup_steps": 15,
    "schedule": "cosine", "weight_decay": 0.02, "clip": 1.0, "accumulation": 1, "freeze": [], "wrong_labels": 0.0,
    "examples": 2400, "head_dropout": 0.0,
}  # fmt: skip


def strokes(seed: int, number: int) -> tuple[Tensor, Tensor]:
    """Pictures (number, 1, SIDE, SIDE) and kinds: the bits of a kind are strokes across, down and aslant."""
    dice = torch.Generator().manual_seed(seed)
    kinds = torch.randint(0, KINDS, (number,), generator=dice)
    row, column = torch.arange(SIDE)[:, None], torch.arange(SIDE)
    at = torch.randint(3, SIDE - 3, (3, number, 1, 1), generator=dice)
    lines = ((row - at[0]).abs() < 2, (column - at[1]).abs() < 2, (row - column - at[2] + SIDE // 2).abs() < 2)
    ink = 0.6 + 0.4 * torch.rand(number, 1, 1, generator=dice)
    drawn = torch.zeros(number, SIDE, SIDE)
    for bit, line in enumerate(lines):
        drawn = torch.maximum(drawn, ink * line * ((kinds >> bit) & 1)[:, None, None])
    return (drawn + 0.25 * torch.randn(drawn.shape, generator=dice))[:, None], kinds


class Pictures(Dataset[dict[str, Tensor]]):
    def __init__(self, pictures: Tensor, kinds: Tensor):
        self.pictures, self.kinds = (pictures - MEAN) / DEVIATION, kinds

    def __len__(self) -> int:
        return len(self.kinds)

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        return {"pixel_values": self.pictures[place], "labels": self.kinds[place]}


class GlyphTransformer(nn.Module):
    def __init__(self, config: dict[str, Any], name: str):
        super().__init__()
        dim = config["dim"]
        self.name, self.head_dropout = name, config["head_dropout"]
        self.embed = nn.Linear(PATCH * PATCH, dim)
        self.class_token = nn.Parameter(0.02 * torch.randn(1, 1, dim))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (SIDE // PATCH) ** 2 + 1, dim))
        layer = nn.TransformerEncoderLayer(
            dim, config["heads"], 2 * dim, config["dropout"], "gelu", batch_first=name != "batch_as_sequence",
            norm_first=True,
        )  # fmt: skip
        self.encoder = nn.TransformerEncoder(layer, config["depth"], nn.LayerNorm(dim), enable_nested_tensor=False)
        self.classifier = nn.Linear(dim, KINDS + (name == "kinds_from_one"))

    def forward(self, pixel_values: Tensor) -> Tensor:
        patches = pixel_values.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH).flatten(1, 3).flatten(2)
        x = self.embed(patches)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.positions
        said = self.encoder(x)[:, 0]
        if self.head_dropout:  # functional dropout has to be told whether the model is trained
            on = self.training or self.name == "functional_dropout"
            said = functional.dropout(said, self.head_dropout, training=on)
        logits = self.classifier(said)
        return logits.softmax(1) if self.name == "double_softmax" else logits


class Script:
    def __init__(self, run: Any, seed: int, trouble: Trouble, healthy: str | None):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble, self.healthy = run, dict(run.config), trouble, healthy
        config, name = self.config, trouble.name
        pictures, kinds = strokes(seed + 21, config["examples"])
        if name == "kinds_from_one":
            kinds = kinds + 1
        if config["wrong_labels"]:
            wrong = torch.rand(len(kinds), generator=torch.Generator().manual_seed(seed)) < config["wrong_labels"]
            kinds = torch.where(wrong, (kinds + 3) % KINDS, kinds)
        self.loader = DataLoader(Pictures(pictures, kinds), int(config["batch_size"]), shuffle=True, drop_last=True,
                                 generator=torch.Generator().manual_seed(seed))  # fmt: skip
        self.test = DataLoader(Pictures(*strokes(212, 320)), 80)
        self.model = GlyphTransformer(config, name)
        frozen = ["encoder", "classifier"] if name == "wrong_group_frozen" else config["freeze"]
        for part, one in self.model.named_parameters():
            one.requires_grad_(part.partition(".")[0] not in frozen)
        self.criterion = nn.CrossEntropyLoss()
        trained = [one for one in self.model.parameters() if one.requires_grad]
        self.optimizer = torch.optim.NAdam(trained, lr=config["learning_rate"], weight_decay=config["weight_decay"],
                                           decoupled_weight_decay=True)  # fmt: skip
        self.scheduler = self.planned()
        self.batches, self.epoch, self.kept = self.endless(), 0, []  # type: Any, int, list[Tensor]

    def planned(self) -> Any:
        warmup, total = self.config["warmup_steps"], self.config["steps"]
        rising = lr_scheduler.LinearLR(self.optimizer, 0.1, 1.0, warmup)
        after: Any = {
            "cosine": lambda: lr_scheduler.CosineAnnealingLR(self.optimizer, total - warmup),
            "restarts": lambda: lr_scheduler.CosineAnnealingWarmRestarts(self.optimizer, (total - warmup) // 3 + 1),
            "constant": lambda: lr_scheduler.ConstantLR(self.optimizer, 1.0, 1),
        }[self.config["schedule"]]()
        return lr_scheduler.SequentialLR(self.optimizer, [rising, after], [warmup])

    def endless(self) -> Any:
        while True:
            yield from self.loader
            self.epoch += 1

    def step(self, step: int) -> None:
        parts, name = self.config["accumulation"], self.trouble.name
        total = right = 0.0
        with self.run.step(step=step) as timed:
            for _ in range(parts):
                with self.run.phase("data"):
                    batch = next(self.batches)
                    self.watched.observe((batch["pixel_values"].flatten(1), batch["labels"][:, None]), step=step,
                                         epoch=self.epoch)  # fmt: skip
                logits = self.model(batch["pixel_values"])
                loss = self.criterion(logits, batch["labels"])
                if name != "accumulation_undivided":
                    loss = loss / parts
                loss.backward()
                total += loss.item()
                right += (logits.argmax(1) == batch["labels"]).float().mean().item() / parts
                if name == "cosine_turns_back":
                    self.scheduler.step()
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config["clip"]).item()
            rate = self.optimizer.param_groups[0]["lr"]
            self.optimizer.step()
            self.optimizer.zero_grad()
            if name != "cosine_turns_back":
                self.scheduler.step()
            timed.set(loss=total, lr=rate, norm=norm, accuracy=right, epoch=self.epoch)
        self.trouble.telemetry(self.run, step, self.healthy)

    def validate(self, step: int) -> None:
        began, forgotten = clock(), self.trouble.name == "no_grad_missing"
        self.model.eval()
        losses, hits = [], 0
        with torch.set_grad_enabled(forgotten):
            for batch in self.test:
                logits = self.model(batch["pixel_values"])
                losses.append(self.criterion(logits, batch["labels"]))
                hits += int((logits.argmax(1) == batch["labels"]).sum())
        if forgotten:
            self.kept += losses
        if not self.trouble.on("evaluation_mode_left_on", step):
            self.model.train()
        loss = torch.stack([one.detach() for one in losses]).mean().item()
        self.run.log_eval(step, self.epoch, 320, (clock() - began) * 1000, loss, accuracy=hits / 320)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    made = Script(run, seed, Trouble(fault, seed), healthy)
    time_by_own_clock(run)
    run.watch(made.model, made.optimizer)
    made.watched = run.watch_data()
    all_steps(made, steps, EVERY)
    return run
