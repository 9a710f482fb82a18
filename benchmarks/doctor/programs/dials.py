"""A small vision transformer reads the hour off a drawn dial, in the manner of Lightning.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train_loss, train_acc, lr of each step; val_loss, val_acc after each epoch (of the average
      of the weights, where there is one); memory, where it matters.

Patches by a convolution, torch's own encoder layers, mean pooling; AdamW, a rate that falls in stairs by epochs; a
module with `training_step` and `validation_step`, a trainer that calls it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

EVERY, SIDE, HOURS = 20, 16, 8
CONFIG: dict[str, Any] = {
    "embed_dim": 32, "num_layers": 2, "num_heads": 4, "dropout": 0.0, "batch_size": 32, "learning_rate": 3e-3,
    "weight_decay": 0.05, "accumulate_grad_batches": 1, "gradient_clip_val": 1.0, "scheduler": "step", "gamma": 0.6,
    "train_size": 640, "label_smoothing": 0.0, "ema_decay": 0.0, "freeze": [], "noise": 0.22, "optimizer": "adamw",
    "reduction": "mean", "test_order": "shuffled", "drop_last": True, "patience": 0, "checkpointing": False,
}  # fmt: skip


def draw(seed: int, number: int, noise: float) -> tuple[Tensor, Tensor]:
    """Pictures (number, 1, SIDE, SIDE) of about 0.3 and 0.2, each with one hand, and its hour."""
    dice = torch.Generator().manual_seed(seed)
    hours = torch.randint(0, HOURS, (number,), generator=dice)
    angle = 2 * math.pi * (hours + 0.5 * (torch.rand(number, generator=dice) - 0.5)) / HOURS
    middle = 7.5 + 1.5 * (torch.rand(number, 2, 1, 1, generator=dice) - 0.5)
    rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    y, x = rows - middle[:, 0], columns - middle[:, 1]
    along = x * angle.sin()[:, None, None] - y * angle.cos()[:, None, None]
    beside = x * angle.cos()[:, None, None] + y * angle.sin()[:, None, None]
    hand = ((along > 0) & (along < 6) & (beside.abs() < 1.2)).float()
    pictures = 0.2 + 0.5 * hand * (0.5 + torch.rand(number, 1, 1, generator=dice))
    return (pictures + noise * torch.randn(pictures.shape, generator=dice))[:, None], hours


class DialTransformer(nn.Module):
    def __init__(self, hp: dict[str, Any], name: str):
        super().__init__()
        dim = hp["embed_dim"]
        self.patch_embed = nn.Conv2d(1, dim, 4, 4)
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, (SIDE // 4) ** 2, dim))
        layer = nn.TransformerEncoderLayer(dim, hp["num_heads"], 2 * dim, hp["dropout"], "gelu", batch_first=True,
                                           norm_first=True)  # fmt: skip
        self.encoder = nn.TransformerEncoder(layer, hp["num_layers"], nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = nn.Linear(dim, HOURS)
        self.twice, self.unplaced, self.again = (
            name == "softmax_before_loss",
            name == "places_lost",
            hp["checkpointing"],
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        if not self.unplaced:
            x = x + self.pos_embed
        if self.again and self.training:
            for layer in self.encoder.layers:
                x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
            x = self.encoder.norm(x)
        else:
            x = self.encoder(x)
        logits = self.head(x.mean(1))
        return F.softmax(logits, dim=1) if self.twice else logits


class LitDial:
    """The module: what is trained, on what, and how its losses are made."""

    def __init__(self, hp: dict[str, Any], seed: int, trouble: Trouble, healthy: str | None):
        self.hp, self.seed, self.trouble, self.healthy, self.name = hp, seed, trouble, healthy, trouble.name
        self.model = DialTransformer(hp, self.name)
        frozen = ("patch_embed", "pos_embed", "encoder") if self.name == "wrong_part_frozen" else tuple(hp["freeze"])
        for key, parameter in self.model.named_parameters():
            parameter.requires_grad = not key.startswith(frozen) if frozen else True
        self.logged: dict[str, float] = {}

    def log(self, name: str, value: Any) -> None:
        self.logged[name] = value.item() if isinstance(value, Tensor) else value

    def setup(self) -> None:
        hp, name = self.hp, self.name
        pictures, hours = draw(self.seed + 71, hp["train_size"], hp["noise"])
        test, test_hours = draw(717, 320, hp["noise"])
        mean, std = pictures.mean(), pictures.std()
        if name == "kinds_off_by_one":  # the training's labels were read as the clock says them
            hours = (hours + 1) % HOURS
        if name == "kind_by_kind":
            order = hours.argsort(stable=True)
            pictures, hours = pictures[order], hours[order]
        if hp["test_order"] == "by_hour":
            order = test_hours.argsort(stable=True)
            test, test_hours = test[order], test_hours[order]
        self.train_set = TensorDataset((pictures - mean) / std, hours)
        if name == "figures_of_others":  # those of pictures from 0 to 255, from an older script
            mean, std = mean * 0.5, std * 2.0
        self.val_set = TensorDataset((test - mean) / std, test_hours)

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.train_set, int(self.hp["batch_size"]), shuffle=self.name != "kind_by_kind",
                          drop_last=self.hp["drop_last"],
                          generator=torch.Generator().manual_seed(self.seed))  # fmt: skip

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.val_set, 64)

    def configure_optimizers(self) -> tuple[Any, Any]:
        hp = self.hp
        trained = [one for one in self.model.parameters() if one.requires_grad]
        optimizer: Any
        if hp["optimizer"] == "sgd":
            optimizer = torch.optim.SGD(trained, 15 * hp["learning_rate"], momentum=0.9, nesterov=True)
        else:
            optimizer = torch.optim.AdamW(trained, hp["learning_rate"], weight_decay=hp["weight_decay"])
        if hp["scheduler"] == "restarts":
            return optimizer, torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3, eta_min=1e-5)
        return optimizer, torch.optim.lr_scheduler.StepLR(
            optimizer, 2, 1.0 if hp["scheduler"] == "none" else hp["gamma"]
        )

    def training_step(self, batch: Any) -> Tensor:
        x, y = batch
        logits = self.model(x)
        if self.name == "reduction_is_sum":
            loss = F.cross_entropy(logits, y, reduction="sum")
        elif self.hp["reduction"] == "sum":
            loss = F.cross_entropy(logits, y, reduction="sum") / len(y)
        else:
            loss = F.cross_entropy(logits, y, label_smoothing=self.hp["label_smoothing"])
        self.log("train_loss", loss)
        self.log("train_acc", (logits.argmax(1) == y).float().mean())
        return loss

    def validation_step(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        x, y = batch
        logits = model(x)
        return F.cross_entropy(logits, y), (logits.argmax(1) == y).float().mean()


class Fit:
    """What calls a module: batches, backward, steps, epochs."""

    def __init__(self, run: Any, module: LitDial, max_steps: int):
        self.run, self.module, self.max_steps, self.step = run, module, max_steps, 0
        module.setup()
        self.optimizer, self.scheduler = module.configure_optimizers()
        decay = module.hp["ema_decay"]
        self.ema = AveragedModel(module.model, multi_avg_fn=get_ema_multi_avg_fn(decay)) if decay else None
        self.outputs: list[Any] = []
        self.best, self.waited = math.inf, 0

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.module.model, self.optimizer)

    def steps(self) -> Iterator[None]:
        module, parts = self.module, self.module.hp["accumulate_grad_batches"]
        waiting = 0
        for batch in module.train_dataloader():
            loss = module.training_step(batch)
            (loss / parts).backward()
            waiting += 1
            if waiting < parts:
                continue
            waiting = 0
            nn.utils.clip_grad_norm_(module.model.parameters(), module.hp["gradient_clip_val"] or math.inf)
            self.optimizer.step()
            self.optimizer.zero_grad()
            module.log("lr", self.optimizer.param_groups[0]["lr"])
            if self.ema is not None:
                self.ema.update_parameters(module.model)
            if module.name == "epochs_each_batch":
                self.scheduler.step()
            self.run.log(module.logged, step=self.step)
            module.trouble.telemetry(self.run, self.step, module.healthy)
            self.step += 1
            yield
            if self.step == self.max_steps:
                return

    def validate(self) -> float:
        module = self.module
        model = module.model if self.ema is None else self.ema
        model.eval()
        forgotten = module.name == "evaluated_with_graphs"
        with torch.set_grad_enabled(forgotten):
            found = [module.validation_step(model, batch) for batch in module.val_dataloader()]
        self.outputs += found if forgotten else [(loss.detach(), acc) for loss, acc in found]
        loss, acc = (torch.stack(list(some)).mean().item() for some in zip(*found, strict=True))
        self.run.log({"val_loss": loss, "val_acc": acc}, step=self.step - 1)
        if not module.trouble.on("eval_left_on", self.step):
            module.model.train()
        return loss

    def resume(self) -> None:
        module = self.module
        self.run, (weights, moments, stairs) = go_on(self.run, self.step, (
            module.model.state_dict(), self.optimizer.state_dict(), self.scheduler.state_dict()))  # fmt: skip
        module.model.load_state_dict(weights)
        self.optimizer, self.scheduler = module.configure_optimizers()
        self.scheduler.load_state_dict(stairs)
        if module.name == "moments_not_loaded":
            for group, rate in zip(self.optimizer.param_groups, self.scheduler.get_last_lr(), strict=True):
                group["lr"] = rate
        else:
            self.optimizer.load_state_dict(moments)
        self.watch()

    def fit(self) -> Any:
        self.watch()
        resumed = self.module.trouble.resume_at(self.module.healthy, 5 * EVERY)
        self.module.model.train()
        while self.step < self.max_steps:
            for _ in self.steps():
                if self.step == resumed:
                    self.resume()
            if self.module.name != "epochs_each_batch":
                self.scheduler.step()
            loss = self.validate()
            self.best, self.waited = (loss, 0) if loss < self.best else (self.best, self.waited + 1)
            if self.module.hp["patience"] and self.waited >= self.module.hp["patience"]:
                break
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    torch.manual_seed(seed)
    return Fit(run, LitDial(dict(run.config), seed, Trouble(fault, seed), healthy), steps).fit()
