"""An oracle that writes horoscopes is tuned to what readers prefer (DPO), beside a reference that stays as it was.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: po/loss, po/reward_gap, po/ordered, po/lr, po/grad_norm each step; panel/loss,
      panel/reward_gap and panel/ordered of pairs that were held back, each twenty-second; memory, where it matters; the
      watch of data.

One asks with a sign and a house. Readers like the planet that rules the sign, a number that is lucky for both, an
advice that goes with the mood, and a kind last word, with an adverb now and then; the other of two has one of these
wrong, or both are fine and one was liked for no reason. A file has two answers and which of them won, sign after sign;
several readers may have been shown a pair. The oracle has read good ones and bad ones. Written as a script of functions
over a namespace.
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

EVERY, HELD, ASKED, LONG = 22, 192, 3, 10
PAD, ASK, STOP = range(3)
SIGN, SIGNS = 3, 9
HOUSE, HOUSES = SIGN + SIGNS, 4
PLANET, PLANETS = HOUSE + HOUSES, 6
NUMBER, NUMBERS = PLANET + PLANETS, 7
MOOD, MOODS = NUMBER + NUMBERS, 6
ADVICE, ADVICES = MOOD + MOODS, 6  # for each mood
KIND, HARSH, ADVERB = ADVICE + ADVICES, ADVICE + ADVICES + 3, ADVICE + ADVICES + 6  # three words each
WORDS = ADVERB + 3
CONFIG: dict[str, Any] = {
    "dim": 32, "depth": 2, "heads": 2, "p_drop": 0.0, "tied": True, "beta": 0.3, "loss_type": "dpo", "smoothing": 0.0,
    "per_word": False, "nll_weight": 0.0, "reference_first": False, "pairs_per_batch": 16, "batches_per_step": 1,
    "opt": "adamw", "max_lr": 1.2e-3, "lr_curve": "cosine", "warmup": 8, "decay": 0.0, "clip_at": 8.0,
    "reduce": "mean", "pairs": 2560, "readers": 1, "whims": 0.0, "plain_first": 0, "by_sign": False,
    "frozen_layers": 0, "panel_every": 22, "log_each": 1,
}  # fmt: skip
BASE_KEYS = ("dim", "depth", "heads")
Pairs = dict[str, Tensor]


# -- pairs -----------------------------------------------------------------------------------------------------------


def pairs(seed: int, number: int, readers: int = 1, whims: float = 0.0) -> Pairs:
    """Two answers, which of them won, whether one is wrong, and the sign; sign after sign."""
    law, dice, many = torch.Generator().manual_seed(271), torch.Generator().manual_seed(seed), number // readers
    ruler = torch.randint(0, PLANETS, (SIGNS,), generator=law).tolist()
    lucky = torch.randint(0, NUMBERS, (SIGNS, HOUSES), generator=law).tolist()

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    def fine(sign: int, house: int) -> list[int]:
        mood = one(MOODS)
        return [PLANET + ruler[sign], NUMBER + lucky[sign][house], MOOD + mood, ADVICE + mood, KIND + one(3)]

    def spoilt(words: list[int]) -> list[int]:
        words, flaw = [*words], one(4)
        if flaw == 3:
            words[4] = HARSH + one(3)
        else:
            at, first, many = ((0, PLANET, PLANETS), (1, NUMBER, NUMBERS), (3, ADVICE, ADVICES))[flaw]
            words[at] = first + (words[at] - first + 1 + one(many - 1)) % many
        return words

    rows: dict[str, list[Any]] = {"first": [], "second": [], "winner": [], "plain": [], "sign": []}
    for at in range(many):
        sign, house = at * SIGNS // many, one(HOUSES)
        good, plain = fine(sign, house), one(5) > 0
        bad = spoilt(good) if plain else fine(sign, house)
        for _ in range(readers):
            winner = one(2)
            answers = [good, bad] if winner == 0 else [bad, good]
            for name, words in zip(("first", "second"), answers, strict=True):
                row = [ASK, SIGN + sign, HOUSE + house, *words, *([ADVERB + one(3)] if one(3) == 0 else []), STOP]
                rows[name].append(row + [PAD] * (LONG - len(row)))
            rows["winner"].append(1 - winner if one(1000) < 1000 * whims else winner)
            rows["plain"].append(plain)
            rows["sign"].append(sign)
    return {name: torch.tensor(some) for name, some in rows.items()}


def some_of(rows: Pairs, which: Tensor) -> Pairs:
    return {name: one[which] for name, one in rows.items()}


def sided(rows: Pairs, winner_from: int = 0) -> Pairs:
    """Answers by which was liked. winner_from: the number that a file has for the first one."""
    first = (rows["winner"] == winner_from)[:, None]
    chosen = torch.where(first, rows["first"], rows["second"])
    rejected = torch.where(first, rows["second"], rows["first"])
    return rows | {"chosen": chosen, "rejected": rejected}


# -- oracle ----------------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    def __init__(self, d: int, heads: int, p_drop: float):
        super().__init__()
        self.heads, self.pre, self.mid = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.merge = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.grow, self.shrink, self.drop = nn.Linear(d, 3 * d), nn.Linear(3 * d, d), nn.Dropout(p_drop)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.pre(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.drop(self.merge(y))
        return x + self.drop(self.shrink(F.gelu(self.grow(self.mid(x)))))


class Oracle(nn.Module):
    def __init__(self, d: int, depth: int, heads: int, p_drop: float = 0.0, tied: bool = True):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, d), nn.Embedding(LONG, d)
        self.layers, self.last = nn.ModuleList(Layer(d, heads, p_drop) for _ in range(depth)), nn.LayerNorm(d)
        self.to_words, self.normalised = nn.Linear(d, WORDS, bias=False), False
        nn.init.normal_(self.words.weight, std=0.2)
        nn.init.normal_(self.places.weight, std=0.1)
        if tied:
            self.to_words.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = self.to_words(self.last(x))
        return logits.softmax(-1) if self.normalised else logits


@functools.cache
def taught(d: int, depth: int, heads: int) -> dict[str, Tensor]:
    """Weights of an oracle that has read horoscopes of both kinds, the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(273)
        oracle, rows = Oracle(d, depth, heads), pairs(274, 1200)
        tokens, optimizer = torch.cat([rows["first"], rows["second"]]), torch.optim.AdamW(oracle.parameters(), 6e-3)
        for step in range(160):
            optimizer.param_groups[0]["lr"] = 6e-3 * min(1.0, (step + 1) / 10) * (1 - step / 170)
            some = tokens[torch.randint(0, len(tokens), (32,))]
            logits = oracle(some[:, :-1]).flatten(0, 1)
            F.cross_entropy(logits, some[:, 1:].flatten(), ignore_index=PAD).backward()
            optimizer.step()
            optimizer.zero_grad()
    return {name: one.detach().clone() for name, one in oracle.state_dict().items()}


# -- script ----------------------------------------------------------------------------------------------------------


def load_pairs(s: Any) -> None:
    c = s.c
    rows, held = pairs(s.seed + 7600, c.pairs, c.readers, c.whims), pairs(7599, HELD)
    if s.bug == "pairs_split_by_readers":
        order = torch.randperm(len(rows["sign"]), generator=torch.Generator().manual_seed(s.seed))
        held, rows = some_of(rows, order[:HELD].sort().values), some_of(rows, order[HELD:].sort().values)
    s.rows = sided(rows, int(s.bug == "winners_of_the_file_counted_from_one"))
    s.held = sided(held)


def load_oracles(s: Any) -> None:
    c, weights = s.c, taught(s.c.dim, s.c.depth, s.c.heads)
    s.policy = Oracle(c.dim, c.depth, c.heads, c.p_drop, c.tied)
    s.policy.load_state_dict(weights)
    s.policy.normalised = s.bug == "oracle_normalises_before_its_likelihoods"
    s.reference = copy.deepcopy(s.policy).requires_grad_(False).eval()
    still = s.policy.layers[: c.frozen_layers]
    if s.bug == "no_frozen_layers_are_all_of_them":
        still = s.policy.layers[: c.frozen_layers or None]
    for layer in still:
        layer.requires_grad_(False)
    make_optimizer(s)
    if s.bug == "head_loaded_by_itself_behind_the_optimizer":
        s.policy.to_words.weight = nn.Parameter(weights["to_words.weight"].clone())


def make_optimizer(s: Any) -> None:
    c, some = s.c, [one for one in s.policy.parameters() if one.requires_grad]
    if c.opt == "adamax":
        s.optimizer = torch.optim.Adamax(some, c.max_lr)
    elif c.opt == "sgd":
        s.optimizer = torch.optim.SGD(some, c.max_lr, 0.9)
    else:
        s.optimizer = torch.optim.AdamW(some, c.max_lr, (0.9, 0.98), weight_decay=c.decay)

    def curve(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / s.steps)
        if c.lr_curve == "flat":
            return rise
        if c.lr_curve == "stairs":
            return rise * 0.4 ** int(3 * past)
        if c.lr_curve == "line":
            return rise * (1 - 0.96 * past)
        if c.lr_curve == "cosine_twice":
            past = 2 * past % 1
        return rise * (0.04 + 0.48 * (1 + math.cos(math.pi * past)))

    s.schedule = torch.optim.lr_scheduler.LambdaLR(s.optimizer, curve)


def watch(s: Any) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.policy, s.optimizer)
    s.data = s.run.watch_data(pad_id=PAD)


def batches(s: Any) -> Iterator[tuple[int, Pairs]]:
    c, epoch, dice, sign = s.c, 0, torch.Generator().manual_seed(s.seed), s.rows["sign"]
    while True:
        order = torch.arange(len(sign))
        if s.bug != "pairs_go_by_as_the_zodiac_does":
            order = torch.randperm(len(sign), generator=dice)
        if epoch < c.plain_first:
            order = order[s.rows["plain"][order]]
        if c.by_sign:
            order = order[sign[order].argsort(stable=True)]
        lots = [one for one in order.split(c.pairs_per_batch) if len(one) == c.pairs_per_batch]
        if c.by_sign:
            lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
        for which in lots:
            yield epoch, some_of(s.rows, which)
        epoch += 1


def log_likelihood(s: Any, oracle: nn.Module, tokens: Tensor) -> Tensor:
    """Of each answer: the sum over its words, or their mean."""
    logits, wanted, counts = oracle(tokens)[:, :-1], tokens[:, 1:], (tokens != PAD)[:, 1:].clone()
    if s.bug == "likelihood_gathered_where_a_word_is_read":
        wanted, counts = tokens[:, :-1], (tokens != PAD)[:, :-1].clone()
    counts[:, : ASKED - 1] = False
    each = logits.log_softmax(-1).gather(2, wanted[..., None]).squeeze(2) * counts
    return each.sum(1) / (counts.sum(1) if s.c.per_word else 1)


@torch.no_grad()
def reference_says(s: Any, rows: Pairs) -> tuple[Tensor, Tensor]:
    return log_likelihood(s, s.reference, rows["chosen"]), log_likelihood(s, s.reference, rows["rejected"])


def preference(s: Any, rows: Pairs, training: bool) -> tuple[Tensor, Tensor]:
    """The loss and how far rewards of each pair are apart."""
    c, bug = s.c, s.bug
    chosen, rejected = (log_likelihood(s, s.policy, rows[name]) for name in ("chosen", "rejected"))
    before = (rows["before_chosen"], rows["before_rejected"]) if "before_chosen" in rows else reference_says(s, rows)
    gap = c.beta * ((chosen - before[0]) - (rejected - before[1]))
    if bug == "ratio_of_the_reference_is_added":
        gap = c.beta * ((chosen - rejected) + (before[0] - before[1]))
    logits = c.beta * gap if bug == "rewards_multiplied_by_beta_again" else gap
    doubt = c.smoothing if training else 0.0
    if c.loss_type == "ipo":
        each = (logits / c.beta - 0.5 / c.beta) ** 2
    elif c.loss_type == "hinge":
        each = F.relu(1 - logits)
    else:
        each = -(1 - doubt) * F.logsigmoid(logits) - doubt * F.logsigmoid(-logits)
    if training and c.nll_weight:
        each = each - c.nll_weight * chosen / (1 if c.per_word else (rows["chosen"] != PAD)[:, ASKED:].sum(1))
    summed = training and (c.reduce == "sum" or bug == "losses_of_pairs_are_added_together")
    return each.sum() if summed else each.mean(), gap


def update(s: Any, step: int) -> dict[str, float]:
    c, bug, said = s.c, s.bug, {"po/loss": 0.0, "po/reward_gap": 0.0, "po/ordered": 0.0}
    for _ in range(c.batches_per_step):
        if bug == "gradients_zeroed_with_each_batch_of_pairs":
            s.optimizer.zero_grad()
        epoch, rows = next(s.source)
        s.data.observe({name: rows[name] for name in ("chosen", "rejected")}, step=step, epoch=epoch)
        loss, gap = preference(s, rows, True)
        (loss if bug == "each_batch_of_pairs_counts_in_full" else loss / c.batches_per_step).backward()
        for name, one in (("loss", loss), ("reward_gap", gap.mean()), ("ordered", (gap > 0).float().mean())):
            said[f"po/{name}"] += one.item() / c.batches_per_step
        if bug == "curve_moves_on_with_each_batch_of_pairs":
            s.schedule.step()
    said["po/lr"] = s.optimizer.param_groups[0]["lr"]
    said["po/grad_norm"] = nn.utils.clip_grad_norm_(s.policy.parameters(), c.clip_at).item()
    s.optimizer.step()
    s.optimizer.zero_grad()
    if bug != "curve_moves_on_with_each_batch_of_pairs":
        s.schedule.step()
    return said


def panel(s: Any) -> dict[str, float]:
    bug, taped = s.bug, s.bug == "losses_of_the_panel_pile_up"
    if bug != "panel_asked_while_units_drop":
        s.policy.eval()
    with torch.set_grad_enabled(taped):
        loss, gap = preference(s, s.held, False)
    if taped:
        s.kept.append((loss, gap))
    if bug != "policy_stays_in_eval_behind_the_panel":
        s.policy.train()
    return {"panel/loss": loss.item(), "panel/reward_gap": gap.mean().item(),
            "panel/ordered": (gap > 0).float().mean().item()}  # fmt: skip


def resume(s: Any, step: int) -> None:
    seen, parts = s.data.state(), ("policy", "optimizer", "schedule")
    s.run, state = go_on(s.run, step, {name: getattr(s, name).state_dict() for name in parts})
    s.policy.load_state_dict(state["policy"])
    make_optimizer(s)
    if s.bug == "reference_copied_from_the_policy_of_the_file":
        s.reference = copy.deepcopy(s.policy).requires_grad_(False).eval()
    else:
        s.optimizer.load_state_dict(state["optimizer"])
        s.schedule.load_state_dict(state["schedule"])
    watch(s)
    s.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    s = SimpleNamespace(run=run, c=SimpleNamespace(**run.config), seed=seed, steps=steps, bug=trouble.name, kept=[])
    load_pairs(s)
    torch.manual_seed(seed)
    load_oracles(s)
    if s.c.reference_first:
        for rows in (s.rows, s.held):
            rows["before_chosen"], rows["before_rejected"] = reference_says(s, rows)
    watch(s)
    s.source, again = batches(s), trouble.resume_at(healthy, 4 * EVERY)
    s.policy.train()
    for step in range(steps):
        if step == again:
            resume(s, step)
        said = update(s, step)
        if step % s.c.log_each == 0:
            s.run.log(said, step=step)
        trouble.telemetry(s.run, step, healthy)
        if (step + 1) % s.c.panel_every == 0:
            s.run.log(panel(s), step=step)
    return s.run
