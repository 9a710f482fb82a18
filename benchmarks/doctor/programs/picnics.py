"""Preferences for picnics: a policy that packs baskets learns from pairs, against a reference that is kept beside it.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: pref_loss, pref_acc, pref_margin, pref_lr, pref_gn each step; guest_loss, guest_acc,
      guest_margin and guest_packed of pairs that were held back, each twenty-second; memory, where it matters; the
      watch of data.

A picnic is asked for by its season, its guest and how far it is. The better basket has the drink of the season, the
dish of the guest, and a bag for the way; the worse one has one thing that is another's. A fifth of pairs differ in
nothing that matters. Several hosts may have judged a pair. The file goes season after season. The policy and its
reference were taught by baskets of both kinds. Written as functions that take what they need, over a generator.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, ASKED, LONG = 22, 192, 4, 11
PAD, ASK, CLOSE = range(3)
SEASON, SEASONS = 3, 6
GUEST, GUESTS = SEASON + SEASONS, 8
WAY, WAYS = GUEST + GUESTS, 3
DRINK, DISH, BAG = WAY + WAYS, WAY + WAYS + SEASONS, WAY + WAYS + SEASONS + GUESTS
EXTRA, EXTRAS = BAG + WAYS, 4
WORDS = EXTRA + EXTRAS
CONFIG: dict[str, Any] = {
    "width": 32, "blocks": 2, "heads": 2, "dropout": 0.0, "tied": True, "beta": 0.3, "loss": "sigmoid",
    "label_smoothing": 0.0, "average_logp": False, "nll_weight": 0.0, "pairs_per_step": 16, "accum": 1,
    "optim": "adamw", "lr": 2e-3, "decay": "cosine", "warmup": 8, "weight_decay": 0.0, "grad_clip": 8.0,
    "reduction": "mean", "loss_gain": 1.0, "pairs": 2400, "hosts": 1, "changed_minds": 0.0, "clear_first": 0,
    "by_season": False, "frozen_blocks": 0, "guests_every": 22, "log_every": 1,
}  # fmt: skip
Pairs = dict[str, Tensor]


def picnics(seed: int, number: int, hosts: int = 1, changed: float = 0.0) -> Pairs:
    """Better and worse baskets behind what was asked, whether they differ, and seasons; season after season."""
    law, dice, many = torch.Generator().manual_seed(371), torch.Generator().manual_seed(seed), number // hosts
    drinks, dishes = torch.randperm(SEASONS, generator=law).tolist(), torch.randperm(GUESTS, generator=law).tolist()

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    def packed(things: list[int]) -> list[int]:
        return [*things, *(EXTRA + one(EXTRAS) for _ in range(one(4)))]

    rows: dict[str, list[Any]] = {"better": [], "worse": [], "clear": [], "season": []}
    for at in range(many):
        season, guest, way, clear = at * SEASONS // many, one(GUESTS), one(WAYS), one(5) > 0
        good = [DRINK + drinks[season], DISH + dishes[guest], BAG + way]
        bad = [*good]
        if clear:
            place, first, most = ((0, DRINK, SEASONS), (1, DISH, GUESTS), (2, BAG, WAYS))[one(3)]
            bad[place] = first + (bad[place] - first + 1 + one(most - 1)) % most
        for _ in range(hosts):
            pair = (bad, good) if one(1000) < 1000 * changed else (good, bad)
            for name, things in zip(("better", "worse"), pair, strict=True):
                row = [ASK, SEASON + season, GUEST + guest, WAY + way, *packed(things), CLOSE]
                rows[name].append(row + [PAD] * (LONG - len(row)))
            rows["clear"].append(clear)
            rows["season"].append(season)
    return {name: torch.tensor(some) for name, some in rows.items()}


def take(rows: Pairs, which: Tensor) -> Pairs:
    return {name: one[which] for name, one in rows.items()}


class Block(nn.Module):
    def __init__(self, d: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.ln1, self.ln2, self.drop = heads, nn.LayerNorm(d), nn.LayerNorm(d), nn.Dropout(dropout)
        self.attn, self.attn_out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc1, self.fc2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.attn(self.ln1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.drop(self.attn_out(y))
        return x + self.drop(self.fc2(F.gelu(self.fc1(self.ln2(x)))))


class Packer(nn.Module):
    def __init__(self, c: Any, tied: bool = True):
        super().__init__()
        d = c.width
        self.table, self.places, self.ln = nn.Embedding(WORDS, d), nn.Embedding(LONG, d), nn.LayerNorm(d)
        self.blocks = nn.ModuleList(Block(d, c.heads, c.dropout) for _ in range(c.blocks))
        self.head, self.shares = nn.Linear(d, WORDS, bias=False), False
        nn.init.normal_(self.table.weight, std=0.2)
        nn.init.normal_(self.places.weight, std=0.1)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.table(words) + self.places.weight[: words.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln(x))
        return logits.softmax(-1) if self.shares else logits


@functools.cache
def taught(d: int, blocks: int, heads: int) -> dict[str, Tensor]:
    """Weights of one that has read baskets of both kinds, the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(373)
        packer, rows = Packer(SimpleNamespace(width=d, blocks=blocks, heads=heads, dropout=0.0)), picnics(374, 1200)
        words, optimizer = torch.cat([rows["better"], rows["worse"]]), torch.optim.AdamW(packer.parameters(), 6e-3)
        for step in range(150):
            optimizer.param_groups[0]["lr"] = 6e-3 * min(1.0, (step + 1) / 10) * (1 - step / 160)
            some = words[torch.randint(0, len(words), (32,))]
            logits = packer(some[:, :-1]).flatten(0, 1)
            F.cross_entropy(logits, some[:, 1:].flatten(), ignore_index=PAD).backward()
            optimizer.step()
            optimizer.zero_grad()
    return {name: one.detach().clone() for name, one in packer.state_dict().items()}


# -- what is made once -----------------------------------------------------------------------------------------------


def make_pairs(c: Any, seed: int, bug: str) -> tuple[Pairs, Pairs]:
    rows, held = picnics(seed + 5500, c.pairs, c.hosts, c.changed_minds), picnics(5499, HELD)
    if bug == "hosts_of_a_pair_split_at_random":
        order = torch.randperm(len(rows["season"]), generator=torch.Generator().manual_seed(seed))
        held, rows = take(rows, order[:HELD].sort().values), take(rows, order[HELD:].sort().values)
    return rows, held


def make_policy(s: Any) -> None:
    c, weights = s.c, taught(s.c.width, s.c.blocks, s.c.heads)
    s.policy = Packer(c, c.tied)
    s.policy.load_state_dict(weights)
    s.policy.shares = s.bug == "policy_says_probabilities"
    for block in s.policy.blocks[: c.frozen_blocks]:
        block.requires_grad_(False)
    if s.bug == "layers_let_loose_by_a_name_they_have_not":
        for name, one in s.policy.named_parameters():
            one.requires_grad_(name.startswith(("layers.", "table", "ln")))
    if s.bug == "head_made_anew_for_its_size":
        s.policy.head = nn.Linear(c.width, WORDS, bias=False)
    make_optimizer(s)


def make_reference(s: Any) -> None:
    """What the policy was before it learnt from pairs."""
    if s.bug == "reference_made_by_a_shallow_copy":
        s.reference = copy.copy(s.policy)
        return
    s.reference = Packer(s.c)
    s.reference.load_state_dict(taught(s.c.width, s.c.blocks, s.c.heads))
    s.reference.shares = s.policy.shares
    s.reference.requires_grad_(False).eval()


def make_optimizer(s: Any) -> None:
    c, some = s.c, [one for one in s.policy.parameters() if one.requires_grad]
    if c.optim == "sgd":
        s.optimizer = torch.optim.SGD(some, c.lr, 0.9)
    elif c.optim == "nadam":
        s.optimizer = torch.optim.NAdam(some, c.lr)
    else:
        s.optimizer = torch.optim.AdamW(some, c.lr, (0.9, 0.98), weight_decay=c.weight_decay)

    def factor(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / s.steps)
        if c.decay == "none":
            return rise
        if c.decay == "cosine_twice":
            past = 2 * past % 1
        return rise * (0.04 + 0.48 * (1 + math.cos(math.pi * past)))

    s.schedule = torch.optim.lr_scheduler.LambdaLR(s.optimizer, factor)


def watch(s: Any) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.policy, s.optimizer)
    s.data = s.run.watch_data(pad_id=PAD)


# -- what is done each step ------------------------------------------------------------------------------------------


def micro_batches(c: Any, rows: Pairs, seed: int, bug: str) -> Iterator[tuple[int, Pairs]]:
    epoch, dice = 0, torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(rows["season"]), generator=dice)
        if bug == "seasons_come_one_after_the_other":
            order = torch.arange(len(order))
        if epoch < c.clear_first:
            order = order[rows["clear"][order]]
        if c.by_season:
            order = order[rows["season"][order].argsort(stable=True)]
        lots = [one for one in order.split(c.pairs_per_step) if len(one) == c.pairs_per_step]
        if c.by_season:
            lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
        for which in lots:
            yield epoch, take(rows, which)
        epoch += 1


def logps(model: nn.Module, words: Tensor, mean: bool, bug: str) -> Tensor:
    """Likelihoods of baskets behind what was asked."""
    asked = ASKED
    if bug == "baskets_are_read_without_what_was_asked":
        words, asked = torch.cat([words[:, :1], words[:, ASKED:]], 1), 1
    logits, wanted = model(words)[:, :-1], words[:, 1:]
    counts = wanted != PAD
    counts[:, : asked - 1] = False
    if bug == "logits_cut_in_front_and_words_behind":
        logits, wanted = model(words)[:, 1:], words[:, :-1]
    each = logits.log_softmax(-1).gather(2, wanted[..., None]).squeeze(2) * counts
    return each.sum(1) / (counts.sum(1) if mean else 1)


def preference(s: Any, rows: Pairs, training: bool) -> tuple[Tensor, Tensor]:
    """The loss, and how far rewards of a pair are apart."""
    c, words = s.c, torch.cat([rows["better"], rows["worse"]])
    better, worse = logps(s.policy, words, c.average_logp, s.bug).chunk(2)
    with torch.no_grad():
        ref_better, ref_worse = logps(s.reference, words, c.average_logp, s.bug).chunk(2)
    margin = c.beta * ((better - ref_better) - (worse - ref_worse))
    if c.loss == "ipo":
        each = (margin / c.beta - 0.5 / c.beta) ** 2
    elif c.loss == "hinge":
        each = F.relu(1 - margin)
    else:
        doubt = c.label_smoothing if training else 0.0
        each = -(1 - doubt) * F.logsigmoid(margin) - doubt * F.logsigmoid(-margin)
    if training and c.nll_weight:
        each = each - c.nll_weight * better / (1 if c.average_logp else (rows["better"] != PAD)[:, ASKED:].sum(1))
    if training and s.bug == "pair_losses_summed":
        return each.sum(), margin
    return (c.loss_gain * each.sum() if training and c.reduction == "sum" else each.mean()), margin


def update(s: Any, step: int) -> dict[str, float]:
    c, bug, said = s.c, s.bug, {"pref_loss": 0.0, "pref_acc": 0.0, "pref_margin": 0.0}
    for _ in range(c.accum):
        epoch, rows = next(s.source)
        s.data.observe({name: rows[name] for name in ("better", "worse")}, step=step, epoch=epoch)
        if bug == "set_to_none_at_the_top_of_the_inner_loop":
            s.optimizer.zero_grad(set_to_none=True)
        loss, margin = preference(s, rows, True)
        (loss if bug == "micro_batches_pile_up_undivided" else loss / c.accum).backward()
        for name, one in (("loss", loss), ("acc", (margin > 0).float().mean()), ("margin", margin.mean())):
            said[f"pref_{name}"] += one.item() / c.accum
        if bug == "lambda_lr_advanced_for_each_micro_batch":
            s.schedule.step()
    said["pref_lr"] = s.optimizer.param_groups[0]["lr"]
    said["pref_gn"] = nn.utils.clip_grad_norm_(s.policy.parameters(), c.grad_clip).item()
    s.optimizer.step()
    s.policy.zero_grad(set_to_none=True)
    if bug != "lambda_lr_advanced_for_each_micro_batch":
        s.schedule.step()
    return said


@torch.no_grad()
def packed_right(s: Any) -> float:
    """The share of guests whose drink, dish and bag the policy packs as the better basket has them."""
    wanted = s.held["better"][s.held["clear"]]
    words = wanted[:, :ASKED]
    for _ in range(3):
        words = torch.cat([words, s.policy(words)[:, -1].argmax(-1, keepdim=True)], 1)
    return (words == wanted[:, : ASKED + 3]).all(1).float().mean().item()


def meet_guests(s: Any) -> dict[str, float]:
    bug, taped = s.bug, s.bug == "margins_of_guests_kept_as_tensors"
    if bug != "guests_meet_a_policy_that_drops":
        s.policy.eval()
    with torch.set_grad_enabled(taped):
        loss, margin = preference(s, s.held, False)
    if taped:
        s.kept.append(margin)
    said = {"guest_loss": loss.item(), "guest_acc": (margin > 0).float().mean().item(),
            "guest_margin": margin.mean().item(), "guest_packed": packed_right(s)}  # fmt: skip
    s.policy.train()
    return said


def resume(s: Any, step: int) -> None:
    seen, parts = s.data.state(), ("policy", "optimizer", "schedule")
    s.run, state = go_on(s.run, step, {name: getattr(s, name).state_dict() for name in parts})
    make_policy(s)
    for name in parts:
        getattr(s, name).load_state_dict(state[name])
    make_reference(s)
    if s.bug == "reference_made_of_the_policy_that_goes_on":
        s.reference.load_state_dict(state["policy"])
    s.policy.train()
    watch(s)
    s.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    s: Any = SimpleNamespace(run=run, c=SimpleNamespace(**run.config), steps=steps, bug=trouble.name, kept=[])
    rows, s.held = make_pairs(s.c, seed, s.bug)
    torch.manual_seed(seed)
    make_policy(s)
    make_reference(s)
    watch(s)
    s.source, again = micro_batches(s.c, rows, seed, s.bug), trouble.resume_at(healthy, 4 * EVERY)
    s.policy.train()
    for step in range(steps):
        if step == again:
            resume(s, step)
        said = update(s, step)
        if step % s.c.log_every == 0:
            s.run.log(said, step=step)
        trouble.telemetry(s.run, step, healthy)
        if (step + 1) % s.c.guests_every == 0:
            s.run.log(meet_guests(s), step=step)
    return s.run
