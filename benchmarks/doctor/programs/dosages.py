"""Adapters hung on a decoder of four bits teach it to answer a prescription with the hours at which tablets are taken.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: answer/loss, answer/lr, answer/grad each step; quiz/loss and quiz/all_right of held
      prescriptions, each twenty-second; memory, where it matters; the watch of data.

A prescription names tablets, a drug, an interval and the first hour; its answer says whether the drug goes with food,
gives the hours of a day, how many tablets that makes, and ends. The base has read prescriptions with answers of chance
hours; its matrices are four bits of one table of sixteen levels, with a scale for each block. Food's words are new: the
table of words, which is the output layer too, is made longer and learns. Adapters are hooks behind linear layers.
Written as functions over one record, and a training that is a generator of what its steps say.
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

EVERY, HELD, LONG = 22, 160, 17
DRUGS, GAPS = 8, (4, 6, 8, 12)
PAD, TAKE, EACH, FROM, ANSWER, END, DRUG = 0, 1, 2, 3, 4, 5, 6
NUMBER = DRUG + DRUGS
KNOWN = NUMBER + 25  # words of the base; three words of food come behind
FOOD, WORDS = KNOWN, KNOWN + 3
LEVELS = torch.tensor([-1.0, -0.7, -0.53, -0.39, -0.28, -0.18, -0.09, 0.0, 0.08, 0.16, 0.25, 0.34, 0.44, 0.56, 0.72, 1])
CONFIG: dict[str, Any] = {
    "dim": 40, "layers": 2, "heads": 4, "block": 40, "rank": 8, "alpha": 16.0, "adapter_dropout": 0.0,
    "hang_on": "q,v,up", "train_words": True, "per_device_batch": 16, "accum_steps": 1, "optim": "adamw", "lr": 1.2e-2,
    "schedule": "poly", "warmup_ratio": 0.05, "weight_decay": 0.0, "max_grad": 1.0, "reduction": "mean",
    "learn_prompts": False, "smoothing": 0.0, "words_lr_times": 1.0, "prescriptions": 900, "again": 1, "slips": 0.0,
    "short_first": 0, "bucket": False, "quiz_every": 22, "say_every": 1,
}  # fmt: skip

Row = tuple[list[int], list[int]]


# -- prescriptions --------------------------------------------------------------------------------------------------


def prescriptions(seed: int, number: int, again: int = 1, slips: float = 0.0, law: bool = True) -> list[Row]:
    """Words of prescriptions and of their answers, drug after drug. again: times that each comes."""
    dice, rows = torch.Generator().manual_seed(seed), []

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    many = number // again
    for at in range(many):
        drug, gap, tablets = at * DRUGS // many, GAPS[one(4)], 1 + one(3)
        first = one(gap)
        told = [TAKE, NUMBER + tablets, DRUG + drug, EACH, NUMBER + gap, FROM, NUMBER + first, ANSWER]
        hours = (
            [NUMBER + first + gap * turn for turn in range(24 // gap)]
            if law
            else sorted(NUMBER + one(24) for _ in range(2 + one(5)))
        )
        food = [FOOD + (drug * 5 // 2) % 3] if law else []
        for _ in range(again):
            answer = [*food, *hours, NUMBER + tablets * len(hours) if law else NUMBER + one(19), END]
            if float(torch.rand((), generator=dice)) < slips:
                answer[1 + one(len(hours))] = NUMBER + one(24)
            rows.append((told, answer))
    return rows


def collate(rows: list[Row], *, prompts: bool = False, long: int = 0, bug: str = "") -> dict[str, Tensor]:
    """Rows as long as the longest, and what is to be said at each place; -100 is not asked."""
    long = long or max(len(told) + len(answer) for told, answer in rows)
    ids, asked = torch.full((len(rows), long), PAD), torch.full((len(rows), long), -100)
    for at, (told, answer) in enumerate(rows):
        if bug == "answers_cut_before_their_end":
            answer = answer[:-1]
        row = torch.tensor([*told, *answer])
        to = slice(long - len(row), long) if bug == "quiz_rows_padded_on_the_left" else slice(0, len(row))
        ids[at, to] = row
        asked[at, to] = row
        if not prompts:
            asked[at, to][: len(told)] = -100
    if bug == "moved_in_the_collator_and_in_the_loss":
        asked = F.pad(asked[:, 1:], (0, 1), value=-100)
    return {"ids": ids, "asked": asked}


# -- base -----------------------------------------------------------------------------------------------------------


class Packed(nn.Module):
    """A linear layer in four bits."""

    def __init__(self, plain: nn.Linear, block: int):
        super().__init__()
        rows = plain.weight.detach().view(-1, block)
        scale = rows.abs().amax(1, keepdim=True)
        self.shape = plain.weight.shape
        self.register_buffer("codes", ((rows / scale)[..., None] - LEVELS).abs().argmin(-1).to(torch.uint8))
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, (LEVELS[self.codes.long()] * self.scale).view(self.shape))


class Turn(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads, self.one, self.two = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.one(x)
        q, k, v = (one(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.two(x))))


class Decoder(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.words, self.places = nn.Embedding(KNOWN, c.dim), nn.Embedding(LONG, c.dim)
        self.turns = nn.ModuleList(Turn(c.dim, c.heads) for _ in range(c.layers))
        self.last, self.head = nn.LayerNorm(c.dim), nn.Linear(c.dim, KNOWN, bias=False)
        nn.init.normal_(self.words.weight, std=0.15)
        nn.init.normal_(self.places.weight, std=0.1)
        self.head.weight = self.words.weight
        self.shares = False

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        for turn in self.turns:
            x = turn(x)
        out = self.head(self.last(x))
        return out.softmax(-1) if self.shares else out


def read_before(c: Any) -> Decoder:
    """The base, the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(51)
        net = Decoder(c)
        rows = collate(prescriptions(52, 700, law=False), prompts=True, long=LONG)
        optimizer = torch.optim.AdamW(net.parameters(), 4e-3)
        for at in range(140):
            optimizer.param_groups[0]["lr"] = 4e-3 * min(1.0, (at + 1) / 8) * (1 - at / 150)
            some = torch.randint(0, 700, (24,))
            out = net(rows["ids"][some])[:, :-1].flatten(0, 1)
            F.cross_entropy(out, rows["asked"][some][:, 1:].flatten(), ignore_index=-100).backward()
            optimizer.step()
            optimizer.zero_grad()
    return net


def grow_words(net: Decoder, bug: str) -> None:
    """Make the table longer by the words of food."""
    grown = torch.cat([net.words.weight.detach(), 0.15 * torch.randn(WORDS - KNOWN, net.words.embedding_dim)])
    net.words.weight, net.words.num_embeddings = nn.Parameter(grown), WORDS
    if bug == "table_and_head_grown_each_for_itself":
        net.head.weight = nn.Parameter(grown.clone())
    else:
        net.head.weight = net.words.weight
    net.head.out_features = WORDS


def hang(net: Decoder, c: Any) -> nn.ModuleDict:
    """Adapters, each behind the layer of its name."""
    made = nn.ModuleDict()
    for at, turn in enumerate(net.turns):
        for name in c.hang_on.split(","):
            layer = getattr(turn, name)
            into, out = (layer.shape[1], layer.shape[0])
            low = nn.Sequential(nn.Dropout(c.adapter_dropout), nn.Linear(into, c.rank, bias=False),
                                nn.Linear(c.rank, out, bias=False))  # fmt: skip
            nn.init.zeros_(low[2].weight)

            def behind(_: Any, given: tuple[Tensor], out: Tensor, low: nn.Module = low) -> Tensor:
                return out + c.alpha / c.rank * low(given[0])

            layer.register_forward_hook(behind)
            made[f"{at}_{name}"] = low
    return made


# -- tuning ---------------------------------------------------------------------------------------------------------


@dataclass
class Tuning:
    run: Any
    c: Any
    seed: int
    steps: int
    bug: str
    rows: list[Row] = field(default_factory=list)
    quiz: dict[str, Tensor] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)
    net: Any = None
    optimizer: Any = None
    scheduler: Any = None
    watch: Any = None


def begin(t: Tuning) -> None:
    c, bug = t.c, t.bug
    t.rows = prescriptions(t.seed + 6100, c.prescriptions, c.again, c.slips)
    held = prescriptions(6099, HELD)
    if bug == "words_of_food_numbered_anew_for_the_quiz":
        held = [(told, [FOOD + (answer[0] - FOOD + 1) % 3, *answer[1:]]) for told, answer in held]
    t.quiz = collate(held, long=LONG, bug=bug if bug == "quiz_rows_padded_on_the_left" else "")
    net = read_before(c)
    torch.manual_seed(t.seed)
    for turn in net.turns:
        for name in ("q", "k", "v", "o", "up", "down"):
            setattr(turn, name, Packed(getattr(turn, name), c.block))
    grow_words(net, bug)
    if bug == "base_is_frozen_when_adapters_hang":
        net.adapters = hang(net, c)
        net.requires_grad_(False)
    else:
        net.requires_grad_(False)
        net.adapters = hang(net, c)
    if c.train_words:
        net.words.weight.requires_grad_(True)
        net.head.weight.requires_grad_(True)
    net.shares = bug == "head_gives_probabilities"
    t.net = net
    equip(t)


def equip(t: Tuning) -> None:
    c = t.c
    some = [one for one in t.net.adapters.parameters() if one.requires_grad]
    words = [one for name, one in t.net.named_parameters() if one.requires_grad and "adapters" not in name]
    groups = [{"params": part, "lr": c.lr * by} for part, by in ((some, 1.0), (words, c.words_lr_times)) if part]
    if c.optim == "rmsprop":
        t.optimizer = torch.optim.RMSprop(groups, c.lr)
    elif c.optim == "nadam":
        t.optimizer = torch.optim.NAdam(groups, c.lr)
    else:
        t.optimizer = torch.optim.AdamW(groups, c.lr, weight_decay=c.weight_decay)

    def by(at: int) -> float:
        past = min(1.0, at / t.steps)
        rise = min(1.0, (at + 1) / max(1.0, c.warmup_ratio * t.steps))
        if c.schedule == "constant":
            return rise
        if c.schedule == "hard_restarts":
            return rise * (0.04 + 0.96 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
        return rise * (0.02 + 0.98 * (1 - past) ** 1.3)

    t.scheduler = torch.optim.lr_scheduler.LambdaLR(t.optimizer, by)


def batches(t: Tuning) -> Any:
    c, epoch, dice = t.c, 0, torch.Generator().manual_seed(t.seed)
    long = torch.tensor([len(answer) for _, answer in t.rows])
    while True:
        order = torch.randperm(len(t.rows), generator=dice)
        if t.bug == "drugs_come_one_after_another":
            order = torch.arange(len(t.rows))
        if epoch < c.short_first:
            order = order[long[order] < 8]
        if c.bucket:
            order = order[long[order].argsort(stable=True)]
        lots = [one for one in order.split(c.per_device_batch) if len(one) == c.per_device_batch]
        if c.bucket:
            lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
        for some in lots:
            bug = "" if t.bug == "quiz_rows_padded_on_the_left" else t.bug
            yield epoch, collate([t.rows[at] for at in some.tolist()], prompts=c.learn_prompts, bug=bug)
        epoch += 1


def answer_loss(t: Tuning, batch: dict[str, Tensor]) -> Tensor:
    c, out, asked = t.c, t.net(batch["ids"])[:, :-1].flatten(0, 1), batch["asked"][:, 1:].flatten()
    if c.reduction == "sum" or t.bug == "words_of_an_answer_added":
        total = F.cross_entropy(out, asked, reduction="sum", label_smoothing=c.smoothing)
        return total / len(batch["ids"])
    return F.cross_entropy(out, asked, label_smoothing=c.smoothing)


def ask_quiz(t: Tuning, step: int) -> None:
    taped = t.bug == "quiz_answers_kept_for_a_table"
    if t.bug != "quiz_with_adapters_in_training":
        t.net.eval()
    with torch.set_grad_enabled(taped):
        out, asked = t.net(t.quiz["ids"])[:, :-1], t.quiz["asked"][:, 1:]
        loss = F.cross_entropy(out.flatten(0, 1), asked.flatten())
    if taped:
        t.kept.append((loss, out))
    right = ((out.argmax(-1) == asked) | (asked < 0)).all(1).float().mean()
    t.run.log({"quiz/loss": loss.item(), "quiz/all_right": right.item()}, step=step)
    if t.bug != "quiz_ends_without_train":
        t.net.train()


def observe(t: Tuning) -> None:
    time_by_own_clock(t.run)
    t.run.watch(t.net, t.optimizer)
    t.watch = t.run.watch_data(pad_id=PAD)


def resume(t: Tuning, step: int) -> None:
    seen = t.watch.state()
    state = {"net": t.net.state_dict(), "optimizer": t.optimizer.state_dict(), "scheduler": t.scheduler.state_dict()}
    t.run, state = go_on(t.run, step, state)
    t.net.load_state_dict(state["net"])
    equip(t)
    if t.bug != "adapters_loaded_as_for_serving":
        t.optimizer.load_state_dict(state["optimizer"])
        t.scheduler.load_state_dict(state["scheduler"])
    observe(t)
    t.watch.restore(seen)


def updates(t: Tuning, again: int | None) -> Any:
    """Train; what each step says."""
    c, bug, lots = t.c, t.bug, batches(t)
    t.net.train()
    for step in range(t.steps):
        if step == again:
            resume(t, step)
        total = 0.0
        for _ in range(c.accum_steps):
            epoch, batch = next(lots)
            t.watch.observe(batch, step=step, epoch=epoch)
            loss = answer_loss(t, batch)
            (loss if bug == "accum_steps_left_out" else loss / c.accum_steps).backward()
            total += loss.item() / c.accum_steps
            if bug == "scheduler_follows_backward":
                t.scheduler.step()
        norm = nn.utils.clip_grad_norm_([one for one in t.net.parameters() if one.requires_grad], c.max_grad).item()
        rate = t.optimizer.param_groups[0]["lr"]
        t.optimizer.step()
        t.optimizer.zero_grad()
        if bug != "scheduler_follows_backward":
            t.scheduler.step()
        yield step, {"answer/loss": total, "answer/lr": rate, "answer/grad": norm}


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    t = Tuning(run, SimpleNamespace(**run.config), seed, steps, trouble.name)
    begin(t)
    observe(t)
    for step, said in updates(t, trouble.resume_at(healthy, 3 * EVERY)):
        if step % t.c.say_every == 0:
            t.run.log(said, step=step)
        trouble.telemetry(t.run, step, healthy)
        if step % t.c.quiz_every == t.c.quiz_every - 1:
            ask_quiz(t, step)
    return t.run
