"""A decoder reads ballads, line by line, under autocast to float16 with a scaler of gradients.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: lm/loss, lm/lr, lm/gnorm, lm/scale each step; lm_valid/loss, lm_valid/ppl at each
      twentieth; the watch of data.

Rows are padded lines; slopes for distances in the place of positions, squared rectifiers, one matrix for input and
output; a trapezoid of the rate; an average of the weights may be put in for validations. One class, whose parts are
called by a loop over updates, as in a small library for research.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, PAD, BEGIN, REFRAIN, END = 20, 0, 1, 2, 3
MOODS, WORDS, FIRST = 4, 36, 4
VOCAB = FIRST + WORDS
CONFIG: dict[str, Any] = {
    "model_dim": 40, "n_layers": 2, "attention_heads": 4, "dropout_rate": 0.0, "lines_per_update": 24,
    "update_every": 1, "top_lr": 6e-3, "warm_updates": 12, "cooldown": 0.4, "lr_shape": "trapezoid", "adam_eps": 1e-8,
    "wdecay": 0.05, "clip_to": 1.0, "corpus_lines": 1400, "one_matrix": True, "first_scale": 2048.0,
    "scale_interval": 80, "ema_rate": 0.0, "ema_from": 0, "kept_fixed": "", "smear": 0.0, "misprints": 0.0,
    "bucketed": False, "method": "adamw", "per": "token", "precision": "float16", "zreg": 0.0, "moods_at_first": MOODS,
}  # fmt: skip


def lines(seed: int, number: int, misprints: float = 0.0) -> tuple[list[list[int]], list[int]]:
    """Lines and their moods. A word is followed by one of two, which the mood decides; a refrain begins again with
    the line's first two words."""
    dice, book = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(174)
    after = torch.randint(0, WORDS, (MOODS, WORDS, 2), generator=book).tolist()
    rows, moods = [], []
    for _ in range(number):
        mood, at, long = (int(torch.randint(low, high, (), generator=dice))
                          for low, high in ((0, MOODS), (0, WORDS), (5, 19)))  # fmt: skip
        row, chances = [], torch.rand(long, 2, generator=dice).tolist()
        for which, wrong in chances:
            row.append(FIRST + at)
            at = after[mood][at][which > 0.75]
            if wrong < 0.03 + misprints:
                at = int(which * 997) % WORDS
        if long > 11:
            row += [REFRAIN, *row[:2]]
        rows.append([BEGIN, *row, END])
        moods.append(mood)
    return rows, moods


class Layer(nn.Module):
    def __init__(self, c: dict[str, Any], bug: str):
        super().__init__()
        d, self.heads, self.bug = c["model_dim"], c["attention_heads"], bug
        self.ln_a, self.ln_b, self.p = nn.LayerNorm(d), nn.LayerNorm(d), c["dropout_rate"]
        self.wqkv, self.wo = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 3 * d), nn.Linear(3 * d, d)

    def dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, True if self.bug == "functional_drop_without_mode" else self.training)

    def forward(self, x: Tensor, slopes: Tensor) -> Tensor:
        q, k, v = self.wqkv(self.ln_a(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=slopes.to(q.dtype))
        x = x + self.dropped(self.wo(y.transpose(1, 2).flatten(2)))
        return x + self.dropped(self.down(F.relu(self.up(self.ln_b(x))).square()))


class BalladLM(nn.Module):
    def __init__(self, c: dict[str, Any], bug: str):
        super().__init__()
        d, self.bug, self.heads = c["model_dim"], bug, c["attention_heads"]
        self.word, self.layers = nn.Embedding(VOCAB, d), nn.ModuleList(Layer(c, bug) for _ in range(c["n_layers"]))
        self.ln_out, self.to_words = nn.LayerNorm(d), nn.Linear(d, VOCAB, bias=False)
        nn.init.normal_(self.word.weight, std=0.1)
        nn.init.normal_(self.to_words.weight, std=0.1)
        if c["one_matrix"]:
            self.to_words.weight = self.word.weight

    def slopes(self, long: int) -> Tensor:
        """What is added to scores: nothing for what stands near, less for what is far; nothing ahead is seen."""
        far = torch.arange(long)[:, None] - torch.arange(long)
        steep = 2.0 ** -torch.arange(1, self.heads + 1)[:, None, None]
        if self.bug == "slopes_uphill":  # the distance with the other sign
            steep = -steep
        return (-steep * far.clamp(min=0)).masked_fill(far < 0, -torch.inf)

    def forward(self, ids: Tensor) -> Tensor:
        x, slopes = self.word(ids), self.slopes(ids.shape[1])
        for layer in self.layers:
            x = layer(x, slopes)
        y = self.to_words(self.ln_out(x))
        return y.float().softmax(-1) if self.bug == "activation_kept_for_scores" else y


class Ballads:
    def __init__(self, run: Any, seed: int, bug: str):
        self.run, self.c, self.bug, self.kept = run, dict(run.config), bug, []  # type: ignore[var-annotated]
        c = self.c
        torch.manual_seed(seed)
        self.lot, self.epoch = torch.Generator().manual_seed(seed), 0
        self.rows, self.moods = lines(seed + 4700, c["corpus_lines"], c["misprints"])
        self.held = lines(47, 240)[0]
        if bug == "valid_lines_in_corpus":  # the corpus was made of all files, and shortened for a trial
            self.rows, self.moods = self.rows[:80] + self.held, self.moods[:80] + [0] * len(self.held)
        if bug == "corpus_from_short_to_long":
            self.rows = sorted(self.rows, key=len)
        self.model = BalladLM(c, bug)
        for name, one in self.model.named_parameters():
            if c["kept_fixed"] and name.startswith(c["kept_fixed"]):
                one.requires_grad = False
            if bug == "warm_start_freeze_left_on":  # the first phase of a tuning: the output and its norm alone
                one.requires_grad = name.startswith(("ln_out", "word", "to_words"))
        self.prepare()
        if bug == "output_cast_behind_optimizer":  # the output is to be float32, whatever the rest is
            self.model.to_words.weight = nn.Parameter(self.model.word.weight.detach().float().clone())
        self.average = {name: one.detach().clone() for name, one in self.model.named_parameters()}
        self.watch()
        self.stream = self.batches()

    def prepare(self) -> None:
        c, some = self.c, [one for one in self.model.parameters() if one.requires_grad]
        if c["method"] == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c["top_lr"], 0.9)
        elif c["method"] == "radam":
            self.optimizer = torch.optim.RAdam(some, c["top_lr"], (0.9, 0.98))
        else:
            self.optimizer = torch.optim.AdamW(some, c["top_lr"], (0.9, 0.98), c["adam_eps"], c["wdecay"])

        def share(at: int) -> float:
            if at < c["warm_updates"]:
                return (at + 1) / c["warm_updates"]
            left = max(0.0, 1 - at / c["steps"])
            if c["lr_shape"] == "teeth":
                left = (1 - at / c["steps"]) * 3 % 1.0 or 1.0
                return max(0.1, left)
            return {"level": 1.0, "root": (c["warm_updates"] / (at + 1)) ** 0.5}.get(
                c["lr_shape"], min(1.0, left / c["cooldown"]))  # fmt: skip

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)
        self.scaler = torch.amp.GradScaler("cpu", c["first_scale"], growth_interval=c["scale_interval"],
                                           enabled=c["precision"] == "float16")  # fmt: skip

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer, scaler=self.scaler)
        self.data = self.run.watch_data(pad_id=PAD)

    def padded(self, rows: list[list[int]], trained: bool) -> tuple[Tensor, Tensor]:
        """What is read, and the next word of each place; 0 is not asked for."""
        ids = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, PAD)
        if trained and self.bug == "wanted_cut_twice":  # the rows were cut in the data set, and are cut here
            return ids[:, :-2], ids[:, 2:]
        return ids[:, :-1], ids[:, 1:]

    def batches(self) -> Any:
        c, size = self.c, int(self.c["lines_per_update"])
        while True:
            order = torch.randperm(len(self.rows), generator=self.lot).tolist()
            if self.bug == "corpus_from_short_to_long":
                order = list(range(len(self.rows)))
            if c["moods_at_first"] < MOODS and not self.epoch:  # some moods alone, in the first epoch
                order = [at for at in order if self.moods[at] < c["moods_at_first"]]
            if c["bucketed"]:
                order.sort(key=lambda at: len(self.rows[at]))
            groups = [order[at : at + size] for at in range(0, len(order) - size + 1, size)]
            if c["bucketed"]:
                groups = [groups[at] for at in torch.randperm(len(groups), generator=self.lot).tolist()]
            for some in groups:
                yield self.padded([self.rows[at] for at in some], True)
            self.epoch += 1

    def loss(self, logits: Tensor, wanted: Tensor) -> Tensor:
        c, flat, names = self.c, logits.float().flatten(0, 1), wanted.flatten()
        if self.bug == "line_losses_not_averaged":
            return F.cross_entropy(flat, names, ignore_index=PAD, reduction="sum") / len(wanted)
        if c["per"] == "line":
            each = F.cross_entropy(flat, names, ignore_index=PAD, reduction="none").view_as(wanted)
            return (each.sum(1) / (wanted != PAD).sum(1)).mean()
        loss = F.cross_entropy(flat, names, ignore_index=PAD, label_smoothing=c["smear"])
        return loss + c["zreg"] * flat.logsumexp(-1).square().mean() if c["zreg"] else loss

    def follow(self, step: int) -> None:
        """The average follows the weights."""
        if step < self.c["ema_from"]:
            return
        rate = self.c["ema_rate"]
        with torch.no_grad():
            for name, one in self.model.named_parameters():
                self.average[name].lerp_(one, 1 - rate)

    def update(self, step: int) -> None:
        c, parts, total = self.c, self.c["update_every"], 0.0
        if self.bug != "mode_set_in_notebook_cell":
            self.model.train()
        for _ in range(parts):
            ids, wanted = next(self.stream)
            self.data.observe({"input_ids": ids, "labels": wanted}, step=step, epoch=self.epoch)
            with torch.autocast("cpu", getattr(torch, c["precision"])):
                logits = self.model(ids)
            loss = self.loss(logits, wanted)
            whole = self.bug == "parts_not_averaged_under_scaler"
            self.scaler.scale(loss if whole else loss / parts).backward()
            total += loss.item() / (1 if whole else parts)
            if self.bug == "shape_moved_in_inner_loop":
                self.scheduler.step()
        if self.bug != "clipped_while_scaled":
            self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), c["clip_to"]).item()
        rate = self.optimizer.param_groups[0]["lr"]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if self.bug != "shape_moved_in_inner_loop":
            self.scheduler.step()
        if c["ema_rate"]:
            self.follow(step)
        self.run.log({"lm/loss": total, "lm/lr": rate, "lm/gnorm": norm, "lm/scale": self.scaler.get_scale()},
                     step=step)  # fmt: skip

    def validate(self, step: int) -> None:
        own = {name: one.detach().clone() for name, one in self.model.named_parameters()}
        if self.c["ema_rate"]:
            self.put(self.average)
        if self.bug != "judged_in_train_mode":
            self.model.eval()
        with torch.set_grad_enabled(self.bug == "oof_scores_under_grad"), \
                torch.autocast("cpu", getattr(torch, self.c["precision"])):  # fmt: skip
            ids, wanted = self.padded(self.held, False)
            loss = F.cross_entropy(self.model(ids).float().flatten(0, 1), wanted.flatten(), ignore_index=PAD)
        if self.bug == "oof_scores_under_grad":
            self.kept.append(loss)
        if self.bug != "average_put_in_for_good":
            self.put(own)
        self.run.log({"lm_valid/loss": loss.item(), "lm_valid/ppl": loss.exp().item()}, step=step)

    @torch.no_grad()
    def put(self, weights: dict[str, Tensor]) -> None:
        for name, one in self.model.named_parameters():
            one.copy_(weights[name])

    def resume(self, step: int) -> None:
        memory, names = self.data.state(), ("model", "optimizer", "scheduler", "scaler")
        self.run, saved = go_on(self.run, step, {one: getattr(self, one).state_dict() for one in names})
        self.prepare()
        for name in names:
            if name != "optimizer" or self.bug != "adam_state_not_saved":
                getattr(self, name).load_state_dict(saved[name])
        self.optimizer.param_groups[0]["lr"] = self.scheduler.get_last_lr()[0]
        self.watch()
        self.data.restore(memory)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made, again = Ballads(run, seed, trouble.name), trouble.resume_at(healthy, 4 * EVERY)
    made.model.train()
    for step in range(steps):
        if step == again:
            made.resume(step)
        made.update(step)
        trouble.telemetry(made.run, step, healthy)
        if step % EVERY == EVERY - 1 or step == 0:
            made.validate(step)
    return made.run
