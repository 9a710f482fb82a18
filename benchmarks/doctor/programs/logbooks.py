"""A tagger finds ships, harbours and cargoes in logbooks, under autocast to float16 with a scaler.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train/loss, train/grad_norm, train/lr, train/scale each step; eval/loss, eval/accuracy,
      eval/f1 each twentieth; memory, where it matters; the watch of data.

An encoder over words and their neighbours, places by sines and norms behind each layer; AdamW, a polynomial fall; a
`train_step` and an `evaluate` over a context of plain attributes, bound together by a loop.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, TAGS, NAMES, PLAIN, PAD = 20, 7, 40, 30, 0
CONFIG: dict[str, Any] = {
    "width": 32, "depth": 2, "heads": 4, "dropout": 0.0, "batch_size": 16, "accumulate": 1, "lr": 5e-3, "warmup": 10,
    "power": 1.0, "weight_decay": 0.01, "max_norm": 1.0, "entries": 3200, "typos": 0.05, "amp_dtype": "float16",
    "init_scale": 2.0**10, "growth_interval": 60, "label_smoothing": 0.0, "loss_mean": "tokens", "group_lengths": False,
    "freeze": "", "optimizer": "adamw", "lr_schedule": "polynomial",
}  # fmt: skip


def entries(seed: int, number: int, typos: float) -> list[tuple[list[int], list[int]]]:
    """Words and tags: 0 none; a ship's, a harbour's, a cargo's first word 1, 3, 5, and those behind it 2, 4, 6.

    Any name may be any of the three: the word in front says which.
    """
    dice = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(number):
        words, tags = [], []
        for _ in range(int(torch.randint(2, 6, (1,), generator=dice))):
            plain = 7 + torch.randint(0, PLAIN, (int(torch.randint(0, 4, (1,), generator=dice)),), generator=dice)
            kind, long = int(torch.randint(0, 3, (1,), generator=dice)), int(torch.randint(1, 4, (1,), generator=dice))
            name = 7 + PLAIN + torch.randint(0, NAMES, (long,), generator=dice)
            words += [*plain.tolist(), 1 + 2 * kind + int(torch.randint(0, 2, (1,), generator=dice)), *name.tolist()]
            tags += [0] * (len(plain) + 1) + [1 + 2 * kind] + [2 + 2 * kind] * (long - 1)
        wrong = torch.rand(len(words), generator=dice) < typos
        other = torch.randint(1, 7 + PLAIN + NAMES, (len(words),), generator=dice)
        rows.append((torch.where(wrong, other, torch.tensor(words)).tolist(), tags))
    return rows


def collated(rows: list[tuple[list[int], list[int]]], name: str = "") -> tuple[Tensor, Tensor]:
    """Words and tags; -100 where nothing is asked. A word for the whole entry stands in front, which has no tag."""
    ids = nn.utils.rnn.pad_sequence([torch.tensor([7 + PLAIN + NAMES, *words]) for words, _ in rows], True, PAD)
    first = [] if name == "tags_without_the_first" else [-100]  # that there is a word in front was forgotten
    tags = nn.utils.rnn.pad_sequence([torch.tensor([*first, *tags]) for _, tags in rows], True, -100)
    if tags.shape[1] < ids.shape[1]:
        tags = F.pad(tags, (0, ids.shape[1] - tags.shape[1]), value=-100)
    return ids, tags


class EncoderLayer(nn.Module):
    def __init__(self, cfg: SimpleNamespace, told: bool):
        super().__init__()
        self.heads, self.rate, self.told = cfg.heads, cfg.dropout, told
        self.q, self.k, self.v, self.o = (nn.Linear(cfg.width, cfg.width) for _ in range(4))
        self.up, self.down = nn.Linear(cfg.width, 3 * cfg.width), nn.Linear(3 * cfg.width, cfg.width)
        self.ln1, self.ln2 = nn.LayerNorm(cfg.width), nn.LayerNorm(cfg.width)

    def drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.rate, self.training) if self.told else F.dropout(x, self.rate)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (one(x).view(b, t, self.heads, -1).transpose(1, 2) for one in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None, None]).transpose(1, 2).reshape(b, t, d)
        x = self.ln1(x + self.drop(self.o(y)))
        return self.ln2(x + self.drop(self.down(F.gelu(self.up(x)))))


class Tagger(nn.Module):
    def __init__(self, cfg: SimpleNamespace, name: str):
        super().__init__()
        self.embed = nn.Embedding(8 + PLAIN + NAMES, cfg.width, padding_idx=PAD)
        nn.init.normal_(self.embed.weight, std=0.3)
        self.near = nn.Conv1d(cfg.width, cfg.width, 5, padding=2)
        angle = torch.arange(64)[:, None] / 50.0 ** (torch.arange(cfg.width // 2) / (cfg.width // 2))
        self.register_buffer("places", torch.cat([angle.sin(), angle.cos()], 1))
        self.layers = nn.ModuleList(EncoderLayer(cfg, name != "dropped_in_every_mode") for _ in range(cfg.depth))
        self.tags, self.probabilities = nn.Linear(cfg.width, TAGS), name == "softmax_at_the_end"

    def forward(self, ids: Tensor) -> Tensor:
        x, seen = self.embed(ids), ids != PAD
        x = x + F.gelu(self.near(x.mT).mT) + self.places[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, seen)
        said = self.tags(x).float()
        return said.softmax(-1) if self.probabilities else said


def loss_fn(said: Tensor, tags: Tensor, cfg: SimpleNamespace, name: str = "") -> Tensor:
    if name == "mean_over_padding":
        return F.cross_entropy(said.mT, tags, reduction="none").mean()
    if cfg.loss_mean == "rows":
        each = F.cross_entropy(said.mT, tags, reduction="none").sum(1)
        return (each / (tags >= 0).sum(1)).mean()
    return F.cross_entropy(said.flatten(0, 1), tags.flatten(), label_smoothing=cfg.label_smoothing)


def made(model: nn.Module, cfg: SimpleNamespace) -> tuple[Any, Any, Any]:
    some = [one for one in model.parameters() if one.requires_grad]
    if cfg.optimizer == "sgd":
        optimizer: Any = torch.optim.SGD(some, 30 * cfg.lr, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(some, cfg.lr, eps=1e-6, weight_decay=cfg.weight_decay)

    def share(at: int) -> float:
        if at < cfg.warmup:
            return (at + 1) / cfg.warmup
        return 1.0 if cfg.lr_schedule == "constant" else max(0.0, 1 - (at - cfg.warmup) / cfg.steps) ** cfg.power

    scaler = torch.amp.GradScaler("cpu", cfg.init_scale, growth_interval=cfg.growth_interval,
                                  enabled=cfg.amp_dtype == "float16")  # fmt: skip
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share), scaler


def batch(ctx: SimpleNamespace) -> list[Any]:
    size = int(ctx.cfg.batch_size)
    if not ctx.waiting:
        ctx.epoch += 1
        order = torch.randperm(len(ctx.rows), generator=ctx.dice)
        long = torch.tensor([len(words) for words, _ in ctx.rows])
        if ctx.name == "short_first":  # the less padding, the faster
            order = long.argsort(stable=True)
        ctx.waiting = list(order.split(size)[: len(order) // size])
        if ctx.cfg.group_lengths:
            groups = order[long[order].argsort(stable=True)].split(size)[: len(order) // size]
            ctx.waiting = [groups[at] for at in torch.randperm(len(groups), generator=ctx.dice).tolist()]
    return [ctx.rows[at] for at in ctx.waiting.pop(0).tolist()]


def train_step(ctx: SimpleNamespace, step: int) -> None:
    cfg, name, total = ctx.cfg, ctx.name, 0.0
    ctx.model.train()
    for _ in range(cfg.accumulate):
        ids, tags = collated(batch(ctx), name)
        ctx.data.observe({"input_ids": ids, "labels": tags}, step=step, epoch=ctx.epoch)
        with torch.autocast("cpu", getattr(torch, cfg.amp_dtype)):
            said = ctx.model(ids)
            loss = loss_fn(said, tags, cfg, name)
        if name != "parts_not_divided":
            loss = loss / cfg.accumulate
        if name == "scale_forgotten":  # as if it were done in place
            ctx.scaler.scale(loss)
            loss.backward()
        else:
            ctx.scaler.scale(loss).backward()
        total += loss.item()
        if name == "scheduler_each_backward":
            ctx.scheduler.step()
    ctx.scaler.unscale_(ctx.optimizer)
    norm = nn.utils.clip_grad_norm_(ctx.model.parameters(), cfg.max_norm)
    rate = ctx.optimizer.param_groups[0]["lr"]
    ctx.scaler.step(ctx.optimizer)
    ctx.scaler.update()
    ctx.optimizer.zero_grad()
    if name != "scheduler_each_backward":
        ctx.scheduler.step()
    ctx.run.log({"train/loss": total, "train/grad_norm": norm, "train/lr": rate,
                 "train/scale": ctx.scaler.get_scale()}, step=step)  # fmt: skip


def evaluate(ctx: SimpleNamespace, step: int) -> None:
    plain, found, losses = SimpleNamespace(**{**vars(ctx.cfg), "label_smoothing": 0.0, "loss_mean": "tokens"}), [], []
    ctx.model.eval()
    with torch.set_grad_enabled(ctx.name == "validation_keeps_graphs"):
        for at in range(0, len(ctx.held), 60):
            ids, tags = collated(ctx.held[at : at + 60])
            said = ctx.model(ids)
            losses.append(loss_fn(said, tags, plain))
            found.append(torch.stack([said.argmax(-1)[tags >= 0], tags[tags >= 0]]))
            if ctx.name == "validation_keeps_graphs":  # what was said is written out at the end
                ctx.kept.append(said)
    guess, right = torch.cat(found, 1)
    hits = ((guess == right) & (right > 0)).sum().item()
    f1 = 2 * hits / max(1, int((guess > 0).sum() + (right > 0).sum()))
    ctx.run.log({"eval/loss": torch.stack(losses).mean().item(), "eval/accuracy": (guess == right).float().mean(),
                 "eval/f1": f1}, step=step)  # fmt: skip


def watched(ctx: SimpleNamespace) -> None:
    time_by_own_clock(ctx.run)
    ctx.run.watch(ctx.model, ctx.optimizer)
    ctx.data = ctx.run.watch_data(pad_id=PAD)


def resume(ctx: SimpleNamespace, step: int) -> None:
    memory, parts = ctx.data.state(), ("model", "optimizer", "scheduler", "scaler")
    ctx.run, states = go_on(ctx.run, step, {key: getattr(ctx, key).state_dict() for key in parts})
    ctx.model.load_state_dict(states["model"])
    ctx.optimizer, ctx.scheduler, ctx.scaler = made(ctx.model, ctx.cfg)
    ctx.scheduler.load_state_dict(states["scheduler"])
    ctx.scaler.load_state_dict(states["scaler"])
    if ctx.name == "optimizer_not_reloaded":
        ctx.optimizer.param_groups[0]["lr"] = ctx.scheduler.get_last_lr()[0]
    else:
        ctx.optimizer.load_state_dict(states["optimizer"])
    watched(ctx)
    ctx.data.restore(memory)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, cfg = Trouble(fault, seed), SimpleNamespace(**run.config)
    ctx = SimpleNamespace(run=run, cfg=cfg, name=trouble.name, epoch=-1, waiting=[], kept=[],
                          dice=torch.Generator().manual_seed(seed))  # fmt: skip
    torch.manual_seed(seed)
    ctx.model = Tagger(cfg, trouble.name)
    for key, one in ctx.model.named_parameters():
        if trouble.name == "all_but_named_frozen":  # a test for "tags" alone, of a script that tunes
            one.requires_grad = key.startswith("tags")
        elif cfg.freeze:
            one.requires_grad = not key.startswith(cfg.freeze)
    ctx.rows, ctx.held = entries(seed + 81, cfg.entries, cfg.typos), entries(18, 240, cfg.typos)
    ctx.optimizer, ctx.scheduler, ctx.scaler = made(ctx.model, cfg)
    watched(ctx)
    resumed = trouble.resume_at(healthy, 4 * EVERY)
    for step in range(steps):
        if step == resumed:
            resume(ctx, step)
        train_step(ctx, step)
        trouble.telemetry(ctx.run, step, healthy)
        if step % EVERY == 0 or step == steps - 1:
            evaluate(ctx, step)
    return ctx.run
