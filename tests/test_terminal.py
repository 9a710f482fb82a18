"""Writing to pipes that are full, closed or slow, to terminals wide and narrow, and to streams of all kinds."""

import io
import os
import pty
import re
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress

import pytest
from patience import patient

from barograph.core.record import Record
from barograph.core.terminal import LIMIT, Terminal
from barograph.training.console.console import Console

CODES = re.compile("\x1b\\[[0-9]+m")


def message(text, step=0):
    return Record("info", 0, step, {"type": "message", "message": text})


def step(number):
    values = {"epoch": 0.5, "step_tokens": 1000, "duration_ms": 10, "norm": 1.0, "loss": 2.0, "lr": 0.1}
    return Record("step", 0, number, values | {"phase": "warm-up"})


def fill(write_end):
    os.set_blocking(write_end, False)
    with suppress(BlockingIOError):
        while True:
            os.write(write_end, b"." * 4096)
    with suppress(BlockingIOError):
        while True:
            os.write(write_end, b".")
    os.set_blocking(write_end, True)


def drain(read_end):
    os.set_blocking(read_end, False)
    found = b""
    with suppress(BlockingIOError):
        while piece := os.read(read_end, 1 << 20):
            found += piece
    return found.decode()


def settled(read_end):
    """What is there once nothing more comes: a terminal's kernel thread delivers a moment later."""
    found = ""
    while select.select([read_end], [], [], 0.02 if found else 1)[0]:
        found += drain(read_end)
    return found


def quickest(console):
    """Seconds of the quickest of five lines: one that waits for its reader never ends."""
    took = []
    for _ in range(5):
        began = time.perf_counter()
        console.draw(message("line"))
        took.append(time.perf_counter() - began)
    return min(took)


@pytest.fixture
def pipe():
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "w") as stream:
        yield read_end, write_end, stream
    os.close(read_end)


class Wrapper:
    """Stands before a stream, as notebooks and progress bars do."""

    def __init__(self, stream):
        self.stream, self.written = stream, ""

    def fileno(self):
        return self.stream.fileno()

    def write(self, text):
        self.written += text
        return self.stream.write(text)

    def flush(self):
        self.stream.flush()


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_full_pipe_holds_nobody_up_and_its_lines_come_later(pipe, wrapped):
    read_end, write_end, stream = pipe
    fill(write_end)
    console = Console(stream=Wrapper(stream) if wrapped else stream)
    took = []
    for number in range(LIMIT + 500):
        began = time.perf_counter()
        console.draw(message(f"line {number}"))
        took.append(time.perf_counter() - began)
    assert sorted(took)[-15] < 0.05  # a busy machine may stop any of them for longer
    drain(read_end)
    console.draw(message("after"))
    shown = ""
    for _ in range(100):
        shown += drain(read_end)
        if console.flush():
            break
    shown += drain(read_end)
    lines = shown.splitlines()
    # what was encoded when the pipe filled came first; then the count of what was dropped; then what was kept
    at = next(number for number, line in enumerate(lines) if line.endswith("lines not shown"))
    missing = int(re.findall(r"… ([\d,]+) lines not shown", lines[at])[0].replace(",", ""))
    assert lines[:at] == [f"line {number}" for number in range(at)]
    assert lines[at + 1 :] == [f"line {number}" for number in range(at + missing, LIMIT + 500)] + ["after"]
    assert missing >= 400


def test_the_users_own_prints_keep_their_place(pipe):
    read_end, _, stream = pipe
    console = Console(stream=stream)
    for number in range(3):
        stream.write(f"print {number}\n")
        console.draw(message(f"line {number}"))
    assert drain(read_end).split("\n") == ["print 0", "line 0", "print 1", "line 1", "print 2", "line 2", ""]


def test_the_users_unwritten_prints_do_not_hold_up_a_line(pipe):
    read_end, write_end, stream = pipe
    fill(write_end)
    os.read(read_end, 8192)  # two free pages: writable, but not enough for the print
    stream.write("x" * 8000)
    console = Console(stream=stream)
    assert quickest(console) < 0.05
    drain(read_end)


def test_a_patient_console_waits_for_its_reader(pipe):
    read_end, _, stream = pipe
    found = []

    def read():
        with os.fdopen(os.dup(read_end)) as lines:
            found.extend(lines)

    reader = threading.Thread(target=read)
    reader.start()
    console = Console(stream=stream, patient=True)
    for number in range(5 * LIMIT):
        console.draw(message(f"line {number}"))
    stream.close()
    reader.join(10)
    assert found == [f"line {number}\n" for number in range(5 * LIMIT)]


def test_the_reader_sees_the_end_when_the_stream_is_closed(pipe):
    read_end, _, stream = pipe
    Console(stream=stream).draw(message("line"))
    stream.close()
    assert os.read(read_end, 100) == b"line\n"
    assert os.read(read_end, 100) == b""


def test_a_reader_that_left_and_a_closed_stream_end_the_console_silently():
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as stream:
        console = Console(stream=stream)
        for _ in range(3):
            console.draw(message("line"))
        assert console.gone
    closed = io.StringIO()
    closed.close()
    console = Console(stream=closed)
    console.draw(message("line"))
    assert console.gone


def test_head_ends_a_training_with_no_complaint():
    code = (
        "from barograph.training.console.console import Console\n"
        "from barograph.core.record import Record\n"
        "console = Console()\n"
        "for n in range(20000): console.draw(Record('info', 0, n, {'message': 'line %d' % n}))\n"
        "print('done', file=__import__('sys').stderr)\n"
    )
    shell = f'"{sys.executable}" -c "$CODE" | head -n 1'
    ended = subprocess.run(
        ["bash", "-o", "pipefail", "-c", shell], env=os.environ | {"CODE": code}, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "line 0\n", "done\n")


def test_what_waits_is_written_when_the_program_ends():
    code = (
        "from barograph.training.console.console import Console\n"
        "from barograph.core.record import Record\n"
        "console = Console()\n"
        "for n in range(900): console.draw(Record('info', 0, n, {'message': 'x' * 200}))\n"
    )
    shell = f'"{sys.executable}" -c "$CODE" | (sleep 0.5; cat)'
    ended = subprocess.run(["bash", "-c", shell], env=os.environ | {"CODE": code}, capture_output=True, text=True)
    assert ended.stdout.count("x" * 200 + "\n") == 900


def test_a_socket_that_is_full_holds_nobody_up():
    here, there = socket.socketpair()
    with closing(here), closing(there), there.makefile("w") as stream:
        there.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                there.send(b"." * 4096)
        there.setblocking(True)
        console = Console(stream=stream)
        assert quickest(console) < 0.05


def test_text_that_the_streams_encoding_lacks_is_escaped():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    Console(stream=stream).draw(message("72 °C 漢"))
    assert raw.getvalue() == b"72 \\xb0C \\u6f22\n"


def test_the_stream_is_the_standard_output_of_the_moment(capsys, monkeypatch):
    console = Console()
    console.draw(message("one"))
    assert capsys.readouterr().out == "one\n"
    elsewhere = io.StringIO()
    monkeypatch.setattr(sys, "stdout", elsewhere)
    console.draw(message("two"))
    monkeypatch.setattr(sys, "stdout", None)
    console.draw(message("three"))
    assert elsewhere.getvalue() == "two\n"


def test_a_stream_that_raises_costs_nothing():
    class Broken(io.StringIO):
        def write(self, text):
            raise RuntimeError("no")

    console = Console(stream=Broken())
    console.draw(message("line"))
    assert console.gone


def test_a_full_disk_loses_lines_and_counts_them():
    class Full(io.StringIO):
        full = True

        def write(self, text):
            if self.full:
                raise OSError(28, "No space left on device")
            return super().write(text)

    stream = Full()
    console = Console(stream=stream)
    console.draw(message("one"))
    stream.full = False
    console.draw(message("two"))
    assert stream.getvalue() == "… 1 line not shown\ntwo\n"


def test_a_line_behind_a_hanging_stream_is_given_up():
    release = threading.Event()

    class Hanging(io.StringIO):
        def write(self, text):
            release.wait(10)
            return super().write(text)

    console = Console(stream=Hanging())
    stuck = threading.Thread(target=console.draw, args=(message("line"),))
    stuck.start()
    time.sleep(0.05)
    began = time.perf_counter()
    for _ in range(100):
        console.draw(message("line"))
    assert time.perf_counter() - began < patient(0.2)  # it waits once, not a hundred times
    release.set()
    stuck.join()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_write_what_waits_in_its_parent(pipe):
    read_end, write_end, stream = pipe
    fill(write_end)
    console = Console(stream=stream)
    console.draw(message("the parent's"))
    drain(read_end)
    child = os.fork()
    if child == 0:
        console.draw(message("the child's"))
        os._exit(0)
    os.waitpid(child, 0)
    assert drain(read_end) == "the child's\n"
    console.draw(message("more"))
    assert drain(read_end) == "the parent's\nmore\n"


# -- terminals ---------------------------------------------------------------------------------------


@pytest.fixture
def screen(monkeypatch):
    """A terminal of 80 columns: the stream to it, a way to read it, a way to set its columns."""
    fcntl = pytest.importorskip("fcntl")
    termios = pytest.importorskip("termios")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    ours, theirs = pty.openpty()

    def resize(columns):
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    resize(80)
    with os.fdopen(theirs, "w") as stream:
        yield stream, lambda: settled(ours).replace("\r\n", "\n"), resize
    os.close(ours)


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (100, ":: step       1 [ 50.0%]   loss 2.0000 | norm  1.0000 | 100.0k tps |    10 ms | warm-up"),
        (80, ":: step       1 [ 50.0%]   loss 2.0000 | norm  1.0000 | 100.0k tps |    10 ms"),
        (70, ":: step       1 [ 50.0%]   loss 2.0000 | norm  1.0000 | 100.0k tps"),
        (60, ":: step       1 [ 50.0%]   loss 2.0000 | norm  1.0000"),
        (45, ":: step       1   loss 2.0000 | norm  1.0000"),
        (10, ":: step       1   loss 2.0000 | norm  1.0000"),
    ],
)
def test_a_narrow_terminal_gets_the_important_parts(screen, columns, shown):
    stream, read, resize = screen
    resize(columns)
    Console(stream=stream).draw(step(1))
    assert CODES.sub("", read()) == shown + "\n"


def test_a_terminal_has_colour_that_changes_no_text(screen):
    stream, read, resize = screen
    resize(200)
    console, bare = Console(stream=stream), Console()
    bad = step(2)
    bad.fields.update(loss=float("nan"), norm=float("inf"))
    evaluation = Record("eval", 0, 2, {"loss": 2.0, "eval_tokens": 10, "duration_ms": 5})
    light = Record("sol", 0, 0, {"tps": 400_000, "blocks": 1e9, "lm_head": 1e9, "attention": 1e9})
    lower = step(3)
    lower.fields.update(loss=1.5)
    for record in (light, step(1), bad, lower, evaluation):
        console.draw(record)
        shown = read()
        assert shown != CODES.sub("", shown)
        assert CODES.sub("", shown) == "".join(text + "\n" for text in bare.lines(record))
    assert "\x1b[1m>> eval" in shown


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_colour_where_it_is_not_wanted(screen, monkeypatch, name, value):
    stream, read, _ = screen
    monkeypatch.setenv(name, value)
    bad = step(1)
    bad.fields.update(loss=float("nan"))
    Console(stream=stream).draw(bad)
    shown = read()
    assert "nan" in shown
    assert "\x1b" not in shown


def test_an_empty_no_color_means_colour(screen, monkeypatch):
    stream, read, _ = screen
    monkeypatch.setenv("NO_COLOR", "")
    Console(stream=stream).draw(Record("eval", 0, 2, {"loss": 2.0}))
    assert "\x1b[1m" in read()


def test_a_terminal_that_stands_still_holds_nobody_up(screen):
    stream, read, _ = screen
    console = Console(stream=stream)
    began = time.perf_counter()
    for number in range(3000):  # some 200 kB: more than a terminal holds unread
        console.draw(message(f"line {number} " + "." * 60))
    assert time.perf_counter() - began < patient(3)
    shown = ""
    while not console.flush():
        shown += read()
    shown += read()
    assert "lines not shown\n" in shown
    assert shown.endswith(f"line 2999 {'.' * 60}\n")


def test_a_terminal_that_hung_up_ends_the_console_silently():
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        os.close(ours)
        terminal = Terminal(stream)
        terminal.show([()])
        assert terminal.gone
