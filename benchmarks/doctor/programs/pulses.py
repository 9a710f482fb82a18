"""Curves of a pulse and the words that a nurse wrote of them are brought together, in the manner of CLIP.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss, acc, logit_scale, learning_rate each step; val_loss, val_acc each twentieth step;
      memory, where it matters; the watch of data.

Convolutions with batch norm for curves, a small encoder for words, a scale that is learnt; Adam in two groups, half a
cosine; a class `Clip` and a function `fit`, with loaders over a list of dicts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

EVERY, LONG, WORDS, KINDS = 20, 48, 6, 8
CONFIG: dict[str, Any] = {
    "channels": 24, "dim": 32, "dropout": 0.0, "batch_size": 32, "lr": 3e-3, "text_lr": 3e-3, "warmup_steps": 10,
    "schedule": "cosine", "patients": 1920, "visits": 1, "noise": 0.35, "init_scale": 10.0, "learn_scale": True,
    "max_scale": 100.0, "loss": "softmax", "norm": "batch", "freeze": [], "label_smoothing": 0.0, "reduction": "mean",
    "weight_decay": 1e-3, "drop_last": True, "both_ways": True,
}  # fmt: skip


def clinic(seed: int, patients: int, visits: int, noise: float) -> list[dict[str, Any]]:
    """Curves (LONG,) and six words: how fast, how strong, how even, a notch, a drift, a beat that is missing."""
    dice = torch.Generator().manual_seed(seed)
    time = torch.arange(LONG) / LONG
    rows = []
    for patient in range(patients):
        fast, strong, even, notch, drift, gap = torch.randint(0, KINDS, (6,), generator=dice).tolist()
        for _ in range(visits):
            phase = time * (2 + 0.6 * fast) + torch.rand(1, generator=dice)
            curve = (0.4 + 0.25 * strong) * torch.sin(2 * math.pi * (phase + 0.03 * even * torch.sin(9 * time)))
            curve = curve + 0.12 * notch * torch.sin(4 * math.pi * phase) + 0.3 * (drift - 3.5) * time
            curve = torch.where((time - gap / KINDS).abs() < 0.06, 0.2 * curve, curve)
            curve = 80 + 12 * (curve + noise * torch.randn(LONG, generator=dice))
            words = [word + KINDS * at for at, word in enumerate((fast, strong, even, notch, drift, gap))]
            rows.append({"patient": patient, "curve": curve, "words": torch.tensor(words), "fast": fast})
    return rows


def collate(rows: list[dict[str, Any]]) -> tuple[Tensor, Tensor]:
    return torch.stack([row["curve"] for row in rows]), torch.stack([row["words"] for row in rows])


class CurveTower(nn.Module):
    def __init__(self, cfg: dict[str, Any]):
        super().__init__()
        layers: list[nn.Module] = []
        inside = 1
        for outside in (cfg["channels"], 2 * cfg["channels"], 2 * cfg["channels"]):
            normal = nn.GroupNorm(4, outside) if cfg["norm"] == "group" else nn.BatchNorm1d(outside)
            layers += [nn.Conv1d(inside, outside, 5, 2, 2, bias=False), normal, nn.ReLU()]
            inside = outside
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Dropout(cfg["dropout"]))
        self.out = nn.Linear(inside * LONG // 8, cfg["dim"])

    def forward(self, curves: Tensor) -> Tensor:
        return self.out(self.layers(curves[:, None]))


class WordTower(nn.Module):
    def __init__(self, cfg: dict[str, Any]):
        super().__init__()
        self.words = nn.Embedding(WORDS * KINDS, cfg["dim"])
        nn.init.normal_(self.words.weight, std=0.3)
        self.mix = nn.TransformerEncoderLayer(cfg["dim"], 4, 2 * cfg["dim"], cfg["dropout"], batch_first=True)
        self.out = nn.Linear(WORDS * cfg["dim"], cfg["dim"])

    def forward(self, words: Tensor) -> Tensor:
        return self.out(self.mix(self.words(words)).flatten(1))


class Clip(nn.Module):
    def __init__(self, cfg: dict[str, Any], name: str):
        super().__init__()
        self.cfg, self.name = cfg, name
        self.curves, self.texts = CurveTower(cfg), WordTower(cfg)
        self.log_scale = nn.Parameter(torch.tensor(math.log(cfg["init_scale"])), requires_grad=cfg["learn_scale"])

    def scale(self) -> Tensor:
        if self.name == "scale_left_out":  # cosines go into the loss as they are
            return torch.ones(())
        return self.log_scale.exp().clamp(max=self.cfg["max_scale"])

    def forward(self, curves: Tensor, words: Tensor) -> Tensor:
        left, right = F.normalize(self.curves(curves), dim=-1), F.normalize(self.texts(words), dim=-1)
        return self.scale() * left @ right.T

    def loss(self, scores: Tensor, trained: bool) -> Tensor:
        cfg, name, wanted = self.cfg, self.name if trained else "", torch.arange(len(scores))
        if cfg["loss"] == "sigmoid" and trained:  # each pair by itself
            sign = 2 * torch.eye(len(scores)) - 1
            return -F.logsigmoid(sign * (scores - cfg["init_scale"])).sum() / len(scores)
        ways = (scores, scores.T) if cfg["both_ways"] else (scores,)
        smoothing = cfg["label_smoothing"] if trained else 0.0
        if name == "softmax_at_the_end":
            ways = tuple(one.softmax(-1) for one in ways)
        if name == "summed_not_averaged":
            return sum(F.cross_entropy(one, wanted, reduction="sum") for one in ways) / len(ways)  # type: ignore[return-value]
        if cfg["reduction"] == "sum":
            return sum(F.cross_entropy(one, wanted, reduction="sum") for one in ways) / (len(ways) * len(wanted))  # type: ignore[return-value]
        return sum(F.cross_entropy(one, wanted, label_smoothing=smoothing) for one in ways) / len(ways)  # type: ignore[return-value]


def tables(cfg: dict[str, Any], seed: int, name: str) -> tuple[Any, Any]:
    visits = cfg["visits"]
    rows = clinic(seed + 900, cfg["patients"] // visits, visits, cfg["noise"])
    held = clinic(90, 256, 1, cfg["noise"])
    if name == "patients_on_both_sides":  # rows were dealt out, where patients were meant
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(4)).tolist()
        held, rows = [rows[at] for at in order[:256]], [rows[at] for at in order[256:]]
    if name == "one_kind_behind_another":  # the ward's table is sorted by the pulse
        rows.sort(key=lambda row: row["fast"])
    whole = torch.stack([row["curve"] for row in rows])
    middle, spread = whole.mean(), whole.std()
    for row in (*rows, *held):
        row["curve"] = (row["curve"] - middle) / spread
    if name == "words_of_the_row_before":  # the header of one file was read as a row
        words = [row["words"] for row in rows]
        for row, word in zip(rows, [words[-1], *words[:-1]], strict=True):
            row["words"] = word
    return rows, held


def forever(loader: DataLoader[Any]) -> Iterator[tuple[int, Tensor, Tensor]]:
    epoch = 0
    while True:
        for curves, words in loader:
            yield epoch, curves, words
        epoch += 1


def fit(run: Any, cfg: dict[str, Any], seed: int, trouble: Trouble, healthy: str | None) -> Any:
    name, steps = trouble.name, cfg["steps"]
    torch.manual_seed(seed)
    rows, held = tables(cfg, seed, name)
    loader = DataLoader(rows, int(cfg["batch_size"]), shuffle=name != "one_kind_behind_another", collate_fn=collate,
                        drop_last=cfg["drop_last"], generator=torch.Generator().manual_seed(seed))  # fmt: skip
    model = Clip(cfg, name)
    for key, one in model.named_parameters():
        if name == "all_but_named_frozen":  # towers that come from elsewhere were meant; these come from nowhere
            one.requires_grad = ".out." in key or key == "log_scale"
        elif cfg["freeze"]:
            one.requires_grad = not key.startswith(tuple(cfg["freeze"]))

    def made() -> tuple[Any, Any]:
        def of(part: nn.Module) -> list[Any]:
            return [one for one in part.parameters() if one.requires_grad]

        groups = [{"params": of(model.curves), "lr": cfg["lr"]},
                  {"params": of(model.texts), "lr": cfg["text_lr"]}]  # fmt: skip
        if cfg["learn_scale"]:
            groups.append({"params": [model.log_scale], "lr": cfg["lr"], "weight_decay": 0.0})
        optimizer = torch.optim.AdamW(groups, weight_decay=cfg["weight_decay"])

        def share(step: int) -> float:
            if step < cfg["warmup_steps"]:
                return (step + 1) / cfg["warmup_steps"]
            if cfg["schedule"] == "constant":
                return 1.0
            return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (step - cfg["warmup_steps"]) / steps))

        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)

    optimizer, scheduler = made()
    time_by_own_clock(run)
    run.watch(model, optimizer)
    data, stream, kept = run.watch_data(), forever(loader), []
    resumed = trouble.resume_at(healthy, 4 * EVERY)
    model.train()
    for step in range(steps):
        if step == resumed:
            memory = data.state()
            run, states = go_on(run, step, [one.state_dict() for one in (model, optimizer, scheduler)])
            model.load_state_dict(states[0])
            optimizer, scheduler = made()
            scheduler.load_state_dict(states[2])
            if name == "optimizer_not_reloaded":
                for group, rate in zip(optimizer.param_groups, scheduler.get_last_lr(), strict=True):
                    group["lr"] = rate
            else:
                optimizer.load_state_dict(states[1])
            time_by_own_clock(run)
            run.watch(model, optimizer)
            data = run.watch_data()
            data.restore(memory)
        epoch, curves, words = next(stream)
        data.observe((curves, words), step=step, epoch=epoch)
        scores = model(curves, words)
        loss = model.loss(scores, True)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        rate = scheduler.get_last_lr()[0]
        scheduler.step()
        right = (scores.argmax(1) == torch.arange(len(scores))).float().mean()
        run.log({"loss": loss.detach(), "acc": right, "logit_scale": model.scale().detach(), "learning_rate": rate},
                step=step)  # fmt: skip
        trouble.telemetry(run, step, healthy)
        if step % EVERY == 0 or step == steps - 1:
            if name != "no_eval_call":
                model.eval()
            with torch.set_grad_enabled(name == "validation_keeps_graphs"):
                found = [model(*collate(held[at : at + 32])) for at in range(0, len(held), 32)]
                losses = torch.stack([model.loss(one, False) for one in found])
            if name == "validation_keeps_graphs":  # all scores, for the nearest words at the end
                kept.append(found)
            hits = torch.cat([one.argmax(1) == torch.arange(len(one)) for one in found]).float().mean()
            run.log({"val_loss": losses.mean().item(), "val_acc": hits.item()}, step=step)
            model.train()
    return run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    return fit(run, dict(run.config), seed, Trouble(fault, seed), healthy)
