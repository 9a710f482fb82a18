"""Two towers match weather maps and the bulletins that were written of them.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: match/loss, match/top1, match/scale, match/lr each step; atlas/loss, atlas/r1, atlas/r5
      each twentieth, of a gallery; memory, where it matters; the watch of data.

A map is a field of pressure and one of rain on ten by ten places; a bulletin tells in words where the low lies, how
deep it is, how wet it is there and which season it is. Convolutions with batch norm read maps, a recurrent layer reads
bulletins; both end in a projection to a sphere, and a scale is learnt. What lies in one batch are each other's wrong
answers. Configuration, model, loss, data and loop stand one below the other, as in a script of a workshop.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, SIDE, WORDS, LONG, HELD = 20, 10, 48, 12, 160
PLACE_X, PLACE_Y, DEPTH, WET, SEASON, TALK = 1, 7, 13, 18, 23, 27
CONFIG: dict[str, Any] = {
    "image_width": 16, "text_width": 32, "embed_dim": 24, "dropout": 0.0, "norm_layer": "batch", "bn_momentum": 0.1,
    "init_temperature": 0.1, "learn_temperature": True, "max_scale": 50.0, "batch_size": 40, "accum_batches": 1,
    "optimizer": "adamw", "lr": 6e-3, "wd": 0.01, "text_lr_factor": 1.0, "warmup_steps": 10, "scheduler": "cosine",
    "clip_grad": 1.0, "loss_reduction": "mean", "smoothing": 0.0, "maps": 1600, "hours_of_each": 1, "rain_noise": 0.3,
    "chatter": 0.4, "deep_lows_first": 0, "frozen": "", "eval_every": 20, "log_every": 1,
}  # fmt: skip


# -- maps and bulletins ---------------------------------------------------------------------------------------------


def weather(seed: int, number: int, c: Any, hours: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Maps in hectopascals and millimetres, bulletins, seasons; in the order of the year. hours: of one state."""
    dice = torch.Generator().manual_seed(seed)
    states = number // hours
    season = torch.arange(states) * 4 // states
    x, y = (torch.randint(0, 6, (states,), generator=dice) for _ in range(2))
    depth, wet = (torch.randint(0, 5, (states,), generator=dice) for _ in range(2))
    season, x, y, depth, wet = (one.repeat_interleave(hours) for one in (season, x, y, depth, wet))
    at = torch.arange(SIDE).float()
    shift = 0.4 * torch.randn(2, len(x), 1, 1, generator=dice)
    far = (at.view(1, 1, -1) - 1.8 * x.view(-1, 1, 1) - shift[0]) ** 2
    far = far + (at.view(1, -1, 1) - 1.8 * y.view(-1, 1, 1) - shift[1]) ** 2
    base = torch.tensor([1016.0, 1012.0, 1018.0, 1008.0])[season].view(-1, 1, 1)
    tilt = torch.tensor([1.0, -1.0, 0.5, -0.5])[season].view(-1, 1, 1) * (at.view(1, -1, 1) - 4.5)
    low = (6 + 6 * depth).view(-1, 1, 1) * torch.exp(-far / 8)
    pressure = base + tilt - low + 0.8 * torch.randn(len(x), SIDE, SIDE, generator=dice)
    rain = (0.5 + 1.5 * wet).view(-1, 1, 1) * torch.exp(-far / 5)
    rain = (rain + c.rain_noise * torch.randn(rain.shape, generator=dice)).clamp(min=0)
    text = torch.zeros(len(x), LONG, dtype=torch.long)
    for row in range(len(x)):
        facts = [SEASON + int(season[row]), PLACE_X + int(x[row]), PLACE_Y + int(y[row])]
        facts += [DEPTH + int(depth[row]), WET + int(wet[row])]
        words = []
        for fact in facts:
            if float(torch.rand((), generator=dice)) < c.chatter:
                words.append(TALK + int(torch.randint(0, 20, (), generator=dice)))
            words.append(fact)
        text[row, : len(words)] = torch.tensor(words[:LONG])
    return torch.stack([pressure, rain], 1), text, season


def normalised(maps: Tensor) -> Tensor:
    mean, std = torch.tensor([1011.0, 1.2]), torch.tensor([8.0, 1.8])
    return (maps - mean.view(1, 2, 1, 1)) / std.view(1, 2, 1, 1)


# -- towers ---------------------------------------------------------------------------------------------------------


class MapTower(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        w = c.image_width

        def norm(channels: int) -> nn.Module:
            if c.norm_layer == "batch":
                return nn.BatchNorm2d(channels, momentum=c.bn_momentum)
            return nn.GroupNorm(4, channels)

        self.body = nn.Sequential(
            nn.Conv2d(2, w, 3, padding=1, bias=False), norm(w), nn.ReLU(),
            nn.Conv2d(w, 2 * w, 3, stride=2, padding=1, bias=False), norm(2 * w), nn.ReLU(),
        )  # fmt: skip
        self.drop, self.proj = nn.Dropout(c.dropout), nn.Linear(2 * w * 25, c.embed_dim)

    def forward(self, maps: Tensor) -> Tensor:
        return self.proj(self.drop(self.body(maps).flatten(1)))


class TextTower(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.words, self.gru = nn.Embedding(WORDS, c.text_width, padding_idx=0), nn.GRU(c.text_width, c.text_width,
                                                                                     batch_first=True)  # fmt: skip
        self.drop, self.proj = nn.Dropout(c.dropout), nn.Linear(c.text_width, c.embed_dim)

    def forward(self, text: Tensor) -> Tensor:
        states = self.gru(self.drop(self.words(text)))[0]
        known = (text != 0)[..., None]
        return self.proj(self.drop((states * known).sum(1) / known.sum(1)))


class Matcher(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        self.visual, self.textual, self.c, self.bug = MapTower(c), TextTower(c), c, bug
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / c.init_temperature)))
        self.logit_scale.requires_grad_(c.learn_temperature)

    def scale(self) -> Tensor:
        if self.bug == "similarities_times_the_temperature":
            return 1 / self.logit_scale.exp()
        return self.logit_scale.exp().clamp(max=self.c.max_scale)

    def forward(self, maps: Tensor, text: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        image, words = self.visual(maps), self.textual(text)
        if self.bug != "bulletins_off_the_sphere":
            words = F.normalize(words, dim=-1)
        return F.normalize(image, dim=-1), words, self.scale()


def contrastive(c: Any, logits: Tensor, bug: str, training: bool = True) -> Tensor:
    """Of both directions."""
    labels = torch.arange(len(logits))
    if bug == "similarities_softmaxed_before_the_loss":
        return (F.cross_entropy(logits.softmax(1), labels) + F.cross_entropy(logits.t().softmax(1), labels)) / 2
    how: dict[str, Any] = {}
    if training:
        total = bug == "cross_entropy_of_all_rows_totalled" or c.loss_reduction == "sum"
        how = {"reduction": "sum" if total else "mean", "label_smoothing": c.smoothing}
    return (F.cross_entropy(logits, labels, **how) + F.cross_entropy(logits.t(), labels, **how)) / 2


# -- set-up ---------------------------------------------------------------------------------------------------------


def make_data(s: SimpleNamespace, seed: int) -> None:
    c, bug = s.c, s.bug
    maps, text, season = weather(seed + 1860, c.maps, c, c.hours_of_each)
    held, held_text, _ = weather(1859, HELD, c)
    if bug == "hours_of_a_day_on_both_sides":
        order = torch.randperm(len(maps), generator=torch.Generator().manual_seed(seed))
        held, held_text, rest = maps[order[:HELD]], text[order[:HELD]], order[HELD:].sort().values
        maps, text, season = maps[rest], text[rest], season[rest]
    if bug == "first_map_missing_in_one_folder":  # files are joined by their place in a sorted list
        maps, text, season = maps[:-1], text[1:], season[1:]
    s.depth = (text >= DEPTH + 3).logical_and(text < WET).any(1)
    s.maps, s.text, s.season = normalised(maps), text, season
    s.held = normalised(held), held_text
    if bug == "gallery_scaled_by_its_own_reader":  # which takes the figures of the station's records, in other units
        scaled = (held - torch.tensor([1000.0, 0.0]).view(1, 2, 1, 1)) / torch.tensor([20.0, 5.0]).view(1, 2, 1, 1)
        s.held = scaled, held_text


def make_optimizer(s: SimpleNamespace) -> None:
    c, net = s.c, s.net
    trained = {name: one for name, one in net.named_parameters() if one.requires_grad}
    if s.bug == "towers_listed_under_an_old_name":  # the text tower was `text.` once
        trained = {name: one for name, one in trained.items() if name.startswith(("visual.", "text.", "logit"))}
    words = [one for name, one in trained.items() if name.startswith("textual")]
    rest = [one for name, one in trained.items() if not name.startswith("textual")]
    groups = [{"params": rest, "lr": c.lr}]
    if words:
        groups.append({"params": words, "lr": c.lr * c.text_lr_factor})
    if c.optimizer == "sgd":
        s.optimizer = torch.optim.SGD(groups, c.lr, 0.9, nesterov=True)
    elif c.optimizer == "adam":
        s.optimizer = torch.optim.Adam(groups, c.lr)
    else:
        s.optimizer = torch.optim.AdamW(groups, c.lr, (0.9, 0.98), weight_decay=c.wd)

    def share(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.warmup_steps)), min(1.0, at / c.steps)
        if c.scheduler == "constant":
            return rise
        if c.scheduler == "warm_restarts":
            return rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (3 * past % 1))))
        return rise * (0.005 + 0.995 * 0.5 * (1 + math.cos(math.pi * past)))

    s.scheduler = torch.optim.lr_scheduler.LambdaLR(s.optimizer, share)


def batches(s: SimpleNamespace, seed: int) -> Any:
    c, epoch, dice = s.c, 0, torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(s.maps), generator=dice)
        if s.bug == "year_read_from_january_on":
            order = torch.arange(len(s.maps))
        if epoch < c.deep_lows_first:
            order = order[s.depth[order]]
        lots = [one for one in order.split(c.batch_size) if len(one) == c.batch_size]
        yield from ((epoch, some) for some in lots)
        epoch += 1


def set_training(s: SimpleNamespace) -> None:
    s.net.train()
    if s.bug == "norms_held_as_in_fine_tuning":  # of towers that had been trained before
        for module in s.net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()


def retrieve(s: SimpleNamespace, step: int) -> None:
    """Losses and hits in a gallery."""
    taped = s.bug == "gallery_embeddings_under_autograd"
    if s.bug != "atlas_embedded_before_eval":
        s.net.eval()
    maps, text = s.held
    with torch.set_grad_enabled(taped):
        images, words = [], []
        for at in range(0, len(maps), 40):
            image, told, scale = s.net(maps[at : at + 40], text[at : at + 40])
            images.append(image)
            words.append(told)
        if taped:
            s.gallery.append((images, words))
        logits = scale * torch.cat(images) @ torch.cat(words).t()
        loss = sum(contrastive(s.c, logits[at : at + 40, at : at + 40], s.bug, training=False).item()
                   for at in range(0, len(maps), 40)) / (len(maps) // 40)  # fmt: skip
    order = (logits >= logits.diag()[:, None]).sum(1)
    said = {"atlas/loss": loss, "atlas/r1": (order <= 1).float().mean().item()}
    s.run.log(said | {"atlas/r5": (order <= 5).float().mean().item()}, step=step)
    if s.bug != "towers_stay_as_the_gallery_left_them":
        set_training(s)


def observe(s: SimpleNamespace) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.net, s.optimizer)
    s.watch = s.run.watch_data()


def resume(s: SimpleNamespace, step: int) -> None:
    seen = s.watch.state()
    state = {"state_dict": s.net.state_dict(), "optimizer": s.optimizer.state_dict(), "sched": s.scheduler.state_dict()}
    s.run, state = go_on(s.run, step, state)
    s.net.load_state_dict(state["state_dict"])
    make_optimizer(s)
    if s.bug != "pretrained_path_instead_of_resume":
        s.optimizer.load_state_dict(state["optimizer"])
        s.scheduler.load_state_dict(state["sched"])
    observe(s)
    s.watch.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, c = Trouble(fault, seed), SimpleNamespace(**run.config)
    bug, again, parts = trouble.name, trouble.resume_at(healthy, 4 * EVERY), c.accum_batches
    s = SimpleNamespace(run=run, c=c, bug=bug, gallery=[])
    make_data(s, seed)
    torch.manual_seed(seed)
    s.net = Matcher(c, bug)
    for name, one in s.net.named_parameters():
        if c.frozen and name.startswith(c.frozen):
            one.requires_grad_(False)
    make_optimizer(s)
    observe(s)
    stream = batches(s, seed)
    set_training(s)
    for step in range(steps):
        if step == again:
            resume(s, step)
        total = top1 = 0.0
        for _ in range(parts):
            epoch, some = next(stream)
            maps, text = s.maps[some], s.text[some]
            s.watch.observe({"map": maps, "bulletin": text}, step=step, epoch=epoch)
            image, words, scale = s.net(maps, text)
            logits = scale * image @ words.t()
            loss = contrastive(c, logits, bug)
            (loss if bug == "accum_batches_each_in_full" else loss / parts).backward()
            total += loss.item() / parts
            top1 += (logits.argmax(1) == torch.arange(len(logits))).float().mean().item() / parts
            if bug == "schedule_moves_with_each_forward":
                s.scheduler.step()
        nn.utils.clip_grad_norm_(s.net.parameters(), c.clip_grad)
        rate = s.optimizer.param_groups[0]["lr"]
        s.optimizer.step()
        s.optimizer.zero_grad()
        if bug != "schedule_moves_with_each_forward":
            s.scheduler.step()
        if step % c.log_every == 0:
            s.run.log(
                {"match/loss": total, "match/top1": top1, "match/scale": scale.item(), "match/lr": rate}, step=step
            )
        trouble.telemetry(s.run, step, healthy)
        if step % c.eval_every == c.eval_every - 1:
            retrieve(s, step)
    return s.run
