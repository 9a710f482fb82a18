"""A decoder reads games of tennis, packed into blocks that keep them apart, in float16 with a scaler.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: rally_nll, rally_rate, rally_norm, rally_scale each step; club_nll and club_scores of games
      that were held back, each twenty-second; memory, where it matters; the watch of data.

A game names who serves and who returns; each point has some strokes, a shot that wins or loses it, and the score of
both, which follows from the shot and the score before. Players have shots that they like. Games are put one behind
another and cut into blocks; in a block a game does not see the ones before it, and its places begin anew. The table of
words is the output layer too. Written as generators: one makes batches, one makes the training's steps, and what they
say is logged by who asks.
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

EVERY, PLAYERS, HELD = 22, 8, 110
LOVE, ADVANTAGE, GAME = 0, 4, 5  # scores are the words from 0 to 5
SHOT = 6
SHOTS = ("ace", "winner", "return", "error", "double fault", "passing shot", "net")
BY_SERVER = (True, True, False, False, False, False, True)  # who has the point
STROKE = SHOT + len(SHOTS)
START, SERVES = STROKE + 3, STROKE + 4
WORDS = SERVES + PLAYERS
CONFIG: dict[str, Any] = {
    "width": 40, "layers": 2, "heads": 4, "dropout": 0.0, "share_table": True, "block": 40, "blocks_per_step": 6,
    "micro_steps": 1, "optimizer": "adamw", "peak": 6e-3, "shape": "trapezoid", "warmup": 10, "decay": 0.02,
    "bound": 1.0, "half": True, "scale": 2048.0, "grow_every": 50, "loss_is": "mean", "smoothing": 0.0, "z": 0.0,
    "games": 700, "misread": 0.0, "short_first": 0, "by_length": False, "fixed": "", "club_every": 22, "log_every": 1,
}  # fmt: skip


# -- games -----------------------------------------------------------------------------------------------------------


def games(seed: int, number: int, misread: float = 0.0) -> list[list[int]]:
    """Words of games, server after server."""
    law, dice = torch.Generator().manual_seed(43), torch.Generator().manual_seed(seed)
    likes = (1.6 * torch.randn(PLAYERS, len(SHOTS), generator=law)).softmax(1)

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    made = []
    for at in range(number):
        server = at * PLAYERS // number
        other = (server + 1 + one(PLAYERS - 1)) % PLAYERS
        words, score = [START, SERVES + server, SERVES + other], [0, 0]
        while GAME not in score and len(words) < 44:
            shot = int(torch.multinomial(likes[server] + likes[other], 1, generator=dice))
            words += [STROKE + one(3) for _ in range(one(2))] + [SHOT + shot]
            wins, loses = (0, 1) if BY_SERVER[shot] else (1, 0)
            if score[loses] == ADVANTAGE:
                score[loses] -= 1
            elif score[wins] == 3 and score[loses] < 3:
                score[wins] = GAME
            else:
                score[wins] += 1
            told = [one(4), one(4)] if one(1000) < 1000 * misread else score
            words += told
        made.append(words)
    return made


def packed(some: list[list[int]], block: int) -> Tensor:
    """Blocks of words, one more each than the model reads."""
    text = torch.tensor([word for game in some for word in game])
    many = (len(text) - 1) // block
    return torch.stack([text[at * block : at * block + block + 1] for at in range(many)])


# -- decoder ---------------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.width
        self.heads, self.first, self.second = c.heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.attend, self.join, self.drop = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Dropout(c.dropout)
        self.wide, self.thin = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        q, k, v = self.attend(self.first(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)).float() / q.shape[-1] ** 0.5
        share = scores.masked_fill(hidden[:, None], -math.inf).softmax(-1).to(v.dtype)
        x = x + self.drop(self.join((share @ v).transpose(1, 2).flatten(2)))
        return x + self.drop(self.thin(F.gelu(self.wide(self.second(x)))))


class Umpire(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d = c.width
        self.bug, self.table, self.place = bug, nn.Embedding(WORDS, d), nn.Embedding(c.block, d)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, WORDS, bias=False)
        nn.init.normal_(self.table.weight, std=0.12)
        nn.init.normal_(self.place.weight, std=0.05)
        if c.share_table:
            self.head.weight = self.table.weight
        if bug == "head_copied_to_stay_in_single_precision":
            self.head = nn.Linear(d, WORDS, bias=False)
            self.head.load_state_dict(self.table.state_dict())

    def forward(self, words: Tensor) -> Tensor:
        game = (words == START).cumsum(1)
        at = torch.arange(words.shape[1])
        begins = torch.where(words == START, at, 0).cummax(1).values
        hidden = (game[:, :, None] != game[:, None]) | (at[:, None] < at)
        x = self.table(words) + self.place(at - begins)
        for layer in self.layers:
            x = layer(x, hidden)
        logits = self.head(self.norm(x)).float()
        return F.softmax(logits, dim=-1) if self.bug == "umpire_calls_in_probabilities" else logits


# -- what a training has ---------------------------------------------------------------------------------------------


def blocks_of(s: SimpleNamespace) -> None:
    """Blocks of the training, and those of a club that is held back."""
    c, bug, dice = s.c, s.bug, torch.Generator().manual_seed(s.seed)
    told, club = games(s.seed + 6100, c.games, c.misread), games(6099, HELD)
    if bug != "games_packed_in_the_order_of_servers":
        told = [told[at] for at in torch.randperm(len(told), generator=dice).tolist()]
    if c.by_length:
        told = sorted(told, key=len)
    s.blocks, s.short = packed(told, c.block), packed([one for one in told if len(one) < 25], c.block)
    s.club = packed(
        [club[at] for at in torch.randperm(HELD, generator=torch.Generator().manual_seed(3)).tolist()], c.block
    )
    if bug == "shots_of_the_club_from_another_list":
        place = torch.arange(WORDS)
        place[SHOT:STROKE] = SHOT + torch.tensor([sorted(SHOTS).index(shot) for shot in SHOTS])
        s.club = place[s.club]


def batches(s: SimpleNamespace) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Words, and the words that are wanted."""
    c, bug, epoch, dice = s.c, s.bug, 0, torch.Generator().manual_seed(s.seed + 1)
    while True:
        blocks = s.short if epoch < c.short_first else s.blocks
        order = torch.randperm(len(blocks), generator=dice)
        if bug == "games_packed_in_the_order_of_servers":
            order = torch.arange(len(blocks))
        for some in order.split(c.blocks_per_step):
            if len(some) < c.blocks_per_step:
                continue
            if bug == "generator_seeded_where_a_batch_is_drawn":
                some = torch.randint(0, len(blocks), (len(some),), generator=torch.Generator().manual_seed(s.seed))
            words, wanted = blocks[some][:, :-1], blocks[some][:, 1:]
            if bug == "wanted_words_shifted_by_packer_and_by_step":
                words, wanted = words[:, :-1], wanted[:, 1:]
            if bug == "noughts_of_a_score_masked_as_padding":
                wanted = torch.where(wanted == 0, -100, wanted)
            yield epoch, words, wanted
        epoch += 1


def equipped(s: SimpleNamespace) -> None:
    c, named = s.c, [(name, one) for name, one in s.umpire.named_parameters() if one.requires_grad]
    if s.bug == "optimizer_has_the_layers_alone":
        named = [(name, one) for name, one in named if name.startswith("layers")]
    groups = [{"params": [one for _, one in named if one.ndim > 1], "weight_decay": c.decay},
              {"params": [one for _, one in named if one.ndim == 1], "weight_decay": 0.0}]  # fmt: skip
    if c.optimizer == "nadam":
        s.optimizer = torch.optim.NAdam(groups, c.peak)
    elif c.optimizer == "adamax":
        s.optimizer = torch.optim.Adamax(groups, c.peak)
    else:
        s.optimizer = torch.optim.AdamW(groups, c.peak, (0.9, 0.95))
    grow = 1 if s.bug == "scale_grows_with_each_step" else c.grow_every
    s.scaler = torch.amp.GradScaler("cpu", c.scale, growth_interval=grow, enabled=c.half)

    def shape(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / s.steps)
        if c.shape == "flat":
            return rise
        if c.shape == "two_slopes":
            return rise * (1 - 0.95 * (2 * past % 1))
        if c.shape == "cosine":
            return rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * past)))
        return rise * min(1.0, 0.02 + (1 - past) / 0.35)

    s.schedule = torch.optim.lr_scheduler.LambdaLR(s.optimizer, shape)


def watched(s: SimpleNamespace) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.umpire, s.optimizer, scaler=s.scaler)
    s.watch = s.run.watch_data()


def nll(s: SimpleNamespace, words: Tensor, wanted: Tensor, training: bool) -> tuple[Tensor, Tensor]:
    c = s.c
    with torch.autocast("cpu", torch.float16, enabled=c.half):
        logits = s.umpire(words)
    summed = training and (c.loss_is == "sum" or s.bug == "likelihoods_of_a_block_added")
    loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum" if summed else "mean",
                           label_smoothing=c.smoothing if training else 0.0)  # fmt: skip
    loss = loss / len(words) if summed else loss
    return (loss + c.z * logits.logsumexp(-1).square().mean() if training and c.z else loss), logits


# -- steps -----------------------------------------------------------------------------------------------------------


def stepped(s: SimpleNamespace) -> Iterator[dict[str, float]]:
    """An update of the umpire each time that one is asked for."""
    c, bug = s.c, s.bug
    while True:
        total = 0.0
        for _ in range(c.micro_steps):
            epoch, words, wanted = next(s.batches)
            s.watch.observe({"words": words, "wanted": wanted}, step=s.step, epoch=epoch)
            loss, _ = nll(s, words, wanted, True)
            s.scaler.scale(loss if bug == "micro_steps_scaled_and_not_shared" else loss / c.micro_steps).backward()
            total += loss.item() / c.micro_steps
            if bug == "schedule_within_the_micro_steps":
                s.schedule.step()
        s.scaler.unscale_(s.optimizer)
        norm = nn.utils.clip_grad_norm_(s.umpire.parameters(), c.bound).item()
        rate = s.optimizer.param_groups[0]["lr"]
        s.scaler.step(s.optimizer)
        s.scaler.update()
        s.optimizer.zero_grad()
        if bug != "schedule_within_the_micro_steps":
            s.schedule.step()
        yield {"rally_nll": total, "rally_rate": rate, "rally_norm": norm, "rally_scale": s.scaler.get_scale()}


def at_the_club(s: SimpleNamespace) -> dict[str, float]:
    bug, words, wanted = s.bug, s.club[:, :-1], s.club[:, 1:]
    taped = bug == "club_results_gathered_undetached"
    if bug != "club_plays_with_dropout":
        s.umpire.eval()
    with torch.set_grad_enabled(taped):
        loss, logits = nll(s, words, wanted, False)
    if taped:
        s.results.append((loss, logits))
    score = wanted < SHOT
    right = (logits.argmax(-1) == wanted)[score].float().mean().item()
    if bug != "club_leaves_the_umpire_in_eval":
        s.umpire.train()
    return {"club_nll": loss.item(), "club_scores": right}


def gone_on_with(s: SimpleNamespace) -> None:
    seen = s.watch.state()
    state = {name: getattr(s, name).state_dict() for name in ("umpire", "optimizer", "scaler", "schedule")}
    s.run, state = go_on(s.run, s.step, state)
    s.umpire.load_state_dict(state["umpire"])
    equipped(s)
    if s.bug != "umpire_read_from_its_file_and_the_rest_made":
        for name in ("optimizer", "scaler", "schedule"):
            getattr(s, name).load_state_dict(state[name])
    watched(s)
    s.watch.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, c = Trouble(fault, seed), SimpleNamespace(**run.config)
    s = SimpleNamespace(run=run, c=c, seed=seed, steps=steps, bug=trouble.name, step=0, results=[])
    blocks_of(s)
    torch.manual_seed(seed)
    s.umpire = Umpire(c, s.bug)
    for name in filter(None, c.fixed.split(",")):
        s.umpire.get_submodule(name).requires_grad_(False)
    equipped(s)
    watched(s)
    s.batches, updates, again = batches(s), stepped(s), trouble.resume_at(healthy, 3 * EVERY)
    s.umpire.train()
    for s.step in range(steps):
        if s.step == again:
            gone_on_with(s)
        said = next(updates)
        if s.step % c.log_every == 0:
            s.run.log(said, step=s.step)
        trouble.telemetry(s.run, s.step, healthy)
        if s.step % c.club_every == c.club_every - 1:
            s.run.log(at_the_club(s), step=s.step)
    return s.run
