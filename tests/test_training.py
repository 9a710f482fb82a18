"""A run only writes: at once, once, into its own files, without what it does not need, and never into the loop."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from run_starts import only, start, strict

import barograph
from barograph.core import manifest
from barograph.core.secrets import is_secret_name, masked, masked_lines, masked_text, masked_words
from barograph.log.array import ArrayFile
from barograph.training.control import FILE
from barograph.training.run import Run
from barograph.training.short import SHORT


class Closed:
    """A handle that is gone."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("closed")


def python(script: str, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | environment)


# -- what is loaded, what is public ------------------------------------------------------------------------


def test_a_training_loads_neither_numpy_nor_pyarrow_on_our_account(tmp_path: Path) -> None:
    script = (
        "import sys, barograph; run = barograph.init(project='p', dir=sys.argv[1], console='none');"
        "run.log({'a': 1.0}); run.log({f'w{n}': 1.0 for n in range(500)}); run.model.histogram('h', [1.0, 2.0]);"
        "run.log_step(1, 0.1, 8, 1.0, 1.0, 2.0, 1e-3); run.finish();"
        "print(*sorted({'numpy', 'pyarrow', 'psutil', 'torch', 'pandas'} & set(sys.modules)))"
    )
    done = python(script, tmp_path)
    assert done.returncode == 0 and done.stdout.split() == [], done.stderr


def test_a_short_script_starts_no_process_beside_it(tmp_path: Path) -> None:
    script = (
        "import sys, barograph; run = barograph.init(project='p', dir=sys.argv[1], console='none');"
        "run.log({'a': 1.0}); run.finish(); print(run.alerts.beside.started)"
    )
    done = python(script, tmp_path, BAROGRAPH_SIDECAR="1")
    assert done.stdout.split() == ["False"], done.stderr
    about = only(tmp_path).manifest
    assert about["environment"]["python"] and about["packages"]["msgspec"] and about["hardware"]["cpu"]


def test_a_run_has_few_names_and_the_short_ways_lead_somewhere(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        assert len([name for name in dir(run) if not name.startswith("_")]) <= 30
        for name in SHORT:
            assert hasattr(run, name), name
            assert name not in dir(run)
        assert repr(run) == f"<Run {run.id!r}: running, step 0>"
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            _ = run.nothing  # type: ignore[attr-defined]


# -- steps, configuration ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["step", "iter", "global_step", "train/global_step"])
def test_a_step_in_the_values_is_the_step(tmp_path: Path, name: str) -> None:
    with start(tmp_path) as run:
        for at in range(0, 500, 100):
            run.log({name: at, "loss": 1.0})
        run.log({name: 7, "loss": 1.0}, step=600)
    assert only(tmp_path).series("loss").step.tolist() == [0, 100, 200, 300, 400, 600]


def test_configuration_that_comes_later_is_a_record_and_in_the_manifest(tmp_path: Path) -> None:
    with start(tmp_path, config={"a": 1}) as run:
        run.config["b"] = 2
        run.config.update({"c": {"d": 3}}, e=argparse.Namespace(f=4))
        run.config |= {"api_key": "hidden-away"}
        assert run.config["api_key"] == "hidden-away"
    back = only(tmp_path)
    assert back.config["b"] == 2 and back.config["c"] == {"d": 3} and back.config["api_key"] == "****"
    options = {record.fields["name"]: record.fields["value"] for record in back.records("option")}
    assert options["c/d"] == 3 and options["api_key"] == "****"


def test_text_among_numbers_stays_where_it_was_and_numbers_go_on(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        run.log({"loss": 1.0, "mode": 2.0}, step=0)
        run.log({"loss": 2.0, "mode": "warm"}, step=1)
        run.log({"loss": 3.0, "mode": float("nan")}, step=2)
    assert only(tmp_path).series("loss").value.tolist() == [1.0, 2.0, 3.0]
    rows = [item for item in strict(run.about.log_file) if item["log"] == "metrics"]
    assert [row["mode"] for row in rows] == [2.0, "warm", "NaN"]


# -- nothing raises, nothing foreign is swallowed --------------------------------------------------------------

ODD: list[Any] = [None, "text", [1, 2], Closed(), 3]


@pytest.mark.parametrize("value", ODD, ids=lambda value: type(value).__name__)
def test_no_call_raises_for_a_value_and_the_log_stays_json(tmp_path: Path, value: Any) -> None:
    with start(tmp_path) as run:
        for name in [name for name in dir(run) if name.startswith("log")]:
            call = getattr(run, name)
            few = ((value,), (value, value))
            more = ((), (1, value), (1, 0.1, 8, 1.0, 1.0, value, 1e-3))
            for given in few if name == "log" else few + more:
                call(*given)
        for part, names in {
            "model": ("wide", "layers", "histogram", "expert_loads", "memory", "debug_after_findings"),
            "alerts": ("send", "add", "stop_early"),
            "data": ("sample",),
            "checkpoints": ("save", "restore"),
        }.items():
            for name in names:
                getattr(getattr(run, part), name)(*([value] if name != "debug_after_findings" else []))
        run.rewind(value)
        run.set_phase(value)
        with run.phase(value):
            pass
        run.log({"loss": value})
        run._out.record("metrics", 1, value)
    strict(run.about.log_file)


def test_an_exception_of_a_signal_handler_reaches_the_loop_and_no_record_is_lost(tmp_path: Path) -> None:
    class PreemptedError(Exception):
        pass

    armed, fired, seen = False, 0, 0

    def handler(*_: Any) -> None:
        nonlocal armed, fired
        if armed:
            armed, fired = False, fired + 1
            raise PreemptedError

    before = signal.signal(signal.SIGALRM, handler)
    returned = []
    try:
        with start(tmp_path) as run:
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
            for step in range(2000):
                try:
                    armed = True
                    run.log({"v": 0.5}, step=step)
                    armed = False
                    returned.append(step)
                except PreemptedError:
                    seen += 1
            signal.setitimer(signal.ITIMER_REAL, 0, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0, 0)
        signal.signal(signal.SIGALRM, before)
    logged = [item["step"] for item in strict(run.about.log_file) if item["log"] == "metrics"]
    assert seen >= 0.9 * fired and set(returned) <= set(logged) and len(logged) == len(set(logged))


def test_many_new_names_are_said_and_do_not_grow_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with start(tmp_path) as run:
        for step in range(600):
            run.log({f"m{step}_{number}": 1.0 for number in range(30)}, step=step)
        assert len(run._out.shapes._shapes) <= 200
    assert caplog.text.count("different names have been logged") == 1


# -- one log, one run ----------------------------------------------------------------------------------------


def test_two_launches_with_one_log_file_are_two_runs_that_do_not_mix(tmp_path: Path) -> None:
    shared = tmp_path / "output" / "training.json"
    for name, base in (("a", 100.0), ("b", 200.0)):
        with start(tmp_path / "runs", name=name, log_file=str(shared)) as run:
            for step in range(3):
                run.log({"loss": base + step}, step=step)
    found = {run.id: run.series("loss").value.tolist() for run in barograph.runs(tmp_path / "runs")}
    assert found == {"a": [100.0, 101.0, 102.0], "b": [200.0, 201.0, 202.0]}
    assert (tmp_path / "runs" / "p" / "b" / "training.json").resolve() == shared.resolve()
    assert not (tmp_path / "runs" / "p" / "a" / "training.json").is_symlink()


def test_a_log_file_that_is_being_written_is_left_to_its_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shared = str(tmp_path / "training.json")
    first = start(tmp_path / "runs", name="a", log_file=shared)
    second = start(tmp_path / "runs", name="b", log_file=shared)
    first.log({"loss": 1.0})
    second.log({"loss": 2.0})
    first.finish()
    second.finish()
    assert "is being written by another run" in caplog.text
    found = {run.id: run.series("loss").value.tolist() for run in barograph.runs(tmp_path / "runs")}
    assert found == {"a": [1.0], "b": [2.0]}


def test_a_resume_goes_on_in_the_log_file_it_had(tmp_path: Path) -> None:
    shared = tmp_path / "training.json"
    for step in range(3):
        with start(tmp_path, id="a", resume="allow", log_file=str(shared)) as run:
            run.log({"loss": 1.0}, step=step)
    assert [item["step"] for item in strict(shared) if item["log"] == "metrics"] == [0, 1, 2]
    assert [item["step"] for item in strict(shared) if item["log"] == "segment"] == [0, 1, 2]


def test_a_forked_child_leaves_the_loggers_file_whole(tmp_path: Path) -> None:
    script = (
        "import os, sys, barograph\n"
        "log = barograph.TrainingRunLogger(sys.argv[1] + '/log.json', verbosity=-2)\n"
        "log.log_message(1, 'before')\n"
        "for logs in (False, True):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        logs and log.log_message(77, 'from the child')\n"
        "        sys.exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "log.log_message(2, 'after'); log.close()"
    )
    done = python(script, tmp_path)
    assert done.returncode == 0, done.stderr
    assert [item["step"] for item in strict(tmp_path / "log.json")] == [1, 2]
    (other,) = tmp_path.glob("log-*.json")
    assert [item["step"] for item in strict(other)] == [77]


# -- how a run ends --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("try:\n    raise ValueError('boom')\nfinally:\n    run.finish()", "failed"),
        ("with run:\n    raise ValueError('boom')", "failed"),
        ("with run:\n    sys.exit(3)", "failed"),
        ("with run:\n    sys.exit(0)", "finished"),
        ("raise ValueError('boom')", "failed"),
        ("raise KeyboardInterrupt", "interrupted"),
        ("os.kill(os.getpid(), signal.SIGTERM)", "terminated"),
        ("pass", "finished"),
        ("try:\n    raise ValueError\nexcept ValueError:\n    pass\nrun.finish()", "finished"),
    ],
)
def test_each_end_has_its_status(tmp_path: Path, body: str, status: str) -> None:
    head = "import os, signal, sys, barograph\nrun = barograph.init(project='p', dir=sys.argv[1], console='none')\n"
    python(head + "run.log({'a': 1.0})\n" + body, tmp_path)
    back = only(tmp_path)
    (end,) = back.records("end")
    assert (back.status, end.fields["status"]) == (status, status)
    if "boom" in body:
        assert end.fields["exception"]["type"] == "ValueError" and "boom" in end.fields["exception"]["traceback"]
    if status == "terminated":
        assert end.fields["signal"] == "SIGTERM"


def test_finish_does_not_wait_for_threads_that_log_on(tmp_path: Path) -> None:
    run, stop = start(tmp_path), threading.Event()

    def work() -> None:
        while not stop.is_set():
            run.log({"d": 1.0})

    threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    began = time.monotonic()
    run.finish(timeout=2)
    took = time.monotonic() - began
    stop.set()
    for thread in threads:
        thread.join(10)
    assert took < 10  # seconds; it does not grow with what they log
    # a call that another thread was in the middle of may come behind it
    assert "end" in [item["log"] for item in strict(run.about.log_file)[-4:]]


# -- requests to the loop ----------------------------------------------------------------------------------------


def test_requests_reach_the_loop_and_those_of_an_earlier_process_do_not(tmp_path: Path) -> None:
    (tmp_path / "p" / "r").mkdir(parents=True)
    control = tmp_path / "p" / "r" / FILE
    control.write_text(json.dumps({"request": "stop", "reason": "old"}) + "\n")
    with start(tmp_path, id="r") as run:
        assert not run.stop_requested
        with control.open("a") as file:
            file.write(json.dumps({"request": "checkpoint", "reason": "c", "step": 3}) + '\nno json\n[]\n{"requ')
        run.alerts._control._look_at = 0.0
        assert run.alerts.checkpoint_requested and not run.stop_requested
        with control.open("a") as file:
            file.write('est": "stop", "reason": "the loss rises", "step": 5}\n')
        run.alerts._control._look_at = 0.0
        assert run.stop_requested and run.alerts.stop_reason == "the loss rises"


def test_what_the_loop_asks_for_is_in_the_log(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        run.alerts.send("Loss", "is high", cause="x", step=4)
        run.alerts.add("loss", above=3)
        run.alerts.stop_early(metric="loss", patience=2)
        run.alerts.add("loss", abvoe=3)
    items = {item["log"]: item for item in strict(run.about.log_file) if item["log"].startswith(("alert", "stop"))}
    assert items["alert-request"]["title"] == "Loss" and items["alert-request"]["step"] == 4
    assert items["alert-rule"]["above"] == 3 and items["stop-rule"]["patience"] == 2
    assert len([item for item in strict(run.about.log_file) if item["log"] == "alert-rule"]) == 1


# -- checkpoints ---------------------------------------------------------------------------------------------------


def save(run: Run, folder: Path, step: int, **about: Any) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / f"{run.id}_{step:06d}.pt"
    path.write_bytes(b"weights")
    run.checkpoints.save(path, step, **about)


def test_runs_that_share_a_folder_restore_their_own(tmp_path: Path) -> None:
    for name, steps in (("a", (100, 500)), ("b", (100,))):
        with start(tmp_path, id=name) as run:
            for step in steps:
                save(run, tmp_path / "ckpt", step, loader_state={"pq_idx": step})
    with start(tmp_path, id="b", resume="must") as run:
        state = run.checkpoints.restore()
    assert state is not None and (state["step"], state["run"]) == (100, "b")
    kept = [manifest.read_checkpoint(entry["metadata"]) for entry in manifest.read(tmp_path / "p" / "a")["checkpoints"]]
    assert [one and one["run"] for one in kept] == ["a", "a"]


def test_a_discarded_branch_and_a_missing_file_are_not_restored(tmp_path: Path) -> None:
    with start(tmp_path, id="a") as run:
        for step in range(50, 201, 50):
            run.log({"loss": 1.0}, step=step)
            save(run, tmp_path / "ckpt", step, val_loss=step % 100 + 1.0)
        assert run.checkpoints.restore(step=100) is not None
        best = run.checkpoints.restore(best="val_loss")
        assert best is not None and best["step"] in (100, 200)
        (tmp_path / "ckpt" / "a_000200.pt").unlink()
        last = run.checkpoints.restore()
        assert last is not None and last["step"] == 150
        run.rewind(60)
        back = run.checkpoints.restore()
        assert back is not None and back["step"] == 50
    with barograph.fork(run, step=120, name="f", dir=tmp_path, verbosity=-2, git=False) as fork:
        state = fork.checkpoints.restore()
    assert state is not None and state["step"] == 50


# -- secrets -------------------------------------------------------------------------------------------------------

SECRET = [
    "wandb_api_key", "OPENAI_API_KEY", "password", "db_password", "NCCL_PASS", "CUDA_X_PWD", "DS_CONN", "hf_token",
    "HF_TOKEN", "slack_webhook", "BAROGRAPH_NOTIFY", "client_secret", "aws_secret_access_key", "auth_token", "dsn",
]  # fmt: skip
PLAIN = [
    "max_tokens", "tokenizer", "pad_token", "eos_token_id", "total_tokens", "tokens", "num_key_value_heads", "key_dim",
    "forward_pass", "author", "use_cache", "hidden_size", "learning_rate", "monkey", "keyword", "image_token",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRET)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)
    assert masked({"a": {name: "made-up"}}) == {"a": {name: "****"}}


@pytest.mark.parametrize("name", PLAIN)
def test_names_that_only_look_like_secrets_stay_readable(name: str) -> None:
    assert not is_secret_name(name)
    assert masked({name: "made-up"}) == {name: "made-up"}


def test_secrets_are_known_by_their_form() -> None:
    for text in (
        "postgresql://me:made-up@db/x", "hf_" + "a1B2" * 8, "sk-" + "a1B2" * 8, "ghp_" + "a1B2" * 9,
        "https://hooks.slack.com/services/T0/B0/made-up", "AKIA" + "A1" * 8, "slack://made-up/b/c",
    ):  # fmt: skip
        assert "made-up" not in masked_text(text) and "a1B2" not in masked_text(text) and "****" in masked_text(text)
    assert masked_text("https://example.org/data?split=train") == "https://example.org/data?split=train"
    words = ["train.py", "--hf_token", "made-up", "--password=made-up", "--lr", "1e-3", "--max-tokens", "5"]
    assert masked_words(words) == [
        "train.py", "--hf_token", "****", "--password=****", "--lr", "1e-3", "--max-tokens", "5",
    ]  # fmt: skip
    diff = '+api_key = "made-up-key"\n+tokenizer = "gpt2"\n+key = os.environ["KEY"]'
    assert masked_lines(diff) == '+api_key = "****"\n+tokenizer = "gpt2"\n+key = os.environ["KEY"]'


def test_no_secret_is_in_any_file_of_a_run(tmp_path: Path) -> None:
    script = (
        "import sys, barograph\n"
        "config = {'wandb_api_key': 'made-up-2', 'db': 'postgresql://me:made-up-3@db/x', 'max_tokens': 5}\n"
        "run = barograph.init(project='p', dir=sys.argv[1], console='none', config=config)\n"
        "run.log({'a': 1.0}); run.finish()"
    )
    done = python(
        script, tmp_path, "--hf_token", "made-up-4", BAROGRAPH_NOTIFY="slack://made-up-1/b/c", DS_CONN="made-up-5"
    )
    assert done.returncode == 0 and "recorded as ****" in done.stderr
    text = "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*.json"))
    assert "made-up" not in text and '"max_tokens": 5' in text


# -- the disk ------------------------------------------------------------------------------------------------------


def test_what_a_full_disk_refuses_until_the_end_is_kept_elsewhere_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    caplog.set_level(logging.WARNING)
    run = start(tmp_path / "runs", id="r")
    run.log({"v": 0.0}, step=0)
    write = ArrayFile.write

    def refuse(file: ArrayFile, data: bytes) -> None:
        if str(file.path).startswith(str(tmp_path / "runs")):
            raise OSError(28, "No space left on device")
        write(file, data)

    monkeypatch.setattr(ArrayFile, "write", refuse)
    for step in range(1, 50):
        run.log({"v": float(step)}, step=step)
    run.finish()
    assert "brings it back" in caplog.text
    monkeypatch.setattr(ArrayFile, "write", write)
    assert only(tmp_path / "runs").series("v").step.tolist() == list(range(50))
    start(tmp_path / "runs", id="r", resume="must").finish()
    logged = [item["step"] for item in strict(run.dir / "training.json") if item["log"] == "metrics"]
    assert logged == list(range(50)) and not list((tmp_path / "elsewhere").glob("*/*"))
