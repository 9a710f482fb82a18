"""Models whose shapes don't tell their FLOPs are counted by a forward pass, which leaves the training alone."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import barograph  # noqa: E402
from barograph.probes.speed.architecture import FlopsError  # noqa: E402
from barograph.probes.speed.configurations import architecture  # noqa: E402
from barograph.probes.speed.flops import parts  # noqa: E402
from barograph.probes.speed.observed import forward_parts  # noqa: E402

WIDTH, HEADS, LAYERS, VOCABULARY, SEQUENCE = 64, 4, 2, 300, 96
DENSE = {"n_layer": LAYERS, "n_head": HEADS, "n_embd": WIDTH, "vocab_size": VOCABULARY, "block_size": SEQUENCE}
EXPERTS, CHOSEN = 8, 2


class Attention(nn.Module):
    def __init__(self, by_hand: bool = False):
        super().__init__()
        self.by_hand = by_hand
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Any) -> Any:
        rows, length, _ = x.shape
        q, k, v = (one.view(rows, length, HEADS, -1).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        if self.by_hand:
            mixed = torch.softmax(q @ k.transpose(-1, -2), -1) @ v
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))


class Experts(nn.Module):
    """A mixture that picks tokens by index, as most hand-written ones do: its course depends on its values."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(EXPERTS)
        )

    def forward(self, x: Any) -> Any:
        flat = x.reshape(-1, WIDTH)
        weights, chosen = self.router(flat).softmax(-1).topk(CHOSEN, -1)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            token, slot = (chosen == number).nonzero(as_tuple=True)
            if len(token):
                out = out.index_add(0, token, expert(flat[token]) * weights[token, slot, None])
        return out.view_as(x)


class Block(nn.Module):
    def __init__(self, attention: nn.Module, inner: nn.Module):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.mix, self.inner = attention, inner

    def forward(self, x: Any) -> Any:
        x = x + self.mix(self.norms[0](x))
        return x + self.inner(self.norms[1](x))


class GPT(nn.Module):
    def __init__(self, block: Any, positions: int = SEQUENCE, tied: bool = False):
        super().__init__()
        self.table, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(positions, WIDTH)
        self.blocks = nn.Sequential(*[block() for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.register_buffer("seen", torch.zeros(()))
        if tied:
            self.head.weight = self.table.weight

    def forward(self, tokens: Any) -> Any:
        self.seen += tokens.numel()
        h = self.table(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.blocks(F.dropout(h, 0.1, self.training)))


def feed_forward() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))


DENSE_MODELS: dict[str, Any] = {
    "written by hand": lambda: GPT(lambda: Block(Attention(), feed_forward())),
    "tied": lambda: GPT(lambda: Block(Attention(), feed_forward()), tied=True),
    "nn.TransformerEncoderLayer": lambda: GPT(
        lambda: nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True)
    ),
    "attention by hand": lambda: GPT(lambda: Block(Attention(by_hand=True), feed_forward())),
}


@pytest.mark.parametrize("kind", DENSE_MODELS)
@pytest.mark.parametrize("training", [True, False])
def test_what_is_counted_is_what_the_formula_says(kind: str, training: bool) -> None:
    found = forward_parts(DENSE_MODELS[kind]().train(training), SEQUENCE)
    arch = architecture(DENSE)
    causal = kind in ("written by hand", "tied")
    expected = parts(arch, "surogate" if causal else "palm_non_embedding")
    assert found.lm_head == 6 * WIDTH * VOCABULARY
    assert found.attention == pytest.approx(expected.attention, rel=0.02), "half of the square where it is masked"
    assert found.blocks == 6 * LAYERS * 12 * WIDTH * WIDTH


def test_a_mixture_counts_the_experts_that_a_token_goes_to() -> None:
    found = forward_parts(GPT(lambda: Block(Attention(), Experts())), SEQUENCE)
    each = 4 * WIDTH * WIDTH + WIDTH * EXPERTS + CHOSEN * 8 * WIDTH * WIDTH
    assert found.blocks == 6 * LAYERS * each


def test_counting_leaves_model_hooks_and_random_numbers_alone() -> None:
    model = GPT(lambda: Block(Attention(), feed_forward())).train()
    called: list[Any] = []
    model.blocks[0].register_forward_hook(lambda *_: called.append(1))
    model.register_forward_pre_hook(lambda *_: called.append(2))
    state = torch.get_rng_state()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    forward_parts(model, SEQUENCE)
    assert not called and torch.equal(torch.get_rng_state(), state) and model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    model(torch.zeros(1, 4, dtype=torch.long))
    assert sorted(called) == [1, 2], "the hooks are there again"


def test_a_sequence_longer_than_the_tables_is_refused_before_it_is_looked_up() -> None:
    with pytest.raises(FlopsError, match="fewer entries"):
        forward_parts(GPT(lambda: Block(Attention(), feed_forward()), positions=32), SEQUENCE)


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.norm, self.out = nn.BatchNorm2d(16), nn.Linear(16, 10)
        self.calls = 0

    def forward(self, pictures: Any) -> Any:
        self.calls += 1
        return self.out(self.norm(self.second(F.relu(self.first(pictures)))).mean((-1, -2)))


def started(tmp_path: Path) -> barograph.Run:
    return barograph.init(project="p", dir=tmp_path, git=False, machine=False, verbosity=-2, doctor=False)


def test_a_model_of_something_else_is_counted_at_its_first_step(tmp_path: Path) -> None:
    run, model = started(tmp_path), Pictures()
    assert run.speed_of_light(model, peak_tflops=1.0) is None
    with torch.no_grad():
        model.eval()(torch.zeros(2, 3, 16, 16))  # a look before the training does not count
    model.train()
    for step in range(1, 4):
        with run.step(tokens=5, step=step) as timed:
            loss = model(torch.randn(5, 3, 16, 16)).square().mean()
            loss.backward()
            timed.set(loss=loss.item())
    assert model.calls == 4, "nothing was run for the count"
    run.finish()
    stored = barograph.StoredRun(run.dir)
    (sol,) = [one.fields for one in stored.records("sol")]
    # two FLOPs a weight and place, three passes; 16 × 16 places, a token is a picture
    assert sol["blocks"] == 6 * (256 * 9 * (3 * 8 + 8 * 16) + 16 * 10) and sol["formula"] == "counted"
    mfu = stored.series("speed/mfu").value
    speed = stored.series("speed/tokens_per_second").value
    assert mfu[-1] == pytest.approx(sol["flops_per_token"] * speed[-1] / 1e12)


def test_an_exception_in_the_first_step_goes_on_its_way(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Pictures):
        def forward(self, pictures: Any) -> Any:
            raise RuntimeError("of the user's")

    run, model = started(tmp_path), Broken()
    run.speed_of_light(model)
    with pytest.raises(RuntimeError, match="of the user's"):
        model(torch.zeros(1, 3, 8, 8))
    assert not model._forward_hooks and not model._forward_pre_hooks
    assert torch.zeros(2, 2).matmul(torch.zeros(2, 2)).sum() == 0
    run.finish()
    assert "the first forward pass failed" in caplog.text


def test_a_model_that_is_never_run_is_said_at_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    run, model = started(tmp_path), Pictures()
    run.speed_of_light(model)
    run.finish()
    assert "no forward pass of the model was seen" in caplog.text and not model._forward_hooks


@pytest.mark.parametrize("kind", DENSE_MODELS)
def test_a_run_counts_what_it_can_not_read(kind: str, tmp_path: Path) -> None:
    run = started(tmp_path)
    found = run.speed_of_light(DENSE_MODELS[kind](), sequence=SEQUENCE, peak_tflops=0.05)
    assert found is not None and found["formula"] in ("counted", "surogate") and found["tps"] > 0
    with pytest.raises(TypeError):
        run.speed_of_light()
    run.finish()


def test_a_mistake_of_the_users_is_said_and_not_counted_around(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, model = started(tmp_path), DENSE_MODELS["written by hand"]()
    assert run.speed_of_light(model, sequence=SEQUENCE, dtypes="int3") is None
    assert run.speed_of_light(model, sequence=SEQUENCE, haeds=3) is None
    assert run.speed_of_light(model, sequence=-1) is None
    assert not model._forward_hooks
    assert all(word in caplog.text for word in ("int3", "haeds", "sequence is -1"))
    run.finish()


def test_a_compiled_model_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Plain(Pictures):
        def forward(self, pictures: Any) -> Any:
            return self.out(self.norm(self.second(self.first(pictures))).mean((-1, -2)))

    run = started(tmp_path)
    for compiled_first in (True, False):
        model = Plain()
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        assert run.speed_of_light(compiled if compiled_first else model, peak_tflops=1.0) is None
        for _ in range(2):
            compiled(torch.randn(2, 3, 8, 8)).sum().backward()
    assert "the model is compiled" in caplog.text
    run.finish()
    assert "or only of the compiled model" in caplog.text
    tokens = torch.compile(DENSE_MODELS["written by hand"](), fullgraph=True, backend="eager")
    assert forward_parts(tokens, SEQUENCE).lm_head == 6 * WIDTH * VOCABULARY, "without a hook it is counted"
