"""Adapters on a small decoder in four bits learn a hotel's requests: instructions in words, answers in fields.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss, grad_norm, learning_rate, epoch each step; eval_loss, eval_token_accuracy each
      twentieth; memory, where it matters; the watch of data.

The base has read the hotel's old book, where requests stand beside a plain copy of them; it is then held in four bits,
in blocks with a scale of their own, and its norms and embedding stay as they are. What is learnt is which fields a
request has: a department, a room, a thing, an hour. Rows are padded; the request is no target, as is set. A trainer
with callbacks: it accumulates, logs, evaluates.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, LONG = 20, 128, 22
PAD, BOS, ASK, ANSWER, EOS, OPEN, CLOSE = range(7)
WISH, THING, ROOM, HOUR, POLITE, FIELD, DEPT, WORDS = 8, 14, 22, 28, 32, 36, 40, 46
CONFIG: dict[str, Any] = {
    "hidden_size": 48, "layers": 2, "heads": 4, "load_in_4bit": True, "quant_block": 16, "lora_r": 8, "lora_alpha": 16,
    "lora_dropout": 0.0, "target_modules": "q_proj,v_proj,up_proj,down_proj", "modules_to_save": "",
    "init_lora_weights": "kaiming", "per_device_train_batch_size": 16, "gradient_accumulation_steps": 1,
    "learning_rate": 1.5e-2, "lr_scheduler_type": "linear", "warmup_steps": 8, "optim": "adamw_torch",
    "weight_decay": 0.0, "max_grad_norm": 1.0, "train_on_inputs": False, "label_smoothing_factor": 0.0,
    "requests": 900, "phrasings": 1, "wrong_fields": 0.0, "group_by_length": False, "short_requests_first": 0,
    "neftune_noise_alpha": 0.0, "num_items_loss": "tokens", "eval_steps": 20, "logging_steps": 1,
}  # fmt: skip


# -- requests -------------------------------------------------------------------------------------------------------


Rows = list[tuple[list[int], list[int]]]


def requests(seed: int, number: int, phrasings: int, book: bool = False, wrong: float = 0.0) -> Rows:
    """Requests and answers, wish after wish. book: answers are the request's own words again."""
    dice, hotel = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(11)
    dept = torch.randint(0, 6, (6, 8), generator=hotel)  # who sees to a thing that is wished for so

    def one(below: int) -> int:
        return int(torch.randint(0, below, (), generator=dice))

    rows, many = [], number // phrasings
    for at in range(many):
        wish, thing, room, hour = at * 6 // many, one(8), one(6), one(4)
        timed = one(3) > 0
        for _ in range(phrasings):
            parts = [[WISH + wish, THING + thing], [ROOM + room]] + ([[HOUR + hour]] if timed else [])
            order = torch.randperm(len(parts), generator=dice).tolist()
            polite = [POLITE + one(4) for _ in range(one(4))]
            said = [*polite, *(word for part in order for word in parts[part])]
            if book:
                answer = [word for word in said if word < POLITE]
            else:
                told = int(dept[wish, thing])
                if float(torch.rand((), generator=dice)) < wrong:
                    told = one(6)
                answer = [DEPT + told, FIELD, ROOM + room, FIELD + 1, THING + thing]
                answer += [FIELD + 2, HOUR + hour] if timed else []
            rows.append((said, answer))
    return rows


def encode(c: Any, rows: Rows, bug: str = "") -> tuple[Tensor, Tensor]:
    """Padded rows, and labels."""
    ids, labels = torch.full((len(rows), LONG), PAD), torch.full((len(rows), LONG), -100)
    for at, (said, answer) in enumerate(rows):
        asked = [BOS, ASK, *said, ANSWER]
        row = [*asked, *answer, EOS][:LONG]
        ids[at, : len(row)] = torch.tensor(row)
        begin = 0 if c.train_on_inputs else len(asked)
        if bug == "prompt_length_of_the_padded_prompt":  # the prompt was tokenised with an end of its own
            begin = len(asked) + 1
        labels[at, begin : len(row)] = torch.tensor(row[begin:])
        if bug == "end_hidden_with_the_padding":
            labels[at, len(row) - 1] = -100
    return ids, labels


# -- base and adapters ----------------------------------------------------------------------------------------------


class Linear4bit(nn.Module):
    """A matrix in four bits, in blocks with a scale of their own; beside it, where it is asked for, two factors."""

    def __init__(self, weight: Tensor, block: int):
        super().__init__()
        rows = weight.flatten().view(-1, block)
        scale = rows.abs().amax(1, keepdim=True) / 7
        self.register_buffer("qweight", (rows / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.shape, self.lora_A, self.lora_B = weight.shape, None, None
        self.drop, self.scaling = nn.Dropout(0.0), 1.0

    def add_adapter(self, c: Any, bug: str) -> None:
        out, into = self.shape
        self.lora_A, self.lora_B = nn.Linear(into, c.lora_r, bias=False), nn.Linear(c.lora_r, out, bias=False)
        if c.init_lora_weights == "gaussian":
            nn.init.normal_(self.lora_A.weight, std=1 / c.lora_r)
        if bug != "both_factors_drawn_at_random":
            nn.init.zeros_(self.lora_B.weight)
        self.drop, self.scaling = nn.Dropout(c.lora_dropout), c.lora_alpha / c.lora_r

    def forward(self, x: Tensor) -> Tensor:
        y = F.linear(x, (self.qweight.float() * self.scale).view(self.shape))
        if self.lora_A is not None:
            y = y + self.scaling * self.lora_B(self.lora_A(self.drop(x)))
        return y


class Layer(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.q_proj, self.k_proj = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.v_proj, self.o_proj = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.up_proj, self.down_proj = nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = (
            p(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.o_proj(y)
        return x + self.down_proj(F.gelu(self.up_proj(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.hidden_size
        self.embed_tokens, self.embed_positions = nn.Embedding(WORDS, d), nn.Embedding(LONG, d)
        self.layers, self.norm = nn.ModuleList(Layer(d, c.heads) for _ in range(c.layers)), nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, WORDS, bias=False)
        nn.init.normal_(self.embed_tokens.weight, std=0.1)
        nn.init.normal_(self.embed_positions.weight, std=0.05)
        self.lm_head.weight = self.embed_tokens.weight
        self.noise = 0.0

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids)
        if self.training and self.noise:
            x = x + (torch.rand_like(x) * 2 - 1) * self.noise / math.sqrt(ids.shape[1] * x.shape[-1])
        x = x + self.embed_positions.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def causal_loss(c: Any, logits: Tensor, labels: Tensor, bug: str = "", smoothing: float = 0.0) -> Tensor:
    out, wanted = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    if bug == "labels_moved_by_the_dataset_too":
        out, wanted = logits[:, :-2].flatten(0, 1), labels[:, 2:].flatten()
    if bug == "tokens_summed_and_divided_by_rows":
        return F.cross_entropy(out, wanted, ignore_index=-100, reduction="sum") / len(labels)
    if c.num_items_loss == "rows":
        each = F.cross_entropy(out, wanted, ignore_index=-100, reduction="none").view(len(labels), -1)
        return (each.sum(1) / (labels[:, 1:] != -100).sum(1)).mean()
    return F.cross_entropy(out, wanted, ignore_index=-100, label_smoothing=smoothing)


def pretrained(c: Any) -> Decoder:
    """The base, which has read the old book; the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        net, whole = Decoder(c), SimpleNamespace(**(vars(c) | {"train_on_inputs": True, "num_items_loss": "tokens"}))
        ids, labels = encode(whole, requests(6, 640, 1, book=True))
        optimizer = torch.optim.AdamW(net.parameters(), 4e-3)
        for step in range(120):
            optimizer.param_groups[0]["lr"] = 4e-3 * min(1.0, (step + 1) / 10) * (1 - step / 130)
            some = torch.randint(0, len(ids), (32,))
            causal_loss(whole, net(ids[some]), labels[some]).backward()
            optimizer.step()
            optimizer.zero_grad()
    return net


def get_peft_model(c: Any, net: Decoder, bug: str) -> Decoder:
    net.requires_grad_(False)
    wanted = c.target_modules.split(",")
    for layer in net.layers:
        for name in ("q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"):
            held = Linear4bit(getattr(layer, name).weight.detach(), c.quant_block)
            if name in wanted:
                held.add_adapter(c, bug)
            setattr(layer, name, held)
    if c.modules_to_save == "lm_head":
        if bug != "head_to_save_is_tied_no_more":
            net.embed_tokens.weight.requires_grad_(True)  # one matrix: both are trained
        else:  # the wrapper trains a copy of the head; the embedding keeps the old rows
            net.lm_head.weight = nn.Parameter(net.embed_tokens.weight.detach().clone())
    if bug == "prepared_for_training_after_the_adapters":  # it holds all parameters, those of adapters in the layer too
        for name, one in net.named_parameters():
            if "layers.0" in name or "lora_A" in name:
                one.requires_grad_(False)
    net.noise = c.neftune_noise_alpha
    return net


# -- trainer --------------------------------------------------------------------------------------------------------


class SFTTrainer:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        c = self.c
        self.data()
        base = pretrained(c)
        torch.manual_seed(seed)
        self.model = get_peft_model(c, base, bug)
        self.create_optimizer_and_scheduler()
        self.history: list[Any] = []

    def data(self) -> None:
        c, bug = self.c, self.bug
        rows, held = requests(self.seed + 90, c.requests, c.phrasings, wrong=c.wrong_fields), requests(89, HELD, 1)
        if bug == "phrasings_split_by_train_test_split":
            order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(self.seed)).tolist()
            held, rows = [rows[at] for at in order[:HELD]], [rows[at] for at in sorted(order[HELD:])]
        self.ids, self.labels = encode(c, rows, bug)
        self.held = encode(SimpleNamespace(**(vars(c) | {"train_on_inputs": False})), held)
        self.lengths = (self.ids != PAD).sum(1)

    def create_optimizer_and_scheduler(self) -> None:
        c, some = self.c, [one for one in self.model.parameters() if one.requires_grad]
        if c.optim == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c.learning_rate, 0.9)
        elif c.optim == "adafactor":
            self.optimizer = torch.optim.Adafactor(some, c.learning_rate)
        elif c.optim == "rmsprop":
            self.optimizer = torch.optim.RMSprop(some, c.learning_rate)
        else:
            self.optimizer = torch.optim.AdamW(some, c.learning_rate, weight_decay=c.weight_decay)

        def share(at: int) -> float:
            past = min(1.0, at / self.steps)
            rise = min(1.0, (at + 1) / max(1, c.warmup_steps))
            if c.lr_scheduler_type == "constant_with_warmup":
                return rise
            if c.lr_scheduler_type == "cosine_with_restarts":
                return rise * 0.5 * (1.05 + 0.95 * math.cos(math.pi * (2 * past % 1)))
            return rise * (1 - past)

        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def batches(self) -> Any:
        c, epoch, dice = self.c, 0, torch.Generator().manual_seed(self.seed)
        while True:
            order = torch.randperm(len(self.ids), generator=dice)
            if self.bug == "sampler_sequential_as_for_packing":
                order = torch.arange(len(self.ids))
            if epoch < c.short_requests_first:
                order = order[self.lengths[order] < 15]
            if self.bug == "length_column_sorts_the_rows":
                order = self.lengths.argsort(stable=True)
            if c.group_by_length:
                order = order[self.lengths[order].argsort(stable=True)]
            lots = [
                one for one in order.split(c.per_device_train_batch_size) if len(one) == c.per_device_train_batch_size
            ]
            if c.group_by_length:
                lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
            for some in lots:
                long = int(self.lengths[some].max())
                yield epoch, self.ids[some, :long], self.labels[some, :long]
            epoch += 1

    def evaluate(self, step: int) -> None:
        taped = self.bug == "prediction_loop_on_the_tape"
        if self.bug != "evaluated_without_model_eval":
            self.model.eval()
        ids, labels = self.held
        losses, right, count = [], 0.0, 0
        for at in range(0, len(ids), 32):
            some, wanted = ids[at : at + 32], labels[at : at + 32]
            with torch.set_grad_enabled(taped):
                logits = self.model(some)
                losses.append(causal_loss(SimpleNamespace(num_items_loss="tokens"), logits, wanted))
            known = wanted[:, 1:] != -100
            right += float((logits[:, :-1].argmax(-1) == wanted[:, 1:])[known].sum())
            count += int(known.sum())
            if taped:
                self.history.append(logits)
        mean = sum(one.item() for one in losses) / len(losses)
        self.run.log({"eval_loss": mean, "eval_token_accuracy": right / count}, step=step)
        if self.bug != "inference_mode_of_the_fast_model_stays":
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
        if self.bug != "resumed_by_peft_from_pretrained":
            self.optimizer.load_state_dict(state["optimizer"])
        self.lr_scheduler.load_state_dict(state["scheduler"])
        for group, rate in zip(self.optimizer.param_groups, self.lr_scheduler.get_last_lr(), strict=True):
            group["lr"] = rate
        self.observe()
        self.watch.restore(seen)

    def training_step(self, step: int, stream: Any) -> tuple[float, int]:
        c, total, parts = self.c, 0.0, self.c.gradient_accumulation_steps
        for _ in range(parts):
            epoch, ids, labels = next(stream)
            self.watch.observe({"input_ids": ids, "labels": labels}, step=step, epoch=epoch)
            loss = causal_loss(c, self.model(ids), labels, self.bug, c.label_smoothing_factor)
            (loss / parts).backward()
            total += loss.item() / parts
            if self.bug == "on_substep_end_steps_the_schedule":
                self.lr_scheduler.step()
        return total, epoch

    def train(self, trouble: Trouble, healthy: str | None) -> None:
        c, again = self.c, trouble.resume_at(healthy, 4 * EVERY)
        stream = self.batches()
        self.observe()
        self.model.train()
        for step in range(self.steps):
            if step == again:
                self.resume(step)
            total, epoch = self.training_step(step, stream)
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), c.max_grad_norm).item()
            rate = self.optimizer.param_groups[0]["lr"]
            self.optimizer.step()
            if self.bug != "on_substep_end_steps_the_schedule":
                self.lr_scheduler.step()
            self.model.zero_grad()
            if step % c.logging_steps == 0:
                said = {"loss": total, "grad_norm": norm, "learning_rate": rate, "epoch": float(epoch)}
                self.run.log(said, step=step)
            trouble.telemetry(self.run, step, healthy)
            if step % c.eval_steps == c.eval_steps - 1:
                self.evaluate(step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    trainer = SFTTrainer(run, seed, steps, trouble.name)
    trainer.train(trouble, healthy)
    return trainer.run
