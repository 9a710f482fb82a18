"""A decoder whose weights are all bfloat16 is pretrained on gazettes: short notices of five sections, packed into rows.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train/nll, train/gnorm, train/lr each step; holdout/nll at each twentieth; the watch of
      data.

Notices stand one behind the other in a row, and a notice sees itself alone; rotary places, root mean squares for norms,
gated layers, the output is the embedding; a loader that is an endless generator, AdamW, a warm-up and a cosine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, BOS, EOS, SECTIONS, TOKENS = 20, 0, 1, 5, 47
CONFIG: dict[str, Any] = {
    "dim": 48, "n_layers": 2, "n_heads": 4, "seq_len": 56, "attn_dropout": 0.0, "resid_dropout": 0.0, "rows": 12,
    "micro_batches": 1, "lr": 6e-3, "lr_floor": 0.1, "warmup_steps": 12, "lr_decay": "cosine", "wd": 0.1,
    "clip_at": 1.0, "betas": [0.9, 0.95], "notices": 3000, "tied": True, "optim": "adamw", "label_smoothing": 0.0,
    "freeze": "", "typos": 0.0, "logit_cap": 0.0, "sections_first": 0,
}  # fmt: skip


def notices(seed: int, number: int, typos: float = 0.0) -> list[Tensor]:
    """Notices, one section behind the other: a beginning, the section, words as they follow in it, an end."""
    dice, grammar = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(71)
    words = TOKENS - 2 - SECTIONS
    after = torch.stack([torch.randperm(words, generator=grammar) for _ in range(2 * SECTIONS)]).view(SECTIONS, 2, -1)
    section = torch.arange(number) * SECTIONS // number
    long = torch.randint(6, 24, (number,), generator=dice)
    word, rows = torch.randint(0, words, (number,), generator=dice), []
    for _ in range(24):
        rows.append(word)
        rare = (torch.rand(number, generator=dice) < 0.25).long()
        word = after[section, rare, word]
        typo = torch.rand(number, generator=dice) < typos
        word = torch.where(typo, torch.randint(0, words, (number,), generator=dice), word)
    text = torch.stack(rows, 1) + 2 + SECTIONS
    return [
        torch.cat([torch.tensor([BOS, 2 + int(of)]), row[: int(far)], torch.tensor([EOS])])
        for of, row, far in zip(section, text, long, strict=True)
    ]


def pack(some: list[Tensor], long: int) -> Tensor:
    """One notice behind the other, cut into rows."""
    whole = torch.cat(some)
    return whole[: len(whole) // long * long].view(-1, long)


def of_documents(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Which notice of its row each token is of, and its place in it."""
    begins = ids == BOS
    at = torch.arange(ids.shape[1]).expand_as(ids)
    return begins.long().cumsum(1), at - torch.where(begins, at, 0).cummax(1).values


def turned(x: Tensor, place: Tensor) -> Tensor:
    """Rotary places."""
    half = x.shape[-1] // 2
    angle = place[:, None, :, None] * 0.05 ** (torch.arange(half) / half)
    sin, cos, one, two = angle.sin().to(x.dtype), angle.cos().to(x.dtype), x[..., :half], x[..., half:]
    return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)


class Layer(nn.Module):
    def __init__(self, cfg: dict[str, Any], bug: str):
        super().__init__()
        d, self.heads, self.p, self.bug = cfg["dim"], cfg["n_heads"], cfg["attn_dropout"], bug
        self.norm_a, self.norm_f = nn.RMSNorm(d), nn.RMSNorm(d)
        self.wqkv, self.wo = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.w12, self.w3 = nn.Linear(d, 4 * d, bias=False), nn.Linear(2 * d, d, bias=False)
        self.drop = nn.Dropout(cfg["resid_dropout"])

    def forward(self, x: Tensor, mask: Tensor, place: Tensor) -> Tensor:
        parts = self.wqkv(self.norm_a(x)).chunk(3, -1)
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in parts)
        p = self.p if self.training or self.bug == "sdpa_dropout_in_eval" else 0.0
        y = F.scaled_dot_product_attention(turned(q, place), turned(k, place), v, mask, p)
        x = x + self.drop(self.wo(y.transpose(1, 2).flatten(2)))
        gate, up = self.w12(self.norm_f(x)).chunk(2, -1)
        return x + self.drop(self.w3(F.silu(gate) * up))


class Gazetteer(nn.Module):
    def __init__(self, cfg: dict[str, Any], bug: str):
        super().__init__()
        self.bug, self.cap = bug, cfg["logit_cap"]
        self.embed = nn.Embedding(TOKENS, cfg["dim"])
        self.layers = nn.ModuleList(Layer(cfg, bug) for _ in range(cfg["n_layers"]))
        self.norm, self.output = nn.RMSNorm(cfg["dim"]), nn.Linear(cfg["dim"], TOKENS, bias=False)
        for name, one in self.named_parameters():
            if one.ndim > 1:
                nn.init.normal_(one, std=0.02 if name.endswith(("wo.weight", "w3.weight")) else 0.08)
        if cfg["tied"]:
            self.output.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        of, place = of_documents(ids)
        mask = (of[:, :, None] == of[:, None, :])[:, None]
        if self.bug != "document_mask_not_causal":
            mask = mask & torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, mask, place)
        logits = self.output(self.norm(x)).float()
        if self.cap:
            logits = self.cap * torch.tanh(logits / self.cap)
        return logits.softmax(-1) if self.bug == "softmax_in_head" else logits


def rows_of(cfg: dict[str, Any], docs: list[Tensor], seed: int, bug: str) -> Iterator[tuple[int, Tensor]]:
    """Epoch and rows, for ever; notices are in another order in each epoch, and packed anew."""
    dice, epoch = torch.Generator().manual_seed(seed), 0
    while True:
        order = torch.randperm(len(docs), generator=dice).tolist()
        if bug == "documents_by_topic":
            order = list(range(len(docs)))
        if cfg["sections_first"] and epoch == 0:  # of some sections alone, then all: as it is configured
            order = [at for at in order if at * SECTIONS // len(docs) < cfg["sections_first"]]
        packed = pack([docs[at] for at in order], cfg["seq_len"] + 1)
        for first in range(0, len(packed) - cfg["rows"] + 1, cfg["rows"]):
            yield epoch, packed[first : first + cfg["rows"]]
        epoch += 1


def targets(rows: Tensor, far: int = 1) -> Tensor:
    """What follows; no notice foretells how the next begins."""
    return rows[:, far:].masked_fill(rows[:, far:] == BOS, -100)


def loss_of(cfg: dict[str, Any], model: nn.Module, rows: Tensor, bug: str) -> Tensor:
    far = 2 if bug == "next_after_next" else 1
    logits, wanted = model(rows[:, :-far]).flatten(0, 1), targets(rows, far).flatten()
    if bug == "nll_total_over_rows":
        return F.cross_entropy(logits, wanted, reduction="sum") / len(rows)
    return F.cross_entropy(logits, wanted, label_smoothing=cfg["label_smoothing"])


def optimizer_for(cfg: dict[str, Any], model: Gazetteer, bug: str) -> tuple[Any, Any]:
    some = [one for one in model.parameters() if one.requires_grad]
    if cfg["optim"] == "sgd":
        optimizer: Any = torch.optim.SGD(some, cfg["lr"], 0.9)
    else:
        kind = partial(torch.optim.NAdam, decoupled_weight_decay=True) if cfg["optim"] == "nadam" else torch.optim.AdamW
        optimizer = kind(some, cfg["lr"], tuple(cfg["betas"]), weight_decay=cfg["wd"])
    if bug == "decoder_made_after_optimizer" and model.output.weight is model.embed.weight:
        model.output = nn.Linear(cfg["dim"], TOKENS, bias=False, dtype=torch.bfloat16)
    warm, floor, last = cfg["warmup_steps"], cfg["lr_floor"], cfg["steps"]

    def share(at: int) -> float:
        if at < warm or cfg["lr_decay"] == "none":
            return min(1.0, (at + 1) / warm)
        done = min(1.0, (at - warm) / (last - warm))
        return floor + (1 - floor) * (0.5 + 0.5 * math.cos(math.pi * done) if cfg["lr_decay"] == "cosine" else 1 - done)

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)


def holdout(model: nn.Module, held: Tensor, bug: str) -> Tensor:
    model.eval()
    with torch.set_grad_enabled(bug == "validated_with_grad"):
        said = torch.cat([model(rows[:, :-1]) for rows in held.split(24)])
        return F.cross_entropy(said.flatten(0, 1), targets(held).flatten())


def resume(run: Any, it: int, cfg: dict[str, Any], model: Gazetteer, parts: list[Any], bug: str) -> Any:
    run, states = go_on(run, it, [one.state_dict() for one in (model, *parts)])
    model.load_state_dict(states[0])
    optimizer, scheduler = optimizer_for(cfg, model, bug)
    scheduler.load_state_dict(states[2])
    if bug != "optimizer_not_in_checkpoint":
        optimizer.load_state_dict(states[1])
    for group in optimizer.param_groups:
        group["lr"] = scheduler.get_last_lr()[0]
    return run, optimizer, scheduler


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    cfg, trouble = dict(run.config), Trouble(fault, seed)
    bug, resumed, curve = trouble.name, trouble.resume_at(healthy, 4 * EVERY), []
    torch.manual_seed(seed)
    docs, late = notices(seed + 4100, cfg["notices"], cfg["typos"]), notices(41, 400)
    if bug == "holdout_in_training_files":  # the glob takes the late edition too
        docs = docs[::75] + late
    held, stream = pack(late, cfg["seq_len"] + 1), rows_of(cfg, docs, seed, bug)
    model = Gazetteer(cfg, bug).to(torch.bfloat16)
    if cfg["freeze"]:
        model.get_submodule(cfg["freeze"]).requires_grad_(False)
    optimizer, scheduler = optimizer_for(cfg, model, bug)
    time_by_own_clock(run)
    run.watch(model, optimizer)
    data = run.watch_data()
    model.train()
    for it in range(steps):
        if it == resumed:
            seen = data.state()
            run, optimizer, scheduler = resume(run, it, cfg, model, [optimizer, scheduler], bug)
            time_by_own_clock(run)
            run.watch(model, optimizer)
            data = run.watch_data()
            data.restore(seen)
        if bug != "train_mode_set_outside_loop":
            model.train()
        nll = 0.0
        for _ in range(cfg["micro_batches"]):
            epoch, rows = next(stream)
            data.observe({"input_ids": rows[:, :-1], "labels": rows[:, 1:]}, step=it, epoch=epoch)
            loss = loss_of(cfg, model, rows, bug)
            if bug != "micro_grads_undivided":
                loss = loss / cfg["micro_batches"]
            loss.backward()
            nll += loss.item()
            if bug == "scheduler_for_each_micro":
                scheduler.step()
        gnorm = nn.utils.clip_grad_norm_(model.parameters(), cfg["clip_at"] or math.inf).item()
        run.log({"train/nll": nll, "train/gnorm": gnorm, "train/lr": optimizer.param_groups[0]["lr"]}, step=it)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if bug != "scheduler_for_each_micro":
            scheduler.step()
        trouble.telemetry(run, it, healthy)
        if it % EVERY == EVERY - 1 or it == steps - 1:
            found = holdout(model, held, bug)
            curve.append(found if bug == "validated_with_grad" else found.item())
            run.log({"holdout/nll": found.item()}, step=it)
    return run
