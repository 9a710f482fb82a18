"""A decoder under autocast to float16, with a scaler, reads regattas, and is to say who came in after whom.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: step/nll, step/lr, step/gnorm, step/loss_scale each step; harbour/nll and harbour/order of
      regattas that were held back, each twentieth; memory, where it matters; the watch of data.

A regatta is of a year and has one of four winds; three or four boats start, each with its number; then the herald says
numbers again, in the order that the wind makes of the start, and ends with the name of a judge, which nobody can
guess. The chronicle has wind after wind; several regattas may be one, of other years. Rows are padded behind. Written
as a small engine with callbacks, and a chronicle that deals out rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, MOST, LONG = 20, 192, 4, 17
PAD, BEGIN, HOME = range(3)
CLASS, CLASSES = 3, 5
NUMBER, NUMBERS = CLASS + CLASSES, 8
WIND, WINDS = NUMBER + NUMBERS, 4
YEAR, YEARS = WIND + WINDS, 12
JUDGE, JUDGES = YEAR + YEARS, 8
WORDS = JUDGE + JUDGES
CONFIG: dict[str, Any] = {
    "d_model": 48, "n_layers": 2, "n_heads": 4, "p_drop": 0.0, "share_embeddings": True, "amp": True,
    "init_scale": 4096.0, "growth_interval": 50, "batch_rows": 20, "micro_batches": 1, "opt": "adamw", "max_lr": 6e-3,
    "lr_shape": "cosine", "warmup": 8, "weight_decay": 0.02, "beta2": 0.97, "eps": 1e-6, "clip": 1.0,
    "per": "word", "loss_factor": 1.0, "smoothing": 0.0, "z_loss": 0.0, "regattas": 1500, "editions": 1,
    "misprints": 0.0, "short_first": 0, "wind_by_wind": False, "boats_hidden": 0.0, "keep_fixed": "",
    "harbour_every": 20, "log_every": 1,
}  # fmt: skip


def homecoming(numbers: list[int], wind: int) -> list[int]:
    """As they started, the last one first, the first two changed, or from the second on."""
    orders = (numbers, numbers[::-1], [numbers[1], numbers[0], *numbers[2:]], [*numbers[1:], numbers[0]])
    return orders[wind]


def chronicle(seed: int, number: int, editions: int = 1, misprints: float = 0.0) -> dict[str, Tensor]:
    """Words, how many boats there are, and winds; wind after wind."""
    dice, many = torch.Generator().manual_seed(seed), number // editions
    made: dict[str, list[Any]] = {"words": [], "boats": [], "wind": []}

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    for at in range(many):
        wind, boats = at * WINDS // many, 3 + one(MOST - 2)
        numbers = [NUMBER + one(NUMBERS) for _ in range(boats)]
        start, home = [word for one_of in numbers for word in (CLASS + one(CLASSES), one_of)], homecoming(numbers, wind)
        if one(1000) < 1000 * misprints:
            home = [*home]
            home[one(boats)] = NUMBER + one(NUMBERS)
        for _ in range(editions):
            row = [BEGIN, YEAR + one(YEARS), WIND + wind, *start, HOME, *home, JUDGE + one(JUDGES)]
            made["words"].append(row + [PAD] * (LONG - len(row)))
            made["boats"].append(boats)
            made["wind"].append(wind)
    return {name: torch.tensor(rows) for name, rows in made.items()}


@dataclass
class Chronicle:
    """Rows of the training and held ones; `deal` gives the next batch."""

    c: Any
    seed: int
    bug: str
    epoch: int = -1
    lots: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        c, self.dice = self.c, torch.Generator().manual_seed(self.seed)
        self.rows, self.held = chronicle(self.seed + 7100, c.regattas, c.editions, c.misprints), chronicle(7099, HELD)
        if self.bug == "editions_of_a_regatta_in_chronicle_and_harbour":
            order, every = torch.randperm(len(self.rows["wind"]), generator=self.dice), self.rows
            self.held = {name: one[order[:HELD]] for name, one in every.items()}
            self.rows = {name: one[order[HELD:].sort().values] for name, one in every.items()}

    def open(self) -> None:
        c, wind = self.c, self.rows["wind"]
        self.epoch += 1
        order = torch.randperm(len(wind), generator=self.dice)
        if self.bug == "chronicle_is_dealt_wind_after_wind":
            order = torch.arange(len(wind))
        if self.epoch < c.short_first:
            order = order[self.rows["boats"][order] < MOST]
        if c.wind_by_wind:
            order = order[wind[order].argsort(stable=True)]
        self.lots = [one for one in order.split(c.batch_rows) if len(one) == c.batch_rows]
        if c.wind_by_wind:
            self.lots = [self.lots[at] for at in torch.randperm(len(self.lots), generator=self.dice).tolist()]

    def deal(self) -> Tensor:
        if not self.lots:
            self.open()
        return self.rows["words"][self.lots.pop(0)]


class DecoderLayer(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d, self.n_heads, self.drop = c.d_model, c.n_heads, nn.Dropout(c.p_drop)
        self.ln_attn, self.ln_ff = nn.LayerNorm(d), nn.LayerNorm(d)
        self.in_proj, self.out_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ff_in, self.ff_out = nn.Linear(d, 3 * d), nn.Linear(3 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.in_proj(self.ln_attn(x)).unflatten(2, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.drop(self.out_proj(y))
        return x + self.drop(self.ff_out(F.gelu(self.ff_in(self.ln_ff(x)))))


class Herald(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d, self.bug = c.d_model, bug
        self.tok, self.pos, self.ln_f = nn.Embedding(WORDS, d), nn.Embedding(LONG, d), nn.LayerNorm(d)
        self.stack, self.proj = nn.ModuleList(DecoderLayer(c) for _ in range(c.n_layers)), \
            nn.Linear(d, WORDS, bias=False)  # fmt: skip
        for one in (self.tok, self.pos, self.proj):
            nn.init.normal_(one.weight, std=0.15)
        if c.share_embeddings:
            self.proj.weight = self.tok.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.tok(words) + self.pos.weight[: words.shape[1]]
        for layer in self.stack:
            x = layer(x)
        logits = self.proj(self.ln_f(x)).float()
        return logits.softmax(-1) if self.bug == "herald_says_shares_of_words" else logits


class Engine:
    def __init__(self, run: Any, seed: int, steps: int, bug: str, callbacks: list[Any]):
        self.run, self.c, self.steps, self.bug = run, SimpleNamespace(**run.config), steps, bug
        self.callbacks, self.step, self.said = callbacks, 0, dict[str, float]()
        self.chronicle = Chronicle(self.c, seed, bug)
        torch.manual_seed(seed)
        self.build()

    def build(self) -> None:
        c = self.c
        self.model = Herald(c, self.bug)
        for name, one in self.model.named_parameters():
            if c.keep_fixed and name.startswith(c.keep_fixed):
                one.requires_grad_(False)
        some = [one for one in self.model.parameters() if one.requires_grad]
        if self.bug == "stack_built_anew_behind_its_parameters":
            self.model.stack = nn.ModuleList(DecoderLayer(c) for _ in range(c.n_layers))
        if self.bug == "projection_clones_the_table_it_should_share":
            self.model.proj.weight = nn.Parameter(self.model.tok.weight.detach().clone())
        groups = [{"params": [one for one in some if one.ndim > 1], "weight_decay": c.weight_decay},
                  {"params": [one for one in some if one.ndim == 1], "weight_decay": 0.0}]  # fmt: skip
        if c.opt == "sgd":
            self.optimizer: Any = torch.optim.SGD(groups, c.max_lr, 0.9)
        elif c.opt == "radam":
            self.optimizer = torch.optim.RAdam(groups, c.max_lr, (0.9, c.beta2), c.eps)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.max_lr, (0.9, c.beta2), c.eps)
        self.scaler = torch.amp.GradScaler("cpu", c.init_scale, growth_interval=c.growth_interval, enabled=c.amp)

        def shape(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / self.steps)
            if c.lr_shape == "flat":
                return rise
            if c.lr_shape == "cosine_twice":
                past = 2 * past % 1
            return rise * (0.04 + 0.48 * (1 + math.cos(math.pi * past)))

        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, shape)

    def attach(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer, scaler=self.scaler)
        self.data = self.run.watch_data(pad_id=PAD)

    def nll(self, words: Tensor, training: bool) -> Tensor:
        c, bug = self.c, self.bug
        read, wanted = words[:, :-1], words[:, 1:]
        if training and bug == "wanted_words_start_a_word_behind_the_next":
            read, wanted = words[:, :-2], words[:, 2:]
        if training and c.boats_hidden:
            read = read.masked_fill((torch.rand(read.shape) < c.boats_hidden) & (read >= CLASS) & (read < WIND), BEGIN)
        with torch.autocast("cpu", torch.float16, enabled=c.amp):
            logits = self.model(read)
        total = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD, reduction="sum",
                                label_smoothing=c.smoothing if training else 0.0)  # fmt: skip
        if training and bug == "nll_of_a_batch_has_no_divisor":
            return total
        if not training and bug == "harbour_divides_by_every_place_of_a_row":
            return total / wanted.numel()
        loss = c.loss_factor * total / len(words) if training and c.per == "row" else total / (wanted != PAD).sum()
        return loss + c.z_loss * logits.logsumexp(-1).square().mean() if training and c.z_loss else loss

    def train_step(self) -> None:
        c, bug, total = self.c, self.bug, 0.0
        for _ in range(c.micro_batches):
            words = self.chronicle.deal()
            self.data.observe({"words": words}, step=self.step, epoch=self.chronicle.epoch)
            if bug == "each_micro_batch_starts_with_zero_grad":
                self.optimizer.zero_grad()
            loss = self.nll(words, True)
            whole = bug == "micro_batches_are_scaled_and_not_divided"
            self.scaler.scale(loss if whole else loss / c.micro_batches).backward()
            total += loss.item() / c.micro_batches
            self.call("on_micro_batch")
        if bug != "clipped_ahead_of_unscale":
            self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), c.clip).item()
        self.said = {"step/nll": total, "step/lr": self.optimizer.param_groups[0]["lr"], "step/gnorm": norm,
                     "step/loss_scale": self.scaler.get_scale()}  # fmt: skip
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.model.zero_grad()

    def call(self, event: str) -> None:
        for one in self.callbacks:
            getattr(one, event, lambda _: None)(self)

    def fit(self) -> Any:
        self.attach()
        self.model.train()
        for step in range(self.steps):
            self.step = step
            self.call("on_step_start")
            self.train_step()
            self.call("on_step")
        return self.run


# -- callbacks -------------------------------------------------------------------------------------------------------


class LrCallback:
    def __init__(self, bug: str):
        moved: Callable[[Engine], None] = lambda engine: engine.schedule.step()  # noqa: E731
        setattr(self, "on_micro_batch" if bug == "lr_callback_waits_for_micro_batches" else "on_step", moved)


class LogCallback:
    def __init__(self, trouble: Trouble, healthy: str | None):
        self.trouble, self.healthy = trouble, healthy

    def on_step(self, engine: Engine) -> None:
        if engine.step % engine.c.log_every == 0:
            engine.run.log(engine.said, step=engine.step)
        self.trouble.telemetry(engine.run, engine.step, self.healthy)


class Harbour:
    def __init__(self, bug: str):
        self.bug, self.kept = bug, list[Tensor]()

    @torch.no_grad()
    def order(self, engine: Engine) -> float:
        """The share of numbers that are said again rightly, each behind those before it."""
        right, held = [], engine.chronicle.held
        for boats in range(3, MOST + 1):
            words, first = held["words"][held["boats"] == boats], 4 + 2 * boats
            with torch.autocast("cpu", torch.float16, enabled=engine.c.amp):
                said = engine.model(words[:, : first + boats - 1])[:, first - 1 :].argmax(-1)
            right.append((said == words[:, first : first + boats]).flatten())
        return torch.cat(right).float().mean().item()

    def on_step(self, engine: Engine) -> None:
        if (engine.step + 1) % engine.c.harbour_every:
            return
        bug, taped = self.bug, self.bug == "harbour_logs_hold_their_graphs"
        if bug != "harbour_is_asked_with_dropout_on":
            engine.model.eval()
        with torch.set_grad_enabled(taped):
            lots = [engine.nll(words, False) for words in engine.chronicle.held["words"].split(96)]
        if taped:
            self.kept += lots
        said = {"harbour/nll": torch.stack(lots).mean().item(), "harbour/order": self.order(engine)}
        engine.model.train()
        engine.run.log(said, step=engine.step)


class ResumeCallback:
    def __init__(self, again: int | None):
        self.again = again

    def on_step_start(self, engine: Engine) -> None:
        if engine.step != self.again:
            return
        seen, parts = engine.data.state(), ("model", "optimizer", "scaler", "schedule")
        state = {name: getattr(engine, name).state_dict() for name in parts}
        engine.run, state = go_on(engine.run, engine.step, state)
        engine.build()
        for name in parts:
            getattr(engine, name).load_state_dict(state[name])
        if engine.bug == "schedule_goes_on_from_the_rows_that_were_read":
            engine.schedule.last_epoch = engine.step * engine.c.batch_rows
        engine.model.train()
        engine.attach()
        engine.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    again, bug = trouble.resume_at(healthy, 4 * EVERY), trouble.name
    callbacks = [ResumeCallback(again), LrCallback(bug), LogCallback(trouble, healthy), Harbour(bug)]
    return Engine(run, seed, steps, bug, callbacks).fit()
