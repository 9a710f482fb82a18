"""Stored runs give back exactly what was logged, at any zoom, on any axis."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import barograph
from barograph.core.record import Record, encode
from barograph.log.write import JsonLog
from barograph.query.catalog import find
from barograph.query.stored import StoredRun


def start(folder: Path, **options: Any) -> barograph.Run:
    return barograph.init(**({"project": "p", "dir": folder, "verbosity": -2, "git": False} | options))


def test_a_one_step_spike_and_a_nan_survive_any_zoom(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        for step in range(20_000):
            value = 100.0 if step == 12_345 else math.nan if step == 777 else math.sin(step / 50)
            run.log({"loss": value}, step=step)
    (back,) = barograph.runs(tmp_path)
    for most in (10, 100, 1000):
        series = back.series("loss", max_points=most)
        assert len(series) <= most
        assert numpy.nanmax(series.value) == 100.0
        assert series.step[numpy.nanargmax(series.value)] == 12_345
        assert 777 in series.step[numpy.isnan(series.value)]
        assert (numpy.diff(series.x) >= 0).all()


def test_a_series_on_every_axis(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        for step in range(1, 5):
            run.log_step(step, step / 4, 1000, 10, 1.0, 5.0 - step, 0.1)
    (back,) = barograph.runs(tmp_path)
    assert back.series("train/loss", x="tokens").x.tolist() == [1000, 2000, 3000, 4000]
    assert back.series("train/loss", x="train/epoch").x.tolist() == [0.25, 0.5, 0.75, 1.0]
    relative = back.series("train/loss", x="relative").x
    assert relative[0] == 0 and (numpy.diff(relative) >= 0).all() and relative[-1] < 60
    assert back.series("train/loss", x="time").x[0] > 1.7e9
    assert back.series("train/tokens_per_second").value.tolist() == [100_000.0] * 4


def test_all_columns_are_those_of_each_series_and_what_was_logged_together_is_kept_once(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        for step in range(100):
            run.log({"loss": step / 2, "norm": -step}, step=step)
            run.log({"other": step}, step=1000 + step)
            if step % 10 == 0:
                run.log({"seldom": step}, step=step)
    (back,) = barograph.runs(tmp_path)
    together = back.all_columns()
    for name, columns in together.items():
        for mine, alone in zip(columns, back.columns(name), strict=True):
            assert mine.dtype == alone.dtype and mine.tolist() == alone.tolist()
    loss, norm, other = (together[name] for name in ("loss", "norm", "other"))
    assert loss[0] is norm[0] and loss[1] is norm[1] and loss[3] is norm[3] and loss[2] is not norm[2]
    assert other[0] is not norm[0] and "seldom" in together


def test_the_end_of_a_name_finds_it_and_a_wrong_one_names_the_nearest(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        run.log({"train/loss": 1.0, "eval/loss": 2.0, "a/accuracy": 3.0})
    (back,) = barograph.runs(tmp_path)
    assert back.series("loss").name == "train/loss"
    assert back.series("accuracy").value.tolist() == [3.0]
    with pytest.raises(KeyError, match="nearest is 'train/loss'"):
        back.series("train/lost")


def test_a_bare_log_file_is_a_run_too(tmp_path: Path) -> None:
    logger = barograph.TrainingRunLogger(tmp_path / "log.json", verbosity=-2)
    for step in range(10):
        logger.log_step(step, 0.1, 100, 10, 1.0, 2.0, 0.1)
    logger.close()
    back = StoredRun(tmp_path / "log.json")
    assert back.series("loss").value.tolist() == [2.0] * 10
    assert back.status == "log file"


def test_records_of_a_log_that_a_bare_logger_began_are_kept_when_a_run_goes_on(tmp_path: Path) -> None:
    logger = barograph.TrainingRunLogger(tmp_path / "training.json", verbosity=-2)
    logger.log_step(1, 0.1, 100, 10, 1.0, 2.0, 0.1)
    logger.close()
    with start(tmp_path / "unused", output_dir=str(tmp_path)) as run:
        run.log_step(2, 0.1, 100, 10, 1.0, 3.0, 0.1)
    assert StoredRun(tmp_path).series("train/loss").value.tolist() == [2.0, 3.0]


def test_a_fork_shares_the_history_before_its_step(tmp_path: Path) -> None:
    with start(tmp_path, name="base", config={"lr": 1, "wd": 2}) as run:
        for step in range(20):
            run.log({"loss": 1.0, "old": 5.0}, step=step)
    with barograph.fork(run.dir, 10, config={"lr": 3}, dir=tmp_path, verbosity=-2, git=False) as forked:
        assert forked.config == {"lr": 3, "wd": 2}
        for _ in range(3):
            forked.log({"loss": 2.0})
    back = find("base-fork", tmp_path)
    series = back.series("loss")
    assert series.step.tolist() == list(range(13)) and series.value.tolist() == [1.0] * 10 + [2.0] * 3
    assert back.series("old").step.tolist() == list(range(10))
    assert find("base", tmp_path).series("loss").step.tolist() == list(range(20))
    with pytest.raises(barograph.ConfigError, match=r"no run '.*nothing' to fork"):
        barograph.fork(tmp_path / "nothing", 1)
    for which in ("base", f"{run.project}/base", run, find("base", tmp_path)):
        with barograph.fork(which, 10, dir=tmp_path, verbosity=-2, git=False) as again:
            assert again.config == {"lr": 1, "wd": 2}
    with start(tmp_path, project="other", id="base"):
        pass
    with pytest.raises(barograph.ConfigError, match="'base' is 2 runs"):
        barograph.fork("base", 10, dir=tmp_path)
    with pytest.raises(barograph.ConfigError, match="no run"):
        barograph.fork("x" * 5000, 10, dir=tmp_path)


def test_a_name_that_is_several_runs_is_asked_back(tmp_path: Path) -> None:
    for name in ("alpha-1", "alpha-2"):
        start(tmp_path, name=name).finish()
    assert find("alpha-1", tmp_path).id == "alpha-1"
    with pytest.raises(KeyError, match="is 2 runs"):
        find("alpha", tmp_path)
    with pytest.raises(KeyError, match="nearest is 'alpha"):
        find("alhpa-1", tmp_path)
    (tmp_path / "tb_logs").mkdir()
    (tmp_path / "train.out").write_text("step 1 | loss 2.5\n")
    for other in ("tb_logs", "train.out"):  # of other programs: who reads them is named
        with pytest.raises(KeyError, match="`barograph doctor` reads other programs' logs"):
            find(str(tmp_path / other), tmp_path)


def test_runs_are_picked_by_project_status_and_tag(tmp_path: Path) -> None:
    start(tmp_path, project="a", tags=["good"]).finish()
    start(tmp_path, project="b").finish("failed")
    assert [run.project for run in barograph.runs(tmp_path, project="a")] == ["a"]
    assert [run.project for run in barograph.runs(tmp_path, status="failed")] == ["b"]
    assert [run.project for run in barograph.runs(tmp_path, tag="good")] == ["a"]
    assert barograph.runs(tmp_path / "nothing") == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c/d"]),
            st.integers(-5, 50),
            st.floats(width=64),
        ),
        max_size=40,
    )
)
@settings(max_examples=25, deadline=None)
def test_any_points_come_back_from_a_log_file(
    tmp_path_factory: pytest.TempPathFactory, points: list[tuple[str, int, float]]
) -> None:
    path = tmp_path_factory.mktemp("any") / "log.json"
    log = JsonLog(path)
    for at, (name, step, value) in enumerate(points):
        log.append(encode(Record("metrics", 1_700_000_000_000_000 + at, step, {name: value})))
    log.close()
    back = StoredRun(path)
    for name in {name for name, _, _ in points}:
        expected = sorted(
            ((step, at, value) for at, (n, step, value) in enumerate(points) if n == name), key=lambda row: row[:2]
        )
        series = back.series(name)
        assert series.step.tolist() == [step for step, _, _ in expected]
        numpy.testing.assert_array_equal(series.value, [value for _, _, value in expected])


def test_time_and_money_of_a_run_while_it_goes_on_and_after(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        (live,) = barograph.runs(tmp_path)
        assert live.goodput(now=time.time() + 50).startup > 50 and live.cost() == {}
        for step in range(10):
            time.sleep(0.01)
            run.log_step(step, 0, 1000, 10.0, 1.0, 2.0, 1e-3)
        assert 0.09 <= live.goodput().productive <= 0.11  # the file has grown: it is read again
        for _ in range(11):
            run.record("gpu", 9, {"id": 0, "power": 500_000, "energy": None})
            time.sleep(0.002)
    back = StoredRun(run.dir)
    totals, cost = back.goodput(), back.cost(price_per_gpu_hour=3600.0, price_per_kwh=3.6e6)
    assert totals.wall == pytest.approx(back.manifest["wall_seconds"], abs=1.0)
    assert cost["tokens"] == 10_000 and cost["joules"] == pytest.approx(500 * cost["gpu_seconds"])
    assert cost["gpu_cost"] == pytest.approx(totals.held) and cost["electricity_cost"] == pytest.approx(cost["joules"])
    assert "cost" not in back.cost()  # the run had no prices of its own


def test_the_prices_that_a_run_counted_with_are_its_own(tmp_path: Path) -> None:
    with start(tmp_path, price_per_gpu_hour=2.0) as run:
        run.log_step(0, 0, 1000, 10.0, 1.0, 2.0, 1e-3)
        run.record("gpu", 0, {"id": 0, "power": 1000})
        run.record("energy", 0, {"price_per_gpu_hour": 2.0, "price_per_kwh": 0.25})
    cost = StoredRun(run.dir).cost()
    assert cost["price_per_gpu_hour"] == 2.0 and cost["gpu_cost"] == pytest.approx(cost["gpu_hours"] * 2.0)
    assert StoredRun(run.dir).cost(price_per_gpu_hour=5.0)["price_per_gpu_hour"] == 5.0


def test_a_row_logged_each_tenth_step_stands_for_ten_steps_of_tokens(tmp_path: Path) -> None:
    run = barograph.init(project="p", dir=tmp_path, verbosity=-2, git=False)
    for step in range(10, 51, 10):
        run.log({"train/loss": 1.0, "train/step_tokens": 64}, step=step)
    run.finish()
    assert barograph.runs(tmp_path)[0].series("loss", x="tokens").x.tolist() == [640, 1280, 1920, 2560, 3200]


def test_devices_of_other_ranks_count_and_tokens_do_not(tmp_path: Path) -> None:
    moment = 10**15
    for rank, host in ((0, "a"), (1, "a"), (8, "b")):
        name = "training.json" if rank == 0 else f"training.rank{rank}.json"
        log = JsonLog(tmp_path / name)
        log.append(encode(Record("segment", moment, 0, {"segment": 1, "pid": rank, "host": host})))
        for n in range(1, 12):
            log.append(encode(Record("gpu", moment + n * 10**7, n, {"id": 0, "power": 100_000})))
            log.append(encode(Record("step", moment + n * 10**7, n, {"duration_ms": 9000, "step_tokens": 64})))
        log.close()
    cost, totals = StoredRun(tmp_path).cost(), StoredRun(tmp_path).goodput()
    assert cost["gpu_joules"] == 20_000 and cost["gpus"] == 2 and cost["tokens"] == 704
    assert totals.productive == 99 and totals.wall == 110
