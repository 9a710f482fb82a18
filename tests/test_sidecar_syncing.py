"""Logs and block files are synced while they grow, and left alone while they don't."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from barograph.core.record import Record, encode
from barograph.log.blocks import BlockWriter, doubles
from barograph.log.write import JsonLog
from barograph.sidecar.syncing import Syncing


def test_what_was_written_is_synced_once_and_again_when_it_has_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")))
    log = JsonLog(tmp_path / "training.json")
    log.append(encode(Record("metrics", 1, 1, {"a": 1.0})))
    blocks = BlockWriter(tmp_path, "training", {})
    blocks.row(("a",), doubles([1.0]), 1, 1, 1, log.position)
    syncing = Syncing(tmp_path, 1000.0)
    syncing.sync()
    assert {Path(name).name for name in synced} == {"training.json", "training.0001.wide"}
    synced.clear()
    syncing.sync()
    assert synced == []
    time.sleep(0.02)  # a later time of change, whatever the file system's clock
    log.append(encode(Record("metrics", 2, 2, {"a": 1.0})))
    syncing.sync()
    syncing.stop()
    assert [Path(name).name for name in synced] == ["training.json"]
    log.close()
    blocks.close()
