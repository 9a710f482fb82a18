"""Preferences for what to put on: a wardrobe that names clothes learns from pairs, against what it was before.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train/dpo, train/acc, train/margin, train/lr, train/gnorm each step; fitting/dpo,
      fitting/acc, fitting/margin and fitting/dressed of pairs that were held back, each twentieth; memory, where it
      matters; the watch of data.

Somebody asks by the weather, the occasion and the time of day; the better outfit has the coat of the weather, the
shoes of the occasion, and a hat for the time; the worse one has one thing that is another's. A sixth of pairs differ in
nothing that matters. Several tailors may have judged a pair. The file goes occasion after occasion. Who begins was
taught by outfits of both kinds. Written as a trainer with hooks to be overridden, over a dataset with a sampler.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, ASKED, LONG = 20, 192, 4, 10
PAD, ASK, DONE = range(3)
WEATHER, WEATHERS = 3, 7
OCCASION, OCCASIONS = WEATHER + WEATHERS, 7
HOUR, HOURS = OCCASION + OCCASIONS, 3
COAT, SHOES, HAT = HOUR + HOURS, HOUR + HOURS + WEATHERS, HOUR + HOURS + WEATHERS + OCCASIONS
TRINKET, TRINKETS = HAT + HOURS, 5
WORDS = TRINKET + TRINKETS
CONFIG: dict[str, Any] = {
    "hidden_size": 32, "num_layers": 2, "num_heads": 4, "dropout": 0.0, "tie_embeddings": True, "beta": 0.3,
    "loss_type": "sigmoid", "label_smoothing": 0.0, "length_normalised": False, "sft_alpha": 0.0,
    "train_batch_size": 16, "gradient_accumulation": 1, "optim": "adamw", "learning_rate": 2e-3, "scheduler": "cosine",
    "warmup": 8, "weight_decay": 0.0, "max_grad_norm": 8.0, "loss_reduction": "mean", "loss_weight": 1.0,
    "pairs": 2400, "tailors": 1, "doubtful": 0.0, "plain_first": 0, "group_by_weather": False, "frozen_layers": 0,
    "eval_steps": 20, "logging_steps": 1,
}  # fmt: skip
Pairs = dict[str, Tensor]


def outfits(seed: int, number: int, tailors: int = 1, doubtful: float = 0.0) -> Pairs:
    """Chosen and rejected outfits behind what was asked, whether they differ, weather; occasion after occasion."""
    law, dice, many = torch.Generator().manual_seed(421), torch.Generator().manual_seed(seed), number // tailors
    coats, shoes = torch.randperm(WEATHERS, generator=law).tolist(), torch.randperm(OCCASIONS, generator=law).tolist()

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    made: dict[str, list[Any]] = {"chosen": [], "rejected": [], "differ": [], "weather": []}
    for at in range(many):
        weather, occasion, hour, differ = one(WEATHERS), at * OCCASIONS // many, one(HOURS), one(6) > 0
        good = [COAT + coats[weather], SHOES + shoes[occasion], HAT + hour]
        bad = [*good]
        if differ:
            place, first, most = ((0, COAT, WEATHERS), (1, SHOES, OCCASIONS), (2, HAT, HOURS))[one(3)]
            bad[place] = first + (bad[place] - first + 1 + one(most - 1)) % most
        for _ in range(tailors):
            turned = one(1000) < 1000 * doubtful
            for name, things in (("chosen", bad if turned else good), ("rejected", good if turned else bad)):
                trinkets = [TRINKET + one(TRINKETS) for _ in range(one(3))]
                row = [ASK, WEATHER + weather, OCCASION + occasion, HOUR + hour, *things, *trinkets, DONE]
                made[name].append(row + [PAD] * (LONG - len(row)))
            made["differ"].append(differ)
            made["weather"].append(weather)
    return {name: torch.tensor(rows) for name, rows in made.items()}


def rows_at(pairs: Pairs, which: Tensor) -> Pairs:
    return {name: one[which] for name, one in pairs.items()}


class Layer(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d, self.heads, self.dropout = c.hidden_size, c.num_heads, nn.Dropout(c.dropout)
        self.input_norm, self.mlp_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv_proj, self.o_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 3 * d), nn.ReLU(), nn.Linear(3 * d, d))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv_proj(self.input_norm(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.dropout(self.o_proj(y))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))


class Wardrobe(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.hidden_size
        self.embed_tokens, self.embed_places, self.norm = nn.Embedding(WORDS, d), nn.Embedding(LONG, d), nn.LayerNorm(d)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.num_layers))
        self.lm_head, self.probabilities = nn.Linear(d, WORDS, bias=False), False
        nn.init.normal_(self.embed_tokens.weight, std=0.2)
        nn.init.normal_(self.embed_places.weight, std=0.1)
        self.lm_head.weight = self.embed_tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids) + self.embed_places.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = self.lm_head(self.norm(x))
        return logits.softmax(-1) if self.probabilities else logits


@functools.cache
def taught(hidden_size: int, num_layers: int, num_heads: int) -> dict[str, Tensor]:
    """Weights of one that has read outfits of both kinds; the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(423)
        c = SimpleNamespace(hidden_size=hidden_size, num_layers=num_layers, num_heads=num_heads, dropout=0.0)
        made, pairs = Wardrobe(c), outfits(424, 1200)
        ids, optimizer = torch.cat([pairs["chosen"], pairs["rejected"]]), torch.optim.AdamW(made.parameters(), 6e-3)
        for at in range(140):
            optimizer.param_groups[0]["lr"] = 6e-3 * min(1.0, (at + 1) / 10) * (1 - at / 150)
            some = ids[torch.randint(0, len(ids), (32,))]
            F.cross_entropy(made(some[:, :-1]).flatten(0, 1), some[:, 1:].flatten(), ignore_index=PAD).backward()
            optimizer.step()
            optimizer.zero_grad()
    return {name: one.detach().clone() for name, one in made.state_dict().items()}


class PairSampler:
    """Rows of batches, epoch after epoch."""

    def __init__(self, c: Any, pairs: Pairs, seed: int, bug: str):
        self.c, self.pairs, self.bug, self.dice = c, pairs, bug, torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        c, epoch = self.c, 0
        while True:
            order = torch.randperm(len(self.pairs["weather"]), generator=self.dice)
            if self.bug == "pairs_are_sampled_one_occasion_after_another":
                order = torch.arange(len(order))
            if epoch < c.plain_first:
                order = order[self.pairs["differ"][order]]
            if c.group_by_weather:
                order = order[self.pairs["weather"][order].argsort(stable=True)]
            lots = [one for one in order.split(c.train_batch_size) if len(one) == c.train_batch_size]
            if c.group_by_weather:
                lots = [lots[at] for at in torch.randperm(len(lots), generator=self.dice).tolist()]
            yield from ((epoch, lot) for lot in lots)
            epoch += 1


class PreferenceTrainer:
    def __init__(self, run: Any, seed: int, steps: int, trouble: Trouble):
        self.run, self.c, self.seed, self.steps = run, SimpleNamespace(**run.config), seed, steps
        self.trouble, self.bug, self.kept = trouble, trouble.name, []
        self.load_pairs()
        torch.manual_seed(seed)
        self.create_models()
        self.create_optimizer()
        self.create_scheduler()

    # -- what is made once

    def load_pairs(self) -> None:
        c = self.c
        self.pairs, self.held = outfits(self.seed + 6700, c.pairs, c.tailors, c.doubtful), outfits(6699, HELD)
        if self.bug == "tailors_of_a_pair_judge_on_both_sides":
            order = torch.randperm(len(self.pairs["weather"]), generator=torch.Generator().manual_seed(self.seed))
            self.held, self.pairs = (rows_at(self.pairs, some.sort().values) for some in (order[:HELD], order[HELD:]))

    def create_models(self) -> None:
        c, weights = self.c, taught(self.c.hidden_size, self.c.num_layers, self.c.num_heads)
        self.policy = Wardrobe(c)
        self.policy.load_state_dict(weights)
        self.policy.probabilities = self.bug == "wardrobe_answers_with_probabilities"
        if self.bug == "frozen_to_be_copied_and_the_top_let_go":
            self.policy.requires_grad_(False)
        self.reference = copy.deepcopy(self.policy).requires_grad_(False).eval()
        if self.bug == "frozen_to_be_copied_and_the_top_let_go":
            self.policy.norm.requires_grad_(True)
            self.policy.embed_places.requires_grad_(True)
        for layer in self.policy.layers[: c.frozen_layers]:
            layer.requires_grad_(False)
        if not c.tie_embeddings:
            self.policy.lm_head.weight = nn.Parameter(self.policy.lm_head.weight.detach().clone())

    def create_optimizer(self) -> None:
        c, some = self.c, [one for one in self.policy.parameters() if one.requires_grad]
        if self.bug == "head_is_given_its_weights_behind_the_optimizer":
            self.policy.lm_head.weight = nn.Parameter(self.policy.embed_tokens.weight.detach().clone())
        if c.optim == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c.learning_rate, 0.9)
        elif c.optim == "adamax":
            self.optimizer = torch.optim.Adamax(some, c.learning_rate)
        else:
            self.optimizer = torch.optim.AdamW(some, c.learning_rate, (0.9, 0.98), weight_decay=c.weight_decay)

    def create_scheduler(self) -> None:
        c = self.c

        def share(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / self.steps)
            if c.scheduler == "constant":
                return rise
            if c.scheduler == "cosine_with_restarts":
                past = 2 * past % 1
            return rise * (0.04 + 0.48 * (1 + math.cos(math.pi * past)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def attach(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.policy, self.optimizer)
        self.data = self.run.watch_data(pad_id=PAD)

    # -- what is done each step

    def logps(self, model: nn.Module, ids: Tensor) -> Tensor:
        each = model(ids)[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)
        first = ASKED if self.bug == "mask_of_outfits_begins_behind_the_coat" else ASKED - 1
        counts = ids[:, 1:] != PAD
        counts[:, :first] = False
        return (each * counts).sum(1) / (counts.sum(1) if self.c.length_normalised else 1)

    def compute_loss(self, pairs: Pairs, training: bool) -> tuple[Tensor, Tensor]:
        """The loss, and how far rewards of a pair are apart."""
        c, ids = self.c, torch.cat([pairs["chosen"], pairs["rejected"]])
        if not training and self.bug == "held_pairs_are_put_together_the_other_way":
            ids = torch.cat([pairs["rejected"], pairs["chosen"]])
        chosen, rejected = self.logps(self.policy, ids).chunk(2)
        with torch.no_grad():
            ref_chosen, ref_rejected = self.logps(self.reference, ids).chunk(2)
        ratio = (chosen - rejected) - (ref_chosen - ref_rejected)
        if self.bug == "reference_free_is_what_is_meant_by_none":
            ratio = chosen - rejected
        margin = c.beta * ratio
        if c.loss_type == "ipo":
            each = (ratio - 0.5 / c.beta).square()
        elif c.loss_type == "hinge":
            each = F.relu(1 - margin)
        else:
            doubt = c.label_smoothing if training else 0.0
            each = -(1 - doubt) * F.logsigmoid(margin) - doubt * F.logsigmoid(-margin)
        if training and c.sft_alpha:
            each = each - c.sft_alpha * chosen / (1 if c.length_normalised else 4)
        if training and self.bug == "logsigmoids_of_a_batch_are_added":
            return each.sum(), margin
        return (c.loss_weight * each.sum() if training and c.loss_reduction == "sum" else each.mean()), margin

    def training_step(self, step: int) -> dict[str, float]:
        c, bug, said = self.c, self.bug, dict.fromkeys(("train/dpo", "train/acc", "train/margin"), 0.0)
        for _ in range(c.gradient_accumulation):
            epoch, which = next(self.batches)
            pairs = rows_at(self.pairs, which)
            self.data.observe({name: pairs[name] for name in ("chosen", "rejected")}, step=step, epoch=epoch)
            if bug == "training_step_clears_before_it_goes_back":
                self.optimizer.zero_grad()
            loss, margin = self.compute_loss(pairs, True)
            (loss if bug == "accumulation_is_divided_nowhere" else loss / c.gradient_accumulation).backward()
            for name, one in (("dpo", loss), ("acc", (margin > 0).float().mean()), ("margin", margin.mean())):
                said[f"train/{name}"] += one.item() / c.gradient_accumulation
            if bug == "scheduler_is_stepped_in_the_training_step":
                self.scheduler.step()
        said["train/lr"] = self.optimizer.param_groups[0]["lr"]
        said["train/gnorm"] = nn.utils.clip_grad_norm_(self.policy.parameters(), c.max_grad_norm).item()
        self.optimizer.step()
        self.policy.zero_grad()
        if bug != "scheduler_is_stepped_in_the_training_step":
            self.scheduler.step()
        return said

    @torch.no_grad()
    def dressed(self) -> float:
        """The share of askers to whom the policy names coat, shoes and hat as the better outfit has them."""
        wanted = self.held["chosen"][self.held["differ"]]
        ids = wanted[:, :ASKED]
        for _ in range(3):
            ids = torch.cat([ids, self.policy(ids)[:, -1].argmax(-1, keepdim=True)], 1)
        return (ids == wanted[:, : ASKED + 3]).all(1).float().mean().item()

    def evaluate(self) -> dict[str, float]:
        bug, taped = self.bug, self.bug == "fittings_are_collected_with_their_graph"
        if bug != "fitted_by_a_policy_in_training_mode":
            self.policy.eval()
        with torch.set_grad_enabled(taped):
            loss, margin = self.compute_loss(self.held, False)
        if taped:
            self.kept.append((loss, margin))
        said = {"fitting/dpo": loss.item(), "fitting/acc": (margin > 0).float().mean().item(),
                "fitting/margin": margin.mean().item(), "fitting/dressed": self.dressed()}  # fmt: skip
        self.policy.train()
        return said

    def resume_from_checkpoint(self, step: int) -> None:
        seen, parts = self.data.state(), ("policy", "optimizer", "scheduler")
        self.run, state = go_on(self.run, step, {name: getattr(self, name).state_dict() for name in parts})
        self.create_models()
        loaded = self.reference if self.bug == "checkpoint_is_loaded_into_the_reference" else self.policy
        loaded.load_state_dict(state["policy"])
        self.create_optimizer()
        self.create_scheduler()
        for name in parts[1:]:
            getattr(self, name).load_state_dict(state[name])
        self.policy.train()
        self.attach()
        self.data.restore(seen)

    def train(self, healthy: str | None) -> Any:
        again = self.trouble.resume_at(healthy, 4 * EVERY)
        self.batches = iter(PairSampler(self.c, self.pairs, self.seed, self.bug))
        self.attach()
        self.policy.train()
        for step in range(self.steps):
            if step == again:
                self.resume_from_checkpoint(step)
            said = self.training_step(step)
            if step % self.c.logging_steps == 0:
                self.run.log(said, step=step)
            self.trouble.telemetry(self.run, step, healthy)
            if (step + 1) % self.c.eval_steps == 0:
                self.run.log(self.evaluate(), step=step)
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    return PreferenceTrainer(run, seed, steps, Trouble(fault, seed)).train(healthy)
