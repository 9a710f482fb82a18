"""Two towers learn which description belongs to which picture of a costume: one reads colours, one reads words.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: align/infonce, align/top1, align/logit_scale, align/lr, align/gnorm each step;
      align_held/infonce and align_held/recall1 over a gallery, each thirty-second; memory, where it matters; the watch
      of data.

A costume has a garment, a colour, a pattern and a trim. Its picture is three colours by 8 by 8, photographed in some
light; its description names most of that, with small words between. Convolutions with batch norm read the picture, a
convolution over words and a mean read the description; cosines in a batch are scaled by a number that is learned. A
copy of the towers embeds the gallery. Written with a class for data, a class for the towers and an object that is
called with a batch.
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

EVERY, SIDE, LONG, HELD = 32, 8, 9, 160
GARMENTS, COLOURS, PATTERNS, TRIMS, SMALL = 6, 6, 4, 4, 5
PAD, GARMENT, COLOUR = 0, 1, 1 + GARMENTS
PATTERN, TRIM = COLOUR + COLOURS, COLOUR + COLOURS + PATTERNS
LITTLE = TRIM + TRIMS
WORDS = LITTLE + SMALL
CONFIG: dict[str, Any] = {
    "channels": 16, "embed": 24, "norm": "batch", "dropout": 0.0, "batch": 40, "splits": 1, "optimizer": "adamw",
    "lr": 4e-3, "text_lr_factor": 1.0, "schedule": "warm_cosine", "warmup": 8, "weight_decay": 1e-3, "max_norm": 5.0,
    "scale_start": 8.0, "learn_scale": True, "one_way": False, "sum_loss": False, "objective": "softmax",
    "costumes": 1600, "photos_each": 1, "wrong_captions": 0.0, "plain_first_epochs": 0, "erase": 0.0,
    "held_fixed": "", "probe_every": 32, "log_every": 1,
}  # fmt: skip


# -- costumes -------------------------------------------------------------------------------------------------------


def wardrobe(seed: int, number: int, photos: int = 1, wrong: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Pictures, descriptions and what they are of, garment after garment. photos: pictures of one costume."""
    laws, dice, many = torch.Generator().manual_seed(55), torch.Generator().manual_seed(seed), number // photos
    cuts = torch.rand(GARMENTS, SIDE, SIDE, generator=laws) < 0.55
    dyes = 0.15 + 0.8 * torch.rand(COLOURS, 3, generator=laws)
    edges = torch.rand(TRIMS, 3, generator=laws)
    across, down = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="xy")
    weave = torch.stack([torch.ones(SIDE, SIDE), (down % 2) * 1.0, ((across + down) % 2) * 1.0, (across % 3 > 0) * 1.0])
    garment = torch.arange(many) * GARMENTS // many
    rest = [torch.randint(0, size, (many,), generator=dice) for size in (COLOURS, PATTERNS, TRIMS)]
    kind = torch.stack([garment, *rest], 1).repeat_interleave(photos, 0)
    cloth = dyes[kind[:, 1], :, None, None] * (0.4 + 0.6 * weave[kind[:, 2]][:, None])
    picture = torch.where(cuts[kind[:, 0]][:, None], cloth, torch.full_like(cloth, 0.05))
    picture[:, :, 0] = edges[kind[:, 3]][:, :, None]
    light = 0.7 + 0.5 * torch.rand(len(kind), 1, 1, 1, generator=dice)
    picture = 255 * (light * picture + 0.06 * torch.randn(picture.shape, generator=dice)).clamp(0, 1)
    told = torch.full((len(kind), LONG), PAD)
    for at, row in enumerate(kind.tolist()):
        words = [TRIM + row[3], COLOUR + row[1], PATTERN + row[2], GARMENT + row[0]]
        if float(torch.rand((), generator=dice)) < 0.15:
            del words[int(torch.randint(0, 3, (), generator=dice))]
        for _ in range(int(torch.randint(0, 4, (), generator=dice))):
            place = int(torch.randint(0, len(words), (), generator=dice))
            words.insert(place, LITTLE + int(torch.randint(0, SMALL, (), generator=dice)))
        told[at, : len(words)] = torch.tensor(words)
    stray = torch.rand(len(kind), generator=dice) < wrong
    told[stray] = told[stray][torch.randperm(int(stray.sum()), generator=dice)]
    return picture, told, kind


class Wardrobe:
    """Rows of the training and of the gallery."""

    def __init__(self, c: Any, seed: int, bug: str):
        self.c, self.seed, self.bug = c, seed, bug
        picture, self.told, self.kind = wardrobe(seed + 4500, c.costumes, c.photos_each, c.wrong_captions)
        held, held_told, held_kind = wardrobe(4499, HELD)
        if bug == "photos_split_and_not_costumes":
            order = torch.randperm(len(picture), generator=torch.Generator().manual_seed(seed))
            mine, rest = order[:HELD], order[HELD:].sort().values
            held, held_told, held_kind = picture[mine], self.told[mine], self.kind[mine]
            picture, self.told, self.kind = picture[rest], self.told[rest], self.kind[rest]
        mean, std = picture.mean((0, 2, 3), keepdim=True), picture.std((0, 2, 3), keepdim=True)
        self.picture = (picture - mean) / std
        if bug == "captions_of_the_file_before":  # both lists are read from disk, one of them has a heading
            self.told = self.told.roll(1, 0)
        self.gallery = (held / 255 if bug == "gallery_pictures_not_standardised" else (held - mean) / std), held_told
        self.gallery_kind = held_kind

    def batches(self) -> Any:
        c, epoch, dice = self.c, 0, torch.Generator().manual_seed(self.seed)
        while True:
            order = torch.randperm(len(self.told), generator=dice)
            if self.bug == "lots_of_the_wardrobe_as_they_hang":
                order = torch.arange(len(self.told))
            if epoch < c.plain_first_epochs:
                order = order[self.kind[order, 2] == 0]
            for some in order.split(c.batch):
                if len(some) == c.batch:
                    yield epoch, self.blanked(self.picture[some], dice), self.told[some], self.kind[some]
            epoch += 1

    def blanked(self, picture: Tensor, dice: Any) -> Tensor:
        if not self.c.erase:
            return picture
        picture = picture.clone()
        for at in range(len(picture)):
            if float(torch.rand((), generator=dice)) < self.c.erase:
                x, y = torch.randint(0, SIDE - 2, (2,), generator=dice).tolist()
                picture[at, :, y : y + 3, x : x + 3] = 0
        return picture


# -- towers ---------------------------------------------------------------------------------------------------------


class PictureTower(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.channels

        def norm(wide: int) -> nn.Module:
            return nn.BatchNorm2d(wide) if c.norm == "batch" else nn.GroupNorm(4, wide)

        self.layers = nn.Sequential(
            nn.Conv2d(3, d, 3, padding=1), norm(d), nn.ReLU(), nn.Conv2d(d, 2 * d, 3, stride=2, padding=1),
            norm(2 * d), nn.ReLU(), nn.Flatten(), nn.Dropout(c.dropout), nn.Linear(32 * d, c.embed),
        )  # fmt: skip

    def forward(self, picture: Tensor) -> Tensor:
        return self.layers(picture)


class TextTower(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        self.bug, self.words = bug, nn.Embedding(WORDS, c.embed, padding_idx=PAD)
        self.near, self.drop = nn.Conv1d(c.embed, 2 * c.embed, 3, padding=1), nn.Dropout(c.dropout)
        self.out = nn.Sequential(nn.Linear(2 * c.embed, 2 * c.embed), nn.GELU(), nn.Linear(2 * c.embed, c.embed))

    def forward(self, told: Tensor) -> Tensor:
        x = F.gelu(self.near(self.words(told).transpose(1, 2))).transpose(1, 2)
        real = (told == PAD if self.bug == "caption_mask_is_of_the_padding" else told != PAD).float()[..., None]
        return self.out(self.drop((x * real).sum(1) / real.sum(1).clamp(min=1)))


class Matcher(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        self.c, self.bug, self.picture, self.text = c, bug, PictureTower(c), TextTower(c, bug)
        self.log_scale = nn.Parameter(torch.tensor(math.log(c.scale_start)), requires_grad=c.learn_scale)
        self.bias = nn.Parameter(torch.tensor(-3.0)) if c.objective == "sigmoid" else None

    def forward(self, picture: Tensor, told: Tensor) -> tuple[Tensor, Tensor]:
        dim = 0 if self.bug == "embeddings_normalised_over_the_batch" and self.training else 1
        return F.normalize(self.picture(picture), dim=dim), F.normalize(self.text(told), dim=dim)


def alike(kind: Tensor) -> Tensor:
    """Rows that are of the same costume, and no row itself."""
    return (kind[:, None] == kind[None]).all(2) & ~torch.eye(len(kind), dtype=torch.bool)


# -- training -------------------------------------------------------------------------------------------------------


class Alignment:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        c = self.c
        self.data, self.kept = Wardrobe(c, seed, bug), []
        torch.manual_seed(seed)
        self.net = Matcher(c, bug)
        held = tuple(filter(None, c.held_fixed.split(",")))
        for name, one in self.net.named_parameters():
            if (held and name.startswith(held)) or (
                bug == "picture_tower_held_though_it_is_new" and name.startswith("picture")
            ):
                one.requires_grad_(False)
        self.for_gallery = copy.deepcopy(self.net)
        self.begin()

    def begin(self) -> None:
        c, slow, fast = self.c, [], []
        for name, one in self.net.named_parameters():
            if self.bug == "text_layers_behind_the_words_not_in_groups" and name.startswith(("text.near", "text.out")):
                continue
            if one.requires_grad:
                (slow if name.startswith("text") else fast).append(one)
        groups = [{"params": fast, "lr": c.lr}, {"params": slow, "lr": c.lr * c.text_lr_factor}]
        groups = [group for group in groups if group["params"]]
        if c.optimizer == "sgd":
            self.optimizer: Any = torch.optim.SGD(groups, c.lr, 0.9)
        elif c.optimizer == "radam":
            self.optimizer = torch.optim.RAdam(groups, c.lr)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.lr, weight_decay=c.weight_decay)

        def share(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / self.steps)
            if c.schedule == "level":
                return rise
            turn = 2 * past % 1 if c.schedule == "restarts" else past
            return rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * turn)))

        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def __call__(self, picture: Tensor, told: Tensor, kind: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of a batch, and how many pictures have their description first."""
        c, bug = self.c, self.bug
        a, b = self.net(picture, told)
        scores = (a @ b.T * self.net.log_scale.exp()).masked_fill(alike(kind), -1e4)
        own = torch.arange(len(scores))
        hit = (scores.argmax(1) == own).float().mean()
        if c.objective == "sigmoid":
            wanted = 2 * torch.eye(len(scores)) - 1
            each = -F.logsigmoid(wanted * (scores + self.net.bias)).sum(1)
        elif bug == "similarities_given_as_shares":
            each = F.cross_entropy(scores.softmax(1), own, reduction="none")
        else:
            each = F.cross_entropy(scores, own, reduction="none")
            if not c.one_way:
                each = (each + F.cross_entropy(scores.T, own, reduction="none")) / 2
        return each.sum() if c.sum_loss or bug == "both_directions_summed" else each.mean(), hit

    def take_over(self) -> None:
        """Give the copy that embeds the gallery what was learnt."""
        if self.bug == "gallery_net_gets_parameters_alone":
            for one, mine in zip(self.for_gallery.parameters(), self.net.parameters(), strict=True):
                one.data.copy_(mine.data)
        else:
            self.for_gallery.load_state_dict(self.net.state_dict())

    def probe(self, step: int) -> None:
        taped = self.bug == "gallery_kept_with_its_history"
        self.take_over()
        net = self.for_gallery
        net.train(self.bug == "gallery_embedded_in_the_mode_of_training")
        self.net.eval()
        with torch.set_grad_enabled(taped):
            a, b = net(*self.data.gallery)
            scores = (a @ b.T * net.log_scale.exp()).masked_fill(alike(self.data.gallery_kind), -1e4)
            own = torch.arange(len(scores))
            loss = (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2
        if taped:
            self.kept.append((loss, scores))
        recall = (scores.argmax(1) == own).float().mean().item()
        self.run.log({"align_held/infonce": loss.item(), "align_held/recall1": recall}, step=step)
        if self.bug != "towers_stay_as_the_gallery_needs_them":
            self.net.train()

    def observe(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.net, self.optimizer)
        self.watch = self.run.watch_data()

    def resume(self, step: int) -> None:
        seen = self.watch.state()
        state = {"towers": self.net.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "schedule": self.schedule.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, step, state)
        self.net.load_state_dict(state["towers"])
        self.begin()
        if self.bug != "towers_loaded_without_their_moments":
            self.optimizer.load_state_dict(state["optimizer"])
            self.schedule.load_state_dict(state["schedule"])
        self.observe()
        self.watch.restore(seen)

    def update(self, step: int, stream: Any) -> dict[str, float]:
        c, total, top = self.c, 0.0, 0.0
        inside = self.bug == "schedule_inside_the_splits"
        for _ in range(c.splits):
            epoch, picture, told, kind = next(stream)
            self.watch.observe({"picture": picture, "words": told}, step=step, epoch=epoch)
            loss, hit = self(picture, told, kind)
            (loss if self.bug == "splits_each_with_a_whole_loss" else loss / c.splits).backward()
            total += loss.item() / c.splits
            top += hit.item() / c.splits
            if inside:
                self.schedule.step()
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), c.max_norm).item()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.net.zero_grad()
        if not inside:
            self.schedule.step()
        return {"align/infonce": total, "align/top1": top, "align/logit_scale": self.net.log_scale.exp().item(),
                "align/lr": rate, "align/gnorm": norm}  # fmt: skip


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made = Alignment(run, seed, steps, trouble.name)
    again, stream = trouble.resume_at(healthy, 2 * EVERY), made.data.batches()
    made.observe()
    made.net.train()
    for step in range(steps):
        if step == again:
            made.resume(step)
        said = made.update(step, stream)
        if step % made.c.log_every == 0:
            made.run.log(said, step=step)
        trouble.telemetry(made.run, step, healthy)
        if step % made.c.probe_every == made.c.probe_every - 1:
            made.probe(step)
    return made.run
