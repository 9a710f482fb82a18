"""Two towers learn which shoe left a footprint: one sees the print's pressure, one reads what a maker says of the shoe.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: sole.nce, sole.hits, sole.scale, sole.lr, sole.norm each step; lineup.nce, lineup.first and
      lineup.rank of shoes that were held back, each fifteenth; memory, where it matters; the watch of data.

A print is a grid of ten rows and six columns of pressure in kilopascals; a shoe has six words of a maker and a size. A
shoe may have left several prints. Prints and shoes of a batch are matched both ways (InfoNCE), with a scale that is
learnt; held ones are matched in line-ups as large as a batch. Prints go through convolutions with batch norm, and
sizes are scaled by figures of the training's part. Written as closures that one function makes and another calls.
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

EVERY, ROWS, COLUMNS, HELD, MAKERS, WORDS, SAID = 15, 10, 6, 160, 5, 45, 6
CONFIG: dict[str, Any] = {
    "channels": 16, "word_dim": 24, "embed_dim": 24, "dropout": 0.0, "norm": "batch", "batch_size": 32, "splits": 1,
    "optimizer": "adamw", "lr": 4e-3, "schedule": "halves", "warmup": 10, "weight_decay": 1e-3, "clip": 5.0,
    "scale_init": 8.0, "learn_scale": True, "reduction": "mean", "smooth": 0.0, "sole_rate": 1.0, "prints": 1200,
    "prints_of_a_shoe": 1, "mixed_up": 0.0, "clear_first": 0, "hide_words": 0.0, "press": 0.0, "by_maker": False,
    "keep_fixed": "", "lineup_every": 15, "log_every": 1,
}  # fmt: skip
Rows = dict[str, Tensor]


# -- prints and shoes ------------------------------------------------------------------------------------------------


def shoes(seed: int, number: int, prints: int = 1, mixed_up: float = 0.0) -> Rows:
    """Pressures, words, sizes, makers, and which shoe it is, maker after maker."""
    laws, dice, many = torch.Generator().manual_seed(37), torch.Generator().manual_seed(seed), number // prints
    makers, words = 1.1 * torch.randn(MAKERS, 5, generator=laws), torch.randn(WORDS, 5, generator=laws)
    shape = torch.randn(5, ROWS * COLUMNS, generator=laws)
    maker = torch.arange(many) * MAKERS // many
    kind = makers[maker] + 0.9 * torch.randn(many, 5, generator=dice)
    size = 41 + 2.5 * torch.randn(many, generator=dice)
    fits = -((kind[:, None] - words) ** 2).sum(2) + 0.6 * torch.randn(many, WORDS, generator=dice)
    said = 1 + fits.topk(SAID, 1).indices
    said *= torch.arange(SAID) < 3 + torch.randint(0, SAID - 2, (many, 1), generator=dice)
    made = {"words": said, "size": size, "maker": maker, "shoe": torch.arange(many), "kind": kind}
    made = {name: one.repeat_interleave(prints, 0) for name, one in made.items()}
    soil = 15 + 30 * torch.rand(len(made["shoe"]), generator=dice)
    grid = (made["kind"] @ shape / 5**0.5).view(-1, ROWS, COLUMNS)
    long = torch.arange(ROWS)[:, None] < (made["size"] - 41)[:, None, None] * 0.7 + 8
    grid = (130 + 55 * grid) * long + soil[:, None, None] * torch.randn(grid.shape, generator=dice)
    made |= {"grid": grid.clamp(min=0), "soil": soil}
    stray = torch.rand(len(soil), generator=dice) < mixed_up
    turned = torch.randperm(int(stray.sum()), generator=dice)
    made["grid"][stray] = made["grid"][stray][turned]
    del made["kind"]
    return made


def picked(rows: Rows, some: Tensor) -> Rows:
    return {name: one[some] for name, one in rows.items()}


# -- towers ----------------------------------------------------------------------------------------------------------


class Sole(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.channels
        made: list[nn.Module] = []
        for into, out, stride in ((1, d, 1), (d, 2 * d, 2), (2 * d, 2 * d, 1)):
            norm = nn.BatchNorm2d(out) if c.norm == "batch" else nn.GroupNorm(4, out)
            made += [nn.Conv2d(into, out, 3, stride, 1), norm, nn.ReLU()]
        self.features, self.drop = nn.Sequential(*made), nn.Dropout(c.dropout)
        self.proj = nn.Linear(2 * d * 5 * 3, c.embed_dim)

    def forward(self, grid: Tensor) -> Tensor:
        return self.proj(self.drop(self.features(grid[:, None]).flatten(1)))


class Label(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.words, self.size = nn.Embedding(WORDS + 1, c.word_dim, padding_idx=0), nn.Linear(1, c.word_dim)
        self.body = nn.Sequential(nn.Linear(2 * c.word_dim, 64), nn.GELU(), nn.Dropout(c.dropout),
                                  nn.Linear(64, c.embed_dim))  # fmt: skip

    def forward(self, words: Tensor, size: Tensor) -> Tensor:
        there = (words > 0)[..., None]
        mean = (self.words(words) * there).sum(1) / there.sum(1)
        return self.body(torch.cat([mean, self.size(size[:, None])], 1))


class Pair(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.sole, self.label = Sole(c), Label(c)
        self.log_scale = nn.Parameter(torch.tensor(math.log(c.scale_init)), requires_grad=c.learn_scale)


# -- what is made of a configuration ---------------------------------------------------------------------------------


def make_data(c: Any, seed: int, bug: str) -> tuple[Rows, Rows, Callable[[Rows, bool], Rows]]:
    """Rows of the training, rows that are held, and what prepares a batch of either."""
    rows, held = shoes(seed + 5500, c.prints, c.prints_of_a_shoe, c.mixed_up), shoes(5499, HELD)
    held = picked(held, torch.randperm(HELD, generator=torch.Generator().manual_seed(13)))
    if bug == "prints_split_and_not_shoes":
        order = torch.randperm(len(rows["shoe"]), generator=torch.Generator().manual_seed(seed))
        rows, held = picked(rows, order[HELD:].sort().values), picked(rows, order[:HELD])
    if bug == "held_words_from_an_index_of_their_own":
        index = 1 + torch.randperm(WORDS, generator=torch.Generator().manual_seed(seed + 5))
        held["words"] = torch.where(held["words"] > 0, index[held["words"] - 1], 0)
    mean, std = rows["grid"].mean(), rows["grid"].std()
    size_mean, size_std = rows["size"].mean(), rows["size"].std()

    def prepare(batch: Rows, training: bool) -> Rows:
        grid = batch["grid"]
        if not training and bug == "held_pressures_in_bar":
            grid = grid / 100
        return batch | {"grid": (grid - mean) / std, "size": (batch["size"] - size_mean) / size_std}

    return rows, held, prepare


def make_batches(c: Any, rows: Rows, seed: int, bug: str) -> Iterator[tuple[int, Rows]]:
    epoch, dice = 0, torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(rows["shoe"]), generator=dice)
        if bug == "prints_in_the_order_of_makers":
            order = torch.arange(len(rows["shoe"]))
        if epoch < c.clear_first:
            order = order[rows["soil"][order] < 30]
        if c.by_maker:  # others of a batch are of the same maker: harder ones
            order = order[rows["maker"][order].argsort(stable=True)]
        lots = [one for one in order.split(c.batch_size) if len(one) == c.batch_size]
        if c.by_maker:
            lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
        for some in lots:
            batch = picked(rows, some)
            if c.press:
                batch["grid"] = batch["grid"] * (1 + c.press * torch.randn(len(some), 1, 1, generator=dice))
            if c.hide_words:
                gone = torch.rand(batch["words"].shape, generator=dice) < c.hide_words
                gone[:, 0] = False
                batch["words"] = torch.where(gone, 0, batch["words"])
            if bug == "shoes_of_a_batch_are_one_late":
                batch["words"], batch["size"] = batch["words"].roll(1, 0), batch["size"].roll(1, 0)
            yield epoch, batch
        epoch += 1


def make_scores(pair: Pair, bug: str) -> Callable[[Rows], Tensor]:
    def scores(batch: Rows) -> Tensor:
        """Of each print and each shoe."""
        prints = pair.sole(batch["grid"])
        if bug == "labels_embedded_as_for_the_index":
            with torch.no_grad():
                labels = pair.label(batch["words"], batch["size"])
        else:
            labels = pair.label(batch["words"], batch["size"])
        if bug != "prints_not_brought_to_length_one":
            prints = F.normalize(prints, dim=1)
        return pair.log_scale.exp() * prints @ F.normalize(labels, dim=1).T

    return scores


def make_loss(c: Any, bug: str) -> Callable[[Tensor, Tensor, bool], Tensor]:
    def loss(scores: Tensor, shoe: Tensor, training: bool) -> Tensor:
        own = torch.arange(len(scores))
        if bug != "prints_of_one_shoe_count_as_others":
            same = (shoe[:, None] == shoe) & (own[:, None] != own)
            scores = scores.masked_fill(same, -1e4)
        if bug == "scores_softmaxed_before_the_entropy":
            scores = scores.softmax(1)
        summed = training and (c.reduction == "sum" or bug == "entropies_of_prints_summed")
        kind, smooth = "sum" if summed else "mean", c.smooth if training else 0.0
        there = F.cross_entropy(scores, own, reduction=kind, label_smoothing=smooth)
        return (there + F.cross_entropy(scores.T, own, reduction=kind, label_smoothing=smooth)) / 2

    return loss


def make_optimizer(c: Any, pair: Pair, steps: int) -> tuple[Any, Any]:
    soles = [one for one in pair.sole.parameters() if one.requires_grad]
    rest = [one for name, one in pair.named_parameters() if one.requires_grad and not name.startswith("sole")]
    groups = [{"params": soles, "lr": c.lr * c.sole_rate}, {"params": rest, "lr": c.lr}]
    groups = [one for one in groups if one["params"]]
    if c.optimizer == "sgd":
        optimizer: Any = torch.optim.SGD(groups, c.lr, 0.9, weight_decay=c.weight_decay)
    elif c.optimizer == "adamax":
        optimizer = torch.optim.Adamax(groups, c.lr)
    else:
        optimizer = torch.optim.AdamW(groups, c.lr, weight_decay=c.weight_decay)

    def by(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / steps)
        if c.schedule == "flat":
            return rise
        if c.schedule == "three_times":
            return rise * (0.04 + 0.96 * 0.5 * (1 + math.cos(math.pi * (3 * past % 1))))
        return rise * 0.5 ** int(6 * past)

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, by)


def make_mode(pair: Pair, bug: str) -> Callable[[bool], None]:
    def mode(training: bool) -> None:
        pair.train(training)
        if bug == "norms_in_eval_as_for_a_pretrained_net":
            for one in pair.modules():
                if isinstance(one, nn.BatchNorm2d):
                    one.eval()

    return mode


# -- training --------------------------------------------------------------------------------------------------------


def line_up(s: SimpleNamespace) -> dict[str, float]:
    taped = s.bug == "line_ups_are_kept_to_be_drawn"
    if s.bug != "line_up_in_the_midst_of_training_mode":
        s.mode(False)
    held = s.prepare(s.held, False)
    with torch.set_grad_enabled(taped):
        table = s.scores(held)
        own = [one for one in torch.arange(HELD).split(s.c.batch_size) if len(one) == s.c.batch_size]
        loss = torch.stack([s.loss(table[some][:, some], held["shoe"][some], False) for some in own]).mean()
    if taped:
        s.kept.append((table, loss))
    rank = (table >= table.diagonal()[:, None]).sum(1).float()
    if s.bug != "line_up_forgets_to_go_back":
        s.mode(True)
    first = (rank == 1).float().mean().item()
    return {"lineup.nce": loss.item(), "lineup.first": first, "lineup.rank": rank.median().item()}


def step_of(s: SimpleNamespace, step: int) -> dict[str, float]:
    c, bug, total, hits = s.c, s.bug, 0.0, 0.0
    for _ in range(c.splits):
        epoch, batch = next(s.batches)
        s.watch.observe({"words": batch["words"], "grid": batch["grid"]}, step=step, epoch=epoch)
        table = s.scores(s.prepare(batch, True))
        loss = s.loss(table, batch["shoe"], True)
        (loss if bug == "splits_not_divided_among" else loss / c.splits).backward()
        total += loss.item() / c.splits
        hits += (table.argmax(1) == torch.arange(len(table))).float().mean().item() / c.splits
        if bug == "halving_counts_splits":
            s.scheduler.step()
    norm = nn.utils.clip_grad_norm_(s.pair.parameters(), c.clip).item()
    rate = s.optimizer.param_groups[-1]["lr"]
    s.optimizer.step()
    s.optimizer.zero_grad()
    if bug != "halving_counts_splits":
        s.scheduler.step()
    scale = s.pair.log_scale.exp().item()
    return {"sole.nce": total, "sole.hits": hits, "sole.scale": scale, "sole.lr": rate, "sole.norm": norm}


def observe(s: SimpleNamespace) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.pair, s.optimizer)
    s.watch = s.run.watch_data(pad_id=0)


def resumed(s: SimpleNamespace, step: int) -> None:
    seen = s.watch.state()
    state = {"pair": s.pair.state_dict(), "optimizer": s.optimizer.state_dict(), "scheduler": s.scheduler.state_dict()}
    s.run, state = go_on(s.run, step, state)
    s.pair.load_state_dict(state["pair"])
    s.optimizer, s.scheduler = make_optimizer(s.c, s.pair, s.steps)
    if s.bug != "both_towers_and_nothing_more_resumed":
        s.optimizer.load_state_dict(state["optimizer"])
        s.scheduler.load_state_dict(state["scheduler"])
    observe(s)
    s.watch.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, c = Trouble(fault, seed), SimpleNamespace(**run.config)
    s = SimpleNamespace(run=run, c=c, bug=trouble.name, steps=steps, kept=[])
    rows, s.held, s.prepare = make_data(c, seed, s.bug)
    torch.manual_seed(seed)
    s.pair = Pair(c)
    for name in filter(None, c.keep_fixed.split(",")):
        s.pair.get_submodule(name).requires_grad_(False)
    s.batches, s.scores, s.loss = make_batches(c, rows, seed, s.bug), make_scores(s.pair, s.bug), make_loss(c, s.bug)
    s.optimizer, s.scheduler = make_optimizer(c, s.pair, steps)
    s.mode, again = make_mode(s.pair, s.bug), trouble.resume_at(healthy, 5 * EVERY)
    observe(s)
    s.mode(True)
    for step in range(steps):
        if step == again:
            resumed(s, step)
        said = step_of(s, step)
        if step % c.log_every == 0:
            s.run.log(said, step=step)
        trouble.telemetry(s.run, step, healthy)
        if step % c.lineup_every == c.lineup_every - 1:
            s.run.log(line_up(s), step=step)
    return s.run
