"""What a report says, as plain data: sections of blocks. Markdown and HTML are written from this alone.

In:   figures, each with where it comes from.
Out:  `Report`, `Section` and the blocks: sentences, facts, tables, charts, heat maps, texts, findings.

A sentence is a template without a digit, filled with figures: so no number is in a report that no figure stands for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import TYPE_CHECKING, Any

import numpy as np

from barograph.core.columns import thin_indices
from barograph.views.draw.heat import HeatMap

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MOST_POINTS = 3_000  # of a line: a bucket of its extremes for each pixel of a wide screen
_DIGIT = re.compile(r"\d")
_PARSE = Formatter().parse


@dataclass(frozen=True)
class Figure:
    """A value as it is shown, and where it comes from: a series and a step, a key of the manifest, a record."""

    text: str
    value: Any
    source: str


@dataclass(frozen=True)
class Sentence:
    """parts: words, and figures among them. mood: "", "good", "bad", "warn" or "dim". source: of words of others."""

    parts: tuple[str | Figure, ...]
    mood: str = ""
    source: str = ""

    @property
    def text(self) -> str:
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    @property
    def figures(self) -> list[Figure]:
        return [part for part in self.parts if isinstance(part, Figure)]


def say(template: str, mood: str = "", /, **figures: Figure) -> Sentence:
    """A sentence from figures. Raises ValueError for a digit in the template, KeyError for a figure that is missing."""
    parts: list[str | Figure] = []
    for words, name, _, _ in _PARSE(template):
        if _DIGIT.search(words):
            raise ValueError(f"a sentence takes its numbers from figures, and {words!r} has one of its own")
        if words:
            parts.append(words)
        if name:
            parts.append(figures[name])
    return Sentence(tuple(parts), mood)


def quote(text: str, source: str, mood: str = "") -> Sentence:
    """A sentence that another part of Barograph wrote from its own figures: the doctor, the forecast, a comparison."""
    return Sentence((text,), mood, source)


@dataclass(frozen=True)
class FactList:
    """Labels and figures, a line each."""

    rows: tuple[tuple[str, Figure], ...]


@dataclass(frozen=True)
class Tiles:
    """The figures that are read first: label, figure, a few words below it."""

    rows: tuple[tuple[str, Figure, str], ...]


@dataclass(frozen=True)
class ReportTable:
    """numeric: the columns that are set to the right. label: what it shows, for who can't see it."""

    label: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str | Figure, ...], ...]
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True)
class TextBlock:
    """Text of a user or a model, kept as it is: a sample, a difference of code. added: where what a model wrote begins
    in `body`."""

    label: str
    body: str
    added: int = 0


@dataclass(frozen=True)
class Picture:
    """An image that the run kept. content: its MIME type; data: the file's bytes; size: its height and width."""

    label: str
    caption: str
    content: str
    data: bytes = field(repr=False)
    size: tuple[int, int]


@dataclass(frozen=True)
class Heading:
    """A part of a section."""

    text: str


@dataclass(frozen=True, eq=False)
class ReportLine:
    """One series, thinned so that the minimum and maximum of every bucket, every NaN and every infinity stay.

    x, y [n]: as drawn. points: how many were logged, 0 of a curve that was computed. odd: how many were not finite.
    look: "line", "faint" (values behind a smoothed line), "dots" (few and far between).
    """

    name: str
    label: str
    x: NDArray[Any]
    y: Floats
    points: int
    odd: int = 0
    look: str = "line"


def line(name: str, x: NDArray[Any], y: Floats, *, label: str = "", look: str = "line") -> ReportLine:
    """A line from whole columns in the order of x."""
    points, odd = len(y), int((~np.isfinite(y)).sum())
    if points > MOST_POINTS:
        keep = thin_indices(y, MOST_POINTS, x)
        x, y = x[keep], y[keep]
    return ReportLine(name, label or name, x, y, points, odd, look)


@dataclass(frozen=True)
class Flag:
    """A finding on a chart: where, how bad, which one of the report, what it says."""

    step: int
    severity: str
    number: int
    message: str


@dataclass(frozen=True, eq=False)
class Chart:
    """slug: unique in a report. x: what the axis counts. log: the y axis opens logarithmic. said: the caption."""

    slug: str
    title: str
    lines: tuple[ReportLine, ...]
    said: tuple[Sentence, ...] = ()
    x: str = "step"
    unit: str = ""
    log: bool = False
    families: tuple[str, ...] = ()  # of findings that are flagged on it, beside the critical ones
    flags: tuple[Flag, ...] = ()
    bands: tuple[tuple[ReportLine, ReportLine], ...] = ()  # low and high, of the line in the same place
    zero: bool = False  # a line at zero
    small: bool = False  # half as wide, where there is room for two
    tint: int = 0  # the colour of its first line


@dataclass(frozen=True, eq=False)
class Heat:
    """grid: the cells. how: which value of a cell's is shown."""

    slug: str
    grid: HeatMap
    how: str
    said: tuple[Sentence, ...] = ()


@dataclass(frozen=True)
class ReportFinding:
    """A finding of the doctor, its texts as the rule wrote them. number: 1 is the worst."""

    number: int
    severity: str
    rule: str
    step: int
    last_step: int
    message: str
    story: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    confidence: float | None = None


Block = Sentence | FactList | Tiles | ReportTable | TextBlock | Picture | Heading | Chart | Heat | ReportFinding


@dataclass(frozen=True)
class Section:
    """slug: its file's and anchor's name. short: its title in a list of all, where that is long."""

    slug: str
    title: str
    blocks: tuple[Block, ...]
    short: str = ""


@dataclass(frozen=True)
class Report:
    """title, subtitle: of the whole. sections: in the order in which they are read."""

    title: str
    subtitle: str
    sections: tuple[Section, ...]
    made: str = ""  # when, and by what
    mood: str = ""
    about: tuple[Figure, ...] = field(default=())


def section(slug: str, title: str, blocks: Sequence[Block | None], short: str = "") -> Section | None:
    """A section of what there is to say; None if that is nothing."""
    kept = tuple(block for block in blocks if block is not None)
    return Section(slug, title, kept, short) if any(not isinstance(block, Heading) for block in kept) else None
