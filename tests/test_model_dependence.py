"""What the watch sees of the inputs that single outputs depend on, and that the training is what it was without."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_curves import found

import barograph
from barograph.doctor.rules.activations.dependence import PlacesAhead

torch = pytest.importorskip("torch")
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from watched_models import QUIET, Notes  # noqa: E402

from barograph.probes.model.watch import ModelWatch  # noqa: E402

ROWS, PLACES, TOKENS, WIDTH, STEPS = 6, 12, 20, 16, 110


class Language(nn.Module):
    """A model of the next token: `kind` says how its places come together."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.embedding, self.position = nn.Embedding(TOKENS, WIDTH), nn.Embedding(PLACES, WIDTH)
        self.mixer = nn.Linear(WIDTH, 3 * WIDTH)
        self.conv1d = nn.Conv1d(WIDTH, WIDTH, 3)
        self.norm = nn.LayerNorm((PLACES, WIDTH) if kind == "norm over places" else WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS)

    def attention(self, x: Tensor) -> Tensor:
        q, k, v = self.mixer(x).chunk(3, -1)
        shape = len(x), PLACES, 2, WIDTH // 2
        if self.kind == "heads by view":
            q, k, v = (one.reshape(shape[0], 2, PLACES, WIDTH // 2) for one in (q, k, v))
        else:
            q, k, v = (one.reshape(shape).transpose(1, 2) for one in (q, k, v))
        if self.kind == "over rows":
            q, k, v = (one.transpose(0, 2) for one in (q, k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.kind != "over rows")
        if self.kind == "over rows":
            mixed = mixed.transpose(0, 2)
        if self.kind == "own place":
            mixed = v
        return mixed.transpose(1, 2).reshape(x.shape)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.position(torch.arange(PLACES))
        if self.kind == "checkpoint":
            x = x + checkpoint(self.attention, x, use_reentrant=True)
        elif self.kind != "convolution":
            x = x + self.attention(x)
        if "convolution" in self.kind:
            ends = (2, 0) if self.kind == "causal convolution" else (1, 1)
            x = x + self.conv1d(functional.pad(x.transpose(1, 2), ends)).transpose(1, 2)
        if self.kind == "batch mean":
            x = x - x.mean(0, keepdim=True)
        return self.head(self.norm(x))


def trained(
    folder: Path,
    model: nn.Module,
    loss_of: Callable[[nn.Module, int], Tensor],
    watch: bool | dict[str, Any] = True,
    steps: int = STEPS,
) -> Any:
    """The run of a small training."""
    torch.manual_seed(3)
    torch.set_num_threads(1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    run = barograph.init(
        project="p", name="n", dir=str(folder), console="none", machine=False, sidecar=False, git=False
    )
    if watch:
        run.watch(model, optimizer, **(watch if isinstance(watch, dict) else {}))
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        optimizer.step()
        run.log({"train/loss": loss.item()}, step=step)
    run.finish()
    return run


def next_token(model: nn.Module, step: int) -> Tensor:
    text = torch.randint(TOKENS, (ROWS, PLACES + 1), generator=torch.Generator().manual_seed(step))
    return functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


def seen(run: Any) -> dict[str, Any]:
    stored = barograph.read(str(run.dir))[0]
    names = ("rows_reached", "next_reached", "past_reached")
    return {name: list(stored.series(f"model/{name}").value) for name in names if f"model/{name}" in stored.names()}


def said(run: Any) -> set[str]:
    return {one["rule"] for one in barograph.diagnose(str(run.dir))["findings"]} & {
        "rows_dependent", "places_ahead", "context_unused", "later_tokens", "rows_mixed", "read_across"}  # fmt: skip


def severity_of(run: Any, rule: str) -> str | None:
    found = {one["rule"]: one["severity"] for one in barograph.diagnose(str(run.dir))["findings"]}
    return found.get(rule)


@pytest.mark.parametrize(
    ("kind", "rows", "following", "past", "rules"),
    [
        ("plain", 0.0, 0.0, 1.0, set()),
        ("causal convolution", 0.0, 0.0, 1.0, set()),
        ("convolution", 0.0, 1.0, 1.0, {"places_ahead"}),
        ("heads by view", 0.0, 1.0, 1.0, {"places_ahead"}),
        ("norm over places", 0.0, 1.0, 1.0, {"places_ahead"}),
        ("batch mean", 1.0, None, 1.0, {"rows_dependent"}),
        ("own place", None, 0.0, 0.0, {"context_unused"}),
    ],
)
def test_what_a_place_of_a_language_model_depends_on_is_seen(
    tmp_path: Path, kind: str, rows: float | None, following: float | None, past: float, rules: set[str]
) -> None:
    run = trained(tmp_path, Language(kind), next_token)
    looks = seen(run)
    wanted = {"rows_reached": rows, "next_reached": following, "past_reached": past}
    assert looks == {name: [value] * 2 for name, value in wanted.items() if value is not None}
    assert said(run) == rules


def test_a_head_alone_that_is_trained_is_given_what_knows_of_other_places(tmp_path: Path) -> None:
    model = Language("plain").requires_grad_(False)
    model.head.requires_grad_(True)
    run = trained(tmp_path, model, next_token)
    looks = seen(run)
    assert "past_reached" not in looks and not said(run)


class Encoder(nn.Module):
    """Torch's own layers, whose attention reads the weights of its parts and calls none; or queries by their name."""

    def __init__(self, own: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.body = nn.TransformerEncoderLayer(WIDTH, 2, WIDTH, 0.0, batch_first=True) if own else None
        self.q_proj, self.k_proj = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        if self.body is not None:
            hidden = torch.ones(PLACES, PLACES, dtype=torch.bool).triu(1)
            return self.head(self.body(x, src_mask=hidden))
        return self.head(functional.scaled_dot_product_attention(self.q_proj(x), self.k_proj(x), x, is_causal=True))


@pytest.mark.parametrize("own", [True, False])
def test_a_head_alone_behind_attention_of_any_make_says_nothing(tmp_path: Path, own: bool) -> None:
    model = Encoder(own).requires_grad_(False)
    model.head.requires_grad_(True)
    run = trained(tmp_path, model, next_token)
    looks = seen(run)
    assert "past_reached" not in looks and not said(run)


class Classifier(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8) if kind == "batch norm" else nn.GroupNorm(2, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.norm(self.second(functional.relu(self.first(pictures))))
        if self.kind == "softmax over the batch":
            x = x * x.softmax(0)
        if self.kind == "wrong view":
            return self.head(x.permute(1, 0, 2, 3).reshape(len(pictures), 8, -1).mean(2))
        return self.head(x.mean((2, 3)))


def of_a_class(model: nn.Module, step: int) -> Tensor:
    draw = torch.Generator().manual_seed(step)
    pictures, labels = torch.randn(16, 3, 8, 8, generator=draw), torch.randint(5, (16,), generator=draw)
    return functional.cross_entropy(model(pictures), labels)


@pytest.mark.parametrize(
    ("kind", "rows"), [("group norm", 0.0), ("batch norm", None), ("softmax over the batch", 1.0), ("wrong view", 0.5)]
)
def test_a_classifier_whose_rows_are_mixed_is_found(tmp_path: Path, kind: str, rows: float | None) -> None:
    run = trained(tmp_path, Classifier(kind), of_a_class)
    assert seen(run).get("rows_reached") == (None if rows is None else [rows] * 2)
    assert said(run) == ({"rows_dependent"} if rows else set())
    assert severity_of(run, "rows_dependent") == ("warning" if rows else None)


class Transposed(nn.Module):
    """Its texts stand in columns: places come first."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layer, self.head = nn.Embedding(TOKENS, 8), nn.GRU(8, 8), nn.Linear(8, TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(self.embedding(tokens))[0])


@pytest.mark.parametrize(("places", "rows"), [(PLACES, ROWS), (18, 24)])
def test_a_model_whose_places_come_first_mixes_no_rows(tmp_path: Path, places: int, rows: int) -> None:
    def loss_of(model: nn.Module, step: int) -> Tensor:
        text = torch.randint(TOKENS, (places + 1, rows))
        return functional.cross_entropy(model(text[:-1]).flatten(0, 1), text[1:].flatten())

    run = trained(tmp_path, Transposed(), loss_of)
    assert not {"rows_reached", "next_reached"} & set(seen(run))
    assert said(run) == set()


class MixedUp(nn.Module):
    """What a layer gives of an example is mixed with that of another one, drawn at random."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        x = 0.7 * x + 0.3 * x[torch.randperm(len(x))]
        return self.last(x.mean(1))


def test_examples_that_are_mixed_by_twos_are_so_on_purpose(tmp_path: Path) -> None:
    def loss_of(model: nn.Module, step: int) -> Tensor:
        draw = torch.Generator().manual_seed(step)
        return functional.cross_entropy(
            model(torch.randn(32, 9, 6, generator=draw)), torch.randint(5, (32,), generator=draw)
        )

    run = trained(tmp_path, MixedUp(), loss_of, steps=12)
    assert severity_of(run, "rows_dependent") == "info"
    (share,) = seen(run)["rows_reached"]
    assert 0.2 < share < 0.9


class Walked(nn.Module):
    """A recurrence written by hand, over one dimension of the tokens."""

    def __init__(self, over: int, turned: bool = False) -> None:
        super().__init__()
        self.embedding, self.step, self.head = nn.Embedding(TOKENS, 8), nn.Linear(16, 8), nn.Linear(8, TOKENS)
        self.over, self.turned = over, turned

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens.t() if self.turned else tokens)
        state, states = torch.zeros_like(x.select(self.over, 0)), []
        for one in x.unbind(self.over):
            state = torch.tanh(self.step(torch.cat([state, one], -1)))
            states.append(state)
        out = self.head(torch.stack(states, self.over))
        return out.transpose(0, 1) if self.turned else out


@pytest.mark.parametrize(("places", "rows"), [(PLACES, PLACES), (16, 12), (9, 24), (32, 32)])
@pytest.mark.parametrize("kind", ["right", "turned", "wrong", "windows", "columns"])
@pytest.mark.parametrize("first", ["rows", "places"])
def test_a_model_that_reads_along_the_other_dimension_is_found(
    tmp_path: Path, places: int, rows: int, kind: str, first: str
) -> None:
    over = int((first == "rows") ^ (kind == "wrong") ^ (kind == "turned"))

    def loss_of(model: nn.Module, step: int) -> Tensor:
        text = torch.randint(TOKENS, (rows, places + 1))
        if kind == "windows":  # each a place further: the next token is in both dimensions
            text = torch.randint(TOKENS, (rows + places,)).unfold(0, places + 1, 1)
        inputs, targets = text[:, :-1], text[:, 1:]
        if first == "places":
            inputs, targets = inputs.t(), targets.t()
        if kind == "columns":  # a classifier of pairs of tokens, of which neither is a text
            targets = (inputs * 3 + inputs.roll(1, over)) % TOKENS
        return functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())

    run = trained(tmp_path, Walked(over, kind == "turned"), loss_of, steps=12)
    assert said(run) & {"read_across", "places_ahead", "context_unused", "rows_dependent"} == (
        {"read_across"} if kind == "wrong" else set()
    )


@pytest.mark.parametrize(("kind", "rules"), [("plain", set()), ("causal convolution", set()), ("batch mean", set()),
                                             ("own place", set()), ("convolution", {"places_ahead"}),
                                             ("heads by view", {"places_ahead"})])  # fmt: skip
def test_next_places_are_seen_where_a_batch_has_as_many_rows_as_places(
    tmp_path: Path, kind: str, rules: set[str]
) -> None:
    def loss_of(model: nn.Module, step: int) -> Tensor:
        text = torch.randint(TOKENS, (PLACES, PLACES + 1))
        return functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())

    run = trained(tmp_path, Language(kind), loss_of, steps=12)
    assert not {"rows_reached", "past_reached"} & set(seen(run))
    assert said(run) == rules


def test_similarities_within_a_batch_are_compared_on_purpose(tmp_path: Path) -> None:
    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Conv1d(3, 8, 3)

        def forward(self, x: Tensor) -> Tensor:
            ours = self.one(x).mean(2)
            return ours @ ours.roll(1, 1).T

    def loss_of(model: nn.Module, step: int) -> Tensor:
        return functional.cross_entropy(model(torch.randn(16, 3, 9)), torch.arange(16))

    assert seen(trained(tmp_path, Pairs(), loss_of)) == {}


def on_a_rank(rank: int, folder: str, watch: bool) -> None:
    """One of two processes that average their gradients."""
    import torch.distributed

    torch.distributed.init_process_group("gloo", f"file://{folder}/store-{watch}", rank=rank, world_size=2)
    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(Language("causal convolution"))
    trained(Path(folder) / f"{watch}-{rank}", model, lambda model, step: next_token(model, 2 * step + rank), watch)
    if rank == 0:
        torch.save([one.detach() for one in model.parameters()], f"{folder}/{watch}.pt")
    time.sleep(0.2)  # gloo's thread lets go of the last call: github.com/pytorch/pytorch/issues/56297
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("pieces", [(), (1,), (1, 2)])
@pytest.mark.parametrize("seen_by_attention", [True, False])
def test_a_mask_that_is_missing_is_said_by_the_attention_once_that_was_looked_at(
    pieces: tuple[int, ...], seen_by_attention: bool
) -> None:
    series = {
        "model/target_shift": (np.arange(120), np.ones(120)),
        "model/next_reached": (np.array([6, 106]), np.ones(2)),
        "model/attention/next": (np.array([110]), np.array([1.0 if seen_by_attention else 0.0])),
    }
    (one,) = found([PlacesAhead()], series, pieces)
    assert one.severity == ("info" if seen_by_attention else "warning")


def test_a_recurrent_layer_that_is_the_first_one_has_read_the_other_places_itself() -> None:
    class Forecaster(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells, self.head = nn.LSTM(1, 8, batch_first=True), nn.Linear(8, 3)

        def forward(self, window: Any) -> Any:
            return self.head(self.cells(window[..., None])[0][:, -1])

    model, run = Forecaster(), Notes()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = ModelWatch(run, model, optimizer, **(QUIET | {"activations": 1000}))
    for step in range(12):
        optimizer.zero_grad()
        model(torch.randn(16, 20)).square().mean().backward()
        optimizer.step()
        run.log(step)
    watch.close()
    seen = {name for step in run.steps for name in run.fields(step)}
    assert "rows_reached" in seen and "single_place" not in seen
