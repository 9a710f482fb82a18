"""Two towers learn which book a borrower of a library takes next: one reads what was borrowed, one a book's card.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: retrieval/loss, retrieval/top1, retrieval/tau, retrieval/lr, retrieval/gnorm each step;
      shelf/loss and shelf/recall_at_5 over a shelf of held loans each twentieth; memory, where it matters; the watch of
      data.

A borrower has a taste for two of seven subjects and a period; books have a subject, an author, a year, pages and a
count of loans. Loans are noisy. A recurrent layer reads eight loans, layers with batch norm read a card; cosines in a
batch are divided by a temperature that is learned, and corrected for how often a book is lent. Written in the manner of
libraries for recommenders: a task with a query and a candidate model.
"""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, BOOKS, SUBJECTS, AUTHORS, LOANS, HELD = 20, 140, 7, 40, 8, 240
CONFIG: dict[str, Any] = {
    "embedding_dim": 24, "hidden": 48, "dropout": 0.0, "batch_norm": True, "batch_size": 48, "accumulate": 1,
    "optimizer": "adam", "lr": 8e-3, "query_lr_factor": 1.0, "lr_policy": "cosine", "ramp_up": 8, "l2": 1e-4,
    "clip_norm": 5.0, "temperature": 0.15, "learn_temperature": True, "log_q": 1.0,
    "reduction": "mean", "symmetric": False, "borrowers": 2000, "loans_per_borrower": 1,
    "lent_by_chance": 0.1, "keen_first_epochs": 0, "item_dropout": 0.0, "not_trained": "", "eval_steps": 20,
    "log_steps": 1,
}  # fmt: skip


# -- library --------------------------------------------------------------------------------------------------------


def shelf() -> dict[str, Tensor]:
    """The catalogue, subject after subject, the same for every training."""
    dice = torch.Generator().manual_seed(2401)
    subject = torch.arange(BOOKS) * SUBJECTS // BOOKS
    author = (subject * 6 + torch.randint(0, 6, (BOOKS,), generator=dice)) % AUTHORS
    year = 1930 + 12 * (author % 7) + 6 * torch.randn(BOOKS, generator=dice)
    pages = 150 + 40 * subject + 60 * torch.rand(BOOKS, generator=dice)
    lent = 5 + 200 * torch.rand(BOOKS, generator=dice) ** 3
    return {"subject": subject, "author": author, "numbers": torch.stack([year, pages, lent], 1), "lent": lent}


def loans(seed: int, number: int, each: int, chance: float) -> tuple[Tensor, Tensor, Tensor]:
    """Eight loans, the next one, how much is by taste; first subject after first subject. each: rows of a borrower."""
    books, dice, many = shelf(), torch.Generator().manual_seed(seed), number // each
    first = (torch.arange(many) * SUBJECTS // many).repeat_interleave(each)
    second = torch.randint(0, SUBJECTS, (many,), generator=dice).repeat_interleave(each)
    period = (1930 + 80 * torch.rand(many, generator=dice)).repeat_interleave(each)
    year, lent = books["numbers"][:, 0], books["lent"]
    near = torch.exp(-(((year[None] - period[:, None]) / 14) ** 2)) + 0.02
    taste = (books["subject"][None] == first[:, None]) * 1.0 + (books["subject"][None] == second[:, None]) * 0.15
    odds = near * taste * lent.sqrt()[None]
    long = LOANS + each
    history = torch.multinomial(odds[::each] + 1e-9, long, True, generator=dice)  # some take a book again
    stray = torch.multinomial(lent, many * long, True, generator=dice).view(-1, long)
    by_chance = torch.rand(stray.shape, generator=dice) < chance
    history = torch.where(by_chance, stray, history).unfold(1, LOANS + 1, 1).flatten(0, 1)  # windows of one history
    by_chance = by_chance.unfold(1, LOANS + 1, 1).flatten(0, 1)
    return history[:, :-1], history[:, -1], (~by_chance).float().mean(1)


# -- towers ---------------------------------------------------------------------------------------------------------


class CandidateModel(nn.Module):
    """A book's card."""

    def __init__(self, c: Any, bug: str):
        super().__init__()
        self.subject, self.author = nn.Embedding(SUBJECTS, 12), nn.Embedding(AUTHORS, 12)
        momentum = 0.001 if bug == "momentum_of_a_run_of_weeks" else 0.1
        norm = partial(nn.BatchNorm1d, momentum=momentum) if c.batch_norm else nn.LayerNorm
        self.layers = nn.Sequential(
            nn.Linear(27, c.hidden), norm(c.hidden), nn.ReLU(), nn.Dropout(c.dropout), nn.Linear(c.hidden, c.hidden),
            norm(c.hidden), nn.ReLU(), nn.Linear(c.hidden, c.embedding_dim),
        )  # fmt: skip

    def forward(self, subject: Tensor, author: Tensor, numbers: Tensor) -> Tensor:
        return self.layers(torch.cat([self.subject(subject), self.author(author), numbers], 1))


class QueryModel(nn.Module):
    """What was borrowed, the oldest first."""

    def __init__(self, c: Any):
        super().__init__()
        self.c, self.book_embedding = c, nn.Embedding(BOOKS + 1, c.hidden, padding_idx=BOOKS)
        self.gru, self.drop = nn.GRU(c.hidden, c.hidden, batch_first=True), nn.Dropout(c.dropout)
        self.dense = nn.Linear(2 * c.hidden, c.embedding_dim)

    def forward(self, history: Tensor) -> Tensor:
        if self.training and self.c.item_dropout:
            history = history.masked_fill(torch.rand(history.shape) < self.c.item_dropout, BOOKS)
        x = self.drop(self.book_embedding(history))
        return self.dense(torch.cat([self.gru(x)[0][:, -1], x.mean(1)], 1))


class Retrieval(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        self.c, self.bug = c, bug
        self.query_model, self.candidate_model = QueryModel(c), CandidateModel(c, bug)
        self.log_tau = nn.Parameter(torch.tensor(math.log(c.temperature)), requires_grad=c.learn_temperature)

    def forward(self, history: Tensor, card: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        q, k = self.query_model(history), self.candidate_model(*card)
        return F.normalize(q, dim=1), F.normalize(k, dim=1)

    def scores(self, q: Tensor, k: Tensor, lent: Tensor) -> Tensor:
        """lent: shares of loans of the candidates, for whom the scores are corrected."""
        c, by = self.c, -1.0 if self.bug == "correction_added_with_a_plus" else 1.0
        scores = q @ k.T / self.log_tau.exp()
        return scores - by * c.log_q * lent.log() if self.training else scores


# -- training -------------------------------------------------------------------------------------------------------


def prepare(run: Any, seed: int, steps: int, bug: str) -> SimpleNamespace:
    c = SimpleNamespace(**run.config)
    s = SimpleNamespace(run=run, c=c, seed=seed, steps=steps, bug=bug, stored=[])
    books = shelf()
    numbers = books["numbers"]
    mean, std = numbers.mean(0), numbers.std(0)
    s.cards = (books["subject"], books["author"], (numbers - mean) / std)
    s.shelf_cards = (*s.cards[:2], numbers / numbers.amax(0)) if bug == "index_built_with_another_scaler" else s.cards
    s.share = books["lent"].sqrt() / books["lent"].sqrt().sum()
    s.history, s.taken, s.keen = loans(seed + 740, c.borrowers, c.loans_per_borrower, c.lent_by_chance)
    held = loans(739, HELD, 1, 0.1)
    s.held = held[0], held[1]
    if bug == "last_loan_stays_in_the_history":  # the window ends at the loan, and not before it
        s.history = torch.cat([s.history[:, 1:], s.taken[:, None]], 1)
    torch.manual_seed(seed)
    s.task = Retrieval(c, bug)
    for name, one in s.task.named_parameters():
        if c.not_trained and name.startswith(tuple(c.not_trained.split(","))):
            one.requires_grad_(False)
        if bug == "history_frozen_as_if_pretrained" and name.startswith("query_model"):
            one.requires_grad_(False)
    compile_task(s)
    return s


def compile_task(s: SimpleNamespace) -> None:
    c, task = s.c, s.task
    groups = [
        {"params": [one for one in task.query_model.parameters() if one.requires_grad],
         "lr": c.lr * c.query_lr_factor},
        {"params": [one for one in task.candidate_model.parameters() if one.requires_grad], "lr": c.lr},
        {"params": [task.log_tau], "lr": c.lr, "weight_decay": 0.0},
    ]  # fmt: skip
    if s.bug == "candidate_layers_missing_from_the_optimizer":  # embeddings are listed by hand, layers forgotten
        groups[1]["params"] = [*task.candidate_model.subject.parameters(), *task.candidate_model.author.parameters()]
    if c.optimizer == "adagrad":
        s.optimizer = torch.optim.Adagrad(groups, c.lr)
    elif c.optimizer == "sgd":
        s.optimizer = torch.optim.SGD(groups, c.lr, 0.9)
    else:
        s.optimizer = torch.optim.AdamW(groups, c.lr, weight_decay=c.l2)

    def share(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.ramp_up)), min(1.0, at / s.steps)
        if c.lr_policy == "fixed":
            return rise
        if c.lr_policy == "warm_restarts":
            return rise * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
        return rise * 0.5 * (1 + math.cos(math.pi * past))

    s.policy = torch.optim.lr_scheduler.LambdaLR(s.optimizer, share)


def dataset(s: SimpleNamespace) -> Any:
    c, epoch, dice = s.c, 0, torch.Generator().manual_seed(s.seed)
    while True:
        order = torch.randperm(len(s.taken), generator=dice)
        if s.bug == "shuffle_buffer_of_one":
            order = torch.arange(len(s.taken))
        if epoch < c.keen_first_epochs:
            order = order[s.keen[order] > 0.95]
        for some in order.split(c.batch_size):
            if len(some) == c.batch_size:
                yield epoch, s.history[some], s.taken[some]
        epoch += 1


def batch_loss(s: SimpleNamespace, history: Tensor, taken: Tensor) -> tuple[Tensor, Tensor]:
    """The loss, and how many have their book first. A book that is twice in a batch is nobody's negative."""
    c, bug = s.c, s.bug
    if bug == "books_zipped_a_row_late":  # the files of loans and of books are read side by side
        taken = taken.roll(1)
    q, k = s.task(history, tuple(one[taken] for one in s.cards))
    scores = s.task.scores(q, k, s.share[taken])
    own = torch.arange(len(taken))
    twin = (taken[:, None] == taken[None]) & (own[:, None] != own[None])
    scores = scores.masked_fill(twin, -1e4)
    hit = (scores.argmax(1) == own).float().mean()
    if bug == "scores_become_shares_and_then_a_loss":
        scores = scores.softmax(1)
    each = F.cross_entropy(scores, own, reduction="none")
    if c.symmetric:
        each = (each + F.cross_entropy(scores.T, own, reduction="none")) / 2
    return each.sum() if bug == "task_sums_as_its_library_does" or c.reduction == "sum" else each.mean(), hit


def evaluate(s: SimpleNamespace, step: int) -> None:
    task, taped = s.task, s.bug == "index_holds_its_graph"
    if s.bug != "shelf_embedded_while_dropping":
        task.eval()
    with torch.set_grad_enabled(taped):
        history, taken = s.held
        q, k = task(history, s.shelf_cards)  # every book of the library
        scores = q @ k.T / task.log_tau.exp()
        loss = F.cross_entropy(scores, taken)
    if taped:
        s.stored.append((loss, scores))
    found = (scores.topk(5, 1).indices == taken[:, None]).any(1).float().mean().item()
    s.run.log({"shelf/loss": loss.item(), "shelf/recall_at_5": found}, step=step)
    if s.bug != "task_stays_as_the_index_wants_it":
        s.task.train()


def observe(s: SimpleNamespace) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.task, s.optimizer)
    s.watch = s.run.watch_data()


def resume(s: SimpleNamespace, step: int) -> None:
    seen = s.watch.state()
    state = {"task": s.task.state_dict(), "optimizer": s.optimizer.state_dict(), "policy": s.policy.state_dict()}
    s.run, state = go_on(s.run, step, state)
    s.task.load_state_dict(state["task"])
    compile_task(s)
    if s.bug != "weights_loaded_and_compiled_anew":
        s.optimizer.load_state_dict(state["optimizer"])
        s.policy.load_state_dict(state["policy"])
    observe(s)
    s.watch.restore(seen)


def fit(s: SimpleNamespace, trouble: Trouble, healthy: str | None) -> None:
    c, again, stream = s.c, trouble.resume_at(healthy, 4 * EVERY), dataset(s)
    per_part = s.bug == "callback_of_batches_moves_the_rate"
    observe(s)
    s.task.train()
    for step in range(s.steps):
        if step == again:
            resume(s, step)
        total, top = 0.0, 0.0
        for _ in range(c.accumulate):
            epoch, history, taken = next(stream)
            s.watch.observe({"history": history, "book": taken}, step=step, epoch=epoch)
            loss, hit = batch_loss(s, history, taken)
            (loss if s.bug == "tape_of_each_part_in_full" else loss / c.accumulate).backward()
            total += loss.item() / c.accumulate
            top += hit.item() / c.accumulate
            if per_part:
                s.policy.step()
        norm = nn.utils.clip_grad_norm_(s.task.parameters(), c.clip_norm).item()
        rate = s.optimizer.param_groups[1]["lr"]
        s.optimizer.step()
        if not per_part:
            s.policy.step()
        s.task.zero_grad()
        if step % c.log_steps == 0:
            s.run.log({"retrieval/loss": total, "retrieval/top1": top, "retrieval/tau": s.task.log_tau.exp().item(),
                       "retrieval/lr": rate, "retrieval/gnorm": norm}, step=step)  # fmt: skip
        trouble.telemetry(s.run, step, healthy)
        if step % c.eval_steps == c.eval_steps - 1:
            evaluate(s, step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    s = prepare(run, seed, steps, trouble.name)
    fit(s, trouble, healthy)
    return s.run
