"""Adapters beside a base of four bits teach a small decoder to tell the time as people say it.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: peft/loss_train, peft/grad_norm, peft/learning_rate each step; devel/loss, devel/exact of
      answers each twenty-fifth; memory, where it matters; the watch of data.

The base says hours and minutes as a timetable does. What is taught is another way: quarters, halves, past and to, with
a part of the day. Weights of the base are whole numbers from -7 to 7, with a scale for 16 of them; matrices of the
attention and of the network get two factors. Written around a small class of layer, in the style of a library of
adapters, with a trainer that has methods for each hook.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, LONG = 25, 120, 16
PAD, BOS, ASK, SAY, END = range(5)
HOUR, MINUTE, SPOKEN = 5, 29, 41  # 24 hours; minutes by fives; words for the hours from 1 to 12
PAST, TO, QUARTER, HALF, OCLOCK, FIVE = 53, 54, 55, 56, 57, 58  # and five, ten, twenty, twenty-five
PART, PLACE = 62, 66  # four parts of the day, eight places where somebody asks
VOCAB = 74
CONFIG: dict[str, Any] = {
    "hidden_size": 40, "num_layers": 2, "num_heads": 4, "group_size": 16, "r": 8, "lora_alpha": 16,
    "lora_dropout": 0.0, "target_modules": "qkv,out,up,down", "use_rslora": False, "modules_to_save": "",
    "per_device_batch": 16, "accumulation": 1, "optim": "adamw", "learning_rate": 1e-2, "lr_scheduler_type": "linear",
    "warmup_steps": 8, "weight_decay": 0.0, "max_grad_norm": 1.0, "train_on_inputs": False, "reduction": "mean",
    "label_smoothing_factor": 0.0, "questions": 1000, "phrasings": 1, "misheard": 0.0, "full_hours_first": 0,
    "group_by_length": False, "b_rate_ratio": 1.0, "evaluation_steps": 25, "logging_steps": 1,
}  # fmt: skip


# -- questions and answers ------------------------------------------------------------------------------------------


Rows = list[tuple[list[int], list[int]]]


def spoken(hour: int, five: int) -> list[int]:
    """Minutes are fives from 0 to 11."""
    named = SPOKEN + (hour - 1) % 12
    if five > 6:
        named = SPOKEN + hour % 12
    small = {1: [FIVE], 2: [FIVE + 1], 3: [QUARTER], 4: [FIVE + 2], 5: [FIVE + 3], 6: [HALF]}
    if five == 0:
        said = [named, OCLOCK]
    elif five <= 6:
        said = [*small[five], PAST, named]
    else:
        said = [*small[12 - five], TO, named]
    return [*said, PART + hour // 6, END]


def questions(seed: int, number: int, each: int = 1, wrong: float = 0.0, railway: bool = False) -> Rows:
    """Prompts and answers, hour after hour. each: wordings of one question; railway: as the base says it."""
    dice, found = torch.Generator().manual_seed(seed), []
    for at in range(number // each):
        hour, five = at * each * 24 // number, int(torch.randint(0, 12, (), generator=dice))
        if float(torch.rand((), generator=dice)) < wrong:
            answer = spoken((hour + 1) % 24, five)
        else:
            answer = [HOUR + hour, MINUTE + five, END] if railway else spoken(hour, five)
        for _ in range(each):
            many = int(torch.randint(0, 3, (), generator=dice))
            small = (PLACE + torch.randint(0, 8, (many,), generator=dice)).tolist()
            found.append(([BOS, ASK, *small, HOUR + hour, MINUTE + five, SAY], answer))
    return found


def collate(c: Any, rows: Rows, bug: str = "", left: bool = False) -> tuple[Tensor, Tensor]:
    """Padded words and labels; -100 is not learnt."""
    ids, labels = torch.full((len(rows), LONG), PAD), torch.full((len(rows), LONG), -100)
    for at, (prompt, answer) in enumerate(rows):
        both, begin = [*prompt, *answer], len(prompt)
        told = torch.tensor(both)
        start = LONG - len(both) if left else 0
        ids[at, start : start + len(both)] = told
        if c.train_on_inputs:
            begin = 1
        if bug == "prompt_length_with_its_special_token":
            begin += 1
        labels[at, start + begin : start + len(both)] = told[begin:]
        if bug == "end_of_answer_is_padding_too":
            labels[at, start + len(both) - 1] = -100
    return ids, labels


# -- base and adapters ----------------------------------------------------------------------------------------------


class Linear4bit(nn.Module):
    def __init__(self, weight: Tensor, c: Any, adapted: bool):
        super().__init__()
        rows = weight.flatten().view(-1, c.group_size)
        scale = rows.abs().amax(1, keepdim=True) / 7
        self.register_buffer("whole", (rows / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.shape, self.adapted = weight.shape, adapted
        if adapted:
            self.lora_A, self.lora_B = (
                nn.Linear(weight.shape[1], c.r, bias=False),
                nn.Linear(c.r, weight.shape[0], False),
            )
            nn.init.zeros_(self.lora_B.weight)
            self.lora_dropout = nn.Dropout(c.lora_dropout)
            self.scaling = c.lora_alpha / (math.sqrt(c.r) if c.use_rslora else c.r)

    def forward(self, x: Tensor) -> Tensor:
        y = F.linear(x, (self.whole * self.scale).view(self.shape))
        return y + self.scaling * self.lora_B(self.lora_A(self.lora_dropout(x))) if self.adapted else y


class DecoderLayer(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads, self.norm_1, self.norm_2 = heads, nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Speaker(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.hidden_size
        self.embed_tokens, self.embed_places = nn.Embedding(VOCAB, d), nn.Embedding(LONG, d)
        self.layers = nn.ModuleList(DecoderLayer(d, c.num_heads) for _ in range(c.num_layers))
        self.norm, self.lm_head = nn.RMSNorm(d), nn.Linear(d, VOCAB, bias=False)
        nn.init.normal_(self.embed_tokens.weight, std=0.1)
        nn.init.normal_(self.embed_places.weight, std=0.05)
        self.lm_head.weight = self.embed_tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids) + self.embed_places.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def base_model(c: Any) -> Speaker:
    """The base, the same for every training: it knows timetables, and some ways of speaking."""
    with torch.random.fork_rng():
        torch.manual_seed(41)
        net, whole = Speaker(c), SimpleNamespace(train_on_inputs=True)
        ids, labels = collate(whole, questions(42, 700, railway=True) + questions(43, 400))
        optimizer = torch.optim.AdamW(net.parameters(), 4e-3)
        for at in range(200):
            optimizer.param_groups[0]["lr"] = 4e-3 * min(1.0, (at + 1) / 10) * (1 - at / 210)
            some = torch.randint(0, len(ids), (24,))
            F.cross_entropy(net(ids[some])[:, :-1].flatten(0, 1), labels[some, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return net


def get_peft_model(c: Any, net: Speaker, bug: str) -> Speaker:
    net.requires_grad_(False)
    for layer in net.layers:
        for name in ("qkv", "out", "up", "down"):
            adapted = name in c.target_modules.split(",")
            setattr(layer, name, Linear4bit(getattr(layer, name).weight.detach(), c, adapted))
    for name in filter(None, c.modules_to_save.split(",")):
        getattr(net, name).requires_grad_(True)
        if bug == "saved_module_is_a_copy_of_the_embedding":  # as modules_to_save makes them
            net.embed_tokens.weight = nn.Parameter(net.embed_tokens.weight.detach().clone(), requires_grad=False)
    if bug == "freeze_loop_behind_the_adapters":  # "freeze the lower layer", of which adapters are a part by now
        net.layers[0].requires_grad_(False)
    return net


# -- trainer --------------------------------------------------------------------------------------------------------


class AdapterTrainer:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        base = base_model(self.c)
        torch.manual_seed(seed)
        self.model, self.predictions = get_peft_model(self.c, base, bug), []
        self.create_optimizer_and_scheduler()
        self.get_datasets()

    def get_datasets(self) -> None:
        c, bug = self.c, self.bug
        rows, held = questions(self.seed + 240, c.questions, c.phrasings, c.misheard), questions(239, HELD)
        self.full = torch.tensor([OCLOCK in answer or HALF in answer or QUARTER in answer for _, answer in rows])
        self.lengths = torch.tensor([len(prompt) + len(answer) for prompt, answer in rows])
        self.rows = collate(c, rows, bug)
        self.held = collate(SimpleNamespace(train_on_inputs=False), held,
                            left=bug == "padding_side_left_for_evaluation")  # fmt: skip

    def create_optimizer_and_scheduler(self) -> None:
        c, slow, fast = self.c, [], []
        for name, one in self.model.named_parameters():
            if not one.requires_grad or (self.bug == "named_factors_in_the_optimizer_miss_b" and "lora_B" in name):
                continue
            (fast if "lora_B" in name else slow).append(one)
        groups = [{"params": some, "lr": c.learning_rate * by} for some, by in ((slow, 1.0), (fast, c.b_rate_ratio))
                  if some]  # fmt: skip
        if c.optim == "adagrad":
            self.optimizer: Any = torch.optim.Adagrad(groups, c.learning_rate)
        elif c.optim == "sgd":
            self.optimizer = torch.optim.SGD(groups, c.learning_rate, 0.9)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.learning_rate, weight_decay=c.weight_decay)

        def share(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup_steps)), min(1.0, at / self.steps)
            if c.lr_scheduler_type == "constant_with_warmup":
                return rise
            if c.lr_scheduler_type == "cosine_with_restarts":
                return rise * (0.04 + 0.96 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
            return rise * (1 - past)

        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def get_train_dataloader(self) -> Any:
        c, epoch, dice = self.c, 0, torch.Generator().manual_seed(self.seed)
        while True:
            order = torch.randperm(len(self.lengths), generator=dice)
            if self.bug == "sequential_sampler_of_the_evaluation":
                order = torch.arange(len(self.lengths))
            if epoch < c.full_hours_first:
                order = order[self.full[order]]
            if c.group_by_length:
                order = order[self.lengths[order].argsort(stable=True)]
            lots = [one for one in order.split(c.per_device_batch) if len(one) == c.per_device_batch]
            if c.group_by_length:
                lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
            for some in lots:
                yield epoch, *(one[some] for one in self.rows)
            epoch += 1

    def compute_loss(self, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits, c, training = self.model(ids), self.c, self.model.training
        if self.bug == "labels_rolled_and_the_model_shifts" and training:
            labels = torch.cat([labels[:, 1:], labels.new_full((len(labels), 1), -100)], 1)
        out, wanted = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        if training and (self.bug == "sum_over_tokens_per_row" or c.reduction == "sum"):
            return F.cross_entropy(out, wanted, reduction="sum") / len(ids), logits
        return F.cross_entropy(out, wanted, label_smoothing=c.label_smoothing_factor if training else 0.0), logits

    def training_step(self, step: int, stream: Any) -> float:
        c, total = self.c, 0.0
        for _ in range(c.accumulation):
            epoch, ids, labels = next(stream)
            self.watch.observe({"input_ids": ids, "labels": labels}, step=step, epoch=epoch)
            loss, _ = self.compute_loss(ids, labels)
            (loss if self.bug == "compute_loss_overridden_undivided" else loss / c.accumulation).backward()
            total += loss.item() / c.accumulation
            if self.bug == "scheduler_in_the_training_step":
                self.lr_scheduler.step()
        return total

    def evaluate(self, step: int) -> None:
        taped = self.bug == "prediction_step_without_no_grad"
        if self.bug != "evaluated_before_model_eval":
            self.model.eval()
        with torch.set_grad_enabled(taped):
            ids, labels = self.held
            loss, logits = self.compute_loss(ids, labels)
        if taped:
            self.predictions.append((loss, logits))
        right = (logits[:, :-1].argmax(-1) == labels[:, 1:]) | (labels[:, 1:] == -100)
        self.run.log({"devel/loss": loss.item(), "devel/exact": right.all(1).float().mean().item()}, step=step)
        if self.bug != "no_model_train_after_the_evaluation":
            self.model.train()

    def observe(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.watch = self.run.watch_data(pad_id=PAD)

    def resume(self, step: int) -> None:
        seen = self.watch.state()
        state = {"adapter": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "scheduler": self.lr_scheduler.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, step, state)
        self.model.load_state_dict(state["adapter"])
        self.create_optimizer_and_scheduler()
        if self.bug != "adapter_from_pretrained_then_train":
            self.optimizer.load_state_dict(state["optimizer"])
            self.lr_scheduler.load_state_dict(state["scheduler"])
        self.observe()
        self.watch.restore(seen)

    def train(self, trouble: Trouble, healthy: str | None) -> None:
        c, again, stream = self.c, trouble.resume_at(healthy, 3 * EVERY), self.get_train_dataloader()
        self.observe()
        self.model.train()
        for step in range(self.steps):
            if step == again:
                self.resume(step)
            total = self.training_step(step, stream)
            some = [one for one in self.model.parameters() if one.requires_grad]
            norm = nn.utils.clip_grad_norm_(some, c.max_grad_norm).item()
            rate = self.optimizer.param_groups[0]["lr"]
            self.optimizer.step()
            if self.bug != "scheduler_in_the_training_step":
                self.lr_scheduler.step()
            self.model.zero_grad()
            if step % c.logging_steps == 0:
                self.run.log({"peft/loss_train": total, "peft/grad_norm": norm, "peft/learning_rate": rate}, step=step)
            trouble.telemetry(self.run, step, healthy)
            if step % c.evaluation_steps == c.evaluation_steps - 1:
                self.evaluate(step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    trainer = AdapterTrainer(run, seed, steps, trouble.name)
    trainer.train(trouble, healthy)
    return trainer.run
