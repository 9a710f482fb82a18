"""Two views of one photograph of a moth are brought together, those of others apart; nobody says which species it is.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss/contrastive, optim/lr each step; val/contrastive, val/knn_acc at each epoch's end.

A convolutional network with batch norm and a head for the loss, which is thrown away afterwards; views are shifted,
flipped, brighter, noisy; NT-Xent over both views of a batch; momentum, and a rate that is told the epoch. Features are
judged by the species of their neighbours. One function that trains, as in a notebook.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, SPECIES, SIZE, KNOWN, TEST = 24, 6, 12, 240, 240
CONFIG: dict[str, Any] = {
    "channels": 12, "features": 48, "proj_dim": 24, "proj_dropout": 0.0, "temperature": 0.2, "batch": 32, "lr": 0.03,
    "momentum": 0.9, "schedule": "cosine", "weight_decay": 1e-4, "optimizer": "sgd", "photos": 768,
    "photos_per_moth": 1, "norm": "batch", "bn_momentum": 0.1, "freeze": "", "sum_by_rows": False, "grain": 0.05,
    "brightness": 0.3, "shift": 2, "symmetric": True, "warm_epochs": 1, "clip": 0.0,
}  # fmt: skip
USUAL = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])  # of photographs of everything


def photographs(seed: int, number: int, each: int = 1) -> tuple[Tensor, Tensor]:
    """Pictures (number, 3, SIZE, SIZE) between 0 and 1, dark as at night, and species. each: of one moth."""
    dice = torch.Generator().manual_seed(seed)
    moths = number // each
    species = torch.randint(0, SPECIES, (moths,), generator=dice)
    own = torch.rand(moths, 5, generator=dice)
    species, own = species.repeat_interleave(each), own.repeat_interleave(each, 0)
    y, x = torch.meshgrid(torch.linspace(-1, 1, SIZE), torch.linspace(-1, 1, SIZE), indexing="ij")
    away = (y[None] ** 2 + (x[None].abs() - 0.4) ** 2).sqrt()
    turn = ((species % 3) * 1.05 + 0.2 * own[:, 0])[:, None, None]
    wave = torch.sin((5 + 2.0 * (species // 3))[:, None, None] * (turn.cos() * x.abs() + turn.sin() * y)
                     + 6.3 * own[:, 1, None, None])  # fmt: skip
    wing = torch.sigmoid(12 * (0.55 + 0.15 * own[:, 2, None, None] - away))
    colour = 0.25 + 0.1 * own[:, 2:5]
    pictures = 0.08 + wing[:, None] * (colour[:, :, None, None] + 0.16 * wave[:, None])
    return (pictures + 0.04 * torch.randn(len(species), 3, SIZE, SIZE, generator=dice)).clamp(0, 1), species


def views(c: dict[str, Any], pictures: Tensor, dice: torch.Generator) -> Tensor:
    """Pictures as an augmentation makes them: each has its own shift, flip, brightness and noise."""
    number = len(pictures)
    wide = F.pad(pictures, (c["shift"],) * 4, mode="replicate")
    at = torch.randint(0, 2 * c["shift"] + 1, (2, number), generator=dice)
    rows, columns = (one[:, None] + torch.arange(SIZE) for one in at)
    made = wide[torch.arange(number)[:, None, None], :, rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)
    flipped = torch.rand(number, 1, 1, 1, generator=dice) < 0.5
    made = torch.where(flipped, made.flip(3), made)
    lighter = 1 + c["brightness"] * (2 * torch.rand(number, 3, 1, 1, generator=dice) - 1)
    return made * lighter + c["grain"] * torch.randn(made.shape, generator=dice)


class MothNet(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        n, f = c["channels"], c["features"]

        def norm(width: int) -> nn.Module:
            return nn.GroupNorm(4, width) if c["norm"] == "group" else nn.BatchNorm2d(width, momentum=c["bn_momentum"])

        self.backbone = nn.Sequential(
            nn.Conv2d(3, n, 3, padding=1, bias=False), norm(n), nn.ReLU(),
            nn.Conv2d(n, 2 * n, 3, 2, padding=1, bias=False), norm(2 * n), nn.ReLU(),
            nn.Conv2d(2 * n, f, 3, 2, padding=1, bias=False), norm(f), nn.ReLU(),
        )  # fmt: skip
        self.projector = nn.Sequential(nn.Linear(f, f), nn.ReLU(), nn.Dropout(c["proj_dropout"]),
                                       nn.Linear(f, c["proj_dim"]))  # fmt: skip

    def embed(self, pictures: Tensor) -> Tensor:
        return self.backbone(pictures).mean((2, 3))

    def forward(self, pictures: Tensor) -> Tensor:
        return self.projector(self.embed(pictures))


def nt_xent(c: dict[str, Any], z: Tensor, bug: str = "") -> Tensor:
    """z: first views, then second views of the same pictures."""
    half = len(z) // 2
    z = F.normalize(z, dim=1)
    scores = z @ z.T / c["temperature"]
    scores = scores.masked_fill(torch.eye(2 * half, dtype=torch.bool), -1e9)
    partner = torch.arange(2 * half).roll(half)
    if bug == "partner_index_off_by_one":
        partner = (torch.arange(2 * half) + half - 1) % (2 * half)
    if not c["symmetric"]:
        scores, partner = scores[:half], partner[:half]
    if bug == "probabilities_go_into_loss":
        scores = scores.softmax(1)
    if bug == "criterion_left_as_sum":
        return F.cross_entropy(scores, partner, reduction="sum")
    if c["sum_by_rows"]:
        return F.cross_entropy(scores, partner, reduction="sum") / len(partner)
    return F.cross_entropy(scores, partner)


def configure(c: dict[str, Any], net: nn.Module) -> tuple[Any, Any]:
    some = [one for one in net.parameters() if one.requires_grad]
    if c["optimizer"] == "sgd":
        optimizer: Any = torch.optim.SGD(some, c["lr"], c["momentum"], weight_decay=c["weight_decay"], nesterov=True)
    else:
        optimizer = torch.optim.AdamW(some, c["lr"], weight_decay=c["weight_decay"])
    epochs = max(2, c["steps"] // EVERY)

    def share(epoch: int) -> float:
        if epoch < c["warm_epochs"]:
            return 0.3
        past = min(1.0, (epoch - c["warm_epochs"]) / (epochs - c["warm_epochs"]))
        return 1.0 if c["schedule"] == "constant" else max(0.01, 0.5 * (1 + math.cos(math.pi * past)))

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)


def neighbours(net: MothNet, known: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> float:
    """How often a photograph has the species of most of its nine neighbours."""
    with torch.no_grad():
        mine, theirs = (F.normalize(net.embed(one), dim=1) for one in (test[0], known[0]))
    near = known[1][(mine @ theirs.T).topk(9, 1).indices]
    votes = F.one_hot(near, SPECIES).sum(1)
    return (votes.argmax(1) == test[1]).float().mean().item()


def both_sets(c: dict[str, Any], seed: int, bug: str) -> Any:
    """The training's pictures with their species, those that are held out, and the figures that scale them."""
    rows, test = photographs(seed + 410, c["photos"], c["photos_per_moth"]), photographs(41, TEST)
    if c["photos_per_moth"] > 1:
        order = torch.randperm(len(rows[1]), generator=torch.Generator().manual_seed(seed + 4))
        rows = rows[0][order], rows[1][order]
        if bug == "moths_on_both_sides":
            rows, test = (rows[0][TEST:], rows[1][TEST:]), (rows[0][:TEST], rows[1][:TEST])
    if bug == "table_in_class_order":
        order = rows[1].argsort(stable=True)
        rows = rows[0][order], rows[1][order]
    return rows, test, (rows[0].mean((0, 2, 3)), rows[0].std((0, 2, 3)))


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    c, trouble, step, epoch = dict(run.config), Trouble(fault, seed), 0, 0
    bug, kept, size = trouble.name, [], int(c["batch"])
    torch.manual_seed(seed)
    rows, test, figures = both_sets(c, seed, bug)
    net, lot = MothNet(c), torch.Generator().manual_seed(seed)
    for name, one in net.named_parameters():
        if c["freeze"]:
            one.requires_grad = not name.startswith(c["freeze"])
        if bug == "freeze_pattern_wrong":  # left from the evaluation of a network that had been trained
            one.requires_grad = not name.startswith("backbone")
    optimizer, scheduler = configure(c, net)
    time_by_own_clock(run)
    run.watch(net, optimizer)

    def scaled(pictures: Tensor, held_out: bool = False) -> Tensor:
        mean, std = USUAL if held_out and bug == "val_scaled_by_usual_figures" else figures
        return (pictures - mean[:, None, None]) / std[:, None, None]

    def examine() -> None:
        net.eval()
        dice = torch.Generator().manual_seed(4100)
        two = torch.cat([scaled(views(c, test[0], dice), True) for _ in range(2)])
        with torch.set_grad_enabled(bug == "val_outputs_keep_graphs"):
            z = net(two)
            loss = torch.stack([nt_xent({**c, "symmetric": True}, torch.cat([one, other])) for one, other in zip(
                z[:TEST].split(size), z[TEST:].split(size), strict=True) if len(one) == size]).mean()  # fmt: skip
        if bug == "val_outputs_keep_graphs":
            kept.append(z)
        known = scaled(rows[0][:KNOWN]), rows[1][:KNOWN]
        run.log({"val/contrastive": loss.item(),
                 "val/knn_acc": neighbours(net, known, (scaled(test[0], True), test[1]))}, step=step - 1)  # fmt: skip
        if bug != "train_mode_set_once":
            net.train()

    again = trouble.resume_at(healthy, 3 * EVERY)
    net.train()
    while step < steps:
        order = torch.randperm(len(rows[0]), generator=lot)
        if bug == "table_in_class_order":
            order = torch.arange(len(order))
        for some in list(order.split(size))[: len(order) // size]:
            if step == again:
                run, states = go_on(run, step, [one.state_dict() for one in (net, optimizer, scheduler)])
                net.load_state_dict(states[0])
                optimizer, scheduler = configure(c, net)
                scheduler.load_state_dict(states[2])
                optimizer.load_state_dict(states[1])
                optimizer.param_groups[0]["lr"] = scheduler.get_last_lr()[0]
                time_by_own_clock(run)
                run.watch(net, optimizer)
            first = views(c, rows[0][some], lot)
            second = first if bug == "both_views_alike" else views(c, rows[0][some], lot)
            loss = nt_xent(c, net(scaled(torch.cat([first, second]))), bug)
            optimizer.zero_grad()
            loss.backward()
            if c["clip"]:
                nn.utils.clip_grad_norm_(net.parameters(), c["clip"])
            optimizer.step()
            run.log({"loss/contrastive": loss.item(), "optim/lr": optimizer.param_groups[0]["lr"]}, step=step)
            if bug == "epoch_schedule_in_batch_loop":
                scheduler.step()
            trouble.telemetry(run, step, healthy)
            step += 1
            if step == steps:
                break
        if bug != "epoch_schedule_in_batch_loop":
            scheduler.step()
        epoch += 1
        examine()
    return run
