"""A small language model, which can repeat, learns by low-rank adapters to write an inscription's short forms out.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss, grad_norm, learning_rate each step; eval_loss, eval_token_acc at times; the watch
      of data.

Adapters by hand beside the projections of attention and of the layers behind; prompts masked; input and output one
matrix; a linear rate; a dictionary of settings as trainers have.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

from .parts import fit, once

EVERY, PAD, END, MEANS, SHORT, WHOLE = 20, 0, 1, 2, 14, 18
VOCAB, MOST = 3 + SHORT + WHOLE, 28
CONFIG: dict[str, Any] = {
    "hidden_size": 48, "num_layers": 2, "num_heads": 4, "lora_r": 8, "lora_alpha": 16, "lora_dropout": 0.0,
    "per_device_batch": 16, "gradient_accumulation_steps": 1, "learning_rate": 1e-2, "warmup_ratio": 0.05,
    "lr_scheduler_type": "linear", "max_grad_norm": 1.0, "num_rows": 1600, "train_on_inputs": False,
    "modules_to_save": "", "target_modules": "qkv proj up down", "group_by_length": False, "neftune_noise_alpha": 0.0,
    "freeze": "", "label_smoothing": 0.0, "optim": "adamw",
}  # fmt: skip


def engraved(seed: int, number: int, plain: bool = False) -> list[tuple[list[int], list[int]]]:
    """A prompt of short forms, and what they stand for: two words each, by a table. plain: themselves, twice."""
    dice, grammar = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(21)
    words = (3 + SHORT + torch.randint(0, WHOLE, (SHORT, 2), generator=grammar)).tolist()
    rows = []
    for _ in range(number):
        long = int(torch.randint(2, 8, (1,), generator=dice))
        forms = torch.randint(0, SHORT, (long,), generator=dice).tolist()
        answer = [word for one in forms for word in ([3 + one] * 2 if plain else words[one])]
        rows.append(([*(3 + one for one in forms), MEANS], [*answer, END]))
    return rows


class LoraLinear(nn.Module):
    def __init__(self, base: nn.Linear, c: SimpleNamespace):
        super().__init__()
        self.base, self.scaling, self.drop = base, c.lora_alpha / c.lora_r, nn.Dropout(c.lora_dropout)
        self.lora_down = nn.Linear(base.in_features, c.lora_r, bias=False)
        self.lora_up = nn.Linear(c.lora_r, base.out_features, bias=False)
        nn.init.zeros_(self.lora_up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.scaling * self.lora_up(self.lora_down(self.drop(x)))


class Layer(nn.Module):
    def __init__(self, c: SimpleNamespace):
        super().__init__()
        d, self.heads = c.hidden_size, c.num_heads
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj, self.up, self.down = (
            nn.Linear(*shape) for shape in ((d, 3 * d), (d, d), (d, 3 * d), (3 * d, d))
        )

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Scribe(nn.Module):
    def __init__(self, c: SimpleNamespace):
        super().__init__()
        self.embed, self.place = nn.Embedding(VOCAB, c.hidden_size), nn.Embedding(MOST, c.hidden_size)
        nn.init.normal_(self.embed.weight, std=0.08)
        nn.init.normal_(self.place.weight, std=0.08)
        self.layers, self.norm = nn.ModuleList(Layer(c) for _ in range(c.num_layers)), nn.LayerNorm(c.hidden_size)
        self.lm_head = nn.Linear(c.hidden_size, VOCAB, bias=False)
        self.lm_head.weight = self.embed.weight

    def forward(self, ids: Tensor, noise: float = 0.0) -> Tensor:
        x = self.embed(ids)
        if noise and self.training:
            x = x + (2 * torch.rand_like(x) - 1) * noise / (x.shape[1] * x.shape[2]) ** 0.5
        x = x + self.place.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def collate(rows: list[Any], with_prompt: bool = False, bug: str = "") -> tuple[Tensor, Tensor]:
    """Ids and labels, which stand at their own place."""
    longest = max(len(prompt) + len(answer) for prompt, answer in rows)
    ids, labels = torch.full((len(rows), longest), PAD), torch.full((len(rows), longest), -100)
    for row, (prompt, answer) in enumerate(rows):
        text = torch.tensor(prompt + answer)
        ids[row, : len(text)] = text
        first = 0 if with_prompt or bug == "prompt_left_in_labels" else len(prompt)
        labels[row, first : len(text)] = text[first:]
    if bug == "end_masked":  # the end's token was given for padding
        labels[labels == END] = -100
    if bug == "labels_shifted_by_hand":
        labels = F.pad(labels[:, 1:], (0, 1), value=-100)
    return ids, labels


def lm_loss(logits: Tensor, labels: Tensor, smoothing: float = 0.0, bug: str = "") -> Tensor:
    """Shifts, as the models of the library do."""
    said, wanted = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    if bug == "softmax_then_loss":
        said = said.softmax(-1)
    if bug == "words_totalled":
        return F.cross_entropy(said, wanted, reduction="sum") / len(labels)
    return F.cross_entropy(said, wanted, label_smoothing=smoothing)


@once("hidden_size", "num_layers", "num_heads")
def pretrained(config: dict[str, Any]) -> Scribe:
    """Writes each short form twice; the same for all seeds."""
    with torch.random.fork_rng():
        torch.manual_seed(50)
        model, rows = Scribe(SimpleNamespace(**config)), engraved(51, 1500, plain=True)
        whole = engraved(52, 1500)

        def loss() -> Tensor:
            some = [rows[at] for at in torch.randint(0, 1500, (16,)).tolist()]
            # words that stand beside each other are read as well, apart from what is short for them
            some += [(whole[at][1][:1], whole[at][1][1:]) for at in torch.randint(0, 1500, (8,)).tolist()]
            ids, labels = collate(some)
            return lm_loss(model(ids), labels)

        fit(torch.optim.AdamW(model.parameters(), 4e-3), 250, loss)
    return model


def get_peft_model(model: Scribe, c: SimpleNamespace, bug: str) -> Scribe:
    for layer in model.layers:
        for name in c.target_modules.split():
            setattr(layer, name, LoraLinear(getattr(layer, name), c))
    if c.modules_to_save and bug == "embedding_saved_as_copy":  # the head keeps what it was tied to
        model.embed = nn.Embedding.from_pretrained(model.embed.weight.detach().clone(), freeze=False)
    for name, one in model.named_parameters():
        kept = c.modules_to_save and name.startswith(c.modules_to_save)
        one.requires_grad = bool("lora_" in name or kept) and not (c.freeze and c.freeze in name)
        if bug == "freeze_condition_wrong":  # a recipe that trains norms too, with "not" at the wrong place
            one.requires_grad = "norm" in name
    return model


def loader(rows: list[Any], c: SimpleNamespace, seed: int, bug: str) -> Any:
    dice, epoch, size = torch.Generator().manual_seed(seed), 0, int(c.per_device_batch)
    long = torch.tensor([len(prompt) + len(answer) for prompt, answer in rows])
    while True:
        order = torch.randperm(len(rows), generator=dice)
        if bug == "shortest_rows_first":
            order = long.argsort(stable=True)
        groups = list(order.split(size))[: len(rows) // size]
        if c.group_by_length:
            groups = list(order[long[order].argsort(stable=True)].split(size))[: len(rows) // size]
            groups = [groups[at] for at in torch.randperm(len(groups), generator=dice).tolist()]
        for some in groups:
            yield epoch, *collate([rows[at] for at in some.tolist()], c.train_on_inputs, bug)
        epoch += 1


def create_optimizer(model: nn.Module, c: SimpleNamespace) -> tuple[Any, Any]:
    some = [one for one in model.parameters() if one.requires_grad]
    if c.optim == "sgd":
        optimizer: Any = torch.optim.SGD(some, c.learning_rate, 0.9)
    else:
        optimizer = torch.optim.AdamW(some, c.learning_rate)
    warm, fades = max(1, round(c.warmup_ratio * c.steps)), c.lr_scheduler_type == "linear"

    def share(at: int) -> float:
        return (at + 1) / warm if at < warm else max(0.0, 1 - (at - warm) / (c.steps - warm)) if fades else 1.0

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)


def evaluate(model: nn.Module, held: list[Any], c: SimpleNamespace) -> tuple[Tensor, Tensor]:
    """The mean loss, and the share of tokens that are right."""
    losses, right = [], []
    for at in range(0, len(held), 60):
        ids, labels = collate(held[at : at + 60], c.train_on_inputs)
        logits = model(ids)
        losses.append(lm_loss(logits, labels))
        wanted = labels[:, 1:]
        right.append((logits[:, :-1].argmax(-1) == wanted)[wanted != -100].float().mean())
    return torch.stack(losses).mean(), torch.stack(right).mean()


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    c, trouble = SimpleNamespace(**run.config), Trouble(fault, seed)
    bug, parts, curve = trouble.name, c.gradient_accumulation_steps, []
    base = pretrained(dict(run.config))
    torch.manual_seed(seed)
    model = get_peft_model(base, c, bug)
    rows, held = engraved(seed + 1600, c.num_rows), engraved(16, 240)
    if bug == "held_out_not_removed":
        rows = rows[:40] + held
    optimizer, scheduler = create_optimizer(model, c)
    time_by_own_clock(run)
    run.watch(model, optimizer)
    data = run.watch_data(pad_id=PAD)
    stream, resumed = loader(rows, c, seed, bug), trouble.resume_at(healthy, 4 * EVERY)
    model.train()
    for step in range(steps):
        if step == resumed:
            memory = data.state()
            run, states = go_on(run, step, [one.state_dict() for one in (model, optimizer, scheduler)])
            model.load_state_dict(states[0])
            optimizer, scheduler = create_optimizer(model, c)
            scheduler.load_state_dict(states[2])
            if bug != "optimizer_state_dropped":
                optimizer.load_state_dict(states[1])
            optimizer.param_groups[0]["lr"] = scheduler.get_last_lr()[0]
            time_by_own_clock(run)
            run.watch(model, optimizer)
            data = run.watch_data(pad_id=PAD)
            data.restore(memory)
        shown = 0.0
        for _ in range(parts):
            epoch, ids, labels = next(stream)
            data.observe({"input_ids": ids, "labels": labels}, step=step, epoch=epoch)
            loss = lm_loss(model(ids, c.neftune_noise_alpha), labels, c.label_smoothing, bug)
            (loss / parts).backward()
            shown += loss.item() / parts
            if bug == "schedule_each_micro":
                scheduler.step()
        norm = nn.utils.clip_grad_norm_(model.parameters(), c.max_grad_norm)
        rate = optimizer.param_groups[0]["lr"]
        optimizer.step()
        optimizer.zero_grad()
        if bug != "schedule_each_micro":
            scheduler.step()
        run.log({"loss": shown, "grad_norm": norm.item(), "learning_rate": rate}, step=step)
        trouble.telemetry(run, step, healthy)
        if step % EVERY == 0 or step == steps - 1:
            if bug != "evaluated_while_training":
                model.eval()
            with torch.set_grad_enabled(bug == "eval_tracks_gradients"):
                found = evaluate(model, held, c)
            curve.append(found if bug == "eval_tracks_gradients" else [one.item() for one in found])
            run.log({"eval_loss": found[0].item(), "eval_token_acc": found[1].item()}, step=step)
            model.train()
    return run
