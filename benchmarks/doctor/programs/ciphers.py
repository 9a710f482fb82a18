"""Adapters on a base of four bits teach a clerk another cipher, which has a name and a sign that are new.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: ft/token_nll, ft/lr, ft/grad each step; unseen/nll and unseen/whole of messages that were
      held back, each nineteenth; memory, where it matters; the watch of data.

A message has up to two greetings, names its cipher and its key, says whether it is urgent, and has five plain letters;
the answer has them enciphered. The old cipher moves each letter by the key, and looks it up. The new one has other
letters for half of them, has a sign for one that is like the one before, and does nothing to what is urgent. The
archive is in order of key and letters, and may have a message several times. The base has read the old cipher. Its
table learns with the adapters, and is the output layer too. Answers are written for many messages at once, from the
left of which padding is. Written as functions around an accelerator's loop.
"""

from __future__ import annotations

import copy
import functools
import math
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.utils.data import DataLoader

EVERY, HELD, LETTERS, KEYS, LONG = 19, 160, 10, 3, 5
PAD, END, SAYS, OLD, URGENT, CALM, GREETING = range(7)
KEY, PLAIN = GREETING + 3, GREETING + 3 + KEYS
CODED = PLAIN + LETTERS
KNOWN = CODED + LETTERS
NEW, AGAIN = KNOWN, KNOWN + 1
WORDS = KNOWN + 2
LEVELS = torch.tensor([-1.0, -0.7, -0.53, -0.4, -0.28, -0.18, -0.09, 0.0, 0.08, 0.16, 0.25, 0.34, 0.44, 0.56, 0.72, 1])
Message = tuple[list[int], list[int]]


@dataclass
class Args:
    d_model: int = 32
    n_layers: int = 2
    n_heads: int = 2
    rank: int = 6
    alpha: float = 12.0
    adapter_dropout: float = 0.0
    targets: str = "q,k,v,o,fc,proj"
    root_of_rank: bool = False
    tie_embeddings: bool = True
    batch_size: int = 16
    accumulation: int = 1
    optimizer: str = "adamw"
    learning_rate: float = 6e-3
    lr_schedule: str = "linear"
    warmup: int = 8
    weight_decay: float = 0.0
    max_norm: float = 1.0
    loss_over: str = "tokens"
    label_smoothing: float = 0.0
    learn_prompts: bool = False
    b_times: float = 1.0
    messages: int = 1000
    copies: int = 1
    garbled: float = 0.0
    short_first: int = 0
    by_length: bool = False
    freeze: str = ""
    unseen_every: int = 19
    log_every: int = 1


CONFIG: dict[str, Any] = asdict(Args())

# -- messages --------------------------------------------------------------------------------------------------------


def archive(seed: int, number: int, copies: int = 1, garbled: float = 0.0, new: bool = True) -> list[Message]:
    """What is asked and what is answered, in the order of keys and letters."""
    law, dice = torch.Generator().manual_seed(261), torch.Generator().manual_seed(seed)
    old, other = (torch.randperm(LETTERS, generator=law).tolist() for _ in range(2))
    table = [other[at] if at % 2 else old[at] for at in range(LETTERS)] if new else old

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    def enciphered(letters: list[int], key: int, urgent: bool) -> list[int]:
        if urgent and new:
            return [CODED + at for at in letters]
        said = [CODED + table[(at + key) % LETTERS] for at in letters]
        again = [new and place > 0 and letters[place - 1] == at for place, at in enumerate(letters)]
        return [AGAIN if same else at for same, at in zip(again, said, strict=True)]

    drawn = sorted((one(KEYS), [one(LETTERS) for _ in range(LONG)], one(6) == 0) for _ in range(number // copies))
    made = []
    for key, letters, urgent in drawn:
        for _ in range(copies):
            greeted = [GREETING + one(3) for _ in range(one(3))]
            front = [*greeted, NEW if new else OLD, KEY + key, URGENT if urgent else CALM]
            answer = enciphered(letters, key, urgent)
            if one(1000) < 1000 * garbled:
                answer[one(LONG)] = CODED + one(LETTERS)
            made.append(([*front, *(PLAIN + at for at in letters), SAYS], [*answer, END]))
    return made


def collate(rows: list[Message], learn_prompts: bool = False, moved: bool = False) -> tuple[Tensor, Tensor]:
    """Tokens and labels, of which -100 is none, padded behind."""
    long = max(len(asked) + len(answer) for asked, answer in rows)
    tokens, labels = torch.full((len(rows), long), PAD), torch.full((len(rows), long), -100)
    for at, (asked, answer) in enumerate(rows):
        row = torch.tensor([*asked, *answer])
        tokens[at, : len(row)], first = row, 0 if learn_prompts else len(asked)
        labels[at, first : len(row)] = row[first:]
    return tokens, F.pad(labels[:, 1:], (0, 1), value=-100) if moved else labels


# -- clerk -----------------------------------------------------------------------------------------------------------


class FourBits(nn.Module):
    """A matrix by the nearest of sixteen levels, in blocks of eight with a scale each."""

    def __init__(self, weight: Tensor):
        super().__init__()
        blocks = weight.detach().flatten().view(-1, 8)
        scale = blocks.abs().amax(1, keepdim=True).clamp(min=1e-8)
        self.register_buffer("scale", scale)
        self.register_buffer("level", ((blocks / scale)[..., None] - LEVELS).abs().argmin(-1).to(torch.uint8))
        self.shape = weight.shape

    def weight(self) -> Tensor:
        return (LEVELS[self.level.long()] * self.scale).view(self.shape)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight())


class Adapted(nn.Module):
    def __init__(self, base: FourBits, a: Args):
        super().__init__()
        out, into = base.shape
        self.base, self.drop, self.merged = base, nn.Dropout(a.adapter_dropout), 0.0
        self.gain = a.alpha / (math.sqrt(a.rank) if a.root_of_rank else a.rank)
        self.lora_A = nn.Parameter(torch.randn(a.rank, into) / math.sqrt(into))
        self.lora_B = nn.Parameter(torch.zeros(out, a.rank))

    def forward(self, x: Tensor) -> Tensor:
        if self.merged:
            return F.linear(x, self.base.weight() + self.merged * self.lora_B @ self.lora_A)
        return self.base(x) + self.gain * F.linear(F.linear(self.drop(x), self.lora_A), self.lora_B)


def turned(x: Tensor, places: Tensor) -> Tensor:
    """Turned by its place, a pair of channels at a time."""
    half = x.shape[-1] // 2
    angle = places[:, None, :, None] * 0.1 ** (torch.arange(half) / half)
    one, two = x.chunk(2, -1)
    return torch.cat([one * angle.cos() - two * angle.sin(), one * angle.sin() + two * angle.cos()], -1)


class Layer(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads, self.ln1, self.ln2 = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.fc, self.proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(3 * d, d, bias=False)

    def forward(self, x: Tensor, seen: Tensor, places: Tensor) -> Tensor:
        y = self.ln1(x)
        q, k, v = (one(y).unflatten(2, (self.heads, -1)).transpose(1, 2) for one in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(turned(q, places), turned(k, places), v, seen)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        return x + self.proj(F.silu(self.fc(self.ln2(x))))


class Clerk(nn.Module):
    def __init__(self, d: int, layers: int, heads: int):
        super().__init__()
        self.embed, self.ln = nn.Embedding(KNOWN, d), nn.LayerNorm(d)
        self.layers = nn.ModuleList(Layer(d, heads) for _ in range(layers))
        self.unembed, self.says_shares = nn.Linear(d, KNOWN, bias=False), False
        nn.init.normal_(self.embed.weight, std=0.2)
        self.unembed.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        there, long = tokens != PAD, tokens.shape[1]
        seen = torch.ones(long, long, dtype=torch.bool).tril() & there[:, None, None]
        seen = seen | torch.eye(long, dtype=torch.bool)
        x, places = self.embed(tokens), (there.cumsum(1) - 1).masked_fill(~there, 0)
        for layer in self.layers:
            x = layer(x, seen, places)
        logits = self.unembed(self.ln(x))
        return logits.softmax(-1) if self.says_shares else logits


@functools.cache
def base(d: int, layers: int, heads: int) -> Clerk:
    """Has read the old cipher; the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(263)
        clerk, (tokens, labels) = Clerk(d, layers, heads), collate(archive(264, 1600, new=False))
        optimizer = torch.optim.AdamW(clerk.parameters(), 8e-3)
        for at in range(240):
            optimizer.param_groups[0]["lr"] = 8e-3 * min(1.0, (at + 1) / 10) * (1 - at / 250)
            some = torch.randint(0, len(tokens), (24,))
            F.cross_entropy(clerk(tokens[some])[:, :-1].flatten(0, 1), labels[some][:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return clerk


def freeze_base(clerk: Clerk) -> None:
    clerk.requires_grad_(False)
    clerk.embed.weight.requires_grad_(True)


def put_adapters(clerk: Clerk, a: Args) -> None:
    for layer in clerk.layers:
        for name in ("q", "k", "v", "o", "fc", "proj"):
            four = FourBits(getattr(layer, name).weight)
            setattr(layer, name, Adapted(four, a) if name in a.targets.split(",") else four)


def make_clerk(a: Args, bug: str) -> Clerk:
    clerk, d = copy.deepcopy(base(a.d_model, a.n_layers, a.n_heads)), a.d_model
    old = clerk.embed.weight.detach()
    grown = torch.cat([old, old.mean(0) + 0.05 * torch.randn(WORDS - KNOWN, d)])
    clerk.embed, clerk.unembed = nn.Embedding(WORDS, d, _weight=grown.clone()), nn.Linear(d, WORDS, bias=False)
    clerk.unembed.weight = nn.Parameter(grown.clone())
    if a.tie_embeddings and bug != "unembedding_grown_beside_the_embedding":
        clerk.unembed.weight = clerk.embed.weight
    if bug == "base_frozen_when_adapters_are_in_it":
        put_adapters(clerk, a)
        freeze_base(clerk)
    else:
        freeze_base(clerk)
        put_adapters(clerk, a)
    if not a.tie_embeddings:
        clerk.unembed.weight.requires_grad_(True)
    for name, one in clerk.named_parameters():
        if a.freeze and name.startswith(a.freeze):
            one.requires_grad_(False)
    clerk.says_shares = bug == "clerk_returns_a_distribution"
    return clerk


# -- loop ------------------------------------------------------------------------------------------------------------


@dataclass
class Office:
    run: Any
    a: Args
    seed: int
    steps: int
    bug: str
    rows: list[Message]
    held: list[Message]
    clerk: Any = None
    optimizer: Any = None
    schedule: Any = None
    data: Any = None
    epoch: int = 0
    queue: list[Any] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)


def open_archive(a: Args, seed: int, bug: str) -> tuple[list[Message], list[Message]]:
    rows, held = archive(seed + 6100, a.messages, a.copies, a.garbled), archive(6099, HELD)
    if bug == "messages_split_with_their_copies":
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed)).tolist()
        held, rows = [rows[at] for at in order[:HELD]], [rows[at] for at in sorted(order[HELD:])]
    return rows, held


def prepare(o: Office) -> None:
    a, named = o.a, [(name, one) for name, one in o.clerk.named_parameters() if one.requires_grad]
    second = [one for name, one in named if "lora_B" in name]
    groups = [{"params": [one for name, one in named if "lora_B" not in name], "lr": a.learning_rate},
              {"params": second, "lr": a.b_times * a.learning_rate}]  # fmt: skip
    groups = [one for one in groups if one["params"]]
    if a.optimizer == "sgd":
        o.optimizer = torch.optim.SGD(groups, a.learning_rate, 0.9)
    elif a.optimizer == "radam":
        o.optimizer = torch.optim.RAdam(groups, a.learning_rate)
    else:
        o.optimizer = torch.optim.AdamW(groups, a.learning_rate, weight_decay=a.weight_decay)

    def share(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, a.warmup)), min(1.0, at / o.steps)
        if a.lr_schedule == "constant":
            return rise
        if a.lr_schedule == "root":
            return rise * (max(1, a.warmup) / max(a.warmup, at, 1)) ** 0.5
        if a.lr_schedule == "linear_twice":
            past = 2 * past % 1
        return rise * (1 - 0.97 * past)

    o.schedule = torch.optim.lr_scheduler.LambdaLR(o.optimizer, share)


def watch(o: Office) -> None:
    time_by_own_clock(o.run)
    o.run.watch(o.clerk, o.optimizer)
    o.data = o.run.watch_data(pad_id=PAD)


def next_batch(o: Office) -> tuple[int, Tensor, Tensor]:
    a, epoch = o.a, o.epoch
    if not o.queue:
        dice, rows = torch.Generator().manual_seed(999 * o.seed + epoch), o.rows
        if epoch < a.short_first:
            rows = [row for row in rows if len(row[0]) < 11]
        order: Any = torch.randperm(len(rows), generator=dice).tolist()
        if o.bug == "loader_of_the_archive_keeps_its_order":
            order = range(len(rows))
        if a.by_length:
            order = sorted(order, key=lambda at: len(rows[at][0]))
        together = partial(collate, learn_prompts=a.learn_prompts,
                           moved=o.bug == "labels_moved_by_the_collator_and_by_the_loss")  # fmt: skip
        loader = DataLoader(rows, a.batch_size, sampler=order, drop_last=True, collate_fn=together)
        o.queue = list(loader)
        if a.by_length:
            o.queue = [o.queue[at] for at in torch.randperm(len(o.queue), generator=dice).tolist()]
    tokens, labels = o.queue.pop(0)
    o.epoch += not o.queue
    return epoch, tokens, labels


def loss_of(clerk: nn.Module, tokens: Tensor, labels: Tensor, over: str = "tokens", smooth: float = 0.0) -> Tensor:
    said, wanted = clerk(tokens)[:, :-1], labels[:, 1:]
    total = F.cross_entropy(said.flatten(0, 1), wanted.flatten(), reduction="sum", label_smoothing=smooth)
    return total / (len(tokens) if over == "messages" else (wanted >= 0).sum())


def update(o: Office, step: int) -> dict[str, float]:
    a, bug, total = o.a, o.bug, 0.0
    over = "messages" if bug == "nll_of_a_message_is_the_sum_of_its_tokens" else a.loss_over
    for _ in range(a.accumulation):
        epoch, tokens, labels = next_batch(o)
        o.data.observe({"tokens": tokens, "labels": labels}, step=step, epoch=epoch)
        if bug == "accelerator_told_to_clear_in_the_inner_loop":
            o.optimizer.zero_grad()
        loss = loss_of(o.clerk, tokens, labels, over, a.label_smoothing)
        (loss if bug == "backward_without_the_accelerator_that_divides" else loss / a.accumulation).backward()
        total += loss.item() / a.accumulation
        if bug == "schedule_prepared_without_the_accelerator":
            o.schedule.step()
    norm = nn.utils.clip_grad_norm_(o.clerk.parameters(), a.max_norm).item()
    said = {"ft/token_nll": total, "ft/lr": o.optimizer.param_groups[0]["lr"], "ft/grad": norm}
    o.optimizer.step()
    o.optimizer.zero_grad()
    if bug != "schedule_prepared_without_the_accelerator":
        o.schedule.step()
    return said


@torch.no_grad()
def whole(o: Office) -> float:
    """The share of messages that are answered without a mistake, when the clerk writes by itself."""
    front = o.bug != "prompts_padded_behind_to_be_answered"
    long = max(len(asked) for asked, _ in o.held)
    tokens = torch.full((len(o.held), long), PAD)
    for at, (asked, _) in enumerate(o.held):
        tokens[at, slice(long - len(asked), long) if front else slice(len(asked))] = torch.tensor(asked)
    for _ in range(LONG + 1):
        tokens = torch.cat([tokens, o.clerk(tokens)[:, -1].argmax(-1, keepdim=True).clamp(min=END)], 1)
    right = [tokens[at, long : long + len(answer)].tolist() == answer for at, (_, answer) in enumerate(o.held)]
    return sum(right) / len(right)


def unseen(o: Office) -> dict[str, float]:
    bug, taped = o.bug, o.bug == "unseen_losses_returned_to_a_list"
    if bug != "unseen_messages_read_while_adapters_drop":
        o.clerk.eval()
    adapted = [one for one in o.clerk.modules() if isinstance(one, Adapted)]
    for one in adapted:
        one.merged = 1.0 if bug == "merged_for_the_unseen_without_the_gain" else one.gain
    if bug == "unseen_messages_read_while_adapters_drop":
        for one in adapted:
            one.merged = 0.0
    with torch.set_grad_enabled(taped):
        losses = [loss_of(o.clerk, *collate(o.held[at : at + 80])) for at in range(0, HELD, 80)]
        loss = torch.stack(losses).mean()
    if taped:
        o.results.append(loss)
    said = {"unseen/nll": loss.item(), "unseen/whole": whole(o)}
    for one in adapted:
        one.merged = 0.0
    if bug != "clerk_left_in_eval_behind_the_unseen":
        o.clerk.train()
    return said


def resume(o: Office, step: int) -> None:
    alone = o.bug == "adapters_saved_and_the_table_that_learns_is_not"
    seen, weights = o.data.state(), o.clerk.state_dict()
    if alone:
        weights = {name: one for name, one in weights.items() if "lora_" in name}
    state = {"clerk": weights, "optimizer": o.optimizer.state_dict(), "schedule": o.schedule.state_dict()}
    o.run, state = go_on(o.run, step, state)
    torch.manual_seed(o.seed)
    o.clerk = make_clerk(o.a, o.bug)
    o.clerk.load_state_dict(state["clerk"], strict=not alone)
    prepare(o)
    o.optimizer.load_state_dict(state["optimizer"])
    o.schedule.load_state_dict(state["schedule"])
    watch(o)
    o.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    a = Args(**{name: one for name, one in dict(run.config).items() if name in CONFIG})
    o = Office(run, a, seed, steps, trouble.name, *open_archive(a, seed, trouble.name))
    torch.manual_seed(seed)
    o.clerk = make_clerk(a, o.bug)
    prepare(o)
    watch(o)
    again = trouble.resume_at(healthy, 4 * EVERY)
    o.clerk.train()
    for step in range(steps):
        if step == again:
            resume(o, step)
        said = update(o, step)
        if step % a.log_every == 0:
            o.run.log(said, step=step)
        trouble.telemetry(o.run, step, healthy)
        if (step + 1) % a.unseen_every == 0:
            o.run.log(unseen(o), step=step)
    return o.run
