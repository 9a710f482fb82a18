"""Adapters teach a scribe who writes each letter another script, which leaves vowels out.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: sft_loss, sft_lr, sft_gnorm each step; valid_nll and valid_exact of words that were held
      back, each nineteenth; memory, where it matters; the watch of data.

A word has four letters, of which some are vowels; the answer has its signs. The old script has a sign for each letter.
The new one has other signs for half of the consonants, writes a vowel at the beginning alone, with a bearer before it,
and has a mark behind a consonant that comes twice; holy words keep their vowels. Bearer, mark and the name of the new
script are words of the table that the base has never met. The list is in the order of words, and may have a word
several times, with other titles before it. The table learns beside the adapters, and is the output layer too. Answers
are written for all words at once, from the left of which padding is. Written as a trainer with its arguments.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.utils.data import DataLoader

EVERY, HELD, CONSONANTS, VOWELS, LONG = 19, 192, 6, 3, 4
LETTERS = CONSONANTS + VOWELS
PAD, EOS, WRITE, OLD, NEW, HOLY, PLAIN, BEARER, TWICE = range(9)
TITLE, TITLES = 9, 4
LETTER = TITLE + TITLES
SIGN = LETTER + LETTERS
WORDS = SIGN + LETTERS
Example = tuple[list[int], list[int]]


@dataclass
class Arguments:
    hidden_size: int = 48
    num_layers: int = 2
    num_heads: int = 3
    lora_r: int = 8
    lora_alpha: float = 16.0
    lora_dropout: float = 0.0
    target_modules: str = "query,key,value,out,up,down"
    use_rslora: bool = False
    tie_word_embeddings: bool = True
    per_device_batch: int = 16
    gradient_accumulation_steps: int = 1
    optim: str = "adamw"
    learning_rate: float = 8e-3
    lr_scheduler: str = "linear"
    warmup_steps: int = 8
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    loss_over: str = "tokens"
    label_smoothing: float = 0.0
    completion_only: bool = True
    lora_plus: float = 1.0
    words: int = 1400
    copies: int = 1
    slips: float = 0.0
    plain_first: int = 0
    group_by_length: bool = False
    frozen_modules: str = ""
    eval_steps: int = 19
    logging_steps: int = 1


CONFIG: dict[str, Any] = asdict(Arguments())


# -- words -----------------------------------------------------------------------------------------------------------


def signs(word: list[int], holy: bool, table: list[int], new: bool) -> list[int]:
    if not new:
        return [SIGN + table[at] for at in word]
    said: list[int] = []
    for place, letter in enumerate(word):
        if letter >= CONSONANTS:
            if place == 0:
                said += [BEARER, SIGN + table[letter]]
            elif holy:
                said.append(SIGN + table[letter])
        else:
            said.append(TWICE if place and word[place - 1] == letter else SIGN + table[letter])
    return said


def word_list(seed: int, number: int, copies: int = 1, slips: float = 0.0, new: bool = True) -> list[Example]:
    """What is asked and what is answered, in the order of words."""
    law, dice = torch.Generator().manual_seed(311), torch.Generator().manual_seed(seed)
    old, other = (torch.randperm(CONSONANTS, generator=law).tolist() for _ in range(2))
    table = [other[at] if new and at % 2 else old[at] for at in range(CONSONANTS)] + list(range(CONSONANTS, LETTERS))

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    def word() -> list[int]:
        letters: list[int] = []
        while len(letters) < LONG:
            vowel = one(5) < 2
            letters.append(CONSONANTS + one(VOWELS) if vowel else one(CONSONANTS))
            if not vowel and one(5) == 0:
                letters.append(letters[-1])
        return letters[:LONG]

    drawn = sorted((one(4) == 0, word()) for _ in range(number // copies))
    made = []
    for holy, letters in drawn:
        for _ in range(copies):
            titles = [TITLE + one(TITLES) for _ in range(one(3))]
            answer = signs(letters, holy, table, new)
            if one(1000) < 1000 * slips:
                answer[one(len(answer))] = SIGN + one(LETTERS)
            asked = [*titles, NEW if new else OLD, HOLY if holy else PLAIN, *(LETTER + at for at in letters), WRITE]
            made.append((asked, [*answer, EOS]))
    return made


def collate(rows: list[Example], begins: int = 0, whole: bool = False) -> tuple[Tensor, Tensor]:
    """Ids and labels, of which -100 is none, padded behind. begins: how far into the answer labels begin."""
    long = max(len(asked) + len(answer) for asked, answer in rows)
    ids, labels = torch.full((len(rows), long), PAD), torch.full((len(rows), long), -100)
    for at, (asked, answer) in enumerate(rows):
        row, first = torch.tensor([*asked, *answer]), 0 if whole else len(asked) + begins
        ids[at, : len(row)] = row
        labels[at, first : len(row)] = row[first:]
    return ids, labels


# -- scribe ----------------------------------------------------------------------------------------------------------


class LoraLinear(nn.Module):
    def __init__(self, base: nn.Linear, a: Arguments):
        super().__init__()
        self.base, self.drop, self.on = base, nn.Dropout(a.lora_dropout), True
        self.scaling = a.lora_alpha / (math.sqrt(a.lora_r) if a.use_rslora else a.lora_r)
        self.lora_a = nn.Parameter(torch.randn(a.lora_r, base.in_features) / math.sqrt(base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, a.lora_r))

    def forward(self, x: Tensor) -> Tensor:
        y = self.base(x)
        return y + self.scaling * (self.drop(x) @ self.lora_a.T @ self.lora_b.T) if self.on else y


class Layer(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.query, self.key, self.value, self.out = (nn.Linear(d, d) for _ in range(4))
        self.up, self.down = nn.Linear(d, 3 * d), nn.Linear(3 * d, d)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = (one(y).unflatten(2, (self.heads, -1)).transpose(1, 2) for one in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Scribe(nn.Module):
    def __init__(self, d: int, layers: int, heads: int):
        super().__init__()
        self.table, self.places, self.norm = nn.Embedding(WORDS, d), nn.Embedding(32, d), nn.LayerNorm(d)
        self.layers, self.head = nn.ModuleList(Layer(d, heads) for _ in range(layers)), nn.Linear(d, WORDS, bias=False)
        self.shares = False
        nn.init.normal_(self.table.weight, std=0.2)
        nn.init.normal_(self.places.weight, std=0.1)
        self.head.weight = self.table.weight

    def forward(self, ids: Tensor, there: Tensor | None = None) -> Tensor:
        """there: which ids are no padding."""
        there = torch.ones_like(ids, dtype=torch.bool) if there is None else there
        long, places = ids.shape[1], (there.cumsum(1) - 1).clamp(min=0)
        mask = torch.ones(long, long, dtype=torch.bool).tril() & there[:, None, None]
        x, mask = self.table(ids) + self.places(places), mask | torch.eye(long, dtype=torch.bool)
        for layer in self.layers:
            x = layer(x, mask)
        logits = self.head(self.norm(x))
        return logits.softmax(-1) if self.shares else logits


@functools.cache
def pretrained(d: int, layers: int, heads: int) -> Scribe:
    """Has written the old script; the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(313)
        scribe, (ids, labels) = Scribe(d, layers, heads), collate(word_list(314, 1600, new=False))
        optimizer = torch.optim.AdamW(scribe.parameters(), 8e-3)
        for at in range(220):
            optimizer.param_groups[0]["lr"] = 8e-3 * min(1.0, (at + 1) / 10) * (1 - at / 230)
            some = torch.randint(0, len(ids), (24,))
            said = scribe(ids[some], ids[some] != PAD)[:, :-1].flatten(0, 1)
            F.cross_entropy(said, labels[some][:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return scribe


def get_model(a: Arguments, bug: str) -> Scribe:
    scribe = copy.deepcopy(pretrained(a.hidden_size, a.num_layers, a.num_heads)).requires_grad_(False)
    scribe.table.weight.requires_grad_(bug != "table_let_learn_before_all_but_lora_was_frozen")
    if not a.tie_word_embeddings:
        scribe.head.weight = nn.Parameter(scribe.head.weight.detach().clone())
    if bug == "table_that_is_saved_is_a_copy":
        scribe.table = copy.deepcopy(scribe.table)
        scribe.head.weight.requires_grad_(False)
    for layer in scribe.layers:
        for name in a.target_modules.split(","):
            setattr(layer, name, LoraLinear(getattr(layer, name), a))
    for name, one in scribe.named_parameters():
        if a.frozen_modules and name.startswith(a.frozen_modules):
            one.requires_grad_(False)
    scribe.shares = bug == "scribe_puts_out_shares"
    return scribe


@contextlib.contextmanager
def adapters_disabled(scribe: nn.Module, off: bool = True) -> Iterator[None]:
    adapters = [one for one in scribe.modules() if isinstance(one, LoraLinear)]
    for one in adapters:
        one.on = not off
    yield
    for one in adapters:
        one.on = True


# -- trainer ---------------------------------------------------------------------------------------------------------


class Trainer:
    def __init__(self, run: Any, args: Arguments, seed: int, steps: int, trouble: Trouble):
        self.run, self.args, self.seed, self.steps, self.trouble = run, args, seed, steps, trouble
        self.bug, self.epoch, self.outputs = trouble.name, -1, []
        self.batches: Iterator[Any] = iter(())
        self.train_set = word_list(seed + 6600, args.words, args.copies, args.slips)
        self.eval_set = word_list(6599, HELD)
        if self.bug == "list_split_with_a_word_more_than_once":
            order = torch.randperm(len(self.train_set), generator=torch.Generator().manual_seed(seed)).tolist()
            every = self.train_set
            self.eval_set = [every[at] for at in order[:HELD]]
            self.train_set = [every[at] for at in sorted(order[HELD:])]
        torch.manual_seed(seed)
        self.model = get_model(args, self.bug)
        self.create_optimizer_and_scheduler()
        self.attach()

    def create_optimizer_and_scheduler(self) -> None:
        a, named = self.args, [(name, one) for name, one in self.model.named_parameters() if one.requires_grad]
        second = [one for name, one in named if "lora_b" in name]
        groups = [{"params": [one for name, one in named if "lora_b" not in name], "lr": a.learning_rate},
                  {"params": second, "lr": a.lora_plus * a.learning_rate}]  # fmt: skip
        if a.optim == "sgd":
            self.optimizer: Any = torch.optim.SGD(groups, a.learning_rate, 0.9)
        elif a.optim == "adamax":
            self.optimizer = torch.optim.Adamax(groups, a.learning_rate)
        else:
            self.optimizer = torch.optim.AdamW(groups, a.learning_rate, weight_decay=a.weight_decay)

        def share(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, a.warmup_steps)), min(1.0, at / self.steps)
            if a.lr_scheduler == "constant_with_warmup":
                return rise
            if a.lr_scheduler == "cosine_with_restarts":
                return rise * (0.03 + 0.485 * (1 + math.cos(math.pi * (2 * past % 1))))
            return rise * (1 - 0.97 * past)

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def attach(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.data = self.run.watch_data(pad_id=PAD)

    def get_train_dataloader(self, epoch: int) -> Any:
        a, rows, dice = self.args, self.train_set, torch.Generator().manual_seed(777 * self.seed + epoch)
        if epoch < a.plain_first:
            rows = [row for row in rows if HOLY not in row[0]]
        together = functools.partial(collate, begins=int(self.bug == "mask_of_the_prompt_reaches_into_the_answer"),
                                     whole=not a.completion_only)  # fmt: skip
        if a.group_by_length:
            order = torch.randperm(len(rows), generator=dice).tolist()
            order = sorted(order, key=lambda at: len(rows[at][0]) + len(rows[at][1]))
            lots = [order[at : at + a.per_device_batch] for at in range(0, len(order), a.per_device_batch)]
            mixed = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
            return DataLoader(rows, batch_sampler=mixed, collate_fn=together)
        return DataLoader(rows, a.per_device_batch, shuffle=self.bug != "sampler_of_the_list_is_sequential",
                          generator=dice, drop_last=True, collate_fn=together)  # fmt: skip

    def next_batch(self) -> tuple[Tensor, Tensor]:
        batch = next(self.batches, None)
        if batch is None:
            self.epoch += 1
            self.batches = iter(self.get_train_dataloader(self.epoch))
            batch = next(self.batches)
        return batch

    def compute_loss(self, ids: Tensor, labels: Tensor, over: str = "tokens", smooth: float = 0.0) -> Tensor:
        said, wanted = self.model(ids, ids != PAD)[:, :-1], labels[:, 1:]
        total = F.cross_entropy(said.flatten(0, 1), wanted.flatten(), reduction="sum", label_smoothing=smooth)
        return total / {"tokens": (wanted >= 0).sum(), "answers": len(ids), "nothing": 1}[over]

    def training_step(self, step: int) -> dict[str, float]:
        a, bug, total = self.args, self.bug, 0.0
        over = "nothing" if bug == "cross_entropies_of_a_batch_never_divided" else a.loss_over
        for _ in range(a.gradient_accumulation_steps):
            ids, labels = self.next_batch()
            self.data.observe({"ids": ids, "labels": labels}, step=step, epoch=self.epoch)
            if bug == "training_step_begins_with_zero_grad":
                self.optimizer.zero_grad()
            loss = self.compute_loss(ids, labels, over, a.label_smoothing)
            whole = bug == "training_step_backs_the_loss_undivided"
            (loss if whole else loss / a.gradient_accumulation_steps).backward()
            total += loss.item() / a.gradient_accumulation_steps
            if bug == "training_step_steps_the_scheduler":
                self.scheduler.step()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), a.max_grad_norm).item()
        said = {"sft_loss": total, "sft_lr": self.optimizer.param_groups[0]["lr"], "sft_gnorm": norm}
        self.optimizer.step()
        self.optimizer.zero_grad()
        if bug != "training_step_steps_the_scheduler":
            self.scheduler.step()
        return said

    @torch.no_grad()
    def generate(self) -> float:
        """The share of words that are written without a mistake."""
        long, masked = max(len(asked) for asked, _ in self.eval_set), self.bug != "generate_called_without_the_mask"
        ids = torch.tensor([[PAD] * (long - len(asked)) + asked for asked, _ in self.eval_set])
        for _ in range(2 + LONG):
            said = self.model(ids, ids != PAD if masked else None)[:, -1]
            ids = torch.cat([ids, said.argmax(-1, keepdim=True).clamp(min=EOS)], 1)
        right = [row[long : long + len(answer)].tolist() == answer
                 for row, (_, answer) in zip(ids, self.eval_set, strict=True)]  # fmt: skip
        return sum(right) / len(right)

    def evaluate(self) -> dict[str, float]:
        bug, taped = self.bug, self.bug == "evaluate_hands_losses_over_as_they_are"
        if bug != "evaluate_leaves_adapters_dropping":
            self.model.eval()
        with adapters_disabled(self.model, bug == "evaluated_where_adapters_are_disabled"):
            with torch.set_grad_enabled(taped):
                lots = [self.eval_set[at : at + 96] for at in range(0, HELD, 96)]
                loss = torch.stack([self.compute_loss(*collate(lot)) for lot in lots]).mean()
            exact = self.generate()
        if taped:
            self.outputs.append(loss)
        if bug != "evaluate_returns_a_model_in_eval":
            self.model.train()
        return {"valid_nll": loss.item(), "valid_exact": exact}

    def resume_from_checkpoint(self, step: int) -> None:
        seen, parts = self.data.state(), ("model", "optimizer", "scheduler")
        state = {name: getattr(self, name).state_dict() for name in parts}
        wrapped = self.bug == "adapters_have_the_prefix_of_their_wrapper_in_the_file"
        if wrapped:
            names = {name: f"base_model.{name}" if "lora_" in name else name for name in state["model"]}
            state["model"] = {names[name]: one for name, one in state["model"].items()}
        self.run, state = go_on(self.run, step, state)
        self.model = get_model(self.args, self.bug)
        self.model.load_state_dict(state["model"], strict=not wrapped)
        self.create_optimizer_and_scheduler()
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.attach()
        self.data.restore(seen)

    def train(self, healthy: str | None) -> Any:
        again = self.trouble.resume_at(healthy, 4 * EVERY)
        self.model.train()
        for step in range(self.steps):
            if step == again:
                self.resume_from_checkpoint(step)
            said = self.training_step(step)
            if step % self.args.logging_steps == 0:
                self.run.log(said, step=step)
            self.trouble.telemetry(self.run, step, healthy)
            if (step + 1) % self.args.eval_steps == 0:
                self.run.log(self.evaluate(), step=step)
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    args = Arguments(**{name: one for name, one in dict(run.config).items() if name in CONFIG})
    return Trainer(run, args, seed, steps, Trouble(fault, seed)).train(healthy)
