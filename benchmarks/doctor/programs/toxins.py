"""Two gloo processes tell what compounds do from their graphs, under DistributedDataParallel; three effects are rare.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with each rank's log; `run.log` of rank 0: tox/loss, tox/right, tox/lr, tox/grad each step; tox/held_loss,
      tox/held_f1 and tox/held_recall_rare each thirteenth; by `run.reduce` losses of both; memory, where it matters;
      the watch of data.

A compound has six to nine atoms of seven kinds with bonds, and three descriptors in units of their own, which go
through a batch norm as they are; several salts may be of one compound. The file has effect after effect. Each atom
hears of those that it is bound to, twice. Effects weigh by the root of their rarity. Rows are dealt by torch's own
sampler for ranks; parts of an update are not synchronised but for the last. Written as a job of methods.
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

EVERY, RANKS, ATOMS, KINDS, HELD = 13, 2, 9, 7, 480
EFFECTS = ("none", "irritates", "sedates", "mutates", "harms the heart", "harms the liver")
SHARES = torch.tensor([0.42, 0.28, 0.2, 0.04, 0.035, 0.025])
RARE = 3  # effects from here on are rare
CONFIG: dict[str, Any] = {
    "atom_dim": 28, "message_layers": 2, "head_dim": 40, "dropout": 0.0, "descriptor_norm": "batch",
    "batch_per_rank": 24, "accumulate": 1, "optimizer": "adamw", "lr": 4e-3, "schedule": "cosine", "warmup": 6,
    "weight_decay": 0.01, "max_norm": 2.0, "effect_weights": "root", "reduction": "mean", "label_smoothing": 0.0,
    "focal": 0.0, "rare_drawn_more": False, "compounds": 1900, "salts": 1, "wrong_assays": 0.0, "clear_first": 0,
    "atoms_masked": 0.0, "fixed": "", "held_every": 13, "log_every": 1, "ranks": RANKS,
}  # fmt: skip
Rows = dict[str, Tensor]


# -- compounds ---------------------------------------------------------------------------------------------------------


def compounds(seed: int, number: int, salts: int = 1) -> Rows:
    """Atoms (0 is none), bonds, descriptors, effects, and how unclear; effect after effect."""
    law, dice, many = torch.Generator().manual_seed(191), torch.Generator().manual_seed(seed), number // salts
    likes = (0.9 * torch.randn(len(EFFECTS), KINDS, generator=law)).softmax(1)
    binds = 1.3 * torch.randn(len(EFFECTS), KINDS, KINDS, generator=law)
    binds = (binds + binds.transpose(1, 2) - 0.8).sigmoid()
    centre = 0.9 * torch.randn(len(EFFECTS), 3, generator=law)
    effect = torch.multinomial(SHARES, many, True, generator=dice).sort().values
    atom = torch.multinomial(likes[effect], ATOMS, True, generator=dice)
    there = torch.arange(ATOMS) < torch.randint(6, ATOMS + 1, (many, 1), generator=dice)
    chance = binds[effect[:, None, None], atom[:, :, None], atom[:, None]]
    bond = (torch.rand(many, ATOMS, ATOMS, generator=dice) < chance).triu(1)
    bond = (bond | bond.transpose(1, 2)) & there[:, :, None] & there[:, None]
    unclear = 0.5 + torch.rand(many, generator=dice)
    plain = centre[effect] + 0.8 * unclear[:, None] * torch.randn(many, 3, generator=dice)
    effect, atom, there, bond, unclear, plain = (
        one.repeat_interleave(salts, 0) for one in (effect, atom, there, bond, unclear, plain)
    )
    if salts > 1:
        at = torch.randint(0, 6, (len(atom), 1), generator=dice)
        atom = atom.scatter(1, at, torch.randint(0, KINDS, at.shape, generator=dice))
        plain = plain + 0.1 * torch.randn(plain.shape, generator=dice)
    told = torch.tensor([310.0, 2.4, 78.0]) + torch.tensor([60.0, 1.1, 22.0]) * plain  # daltons, logP, square angstroms
    return {"atom": torch.where(there, atom + 1, 0), "bond": bond.float(), "told": told, "effect": effect,
            "unclear": unclear}  # fmt: skip


def taken(rows: Rows, some: Tensor) -> Rows:
    return {name: one[some] for name, one in rows.items()}


# -- network ---------------------------------------------------------------------------------------------------------


class Message(nn.Module):
    """What an atom is, and the mean of those that it is bound to."""

    def __init__(self, d: int):
        super().__init__()
        self.own, self.heard, self.norm = nn.Linear(d, d), nn.Linear(d, d), nn.LayerNorm(d)

    def forward(self, h: Tensor, bond: Tensor) -> Tensor:
        others = bond @ h / bond.sum(2, keepdim=True).clamp(min=1)
        return h + F.relu(self.norm(self.own(h) + self.heard(others)))


class Toxicologist(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d = c.atom_dim
        self.atoms, layers = nn.Embedding(KINDS + 1, d, padding_idx=0), [Message(d) for _ in range(c.message_layers)]
        self.messages = layers if bug == "message_layers_in_a_plain_list" else nn.ModuleList(layers)
        self.norm: nn.Module = nn.LayerNorm(3)
        if c.descriptor_norm == "batch":
            self.norm = nn.BatchNorm1d(3, momentum=0.0 if bug == "norm_made_with_a_momentum_of_nought" else 0.1)
        self.head = nn.Sequential(nn.Linear(d + 3, c.head_dim), nn.ReLU(), nn.Dropout(c.dropout),
                                  nn.Linear(c.head_dim, len(EFFECTS)))  # fmt: skip
        self.shares = bug == "network_ends_in_shares_for_the_app"

    def forward(self, atom: Tensor, bond: Tensor, told: Tensor) -> Tensor:
        h, there = self.atoms(atom), (atom > 0).float()[..., None]
        for message in self.messages:
            h = message(h, bond)
        seen = (h * there).sum(1) / there.sum(1)
        logits = self.head(torch.cat([seen, self.norm(told)], 1))
        return logits.softmax(1) if self.shares else logits


# -- job -------------------------------------------------------------------------------------------------------------


class Job:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        self.rank, self.kept = dist.get_rank(), []
        self.load()
        torch.manual_seed(seed)
        net = Toxicologist(self.c, bug)
        for name in filter(None, self.c.fixed.split(",")):
            net.get_submodule(name).requires_grad_(False)
        self.ddp = DistributedDataParallel(net)
        torch.manual_seed(100 * seed + self.rank)
        self.configure()

    def load(self) -> None:
        c, bug, dice = self.c, self.bug, torch.Generator().manual_seed(self.seed)
        rows, held = compounds(self.seed + 2900, c.compounds, c.salts), compounds(2899, HELD)
        if bug == "salts_of_a_compound_in_both_files":
            order = torch.randperm(len(rows["effect"]), generator=dice)
            held, rows = taken(rows, order[:HELD].sort().values), taken(rows, order[HELD:].sort().values)
        if c.wrong_assays:
            wrong = torch.rand(len(rows["effect"]), generator=dice) < c.wrong_assays
            other = torch.multinomial(SHARES, len(wrong), True, generator=dice)
            rows["effect"] = torch.where(wrong, other, rows["effect"])
        if bug == "effects_of_the_held_file_numbered_by_their_names":
            names = sorted(EFFECTS)
            held["effect"] = torch.tensor([names.index(one) for one in EFFECTS])[held["effect"]]
        if bug == "descriptors_of_the_held_file_standardised_beforehand":
            held["told"] = (held["told"] - held["told"].mean(0)) / held["told"].std(0)
        if bug == "bonds_of_the_held_file_are_listed_one_way":
            held["bond"] = held["bond"].triu()
        self.rows = rows
        self.held = taken(held, torch.randperm(HELD, generator=torch.Generator().manual_seed(41)))
        counts = rows["effect"].bincount(minlength=len(EFFECTS)).float().clamp(min=1)
        self.weight = (counts.mean() / counts).sqrt() if c.effect_weights == "root" else None

    def configure(self) -> None:
        c, some = self.c, [one for one in self.ddp.parameters() if one.requires_grad]
        if c.optimizer == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c.lr, 0.9, weight_decay=c.weight_decay)
        elif c.optimizer == "radam":
            self.optimizer = torch.optim.RAdam(some, c.lr, weight_decay=c.weight_decay, decoupled_weight_decay=True)
        else:
            self.optimizer = torch.optim.AdamW(some, c.lr, weight_decay=c.weight_decay)

        def by(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / self.steps)
            if c.schedule == "constant":
                return rise
            if c.schedule == "two_cosines":
                past = 2 * past % 1
            return rise * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * past)))

        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, by)

    def batches(self) -> Any:
        c, bug, epoch, effect = self.c, self.bug, 0, self.rows["effect"]
        number, rank = (1, 0) if bug == "sampler_made_for_one_process_on_each" else (RANKS, self.rank)
        shuffle = bug != "sampler_of_the_ranks_with_its_shuffle_off"
        while True:
            order = torch.arange(len(effect))
            if c.rare_drawn_more:
                dice = torch.Generator().manual_seed(self.seed + 31 * epoch)
                rarity = (1 / effect.bincount(minlength=len(EFFECTS)).clamp(min=1)).sqrt()
                order = torch.multinomial(rarity[effect], len(effect), True, generator=dice)
            if epoch < c.clear_first:
                order = order[self.rows["unclear"][order] < 1.0]
            sampler = DistributedSampler(order, number, rank, shuffle=shuffle, seed=self.seed, drop_last=True)
            sampler.set_epoch(epoch)
            for some in order[torch.tensor(list(sampler))].split(c.batch_per_rank):
                if len(some) == c.batch_per_rank:
                    yield epoch, taken(self.rows, some)
            epoch += 1

    def loss(self, logits: Tensor, effect: Tensor, training: bool) -> Tensor:
        c, weight = self.c, self.weight if training else None
        summed = training and (c.reduction == "sum" or self.bug == "criterion_adds_compounds_up")
        if c.focal and training:
            sure = logits.softmax(1).gather(1, effect[:, None])[:, 0]
            each = (1 - sure) ** c.focal * F.cross_entropy(logits, effect, weight, reduction="none")
            return each.sum() if summed else each.mean()
        return F.cross_entropy(logits, effect, weight, reduction="sum" if summed else "mean",
                               label_smoothing=c.label_smoothing if training else 0.0)  # fmt: skip

    def update(self, step: int) -> tuple[dict[str, float], float]:
        c, bug, total, right = self.c, self.bug, 0.0, 0.0
        for part in range(c.accumulate):
            epoch, rows = next(self.dealt)
            self.data.observe({"atom": rows["atom"], "told": rows["told"], "effect": rows["effect"]}, step=step,
                              epoch=epoch)  # fmt: skip
            atom = rows["atom"]
            if c.atoms_masked:
                atom = torch.where(torch.rand(atom.shape) < c.atoms_masked, torch.where(atom > 0, 1, 0), atom)
            last = part == c.accumulate - 1 and bug != "all_parts_go_without_synchronisation"
            with contextlib.nullcontext() if last else self.ddp.no_sync():
                logits = self.ddp(atom, rows["bond"], rows["told"])
                loss = self.loss(logits, rows["effect"], True)
                (loss if bug == "parts_are_backed_in_their_full_size" else loss / c.accumulate).backward()
            total += loss.item() / c.accumulate
            right += (logits.argmax(1) == rows["effect"]).float().mean().item() / c.accumulate
            if bug == "schedule_called_where_a_part_ends":
                self.schedule.step()
        norm = nn.utils.clip_grad_norm_(self.ddp.parameters(), c.max_norm).item()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if bug != "schedule_called_where_a_part_ends":
            self.schedule.step()
        return {"tox/loss": total, "tox/right": right, "tox/lr": rate, "tox/grad": norm}, total

    def examine(self) -> dict[str, float]:
        """Each rank has a half of the held compounds; what they find is added up."""
        bug, net, many = self.bug, self.ddp.module, len(EFFECTS)
        rows, taped = taken(self.held, torch.arange(self.rank, HELD, RANKS)), bug == "held_logits_kept_with_gradients"
        if bug != "held_compounds_seen_in_training_mode":
            net.eval()
        with torch.set_grad_enabled(taped):
            logits = net(rows["atom"], rows["bond"], rows["told"])
            loss = self.loss(logits, rows["effect"], False)
        if taped:
            self.kept.append((loss, logits))
        if bug != "held_compounds_seen_and_train_not_called":
            net.train()
        table = torch.bincount(rows["effect"] * many + logits.argmax(1), minlength=many**2).float()
        found = torch.cat([loss.detach()[None], table])
        dist.all_reduce(found)
        table = found[1:].view(many, many)
        hits = table.diagonal()
        f1 = 2 * hits / (table.sum(0) + table.sum(1)).clamp(min=1)
        rare = hits[RARE:].sum() / table[RARE:].sum().clamp(min=1)
        return {"tox/held_loss": found[0].item() / RANKS, "tox/held_f1": f1.mean().item(),
                "tox/held_recall_rare": rare.item()}  # fmt: skip

    def work(self, trouble: Trouble, healthy: str | None) -> Any:
        run, c = self.run, self.c
        time_by_own_clock(run)
        run.watch(self.ddp.module, self.optimizer)
        self.data, self.dealt = run.watch_data(), self.batches()
        self.ddp.train()
        for step in range(self.steps):
            began = clock()
            said, total = self.update(step)
            if self.rank == 0 and step % c.log_every == 0:
                run.log(said, step=step)
            run.reduce(step, {"loss": total}, step_ms=(clock() - began) * 1000)
            trouble.telemetry(run, step, healthy)
            if (step + 1) % c.held_every == 0:
                found = self.examine()
                if self.rank == 0:
                    run.log(found, step=step)
        return run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    trouble = Trouble(fault, seed)
    return Job(run, seed, steps, trouble.name).work(trouble, healthy)


launch = partial(ranks.launch, work=train, number=RANKS)
