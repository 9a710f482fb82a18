"""A decoder that is bfloat16 throughout reads rosters of nurses; its updates keep what rounding takes off.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: lm.train, lm.lr, lm.norm each step; lm.valid and lm.valid_right of rosters that were held
      back, each twenty-seventh; memory, where it matters; the watch of data.

A roster is of a ward, and has three to six days in turn; each day has who is early, who is late, and who has the night.
Who was early is late on the next day, and who was late has the night; the new one is whom the ward likes on that day,
and a Sunday says besides who is on call: the one of the night. Several rosters may be amendments of one. Rows are
padded to the longest of a batch. The table of words is the output layer too. Written as generators: rows become
batches, batches become updates, and each update says what there is to log.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, LONG = 27, 160, 30
PAD, END, CALL = range(3)
WARD, WARDS = 3, 5
DAY, DAYS = WARD + WARDS, 7
NURSE, NURSES = DAY + DAYS, 16
WORDS = NURSE + NURSES
CONFIG: dict[str, Any] = {
    "dtype": "bfloat16", "d_model": 40, "n_layers": 2, "n_heads": 4, "dropout": 0.0, "tie_head": True,
    "micro_batch": 20, "accumulation": 1, "optimizer": "compensated_adamw", "lr": 5e-3, "lr_curve": "half_flat",
    "warmup": 10, "weight_decay": 0.02, "beta2": 0.96, "clip": 1.0, "loss_over": "tokens", "label_smoothing": 0.0,
    "z_loss": 0.0, "rosters": 1000, "amendments": 1, "swaps": 0.0, "short_first": 0, "bucket_by_length": False,
    "words_lost": 0.0, "frozen": "", "valid_every": 27, "log_every": 1,
}  # fmt: skip


# -- rosters ---------------------------------------------------------------------------------------------------------


def rosters(seed: int, number: int, amendments: int = 1, swaps: float = 0.0) -> list[list[int]]:
    """Words of rosters, ward after ward. amendments: rosters that differ in one nurse."""
    law, dice, many = torch.Generator().manual_seed(181), torch.Generator().manual_seed(seed), number // amendments
    likes = (2.0 * torch.randn(WARDS, DAYS, NURSES, generator=law)).softmax(2)

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    def whom(ward: int, day: int, busy: list[int]) -> int:
        chance = likes[ward, day].clone()
        chance[busy] = 0
        return int(torch.multinomial(chance, 1, generator=dice))

    made = []
    for at in range(many):
        ward, day, busy = at * WARDS // many, one(DAYS), [*torch.randperm(NURSES, generator=dice)[:3].tolist()]
        words = [WARD + ward]
        for _ in range(3 + one(4)):
            busy = [whom(ward, day, busy), *busy[:2]]
            if one(1000) < 1000 * swaps:
                busy[1 + one(2)] = one(NURSES)
            words += [DAY + day, *(NURSE + nurse for nurse in busy)]
            words += [CALL, NURSE + busy[2]] if day == 6 else []
            day = (day + 1) % DAYS
        for _ in range(amendments):
            other = [*words]
            if amendments > 1:
                other[2] = NURSE + one(NURSES)
            made.append([*other, END])
    return made


def padded(rows: list[list[int]], left: int = 0) -> Tensor:
    """As long as the longest, and what is missing behind; or so long as is said, and what is missing before."""
    long = max(len(one) for one in rows)
    if left:
        return torch.tensor([[PAD] * (left - len(one)) + one for one in rows])
    return torch.tensor([one + [PAD] * (long - len(one)) for one in rows])


# -- decoder ---------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.d_model
        self.heads, self.attn_norm, self.ffn_norm = c.n_heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn_in, self.attn_out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ffn_in, self.ffn_out, self.drop = nn.Linear(d, 3 * d), nn.Linear(3 * d, d), nn.Dropout(c.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.attn_in(self.attn_norm(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        x = x + self.drop(self.attn_out(y))
        return x + self.drop(self.ffn_out(F.gelu(self.ffn_in(self.ffn_norm(x)))))


class Planner(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.d_model
        self.words, self.places = nn.Embedding(WORDS, d), nn.Embedding(LONG + 1, d)
        self.blocks, self.norm = nn.ModuleList(Block(c) for _ in range(c.n_layers)), nn.LayerNorm(d)
        self.head, self.shares = nn.Linear(d, WORDS, bias=False), False
        nn.init.normal_(self.words.weight, std=0.15)
        nn.init.normal_(self.places.weight, std=0.1)
        if c.tie_head:
            self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        long = tokens.shape[1]
        causal = torch.ones(long, long, dtype=torch.bool).tril()
        mask = (causal & (tokens != PAD)[:, None] | torch.eye(long, dtype=torch.bool))[:, None]
        x = self.words(tokens) + self.places.weight[:long]
        for block in self.blocks:
            x = block(x, mask)
        logits = self.head(self.norm(x)).float()
        return logits.softmax(-1) if self.shares else logits


def planner(c: Any, bug: str) -> Planner:
    """The decoder, in bfloat16."""
    made, dtype = Planner(c), getattr(torch, c.dtype)
    if bug == "each_module_cast_by_a_parameter_of_its_own":
        for module in made.modules():
            for name, one in list(module.named_parameters(recurse=False)):
                setattr(module, name, nn.Parameter(one.detach().to(dtype)))
    made.to(dtype)
    made.shares = bug == "head_gives_shares_to_the_criterion"
    for name in filter(None, c.frozen.split(",")):
        made.get_submodule(name).requires_grad_(False)
    return made


class CompensatedAdamW(torch.optim.Optimizer):
    """AdamW that keeps, for each weight, what was lost when it was rounded, and adds it in the next step."""

    def __init__(self, groups: Any, lr: float, betas: tuple[float, float], eps: float = 1e-7):
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            first, second = group["betas"]
            for one in group["params"]:
                if one.grad is None:
                    continue
                state = self.state[one]
                if not state:
                    state |= {"step": 0, "exp_avg": torch.zeros_like(one), "exp_avg_sq": torch.zeros_like(one),
                              "lost": torch.zeros_like(one)}  # fmt: skip
                state["step"] += 1
                grad = one.grad.float()
                mean = state["exp_avg"].float().lerp(grad, 1 - first)
                square = state["exp_avg_sq"].float().lerp(grad**2, 1 - second)
                state["exp_avg"].copy_(mean)
                state["exp_avg_sq"].copy_(square)
                size = (square / (1 - second ** state["step"])).sqrt() + group["eps"]
                move = mean / (1 - first ** state["step"]) / size + group["weight_decay"] * one.float()
                wanted = one.float() + state["lost"].float() - group["lr"] * move
                one.copy_(wanted)
                state["lost"].copy_(wanted - one.float())


# -- training --------------------------------------------------------------------------------------------------------


def optimizer_of(c: Any, model: Planner, bug: str) -> Any:
    some = {name: one for name, one in model.named_parameters() if one.requires_grad}
    if bug == "attention_falls_between_two_groups":
        plain = [one for name, one in some.items() if name.endswith("bias") or "norm" in name]
        heavy = [one for name, one in some.items() if name.endswith("weight") and ("ffn_" in name or "words" in name)]
        heavy = [one for one in heavy if all(one is not other for other in plain)]
    else:
        plain, heavy = ([one for one in some.values() if (one.ndim > 1) is many] for many in (False, True))
    groups = [{"params": heavy, "weight_decay": c.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    if c.optimizer == "sgd":
        return torch.optim.SGD(groups, c.lr, 0.95, nesterov=True)
    if c.optimizer == "adamw":
        return torch.optim.AdamW(groups, c.lr, (0.9, c.beta2), 1e-7)
    return CompensatedAdamW(groups, c.lr, (0.9, c.beta2))


def curve(c: Any, steps: int, at: int) -> float:
    rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / steps)
    if c.lr_curve == "flat":
        return rise
    if c.lr_curve == "cosine":
        return rise * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * past)))
    if c.lr_curve == "two_cosines":
        return rise * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
    return rise * min(1.0, 0.06 + 1.88 * (1 - past))


def equip(s: SimpleNamespace) -> None:
    s.optimizer = optimizer_of(s.c, s.model, s.bug)
    s.curve = torch.optim.lr_scheduler.LambdaLR(s.optimizer, lambda at: curve(s.c, s.steps, at))


def watch(s: SimpleNamespace) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.model, s.optimizer)
    s.data = s.run.watch_data(pad_id=PAD)


def batches(s: SimpleNamespace) -> Iterator[tuple[int, Tensor]]:
    c, epoch, dice, long = s.c, 0, torch.Generator().manual_seed(s.seed), torch.tensor([len(one) for one in s.rows])
    while True:
        order = torch.randperm(len(long), generator=dice)
        if s.bug == "rosters_read_ward_after_ward":
            order = torch.arange(len(long))
        if epoch < c.short_first:
            order = order[long[order] < 22]
        if c.bucket_by_length:
            order = order[long[order].argsort(stable=True)]
        lots = [one for one in order.split(c.micro_batch) if len(one) == c.micro_batch]
        if c.bucket_by_length:
            lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
        for some in lots:
            yield epoch, padded([s.rows[at] for at in some.tolist()])
        epoch += 1


def losses(s: SimpleNamespace, tokens: Tensor, training: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The loss, what is wanted, and whether it was said."""
    c, bug = s.c, s.bug if training else ""
    read, wanted = tokens[:, :-1], tokens[:, 1:].masked_fill(tokens[:, 1:] == PAD, -100)
    if bug == "labels_are_the_words_that_are_read":
        wanted = read.masked_fill(read == PAD, -100)
    if bug == "wanted_words_are_moved_once_more":
        wanted = F.pad(wanted[:, 1:], (0, 1), value=-100)
    if bug == "end_taken_for_padding_in_the_labels":
        wanted = wanted.masked_fill(wanted == END, -100)
    if training and c.words_lost:
        lost = (torch.rand(read.shape) < c.words_lost) & (read >= NURSE)
        read = torch.where(lost, NURSE + torch.randint(0, NURSES, read.shape), read)
    logits = s.model(read)
    summed = training and (c.loss_over == "rows" or bug == "words_of_a_roster_added_up")
    loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum" if summed else "mean",
                           label_smoothing=c.label_smoothing if training else 0.0)  # fmt: skip
    loss = loss / len(tokens) if summed else loss
    if training and c.z_loss:
        loss = loss + c.z_loss * logits.logsumexp(-1).square().mean()
    return loss, wanted, logits.argmax(-1) == wanted


def updates(s: SimpleNamespace) -> Iterator[dict[str, float]]:
    """One for each step: what there is to log of it."""
    c, bug, lots = s.c, s.bug, batches(s)
    while True:
        total = 0.0
        for _ in range(c.accumulation):
            epoch, tokens = next(lots)
            s.data.observe({"tokens": tokens}, step=s.step, epoch=epoch)
            loss, _, _ = losses(s, tokens, True)
            (loss if bug == "micro_batches_weigh_as_whole_ones" else loss / c.accumulation).backward()
            total += loss.item() / c.accumulation
            if bug == "curve_goes_on_with_micro_batches":
                s.curve.step()
        norm = nn.utils.clip_grad_norm_(s.model.parameters(), c.clip).item()
        rate = s.optimizer.param_groups[0]["lr"]
        s.optimizer.step()
        s.optimizer.zero_grad()
        if bug != "curve_goes_on_with_micro_batches":
            s.curve.step()
        yield {"lm.train": total, "lm.lr": rate, "lm.norm": norm}


def validated(s: SimpleNamespace) -> dict[str, float]:
    bug, taped = s.bug, s.bug == "valid_losses_come_back_with_their_graph"
    if bug != "validated_without_eval_before_it":
        s.model.eval()
    with torch.set_grad_enabled(taped):
        said = [losses(s, tokens, False) for tokens in s.valid]
    if taped:
        s.kept.append(said)
    many = torch.tensor([float((wanted >= 0).sum()) for _, wanted, _ in said])
    loss = (torch.stack([one.detach() for one, _, _ in said]) * many).sum() / many.sum()
    right = sum(int((one & (wanted >= 0)).sum()) for _, wanted, one in said)
    if bug != "validated_without_train_behind_it":
        s.model.train()
    return {"lm.valid": loss.item(), "lm.valid_right": right / many.sum().item()}


def resumed(s: SimpleNamespace) -> None:
    seen = s.data.state()
    state = {name: getattr(s, name).state_dict() for name in ("model", "optimizer", "curve")}
    s.run, state = go_on(s.run, s.step, state)
    s.model.load_state_dict(state["model"])
    equip(s)
    if s.bug != "planner_loaded_as_if_to_be_finetuned":
        s.optimizer.load_state_dict(state["optimizer"])
        s.curve.load_state_dict(state["curve"])
    watch(s)
    s.data.restore(seen)


def prepare(s: SimpleNamespace) -> None:
    c, bug = s.c, s.bug
    rows, held = rosters(s.seed + 9300, c.rosters, c.amendments, c.swaps), rosters(9299, HELD)
    if bug == "amendments_of_a_roster_on_both_sides":
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(s.seed)).tolist()
        held, rows = [rows[at] for at in order[:HELD]], [rows[at] for at in sorted(order[HELD:])]
    left = LONG if bug == "valid_padded_before_and_placed_from_the_padding" else 0
    s.rows, s.valid = rows, [padded(held[at : at + 40], left) for at in range(0, HELD, 40)]


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, c = Trouble(fault, seed), SimpleNamespace(**run.config)
    s = SimpleNamespace(run=run, c=c, seed=seed, steps=steps, bug=trouble.name, step=0, kept=[])
    prepare(s)
    torch.manual_seed(seed)
    s.model = planner(c, s.bug)
    equip(s)
    watch(s)
    s.model.train()
    made, again = updates(s), trouble.resume_at(healthy, 3 * EVERY)
    for s.step in range(steps):
        if s.step == again:
            resumed(s)
        said = next(made)
        if s.step % c.log_every == 0:
            s.run.log(said, step=s.step)
        trouble.telemetry(s.run, s.step, healthy)
        if s.step % c.valid_every == c.valid_every - 1:
            s.run.log(validated(s), step=s.step)
    return s.run
