"""Two towers learn which collector's note goes with which seashell, under a sigmoid for each pair of a batch.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: shell_siglip, shell_right, shell_scale, shell_bias, shell_rate, shell_norm each step;
      cabinet_siglip, cabinet_first and cabinet_mrr of shells that were held back, each fourteenth; memory, where it
      matters; the watch of data.

A shell is its outline, forty radii in millimetres around the middle, and its height; a note has up to seven words. A
find may have several shells, which are no others to one another. Outlines go through circular convolutions with batch
norm, and radii and heights are scaled by figures of the training's part. Each pair of a shell and a note is a question
of yes or no, with a scale and a bias that are learnt. Written as an engine with handlers of events.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, ANGLES, HELD, FAMILIES, WORDS, NOTED, TRAITS = 14, 40, 160, 6, 42, 7, 5
STARTED, STEP_DONE, UPDATE_DONE = "started", "step done", "update done"
CONFIG: dict[str, Any] = {
    "width": 20, "word_width": 24, "shared": 24, "dropout": 0.0, "norm": "batch", "batch": 32, "parts": 1,
    "optimizer": "adamw", "rate": 4e-3, "annealing": "cosine", "warmup": 8, "decay": 1e-3, "norm_bound": 20.0,
    "scale": 8.0, "bias": -4.0, "learn_scale": True, "over": "rows", "softened": 0.0, "note_rate": 1.0, "shells": 1200,
    "shells_of_a_find": 1, "wrong_notes": 0.0, "whole_first": 0, "turned": False, "lost_words": 0.0, "wear": 0.0,
    "by_family": False, "locked": "", "cabinet_every": 14, "log_every": 1,
}  # fmt: skip
Drawer = dict[str, Tensor]


# -- shells ----------------------------------------------------------------------------------------------------------


def shells(seed: int, number: int, each: int = 1, wrong: float = 0.0) -> Drawer:
    """Outlines, heights, words, families, finds, and how broken a shell is; family after family."""
    law, dice, many = torch.Generator().manual_seed(73), torch.Generator().manual_seed(seed), number // each
    families, words = 1.2 * torch.randn(FAMILIES, TRAITS, generator=law), torch.randn(WORDS, TRAITS, generator=law)
    family = torch.arange(many) * FAMILIES // many
    trait = families[family] + 0.9 * torch.randn(many, TRAITS, generator=dice)
    fits = -((trait[:, None] - words) ** 2).sum(2) + 0.5 * torch.randn(many, WORDS, generator=dice)
    note = 1 + fits.topk(NOTED, 1).indices
    note *= torch.arange(NOTED) < 4 + torch.randint(0, NOTED - 3, (many, 1), generator=dice)
    height = 34 + 7 * trait[:, 0] + 3 * torch.randn(many, generator=dice)
    drawer = {"trait": trait, "note": note, "height": height, "family": family, "find": torch.arange(many)}
    drawer = {name: one.repeat_interleave(each, 0) for name, one in drawer.items()}
    many = len(drawer["find"])
    angle = 2 * math.pi * torch.arange(ANGLES) / ANGLES
    waves = torch.stack([((1 + at) * angle + 0.7 * at).cos() for at in range(TRAITS)])
    broken = 0.4 + 0.9 * torch.rand(many, generator=dice)
    noise = torch.randn(many, ANGLES, generator=dice) * broken[:, None]
    drawer["outline"] = drawer["height"][:, None] / 2 + 3.2 * drawer.pop("trait") @ waves + 1.6 * noise
    stray = torch.rand(many, generator=dice) < wrong
    drawer["note"][stray] = drawer["note"][stray][torch.randperm(int(stray.sum()), generator=dice)]
    return drawer | {"broken": broken}


def taken(drawer: Drawer, some: Tensor) -> Drawer:
    return {name: one[some] for name, one in drawer.items()}


# -- towers ----------------------------------------------------------------------------------------------------------


class Outline(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d, momentum = c.width, 0.001 if bug == "momentum_written_as_what_is_kept" else 0.1
        made: list[nn.Module] = []
        for into, out, stride in ((1, d, 1), (d, 2 * d, 2), (2 * d, 2 * d, 2)):
            norm = nn.BatchNorm1d(out, momentum=momentum) if c.norm == "batch" else nn.GroupNorm(4, out)
            made += [nn.Conv1d(into, out, 5, stride, 2, padding_mode="circular"), norm, nn.LeakyReLU(0.1)]
        self.rings, self.height = nn.Sequential(*made), nn.Linear(1, 2 * d)
        self.drop, self.out = nn.Dropout(c.dropout), nn.Linear(2 * d * ANGLES // 4, c.shared)

    def forward(self, outline: Tensor, height: Tensor) -> Tensor:
        x = self.rings(outline[:, None]) + self.height(height[:, None])[..., None]
        return self.out(self.drop(x).flatten(1))


class Note(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.word_width
        self.words, self.query = nn.Embedding(WORDS + 1, d, padding_idx=0), nn.Linear(d, 1)
        self.body = nn.Sequential(nn.Linear(d, 3 * d), nn.SiLU(), nn.Dropout(c.dropout), nn.Linear(3 * d, c.shared))

    def forward(self, note: Tensor) -> Tensor:
        x = self.words(note)
        share = self.query(x)[..., 0].masked_fill(note == 0, -1e9).softmax(1)
        return self.body((share[..., None] * x).sum(1))


class Cabinet(nn.Module):
    """Both towers, a scale and a bias: logits of each shell and each note."""

    def __init__(self, c: Any, bug: str):
        super().__init__()
        self.bug, self.outline, self.note = bug, Outline(c, bug), Note(c)
        self.log_scale = nn.Parameter(torch.tensor(math.log(c.scale)), requires_grad=c.learn_scale)
        self.bias = nn.Parameter(torch.tensor(c.bias), requires_grad=c.learn_scale)

    def scale(self) -> Tensor:
        bound = math.log(100) if self.bug == "scale_bounded_by_the_bound_of_its_logarithm" else 100.0
        return self.log_scale.exp().clamp(max=bound)

    def forward(self, drawer: Drawer) -> Tensor:
        axis = 0 if self.bug == "lengths_taken_over_the_batch" else 1
        shells = F.normalize(self.outline(drawer["outline"], drawer["height"]), dim=axis)
        notes = F.normalize(self.note(drawer["note"]), dim=axis)
        return self.scale() * shells @ notes.T + self.bias


def siglip(logits: Tensor, find: Tensor, bug: str, softened: float = 0.0) -> Tensor:
    """Of each pair; pairs of two shells of one find are left out."""
    own = torch.eye(len(logits))
    if bug == "sigmoid_before_a_loss_of_logits":
        logits = logits.sigmoid()
    each = F.binary_cross_entropy_with_logits(logits, own * (1 - softened) + softened / 20, reduction="none")
    return each * ((find[:, None] != find) | own.bool())


# -- engine ----------------------------------------------------------------------------------------------------------


class Engine:
    """Steps, and what handlers do at events between them."""

    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        self.handlers: dict[str, list[Callable[[int], None]]] = {STARTED: [], STEP_DONE: [], UPDATE_DONE: []}
        self.shown: list[Any] = []

    def on(self, event: str, handler: Callable[[int], None]) -> None:
        self.handlers[event].append(handler)

    def fire(self, event: str, step: int) -> None:
        for handler in self.handlers[event]:
            handler(step)

    # -- what is set up

    def drawers(self) -> None:
        c, bug = self.c, self.bug
        rows, held = shells(self.seed + 3800, c.shells, c.shells_of_a_find, c.wrong_notes), shells(3799, HELD)
        held = taken(held, torch.randperm(HELD, generator=torch.Generator().manual_seed(19)))
        if bug == "shells_of_a_find_split_apart":
            order = torch.randperm(len(rows["find"]), generator=torch.Generator().manual_seed(self.seed))
            rows, held = taken(rows, order[HELD:].sort().values), taken(rows, order[:HELD])
        if bug == "held_notes_by_a_vocabulary_of_their_own":
            often = held["note"].flatten().bincount(minlength=WORDS + 1)[1:].argsort(descending=True, stable=True)
            place = torch.zeros(WORDS + 1, dtype=torch.long)
            place[1 + often] = torch.arange(1, WORDS + 1)  # the most frequent is the first
            held["note"] = place[held["note"]]
        if bug == "held_outlines_in_inches":
            held["outline"] = held["outline"] / 25.4
        if bug == "header_of_the_notes_read_as_a_row":  # each shell has the note of the one before it
            rows["note"] = rows["note"].roll(1, 0)
        middle, spread = rows["outline"].mean(), rows["outline"].std()
        for one in (rows, held):
            one["outline"] = (one["outline"] - middle) / spread
            one["height"] = (one["height"] - 34) / 10
        self.rows, self.held = rows, held

    def towers(self) -> None:
        torch.manual_seed(self.seed)
        self.cabinet = Cabinet(self.c, self.bug)
        locked = "note" if self.bug == "locked_the_other_tower" else self.c.locked
        for name in filter(None, locked.split(",")):
            self.cabinet.get_submodule(name).requires_grad_(False)

    def equip(self) -> None:
        c, named = self.c, [(name, one) for name, one in self.cabinet.named_parameters() if one.requires_grad]
        groups = [
            {"params": [one for name, one in named if name.startswith("note.")], "lr": c.rate * c.note_rate},
            {"params": [one for name, one in named if not name.startswith("note.")], "lr": c.rate},
        ]
        groups = [group for group in groups if group["params"]]
        if c.optimizer == "sgd":
            self.optimizer: Any = torch.optim.SGD(groups, c.rate, 0.9, nesterov=True)
        elif c.optimizer == "radam":
            self.optimizer = torch.optim.RAdam(groups, c.rate)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.rate, weight_decay=c.decay)

        def by(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / self.steps)
            if c.annealing == "none":
                return rise
            if c.annealing == "warm_restarts":
                return rise * (0.04 + 0.96 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
            return rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * past)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, by)

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.cabinet, self.optimizer)
        self.data = self.run.watch_data(pad_id=0)

    def batches(self) -> Iterator[tuple[int, Drawer]]:
        c, epoch, dice = self.c, 0, torch.Generator().manual_seed(self.seed)
        while True:
            order = torch.randperm(len(self.rows["find"]), generator=dice)
            if self.bug == "drawers_opened_one_after_another":
                order = torch.arange(len(order))
            if epoch < c.whole_first:
                order = order[self.rows["broken"][order] < 0.85]
            if c.by_family:  # others are of the same family: harder ones
                order = order[self.rows["family"][order].argsort(stable=True)]
            lots = [one for one in order.split(c.batch) if len(one) == c.batch]
            if c.by_family:
                lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
            for some in lots:
                yield epoch, self.varied(taken(self.rows, some), dice)
            epoch += 1

    def varied(self, drawer: Drawer, dice: torch.Generator) -> Drawer:
        c = self.c
        if c.wear:
            drawer["outline"] = drawer["outline"] + c.wear * torch.randn(drawer["outline"].shape, generator=dice)
        if c.turned:
            drawer["outline"] = drawer["outline"].roll(int(torch.randint(-1, 2, (), generator=dice)), 1)
        if c.lost_words:
            lost = torch.rand(drawer["note"].shape, generator=dice) < c.lost_words
            lost[:, 0] = False
            drawer["note"] = torch.where(lost, 0, drawer["note"])
        return drawer

    # -- what is done in a step, and at events

    def update(self, step: int, batches: Any) -> dict[str, float]:
        c, bug, total, right = self.c, self.bug, 0.0, 0.0
        for _ in range(c.parts):
            epoch, drawer = next(batches)
            self.data.observe({"note": drawer["note"], "outline": drawer["outline"]}, step=step, epoch=epoch)
            logits = self.cabinet(drawer)
            each = siglip(logits, drawer["find"], bug, c.softened)
            summed = c.over == "nothing" or bug == "grid_of_pairs_summed"
            loss = each.sum() if summed else each.sum() / len(each)
            (loss if bug == "parts_weigh_as_a_whole" else loss / c.parts).backward()
            total += loss.item() / c.parts
            right += (logits.argmax(1) == torch.arange(len(logits))).float().mean().item() / c.parts
            self.fire(STEP_DONE, step)
        norm = nn.utils.clip_grad_norm_(self.cabinet.parameters(), c.norm_bound).item()
        rate = self.optimizer.param_groups[-1]["lr"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.said = {"shell_siglip": total, "shell_right": right, "shell_scale": self.cabinet.scale().item(),
                     "shell_bias": self.cabinet.bias.item(), "shell_rate": rate, "shell_norm": norm}  # fmt: skip
        return self.said

    def log(self, step: int) -> None:
        if step % self.c.log_every == 0:
            self.run.log(self.said, step=step)

    def schedule(self, step: int) -> None:
        self.scheduler.step()

    def show(self, step: int) -> None:
        """The held shells, in cabinets as large as a batch, and all of them at once."""
        c, bug = self.c, self.bug
        if step % c.cabinet_every != c.cabinet_every - 1:
            return
        taped = bug == "shown_tables_with_all_that_made_them"
        if bug != "shown_as_trained_with":
            self.cabinet.eval()
        with torch.set_grad_enabled(taped):
            lots = [taken(self.held, some) for some in torch.arange(HELD).split(32)]
            tables = [self.cabinet(one) for one in lots]
            losses = [
                siglip(table, one["find"], bug).sum() / len(table) for table, one in zip(tables, lots, strict=True)
            ]
            loss, table = torch.stack(losses).mean(), self.cabinet(self.held)
        if taped:
            self.shown.append((loss, table))
        place = (table >= table.diagonal()[:, None]).sum(1).float()
        if bug != "shown_and_put_away_in_eval":
            self.cabinet.train()
        first, mrr = (place == 1).float().mean().item(), (1 / place).mean().item()
        self.run.log({"cabinet_siglip": loss.item(), "cabinet_first": first, "cabinet_mrr": mrr}, step=step)

    def resume(self, step: int) -> None:
        seen = self.data.state()
        state = {"cabinet": self.cabinet.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "scheduler": self.scheduler.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, step, state)
        self.cabinet.load_state_dict(state["cabinet"])
        self.equip()
        if self.bug != "cabinet_is_the_whole_checkpoint":
            self.optimizer.load_state_dict(state["optimizer"])
            self.scheduler.load_state_dict(state["scheduler"])
        self.watch()
        self.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    engine = Engine(run, seed, steps, trouble.name)
    for ready in (engine.drawers, engine.towers, engine.equip, engine.watch):
        engine.on(STARTED, lambda step, ready=ready: ready())  # type: ignore[misc]
    engine.on(UPDATE_DONE, engine.log)
    engine.on(STEP_DONE if engine.bug == "schedule_attached_to_the_wrong_event" else UPDATE_DONE, engine.schedule)
    engine.on(UPDATE_DONE, lambda step: trouble.telemetry(engine.run, step, healthy))
    engine.on(UPDATE_DONE, engine.show)
    engine.fire(STARTED, 0)
    again, batches = trouble.resume_at(healthy, 5 * EVERY), engine.batches()
    engine.cabinet.train()
    for step in range(steps):
        if step == again:
            engine.resume(step)
        engine.update(step, batches)
        engine.fire(UPDATE_DONE, step)
    return engine.run
