"""Runs for Prometheus: names, units, hostile names, bounds; scraped by a real one."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from patience import patient
from patience import until as until_true
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from sidecar_runs import ENVIRONMENT

import barograph
from barograph.query import openmetrics
from barograph.query.openmetrics import LiveRuns, MetricsServer, family_of

HOSTILE = [
    'a"b',
    "back\\slash",
    "line\nbreak",
    "ünï/cødé",
    "x" * 5000,
    "",
    "a/b",
    "a_b",
    "steps_total",
    "run/step",
    "1",
]


def until(true: Any) -> Any:
    return until_true(true, patient(60))


def start(folder: Path, **options: Any) -> barograph.Run:
    return barograph.init(dir=folder, project="gpt", name="one", console="none", machine=False, **options)


def get(port: int, accept: str = "application/openmetrics-text") -> tuple[str, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=patient(20)) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]


def samples(text: str) -> dict[tuple[str, str, str], float]:
    """(metric, run, series) → value, by the parser of Prometheus' own client."""
    return {
        (sample.name, sample.labels.get("run", ""), sample.labels.get("series", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_series_become_metrics_with_base_units() -> None:
    expected = {
        "train/loss": ("barograph_train_loss", "", 1.0),
        "train/duration_ms": ("barograph_train_duration_seconds", "seconds", 1e-3),
        "memory/allocated_gb": ("barograph_memory_allocated_bytes", "bytes", 1e9),
        "host/cpu_percent": ("barograph_host_cpu_ratio", "ratio", 1e-2),
        "layers.0/grad-norm": ("barograph_layers_0_grad_norm", "", 1.0),
        "steps_total": ("barograph_steps_total_value", "", 1.0),
        "run/step": ("barograph_run_step_value", "", 1.0),
    }
    assert {name: family_of(name) for name in expected} == expected
    for name in HOSTILE:
        assert re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", family_of(name)[0])


def test_hostile_names_and_values_are_valid_and_come_back_as_they_were(tmp_path: Path) -> None:
    run = start(tmp_path, sidecar=False)
    values = {name: float(number) for number, name in enumerate(HOSTILE)}
    run.log(values | {"nan": math.nan, "high": math.inf, "low": -math.inf, "time_ms": 250.0}, step=7)
    found = samples(LiveRuns(tmp_path).page())
    for name, value in values.items():
        assert [v for (_, _, series), v in found.items() if series == name[:200]] in ([value], []) or name in (
            "",
            "a/b",
        )
    given = {series for _, _, series in found}
    assert {'a"b', "back\\slash", "line\nbreak", "ünï/cødé", "a/b", "a_b"} <= given
    assert math.isnan(found["barograph_nan", run.id, "nan"]) and found["barograph_low", run.id, "low"] == -math.inf
    assert found["barograph_time_seconds", run.id, "time_ms"] == 0.25
    assert found["barograph_run_step", run.id, ""] == 7 and found["barograph_run_up", run.id, ""] == 1
    run.finish()


def test_series_are_bounded_and_what_is_left_out_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openmetrics, "MOST_SERIES", 30)
    run = start(tmp_path, sidecar=False)
    run.log({f"wide/{number}": number for number in range(150)}, step=1)
    run.log({f"narrow/{number}": number for number in range(20)}, step=2)
    found = samples(LiveRuns(tmp_path).page())
    assert sum(1 for name, _, series in found if series) == 30
    assert found["barograph_run_series_left_out", run.id, ""] == 140
    run.finish()


def test_only_what_is_new_is_read_and_an_ended_run_goes_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, run = LiveRuns(tmp_path), start(tmp_path, sidecar=False)
    for step in range(3):
        run.log({"train/loss": 3.0 - step}, step=step)
        assert samples(live.page())["barograph_train_loss", run.id, "train/loss"] == 3.0 - step
    run.finish()
    found = samples(live.page())
    assert found["barograph_run_up", run.id, ""] == 0 and found["barograph_train_loss", run.id, "train/loss"] == 1.0
    monkeypatch.setattr(openmetrics, "_KEPT_SECONDS", -1.0)
    assert not samples(live.page())


def test_the_server_gives_both_formats_and_nothing_else(tmp_path: Path) -> None:
    server = MetricsServer(LiveRuns(tmp_path).page, "127.0.0.1", 0).start()
    try:
        text, kind = get(server.port)
        assert kind.startswith("application/openmetrics-text") and text == "# EOF\n"
        assert get(server.port, "*/*")[1].startswith("text/plain; version=0.0.4")
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/other", timeout=patient(20))
    finally:
        server.stop()


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def test_a_runs_own_sidecar_gives_its_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    port = free_port()
    run = start(tmp_path, sidecar=True, metrics_port=port)
    run.log({"train/loss": 2.5}, step=3)

    def value() -> float | None:
        try:
            return samples(get(port)[0]).get(("barograph_train_loss", run.id, "train/loss"))
        except OSError:
            return None

    assert until(lambda: value() == 2.5)
    run.finish()


def test_prometheus_scrapes_the_command(tmp_path: Path) -> None:
    program = shutil.which("prometheus")
    if program is None:
        if os.environ.get("BAROGRAPH_CI"):
            pytest.fail("prometheus is not installed")
        pytest.skip("prometheus is not installed: apt-get install prometheus")
    run = start(tmp_path / "runs", sidecar=False)
    run.log({"train/loss": 1.25, 'odd "name"\\\n': 4.0}, step=11)
    command = [sys.executable, "-m", "barograph", "metrics", "--port", "0", "--dir", str(tmp_path / "runs")]
    ours = subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT, text=True)
    theirs = None
    try:
        assert ours.stdout is not None
        address = re.search(r"http://(\S+)/metrics", ours.stdout.readline())
        assert address is not None
        (tmp_path / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n"
            f"  - job_name: barograph\n    static_configs: [{{targets: ['{address[1]}']}}]\n"
        )
        port = free_port()
        theirs = subprocess.Popen(
            [program, f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}",
             f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"],
        )  # fmt: skip

        def ask(query: str) -> list[dict[str, Any]]:
            url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
            try:
                with urllib.request.urlopen(url, timeout=patient(10)) as answer:
                    found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
                    return found
            except OSError:
                return []

        found = until(lambda: ask("barograph_train_loss"))
        assert float(found[0]["value"][1]) == 1.25
        assert (found[0]["metric"]["run"], found[0]["metric"]["series"]) == (run.id, "train/loss")
        assert until(lambda: ask("barograph_odd_name"))[0]["metric"]["series"] == 'odd "name"\\\n'
        run.log({"train/loss": 0.5}, step=12)
        assert until(lambda: [row for row in ask("barograph_run_step") if row["value"][1] == "12"])
        assert until(lambda: ask("up"))[0]["value"][1] == "1"
    finally:
        for process in (theirs, ours):
            if process is not None:
                process.terminate()
                process.wait()
        if ours.stdout is not None:
            ours.stdout.close()
        run.finish()
