"""Adapters on a signaller, who knows the old code of flags, teach it the new one.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: flags/loss, flags/lr, flags/norm each step; fleet/loss and fleet/whole of messages that
      were held back, each eighteenth; memory, where it matters; the watch of data.

A message is of one of two ships and has three to five letters of seven; the answer has a flag for each. In the old
code a flag is a letter and the ship's number on; in the new one the letter counts thrice, and on the second ship a
letter that was just sent is answered by a flag of its own. That flag and the name of the code are words that the
signaller has never met. The log has ship after ship, and may have several sendings of one message, in other weather.
The table learns beside the adapters, and is the output layer too. Written as functions over a loader of torch and a
recipe.
"""

from __future__ import annotations

import copy
import functools
import math
import re
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler

EVERY, HELD, LETTERS, SHIPS, WEATHERS, MOST = 18, 192, 7, 2, 5, 5
PAD, BOS, EOS, OLD, NEW, SEND, AGAIN = range(7)
SHIP, WEATHER = 7, 7 + SHIPS
LETTER = WEATHER + WEATHERS
FLAG = LETTER + LETTERS
WORDS = FLAG + LETTERS
ON = (0, 3)
CONFIG: dict[str, Any] = {
    "dim": 48, "depth": 2, "heads": 4, "r": 8, "lora_alpha": 16, "lora_dropout": 0.0,
    "target_modules": "qkv|out|gate|down", "tie": True, "batch": 16, "grad_acc": 1, "optimiser": "adamw",
    "lr": 8e-3, "lr_schedule": "cosine", "warmup_steps": 8, "weight_decay": 0.0, "max_norm": 1.0, "normalise": "tokens",
    "smoothing": 0.0, "train_on_prompt": False, "lora_b_factor": 1.0, "messages": 1400, "sendings": 1,
    "wrong_flags": 0.0, "short_first": 0, "group_by_length": False, "frozen": "", "fleet_every": 18, "log_every": 1,
}  # fmt: skip
Row = tuple[list[int], list[int]]


# -- the log of the fleet --------------------------------------------------------------------------------------------


def flags(letters: list[int], ship: int, new: bool) -> list[int]:
    if not new:
        return [FLAG + (letter + ON[ship]) % LETTERS for letter in letters]
    said = [FLAG + (3 * letter + ON[ship]) % LETTERS for letter in letters]
    if ship == 1:
        said = [AGAIN if at and letters[at] == letters[at - 1] else flag for at, flag in enumerate(said)]
    return said


def fleet(seed: int, number: int, sendings: int = 1, wrong: float = 0.0, new: bool = True) -> list[Row]:
    """Messages and answers; ship after ship."""
    dice, made = torch.Generator().manual_seed(seed), []

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    messages = sorted((one(SHIPS), [one(LETTERS) for _ in range(3 + one(MOST - 2))]) for _ in range(number // sendings))
    for ship, letters in messages:
        for _ in range(sendings):
            answer = flags(letters, ship, new)
            if one(1000) < 1000 * wrong:
                answer[one(len(answer))] = FLAG + one(LETTERS)
            asked = [BOS, WEATHER + one(WEATHERS), NEW if new else OLD, SHIP + ship]
            made.append(([*asked, *(LETTER + letter for letter in letters), SEND], [*answer, EOS]))
    return made


def collate(rows: list[Row], whole: bool = False, bug: str = "") -> tuple[Tensor, Tensor]:
    """Ids, padded behind, and labels, of which -100 is none."""
    long = max(len(asked) + len(answer) for asked, answer in rows)
    ids, labels = torch.full((len(rows), long), PAD), torch.full((len(rows), long), -100)
    for at, (asked, answer) in enumerate(rows):
        ids[at, : len(asked) + len(answer)] = torch.tensor([*asked, *answer])
        labels[at, : len(asked) + len(answer)] = ids[at, : len(asked) + len(answer)]
        if not whole:
            prompt = answer if bug == "prompt_masked_by_the_length_of_the_answer" else asked
            labels[at, : len(prompt)] = -100
    if bug == "labels_moved_by_collate_as_well_as_by_the_loss":
        labels = torch.cat([labels[:, 1:], torch.full((len(rows), 1), -100)], 1)
    return ids, labels


class Like(Sampler[list[int]]):
    """Batches of messages of like length, in any order."""

    def __init__(self, rows: list[Row], batch: int, dice: torch.Generator):
        self.long, self.batch, self.dice = [len(asked) for asked, _ in rows], batch, dice

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(len(self.long), generator=self.dice).tolist()
        order.sort(key=lambda at: self.long[at])
        lots = [order[at : at + self.batch] for at in range(0, len(order) - self.batch + 1, self.batch)]
        yield from (lots[at] for at in torch.randperm(len(lots), generator=self.dice).tolist())


# -- the signaller ---------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.down = nn.Linear(d, 4 * d), nn.Linear(2 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.glu(self.gate(self.norm2(x))))


class Signaller(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.dim
        self.embed, self.pos, self.norm = nn.Embedding(WORDS, d), nn.Embedding(24, d), nn.RMSNorm(d)
        self.blocks, self.lm_head = nn.ModuleList(Block(d, c.heads) for _ in range(c.depth)), \
            nn.Linear(d, WORDS, bias=False)  # fmt: skip
        nn.init.normal_(self.embed.weight, std=0.2)
        nn.init.normal_(self.pos.weight, std=0.1)
        self.lm_head.weight, self.shares = self.embed.weight, False

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) + self.pos.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(self.norm(x))
        return logits.softmax(-1) if self.shares else logits


class LoRA(nn.Module):
    def __init__(self, base: nn.Linear, c: Any, bug: str):
        super().__init__()
        self.base, self.dropout = base, nn.Dropout(c.lora_dropout)
        self.scaling = float(c.lora_alpha) if bug == "adapters_scaled_by_alpha_undivided" else c.lora_alpha / c.r
        self.lora_a = nn.Parameter(torch.randn(c.r, base.in_features) / math.sqrt(base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, c.r))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.scaling * (self.dropout(x) @ self.lora_a.T @ self.lora_b.T)


@functools.cache
def schooled(dim: int, depth: int, heads: int) -> Signaller:
    """Knows the old code; the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(411)
        made = Signaller(SimpleNamespace(dim=dim, depth=depth, heads=heads))
        (ids, labels), optimizer = collate(fleet(412, 1600, new=False)), torch.optim.AdamW(made.parameters(), 6e-3)
        for at in range(260):
            optimizer.param_groups[0]["lr"] = 6e-3 * min(1.0, (at + 1) / 10) * (1 - at / 270)
            some = torch.randint(0, len(ids), (24,))
            F.cross_entropy(made(ids[some])[:, :-1].flatten(0, 1), labels[some][:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return made


def adapt(model: Signaller, c: Any, bug: str) -> None:
    """Freeze the signaller, put adapters in, and let the table learn."""
    model.requires_grad_(False)
    for name, module in list(model.named_modules()):
        parent, _, last = name.rpartition(".")
        if isinstance(module, nn.Linear) and last != "lm_head":
            asked = name if bug == "targets_matched_with_the_whole_path" else last
            if re.fullmatch(c.target_modules, asked):
                setattr(model.get_submodule(parent), last, LoRA(module, c, bug))
    if bug == "table_made_anew_for_new_words_and_the_head_is_not":
        model.embed = nn.Embedding.from_pretrained(model.embed.weight.detach().clone(), freeze=False)
    model.embed.requires_grad_(True)
    if not c.tie:
        model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    for name, one in model.named_parameters():
        if c.frozen and name.startswith(c.frozen):
            one.requires_grad_(False)
    model.shares = bug == "signaller_hands_out_probabilities"


# -- the recipe ------------------------------------------------------------------------------------------------------


class Recipe:
    def __init__(self, run: Any, seed: int, steps: int, trouble: Trouble):
        self.run, self.c, self.seed, self.steps = run, SimpleNamespace(**run.config), seed, steps
        self.trouble, self.bug, self.epoch, self.losses = trouble, trouble.name, -1, []
        c = self.c
        self.rows, self.held = fleet(seed + 6500, c.messages, c.sendings, c.wrong_flags), fleet(6499, HELD)
        if self.bug == "sendings_of_a_message_split_by_chance":
            order = torch.randperm(len(self.rows), generator=torch.Generator().manual_seed(seed)).tolist()
            every = self.rows
            self.held, self.rows = [every[at] for at in order[:HELD]], [every[at] for at in sorted(order[HELD:])]
        torch.manual_seed(seed)
        self.setup_model()
        self.setup_optimizer()
        self.iterator: Any = iter(())

    def setup_model(self) -> None:
        c = self.c
        self.model = copy.deepcopy(schooled(c.dim, c.depth, c.heads))
        adapt(self.model, c, self.bug)

    def setup_optimizer(self) -> None:
        c, named = self.c, [(name, one) for name, one in self.model.named_parameters() if one.requires_grad]
        groups = [{"params": [one for name, one in named if ("lora_b" in name) == second], "lr": factor * c.lr}
                  for second, factor in ((False, 1.0), (True, c.lora_b_factor))]  # fmt: skip
        groups = [group for group in groups if group["params"]]
        if c.optimiser == "sgd":
            self.optimizer: Any = torch.optim.SGD(groups, c.lr, 0.9)
        elif c.optimiser == "radam":
            self.optimizer = torch.optim.RAdam(groups, c.lr)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.lr, weight_decay=c.weight_decay)

        def share(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup_steps)), min(1.0, at / self.steps)
            if c.lr_schedule == "constant":
                return rise
            if c.lr_schedule == "restarts":
                past = 2 * past % 1
            return rise * (0.03 + 0.485 * (1 + math.cos(math.pi * past)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def setup_watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.data = self.run.watch_data(pad_id=PAD)

    def loader(self) -> Any:
        c, dice = self.c, torch.Generator().manual_seed(500 * self.seed + self.epoch)
        rows = [row for row in self.rows if self.epoch >= c.short_first or len(row[1]) < MOST]
        put = partial(collate, whole=c.train_on_prompt, bug=self.bug)
        if c.group_by_length:
            return DataLoader(rows, batch_sampler=Like(rows, c.batch, dice), collate_fn=put, generator=dice)  # type: ignore[arg-type]
        shuffle = self.bug != "loader_of_the_fleet_made_with_its_defaults"
        return DataLoader(rows, c.batch, shuffle, generator=dice, drop_last=True, collate_fn=put)  # type: ignore[arg-type]

    def next_batch(self) -> Any:
        batch = next(self.iterator, None)
        if batch is None:
            self.epoch += 1
            self.iterator = iter(self.loader())
            batch = next(self.iterator)
        return batch

    def loss(self, ids: Tensor, labels: Tensor, training: bool) -> Tensor:
        c, wanted = self.c, labels[:, 1:]
        total = F.cross_entropy(self.model(ids)[:, :-1].flatten(0, 1), wanted.flatten(), reduction="sum",
                                label_smoothing=c.smoothing if training else 0.0)  # fmt: skip
        if training and self.bug == "reduction_of_the_flags_is_sum":
            return total
        return total / (len(ids) if training and c.normalise == "rows" else (wanted != -100).sum())

    def train_step(self, step: int) -> dict[str, float]:
        c, bug, total = self.c, self.bug, 0.0
        for _ in range(c.grad_acc):
            ids, labels = self.next_batch()
            self.data.observe({"ids": ids, "labels": labels}, step=step, epoch=self.epoch)
            if bug == "zero_grad_at_the_head_of_each_micro_step":
                self.optimizer.zero_grad()
            loss = self.loss(ids, labels, True)
            (loss if bug == "micro_steps_are_summed_up" else loss / c.grad_acc).backward()
            total += loss.item() / c.grad_acc
            if bug == "lr_scheduler_moved_by_each_micro_step":
                self.scheduler.step()
        rate = self.optimizer.param_groups[0]["lr"]
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), c.max_norm).item()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if bug != "lr_scheduler_moved_by_each_micro_step":
            self.scheduler.step()
        return {"flags/loss": total, "flags/lr": rate, "flags/norm": norm}

    @torch.no_grad()
    def whole(self) -> float:
        """The share of messages that are answered rightly to their end."""
        right = 0
        for long in {len(asked) for asked, _ in self.held}:
            rows = [row for row in self.held if len(row[0]) == long]
            ids = torch.tensor([asked for asked, _ in rows])
            for _ in range(len(rows[0][1])):
                ids = torch.cat([ids, self.model(ids)[:, -1].argmax(-1, keepdim=True)], 1)
            right += sum(said[long:] == answer for said, (_, answer) in zip(ids.tolist(), rows, strict=True))
        return right / len(self.held)

    def evaluate(self) -> dict[str, float]:
        bug, taped = self.bug, self.bug == "losses_of_the_fleet_are_kept_alive"
        if bug != "fleet_is_asked_with_adapters_that_drop":
            self.model.eval()
        with torch.set_grad_enabled(taped):
            lots = [self.loss(*collate(self.held[at : at + 64]), False) for at in range(0, HELD, 64)]
        if taped:
            self.losses += lots
        said = {"fleet/loss": torch.stack(lots).mean().item(), "fleet/whole": self.whole()}
        self.model.train()
        return said

    def resume(self, step: int) -> None:
        seen, parts = self.data.state(), ("model", "optimizer", "scheduler")
        self.run, state = go_on(self.run, step, {name: getattr(self, name).state_dict() for name in parts})
        self.setup_model()
        self.model.load_state_dict(state["model"])
        self.setup_optimizer()
        if self.bug != "recipe_resumed_from_the_model_alone":
            self.optimizer.load_state_dict(state["optimizer"])
            self.scheduler.load_state_dict(state["scheduler"])
        self.model.train()
        self.setup_watch()
        self.data.restore(seen)

    def train(self, healthy: str | None) -> Any:
        again = self.trouble.resume_at(healthy, 4 * EVERY)
        self.setup_watch()
        self.model.train()
        for step in range(self.steps):
            if step == again:
                self.resume(step)
            said = self.train_step(step)
            if step % self.c.log_every == 0:
                self.run.log(said, step=step)
            self.trouble.telemetry(self.run, step, healthy)
            if (step + 1) % self.c.fleet_every == 0:
                self.run.log(self.evaluate(), step=step)
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    return Recipe(run, seed, steps, Trouble(fault, seed)).train(healthy)
