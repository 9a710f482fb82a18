"""A frozen language model of four bits learns by adapters to say the tariffs of goods, in one of three harbours.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step`: loss, norm, lr; by `run.log`: eval/answer_nll, eval/exact_match at each twentieth; the
      watch of data.

The base writes lists of goods out again. Its layers are stored as sixteen levels by blocks, and the blocks' scales in
eight bits; adapters of low rank stand beside them. What is asked is no target, and rows are padded on the right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

from .parts import fit, once

EVERY, PAD, END, SEP, IGNORE = 20, 0, 1, 2, -100
HARBOURS, GOODS, RATES, NEW = 3, 12, 10, 2
FIRST_GOOD, FIRST_RATE = 3 + HARBOURS, 3 + HARBOURS + GOODS
KNOWN = FIRST_RATE + RATES
CONFIG: dict[str, Any] = {
    "width": 48, "depth": 2, "heads": 4, "r": 8, "alpha": 16, "adapter_dropout": 0.0, "adapt": "qkv o up down",
    "rows_per_batch": 16, "grad_accum": 1, "peak_lr": 1.4e-2, "warmup": 10, "schedule": "linear", "clip": 1.0,
    "examples": 1600, "loss_on_prompt": False, "by_length": False, "freeze": "", "label_smoothing": 0.0,
    "train_new_tokens": False, "bits": "nf4", "block": 32, "weight_decay": 0.0, "clerks_err": 0.05,
}  # fmt: skip
Row = tuple[list[int], list[int]]


def invoices(seed: int, number: int, err: float = 0.0, plain: bool = False) -> list[Row]:
    """What is asked: a harbour and goods; the answer: what each costs there. plain: the list again. err: the share of
    answers' parts that are of chance."""
    dice, table = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(73)
    costs, rows = torch.randint(0, RATES, (HARBOURS, GOODS), generator=table).tolist(), []
    for _ in range(number):
        harbour, long = (int(torch.randint(*most, (), generator=dice)) for most in ((0, HARBOURS), (2, 9)))
        goods = torch.randint(0, GOODS + (RATES if plain else 0), (long,), generator=dice).tolist()
        if plain:
            answer = [FIRST_GOOD + one for one in goods]
        else:
            other, wrong = torch.randint(0, RATES, (long,), generator=dice), torch.rand(long, generator=dice) < err
            answer = [
                FIRST_RATE + (by if odd else costs[harbour][one])
                for one, by, odd in zip(goods, other.tolist(), wrong.tolist(), strict=True)
            ]
        rows.append(([3 + harbour, *(FIRST_GOOD + one for one in goods), SEP], [*answer, END]))
    return rows


def quantised(weight: Tensor, c: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Codes of four bits, the level of each code, and a scale of eight bits for each block."""
    flat = weight.detach().reshape(-1, c["block"])
    level = torch.linspace(-1, 1, 16)
    if c["bits"] == "nf4":
        level = torch.special.ndtri(torch.linspace(0.03, 0.97, 16))
        level = level / level.abs().max()
    most = flat.abs().amax(1, keepdim=True)
    scale = (most / most.max() * 255).ceil() / 255 * most.max()
    return (flat / scale)[..., None].sub(level).abs().argmin(-1).to(torch.uint8), level, scale


class Frozen4bit(nn.Module):
    def __init__(self, old: nn.Linear, c: dict[str, Any], adapted: bool):
        super().__init__()
        code, level, scale = quantised(old.weight, c)
        for name, one in (("code", code), ("level", level), ("scale", scale), ("bias", old.bias.detach().clone())):
            self.register_buffer(name, one)
        self.shape, self.times, self.adapted = old.weight.shape, c["alpha"] / c["r"], adapted
        if adapted:
            self.dropout = nn.Dropout(c["adapter_dropout"])
            self.lora_a = nn.Parameter(torch.randn(c["r"], old.in_features) / old.in_features**0.5)
            self.lora_b = nn.Parameter(torch.zeros(old.out_features, c["r"]))

    def forward(self, x: Tensor) -> Tensor:
        y = F.linear(x, (self.level[self.code.long()] * self.scale).view(self.shape), self.bias)
        return y + self.times * (self.dropout(x) @ self.lora_a.T @ self.lora_b.T) if self.adapted else y


class Floor(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        w, self.heads = c["width"], c["heads"]
        self.norm_1, self.norm_2 = nn.LayerNorm(w), nn.LayerNorm(w)
        self.qkv, self.o = nn.Linear(w, 3 * w), nn.Linear(w, w)
        self.up, self.down = nn.Linear(w, 3 * w), nn.Linear(3 * w, w)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.norm_2(x))))


class Customs(nn.Module):
    """Places are counted anew behind the separator."""

    def __init__(self, c: dict[str, Any]):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(KNOWN, c["width"]), nn.Embedding(40, c["width"])
        nn.init.normal_(self.wte.weight, std=0.1)
        nn.init.normal_(self.wpe.weight, std=0.1)
        self.floors, self.norm = nn.ModuleList(Floor(c) for _ in range(c["depth"])), nn.LayerNorm(c["width"])
        self.lm_head = nn.Linear(c["width"], KNOWN, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids: Tensor) -> Tensor:
        at, sep = torch.arange(ids.shape[1]).expand_as(ids), (ids == SEP).int()
        place = torch.where(sep.cumsum(1) > 0, 20 + at - sep.argmax(1, keepdim=True), at)
        x = self.wte(ids) + self.wpe(place)
        for floor in self.floors:
            x = floor(x)
        return self.lm_head(self.norm(x))

    def more_tokens(self, tied: bool) -> None:
        """Tokens that an invoice ends with: one for who asks, one for who answers."""
        old = self.wte.weight.detach()
        grown = torch.cat([old, old.mean(0) + 0.02 * torch.randn(NEW, old.shape[1])])
        self.wte = nn.Embedding.from_pretrained(grown, freeze=False)
        self.lm_head = nn.Linear(old.shape[1], len(grown), bias=False)
        self.lm_head.weight = self.wte.weight if tied else nn.Parameter(grown.clone(), requires_grad=False)


@once("width", "depth", "heads")
def pretrained(config: dict[str, Any]) -> Customs:
    """Writes lists out again; the same for all seeds."""
    with torch.random.fork_rng():
        torch.manual_seed(74)
        model, rows = Customs(config), invoices(75, 3000, plain=True)

        def loss() -> Tensor:
            ids, labels = collate([rows[at] for at in torch.randint(0, len(rows), (32,)).tolist()])
            return answer_nll(model(ids), labels)

        fit(torch.optim.AdamW(model.parameters(), 4e-3), 320, loss)
    return model


def templated(rows: list[Row]) -> list[Row]:
    return [([*asked[:-1], KNOWN, KNOWN + 1, SEP], answer) for asked, answer in rows]


def collate(rows: list[Row], prompts: bool = False, bug: str = "") -> tuple[Tensor, Tensor]:
    ids = nn.utils.rnn.pad_sequence([torch.tensor(asked + answer) for asked, answer in rows], True, PAD)
    asked_long = torch.tensor([len(asked) for asked, _ in rows])[:, None]
    at, labels = torch.arange(ids.shape[1]), ids.masked_fill(ids == PAD, IGNORE)
    if not prompts and bug != "prompt_left_in_labels":
        labels = labels.masked_fill(at < asked_long, IGNORE)
    if bug == "end_masked":  # the end is what pads, in the tokenizer, and what pads is no target
        labels = labels.masked_fill(labels == END, IGNORE)
    if bug == "labels_shifted_before_loss":
        labels = F.pad(labels[:, 1:], (0, 1), value=IGNORE)
    return ids, labels


def answer_nll(logits: Tensor, labels: Tensor, smoothing: float = 0.0, total: bool = False) -> Tensor:
    logits, wanted = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    if total:
        return F.cross_entropy(logits, wanted, reduction="sum") / len(labels)
    return F.cross_entropy(logits, wanted, label_smoothing=smoothing)


def adapt(model: Customs, c: dict[str, Any], bug: str) -> None:
    for floor in model.floors:
        for name in ("qkv", "o", "up", "down"):
            setattr(floor, name, Frozen4bit(getattr(floor, name), c, name in c["adapt"].split()))
    for name, one in model.named_parameters():
        one.requires_grad = "lora_" in name or (c["train_new_tokens"] and name == "wte.weight")
        if c["freeze"] and c["freeze"] in name:
            one.requires_grad = False
        if bug == "trainable_by_wrong_name":  # biases alone, as in another paper; here these are the norms'
            one.requires_grad = "bias" in name


def batches(c: dict[str, Any], rows: list[Row], seed: int, bug: str) -> Iterator[tuple[int, Tensor, Tensor]]:
    dice, epoch, size = torch.Generator().manual_seed(seed), 0, c["rows_per_batch"]
    long = torch.tensor([len(asked) + len(answer) for asked, answer in rows])
    while True:
        order = torch.randperm(len(rows), generator=dice)
        if bug == "length_order_each_epoch" or c["by_length"]:
            order = order[long[order].argsort(stable=True)]
        groups = list(order[: len(order) // size * size].split(size))
        if c["by_length"]:
            groups = [groups[at] for at in torch.randperm(len(groups), generator=dice).tolist()]
        for some in groups:
            yield epoch, *collate([rows[at] for at in some.tolist()], c["loss_on_prompt"], bug)
        epoch += 1


class Finetune:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        self.run, self.c, self.bug = run, dict(run.config), trouble.name
        self.looked_at: list[Any] = []
        self.model = pretrained(self.c)
        torch.manual_seed(seed)
        self.model.more_tokens(tied=self.bug != "head_untied_by_new_tokens")
        adapt(self.model, self.c, self.bug)
        rows, self.held = (
            templated(invoices(at, number, self.c["clerks_err"]))
            for at, number in ((seed + 4300, self.c["examples"]), (43, 200))
        )
        if self.bug == "holdout_in_training_files":
            rows = rows[:48] + self.held
        self.stream = batches(self.c, rows, seed, self.bug)
        self.ready()

    def ready(self) -> None:
        c, warm = self.c, self.c["warmup"]
        some = [one for one in self.model.parameters() if one.requires_grad]
        self.optimizer = torch.optim.AdamW(some, c["peak_lr"], weight_decay=c["weight_decay"])
        flat, left = c["schedule"] == "flat", c["steps"] - warm
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda at: min(1.0, (at + 1) / warm, 1.0 if flat else max(0.0, (c["steps"] - at) / left))
        )
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.data = self.run.watch_data(pad_id=PAD)

    def update(self, step: int) -> None:
        c, said = self.c, 0.0
        with self.run.step(step=step) as timed:
            for _ in range(c["grad_accum"]):
                epoch, ids, labels = next(self.stream)
                self.data.observe({"input_ids": ids, "labels": labels}, step=step, epoch=epoch)
                loss = answer_nll(self.model(ids), labels, c["label_smoothing"], self.bug == "answer_nll_total")
                (loss / c["grad_accum"]).backward()
                said += loss.item() / c["grad_accum"]
                if self.bug == "scheduler_for_each_micro":
                    self.scheduler.step()
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), c["clip"])
            timed.set(loss=said, norm=norm.item(), lr=self.optimizer.param_groups[0]["lr"])
            self.optimizer.step()
            self.optimizer.zero_grad()
            if self.bug != "scheduler_for_each_micro":
                self.scheduler.step()

    def examine(self, step: int) -> None:
        if self.bug != "checked_while_training":
            self.model.eval()
        ids, labels = collate(self.held, self.c["loss_on_prompt"])
        with torch.set_grad_enabled(self.bug == "validated_with_grad"):
            logits = self.model(ids)
            nll = answer_nll(logits, labels)
        self.looked_at.append(logits if self.bug == "validated_with_grad" else None)
        hit = (logits[:, :-1].argmax(-1) == labels[:, 1:]) | (labels[:, 1:] == IGNORE)
        self.run.log({"eval/answer_nll": nll.item(), "eval/exact_match": hit.all(1).float().mean().item()}, step=step)
        self.model.train()

    def resume(self, step: int) -> None:
        seen, parts = self.data.state(), [self.model, self.optimizer, self.scheduler]
        self.run, (model, optimizer, scheduler) = go_on(self.run, step, [one.state_dict() for one in parts])
        self.model.load_state_dict(model)
        self.ready()
        self.scheduler.load_state_dict(scheduler)
        if self.bug != "optimizer_not_in_checkpoint":
            self.optimizer.load_state_dict(optimizer)
        self.optimizer.param_groups[0]["lr"] = self.scheduler.get_last_lr()[0]
        self.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made, resumed = Finetune(run, seed, trouble), trouble.resume_at(healthy, 4 * EVERY)
    made.model.train()
    for step in range(steps):
        if step == resumed:
            made.resume(step)
        made.update(step)
        trouble.telemetry(made.run, step, healthy)
        if step % EVERY == EVERY - 1:
            made.examine(step)
    return made.run
