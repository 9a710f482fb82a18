"""Two towers learn who fits which vacancy: one reads a life's jobs in turn, one numbers and skills (SigLIP's loss).

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: match_loss, match_scale, match_bias, match_lr, match_norm each step; holdout_loss,
      holdout_top1 and holdout_median_rank of people that were held back, each twenty-fourth; memory, where it matters;
      the watch of data.

A person has one to six jobs, each a role and years in it; a vacancy has four numbers in units of their own (pay, hours,
people in the team, kilometres) and three to five skills. The table compares each person of a batch with each vacancy:
own ones are to be said yes to, others no; held people are compared in tables as large as a batch's. Jobs are packed by
their number for a recurrent net; numbers of vacancies go through a batch norm, and those of people are scaled by
figures of the training's part. Written as an estimator with fit, partial_fit and score.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

EVERY, HELD, TRADES, ROLES, SKILLS, JOBS, MOST = 24, 160, 6, 30, 40, 6, 5
CONFIG: dict[str, Any] = {
    "hidden": 32, "embedding": 24, "dropout": 0.0, "norm": "batch", "batch_size": 32, "n_splits": 1, "solver": "adam",
    "learning_rate_init": 5e-3, "learning_rate": "trapezoid", "warmup": 10, "alpha": 0.0, "max_norm": 20.0,
    "scale_start": 5.0, "bias_start": -3.0, "learn_scale": True, "objective": "sigmoid", "reduction": "rows",
    "jobs_rate": 1.0, "people": 1300, "applications": 1, "wrong": 0.0, "long_lives_first": 0, "skip_skills": 0.0,
    "by_jobs": False, "held_still": "", "score_every": 24, "verbose_every": 1,
}  # fmt: skip
UNITS = torch.tensor([[3200.0, 900.0], [36.0, 6.0], [14.0, 8.0], [22.0, 12.0]])


# -- people and vacancies ---------------------------------------------------------------------------------------------


class Market:
    """Jobs, years, how many; numbers and skills; who it is. Trade after trade."""

    def __init__(self, seed: int, number: int, applications: int = 1, wrong: float = 0.0):
        laws, dice, many = (
            torch.Generator().manual_seed(71),
            torch.Generator().manual_seed(seed),
            number // applications,
        )
        roles, skills = torch.randn(ROLES, 5, generator=laws), torch.randn(SKILLS, 5, generator=laws)
        trades, mixing = 1.2 * torch.randn(TRADES, 5, generator=laws), torch.randn(5, 4, generator=laws) / 2
        trade = torch.arange(many) * TRADES // many
        kind = trades[trade] + 0.9 * torch.randn(many, 5, generator=dice)
        self.count = 1 + torch.randint(0, JOBS, (many,), generator=dice)
        likes = -((kind[:, None] - roles) ** 2).sum(2) / 2
        self.jobs = 1 + torch.multinomial(likes.softmax(1), JOBS, True, generator=dice)
        self.years = (1.5 + 0.8 * kind[:, :1] + 4 * torch.rand(many, JOBS, generator=dice)).clamp(min=0.2)
        there = torch.arange(JOBS) < self.count[:, None]
        self.jobs, self.years = self.jobs * there, self.years * there
        self.who = torch.arange(many)
        for name in ("count", "jobs", "years", "who"):
            setattr(self, name, getattr(self, name).repeat_interleave(applications, 0))
        kind = kind.repeat_interleave(applications, 0)
        numbers = kind @ mixing + 0.3 * torch.randn(len(kind), 4, generator=dice)
        self.numbers = UNITS[:, 0] + UNITS[:, 1] * numbers
        fits = -((kind[:, None] - skills) ** 2).sum(2) + 0.7 * torch.randn(len(kind), SKILLS, generator=dice)
        self.skills = 1 + fits.topk(MOST, 1).indices
        self.skills *= torch.arange(MOST) < 3 + torch.randint(0, 3, (len(kind), 1), generator=dice)
        stray = torch.rand(len(kind), generator=dice) < wrong
        mixed = torch.randperm(int(stray.sum()), generator=dice)
        self.numbers[stray], self.skills[stray] = self.numbers[stray][mixed], self.skills[stray][mixed]

    def __len__(self) -> int:
        return len(self.who)

    def pick(self, some: Tensor) -> Market:
        made = object.__new__(Market)
        vars(made).update({name: one[some] for name, one in vars(self).items()})
        return made


# -- towers -----------------------------------------------------------------------------------------------------------


class People(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        self.bug, self.roles = bug, nn.Embedding(ROLES + 1, c.hidden - 1, padding_idx=0)
        self.life, self.drop = nn.GRU(c.hidden, c.hidden, batch_first=True), nn.Dropout(c.dropout)
        self.out = nn.Linear(c.hidden, c.embedding)

    def forward(self, jobs: Tensor, years: Tensor, count: Tensor) -> Tensor:
        order = count.argsort(descending=True, stable=True)  # as packing asks for
        x = torch.cat([self.roles(jobs), years[..., None]], 2)[order]
        last = self.life(pack_padded_sequence(x, count[order], batch_first=True))[1][0]
        if self.bug != "people_are_sorted_for_packing":
            last = last[order.argsort()]
        return self.out(self.drop(last))


class Vacancies(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.norm = nn.BatchNorm1d(4) if c.norm == "batch" else Fixed()
        self.skills = nn.EmbeddingBag(SKILLS + 1, c.hidden, padding_idx=0, mode="mean")
        self.numbers = nn.Linear(4, c.hidden)
        self.out = nn.Sequential(nn.ReLU(), nn.Dropout(c.dropout), nn.Linear(2 * c.hidden, 2 * c.hidden), nn.ReLU(),
                                 nn.Linear(2 * c.hidden, c.embedding))  # fmt: skip

    def forward(self, numbers: Tensor, skills: Tensor) -> Tensor:
        return self.out(torch.cat([self.numbers(self.norm(numbers)), self.skills(skills)], 1))


class Fixed(nn.Module):
    """Numbers by units that are known."""

    def forward(self, numbers: Tensor) -> Tensor:
        return (numbers - UNITS[:, 0]) / UNITS[:, 1]


class Towers(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        self.bug, self.people, self.vacancies = bug, People(c, bug), Vacancies(c)
        self.log_scale = nn.Parameter(torch.tensor(math.log(c.scale_start)), requires_grad=c.learn_scale)
        self.bias = nn.Parameter(torch.tensor(c.bias_start), requires_grad=c.learn_scale)

    def forward(self, some: Market, years: Tensor) -> Tensor:
        """Scores of each person and each vacancy."""
        people = F.normalize(self.people(some.jobs, years, some.count), dim=1)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.bug != "vacancies_embedded_for_the_cache"):
            vacancies = F.normalize(self.vacancies(some.numbers, some.skills), dim=1)
        return people @ vacancies.T * self.log_scale.exp() + self.bias


# -- estimator --------------------------------------------------------------------------------------------------------


class Matcher:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        self.reports: list[Any] = []

    def split(self) -> None:
        c, bug = self.c, self.bug
        self.market, self.held = Market(self.seed + 8800, c.people, c.applications, c.wrong), Market(8799, HELD)
        if bug == "applications_split_by_rows":
            order = torch.randperm(len(self.market), generator=torch.Generator().manual_seed(self.seed))
            self.held, self.market = self.market.pick(order[:HELD]), self.market.pick(order[HELD:].sort().values)
        if bug == "held_vacancies_joined_by_place":  # their file is in the order of pay
            by_pay = self.held.numbers[:, 0].argsort()
            self.held.numbers, self.held.skills = self.held.numbers[by_pay], self.held.skills[by_pay]
        if bug == "skills_hashed_by_each_process_for_itself":
            buckets = 1 + torch.randperm(SKILLS, generator=torch.Generator().manual_seed(self.seed + 3))
            self.held.skills = torch.where(self.held.skills > 0, buckets[self.held.skills - 1], 0)
        real = self.market.years[self.market.jobs > 0]
        self.mean, self.std = real.mean(), real.std()

    def scaled(self, some: Market, held: bool = False) -> Tensor:
        months = 12 if held and self.bug == "years_of_held_people_in_months" else 1
        return (months * some.years - self.mean) / self.std * (some.jobs > 0)

    def build(self) -> None:
        torch.manual_seed(self.seed)
        self.towers = Towers(self.c, self.bug)
        for name in filter(None, self.c.held_still.split(",")):
            self.towers.get_submodule(name).requires_grad_(False)
        self.solve_with()

    def solve_with(self) -> None:
        c, named = self.c, [(name, one) for name, one in self.towers.named_parameters() if one.requires_grad]
        slow = [one for name, one in named if name.startswith("people")]
        fast = [one for name, one in named if not name.startswith("people")]
        rate = c.learning_rate_init
        groups = [{"params": slow, "lr": rate * c.jobs_rate}, {"params": fast, "lr": rate}]
        if c.solver == "sgd":
            self.solver: Any = torch.optim.SGD(groups, rate, 0.9)
        elif c.solver == "adagrad":
            self.solver = torch.optim.Adagrad(groups, rate)
        else:
            self.solver = torch.optim.AdamW(groups, rate, weight_decay=c.alpha)

        def by(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / self.steps)
            if c.learning_rate == "constant":
                return rise
            if c.learning_rate == "twice":
                return rise * (1 - 0.97 * (2 * past % 1))
            if c.learning_rate == "cosine":
                return rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * past)))
            return rise * min(1.0, 0.02 + (1 - past) / 0.5)

        self.plan = torch.optim.lr_scheduler.LambdaLR(self.solver, by)

    def mode(self, training: bool) -> None:
        self.towers.train(training)
        if self.bug == "norms_frozen_as_in_the_fine_tuning_script":
            self.towers.vacancies.norm.eval()

    def batches(self) -> Any:
        c, epoch, dice, count = self.c, 0, torch.Generator().manual_seed(self.seed), self.market.count
        while True:
            order = torch.randperm(len(count), generator=dice)
            if self.bug == "people_as_the_trades_sent_them":
                order = torch.arange(len(count))
            if epoch < c.long_lives_first:
                order = order[count[order] > 3]
            if c.by_jobs:
                order = order[count[order].argsort(stable=True)]
            lots = [one for one in order.split(c.batch_size) if len(one) == c.batch_size]
            if c.by_jobs:
                lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
            for some in lots:
                batch = self.market.pick(some)
                if c.skip_skills:
                    gone = torch.rand(batch.skills.shape, generator=dice) < c.skip_skills
                    gone[:, 0] = False
                    batch.skills = torch.where(gone, 0, batch.skills)
                yield epoch, batch
            epoch += 1

    def loss(self, scores: Tensor, who: Tensor, training: bool) -> Tensor:
        c, bug, many = self.c, self.bug, len(scores)
        own = torch.eye(many)
        same = (who[:, None] == who) & (own == 0)
        if c.objective == "softmax":
            scores = scores.masked_fill(same, -1e4)
            own = torch.arange(many)
            return (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2
        signs = own if bug == "others_are_nought_and_not_minus_one" else 2 * own - 1
        if bug == "scores_are_shares_before_the_loss":
            scores = scores.sigmoid()
        each = -F.logsigmoid(signs * scores).masked_fill(same, 0.0)
        if training and (c.reduction == "sum" or bug == "terms_of_the_table_added_up"):
            return each.sum()
        return each.sum() / many

    def partial_fit(self, step: int, batches: Any) -> dict[str, float]:
        c, bug, total = self.c, self.bug, 0.0
        for _ in range(c.n_splits):
            epoch, batch = next(batches)
            self.watch.observe({"jobs": batch.jobs, "skills": batch.skills}, step=step, epoch=epoch)
            loss = self.loss(self.towers(batch, self.scaled(batch)), batch.who, True)
            (loss if bug == "splits_count_as_whole_batches" else loss / c.n_splits).backward()
            total += loss.item() / c.n_splits
            if bug == "plan_moves_with_each_split":
                self.plan.step()
        norm = nn.utils.clip_grad_norm_(self.towers.parameters(), c.max_norm).item()
        rate = self.solver.param_groups[1]["lr"]
        self.solver.step()
        self.solver.zero_grad()
        if bug != "plan_moves_with_each_split":
            self.plan.step()
        return {"match_loss": total, "match_scale": self.towers.log_scale.exp().item(),
                "match_bias": self.towers.bias.item(), "match_lr": rate, "match_norm": norm}  # fmt: skip

    def score(self, step: int) -> None:
        held, taped = self.held, self.bug == "scores_reported_with_their_history"
        if self.bug != "score_does_not_leave_training":
            self.mode(False)
        with torch.set_grad_enabled(taped), torch.random.fork_rng():
            table = self.towers(held, self.scaled(held, True))
            own = [one for one in torch.arange(len(held)).split(self.c.batch_size) if len(one) == self.c.batch_size]
            loss = torch.stack([self.loss(table[some][:, some], held.who[some], False) for some in own]).mean()
        if taped:
            self.reports.append((loss, table))
        rank = (table >= table.diagonal()[:, None]).sum(1).float()
        self.run.log({"holdout_loss": loss.item(), "holdout_top1": (rank == 1).float().mean().item(),
                      "holdout_median_rank": rank.median().item()}, step=step)  # fmt: skip
        if self.bug != "fit_goes_on_as_score_left_it":
            self.mode(True)

    def observe(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.towers, self.solver)
        self.watch = self.run.watch_data(pad_id=0)

    def warm_start(self, step: int) -> None:
        seen = self.watch.state()
        state = {"towers": self.towers.state_dict(), "solver": self.solver.state_dict(), "plan": self.plan.state_dict()}
        self.run, state = go_on(self.run, step, state)
        self.towers.load_state_dict(state["towers"])
        self.solve_with()
        if self.bug != "warm_start_of_coefficients_alone":
            self.solver.load_state_dict(state["solver"])
            self.plan.load_state_dict(state["plan"])
        self.observe()
        self.watch.restore(seen)

    def fit(self, trouble: Trouble, healthy: str | None) -> Matcher:
        self.split()
        self.build()
        self.observe()
        again, batches = trouble.resume_at(healthy, 3 * EVERY), self.batches()
        self.mode(True)
        for step in range(self.steps):
            if step == again:
                self.warm_start(step)
            said = self.partial_fit(step, batches)
            if step % self.c.verbose_every == 0:
                self.run.log(said, step=step)
            trouble.telemetry(self.run, step, healthy)
            if step % self.c.score_every == self.c.score_every - 1:
                self.score(step)
        return self


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    return Matcher(run, seed, steps, trouble.name).fit(trouble, healthy).run
