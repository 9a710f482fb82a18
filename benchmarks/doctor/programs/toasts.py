"""A small decoder that knows toasts learns which are liked, without a reference: SimPO over pairs.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: simpo/loss, simpo/accuracy, simpo/margin, simpo/logp_liked, simpo/lr, simpo/grad_norm each
      step; dev/simpo_loss, dev/accuracy, dev/margin at each twentieth; the watch of data.

The base has read toasts of all occasions, fitting or not. A reward is the mean log-probability of an answer's tokens
times beta, and a liked answer's should be larger by gamma. Liked and disliked of a pair go through the model one behind
the other. Grouped queries, slopes for distances, gated layers, one matrix for input and output; a function for each
part and a dictionary of what is trained.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

from .parts import fit, once

EVERY, PAD, START, SAYS, STOP = 20, 0, 1, 2, 3
GUESTS, OCCASIONS, OF_OCCASION, COMMON = 6, 4, 7, 9
GUEST, OCCASION = 4, 4 + GUESTS
WORD = OCCASION + OCCASIONS
ANY = WORD + OCCASIONS * OF_OCCASION
VOCAB, NOT_ASKED = ANY + COMMON, -100
CONFIG: dict[str, Any] = {
    "hidden": 40, "q_heads": 4, "kv_heads": 2, "depth": 2, "drop": 0.0, "simpo_beta": 4.0, "gamma_ratio": 0.4,
    "objective": "simpo", "pairs_per_step": 12, "split_into": 1, "peak": 1e-3, "floor_share": 0.0, "warm": 12,
    "curve": "cosine", "solver": "adamw", "decay": 0.0, "max_norm": 1.0, "train_pairs": 640, "judges_err": 0.05,
    "shared_matrix": True, "untrained": "", "like_lengths": False, "liked_nll": 0.0, "smooth": 0.0,
    "more_words": 0, "length_normalised": True, "long_liked": 0,
}  # fmt: skip
Pair = tuple[list[int], list[int], list[int]]


def toast(occasion: int, dice: torch.Generator, strange: float, longest: int = 11) -> list[int]:
    """Words of an occasion, and words of any. strange: how many are of another occasion."""
    made = []
    for kind, pick, other in torch.rand(int(torch.randint(3, longest, (), generator=dice)), 3, generator=dice).tolist():
        of = (occasion + 1 + int(other * (OCCASIONS - 1))) % OCCASIONS if other < strange else occasion
        made.append(ANY + int(pick * COMMON) if kind < 0.35 else WORD + of * OF_OCCASION + int(pick * OF_OCCASION))
    return [*made, STOP]


def pairs(seed: int, number: int, err: float = 0.0, long_liked: int = 0) -> list[Pair]:
    """What was asked, the toast that was liked, and the one that was not; some judges err."""
    dice, rows = torch.Generator().manual_seed(seed), []
    for _ in range(number):
        guest, occasion = (int(torch.randint(0, many, (), generator=dice)) for many in (GUESTS, OCCASIONS))
        asked = [START, GUEST + guest, OCCASION + occasion, SAYS]
        liked, other = toast(occasion, dice, 0.08, 11 + long_liked), toast(occasion, dice, 0.45)
        rows.append((asked, other, liked) if torch.rand((), generator=dice) < err else (asked, liked, other))
    return rows


class Layer(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        d, self.q_heads, self.kv_heads = c["hidden"], c["q_heads"], c["kv_heads"]
        wide = d // self.q_heads
        self.norm_1, self.norm_2, self.dropout = nn.RMSNorm(d), nn.RMSNorm(d), nn.Dropout(c["drop"])
        self.q, self.kv = nn.Linear(d, d, bias=False), nn.Linear(d, 2 * self.kv_heads * wide, bias=False)
        self.o, self.w1 = nn.Linear(d, d, bias=False), nn.Linear(d, 4 * d, bias=False)
        self.w2 = nn.Linear(2 * d, d, bias=False)

    def forward(self, x: Tensor, slopes: Tensor) -> Tensor:
        y = self.norm_1(x)
        q = self.q(y).unflatten(-1, (self.q_heads, -1)).transpose(1, 2)
        k, v = self.kv(y).unflatten(-1, (2, self.kv_heads, -1)).permute(2, 0, 3, 1, 4)
        k, v = (one.repeat_interleave(self.q_heads // self.kv_heads, 1) for one in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=slopes)
        x = x + self.dropout(self.o(y.transpose(1, 2).flatten(2)))
        gate, up = self.w1(self.norm_2(x)).chunk(2, -1)
        return x + self.dropout(self.w2(F.silu(gate) * up))


class ToastLM(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        self.heads = c["q_heads"]
        self.emb, self.layers = nn.Embedding(VOCAB, c["hidden"]), nn.ModuleList(Layer(c) for _ in range(c["depth"]))
        self.final, self.unemb = nn.RMSNorm(c["hidden"]), nn.Linear(c["hidden"], VOCAB, bias=False)
        nn.init.normal_(self.emb.weight, std=0.1)
        nn.init.normal_(self.unemb.weight, std=0.1)
        if c["shared_matrix"]:
            self.unemb.weight = self.emb.weight

    def forward(self, ids: Tensor) -> Tensor:
        long = ids.shape[1]
        far = torch.arange(long)[:, None] - torch.arange(long)
        slopes = -far.clamp(min=0) * 2.0 ** -torch.arange(1, self.heads + 1)[:, None, None]
        slopes, x = slopes.masked_fill(far < 0, -torch.inf), self.emb(ids)
        for layer in self.layers:
            x = layer(x, slopes)
        return self.unemb(self.final(x))

    def widen(self, more: int, with_output: bool = True) -> None:
        """Room for words to come."""
        wider = nn.Embedding(len(self.emb.weight) + more, self.emb.embedding_dim)
        nn.init.normal_(wider.weight, std=0.1)
        wider.weight.data[: len(self.emb.weight)] = self.emb.weight.data
        self.emb = wider
        if with_output:
            self.unemb.weight = wider.weight


def padded(rows: list[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor]:
    """Tokens, and which are asked for: those of the answers."""
    pad = nn.utils.rnn.pad_sequence
    ids = pad([torch.tensor(asked + said) for asked, said in rows], True, PAD)
    return ids, pad([torch.tensor([NOT_ASKED] * len(asked) + said) for asked, said in rows], True, NOT_ASKED)


@once("hidden", "q_heads", "kv_heads", "depth", "shared_matrix")
def pretrained(c: dict[str, Any]) -> ToastLM:
    """A model that has read toasts, of which half fit."""
    torch.manual_seed(171)
    model, dice = ToastLM({**c, "drop": 0.0}), torch.Generator().manual_seed(172)
    read = [row for asked, liked, other in pairs(173, 700) for row in ((asked, liked), (asked, other))]

    def loss_of() -> Tensor:
        ids, labels = padded([read[at] for at in torch.randint(0, len(read), (32,), generator=dice).tolist()])
        return F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=NOT_ASKED)

    fit(torch.optim.Adam(model.parameters(), 3e-3), 200, loss_of)
    return model


def reward(c: dict[str, Any], model: nn.Module, ids: Tensor, labels: Tensor, bug: str) -> Tensor:
    """Of each row, the mean log-probability of its answer's tokens."""
    logits, wanted = model(ids)[:, :-1], labels[:, 1:]
    if bug == "logps_gathered_at_input":
        wanted = labels[:, :-1]
    asked = wanted != NOT_ASKED
    each = logits.log_softmax(-1).gather(-1, wanted.clamp(min=0)[..., None])[..., 0] * asked
    if not c["length_normalised"]:
        return each.sum(1) / 7
    return each.sum(1) if bug == "lengths_left_out" else each.sum(1) / asked.sum(1)


def preference_loss(c: dict[str, Any], model: nn.Module, rows: list[Pair], bug: str = "", trained: bool = True) -> Any:
    """The loss of pairs, with what is told of them."""
    liked, other = (
        reward(c, model, *padded([(row[0], row[which]) for row in rows]), bug) for which in (1, 2)
    )  # fmt: skip
    margin = c["simpo_beta"] * (liked - other)
    smooth = c["smooth"] if trained else 0.0
    if c["objective"] == "hinge":
        each = F.relu(c["simpo_beta"] * c["gamma_ratio"] - margin)
    elif c["objective"] == "ipo":
        each = (margin - 2.0).square() / 4
    else:
        past = margin - c["simpo_beta"] * c["gamma_ratio"]
        each = -(1 - smooth) * F.logsigmoid(past) - smooth * F.logsigmoid(-past)
    if trained and c["liked_nll"]:
        each = each - c["liked_nll"] * liked
    told = {"accuracy": (margin > 0).float().mean().item(), "margin": margin.mean().item()}
    loss = each.sum() if bug == "pairs_loss_not_averaged" else each.mean()
    return loss, told, liked.mean().item()


def optimizer_for(c: dict[str, Any], model: nn.Module) -> tuple[Any, Any]:
    some = [one for one in model.parameters() if one.requires_grad]
    if c["solver"] == "sgd":
        optimizer: Any = torch.optim.SGD(some, c["peak"], 0.9)
    elif c["solver"] == "rmsprop":
        optimizer = torch.optim.RMSprop(some, c["peak"])
    else:
        optimizer = torch.optim.AdamW(some, c["peak"], weight_decay=c["decay"])

    def share(at: int) -> float:
        if at < c["warm"]:
            return (at + 1) / c["warm"]
        past = min(1.0, (at - c["warm"]) / (c["steps"] - c["warm"]))
        curves = {"flat": 1.0, "line": 1 - past, "cosine": 0.5 * (1 + math.cos(math.pi * past))}
        return max(c["floor_share"], curves[c["curve"]])

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)


def stream(c: dict[str, Any], rows: list[Pair], seed: int, bug: str) -> Any:
    """Epochs with pairs, without end."""
    lot, size, epoch = torch.Generator().manual_seed(seed), int(c["pairs_per_step"]), 0
    if bug == "pairs_from_short_to_long":
        rows = sorted(rows, key=lambda row: len(row[1]) + len(row[2]))
    while True:
        order = torch.randperm(len(rows), generator=lot).tolist()
        if bug == "pairs_from_short_to_long":
            order = list(range(len(rows)))
        if c["like_lengths"]:
            order.sort(key=lambda at: len(rows[at][1]) + len(rows[at][2]))
        groups = [order[at : at + size] for at in range(0, len(order) - size + 1, size)]
        if c["like_lengths"]:
            groups = [groups[at] for at in torch.randperm(len(groups), generator=lot).tolist()]
        for some in groups:
            yield epoch, [rows[at] for at in some]
        epoch += 1


def watch(t: dict[str, Any]) -> None:
    time_by_own_clock(t["run"])
    t["run"].watch(t["model"], t["optimizer"])
    t["data"] = t["run"].watch_data(pad_id=PAD)


def step_of(c: dict[str, Any], t: dict[str, Any], batches: Any, step: int, bug: str) -> None:
    total, parts = 0.0, c["split_into"]
    if bug != "train_after_base_alone":
        t["model"].train()
    for _ in range(parts):
        epoch, rows = next(batches)
        ids, labels = padded([(row[0], row[1]) for row in rows])
        t["data"].observe({"input_ids": ids, "labels": labels}, step=step, epoch=epoch)
        loss, told, liked = preference_loss(c, t["model"], rows, bug)
        (loss if bug == "split_step_not_divided" else loss / parts).backward()
        total += loss.item() / (1 if bug == "split_step_not_divided" else parts)
        if bug == "curve_moved_with_each_part":
            t["scheduler"].step()
    norm = nn.utils.clip_grad_norm_(t["model"].parameters(), c["max_norm"]).item()
    rate = t["optimizer"].param_groups[0]["lr"]
    t["optimizer"].step()
    t["optimizer"].zero_grad()
    if bug != "curve_moved_with_each_part":
        t["scheduler"].step()
    t["run"].log({"simpo/loss": total, "simpo/accuracy": told["accuracy"], "simpo/margin": told["margin"],
                  "simpo/logp_liked": liked, "simpo/lr": rate, "simpo/grad_norm": norm}, step=step)  # fmt: skip


def judge(c: dict[str, Any], t: dict[str, Any], step: int, bug: str) -> None:
    if bug != "dev_judged_with_dropout":
        t["model"].eval()
    with torch.set_grad_enabled(bug == "dev_losses_under_grad"):
        loss, told, _ = preference_loss(c, t["model"], t["held"], trained=False)
    t["dev"].append(loss if bug == "dev_losses_under_grad" else loss.item())
    t["run"].log({"dev/simpo_loss": loss.item(), **{f"dev/{name}": one for name, one in told.items()}}, step=step)


def resume(c: dict[str, Any], t: dict[str, Any], step: int, bug: str) -> None:
    memory, names = t["data"].state(), ("model", "optimizer", "scheduler")
    t["run"], saved = go_on(t["run"], step, {one: t[one].state_dict() for one in names})
    t["optimizer"], t["scheduler"] = optimizer_for(c, t["model"])
    for name in names:
        if name != "optimizer" or bug != "adam_state_not_saved":
            t[name].load_state_dict(saved[name])
    t["optimizer"].param_groups[0]["lr"] = t["scheduler"].get_last_lr()[0]
    watch(t)
    t["data"].restore(memory)


def prepare(c: dict[str, Any], run: Any, seed: int, bug: str) -> dict[str, Any]:
    model = pretrained(c)
    torch.manual_seed(seed)
    for one in model.modules():
        if isinstance(one, nn.Dropout):
            one.p = c["drop"]
    if c["more_words"] and bug != "words_added_behind_optimizer":
        model.widen(c["more_words"])
    for name, one in model.named_parameters():
        if c["untrained"] and c["untrained"] in name:
            one.requires_grad = False
        if bug == "norms_alone_trainable":  # names of adapters, of which this model has none
            one.requires_grad = "norm" in name or "final" in name
    optimizer, scheduler = optimizer_for(c, model)
    if bug == "assigned_behind_optimizer":  # the base is loaded now, and its tensors take the parameters' place
        model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
    if bug == "words_added_behind_optimizer":
        model.widen(c["more_words"], with_output=False)
    if bug == "train_after_base_alone":  # the base was asked for some toasts, in evaluation mode
        model.eval()
    return {"run": run, "model": model, "optimizer": optimizer, "scheduler": scheduler, "dev": []}


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    c, trouble = dict(run.config), Trouble(fault, seed)
    bug, again = trouble.name, trouble.resume_at(healthy, 4 * EVERY)
    rows, held = pairs(seed + 4500, c["train_pairs"], c["judges_err"], c["long_liked"]), pairs(45, 200)
    if bug == "dev_pairs_not_left_out":  # both splits of a set, of which a sample was taken
        rows = rows[:48] + held
    t = prepare(c, run, seed, bug)
    t["held"], batches = held, stream(c, rows, seed, bug)
    watch(t)
    for step in range(steps):
        if step == again:
            resume(c, t, step, bug)
        step_of(c, t, batches, step, bug)
        trouble.telemetry(t["run"], step, healthy)
        if step % EVERY == 0 or step == steps - 1:
            judge(c, t, step, bug)
    return t["run"]
