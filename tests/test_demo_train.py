"""`barograph demo` trains, records everything, tells what to do next, and refuses in one sentence."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import barograph  # noqa: E402
from barograph.cli import main  # noqa: E402
from barograph.core import manifest  # noqa: E402
from barograph.demo import loop as loops  # noqa: E402
from barograph.demo import model as gpt  # noqa: E402
from barograph.demo.train import run_demo  # noqa: E402


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A model that takes milliseconds a step, and a folder to work in."""

    def shape(plan: loops.Plan) -> gpt.ModelShape:
        return gpt.ModelShape(context=32, width=16, layers=2, heads=2, hidden=32, experts=4 if plan.moe else 0)

    monkeypatch.setattr(loops.Plan, "shape", shape)
    monkeypatch.setattr(loops, "SAMPLE_BYTES", 20)
    monkeypatch.setattr(loops, "EVAL_WINDOWS", 8)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BAROGRAPH_DIR", raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path
    torch.set_num_threads(threads)


def the_run(dir: str = "runs") -> barograph.StoredRun:
    (run,) = barograph.runs(dir)
    return run


def log(run: barograph.StoredRun) -> list[dict[str, Any]]:
    return barograph.read_log(run.dir / "training.json")


def losses(dir: str) -> list[float]:
    return [float(value) for value in the_run(dir).series("train/loss").value]


def test_a_training_records_every_kind_that_a_cpu_can_give(tiny: Path) -> None:
    assert run_demo(steps=6) == 0
    run = the_run()
    records = log(run)
    counts: dict[str, int] = {}
    for record in records:
        counts[record["log"]] = counts.get(record["log"], 0) + 1
    expected = {"segment": 1, "cmd": 1, "dataset": 2, "step": 6, "metrics": 6, "eval": 2, "sample": 2}
    assert {kind: counts.get(kind) for kind in expected} == expected
    assert (counts["allocator"], counts["checkpoint"], counts["end"]) == (1, 2, 1)
    assert counts["option"] > 10 and counts["info"] > 2
    assert (run.project, run.status, run.config["plan"]["steps"]) == ("demo", "finished", 6)

    steps = [record for record in records if record["log"] == "step"]
    assert [record["step"] for record in steps] == [1, 2, 3, 4, 5, 6]
    assert all(record["step_tokens"] == 14 * 32 and record["loss"] > 0 for record in steps)
    assert steps[-1]["loss"] < steps[0]["loss"]
    assert len(run.series("model/grad_norm")) == len(run.series("model/param_norm")) == 6
    assert run.series("gradients/blocks.1.attention.qkv.weight/norm").value[0] > 0
    assert run.series("updates/blocks.1.attention.qkv.weight/ratio").value[-1] > 0
    bits, nats = run.series("eval/bits_per_byte"), run.series("eval/loss")
    assert [float(value) for value in bits.value] == pytest.approx([float(value) / 0.693147 for value in nats.value])


def test_the_learning_rate_warms_up_and_then_falls_along_a_cosine() -> None:
    plan = loops.Plan(steps=100)
    shares = [plan.share(step) for step in range(1, 101)]
    assert shares[:10] == pytest.approx([step / 10 for step in range(1, 11)])
    assert shares[54] == pytest.approx(0.55)  # half-way down: the mean of 1 and 0.1
    assert shares[99] == pytest.approx(0.1)
    assert shares[9:] == sorted(shares[9:], reverse=True)
    assert loops.Plan(steps=1).share(1) == 1.0


def test_the_smoothed_loss_is_a_debiased_average_of_the_losses(tiny: Path) -> None:
    assert run_demo(steps=5, quiet=True) == 0
    raw, smooth = losses("runs"), the_run().series("train/loss_smooth").value
    for count in range(1, 6):
        weights = [0.95 ** (count - 1 - at) for at in range(count)]
        mean = sum(weight * value for weight, value in zip(weights, raw[:count], strict=True)) / sum(weights)
        assert smooth[count - 1] == pytest.approx(mean)


def test_memory_is_that_of_the_weights(tiny: Path) -> None:
    assert run_demo(steps=1) == 0
    (record,) = [record for record in log(the_run()) if record["log"] == "allocator"]
    held = {stat["name"]: stat["pageable"] for stat in record["stats"]}
    saved = torch.load(the_run().dir / "checkpoints" / "model_000001.pt", weights_only=True)
    weights = sum(weight.nbytes for weight in saved["model"].values())
    buffers = sum(buffer.nbytes for buffer in gpt.ByteGPT(gpt.ModelShape(**the_run().config["model"])).buffers())
    assert held["weights"] - buffers == held["gradients"] == weights
    assert held["activations"] > 0
    assert held["optimizer"] == pytest.approx(2 * weights, rel=0.05)  # two moments, and a count a weight


def test_a_mixture_of_experts_records_its_routers(tiny: Path) -> None:
    assert run_demo(steps=6, moe=True) == 0
    run = the_run()
    steps = [record for record in log(run) if record["log"] == "step"]
    for record in steps:
        assert 0.019 < record["moe_aux_loss"] < 0.09  # two layers: 0.02 when balanced, 0.08 when collapsed
        assert record["moe_z_loss"] > 0 and record["moe_load_imbalance"] >= 1
        assert 0 < record["moe_expert_utilization"] <= 1
    for block in (0, 1):
        loads = [run.series(f"moe/blocks.{block}.feed/load/{expert}").value for expert in range(4)]
        assert {int(sum(row)) for row in zip(*loads, strict=True)} == {5 * 14 * 32 * 2}, (
            "of the five steps since the watch began"
        )


def test_the_same_seed_gives_the_same_losses(tiny: Path) -> None:
    for folder, seed, moe in (
        ("a", 1, False),
        ("b", 1, False),
        ("c", 2, False),
        ("d", 1, True),
        ("e", 1, True),
    ):
        assert run_demo(steps=3, dir=folder, seed=seed, moe=moe, quiet=True) == 0
    assert losses("a") == losses("b") and losses("d") == losses("e")
    assert losses("a") != losses("c") and losses("a") != losses("d")


def test_what_it_says_at_the_end_is_true_and_works(
    tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = "my runs"
    shown: list[str] = []
    monkeypatch.setattr("barograph.views.server.command.view", lambda dir, *rest: shown.append(dir) or 0)
    assert run_demo(steps=6, dir=folder, quiet=True) == 0
    said = capsys.readouterr()
    run = the_run(folder)
    assert "Training: 6 done" in said.err and "| loss" not in said.out
    first, last = (float(run.series("eval/loss").value[at]) for at in (0, -1))
    assert run.series("sol/tps").value[0] > 0 and len(run.series("train/mfu")) == 6
    assert "GRADIENT FLOW" in said.out and "blocks.1" in said.out
    assert "WHERE THE TIME WENT" in said.out and "A STEP, ITS MEDIAN" in said.out and "backward" in said.out
    assert f"Held-out loss {first:.2f} nats" in said.out and f"→ {last:.2f} nats" in said.out
    assert "6 steps, 2,688 tokens" in said.out
    assert f"Everything is in {folder}/demo/{run.id}\n" in said.out
    assert said.out.count("| class Reader:") == 2
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", said.out), "a model's text must not reach a terminal raw"
    commands = [line.partition(" #")[0] for line in said.out.split("Next:\n")[1].splitlines()]
    assert len(commands) == 5
    for command in commands:
        words = shlex.split(command)
        assert main(words[1:] if words[0] == "barograph" else words[3:]) == 0
    assert shown == [folder] and Path(f"{run.id}.csv").exists() and Path("report/report.html").exists()


def test_a_line_a_step_unless_quiet(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_demo(steps=3) == 0
    shown = capsys.readouterr().out
    assert len(re.findall(r"^step [123]/3 \| loss ", shown, re.M)) == 3
    assert len(re.findall(r"^eval at step ", shown, re.M)) == 2


# -- stopping and going on ---------------------------------------------------------------------------


def press_ctrl_c(monkeypatch: pytest.MonkeyPatch, at: int, times: int = 1) -> None:
    real = loops.Loop.train_step

    def step(self: loops.Loop) -> None:
        for _ in range(times if self.step + 1 == at else 0):
            signal.raise_signal(signal.SIGINT)
        real(self)

    monkeypatch.setattr(loops.Loop, "train_step", step)


@pytest.mark.parametrize("moe", [False, True], ids=["dense", "moe"])
def test_a_stopped_training_goes_on_as_if_it_had_never_stopped(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], moe: bool
) -> None:
    assert run_demo(steps=9, dir="whole", seed=5, moe=moe, quiet=True) == 0
    with monkeypatch.context() as patch:
        press_ctrl_c(patch, at=3)
        assert run_demo(steps=9, dir="parts", seed=5, moe=moe, quiet=True) == 130
    run = the_run("parts")
    assert run.status == "interrupted" and len(run.series("train/loss")) == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    said = capsys.readouterr().out
    assert f"Interrupted after step 3. What was recorded is in parts/demo/{run.id}\n" in said
    (again,) = [line for line in said.splitlines() if "demo --resume" in line]
    words = shlex.split(again.partition(" #")[0])
    assert main(words[words.index("demo") :]) == 0
    run = the_run("parts")
    assert (run.status, [segment.kind for segment in run.segments]) == ("finished", ["start", "resume"])
    assert run.segments[1].start_step == 4
    assert losses("parts") == losses("whole")
    series = [the_run(folder).series("eval/loss") for folder in ("whole", "parts")]
    assert list(series[0].value) == list(series[1].value)
    assert list(the_run("parts").series("train/loss_smooth").value) == pytest.approx(
        list(the_run("whole").series("train/loss_smooth").value)
    )


def test_a_finished_training_goes_on_with_more_steps(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_demo(steps=4, quiet=True) == 0
    run = the_run()
    assert run_demo(resume=run.id, quiet=True) == 2
    assert "has done 4 steps; to go on, give --steps a greater number" in capsys.readouterr().err
    assert run_demo(resume=run.id, steps=6, quiet=True) == 0
    assert list(the_run().series("train/loss").step) == [1, 2, 3, 4, 5, 6]
    assert manifest.last_checkpoint(run.dir / "checkpoints")["step"] == 6  # type: ignore[index]


def test_a_second_ctrl_c_stops_at_once(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    press_ctrl_c(monkeypatch, at=2, times=2)
    assert run_demo(steps=5, quiet=True) == 130
    assert the_run().status == "interrupted" and len(the_run().series("train/loss")) == 1


def test_a_checkpoint_says_where_the_loader_and_the_loop_were(tiny: Path) -> None:
    assert run_demo(steps=4, quiet=True) == 0
    about = manifest.read_checkpoint(the_run().dir / "checkpoints" / "meta_000002.json")
    assert about is not None
    assert about["dataloader_state_dict"] == {"pq_idx": 0, "rg_idx": 2, "epoch": 1}
    assert about["val_bpb"] == pytest.approx(about["val_loss"] / 0.693147, rel=1e-5)
    assert {"smooth_train_loss", "best_val_loss", "total_training_time"} <= about["loop_state"].keys()


def test_a_disk_that_takes_no_checkpoint_stops_no_training(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.write_bytes

    def write(path: Path, data: Any) -> int:
        if path.suffix == ".partial":
            raise OSError(28, "No space left on device")
        return real(path, data)

    monkeypatch.setattr(Path, "write_bytes", write)
    assert run_demo(steps=2, quiet=True) == 0
    said = [record["message"] for record in log(the_run()) if record["log"] == "info"]
    assert "No checkpoint at step 2: No space left on device." in said
    assert not [record for record in log(the_run()) if record["log"] == "checkpoint"]


# -- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ({"steps": 0}, 2, "--steps is 0, but a training needs at least 1 step."),
        ({"steps": -5}, 2, "--steps is -5, but a training needs at least 1 step."),
        ({"seed": -1}, 2, "--seed is -1, but it has to be a whole number from 0 to 2^63 - 1."),
        ({"seed": 2**63}, 2, "--seed is "),
        ({"dir": "file/runs"}, 2, "The run's folder can't be written (Not a directory: file/runs"),
        ({"resume": "nothing"}, 2, "there is no run 'nothing' in runs"),
    ],
)
def test_bad_arguments_get_one_sentence(
    tiny: Path, capsys: pytest.CaptureFixture[str], arguments: dict[str, Any], code: int, sentence: str
) -> None:
    Path("file").touch()
    assert run_demo(**arguments) == code
    said = capsys.readouterr()
    assert said.err.startswith(f"barograph: {sentence}") and said.err.count("\n") == 1 and said.out == ""
    assert [path.name for path in tiny.iterdir()] == ["file"]


def test_runs_that_are_not_the_demos_or_go_on_are_refused(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with barograph.init("gpt", id="other", console="none") as run:
        run.log({"loss": 1.0})
    with barograph.init("demo", id="bare", config={"plan": {"steps": 3}}, console="none") as run:
        assert run_demo(resume="bare") == 2
        assert "bare is still running" in capsys.readouterr().err
    for which, sentence in (
        ("other", "is not a run of the demo"),
        ("bare", "has no checkpoint to go on from"),
    ):
        assert run_demo(resume=which) == 2
        assert sentence in capsys.readouterr().err


def test_a_damaged_checkpoint_is_refused_and_the_run_left_alone(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_demo(steps=4, quiet=True) == 0
    run = the_run()
    newest = run.dir / "checkpoints" / "model_000004.pt"
    newest.write_bytes(bytes(newest.stat().st_size))
    assert run_demo(resume=run.id, steps=8) == 1
    assert "model_000004.pt is not a checkpoint to go on from" in capsys.readouterr().err
    assert len(the_run().segments) == 1 and the_run().status == "finished"
    newest.write_bytes(b"torn")  # shorter than its metadata says: the one before is taken
    assert run_demo(resume=run.id, steps=8, quiet=True) == 0
    assert the_run().segments[1].start_step == 3 and len(the_run().series("train/loss")) == 8


def test_a_python_without_sources_is_told_so(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tiny / "python311.zip"))
    assert run_demo(steps=2) == 1
    assert "too little Python source text under" in capsys.readouterr().err
    assert not (tiny / "runs").exists()


def python(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(barograph.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=60,
    )


def test_without_torch_it_says_how_to_get_it(tmp_path: Path) -> None:
    done = python(
        "import sys; sys.modules['torch'] = None; from barograph.cli import main; sys.exit(main(['demo']))",
        tmp_path,
    )
    assert done.returncode == 1
    assert done.stderr == (
        'barograph: The demo needs PyTorch, and it is not installed; run: pip install "barograph[demo]"\n'
    )
    assert not list(tmp_path.iterdir())


def test_torch_is_loaded_only_by_a_training(tmp_path: Path) -> None:
    script = "import sys, barograph.demo.train as t; c = t.run_demo(steps=0); print(c, 'torch' in sys.modules)"
    assert python(script, tmp_path).stdout == "2 False\n"


@pytest.mark.slow
@pytest.mark.parametrize("moe", [False, True], ids=["dense", "moe"])
def test_the_real_model_learns(tmp_path: Path, moe: bool) -> None:
    assert run_demo(steps=40, dir=tmp_path, moe=moe, quiet=True) == 0
    (run,) = barograph.runs(tmp_path)
    values = run.series("eval/loss").value
    assert values[0] > 5.0 and values[-1] < 2.7


def test_the_check_of_widths_tells_the_two_parametrisations_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--mup", "--dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "Coordinate check: fail" in out and "Coordinate check: pass" in out
    run = the_run(str(tmp_path))
    assert all(
        (run.dir / f"widths_{name}.{kind}").stat().st_size for name in ("standard", "mup") for kind in ("png", "json")
    )
    assert run.series("mup/readout/slope").value[1] == pytest.approx(0.0, abs=0.1)
