"""A recurrent net that counts things in a list learns by pairs of answers which of two tallies is the better one (DPO).

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: pref.loss, pref.gap, pref.wins, pref.step_size, pref.grad each step; check.loss, check.gap
      and check.wins of held lists, each thirty-second; memory, where it matters; the watch of data.

A list has up to nine things of five sorts in any order; its tally says of each sort that is there how many there are,
in a fixed order, and ends. Worse tallies count one too many or too few, leave a sort out, say one twice, or go on. The
net is a GRU whose output layer is the table of words; it has seen tallies of all these kinds. It is compared with a
copy that is not trained. Written as small classes that each do one thing: a book of lists, a referee that compares, a
coach that trains.
"""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, SORTS, MOST, LONG = 32, 160, 5, 9, 26
PAD, LIST, TALLY, DONE, SORT = 0, 1, 2, 3, 4
COUNT, WORDS = SORT + SORTS - 1, SORT + SORTS + MOST
CONFIG: dict[str, Any] = {
    "hidden": 48, "layers": 1, "dropout": 0.0, "tied": True, "beta": 0.2, "loss": "sigmoid", "tally_smoothing": 0.0,
    "sft_share": 0.0, "lists_per_step": 16, "slices": 1, "optimizer": "adam", "step_size": 1.2e-3, "course": "poly",
    "warmup": 10, "weight_decay": 0.0, "grad_limit": 5.0, "reduction": "mean", "lists": 900, "pairs_per_list": 1,
    "flipped": 0.0, "few_things_first": 0, "like_lengths": False, "keep_fixed": "",
    "check_every": 32, "report_every": 1,
}  # fmt: skip


class Pairs(NamedTuple):
    """Rows of words, and where their tallies are."""

    good: Tensor
    good_at: Tensor
    bad: Tensor
    bad_at: Tensor
    things: Tensor

    def pick(self, some: Tensor) -> Pairs:
        return Pairs(*(one[some] for one in self))


class Book:
    """Lists with their tallies, kind of worse tally after kind."""

    def __init__(self, seed: int):
        self.dice = torch.Generator().manual_seed(seed)

    def one(self, many: int) -> int:
        return int(torch.randint(0, many, (), generator=self.dice))

    def worse(self, counts: list[int], kind: int) -> list[int]:
        there = [at for at in range(SORTS) if counts[at]]
        at, told = there[self.one(len(there))], list(counts)
        if kind == 0:
            told[at] = told[at] + 1 if (told[at] < MOST and self.one(2)) or told[at] == 1 else told[at] - 1
        elif kind == 1:
            told[at] = 0
        words = self.words(told)
        if kind == 2:
            words += self.words([one if one_at == at else 0 for one_at, one in enumerate(counts)])
        elif kind == 3:
            words += [SORT + self.one(SORTS), COUNT + 1 + self.one(3)]
        return words

    @staticmethod
    def words(counts: list[int]) -> list[int]:
        return [word for at, many in enumerate(counts) if many for word in (SORT + at, COUNT + many)]

    def pairs(self, number: int, each: int = 1, flipped: float = 0.0, wide: int = LONG) -> Pairs:
        """each: pairs of one list."""
        found: list[tuple[int, list[int], list[int], list[int]]] = []
        for _ in range(number // each):
            things = [self.one(SORTS) for _ in range(3 + self.one(MOST - 2))]
            counts, start = [things.count(at) for at in range(SORTS)], self.one(4)
            for pair in range(each):
                mixed = [things[at] for at in torch.randperm(len(things), generator=self.dice).tolist()]
                kind = (start + pair) % 4
                good, bad = self.words(counts), self.worse(counts, kind)
                if float(torch.rand((), generator=self.dice)) < flipped:
                    good, bad = bad, good
                found.append((kind, [LIST, *(SORT + one for one in mixed), TALLY], good, bad))
        found.sort(key=lambda one: one[0])
        rows, masks = torch.full((2, len(found), wide), PAD), torch.zeros(2, len(found), wide)
        for at, (_, prompt, *both) in enumerate(found):
            for side, told in enumerate(both):
                row = torch.tensor([*prompt, *told, DONE])[:wide]
                rows[side, at, : len(row)] = row
                masks[side, at, len(prompt) : len(row)] = 1
        things = torch.tensor([len(prompt) - 2 for _, prompt, *_ in found])
        return Pairs(rows[0], masks[0], rows[1], masks[1], things)


class Counter(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.words = nn.Embedding(WORDS, c.hidden)
        self.gru = nn.GRU(c.hidden, c.hidden, c.layers, batch_first=True)
        self.norm, self.drop = nn.LayerNorm(c.hidden), nn.Dropout(c.dropout)
        self.mix = nn.Linear(2 * c.hidden, c.hidden)
        self.say = nn.Linear(c.hidden, WORDS, bias=False)
        nn.init.normal_(self.words.weight, std=0.15)
        if c.tied:
            self.say.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.drop(self.words(ids))
        y = self.norm(self.gru(x)[0])
        scores = (y @ y.transpose(1, 2) / math.sqrt(y.shape[-1])).masked_fill(
            torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool(), -1e4
        )
        return self.say(self.drop(torch.tanh(self.mix(torch.cat([y, scores.softmax(-1) @ x], -1)))))


def schooled(c: Any) -> dict[str, Tensor]:
    """Weights of the net that has seen all kinds of tallies, the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(81)
        net = Counter(SimpleNamespace(**(vars(c) | {"dropout": 0.0})))
        pairs = Book(82).pairs(900)
        ids, at = (
            torch.cat([pairs.good, pairs.good, pairs.bad]),
            torch.cat([pairs.good_at, pairs.good_at, pairs.bad_at]),
        )
        optimizer = torch.optim.Adam(net.parameters(), 5e-3)
        for step in range(220):
            optimizer.param_groups[0]["lr"] = 5e-3 * min(1.0, (step + 1) / 10) * (1 - step / 230)
            some = torch.randint(0, len(ids), (32,))
            each = F.cross_entropy(net(ids[some, :-1]).transpose(1, 2), ids[some, 1:], reduction="none")
            ((each * at[some, 1:]).sum() / at[some, 1:].sum()).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return net.state_dict()


class Referee:
    """Compares what two nets say of tallies."""

    def __init__(self, c: Any, bug: str):
        self.c, self.bug = c, bug

    def told(self, net: nn.Module, ids: Tensor, at: Tensor, training: bool) -> Tensor:
        """How likely tallies are: the sum of their words' logarithms."""
        bug = self.bug
        inputs, wanted, mask = ids[:, :-1], ids[:, 1:], at[:, 1:]
        if bug == "words_wanted_are_moved_in_the_book_too" and training:
            wanted, mask = F.pad(ids[:, 2:], (0, 1), value=PAD), F.pad(at[:, 2:], (0, 1))
        if bug == "padding_behind_a_tally_counts" and training:
            mask = (at.cumsum(1) > 0).float()[:, 1:]
        each = net(inputs).log_softmax(-1).gather(2, wanted[..., None])[..., 0]
        total = (each * mask).sum(1)
        if bug == "means_over_words_for_the_check_alone" and not training:
            return total / mask.sum(1)
        return total

    def gap(self, policy: nn.Module, fixed: nn.Module, pairs: Pairs, training: bool) -> tuple[Tensor, Tensor]:
        """How much more the policy prefers the good tally; how likely that one is."""
        ids, at, many = torch.cat([pairs.good, pairs.bad]), torch.cat([pairs.good_at, pairs.bad_at]), len(pairs.good)
        mine = self.told(policy, ids, at, training)
        with torch.no_grad():
            theirs = self.told(fixed, ids, at, training)
        more = mine - theirs
        return more[:many] - more[many:], mine[:many] / pairs.good_at.sum(1)

    def loss(self, gap: Tensor, likely: Tensor) -> Tensor:
        c, z = self.c, self.c.beta * gap
        if c.loss == "hinge":
            each = (1 - z).relu()
        elif c.loss == "square":
            each = (gap - 1 / (2 * c.beta)) ** 2 * c.beta**2
        else:
            e = c.tally_smoothing
            each = -(1 - e) * F.logsigmoid(z) - e * F.logsigmoid(-z)
        return each - c.sft_share * likely


class Coach:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        c, self.done, self.kept = self.c, 0, []
        self.referee = Referee(c, bug)
        self.begun = schooled(c)
        torch.manual_seed(seed)
        self.policy = Counter(c)
        self.policy.load_state_dict(self.begun)
        if bug == "output_layer_put_in_from_the_file":  # strict loading asked for its name
            self.policy.say.weight = nn.Parameter(self.begun["say.weight"].clone())
        self.fixed = copy.deepcopy(self.policy).requires_grad_(False).eval()
        for name in filter(None, c.keep_fixed.split(",")):
            self.policy.get_submodule(name).requires_grad_(False)
        wide = 16 if bug == "rows_cut_at_sixteen_words" else LONG
        self.pairs = Book(seed + 830).pairs(c.lists, c.pairs_per_list, c.flipped, wide)
        held = Book(829).pairs(HELD)
        if bug == "held_columns_the_other_way_round":
            held = Pairs(held.bad, held.bad_at, held.good, held.good_at, held.things)
        self.held = held
        self.equip()

    def equip(self) -> None:
        c, named = self.c, [(name, one) for name, one in self.policy.named_parameters() if one.requires_grad]
        if self.bug == "groups_by_the_ends_of_names":  # those of a GRU end in numbers
            decayed = [one for name, one in named if name.endswith("weight")]
            plain = [one for name, one in named if name.endswith("bias")]
        else:
            decayed, plain = [one for _, one in named if one.ndim > 1], [one for _, one in named if one.ndim < 2]
        groups = [{"params": decayed, "weight_decay": c.weight_decay}, {"params": plain, "weight_decay": 0.0}]
        kind = {"adam": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop, "adamax": torch.optim.Adamax}[c.optimizer]
        self.optimizer = kind(groups, c.step_size)

    def step_size(self) -> float:
        c, past = self.c, min(1.0, self.done / self.steps)
        rise = c.step_size * min(1.0, (self.done + 1) / max(1, c.warmup))
        if c.course == "flat":
            return rise
        if c.course == "teeth":
            return rise * (1 - 0.95 * (2 * past % 1))
        return rise * (0.02 + 0.98 * (1 - past) ** 1.5)

    def lots(self) -> Any:
        c, epoch, dice = self.c, 0, torch.Generator().manual_seed(self.seed)
        while True:
            order = torch.randperm(len(self.pairs.good), generator=dice)
            if self.bug == "pairs_in_the_order_of_the_book":
                order = torch.arange(len(order))
            if epoch < c.few_things_first:
                order = order[self.pairs.things[order] < 7]
            if c.like_lengths:
                order = order[self.pairs.things[order].argsort(stable=True)]
            parts = [one for one in order.split(c.lists_per_step) if len(one) == c.lists_per_step]
            if c.like_lengths:
                parts = [parts[at] for at in torch.randperm(len(parts), generator=dice).tolist()]
            for some in parts:
                yield epoch, self.pairs.pick(some)
            epoch += 1

    def check(self, step: int) -> None:
        taped = self.bug == "gaps_of_the_check_are_kept_as_they_are"
        if self.bug != "check_while_words_are_dropped":
            self.policy.eval()
        with torch.set_grad_enabled(taped):
            gap, likely = self.referee.gap(self.policy, self.fixed, self.held, False)
            each = self.referee.loss(gap, likely)
        if taped:
            self.kept.append((gap, each))
        self.run.log({"check.loss": each.mean().item(), "check.gap": gap.mean().item(),
                      "check.wins": (gap > 0).float().mean().item()}, step=step)  # fmt: skip
        if self.bug != "policy_stays_as_it_was_checked":
            self.policy.train()

    def observe(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.policy, self.optimizer)
        self.watch = self.run.watch_data(pad_id=PAD)

    def resume(self, step: int) -> None:
        seen = self.watch.state()
        state = {"policy": self.policy.state_dict(), "optimizer": self.optimizer.state_dict(), "done": self.done}
        self.run, state = go_on(self.run, step, state)
        self.policy.load_state_dict(state["policy"])
        if self.bug == "fixed_net_from_the_file_of_the_policy":
            self.fixed.load_state_dict(state["policy"])
        self.equip()
        if self.bug == "only_the_policy_is_in_the_file":
            self.done = 0
        else:
            self.optimizer.load_state_dict(state["optimizer"])
            self.done = state["done"]
        self.observe()
        self.watch.restore(seen)

    def update(self, step: int, lots: Any) -> dict[str, float]:
        c, bug, said = self.c, self.bug, dict.fromkeys(("pref.loss", "pref.gap", "pref.wins"), 0.0)
        for _ in range(c.slices):
            now = self.step_size()
            self.done += bug == "done_is_counted_by_slices"
            epoch, pairs = next(lots)
            self.watch.observe({"good": pairs.good, "bad": pairs.bad}, step=step, epoch=epoch)
            gap, likely = self.referee.gap(self.policy, self.fixed, pairs, True)
            each = self.referee.loss(gap, likely)
            loss = each.sum() if c.reduction == "sum" or bug == "pairs_of_a_step_added" else each.mean()
            (loss if bug == "slices_weigh_as_much_as_a_whole" else loss / c.slices).backward()
            for name, one in (("loss", loss), ("gap", gap.mean()), ("wins", (gap > 0).float().mean())):
                said["pref." + name] += one.item() / c.slices
        self.done += bug != "done_is_counted_by_slices"
        for group in self.optimizer.param_groups:
            group["lr"] = now
        norm = nn.utils.clip_grad_norm_(self.policy.parameters(), c.grad_limit).item()
        self.optimizer.step()
        self.policy.zero_grad()
        return said | {"pref.step_size": now, "pref.grad": norm}


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    coach = Coach(run, seed, steps, trouble.name)
    c, again, lots = coach.c, trouble.resume_at(healthy, 2 * EVERY), coach.lots()
    coach.observe()
    coach.policy.train()
    for step in range(steps):
        if step == again:
            coach.resume(step)
        said = coach.update(step, lots)
        if step % c.report_every == 0:
            coach.run.log(said, step=step)
        trouble.telemetry(coach.run, step, healthy)
        if step % c.check_every == c.check_every - 1:
            coach.check(step)
    return coach.run
