"""Two towers learn which song a listener hears next, against the other songs of a batch.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: inbatch_softmax, inbatch_hit, temperature, step_size, grad_size each step;
      offline_softmax, offline_hit and offline_recall_5 of sessions that were held back, each seventeenth; memory, where
      it matters; the watch of data.

A session is up to six songs that were heard, by their artists, and the hour; the song that comes next has an artist, a
genre, and five measures, each in its own unit. Several sessions may be of one listener. Measures are scaled by figures
of the catalogue and go through a batch norm; artists have one table, of which both towers read. A song that is heard
often is often among the others of a batch: the logarithm of its share is taken off in the training. The same song twice
in a batch is no other to itself. Written as steps that take a state and give the next one.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, SONGS, ARTISTS, GENRES, MARKETS, HEARD, HELD, TRAITS = 17, 480, 60, 8, 5, 6, 240, 5
MEASURES = ("beats a minute", "loudness", "energy", "seconds", "year")
CONFIG: dict[str, Any] = {
    "artist_dim": 24, "hidden": 48, "out_dim": 24, "dropout": 0.0, "item_norm": "batch", "share_artists": True,
    "batch_size": 64, "slices": 1, "optimizer": "adagrad", "learning_rate": 0.04, "lr_decay": "rsqrt",
    "lr_warmup": 6, "weight_decay": 0.0, "grad_bound": 5.0, "reduction": "mean", "init_temperature": 0.15,
    "learn_temperature": True, "logq": True, "tower_rate": 1.0, "sessions": 2400,
    "sessions_of_a_listener": 1, "stray_plays": 0.0, "popular_first": 0, "drop_history": 0.0, "market_batches": False,
    "frozen": "", "offline_every": 17, "log_every": 1,
}  # fmt: skip
Rows = dict[str, Tensor]


# -- songs and sessions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Catalogue:
    artist: Tensor
    genre: Tensor
    measures: Tensor
    trait: Tensor
    plays: Tensor


def catalogue() -> Catalogue:
    """Songs, the same for every training."""
    dice = torch.Generator().manual_seed(111)
    genres = 1.3 * torch.randn(GENRES, TRAITS, generator=dice)
    genre_of = torch.randint(0, GENRES, (ARTISTS,), generator=dice)
    artists = genres[genre_of] + 0.7 * torch.randn(ARTISTS, TRAITS, generator=dice)
    artist = torch.randint(0, ARTISTS, (SONGS,), generator=dice)
    trait = artists[artist] + 0.6 * torch.randn(SONGS, TRAITS, generator=dice)
    measures = torch.tensor([118.0, -8, 0.6, 215, 2004]) + torch.tensor([16.0, 2.5, 0.12, 32, 7]) * trait
    plays = torch.exp(0.8 * torch.randn(SONGS, generator=dice))
    return Catalogue(artist, genre_of[artist], measures, trait, plays / plays.sum())


def sessions(seed: int, number: int, songs: Catalogue, each: int = 1, stray: float = 0.0) -> Rows:
    """Artists that were heard (0 is none), hours, the next song, markets and listeners; market after market."""
    law, dice, many = torch.Generator().manual_seed(113), torch.Generator().manual_seed(seed), number // each
    markets = 1.1 * torch.randn(MARKETS, TRAITS, generator=law)
    market = torch.arange(many) * MARKETS // many
    taste = markets[market] + 0.9 * torch.randn(many, TRAITS, generator=dice)
    market, taste, listener = (one.repeat_interleave(each, 0) for one in (market, taste, torch.arange(many)))
    hour = torch.randint(0, 24, (len(taste),), generator=dice)
    calm = torch.zeros(TRAITS)
    calm[0] = 0.8
    wish = taste + (2 * math.pi * (hour - 14) / 24).cos()[:, None] * calm
    fit = -1.4 * ((wish[:, None] - songs.trait) ** 2).sum(2) + songs.plays.log()
    played = torch.multinomial(fit.softmax(1), HEARD + 1, generator=dice)
    lost = torch.rand(len(taste), generator=dice) < stray
    played[lost, -1] = torch.multinomial(songs.plays, int(lost.sum()) + 1, True, generator=dice)[1:]
    heard = 1 + songs.artist[played[:, :-1]]
    heard *= torch.arange(HEARD) < torch.randint(3, HEARD + 1, (len(taste), 1), generator=dice)
    return {"heard": heard, "hour": hour, "song": played[:, -1], "market": market, "listener": listener}


def taken(rows: Rows, some: Tensor) -> Rows:
    return {name: one[some] for name, one in rows.items()}


# -- towers ----------------------------------------------------------------------------------------------------------


class ItemNorm(nn.BatchNorm1d):
    """A batch norm; or one whose training is written out, which keeps nothing of what it sees."""

    written_out = False

    def forward(self, x: Tensor) -> Tensor:
        if self.written_out and self.training:
            return (x - x.mean(0)) / (x.var(0, unbiased=False) + self.eps).sqrt() * self.weight + self.bias
        return super().forward(x)


class Listener(nn.Module):
    def __init__(self, c: Any, artists: nn.Embedding):
        super().__init__()
        self.artists, self.hours = artists, nn.Embedding(24, c.artist_dim)
        self.body = nn.Sequential(
            nn.Linear(2 * c.artist_dim, c.hidden), nn.ReLU(), nn.Dropout(c.dropout), nn.Linear(c.hidden, c.out_dim)
        )

    def forward(self, rows: Rows) -> Tensor:
        there = (rows["heard"] > 0).float()[..., None]
        heard = (self.artists(rows["heard"]) * there).sum(1) / there.sum(1)
        return self.body(torch.cat([heard, self.hours(rows["hour"])], 1))


class Song(nn.Module):
    def __init__(self, c: Any, artists: nn.Embedding):
        super().__init__()
        self.artists, self.genres = artists, nn.Embedding(GENRES, c.artist_dim)
        self.measures = nn.Linear(len(MEASURES), c.artist_dim)
        self.norm = ItemNorm(c.artist_dim) if c.item_norm == "batch" else nn.LayerNorm(c.artist_dim)
        self.body = nn.Sequential(
            nn.Linear(2 * c.artist_dim, c.hidden), nn.ReLU(), nn.Dropout(c.dropout), nn.Linear(c.hidden, c.out_dim)
        )

    def forward(self, artist: Tensor, genre: Tensor, measures: Tensor) -> Tensor:
        told = self.norm(self.measures(measures)) + self.genres(genre)
        return self.body(torch.cat([self.artists(1 + artist), told], 1))


class TwoTowers(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        artists = nn.Embedding(1 + ARTISTS, c.artist_dim, padding_idx=0)
        apart = not c.share_artists or bug == "artists_of_songs_are_a_copy_of_the_table"
        self.listener, self.song = Listener(c, artists), Song(c, copy.deepcopy(artists) if apart else artists)
        self.log_temperature = nn.Parameter(
            torch.tensor(math.log(c.init_temperature)), requires_grad=c.learn_temperature
        )
        self.bug = bug
        if bug == "norm_of_the_training_written_out_by_hand":
            self.song.norm.written_out = True

    def scores(self, rows: Rows, artist: Tensor, genre: Tensor, measures: Tensor) -> Tensor:
        listeners = self.listener(rows)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.bug != "songs_embedded_as_for_the_index"):
            songs = F.normalize(self.song(artist, genre, measures), dim=1)
        if self.bug != "lengths_of_listeners_left_in":
            listeners = F.normalize(listeners, dim=1)
        return listeners @ songs.T / self.log_temperature.exp().clamp(min=0.02)


# -- state -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainState:
    """What a step takes and gives."""

    step: int
    towers: TwoTowers
    optimizer: Any
    schedule: Any
    run: Any
    watch: Any


def optimizer_for(c: Any, towers: TwoTowers, steps: int) -> tuple[Any, Any]:
    named = [(name, one) for name, one in towers.named_parameters() if one.requires_grad]
    groups = [
        {"params": [one for name, one in named if name.startswith("song.")], "lr": c.learning_rate * c.tower_rate},
        {"params": [one for name, one in named if not name.startswith("song.")], "lr": c.learning_rate},
    ]
    groups = [group for group in groups if group["params"]]
    if c.optimizer == "adam":
        optimizer: Any = torch.optim.Adam(groups, c.learning_rate)
    elif c.optimizer == "sgd":
        optimizer = torch.optim.SGD(groups, c.learning_rate, 0.9)
    else:
        optimizer = torch.optim.Adagrad(groups, c.learning_rate, weight_decay=c.weight_decay,
                                        initial_accumulator_value=0.01)  # fmt: skip

    def by(at: int) -> float:
        rise = min(1.0, (at + 1) / max(1, c.lr_warmup))
        if c.lr_decay == "none":
            return rise
        if c.lr_decay == "stairs":
            return rise * 0.5 ** (4 * min(at, steps - 1) // steps)
        if c.lr_decay == "linear_twice":
            return rise * (1 - 0.95 * (2 * min(1.0, at / steps) % 1))
        return rise / (1 + max(0, at - c.lr_warmup) / 40) ** 0.5

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, by)


def watched(run: Any, towers: TwoTowers, optimizer: Any) -> Any:
    time_by_own_clock(run)
    run.watch(towers, optimizer)
    return run.watch_data(pad_id=0)


# -- what the steps see ----------------------------------------------------------------------------------------------


class Feed:
    """Sessions and songs, scaled, of the training and offline."""

    def __init__(self, c: Any, seed: int, bug: str):
        self.c, self.bug, self.songs, self.dice = c, bug, catalogue(), torch.Generator().manual_seed(seed)
        rows = sessions(seed + 1500, c.sessions, self.songs, c.sessions_of_a_listener, c.stray_plays)
        held = sessions(1499, HELD, self.songs)
        if bug == "sessions_of_a_listener_on_both_sides":
            order = torch.randperm(len(rows["song"]), generator=torch.Generator().manual_seed(seed))
            rows, held = taken(rows, order[HELD:].sort().values), taken(rows, order[:HELD].sort().values)
        if bug == "next_song_by_a_shift_over_all_listeners":
            rows["song"] = rows["song"].roll(-1)
        if bug == "offline_songs_by_the_numbers_of_last_month":
            held["song"] = (held["song"] + 1) % SONGS  # a song was taken down since
        held = taken(held, torch.randperm(HELD, generator=torch.Generator().manual_seed(5)))
        self.rows, self.held = rows, held
        mean, std = self.songs.measures.mean(0), self.songs.measures.std(0)
        self.measures, offline = (self.songs.measures - mean) / std, self.songs.measures
        if bug == "offline_lengths_in_milliseconds":
            offline = offline * torch.tensor([1.0, 1, 1, 1000, 1])
        self.offline = (offline - mean) / std

    def batches(self) -> Iterator[tuple[int, Rows]]:
        c, epoch = self.c, 0
        while True:
            order = torch.randperm(len(self.rows["song"]), generator=self.dice)
            if self.bug == "log_of_plays_read_market_after_market":
                order = torch.arange(len(order))
            if epoch < c.popular_first:
                order = order[self.songs.plays[self.rows["song"][order]] > 1.5 / SONGS]
            if c.market_batches:  # others are of the same market: harder ones
                order = order[self.rows["market"][order].argsort(stable=True)]
            lots = [one for one in order.split(c.batch_size) if len(one) == c.batch_size]
            if c.market_batches:
                lots = [lots[at] for at in torch.randperm(len(lots), generator=self.dice).tolist()]
            for some in lots:
                rows = taken(self.rows, some)
                if c.drop_history:
                    lost = torch.rand(rows["heard"].shape, generator=self.dice) < c.drop_history
                    lost[:, 0] = False
                    rows["heard"] = torch.where(lost, 0, rows["heard"])
                yield epoch, rows
            epoch += 1

    def scores(self, towers: TwoTowers, rows: Rows, training: bool) -> Tensor:
        song, songs, bug = rows["song"], self.songs, self.bug
        measures = self.measures if training else self.offline
        scores = towers.scores(rows, songs.artist[song], songs.genre[song], measures[song])
        if training and self.c.logq:
            share = songs.plays[song].log()
            scores = scores + share if bug == "popularity_added_and_not_taken_off" else scores - share
        hits = (song[:, None] == song) & ~torch.eye(len(song), dtype=torch.bool)
        return scores.masked_fill(hits, -1e4)


def softmax_loss(scores: Tensor, c: Any, bug: str, training: bool) -> Tensor:
    if bug == "scores_softmaxed_before_cross_entropy":
        scores = scores.softmax(1)
    summed = training and (c.reduction == "sum" or bug == "sessions_of_a_batch_summed")
    return F.cross_entropy(scores, torch.arange(len(scores)), reduction="sum" if summed else "mean")


# -- steps -----------------------------------------------------------------------------------------------------------


def train_step(state: TrainState, feed: Feed, batches: Any) -> tuple[TrainState, dict[str, float]]:
    c, bug, total, hit = feed.c, feed.bug, 0.0, 0.0
    for _ in range(c.slices):
        epoch, rows = next(batches)
        state.watch.observe({"heard": rows["heard"], "song": rows["song"]}, step=state.step, epoch=epoch)
        scores = feed.scores(state.towers, rows, True)
        loss = softmax_loss(scores, c, bug, True)
        (loss if bug == "slices_backed_without_their_share" else loss / c.slices).backward()
        total += loss.item() / c.slices
        hit += (scores.argmax(1) == torch.arange(len(scores))).float().mean().item() / c.slices
        if bug == "decay_goes_on_with_each_slice":
            state.schedule.step()
    size = nn.utils.clip_grad_norm_(state.towers.parameters(), c.grad_bound).item()
    rate = state.optimizer.param_groups[-1]["lr"]
    state.optimizer.step()
    state.optimizer.zero_grad()
    if bug != "decay_goes_on_with_each_slice":
        state.schedule.step()
    said = {"inbatch_softmax": total, "inbatch_hit": hit, "temperature": state.towers.log_temperature.exp().item(),
            "step_size": rate, "grad_size": size}  # fmt: skip
    return replace(state, step=state.step + 1), said


def eval_step(state: TrainState, feed: Feed, kept: list[Any]) -> dict[str, float]:
    """Held sessions in batches as large as the training's, and against all songs."""
    bug, towers, songs = feed.bug, state.towers, feed.songs
    taped = bug == "offline_scores_kept_for_a_report"
    if bug != "offline_while_towers_drop":
        towers.eval()
    with torch.set_grad_enabled(taped):
        lots = [taken(feed.held, some) for some in torch.arange(HELD).split(60)]
        tables = [feed.scores(towers, rows, False) for rows in lots]
        loss = torch.stack([softmax_loss(table, feed.c, bug, False) for table in tables]).mean()
        every = towers.scores(feed.held, songs.artist, songs.genre, feed.offline)
    if taped:
        kept.append((loss, every))
    hit = torch.cat([table.argmax(1) == torch.arange(len(table)) for table in tables]).float().mean()
    recall = (every.topk(5, 1).indices == feed.held["song"][:, None]).any(1).float().mean()
    if bug != "offline_and_then_no_train":
        towers.train()
    return {"offline_softmax": loss.item(), "offline_hit": hit.item(), "offline_recall_5": recall.item()}


def restored(state: TrainState, c: Any, steps: int) -> TrainState:
    seen = state.watch.state()
    saved = {"towers": state.towers.state_dict(), "optimizer": state.optimizer.state_dict(),
             "schedule": state.schedule.state_dict()}  # fmt: skip
    run, saved = go_on(state.run, state.step, saved)
    state.towers.load_state_dict(saved["towers"])
    optimizer, schedule = optimizer_for(c, state.towers, steps)
    optimizer.load_state_dict(saved["optimizer"])
    schedule.load_state_dict(saved["schedule"])
    watch = watched(run, state.towers, optimizer)
    watch.restore(seen)
    return replace(state, optimizer=optimizer, schedule=schedule, run=run, watch=watch)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, c, kept = Trouble(fault, seed), SimpleNamespace(**run.config), []
    feed = Feed(c, seed, trouble.name)
    torch.manual_seed(seed)
    towers = TwoTowers(c, trouble.name)
    for name in filter(None, c.frozen.split(",")):
        towers.get_submodule(name).requires_grad_(False)
    optimizer, schedule = optimizer_for(c, towers, steps)
    state = TrainState(0, towers, optimizer, schedule, run, watched(run, towers, optimizer))
    batches, again = feed.batches(), trouble.resume_at(healthy, 4 * EVERY)
    towers.train()
    while state.step < steps:
        if state.step == again:
            state = restored(state, c, steps)
        state, said = train_step(state, feed, batches)
        step = state.step - 1
        if step % c.log_every == 0:
            state.run.log(said, step=step)
        trouble.telemetry(state.run, step, healthy)
        if step % c.offline_every == c.offline_every - 1:
            state.run.log(eval_step(state, feed, kept), step=step)
    return state.run
