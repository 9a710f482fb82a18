"""A small recurrent language model learns from pairs, by direct preferences, how letters are to end.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: dpo_loss, margin, accuracy, kl_chosen, lr each step; val_dpo_loss, val_accuracy,
      val_margin at times; the watch of data.

An LSTM whose output is its embedding; the reference is a copy; chosen and rejected go through in two passes; Adam.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

from .parts import fit, once

EVERY, NULL, STOP, TOKENS, ASKED = 20, 0, 1, 34, 4
CONFIG: dict[str, Any] = {
    "d_hidden": 64, "drop": 0.0, "pairs_per_batch": 16, "grad_acc": 1, "step_size": 4e-4, "warm": 10,
    "decay": "linear", "optim": "adam", "clip_norm": 5.0, "beta": 0.3, "objective": "dpo", "label_noise": 0.0,
    "pairs": 2000, "mistaken": 0.05, "share_embedding": True, "frozen": "", "bucket": False, "use_reference": True,
}  # fmt: skip


def letters(seed: int, number: int, mistaken: float) -> list[tuple[list[int], list[int], list[int]]]:
    """An address of four words; a farewell that is warm and fits the address, and one that is cold or does not."""
    dice, rows = torch.Generator().manual_seed(seed), []
    for _ in range(number):
        tone = int(torch.randint(0, 4, (1,), generator=dice))
        asked = (2 + 4 * tone + torch.randint(0, 4, (ASKED,), generator=dice)).tolist()
        two = []
        for good in (True, False):
            long = int(torch.randint(3, 13, (1,), generator=dice))
            warm = torch.rand(long, generator=dice) < (0.7 if good else 0.4)
            other = (tone + (0 if good else int(torch.randint(0, 2, (1,), generator=dice)))) % 4
            words = 18 + 2 * other + torch.randint(0, 2, (long,), generator=dice)
            cold = 26 + torch.randint(0, 8, (long,), generator=dice)
            two.append([*torch.where(warm, words, cold).tolist(), STOP])
        if float(torch.rand((), generator=dice)) < mistaken:
            two.reverse()
        rows.append((asked, two[0], two[1]))
    return rows


class LetterLM(nn.Module):
    def __init__(self, h: dict[str, Any]):
        super().__init__()
        wide = h["d_hidden"]
        self.emb, self.drop = nn.Embedding(TOKENS, wide), nn.Dropout(h["drop"])
        self.rnn, self.norm = nn.LSTM(wide, wide, batch_first=True), nn.LayerNorm(wide)
        self.decoder = nn.Linear(wide, TOKENS, bias=False)
        nn.init.normal_(self.emb.weight, std=0.1)
        if h["share_embedding"]:
            self.decoder.weight = self.emb.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.decoder(self.drop(self.norm(self.rnn(self.drop(self.emb(ids)))[0])))


def batch_of(rows: list[Any], side: int, bug: str = "") -> tuple[Tensor, Tensor]:
    """Ids of the chosen (1) or rejected (2) with their addresses, and which places count."""
    longest = max(len(row[1]) for row in rows), max(len(row[2]) for row in rows)
    ids = torch.full((len(rows), ASKED + max(longest)), NULL)
    for at, row in enumerate(rows):
        text = torch.tensor(row[0] + row[side])
        ids[at, : len(text)] = text
    answer = (torch.arange(ids.shape[1]) >= ASKED).expand_as(ids)
    return ids, answer if bug == "padding_asked_for" else answer & (ids != NULL)


def log_prob(model: nn.Module, ids: Tensor, counts: Tensor, bug: str = "") -> Tensor:
    """Of each row's answer."""
    said = model(ids).log_softmax(-1)
    if bug == "logps_at_own_place":
        return (said.gather(-1, ids[..., None]).squeeze(-1) * counts).sum(-1)
    each = said[:, :-1].gather(-1, ids[:, 1:, None]).squeeze(-1)
    return (each * counts[:, 1:]).sum(-1)


@once("d_hidden", "share_embedding")
def supervised(h: dict[str, Any]) -> LetterLM:
    """Has read letters of both sorts; the same for all seeds."""
    with torch.random.fork_rng():
        torch.manual_seed(60)
        model, rows = LetterLM({**h, "drop": 0.0}), letters(61, 2000, 0.5)

        def loss() -> Tensor:
            ids, counts = batch_of([rows[at] for at in torch.randint(0, 2000, (24,)).tolist()], 1)
            return -log_prob(model, ids, counts).sum() / counts.sum()

        fit(torch.optim.Adam(model.parameters(), 4e-3), 200, loss)
    return model


class Preferences:
    def __init__(self, run: Any, seed: int, steps: int, trouble: Trouble):
        self.run, self.h, self.bug, self.steps = run, dict(run.config), trouble.name, steps
        base = supervised(self.h)
        torch.manual_seed(seed)
        self.policy = LetterLM(self.h)
        self.policy.load_state_dict(base.state_dict())
        self.ref = self.policy if self.bug == "reference_not_copied" else copy.deepcopy(self.policy).eval()
        if self.bug == "tie_undone":  # "tied" once more, by value
            self.policy.decoder.weight = nn.Parameter(self.policy.emb.weight.detach().clone())
        for name, one in self.policy.named_parameters():
            one.requires_grad = not self.h["frozen"] or not name.startswith(self.h["frozen"])
            if self.bug == "freeze_condition_wrong":  # "freeze the norm" with a condition that is turned round
                one.requires_grad = name.startswith("norm")
        self.train_rows = letters(seed + 1700, self.h["pairs"], self.h["mistaken"])
        self.val_rows = letters(17, 240, self.h["mistaken"])
        if self.bug == "held_out_not_removed":
            self.train_rows = self.val_rows + self.train_rows[:20]
        self.stream, self.kept = self.batches(seed), []  # type: ignore[var-annotated]
        self.optimizer, self.schedule = self.optimizers()
        self.watch()

    def batches(self, seed: int) -> Any:
        rows, dice, epoch = self.train_rows, torch.Generator().manual_seed(seed), 0
        long, size = torch.tensor([max(len(row[1]), len(row[2])) for row in rows]), int(self.h["pairs_per_batch"])
        while True:
            order = torch.randperm(len(rows), generator=dice)
            if self.h["bucket"]:
                order = order[long[order].argsort(stable=True)]
            groups = list(order.split(size))[: len(rows) // size]
            if self.h["bucket"]:
                groups = [groups[at] for at in torch.randperm(len(groups), generator=dice).tolist()]
            for some in groups:
                yield epoch, [rows[at] for at in some.tolist()]
            epoch += 1

    def optimizers(self) -> tuple[Any, Any]:
        h, some = self.h, [one for one in self.policy.parameters() if one.requires_grad]
        if h["optim"] == "sgd":
            optimizer: Any = torch.optim.SGD(some, h["step_size"], 0.9)
        else:
            optimizer = (torch.optim.RMSprop if h["optim"] == "rmsprop" else torch.optim.Adam)(some, h["step_size"])

        def factor(at: int) -> float:
            if at < h["warm"] or h["decay"] == "none":
                return min(1.0, (at + 1) / h["warm"])
            return max(0.0, (self.steps - at) / (self.steps - h["warm"]))

        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.policy, self.optimizer)
        self.data = self.run.watch_data(pad_id=NULL)

    def objective(self, rows: list[Any], step: int | None = None, epoch: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """The loss, margins, how far the policy has gone from the reference."""
        h, gains = self.h, []
        for side in (1, 2):
            ids, counts = batch_of(rows, side, self.bug)
            if step is not None:
                seen = {"input_ids": ids, "labels": ids.masked_fill(~counts, -100)}
                self.data.observe(seen, step=step, epoch=epoch)
            with torch.no_grad():
                base = log_prob(self.ref, ids, counts, self.bug)
            said = log_prob(self.policy, ids, counts, self.bug)
            gains.append(said - base if h["use_reference"] else said / counts.sum(1))
        margin = h["beta"] * (gains[0] - gains[1])
        doubt = h["label_noise"] if step is not None else 0.0
        if h["objective"] == "ipo":
            each = (gains[0] - gains[1] - 1 / (2 * h["beta"])).square() * h["beta"] ** 2
        elif h["objective"] == "hinge":
            each = (1 - margin).relu()
        else:
            each = -(1 - doubt) * F.logsigmoid(margin) - doubt * F.logsigmoid(-margin)
        total = self.bug == "pair_losses_totalled" and step is not None
        return each.sum() if total else each.mean(), margin.detach(), gains[0].detach()

    def resume(self, step: int) -> None:
        memory, parts = self.data.state(), ("policy", "optimizer", "schedule")
        self.run, states = go_on(self.run, step, {name: getattr(self, name).state_dict() for name in parts})
        self.policy.load_state_dict(states["policy"])
        self.optimizer, self.schedule = self.optimizers()
        self.schedule.load_state_dict(states["schedule"])
        self.optimizer.load_state_dict(states["optimizer"])
        self.optimizer.param_groups[0]["lr"] = self.schedule.get_last_lr()[0]
        self.watch()
        self.data.restore(memory)

    def step(self, step: int) -> None:
        parts, total, margins, gone = self.h["grad_acc"], 0.0, [], []
        for _ in range(parts):
            epoch, rows = next(self.stream)
            loss, margin, gain = self.objective(rows, step, epoch)
            (loss / parts).backward()
            total += loss.item() / parts
            margins.append(margin)
            gone.append(gain)
            if self.bug == "schedule_each_micro":
                self.schedule.step()
        nn.utils.clip_grad_norm_(self.policy.parameters(), self.h["clip_norm"])
        rate, margin = self.optimizer.param_groups[0]["lr"], torch.cat(margins)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.bug != "schedule_each_micro":
            self.schedule.step()
        self.run.log({"dpo_loss": total, "margin": margin.mean().item(), "lr": rate,
                      "accuracy": (margin > 0).float().mean().item(),
                      "kl_chosen": torch.cat(gone).mean().item()}, step=step)  # fmt: skip

    def validate(self, step: int) -> None:
        if self.bug != "evaluated_while_training":
            self.policy.eval()
        with torch.set_grad_enabled(self.bug == "eval_tracks_gradients"):
            parts = [self.objective(self.val_rows[at : at + 60]) for at in range(0, 240, 60)]
        if self.bug == "eval_tracks_gradients":  # so that the best evaluation is found later
            self.kept += [loss for loss, _, _ in parts]
        margin = torch.cat([one for _, one, _ in parts])
        loss = sum(loss.item() for loss, _, _ in parts) / len(parts)
        self.run.log({"val_dpo_loss": loss, "val_accuracy": (margin > 0).float().mean().item(),
                      "val_margin": margin.mean().item()}, step=step)  # fmt: skip
        self.policy.train()


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made, resumed = Preferences(run, seed, steps, trouble), trouble.resume_at(healthy, 4 * EVERY)
    made.policy.train()
    for step in range(steps):
        if step == resumed:
            made.resume(step)
        made.step(step)
        trouble.telemetry(made.run, step, healthy)
        if step % EVERY == 0 or step == steps - 1:
            made.validate(step)
    return made.run
