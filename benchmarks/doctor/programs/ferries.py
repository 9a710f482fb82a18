"""Two gloo processes pretrain a small language model on what ferries announce, under DistributedDataParallel.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with each rank's log (`run.log`: train/loss, train/learning_rate, train/grad_norm), and `run.reduce`;
      eval/loss, eval/accuracy of rank 0 at each epoch's end; the watch of data.

Announcements of different length are padded; a sampler for ranks; `no_sync` in all micro-batches but the last; a rate
that falls in a line; one class that trains, as scripts for torchrun have it.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler

from . import ranks

EVERY, RANKS, PAD, BOS, EOS = 30, 2, 0, 1, 2
TOKENS, ROUTES, LONGEST = 46, 3, 26
CONFIG: dict[str, Any] = {
    "hidden": 40, "heads": 4, "layers": 2, "p_drop": 0.0, "per_rank_batch": 12, "accumulation_steps": 1,
    "learning_rate": 5e-3, "warmup_ratio": 0.05, "lr_schedule": "linear", "weight_decay": 0.01, "max_norm": 1.0,
    "announcements": 1440, "tie_word_embeddings": True, "optimizer": "adamw", "group_by_length": False, "freeze": "",
    "label_smoothing": 0.0, "loss_over": "tokens", "static_graph": False, "ranks": RANKS,
}  # fmt: skip


def announce(seed: int, number: int) -> list[list[int]]:
    """Tokens of announcements: a route, then words that follow each other as they do on that route, then an end."""
    dice, grammar = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(61)
    words = TOKENS - 3 - ROUTES
    after = torch.randint(0, words, (ROUTES, words, 2), generator=grammar).tolist()
    rows = []
    for _ in range(number):
        route, word, long = (
            int(torch.randint(*most, (), generator=dice)) for most in ((0, ROUTES), (0, words), (5, LONGEST - 2))
        )
        row = [BOS, 3 + route]
        for chance in torch.rand(long, generator=dice).tolist():
            row.append(3 + ROUTES + word)
            word = after[route][word][chance > 0.75]
        rows.append([*row, EOS])
    return rows


def collate(rows: list[list[int]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


class FerryLM(nn.Module):
    def __init__(self, cfg: dict[str, Any], bug: str):
        super().__init__()
        d, self.bug = cfg["hidden"], bug
        self.embed, self.place = nn.Embedding(TOKENS, d), nn.Embedding(LONGEST, d)
        nn.init.normal_(self.embed.weight, std=0.1)
        nn.init.normal_(self.place.weight, std=0.1)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(d, cfg["heads"], 3 * d, cfg["p_drop"], "gelu", batch_first=True, norm_first=True)
            for _ in range(cfg["layers"])
        )
        self.norm, self.out = nn.LayerNorm(d), nn.Linear(d, TOKENS, bias=False)
        if cfg["tie_word_embeddings"]:
            self.out.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) + self.place.weight[: ids.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        for block in self.blocks:
            x = block(x, mask, is_causal=True)
        x = self.out(self.norm(x))
        return x.softmax(-1) if self.bug == "softmax_as_last_layer" else x


class LikeLengths(DistributedSampler[Any]):
    """Batches of about one length in any order, of which each rank has its part."""

    size = 12

    def __iter__(self) -> Any:
        dice = torch.Generator().manual_seed(self.epoch)
        rows: Any = self.dataset
        long = torch.tensor([len(row) for row in rows]) + torch.rand(len(rows), generator=dice)
        groups = list(long.argsort().split(RANKS * self.size))[: len(rows) // (RANKS * self.size)]
        order = torch.cat([groups[at] for at in torch.randperm(len(groups), generator=dice).tolist()])
        return iter(order[self.rank :: RANKS].tolist())


class Worker:
    """One rank."""

    def __init__(self, run: Any, seed: int, bug: str):
        self.run, self.cfg, self.bug, self.rank = run, dict(run.config), bug, dist.get_rank()
        torch.manual_seed(seed)
        self.read(seed)
        model = FerryLM(self.cfg, bug)
        if self.cfg["freeze"]:
            model.get_submodule(self.cfg["freeze"]).requires_grad_(False)
        if bug == "body_frozen_by_name":  # `not` stands before the wrong test
            for name, one in model.named_parameters():
                one.requires_grad = "norm" in name
        self.ddp = DistributedDataParallel(model, static_graph=self.cfg["static_graph"])
        self.prepare()
        torch.manual_seed(seed + 1000 * (self.rank + 1))  # of dropout

    def read(self, seed: int) -> None:
        cfg, bug = self.cfg, self.bug
        rows, self.held = announce(seed + 2200, cfg["announcements"]), announce(22, 240)
        if bug == "val_file_in_glob":
            rows = rows[:48] + self.held
        lot, size = torch.Generator().manual_seed(seed), int(cfg["per_rank_batch"])
        if bug == "sorted_by_length_each_epoch":
            rows.sort(key=len)
            self.sampler: Any = DistributedSampler(rows, shuffle=False, drop_last=True)  # type: ignore[arg-type]
        elif bug == "one_seed_for_each_rank":  # the loop was written for one process: shuffle=True
            self.sampler = RandomSampler(rows, generator=lot)  # type: ignore[arg-type]
        elif bug == "sampler_for_one_replica":
            self.sampler = DistributedSampler(rows, 1, 0, seed=seed, drop_last=True)  # type: ignore[arg-type]
        else:
            kind = LikeLengths if cfg["group_by_length"] else DistributedSampler
            self.sampler = kind(rows, RANKS, self.rank, seed=seed, drop_last=True)  # type: ignore[arg-type]
        self.loader = DataLoader(rows, size, sampler=self.sampler, collate_fn=collate, drop_last=True)  # type: ignore[arg-type]

    def prepare(self) -> None:
        cfg, some = self.cfg, [one for one in self.ddp.parameters() if one.requires_grad]
        if cfg["optimizer"] == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, cfg["learning_rate"], 0.9)
        else:
            self.optimizer = torch.optim.AdamW(some, cfg["learning_rate"], weight_decay=cfg["weight_decay"])
        warm = max(1, int(cfg["warmup_ratio"] * cfg["steps"]))

        def share(at: int) -> float:
            if at < warm or cfg["lr_schedule"] == "constant":
                return min(1.0, (at + 1) / warm)
            return max(0.0, (cfg["steps"] - at) / (cfg["steps"] - warm))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)
        time_by_own_clock(self.run)
        self.run.watch(self.ddp, self.optimizer)
        self.data = self.run.watch_data(pad_id=PAD)

    def loss(self, ids: Tensor) -> Tensor:
        cfg, on = self.cfg, 2 if self.bug == "labels_one_too_far" else 1
        wanted, logits = ids[:, on:], self.ddp(ids[:, :-on])
        if self.bug == "token_losses_summed":
            return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD, reduction="sum") / len(ids)
        if cfg["loss_over"] == "rows":
            each = F.cross_entropy(logits.mT, wanted, ignore_index=PAD, reduction="none").sum(1)
            return (each / (wanted != PAD).sum(1)).mean()
        ignored = -100 if self.bug == "padding_asked_for" else PAD
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=ignored,
                               label_smoothing=cfg["label_smoothing"])  # fmt: skip

    def micro(self, ids: Tensor, last: bool) -> float:
        parts = self.cfg["accumulation_steps"]
        alone = last if self.bug == "sync_condition_reversed" else not last
        with self.ddp.no_sync() if alone else contextlib.nullcontext():
            loss = self.loss(ids)
            if self.bug != "accumulated_without_dividing":
                loss = loss / parts
            loss.backward()
        if self.bug == "scheduler_inside_accumulation":
            self.scheduler.step()
        return loss.item()

    def update(self) -> tuple[float, float]:
        norm = nn.utils.clip_grad_norm_(self.ddp.parameters(), self.cfg["max_norm"]).item()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.bug != "scheduler_inside_accumulation":
            self.scheduler.step()
        return norm, rate

    @torch.no_grad()
    def evaluate(self, step: int) -> None:
        model = self.ddp.module
        if self.bug != "eval_never_called":
            model.eval()
        total, right, count = 0.0, 0, 0
        for at in range(0, len(self.held), 60):
            ids = collate(self.held[at : at + 60])
            logits, wanted = model(ids[:, :-1]), ids[:, 1:]
            total += F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD, reduction="sum").item()
            right += int((logits.argmax(-1) == wanted)[wanted != PAD].sum())
            count += int((wanted != PAD).sum())
        if self.rank == 0:
            self.run.log({"eval/loss": total / count, "eval/accuracy": right / count}, step=step)


def work(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    made, step, epoch, parts = Worker(run, seed, Trouble(fault, seed).name), 0, 0, run.config["accumulation_steps"]
    made.ddp.train()
    while step < steps:
        if hasattr(made.sampler, "set_epoch"):
            made.sampler.set_epoch(epoch)
        if made.bug != "train_called_once":
            made.ddp.train()
        total, began = 0.0, clock()
        for at, ids in enumerate(made.loader, 1):
            made.data.observe({"input_ids": ids[:, :-1], "labels": ids[:, 1:]}, step=step, epoch=epoch)
            total += made.micro(ids, at % parts == 0)
            if at % parts:
                continue
            norm, rate = made.update()
            run.log({"train/loss": total, "train/learning_rate": rate, "train/grad_norm": norm}, step=step)
            run.reduce(step, {"loss": total, "norm": norm}, step_ms=(clock() - began) * 1000)
            step, total, began = step + 1, 0.0, clock()
            if step == steps or step % EVERY == 0:
                made.evaluate(step - 1)
                if made.bug != "train_called_once":
                    made.ddp.train()
            if step == steps:
                break
        made.optimizer.zero_grad()
        epoch += 1
    return run


train = work
launch = partial(ranks.launch, work=work, number=RANKS)
