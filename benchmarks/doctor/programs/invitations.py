"""A small decoder learns from pairs which answers to an invitation fit it, by direct preferences.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss, rewards/accuracies, rewards/margins, logps/chosen, learning_rate, grad_norm each
      step; eval_loss, eval_rewards/accuracies, eval_rewards/margins at each twentieth; the watch of data.

The base has read answers of both registers, fitting or not. Chosen and rejected go through the model in one batch; the
reference is a frozen copy of the base that is asked in each step. AdamW, a warm-up, a cosine; a trainer with a method
for each part, as TRL has it.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

from .parts import fit, once

EVERY, PAD, BOS, ASK, EOS = 20, 0, 1, 2, 3
HOSTS, REGISTERS, OF_REGISTER, EITHER, LONGEST = 5, 3, 8, 8, 20
FIRST_HOST, FIRST_REGISTER = 4, 4 + HOSTS
FIRST_WORD = FIRST_REGISTER + REGISTERS
FIRST_EITHER = FIRST_WORD + REGISTERS * OF_REGISTER
VOCAB, IGNORE = FIRST_EITHER + EITHER, -100
CONFIG: dict[str, Any] = {
    "n_embd": 40, "n_head": 4, "n_layer": 2, "resid_pdrop": 0.0, "beta": 0.3, "loss_type": "sigmoid",
    "label_smoothing": 0.0, "per_device_batch": 12, "gradient_accumulation_steps": 1, "learning_rate": 1e-3,
    "warmup_steps": 10, "lr_scheduler_type": "cosine", "optim": "adamw", "weight_decay": 0.0, "max_grad_norm": 1.0,
    "pairs": 640, "errors": 0.05, "tie_embeddings": True, "freeze": "", "group_by_length": False, "rpo_alpha": 0.0,
    "extra_tokens": 0,
}  # fmt: skip
Pair = tuple[list[int], list[int], list[int]]


def answer(register: int, dice: torch.Generator, others: float) -> list[int]:
    """Words of a register and words of either sort; others: how many are of another register."""
    made = []
    for chance, pick, other in torch.rand(int(torch.randint(4, 13, (), generator=dice)), 3, generator=dice).tolist():
        of = (register + 1 + int(other * (REGISTERS - 1))) % REGISTERS if other < others else register
        if chance < 0.4:
            made.append(FIRST_EITHER + int(pick * EITHER))
        else:
            made.append(FIRST_WORD + of * OF_REGISTER + int(pick * OF_REGISTER))
    return [*made, EOS]


def pairs(seed: int, number: int, errors: float = 0.0) -> list[Pair]:
    """Prompt, the answer that fits and one that does not; some judges have it the wrong way round."""
    dice, rows = torch.Generator().manual_seed(seed), []
    for _ in range(number):
        host, register = (int(torch.randint(0, most, (), generator=dice)) for most in (HOSTS, REGISTERS))
        prompt = [BOS, FIRST_HOST + host, FIRST_REGISTER + register, ASK]
        good, bad = answer(register, dice, 0.05), answer(register, dice, 0.7)
        rows.append((prompt, bad, good) if torch.rand((), generator=dice) < errors else (prompt, good, bad))
    return rows


class Block(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        d, self.heads = c["n_embd"], c["n_head"]
        self.ln_1, self.ln_2, self.drop = nn.LayerNorm(d), nn.LayerNorm(d), nn.Dropout(c["resid_pdrop"])
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc, self.proj = nn.Linear(d, 3 * d), nn.Linear(3 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.c_attn(self.ln_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.c_proj(y.transpose(1, 2).flatten(2)))
        return x + self.drop(self.proj(F.gelu(self.fc(self.ln_2(x)))))


class AnswerLM(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        d = c["n_embd"]
        self.wte, self.wpe = nn.Embedding(VOCAB, d), nn.Embedding(LONGEST, d)
        self.h, self.ln_f = nn.ModuleList(Block(c) for _ in range(c["n_layer"])), nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, VOCAB, bias=False)
        for one in (self.wte, self.wpe, self.lm_head):
            nn.init.normal_(one.weight, std=0.1)
        if c["tie_embeddings"]:
            self.lm_head.weight = self.wte.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))

    def grow(self, more: int) -> None:
        """Room for tokens to come; the output is made anew as well, and is the embedding."""
        wider = nn.Embedding(VOCAB + more, self.wte.embedding_dim)
        nn.init.normal_(wider.weight, std=0.1)
        wider.weight.data[:VOCAB] = self.wte.weight.data
        self.wte, self.lm_head = wider, nn.Linear(wider.embedding_dim, VOCAB + more, bias=False)
        self.lm_head.weight = wider.weight


def collate(rows: list[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor]:
    """Prompts with answers, and the labels, which are the answers alone."""
    ids = [torch.tensor(prompt + said) for prompt, said in rows]
    labels = [torch.tensor([IGNORE] * len(prompt) + said) for prompt, said in rows]
    pad = nn.utils.rnn.pad_sequence
    return pad(ids, batch_first=True, padding_value=PAD), pad(labels, batch_first=True, padding_value=IGNORE)


@once("n_embd", "n_head", "n_layer", "tie_embeddings")
def base_model(c: dict[str, Any]) -> AnswerLM:
    """A model that has read invitations with answers, of which half fit."""
    torch.manual_seed(161)
    model, dice = AnswerLM({**c, "resid_pdrop": 0.0}), torch.Generator().manual_seed(162)
    read = [row for prompt, good, bad in pairs(163, 700) for row in ((prompt, good), (prompt, bad))]

    def loss_of() -> Tensor:
        ids, labels = collate([read[at] for at in torch.randint(0, len(read), (32,), generator=dice).tolist()])
        return F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORE)

    fit(torch.optim.Adam(model.parameters(), 3e-3), 220, loss_of)
    return model


class Preferring:
    def __init__(self, run: Any, seed: int, bug: str):
        self.run, self.c, self.bug, self.kept = run, dict(run.config), bug, []  # type: ignore[var-annotated]
        c, self.model = self.c, base_model(self.c)
        torch.manual_seed(seed)
        self.rows, self.held = pairs(seed + 640, c["pairs"], c["errors"]), pairs(64, 240)
        if bug == "heldout_in_corpus":  # both splits were loaded, and put together, of a small set
            self.rows = self.rows[:48] + self.held
        self.lot = torch.Generator().manual_seed(seed)
        for one in self.model.modules():
            if isinstance(one, nn.Dropout):
                one.p = c["resid_pdrop"]
        self.reference = copy.deepcopy(self.model).eval().requires_grad_(False)
        if bug == "reference_not_copied":
            self.reference = self.model
        if c["extra_tokens"] and bug != "vocabulary_grown_after_optimizer":
            self.model.grow(c["extra_tokens"])
        for name, one in self.model.named_parameters():
            if c["freeze"]:
                one.requires_grad = c["freeze"] not in name
            if bug == "freeze_pattern_wrong":  # norms in float32, and nothing but these is trained
                one.requires_grad = "ln_" in name
        self.create_optimizer()
        if bug == "vocabulary_grown_after_optimizer":
            self.model.grow(c["extra_tokens"])
        self.watch()

    def create_optimizer(self) -> None:
        c, some = self.c, [one for one in self.model.parameters() if one.requires_grad]
        if c["optim"] == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c["learning_rate"], 0.9)
        else:
            self.optimizer = torch.optim.AdamW(some, c["learning_rate"], weight_decay=c["weight_decay"])

        def share(at: int) -> float:
            if at < c["warmup_steps"] or c["lr_scheduler_type"] == "constant":
                return min(1.0, (at + 1) / c["warmup_steps"])
            past = min(1.0, (at - c["warmup_steps"]) / (c["steps"] - c["warmup_steps"]))
            return 0.5 * (1 + math.cos(math.pi * past))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.data = self.run.watch_data(pad_id=PAD)

    def batches(self) -> Any:
        size, epoch = int(self.c["per_device_batch"]), 0
        while True:
            order = torch.randperm(len(self.rows), generator=self.lot).tolist()
            if self.c["group_by_length"]:
                order.sort(key=lambda at: len(self.rows[at][1]) + len(self.rows[at][2]))
            groups = [order[at : at + size] for at in range(0, len(order) - size + 1, size)]
            if self.c["group_by_length"]:
                groups = [groups[at] for at in torch.randperm(len(groups), generator=self.lot).tolist()]
            for some in groups:
                yield epoch, self.concatenated([self.rows[at] for at in some])
            epoch += 1

    def concatenated(self, rows: list[Pair]) -> tuple[Tensor, Tensor]:
        """Chosen first, rejected behind them."""
        return collate([(prompt, good) for prompt, good, _ in rows] + [(prompt, bad) for prompt, _, bad in rows])

    def logps(self, model: nn.Module, ids: Tensor, labels: Tensor, trained: bool) -> tuple[Tensor, Tensor]:
        """Log-probabilities of each row's answer, chosen and rejected."""
        own_place = trained and self.bug == "logps_unshifted"
        logits, wanted = (model(ids), labels) if own_place else (model(ids)[:, :-1], labels[:, 1:])
        asked = wanted != IGNORE
        if self.bug == "padding_asked_for" and trained:
            begun = asked.cumsum(1) > 0
            asked, wanted = begun, wanted.masked_fill(~asked, PAD)
        each = logits.log_softmax(-1).gather(-1, wanted.clamp(min=0)[..., None])[..., 0]
        good, bad = (each * asked).sum(1).chunk(2)
        return good, bad

    def loss(self, ids: Tensor, labels: Tensor, trained: bool) -> tuple[Tensor, dict[str, float]]:
        c = self.c
        good, bad = self.logps(self.model, ids, labels, trained)
        with torch.no_grad():
            good_before, bad_before = self.logps(self.reference, ids, labels, trained)
        for_good, for_bad = c["beta"] * (good - good_before), c["beta"] * (bad - bad_before)
        margin = for_good - for_bad
        soft = c["label_smoothing"] if trained else 0.0
        if c["loss_type"] == "hinge":
            each = F.relu(1 - margin)
        elif c["loss_type"] == "ipo":
            each = (margin / c["beta"] - 1 / (2 * c["beta"])).square() * c["beta"]
        else:
            each = -(1 - soft) * F.logsigmoid(margin) - soft * F.logsigmoid(-margin)
        if trained and c["rpo_alpha"]:
            each = each - c["rpo_alpha"] * good / (labels[: len(good)] != IGNORE).sum(1)
        loss = each.sum() if trained and self.bug == "criterion_left_as_sum" else each.mean()
        figures = {"rewards/accuracies": (margin > 0).float().mean().item(), "rewards/margins": margin.mean().item(),
                   "logps/chosen": good.mean().item()}  # fmt: skip
        return loss, figures

    def training_step(self, stream: Any, step: int) -> None:
        c, parts, shown = self.c, self.c["gradient_accumulation_steps"], 0.0
        for _ in range(parts):
            epoch, (ids, labels) = next(stream)
            self.data.observe({"input_ids": ids, "labels": labels}, step=step, epoch=epoch)
            loss, figures = self.loss(ids, labels, True)
            if self.bug != "micro_losses_whole":
                loss = loss / parts
            loss.backward()
            shown += loss.item()
            if self.bug == "scheduler_steps_in_micro_loop":
                self.scheduler.step()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), c["max_grad_norm"]).item()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.bug != "scheduler_steps_in_micro_loop":
            self.scheduler.step()
        self.run.log({"loss": shown, **figures, "learning_rate": rate, "grad_norm": norm}, step=step)

    def evaluate(self, step: int) -> None:
        if self.bug != "validated_in_train_mode":
            self.model.eval()
        with torch.set_grad_enabled(self.bug == "val_outputs_keep_graphs"):
            loss, figures = self.loss(*self.concatenated(self.held), False)
        if self.bug == "val_outputs_keep_graphs":
            self.kept.append(loss)
        figures.pop("logps/chosen")
        self.run.log({"eval_loss": loss.item(), **{f"eval_{one}": figures[one] for one in figures}}, step=step)
        self.model.train()

    def resume(self, step: int) -> None:
        memory, names = self.data.state(), ("model", "optimizer", "scheduler")
        self.run, saved = go_on(self.run, step, {one: getattr(self, one).state_dict() for one in names})
        self.create_optimizer()
        for name in names:
            getattr(self, name).load_state_dict(saved[name])
        self.optimizer.param_groups[0]["lr"] = self.scheduler.get_last_lr()[0]
        self.watch()
        self.data.restore(memory)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made, again = Preferring(run, seed, trouble.name), trouble.resume_at(healthy, 4 * EVERY)
    stream = made.batches()
    made.model.train()
    for step in range(steps):
        if step == again:
            made.resume(step)
        made.training_step(stream, step)
        trouble.telemetry(made.run, step, healthy)
        if step % EVERY == 0 or step == steps - 1:
            made.evaluate(step)
    return made.run
