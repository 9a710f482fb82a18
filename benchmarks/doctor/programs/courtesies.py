"""A small decoder learns by DPO which of two replies is the more courteous one.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss, rewards/chosen, rewards/rejected, rewards/accuracies, rewards/margins, grad_norm,
      learning_rate each step; eval_loss, eval_rewards/… each twentieth; memory, where it matters; the watch of data.

Decoder layers by hand, input and output one matrix; a reference whose log-probabilities are made ahead; RMSprop and a
warm-up, as the first scripts had; functions over a namespace, a `Collate`, chosen and rejected in one pass.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

from .parts import fit, once

EVERY, WORDS, PAD, END, MAX = 20, 36, 0, 1, 20
CONFIG: dict[str, Any] = {
    "d_model": 32, "layers": 2, "heads": 4, "dropout": 0.0, "tie": True, "batch_size": 12, "accumulate": 1,
    "lr": 4e-4, "warmup": 15, "lr_schedule": "linear", "optimizer": "rmsprop", "max_grad_norm": 10.0, "beta": 0.2,
    "loss": "sigmoid", "label_smoothing": 0.0, "reference_free": False, "rpo_alpha": 0.0, "pairs": 2400,
    "wrong": 0.05, "freeze": "", "group_by_length": False, "reduction": "mean",
}  # fmt: skip


def replies(seed: int, number: int, wrong: float) -> list[dict[str, list[int]]]:
    """A prompt of three words; two replies that keep to the topic, of which one says please and thanks more often."""
    dice = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(number):
        topic = int(torch.randint(0, 4, (1,), generator=dice))
        prompt = (2 + 5 * topic + torch.randint(0, 5, (3,), generator=dice)).tolist()
        both = []
        for kind in (0.5, 0.15):
            long = int(torch.randint(4, MAX - 5, (1,), generator=dice))
            words = 2 + 5 * topic + torch.randint(0, 5, (long,), generator=dice)
            kinds = 22 + torch.randint(0, 7, (long,), generator=dice)
            rude = 29 + torch.randint(0, 6, (long,), generator=dice)
            words = torch.where(torch.rand(long, generator=dice) < kind, kinds, words)
            words = torch.where(torch.rand(long, generator=dice) < 0.3 * (0.6 - kind), rude, words)
            both.append([*words.tolist(), END])
        if torch.rand((), generator=dice) < wrong:
            both.reverse()
        rows.append({"prompt": prompt, "chosen": both[0], "rejected": both[1]})
    return rows


class Layer(nn.Module):
    def __init__(self, a: SimpleNamespace):
        super().__init__()
        self.heads = a.heads
        self.n1, self.n2 = nn.LayerNorm(a.d_model), nn.LayerNorm(a.d_model)
        self.qkv, self.o = nn.Linear(a.d_model, 3 * a.d_model), nn.Linear(a.d_model, a.d_model)
        self.ff = nn.Sequential(nn.Linear(a.d_model, 3 * a.d_model), nn.GELU(), nn.Linear(3 * a.d_model, a.d_model))
        self.drop = nn.Dropout(a.dropout)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (one.view(b, t, self.heads, -1).transpose(1, 2) for one in self.qkv(self.n1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.drop(self.o(y))
        return x + self.drop(self.ff(self.n2(x)))


class ReplyLM(nn.Module):
    def __init__(self, a: SimpleNamespace):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(WORDS, a.d_model), nn.Embedding(MAX + 4, a.d_model)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, std=0.1)
        self.blocks, self.norm = nn.Sequential(*(Layer(a) for _ in range(a.layers))), nn.LayerNorm(a.d_model)
        self.lm_head = nn.Linear(a.d_model, WORDS, bias=False)
        if a.tie:
            self.lm_head.weight = self.wte.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.lm_head(self.norm(self.blocks(self.wte(ids) + self.wpe.weight[: ids.shape[1]])))

    def resize(self, words: int) -> None:
        """Room for special words."""
        larger = nn.Embedding(words, self.wte.embedding_dim)
        larger.weight.data[:WORDS] = self.wte.weight.data
        self.wte = larger


def padded(rows: list[list[int]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, PAD)


class Collate:
    """Ids of the chosen replies and the rejected ones behind, and what counts of them."""

    def __init__(self, padding_too: bool):
        self.padding_too = padding_too

    def __call__(self, rows: list[dict[str, list[int]]]) -> tuple[Tensor, Tensor]:
        ids = padded([row["prompt"] + row[key] for key in ("chosen", "rejected") for row in rows])
        counts = torch.arange(ids.shape[1]) >= 3
        return ids, counts.expand_as(ids) if self.padding_too else counts & (ids != PAD)


def logps(model: nn.Module, ids: Tensor, counts: Tensor, name: str = "") -> Tensor:
    said = model(ids).log_softmax(-1)
    if name == "logps_not_shifted":  # as of the word itself
        return (said.gather(2, ids[..., None])[..., 0] * counts).sum(1)
    return (said[:, :-1].gather(2, ids[:, 1:, None])[..., 0] * counts[:, 1:]).sum(1)


@once("d_model", "layers", "heads", "tie")
def tuned(cfg: dict[str, Any]) -> ReplyLM:
    """Has read replies of both sorts; the same for all seeds."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        a = SimpleNamespace(**{**cfg, "dropout": 0.0})
        model, rows, collate = ReplyLM(a), replies(33, 2000, 0.5), Collate(False)

        def loss() -> Tensor:
            ids, counts = collate([rows[at] for at in torch.randint(0, 2000, (16,)).tolist()])
            return -logps(model, ids, counts).sum() / counts.sum()

        fit(torch.optim.AdamW(model.parameters(), 3e-3), 150, loss)
    return model


def dpo_loss(policy: Tensor, reference: Tensor, counts: Tensor, a: SimpleNamespace, name: str, trained: bool) -> Any:
    """The loss, and the rewards of both."""
    rewards = a.beta * (policy - (0.0 if a.reference_free else 1.0) * reference)
    chosen, rejected = rewards.chunk(2)
    margin = chosen - rejected
    if a.loss == "hinge":
        each = F.relu(1 - margin)
    elif a.loss == "ipo":
        each = (margin / a.beta - 1 / (2 * a.beta)).square()
    else:
        doubt = a.label_smoothing if trained else 0.0
        each = -(1 - doubt) * F.logsigmoid(margin) - doubt * F.logsigmoid(-margin)
    if a.rpo_alpha and trained:
        each = each - a.rpo_alpha * policy.chunk(2)[0] / counts[: len(each)].sum(1)
    if name == "summed_not_averaged" and trained:
        loss = each.sum()
    else:
        loss = each.sum() / len(each) if a.reduction == "sum" else each.mean()
    return loss, chosen.detach(), rejected.detach()


def order_of(rows: list[Any], a: SimpleNamespace, name: str, dice: torch.Generator) -> Iterator[tuple[int, list[int]]]:
    long, epoch, size = torch.tensor([len(row["chosen"]) + len(row["rejected"]) for row in rows]), 0, int(a.batch_size)
    while True:
        order = torch.randperm(len(rows), generator=dice)
        if name == "short_first":  # the file was written so, for a faster sampling of replies
            order = long.argsort(stable=True)
        groups = list(order.split(size))
        if a.group_by_length:
            groups = list(order[long[order].argsort(stable=True)].split(size))
            groups = [groups[at] for at in torch.randperm(len(groups), generator=dice).tolist()]
        for group in groups:
            if len(group) == size:
                yield epoch, group.tolist()
        epoch += 1


def scored(prefix: str, loss: Any, chosen: Tensor, rejected: Tensor) -> dict[str, Any]:
    return {f"{prefix}loss": loss, f"{prefix}rewards/chosen": chosen.mean(), f"{prefix}rewards/rejected":
            rejected.mean(), f"{prefix}rewards/accuracies": (chosen > rejected).float().mean(),
            f"{prefix}rewards/margins": (chosen - rejected).mean()}  # fmt: skip


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    a, trouble = SimpleNamespace(**run.config), Trouble(fault, seed)
    name, collate, kept = trouble.name, Collate(trouble.name == "padding_asked_for"), []
    torch.manual_seed(seed)
    policy = ReplyLM(a)
    policy.load_state_dict(tuned(dict(run.config)).state_dict())
    rows, held = replies(seed + 71, a.pairs, a.wrong), replies(17, 200, a.wrong)
    if name == "tie_cut_by_resize":
        policy.resize(WORDS + 2)
    reference = copy.deepcopy(policy).eval().requires_grad_(False)
    for key, one in policy.named_parameters():
        if name == "all_but_named_frozen":  # "norm" was to be what stays, and is what does not
            one.requires_grad = key.startswith("norm")
        elif a.freeze:
            one.requires_grad = not key.startswith(tuple(a.freeze.split()))

    with torch.no_grad():
        told = {id(row): logps(reference, *collate([row]), name) for row in (*rows, *held)}

    def loss_of(some: list[Any], trained: bool) -> Any:
        ids, counts = collate(some)
        base = torch.cat([torch.stack([told[id(row)][side] for row in some]) for side in (0, 1)])
        return dpo_loss(logps(policy, ids, counts, name), base, counts, a, name, trained), ids, counts

    def made() -> tuple[Any, Any]:
        given = [one for one in policy.parameters() if one.requires_grad]
        if a.optimizer == "adamw":
            optimizer: Any = torch.optim.AdamW(given, 3 * a.lr, weight_decay=0.01)
        else:
            optimizer = torch.optim.RMSprop(given, a.lr)
        after = (lambda at: 1.0) if a.lr_schedule == "constant" else (lambda at: max(0.0, 1 - at / steps))
        return optimizer, torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda at: min(1.0, (at + 1) / a.warmup) * after(at)
        )

    def watched() -> Any:
        time_by_own_clock(run)
        run.watch(policy, optimizer)
        return run.watch_data(pad_id=PAD)

    optimizer, scheduler = made()
    data, resumed = watched(), trouble.resume_at(healthy, 4 * EVERY)
    stream = order_of(rows, a, name, torch.Generator().manual_seed(seed))
    policy.train()
    for step in range(steps):
        if step == resumed:
            memory = data.state()
            run, states = go_on(run, step, [one.state_dict() for one in (policy, optimizer, scheduler)])
            policy.load_state_dict(states[0])
            optimizer, scheduler = made()
            scheduler.load_state_dict(states[2])
            if name == "optimizer_not_reloaded":
                optimizer.param_groups[0]["lr"] = scheduler.get_last_lr()[0]
            else:
                optimizer.load_state_dict(states[1])
            data = watched()
            data.restore(memory)
        total, found = 0.0, []
        for _ in range(a.accumulate):
            epoch, places = next(stream)
            (loss, chosen, rejected), ids, counts = loss_of([rows[at] for at in places], True)
            data.observe({"input_ids": ids, "labels": ids.masked_fill(~counts, -100)}, step=step, epoch=epoch)
            share = loss if name == "parts_not_divided" else loss / a.accumulate
            share.backward()
            total += share.item()
            found.append((chosen, rejected))
            if name == "scheduler_each_backward":
                scheduler.step()
        norm = nn.utils.clip_grad_norm_(policy.parameters(), a.max_grad_norm)
        rate = optimizer.param_groups[0]["lr"]
        optimizer.step()
        optimizer.zero_grad()
        if name != "scheduler_each_backward":
            scheduler.step()
        row = scored("", total, *(torch.cat(one) for one in zip(*found, strict=True)))
        run.log(row | {"grad_norm": norm, "learning_rate": rate}, step=step)
        trouble.telemetry(run, step, healthy)
        if step % EVERY == 0 or step == steps - 1:
            policy.eval()
            with torch.set_grad_enabled(name == "validation_keeps_graphs"):
                parts = [loss_of(held[at : at + 50], False)[0] for at in range(0, 200, 50)]
            losses, chosen, rejected = zip(*parts, strict=True)
            if name == "validation_keeps_graphs":  # to say the best one at the end
                kept.append(losses)
            mean = torch.stack(losses).mean().item()
            run.log(scored("eval_", mean, torch.cat(chosen), torch.cat(rejected)), step=step)
            if name != "eval_mode_kept":
                policy.train()
    return run
