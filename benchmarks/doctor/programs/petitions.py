"""An encoder that has filled in petitions' missing words is tuned by low-rank adapters to sort them for six offices.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train_loss, lr, grad_norm each step; val_loss, val_acc, val_macro_f1 at each twenty-fifth;
      the watch of data.

The base is frozen; adapters stand beside four matrices of each layer, and a new head is trained with them. The
smallest office has one petition in forty; kinds have weights. AdamW, a warm-up and a line down; a module with hooks, as
Lightning has them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F

from .parts import fit, once

EVERY, PAD, MASK, CLS, OFFICES, LONGEST, VAL = 25, 0, 1, 2, 6, 16, 400
SUBJECTS, VERBS, COMMON = 18, 12, 20
FIRST_VERB, FIRST_COMMON = 3 + SUBJECTS, 3 + SUBJECTS + VERBS
VOCAB = FIRST_COMMON + COMMON
CONFIG: dict[str, Any] = {
    "width": 48, "heads": 4, "layers": 2, "lora_r": 8, "lora_alpha": 16, "lora_dropout": 0.0, "head_dropout": 0.0,
    "target": "q v up down", "batch_size": 32, "accumulate_grad_batches": 1, "lr": 6e-3, "warmup_share": 0.06,
    "lr_decay": "linear", "optimizer": "adamw", "weight_decay": 0.01, "gradient_clip_val": 1.0, "petitions": 800,
    "rare_copies": 1, "class_weight": "balanced", "label_smoothing": 0.0, "focal_gamma": 0.0, "reduction": "mean",
    "wrong_labels": 0.0, "length_buckets": False, "freeze": "", "modules_to_save": "head", "unfreeze": "",
}  # fmt: skip
Rows = tuple[Tensor, Tensor]


def petitions(seed: int, number: int, wrong: float = 0.0) -> Rows:
    """Padded words behind a CLS, and the office: it is decided by what a petition is about, and by what is asked."""
    dice = torch.Generator().manual_seed(seed)
    about = torch.multinomial(torch.tensor([0.6, 0.3, 0.1]), number, True, generator=dice)
    asked = torch.multinomial(torch.tensor([0.75, 0.25]), number, True, generator=dice)
    ids = torch.zeros(number, LONGEST, dtype=torch.long)
    for row in range(number):
        some, verbs, more = (int(torch.randint(*most, (), generator=dice)) for most in ((2, 4), (2, 4), (2, 9)))
        words = torch.cat([
            3 + about[row] * 6 + torch.randint(0, 6, (some,), generator=dice),
            FIRST_VERB + asked[row] * 6 + torch.randint(0, 6, (verbs,), generator=dice),
            FIRST_COMMON + torch.randint(0, COMMON, (more,), generator=dice),
        ])  # fmt: skip
        order = torch.randperm(len(words), generator=dice)
        ids[row, : len(words) + 1] = torch.cat([torch.tensor([CLS]), words[order]])
    office = 2 * about + asked
    chance = torch.randint(0, OFFICES, (number,), generator=dice)
    return ids, torch.where(torch.rand(number, generator=dice) < max(0.03, wrong), chance, office)


class LoraLinear(nn.Module):
    def __init__(self, base: nn.Linear, c: dict[str, Any]):
        super().__init__()
        self.base, self.scaling, self.drop = base, c["lora_alpha"] / c["lora_r"], nn.Dropout(c["lora_dropout"])
        self.lora_A = nn.Parameter(torch.randn(c["lora_r"], base.in_features) / math.sqrt(base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, c["lora_r"]))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.scaling * F.linear(F.linear(self.drop(x), self.lora_A), self.lora_B)


class Layer(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        d, self.heads = c["width"], c["heads"]
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = (one(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None, None])
        x = x + self.o(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, c["width"]), nn.Embedding(LONGEST, c["width"])
        self.layers, self.norm = nn.ModuleList(Layer(c) for _ in range(c["layers"])), nn.LayerNorm(c["width"])

    def forward(self, ids: Tensor) -> Tensor:
        x, seen = self.words(ids) + self.places.weight[: ids.shape[1]], ids != PAD
        for layer in self.layers:
            x = layer(x, seen)
        return self.norm(x)


@once("width", "heads", "layers")
def pretrained(c: dict[str, Any]) -> Encoder:
    """An encoder that fills in one word in five."""
    torch.manual_seed(151)
    model, dice = Encoder(c), torch.Generator().manual_seed(152)
    ids, _ = petitions(153, 2000)

    def loss_of() -> Tensor:
        rows = ids[torch.randint(0, len(ids), (48,), generator=dice)]
        hidden = (torch.rand(rows.shape, generator=dice) < 0.2) & (rows > CLS)
        out = model(rows.masked_fill(hidden, MASK)) @ model.words.weight.T
        return F.cross_entropy(out[hidden], rows[hidden])

    fit(torch.optim.Adam(model.parameters(), 3e-3), 200, loss_of)
    return model


class Sorter(nn.Module):
    def __init__(self, c: dict[str, Any], encoder: Encoder, offices: int, bug: str):
        super().__init__()
        self.c, self.bug = c, bug
        self.encoder, self.drop = encoder, nn.Dropout(c["head_dropout"])
        self.head = nn.Linear(c["width"], offices)

    def adapt(self) -> None:
        self.encoder.requires_grad_(False)
        for layer in self.encoder.layers:
            for name in self.c["target"].split():
                setattr(layer, name, LoraLinear(getattr(layer, name), self.c))
        for name, one in self.named_parameters():
            if name.startswith("head") and "head" not in self.c["modules_to_save"]:  # adapters freeze the rest
                one.requires_grad = False
            if self.c["freeze"] and self.c["freeze"] in name:
                one.requires_grad = False
            if self.c["unfreeze"] and self.c["unfreeze"] in name:
                one.requires_grad = True

    def forward(self, ids: Tensor) -> Tensor:
        out = self.encoder(ids)
        y = self.head(self.drop(out[:, 0]))
        return y.softmax(-1) if self.bug == "probabilities_go_into_loss" else y


def both_sets(c: dict[str, Any], seed: int, bug: str) -> tuple[Rows, Rows]:
    rows, val = petitions(seed + 520, c["petitions"], c["wrong_labels"]), petitions(52, VAL)
    if c["rare_copies"] > 1:  # of rare offices petitions are copied
        dice = torch.Generator().manual_seed(seed + 9)
        often = torch.where(rows[1] > 1, c["rare_copies"], 1)
        order = torch.randperm(int(often.sum()), generator=dice)
        ids, office = (one.repeat_interleave(often, 0)[order] for one in rows)
        rows = ids, office
        if bug == "copied_then_split":
            rows, val = (ids[VAL:], office[VAL:]), (ids[:VAL], office[:VAL])
    if bug == "table_in_class_order":
        order = rows[1].argsort(stable=True)
        rows = rows[0][order], rows[1][order]
    return (rows[0], rows[1] + (bug == "class_numbers_from_one")), val


class SorterModule:
    """What Lightning calls a module: its hooks are called below."""

    def __init__(self, run: Any, seed: int, bug: str):
        self.run, self.c, self.bug, self.kept = run, dict(run.config), bug, []  # type: ignore[var-annotated]
        encoder = pretrained(self.c)
        torch.manual_seed(seed)
        (self.ids, self.office), self.val = both_sets(self.c, seed, bug)
        offices = OFFICES + (bug == "class_numbers_from_one")
        self.model, self.lot = Sorter(self.c, encoder, offices, bug), torch.Generator().manual_seed(seed)
        if bug != "adapted_after_optimizer":
            self.model.adapt()
        self.weight = self.weights(offices)
        self.configure_optimizers()
        if bug == "adapted_after_optimizer":
            self.model.adapt()
        self.watch()

    def weights(self, offices: int) -> Tensor:
        if self.c["class_weight"] == "none" or self.c["class_weight"] == "sampler":
            return torch.ones(offices)
        count = torch.bincount(self.office, minlength=offices).float()
        made = (count.sum() / (OFFICES * count.clamp(min=1))).sqrt().clamp(max=4.0)
        return made.flip(0) if self.bug == "weights_in_other_order" else made

    def configure_optimizers(self) -> None:
        c, some = self.c, [one for one in self.model.parameters() if one.requires_grad]
        if c["optimizer"] == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c["lr"], 0.9)
        elif c["optimizer"] == "adamax":
            self.optimizer = torch.optim.Adamax(some, c["lr"])
        else:
            self.optimizer = torch.optim.AdamW(some, c["lr"], weight_decay=c["weight_decay"])
        warm = max(1, int(c["warmup_share"] * c["steps"]))

        def share(at: int) -> float:
            if at < warm or c["lr_decay"] == "constant":
                return min(1.0, (at + 1) / warm)
            return max(0.0, (c["steps"] - at) / (c["steps"] - warm))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.data = self.run.watch_data(pad_id=PAD)

    def train_dataloader(self) -> list[Tensor]:
        size, order = int(self.c["batch_size"]), torch.randperm(len(self.ids), generator=self.lot)
        if self.bug == "table_in_class_order":
            order = torch.arange(len(self.ids))
        if self.c["class_weight"] == "sampler":
            chance = 1 / torch.bincount(self.office)[self.office]
            order = torch.multinomial(chance, len(self.ids), True, generator=self.lot)
        groups = list(order.split(size))[: len(order) // size]
        if self.c["length_buckets"]:
            long = (self.ids[order] != PAD).sum(1)
            groups = list(order[long.argsort(stable=True)].split(size))[: len(order) // size]
            groups = [groups[at] for at in torch.randperm(len(groups), generator=self.lot).tolist()]
        return groups

    def criterion(self, out: Tensor, office: Tensor) -> Tensor:
        c = self.c
        if self.bug == "criterion_left_as_sum":
            return F.cross_entropy(out, office, self.weight, reduction="sum")
        if c["reduction"] == "sum":
            return F.cross_entropy(out, office, self.weight, reduction="sum") / self.weight[office].sum()
        if c["focal_gamma"]:
            sure = out.softmax(1).gather(1, office[:, None])[:, 0]
            return ((1 - sure) ** c["focal_gamma"] * F.cross_entropy(out, office, self.weight, reduction="none")).mean()
        return F.cross_entropy(out, office, self.weight, label_smoothing=c["label_smoothing"])

    def training_step(self, groups: list[Tensor], step: int, epoch: int) -> None:
        c, shown = self.c, 0.0
        for some in groups:
            long = int((self.ids[some] != PAD).sum(1).max())
            ids, office = self.ids[some, :long], self.office[some]
            self.data.observe({"input_ids": ids, "labels": office}, step=step, epoch=epoch)
            loss = self.criterion(self.model(ids), office)
            if self.bug != "micro_losses_whole":
                loss = loss / len(groups)
            loss.backward()
            shown += loss.item()
            if self.bug == "scheduler_steps_in_micro_loop":
                self.scheduler.step()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), c["gradient_clip_val"]).item()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.bug != "scheduler_steps_in_micro_loop":
            self.scheduler.step()
        self.run.log({"train_loss": shown, "lr": rate, "grad_norm": norm}, step=step)

    def validation_epoch(self, step: int) -> None:
        if self.bug != "validated_in_train_mode":
            self.model.eval()
        ids, office = self.val
        with torch.set_grad_enabled(self.bug == "val_outputs_keep_graphs"):
            out = self.model(ids)
            loss = F.cross_entropy(out, office, self.weight)
        if self.bug == "val_outputs_keep_graphs":
            self.kept.append(out)  # validation_step_outputs
        guess = out.argmax(1)
        self.run.log({"val_loss": loss.item(), "val_acc": (guess == office).float().mean().item(),
                      "val_macro_f1": macro_f1(guess, office)}, step=step)  # fmt: skip
        self.model.train()

    def resume(self, step: int) -> None:
        memory, names = self.data.state(), ("model", "optimizer", "scheduler")
        self.run, saved = go_on(self.run, step, {one: getattr(self, one).state_dict() for one in names})
        self.configure_optimizers()
        for name in names:
            getattr(self, name).load_state_dict(saved[name])
        self.optimizer.param_groups[0]["lr"] = self.scheduler.get_last_lr()[0]
        self.watch()
        self.data.restore(memory)


def macro_f1(guess: Tensor, office: Tensor) -> float:
    found = []
    for one in range(OFFICES):
        both = ((guess == one) & (office == one)).sum()
        found.append(2 * both / ((guess == one).sum() + (office == one).sum()).clamp(min=1))
    return float(torch.stack(found).mean())


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, step, epoch = Trouble(fault, seed), 0, 0
    made, again = SorterModule(run, seed, trouble.name), trouble.resume_at(healthy, 4 * EVERY)
    parts = run.config["accumulate_grad_batches"]
    made.model.train()
    while step < steps:
        groups = made.train_dataloader()
        for first in range(0, len(groups) - parts + 1, parts):
            if step == again:
                made.resume(step)
            made.training_step(groups[first : first + parts], step, epoch)
            trouble.telemetry(made.run, step, healthy)
            step += 1
            if step % EVERY == 0 or step == steps:
                made.validation_epoch(step - 1)
            if step == steps:
                break
        epoch += 1
    return made.run
