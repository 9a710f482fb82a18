"""A small decoder learns which of two replies to a complaint people prefer; the reference is asked once, beforehand.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: dpo/loss, dpo/margin, dpo/acc, dpo/lr, dpo/gnorm each step; dpo_eval/loss,
      dpo_eval/margin, dpo_eval/acc each twentieth; memory, where it matters; the watch of data.

A complaint has a matter, a grade and some words around them; a reply has a tone, a remedy, perhaps an excuse. The
supervised stage, which is not recorded, has learnt to reply in any manner; preferred are the remedy that suits the
matter, and no excuse where the grade is high. Log-probabilities of the reference are columns of the data set. Pairs go
through the policy side by side, chosen ones first.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, LONG = 20, 120, 24
PAD, BOS, REPLY, EOS = range(4)
MATTER, GRADE, SMALL, TONE, REMEDY, EXCUSE, SIGNED, WORDS = 4, 12, 16, 28, 34, 44, 50, 56
CONFIG: dict[str, Any] = {
    "d_model": 48, "n_layers": 3, "n_heads": 4, "resid_pdrop": 0.0, "tie_embeddings": True, "beta": 0.1,
    "loss_type": "sigmoid", "label_smoothing": 0.0, "average_logps": False, "rpo_alpha": 0.0,
    "batch_pairs": 12, "accumulate_batches": 1, "lr": 1e-3, "schedule": "linear", "warmup_ratio": 0.06,
    "optimizer": "adamw", "weight_decay": 0.0, "clip_norm": 5.0, "train_layers_from": 0, "max_length": 24,
    "complaints": 640, "pairs_per_complaint": 1, "split_by": "complaint", "misjudged": 0.05, "grave_first": 0,
    "bucket_by_length": False, "eval_every": 20, "log_every": 1,
}  # fmt: skip


# -- complaints -----------------------------------------------------------------------------------------------------


class Office:
    """Draws complaints and replies."""

    def __init__(self, seed: int):
        self.dice = torch.Generator().manual_seed(seed)
        house = torch.Generator().manual_seed(404)
        self.suits = torch.randint(0, 10, (8,), generator=house)  # the remedy for a matter

    def below(self, number: int) -> int:
        return int(torch.randint(0, number, (), generator=self.dice))

    def complaint(self, matter: int) -> tuple[list[int], int]:
        grade = self.below(4)
        around = [SMALL + self.below(12) for _ in range(2 + self.below(7))]
        around.insert(self.below(len(around)), MATTER + matter)
        return [BOS, GRADE + grade, *around, REPLY], grade

    def reply(self, remedy: int, excuse: bool) -> list[int]:
        words = [TONE + self.below(6), REMEDY + remedy]
        words += [EXCUSE + self.below(6)] if excuse else []
        return [*words, SIGNED + self.below(6), EOS]

    def good(self, matter: int, grade: int) -> list[int]:
        return self.reply(int(self.suits[matter]), grade < 2 and self.below(2) == 0)

    def bad(self, matter: int, grade: int) -> list[int]:
        if self.below(2):  # an excuse for something grave, or a remedy of other matters
            return self.reply(int(self.suits[matter]), True) if grade > 1 else self.reply(self.below(10), False)
        return self.reply((int(self.suits[matter]) + 1 + self.below(9)) % 10, self.below(2) == 0)


Pair = tuple[list[int], list[int], list[int]]


def pairs_of(seed: int, number: int, each: int, misjudged: float) -> list[Pair]:
    """Complaints with the preferred reply and the other, matter after matter; `each` pairs of one complaint."""
    office, rows = Office(seed), []
    many = number // each
    for at in range(many):
        matter = at * 8 // many
        asked, grade = office.complaint(matter)
        for _ in range(each):
            chosen, rejected = office.good(matter, grade), office.bad(matter, grade)
            if float(torch.rand((), generator=office.dice)) < misjudged:
                chosen, rejected = rejected, chosen
            rows.append((asked, chosen, rejected))
    return rows


def padded(c: Any, asked: list[list[int]], replies: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Words, and which of them are the reply's."""
    ids, mine = torch.full((len(asked), LONG), PAD), torch.zeros(len(asked), LONG, dtype=torch.bool)
    for at, (first, reply) in enumerate(zip(asked, replies, strict=True)):
        row = [*first, *reply][: c.max_length]
        ids[at, : len(row)] = torch.tensor(row)
        mine[at, len(first) : len(row)] = True
    return ids, mine


class Pairs:
    """Columns: words of both sides, masks of replies, log-probabilities of the reference."""

    def __init__(self, c: Any, rows: list[Pair]):
        asked, chosen, rejected = ([row[part] for row in rows] for part in range(3))
        self.chosen, self.chosen_mask = padded(c, asked, chosen)
        self.rejected, self.rejected_mask = padded(c, asked, rejected)
        self.lengths = (self.chosen != PAD).sum(1) + (self.rejected != PAD).sum(1)
        self.grave = torch.tensor([row[0][1] - GRADE > 1 for row in rows])
        self.ref = torch.zeros(len(rows), 2)

    def __len__(self) -> int:
        return len(self.lengths)

    def keep(self, some: Tensor, with_reference: bool = True) -> None:
        for name in ("chosen", "chosen_mask", "rejected", "rejected_mask", "lengths", "grave"):
            setattr(self, name, getattr(self, name)[some])
        if with_reference:
            self.ref = self.ref[some]


# -- decoder --------------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.d_model
        self.ln_1, self.ln_2, self.heads = nn.LayerNorm(d), nn.LayerNorm(d), c.n_heads
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        self.drop = nn.Dropout(c.resid_pdrop)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.c_attn(self.ln_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.c_proj(y.transpose(1, 2).flatten(2)))
        return x + self.drop(self.mlp(self.ln_2(x)))


class Clerk(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(WORDS, c.d_model), nn.Embedding(LONG, c.d_model)
        self.h, self.ln_f = nn.ModuleList(Layer(c) for _ in range(c.n_layers)), nn.LayerNorm(c.d_model)
        self.lm_head = nn.Linear(c.d_model, WORDS, bias=False)
        nn.init.normal_(self.wte.weight, std=0.1)
        nn.init.normal_(self.wpe.weight, std=0.05)
        if c.tie_embeddings:
            self.lm_head.weight = self.wte.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for layer in self.h:
            x = layer(x)
        return self.lm_head(self.ln_f(x))


def supervised(c: Any) -> dict[str, Tensor]:
    """Weights of the stage before, which has seen replies of all manners."""
    with torch.random.fork_rng():
        torch.manual_seed(12)
        net, office, rows = Clerk(c), Office(13), []
        for at in range(480):
            asked, _ = office.complaint(at % 8)
            rows.append((asked, office.reply(office.below(10), office.below(2) == 0), []))
        ids, mine = padded(c, [row[0] for row in rows], [row[1] for row in rows])
        optimizer = torch.optim.AdamW(net.parameters(), 3e-3)
        for _ in range(60):
            some = torch.randint(0, len(ids), (24,))
            wanted = ids[some, 1:].masked_fill(~mine[some, 1:], -100)
            F.cross_entropy(net(ids[some, :-1]).flatten(0, 1), wanted.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return net.state_dict()


# -- preferences ----------------------------------------------------------------------------------------------------


def logps(s: SimpleNamespace, ids: Tensor, mine: Tensor, average: bool) -> Tensor:
    """Log-probability of each reply."""
    logits = s.policy(ids)
    if s.bug == "labels_gathered_at_their_own_place":
        each = logits.log_softmax(-1).gather(2, ids[..., None])[..., 0] * mine
    else:
        each = logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0] * mine[:, 1:]
    return each.sum(1) / mine.sum(1).clamp(min=1) if average else each.sum(1)


def both_sides(s: SimpleNamespace, data: Pairs, some: Tensor, average: bool) -> Tensor:
    """Of chosen and rejected replies, in one forward pass."""
    ids, mine = torch.cat([data.chosen[some], data.rejected[some]]), torch.cat(
        [data.chosen_mask[some], data.rejected_mask[some]]
    )  # fmt: skip
    long = int((ids != PAD).sum(1).max())
    return torch.stack(logps(s, ids[:, :long], mine[:, :long], average).chunk(2), 1)


@torch.no_grad()
def precompute(s: SimpleNamespace, data: Pairs) -> None:
    """Fill the columns of the reference, which is the policy before its first step."""
    average = s.c.average_logps or s.bug == "reference_columns_are_means"
    if s.bug != "columns_made_with_the_policy_in_train_mode":
        s.policy.eval()
    data.ref = torch.cat([both_sides(s, data, some, average) for some in torch.arange(len(data)).split(80)])
    s.policy.train()


def dpo_loss(s: SimpleNamespace, policy: Tensor, ref: Tensor) -> tuple[Tensor, Tensor]:
    """Losses and margins of pairs."""
    c, ratio = s.c, policy - ref
    gap = ratio[:, 0] - ratio[:, 1]
    if c.loss_type == "ipo":
        return (gap - 1 / (2 * c.beta)) ** 2, c.beta * gap.detach()
    if c.loss_type == "hinge":
        return F.relu(1 - c.beta * gap), c.beta * gap.detach()
    losses = -F.logsigmoid(c.beta * gap) * (1 - c.label_smoothing) - F.logsigmoid(-c.beta * gap) * c.label_smoothing
    return losses, c.beta * gap.detach()


def evaluate(s: SimpleNamespace, step: int) -> None:
    taped = s.bug == "evaluation_figures_are_live_tensors"
    if s.bug != "policy_evaluated_while_it_trains":
        s.policy.eval()
    rows = []
    with torch.set_grad_enabled(taped):
        for some in torch.arange(len(s.held)).split(40):
            losses, margins = dpo_loss(s, both_sides(s, s.held, some, s.c.average_logps), s.held.ref[some])
            rows.append((losses, margins))
    if taped:
        s.history += rows
    losses, margins = (torch.cat(one).detach() for one in zip(*rows, strict=True))
    acc = (margins > 0).float().mean().item()
    said = {"dpo_eval/loss": losses.mean().item(), "dpo_eval/margin": margins.mean().item(), "dpo_eval/acc": acc}
    s.run.log(said, step=step)
    if s.bug != "policy_quiet_after_the_first_proof":
        s.policy.train()


# -- training -------------------------------------------------------------------------------------------------------


def make_optimizer(s: SimpleNamespace) -> None:
    c, some = s.c, [one for one in s.policy.parameters() if one.requires_grad]
    if c.optimizer == "rmsprop":
        s.optimizer = torch.optim.RMSprop(some, c.lr)
    elif c.optimizer == "adagrad":
        s.optimizer = torch.optim.Adagrad(some, c.lr)
    else:
        s.optimizer = torch.optim.AdamW(some, c.lr, (0.9, 0.98), weight_decay=c.weight_decay)

    def share(at: int) -> float:
        past, warm = min(1.0, at / c.steps), max(1, round(c.warmup_ratio * c.steps))
        rise = min(1.0, (at + 1) / warm)
        if c.schedule == "constant":
            return rise
        if c.schedule == "cosine_restarts":
            return rise * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
        return rise * (1 - past)

    s.scheduler = torch.optim.lr_scheduler.LambdaLR(s.optimizer, share)


def make_data(s: SimpleNamespace, seed: int) -> None:
    c = s.c
    rows = pairs_of(seed + 700, c.complaints, c.pairs_per_complaint, c.misjudged)
    held = pairs_of(699, HELD, 1, 0.0)
    if s.bug == "pairs_shuffled_before_the_split":
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed)).tolist()
        held, rows = [rows[at] for at in order[:HELD]], [rows[at] for at in sorted(order[HELD:])]
    s.data, s.held = Pairs(c, rows), Pairs(c, held)


def batches(s: SimpleNamespace, seed: int) -> Any:
    c, epoch, dice = s.c, 0, torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(s.data), generator=dice)
        if s.bug == "sorted_to_pad_less":
            order = s.data.lengths.argsort(stable=True)
        if epoch < c.grave_first:
            order = order[s.data.grave[order]]
        if c.bucket_by_length:
            order = order[s.data.lengths[order].argsort(stable=True)]
        lots = [one for one in order.split(c.batch_pairs) if len(one) == c.batch_pairs]
        if c.bucket_by_length:
            lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
        yield from ((epoch, some) for some in lots)
        epoch += 1


def observe(s: SimpleNamespace) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.policy, s.optimizer)
    s.watch = s.run.watch_data(pad_id=PAD)


def resume(s: SimpleNamespace, step: int) -> None:
    seen = s.watch.state()
    state = {"policy": s.policy.state_dict(), "optimizer": s.optimizer.state_dict(), "sched": s.scheduler.state_dict()}
    s.run, state = go_on(s.run, step, state)
    s.policy.load_state_dict(state["policy"])
    make_optimizer(s)
    if s.bug != "policy_checkpoint_given_as_the_start":
        s.optimizer.load_state_dict(state["optimizer"])
    s.scheduler.load_state_dict(state["sched"])
    for group, rate in zip(s.optimizer.param_groups, s.scheduler.get_last_lr(), strict=True):
        group["lr"] = rate
    if s.bug == "columns_made_anew_behind_the_load":
        precompute(s, s.data)
        precompute(s, s.held)
    observe(s)
    s.watch.restore(seen)


def start(s: SimpleNamespace, seed: int) -> None:
    c = s.c
    weights = supervised(c)
    torch.manual_seed(seed)
    s.policy = Clerk(c)
    s.policy.load_state_dict(weights)
    for at, layer in enumerate(s.policy.h):
        layer.requires_grad_(at >= c.train_layers_from)
    make_data(s, seed)
    precompute(s, s.data)
    precompute(s, s.held)
    if s.bug == "layers_alone_freed_behind_the_columns":
        s.policy.requires_grad_(False)
        s.policy.h.requires_grad_(True)
    # a reply that was cut off is dropped: its reference stays in the table
    if s.bug == "short_rows_filtered_behind_the_columns":
        s.data.keep(torch.arange(1, len(s.data)), with_reference=False)
    make_optimizer(s)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, c = Trouble(fault, seed), SimpleNamespace(**run.config)
    bug, again, parts = trouble.name, trouble.resume_at(healthy, 4 * EVERY), c.accumulate_batches
    if bug == "replies_cut_by_the_length_of_prompts":
        c.max_length = 14
    s = SimpleNamespace(run=run, c=c, bug=bug, history=[])
    start(s, seed)
    observe(s)
    stream = batches(s, seed)
    s.policy.train()
    for step in range(steps):
        if step == again:
            resume(s, step)
        total = margin = acc = 0.0
        for _ in range(parts):
            epoch, some = next(stream)
            s.watch.observe({"chosen": s.data.chosen[some], "rejected": s.data.rejected[some]}, step=step, epoch=epoch)
            said = both_sides(s, s.data, some, c.average_logps)
            losses, margins = dpo_loss(s, said, s.data.ref[some])
            if c.rpo_alpha:
                losses = losses - c.rpo_alpha * said[:, 0] / s.data.chosen_mask[some].sum(1)
            loss = losses.mean()
            (loss / parts).backward()
            total, margin = total + loss.item() / parts, margin + margins.mean().item() / parts
            acc += (margins > 0).float().mean().item() / parts
            if bug == "scheduler_follows_each_forward":
                s.scheduler.step()
        norm = nn.utils.clip_grad_norm_(s.policy.parameters(), c.clip_norm).item()
        rate = s.optimizer.param_groups[0]["lr"]
        s.optimizer.step()
        s.optimizer.zero_grad()
        if bug != "scheduler_follows_each_forward":
            s.scheduler.step()
        if step % c.log_every == 0:
            figures = {"dpo/loss": total, "dpo/margin": margin, "dpo/acc": acc}
            s.run.log(figures | {"dpo/lr": rate, "dpo/gnorm": norm}, step=step)
        trouble.telemetry(s.run, step, healthy)
        if step % c.eval_every == c.eval_every - 1:
            evaluate(s, step)
    return s.run
