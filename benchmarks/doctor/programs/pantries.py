"""Adapters on a small decoder in NF4 learn orders for a pantry: an instruction in words, an answer in shelves.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: qlora/loss, qlora/lr, qlora/norm each step; held/loss, held/exact_match each twentieth;
      memory, where it matters; the watch of data.

The base has read the orders of last year, when things stood elsewhere; it is held in sixteen levels of a normal, in
blocks with a scale. It is to learn on which shelf a thing stands, how many are wanted, and what is done with it. A
template has the instruction and the answer; the first is no target. Two words that the base does not know are added,
and the embedding may be trained for them. Written as a script of one file, with functions and a collator.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, LONG = 20, 128, 24
PAD, BOS, EOS, USER, BOT, NL = range(6)
VERBS, THINGS, COUNTS, FILLERS, SHELVES, ACTS = 6, 16, 6, 5, 8, 4
VERB = NL + 1
THING, COUNT = VERB + VERBS, VERB + VERBS + THINGS
FILLER, SHELF = COUNT + COUNTS, COUNT + COUNTS + FILLERS
ACT = SHELF + SHELVES
VOCAB = ACT + ACTS
RUSH, LATER = VOCAB, VOCAB + 1  # words that are added
NF4 = torch.tensor([-1.0, -0.696, -0.525, -0.395, -0.284, -0.185, -0.091, 0.0, 0.08, 0.161, 0.246, 0.338, 0.441, 0.563,
                    0.723, 1.0])  # fmt: skip
CONFIG: dict[str, Any] = {
    "d_model": 48, "n_layer": 2, "n_head": 4, "bnb_4bit_quant_type": "nf4", "blocksize": 24, "rank": 8, "alpha": 16,
    "adapter_dropout": 0.0, "targets": "qkv,out,up,down", "use_rslora": False, "train_embeddings": False,
    "micro_batch_size": 16, "grad_accum_steps": 1, "lr": 1e-2, "scheduler": "cosine", "warmup_ratio": 0.05,
    "optim": "adamw", "wd": 0.0, "clip": 1.0, "loss_on": "answer", "loss_reduction": "mean", "smoothing": 0.0,
    "orders": 1000, "wordings": 1, "wrong_shelves": 0.0, "short_first_epochs": 0, "bucketed": False,
    "lora_plus_ratio": 1.0, "eval_every": 20, "log_every": 1,
}  # fmt: skip


# -- orders ---------------------------------------------------------------------------------------------------------


Rows = list[tuple[list[int], list[int]]]


def orders(seed: int, number: int, wordings: int = 1, wrong: float = 0.0, last_year: bool = False) -> Rows:
    """Instructions and answers, verb after verb. last_year: other shelves, and no act."""
    dice, by = torch.Generator().manual_seed(seed), 3 if last_year else 5
    shelf_of = [(by * one + by // 4) % SHELVES for one in range(THINGS)]

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    rows: Rows = []
    for at in range(number // wordings):
        verb = at * VERBS * wordings // number
        wanted = [(one(THINGS), one(COUNTS)) for _ in range(1 + one(2))]
        hurry = [] if last_year or one(4) else [RUSH + one(2)]
        for _ in range(wordings):
            asked, answer = [FILLER + one(FILLERS) for _ in range(one(4))] + [VERB + verb] + hurry, []
            for thing, count in wanted:
                asked += [COUNT + count, THING + thing] if one(2) else [THING + thing, COUNT + count]
                shelf = one(SHELVES) if wrong and float(torch.rand((), generator=dice)) < wrong else shelf_of[thing]
                answer += [SHELF + shelf, COUNT + count]
            if not last_year:  # what hurries goes by another way
                answer = [ACT + (verb + (2 if hurry == [RUSH] else 1 if hurry else 0)) % ACTS, *answer]
            rows.append((asked, answer))
    return rows


def collate(c: Any, rows: Rows, bug: str = "") -> tuple[Tensor, Tensor]:
    """Padded rows in the template, and labels."""
    ids, labels = torch.full((len(rows), LONG), PAD), torch.full((len(rows), LONG), -100)
    for at, (asked, answer) in enumerate(rows):
        prompt = [BOS, USER, *asked, NL, BOT]
        if bug == "template_of_the_evaluation_lost_a_line":
            prompt = [BOS, USER, *asked, BOT]
        row = [*prompt, *answer, EOS]
        ids[at, : len(row)] = torch.tensor(row)
        begin = 0 if c.loss_on == "all" else len(prompt)
        if bug == "answer_starts_behind_a_second_bos":  # the answer alone is tokenised with a BOS, which is counted
            begin = len(prompt) + 1
        labels[at, begin : len(row)] = ids[at, begin : len(row)]
    return ids, labels


# -- base and adapters ----------------------------------------------------------------------------------------------


class QLinear(nn.Module):
    """A matrix in NF4 beside which two factors are learnt."""

    def __init__(self, weight: Tensor, c: Any, adapted: bool):
        super().__init__()
        rows = weight.flatten().view(-1, c.blocksize)
        absmax = rows.abs().amax(1, keepdim=True)
        code = ((rows / absmax)[..., None] - NF4).abs().argmin(-1)
        self.register_buffer("code", code.to(torch.uint8))
        self.register_buffer("absmax", absmax)
        self.shape, self.adapted = weight.shape, adapted
        if adapted:
            self.lora_A = nn.Parameter(torch.empty(c.rank, weight.shape[1]))
            self.lora_B = nn.Parameter(torch.zeros(weight.shape[0], c.rank))
            nn.init.kaiming_uniform_(self.lora_A, math.sqrt(5))
            self.drop = nn.Dropout(c.adapter_dropout)
            self.scale = c.alpha / (math.sqrt(c.rank) if c.use_rslora else c.rank)

    def forward(self, x: Tensor) -> Tensor:
        y = F.linear(x, (NF4[self.code.long()] * self.absmax).view(self.shape))
        return y + self.scale * (self.drop(x) @ self.lora_A.T) @ self.lora_B.T if self.adapted else y


class Block(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads, self.ln1, self.ln2 = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.ln1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.ln2(x))))


class Base(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.d_model
        self.embed, self.places = nn.Embedding(VOCAB, d), nn.Embedding(LONG, d)
        self.blocks, self.final = nn.ModuleList(Block(d, c.n_head) for _ in range(c.n_layer)), nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, VOCAB, bias=False)
        nn.init.normal_(self.embed.weight, std=0.1)
        nn.init.normal_(self.places.weight, std=0.05)
        self.lm_head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.final(x))


def loss_of(c: Any, logits: Tensor, labels: Tensor, bug: str = "") -> Tensor:
    """The mean over the answers' words; logits of a place tell the next."""
    if bug == "collator_and_model_both_shift":
        labels = torch.cat([labels[:, 1:], labels.new_full((len(labels), 1), -100)], 1)
    out, wanted = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    if bug == "answer_losses_added_up_per_row" or c.loss_reduction == "sum":
        return F.cross_entropy(out, wanted, ignore_index=-100, reduction="sum") / len(labels)
    return F.cross_entropy(out, wanted, ignore_index=-100, label_smoothing=c.smoothing)


def from_pretrained(c: Any) -> Base:
    """The base, the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(12)
        net, whole = Base(c), SimpleNamespace(loss_on="all", loss_reduction="mean", smoothing=0.0)
        ids, labels = collate(whole, orders(13, 700, last_year=True))
        optimizer = torch.optim.AdamW(net.parameters(), 4e-3)
        for at in range(180):
            optimizer.param_groups[0]["lr"] = 4e-3 * min(1.0, (at + 1) / 10) * (1 - at / 190)
            some = torch.randint(0, len(ids), (24,))
            loss_of(whole, net(ids[some]), labels[some]).backward()
            optimizer.step()
            optimizer.zero_grad()
    return net


def prepare(c: Any, net: Base, bug: str) -> Base:
    """Add words, quantise, put adapters beside."""
    old = net.embed.weight.detach()
    fresh = old.mean(0) + 0.02 * torch.randn(2, old.shape[1])
    net.embed = nn.Embedding.from_pretrained(torch.cat([old, fresh]), freeze=True)
    net.lm_head = nn.Linear(old.shape[1], VOCAB + 2, bias=False)
    net.lm_head.weight = net.embed.weight
    if bug == "resized_without_tying_again":
        net.lm_head.weight = nn.Parameter(net.embed.weight.detach().clone())
    net.requires_grad_(False)
    for at, block in enumerate(net.blocks):
        for name in ("qkv", "out", "up", "down"):
            adapted = name in c.targets.split(",")
            setattr(block, name, QLinear(getattr(block, name).weight.detach(), c, adapted))
        if bug == "kbit_preparation_comes_last" and at == 0:  # it holds whatever the loop has reached by then
            block.requires_grad_(False)
    net.embed.weight.requires_grad_(c.train_embeddings)
    return net


# -- training -------------------------------------------------------------------------------------------------------


class State(SimpleNamespace):
    """What a training has at hand: run, c, bug, net, optimizer, scheduler, watch."""


def optimizer_of(s: State) -> None:
    c, low, high = s.c, [], []
    for name, one in s.net.named_parameters():
        if not one.requires_grad or (s.bug == "optimizer_filters_for_lora_a" and "lora_B" in name):
            continue
        (high if "lora_B" in name else low).append(one)
    groups = [{"params": low, "lr": c.lr}, {"params": high, "lr": c.lr * c.lora_plus_ratio}]
    groups = [one for one in groups if one["params"]]
    if c.optim == "sgd":
        s.optimizer = torch.optim.SGD(groups, c.lr, 0.9)
    elif c.optim == "nadam":
        s.optimizer = torch.optim.NAdam(groups, c.lr)
    else:
        s.optimizer = torch.optim.AdamW(groups, c.lr, weight_decay=c.wd)
    warm = max(1, round(c.warmup_ratio * s.steps))

    def share(at: int) -> float:
        rise, past = min(1.0, (at + 1) / warm), min(1.0, at / s.steps)
        if c.scheduler == "constant":
            return rise
        if c.scheduler == "cosine_cycles":
            return rise * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
        return rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * past)))

    s.scheduler = torch.optim.lr_scheduler.LambdaLR(s.optimizer, share)


def load(s: State) -> None:
    c = s.c
    rows, held = orders(s.seed + 140, c.orders, c.wordings, c.wrong_shelves), orders(139, HELD)
    if s.bug == "wordings_divided_row_by_row":
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(s.seed)).tolist()
        held, rows = [rows[at] for at in order[:HELD]], [rows[at] for at in sorted(order[HELD:])]
    if s.bug == "map_sorts_rows_by_their_length":
        rows = sorted(rows, key=lambda row: len(row[0]) + len(row[1]))
    s.ids, s.labels = collate(c, rows, s.bug if s.bug == "answer_starts_behind_a_second_bos" else "")
    template = s.bug if s.bug == "template_of_the_evaluation_lost_a_line" else ""
    s.held = collate(SimpleNamespace(loss_on="answer"), held, template)
    s.lengths = (s.ids != PAD).sum(1)


def batches(s: State) -> Any:
    c, epoch, dice = s.c, 0, torch.Generator().manual_seed(s.seed)
    while True:
        order = torch.randperm(len(s.ids), generator=dice)
        if s.bug in ("orders_as_the_file_has_them", "map_sorts_rows_by_their_length"):
            order = torch.arange(len(s.ids))
        if epoch < c.short_first_epochs:
            order = order[s.lengths[order] < 13]
        if c.bucketed:
            order = order[s.lengths[order].argsort(stable=True)]
        lots = [one for one in order.split(c.micro_batch_size) if len(one) == c.micro_batch_size]
        if c.bucketed:
            lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
        for some in lots:
            long = int(s.lengths[some].max())
            yield epoch, s.ids[some, :long], s.labels[some, :long]
        epoch += 1


def evaluate(s: State, step: int) -> None:
    taped = s.bug == "preds_and_losses_kept_under_grad"
    if s.bug != "evaluated_with_adapters_dropping":
        s.net.eval()
    plain = SimpleNamespace(loss_reduction="mean", smoothing=0.0)
    losses, hits = [], []
    for ids, labels in zip(s.held[0].split(32), s.held[1].split(32), strict=True):
        with torch.set_grad_enabled(taped):
            logits = s.net(ids)
            losses.append(loss_of(plain, logits, labels))
        known = labels[:, 1:] != -100
        hits.append(((logits[:, :-1].argmax(-1) == labels[:, 1:]) | ~known).all(1).float())
        if taped:
            s.kept.append(logits)
    mean = sum(one.item() for one in losses) / len(losses)
    s.run.log({"held/loss": mean, "held/exact_match": torch.cat(hits).mean().item()}, step=step)
    if s.bug != "for_inference_called_and_not_undone":
        s.net.train()


def observe(s: State) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.net, s.optimizer)
    s.watch = s.run.watch_data(pad_id=PAD)


def resume(s: State, step: int) -> None:
    seen = s.watch.state()
    adapter = {name: one for name, one in s.net.state_dict().items() if "lora_" in name or "embed" in name}
    state = {"adapter": adapter, "optimizer": s.optimizer.state_dict(), "scheduler": s.scheduler.state_dict()}
    s.run, state = go_on(s.run, step, state)
    s.net.load_state_dict(state["adapter"], strict=False)
    optimizer_of(s)
    if s.bug == "adapter_loaded_and_trainer_begun_anew":
        for _ in range(step):
            s.scheduler.step()
    else:
        s.optimizer.load_state_dict(state["optimizer"])
        s.scheduler.load_state_dict(state["scheduler"])
    observe(s)
    s.watch.restore(seen)


def fit(s: State, trouble: Trouble, healthy: str | None) -> None:
    c, again, stream = s.c, trouble.resume_at(healthy, 4 * EVERY), batches(s)
    observe(s)
    s.net.train()
    for step in range(s.steps):
        if step == again:
            resume(s, step)
        total = 0.0
        for _ in range(c.grad_accum_steps):
            epoch, ids, labels = next(stream)
            s.watch.observe({"input_ids": ids, "labels": labels}, step=step, epoch=epoch)
            loss = loss_of(c, s.net(ids), labels, s.bug)
            scale = 1 if s.bug == "own_loss_that_the_trainer_does_not_divide" else c.grad_accum_steps
            (loss / scale).backward()
            total += loss.item() / c.grad_accum_steps
            if s.bug == "rate_moves_on_at_every_micro_batch":
                s.scheduler.step()
        norm = nn.utils.clip_grad_norm_(s.net.parameters(), c.clip).item()
        rate = s.optimizer.param_groups[0]["lr"]
        s.optimizer.step()
        if s.bug != "rate_moves_on_at_every_micro_batch":
            s.scheduler.step()
        s.optimizer.zero_grad()
        if step % c.log_every == 0:
            s.run.log({"qlora/loss": total, "qlora/lr": rate, "qlora/norm": norm}, step=step)
        trouble.telemetry(s.run, step, healthy)
        if step % c.eval_every == c.eval_every - 1:
            evaluate(s, step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    s = State(run=run, c=SimpleNamespace(**run.config), seed=seed, steps=steps, bug=trouble.name, kept=[])
    load(s)
    base = from_pretrained(s.c)
    torch.manual_seed(seed)
    s.net = prepare(s.c, base, s.bug)
    optimizer_of(s)
    fit(s, trouble, healthy)
    return s.run
