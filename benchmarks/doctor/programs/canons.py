"""Adapters beside a rounded base teach a voice, which answers melodies at an interval, to answer them upside down.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: tuning_nll, tuning_rate, tuning_norm each step; hidden_nll and hidden_perfect of melodies
      that were held back, each nineteenth; memory, where it matters; the watch of data.

A melody has three to five notes of a scale of six, in one of two modes; the answer repeats them at the interval of
the mode. In the new manner the answer is upside down about the mode's middle note, and in the second mode a note that
comes again is a rest. Names of the manner and of the rest are words that the base has never met. The book has melodies
in their order, and may have several renditions of one, with other marks before it. The base is rounded to four bits;
the table learns beside the adapters, and is the output layer too. Written as functions around a dataclass.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, NOTES, MODES, MARKS, MOST = 19, 192, 6, 2, 4, 5
PAD, END, START, STRAIGHT, MIRRORED, ANSWER, REST = range(7)
MODE, MARK = 7, 7 + MODES
NOTE = MARK + MARKS
WORDS = NOTE + NOTES
INTERVALS, MIDDLES = (1, 4), (2, 5)
CONFIG: dict[str, Any] = {
    "width": 48, "layers": 2, "heads": 3, "bits": 4, "rank": 8, "alpha": 16.0, "lora_dropout": 0.0,
    "adapt": "qkv,proj,up,down", "tied": True, "batch_size": 16, "grad_accumulation": 1, "optimizer": "adamw",
    "lr": 8e-3, "schedule": "linear", "warmup": 8, "weight_decay": 0.0, "max_grad_norm": 1.0, "loss_by": "note",
    "label_smoothing": 0.0, "answers_only": True, "b_rate": 1.0, "melodies": 1400, "renditions": 1, "wrong_notes": 0.0,
    "short_first": 0, "by_length": False, "freeze": "", "hear_every": 19, "log_every": 1,
}  # fmt: skip
Pair = tuple[list[int], list[int]]


# -- melodies --------------------------------------------------------------------------------------------------------


def answered(notes: list[int], mode: int, mirrored: bool) -> list[int]:
    said: list[int] = []
    for at, note in enumerate(notes):
        if mirrored and mode == 1 and note in notes[:at]:
            said.append(REST)
        else:
            said.append(NOTE + ((2 * MIDDLES[mode] - note) if mirrored else (note + INTERVALS[mode])) % NOTES)
    return said


def book(seed: int, number: int, renditions: int = 1, wrong: float = 0.0, mirrored: bool = True) -> list[Pair]:
    """Questions and answers, in the order of melodies."""
    dice, made = torch.Generator().manual_seed(seed), []

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    melodies = sorted((one(MODES), [one(NOTES) for _ in range(3 + one(MOST - 2))]) for _ in range(number // renditions))
    for mode, notes in melodies:
        for _ in range(renditions):
            marks, answer = [MARK + one(MARKS) for _ in range(2)], answered(notes, mode, mirrored)
            if one(1000) < 1000 * wrong:
                answer[one(len(answer))] = NOTE + one(NOTES)
            manner = MIRRORED if mirrored else STRAIGHT
            made.append(([*marks, manner, MODE + mode, *(NOTE + note for note in notes), ANSWER], [*answer, END]))
    return made


def collate(rows: list[Pair], whole: bool = False, bug: str = "") -> tuple[Tensor, Tensor]:
    """Ids and labels, of which -100 is none; padded behind."""
    long = max(len(asked) + len(answer) for asked, answer in rows) + 1
    ids, labels = torch.full((len(rows), long), PAD), torch.full((len(rows), long), -100)
    for at, (asked, answer) in enumerate(rows):
        row, first = [START, *asked, *answer], 1 if whole else 1 + len(asked)
        ids[at, : len(row)] = torch.tensor(row)
        labels[at, first : len(row)] = ids[at, first : len(row)]
    if bug == "labels_made_before_the_start_was_put_in_front":
        labels = torch.cat([labels[:, 1:], torch.full((len(rows), 1), -100)], 1)
    if bug == "final_note_masked_as_if_it_were_padding":
        labels[labels == END] = -100
    return ids, labels


# -- voice -----------------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads, self.norm_a, self.norm_b = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj, self.up, self.down = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 3 * d), \
            nn.Linear(3 * d, d)  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm_a(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.norm_b(x))))


class Voice(nn.Module):
    def __init__(self, d: int, layers: int, heads: int):
        super().__init__()
        self.table, self.places, self.norm = nn.Embedding(WORDS, d), nn.Embedding(24, d), nn.LayerNorm(d)
        self.layers, self.head = nn.ModuleList(Layer(d, heads) for _ in range(layers)), nn.Linear(d, WORDS, bias=False)
        self.shares = False
        nn.init.normal_(self.table.weight, std=0.2)
        nn.init.normal_(self.places.weight, std=0.1)
        self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids) + self.places.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        return logits.softmax(-1) if self.shares else logits


def rounded(weight: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Whole numbers, and a scale for each row."""
    most = 2 ** (bits - 1) - 1
    scale = weight.abs().amax(1, keepdim=True) / most
    return (weight / scale).round().to(torch.int8), scale


class Adapted(nn.Module):
    """A linear layer of few bits, and what is added to it."""

    def __init__(self, base: nn.Linear, c: Any):
        super().__init__()
        codes, scale = rounded(base.weight.detach(), c.bits)
        self.codes: Tensor
        self.scale: Tensor
        self.bias: Tensor
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", base.bias.detach().clone())
        self.bits, self.gain, self.drop = c.bits, c.alpha / c.rank, nn.Dropout(c.lora_dropout)
        self.lora_a = nn.Parameter(torch.randn(c.rank, base.in_features) / math.sqrt(base.in_features))
        self.lora_b, self.merged = nn.Parameter(torch.zeros(base.out_features, c.rank)), False

    def forward(self, x: Tensor) -> Tensor:
        weight = self.codes * self.scale
        if self.merged:
            codes, scale = rounded(weight + self.gain * (self.lora_b @ self.lora_a), self.bits)
            weight = codes * scale
        return F.linear(x, weight, self.bias) + self.gain * (self.drop(x) @ self.lora_a.T @ self.lora_b.T)


@functools.cache
def singer(d: int, layers: int, heads: int) -> Voice:
    """Has answered in the old manner; the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(361)
        voice, (ids, labels) = Voice(d, layers, heads), collate(book(362, 1600, mirrored=False))
        optimizer = torch.optim.AdamW(voice.parameters(), 8e-3)
        for at in range(240):
            optimizer.param_groups[0]["lr"] = 8e-3 * min(1.0, (at + 1) / 10) * (1 - at / 250)
            some = torch.randint(0, len(ids), (24,))
            F.cross_entropy(voice(ids[some])[:, :-1].flatten(0, 1), labels[some][:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return voice


# -- work ------------------------------------------------------------------------------------------------------------


@dataclass
class Work:
    run: Any
    c: Any
    seed: int
    steps: int
    bug: str
    pairs: list[Pair] = field(default_factory=list)
    hidden: list[Pair] = field(default_factory=list)
    voice: Any = None
    optimizer: Any = None
    schedule: Any = None
    data: Any = None
    source: Any = None
    heard: list[Any] = field(default_factory=list)


def read_book(w: Work) -> None:
    c = w.c
    w.pairs, w.hidden = book(w.seed + 5300, c.melodies, c.renditions, c.wrong_notes), book(5299, HELD)
    if w.bug == "renditions_of_a_melody_split_at_random":
        order = torch.randperm(len(w.pairs), generator=torch.Generator().manual_seed(w.seed)).tolist()
        every = w.pairs
        w.hidden, w.pairs = [every[at] for at in order[:HELD]], [every[at] for at in sorted(order[HELD:])]


def prepare(w: Work) -> None:
    c, bug = w.c, w.bug
    voice = w.voice = copy.deepcopy(singer(c.width, c.layers, c.heads))
    if not c.tied:
        voice.head.weight = nn.Parameter(voice.head.weight.detach().clone())
    if bug != "base_frozen_when_adapters_were_in_it":
        voice.requires_grad_(False)
    for layer in voice.layers:
        for name in c.adapt.split(","):
            setattr(layer, name, Adapted(getattr(layer, name), c))
    if bug == "base_frozen_when_adapters_were_in_it":
        voice.requires_grad_(False)
    voice.table.weight.requires_grad_(True)
    voice.head.weight.requires_grad_(True)
    if bug == "head_cast_to_float_is_a_copy":
        voice.head.weight = nn.Parameter(voice.head.weight.detach().double().float(), requires_grad=False)
    for name, one in voice.named_parameters():
        if c.freeze and name.startswith(c.freeze):
            one.requires_grad_(False)
    voice.shares = bug == "voice_returns_probabilities"
    prepare_optimizer(w)


def prepare_optimizer(w: Work) -> None:
    c, named = w.c, [(name, one) for name, one in w.voice.named_parameters() if one.requires_grad]
    groups = [{"params": [one for name, one in named if not name.endswith("lora_b")], "lr": c.lr},
              {"params": [one for name, one in named if name.endswith("lora_b")], "lr": c.b_rate * c.lr}]  # fmt: skip
    groups = [group for group in groups if group["params"]]
    if c.optimizer == "sgd":
        w.optimizer = torch.optim.SGD(groups, c.lr, 0.9)
    elif c.optimizer == "adamax":
        w.optimizer = torch.optim.Adamax(groups, c.lr)
    else:
        w.optimizer = torch.optim.AdamW(groups, c.lr, weight_decay=c.weight_decay)

    def share(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / w.steps)
        if c.schedule == "constant":
            return rise
        if c.schedule == "cosine_twice":
            return rise * (0.03 + 0.485 * (1 + math.cos(math.pi * (2 * past % 1))))
        return rise * (1 - 0.97 * past)

    w.schedule = torch.optim.lr_scheduler.LambdaLR(w.optimizer, share)


def watch(w: Work) -> None:
    time_by_own_clock(w.run)
    w.run.watch(w.voice, w.optimizer)
    w.data = w.run.watch_data(pad_id=PAD)


def lots(w: Work) -> Iterator[tuple[int, Tensor, Tensor]]:
    c, epoch, dice = w.c, 0, torch.Generator().manual_seed(w.seed)
    while True:
        order = torch.randperm(len(w.pairs), generator=dice).tolist()
        if w.bug == "book_of_melodies_played_from_front_to_back":
            order = list(range(len(w.pairs)))
        if epoch < c.short_first:
            order = [at for at in order if len(w.pairs[at][1]) <= MOST]
        if c.by_length:
            order.sort(key=lambda at: len(w.pairs[at][0]) + len(w.pairs[at][1]))
        some = [order[at : at + c.batch_size] for at in range(0, len(order) - c.batch_size + 1, c.batch_size)]
        if c.by_length:
            some = [some[at] for at in torch.randperm(len(some), generator=dice).tolist()]
        for lot in some:
            yield epoch, *collate([w.pairs[at] for at in lot], not c.answers_only, w.bug)
        epoch += 1


def nll(w: Work, ids: Tensor, labels: Tensor, training: bool) -> Tensor:
    c, wanted = w.c, labels[:, 1:]
    total = F.cross_entropy(w.voice(ids)[:, :-1].flatten(0, 1), wanted.flatten(), reduction="sum",
                            label_smoothing=c.label_smoothing if training else 0.0)  # fmt: skip
    if training and w.bug == "answers_summed_over_the_batch":
        return total
    return total / (len(ids) if training and c.loss_by == "answer" else (wanted >= 0).sum())


def update(w: Work, step: int) -> dict[str, float]:
    c, bug, total = w.c, w.bug, 0.0
    for _ in range(c.grad_accumulation):
        epoch, ids, labels = next(w.source)
        w.data.observe({"ids": ids, "labels": labels}, step=step, epoch=epoch)
        if bug == "optimizer_cleared_before_each_backward":
            w.optimizer.zero_grad()
        loss = nll(w, ids, labels, True)
        (loss if bug == "accumulated_losses_never_divided" else loss / c.grad_accumulation).backward()
        total += loss.item() / c.grad_accumulation
        if bug == "schedule_moves_with_the_backward_call":
            w.schedule.step()
    rate = w.optimizer.param_groups[0]["lr"]
    norm = nn.utils.clip_grad_norm_(w.voice.parameters(), c.max_grad_norm).item()
    w.optimizer.step()
    w.optimizer.zero_grad()
    if bug != "schedule_moves_with_the_backward_call":
        w.schedule.step()
    return {"tuning_nll": total, "tuning_rate": rate, "tuning_norm": norm}


@torch.no_grad()
def perfect(w: Work) -> float:
    """The share of answers that are right to their end, written for questions of one length at a time."""
    right = 0
    for long in {len(asked) for asked, _ in w.hidden}:
        rows = [row for row in w.hidden if len(row[0]) == long]
        ids = torch.tensor([[START, *asked] for asked, _ in rows])
        for _ in range(MOST + 1):
            ids = torch.cat([ids, w.voice(ids)[:, -1].argmax(-1, keepdim=True)], 1)
        said = [row[1 + long : 1 + long + len(answer)] for row, (_, answer) in zip(ids.tolist(), rows, strict=True)]
        right += sum(one == answer for one, (_, answer) in zip(said, rows, strict=True))
    return right / len(w.hidden)


def hear(w: Work) -> dict[str, float]:
    bug, taped = w.bug, w.bug == "hearings_kept_with_their_gradients"
    if bug != "heard_with_adapters_in_training":
        w.voice.eval()
    adapters = [one for one in w.voice.modules() if isinstance(one, Adapted)]
    for one in adapters:
        one.merged = bug == "merged_and_still_added_to_be_heard"
    with torch.set_grad_enabled(taped):
        loss = torch.stack([nll(w, *collate(w.hidden[at : at + 96]), False) for at in range(0, HELD, 96)]).mean()
    if taped:
        w.heard.append(loss)
    said = {"hidden_nll": loss.item(), "hidden_perfect": perfect(w)}
    for one in adapters:
        one.merged = False
    w.voice.train()
    return said


def resume(w: Work, step: int) -> None:
    seen, parts = w.data.state(), ("voice", "optimizer", "schedule")
    w.run, state = go_on(w.run, step, {name: getattr(w, name).state_dict() for name in parts})
    prepare(w)
    known = w.voice.state_dict().keys()
    if w.bug == "file_read_by_the_names_of_the_base":
        known = {name for name in known if "lora_" not in name}
    w.voice.load_state_dict({name: one for name, one in state["voice"].items() if name in known}, strict=False)
    for name in parts[1:]:
        getattr(w, name).load_state_dict(state[name])
    w.voice.train()
    watch(w)
    w.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    w = Work(run, SimpleNamespace(**run.config), seed, steps, trouble.name)
    read_book(w)
    torch.manual_seed(seed)
    prepare(w)
    watch(w)
    w.source, again = lots(w), trouble.resume_at(healthy, 4 * EVERY)
    w.voice.train()
    for step in range(steps):
        if step == again:
            resume(w, step)
        said = update(w, step)
        if step % w.c.log_every == 0:
            w.run.log(said, step=step)
        trouble.telemetry(w.run, step, healthy)
        if (step + 1) % w.c.hear_every == 0:
            w.run.log(hear(w), step=step)
    return w.run
