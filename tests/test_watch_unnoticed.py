"""A watched training ends in the same weights, with the same random numbers drawn, as one that nobody watches."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import barograph

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts  # noqa: E402

from barograph.probes.model.parameters import Known  # noqa: E402

STEPS = 8  # a look takes a backward pass of its own at the seventh


class Block(nn.Module):
    def __init__(self, drops: float) -> None:
        super().__init__()
        self.inner, self.norm, self.drop = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(drops)

    def forward(self, x: Any) -> Any:
        scores = ((x @ x.transpose(1, 2))[:, None] / 8).softmax(-1)[:, 0]
        return x + self.drop(self.norm((scores @ self.inner(x)).transpose(1, 2)).transpose(1, 2).relu())


class Model(nn.Module):
    def __init__(self, call: Callable[..., Any] = lambda block, x: block(x), drops: float = 0.1) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)
        self.blocks = nn.ModuleList([Block(drops), Block(drops)])
        self.calls = [call]

    def forward(self, ids: Any) -> Any:
        x = self.embedding(ids)
        for block in self.blocks:
            x = self.calls[0](block, x)
        return self.head(x)


def loss_of(model: Any, ids: Any) -> Any:
    return functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def train(folder: Path, watched: bool, model: Any, step: Callable[[Any, Any, Any, int], Any]) -> list[Any]:
    """Weights, buffers, gradients and the state of the generator at the end, and what the steps gave."""
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)
    run = barograph.init(
        project="p", name="n", dir=str(folder), console="none", machine=False, sidecar=False, git=False
    )
    if watched:
        run.watch(model, optimizer, budget=None)
    given = []
    for number in range(STEPS):
        given.append(step(model, optimizer, torch.randint(20, (4, 10)), number))
        run.log({"train/loss": 1.0}, step=number)
    run.finish()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert torch._C._len_torch_function_stack() == 0
    return [*model.state_dict().values(), torch.get_rng_state(), torch.tensor([float(one or 0) for one in given])]


def plainly(model: Any, optimizer: Any, ids: Any, number: int) -> Any:
    loss_of(model, ids).backward()
    optimizer.step()
    optimizer.zero_grad()


def same(folder: Path, make: Callable[[], Any], step: Callable[[Any, Any, Any, int], Any] = plainly) -> None:
    found = []
    for watched in (False, True):
        torch.manual_seed(3)
        found.append(train(folder / str(watched), watched, make(), step))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def keeping(*names: str) -> Any:
    kept = {getattr(torch.ops.aten, name) for name in names}

    def choose(context: Any, operation: Any, *given: Any, **named: Any) -> Any:
        keeps = operation.overloadpacket in kept
        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE

    return functools.partial(create_selective_checkpoint_contexts, choose)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"preserve_rng_state": False},
        {"context_fn": keeping("bmm", "addmm")},
        {"context_fn": keeping("mul", "add", "div", "sum", "mean", "sqrt", "dot", "amax", "amin", "maximum", "sub")},
    ],
    ids=["plain", "draws anew", "keeps products", "keeps what a look computes"],
)
def test_what_a_checkpoint_computes_anew_is_computed_once(tmp_path: Path, how: dict[str, Any]) -> None:
    same(tmp_path, lambda: Model(lambda block, x: checkpoint(block, x, use_reentrant=False, **how)))


def test_what_can_be_unpacked_once_is_unpacked_by_the_training(tmp_path: Path) -> None:
    def call(block: Any, x: Any) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: [tensor], lambda box: box.pop()):
            return block.inner(x) * block.inner.weight.sum()

    same(tmp_path, lambda: Model(call))


def transformed(model: Any, optimizer: Any, ids: Any, number: int) -> Any:
    def loss(parameters: Any, row: Any) -> Any:
        return loss_of(functools.partial(torch.func.functional_call, model.eval(), parameters), row[None])

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(dict(model.named_parameters()), ids)
    for name, parameter in model.named_parameters():
        parameter.grad = each[name].mean(0).detach()
    optimizer.step()


def counted(model: Any, optimizer: Any, ids: Any, number: int) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    calls = []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
            calls.append(function)
            return function(*arguments, **(named or {}))

    with Counting():
        plainly(model, optimizer, ids, number)
    return len(calls)


def traced(model: Any, optimizer: Any, ids: Any, number: int) -> Any:
    plainly(model, optimizer, ids, number)
    if number not in (0, 1, 6):
        return 0
    made = torch.jit.trace(model, (ids[:, :-1],), check_trace=False)
    return str(made.inlined_graph).count("aten::")


def interrupted(model: Any, optimizer: Any, ids: Any, number: int) -> Any:
    def fails(*given: Any) -> None:
        raise KeyboardInterrupt

    handle = model.blocks[1].register_forward_pre_hook(fails)
    with pytest.raises(KeyboardInterrupt):
        model(ids)
    handle.remove()
    plainly(model, optimizer, ids, number)
    with torch.device("cpu"):  # puts a mode of its own on, and takes the last one off
        pass
    return torch._C._len_torch_function_stack()


def swapped(model: Any, optimizer: Any, ids: Any, number: int) -> Any:
    plainly(model, optimizer, ids, number)
    loss_of(model, ids).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model.double().float()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("step", [transformed, counted, traced, interrupted, swapped])
def test_a_step_of_another_make_is_as_it_was(tmp_path: Path, step: Any) -> None:
    same(tmp_path, lambda: Model(drops=0.0), step)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_layers_that_are_compiled_whole_are_compiled_beneath_no_mode(tmp_path: Path) -> None:
    def make() -> Any:
        torch._dynamo.reset()
        model = Model(drops=0.0)
        for block in model.blocks:
            block.compile(backend="eager", fullgraph=True)
        return model

    same(tmp_path, make)


def test_nothing_stays_on_a_model_that_can_not_be_watched(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Embedding(20, 8), nn.LazyLinear(4))
    run = barograph.init(
        project="p", name="n", dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(model)
    run.finish()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model[:1].modules())
    assert not model[0].weight._post_accumulate_grad_hooks


def test_a_tensor_is_known_again_and_may_be_swapped() -> None:
    tensor = torch.ones(3)
    known = Known(tensor)
    assert known(tensor)
    assert not known(torch.ones(3))
    torch.utils.swap_tensors(tensor, torch.zeros(3))
    assert not known(tensor)
    sparse = torch.eye(3).to_sparse()
    assert not Known(sparse)(sparse)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_watched_model_and_its_copies_are_compiled_by_torchscript(tmp_path: Path) -> None:
    def scripted(model: Any, optimizer: Any, ids: Any, number: int) -> Any:
        functional.cross_entropy(model(model[0].weight[:4]), ids[:, 0]).backward()
        optimizer.step()
        optimizer.zero_grad()
        if number != 3:
            return 0.0
        made = [torch.jit.script(one) for one in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model)))]
        assert len({str(one.graph) for one in made}) == 1
        return sum(float(one(torch.ones(2, 8)).detach().sum()) for one in made)

    same(tmp_path, lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 20)), scripted)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("whole", [False, True])
def test_what_is_beside_torchscript_is_watched(tmp_path: Path, whole: bool) -> None:
    model: Any = nn.Sequential(nn.Embedding(20, 8), torch.jit.script(nn.Linear(8, 8)), nn.Linear(8, 20))
    model = torch.jit.script(model) if whole else model
    train(tmp_path, True, model, plainly)
    stored = barograph.StoredRun(next((tmp_path / "p").iterdir()))
    assert len(stored.series("model/grad_norm")) == STEPS


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_attention_is_looked_at_beside_what_is_compiled_elsewhere(tmp_path: Path) -> None:
    from barograph.probes.model.activations import ActivationWatch

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model, inner = Model(drops=0.0), Model(drops=0.0)
    loss = torch.compile(lambda logits: logits.square().mean(), backend="eager")
    gelu = torch.compile(lambda x: functional.gelu(x), backend="eager")
    inner.calls[0] = lambda block, x: gelu(block(x))
    looks = [ActivationWatch(one) for one in (model, inner)]
    ids = torch.randint(20, (4, 10))
    seen = []
    for _ in range(3):
        loss(model(ids)).backward()
        inner(ids)
        seen.append([look.sees_attention for look in looks])
        for look in looks:
            look.collect()
    assert seen[0][0]
    assert seen[1:] == [[True, False], [True, False]]  # what is compiled in the first pass is known behind it
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3
    for look in looks:
        look.close()
    torch._dynamo.utils.counters.clear()


def test_weights_whose_memory_is_let_go_of_are_not_read(tmp_path: Path) -> None:
    """As FSDP's older kind does with the weights of a layer that does not run."""
    from barograph.probes.autograd import is_here
    from barograph.probes.model.parameters import local

    tensor = torch.ones(3)
    assert is_here(tensor)
    assert len(local(tensor)) == 3
    tensor.untyped_storage().resize_(0)
    assert not is_here(tensor)
    assert not local(tensor).numel()
    assert is_here(torch.eye(3).to_sparse())
    assert is_here(torch.ones(3, device="meta"))


def test_no_hook_stays_of_a_rank_with_nothing_to_record(tmp_path: Path) -> None:
    from torch.optim import optimizer as optimizers

    before = len(optimizers._global_optimizer_post_hooks)
    model = Model()
    run = barograph.init(
        project="p", name="n", dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False
    )
    families = ("gradients", "updates", "weights", "histograms", "activations", "spectral", "optimizer_state", "moe")
    run.watch(model, every_step_norms=False, **dict.fromkeys(families, 0))
    run.finish()
    assert len(optimizers._global_optimizer_post_hooks) == before
    assert not any(one._post_accumulate_grad_hooks for one in model.parameters())
