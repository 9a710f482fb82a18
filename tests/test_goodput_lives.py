"""Time and cost of runs of processes that are killed and go on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from patience import patient, until
from test_goodput import checked

import barograph
from barograph.query.stored import StoredRun
from barograph.views.overview import detail

SCRIPT = """
import sys, time, barograph
run = barograph.init(project="p", name="killed", dir=sys.argv[1], verbosity=-2, git=False)
time.sleep(0.3)
for step in range(10_000):
    began = time.perf_counter()
    time.sleep(0.02)
    run.log_step(step, 0, 100, (time.perf_counter() - began) * 1000, 1.0, 2.0, 1e-3)
    if step == 20:
        print("far enough", flush=True)
"""


def test_a_killed_run_is_counted_from_its_log(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "far enough\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    (run,) = barograph.runs(tmp_path)
    totals = checked(run.goodput())
    assert totals.startup >= 0.3 and totals.productive >= 0.4 and totals.downtime == 0
    time.sleep(0.2)
    with barograph.init(project="p", dir=tmp_path, resume=True, resume_step=10, verbosity=-2, git=False) as going:
        for step in range(10, 13):
            time.sleep(0.02)
            going.log_step(step, 0, 100, 20.0, 1.0, 2.0, 1e-3)
    after = checked(StoredRun(run.dir).goodput())
    assert after.downtime >= 0.2 and after.crashes == 1 and after.redone_steps >= 11 and after.redone > 0.2
    assert after.productive == pytest.approx(13 * 0.02, rel=0.5)


LIVES = """
import os, sys, time, barograph
folder, first, last, beside = sys.argv[1:]
run = barograph.init(project="p", id="run", dir=folder, resume="allow", verbosity=-2, git=False, machine=False,
                     price_per_gpu_hour=3600.0, sidecar=beside == "sidecar")
run.log_gpu_model(name="NVIDIA H100 80GB HBM3")
for step in range(int(first), int(first) + 25):
    with run.step(tokens=100, step=step) as row:
        time.sleep(0.2 if beside == "sidecar" else 0.06)  # five seconds: a run of two has no sidecar
        row.set(loss=2.0)
if last == "last":
    run.finish()
else:
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("beside", ["sidecar", "alone"])
def test_time_gpu_hours_and_cost_hold_every_segment_killed_or_not_however_they_are_asked(
    tmp_path: Path, beside: str
) -> None:
    pytest.importorskip("duckdb")
    for number, last in enumerate(("", "", "last")):
        subprocess.run([sys.executable, "-c", LIVES, str(tmp_path), str(25 * number), last, beside], check=False)
        run = StoredRun(tmp_path / "p" / "run")
        if beside == "sidecar":  # says it a moment after the kill
            assert until(lambda run=run: run.manifest.get("finished") is not None, patient(60.0))  # type: ignore[misc]
        totals, cost = run.goodput(), run.cost()
        assert totals.held >= (5 if beside == "sidecar" else 1.5) * (number + 1) and totals.crashes == number
        assert cost["gpu_hours"] == pytest.approx(totals.held / 3600, rel=1e-3)
        assert cost["cost"] == pytest.approx(totals.held, rel=1e-3), "a second costs 1"
        row = barograph.sql("select wall_seconds, gpu_hours, cost from runs", tmp_path).to_pylist()[0]
        assert row == pytest.approx(
            {"wall_seconds": totals.held} | {key: cost[key] for key in ("gpu_hours", "cost")}, 0.1
        )
        shown = detail(run)
        assert {key: shown[key] for key in row} == pytest.approx(row) and shown["goodput"]["crashes"] == number
        (said,) = re.findall(r'The run cost <data value="([^"]+)"', barograph.report_html(run))
        assert float(said) == pytest.approx(cost["cost"])
