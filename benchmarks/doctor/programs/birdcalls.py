"""Calls of birds and sentences about them are matched pair by pair: a curve of pitch and loudness, a few words.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log` each second step: pairs/loss, pairs/scale, pairs/bias, pairs/lr; holdout/pair_loss,
      holdout/hit_at_1, holdout/hit_at_5 at each epoch's end.

Each of all pairs of a batch is told to belong together or not, by a sigmoid with a scale and a bias that are learnt;
convolutions with batch norm for calls, a recurrent layer over packed words for sentences. A dataclass of settings and a
trainer that owns what it trains, as in a laboratory's repository; AdamW in two groups, a cosine by steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

EVERY, LONG, HELD, PAD = 20, 40, 200, 0
BIRDS = ("wren", "lark", "rook", "tern", "owl", "finch")
WAYS, LOUDNESS, LENGTHS = ("rising", "falling", "level", "trilled"), ("soft", "loud"), ("short", "long")
WORDS = ("", "a", "an", "call", "of", "the", "once", "twice", "heard", "at", "dawn", "dusk", *BIRDS, *WAYS, *LOUDNESS,
         *LENGTHS)  # fmt: skip
CONFIG: dict[str, Any] = {
    "width": 24, "shared_dim": 32, "dropout": 0.0, "pairs_per_batch": 32, "base_lr": 5e-3, "decay": 0.01,
    "ramp_steps": 15, "anneal": "cosine", "train_calls": 640, "sentences_of_each": 1, "init_scale": 10.0,
    "init_bias": -6.0, "learn_scale": True, "bn_momentum": 0.1, "fixed_part": "", "optimiser": "adamw", "hiss": 0.15,
    "mismatched": 0.0, "norm_kind": "batch", "grad_norm": 0.0, "dropped_words": 0.0,
    "per_bird": 0, "objective": "sigmoid",
}  # fmt: skip


@dataclass
class Settings:
    width: int
    shared_dim: int
    dropout: float
    pairs_per_batch: int
    base_lr: float
    decay: float
    ramp_steps: int
    anneal: str
    train_calls: int
    sentences_of_each: int
    init_scale: float
    init_bias: float
    learn_scale: bool
    bn_momentum: float
    fixed_part: str
    optimiser: str
    hiss: float
    mismatched: float
    norm_kind: str
    grad_norm: float
    dropped_words: float
    per_bird: int
    objective: str
    steps: int

    @classmethod
    def of(cls, config: dict[str, Any]) -> Settings:
        return cls(**{one.name: config[one.name] for one in fields(cls)})


def recordings(seed: int, number: int, each: int, hiss: float) -> tuple[Tensor, list[list[int]], Tensor]:
    """Curves (number, 2, LONG) in hertz and decibels, sentences as numbers of words, and birds. each: sentences that
    are written of one call."""
    dice = torch.Generator().manual_seed(seed)
    calls, sentences, birds = [], [], []
    at = torch.linspace(0, 1, LONG)
    for _ in range(number // each):
        bird, way, loud, length, times, dusk = (
            int(torch.randint(0, many, (), generator=dice)) for many in (len(BIRDS), 4, 2, 2, 2, 2)
        )
        start, wide = 0.1 * torch.rand((), generator=dice), (0.28, 0.42)[length]
        sounds = ((at > start) & (at < start + wide)) | ((at > start + 0.5) & (at < start + 0.5 + wide) & (times > 0))
        inside = ((at - start) % 0.5) / wide
        turn = ((inside - 0.5), (0.5 - inside), torch.zeros(LONG), 0.5 * torch.sin(40 * inside))[way]
        pitch = (1200 + 500 * bird + 700 * turn) * sounds
        volume = (42 + 22 * loud + 4 * torch.rand((), generator=dice)) * sounds
        noise = torch.randn(2, LONG, generator=dice) * torch.tensor([[900.0], [20.0]]) * hiss
        for _ in range(each):
            calls.append(torch.stack([pitch, volume]) + noise * (0.9 + 0.2 * torch.rand((), generator=dice)))
            told = [LOUDNESS[loud], LENGTHS[length], WAYS[way]]
            told = [told[one] for one in torch.randperm(3, generator=dice).tolist()]
            words = ["a", *told, "call", "of", "the", BIRDS[bird], ("once", "twice")[times]]
            if torch.rand((), generator=dice) < 0.5:
                words = ["the", BIRDS[bird], "heard", ("once", "twice")[times], "at", ("dawn", "dusk")[dusk], *told]
            sentences.append([WORDS.index(word) for word in words])
            birds.append(bird)
    return torch.stack(calls), sentences, torch.tensor(birds)


class CallTower(nn.Module):
    def __init__(self, s: Settings):
        super().__init__()
        w = s.width

        def norm(wide: int) -> nn.Module:
            return nn.BatchNorm1d(wide, momentum=s.bn_momentum) if s.norm_kind == "batch" else nn.GroupNorm(4, wide)

        self.layers = nn.Sequential(
            nn.Conv1d(2, w, 5, 1, 2, bias=False), norm(w), nn.ReLU(),
            nn.Conv1d(w, w, 5, 2, 2, bias=False), norm(w), nn.ReLU(),
            nn.Conv1d(w, 2 * w, 5, 2, 2, bias=False), norm(2 * w), nn.ReLU(),
        )  # fmt: skip
        self.drop, self.out = nn.Dropout(s.dropout), nn.Linear(4 * w, s.shared_dim)

    def forward(self, curves: Tensor) -> Tensor:
        x = self.layers(curves)
        return self.out(self.drop(torch.cat([x.mean(2), x.amax(2)], 1)))


class WordTower(nn.Module):
    def __init__(self, s: Settings, bug: str):
        super().__init__()
        w, self.bug = s.width, bug
        self.words = nn.Embedding(len(WORDS), w, padding_idx=PAD)
        self.gru, self.drop = nn.GRU(w, 2 * w, batch_first=True), nn.Dropout(s.dropout)
        self.out = nn.Linear(2 * w, s.shared_dim)

    def forward(self, ids: Tensor) -> Tensor:
        long = (ids != PAD).sum(1)
        _, last = self.gru(pack_padded_sequence(self.words(ids), long, batch_first=True, enforce_sorted=False))
        return self.out(self.drop(last[0]))


class Matcher(nn.Module):
    def __init__(self, s: Settings, bug: str):
        super().__init__()
        self.bug, self.calls, self.sentences = bug, CallTower(s), WordTower(s, bug)
        self.scale = nn.Parameter(torch.tensor(math.log(s.init_scale)), requires_grad=s.learn_scale)
        self.bias = nn.Parameter(torch.tensor(float(s.init_bias)), requires_grad=s.learn_scale)

    def forward(self, curves: Tensor, ids: Tensor) -> Tensor:
        mine, theirs = F.normalize(self.calls(curves), dim=1), F.normalize(self.sentences(ids), dim=1)
        if self.bug == "tower_without_gradient" and self.training:
            theirs = theirs.detach()
        return self.scale.exp() * mine @ theirs.T + self.bias


def pair_loss(s: Settings, scores: Tensor, bug: str = "") -> Tensor:
    """scores: of each call with each sentence; those that belong together stand on the diagonal."""
    number = len(scores)
    signs = 2 * torch.eye(number) - 1
    if bug == "others_zero_not_minus_one":
        signs = torch.eye(number)
    if s.objective == "softmax":
        target = torch.arange(number)
        return 0.5 * (F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target))
    if bug == "chances_scored_as_logits":
        scores = scores.sigmoid()
    return -F.logsigmoid(signs * scores).sum() / number


class Trainer:
    def __init__(self, run: Any, seed: int, bug: str):
        self.run, self.s, self.bug, self.bank = run, Settings.of(dict(run.config)), bug, []  # type: ignore[var-annotated]
        s = self.s
        torch.manual_seed(seed)
        self.lot = torch.Generator().manual_seed(seed)
        self.load(seed)
        self.model = Matcher(s, bug)
        for name, one in self.model.named_parameters():
            if s.fixed_part and name.startswith(s.fixed_part):
                one.requires_grad = False
            if bug == "towers_locked_as_pretrained":  # as where image towers come from elsewhere
                one.requires_grad = not name.startswith(("calls.layers", "sentences.words", "sentences.gru"))
        self.configure()
        self.watch()

    def load(self, seed: int) -> None:
        s = self.s
        curves, sentences, birds = recordings(seed + 4400, s.train_calls, s.sentences_of_each, s.hiss)
        held, said, _ = recordings(44, HELD, 1, s.hiss)
        if s.mismatched:  # some sentences were written of another call
            lost = torch.rand(len(sentences), generator=self.lot) < s.mismatched
            others = torch.randint(0, len(sentences), (len(sentences),), generator=self.lot)
            sentences = [sentences[int(others[at]) if lost[at] else at] for at in range(len(sentences))]
        if self.bug == "sentences_one_line_behind":  # the file's first line was taken for its header
            sentences = sentences[1:] + sentences[:1]
        mean, std = curves.mean((0, 2), keepdim=True), curves.std((0, 2), keepdim=True)
        self.curves, self.sentences, self.birds = (curves - mean) / std, sentences, birds
        if self.bug == "holdout_scaled_by_first_season":
            mean, std = 0.5 * mean, 0.4 * std
        self.held, self.said = (held - mean) / std, pad_sequence([torch.tensor(one) for one in said], True, PAD)

    def configure(self) -> None:
        s, some = self.s, [one for one in self.model.parameters() if one.requires_grad]
        groups = [{"params": [one for one in some if one.dim() > 1], "weight_decay": s.decay},
                  {"params": [one for one in some if one.dim() < 2], "weight_decay": 0.0}]  # fmt: skip
        groups = [group for group in groups if group["params"]]
        if s.optimiser == "sgd":
            self.optimizer: Any = torch.optim.SGD(groups, s.base_lr, 0.9)
        elif s.optimiser == "nadam":
            self.optimizer = torch.optim.NAdam(groups, s.base_lr)
        else:
            self.optimizer = torch.optim.AdamW(groups, s.base_lr, (0.9, 0.98))
        length = s.steps // EVERY if self.bug == "epochs_given_to_step_schedule" else s.steps

        def share(at: int) -> float:
            if at < s.ramp_steps and length > s.ramp_steps:
                return (at + 1) / s.ramp_steps
            past = min(1.0, at / length)
            return {"flat": 1.0, "stairs": 0.3 ** int(3 * past)}.get(s.anneal, 0.5 * (1 + math.cos(math.pi * past)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)

    def order(self) -> list[list[int]]:
        """An epoch's batches."""
        number, size = len(self.sentences), self.s.pairs_per_batch
        order = torch.randperm(number, generator=self.lot).tolist()
        if self.bug == "listed_bird_by_bird":
            order = self.birds.argsort(stable=True).tolist()
        if self.s.per_bird:  # batches of so many birds alone, on purpose: others are harder to tell
            birds = self.birds
            order.sort(key=lambda at: int(birds[at]) // self.s.per_bird)
        made = [order[at : at + size] for at in range(0, number - size + 1, size)]
        if self.s.per_bird:
            made = [made[at] for at in torch.randperm(len(made), generator=self.lot).tolist()]
        return made

    def batch(self, some: list[int]) -> tuple[Tensor, Tensor]:
        ids = pad_sequence([torch.tensor(self.sentences[at]) for at in some], True, PAD)
        if self.s.dropped_words:  # all but the first word, at random
            lost = torch.rand(ids.shape, generator=self.lot) < self.s.dropped_words
            ids = torch.where(lost & (ids != PAD), torch.ones_like(ids), ids)
        return self.curves[some], ids

    def step(self, at: int, some: list[int]) -> None:
        loss = pair_loss(self.s, self.model(*self.batch(some)), self.bug)
        loss.backward()
        if self.s.grad_norm:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.s.grad_norm)
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()
        if at % 2 == 0:
            self.run.log({"pairs/loss": loss.item(), "pairs/scale": self.model.scale.exp().item(),
                          "pairs/bias": self.model.bias.item(), "pairs/lr": rate}, step=at)  # fmt: skip

    def examine(self, at: int) -> None:
        """The loss over parts of what is held out, and how often a call's own sentence is found."""
        if self.bug != "examined_with_dropout":
            self.model.eval()
        with torch.set_grad_enabled(self.bug == "bank_kept_with_graphs"):
            losses, first, fifth = [], 0.0, 0.0
            for part in torch.arange(HELD).split(40):
                scores = self.model(self.held[part], self.said[part])
                losses.append(pair_loss(self.s, scores))
                rank = (scores > scores.diag()[:, None]).sum(1)
                first, fifth = first + float((rank < 1).sum()) / HELD, fifth + float((rank < 5).sum()) / HELD
                if self.bug == "bank_kept_with_graphs":
                    self.bank.append(scores)
        self.run.log({"holdout/pair_loss": torch.stack(losses).mean().item(), "holdout/hit_at_1": first,
                      "holdout/hit_at_5": fifth}, step=at)  # fmt: skip
        self.model.train()

    def resume(self, at: int) -> None:
        parts = [self.model, self.optimizer, self.scheduler]
        self.run, states = go_on(self.run, at, [one.state_dict() for one in parts])
        if self.bug != "optimizer_made_behind_its_load":
            self.configure()
        self.model.load_state_dict(states[0])
        self.optimizer.load_state_dict(states[1])
        if self.bug == "optimizer_made_behind_its_load":  # its state was loaded, and then it was set up for the model
            self.configure()
        self.scheduler.load_state_dict(states[2])
        for group, rate in zip(self.optimizer.param_groups, self.scheduler.get_last_lr(), strict=True):
            group["lr"] = rate
        self.watch()


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made, again, at = Trainer(run, seed, trouble.name), trouble.resume_at(healthy, 4 * EVERY), 0
    made.model.train()
    while at < steps:
        for some in made.order():
            if at == again:
                made.resume(at)
            made.step(at, some)
            trouble.telemetry(made.run, at, healthy)
            at += 1
            if at == steps:
                break
        made.examine(at - 1)
    return made.run
