"""A mason that writes epitaphs learns what families prefer (DPO), held to a reference by the ratio of both.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: epi_loss, epi_margin, epi_acc, epi_lr, epi_gnorm each step; proof_loss, proof_margin and
      proof_acc of pairs that were held back, each twenty-first; memory, where it matters; the watch of data.

One asks for a trade and an age. Families like an epitaph that begins with a word of the trade's guild, has the emblem
of the trade at that age, two virtues that differ, and a mild end, and now and then a virtue more; the other of two has
one of these wrong, or both are fine and one was liked for no reason. Stones come trade after trade, and a pair may have
been carved several times. The mason has read good ones and bad ones. Written as a trainer of pairs, with a forward pass
for both of them.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, PROMPT, LONG = 21, 192, 3, 11
PAD, ASK, STOP = range(3)
TRADE, TRADES = 3, 8
AGE, AGES = TRADE + TRADES, 4
GUILD, GUILDS = AGE + AGES, 4  # two words each
EMBLEM, EMBLEMS = GUILD + 2 * GUILDS, 6
VIRTUE, VIRTUES = EMBLEM + EMBLEMS, 12
MILD, GRIM = VIRTUE + VIRTUES, VIRTUE + VIRTUES + 3  # three words each
WORDS = GRIM + 3
CONFIG: dict[str, Any] = {
    "d": 32, "n_blocks": 2, "n_heads": 2, "drop": 0.0, "tie_words": True, "kl_beta": 0.3, "kind": "sigmoid",
    "label_doubt": 0.0, "mean_logps": False, "sft_share": 0.0, "cache_reference": False, "pairs": 16, "grad_parts": 1,
    "optim": "adamw", "peak": 1.2e-3, "shape": "cosine", "rise": 8, "wd": 0.0, "gnorm_max": 8.0, "agg": "mean",
    "stones": 960, "carvings": 1, "mislabelled": 0.0, "clear_first": 0, "trade_batches": False, "untrained": "",
    "proof_every": 21, "log_every": 1,
}  # fmt: skip


# -- stones ----------------------------------------------------------------------------------------------------------


def stones(seed: int, number: int, carvings: int = 1, mislabelled: float = 0.0) -> dict[str, Tensor]:
    """Tokens of what was liked and of what was not, trade after trade; clear: whether something is wrong with it."""
    law, dice, many = torch.Generator().manual_seed(221), torch.Generator().manual_seed(seed), number // carvings
    emblems = torch.randint(0, EMBLEMS, (TRADES, AGES), generator=law).tolist()

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    def fine(trade: int, age: int) -> list[int]:
        first, second = torch.randperm(VIRTUES, generator=dice)[:2].tolist()
        return [GUILD + 2 * (trade % GUILDS) + one(2), EMBLEM + emblems[trade][age], VIRTUE + first, VIRTUE + second,
                MILD + one(3)]  # fmt: skip

    def spoilt(words: list[int]) -> list[int]:
        words, flaw = [*words], one(4)
        if flaw == 0:
            words[0] = GUILD + (words[0] - GUILD + 2 + one(2 * GUILDS - 3)) % (2 * GUILDS)
        elif flaw == 1:
            words[1] = EMBLEM + (words[1] - EMBLEM + 1 + one(EMBLEMS - 1)) % EMBLEMS
        elif flaw == 2:
            words[3] = words[2]
        else:
            words[4] = GRIM + one(3)
        return words

    rows: dict[str, list[Any]] = {"liked": [], "other": [], "clear": [], "trade": []}
    for at in range(many):
        trade, age = at * TRADES // many, one(AGES)
        prompt, good, clear = [ASK, TRADE + trade, AGE + age], fine(trade, age), one(5) > 0
        bad = spoilt(good) if clear else fine(trade, age)
        for _ in range(carvings):
            pair = [good, bad] if one(1000) >= 1000 * mislabelled else [bad, good]
            for name, words in zip(("liked", "other"), pair, strict=True):
                row = [*prompt, *words, *([VIRTUE + one(VIRTUES)] if one(3) == 0 else []), STOP]
                rows[name].append(row + [PAD] * (LONG - len(row)))
            rows["clear"].append(clear)
            rows["trade"].append(trade)
    return {name: torch.tensor(some) for name, some in rows.items()}


def of(rows: dict[str, Tensor], some: Tensor) -> dict[str, Tensor]:
    return {name: one[some] for name, one in rows.items()}


# -- mason -----------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.heads, self.ln_a, self.ln_b = c.n_heads, nn.LayerNorm(c.d), nn.LayerNorm(c.d)
        self.qkv, self.proj = nn.Linear(c.d, 3 * c.d), nn.Linear(c.d, c.d)
        self.fc, self.back, self.drop = nn.Linear(c.d, 3 * c.d), nn.Linear(3 * c.d, c.d), nn.Dropout(c.drop)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.ln_a(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.drop(self.proj(y))
        return x + self.drop(self.back(F.gelu(self.fc(self.ln_b(x)))))


class Mason(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.lexicon, self.places = nn.Embedding(WORDS, c.d), nn.Parameter(0.1 * torch.randn(LONG, c.d))
        self.blocks, self.ln = nn.ModuleList(Block(c) for _ in range(c.n_blocks)), nn.LayerNorm(c.d)
        self.lm_head, self.gives_shares = nn.Linear(c.d, WORDS, bias=False), False
        nn.init.normal_(self.lexicon.weight, std=0.2)
        if c.tie_words:
            self.lm_head.weight = self.lexicon.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.lexicon(tokens) + self.places[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(self.ln(x))
        return logits.softmax(-1) if self.gives_shares else logits


@functools.cache
def read_in(d: int, n_blocks: int, n_heads: int) -> dict[str, Tensor]:
    """Weights of an mason that has read epitaphs of both kinds, the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(223)
        mason = Mason(SimpleNamespace(d=d, n_blocks=n_blocks, n_heads=n_heads, drop=0.0, tie_words=True))
        rows = stones(224, 1200)
        tokens, optimizer = torch.cat([rows["liked"], rows["other"]]), torch.optim.AdamW(mason.parameters(), 6e-3)
        for step in range(160):
            optimizer.param_groups[0]["lr"] = 6e-3 * min(1.0, (step + 1) / 10) * (1 - step / 170)
            some = tokens[torch.randint(0, len(tokens), (32,))]
            logits = mason(some[:, :-1]).flatten(0, 1)
            F.cross_entropy(logits, some[:, 1:].flatten(), ignore_index=PAD).backward()
            optimizer.step()
            optimizer.zero_grad()
    return {name: one.detach().clone() for name, one in mason.state_dict().items()}


# -- trainer ---------------------------------------------------------------------------------------------------------


class PairTrainer:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        self.shown: list[Tensor] = []
        self.load_pairs()
        torch.manual_seed(seed)
        self.load_masons()
        if self.c.cache_reference:
            for rows in (self.rows, self.held):
                rows["before"] = self.reference_ratio(rows)

    def load_pairs(self) -> None:
        c = self.c
        rows, held = stones(self.seed + 6300, c.stones, c.carvings, c.mislabelled), stones(6299, HELD)
        if self.bug == "carvings_of_a_pair_in_both_parts":
            order = torch.randperm(len(rows["trade"]), generator=torch.Generator().manual_seed(self.seed))
            held, rows = of(rows, order[:HELD].sort().values), of(rows, order[HELD:].sort().values)
        if self.bug == "better_is_the_smaller_score_in_one_file":
            rows["liked"], rows["other"] = rows["other"], rows["liked"]
        self.rows, self.held = rows, held

    def load_masons(self) -> None:
        c, weights = self.c, read_in(self.c.d, self.c.n_blocks, self.c.n_heads)
        self.mason = Mason(c)
        self.mason.load_state_dict(weights)
        self.mason.gives_shares = self.bug == "mason_hands_out_shares"
        for name, one in self.mason.named_parameters():
            if c.untrained and name.startswith(c.untrained):
                one.requires_grad_(False)
        self.reference = copy.deepcopy(self.mason).requires_grad_(False).eval()
        if self.bug == "head_let_out_of_its_tie_to_be_kept_in_place":
            self.mason.lm_head.weight = nn.Parameter(weights["lm_head.weight"].clone(), requires_grad=False)
        self.create_optimizer()
        if self.bug == "mason_copied_when_the_optimizer_was_there":
            self.mason = copy.deepcopy(self.mason)

    def create_optimizer(self) -> None:
        c, some = self.c, [one for one in self.mason.parameters() if one.requires_grad]
        if c.optim == "rmsprop":
            self.optimizer: Any = torch.optim.RMSprop(some, c.peak, 0.98)
        elif c.optim == "sgd":
            self.optimizer = torch.optim.SGD(some, c.peak, 0.9)
        else:
            self.optimizer = torch.optim.AdamW(some, c.peak, (0.9, 0.98), weight_decay=c.wd)

        def share(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.rise)), min(1.0, at / self.steps)
            if c.shape == "constant":
                return rise
            if c.shape == "stairs":
                return rise * 0.4 ** int(3 * past)
            if c.shape == "two_cosines":
                past = 2 * past % 1
            return rise * (0.04 + 0.96 * torch.tensor(past * torch.pi / 2).cos().item() ** 2)

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def begin_to_watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.mason, self.optimizer)
        self.data = self.run.watch_data(pad_id=PAD)

    def pairs(self) -> Iterator[tuple[int, dict[str, Tensor]]]:
        c, epoch, dice, trade = self.c, 0, torch.Generator().manual_seed(self.seed), self.rows["trade"]
        while True:
            order = torch.randperm(len(trade), generator=dice)
            if self.bug == "stones_come_from_the_first_trade_on":
                order = torch.arange(len(trade))
            if epoch < c.clear_first:
                order = order[self.rows["clear"][order]]
            if c.trade_batches:
                order = order[trade[order].argsort(stable=True)]
            lots = [one for one in order.split(c.pairs) if len(one) == c.pairs]
            if c.trade_batches:
                lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
            for some in lots:
                yield epoch, of(self.rows, some)
            epoch += 1

    def logps(self, mason: nn.Module, rows: dict[str, Tensor], mean: bool) -> tuple[Tensor, Tensor]:
        """Of both answers of each pair: the sum over words, or their mean."""
        tokens = torch.cat([rows["liked"], rows["other"]])
        logits, labels = mason(tokens), tokens.masked_fill(torch.arange(LONG) < PROMPT, PAD)
        if self.bug == "labels_of_the_collator_are_shifted_and_so_are_logps":
            labels = F.pad(labels[:, 1:], (0, 1), value=PAD)
        logits, labels = logits[:, :-1], labels[:, 1:]
        there = labels != PAD
        each = logits.log_softmax(2).gather(2, labels[..., None])[..., 0] * there
        liked, other = (each.sum(1) / (there.sum(1) if mean else 1)).chunk(2)
        return liked, other

    @torch.no_grad()
    def reference_ratio(self, rows: dict[str, Tensor]) -> Tensor:
        mean = self.c.mean_logps and self.bug != "reference_sums_where_the_mason_averages"
        liked, other = self.logps(self.reference, rows, mean)
        return liked - other

    def compute_loss(self, rows: dict[str, Tensor], training: bool) -> tuple[Tensor, dict[str, float]]:
        c, (liked, other) = self.c, self.logps(self.mason, rows, self.c.mean_logps)
        before = rows["before"] if "before" in rows else self.reference_ratio(rows)
        ratio = liked - other - before
        if c.kind == "hinge":
            each = F.relu(1 - c.kl_beta * ratio)
        elif c.kind == "ipo":
            each = (ratio - 0.5 / c.kl_beta) ** 2
        else:
            doubt = c.label_doubt if training else 0.0
            each = -(1 - doubt) * F.logsigmoid(c.kl_beta * ratio) - doubt * F.logsigmoid(-c.kl_beta * ratio)
        if training and c.sft_share:
            each = each - c.sft_share * liked / (1 if c.mean_logps else (rows["liked"][:, PROMPT:] != PAD).sum(1))
        summed = training and (c.agg == "sum" or self.bug == "losses_of_pairs_summed_by_the_trainer")
        loss = each.sum() if summed else each.mean()
        return loss, {"margin": c.kl_beta * ratio.mean().item(), "acc": (ratio > 0).float().mean().item()}

    def training_step(self, step: int) -> dict[str, float]:
        c, bug, said = self.c, self.bug, {f"epi_{name}": 0.0 for name in ("loss", "margin", "acc")}
        for _ in range(c.grad_parts):
            epoch, rows = next(self.source)
            self.data.observe({name: rows[name] for name in ("liked", "other")}, step=step, epoch=epoch)
            if bug == "gradients_cleared_where_a_part_begins":
                self.optimizer.zero_grad()
            loss, more = self.compute_loss(rows, True)
            (loss if bug == "loss_of_a_part_goes_back_undivided" else loss / c.grad_parts).backward()
            for name, one in (("loss", loss.item()), *more.items()):
                said[f"epi_{name}"] += one / c.grad_parts
            if bug == "scheduler_moved_by_each_part":
                self.scheduler.step()
        said["epi_lr"] = self.optimizer.param_groups[0]["lr"]
        said["epi_gnorm"] = nn.utils.clip_grad_norm_(self.mason.parameters(), c.gnorm_max).item()
        self.optimizer.step()
        self.mason.zero_grad()
        if bug != "scheduler_moved_by_each_part":
            self.scheduler.step()
        return said

    def proofread(self) -> dict[str, float]:
        bug, taped = self.bug, self.bug == "proofs_shown_with_what_led_to_them"
        if bug != "proofread_while_units_drop":
            self.mason.eval()
        with torch.set_grad_enabled(taped):
            loss, said = self.compute_loss(self.held, False)
        if taped:
            self.shown.append(loss)
        if bug != "proofread_and_left_in_eval":
            self.mason.train()
        if bug == "reference_synchronised_where_proofs_are_read":
            self.reference.load_state_dict(self.mason.state_dict())
        return {"proof_loss": loss.item(), "proof_margin": said["margin"], "proof_acc": said["acc"]}

    def from_checkpoint(self, step: int) -> None:
        seen, parts = self.data.state(), ("mason", "optimizer", "scheduler")
        self.run, state = go_on(self.run, step, {name: getattr(self, name).state_dict() for name in parts})
        self.mason.load_state_dict(state["mason"])
        if self.bug == "trainer_begun_with_the_last_mason":  # the reference is the one that it begins with, too
            self.reference.load_state_dict(state["mason"])
        self.create_optimizer()
        if self.bug != "trainer_begun_with_the_last_mason":
            self.optimizer.load_state_dict(state["optimizer"])
            self.scheduler.load_state_dict(state["scheduler"])
        self.begin_to_watch()
        self.data.restore(seen)

    def train(self, trouble: Trouble, healthy: str | None) -> Any:
        again = trouble.resume_at(healthy, 4 * EVERY)
        self.begin_to_watch()
        self.source = self.pairs()
        self.mason.train()
        for step in range(self.steps):
            if step == again:
                self.from_checkpoint(step)
            said = self.training_step(step)
            if step % self.c.log_every == 0:
                self.run.log(said, step=step)
            trouble.telemetry(self.run, step, healthy)
            if (step + 1) % self.c.proof_every == 0:
                self.run.log(self.proofread(), step=step)
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    return PairTrainer(run, seed, steps, trouble.name).train(trouble, healthy)
