"""A decoder reads games of dominoes, cut out of one long text in windows, in float16 with a scaler.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss_lm, lr_lm, gnorm_lm, amp_scale each step; dev_loss_lm and dev_legal of games that were
      held back, each twenty-first; memory, where it matters; the watch of data.

A game names a house and opens with a tile; each move says at which end it is, the pips that touch, which are those of
that end, and the pips that are open from there on; at times somebody has to pass. Houses have pips that they like. In
the games of the evaluation nobody passes. Attention has a slope for the distance in the place of positions, and runs
beside the network of its block; the table of words is the output layer too. Written as a flat script: batches are cut
out of the text, and the rate is worked out and set by hand in each iteration.
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

EVERY, HOUSES, HELD = 21, 6, 90
PASS, PIP, PIPS = 0, 1, 7  # as characters sort: "-" is before the digits, and letters are behind them
LEFT, RIGHT, START = PIP + PIPS, PIP + PIPS + 1, PIP + PIPS + 2
HOUSE = START + 1
WORDS = HOUSE + HOUSES
CONFIG: dict[str, Any] = {
    "n_embd": 40, "n_layer": 2, "n_head": 4, "dropout": 0.0, "tie": True, "block_size": 36, "stride": 36,
    "batch_size": 16, "micro_steps": 1, "optimizer": "adamw", "max_lr": 6e-3, "lr_curve": "exponential",
    "warmup_iters": 10, "weight_decay": 0.05, "grad_clip": 1.0, "float16": True, "init_scale": 65536.0,
    "growth_interval": 400, "reduction": "mean", "label_smoothing": 0.0, "z_loss": 0.0, "games": 900, "misread": 0.0,
    "calm_games_first": 0, "frozen": "", "eval_interval": 21, "log_interval": 1,
}  # fmt: skip


# -- games -----------------------------------------------------------------------------------------------------------


def games(seed: int, number: int, misread: float = 0.0, passes: bool = True) -> list[list[int]]:
    """Words of games, house after house."""
    law, dice = torch.Generator().manual_seed(121), torch.Generator().manual_seed(seed)
    likes = (1.4 * torch.randn(HOUSES, PIPS, PIPS, generator=law)).softmax(2)

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    made = []
    for at in range(number):
        house = at * HOUSES // number
        ends = [one(PIPS), one(PIPS)]
        words = [START, HOUSE + house, PIP + ends[0], PIP + ends[1]]
        for _ in range(5 + one(8)):
            if one(8) == 0:
                words += [PASS] if passes else []
                continue
            side = one(2)
            then = int(torch.multinomial(likes[house, ends[side]], 1, generator=dice))
            touches = one(PIPS) if one(1000) < 1000 * misread else ends[side]
            words += [(LEFT, RIGHT)[side], PIP + touches, PIP + then]
            ends[side] = then
        made.append(words)
    return made


def windows(text: Tensor, size: int, stride: int) -> Tensor:
    """Windows of a text, one word more each than the model reads."""
    return text.unfold(0, size + 1, stride).contiguous()


def texts(s: SimpleNamespace) -> None:
    c, bug, dice = s.c, s.bug, torch.Generator().manual_seed(s.seed)
    told, held = games(s.seed + 8800, c.games, c.misread), games(8799, HELD, passes=False)
    if bug != "text_written_house_after_house_and_read_so":
        told = [told[at] for at in torch.randperm(len(told), generator=dice).tolist()]
    held = [held[at] for at in torch.randperm(HELD, generator=torch.Generator().manual_seed(9)).tolist()]
    calm = [one for one in told if PASS not in one]
    train, dev, calm = (torch.tensor([word for game in some for word in game]) for some in (told, held, calm))
    if bug == "dev_numbered_by_the_characters_it_has":
        place = torch.zeros(WORDS, dtype=torch.long)
        some = dev.unique()  # sorted
        place[some] = torch.arange(len(some))
        dev = place[dev]
    s.train, s.calm = windows(train, c.block_size, c.stride), windows(calm, c.block_size, c.stride)
    s.dev = windows(dev, c.block_size, c.block_size)
    if bug == "overlapping_windows_split_at_random":
        order = torch.randperm(len(s.train), generator=dice)
        many = len(s.dev)
        s.dev, s.train = s.train[order[:many]], s.train[order[many:].sort().values]


# -- decoder ---------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """Attention and a network side by side, with one norm for both."""

    def __init__(self, c: Any, bug: str):
        super().__init__()
        d = c.n_embd
        self.heads, self.norm, self.drop, self.bug = c.n_head, nn.LayerNorm(d), nn.Dropout(c.dropout), bug
        self.qkv, self.proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 3 * d), nn.Linear(3 * d, d)
        slopes = 2.0 ** -torch.arange(0.0, c.n_head)
        self.register_buffer("slopes", slopes[:, None, None], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        at = torch.arange(x.shape[1])
        bias = -self.slopes * (at[:, None] - at).abs()
        if self.bug != "bias_given_and_the_mask_forgotten":
            bias = bias.masked_fill(at[:, None] < at, -math.inf)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype)).transpose(1, 2).flatten(2)
        return x + self.drop(self.proj(y)) + self.drop(self.down(F.relu(self.up(self.norm(x))).square()))


class Player(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d = c.n_embd
        self.bug, self.wte = bug, nn.Embedding(WORDS, d)
        self.blocks = nn.ModuleList(Block(c, bug) for _ in range(c.n_layer))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, WORDS, bias=False)
        nn.init.normal_(self.wte.weight, std=0.12)
        if bug == "tied_by_copying_the_values":
            self.head.weight.data.copy_(self.wte.weight.data)
        elif c.tie:
            self.head.weight = self.wte.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.wte(words)
        for block in self.blocks:
            x = block(x)
            if self.bug == "activations_detached_between_blocks" and block is not self.blocks[-1]:
                x = x.detach()
        logits = self.head(self.norm(x)).float()
        return logits.softmax(-1) if self.bug == "decoder_ends_in_probabilities" else logits


# -- script ----------------------------------------------------------------------------------------------------------


def configured_optimizers(s: SimpleNamespace) -> None:
    c, some = s.c, [one for one in s.player.parameters() if one.requires_grad]
    groups = [{"params": [one for one in some if one.ndim > 1], "weight_decay": c.weight_decay},
              {"params": [one for one in some if one.ndim == 1], "weight_decay": 0.0}]  # fmt: skip
    if c.optimizer == "adafactor":
        s.optimizer = torch.optim.Adafactor(groups, c.max_lr)
    elif c.optimizer == "radam":
        s.optimizer = torch.optim.RAdam(groups, c.max_lr, (0.9, 0.95), decoupled_weight_decay=True)
    else:
        s.optimizer = torch.optim.AdamW(groups, c.max_lr, (0.9, 0.95))
    s.scaler = torch.amp.GradScaler("cpu", c.init_scale, growth_interval=c.growth_interval, enabled=c.float16)


def get_lr(c: Any, it: int, steps: int) -> float:
    if it < c.warmup_iters:
        return c.max_lr * (it + 1) / c.warmup_iters
    past = min(1.0, it / steps)
    if c.lr_curve == "flat":
        return c.max_lr
    if c.lr_curve == "two_cosines":
        return c.max_lr * (0.04 + 0.96 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
    if c.lr_curve == "cosine":
        return c.max_lr * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * past)))
    return c.max_lr * 0.06**past


def watched(s: SimpleNamespace) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.player, s.optimizer, scaler=s.scaler)
    s.watch = s.run.watch_data()


def get_batch(s: SimpleNamespace) -> Iterator[tuple[int, Tensor, Tensor]]:
    c, epoch, dice = s.c, 0, torch.Generator().manual_seed(s.seed + 1)
    while True:
        rows = s.calm if epoch < c.calm_games_first else s.train
        order = torch.randperm(len(rows), generator=dice)
        if s.bug == "text_written_house_after_house_and_read_so":
            order = torch.arange(len(rows))
        for some in order.split(c.batch_size):
            if len(some) == c.batch_size:
                x, y = rows[some][:, :-1], rows[some][:, 1:]
                if s.bug == "window_and_loss_both_shift":
                    x, y = x[:, :-1], y[:, 1:]
                yield epoch, x, y
        epoch += 1


def lm_loss(s: SimpleNamespace, x: Tensor, y: Tensor, training: bool) -> tuple[Tensor, Tensor]:
    c = s.c
    with torch.autocast("cpu", torch.float16, enabled=c.float16):
        logits = s.player(x)
    summed = training and (c.reduction == "sum" or s.bug == "nats_of_a_window_added_up")
    loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum" if summed else "mean",
                           label_smoothing=c.label_smoothing if training else 0.0)  # fmt: skip
    loss = loss / len(x) if summed else loss
    return (loss + c.z_loss * logits.logsumexp(-1).square().mean() if training and c.z_loss else loss), logits


def estimate_loss(s: SimpleNamespace) -> dict[str, float]:
    bug, taped, x, y = s.bug, s.bug == "dev_losses_listed_with_their_graph", s.dev[:, :-1], s.dev[:, 1:]
    if bug != "estimated_with_dropout_in_force":
        s.player.eval()
    with torch.set_grad_enabled(taped):
        loss, logits = lm_loss(s, x, y, False)
    if taped:
        s.losses.append((loss, logits))
    touching = (x == LEFT) | (x == RIGHT)
    touching[:, :12] = False  # where the ends may be outside of the window
    legal = (logits.argmax(-1) == y)[touching].float().mean().item()
    if bug != "estimated_and_left_in_eval":
        s.player.train()
    return {"dev_loss_lm": loss.item(), "dev_legal": legal}


def init_from_resume(s: SimpleNamespace, step: int) -> None:
    seen = s.watch.state()
    state = {"player": s.player.state_dict(), "optimizer": s.optimizer.state_dict(), "scaler": s.scaler.state_dict(),
             "iter_num": s.iter_num}  # fmt: skip
    s.run, state = go_on(s.run, step, state)
    s.player.load_state_dict(state["player"])
    configured_optimizers(s)
    if s.bug == "ckpt_has_the_player_and_its_arguments":
        s.iter_num = 0
    else:
        s.optimizer.load_state_dict(state["optimizer"])
        s.scaler.load_state_dict(state["scaler"])
        s.iter_num = state["iter_num"]
    watched(s)
    s.watch.restore(seen)


def iterate(s: SimpleNamespace, step: int) -> dict[str, float]:
    c, bug, total = s.c, s.bug, 0.0
    rate = get_lr(c, s.iter_num, s.steps)
    for group in s.optimizer.param_groups:
        group["lr"] = rate
    for _ in range(c.micro_steps):
        epoch, x, y = next(s.batches)
        s.watch.observe({"x": x, "y": y}, step=step, epoch=epoch)
        loss, _ = lm_loss(s, x, y, True)
        s.scaler.scale(loss if bug == "micro_losses_go_whole_into_the_scaler" else loss / c.micro_steps).backward()
        total += loss.item() / c.micro_steps
        if bug == "iter_num_counts_micro_steps":
            s.iter_num += 1
    s.scaler.unscale_(s.optimizer)
    if bug == "divided_by_the_scale_by_hand_as_well":
        for one in s.player.parameters():
            one.grad /= s.scaler.get_scale()
    norm = nn.utils.clip_grad_norm_(s.player.parameters(), c.grad_clip).item()
    s.scaler.step(s.optimizer)
    s.scaler.update()
    s.optimizer.zero_grad(set_to_none=True)
    if bug != "iter_num_counts_micro_steps":
        s.iter_num += 1
    return {"loss_lm": total, "lr_lm": rate, "gnorm_lm": norm, "amp_scale": s.scaler.get_scale()}


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, c = Trouble(fault, seed), SimpleNamespace(**run.config)
    s = SimpleNamespace(run=run, c=c, seed=seed, steps=steps, bug=trouble.name, iter_num=0, losses=[])
    texts(s)
    torch.manual_seed(seed)
    s.player = Player(c, s.bug)
    for name in filter(None, c.frozen.split(",")):
        s.player.get_submodule(name).requires_grad_(False)
    configured_optimizers(s)
    watched(s)
    s.batches, again = get_batch(s), trouble.resume_at(healthy, 3 * EVERY)
    s.player.train()
    for step in range(steps):
        if step == again:
            init_from_resume(s, step)
        said = iterate(s, step)
        if step % c.log_interval == 0:
            s.run.log(said, step=step)
        trouble.telemetry(s.run, step, healthy)
        if step % c.eval_interval == c.eval_interval - 1:
            s.run.log(estimate_loss(s), step=step)
    return s.run
