"""Two hearings of one recording are brought together, those of other recordings apart: who speaks, nobody is told.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log` as Loss/train, Accuracy/train, LR/train; Loss/test, Accuracy/test each twentieth; the watch
      of data.

Spectra of synthetic voices, convolutions with batch norm, a projector, NT-Xent over both halves of a batch whose
diagonal is cut out; SGD with momentum and a polynomial fall; a `SimCLR` object as many repositories have.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

EVERY, BANDS, LONG, CROP = 20, 12, 24, 16
CONFIG: dict[str, Any] = {
    "channels": 32, "out_dim": 24, "temperature": 0.2, "dropout": 0.0, "batch_size": 32, "lr": 0.1, "momentum": 0.9,
    "wd": 1e-4, "warmup_steps": 10, "power": 1.0, "recordings": 2560, "noise": 0.6, "bn_momentum": 0.1, "ema": 0.0,
    "norm": "batch", "frozen": "", "hearings": 1, "reduction": "mean", "decoupled": False, "sync_hard": 0.0,
}  # fmt: skip


def record(seed: int, number: int) -> Tensor:
    """Recordings (number, BANDS, LONG): a speaker's timbre, a melody, and no two speakers alike."""
    dice = torch.Generator().manual_seed(seed)
    timbre = torch.randn(number, BANDS, 1, generator=dice)
    place = torch.arange(BANDS)[None, :, None]
    time = torch.arange(LONG)[None, None]
    pitch = BANDS * torch.rand(number, 1, 1, generator=dice)
    wobble = 1 + 3 * torch.rand(number, 1, 1, generator=dice)
    speed = 0.2 + 0.6 * torch.rand(number, 1, 1, generator=dice)
    line = pitch + wobble * torch.sin(speed * time + 6.3 * torch.rand(number, 1, 1, generator=dice))
    return 0.6 * timbre + 2 * torch.exp(-0.5 * (place - line).square())


class Recordings(Dataset[Any]):
    def __init__(self, sounds: Tensor, noise: float, seed: int, same: bool = False):
        self.sounds, self.noise, self.same = sounds, noise, same
        self.dice = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return len(self.sounds)

    def hear(self, sound: Tensor) -> Tensor:
        at = int(torch.randint(0, LONG - CROP + 1, (1,), generator=self.dice))
        loud = 0.7 + 0.6 * torch.rand(1, generator=self.dice)
        crop = loud * sound[:, at : at + CROP]
        return crop + self.noise * torch.randn(crop.shape, generator=self.dice)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        first = self.hear(self.sounds[index])
        return first, first if self.same else self.hear(self.sounds[index])


def norm(config: dict[str, Any], width: int) -> nn.Module:
    if config["norm"] == "group":
        return nn.GroupNorm(4, width)
    return nn.BatchNorm1d(width, momentum=config["bn_momentum"])


class VoiceNet(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        width = config["channels"]
        self.encoder = nn.Sequential(
            nn.Conv1d(BANDS, width, 3, padding=1, bias=False), norm(config, width), nn.ReLU(),
            nn.Conv1d(width, width, 3, stride=2, padding=1, bias=False), norm(config, width), nn.ReLU(),
        )  # fmt: skip
        self.projector = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Dropout(config["dropout"]),
                                       nn.Linear(width, config["out_dim"]))  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        features = self.encoder(x)
        return self.projector(torch.cat([features.mean(-1), features.amax(-1)], 1))


class SimCLR:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        self.run, self.config, self.trouble, self.name, self.seed = run, dict(run.config), trouble, trouble.name, seed
        config, name = self.config, self.name
        torch.manual_seed(seed)
        sounds, test = record(seed + 4003, config["recordings"]), record(400, 256)
        if name == "heard_before_split":  # each recording is in the table several times, and lines were dealt out
            few = sounds[: config["recordings"] // config["hearings"]]
            lines = few.repeat_interleave(config["hearings"], 0)
            lines = lines[torch.randperm(len(lines), generator=torch.Generator().manual_seed(seed))]
            sounds, test = lines[256:], lines[:256]
        elif config["hearings"] > 1:  # the training's recordings are few, and the table has each several times
            few = sounds[: config["recordings"] // config["hearings"]]
            sounds = few.repeat_interleave(config["hearings"], 0)
        if name == "sorted_by_loudness":  # the table is sorted, and the loader leaves it so
            sounds = sounds[sounds[:, 0].mean(-1).argsort()]
        self.data = Recordings(sounds, config["noise"], seed, name == "one_hearing_twice")
        self.test = Recordings(test, config["noise"], 5)
        made = dict(config)
        if name == "statistics_hardly_moved":  # Keras' 0.99, the other way round, once more
            made["bn_momentum"] = 0.001
        self.model = VoiceNet(made)
        for key, one in self.model.named_parameters():
            if name == "wrong_names_frozen":  # the projector alone was to be frozen for a probe, once
                one.requires_grad = key.startswith("projector.3")
            elif config["frozen"]:
                one.requires_grad = not key.startswith(config["frozen"])
        self.slow = copy.deepcopy(self.model).eval().requires_grad_(False) if config["ema"] else None
        self.plan()

    def plan(self) -> None:
        config = self.config
        self.optimizer = torch.optim.SGD([one for one in self.model.parameters() if one.requires_grad], config["lr"],
                                         config["momentum"], weight_decay=config["wd"], nesterov=True)  # fmt: skip
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min((step + 1) / config["warmup_steps"],
                                             max(0.02, 1 - step / config["steps"]) ** config["power"]))  # fmt: skip

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.watched = self.run.watch_data()

    def info_nce(self, features: Tensor, trained: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Logits without the diagonal, and the place of each row's other half."""
        config, name = self.config, self.name if trained else ""
        if self.name != "features_not_normalised":  # with a product in the place of the cosine, in both
            features = F.normalize(features, dim=1)
        both, half = len(features), len(features) // 2
        scores = features @ features.T / config["temperature"]
        logits = scores[~torch.eye(both, dtype=torch.bool)].view(both, both - 1)
        labels = torch.cat([torch.arange(half) + half - 1, torch.arange(half)])
        if name == "diagonal_forgotten":  # places are as they were before the diagonal was cut out
            labels = torch.cat([torch.arange(half) + half, torch.arange(half)]).clamp(max=both - 2)
        given = F.softmax(logits, dim=1) if name == "probabilities_given" else logits
        if config["decoupled"] and trained:
            chosen = F.one_hot(labels, both - 1).bool()
            loss = (logits.masked_fill(chosen, -math.inf).logsumexp(1) - logits[chosen]).mean()
        elif name == "total_over_batch":
            loss = F.cross_entropy(given, labels, reduction="sum")
        elif config["reduction"] == "sum":
            loss = F.cross_entropy(given, labels, reduction="sum") / both
        else:
            loss = F.cross_entropy(given, labels)
        right = torch.cat([torch.arange(half) + half - 1, torch.arange(half)])
        return loss, logits, right

    @torch.no_grad()
    def update_slow(self) -> None:
        if self.slow is None:
            return
        for mine, theirs in zip(self.slow.parameters(), self.model.parameters(), strict=True):
            mine.mul_(self.config["ema"]).add_(theirs, alpha=1 - self.config["ema"])
        if self.name != "buffers_not_averaged":
            for mine, theirs in zip(self.slow.buffers(), self.model.buffers(), strict=True):
                mine.copy_(theirs)

    def loader(self) -> DataLoader[Any]:
        return DataLoader(self.data, int(self.config["batch_size"]), shuffle=self.name != "sorted_by_loudness",
                          drop_last=True, generator=torch.Generator().manual_seed(self.seed))  # fmt: skip

    @torch.no_grad()
    def evaluate(self, step: int) -> None:
        model = self.model if self.slow is None else self.slow
        if self.name != "test_with_dropout":
            model.eval()
        self.test.dice.manual_seed(5)
        found = []
        for first, second in DataLoader(self.test, 32):
            loss, logits, labels = self.info_nce(model(torch.cat([first, second])), False)
            found.append(torch.stack([loss, (logits.argmax(1) == labels).float().mean()]))
        loss, accuracy = torch.stack(found).mean(0).tolist()
        self.run.log({"Loss/test": loss, "Accuracy/test": accuracy}, step=step)
        self.model.train()

    def resume(self, step: int) -> None:
        memory = self.watched.state()
        parts = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}
        self.run, states = go_on(self.run, step, {key: one.state_dict() for key, one in parts.items()})
        self.model.load_state_dict(states["model"])
        self.plan()
        self.scheduler.load_state_dict(states["scheduler"])
        self.optimizer.load_state_dict(states["optimizer"])
        self.watch()
        self.watched.restore(memory)

    def train(self, steps: int, healthy: str | None) -> Any:
        step, epoch = 0, 0
        resumed = self.trouble.resume_at(healthy, 4 * EVERY)
        loader = self.loader()
        while step < steps:
            for first, second in loader:
                if step == resumed:
                    self.resume(step)
                self.watched.observe((first, second), step=step, epoch=epoch)
                loss, logits, labels = self.info_nce(self.model(torch.cat([first, second])), True)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                rate = self.scheduler.get_last_lr()[0]
                self.scheduler.step()
                self.update_slow()
                top = (logits.argmax(1) == labels).float().mean()
                self.run.log({"Loss/train": loss, "Accuracy/train": top, "LR/train": rate}, step=step)
                if step % EVERY == 0 or step == steps - 1:
                    self.evaluate(step)
                step += 1
                if step == steps:
                    break
            epoch += 1
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    made = SimCLR(run, seed, Trouble(fault, seed))
    made.watch()
    return made.train(steps, healthy)
