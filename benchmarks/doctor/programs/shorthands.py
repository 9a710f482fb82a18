"""Low-rank adapters on a base of eight bits teach it another shorthand, which has a sign and a name that are new.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: sft.loss, sft.lr, sft.gn each step; dev.xent and dev.exact of words that were held back,
      each twenty-third; memory, where it matters; the watch of data.

A row names the system and the speed, and spells a word; the answer has its signs. The old system writes a sign for each
consonant. The new one has other signs for half of them, a dot for a vowel in front, leaves the last sign out when it is
fast, and has for one word in eight a brief form, which must be known. The dictionary is in order of the alphabet, and
may have a word several times. The base has read the old system. The table of words learns with the adapters, and is
the output layer too. Written as a trainer with methods that one could override.
"""

from __future__ import annotations

import copy
import functools
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, LONG = 23, 192, 16
PAD, END, WRITE, OLD, SLOW, FAST = range(6)
LETTER, VOWELS, CONSONANTS = 6, 4, 10
SIGN = LETTER + VOWELS + CONSONANTS
OLD_WORDS = SIGN + 2 * CONSONANTS
NEW, DOT = OLD_WORDS, OLD_WORDS + 1
WORDS = OLD_WORDS + 2
CONFIG: dict[str, Any] = {
    "hidden": 32, "blocks": 2, "heads": 2, "lora_r": 6, "lora_alpha": 12.0, "lora_dropout": 0.0,
    "lora_on": "q,v,o,up,down", "train_table": True, "share_table": True, "bsz": 16, "accum": 1, "optim": "adamw",
    "lr_max": 6e-3, "lr_type": "linear", "lr_warm": 8, "wd": 0.0, "gn_max": 1.0, "nll_per": "token",
    "smooth": 0.0, "prompt_loss": False, "rate_of_b": 1.0, "words": 900, "entries": 1, "misspelt": 0.0,
    "short_first": 0, "length_groups": False, "keep": "", "dev_every": 23, "log_every": 1,
}  # fmt: skip
Row = tuple[list[int], list[int]]


# -- dictionary ------------------------------------------------------------------------------------------------------


def dictionary(seed: int, number: int, entries: int = 1, misspelt: float = 0.0, new: bool = True) -> list[Row]:
    """What is asked and what is written, in the order of the alphabet."""
    law, dice, made = torch.Generator().manual_seed(211), torch.Generator().manual_seed(seed), []
    signs = torch.randperm(2 * CONSONANTS, generator=law)[:CONSONANTS].tolist()
    other = torch.randperm(2 * CONSONANTS, generator=law)[: CONSONANTS // 2].tolist()

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    spelt = []
    for _ in range(number // entries):
        word = [VOWELS + one(CONSONANTS)] if one(3) else [one(VOWELS), VOWELS + one(CONSONANTS)]
        for _ in range(1 + one(2)):
            word += [one(VOWELS), VOWELS + one(CONSONANTS)]
        spelt.append((word, [one(2 * CONSONANTS), one(2 * CONSONANTS)] if one(8) == 0 else []))
    for word, brief in sorted(spelt):
        for _ in range(entries):
            speed, own = SLOW + one(2), [*word]
            if one(1000) < 1000 * misspelt:
                own[one(len(own))] = VOWELS + one(CONSONANTS)
            table = [*other, *signs[CONSONANTS // 2 :]] if new else signs
            known = [table[at - VOWELS] for at in own if at >= VOWELS]
            answer = [SIGN + at for at in (brief if new and brief else known)]
            if new and speed == FAST and len(answer) > 1:
                answer.pop()
            answer = [DOT, *answer] if new and own[0] < VOWELS else answer
            made.append(([NEW if new else OLD, speed, *(LETTER + at for at in own), WRITE], [*answer, END]))
    return made


# -- model -----------------------------------------------------------------------------------------------------------


class Eight(nn.Module):
    """A matrix in whole numbers of eight bits, each row with its greatest value."""

    def __init__(self, weight: Tensor):
        super().__init__()
        self.register_buffer("most", weight.abs().amax(1, keepdim=True).clamp(min=1e-8))
        self.register_buffer("codes", (weight / self.most * 127).round().to(torch.int8))

    def plain(self) -> Tensor:
        return self.codes.float() * (self.most / 127)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.plain())


class LowRank(nn.Module):
    def __init__(self, base: Eight, c: Any):
        super().__init__()
        out, into = base.codes.shape
        self.base, self.drop, self.gain = base, nn.Dropout(c.lora_dropout), c.lora_alpha / c.lora_r
        self.lora_a = nn.Parameter(torch.randn(c.lora_r, into) / into**0.5)
        self.lora_b = nn.Parameter(torch.zeros(out, c.lora_r))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.gain * F.linear(F.linear(self.drop(x), self.lora_a), self.lora_b)

    @torch.no_grad()
    def merge(self) -> None:
        self.base = Eight(self.base.plain() + self.gain * self.lora_b @ self.lora_a)


class Block(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads, self.norm_one, self.norm_two = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(d, 3 * d, bias=False), nn.Linear(3 * d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm_one(x)
        q, k, v = (one(y).unflatten(2, (self.heads, -1)).transpose(1, 2) for one in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.relu(self.up(self.norm_two(x))).square())


class Stenographer(nn.Module):
    def __init__(self, d: int, blocks: int, heads: int):
        super().__init__()
        self.table, self.places = nn.Embedding(OLD_WORDS, d), nn.Parameter(0.1 * torch.randn(LONG, d))
        self.blocks, self.norm = nn.ModuleList(Block(d, heads) for _ in range(blocks)), nn.LayerNorm(d)
        self.head, self.as_shares = nn.Linear(d, OLD_WORDS, bias=False), False
        nn.init.normal_(self.table.weight, std=0.2)
        self.head.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens) + self.places[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return logits.softmax(-1) if self.as_shares else logits


def collated(rows: list[Row], prompt_loss: bool = False, more: int = 0) -> tuple[Tensor, Tensor]:
    """Tokens and labels, of which -100 is none. more: tokens of a prompt beside those that are counted."""
    tokens, labels = torch.full((len(rows), LONG), PAD), torch.full((len(rows), LONG), -100)
    for at, (asked, answer) in enumerate(rows):
        row = torch.tensor([*asked, *answer])
        tokens[at, : len(row)] = row
        first = 0 if prompt_loss else len(asked) + more
        labels[at, first : len(row)] = row[first:]
    return tokens, labels


@functools.cache
def pretrained(d: int, blocks: int, heads: int) -> Stenographer:
    """Has read the old system; the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(213)
        model, (tokens, labels) = Stenographer(d, blocks, heads), collated(dictionary(214, 1500, new=False))
        optimizer = torch.optim.AdamW(model.parameters(), 8e-3)
        for at in range(200):
            optimizer.param_groups[0]["lr"] = 8e-3 * min(1.0, (at + 1) / 10) * (1 - at / 210)
            some = torch.randint(0, len(tokens), (24,))
            logits = model(tokens[some])[:, :-1]
            F.cross_entropy(logits.flatten(0, 1), labels[some][:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return model


def with_adapters(c: Any, bug: str) -> Stenographer:
    model, d = copy.deepcopy(pretrained(c.hidden, c.blocks, c.heads)).requires_grad_(False), c.hidden
    old = model.table.weight
    model.table, model.head = nn.Embedding(WORDS, d), nn.Linear(d, WORDS, bias=False)
    grown = torch.cat([old, old.mean(0) + 0.05 * torch.randn(WORDS - OLD_WORDS, d)])
    model.table.weight = nn.Parameter(grown.clone(), requires_grad=c.train_table)
    if bug == "table_and_head_grown_one_after_the_other":
        model.head.weight = nn.Parameter(grown.clone(), requires_grad=False)  # the table is among what learns
    elif c.share_table:
        model.head.weight = model.table.weight
    else:
        model.head.weight = nn.Parameter(grown.clone(), requires_grad=c.train_table)
    for block in model.blocks:
        for name in ("q", "k", "v", "o", "up", "down"):
            base = Eight(getattr(block, name).weight)
            setattr(block, name, LowRank(base, c) if name in c.lora_on.split(",") else base)
    for name, one in model.named_parameters():
        if c.keep and name.startswith(c.keep):
            one.requires_grad_(False)
        if bug == "second_factors_not_among_what_learns" and "lora_b" in name:
            one.requires_grad_(False)
    model.as_shares = bug == "stenographer_answers_in_shares"
    return model


# -- trainer ---------------------------------------------------------------------------------------------------------


class SftTrainer:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.args, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        self.epoch, self.step, self.queue, self.outputs = 0, 0, [], []
        self.dice = torch.Generator().manual_seed(seed)
        self.get_datasets()
        torch.manual_seed(seed)
        self.model = with_adapters(self.args, bug)
        self.create_optimizer_and_scheduler()

    def get_datasets(self) -> None:
        a, more = self.args, int(self.bug == "prompts_counted_with_a_mark_that_is_not_there")
        rows = dictionary(self.seed + 5200, a.words, a.entries, a.misspelt)
        held = dictionary(5199, HELD)
        if self.bug == "entries_of_a_word_in_both_dictionaries":
            order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(self.seed)).tolist()
            held, rows = [rows[at] for at in order[:HELD]], [rows[at] for at in sorted(order[HELD:])]
        self.long = torch.tensor([len(asked) for asked, _ in rows])
        self.rows, self.held = collated(rows, a.prompt_loss, more), collated(held, more=more)
        self.truth = collated(held)[1]

    def create_optimizer_and_scheduler(self) -> None:
        a, named = self.args, [(name, one) for name, one in self.model.named_parameters() if one.requires_grad]
        second = [one for name, one in named if "lora_b" in name]
        groups = [{"params": [one for name, one in named if "lora_b" not in name], "lr": a.lr_max}]
        groups += [{"params": second, "lr": a.rate_of_b * a.lr_max}] if second else []
        if a.optim == "adamax":
            self.optimizer: Any = torch.optim.Adamax(groups, 2 * a.lr_max)
        elif a.optim == "sgd":
            self.optimizer = torch.optim.SGD(groups, a.lr_max, 0.9)
        else:
            self.optimizer = torch.optim.AdamW(groups, a.lr_max, weight_decay=a.wd)

        def share(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, a.lr_warm)), min(1.0, at / self.steps)
            if a.lr_type == "constant":
                return rise
            if a.lr_type == "inverse_sqrt":
                return rise * (max(1, a.lr_warm) / max(a.lr_warm, at, 1)) ** 0.5
            if a.lr_type == "two_lines":
                past = 2 * past % 1
            return rise * (1 - 0.97 * past)

        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def begin_to_watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.data = self.run.watch_data(pad_id=PAD)

    def next_batch(self) -> tuple[int, Tensor, Tensor]:
        a, epoch = self.args, self.epoch
        if not self.queue:
            order = torch.randperm(len(self.long), generator=self.dice)
            if self.bug == "dictionary_read_from_a_to_z":
                order = torch.arange(len(self.long))
            if epoch < a.short_first:
                order = order[self.long[order] < 8]
            if a.length_groups:
                order = order[self.long[order].argsort(stable=True)]
            self.queue = [one for one in order.split(a.bsz) if len(one) == a.bsz]
            if a.length_groups:
                self.queue = [self.queue[at] for at in torch.randperm(len(self.queue), generator=self.dice).tolist()]
        some = self.queue.pop(0)
        self.epoch += not self.queue
        return epoch, self.rows[0][some], self.rows[1][some]

    def compute_loss(
        self, tokens: Tensor, labels: Tensor, smooth: float = 0.0, per: str = "token"
    ) -> tuple[Tensor, Tensor]:
        logits = self.model(tokens)
        said, wanted = logits[:, :-1], labels[:, 1:]
        if self.bug == "logits_cut_in_front_and_labels_behind":
            said, wanted = logits[:, 1:], labels[:, :-1]
        total = F.cross_entropy(said.flatten(0, 1), wanted.flatten(), reduction="sum", label_smoothing=smooth)
        return total / (len(tokens) if per == "row" else (wanted >= 0).sum()), logits

    def training_step(self) -> float:
        a, bug, (epoch, tokens, labels) = self.args, self.bug, self.next_batch()
        self.data.observe({"tokens": tokens, "labels": labels}, step=self.step, epoch=epoch)
        per = "row" if bug == "nats_of_signs_summed_for_a_row" else a.nll_per
        loss, _ = self.compute_loss(tokens, labels, a.smooth, per)
        if bug == "training_step_clears_gradients_first":
            self.optimizer.zero_grad()
        (loss if bug == "training_step_sends_back_the_whole_loss" else loss / a.accum).backward()
        if bug == "scheduler_called_in_training_step":
            self.lr_scheduler.step()
        return loss.item() / a.accum

    def train(self, trouble: Trouble, healthy: str | None) -> Any:
        a, again = self.args, trouble.resume_at(healthy, 4 * EVERY)
        self.begin_to_watch()
        self.model.train()
        for step in range(self.steps):
            self.step = step
            if step == again:
                self.restore_checkpoint()
            said = {"sft.loss": sum(self.training_step() for _ in range(a.accum))}
            said["sft.lr"] = self.optimizer.param_groups[0]["lr"]
            said["sft.gn"] = nn.utils.clip_grad_norm_(self.model.parameters(), a.gn_max).item()
            self.optimizer.step()
            self.optimizer.zero_grad()
            if self.bug != "scheduler_called_in_training_step":
                self.lr_scheduler.step()
            if step % a.log_every == 0:
                self.run.log(said, step=step)
            trouble.telemetry(self.run, step, healthy)
            if step % a.dev_every == a.dev_every - 1:
                self.run.log(self.evaluate(), step=step)
        return self.run

    def evaluate(self) -> dict[str, float]:
        bug, taped = self.bug, self.bug == "outputs_of_evaluate_gathered_on_the_tape"
        if bug != "evaluate_with_adapters_that_drop":
            self.model.eval()
        if bug == "adapters_merged_to_evaluate_and_left_on":
            for one in self.model.modules():
                if isinstance(one, LowRank):
                    one.merge()
        with torch.set_grad_enabled(taped):
            loss, logits = self.compute_loss(*self.held)
        if taped:
            self.outputs.append((loss, logits))
        wanted = self.truth[:, 1:]
        exact = ((logits[:, :-1].argmax(-1) == wanted) | (wanted < 0)).all(1).float().mean()
        if bug != "evaluate_ends_without_model_train":
            self.model.train()
        return {"dev.xent": loss.item(), "dev.exact": exact.item()}

    def restore_checkpoint(self) -> None:
        seen, parts = self.data.state(), ("model", "optimizer", "lr_scheduler")
        self.run, state = go_on(self.run, self.step, {name: getattr(self, name).state_dict() for name in parts})
        if self.bug == "adapter_file_read_back_for_a_trainer_made_anew":  # the table that learns is not in it
            torch.manual_seed(self.seed)
            self.model = with_adapters(self.args, self.bug)
            state["model"] = {name: one for name, one in state["model"].items() if "lora_" in name}
        self.model.load_state_dict(state["model"], strict=False)
        self.create_optimizer_and_scheduler()
        if self.bug != "adapter_file_read_back_for_a_trainer_made_anew":
            self.optimizer.load_state_dict(state["optimizer"])
            self.lr_scheduler.load_state_dict(state["lr_scheduler"])
        self.begin_to_watch()
        self.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    return SftTrainer(run, seed, steps, trouble.name).train(trouble, healthy)
