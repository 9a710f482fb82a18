"""Router figures are those of their formulas, over micro-batches and ranks, whatever runs the passes."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked_python
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import barograph  # noqa: E402
from barograph.demo import model as gpt  # noqa: E402
from barograph.probes.model.moe import SUMS, RouterWatch, accumulate, route_statistics, summarize  # noqa: E402

SHAPE = gpt.ModelShape(context=16, width=24, layers=2, heads=2, hidden=32, experts=4, top_k=2)


def reference(logits: list[list[float]], top_k: int, capacity: int | None = None, score: str = "softmax") -> dict:
    """The definitions, token by token, in plain Python."""
    experts = len(logits[0])
    loads, masses = [0] * experts, [0.0] * experts
    z = entropy = confidence = 0.0
    for row in logits:
        top = max(row)
        log_z = top + math.log(sum(math.exp(x - top) for x in row))
        z += log_z**2
        if score == "sigmoid":
            scores = [1 / (1 + math.exp(-x)) for x in row]
            chances = [x / sum(scores) for x in scores]
        else:
            chances = [math.exp(x - log_z) for x in row]
        entropy -= sum(p * math.log(p) for p in chances if p > 0)
        confidence += max(chances)
        for expert in sorted(range(experts), key=lambda i: -row[i])[:top_k]:
            loads[expert] += 1
        masses = [mass + p for mass, p in zip(masses, chances, strict=True)]
    tokens, sent = len(logits), len(logits) * top_k
    mean = sent / experts
    return {
        "tokens": tokens,
        "loads": loads,
        "aux_loss_raw": experts * sum(a / sent * b / tokens for a, b in zip(loads, masses, strict=True)),
        "z_loss_raw": z / tokens,
        "expert_utilization": sum(load > 0 for load in loads) / experts,
        "load_imbalance": max(loads) / mean,
        "max_violation": (max(loads) - mean) / mean,
        "load_cv": math.sqrt(sum((load - mean) ** 2 for load in loads) / experts) / mean,
        "active_experts": sum(load > 0 for load in loads),
        "max_expert_fraction": max(loads) / sent,
        "min_expert_fraction": min(loads) / sent,
        "min_active_expert_fraction": min(load for load in loads if load) / sent,
        "router_entropy": entropy / tokens / math.log(experts) if experts > 1 else 1.0,
        "router_confidence": confidence / tokens,
        "dropped_tokens": sum(max(load - capacity, 0) for load in loads) if capacity is not None else 0,
    }


@given(
    tokens=st.integers(1, 12),
    experts=st.integers(1, 6),
    choice=st.integers(1, 6),
    scale=st.sampled_from([0.01, 1.0, 8.0]),
    capacity=st.sampled_from([None, 0, 2, 100]),
    score=st.sampled_from(["softmax", "sigmoid"]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=150, deadline=None)
def test_figures_are_those_of_a_slow_reference(
    tokens: int, experts: int, choice: int, scale: float, capacity: int | None, score: str, seed: int
) -> None:
    top_k = min(choice, experts)
    logits = scale * torch.randn(tokens, experts, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    expected = reference(logits.tolist(), top_k, capacity, score)
    found = route_statistics(logits, top_k, capacity=capacity, score=score)
    assert accumulate(logits, top_k)[:experts].tolist() == expected.pop("loads")
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-9), name


def test_a_balanced_router_has_the_losses_and_bounds_of_the_papers() -> None:
    uniform = route_statistics(torch.zeros(64, 8), 2, chosen=torch.arange(128).view(64, 2) % 8)
    assert uniform["aux_loss_raw"] == pytest.approx(1.0)
    assert uniform["aux_loss"] == pytest.approx(0.01) and uniform["z_loss"] == pytest.approx(0.001 * math.log(8) ** 2)
    assert uniform["router_entropy"] == pytest.approx(1.0) and uniform["router_confidence"] == pytest.approx(1 / 8)
    assert uniform["load_imbalance"] == 1.0 and uniform["max_violation"] == 0.0 and uniform["load_cv"] == 0.0


def test_a_collapsed_router_reaches_the_other_end() -> None:
    logits = torch.full((64, 8), -40.0)
    logits[:, 3] = 40.0
    found = route_statistics(logits, 1)
    assert found["aux_loss_raw"] == pytest.approx(8.0) and found["max_violation"] == 7.0
    assert found["expert_utilization"] == 1 / 8 and found["active_experts"] == 1
    assert found["router_entropy"] == pytest.approx(0.0, abs=1e-6) and found["router_confidence"] == pytest.approx(1.0)


def test_a_masked_expert_is_dead_and_breaks_nothing() -> None:
    logits = torch.randn(32, 4)
    logits[:, 2] = -math.inf
    found = route_statistics(logits, 2)
    assert found["expert_utilization"] == 0.75 and found["min_expert_fraction"] == 0.0
    assert found["min_active_expert_fraction"] > 0 and found["non_finite_tokens"] == 0
    assert all(math.isfinite(value) for value in found.values())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
def test_tokens_that_are_not_finite_are_counted_and_left_out(bad: float, score: str) -> None:
    logits = torch.randn(10, 4)
    spoilt = torch.cat((logits, logits))
    spoilt[10:, 1] = bad
    found, clean = route_statistics(spoilt, 2, score=score), route_statistics(logits, 2, score=score)
    assert found.pop("non_finite_tokens") == 10 and clean.pop("non_finite_tokens") == 0
    assert found == pytest.approx(clean)


def test_all_tokens_non_finite_and_no_tokens_give_nan_and_no_error() -> None:
    for logits, bad in ((torch.full((3, 4), math.nan), 3), (torch.zeros(0, 4), 0)):
        found = route_statistics(logits, 2, capacity_factor=1.0)
        assert found["tokens"] == 0 and found["non_finite_tokens"] == bad
        assert math.isnan(found["aux_loss"]) and math.isnan(found["load_imbalance"])


def test_one_expert_and_all_experts_are_balanced_by_nature() -> None:
    one = route_statistics(torch.randn(5, 1), 1)
    assert one["aux_loss_raw"] == pytest.approx(1.0) and one["router_entropy"] == 1.0 and one["load_imbalance"] == 1.0
    every = route_statistics(torch.randn(5, 3), 3)
    assert every["aux_loss_raw"] == pytest.approx(1.0) and every["max_violation"] == 0.0


def test_capacity_and_choices_that_go_nowhere_are_dropped() -> None:
    chosen = torch.tensor([[0], [0], [0], [1], [-1], [4]])
    found = route_statistics(torch.zeros(6, 4), 1, chosen=chosen, capacity_factor=1.0)  # ceil(6 / 4) = 2 an expert
    assert found["dropped_tokens"] == 1 + 2 and found["dropped_fraction"] == 0.5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_summed_in_full(dtype: torch.dtype) -> None:
    logits = torch.randn(4096, 8).to(dtype)
    found, full = route_statistics(logits, 2), route_statistics(logits.double(), 2)
    assert found == pytest.approx(full, rel=1e-5)


# -- the watch --------------------------------------------------------------------------------------


def made(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    model = gpt.ByteGPT(SHAPE)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.3)
    return model


def some_bytes(count: int = 3, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (count, 16), generator=torch.Generator().manual_seed(seed))


def test_the_demos_own_routing_is_what_the_watch_sees() -> None:
    model = made()
    watch = RouterWatch(model)
    _, routings = model(some_bytes())
    stats, own = watch.get_moe_stats(), gpt.moe_stats(routings)
    assert stats == pytest.approx(own)
    assert list(stats) == ["aux_loss", "z_loss", "expert_utilization", "load_imbalance", "valid"]
    assert list(watch.layers()) == ["blocks.0.feed", "blocks.1.feed"]
    for load, routing in zip(watch.loads().values(), routings, strict=True):
        assert load.tolist() == routing.loads.tolist()
    assert sum(layer["aux_loss"] for layer in watch.layers().values()) == pytest.approx(stats["aux_loss"])


def test_micro_batches_add_up_and_a_reading_starts_anew() -> None:
    model = made()
    watch = RouterWatch(model)
    model(some_bytes(4))
    whole = watch.get_moe_stats()
    for part in some_bytes(4).split(1):
        model(part)
    assert watch.get_moe_stats() == pytest.approx(whole)
    assert watch.get_moe_stats() == pytest.approx(whole), "reading twice gives the same"
    assert all(layer["tokens"] == 64 for layer in watch.layers().values())


def test_evaluation_is_not_counted_unless_asked_for() -> None:
    model = made()
    watch, every = RouterWatch(model), RouterWatch(model, every_pass=True)
    with torch.inference_mode():
        model(some_bytes())
    with torch.no_grad():
        model(some_bytes())
    model.eval()(some_bytes())
    assert watch.get_moe_stats()["valid"] is False and watch.layers()["blocks.0.feed"]["tokens"] == 0
    every.get_moe_stats()
    assert every.layers()["blocks.0.feed"]["tokens"] == 3 * 48


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_counts_each_pass_once(reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    feed = made().blocks[0].feed
    watch = RouterWatch(torch.nn.ModuleDict({"feed": feed}))
    x = torch.randn(2, 5, 24, requires_grad=True)
    with torch.no_grad():
        feed(x)  # a look at it in between
    for _ in range(3):
        checkpoint(lambda x: feed(x)[0], x, use_reentrant=reentrant).sum().backward()
    watch.get_moe_stats()
    assert watch.layers()["feed"]["tokens"] == 30


def test_a_closed_watch_leaves_no_hook_and_keeps_no_activation() -> None:
    model = made()
    watch = RouterWatch(model)
    model(some_bytes())
    sums = [layer.sums for layer in watch._layers.values()]
    assert all(kept.grad_fn is None and kept.numel() == 2 * 4 + len(SUMS) for kept in sums)
    watch.close()
    assert not any(module._forward_hooks for module in model.modules())
    model(some_bytes())
    watch.get_moe_stats()
    assert watch.layers()["blocks.1.feed"]["tokens"] == 48


def test_the_watch_changes_nothing_in_the_training() -> None:
    plain, watched = made(), made()
    RouterWatch(watched)
    for model in (plain, watched):
        model(some_bytes())[0].logsumexp(-1).sum().backward()
    for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


def test_a_hook_that_cannot_read_warns_once_by_the_layers_name(caplog: pytest.LogCaptureFixture) -> None:
    def broken(*passed: Any) -> Any:
        raise RuntimeError("no such thing")

    model = made()
    said: list[str] = []
    watch = RouterWatch(
        model, modules={"blocks.0.feed.router": broken}, warn=lambda sentence, key: said.append(sentence)
    )
    unread = RouterWatch(model, modules=["embedding"], extract=lambda *passed: None)
    with caplog.at_level(logging.WARNING, "barograph"):
        for _ in range(2):
            model(some_bytes())
    assert len(said) == 1 and "'blocks.0.feed.router'" in said[0] and "no such thing" in said[0]
    assert caplog.text.count("'embedding'") == 1
    assert not watch.get_moe_stats()["valid"] and not unread.get_moe_stats()["valid"]


def test_a_dense_model_has_no_valid_stats() -> None:
    watch = RouterWatch(torch.nn.Sequential(torch.nn.Linear(3, 3)))
    assert watch.routers == [] and watch.get_moe_stats()["valid"] is False and watch.step_fields() == {}


def test_a_switched_off_watch_lets_passes_by() -> None:
    model = made()
    watch = RouterWatch(model)
    watch.enabled = False
    model(some_bytes())
    assert not watch.get_moe_stats()["valid"]


@pytest.mark.filterwarnings("ignore")  # torch's compiler looks at gradients of tensors that have none
def test_a_compiled_model_is_seen_too() -> None:
    model = made()
    watch = RouterWatch(model)
    compiled = torch.compile(model, backend="eager")
    compiled(some_bytes())[0].sum().backward()
    watch.get_moe_stats()
    assert {layer["tokens"] for layer in watch.layers().values()} == {48}


def test_what_is_recorded_is_what_the_run_gives_back(tmp_path: Path) -> None:
    model = made()
    watch = RouterWatch(model)
    with barograph.init(project="moe", dir=str(tmp_path), verbosity=-2, git=False) as run:
        for step in (1, 2):
            model(some_bytes(seed=step))
            stats = watch.record(run, step)
    (stored,) = barograph.runs(dir=str(tmp_path), project="moe")
    for name in ("aux_loss", "z_loss", "expert_utilization", "load_imbalance"):
        assert stored.series(f"moe/{name}").value[-1] == stats[name]
    layer = watch.layers()["blocks.1.feed"]
    assert stored.series("moe/blocks.1.feed/max_violation").value[-1] == layer["max_violation"]
    loads = [stored.series(f"moe/blocks.1.feed/load/{expert}").value[-1] for expert in range(4)]
    assert loads == watch.loads()["blocks.1.feed"].tolist() and sum(loads) == 48 * 2
    assert stored.series("moe/router_entropy").value[-1] == watch.step_fields()["moe_router_entropy"]


RANK = """
import os, sys, json, torch, torch.distributed as distributed
sys.path.insert(0, {tests!r})
from test_moe import made, some_bytes
from barograph.probes.model.moe import RouterWatch
rank = int(sys.argv[1])
distributed.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
model = made()
watch, alone = RouterWatch(model), RouterWatch(model, group=False)
uneven = RouterWatch(model, modules=[f"blocks.{{n}}.feed.router" for n in range(1 + rank)])
if rank == 0 or sys.argv[3] == "both":
    model(some_bytes(4).split(3)[rank])
stats, own = watch.get_moe_stats(), alone.get_moe_stats()["valid"]
found = stats, watch.layers(), [x.tolist() for x in watch.loads().values()], own
uneven.get_moe_stats(); uneven.get_moe_stats()
tokens = [layer["tokens"] for layer in uneven.layers().values()]
print(json.dumps([*found, tokens]), flush=True)
distributed.barrier()
distributed.destroy_process_group()
os._exit(0)  # gloo's threads sometimes end a process on its way out by a signal
"""


@pytest.mark.parametrize("who", ["both", "first"])
def test_two_ranks_give_what_one_process_gives_on_the_union(tmp_path: Path, who: str) -> None:
    import json

    script = RANK.format(tests=str(Path(__file__).parent))
    words = (sys.executable, "-W", "ignore", "-c", script)
    piped: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [forked_python.start(*words, str(rank), tmp_path / "store", who, **piped) for rank in range(2)]
    answers = [process.communicate(timeout=120) for process in processes]
    assert all(process.returncode == 0 for process in processes), answers
    first, second = (json.loads(out) for out, _ in answers)
    assert first[:3] == second[:3], "every rank knows the same"
    assert [first[3], second[3]] == [True, who == "both"]
    assert first[4] == [48] and second[4] == ([16, 16] if who == "both" else [0, 0]), "unlike ranks keep their own"
    model = made()
    watch = RouterWatch(model)
    model(some_bytes(4) if who == "both" else some_bytes(4)[:3])
    assert watch.get_moe_stats() == pytest.approx(first[0])
    assert {name: pytest.approx(layer) for name, layer in watch.layers().items()} == first[1]
    assert [load.tolist() for load in watch.loads().values()] == first[2]


def test_sums_of_parts_are_the_sums_of_the_whole() -> None:
    logits = torch.randn(100, 6)
    parts = sum(accumulate(part, 2) for part in logits.split(7))
    assert summarize(parts, 6) == pytest.approx(route_statistics(logits, 2), rel=1e-6)
