"""How a forward pass is put together: what the watch sees of it, and what rules make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.doctor import diagnose

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from barograph.probes.model.attention import AttentionLook, watch  # noqa: E402
from barograph.probes.model.forward import ForwardSigns  # noqa: E402

RULE = torch.randn(12, 6, generator=torch.Generator().manual_seed(3))
OURS = {"detached_skip", "attention_across", "unused_parameters", "unreached_parameters", "input_scale"}


def signs_of(call: Any) -> ForwardSigns:
    signs = ForwardSigns()
    with watch(AttentionLook(), signs):
        call()
    signs.end()
    return signs


def train(folder: Path, model: nn.Module, steps: int = 40, **how: Any) -> dict[str, dict[str, Any]]:
    """{rule: finding} of a small training that can be learnt; of stories what stands there."""
    torch.set_num_threads(1)
    dice = torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    run = barograph.init(
        project="p", name="n", dir=str(folder), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(model, optimizer, gradients=5, updates=5, activations=5)
    for step in range(steps):
        inputs = torch.randn(32, 12, generator=dice)
        output = model(inputs * how.get("scale", lambda step: 1.0)(step))
        loss = functional.cross_entropy(output, (inputs @ RULE).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item(), "lr": 3e-3}, step=step)
    run.finish()
    findings = diagnose(barograph.read(str(run.dir))[0])["findings"]
    return {part["rule"]: part for item in findings for part in (*item["evidence"].get("story", ()), item)}


class Part(nn.Module):
    """A residual part between two layers; `how` is the line that somebody gets wrong."""

    def __init__(self, how: Any) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.middle, self.last = nn.Linear(12, 24), nn.Linear(24, 24), nn.Linear(24, 6)
        self.how = how

    def forward(self, inputs: Any) -> Any:
        return self.last(self.how(self, torch.relu(self.first(inputs))))


def sound(self: Part, x: Any) -> Any:
    return x + torch.relu(self.middle(x))


@pytest.mark.parametrize(
    "how",
    [
        lambda self, x: x.detach() + torch.relu(self.middle(x)),
        lambda self, x: torch.relu(self.middle(x)) + x.data,
        lambda self, x: (
            torch.cat([self.middle(x)[:, :12], x.detach()[:, :12]], 1)
            + torch.cat([torch.tanh(x), x.detach()], 1)[:, :24]
        ),
    ],
    ids=["detach", "data", "joined"],
)
def test_a_skip_without_gradient_is_the_first_cause(tmp_path: Path, how: Any) -> None:
    found = train(tmp_path, Part(how))
    assert found["detached_skip"]["causes"][0].startswith("graph cut: a skip")


@pytest.mark.parametrize(
    "how",
    [
        sound,
        lambda self, x: x + (torch.round(x) - x).detach() + self.middle(x),  # straight through
        lambda self, x: self.middle(x) * 0.5 + self.middle(x) / self.middle(x).norm().detach(),
        lambda self, x: 0.1 * x + 0.9 * x.detach(),  # a gradient made smaller
    ],
    ids=["sound", "straight through", "norm", "smaller"],
)
def test_what_is_detached_on_purpose_is_no_cut_skip(tmp_path: Path, how: Any) -> None:
    found = train(tmp_path, Part(how))
    assert not OURS & {name for name, item in found.items() if item["severity"] != "info"}


def test_a_state_that_is_handed_on_is_no_cut_skip() -> None:
    weight = torch.ones(4, 4, requires_grad=True)

    def refined() -> None:
        place, hidden = torch.zeros(4), torch.ones(4) @ weight
        for _ in range(3):
            place = place.detach()
            place = place + torch.tanh(hidden + place) @ weight

    assert signs_of(refined).detached_skips == 0


@pytest.mark.parametrize(("dim", "across"), [(-1, 0), (3, 0), (-2, 1), (2, 1), (1, 1)])
def test_a_softmax_is_across_where_the_product_sums_over_another_dimension(dim: int, across: int) -> None:
    scores, values = torch.randn(2, 3, 5, 5), torch.randn(2, 3, 5, 4)
    assert signs_of(lambda: functional.dropout(scores.softmax(dim), 0.1) @ values).softmax_across == across


def test_weights_of_slots_and_of_linear_attention_are_left_alone() -> None:
    scores, values = torch.randn(2, 5, 7), torch.randn(2, 7, 4)

    def slots() -> None:
        share = scores.softmax(1)
        torch.matmul(share / share.sum(-1, keepdim=True), values)

    def linear() -> None:
        torch.matmul(scores.softmax(-2).transpose(1, 2), scores)

    assert signs_of(slots).softmax_across == signs_of(linear).softmax_across == 0


def test_a_positional_embedding_that_is_not_used_is_named(tmp_path: Path) -> None:
    model = Part(sound)
    model.pos = nn.Embedding(8, 24)
    found = train(tmp_path, model, 110)
    assert found["unused_parameters"]["severity"] == "warning"
    assert found["unused_parameters"]["causes"][0].startswith("positional embedding not used")


def test_a_positional_parameter_may_be_added_without_its_gradient(tmp_path: Path) -> None:
    model = Part(sound)
    model.pos_embed = nn.Parameter(torch.zeros(24))
    causes = train(tmp_path, model, 110)["unused_parameters"]["causes"]
    assert causes[0].startswith("positional embedding not used") and causes[1].startswith("graph cut")


@pytest.mark.parametrize(("name", "severity"), [("cond_embed", "warning"), ("second", "info")])
def test_layers_named_after_a_condition_that_never_run_are_a_warning(tmp_path: Path, name: str, severity: str) -> None:
    model = Part(sound)
    setattr(model, name, nn.Embedding(8, 24))
    found = train(tmp_path, model, 110)["unused_parameters"]
    assert found["severity"] == severity
    assert found["causes"][0].startswith("condition not used" if severity == "warning" else "layers are not used")


def test_a_positional_parameter_beside_layers_is_named_and_a_projection_is_not(tmp_path: Path) -> None:
    model = Part(
        lambda self, x: x + self.attention(x.detach()[:, None], x.detach()[:, None], x[:, None])[0][:, 0].detach()
    )
    model.attention, model.pos = nn.MultiheadAttention(24, 2, batch_first=True), nn.Parameter(torch.zeros(24))
    found = train(tmp_path, model, 110)
    message = found["unused_parameters"]["message"]
    assert "pos" in message and "attention" not in message


class Blocks(nn.ModuleList):
    """Two blocks, each with a layer of this name that its pass may leave out."""

    def __init__(self, name: str) -> None:
        super().__init__(nn.ModuleDict({"up": nn.Linear(24, 24), name: nn.Linear(24, 24)}) for _ in range(2))


@pytest.mark.parametrize(
    ("name", "used", "severity"),
    [("level", (), "warning"), ("level", (0,), "info"), ("gain", (), "info")],  # the last may have been left
    ids=["level in no block", "level in one of two", "another layer in no block"],
)
def test_a_level_that_every_block_has_and_none_runs_is_a_warning(
    tmp_path: Path, name: str, used: tuple[int, ...], severity: str
) -> None:
    def forward(self: Any, x: Any) -> Any:
        for number, block in enumerate(self.blocks):
            x = torch.tanh(block["up"](x) + (block[name](x) if number in used else 0))
        return sound(self, x)

    model = Part(forward)
    model.blocks = Blocks(name)
    found = train(tmp_path, model, 110)["unused_parameters"]
    assert found["severity"] == severity
    assert ("in each of 2 blocks" in found["message"]) == (not used)


def test_heads_of_a_list_that_wait_whole_are_no_warning(tmp_path: Path) -> None:
    model = Part(sound)
    model.heads = nn.ModuleList(nn.Linear(24, 3) for _ in range(2))
    assert train(tmp_path, model, 110)["unused_parameters"]["severity"] == "info"


def test_a_head_that_waits_for_its_data_is_no_warning(tmp_path: Path) -> None:
    model = Part(sound)
    model.head_for_later = nn.Linear(24, 3)
    assert train(tmp_path, model, 110)["unused_parameters"]["severity"] == "info"


@pytest.mark.parametrize(("std", "severity"), [(None, "warning"), (0.02, "info")])
def test_layers_under_no_grad_are_a_warning_where_nobody_trained_them(
    tmp_path: Path, std: float | None, severity: str
) -> None:
    def cut(self: Part, x: Any) -> Any:
        with torch.no_grad():
            x = self.middle(x.detach())
        return x

    model = Part(cut)
    if std is not None:  # weights of another make: from a checkpoint, perhaps
        for layer in (model.first, model.middle):
            nn.init.normal_(layer.weight, std=std)
    model.first.requires_grad_(False)
    found = train(tmp_path, model)["unreached_parameters"]
    assert found["severity"] == severity and "no_grad" in found["causes"][0]


def test_gradients_that_come_and_are_dropped_before_the_step_say_nothing_of_the_loss(tmp_path: Path) -> None:
    """A head that is trained alone at first, with the rest's gradients set to None."""
    model = Part(sound)
    for layer in (model.first, model.middle):
        for parameter in layer.parameters():
            parameter.register_post_accumulate_grad_hook(lambda one: setattr(one, "grad", None))
    assert "unreached_parameters" not in train(tmp_path, model)


def test_inputs_of_another_scale_are_found_since_the_step(tmp_path: Path) -> None:
    found = train(tmp_path, Part(sound), 200, scale=lambda step: 1000.0 if step >= 120 else 1.0)
    assert found["input_scale"]["step"] in range(120, 131)
    heads = [item for item in found.values() if "causes" in item and item["severity"] == "critical"]
    assert all(item["causes"][0].startswith("inputs scaled") for item in heads)
