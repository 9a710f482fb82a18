"""Adapters beside an encoder of three bits teach it to say which fold each residue of a peptide is in.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: tag_loss, tag_norm, tag_lr each step; tag_loss/valid, per_residue_right/valid and
      mean_recall/valid each twenty-eighth; memory, where it matters; the watch of data.

A peptide has letters of twenty residues; folds come in stretches (helix, strand, turn and loose), and each likes some
residues more. The base has filled in residues that were masked, of the same kind of peptides; its weights are one of
eight levels, with a scale for 20 of them. Four matrices of each layer get two factors of low rank; the head is new, and
in full precision. A row begins with a mark for the whole peptide and ends with another: neither has a fold. Written
with layers that wrap others, a loader that is a generator, and a list of calls behind each step.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, LONG = 28, 160, 30
PAD, WHOLE, STOP, MASKED, RESIDUE, RESIDUES = 0, 1, 2, 3, 4, 20
FOLDS, VOCAB = ("helix", "strand", "turn", "loose"), RESIDUE + RESIDUES
EIGHT = torch.tensor([-1.0, -0.6, -0.3, -0.09, 0.09, 0.3, 0.6, 1.0])
CONFIG: dict[str, Any] = {
    "d_model": 40, "depth": 2, "heads": 4, "scale_block": 20, "r": 6, "alpha": 12, "lora_dropout": 0.0,
    "target_modules": "wq,wv,wo,w_in", "rslora": False, "head_lr_times": 1.0, "batch_size": 16, "grad_accum": 1,
    "optim": "adamw", "lr": 6e-3, "lr_scheduler": "linear", "warmup_steps": 8, "weight_decay": 0.0, "max_norm": 1.0,
    "reduction": "mean", "fold_weights": "none", "label_smoothing": 0.0, "peptides": 900, "homologues": 1,
    "misread": 0.0, "short_first_epochs": 0, "group_by_length": False, "eval_every": 28, "log_every": 1,
}  # fmt: skip


# -- peptides -------------------------------------------------------------------------------------------------------


Peptide = tuple[list[int], list[int]]


def peptides(seed: int, number: int, homologues: int = 1, misread: float = 0.0) -> list[Peptide]:
    """Residues and folds, family after family. homologues: peptides that differ from each other in few places."""
    laws, dice, found = torch.Generator().manual_seed(91), torch.Generator().manual_seed(seed), []
    likes = torch.distributions.Dirichlet(torch.full((3, len(FOLDS), RESIDUES), 0.35))
    with torch.random.fork_rng():
        torch.manual_seed(91)
        likes_of = likes.sample()
    after = torch.rand(3, len(FOLDS), len(FOLDS), generator=laws) * torch.tensor([1.0, 0.8, 0.5, 1.2])
    after = after * (1 - torch.eye(len(FOLDS)))
    stretch = (6, 4, 2, 3)
    many = number // homologues
    for at in range(many):
        family = at * 3 // many
        long = 12 + int(torch.randint(0, 15, (), generator=dice))
        fold, folds = int(torch.randint(0, len(FOLDS), (), generator=dice)), []
        while len(folds) < long:
            folds += [fold] * (stretch[fold] + int(torch.randint(0, 3, (), generator=dice)))
            fold = int(torch.multinomial(after[family, fold], 1, generator=dice))
        folds = folds[:long]
        letters = torch.multinomial(likes_of[family, folds], 1, generator=dice)[:, 0]
        for _ in range(homologues):
            changed = torch.rand(long, generator=dice) < (0.1 if homologues > 1 else 0.0)
            own = torch.where(changed, torch.randint(0, RESIDUES, (long,), generator=dice), letters)
            told = torch.tensor(folds)
            wrong = torch.rand(long, generator=dice) < misread
            told = torch.where(wrong, torch.randint(0, len(FOLDS), (long,), generator=dice), told)
            found.append((own.tolist(), told.tolist()))
    return found


def collate(some: list[Peptide], bug: str = "", long: int = 0) -> dict[str, Tensor]:
    """Rows as long as the longest; -100 has no fold."""
    long = long or max(len(letters) for letters, _ in some) + 2
    ids, tags = torch.full((len(some), long), PAD), torch.full((len(some), long), -100)
    first = 0 if bug == "folds_begin_at_the_mark" else 1
    for at, (letters, folds) in enumerate(some):
        ids[at, : len(letters) + 2] = torch.tensor([WHOLE, *(RESIDUE + one for one in letters), STOP])
        tags[at, first : first + len(folds)] = torch.tensor(folds)
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": tags}


# -- encoder --------------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads, self.before, self.between = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d, d) for _ in range(4))
        self.w_in, self.w_out = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        y = self.before(x)
        q, k, v = (one(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.wq, self.wk, self.wv))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None, None])
        x = x + self.wo(y.transpose(1, 2).flatten(2))
        return x + self.w_out(F.gelu(self.w_in(self.between(x))))


class Encoder(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.letters, self.places = nn.Embedding(VOCAB, c.d_model), nn.Embedding(LONG + 2, c.d_model)
        self.layers = nn.ModuleList(Layer(c.d_model, c.heads) for _ in range(c.depth))
        self.norm = nn.LayerNorm(c.d_model)
        nn.init.normal_(self.letters.weight, std=0.15)
        nn.init.normal_(self.places.weight, std=0.05)

    def forward(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        seen = torch.ones_like(ids).bool() if mask is None else mask.bool()
        x = self.letters(ids) + self.places.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, seen)
        return self.norm(x)


class FewBits(nn.Module):
    """A linear layer whose weights are one of eight levels, scaled in blocks."""

    def __init__(self, plain: nn.Linear, block: int):
        super().__init__()
        rows = plain.weight.detach().view(-1, block)
        scale = rows.abs().amax(1, keepdim=True)
        self.in_features, self.out_features = plain.in_features, plain.out_features
        self.register_buffer("code", ((rows / scale)[..., None] - EIGHT).abs().argmin(-1).to(torch.uint8))
        self.register_buffer("scale", scale)
        self.register_buffer("bias", plain.bias.detach().clone())

    def weight(self) -> Tensor:
        return (EIGHT[self.code.long()] * self.scale).view(self.out_features, self.in_features)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight(), self.bias)


class WithAdapter(nn.Module):
    def __init__(self, base: nn.Module, c: Any, bug: str):
        super().__init__()
        self.base, self.drop = base, nn.Dropout(c.lora_dropout)
        self.lora_a = nn.Parameter(torch.randn(c.r, base.in_features) / math.sqrt(base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, c.r))
        self.scaling = c.alpha / (math.sqrt(c.r) if c.rslora else c.r)
        if bug == "alpha_is_multiplied_by_the_rank":
            self.scaling = c.alpha * c.r

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.scaling * F.linear(F.linear(self.drop(x), self.lora_a), self.lora_b)


class FoldTagger(nn.Module):
    def __init__(self, encoder: Encoder, c: Any, bug: str):
        super().__init__()
        self.encoder, self.bug = encoder, bug
        self.head = nn.Sequential(nn.Linear(c.d_model, c.d_model), nn.Tanh(), nn.Linear(c.d_model, len(FOLDS)))

    def forward(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        out = self.head(self.encoder(ids, mask))
        return out.softmax(-1) if self.bug == "head_gives_shares_to_the_loss" else out


def filled_in(c: Any) -> Encoder:
    """The base, the same for every training: it fills in masked residues."""
    with torch.random.fork_rng():
        torch.manual_seed(92)
        net, guess = Encoder(c), nn.Linear(c.d_model, VOCAB)
        rows = collate(peptides(93, 700), long=LONG)
        optimizer = torch.optim.AdamW([*net.parameters(), *guess.parameters()], 3e-3)
        for at in range(150):
            optimizer.param_groups[0]["lr"] = 3e-3 * min(1.0, (at + 1) / 10) * (1 - at / 160)
            some = torch.randint(0, 700, (24,))
            ids, mask = rows["input_ids"][some], rows["attention_mask"][some]
            hidden = (torch.rand(ids.shape) < 0.2) & (ids >= RESIDUE)
            out = guess(net(torch.where(hidden, MASKED, ids), mask))
            F.cross_entropy(out[hidden], ids[hidden]).backward()
            optimizer.step()
            optimizer.zero_grad()
    return net


def pack_base(encoder: Encoder, c: Any) -> None:
    for layer in encoder.layers:
        for name in ("wq", "wk", "wv", "wo", "w_in", "w_out"):
            setattr(layer, name, FewBits(getattr(layer, name), c.scale_block))


def add_adapters(encoder: Encoder, c: Any, bug: str) -> None:
    for layer in encoder.layers:
        for name in c.target_modules.split(","):
            setattr(layer, name, WithAdapter(getattr(layer, name), c, bug))


# -- tuning ---------------------------------------------------------------------------------------------------------


def optimizer_of(s: SimpleNamespace) -> None:
    c = s.c
    head = [one for one in s.model.head.parameters() if one.requires_grad]
    rest = [one for one in s.model.encoder.parameters() if one.requires_grad]
    groups = [{"params": some, "lr": c.lr * by} for some, by in ((rest, 1.0), (head, c.head_lr_times)) if some]
    if c.optim == "adamax":
        s.optimizer = torch.optim.Adamax(groups, c.lr)
    else:
        s.optimizer = torch.optim.AdamW(groups, c.lr, weight_decay=c.weight_decay)

    def by(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.warmup_steps)), min(1.0, at / s.steps)
        if c.lr_scheduler == "constant":
            return rise
        if c.lr_scheduler == "cosine_with_restarts":
            return rise * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
        return rise * (1 - 0.98 * past)

    s.scheduler = torch.optim.lr_scheduler.LambdaLR(s.optimizer, by)


def prepare(run: Any, seed: int, steps: int, bug: str) -> SimpleNamespace:
    c = SimpleNamespace(**run.config)
    s = SimpleNamespace(run=run, c=c, seed=seed, steps=steps, bug=bug, report=[])
    s.train = peptides(seed + 5200, c.peptides, c.homologues, c.misread)
    held = peptides(5199, HELD)
    if bug == "homologues_on_both_sides":
        order = torch.randperm(len(s.train), generator=torch.Generator().manual_seed(seed)).tolist()
        held, s.train = [s.train[at] for at in order[:HELD]], [s.train[at] for at in sorted(order[HELD:])]
    s.valid = collate(held, long=LONG)
    if bug == "folds_of_the_valid_file_in_another_order":  # its reader sorts the names that it finds
        order = torch.tensor([sorted(FOLDS).index(name) for name in FOLDS])
        tags = s.valid["labels"]
        s.valid["labels"] = torch.where(tags >= 0, order[tags.clamp(min=0)], tags)
    base = filled_in(c)
    torch.manual_seed(seed)
    s.model = FoldTagger(base, c, bug)
    pack_base(base, c)
    if bug == "everything_there_is_held_as_the_base":  # the head is there already
        s.model.requires_grad_(False)
    else:
        base.requires_grad_(False)
    if bug == "optimizer_made_before_the_adapters":
        optimizer_of(s)
        add_adapters(base, c, bug)
    else:
        add_adapters(base, c, bug)
        optimizer_of(s)
    many = torch.bincount(torch.tensor([one for _, folds in s.train for one in folds]), minlength=len(FOLDS)).float()
    s.weight = (many.sum() / many) ** 0.5 if c.fold_weights == "root" else torch.ones(len(FOLDS))
    s.weight = s.weight / s.weight.mean()
    return s


def loader(s: SimpleNamespace) -> Any:
    c, epoch, dice = s.c, 0, torch.Generator().manual_seed(s.seed)
    long = torch.tensor([len(letters) for letters, _ in s.train])
    while True:
        order = torch.randperm(len(s.train), generator=dice)
        if s.bug == "families_as_the_file_has_them":
            order = torch.arange(len(s.train))
        if epoch < c.short_first_epochs:
            order = order[long[order] < 20]
        if c.group_by_length:
            order = order[long[order].argsort(stable=True)]
        lots = [one for one in order.split(c.batch_size) if len(one) == c.batch_size]
        if c.group_by_length:
            lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
        for some in lots:
            yield epoch, collate([s.train[at] for at in some.tolist()], s.bug)
        epoch += 1


def tag_loss(s: SimpleNamespace, batch: dict[str, Tensor]) -> Tensor:
    c, bug, tags = s.c, s.bug, batch["labels"].flatten()
    out = s.model(batch["input_ids"], batch["attention_mask"]).flatten(0, 1)
    if c.reduction == "sum" or bug == "residues_of_a_peptide_summed":
        total = F.cross_entropy(out, tags, s.weight, reduction="sum", label_smoothing=c.label_smoothing)
        return total / len(batch["input_ids"])
    return F.cross_entropy(out, tags, s.weight, label_smoothing=c.label_smoothing)


def validate(s: SimpleNamespace, step: int) -> None:
    bug, valid, taped = s.bug, s.valid, s.bug == "valid_outputs_gathered_for_a_report"
    if bug != "valid_with_adapters_dropping":
        s.model.eval()
    with torch.set_grad_enabled(taped):
        mask = None if bug == "valid_rows_without_their_mask" else valid["attention_mask"]
        out = s.model(valid["input_ids"], mask)
        loss = F.cross_entropy(out.flatten(0, 1), valid["labels"].flatten())
    if taped:
        s.report.append((loss, out))
    real = valid["labels"] >= 0
    hit, told = (out.argmax(-1) == valid["labels"])[real].float(), valid["labels"][real]
    recall = torch.stack([hit[told == at].mean() for at in range(len(FOLDS))]).mean().item()
    s.run.log({"tag_loss/valid": loss.item(), "per_residue_right/valid": hit.mean().item(),
               "mean_recall/valid": recall}, step=step)  # fmt: skip
    if bug != "valid_leaves_the_tagger_in_eval":
        s.model.train()


def observe(s: SimpleNamespace) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.model, s.optimizer)
    s.watch = s.run.watch_data(pad_id=PAD)


def resume(s: SimpleNamespace, step: int) -> None:
    seen = s.watch.state()
    state = {"model": s.model.state_dict(), "optimizer": s.optimizer.state_dict(),
             "scheduler": s.scheduler.state_dict()}  # fmt: skip
    s.run, state = go_on(s.run, step, state)
    s.model.load_state_dict(state["model"])
    optimizer_of(s)
    if s.bug != "adapter_file_is_all_there_is":
        s.optimizer.load_state_dict(state["optimizer"])
        s.scheduler.load_state_dict(state["scheduler"])
    observe(s)
    s.watch.restore(seen)


def update(s: SimpleNamespace, step: int, batches: Any) -> None:
    """One update, logged."""
    c, bug, total = s.c, s.bug, 0.0
    for _ in range(c.grad_accum):
        epoch, batch = next(batches)
        s.watch.observe(batch, step=step, epoch=epoch)
        loss = tag_loss(s, batch)
        (loss if bug == "grad_accum_left_out_of_the_loss" else loss / c.grad_accum).backward()
        total += loss.item() / c.grad_accum
        if bug == "scheduler_beside_the_backward":
            s.scheduler.step()
    some = [one for one in s.model.parameters() if one.requires_grad]
    norm = nn.utils.clip_grad_norm_(some, c.max_norm).item()
    rate = s.optimizer.param_groups[0]["lr"]
    s.optimizer.step()
    s.model.zero_grad()
    if bug != "scheduler_beside_the_backward":
        s.scheduler.step()
    if step % c.log_every == 0:
        s.run.log({"tag_loss": total, "tag_norm": norm, "tag_lr": rate}, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    s = prepare(run, seed, steps, trouble.name)
    again, batches = trouble.resume_at(healthy, 2 * EVERY), loader(s)
    observe(s)
    s.model.train()
    for step in range(steps):
        if step == again:
            resume(s, step)
        update(s, step, batches)
        trouble.telemetry(s.run, step, healthy)
        if step % s.c.eval_every == s.c.eval_every - 1:
            validate(s, step)
    return s.run
