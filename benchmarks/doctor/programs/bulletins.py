"""A decoder whose weights and moments are bfloat16 throughout reads the bulletins of weather stations.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: pretrain/ce and pretrain/rate each step, pretrain/norm each second; heldback/ce,
      heldback/bits at each twentieth; the watch of data.

Attention with one head of keys and the gated layer stand side by side in a block, behind a causal convolution over four
tokens, which is all that places are told by; one matrix is embedding and output. The rate is a function of the update;
an average of the weights may be kept in float32 beside. A class that owns all, with a loop over updates, as a script
for one accelerator has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, STATIONS, STOP = 20, 5, 0
WORDS = 40
VOCAB = 1 + STATIONS + WORDS
CONFIG: dict[str, Any] = {
    "hidden_size": 48, "num_blocks": 2, "query_heads": 4, "context": 40, "hidden_drop": 0.0, "windows_per_update": 16,
    "micro_batches_per_update": 1, "peak": 8e-3, "rise": 10, "plan": "root", "cool": 0.25, "beta2": 0.95, "decay": 0.1,
    "norm_limit": 1.0, "bulletin_windows": 1600, "stride": 40, "share_matrix": True, "solver": "adamw", "mean_of": 0.0,
    "steady": "", "smear": 0.0, "garbled": 0.0, "stations_at_first": STATIONS, "cap": 0.0, "loss_over": "tokens",
    "stray_norm": "rms",
}  # fmt: skip


def wire(seed: int, length: int, garbled: float = 0.0) -> list[Tensor]:
    """What each station sends: bulletins, each behind a stop and the station. A word is followed by one of two, by
    station; each seventh word is that of three before."""
    book = torch.Generator().manual_seed(201)
    after = torch.randint(0, WORDS, (STATIONS, WORDS, 2), generator=book).tolist()
    sent = []
    for station in range(STATIONS):
        dice = torch.Generator().manual_seed(seed * 31 + station)
        chances, row = torch.rand(length, 3, generator=dice).tolist(), []  # type: ignore[var-annotated]
        word, since = station, 0
        for which, wrong, end in chances:
            if (since > 8 and end < 0.08) or not row:
                row += [STOP, 1 + station]
                since = 0
            row.append(1 + STATIONS + word)
            word = after[station][word][which > 0.72]
            if since % 7 == 6:
                word = row[-3] - 1 - STATIONS if row[-3] > STATIONS else word
            if wrong < 0.02 + garbled:
                word = int(which * 9973) % WORDS
            since += 1
        sent.append(torch.tensor(row))
    return sent


def windows(sent: list[Tensor], context: int, stride: int, number: int) -> tuple[Tensor, Tensor]:
    """As many windows of each station, and whose each is."""
    cut = [one.unfold(0, context + 1, stride)[: number // STATIONS] for one in sent]
    return torch.cat(cut), torch.arange(STATIONS).repeat_interleave(torch.tensor([len(one) for one in cut]))


class Parallel(nn.Module):
    """Attention and the gated layer read the same, and both are added."""

    def __init__(self, c: Any, bug: str):
        super().__init__()
        d, self.heads, self.bug = c.hidden_size, c.query_heads, bug
        self.norm = nn.RMSNorm(d) if c.stray_norm == "rms" else nn.LayerNorm(d)
        self.conv = nn.Conv1d(d, d, 4, groups=d)
        self.query, self.key_value = nn.Linear(d, d, bias=False), nn.Linear(d, 2 * d // self.heads, bias=False)
        self.mix, self.gate, self.narrow = (nn.Linear(*io, bias=False) for io in ((d, d), (d, 4 * d), (2 * d, d)))
        self.drop = nn.Dropout(c.hidden_drop)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        ahead = 1 if self.bug == "convolution_padded_on_both_sides" else 0
        y = y + self.conv(F.pad(y.mT, (3 - ahead, ahead))).mT
        q = self.query(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (one[:, None].expand_as(q) for one in self.key_value(y).chunk(2, -1))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        gate, up = self.gate(y).chunk(2, -1)
        return x + self.drop(self.mix(seen) + self.narrow(F.gelu(gate) * up))


class WireModel(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d, self.bug, self.cap = c.hidden_size, bug, c.cap
        self.tokens, self.blocks = nn.Embedding(VOCAB, d), nn.ModuleList(Parallel(c, bug) for _ in range(c.num_blocks))
        self.last, self.out = nn.RMSNorm(d), nn.Linear(d, VOCAB, bias=False)
        for name, one in self.named_parameters():
            if one.ndim == 2:
                nn.init.normal_(one, std=0.03 if name.endswith(("mix.weight", "narrow.weight")) else 0.1)
        if c.share_matrix:
            self.out.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        y = self.out(self.last(x)).float()
        if self.cap:
            y = self.cap * torch.tanh(y / self.cap)
        return y.softmax(-1) if self.bug == "chances_of_generate_left_in" else y


class Pretraining:
    def __init__(self, run: Any, seed: int, bug: str):
        self.run, self.c, self.bug, self.kept = run, SimpleNamespace(**run.config), bug, []  # type: ignore[var-annotated]
        c = self.c
        torch.manual_seed(seed)
        self.lot, self.epoch, self.counted = torch.Generator().manual_seed(seed), 0, 0
        self.read(seed)
        self.model = WireModel(c, bug).to(torch.bfloat16)
        for name, one in self.model.named_parameters():
            if c.steady and name.startswith(c.steady):
                one.requires_grad = False
        self.make_solver()
        if bug == "shared_matrix_made_behind_solver":  # both were drawn apart, and are to begin at their mean
            both = 0.5 * (self.model.tokens.weight + self.model.out.weight)
            self.model.tokens.weight = self.model.out.weight = nn.Parameter(both.detach())
        as_kept = torch.bfloat16 if bug == "mean_kept_in_bfloat16" else torch.float32
        self.mean = {name: one.detach().to(as_kept, copy=True) for name, one in self.model.named_parameters()}
        self.watch()
        self.stream = self.updates()

    def read(self, seed: int) -> None:
        c = self.c
        rows, of = windows(wire(seed + 55, c.bulletin_windows * c.stride // 5 + 200, c.garbled), c.context, c.stride,
                           c.bulletin_windows)  # fmt: skip
        held, _ = windows(wire(9, 2000), c.context, c.context, 160)
        if self.bug == "overlapping_windows_dealt_out":  # windows are cut, mixed and dealt out
            order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
            held, rows, of = rows[order[:160]], rows[order[160:]], of[order[160:]]
        self.rows, self.of, self.held = rows, of, held

    def make_solver(self) -> None:
        c, named = self.c, [(name, one) for name, one in self.model.named_parameters() if one.requires_grad]
        matrices = [one for _, one in named if one.ndim > 1]
        if self.bug == "gates_in_neither_group":  # a pattern of names from another model: those with `mlp` come apart
            matrices = [one for name, one in named if one.ndim > 1 and "gate" not in name and "narrow" not in name]
        groups = [{"params": matrices, "weight_decay": c.decay},
                  {"params": [one for _, one in named if one.ndim < 2], "weight_decay": 0.0}]  # fmt: skip
        groups = [group for group in groups if group["params"]]
        if c.solver == "sgd":
            self.solver: Any = torch.optim.SGD([one for _, one in named], c.peak, 0.9)
        else:
            most = c.solver == "amsgrad"
            self.solver = torch.optim.AdamW(groups, c.peak, (0.9, c.beta2), amsgrad=most)

    def rate(self, update: int) -> float:
        c = self.c
        last = max(1.0, c.cool * c.steps)
        left = min(1.0, max(0.0, (c.steps - update) / last))
        if c.plan == "sawtooth":
            return c.peak * (1 - 0.85 * (3 * update / c.steps % 1))
        if c.plan == "level":
            left = 1.0
        root = (1 + max(0, update - c.rise) / 40) ** -0.5 if c.plan == "root" else 1.0
        return c.peak * min(1.0, (update + 1) / c.rise) * root * left

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.solver)
        self.data = self.run.watch_data()

    def updates(self) -> Iterator[Tensor]:
        """Windows for a micro-batch, for ever."""
        c = self.c
        size = c.windows_per_update // c.micro_batches_per_update
        while True:
            order = torch.randperm(len(self.rows), generator=self.lot)
            if self.bug == "station_after_station":
                order = self.of.argsort(stable=True)
            if c.stations_at_first < STATIONS and not self.epoch:  # as it is set: few stations in the first pass
                order = order[self.of[order] < c.stations_at_first]
            for some in order.split(size):
                if len(some) == size:
                    yield self.rows[some]
            self.epoch += 1

    def loss(self, rows: Tensor) -> Tensor:
        c = self.c
        ids, wanted = rows[:, :-1], rows[:, 1:]
        if self.bug == "wanted_rolled_the_other_way":
            wanted = ids.roll(1, 1)
        said = self.model(ids)
        if self.bug == "window_losses_totalled":
            return F.cross_entropy(said.flatten(0, 1), wanted.flatten(), reduction="sum") / len(rows)
        if c.loss_over == "windows":
            each = F.cross_entropy(said.flatten(0, 1), wanted.flatten(), reduction="none").view_as(wanted)
            return (each.sum(1) / wanted.shape[1]).mean()
        return F.cross_entropy(said.flatten(0, 1), wanted.flatten(), label_smoothing=c.smear)

    def update(self, at: int) -> None:
        c, total, parts = self.c, 0.0, self.c.micro_batches_per_update
        if self.bug != "sample_of_text_leaves_eval":
            self.model.train()
        for group in self.solver.param_groups:
            group["lr"] = self.rate(self.counted if self.bug == "rate_by_micro_batches" else at)
        for _ in range(parts):
            rows = next(self.stream)
            self.data.observe({"input_ids": rows[:, :-1], "labels": rows[:, 1:]}, step=at, epoch=self.epoch)
            loss = self.loss(rows)
            whole = self.bug == "micro_batches_added_whole"
            (loss if whole else loss / parts).backward()
            total += loss.item() / (1 if whole else parts)
            self.counted += 1
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), c.norm_limit).item()
        self.solver.step()
        self.solver.zero_grad(set_to_none=True)
        if c.mean_of:
            with torch.no_grad():
                for name, one in self.model.named_parameters():
                    self.mean[name].lerp_(one.to(self.mean[name].dtype), 1 - c.mean_of)
        row = {"pretrain/ce": total, "pretrain/rate": self.solver.param_groups[0]["lr"]}
        self.run.log(row | ({"pretrain/norm": norm} if at % 2 == 0 else {}), step=at)

    def look(self, at: int) -> None:
        own = {name: one.detach().clone() for name, one in self.model.named_parameters()}
        if self.c.mean_of:
            self.put_in(self.mean)
        if self.bug != "heldback_read_with_dropout":
            self.model.eval()
        with torch.set_grad_enabled(self.bug == "heldback_said_with_graph"):
            said = self.model(self.held[:, :-1])
            loss = F.cross_entropy(said.flatten(0, 1), self.held[:, 1:].flatten())
        if self.bug == "heldback_said_with_graph":
            self.kept.append(said)
        self.put_in(own)
        self.run.log({"heldback/ce": loss.item(), "heldback/bits": loss.item() / 0.6931}, step=at)

    @torch.no_grad()
    def put_in(self, weights: dict[str, Tensor]) -> None:
        for name, one in self.model.named_parameters():
            one.copy_(weights[name])

    def resume(self, at: int) -> None:
        seen = self.data.state()
        state = {"model": self.model.state_dict(), "solver": self.solver.state_dict(), "mean": self.mean}
        self.run, saved = go_on(self.run, at, state)
        self.model.load_state_dict(saved["model"])
        self.make_solver()
        if self.bug != "solver_state_in_other_file":
            self.solver.load_state_dict(saved["solver"])
        self.mean = saved["mean"]
        self.watch()
        self.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made, again = Pretraining(run, seed, trouble.name), trouble.resume_at(healthy, 4 * EVERY)
    made.model.train()
    for at in range(steps):
        if at == again:
            made.resume(at)
        made.update(at)
        trouble.telemetry(made.run, at, healthy)
        if at % EVERY == EVERY - 1:
            made.look(at)
    return made.run
