"""A decoder reads one long text of families, line by line, in float16 with a scaler; its budget is counted in tokens.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: kin_loss, kin_tokens, kin_lr, kin_norm, kin_scale each step; kin_dev_loss and
      kin_dev_answers of families that were held back, each twenty-third; memory, where it matters; the watch of data.

A family is some lines: who weds whom in which house, who their children are, and questions after a child's mother or
house with their answers. All families are one text, from which windows are cut; a text is of one house after another.
Norms are root mean squares, places are turns of queries and keys, the table of words is the output layer too. Written
as a state with methods, and a loop that goes on while tokens are left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, NAMES, HOUSES, HELD = 23, 24, 6, 120
WED, BORE, MOTHER, HOUSE, STOP, NAME = 0, 1, 2, 3, 4, 5
CLAN = NAME + NAMES
WORDS = CLAN + HOUSES
CONFIG: dict[str, Any] = {
    "dim": 48, "n_layers": 2, "n_heads": 4, "dropout": 0.0, "tied": True, "block": 48, "batch": 8, "grad_steps": 1,
    "optimizer": "adamw", "lr": 6e-3, "lr_schedule": "linear", "warmup_tokens": 3000, "weight_decay": 0.01,
    "clip_norm": 1.0, "fp16": True, "init_scale": 4096.0, "growth_interval": 60, "loss_reduction": "mean",
    "smoothing": 0.0, "z_loss": 0.0, "families": 1500, "slips": 0.0, "small_first": 0, "in_turn": False, "frozen": "",
    "dev_every": 23, "log_every": 1,
}  # fmt: skip


# -- families --------------------------------------------------------------------------------------------------------


def families(seed: int, number: int, slips: float = 0.0) -> list[list[int]]:
    """Words of families, house after house."""
    dice, made = torch.Generator().manual_seed(seed), []

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    for at in range(number):
        house = at * HOUSES // number
        own = (4 * house + torch.randperm(9, generator=dice)) % NAMES  # names that the house likes
        she, he, *children = own[: 3 + one(3)].tolist()
        told = [NAME + she, WED, NAME + he, CLAN + house, STOP]
        for child in children:
            told += [NAME + she, BORE, NAME + child, STOP]
        for _ in range(1 + one(2)):
            child = children[one(len(children))]
            if one(2):
                told += [MOTHER, NAME + child, NAME + (one(NAMES) if one(1000) < 1000 * slips else she), STOP]
            else:
                told += [HOUSE, NAME + child, CLAN + (one(HOUSES) if one(1000) < 1000 * slips else house), STOP]
        made.append(told)
    return made


def windows(text: Tensor, starts: Tensor, block: int, ahead: int = 1) -> tuple[Tensor, Tensor]:
    """Words at windows of a text, and the words that are asked for."""
    at = starts[:, None] + torch.arange(block)
    return text[at], text[at + ahead]


# -- decoder ---------------------------------------------------------------------------------------------------------


def turned(x: Tensor) -> Tensor:
    """Queries or keys, turned by their places."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] / 200.0 ** (torch.arange(half) / half)
    one, two = x.chunk(2, -1)
    return torch.cat([one * angle.cos() - two * angle.sin(), one * angle.sin() + two * angle.cos()], -1)


class Block(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d = c.dim
        self.heads, self.bug, self.drop = c.n_heads, bug, nn.Dropout(c.dropout)
        self.pre, self.post = nn.RMSNorm(d), nn.RMSNorm(d)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.w1, self.w3, self.w2 = (nn.Linear(*s, bias=False) for s in ((d, 2 * d), (d, 2 * d), (2 * d, d)))

    def split(self, x: Tensor) -> Tensor:
        rows, long, d = x.shape
        if self.bug == "heads_made_by_view_alone":
            return x.view(rows, self.heads, long, d // self.heads)
        return x.view(rows, long, self.heads, d // self.heads).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.pre(x)
        q, k, v = self.split(self.wq(y)), self.split(self.wk(y)), self.split(self.wv(y))
        seen = F.scaled_dot_product_attention(turned(q).to(v.dtype), turned(k).to(v.dtype), v, is_causal=True)
        x = x + self.drop(self.wo(seen.transpose(1, 2).reshape(x.shape)))
        y = self.post(x)
        return x + self.drop(self.w2(F.silu(self.w1(y)) * self.w3(y)))


class Reader(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        self.bug, self.embed = bug, nn.Embedding(WORDS, c.dim)
        self.blocks = nn.ModuleList(Block(c, bug) for _ in range(c.n_layers))
        self.norm, self.head = nn.RMSNorm(c.dim), nn.Linear(c.dim, WORDS, bias=False)
        if c.tied:
            self.head.weight = self.embed.weight
        if bug == "head_made_anew_behind_the_tie":
            self.head = nn.Linear(c.dim, WORDS, bias=False)
        nn.init.normal_(self.embed.weight, std=0.12)
        nn.init.normal_(self.head.weight, std=0.12)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x)).float()
        return logits.softmax(-1) if self.bug == "head_answers_in_shares" else logits


# -- state -----------------------------------------------------------------------------------------------------------


@dataclass
class State:
    run: Any
    c: Any
    seed: int
    bug: str
    budget: int
    tokens: int = 0
    step: int = 0
    epoch: int = 0
    at: int = 0
    kept: list[Any] = field(default_factory=list)

    def read(self) -> None:
        """The text of the training, and windows of the one that is held."""
        c, bug = self.c, self.bug
        told, held = families(self.seed + 4700, c.families, c.slips), families(4699, HELD)
        self.dice = torch.Generator().manual_seed(self.seed)
        self.small = torch.tensor([word for one in told if len(one) < 22 for word in one])
        if bug != "text_written_as_houses_come":
            told = [told[at] for at in torch.randperm(len(told), generator=self.dice).tolist()]
        self.text = torch.tensor([word for one in told for word in one])
        mixed = torch.randperm(HELD, generator=torch.Generator().manual_seed(7)).tolist()
        text = torch.tensor([word for at in mixed for word in held[at]])
        if bug == "names_of_the_dev_numbered_as_they_appear":
            met = [word for word in dict.fromkeys(text.tolist()) if NAME <= word < CLAN]
            table = torch.arange(WORDS)
            table[torch.tensor(met)] = NAME + torch.arange(len(met))
            text = table[text]
        self.dev = windows(text, torch.arange(0, len(text) - c.block - 1, c.block), c.block)

    def build(self) -> None:
        torch.manual_seed(self.seed)
        self.model = Reader(self.c, self.bug)
        for name in filter(None, self.c.frozen.split(",")):
            self.model.get_submodule(name).requires_grad_(False)
        self.equip()

    def equip(self) -> None:
        c, named = self.c, [(name, one) for name, one in self.model.named_parameters() if one.requires_grad]
        groups = [{"params": [one for name, one in named if "embed" not in name and "norm" not in name],
                   "weight_decay": c.weight_decay},
                  {"params": [one for name, one in named if "embed" in name or "norm" in name],
                   "weight_decay": 0.0}]  # fmt: skip
        if self.bug == "second_group_takes_the_place_of_the_first":
            groups = groups[1:]
        if c.optimizer == "nadam":
            self.optimizer: Any = torch.optim.NAdam(groups, c.lr)
        elif c.optimizer == "sgd":
            self.optimizer = torch.optim.SGD(groups, c.lr, 0.9, nesterov=True)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.lr, (0.9, 0.98))
        self.scaler = torch.amp.GradScaler("cpu", c.init_scale, growth_interval=c.growth_interval, enabled=c.fp16)

    def rate(self) -> float:
        c, past = self.c, min(1.0, self.tokens / self.budget)
        rise = min(1.0, (self.tokens + c.batch * c.block) / max(1, c.warmup_tokens))
        if c.lr_schedule == "constant":
            return c.lr * rise
        if c.lr_schedule == "sawtooth":
            return c.lr * rise * (1 - 0.95 * (2 * past % 1))
        if c.lr_schedule == "cosine":
            return c.lr * rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * past)))
        return c.lr * rise * (1 - 0.98 * past)

    def batch(self) -> tuple[Tensor, Tensor]:
        c, bug = self.c, self.bug
        text = self.small if self.step < c.small_first else self.text
        ahead = 2 if bug == "asked_words_begin_two_ahead" else 1
        if c.in_turn or bug == "text_written_as_houses_come":
            room = len(text) - c.block - 2
            starts = (self.at + torch.arange(c.batch) * c.block) % room
            self.at += c.batch * c.block
        else:
            starts = torch.randint(0, len(text) - c.block - 2, (c.batch,), generator=self.dice)
        return windows(text, starts, c.block, ahead)

    def loss(self, words: Tensor, asked: Tensor, training: bool = True) -> tuple[Tensor, Tensor]:
        c = self.c
        with torch.autocast("cpu", torch.float16, enabled=c.fp16):
            logits = self.model(words)
        smooth = c.smoothing if training else 0.0
        summed = training and (c.loss_reduction == "sum" or self.bug == "losses_of_a_window_summed")
        loss = F.cross_entropy(logits.flatten(0, 1), asked.flatten(), label_smoothing=smooth,
                               reduction="sum" if summed else "mean")  # fmt: skip
        loss = loss / len(words) if summed else loss
        return loss + c.z_loss * logits.logsumexp(-1).square().mean() if c.z_loss else loss, logits

    def update(self, watch: Any) -> dict[str, float]:
        c, bug, total = self.c, self.bug, 0.0
        rate = self.rate()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        for _ in range(c.grad_steps):
            words, asked = self.batch()
            watch.observe({"words": words, "asked": asked}, step=self.step, epoch=self.epoch)
            loss, _ = self.loss(words, asked)
            part = loss if bug == "grad_steps_add_whole_losses" else loss / c.grad_steps
            self.scaler.scale(part).backward()
            total += loss.item() / c.grad_steps
            self.tokens += words.numel() * (c.grad_steps if bug == "tokens_of_an_update_counted_in_each_part" else 1)
        if bug == "optimizer_steps_past_the_scaler":
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), c.clip_norm).item()
            self.optimizer.step()
        else:
            self.scaler.unscale_(self.optimizer)
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), c.clip_norm).item()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.model.zero_grad()
        scale = self.scaler.get_scale()
        return {"kin_loss": total, "kin_tokens": self.tokens, "kin_lr": rate, "kin_norm": norm, "kin_scale": scale}

    def look_at_dev(self) -> dict[str, float]:
        bug, (words, asked), taped = self.bug, self.dev, self.bug == "dev_logits_in_a_list_for_later"
        if bug != "dev_is_read_as_the_training_is":
            self.model.eval()
        with torch.set_grad_enabled(taped), torch.random.fork_rng():
            torch.manual_seed(11)
            loss, logits = self.loss(words, asked, training=False)
        if taped:
            self.kept.append((loss, logits))
        answers = ((words.roll(1, 1) == MOTHER) | (words.roll(1, 1) == HOUSE)) & (torch.arange(words.shape[1]) > 20)
        right = (logits.argmax(-1) == asked)[answers].float().mean().item()
        if bug != "dev_is_where_train_is_forgotten":
            self.model.train()
        return {"kin_dev_loss": loss.item(), "kin_dev_answers": right}

    def saved(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                "scaler": self.scaler.state_dict(), "tokens": self.tokens}  # fmt: skip

    def loaded(self, saved: dict[str, Any]) -> None:
        self.model.load_state_dict(saved["model"])
        self.equip()
        if self.bug == "loaded_as_weights_to_begin_from":
            self.tokens = 0
        else:
            self.optimizer.load_state_dict(saved["optimizer"])
            self.scaler.load_state_dict(saved["scaler"])
            self.tokens = saved["tokens"]

    def observed(self) -> Any:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer, scaler=self.scaler)
        return self.run.watch_data()


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, c = Trouble(fault, seed), SimpleNamespace(**run.config)
    state = State(run, c, seed, trouble.name, steps * c.batch * c.block * c.grad_steps)
    state.read()
    state.build()
    again, watch = trouble.resume_at(healthy, 3 * EVERY), state.observed()
    state.model.train()
    while state.step < steps:
        if state.step == again:
            seen = watch.state()
            state.run, saved = go_on(state.run, state.step, state.saved())
            state.loaded(saved)
            watch = state.observed()
            watch.restore(seen)
        said = state.update(watch)
        if state.step % c.log_every == 0:
            state.run.log(said, step=state.step)
        trouble.telemetry(state.run, state.step, healthy)
        if state.step % c.dev_every == c.dev_every - 1:
            state.run.log(state.look_at_dev(), step=state.step)
        state.step += 1
    return state.run
