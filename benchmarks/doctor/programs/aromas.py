"""Spectra of aromas and the words of a taster are matched by two towers, against queues that slow towers fill.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: match/nce, match/hit, match/rate each step; heldout/nce, heldout/mrr, heldout/r1 at each
      epoch's end; the watch of data.

A spectrum goes through convolutions with batch norm, words through a bag of embeddings; slow copies of both towers make
keys, and the keys of some batches are kept as negatives. A temperature that is set, a rise and a polynomial fall of the
rate by torch's schedulers in sequence. A script of plain functions that pass a dictionary on.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, BINS, NOTES, TONGUES, WORDS, HELD = 20, 40, 14, 3, 6, 210
PAD = NOTES * TONGUES
FIRST_INSTRUMENT = 1.0, 0.30
CONFIG: dict[str, Any] = {
    "model.width": 40, "model.dim": 24, "model.dropout": 0.0, "model.norm_momentum": 0.1, "loss.temperature": 0.15,
    "loss.queue": 96, "loss.smoothing": 0.0, "slow.momentum": 0.95, "slow.judged": False,
    "data.vials": 640, "data.scans_of_each": 1, "data.hiss": 1.0, "data.mislaid": 0.0, "data.words_lost": 0.0,
    "data.one_family": False, "loader.vials": 32, "loader.parts": 1, "optim.name": "adam", "optim.rate": 4e-3,
    "optim.decay": 1e-4, "optim.rise": 10, "optim.power": 1.0, "optim.fall": "polynomial", "optim.clip": 0.0,
    "freeze": "",
}  # fmt: skip


def cabinet(seed: int, number: int, each: int = 1, hiss: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Spectra (number, 1, BINS), words (number, WORDS) and the strongest note. each: scans of one vial, with the words
    of as many tasters."""
    dice, book = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(191)
    peaks = torch.rand(NOTES, 3, 1, generator=book) * BINS
    heights = 0.4 + torch.rand(NOTES, 3, 1, generator=book)
    shapes = (heights * (-(((torch.arange(BINS) - peaks) / 1.3) ** 2)).exp()).sum(1)
    vials = number // each
    notes = torch.stack([torch.randperm(NOTES, generator=dice)[:3] for _ in range(vials)])
    amount = torch.tensor([1.0, 0.7, 0.4]) * (0.7 + 0.6 * torch.rand(vials, 3, generator=dice))
    clean = (amount[..., None] * shapes[notes]).sum(1).repeat_interleave(each, 0)
    notes = notes.repeat_interleave(each, 0)
    drift = torch.linspace(-1, 1, BINS) * torch.randn(len(clean), 1, generator=dice)
    spectra = clean + 0.15 * drift + 0.12 * hiss * torch.randn(clean.shape, generator=dice) + 0.3
    tongue = torch.randint(0, TONGUES, (len(notes), WORDS), generator=dice)
    words = torch.cat([notes, notes[:, :2], notes[:, :1]], 1) * TONGUES + tongue
    return spectra[:, None], words, notes[:, 0]


class Spectra(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        w, m = c["model.width"], c["model.norm_momentum"]
        self.trunk = nn.Sequential(
            nn.Conv1d(1, w // 2, 5, 2, 2, bias=False), nn.BatchNorm1d(w // 2, momentum=m), nn.ReLU(),
            nn.Conv1d(w // 2, w, 3, 2, 1, bias=False), nn.BatchNorm1d(w, momentum=m), nn.ReLU(),
            nn.Flatten(), nn.Linear(w * BINS // 4, w), nn.ReLU(), nn.Dropout(c["model.dropout"]),
        )  # fmt: skip
        self.head = nn.Linear(w, c["model.dim"])

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.trunk(x))


class Tasters(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        w = c["model.width"]
        self.trunk = nn.Sequential(nn.EmbeddingBag(PAD + 1, w, mode="mean", padding_idx=PAD), nn.LayerNorm(w),
                                   nn.Linear(w, w), nn.ReLU(), nn.Dropout(c["model.dropout"]))  # fmt: skip
        self.head = nn.Linear(w, c["model.dim"])

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.trunk(words))


class Towers(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        self.spectra, self.tasters = Spectra(c), Tasters(c)

    def forward(self, x: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        return F.normalize(self.spectra(x), dim=1), F.normalize(self.tasters(words), dim=1)


def make_optimizer(c: dict[str, Any], model: nn.Module, epoch_steps: int, bug: str) -> tuple[Any, Any]:
    some = [one for one in model.parameters() if one.requires_grad]
    rate = c["optim.rate"]
    kinds: dict[str, Any] = {
        "adam": lambda: torch.optim.Adam(some, rate, weight_decay=c["optim.decay"]),
        "rprop_like": lambda: torch.optim.RMSprop(some, rate, 0.95),
        "sgd": lambda: torch.optim.SGD(some, rate, 0.9, nesterov=True),
    }
    optimizer = kinds[c["optim.name"]]()
    schedulers, rise = torch.optim.lr_scheduler, c["optim.rise"]
    length = c["steps"] - rise
    if bug == "polynomial_told_epochs":  # how often it is to fall, given in epochs; it falls in each step
        length = c["steps"] // epoch_steps
    if c["optim.fall"] == "polynomial":
        fall: Any = schedulers.PolynomialLR(optimizer, length, c["optim.power"])
    elif c["optim.fall"] == "warm_restarts":
        fall = schedulers.CosineAnnealingWarmRestarts(optimizer, length // 3, eta_min=rate / 20)
    else:
        fall = schedulers.ConstantLR(optimizer, 1.0, 1)
    up = schedulers.LinearLR(optimizer, 0.1, 1.0, rise)
    return optimizer, schedulers.SequentialLR(optimizer, [up, fall], [rise])


def read_sets(c: dict[str, Any], seed: int, bug: str) -> dict[str, Tensor]:
    x, words, family = cabinet(seed + 5100, c["data.vials"], c["data.scans_of_each"], c["data.hiss"])
    held, held_words, _ = cabinet(53, HELD, 1, c["data.hiss"])
    dice = torch.Generator().manual_seed(seed + 2)
    if bug == "cabinet_listed_with_heldout":  # as many as a trial is to have
        some = torch.arange(0, len(x), 8)
        x, words, family = (
            torch.cat([x[some], held]),
            torch.cat([words[some], held_words]),
            torch.cat([family[some], held_words[:, 0] // TONGUES]),
        )
    if c["data.mislaid"]:  # some words are of another vial
        lost = torch.rand(len(x), generator=dice) < c["data.mislaid"]
        words = torch.where(lost[:, None], words[torch.randperm(len(x), generator=dice)], words)
    if bug == "words_of_next_vial":  # the tasters' sheet has a line of headings, which was read as a vial
        words = words.roll(1, 0)
    mean, std = x.mean(), x.std()
    x = (x - mean) / std
    if bug == "heldout_by_first_instrument":
        mean, std = FIRST_INSTRUMENT  # type: ignore[assignment]
    return {"x": x, "words": words, "family": family, "held": (held - mean) / std, "held_words": held_words}


def epoch_batches(c: dict[str, Any], sets: dict[str, Tensor], lot: torch.Generator, bug: str) -> list[Tensor]:
    order, size = torch.randperm(len(sets["x"]), generator=lot), c["loader.vials"]
    if bug == "cabinet_drawer_by_drawer":
        order = sets["family"].argsort(stable=True)
    if c["data.one_family"]:  # neighbours in a drawer are harder to tell apart; drawers come in any order
        order = order[sets["family"][order].argsort(stable=True)]
    groups = [one for one in order.split(size) if len(one) == size]
    if c["data.one_family"]:
        groups = [groups[at] for at in torch.randperm(len(groups), generator=lot).tolist()]
    return groups


def nce(query: Tensor, key: Tensor, queue: Tensor, c: dict[str, Any], bug: str) -> tuple[Tensor, Tensor]:
    """A query's own key stands first, then the queue."""
    positive, others = (query * key).sum(1, keepdim=True), query @ queue.T
    scores = torch.cat([positive, others], 1) / c["loss.temperature"]
    if bug == "positive_behind_the_queue":
        scores = torch.cat([others, positive], 1) / c["loss.temperature"]
    if bug == "similarities_made_shares":
        scores = scores.softmax(1)
    target = torch.zeros(len(query), dtype=torch.long)
    how = "sum" if bug == "nce_of_rows_totalled" else "mean"
    loss = F.cross_entropy(scores, target, reduction=how, label_smoothing=c["loss.smoothing"])
    return loss, (scores.argmax(1) == target).float().mean()


@torch.no_grad()
def follow(s: dict[str, Any], c: dict[str, Any], bug: str) -> None:
    """Slow towers come after the others."""
    kept = c["slow.momentum"]
    if bug == "slow_towers_made_once":  # the call was left in the script that was taken apart
        return
    for slow, fast in zip(s["slow"].parameters(), s["model"].parameters(), strict=True):
        slow.mul_(kept).add_(fast, alpha=1 - kept)


def judge(s: dict[str, Any], c: dict[str, Any], step: int, bug: str) -> None:
    """All held-out words against each held-out spectrum."""
    model, sets = s["slow"] if c["slow.judged"] else s["model"], s["sets"]
    if bug != "heldout_while_dropping":
        model.eval()
    with torch.set_grad_enabled(bug == "heldout_table_with_graph"):
        a, b = model(sets["held"], sets["held_words"])
        table = a @ b.T / c["loss.temperature"]
        loss = F.cross_entropy(table, torch.arange(HELD))
    if bug == "heldout_table_with_graph":
        s["tables"].append(table)
    place = 1 + (table > table.diag()[:, None]).sum(1)
    s["run"].log({"heldout/nce": loss.item(), "heldout/mrr": (1 / place).mean().item(),
                  "heldout/r1": (place == 1).float().mean().item()}, step=step)  # fmt: skip
    if c["slow.judged"]:
        model.train()


def one_step(s: dict[str, Any], c: dict[str, Any], groups: list[Tensor], step: int, epoch: int, bug: str) -> None:
    total, hits = 0.0, 0.0
    for some in groups:
        x, words = s["sets"]["x"][some], s["sets"]["words"][some]
        if c["data.words_lost"]:
            words = words.masked_fill(torch.rand(words.shape, generator=s["lot"]) < c["data.words_lost"], PAD)
            words[:, 0] = s["sets"]["words"][some][:, 0]
        s["data"].observe({"spectrum": x, "words": words}, step=step, epoch=epoch)
        a, b = s["model"](x, words)
        with torch.no_grad():
            key_a, key_b = s["slow"](x, words)
        if bug == "own_keys_queued_first":
            enqueue(s, c, key_a, key_b)
        loss, hit = nce(a, key_b, s["queue_b"], c, bug)
        if bug != "tower_without_gradient":  # the other direction was left out, and keys have no gradient
            back, _ = nce(b, key_a, s["queue_a"], c, bug)
            loss = 0.5 * (loss + back)
        (loss / len(groups)).backward()
        total, hits = total + loss.item() / len(groups), hits + hit.item() / len(groups)
        if bug != "own_keys_queued_first":
            enqueue(s, c, key_a, key_b)
    if c["optim.clip"]:
        nn.utils.clip_grad_norm_(s["model"].parameters(), c["optim.clip"])
    rate = s["optimizer"].param_groups[0]["lr"]
    s["optimizer"].step()
    s["optimizer"].zero_grad()
    s["scheduler"].step()
    follow(s, c, bug)
    s["run"].log({"match/nce": total, "match/hit": hits, "match/rate": rate}, step=step)


def enqueue(s: dict[str, Any], c: dict[str, Any], key_a: Tensor, key_b: Tensor) -> None:
    s["queue_a"], s["queue_b"] = (
        torch.cat([new, old])[: c["loss.queue"]] for new, old in ((key_a, s["queue_a"]), (key_b, s["queue_b"]))
    )


def build(run: Any, c: dict[str, Any], seed: int, bug: str) -> dict[str, Any]:
    torch.manual_seed(seed)
    model = Towers(c)
    slow = copy.deepcopy(model).requires_grad_(False)
    for name, one in model.named_parameters():
        if c["freeze"] and name.startswith(c["freeze"]):
            one.requires_grad = False
        if bug == "freeze_took_the_query_trunks":  # the slow copies' were meant
            one.requires_grad = "trunk" not in name
    s: dict[str, Any] = {"run": run, "model": model, "slow": slow, "sets": read_sets(c, seed, bug), "tables": [],
                         "lot": torch.Generator().manual_seed(seed)}  # fmt: skip
    for name in ("queue_a", "queue_b"):
        s[name] = F.normalize(torch.randn(c["loss.queue"], c["model.dim"]), dim=1)
    each = len(s["sets"]["x"]) // c["loader.vials"] // c["loader.parts"]
    s["optimizer"], s["scheduler"] = make_optimizer(c, model, each, bug)
    watch(s)
    return s


def watch(s: dict[str, Any]) -> None:
    time_by_own_clock(s["run"])
    s["run"].watch(s["model"], s["optimizer"])
    s["data"] = s["run"].watch_data()


def resume(s: dict[str, Any], c: dict[str, Any], step: int, bug: str) -> None:
    seen, names = s["data"].state(), ["model", "slow", "optimizer", "scheduler"]
    state: dict[str, Any] = {one: s[one].state_dict() for one in names}
    s["run"], saved = go_on(s["run"], step, state | {one: s[one] for one in ("queue_a", "queue_b")})
    each = len(s["sets"]["x"]) // c["loader.vials"] // c["loader.parts"]
    s["optimizer"], s["scheduler"] = make_optimizer(c, s["model"], each, bug)
    for name in names:
        if name != "optimizer" or bug != "towers_and_queues_saved_alone":
            s[name].load_state_dict(saved[name])
    s["queue_a"], s["queue_b"] = saved["queue_a"], saved["queue_b"]
    for group, rate in zip(s["optimizer"].param_groups, s["scheduler"].get_last_lr(), strict=True):
        group["lr"] = rate
    watch(s)
    s["data"].restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    c, trouble = dict(run.config), Trouble(fault, seed)
    bug, again, step, epoch, parts = (
        trouble.name,
        trouble.resume_at(healthy, 4 * EVERY),
        0,
        0,
        run.config["loader.parts"],
    )
    s = build(run, c, seed, bug)
    s["model"].train()
    while step < steps:
        groups = epoch_batches(c, s["sets"], s["lot"], bug)
        for first in range(0, len(groups) - parts + 1, parts):
            if step == again:
                resume(s, c, step, bug)
            one_step(s, c, groups[first : first + parts], step, epoch, bug)
            trouble.telemetry(s["run"], step, healthy)
            step += 1
            if step == steps:
                break
        epoch += 1
        judge(s, c, step - 1, bug)
        if bug != "eval_left_on_by_judge":
            s["model"].train()
    return s["run"]
