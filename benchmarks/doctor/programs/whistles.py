"""Two towers learn which record of a whistle belongs to which sound: a mel spectrogram, and a row of a catalogue.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: clap/train_loss, clap/train_acc, clap/scale, clap/lr, clap/norm each step; clap_val/loss,
      clap_val/recall_at_1 of a bank that was held back, each twentieth; memory, where it matters; the watch of data.

A dolphin's whistle goes up and down along a contour of its own; a clip has ten frames of twelve bands, with a ground of
noise. Its record tells a place, a species, the contour's shape, its lowest band and how long it lasts, in words. One
tower is made of convolutions with batch norm, the other is a small transformer. Towers meet on a sphere, with a learnt
scale, and each half of the loss asks a batch in one direction.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, BANDS, FRAMES, HELD = 20, 12, 10, 120
PLACES, SHAPES, LOWS, LONGS, WIDTHS = 5, 5, 6, 3, 3
TOKENS = PLACES + SHAPES + LOWS + LONGS + WIDTHS
CONFIG: dict[str, Any] = {
    "audio_width": 24, "text_width": 32, "joint_embed_dim": 24, "dropout": 0.0, "audio_norm": "batch",
    "batch_size": 40, "accum_freq": 1, "lr": 2e-3, "text_lr_mult": 1.0, "lr_scheduler": "cosine", "warmup": 10,
    "optimizer": "adamw", "wd": 0.02, "beta2": 0.98, "grad_clip_norm": 8.0, "init_logit_scale": 2.0, "max_scale": 4.6,
    "learn_scale": True, "loss": "clip", "reduction": "mean", "label_smoothing": 0.0, "clips": 1600,
    "windows_per_clip": 1, "sea_noise": 0.35, "lock": "", "loud_first_epochs": 0, "spec_augment": False,
    "val_frequency": 20, "log_every_n_steps": 1,
}  # fmt: skip


# -- whistles and their records -------------------------------------------------------------------------------------


def whistles(seed: int, clips: int, windows: int, noise: float) -> tuple[Tensor, Tensor, Tensor]:
    """Spectrograms in decibels, records and how loud they are; place after place. windows: of one clip."""
    dice = torch.Generator().manual_seed(seed)
    many = clips // windows

    def some(number: int) -> Tensor:
        return torch.randint(0, number, (many,), generator=dice)

    place, shape, low, long, width = some(PLACES).sort().values, some(SHAPES), some(LOWS), some(LONGS), some(WIDTHS)
    low = (low + place) // 2 + low // 3  # each place has its bands
    own = torch.rand(many, generator=dice)
    place, shape, low, long, width, own = (
        one.repeat_interleave(windows) for one in (place, shape, low, long, width, own)
    )  # fmt: skip
    many = len(place)
    at = torch.linspace(0, 1, FRAMES) - 0.08 * torch.rand(many, 1, generator=dice)
    curves = torch.stack([at, 1 - at, (2 * at - 1).abs(), 1 - (2 * at - 1).abs(), 0.5 + 0.5 * torch.sin(9 * at)], 1)
    curve = curves[torch.arange(many), shape] * (2.5 + 1.5 * width[:, None]) + low[:, None] + own[:, None]
    band = torch.arange(BANDS).view(1, -1, 1)
    lasts = (at <= 0.4 + 0.3 * long[:, None])[:, None]
    gain = 0.8 + 0.6 * torch.rand(many, 1, 1, generator=dice)
    tone = gain * torch.exp(-((band - curve[:, None]) ** 2) / 0.8) * lasts
    hum = 0.3 * torch.exp(-band / (2.0 + place.view(-1, 1, 1)))
    mel = 12 * (tone + hum + noise * torch.randn(many, BANDS, FRAMES, generator=dice)) - 40
    starts = torch.tensor([0, PLACES, PLACES + SHAPES, PLACES + SHAPES + LOWS, TOKENS - WIDTHS])
    record = torch.stack([place, shape, low.clamp(max=LOWS - 1), long, width], 1) + starts
    return mel, record, gain.flatten()


# -- towers ---------------------------------------------------------------------------------------------------------


class AudioTower(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.audio_width

        def norm(many: int) -> nn.Module:
            return nn.BatchNorm2d(many) if c.audio_norm == "batch" else nn.GroupNorm(4, many)

        self.features = nn.Sequential(
            nn.Conv2d(1, d, 3, padding=1, bias=False), norm(d), nn.ReLU(),
            nn.Conv2d(d, 2 * d, 3, 2, 1, bias=False), norm(2 * d), nn.ReLU(), nn.Dropout(c.dropout),
        )  # fmt: skip
        self.hidden = nn.Linear(2 * d * (BANDS // 2) * (FRAMES // 2), 2 * d)
        self.drop, self.proj = nn.Dropout(c.dropout), nn.Linear(2 * d, c.joint_embed_dim, bias=False)

    def forward(self, mel: Tensor) -> Tensor:
        return self.proj(self.drop(F.relu(self.hidden(self.features(mel[:, None]).flatten(1)))))


class TextTower(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.text_width
        self.token_embedding = nn.Embedding(TOKENS, d)
        self.positions = nn.Parameter(0.02 * torch.randn(5, d))
        self.ln_1, self.attn, self.ln_2 = (
            nn.LayerNorm(d),
            nn.MultiheadAttention(d, 4, batch_first=True),
            nn.LayerNorm(d),
        )
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        self.drop, self.ln_final = nn.Dropout(c.dropout), nn.LayerNorm(d)
        self.text_projection = nn.Linear(d, c.joint_embed_dim, bias=False)

    def forward(self, record: Tensor) -> Tensor:
        x = self.token_embedding(record) + self.positions
        y = self.ln_1(x)
        x = x + self.drop(self.attn(y, y, y, need_weights=False)[0])
        x = x + self.drop(self.mlp(self.ln_2(x)))
        return self.text_projection(self.ln_final(x).mean(1))


class CLAP(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        self.audio, self.text, self.bug = AudioTower(c), TextTower(c), bug
        self.logit_scale = nn.Parameter(torch.tensor(float(c.init_logit_scale)), requires_grad=c.learn_scale)
        self.logit_bias = nn.Parameter(torch.tensor(-2.0), requires_grad=c.loss == "siglip")

    def forward(self, mel: Tensor, record: Tensor) -> tuple[Tensor, Tensor]:
        sound, words = self.audio(mel), self.text(record)
        if self.bug != "sounds_not_put_on_the_sphere":
            sound = F.normalize(sound, dim=-1)
        return sound, F.normalize(words, dim=-1)


def contrast(c: Any, net: CLAP, sound: Tensor, words: Tensor, training: bool = True) -> tuple[Tensor, Tensor]:
    """The loss, and similarities."""
    bug = net.bug
    logits = net.logit_scale.exp() * sound @ words.T
    if bug == "similarities_pass_a_softmax_first":
        logits = logits.softmax(1)
    if c.loss == "siglip":
        sign = 2 * torch.eye(len(logits)) - 1
        return -F.logsigmoid(sign * (logits + net.logit_bias)).sum(1).mean(), logits
    wanted, soft = torch.arange(len(logits)), c.label_smoothing if training else 0.0
    summed = training and (c.reduction == "sum" or bug == "cross_entropies_left_as_sums")
    how = "sum" if summed else "mean"
    one = F.cross_entropy(logits, wanted, reduction=how, label_smoothing=soft)
    other = F.cross_entropy(logits.T, wanted, reduction=how, label_smoothing=soft)
    return (one + other) / 2, logits


# -- training -------------------------------------------------------------------------------------------------------


class Experiment:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        self.load()
        torch.manual_seed(seed)
        self.net = CLAP(self.c, bug)
        for name, one in self.net.named_parameters():
            if self.c.lock and name.startswith(self.c.lock):
                one.requires_grad_(False)
        if bug == "text_tower_locked_by_default":
            self.net.text.requires_grad_(False)
            self.net.text.text_projection.requires_grad_(True)
        self.build()
        self.bank: list[Any] = []

    def load(self) -> None:
        c = self.c
        mel, record, loud = whistles(self.seed + 410, c.clips, c.windows_per_clip, c.sea_noise)
        held, held_record, _ = whistles(409, HELD, 1, 0.35)
        if self.bug == "windows_cut_and_then_split":
            order = torch.randperm(len(mel), generator=torch.Generator().manual_seed(self.seed))
            mine, rest = order[:HELD], order[HELD:].sort().values
            held, held_record, mel, record, loud = mel[mine], record[mine], mel[rest], record[rest], loud[rest]
        if self.bug == "half_of_the_catalogue_is_a_row_late":  # one recorder's table had a line more at its head
            half = len(record) // 2
            record = torch.cat([record[:half], record[half:].roll(1, 0)])
            order = torch.randperm(half, generator=torch.Generator().manual_seed(3))
            mel[:half], record[:half], loud[:half] = mel[:half][order], record[:half][order], loud[:half][order]
        mean, std = mel.mean((0, 2), keepdim=True), mel.std((0, 2), keepdim=True)
        self.mel, self.record, self.loud = (mel - mean) / std, record, loud
        if self.bug == "statistics_of_amplitudes_for_decibels":
            mean, std = torch.tensor(-4.3), torch.tensor(4.6)
        self.held = (held - mean) / std, held_record

    def build(self) -> None:
        c, net = self.c, self.net
        some = [(name, one) for name, one in net.named_parameters() if one.requires_grad]
        if self.bug == "audio_encoder_under_its_former_name":  # groups by the names that modules had
            some = [(name, one) for name, one in some if name.startswith(("encoder_a", "text", "logit"))]
        groups = [
            {"params": [one], "lr": c.lr * (c.text_lr_mult if name.startswith("text") else 1.0),
             "weight_decay": c.wd if one.ndim > 1 else 0.0} for name, one in some
        ]  # fmt: skip
        if c.optimizer == "sgd":
            self.optimizer: Any = torch.optim.SGD(groups, c.lr, 0.9)
        elif c.optimizer == "adamax":
            self.optimizer = torch.optim.Adamax(groups, c.lr)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.lr, betas=(0.9, c.beta2))

        def share(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / self.steps)
            if c.lr_scheduler == "const":
                return rise
            if c.lr_scheduler == "cosine_restarts":
                return rise * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
            return rise * 0.5 * (1 + math.cos(math.pi * past))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def batches(self) -> Any:
        c, epoch, dice = self.c, 0, torch.Generator().manual_seed(self.seed)
        while True:
            order = torch.randperm(len(self.mel), generator=dice)
            if self.bug == "shards_read_place_after_place":
                order = torch.arange(len(self.mel))
            if epoch < c.loud_first_epochs:
                order = order[self.loud[order] > self.loud.median()]
            for some in order.split(c.batch_size):
                if len(some) == c.batch_size:
                    yield epoch, self.mel[some], self.record[some]
            epoch += 1

    def masked(self, mel: Tensor) -> Tensor:
        """A frame and a band of each clip are blanked."""
        if not self.c.spec_augment:
            return mel
        frame, band = torch.randint(0, FRAMES, (len(mel), 1, 1)), torch.randint(0, BANDS, (len(mel), 1, 1))
        hidden = (torch.arange(FRAMES).view(1, 1, -1) == frame) | (torch.arange(BANDS).view(1, -1, 1) == band)
        return mel.masked_fill(hidden, 0.0)

    def validate(self, step: int) -> None:
        taped, net = self.bug == "clip_bank_embedded_on_the_tape", self.net
        if self.bug != "bank_embedded_in_training_mode":
            net.eval()
        with torch.set_grad_enabled(taped):
            some = [net(*one) for one in zip(*(each.split(40) for each in self.held), strict=True)]
            sound, words = (torch.cat(one) for one in zip(*some, strict=True))
            loss = torch.stack([contrast(self.c, net, *one, training=False)[0] for one in some]).mean()
        if taped:
            self.bank.append((sound, words))
        same = (self.held[1][(sound @ words.T).argmax(1)] == self.held[1]).all(1).float().mean().item()
        self.run.log({"clap_val/loss": loss.item(), "clap_val/recall_at_1": same}, step=step)
        if self.bug != "towers_remain_as_the_bank_needs_them":
            self.mode()

    def mode(self) -> None:
        self.net.train()
        if self.bug == "audio_norms_held_as_if_pretrained":
            for module in self.net.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.eval()

    def observe(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.net, self.optimizer)
        self.watch = self.run.watch_data()

    def resume(self, step: int) -> None:
        seen = self.watch.state()
        state = {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "scheduler": self.scheduler.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, step, state)
        self.net.load_state_dict(state["net"])
        self.build()
        if self.bug != "towers_read_back_without_their_optimizer":
            self.optimizer.load_state_dict(state["optimizer"])
            self.scheduler.load_state_dict(state["scheduler"])
        self.observe()
        self.watch.restore(seen)

    def train(self, trouble: Trouble, healthy: str | None) -> None:
        c, again, stream, bug = self.c, trouble.resume_at(healthy, 4 * EVERY), self.batches(), self.bug
        self.observe()
        self.mode()
        for step in range(self.steps):
            if step == again:
                self.resume(step)
            total, right = 0.0, 0.0
            for _ in range(c.accum_freq):
                epoch, mel, record = next(stream)
                self.watch.observe({"mel": mel, "record": record}, step=step, epoch=epoch)
                loss, logits = contrast(c, self.net, *self.net(self.masked(mel), record))
                (loss if bug == "accum_freq_forgotten_in_the_loss" else loss / c.accum_freq).backward()
                total += loss.item() / c.accum_freq
                right += (logits.argmax(1) == torch.arange(len(logits))).float().mean().item() / c.accum_freq
                if bug == "rates_set_for_every_batch_of_accum":
                    self.scheduler.step()
            norm = nn.utils.clip_grad_norm_(self.net.parameters(), c.grad_clip_norm).item()
            rate = self.optimizer.param_groups[0]["lr"]
            self.optimizer.step()
            if bug != "rates_set_for_every_batch_of_accum":
                self.scheduler.step()
            self.net.zero_grad()
            with torch.no_grad():
                if bug == "scale_clamped_from_below_at_its_limit":
                    self.net.logit_scale.clamp_(min=c.max_scale)
                else:
                    self.net.logit_scale.clamp_(0, c.max_scale)
            if step % c.log_every_n_steps == 0:
                self.run.log({"clap/train_loss": total, "clap/train_acc": right, "clap/lr": rate, "clap/norm": norm,
                              "clap/scale": self.net.logit_scale.exp().item()}, step=step)  # fmt: skip
            trouble.telemetry(self.run, step, healthy)
            if step % c.val_frequency == c.val_frequency - 1:
                self.validate(step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    experiment = Experiment(run, seed, steps, trouble.name)
    experiment.train(trouble, healthy)
    return experiment.run
