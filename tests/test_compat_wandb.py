"""The stand-in for W&B's module: public programs' calls run to the end, and every number is at its step."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import barograph
import barograph.compat.wandb as wandb
from barograph.integrations.compat import unsupported, wandb_run

pytest.importorskip("torch")
import torch
import wandb_programs
from wandb_programs import PROGRAMS


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAROGRAPH_BLACKBOX", "false")
    monkeypatch.setenv("BAROGRAPH_GIT", "false")
    for name in list(os.environ):
        if name.startswith("WANDB_"):
            monkeypatch.delenv(name)
    unsupported._said.clear()
    yield tmp_path
    while wandb.run is not None:
        wandb.finish()


def stored(project: str, where: Path = Path()) -> list[barograph.StoredRun]:
    found = sorted(where.glob(f"**/runs/{project}/*/run_manifest.json"))
    return [barograph.StoredRun(path.parent) for path in found]


def only(project: str) -> barograph.StoredRun:
    (run,) = stored(project)
    return run


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_runs_to_the_end_and_its_numbers_are_at_their_steps(program: Callable[[Any], None]) -> None:
    project, series, steps = PROGRAMS[program]
    program(wandb)
    wandb.finish()
    for run in stored(project):
        assert list(run.series(series).step) == steps, run.names()
        assert run.manifest["status"] == "finished"
    assert stored(project)


def test_the_public_name_is_the_same_module() -> None:
    from barograph.compat.wandb import init
    from barograph.integrations.compat import wandb as own

    assert wandb is own and init is own.init and sys.modules["barograph.compat.wandb"] is own


def test_rows_are_put_together_until_they_are_committed() -> None:
    wandb.init(project="rows")
    wandb.log({"a": 1}, commit=False)
    wandb.log({"b": 1})  # the same row, which ends
    wandb.log({"a": 2})
    assert wandb.run.step == 2
    wandb.log({"a": 3}, step=10)
    wandb.log({"b": 3}, step=10)
    wandb.log({"c": 3})  # W&B puts it into the row of step 10
    wandb.log({"a": 4})
    wandb.log({"late": 5}, step=3)
    assert wandb.run.step == 12
    wandb.finish()
    run = only("rows")
    steps = {name: list(run.series(name).step) for name in run.names()}
    assert steps == {"a": [0, 1, 10, 11], "b": [0, 10], "c": [10], "late": [3]}


@pytest.mark.parametrize("pattern, axis, steps", [
    ("train/*", "train/step", [0, 100, 200]),
    ("*", "global_step", [0, 100, 200]),
    ("*", "epoch", [0, 1, 2]),  # epochs are no steps: W&B's own count stays
])  # fmt: skip
def test_an_axis_that_counts_steps_is_the_step(pattern: str, axis: str, steps: list[int]) -> None:
    wandb.init(project="axis")
    wandb.define_metric(axis)
    wandb.define_metric(pattern, step_metric=axis, summary="min")
    for row in range(3):
        wandb.log({axis: row * 100, "train/loss": 3 - row})
    assert wandb.summary["train/loss.min"] == 1
    wandb.finish()
    assert list(only("axis").series("train/loss").step) == steps


def test_a_second_init_is_the_same_run_or_another_one_as_asked() -> None:
    first = wandb.init(project="several", config={"a": 1})
    assert wandb.init(project="several", config={"b": 2}) is first and dict(first.config) == {"a": 1, "b": 2}
    beside = wandb.init(project="several", reinit="create_new")
    assert beside is not first and wandb.run is first
    beside.log({"loss": 1})
    third = wandb.init(project="several", reinit=True)
    assert wandb.run is third and first.barograph.about.status == "finished"


def test_modes_and_variables_are_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    wandb_programs.disabled(wandb)
    monkeypatch.setenv("WANDB_DISABLED", "true")
    wandb_programs.step_in_the_values(wandb)
    wandb.finish()
    assert not list(Path().glob("**/run_manifest.json"))
    monkeypatch.delenv("WANDB_DISABLED")
    given = {
        "PROJECT": "env", "NAME": "n", "NOTES": "why", "TAGS": "a,b", "RUN_GROUP": "g", "JOB_TYPE": "eval",
        "MODE": "offline", "RUN_ID": "abc",
    }  # fmt: skip
    for name, value in given.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    wandb.init().finish()
    held = only("env").manifest
    assert [held[name] for name in ("id", "name", "notes", "tags", "group", "job_type")] == [
        "abc", "n", "why", ["a", "b"], "g", "eval",
    ]  # fmt: skip
    wandb.init(project="argument", settings=wandb.Settings(run_group="setting"), notes="argument").finish()
    held = only("argument").manifest
    assert (held["group"], held["notes"], held["name"]) == ("setting", "argument", "n")


@pytest.mark.parametrize("ended, goes_on", [("failed", True), ("finished", False)])
def test_auto_goes_on_with_a_run_that_did_not_end_well(ended: str, goes_on: bool) -> None:
    run = wandb.init(project="auto", name="first")
    run.log({"loss": 1}, step=7)
    run.finish(exit_code=1 if ended == "failed" else 0)
    again = wandb.init(project="auto", resume="auto")
    assert (again.id == run.id, again.resumed, again.step) == ((True, True, 8) if goes_on else (False, False, 0))


def test_what_is_not_supported_says_so_once_and_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "barograph"):
        for _ in range(3):
            wandb.log({"a": 1})  # before init
        with wandb.init(project="odd") as run:
            for _ in range(3):
                wandb.launch.agent(1).x["y"].z = 2
                run.public_api().y()
                run.log({"loss": 1.0, "thing": object(), "many": [1, 2], "none": None, "tensor": torch.ones(3)})
            run.log(3)
            decorated = wandb.trace_it(lambda: 5)
            assert decorated() == 5 and not wandb.nothing and list(wandb.nothing) == []

            class Callback(wandb.SomeCallback):  # type: ignore[misc]
                pass

            assert not isinstance(Callback(), wandb.OtherCallback)
    sentences = [record.getMessage() for record in caplog.records]
    assert len(sentences) == len(set(sentences))
    assert len([sentence for sentence in sentences if "wandb.launch" in sentence]) == 1
    found = only("odd")
    assert len(found.series("loss").step) == 3 and "tensor" in found.histogram_names()
    with pytest.raises(barograph.ConfigError, match="sweeps"):
        wandb.agent("sweep", function=lambda: None)


def test_files_tables_and_summaries_are_kept(tmp_path: Path) -> None:
    with wandb.init(project="kept") as run:
        run.log({"audio": wandb.Audio([0.0, 0.5], sample_rate=8000), "nested": {"page": wandb.Html("<b>")}})
        run.log({"answers": wandb.Table(columns=["prompt", "response"], data=[["2+2=", "4"], ["1+1=", "2"]])})
        run.summary["best/loss"] = 0.25
        run.define_metric("x")
        run.log({"x": 1})
        Path("model.bin").write_bytes(b"weights")
        for _ in range(2):
            run.log_artifact("model.bin", name="model", type="model", aliases=["best"])
    found = only("kept")
    kinds = [record for record in found.records() if record.kind == "sample"]
    assert [(record.fields["prompt"], record.fields["text"]) for record in kinds] == [("2+2=", "4"), ("1+1=", "2")]
    (sound,), (page,) = found.media("audio"), found.media("nested/page")
    assert sound.type == "audio" and sound.read()[:4] == b"RIFF" and sound.fields["rate"] == 8000
    assert page.type == "file" and page.path.suffix == ".html" and page.read() == b"<b>"
    (table,) = found.media(type="table")
    assert table.step == 1 and table.table() == {"prompt": ["2+2=", "1+1="], "response": ["4", "2"]}
    assert (found.dir / "artifacts" / "model" / "v1" / "model.bin").read_bytes() == b"weights"
    options = {record.fields["name"]: record.fields["value"] for record in found.records() if record.kind == "option"}
    assert options["summary/best/loss"] == 0.25
    with wandb.init(project="kept") as run:
        assert Path(run.use_artifact("team/kept/model:best").download(), "model.bin").exists()
        with pytest.raises(ValueError, match="no run of project"):
            run.use_artifact("other:latest")


def test_an_exception_ends_the_run_as_failed() -> None:
    with pytest.raises(ZeroDivisionError), wandb.init(project="fails") as run:
        run.log({"loss": 1})
        1 / 0  # noqa: B018
    assert wandb.run is None and only("fails").manifest["status"] == "failed"


def test_a_run_reaches_a_worker_by_pickling() -> None:
    run = wandb.init(project="workers", name="w")
    again = pickle.loads(pickle.dumps(run))
    again.log({"loss": 1}, step=3)
    assert (again.id, again.barograph) == (run.id, run.barograph)
    assert pickle.loads(pickle.dumps(wandb_run.WandbRun(None, {"id": "x"}, print))).disabled


def test_a_cell_that_is_run_again_begins_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    first = wandb.init(project="cells")
    second = wandb.init(project="cells")
    assert second is not first and first.barograph.about.status == "finished"


def test_libraries_that_import_wandb_get_the_stand_in() -> None:
    program = """
import barograph.compat.wandb
barograph.compat.wandb.install()
import wandb
from wandb import Table
from wandb.sdk.wandb_run import Run
import wandb.sdk.lib.runid
wandb.init(project="library")
wandb.log({"loss": 1.0}, step=4)
assert wandb is barograph.compat.wandb and wandb.run.step == 4
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    assert list(only("library").series("loss").step) == [4]


UNCHANGED = """
import argparse, sys
import matplotlib.pyplot as plt
import numpy as np
import wandb
from beside import WIDTH

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
wandb.init(project="unchanged", group="g", job_type="train", notes="of a program")
wandb.config.update(parser.parse_args())
wandb.config.width = WIDTH
wandb.config = {"kind": "small"}
for epoch in range(wandb.config.epochs):
    wandb.log({"loss": np.abs(np.float64(-1.0)) / (epoch + 1)}, commit=False)
    if epoch % 2 == 0:
        wandb.log({"val/acc": 0.5}, commit=False)
    wandb.log()
plt.figure()
plt.plot([1, 2])
wandb.log({"figure": plt})
wandb.log({"chart": wandb.plot_table(vega_spec_name="a/b", data_table=wandb.Table(data=[[1, 2]], columns=["x", "y"]),
                                     fields={"x": "x"})})
np.save("weights", np.zeros(3))
wandb.save("weights.npy")
sys.exit(3)
"""


def test_a_program_runs_unchanged_from_the_command_line(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "train.py").write_text(UNCHANGED)
    (folder / "beside.py").write_text("WIDTH = 7")
    words = [sys.executable, "-m", "barograph.compat.wandb", "programs/train.py", "--epochs", "3"]
    done = subprocess.run(words, env=os.environ | {"MPLBACKEND": "agg"}, timeout=300)
    assert done.returncode == 3  # the program's own
    run = only("unchanged")
    assert list(run.series("loss").step) == [0, 1, 2] and list(run.series("val/acc").step) == [0, 2]
    assert run.manifest["config"] == {"epochs": 3, "width": 7, "kind": "small"}
    assert run.manifest["group"] == "g" and run.manifest["job_type"] == "train"
    files = {path.relative_to(run.dir).as_posix() for path in run.dir.rglob("*") if path.is_file()}
    (figure,) = run.media("figure")
    assert figure.type == "image" and figure.is_there and "files/weights.npy" in files
    missing = subprocess.run([*words[:3], "no.py"], capture_output=True, text=True, timeout=300)
    assert missing.returncode == 1 and missing.stderr.startswith("there is no no.py")


def test_models_of_a_list_are_watched_together_and_one_of_them_ends_it() -> None:
    torch = pytest.importorskip("torch")
    run = wandb.init(project="p")
    players = [torch.nn.Linear(2, 2, bias=False) for _ in range(2)]
    optimizer = torch.optim.SGD([player.weight for player in players], lr=0.0)
    wandb.watch(players, log_freq=1)
    for step in range(4):
        for player in players:
            player(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        wandb.log({"loss": 1.0}, step=step)
        if step == 2:
            wandb.unwatch(players[1])
    wandb.finish()
    norms = barograph.StoredRun(run.barograph.dir).series("model/grad_norm")
    assert norms.step.tolist() == [0, 1, 2] and norms.value.tolist() == pytest.approx([8**0.5] * 3)


@pytest.mark.slow
def test_type_checkers_know_the_names() -> None:
    pytest.importorskip("mypy")
    program = (
        "import barograph.compat.wandb as wandb\nfrom barograph.compat.tensorboard import SummaryWriter\n"
        "from barograph.compat.wandb import Table, init\n"
        "run = init(project='a')\nrun.log({'a': 1}, step=1)\nreveal_type(run)\nreveal_type(wandb.Table)\n"
        "wandb.whatever(1)\nSummaryWriter('x').add_scalar('a', 1.0, 1)\n"
    )
    source = str(Path(barograph.__file__).parents[1])
    Path("mypy.ini").write_text(
        f"[mypy]\nmypy_path = {source}\nfollow_imports = silent\nignore_missing_imports = true\n"
        "[mypy-torch.*]\nfollow_imports = skip\n"  # which only takes time
    )
    # a process of its own: it leaves a million objects, and thaws those that are frozen
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", "cache", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True)
    found, code = done.stdout, done.returncode
    assert code == 0 and "WandbRun" in found and "WandbTable" in found, found
