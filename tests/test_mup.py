"""The coordinate check passes what follows the paper and fails what doesn't; so does the transfer check."""

from __future__ import annotations

import json
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from mup_models import BASE, CLASSES, GPT, INPUTS, MLP, adam, classes, sentences  # noqa: E402

import barograph  # noqa: E402
from barograph.analysis.widths.fit import fit_line, student_quantile  # noqa: E402
from barograph.analysis.widths.mup import coord_check  # noqa: E402
from barograph.analysis.widths.transfer import compare_widths, transfer_check  # noqa: E402
from barograph.views.draw.board import Board  # noqa: E402
from barograph.views.draw.palette import LINES, rgb  # noqa: E402

WIDTHS = [64, 128, 256, 512]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Any:
    """Small matrices: on a busy machine threads wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def checked(mup: bool, **changes: Any) -> Any:
    """The check of an MLP; `changes` replace its arguments."""
    about = {"batches": classes, "optimizer": adam(3e-3, mup), "steps": 3, "seeds": 4, **changes}
    return coord_check(about.pop("make_model", lambda width: MLP(width, mup)), about.pop("widths", WIDTHS), **about)


def verdicts(check: Any) -> dict[str, str]:
    return {activation.name: activation.verdict for activation in check.activations}


# -- the coordinate check -----------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1e-3, 1e-2])
@pytest.mark.parametrize("steps", [1, 4])
def test_an_mlp_fails_in_the_standard_parametrisation_and_passes_in_mup(rate: float, steps: int) -> None:
    standard = checked(False, optimizer=adam(rate, False), steps=steps)
    mup = checked(True, optimizer=adam(rate, True), steps=steps)
    assert standard.verdict == "fail" and verdicts(standard)["second"] == "growing"
    assert verdicts(standard)["first"] == "flat", "input layers keep their rate in both"
    assert mup.verdict == "pass" and mup.passed and set(verdicts(mup).values()) == {"flat"}
    readout = next(activation for activation in mup.activations if activation.name == "readout")
    assert readout.start.slope == pytest.approx(-0.5, abs=0.15), "it shrinks at the start, and that is right"


def test_a_gpt_fails_in_the_standard_parametrisation() -> None:
    check = coord_check(
        lambda width: GPT(width, False), WIDTHS, batches=sentences, optimizer=adam(1e-2, False), seeds=3
    )
    found = verdicts(check)
    assert check.verdict == "fail"
    assert found["blocks.0.attention.scores"] == found["blocks.1.down"] == found["blocks.0"] == "growing"
    assert found["tokens"] == "flat"


def test_a_gpt_passes_in_mup() -> None:
    check = coord_check(
        lambda width: GPT(width, True), [64, 128, 256, 512], batches=sentences, optimizer=adam(1e-2, True), seeds=6
    )
    assert check.verdict == "pass", check.text()
    assert verdicts(check)["blocks.1.attention.scores"] == verdicts(check)["readout"] == "flat"


def test_one_wrong_rule_is_enough_to_fail() -> None:
    rates = checked(True, optimizer=adam(3e-3, False))  # hidden rates not divided by the width
    assert rates.verdict == "fail" and verdicts(rates)["third"] == "growing"

    def without_factor(width: int) -> MLP:
        model = MLP(width, True)
        model.readout.factor = 1.0
        return model

    assert verdicts(checked(True, make_model=without_factor))["readout"] == "growing"

    def same_deviation(width: int) -> MLP:  # as GPT-2 draws its weights
        model = MLP(width, True)
        for layer in (model.second, model.third):
            torch.nn.init.normal_(layer.weight, std=0.1)
        return model

    start = checked(True, make_model=same_deviation)
    assert start.verdict == "fail" and "at the start" in start.sentence()

    def lazy(model: Any, width: int) -> Any:  # rates that fall too fast: nothing is learned in the limit
        return torch.optim.Adam(model.parameters(), lr=3e-3 * (BASE / width) ** 1.5)

    assert verdicts(checked(True, optimizer=lazy))["first"] == "shrinking"


def test_attention_scaled_by_the_square_root_grows_half_a_power_faster() -> None:
    slopes = []
    for root in (False, True):

        def make(width: int, root: bool = root) -> GPT:
            model = GPT(width, True)
            for block in model.blocks:
                block.attention.scale = (width // 4) ** -0.5 if root else block.attention.scale
            return model

        about = {"batches": sentences, "optimizer": adam(1e-2, True), "modules": ["*.scores"], "seeds": 3}
        check = coord_check(make, WIDTHS, **about)
        slopes.append([activation.change.slope for activation in check.activations])
        assert not root or not check.passed
    assert [after - before for before, after in zip(*slopes, strict=True)] == pytest.approx([0.5, 0.5], abs=0.2)


def test_the_same_seeds_give_the_same_and_the_generator_is_left_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, other = checked(True, seeds=[3, 4]), checked(True, seeds=[3, 4])
    assert torch.equal(before, torch.random.get_rng_state())
    assert one.to_json() == other.to_json() and one.seeds == (3, 4)
    assert one.to_json() != checked(True, seeds=[3, 5]).to_json()


def test_values_are_those_of_a_training_by_hand() -> None:
    check = checked(True, seeds=[7], steps=2, measure="rms")
    torch.manual_seed(7)
    model = MLP(64, True)
    stepper = adam(3e-3, True)(model, 64)
    batch = classes(0, 7)
    seen = [model(batch[0])]
    for _ in range(2):
        stepper.zero_grad()
        torch.nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
        stepper.step()
        seen.append(model(batch[0]))
    table = check.values["readout"][:, :, 0, WIDTHS.index(64)]
    for step, x in enumerate(seen):
        for quantity, value in enumerate((x.detach(), (x - seen[0]).detach())):
            expected = [value.abs().mean(), value.std(correction=0), value.square().mean().sqrt()]
            assert table[quantity, :, step].tolist() == pytest.approx([float(e) for e in expected], rel=1e-5)
    assert check.series("readout", "size", 0)[0] == pytest.approx(float(seen[0].detach().square().mean().sqrt()))


def test_widths_that_break_are_said_to_be_non_finite() -> None:
    class Broken(torch.nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.inner = MLP(width, True)
            self.factor = math.nan if width > 200 else 1.0

        def forward(self, x: Any) -> Any:
            return self.inner(x) * self.factor

    check = checked(True, make_model=Broken)
    assert check.verdict == "fail" and verdicts(check)["output"] == "non-finite"
    assert json.loads(check.to_json())["values"]["output"][0][0][0][3][0] is None


def test_what_never_moves_is_no_fault_and_no_proof() -> None:
    def frozen(model: Any, width: int) -> Any:
        return torch.optim.SGD(model.parameters(), lr=0.0)

    check = checked(True, optimizer=frozen)
    assert set(verdicts(check).values()) == {"unmoved"} and check.verdict == "unclear"
    assert "nothing moved" in check.sentence() and "nothing moved" in check.text()
    assert check.plot is not None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"widths": [32, 64, 128]}, "needs 4 different widths"),
        ({"widths": [32, 32, 64, 128]}, "needs 4 different widths"),
        ({"widths": ["32", 64, 128, 256]}, "needs 4 different widths"),
        ({"batches": []}, "needs a batch at least"),
        ({"seeds": 0}, "one seed at least"),
        ({"steps": 0}, "one optimizer step"),
        ({"measure": "median"}, "one of mean_abs, std, rms"),
        ({"modules": ["no such"]}, "no module that was looked at"),
    ],
)
def test_a_check_that_makes_no_sense_is_refused_with_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        checked(True, **changes)


def test_no_hook_is_left_and_the_mode_is_as_it_was() -> None:
    made: list[Any] = []

    def make(width: int) -> MLP:
        made.append(MLP(width, True).train())
        return made[-1]

    checked(True, make_model=make, seeds=1)
    assert all(model.training and not any(part._forward_hooks for part in model.modules()) for model in made)


# -- pictures and records -----------------------------------------------------------------------------


def pixels(data: bytes) -> numpy.ndarray[Any, Any]:
    """A PNG read by its rules: signature, chunks with checksums, one filter byte a row."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, parts = 8, {}
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + body),)
        parts[kind], at = body, at + 12 + length
    width, height = struct.unpack(">II", parts[b"IHDR"][:8])
    rows = numpy.frombuffer(zlib.decompress(parts[b"IDAT"]), "uint8").reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


def test_the_picture_is_a_png_with_lines_in_it(tmp_path: Path) -> None:
    check = checked(False)
    path = check.plot(tmp_path / "check.png")
    image = pixels(path.read_bytes())
    assert image.shape[1] >= 720 and (image == 255).all(-1).mean() > 0.8
    assert ((image == rgb(LINES[2])).all(-1)).sum() > 100, "a line in its colour"
    assert path.read_bytes() == check.plot(tmp_path / "again.png").read_bytes()


def test_a_line_on_the_board_is_where_it_was_drawn() -> None:
    board = Board(20, 10)
    board.line(2.5, 5.5, 17.5, 5.5, (0, 0, 0), 1.0)
    board.line(math.nan, 0, 5, 5, (0, 0, 0))
    board.line(100, 100, 200, 200, (0, 0, 0))
    image = pixels(board.save())
    assert (image[5, 3:17] == 0).all() and (image[[0, 1, 2, 8, 9]] == 255).all()


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_text_fits_its_columns_and_names_every_activation(columns: int) -> None:
    check = checked(False)
    lines = check.text(columns).splitlines()
    assert max(map(len, lines)) <= columns and all(line.isascii() for line in lines)
    for letter, name in zip("abcd", ("first", "second", "third", "readout"), strict=True):
        assert any(line.startswith(f"{letter} {name}") for line in lines)
    plot = "\n".join(lines[lines.index("") + 7 :])
    assert all(letter in plot for letter in "abc")


def test_json_and_records_hold_what_the_check_found(tmp_path: Path) -> None:
    check = checked(True)
    about = json.loads(check.to_json(tmp_path / "check.json"))
    assert about == json.loads((tmp_path / "check.json").read_text())
    assert about["verdict"] == "pass" and about["widths"] == WIDTHS
    assert numpy.array(about["values"]["third"]).shape == (2, 3, 4, 4, 4)
    with barograph.init(project="mup", dir=str(tmp_path), verbosity=-2, git=False) as run:
        check.record(run, 5)
    (stored,) = barograph.runs(dir=str(tmp_path), project="mup")
    assert stored.series("mup/third/slope").value.tolist() == [check.activations[2].change.slope]


# -- lines --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dof", "confidence", "expected"),  # from the table of any textbook
    [(1, 0.95, 12.706), (2, 0.95, 4.303), (3, 0.99, 5.841), (7, 0.95, 2.365), (10, 0.9, 1.812), (1000, 0.95, 1.962)],
)
def test_students_quantiles_are_those_of_the_tables(dof: int, confidence: float, expected: float) -> None:
    assert student_quantile(confidence, dof) == pytest.approx(expected, abs=6e-4)


@given(slope=st.floats(-3, 3), shifts=st.lists(st.floats(-5, 5), min_size=2, max_size=4), seed=st.integers(0, 99))
def test_a_line_is_found_whatever_each_seed_is_shifted_by(slope: float, shifts: list[float], seed: int) -> None:
    noise = numpy.random.default_rng(seed).normal(0, 1e-3, (len(shifts), 5))
    x = [float(place) for _ in shifts for place in range(5)]
    y = [slope * place + shift + noise[at, place] for at, shift in enumerate(shifts) for place in range(5)]
    line = fit_line(x, y, [at for at in range(len(shifts)) for _ in range(5)])
    assert line.slope == pytest.approx(slope, abs=3e-3) and line.low <= line.slope <= line.high
    assert line.dof == len(x) - len(shifts) - 1


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    drawn = numpy.random.default_rng(0).normal(size=(1000, 8))
    inside = sum(line.low <= 0 <= line.high for line in (fit_line(range(8), row) for row in drawn.tolist()))
    assert 925 <= inside <= 975


def test_too_few_points_have_no_interval() -> None:
    assert fit_line([0, 1], [1, 3])[:3] == (2, -math.inf, math.inf)
    assert math.isnan(fit_line([1, 1], [1, 2]).slope) and math.isnan(fit_line([], []).slope)


# -- the transfer check -------------------------------------------------------------------------------


def valley(exponent: float, widths: tuple[int, ...] = (64, 128, 256, 512)) -> list[tuple[int, float, float]]:
    """Losses with their lowest point at 0.01 × (width / 64) ^ exponent."""
    best = {width: math.log2(0.01) + exponent * math.log2(width / 64) for width in widths}
    rates = [2.0**octave for octave in range(-14, -1)]
    return [(width, rate, 3 + 0.1 * (math.log2(rate) - best[width]) ** 2) for width in widths for rate in rates]


@given(exponent=st.floats(-1.2, 0.5))
def test_the_parabolas_vertex_is_found_and_its_slope(exponent: float) -> None:
    check = transfer_check(valley(exponent))
    assert check.slope == pytest.approx(exponent, abs=1e-6)
    for best in check.optima:
        assert best.rate == pytest.approx(0.01 * (best.width / 64) ** exponent) and best.loss == pytest.approx(3)
        assert best.low < best.rate < best.high
    expected = "stays" if abs(exponent) < 0.2 else "moves" if abs(exponent) > 0.51 else check.verdict
    assert check.verdict == expected


def test_the_cost_of_the_narrow_models_rate_is_told() -> None:
    check = transfer_check(valley(-1.0))
    assert check.verdict == "moves" and check.cost == pytest.approx(0.1 * 3**2, abs=0.03)
    assert "costs the widest 0.9" in check.sentence() and "moves with width" in check.text()
    assert json.loads(check.to_json())["optima"][0]["width"] == 64


def test_diverged_trainings_and_seeds_are_counted_as_they_are() -> None:
    table = valley(0.0)
    spoilt = [(width, rate, math.nan if rate > 0.1 else loss) for width, rate, loss in table]
    check = transfer_check(spoilt + [(width, rate, loss + 0.01) for width, rate, loss in table if rate <= 0.1])
    assert check.verdict == "stays" and {best.diverged for best in check.optima} == {2}


def test_a_best_rate_at_the_edge_settles_nothing() -> None:
    check = transfer_check([row for row in valley(0.0) if row[1] < 0.004])
    assert check.verdict == "unclear" and all(best.at_edge and best.high is None for best in check.optima)
    assert "try more rates at width 64" in check.sentence()


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ([], "3 widths or more, not 0"),
        (valley(0.0, (64, 128)), "3 widths or more, not 2"),
        ([(64, 0.1, 1.0), (64, 0.2, 1.0)], "needs 3 rates or more"),
        ([(64, rate, math.nan) for rate in (0.1, 0.2, 0.3)], "0 learning rates with a finite loss out of 3"),
        ([(64, 0.0, 1.0)], "above 0"),
        ([(64, 0.1)], "a training is a stored run or three numbers"),
        ([(64, "fast", 1.0)], "a training is a stored run or three numbers"),
    ],
)
def test_too_little_to_go_by_is_refused_with_a_sentence(table: list[Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        transfer_check(table)


def test_stored_runs_are_tables_too(tmp_path: Path) -> None:
    for width in (64, 128, 256):
        for rate in (0.005, 0.01, 0.02):
            loss = 3 + math.log2(rate / 0.01) ** 2 - width / 1000
            config = {"model": {"width": width}, "lr": rate}
            about = {"dir": str(tmp_path), "verbosity": -2, "git": False, "config": config}
            with barograph.init(project="sweep", name=f"w{width}-{rate}", **about) as run:
                run.log_step(1, 0.1, 1000, 10, 1.0, loss + 1, rate)
                run.log_step(2, 0.2, 1000 if width > 64 else 500, 10, 1.0, loss, rate)
                run.log_eval(2, 0.2, 100, 1, loss)
    runs = barograph.runs(dir=str(tmp_path), project="sweep")
    check = transfer_check(runs, width="model.width")
    assert [best.width for best in check.optima] == [64, 128, 256] and check.slope == pytest.approx(0)
    assert {round(best.rate, 9) for best in check.optima} == {0.01}
    rows = compare_widths(runs, width="model/width")
    assert len(rows) == 9 and {row["tokens"] for row in rows} == {1500}
    assert rows[0] == {"width": 64, "rate": 0.01, "tokens": 1500, "loss": pytest.approx(3 - 0.064)}
    assert rows[3]["loss"] == pytest.approx(4 - 0.128), "the last loss at no more than 1500 tokens"
    with pytest.raises(ValueError, match="no number 'breadth'"):
        transfer_check(runs, width="breadth")
    with pytest.raises(ValueError, match="has no series 'nothing'"):
        transfer_check(runs, width="model.width", loss="nothing")
    assert compare_widths(runs, width="model.width", loss="nothing") == []


@pytest.mark.parametrize(("tokens", "unit"), [((1000, 1000), "tokens"), ((0, 0), "steps"), ((1000, 0), "steps")])
@pytest.mark.parametrize("config", [{"lr": 0.01}, {}])
def test_widths_are_compared_whatever_else_the_runs_say(
    tmp_path: Path, tokens: tuple[int, int], unit: str, config: dict[str, float]
) -> None:
    for width, count in zip((64, 128), tokens, strict=True):
        about = {"dir": str(tmp_path), "verbosity": -2, "git": False, "config": {"width": width, **config}}
        with barograph.init(project="sweep", name=f"w{width}", **about) as run:
            for step in range(1, 6):
                with run.step(step=step, **({"tokens": count} if count else {})) as timed:
                    timed.set(loss=64 / width + 1 / step)
    rows = compare_widths(barograph.runs(dir=str(tmp_path), project="sweep"), loss="train/loss", width="width")
    assert [(row["width"], unit in row, "rate" in row) for row in rows] == [
        (64, True, bool(config)),
        (128, True, bool(config)),
    ]


@pytest.mark.slow
def test_the_best_rate_of_real_trainings_stays_in_mup_and_moves_without() -> None:
    def batch(seed: int) -> tuple[Any, Any]:  # a linear teacher, whose answers are noisy
        generator = torch.Generator().manual_seed(seed)
        x, teacher = (torch.randn(size, generator=generator) for size in ((256, INPUTS), (INPUTS, CLASSES)))
        return x, (x @ teacher + 3 * torch.randn(256, CLASSES, generator=generator)).argmax(-1)

    def final(width: int, rate: float, mup: bool, seed: int) -> float:
        torch.manual_seed(seed)
        model, (x, y) = MLP(width, mup), batch(seed)
        stepper = adam(rate, mup)(model, width)
        for _ in range(10):
            stepper.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            stepper.step()
        with torch.no_grad():
            return torch.nn.functional.cross_entropy(model(x), y).item()

    rates, widths = [2.0**octave for octave in range(-12, -2)], (64, 128, 256, 512)
    found = {
        mup: transfer_check((w, rate, final(w, rate, mup, s)) for w in widths for rate in rates for s in range(3))
        for mup in (False, True)
    }
    assert found[True].verdict == "stays", found[True].text()
    assert found[False].verdict == "moves" and found[False].slope < -0.8, found[False].text()
    assert found[False].cost > 1 > 10 * found[True].cost


@pytest.mark.parametrize("direction", [1, -1])
def test_a_best_rate_at_the_edge_bounds_one_side(direction: int) -> None:
    rates = [2.0 ** (direction * octave) for octave in range(-13, -5)]
    centre = 2.0 ** (direction * -10)
    table = [
        (width, rate, 3 + 0.1 * (math.log2(rate / centre) + direction * math.log2(width / 64)) ** 2)
        for width in (64, 128, 256, 512)
        for rate in rates
    ]  # the last one's best rate is the first that was tried
    check = transfer_check(table)
    assert check.optima[-1].at_edge and check.verdict == "moves" and check.slope == pytest.approx(-direction)
    open_side, bound = (check.low, check.high) if direction > 0 else (check.high, check.low)
    assert math.isinf(open_side) and -direction * bound > 0.5
    assert "inf" not in check.text() and ("at most -0." if direction > 0 else "at least +0.") in check.sentence()


def test_widths_are_compared_without_a_rate_and_without_tokens(tmp_path: Path) -> None:
    for width, steps in ((64, 10), (128, 20)):
        about = {"dir": str(tmp_path), "verbosity": -2, "git": False, "machine": False, "config": {"width": width}}
        with barograph.init(project="sweep", name=f"w{width}", **about) as run:
            for step in range(1, steps + 1):
                run.log({"train/loss": width / step}, step=step)
    rows = compare_widths(barograph.runs(dir=str(tmp_path), project="sweep"))
    assert rows == [{"width": 64, "steps": 10, "loss": 6.4}, {"width": 128, "steps": 10, "loss": 12.8}]


class Multiplied(torch.nn.Module):
    """A muP MLP whose readout is multiplied behind the matrix, as many codes have it."""

    def __init__(self, width: int, power: float):
        super().__init__()
        self.first, self.hidden = torch.nn.Linear(INPUTS, width), torch.nn.Linear(width, width)
        self.out, self.factor = torch.nn.Linear(width, CLASSES, bias=False), (64 / width) ** power
        torch.nn.init.normal_(self.out.weight, std=1 / 8)
        torch.nn.init.normal_(self.hidden.weight, std=width**-0.5)

    def forward(self, x: Any) -> Any:
        return self.out(torch.relu(self.hidden(torch.relu(self.first(x))))) * self.factor


@pytest.mark.parametrize(("power", "verdict"), [(1.0, "pass"), (0.0, "fail")])
def test_a_multiplier_behind_a_layer_belongs_to_it(power: float, verdict: str) -> None:
    def stepper(model: Any, width: int) -> Any:
        groups = [
            {"params": model.hidden.parameters(), "lr": 1e-2 * 64 / width},
            {"params": [*model.first.parameters(), *model.out.parameters()], "lr": 1e-2},
        ]
        return torch.optim.Adam(groups)

    torch.manual_seed(0)
    batches = [(torch.randn(64, INPUTS), torch.randint(0, CLASSES, (64,))) for _ in range(5)]
    widths = [64, 128, 256, 512]
    check = coord_check(lambda width: Multiplied(width, power), widths, batches=batches, optimizer=stepper, seeds=3)
    assert check.verdict == verdict, check.sentence()
    assert ({each.name: each.verdict for each in check.activations}["out"] == "rescaled") == (power == 1.0)
