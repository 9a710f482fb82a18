"""Speech to sounds: a convolution and a GRU in both directions over made-up spectra, with the loss of CTC.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: ctc_loss, grad_norm, lr, epoch, val_loss, val_error_rate; the watch of the model.

An utterance is three to seven sounds of uneven length. The loss falls fast to where only blanks are said, stays for
a while, and falls again.
"""

from __future__ import annotations

from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

EVERY, SOUNDS, BANDS, FRAMES, MOST = 20, 8, 12, 48, 7
LEVEL, SPREAD = torch.linspace(-60, -10, BANDS), torch.linspace(18, 4, BANDS)  # of each band, in decibels
CONFIG: dict[str, Any] = {
    "width": 40, "stride": 2, "batch_size": 16, "learning_rate": 6e-3, "warmup_steps": 10, "schedule": "cosine",
    "clip": 5.0, "examples": 640, "noise": 0.5, "weight_decay": 1e-4, "dropout": 0.1,
}  # fmt: skip
Utterances = tuple[Tensor, Tensor, Tensor, Tensor]


def utterances(seed: int, number: int, noise: float) -> Utterances:
    """Spectra (number, FRAMES, BANDS), their lengths, sounds (number, MOST) from 1 on, and their lengths."""
    dice, makers = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(9)
    shapes = torch.randn(SOUNDS + 1, BANDS, generator=makers)
    shapes[0] = 0  # silence
    spoken = torch.randint(3, MOST + 1, (number,), generator=dice)
    sounds = torch.randint(1, SOUNDS + 1, (number, MOST), generator=dice)
    sounds = torch.where(torch.arange(MOST) < spoken[:, None], sounds, 0)
    lasting = torch.randint(4, 7, (number, MOST), generator=dice) * (sounds > 0)
    ends = lasting.cumsum(1)
    frames = torch.arange(FRAMES)
    which = (frames[None, :, None] >= ends[:, None]).sum(-1).clamp(max=MOST - 1)
    lengths = ends[:, -1]
    said = torch.where(frames < lengths[:, None], sounds.gather(1, which), 0)
    loud = 1 + 0.2 * torch.randn(number, 1, 1, generator=dice)
    spectra = loud * shapes[said] + noise * torch.randn(number, FRAMES, BANDS, generator=dice)
    return (LEVEL + SPREAD * spectra) * (frames < lengths[:, None])[..., None], lengths, sounds, spoken


class Listener(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        width = config["width"]
        self.front = nn.Sequential(
            nn.Conv1d(BANDS, width, 5, stride=config["stride"], padding=2), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Dropout(config["dropout"]),
        )  # fmt: skip
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, SOUNDS + 1)

    def forward(self, spectra: Tensor) -> Tensor:
        return self.head(self.gru(self.front(spectra.transpose(1, 2)).transpose(1, 2))[0])


class Training:
    def __init__(self, run: Any, config: dict[str, Any], seed: int, trouble: Trouble, healthy: str | None):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble, self.healthy = run, config, trouble, healthy
        self.stride = 10 if trouble.name == "outputs_too_short" else config["stride"]
        self.model = Listener(config | {"stride": self.stride})
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config["learning_rate"],
                                           weight_decay=config["weight_decay"])  # fmt: skip
        self.data, self.test = utterances(seed + 101, config["examples"], config["noise"]), utterances(
            929, 120, config["noise"])  # fmt: skip
        self.dice, self.order = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long)
        self.epoch, self.kept = -1, None

    def batch(self, step: int) -> Utterances:
        rows = int(self.config["batch_size"])
        if len(self.order) < rows:
            self.epoch += 1
            self.order = torch.randperm(len(self.data[0]), generator=self.dice)
            if self.healthy == "short_ones_first" and self.epoch == 0:
                self.order = self.data[1].argsort(stable=True)
        chosen, self.order = self.order[:rows], self.order[rows:]
        if self.trouble.on("data_exhausted", step):
            self.kept = chosen = chosen if self.kept is None else self.kept
        return tuple(part[chosen] for part in self.data)

    def loss(self, batch: Utterances, raw: bool = False) -> tuple[Tensor, float]:
        """The loss, and the share of sounds that the likeliest path gets wrong."""
        spectra, lengths, sounds, spoken = batch
        logits = self.model(spectra if raw else (spectra - LEVEL) / SPREAD)
        ends = (lengths + self.stride - 1) // self.stride
        likely = logits if self.trouble.name == "logits_for_logarithms" else logits.log_softmax(-1)
        loss = functional.ctc_loss(likely.transpose(0, 1), sounds, ends, spoken)
        wrong, total = 0, int(spoken.sum())
        for path, end, true in zip(logits.argmax(-1).tolist(), ends.tolist(), sounds.tolist(), strict=True):
            wrong += distance([two for one, two in zip([0, *path], path[:end], strict=False) if two and one != two],
                              [one for one in true if one])  # fmt: skip
        return loss, wrong / total

    def one(self, step: int) -> None:
        trouble, config = self.trouble, self.config
        self.optimizer.param_groups[0]["lr"] = rate = trouble.rate(step, self.rate(step))
        loss, wrong = self.loss(self.batch(step))
        if trouble.clears(step):
            self.optimizer.zero_grad()
        loss.backward()
        trouble.gradients(step, self.model, self.model.gru)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), config["clip"])
        self.optimizer.step()
        self.run.log({"ctc_loss": loss.detach(), "error_rate": wrong, "grad_norm": norm, "lr": rate,
                      "epoch": self.epoch}, step=step)  # fmt: skip

    def rate(self, step: int) -> float:
        from .loop import factor

        return self.config["learning_rate"] * factor(self.config, self.config["steps"], step)

    def evaluate(self, step: int) -> None:
        self.model.train(self.trouble.on("training_mode_in_evaluation", step))
        with torch.no_grad():
            loss, wrong = self.loss(self.test, raw=self.trouble.name == "held_out_unscaled")
        self.model.train()
        self.run.log({"val_loss": loss, "val_error_rate": wrong}, step=step)


def distance(one: list[int], other: list[int]) -> int:
    """Insertions, deletions and changes from one to the other."""
    row = list(range(len(other) + 1))
    for place, mine in enumerate(one, 1):
        before, row[0] = row[0], place
        for column, theirs in enumerate(other, 1):
            before, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, before + (mine != theirs))
    return row[-1]


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made = Training(run, dict(run.config), seed, trouble, healthy)
    trouble.spoil_model(made.model)
    time_by_own_clock(run)
    run.watch(made.model, made.optimizer)
    for step in range(steps):
        trouble.freeze(step, made.model.front)
        made.one(step)
        if step % EVERY == 0 or step == steps - 1:
            made.evaluate(step)
    return run
