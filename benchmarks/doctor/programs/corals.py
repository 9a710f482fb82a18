"""A hybrid of inverted bottlenecks and attention with a learnt bias for distances tells drawn corals apart.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: fit/bce, fit/lr, fit/grad_total each step; reef/ce, reef/top1 at each epoch's end; the
      watch of data.

Kinds are asked for one by one with a binary cross-entropy; pictures are tinted, moved, mirrored, erased in part and
mixed with others. Rates are set by how many updates were made; an average of the weights may be what is judged. Nested
settings with capital names, a main loop and `train_one_epoch`, as a repository of a paper has them.
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

EVERY, KINDS, SIDE, REEFS, TEST = 20, 6, 16, 4, 200
CONFIG: dict[str, Any] = {
    "MODEL.DIM": 40, "MODEL.DEPTH": 2, "MODEL.HEADS": 4, "MODEL.ATTN_DROP": 0.0, "MODEL.PROJ_DROP": 0.0,
    "MODEL.BN_MOMENTUM": 0.1, "MODEL.EMA_DECAY": 0.0, "MODEL.FROZEN": "", "MODEL.POOL": "token",
    "DATA.BATCH_SIZE": 32, "DATA.PICTURES": 704, "DATA.FRAMES": 1, "DATA.HAZE": 1.0, "DATA.MISNAMED": 0.0,
    "DATA.EVEN": False, "TRAIN.ACCUMULATION_STEPS": 1, "TRAIN.BASE_LR": 3e-3, "TRAIN.MIN_LR": 3e-5,
    "TRAIN.WARMUP_UPDATES": 12, "TRAIN.SCHED": "cosine", "TRAIN.CLIP_GRAD": 2.0, "TRAIN.OPT": "adamw",
    "TRAIN.WEIGHT_DECAY": 0.05, "TRAIN.LOSS": "bce", "TRAIN.REDUCE": "mean", "AUG.MIXUP_PROB": 0.4, "AUG.ALPHA": 0.4,
    "AUG.ERASE": 0.25, "AUG.TINT": 0.2, "AUG.SMOOTHING": 0.05, "AUG.REPEATS": 1, "AUG.EASY_EPOCHS": 0,
}  # fmt: skip


def dive(seed: int, number: int, frames: int = 1, haze: float = 1.0, wrong: float = 0.0) -> tuple[Tensor, ...]:
    """Pictures (number, 3, SIDE, SIDE) from 0 to 1, kinds, reefs. Each reef has its light, and more of some kinds.
    frames: pictures of one coral, from a film."""
    dice = torch.Generator().manual_seed(seed)
    corals = number // frames
    reef = torch.randint(0, REEFS, (corals,), generator=dice)
    likely = torch.ones(REEFS, KINDS) + 4 * torch.eye(KINDS)[: REEFS + 1].unfold(0, 2, 1).sum(-1)
    kind = torch.multinomial(likely[reef], 1, generator=dice)[:, 0]
    own = torch.rand(corals, 4, 1, 1, generator=dice)
    reef, kind, own = (one.repeat_interleave(frames, 0) for one in (reef, kind, own))
    moved = 0.25 * (torch.rand(len(kind), 2, 1, 1, generator=dice) - 0.5)
    y, x = torch.meshgrid(torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij")
    x, y = x + moved[:, 0] + 0.3 * (own[:, 0] - 0.5), y + moved[:, 1] + 0.3 * (own[:, 1] - 0.5)
    r, turn = (x * x + y * y).sqrt(), 6.28 * own[:, 2]
    angle = torch.atan2(y, x) + turn
    along, across = x * turn.cos() + y * turn.sin(), y * turn.cos() - x * turn.sin()
    shapes = [torch.cos(5 * angle) - r, torch.cos(11 * r), torch.cos(8 * along) * (r < 1), torch.cos(8 * along)
              * torch.cos(8 * across), 0.6 - (r - 0.55).abs() * 4, torch.cos(4 * angle + 8 * r)]  # fmt: skip
    drawn = torch.sigmoid(4 * torch.stack(shapes, 1)[torch.arange(len(kind)), kind] * (0.8 + 0.4 * own[:, 3]))
    light = torch.tensor([[0.2, 0.5, 0.7], [0.35, 0.5, 0.5], [0.15, 0.45, 0.45], [0.3, 0.35, 0.6]])[reef]
    pictures = light[..., None, None] * (0.6 + 0.7 * drawn[:, None])
    pictures = pictures + 0.07 * haze * torch.randn(pictures.shape, generator=dice)
    chance = torch.randint(0, KINDS, kind.shape, generator=dice)
    kind = torch.where(torch.rand(kind.shape, generator=dice) < wrong, chance, kind)
    return pictures.clamp(0, 1), kind, reef


class MBConv(nn.Module):
    def __init__(self, ci: int, co: int, stride: int, momentum: float):
        super().__init__()
        mid = 2 * ci
        self.expand = nn.Sequential(
            nn.Conv2d(ci, mid, 1, bias=False), nn.BatchNorm2d(mid, momentum=momentum), nn.GELU()
        )
        self.depth = nn.Sequential(nn.Conv2d(mid, mid, 3, stride, 1, groups=mid, bias=False),
                                   nn.BatchNorm2d(mid, momentum=momentum), nn.GELU())  # fmt: skip
        self.squeeze = nn.Sequential(nn.Linear(mid, ci), nn.GELU(), nn.Linear(ci, mid), nn.Sigmoid())
        self.project = nn.Conv2d(mid, co, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.depth(self.expand(x))
        return self.project(x * self.squeeze(x.mean((2, 3)))[..., None, None])


class Relative(nn.Module):
    """Attention over places of a grid, with a bias for each distance; the token for the kind is apart from these."""

    def __init__(self, c: Any, side: int, bug: str):
        super().__init__()
        d, self.heads, self.p, self.bug = c["MODEL.DIM"], c["MODEL.HEADS"], c["MODEL.ATTN_DROP"], bug
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj, self.drop = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Dropout(c["MODEL.PROJ_DROP"])
        self.mlp = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d))
        at = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")).flatten(1)
        far = at[:, :, None] - at[:, None] + side - 1
        self.register_buffer("index", F.pad(far[0] * (2 * side - 1) + far[1] + 1, (1, 0, 1, 0)))
        self.bias = nn.Parameter(torch.zeros((2 * side - 1) ** 2 + 1, self.heads))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        p = self.p if self.training or self.bug == "attention_drops_whatever_the_mode" else 0.0
        y = F.scaled_dot_product_attention(q, k, v, self.bias[self.index].permute(2, 0, 1), dropout_p=p)
        x = x + self.drop(self.proj(y.transpose(1, 2).flatten(2)))
        return x + self.drop(self.mlp(self.norm2(x)))


class Hybrid(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d, m, self.bug, self.pool = c["MODEL.DIM"], c["MODEL.BN_MOMENTUM"], bug, c["MODEL.POOL"]
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16, momentum=m), nn.GELU())
        self.stages = nn.Sequential(MBConv(16, 24, 1, m), MBConv(24, d, 2, m))
        self.token = nn.Parameter(0.1 * torch.randn(d))
        self.blocks = nn.ModuleList(Relative(c, SIDE // 4, bug) for _ in range(c["MODEL.DEPTH"]))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, KINDS)
        self.reset_classifier()

    def reset_classifier(self) -> None:
        self.head = nn.Linear(self.norm.normalized_shape[0], KINDS)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.constant_(self.head.bias, -math.log(KINDS - 1))  # as likely as any other

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.stem(x)).flatten(2).mT
        x = torch.cat([self.token.expand(len(x), 1, -1), x], 1)
        for block in self.blocks:
            x = block(x)
        y = self.head(self.norm(x[:, 1:].mean(1) if self.pool == "mean" else x[:, 0]))
        return y.sigmoid() if self.bug == "sigmoid_ahead_of_bce_with_logits" else y


def augment(c: Any, x: Tensor, easy: bool, bug: str) -> Tensor:
    tint, erase = (0.0, 0.0) if easy else (c["AUG.TINT"], c["AUG.ERASE"])
    x = x * (1 + tint * torch.randn(len(x), 3, 1, 1)) + 0.5 * tint * torch.randn(len(x), 1, 1, 1)
    down, right = torch.randint(-2, 3, (2,)).tolist()
    x = x.roll((down, right), (2, 3))
    for axis in (2, 3):
        flip = torch.rand(len(x), 1, 1, 1) < 0.5
        x = torch.where(flip, x.flip(axis), x)
    high = 15 if bug == "erased_in_pixels_for_shares" else 6
    corner = torch.randint(0, SIDE - high + 1, (len(x), 2, 1, 1))
    grid = torch.arange(SIDE)
    rows, columns = ((grid >= corner[:, one]) & (grid < corner[:, one] + high) for one in (0, 1))
    gone = rows.mT[:, None] & columns[:, None] & (torch.rand(len(x), 1, 1, 1) < erase)
    return torch.where(gone, torch.randn(x.shape), x)


def mix(c: Any, x: Tensor, soft: Tensor, bug: str) -> tuple[Tensor, Tensor]:
    if torch.rand(()) >= c["AUG.MIXUP_PROB"]:
        return x, soft
    share = torch.distributions.Beta(c["AUG.ALPHA"], c["AUG.ALPHA"]).sample()
    other = soft.roll(1, 0) if bug == "mixed_rows_flipped_labels_rolled" else soft.flip(0)
    return share * x + (1 - share) * x.flip(0), share * soft + (1 - share) * other


class Lion(torch.optim.Optimizer):
    """By the sign of what moves."""

    def __init__(self, params: Any, lr: float, weight_decay: float):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for one in group["params"]:
                if one.grad is None:
                    continue
                state = self.state[one]
                kept = state.setdefault("exp_avg", torch.zeros_like(one))
                one.mul_(1 - group["lr"] * group["weight_decay"])
                one.sub_(group["lr"] * (0.9 * kept + 0.1 * one.grad).sign())
                kept.lerp_(one.grad, 0.01)


def build_optimizer(c: Any, model: nn.Module) -> Any:
    named = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    skip = ("bias", "token")
    light = {name for name, one in named if one.ndim < 2 or name.endswith(skip)}
    groups = [{"params": [one for name, one in named if name not in light]},
              {"params": [one for name, one in named if name in light], "weight_decay": 0.0}]  # fmt: skip
    groups = [group for group in groups if group["params"]]
    lr, decay = c["TRAIN.BASE_LR"], c["TRAIN.WEIGHT_DECAY"]
    if c["TRAIN.OPT"] == "sgd":
        return torch.optim.SGD(groups, lr, 0.9, nesterov=True)
    return Lion(groups, lr, decay) if c["TRAIN.OPT"] == "lion" else torch.optim.AdamW(groups, lr, weight_decay=decay)


def step_update(c: Any, optimizer: Any, updates: int) -> float:
    """Set the rate from how many updates were made."""
    base, low, rise = c["TRAIN.BASE_LR"], c["TRAIN.MIN_LR"], c["TRAIN.WARMUP_UPDATES"]
    past = min(1.0, (updates - rise) / (c["steps"] - rise))
    if c["TRAIN.SCHED"] == "cycles":
        past = 2 * past % 1
    rate = low + (base - low) * 0.5 * (1 + math.cos(math.pi * past))
    rate = {"constant": base, "step": base * 0.3 ** int(3 * past)}.get(c["TRAIN.SCHED"], rate)
    if updates < rise:
        rate = base * (updates + 1) / (rise + 1)
    for group in optimizer.param_groups:
        group["lr"] = rate
    return rate


def criterion(c: Any, out: Tensor, soft: Tensor, bug: str) -> Tensor:
    if c["TRAIN.LOSS"] == "ce":
        return F.cross_entropy(out, soft)
    each = F.binary_cross_entropy_with_logits(out, soft, reduction="none")
    if bug == "bce_totalled_over_batch":
        return each.sum()
    return each.sum() / each.numel() if c["TRAIN.REDUCE"] == "sum" else each.mean()


def build_data(c: Any, seed: int, bug: str) -> dict[str, Any]:
    x, y, reef = dive(seed + 6700, c["DATA.PICTURES"], c["DATA.FRAMES"], c["DATA.HAZE"], c["DATA.MISNAMED"])
    test, test_y, _ = dive(66, TEST, 1, c["DATA.HAZE"])
    if bug == "frames_of_film_on_both_sides":
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
        test, test_y = x[order[:TEST]], y[order[:TEST]]
        x, y, reef = (one[order[TEST:]] for one in (x, y, reef))
    mean, std = x.mean((0, 2, 3))[:, None, None], x.std((0, 2, 3))[:, None, None]
    if bug == "names_begin_at_another_kind":  # `class_to_idx` of the training's folder has the last one first
        y = (y + 1) % KINDS
    x = (x - mean) / std
    if bug == "test_scaled_by_halves":  # what the library takes where it is told nothing
        mean, std = torch.tensor(0.5), torch.tensor(0.5)
    return {"x": x, "y": y, "reef": reef, "test": (test - mean) / std, "test_y": test_y}


def sampler(c: Any, data: dict[str, Any], lot: torch.Generator, bug: str) -> list[Tensor]:
    number = len(data["y"])
    order = torch.randperm(number, generator=lot)
    if bug == "reef_after_reef":
        order = data["reef"].argsort(stable=True)
    if c["DATA.EVEN"]:  # of each kind as many
        order = torch.multinomial(1 / data["y"].bincount()[data["y"]].float(), number, True, generator=lot)
    if c["AUG.REPEATS"] > 1:
        order = order[: number // c["AUG.REPEATS"]].repeat_interleave(c["AUG.REPEATS"])
    size = c["DATA.BATCH_SIZE"] // c["TRAIN.ACCUMULATION_STEPS"]
    return [one for one in order.split(size) if len(one) == size]


@torch.no_grad()
def update_average(c: Any, t: Any) -> None:
    decay = c["MODEL.EMA_DECAY"]
    for mine, theirs in zip(t.ema.state_dict().values(), t.model.state_dict().values(), strict=True):
        if mine.dtype.is_floating_point:
            mine.lerp_(theirs, 1 - decay)
        else:
            mine.copy_(theirs)


def train_one_epoch(c: Any, t: Any, update: int, epoch: int, again: int | None) -> int:
    parts, data, bug = c["TRAIN.ACCUMULATION_STEPS"], t.data, t.trouble.name
    (t.ema if bug == "train_mode_set_on_the_copy" else t.model).train()
    total = 0.0
    for at, some in enumerate(sampler(c, data, t.lot, bug)):
        if update == again and at % parts == 0:
            resume(c, t, update)
        x, y = data["x"][some], data["y"][some]
        t.watch.observe({"picture": x, "kind": y}, step=update, epoch=epoch)
        soft = F.one_hot(y, KINDS) * (1 - c["AUG.SMOOTHING"]) + c["AUG.SMOOTHING"] / KINDS
        x, soft = mix(c, augment(c, x, epoch < c["AUG.EASY_EPOCHS"], bug), soft, bug)
        loss = criterion(c, t.model(x), soft, bug)
        whole = bug == "accumulated_bce_left_whole"
        (loss if whole else loss / parts).backward()
        total += loss.item() / (1 if whole else parts)
        t.seen += 1
        if t.seen % parts:
            continue
        rate = step_update(c, t.optimizer, t.seen if bug == "updates_counted_with_every_part" else update)
        norm = nn.utils.clip_grad_norm_(t.model.parameters(), c["TRAIN.CLIP_GRAD"]).item()
        t.optimizer.step()
        t.optimizer.zero_grad()
        if t.ema is not None and bug != "average_updated_once_an_epoch":
            update_average(c, t)
        t.run.log({"fit/bce": total, "fit/lr": rate, "fit/grad_total": norm}, step=update)
        t.trouble.telemetry(t.run, update, t.healthy)
        update, total = update + 1, 0.0
        if update == c["steps"]:
            break
    if bug == "average_updated_once_an_epoch":  # a level of indentation too few
        update_average(c, t)
    return update


def validate(c: Any, t: Any, update: int, bug: str) -> None:
    model = t.model if t.ema is None else t.ema
    model.eval()
    t.model.eval()  # how fast it is was looked at too
    kept = bug == "validated_without_no_grad"
    with torch.set_grad_enabled(kept):
        out = model(t.data["test"])
        loss = F.cross_entropy(out, t.data["test_y"])
    if kept:
        t.outputs.append(out)
    right = (out.argmax(1) == t.data["test_y"]).float().mean().item()
    t.run.log({"reef/ce": loss.item(), "reef/top1": right}, step=update)
    if bug == "average_saved_as_the_model":  # the best one was to be written to a file
        t.model.load_state_dict(t.ema.state_dict())


def watch(t: Any) -> None:
    time_by_own_clock(t.run)
    t.run.watch(t.model, t.optimizer)
    t.watch = t.run.watch_data()


def resume(c: Any, t: Any, update: int) -> None:
    seen, average = t.watch.state(), {} if t.ema is None else t.ema.state_dict()
    state = {"model": t.model.state_dict(), "optimizer": t.optimizer.state_dict(), "ema": average}
    t.run, saved = go_on(t.run, update, state)
    t.model.load_state_dict(saved["model"])
    t.optimizer = build_optimizer(c, t.model)
    if t.trouble.name != "auto_resume_of_model_alone":
        t.optimizer.load_state_dict(saved["optimizer"])
    watch(t)
    t.watch.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    c, trouble = dict(run.config), Trouble(fault, seed)
    bug, again, update, epoch = trouble.name, trouble.resume_at(healthy, 4 * EVERY), 0, 0
    torch.manual_seed(seed)
    model = Hybrid(c, bug)
    if bug == "frozen_ahead_of_new_classifier":  # the teacher was to be, and both are called `model`
        model.requires_grad_(False)
        model.reset_classifier()
    for name, one in model.named_parameters():
        if c["MODEL.FROZEN"] and name.startswith(c["MODEL.FROZEN"]):
            one.requires_grad = False
    t = SimpleNamespace(run=run, model=model, ema=None, optimizer=build_optimizer(c, model), seen=0, trouble=trouble,
                        data=build_data(c, seed, bug), outputs=[], lot=torch.Generator().manual_seed(seed),
                        healthy=healthy)  # fmt: skip
    if c["MODEL.EMA_DECAY"]:
        t.ema = copy.deepcopy(model)
    watch(t)
    while update < steps:
        update = train_one_epoch(c, t, update, epoch, again)
        epoch += 1
        validate(c, t, update - 1, bug)
    return t.run
