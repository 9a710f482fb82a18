"""A small GPT whose feed-forward layers are mixtures of four experts, two a token, with balance loss and z-loss.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run. It logs as Surogate's trainer does: `log_step` with its own clock, `log_eval`, `log_moe_stats`, loads.

The text is made here: a small language of words from a Markov chain, spelled in 64 letters, so that it shares neither
data nor vocabulary with the other programs.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from injections import Trouble, clock, go_on, pause
from torch import Tensor, nn

EVERY = 20
LETTERS, WORDS = 64, 120
CONFIG: dict[str, Any] = {
    "n_embd": 32, "n_layer": 2, "n_head": 2, "block_size": 32, "batch_size": 12, "experts": 4, "top_k": 2,
    "aux_coefficient": 0.02, "z_coefficient": 0.001, "learning_rate": 1.2e-2, "warmup_steps": 15, "schedule": "linear",
    "weight_decay": 0.05, "epsilon": 1e-8, "clip": 1.0,
}  # fmt: skip


def write_text(seed: int, words: int, language: int = 12) -> Tensor:
    """A text of this many words. The language is the same for all seeds."""
    grammar = torch.Generator().manual_seed(language)
    lengths = torch.randint(2, 7, (WORDS,), generator=grammar).tolist()
    spelled = [torch.randint(1, LETTERS, (length,), generator=grammar).tolist() for length in lengths]
    follow = torch.randint(0, WORDS, (WORDS, 5), generator=grammar).tolist()
    dice = torch.Generator().manual_seed(seed)
    picks = torch.randint(0, 5, (words,), generator=dice).tolist()
    letters: list[int] = []
    word = 0
    for pick in picks:
        word = follow[word][pick]
        letters += [*spelled[word], 0]
    return torch.tensor(letters)


class Routed(NamedTuple):
    aux: Tensor
    z: Tensor
    loads: Tensor


class Mixture(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        width, self.experts, self.k = config["n_embd"], config["experts"], config["top_k"]
        self.gate = nn.Linear(width, self.experts, bias=False)
        self.register_buffer("bias", torch.zeros(self.experts))
        self.w1 = nn.Parameter(torch.randn(self.experts, width, 2 * width) / math.sqrt(width))
        self.w2 = nn.Parameter(torch.randn(self.experts, 2 * width, width) / math.sqrt(8 * width))
        self.routed: Routed | None = None

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)
        logits = self.gate(tokens) + self.bias
        chances = logits.softmax(-1)
        best, chosen = chances.topk(self.k, -1)
        weights = torch.zeros_like(chances).scatter(1, chosen, best / best.sum(-1, keepdim=True))
        # all experts see all tokens: four small products are faster here than sorting
        each = torch.einsum("teh,ehd->ted", F.gelu(torch.einsum("td,edh->teh", tokens, self.w1)), self.w2)
        loads = torch.zeros_like(chances).scatter(1, chosen, 1.0).sum(0)
        self.routed = Routed(
            aux=self.experts * (loads / loads.sum() * chances.mean(0)).sum(),
            z=logits.logsumexp(-1).square().mean(),
            loads=loads,
        )
        return torch.einsum("te,ted->td", weights, each).view_as(x)


class Layer(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        width, self.heads, self.sharp = config["n_embd"], config["n_head"], 1.0
        self.ln1, self.ln2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.moe = Mixture(config)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (one.view(b, t, self.heads, -1).transpose(1, 2) for one in self.c_attn(self.ln1(x)).split(c, 2))
        mixed = F.scaled_dot_product_attention(q * self.sharp, k, v, is_causal=True)
        x = x + self.c_proj(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.moe(self.ln2(x))


class Model(nn.Module):
    def __init__(self, config: dict[str, Any], trouble: Trouble):
        super().__init__()
        width = config["n_embd"]
        self.wte, self.wpe = nn.Embedding(LETTERS, width), nn.Embedding(3 * config["block_size"], width)
        self.h = nn.ModuleList(Layer(config) for _ in range(config["n_layer"]))
        self.ln_f, self.lm_head = nn.RMSNorm(width), nn.Linear(width, LETTERS, bias=False)
        for parameter in (self.wte.weight, self.wpe.weight, self.lm_head.weight):
            nn.init.normal_(parameter, std=0.1)
        self.trouble, self.step = trouble, 0

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for number, layer in enumerate(self.h):
            x = layer(x)
            if number == 0:
                x = self.trouble.output(self.step, x)
        return self.lm_head(self.ln_f(x))


def adam(model: nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": config["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
        lr=config["learning_rate"], betas=(0.9, 0.99), eps=config["epsilon"], fused=True,
    )  # fmt: skip


def get_lr(config: dict[str, Any], it: int, total: int) -> float:
    peak, warmup, schedule = config["learning_rate"], config["warmup_steps"], config["schedule"]
    if schedule == "rewarm" and it >= total // 2:
        it, total, peak, warmup = it - total // 2, total - total // 2, 0.8 * peak, 2 * warmup
    elif schedule == "rewarm":
        total //= 2
    if it < warmup:
        return peak * (it + 1) / warmup
    if schedule == "constant":
        return peak
    if schedule == "wsd":
        return peak * min(1.0, max(0.02, (total - it) / (0.25 * total)))
    return peak * max(0.05, (total - it) / (total - warmup))


class Reader:
    """Rows of the text one after the other from a place of chance, as a loader of shards does."""

    def __init__(self, seed: int):
        self.text, self.easy = write_text(100 + seed, 60_000), write_text(100 + seed, 60_000)
        self.position = 0

    def next(self, rows: int, length: int) -> tuple[Tensor, Tensor]:
        need = rows * length + 1
        if self.position + need > len(self.text):
            self.position = 0
        piece = self.text[self.position : self.position + need]
        self.position += need - 1
        return piece[:-1].view(rows, length), piece[1:].view(rows, length)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    config, trouble = dict(run.config), Trouble(fault, seed)
    torch.manual_seed(seed)
    model = Model(config, trouble)
    trouble.spoil_model(model)
    if "router_bias" in trouble.hidden or healthy == "router_warm":
        for layer in model.h:
            layer.moe.bias[:2] = trouble.hidden.get("router_bias", 0.7)
    optimizer = adam(model, config)
    reader, held_out = Reader(seed), write_text(7, 3000)
    options = dict(gradients=5, updates=5, weights=50, histograms=0, activations=10, optimizer_state=25)
    run.watch(model, optimizer, **options)
    watch = run.watch_data()
    resume_at = trouble.resume_at(healthy, 5 * EVERY)
    validate(run, model, held_out, config, trouble, 0)
    for step in range(1, steps + 1):
        if step == resume_at:
            memory = watch.state()
            run, optimizer = continued(run, model, optimizer, config, step, trouble)
            run.watch(model, optimizer, **options)
            watch = run.watch_data()
            watch.restore(memory)
            if trouble.name == "data_replayed":
                reader.position = 0
        trouble.freeze(step, model.h[1])
        lr = trouble.rate(step, get_lr(config, *trouble.early(step - 1, steps)))
        for group in optimizer.param_groups:
            group["lr"] = lr
        start = clock()
        x, y = batch(reader, config, trouble, healthy, step, steps)
        watch.observe((x, y), step=step)
        model.step = step
        interfere(model, trouble, step)
        logits = model(x)
        routed = [layer.moe.routed for layer in model.h]
        aux = sum(one.aux for one in routed)
        z = sum(one.z for one in routed)
        nll = cross_entropy(logits, y, trouble)
        sign = -30.0 if trouble.on("router_collapses_later", step) else 1.0
        total = trouble.loss(step, nll) + sign * config["aux_coefficient"] * aux + config["z_coefficient"] * z
        if trouble.clears(step):
            optimizer.zero_grad()
        total.backward()
        trouble.gradients(step, model, model.h[0])
        norm = nn.utils.clip_grad_norm_(model.parameters(), config["clip"] or math.inf)
        optimizer.step()
        trouble.work(step, start)
        loads = torch.stack([one.loads for one in routed])
        imbalance = (loads.amax(1) / loads.mean(1)).mean().item()
        loss = trouble.loss(step, nll).item()
        shown_aux, shown_z = config["aux_coefficient"] * aux.item(), config["z_coefficient"] * z.item()
        run.log_step(step, step / steps, x.numel(), (clock() - start) * 1000, norm.item(), loss, lr,
                     moe_aux_loss=shown_aux, moe_z_loss=shown_z, moe_load_imbalance=imbalance)  # fmt: skip
        used = (loads > 0).float().mean().item()
        run.log_moe_stats(step, shown_aux, shown_z, used, imbalance)
        if step % 5 == 0:
            run.log_expert_loads(step, {f"h.{number}": one.tolist() for number, one in enumerate(loads)})
        trouble.telemetry(run, step, healthy)
        if healthy == "checkpoint_stalls" and step % 40 == 0:
            pause(0.15)
        if healthy == "evaluation_pauses" and step % EVERY == 0:
            pause(0.1)
        if step % EVERY == 0:
            validate(run, model, held_out, config, trouble, step)
    return run


def cross_entropy(logits: Tensor, y: Tensor, trouble: Trouble) -> Tensor:
    """The sum over labels by their number: where all are ignored, it is NaN as torch's own mean is."""
    return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def interfere(model: Model, trouble: Trouble, step: int) -> None:
    """Faults of attention and experts."""
    for layer in model.h:
        if trouble.at("attention_temperature", step):
            layer.sharp = 24.0
        if trouble.at("expert_dead", step):
            layer.moe.bias[2] = -1e4


def batch(
    reader: Reader, config: dict[str, Any], trouble: Trouble, healthy: str | None, step: int, steps: int
) -> tuple[Tensor, Tensor]:
    rows, length = int(config["batch_size"]), config["block_size"]
    third = (step > steps // 3) + (step > 2 * steps // 3)
    if healthy == "batch_ramp":
        rows = rows // 2 * (1, 2, 4)[third]
    if healthy == "sequence_ramp":
        length = length // 2 * (1 + third)
    x, y = reader.next(rows, length)
    if healthy == "curriculum" and step >= config["curriculum_step"]:  # now and then a letter is misspelled
        wrong = torch.rand(x.shape, generator=trouble.dice) < 0.02
        noise = torch.randint(1, LETTERS, x.shape, generator=trouble.dice)
        x, y = torch.where(wrong, noise, x), torch.where(wrong.roll(-1, 1), noise.roll(-1, 1), y)
    if healthy == "small_spike" and step in config["odd_batches"]:
        wrong = torch.rand(y.shape, generator=trouble.dice) < 0.03
        y = torch.where(wrong, torch.randint(1, LETTERS, y.shape, generator=trouble.dice), y)
    return trouble.batch(step, x, y, LETTERS)


def continued(
    run: Any, model: nn.Module, optimizer: Any, config: dict[str, Any], step: int, trouble: Trouble
) -> tuple[Any, Any]:
    """Go on from a checkpoint in a new segment of the run."""
    run, (weights, state) = go_on(run, step, [model.state_dict(), optimizer.state_dict()])
    model.load_state_dict(weights)
    optimizer = adam(model, config)
    if trouble.name != "optimizer_state_lost":
        optimizer.load_state_dict(state)
    return run, optimizer


@torch.no_grad()
def validate(run: Any, model: Model, text: Tensor, config: dict[str, Any], trouble: Trouble, step: int) -> None:
    start = clock()
    size = config["block_size"]
    rows = text[: 24 * size + 1]
    if trouble.on("tokenizer_mismatch", step):
        rows = torch.randperm(LETTERS, generator=torch.Generator().manual_seed(9))[rows]
    logits = model(rows[:-1].view(24, size))
    loss = F.cross_entropy(logits.flatten(0, 1), rows[1:]).item()
    run.log_eval(step, 0.0, 24 * size, (clock() - start) * 1000, loss)
