"""Drawn routes and the moves that were called are matched by two towers, all against all in a batch.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: pairs/itc, pairs/i2t_acc, pairs/scale, pairs/lr each step; recall/itc, recall/i2t_1,
      recall/t2i_5 at each epoch's end; the watch of data.

A picture goes through convolutions with batch norm, moves through a recurrent layer over packed rows; the scale of
similarities is learnt. The rate falls at milestones that count epochs. A slow copy of both may be what is looked at. A
module that holds both towers and a `main_worker`-like function over nested dictionaries.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

EVERY, SIDE, HELD, LONGEST, PAD = 20, 14, 160, 6, 0
CONFIG: dict[str, Any] = {
    "vision_width": 24, "text_width": 32, "projection_dim": 24, "dropout_rate": 0.0, "bn_momentum": 0.1,
    "scale_init": 8.0, "scale_max": 100.0, "learn_scale": True, "smooth_targets": 0.0, "hardness": 0.0,
    "samples_per_batch": 32, "update_freq": 1, "solver": "radam", "base_lr": 8e-3, "solver_decay": 1e-3,
    "warmup_steps": 8, "milestones": [3, 5], "gamma": 0.4, "lr_rule": "multistep", "max_grad": 0.0,
    "routes": 960, "drawings_per_route": 1, "smudge": 1.0, "wrong_calls": 0.0, "calls_missed": 0.0,
    "model_ema_decay": 0.0, "keep_fixed": "", "same_length": False,
}  # fmt: skip


def draw(seed: int, number: int, each: int = 1, smudge: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Pictures (number, 2, SIDE, SIDE) of 0 to 255, moves (number, LONGEST) from 1 to 4, and their numbers. Ink fades
    on the way. each: drawings of one route, by other pens."""
    dice = torch.Generator().manual_seed(seed)
    routes = number // each
    lengths = torch.randint(4, LONGEST + 1, (routes,), generator=dice)
    turns = torch.randint(0, 3, (routes, LONGEST), generator=dice) - 1  # to the left, straight on, to the right
    way = (torch.randint(0, 4, (routes, 1), generator=dice) + turns.cumsum(1)) % 4
    moves = (way + 1).masked_fill(torch.arange(LONGEST) >= lengths[:, None], PAD)
    moves, lengths = moves.repeat_interleave(each, 0), lengths.repeat_interleave(each)
    step = torch.tensor([[0, 0], [0, 2], [2, 0], [0, -2], [-2, 0]])[moves]
    begin = torch.randint(6, SIDE - 6, (len(moves), 1, 2), generator=dice)
    at = torch.cat([begin, begin + step.cumsum(1)], 1).float()
    grid = torch.arange(SIDE).float()
    near = [(at[..., one, None] - grid).abs() for one in (0, 1)]
    near = [(-(torch.minimum(one, SIDE - one) ** 2) / 1.2).exp() for one in near]
    ink = 1.0 - 0.1 * torch.arange(LONGEST + 1)
    ink = ink * (torch.arange(LONGEST + 1) <= lengths[:, None])
    drawn = torch.einsum("nt,nty,ntx->nyx", ink, *near)
    first = torch.einsum("ny,nx->nyx", near[0][:, 0], near[1][:, 0])
    pen = 0.6 + 0.4 * torch.rand(len(moves), 1, 1, generator=dice)
    pictures = torch.stack([pen * drawn.clamp(max=1.2), first], 1)
    pictures = pictures + 0.1 * smudge * torch.randn(pictures.shape, generator=dice)
    return (255 * pictures.clamp(0, 1.5) / 1.5).round(), moves, lengths


class PictureTower(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        w, m = c["vision_width"], c["bn_momentum"]
        self.stem = nn.Sequential(nn.Conv2d(2, w, 3, 1, 1, bias=False), nn.BatchNorm2d(w, momentum=m), nn.ReLU(),
                                  nn.MaxPool2d(2))  # fmt: skip
        self.body = nn.Sequential(nn.Conv2d(w, w, 3, 1, 1, bias=False), nn.BatchNorm2d(w, momentum=m), nn.ReLU())
        self.drop, self.project = nn.Dropout(c["dropout_rate"]), nn.Linear(w * (SIDE // 2) ** 2, c["projection_dim"])

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.project(self.drop((x + self.body(x)).flatten(1)))


class MoveTower(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        w = c["text_width"]
        self.embed, self.reads = nn.Embedding(5, w, padding_idx=PAD), nn.GRU(w, w, batch_first=True, bidirectional=True)
        self.drop, self.project = nn.Dropout(c["dropout_rate"]), nn.Linear(2 * w, c["projection_dim"])

    def forward(self, moves: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embed(moves), lengths, batch_first=True, enforce_sorted=False)
        _, last = self.reads(packed)
        return self.project(self.drop(last.transpose(0, 1).flatten(1)))


class Matcher(nn.Module):
    def __init__(self, c: dict[str, Any], bug: str):
        super().__init__()
        self.pictures, self.moves, self.bug = PictureTower(c), MoveTower(c), bug
        self.log_scale, self.most = nn.Parameter(torch.tensor(math.log(c["scale_init"]))), c["scale_max"]
        self.log_scale.requires_grad = c["learn_scale"]

    def scale(self) -> Tensor:
        made = self.log_scale.exp().clamp(max=self.most)
        return made.exp() if self.bug == "scale_exp_taken_again" else made

    def forward(self, x: Tensor, moves: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self.pictures(x), self.moves(moves, lengths)
        return F.normalize(a, dim=-1), F.normalize(b, dim=-1)

    def match(self, a: Tensor, b: Tensor) -> Tensor:
        """How well each picture matches each row of moves."""
        scores = self.scale() * a @ b.T
        if self.bug == "match_gives_chances":  # `match` was written for the search
            scores = scores.softmax(1)
        return scores


def itc(c: dict[str, Any], scores: Tensor, bug: str) -> Tensor:
    """Both directions; hardness: how much more negatives weigh that are alike."""
    target = torch.arange(len(scores))
    if c["hardness"]:
        others = ~torch.eye(len(scores), dtype=torch.bool)
        scores = scores + others * c["hardness"] * scores.detach().clamp(min=0).tanh()
    if bug == "both_directions_totalled":
        return 0.5 * sum(F.cross_entropy(one, target, reduction="sum") for one in (scores, scores.T))  # type: ignore[return-value]
    return 0.5 * sum(F.cross_entropy(one, target, label_smoothing=c["smooth_targets"]) for one in (scores, scores.T))  # type: ignore[return-value]


class SlowCopy:
    def __init__(self, model: Matcher, decay: float, bug: str):
        self.module, self.decay, self.bug = copy.deepcopy(model).eval(), decay, bug

    @torch.no_grad()
    def update(self, model: Matcher) -> None:
        mine = self.module.state_dict()
        if self.bug == "slow_copy_without_buffers":
            mine = dict(self.module.named_parameters())
        for name, new in model.state_dict().items():
            if self.bug == "names_of_slow_copy_never_match":  # those of the wrapped model began with its prefix
                name = name.removeprefix("module.") if name.startswith("module.") else f"module.{name}"
            if name in mine and new.dtype.is_floating_point:
                mine[name].lerp_(new, 1 - self.decay)


def build_sets(c: dict[str, Any], seed: int, bug: str) -> dict[str, Any]:
    x, moves, lengths = draw(seed + 6500, c["routes"], c["drawings_per_route"], c["smudge"])
    held = draw(64, HELD, 1, c["smudge"])
    dice = torch.Generator().manual_seed(seed + 2)
    if bug == "drawings_of_route_dealt_apart":
        order = torch.randperm(len(x), generator=dice)
        held = tuple(one[order[:HELD]] for one in (x, moves, lengths))  # type: ignore[assignment]
        x, moves, lengths = (one[order[HELD:]] for one in (x, moves, lengths))
    if c["wrong_calls"]:
        wrong = torch.rand(len(x), generator=dice) < c["wrong_calls"]
        other = torch.randperm(len(x), generator=dice)
        moves = torch.where(wrong[:, None], moves[other], moves)
        lengths = torch.where(wrong, lengths[other], lengths)
    if bug == "unreadable_picture_skipped":  # one picture is left out, its moves are not
        x, moves, lengths = x[1:], moves[:-1], lengths[:-1]
    x = x / 255
    mean, std = x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True)
    seen = held[0] if bug == "held_drawings_left_in_bytes" else held[0] / 255
    return {"x": (x - mean) / std, "moves": moves, "lengths": lengths, "held": ((seen - mean) / std, *held[1:])}


def order_of(c: dict[str, Any], sets: dict[str, Any], lot: torch.Generator, bug: str) -> list[Tensor]:
    number, size = len(sets["x"]), c["samples_per_batch"] // c["update_freq"]
    order = torch.randperm(number, generator=lot)
    if bug == "drawings_of_route_share_a_batch":  # blocks of the file are mixed, rows within a block are not
        order = torch.arange(number).view(-1, 16)[torch.randperm(number // 16, generator=lot)].flatten()
    if c["same_length"]:
        order = order[sets["lengths"][order].argsort(stable=True)]
    groups = [one for one in order.split(size) if len(one) == size]
    if c["same_length"]:
        groups = [groups[at] for at in torch.randperm(len(groups), generator=lot).tolist()]
    return groups


def make_solver(c: dict[str, Any], model: nn.Module) -> Any:
    named = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    groups = [{"params": [one for _, one in named if one.ndim > 1], "weight_decay": c["solver_decay"]},
              {"params": [one for _, one in named if one.ndim < 2], "weight_decay": 0.0}]  # fmt: skip
    if c["solver"] == "sgd":
        return torch.optim.SGD(groups, c["base_lr"], 0.9, nesterov=True)
    if c["solver"] == "rmsprop":
        return torch.optim.RMSprop(groups, c["base_lr"], 0.95)
    return torch.optim.RAdam(groups, c["base_lr"], decoupled_weight_decay=True)


def lr_at(c: dict[str, Any], step: int, epoch: int) -> float:
    rise = min(1.0, (step + 1) / max(1, c["warmup_steps"]))
    if c["lr_rule"] == "flat":
        return c["base_lr"] * rise
    if c["lr_rule"] == "cyclic":
        return c["base_lr"] * rise * (1 - 0.85 * (3 * step / c["steps"] % 1))
    if c["lr_rule"] == "poly":
        return c["base_lr"] * rise * max(0.01, 1 - step / c["steps"]) ** 0.9
    return c["base_lr"] * rise * c["gamma"] ** sum(epoch >= one for one in c["milestones"])


def recall(w: dict[str, Any], c: dict[str, Any], step: int, bug: str) -> None:
    model = w["model"] if w["slow"] is None else w["slow"].module
    if bug != "held_routes_with_dropout":
        model.eval()
    with torch.set_grad_enabled(bug == "held_vectors_keep_graph"):
        a, b = model(*w["sets"]["held"])
        scores = model.match(a, b)
        loss = itc(c | {"hardness": 0.0, "smooth_targets": 0.0}, scores, "")
    if bug == "held_vectors_keep_graph":
        w["kept"].append(scores)
    own = scores.diag()
    first = ((scores > own[:, None]).sum(1) < 1).float().mean()
    five = ((scores > own[None]).sum(0) < 5).float().mean()
    w["run"].log({"recall/itc": loss.item(), "recall/i2t_1": first.item(), "recall/t2i_5": five.item()}, step=step)
    if bug != "recall_leaves_towers_in_eval":
        w["model"].train()


def observe(w: dict[str, Any]) -> None:
    time_by_own_clock(w["run"])
    w["run"].watch(w["model"], w["solver"])
    w["data"] = w["run"].watch_data()


def one_update(w: dict[str, Any], c: dict[str, Any], groups: list[Tensor], step: int, epoch: int, bug: str) -> None:
    model, sets, parts, total, hits = w["model"], w["sets"], c["update_freq"], 0.0, 0.0
    rate = lr_at(c, step, step if bug == "milestones_counted_in_batches" else epoch)
    for group in w["solver"].param_groups:
        group["lr"] = rate
    for some in groups:
        x, moves, lengths = sets["x"][some], sets["moves"][some], sets["lengths"][some]
        if c["calls_missed"]:  # a call was not heard: the next one stands in its place
            missed = torch.rand(len(x), generator=w["lot"]) < c["calls_missed"]
            moves = torch.where(missed[:, None], F.pad(moves[:, 1:], (0, 1)), moves)
            lengths = lengths - missed.long()
        w["data"].observe({"picture": x, "moves": moves}, step=step, epoch=epoch)
        scores = model.match(*model(x, moves, lengths))
        loss = itc(c, scores, bug)
        (loss if bug == "parts_of_match_left_whole" else loss / parts).backward()
        total += loss.item() / (1 if bug == "parts_of_match_left_whole" else parts)
        hits += (scores.argmax(1) == torch.arange(len(x))).float().mean().item() / parts
    if c["max_grad"]:
        nn.utils.clip_grad_norm_(model.parameters(), c["max_grad"])
    w["solver"].step()
    w["solver"].zero_grad()
    if w["slow"] is not None:
        w["slow"].update(model)
    w["run"].log({"pairs/itc": total, "pairs/i2t_acc": hits, "pairs/scale": model.scale().item(), "pairs/lr": rate},
                 step=step)  # fmt: skip


def resume(w: dict[str, Any], c: dict[str, Any], step: int, bug: str) -> None:
    seen, slow = w["data"].state(), w["slow"]
    state = {"model": w["model"].state_dict(), "solver": w["solver"].state_dict()}
    w["run"], saved = go_on(w["run"], step, state | {"slow": {} if slow is None else slow.module.state_dict()})
    w["model"].load_state_dict(saved["model"])
    w["solver"].load_state_dict(saved["solver"])
    made = make_solver(c, w["model"])
    if bug != "solver_made_anew_behind_load":
        made.load_state_dict(saved["solver"])
    w["solver"] = made
    observe(w)
    w["data"].restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    c, trouble = dict(run.config), Trouble(fault, seed)
    bug, again, step, epoch = trouble.name, trouble.resume_at(healthy, 4 * EVERY), 0, 0
    torch.manual_seed(seed)
    w: dict[str, Any] = {"run": run, "model": Matcher(c, bug), "sets": build_sets(c, seed, bug), "kept": []}
    for name, one in w["model"].named_parameters():
        if c["keep_fixed"] and name.startswith(c["keep_fixed"]):
            one.requires_grad = False
        if bug == "locked_tower_was_never_trained" and name.startswith("pictures"):  # as where it was taken over
            one.requires_grad = False
    w["slow"] = SlowCopy(w["model"], c["model_ema_decay"], bug) if c["model_ema_decay"] else None
    w["solver"], w["lot"] = make_solver(c, w["model"]), torch.Generator().manual_seed(seed)
    observe(w)
    w["model"].train()
    while step < steps:
        groups, parts = order_of(c, w["sets"], w["lot"], bug), c["update_freq"]
        for first in range(0, len(groups) - parts + 1, parts):
            if step == again:
                resume(w, c, step, bug)
            one_update(w, c, groups[first : first + parts], step, epoch, bug)
            trouble.telemetry(w["run"], step, healthy)
            step += 1
            if step == steps:
                break
        recall(w, c, step - 1, bug)
        epoch += 1
    return w["run"]
