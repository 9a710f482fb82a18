"""A variational autoencoder of small pictures: convolutions with batch norm, six latent numbers, logistic loss.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss, recon_loss, kl_loss, grad_norm, lr, val_loss; the watch of the model.

A picture is a soft blob: place, size, slant and brightness of its own. The loss of a picture is that of its pixels,
summed, and the divergence of its latent numbers from a normal distribution.
"""

from __future__ import annotations

from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

from .loop import factor

EVERY, SIDE = 20, 16
CONFIG: dict[str, Any] = {
    "channels": 12, "latent": 6, "batch_size": 48, "learning_rate": 4e-3, "warmup_steps": 10, "schedule": "cosine",
    "weight_decay": 0.0, "clip": 100.0, "beta": 1.0, "beta_steps": 0, "examples": 3000,
}  # fmt: skip


def blobs(seed: int, number: int) -> Tensor:
    """(number, 1, SIDE, SIDE), between 0 and 1."""
    dice = torch.Generator().manual_seed(seed)
    x, y, size, slant, bright = torch.rand(5, number, 1, 1, generator=dice)
    across = torch.arange(SIDE) / SIDE
    right, down = across - 0.25 - 0.5 * x, across[:, None] - 0.25 - 0.5 * y
    turned = right + (slant - 0.5) * down, down - (slant - 0.5) * right
    far = (turned[0] / (0.06 + 0.12 * size)).square() + (turned[1] / 0.1).square()
    return ((0.5 + 0.5 * bright) * torch.exp(-far))[:, None]


class Autoencoder(nn.Module):
    def __init__(self, config: dict[str, Any], name: str):
        super().__init__()
        wide, latent, self.mistake = config["channels"], config["latent"], name
        self.encoder = nn.Sequential(
            nn.Conv2d(1, wide, 3, 2, 1), nn.BatchNorm2d(wide), nn.ReLU(),
            nn.Conv2d(wide, 2 * wide, 3, 2, 1), nn.BatchNorm2d(2 * wide), nn.ReLU(), nn.Flatten(),
        )  # fmt: skip
        self.mean, self.log_variance = nn.Linear(32 * wide, latent), nn.Linear(32 * wide, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, 32 * wide), nn.ReLU(), nn.Unflatten(1, (2 * wide, 4, 4)),
            nn.ConvTranspose2d(2 * wide, wide, 4, 2, 1), nn.BatchNorm2d(wide), nn.ReLU(),
            nn.ConvTranspose2d(wide, 1, 4, 2, 1),
        )  # fmt: skip

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of the pixels; mean and logarithm of the variance of the latent numbers."""
        hidden = self.encoder(pictures)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        if self.mistake == "sampled_without_gradient":  # Normal.sample, where rsample was meant
            drawn = torch.distributions.Normal(mean, (0.5 * log_variance).exp()).sample()
        else:
            drawn = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
        logits = self.decoder(drawn)
        return logits.sigmoid() if self.mistake == "sigmoid_before_loss" else logits, mean, log_variance


def parts(model: Autoencoder, pictures: Tensor) -> tuple[Tensor, Tensor]:
    """Of a batch: the loss of its pixels, and the divergence."""
    name, rows = model.mistake, len(pictures)
    wanted = (pictures - 0.5) / 0.5 if name == "pixels_below_zero" else pictures
    logits, mean, log_variance = model(wanted)
    pixels = functional.binary_cross_entropy_with_logits(logits, wanted, reduction="sum") / rows
    if name == "pixels_averaged":
        pixels = functional.binary_cross_entropy_with_logits(logits, wanted)
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1).mean()
    return pixels, -divergence if name == "divergence_reversed" else divergence


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    config, trouble = dict(run.config), Trouble(fault, seed)
    torch.manual_seed(seed)
    model = Autoencoder(config, trouble.name)
    trouble.spoil_model(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["learning_rate"])
    data, held_out = blobs(seed + 91, config["examples"]), blobs(919, 200)
    dice = torch.Generator().manual_seed(seed)
    time_by_own_clock(run)
    run.watch(model, optimizer)
    for step in range(steps):
        trouble.freeze(step, model.decoder)
        rate = trouble.rate(step, config["learning_rate"] * factor(config, steps, step))
        optimizer.param_groups[0]["lr"] = rate
        chosen = torch.randint(0, len(data), (int(config["batch_size"]),), generator=dice)
        pixels, divergence = parts(model, data[chosen])
        beta = config["beta"] * (min(1.0, step / config["beta_steps"]) if config["beta_steps"] else 1.0)
        loss = pixels + beta * divergence
        if trouble.clears(step):
            optimizer.zero_grad()
        loss.backward()
        trouble.gradients(step, model, model.decoder)
        norm = nn.utils.clip_grad_norm_(model.parameters(), config["clip"])
        optimizer.step()
        run.log({"loss": loss.detach(), "recon_loss": pixels.detach(), "kl_loss": divergence.detach(),
                 "grad_norm": norm, "lr": rate}, step=step)  # fmt: skip
        if step % EVERY == 0 or step == steps - 1:
            model.train(trouble.on("training_mode_in_evaluation", step))
            with torch.no_grad():
                error = sum(parts(model, held_out))
            model.train()
            run.log({"val_loss": error}, step=step)
    return run
