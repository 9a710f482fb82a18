"""A run whose ranks stand still says where each of them is, on one host and on two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from alert_receivers import HttpReceiver
from patience import patient, until
from sidecar_runs import ENVIRONMENT, Writer, describe

from barograph.core import liveness, manifest, place
from barograph.core.options import Settings
from barograph.core.record import Record
from barograph.doctor import diagnose
from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.rules.run.ending import Hung
from barograph.log.read import read_log
from barograph.query.stored import StoredRun
from barograph.sidecar.loop import Sidecar

PROGRAM = """
import sys, time
import torch
import torch.distributed as distributed
import barograph

def load_batch(step):
    if step == 40 and distributed.get_rank() == 1:
        time.sleep(600)  # a data loader that never comes back

distributed.init_process_group("gloo")
run = barograph.init(project="p", config_file=sys.argv[2], dir=sys.argv[1], console="none", git=False, machine=False)
for step in range(1, 1000):
    load_batch(step)
    loss = torch.ones(())
    distributed.all_reduce(loss)
    run.log({"train/loss": 3.0 / step**0.3}, step=step)
    time.sleep(0.02)
"""
SECONDS = 2.0  # without a step that count as a hang here


@pytest.mark.slow
def test_a_rank_that_stops_is_told_from_those_that_wait_for_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    receiver = HttpReceiver()
    options, program = tmp_path / "options.yaml", tmp_path / "train.py"
    options.write_text(yaml.safe_dump({"notify": [receiver.address], "watchdog_seconds": SECONDS}))
    program.write_text(PROGRAM)
    meet = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    meet |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-W", "ignore", str(program), str(tmp_path / "runs"), str(options)]
    ranks = [
        subprocess.Popen(command, env=ENVIRONMENT | meet | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(2)
    ]
    try:
        folder = until(lambda: next(iter(tmp_path.glob("runs/p/*/training.json")), None), 60).parent
        log = folder / f"sidecar-{place.host()}.json"
        hang = until(lambda: [one for one in _records(log) if one["log"] == "hang"], 90)[0]
        came = time.time()
        assert until(lambda: receiver.got, 20)
        assert hang["step"] == 39 and set(hang["stacks"]) == {"0", "1"} == set(hang["ranks"])
        assert "waits in all_reduce (train.py" in hang["ranks"]["0"]
        assert "load_batch" in hang["ranks"]["1"] and "waits" not in hang["ranks"]["1"]
        assert "Rank 0 waits in all_reduce" in hang["summary"] and "rank 1 is in" in hang["summary"]
        assert time.time() - came < patient(5.0)
        assert hang["waited_seconds"] < SECONDS + patient(5.0)
        assert "rank 1" in receiver.got[0]["message"]
        assert liveness.status(folder, manifest.read(folder)) == "hung" == StoredRun(folder).status
        (found,) = [one for one in diagnose(StoredRun(folder))["findings"] if one["rule"] == "hung"]
        assert found["severity"] == "critical" and len(found["evidence"]["ranks"]) == 2
    finally:
        for process in ranks:
            process.kill()
            process.wait()
        receiver.close()
    assert until(lambda: liveness.status(folder, manifest.read(folder)) == "killed", 30)
    assert until(lambda: not _alive(folder), 60)


def test_each_host_says_where_its_own_ranks_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    describe(folder, world_size=4)
    sidecars: dict[str, Sidecar] = {}
    for host, ranks in (("node-a", (0, 1)), ("node-b", (2, 3))):
        monkeypatch.setattr(place, "host", lambda host=host: host)
        for rank in ranks:
            writer = Writer(folder, rank=rank)
            writer.moment = time.time_ns() // 1000 - 10_000_000
            for step in range(1, 6):
                writer.row(step, {"train/loss": 1.0}, 0.01)
        sidecars[host] = Sidecar(folder, Settings(machine=False, watchdog_seconds=1.0), rank=ranks[0])
    for sidecar in sidecars.values():
        sidecar.read()
        assert sidecar.hang is not None
        sidecar.hang._arrived -= 5.0
        sidecar.hang._looked = time.monotonic()
        assert sidecar.hang.look(sidecar.end.processes())
        sidecar.read()
    for host in sidecars:
        (hang,) = [one for one in _records(folder / f"sidecar-{host}.json") if one["log"] == "hang"]
        assert hang["step"] == 5
    sidecars["node-a"].read()
    assert sidecars["node-b"].hang is not None and sidecars["node-b"].hang.since is not None
    for sidecar in sidecars.values():
        sidecar.close()


def test_what_two_hosts_said_of_one_hang_is_one_finding() -> None:
    seen = RunHistory()
    rule = Hung()
    places = {"0": "waits in all_reduce (a.py:1)"}, {"4": "is in a.py:9 load"}
    for at, words in zip(places, ("Rank 0 waits in all_reduce (a.py:1).", "Rank 4 is in a.py:9 load."), strict=True):
        summary = f"No step for 2 s after step 7. {words}"
        fields: dict[str, Any] = {"waited_seconds": 2.0, "summary": summary, "ranks": at}
        seen.happened(Record("hang", 1, 7, fields))
    found = list(rule.examine(seen))[-1]
    assert found.evidence["ranks"] == ["0: waits in all_reduce (a.py:1)", "4: is in a.py:9 load"]
    assert found.message == (
        "No step for 2 s after step 7. Rank 0 waits in all_reduce (a.py:1). Rank 4 is in a.py:9 load."
    )


def _records(path: Path) -> list[dict[str, Any]]:
    return read_log(path) if path.exists() else []


def _free_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _alive(folder: Path) -> bool:
    """Whether the run's sidecar still works."""
    pid = json.loads((folder / f"sidecar-{place.host()}.lock").read_text())["pid"]
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
