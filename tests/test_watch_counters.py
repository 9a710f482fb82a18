"""Watches of trainings on a device: functions over many tensors change weights uncounted there, and nothing waits."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from like_a_device import NothingWaits, as_on_a_device  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import barograph  # noqa: E402
from barograph.doctor.diagnosis import diagnose  # noqa: E402
from barograph.probes.model import guest, softmaxes, texts, watch  # noqa: E402

STEPS = 160
WHERE = "cuda" if torch.cuda.is_available() else "cpu"
MAKES: dict[str, Callable[[Any], Any]] = {
    "many": lambda parameters: torch.optim.AdamW(parameters, 2e-3),
    "fused": lambda parameters: torch.optim.AdamW(parameters, 2e-3, fused=True),
    "SGD": lambda parameters: torch.optim.SGD(parameters, 0.05, momentum=0.9, foreach=True),
}
GRADIENTS = {"unchanged_parameters", "missing_zero_grad", "optimizer_not_stepped", "written_weights"}


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    if WHERE == "cpu":
        as_on_a_device(monkeypatch)
    weight = torch.zeros(3, device=WHERE)
    torch._foreach_add_([weight], 1.0)
    assert weight._version == 0 and weight.sum() == 3, "nothing counts this"


def findings(
    folder: Path,
    make: Callable[[Any], Any] = MAKES["many"],
    clear: Callable[[Any], Any] = lambda optimizer: optimizer.zero_grad(),
    evaluate: Callable[[Any, Any, int], Any] | None = None,
    step_by_hand: Callable[[Any], Any] | None = None,
) -> dict[str, str]:
    """Each warning's severity, by rule, in a training of a small classifier: not of what else the machine does."""
    torch.manual_seed(3)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.ReLU(), torch.nn.Linear(24, 4)).to(WHERE)
    optimizer = make(model.parameters())
    run = barograph.init(dir=str(folder), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    rule, fresh = torch.randn(12, 4, device=WHERE), torch.randn(128, 12, device=WHERE)
    for step in range(1, STEPS + 1):
        inputs = torch.randn(32, 12, device=WHERE)
        loss = functional.cross_entropy(model(inputs), (inputs @ rule).argmax(1))
        clear(optimizer)
        loss.backward()
        (optimizer.step if step_by_hand is None else lambda: step_by_hand(model))()  # type: ignore[misc]
        row = {"train/loss": loss.item()}
        if evaluate is not None and step % 20 == 0:
            with torch.no_grad():
                evaluate(model, fresh, step)
                row["val/loss"] = functional.cross_entropy(model(fresh), (fresh @ rule).argmax(1)).item()
        run.log(row, step=step)
    run.finish()
    found = diagnose(barograph.StoredRun(run.dir))["findings"]
    return {one["rule"]: one["severity"] for one in found if one["severity"] != "info" and one["family"] != "speed"}


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_that_are_cleared_together_are_not_called_uncleared(tmp_path: Path, make: Any, to_none: bool) -> None:
    assert findings(tmp_path, make, lambda optimizer: optimizer.zero_grad(to_none)) == {}


def test_gradients_that_nobody_clears_are_found_all_the_same(tmp_path: Path) -> None:
    found = findings(tmp_path, MAKES["fused"], lambda optimizer: None)
    assert found["missing_zero_grad"] == "critical"


def swapped(model: Any, fresh: Any, step: int) -> None:
    """The weights of an average are put in for an evaluation, and taken out again."""
    own = copy.deepcopy(model.state_dict())
    model.load_state_dict({name: 0.999 * item for name, item in own.items()})
    model(fresh)
    model.load_state_dict(own)


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_weights_that_are_put_in_for_an_evaluation_do_not_make_steps_look_idle(tmp_path: Path, make: Any) -> None:
    assert not GRADIENTS & set(findings(tmp_path, make, evaluate=swapped))


def test_a_step_that_is_written_by_hand_is_a_step(tmp_path: Path) -> None:
    def by_hand(model: Any) -> None:
        weights = list(model.parameters())
        torch._foreach_add_(weights, [one.grad for one in weights], alpha=-0.1)

    assert findings(tmp_path, step_by_hand=by_hand) == {}


def test_a_step_that_nobody_takes_is_told_as_before(tmp_path: Path) -> None:
    assert "critical" in findings(tmp_path, step_by_hand=lambda model: None).values()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("classes", [4, 600])
def test_what_follows_an_output_is_told_without_a_wait(smoothing: float, classes: int) -> None:
    torch.manual_seed(0)
    output = torch.randn(16, classes, requires_grad=True)
    functional.cross_entropy(output, torch.randint(0, classes, (16,)), label_smoothing=smoothing).backward()
    gradient = output.grad.to("meta") if classes > 500 else output.grad  # of the CPU alone a number is asked
    with NothingWaits():
        softmaxes.find(output.detach().to(gradient.device), gradient, 1e-4, smoothing)


def test_where_targets_begin_is_told_without_a_wait() -> None:
    tokens = torch.randint(0, 50, (16, 12))
    with NothingWaits():
        texts.of_ends(tokens, torch.rand(16, 12) > 0.5)


@pytest.mark.parametrize("warm", [0, 3])
def test_what_a_cuda_graph_captures_has_nothing_of_a_watch_in_it(
    warm: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    capturing: list[bool] = []
    monkeypatch.setattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: bool(capturing), raising=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    guest._asked.cache_clear()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    optimizer = torch.optim.Adam(model.parameters())

    class Computed(TorchDispatchMode):
        """Counts what is computed."""

        count = 0

        def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
            Computed.count += 1
            return function(*arguments, **(named or {}))

    def step() -> int:
        Computed.count = 0
        with Computed():
            functional.cross_entropy(model(torch.ones(16, 8)), torch.zeros(16, dtype=torch.long)).backward()
            optimizer.step()
            optimizer.zero_grad()
        return Computed.count

    alone = (step(), step())[1]
    run = barograph.init(dir=str(tmp_path), machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    for _ in range(warm):
        step()
    capturing.append(True)
    counts = [step() for _ in range(3)]
    for number in range(30):
        run.log({"train/loss": 1.0}, step=number)  # of replays, which call no hooks
        time.sleep(0.06)
    run.finish()
    guest._asked.cache_clear()
    watch.CAPTURED.clear()
    assert counts == [alone] * 3
    assert caplog.text.count("a CUDA graph was captured") == 1 and "never stepped" not in caplog.text


@pytest.mark.parametrize("begun", [False, True])
def test_a_question_about_captures_that_is_an_error_ends_no_training(
    begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> bool:
        raise RuntimeError("CUDA driver version is insufficient for CUDA runtime version")

    monkeypatch.setattr(torch._C, "_cuda_isCurrentStreamCapturing", refused, raising=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: begun)
    guest._asked.cache_clear()
    try:
        assert guest._is_plain() and not guest.is_followed()
    finally:
        guest._asked.cache_clear()
