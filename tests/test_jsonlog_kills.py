"""A log whose writers are killed, again and again, and one that is read while it is written."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_jsonlog import strict

from barograph.log.write import mend

WRITERS = """
import os, sys, time
from barograph.log.write import JsonLog
from barograph.core.record import Record, encode

def write(path, told, pause):
    out = open(told, "ab", buffering=0)
    log = JsonLog(path)
    step = 0
    while True:
        fields = {"loss": 1.0 / (step + 1), "text": "x" * (step % 600)}
        log.append(encode(Record("metrics", time.time_ns() // 1000, step, fields)))
        out.write(b"%d\\n" % step)
        step += 1
        if pause: time.sleep(pause)

for line in sys.stdin:
    path, told, pause = line.rstrip("\\n").split("\\t")
    writer = os.fork()
    if not writer:
        write(path, told, float(pause))
    print(writer, flush=True)
    os.waitpid(writer, 0)
    print("gone", flush=True)
"""


class Writers:
    """A process that forks writers of logs, one after the other: each begins at once, and none imports anything."""

    def __init__(self) -> None:
        command, pipe = [sys.executable, "-c", WRITERS], subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)

    def begin(self, path: Path, pause: float) -> int:
        """A writer of this log, which has written its first record; its process."""
        assert self.process.stdin is not None and self.process.stdout is not None
        told = path.with_suffix(".told")
        told.touch()
        self.process.stdin.write(f"{path}\t{told}\t{pause}\n")
        self.process.stdin.flush()
        writer = int(self.process.stdout.readline())
        while not told.stat().st_size:
            time.sleep(0.001)
        return writer

    def kill(self, writer: int) -> None:
        assert self.process.stdout is not None
        os.kill(writer, signal.SIGKILL)
        assert self.process.stdout.readline() == "gone\n"


@pytest.fixture(scope="module")
def writers() -> Iterator[Writers]:
    made = Writers()
    yield made
    os.killpg(made.process.pid, signal.SIGKILL)
    made.process.communicate()


def kill_once(writers: Writers, path: Path, seconds: float, pause: float) -> tuple[int, list[dict]]:
    """Kill a writer after `seconds`; the last step whose call returned, and what the file holds."""
    writer = writers.begin(path, pause)
    time.sleep(seconds)
    writers.kill(writer)
    lines = path.with_suffix(".told").read_text().splitlines()
    if mend(path):  # killed between the two writes that move the bracket: what the sidecar does then
        assert not mend(path)
    return int(lines[-1]), strict(path)


@pytest.mark.parametrize(("kills", "pause"), [(6, 0.0), (3, 0.05)])
def test_kill_9_loses_no_record_whose_call_returned(tmp_path: Path, writers: Writers, kills: int, pause: float) -> None:
    for number in range(kills):
        last, items = kill_once(writers, tmp_path / f"{number}.json", random.Random(number).uniform(0, 0.15), pause)
        assert [item["step"] for item in items][: last + 1] == list(range(last + 1))


def test_a_reader_sees_a_whole_array_while_another_process_writes(tmp_path: Path, writers: Writers) -> None:
    path = tmp_path / "training.json"
    writer = writers.begin(path, 0.0005)
    torn = seen = looks = 0
    try:
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            descriptor = os.open(path, os.O_RDONLY)
            data = os.pread(descriptor, 1 << 26, 0)
            os.close(descriptor)
            looks += 1
            try:
                seen = max(seen, len(json.loads(data)))
            except ValueError:
                torn += 1  # the copies of a reader and a writer crossed: some ten nanoseconds wide
    finally:
        writers.kill(writer)
    assert seen > 100
    assert torn <= 2 + looks / 100  # a bracket that is written over is torn for one reader in five


@pytest.mark.slow
@pytest.mark.parametrize("pause", [0.0, 0.002, 0.2])
def test_200_kills_at_random_moments_lose_nothing(tmp_path: Path, writers: Writers, pause: float) -> None:
    most = {0.0: 0.04, 0.002: 0.08, 0.2: 0.6}[pause]
    for number in range(200 if pause < 0.1 else 40):
        last, items = kill_once(writers, tmp_path / f"{number}.json", random.uniform(0, most), pause)
        assert [item["step"] for item in items][: last + 1] == list(range(last + 1))
