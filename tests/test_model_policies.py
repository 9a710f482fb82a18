"""What the graph of a policy's loss says of its products; what is made of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from test_rules_objective import ROWS, STEP, every, of_graph, warned

torch = pytest.importorskip("torch")
from torch import Tensor  # noqa: E402
from torch.distributions import Categorical, Normal  # noqa: E402
from torch.nn import functional  # noqa: E402

from barograph.probes.model import policies  # noqa: E402

COUNT = 10
ACTIONS = torch.randint(0, 4, (COUNT,), generator=torch.Generator().manual_seed(0))
GAINS, OLD = torch.randn(COUNT), torch.full((COUNT,), -1.0)
NAMES = ("policy_crossed", "likelihood", "ratio_of_chances", "ratio_not_raised", "ratio_greater", "greatest_trained")


def log(x: Tensor) -> Tensor:
    return Categorical(logits=x).log_prob(ACTIONS)


def clipped(ratio: Tensor, gains: Tensor = GAINS, least: Callable[..., Tensor] = torch.min) -> Tensor:
    return -least(ratio * gains, ratio.clamp(0.8, 1.2) * gains).mean()


@pytest.mark.parametrize(
    ("loss_of", "said"),
    [
        (lambda x: -(log(x) * GAINS).mean(), {}),
        (lambda x: -(log(x) * GAINS).mean() - 0.01 * Categorical(logits=x).entropy().mean(), {}),
        (lambda x: (-x.log_softmax(1).gather(1, ACTIONS[:, None]).squeeze(1) * GAINS).sum(), {}),
        (lambda x: -(Categorical(x.softmax(1)).log_prob(ACTIONS) * GAINS).mean(), {}),
        (lambda x: -(Normal(x[:, 0], 1.0).log_prob(GAINS) * GAINS).mean(), {}),
        (lambda x: -(x.softmax(1) * torch.randn(COUNT, 4)).sum(1).mean(), {}),  # expected over all actions
        (lambda x: functional.mse_loss(x.gather(1, ACTIONS[:, None])[:, 0], GAINS), {}),
        (lambda x: functional.cross_entropy(x, ACTIONS), {}),
        (lambda x: -(log(x)[:, None] * GAINS).mean(), {"policy_crossed": 10.0}),
        (lambda x: -(x.log_softmax(1).gather(1, ACTIONS[:, None]) * GAINS).mean(), {"policy_crossed": 10.0}),
        (lambda x: -(x.softmax(1).gather(1, ACTIONS[:, None])[:, 0] * GAINS).mean(), {"likelihood": 1.0}),
        (lambda x: -(x.gather(1, ACTIONS[:, None])[:, 0] * GAINS).mean(), {"likelihood": 2.0}),
        (lambda x: -(x[torch.arange(COUNT), ACTIONS] * GAINS).mean(), {"likelihood": 2.0}),
        (lambda x: clipped((log(x) - OLD).exp()), {}),
        (lambda x: clipped(torch.exp(log(x) - OLD)) + 0.5 * (x[:, 0] - GAINS).pow(2).mean(), {}),
        (lambda x: clipped(x.softmax(1).gather(1, ACTIONS[:, None])[:, 0] / OLD.exp()), {}),
        (lambda x: torch.max(-GAINS * (log(x) - OLD).exp(), -GAINS * (log(x) - OLD).exp().clamp(0.8, 1.2)).mean(), {}),
        (lambda x: clipped((log(x) - OLD).exp()[:, None]), {"policy_crossed": 10.0}),
        (lambda x: clipped(log(x) - OLD), {"ratio_not_raised": 1.0}),
        (lambda x: clipped((x.softmax(1).gather(1, ACTIONS[:, None])[:, 0] - OLD).exp()), {"ratio_of_chances": 1.0}),
        (lambda x: clipped((log(x) - OLD).exp(), least=torch.max), {"ratio_greater": 1.0}),
        (lambda x: functional.smooth_l1_loss(x.max(1).values, GAINS), {"greatest_trained": 1.0}),
        (lambda x: (x.max(1)[0] - GAINS).pow(2).mean(), {"greatest_trained": 1.0}),
        (lambda x: functional.mse_loss(x[:, :1].max(1).values, GAINS), {}),
    ],
)  # fmt: skip
def test_products_that_no_policy_means_are_seen(loss_of: Callable[[Tensor], Tensor], said: dict[str, float]) -> None:
    weight = torch.randn(6, 4, requires_grad=True)
    loss = loss_of(torch.addmm(torch.zeros(4), torch.randn(COUNT, 6), weight))
    found = policies.figures(loss.grad_fn)
    assert {name: found[name] for name in NAMES if found.get(name)} == said


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize("name", NAMES)
def test_what_the_graph_proves_is_said_where_a_reward_is_logged(name: str, rows: int) -> None:
    columns = {"loss": every(np.cos(STEP)), "reward": every(np.sin(STEP))}
    found = warned(columns | of_graph(**{name: 1.0}), rows)
    assert found["policy_terms"].severity == "critical" and found["policy_terms"].step == 0
    assert "policy_terms" not in warned(columns | of_graph(**{name: 0.0}), rows)
    assert "policy_terms" not in warned({"loss": columns["loss"]} | of_graph(**{name: 1.0}), rows)
