"""A writer of postcards is tuned to what people would rather get (DPO); what the reference says stands in columns.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: dpo.loss, dpo.right, dpo.margin, dpo.lr, dpo.gnorm each step; readers.loss, readers.right
      and readers.margin of pairs that were held back, each twenty-second; memory, where it matters; the watch of data.

One asks with a place and a season. People like the sight of the place, the weather of the place in the season, a dish
that goes with the sight, and a wish to the right person; the other of two cards has one of these wrong, or both are
fine and one was liked for no reason. Cards may have a greeting more. The file has the worse and the better one of each
pair, place after place; several readers may have seen a pair. The writer has read good cards and bad ones. Before the
first step the reference goes over all pairs, and its likelihoods are columns of the table from there on. Both cards of
all pairs go through the model as one batch. Written as functions over a class of what there is.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, ASKED, LONG = 22, 192, 3, 11
PAD, FROM, STOP = range(3)
PLACE, PLACES = 3, 8
SEASON, SEASONS = PLACE + PLACES, 4
SIGHT, SIGHTS = SEASON + SEASONS, 6
WEATHER, WEATHERS = SIGHT + SIGHTS, 6
DISH, DISHES = WEATHER + WEATHERS, 6  # for each sight
PERSON, PERSONS = DISH + DISHES, 4
WISH, GREETING = PERSON + PERSONS, PERSON + 2 * PERSONS  # a wish for each person, and three greetings
WORDS = GREETING + 3
CONFIG: dict[str, Any] = {
    "d_model": 32, "n_layers": 2, "n_heads": 2, "resid_drop": 0.0, "share_embeddings": True, "beta": 0.3,
    "loss": "sigmoid", "smoothing": 0.0, "mean_logp": False, "sft_weight": 0.0, "rows": 16, "micro_steps": 1,
    "optimizer": "adamw", "peak_lr": 2e-3, "lr_shape": "cosine", "warmup_steps": 8, "weight_decay": 0.0,
    "max_norm": 8.0, "reduction": "mean", "pairs": 2400, "readers": 1, "flips": 0.0, "clear_first": 0,
    "place_batches": False, "hold_layers": 0, "reader_every": 22, "log_every": 1,
}  # fmt: skip
Pairs = dict[str, Tensor]


# -- pairs -----------------------------------------------------------------------------------------------------------


def pairs(seed: int, number: int, readers: int = 1, flips: float = 0.0) -> Pairs:
    """The better and the worse card, whether one is wrong, and the place; place after place."""
    law, dice, many = torch.Generator().manual_seed(321), torch.Generator().manual_seed(seed), number // readers
    seen = torch.randint(0, SIGHTS, (PLACES,), generator=law).tolist()
    usual = torch.randint(0, WEATHERS, (PLACES, SEASONS), generator=law).tolist()

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    def fine(place: int, season: int) -> list[int]:
        who = one(PERSONS)
        return [SIGHT + seen[place], WEATHER + usual[place][season], DISH + seen[place], PERSON + who, WISH + who]

    def spoilt(words: list[int]) -> list[int]:
        words = [*words]
        at, first, many = (
            (0, SIGHT, SIGHTS), (1, WEATHER, WEATHERS), (2, DISH, DISHES), (4, WISH, PERSONS),
        )[one(4)]  # fmt: skip
        words[at] = first + (words[at] - first + 1 + one(many - 1)) % many
        return words

    rows: dict[str, list[Any]] = {"better": [], "worse": [], "clear": [], "place": []}
    for at in range(many):
        place, season = at * PLACES // many, one(SEASONS)
        good, clear = fine(place, season), one(5) > 0
        bad = spoilt(good) if clear else fine(place, season)
        for _ in range(readers):
            flipped = one(1000) < 1000 * flips
            for name, words in zip(("better", "worse"), (bad, good) if flipped else (good, bad), strict=True):
                greeted = [GREETING + one(3) for _ in range(one(3) // 2 + one(2))]
                row = [FROM, PLACE + place, SEASON + season, *greeted, *words, STOP]
                rows[name].append(row + [PAD] * (LONG - len(row)))
            rows["clear"].append(clear)
            rows["place"].append(place)
    return {name: torch.tensor(some) for name, some in rows.items()}


def rows_of(some: Pairs, which: Tensor) -> Pairs:
    return {name: one[which] for name, one in some.items()}


# -- writer ----------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, d: int, heads: int, drop: float):
        super().__init__()
        self.heads, self.norm_a, self.norm_b = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.w1, self.w2, self.drop = nn.Linear(d, 3 * d), nn.Linear(3 * d, d), nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm_a(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.drop(self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)))
        return x + self.drop(self.w2(F.silu(self.w1(self.norm_b(x)))))


class Writer(nn.Module):
    def __init__(self, c: Any, shared: bool = True):
        super().__init__()
        d = c.d_model
        self.embed, self.places, self.norm = nn.Embedding(WORDS, d), nn.Embedding(LONG, d), nn.LayerNorm(d)
        self.blocks = nn.ModuleList(Block(d, c.n_heads, c.resid_drop) for _ in range(c.n_layers))
        self.lm_head, self.shares = nn.Linear(d, WORDS, bias=False), False
        nn.init.normal_(self.embed.weight, std=0.2)
        nn.init.normal_(self.places.weight, std=0.1)
        if shared:
            self.lm_head.weight = self.embed.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words) + self.places.weight[: words.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(self.norm(x))
        return logits.softmax(-1) if self.shares else logits


@functools.cache
def taught(d: int, layers: int, heads: int, steps: int = 160) -> dict[str, Tensor]:
    """Weights of a writer that has read cards of both kinds, the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(323)
        c = SimpleNamespace(d_model=d, n_layers=layers, n_heads=heads, resid_drop=0.0)
        writer, rows = Writer(c), pairs(324, 1200)
        words, optimizer = torch.cat([rows["better"], rows["worse"]]), torch.optim.AdamW(writer.parameters(), 6e-3)
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = 6e-3 * min(1.0, (step + 1) / 10) * (1 - step / 170)
            some = words[torch.randint(0, len(words), (32,))]
            logits = writer(some[:, :-1]).flatten(0, 1)
            F.cross_entropy(logits, some[:, 1:].flatten(), ignore_index=PAD).backward()
            optimizer.step()
            optimizer.zero_grad()
    return {name: one.detach().clone() for name, one in writer.state_dict().items()}


# -- likelihoods -----------------------------------------------------------------------------------------------------


@dataclass
class Office:
    run: Any
    c: Any
    seed: int
    steps: int
    bug: str
    rows: Pairs = field(default_factory=dict)
    held: Pairs = field(default_factory=dict)
    policy: Any = None
    optimizer: Any = None
    schedule: Any = None
    data: Any = None
    order: Any = None
    epoch: int = -1
    kept: list[Any] = field(default_factory=list)


def likelihoods(o: Office, model: nn.Module, better: Tensor, worse: Tensor) -> tuple[Tensor, Tensor]:
    """Of the better and of the worse cards, which go through the model together."""
    words, bug = torch.cat([better, worse]), o.bug
    counts = (words != PAD)[:, 1:].clone()
    counts[:, : ASKED - 1] = False
    if bug == "mask_of_the_better_card_repeated":
        counts = counts[: len(better)].repeat(2, 1)
    logits, wanted = model(words)[:, :-1], words[:, 1:]
    if bug == "gathered_for_the_word_that_is_there":
        wanted = words[:, :-1]
    each = logits.log_softmax(-1).gather(2, wanted[..., None]).squeeze(2) * counts
    said = each.sum(1) / (counts.sum(1) if o.c.mean_logp else 1)
    return said[: len(better)], said[len(better) :]


@torch.no_grad()
def add_columns(o: Office, reference: nn.Module) -> None:
    """What the reference says of every pair."""
    reference.eval()
    for rows in (o.rows, o.held):
        lots = [likelihoods(o, reference, *lot) for lot in
                zip(rows["better"].split(200), rows["worse"].split(200), strict=True)]  # fmt: skip
        rows["ref_better"], rows["ref_worse"] = (torch.cat(some) for some in zip(*lots, strict=True))


def objective(o: Office, rows: Pairs, training: bool) -> tuple[Tensor, Tensor]:
    """The loss, and how far rewards of each pair are apart."""
    c = o.c
    better, worse = likelihoods(o, o.policy, rows["better"], rows["worse"])
    gap = c.beta * ((better - rows["ref_better"]) - (worse - rows["ref_worse"]))
    doubt = c.smoothing if training else 0.0
    if c.loss == "ipo":
        each = (gap / c.beta - 0.5 / c.beta) ** 2
    elif c.loss == "hinge":
        each = F.relu(1 - gap)
    else:
        each = -(1 - doubt) * F.logsigmoid(gap) - doubt * F.logsigmoid(-gap)
    if training and c.sft_weight:
        each = each - c.sft_weight * better / (1 if c.mean_logp else (rows["better"] != PAD)[:, ASKED:].sum(1))
    if training and o.bug == "terms_of_pairs_are_summed":
        return each.sum(), gap
    return (each.sum() / 4 if training and c.reduction == "sum_by_four" else each.mean()), gap


# -- steps -----------------------------------------------------------------------------------------------------------


def load_rows(o: Office) -> None:
    c = o.c
    o.rows, o.held = pairs(o.seed + 7800, c.pairs, c.readers, c.flips), pairs(7799, HELD)
    if o.bug == "readers_of_a_pair_dealt_to_either_side":
        every, order = o.rows, torch.randperm(len(o.rows["place"]), generator=torch.Generator().manual_seed(o.seed))
        o.held, o.rows = rows_of(every, order[:HELD].sort().values), rows_of(every, order[HELD:].sort().values)


def load_policy(o: Office) -> None:
    c, weights = o.c, taught(o.c.d_model, o.c.n_layers, o.c.n_heads)
    o.policy = Writer(c, c.share_embeddings)
    o.policy.load_state_dict(weights)
    o.policy.shares = o.bug == "writer_says_shares_of_words"
    for block in o.policy.blocks[: c.hold_layers]:
        block.requires_grad_(False)
    load_optimizer(o)
    if o.bug == "head_cut_to_the_words_behind_the_optimizer":
        o.policy.lm_head = nn.Linear(c.d_model, WORDS, bias=False)
        o.policy.lm_head.load_state_dict({"weight": weights["lm_head.weight"]})


def load_optimizer(o: Office) -> None:
    c, some = o.c, [one for one in o.policy.parameters() if one.requires_grad]
    groups: list[Any] = [{"params": [one for one in some if one.ndim > 1], "weight_decay": c.weight_decay}]
    others = [{"params": [one for one in some if one.ndim == 1], "weight_decay": 0.0}]
    groups = others if o.bug == "second_group_given_in_place_of_the_first" else groups + others
    if c.optimizer == "sgd":
        o.optimizer = torch.optim.SGD(groups, c.peak_lr, 0.9)
    elif c.optimizer == "radam":
        o.optimizer = torch.optim.RAdam(groups, c.peak_lr)
    else:
        o.optimizer = torch.optim.AdamW(groups, c.peak_lr, (0.9, 0.98))

    def shape(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.warmup_steps)), min(1.0, at / o.steps)
        if c.lr_shape == "flat":
            return rise
        if c.lr_shape == "line":
            return rise * (1 - 0.96 * past)
        if c.lr_shape == "cosine_twice":
            past = 2 * past % 1
        return rise * (0.04 + 0.48 * (1 + math.cos(math.pi * past)))

    o.schedule = torch.optim.lr_scheduler.LambdaLR(o.optimizer, shape)


def watch(o: Office) -> None:
    time_by_own_clock(o.run)
    o.run.watch(o.policy, o.optimizer)
    o.data = o.run.watch_data(pad_id=PAD)


def new_order(o: Office) -> list[Tensor]:
    c, place, dice = o.c, o.rows["place"], torch.Generator().manual_seed(500 * o.seed + o.epoch)
    order = torch.randperm(len(place), generator=dice)
    if o.bug == "table_read_from_its_first_place_on":
        order = torch.arange(len(place))
    if o.epoch < c.clear_first:
        order = order[o.rows["clear"][order]]
    if c.place_batches:
        order = order[place[order].argsort(stable=True)]
    lots = [one for one in order.split(c.rows) if len(one) == c.rows]
    return [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()] if c.place_batches else lots


def next_rows(o: Office) -> Pairs:
    if not o.order:
        o.epoch += 1
        o.order = new_order(o)
    return rows_of(o.rows, o.order.pop(0))


def update(o: Office, step: int) -> dict[str, float]:
    c, bug, said = o.c, o.bug, {"dpo.loss": 0.0, "dpo.right": 0.0, "dpo.margin": 0.0}
    for _ in range(c.micro_steps):
        rows = next_rows(o)
        o.data.observe({name: rows[name] for name in ("better", "worse")}, step=step, epoch=o.epoch)
        if bug == "zero_grad_called_with_each_micro_step":
            o.optimizer.zero_grad()
        loss, gap = objective(o, rows, True)
        (loss if bug == "micro_steps_weigh_as_much_as_a_step" else loss / c.micro_steps).backward()
        for name, one in (("loss", loss), ("right", (gap > 0).float().mean()), ("margin", gap.mean())):
            said[f"dpo.{name}"] += one.item() / c.micro_steps
        if bug == "schedule_told_of_micro_steps":
            o.schedule.step()
    said["dpo.lr"] = o.optimizer.param_groups[0]["lr"]
    said["dpo.gnorm"] = nn.utils.clip_grad_norm_(o.policy.parameters(), c.max_norm).item()
    o.optimizer.step()
    o.policy.zero_grad()
    if bug != "schedule_told_of_micro_steps":
        o.schedule.step()
    return said


def ask_readers(o: Office) -> dict[str, float]:
    bug, taped = o.bug, o.bug == "what_readers_said_kept_as_tensors"
    if bug != "readers_asked_while_the_policy_drops":
        o.policy.eval()
    with torch.set_grad_enabled(taped):
        loss, gap = objective(o, o.held, False)
    if taped:
        o.kept.append((loss, gap))
    if bug != "policy_never_trains_behind_the_readers":
        o.policy.train()
    return {"readers.loss": loss.item(), "readers.right": (gap > 0).float().mean().item(),
            "readers.margin": gap.mean().item()}  # fmt: skip


def resume(o: Office, step: int) -> None:
    seen, parts = o.data.state(), ("policy", "optimizer", "schedule")
    o.run, state = go_on(o.run, step, {name: getattr(o, name).state_dict() for name in parts})
    load_policy(o)
    for name in parts:
        getattr(o, name).load_state_dict(state[name])
    if o.bug == "columns_made_anew_by_the_policy_of_the_file":
        add_columns(o, o.policy)
        o.policy.train()
    watch(o)
    o.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    o = Office(run, SimpleNamespace(**run.config), seed, steps, trouble.name)
    load_rows(o)
    torch.manual_seed(seed)
    load_policy(o)
    reference = Writer(o.c)
    if o.bug != "reference_stays_as_it_was_drawn":
        reference.load_state_dict(taught(o.c.d_model, o.c.n_layers, o.c.n_heads))
    reference.shares = o.policy.shares
    add_columns(o, reference)
    watch(o)
    again = trouble.resume_at(healthy, 4 * EVERY)
    o.policy.train()
    for step in range(steps):
        if step == again:
            resume(o, step)
        said = update(o, step)
        if step % o.c.log_every == 0:
            o.run.log(said, step=step)
        trouble.telemetry(o.run, step, healthy)
        if (step + 1) % o.c.reader_every == 0:
            o.run.log(ask_readers(o), step=step)
    return o.run
