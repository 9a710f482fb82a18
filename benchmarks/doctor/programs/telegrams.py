"""An encoder-decoder abridges dispatches to telegrams, under autocast to float16 with a scaler.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train/loss, train/lr, train/grad_norm, train/loss_scale each step; valid/loss,
      valid/token_acc, valid/exact at each twentieth; the watch of data.

Source and target are padded, and have one vocabulary; embedding of both sides and output are one matrix; teacher
forcing; AdamW behind a warm-up, a rate that falls by a power; a script's functions over one name space.
"""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

EVERY, PAD, BOS, EOS = 20, 0, 1, 2
FILLERS, ROLES, WORDS, SLIPS = 6, 5, 6, 0.04
FIRST_WORD = 3 + FILLERS
FIRST_CODE = FIRST_WORD + ROLES * WORDS
VOCAB = FIRST_CODE + ROLES * WORDS
CONFIG: dict[str, Any] = {
    "d_model": 32, "ffn": 64, "heads": 2, "enc_layers": 1, "dec_layers": 1, "dropout": 0.0, "sentences": 1600,
    "max_sentences": 16, "update_freq": 1, "lr": 8e-3, "warmup_updates": 12, "lr_scheduler": "polynomial", "power": 1.0,
    "optimizer": "adamw", "weight_decay": 0.01, "clip_norm": 1.0, "label_smoothing": 0.0, "share_all_embeddings": True,
    "fp16_init_scale": 4096.0, "scale_window": 60, "ema_decay": 0.0, "frozen": "", "sort_pool": False,
    "wrong_codes": 0.0, "loss_per": "token", "amp_dtype": "float16",
}  # fmt: skip
Pair = tuple[list[int], list[int]]


def dispatches(seed: int, number: int, wrong: float = 0.0) -> list[Pair]:
    """A dispatch: a word for some of five matters, in any order, among words that say nothing. The telegram: the
    code words of these, in the order of matters."""
    dice, book = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(15)
    code = (FIRST_CODE + torch.randperm(ROLES * WORDS, generator=book)).tolist()
    rows = []
    for _ in range(number):
        roles = torch.randperm(ROLES, generator=dice)[: int(torch.randint(2, ROLES + 1, (), generator=dice))].tolist()
        picks = torch.randint(0, WORDS, (ROLES,), generator=dice).tolist()
        source, often = [], torch.randint(0, 2, (len(roles),), generator=dice).tolist()
        for role, many in zip(roles, often, strict=True):
            source += (3 + torch.randint(0, FILLERS, (many,), generator=dice)).tolist()
            source.append(FIRST_WORD + role * WORDS + picks[role])
        target = [code[role * WORDS + picks[role]] for role in sorted(roles)]
        slips = torch.rand(len(target), generator=dice) < max(SLIPS, wrong)
        others = torch.randint(FIRST_CODE, VOCAB, (len(target),), generator=dice).tolist()
        target = [other if slip else one for one, other, slip in zip(target, others, slips.tolist(), strict=True)]
        rows.append((source, [*target, EOS]))
    return rows


def padded(rows: list[list[int]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


def collate(rows: list[Pair], bug: str = "") -> tuple[Tensor, Tensor, Tensor]:
    """Source, what the decoder is given, what it should say."""
    wanted = padded([target for _, target in rows])
    given = padded([[BOS, *target[:-1]] for _, target in rows])
    if bug == "decoder_input_not_shifted":
        given = wanted.clone()
    return padded([source for source, _ in rows]), given, wanted


class Attention(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.d_model
        self.heads, self.q, self.kv, self.out = c.heads, nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.kv(memory).chunk(2, -1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, c: Any, cross: bool):
        super().__init__()
        d = c.d_model
        self.norm1, self.norm3, self.drop = nn.LayerNorm(d), nn.LayerNorm(d), nn.Dropout(c.dropout)
        self.self_attn, self.fc1, self.fc2 = Attention(c), nn.Linear(d, c.ffn), nn.Linear(c.ffn, d)
        if cross:
            self.norm2, self.cross_attn = nn.LayerNorm(d), Attention(c)

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor | None = None, seen: Any = None) -> Tensor:
        y = self.norm1(x)
        x = x + self.drop(self.self_attn(y, y, mask))
        if memory is not None:
            x = x + self.drop(self.cross_attn(self.norm2(x), memory, seen))
        return x + self.drop(self.fc2(F.relu(self.fc1(self.norm3(x)))))


class Abridger(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        self.bug, d = bug, c.d_model
        self.embed = nn.Embedding(VOCAB, d, padding_idx=PAD)
        self.places = nn.Embedding(16, d)
        self.encoder = nn.ModuleList(Layer(c, False) for _ in range(c.enc_layers))
        self.decoder = nn.ModuleList(Layer(c, True) for _ in range(c.dec_layers))
        self.enc_norm, self.dec_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.project = nn.Linear(d, VOCAB, bias=False)
        for one in (self.embed, self.places, self.project):
            nn.init.normal_(one.weight, std=0.1)
        if c.share_all_embeddings:
            self.project.weight = self.embed.weight

    def forward(self, source: Tensor, given: Tensor) -> Tensor:
        real = (source != PAD)[:, None, None]
        if self.bug == "mask_upside_down":  # `key_padding_mask` says the opposite, and was copied
            real = ~real
        x = self.embed(source) + self.places.weight[: source.shape[1]]
        for layer in self.encoder:
            x = layer(x, real)
        memory, long = self.enc_norm(x), given.shape[1]
        x = self.embed(given) + self.places.weight[:long]
        causal = torch.ones(long, long, dtype=torch.bool).tril()
        for layer in self.decoder:
            x = layer(x, causal, memory, real)
        y = self.project(self.dec_norm(x))
        return y.float().softmax(-1) if self.bug == "probabilities_go_into_loss" else y


def loss_of(c: Any, logits: Tensor, wanted: Tensor, bug: str) -> Tensor:
    """The training's loss."""
    flat, names = logits.float().flatten(0, 1), wanted.flatten()
    if bug == "token_sum_over_rows":
        return F.cross_entropy(flat, names, ignore_index=PAD, reduction="sum") / len(wanted)
    if bug == "padding_asked_for":
        return F.cross_entropy(flat, names)
    if c.loss_per == "sentence":
        each = F.cross_entropy(flat, names, ignore_index=PAD, reduction="none").view_as(wanted)
        return (each.sum(1) / (wanted != PAD).sum(1)).mean()
    return F.cross_entropy(flat, names, ignore_index=PAD, label_smoothing=c.label_smoothing)


def batches(c: Any, rows: list[Pair], seed: int, bug: str) -> Any:
    """Micro-batches with their epoch, without end."""
    lot, epoch, size = torch.Generator().manual_seed(seed), 0, int(c.max_sentences)
    if bug == "shortest_first_always":
        rows = sorted(rows, key=lambda row: (len(row[1]), len(row[0])))
    while True:
        order = torch.randperm(len(rows), generator=lot).tolist()
        if bug == "shortest_first_always":
            order = list(range(len(rows)))
        if c.sort_pool:  # batches of like lengths, in any order
            order.sort(key=lambda at: len(rows[at][0]))
        groups = [order[at : at + size] for at in range(0, len(order) - size + 1, size)]
        if c.sort_pool:
            groups = [groups[at] for at in torch.randperm(len(groups), generator=lot).tolist()]
        for some in groups:
            yield epoch, *collate([rows[at] for at in some], bug)
        epoch += 1


def optimizer_of(c: Any, model: nn.Module) -> tuple[Any, Any, Any]:
    some = [one for one in model.parameters() if one.requires_grad]
    if c.optimizer == "nadam":
        optimizer: Any = torch.optim.NAdam(some, c.lr, (0.9, 0.98))
    else:
        optimizer = torch.optim.AdamW(some, c.lr, (0.9, 0.98), weight_decay=c.weight_decay)

    def share(at: int) -> float:
        if at < c.warmup_updates or c.lr_scheduler == "fixed":
            return min(1.0, (at + 1) / c.warmup_updates)
        if c.lr_scheduler == "inverse_sqrt":
            return (c.warmup_updates / at) ** 0.5
        return max(0.0, 1 - (at - c.warmup_updates) / (c.steps - c.warmup_updates)) ** c.power

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, share)
    on = c.amp_dtype == "float16"
    return optimizer, scheduler, torch.amp.GradScaler("cpu", c.fp16_init_scale, growth_interval=c.scale_window,
                                                      enabled=on)  # fmt: skip


def frozen_by(c: Any, model: nn.Module, bug: str) -> None:
    for name, one in model.named_parameters():
        if c.frozen:
            one.requires_grad = not name.startswith(c.frozen)
        if bug == "freeze_pattern_wrong":  # the pattern is of a model whose encoder has been trained
            one.requires_grad = not name.startswith(("enc", "embed", "dec"))


def one_update(c: Any, t: Any, stream: Any, step: int) -> None:
    """A step: micro-batches, scaled and clipped; what it did is logged."""
    shown = 0.0
    for _ in range(c.update_freq):
        epoch, source, given, wanted = next(stream)
        t.data.observe({"input_ids": source, "labels": wanted}, step=step, epoch=epoch)
        with torch.autocast("cpu", getattr(torch, c.amp_dtype)):
            logits = t.model(source, given)
        loss = loss_of(c, logits, wanted, t.bug)
        if t.bug != "micro_losses_whole":
            loss = loss / c.update_freq
        t.scaler.scale(loss).backward()
        shown += loss.item()
        if t.bug == "scheduler_steps_in_micro_loop":
            t.scheduler.step()
    if t.bug != "clipped_while_scaled":
        t.scaler.unscale_(t.optimizer)
    norm = nn.utils.clip_grad_norm_(t.model.parameters(), c.clip_norm).item()
    rate = t.optimizer.param_groups[0]["lr"]
    t.scaler.step(t.optimizer)
    t.scaler.update()
    t.optimizer.zero_grad(set_to_none=True)
    if t.bug != "scheduler_steps_in_micro_loop":
        t.scheduler.step()
    if t.ema is not None:
        t.ema.update_parameters(t.followed)
    t.run.log({"train/loss": shown, "train/lr": rate, "train/grad_norm": norm,
               "train/loss_scale": t.scaler.get_scale()}, step=step)  # fmt: skip


def validate(c: Any, t: Any, step: int) -> None:
    model = t.model if t.ema is None else t.ema.module
    model.train(t.bug == "validated_in_train_mode")
    source, given, wanted = collate(t.held)
    with torch.set_grad_enabled(t.bug == "val_outputs_keep_graphs"), \
            torch.autocast("cpu", getattr(torch, c.amp_dtype)):  # fmt: skip
        logits = model(source, given)
        loss = F.cross_entropy(logits.float().flatten(0, 1), wanted.flatten(), ignore_index=PAD)
    if t.bug == "val_outputs_keep_graphs":
        t.kept.append(logits)
    right, real = logits.argmax(-1) == wanted, wanted != PAD
    t.run.log({"valid/loss": loss.item(), "valid/token_acc": right[real].float().mean().item(),
               "valid/exact": (right | ~real).all(1).float().mean().item()}, step=step)  # fmt: skip
    t.model.train()


def resumed(c: Any, t: Any, step: int) -> None:
    memory, names = t.data.state(), ("model", "optimizer", "scheduler", "scaler")
    t.run, saved = go_on(t.run, step, {one: getattr(t, one).state_dict() for one in names})
    t.optimizer, t.scheduler, t.scaler = optimizer_of(c, t.model)
    for name in names:
        if name != "optimizer" or t.bug != "fresh_optimizer_at_resume":
            getattr(t, name).load_state_dict(saved[name])
    t.optimizer.param_groups[0]["lr"] = t.scheduler.get_last_lr()[0]
    watched(t)
    t.data.restore(memory)


def watched(t: Any) -> None:
    time_by_own_clock(t.run)
    t.run.watch(t.model, t.optimizer, scaler=t.scaler)
    t.data = t.run.watch_data(pad_id=PAD)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    c, trouble = SimpleNamespace(**run.config), Trouble(fault, seed)
    bug = trouble.name
    torch.manual_seed(seed)
    rows, held = dispatches(seed + 3100, c.sentences, c.wrong_codes), dispatches(31, 240)
    if bug == "heldout_in_corpus":  # the corpus is what is in the folder, where the small one was to be tried first
        rows = rows[:96] + held
    model = Abridger(c, bug)
    frozen_by(c, model, bug)
    t = SimpleNamespace(run=run, bug=bug, model=model, held=held, kept=[], ema=None)
    t.optimizer, t.scheduler, t.scaler = optimizer_of(c, model)
    if bug == "vocabulary_grown_after_optimizer":  # for words to come
        model.embed = nn.Embedding(VOCAB + 3, c.d_model, padding_idx=PAD)
        nn.init.normal_(model.embed.weight, std=0.1)
    if c.ema_decay:
        decay = 0.9999 if c.ema_decay == "default" else c.ema_decay
        t.followed = copy.deepcopy(model) if bug == "ema_of_a_copy" else model
        t.ema = AveragedModel(t.followed, multi_avg_fn=get_ema_multi_avg_fn(decay))
    watched(t)
    stream, again = batches(c, rows, seed, bug), trouble.resume_at(healthy, 4 * EVERY)
    model.train()
    for step in range(steps):
        if step == again:
            resumed(c, t, step)
        one_update(c, t, stream, step)
        trouble.telemetry(t.run, step, healthy)
        if step % EVERY == 0 or step == steps - 1:
            validate(c, t, step)
    return t.run
