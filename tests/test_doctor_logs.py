"""The examination on logs: what its formats write is read back, its labels hold, and a seed gives one set of files."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import barograph
from barograph.doctor import diagnose
from barograph.doctor.kernel.finding import KINDS
from barograph.query.stored import StoredRun

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks" / "doctor"))

import examine_logs
from logs.case import ALIKE, GROUPS, HEALTHY, TEXT, TROUBLE, trouble
from logs.curves import Training, by_epoch, training
from logs.examination import FAMILIES, SPLITS, Verdict, cases, judge, write_examination
from logs.formats import (
    FORMATS,
    NEWER_EPOCHS,
    NEWER_FORMATS,
    NEWER_STEPS,
    TELL_EPOCHS,
    TELL_EVALUATIONS,
    TELL_STEPS,
    format_of,
    write,
)
from logs.newer_curves import RATES, epochs_of, led, policy_of, rates

DIGITS = {"progress_bar": 0.006, "fairseq": 6e-4}  # the half of the last digit that is printed, as a part; else 1e-4
FAULTY = {"rule": "loss_spike", "kind": "spike", "severity": "warning", "step": 500, "message": "The loss jumped"}


def loss_in(run: StoredRun, name: str = "train/loss") -> np.ndarray:
    """A stored series, (rows,)."""
    return np.asarray(run.series(name).value)


@pytest.mark.parametrize("name", TELL_STEPS)
def test_a_training_in_steps_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    one = training(np.random.default_rng(1), 240, 10, start=4.6, end=1.1, evaluate_every=200)
    (run,) = barograph.read(write(one, name, tmp_path / "made"))
    series = run.series("train/loss")
    np.testing.assert_allclose(series.value, one.loss, rtol=DIGITS.get(name, 1e-4))
    steps = np.asarray(series.step)
    shift = steps[0]  # a format may count from 0 or from 1
    assert shift in (0, FORMATS[name].steps_a_row or 1)
    np.testing.assert_array_equal(steps - shift, FORMATS[name].steps(one))


@pytest.mark.parametrize("name", TELL_EVALUATIONS)
def test_evaluations_are_read_beside_it(name: str, tmp_path: Path) -> None:
    one = training(np.random.default_rng(2), 240, 10, start=4.6, end=1.1, evaluate_every=200)
    (run,) = barograph.read(write(one, name, tmp_path / "made"))
    seen = [evaluation for _, evaluation in one.evaluations.values()]
    np.testing.assert_allclose(loss_in(run, "eval/loss"), seen, rtol=6e-4)


@pytest.mark.parametrize("name", TELL_EPOCHS)
def test_a_training_in_epochs_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    loss = 2 * np.exp(-np.arange(40) / 15) + 0.3
    one = by_epoch(loss, loss + 0.2, 1 - loss / 3, 0.9 - loss / 3)
    (run,) = barograph.read(write(one, name, tmp_path / "made"))
    np.testing.assert_allclose(loss_in(run), loss, atol=6e-5)
    np.testing.assert_allclose(loss_in(run, "eval/loss"), loss + 0.2, atol=6e-5)


def test_every_case_is_labelled_well() -> None:
    from logs import alike, healthy, troubles

    assert len(FAMILIES) == sum(len(module.FAMILIES) for module in (alike, healthy, troubles)), "two of one name"
    groups = {group: 0 for group in GROUPS}
    for name, told, case in cases(seed=5, each=2):
        one, steps = case.training, FORMATS[told].steps(case.training)
        label = case.label(steps)
        groups[label["group"]] += 1
        assert set(case.formats) <= set(FORMATS), name
        assert all(len(values) == one.rows == len(one.loss) for values in one.columns.values()), name
        assert set(one.evaluations) <= set(one.step.tolist()), name
        assert set(label["kinds"]) <= KINDS, name
        assert bool(label["kinds"]) == (label["group"] == TROUBLE), name
        if case.onset is not None:
            assert 0 < case.onset[0] <= case.onset[1] < one.rows, name
            assert min(steps) < label["window"][1] and label["window"][0] < max(steps), name
    assert all(count >= 2 * 10 for count in groups.values())


@pytest.mark.parametrize("split", ["open", "putaway"])
def test_every_case_of_the_second_set_is_labelled_well(split: str) -> None:
    others = {name for other, families in SPLITS.items() if other != split for name in families}
    assert not others & set(SPLITS[split]), "a family of that name is in another set"
    seen: dict[str, set[str]] = {}
    for name, told, case in cases(seed=5, each=2, split=split):
        one, steps = case.training, format_of(told).steps(case.training)
        label = case.label(steps)
        seen.setdefault(label["group"], set()).add(name.rpartition("-")[0])
        assert all(len(values) == one.rows == len(one.loss) for values in one.columns.values()), name
        assert set(one.evaluations) <= set(one.step.tolist()), name
        assert set(label["kinds"]) <= KINDS and bool(label["kinds"]) == (label["group"] == TROUBLE), name
        assert bool(one.rows) == (label["group"] != TEXT), name
        assert {told in FORMATS or told in NEWER_FORMATS for told in case.formats} == {True}, name
        if case.onset is not None:
            assert 0 < case.onset[0] <= case.onset[1] < one.rows, name
            assert min(steps) < label["window"][1] and label["window"][0] < max(steps), name
    assert len(seen[TROUBLE]) >= 15 and len(seen[HEALTHY] | seen[ALIKE]) >= 8 and len(seen[TEXT]) >= 8


def test_a_case_of_the_second_set_is_the_same_with_its_seed(tmp_path: Path) -> None:
    some = ["slow_rise", "three_epochs", "settings"]
    for folder, seed in (("first", 3), ("again", 3), ("other", 4)):
        write_examination(seed, 1, tmp_path / folder, some, "open")
    first, again, other = (contents(tmp_path / folder) for folder in ("first", "again", "other"))
    assert len(first) == len(some) + 1 and first == again != other


@pytest.mark.parametrize("name", [*NEWER_STEPS, "keyed"])
def test_a_newer_format_in_steps_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    one = led(np.random.default_rng(1), 260, 10, start=4.6, end=1.1)
    (run,) = barograph.read(write(one, name, tmp_path / "made"))
    series = run.series("metrics/loss" if name == "json_messages" else "train/loss")
    np.testing.assert_allclose(series.value, one.loss, rtol=6e-4)
    np.testing.assert_array_equal(series.step, format_of(name).steps(one))


@pytest.mark.parametrize("name", [*(name for name in NEWER_EPOCHS if name in NEWER_FORMATS), "epochs_short"])
def test_a_newer_format_in_epochs_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    one = epochs_of(np.random.default_rng(2), 40, start=2.2, end=0.4)
    (run,) = barograph.read(write(one, name, tmp_path / "made"))
    np.testing.assert_allclose(loss_in(run), one.loss, atol=6e-5)
    if name != "epochs_short":
        np.testing.assert_allclose(loss_in(run, "eval/loss"), [seen for _, seen in one.evaluations.values()], atol=6e-5)


def test_evaluations_perplexities_and_rewards_alone_are_read(tmp_path: Path) -> None:
    dice = np.random.default_rng(3)
    one = led(dice, 240, 10, start=4.6, end=1.2, evaluations=12)
    (run,) = barograph.read(write(one, "validations", tmp_path / "validations"))
    np.testing.assert_allclose(loss_in(run, "eval/loss"), [seen for _, seen in one.evaluations.values()], atol=6e-5)
    (run,) = barograph.read(write(one, "perplexities", tmp_path / "perplexities"))
    np.testing.assert_allclose(loss_in(run, "train/log_perplexity"), one.loss, atol=2e-2)
    policy = policy_of(dice, 60, np.linspace(0, 100, 60))
    (run,) = barograph.read(write(policy, "updates", tmp_path / "updates"))
    np.testing.assert_allclose(loss_in(run, "rollout/ep_rew_mean"), policy.columns["ep_rew_mean"], rtol=6e-3)


@pytest.mark.parametrize("kind", RATES)
def test_schedules_begin_low_and_rise_once_or_in_cycles(kind: str) -> None:
    rate = rates(kind, 1000, 2.0)
    assert rate[0] < 0.1 and 1.8 < rate.max() <= 2.0 and rate.min() >= 0
    rises = int(((rate[1:] > 1) & (rate[:-1] <= 1)).sum())
    assert rises == {"restarts": 3, "triangles": 5}.get(kind, 1)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but TensorBoard's, whose names and first record have the time of day."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and "tfevents" not in path.name)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_seed_gives_the_same_logs_and_another_seed_others(tmp_path: Path) -> None:
    some = ["plain", "stairs", "divergence", "epochs_not_a_number"]
    for folder, seed in (("first", 3), ("again", 3), ("other", 4)):
        write_examination(seed, 2, tmp_path / folder, some)
    first, again, other = (contents(tmp_path / folder) for folder in ("first", "again", "other"))
    assert len(first) > 2 * len(some) / 2 and first == again
    assert first["labels.json"] != other["labels.json"]
    alone = write_examination(3, 2, tmp_path / "alone", ["stairs"])
    assert all(contents(tmp_path / "alone" / name).items() <= contents(tmp_path / "first" / name).items()
               for name in alone)  # fmt: skip


def label(**about: Any) -> dict[str, Any]:
    """A trouble's label at step 500 of 1000."""
    one = Training(np.arange(1001), np.ones(1001))
    return trouble(one, ("step_lines",), ("spike", "divergence"), 500).label(one.step.tolist()) | about


@pytest.mark.parametrize(
    ("about", "finding", "right", "kind_only"),
    [
        ({}, {}, True, False),
        ({}, {"step": 450}, True, False),
        ({}, {"step": 449}, False, True),
        ({}, {"kind": "plateau"}, False, False),
        ({}, {"severity": "info"}, False, False),
        ({"least": "info"}, {"severity": "info"}, True, False),
        ({"window": None}, {"step": None}, True, False),
        ({"group": ALIKE}, {}, False, False),
        ({"group": HEALTHY}, {"severity": "info"}, True, False),
    ],
)
def test_what_counts_as_right(about: dict[str, Any], finding: dict[str, Any], right: bool, kind_only: bool) -> None:
    verdict = judge(label(**about), [FAULTY | finding])
    assert (verdict.right, verdict.kind_only) == (right, kind_only)


def test_a_file_that_is_not_read_is_no_healthy_one_left_in_peace() -> None:
    assert not judge(label(group=HEALTHY), [], "nothing in it").right


@pytest.mark.parametrize(
    ("severity", "unread", "judged", "right"),
    [("", "nothing in it", False, True), ("", "", False, True), ("", "", True, False), ("info", "", False, True),
     ("warning", "", False, False)],
)  # fmt: skip
def test_of_a_text_that_is_no_training_nothing_should_be_said(
    severity: str, unread: str, judged: bool, right: bool
) -> None:
    findings = [FAULTY | {"severity": severity}] if severity else []
    assert judge(label(group=TEXT), findings, unread, judged).right == right


def test_the_table_counts_each_group_for_itself() -> None:
    labels = {"ill": label(), "well": label(group=HEALTHY), "odd": label(group=ALIKE), "lost": label(group=ALIKE)}
    verdicts = {
        "ill": Verdict(True, False, "", []),
        "well": Verdict(True, False, "", []),
        "odd": Verdict(False, False, "", []),
        "lost": Verdict(False, False, "nothing in it", []),
    }
    found, elsewhere, healthy, alike, unread, _ = examine_logs.table(labels, verdicts, 1.0)
    assert found.endswith("1 of    1") and elsewhere.endswith("0 of    1")
    assert healthy.endswith("0 of    1") and alike.endswith("1 of    2") and unread.endswith("1 of    4")


def test_the_command_finds_a_trouble_and_names_a_miss(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["--only", "not_a_number_at_once", "--each", "1", "--out", str(tmp_path / "logs"), "--misses"]
    assert examine_logs.main(arguments) == 0
    assert "troubles found, right kind, near the onset      1 of    1" in capsys.readouterr().out
    assert (tmp_path / "logs" / "labels.json").exists()


def plain_log(path: Path, rows: int) -> Path:
    row = "step {s}/999999 | loss {v:.5f} | lr 3.00e-04 | grad_norm 1.{n} | 231.5ms\n"
    path.write_text(
        "".join(row.format(s=s, v=2 + 8 / (1 + s / 500) + s * 7919 % 101 / 5000, n=s % 90 + 10) for s in range(1, rows))
    )
    return path


def test_a_log_is_examined_in_linear_time(tmp_path: Path) -> None:
    seconds = []
    for rows in (2_000, 2_000, 16_000):  # the first loads what is needed
        begin = time.process_time()
        diagnose(barograph.read(plain_log(tmp_path / f"{rows}.log", rows))[0])
        seconds.append(time.process_time() - begin)
    assert seconds[2] < 3 * 8 * seconds[1]


def test_for_a_plain_log_nothing_is_loaded_that_it_does_not_need(tmp_path: Path) -> None:
    path = plain_log(tmp_path / "one.log", 500)
    program = (
        "import sys; from barograph.cli import main; code = main(['doctor', sys.argv[1]]);"
        "print('loaded', *sorted(sys.modules)); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    heavy = {"pandas", "duckdb", "torch", "scipy", "PIL", "matplotlib", "starlette", "uvicorn", "tensorboard", "wandb",
             "pyarrow", "numpy.ma", "ssl", "subprocess", "barograph.analysis.forecast",
             "barograph.store.clickhouse.client", "barograph.store.clickhouse.pull"}  # fmt: skip
    assert {"numpy", "barograph.doctor"} <= loaded and not loaded & heavy
