"""A decoder reads tablatures for the lute in float16 with a scaler, tune after tune in rows of one length.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: training_step/nll, training_step/lr, training_step/grad_norm, training_step/scale each
      step; validation_step/nll, validation_step/next_fret each twentieth; memory, where it matters; the watch of data.

A tune has a mode and a metre; chords follow each other by the mode's law, and each chord is broken into courses and
frets that belong to it. Tunes are joined by a word between them and cut into rows. Places are told by turning pairs of
features, norms are by the root mean square, layers are gated. Written as a module with hooks and a small trainer that
calls them.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, MODES, CHORDS, NOTES, ROW = 20, 5, 10, 24, 24
NEXT = 0  # between tunes
MODE, CHORD, NOTE = 1, 1 + MODES, 1 + MODES + CHORDS
VOCAB = NOTE + NOTES
CONFIG: dict[str, Any] = {
    "d_model": 40, "n_layers": 2, "n_heads": 4, "dropout": 0.0, "share_embeddings": True, "precision": "16-mixed",
    "init_scale": 4096.0, "growth_interval": 60, "batch_size": 12, "accumulate_grad_batches": 1,
    "gradient_clip_val": 1.0, "optimizer": "adamw", "lr": 6e-3, "lr_schedule": "inverse_sqrt", "warmup_steps": 10,
    "weight_decay": 0.05, "betas": (0.9, 0.97), "loss_reduction": "mean", "label_smoothing": 0.0, "z_loss": 0.0,
    "rope_base": 200.0, "tunes": 900, "copies_of_a_tune": 1, "slips": 0.0, "one_mode_rows_first": 0,
    "frozen": "", "embedding_lr_scale": 1.0, "val_check_interval": 20, "limit_val_rows": 48, "log_every_n_steps": 1,
}  # fmt: skip


# -- tunes ----------------------------------------------------------------------------------------------------------


def tunes(seed: int, number: int, copies: int = 1, slips: float = 0.0) -> list[list[int]]:
    """Tunes, mode after mode. copies: settings of one tune, which differ in a note here and there."""
    laws, dice = torch.Generator().manual_seed(88), torch.Generator().manual_seed(seed)
    after = torch.randint(0, CHORDS, (MODES, CHORDS, 2), generator=laws).tolist()
    broken = torch.randint(0, NOTES, (CHORDS, 4), generator=laws).tolist()
    out = []
    for at in range(number // copies):
        mode = at * MODES * copies // number
        pick = torch.randint(0, 1 << 20, (10,), generator=dice).tolist()
        now, tune = pick[0] % CHORDS, [MODE + mode]
        for one in pick[1 : 4 + pick[0] % 6]:
            notes = broken[now] if one % 2 else broken[now][::-1]
            tune += [CHORD + now, *(NOTE + note for note in notes[: 3 + one % 2])]
            now = after[mode][now][0 if one % 16 < 11 else 1]
        for _ in range(copies):
            play = torch.tensor([*tune, NEXT])
            wrong = (torch.rand(len(play), generator=dice) < slips + (0.04 if copies > 1 else 0.0)) & (play >= NOTE)
            stray = NOTE + torch.randint(0, NOTES, (len(play),), generator=dice)
            out.append(torch.where(wrong, stray, play).tolist())
    return out


def rows_of(some: list[list[int]]) -> Tensor:
    """Tunes in their order, joined and cut into rows with a word more."""
    flat = torch.tensor([word for tune in some for word in tune])
    many = (len(flat) - 1) // ROW
    return torch.stack([flat[at * ROW : at * ROW + ROW + 1] for at in range(many)])


# -- decoder --------------------------------------------------------------------------------------------------------


class GatedLayer(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d, self.heads, self.bug = c.d_model, c.n_heads, bug
        self.attention_norm, self.ffn_norm, self.dropout = nn.RMSNorm(d), nn.RMSNorm(d), nn.Dropout(c.dropout)
        self.wqkv, self.wo = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.w1, self.w3 = nn.Linear(d, 2 * d, bias=False), nn.Linear(d, 2 * d, bias=False)
        self.w2 = nn.Linear(2 * d, d, bias=False)

    def turn(self, x: Tensor, base: float) -> Tensor:
        half = x.shape[-1] // 2
        angle = torch.arange(x.shape[2])[:, None] * base ** (-torch.arange(half) / half)
        low, high = x.float().chunk(2, -1)
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([low * cos - high * sin, low * sin + high * cos], -1).to(x.dtype)

    def forward(self, x: Tensor, base: float) -> Tensor:
        q, k, v = self.wqkv(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        causal = self.bug != "sdpa_is_causal_left_at_its_default"
        y = F.scaled_dot_product_attention(self.turn(q, base), self.turn(k, base), v, is_causal=causal)
        x = x + self.dropout(self.wo(y.transpose(1, 2).flatten(2)))
        y = self.ffn_norm(x)
        return x + self.dropout(self.w2(F.silu(self.w1(y)) * self.w3(y)))


class LuteModule(nn.Module):
    """The decoder, with what a trainer asks of it."""

    def __init__(self, c: Any, bug: str):
        super().__init__()
        self.c, self.bug = c, bug
        self.embedding, self.dropout = nn.Embedding(VOCAB, c.d_model), nn.Dropout(c.dropout)
        self.layers = nn.ModuleList(GatedLayer(c, bug) for _ in range(c.n_layers))
        self.norm, self.output = nn.RMSNorm(c.d_model), nn.Linear(c.d_model, VOCAB, bias=False)
        if c.share_embeddings:
            self.output.weight = self.embedding.weight
        self.apply(self.init_weights)
        self.outputs: list[Any] = []

    def init_weights(self, module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            if self.bug == "init_weights_makes_parameters_anew" and isinstance(module, nn.Linear):
                module.weight = nn.Parameter(torch.empty_like(module.weight))
            nn.init.normal_(module.weight, std=0.08)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.dropout(self.embedding(ids))
        for layer in self.layers:
            x = layer(x, self.c.rope_base)
        out = self.output(self.norm(x))
        return out.softmax(-1) if self.bug == "forward_ends_in_probabilities" else out

    def training_step(self, row: Tensor) -> Tensor:
        c, bug, wanted = self.c, self.bug, row[:, 1:]
        if bug == "labels_of_the_collator_shifted_again":
            wanted = torch.cat([row[:, 2:], torch.full((len(row), 1), -100)], 1)
        logits = self(row[:, :-1]).float()
        summed = c.loss_reduction == "sum" or bug == "nll_loss_adds_over_the_row"
        each = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum" if summed else "mean",
                               label_smoothing=c.label_smoothing)  # fmt: skip
        if c.z_loss:
            each = each + c.z_loss * (logits.logsumexp(-1) ** 2).mean()
        return each / len(row) if summed else each

    def validation_step(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        logits, wanted = self(rows[:, :-1]).float(), rows[:, 1:]
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        if self.bug == "validation_outputs_collected_with_grad":
            self.outputs.append((loss, logits))
        right = (logits.argmax(-1) == wanted)[wanted >= NOTE].float().mean()
        return loss, right

    def configure_optimizers(self, steps: int) -> tuple[Any, Any]:
        c, groups = self.c, []
        for name, one in self.named_parameters():
            if not one.requires_grad or (self.bug == "blocks_of_the_stack_alone" and not name.startswith("layers")):
                continue
            scale = c.embedding_lr_scale if name.startswith("embedding") else 1.0
            groups.append({"params": [one], "lr": c.lr * scale,
                           "weight_decay": c.weight_decay if one.ndim > 1 else 0.0})  # fmt: skip
        if c.optimizer == "nadam":
            optimizer: Any = torch.optim.NAdam(groups, c.lr, c.betas)
        elif c.optimizer == "sgd":
            optimizer = torch.optim.SGD(groups, c.lr, 0.9)
        else:
            optimizer = torch.optim.AdamW(groups, c.lr, c.betas)

        def share(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup_steps)), min(1.0, at / steps)
            if c.lr_schedule == "constant":
                return rise
            if c.lr_schedule == "cosine":
                return rise * 0.5 * (1 + math.cos(math.pi * past))
            if c.lr_schedule == "cosine_twice":
                return rise * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
            return rise * (max(1, c.warmup_steps) / max(at + 1, c.warmup_steps)) ** 0.5

        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)


# -- trainer --------------------------------------------------------------------------------------------------------


class LuteTrainer:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        c = self.c
        self.setup()
        torch.manual_seed(seed)
        self.module, self.half = LuteModule(c, bug), c.precision == "16-mixed"
        for name, one in self.module.named_parameters():
            if c.frozen and name.startswith(tuple(c.frozen.split(","))):
                one.requires_grad_(False)
        self.begin()

    def setup(self) -> None:
        c, dice = self.c, torch.Generator().manual_seed(self.seed)
        some = tunes(self.seed + 840, c.tunes, c.copies_of_a_tune, c.slips)
        held = tunes(839, 180)
        by_mode = self.bug == "corpus_written_mode_after_mode"
        if not by_mode:
            some = [some[at] for at in torch.randperm(len(some), generator=dice).tolist()]
        held = [held[at] for at in torch.randperm(len(held), generator=torch.Generator().manual_seed(3)).tolist()]
        self.rows, self.held = rows_of(some), rows_of(held)[: c.limit_val_rows]
        self.easy = (self.rows == NEXT).sum(1) < 2
        self.in_order = by_mode

    def begin(self) -> None:
        self.optimizer, self.scheduler = self.module.configure_optimizers(self.steps)
        self.scaler = self.new_scaler()

    def new_scaler(self) -> Any:
        c = self.c
        return torch.amp.GradScaler("cpu", c.init_scale, growth_interval=c.growth_interval, enabled=self.half)

    def loader(self) -> Any:
        c, epoch, dice = self.c, 0, torch.Generator().manual_seed(self.seed)
        while True:
            order = torch.randperm(len(self.rows), generator=dice)
            if self.in_order:
                order = torch.arange(len(self.rows))
            if epoch < c.one_mode_rows_first:
                order = order[self.easy[order]]
            for some in order.split(c.batch_size):
                if len(some) == c.batch_size:
                    yield epoch, self.rows[some]
            epoch += 1

    def validate(self, step: int) -> None:
        if self.bug != "validation_loop_of_my_own_without_eval":
            self.module.eval()
        taped = self.bug == "validation_outputs_collected_with_grad"
        with torch.set_grad_enabled(taped), torch.autocast("cpu", torch.float16, enabled=self.half):
            loss, right = self.module.validation_step(self.held)
        self.run.log({"validation_step/nll": loss.item(), "validation_step/next_fret": right.item()}, step=step)
        if self.bug != "validation_loop_of_my_own_without_train":
            self.module.train()

    def observe(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.module, self.optimizer, scaler=self.scaler)
        self.watch = self.run.watch_data()

    def resume(self, step: int) -> None:
        seen = self.watch.state()
        state = {"state_dict": self.module.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "scheduler": self.scheduler.state_dict(), "scaler": self.scaler.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, step, state)
        self.module.load_state_dict(state["state_dict"])
        self.begin()
        if self.bug != "load_from_checkpoint_and_fit":
            self.optimizer.load_state_dict(state["optimizer"])
            self.scheduler.load_state_dict(state["scheduler"])
            if self.half:
                self.scaler.load_state_dict(state["scaler"])
        self.observe()
        self.watch.restore(seen)

    def fit(self, trouble: Trouble, healthy: str | None) -> None:
        c, bug, again, stream = self.c, self.bug, trouble.resume_at(healthy, 4 * EVERY), self.loader()
        per_batch = bug == "interval_is_step_of_the_loader"
        self.observe()
        self.module.train()
        for step in range(self.steps):
            if step == again:
                self.resume(step)
            total = 0.0
            if bug == "scaler_made_in_each_step":
                self.scaler = self.new_scaler()
            for _ in range(c.accumulate_grad_batches):
                epoch, rows = next(stream)
                self.watch.observe({"input_ids": rows[:, :-1]}, step=step, epoch=epoch)
                with torch.autocast("cpu", torch.float16, enabled=self.half):
                    loss = self.module.training_step(rows)
                parts = 1 if bug == "manual_optimization_does_not_divide" else c.accumulate_grad_batches
                self.scaler.scale(loss / parts).backward()
                total += loss.item() / c.accumulate_grad_batches
                if per_batch:
                    self.scheduler.step()
            if bug != "clip_hook_runs_before_unscale":
                self.scaler.unscale_(self.optimizer)
            norm = nn.utils.clip_grad_norm_(self.module.parameters(), c.gradient_clip_val).item()
            rate = self.optimizer.param_groups[0]["lr"]
            self.scaler.step(self.optimizer)
            self.scaler.update()
            if not per_batch:
                self.scheduler.step()
            self.module.zero_grad()
            if step % c.log_every_n_steps == 0:
                said = {"nll": total, "lr": rate, "grad_norm": norm, "scale": self.scaler.get_scale()}
                self.run.log({f"training_step/{name}": one for name, one in said.items()}, step=step)
            trouble.telemetry(self.run, step, healthy)
            if step % c.val_check_interval == c.val_check_interval - 1:
                self.validate(step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    trainer = LuteTrainer(run, seed, steps, trouble.name)
    trainer.fit(trouble, healthy)
    return trainer.run
