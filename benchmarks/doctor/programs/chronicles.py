"""A decoder of words reads chronicles of four towns in float16 with a scaler; updates have parts, and it is resumed.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: iter/lm_loss, iter/lr, iter/grad_norm, iter/loss_scale each iteration; evals/train_loss and
      evals/val_loss each twentieth, of some batches of either part; memory, where it matters; the watch of data.

A chronicle goes on by its town's grammar of order two; names of its people come again. The text is one long row of
numbers, in which windows begin anywhere. Embedding and head are one matrix; decay is for matrices alone. One file in
the manner of a small GPT: get_batch, estimate_loss, get_lr, a checkpoint that is a dict.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, TOWNS, NAMES, WORDS, STOP = 20, 4, 6, 24, 0
VOCAB = 1 + NAMES + WORDS
CONFIG: dict[str, Any] = {
    "block_size": 20, "n_layer": 2, "n_head": 4, "n_embd": 40, "dropout": 0.0, "tie_weights": True, "bias": True,
    "dtype": "float16", "init_scale": 1024.0, "growth_interval": 50, "micro_batch": 8, "grad_accum": 2,
    "learning_rate": 6e-3, "min_lr_ratio": 0.05, "warmup_iters": 10, "decay": "cosine", "optimizer": "adamw",
    "weight_decay": 0.1, "beta2": 0.95, "grad_clip": 1.0, "reduction": "mean", "label_smoothing": 0.0, "z_loss": 0.0,
    "train_tokens": 24000, "val_tokens": 3000, "editions": 1, "misprints": 0.0, "sampling": "random",
    "short_context_iters": 0, "freeze": "", "embed_lr_mult": 1.0, "eval_interval": 20, "eval_iters": 4,
    "log_interval": 1,
}  # fmt: skip


# -- chronicles -----------------------------------------------------------------------------------------------------


def chronicle(seed: int, tokens: int, misprints: float = 0.0, editions: int = 1) -> Tensor:
    """One long row, town after town. editions: so often each entry is told, with a word changed here and there."""
    laws, dice = torch.Generator().manual_seed(77), torch.Generator().manual_seed(seed)
    after = torch.randint(0, WORDS, (TOWNS, WORDS, 3), generator=laws).tolist()
    out: list[int] = []
    for town in range(TOWNS):
        while len(out) < tokens * (town + 1) // TOWNS:
            long = int(torch.randint(12, 26, (), generator=dice))
            pick = torch.randint(0, 1 << 20, (long + 3,), generator=dice).tolist()
            who, now, entry = 1 + pick[0] % NAMES, pick[1] % WORDS, []
            for at, one in enumerate(pick[3:]):
                now = after[town][now][one % 3 if one % 10 < 7 else 0]
                entry.append(who if at % 6 == 3 else 1 + NAMES + now)
            for edition in range(editions):
                told = list(entry)
                if edition:
                    told[pick[2] % long] = 1 + NAMES + (pick[1] + edition) % WORDS
                out += [*told, STOP]
    row = torch.tensor(out[:tokens])
    if misprints:
        wrong = torch.rand(len(row), generator=dice) < misprints
        row = torch.where(wrong, torch.randint(1, VOCAB, row.shape, generator=dice), row)
    return row


# -- decoder --------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.n_embd
        self.heads, self.ln_1, self.ln_2 = c.n_head, nn.LayerNorm(d), nn.LayerNorm(d)
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d, bias=c.bias), nn.Linear(d, d, bias=c.bias)
        self.c_fc, self.mlp_proj = nn.Linear(d, 3 * d, bias=c.bias), nn.Linear(3 * d, d, bias=c.bias)
        self.drop, self.rate = nn.Dropout(c.dropout), c.dropout

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.c_attn(self.ln_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.c_proj(y.transpose(1, 2).flatten(2)))
        return x + self.drop(self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)))))


class GPT(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d, self.c, self.bug = c.n_embd, c, bug
        self.wte, self.wpe = nn.Embedding(VOCAB, d), nn.Embedding(c.block_size, d)
        self.drop, self.h = nn.Dropout(c.dropout), nn.ModuleList(Block(c) for _ in range(c.n_layer))
        self.ln_f, self.lm_head = nn.LayerNorm(d), nn.Linear(d, VOCAB, bias=False)
        if c.tie_weights:
            self.lm_head.weight = self.wte.weight
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.06)
        if bug == "embedding_replaced_after_the_tie":  # vectors that were made before are put in
            self.wte = nn.Embedding.from_pretrained(0.06 * torch.randn(VOCAB, d), freeze=False)

    def forward(self, ids: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        c, bug = self.c, self.bug
        x = self.drop(self.wte(ids) + self.wpe.weight[: ids.shape[1]])
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x)).float()
        if bug == "head_gives_shares_for_sampling":
            logits = logits.softmax(-1)
        if bug == "moved_by_get_batch_and_by_forward":
            logits, wanted = logits[:, :-1], wanted[:, 1:]
        out, told = logits.flatten(0, 1), wanted.flatten()
        smoothing = c.label_smoothing if self.training else 0.0
        if self.training and (c.reduction == "sum" or bug == "words_of_a_window_summed"):
            loss = F.cross_entropy(out, told, reduction="sum") / len(ids)
        else:
            loss = F.cross_entropy(out, told, label_smoothing=smoothing)
        if c.z_loss and self.training:
            loss = loss + c.z_loss * out.logsumexp(-1).square().mean()
        return logits, loss


# -- training -------------------------------------------------------------------------------------------------------


class Reader:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        c = self.c
        self.load()
        torch.manual_seed(seed)
        self.model = GPT(c, bug)
        for name, one in self.model.named_parameters():
            if c.freeze and name.startswith(c.freeze):
                one.requires_grad_(False)
        self.configure()
        self.dice, self.read, self.kept = torch.Generator().manual_seed(seed), 0, []

    def load(self) -> None:
        c, long = self.c, self.c.block_size
        text = chronicle(self.seed + 520, c.train_tokens, c.misprints, c.editions)
        self.train_rows = text.unfold(0, long + 1, 1)
        self.val_rows = chronicle(519, c.val_tokens).unfold(0, long + 1, 1)
        if self.bug == "windows_shuffled_before_the_cut":
            every = text.unfold(0, long + 1, 2)
            order = torch.randperm(len(every), generator=torch.Generator().manual_seed(self.seed))
            self.val_rows, self.train_rows = every[order[: len(order) // 10]], every[order[len(order) // 10 :]]

    def configure(self) -> None:
        c, named = self.c, [(name, one) for name, one in self.model.named_parameters() if one.requires_grad]
        if self.bug == "decay_groups_miss_the_embeddings":  # white list of linear layers, black list of norms
            named = [(name, one) for name, one in named if not name.startswith(("wte", "wpe", "lm_head"))]
        groups = [
            {"params": [one], "lr": self.rate_of(name, c.learning_rate), "name": name,
             "weight_decay": c.weight_decay if one.ndim > 1 else 0.0} for name, one in named
        ]  # fmt: skip
        if c.optimizer == "adam":
            self.optimizer: Any = torch.optim.Adam(groups, c.learning_rate)
        elif c.optimizer == "nadam":
            self.optimizer = torch.optim.NAdam(groups, c.learning_rate)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.learning_rate, betas=(0.9, c.beta2))
        self.scaler = torch.amp.GradScaler(
            "cpu", init_scale=c.init_scale, growth_interval=c.growth_interval, enabled=c.dtype == "float16"
        )

    def rate_of(self, name: str, rate: float) -> float:
        return rate * (self.c.embed_lr_mult if name.startswith(("wte", "wpe")) else 1.0)

    def get_lr(self, at: int) -> float:
        c = self.c
        rise, past = min(1.0, (at + 1) / max(1, c.warmup_iters)), min(1.0, at / self.steps)
        if c.decay == "none":
            return c.learning_rate * rise
        if c.decay == "linear":
            return c.learning_rate * rise * max(c.min_lr_ratio, 1 - past)
        if c.decay == "restarts":
            past = 2 * past % 1
        return c.learning_rate * rise * (c.min_lr_ratio + (1 - c.min_lr_ratio) * 0.5 * (1 + math.cos(math.pi * past)))

    def get_batch(self, step: int) -> tuple[Tensor, Tensor]:
        c = self.c
        some = torch.randint(0, len(self.train_rows), (c.micro_batch,), generator=self.dice)
        if c.sampling == "epochs" or self.bug == "text_read_on_from_its_beginning":
            begin = torch.arange(self.read, self.read + c.micro_batch)
            begin = begin * len(self.train_rows) // (c.micro_batch * c.grad_accum * self.steps)
            some = begin % len(self.train_rows)
            if c.sampling == "epochs":  # a permutation of the windows, of which each comes once
                some = (some * 7919) % len(self.train_rows)
        self.read += c.micro_batch
        rows = self.train_rows[some]
        if step < c.short_context_iters:
            rows = rows[:, : c.block_size // 2 + 1]
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def forward(self, ids: Tensor, wanted: Tensor) -> Tensor:
        kind = torch.float16 if self.c.dtype == "float16" else torch.bfloat16
        with torch.autocast("cpu", kind, enabled=self.c.dtype != "float32"):
            return self.model(ids, wanted)[1]

    def estimate_loss(self, step: int) -> None:
        """Of some windows of either part, the same each time."""
        taped, said = self.bug == "estimate_loss_undecorated", {}
        if self.bug != "losses_estimated_under_dropout":
            self.model.eval()
        for part, rows in (("train", self.train_rows), ("val", self.val_rows)):
            dice, losses = torch.Generator().manual_seed(6), []
            for _ in range(self.c.eval_iters):
                some = rows[torch.randint(0, len(rows), (16,), generator=dice)]
                with torch.set_grad_enabled(taped):
                    losses.append(self.forward(some[:, :-1], some[:, 1:]))
            said[part] = torch.stack(losses).mean()
        if taped:
            self.kept.append(said)
        self.run.log({f"evals/{part}_loss": one.item() for part, one in said.items()}, step=step)
        if self.bug != "estimate_loss_ends_in_eval":
            self.model.train()

    def observe(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer, scaler=self.scaler)
        self.watch = self.run.watch_data()

    def resume(self, step: int) -> None:
        seen = self.watch.state()
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "scaler": self.scaler.state_dict(), "iter_num": step, "read": self.read}  # fmt: skip
        self.run, state = go_on(self.run, step, state)
        self.model.load_state_dict(state["model"])
        self.configure()
        if self.bug != "checkpoint_dict_of_model_and_iter":
            self.optimizer.load_state_dict(state["optimizer"])
            self.scaler.load_state_dict(state["scaler"])
        self.read = state["read"]
        self.observe()
        self.watch.restore(seen)

    def backward(self, step: int) -> float:
        """The parts of an update; their mean loss."""
        c, bug, total = self.c, self.bug, 0.0
        for _ in range(c.grad_accum):
            if bug == "zero_grad_inside_the_micro_loop":
                self.optimizer.zero_grad()
            ids, wanted = self.get_batch(step)
            self.watch.observe({"input_ids": ids, "labels": wanted}, step=step)
            loss = self.forward(ids, wanted)
            self.scaler.scale(loss if bug == "micro_losses_backward_undivided" else loss / c.grad_accum).backward()
            total += loss.item() / c.grad_accum
        return total

    def train(self, trouble: Trouble, healthy: str | None) -> None:
        c, again, bug, counted = self.c, trouble.resume_at(healthy, 4 * EVERY), self.bug, 0
        self.observe()
        self.model.train()
        for step in range(self.steps):
            if step == again:
                self.resume(step)
            at = counted if bug == "get_lr_of_the_micro_step" else step
            rate = self.get_lr(at)
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate_of(group["name"], rate)
            total = self.backward(step)
            counted += c.grad_accum
            if bug == "clipped_while_still_scaled_up":
                norm = nn.utils.clip_grad_norm_(self.model.parameters(), c.grad_clip).item()
            else:
                self.scaler.unscale_(self.optimizer)
                norm = nn.utils.clip_grad_norm_(self.model.parameters(), c.grad_clip).item()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            if bug != "zero_grad_inside_the_micro_loop":
                self.model.zero_grad()
            if step % c.log_interval == 0:
                self.run.log({"iter/lm_loss": total, "iter/lr": rate, "iter/grad_norm": norm,
                              "iter/loss_scale": self.scaler.get_scale()}, step=step)  # fmt: skip
            trouble.telemetry(self.run, step, healthy)
            if step % c.eval_interval == c.eval_interval - 1:
                self.estimate_loss(step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    reader = Reader(run, seed, steps, trouble.name)
    reader.train(trouble, healthy)
    return reader.run
