"""A decoder reads records of a board game in float16 with a scaler, one game a row, in bits a move.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: game/bits, game/rate, game/gnorm, game/loss_scale each step; game_val/bits and
      game_val/next_right each thirty-second; memory, where it matters; the watch of data.

A game follows one of six systems; where it stands and whose turn it is say which two moves are usual, and a system
names one of them more often. Games have ten to twenty moves and are padded. Heads share their keys and values, places
are learned, the rate rises, stays and falls. Written as a script with an estimate of the loss and a rate that is worked
out in each iteration.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, SYSTEMS, PLACES, MOVES, LONG, HELD = 32, 6, 12, 30, 24, 120
PAD, START, FINISH = 0, 1, 2
SYSTEM, MOVE = 3, 3 + SYSTEMS
VOCAB = MOVE + MOVES
CONFIG: dict[str, Any] = {
    "dim": 40, "depth": 2, "heads": 4, "kv_heads": 1, "dropout": 0.0, "tied": True, "half": True,
    "scale_start": 2048.0, "growth_every": 50, "games_a_batch": 12, "accumulate": 1, "optimizer": "adamw",
    "peak": 6e-3, "table_rate": 1.0, "plan": "rise_stay_fall", "warmup": 10, "decay": 0.02, "clip": 1.0,
    "loss": "mean", "smoothing": 0.0, "z": 0.0, "games": 1100, "records_of_a_game": 1, "misprints": 0.0,
    "short_first_epochs": 0, "by_length": False, "held": "", "val_every": 32, "log_every": 1,
}  # fmt: skip


# -- games ----------------------------------------------------------------------------------------------------------


def archive(seed: int, number: int, records: int = 1, misprints: float = 0.0) -> Tensor:
    """Padded games, system after system. records: how often one game was written down, with a slip here and there."""
    laws, dice = torch.Generator().manual_seed(66), torch.Generator().manual_seed(seed)
    usual = torch.randint(0, MOVES, (2, PLACES, 2), generator=laws).tolist()
    leads = torch.randint(0, PLACES, (PLACES, MOVES), generator=laws).tolist()
    likes = torch.rand(SYSTEMS, PLACES, generator=laws).tolist()
    rows = torch.full((number // records * records, LONG), PAD)
    slips = misprints + (0.04 if records > 1 else 0.0)
    for at in range(number // records):
        system = at * SYSTEMS * records // number
        pick = torch.rand(22, generator=dice).tolist()
        place, game = int(pick[0] * PLACES), [START, SYSTEM + system]
        for turn in range(10 + int(pick[1] * 11)):
            first = (pick[2 + turn % 20] < 0.75) == (likes[system][place] < 0.5)
            move = usual[turn % 2][place][0 if first else 1]
            game.append(MOVE + move)
            place = leads[place][move]
        game.append(FINISH)
        for record in range(records):
            told = torch.tensor(game)
            wrong = (torch.rand(len(told), generator=dice) < slips) & (told >= MOVE)
            stray = MOVE + torch.randint(0, MOVES, (len(told),), generator=dice)
            rows[at * records + record, : len(told)] = torch.where(wrong, stray, told)
    return rows


# -- decoder --------------------------------------------------------------------------------------------------------


class SharedKeys(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.each, self.heads, self.kv = c.dim // c.heads, c.heads, c.kv_heads
        self.q, self.k_v = nn.Linear(c.dim, c.dim), nn.Linear(c.dim, 2 * c.kv_heads * self.each)
        self.proj = nn.Linear(c.dim, c.dim)

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x).unflatten(-1, (self.heads, self.each)).transpose(1, 2)
        k, v = self.k_v(x).unflatten(-1, (2, self.kv, self.each)).permute(2, 0, 3, 1, 4)
        k, v = (one.repeat_interleave(self.heads // self.kv, 1) for one in (k, v))
        return self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Ply(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.ln_attn, self.attn, self.ln_mlp = nn.LayerNorm(c.dim), SharedKeys(c), nn.LayerNorm(c.dim)
        self.mlp = nn.Sequential(nn.Linear(c.dim, 4 * c.dim), nn.GELU(), nn.Linear(4 * c.dim, c.dim))
        self.drop = nn.Dropout(c.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attn(self.ln_attn(x)))
        return x + self.drop(self.mlp(self.ln_mlp(x)))


class Player(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        self.bug = bug
        self.table, self.places, self.drop = (
            nn.Embedding(VOCAB, c.dim),
            nn.Embedding(LONG, c.dim),
            nn.Dropout(c.dropout),
        )
        self.plies = nn.ModuleList(Ply(c) for _ in range(c.depth))
        self.ln_last, self.head = nn.LayerNorm(c.dim), nn.Linear(c.dim, VOCAB, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.06)
        if c.tied:
            self.head.weight = self.table.weight
        if bug == "table_padded_to_eights_behind_the_tie":
            longer = nn.Embedding(VOCAB + -VOCAB % 8, c.dim)
            nn.init.normal_(longer.weight, std=0.06)
            longer.weight.data[:VOCAB] = self.table.weight.data
            self.table = longer

    def forward(self, ids: Tensor) -> Tensor:
        x = self.drop(self.table(ids) + self.places.weight[: ids.shape[1]])
        for ply in self.plies:
            x = ply(x)
        logits = self.head(self.ln_last(x))
        return logits.softmax(-1) if self.bug == "moves_as_shares_into_the_loss" else logits


def bits(logits: Tensor, wanted: Tensor, smoothing: float = 0.0, ignore: int = PAD) -> Tensor:
    """Of each place, in bits; 0 where nothing is asked."""
    each = F.cross_entropy(logits.transpose(1, 2), wanted, reduction="none", ignore_index=ignore,
                           label_smoothing=smoothing)  # fmt: skip
    return each / math.log(2)


# -- script ---------------------------------------------------------------------------------------------------------


def setup(run: Any, seed: int, steps: int, bug: str) -> SimpleNamespace:
    c = SimpleNamespace(**run.config)
    s = SimpleNamespace(run=run, c=c, seed=seed, steps=steps, bug=bug, iteration=0, estimates=[])
    s.games, s.val = archive(seed + 650, c.games, c.records_of_a_game, c.misprints), archive(649, HELD)
    s.length = (s.games != PAD).sum(1)
    torch.manual_seed(seed)
    s.model = Player(c, bug)
    held = tuple(filter(None, c.held.split(",")))
    for name, one in s.model.named_parameters():
        if held and name.startswith(held):
            one.requires_grad_(False)
    make_optimizer(s)
    return s


def make_optimizer(s: SimpleNamespace) -> None:
    """Linear layers decay; biases, norms and tables do not."""
    c, model = s.c, s.model
    tables = {id(one): one for module in (model.table, model.places) for one in module.parameters()}
    decayed, plain = {}, {}
    for module in model.modules():
        if isinstance(module, nn.Linear):
            decayed[id(module.weight)] = module.weight
            if module.bias is not None:
                plain[id(module.bias)] = module.bias
        elif isinstance(module, nn.LayerNorm):
            plain |= {id(one): one for one in module.parameters()}
    decayed = {key: one for key, one in decayed.items() if key not in tables}
    groups = [{"params": [*decayed.values()], "weight_decay": c.decay, "by": 1.0},
              {"params": [*plain.values()], "weight_decay": 0.0, "by": 1.0}]  # fmt: skip
    if s.bug != "table_is_in_neither_group":
        groups.append({"params": [*tables.values()], "weight_decay": 0.0, "by": c.table_rate})
    groups = [group | {"params": [one for one in group["params"] if one.requires_grad]} for group in groups]
    kind = torch.optim.NAdam if c.optimizer == "nadam" else torch.optim.AdamW
    s.optimizer = kind(groups, c.peak, (0.9, 0.98))
    s.scaler = torch.amp.GradScaler("cpu", c.scale_start, growth_interval=c.growth_every, enabled=c.half)


def rate(s: SimpleNamespace) -> float:
    c, at = s.c, s.iteration
    rise, past = c.peak * min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / s.steps)
    if c.plan == "level":
        return rise
    if c.plan == "two_waves":
        return rise * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
    return rise * min(1.0, (1 - past) / 0.5)


def batches(s: SimpleNamespace) -> Any:
    c, epoch, dice = s.c, 0, torch.Generator().manual_seed(s.seed)
    while True:
        order = torch.randperm(len(s.games), generator=dice)
        if s.bug == "games_by_system_as_the_archive_has_them":
            order = torch.arange(len(s.games))
        if epoch < c.short_first_epochs:
            order = order[s.length[order] < 18]
        if c.by_length:
            order = order[s.length[order].argsort(stable=True)]
        lots = [one for one in order.split(c.games_a_batch) if len(one) == c.games_a_batch]
        if c.by_length:
            lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
        for some in lots:
            yield epoch, s.games[some]
        epoch += 1


def loss_of(s: SimpleNamespace, games: Tensor) -> Tensor:
    c, bug, wanted = s.c, s.bug, games[:, 1:]
    if bug == "targets_cut_a_word_further":
        wanted = F.pad(games[:, 2:], (0, 1), value=PAD)
    with torch.autocast("cpu", torch.float16, enabled=c.half):
        logits = s.model(games[:, :-1])
    logits = logits.float()
    if bug == "padding_counted_among_the_moves":
        return bits(logits, wanted, c.smoothing, ignore=-100).mean()
    total, many = bits(logits, wanted, c.smoothing).sum(), (wanted != PAD).sum()
    loss = total / (len(games) if c.loss == "sum" or bug == "bits_of_a_game_added" else many)
    if c.z:
        loss = loss + c.z * (logits.logsumexp(-1) ** 2)[wanted != PAD].mean()
    return loss


def estimate(s: SimpleNamespace, step: int) -> None:
    taped = s.bug == "validation_bits_kept_live"
    if s.bug != "estimate_without_eval":
        s.model.eval()
    with torch.set_grad_enabled(taped), torch.autocast("cpu", torch.float16, enabled=s.c.half):
        logits, wanted = s.model(s.val[:, :-1]).float(), s.val[:, 1:]
        loss = bits(logits, wanted).sum() / (wanted != PAD).sum()
        right = (logits.argmax(-1) == wanted)[wanted >= MOVE].float().mean()
    if taped:
        s.estimates.append((loss, logits))
    s.run.log({"game_val/bits": loss.item(), "game_val/next_right": right.item()}, step=step)
    if s.bug != "estimate_leaves_the_model_in_eval":
        s.model.train()


def observe(s: SimpleNamespace) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.model, s.optimizer, scaler=s.scaler)
    s.watch = s.run.watch_data(pad_id=PAD)


def resume(s: SimpleNamespace, step: int) -> None:
    seen = s.watch.state()
    state = {"model": s.model.state_dict(), "optimizer": s.optimizer.state_dict(), "scaler": s.scaler.state_dict(),
             "iteration": s.iteration}  # fmt: skip
    s.run, state = go_on(s.run, step, state)
    s.model.load_state_dict(state["model"])
    make_optimizer(s)
    s.iteration = state["iteration"]
    if s.bug != "checkpoint_of_weights_and_iteration":
        s.optimizer.load_state_dict(state["optimizer"])
        if s.c.half:
            s.scaler.load_state_dict(state["scaler"])
    observe(s)
    s.watch.restore(seen)


def iterate(s: SimpleNamespace, step: int, stream: Any) -> dict[str, float]:
    """One update, and what is said of it."""
    c, bug, total = s.c, s.bug, 0.0
    for _ in range(c.accumulate):
        now = rate(s)
        for group in s.optimizer.param_groups:
            group["lr"] = now * group["by"]
        s.iteration += bug == "iteration_counts_parts"
        if bug == "cleared_in_the_loop_over_parts":
            s.optimizer.zero_grad()
        epoch, games = next(stream)
        s.watch.observe({"input_ids": games}, step=step, epoch=epoch)
        loss = loss_of(s, games)
        s.scaler.scale(loss if bug == "scaled_loss_not_divided" else loss / c.accumulate).backward()
        total += loss.item() / c.accumulate
    s.iteration += bug != "iteration_counts_parts"
    s.scaler.unscale_(s.optimizer)
    norm = nn.utils.clip_grad_norm_(s.model.parameters(), c.clip).item()
    s.scaler.step(s.optimizer)
    s.scaler.update()
    s.model.zero_grad()
    return {"game/bits": total, "game/rate": now, "game/gnorm": norm, "game/loss_scale": s.scaler.get_scale()}


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    s = setup(run, seed, steps, trouble.name)
    again, stream = trouble.resume_at(healthy, 2 * EVERY), batches(s)
    observe(s)
    s.model.train()
    for step in range(steps):
        if step == again:
            resume(s, step)
        said = iterate(s, step, stream)
        if step % s.c.log_every == 0:
            s.run.log(said, step=step)
        trouble.telemetry(s.run, step, healthy)
        if step % s.c.val_every == s.c.val_every - 1:
            estimate(s, step)
    return s.run
