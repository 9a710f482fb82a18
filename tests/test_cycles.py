"""Searches for objects in cycles are few while rows are read, and as before behind it."""

from __future__ import annotations

import gc
import subprocess
import sys

from barograph.core.cycles import seldom_swept


def test_searches_are_few_inside_and_as_before_behind() -> None:
    before = gc.get_threshold()
    with seldom_swept():
        assert gc.get_threshold()[0] >= 500_000
        with seldom_swept():
            assert gc.get_threshold()[0] >= 500_000
    assert gc.get_threshold() == before


def test_who_has_turned_them_off_keeps_them_off() -> None:
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with seldom_swept():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)


def test_a_command_that_ends_soon_has_few_to_its_end() -> None:
    program = (
        "import atexit, gc\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0))\n"
        "from barograph.core.cycles import seldom_until_end\n"
        "seldom_until_end()\n"
        "print(gc.get_threshold()[0])"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["500000", "True"]
