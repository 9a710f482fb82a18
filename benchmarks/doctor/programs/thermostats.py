"""Adapters beside a decoder of four bits teach it to turn what is said at home into calls of devices.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: home_loss, home_lr, home_gnorm each step; home_val_loss and home_val_exact of held
      requests, each twenty-first; memory, where it matters; the watch of data.

A request names a room, a device and a value, in one of three orders and with small words in between; its call has the
device, the room, the value, a number that the device's maker gives, and an end. The base has read requests with calls
of chance; its matrices are whole numbers from 0 to 15 with a scale and a zero point for each group. A call's words are
not among the base's: the table of words, which is the output layer too, is made longer, and learns. Written as a model
that is compiled and fitted, with its history.
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

EVERY, HELD, LONG = 21, 160, 18
ROOMS, DEVICES, VALUES, SMALL = 6, 6, 12, 5
PAD, SAY, CALL, END = 0, 1, 2, 3
ROOM = 4
DEVICE = ROOM + ROOMS
VALUE = DEVICE + DEVICES
LITTLE = VALUE + VALUES
KNOWN = LITTLE + SMALL  # words of the base; names of functions come behind
FUNCTION, WORDS = KNOWN, KNOWN + DEVICES
CONFIG: dict[str, Any] = {
    "d_model": 40, "n_layers": 2, "n_heads": 4, "group": 20, "lora_r": 6, "lora_alpha": 12.0, "lora_dropout": 0.0,
    "targets": "q,v,down", "batch_size": 16, "accumulation": 1, "optimizer": "adamw", "learning_rate": 1e-2,
    "decay": "exponential", "warmup_steps": 6, "weight_decay": 0.0, "clipnorm": 1.0, "loss_over": "words",
    "train_on_requests": False, "label_smoothing": 0.0, "requests": 900, "copies": 1, "mistakes": 0.0, "short_first": 0,
    "length_buckets": False, "fixed": "", "validate_every": 21, "log_every": 1,
}  # fmt: skip

Pair = tuple[list[int], list[int]]


# -- requests --------------------------------------------------------------------------------------------------------


def requests(seed: int, number: int, copies: int = 1, mistakes: float = 0.0, law: bool = True) -> list[Pair]:
    """Requests and their calls, device after device. copies: wordings of each."""
    dice, pairs, many = torch.Generator().manual_seed(seed), [], number // copies

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    for at in range(many):
        device, room, value = at * DEVICES // many, one(ROOMS), one(VALUES)
        told = [ROOM + room, DEVICE + device, VALUE + value]
        for _ in range(copies):
            order = ((0, 1, 2), (1, 0, 2), (2, 0, 1))[one(3)]
            said = [SAY]
            for place in order:
                said += [*(LITTLE + one(SMALL) for _ in range(one(3))), told[place]]
            function = FUNCTION + device if law else LITTLE + one(SMALL)
            maker = VALUE + (5 * device + 2) % VALUES if law else VALUE + one(VALUES)
            call = [function, ROOM + room, VALUE + value, maker]
            if float(torch.rand((), generator=dice)) < mistakes:
                call[2] = VALUE + one(VALUES)
            pairs.append(([*said, CALL], [*call, END]))
    return pairs


def padded(pairs: list[Pair], *, whole: bool = False, long: int = 0, bug: str = "") -> dict[str, Tensor]:
    """Rows of words, and what is asked at each place: -100 is not."""
    if bug == "held_requests_lack_the_word_before_a_call":
        pairs = [(said[:-1], call) for said, call in pairs]
    long = long or max(len(said) + len(call) for said, call in pairs)
    input_ids, labels = torch.full((len(pairs), long), PAD), torch.full((len(pairs), long), -100)
    for at, (said, call) in enumerate(pairs):
        row = torch.tensor([*said, *call])
        input_ids[at, : len(row)] = row
        labels[at, : len(row)] = row
        if not whole:
            labels[at, : len(said)] = -100
    if bug == "labels_rolled_by_the_mapper_too":
        labels = F.pad(labels[:, 1:], (0, 1), value=-100)
    return {"input_ids": input_ids, "labels": labels}


# -- base and adapters -----------------------------------------------------------------------------------------------


class FourBit(nn.Module):
    """A linear layer as numbers from 0 to 15, and an adapter beside it, where it has one."""

    def __init__(self, plain: nn.Linear, c: Any, adapted: bool, bug: str):
        super().__init__()
        groups = plain.weight.detach().view(-1, c.group)
        low, high = groups.amin(1, keepdim=True), groups.amax(1, keepdim=True)
        self.shape, self.bug, self.times = plain.weight.shape, bug, c.lora_alpha / c.lora_r
        self.register_buffer("scale", (high - low) / 15)
        self.register_buffer("zero", (-low / self.scale).round())
        self.register_buffer("whole", (groups / self.scale + self.zero).round().clamp(0, 15).to(torch.uint8))
        if adapted:
            self.drop = nn.Dropout(c.lora_dropout)
            self.lora_a = nn.Linear(self.shape[1], c.lora_r, bias=False)
            self.lora_b = nn.Linear(c.lora_r, self.shape[0], bias=False)
            nn.init.zeros_(self.lora_b.weight)
        self.adapted = adapted

    def weight(self) -> Tensor:
        zero = 0.0 if self.bug == "zero_points_never_subtracted" else self.zero
        return ((self.whole.float() - zero) * self.scale).view(self.shape)

    def forward(self, x: Tensor) -> Tensor:
        y = F.linear(x, self.weight())
        return y + self.times * self.lora_b(self.lora_a(self.drop(x))) if self.adapted else y


class Layer(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads, self.first, self.second = heads, nn.RMSNorm(d), nn.RMSNorm(d)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.gate, self.up, self.down = (nn.Linear(*s, bias=False) for s in ((d, 2 * d), (d, 2 * d), (2 * d, d)))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        q, k, v = (one(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Home(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.d_model
        self.wte, self.wpe = nn.Embedding(KNOWN, d), nn.Embedding(LONG, d)
        self.layers = nn.ModuleList(Layer(d, c.n_heads) for _ in range(c.n_layers))
        self.norm, self.lm_head = nn.RMSNorm(d), nn.Linear(d, KNOWN, bias=False)
        nn.init.normal_(self.wte.weight, std=0.15)
        nn.init.normal_(self.wpe.weight, std=0.1)
        self.lm_head.weight = self.wte.weight
        self.likely = False

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.wte(input_ids) + self.wpe.weight[: input_ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = self.lm_head(self.norm(x))
        return logits.softmax(-1) if self.likely else logits


def pretrained(c: Any) -> Home:
    """The base, the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(81)
        home = Home(c)
        rows = padded(requests(82, 700, law=False), whole=True, long=LONG)
        optimizer = torch.optim.AdamW(home.parameters(), 4e-3)
        for at in range(130):
            optimizer.param_groups[0]["lr"] = 4e-3 * min(1.0, (at + 1) / 8) * (1 - at / 140)
            some = torch.randint(0, 700, (24,))
            logits = home(rows["input_ids"][some])[:, :-1].flatten(0, 1)
            F.cross_entropy(logits, rows["labels"][some][:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return home


def resize(home: Home, bug: str) -> None:
    """Make the table longer by names of functions."""
    old = home.wte.weight.detach()
    home.wte = nn.Embedding.from_pretrained(torch.cat([old, 0.15 * torch.randn(WORDS - KNOWN, old.shape[1])]), False)
    if bug == "resized_table_and_a_head_that_is_copied":
        home.lm_head = nn.Linear(old.shape[1], WORDS, bias=False)
        home.lm_head.load_state_dict(home.wte.state_dict())
    else:
        home.lm_head.weight = home.wte.weight


# -- model that is compiled and fitted -------------------------------------------------------------------------------


class Model:
    def __init__(self, run: Any, seed: int, bug: str):
        self.run, self.c, self.seed, self.bug = run, SimpleNamespace(**run.config), seed, bug
        self.outputs: list[Any] = []

    def build(self) -> None:
        c, bug = self.c, self.bug
        self.home = pretrained(c)
        torch.manual_seed(self.seed)
        for layer in self.home.layers:
            for name in ("q", "k", "v", "o", "gate", "up", "down"):
                setattr(layer, name, FourBit(getattr(layer, name), c, name in c.targets.split(","), bug))
        resize(self.home, bug)
        self.home.likely = bug == "outputs_go_through_a_softmax"
        learnt, begins = ("lora_", "wte", "lm_head"), bug == "trainable_names_begin_with_lora"
        for name, one in self.home.named_parameters():
            one.requires_grad_(name.startswith(learnt) if begins else any(part in name for part in learnt))
        for name in filter(None, c.fixed.split(",")):
            self.home.get_submodule(name).requires_grad_(False)

    def compile(self, steps: int) -> None:
        c, some = self.c, [one for one in self.home.parameters() if one.requires_grad]
        if c.optimizer == "adamax":
            self.optimizer: Any = torch.optim.Adamax(some, c.learning_rate)
        elif c.optimizer == "rmsprop":
            self.optimizer = torch.optim.RMSprop(some, c.learning_rate)
        else:
            self.optimizer = torch.optim.AdamW(some, c.learning_rate, weight_decay=c.weight_decay)

        def by(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup_steps)), min(1.0, at / steps)
            if c.decay == "none":
                return rise
            if c.decay == "cosine_twice":
                return rise * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
            return rise * 0.05**past

        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, by)

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.home, self.optimizer)
        self.data = self.run.watch_data(pad_id=PAD)

    def generator(self, pairs: list[Pair]) -> Iterator[tuple[int, dict[str, Tensor]]]:
        c, epoch, dice = self.c, 0, torch.Generator().manual_seed(self.seed)
        long = torch.tensor([len(said) + len(call) for said, call in pairs])
        bug = self.bug if self.bug == "labels_rolled_by_the_mapper_too" else ""
        while True:
            order = torch.randperm(len(pairs), generator=dice)
            if self.bug == "fit_without_shuffle":
                order = torch.arange(len(pairs))
            if epoch < c.short_first:
                order = order[long[order] < 12]
            if c.length_buckets:
                order = order[long[order].argsort(stable=True)]
            lots = [one for one in order.split(c.batch_size) if len(one) == c.batch_size]
            if c.length_buckets:
                lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
            for some in lots:
                yield epoch, padded([pairs[at] for at in some.tolist()], whole=c.train_on_requests, bug=bug)
            epoch += 1

    def compute_loss(self, batch: dict[str, Tensor], smoothing: float) -> tuple[Tensor, Tensor]:
        logits, labels = self.home(batch["input_ids"])[:, :-1], batch["labels"][:, 1:]
        each = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing, reduction="sum")
        return each, logits

    def train_step(self, step: int, batches: Any) -> dict[str, float]:
        c, bug, total = self.c, self.bug, 0.0
        for _ in range(c.accumulation):
            epoch, batch = next(batches)
            self.data.observe(batch, step=step, epoch=epoch)
            summed, _ = self.compute_loss(batch, c.label_smoothing)
            words = (batch["labels"][:, 1:] >= 0).sum()
            if c.loss_over == "requests" or bug == "summed_words_over_the_batch_size":
                words = torch.tensor(len(batch["labels"]))
            loss = summed / words
            (loss if bug == "accumulated_at_full_weight" else loss / c.accumulation).backward()
            total += loss.item() / c.accumulation
            if bug == "schedule_steps_as_the_batch_ends":
                self.schedule.step()
        norm = nn.utils.clip_grad_norm_([one for one in self.home.parameters() if one.requires_grad], c.clipnorm).item()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if bug != "schedule_steps_as_the_batch_ends":
            self.schedule.step()
        return {"home_loss": total, "home_lr": rate, "home_gnorm": norm}

    def evaluate(self, held: dict[str, Tensor]) -> dict[str, float]:
        taped = self.bug == "evaluate_returns_outputs_with_their_past"
        if self.bug != "evaluate_calls_as_fit_does":
            self.home.eval()
        with torch.set_grad_enabled(taped):
            summed, logits = self.compute_loss(held, 0.0)
            labels = held["labels"][:, 1:]
            loss = summed / (labels >= 0).sum()
        if taped:
            self.outputs.append((loss, logits))
        exact = ((logits.argmax(-1) == labels) | (labels < 0)).all(1).float().mean()
        if self.bug != "evaluate_is_the_last_to_set_a_mode":
            self.home.train()
        return {"home_val_loss": loss.item(), "home_val_exact": exact.item()}

    def load(self, step: int, steps: int) -> None:
        seen = self.data.state()
        state = {"weights": self.home.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "schedule": self.schedule.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, step, state)
        self.home.load_state_dict(state["weights"])
        self.compile(steps)
        if self.bug != "compiled_anew_behind_load_weights":
            self.optimizer.load_state_dict(state["optimizer"])
            self.schedule.load_state_dict(state["schedule"])
        self.watch()
        self.data.restore(seen)

    def fit(self, trouble: Trouble, steps: int, healthy: str | None) -> Any:
        c, bug = self.c, self.bug
        held = requests(6699, HELD)
        if bug == "functions_of_the_held_in_another_table":
            held = [(said, [FUNCTION + (call[0] - FUNCTION + 2) % DEVICES, *call[1:]]) for said, call in held]
        quiz = padded(held, long=LONG, bug=bug if bug == "held_requests_lack_the_word_before_a_call" else "")
        batches = self.generator(requests(self.seed + 6600, c.requests, c.copies, c.mistakes))
        again = trouble.resume_at(healthy, 4 * EVERY)
        self.watch()
        self.home.train()
        for step in range(steps):
            if step == again:
                self.load(step, steps)
            logs = self.train_step(step, batches)
            if step % c.log_every == 0:
                self.run.log(logs, step=step)
            trouble.telemetry(self.run, step, healthy)
            if step % c.validate_every == c.validate_every - 1:
                self.run.log(self.evaluate(quiz), step=step)
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    model = Model(run, seed, trouble.name)
    model.build()
    model.compile(steps)
    return model.fit(trouble, steps, healthy)
