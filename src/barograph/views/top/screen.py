"""What is on the terminal, and the fewest bytes that change it to what should be.

In:   rows of spans: texts with a style.
Out:  bytes with terminal codes, for the cells that differ from the ones shown; the same rows as plain text.

Only addresses, erasures to the end of a row and the sixteen colours are used: every terminal has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from barograph.core.text import columns_of

_STYLES = {
    "bold": "1", "dim": "2", "reverse": "7", "red": "31", "green": "32", "yellow": "33", "blue": "34",
    "magenta": "35", "cyan": "36",
}  # fmt: skip
_COLOURS = {"red", "green", "yellow", "blue", "magenta", "cyan"}
_GAP = 6  # cells that are written again rather than jumped over: an address costs as much


class Span(NamedTuple):
    """A text and the names of its styles."""

    text: str
    style: str = ""


Row = list[Span]
_Cell = tuple[str, str]  # what stands there ("" behind a wide character), its style
_BLANK: _Cell = (" ", "")


def plain(rows: Iterable[Row]) -> str:
    """Rows as lines of text."""
    return "\n".join("".join(span.text for span in row).rstrip() for row in rows)


class Screen:
    """Remembers what a terminal shows. colour: whether colours are used; bold and dim are without them too."""

    def __init__(self, columns: int, rows: int, colour: bool = True):
        self.columns, self.rows, self._colour = columns, rows, colour
        self._shown: list[list[_Cell]] | None = None

    def resize(self, columns: int, rows: int) -> None:
        """The terminal has another size: everything is drawn again."""
        self.columns, self.rows, self._shown = columns, rows, None

    def forget(self) -> None:
        """Draw everything again next time."""
        self._shown = None

    def update(self, rows: Sequence[Row]) -> bytes:
        """What to write so that the terminal shows these rows; nothing if it does."""
        # the last cell of the last row is never written: some terminals scroll
        limits = [self.columns - (at == self.rows - 1) for at in range(self.rows)]
        wanted = [self._cells(rows[at] if at < len(rows) else [], limit) for at, limit in enumerate(limits)]
        parts: list[str] = []
        if self._shown is None:
            parts.append("\x1b[0m\x1b[2J")
            self._shown = [[_BLANK] * self.columns for _ in range(self.rows)]
        for at, (old, new) in enumerate(zip(self._shown, wanted, strict=True)):
            if old != new:
                parts += self._row(at, old, new)
        self._shown = wanted
        return "".join(parts).encode("utf-8", "replace")

    def _cells(self, row: Row, limit: int) -> list[_Cell]:
        cells: list[_Cell] = []
        for text, style in row:
            for item in text:
                wide = columns_of(item)
                if not wide:
                    if cells and cells[-1][0]:
                        cells[-1] = (cells[-1][0] + item, cells[-1][1])
                    continue
                if len(cells) + wide > limit:
                    break
                cells.append((item, style))
                if wide == 2:
                    cells.append(("", style))
        return cells + [_BLANK] * (self.columns - len(cells))

    def _row(self, at: int, old: list[_Cell], new: list[_Cell]) -> Iterator[str]:
        end = self.columns
        while end and new[end - 1] == _BLANK:
            end -= 1
        differs = [here for here in range(end) if old[here] != new[here]]
        for begin, stop in _runs(differs):
            while begin and new[begin][0] == "":  # a wide character is written from its first cell
                begin -= 1
            yield f"\x1b[{at + 1};{begin + 1}H"
            yield from self._text(new[begin:stop])
        if any(cell != _BLANK for cell in old[end:]) and end < self.columns:
            yield f"\x1b[{at + 1};{end + 1}H\x1b[K"

    def _text(self, cells: Sequence[_Cell]) -> Iterator[str]:
        style = ""
        for text, wanted in cells:
            if wanted != style:
                yield self._code(wanted)
                style = wanted
            yield text
        if style:
            yield "\x1b[0m"

    def _code(self, style: str) -> str:
        codes = [_STYLES[name] for name in style.split() if self._colour or name not in _COLOURS]
        return f"\x1b[0;{';'.join(codes)}m" if codes else "\x1b[0m"


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Places as stretches [begin, stop), near ones joined."""
    begin: int | None = None
    last = 0
    for here in places:
        if begin is None:
            begin = here
        elif here - last > _GAP:
            yield begin, last + 1
            begin = here
        last = here
    if begin is not None:
        yield begin, last + 1
