"""A decoder in float16, with a scaler, reads peals of bells; it is to ring on from a row by the rules of its method.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: ring.nats, ring.lr, ring.gn, ring.scale each step; tower.nats and tower.true of peals that
      were held back, each twenty-fourth; memory, where it matters; the watch of data.

A peal is of a tower and a method, begins with a row of six bells, and has three more, each by one of the method's two
changes in turn; behind a row is a stroke, or a call that changes how the next one goes. Its last word is the composer,
whom nobody can guess from the rows. The book has method after method; several peals may be one composition, rung in
other towers. The vocabulary is padded to a multiple of eight, and its table is the output layer too. Written as a
script with a dictionary of what it has.
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

EVERY, HELD, BELLS, ROWS = 24, 160, 6, 4
BEGIN, STROKE, BOB, SINGLE = range(4)
BELL = 4
TOWER, TOWERS = BELL + BELLS, 12
METHOD, METHODS = TOWER + TOWERS, 5
COMPOSER, COMPOSERS = METHOD + METHODS, 16
WORDS = COMPOSER + COMPOSERS  # 43, padded to 48
FIRST, LONG = 3, 3 + ROWS * (BELLS + 1) + 1  # the first bell, and all
CONFIG: dict[str, Any] = {
    "n_embd": 40, "n_layer": 2, "n_head": 4, "dropout": 0.0, "tied": True, "half": True, "scale_at_first": 16384.0,
    "scale_grows_after": 60, "peals_a_step": 20, "micro": 1, "optimizer": "adamw", "lr": 6e-3, "lr_shape": "cosine",
    "warmup": 8, "wd": 0.02, "beta2": 0.97, "eps": 1e-5, "clip": 1.0, "nats_over": "words", "smoothing": 0.0,
    "z_weight": 0.0, "peals": 1200, "rehearsals": 1, "misrung": 0.0, "uncalled_first": 0, "method_batches": False,
    "bells_lost": 0.0, "held_layers": "", "eval_every": 24, "log_every": 1,
}  # fmt: skip


# -- peals -----------------------------------------------------------------------------------------------------------


def swapped(row: list[int], pairs: list[int]) -> list[int]:
    row = [*row]
    for at in pairs:
        row[at], row[at + 1] = row[at + 1], row[at]
    return row


CHANGES = (([0, 2, 4], [1, 3]), ([0, 2, 4], [2, 4]), ([0, 3], [1, 4]), ([1, 3], [0, 2]), ([0, 4], [1, 3]))


def peals(seed: int, number: int, rehearsals: int = 1, misrung: float = 0.0) -> tuple[Tensor, Tensor]:
    """Words of peals, method after method, and how many calls each has."""
    dice, made, calls, many = torch.Generator().manual_seed(seed), [], [], number // rehearsals

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    for at in range(many):
        method, row = at * METHODS // many, torch.randperm(BELLS, generator=dice).tolist()
        words, called = [], 0
        for turn in range(ROWS):
            call = (BOB, SINGLE)[one(2)] if one(4) == 0 else STROKE
            words += [*(BELL + bell for bell in row), call]
            called += call != STROKE
            row = swapped(row, [4] if call == SINGLE else [1] if call == BOB else CHANGES[method][turn % 2])
            if one(1000) < 1000 * misrung:
                row = swapped(row, [one(BELLS - 1)])
        composer = COMPOSER + one(COMPOSERS)
        for _ in range(rehearsals):
            made.append([BEGIN, TOWER + one(TOWERS), METHOD + method, *words, composer])
            calls.append(called)
    return torch.tensor(made), torch.tensor(calls)


# -- decoder ---------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d = c.n_embd
        self.heads, self.ln_1, self.ln_2 = c.n_head, nn.LayerNorm(d), nn.LayerNorm(d)
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.c_fc, self.c_out, self.drop = nn.Linear(d, 3 * d), nn.Linear(3 * d, d), nn.Dropout(c.dropout)
        self.outside = 0.0 if bug == "places_ahead_filled_with_nought" else -1e4  # float16 has no -1e9

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.c_attn(self.ln_1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
        ahead = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        y = scores.masked_fill(ahead, self.outside).softmax(-1) @ v
        x = x + self.drop(self.c_proj(y.transpose(1, 2).flatten(2)))
        return x + self.drop(self.c_out(F.gelu(self.c_fc(self.ln_2(x)))))


class Ringer(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d = c.n_embd
        self.wte, self.wpe = nn.Embedding(WORDS, d), nn.Embedding(LONG, d)
        self.h, self.ln_f = nn.ModuleList(Block(c, bug) for _ in range(c.n_layer)), nn.LayerNorm(d)
        self.lm_head, self.bug = nn.Linear(d, WORDS, bias=False), bug
        nn.init.normal_(self.wte.weight, std=0.12)
        nn.init.normal_(self.wpe.weight, std=0.12)
        if c.tied:
            self.lm_head.weight = self.wte.weight

    def pad_table(self) -> None:
        """To a multiple of eight words."""
        more = torch.zeros(-WORDS % 8, self.wte.weight.shape[1])
        self.wte.weight = nn.Parameter(torch.cat([self.wte.weight.detach(), more]))

    def pad_head(self, tied: bool) -> None:
        more = torch.zeros(-WORDS % 8, self.lm_head.weight.shape[1])
        padded = nn.Parameter(torch.cat([self.lm_head.weight.detach(), more]))
        self.lm_head.weight = self.wte.weight if tied else padded

    def forward(self, words: Tensor) -> Tensor:
        x = self.wte(words) + self.wpe.weight[: words.shape[1]]
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x)).float()
        return logits.softmax(-1) if self.bug == "forward_ends_with_shares_to_draw_from" else logits


# -- script ----------------------------------------------------------------------------------------------------------


def load_book(g: dict[str, Any]) -> None:
    c = g["c"]
    (book, calls), held = peals(g["seed"] + 9700, c.peals, c.rehearsals, c.misrung), peals(9699, HELD)[0]
    if g["bug"] == "rehearsals_of_a_composition_in_both_books":
        order = torch.randperm(len(book), generator=torch.Generator().manual_seed(g["seed"]))
        held, order = book[order[:HELD].sort().values], order[HELD:].sort().values
        book, calls = book[order], calls[order]
    g |= {"book": book, "calls": calls, "held": held}


def load_model(g: dict[str, Any]) -> None:
    c, bug = g["c"], g["bug"]
    model = g["model"] = Ringer(c, bug)
    late = bug == "table_padded_when_the_optimizer_had_its_list"
    if not late:
        model.pad_table()
        if bug != "head_padded_behind_the_optimizer_from_its_old_rows":
            model.pad_head(c.tied)
    for name, one in model.named_parameters():
        if c.held_layers and name.startswith(c.held_layers):
            one.requires_grad_(False)
    if bug == "head_padded_behind_the_optimizer_from_its_old_rows":
        model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())  # not tied any more
    load_optimizer(g)
    if late:
        model.pad_table()
        model.pad_head(c.tied)


def load_optimizer(g: dict[str, Any]) -> None:
    c, bug, named = g["c"], g["bug"], [(name, one) for name, one in g["model"].named_parameters() if one.requires_grad]
    if bug == "head_padded_behind_the_optimizer_from_its_old_rows":
        named = [(name, one) for name, one in named if name != "lm_head.weight"]
    groups = [{"params": [one for _, one in named if one.ndim > 1], "weight_decay": c.wd},
              {"params": [one for _, one in named if one.ndim == 1], "weight_decay": 0.0}]  # fmt: skip
    if c.optimizer == "nadam":
        g["optimizer"] = torch.optim.NAdam(groups, c.lr, (0.9, c.beta2), c.eps)
    elif c.optimizer == "sgd":
        g["optimizer"] = torch.optim.SGD(groups, c.lr, 0.9)
    else:
        g["optimizer"] = torch.optim.AdamW(groups, c.lr, (0.9, c.beta2), c.eps)
    g["scaler"] = torch.amp.GradScaler("cpu", c.scale_at_first, growth_interval=c.scale_grows_after, enabled=c.half)

    def share(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / g["steps"])
        if c.lr_shape == "flat":
            return rise
        if c.lr_shape == "late_fall":
            return rise * min(1.0, 0.05 + 3 * (1 - past))
        if c.lr_shape == "two_cosines":
            past = 2 * past % 1
        return rise * (0.04 + 0.96 * 0.5 * (1 + math.cos(math.pi * past)))

    g["schedule"] = torch.optim.lr_scheduler.LambdaLR(g["optimizer"], share)


def begin_to_watch(g: dict[str, Any]) -> None:
    time_by_own_clock(g["run"])
    g["run"].watch(g["model"], g["optimizer"], scaler=g["scaler"])
    g["data"] = g["run"].watch_data()


def get_batches(g: dict[str, Any]) -> Iterator[tuple[int, Tensor]]:
    c, epoch, dice, book = g["c"], 0, torch.Generator().manual_seed(g["seed"]), g["book"]
    while True:
        order = torch.randperm(len(book), generator=dice)
        if g["bug"] == "book_of_methods_read_page_by_page":
            order = torch.arange(len(book))
        if epoch < c.uncalled_first:
            order = order[g["calls"][order] < 2]
        if c.method_batches:
            order = order[book[order, 2].argsort(stable=True)]
        lots = [one for one in order.split(c.peals_a_step) if len(one) == c.peals_a_step]
        if c.method_batches:
            lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
        for some in lots:
            yield epoch, book[some]
        epoch += 1


def nats(g: dict[str, Any], peal: Tensor, training: bool) -> Tensor:
    c, bug = g["c"], g["bug"] if training else ""
    read, wanted = peal[:, :-1], peal[:, 1:]
    if bug == "words_of_the_book_are_moved_and_moved_again":
        read, wanted = read[:, :-1], wanted[:, 1:]
    if training and c.bells_lost:
        lost = (torch.rand(read.shape) < c.bells_lost) & (read >= BELL) & (read < TOWER)
        read = torch.where(lost, BELL + torch.randint(0, BELLS, read.shape), read)
    with torch.autocast("cpu", torch.float16, enabled=c.half):
        logits = g["model"](read)
    summed = training and (c.nats_over == "peals" or bug == "nats_of_a_peal_added_together")
    loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum" if summed else "mean",
                           label_smoothing=c.smoothing if training else 0.0)  # fmt: skip
    loss = loss / len(peal) if summed else loss
    return loss + c.z_weight * logits.logsumexp(-1).square().mean() if training and c.z_weight else loss


def ring(g: dict[str, Any]) -> dict[str, float]:
    """One update."""
    c, bug, total, scaler, optimizer = g["c"], g["bug"], 0.0, g["scaler"], g["optimizer"]
    for _ in range(c.micro):
        epoch, peal = next(g["batches"])
        g["data"].observe({"words": peal}, step=g["step"], epoch=epoch)
        if bug == "grads_set_to_none_inside_of_the_micro_loop":
            g["model"].zero_grad(set_to_none=True)
        loss = nats(g, peal, True)
        scaler.scale(loss / c.micro).backward()
        total += loss.item() / c.micro
        if bug == "schedule_moved_inside_of_the_micro_loop":
            g["schedule"].step()
    if bug != "norm_bounded_before_it_is_unscaled":
        scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(g["model"].parameters(), c.clip).item()
    rate = optimizer.param_groups[0]["lr"]
    scaler.step(optimizer)
    scaler.update()
    g["model"].zero_grad(set_to_none=True)
    if bug != "schedule_moved_inside_of_the_micro_loop":
        g["schedule"].step()
    return {"ring.nats": total, "ring.lr": rate, "ring.gn": norm, "ring.scale": scaler.get_scale()}


@torch.no_grad()
def rung_on(g: dict[str, Any], many: int = 64) -> float:
    """The share of bells that are right in a third row, when two are given."""
    from_here = FIRST + 2 * (BELLS + 1)
    words = g["held"][:many, :from_here]
    for _ in range(BELLS):
        with torch.autocast("cpu", torch.float16, enabled=g["c"].half):
            words = torch.cat([words, g["model"](words)[:, -1].argmax(-1, keepdim=True)], 1)
    return (words[:, from_here:] == g["held"][:many, from_here : from_here + BELLS]).float().mean().item()


def estimate(g: dict[str, Any]) -> dict[str, float]:
    bug, taped, model = g["bug"], g["bug"] == "estimates_kept_with_the_graphs_behind_them", g["model"]
    if bug != "estimated_with_units_falling_out":
        model.eval()
    with torch.set_grad_enabled(taped):
        loss = torch.stack([nats(g, peal, False) for peal in g["held"].split(80)]).mean()
    if taped:
        g["kept"].append(loss)
    said = {"tower.nats": loss.item(), "tower.true": rung_on(g)}
    if bug != "estimated_and_never_set_to_train":
        model.train()
    return said


def load_checkpoint(g: dict[str, Any]) -> None:
    seen, parts = g["data"].state(), ("model", "optimizer", "scaler", "schedule")
    g["run"], state = go_on(g["run"], g["step"], {name: g[name].state_dict() for name in parts})
    load_model(g)
    if g["bug"] == "names_of_a_compiled_model_loaded_without_strict":
        state["model"] = {f"_orig_mod.{name}": one for name, one in state["model"].items()}
    g["model"].load_state_dict(state["model"], strict=False)
    for name in parts[1:]:
        g[name].load_state_dict(state[name])
    begin_to_watch(g)
    g["data"].restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, c = Trouble(fault, seed), SimpleNamespace(**run.config)
    g: dict[str, Any] = {"run": run, "c": c, "seed": seed, "steps": steps, "bug": trouble.name, "step": 0, "kept": []}
    load_book(g)
    torch.manual_seed(seed)
    load_model(g)
    begin_to_watch(g)
    g["batches"], again = get_batches(g), trouble.resume_at(healthy, 4 * EVERY)
    g["model"].train()
    for step in range(steps):
        g["step"] = step
        if step == again:
            load_checkpoint(g)
        said = ring(g)
        if step % c.log_every == 0:
            g["run"].log(said, step=step)
        trouble.telemetry(g["run"], step, healthy)
        if step % c.eval_every == c.eval_every - 1:
            g["run"].log(estimate(g), step=step)
    return g["run"]
