"""What people read: numbers, durations, sizes, shares, rows of bars, names. The one place that writes them.

In:   values of any kind, None, NaN and infinity among them; text that a user or a model wrote.
Out:  short text. Nothing here raises, whatever the value.

| value | text |
|---|---|
| number | `2.3457`, `1,234,567`, `1.23e-05`, `nan`, `inf`, `-inf`; `–` for a value that is missing |
| count with a letter | `124.4M`, `1.25B` |
| duration | `45 µs`, `340 ms`, `12.3 s`, `02m05s`, `27h46m`; `–` for NaN |
| size | `512 B`, `1.234 GiB` |
| share | `31.4%`; a change of it `+0.31%` |

The page writes the same: `web/tests/text_cases.json` holds cases that both are tested with. Text of others is escaped
for the place it goes to: a terminal (`escape`), HTML (`html`), Markdown (`markdown`).
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from barograph.core.patterns import expression
from barograph.core.values import text

MISSING = "–"
NOT_FINITE = "×"
BARS = "▁▂▃▄▅▆▇█"
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_LETTERS = ((1e3, "k"), (1e6, "M"), (1e9, "B"), (1e12, "T"), (1e15, ""))
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SECONDS = ((1e-6, "µs", 1000.0), (1e-3, "ms", 1000.0), (1.0, "s", 60.0))

# A message is kept whole in the log; on the screen this much of it is enough.
LONGEST = 4_000

# C0 and C1 controls, and what reorders or breaks a line: bidirectional marks, line and paragraph separators.
_CONTROLS = {
    point: {9: "\\t", 10: "\\n", 13: "\\r", 27: "\\e"}.get(point, f"\\x{point:02x}")
    for point in [*range(32), *range(127, 160)]
} | {
    point: f"\\u{point:04x}"
    for point in [0x061C, *range(0x200E, 0x2010), *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
}
_HTML = {38: "&amp;", 60: "&lt;", 62: "&gt;", 34: "&quot;", 39: "&#x27;"}
_MARKUP = expression(r"([\\`*_{}\[\]<>|#!~&])")


# -- numbers --------------------------------------------------------------------------------------------


def as_float(value: Any) -> float:
    """A number as a float; NaN for anything else."""
    if value is None or isinstance(value, (bool, str, bytes)):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # a whole number beyond the largest float
        return math.inf if value > 0 else -math.inf
    except Exception:  # an object of the user's
        return math.nan


def _is_number(value: Any) -> bool:
    return not isinstance(value, (bool, str, bytes)) and hasattr(value, "__float__")


def number(value: Any, digits: int = 5) -> str:
    """A number in this many significant digits, at most four below 1, and all before the point; no zeros at the end.

    Below 1e-4, and from 1e9 on, as a power of ten.
    """
    if not _is_number(value):
        return MISSING
    value = as_float(value)
    if not math.isfinite(value):
        return "nan" if value != value else "inf" if value > 0 else "-inf"
    size = abs(value)
    if size == 0:
        return "0"
    if value == int(value) and size < 1e9:
        return f"{int(value):,}"
    digits = digits if 1 <= size < 1e9 else min(digits, 4)
    if size >= 1e9 or size < 1e-3:
        return f"{value:.{digits}g}"
    return _stripped(f"{value:,.{max(0, digits - 1 - math.floor(math.log10(size)))}f}")


def _stripped(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def signed(value: Any, digits: int = 5) -> str:
    """A number with its sign: `+0.5`, `-0.25`, `0`."""
    shown = number(value, digits)
    return f"+{shown}" if as_float(value) > 0 else shown


def narrow(value: Any, columns: int = 9) -> str:
    """A number in at most this many characters; at least nine."""
    shown = number(value)
    if len(shown) <= columns:
        return shown
    for digits in (2, 1, 0):
        shown = f"{as_float(value):.{digits}e}"
        if len(shown) <= columns:
            break
    return shown


def compact(value: Any) -> str:
    """A count with a letter for its size: `950`, `12.35k`, `124.4M`, `1.25B`, `300T`; a power of ten beyond."""
    size = abs(as_float(value))
    for (low, letter), (high, _) in pairwise(_LETTERS):
        if low <= size < high:
            scaled = float(f"{as_float(value) / low:.4g}")
            if abs(scaled) < 1000:
                return f"{scaled:.4g}{letter}"
            size = high  # 999,990 is 1M
    if size == 1e15 and abs(as_float(value)) < 1e15:
        return number(math.copysign(1e15, as_float(value)))
    return number(value, 4)


def count(value: Any, noun: str, plural: str = "") -> str:
    """How many of something: `1 step`, `2,000 steps`."""
    whole = as_float(value)
    shown = f"{int(value):,}" if math.isfinite(whole) else number(value)
    return f"{shown} {noun if whole == 1 else plural or f'{noun}s'}"


def duration(seconds: Any) -> str:
    """Three digits below a minute, then minutes and seconds, then hours and minutes."""
    value = as_float(seconds)
    if value != value:
        return MISSING
    if value < 0:
        return f"-{duration(-value)}"
    if value == 0:
        return "0 s"
    if value == math.inf:
        return "inf"
    for scale, unit, limit in _SECONDS:
        if value < limit * scale and float(f"{value / scale:.3g}") < limit:
            return f"{number(value / scale, 3)} {unit}"
    if value >= 3.6e12:
        return f"{number(value / 3600)}h"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02,}h{minutes:02d}m" if hours else f"{minutes:02d}m{rest:02d}s"


def milliseconds(value: Any) -> str:
    """A duration that is given in milliseconds."""
    return duration(as_float(value) / 1000)


def ago(seconds: Any) -> str:
    """How long ago something was, in its largest unit: `3 d ago`."""
    value = as_float(seconds)
    if not math.isfinite(value):
        return MISSING
    for size_, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if value >= size_:
            return f"{int(value // size_):,} {unit} ago"
    return "just now"


def size(bytes_: Any) -> str:
    """Bytes: `512 B`, `1.234 GiB`."""
    value = as_float(bytes_)
    if value != value:
        return MISSING
    if math.isinf(value):
        return number(value)
    for unit in _BYTES:
        if abs(value) < 1023.5 or unit == _BYTES[-1]:
            return f"{number(value if unit != 'B' else round(value), 4)} {unit}"
        value /= 1024
    return MISSING


def percent(share: Any, decimals: int = 1) -> str:
    """A share of 1: `31.4%`; below one percent in two digits, `0.031%`."""
    value = 100 * as_float(share)
    if not math.isfinite(value):
        return MISSING if value != value else f"{number(value)}%"
    return f"{_stripped(f'{value:,.{decimals}f}') if 1 <= abs(value) < 1e9 else number(value, 2)}%"


def change(value: Any) -> str:
    """A change in percent, with its sign: `+0.31%`, `-12.5%`."""
    value = as_float(value)
    return f"{signed(value, 3)}%" if value == value else MISSING


def money(value: Any) -> str:
    """An amount in a currency that the reader knows: `1,234.50`, `0.0042`."""
    value = as_float(value)
    if not math.isfinite(value):
        return MISSING if value != value else number(value)
    return f"{value:,.2f}" if abs(value) >= 1 or value == 0 else number(value, 3)


# -- pictures of one row --------------------------------------------------------------------------------


def sparkline(values: Sequence[float], width: int = 0) -> str:
    """Values as bars from the least to the greatest; `×` for NaN, `^` and `v` for the infinities.

    width: characters; the bar of several values is the one farthest from the middle, and a value among them that is
    not finite is never hidden. 0: a character a value.
    """
    width = min(width, len(values)) or len(values)
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    span = high / 2 - low / 2  # of halves: the whole may be beyond the largest float
    drawn = []
    for at in range(width):
        group = values[at * len(values) // width : (at + 1) * len(values) // width]
        odd = [value for value in group if not math.isfinite(value)]
        if odd:
            drawn.append("^" if set(odd) == {math.inf} else "v" if set(odd) == {-math.inf} else NOT_FINITE)
            continue
        far = max(group, key=lambda value: abs(value / 2 - low / 4 - high / 4))
        drawn.append(BARS[min(7, int((far / 2 - low / 2) / span * 8))] if span > 0 else BARS[3])
    return "".join(drawn)


def bar(share: float, width: int) -> str:
    """A share of 1 as a bar, to an eighth of a character; anything above 0 is seen."""
    eighths = max(1, round(min(1.0, share) * width * 8)) if share > 0 else 0
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8]


# -- text in a place ------------------------------------------------------------------------------------


def width(texts: Iterable[str]) -> int:
    """Columns that texts, or the letters of one, take on a terminal."""
    return sum(len(item) if item.isascii() else sum(map(columns_of, item)) for item in texts)


def columns_of(character: str) -> int:
    """Columns of a terminal that a character takes: 0 for one that is drawn over the one before, 2 for a wide one."""
    if character.isascii():
        return 1
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit(content: str, columns: int) -> str:
    """Text in at most this many columns; what is too long, such as a name, loses its middle."""
    if width([content]) <= columns:
        return content
    if columns <= 1:
        return "…"[: max(0, columns)]
    tail = (columns - 1) // 2
    back = clip(content[::-1], tail, "")[::-1]
    return f"{clip(content, columns - 1 - tail, '')}…{back}"


def clip(content: str, columns: int, mark: str = "…") -> str:
    """Text in at most this many columns; what is too long, such as a sentence, loses its end."""
    if width([content]) <= columns:
        return content
    kept, room = 0, columns - len(mark)
    for character in content:
        room -= columns_of(character)
        if room < 0:
            break
        kept += 1
    return f"{content[:kept]}{mark}" if columns > 0 else ""


def padded(content: str, columns: int, right: bool = False) -> str:
    """Text in exactly this many columns: `fit`, then blanks after it, or before it."""
    content = fit(content, columns)
    blanks = " " * (columns - width([content]))
    return blanks + content if right else content + blanks


def wrapped(content: str, columns: int, lead: str = "", hang: str | None = None) -> list[str]:
    """Lines of at most this many columns, broken at blanks; a word that is longer than a line loses its middle.

    lead, hang: before the first line, and before each other (`lead` and two blanks).
    """
    hang = f"{lead}  " if hang is None else hang
    lines, line = [], lead
    for word in content.split():
        word = fit(word, columns - max(len(lead), len(hang)))
        if line.strip() and width([line, " ", word]) > columns:
            lines.append(line)
            line = hang
        line += f" {word}" if line.strip() else word
    return [*lines, line] if line.strip() else lines


def listed(names: Sequence[str], most: int = 3) -> str:
    """Some names for a sentence: `a, b, c and 4 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def escape(value: object, longest: int = LONGEST) -> str:
    """Anything as text on one line, its control characters written out, cut after `longest` characters.

    It can neither drive a terminal nor pass for another line.
    """
    whole = text(value)
    rest = len(whole) - longest
    shown = one_line(whole[:longest] if rest > 0 else whole)
    return f"{shown}… ({rest:,} more characters)" if rest > 0 else shown


def one_line(content: str, kept: str = "") -> str:
    """Text whose control characters are written out; those in `kept` stay."""
    if content.isascii() and content.isprintable():
        return content
    table = _CONTROLS if not kept else {point: word for point, word in _CONTROLS.items() if chr(point) not in kept}
    return content.translate(table)


def short(value: object, longest: int = 400) -> str:
    """A name in at most this many characters, with a mark where more was; whatever is not printable is written out, so
    that it can't shift what stands beside it."""
    whole = text(value)
    shown = whole[:longest]
    if not shown.isprintable():
        shown = "".join(item if item.isprintable() else _written(item) for item in shown)
    return f"{shown[: longest - 1]}…" if len(whole) > longest or len(shown) > longest else shown


def _written(character: str) -> str:
    point = ord(character)
    return _CONTROLS.get(point) or (f"\\x{point:02x}" if point < 256 else f"\\u{point:04x}")


def quoted(value: object, longest: int = 80) -> str:
    """A value of anybody's as Python writes it, in one short line."""
    try:
        return short(repr(value), longest)
    except Exception:
        return f"a {type(value).__name__}"


def html(value: object, longest: int = LONGEST) -> str:
    """`escape` as text of an HTML or SVG element, or of an attribute in quotes."""
    return escape(value, longest).translate(_HTML)


def html_block(content: str) -> str:
    """Text of several lines for an element that keeps them."""
    return content.translate(_HTML)


def markdown(value: object, longest: int = 400) -> str:
    """`escape` for a line of Markdown, without a character that would be markup."""
    return _MARKUP.sub(r"\\\1", escape(value, longest))


def table(rows: Sequence[Sequence[str]], right: Iterable[int] = (), gap: str = "  ") -> Iterator[str]:
    """Rows of cells as lines of aligned columns. right: columns that are set to the right."""
    sizes = [max(width([row[at]]) for row in rows) for at in range(len(rows[0]))] if rows else []
    side = set(right)
    for row in rows:
        yield gap.join(padded(cell, sizes[at], at in side) for at, cell in enumerate(row)).rstrip()
