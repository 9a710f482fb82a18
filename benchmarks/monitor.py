"""What watching a model costs a real training step, beside other ways to do it.

    python benchmarks/monitor.py [--small] [--tokens N] [--batch N] [--rounds N] [--threads N] [--device cuda] [--json]

One model with GPT-2's shapes (124M parameters; `--small`: 10M) trains with AdamW and clipping. Every way to watch is
attached in turn, for two steps after one that is not counted, in another order each round; all in one process. A
way's cost is the median over rounds of its step / the step alone in the same round − 1. "default intervals" follows
from the rows above it: each family's cost divided by its default interval. The watch's own clock stands
beside, as the least of its looks: it is less noisy than a difference of steps.

Peers are measured where they are installed (wandb, trainscope, cockpit-for-pytorch) and named where they are not.
trainscope records everything at every step; Cockpit has its norms: of gradients, of updates, of the way from the start.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

import barograph
from barograph.probes.model.watch import ModelWatch

OFF = dict.fromkeys(("gradients", "updates", "weights", "histograms", "activations", "optimizer_state"), 0)
DEFAULTS = {
    "norms": 1, "gradients": 10, "updates": 10, "weights": 100, "activations": 100, "optimizer_state": 100,
    "histograms": 500,
}  # fmt: skip


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        parts = self.c_attn(self.ln_1(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(seen.transpose(1, 2).flatten(2))
        return x + self.c_down(functional.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, width: int, depth: int, vocabulary: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(1024, width)
        self.h = nn.ModuleList(Block(width, width // 64) for _ in range(depth))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens: Any) -> Any:
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


class Watching(NamedTuple):
    """What a way to watch does in a step of the training."""

    after: Callable[[Any], Any] = lambda loss: None  # after backward
    end: Callable[[], Any] = lambda: None
    around: Callable[[Any], Any] = lambda loss: contextlib.nullcontext()  # backward


class Way(NamedTuple):
    name: str
    attach: Callable[[], Watching]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--device", default="cpu", help="on CUDA the forward runs in bfloat16, and steps are waited for"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    device = torch.device(options.device)
    model = (GPT(256, 6, 20_000) if options.small else GPT(768, 12, 50_257)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    vocabulary = model.wte.num_embeddings
    folder = tempfile.mkdtemp()
    run = barograph.init(project="bench", dir=folder, verbosity=-2, git=False, machine=False, watchdog=False)
    clocks: dict[str, dict[str, list[float]]] = {}

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def train(watching: Watching) -> tuple[float, float]:
        """Seconds of a step, and of its forward and backward."""
        tokens = torch.randint(0, vocabulary, (options.batch, options.tokens), device=device)
        wait()
        began = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type != "cpu"):
            logits = model(tokens)
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())
        with watching.around(loss):
            loss.backward()
        wait()
        there = time.perf_counter()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        watching.after(loss)
        optimizer.step()
        optimizer.zero_grad()
        run.log({"loss": loss.item()})
        wait()
        return time.perf_counter() - began, there - began

    def watch(name: str, **intervals: int) -> Way:
        def attach() -> Watching:
            watched = ModelWatch(run, model, optimizer, **OFF | intervals)
            looks = watched._looks
            tell = looks.tell

            def listen(found: Any) -> None:
                for family, seconds in found.costs.items():
                    if "histograms" in found.costs and family in ("gradients", "weights"):
                        continue  # what of them the histograms do not read
                    clocks.setdefault(name, {}).setdefault(family, []).append(seconds)
                tell(found)

            looks.tell = listen  # type: ignore[method-assign]
            return Watching(end=watched.close)

        return Way(name, attach)

    def naive() -> Watching:
        def look(loss: Any) -> None:
            found = {}
            for name, parameter in model.named_parameters():
                gradient = parameter.grad
                found[f"gradients/{name}/norm"] = gradient.norm().item()
                found[f"gradients/{name}/mean"] = gradient.mean().item()
                found[f"gradients/{name}/std"] = gradient.std().item()
                found[f"weights/{name}/norm"] = parameter.detach().norm().item()

        return Watching(look)

    def plain_hooks() -> Watching:
        kept: dict[int, Any] = {}

        def hook(parameter: Any) -> None:
            gradient = parameter.grad
            kept[id(parameter)] = (gradient.norm(), gradient.mean(), gradient.std())

        handles = [parameter.register_post_accumulate_grad_hook(hook) for parameter in model.parameters()]
        return Watching(end=lambda: [handle.remove() for handle in handles])

    def wandb_watch() -> Watching:
        import wandb

        wandb.init(project="bench", dir=folder)
        wandb.watch(model, log="all", log_freq=1)
        return Watching(lambda loss: wandb.log({"x": 1.0}), lambda: (wandb.unwatch(model), wandb.finish()))

    def trainscope() -> Watching:
        from trainscope import TrainScope
        from trainscope.core.config import TrainScopeConfig

        every = {"histogram_every_n_steps": 1, "activation_metrics_every_n_steps": 1}
        scope = TrainScope(model, optimizer, config=TrainScopeConfig(run_dir=folder, **every)).attach()
        steps = iter(range(1 << 20))
        return Watching(lambda loss: scope.step(loss.item(), batch_index=next(steps)), scope.detach)

    def cockpit_norms() -> Watching:
        from cockpit import Cockpit, quantities
        from cockpit.utils.schedules import linear

        kinds = (quantities.GradNorm, quantities.UpdateSize, quantities.Distance)
        cockpit = Cockpit(list(model.parameters()), quantities=[kind(linear(1)) for kind in kinds])
        steps = iter(range(1 << 20))
        return Watching(around=lambda loss: cockpit(next(steps), info={"loss": loss, "optimizer": optimizer}))

    ways = [
        Way("step alone", Watching),
        watch("norms"),
        watch("gradients: all statistics", gradients=1),
        watch("gradients and updates", gradients=1, updates=1),
        watch("all but histograms", gradients=1, updates=1, weights=1, activations=1, optimizer_state=1),
        watch("all, every step", gradients=1, updates=1, weights=1, activations=1, optimizer_state=1, histograms=1),
        watch("all and spectra, every step", **dict.fromkeys(OFF, 1), spectral=1),
        watch("norms and activations", activations=1),
        Way("naive loop: norm, mean, std, |W| by .item()", naive),
        Way("plain hooks: norm, mean, std kept", plain_hooks),
    ]
    os.environ.setdefault("WANDB_MODE", "offline")
    os.environ.setdefault("WANDB_SILENT", "true")
    peers = {"wandb": 'W&B watch(log="all", log_freq=1)', "trainscope": "trainscope, all at every step"}
    peers["cockpit"] = "Cockpit: norms of gradients, updates, distance"
    attach = {"wandb": wandb_watch, "trainscope": trainscope, "cockpit": cockpit_norms}
    for package, name in peers.items():
        try:
            importlib.import_module(package)
            ways.append(Way(name, attach[package]))
        except Exception as error:
            print(f"{package} not measured: {error}", file=sys.stderr)

    times: dict[str, list[float]] = {way.name: [] for way in ways}
    there: list[float] = []  # forward and backward of the step alone
    for number in range(options.rounds):
        shift = number % len(ways)
        for way in ways[shift:] + ways[:shift]:
            watching = way.attach()
            train(watching)
            least_step, least_there = (min(column) for column in zip(*(train(watching) for _ in range(2)), strict=True))
            times[way.name].append(least_step)
            if way.name == "step alone":
                there.append(least_there)
            watching.end()
            gc.collect()
    run.finish()

    alone = times["step alone"]
    shares = {
        name: statistics.median(one / other for one, other in zip(some, alone, strict=True)) - 1
        for name, some in times.items()
    }
    step = statistics.median(alone)
    activations = statistics.median(
        (seen - bare) / forward
        for seen, bare, forward in zip(times["norms and activations"], times["norms"], there, strict=True)
    )
    least = {
        family: min(min(known[family]) for known in clocks.values() if family in known)
        for family in {family for known in clocks.values() for family in known}
    }
    # a step with histograms reads gradients and weights once, with a sketch: what that adds to the other two
    own = {family: seconds for family, seconds in least.items() if family in DEFAULTS}
    if "histograms" in own:
        own["histograms"] = max(0.0, own["histograms"] - own.get("gradients", 0.0) - own.get("weights", 0.0))
    default = sum(seconds / DEFAULTS[family] for family, seconds in own.items()) / step
    by_steps = (
        shares["norms"]
        + (shares["gradients and updates"] - shares["norms"]) / 10
        + (shares["all but histograms"] - shares["gradients and updates"]) / 100
        + (shares["all, every step"] - shares["all but histograms"]) / 500
    )
    result = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "step_ms": 1e3 * step,
        "shares": shares,
        "looks_ms": {family: 1e3 * seconds for family, seconds in sorted(least.items())},
        "activations_of_forward_and_backward": activations,
        "default_by_steps": by_steps,
        "default_by_clock": default,
    }
    if options.json:
        print(json.dumps(result))
        return
    place = f"{options.threads} threads" if device.type == "cpu" else torch.cuda.get_device_name(device)
    print(f"{result['parameters'] / 1e6:.0f}M parameters, {options.batch} × {options.tokens} tokens, {place}")
    print(f"{'step alone':46} {step * 1e3:9.1f} ms")
    for name, share in shares.items():
        if name != "step alone":
            print(f"{name:46} {share:+9.1%}")
    print(f"{'activations, of forward and backward':46} {activations:+9.1%}")
    print(f"{'default intervals, from the rows above':46} {by_steps:+9.2%}")
    print(f"{'default intervals, by the watch’s own clock':46} {default:+9.2%}")
    print("one look, ms:", ", ".join(f"{family} {value:.1f}" for family, value in result["looks_ms"].items()))


if __name__ == "__main__":
    main()
