"""Progress of long work: a bar on a terminal, a first and a last line elsewhere."""

import io
import os
import pty
import re
from contextlib import suppress

import pytest

from barograph.core.progress import progress


def test_elsewhere_there_is_a_line_at_the_start_and_one_at_the_end():
    stream = io.StringIO()
    with progress("Import\x1b", total=3, stream=stream) as work:
        for _ in range(3):
            work.advance()
        assert stream.getvalue() == "Import\\e ...\n"
    assert re.fullmatch(r"Import\\e \.\.\.\nImport\\e: 3 done in \d+\.\d s\n", stream.getvalue())
    assert work.done == 3


def test_work_that_fails_says_so_and_its_error_goes_on():
    stream = io.StringIO()
    with pytest.raises(KeyError), progress("Import", stream=stream):
        raise KeyError
    assert "Import: stopped after" in stream.getvalue()


def test_the_default_is_standard_error(capsys):
    with progress("Import"):
        pass
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("Import ...\nImport: done in")


def test_a_closed_stream_disturbs_nothing():
    stream = io.StringIO()
    stream.close()
    with progress("Import", total=2, stream=stream) as work:
        work.advance(2)


def rest(read_end):
    """All that a terminal showed before its other end was closed."""
    found = b""
    with suppress(OSError):
        while piece := os.read(read_end, 1 << 16):
            found += piece
    os.close(read_end)
    return found.decode()


@pytest.mark.parametrize("total", [None, 5])
def test_on_a_terminal_there_is_a_bar_that_leaves_one_line(monkeypatch, total):
    monkeypatch.setenv("TERM", "xterm-256color")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream, progress("Import [bold]x", total=total, stream=stream) as work:
        work.advance(5)
    shown = rest(ours)
    assert "━" in shown
    assert "Import [bold]x: 5 done in" in shown.splitlines()[-1]


def test_a_dumb_terminal_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream, progress("Import", total=1, stream=stream):
        pass
    assert rest(ours).startswith("Import ...\r\nImport: done in")
