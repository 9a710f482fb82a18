"""The fault bench's scorer: what counts as found, right and false; and other doctors on small hand-made runs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "doctor"))

import reallogs  # noqa: E402
import score  # noqa: E402
from peers import Columns, peers, restated  # noqa: E402
from peers.alarms import incidents  # noqa: E402
from peers.columns import Column  # noqa: E402

from barograph.query.stored import StoredRun  # noqa: E402

SPAN = (0, 200, 1.0, 20.0)  # tolerance: 5% of 200 steps = 10; of what evaluations show: 2 of them = 40


def label(**about: Any) -> dict[str, Any]:
    made = {"program": "dense_gpt", "fault": "learning_rate_jump", "near_miss": False, "onset": 100, "seed": 0,
            "cause": "learning rate too high", "kinds": ["divergence", "spike"], "hard": True,
            "expected_severity": "critical"}  # fmt: skip
    return made | about


HEALTHY = label(fault=None, onset=None, cause=None, kinds=[], hard=False, expected_severity=None)


def finding(**about: Any) -> dict[str, Any]:
    made = {"rule": "divergence", "kind": "divergence", "severity": "warning", "step": 100, "found": 104,
            "message": "the loss rises", "confidence": 0.9, "causes": ["learning rate too high: 30 × the peak"],
            }  # fmt: skip
    return made | about


def figures_of(*pairs: tuple[dict[str, Any], list[dict[str, Any]]]) -> dict[str, Any]:
    plain = {"seconds": 0.0, "error": ""}
    examined = [
        {"trace": str(at), "label": one, "tools": {"barograph": score.judge(found, one, SPAN) | plain}}
        for at, (one, found) in enumerate(pairs)
    ]
    return score.figures(examined, "barograph")


# -- what matches ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("about", "found"),
    [
        ({}, True),
        ({"step": 90, "found": 90}, True),  # the tolerance's last step
        ({"step": 89, "found": 120}, False),
        ({"step": 199, "found": 199}, True),  # late is reported as delay
        ({"kind": "overfit"}, False),
        ({"severity": "info"}, False),
        ({"severity": "critical"}, True),
        ({"kinds": ("plateau", "spike")}, True),
    ],
)
def test_a_fault_is_found_by_kind_severity_and_step(about: dict[str, Any], found: bool) -> None:
    assert score.judge([finding(**about)], label(), SPAN)["found"] is found


def test_two_rows_are_tolerated_where_a_run_has_few() -> None:
    sparse = (0, 200, 40.0, 40.0)
    assert score.judge([finding(step=20)], label(), sparse)["found"]
    assert not score.judge([finding(step=19)], label(), sparse)["found"]


def test_what_evaluations_show_may_begin_two_evaluations_before() -> None:
    overfitted = label(kinds=["overfit"])
    assert score.judge([finding(kind="overfit", step=60)], overfitted, SPAN)["found"]
    assert not score.judge([finding(kind="overfit", step=59)], overfitted, SPAN)["found"]


def test_an_info_counts_only_where_one_is_expected() -> None:
    mild = [finding(severity="info")]
    assert score.judge(mild, label(expected_severity="info"), SPAN)["found"]
    assert not score.judge(mild, label(), SPAN)["found"]
    assert figures_of((HEALTHY, mild))["healthy_alarmed"] == 0


def test_a_finding_without_a_step_matches_by_its_kind_and_one_of_several_steps_is_enough() -> None:
    assert score.judge([finding(step=None, found=None)], label(), SPAN)["found"]
    several = score.judge([finding(step=5, found=None, steps=[5, 103])], label(), SPAN)
    assert several["found"] and several["onset_error"] == 3


# -- what is right -----------------------------------------------------------------------------------------


def test_consequences_are_right_but_no_match_and_what_stands_before_the_onset_is_false() -> None:
    after = finding(kind="nonfinite", rule="non_finite_loss", step=120)
    before = finding(step=30, found=40)
    elsewhere = finding(kind="memory", rule="memory_growth", step=120)
    made = figures_of((label(), [finding(), after, before, elsewhere]))
    assert made["recall"] == 1
    assert (made["precision"], made["precision_strict"]) == (2 / 4, 1 / 4)
    assert made["false_per_1000_steps"] == pytest.approx(1000 / 100)  # `before`, in the 100 steps before the onset


def test_whatever_a_healthy_run_is_told_is_false() -> None:
    near = HEALTHY | {"near_miss": True}
    made = figures_of(
        (HEALTHY, [finding(), finding(kind="spike")]), (HEALTHY, []), (near, [finding()]), (label(), [finding()])
    )
    assert (made["healthy"], made["healthy_alarmed"], made["near_misses"], made["near_misses_alarmed"]) == (3, 2, 1, 1)
    assert made["precision"] == 1 / 4
    assert made["false_per_1000_steps"] == pytest.approx(3 * 1000 / (3 * 201 + 100))


@pytest.mark.parametrize("kind", sorted(score.CONSEQUENCES))
def test_every_consequence_is_a_kind_of_finding(kind: str) -> None:
    from barograph.doctor.kernel.finding import KINDS

    assert kind in KINDS and score.CONSEQUENCES[kind] <= KINDS


# -- delay, cause, confidence ----------------------------------------------------------------------------


def test_the_delay_is_that_of_the_first_match_known() -> None:
    made = figures_of((label(), [finding(found=130), finding(kind="spike", found=112)]), (label(), [finding(found=95)]))
    assert made["delay"] == 6  # of 12 and, known before the onset, 0


def test_only_hard_faults_of_their_own_kind_have_to_be_found_within_one_row() -> None:
    hard = label(kinds=["nonfinite", "desync"])
    at_once, late = finding(kind="nonfinite", found=101), finding(kind="nonfinite", found=103)
    made = figures_of((hard, [at_once]), (hard, [late]), (hard, []), (label(), [finding(found=107)]))
    assert made["at_once_within_one_step"] == 1 / 3
    assert made["delay_other_hard"] == 7


@pytest.mark.parametrize(
    ("causes", "place"),
    [
        (["learning rate too high: 30 × the peak"], 0),
        (["bad batch", "Learning rate too high."], 1),
        (["learning rate too low: it is 0"], None),
        ([], None),
    ],
)
def test_a_cause_is_named_by_what_stands_before_the_colon(causes: list[str], place: int | None) -> None:
    assert score.judge([finding(causes=causes)], label(), SPAN)["cause_place"] == place


def test_the_cause_is_that_of_the_first_ranked_finding_even_if_it_is_false() -> None:
    wrong = finding(kind="memory", causes=["memory leak: 3 MB a step"])
    made = figures_of((label(), [wrong, finding()]), (label(), [finding()]), (label(), []))
    assert made["cause_first"] == made["cause_in_three"] == 1 / 2  # of the two that were found


def test_brier_is_the_mean_square_of_confidence_minus_right() -> None:
    made = figures_of((label(), [finding(confidence=0.9)]), (HEALTHY, [finding(confidence=0.6)]))
    assert made["brier"] == pytest.approx((0.1**2 + 0.6**2) / 2)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.lists(
                st.builds(
                    lambda kind, severity, step: finding(kind=kind, severity=severity, step=step, found=step),
                    st.sampled_from(["divergence", "spike", "nonfinite", "memory", "overfit"]),
                    st.sampled_from(["critical", "warning", "info"]),
                    st.integers(0, 200),
                ),
                max_size=4,
            ),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_one_more_false_alarm_never_helps(runs: list[tuple[bool, list[dict[str, Any]]]]) -> None:
    pairs = [(label() if faulty else HEALTHY, found) for faulty, found in runs]
    here, worse = figures_of(*pairs), figures_of(*pairs, (HEALTHY, [finding()]))
    for name in ("recall", "precision", "precision_strict", "cause_first"):
        assert here[name] is None or 0 <= here[name] <= 1
    assert here["precision_strict"] is None or here["precision_strict"] <= here["precision"]
    assert worse["precision"] < 1 and worse["healthy_alarmed"] == here["healthy_alarmed"] + 1
    assert here["precision"] in (None, 0) or worse["precision"] < here["precision"]
    assert worse["recall"] == here["recall"]


# -- other doctors ---------------------------------------------------------------------------------------------


def make_run(
    folder: Path, name: str, loss: Callable[[int], float], norm: Callable[[int], float] = lambda _: 1.0
) -> Path:
    import barograph

    run = barograph.init(project="dense_gpt", name=name, dir=folder, verbosity=-2, git=False)
    for step in range(200):
        run.log_step(step, epoch=0.0, tokens=64, duration_ms=10.0, norm=norm(step), loss=loss(step), lr=1e-3)
        if step % 20 == 19:
            run.log_eval(step, epoch=0.0, tokens=64, duration_ms=1.0, loss=loss(0) - 0.5)
            run.log_layers(step, {f"blocks.{at}.weight": {"norm": 1.0, "mean": 0.0, "std": 0.1, "nan": 0, "inf": 0}
                                  for at in (0, 2, 10)}, prefix="gradients", advance=False)  # fmt: skip
    run.finish()
    return Path(run.dir)


def calm(step: int) -> float:
    return 3.0 * math.exp(-step / 150) + 1.0 + 0.02 * math.sin(12.9898 * step)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hand-made traces: a calm run, one with a spike at step 150, one that is NaN from step 120 on."""
    root = tmp_path_factory.mktemp("traces")
    names = {
        "calm": (calm, HEALTHY | {"near_miss": True}),
        "spiky": (lambda step: calm(step) + 8.0 * (step == 150), label(onset=150, kinds=["spike"], program="moe_gpt")),
        "broken": (lambda step: calm(step) if step < 120 else math.nan, label(onset=120, kinds=["nonfinite"])),
    }
    labels = {}
    for name, (loss, said) in names.items():
        path = make_run(root, name, loss)
        labels[str(path.relative_to(root))] = said
    (root / "labels.json").write_text(json.dumps(labels))
    return root


def columns_of(folder: Path, name: str) -> Columns:
    return Columns(StoredRun(folder / "dense_gpt" / name))


def test_rows_of_an_export_have_the_validation_loss_where_it_was_measured(folder: Path) -> None:
    columns = columns_of(folder, "calm")
    rows = columns.rows()
    assert [row["step"] for row in rows] == list(range(200))
    assert {row["step"] for row in rows if "eval_loss" in row} == set(range(19, 200, 20))
    assert rows[3] == {
        "step": 3,
        "loss": calm(3),
        "lr": 1e-3,
        "grad_norm": 1.0,
        "step_time": 0.01,
        "tokens_per_s": 6400.0,
    }
    assert list(columns.layers("gradients", "norm")) == ["blocks.0.weight", "blocks.2.weight", "blocks.10.weight"]
    assert score.span_of(columns) == (0, 199, 1.0, 20.0)


@pytest.mark.parametrize("name", ["olmo 6 sigma", "lightning 2x", "wandb-style 4 sigma"])
def test_monitors_of_spikes_see_a_spike_where_it_is_and_nothing_else(name: str, folder: Path) -> None:
    doctor = restated.RESTATED[name]
    assert doctor(columns_of(folder, "calm")) == []
    (seen,) = doctor(columns_of(folder, "spiky"))
    assert seen["step"] == seen["found"] == 150 and "spike" in seen["kinds"] and seen["severity"] == "warning"


@pytest.mark.parametrize("name", sorted(peers()))
def test_every_peer_sees_a_loss_that_is_nan(name: str, folder: Path) -> None:
    found = peers()[name](columns_of(folder, "broken"))
    assert any("nonfinite" in one["kinds"] and one["step"] == 120 for one in found)
    assert all(one["severity"] in ("critical", "warning", "info") and one["kinds"] for one in found)


def test_packages_are_mapped_by_their_own_names() -> None:
    from peers.packages import GRADSNITCH, LOSSLINT

    gradsnitch = pytest.importorskip("gradsnitch")
    checks = pytest.importorskip("losslint.checks")
    assert {code for code, _ in gradsnitch.DETECTORS} == set(GRADSNITCH)
    assert {check.__name__.removeprefix("check_") for check in checks.ALL_CHECKS} | {"parse"} == set(LOSSLINT)


def column(values: list[float]) -> Column:
    return Column(numpy.arange(len(values)), numpy.array(values), numpy.arange(len(values)).astype(float))


def test_thresholds_are_the_published_ones() -> None:
    falling = column([100.0 * 0.9985 ** (row / 10) for row in range(31)])  # by 0.15% each 10 rows
    still = column([100.0 * 0.9995 ** (row / 10) for row in range(31)])  # by 0.05%
    assert not restated._not_decreasing(falling).any()
    assert numpy.flatnonzero(restated._not_decreasing(still)).tolist() == [10, 20, 30]
    assert numpy.flatnonzero(restated._stale(column([1.0] + [0.995] * 12), patience=10, delta=0.01)).tolist() == [
        10,
        11,
        12,
    ]
    assert numpy.flatnonzero(
        restated._gap(column([1.0] * 10), Column(*column([1.0, 1.09, 1.12])[:2], numpy.zeros(3)))
    ).tolist() == [2]
    assert incidents(numpy.array([5, 6, 90, 300, 350]), 100) == [5, 300]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), max_size=60), st.integers(2, 12))
def test_a_window_is_of_the_values_before(values: list[float], window: int) -> None:
    mean, std, count = restated._rolling(numpy.array(values), window)
    for row in range(len(values)):
        before = values[max(row - window, 0) : row]
        assert count[row] == len(before)
        if before:
            assert mean[row] == pytest.approx(numpy.mean(before), abs=1e-6)
            assert std[row] == pytest.approx(numpy.std(before), abs=1e-6)


# -- the whole way -------------------------------------------------------------------------------------------------


def told(path: Path, every: int) -> list[dict[str, Any]]:
    """A doctor that sees the NaN, does not see the spike, and is wrong about nothing else."""
    return [finding(kind="nonfinite", step=120, found=120)] if path.name == "broken" else []


def test_traces_are_scored_with_all_tools_in_one_table(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(score, "_diagnosed", told)
    assert score.main(["--traces", str(folder), "--peers", "--json", "--jobs", "1"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["traces"] == 3 and set(made["tools"]) == {"barograph", *peers()}
    ours = made["tools"]["barograph"]
    assert (ours["recall"], ours["precision"], ours["healthy_alarmed"]) == (0.5, 1.0, 0)
    assert ours["at_once_within_one_step"] == 1 and ours["errors"] == 0
    assert made["missed"] == ["dense_gpt/spiky"] and made["false"] == {}
    assert made["parts"]["held out"]["faults"] == 1 and made["parts"]["tuning"]["faults"] == 1
    assert made["tools"]["olmo 6 sigma"]["recall"] == made["tools"]["olmo 6 sigma"]["precision"] == 1


def test_a_split_holds_only_its_programs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(score, "_diagnosed", told)
    assert score.main(["--traces", str(folder), "--split", "heldout", "--jobs", "1", "--misses"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("1 traces") and "dense_gpt/spiky" in said and "dense_gpt/calm" not in said


def test_a_doctor_that_raises_has_found_nothing_and_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(path: Path, every: int) -> list[dict[str, Any]]:
        raise RuntimeError("a rule is torn")

    monkeypatch.setattr(score, "_diagnosed", broken)
    assert score.main(["--traces", str(folder), "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert "barograph raised 3 times: RuntimeError: a rule is torn" in said


def test_a_folder_without_labels_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score.main(["--traces", str(tmp_path)]) == 2
    assert "labels.json is not there" in capsys.readouterr().err


def test_real_logs_are_read_apart_and_a_hang_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "run.csv"
    log.write_text("step,loss\n" + "".join(f"{step},{3 - step / 100}\n" for step in range(40)))
    (tmp_path / "notes.md").write_text("no log")
    assert reallogs.files_in([tmp_path]) == [log]
    hung = reallogs.look_apart(log, False, 0.01)
    assert "HANGS" in reallogs.lines_of("run.csv", hung, "info")[0]
    assert reallogs.main([str(tmp_path / "absent")]) == 2


def test_real_logs_show_a_finding_a_line() -> None:
    some = [finding(), finding(severity="info", message="a note")]
    run = {"run": "a", "rows": 3, "series": 1, "tools": {"barograph": {"seconds": 0.1, "findings": some, "error": ""}}}
    assert len(reallogs.lines_of("a.csv", {"read_seconds": 0.1, "runs": [run]}, "info")) == 3
    assert len(reallogs.lines_of("a.csv", {"read_seconds": 0.1, "runs": [run]}, "warning")) == 2
    assert len(reallogs.findings_of([finding(step=step) for step in range(9)])) == 1
