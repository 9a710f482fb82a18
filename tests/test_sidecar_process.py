"""One sidecar a run and host, as long as it is needed; without one nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import sidecar_runs as runs
from patience import patient, until
from sidecar_runs import Writer, own_records, sidecar, training

import barograph
from barograph.cli import main
from barograph.core import liveness, manifest
from barograph.core.options import Settings
from barograph.doctor import diagnose
from barograph.sidecar import attend
from barograph.sidecar.lock import RunLock, Slot
from barograph.sidecar.process import settings_of

WAITING = "sys.stdin.readline()\nwriter.close()"


def at_work(folder: Path) -> Any:
    return until(lambda: RunLock(folder).read().get("at", -1) >= 0 and RunLock(folder).read())


def test_of_two_sidecars_of_one_process_one_works(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = training(folder, WAITING)
    with sidecar(folder, process.pid) as first:
        assert at_work(folder)["pid"] == first.pid
        with sidecar(folder, process.pid) as second:
            assert second.wait(30) == 0
        assert first.poll() is None
        process.communicate("\n")
        assert first.wait(60) == 0


def test_a_killed_sidecar_is_followed_by_one_that_says_nothing_twice(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    body = """
for line in sys.stdin:
    if line == "end\\n":
        break
    for _ in range(20):
        step += 1
        writer.row(step, {"train/loss": float("nan"), "train/lr": 1e-3}, 0.01)
    print("more", flush=True)
writer.close()
"""
    process = training(folder, body)
    assert process.stdin is not None and process.stdout is not None

    def log_more() -> None:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("more\n")
        process.stdin.flush()
        process.stdout.readline()

    with sidecar(folder, process.pid) as first:
        log_more()
        assert until(lambda: own_records(folder, "finding"))
        first.send_signal(signal.SIGSTOP)
        log_more()
        first.kill()
        first.wait()
        log_more()
        with sidecar(folder, process.pid) as second:
            assert until(lambda: RunLock(folder).read().get("pid") == second.pid)
            process.communicate("end\n")
            assert second.wait(60) == 0
    found = [(one["rule"], one["step"], one["severity"]) for one in own_records(folder, "finding")]
    assert ("non_finite_loss", 51, "critical") in found and len(found) == len(set(found))
    titles = [one["title"] for one in own_records(folder, "alert")]
    assert titles.count("Non finite loss") == 1


def test_a_sidecar_leaves_within_two_seconds_of_sigterm_and_stays_at_ctrl_c(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = training(folder, WAITING)
    with sidecar(folder, process.pid) as beside:
        assert at_work(folder)
        beside.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert beside.poll() is None
        began = time.monotonic()
        beside.terminate()
        assert beside.wait(20) == 0 and time.monotonic() - began < patient(4.0)
        assert RunLock(folder).read()["state"] == "stopped"
    process.communicate("\n")
    assert process.returncode == 0


def test_a_folder_that_is_deleted_ends_its_sidecar(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = training(folder, WAITING)
    with sidecar(folder, process.pid) as beside:
        assert at_work(folder)
        shutil.rmtree(folder)
        assert beside.wait(30) == 0
    process.kill()
    assert not folder.exists()


def test_a_note_of_another_version_is_not_believed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    runs.describe(folder)
    writer = Writer(folder)
    for step in range(100):
        writer.row(step, {"train/loss": float("nan") if step > 50 else 2.0})
    writer.close()
    for note in ({"version": "99.0", "at": 10**9}, {"at": "x"}, [], "nonsense"):
        (folder / f"sidecar-{os.uname().nodename}.json").unlink(missing_ok=True)
        (folder / f"sidecar-{os.uname().nodename}.lock").write_text(json.dumps(note))
        done = attend.attend(folder, quiet=True)
        assert done is not None and done.findings >= 1


def test_settings_of_another_version_are_taken_as_far_as_they_are_known() -> None:
    found = settings_of({"alert_cooldown": 5.0, "silence": ["a"], "of_the_future": 1})
    assert found.alert_cooldown == 5.0 and found.silence == ("a",)
    assert isinstance(settings_of(None), Settings)


def test_places_for_sidecars_that_nothing_depends_on_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    slots = [Slot() for _ in range(5)]
    assert [slot.take(3) for slot in slots] == [True, True, True, False, False]
    slots[1].release()
    assert Slot().take(3)


def test_a_script_of_a_second_starts_no_sidecar(tmp_path: Path) -> None:
    program = """
import subprocess, sys
started = []
Popen = subprocess.Popen
subprocess.Popen = lambda command, *rest, **named: started.append(command) or Popen(command, *rest, **named)
import barograph
for number in range(5):
    with barograph.init(project="p", dir=sys.argv[1], verbosity=-2, git=False, machine=False) as run:
        for step in range(20):
            run.log({"loss": 1.0}, step=step)
print(sum("barograph.sidecar" in command for command in started))
"""
    environment = {**runs.ENVIRONMENT, "BAROGRAPH_SIDECAR": "true"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "0"


def test_a_stop_reaches_the_loop_within_two_seconds_of_its_row(tmp_path: Path) -> None:
    program = """
import sys, time, barograph
run = barograph.init(project="p", dir=sys.argv[1], verbosity=-2, git=False, machine=False, stop_on="critical")
began = None
for step in range(3000):
    if step >= 300 and began is None:
        began = time.monotonic()
    run.log({"train/loss": float("nan") if step >= 300 else 2.0}, step=step)
    if run.stop_requested:
        print(time.monotonic() - began)
        break
    time.sleep(0.01)
run.finish()
"""
    environment = {**runs.ENVIRONMENT, "BAROGRAPH_SIDECAR": "true"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], env=environment, capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 2.0


def test_attend_does_what_a_sidecar_would_have_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    process = training(folder, "sys.stdin.readline()\nos._exit(3)")
    process.communicate("\n")
    assert liveness.status(folder, manifest.read(folder)) == "crashed"
    (stored,) = barograph.runs(tmp_path)
    assert diagnose(stored)["findings"][0]["rule"] == "crashed"
    assert main(["attend", str(folder)]) == 0
    assert "crashed" in capsys.readouterr().out
    about = manifest.read(folder)
    assert about["status"] == "crashed" and about["final_metrics"] and list(folder.glob("store/*/*.parquet"))
    (end,) = own_records(folder, "end")
    assert end["step"] == 50 and "nobody saw" in end["reason"]
    (stored,) = barograph.runs(tmp_path)
    findings = diagnose(stored)["findings"]
    assert findings[0]["rule"] == "crashed" and len([one for one in findings if one["rule"] == "crashed"]) == 1
    before = own_records(folder)
    assert main(["attend", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["findings"] == 0 and own_records(folder) == before


def test_ps_lists_the_sidecars_of_this_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("psutil")
    folder = tmp_path / "run"
    process = training(folder, WAITING)
    with sidecar(folder, process.pid) as beside:
        assert at_work(folder)
        assert main(["ps", "--json"]) == 0
        (row,) = [one for one in json.loads(capsys.readouterr().out) if one["run"] == str(folder)]
        assert row["pid"] == beside.pid and row["watches"] == process.pid and row["memory_bytes"] > 1e6
        assert main(["attend", str(folder)]) == 0
        assert f"process {beside.pid}" in capsys.readouterr().out
        assert main(["ps"]) == 0 and "run" in capsys.readouterr().out
        process.communicate("\n")
        assert beside.wait(60) == 0


@pytest.mark.parametrize("way", ["options", "calls"])
def test_without_a_sidecar_rules_are_judged_afterwards_and_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    rules: dict[str, Any] = (
        {"alerts": ["train/loss > 5", {"metric": "eval/loss", "above": 9}]} if way == "options" else {}
    )
    run = barograph.init(project="p", dir=tmp_path, sidecar=False, git=False, machine=False, **rules)
    if way == "calls":
        run.alerts.add("train/loss", above=5)
        run.alerts.add("eval/loss", above=9)
    run.alerts.stop_early(metric="eval/loss", patience=2)
    for step in range(1, 30):
        run.log({"train/loss": 9.0 if step == 20 else 1.0, "eval/loss": 1.0}, step=step)
    run.finish()
    assert caplog.text.count("barograph attend") == 1 and "sidecar=False" in caplog.text
    assert not list(run.dir.glob("sidecar-*.json"))
    assert attend.attend(run.dir, quiet=True) is not None
    alerts = own_records(run.dir, "alert")
    assert {(one["step"], one["title"]) for one in alerts if not one["cause"].startswith("doctor")} >= {
        (20, "train/loss above 5"),
        (3, "Early stopping"),
    }


def test_with_a_sidecar_and_without_rules_nothing_is_said_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    barograph.init(project="p", dir=tmp_path, sidecar=False, git=False, machine=False).finish()
    run = barograph.init(project="p", dir=tmp_path, sidecar=True, git=False, machine=False)
    run.alerts.add("train/loss", above=5)
    run.finish()
    assert "attend" not in caplog.text


def test_a_run_that_ends_at_once_is_sent_to_its_trackers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    for number in range(3):
        sent = tmp_path / f"tb{number}"
        with barograph.init(
            project="p", id=f"r{number}", dir=tmp_path, report_to=["tensorboard"],
            tensorboard_dir=str(sent), sidecar=True, git=False, machine=False, console="none",
        ) as run:  # fmt: skip
            run.log({"train/loss": 1.0}, step=1)
        assert until(lambda sent=sent: [*sent.rglob("events.out.tfevents.*")], patient(60.0))  # type: ignore[misc]
