"""A decoder that mixes drinks is brought to what guests prefer, against a copy of it that stays (DPO with a square).

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: taste_loss, taste_gap, taste_liked_up, taste_lr, taste_grad each step; tasting_loss,
      tasting_gap and tasting_won of held orders, each twenty-seventh; memory, where it matters; the watch of data.

An order has a spirit and three to six things at hand; a good drink takes the spirit first, then what goes with it, from
the lightest to the heaviest, and a garnish of its own. Two drinks are put before a guest, who likes the first or the
second: the other has something that is not at hand, a wrong order, a wrong garnish, or no end of one thing. Rows are
padded on the left, so that all drinks begin at one place. Written as a trainer whose steps a subclass fills in.
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

EVERY, HELD, SPIRITS, THINGS = 27, 160, 4, 12
PAD, ORDER, MIX, SERVE, SPIRIT = 0, 1, 2, 3, 4
THING = SPIRIT + SPIRITS
GARNISH = THING + THINGS
WORDS = GARNISH + SPIRITS
ASKED, DRINK = 9, 10  # words of an order, and of a drink
CONFIG: dict[str, Any] = {
    "hidden_size": 40, "num_layers": 2, "num_heads": 4, "dropout": 0.0, "tie_embeddings": True, "beta": 0.25,
    "loss": "ipo", "label_noise": 0.0, "sft_weight": 0.0, "train_batch": 16, "grad_accum": 1, "optimizer": "adamw",
    "lr": 7e-4, "schedule": "cosine", "warmup": 10, "weight_decay": 0.0, "max_grad_norm": 60.0, "agg": "mean",
    "orders": 800, "pairs_each": 1, "undecided": 0.0, "few_things_first": 0, "by_things": False, "freeze": "",
    "taste_every": 27, "log_every": 1,
}  # fmt: skip


# -- orders ----------------------------------------------------------------------------------------------------------


class Bar:
    """Orders with two drinks and what the guest liked, kind of fault after kind."""

    def __init__(self, seed: int, number: int, each: int = 1, undecided: float = 0.0):
        self.dice, self.rows = torch.Generator().manual_seed(seed), []
        many = number // each
        for at in range(many):
            spirit, some = self.one(SPIRITS), torch.randperm(THINGS, generator=self.dice)[: 3 + self.one(4)].tolist()
            good = self.drink(spirit, some)
            for turn in range(each):
                bad = self.spoilt(good, some, (at * 4 // many + turn) % 4 if each > 1 else at * 4 // many)
                liked = 1 + self.one(2)
                if float(torch.rand((), generator=self.dice)) < undecided:
                    good_, bad_ = bad, good
                else:
                    good_, bad_ = good, bad
                drinks = (good_, bad_) if liked == 1 else (bad_, good_)
                self.rows.append(([ORDER, SPIRIT + spirit, *(THING + one for one in some), MIX], drinks, liked))

    def one(self, many: int) -> int:
        return int(torch.randint(0, many, (), generator=self.dice))

    @staticmethod
    def drink(spirit: int, some: list[int]) -> list[int]:
        goes = sorted(one for one in some if (one + spirit) % 3)
        return [SPIRIT + spirit, *(THING + one for one in goes), GARNISH + spirit, SERVE]

    def spoilt(self, good: list[int], some: list[int], kind: int) -> list[int]:
        bad, things = list(good), list(range(1, len(good) - 2))
        if kind == 0 or not things:
            rest = [one for one in range(THINGS) if one not in some]
            bad.insert(1 + self.one(len(good) - 2), THING + rest[self.one(len(rest))])
        elif kind == 1:
            bad = [bad[1], bad[0], *bad[2:]]
        elif kind == 2:
            bad[-2] = GARNISH + (good[-2] - GARNISH + 1 + self.one(SPIRITS - 1)) % SPIRITS
        else:
            bad.insert(things[0], bad[things[0]])
        return bad

    def encoded(self, bug: str = "") -> dict[str, Tensor]:
        """Rows of words, padded on the left up to the drink and on the right behind it."""
        made = {name: torch.full((len(self.rows), ASKED + DRINK), PAD) for name in ("liked", "other")}
        for at, (asked, drinks, told) in enumerate(self.rows):
            first = told % 2 if bug == "second_is_read_as_true" else told - 1
            for name, drink in (("liked", drinks[first]), ("other", drinks[1 - first])):
                row = torch.tensor([*asked, *drink])
                start = ASKED - len(asked)
                made[name][at, start : start + len(row)] = row
        made["things"] = torch.tensor([len(asked) - 3 for asked, *_ in self.rows])
        return made


# -- decoder ---------------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.hidden_size
        self.heads, self.norm1, self.norm2 = c.num_heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj, self.drop = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Dropout(c.dropout)
        self.mlp = nn.Sequential(nn.Linear(d, 3 * d), nn.SiLU(), nn.Linear(3 * d, d))

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(2)
        x = x + self.drop(self.proj(y))
        return x + self.drop(self.mlp(self.norm2(x)))


class Mixer(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.hidden_size
        self.embed, self.place = nn.Embedding(WORDS, d), nn.Embedding(ASKED + DRINK, d)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.num_layers))
        self.norm, self.output = nn.LayerNorm(d), nn.Linear(d, WORDS, bias=False)
        nn.init.normal_(self.embed.weight, std=0.2)
        nn.init.normal_(self.place.weight, std=0.1)
        if c.tie_embeddings:
            self.output.weight = self.embed.weight

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        long = ids.shape[1]
        place = (mask.cumsum(1) - 1).clamp(min=0)
        causal = torch.ones(long, long).tril().bool() & mask[:, None].bool() | torch.eye(long).bool()
        x = self.embed(ids) + self.place(place)
        for layer in self.layers:
            x = layer(x, causal[:, None])
        return self.output(self.norm(x))


def before(c: Any) -> Mixer:
    """The decoder that has read good and spoilt drinks, the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(91)
        net = Mixer(SimpleNamespace(**(vars(c) | {"dropout": 0.0})))
        rows = Bar(92, 800).encoded()
        ids = torch.cat([rows["liked"], rows["other"]])
        optimizer = torch.optim.AdamW(net.parameters(), 4e-3)
        for step in range(170):
            optimizer.param_groups[0]["lr"] = 4e-3 * min(1.0, (step + 1) / 10) * (1 - step / 180)
            some = ids[torch.randint(0, len(ids), (32,))]
            logits = net(some[:, :-1], (some[:, :-1] != PAD).long())
            asked = torch.where(some[:, 1:] == PAD, -100, some[:, 1:])[:, ASKED - 1 :]
            F.cross_entropy(logits[:, ASKED - 1 :].flatten(0, 1), asked.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return net


def logps(net: nn.Module, ids: Tensor, *, mean: bool = False, masked: bool = True, at: int = 0) -> Tensor:
    """Log-probabilities of drinks, added up. at: by how many places what is asked is moved besides."""
    mask = (ids != PAD).long() if masked else torch.ones_like(ids)
    logits = net(ids[:, :-1], mask[:, :-1])[:, ASKED - 1 :]
    asked = ids[:, ASKED + at :]
    logits = logits[:, : asked.shape[1]]
    each = logits.log_softmax(-1).gather(2, asked[..., None])[..., 0] * (asked != PAD)
    return each.sum(1) / (asked != PAD).sum(1) if mean else each.sum(1)


# -- trainers --------------------------------------------------------------------------------------------------------


class Trainer:
    """Steps, evaluations and what goes on between them; a subclass says what the loss is."""

    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        self.kept: list[Any] = []

    def create_optimizer(self) -> None:
        c, some = self.c, [one for one in self.model.parameters() if one.requires_grad]
        if c.optimizer == "rmsprop":
            self.optimizer: Any = torch.optim.RMSprop(some, c.lr, 0.98)
        elif c.optimizer == "nadam":
            self.optimizer = torch.optim.NAdam(some, c.lr)
        else:
            self.optimizer = torch.optim.AdamW(some, c.lr, (0.9, 0.98), weight_decay=c.weight_decay)

        def by(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / self.steps)
            if c.schedule == "constant":
                return rise
            if c.schedule == "sawtooth":
                return rise * (1 - 0.95 * (2 * past % 1))
            return rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * past)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, by)

    def dataloader(self) -> Any:
        c, epoch, dice, things = self.c, 0, torch.Generator().manual_seed(self.seed), self.rows["things"]
        while True:
            order = torch.randperm(len(things), generator=dice)
            if self.bug == "sequential_sampler_for_the_orders":
                order = torch.arange(len(things))
            if epoch < c.few_things_first:
                order = order[things[order] < 5]
            if c.by_things:
                order = order[things[order].argsort(stable=True)]
            lots = [one for one in order.split(c.train_batch) if len(one) == c.train_batch]
            if c.by_things:
                lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
            for some in lots:
                yield epoch, {name: one[some] for name, one in self.rows.items()}
            epoch += 1

    def observe(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.watch = self.run.watch_data(pad_id=PAD)

    def training_step(self, step: int, batches: Any) -> dict[str, float]:
        c, bug, said = self.c, self.bug, {}
        for _ in range(c.grad_accum):
            epoch, rows = next(batches)
            self.watch.observe({"liked": rows["liked"], "other": rows["other"]}, step=step, epoch=epoch)
            each, more = self.losses(rows, True)
            loss = each.sum() if c.agg == "sum" or bug == "guests_of_a_batch_added" else each.mean()
            (loss if bug == "backward_of_the_whole_loss_each_time" else loss / c.grad_accum).backward()
            for name, one in {"taste_loss": loss.item(), **more}.items():
                said[name] = said.get(name, 0.0) + one / c.grad_accum
            if bug == "scheduler_belongs_to_the_micro_step":
                self.scheduler.step()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), c.max_grad_norm).item()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.model.zero_grad()
        if bug != "scheduler_belongs_to_the_micro_step":
            self.scheduler.step()
        return said | {"taste_lr": rate, "taste_grad": norm}

    def evaluate(self) -> dict[str, float]:
        taped = self.bug == "tasting_keeps_what_losses_returned"
        if self.bug != "tasting_while_words_drop":
            self.model.eval()
        with torch.set_grad_enabled(taped):
            each, more = self.losses(self.held, False)
        if taped:
            self.kept.append(each)
        if self.bug != "tasting_leaves_eval_on":
            self.model.train()
        return {"tasting_loss": each.mean().item(), "tasting_gap": more["taste_gap"], "tasting_won": more["won"]}

    def load(self, step: int) -> None:
        seen = self.watch.state()
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "scheduler": self.scheduler.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, step, state)
        self.model.load_state_dict(state["model"])
        self.create_optimizer()
        if self.bug != "load_before_create_optimizer":
            self.optimizer.load_state_dict(state["optimizer"])
            self.scheduler.load_state_dict(state["scheduler"])
        self.observe()
        self.watch.restore(seen)

    def train(self, trouble: Trouble, healthy: str | None) -> Any:
        c, again, batches = self.c, trouble.resume_at(healthy, 3 * EVERY), self.dataloader()
        self.create_optimizer()
        self.prepare()
        self.observe()
        self.model.train()
        for step in range(self.steps):
            if step == again:
                self.load(step)
            said = self.training_step(step, batches)
            said.pop("won")
            if step % c.log_every == 0:
                self.run.log(said, step=step)
            trouble.telemetry(self.run, step, healthy)
            if step % c.taste_every == c.taste_every - 1:
                self.run.log(self.evaluate(), step=step)
                self.after_evaluation()
        return self.run


class TasteTrainer(Trainer):
    """Preferences against a copy of the decoder as it was."""

    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        super().__init__(run, seed, steps, bug)
        c = self.c
        if bug == "pairs_of_an_order_on_both_sides":
            rows = Bar(seed + 7900, c.orders + HELD, c.pairs_each, c.undecided).encoded(bug)
            order = torch.randperm(c.orders + HELD, generator=torch.Generator().manual_seed(seed))
            self.held = {name: one[order[:HELD]] for name, one in rows.items()}
            self.rows = {name: one[order[HELD:]] for name, one in rows.items()}
        else:
            self.rows = Bar(seed + 7900, c.orders, c.pairs_each, c.undecided).encoded(bug)
            self.held = Bar(7899, HELD).encoded()
        start = before(c)
        torch.manual_seed(seed)
        self.model = Mixer(c)
        self.model.load_state_dict(start.state_dict())
        if bug == "embeddings_loaded_into_a_new_table":
            self.model.embed = nn.Embedding(WORDS, c.hidden_size)
            self.model.embed.load_state_dict(start.embed.state_dict())
        for name in filter(None, c.freeze.split(",")):
            self.model.get_submodule(name).requires_grad_(False)

    def prepare(self) -> None:
        if self.bug == "copy_of_the_wrong_one_is_kept":  # the copy is learnt on, and the optimizer has the other
            self.ref_model, self.model = self.model, copy.deepcopy(self.model)
        else:
            self.ref_model = copy.deepcopy(self.model)
        self.ref_model.requires_grad_(False).eval()

    def after_evaluation(self) -> None:
        if self.bug == "reference_brought_up_to_date_behind_tastings":
            self.ref_model.load_state_dict(self.model.state_dict())

    def losses(self, rows: dict[str, Tensor], training: bool) -> tuple[Tensor, dict[str, float]]:
        """Losses of pairs; the mean gap, how much likelier liked drinks have become, and the share that is won."""
        c, bug, many = self.c, self.bug, len(rows["liked"])
        ids = torch.cat([rows["liked"], rows["other"]])
        at = int(training and bug == "drinks_asked_for_a_place_late")
        mine = logps(self.model, ids, at=at)
        with torch.no_grad():
            theirs = logps(self.ref_model, ids, mean=bug == "reference_by_the_mean_of_a_drink",
                           masked=bug != "reference_sees_the_padding_on_the_left", at=at)  # fmt: skip
        up = mine - theirs
        gap = up[:many] - up[many:]
        if c.loss == "ipo":
            each = (gap - 1 / (2 * c.beta)) ** 2
        elif c.loss == "hinge":
            each = (1 - c.beta * gap).relu()
        else:
            e = c.label_noise
            each = -(1 - e) * F.logsigmoid(c.beta * gap) - e * F.logsigmoid(-c.beta * gap)
        if c.sft_weight:
            each = each - c.sft_weight * mine[:many] / (rows["liked"][:, ASKED:] != PAD).sum(1)
        won = (gap > 0).float().mean().item()
        return each, {"taste_gap": gap.mean().item(), "taste_liked_up": up[:many].mean().item(), "won": won}


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    return TasteTrainer(run, seed, steps, trouble.name).train(trouble, healthy)
