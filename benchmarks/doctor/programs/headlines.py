"""Preferences of a news desk: of two headlines for a note, the one that says what happened and not the bait.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: desk/dpo_loss, desk/acc, desk/margin, desk/chosen_logp, desk/rejected_logp, desk/lr,
      desk/gnorm each step; proof/dpo_loss, proof/acc, proof/margin each twentieth; memory, where it matters; the watch
      of data.

A small decoder has learnt to write both sorts of headlines. Direct preference optimisation against a frozen reference
that starts as the policy's copy; both headlines of a pair go through the model in one batch. A plain script of
functions around a dataclass of what is shared, as one forks it from the paper's repository.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, PROOFS, LONGEST = 20, 128, 20
PAD, BOS, EOS, TITLE = range(4)
TOPIC, PLACE, EVENT, FILLER, WHO, DID, WHERE, BAIT = 4, 14, 22, 32, 48, 58, 78, 86
WORDS = BAIT + 12
CONFIG: dict[str, Any] = {
    "beta": 0.2, "loss": "sigmoid", "label_smoothing": 0.0, "sft_weight": 0.0, "average_log_prob": False,
    "reference_free": False, "lr": 6e-4, "optimizer": "RMSprop", "warmup_steps": 10, "lr_after_warmup": "linear",
    "batch_size": 16, "gradient_accumulation_steps": 1, "max_grad_norm": 10.0, "dropout": 0.0,
    "num_layers_unfrozen": 2, "notes": 960, "pairs_per_note": 1, "filler": 4, "flipped": 0.04,
    "tie_word_embeddings": True, "eval_every": 20, "log_every": 1,
}  # fmt: skip


@dataclass
class Pair:
    prompt: list[int]
    chosen: list[int]
    rejected: list[int]


@dataclass
class State:
    run: Any
    c: Any
    bug: str
    seed: int
    policy: Any = None
    reference: Any = None
    optimizer: Any = None
    scheduler: Any = None
    watch: Any = None
    pairs: list[Pair] = field(default_factory=list)
    proofs: list[Pair] = field(default_factory=list)
    all_metrics: list[Any] = field(default_factory=list)


# -- pairs ----------------------------------------------------------------------------------------------------------


def drawn(dice: torch.Generator, below: int) -> int:
    return int(torch.randint(0, below, (), generator=dice))


def written(seed: int, notes: int, each: int, filler: int, flipped: float = 0.0) -> list[Pair]:
    dice, style = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(205)
    did = torch.randint(0, 20, (10, 10), generator=style)
    pairs = []
    for _ in range(notes // each):
        topic, place, event = drawn(dice, 10), drawn(dice, 8), drawn(dice, 10)
        words = [FILLER + drawn(dice, 16) for _ in range(drawn(dice, filler + 1))]
        prompt = [BOS, TOPIC + topic, EVENT + event, *words, PLACE + place, TITLE]
        plain = [WHO + topic, DID + int(did[topic, event]), WHERE + place, EOS]
        for _ in range(each):
            if drawn(dice, 2):  # it says something else
                other = [WHO + topic, DID + drawn(dice, 20), WHERE + place, EOS]
            else:  # or it is bait
                more = [BAIT + drawn(dice, 12) for _ in range(1 + drawn(dice, 3))]
                other = [*more, WHO + topic, DID + int(did[topic, event]), EOS]
            swap = float(torch.rand((), generator=dice)) < flipped
            pairs.append(Pair(prompt, *((other, plain) if swap else (plain, other))))
    return pairs


def concatenated(pairs: list[Pair]) -> tuple[Tensor, Tensor]:
    """Ids and labels: chosen ones, then rejected ones; -100 where nothing counts."""
    rows = [one.prompt + one.chosen for one in pairs] + [one.prompt + one.rejected for one in pairs]
    width = max(len(one) for one in rows)
    ids, labels = torch.full((len(rows), width), PAD), torch.full((len(rows), width), -100)
    for at, row in enumerate(rows):
        ids[at, : len(row)] = torch.tensor(row)
        asked = len(pairs[at % len(pairs)].prompt)
        labels[at, asked : len(row)] = torch.tensor(row[asked:])
    return ids, labels


def batches(s: State) -> Iterator[tuple[int, list[Pair]]]:
    dice, epoch, size = torch.Generator().manual_seed(s.seed), 0, s.c.batch_size
    longest = torch.tensor([len(one.prompt) + max(len(one.chosen), len(one.rejected)) for one in s.pairs])
    while True:
        order = torch.randperm(len(s.pairs), generator=dice)
        if s.bug == "pairs_by_length_to_save_padding":
            order = longest.argsort(stable=True)
        for some in order.split(size):
            if len(some) == size:
                yield epoch, [s.pairs[at] for at in some.tolist()]
        epoch += 1


# -- decoder --------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, d: int, dropout: float):
        super().__init__()
        self.ln_1, self.c_attn, self.c_proj = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ln_2, self.fc, self.proj = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(3 * d, d)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.c_attn(self.ln_1(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.c_proj(y.transpose(1, 2).flatten(2)))
        return x + self.drop(self.proj(F.gelu(self.fc(self.ln_2(x)))))


class Writer(nn.Module):
    def __init__(self, dropout: float, d: int = 40, layers: int = 2):
        super().__init__()
        self.wte, self.wpe, self.drop = nn.Embedding(WORDS, d), nn.Embedding(LONGEST, d), nn.Dropout(dropout)
        self.h, self.ln_f = nn.ModuleList(Block(d, dropout) for _ in range(layers)), nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, WORDS, bias=False)
        for one in (self.wte, self.wpe, self.lm_head):
            nn.init.normal_(one.weight, std=0.12)

    def tie_weights(self) -> None:
        self.lm_head.weight = self.wte.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.drop(self.wte(ids) + self.wpe.weight[: ids.shape[1]])
        for one in self.h:
            x = one(x)
        return self.lm_head(self.ln_f(x))


def sft_state() -> dict[str, Tensor]:
    """A checkpoint of the supervised stage: the same whatever the seed. A matrix that is shared is saved once."""
    torch.manual_seed(206)
    model, pairs = Writer(0.0), written(207, 1200, 1, 4, 0.5)
    model.tie_weights()
    optimizer, dice = torch.optim.AdamW(model.parameters(), 4e-3), torch.Generator().manual_seed(208)
    for at in range(90):
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * min(1.0, (at + 1) / 10) * (1 - at / 90)
        ids, labels = concatenated([pairs[one] for one in torch.randint(0, len(pairs), (24,), generator=dice)])
        F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), labels[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    state = model.state_dict()
    del state["lm_head.weight"]
    return state


def load_models(s: State) -> None:
    state = sft_state()
    torch.manual_seed(s.seed)
    s.policy = Writer(s.c.dropout)
    s.policy.load_state_dict(state, strict=False)
    if s.c.tie_word_embeddings and s.bug != "head_missing_in_the_file_and_not_tied":
        s.policy.tie_weights()
    elif not s.c.tie_word_embeddings:
        s.policy.lm_head.weight.data.copy_(s.policy.wte.weight)
    s.reference = copy.deepcopy(s.policy)
    s.reference.requires_grad_(False)
    s.reference.eval()
    keep = s.c.num_layers_unfrozen
    if keep < len(s.policy.h):
        for layer in s.policy.h[:-keep]:
            layer.requires_grad_(False)


def tools(s: State) -> None:
    c, some = s.c, [one for one in s.policy.parameters() if one.requires_grad]
    if c.optimizer == "SGD":
        s.optimizer = torch.optim.SGD(some, c.lr, 0.9)
    elif c.optimizer == "AdamW":
        s.optimizer = torch.optim.AdamW(some, c.lr, weight_decay=0.01)
    else:
        s.optimizer = torch.optim.RMSprop(some, c.lr)

    def share(at: int) -> float:
        rise, past = min(1.0, (at + 1) / (c.warmup_steps + 1)), min(1.0, at / c.steps)
        if c.lr_after_warmup == "constant":
            return rise
        if c.lr_after_warmup == "cosine":
            return rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * past)))
        if c.lr_after_warmup == "restarts":
            return rise * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
        return rise * max(0.02, 1 - past)

    s.scheduler = torch.optim.lr_scheduler.LambdaLR(s.optimizer, share)


# -- loss -----------------------------------------------------------------------------------------------------------


def batch_logps(s: State, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithm of each row's probability, and how many tokens it has."""
    if s.bug == "logps_gathered_without_shift":
        logits, labels = logits[:, 1:], labels[:, 1:]
    else:
        logits, labels = logits[:, :-1], labels[:, 1:]
    mask = labels != -100
    each = torch.gather(logits.log_softmax(-1), 2, labels.where(mask, 0).unsqueeze(2)).squeeze(2) * mask
    if s.c.average_log_prob or s.bug == "average_flag_of_the_sft_loss":
        return each.sum(1) / mask.sum(1), mask.sum(1)
    return each.sum(1), mask.sum(1)


def preference(s: State, pairs: list[Pair], policy: nn.Module) -> tuple[Tensor, dict[str, Tensor]]:
    c, (ids, labels), half = s.c, concatenated(pairs), len(pairs)
    logps, counts = batch_logps(s, policy(ids), labels)
    with torch.no_grad():
        past = batch_logps(s, s.reference(ids), labels)[0]
    rewards = c.beta * (logps if c.reference_free else logps - past)
    margin = rewards[:half] - rewards[half:]
    if c.loss == "ipo":
        losses = (margin / c.beta - 1 / (2 * c.beta)) ** 2 * c.beta**2
    elif c.loss == "hinge":
        losses = torch.relu(1 - margin)
    else:
        losses = -F.logsigmoid(margin) * (1 - c.label_smoothing) - F.logsigmoid(-margin) * c.label_smoothing
    loss = losses.mean()
    if c.sft_weight:
        said = logps[:half]
        if s.bug == "sft_term_is_a_total":  # the other term is a mean over pairs
            loss = loss - c.sft_weight * said.sum()
        else:
            loss = loss - c.sft_weight * said.sum() / counts[:half].sum()
    metrics = {"dpo_loss": losses.mean(), "acc": (margin > 0).float().mean(), "margin": margin.mean(),
               "chosen_logp": logps[:half].mean(), "rejected_logp": logps[half:].mean()}  # fmt: skip
    return loss, metrics


# -- training -------------------------------------------------------------------------------------------------------


def proof(s: State, step: int) -> None:
    taped, found = s.bug == "metrics_hold_tensors_of_the_evaluation", []
    if s.bug != "policy_never_set_to_eval":
        s.policy.eval()
    with torch.set_grad_enabled(taped):
        for first in range(0, len(s.proofs), 64):
            found.append(preference(s, s.proofs[first : first + 64], s.policy)[1])
    if taped:
        s.all_metrics.append(found)
    if s.bug != "policy_judged_and_left_in_eval":
        s.policy.train()
    keys = ("dpo_loss", "acc", "margin")
    means = {f"proof/{key}": sum(one[key].item() for one in found) / len(found) for key in keys}
    s.run.log(means, step=step)


def observe(s: State) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.policy, s.optimizer)
    s.watch = s.run.watch_data(pad_id=PAD)


def resume(s: State, step: int) -> None:
    seen = s.watch.state()
    state = {"policy": s.policy.state_dict(), "optimizer": s.optimizer.state_dict(), "lr": s.scheduler.state_dict()}
    s.run, state = go_on(s.run, step, state)
    s.policy.load_state_dict(state["policy"])
    if s.bug == "reference_copied_from_the_checkpoint":
        s.reference.load_state_dict(state["policy"])
    tools(s)
    if s.bug != "policy_archive_alone_restored":
        s.optimizer.load_state_dict(state["optimizer"])
    s.scheduler.load_state_dict(state["lr"])
    for group, rate in zip(s.optimizer.param_groups, s.scheduler.get_last_lr(), strict=True):
        group["lr"] = rate
    observe(s)
    s.watch.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    s, again = State(run, SimpleNamespace(**run.config), trouble.name, seed), trouble.resume_at(healthy, 4 * EVERY)
    c, bug, parts = s.c, s.bug, s.c.gradient_accumulation_steps
    load_models(s)
    s.pairs = written(seed + 2090, c.notes, c.pairs_per_note, c.filler, c.flipped)
    s.proofs = written(209, PROOFS, 1, c.filler)
    tools(s)
    observe(s)
    s.policy.train()
    stream = batches(s)
    for step in range(steps):
        if step == again:
            resume(s, step)
        said: dict[str, float] = {}
        for _ in range(parts):
            epoch, some = next(stream)
            ids, labels = concatenated(some)
            s.watch.observe({"input_ids": ids, "labels": labels}, step=step, epoch=epoch)
            loss, metrics = preference(s, some, s.policy)
            (loss / parts).backward()
            for key, one in metrics.items():
                said[key] = said.get(key, 0.0) + one.item() / parts
            if bug == "lr_lambda_counts_microbatches":
                s.scheduler.step()
        norm = nn.utils.clip_grad_norm_(s.policy.parameters(), c.max_grad_norm).item()
        rate = s.optimizer.param_groups[0]["lr"]
        s.optimizer.step()
        s.optimizer.zero_grad()
        if bug != "lr_lambda_counts_microbatches":
            s.scheduler.step()
        if step % c.log_every == 0:
            figures = {f"desk/{key}": one for key, one in said.items()} | {"desk/lr": rate, "desk/gnorm": norm}
            s.run.log(figures, step=step)
        trouble.telemetry(s.run, step, healthy)
        if step % c.eval_every == c.eval_every - 1:
            proof(s, step)
    return s.run
