"""Rows of another kind among a dialect's: read by others, unless they are damaged."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import barograph
from barograph.doctor import diagnose

ROWS = "".join(f"iter {at}: loss {2 + 9 * math.exp(-at / 100):.4f}, time 12.3ms\n" for at in range(0, 500, 10))


@pytest.mark.parametrize(
    ("more", "rows", "unread"),
    [
        ("".join(f"iter {at}: loss 2.0{at}\n" for at in range(500, 600, 10)), 60, 0),
        ("".join(f"iter {at}: loss 2.0{at} lr 3e-4\n" for at in range(500, 600, 10)), 60, 0),
        ("".join(f"iter {at}: loss nan\n" for at in range(500, 530, 10)), 53, 0),
        ("iter 500: loss 2.0\n", 50, 1),  # it may be the beginning of a longer number
        ("".join(f"iter {at}: loss 2.0{at}iter {at}: loss 2.0, time\n" for at in range(500, 600, 10)), 50, 10),
    ],
)
@pytest.mark.parametrize("page", [False, True])
def test_rows_of_two_kinds_are_read_and_damaged_ones_are_counted(
    tmp_path: Path, more: str, rows: int, unread: int, page: bool
) -> None:
    log = tmp_path / ("run.html" if page else "run.log")
    log.write_text(f"<html><pre>\n{ROWS}{more}</pre></html>\n" if page else ROWS + more)
    (run,) = barograph.read(log)
    assert len(run.series("train/loss")) == rows and run.manifest["source"]["unread"]["count"] == unread


def test_nan_in_rows_of_another_kind_is_found(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(ROWS + "".join(f"iter {at}: loss nan\n" for at in range(500, 600, 10)))
    found = diagnose(barograph.read(log)[0])["findings"][0]
    assert (found["rule"], found["severity"], found["step"]) == ("non_finite_loss", "critical", 500)
