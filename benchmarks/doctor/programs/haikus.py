"""A small poet of haikus is brought to what a jury prefers (DPO), beside a reference that stays as it was.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: haiku_loss, haiku_margin, haiku_won, haiku_lr, haiku_norm each step; jury_loss, jury_margin
      and jury_won of pairs that were held back, each twenty-sixth; memory, where it matters; the watch of data.

A theme is a season and a thing. A good haiku has lines of five, seven and five syllables, a word of its season, and
the thing. The other one has a line too long or too short, a word of another season, no word of the thing, or a word
twice in a row. The file says of two haikus which of them won, counted from one. Several drafts may be of one haiku.
The poet has read good ones and bad ones. Written as plain functions over a studio in which everything lies.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, LONG, PROMPT = 26, 160, 26, 3
PAD, BEGIN, BREAK, END = range(4)
SEASON, SEASONS = 4, 4
THING, THINGS = SEASON + SEASONS, 8
OF_SEASON = THING + THINGS  # two words a season, of two and three syllables
WORD, COMMON = OF_SEASON + 2 * SEASONS, 15  # a third of them has one, two, three syllables
WORDS = WORD + COMMON
SYLLABLES = {THING + at: 1 + at % 2 for at in range(THINGS)}
SYLLABLES |= {OF_SEASON + at: 2 + at % 2 for at in range(2 * SEASONS)}
SYLLABLES |= {WORD + at: 1 + at % 3 for at in range(COMMON)}
CONFIG: dict[str, Any] = {
    "width": 40, "blocks": 2, "heads": 4, "dropout": 0.0, "tied": True, "beta": 0.3, "objective": "dpo",
    "doubt": 0.0, "per_word": False, "nll_weight": 0.0, "reference_beforehand": False, "pairs_a_batch": 16,
    "micro_batches": 1, "optimizer": "adam", "lr": 1.2e-3, "lr_plan": "linear", "lr_warmup": 8, "decay": 0.0,
    "norm_limit": 8.0, "loss_of_a_batch": "mean", "pairs": 960, "drafts": 1, "jury_errs": 0.0, "plain_flaws_first": 0,
    "batches_by_length": False, "held_still": "", "jury_every": 26, "log_every": 1,
}  # fmt: skip
Pair = dict[str, Any]


# -- haikus ----------------------------------------------------------------------------------------------------------


class Dice:
    def __init__(self, seed: int):
        self.own = torch.Generator().manual_seed(seed)

    def one(self, many: int) -> int:
        return int(torch.randint(0, many, (), generator=self.own))


def line(dice: Dice, syllables: int, first: list[int]) -> list[int]:
    """Words of so many syllables, some of which are given."""
    words, left = [*first], syllables - sum(SYLLABLES[one] for one in first)
    while left > 0:
        word = WORD + dice.one(COMMON)
        if SYLLABLES[word] <= left and (not words or words[-1] != word):
            words.append(word)
            left -= SYLLABLES[word]
    return words


def spoilt(dice: Dice, lines: list[list[int]], season: int, flaw: int) -> list[list[int]]:
    """The haiku with a flaw; none of its lines is the same object."""
    lines = [[*one] for one in lines]
    which = dice.one(3)
    if flaw == 0:  # too long, or too short
        if dice.one(2) or len(lines[which]) < 3:
            lines[which].append(WORD + dice.one(COMMON))
        else:
            lines[which].pop()
    elif flaw == 1:  # a word of another season
        other = (season + 1 + dice.one(SEASONS - 1)) % SEASONS
        lines = [[OF_SEASON + 2 * other + (one - OF_SEASON) % 2 if OF_SEASON <= one < WORD else one for one in some]
                 for some in lines]  # fmt: skip
    elif flaw == 2:  # no word of the thing
        lines = [[WORD + (one - THING) % 2 if THING <= one < OF_SEASON else one for one in some] for some in lines]
    else:
        lines[which].insert(1, lines[which][0])
    return lines


def told(prompt: list[int], lines: list[list[int]]) -> list[int]:
    return [*prompt, *lines[0], BREAK, *lines[1], BREAK, *lines[2], END]


def pairs(seed: int, number: int, drafts: int = 1, errs: float = 0.0) -> list[Pair]:
    """Two haikus each, and which of them won; season after season."""
    dice, made, many = Dice(seed), [], number // drafts
    for at in range(many):
        season, thing = at * SEASONS // many, THING + dice.one(THINGS)
        of_season, places = OF_SEASON + 2 * season + dice.one(2), torch.randperm(3, generator=dice.own).tolist()
        given = [[thing] if places[0] == one else [of_season] if places[1] == one else [] for one in range(3)]
        lines = [line(dice, syllables, given[one]) for one, syllables in enumerate((5, 7, 5))]
        for _ in range(drafts):
            flaw, prompt = dice.one(4), [BEGIN, SEASON + season, thing]
            good, bad, turned = told(prompt, lines), told(prompt, spoilt(dice, lines, season, flaw)), dice.one(2)
            wrong = dice.one(1000) < 1000 * errs
            made.append({"haikus": (bad, good) if turned else (good, bad), "winner": 1 + (turned ^ wrong),
                         "flaw": flaw})  # fmt: skip
    return made


def columns(some: list[Pair], cut: int = LONG) -> dict[str, Tensor]:
    """Tokens of winners and of losers."""
    made: dict[str, list[Tensor]] = {"won": [], "lost": []}
    for one in some:
        won, lost = one["haikus"][one["winner"] - 1], one["haikus"][one["winner"] - 2]
        for name, row in (("won", won), ("lost", lost)):
            made[name].append(F.pad(torch.tensor(row[:cut]), (0, LONG - len(row[:cut])), value=PAD))
    return {name: torch.stack(rows) for name, rows in made.items()}


# -- poet ------------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """Several queries, one key and one value."""

    def __init__(self, c: Any):
        super().__init__()
        d = c.width
        self.heads, self.one, self.two = c.heads, nn.RMSNorm(d), nn.RMSNorm(d)
        self.query, self.both, self.out = nn.Linear(d, d), nn.Linear(d, 2 * d // c.heads), nn.Linear(d, d)
        self.gate, self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        self.drop = nn.Dropout(c.dropout)

    def forward(self, x: Tensor) -> Tensor:
        y = self.one(x)
        q = self.query(y).unflatten(2, (self.heads, -1)).transpose(1, 2)
        k, v = (one[:, None].expand(-1, self.heads, -1, -1) for one in self.both(y).chunk(2, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.drop(self.out(y))
        y = self.two(x)
        return x + self.drop(self.down(F.silu(self.gate(y)) * self.up(y)))


class Poet(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.width
        self.words, self.places = nn.Embedding(WORDS, d), nn.Parameter(0.1 * torch.randn(LONG, d))
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.blocks))
        self.norm, self.speak, self.shares = nn.RMSNorm(d), nn.Linear(d, WORDS, bias=False), False
        nn.init.normal_(self.words.weight, std=0.2)
        if c.tied:
            self.speak.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.speak(self.norm(x))
        return logits.softmax(-1) if self.shares else logits


def schooled(c: Any) -> dict[str, Tensor]:
    """Weights of a poet that has read good haikus and bad ones, the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(161)
        poet, read = Poet(SimpleNamespace(**(vars(c) | {"dropout": 0.0, "tied": True}))), columns(pairs(162, 1000))
        tokens = torch.cat([read["won"], read["lost"]])
        optimizer = torch.optim.AdamW(poet.parameters(), 6e-3)
        for step in range(200):
            optimizer.param_groups[0]["lr"] = 6e-3 * min(1.0, (step + 1) / 10) * (1 - step / 210)
            some = tokens[torch.randint(0, len(tokens), (24,))]
            logits = poet(some[:, :-1]).flatten(0, 1)
            F.cross_entropy(logits, some[:, 1:].flatten(), ignore_index=PAD).backward()
            optimizer.step()
            optimizer.zero_grad()
    return {name: one.detach().clone() for name, one in poet.state_dict().items()}


# -- studio ----------------------------------------------------------------------------------------------------------


def furnish(s: SimpleNamespace) -> None:
    """The pairs, the poet and the reference."""
    c, bug = s.c, s.bug
    rows, held = pairs(s.seed + 7700, c.pairs, c.drafts, c.jury_errs), pairs(7699, HELD)
    if bug == "drafts_of_a_haiku_on_both_sides":
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(s.seed)).tolist()
        held, rows = [rows[at] for at in order[:HELD]], [rows[at] for at in sorted(order[HELD:])]
    if bug == "winners_counted_from_nought_in_one_file":  # one less than nought is the last one
        for one in rows:
            one["winner"] -= 1
    s.flaw = torch.tensor([one["flaw"] for one in rows])
    s.rows, s.held = columns(rows, 10 if bug == "haikus_cut_at_ten_tokens" else LONG), columns(held)
    s.poet = Poet(c)
    s.poet.load_state_dict(schooled(c), assign=bug == "weights_assigned_where_two_names_share_one")
    s.poet.shares = bug == "likelihoods_of_what_is_a_softmax"
    s.reference = copy.deepcopy(s.poet).requires_grad_(False)
    s.reference.train(bug == "reference_asked_with_its_dropout")
    if bug == "poet_copied_from_the_frozen_reference":
        s.poet = copy.deepcopy(s.reference)
        s.poet.speak.requires_grad_(True)
    for name in filter(None, c.held_still.split(",")):
        s.poet.get_submodule(name).requires_grad_(False)
    if c.reference_beforehand:
        with torch.no_grad():
            for some in (s.rows, s.held):
                some |= {f"{name}_before": logps(s, s.reference, some[name]) for name in ("won", "lost")}


def hire(s: SimpleNamespace) -> None:
    """Optimizer and rate."""
    c, some = s.c, [one for one in s.poet.parameters() if one.requires_grad]
    if c.optimizer == "radam":
        s.optimizer = torch.optim.RAdam(some, c.lr)
    elif c.optimizer == "rmsprop":
        s.optimizer = torch.optim.RMSprop(some, c.lr, 0.98)
    else:
        s.optimizer = torch.optim.AdamW(some, c.lr, (0.9, 0.98), weight_decay=c.decay)

    def plan(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.lr_warmup)), min(1.0, at / s.steps)
        if c.lr_plan == "constant":
            return rise
        if c.lr_plan == "stairs":
            return rise * 0.5 ** int(4 * past)
        if c.lr_plan == "two_lines":
            past = 2 * past % 1
        return rise * (1 - 0.95 * past)

    s.plan = torch.optim.lr_scheduler.LambdaLR(s.optimizer, plan)


def watch(s: SimpleNamespace) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.poet, s.optimizer)
    s.data = s.run.watch_data(pad_id=PAD)


def readings(s: SimpleNamespace) -> Iterator[tuple[int, dict[str, Tensor]]]:
    c, epoch, dice, size = s.c, 0, torch.Generator().manual_seed(s.seed), s.c.pairs_a_batch
    long = (s.rows["won"] != PAD).sum(1)
    while True:
        order = torch.randperm(len(long), generator=dice)
        if s.bug == "readings_of_a_year_from_spring_to_winter":
            order = torch.arange(len(long))
        if epoch < c.plain_flaws_first:
            order = order[s.flaw[order] % 2 == 0]
        if c.batches_by_length:
            order = order[long[order].argsort(stable=True)]
        lots = [one for one in order.split(size) if len(one) == size]
        if c.batches_by_length:
            lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
        for some in lots:
            yield epoch, {name: one[some] for name, one in s.rows.items()}
        epoch += 1


def logps(s: SimpleNamespace, poet: nn.Module, tokens: Tensor) -> Tensor:
    """Of each haiku, behind its theme: the sum over its words, or their mean."""
    logits, asked = poet(tokens)[:, PROMPT - 1 : -1], tokens[:, PROMPT:]
    there = asked != PAD
    if s.bug == "words_asked_for_where_they_are_read":
        asked = tokens[:, PROMPT - 1 : -1]
    each = logits.log_softmax(2).gather(2, asked[..., None])[..., 0] * there
    return each.sum(1) / (there.sum(1) if s.c.per_word else 1)


def verdicts(s: SimpleNamespace, rows: dict[str, Tensor], training: bool) -> tuple[Tensor, dict[str, float]]:
    """Losses of pairs, and what is told of them."""
    c, won, lost = s.c, logps(s, s.poet, rows["won"]), logps(s, s.poet, rows["lost"])
    if "won_before" in rows:
        before = rows["won_before"] - rows["lost_before"]
    else:
        with torch.no_grad():
            before = logps(s, s.reference, rows["won"]) - logps(s, s.reference, rows["lost"])
    gap = won - lost - before
    if c.objective == "ipo":
        each = (gap - 0.5 / c.beta) ** 2
    else:
        doubt = c.doubt if training else 0.0
        each = -(1 - doubt) * F.logsigmoid(c.beta * gap) - doubt * F.logsigmoid(-c.beta * gap)
    if c.nll_weight and training:
        each = each - c.nll_weight * won / (1 if c.per_word else (rows["won"][:, PROMPT:] != PAD).sum(1))
    return each, {"margin": c.beta * gap.mean().item(), "won": (gap > 0).float().mean().item()}


def write(s: SimpleNamespace, step: int) -> dict[str, float]:
    """One update of the poet."""
    c, bug, told = s.c, s.bug, dict.fromkeys(("haiku_loss", "haiku_margin", "haiku_won"), 0.0)
    for _ in range(c.micro_batches):
        epoch, rows = next(s.readings)
        s.data.observe({name: rows[name] for name in ("won", "lost")}, step=step, epoch=epoch)
        each, said = verdicts(s, rows, True)
        added = c.loss_of_a_batch == "sum" or bug == "verdicts_of_a_batch_added_up"
        loss = each.sum() if added else each.mean()
        (loss if bug == "micro_losses_backed_as_they_come" else loss / c.micro_batches).backward()
        for name, one in (("loss", loss.item()), *said.items()):
            told[f"haiku_{name}"] += one / c.micro_batches
        if bug == "plan_goes_on_with_each_micro_batch":
            s.plan.step()
    told["haiku_lr"] = s.optimizer.param_groups[0]["lr"]
    told["haiku_norm"] = nn.utils.clip_grad_norm_(s.poet.parameters(), c.norm_limit).item()
    s.optimizer.step()
    s.optimizer.zero_grad()
    if bug != "plan_goes_on_with_each_micro_batch":
        s.plan.step()
    return told


def judge(s: SimpleNamespace) -> dict[str, float]:
    bug, taped = s.bug, s.bug == "verdicts_of_the_jury_kept_live"
    if bug != "jury_hears_the_poet_with_dropout":
        s.poet.eval()
    with torch.set_grad_enabled(taped):
        each, said = verdicts(s, s.held, False)
    if taped:
        s.minutes.append(each)
    if bug != "jury_leaves_the_poet_in_eval":
        s.poet.train()
    return {"jury_loss": each.mean().item(), "jury_margin": said["margin"], "jury_won": said["won"]}


def reopen(s: SimpleNamespace, step: int) -> None:
    seen = s.data.state()
    state = {name: getattr(s, name).state_dict() for name in ("poet", "optimizer", "plan")}
    s.run, state = go_on(s.run, step, state)
    s.poet.load_state_dict(state["poet"])
    hire(s)
    if s.bug != "poet_taken_from_the_best_file_for_a_new_fit":
        s.optimizer.load_state_dict(state["optimizer"])
        s.plan.load_state_dict(state["plan"])
    watch(s)
    s.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, c = Trouble(fault, seed), SimpleNamespace(**run.config)
    s = SimpleNamespace(run=run, c=c, seed=seed, steps=steps, bug=trouble.name, minutes=[])
    torch.manual_seed(seed)
    furnish(s)
    hire(s)
    watch(s)
    s.readings, again = readings(s), trouble.resume_at(healthy, 3 * EVERY)
    s.poet.train()
    for step in range(steps):
        if step == again:
            reopen(s, step)
        told = write(s, step)
        if step % c.log_every == 0:
            s.run.log(told, step=step)
        trouble.telemetry(s.run, step, healthy)
        if (step + 1) % c.jury_every == 0:
            s.run.log(judge(s), step=step)
    return s.run
