"""A run records whatever it is given, wherever and however the process ends, and never raises."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import numpy
import pytest
from run_starts import only, start, strict

import barograph
from barograph.core import manifest


def test_what_is_logged_comes_back(tmp_path: Path) -> None:
    run = start(tmp_path, name="first", config={"lr": 0.1, "model": {"width": 8}})
    for step in range(100):
        run.log({"train/loss": 1.0 / (step + 1), "train/lr": 0.1}, step=step)
    run.finish()
    back = only(tmp_path)
    series = back.series("train/loss")
    assert len(series) == 100
    assert series.value.tolist() == [1.0 / (step + 1) for step in range(100)]
    assert series.step.tolist() == list(range(100))
    assert back.config == {"lr": 0.1, "model": {"width": 8}}
    assert (back.id, back.name, back.project, back.status) == ("first", "first", "p", "finished")
    assert [item["step"] for item in strict(back.dir / "training.json") if item["log"] == "metrics"] == list(range(100))


def test_what_is_logged_is_there_at_once_for_another_reader(tmp_path: Path) -> None:
    run = start(tmp_path)
    run.log({"loss": 1.5}, step=1)
    assert only(tmp_path).series("loss").value.tolist() == [1.5]
    assert only(tmp_path).status == "running"
    run.finish()


def test_nothing_is_doubled_while_the_store_catches_up(tmp_path: Path) -> None:
    run = start(tmp_path)
    for step in range(2000):
        run.log({"a": step}, step=step)
        if step % 3 == 0:
            run.log({"b": step}, step=step)
        if step % 100 == 0:
            assert only(tmp_path).series("a").value.tolist() == list(range(step + 1))
    run.finish()
    assert only(tmp_path).series("a").value.tolist() == list(range(2000))
    assert only(tmp_path).series("b").value.tolist() == list(range(0, 2000, 3))


@pytest.mark.parametrize("step", ["3", numpy.int64(3), 3.0, " 3 "])
def test_a_step_may_be_any_whole_number(tmp_path: Path, step: Any) -> None:
    with start(tmp_path) as run:
        run.log({"loss": 1.0}, step=step)
    assert only(tmp_path).series("loss").step.tolist() == [3]


def test_a_step_that_is_none_takes_the_coming_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with start(tmp_path) as run:
        run.log({"loss": 1.0}, step=7)
        run.log({"loss": 1.0}, step="now")  # type: ignore[arg-type]
        run.log({"loss": 1.0})
    assert only(tmp_path).series("loss").step.tolist() == [7, 8, 9]
    assert "a step must be a whole number, not 'now'; 8 was recorded" in caplog.text


@pytest.mark.parametrize("step", ["back", -3, None, math.nan])
def test_a_rewind_to_no_step_is_refused_and_throws_nothing_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, step: Any
) -> None:
    with start(tmp_path) as run:
        for number in range(5):
            run.log({"loss": 1.0}, step=number)
        run.rewind(step)
    assert only(tmp_path).series("loss").step.tolist() == [0, 1, 2, 3, 4]
    assert "run.rewind takes the step to go back to, a whole number from 0" in caplog.text
    with pytest.raises(barograph.ConfigError, match="A fork begins at a step"):
        barograph.fork(only(tmp_path), step=step)


@pytest.mark.parametrize("values", ["abc", ["a", "b"], [None, 1.0], [1j, 2.0]])
def test_a_histogram_of_no_numbers_is_told_and_the_run_ends_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, values: Any
) -> None:
    with start(tmp_path) as run:
        run.log({"loss": 1.0}, step=0)
        run.log_histogram("spread", values, 0)
        run.log_layers(1, {"a": {"norm": 2.0}})
    assert only(tmp_path).series("layers/a/norm").value.tolist() == [2.0]
    assert caplog.text.count("WARNING") == 1
    assert "the histogram 'spread' takes real numbers; what was given is not recorded" in caplog.text


def test_tables_of_another_shape_are_told_what_they_should_be(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with start(tmp_path) as run:
        run.log_layers(1, {"a": 2.0})  # type: ignore[dict-item]
        run.log_wide(1, {"a": 2.0})  # type: ignore[arg-type]
        run.log_expert_loads(1, {"a": 3})  # type: ignore[dict-item]
    assert "run.model.layers takes (step, {layer: {statistic: number}})" in caplog.text
    assert "run.model.wide takes ({name: number, …}, step), and the first is of type int" in caplog.text
    assert "run.model.expert_loads takes (step, {layer: [load, …]})" in caplog.text


@pytest.mark.parametrize("config", [[1, 2], "lr=3", 3])
def test_a_config_without_names_is_told_what_it_should_be(tmp_path: Path, config: Any) -> None:
    with pytest.raises(barograph.ConfigError, match="it takes a mapping"):
        start(tmp_path, config=config)


def test_steps_count_by_themselves(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        for _ in range(3):
            run.log({"loss": 1.0})
        run.log({"loss": 1.0}, step=10)
        run.log({"loss": 1.0})
    assert only(tmp_path).series("loss").step.tolist() == [0, 1, 2, 10, 11]


def test_values_that_are_not_committed_share_the_step_of_the_next_call(tmp_path: Path) -> None:
    many = {f"wide/{number}": float(number) for number in range(400)}
    with start(tmp_path) as run:
        for _ in range(3):
            run.log({"loss": 1.0}, commit=False)
            run.log(many, commit=False)
            run.log({"deep": {"lr": 0.1}}, None, False)
            run.log({"norm": 2.0}, commit=True)
        run.log({"loss": 1.0}, step=10, commit=False)
        run.log({"norm": 1.0})
        run.log({}, commit=False)
        run.log({"norm": 1.0})
    stored = only(tmp_path)
    assert stored.series("loss").step.tolist() == [0, 1, 2, 10]
    assert stored.series("wide/399").step.tolist() == stored.series("deep/lr").step.tolist() == [0, 1, 2]
    assert stored.series("norm").step.tolist() == [0, 1, 2, 10, 11]


def test_steps_that_go_back_are_kept_and_sorted(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        for step in (5, 6, 3, 4, 6):
            run.log({"loss": float(step)}, step=step)
    series = only(tmp_path).series("loss")
    assert series.step.tolist() == [3, 4, 5, 6, 6]


NASTY: list[Any] = [
    {"nan": math.nan, "inf": math.inf, "minus": -math.inf, "fine": 1.0},
    {"huge": 10**400, "big": 2**64, "small": -(2**70)},
    {"text": "hello", "none": None, "flag": True},
    {"nested": {"deep": {"er": 1.5}}},
    {"numpy": numpy.float32(1.5), "array": numpy.zeros((3, 4)), "scalar": numpy.array(2.0)},
    {1: 2.0, None: 3.0, (1, 2): 4.0, b"bytes": 5.0},
    {'quote"': 1.0, "new\nline": 2.0, "a/b/../c": 3.0, "🎛️": 4.0, "\x00": 5.0, "</script>": 6.0, "": 7.0},
    {"k" * 10_000: 1.0},
    {"\ud800": 1.0},
    {"log": 1.0, "time": 2.0, "step": 3.0, "values": 4.0},
    {},
    None,
    "loss",
    [1, 2],
    {"object": object()},
]


@pytest.mark.parametrize("values", NASTY, ids=range(len(NASTY)))
def test_nothing_that_is_logged_raises_and_the_file_stays_strict(tmp_path: Path, values: Any) -> None:
    run = start(tmp_path)
    for _ in range(2):
        run.log(values)
        run.log({"after": 1.0})
    run.finish()
    strict(run.log_file)
    back = only(tmp_path)
    assert len(back.series("after")) == 2
    if isinstance(values, dict):
        for name in back.names():
            back.series(name)


def test_non_finite_values_come_back_as_they_were(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        for value in (1.0, math.nan, math.inf, -math.inf, 2.0):
            run.log({"loss": value})
    value = only(tmp_path).series("loss").value
    assert math.isnan(value[1]) and value[2] == math.inf and value[3] == -math.inf
    assert [value[0], value[4]] == [1.0, 2.0]


def test_a_users_names_that_records_use_are_series_too(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        run.log({"log": 1.0, "time": 2.0, "step": 3.0, "values": 4.0}, step=7)
    back = only(tmp_path)
    assert {name: back.series(name).value.tolist() for name in ("log", "time", "step", "values")} == {
        "log": [1.0],
        "time": [2.0],
        "step": [3.0],
        "values": [4.0],
    }


@pytest.mark.parametrize("step", [math.nan, "five", None, 2.0, numpy.int64(3), 10**30, -1, object(), True])
def test_no_step_raises(tmp_path: Path, step: Any) -> None:
    with start(tmp_path) as run:
        run.log({"loss": 1.0}, step=step)
        run.log_step(step, 0.0, 1, 1, 1.0, 1.0, 1.0)
    assert len(only(tmp_path).series("loss")) == 1


def test_strict_raises_what_is_swallowed_otherwise(tmp_path: Path) -> None:
    run = start(tmp_path, strict=True)
    with pytest.raises(ValueError, match="log_histogram"):
        run.log({"array": numpy.zeros(3)})
    with pytest.raises(ValueError, match="mapping"):
        run.log([1, 2])  # type: ignore[arg-type]
    run.finish()


def test_wide_records_are_in_the_store_and_not_in_the_log(tmp_path: Path) -> None:
    wide = {f"layer{number}/norm": number * 0.5 for number in range(2000)}
    with start(tmp_path) as run:
        for step in range(5):
            run.log(wide, step=step)
        run.log_layers(9, {"block.0": {"norm": 1.0, "mean": 0.0}, "block.1": {"norm": 2.0, "mean": 0.5}}, "gradients")
        run.log_expert_loads(9, {"block.0": [0.25, 0.75]})
        run.log_histogram("weights", numpy.arange(100.0), step=9)
    back = only(tmp_path)
    assert back.series("layer1999/norm").value.tolist() == [999.5] * 5
    assert back.series("gradients/block.1/norm").value.tolist() == [2.0]
    assert back.series("moe/block.0/load/1").value.tolist() == [0.75]
    (histogram,) = back.histograms("weights")
    assert histogram.step == 9 and histogram.counts.sum() == 100 and len(histogram.edges) == len(histogram.counts) + 1
    assert not any(item["log"] == "metrics" for item in strict(run.log_file))


def test_threads_may_log_to_one_run(tmp_path: Path) -> None:
    run = start(tmp_path)

    def work(number: int) -> None:
        for step in range(300):
            run.log({f"thread{number}": step}, step=step)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.finish()
    for number in range(6):
        assert only(tmp_path).series(f"thread{number}").value.tolist() == list(range(300))


def test_logging_after_the_end_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = start(tmp_path)
    run.finish()
    run.finish()
    for _ in range(3):
        run.log({"loss": 1.0})
    assert len([r for r in caplog.records if "finished" in r.message]) == 1


# -- resume, rewind, names -----------------------------------------------------------------------------


def test_a_resumed_run_supersedes_the_steps_it_logs_again_and_keeps_the_old_ones(tmp_path: Path) -> None:
    with start(tmp_path, id="job") as run:
        for step in range(100):
            run.log({"loss": 1.0}, step=step)
    with start(tmp_path, id="job") as run:
        assert run.segment.number == 2
        for step in range(80, 120):
            run.log({"loss": 2.0}, step=step)
    back = only(tmp_path)
    series = back.series("loss")
    assert series.step.tolist() == list(range(120))
    assert series.value.tolist() == [1.0] * 80 + [2.0] * 40
    assert len(back.series("loss", branch="all")) == 140
    assert [segment.kind for segment in back.segments] == ["start", "resume"]
    strict(run.log_file)


def test_rewind_supersedes_from_its_step_on(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        for step in range(50):
            run.log({"loss": 1.0}, step=step)
        run.rewind(30)
        run.log({"loss": 2.0})
        run.log({"loss": 2.0})
    series = only(tmp_path).series("loss")
    assert series.step.tolist() == list(range(32))
    assert series.value.tolist() == [1.0] * 30 + [2.0] * 2


def test_resume_auto_takes_the_newest_and_counts_on(tmp_path: Path) -> None:
    for name in ("old", "new"):
        with start(tmp_path, name=name, config={"lr": 1}) as run:
            for _ in range(5):
                run.log({"loss": 1.0})
    with start(tmp_path, resume="auto") as run:
        assert run.id == "new" and run.config == {"lr": 1}
        run.log({"loss": 3.0})
    assert next(r for r in barograph.runs(tmp_path) if r.id == "new").series("loss").step.tolist() == [0, 1, 2, 3, 4, 5]


def test_resume_of_a_run_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(barograph.ConfigError, match="no run to resume"):
        start(tmp_path, resume="nothing")
    start(tmp_path, resume="auto").finish()


def test_runs_of_the_same_name_get_folders_of_their_own(tmp_path: Path) -> None:
    for _ in range(3):
        start(tmp_path, name="same").finish()
    assert {run.id for run in barograph.runs(tmp_path)} == {"same", "same-2", "same-3"}


def test_hostile_names_stay_inside_the_folder(tmp_path: Path) -> None:
    for name in ("../../escape", "/etc/passwd", "a/b", "..", "\n", "x" * 500, "<script>"):
        run = start(tmp_path / "runs", name=name, project=name.strip() or "p")
        assert run.dir.resolve().is_relative_to((tmp_path / "runs").resolve())
        run.finish()
    assert len(barograph.runs(tmp_path / "runs")) == 7


def test_a_checkpoints_metadata_comes_back_on_resume(tmp_path: Path) -> None:
    with start(tmp_path, id="job") as run:
        folder = run.dir / "checkpoints"
        folder.mkdir()
        state = {"pq_idx": 3, "rg_idx": 7, "epoch": 1}
        loop = {"smooth_train_loss": 2.5, "min_val_bpb": math.inf, "total_training_time": 12.5}
        (folder / "model_000010.pt").write_bytes(b"weights")
        run.save_checkpoint(folder / "model_000010.pt", 10, val_loss=2.0, loader_state=state, loop_state=loop)
    with start(tmp_path, id="job") as run:
        restored = run.restore()
    assert restored is not None and restored["step"] == 10
    assert restored["dataloader_state_dict"] == state
    assert restored["loop_state"] == loop | {"min_val_loss": 2.0}


@pytest.mark.parametrize("late", ["log", "log_eval"])
def test_a_late_evaluation_of_an_earlier_step_is_not_where_the_run_ended(tmp_path: Path, late: str) -> None:
    run = start(tmp_path)
    for step in range(60):
        run.log({"train/loss": 3 - step / 100}, step=step)
    if late == "log":
        run.log({"eval/loss": 2.9}, step=20)
    else:
        run.log_eval(20, 0.0, 64, 1.0, 2.9)
    run.finish()
    final = manifest.read(run.dir)["final_metrics"]
    assert final["step"] == 59 and final["eval/loss"] == 2.9


def test_values_of_steps_that_a_rewind_gave_up_are_not_the_last(tmp_path: Path) -> None:
    run = start(tmp_path)
    for step in range(60):
        run.log({"train/loss": 3 - step / 100}, step=step)
    run.log({"eval/loss": 2.9}, step=50)
    run.log_eval(55, 0.0, 64, 1.0, 2.8)
    run.rewind(30)
    run.log({"train/loss": 1.0}, step=30)
    run.finish()
    final = manifest.read(run.dir)["final_metrics"]
    assert final["step"] == 30 and final["train/loss"] == 1.0 and "eval/loss" not in final


def test_the_manifest_ends_with_the_last_values_whatever_call_logged_them(tmp_path: Path) -> None:
    run = barograph.init(project="p", dir=tmp_path, verbosity=-2, git=False)
    for step in range(5):
        run.log({"my/loss": 3.0 - step, "note": "text"}, step=step)
    run.log_eval(4, 0.0, 64, 1.0, 2.5)
    run.finish()
    final = manifest.read(run.dir)["final_metrics"]
    assert final["my/loss"] == -1.0 and final["eval/loss"] == 2.5 and final["step"] == 4 and "note" not in final


def test_readmes_loop_draws_its_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = barograph.init(project="p", dir=tmp_path, git=False, machine=False, total_steps=4, wide_threshold=10)
    for step in range(1, 5):
        wide = {f"layer/{number}": 1.0 for number in range(20 if step > 2 else 0)}
        run.log({"train/loss": 3.0 - step / 10, "train/lr": 3e-4} | wide, step=step)
    run.finish()
    lines = [line for line in capsys.readouterr().out.splitlines() if "loss" in line]
    assert [line.split(" | ")[:3] for line in lines] == [
        [f"step {step}/4", f"loss {3.0 - step / 10:.5g}", "lr 0.0003"] for step in range(1, 5)
    ]


def test_named_evaluations_and_router_figures_are_series_of_their_own_with_one_point_a_step(tmp_path: Path) -> None:
    run = barograph.init(project="p", dir=tmp_path, git=False, machine=False, verbosity=-2, doctor=False)
    for step in (1, 2, 3):
        run.log_step(step, 0.1, 100, 10, 1.0, 2.0, 1e-3, moe_aux_loss=0.02, moe_load_imbalance=1.4)
        run.log_moe_stats(step, 0.02, 0.001, 0.9, 1.4)
        run.log_eval(step, 0.1, 100, 10, 2.0, name="pile")
        run.log_eval(step, 0.1, 100, 10, 3.0, name="c4")
    run.rewind(3)
    run.log_moe_stats(3, 0.03, 0.001, 0.9, 1.5)
    run.finish()
    stored = barograph.StoredRun(run.dir)
    for name in ("aux_loss", "z_loss", "expert_utilization", "load_imbalance"):
        assert stored.series(f"moe/{name}").step.tolist() == [1, 2, 3], name
    assert stored.series("moe/aux_loss").value.tolist() == [0.02, 0.02, 0.03]
    assert stored.series("eval/pile/loss").value.tolist() == [2.0, 2.0]
    assert stored.series("eval/c4/loss").value.tolist() == [3.0, 3.0] and "eval/loss" not in stored.names()
