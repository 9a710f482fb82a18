"""Roman numerals from Arabic ones by torch's own Transformer, under autocast to float16 with a scaler.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log_step` and `run.log_eval` with the accuracy of letters; the watch of data; memory, where it
      matters.

An encoder and a decoder, places by sines, one matrix for letters in and out, labels smoothed on demand; Adam and the
rate of Noam; a script in functions that are given a `ctx`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from injections import Trouble, clock, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F

EVERY, PAD, BOS, EOS = 20, 0, 1, 2
ROMAN = "IVXLCDM"
CONFIG: dict[str, Any] = {
    "emb_size": 32, "nhead": 4, "encoder_layers": 1, "decoder_layers": 1, "ffn": 64, "dropout": 0.0, "batch_size": 32,
    "learning_rate": 0.5, "noam_warmup": 60, "schedule": "noam", "clip_norm": 1.0, "accumulate": 1, "smoothing": 0.0,
    "init_scale": 2.0**10, "tied": True, "numbers": 1600, "typos": 0.05, "bucketed": False, "frozen": "", "amp": True,
    "weight_decay": 0.0, "optimizer": "adam",
}  # fmt: skip


def roman(number: int) -> str:
    said = ""
    for value, letters in ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"),
                           (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")):  # fmt: skip
        while number >= value:
            said, number = said + letters, number - value
    return said


def numbers(seed: int, number: int, typos: float) -> list[tuple[list[int], list[int]]]:
    dice, pairs = torch.Generator().manual_seed(seed), []
    for _ in range(number):
        digits = int(torch.randint(1, 4, (1,), generator=dice))
        value = int(torch.randint(10 ** (digits - 1), 10**digits, (1,), generator=dice))
        source = [3 + int(digit) for digit in f"{value:d}"]
        letters = [3 + ROMAN.index(letter) for letter in roman(value)]
        for place in range(len(letters)):
            if float(torch.rand((), generator=dice)) < typos:
                letters[place] = 3 + int(torch.randint(0, 7, (1,), generator=dice))
        pairs.append(([BOS, *source, EOS], [BOS, *letters, EOS]))
    return pairs


def collate(some: list[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor]:
    return tuple(nn.utils.rnn.pad_sequence([torch.tensor(one[side]) for one in some], batch_first=True)
                 for side in (0, 1))  # type: ignore[return-value] # fmt: skip


class Seq2Seq(nn.Module):
    def __init__(self, cfg: dict[str, Any], name: str):
        super().__init__()
        size = cfg["emb_size"]
        self.src_emb, self.tgt_emb = nn.Embedding(13, size, padding_idx=PAD), nn.Embedding(10, size, padding_idx=PAD)
        for table in (self.src_emb, self.tgt_emb):
            nn.init.normal_(table.weight, std=size**-0.5)
        self.transformer = nn.Transformer(size, cfg["nhead"], cfg["encoder_layers"], cfg["decoder_layers"], cfg["ffn"],
                                          cfg["dropout"], batch_first=True, norm_first=True)  # fmt: skip
        self.transformer.encoder.enable_nested_tensor = False
        self.generator = nn.Linear(size, 10)
        if cfg["tied"]:
            self.generator.weight = self.tgt_emb.weight
        angle = torch.arange(24)[:, None] / 100 ** (torch.arange(size // 2) * 2 / size)
        self.register_buffer("places", torch.stack([angle.sin(), angle.cos()], -1).flatten(1))
        self.reversed = name == "mask_upside_down"

    def embedded(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        return table(ids) * math.sqrt(table.embedding_dim) + self.places[: ids.shape[1]]

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        hidden = src != PAD if self.reversed else src == PAD
        causal = torch.triu(torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool), 1)
        out = self.transformer(
            self.embedded(self.src_emb, src), self.embedded(self.tgt_emb, tgt), tgt_mask=causal,
            src_key_padding_mask=hidden, tgt_key_padding_mask=tgt == PAD, memory_key_padding_mask=hidden,
            tgt_is_causal=True,
        )  # fmt: skip
        return self.generator(out)


def shifted(tgt: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """What the decoder is given, and what it should say."""
    if name == "targets_off_by_one":  # the token of the beginning was cut off already, as it seemed
        return tgt[:, :-2], tgt[:, 2:]
    return tgt[:, :-1], tgt[:, 1:]


def criterion(logits: Tensor, wanted: Tensor, cfg: dict[str, Any], name: str) -> Tensor:
    logits = logits.float().flatten(0, 1)
    if name == "softmax_before_loss":
        logits = F.softmax(logits, -1)
    return F.cross_entropy(logits, wanted.flatten(), ignore_index=PAD, label_smoothing=cfg["smoothing"])


def noam(cfg: dict[str, Any]) -> Any:
    warm, size = cfg["noam_warmup"], cfg["emb_size"]

    def share(step: int) -> float:
        step += 1
        if cfg["schedule"] == "constant":
            return min(step / 20, 1.0) * 0.012
        return size**-0.5 * min(step**-0.5, step * warm**-1.5)

    return share


def setup(ctx: dict[str, Any]) -> None:
    """Optimizer, schedule and scaler."""
    cfg, model = ctx["cfg"], ctx["model"]
    kind = torch.optim.AdamW if cfg["optimizer"] == "adamw" else torch.optim.Adam
    ctx["opt"] = kind([one for one in model.parameters() if one.requires_grad], lr=cfg["learning_rate"],
                      betas=(0.9, 0.98), eps=1e-9, weight_decay=cfg["weight_decay"])  # fmt: skip
    ctx["sched"] = torch.optim.lr_scheduler.LambdaLR(ctx["opt"], noam(cfg))
    ctx["scaler"] = torch.amp.GradScaler("cpu", init_scale=cfg["init_scale"], growth_interval=60, enabled=cfg["amp"])


def watched(ctx: dict[str, Any]) -> None:
    time_by_own_clock(ctx["run"])
    ctx["run"].watch(ctx["model"], ctx["opt"])
    ctx["data"] = ctx["run"].watch_data(pad_id=PAD)


def batches(pairs: list[Any], cfg: dict[str, Any], seed: int, name: str) -> Iterator[tuple[int, Any]]:
    dice, size, epoch = torch.Generator().manual_seed(seed), int(cfg["batch_size"]), 0
    long = torch.tensor([len(target) for _, target in pairs])
    while True:
        order = torch.randperm(len(pairs), generator=dice)
        if name == "rows_by_length":
            order = long.argsort(stable=True)
        groups = list(order.split(size))
        if cfg["bucketed"]:
            groups = list(order[long[order].argsort(stable=True)].split(size))
            groups = [groups[one] for one in torch.randperm(len(groups), generator=dice).tolist()]
        for some in groups:
            yield epoch, collate([pairs[one] for one in some.tolist()])
        epoch += 1


def evaluate(ctx: dict[str, Any], held: list[Any], step: int, epoch: int) -> None:
    model, name, began = ctx["model"], ctx["trouble"].name, clock()
    if name != "judged_in_training":
        model.eval()
    losses, right, count = [], 0, 0
    with torch.set_grad_enabled(name == "evaluated_with_graphs"):
        for at in range(0, len(held), 64):
            src, tgt = collate(held[at : at + 64])
            given, wanted = shifted(tgt, "")
            logits = model(src, given)
            losses.append(F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD))
            right += int(((logits.argmax(-1) == wanted) & (wanted != PAD)).sum())
            count += int((wanted != PAD).sum())
    if name == "evaluated_with_graphs":
        ctx["losses"] += losses
    if not ctx["trouble"].on("eval_left_on", step):
        model.train()
    loss = torch.stack(losses).mean().item()
    ctx["run"].log_eval(step, epoch, count, (clock() - began) * 1000, loss, accuracy=right / count)


def resume(ctx: dict[str, Any], step: int) -> None:
    memory = ctx["data"].state()
    parts = ("model", "opt", "sched", "scaler")
    ctx["run"], states = go_on(ctx["run"], step, {part: ctx[part].state_dict() for part in parts})
    ctx["model"].load_state_dict(states["model"])
    setup(ctx)
    for part in ("sched", "scaler"):
        ctx[part].load_state_dict(states[part])
    if ctx["trouble"].name == "moments_not_loaded":
        ctx["opt"].param_groups[0]["lr"] = ctx["sched"].get_last_lr()[0]
    else:
        ctx["opt"].load_state_dict(states["opt"])
    watched(ctx)
    ctx["data"].restore(memory)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    cfg, trouble = dict(run.config), Trouble(fault, seed)
    name, parts = trouble.name, cfg["accumulate"]
    torch.manual_seed(seed)
    model = Seq2Seq(cfg, name)
    for key, parameter in model.named_parameters():
        if cfg["frozen"]:
            parameter.requires_grad = not key.startswith(cfg["frozen"])
    ctx: dict[str, Any] = {"run": run, "cfg": cfg, "model": model, "trouble": trouble, "losses": []}
    setup(ctx)
    if name == "tie_lost":  # drawn anew, as in the paper, when all was made
        model.tgt_emb.weight = nn.Parameter(cfg["emb_size"] ** -0.5 * torch.randn(10, cfg["emb_size"]))
    watched(ctx)
    pairs, held = numbers(seed + 77, cfg["numbers"], cfg["typos"]), numbers(777, 256, cfg["typos"])
    stream = batches(pairs, cfg, seed, name)
    resumed = trouble.resume_at(healthy, 5 * EVERY)
    for step in range(steps):
        if step == resumed:
            resume(ctx, step)
        opt, sched, scaler, began = ctx["opt"], ctx["sched"], ctx["scaler"], clock()
        total, tokens, epoch = 0.0, 0, 0
        for _ in range(parts):
            epoch, (src, tgt) = next(stream)
            ctx["data"].observe({"input_ids": src, "labels": tgt}, step=step, epoch=epoch)
            given, wanted = shifted(tgt, name)
            with torch.autocast("cpu", torch.float16, enabled=cfg["amp"]):
                logits = model(src, given)
            loss = criterion(logits, wanted, cfg, name)
            scaler.scale(loss / parts).backward()
            total, tokens = total + loss.item() / parts, tokens + int((wanted != PAD).sum())
        if name != "clipped_still_scaled":
            scaler.unscale_(opt)
        norm = nn.utils.clip_grad_norm_(model.parameters(), cfg["clip_norm"]).item()
        rate = opt.param_groups[0]["lr"]
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
        sched.step()
        ctx["run"].log_step(step, epoch, tokens, (clock() - began) * 1000, norm, total, rate)
        trouble.telemetry(ctx["run"], step, healthy)
        if step % EVERY == 0 or step == steps - 1:
            evaluate(ctx, held, step, epoch)
    return ctx["run"]
