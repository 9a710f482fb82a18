"""Processes that are killed at random moments lose and double nothing: `benchmarks/kills.py`, a small version."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import kills


@pytest.mark.slow
@pytest.mark.parametrize("mode", kills.MODES)
def test_a_kill_loses_and_doubles_nothing(mode: str) -> None:
    (outcome,) = kills.run(2, [mode], jobs=1, shown=False)
    assert not outcome.problems and not outcome.invalid
    assert outcome.kills >= 2
