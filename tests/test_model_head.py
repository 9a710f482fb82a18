"""A model that returns its loss alone: what is seen of its output is what is seen of one that returns it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import barograph

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from barograph.probes.model.head import Head  # noqa: E402

SEEN = {"model/output_spread", "model/target_shift", "model/output_width"}


class Decoder(nn.Module):
    """Next tokens; its loss is its own affair."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.how = how
        self.tokens, self.middle, self.head = nn.Embedding(20, 16), nn.Linear(16, 16), nn.Linear(16, 20)

    def forward(self, given: Any, targets: Any) -> Any:
        hidden = torch.relu(self.middle(self.tokens(given)))
        logits = functional.linear(hidden, self.tokens.weight) if self.how == "function" else self.head(hidden)
        if self.how == "behind":  # weights between the last layer and the loss
            logits = logits @ self.tokens.weight @ self.tokens.weight.T
        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten()) + 1e-4 * logits.logsumexp(-1).mean()
        return {"alone": loss, "mapping": {"loss": loss}, "first": (loss, logits)}.get(self.how, loss)


def loss_of(output: Any) -> Any:
    return output["loss"] if isinstance(output, dict) else output[0] if isinstance(output, tuple) else output


@pytest.mark.parametrize(
    ("how", "seen"), [("alone", True), ("mapping", True), ("first", True), ("function", False), ("behind", False)]
)
def test_what_is_seen_of_an_output_is_seen_where_the_loss_alone_is_returned(
    tmp_path: Path, how: str, seen: bool
) -> None:
    torch.set_num_threads(1)
    model = Decoder(how)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = barograph.init(project="p", dir=tmp_path, console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    for step in range(6):
        text = torch.randint(0, 20, (8, 13))
        optimizer.zero_grad()
        loss = loss_of(model(text[:, :-1], text[:, 1:]))
        loss.backward()
        optimizer.step()
        run.log({"train/loss": loss.item()}, step=step)
        pickle.dumps(model)
    run.finish()
    stored = barograph.read(str(run.dir))[0]
    assert SEEN & set(stored.names()) == (SEEN if seen else set())
    if seen:
        assert set(stored.series("model/target_shift").value) == {1.0}
    assert not any(module._forward_hooks for module in model.modules())


def test_one_layer_is_listened_to_once_it_is_proven_and_none_where_it_is_not() -> None:
    def hooked(model: nn.Module) -> list[str]:
        return [name for name, module in model.named_modules() if module._forward_hooks]

    text = torch.randint(0, 20, (4, 9))
    for how, left in (("alone", ["head"]), ("behind", [])):
        model = Decoder(how)
        head = Head(model)
        given = []
        for _ in range(8):
            head.began()
            loss = model(text[:, :-1], text[:, 1:])
            given.append(head.output(loss))
        assert hooked(model) == left
        assert [one is not None for one in given] == [False] + 7 * [how == "alone"]
        if how == "alone":
            assert given[-1].shape == (4, 8, 20) and given[-1].requires_grad
            model.head(torch.zeros(1, 16))  # in a pass that has failed
            head.began()
            model(text[:, :-1], text[:, 1:])
            assert not head.in_pieces
            last = model.head(torch.zeros(1, 2, 16))  # in pieces: the last one stands for all
            assert head.output(loss) is last and head.in_pieces
        head.close()
        assert hooked(model) == []


@pytest.mark.slow
def test_a_model_that_is_compiled_once_its_head_is_known_stays_one_graph(tmp_path: Path) -> None:
    model = Decoder("alone")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = barograph.init(project="p", dir=tmp_path, console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    torch._dynamo.reset()
    called: Any = model
    for step in range(10):
        text = torch.randint(0, 20, (8, 13))
        if step == 5:
            called = torch.compile(model, backend="aot_eager", fullgraph=True)
        optimizer.zero_grad()
        called(text[:, :-1], text[:, 1:]).backward()
        optimizer.step()
        run.log({"train/loss": 1.0}, step=step)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    model.eval()
    with torch.no_grad():
        called(text[:, :-1], text[:, 1:])
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2  # as without a watch
    run.finish()
