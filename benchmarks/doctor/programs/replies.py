"""A policy learns from pairs of replies by the loss of DPO, against a frozen copy of its beginning.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step` (loss, lr, norm) with margin and accuracy beside it; eval/loss, eval/margin by `run.log`.

A decoder of torch's own layers with learnt places and one matrix for input and output; both replies of a pair go
through in one batch; RMSprop, a cosine; a `DPOTrainer` with an `Arguments`.
"""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

from .parts import fit, once

EVERY, TOKENS, PAD, END, MAX = 20, 26, 0, 1, 20
CONFIG: dict[str, Any] = {
    "hidden_size": 32, "num_layers": 2, "num_heads": 4, "dropout": 0.0, "beta": 0.3, "batch_size": 16,
    "learning_rate": 6e-4, "warmup": 10, "scheduler": "cosine", "grad_accum": 1, "max_norm": 1.0, "num_pairs": 1600,
    "chosen_right": 0.85, "rejected_right": 0.55, "wrong_pairs": 0.05, "loss": "sigmoid", "label_smoothing": 0.0,
    "frozen_layers": 0, "train_embeddings": True, "sft_weight": 0.0, "optimizer": "rmsprop", "grouped": False,
    "reference_free": False,
}  # fmt: skip


def reply(start: int, long: int, right: float, dice: torch.Generator) -> list[int]:
    """Goes up by one each time; at times it doesn't."""
    said, at = [], start
    for chance in torch.rand(long, generator=dice).tolist():
        at = at + 1 if chance < right else int(torch.randint(2, TOKENS, (1,), generator=dice))
        at = 2 + (at - 2) % (TOKENS - 2)
        said.append(at)
    return [*said, END]


def make_pairs(seed: int, number: int, args: Any) -> list[dict[str, list[int]]]:
    dice, pairs = torch.Generator().manual_seed(seed), []
    for _ in range(number):
        prompt = torch.randint(2, TOKENS, (3,), generator=dice).tolist()
        long = torch.randint(4, 15, (2,), generator=dice).tolist()
        chosen = reply(prompt[-1], long[0], args.chosen_right, dice)
        rejected = reply(prompt[-1], long[1], args.rejected_right, dice)
        if float(torch.rand((), generator=dice)) < args.wrong_pairs:
            chosen, rejected = rejected, chosen
        pairs.append({"prompt": prompt, "chosen": chosen, "rejected": rejected})
    return pairs


class Decoder(nn.Module):
    def __init__(self, args: Any):
        super().__init__()
        width = args.hidden_size
        self.embed, self.places = nn.Embedding(TOKENS, width), nn.Embedding(MAX, width)
        nn.init.normal_(self.embed.weight, std=0.1)
        nn.init.normal_(self.places.weight, std=0.05)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, args.num_heads, 2 * width, args.dropout, "gelu", batch_first=True,
                                       norm_first=True) for _ in range(args.num_layers)
        )  # fmt: skip
        self.norm, self.lm_head = nn.LayerNorm(width), nn.Linear(width, TOKENS, bias=False)
        self.lm_head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) + self.places(torch.arange(ids.shape[1]))
        mask = torch.triu(torch.full((ids.shape[1],) * 2, float("-inf")), 1)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.lm_head(self.norm(x))


def concatenated(pairs: list[dict[str, list[int]]]) -> tuple[Tensor, Tensor]:
    """Ids of the chosen, then of the rejected; which of them are the reply's."""
    rows = [one["prompt"] + one[side] for side in ("chosen", "rejected") for one in pairs]
    ids = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)
    return ids, (ids != PAD) & (torch.arange(ids.shape[1]) >= 3)


def sequence_logps(model: nn.Module, ids: Tensor, mask: Tensor) -> Tensor:
    logps = torch.log_softmax(model(ids)[:, :-1], -1)
    each = torch.gather(logps, 2, ids[:, 1:].unsqueeze(2)).squeeze(2)
    return (each * mask[:, 1:]).sum(-1)


@once("hidden_size", "num_layers", "num_heads", "dropout")
def sft_model(cfg: dict[str, Any]) -> Decoder:
    """Has been trained on replies of both kinds; the same for all seeds."""
    args = SimpleNamespace(**cfg, wrong=0.0)
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model, pairs = Decoder(args), make_pairs(22, 600, args)

        def loss() -> Tensor:
            ids, _ = concatenated([pairs[one] for one in torch.randint(0, 600, (8,)).tolist()])
            return F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), ignore_index=PAD)

        fit(torch.optim.Adam(model.parameters(), 3e-3), 150, loss)
    return model


class DPOTrainer:
    def __init__(self, run: Any, args: Any, cfg: dict[str, Any], seed: int, trouble: Trouble):
        self.run, self.args, self.trouble, self.name = run, args, trouble, trouble.name
        self.policy = sft_model(cfg)
        if self.name == "left_in_eval":  # for its reference, which is copied next
            self.policy.eval()
        else:
            self.policy.train()
        self.reference = self.policy if self.name == "reference_not_copied" else copy.deepcopy(self.policy)
        if self.name != "reference_not_copied":
            self.reference.eval().requires_grad_(False)
        self.freeze()
        self.create_optimizer()
        if self.name == "tie_lost":  # a token was added: the embedding is another matrix now
            self.policy.embed.weight = nn.Parameter(self.policy.embed.weight.detach().clone())
        self.pairs, self.held = make_pairs(seed + 3, args.num_pairs, args), make_pairs(33, 160, args)
        if self.name == "test_in_training":
            self.pairs = self.held * 2 + self.pairs[:160]
        if self.name == "rows_by_length":
            self.pairs.sort(key=lambda one: len(one["chosen"]) + len(one["rejected"]))
        self.dice, self.epoch, self.waiting = torch.Generator().manual_seed(seed), -1, []  # type: ignore[var-annotated]

    def freeze(self) -> None:
        count = self.args.frozen_layers
        for layer in self.policy.layers[:count]:
            layer.requires_grad_(False)
        if not self.args.train_embeddings:
            self.policy.embed.requires_grad_(False)
            self.policy.places.requires_grad_(False)

    def create_optimizer(self) -> None:
        args = self.args
        trained = [one for one in self.policy.parameters() if one.requires_grad]
        kind = {"rmsprop": torch.optim.RMSprop, "adamw": torch.optim.AdamW}[args.optimizer]
        self.optimizer = kind(trained, lr=args.learning_rate)
        warm, total = args.warmup, args.steps

        def share(step: int) -> float:
            if step < warm:
                return (step + 1) / warm
            if args.scheduler == "constant":
                return 1.0
            return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / (total - warm))))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def next_batch(self) -> list[dict[str, list[int]]]:
        size = int(self.args.batch_size)
        if not self.waiting:
            self.epoch += 1
            number = len(self.pairs)
            order = torch.randperm(number, generator=self.dice)
            if self.name == "rows_by_length":
                order = torch.arange(number)
            groups = list(order.split(size))
            if self.args.grouped:
                long = torch.tensor([len(self.pairs[one]["chosen"]) for one in order.tolist()])
                groups = list(order[long.argsort(stable=True)].split(size))
                groups = [groups[one] for one in torch.randperm(len(groups), generator=self.dice).tolist()]
            self.waiting = [one.tolist() for one in groups if len(one) == size]
        return [self.pairs[one] for one in self.waiting.pop(0)]

    def dpo_loss(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and the margin of each pair."""
        args, n = self.args, len(ids) // 2
        policy = sequence_logps(self.policy, ids, mask)
        reference: Any = torch.zeros(2 * n)
        if not args.reference_free:
            with torch.no_grad():
                reference = sequence_logps(self.reference, ids, mask)
        if self.name == "reference_not_copied":
            reference = policy.detach()
        rewards = args.beta * (policy - reference)
        margin = rewards[:n] - rewards[n:]
        if args.loss == "hinge":
            losses = torch.relu(1 - margin)
        elif args.loss == "ipo":
            losses = (margin / args.beta - 1 / (2 * args.beta)).square()
        else:
            soft = args.label_smoothing
            losses = -(1 - soft) * F.logsigmoid(margin) - soft * F.logsigmoid(-margin)
        loss = losses.sum() if self.name == "reduction_is_sum" else losses.mean()
        if args.sft_weight:
            loss = loss - args.sft_weight * (policy[:n] / mask[:n, 1:].sum(1)).mean()
        return loss, margin.detach()

    def training_step(self, step: int) -> None:
        args, name = self.args, self.name
        with self.run.step(step=step) as timed:
            figures = torch.zeros(3)
            for _ in range(args.grad_accum):
                loss, margin = self.dpo_loss(*concatenated(self.next_batch()))
                (loss if name == "batches_added" else loss / args.grad_accum).backward()
                figures += torch.stack([loss.detach(), margin.mean(), (margin > 0).float().mean()]) / args.grad_accum
                if name == "stepped_each_micro_batch":
                    self.scheduler.step()
            norm = nn.utils.clip_grad_norm_(self.policy.parameters(), args.max_norm)
            rate = self.optimizer.param_groups[0]["lr"]
            self.optimizer.step()
            self.optimizer.zero_grad()
            if name != "stepped_each_micro_batch":
                self.scheduler.step()
            loss, margin, right = figures.tolist()
            timed.set(loss=loss, lr=rate, norm=norm.item(), margin=margin, accuracy=right)

    @torch.no_grad()
    def evaluate(self, step: int) -> None:
        self.policy.eval()
        found = [self.dpo_loss(*concatenated(self.held[at : at + 40])) for at in range(0, 160, 40)]
        if self.name != "left_in_eval":
            self.policy.train()
        margins = torch.cat([margin for _, margin in found])
        loss = torch.stack([loss for loss, _ in found]).mean() / (40 if self.name == "reduction_is_sum" else 1)
        self.run.log({"eval/loss": loss, "eval/margin": margins.mean(), "eval/accuracy": (margins > 0).float().mean()},
                     step=step)  # fmt: skip

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.policy, self.optimizer)

    def resume(self, step: int) -> None:
        state = {"model": self.policy.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "scheduler": self.scheduler.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, step, state)
        self.policy.load_state_dict(state["model"])
        self.create_optimizer()
        self.scheduler.load_state_dict(state["scheduler"])
        if self.name == "moments_not_loaded":
            for group in self.optimizer.param_groups:
                group["lr"] = self.scheduler.get_last_lr()[0]
        else:
            self.optimizer.load_state_dict(state["optimizer"])
        self.watch()


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    cfg, trouble = dict(run.config), Trouble(fault, seed)
    torch.manual_seed(seed)
    trainer = DPOTrainer(run, SimpleNamespace(**cfg), cfg, seed, trouble)
    torch.manual_seed(seed)
    trainer.watch()
    resumed = trouble.resume_at(healthy, 5 * EVERY)
    for step in range(steps):
        if step == resumed:
            trainer.resume(step)
        trainer.training_step(step)
        if step % EVERY == 0 or step == steps - 1:
            trainer.evaluate(step)
    return trainer.run
