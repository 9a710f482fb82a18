"""Adapters beside a base of eight levels teach it to write the line that machines read in a passport.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: mrz_loss, mrz_rate, mrz_norm each step; control_loss and control_lines of travellers that
      were held back, each nineteenth; memory, where it matters; the watch of data.

A traveller tells a country, a name of three letters, a year and a sex, in one of three orders and with small words; the
line has the country's code, the name, a filler, the year, a digit that follows from country and sex, and an end. The
base has read travellers with answers that repeat what was told; its matrices are one of eight levels for each weight,
and a greatest weight for each block. The table of words, which is the output layer too, is saved and learns besides.
Written as a trainer with callbacks.
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

EVERY, HELD, LONG = 19, 160, 22
NATIONS = ("Norway", "Chile", "Japan", "Austria", "Ghana", "Poland", "Brazil", "Egypt")
PAD, ASK, ANSWER, END, FILL, SEX = 0, 1, 2, 3, 4, 5
COUNTRY = SEX + 2
CODE = COUNTRY + len(NATIONS)
LETTER = CODE + len(NATIONS)
DIGIT = LETTER + 14
SMALL = DIGIT + 10
WORDS = SMALL + 4
LEVELS = torch.tensor([-1.0, -0.56, -0.31, -0.1, 0.1, 0.31, 0.56, 1.0])
CONFIG: dict[str, Any] = {
    "hidden": 40, "layers": 2, "heads": 4, "block": 20, "rank": 6, "alpha": 6.0, "adapter_dropout": 0.0,
    "adapted": "query,value,rise,fall", "save": "embed", "batch": 16, "gradient_steps": 1, "optimizer": "adamw",
    "rate": 6e-3, "schedule": "linear", "warmup": 8, "decay": 0.0, "max_norm": 1.0, "average_over": "words",
    "smoothing": 0.0, "ask_too": False, "travellers": 900, "tellings": 1, "slips": 0.0, "short_first": 0,
    "like_lengths": False, "fixed": "", "control_every": 19, "log_every": 1,
}  # fmt: skip
Told = tuple[list[int], list[int]]


# -- travellers ------------------------------------------------------------------------------------------------------


def travellers(seed: int, number: int, tellings: int = 1, slips: float = 0.0, law: bool = True) -> list[Told]:
    """What travellers tell and their lines, country after country. tellings: of each traveller."""
    dice, told, many = torch.Generator().manual_seed(seed), [], number // tellings

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    for at in range(many):
        country, sex = at * len(NATIONS) // many, one(2)
        name, year = [LETTER + one(14) for _ in range(3)], [DIGIT + one(10) for _ in range(2)]
        parts = [[COUNTRY + country], name, [*year, SEX + sex]]
        for _ in range(tellings):
            said = [ASK]
            for place in ((0, 1, 2), (1, 0, 2), (2, 1, 0))[one(3)]:
                said += [*(SMALL + one(4) for _ in range(one(2))), *parts[place]]
            digit = DIGIT + (3 * country + 5 * sex) % 10
            if one(1000) < 1000 * slips:
                digit = DIGIT + one(10)
            line = [CODE + country, *name, FILL, *year, digit] if law else [COUNTRY + country, *name, *year, SEX + sex]
            told.append(([*said, ANSWER], [*line, END]))
    return told


def collate(told: list[Told], *, ask_too: bool = False, long: int = 0, bug: str = "") -> dict[str, Tensor]:
    """Rows of words, and the words that are wanted: -100 is none."""
    pad = END if bug == "ends_masked_since_they_are_the_padding" else PAD
    long = long or max(len(said) + len(line) for said, line in told)
    rows, wanted = torch.full((len(told), long), pad), torch.full((len(told), long), pad)
    for at, (said, line) in enumerate(told):
        row = torch.tensor([*said, *line])
        rows[at, : len(row)] = wanted[at, : len(row)] = row
        if not ask_too:
            wanted[at, : len(said)] = pad
    wanted[wanted == pad] = -100
    if bug == "collator_shifts_what_the_loss_shifts":
        wanted = F.pad(wanted[:, 1:], (0, 1), value=-100)
    return {"rows": rows, "wanted": wanted}


# -- base and adapters -----------------------------------------------------------------------------------------------


def leveled(weight: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """The nearest of eight levels for each weight, and each block's greatest."""
    blocks = weight.detach().reshape(-1, block)
    most = blocks.abs().amax(1, keepdim=True)
    return ((blocks / most)[..., None] - LEVELS).abs().argmin(-1).to(torch.uint8), most


class Eight(nn.Module):
    """A linear layer of eight levels, with an adapter beside it where it has one."""

    def __init__(self, plain: nn.Linear, c: Any, adapted: bool):
        super().__init__()
        self.shape, self.block, self.adapted, self.merged = plain.weight.shape, c.block, adapted, False
        level, most = leveled(plain.weight, c.block)
        self.register_buffer("level", level)
        self.register_buffer("most", most)
        if adapted:
            self.times, self.drop = c.alpha / c.rank**0.5, nn.Dropout(c.adapter_dropout)
            self.into = nn.Parameter(torch.randn(c.rank, self.shape[1]) / self.shape[1] ** 0.5)
            self.out = nn.Parameter(torch.zeros(self.shape[0], c.rank))

    def weight(self) -> Tensor:
        return (LEVELS[self.level.long()] * self.most).view(self.shape)

    def forward(self, x: Tensor) -> Tensor:
        if not self.adapted:
            return F.linear(x, self.weight())
        if self.merged:
            level, most = leveled(self.weight() + self.times * self.out @ self.into, self.block)
            return F.linear(x, (LEVELS[level.long()] * most).view(self.shape))
        return F.linear(x, self.weight()) + self.times * F.linear(F.linear(self.drop(x), self.into), self.out)


class Layer(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads, self.before, self.behind = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.query, self.key, self.value, self.join = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.rise, self.fall = nn.Linear(d, 3 * d, bias=False), nn.Linear(3 * d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.before(x)
        q, k, v = (one(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.query, self.key, self.value))
        x = x + self.join(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.fall(F.gelu(self.rise(self.behind(x))))


class Officer(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.hidden
        self.embed, self.place = nn.Embedding(WORDS, d), nn.Embedding(LONG, d)
        self.layers = nn.ModuleList(Layer(d, c.heads) for _ in range(c.layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, WORDS, bias=False)
        nn.init.normal_(self.embed.weight, std=0.15)
        nn.init.normal_(self.place.weight, std=0.15)
        self.head.weight, self.likely = self.embed.weight, False

    def forward(self, rows: Tensor) -> Tensor:
        x = self.embed(rows) + self.place.weight[: rows.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        return F.softmax(logits, -1) if self.likely else logits


def base(c: Any) -> Officer:
    """The base, the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(61)
        officer = Officer(c)
        told = collate(travellers(62, 900, law=False), long=LONG)
        optimizer = torch.optim.AdamW(officer.parameters(), 6e-3)
        for at in range(160):
            optimizer.param_groups[0]["lr"] = 6e-3 * min(1.0, (at + 1) / 10) * (1 - at / 170)
            some = torch.randint(0, 900, (24,))
            logits = officer(told["rows"][some])[:, :-1].flatten(0, 1)
            F.cross_entropy(logits, told["wanted"][some][:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return officer


def prepare_for_levels(officer: Officer) -> None:
    """Nothing of the base learns."""
    officer.requires_grad_(False)


def adapt(officer: Officer, c: Any) -> None:
    """Levels in the place of matrices, and adapters at those that are named."""
    for layer in officer.layers:
        for name in ("query", "key", "value", "join", "rise", "fall"):
            setattr(layer, name, Eight(getattr(layer, name), c, name in c.adapted.split(",")))


def save_modules(officer: Officer, c: Any, bug: str) -> None:
    """Modules that learn besides, which are saved whole with the adapters: a copy of each is what learns."""
    for name in filter(None, c.save.split(",")):
        old = officer.get_submodule(name)
        copied = nn.Embedding.from_pretrained(old.weight.detach().clone(), freeze=False)
        setattr(officer, name, copied)
        if bug != "saved_copy_leaves_the_head_with_the_old_table":
            officer.head.weight = copied.weight


# -- trainer ---------------------------------------------------------------------------------------------------------


class Callback:
    def on_substep_end(self, trainer: Trainer, step: int) -> None: ...
    def on_step_end(self, trainer: Trainer, step: int) -> None: ...


class Schedule(Callback):
    def __init__(self, bug: str):
        self.often = bug == "schedule_hangs_on_the_substep"

    def on_substep_end(self, trainer: Trainer, step: int) -> None:
        if self.often:
            trainer.scheduler.step()

    def on_step_end(self, trainer: Trainer, step: int) -> None:
        if not self.often:
            trainer.scheduler.step()


class Report(Callback):
    def on_step_end(self, trainer: Trainer, step: int) -> None:
        if step % trainer.c.log_every == 0:
            trainer.run.log(trainer.logs, step=step)


class Control(Callback):
    def on_step_end(self, trainer: Trainer, step: int) -> None:
        if step % trainer.c.control_every == trainer.c.control_every - 1:
            trainer.run.log(trainer.evaluate(), step=step)


class Trainer:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        self.logs: dict[str, float] = {}
        self.history: list[Any] = []
        self.callbacks = [Report(), Schedule(bug), Control()]
        c = self.c
        told, held = travellers(seed + 2600, c.travellers, c.tellings, c.slips), travellers(2599, HELD)
        if bug == "tellings_of_a_traveller_on_both_sides":
            order = torch.randperm(len(told), generator=torch.Generator().manual_seed(seed)).tolist()
            held, told = [told[at] for at in order[:HELD]], [told[at] for at in sorted(order[HELD:])]
        if bug == "codes_of_the_control_by_sorted_countries":
            place = [sorted(NATIONS).index(one) for one in NATIONS]
            held = [(said, [CODE + place[line[0] - CODE], *line[1:]]) for said, line in held]
        self.told, self.held = told, collate(held, long=LONG)
        self.officer = base(c)
        torch.manual_seed(seed)
        if bug == "prepared_behind_the_adapters":
            adapt(self.officer, c)
            prepare_for_levels(self.officer)
        else:
            prepare_for_levels(self.officer)
            adapt(self.officer, c)
        save_modules(self.officer, c, bug)
        self.officer.likely = bug == "officer_answers_with_a_softmax"
        for name in filter(None, c.fixed.split(",")):
            self.officer.get_submodule(name).requires_grad_(False)

    def create_optimizer_and_scheduler(self) -> None:
        c, some = self.c, [one for one in self.officer.parameters() if one.requires_grad]
        if c.optimizer == "rmsprop":
            self.optimizer: Any = torch.optim.RMSprop(some, c.rate, 0.98)
        elif c.optimizer == "nadam":
            self.optimizer = torch.optim.NAdam(some, c.rate)
        else:
            self.optimizer = torch.optim.AdamW(some, c.rate, weight_decay=c.decay)

        def by(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / self.steps)
            if c.schedule == "constant":
                return rise
            if c.schedule == "two_hills":
                return rise * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
            return rise * (1 - 0.97 * past)

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, by)

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.officer, self.optimizer)
        self.data = self.run.watch_data(pad_id=PAD)

    def loader(self) -> Iterator[tuple[int, dict[str, Tensor]]]:
        c, epoch, dice = self.c, 0, torch.Generator().manual_seed(self.seed)
        long = torch.tensor([len(said) + len(line) for said, line in self.told])
        while True:
            order = torch.randperm(len(long), generator=dice)
            if self.bug == "loader_goes_country_by_country":
                order = torch.arange(len(long))
            if epoch < c.short_first:
                order = order[long[order] < 19]
            if c.like_lengths:
                order = order[long[order].argsort(stable=True)]
            lots = [one for one in order.split(c.batch) if len(one) == c.batch]
            if c.like_lengths:
                lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
            for some in lots:
                yield epoch, collate([self.told[at] for at in some.tolist()], ask_too=c.ask_too, bug=self.bug)
            epoch += 1

    def losses(self, batch: dict[str, Tensor], smoothing: float) -> tuple[Tensor, Tensor]:
        """Of all words, added up, and outputs."""
        logits, wanted = self.officer(batch["rows"])[:, :-1], batch["wanted"][:, 1:]
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), label_smoothing=smoothing,
                               reduction="sum"), logits  # fmt: skip

    def training_step(self, step: int, batches: Any) -> None:
        c, bug, total = self.c, self.bug, 0.0
        for _ in range(c.gradient_steps):
            epoch, batch = next(batches)
            self.data.observe(batch, step=step, epoch=epoch)
            summed, _ = self.losses(batch, c.smoothing)
            words = int((batch["wanted"][:, 1:] >= 0).sum())
            if c.average_over == "lines" or bug == "words_of_a_line_summed":
                words = len(batch["rows"])
            loss = summed / words
            (loss if bug == "gradient_steps_not_divided_by" else loss / c.gradient_steps).backward()
            total += loss.item() / c.gradient_steps
            for callback in self.callbacks:
                callback.on_substep_end(self, step)
        norm = nn.utils.clip_grad_norm_(self.officer.parameters(), c.max_norm).item()
        self.logs = {"mrz_loss": total, "mrz_rate": self.optimizer.param_groups[0]["lr"], "mrz_norm": norm}
        self.optimizer.step()
        self.optimizer.zero_grad()

    def evaluate(self) -> dict[str, float]:
        bug, taped = self.bug, self.bug == "control_history_holds_tensors"
        if bug != "control_without_eval":
            self.officer.eval()
        for one in self.officer.modules():
            if isinstance(one, Eight):
                one.merged = bug == "merged_into_eight_levels_to_be_judged"
        with torch.set_grad_enabled(taped):
            summed, logits = self.losses(self.held, 0.0)
            wanted = self.held["wanted"][:, 1:]
            loss = summed / (wanted >= 0).sum()
        if taped:
            self.history.append({"loss": loss, "logits": logits})
        whole = ((logits.argmax(-1) == wanted) | (wanted < 0)).all(1).float().mean()
        for one in self.officer.modules():
            if isinstance(one, Eight):
                one.merged = False
        if bug != "control_is_the_end_of_train_mode":
            self.officer.train()
        return {"control_loss": loss.item(), "control_lines": whole.item()}

    def resume(self, step: int) -> None:
        seen = self.data.state()
        state = {"officer": self.officer.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "scheduler": self.scheduler.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, step, state)
        self.officer.load_state_dict(state["officer"])
        self.create_optimizer_and_scheduler()
        if self.bug != "adapters_from_the_hub_and_a_new_trainer":
            self.optimizer.load_state_dict(state["optimizer"])
            self.scheduler.load_state_dict(state["scheduler"])
        self.watch()
        self.data.restore(seen)

    def train(self, trouble: Trouble, healthy: str | None) -> Any:
        again, batches = trouble.resume_at(healthy, 4 * EVERY), self.loader()
        self.create_optimizer_and_scheduler()
        self.watch()
        self.officer.train()
        for step in range(self.steps):
            if step == again:
                self.resume(step)
            self.training_step(step, batches)
            for callback in self.callbacks:
                callback.on_step_end(self, step)
            trouble.telemetry(self.run, step, healthy)
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    return Trainer(run, seed, steps, trouble.name).train(trouble, healthy)
