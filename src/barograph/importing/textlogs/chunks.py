"""The text of a log in pieces of whole lines, whatever it is wrapped in.

In:   the path of a log: plain, gzip-compressed, UTF-8 or UTF-16, with colours and progress bars, in an HTML page.
Out:  `Chunk`s of a megabyte or two: whole lines without escape codes, carriage returns as line breaks.

Offsets count bytes of the plain UTF-8 text. The last line is left alone until its line break is there.
"""

from __future__ import annotations

import codecs
import contextlib
import itertools
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from barograph.core.patterns import expression
from barograph.importing.textlogs import containers, examples, leads, notebooks, pages

SIZE = 1 << 21  # bytes of a chunk: enough to hide what a chunk costs, and some 40 MB with all its lines apart
LONGEST = 1 << 23  # bytes of a line; a longer one is dropped
_FEW_BYTES = 120  # of a line, which holds no two of a logger's
_BEFORE = 1 << 13  # bytes: of a shorter text, what stands before it says with it what lines begin with
_PACKED = 1 << 14  # bytes unpacked at once: gzip makes at most 1032 of one, so 16 MB
_ESCAPE = expression(rb"\x1b(?:\[[0-9;:?<=>]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)|[@-Z\\^_])")
_PARTS = expression(rb"(\| ?\d{1,12})(?:\.\d{1,20})?(/\d{1,12})(?:\.\d{1,20})?(?= \[)")  # of a bar of `n / batch`
_CUT_IN = expression(  # behind a bar's last number
    rb"(?<=\d)(?=Traceback \(most recent call last\)|Batch \d{1,9}: Invalid loss)"
)
_STATES = expression(  # of a bar, where the carriage returns between them got lost
    rb"((?:it/s|s/it)[^\]\n]{0,200}\])[ \t]{0,8}(?=(?:[A-Za-z][\w .()/#-]{0,30}:[ \t]{0,8})?\d{1,3}%\||"
    rb"(?i:(?:global[ _])?step|iter(?:ation)?)[ :=#]{1,3}\d{1,12}[ ,:/|])|"  # or a row was printed right behind it
    rb"(?<=\d)[ \t]{1,8}(?=\d{1,9}/\d{1,9} \[[=>.]{8})|"
    rb"(?<=[\d-])(?=[A-Z][a-z]{2,20}[\w .()/#-]{0,30}:[ \t]{0,8}\d{1,3}%\|)|"
    rb"(?<=[a-z])(?=\d{1,9}/\d{1,9} \[={8})"  # drawn over the end of what else was printed
)
_BEGUN = expression(  # a bar that has counted nothing yet, and what was printed right behind it
    rb"(?m)^([^\n\r|%]{0,80}?\b0%\|[^|\n\r]{0,300}\| 0/\d{1,12} \[00:00<\?[^\]\n\r]{0,60}\])[ \t]{0,8}"
    rb"(?=[A-Za-z\[(=*>#-][^\n\r]{0,200}?[\d:])([^\n\r]{1,2000})"
)
_OF_HELD_OUT = expression(
    rb"(?i)[^a-z]{0,8}(?:[a-z]{1,12} ){0,2}(?:val|valid|validation|eval|evaluation|test|dev)(?![a-z])"
)
_RUN_ON = expression(rb"(\d\.\d{4,20})(?=passed: )")  # `learn 0.4123passed: 1.2 sec`, of older trees of CatBoost
_GLUED = expression(  # a line of a logger's right behind another one, whose break got lost
    rb"20(?<=[A-Za-z%)\]]20)(?=\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d[,.]\d{3}[ Z])"
)
_DICTS = expression(rb"(?<=\})[ \t]{0,4}(?=\{'(?:eval_)?loss': )")  # a Trainer's, one behind the other
_LEAD = expression(  # of a row, where rows were printed one behind the other: `… 20.50Episode 7 Score: 22.1`
    rb"(?:(?<=[\d%)\]])[ \t]{0,4}|^)(?=(?:\[[\w .-]{1,30}\] )?(?<![A-Za-z])[Ee]p(?:och|isode)[ :#\[]{1,2}\d)"
)
_STAMP = expression(  # of a logger's line, where the breaks between lines became blanks
    rb"(?:(?<=[^\s\d:,;=>-])|(?<=\d))[ \t]{1,4}"
    rb"(?=\[?20\d\d[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?\]?[ ,:|-]{1,3}(\S{2,40}))"
)
_NO_BREAK = bytes(code for code in range(256) if code not in b"\r\n")
_CURLY = {mark.encode(): plain for mark, plain in zip("‘’“”", (b"'", b"'", b'"', b'"'), strict=True)}
_QUOTES = expression(b"|".join(_CURLY))  # as a word processor sets them
_MARK = rb"[ \t]{0,8}(?:#{1,3}|//|>|;|%{1,2})(?:[ \t]|(?=\n)|$)"
_COMMENTS = expression(rb"(?m)(?:^" + _MARK + rb"[^\n]*(?:\n|\Z)){2,}+")
_MARKS = expression(rb"(?m)^(?:" + _MARK + rb"){1,4}")
_FIGURES = expression(
    rb"(?im)(?:loss|cost|acc(?:uracy)?|error|r?mse|ppl|perplexity)[^\n=:]{0,40}?[=: ][ \t]{0,3}[-+]?"
    rb"(?:\d|nan\b|inf\b)[^\n]*$"
    rb"|\b(?:step|epoch|iter(?:ation)?)\b[^\n\d]{1,80}loss[^\n\d]*$"
    rb"|^[ \t]{0,8}%[ \t]{1,8}\|[ \t]{0,20}\d{1,15}[ \t]{0,20}\|[ \t]{0,20}\d[^\n]*$"
)


class Chunk(NamedTuple):
    """Whole lines. `breaks` has as many breaks of lines as `text`; those that a bar draws are carriage returns."""

    text: bytes
    breaks: bytes
    line: int  # number of the first line, from 1
    end: int  # offset behind it
    dropped: int  # lines too long, dropped before this text
    partial: int  # bytes behind it that are not yet a whole line; 0 but for the last
    ahead: bytes  # the beginning of what stands behind it, as far as it has been read
    leads: list[bytes] | None = None  # what stood before each line's own text and was left out

    def number(self, index: int) -> int:
        """The line number in the file of a line of the text, counted from 0."""
        if self.breaks is self.text:
            return self.line + index
        return self.line + self.breaks.translate(None, _NO_BREAK)[:index].count(b"\n")

    def as_written(self, text: bytes, lines: list[bytes], rest: list[bytes]) -> tuple[bytes, list[bytes], list[bytes]]:
        """A text, its lines, and those that were not read, with what stood before them."""
        if self.leads is None:
            return text, lines, rest
        whole = [lead + line for lead, line in zip(self.leads, self.text.split(b"\n"), strict=True)]
        left = [line if kept else b"" for line, kept in zip(whole, rest, strict=True)]
        return b"\n".join(whole), whole, left


def clean(text: bytes) -> bytes:
    """Without escape codes, and without the marks of comments and quotations in which rows stand."""
    text = containers.unwrapped(text) if containers.may_be_in(text) else text
    text = _ESCAPE.sub(b"", text) if b"\x1b" in text else text
    text = _STATES.sub(rb"\1\r", text) if b"%|" in text or b" [=" in text or b" [." in text else text
    text = _PARTS.sub(rb"\1\2", text) if b"%|" in text else text
    text = _CUT_IN.sub(b"\r", text) if b" [=" in text or b" [." in text else text
    text = _GLUED.sub(b"\r20", text)
    text = _RUN_ON.sub(rb"\1 ", text) if b"passed: " in text else text
    text = _DICTS.sub(b"\r", text) if b"{'loss': " in text or b"{'eval_loss': " in text else text
    if b"[00:00<?" in text:
        text = _BEGUN.sub(_behind_bar, text)
    if b"{\xe2\x80\x98" in text or b"{\xe2\x80\x9c" in text:
        text = _QUOTES.sub(lambda found: _CURLY[found[0]], text)
    if examples.may_be_in(text):
        text = examples.left_out(text)
    if text.count(b"poch ") + text.count(b"pisode ") > text.count(b"\n") + 1:
        text = b"\n".join(_rows_apart(line) for line in text.split(b"\n"))
    if text.count(b" [20") > 2 or text.count(b" 20") > 2 * text.count(b"\n") + 2:
        text = b"\n".join(_lines_apart(line) if len(line) > _FEW_BYTES else line for line in text.split(b"\n"))
    return (
        _COMMENTS.sub(_as_rows, text)
        if b"#" in text or b"//" in text or b"> " in text or b"; " in text or b"% " in text
        else text
    )


def _rows_apart(line: bytes) -> bytes:
    """A line that holds three rows or more, each of which begins with its epoch or episode, as that many rows."""
    begin = [found.end() for found in itertools.islice(_LEAD.finditer(line), 1 << 12)]
    if len(begin) < 3:
        return line
    return b"\r".join(line[low:high] for low, high in itertools.pairwise([0, *begin[begin[0] == 0 :], len(line)]))


def _lines_apart(line: bytes) -> bytes:
    """Lines of a logger's that were pasted as one, each behind the other, as that many: each begins with its moment,
    and the words behind that are few."""
    stamps = list(itertools.islice(_STAMP.finditer(line), 1 << 16))
    if len(stamps) < 2 or len({found[1] for found in stamps}) > max(len(stamps) // 3, 1):
        return line
    ends = [0, *(found.end() for found in stamps), len(line)]
    return b"\r".join(line[low:high] for low, high in itertools.pairwise(ends))


def _behind_bar(found: re.Match[bytes]) -> bytes:
    """What was printed behind a bar that has counted nothing on a line of its own: about data held out it belongs to
    what came before that bar, which is drawn again."""
    return found[2] if _OF_HELD_OUT.match(found[2]) else found[1] + b"\r" + found[2]


def shown(text: bytes, bare: bool = False) -> bytes:
    """The lines of a text as they are shown: clean, and each state of a bar on its own. bare: as in `chunks`."""
    text = leads.collected(clean(text).replace(b"\r\n", b"\n").replace(b"\r", b"\n"))[0]
    return leads.logged(text)[0] if bare else text


def _as_rows(found: re.Match[bytes]) -> bytes:
    """Lines of comments with blanks instead of their marks, and quotations without theirs, if two or more of them hold
    figures of a training."""
    rows = found[0]
    if sum(1 for _ in zip(_FIGURES.finditer(rows), range(2), strict=False)) < 2:
        return rows
    return _MARKS.sub(lambda mark: b"" if b">" in mark[0] else b" " * len(mark[0]), rows)


def encoding(head: bytes) -> str:
    """ "utf-16-le", "utf-16-be" or "" (bytes are taken as they are)."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16-le" if head[:1] == b"\xff" else "utf-16-be"
    sample = head[:4096]
    half = len(sample) // 2
    if half >= 16:
        low, high = sample[1::2].count(0), sample[0::2].count(0)
        if low > 0.9 * half and high < 0.1 * half:
            return "utf-16-le"
        if high > 0.9 * half and low < 0.1 * half:
            return "utf-16-be"
    return ""


def _unpack(raw: Iterator[bytes]) -> Iterator[bytes]:
    """Several gzip members one behind the other, as far as they are whole; ends silently where they are not."""
    engine = zlib.decompressobj(wbits=31)
    for piece in raw:
        for begin in range(0, len(piece), _PACKED):
            rest = piece[begin : begin + _PACKED]
            while rest:
                try:
                    yield engine.decompress(rest)
                except zlib.error:
                    return
                rest = b""
                if engine.eof:
                    rest = engine.unused_data.lstrip(b"\0")
                    engine = zlib.decompressobj(wbits=31)


def _as_utf8(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """UTF-16 as UTF-8; anything else as it is."""
    decoder = None
    for number, piece in enumerate(pieces):
        if number == 0 and (name := encoding(piece)):
            decoder = codecs.getincrementaldecoder(name)(errors="replace")
        yield decoder.decode(piece).lstrip("\ufeff").encode("utf-8", "replace") if decoder else piece


def is_plain(head: bytes) -> bool:
    """Whether a file's bytes are its text as they are."""
    shown = pages.is_page(head) or notebooks.is_notebook(head)
    return head[:2] != b"\x1f\x8b" and not encoding(head) and not shown


def blocks(path: Path, offset: int = 0, size: int = SIZE) -> Iterator[bytes]:
    """The plain text from `offset` on, in pieces of about `size` bytes. Raises OSError if it can't be opened."""
    with path.open("rb") as file:
        head = file.read(4096)
        if is_plain(head):
            file.seek(offset)
            while piece := file.read(size):
                yield piece
            return
        file.seek(0)
        pieces: Iterator[bytes] = iter(lambda: file.read(size), b"")
        if head[:2] == b"\x1f\x8b":
            pieces = _unpack(pieces)
        pieces = _as_utf8(pieces)
        first = next(pieces, b"")
        pieces = itertools.chain((first,), pieces)
        if pages.is_page(first):
            pieces = pages.text_of(pieces, LONGEST)
        elif notebooks.is_notebook(first):
            pieces = notebooks.text_of(pieces)
        skip = offset
        for text in pieces:
            if skip >= len(text):
                skip -= len(text)
                continue
            yield text[skip:]
            skip = 0


def opening(path: Path, head: bytes, size: int = 1 << 16) -> bytes:
    """The first `size` bytes of the plain text; `head` is the file's first bytes as they are on the disk."""
    if is_plain(head):
        return head[:size]
    found = b""
    try:
        for piece in blocks(path, 0, size):
            found += piece
            if len(found) >= size:
                break
    except OSError:
        return b""
    return found[:size]


def chunks(
    path: Path,
    offset: int = 0,
    line: int = 1,
    end: int | None = None,
    hold: Callable[[bytes], int] | None = None,
    bare: bool = False,
) -> Iterator[Chunk]:
    """The whole lines from `offset` on, up to `end` if given. Always yields a last chunk, perhaps an empty one.

    hold: given whole lines as they are in the file, how many bytes at their end belong to something that isn't whole.
    bare: without what a logger wrote before the lines.
    """
    rest, at, dropped, dropping, before = b"", offset, 0, False, _before(path, offset)
    for piece in blocks(path, offset):
        if end is not None and at + len(rest) + len(piece) >= end:
            piece = piece[: max(end - at - len(rest), 0)]
        if dropping:
            cut = min((where for where in (piece.find(b"\n"), piece.find(b"\r")) if where >= 0), default=-1)
            if cut < 0:
                at += len(piece)
                continue
            piece, at, dropping = piece[cut:], at + cut, False
        text = rest + piece if rest else piece
        cut = text.rfind(b"\n") + 1 or text.rfind(b"\r") + 1
        if hold is not None and cut:
            cut -= min(hold(text[max(cut - (1 << 16), 0) : cut]), cut)
        if cut:
            yield _chunk(text[:cut], line, at + cut, dropped, 0, text[cut : cut + 1024], bare, before)
            before = _whole_lines(text[max(cut - _BEFORE, 0) : cut], cut > _BEFORE)
            line, at, dropped = line + text.count(b"\n", 0, cut), at + cut, 0
        rest = text[cut:]
        if len(rest) > LONGEST:
            at, rest, dropped, dropping = at + len(rest), b"", dropped + 1, True
        if end is not None and at + len(rest) >= end:
            break
    cut = rest.rfind(b"\r") + 1  # a bar that is drawn on: what stands before its last state is whole
    if hold is not None and cut:
        cut -= min(hold(rest[max(cut - (1 << 16), 0) : cut]), cut)
    if cut:
        yield _chunk(rest[:cut], line, at + cut, dropped, 0, rest[cut : cut + 1024], bare, before)
        at, rest, dropped = at + cut, rest[cut:], 0
    yield _chunk(b"", line, at, dropped, len(rest), b"")


def _before(path: Path, offset: int) -> bytes:
    """Whole lines that stand before `offset`; nothing where they would have to be unpacked."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        if offset and is_plain(file.read(4096)):
            low = file.seek(max(offset - _BEFORE, 0))
            return _whole_lines(file.read(offset - low), low > 0)
    return b""


def _whole_lines(text: bytes, cut: bool) -> bytes:
    """cut: the text may begin within a line."""
    return text[text.find(b"\n") + 1 :] if cut else text


def _chunk(
    text: bytes, line: int, end: int, dropped: int, partial: int, ahead: bytes, bare: bool = False, before: bytes = b""
) -> Chunk:
    text = clean(text)
    breaks = text.replace(b"\r\n", b"\n") if b"\r" in text else text
    own = breaks.replace(b"\r", b"\n") if b"\r" in breaks else breaks
    # a file that is read as it grows comes in pieces of a line or two, which alone don't say what lines begin with
    known = clean(before).replace(b"\r\n", b"\n").replace(b"\r", b"\n") if len(own) < _BEFORE else b""
    own, cut = leads.collected(known + own)
    own, cut = leads.logged(own, cut) if bare else (own, cut)
    if known:
        count = known.count(b"\n")
        own, cut = b"\n".join(own.split(b"\n")[count:]), cut[count:] if cut is not None else None
    return Chunk(own, breaks, line, end, dropped, partial, ahead, cut)


def tail(path: Path, offset: int, limit: int = 1 << 16) -> bytes:
    """The last line without its end, from `offset` on; b"" if it is longer than `limit`."""
    found = b""
    for piece in blocks(path, offset, limit):
        found += piece
        if len(found) > limit:
            return b""
    return clean(found)
