"""A generative adversarial network over small pictures of rings: convolutions, batch norm, two optimizers.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: Loss_D, Loss_G, D(x), D(G(z)), lr, and now and then how far generated pictures are from
      real ones (sliced Wasserstein distance); the watch of both networks.
"""

from __future__ import annotations

from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

EVERY, SIDE = 20, 16
CONFIG: dict[str, Any] = {
    "channels": 12, "noise": 16, "batch_size": 32, "learning_rate": 8e-4, "beta1": 0.5, "real_label": 1.0,
    "critic_steps": 1, "examples": 2000, "loss": "bce", "kinds": 0,
}  # fmt: skip


def rings(seed: int, number: int, kinds: int) -> Tensor:
    """(number, 1, SIDE, SIDE), between -1 and 1. kinds: of how many sizes alone; 0: of any."""
    dice = torch.Generator().manual_seed(seed)
    x, y, size, thick = torch.rand(4, number, 1, 1, generator=dice)
    if kinds:
        size = (size * kinds).floor() / kinds
    across = torch.arange(SIDE) / SIDE
    far = ((across - 0.35 - 0.3 * x).square() + (across[:, None] - 0.35 - 0.3 * y).square()).sqrt()
    return (2 * torch.exp(-((far - 0.1 - 0.15 * size) / (0.04 + 0.04 * thick)).square()) - 1)[:, None]


class Generator(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        wide = config["channels"]
        self.main = nn.Sequential(
            nn.ConvTranspose2d(config["noise"], 2 * wide, 4, bias=False), nn.BatchNorm2d(2 * wide), nn.ReLU(),
            nn.ConvTranspose2d(2 * wide, wide, 4, 2, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU(),
            nn.ConvTranspose2d(wide, 1, 4, 2, 1), nn.Tanh(),
        )  # fmt: skip

    def forward(self, noise: Tensor) -> Tensor:
        return self.main(noise[:, :, None, None])


class Discriminator(nn.Module):
    def __init__(self, config: dict[str, Any], name: str):
        super().__init__()
        wide, self.mistake = config["channels"], name
        self.main = nn.Sequential(
            nn.Conv2d(1, wide, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(wide, 2 * wide, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * wide), nn.LeakyReLU(0.2),
            nn.Conv2d(2 * wide, 1, 4),
        )  # fmt: skip

    def forward(self, pictures: Tensor) -> Tensor:
        logits = self.main(pictures).flatten()
        return logits.sigmoid() if self.mistake == "sigmoid_before_loss" else logits


class Training:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble = run, dict(run.config), trouble
        self.generator, self.discriminator = Generator(self.config), Discriminator(self.config, trouble.name)
        for module in (*self.generator.modules(), *self.discriminator.modules()):
            if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
                nn.init.normal_(module.weight, std=0.05)
        rate, betas = self.config["learning_rate"], (self.config["beta1"], 0.999)
        self.optimizer_g = torch.optim.Adam(self.generator.parameters(), lr=rate, betas=betas)
        self.optimizer_d = torch.optim.Adam(self.discriminator.parameters(), lr=rate, betas=betas)
        self.data = rings(seed + 11, self.config["examples"], self.config["kinds"])
        if trouble.name == "pictures_as_bytes":  # as they come from a file; the generator ends in a tanh
            self.data = ((self.data + 1) * 127.5).round()
        self.dice, self.seen = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(3)
        self.fixed = torch.randn(200, self.config["noise"], generator=self.seen)
        self.ways = functional.normalize(torch.randn(SIDE * SIDE, 30, generator=self.seen), dim=0)

    def cost(self, logits: Tensor, label: float) -> Tensor:
        if self.config["loss"] == "hinge":
            return functional.relu(1 - logits).mean() if label else functional.relu(1 + logits).mean()
        return functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))

    def fakes(self) -> Tensor:
        rows = int(self.config["batch_size"])
        return self.generator(torch.randn(rows, self.config["noise"], generator=self.dice))

    def one(self, step: int) -> None:
        trouble, config = self.trouble, self.config
        for group in (*self.optimizer_g.param_groups, *self.optimizer_d.param_groups):
            group["lr"] = rate = trouble.rate(step, config["learning_rate"])
        for _ in range(config["critic_steps"]):
            chosen = torch.randint(0, len(self.data), (int(config["batch_size"]),), generator=self.dice)
            if trouble.clears(step):
                self.optimizer_d.zero_grad()
            real, fake = self.discriminator(self.data[chosen]), self.fakes()
            judged = self.discriminator(fake.detach())
            loss_d = self.cost(real, config["real_label"]) + self.cost(judged, 0.0)
            loss_d.backward()
            self.optimizer_d.step()
        self.optimizer_g.zero_grad()
        given = fake.detach() if trouble.name == "generator_cut_off" else fake
        again = self.discriminator(given)
        if config["loss"] == "hinge":
            loss_g = -again.mean()
        else:
            loss_g = self.cost(again, 0.0 if trouble.name == "fakes_called_fake" else 1.0)
        loss_g.backward()
        self.optimizer_g.step()
        self.run.log({"Loss_D": loss_d.item(), "Loss_G": loss_g.item(), "D(x)": real.sigmoid().mean().item(),
                      "D(G(z))": again.sigmoid().mean().item(), "lr": rate}, step=step)  # fmt: skip

    @torch.no_grad()
    def evaluate(self, step: int) -> None:
        self.generator.eval()
        made = self.generator(self.fixed).flatten(1)
        self.generator.train()
        ordered = (made @ self.ways).sort(0).values - (self.data[:200].flatten(1) @ self.ways).sort(0).values
        self.run.log({"swd": ordered.abs().mean().item()}, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    made = Training(run, seed, Trouble(fault, seed))
    time_by_own_clock(run)
    run.watch([made.generator, made.discriminator], [made.optimizer_g, made.optimizer_d])
    for step in range(steps):
        made.one(step)
        if step % EVERY == 0 or step == steps - 1:
            made.evaluate(step)
    return run
