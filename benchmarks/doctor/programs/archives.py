"""Adapters that part weights into length and direction, beside a base of eight bits, write an archive's new signatures.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: dora/ce, dora/lr, dora/norm each step; review/ce, review/exact each twentieth; the watch of
      data.

A small decoder learns the old signatures first, then its layers are rounded to eight bits and held. A file's card
(fields, sometimes a remark) is the prompt, its new signature the answer; marks of the new signatures are added to the
vocabulary, so the embedding, which is the output too, is trained beside the adapters. Sections in the order of a
fine-tuning script that is configured by one file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, REVIEWED, IGNORED = 20, 160, -100
PAD, BOS, EOS, SEP, OWNER, SHELF, YEAR, KIND, STATE, REMARK, OLD, NEW = 0, 1, 2, 3, 4, 14, 22, 34, 40, 44, 60, 76
END, LONGEST = NEW + 36, 20  # marks of new signatures are from NEW on, twelve for each of three places
CONFIG: dict[str, Any] = {
    "adapter": "dora", "lora_r": 6, "lora_alpha": 12, "lora_dropout": 0.0, "lora_target": "qkv out up down",
    "lora_fan": "kaiming", "train_embedding": True, "tie_embeddings": True, "base_bits": 8, "micro_batch_size": 24,
    "accumulate": 1, "learning_rate": 0.01, "warmup_steps": 10, "lr_scheduler": "cosine", "optimizer": "adamw_torch",
    "weight_decay": 0.01, "max_norm": 1.0, "cards": 960, "phrasings": 1, "remarks": 4, "misread": 0.0,
    "train_on_inputs": False, "group_by_length": False, "short_cards_first": 0, "sum_of_tokens": False,
    "held_layers": "", "neftune": 0.0,
}  # fmt: skip


# -- cards ----------------------------------------------------------------------------------------------------------


@dataclass
class Card:
    prompt: list[int]
    answer: list[int]
    record: int


def rules() -> tuple[Tensor, Tensor, Tensor]:
    dice = torch.Generator().manual_seed(1931)
    return (torch.randint(0, 12, (6, 4), generator=dice), torch.randint(0, 12, (10, 2), generator=dice),
            torch.randint(0, 12, (12, 2), generator=dice))  # fmt: skip


def filed(seed: int, number: int, remarks: int, new: bool = True, phrasings: int = 1, misread: float = 0.0) -> list:
    """phrasings: how many cards, with other remarks, there are of one file."""
    dice, cards = torch.Generator().manual_seed(seed), []
    by_kind, by_owner, by_year = rules()
    for record in range(number // phrasings):
        who, shelf, year, kind, state = (
            int(torch.randint(0, many, (), generator=dice)) for many in (10, 8, 12, 6, 4)
        )  # fmt: skip
        if new:
            marks = [int(by_kind[kind, state]), int(by_owner[who, kind // 3]), int(by_year[year, shelf // 4])]
            marks = [NEW + 12 * at + mark for at, mark in enumerate(marks)]
        else:
            marks = [OLD + kind, OLD + 6 + who]
        for _ in range(phrasings):
            told = torch.randint(REMARK, OLD, (int(torch.randint(0, remarks + 1, (), generator=dice)),), generator=dice)
            said = list(marks)
            if float(torch.rand((), generator=dice)) < misread:
                said[-1] = NEW + 24 + int(torch.randint(0, 12, (), generator=dice))
            prompt = [BOS, OWNER + who, SHELF + shelf, YEAR + year, KIND + kind, STATE + state, *told.tolist(), SEP]
            cards.append(Card(prompt, [*said, EOS], record))
    return cards


def collate(cards: list[Card], inputs_too: bool, bug: str) -> dict[str, Tensor]:
    width = max(len(one.prompt) + len(one.answer) for one in cards)
    ids, labels = torch.full((len(cards), width), PAD), torch.full((len(cards), width), IGNORED)
    for row, one in enumerate(cards):
        whole, asked = one.prompt + one.answer, len(one.prompt)
        if bug == "prompt_measured_with_its_end":  # the prompt was encoded alone, with an end of its own
            asked += 1
        ids[row, : len(whole)] = torch.tensor(whole)
        kept = 0 if inputs_too else asked
        labels[row, kept : len(whole)] = torch.tensor(whole[kept:])
    if bug == "padding_is_the_end_mark":
        ids = ids.masked_fill(ids == PAD, EOS)
        labels = labels.masked_fill(labels == EOS, IGNORED)
    mask = (torch.arange(width) < torch.tensor([len(one.prompt) + len(one.answer) for one in cards])[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


# -- decoder --------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, d: int):
        super().__init__()
        self.ln1, self.attn, self.ln2 = nn.LayerNorm(d), Attention(d, 4), nn.LayerNorm(d)
        self.up, self.down = nn.Linear(d, 3 * d, bias=False), nn.Linear(3 * d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Decoder(nn.Module):
    def __init__(self, words: int, d: int = 48, layers: int = 2):
        super().__init__()
        self.embed, self.place = nn.Embedding(words, d), nn.Parameter(0.1 * torch.randn(LONGEST, d))
        self.layers, self.norm = nn.ModuleList(Layer(d) for _ in range(layers)), nn.LayerNorm(d)
        self.head = nn.Linear(d, words, bias=False)
        self.head.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.15)
        self.noise, self.probs = 0.0, False

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        if self.noise and self.training:
            x = x + (2 * torch.rand_like(x) - 1) * self.noise / math.sqrt(x.shape[1] * x.shape[2])
        x = x + self.place[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        out = self.head(self.norm(x))
        return out.softmax(-1) if self.probs else out


class EightBit(nn.Module):
    """A layer's weight, rounded to so many bits by rows."""

    def __init__(self, weight: Tensor, bits: int):
        super().__init__()
        most = 2 ** (bits - 1) - 1
        scale = weight.abs().amax(1, keepdim=True) / most
        self.register_buffer("scale", scale)
        self.register_buffer("codes", (weight / scale).round().clamp(-most, most).to(torch.int8))

    def weight(self) -> Tensor:
        return self.codes * self.scale


class Dora(nn.Module):
    def __init__(self, linear: nn.Linear, c: Any, bug: str):
        super().__init__()
        o, i = linear.weight.shape
        self.base = EightBit(linear.weight.detach(), c.base_bits)
        self.a, self.b = nn.Parameter(torch.empty(c.lora_r, i)), nn.Parameter(torch.zeros(o, c.lora_r))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5)) if c.lora_fan == "kaiming" else nn.init.normal_(self.a, 0, 0.1)
        self.drop, self.scale = nn.Dropout(c.lora_dropout), c.lora_alpha / c.lora_r
        self.magnitude = nn.Parameter(self.base.weight().norm(dim=1)) if c.adapter == "dora" else None

    def forward(self, x: Tensor) -> Tensor:
        held = self.base.weight()
        added = F.linear(F.linear(self.drop(x), self.a), self.b) * self.scale
        if self.magnitude is None:
            return F.linear(x, held) + added
        length = (held + self.scale * self.b @ self.a).norm(dim=1).detach()
        return (F.linear(x, held) + added) * (self.magnitude / length)


def pretrained(remarks: int) -> Decoder:
    """A decoder that knows the old signatures: the same whatever the seed."""
    torch.manual_seed(77)
    base, cards = Decoder(NEW), filed(770, 1920, remarks, new=False)
    optimizer = torch.optim.AdamW(base.parameters(), 5e-3)
    dice = torch.Generator().manual_seed(78)
    for at in range(100):
        for group in optimizer.param_groups:
            group["lr"] = 5e-3 * min(1.0, (at + 1) / 10) * (1 - at / 100)
        batch = collate([cards[one] for one in torch.randint(0, len(cards), (48,), generator=dice)], True, "")
        out = base(batch["input_ids"][:, :-1])
        F.cross_entropy(out.flatten(0, 1), batch["labels"][:, 1:].flatten(), ignore_index=IGNORED).backward()
        optimizer.step()
        optimizer.zero_grad()
    return base


def resize(base: Decoder, words: int, tied: bool) -> None:
    """Rows for added marks are drawn around the mean of those that are there."""
    old = base.embed.weight.detach()
    base.embed = nn.Embedding(words, old.shape[1])
    base.head = nn.Linear(old.shape[1], words, bias=False)
    with torch.no_grad():
        base.embed.weight[: len(old)] = old
        base.embed.weight[len(old) :] = old.mean(0) + 0.1 * torch.randn(words - len(old), old.shape[1])
        base.head.weight.copy_(base.embed.weight)
    if tied:
        base.head.weight = base.embed.weight


def adapted(c: Any, base: Decoder, bug: str) -> Decoder:
    resize(base, END, c.tie_embeddings)
    base.noise, base.probs = c.neftune, bug == "scores_served_as_shares"
    late = bug == "base_frozen_behind_the_adapters"
    if not late:
        base.requires_grad_(False)
    for name, module in list(base.named_modules()):
        for child, linear in list(module.named_children()):
            full = f"{name}.{child}"
            if child in c.lora_target.split() and not (c.held_layers and full.startswith(c.held_layers)):
                setattr(module, child, Dora(linear, c, bug))
    if late:
        base.requires_grad_(False)
    if bug == "trained_copy_of_embedding":  # what is saved beside adapters is a copy; the output keeps the other
        base.embed.weight = nn.Parameter(base.embed.weight.detach().clone())
        base.head.weight = nn.Parameter(base.head.weight.detach().clone(), requires_grad=False)
    if c.train_embedding:
        base.embed.weight.requires_grad_(True)
        if bug != "trained_copy_of_embedding":
            base.head.weight.requires_grad_(True)
    return base


# -- training -------------------------------------------------------------------------------------------------------


def shuffled(c: Any, cards: list[Card], seed: int) -> Iterator[tuple[int, list[Card]]]:
    dice, epoch, size = torch.Generator().manual_seed(seed), 0, c.micro_batch_size
    lengths = torch.tensor([len(one.prompt) for one in cards])
    while True:
        order = torch.randperm(len(cards), generator=dice)
        if epoch < c.short_cards_first:
            order = order[lengths[order] <= 8]
        if c.group_by_length:  # batches are of like lengths, and come in any order
            order = order[lengths[order].argsort(stable=True)]
        groups = [one for one in order.split(size) if len(one) == size]
        if c.group_by_length:
            groups = [groups[at] for at in torch.randperm(len(groups), generator=dice).tolist()]
        for some in groups:
            yield epoch, [cards[at] for at in some.tolist()]
        epoch += 1


def tools_of(c: Any, model: nn.Module) -> tuple[Any, Any]:
    some = [one for one in model.parameters() if one.requires_grad]
    if c.optimizer == "sgd":
        optimizer: Any = torch.optim.SGD(some, c.learning_rate, 0.9)
    elif c.optimizer == "adafactor":
        optimizer = torch.optim.Adafactor(some, c.learning_rate * 5, weight_decay=0.0)
    else:
        optimizer = torch.optim.AdamW(some, c.learning_rate, weight_decay=c.weight_decay)

    def share(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.warmup_steps)), min(1.0, at / c.steps)
        if c.lr_scheduler == "constant_with_warmup":
            return rise
        if c.lr_scheduler == "linear":
            return rise * max(0.01, 1 - past)
        if c.lr_scheduler == "cosine_with_restarts":
            return rise * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (3 * past % 1))))
        return rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * past)))

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)


def answer_loss(c: Any, model: nn.Module, batch: dict[str, Tensor], bug: str) -> Tensor:
    out, wanted = model(batch["input_ids"][:, :-1]).flatten(0, 1), batch["labels"][:, 1:].flatten()
    if bug == "tokens_totalled_per_card" or c.sum_of_tokens:
        return F.cross_entropy(out, wanted, ignore_index=IGNORED, reduction="sum") / len(batch["labels"])
    return F.cross_entropy(out, wanted, ignore_index=IGNORED)


@dataclass
class Desk:
    """What the parts of the training share."""

    run: Any
    model: Any = None
    optimizer: Any = None
    scheduler: Any = None
    watch: Any = None
    kept: list[Tensor] = field(default_factory=list)


def review(d: Desk, cards: list[Card], at: int, bug: str) -> None:
    """Teacher-forced loss of answers, and how many are right in each mark and the end."""
    loss = right = 0.0
    if bug != "reviewed_as_it_trains":
        d.model.eval()
    with torch.set_grad_enabled(bug == "review_builds_graphs"):
        for first in range(0, len(cards), 80):
            batch = collate(cards[first : first + 80], False, "")
            out, wanted = d.model(batch["input_ids"][:, :-1]), batch["labels"][:, 1:]
            part = F.cross_entropy(out.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED)
            hit = (out.argmax(-1) == wanted) | (wanted == IGNORED)
            loss, right = loss + float(part) * 80 / len(cards), right + float(hit.all(1).sum()) / len(cards)
            if bug == "review_builds_graphs":
                d.kept.append(out)
    if bug != "review_leaves_adapters_quiet":
        d.model.train()
    d.run.log({"review/ce": loss, "review/exact": right}, step=at)


def watched(d: Desk) -> None:
    time_by_own_clock(d.run)
    d.run.watch(d.model, d.optimizer)
    d.watch = d.run.watch_data(pad_id=PAD)


def resumed(d: Desk, c: Any, at: int, bug: str) -> None:
    seen = d.watch.state()
    learnt = {name for name, one in d.model.named_parameters() if one.requires_grad}
    adapters = {name: one for name, one in d.model.state_dict().items() if name in learnt}
    state = {"adapters": adapters, "optimizer": d.optimizer.state_dict(), "scheduler": d.scheduler.state_dict()}
    d.run, saved = go_on(d.run, at, state)
    d.model.load_state_dict(saved["adapters"], strict=False)
    d.optimizer, d.scheduler = tools_of(c, d.model)
    if bug != "only_the_adapter_folder_loaded":
        d.optimizer.load_state_dict(saved["optimizer"])
    d.scheduler.load_state_dict(saved["scheduler"])
    for group, rate in zip(d.optimizer.param_groups, d.scheduler.get_last_lr(), strict=True):
        group["lr"] = rate
    watched(d)
    d.watch.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    c, trouble = SimpleNamespace(**run.config), Trouble(fault, seed)
    bug, again, d = trouble.name, trouble.resume_at(healthy, 4 * EVERY), Desk(run)
    base = pretrained(4)
    torch.manual_seed(seed)
    d.model = adapted(c, base, bug)
    cards = filed(seed + 8800, c.cards, c.remarks, phrasings=c.phrasings, misread=c.misread)
    held = filed(88, REVIEWED, c.remarks)
    if bug == "phrasings_of_a_file_on_both_sides":
        order = torch.randperm(len(cards), generator=torch.Generator().manual_seed(seed)).tolist()
        held, cards = [cards[one] for one in order[:REVIEWED]], [cards[one] for one in order[REVIEWED:]]
    d.optimizer, d.scheduler = tools_of(c, d.model)
    stream = shuffled(c, cards, seed)
    watched(d)
    d.model.train()
    for at in range(steps):
        if at == again:
            resumed(d, c, at, bug)
        total = 0.0
        for _ in range(c.accumulate):
            epoch, some = next(stream)
            batch = collate(some, c.train_on_inputs, bug)
            d.watch.observe(batch, step=at, epoch=epoch)
            loss = answer_loss(c, d.model, batch, bug)
            (loss if bug == "micro_losses_not_shared_out" else loss / c.accumulate).backward()
            total += loss.item() / c.accumulate
            if bug == "scheduler_beside_backward":
                d.scheduler.step()
        norm = nn.utils.clip_grad_norm_(d.model.parameters(), c.max_norm).item()
        rate = d.optimizer.param_groups[0]["lr"]
        d.optimizer.step()
        d.optimizer.zero_grad()
        if bug != "scheduler_beside_backward":
            d.scheduler.step()
        d.run.log({"dora/ce": total, "dora/lr": rate, "dora/norm": norm}, step=at)
        trouble.telemetry(d.run, at, healthy)
        if at % EVERY == EVERY - 1:
            review(d, held, at, bug)
    return d.run
