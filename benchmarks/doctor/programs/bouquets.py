"""A recurrent florist is brought to what customers prefer (DPO); the reference is a column of likelihoods, made once.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: duel.loss, duel.margin, duel.up, duel.rate, duel.gnorm each step; florist.loss,
      florist.margin and florist.right of wishes that were held back, each twenty-fifth; memory, where it matters; the
      watch of data.

A wish has an occasion, a colour, how many flowers, and up to two that are not wanted; a good bouquet begins with a
flower for the occasion and the colour, goes on around it without what is not wanted, and has a ribbon of the colour.
The other bouquet has another ribbon, another first flower, one flower too few, or two that changed places. Before the
training, the florist says how likely all bouquets are: that is the reference, and stays in columns beside the words.
Written as functions over tables, as of a data set that is mapped.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, OCCASIONS, COLOURS, FLOWERS = 25, 160, 5, 6, 12
PAD, WISH, MAKE, END, MANY = 0, 1, 2, 3, 4
OCCASION = MANY + 4
COLOUR = OCCASION + OCCASIONS
FLOWER = COLOUR + COLOURS
RIBBON = FLOWER + FLOWERS
WORDS = RIBBON + COLOURS
LONG = 16
CONFIG: dict[str, Any] = {
    "embedding": 40, "layers": 1, "dropout": 0.0, "tied": True, "beta": 0.4, "objective": "sigmoid", "smoothing": 0.0,
    "by_length": False, "nll_share": 0.0, "pairs_per_step": 16, "accumulate": 1, "optimizer": "adamw", "lr": 1e-3,
    "lr_shape": "linear", "warmup": 8, "weight_decay": 0.0, "max_norm": 10.0, "gather": "mean", "wishes": 960,
    "pairs_of_a_wish": 1, "moody": 0.0, "small_first": 0, "by_number": False, "keep": "", "florist_every": 25,
    "log_every": 1,
}  # fmt: skip
Table = dict[str, Tensor]


# -- wishes ----------------------------------------------------------------------------------------------------------


def wishes(seed: int, number: int, each: int = 1, moody: float = 0.0, bug: str = "") -> Table:
    """Words of both bouquets behind their wish, where the bouquet begins, and how many flowers; by occasion."""
    dice, many = torch.Generator().manual_seed(seed), number // each
    table: dict[str, Any] = {"liked": [], "other": [], "begins": [], "flowers": []}

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    for at in range(many):
        occasion, colour, flowers = at * OCCASIONS // many, one(COLOURS), 3 + one(4)
        first = (2 * occasion + colour) % FLOWERS
        unwanted = [one(FLOWERS) for _ in range(one(3))]
        around = [kind % FLOWERS for kind in range(first + 1, first + FLOWERS) if kind % FLOWERS not in unwanted]
        good = [FLOWER + first, *(FLOWER + kind for kind in around[: flowers - 1]), RIBBON + colour, END]
        wish = [WISH, OCCASION + occasion, COLOUR + colour, MANY + flowers - 3, *(FLOWER + x for x in unwanted), MAKE]
        for _ in range(each):
            bad, flaw = list(good), one(4)
            if flaw == 0:
                bad[-2] = RIBBON + (colour + 1 + one(COLOURS - 1)) % COLOURS
            elif flaw == 1:
                bad[0] = FLOWER + (first + 1 + one(FLOWERS - 1)) % FLOWERS
            elif flaw == 2:
                del bad[1 + one(flowers - 1)]
            else:
                swap = one(flowers - 1)
                bad[swap], bad[swap + 1] = bad[swap + 1], bad[swap]
            rank = (1, 2) if one(1000) >= 1000 * moody else (2, 1)  # by the customer: 1 is the better one
            best = max(rank) if bug == "ranks_read_as_if_they_were_scores" else min(rank)
            pair = (good, bad) if rank[0] == best else (bad, good)
            for name, bouquet in zip(("liked", "other"), pair, strict=True):
                table[name].append(F.pad(torch.tensor([*wish, *bouquet]), (0, LONG - len(wish) - len(bouquet))))
            table["begins"].append(len(wish))
            table["flowers"].append(flowers)
    return {name: torch.stack(some) if name in ("liked", "other") else torch.tensor(some)
            for name, some in table.items()}  # fmt: skip


def select(table: Table, some: Tensor) -> Table:
    return {name: one[some] for name, one in table.items()}


# -- florist ---------------------------------------------------------------------------------------------------------


class Florist(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.embedding
        self.table, self.drop = nn.Embedding(WORDS, d), nn.Dropout(c.dropout)
        self.gru, self.norm = nn.GRU(d, d, c.layers, batch_first=True), nn.LayerNorm(d)
        self.mix, self.head = nn.Sequential(nn.Linear(d, d), nn.Tanh()), nn.Linear(d, WORDS, bias=False)
        nn.init.normal_(self.table.weight, std=0.25)
        if c.tied:
            self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.drop(self.table(ids))
        x = x + self.gru(x)[0]
        return self.head(self.drop(self.norm(x + self.mix(x))))


def apprentice(c: Any) -> Florist:
    """The florist that has seen good and bad bouquets, the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(51)
        florist = Florist(SimpleNamespace(**(vars(c) | {"dropout": 0.0})))
        seen = wishes(52, 900)
        ids = torch.cat([seen["liked"], seen["other"]])
        optimizer = torch.optim.AdamW(florist.parameters(), 6e-3)
        for step in range(150):
            optimizer.param_groups[0]["lr"] = 6e-3 * min(1.0, (step + 1) / 10) * (1 - step / 160)
            some = ids[torch.randint(0, len(ids), (32,))]
            F.cross_entropy(florist(some[:, :-1]).flatten(0, 1), some[:, 1:].flatten(), ignore_index=PAD).backward()
            optimizer.step()
            optimizer.zero_grad()
    return florist


def likelihoods(florist: nn.Module, ids: Tensor, begins: Tensor, mean: bool = False, late: int = 0) -> Tensor:
    """Logarithms of bouquets, added up, or their mean over words. late: by how many words what is asked is late."""
    logits, asked = florist(ids[:, : ids.shape[1] - 1 - late]), ids[:, 1 + late :]
    there = (torch.arange(1 + late, ids.shape[1]) >= begins[:, None]) & (asked != PAD)
    each = logits.log_softmax(-1).gather(2, asked[..., None])[..., 0] * there
    return each.sum(1) / there.sum(1) if mean else each.sum(1)


@torch.no_grad()
def with_reference(table: Table, florist: nn.Module, mean: bool) -> Table:
    """The table with two columns more: how likely the florist finds both bouquets."""
    made = {f"of_{name}": likelihoods(florist, table[name], table["begins"], mean) for name in ("liked", "other")}
    return table | made


# -- duels -----------------------------------------------------------------------------------------------------------


def objective(c: Any, bug: str, florist: Florist, rows: Table, training: bool) -> tuple[Tensor, dict[str, float]]:
    """Losses of pairs; the mean margin, how much likelier liked ones have become, and the share that is right."""
    ids, begins, many = torch.cat([rows["liked"], rows["other"]]), rows["begins"].repeat(2), len(rows["begins"])
    late = int(training and bug == "what_is_asked_is_a_word_late")
    mine = likelihoods(florist, ids, begins, c.by_length, late)
    up = mine - torch.cat([rows["of_liked"], rows["of_other"]])
    margin = up[:many] - up[many:]
    if c.objective == "hinge":
        each = (1 - c.beta * margin).relu()
    elif c.objective == "ipo":
        each = (c.beta * margin - 0.5) ** 2
    else:
        e = c.smoothing if training else 0.0
        each = -(1 - e) * F.logsigmoid(c.beta * margin) - e * F.logsigmoid(-c.beta * margin)
    if c.nll_share:
        each = each - c.nll_share * mine[:many] / (rows["flowers"] + 2)
    return each, {"margin": margin.mean().item(), "up": up[:many].mean().item(),
                  "right": (margin > 0).float().mean().item()}  # fmt: skip


def tables(c: Any, seed: int, bug: str) -> tuple[Table, Table]:
    table, held = wishes(seed + 9300, c.wishes, c.pairs_of_a_wish, c.moody, bug), wishes(9299, HELD)
    if bug == "pairs_of_a_wish_split_apart":
        order = torch.randperm(c.wishes, generator=torch.Generator().manual_seed(seed))
        held, table = select(table, order[:HELD].sort().values), select(table, order[HELD:].sort().values)
    return table, held


def optimizer_of(c: Any, florist: Florist, steps: int) -> tuple[Any, Any]:
    some = [one for one in florist.parameters() if one.requires_grad]
    if c.optimizer == "radam":
        optimizer: Any = torch.optim.RAdam(some, c.lr)
    elif c.optimizer == "rmsprop":
        optimizer = torch.optim.RMSprop(some, c.lr, 0.97)
    else:
        optimizer = torch.optim.AdamW(some, c.lr, weight_decay=c.weight_decay)

    def shape(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / steps)
        if c.lr_shape == "flat":
            return rise
        if c.lr_shape == "saw":
            return rise * (1 - 0.95 * (2 * past % 1))
        return rise * (1 - 0.98 * past)

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, shape)


def duels(s: SimpleNamespace) -> Iterator[tuple[int, Table]]:
    c, epoch, dice = s.c, 0, torch.Generator().manual_seed(s.seed)
    while True:
        order = torch.randperm(len(s.table["begins"]), generator=dice)
        if s.bug == "table_read_from_its_top":
            order = torch.arange(len(order))
        if epoch < c.small_first:
            order = order[s.table["flowers"][order] < 5]
        if c.by_number:
            order = order[s.table["flowers"][order].argsort(stable=True)]
        lots = [one for one in order.split(c.pairs_per_step) if len(one) == c.pairs_per_step]
        if c.by_number:
            lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
        for some in lots:
            yield epoch, select(s.table, some)
        epoch += 1


def duel(s: SimpleNamespace, step: int) -> dict[str, float]:
    c, bug, said = s.c, s.bug, dict.fromkeys(("loss", "margin", "up"), 0.0)
    for _ in range(c.accumulate):
        epoch, rows = next(s.duels)
        s.watch.observe({"liked": rows["liked"], "other": rows["other"]}, step=step, epoch=epoch)
        each, more = objective(c, bug, s.florist, rows, True)
        loss = each.sum() if c.gather == "sum" or bug == "losses_of_pairs_added_up" else each.mean()
        (loss if bug == "accumulated_duels_at_full_weight" else loss / c.accumulate).backward()
        for name, one in (("loss", loss.item()), ("margin", more["margin"]), ("up", more["up"])):
            said[name] += one / c.accumulate
        if bug == "rate_moves_with_each_accumulated_part":
            s.scheduler.step()
    said |= {"rate": s.optimizer.param_groups[0]["lr"],
             "gnorm": nn.utils.clip_grad_norm_(s.florist.parameters(), c.max_norm).item()}  # fmt: skip
    s.optimizer.step()
    s.optimizer.zero_grad()
    if bug != "rate_moves_with_each_accumulated_part":
        s.scheduler.step()
    return {f"duel.{name}": one for name, one in said.items()}


def visited(s: SimpleNamespace) -> dict[str, float]:
    """What the florist makes of held wishes."""
    taped = s.bug == "visits_remember_losses_with_their_graph"
    if s.bug != "visited_while_it_drops":
        s.florist.eval()
    with torch.set_grad_enabled(taped):
        each, more = objective(s.c, s.bug, s.florist, s.held, False)
    if taped:
        s.visits.append(each)
    if s.bug != "visited_and_left_in_eval":
        s.florist.train()
    return {"florist.loss": each.mean().item(), "florist.margin": more["margin"], "florist.right": more["right"]}


def observe(s: SimpleNamespace) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.florist, s.optimizer)
    s.watch = s.run.watch_data(pad_id=PAD)


def resumed(s: SimpleNamespace, step: int) -> None:
    seen = s.watch.state()
    state = {"florist": s.florist.state_dict(), "optimizer": s.optimizer.state_dict(),
             "scheduler": s.scheduler.state_dict()}  # fmt: skip
    s.run, state = go_on(s.run, step, state)
    s.florist.load_state_dict(state["florist"])
    s.optimizer, s.scheduler = optimizer_of(s.c, s.florist, s.steps)
    if s.bug != "last_florist_taken_for_a_new_training":
        s.optimizer.load_state_dict(state["optimizer"])
        s.scheduler.load_state_dict(state["scheduler"])
    observe(s)
    s.watch.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, c = Trouble(fault, seed), SimpleNamespace(**run.config)
    s = SimpleNamespace(run=run, c=c, seed=seed, steps=steps, bug=trouble.name, visits=[])
    start = apprentice(c)
    torch.manual_seed(seed)
    s.florist = Florist(c)
    s.florist.load_state_dict(start.state_dict())
    s.table, s.held = tables(c, seed, s.bug)
    if s.bug != "column_made_while_words_drop":
        s.florist.eval()
    mean = c.by_length or s.bug == "column_holds_means_over_words"
    s.table, s.held = with_reference(s.table, s.florist, mean), with_reference(s.held, s.florist, mean)
    if s.bug == "words_shuffled_behind_the_column":
        order = torch.randperm(len(s.table["begins"]), generator=torch.Generator().manual_seed(seed))
        s.table |= {name: s.table[name][order] for name in ("liked", "other", "begins", "flowers")}
    if s.bug == "head_deepcopied_beside_the_table":
        s.florist.head = copy.deepcopy(s.florist.head)
    if s.bug == "gru_left_as_it_was_in_the_warm_start":
        s.florist.gru.requires_grad_(False)
    for name in filter(None, c.keep.split(",")):
        s.florist.get_submodule(name).requires_grad_(False)
    s.optimizer, s.scheduler = optimizer_of(c, s.florist, steps)
    s.duels, again = duels(s), trouble.resume_at(healthy, 3 * EVERY)
    observe(s)
    s.florist.train()
    for step in range(steps):
        if step == again:
            resumed(s, step)
        said = duel(s, step)
        if step % c.log_every == 0:
            s.run.log(said, step=step)
        trouble.telemetry(s.run, step, healthy)
        if step % c.florist_every == c.florist_every - 1:
            s.run.log(visited(s), step=step)
    return s.run
