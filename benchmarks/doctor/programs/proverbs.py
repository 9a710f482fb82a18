"""An encoder fills the gaps in proverbs, each told a little otherwise; its output is its embedding.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss, grad_norm, learning_rate each step; eval_loss, eval_filled at each twentieth; the
      watch of data.

Proverbs of different length are padded; of the words a fifth is asked for, most of these hidden, some another word,
some as they are, drawn anew each time. Layers of torch's own, AdamW, a rate that rises and falls in a line; a class
and a collator, as scripts of examples have it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, PAD, CLS, SEP, MASK, SAYINGS, TOKENS, MOST = 20, 0, 1, 2, 3, 12, 48, 22
CONFIG: dict[str, Any] = {
    "hidden_size": 48, "num_layers": 2, "num_heads": 4, "dropout": 0.0, "per_device_batch": 24, "accumulation": 1,
    "learning_rate": 5e-3, "warmup_ratio": 0.1, "scheduler_type": "linear", "weight_decay": 0.01, "max_grad_norm": 1.0,
    "proverbs": 1600, "mlm_probability": 0.2, "tie_decoder": True, "optimizer": "adamw", "bucketed": False,
    "frozen": "", "label_smoothing": 0.0, "garbled": 0.0, "whole_words": False, "always_hidden": False,
}  # fmt: skip


def proverbs(seed: int, number: int, garbled: float = 0.0) -> list[Tensor]:
    """Proverbs: a beginning, one of some sayings, told from its first word on for a while, an end; one word in eight is
    that of whoever tells it."""
    dice, grammar = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(77)
    words = TOKENS - 4
    known = torch.randint(0, words, (SAYINGS, MOST), generator=grammar)
    saying, long = (torch.randint(*most, (number,), generator=dice) for most in ((0, SAYINGS), (7, MOST - 1)))
    chance = torch.rand(number, MOST, generator=dice) < 0.12 + garbled
    own = torch.randint(0, words, (number, MOST), generator=dice)
    text = torch.where(chance, own, known[saying]) + 4
    ends = torch.tensor([CLS]), torch.tensor([SEP])
    return [torch.cat([ends[0], row[: int(far)], ends[1]]) for row, far in zip(text, long, strict=True)]


def hide(ids: Tensor, c: dict[str, Any], dice: torch.Generator, bug: str = "") -> tuple[Tensor, Tensor]:
    """What the model sees, and what it is asked for: -100 where nothing is."""
    asked = torch.rand(ids.shape, generator=dice) < c["mlm_probability"]
    if c["whole_words"]:  # with the word behind it
        asked = asked & (torch.rand(ids.shape, generator=dice) < 0.55)
        asked = asked | asked.roll(1, 1)
    asked = asked & (ids > MASK)
    how = torch.rand(ids.shape, generator=dice)
    other = torch.randint(4, TOKENS, ids.shape, generator=dice)
    seen = torch.where(asked & ((how < 0.8) | c["always_hidden"]), MASK, ids)
    seen = torch.where(asked & (how > 0.9) & (not c["always_hidden"]), other, seen)
    labels = ids.masked_fill(ids == PAD, -100) if bug == "unasked_in_labels" else ids.masked_fill(~asked, -100)
    if bug == "mlm_labels_shifted":  # as a decoder's are
        labels = F.pad(labels[:, 1:], (0, 1), value=-100)
    return seen, labels


class Encoder(nn.Module):
    def __init__(self, c: dict[str, Any], bug: str):
        super().__init__()
        d, self.bug, self.heads = c["hidden_size"], bug, c["num_heads"]
        self.word, self.position = nn.Embedding(TOKENS, d, padding_idx=PAD), nn.Embedding(MOST + 1, d)
        for one in (self.word, self.position):
            nn.init.normal_(one.weight, std=0.08)
        self.norm, self.drop = nn.LayerNorm(d), nn.Dropout(c["dropout"])
        self.layer = nn.ModuleList(
            nn.TransformerEncoderLayer(
                d, c["num_heads"], 3 * d, c["dropout"], "gelu", batch_first=True, norm_first=True
            )
            for _ in range(c["num_layers"])
        )
        self.transform = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.LayerNorm(d))
        self.decoder = nn.Linear(d, TOKENS)
        if c["tie_decoder"]:
            self.decoder.weight = self.word.weight

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.drop(self.norm(self.word(ids) + self.position.weight[: ids.shape[1]]))
        padded = mask.bool() if self.bug == "mask_upside_down" and self.training else ~mask.bool()
        for layer in self.layer:
            x = layer(x, src_key_padding_mask=padded)
        x = self.decoder(self.transform(x))
        return x.softmax(-1) if self.bug == "softmax_in_head" else x


def collate(rows: list[Tensor]) -> Tensor:
    """All rows as long as the longest that there may be."""
    return torch.stack([F.pad(row, (0, MOST + 1 - len(row)), value=PAD) for row in rows])


class MaskedLM:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        self.run, self.c, self.bug = run, dict(run.config), trouble.name
        self.kept: list[Any] = []
        torch.manual_seed(seed)
        self.dice = torch.Generator().manual_seed(seed)
        self.rows, held = proverbs(seed + 4500, self.c["proverbs"], self.c["garbled"]), proverbs(45, 240)
        if self.bug == "holdout_in_training_files":
            self.rows = self.rows[:40] + held
        self.held = [collate(held[at : at + 60]) for at in range(0, len(held), 60)]
        self.model = Encoder(self.c, self.bug)
        for name, one in self.model.named_parameters():
            one.requires_grad = not self.c["frozen"] or not name.startswith(self.c["frozen"])
            if self.bug == "trainable_by_wrong_name":  # `layer` is in the names of norms, of those alone that are meant
                one.requires_grad = not name.startswith(("layer.", "word"))
        self.model.train()
        self.stream = self.batches()
        self.make_optimizer()

    def make_optimizer(self) -> None:
        c, some = self.c, [one for one in self.model.parameters() if one.requires_grad]
        if c["optimizer"] == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c["learning_rate"], 0.9)
        else:
            nadam = partial(torch.optim.NAdam, decoupled_weight_decay=True)
            kind = nadam if c["optimizer"] == "nadam" else torch.optim.AdamW
            self.optimizer = kind(some, c["learning_rate"], weight_decay=c["weight_decay"])
        if self.bug == "decoder_made_after_optimizer":  # as for a head on another vocabulary
            self.model.decoder = nn.Linear(c["hidden_size"], TOKENS)
        warm = max(1, int(c["warmup_ratio"] * c["steps"]))

        def share(at: int) -> float:
            if at < warm or c["scheduler_type"] == "constant":
                return min(1.0, (at + 1) / warm)
            return max(0.0, (c["steps"] - at) / (c["steps"] - warm))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.data = self.run.watch_data(pad_id=PAD)

    def batches(self) -> Any:
        size, epoch = self.c["per_device_batch"], 0
        while True:
            order = torch.randperm(len(self.rows), generator=self.dice).tolist()
            if self.bug == "length_order_each_epoch" or self.c["bucketed"]:
                order.sort(key=lambda at: len(self.rows[at]))
            groups = [order[at : at + size] for at in range(0, len(order) - size + 1, size)]
            if self.c["bucketed"]:
                groups = [groups[at] for at in torch.randperm(len(groups), generator=self.dice).tolist()]
            for some in groups:
                yield epoch, collate([self.rows[at] for at in some])
            epoch += 1

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.bug == "nll_total_over_rows":
            return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / len(labels)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=self.c["label_smoothing"])

    def training_step(self, step: int) -> None:
        c, bug, shown = self.c, self.bug, 0.0
        self.model.train()
        for _ in range(c["accumulation"]):
            epoch, ids = next(self.stream)
            seen, labels = hide(ids, c, self.dice, bug)
            self.data.observe({"input_ids": seen, "labels": labels}, step=step, epoch=epoch)
            loss = self.loss(self.model(seen, ids != PAD), labels)
            if bug != "micro_grads_undivided":
                loss = loss / c["accumulation"]
            loss.backward()
            shown += loss.item()
            if bug == "scheduler_for_each_micro":
                self.scheduler.step()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), c["max_grad_norm"]).item()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.model.zero_grad()
        if bug != "scheduler_for_each_micro":
            self.scheduler.step()
        self.run.log({"loss": shown, "grad_norm": norm, "learning_rate": rate}, step=step)

    def evaluate(self, step: int) -> None:
        if self.bug != "checked_while_training":
            self.model.eval()
        dice, losses, hits = torch.Generator().manual_seed(46), [], []
        for ids in self.held:
            seen, labels = hide(ids, self.c, dice)
            with torch.set_grad_enabled(self.bug == "validated_with_grad"):
                logits = self.model(seen, ids != PAD)
                losses.append(F.cross_entropy(logits.flatten(0, 1), labels.flatten()))
            hits.append((logits.argmax(-1) == labels)[labels != -100].float())
        mean = torch.stack(losses).mean()
        self.kept.append(mean if self.bug == "validated_with_grad" else mean.item())
        self.run.log({"eval_loss": mean.item(), "eval_filled": torch.cat(hits).mean().item()}, step=step)

    def resume(self, step: int) -> None:
        seen, parts = self.data.state(), [self.model, self.optimizer, self.scheduler]
        self.run, states = go_on(self.run, step, [one.state_dict() for one in parts])
        self.model.load_state_dict(states[0])
        self.make_optimizer()
        self.scheduler.load_state_dict(states[2])
        self.optimizer.load_state_dict(states[1])
        self.optimizer.param_groups[0]["lr"] = self.scheduler.get_last_lr()[0]
        self.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made, resumed = MaskedLM(run, seed, trouble), trouble.resume_at(healthy, 4 * EVERY)
    for step in range(steps):
        if step == resumed:
            made.resume(step)
        made.training_step(step)
        trouble.telemetry(made.run, step, healthy)
        if step % EVERY == EVERY - 1 or step == steps - 1:
            made.evaluate(step)
    return made.run
