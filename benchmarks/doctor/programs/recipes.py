"""A policy learns which of two recipes people liked for some ingredients, by what it says against its own beginning.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log` with TRL's names: loss, rewards/…, logps/…, learning_rate, grad_norm; eval_loss,
      eval_rewards/accuracies; the watch of data.

A decoder with slopes for distances in place of positions, and one matrix for input and output; pairs are padded at
their ends, RAdam, a constant rate after its warm-up; functions over dictionaries.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

from .parts import fit, once

EVERY, FOODS, PAD, STOP, ASKED = 20, 24, 0, 25, 4
CONFIG: dict[str, Any] = {
    "width": 32, "layers": 2, "heads": 2, "dropout": 0.0, "beta": 0.3, "batch_size": 16, "learning_rate": 8e-4,
    "warmup_steps": 10, "schedule": "constant_with_warmup", "accumulation": 1, "max_grad_norm": 1.0, "pairs": 1600,
    "wrong_preferences": 0.05, "loss_type": "sigmoid", "label_smoothing": 0.0, "buckets": False, "frozen": "",
}  # fmt: skip


def slopes(heads: int, long: int) -> Tensor:
    """(heads, long, long), added to scores of attention: the nearer the better, nothing that is to come."""
    steps = torch.arange(long)[:, None] - torch.arange(long)
    biased = -(2.0 ** -torch.arange(1, heads + 1))[:, None, None] * steps
    return biased.masked_fill(steps < 0, float("-inf"))


class Part(nn.Module):
    def __init__(self, width: int, heads: int, rate: float):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.fc = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(rate)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.mix(self.n1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=slopes(self.heads, x.shape[1]))
        x = x + self.drop(self.out(y.transpose(1, 2).flatten(2)))
        return x + self.drop(self.fc(self.n2(x)))


class Cook(nn.Module):
    def __init__(self, cfg: dict[str, Any]):
        super().__init__()
        self.table = nn.Embedding(26, cfg["width"])
        self.parts = nn.ModuleList(Part(cfg["width"], cfg["heads"], cfg["dropout"]) for _ in range(cfg["layers"]))
        self.last, self.unembed = nn.LayerNorm(cfg["width"]), nn.Linear(cfg["width"], 26, bias=False)
        nn.init.normal_(self.table.weight, std=0.1)
        self.unembed.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        for part in self.parts:
            x = part(x)
        return self.unembed(self.last(x))


def pairs(seed: int, number: int, wrong: float) -> list[dict[str, Tensor]]:
    """What is liked goes with the first of the ingredients: foods of its shelf; what is not liked is of any."""
    dice, made = torch.Generator().manual_seed(seed), []
    for _ in range(number):
        asked = torch.randint(1, FOODS + 1, (ASKED,), generator=dice)
        answers = []
        for share in (0.75, 0.3):
            foods = torch.randint(1, FOODS + 1, (int(torch.randint(3, 11, (1,), generator=dice)),), generator=dice)
            near = (foods - 1) // 4 * 4 + (asked[0] - 1) % 4 + 1  # the shelf of the first
            fits = torch.rand(len(foods), generator=dice) < share
            answers.append(torch.cat([asked, torch.where(fits, near, foods), torch.tensor([STOP])]))
        if float(torch.rand((), generator=dice)) < wrong:
            answers.reverse()
        made.append({"chosen": answers[0], "rejected": answers[1]})
    return made


def collate(rows: list[dict[str, Tensor]], name: str) -> dict[str, Tensor]:
    sides = ("rejected", "chosen") if name == "rejected_first" else ("chosen", "rejected")
    flat = [row[side] for side in sides for row in rows]
    return {"input_ids": nn.utils.rnn.pad_sequence(flat, batch_first=True, padding_value=PAD)}


@once("width", "layers", "heads", "dropout")
def started(cfg: dict[str, Any]) -> Cook:
    """Has read recipes of both kinds; the same for all seeds."""
    with torch.random.fork_rng():
        torch.manual_seed(6)
        model, rows = Cook(cfg), pairs(66, 800, 0.0)

        def loss() -> Tensor:
            some = [rows[one] for one in torch.randint(0, 800, (12,)).tolist()]
            ids = collate(some, "")["input_ids"]
            return F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), ignore_index=PAD)

        fit(torch.optim.Adam(model.parameters(), 4e-3), 120, loss)
    return model


def logps(model: nn.Module, ids: Tensor, mean: bool) -> Tensor:
    """Of each answer."""
    each = model(ids)[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
    mask = (ids[:, 1:] != PAD) & (torch.arange(ids.shape[1] - 1) >= ASKED - 1)
    total = (each * mask).sum(1)
    return total / mask.sum(1) if mean else total


def preference(policy: nn.Module, reference: nn.Module, batch: dict[str, Tensor], cfg: dict[str, Any],
               name: str) -> tuple[Tensor, dict[str, float]]:  # fmt: skip
    ids = batch["input_ids"]
    mean = cfg["loss_type"] == "length_normalised" or name == "logps_averaged"
    said = logps(policy, ids, mean)
    with torch.no_grad():
        before = logps(reference, ids, mean)
    chosen, rejected = (said - before).chunk(2)
    margin = cfg["beta"] * (chosen - rejected)
    if cfg["loss_type"] == "identity":
        loss = ((chosen - rejected) - 1 / (2 * cfg["beta"])).square().mean()
    else:
        ease = cfg["label_smoothing"]
        loss = (-(1 - ease) * F.logsigmoid(margin) - ease * F.logsigmoid(-margin)).mean()
    figures = {
        "rewards/chosen": cfg["beta"] * chosen.mean().item(), "rewards/rejected": cfg["beta"] * rejected.mean().item(),
        "rewards/accuracies": (margin > 0).float().mean().item(), "rewards/margins": margin.mean().item(),
        "logps/chosen": said.chunk(2)[0].mean().item(),
    }  # fmt: skip
    return loss, figures


def in_order(rows: list[Any], size: int, seed: int, cfg: dict[str, Any], name: str) -> Iterator[tuple[int, list[Any]]]:
    """Batches without end, each with its epoch."""
    dice, epoch = torch.Generator().manual_seed(seed), 0
    long = torch.tensor([len(row["chosen"]) + len(row["rejected"]) for row in rows])
    while True:
        order = torch.randperm(len(rows), generator=dice)
        if name == "data_by_length":  # less padding
            order = order[long[order].argsort(stable=True)]
        groups = list(order.split(size))
        if cfg["buckets"]:
            groups = list(order[(long[order] + torch.rand(len(rows), generator=dice)).argsort()].split(size))
            groups = [groups[one] for one in torch.randperm(len(groups), generator=dice).tolist()]
        for group in groups:
            if len(group) == size:
                yield epoch, [rows[one] for one in group.tolist()]
        epoch += 1


def optimised(policy: nn.Module, cfg: dict[str, Any]) -> tuple[Any, Any]:
    trained = [one for one in policy.parameters() if one.requires_grad]
    optimizer = torch.optim.RAdam(trained, lr=cfg["learning_rate"])
    total, warm = cfg["steps"], cfg["warmup_steps"]

    def share(step: int) -> float:
        if cfg["schedule"] == "linear" and step >= warm:
            return max(0.0, (total - step) / (total - warm))
        return min(1.0, (step + 1) / warm)

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)


def evaluate(run: Any, policy: nn.Module, reference: nn.Module, held: list[Any], cfg: dict[str, Any], name: str,
             step: int) -> None:  # fmt: skip
    was = policy.training
    policy.eval()
    with torch.no_grad():
        loss, figures = preference(policy, reference, collate(held, ""), cfg, name if name == "logps_averaged" else "")
    policy.train(was)
    run.log({"eval_loss": loss.item(), "eval_rewards/accuracies": figures["rewards/accuracies"]}, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    cfg, trouble = dict(run.config), Trouble(fault, seed)
    name = trouble.name
    policy = started(cfg)
    torch.manual_seed(seed)
    if name == "copied_in_evaluation":  # the reference is a copy of the policy as it is read, ready to be used
        policy.eval()
    else:
        policy.train()
    reference = copy.deepcopy(policy).requires_grad_(False)
    reference.train(name == "reference_drops_out")
    if cfg["frozen"] or name == "wrong_group_frozen":
        for key, parameter in policy.named_parameters():
            wrong = name == "wrong_group_frozen" and not key.startswith("last")
            parameter.requires_grad = not (wrong or (cfg["frozen"] and key.startswith(cfg["frozen"])))
    optimizer, scheduler = optimised(policy, cfg)
    if name == "weight_tying_broken":  # vectors are resized for a token more, and the output keeps a copy of its own
        policy.unembed.weight = nn.Parameter(policy.table.weight.detach().clone())
    rows, held = pairs(seed + 29, cfg["pairs"], cfg["wrong_preferences"]), pairs(292, 128, cfg["wrong_preferences"])
    batches = in_order(rows, int(cfg["batch_size"]), seed, cfg, name)
    leaking = in_order(held, int(cfg["batch_size"]) // 2, seed, cfg, "")
    time_by_own_clock(run)
    run.watch(policy, optimizer)
    data = run.watch_data(pad_id=PAD)
    for step in range(steps):
        if step == trouble.resume_at(healthy, 5 * EVERY):
            parts, memory = (policy, optimizer, scheduler), data.state()
            run, states = go_on(run, step, [part.state_dict() for part in parts])
            policy.load_state_dict(states[0])
            optimizer, scheduler = optimised(policy, cfg)
            if name != "weights_alone_kept":
                optimizer.load_state_dict(states[1])
                scheduler.load_state_dict(states[2])
            time_by_own_clock(run)
            run.watch(policy, optimizer)
            data = run.watch_data(pad_id=PAD)
            data.restore(memory)
        sums: dict[str, float] = {}
        for _ in range(cfg["accumulation"]):
            epoch, some = next(batches)
            if trouble.on("validation_leak", step):
                some = some[len(some) // 2 :] + next(leaking)[1]
            batch = collate(some, name)
            data.observe(batch["input_ids"], step=step, epoch=epoch)
            loss, figures = preference(policy, reference, batch, cfg, name)
            loss = loss / cfg["accumulation"]
            loss.backward()
            for key, value in (("loss", loss.item()), *((key, one / cfg["accumulation"])
                                                        for key, one in figures.items())):  # fmt: skip
                sums[key] = sums.get(key, 0.0) + value
            if name == "scheduler_per_micro_batch":
                scheduler.step()
        norm = nn.utils.clip_grad_norm_(policy.parameters(), cfg["max_grad_norm"]).item()
        rate = optimizer.param_groups[0]["lr"]
        optimizer.step()
        optimizer.zero_grad()
        if name != "scheduler_per_micro_batch":
            scheduler.step()
        run.log(sums | {"learning_rate": rate, "grad_norm": norm}, step=step)
        if step % EVERY == 0 or step == steps - 1:
            evaluate(run, policy, reference, held, cfg, name, step)
    return run
