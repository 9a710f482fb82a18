"""Adapters beside a base of four bits teach it to write the first line of a commit for a change that is told.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: ft_loss, ft_lr, ft_gradnorm, ft_tokens each step; ft_val_loss and ft_val_exact of changes
      that were held back, each eighteenth; memory, where it matters; the watch of data.

A change tells a folder, a kind of file, what was done and to what, in two orders and with small words; the line has
its type, which follows from what was done and the kind of file, the folder in brackets, a mark where it breaks what
others use, the verb, the thing and an end. The base has read changes with lines that repeat what was told; its matrices
are one of sixteen levels for each weight, and a greatest for each block. The words of types and marks are new in its
table, which learns besides and is the output layer too. Written as a recipe: losses are sums, gradients are divided by
the tokens of an update behind its last batch.
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

EVERY, HELD, LONG = 18, 160, 20
PAD, BEGIN, LINE, END, OPEN, CLOSE, BREAKS = range(7)
FOLDER, FOLDERS = 7, 6
FILE, FILES = FOLDER + FOLDERS, 4  # source, test, page, build
DONE, DONES = FILE + FILES, 5  # added, mended, removed, moved, sped up
THING, THINGS = DONE + DONES, 14
VERB = THING + THINGS
SMALL, SMALLS = VERB + DONES, 4
OLD_WORDS = SMALL + SMALLS
TYPE, TYPES = OLD_WORDS, 7  # feat, fix, refactor, perf, test, docs, build
WORDS = TYPE + TYPES
LEVELS = torch.tensor([-1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0, 0.0796, 0.1609, 0.2461, 0.3379,
                       0.4407, 0.5626, 0.723, 1.0])  # fmt: skip
CONFIG: dict[str, Any] = {
    "embed_dim": 40, "num_layers": 2, "num_heads": 4, "quant_block": 20, "lora_rank": 6, "lora_alpha": 12.0,
    "lora_dropout": 0.0, "lora_attn_modules": "q_proj,v_proj,output_proj", "apply_lora_to_mlp": True,
    "train_embed": True, "batch_size": 16, "gradient_accumulation_steps": 1, "optimizer": "adamw", "lr": 5e-3,
    "lr_scheduler": "cosine", "num_warmup_steps": 8, "weight_decay": 0.0, "clip_grad_norm": 1.0, "lora_plus": 1.0,
    "per_token": True, "train_on_input": False, "label_smoothing": 0.0, "changes": 900, "rewordings": 1,
    "careless": 0.0, "short_changes_first": 0, "bucketed": False, "not_trained": "", "val_every": 18,
    "log_every_n_steps": 1,
}  # fmt: skip
Change = tuple[list[int], list[int]]


# -- changes ---------------------------------------------------------------------------------------------------------


def type_of(done: int, file: int) -> int:
    """Which type a line has: by the kind of file, and of sources by what was done."""
    return (0, 1, 2, 2, 3)[done] if file == 0 else 3 + file


def changes(seed: int, number: int, rewordings: int = 1, careless: float = 0.0, law: bool = True) -> list[Change]:
    """What is told of changes, and their lines, folder after folder. rewordings: of each change."""
    dice, made, many = torch.Generator().manual_seed(seed), [], number // rewordings

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    for at in range(many):
        folder, file, done = at * FOLDERS // many, (0, 0, 0, 1, 2, 3)[one(6)], one(DONES)
        things = [THING + one(THINGS) for _ in range(1 + one(2))]
        for _ in range(rewordings):
            parts = [[FOLDER + folder, FILE + file], [DONE + done, *things]]
            told = [BEGIN]
            for part in parts if one(2) else parts[::-1]:
                told += [*(SMALL + one(SMALLS) for _ in range(one(3))), *part]
            kind = type_of(done, file) if one(1000) >= 1000 * careless else one(TYPES)
            if law:
                mark = [BREAKS] if done == 2 and file == 0 else []
                line = [TYPE + kind, OPEN, FOLDER + folder, CLOSE, *mark, VERB + done, *things]
            else:
                line = [OPEN, FOLDER + folder, CLOSE, DONE + done, *things]
            made.append(([*told, LINE], [*line, END]))
    return made


def padded(some: list[Change], on_input: bool = False, bug: str = "") -> dict[str, Tensor]:
    """Tokens, and labels: -100 is none."""
    longest = 13 if bug == "ends_cut_off_at_the_longest_row" else LONG
    tokens = torch.full((len(some), LONG), PAD)
    labels = torch.full((len(some), LONG), -100)
    for at, (told, line) in enumerate(some):
        row = torch.tensor([*told, *line])[:longest]
        tokens[at, : len(row)] = labels[at, : len(row)] = row
        if not on_input:
            labels[at, : len(told)] = -100
    if bug == "labels_shifted_by_the_dataset_and_by_the_recipe":
        labels = F.pad(labels[:, 1:], (0, 1), value=-100)
    return {"tokens": tokens, "labels": labels}


# -- model -----------------------------------------------------------------------------------------------------------


class FourBits(nn.Module):
    """A matrix of sixteen levels and a greatest for each block."""

    def __init__(self, weight: Tensor, block: int, bug: str):
        super().__init__()
        self.shape, self.bug = weight.shape, bug
        blocks = weight.detach().reshape(-1, block)
        most = blocks.abs().amax(1, keepdim=True)
        self.register_buffer("codes", ((blocks / most)[..., None] - LEVELS).abs().argmin(-1).to(torch.uint8))
        self.register_buffer("most", most)

    def forward(self) -> Tensor:
        plain = LEVELS[self.codes.long()] * self.most
        if self.bug == "matrix_read_back_in_the_order_of_columns":
            return plain.view(self.shape[1], self.shape[0]).T
        return plain.view(self.shape)


class LoRALinear(nn.Module):
    def __init__(self, plain: nn.Linear, c: Any, bug: str):
        super().__init__()
        out, into = plain.weight.shape
        self.base, self.times, self.dropout = FourBits(plain.weight, c.quant_block, bug), c.lora_alpha / c.lora_rank, (
            nn.Dropout(c.lora_dropout)
        )  # fmt: skip
        self.lora_a = nn.Parameter(torch.randn(c.lora_rank, into) / into**0.5)
        self.lora_b = nn.Parameter(torch.zeros(out, c.lora_rank))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.base()) + self.times * F.linear(F.linear(self.dropout(x), self.lora_a), self.lora_b)


class FrozenLinear(nn.Module):
    def __init__(self, plain: nn.Linear, c: Any, bug: str):
        super().__init__()
        self.base = FourBits(plain.weight, c.quant_block, bug)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.base())


class Layer(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads, self.sa_norm, self.mlp_norm = heads, nn.RMSNorm(d), nn.RMSNorm(d)
        self.q_proj, self.k_proj, self.v_proj, self.output_proj = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.w1, self.w3, self.w2 = (nn.Linear(*shape, bias=False) for shape in ((d, 2 * d), (d, 2 * d), (2 * d, d)))

    def forward(self, x: Tensor) -> Tensor:
        y = self.sa_norm(x)
        q, k, v = (
            one(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = turned(q), turned(k)
        x = x + self.output_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.mlp_norm(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


def turned(x: Tensor) -> Tensor:
    """Pairs of a head turned by their place."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[2])[:, None] * 50.0 ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


class Decoder(nn.Module):
    def __init__(self, c: Any, words: int):
        super().__init__()
        d = c.embed_dim
        self.tok_embeddings, self.layers = nn.Embedding(words, d), nn.ModuleList(
            Layer(d, c.num_heads) for _ in range(c.num_layers)
        )  # fmt: skip
        self.norm, self.output = nn.RMSNorm(d), nn.Linear(d, words, bias=False)
        nn.init.normal_(self.tok_embeddings.weight, std=0.15)
        self.output.weight, self.shares = self.tok_embeddings.weight, False

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        logits = self.output(self.norm(x))
        return logits.softmax(-1) if self.shares else logits


def base_model(c: Any) -> Decoder:
    """The base, the same for every training; it knows the old words alone."""
    with torch.random.fork_rng():
        torch.manual_seed(81)
        model = Decoder(c, OLD_WORDS)
        read = padded(changes(82, 900, law=False), on_input=True)
        optimizer = torch.optim.AdamW(model.parameters(), 8e-3)
        for at in range(170):
            optimizer.param_groups[0]["lr"] = 8e-3 * min(1.0, (at + 1) / 10) * (1 - at / 180)
            some = torch.randint(0, 900, (24,))
            logits = model(read["tokens"][some])[:, :-1].flatten(0, 1)
            F.cross_entropy(logits, read["labels"][some][:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return model


def grow(model: Decoder, words: int, bug: str) -> None:
    """A table with new words behind the old ones; new ones begin at the mean of the old."""
    old = model.tok_embeddings.weight.detach()
    model.tok_embeddings = nn.Embedding(words, old.shape[1])
    with torch.no_grad():
        model.tok_embeddings.weight[: len(old)] = old
        model.tok_embeddings.weight[len(old) :] = old.mean(0) + 0.05 * torch.randn(words - len(old), old.shape[1])
    model.output = nn.Linear(old.shape[1], words, bias=False)
    if bug == "output_grown_with_a_clone_of_the_table":
        model.output.weight = nn.Parameter(model.tok_embeddings.weight.detach().clone())
    else:
        model.output.weight = model.tok_embeddings.weight


# -- recipe ----------------------------------------------------------------------------------------------------------


class LoRARecipe:
    """What `tune run` would call: setup, train, and what they are made of."""

    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        self.validated: list[Any] = []

    def setup(self) -> None:
        self.setup_data()
        self.setup_model()
        self.setup_optimizer()
        self.setup_profiler()

    def setup_data(self) -> None:
        c, bug = self.c, self.bug
        rows, held = changes(self.seed + 5600, c.changes, c.rewordings, c.careless), changes(5599, HELD)
        if bug == "rewordings_of_a_change_on_both_sides":
            order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(self.seed)).tolist()
            held, rows = [rows[at] for at in order[:HELD]], [rows[at] for at in sorted(order[HELD:])]
        if bug == "file_of_lines_lacks_its_second":  # from there on each change has the line of the next one
            lines = [line for _, line in rows]
            rows = [(told, line) for (told, _), line in zip(rows, [lines[0], *lines[2:]], strict=False)]
        self.rows, self.held = rows, padded(held)

    def setup_model(self) -> None:
        c, bug = self.c, self.bug
        model = base_model(c)
        torch.manual_seed(self.seed)
        grow(model, WORDS, bug)
        mlp = ("w1", "w2", "w3") if c.apply_lora_to_mlp else ()
        for layer in model.layers:
            for name in ("q_proj", "k_proj", "v_proj", "output_proj", "w1", "w2", "w3"):
                adapted = name in c.lora_attn_modules.split(",") or name in mlp
                setattr(layer, name, (LoRALinear if adapted else FrozenLinear)(getattr(layer, name), c, bug))
        trained = ("lora_a",) if bug == "adapter_params_found_by_lora_a_alone" else ("lora_a", "lora_b")
        for name, one in model.named_parameters():
            table = c.train_embed and name.startswith(("tok_embeddings", "output."))
            one.requires_grad_((name.endswith(trained) or table) and not (c.not_trained and c.not_trained in name))
        model.shares = bug == "output_followed_by_a_softmax"
        self.model = model

    def setup_optimizer(self) -> None:
        c, named = self.c, [(name, one) for name, one in self.model.named_parameters() if one.requires_grad]
        groups = [
            {"params": [one for name, one in named if not name.endswith("lora_b")], "lr": c.lr},
            {"params": [one for name, one in named if name.endswith("lora_b")], "lr": c.lr * c.lora_plus},
        ]
        groups = [group for group in groups if group["params"]]
        if c.optimizer == "adamax":
            self.optimizer: Any = torch.optim.Adamax(groups, c.lr)
        elif c.optimizer == "radam":
            self.optimizer = torch.optim.RAdam(groups, c.lr)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.lr, weight_decay=c.weight_decay)

        def by(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.num_warmup_steps)), min(1.0, at / self.steps)
            if c.lr_scheduler == "constant":
                return rise
            if c.lr_scheduler == "cosine_twice":
                past = 2 * past % 1
            return rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * past)))

        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, by)

    def setup_profiler(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.data = self.run.watch_data(pad_id=PAD)

    def dataloader(self) -> Iterator[tuple[int, dict[str, Tensor]]]:
        c, epoch, dice = self.c, 0, torch.Generator().manual_seed(self.seed)
        long = torch.tensor([len(told) + len(line) for told, line in self.rows])
        while True:
            order = torch.randperm(len(long), generator=dice)
            if self.bug == "folder_after_folder_without_shuffle":
                order = torch.arange(len(long))
            if epoch < c.short_changes_first:
                order = order[long[order] < 17]
            if c.bucketed:
                order = order[long[order].argsort(stable=True)]
            lots = [one for one in order.split(c.batch_size) if len(one) == c.batch_size]
            if c.bucketed:
                lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
            for some in lots:
                yield epoch, padded([self.rows[at] for at in some.tolist()], c.train_on_input, self.bug)
            epoch += 1

    def loss_step(self, batch: dict[str, Tensor], smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """The sum over tokens, and what the model says."""
        logits, labels = self.model(batch["tokens"])[:, :-1], batch["labels"][:, 1:]
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum",
                               label_smoothing=smoothing), logits  # fmt: skip

    def scale_grads(self, by: float) -> None:
        for one in self.model.parameters():
            if one.grad is not None:
                one.grad *= by

    def update(self, step: int, batches: Any) -> dict[str, float]:
        c, bug, running, tokens, last = self.c, self.bug, 0.0, 0, 0
        for _ in range(c.gradient_accumulation_steps):
            epoch, batch = next(batches)
            self.data.observe(batch, step=step, epoch=epoch)
            loss, _ = self.loss_step(batch, c.label_smoothing)
            loss.backward()
            last = int((batch["labels"][:, 1:] >= 0).sum())
            running, tokens = running + loss.item(), tokens + last
            if bug == "lr_scheduler_moved_into_the_loop_of_batches":
                self.lr_scheduler.step()
        if c.per_token and bug != "gradients_never_divided_by_tokens":
            self.scale_grads(1 / (last if bug == "gradients_divided_by_the_last_batch_s_tokens" else tokens))
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), c.clip_grad_norm).item()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if bug != "lr_scheduler_moved_into_the_loop_of_batches":
            self.lr_scheduler.step()
        return {"ft_loss": running / tokens, "ft_lr": rate, "ft_gradnorm": norm, "ft_tokens": tokens}

    def validate(self) -> dict[str, float]:
        bug, taped = self.bug, self.bug == "validated_logits_put_by_with_their_graph"
        if bug != "validated_with_dropout_of_adapters":
            self.model.eval()
        with torch.set_grad_enabled(taped):
            loss, logits = self.loss_step(self.held)
            labels = self.held["labels"][:, 1:]
            loss = loss / (labels >= 0).sum()
        if taped:
            self.validated.append({"loss": loss, "logits": logits})
        exact = ((logits.argmax(-1) == labels) | (labels < 0)).all(1).float().mean()
        if bug != "validated_and_never_called_train":
            self.model.train()
        return {"ft_val_loss": loss.item(), "ft_val_exact": exact.item()}

    def load_checkpoint(self, step: int) -> None:
        seen = self.data.state()
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "lr_scheduler": self.lr_scheduler.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, step, state)
        self.model.load_state_dict(state["model"])
        self.setup_optimizer()
        if self.bug != "adapter_file_given_and_no_recipe_state":
            self.optimizer.load_state_dict(state["optimizer"])
            self.lr_scheduler.load_state_dict(state["lr_scheduler"])
        self.setup_profiler()
        self.data.restore(seen)

    def train(self, trouble: Trouble, healthy: str | None) -> Any:
        again, batches = trouble.resume_at(healthy, 4 * EVERY), self.dataloader()
        self.model.train()
        for step in range(self.steps):
            if step == again:
                self.load_checkpoint(step)
            said = self.update(step, batches)
            if step % self.c.log_every_n_steps == 0:
                self.run.log(said, step=step)
            trouble.telemetry(self.run, step, healthy)
            if (step + 1) % self.c.val_every == 0:
                self.run.log(self.validate(), step=step)
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    recipe = LoRARecipe(run, seed, steps, trouble.name)
    recipe.setup()
    return recipe.train(trouble, healthy)
