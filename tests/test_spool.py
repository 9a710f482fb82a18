"""What is written on this machine arrives in the log byte for byte, whoever carries it and when."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from barograph.core.record import Record, encode
from barograph.log import spool
from barograph.log.write import JsonLog


def test_threads_that_carry_at_once_bring_each_record_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    path = tmp_path / "there" / "training.json"
    log = JsonLog(spool.prepare(path))
    carrier, start = spool.Carrier(log, path), threading.Barrier(5)

    def carry() -> None:
        start.wait()
        for _ in range(200):
            carrier.carry()

    threads = [threading.Thread(target=carry) for _ in range(4)]
    for thread in threads:
        thread.start()
    start.wait()
    for step in range(500):
        log.append(encode(Record("info", 0, step, {"message": str(step)})))
    carrier.close()  # while the others are at it
    for thread in threads:
        thread.join()
    log.close()
    assert [item["step"] for item in json.loads(path.read_text())] == list(range(500))
    assert not spool.local_path(path).exists()
