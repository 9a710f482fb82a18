"""A small decoder that writes slogans learns by pairs which of two is preferred, beside a frozen copy of itself.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: slogan/loss, slogan/margin, slogan/acc, slogan/lr, slogan/norm each step;
      prefs/held_loss, prefs/held_acc, prefs/chosen_reward each twentieth; memory, where it matters; the watch of data.

A brief names a brand's trade, a tone and some goods; a slogan names goods and has words of a tone. Before, the decoder
has learnt slogans from examples; what people prefer is the brief's own tone, and no boasting. Chosen and rejected go
through the policy in one batch. The frozen copy is asked in each step. A config of dataclass style, methods of a
trainer, all in one file.
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

EVERY, HELD, LONG = 20, 96, 22
PAD, BOS, SEP, EOS = range(4)
TRADES, TONES, GOODS, PER_TONE, BOASTS = 6, 4, 14, 5, 4
TRADE, TONE, GOOD = 4, 4 + TRADES, 4 + TRADES + TONES
WORD = GOOD + GOODS
BOAST = WORD + TONES * PER_TONE
VOCAB = BOAST + BOASTS
CONFIG: dict[str, Any] = {
    "n_embd": 40, "n_layer": 3, "n_head": 4, "dropout": 0.0, "tie_word_embeddings": True, "beta": 0.2,
    "loss": "sigmoid", "label_smoothing": 0.0, "length_normalised": False, "sft_weight": 0.0, "pairs_per_batch": 12,
    "grad_acc_steps": 1, "lr": 7e-4, "lr_schedule": "linear", "warmup": 10, "opt": "adamw", "weight_decay": 0.01,
    "max_norm": 1.0, "freeze_first_layers": 0, "briefs": 600, "pairs_per_brief": 1, "misjudged": 0.06,
    "clear_pairs_first": 0, "group_lengths": False, "eval_interval": 20, "log_interval": 1, "max_length": 22,
}  # fmt: skip


# -- briefs and slogans ---------------------------------------------------------------------------------------------


Pairs = list[tuple[list[int], list[int], list[int]]]


def pairs(seed: int, number: int, each: int = 1, misjudged: float = 0.0) -> Pairs:
    """Briefs with a chosen and a rejected slogan, trade after trade."""
    dice, found = torch.Generator().manual_seed(seed), []

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    def slogan(goods: list[int], tone: int, boasts: int) -> list[int]:
        out = []
        for good in goods:
            out += [WORD + tone * PER_TONE + one(PER_TONE), GOOD + good]
        for _ in range(boasts):
            out.insert(one(len(out) + 1), BOAST + one(BOASTS))
        return [*out, EOS]

    for at in range(number // each):
        trade, tone = at * TRADES * each // number, one(TONES)
        goods = [(2 * trade + one(5)) % GOODS for _ in range(1 + one(4))]
        for _ in range(each):
            prompt = [BOS, TRADE + trade, TONE + tone, *(GOOD + good for good in goods), SEP]
            better = slogan(goods, tone, 0)
            off = (tone + 1 + one(TONES - 1)) % TONES
            worse = slogan(goods, off, one(2)) if one(3) else slogan(goods, tone, 1 + one(2))
            if float(torch.rand((), generator=dice)) < misjudged:
                better, worse = worse, better
            found.append((prompt, better, worse))
    return found


def examples(seed: int, number: int) -> tuple[Tensor, Tensor]:
    """Slogans of the examples: of any tone, with boasts or without."""
    rows, masks = zip(*(encode(prompt, (better, worse)[at % 2], LONG) for at, (prompt, better, worse)
                        in enumerate(pairs(seed, number))), strict=True)  # fmt: skip
    return torch.stack(rows), torch.stack(masks)


def encode(prompt: list[int], said: list[int], longest: int, bug: str = "") -> tuple[Tensor, Tensor]:
    """A padded row, and which of its words are the slogan's."""
    row, mask = torch.full((LONG,), PAD), torch.zeros(LONG)
    both = [*prompt, *said][:longest]
    row[: len(both)] = torch.tensor(both)
    mask[len(prompt) : len(both)] = 1
    if bug == "mask_from_the_prompt_without_its_separator":  # the prompt was tokenised with an end of its own
        mask[len(prompt)] = 0
    if bug == "padding_is_a_part_of_the_slogan":
        mask[len(prompt) :] = 1
    return row, mask


# -- decoder --------------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.n_embd
        self.heads, self.ln_1, self.ln_2 = c.n_head, nn.LayerNorm(d), nn.LayerNorm(d)
        self.c_attn, self.c_proj, self.drop = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Dropout(c.dropout)
        self.fc, self.fc_proj = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.c_attn(self.ln_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.drop(self.c_proj(y))
        return x + self.drop(self.fc_proj(F.gelu(self.fc(self.ln_2(x)))))


class Writer(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.n_embd
        self.wte, self.wpe, self.drop = nn.Embedding(VOCAB, d), nn.Embedding(LONG, d), nn.Dropout(c.dropout)
        self.h, self.ln_f = nn.ModuleList(Layer(c) for _ in range(c.n_layer)), nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, VOCAB, bias=False)
        nn.init.normal_(self.wte.weight, std=0.08)
        nn.init.normal_(self.wpe.weight, std=0.04)
        if c.tie_word_embeddings:
            self.lm_head.weight = self.wte.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.drop(self.wte(ids) + self.wpe.weight[: ids.shape[1]])
        for layer in self.h:
            x = layer(x)
        return self.lm_head(self.ln_f(x))


def sft(c: Any) -> tuple[Writer, Writer]:
    """The decoder before and behind its examples, the same for every training."""
    with torch.random.fork_rng():
        torch.manual_seed(31)
        net = Writer(SimpleNamespace(**(vars(c) | {"dropout": 0.0})))
        ids, mask = examples(32, 500)
        optimizer, early = torch.optim.AdamW(net.parameters(), 4e-3), net
        for at in range(90):
            if at == 20:
                early = copy.deepcopy(net)
            optimizer.param_groups[0]["lr"] = 4e-3 * min(1.0, (at + 1) / 10) * (1 - at / 100)
            some = torch.randint(0, len(ids), (24,))
            each = F.cross_entropy(net(ids[some])[:, :-1].transpose(1, 2), ids[some, 1:], reduction="none")
            ((each * mask[some, 1:]).sum() / mask[some, 1:].sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return early, net


# -- training -------------------------------------------------------------------------------------------------------


class PreferenceTrainer:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        c = self.c
        early, begun = sft(c)
        torch.manual_seed(seed)
        self.policy = Writer(c)
        self.policy.load_state_dict(begun.state_dict())
        self.reference = Writer(c)
        self.reference.load_state_dict((early if bug == "reference_is_an_older_checkpoint" else begun).state_dict())
        self.reference.requires_grad_(False)
        if bug != "reference_never_set_to_eval":
            self.reference.eval()
        for layer in self.policy.h[: c.freeze_first_layers]:
            layer.requires_grad_(False)
        self.load()
        self.setup()
        self.kept: list[Any] = []

    def load(self) -> None:
        c, bug = self.c, self.bug
        rows, held = pairs(self.seed + 330, c.briefs, c.pairs_per_brief, c.misjudged), pairs(329, HELD)
        self.lengths = torch.tensor([len(prompt) + len(better) for prompt, better, _ in rows])
        self.clear = torch.tensor([not {*better} & {*worse} - {EOS} - {*prompt} for prompt, better, worse in rows])
        self.rows, self.held = self.tensors(rows, bug), self.tensors(held, "")

    def tensors(self, rows: Pairs, bug: str) -> tuple[Tensor, ...]:
        long = self.c.max_length
        better = [encode(prompt, one, long, bug) for prompt, one, _ in rows]
        worse = [encode(prompt, one, long, bug) for prompt, _, one in rows]
        return tuple(torch.stack(one) for some in (better, worse) for one in zip(*some, strict=True))

    def setup(self) -> None:
        c, some = self.c, [one for one in self.policy.parameters() if one.requires_grad]
        if c.opt == "rmsprop":
            self.optimizer: Any = torch.optim.RMSprop(some, c.lr)
        elif c.opt == "adam":
            self.optimizer = torch.optim.Adam(some, c.lr)
        else:
            self.optimizer = torch.optim.AdamW(some, c.lr, weight_decay=c.weight_decay)

        def share(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / self.steps)
            if c.lr_schedule == "constant":
                return rise
            if c.lr_schedule == "cycles":
                return rise * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
            return rise * (1 - past)

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def batches(self) -> Any:
        c, epoch, dice = self.c, 0, torch.Generator().manual_seed(self.seed)
        while True:
            order = torch.randperm(len(self.lengths), generator=dice)
            if self.bug == "pairs_come_trade_after_trade":
                order = torch.arange(len(self.lengths))
            if epoch < c.clear_pairs_first:
                order = order[self.clear[order]]
            if c.group_lengths:
                order = order[self.lengths[order].argsort(stable=True, descending=True)]
            lots = [one for one in order.split(c.pairs_per_batch) if len(one) == c.pairs_per_batch]
            if c.group_lengths:
                lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
            for some in lots:
                yield epoch, [one[some] for one in self.rows]
            epoch += 1

    def logps(self, net: nn.Module, ids: Tensor, mask: Tensor, mean: bool = False) -> Tensor:
        """Log-probabilities of slogans; logits of a place tell the next word."""
        if self.bug == "words_gathered_without_the_shift" and self.policy.training:
            said, ids, mask = net(ids).log_softmax(-1), ids, mask
        else:
            said, ids, mask = net(ids)[:, :-1].log_softmax(-1), ids[:, 1:], mask[:, 1:]
        each = said.gather(-1, ids[..., None])[..., 0] * mask
        return each.sum(1) / mask.sum(1) if mean or self.c.length_normalised else each.sum(1)

    def forward(self, better: Tensor, better_mask: Tensor, worse: Tensor, worse_mask: Tensor) -> tuple[Tensor, ...]:
        """The loss of each pair, and rewards of both."""
        c, bug = self.c, self.bug
        ids, mask = torch.cat([better, worse]), torch.cat([better_mask, worse_mask])
        mine = self.logps(self.policy, ids, mask)
        with torch.no_grad():
            theirs = self.logps(self.reference, ids, mask, bug == "reference_logps_are_means_over_words")
        reward = c.beta * (mine - theirs)
        chosen, rejected = reward.chunk(2)
        apart = chosen - rejected
        if c.loss == "hinge":
            loss = (1 - apart).relu()
        elif c.loss == "ipo":
            loss = (apart / c.beta - 1 / (2 * c.beta)) ** 2
        else:
            loss = -F.logsigmoid(apart) * (1 - c.label_smoothing) - F.logsigmoid(-apart) * c.label_smoothing
        if c.sft_weight:
            loss = loss - c.sft_weight * mine.chunk(2)[0] / better_mask.sum(1)
        return loss, chosen, rejected

    def evaluate(self, step: int) -> None:
        taped = self.bug == "margins_of_held_pairs_with_history"
        if self.bug != "policy_judged_while_dropping":
            self.policy.eval()
        with torch.set_grad_enabled(taped):
            said = [self.forward(*some) for some in zip(*(one.split(24) for one in self.held), strict=True)]
        loss, chosen, rejected = (torch.cat(one) for one in zip(*said, strict=True))
        if taped:
            self.kept.append(said)
        right = (chosen > rejected).float().mean().item()
        figures = {"prefs/held_loss": loss.mean().item(), "prefs/held_acc": right}
        self.run.log(figures | {"prefs/chosen_reward": chosen.mean().item()}, step=step)
        if self.bug != "policy_stays_in_eval_behind_the_samples":
            self.policy.train()

    def observe(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.policy, self.optimizer)
        self.watch = self.run.watch_data(pad_id=PAD)

    def resume(self, step: int) -> None:
        seen = self.watch.state()
        state = {"policy": self.policy.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "scheduler": self.scheduler.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, step, state)
        self.policy.load_state_dict(state["policy"])
        if self.bug == "reference_copied_behind_the_resume":
            self.reference.load_state_dict(state["policy"])
        self.setup()
        if self.bug != "policy_weights_found_and_loaded_alone":
            self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        for group, rate in zip(self.optimizer.param_groups, self.scheduler.get_last_lr(), strict=True):
            group["lr"] = rate
        self.observe()
        self.watch.restore(seen)

    def train(self, trouble: Trouble, healthy: str | None) -> None:
        c, again, stream = self.c, trouble.resume_at(healthy, 4 * EVERY), self.batches()
        self.observe()
        self.policy.train()
        for step in range(self.steps):
            if step == again:
                self.resume(step)
            total, gap, right = 0.0, 0.0, 0.0
            for _ in range(c.grad_acc_steps):
                epoch, some = next(stream)
                self.watch.observe({"chosen_input_ids": some[0], "rejected_input_ids": some[2]}, step=step, epoch=epoch)
                each, chosen, rejected = self.forward(*some)
                loss = each.sum() if self.bug == "loss_of_pairs_summed" else each.mean()
                parts = 1 if self.bug == "every_part_counts_as_a_batch" else c.grad_acc_steps
                (loss / parts).backward()
                total += loss.item() / c.grad_acc_steps
                gap += (chosen - rejected).mean().item() / c.grad_acc_steps
                right += (chosen > rejected).float().mean().item() / c.grad_acc_steps
                if self.bug == "scheduler_step_next_to_backward":
                    self.scheduler.step()
            norm = nn.utils.clip_grad_norm_(self.policy.parameters(), c.max_norm).item()
            rate = self.optimizer.param_groups[0]["lr"]
            self.optimizer.step()
            if self.bug != "scheduler_step_next_to_backward":
                self.scheduler.step()
            self.optimizer.zero_grad()
            if step % c.log_interval == 0:
                self.run.log({"slogan/loss": total, "slogan/margin": gap, "slogan/acc": right, "slogan/lr": rate,
                              "slogan/norm": norm}, step=step)  # fmt: skip
            trouble.telemetry(self.run, step, healthy)
            if step % c.eval_interval == c.eval_interval - 1:
                self.evaluate(step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    trainer = PreferenceTrainer(run, seed, steps, trouble.name)
    trainer.train(trouble, healthy)
    return trainer.run
