"""Columns of numbers without any names, in a file whose own name says that it holds losses.

In:   `loss_log.txt` with rows `0<tab>12<tab>1.4312`, or `0, 2.4125, 2.5017`, and nothing else.
Out:  `loss`: the first column that is measured and not counted; `column 3` and so on: those behind it. The step is the
      last of the columns of whole numbers ahead that rises from row to row; where there is a single one from 0 or 1 on,
      it counts epochs if it goes on by one.

A table is read only where every line that is not empty is a row of as many numbers, and there are eight at least.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from barograph.importing.source import FoundRun
from barograph.importing.textlogs import engine, forms
from barograph.importing.textlogs.patterns import expression

_LEAST = 8  # rows
_ROW = expression(
    rb"[ \t]{0,8}\d{1,12}(?:(?:[ \t]{0,4}[,;][ \t]{0,4}|[ \t]{1,8})" + forms.NUMBER + rb"){1,12}[ \t]{0,8}\r?"
)
_APART = expression(rb"[ \t]{0,8}[,;][ \t]{0,8}|[ \t]{1,16}")
_OF_LOSS = re.compile(r"(?i)(?:.*[^a-z])?(?:[a-z]*loss(?:es)?)(?:[^a-z].*)?")


class Columns(forms.Lines):
    """Rows of numbers, as a dialect's form."""

    def __init__(self) -> None:
        super().__init__(lambda line: None)

    def take(self, lines: list[bytes], picks: list[int]) -> tuple[list[forms.Raw], list[int]]:
        rows = [_APART.split(lines[index].strip()) for index in picks]
        columns = list(zip(*rows, strict=False))
        if len(picks) < _LEAST or len(set(map(len, rows))) != 1 or sum(map(bool, map(bytes.strip, lines))) > len(picks):
            return [], picks
        counts = list(itertools.takewhile(lambda at: all(map(bytes.isdigit, columns[at])), range(len(columns))))
        step = next((at for at in reversed(counts) if _rises(columns[at])), None)
        first = len(counts)
        if step is None or first == len(columns) or len(set(columns[first])) < 2:
            return [], picks
        names = ("loss", *(f"column {at + 1}" for at in range(first + 1, len(columns))))
        number = [*map(int, columns[step])]
        by_one = first == 1 and number[0] in (0, 1) and all(b - a == 1 for a, b in itertools.pairwise(number))
        where = np.array(picks, np.int64)
        starts = [0] * len(picks)
        return [forms.Raw(names, where, starts, list(columns[first:]), number, True, "epoch" if by_one else "step")], []


def _rises(column: Iterable[bytes]) -> bool:
    return all(early < late for early, late in itertools.pairwise(map(int, column)))


class Nameless(engine.Dialect):
    kind = "nameless"
    about = "columns of numbers without names, in a file that is called after a loss"
    hints = (b"0", b"1")
    shapes = (Columns(),)
    of_the_rest = True
    aliases: ClassVar[engine.Aliases] = {"loss": "train/loss"}

    def candidates(self, lines: list[bytes]) -> list[int]:
        return [index for index, line in enumerate(lines) if len(line) < 400 and _ROW.fullmatch(line)]

    def rows_of(self, lines: list[bytes], picks: list[int], own: dict[str, Any]) -> tuple[list[forms.Raw], list[int]]:
        return ([], picks) if own.get("second") else super().rows_of(lines, picks, own)

    def find(self, path: Path, head: bytes) -> Iterable[FoundRun]:
        return super().find(path, head) if _OF_LOSS.fullmatch(path.stem) else ()


SOURCE = Nameless()
