"""Gradients that nobody cleared: seen at the first step that used them, and only then."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forked_python
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from watched_models import TOKENS, Model, Notes, hooks_left, loss_of  # noqa: E402

from barograph.probes.model.watch import ModelWatch  # noqa: E402

OFF = {"gradients": 0, "updates": 0, "weights": 0, "histograms": 0, "activations": 0, "optimizer_state": 0}
QUIET: dict[str, Any] = OFF | {"budget": None}


@pytest.fixture
def run() -> Iterator[Notes]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    notes = Notes()
    yield notes
    for last_word in notes.at_finish:
        last_word()


def told(run: Notes, name: str) -> dict[int, float]:
    """What was recorded under a name, by step."""
    return {step: fields[name] for kind, step, fields in run.records if kind == "model" and name in fields}


def train(
    run: Notes,
    clear: Callable[[Any, int], Any],
    *,
    steps: int = 6,
    micro: int = 1,
    clip: bool = False,
    make: Any = lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
    wrap: Callable[[Any], Any] = lambda model: model,
    **options: Any,
) -> dict[int, float]:
    """What the watch says of a loop in which `clear(optimizer, step)` stands before the backward pass."""
    model = wrap(Model())
    optimizer = make(model.parameters())
    watch = ModelWatch(run, model, optimizer, **QUIET | options)
    for step in range(steps):
        loss = loss_of(model)
        clear(optimizer, step)
        for _ in range(micro - 1):
            (loss / micro).backward()
            loss = loss_of(model, TOKENS.flip(0, 1))
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        run.log(step)
    watch.close()
    assert not hooks_left(model, optimizer)
    return told(run, "stale_gradients")


MAKES = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, weight_decay=0.1),
    "Adafactor": lambda p: torch.optim.Adafactor(p),
}


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
@pytest.mark.parametrize("micro, clip", [(1, False), (1, True), (3, False), (3, True)])
def test_a_gradient_that_is_never_cleared_is_seen_at_the_second_step(
    run: Notes, make: Any, micro: int, clip: bool
) -> None:
    assert train(run, lambda optimizer, step: None, micro=micro, clip=clip, make=make) == dict.fromkeys(range(1, 6), 1)


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("micro, clip", [(1, False), (1, True), (3, False), (3, True)])
def test_gradients_that_are_cleared_are_not_stale(run: Notes, make: Any, to_none: bool, micro: int, clip: bool) -> None:
    found = train(run, lambda optimizer, step: optimizer.zero_grad(to_none), micro=micro, clip=clip, make=make)
    assert found == {1: 0}, "said once, while it does not change"


@pytest.mark.parametrize("to_none", [True, False])
def test_the_first_step_that_was_not_cleared_is_the_one_that_is_named(run: Notes, to_none: bool) -> None:
    found = train(run, lambda optimizer, step: step in (4, 5) or optimizer.zero_grad(to_none), steps=9)
    assert found == {1: 0, 4: 1, 5: 1, 6: 0}


@settings(deadline=None, max_examples=25)
@given(
    cleared=st.lists(st.sampled_from(["none", "zero", "not", "scaled", "copied"]), min_size=2, max_size=8),
    micro=st.integers(1, 3),
    clip=st.booleans(),
)
def test_each_step_is_judged_by_what_happened_before_it(cleared: list[str], micro: int, clip: bool) -> None:
    notes = Notes()

    def clear(optimizer: Any, step: int) -> None:
        for parameter in optimizer.param_groups[0]["params"]:
            if parameter.grad is None or cleared[step] == "not":
                continue
            if cleared[step] == "none":
                parameter.grad = None
            elif cleared[step] == "zero":
                parameter.grad.zero_()
            elif cleared[step] == "scaled":  # meant: a loop that lets gradients fade
                parameter.grad.mul_(0.5)
            else:
                parameter.grad = torch.zeros_like(parameter)

    found = train(notes, clear, steps=len(cleared), micro=micro, clip=clip)
    now: dict[int, float] = {}
    state = -1.0
    for step in range(1, len(cleared)):
        state = found.get(step, state)
        now[step] = state
    assert now == {step: float(cleared[step] == "not") for step in range(1, len(cleared))}


def test_a_gradient_that_the_loop_writes_itself_is_not_stale(run: Notes) -> None:
    model = Model()
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    watch = ModelWatch(run, model, optimizer, **QUIET)
    for step in range(6):
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss_of(model), parameters), strict=True):
            if parameter.grad is None or step % 2:
                parameter.grad = gradient
            else:
                parameter.grad.copy_(gradient)
        optimizer.step()
        run.log(step)
    watch.flush()
    assert not any(told(run, "stale_gradients").values())


def test_a_step_with_a_closure_is_judged_by_the_closure(run: Notes) -> None:
    for clears in (True, False):
        notes = Notes()
        model = Model()
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
        watch = ModelWatch(notes, model, optimizer, **QUIET)

        def closure(model: Any = model, optimizer: Any = optimizer, clears: bool = clears) -> Any:
            if clears:
                optimizer.zero_grad()
            loss = loss_of(model)
            loss.backward()
            return loss

        for step in range(4):
            optimizer.step(closure)
            notes.log(step)
        watch.close()
        assert set(told(notes, "stale_gradients").values()) == ({0.0} if clears else {1.0})


def test_another_models_pass_through_this_one_is_not_this_ones_fault(run: Notes) -> None:
    """A GAN: the discriminator's pass adds to the generator's gradients, which are cleared before its own."""
    generator, judge = nn.Linear(4, 4), nn.Linear(4, 1)
    mine, other = torch.optim.Adam(generator.parameters()), torch.optim.Adam(judge.parameters())
    watch = ModelWatch(run, generator, mine, **QUIET)
    for step in range(6):
        other.zero_grad()
        judge(generator(torch.randn(3, 4))).mean().backward()
        other.step()
        mine.zero_grad(set_to_none=step % 2 == 0)
        (-judge(generator(torch.randn(3, 4))).mean()).backward()
        mine.step()
        run.log(step)
    watch.flush()
    assert told(run, "stale_gradients") == {1: 0}
    assert told(run, "unchanged") == {1: 0}


def test_parameters_outside_of_the_optimizer_may_keep_their_gradients(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.AdamW(model.head.parameters())
    watch = ModelWatch(run, model, optimizer, **QUIET)
    for step in range(5):
        optimizer.zero_grad()  # the other parameters' gradients add up, and nothing uses them
        loss_of(model).backward()
        optimizer.step()
        run.log(step)
    watch.flush()
    assert told(run, "stale_gradients") == {1: 0}
    inside = len(list(model.head.parameters()))
    outside = len(list(model.parameters())) - inside
    assert told(run, "unchanged") == dict.fromkeys(range(1, 5), outside)


def test_views_into_a_common_buffer_are_judged_when_backward_begins(run: Notes) -> None:
    """As DDP's bucket views: all gradients share one counter."""

    def lay_out(model: Any) -> Any:
        parameters = list(model.parameters())
        buffer = torch.zeros(sum(parameter.numel() for parameter in parameters))
        at = 0
        for parameter in parameters:
            parameter.grad = buffer[at : at + parameter.numel()].view_as(parameter)
            at += parameter.numel()
        return model

    found = train(run, lambda optimizer, step: step >= 3 or optimizer.zero_grad(False), wrap=lay_out)
    assert found == {1: 0, 3: 1, 4: 1, 5: 1}


def test_gradients_are_not_kept_alive(run: Notes) -> None:
    import gc
    import weakref

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = ModelWatch(run, model, optimizer, **QUIET)
    loss_of(model).backward()
    optimizer.step()
    marks = [weakref.ref(parameter.grad) for parameter in model.parameters()]
    optimizer.zero_grad()
    gc.collect()
    assert not any(mark() is not None for mark in marks)
    watch.close()


@pytest.mark.parametrize("compiled", [False, True])
def test_a_compiled_model_is_judged_like_any_other(run: Notes, compiled: bool) -> None:
    if compiled:
        pytest.importorskip("torch._dynamo")
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    trained = torch.compile(model, backend="aot_eager") if compiled else model
    optimizer = torch.optim.AdamW(model.parameters())
    watch = ModelWatch(run, model, optimizer, **QUIET)
    for step in range(6):
        if step < 3:
            optimizer.zero_grad()
        trained(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        run.log(step)
    watch.flush()
    assert told(run, "stale_gradients") == {1: 0, 3: 1, 4: 1, 5: 1}


PROGRAM = """
import sys, json, torch, torch.distributed as distributed
sys.path.insert(0, sys.argv[1])
torch.set_num_threads(1)
from torch.distributed.fsdp import fully_shard
from watched_models import Model, Notes, loss_of
from barograph.probes.model.watch import ModelWatch

distributed.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=0, world_size=1)
found = {}
for kind in ("ddp", "view", "fsdp"):
    for to_none in (True, False):
        for micro in (1, 2):
            model, run = Model(), Notes()
            if kind == "fsdp":
                for part in [*model.blocks, model]:
                    fully_shard(part)
            else:
                model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=kind == "view")
            optimizer = torch.optim.AdamW(model.parameters())
            watch = ModelWatch(run, model, optimizer, gradients=0, updates=0, weights=0, histograms=0, activations=0)
            for step in range(7):
                if step not in (4, 5):
                    optimizer.zero_grad(to_none)
                for _ in range(micro):
                    loss_of(model).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                run.log(step)
            watch.close()
            found[f"{kind} {to_none} {micro}"] = {
                step: fields["stale_gradients"] for name, step, fields in run.records if "stale_gradients" in fields
            }
model, run = Model(), Notes()
for part in [*model.blocks, model]:
    fully_shard(part)
optimizer = torch.optim.AdamW(model.blocks.parameters())
watch = ModelWatch(run, model, optimizer, gradients=0, updates=0, weights=0, histograms=0, activations=0)
for step in range(22):
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()
    run.log(step)
watch.close()
loose = {step: fields["unheld"] for name, step, fields in run.records if "unheld" in fields}
others = sum(1 for name, _ in model.named_parameters() if not name.startswith("blocks."))
cleared = {}
for clears in (True, False):
    model, notes = Model(), Notes()
    for part in [*model.blocks, model]:
        fully_shard(part)
    optimizer = torch.optim.AdamW(model.parameters())
    watch = ModelWatch(notes, model, optimizer, gradients=0, updates=0, weights=0, histograms=0, activations=0)
    for step in range(4):
        optimizer.zero_grad()
        for _ in range(3):
            if clears:
                optimizer.zero_grad()
            loss_of(model).backward()
        optimizer.step()
        notes.log(step)
    watch.close()
    cleared[str(clears)] = [fields["cleared_passes"] for _, _, fields in notes.records if "cleared_passes" in fields]
distributed.destroy_process_group()
print(json.dumps([found, loose, others, run.warnings, cleared]))
"""


@pytest.mark.slow
def test_ddp_with_and_without_bucket_views_and_fsdp2_are_judged_alike(tmp_path: Path) -> None:
    tests = Path(__file__).parent
    said = forked_python.run(
        sys.executable, "-W", "ignore", "-c", PROGRAM, tests, tmp_path / "meeting",
        env=os.environ | {"PYTHONPATH": str(tests.parent / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr[-2000:]
    found, loose, others, warned, cleared = json.loads(said.stdout.splitlines()[-1])
    assert len(found) == 12
    assert all(told == {"1": 0, "4": 1, "5": 1, "6": 0} for told in found.values()), found
    assert others > 0 and set(loose.values()) == {others}, "gradients that FSDP2 adds to are those of each step"
    assert any("in no optimizer that steps" in sentence for sentence in warned)
    assert cleared == {"True": [2.0] * 4, "False": []}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("clears", "uses", "says"),
    [("copies", True, 1.0), ("model", True, 0.0), ("both", True, 0.0), ("copies", False, 0.0), ("late", True, 0.0)],
)
def test_gradients_of_a_model_whose_copies_are_stepped_have_to_be_cleared_as_well(
    run: Notes, clears: str, uses: bool, says: float, dtype: Any
) -> None:
    """Weights that are kept in full by hand: `zero_grad` of their optimizer clears the copies' gradients alone. uses:
    whether their gradients are those of the model, or what a hook has added up."""
    model = Model().to(dtype)
    ours = list(model.parameters())
    copies = [nn.Parameter(one.detach().float().clone()) for one in ours]
    optimizer = torch.optim.AdamW(copies, lr=1e-3)
    if not uses:
        for one, copy in zip(ours, copies, strict=True):
            one.register_hook(lambda gradient, copy=copy: setattr(copy, "grad", gradient.float()))
    watch = ModelWatch(run, model, optimizer, **QUIET)
    for step in range(7):
        if clears == "late":
            model.zero_grad()
        loss_of(model, torch.randint_like(TOKENS, int(TOKENS.max()) + 1)).backward()
        for one, copy in zip(ours, copies, strict=True):
            if uses:
                copy.grad = 0.5 * one.grad.float()
        optimizer.step()
        with torch.no_grad():
            for one, copy in zip(ours, copies, strict=True):
                one.copy_(copy)
        optimizer.zero_grad()
        if clears in ("model", "both"):
            model.zero_grad()
        run.log(step)
    watch.close()
    found = told(run, "stale_gradients")
    assert max(found.values(), default=0.0) == says and (not says or len(found) >= 5)
    assert hooks_left(model, optimizer) == (0 if uses else len(ours))
