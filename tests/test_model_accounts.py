"""What optimizers say of themselves, in real trainings; and what rules make of it."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rule_curves
from test_rules_objective import ROWS, every, warned

import barograph
from barograph.doctor import diagnose
from barograph.doctor.rules.optimizer.accounts import OptimizerCount

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

STEPS = 120


def net() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(12, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 6))


RULE = torch.randn(12, 6, generator=torch.Generator().manual_seed(3))


def warm_cosine(warm: int, steps: int) -> Any:
    def share(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return 0.05 + 0.475 * (1 + math.cos(math.pi * min(1.0, (step - warm) / max(1, steps - warm))))

    return share


def loud(run: Any) -> list[dict[str, Any]]:
    """Warnings and worse."""
    findings = diagnose(barograph.read(str(run.dir))[0])["findings"]
    return [item for item in findings if item["severity"] != "info"]


class Training:
    """A loop with micro-batches, a scheduler, and a stop in the middle after which it goes on in another launch."""

    def __init__(self, folder: Path, **how: Any):
        torch.set_num_threads(1)
        self.how, self.model = how, how.get("model") or net()
        self.parts, self.dice = how.get("parts", 1), torch.Generator().manual_seed(1)
        self.run = barograph.init(
            project="p", name="n", dir=str(folder), console="none", machine=False, sidecar=False, git=False
        )
        self.begin()

    def begin(self) -> None:
        kind = self.how.get("kind", torch.optim.AdamW)
        learning = [item for item in self.model.parameters() if item.requires_grad]
        self.optimizer = kind(learning, lr=self.how.get("lr", 3e-3), weight_decay=self.how.get("decay", 0.01))
        share = self.how.get("share") or warm_cosine(10, STEPS)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)
        self.run.watch(self.model, self.optimizer, **self.how.get("watch", {}))

    def go(self, first: int, last: int) -> None:
        for step in range(first, last + 1):
            self.optimizer.zero_grad()
            whole = 0.0
            for _ in range(self.parts):
                inputs = torch.randn(32, 12, generator=self.dice)
                loss = functional.cross_entropy(self.model(inputs), (inputs @ RULE).argmax(1))
                (loss / self.how.get("divide", self.parts)).backward()
                whole += loss.item() / self.parts
                if self.how.get("each_part"):
                    self.scheduler.step()
            if self.how.get("clears") is not None:
                self.optimizer.zero_grad(set_to_none=self.how["clears"])
            self.optimizer.step()
            if not self.how.get("each_part") and step % self.how.get("every", 1) == 0:
                self.scheduler.step()
            self.run.log({"loss": whole, "lr": self.optimizer.param_groups[0]["lr"]}, step=step)

    def resume(self, *lost: str) -> None:
        """Finish, and go on in another launch without what is lost."""
        kept = copy.deepcopy((self.optimizer.state_dict(), self.scheduler.state_dict()))
        folder = str(self.run.dir)
        self.run.finish()
        self.run = barograph.init(resume=folder, console="none", machine=False, sidecar=False, git=False)
        self.begin()
        if "optimizer" not in lost:
            self.optimizer.load_state_dict(kept[0])
        if "scheduler" not in lost:
            self.scheduler.load_state_dict(kept[1])
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * self.scheduler.lr_lambdas[0](self.scheduler.last_epoch)

    def findings(self) -> dict[str, str]:
        """{rule: its first cause} of warnings and worse; without a cause of those in stories."""
        self.run.finish()
        told = loud(self.run)
        members = [part for item in told for part in item["evidence"].get("story", ())]
        found = {part["rule"]: "" for part in members if part["severity"] != "info"}
        return found | {item["rule"]: item["causes"][0] for item in told}


OURS = {
    "optimizer_count", "schedule_stuck", "schedule_count", "rate_too_low", "decay_dominates", "cleared_gradients",
    "resumed_schedule", "loss_weight", "loss_not_scaled",
}  # fmt: skip


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD, torch.optim.NAdam])
@pytest.mark.parametrize("parts", [1, 3])
def test_a_sound_training_with_a_sound_resume_is_left_alone(tmp_path: Path, kind: Any, parts: int) -> None:
    training = Training(tmp_path, kind=kind, parts=parts, lr=0.1 if kind is torch.optim.SGD else 3e-3)
    training.go(1, 60)
    training.resume()
    training.go(61, STEPS)
    assert not OURS & set(training.findings())


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.NAdam])
@pytest.mark.parametrize("stop", [40, 77])
def test_an_optimizer_that_begins_anew_is_known_by_its_count(tmp_path: Path, kind: Any, stop: int) -> None:
    training = Training(tmp_path, kind=kind)
    training.go(1, stop)
    training.resume("optimizer")
    training.go(stop + 1, STEPS)
    assert training.findings()["optimizer_count"].startswith("optimizer state lost")


@pytest.mark.parametrize("away", [-30, 45])
def test_a_loop_that_goes_on_at_another_step_is_known_by_the_count(tmp_path: Path, away: int) -> None:
    training = Training(tmp_path)
    training.go(1, 60)
    training.resume()
    training.go(61 + away, STEPS + away)
    assert training.findings()["optimizer_count"].startswith("resumed at the wrong step")


def test_a_schedule_that_begins_anew_after_a_resume_is_known_row_by_row(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.go(1, 60)
    training.resume("scheduler")
    training.go(61, STEPS)
    found = training.findings()
    assert found["resumed_schedule"].startswith("schedule restarted") and "optimizer_count" not in found


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ({"every": 10_000}, "scheduler never stepped"),
        ({"every": 40}, "scheduler stepped too seldom"),
        ({"every": 20, "share": warm_cosine(40, 5000)}, "scheduler stepped too seldom"),
        ({"share": warm_cosine(1000, 5000)}, "warm-up never ends"),
    ],
)
def test_a_schedule_that_stays_low_says_why(tmp_path: Path, how: dict[str, Any], cause: str) -> None:
    training = Training(tmp_path, **how)
    training.go(1, STEPS)
    assert training.findings()["schedule_stuck"].startswith(cause)


def test_a_rate_that_the_schedule_itself_makes_small_is_left_alone(tmp_path: Path) -> None:
    training = Training(tmp_path, share=lambda step: 0.01 * min(1.0, (step + 1) / 30))
    training.go(1, STEPS)
    assert "schedule_stuck" not in training.findings()


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize("comes_back", [False, True])
@pytest.mark.parametrize("parts", [2, 4])
def test_a_scheduler_that_is_stepped_at_each_part_is_over_too_early(
    tmp_path: Path, parts: int, comes_back: bool
) -> None:
    wave = {"share": lambda step: 0.5 * (1 + math.cos(math.pi * step / STEPS))} if comes_back else {}
    training = Training(tmp_path, parts=parts, each_part=True, **wave)
    training.go(1, STEPS)
    assert training.findings()["schedule_count"].startswith("scheduler stepped per micro-batch")


def test_a_schedule_that_ends_early_by_its_own_length_is_left_alone(tmp_path: Path) -> None:
    training = Training(tmp_path, parts=2, share=warm_cosine(10, 85))
    training.go(1, STEPS)
    assert "schedule_count" not in training.findings()


@pytest.mark.parametrize(("divide", "warns"), [(1, True), (16, True), (4, False), (2, False)])
def test_parts_that_are_added_are_known_without_a_configuration(tmp_path: Path, divide: int, warns: bool) -> None:
    training = Training(tmp_path, parts=4, divide=divide)
    training.go(1, 30)
    assert ("loss_weight" in training.findings()) == warns


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_that_are_cleared_before_the_step_are_named(tmp_path: Path, to_none: bool) -> None:
    training = Training(tmp_path, clears=to_none)
    training.go(1, 30)
    assert training.findings()["cleared_gradients"].startswith("zero_grad too early")


def test_a_rate_too_low_to_leave_the_initialisation(tmp_path: Path) -> None:
    training = Training(tmp_path, lr=3e-5, watch={"gradients": 10})
    training.go(1, STEPS)
    assert training.findings()["rate_too_low"].startswith("learning rate too low")


def test_a_low_rate_is_right_for_a_model_that_was_trained_before(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.go(1, STEPS)
    training.findings()
    again = Training(tmp_path, model=training.model, lr=3e-5, watch={"gradients": 10})
    again.go(1, STEPS)
    assert "rate_too_low" not in again.findings()


@pytest.mark.parametrize(("decay", "warns"), [(10.0, True), (0.1, False)])
def test_a_decay_that_undoes_the_training(tmp_path: Path, decay: float, warns: bool) -> None:
    training = Training(tmp_path, decay=decay, lr=1e-2, watch={"gradients": 10})
    training.go(1, STEPS)
    found = training.findings()
    assert (
        found.get("decay_dominates", "").startswith("weight decay too high")
        if warns
        else "decay_dominates" not in found
    )


@pytest.mark.parametrize(("half", "scaled", "warns"), [(True, False, True), (True, True, False), (False, False, False)])
def test_fp16_without_a_scaled_loss(tmp_path: Path, half: bool, scaled: bool, warns: bool) -> None:
    torch.set_num_threads(1)
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
    run = barograph.init(
        project="p", name="n", dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(model, optimizer, scaler=scaler if scaled else None)
    for step in range(1, 31):
        with torch.autocast("cpu", dtype=torch.float16 if half else torch.bfloat16):
            output = model(torch.randn(48, 12))
        loss = functional.cross_entropy(output.float(), torch.randint(0, 6, (48,)))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        run.log({"loss": loss.item()}, step=step)
    run.finish()
    told = {
        item["rule"] for item in diagnose(barograph.read(str(run.dir))[0])["findings"] if item["severity"] != "info"
    }
    assert ("loss_not_scaled" in told) == warns


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("scaled", [True, False])
def test_a_scaler_that_steps_by_gradients_of_a_loss_without_its_scale(tmp_path: Path, half: bool, scaled: bool) -> None:
    torch.set_num_threads(1)
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    run = barograph.init(
        project="p", name="n", dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(model, optimizer)
    for step in range(1, 31):
        with torch.autocast("cpu", dtype=torch.float16, enabled=half):
            output = model(torch.randn(48, 12))
        loss = functional.cross_entropy(output.float(), torch.randint(0, 6, (48,)))
        optimizer.zero_grad()
        multiplied = scaler.scale(loss)  # what it returns is easily forgotten
        (multiplied if scaled else loss).backward()
        scaler.step(optimizer)
        scaler.update()
        run.log({"loss": loss.item()}, step=step)
    run.finish()
    found = {item["rule"]: item for item in diagnose(barograph.read(str(run.dir))[0])["findings"]}
    assert ("loss_not_scaled" in found) == (not scaled)
    assert scaled or found["loss_not_scaled"]["causes"][0].startswith("loss not scaled" if not half else "")


class Adapted(nn.Module):
    """A layer with LoRA's two matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.base_layer = nn.Linear(24, 24)
        self.lora_A, self.lora_B = nn.Linear(24, 4, bias=False), nn.Linear(4, 24, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, values: Any) -> Any:
        return self.base_layer(values) + self.lora_B(self.lora_A(values))


@pytest.mark.parametrize("frozen", [True, False])
def test_a_base_that_is_trained_beside_its_adapters_is_named(tmp_path: Path, frozen: bool) -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(12, 24), Adapted(), nn.GELU(), Adapted(), nn.Linear(24, 6))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora" in name or (not frozen and "base" in name))
    training = Training(tmp_path, model=model)
    training.go(1, 20)
    assert training.findings().get("frozen_group", "").startswith("base not frozen") == (not frozen)


@pytest.mark.parametrize("trained", ["one", "both", "one of two that were trained"])
def test_adapters_that_are_frozen_before_they_were_trained_are_named(tmp_path: Path, trained: str) -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(12, 24), Adapted(), nn.GELU(), Adapted(), nn.Linear(24, 6))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora" in name and (trained == "both" or name.startswith("1.")))
    if trained.startswith("one of two"):
        nn.init.normal_(model[3].lora_B.weight)
    training = Training(tmp_path, model=model)
    training.go(1, 20)
    said = training.findings().get("frozen_group", "")
    assert said.startswith("layer frozen: adapters") == (trained == "one")


@pytest.mark.parametrize("used", [True, False])
def test_a_head_that_is_frozen_as_torch_draws_it_is_named(tmp_path: Path, used: bool) -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(12, 64), nn.GELU(), nn.Linear(64, 6))
    if used:  # as after a training
        nn.init.normal_(model[2].weight, std=0.1)
    model[2].requires_grad_(False)
    training = Training(tmp_path, model=model)
    training.go(1, 20)
    assert ("frozen_group" in training.findings()) == (not used)


@pytest.mark.parametrize("zero", [True, False])
def test_factors_that_begin_at_zero_may_grow(tmp_path: Path, zero: bool) -> None:
    torch.manual_seed(2)
    model = nn.Sequential(
        nn.Linear(12, 24), nn.Linear(24, 4, bias=False), nn.Linear(4, 24, bias=False), nn.GELU(), nn.Linear(24, 6)
    )
    for place in (0, 4):
        model[place].requires_grad_(False)
    nn.init.normal_(model[4].weight, std=0.2)
    for place, size in ((1, 0.01), (2, 0.0 if zero else 0.01)):
        nn.init.normal_(model[place].weight, std=size)
    training = Training(tmp_path, model=model, lr=3e-2, watch={"gradients": 5})
    training.go(1, 60)
    assert ("early_growth" in training.findings()) == (not zero)


@pytest.mark.parametrize("width", [0, 400])
def test_tables_of_a_recommender_may_grow_and_a_network_behind_them_may_not(tmp_path: Path, width: int) -> None:
    torch.manual_seed(2)
    table = nn.Embedding(50, 8)
    nn.init.normal_(table.weight, std=0.05)
    layers = [nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1)] if width else []
    for layer in layers[::2]:
        nn.init.normal_(layer.weight, std=0.005)
    model = nn.Sequential(table, *layers)
    run = barograph.init("p", "n", dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False)
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    run.watch(model, optimizer)
    for step in range(40):
        users = torch.randint(50, (32,))
        loss = (model(users).sum(-1) - users.float() / 25).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"train/loss": loss.item()}, step=step)
    run.finish()
    findings = diagnose(barograph.read(str(run.dir))[0])["findings"]
    assert ("early_growth" in [finding["rule"] for finding in findings]) == bool(width)


@pytest.mark.parametrize(
    ("halves", "reach", "causes"),
    [
        (12.0, 0.04, ["updates lost in rounding", "learning rate too low"]),
        (12.0, 0.15, ["learning rate too low"]),  # a step is large enough to be kept
        (0.0, 0.04, ["learning rate too low"]),
    ],
)
def test_steps_that_sixteen_bits_round_away_are_lost_before_they_are_small(
    halves: float, reach: float, causes: list[str]
) -> None:
    looks = np.arange(0, ROWS, 20)
    figures = {"drawn": 1.0, "epsilon": 1e-8, "half_parameters": halves}
    columns = {f"model/{name}": (looks, np.full(len(looks), value)) for name, value in figures.items()}
    columns["model/reach"] = looks, reach * looks / ROWS
    noise = 0.02 * np.random.default_rng(0).normal(size=ROWS)
    for often in (1, ROWS // 40):  # rows of the loss, each step or forty of all
        few = np.arange(0, ROWS, often), (1 + noise)[::often]
        told = warned(columns | {"loss": few})["rate_too_low"]
        assert [cause.partition(":")[0] for cause in told.causes] == causes


@pytest.mark.parametrize(
    ("step", "fall", "more", "told"),
    [
        (2e-5, 0.1, {}, True),
        ([1e-5, 9e-5], 0.1, {}, True),
        ([1e-5, 9e-4], 0.1, {}, False),  # the larger of two looks
        ([1e-5], 0.1, {}, False),
        (1e-3, 0.1, {}, False),  # it moves, and learns little
        (2e-5, 0.6, {}, False),  # a small step is enough for it
        (2e-5, 0.1, {"drawn": 0.0}, False),  # it was trained before
        (2e-5, 0.1, {"clip_coefficient": 1e-4}, False),
        (2e-5, 0.1, {"flow_first_last": 1e-5}, False),
        (2e-5, 0.1, {"epsilon": 1e-8}, False),  # Adam's steps have a bound of their own
    ],
)
def test_steps_without_a_bound_that_lead_nowhere_are_measured(
    step: float | list[float], fall: float, more: dict[str, float], told: bool
) -> None:
    looks = np.arange(0, ROWS, 20)
    figures = {"drawn": 1.0} | more
    columns = {f"model/{name}": (looks, np.full(len(looks), value)) for name, value in figures.items()}
    sizes = np.array(step) if isinstance(step, list) else np.full(len(looks), step)
    columns["model/update_p50"] = looks[: len(sizes)], sizes
    noise = 0.02 * np.random.default_rng(0).normal(size=ROWS)
    found = warned(columns | {"loss": every(1 - fall * np.arange(ROWS) / ROWS + noise)})
    assert ("rate_too_low" in found) is told


@pytest.mark.parametrize(
    ("rate", "more", "told"),
    [
        (5e-5, {}, True),  # 400 × 5e-5 × 2 / 0.1 / 8 = 0.05
        (5e-4, {}, False),
        (5e-5, {"momentum": 0.99}, False),
        (5e-5, {"drawn": 0.0}, False),
        (5e-5, {"second_moment_norm": 1e-3}, False),
    ],
)
def test_rates_and_gradients_that_added_up_are_a_small_part_of_the_weights_are_too_low(
    rate: float, more: dict[str, float], told: bool
) -> None:
    looks = np.arange(0, ROWS, 20)
    figures = {"drawn": 1.0, "momentum": 0.9, "grad_norm": 2.0, "param_norm": 8.0} | more
    columns = {f"model/{name}": (looks, np.full(len(looks), value)) for name, value in figures.items()}
    columns["model/rate_sum"] = looks, rate * (looks + 1.0)
    if "second_moment_norm" in more:
        columns["optimizer/fc.weight/second_moment_norm"] = columns.pop("model/second_moment_norm")
    noise = 0.02 * np.random.default_rng(0).normal(size=ROWS)
    found = warned(columns | {"loss": every(1 - 0.1 * np.arange(ROWS) / ROWS + noise)})
    assert ("rate_too_low" in found) is told


@pytest.mark.parametrize(
    ("kind", "more", "bound"),
    [
        (torch.optim.SGD, {"momentum": 0.9}, True),
        (torch.optim.RMSprop, {"momentum": 0.5}, False),  # a step is divided by the gradient's size
        (torch.optim.AdamW, {}, False),
    ],
)
def test_only_steps_that_follow_the_gradient_are_bounded_by_its_norm(
    tmp_path: Path, kind: Any, more: dict[str, float], bound: bool
) -> None:
    training = Training(tmp_path, kind=lambda items, lr, weight_decay: kind(items, lr=lr, **more))
    training.go(1, 12)
    training.run.finish()
    assert any("model/rate_sum" in name for name in barograph.StoredRun(training.run.dir).names()) is bound


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([(0, 1), (200, 2)], True),
        ([(0, 1)], False),  # momentum was loaded: nothing is said at the second launch
        ([(0, 1), (0, 2)], False),  # another try
        ([(0, 1), (8, 2)], False),
    ],
)
def test_a_momentum_that_begins_anew_after_a_resume_is_seen(rows: list[tuple[int, int]], told: bool) -> None:
    steps = np.arange(400)
    segments = np.where(steps < 200, 1, 2)
    ages = tuple(np.array(part) for part in zip(*((step, 0.0, segment) for step, segment in rows), strict=True))
    curves = {"loss": (steps, rule_curves.falling(400), segments), "model/optimizer_age": ages}
    assert bool(rule_curves.found([OptimizerCount()], curves)) == told


@pytest.mark.parametrize(("pace", "over", "told"), [(2, 0.5, True), (3, 1 / 3, True), (2, 1.0, False), (1, 0.5, False)])
def test_a_scheduler_that_is_stepped_twice_is_over_too_early(pace: int, over: float, told: bool) -> None:
    looks = np.arange(0, ROWS, 10)
    figures = {
        "rate_share": np.maximum(0.0, 1 - looks / (over * ROWS)),
        "scheduler_steps": pace * looks, "scheduled_steps": looks,
    }  # fmt: skip
    columns = {f"model/{name}": (looks, values) for name, values in figures.items()}
    found = warned(columns | {"loss": every(np.linspace(3.0, 2.0, ROWS))})
    assert ("schedule_count" in found) is told
    if told:
        assert found["schedule_count"].causes[0].startswith("scheduler stepped too often")
