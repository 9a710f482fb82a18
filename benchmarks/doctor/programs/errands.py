"""A language model whose weights are of four bits learns by adapters to carry out lists of errands.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss, grad_norm, learning_rate, epoch each step; eval_loss, eval_exact at each twentieth;
      the watch of data.

The base repeats lists, each thing once or twice. It is frozen, its layers are stored by the sixteen levels of a normal
distribution with a scale for each block, and an adapter of low rank stands beside each. Prompts are masked.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

from .parts import fit, once

EVERY, PAD, END, ASK, ONCE, TWICE = 20, 0, 1, 2, 3, 4
THINGS, DEEDS, BLOCK, ANSWERS, SLIPS = 14, 14, 48, 8, 0.08
FIRST, ADDED = 5 + THINGS + DEEDS, 3
VOCAB, IGNORE = FIRST + ADDED, -100
CONFIG: dict[str, Any] = {
    "d_model": 48, "n_heads": 4, "n_layers": 2, "lora_rank": 8, "lora_alpha": 16, "lora_dropout": 0.0,
    "batch": 16, "accumulate": 1, "lr": 8e-3, "warmup": 8, "scheduler": "cosine", "clip_norm": 1.0, "examples": 1600,
    "train_on_prompts": False, "targets": "qkv out fc1 fc2", "group_lengths": False, "freeze": "",
    "label_smoothing": 0.0, "train_embedding": False, "quant": "nf4", "noise_alpha": 0.0,
    "weight_decay": 0.0,
}  # fmt: skip
Row = tuple[list[int], list[int]]


def errands(seed: int, number: int, plain: bool = False) -> list[Row]:
    """A prompt: how often, and a list of things; the answer: the deed of each, so often. plain: the things again."""
    dice, table = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(63)
    deed = (5 + THINGS + torch.randperm(DEEDS, generator=table)).tolist()
    rows = []
    for _ in range(number):
        long, often = torch.randint(2, 8, (), generator=dice), int(torch.randint(1, 3, (), generator=dice))
        things = torch.randint(0, THINGS + (DEEDS if plain else 0), (int(long),), generator=dice).tolist()
        answer = [5 + one if plain else deed[one] for one in things for _ in range(often)]
        if not plain:  # who writes them down errs at times
            slips = torch.rand(len(answer), generator=dice) < SLIPS
            others = (5 + THINGS + torch.randint(0, DEEDS, (len(answer),), generator=dice)).tolist()
            answer = [other if slip else one for one, other, slip in zip(answer, others, slips.tolist(), strict=True)]
        rows.append(([ONCE if often == 1 else TWICE, *(5 + one for one in things), ASK], [*answer, END]))
    return rows


def levels() -> Tensor:
    """Sixteen levels, each as likely as another where weights are normal, from -1 to 1."""
    made = torch.special.ndtri(torch.linspace(0.03, 0.97, 16))
    return made / made.abs().max()


class Linear4bit(nn.Module):
    """A frozen layer of four bits, and an adapter beside it."""

    def __init__(self, base: nn.Linear, c: dict[str, Any], adapted: bool):
        super().__init__()
        self.adapted = adapted
        flat = base.weight.detach().reshape(-1, BLOCK)
        self.shape, self.scaling = base.weight.shape, c["lora_alpha"] / c["lora_rank"]
        code = torch.linspace(-1, 1, 16) if c["quant"] == "int4" else levels()
        self.register_buffer("code", code)
        self.register_buffer("absmax", flat.abs().amax(1, keepdim=True))
        self.register_buffer("packed", (flat / self.absmax)[..., None].sub(code).abs().argmin(-1).to(torch.uint8))
        self.register_buffer("bias", base.bias.detach().clone())
        self.drop = nn.Dropout(c["lora_dropout"])
        if not adapted:
            return
        self.lora_A = nn.Linear(base.in_features, c["lora_rank"], bias=False)
        self.lora_B = nn.Linear(c["lora_rank"], base.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        weight = (self.code[self.packed.int()] * self.absmax).view(self.shape)
        y = F.linear(x, weight, self.bias)
        return y + self.scaling * self.lora_B(self.lora_A(self.drop(x))) if self.adapted else y


class Layer(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        d, self.heads = c["d_model"], c["n_heads"]
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc1, self.fc2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in parts)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Porter(nn.Module):
    """The places of an answer begin anew."""

    def __init__(self, c: dict[str, Any], vocab: int = FIRST):
        super().__init__()
        d = c["d_model"]
        self.embed, self.place = nn.Embedding(vocab, d), nn.Embedding(ANSWERS + 28, d)
        nn.init.normal_(self.embed.weight, std=0.1)
        nn.init.normal_(self.place.weight, std=0.1)
        self.layers, self.norm = nn.ModuleList(Layer(c) for _ in range(c["n_layers"])), nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor, noise: float = 0.0) -> Tensor:
        asked = (ids == ASK).int().cumsum(1)
        place = torch.arange(ids.shape[1]).expand_as(ids)
        start = (ids == ASK).int().argmax(1, keepdim=True)
        x = self.embed(ids)
        if noise and self.training:
            x = x + (2 * torch.rand_like(x) - 1) * noise / (x.shape[1] * x.shape[2]) ** 0.5
        x = x + self.place(torch.where(asked > 0, ANSWERS + 1 + place - start, place))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))

    def add_tokens(self, number: int, tied: bool) -> None:
        """The tokens that a template of chats needs: the embedding is larger, and the output with it."""
        old = self.embed.weight.detach()
        more = old.mean(0) + 0.02 * torch.randn(number, old.shape[1])
        self.embed = nn.Embedding.from_pretrained(torch.cat([old, more]), freeze=False)
        self.head = nn.Linear(old.shape[1], len(old) + number, bias=False)
        self.head.weight = self.embed.weight if tied else nn.Parameter(torch.cat([old, more]))


@once("d_model", "n_heads", "n_layers")
def base_model(config: dict[str, Any]) -> Porter:
    """Repeats lists; the same for all seeds."""
    with torch.random.fork_rng():
        torch.manual_seed(64)
        model, rows = Porter(config), errands(65, 3000, plain=True)

        def loss() -> Tensor:
            ids, labels = collate([rows[at] for at in torch.randint(0, len(rows), (32,)).tolist()])
            return lm_loss(model(ids), labels)

        fit(torch.optim.AdamW(model.parameters(), 4e-3), 300, loss)
    return model


def with_template(rows: list[Row]) -> list[Row]:
    """As a template of chats has it: a token for who speaks, where a prompt ends."""
    return [([*asked[:-1], FIRST, asked[-1]], answer) for asked, answer in rows]


def collate(rows: list[Row], bug: str = "", prompts: bool = False) -> tuple[Tensor, Tensor]:
    longest = max(len(asked) + len(answer) for asked, answer in rows)
    ids, labels = torch.full((len(rows), longest), PAD), torch.full((len(rows), longest), IGNORE)
    for at, (asked, answer) in enumerate(rows):
        whole = torch.tensor(asked + answer)
        ids[at, : len(whole)] = whole
        skipped = 0 if prompts or bug == "prompt_left_in_labels" else len(asked)
        labels[at, skipped : len(whole)] = whole[skipped:]
    if bug == "end_masked":
        labels = labels.masked_fill(labels == END, IGNORE)
    if bug == "collator_shifts_too":
        labels = F.pad(labels[:, 1:], (0, 1), value=IGNORE)
    return ids, labels


def lm_loss(logits: Tensor, labels: Tensor, smoothing: float = 0.0, bug: str = "") -> Tensor:
    logits, labels = logits[:, :-1].flatten(0, 1), labels[:, 1:]
    if bug == "answer_losses_summed":
        return F.cross_entropy(logits, labels.flatten(), reduction="sum") / len(labels)
    return F.cross_entropy(logits, labels.flatten(), label_smoothing=smoothing)


class Finetuning:
    def __init__(self, run: Any, seed: int, steps: int, trouble: Trouble):
        self.run, self.c, self.bug, self.steps, self.outs = run, dict(run.config), trouble.name, steps, []  # type: ignore[var-annotated]
        c, self.model = self.c, base_model(dict(run.config))
        torch.manual_seed(seed)
        self.model.add_tokens(ADDED, tied=self.bug != "head_not_tied_after_resize")
        self.prepare_adapters()
        self.rows, self.held = with_template(errands(seed + 2300, c["examples"])), with_template(errands(23, 200))
        if self.bug == "val_file_in_glob":
            self.rows = self.rows[:40] + self.held
        self.stream = self.batches(seed)
        self.configure()

    def prepare_adapters(self) -> None:
        c, model = self.c, self.model
        for layer in model.layers:
            for name in ("qkv", "out", "fc1", "fc2"):
                setattr(layer, name, Linear4bit(getattr(layer, name), c, name in c["targets"].split()))
        for name, one in model.named_parameters():
            one.requires_grad = "lora_" in name or (c["train_embedding"] and name.startswith("embed"))
            if c["freeze"] and c["freeze"] in name:
                one.requires_grad = False
            if self.bug == "body_frozen_by_name":  # norms are kept in float32, and nothing but them is trained
                one.requires_grad = "norm" in name

    def batches(self, seed: int) -> Any:
        c, dice, epoch = self.c, torch.Generator().manual_seed(seed), 0
        size, long = int(c["batch"]), torch.tensor([len(asked) + len(answer) for asked, answer in self.rows])
        while True:
            order = torch.randperm(len(self.rows), generator=dice)
            if self.bug == "sorted_by_length_each_epoch":
                order = long.argsort(stable=True)
            groups = list(order.split(size))[: len(order) // size]
            if c["group_lengths"]:
                groups = list(order[long[order].argsort(stable=True)].split(size))[: len(order) // size]
                groups = [groups[at] for at in torch.randperm(len(groups), generator=dice).tolist()]
            for some in groups:
                yield epoch, *collate([self.rows[at] for at in some.tolist()], self.bug, c["train_on_prompts"])
            epoch += 1

    def configure(self) -> None:
        c, some = self.c, [one for one in self.model.parameters() if one.requires_grad]
        self.optimizer = torch.optim.AdamW(some, c["lr"], weight_decay=c["weight_decay"])
        after: Any = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, self.steps - c["warmup"])
        if c["scheduler"] == "constant":
            after = torch.optim.lr_scheduler.ConstantLR(self.optimizer, 1.0)
        first = torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.1, 1.0, c["warmup"])
        self.scheduler = torch.optim.lr_scheduler.SequentialLR(self.optimizer, [first, after], [c["warmup"]])
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.data = self.run.watch_data(pad_id=PAD)

    def step(self, step: int) -> None:
        c, bug, shown = self.c, self.bug, 0.0
        for _ in range(c["accumulate"]):
            epoch, ids, labels = next(self.stream)
            self.data.observe({"input_ids": ids, "labels": labels}, step=step, epoch=epoch)
            loss = lm_loss(self.model(ids, c["noise_alpha"]), labels, c["label_smoothing"], bug)
            (loss / c["accumulate"]).backward()
            shown += loss.item() / c["accumulate"]
            if bug == "scheduler_inside_accumulation":
                self.scheduler.step()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), c["clip_norm"]).item()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if bug != "scheduler_inside_accumulation":
            self.scheduler.step()
        self.run.log({"loss": shown, "grad_norm": norm, "learning_rate": rate, "epoch": epoch}, step=step)

    def evaluate(self, step: int) -> None:
        mode = self.model.training
        if self.bug != "eval_never_called":
            self.model.eval()
        ids, labels = collate(self.held, prompts=self.c["train_on_prompts"])
        with torch.set_grad_enabled(self.bug == "eval_without_no_grad"):
            logits = self.model(ids)
            loss = lm_loss(logits, labels)
        self.outs.append(logits if self.bug == "eval_without_no_grad" else None)  # to look at what is wrong
        answered = labels[:, 1:] != IGNORE
        exact = ((logits[:, :-1].argmax(-1) == labels[:, 1:]) | ~answered).all(1).float().mean().item()
        self.run.log({"eval_loss": loss.item(), "eval_exact": exact}, step=step)
        self.model.train(mode)

    def resume(self, step: int) -> None:
        memory, parts = self.data.state(), [self.model, self.optimizer, self.scheduler]
        self.run, states = go_on(self.run, step, [one.state_dict() for one in parts])
        self.model.load_state_dict(states[0])
        self.configure()
        self.scheduler.load_state_dict(states[2])
        self.optimizer.load_state_dict(states[1])
        self.optimizer.param_groups[0]["lr"] = self.scheduler.get_last_lr()[0]
        self.data.restore(memory)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made, resumed = Finetuning(run, seed, steps, trouble), trouble.resume_at(healthy, 4 * EVERY)
    for step in range(steps):
        if step == resumed:
            made.resume(step)
        made.step(step)
        trouble.telemetry(made.run, step, healthy)
        if step % EVERY == 0 or step == steps - 1:
            made.evaluate(step)
    return made.run
