"""Two towers learn which notes of a botanist belong to which lichen, against the others of a batch.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: nats/fit, first/fit, sharpness, step_rate, step_norm each step; nats/crag, first/crag and
      place/crag of lichens that were held back, each sixteenth; memory, where it matters; the watch of data.

A lichen has fourteen counts of what is in it, of which the logarithm is taken, and the sheet of the herbarium that it
lies on. The botanist writes its genus by one of two names, its shape, where it grew, the sheet, and phrases. Sheets
follow one another; a lichen may have several pieces. Logarithms go through a batch norm; notes are read by
four questions. Both towers look sheets and words up in one table. Written as plain functions with
batching of their own, and a bench where they lie.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, TABLE, COUNTS, LONG = 16, 192, 48, 14, 8
NONE, SHEET, SHEETS, GENERA, SHAPES, PLACES = 0, 1, 96, 8, 3, 5
GENUS = SHEET + SHEETS  # two for each
SHAPE = GENUS + 2 * GENERA
PLACE = SHAPE + SHAPES
PHRASE, PHRASES = PLACE + PLACES, 10
WORDS = PHRASE + PHRASES
CONFIG: dict[str, Any] = {
    "words": 32, "hidden": 48, "common": 24, "drop": 0.0, "first_norm": "batch", "one_table": True, "rows": 48,
    "rows_of_an_update": 1, "method": "adamw", "rate": 6e-3, "falls": "cosine", "climb": 8, "decay": 0.0,
    "norm_at_most": 3.0, "nats_by": "mean", "weight": 1.0, "sharpness": 10.0, "sharpness_learns": True,
    "from_both_sides": True, "smoothing": 0.0, "notes_rate": 1.0, "lichens": 2000, "pieces": 1, "misfiled": 0.0,
    "whole_first": 0, "genus_by_genus": False, "counts_lost": 0.0, "still": "", "crag_every": 16, "log_every": 1,
}  # fmt: skip
Rows = dict[str, Tensor]


# -- the herbarium ---------------------------------------------------------------------------------------------------


def herbarium(seed: int, number: int, pieces: int = 1, misfiled: float = 0.0) -> Rows:
    """Counts, sheets, notes, genera, and how torn a piece is; sheet after sheet."""
    law, dice, many = torch.Generator().manual_seed(431), torch.Generator().manual_seed(seed), number // pieces
    usual = 4 + 2 * torch.rand(COUNTS, generator=law)
    of_genus, of_shape, of_place = (torch.randn(n, COUNTS, generator=law) for n in (GENERA, SHAPES, PLACES))

    def some(high: int, *size: int) -> Tensor:
        return torch.randint(0, high, size or (many,), generator=dice)

    genus, shape, place, sheet = some(GENERA), some(SHAPES), some(PLACES), SHEET + some(SHEETS).sort().values
    torn = 0.5 + torch.rand(many, generator=dice)
    level = of_genus[genus] + 0.6 * of_shape[shape] + 0.6 * of_place[place]
    level = level + 1.2 * torn[:, None] * torch.randn(many, COUNTS, generator=dice)
    said = torch.stack([GENUS + 2 * genus + some(2), SHAPE + shape, PLACE + place, sheet], 1)
    there = torch.arange(LONG - 4) < 1 + some(LONG - 5)[:, None]
    notes = torch.cat([torch.where(there, PHRASE + some(PHRASES, many, LONG - 4), NONE), said], 1)
    rows = {"level": level, "sheet": sheet, "notes": notes, "genus": genus, "torn": torn}
    rows = {name: one.repeat_interleave(pieces, 0) for name, one in rows.items()}
    level = rows.pop("level") + 0.1 * torch.randn(many * pieces, COUNTS, generator=dice)
    rows["counts"] = (usual + 0.8 * level).exp().round()
    wrong = torch.rand(many * pieces, generator=dice) < misfiled
    other = rows["notes"][torch.randperm(many * pieces, generator=dice)]
    rows["notes"] = torch.where(wrong[:, None], other, rows["notes"])
    return rows


def pick(rows: Rows, which: Tensor) -> Rows:
    return {name: one[which] for name, one in rows.items()}


def open_herbarium(b: Any) -> None:
    c, bug = b.c, b.bug
    rows, held = herbarium(b.seed + 6900, c.lichens, c.pieces, c.misfiled), herbarium(6899, HELD)
    if bug == "pieces_of_a_lichen_laid_on_both_sides":
        order = torch.randperm(len(rows["sheet"]), generator=torch.Generator().manual_seed(b.seed))
        held, rows = pick(rows, order[:HELD].sort().values), pick(rows, order[HELD:].sort().values)
    rows["counts"] = rows["counts"].log1p()
    held["counts"] = held["counts"].log10() if bug == "logarithms_of_the_crag_to_another_base" \
        else held["counts"].log1p()  # fmt: skip
    held["counts"] = held["counts"].clamp(min=0)
    if bug == "notes_found_by_numbers_that_begin_at_one":
        rows["notes"] = rows["notes"][torch.arange(1, len(rows["notes"]) + 1) % len(rows["notes"])]
    if bug == "notes_read_to_their_sixth_word":
        rows["notes"], held["notes"] = rows["notes"][:, :6], held["notes"][:, :6]
    b.rows, b.held = rows, pick(held, torch.randperm(HELD, generator=torch.Generator().manual_seed(31)))


# -- towers ----------------------------------------------------------------------------------------------------------


def unit(x: Tensor, bug: str) -> Tensor:
    return F.normalize(x, dim=0 if bug == "unit_length_along_the_rows" else 1)


class LichenTower(nn.Module):
    def __init__(self, c: Any, table: nn.Embedding, bug: str):
        super().__init__()
        self.table, self.bug = table, bug
        eps, momentum = (0.1, 1e-3) if bug == "eps_and_momentum_of_the_norm_change_places" else (1e-3, 0.1)
        self.norm = nn.LayerNorm(COUNTS) if c.first_norm == "layer" else \
            nn.BatchNorm1d(COUNTS, eps, momentum, affine=False)  # fmt: skip
        self.body = nn.Sequential(nn.Linear(COUNTS, c.hidden), nn.ReLU(), nn.Dropout(c.drop),
                                  nn.Linear(c.hidden, c.hidden), nn.ReLU())  # fmt: skip
        self.out = nn.Linear(c.hidden + c.words, c.common)

    def forward(self, counts: Tensor, sheet: Tensor) -> Tensor:
        return unit(self.out(torch.cat([self.body(self.norm(counts)), self.table(sheet)], 1)), self.bug)


class NotesTower(nn.Module):
    def __init__(self, c: Any, table: nn.Embedding, bug: str):
        super().__init__()
        self.table, self.bug, self.drop = table, bug, nn.Dropout(c.drop)
        self.score, self.value = nn.Linear(c.words, 4), nn.Linear(c.words, c.hidden)
        self.out = nn.Sequential(nn.LayerNorm(4 * c.hidden), nn.Linear(4 * c.hidden, c.common))

    def forward(self, notes: Tensor) -> Tensor:
        x = self.table(notes)
        scores = self.score(x).masked_fill((notes == NONE)[..., None], -1e4).softmax(1)
        pooled = torch.einsum("bth,btd->bhd", scores, F.relu(self.value(x))).flatten(1)
        return unit(self.out(self.drop(pooled)), self.bug)


class Pair(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        table = nn.Embedding(WORDS, c.words)
        other = table if c.one_table else nn.Embedding(WORDS, c.words)
        self.lichen, self.notes = LichenTower(c, table, bug), NotesTower(c, other, bug)
        self.log_sharpness = nn.Parameter(torch.tensor(math.log(c.sharpness)), requires_grad=c.sharpness_learns)

    def forward(self, rows: Rows) -> Tensor:
        """How well each lichen goes with each note."""
        return self.log_sharpness.exp().clamp(max=50) * self.lichen(rows["counts"], rows["sheet"]) \
            @ self.notes(rows["notes"]).T  # fmt: skip


def lay_out(b: Any) -> None:
    c, bug = b.c, b.bug
    b.towers = Pair(c, bug)
    for name, one in b.towers.named_parameters():
        if c.still and name.startswith(c.still):
            one.requires_grad_(False)
    if bug == "nothing_to_be_still_is_a_prefix_of_every_name":
        for name, one in b.towers.notes.named_parameters():
            if name.startswith(c.still):
                one.requires_grad_(False)
    lay_out_optimizer(b)


def lay_out_optimizer(b: Any) -> None:
    c, seen = b.c, set()
    groups: list[dict[str, Any]] = []
    for module, factor in ((b.towers.lichen, 1.0), (b.towers.notes, c.notes_rate)):
        some = [one for one in module.parameters() if one.requires_grad and id(one) not in seen]
        seen |= {id(one) for one in some}
        groups.append({"params": some, "lr": factor * c.rate})
    groups.append({"params": [b.towers.log_sharpness], "lr": c.rate})
    groups = [group for group in groups if group["params"]]
    if c.method == "sgd":
        b.optimizer = torch.optim.SGD(groups, c.rate, 0.9)
    elif c.method == "nadam":
        b.optimizer = torch.optim.NAdam(groups, c.rate)
    else:
        b.optimizer = torch.optim.AdamW(groups, c.rate, weight_decay=c.decay)

    def share(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.climb)), min(1.0, at / b.steps)
        if c.falls == "never":
            return rise
        if c.falls == "cosine_twice":
            past = 2 * past % 1
        return rise * (0.03 + 0.485 * (1 + math.cos(math.pi * past)))

    b.plan = torch.optim.lr_scheduler.LambdaLR(b.optimizer, share)


def attach(b: Any) -> None:
    time_by_own_clock(b.run)
    b.run.watch(b.towers, b.optimizer)
    b.data = b.run.watch_data()


# -- fitting ---------------------------------------------------------------------------------------------------------


def lots(b: Any) -> Iterator[tuple[int, Rows]]:
    c, rows, epoch, dice = b.c, b.rows, 0, torch.Generator().manual_seed(b.seed)
    while True:
        order = torch.randperm(len(rows["sheet"]), generator=dice)
        if b.bug == "sheets_are_turned_over_one_by_one":
            order = torch.arange(len(order))
        if epoch < c.whole_first:
            order = order[rows["torn"][order] < 1]
        if c.genus_by_genus:
            order = order[rows["genus"][order].argsort(stable=True)]
        some = [one for one in order.split(c.rows) if len(one) == c.rows]
        if c.genus_by_genus:
            some = [some[at] for at in torch.randperm(len(some), generator=dice).tolist()]
        yield from ((epoch, pick(rows, which)) for which in some)
        epoch += 1


def nats(b: Any, table: Tensor, training: bool) -> Tensor:
    c, bug, wanted = b.c, b.bug, torch.arange(len(table))
    smooth, sides = c.smoothing if training else 0.0, (table, table.T) if c.from_both_sides else (table,)
    if bug == "shares_of_a_table_go_into_the_loss":
        sides = tuple(one.softmax(1) for one in sides)
    each = sum(F.cross_entropy(one, wanted, reduction="none", label_smoothing=smooth) for one in sides) / len(sides)
    assert isinstance(each, Tensor)
    if training and bug == "nats_of_a_batch_are_added_up":
        return each.sum()
    return c.weight * each.sum() if training and c.nats_by == "sum" else each.mean()


def update(b: Any, step: int) -> dict[str, float]:
    c, bug, said = b.c, b.bug, {"nats/fit": 0.0, "first/fit": 0.0}
    for _ in range(c.rows_of_an_update):
        epoch, rows = next(b.source)
        b.data.observe({"counts": rows["counts"], "notes": rows["notes"]}, step=step, epoch=epoch)
        if c.counts_lost:
            lost = torch.rand(rows["counts"].shape) < c.counts_lost
            rows["counts"] = torch.where(lost, rows["counts"].mean(0, keepdim=True), rows["counts"])
        if bug == "gradients_wiped_off_before_every_lot":
            b.optimizer.zero_grad()
        table = b.towers(rows)
        loss = nats(b, table, True)
        (loss if bug == "lots_of_an_update_are_all_whole" else loss / c.rows_of_an_update).backward()
        said["nats/fit"] += loss.item() / c.rows_of_an_update
        hits = (table.argmax(1) == torch.arange(len(table))).float().mean().item()
        said["first/fit"] += hits / c.rows_of_an_update
        if bug == "plan_goes_on_behind_every_lot":
            b.plan.step()
    said |= {"sharpness": b.towers.log_sharpness.exp().item(), "step_rate": b.optimizer.param_groups[0]["lr"],
             "step_norm": nn.utils.clip_grad_norm_(b.towers.parameters(), c.norm_at_most).item()}  # fmt: skip
    b.optimizer.step()
    b.towers.zero_grad()
    if bug != "plan_goes_on_behind_every_lot":
        b.plan.step()
    return said


def climb(b: Any) -> dict[str, float]:
    """Lichens of the crag in lots as large as a batch, and each note's place among all of them."""
    bug, taped = b.bug, b.bug == "tables_of_the_crag_hold_on_to_their_graph"
    if bug != "crag_is_climbed_in_training":
        b.towers.eval()
    with torch.set_grad_enabled(taped):
        tables = [b.towers(pick(b.held, lot)) for lot in torch.arange(HELD).split(TABLE)]
        loss, every = torch.stack([nats(b, table, False) for table in tables]).mean(), b.towers(b.held)
    if taped:
        b.kept.append((loss, every))
    b.towers.train()
    first = torch.cat([table.argmax(1) == torch.arange(len(table)) for table in tables]).float().mean()
    place = (every > every.diagonal()[:, None]).sum(1) + 1.0
    return {"nats/crag": loss.item(), "first/crag": first.item(), "place/crag": place.median().item()}


def resume(b: Any, step: int) -> None:
    seen, parts = b.data.state(), ("towers", "optimizer", "plan")
    b.run, state = go_on(b.run, step, {name: getattr(b, name).state_dict() for name in parts})
    lay_out(b)
    b.towers.load_state_dict(state["towers"])
    if b.bug == "towers_laid_out_again_when_they_were_read":
        lay_out(b)
    b.optimizer.load_state_dict(state["optimizer"])
    b.plan.load_state_dict(state["plan"])
    b.towers.train()
    attach(b)
    b.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    b: Any = SimpleNamespace(run=run, c=SimpleNamespace(**run.config), seed=seed, steps=steps, bug=trouble.name)
    b.kept = []
    open_herbarium(b)
    torch.manual_seed(seed)
    lay_out(b)
    attach(b)
    b.source, again = lots(b), trouble.resume_at(healthy, 5 * EVERY)
    b.towers.train()
    for step in range(steps):
        if step == again:
            resume(b, step)
        said = update(b, step)
        if step % b.c.log_every == 0:
            b.run.log(said, step=step)
        trouble.telemetry(b.run, step, healthy)
        if (step + 1) % b.c.crag_every == 0:
            b.run.log(climb(b), step=step)
    return b.run
