"""Single judgements teach a small decoder to repeat a table's order well: each answer is good or bad, none has a pair.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: kto/loss, kto/good_reward, kto/bad_reward, kto/kl, kto/lr, kto/grad_norm each step;
      kto_eval/loss, kto_eval/gap, kto_eval/right each thirty-second; memory, where it matters; the watch of data.

A table orders dishes, with wishes; the waiter repeats them. A good answer names each dish with its wish and thanks; a
bad one forgets a dish, names another's wish, or is curt. The decoder has seen answers of both kinds. The loss asks how
far an answer's log-probability is above that of the frozen copy, beside a baseline from answers to other tables.
Written as one class with many small methods, with batches that are dicts.
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

EVERY, HELD, LONG = 16, 160, 20
PAD, BEGIN, REPEAT, CLOSE, THANKS, CURT = range(6)
DISHES, WISHES, GUESTS = 14, 6, 4
DISH, WISH, GUEST = 6, 6 + DISHES, 6 + DISHES + WISHES
VOCAB = GUEST + GUESTS
CONFIG: dict[str, Any] = {
    "width": 40, "blocks": 2, "heads": 4, "dropout": 0.0, "tied": True, "beta": 0.3,
    "desirable_weight": 1.0, "undesirable_weight": 1.0, "batch": 20, "accumulate": 1, "learning_rate": 6e-4,
    "schedule": "linear", "warmup": 8, "optimizer": "adamw", "decay": 0.0, "max_norm": 2.0, "share_of_good": 0.5,
    "tables": 900, "answers_per_table": 1, "wrong_judgements": 0.0, "small_tables_first": 0, "by_length": False,
    "loss_sum": False, "frozen_blocks": 0, "likelihood_of_good": 0.0, "eval_every": 32, "log_every": 1,
}  # fmt: skip


# -- tables and answers ---------------------------------------------------------------------------------------------


def answers(seed: int, number: int, each: int = 1, share: float = 0.5, wrong: float = 0.0) -> list[dict[str, Any]]:
    """Prompts, answers and whether they are good: guests' kinds one after another, and of each the good ones first."""
    dice, found = torch.Generator().manual_seed(seed), []

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    for at in range(number // each):
        guest = at * GUESTS * each // number
        order = [(DISH + (3 * guest + one(6)) % DISHES, WISH + one(WISHES)) for _ in range(2 + one(3))]
        prompt = [BEGIN, GUEST + guest, *(word for pair in order for word in pair), REPEAT]
        for _ in range(each):
            good, said = float(torch.rand((), generator=dice)) < share, [*order]
            kind = 3 if good else one(3)
            if kind == 0:
                del said[one(len(said))]
            if kind == 1:
                place = one(len(said))
                said[place] = (said[place][0], WISH + (said[place][1] - WISH + 1 + one(WISHES - 1)) % WISHES)
            end = [CURT] if kind == 2 or (kind < 2 and one(2)) else [THANKS]
            if float(torch.rand((), generator=dice)) < wrong:
                good = not good
            found.append({"prompt": prompt, "answer": [*(word for pair in said for word in pair), *end, CLOSE],
                          "good": good, "guest": guest})  # fmt: skip
    return sorted(found, key=lambda row: (row["guest"], not row["good"]))


def tokenise(prompt: list[int], answer: list[int], bug: str = "") -> tuple[Tensor, Tensor]:
    """A padded row, and which of its words are the answer's."""
    ids, mask, both = torch.full((LONG,), PAD), torch.zeros(LONG), [*prompt, *answer][:LONG]
    ids[: len(both)] = torch.tensor(both)
    mask[len(prompt) : len(both)] = 1
    if bug == "attention_mask_of_the_prompt_forgotten":
        mask[len(prompt) :] = 1
    return ids, mask


# -- decoder --------------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.width
        self.heads, self.before_attention, self.before_mlp = c.heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.query, self.key, self.value = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.merge, self.wide, self.narrow = nn.Linear(d, d), nn.Linear(d, 3 * d), nn.Linear(3 * d, d)
        self.drop = nn.Dropout(c.dropout)

    def forward(self, x: Tensor) -> Tensor:
        y = self.before_attention(x)
        q, k, v = (one(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.drop(self.merge(y))
        return x + self.drop(self.narrow(F.gelu(self.wide(self.before_mlp(x)))))


class Waiter(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, c.width), nn.Embedding(LONG, c.width)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.blocks))
        self.last, self.out = nn.LayerNorm(c.width), nn.Linear(c.width, VOCAB, bias=False)
        nn.init.normal_(self.words.weight, std=0.1)
        nn.init.normal_(self.places.weight, std=0.05)
        if c.tied:
            self.out.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.out(self.last(x))


def taught(c: Any) -> Waiter:
    """The decoder behind its examples, the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(51)
        net = Waiter(SimpleNamespace(**(vars(c) | {"dropout": 0.0})))
        rows = [tokenise(row["prompt"], row["answer"]) for row in answers(52, 600)]
        ids, mask = (torch.stack(one) for one in zip(*rows, strict=True))
        optimizer = torch.optim.AdamW(net.parameters(), 4e-3)
        for at in range(170):
            optimizer.param_groups[0]["lr"] = 4e-3 * min(1.0, (at + 1) / 10) * (1 - at / 180)
            some = torch.randint(0, len(ids), (24,))
            each = F.cross_entropy(net(ids[some])[:, :-1].transpose(1, 2), ids[some, 1:], reduction="none")
            ((each * mask[some, 1:]).sum() / mask[some, 1:].sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return net


# -- training -------------------------------------------------------------------------------------------------------


class Judged:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        c, begun = self.c, taught(self.c)
        torch.manual_seed(seed)
        self.policy = Waiter(c)
        self.policy.load_state_dict(begun.state_dict())
        self.frozen = copy.copy(self.policy) if bug == "reference_is_a_shallow_copy" else copy.deepcopy(self.policy)
        if bug != "reference_is_a_shallow_copy":
            self.frozen.requires_grad_(False)
        self.frozen.train(bug == "frozen_copy_drops_like_the_policy")
        for layer in self.policy.layers[: c.frozen_blocks]:
            layer.requires_grad_(False)
        self.kept: list[Any] = []
        self.read()
        self.make_optimizer()

    def read(self) -> None:
        c, bug = self.c, self.bug
        rows = answers(self.seed + 540, c.tables, c.answers_per_table, c.share_of_good, c.wrong_judgements)
        self.table, self.held = self.columns(rows, bug), self.columns(answers(539, HELD), "")
        self.length = self.table["mask"].sum(1)
        if bug == "judgements_in_the_order_before_sorting":
            shuffled = torch.Generator().manual_seed(9)
            self.table["good"] = self.table["good"][torch.randperm(len(rows), generator=shuffled)]

    def columns(self, rows: list[dict[str, Any]], bug: str) -> dict[str, Tensor]:
        """Rows as tensors. Beside each answer is one to another table, for the baseline."""
        mine = [tokenise(row["prompt"], row["answer"], bug) for row in rows]
        other = [tokenise(row["prompt"], rows[(at + 7) % len(rows)]["answer"], bug) for at, row in enumerate(rows)]
        ids, mask = (torch.stack(one) for one in zip(*mine, strict=True))
        kl_ids, kl_mask = (torch.stack(one) for one in zip(*other, strict=True))
        good = torch.tensor([row["good"] for row in rows])
        return {"ids": ids, "mask": mask, "kl_ids": kl_ids, "kl_mask": kl_mask, "good": good}

    def make_optimizer(self) -> None:
        c, some = self.c, [one for one in self.policy.parameters() if one.requires_grad]
        if c.optimizer == "rmsprop":
            self.optimizer: Any = torch.optim.RMSprop(some, c.learning_rate)
        elif c.optimizer == "adamax":
            self.optimizer = torch.optim.Adamax(some, c.learning_rate)
        else:
            self.optimizer = torch.optim.AdamW(some, c.learning_rate, weight_decay=c.decay)
        self.turn = 0

    def rate(self) -> float:
        c, past = self.c, min(1.0, self.turn / self.steps)
        rise = c.learning_rate * min(1.0, (self.turn + 1) / max(1, c.warmup))
        if c.schedule == "constant":
            return rise
        if c.schedule == "two_cosines":
            return rise * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
        return rise * (1 - past)

    def batches(self) -> Any:
        c, epoch, dice = self.c, 0, torch.Generator().manual_seed(self.seed)
        while True:
            order = torch.randperm(len(self.length), generator=dice)
            if self.bug == "good_answers_and_then_bad_ones":  # two data sets, put one behind the other
                order = order[self.table["good"][order].long().argsort(descending=True, stable=True)]
            if epoch < c.small_tables_first:
                order = order[self.length[order] < 8]
            if c.by_length:
                order = order[self.length[order].argsort(stable=True)]
            lots = [one for one in order.split(c.batch) if len(one) == c.batch]
            if c.by_length:
                lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
            for some in lots:
                yield epoch, {name: one[some] for name, one in self.table.items()}
            epoch += 1

    def logp(self, net: nn.Module, ids: Tensor, mask: Tensor, mean: bool = False) -> Tensor:
        """Sums over an answer's words; logits of a place tell the next word."""
        said = net(ids).log_softmax(-1)
        if self.bug == "own_place_is_gathered" and self.policy.training:
            each = said.gather(-1, ids[..., None])[..., 0] * mask
        else:
            each, mask = said[:, :-1].gather(-1, ids[:, 1:, None])[..., 0] * mask[:, 1:], mask[:, 1:]
        return each.sum(1) / mask.sum(1).clamp(min=1) if mean else each.sum(1)

    def above(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """How far the policy is above the frozen copy, and what it says itself."""
        mine = self.logp(self.policy, ids, mask)
        with torch.no_grad():
            theirs = self.logp(self.frozen, ids, mask, self.bug == "frozen_copy_is_averaged_over_words")
        return mine - theirs, mine

    def loss(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of each row, its reward, and the baseline."""
        c, good = self.c, batch["good"]
        far, mine = self.above(batch["ids"], batch["mask"])
        with torch.no_grad():
            kl = self.above(batch["kl_ids"], batch["kl_mask"])[0].mean().clamp(min=0)
        gain = c.beta * torch.where(good, far - kl, kl - far)
        each = torch.where(good, c.desirable_weight, c.undesirable_weight) * (1 - gain.sigmoid())
        if c.likelihood_of_good:
            each = each - c.likelihood_of_good * good * mine / batch["mask"].sum(1)
        return each, c.beta * far, kl

    def judge(self, step: int) -> None:
        taped = self.bug == "held_answers_judged_with_gradients"
        if self.bug != "dropout_in_force_while_judging":
            self.policy.eval()
        with torch.set_grad_enabled(taped):
            lots = [{name: one[at : at + 40] for name, one in self.held.items()} for at in range(0, HELD, 40)]
            each, reward = (torch.cat(one) for one in zip(*(self.loss(lot)[:2] for lot in lots), strict=True))
        if taped:
            self.kept.append((each, reward))
        good = self.held["good"]
        gap = (reward[good].mean() - reward[~good].mean()).item()
        right = ((reward > 0) == good).float().mean().item()
        self.run.log({"kto_eval/loss": each.mean().item(), "kto_eval/gap": gap, "kto_eval/right": right}, step=step)
        if self.bug != "policy_left_as_it_was_judged":
            self.policy.train()

    def observe(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.policy, self.optimizer)
        self.watch = self.run.watch_data(pad_id=PAD)

    def resume(self, step: int) -> None:
        seen = self.watch.state()
        state = {"policy": self.policy.state_dict(), "optimizer": self.optimizer.state_dict(), "turn": self.turn}
        self.run, state = go_on(self.run, step, state)
        self.policy.load_state_dict(state["policy"])
        self.make_optimizer()
        self.turn = state["turn"]
        if self.bug != "moments_are_not_in_the_folder":
            self.optimizer.load_state_dict(state["optimizer"])
        self.observe()
        self.watch.restore(seen)

    def update(self, step: int, stream: Any) -> dict[str, float]:
        """Gradients of the parts of an update, and their figures."""
        c, bug, said = self.c, self.bug, {"kto/loss": 0.0, "kto/kl": 0.0}
        rewards, goods = [], []
        for _ in range(c.accumulate):
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate()
            epoch, batch = next(stream)
            self.watch.observe({"input_ids": batch["ids"], "label": batch["good"]}, step=step, epoch=epoch)
            each, reward, kl = self.loss(batch)
            loss = each.sum() if c.loss_sum or bug == "rows_added_and_not_averaged" else each.mean()
            (loss if bug == "accumulate_left_out_of_the_loss" else loss / c.accumulate).backward()
            said["kto/loss"] += loss.item() / c.accumulate
            said["kto/kl"] += kl.item() / c.accumulate
            rewards.append(reward.detach())
            goods.append(batch["good"])
            self.turn += bug == "turn_counts_parts"
        self.turn += bug != "turn_counts_parts"
        reward, good = torch.cat(rewards), torch.cat(goods)
        for name, some in (("kto/good_reward", good), ("kto/bad_reward", ~good)):
            if some.any():
                said[name] = reward[some].mean().item()
        return said

    def train(self, trouble: Trouble, healthy: str | None) -> None:
        c, again, stream = self.c, trouble.resume_at(healthy, 5 * EVERY), self.batches()
        self.observe()
        self.policy.train()
        for step in range(self.steps):
            if step == again:
                self.resume(step)
            said = self.update(step, stream)
            norm = nn.utils.clip_grad_norm_(self.policy.parameters(), c.max_norm).item()
            self.optimizer.step()
            self.optimizer.zero_grad()
            if step % c.log_every == 0:
                rate = self.optimizer.param_groups[0]["lr"]
                self.run.log(said | {"kto/lr": rate, "kto/grad_norm": norm}, step=step)
            trouble.telemetry(self.run, step, healthy)
            if step % c.eval_every == c.eval_every - 1:
                self.judge(step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    judged = Judged(run, seed, steps, trouble.name)
    judged.train(trouble, healthy)
    return judged.run
