"""Adapters with two rates beside a base of four bits answer, over several turns, how a coat of arms is registered.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: tune/answer_nll, tune/peak_rate each step, tune/norm each second; check/answer_nll,
      check/exact each twentieth; the watch of data.

The base says charges again. Its matrices are codes of a table made for normal weights, a scale for each block. Two
tokens are added, whose rows alone are trained, in the embedding and in the output that shares it. What the herald asks
is no target. A recipe class with a setup and a loop, as a library of recipes has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

from .parts import fit, once

EVERY, PAD, HERALD, CLERK, IGNORE = 20, 0, 1, 2, -100
HOUSES, CHARGES, CODES = 3, 12, 12
FIRST_HOUSE, FIRST_CHARGE = 3, 3 + HOUSES
FIRST_CODE, KNOWN = FIRST_CHARGE + CHARGES, FIRST_CHARGE + CHARGES + CODES
OVER, TWICE = KNOWN, KNOWN + 1  # what is added: a turn is over; a charge is borne twice
LEVELS = torch.tensor([-1.0, -0.696, -0.525, -0.395, -0.284, -0.185, -0.091, 0.0, 0.08, 0.161, 0.246, 0.338, 0.441,
                       0.563, 0.723, 1.0])  # fmt: skip
CONFIG: dict[str, Any] = {
    "embed_dim": 48, "num_layers": 2, "num_heads": 4, "lora_rank": 8, "lora_alpha": 8.0, "rank_stabilized": True,
    "lora_dropout": 0.0, "lora_attn_modules": "qkv out", "apply_lora_to_mlp": True, "lora_plus_ratio": 2.0,
    "block": 24, "batch_size": 16, "gradient_accumulation": 1, "lr": 1e-2, "num_warmup_steps": 10,
    "lr_scheduler": "cosine", "optimizer": "adamw", "weight_decay": 0.0, "clip_grad_norm": 1.0, "rolls": 1600,
    "retold": 1, "errors": 0.03, "train_on_input": False, "label_smoothing": 0.0, "not_adapted": "",
    "houses_first": 0, "bucketed": False, "loss_over": "tokens", "swap_factors": False,
}  # fmt: skip
Roll = list[tuple[list[int], list[int]]]  # turns: what is asked, what is answered


def write(seed: int, number: int, errors: float = 0.0, echo: bool = False, retold: int = 1) -> list[Roll]:
    """Rolls of one or two turns. A charge has its code by house; one in five is borne twice. retold: how often the
    turns of a roll are told, in any order."""
    dice, book = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(211)
    codes = torch.randperm(CODES, generator=book).repeat(HOUSES, 1)
    for house in range(HOUSES):  # three charges have their codes by house
        codes[house, :3] = codes[house, :3].roll(house)
    rolls: list[Roll] = []
    for _ in range(number // retold):
        house, turns = (int(torch.randint(*most, (), generator=dice)) for most in ((0, HOUSES), (1, 3)))
        roll: Roll = []
        for _ in range(turns):
            long = int(torch.randint(1, 5, (), generator=dice))
            charges = torch.randint(0, CHARGES + (CODES if echo else 0), (long,), generator=dice).tolist()
            twice, wrong = torch.rand(2, long, generator=dice).tolist()
            asked, answer = [HERALD, FIRST_HOUSE + house], []
            for one, often, lost in zip(charges, twice, wrong, strict=True):
                code = FIRST_CHARGE + one if echo else FIRST_CODE + int(codes[house, one])
                if lost < errors:
                    code = FIRST_CODE + int(lost * 1e5) % CODES
                both = often < 0.2 and not echo
                asked += [FIRST_CHARGE + one] * (2 if both else 1)
                answer += [code, TWICE] if both else [code]
            roll.append(([*asked, CLERK], answer if echo else [*answer, OVER]))
        for _ in range(retold):
            rolls.append([roll[at] for at in torch.randperm(turns, generator=dice).tolist()])
    return rolls


def places(ids: Tensor) -> Tensor:
    """A place in its part, which is what the herald or the clerk says at a time, and 16 times which turn it is."""
    begins = (ids == HERALD) | (ids == CLERK)
    there = torch.arange(ids.shape[1]).expand_as(ids)
    own = there - torch.where(begins, there, 0).cummax(1).values
    return own.clamp(max=15) + 16 * begins.cumsum(1).clamp(max=5)


class Layer(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads = heads
        self.sa_norm, self.mlp_norm = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.sa_norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(self.up(self.mlp_norm(x)).relu().square())


class Clerk(nn.Module):
    def __init__(self, d: int, layers: int, heads: int):
        super().__init__()
        self.tok, self.place = nn.Embedding(KNOWN, d), nn.Embedding(96, d)
        for one in (self.tok, self.place):
            nn.init.normal_(one.weight, std=0.3)
        self.layers, self.norm = nn.ModuleList(Layer(d, heads) for _ in range(layers)), nn.RMSNorm(d)
        self.added: nn.Parameter | None = None
        self.bug = ""

    def add_tokens(self) -> None:
        """Rows of two tokens, which begin at the mean of the others."""
        mean = self.tok.weight.detach().mean(0)
        self.added = nn.Parameter(mean + 0.05 * torch.randn(2, len(mean)))

    def forward(self, ids: Tensor) -> Tensor:
        rows = self.tok.weight if self.added is None else torch.cat([self.tok.weight, self.added])
        x = rows[ids] + self.place(places(ids))
        for layer in self.layers:
            x = layer(x)
        if self.bug == "added_rows_in_input_alone" and self.added is not None:
            rows = torch.cat([self.tok.weight, self.added.detach() * 0 + self.tok.weight.mean(0)])
        y = 0.3 * self.norm(x) @ rows.T
        return y.softmax(-1) if self.bug == "softmax_left_from_the_server" else y


class Coded(nn.Module):
    """A matrix as codes and a scale a block; beside it, if it is to be adapted, two factors."""

    def __init__(self, old: nn.Linear, c: Any, adapted: bool, bug: str):
        super().__init__()
        w = old.weight.detach().view(-1, c.block)
        scale = w.abs().amax(1, keepdim=True).clamp(min=1e-8)
        self.register_buffer("codes", ((w / scale)[..., None] - LEVELS).abs().argmin(-1).to(torch.uint8))
        self.register_buffer("absmax", scale)
        self.shape, self.adapted, self.rate, self.bug = old.weight.shape, adapted, c.lora_dropout, bug
        if adapted:
            r = c.lora_rank
            self.lora_a = nn.Linear(old.in_features, r, bias=False)
            self.lora_b = nn.Linear(r, old.out_features, bias=False)
            first, second = (self.lora_b, self.lora_a) if c.swap_factors else (self.lora_a, self.lora_b)
            nn.init.normal_(first.weight, std=first.in_features**-0.5)
            nn.init.zeros_(second.weight)
            self.scaling = c.lora_alpha / (r**0.5 if c.rank_stabilized else r)
            if bug == "alpha_times_rank":
                self.scaling = c.lora_alpha * r

    def forward(self, x: Tensor) -> Tensor:
        y = F.linear(x, (LEVELS[self.codes.long()] * self.absmax).view(self.shape))
        if not self.adapted:
            return y
        training = True if self.bug == "functional_dropout_untold" else self.training
        return y + self.scaling * self.lora_b(self.lora_a(F.dropout(x, self.rate, training)))


def collate(rolls: list[Roll], questions: bool = False, bug: str = "") -> tuple[Tensor, Tensor]:
    ids, labels = [], []
    for roll in rolls:
        ids.append(torch.tensor([one for asked, answer in roll for one in asked + answer]))
        own: list[int] = []
        for asked, answer in roll:
            if bug == "turns_masked_the_other_way":
                own += asked + [IGNORE] * len(answer)
            else:
                own += (asked if questions else [IGNORE] * len(asked)) + answer
        labels.append(torch.tensor(own))
    made, wanted = (nn.utils.rnn.pad_sequence(one, True, fill) for one, fill in ((ids, PAD), (labels, IGNORE)))
    if bug == "labels_cut_in_set_and_in_loss":
        wanted = torch.cat([wanted[:, 1:], torch.full((len(wanted), 1), IGNORE)], 1)
    return made, wanted


def answer_nll(logits: Tensor, labels: Tensor, c: Any = None, bug: str = "") -> Tensor:
    said, wanted = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    if bug == "tokens_over_rolls_alone":
        return F.cross_entropy(said, wanted, reduction="sum") / len(labels)
    if c is not None and c.loss_over == "rolls":
        each = F.cross_entropy(said, wanted, reduction="none").view(len(labels), -1)
        return (each.sum(1) / (labels[:, 1:] != IGNORE).sum(1)).mean()
    return F.cross_entropy(said, wanted, label_smoothing=c.label_smoothing if c else 0.0)


@once("embed_dim", "num_layers", "num_heads")
def base_of(config: dict[str, Any]) -> Clerk:
    """Says charges again; the same for all seeds."""
    with torch.random.fork_rng():
        torch.manual_seed(212)
        model = Clerk(*(config[one] for one in ("embed_dim", "num_layers", "num_heads")))
        rolls = write(213, 2000, echo=True)

        def loss() -> Tensor:
            ids, labels = collate([rolls[at] for at in torch.randint(0, len(rolls), (32,)).tolist()])
            return answer_nll(model(ids), labels)

        fit(torch.optim.AdamW(model.parameters(), 4e-3), 350, loss)
    return model


class Recipe:
    def __init__(self, run: Any, seed: int, bug: str):
        self.run, self.c, self.seed, self.bug = run, SimpleNamespace(**run.config), seed, bug
        self.kept: list[Tensor] = []

    def setup(self) -> None:
        c, bug = self.c, self.bug
        torch.manual_seed(self.seed)
        self.model = base_of(vars(c))
        self.model.bug = bug
        self.model.add_tokens()
        targets = [*c.lora_attn_modules.split(), *(["up", "down"] if c.apply_lora_to_mlp else [])]
        for layer in self.model.layers:
            for name in ("qkv", "out", "up", "down"):
                setattr(layer, name, Coded(getattr(layer, name), c, name in targets, bug))
        for name, one in self.model.named_parameters():
            one.requires_grad = "lora_" in name or name == "added"
            if bug == "all_weights_frozen_by_suffix":  # behind the adapters, which are modules with weights too
                one.requires_grad = not name.endswith("weight") or "norm" in name
            if c.not_adapted and c.not_adapted in name:
                one.requires_grad = False
        self.rolls, self.held = self.setup_data()
        self.setup_optimizer()
        self.observe()

    def setup_data(self) -> tuple[list[Roll], list[Roll]]:
        c = self.c
        rolls, held = write(self.seed + 6300, c.rolls, c.errors, retold=c.retold), write(62, 160, c.errors)
        if self.bug == "retold_rolls_dealt_to_both":
            order = torch.randperm(len(rolls), generator=torch.Generator().manual_seed(self.seed)).tolist()
            rolls, held = [rolls[at] for at in order[160:]], [rolls[at] for at in order[:160]]
        return rolls, held

    def setup_optimizer(self) -> None:
        c, named = self.c, [(name, one) for name, one in self.model.named_parameters() if one.requires_grad]
        first, second = ([one for name, one in named if ("lora_b" in name) == later] for later in (False, True))
        groups = [{"params": first, "lr": c.lr}, {"params": second, "lr": c.lr * c.lora_plus_ratio}]
        groups = [group for group in groups if group["params"]]
        if c.optimizer == "sgd":
            self.optimizer: Any = torch.optim.SGD(groups, c.lr, 0.9)
        elif c.optimizer == "adamax":
            self.optimizer = torch.optim.Adamax(groups, c.lr)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.lr, weight_decay=c.weight_decay)
        total = c.steps
        if self.bug == "cosine_ends_with_first_pass":  # the number of passes was left out
            total = len(self.rolls) // c.batch_size // 2

        def share(at: int) -> float:
            if at < c.num_warmup_steps:
                return (at + 1) / c.num_warmup_steps
            past = min(1.0, (at - c.num_warmup_steps) / max(1, total - c.num_warmup_steps))
            if c.lr_scheduler == "constant":
                return 1.0
            if c.lr_scheduler == "cosine_with_restarts":
                past = 2 * past % 1 if past < 1 else 1.0
            if c.lr_scheduler == "inverse_sqrt":
                return (c.num_warmup_steps / at) ** 0.5
            return 0.5 * (1 + float(torch.cos(torch.tensor(3.14159 * past))))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def observe(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.data = self.run.watch_data(pad_id=PAD)

    def batches(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        c, lot, epoch = self.c, torch.Generator().manual_seed(self.seed), 0
        size = c.batch_size // c.gradient_accumulation
        long = torch.tensor([sum(len(a) + len(b) for a, b in roll) for roll in self.rolls])
        house = torch.tensor([roll[0][0][1] - FIRST_HOUSE for roll in self.rolls])
        while True:
            order = torch.randperm(len(self.rolls), generator=lot)
            if self.bug == "shortest_rolls_first_each_time":
                order = long.argsort(stable=True)
            if c.houses_first and not epoch:  # the first pass has the rolls of some houses, as it is set
                order = order[house[order] < c.houses_first]
            if c.bucketed:
                order = order[long[order].argsort(stable=True)]
            groups = [one for one in order.split(size) if len(one) == size]
            if c.bucketed:
                groups = [groups[at] for at in torch.randperm(len(groups), generator=lot).tolist()]
            for some in groups:
                yield epoch, *collate([self.rolls[at] for at in some.tolist()], c.train_on_input, self.bug)
            epoch += 1

    def train_step(self, step: int, stream: Iterator[tuple[int, Tensor, Tensor]]) -> None:
        c, total = self.c, 0.0
        for _ in range(c.gradient_accumulation):
            epoch, ids, labels = next(stream)
            self.data.observe({"input_ids": ids, "labels": labels}, step=step, epoch=epoch)
            loss = answer_nll(self.model(ids), labels, c, self.bug)
            whole = self.bug == "four_answers_left_whole"
            (loss if whole else loss / c.gradient_accumulation).backward()
            total += loss.item() / c.gradient_accumulation
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), c.clip_grad_norm).item()
        rate = max(group["lr"] for group in self.optimizer.param_groups)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.scheduler.step()
        row = {"tune/answer_nll": total, "tune/peak_rate": rate}
        self.run.log(row | ({"tune/norm": norm} if step % 2 else {}), step=step)

    def check(self, step: int) -> None:
        self.model.eval()
        ids, labels = collate(self.held, self.c.train_on_input)
        kept = self.bug == "checks_keep_what_was_said"
        with torch.set_grad_enabled(kept):
            logits = self.model(ids)
            loss = answer_nll(logits, labels)
        if kept:
            self.kept.append(logits)
        wanted = collate(self.held)[1][:, 1:]
        right = (logits[:, :-1].argmax(-1) == wanted) | (wanted == IGNORE)
        self.run.log({"check/answer_nll": loss.item(), "check/exact": right.all(1).float().mean().item()}, step=step)
        self.model.train()

    def resume(self, step: int) -> None:
        seen = self.data.state()
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        self.run, saved = go_on(self.run, step, state | {"scheduler": self.scheduler.state_dict()})
        self.model.load_state_dict(saved["model"])
        self.setup_optimizer()
        self.scheduler.load_state_dict(saved["scheduler"])
        if self.bug != "resume_without_recipe_state":
            self.optimizer.load_state_dict(saved["optimizer"])
        for group, rate in zip(self.optimizer.param_groups, self.scheduler.get_last_lr(), strict=True):
            group["lr"] = rate
        self.observe()
        self.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    recipe, again = Recipe(run, seed, trouble.name), trouble.resume_at(healthy, 4 * EVERY)
    recipe.setup()
    stream = recipe.batches()
    recipe.model.train()
    for step in range(steps):
        if step == again:
            recipe.resume(step)
        recipe.train_step(step, stream)
        trouble.telemetry(recipe.run, step, healthy)
        if step % EVERY == EVERY - 1:
            recipe.check(step)
    return recipe.run
