"""A diffusion model draws letters as a pen moves: 24 points of a stroke, of which the clean ones are foretold.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: denoise/x0_mse, denoise/lr each step; sampler/x0_mse and, by letter, the worst letter's at
      each epoch's end; the watch of data.

Time is a number from 0 to 1 and noise follows a quarter of a circle; a mixer over points whose layers time and letter
scale and shift; losses are weighed by a clamped ratio of signal and noise. An average of the weights with a half-life
is what is sampled with. A dataclass of settings, and an engine with a hook behind each epoch.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

EVERY, POINTS, LETTERS, HELD = 20, 24, 7, 210
NONE = LETTERS + 1  # the row for a letter that is not told
TABLET = 3.1, 1.9  # how far a pen was from the corner, and spread, on the tablet of the pilot


@dataclass
class Hyper:
    hidden: int = 40
    n_mixers: int = 3
    p_drop: float = 0.0
    strokes_per_batch: int = 32
    parts_per_update: int = 1
    adam_lr: float = 4e-3
    lr_gamma: float = 0.7  # an epoch
    lr_mode: str = "exponential"
    rise_updates: int = 8
    max_gradient: float = 1.0
    album: int = 640
    pens_of_each: int = 1
    halflife: float = 6.0
    halflife_from: int = 0
    untold: float = 0.1
    snr_cap: float = 1.0
    error: str = "square"
    solver: str = "adam"
    still: str = ""
    shake: float = 1.0
    misread: float = 0.0
    least_time: float = 0.02
    by_letter: bool = False
    steps: int = 0

    @classmethod
    def of(cls, config: dict[str, Any]) -> Hyper:
        return cls(**{one.name: config[one.name] for one in fields(cls) if one.name in config})


CONFIG: dict[str, Any] = {one.name: one.default for one in fields(Hyper) if one.name != "steps"}


def album(seed: int, number: int, each: int = 1, shake: float = 1.0, misread: float = 0.0) -> tuple[Tensor, Tensor]:
    """Strokes (number, 2, POINTS) in tablet units, and letters. each: how often one stroke was traced again."""
    dice = torch.Generator().manual_seed(seed)
    own = number // each
    letter, some = torch.randint(0, LETTERS, (own,), generator=dice), torch.rand(own, 5, 1, generator=dice)
    at = torch.linspace(0, 1, POINTS)[None]
    turns = torch.tensor([[1.0, 1.0], [1.0, 2.0], [2.0, 1.0], [1.0, 3.0], [0.5, 1.0], [1.5, 1.0], [0.5, 2.0]])[letter]
    phase = torch.tensor([0.0, 0.8, 1.6, 0.4, 2.4, 2.0, 1.2])[letter][:, None]
    x = torch.cos(6.28 * turns[:, :1] * at + phase + 0.6 * (some[:, 0] - 0.5))
    y = torch.sin(6.28 * turns[:, 1:] * at + 0.6 * (some[:, 1] - 0.5))
    slant = 0.8 * (some[:, 2] - 0.5)
    stroke = torch.stack([(x + slant * y) * (0.7 + 0.5 * some[:, 3]), y * (0.7 + 0.5 * some[:, 4])], 1)
    stroke, letter = stroke.repeat_interleave(each, 0), letter.repeat_interleave(each)
    stroke = 5 + 2 * (stroke + 0.05 * shake * torch.randn(stroke.shape, generator=dice))
    chance = torch.randint(0, LETTERS, letter.shape, generator=dice)
    return stroke, torch.where(torch.rand(letter.shape, generator=dice) < misread, chance, letter)


class Mixer(nn.Module):
    """Over points and over channels; what is told scales and shifts both."""

    def __init__(self, h: Hyper):
        super().__init__()
        d = h.hidden
        self.norm_p, self.norm_c = (nn.LayerNorm(d, elementwise_affine=False) for _ in range(2))
        self.points = nn.Sequential(nn.Linear(POINTS, 2 * POINTS), nn.GELU(), nn.Linear(2 * POINTS, POINTS))
        self.channels = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Dropout(h.p_drop), nn.Linear(2 * d, d))
        self.film = nn.Linear(d, 4 * d)
        nn.init.zeros_(self.film.weight)
        nn.init.zeros_(self.film.bias)

    def forward(self, x: Tensor, told: Tensor) -> Tensor:
        a, b, c, d = self.film(told)[:, None].chunk(4, -1)
        x = x + self.points((self.norm_p(x) * (1 + a) + b).mT).mT
        return x + self.channels(self.norm_c(x) * (1 + c) + d)


class PenNet(nn.Module):
    def __init__(self, h: Hyper):
        super().__init__()
        d = h.hidden
        self.pen, self.place = nn.Linear(2, d), nn.Parameter(0.1 * torch.randn(POINTS, d))
        self.time, self.letter = nn.Sequential(nn.Linear(16, d), nn.SiLU(), nn.Linear(d, d)), nn.Embedding(NONE + 1, d)
        self.mixers = nn.ModuleList(Mixer(h) for _ in range(h.n_mixers))
        self.norm, self.out = nn.LayerNorm(d), nn.Linear(d, 2)

    def forward(self, x: Tensor, t: Tensor, letter: Tensor) -> Tensor:
        waves = t[:, None] * 3.14 * 2.0 ** torch.arange(8)
        told = F.silu(self.time(torch.cat([waves.sin(), waves.cos()], 1)) + self.letter(letter))
        y = self.pen(x.mT) + self.place
        for mixer in self.mixers:
            y = mixer(y, told)
        return self.out(self.norm(y)).mT


class Smooth:
    """Weights of which half are forgotten in so many updates."""

    def __init__(self, net: nn.Module, h: Hyper, bug: str):
        self.net, self.h, self.updates = copy.deepcopy(net).eval(), h, 0
        # settings of long trainings give it in thousands of pictures, here it is told in updates
        self.halflife = h.halflife * 1000 / 16 if bug == "halflife_in_kilopictures" else h.halflife

    @torch.no_grad()
    def follow(self, net: nn.Module) -> None:
        self.updates += 1
        if self.updates <= self.h.halflife_from:
            self.net.load_state_dict(net.state_dict())
            return
        kept = 0.5 ** (1 / self.halflife)
        torch._foreach_lerp_(list(self.net.parameters()), list(net.parameters()), 1 - kept)

    def state_dict(self) -> dict[str, Any]:
        return {"net": self.net.state_dict(), "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.updates = state["updates"]


def noisy(x: Tensor, t: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """What is seen at these times, and the ratio of signal and noise there."""
    turn = (t * math.pi / 2)[:, None, None]
    return turn.cos() * x + turn.sin() * noise, (turn.cos() / turn.sin()).square().flatten()


class Engine:
    def __init__(self, run: Any, seed: int, bug: str):
        self.run, self.h, self.bug, self.said = run, Hyper.of(dict(run.config)), bug, []  # type: ignore[var-annotated]
        torch.manual_seed(seed)
        self.dice, self.lot = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed + 1)
        self.make_sets(seed)
        self.net = PenNet(self.h)
        for name, one in self.net.named_parameters():
            if self.h.still and name.startswith(self.h.still):
                one.requires_grad = False
            if bug == "film_layers_tuned_alone":  # as where a drawing net learns letters that it did not know
                one.requires_grad = "film" in name or name.startswith("letter")
        self.smooth = Smooth(self.net, self.h, bug)
        self.set_up()

    def make_sets(self, seed: int) -> None:
        h, bug = self.h, self.bug
        x, letter = album(seed + 4900, h.album, h.pens_of_each, h.shake, h.misread)
        held, held_letter = album(50, HELD, 1, h.shake)
        mean, std = x.mean(), x.std()
        x = (x - mean) / std
        if bug == "sampler_scaled_by_tablet":
            mean, std = TABLET  # type: ignore[assignment]
        self.held, self.held_letter = (held - mean) / std, held_letter
        if bug == "letters_counted_from_one":  # the album's file begins at 1, the held-out one's at 0
            letter = letter + 1
        if bug == "album_letter_by_letter" or h.by_letter:
            order = letter.argsort(stable=True)
            x, letter = x[order], letter[order]
        self.loader: Any = DataLoader(TensorDataset(x, letter), h.strokes_per_batch, drop_last=True,
                                      shuffle=bug != "album_letter_by_letter", generator=self.lot)  # fmt: skip

    def set_up(self) -> None:
        h, some = self.h, [one for one in self.net.parameters() if one.requires_grad]
        if h.solver == "momentum":
            self.optimizer: Any = torch.optim.SGD(some, h.adam_lr, 0.9)
        elif h.solver == "adamax":
            self.optimizer = torch.optim.Adamax(some, h.adam_lr)
        else:
            self.optimizer = torch.optim.Adam(some, h.adam_lr, (0.9, 0.99))
        each = max(1, len(self.loader) // h.parts_per_update)

        def share(at: int) -> float:
            epoch = at if self.bug == "gamma_taken_each_update" else at // each
            if h.lr_mode == "cyclic":
                return 1 - 0.8 * (at % (h.steps // 3)) / (h.steps // 3)
            fall = {"constant": 1.0, "inverse_root": (1 + at / 20) ** -0.5}.get(h.lr_mode, h.lr_gamma**epoch)
            return min(1.0, (at + 1) / h.rise_updates) * max(fall, 0.0)

        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)
        time_by_own_clock(self.run)
        self.run.watch(self.net, self.optimizer)
        self.data = self.run.watch_data()

    def objective(self, x: Tensor, letter: Tensor) -> Tensor:
        h, bug = self.h, self.bug
        if bug == "seed_set_each_batch":
            self.dice.manual_seed(7)
        t = h.least_time + (0.98 - h.least_time) * torch.rand(len(x), generator=self.dice)
        seen, ratio = noisy(x, t, torch.randn(x.shape, generator=self.dice))
        letter = letter.masked_fill(torch.rand(len(x), generator=self.dice) < h.untold, NONE)
        said = self.net(seen, t, letter)
        if bug == "clean_points_clipped_to_one":  # as for pictures, which go from -1 to 1
            said = said.clamp(-1, 1)
        if bug == "squares_of_strokes_totalled":
            return F.mse_loss(said, x, reduction="sum") / len(x)
        if h.error != "square":
            return F.l1_loss(said, x) if h.error == "absolute" else F.smooth_l1_loss(said, x, beta=0.3)
        weight = ratio.clamp(max=h.snr_cap) if h.snr_cap else torch.ones(len(x))
        return ((said - x).square().mean((1, 2)) * weight).sum() / weight.sum()

    def update(self, at: int, parts: list[list[Tensor]], epoch: int) -> None:
        h, total = self.h, 0.0
        for x, letter in parts:
            self.data.observe({"stroke": x, "letter": letter}, step=at, epoch=epoch)
            loss = self.objective(x, letter)
            whole = self.bug == "parts_of_update_not_divided"
            (loss if whole else loss / len(parts)).backward()
            total += loss.item() / len(parts)
        if h.max_gradient:
            nn.utils.clip_grad_norm_(self.net.parameters(), h.max_gradient)
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        self.smooth.follow(self.net)
        self.run.log({"denoise/x0_mse": total, "denoise/lr": rate}, step=at)

    def sample(self, at: int) -> None:
        """How well clean strokes are foretold at times of all kinds, by the average; the same noise each time."""
        net, dice = self.smooth.net, torch.Generator().manual_seed(51)
        if self.bug == "average_poured_into_net":
            net = self.net
            net.load_state_dict(self.smooth.net.state_dict())
        if self.bug == "sampled_in_training_mode":
            net.train()
        else:
            net.eval()
        with torch.set_grad_enabled(self.bug == "sampler_keeps_its_tape"):
            t = 0.02 + 0.96 * torch.rand(len(self.held), generator=dice)
            seen, _ = noisy(self.held, t, torch.randn(self.held.shape, generator=dice))
            each = (net(seen, t, self.held_letter) - self.held).square().mean((1, 2))
        if self.bug == "sampler_keeps_its_tape":
            self.said.append(each)
        worst = max(each[self.held_letter == one].mean().item() for one in range(LETTERS))
        self.run.log({"sampler/x0_mse": each.mean().item(), "sampler/worst_letter": worst}, step=at)

    def resume(self, at: int) -> None:
        seen, parts = self.data.state(), [self.net, self.smooth, self.optimizer, self.schedule]
        self.run, states = go_on(self.run, at, [one.state_dict() for one in parts])
        self.set_up()
        for number, one in enumerate((self.net, self.smooth, self.optimizer, self.schedule)):
            if number != 2 or self.bug != "moments_begin_anew":
                one.load_state_dict(states[number])
        self.optimizer.param_groups[0]["lr"] = self.schedule.get_last_lr()[0]
        self.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made, again, at, epoch = Engine(run, seed, trouble.name), trouble.resume_at(healthy, 4 * EVERY), 0, 0
    made.net.train()
    while at < steps:
        parts: list[list[Tensor]] = []
        if trouble.name != "mode_set_before_engine_runs":
            made.net.train()
        for part in made.loader:
            parts.append(part)
            if len(parts) < made.h.parts_per_update:
                continue
            if at == again:
                made.resume(at)
            made.update(at, parts, epoch)
            trouble.telemetry(made.run, at, healthy)
            at, parts = at + 1, []
            if at == steps:
                break
        epoch += 1
        if trouble.name == "mode_set_before_engine_runs":  # the net that trains is looked at too, and stays so
            made.net.eval()
        made.sample(at - 1)
    return made.run
