"""Two towers learn which line of a catalogue is of which stamp, against the others of a batch.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: pair_ce, pair_hit, pair_temp, pair_lr, pair_gn each step; album_ce, album_hit and
      album_rank of stamps that were held back, each seventeenth; memory, where it matters; the watch of data.

A stamp is a scan of eight by eight grey pixels, from 0 to 255 and through a batch norm as they are: a motif in a frame,
in a shade; and the town that is printed on it. Its line has the motif, the shade and the frame in a collector's words,
the town, and a nickname that nobody can guess. The album goes motif after motif, and may have several prints of a
stamp. Both towers read towns and words in one table. Written as an engine with handlers of its events.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, LOT, LONG = 17, 192, 48, 9
PAD, TOWN, TOWNS, MOTIFS, SHADES, FRAMES = 0, 1, 600, 8, 4, 4
MOTIF = TOWN + TOWNS  # two words each
SHADE, FRAME = MOTIF + 2 * MOTIFS, MOTIF + 2 * MOTIFS + SHADES
NICKNAME, NICKNAMES = FRAME + FRAMES, 24
FILLER, FILLERS = NICKNAME + NICKNAMES, 6
WORDS = FILLER + FILLERS
CONFIG: dict[str, Any] = {
    "word_dim": 28, "hidden": 48, "joint_dim": 24, "dropout": 0.0, "pixel_norm": "batch", "joint_table": True,
    "per_batch": 48, "batches_per_update": 1, "method": "adamw", "rate": 8e-3, "rate_plan": "cosine", "rate_rise": 6,
    "wd": 0.0, "gn_limit": 3.0, "ce_over": "mean", "temp": 0.1, "temp_learns": True, "sides": "both",
    "ce_smooth": 0.0, "text_rate": 1.0, "album": 2000, "prints": 1, "misfiled": 0.0, "clean_first": 0,
    "motif_batches": False, "pixels_lost": 0.0, "still": "", "album_every": 17, "log_every": 1,
}  # fmt: skip
Stamps = dict[str, Tensor]


# -- album -----------------------------------------------------------------------------------------------------------


def album(seed: int, number: int, prints: int = 1, misfiled: float = 0.0) -> Stamps:
    """Scans, towns, lines, and how faded a stamp is; motif after motif."""
    law, dice, many = torch.Generator().manual_seed(231), torch.Generator().manual_seed(seed), number // prints
    motifs = (torch.rand(MOTIFS, 8, 8, generator=law) < 0.5).float()
    frames = torch.zeros(FRAMES, 8, 8)
    frames[1, [0, 7]] = frames[2, :, [0, 7]] = 1
    frames[3, [0, 7]] = frames[3, :, [0, 7]] = 1

    def some(high: int, *shape: int) -> Tensor:
        return torch.randint(0, high, shape or (many,), generator=dice)

    motif, shade, frame, town = torch.arange(many) * MOTIFS // many, some(SHADES), some(FRAMES), some(TOWNS)
    faded, inside = 0.5 + torch.rand(many, generator=dice), motifs[motif].clone()
    edge = torch.ones(8, 8, dtype=torch.bool)
    edge[1:7, 1:7] = False
    inside = torch.where(edge, frames[frame], inside)
    scan = 40 + (60 + 45 * shade.float())[:, None, None] * inside
    scan = scan + 40 * faded[:, None, None] * torch.randn(many, 8, 8, generator=dice)
    words = [MOTIF + 2 * motif + some(2), SHADE + shade, FRAME + frame, TOWN + town, NICKNAME + some(NICKNAMES)]
    filler = torch.where(some(2, many, LONG - 5) > 0, FILLER + some(FILLERS, many, LONG - 5), PAD)
    line = torch.cat([torch.stack(words[:2], 1), filler[:, :2], torch.stack(words[2:], 1), filler[:, 2:]], 1)
    rows = {"scan": scan.flatten(1), "town": TOWN + town, "line": line, "motif": motif, "faded": faded}
    rows = {name: one.repeat_interleave(prints, 0) for name, one in rows.items()}
    rows["scan"] = (rows["scan"] + 6 * torch.randn(rows["scan"].shape, generator=dice)).clamp(0, 255)
    wrong = torch.rand(len(rows["town"]), generator=dice) < misfiled
    other = rows["line"][torch.randperm(len(wrong), generator=dice)]
    rows["line"] = torch.where(wrong[:, None], other, rows["line"])
    return rows


def pick(rows: Stamps, which: Tensor) -> Stamps:
    return {name: one[which] for name, one in rows.items()}


# -- towers ----------------------------------------------------------------------------------------------------------


class Towers(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d, h, self.bug = c.word_dim, c.hidden, bug
        self.words = nn.Embedding(WORDS, d, padding_idx=PAD)
        self.line_words = self.words if c.joint_table else copy.deepcopy(self.words)
        batch = c.pixel_norm == "batch"
        self.pixel_norm = nn.BatchNorm1d(64, momentum=0.05, affine=False) if batch else nn.LayerNorm(64)
        self.pixel_net = nn.Sequential(nn.Linear(64, h), nn.GELU(), nn.Dropout(c.dropout), nn.Linear(h, h))
        self.stamp_head = nn.Linear(h + d, c.joint_dim)
        self.line_net = nn.Sequential(nn.Linear(d, h), nn.GELU(), nn.Dropout(c.dropout), nn.Linear(h, h))
        self.line_head = nn.Linear(h + d, c.joint_dim)
        self.log_temp = nn.Parameter(torch.tensor(math.log(c.temp)), requires_grad=c.temp_learns)

    def forward(self, rows: Stamps) -> Tensor:
        seen = self.pixel_net(self.pixel_norm(rows["scan"]))
        stamp = self.stamp_head(torch.cat([seen, self.words(rows["town"])], 1))
        read = self.line_words(rows["line"])
        there = (rows["line"] != PAD).float()[..., None]
        read = (read * there).sum(1) / there.sum(1)
        line = self.line_head(torch.cat([self.line_net(read), read], 1))
        dim = 0 if self.bug == "vectors_normalised_along_the_batch" else 1
        return F.normalize(stamp, dim=dim) @ F.normalize(line, dim=dim).T / self.log_temp.exp().clamp(min=0.02)


# -- engine ----------------------------------------------------------------------------------------------------------


class Engine:
    """Runs steps, and calls handlers of "begun", "part done", "step done" and "ended"."""

    def __init__(self, step_of: Callable[[Engine], dict[str, float]], steps: int):
        self.step_of, self.steps, self.step, self.said = step_of, steps, 0, {}
        self.handlers: dict[str, list[tuple[int, Callable[[], None]]]] = defaultdict(list)

    def on(self, event: str, handler: Callable[[], None], every: int = 1) -> None:
        self.handlers[event].append((every, handler))

    def fire(self, event: str) -> None:
        for every, handler in self.handlers[event]:
            if (self.step + 1) % every == 0 or every == 1:
                handler()

    def run(self) -> None:
        while self.step < self.steps:
            self.fire("begun")
            self.said = self.step_of(self)
            self.fire("step done")
            self.step += 1


class Matching:
    """What handlers work on."""

    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        self.shelf: list[Any] = []
        self.open_album()
        torch.manual_seed(seed)
        self.build()
        self.source = self.batches()

    def open_album(self) -> None:
        c, bug = self.c, self.bug
        rows, held = album(self.seed + 8400, c.album, c.prints, c.misfiled), album(8399, HELD)
        if bug == "prints_of_a_stamp_in_both_albums":
            order = torch.randperm(len(rows["town"]), generator=torch.Generator().manual_seed(self.seed))
            held, rows = pick(rows, order[:HELD].sort().values), pick(rows, order[HELD:].sort().values)
        if bug == "lines_looked_up_by_a_number_that_begins_at_one":
            rows["line"] = rows["line"].roll(-1, 0)
        if bug == "held_scans_read_as_shares_of_white":
            held["scan"] = held["scan"] / 255
        if bug == "lines_cut_at_four_words":
            for one in (rows, held):
                one["line"] = one["line"][:, :4]
        self.rows = rows
        self.held = pick(held, torch.randperm(HELD, generator=torch.Generator().manual_seed(11)))

    def build(self) -> None:
        c, self.towers = self.c, Towers(self.c, self.bug)
        for name, one in self.towers.named_parameters():
            if c.still and name.startswith(c.still):
                one.requires_grad_(False)
            if self.bug == "all_of_the_pixels_kept_still_with_their_norm" and name.startswith("pixel"):
                one.requires_grad_(False)
        named = [(name, one) for name, one in self.towers.named_parameters() if one.requires_grad]
        second = [one for name, one in named if name.startswith("line")]
        groups = [{"params": [one for name, one in named if not name.startswith("line")], "lr": c.rate}]
        groups += [{"params": second, "lr": c.text_rate * c.rate}] if second else []
        if c.method == "sgd":
            self.optimizer: Any = torch.optim.SGD(groups, c.rate, 0.9)
        elif c.method == "radam":
            self.optimizer = torch.optim.RAdam(groups, c.rate)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.rate, weight_decay=c.wd)

        def plan(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.rate_rise)), min(1.0, at / self.steps)
            if c.rate_plan == "constant":
                return rise
            if c.rate_plan == "line":
                return rise * (1 - 0.95 * past)
            if c.rate_plan == "two_cosines":
                past = 2 * past % 1
            return rise * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * past)))

        self.plan = torch.optim.lr_scheduler.LambdaLR(self.optimizer, plan)

    def begin_to_watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.towers, self.optimizer)
        self.data = self.run.watch_data()

    def batches(self) -> Iterator[tuple[int, Stamps]]:
        c, epoch, dice, motif = self.c, 0, torch.Generator().manual_seed(self.seed), self.rows["motif"]
        while True:
            order = torch.randperm(len(motif), generator=dice)
            if self.bug == "album_leafed_through_from_its_first_page":
                order = torch.arange(len(motif))
            if epoch < c.clean_first:
                order = order[self.rows["faded"][order] < 1]
            if c.motif_batches:
                order = order[motif[order].argsort(stable=True)]
            lots = [one for one in order.split(c.per_batch) if len(one) == c.per_batch]
            if c.motif_batches:
                lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
            for which in lots:
                rows = pick(self.rows, which)
                if c.pixels_lost:
                    lost = torch.rand(rows["scan"].shape, generator=dice) < c.pixels_lost
                    rows["scan"] = rows["scan"].masked_fill(lost, 0)
                yield epoch, rows
            epoch += 1

    def matched(self, table: Tensor, training: bool) -> Tensor:
        """Which line is each stamp's, and which stamp is each line's."""
        c, wanted = self.c, torch.arange(len(table))
        if self.bug == "similarity_table_softmaxed_before_its_loss":
            table = table.softmax(1)
        summed = training and (c.ce_over == "sum" or self.bug == "crossentropies_of_stamps_summed")
        sides = [table] if c.sides == "stamps" else [table, table.T]
        losses = [F.cross_entropy(one, wanted, reduction="sum" if summed else "mean",
                                  label_smoothing=c.ce_smooth if training else 0.0) for one in sides]  # fmt: skip
        return torch.stack(losses).mean()

    def step_of(self, engine: Engine) -> dict[str, float]:
        c, bug, total, hit = self.c, self.bug, 0.0, 0.0
        for _ in range(c.batches_per_update):
            epoch, rows = next(self.source)
            self.data.observe({"scan": rows["scan"], "line": rows["line"]}, step=engine.step, epoch=epoch)
            if bug == "optimizer_cleared_before_a_batch_and_not_an_update":
                self.optimizer.zero_grad()
            table = self.towers(rows)
            loss = self.matched(table, True)
            (loss if bug == "loss_of_a_batch_is_not_shared_out" else loss / c.batches_per_update).backward()
            total += loss.item() / c.batches_per_update
            right = (table.argmax(1) == torch.arange(len(table))).float().mean().item()
            hit += right / c.batches_per_update
            engine.fire("part done")
        norm = nn.utils.clip_grad_norm_(self.towers.parameters(), c.gn_limit).item()
        said = {"pair_ce": total, "pair_hit": hit, "pair_temp": self.towers.log_temp.exp().item(), "pair_gn": norm,
                "pair_lr": self.optimizer.param_groups[0]["lr"]}  # fmt: skip
        self.optimizer.step()
        self.optimizer.zero_grad()
        return said

    def look_up(self) -> dict[str, float]:
        """Held stamps in lots as large as a batch, and a line among all of them."""
        bug, taped = self.bug, self.bug == "tables_of_the_album_put_on_a_shelf"
        if bug != "album_looked_up_with_towers_in_training":
            self.towers.eval()
        with torch.set_grad_enabled(taped):
            tables = [self.towers(pick(self.held, lot)) for lot in torch.arange(HELD).split(LOT)]
            loss = torch.stack([self.matched(table, False) for table in tables]).mean()
            every = self.towers(self.held)
        if taped:
            self.shelf.append((loss, every))
        if bug != "towers_left_as_they_were_looked_up":
            self.towers.train()
        hit = torch.cat([table.argmax(1) == torch.arange(len(table)) for table in tables]).float().mean()
        place = (every > every.diagonal()[:, None]).sum(1) + 1.0
        return {"album_ce": loss.item(), "album_hit": hit.item(), "album_rank": place.median().item()}

    def come_back(self, step: int) -> None:
        bug, seen, parts = self.bug, self.data.state(), ("towers", "optimizer", "plan")
        state = {name: getattr(self, name).state_dict() for name in parts}
        if bug == "file_has_what_the_optimizer_knows_of_the_towers":
            state["towers"] = {name: one.detach() for name, one in self.towers.named_parameters()}
        self.run, state = go_on(self.run, step, state)
        self.build()
        self.towers.load_state_dict(state["towers"], strict=bug != "file_has_what_the_optimizer_knows_of_the_towers")
        self.optimizer.load_state_dict(state["optimizer"])
        self.plan.load_state_dict(state["plan"])
        self.begin_to_watch()
        self.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    m, again = Matching(run, seed, steps, trouble.name), trouble.resume_at(healthy, 5 * EVERY)
    engine = Engine(m.step_of, steps)
    engine.on("begun", lambda: m.come_back(engine.step) if engine.step == again else None)
    when = "part done" if trouble.name == "plan_hangs_on_the_wrong_event" else "step done"
    engine.on(when, lambda: m.plan.step())

    def tell() -> None:
        if engine.step % m.c.log_every == 0:
            m.run.log(engine.said, step=engine.step)

    engine.on("step done", tell)
    engine.on("step done", lambda: trouble.telemetry(m.run, engine.step, healthy))
    engine.on("step done", lambda: m.run.log(m.look_up(), step=engine.step), every=m.c.album_every)
    m.begin_to_watch()
    m.towers.train()
    engine.run()
    return m.run
