"""Preferences teach a small decoder to tell the way through a town: of two answers one was liked better.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: ipo/objective, ipo/margin, ipo/accuracy, ipo/lr, ipo/grad_norm each step;
      ipo_held/objective, ipo_held/accuracy each fortieth; memory, where it matters; the watch of data.

A person stands at one corner and asks for another. The better answer goes along the streets and then across them, and
says when one is there; a worse one ends elsewhere, goes the other way, makes a detour, or does not say it. The decoder
has seen answers of all these kinds. The margin is how much more the policy prefers the better one than the frozen copy
does, as means over words; its distance from a goal is squared. Written with a table of tensors, a policy, and loose
functions that take both.
"""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, LONG, SIDE = 40, 160, 20, 6
PAD, ASK, GO, THERE, END = range(5)
EAST, WEST, NORTH, SOUTH = range(5, 9)
COUNT, ACROSS, UP = 9, 9 + SIDE, 9 + 2 * SIDE  # how many streets, a corner's two numbers
GREETING, GREETINGS = UP + SIDE, 4
VOCAB = GREETING + GREETINGS
CONFIG: dict[str, Any] = {
    "width": 40, "blocks": 2, "heads": 4, "dropout": 0.0, "tied_words": True, "objective": "ipo", "beta": 0.25,
    "mean_over_words": True, "likelihood_of_chosen": 0.0, "pairs_a_batch": 16, "accumulation": 1,
    "optimizer": "rmsprop", "peak_lr": 3e-4, "lr_plan": "cooldown", "warmup": 8, "decay": 0.0, "grad_cap": 2.0,
    "sum_over_pairs": False, "walks": 900, "answers_a_walk": 1, "mislabelled": 0.0, "near_first_epochs": 0,
    "sort_within": False, "held_blocks": 0, "eval_every": 40, "log_every": 1,
}  # fmt: skip


# -- walks and answers ----------------------------------------------------------------------------------------------


def legs(right: int, up: int) -> list[int]:
    """Along the streets, and then across them."""
    along = [EAST if right > 0 else WEST, COUNT + abs(right)] if right else []
    return [*along, *([NORTH if up > 0 else SOUTH, COUNT + abs(up)] if up else [])]


def walks(seed: int, number: int, each: int = 1, mislabelled: float = 0.0) -> list[dict[str, Any]]:
    """Prompts, better and worse answers, in no order. each: pairs of one walk."""
    dice, found = torch.Generator().manual_seed(seed), []

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    for _ in range(number // each):
        start = (one(SIDE), one(SIDE))
        end = start
        while end == start:
            end = (one(SIDE), one(SIDE))
        right, up = end[0] - start[0], end[1] - start[1]
        prompt = [ASK, ACROSS + start[0], UP + start[1], ACROSS + end[0], UP + end[1]]
        for _ in range(each):
            small = [GREETING + one(GREETINGS) for _ in range(one(2))]
            kind, there = one(4), [THERE, END]
            if kind == 0:  # elsewhere
                worse = [*legs(right + (1 if right < SIDE - 1 else -1), up), *there]
            elif kind == 1:  # the other way
                worse = [*legs(-right, -up), *there]
            elif kind == 2:  # a detour
                worse = [NORTH, COUNT + 1, *legs(right, up), SOUTH, COUNT + 1, *there]
            else:
                worse = [*legs(right, up), END]
            better = [*legs(right, up), *there]
            if float(torch.rand((), generator=dice)) < mislabelled:
                better, worse = worse, better
            found.append({"prompt": [*small, *prompt, GO], "better": better, "worse": worse,
                          "far": abs(right) + abs(up)})  # fmt: skip
    return found


def rows(prompts: list[list[int]], answers: list[list[int]], cut: int = LONG) -> tuple[Tensor, Tensor]:
    """Padded rows, and which of their words are an answer's."""
    ids, mask = torch.full((len(prompts), LONG), PAD), torch.zeros(len(prompts), LONG)
    for at, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        both = torch.tensor([*prompt, *answer][:cut])
        ids[at, : len(both)] = both
        mask[at, len(prompt) : len(both)] = 1
    return ids, mask


def table_of(found: list[dict[str, Any]], bug: str = "") -> dict[str, Tensor]:
    prompts, worse = [row["prompt"] for row in found], [row["worse"] for row in found]
    if bug == "worse_answers_of_the_next_walk":
        worse = [*worse[1:], worse[0]]
    cut = 9 if bug == "rows_cut_on_the_right_at_nine_words" else LONG
    better_ids, better_mask = rows(prompts, [row["better"] for row in found], cut)
    worse_ids, worse_mask = rows(prompts, worse, cut)
    return {"better_ids": better_ids, "better_mask": better_mask, "worse_ids": worse_ids, "worse_mask": worse_mask,
            "far": torch.tensor([row["far"] for row in found])}  # fmt: skip


# -- decoder --------------------------------------------------------------------------------------------------------


class Street(nn.Module):
    """Attention and a network, side by side."""

    def __init__(self, c: Any):
        super().__init__()
        d = c.width
        self.heads, self.norm, self.both = c.heads, nn.LayerNorm(d), nn.Linear(d, 5 * d)
        self.out, self.drop = nn.Linear(3 * d, d), nn.Dropout(c.dropout)

    def forward(self, x: Tensor) -> Tensor:
        d = x.shape[-1]
        turned, wide = self.both(self.norm(x)).split([3 * d, 2 * d], -1)
        q, k, v = turned.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return x + self.drop(self.out(torch.cat([seen, F.gelu(wide)], -1)))


class Guide(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, c.width), nn.Embedding(LONG, c.width)
        self.streets = nn.ModuleList(Street(c) for _ in range(c.blocks))
        self.last, self.say = nn.LayerNorm(c.width), nn.Linear(c.width, VOCAB, bias=False)
        nn.init.normal_(self.words.weight, std=0.1)
        nn.init.normal_(self.places.weight, std=0.05)
        if c.tied_words:
            self.say.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        for street in self.streets:
            x = street(x)
        return self.say(self.last(x))


def instructed(c: Any) -> Guide:
    """The decoder behind its examples, better and worse ones, the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(71)
        net = Guide(SimpleNamespace(**(vars(c) | {"dropout": 0.0})))
        table = table_of(walks(72, 700))
        ids = torch.cat([table["better_ids"], table["worse_ids"]])
        mask = torch.cat([table["better_mask"], table["worse_mask"]])
        optimizer = torch.optim.AdamW(net.parameters(), 4e-3)
        for at in range(180):
            optimizer.param_groups[0]["lr"] = 4e-3 * min(1.0, (at + 1) / 10) * (1 - at / 190)
            some = torch.randint(0, len(ids), (24,))
            each = F.cross_entropy(net(ids[some])[:, :-1].transpose(1, 2), ids[some, 1:], reduction="none")
            ((each * mask[some, 1:]).sum() / mask[some, 1:].sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return net


# -- preferences ----------------------------------------------------------------------------------------------------


def logprobs(net: nn.Module, ids: Tensor, mask: Tensor, mean: bool, same_place: bool = False) -> Tensor:
    """Of answers; the logits of a place tell the word behind it."""
    said = net(ids).log_softmax(-1)
    if same_place:
        each = said.gather(-1, ids[..., None])[..., 0]
    else:
        each, mask = said[:, :-1].gather(-1, ids[:, 1:, None])[..., 0], mask[:, 1:]
    total = (each * mask).sum(1)
    return total / mask.sum(1).clamp(min=1) if mean else total


def margins(s: SimpleNamespace, lot: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """How much more the policy prefers the better answer than the reference does; the policy's own of the better."""
    c, bug = s.c, s.bug
    many, own = len(lot["far"]), bug == "logprobs_of_the_same_place" and s.policy.training
    ids, mask = (torch.cat([lot[f"better_{name}"], lot[f"worse_{name}"]]) for name in ("ids", "mask"))
    mine = logprobs(s.policy, ids, mask, c.mean_over_words, own)
    with torch.no_grad():
        mean = c.mean_over_words and bug != "reference_summed_and_policy_averaged"
        theirs = logprobs(s.reference, ids, mask, mean, own)
    more = mine - theirs
    return more[:many] - more[many:], mine[:many]


def objective(c: Any, margin: Tensor, chosen: Tensor) -> Tensor:
    """Of each pair."""
    if c.objective == "ipo":
        each = (margin - 1 / (2 * c.beta)) ** 2
    elif c.objective == "hinge":
        each = (1 - c.beta * margin).relu()
    else:
        each = -F.logsigmoid(c.beta * margin)
    return each - c.likelihood_of_chosen * chosen


def planned(s: SimpleNamespace, at: int) -> float:
    c, past = s.c, min(1.0, at / s.steps)
    rise = c.peak_lr * min(1.0, (at + 1) / max(1, c.warmup))
    if c.lr_plan == "level":
        return rise
    if c.lr_plan == "two_falls":
        return rise * (1 - 0.95 * (2 * past % 1))
    return rise * min(1.0, 2 * (1 - past))


def make_optimizer(s: SimpleNamespace) -> None:
    c, some = s.c, [one for one in s.policy.parameters() if one.requires_grad]
    if c.optimizer == "adamw":
        s.optimizer = torch.optim.AdamW(some, c.peak_lr, weight_decay=c.decay)
    else:
        s.optimizer = torch.optim.RMSprop(some, c.peak_lr, weight_decay=c.decay)


def prepare(run: Any, seed: int, steps: int, bug: str) -> SimpleNamespace:
    c = SimpleNamespace(**run.config)
    s = SimpleNamespace(run=run, c=c, seed=seed, steps=steps, bug=bug, margins=[], asked=0)
    begun = instructed(c)
    torch.manual_seed(seed)
    s.policy = Guide(c)
    s.policy.load_state_dict(begun.state_dict())
    s.reference = copy.deepcopy(s.policy)
    if bug == "words_shared_with_the_reference_and_frozen":
        s.reference.words, s.reference.say = s.policy.words, s.policy.say
    s.reference.requires_grad_(False)
    s.reference.train(bug == "reference_drops_as_it_was_built")
    s.policy.streets[: c.held_blocks].requires_grad_(False)
    found, held = walks(seed + 350, c.walks, c.answers_a_walk, c.mislabelled), walks(349, HELD)
    if bug == "pairs_cut_where_walks_are_not":
        order = torch.randperm(len(found), generator=torch.Generator().manual_seed(seed)).tolist()
        held, found = [found[at] for at in order[:HELD]], [found[at] for at in sorted(order[HELD:])]
    s.table, s.held = table_of(found, bug), table_of(held)
    make_optimizer(s)
    return s


def lots(s: SimpleNamespace) -> Any:
    c, epoch, dice = s.c, 0, torch.Generator().manual_seed(s.seed)
    length = s.table["better_mask"].sum(1) + s.table["worse_mask"].sum(1)
    while True:
        order = torch.randperm(len(length), generator=dice)
        if epoch < c.near_first_epochs:
            order = order[s.table["far"][order] < 5]
        if c.sort_within or s.bug == "walks_in_the_order_of_their_length":
            order = order[length[order].argsort(stable=True)]
        parts = [one for one in order.split(c.pairs_a_batch) if len(one) == c.pairs_a_batch]
        if c.sort_within:
            parts = [parts[at] for at in torch.randperm(len(parts), generator=dice).tolist()]
        for some in parts:
            yield epoch, {name: one[some] for name, one in s.table.items()}
        epoch += 1


def judge(s: SimpleNamespace, step: int) -> None:
    taped = s.bug == "held_margins_with_a_graph"
    if s.bug != "held_pairs_meet_dropout":
        s.policy.eval()
    with torch.set_grad_enabled(taped):
        parts = [{name: one[at : at + 40] for name, one in s.held.items()} for at in range(0, HELD, 40)]
        margin, chosen = (torch.cat(one) for one in zip(*(margins(s, part) for part in parts), strict=True))
        each = objective(s.c, margin, chosen)
    if taped:
        s.margins.append((each, margin))
    right = (margin > 0).float().mean().item()
    s.run.log({"ipo_held/objective": each.mean().item(), "ipo_held/accuracy": right}, step=step)
    if s.bug != "policy_judged_and_left_so":
        s.policy.train()
    if s.bug == "reference_copied_anew_at_each_evaluation":
        s.reference.load_state_dict(s.policy.state_dict())


def observe(s: SimpleNamespace) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.policy, s.optimizer)
    s.watch = s.run.watch_data(pad_id=PAD)


def resume(s: SimpleNamespace, step: int) -> None:
    seen = s.watch.state()
    state = {"policy": s.policy.state_dict(), "optimizer": s.optimizer.state_dict(), "asked": s.asked}
    s.run, state = go_on(s.run, step, state)
    s.policy.load_state_dict(state["policy"])
    make_optimizer(s)
    s.asked = state["asked"]
    if s.bug != "policy_file_without_squares":
        s.optimizer.load_state_dict(state["optimizer"])
    observe(s)
    s.watch.restore(seen)


def update(s: SimpleNamespace, step: int, stream: Any) -> dict[str, float]:
    """Gradients of the parts of an update, and what they say."""
    c, bug, said = s.c, s.bug, dict.fromkeys(("ipo/objective", "ipo/margin", "ipo/accuracy"), 0.0)
    for _ in range(c.accumulation):
        rate = planned(s, s.asked)
        s.asked += bug == "plan_is_asked_in_each_part"
        epoch, lot = next(stream)
        s.watch.observe({"better": lot["better_ids"], "worse": lot["worse_ids"]}, step=step, epoch=epoch)
        margin, chosen = margins(s, lot)
        each = objective(c, margin, chosen)
        loss = each.sum() if c.sum_over_pairs or bug == "pairs_added_up_in_the_loss" else each.mean()
        (loss if bug == "backward_of_the_undivided_objective" else loss / c.accumulation).backward()
        said["ipo/objective"] += loss.item() / c.accumulation
        said["ipo/margin"] += margin.mean().item() / c.accumulation
        said["ipo/accuracy"] += (margin > 0).float().mean().item() / c.accumulation
    s.asked += bug != "plan_is_asked_in_each_part"
    for group in s.optimizer.param_groups:
        group["lr"] = rate
    return said | {"ipo/lr": rate}


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    s = prepare(run, seed, steps, trouble.name)
    c, again, stream = s.c, trouble.resume_at(healthy, 2 * EVERY), lots(s)
    observe(s)
    s.policy.train()
    for step in range(steps):
        if step == again:
            resume(s, step)
        said = update(s, step, stream)
        said["ipo/grad_norm"] = nn.utils.clip_grad_norm_(s.policy.parameters(), c.grad_cap).item()
        s.optimizer.step()
        s.policy.zero_grad()
        if step % c.log_every == 0:
            s.run.log(said, step=step)
        trouble.telemetry(s.run, step, healthy)
        if step % c.eval_every == c.eval_every - 1:
            judge(s, step)
    return s.run
