"""A decoder that plans trips along a river learns by pairs which of two plans is the better one (DPO).

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: trip/loss, trip/margin, trip/chosen_up, trip/lr, trip/norm each step; rest/loss,
      rest/margin and rest/accuracy of trips that were kept back, each fortieth; memory, where it matters; the watch of
      data.

Towns lie along a river, from 0 to 13. A trip is asked up or down the river through some of them, which are named in any
order; a good plan visits each once in the river's order, and ends. Worse plans change two towns, leave one out, come
back to one, or go on to a town that nobody named. A row of the file has two plans, a and b, and which is better, 1 or
2. Words of plans have their likelihoods under the decoder as it began written beside them once, before the training:
there is no second net. Written as an engine with events, and handlers that are attached to them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, TOWNS, LONG = 40, 160, 14, 17
PAD, UP, DOWN, PLAN, END, TOWN = 0, 1, 2, 3, 4, 5
WORDS = TOWN + TOWNS
CONFIG: dict[str, Any] = {
    "d": 40, "blocks": 2, "heads": 4, "dropout": 0.0, "tied": True, "beta": 0.3, "loss_type": "sigmoid",
    "label_smoothing": 0.0, "nll_coef": 0.0, "batch": 16, "micro": 1, "optim": "rmsprop", "lr": 8e-4,
    "lr_curve": "linear", "warmup": 12, "weight_decay": 0.0, "max_norm": 10.0, "reduce": "mean", "trips": 800,
    "pairs_of_a_trip": 1, "flips": 0.0, "short_first": 0, "by_length": False, "closed": "", "rest_every": 40,
    "log_every": 1,
}  # fmt: skip


# -- trips ----------------------------------------------------------------------------------------------------------


class Trips:
    """The file: prompts, two plans each, and the choice; kind of worse plan after kind."""

    def __init__(self, seed: int, number: int, each: int = 1, flips: float = 0.0):
        self.dice, rows = torch.Generator().manual_seed(seed), []
        for at in range(number // each):
            way, some = (UP, DOWN)[self.one(2)], torch.randperm(TOWNS, generator=self.dice)[: 3 + self.one(4)].tolist()
            plan = sorted(some, reverse=way == DOWN)
            for pair in range(each):
                kind = (at * 4 * each // number + pair) % 4 if each > 1 else at * 4 // number
                mixed = [some[one] for one in torch.randperm(len(some), generator=self.dice).tolist()]
                choice = 1 + self.one(2)
                told = 3 - choice if float(torch.rand((), generator=self.dice)) < flips else choice
                plans = (plan, self.worse(plan, kind)) if told == 1 else (self.worse(plan, kind), plan)
                rows.append(([way, *(TOWN + one for one in mixed), PLAN], *plans, choice, kind))
        rows.sort(key=lambda row: row[-1])
        self.rows = rows

    def one(self, many: int) -> int:
        return int(torch.randint(0, many, (), generator=self.dice))

    def worse(self, plan: list[int], kind: int) -> list[int]:
        made, at = list(plan), self.one(len(plan) - 1)
        if kind == 0:
            made[at], made[at + 1] = made[at + 1], made[at]
        elif kind == 1:
            del made[at]
        elif kind == 2:
            made.append(plan[at])
        else:
            made.append([one for one in range(TOWNS) if one not in plan][self.one(TOWNS - len(plan))])
        return made

    def columns(self, bug: str = "") -> dict[str, Tensor]:
        """Rows of words and where their plans are; the better plan's, and the worse one's."""
        made = {name: torch.full((len(self.rows), LONG), PAD) for name in ("good", "bad")}
        made |= {f"{name}_plan": torch.zeros(len(self.rows), LONG) for name in ("good", "bad")}
        for at, (told, *plans, choice, _) in enumerate(self.rows):
            first = choice % 2 if bug == "choice_of_one_taken_for_an_index" else choice - 1
            for name, plan in (("good", plans[first]), ("bad", plans[1 - first])):
                row = torch.tensor([*told, *(TOWN + one for one in plan), END])
                made[name][at, : len(row)] = row
                made[f"{name}_plan"][at, len(told) : len(row)] = 1
        made["towns"] = torch.tensor([len(told) - 2 for told, *_ in self.rows])
        return made


# -- decoder --------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """Attention that sees what is near better than what is far, and a network."""

    def __init__(self, d: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.norm_1, self.norm_2 = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out, self.drop = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Dropout(dropout)
        self.wide, self.narrow = nn.Linear(d, 3 * d), nn.Linear(3 * d, d)

    def forward(self, x: Tensor, near: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=near)
        x = x + self.drop(self.out(y.transpose(1, 2).flatten(2)))
        return x + self.drop(self.narrow(F.relu(self.wide(self.norm_2(x)))))


class Planner(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.words, self.drop = nn.Embedding(WORDS, c.d), nn.Dropout(c.dropout)
        self.blocks = nn.ModuleList(Block(c.d, c.heads, c.dropout) for _ in range(c.blocks))
        self.norm, self.head = nn.LayerNorm(c.d), nn.Linear(c.d, WORDS, bias=False)
        nn.init.normal_(self.words.weight, std=0.2)
        if c.tied:
            self.head.weight = self.words.weight
        far = torch.arange(LONG)[:, None] - torch.arange(LONG)
        slope = 0.5 ** torch.arange(1, c.heads + 1)
        self.near = (-slope[:, None, None] * far).masked_fill(far < 0, -math.inf)

    def forward(self, ids: Tensor) -> Tensor:
        x, long = self.drop(self.words(ids)), ids.shape[1]
        for block in self.blocks:
            x = block(x, self.near[:, :long, :long])
        return self.head(self.norm(x))


def planned_before(c: Any) -> dict[str, Tensor]:
    """Weights of the decoder that has read good and worse plans, the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(41)
        net = Planner(SimpleNamespace(**(vars(c) | {"dropout": 0.0})))
        columns = Trips(42, 800).columns()
        ids = torch.cat([columns["good"], columns["bad"]])
        at = torch.cat([columns["good_plan"], columns["bad_plan"]])
        optimizer = torch.optim.AdamW(net.parameters(), 4e-3)
        for step in range(200):
            optimizer.param_groups[0]["lr"] = 4e-3 * min(1.0, (step + 1) / 10) * (1 - step / 210)
            some = torch.randint(0, len(ids), (32,))
            each = F.cross_entropy(net(ids[some, :-1]).transpose(1, 2), ids[some, 1:], reduction="none")
            ((each * at[some, 1:]).sum() / at[some, 1:].sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return net.state_dict()


def likelihood(net: nn.Module, ids: Tensor, plan: Tensor, twice: bool = False) -> Tensor:
    """Sum of a plan's log-probabilities, by row. twice: a row was moved by its reader already."""
    asked, mask = ids[:, 1:], plan[:, 1:]
    if twice:
        asked, mask = F.pad(asked[:, 1:], (0, 1), value=PAD), F.pad(mask[:, 1:], (0, 1))
    each = net(ids[:, :-1]).log_softmax(-1).gather(2, asked[..., None])[..., 0]
    return (each * mask).sum(1)


# -- engine ---------------------------------------------------------------------------------------------------------


class Engine:
    """Calls handlers at events."""

    def __init__(self, **state: Any):
        self.state, self.handlers = SimpleNamespace(**state), defaultdict(list)

    def on(self, event: str, every: int = 1) -> Any:
        def attach(handler: Any) -> Any:
            self.handlers[event].append((every, handler))
            return handler

        return attach

    def fire(self, event: str) -> None:
        for every, handler in self.handlers[event]:
            if self.state.step % every == every - 1 or every == 1:
                handler(self.state)

    def go(self, steps: int) -> None:
        for self.state.step in range(steps):
            for event in ("begins", "forward", "ends", "log", "rest"):
                self.fire(event)


def write_reference(s: SimpleNamespace, columns: dict[str, Tensor], training: bool) -> None:
    """Likelihoods under the decoder as it is now, as two columns more."""
    s.net.train(s.bug == "reference_written_while_dropping")
    order = torch.arange(len(columns["good"]))
    if training and s.bug == "reference_columns_in_the_loaders_order":
        order = torch.randperm(len(order), generator=torch.Generator().manual_seed(s.seed + 1))
    twice = training and s.bug == "plans_moved_by_reader_and_by_loss"
    with torch.no_grad(), torch.random.fork_rng():
        for name in ("good", "bad"):
            parts = [likelihood(s.net, columns[name][some], columns[f"{name}_plan"][some], twice)
                     for some in order.split(100)]  # fmt: skip
            columns[f"{name}_ref"] = torch.cat(parts)
            if s.bug == "reference_written_as_means_of_words":
                columns[f"{name}_ref"] = columns[f"{name}_ref"] / columns[f"{name}_plan"].sum(1)


def set_up(s: SimpleNamespace) -> None:
    c, bug = s.c, s.bug
    s.columns = Trips(s.seed + 7300, c.trips, c.pairs_of_a_trip, c.flips).columns(bug)
    s.held = Trips(7299, HELD).columns()
    before = planned_before(c)
    torch.manual_seed(s.seed)
    s.net = Planner(c)
    s.net.load_state_dict(before)
    if bug == "table_put_in_when_it_was_tied":
        s.net.words = nn.Embedding.from_pretrained(before["words.weight"].clone(), freeze=False)
    s.net.requires_grad_(False)
    write_reference(s, s.columns, True)
    write_reference(s, s.held, False)
    s.net.requires_grad_(True)
    if bug == "blocks_stay_closed_behind_the_reference":
        for one in s.net.modules():
            one.requires_grad_(isinstance(one, (nn.Embedding, nn.LayerNorm)))
        for one in s.net.blocks:
            one.requires_grad_(False)
    for name in filter(None, c.closed.split(",")):
        s.net.get_submodule(name).requires_grad_(False)
    equip(s)


def equip(s: SimpleNamespace) -> None:
    c, some = s.c, [one for one in s.net.parameters() if one.requires_grad]
    if c.optim == "adam":
        s.optimizer = torch.optim.AdamW(some, c.lr, weight_decay=c.weight_decay)
    elif c.optim == "adamax":
        s.optimizer = torch.optim.Adamax(some, c.lr)
    else:
        s.optimizer = torch.optim.RMSprop(some, c.lr, 0.97, weight_decay=c.weight_decay)

    def by(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / s.steps)
        if c.lr_curve == "flat":
            return rise
        if c.lr_curve == "saw":
            return rise * (1 - 0.96 * (2 * past % 1))
        if c.lr_curve == "cosine":
            return rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * past)))
        return rise * (1 - 0.98 * past)

    s.curve = torch.optim.lr_scheduler.LambdaLR(s.optimizer, by)


def loader(s: SimpleNamespace) -> Any:
    c, epoch, dice, towns = s.c, 0, torch.Generator().manual_seed(s.seed), s.columns["towns"]
    while True:
        order = torch.randperm(len(towns), generator=dice)
        if s.bug == "plans_in_the_order_of_the_file":
            order = torch.arange(len(towns))
        if epoch < c.short_first:
            order = order[towns[order] < 5]
        if c.by_length:
            order = order[towns[order].argsort(stable=True)]
        lots = [one for one in order.split(c.batch) if len(one) == c.batch]
        if c.by_length:
            lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
        for some in lots:
            yield epoch, {name: one[some] for name, one in s.columns.items()}
        epoch += 1


def preference(s: SimpleNamespace, rows: dict[str, Tensor], training: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Losses and margins of pairs; how much likelier good plans have become."""
    c, twice = s.c, training and s.bug == "plans_moved_by_reader_and_by_loss"
    many = len(rows["good"])
    ids, plan = (torch.cat([rows["good" + end], rows["bad" + end]]) for end in ("", "_plan"))
    mine = likelihood(s.net, ids, plan, twice)
    up, other = mine[:many] - rows["good_ref"], mine[many:] - rows["bad_ref"]
    margin = up - other
    if c.loss_type == "ipo":
        each = (margin - 1 / (2 * c.beta)) ** 2 * c.beta**2
    elif c.loss_type == "hinge":
        each = (1 - c.beta * margin).relu()
    else:
        e = c.label_smoothing
        each = -(1 - e) * F.logsigmoid(c.beta * margin) - e * F.logsigmoid(-c.beta * margin)
    if c.nll_coef:
        each = each - c.nll_coef * mine[:many] / rows["good_plan"].sum(1)
    return each, margin, up


def forward(s: SimpleNamespace) -> None:
    c, bug = s.c, s.bug
    said = defaultdict(float)
    for _ in range(c.micro):
        epoch, rows = next(s.loader)
        s.watch.observe({"good": rows["good"], "bad": rows["bad"]}, step=s.step, epoch=epoch)
        each, margin, up = preference(s, rows, True)
        loss = each.sum() if c.reduce == "sum" or bug == "pairs_of_a_batch_added" else each.mean()
        (loss if bug == "micro_losses_not_divided" else loss / c.micro).backward()
        for name, one in (("loss", loss), ("margin", margin.mean()), ("chosen_up", up.mean())):
            said["trip/" + name] += one.item() / c.micro
        if bug == "curve_is_a_handler_of_the_forward":
            s.curve.step()
    s.said = dict(said)


def ends(s: SimpleNamespace) -> None:
    norm = nn.utils.clip_grad_norm_(s.net.parameters(), s.c.max_norm).item()
    s.said |= {"trip/lr": s.optimizer.param_groups[0]["lr"], "trip/norm": norm}
    s.optimizer.step()
    s.optimizer.zero_grad()
    if s.bug != "curve_is_a_handler_of_the_forward":
        s.curve.step()


def rest(s: SimpleNamespace) -> None:
    taped = s.bug == "margins_of_the_rest_in_a_list"
    s.net.train(s.bug == "rest_is_asked_while_dropping")
    with torch.set_grad_enabled(taped):
        each, margin, _ = preference(s, s.held, False)
    if taped:
        s.kept.append((each, margin))
    s.run.log({"rest/loss": each.mean().item(), "rest/margin": margin.mean().item(),
               "rest/accuracy": (margin > 0).float().mean().item()}, step=s.step)  # fmt: skip
    if s.bug != "net_stays_in_eval_behind_rest":
        s.net.train()


def observe(s: SimpleNamespace) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.net, s.optimizer)
    s.watch = s.run.watch_data(pad_id=PAD)


def resume(s: SimpleNamespace) -> None:
    if s.step != s.again:
        return
    seen = s.watch.state()
    state = {"net": s.net.state_dict(), "optimizer": s.optimizer.state_dict(), "curve": s.curve.state_dict()}
    s.run, state = go_on(s.run, s.step, state)
    s.net.load_state_dict(state["net"])
    equip(s)
    if s.bug != "planner_saved_without_the_rest":
        s.optimizer.load_state_dict(state["optimizer"])
        s.curve.load_state_dict(state["curve"])
    observe(s)
    s.watch.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    engine = Engine(run=run, c=SimpleNamespace(**run.config), seed=seed, steps=steps, bug=trouble.name, kept=[], step=0)
    s, c = engine.state, engine.state.c
    set_up(s)
    s.again, s.loader = trouble.resume_at(healthy, 2 * EVERY), loader(s)
    observe(s)
    s.net.train()
    engine.on("begins")(resume)
    engine.on("forward")(forward)
    engine.on("ends")(ends)
    engine.on("rest", c.rest_every)(rest)

    @engine.on("log")
    def log(s: SimpleNamespace) -> None:
        if s.step % c.log_every == 0:
            s.run.log(s.said, step=s.step)
        trouble.telemetry(s.run, s.step, healthy)

    engine.go(steps)
    return s.run
