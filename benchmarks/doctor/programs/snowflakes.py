"""A compact transformer behind a tokenizer of convolutions tells six kinds of drawn snowflakes, strongly augmented.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step`: loss, norm, lr, accuracy; by `run.log`: gallery/ce, gallery/acc1 at each epoch's end; the
      watch of data.

Two operations of a list are drawn for each batch, pieces of other pictures are cut in with their labels; tokens are
pooled by attention, rates decay by layers and are set by hand from the fraction of an epoch; an average of the weights
may be what is looked at. Functions and an argparse-like namespace, as a fork of a known repository has it.
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

EVERY, KINDS, SIDE, GALLERY = 20, 6, 18, 240
IMAGENET = torch.tensor([0.485, 0.456]), torch.tensor([0.229, 0.224])
CONFIG: dict[str, Any] = {
    "width": 36, "layers": 2, "num_heads": 3, "attn_drop": 0.0, "path_drop": 0.05, "bn_momentum": 0.1, "bsz": 32,
    "iters_to_accumulate": 1, "base_rate": 3e-3, "floor_rate": 0.02, "rise_epochs": 0.6, "rate_by": "cosine",
    "layer_decay": 0.8, "wd": 0.05, "max_norm": 3.0, "opt": "adamw", "plates": 640, "shots_per_flake": 1,
    "cutmix": 0.5, "aug_ops": 2, "aug_times": 1, "label_smoothing": 0.1, "melt": 1.0, "mistaken": 0.0, "ema": 0.0,
    "frozen": "", "pool": "attention", "soft": "mean", "even_draw": False,
}  # fmt: skip


def crystals(seed: int, number: int, each: int = 1, melt: float = 1.0, wrong: float = 0.0) -> tuple[Tensor, Tensor]:
    """Pictures (number, 2, SIDE, SIDE) from 0 to 1: what is bright and what is dark light; and kinds.
    each: photographs of one flake, which is turned between them."""
    dice = torch.Generator().manual_seed(seed)
    flakes = number // each
    kind = torch.randint(0, KINDS, (flakes,), generator=dice).repeat_interleave(each)
    own = torch.rand(flakes, 4, 1, 1, generator=dice).repeat_interleave(each, 0)
    turn = 6.28 * torch.rand(len(kind), 1, 1, generator=dice)
    y, x = torch.meshgrid(torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij")
    x, y = x + 0.3 * (own[:, 0] - 0.5), y + 0.3 * (own[:, 1] - 0.5)
    r, angle = (x * x + y * y).sqrt(), torch.atan2(y, x) + turn
    six = torch.cos(6 * angle)
    three, along = 0.5 + 0.5 * torch.cos(3 * angle), x * turn.cos() + y * turn.sin()
    shapes = [0.75 - r + 0 * six, 0.55 + 0.3 * six - r, torch.cos(9 * r) * (r < 0.9) - 0.2,
              0.3 * six + torch.cos(8 * r), 0.9 * three - r, torch.cos(7 * along)]  # fmt: skip
    drawn = torch.sigmoid((5 + 4 * own[:, 2]) * torch.stack(shapes, 1)[torch.arange(len(kind)), kind])
    bright, dark = 0.15 + 0.6 * drawn * (0.6 + 0.4 * own[:, 3]), 0.7 - 0.4 * drawn
    pictures = torch.stack([bright, dark], 1) + 0.12 * melt * torch.randn(len(kind), 2, SIDE, SIDE, generator=dice)
    chance = torch.randint(0, KINDS, kind.shape, generator=dice)
    return pictures.clamp(0, 1), torch.where(torch.rand(kind.shape, generator=dice) < wrong, chance, kind)


def turned(x: Tensor) -> Tensor:
    return x.rot90(int(torch.randint(0, 4, ())), (2, 3))


def moved(x: Tensor) -> Tensor:
    down, right = torch.randint(-3, 4, (2,)).tolist()
    return x.roll((down, right), (2, 3))


def lit(x: Tensor) -> Tensor:
    return x * (0.7 + 0.6 * torch.rand(len(x), 2, 1, 1)) + 0.4 * (torch.rand(len(x), 1, 1, 1) - 0.5)


def torn(x: Tensor) -> Tensor:
    top, left = torch.randint(0, SIDE - 6, (2,)).tolist()
    x = x.clone()
    x[:, :, top : top + 6, left : left + 6] = 0.0
    return x


def blurred(x: Tensor) -> Tensor:
    return 0.5 * x + 0.5 * F.avg_pool2d(x, 3, 1, 1)


def augment(args: Any, x: Tensor) -> Tensor:
    ops = [turned, moved, lit, torn, blurred]
    for at in torch.randperm(len(ops))[: args.aug_ops].tolist():
        x = ops[at](x)
    return x.flip(3) if torch.rand(()) < 0.5 else x


def cut_in(args: Any, x: Tensor, soft: Tensor, bug: str) -> tuple[Tensor, Tensor]:
    """A piece of another picture, and as much of its label."""
    if torch.rand(()) >= args.cutmix:
        return x, soft
    order, high = torch.randperm(len(x)), int(torch.randint(4, 12, ()))
    top, left = torch.randint(0, SIDE - high, (2,)).tolist()
    x = x.clone()
    x[:, :, top : top + high, left : left + high] = x[order, :, top : top + high, left : left + high]
    share = high * high / SIDE**2
    if bug == "cut_in_share_of_rest":
        share = 1 - share
    return x, (1 - share) * soft + share * soft[order]


class Layer(nn.Module):
    def __init__(self, args: Any, path_drop: float, bug: str):
        super().__init__()
        d, self.heads, self.path_drop, self.bug = args.width, args.num_heads, path_drop, bug
        self.ln1, self.ln2, self.drop = nn.LayerNorm(d), nn.LayerNorm(d), nn.Dropout(args.attn_drop)
        self.to_qkv, self.proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d)
        self.fc1, self.fc2 = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def path(self, x: Tensor) -> Tensor:
        if not self.path_drop or not (self.training or self.bug == "paths_dropped_in_gallery"):
            return x
        return x * (torch.rand(len(x), 1, 1) >= self.path_drop) / (1 - self.path_drop)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.to_qkv(self.ln1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.path(self.drop(self.proj(y)))
        return x + self.path(self.drop(self.fc2(F.gelu(self.fc1(self.ln2(x))))))


class CompactTransformer(nn.Module):
    def __init__(self, args: Any, kinds: int, bug: str):
        super().__init__()
        d, self.bug, self.pool = args.width, bug, args.pool
        self.tokenizer = nn.Sequential(
            nn.Conv2d(2, d // 2, 3, 1, 1, bias=False), nn.BatchNorm2d(d // 2, momentum=args.bn_momentum), nn.ReLU(),
            nn.MaxPool2d(3, 3), nn.Conv2d(d // 2, d, 3, 1, 1),
        )  # fmt: skip
        tokens = (SIDE // 3) ** 2
        at = torch.arange(tokens)[:, None] / 10 ** (torch.arange(0, d, 2) / d * 2)
        self.register_buffer("places", 0.3 * torch.stack([at.sin(), at.cos()], -1).flatten(1))
        self.blocks = nn.ModuleList(Layer(args, args.path_drop * one, bug) for one in range(1, args.layers + 1))
        self.norm, self.seq_pool, self.classifier = nn.LayerNorm(d), nn.Linear(d, 1), nn.Linear(d, kinds)

    def forward(self, x: Tensor) -> Tensor:
        x = self.tokenizer(x).flatten(2).mT + self.places
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        x = x.mean(1) if self.pool == "mean" else (self.seq_pool(x).softmax(1).mT @ x)[:, 0]
        y = self.classifier(x)
        return y.softmax(1) if self.bug == "classifier_says_shares" else y


def soft_cross_entropy(args: Any, out: Tensor, soft: Tensor, bug: str) -> Tensor:
    each = -(soft * out.log_softmax(1)).sum(1)
    if bug == "soft_targets_summed":
        return each.sum()
    return each.sum() / len(out) if args.soft == "sum" else each.mean()


def layer_of(name: str, layers: int) -> int:
    if name.startswith("tokenizer"):
        return 0
    return int(name.split(".")[1]) + 1 if name.startswith("blocks") else layers + 1


def param_groups(args: Any, model: nn.Module) -> list[dict[str, Any]]:
    """Groups by layer and by whether they decay; what lies deep below has a lower rate."""
    groups: dict[tuple[int, bool], dict[str, Any]] = {}
    for name, one in model.named_parameters():
        if one.requires_grad:
            key = layer_of(name, args.layers), one.dim() > 1
            scale = args.layer_decay ** (args.layers + 1 - key[0])
            made = groups.setdefault(key, {"params": [], "lr_scale": scale, "weight_decay": args.wd * key[1]})
            made["params"].append(one)
    return list(groups.values())


def optimizer_of(args: Any, model: nn.Module) -> Any:
    groups = param_groups(args, model)
    if args.opt == "sgd":
        return torch.optim.SGD(groups, args.base_rate, 0.9)
    if args.opt == "adam_amsgrad":
        return torch.optim.Adam(groups, args.base_rate, amsgrad=True)
    return torch.optim.AdamW(groups, args.base_rate, (0.9, 0.98))


def adjust_rate(args: Any, optimizer: Any, epoch: float) -> float:
    """Set rates from how many epochs, with their fractions, are behind."""
    if epoch < args.rise_epochs:
        share = (epoch + 0.05) / (args.rise_epochs + 0.05)
    else:
        past = (epoch - args.rise_epochs) / (args.epochs - args.rise_epochs)
        if args.rate_by == "restarts":
            past = 2 * past % 1
        cosine = args.floor_rate + (1 - args.floor_rate) * 0.5 * (1 + math.cos(math.pi * past))
        share = {"none": 1.0, "stairs": 0.3 ** int(3 * past)}.get(args.rate_by, cosine)
    for group in optimizer.param_groups:
        group["lr"] = args.base_rate * share * group["lr_scale"]
    return args.base_rate * share


def sets_of(args: Any, seed: int, bug: str) -> dict[str, Tensor]:
    x, y = crystals(seed + 5300, args.plates, args.shots_per_flake, args.melt, args.mistaken)
    gallery, gallery_y = crystals(54, GALLERY, 1, args.melt)
    mean, std = x.mean((0, 2, 3)), x.std((0, 2, 3))
    x = (x - mean[:, None, None]) / std[:, None, None]
    if bug == "gallery_scaled_by_imagenet":
        mean, std = IMAGENET
    gallery = (gallery - mean[:, None, None]) / std[:, None, None]
    return {"x": x, "y": y + (bug == "folder_of_leftovers_counted"), "gallery": gallery, "gallery_y": gallery_y}


def loader(args: Any, sets: dict[str, Tensor], lot: torch.Generator, bug: str) -> list[Tensor]:
    order = torch.randperm(len(sets["y"]), generator=lot)
    if bug == "plates_kind_by_kind":
        order = sets["y"].argsort(stable=True)
    if args.even_draw:  # as many of each kind, with repetition
        weight = 1 / sets["y"].bincount().clamp(min=1)[sets["y"]].float()
        order = torch.multinomial(weight, len(sets["y"]), True, generator=lot)
    if args.aug_times > 1:  # a picture is in its batch more than once, each time augmented otherwise
        order = order[: len(order) // args.aug_times].repeat_interleave(args.aug_times)
    return [one for one in order.split(args.bsz) if len(one) == args.bsz]


def look_at_gallery(t: Any, args: Any, step: int, bug: str) -> None:
    model = t.model if t.average is None else t.average
    if bug == "average_stays_for_training" and t.average is not None:
        t.model.load_state_dict(t.average.state_dict())
    model.eval()
    x, y = t.sets["gallery"], t.sets["gallery_y"]
    with torch.no_grad():
        out = model(x)
        loss = F.cross_entropy(out, y)
    t.run.log({"gallery/ce": loss.item(), "gallery/acc1": (out.argmax(1) == y).float().mean().item()}, step=step)


@torch.no_grad()
def follow(args: Any, average: nn.Module, model: nn.Module) -> None:
    for mine, theirs in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
        if mine.dtype.is_floating_point:
            mine.lerp_(theirs, 1 - args.ema)


def watched(t: Any) -> None:
    time_by_own_clock(t.run)
    t.run.watch(t.model, t.optimizer)
    t.data = t.run.watch_data()


def build(run: Any, args: Any, seed: int, bug: str) -> Any:
    torch.manual_seed(seed)
    model = CompactTransformer(args, KINDS + (bug == "folder_of_leftovers_counted"), bug)
    named = list(model.named_parameters())
    for at, (name, one) in enumerate(named):
        if args.frozen and name.startswith(args.frozen):
            one.requires_grad = False
        if bug == "all_but_last_two_frozen":  # of a notebook that tunes what has been trained
            one.requires_grad = at >= len(named) - 2
    t = SimpleNamespace(run=run, model=model, average=None, sets=sets_of(args, seed, bug))
    t.optimizer = optimizer_of(args, model)
    if args.ema:
        t.average = copy.deepcopy(model).eval()
        t.followed = copy.deepcopy(model) if bug == "average_follows_a_copy" else model
    watched(t)
    return t


def resumed(t: Any, args: Any, step: int) -> None:
    seen, average = t.data.state(), {} if t.average is None else t.average.state_dict()
    state = {"model": t.model.state_dict(), "optimizer": t.optimizer.state_dict(), "average": average}
    t.run, saved = go_on(t.run, step, state)
    t.model.load_state_dict(saved["model"])
    t.optimizer = optimizer_of(args, t.model)
    t.optimizer.load_state_dict(saved["optimizer"])
    watched(t)
    t.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    args, trouble = SimpleNamespace(**run.config), Trouble(fault, seed)
    bug, again, step, epoch, parts = trouble.name, trouble.resume_at(healthy, 4 * EVERY), 0, 0, args.iters_to_accumulate
    t, lot = build(run, args, seed, bug), torch.Generator().manual_seed(seed)
    each = len(t.sets["y"]) // args.bsz // parts
    args.epochs = steps / each
    t.model.train()
    while step < steps:
        groups = loader(args, t.sets, lot, bug)
        for first in range(0, len(groups) - parts + 1, parts):
            if step == again:
                resumed(t, args, step)
            if bug != "gallery_leaves_model_in_eval":
                t.model.train()
            rate = adjust_rate(args, t.optimizer, step if bug == "iteration_given_for_epoch" else step / each)
            total, right = 0.0, 0.0
            with t.run.step(step=step) as timed:
                for some in groups[first : first + parts]:
                    x, y = t.sets["x"][some], t.sets["y"][some]
                    t.data.observe({"picture": x, "kind": y}, step=step, epoch=epoch)
                    soft = F.one_hot(y, t.model.classifier.out_features).float()
                    soft = (1 - args.label_smoothing) * soft + args.label_smoothing / soft.shape[1]
                    x, soft = cut_in(args, augment(args, x), soft, bug)
                    out = t.model(x)
                    loss = soft_cross_entropy(args, out, soft, bug)
                    (loss if bug == "soft_losses_accumulated_whole" else loss / parts).backward()
                    total += loss.item() / (1 if bug == "soft_losses_accumulated_whole" else parts)
                    right += (out.argmax(1) == y).float().mean().item() / parts
                norm = nn.utils.clip_grad_norm_(t.model.parameters(), args.max_norm).item()
                timed.set(loss=total, norm=norm, lr=rate, accuracy=right)
                t.optimizer.step()
                t.optimizer.zero_grad()
            if t.average is not None:
                follow(args, t.average, t.followed)
            trouble.telemetry(t.run, step, healthy)
            step += 1
            if step == steps:
                break
        epoch += 1
        look_at_gallery(t, args, step - 1, bug)
    return t.run
