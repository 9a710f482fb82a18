"""The stand-in for TensorBoard's writer: every call of the real one, and the shapes in which programs use it."""

from __future__ import annotations

import inspect
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked_python
import pytest

import barograph
import barograph.compat.wandb as wandb
from barograph.compat.tensorboard import SummaryWriter
from barograph.integrations.compat import unsupported

torch = pytest.importorskip("torch")
pytest.importorskip("tensorboard")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAROGRAPH_BLACKBOX", "false")
    monkeypatch.setenv("BAROGRAPH_GIT", "false")
    unsupported._said.clear()


def arguments(call: Any) -> dict[str, Any]:
    """Values for a call of the real writer, by the names of its parameters."""
    image = torch.zeros(3, 4, 4)
    known = {
        "tag": "t", "main_tag": "t", "scalar_value": 1.0, "tag_scalar_dict": {"a": 1.0, "b": 2.0}, "tensor": image,
        "values": torch.arange(9.0), "min": 0, "max": 2, "num": 3, "sum": 3, "sum_squares": 5, "bucket_limits": [1, 2],
        "bucket_counts": [1, 2], "img_tensor": image, "box_tensor": torch.zeros(1, 4), "figure": [],
        "vid_tensor": torch.zeros(1, 2, 3, 4, 4), "snd_tensor": torch.zeros(1, 8), "text_string": "words",
        "hparam_dict": {"lr": 1.0}, "metric_dict": {"accuracy": 0.5}, "labels": torch.ones(3),
        "predictions": torch.ones(3), "layout": {}, "tags": [], "mat": image, "model": None, "prototxt": "",
        "vertices": image,
    }  # fmt: skip
    wanted = inspect.signature(call).parameters
    given = {name: known.get(name, 1) for name, each in wanted.items() if each.default is each.empty and name != "self"}
    if "img_tensor" in given and "NCHW" in str(wanted.get("dataformats")):
        given["img_tensor"] = torch.zeros(2, 3, 4, 4)
    return given | ({"global_step": 7} if "global_step" in wanted else {})


def test_every_call_of_the_real_writer_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    from torch.utils.tensorboard import SummaryWriter as Real

    writer = SummaryWriter("logs/all", comment="-x")
    with caplog.at_level(logging.WARNING, "barograph"):
        for name in [name for name in dir(Real) if name.startswith("add_")]:
            given = arguments(getattr(Real, name))
            getattr(writer, name)(**given)
            writer.flush()
        writer.close()
    failures = [record.getMessage() for record in caplog.records if "could not record" in record.getMessage()]
    assert not failures
    run = barograph.StoredRun(writer.barograph.dir)
    assert run.manifest["status"] == "finished" and run.manifest["name"] == "all-x"
    assert {"t", "t/a", "t/b", "accuracy"} <= set(run.names()) and list(run.series("t/a").step) == [7]
    assert run.manifest["config"] == {"lr": 1.0} and "t" in run.histogram_names()


def test_a_tag_over_samples_leaves_the_steps_alone() -> None:
    """Megatron-LM writes each value twice, over iterations and over samples."""
    with SummaryWriter(log_dir="tb", max_queue=1) as writer:
        for iteration in range(1, 4):
            writer.add_scalar("lm loss", torch.tensor(1.0 / iteration), iteration)
            writer.add_scalar("lm loss vs samples", 1.0 / iteration, iteration * 512)
    run = barograph.StoredRun(writer.barograph.dir)
    assert list(run.series("lm loss vs samples").step) == [1, 2, 3] == list(run.series("lm loss").step)
    assert list(run.series("samples").value) == [512, 1024, 1536]


def test_a_writer_records_into_the_run_that_is_open() -> None:
    with wandb.init(project="both", sync_tensorboard=True) as run:
        writer = SummaryWriter("elsewhere")
        writer.add_scalar("losses/value", 0.5, 3)
        writer.close()
        run.log({"more": 1}, step=4)
    found = barograph.StoredRun(run.barograph.dir)
    assert list(found.series("losses/value").step) == [3] and list(found.series("more").step) == [4]


@pytest.mark.parametrize("name", ["torch.utils.tensorboard", "tensorboardX"])
def test_writers_of_other_libraries_are_recorded_beside_their_own_files(name: str, tmp_path: Path) -> None:
    """CleanRL: `sync_tensorboard=True` and PyTorch's own writer, made before the run and after it."""
    pytest.importorskip(name)
    code = f"""
import torch
from {name} import SummaryWriter
import barograph.compat.wandb as wandb
early = SummaryWriter("tb/early")
early.add_scalar("before", 1.0, 0)
wandb.init(project="sync", sync_tensorboard=True)
late = SummaryWriter("tb/late")
for step in range(3):
    early.add_scalar("charts/return", float(step), step * 10)
    late.add_scalars("losses", {{"value": 0.5}}, step * 10)
late.add_text("words", "some", 20)
late.add_histogram("weights", torch.arange(10.0), 20)
late.add_hparams({{"lr": 0.1}}, {{"hparam/best": 3.0}})
wandb.finish()
late.add_scalar("charts/return", 9.0, 90)
early.close(), late.close()
"""
    done = forked_python.run(sys.executable, "-c", code, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs" / "sync").iterdir()
    run = barograph.StoredRun(folder)
    assert list(run.series("charts/return").step) == [0, 10, 20] == list(run.series("losses/value").step)
    assert "before" not in run.names() and "weights" in run.histogram_names() and run.manifest["config"] == {"lr": 0.1}
    assert list(run.series("hparam/best").value) == [3.0]
    assert list((tmp_path / "tb").glob("*/events.out.tfevents.*"))


def test_a_writer_that_raises_raises_as_without_us(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter as Real

    with wandb.init(project="sync", sync_tensorboard=True), Real(tmp_path / "tb") as writer:
        with pytest.raises(TypeError):
            writer.add_scalar(7, 1.0, 0)
        writer.add_image_with_boxes("t", torch.zeros(3, 8, 8), torch.zeros(0, 4), 0, rescale=1)


def test_writers_of_two_folders_are_two_runs_and_of_one_folder_one() -> None:
    train, valid, again = SummaryWriter("gpt/train"), SummaryWriter("gpt/valid"), SummaryWriter("gpt/train")
    assert train.barograph is again.barograph and train.barograph is not valid.barograph
    train.add_scalar("loss", 1, 0)
    valid.add_scalar("loss", 2, 0)
    for writer in (train, valid, again):
        writer.close()
    assert [run.about.project for run in (train.barograph, valid.barograph)] == ["gpt", "gpt"]
    later = SummaryWriter("gpt/train")  # after the end: another run
    assert later.barograph is not train.barograph
    later.close()


def test_a_step_to_purge_from_begins_a_new_branch() -> None:
    with barograph.init(project="purged", console="none") as run:
        writer = SummaryWriter("x")
        for step in range(5):
            writer.add_scalar("loss", step, step)
        writer = SummaryWriter("x", purge_step=3)
        writer.add_scalar("loss", 30, 3)
    assert list(barograph.StoredRun(run.dir).series("loss").value) == [0, 1, 2, 30]


def test_a_program_runs_unchanged_from_the_command_line(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(
        "from torch.utils.tensorboard import SummaryWriter\nwriter = SummaryWriter('unchanged/small')\n"
        "for step in range(5):\n    writer.add_scalar('y=x', step, step)\n"  # and no word of an end
    )
    subprocess.run([sys.executable, "-m", "barograph.compat.tensorboard", "train.py"], check=True, timeout=300)
    (run,) = barograph.runs(project="unchanged")
    assert list(run.series("y=x").step) == list(range(5)) and run.manifest["status"] == "finished"
