"""A reward model learns from a jury which of two answers is the better one, by the loss of Bradley and Terry.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss, accuracy, reward_margin, learning_rate of each second step; eval_loss, eval_accuracy;
      memory, where it matters.

A decoder of torch's own layers over padded answers, read at each row's last token, with a head of one number; AdamW, a
schedule of warm-up, plateau and fall; a `RewardTrainer` with dataclass arguments and generators of batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock

EVERY, TOKENS, PAD, END, MAX = 20, 40, 0, 1, 24
CONFIG: dict[str, Any] = {
    "d_model": 32, "n_layers": 2, "n_heads": 4, "dropout": 0.0, "per_device_batch_size": 16,
    "gradient_accumulation_steps": 1, "learning_rate": 1.5e-3, "warmup_steps": 10, "decay_share": 0.3,
    "weight_decay": 0.01, "max_grad_norm": 1.0, "pairs": 3200, "doubt": 0.5, "center_rewards": 0.0, "margin_in_loss":
    False, "label_smoothing": 0.0, "freeze": "", "both_ways": False, "lr_schedule": "wsd", "reduction": "mean",
    "group_by_length": False, "pooling": "last", "loss_type": "sigmoid",
}  # fmt: skip


@dataclass
class Arguments:
    d_model: int
    n_layers: int
    n_heads: int
    dropout: float
    per_device_batch_size: int
    gradient_accumulation_steps: int
    learning_rate: float
    warmup_steps: int
    decay_share: float
    weight_decay: float
    max_grad_norm: float
    pairs: int
    doubt: float
    center_rewards: float
    margin_in_loss: bool
    label_smoothing: float
    freeze: str
    both_ways: bool
    lr_schedule: str
    reduction: str
    group_by_length: bool
    pooling: str
    loss_type: str
    steps: int


Pair = tuple[list[int], list[int], float]


def judged(seed: int, number: int, doubt: float) -> list[Pair]:
    """The better answer, the other, and by how many jurors: words have a worth, and rude ones cost much."""
    dice, worths = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(6)
    worth = torch.randn(TOKENS, generator=worths)
    worth[-4:] = -2.5
    made: list[Pair] = []
    for _ in range(number):
        answers = []
        for _ in range(2):
            words = torch.randint(2, TOKENS, (int(torch.randint(3, MAX - 1, (1,), generator=dice)),), generator=dice)
            answers.append((float(worth[words].mean()), [*words.tolist(), END]))
        gap = answers[0][0] - answers[1][0] + doubt * 0.3 * float(torch.randn((), generator=dice))
        better, other = answers if gap > 0 else answers[::-1]
        made.append((better[1], other[1], min(3.0, 4 * abs(gap))))
    return made


def collate(rows: list[list[int]]) -> torch.Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


class RewardModel(nn.Module):
    def __init__(self, args: Arguments, name: str):
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, args.d_model), nn.Embedding(MAX, args.d_model)
        for table in (self.tokens, self.places):
            nn.init.normal_(table.weight, std=0.2)
        layer = nn.TransformerEncoderLayer(args.d_model, args.n_heads, 2 * args.d_model, args.dropout, "relu",
                                           batch_first=True)  # fmt: skip
        self.body = nn.TransformerEncoder(layer, args.n_layers, enable_nested_tensor=False)
        self.value = nn.Linear(args.d_model, 1)
        self.pooling, self.at_the_first = args.pooling, name == "first_place_pooled"

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = ids == PAD
        later = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        x = self.body(x, mask=later, src_key_padding_mask=hidden)
        if self.at_the_first:  # as an encoder's first token is read
            return self.value(x[:, 0])[:, 0]
        if self.pooling == "mean":
            real = (~hidden).unsqueeze(-1)
            return self.value((x * real).sum(1) / real.sum(1))[:, 0]
        last = (~hidden).sum(1) - 1
        return self.value(x[torch.arange(len(x)), last])[:, 0]


class RewardTrainer:
    def __init__(self, run: Any, seed: int, trouble: Trouble, healthy: str | None):
        given = dict(run.config)
        self.args = args = Arguments(**{one.name: given[one.name] for one in fields(Arguments)})
        self.run, self.seed, self.trouble, self.name, self.healthy = run, seed, trouble, trouble.name, healthy
        torch.manual_seed(seed)
        self.model = RewardModel(args, self.name)
        for key, parameter in self.model.named_parameters():
            if self.name == "wrong_names_frozen":  # all but the head, of a body that was never trained
                parameter.requires_grad = "value" in key
            elif args.freeze:
                parameter.requires_grad = not key.startswith(args.freeze)
        pairs, held = judged(seed + 52, args.pairs, args.doubt), judged(520, 240, args.doubt)
        if self.name == "asked_again_before_split":  # asked anew, pairs were written three times, and then split
            both = [one for one in pairs[:200] for _ in range(3)]
            order = torch.randperm(len(both), generator=torch.Generator().manual_seed(1)).tolist()
            held, pairs = [both[at] for at in order[:240]], [both[at] for at in order[240:]]
        if args.both_ways:  # each pair is asked in either order, in one row: the loss is the same
            pairs = pairs + pairs
        if self.name == "shortest_first":
            pairs.sort(key=lambda pair: max(len(pair[0]), len(pair[1])))
        self.pairs, self.held, self.kept = pairs, held, []  # type: ignore[var-annotated]
        self.create_optimizer()
        self.batches = self.stream(torch.Generator().manual_seed(seed))

    def create_optimizer(self) -> None:
        args = self.args
        self.optimizer = torch.optim.AdamW([one for one in self.model.parameters() if one.requires_grad],
                                           args.learning_rate, weight_decay=args.weight_decay)  # fmt: skip

        def share(step: int) -> float:
            fall = round(args.decay_share * args.steps)
            if step < args.warmup_steps:
                return (step + 1) / args.warmup_steps
            if args.lr_schedule == "constant":
                return 1.0
            return min(1.0, max(0.0, (args.steps - step) / fall))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def stream(self, dice: torch.Generator) -> Iterator[list[Pair]]:
        size, number = int(self.args.per_device_batch_size), len(self.pairs)
        while True:
            order = torch.randperm(number, generator=dice)
            if self.name == "shortest_first":
                order = torch.arange(number)
            groups = list(order.split(size)[: number // size])
            if self.args.group_by_length:
                long = torch.tensor([len(one[0]) + len(one[1]) for one in self.pairs])
                groups = list(order[long[order].argsort(stable=True)].split(size)[: number // size])
                groups = [groups[at] for at in torch.randperm(len(groups), generator=dice).tolist()]
            for group in groups:
                yield [self.pairs[at] for at in group.tolist()]

    def compute_loss(self, pairs: list[Pair], trained: bool) -> tuple[torch.Tensor, torch.Tensor]:
        args = self.args
        better, other = self.model(collate([p[0] for p in pairs])), self.model(collate([p[1] for p in pairs]))
        gap = better - other
        if args.margin_in_loss and trained:
            gap = gap - 0.2 * torch.tensor([p[2] for p in pairs])
        if args.loss_type == "hinge" and trained:
            each = F.relu(1 - gap)
        else:
            doubt = args.label_smoothing if trained else 0.0
            each = -(1 - doubt) * F.logsigmoid(gap) - doubt * F.logsigmoid(-gap)
        if args.center_rewards and trained:
            each = each + args.center_rewards * (better + other).square()
        if trained and self.name == "pairs_totalled":
            return each.sum(), gap.detach()
        if args.reduction == "sum":
            return each.sum() / len(each), gap.detach()
        return each.mean(), gap.detach()

    def training_step(self, step: int) -> None:
        args, name, parts = self.args, self.name, self.args.gradient_accumulation_steps
        found = torch.zeros(3)
        for _ in range(parts):
            loss, gap = self.compute_loss(next(self.batches), True)
            (loss if name == "parts_added" else loss / parts).backward()
            found += torch.stack([loss.detach(), (gap > 0).float().mean(), gap.mean()]) / parts
            if name == "scheduler_in_micro_loop":
                self.scheduler.step()
        nn.utils.clip_grad_norm_(self.model.parameters(), args.max_grad_norm)
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if name != "scheduler_in_micro_loop":
            self.scheduler.step()
        if step % 2 == 0:
            loss, accuracy, margin = found.tolist()
            row = {"loss": loss, "accuracy": accuracy, "reward_margin": margin, "learning_rate": rate}
            self.run.log(row, step=step)

    def evaluate(self, step: int) -> None:
        if self.name != "test_with_dropout":
            self.model.eval()
        found = []
        with torch.set_grad_enabled(self.name == "scores_kept"):
            for at in range(0, len(self.held), 60):
                found.append(self.compute_loss(self.held[at : at + 60], False))
        if self.name == "scores_kept":  # for a histogram at the end
            self.kept += [loss for loss, _ in found]
        self.model.train()
        loss = float(torch.stack([loss for loss, _ in found]).mean())
        accuracy = float((torch.cat([gap for _, gap in found]) > 0).float().mean())
        self.run.log({"eval_loss": loss, "eval_accuracy": accuracy}, step=step)

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)

    def resume(self, step: int) -> None:
        state = [one.state_dict() for one in (self.model, self.optimizer, self.scheduler)]
        self.run, state = go_on(self.run, step, state)
        self.model.load_state_dict(state[0])
        self.create_optimizer()
        self.scheduler.load_state_dict(state[2])
        self.optimizer.load_state_dict(state[1])
        self.watch()

    def train(self) -> Any:
        self.watch()
        resumed = self.trouble.resume_at(self.healthy, 5 * EVERY)
        for step in range(self.args.steps):
            if step == resumed:
                self.resume(step)
            self.training_step(step)
            self.trouble.telemetry(self.run, step, self.healthy)
            if step % EVERY == 0 or step == self.args.steps - 1:
                self.evaluate(step)
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    return RewardTrainer(run, seed, Trouble(fault, seed), healthy).train()
