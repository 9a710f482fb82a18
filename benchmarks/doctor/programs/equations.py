"""A decoder under float16 with a scaler reads equations that are solved line by line, several to a row.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: xent, xent_lr, xent_norm, xent_scale each step; xent_unseen and solved_unseen of rows that
      were kept back, each thirtieth; memory, where it matters; the watch of data.

A document gives an equation (one of four forms), the lines between, and the number that x is. Documents are packed into
rows one after another; a word sees its own document alone, whose places begin at 0. Norms, attention and network are
side by side in a block, and one matrix reads and writes words. Written as pure functions that take a state and give
one back, with a recipe in a table.
"""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, WIDE, HELD = 30, 32, 240
SIGNS = ("x", "+", "-", "*", "=", ";", "(", ")", ".")
WORDS = ("<pad>", *(str(one) for one in range(10)), *SIGNS)
CONFIG: dict[str, Any] = {
    "half": True, "scale_start": 1024.0, "scale_growth_interval": 60, "d_embed": 32, "n_blocks": 2, "n_heads": 4,
    "dropout": 0.0, "tied": True, "rows": 12, "micro_steps": 1, "recipe": "adamw", "peak": 8e-3, "course": "cosine",
    "rise_steps": 10, "decay": 0.01, "clip": 1.0, "reduce": "mean", "smooth": 0.0, "z_term": 0.0, "documents": 2400,
    "slips": 0.0, "easy_epochs": 0, "similar_lengths": False, "still": "", "unseen_every": 30, "metrics_every": 1,
}  # fmt: skip


# -- documents ------------------------------------------------------------------------------------------------------


def solved(seed: int, number: int, slips: float = 0.0) -> list[str]:
    """Equations with their lines, form after form."""
    dice, found = torch.Generator().manual_seed(seed), []

    def one(low: int, high: int) -> int:
        return low + int(torch.randint(0, high - low, (), generator=dice))

    for at in range(number):
        form, x, a, b = at * 4 // number, one(0, 10), one(2, 4), one(1, 6)
        if form == 0:
            told = f"x+{b}={x + b};x={x + b}-{b};x={x}."
        elif form == 1:
            told = f"{a}*x={a * x};x={x}."
        elif form == 2:
            told = f"{a}*x+{b}={a * x + b};{a}*x={a * x};x={x}."
        else:
            told = f"{a}*(x+{b})={a * (x + b)};x+{b}={x + b};x={x}."
        if slips:
            told = "".join(str(one(0, 10)) if word.isdigit() and float(torch.rand((), generator=dice)) < slips else word
                           for word in told)  # fmt: skip
        found.append(told)
    return found


def vocabulary(documents: list[str], bug: str = "") -> dict[str, int]:
    """Numbers of words: as the table has them, or as a file has them one after another."""
    if bug != "words_of_unseen_numbered_as_they_come":
        return {word: at for at, word in enumerate(WORDS)}
    return {word: at for at, word in enumerate(dict.fromkeys(("<pad>", *"".join(documents), *WORDS)))}


def packed(documents: list[str], words: dict[str, int]) -> dict[str, Tensor]:
    """Rows of whole documents: words, their documents, and their places in these."""
    rows: list[list[tuple[int, int, int]]] = [[]]
    for number, told in enumerate(documents):
        if len(rows[-1]) + len(told) > WIDE + 1:
            rows.append([])
        rows[-1] += [(words[word], number + 1, place) for place, word in enumerate(told)]
    made = torch.zeros(3, len(rows), WIDE + 1, dtype=torch.long)
    for at, row in enumerate(rows):
        made[:, at, : len(row)] = torch.tensor(row).T
    return {"words": made[0], "document": made[1], "place": made[2]}


# -- model ----------------------------------------------------------------------------------------------------------


class Beside(nn.Module):
    """Attention and a network, both of the same norm."""

    def __init__(self, d: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.norm, self.drop = heads, nn.LayerNorm(d), nn.Dropout(dropout)
        self.into, self.back, self.out = nn.Linear(d, 3 * d + 3 * d), nn.Linear(d, d), nn.Linear(3 * d, d)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        d = x.shape[-1]
        qkv, wide = self.into(self.norm(x)).split(3 * d, -1)
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None])
        return x + self.drop(self.back(y.transpose(1, 2).flatten(2))) + self.drop(self.out(F.gelu(wide)))


class Solver(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d = c.d_embed
        self.bug, self.embed, self.where = bug, nn.Embedding(len(WORDS), d), nn.Embedding(WIDE + 1, d)
        self.blocks = nn.ModuleList(Beside(d, c.n_heads, c.dropout) for _ in range(c.n_blocks))
        self.norm, self.unembed = nn.LayerNorm(d), nn.Linear(d, len(WORDS), bias=False)
        if c.tied:
            self.unembed.weight = self.embed.weight
        self.begin()

    def begin(self) -> None:
        for one in (self.embed, self.where):
            nn.init.normal_(one.weight, std=0.1)
        if self.bug == "unembedding_begun_as_a_matrix_of_its_own":
            self.unembed.weight = nn.Parameter(0.1 * torch.randn_like(self.unembed.weight))

    def forward(self, words: Tensor, document: Tensor, place: Tensor) -> Tensor:
        x = self.embed(words) + self.where(place)
        seen = (document[:, :, None] == document[:, None]) & torch.ones(words.shape[1], words.shape[1]).tril().bool()
        for block in self.blocks:
            x = block(x, seen)
        out = self.unembed(self.norm(x)).float()
        return out.softmax(-1) if self.bug == "apply_gives_what_is_likely" else out


# -- functions ------------------------------------------------------------------------------------------------------

State = dict[str, Any]


def init_state(c: Any, seed: int, steps: int, bug: str) -> State:
    torch.manual_seed(seed)
    model = Solver(c, bug)
    for name in filter(None, c.still.split(",")):
        model.get_submodule(name).requires_grad_(False)
    state = {"c": c, "bug": bug, "steps": steps, "model": model, "kept": []}
    state |= init_optimizer(state)
    if bug == "blocks_begun_anew_behind_the_optimizer":  # smaller ones, as for a deeper net
        model.blocks = copy.deepcopy(model.blocks)
        for one in model.blocks.parameters():
            one.data.mul_(0.8)
    return state


def init_optimizer(state: State) -> State:
    c, some = state["c"], [one for one in state["model"].parameters() if one.requires_grad]
    recipes = {
        "adamw": lambda: torch.optim.AdamW(some, c.peak, (0.9, 0.97), weight_decay=c.decay),
        "radam": lambda: torch.optim.RAdam(some, c.peak),
        "sgd": lambda: torch.optim.SGD(some, c.peak, 0.9, nesterov=True),
    }
    scaler = torch.amp.GradScaler("cpu", c.scale_start, growth_interval=c.scale_growth_interval, enabled=c.half)
    return {"optimizer": recipes[c.recipe](), "scaler": scaler, "count": 0}


def peak_at(c: Any, count: int, steps: int) -> float:
    rise, past = min(1.0, (count + 1) / max(1, c.rise_steps)), min(1.0, count / steps)
    courses = {
        "cosine": lambda: 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * past)),
        "level": lambda: 1.0,
        "two_waves": lambda: 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))),
        "straight": lambda: 1 - 0.98 * past,
    }
    return c.peak * rise * courses[c.course]()


def rows_of(documents: list[str], c: Any, seed: int, bug: str) -> Any:
    """Batches of packed rows, without an end."""
    epoch, dice, words = 0, torch.Generator().manual_seed(seed), vocabulary(documents)
    while True:
        order = torch.randperm(len(documents), generator=dice).tolist()
        if bug == "documents_packed_as_they_lie":
            order = list(range(len(documents)))
        if epoch < c.easy_epochs:
            order = [at for at in order if len(documents[at]) < 15]
        if c.similar_lengths:
            order.sort(key=lambda at: len(documents[at]))
        made = packed([documents[at] for at in order], words)
        many = len(made["words"])
        turn = torch.randperm(many, generator=dice) if c.similar_lengths else torch.arange(many)
        for some in turn.split(c.rows):
            if len(some) == c.rows:
                yield epoch, {name: one[some] for name, one in made.items()}
        epoch += 1


def apply(state: State, rows: dict[str, Tensor], training: bool) -> tuple[Tensor, Tensor]:
    """Logits, and the words that are asked for: -100 behind a document's end."""
    c, bug = state["c"], state["bug"]
    words, document, place = rows["words"], rows["document"], rows["place"]
    asked = torch.where((document[:, 1:] == document[:, :-1]) & (document[:, 1:] > 0), words[:, 1:], -100)
    if training and bug == "asked_words_moved_again":
        asked = F.pad(asked[:, 1:], (0, 1), value=-100)
    if training and bug == "places_run_on_in_rows_of_the_training":
        place = torch.arange(WIDE + 1).expand_as(place)
    with torch.autocast("cpu", torch.float16, enabled=c.half):
        out = state["model"](words[:, :-1], document[:, :-1], place[:, :-1])
    return out, asked


def loss_of(state: State, out: Tensor, asked: Tensor) -> Tensor:
    c = state["c"]
    flat, told = out.flatten(0, 1), asked.flatten()
    if c.reduce == "sum" or state["bug"] == "words_of_a_row_added":
        loss = F.cross_entropy(flat, told, reduction="sum", label_smoothing=c.smooth) / len(out)
    else:
        loss = F.cross_entropy(flat, told, label_smoothing=c.smooth)
    return loss + c.z_term * out.logsumexp(-1).square().mean() if c.z_term else loss


def train_step(state: State, batches: Any, watch: Any, step: int) -> tuple[State, dict[str, float]]:
    c, bug, total = state["c"], state["bug"], 0.0
    model, optimizer, scaler = state["model"], state["optimizer"], state["scaler"]
    for _ in range(c.micro_steps):
        peak = peak_at(c, state["count"], state["steps"])
        epoch, rows = next(batches)
        watch.observe(rows, step=step, epoch=epoch)
        loss = loss_of(state, *apply(state, rows, True))
        scaler.scale(loss if bug == "micro_steps_summed_up" else loss / c.micro_steps).backward()
        total += loss.item() / c.micro_steps
        state["count"] += bug == "count_goes_on_in_micro_steps"
    if bug != "norm_taken_of_scaled_gradients":
        scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), c.clip).item()
    for group in optimizer.param_groups:
        group["lr"] = peak
    scaler.step(optimizer)
    if bug != "scale_is_never_brought_up_to_date":
        scaler.update()
    else:
        scaler._per_optimizer_states.clear()  # what an update would have done besides
    model.zero_grad()
    optimizer.zero_grad()
    state["count"] += bug != "count_goes_on_in_micro_steps"
    return state, {"xent": total, "xent_lr": peak, "xent_norm": norm, "xent_scale": scaler.get_scale()}


def unseen_step(state: State, rows: dict[str, Tensor]) -> dict[str, float]:
    model, bug, taped = state["model"], state["bug"], state["bug"] == "unseen_logits_collected_on_the_tape"
    if bug != "unseen_rows_lose_words_to_dropout":
        model.eval()
    with torch.set_grad_enabled(taped):
        out, asked = apply(state, rows, False)
        loss = F.cross_entropy(out.flatten(0, 1), asked.flatten())
    if taped:
        state["kept"].append((loss, out))
    last = (rows["words"][:, :-1] == WORDS.index("=")) & (rows["words"].roll(-2, 1)[:, :-1] == WORDS.index("."))
    last &= asked >= 0
    right = float((out.argmax(-1) == asked)[last].sum() / last.sum().clamp(min=1))
    if bug != "train_is_not_called_behind_unseen":
        model.train()
    return {"xent_unseen": loss.item(), "solved_unseen": right}


def restore(state: State, saved: State) -> State:
    """The state as a file has it."""
    state["model"].load_state_dict(saved["model"])
    state |= init_optimizer(state)
    if state["bug"] != "params_are_all_that_is_restored":
        state["optimizer"].load_state_dict(saved["optimizer"])
        state["scaler"].load_state_dict(saved["scaler"])
        state["count"] = saved["count"]
    return state


def observed(run: Any, state: State) -> Any:
    time_by_own_clock(run)
    run.watch(state["model"], state["optimizer"], scaler=state["scaler"])
    return run.watch_data(pad_id=0)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, c = Trouble(fault, seed), SimpleNamespace(**run.config)
    bug, documents, unseen = trouble.name, solved(seed + 9400, c.documents, c.slips), solved(9399, HELD)
    rows, batches = packed(unseen, vocabulary(unseen, bug)), rows_of(documents, c, seed, bug)
    state = init_state(c, seed, steps, bug)
    again, watch = trouble.resume_at(healthy, 2 * EVERY), observed(run, state)
    state["model"].train()
    for step in range(steps):
        if step == again:
            seen = watch.state()
            saved = {name: state[name].state_dict() for name in ("model", "optimizer", "scaler")}
            run, saved = go_on(run, step, saved | {"count": state["count"]})
            state = restore(state, saved)
            watch = observed(run, state)
            watch.restore(seen)
        state, said = train_step(state, batches, watch, step)
        if step % c.metrics_every == 0:
            run.log(said, step=step)
        trouble.telemetry(run, step, healthy)
        if step % c.unseen_every == c.unseen_every - 1:
            run.log(unseen_step(state, rows), step=step)
    return run
