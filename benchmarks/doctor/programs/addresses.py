"""Adapters beside a base of four bits teach a small decoder to write addresses in the order of another country.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: adapt/xent, adapt/gnorm, adapt/rate each step; adapt_dev/xent, adapt_dev/all_right of
      answers each thirty-second; memory, where it matters; the watch of data.

A request names a street, a house, perhaps a floor, and a city. The base writes house, street, floor, city; what is
taught is another order, with a code before the city that follows from the city and the side of the street. Weights of
the base are one of sixteen levels, times a scale for each 32 of them that is itself kept in eight bits. Adapters are
modules of their own, which hooks add to what the base's layers give. Written as functions that share one state.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, LONGEST = 32, 120, 20
PAD, BEGIN, WRITE, BREAK, STOP, FLOOR = range(6)
STREETS, DIGITS, CITIES, CODES, FILLERS = 16, 10, 9, 18, 5
STREET, DIGIT, CITY = 6, 6 + STREETS, 6 + STREETS + DIGITS
CODE = CITY + CITIES
FILLER = CODE + CODES
VOCAB = FILLER + FILLERS
LEVELS = torch.tensor([-1.0, -0.7, -0.53, -0.39, -0.28, -0.18, -0.09, 0.0, 0.08, 0.16, 0.25, 0.34, 0.44, 0.56, 0.72, 1])
CONFIG: dict[str, Any] = {
    "width": 40, "blocks": 2, "heads": 4, "block_of_scales": 32, "rank": 8, "alpha": 16, "adapter_dropout": 0.0,
    "adapted": "query,key,value,join,widen,narrow", "root_scaling": False, "train_head": False, "batch": 16, "parts": 1,
    "optimizer": "adam", "rate": 8e-3, "up_rate_factor": 1.0, "schedule": "cosine", "warmup": 6, "decay": 0.0,
    "clip": 1.0, "requests_learnt": False, "per_row_sum": False, "smoothing": 0.0, "requests": 1000, "spellings": 1,
    "wrong_codes": 0.0, "short_first_epochs": 0, "alike_in_length": False, "dev_every": 32, "log_every": 1,
}  # fmt: skip


# -- requests and answers -------------------------------------------------------------------------------------------


Pairs = list[tuple[list[int], list[int]]]


def addresses(seed: int, number: int, each: int = 1, wrong: float = 0.0, native: bool = False) -> Pairs:
    """Requests and answers, city after city. each: wordings of one address; native: as the base writes it."""
    dice, found = torch.Generator().manual_seed(seed), []

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    for at in range(number // each):
        city, street = at * CITIES * each // number, one(STREETS)
        house, floor = [DIGIT + 1 + one(9), DIGIT + one(10)], one(6)
        code = CODE + 2 * city + house[1] % 2
        if float(torch.rand((), generator=dice)) < wrong:
            code = CODE + one(CODES)
        above = [FLOOR, DIGIT + floor] if floor else []
        if native:
            answer = [*house, STREET + street, *above, BREAK, CITY + city, STOP]
        else:
            answer = [code, CITY + city, BREAK, STREET + street, *above, *house, STOP]
        for _ in range(each):
            small = [FILLER + one(FILLERS) for _ in range(one(3))]
            found.append(([BEGIN, *small, STREET + street, *house, *above, CITY + city, WRITE], answer))
    return found


def collate(c: Any, some: Pairs, bug: str = "") -> tuple[Tensor, Tensor]:
    """Words and labels, as long as the longest of them; -100 is not learnt."""
    long = max(len(request) + len(answer) for request, answer in some)
    ids, labels = torch.full((len(some), long), PAD), torch.full((len(some), long), -100)
    for at, (request, answer) in enumerate(some):
        both, begin = torch.tensor([*request, *answer]), len(request)
        if bug == "length_of_the_request_with_an_end_word":
            begin += 1
        ids[at, : len(both)] = both
        begin = 1 if c.requests_learnt else begin
        labels[at, begin : len(both)] = both[begin:]
    if bug == "labels_moved_in_collate_and_in_the_loss":
        labels = torch.cat([labels[:, 1:], torch.full((len(some), 1), -100)], 1)
    return ids, labels


# -- base and adapters ----------------------------------------------------------------------------------------------


class Packed(nn.Module):
    """A matrix of four bits."""

    def __init__(self, weight: Tensor, block: int):
        super().__init__()
        self.shape = weight.shape
        self.pack(weight, block)

    def pack(self, weight: Tensor, block: int) -> None:
        rows = weight.detach().flatten().view(-1, block)
        scale = rows.abs().amax(1, keepdim=True)
        top = scale.amax()
        small = (scale / top * 255).round().clamp(min=1)
        level = ((rows / (small * top / 255))[..., None] - LEVELS).abs().argmin(-1)
        self.register_buffer("level", level.to(torch.uint8))
        self.register_buffer("small", small.to(torch.uint8))
        self.register_buffer("top", top)

    def matrix(self) -> Tensor:
        return (LEVELS[self.level.long()] * (self.small * self.top / 255)).view(self.shape)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.matrix())


class Writer(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads, self.norm_a, self.norm_m = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.query, self.key, self.value, self.join = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.widen, self.narrow = nn.Linear(d, 3 * d, bias=False), nn.Linear(3 * d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm_a(x)
        q, k, v = (one(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.query, self.key, self.value))
        x = x + self.join(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.narrow(F.relu(self.widen(self.norm_m(x))) ** 2)


class Clerk(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, c.width), nn.Embedding(LONGEST + 4, c.width)
        self.blocks = nn.ModuleList(Writer(c.width, c.heads) for _ in range(c.blocks))
        self.last, self.head = nn.LayerNorm(c.width), nn.Linear(c.width, VOCAB, bias=False)
        nn.init.normal_(self.words.weight, std=0.1)
        nn.init.normal_(self.places.weight, std=0.05)
        self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))


class Beside(nn.Module):
    """Two factors of a layer's change."""

    def __init__(self, into: int, out: int, c: Any):
        super().__init__()
        self.down, self.up = nn.Linear(into, c.rank, bias=False), nn.Linear(c.rank, out, bias=False)
        nn.init.zeros_(self.up.weight)
        self.drop, self.scale = (
            nn.Dropout(c.adapter_dropout),
            c.alpha / (math.sqrt(c.rank) if c.root_scaling else c.rank),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.up(self.down(self.drop(x)))

    def delta(self) -> Tensor:
        return self.scale * self.up.weight @ self.down.weight


def schooled(c: Any) -> Clerk:
    """The base, the same for every training: it writes in its own order, and has seen some of the other."""
    with torch.random.fork_rng():
        torch.manual_seed(61)
        net, whole = Clerk(c), SimpleNamespace(requests_learnt=True)
        ids, labels = collate(whole, addresses(62, 700, native=True) + addresses(63, 300))
        optimizer = torch.optim.AdamW(net.parameters(), 4e-3)
        for at in range(180):
            optimizer.param_groups[0]["lr"] = 4e-3 * min(1.0, (at + 1) / 10) * (1 - at / 190)
            some = torch.randint(0, len(ids), (24,))
            F.cross_entropy(net(ids[some])[:, :-1].flatten(0, 1), labels[some, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return net


def fitted_out(s: SimpleNamespace, net: Clerk) -> None:
    """The base packed and held, with an adapter for each layer that the settings name."""
    c = s.c
    net.requires_grad_(False)
    adapters = nn.ModuleDict()
    for number, block in enumerate(net.blocks):
        for name in ("query", "key", "value", "join", "widen", "narrow"):
            plain = getattr(block, name)
            setattr(block, name, Packed(plain.weight, c.block_of_scales))
            if name in c.adapted.split(","):
                beside = adapters[f"{number}_{name}"] = Beside(plain.in_features, plain.out_features, c)
                getattr(block, name).register_forward_hook(lambda layer, given, said, of=beside: said + of(given[0]))
    s.net = nn.ModuleDict({"base": net, "adapters": adapters})
    if c.train_head:
        net.head.weight.requires_grad_(True)
        if s.bug == "head_of_float32_is_a_copy":  # the head is made anew in full precision, for the loss
            net.words.weight = nn.Parameter(net.words.weight.detach().clone(), requires_grad=False)
    if s.bug == "lower_block_held_by_the_start_of_its_name":
        for name, one in adapters.named_parameters():
            if name.startswith("0"):
                one.requires_grad_(False)


# -- training -------------------------------------------------------------------------------------------------------


def optimise(s: SimpleNamespace) -> None:
    c, slow, fast = s.c, [], []
    for name, one in s.net.named_parameters():
        if s.bug == "groups_of_attention_adapters_alone" and ("widen" in name or "narrow" in name):
            continue
        if one.requires_grad:
            (fast if name.endswith("up.weight") else slow).append(one)
    groups = [{"params": slow, "lr": c.rate}, {"params": fast, "lr": c.rate * c.up_rate_factor}]
    kind = {"adam": torch.optim.AdamW, "nadam": torch.optim.NAdam, "adamax": torch.optim.Adamax}[c.optimizer]
    s.optimizer = kind(groups, c.rate, weight_decay=c.decay)

    def share(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / s.steps)
        if c.schedule == "level":
            return rise
        if c.schedule == "saw":
            return rise * (1 - 0.95 * (2 * past % 1))
        return rise * 0.5 * (1 + math.cos(math.pi * past))

    s.schedule = torch.optim.lr_scheduler.LambdaLR(s.optimizer, share)


def stream(s: SimpleNamespace) -> Any:
    c, epoch, dice = s.c, 0, torch.Generator().manual_seed(s.seed)
    length = torch.tensor([len(request) + len(answer) for request, answer in s.pairs])
    while True:
        order = torch.randperm(len(s.pairs), generator=dice)
        if s.bug == "shuffle_left_false_as_in_the_dev_loader":
            order = torch.arange(len(s.pairs))
        if epoch < c.short_first_epochs:
            order = order[length[order] < 15]
        if c.alike_in_length:
            order = order[length[order].argsort(stable=True)]
        lots = [one for one in order.split(c.batch) if len(one) == c.batch]
        if c.alike_in_length:
            lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
        for some in lots:
            yield epoch, *collate(c, [s.pairs[at] for at in some.tolist()], s.bug)
        epoch += 1


def xent(s: SimpleNamespace, ids: Tensor, labels: Tensor, training: bool) -> tuple[Tensor, Tensor]:
    logits = s.net["base"](ids)
    out, wanted = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    if training and (s.c.per_row_sum or s.bug == "words_of_an_answer_summed"):
        return F.cross_entropy(out, wanted, reduction="sum") / len(ids), logits
    return F.cross_entropy(out, wanted, label_smoothing=s.c.smoothing if training else 0.0), logits


def merged(s: SimpleNamespace, back: bool = False) -> None:
    """Add what adapters change to the base's matrices, as for an export; or put these back."""
    for name, beside in s.net["adapters"].items():
        number, layer = name.split("_")
        packed = getattr(s.net["base"].blocks[int(number)], layer)
        if back:
            packed.load_state_dict(s.unmerged[name])
        else:
            s.unmerged[name] = {key: one.clone() for key, one in packed.state_dict().items()}
            packed.pack(packed.matrix() + beside.delta(), s.c.block_of_scales)


def develop(s: SimpleNamespace, step: int) -> None:
    taped, twice = s.bug == "dev_answers_gathered_with_their_graph", s.bug == "merged_for_dev_with_hooks_still_on"
    if s.bug != "dropout_of_adapters_on_in_dev":
        s.net.eval()
    if twice:
        merged(s)
    with torch.set_grad_enabled(taped):
        loss, logits = xent(s, *s.dev, False)
    if twice:
        merged(s, back=True)
    if taped:
        s.gathered.append((loss, logits))
    labels = s.dev[1]
    right = (logits[:, :-1].argmax(-1) == labels[:, 1:]) | (labels[:, 1:] == -100)
    s.run.log({"adapt_dev/xent": loss.item(), "adapt_dev/all_right": right.all(1).float().mean().item()}, step=step)
    if s.bug != "adapters_not_set_to_train_again":
        s.net.train()


def observe(s: SimpleNamespace) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.net, s.optimizer)
    s.watch = s.run.watch_data(pad_id=PAD)


def resume(s: SimpleNamespace, step: int) -> None:
    seen = s.watch.state()
    state = {"net": s.net.state_dict(), "optimizer": s.optimizer.state_dict(), "schedule": s.schedule.state_dict()}
    s.run, state = go_on(s.run, step, state)
    s.net.load_state_dict(state["net"])
    optimise(s)
    if s.bug != "adapters_read_back_and_nothing_beside":
        s.optimizer.load_state_dict(state["optimizer"])
        s.schedule.load_state_dict(state["schedule"])
    observe(s)
    s.watch.restore(seen)


def prepare(run: Any, seed: int, steps: int, bug: str) -> SimpleNamespace:
    c = SimpleNamespace(**run.config)
    s = SimpleNamespace(run=run, c=c, seed=seed, steps=steps, bug=bug, gathered=[], unmerged={})
    base = schooled(c)
    torch.manual_seed(seed)
    fitted_out(s, base)
    optimise(s)
    s.pairs, held = addresses(seed + 1250, c.requests, c.spellings, c.wrong_codes), addresses(1249, HELD)
    if bug == "dev_template_without_the_write_word":
        held = [(request[:-1], answer) for request, answer in held]
    s.dev = collate(SimpleNamespace(requests_learnt=False), held)
    return s


def fit(s: SimpleNamespace, trouble: Trouble, healthy: str | None) -> None:
    c, again, batches = s.c, trouble.resume_at(healthy, 2 * EVERY), stream(s)
    often = s.bug == "schedule_stepped_for_each_part"
    observe(s)
    s.net.train()
    for step in range(s.steps):
        if step == again:
            resume(s, step)
        total = 0.0
        for _ in range(c.parts):
            epoch, ids, labels = next(batches)
            s.watch.observe({"input_ids": ids, "labels": labels}, step=step, epoch=epoch)
            loss, _ = xent(s, ids, labels, True)
            (loss if s.bug == "parts_add_up_to_their_sum" else loss / c.parts).backward()
            total += loss.item() / c.parts
            if often:
                s.schedule.step()
        norm = nn.utils.clip_grad_norm_([one for one in s.net.parameters() if one.requires_grad], c.clip).item()
        rate = s.optimizer.param_groups[0]["lr"]
        s.optimizer.step()
        s.net.zero_grad()
        if not often:
            s.schedule.step()
        if step % c.log_every == 0:
            s.run.log({"adapt/xent": total, "adapt/gnorm": norm, "adapt/rate": rate}, step=step)
        trouble.telemetry(s.run, step, healthy)
        if step % c.dev_every == c.dev_every - 1:
            develop(s, step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    s = prepare(run, seed, steps, trouble.name)
    fit(s, trouble, healthy)
    return s.run
