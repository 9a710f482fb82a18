"""TrainingMonitor: speedrun-mup's names and arguments, without a run."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.optim import optimizer as optimizer_module  # noqa: E402
from watched_models import Model, gradient_norm, hooks_left, loss_of  # noqa: E402

from barograph.integrations.monitor import TrainingMonitor  # noqa: E402


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model()


def weight_norm(model: nn.Module) -> float:
    return math.sqrt(sum(float(p.detach().double().square().sum()) for p in model.parameters()))


def test_the_norms_come_with_every_call_and_the_rest_at_the_interval(model: Model) -> None:
    monitor = TrainingMonitor(model, monitor_interval=2)
    for step in range(4):
        model.zero_grad()
        loss_of(model).backward()
        metrics = monitor.get_all_metrics(step)
        assert metrics["grad_norm"] == pytest.approx(gradient_norm(model.parameters()), rel=1e-5)
        assert metrics["param_norm"] == pytest.approx(weight_norm(model), rel=1e-5)
        assert (len(metrics) > 2) is (step % 2 == 0) is monitor.should_monitor(step)
        assert ("gradients/head.weight/std" in metrics) is (step % 2 == 0)
    monitor.close()


def test_calls_without_a_step_are_counted(model: Model) -> None:
    monitor = TrainingMonitor(model, 3)
    loss_of(model).backward()
    assert [len(monitor.get_all_metrics()) > 2 for _ in range(7)] == [True, False, False] * 2 + [True]


def test_spectral_norms_have_s1s_names_and_are_near_the_exact_ones(model: Model) -> None:
    monitor = TrainingMonitor(model, 1, enable_spectral_norms=True)
    loss_of(model).backward()
    for step in range(10):
        metrics = monitor.get_all_metrics(step)
    exact = [float(torch.linalg.matrix_norm(p.detach(), 2)) for p in model.parameters() if p.dim() == 2]
    assert metrics["spectral_norm_max"] == pytest.approx(max(exact), rel=0.01)
    assert metrics["spectral_norm_mean"] == pytest.approx(sum(exact) / len(exact), rel=0.01)
    assert metrics["spectral_norm_std"] == pytest.approx(float(torch.tensor(exact).std()), rel=0.05)


def test_activations_have_s1s_names() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    monitor = TrainingMonitor(model, 1, enable_activation_stats=True)
    seen: list[Any] = []
    model[1].register_forward_hook(lambda module, given, output: seen.append(output.detach()))
    model(torch.randn(5, 4)).sum().backward()
    metrics = monitor.get_all_metrics(0)
    assert metrics["1_mean"] == pytest.approx(float(seen[0].mean()), rel=1e-4)
    assert metrics["1_std"] == pytest.approx(float(seen[0].std()), rel=1e-4)
    assert metrics["1_l2_norm"] == pytest.approx(float(seen[0].norm()), rel=1e-4)
    assert {"1_max", "1_min"} <= set(metrics)
    monitor.close()
    assert hooks_left(model) == 1  # the test's own


def test_gradients_that_are_cleared_too_early_are_seen_from_the_next_step_on(
    model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = TrainingMonitor(model, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with caplog.at_level(logging.WARNING, "barograph"):
        for step in range(3):
            loss_of(model).backward()
            expected = gradient_norm(model.parameters())
            optimizer.step()
            optimizer.zero_grad()
            metrics = monitor.get_all_metrics(step)
            if not step:
                assert math.isnan(metrics["grad_norm"])
            else:
                assert metrics["grad_norm"] == pytest.approx(expected, rel=1e-5)
                assert metrics["gradients/head.weight/norm"] > 0
    assert len(caplog.messages) == 1 and "cleared before the monitor was asked" in caplog.messages[0]
    monitor.close()
    assert not optimizer_module._global_optimizer_pre_hooks


def test_a_monitor_that_sees_no_gradients_says_so_once(model: Model, caplog: pytest.LogCaptureFixture) -> None:
    monitor = TrainingMonitor(model, 1)
    with caplog.at_level(logging.WARNING, "barograph"):
        for step in range(6):
            assert math.isnan(monitor.get_all_metrics(step)["grad_norm"])
    monitor.close()
    assert sum("has seen no gradient" in message for message in caplog.messages) == 1


def test_a_model_without_parameters_gives_zero_weights(caplog: pytest.LogCaptureFixture) -> None:
    with TrainingMonitor(nn.ReLU(), 1, True, True) as monitor:
        metrics = monitor.get_all_metrics(0)
    assert metrics["param_norm"] == 0 and math.isnan(metrics["grad_norm"])


def test_nothing_raises_into_the_loop(
    model: Model, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*given: Any, **named: Any) -> Any:
        raise RuntimeError("on purpose")

    monkeypatch.setattr("barograph.integrations.monitor.norms", broken)
    monkeypatch.setattr("barograph.integrations.monitor.stats.tensor_statistics", broken)
    loss_of(model).backward()
    with TrainingMonitor(model, 1) as monitor, caplog.at_level(logging.WARNING, "barograph"):
        metrics = monitor.get_all_metrics(0)
    assert math.isnan(metrics["param_norm"]) and not any(name.startswith("weights/") for name in metrics)
    assert sum("on purpose" in message for message in caplog.messages) == 2


@pytest.mark.parametrize("interval", [0, -1, 2.5, True])
def test_an_interval_that_is_none_is_refused(model: Model, interval: Any) -> None:
    with pytest.raises(ValueError, match="monitor_interval"):
        TrainingMonitor(model, interval)
