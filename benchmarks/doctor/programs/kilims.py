"""A stem of convolutions and two blocks of attention tell six regions by their kilims, under strong augmentation.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train_ce, train_top1, lr each step; test_ce, test_top1 at each epoch's end; the watch of
      data.

Pictures are flipped, shifted, dyed otherwise, holes are torn into them, and two are mixed with their labels; stochastic
depth; AdamW, whose rate is told the epoch; an average of the weights may be what is tested. A script's functions over
one name space, as those who train vision transformers have it.
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
from torch.utils.data import DataLoader, TensorDataset

EVERY, REGIONS, SIDE, TEST = 20, 6, 16, 240
CONFIG: dict[str, Any] = {
    "embed_dim": 32, "depth": 2, "heads": 4, "drop_rate": 0.0, "drop_path": 0.05, "samples_per_gpu": 32,
    "accum_iter": 1, "blr": 4e-3, "min_lr": 1e-5, "warmup_epochs": 1, "lr_policy": "cosine", "weight_decay": 0.05,
    "clip_grad": 5.0, "opt_name": "adamw", "n_train": 640, "shots_of_each": 1, "mixup_alpha": 0.2, "reprob": 0.25,
    "color_jitter": 0.3, "hflip": 0.5, "smoothing": 0.0, "bn_mom": 0.1, "freeze_prefix": "", "model_ema_decay": 0.0,
    "worn": 1.0, "mislabelled": 0.0, "loss_reduction": "mean", "pos_embed": "learned", "pool": "mean",
}  # fmt: skip
PILOT = torch.tensor([0.62, 0.60, 0.55]), torch.tensor([0.11, 0.10, 0.12])  # of photographs in a museum's light


def weave(seed: int, number: int, each: int = 1, worn: float = 1.0, wrong: float = 0.0) -> tuple[Tensor, Tensor]:
    """Pictures (number, 3, SIDE, SIDE) from 0 to 1, and regions, by pattern. each: photographs of one kilim."""
    dice = torch.Generator().manual_seed(seed)
    rugs = number // each
    region = torch.randint(0, REGIONS, (rugs,), generator=dice)
    own = torch.rand(rugs, 4, 1, 1, generator=dice)
    y, x = torch.meshgrid(torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij")
    x, y = x + 0.4 * (own[:, 0] - 0.5), y + 0.4 * (own[:, 1] - 0.5)
    often, phase = 5 + 3 * own[:, 2], 6.28 * own[:, 3]
    shapes = [1.3 * (x * x + y * y).sqrt(), y, x, 0.8 * (x + y), 1.6 * x * y, y + 0.3 * (6 * x).sin()]
    wool = torch.stack([torch.sin(often * shape + phase) for shape in shapes], 1)[torch.arange(rugs), region]
    dye = torch.rand(rugs, 3, 1, 1, generator=dice)
    lit = torch.sigmoid(5 * wool)[:, None]
    pictures = (0.2 + 0.6 * (dye * lit + (dye + 0.5) % 1 * (1 - lit))).repeat_interleave(each, 0)
    pictures = pictures + 0.10 * worn * torch.randn(pictures.shape, generator=dice)
    region = region.repeat_interleave(each)
    chance = torch.randint(0, REGIONS, region.shape, generator=dice)
    lost = torch.rand(len(chance) // each, generator=dice).repeat_interleave(each) < wrong
    return pictures.clamp(0, 1), torch.where(lost, chance, region)


def augment(args: Any, x: Tensor) -> Tensor:
    """Each picture has its own flip, dye and hole; the batch has one shift."""
    number = len(x)
    x = torch.where(torch.rand(number, 1, 1, 1) < args.hflip, x.flip(3), x)
    down, right = torch.randint(0, 5, (2,)).tolist()
    x = F.pad(x, (2, 2, 2, 2), mode="reflect")[:, :, down : down + SIDE, right : right + SIDE]
    x = x * (1 + args.color_jitter * (2 * torch.rand(number, 3, 1, 1) - 1))
    if args.reprob:
        place, corner = torch.arange(SIDE), torch.randint(0, SIDE - 5, (2, number, 1))
        rows, columns = ((place >= one) & (place < one + 6) for one in corner)
        torn = (rows[:, :, None] & columns[:, None, :])[:, None] & (torch.rand(number, 1, 1, 1) < args.reprob)
        x = x.masked_fill(torn, 0.0)
    return x


class Block(nn.Module):
    def __init__(self, args: Any, drop_path: float):
        super().__init__()
        d = args.embed_dim
        self.norm1, self.norm2, self.drop_path = nn.LayerNorm(d), nn.LayerNorm(d), drop_path
        self.attn = nn.MultiheadAttention(d, args.heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Dropout(args.drop_rate), nn.Linear(2 * d, d))

    def path(self, x: Tensor) -> Tensor:
        if not self.training or not self.drop_path:
            return x
        return x * (torch.rand(len(x), 1, 1) >= self.drop_path) / (1 - self.drop_path)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.path(self.attn(y, y, y, need_weights=False)[0])
        return x + self.path(self.mlp(self.norm2(x)))


class KilimNet(nn.Module):
    def __init__(self, args: Any, regions: int, bug: str):
        super().__init__()
        d, self.bug, self.pool = args.embed_dim, bug, args.pool
        self.stem = nn.Sequential(
            nn.Conv2d(3, d // 2, 3, 2, 1, bias=False), nn.BatchNorm2d(d // 2, momentum=args.bn_mom), nn.GELU(),
            nn.Conv2d(d // 2, d, 3, 2, 1, bias=False), nn.BatchNorm2d(d, momentum=args.bn_mom), nn.GELU(),
        )  # fmt: skip
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, (SIDE // 4) ** 2, d))
        if args.pos_embed == "none":
            self.pos_embed.data.zero_().requires_grad_(False)
            self.pos_embed.requires_grad = False
        self.blocks = nn.Sequential(*[Block(args, args.drop_path * at) for at in range(1, args.depth + 1)])
        self.norm, self.head_drop = nn.LayerNorm(d), nn.Dropout(args.drop_rate)
        self.head = nn.Linear(d, regions)

    def forward_features(self, x: Tensor) -> Tensor:
        x = self.norm(self.blocks(self.stem(x).flatten(2).transpose(1, 2) + self.pos_embed))
        return x.amax(1) if self.pool == "max" else x.mean(1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.head(self.head_drop(self.forward_features(x)))
        return y.softmax(-1) if self.bug == "head_ends_with_softmax" else y


class ModelEma:
    """An average of a model, kept as a module of its own."""

    def __init__(self, model: nn.Module, decay: float, bug: str):
        self.module, self.decay, self.bug = copy.deepcopy(model).eval(), decay, bug

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        for mine, theirs in zip(self.module.parameters(), model.parameters(), strict=True):
            mine.lerp_(theirs, 1 - self.decay)
        if self.bug != "ema_of_parameters_alone":
            for mine, theirs in zip(self.module.buffers(), model.buffers(), strict=True):
                mine.copy_(theirs)


def create_optimizer(args: Any, model: nn.Module) -> tuple[Any, Any]:
    named = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    groups = [{"params": [one for _, one in named if one.dim() > 1], "weight_decay": args.weight_decay},
              {"params": [one for _, one in named if one.dim() < 2], "weight_decay": 0.0}]  # fmt: skip
    groups = [group for group in groups if group["params"]]
    if args.opt_name == "sgd":
        optimizer: Any = torch.optim.SGD(groups, args.blr, 0.9)
    elif args.opt_name == "radam":
        optimizer = torch.optim.RAdam(groups, args.blr)
    else:
        optimizer = torch.optim.AdamW(groups, args.blr, (0.9, 0.95))
    epochs = max(2, args.steps // EVERY)

    def share(epoch: int) -> float:
        if epoch < args.warmup_epochs:
            return (epoch + 1) / (args.warmup_epochs + 1)
        past = min(1.0, (epoch - args.warmup_epochs) / (epochs - args.warmup_epochs))
        if args.lr_policy == "restarts":
            past = 2 * past % 1.0
        falls = {"flat": 1.0, "step": 0.2 if past > 0.6 else 1.0}
        return falls.get(args.lr_policy, args.min_lr / args.blr + 0.5 * (1 + math.cos(math.pi * past)))

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)


def build_datasets(args: Any, seed: int, bug: str) -> tuple[TensorDataset, Tensor, Tensor]:
    x, y = weave(seed + 4300, args.n_train, args.shots_of_each, args.worn, args.mislabelled)
    test, test_y = weave(43, TEST, worn=args.worn)
    if bug == "shots_dealt_after_shooting":  # `random_split` of all photographs
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
        test, test_y, x, y = x[order[:TEST]], y[order[:TEST]], x[order[TEST:]], y[order[TEST:]]
    if bug == "image_folder_unshuffled":
        order = y.argsort(stable=True)
        x, y = x[order], y[order]
    mean, std = x.mean((0, 2, 3)), x.std((0, 2, 3))
    x = (x - mean[:, None, None]) / std[:, None, None]
    if bug == "test_scaled_by_pilot":
        mean, std = PILOT
    test = (test - mean[:, None, None]) / std[:, None, None]
    return TensorDataset(x, y + (bug == "annotations_from_one")), test, test_y


def criterion(args: Any, out: Tensor, y: Tensor, bug: str) -> Tensor:
    if bug == "mixed_losses_summed":
        return F.cross_entropy(out, y, reduction="sum", label_smoothing=args.smoothing)
    if args.loss_reduction == "sum":
        return F.cross_entropy(out, y, reduction="sum", label_smoothing=args.smoothing) / len(y)
    return F.cross_entropy(out, y, label_smoothing=args.smoothing)


def mixed_loss(args: Any, model: nn.Module, x: Tensor, y: Tensor, bug: str) -> tuple[Tensor, float]:
    """The loss of a batch that is augmented and mixed, and how often the larger part is told."""
    x, lam = augment(args, x), 1.0
    if args.mixup_alpha:
        lam = float(torch.distributions.Beta(args.mixup_alpha, args.mixup_alpha).sample())
        lam = max(lam, 1 - lam)
    out = model(lam * x + (1 - lam) * x.flip(0))
    mine, other = criterion(args, out, y, bug), criterion(args, out, y.flip(0), bug)
    top1 = (out.argmax(1) == y).float().mean().item()
    if bug == "mix_shares_swapped":
        lam = 1 - lam
    return lam * mine + (1 - lam) * other, top1


def evaluate(t: Any, args: Any, step: int, test: Tensor, test_y: Tensor, bug: str) -> None:
    model = t.model
    if t.ema is not None:
        model = t.ema.module
        if bug == "ema_copied_back_for_test":
            t.model.load_state_dict(t.ema.module.state_dict())
    if bug != "tested_without_eval":
        model.eval()
    else:
        model.train()
    with torch.set_grad_enabled(bug == "test_loop_under_grad"):
        out = torch.cat([model(some) for some in test.split(48)])
        loss = F.cross_entropy(out, test_y)
    if bug == "test_loop_under_grad":
        t.outputs.append(out)
    top1 = (out.argmax(1) == test_y).float().mean().item()
    t.run.log({"test_ce": loss.item(), "test_top1": top1}, step=step)


def watched(t: Any) -> None:
    time_by_own_clock(t.run)
    t.run.watch(t.model, t.optimizer)
    t.data = t.run.watch_data()


def resumed(t: Any, args: Any, step: int, bug: str) -> None:
    memory = t.data.state()
    names = [one for one in ("model", "optimizer", "scheduler") if one != "optimizer" or bug != "adam_state_not_saved"]
    t.run, saved = go_on(t.run, step, {one: getattr(t, one).state_dict() for one in names})
    t.optimizer, t.scheduler = create_optimizer(args, t.model)
    for name in names:
        getattr(t, name).load_state_dict(saved[name])
    for group, rate in zip(t.optimizer.param_groups, t.scheduler.get_last_lr(), strict=True):
        group["lr"] = rate
    watched(t)
    t.data.restore(memory)


def prepared(run: Any, args: Any, bug: str) -> Any:
    """The model, what trains it, and its average."""
    model = KilimNet(args, REGIONS + (bug == "annotations_from_one"), bug)
    for name, one in model.named_parameters():
        if args.freeze_prefix and name.startswith(args.freeze_prefix):
            one.requires_grad = False
        if bug == "linear_probe_left_on":  # of the evaluation of a network that has been trained
            one.requires_grad = name.startswith("head")
    t = SimpleNamespace(run=run, model=model, outputs=[], ema=None)
    if args.model_ema_decay:
        t.ema = ModelEma(model, args.model_ema_decay, bug)
    t.optimizer, t.scheduler = create_optimizer(args, model)
    watched(t)
    return t


def train_mode(model: nn.Module, bug: str) -> None:
    model.train()
    if bug == "norms_kept_in_eval":  # as is done where a network is tuned that has been trained
        for one in model.modules():
            if isinstance(one, nn.BatchNorm2d):
                one.eval()


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    args, trouble = SimpleNamespace(**run.config), Trouble(fault, seed)
    bug, step, epoch = trouble.name, 0, 0
    torch.manual_seed(seed)
    rows, test, test_y = build_datasets(args, seed, bug)
    t, again = prepared(run, args, bug), trouble.resume_at(healthy, 4 * EVERY)
    lot = torch.Generator().manual_seed(seed)
    loader = DataLoader(rows, args.samples_per_gpu, shuffle=bug != "image_folder_unshuffled", drop_last=True,
                        generator=lot)  # fmt: skip
    train_mode(t.model, bug)
    while step < steps:
        if step == again:
            resumed(t, args, step, bug)
        if bug != "train_called_before_epochs":
            train_mode(t.model, bug)
        total, right = 0.0, 0.0
        for at, (x, y) in enumerate(loader, 1):
            t.data.observe({"image": x, "label": y}, step=step, epoch=epoch)
            loss, top1 = mixed_loss(args, t.model, x, y, bug)
            (loss if bug == "accum_iter_not_divided" else loss / args.accum_iter).backward()
            total, right = total + loss.item() / args.accum_iter, right + top1 / args.accum_iter
            if at % args.accum_iter:
                continue
            nn.utils.clip_grad_norm_(t.model.parameters(), args.clip_grad)
            rate = t.optimizer.param_groups[0]["lr"]
            t.optimizer.step()
            t.optimizer.zero_grad()
            if t.ema is not None and bug != "ema_moved_per_epoch":
                t.ema.update(t.model)
            if bug == "epoch_policy_per_iteration":
                t.scheduler.step()
            t.run.log({"train_ce": total, "train_top1": right, "lr": rate}, step=step)
            trouble.telemetry(t.run, step, healthy)
            step, total, right = step + 1, 0.0, 0.0
            if step == steps:
                break
        t.optimizer.zero_grad()
        if bug != "epoch_policy_per_iteration":
            t.scheduler.step()
        if t.ema is not None and bug == "ema_moved_per_epoch":
            t.ema.update(t.model)
        epoch += 1
        evaluate(t, args, step - 1, test, test_y, bug)
    return t.run
