"""A decoder whose matrices are held in four bits, by groups with a zero of their own, learns remedies by DoRA.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: sft/loss, sft/grad_norm, sft/learning_rate each step; dev/nll, dev/all_right at each
      twentieth; the watch of data.

The base writes lists of herbs down again. Adapters turn each matrix by a product of low rank and give each of its rows
a length of its own; what an apothecary is asked is no target. Two tokens are added, and the embedding, which is the
output too, may be trained as a module that is saved. Functions over a namespace, as a recipe for one file has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

from .parts import fit, once

EVERY, PAD, END, ASK, STRONG, IGNORE = 20, 0, 1, 2, 3, -100
SEASONS, AILMENTS, HERBS, ADDED = 3, 11, 12, 2
FIRST_SEASON, FIRST_AILMENT = 4, 4 + SEASONS
FIRST_HERB, KNOWN = FIRST_AILMENT + AILMENTS, FIRST_AILMENT + AILMENTS + HERBS
CONFIG: dict[str, Any] = {
    "d": 48, "layers": 2, "n_head": 3, "method": "dora", "rank": 6, "scaling": 2.0, "dora_dropout": 0.0,
    "targets": "q k v o gate fc", "cases_per_step": 16, "micro_steps": 1, "learning_rate": 1e-2, "warmup_ratio": 0.06,
    "lr_type": "parabola", "grad_clip": 1.0, "cases": 1600, "told_each": 1, "saved_modules": "", "group": 16,
    "weight_levels": 16, "optim": "adamw", "decay": 0.0, "doubt": 0.04, "train_on_questions": False,
    "group_by_length": False, "label_smooth": 0.0, "not_trained": "", "reduce": "tokens", "season_first": False,
}  # fmt: skip
Case = tuple[list[int], list[int], int]


def consult(seed: int, number: int, doubt: float = 0.0, copy_out: bool = False, each: int = 1) -> list[Case]:
    """What is asked, the answer and the season. An ailment has its herb by season, a strong one has it twice.
    each: how often a case is told, its ailments in another order."""
    dice, book = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(181)
    herb_of, rows = torch.randint(0, HERBS, (SEASONS, AILMENTS), generator=book).tolist(), []
    for _ in range(number // each):
        season, long = (int(torch.randint(*most, (), generator=dice)) for most in ((0, SEASONS), (2, 7)))
        ails = torch.randint(0, AILMENTS + (HERBS if copy_out else 0), (long,), generator=dice)
        strong, wrong = torch.rand(2, long, generator=dice)
        for _ in range(each):
            asked, answer = [FIRST_SEASON + season], []
            for at in torch.randperm(long, generator=dice).tolist() if each > 1 else range(long):
                one = int(ails[at])
                herb = FIRST_AILMENT + one if copy_out else FIRST_HERB + herb_of[season][one]
                if wrong[at] < doubt:
                    herb = FIRST_HERB + int(1e4 * wrong[at]) % HERBS
                asked += [FIRST_AILMENT + one] + [STRONG] * int(strong[at] < 0.2)
                answer += [herb] * (2 if strong[at] < 0.2 else 1)
            rows.append(([*asked, ASK], [*answer, END], season))
    return rows


class Layer(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d, self.n_head = c.d, c.n_head
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.gate, self.fc, self.back = nn.Linear(d, 2 * d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        y = self.n1(x)
        q, k, v = (one(y).unflatten(-1, (self.n_head, -1)).transpose(1, 2) for one in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.n2(x)
        return x + self.back(F.gelu(self.gate(y)) * self.fc(y))


class Apothecary(nn.Module):
    """Places of an answer are counted anew."""

    def __init__(self, c: Any, bug: str = ""):
        super().__init__()
        self.bug = bug
        self.embed, self.at = nn.Embedding(KNOWN, c.d), nn.Embedding(48, c.d)
        nn.init.normal_(self.embed.weight, std=0.1)
        nn.init.normal_(self.at.weight, std=0.1)
        self.layers, self.last = nn.ModuleList(Layer(c) for _ in range(c.layers)), nn.LayerNorm(c.d)
        self.lm_head = nn.Linear(c.d, KNOWN, bias=False)
        self.lm_head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        there, asked = torch.arange(ids.shape[1]).expand_as(ids), (ids == ASK).int()
        place = torch.where(asked.cumsum(1) > 0, 24 + there - asked.argmax(1, keepdim=True), there)
        x = self.embed(ids) + self.at(place)
        for layer in self.layers:
            x = layer(x)
        y = self.lm_head(self.last(x))
        return y.softmax(-1) if self.bug == "head_says_chances_for_sampling" else y

    def resize(self) -> None:
        """Two tokens that a question ends with: whose turn was, and whose is."""
        old = self.embed.weight.detach()
        grown = torch.cat([old, old.mean(0) + 0.02 * torch.randn(ADDED, old.shape[1])])
        self.embed = nn.Embedding.from_pretrained(grown, freeze=True)
        self.lm_head = nn.Linear(old.shape[1], len(grown), bias=False)
        self.lm_head.weight = self.embed.weight


class Held4(nn.Module):
    """A matrix as codes with a scale and a zero for each group; beside it a product of low rank, and lengths."""

    def __init__(self, old: nn.Linear, c: Any, adapted: bool):
        super().__init__()
        w = old.weight.detach().view(-1, c.group)
        low, high = w.amin(1, keepdim=True), w.amax(1, keepdim=True)
        scale = (high - low).clamp(min=1e-8) / (c.weight_levels - 1)
        self.register_buffer("codes", ((w - low) / scale).round().to(torch.uint8))
        self.register_buffer("scales", scale)
        self.register_buffer("zeros", low)
        self.register_buffer("bias", old.bias.detach().clone())
        self.shape, self.adapted, self.scaling = old.weight.shape, adapted, c.scaling
        self.merged: Tensor | None = None
        if adapted:
            self.drop = nn.Dropout(c.dora_dropout)
            self.low = nn.Parameter(torch.randn(c.rank, old.in_features) / old.in_features**0.5)
            self.high = nn.Parameter(torch.zeros(old.out_features, c.rank))
            if c.method == "dora":
                self.magnitude = nn.Parameter(self.plain().norm(dim=1))

    def plain(self) -> Tensor:
        w = (self.codes.float() * self.scales + self.zeros).view(self.shape)
        return w if self.merged is None else w + self.merged

    def forward(self, x: Tensor) -> Tensor:
        w = self.plain()
        if not self.adapted:
            return F.linear(x, w, self.bias)
        turned = self.scaling * self.high @ self.low
        more = self.scaling * F.linear(F.linear(self.drop(x), self.low), self.high)
        if not hasattr(self, "magnitude"):
            return F.linear(x, w, self.bias) + more
        times = self.magnitude / (w + turned).norm(dim=1).detach()
        return times * (F.linear(x, w) + more) + self.bias

    @torch.no_grad()
    def merge(self) -> None:
        more = self.scaling * self.high @ self.low
        self.merged = more if self.merged is None else self.merged + more


@once("d", "layers", "n_head")
def base_of(config: dict[str, Any]) -> Apothecary:
    """Writes herbs down again; the same for all seeds."""
    with torch.random.fork_rng():
        torch.manual_seed(182)
        c = SimpleNamespace(**config)
        model, rows = Apothecary(c), consult(183, 2400, copy_out=True)

        def loss() -> Tensor:
            ids, labels = collate([rows[at] for at in torch.randint(0, len(rows), (32,)).tolist()])
            return nll(model(ids), labels)

        fit(torch.optim.AdamW(model.parameters(), 4e-3), 300, loss)
    return model


def collate(rows: list[Case], questions: bool = False, bug: str = "") -> tuple[Tensor, Tensor]:
    ids = nn.utils.rnn.pad_sequence([torch.tensor(asked + answer) for asked, answer, _ in rows], True, PAD)
    long = torch.tensor([len(asked) for asked, *_ in rows])[:, None]
    labels = ids.masked_fill(ids == PAD, IGNORE)
    if not questions:
        labels = labels.masked_fill(torch.arange(ids.shape[1]) < long, IGNORE)
    if bug == "end_masked":
        labels = labels.masked_fill(labels == END, IGNORE)
    return ids, labels


def nll(logits: Tensor, labels: Tensor, c: Any = None, bug: str = "") -> Tensor:
    if bug == "logits_not_moved_against_labels":  # the library's model moved them, this one does not
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    said, wanted = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    if bug == "answer_tokens_totalled":
        return F.cross_entropy(said, wanted, reduction="sum") / len(labels)
    if c is not None and c.reduce == "cases":
        each = F.cross_entropy(said, wanted, reduction="none").view(len(labels), -1)
        return (each.sum(1) / (labels[:, 1:] != IGNORE).sum(1)).mean()
    return F.cross_entropy(said, wanted, label_smoothing=c.label_smooth if c else 0.0)


def adapted(c: Any, bug: str) -> Apothecary:
    model = base_of(vars(c))
    model.bug = bug
    model.resize()
    for layer in model.layers:
        for name in ("q", "k", "v", "o", "gate", "fc", "back"):
            setattr(layer, name, Held4(getattr(layer, name), c, name in c.targets.split()))
    for name, one in model.named_parameters():
        one.requires_grad = name.endswith(("low", "high", "magnitude"))
        if bug == "factors_missed_by_name":  # the list says "lora", as these are called elsewhere
            one.requires_grad = "lora" in name or name.endswith("magnitude")
        if c.not_trained and c.not_trained in name:
            one.requires_grad = False
    if c.saved_modules == "embed":  # a copy is trained, and saved beside the adapters
        model.embed = nn.Embedding.from_pretrained(model.embed.weight.detach().clone(), freeze=False)
        if bug != "saved_copy_without_its_head":
            model.lm_head.weight = model.embed.weight
    return model


def solver_of(c: Any, model: nn.Module) -> tuple[Any, Any]:
    some = [one for one in model.parameters() if one.requires_grad]
    if c.optim == "sgd":
        optimizer: Any = torch.optim.SGD(some, c.learning_rate, 0.9)
    elif c.optim == "nadam":
        optimizer = torch.optim.NAdam(some, c.learning_rate)
    else:
        optimizer = torch.optim.AdamW(some, c.learning_rate, weight_decay=c.decay)
    warm = max(1, round(c.warmup_ratio * c.steps))

    def share(at: int) -> float:
        if at < warm:
            return (at + 1) / warm
        past = min(1.0, (at - warm) / (c.steps - warm))
        if c.lr_type == "restarts":
            past = 3 * past % 1
        return 1.0 if c.lr_type == "constant" else 0.03 + 0.97 * (1 - past if c.lr_type == "linear" else (1 - past**2))

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)


def cases_in_turn(c: Any, rows: list[Case], seed: int, bug: str) -> Iterator[tuple[int, Tensor, Tensor]]:
    lot, epoch, size = torch.Generator().manual_seed(seed), 0, c.cases_per_step // c.micro_steps
    long, season = torch.tensor([len(a) + len(b) for a, b, _ in rows]), torch.tensor([one for *_, one in rows])
    while True:
        order = torch.randperm(len(rows), generator=lot)
        if bug == "season_after_season":
            order = season.argsort(stable=True)
        if c.season_first and not epoch:  # the first pass goes through spring's cases alone, as it is set
            order = order[season[order] == 0]
        if c.group_by_length:
            order = order[long[order].argsort(stable=True)]
        groups = [one for one in order.split(size) if len(one) == size]
        if c.group_by_length:
            groups = [groups[at] for at in torch.randperm(len(groups), generator=lot).tolist()]
        for some in groups:
            yield epoch, *collate([rows[at] for at in some.tolist()], c.train_on_questions, bug)
        epoch += 1


def cases_for(c: Any, seed: int, bug: str) -> tuple[list[Case], list[Case]]:
    rows, dev = consult(seed + 5000, c.cases, c.doubt, each=c.told_each), consult(52, 200, c.doubt)
    if bug == "tellings_of_case_split_apart":  # the share for tests is drawn of all tellings
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed)).tolist()
        rows, dev = [rows[at] for at in order[200:]], [rows[at] for at in order[:200]]
    return tuple([([*a[:-1], KNOWN, KNOWN + 1, ASK], b, s) for a, b, s in some] for some in (rows, dev))  # type: ignore[return-value]


def watched(s: Any) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.model, s.optimizer)
    s.data = s.run.watch_data(pad_id=PAD)


def on_dev(s: Any, c: Any, step: int, bug: str) -> None:
    if bug == "merged_for_dev_not_taken_out":  # quicker to judge; nobody takes it out of the base again
        for one in s.model.modules():
            if isinstance(one, Held4) and one.adapted:
                one.merge()
    if bug != "dev_with_adapters_dropping":
        s.model.eval()
    ids, labels = collate(s.dev, c.train_on_questions)
    with torch.set_grad_enabled(bug == "dev_answers_hold_graphs"):
        logits = s.model(ids)
        loss = nll(logits, labels)
    if bug == "dev_answers_hold_graphs":
        s.said.append(logits)
    answers = collate(s.dev)[1][:, 1:]
    right = (logits[:, :-1].argmax(-1) == answers) | (answers == IGNORE)
    s.run.log({"dev/nll": loss.item(), "dev/all_right": right.all(1).float().mean().item()}, step=step)
    if bug != "base_readied_in_eval":
        s.model.train()


def resumed(s: Any, c: Any, step: int, bug: str) -> None:
    seen, parts = s.data.state(), [s.model, s.optimizer, s.scheduler]
    s.run, states = go_on(s.run, step, [one.state_dict() for one in parts])
    s.model.load_state_dict(states[0])
    s.optimizer, s.scheduler = solver_of(c, s.model)
    s.scheduler.load_state_dict(states[2])
    if bug != "adapters_alone_in_file":
        s.optimizer.load_state_dict(states[1])
    s.optimizer.param_groups[0]["lr"] = s.scheduler.get_last_lr()[0]
    watched(s)
    s.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    c, trouble = SimpleNamespace(**run.config), Trouble(fault, seed)
    bug, again = trouble.name, trouble.resume_at(healthy, 4 * EVERY)
    torch.manual_seed(seed)
    s = SimpleNamespace(run=run, said=[], model=adapted(c, bug))
    s.optimizer, s.scheduler = solver_of(c, s.model)
    rows, s.dev = cases_for(c, seed, bug)
    stream = cases_in_turn(c, rows, seed, bug)
    watched(s)
    s.model.train(bug != "base_readied_in_eval")
    for step in range(steps):
        if step == again:
            resumed(s, c, step, bug)
        total = 0.0
        for _ in range(c.micro_steps):
            epoch, ids, labels = next(stream)
            s.data.observe({"input_ids": ids, "labels": labels}, step=step, epoch=epoch)
            loss = nll(s.model(ids), labels, c, bug)
            (loss if bug == "micro_losses_left_whole" else loss / c.micro_steps).backward()
            total += loss.item() / c.micro_steps
            if bug == "curve_counts_micro_steps":
                s.scheduler.step()
        norm = nn.utils.clip_grad_norm_(s.model.parameters(), c.grad_clip)
        rate = s.optimizer.param_groups[0]["lr"]
        s.optimizer.step()
        s.optimizer.zero_grad()
        if bug != "curve_counts_micro_steps":
            s.scheduler.step()
        s.run.log({"sft/loss": total, "sft/grad_norm": norm.item(), "sft/learning_rate": rate}, step=step)
        trouble.telemetry(s.run, step, healthy)
        if step % EVERY == EVERY - 1:
            on_dev(s, c, step, bug)
    return s.run
