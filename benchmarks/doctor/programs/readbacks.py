"""A pilot's readbacks of clearances are brought to what an examiner prefers (DPO), against a frozen reference.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: pairwise_loss, reward_gap, pref_share, chosen_logp, lr_now, norm_now each step;
      heldout_pairwise_loss, heldout_gap and heldout_share of clearances that were held back, each twenty-third; memory,
      where it matters; the watch of data.

A clearance names an airline, a number, and two or three things to do: a level, a heading, a speed, a code. A good
readback has all of them as they were said, and the airline and the number at its end. The other one says "roger" in the
place of one thing, leaves one out, has a digit that was not said, or begins with whom it is of. The pilot has read good
and bad ones. Written as a trainer in which both answers of a pair go through the model at once, and a step is over when
enough micro-batches have come.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, LONG = 23, 160, 27
PAD, TOWER, PILOT, END, ROGER = range(5)
AIRLINE, AIRLINES = 5, 6
LEVEL, HEADING, SPEED, CODE = range(AIRLINE + AIRLINES, AIRLINE + AIRLINES + 4)
DIGITS_OF = {LEVEL: 1, HEADING: 2, SPEED: 1, CODE: 2}
DIGIT = CODE + 1
WORDS = DIGIT + 10
CONFIG: dict[str, Any] = {
    "n_embd": 40, "n_layer": 2, "n_head": 4, "resid_pdrop": 0.0, "tie_word_embeddings": True, "beta": 0.3,
    "loss_type": "sigmoid", "label_smoothing": 0.0, "average_log_prob": False, "rpo_alpha": 0.0,
    "per_device_train_batch_size": 16, "gradient_accumulation_steps": 1, "optim": "adamw", "learning_rate": 1e-3,
    "lr_scheduler_type": "cosine", "warmup_steps": 8, "weight_decay": 0.0, "max_grad_norm": 8.0, "reduce_pairs": "mean",
    "clearances": 960, "answers_each": 1, "examiner_errs": 0.0, "short_clearances_first": 0, "group_by_length": False,
    "freeze_modules": "", "eval_steps": 23, "logging_steps": 1,
}  # fmt: skip
Columns = dict[str, Tensor]


# -- clearances ------------------------------------------------------------------------------------------------------


def joined(some: list[list[int]]) -> list[int]:
    return [token for one in some for token in one]


def clearances(seed: int, number: int, answers: int = 1, errs: float = 0.0, bug: str = "") -> Columns:
    """Tokens of chosen and rejected readbacks behind their clearance, where they begin and end; by airlines."""
    dice, many, rows = torch.Generator().manual_seed(seed), number // answers, defaultdict(list)

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    def tokens(prompt: list[int], answer: list[int], ends: bool) -> Tensor:
        row = [*prompt, *answer, *([END] if ends else [])]
        return F.pad(torch.tensor(row), (0, LONG - len(row)), value=PAD)

    for at in range(many):
        who = [AIRLINE + at * AIRLINES // many, DIGIT + one(10), DIGIT + one(10)]
        kinds = [LEVEL + kind for kind in torch.randperm(4, generator=dice)[: 2 + one(2)].tolist()]
        things = [[kind, *(DIGIT + one(10) for _ in range(DIGITS_OF[kind]))] for kind in kinds]
        prompt, good = [TOWER, *who, *joined(things), PILOT], [*joined(things), *who]
        for _ in range(answers):
            flaw, place = one(4), one(len(things))
            if flaw == 0:
                bad = [*joined([*things[:place], [ROGER], *things[place + 1 :]]), *who]
            elif flaw == 1:
                bad = [*joined([*things[:place], *things[place + 1 :]]), *who]
            elif flaw == 2:
                wrong = [*things[place][:-1], DIGIT + (things[place][-1] - DIGIT + 1 + one(9)) % 10]
                bad = [*joined([*things[:place], wrong, *things[place + 1 :]]), *who]
            else:
                bad = [*who, *joined(things)]
            pair = (bad, good) if one(1000) < 1000 * errs else (good, bad)
            for name, answer in zip(("chosen", "rejected"), pair, strict=True):
                ends = not (bug == "end_appended_to_the_chosen_alone" and name == "rejected")
                rows[name].append(tokens(prompt, answer, ends))
            rows["begins"].append(torch.tensor(len(prompt)))
            rows["things"].append(torch.tensor(len(things)))
    return {name: torch.stack(some) for name, some in rows.items()}


# -- pilot -----------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.n_embd
        self.heads, self.ln_1, self.ln_2 = c.n_head, nn.LayerNorm(d), nn.LayerNorm(d)
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d))
        self.drop = nn.Dropout(c.resid_pdrop)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.c_attn(self.ln_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.drop(self.c_proj(y))
        return x + self.drop(self.mlp(self.ln_2(x)))


class Pilot(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.n_embd
        self.wte, self.wpe, self.h = nn.Embedding(WORDS, d), nn.Embedding(LONG, d), nn.ModuleList(
            Block(c) for _ in range(c.n_layer)
        )  # fmt: skip
        self.ln_f, self.lm_head, self.shares = nn.LayerNorm(d), nn.Linear(d, WORDS, bias=False), False
        nn.init.normal_(self.wte.weight, std=0.15)
        nn.init.normal_(self.wpe.weight, std=0.1)

    def tie_weights(self) -> None:
        self.lm_head.weight = self.wte.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits.softmax(-1) if self.shares else logits


def pretrained(c: Any) -> dict[str, Tensor]:
    """Weights of a pilot that has read good and bad readbacks, the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(91)
        pilot = Pilot(SimpleNamespace(**(vars(c) | {"resid_pdrop": 0.0})))
        pilot.tie_weights()
        read = clearances(92, 1200)
        ids = torch.cat([read["chosen"], read["rejected"]])
        optimizer = torch.optim.AdamW(pilot.parameters(), 5e-3)
        for step in range(220):
            optimizer.param_groups[0]["lr"] = 5e-3 * min(1.0, (step + 1) / 10) * (1 - step / 230)
            some = ids[torch.randint(0, len(ids), (32,))]
            logits = pilot(some[:, :-1]).flatten(0, 1)
            F.cross_entropy(logits, some[:, 1:].flatten(), ignore_index=PAD).backward()
            optimizer.step()
            optimizer.zero_grad()
    return pilot.state_dict()


# -- trainer ---------------------------------------------------------------------------------------------------------


class PairwiseTrainer:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        self.gathered: list[Any] = []
        self.load_columns()
        self.load_models()
        self.create_optimizer_and_scheduler()

    def load_columns(self) -> None:
        c, bug = self.c, self.bug
        rows, held = clearances(self.seed + 7300, c.clearances, c.answers_each, c.examiner_errs, bug), clearances(
            7299, HELD, bug=bug
        )  # fmt: skip
        if bug == "answers_to_a_clearance_in_both_sets":
            order = torch.randperm(c.clearances, generator=torch.Generator().manual_seed(self.seed))
            held = {name: one[order[:HELD].sort().values] for name, one in rows.items()}
            rows = {name: one[order[HELD:].sort().values] for name, one in rows.items()}
        if bug == "rejected_column_is_a_row_late":
            rows["rejected"] = rows["rejected"].roll(1, 0)
        self.rows, self.held = rows, held

    def load_models(self) -> None:
        c, bug, weights = self.c, self.bug, pretrained(self.c)
        torch.manual_seed(self.seed)
        self.policy = Pilot(c)
        self.policy.load_state_dict(weights)
        if c.tie_word_embeddings and bug != "tie_weights_not_called_behind_the_load":
            self.policy.tie_weights()
        self.policy.shares = bug == "log_softmax_over_what_is_a_softmax"
        self.reference = copy.deepcopy(self.policy).eval().requires_grad_(False)
        for name in filter(None, c.freeze_modules.split(",")):
            self.policy.get_submodule(name).requires_grad_(False)

    def create_optimizer_and_scheduler(self) -> None:
        c, some = self.c, [one for one in self.policy.parameters() if one.requires_grad]
        groups = [{"params": [one for one in some if one.ndim > 1], "weight_decay": c.weight_decay}]
        plain = {"params": [one for one in some if one.ndim == 1], "weight_decay": 0.0}
        groups = [plain] if self.bug == "groups_overwritten_by_the_one_without_decay" else [*groups, plain]
        if c.optim == "rmsprop":
            self.optimizer: Any = torch.optim.RMSprop(groups, c.learning_rate, 0.97)
        elif c.optim == "nadam":
            self.optimizer = torch.optim.NAdam(groups, c.learning_rate)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.learning_rate)

        def by(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup_steps)), min(1.0, at / self.steps)
            if c.lr_scheduler_type == "constant_with_warmup":
                return rise
            if c.lr_scheduler_type == "cosine_with_restarts":
                past = 2 * past % 1
            return rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * past)))

        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, by)

    def attach(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.policy, self.optimizer)
        self.data = self.run.watch_data(pad_id=PAD)

    def dataloader(self) -> Iterator[tuple[int, Columns]]:
        c, epoch, dice, size = self.c, 0, torch.Generator().manual_seed(self.seed), self.c.per_device_train_batch_size
        long = (self.rows["chosen"] != PAD).sum(1)
        while True:
            order = torch.randperm(len(long), generator=dice)
            if self.bug == "airline_after_airline_without_a_sampler":
                order = torch.arange(len(long))
            if epoch < c.short_clearances_first:
                order = order[self.rows["things"][order] < 3]
            if c.group_by_length:
                order = order[long[order].argsort(stable=True)]
            lots = [one for one in order.split(size) if len(one) == size]
            if c.group_by_length:
                lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
            for some in lots:
                yield epoch, {name: one[some] for name, one in self.rows.items()}
            epoch += 1

    def batch_logps(self, model: nn.Module, ids: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithms of answers: sums or means over their tokens; and how many those are."""
        bug, logits, asked = self.bug, model(ids)[:, :-1], ids[:, 1:]
        if bug == "logps_of_tokens_that_were_just_read":
            asked = ids[:, :-1]
        mask = torch.arange(1, ids.shape[1]) >= begins[:, None]
        if bug != "padding_left_in_the_sums":
            mask = mask & (ids[:, 1:] != PAD)
        each = logits.log_softmax(-1).gather(2, asked[..., None])[..., 0] * mask
        return (each.sum(1) / mask.sum(1) if self.c.average_log_prob else each.sum(1)), mask.sum(1)

    def pair_losses(self, batch: Columns, training: bool) -> tuple[Tensor, dict[str, float]]:
        c, many = self.c, len(batch["begins"])
        ids, begins = torch.cat([batch["chosen"], batch["rejected"]]), batch["begins"].repeat(2)
        logps, long = self.batch_logps(self.policy, ids, begins)
        with torch.no_grad():
            of_reference, _ = self.batch_logps(self.reference, ids, begins)
        ratio = logps - of_reference
        gap = ratio[:many] - ratio[many:]
        if c.loss_type == "ipo":
            each = (gap - 1 / (2 * c.beta)) ** 2
        elif c.loss_type == "hinge":
            each = (1 - c.beta * gap).relu()
        else:
            e = c.label_smoothing if training else 0.0
            each = -(1 - e) * F.logsigmoid(c.beta * gap) - e * F.logsigmoid(-c.beta * gap)
        if c.rpo_alpha:
            each = each - c.rpo_alpha * logps[:many] / (1 if c.average_log_prob else long[:many])
        return each, {"gap": c.beta * gap.mean().item(), "share": (gap > 0).float().mean().item(),
                      "logp": logps[:many].mean().item()}  # fmt: skip

    def training_step(self, batch: Columns, stored: dict[str, float]) -> None:
        c, bug, parts = self.c, self.bug, self.c.gradient_accumulation_steps
        each, said = self.pair_losses(batch, True)
        loss = each.sum() if c.reduce_pairs == "sum" or bug == "pair_losses_reduced_by_a_sum" else each.mean()
        (loss if bug == "micro_batch_losses_never_divided" else loss / parts).backward()
        for name, one in (("pairwise_loss", loss.item()), ("reward_gap", said["gap"]), ("pref_share", said["share"]),
                          ("chosen_logp", said["logp"])):  # fmt: skip
            stored[name] += one / parts
        if bug == "schedule_called_behind_each_micro_batch":
            self.lr_scheduler.step()

    def optimizer_step(self, stored: dict[str, float]) -> None:
        stored["norm_now"] = nn.utils.clip_grad_norm_(self.policy.parameters(), self.c.max_grad_norm).item()
        stored["lr_now"] = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.bug != "schedule_called_behind_each_micro_batch":
            self.lr_scheduler.step()

    def evaluate(self) -> dict[str, float]:
        bug, taped = self.bug, self.bug == "evaluation_loop_gathers_live_tensors"
        if bug != "evaluated_with_the_pilot_in_training":
            self.policy.eval()
        with torch.set_grad_enabled(taped):
            each, said = self.pair_losses(self.held, False)
        if taped:
            self.gathered.append(each)
        if bug != "evaluation_loop_leaves_the_pilot_in_eval":
            self.policy.train()
        return {"heldout_pairwise_loss": each.mean().item(), "heldout_gap": said["gap"], "heldout_share": said["share"]}

    def resume(self, step: int) -> None:
        seen = self.data.state()
        state = {"policy": self.policy.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "lr_scheduler": self.lr_scheduler.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, step, state)
        self.policy.load_state_dict(state["policy"])
        self.create_optimizer_and_scheduler()
        if self.bug != "pilot_read_from_its_folder_for_a_new_trainer":
            self.optimizer.load_state_dict(state["optimizer"])
            self.lr_scheduler.load_state_dict(state["lr_scheduler"])
        self.attach()
        self.data.restore(seen)

    def train(self, trouble: Trouble, healthy: str | None) -> Any:
        c, again, step = self.c, trouble.resume_at(healthy, 3 * EVERY), 0
        stored: dict[str, float] = defaultdict(float)
        self.attach()
        self.policy.train()
        for micro, (epoch, batch) in enumerate(self.dataloader(), 1):
            if step == again and micro % c.gradient_accumulation_steps == 1 % c.gradient_accumulation_steps:
                self.resume(step)
            self.data.observe({"chosen": batch["chosen"], "rejected": batch["rejected"]}, step=step, epoch=epoch)
            self.training_step(batch, stored)
            if micro % c.gradient_accumulation_steps:
                continue
            self.optimizer_step(stored)
            if step % c.logging_steps == 0:
                self.run.log(dict(stored), step=step)
            stored.clear()
            trouble.telemetry(self.run, step, healthy)
            if (step + 1) % c.eval_steps == 0:
                self.run.log(self.evaluate(), step=step)
            step += 1
            if step == self.steps:
                break
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    return PairwiseTrainer(run, seed, steps, trouble.name).train(trouble, healthy)
