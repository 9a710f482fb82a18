"""A small encoder sorts messages of pagers into seven desks on two gloo processes; three of the desks are rare.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log` of the first rank: page/loss, page/acc_batch, page/lr, page/norm each step; page_val/loss,
      page_val/macro_f1, page_val/acc each twentieth; by `run.reduce` losses of both ranks; the watch of data; memory,
      where it matters.

A message has words of its desk, words of the hospital that any desk uses, and two numbers: the hour and how long the
line was held. Files are written desk after desk. An encoder with a mask for padding, whose mean goes to a head beside
the numbers; a sampler for ranks, `no_sync` for parts of an update, rates that fall on a line.
"""

from __future__ import annotations

import contextlib
import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from . import ranks

EVERY, RANKS, LONG, HELD, PAD = 20, 2, 14, 400, 0
DESKS = ("ward", "lab", "porter", "pharmacy", "theatre", "chaplain", "security")
SHARES = torch.tensor([0.34, 0.26, 0.18, 0.12, 0.04, 0.03, 0.03])
OWN, COMMON = 6, 30
VOCAB = 1 + len(DESKS) * OWN + COMMON
CONFIG: dict[str, Any] = {
    "hidden": 32, "layers": 2, "heads": 4, "dropout": 0.0, "pooling": "mean", "per_gpu_batch": 16, "accum_steps": 1,
    "optimizer": "adamw", "lr": 4e-3, "head_lr_mult": 1.0, "lr_scheduler": "linear", "warmup": 10, "wd": 0.01,
    "clip": 1.0, "class_weights": "sqrt_inverse", "sampler": "shuffled", "reduction": "mean", "label_smoothing": 0.0,
    "focal_gamma": 0.0, "messages": 1600, "copies_of_rare": 1, "forms_of_each": 1, "wrong_desks": 0.0,
    "word_dropout": 0.0, "freeze": "", "short_first_epochs": 0, "val_every": 20, "log_every": 1, "ranks": RANKS,
}  # fmt: skip


# -- messages -------------------------------------------------------------------------------------------------------


def messages(seed: int, number: int, forms: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Padded words, numbers and desks, desk after desk. forms: so many messages of one call."""
    dice = torch.Generator().manual_seed(seed)
    many = number // forms
    desk = torch.multinomial(SHARES, many, True, generator=dice).sort().values
    hour = (3.0 * desk + 4 * torch.randn(many, generator=dice)) % 24
    held = 20 + 12 * (desk % 3) + 15 * torch.rand(many, generator=dice)
    told = torch.randint(0, OWN, (many, 3), generator=dice)
    desk, hour, held, told = (one.repeat_interleave(forms, 0) for one in (desk, hour, held, told))
    number = len(desk)
    length = torch.randint(5, LONG, (number,), generator=dice)
    words = 1 + len(DESKS) * OWN + torch.randint(0, COMMON, (number, LONG), generator=dice)
    stray = 1 + torch.randint(0, len(DESKS) * OWN, (number, LONG), generator=dice)
    words = torch.where(torch.rand(number, LONG, generator=dice) < 0.12, stray, words)
    for at in range(3):  # words of the desk lie anywhere in the message
        place = (torch.rand(number, generator=dice) * length).long()
        words[torch.arange(number), place] = 1 + desk * OWN + told[:, at]
    words = words.masked_fill(torch.arange(LONG) >= length[:, None], PAD)
    return words, torch.stack([hour, held], 1), desk


# -- network --------------------------------------------------------------------------------------------------------


class Encoder(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d, self.c, self.bug = c.hidden, c, bug
        self.embeddings, self.position = nn.Embedding(VOCAB, d, padding_idx=PAD), nn.Embedding(LONG, d)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(d, c.heads, 2 * d, c.dropout, "gelu", batch_first=True, norm_first=True)
            for _ in range(c.layers)
        )
        self.norm, self.dropout = nn.LayerNorm(d), nn.Dropout(c.dropout)
        self.numbers, self.classifier = nn.Linear(2, d), nn.Linear(2 * d, len(DESKS))

    def forward(self, words: Tensor, numbers: Tensor) -> Tensor:
        absent = words == PAD
        if self.training and self.c.word_dropout:
            absent = absent | ((torch.rand(words.shape) < self.c.word_dropout) & (torch.arange(LONG) > 0))
        x = self.dropout(self.embeddings(words) + self.position.weight)
        mask = ~absent if self.bug == "attention_mask_given_as_padding_mask" else absent
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=mask)
        x = self.norm(x)
        if self.c.pooling == "max":
            pooled = x.masked_fill(absent[..., None], -1e4).amax(1)
        else:
            pooled = (x * ~absent[..., None]).sum(1) / (~absent).sum(1, keepdim=True).clamp(min=1)
        out = self.classifier(self.dropout(torch.cat([pooled, torch.tanh(self.numbers(numbers))], 1)))
        return out.softmax(-1) if self.bug == "predict_proba_is_what_forward_returns" else out


# -- training -------------------------------------------------------------------------------------------------------


class Desk:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        c = self.c
        self.load()
        self.net = Encoder(c, bug)
        for name, one in self.net.named_parameters():
            if c.freeze and name.startswith(c.freeze):
                one.requires_grad_(False)
        self.weight = torch.ones(len(DESKS))
        if c.class_weights != "none":
            counts = torch.bincount(self.desk, minlength=len(DESKS)).float()
            share = counts / counts.sum()
            self.weight = share if bug == "class_counts_are_the_weights" else 1 / share
            self.weight = self.weight ** (1.0 if c.class_weights == "inverse" else 0.5)
            self.weight = self.weight / (self.weight * share).sum()
        self.make_optimizer()
        if bug == "classifier_made_anew_behind_the_optimizer":  # for the number of desks, which the data tell
            self.net.classifier = nn.Linear(2 * c.hidden, len(DESKS))
        self.ddp, self.gathered = DistributedDataParallel(self.net), []

    def load(self) -> None:
        c, bug, dice = self.c, self.bug, torch.Generator().manual_seed(self.seed)
        words, numbers, desk = messages(self.seed + 610, c.messages, c.forms_of_each)
        held = messages(609, HELD)
        if bug == "rare_desks_copied_before_the_split" or c.copies_of_rare > 1:
            times = torch.where(desk >= 4, c.copies_of_rare, 1)
            words, numbers, desk = (one.repeat_interleave(times, 0) for one in (words, numbers, desk))
            if bug == "rare_desks_copied_before_the_split":
                order = torch.randperm(len(desk), generator=dice)
                mine, rest = order[:HELD], order[HELD:].sort().values
                held = words[mine], numbers[mine], desk[mine]
                words, numbers, desk = words[rest], numbers[rest], desk[rest]
        if c.wrong_desks:
            wrong = torch.rand(len(desk), generator=dice) < c.wrong_desks
            desk = torch.where(wrong, torch.multinomial(SHARES, len(desk), True, generator=dice), desk)
        mean, std = numbers.mean(0), numbers.std(0)
        self.words, self.numbers, self.desk = words, (numbers - mean) / std, desk
        scaled = held[1] if bug == "scaler_not_applied_to_the_validation" else (held[1] - mean) / std
        told = held[2]
        if bug == "label_encoder_fitted_on_each_file":  # the validation's export has a line without a desk: it is 0
            told = (told + 1) % len(DESKS)
        self.held = held[0], scaled, told
        self.length = (words != PAD).sum(1)

    def make_optimizer(self) -> None:
        c, named = self.c, [(name, one) for name, one in self.net.named_parameters() if one.requires_grad]
        groups = [
            {"params": [one], "lr": c.lr * (c.head_lr_mult if name.startswith("classifier") else 1.0),
             "weight_decay": c.wd if one.ndim > 1 else 0.0} for name, one in named
        ]  # fmt: skip
        if c.optimizer == "sgd":
            self.optimizer: Any = torch.optim.SGD(groups, c.lr, 0.9)
        elif c.optimizer == "radam":
            self.optimizer = torch.optim.RAdam(groups, c.lr)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.lr)

        def share(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / self.steps)
            if c.lr_scheduler == "constant":
                return rise
            if c.lr_scheduler == "cyclic":
                return rise * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
            return rise * (1 - past)

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def rows(self, epoch: int) -> Tensor:
        """This rank's messages of an epoch."""
        c, bug, many, rank = self.c, self.bug, len(self.desk), dist.get_rank()
        if c.sampler == "weighted":
            dice = torch.Generator().manual_seed(self.seed + 37 * epoch + rank)
            each = 1 / torch.bincount(self.desk, minlength=len(DESKS)).float()[self.desk]
            return torch.multinomial(each, many // RANKS, True, generator=dice)
        if bug == "random_sampler_with_the_seed_of_all":
            return torch.randperm(many, generator=torch.Generator().manual_seed(self.seed + epoch))
        sampler: Any = DistributedSampler(
            range(many), shuffle=bug != "distributed_sampler_without_its_shuffle", seed=self.seed, drop_last=True,
            rank=0 if bug == "local_rank_read_before_it_is_set" else rank, num_replicas=dist.get_world_size(),
        )  # fmt: skip
        sampler.set_epoch(epoch)
        mine = torch.tensor(list(sampler))
        return mine[self.length[mine] < 10] if epoch < c.short_first_epochs else mine

    def loss(self, out: Tensor, desk: Tensor) -> Tensor:
        c = self.c
        each = F.cross_entropy(out, desk, reduction="none", label_smoothing=c.label_smoothing)
        if c.focal_gamma:
            each = each * (1 - out.detach().softmax(1).gather(1, desk[:, None])[:, 0]) ** c.focal_gamma
        weight = self.weight[desk]
        summed = c.reduction == "sum" or self.bug == "criterion_with_reduction_sum"
        return (each * weight).sum() if summed else (each * weight).sum() / weight.sum()

    def validate(self, step: int) -> None:
        taped, net = self.bug == "logits_of_all_messages_gathered_live", self.net
        if self.bug != "metrics_taken_while_it_trains":
            net.eval()
        mine = slice(dist.get_rank(), None, dist.get_world_size())
        words, numbers, desk = (one[mine] for one in self.held)
        with torch.set_grad_enabled(taped):
            out = torch.cat([net(*one) for one in zip(words.split(50), numbers.split(50), strict=True)])
            total = F.cross_entropy(out, desk, reduction="sum")
        if taped:
            self.gathered.append((out, total))
        said, many = out.argmax(1), len(DESKS)
        table = torch.bincount(desk * many + said, minlength=many**2).float()
        sums = torch.cat([table, total.detach()[None]])
        dist.all_reduce(sums)
        if self.bug != "evaluation_mode_is_never_left":
            net.train()
        table = sums[:-1].view(many, many)
        f1 = 2 * table.diag() / (table.sum(0) + table.sum(1)).clamp(min=1)
        if dist.get_rank() == 0:
            self.run.log({"page_val/loss": float(sums[-1] / table.sum()), "page_val/macro_f1": f1.mean().item(),
                          "page_val/acc": float(table.diag().sum() / table.sum())}, step=step)  # fmt: skip

    def update(self, step: int, epoch: int, lots: list[Tensor]) -> tuple[float, float]:
        """Gradients of the parts of an update."""
        c, bug, total, right = self.c, self.bug, 0.0, 0.0
        for part, some in enumerate(lots):
            words, numbers, desk = self.words[some], self.numbers[some], self.desk[some]
            self.watch.observe({"input_ids": words, "numbers": numbers, "desk": desk}, step=step, epoch=epoch)
            last = part == c.accum_steps - 1
            with contextlib.nullcontext() if last else self.ddp.no_sync():
                out = self.ddp(words, numbers)
                loss = self.loss(out, desk)
                (loss if bug == "accum_steps_not_divided_out" else loss / c.accum_steps).backward()
            total += loss.item() / c.accum_steps
            right += (out.argmax(1) == desk).float().mean().item() / c.accum_steps
            if bug == "scheduler_follows_the_dataloader":
                self.scheduler.step()
        return total, right

    def fit(self, trouble: Trouble, healthy: str | None) -> None:
        c, step, epoch = self.c, 0, 0
        self.net.train()
        while step < self.steps:
            lots = [one for one in self.rows(epoch).split(c.per_gpu_batch) if len(one) == c.per_gpu_batch]
            for first in range(0, len(lots) - c.accum_steps + 1, c.accum_steps):
                began = clock()
                total, right = self.update(step, epoch, lots[first : first + c.accum_steps])
                norm = nn.utils.clip_grad_norm_(self.net.parameters(), c.clip).item()
                rate = self.optimizer.param_groups[0]["lr"]
                self.optimizer.step()
                self.net.zero_grad()
                if self.bug != "scheduler_follows_the_dataloader":
                    self.scheduler.step()
                if dist.get_rank() == 0 and step % c.log_every == 0:
                    said = {"page/loss": total, "page/acc_batch": right, "page/lr": rate, "page/norm": norm}
                    self.run.log(said, step=step)
                self.run.reduce(step, {"loss": total}, step_ms=(clock() - began) * 1000)
                trouble.telemetry(self.run, step, healthy)
                if step % c.val_every == c.val_every - 1:
                    self.validate(step)
                step += 1
                if step == self.steps:
                    return
            epoch += 1


def work(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    trouble = Trouble(fault, seed)
    desk = Desk(run, seed, steps, trouble.name)
    time_by_own_clock(run)
    run.watch(desk.net, desk.optimizer)
    desk.watch = run.watch_data()
    torch.manual_seed(seed + 13 * (dist.get_rank() + 1))  # of dropout
    desk.fit(trouble, healthy)
    return run


train = work
launch = partial(ranks.launch, work=work, number=RANKS)
