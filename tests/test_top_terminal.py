"""`top` on real pseudo-terminals: followed, resized, stopped in every way; the terminal is always given back."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pyte
import pytest
from patience import patient

import barograph

_SHOW = "import sys; from barograph.views.top.command import top; sys.exit(top(sys.argv[1], every=0.2))"
_FAIL = (
    "import sys; from barograph.views.top import command, page\n"
    "whole, calls = page.Viewer.rows, []\n"
    "def rows(self, *size, **more):\n"
    "    calls.append(1)\n"
    "    if len(calls) > 3: raise RuntimeError('a page that fails')\n"
    "    return whole(self, *size, **more)\n"
    "page.Viewer.rows = rows\n"
    "sys.exit(command.top(sys.argv[1], every=0.1))"
)
# as under a shell: a group of its own, whose parent is there to bring it back
_UNDER_A_SHELL = (
    "import os, signal, subprocess, sys\n"
    "signal.signal(signal.SIGTTOU, signal.SIG_IGN)\n"
    "made = subprocess.Popen([sys.executable, '-c', sys.argv[2], sys.argv[1]], process_group=0)\n"
    "os.tcsetpgrp(0, made.pid)\n"
    "open(sys.argv[3], 'w').write(str(made.pid))\n"
    "sys.exit(made.wait())"
)
# all that is ever sent: addresses, erasures, styles, and the modes of entering and leaving
_OURS = re.compile(rb"\x1b\[(?:\d+;\d+H|[02]?[JK]|\?(?:1049|25|7)[hl]|[\d;]*m)")


class Line:
    """A program on a pseudo-terminal, and the screen that a person sees."""

    def __init__(self, script: str, *words: str, columns: int = 80, rows: int = 24, **environment: str):
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.sent = b""
        self._master, self.slave = pty.openpty()
        self._size(columns, rows)
        self.before = termios.tcgetattr(self.slave)
        given = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(Path(barograph.__file__).parents[1]), **environment}
        given.pop("NO_COLOR", None) if "NO_COLOR" not in environment else None
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *words],
            stdin=self.slave, stdout=self.slave, stderr=subprocess.PIPE, env=given, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip

    def _size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        self._size(columns, rows)

    def read(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self._master], [], [], left)[0]:
                with contextlib.suppress(OSError):
                    data = os.read(self._master, 1 << 16)
                    self.sent += data
                    self._stream.feed(data)
                    continue
                return

    def until(self, words: str, seconds: float = 20.0, row: int | None = None) -> str:
        """The page, once it holds the words; row: where they must stand."""
        end = time.monotonic() + patient(seconds)
        while words not in (self.text() if row is None else self.screen.display[row]):
            assert time.monotonic() < end, f"{words!r} never came:\n{self.text()}"
            assert self.process.poll() is None or words in self.text(), self.error()
            self.read(0.05)
        return self.text()

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def error(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def end(self, seconds: float = 10.0) -> int:
        """The exit code; fails if it does not end."""
        limit = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < limit, f"it goes on:\n{self.text()}"
            self.read(0.05)
        self.read(0.2)
        return self.process.returncode

    def assert_given_back(self) -> None:
        """The mode as before, the cursor shown, the first screen back."""
        after = termios.tcgetattr(self.slave)
        assert after[:4] == self.before[:4]
        for ending in (b"\x1b[?25h", b"\x1b[?1049l", b"\x1b[?7h"):
            assert ending in self.sent[-200:]
        assert self.sent.rindex(b"\x1b[?1049l") > self.sent.rindex(b"\x1b[?1049h")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()
        for end in (self._master, self.slave):
            os.close(end)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[barograph.Run]:
    made = barograph.init(
        project="gpt", name="alive", dir=tmp_path, verbosity=-2, machine=False, git=False, total_steps=1000
    )
    for step in range(50):
        made.log({"train/loss": 5.0 - step / 20, "train/norm": 1.0 + step % 3, "train/lr": 1e-3}, step=step)
    yield made
    made.finish()


@contextlib.contextmanager
def line(run: barograph.Run, script: str = _SHOW, **environment: str) -> Iterator[Line]:
    made = Line(script, str(run.dir), **environment)
    try:
        yield made
    finally:
        made.close()


def test_it_follows_a_run_and_draws_only_what_changes(run: barograph.Run) -> None:
    with line(run) as top:
        page = top.until("2.55")
        assert "train/loss" in page and "running" in page and "step 49 of 1,000" in page
        top.read(1.0)
        before = len(top.sent)
        for step in range(50, 60):
            run.log({"train/loss": 1.25, "train/norm": 1.0, "train/lr": 1e-3}, step=step)
        top.until("step 59 of 1,000")
        top.until("train/loss 1.25 ")
        top.read(0.5)
        assert len(top.sent) - before < 4000
        top.press(b"q")
        assert top.end() == 0
        top.assert_given_back()


def test_another_size_is_filled_at_once(run: barograph.Run) -> None:
    with line(run) as top:
        top.until("? help", row=23)
        top.resize(120, 40)
        top.until("? help", row=39)
        assert "? help" not in top.screen.display[23]
        top.resize(60, 12)
        top.until("? help", row=11)
        top.resize(10, 3)
        top.until("make the w", row=0)
        top.resize(80, 24)
        top.until("train/loss")


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP), (signal.SIGINT, 130)],
)
def test_a_signal_ends_it_and_the_terminal_is_given_back(run: barograph.Run, number: int, code: int) -> None:
    with line(run) as top:
        top.until("train/loss")
        top.process.send_signal(number)
        assert top.end() == code
        top.assert_given_back()


def test_control_c_ends_it(run: barograph.Run) -> None:
    with line(run) as top:
        top.until("train/loss")
        top.press(b"\x03")
        assert top.end() == 130
        top.assert_given_back()


def test_a_failure_gives_the_terminal_back_before_it_is_told(run: barograph.Run) -> None:
    with line(run, _FAIL) as top:
        assert top.end() == 1
        assert "a page that fails" in top.error()
        top.assert_given_back()


def _is_stopped(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_control_z_stands_aside_and_comes_back(run: barograph.Run, tmp_path: Path) -> None:
    top = Line(_UNDER_A_SHELL, str(run.dir), _SHOW, str(tmp_path / "pid"))
    try:
        top.until("train/loss")
        process = int((tmp_path / "pid").read_text())
        top.press(b"\x1a")
        end = time.monotonic() + 5
        while not _is_stopped(process):
            assert time.monotonic() < end, "it does not stop"
            top.read(0.05)
        top.read(0.2)
        top.assert_given_back()
        os.kill(process, signal.SIGCONT)
        sent = len(top.sent)
        top.read(1.5)
        assert b"train/loss" in top.sent[sent:] and b"\x1b[?1049h" in top.sent[sent:]
        top.press(b"q")
        assert top.end() == 0
    finally:
        top.close()


def test_a_line_that_takes_nothing_does_not_keep_it_from_ending(run: barograph.Run) -> None:
    with line(run) as top:
        top.until("train/loss")
        for _ in range(60):  # nobody reads: page after page would fill the line
            os.write(top._master, b"2")
            os.write(top._master, b"1")
            time.sleep(0.01)
        top.process.send_signal(signal.SIGTERM)
        limit = time.monotonic() + 5
        while top.process.poll() is None and time.monotonic() < limit:
            time.sleep(0.05)
        assert top.process.poll() is not None


def test_keys_lead_to_every_page_and_back(run: barograph.Run) -> None:
    with line(run) as top:
        top.until("train/loss")
        for key, words in (
            (b"2", "WHERE THE TIME WENT"),
            (b"3", "the machine was not recorded"),
            (b"4", "one rank"),
            (b"5", "no finding"),
            (b"6", "| norm"),
            (b"?", "KEYS"),
            (b"x", "| norm"),
            (b"r", "STATUS"),
            (b"\r", "| norm"),
            (b"\t", "train/norm"),
            (b"\x1b[B", "▸train/norm"),
            (b"l", " log"),
            (b"+", "last 1/2"),
            (b" ", "held"),
        ):
            top.press(key)
            top.until(words)


def test_a_rewind_replaces_what_was_drawn(run: barograph.Run) -> None:
    with line(run) as top:
        top.until("step 49")
        run.rewind(10)
        for step in range(10, 20):
            run.log({"train/loss": 99.0, "train/norm": 1.0, "train/lr": 1e-3}, step=step)
        page = top.until("99")
        page = top.until("step 19 of 1,000")
        assert "99" in page
        run.finish()
        top.until("finished", 60)


def test_names_that_would_drive_the_terminal_are_written_out(tmp_path: Path) -> None:
    run = barograph.init(
        project="\x1b[2Jp", name="\x1b]0;owned\x07\u202e", dir=tmp_path, verbosity=-2, machine=False, git=False,
        config={"\x1b[31m": "\x9b31m"},
    )  # fmt: skip
    for step in range(20):
        run.log({"train/loss": 1.0, "\x1b[2J\x1b[H\x07": 2.0, "漢字" * 40: 3.0, "a\nb": 1.0}, step=step)
    run.log_message("info", "\x1b]52;c;evil\x07\x1b[5n")
    with line(run) as top:
        top.until("train/loss")
        for key in b"123456":
            top.press(bytes([key]))
            top.read(0.4)
        top.press(b"q")
        top.end()
        left = _OURS.sub(b"", top.sent)
        assert b"\x1b" not in left and b"\x07" not in left and b"\x9b" not in left.replace("—─…".encode(), b"")
        assert "\u202e".encode() not in left
    run.finish()


def test_without_colour_no_colour_is_sent(run: barograph.Run) -> None:
    with line(run, NO_COLOR="1") as top:
        top.until("train/loss")
        top.press(b"q")
        top.end()
        assert not re.search(rb"\x1b\[[\d;]*3[1-7]m", top.sent)


def test_a_dumb_terminal_and_a_pipe_get_one_plain_page(run: barograph.Run) -> None:
    with line(run, TERM="dumb") as top:
        assert top.end() == 0
        assert b"\x1b" not in top.sent and b"train/loss" in top.sent
    environment = {**os.environ, "PYTHONPATH": str(Path(barograph.__file__).parents[1]), "COLUMNS": "90"}
    piped = subprocess.run(
        [sys.executable, "-c", _SHOW, str(run.dir)], capture_output=True, env=environment, timeout=60
    )
    assert piped.returncode == 0 and b"\x1b" not in piped.stdout
    text = piped.stdout.decode()
    assert "train/loss" in text and max(map(len, text.splitlines())) <= 90


def test_a_run_that_ends_and_is_resumed_is_followed_on(tmp_path: Path) -> None:
    def begin(**more: object) -> barograph.Run:
        return barograph.init(
            project="p", name="again", dir=tmp_path, verbosity=-2, machine=False, git=False, **more  # type: ignore[arg-type]
        )  # fmt: skip

    first = begin()
    for step in range(30):
        first.log({"train/loss": 3.0}, step=step)
    first.flush()
    with line(first) as top:
        top.until("step 29")
        first.finish()
        top.until("finished", 60)
        second = begin(resume=str(first.dir))
        for step in range(20, 40):
            second.log({"train/loss": 1.5}, step=step)
        second.flush()
        top.until("running", 60)
        top.until("step 39")
        page = top.until("train/loss 1.5 ")
        assert page.splitlines()[2].split("max")[1].split()[0] == "3"
        second.finish("failed")
        top.until("failed", 60)
        top.press(b"q")
        assert top.end() == 0


def test_a_training_that_is_killed_is_told(tmp_path: Path) -> None:
    script = (
        "import barograph, sys, time\n"
        "run = barograph.init(project='p', name='k', dir=sys.argv[1], verbosity=-2, machine=False, git=False)\n"
        "for step in range(100000):\n"
        "    run.log({'train/loss': 1.0}, step=step)\n"
        "    if step == 20: print(run.dir, flush=True)\n"
        "    time.sleep(0.01)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(barograph.__file__).parents[1])}
    training = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert training.stdout is not None
        folder = training.stdout.readline().strip()
        top = Line(_SHOW, folder)
        try:
            top.until("running", 60)
            training.kill()
            training.wait()
            top.until("crashed", 60)
        finally:
            top.close()
    finally:
        training.kill()
        training.wait()
        training.stdout.close()
