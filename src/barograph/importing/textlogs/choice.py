"""Which dialect a file is in, and which runs it holds.

In:   a path and the first bytes of the file.
Out:  the dialect whose rows are most, those that read what it leaves, and a `FoundRun` for each run.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barograph.importing.source import FoundRun
from barograph.importing.textlogs import chunks, prefixes, uncounted
from barograph.importing.textlogs.blocks import LOSS

if TYPE_CHECKING:
    from barograph.importing.textlogs.engine import Dialect

FAR = 4 << 20  # bytes looked at when the head holds no rows: source code and the shell's trace come first
SCANNED = 1 << 28  # bytes searched for the beginnings of further runs
BEGINNINGS = 200  # of runs in a file that are looked at
_ALIKE = 0.8  # of the most rows: counts as the same number
_EVALUATIONS = 5  # without a row of training
_OF_NAN = 2  # the same, where a loss is not a number
_LISTED = 3  # times the rows, read as whole histories: all others' are strays
_OUTNUMBERED = 8  # times the rows, read by the plain reader: a dialect's are strays
# never logs: read by other sources, or text in which rows are only quoted
_ENDINGS = (
    "json csv tsv py yaml yml toml c cu cpp h cuh rs go js ts css pdf pt pth bin safetensors npy "
    "npz parquet arrow feather db sqlite wandb zip tar png jpg svg pkl"
)
_OTHERS = frozenset(_ENDINGS.split())
_PROSE = frozenset({".md", ".rst", ".html", ".htm", ".ipynb"})
_SAYING_NOTHING = "log logs main train training output out stdout stderr trainer_log console run slurm"
_PLAIN_NAMES = frozenset(_SAYING_NOTHING.split())
_dialects: list[Dialect] = []


def offer(dialects: Sequence[Dialect]) -> None:
    """Choose among these, in this order."""
    _dialects[:] = dialects


def choose(path: Path, head: bytes) -> Dialect | None:
    """The dialect with the most rows in the beginning of a file, or None."""
    dialects = readers(path, head)
    return dialects[0] if dialects else None


def readers(path: Path, head: bytes) -> tuple[Dialect, ...]:
    """The dialects with rows in the beginning of a file: the one with the most, then those that read what is left."""
    if not may_be_log(path) or not head:
        return ()
    try:
        size = path.stat().st_size
    except OSError:
        return ()
    return _choose(path, zlib.crc32(head), len(head), size, head)


def may_be_log(path: Path) -> bool:
    """Whether a file's name is none that other sources read, or of a program."""
    return path.suffix.lower()[1:] not in _OTHERS


def beside(path: Path, known: Iterable[str]) -> list[Dialect]:
    """The dialects that read what is left of a file, with those that did so before; the plain reader is the last."""
    with path.open("rb") as file:
        dialects = readers(path, file.read(1 << 16))
    kinds = {*known, *(dialect.kind for dialect in dialects)}
    return [dialect for dialect in _dialects if dialect.kind in kinds]


@lru_cache(maxsize=8)
def _choose(path: Path, _check: int, _length: int, size: int, head: bytes) -> tuple[Dialect, ...]:
    text = chunks.opening(path, head)
    if text.count(0) > len(text) // 10:
        return ()  # binary
    whole = len(text) < 1 << 16
    result = most(text, whole, path.suffix.lower() not in _PROSE)
    if result or whole or _is_json_lines(text):
        return result
    try:  # source code or the shell's trace comes first: look on, a piece at a time
        far = len(text)
        for piece in chunks.blocks(path, far, 1 << 18):
            far += len(piece)
            result = most(piece, whole=False)
            if result or far > FAR:
                return result
    except OSError:
        return ()
    # all was seen, and no piece of it has two rows; the last ones may have one
    return most(b"".join(_bounded(path, max(far - (1 << 18), 0), 1 << 18)), whole=True)


def _is_json_lines(text: bytes) -> bool:
    """Whether each line is an object: no shell and no program printed that, so nothing else comes later."""
    lines = text.split(b"\n")[:-1]
    return bool(lines) and all(line.startswith(b"{") and line.rstrip().endswith(b"}") for line in lines)


def most(text: bytes, whole: bool, lone: bool = False) -> tuple[Dialect, ...]:
    """The dialects with rows in a text, the one with the most first; of equals the first of `SOURCES`.

    One row is enough in a file seen whole; for the plain reader only where `lone` says so. What counts are rows of
    training; a line that occurs in any log, such as one about memory, claims no file in which the plain reader finds
    rows. The plain reader goes before a dialect only if it has many times its rows. Evaluations alone are read where
    nobody finds anything else.
    """
    rest = tuple(dialect for dialect in _dialects if dialect.of_the_rest)
    counts = [(dialect, *dialect.rows_in(text)) for dialect in _dialects if not dialect.of_the_rest]
    last = (*(dialect for dialect, _, _ in counts if dialect.last_resort), *rest)
    plain = next(main for dialect, _, main in counts if dialect.last_resort)
    told = max((main for _, _, main in counts), default=0)
    if plain < 2 * _OUTNUMBERED and (told_at_once := _at_once(rest, text, told)):
        return (*told_at_once, *last)
    least = 1 if whole and plain < 2 else 2
    ranked = [(main, dialect) for dialect, _, main in counts if main and not dialect.last_resort]
    if not any(rows >= max(least, plain / _OUTNUMBERED) for rows, _ in ranked):
        if plain >= (1 if lone and whole and not ranked else 2):
            return (*last, *(dialect for _, dialect in ranked))
        ranked = [(both, dialect) for dialect, both, _ in counts if both >= least and not dialect.last_resort]
    if not ranked:
        others = tuple(dialect for dialect in rest if dialect.rows_in(text)[1])
        return others or (last if _evaluated(last[0], text) else ())
    most_rows = max(rows for rows, _ in ranked)
    # a line more or less is a stray, and several dialects may read the same lines: the first one has it
    first = next(dialect for rows, dialect in ranked if rows >= _ALIKE * most_rows)
    ranked.sort(key=lambda item: -item[0])
    return (first, *(dialect for _, dialect in ranked if dialect is not first), *last)


def _at_once(rest: Sequence[Dialect], text: bytes, told: int) -> list[Dialect]:
    """The dialects of whole histories, if these have many times the rows that all others read."""
    return [one for one in rest if one.whole_runs and one.rows_in(text)[1] > max(1, _LISTED * told)]


def _evaluated(plain: Dialect, text: bytes) -> bool:
    """Whether a text has evaluations alone: losses of data held out, or rewards, which say a step, or below lines that
    do."""
    lines = plain.prepare(chunks.shown(text, plain.bare), {}).split(b"\n")
    rows, _ = plain.rows_of(lines, plain.candidates(lines), {})
    below = sum(len(row.where) for row in rows if row.names[:1] in (("_epoch",), ("_step",)))
    held_out = [
        row
        for row in rows
        if not row.main and any(LOSS.search(name) or uncounted.REWARD.search(name) for name in row.names)
    ]
    losses = sum(len(row.where) for row in held_out)
    placed = sum(len(row.where) for row in held_out if "_step" in row.names or "_epoch" in row.names)
    least = _OF_NAN if any(map(uncounted.says_nan, held_out)) else _EVALUATIONS
    return max(placed, min(below, losses)) >= least


def runs(dialect: Dialect, path: Path, head: bytes) -> Iterator[FoundRun]:
    """A `FoundRun` for each run in a file of this dialect."""
    text = chunks.opening(path, head)
    if first_step(dialect, text) is None:
        text = b"".join(_bounded(path, 0, FAR))
    base = name_of(path)
    for number, (offset, _, _) in enumerate(parts(dialect, path)):
        if number:
            text = b"".join(_bounded(path, offset, 1 << 18))
        preamble = before_rows(dialect, text)
        stamp = prefixes.TIME.search(preamble)
        created = float(prefixes.parse_times([stamp[1]])[0]) / 1e6 if stamp else 0.0
        yield FoundRun(
            dialect.kind,
            path,
            "" if number == 0 else str(number + 1),
            base if number == 0 else f"{base}-{number + 1}",
            config=_processes(preamble) | dialect.settings(preamble),
            created=max(created, 0.0),
        )


def _processes(preamble: bytes) -> dict[str, Any]:
    """How many processes a launch had, where it says so: `using world size: 8`."""
    match = re.search(rb"(?i)\bworld[ _]size[ :=]{1,3}(\d{1,7})\b", preamble)
    return {"world_size": int(match[1])} if match else {}


def name_of(path: Path) -> str:
    """A file's name without endings; the folder's before it where the file's says nothing."""
    stem = re.sub(r"(?i)\.(log|txt|out|err|jsonl|gz)(?=\.|$)", "", path.name) or path.name
    folder = path.resolve().parent.name
    return f"{folder}-{stem}" if stem.lower() in _PLAIN_NAMES and folder else stem


def before_rows(dialect: Dialect, text: bytes) -> bytes:
    """What stands before the first row, and that row's own beginning: at most the last 64 kB of it."""
    for at, window in _windows(text):
        lines = chunks.shown(window, dialect.bare).split(b"\n")
        if (first := _first(dialect, lines)) is not None:
            before = b"\n".join([*lines[: first[0]], lines[first[0]][:32]])
            return chunks.clean(text[max(at - 65536, 0) : at]) + before
    return chunks.clean(text[-65536:])


def first_step(dialect: Dialect, text: bytes) -> int | None:
    """The step of the first row in a text that says one."""
    for _, window in _windows(text):
        first = _first(dialect, dialect.prepare(chunks.shown(window, dialect.bare), {}).split(b"\n"))
        if first is not None:
            return first[1]
    return None


def _windows(text: bytes, size: int = 1 << 16) -> Iterator[tuple[int, bytes]]:
    """A text in pieces of whole lines, each with its place."""
    at = 0
    while at < len(text):
        end = text.rfind(b"\n", at, at + size) + 1
        end = end if end > at else min(at + size, len(text))
        yield at, text[at:end]
        at = end


def _first(dialect: Dialect, lines: list[bytes]) -> tuple[int, int] | None:
    picks = dialect.candidates(lines)
    for begin in range(0, len(picks), 64):  # the first rows are near the beginning, as a rule
        left, found = picks[begin : begin + 64], []
        for form in dialect.shapes:
            rows, left = form.take(lines, left)
            found += [(int(row.where[0]), int(row.steps[0]) if row.steps else 0) for row in rows if row.main]
        if found:
            return min(found)
    return None


def _bounded(path: Path, offset: int, size: int) -> Iterator[bytes]:
    for piece in chunks.blocks(path, offset):
        yield piece[:size]
        size -= len(piece)
        if size <= 0:
            return


def parts(dialect: Dialect, path: Path) -> list[tuple[int, int, int | None]]:
    """Offset, line and first step of each run in a file; the first begins at 0."""
    if not dialect.begins:
        return [(0, 1, None)]
    state = path.stat()
    return list(_parts(dialect, path, state.st_size, state.st_mtime_ns))


@lru_cache(maxsize=8)  # asked when the file is found, and when it is read
def _parts(dialect: Dialect, path: Path, _size: int, _time: int) -> tuple[tuple[int, int, int | None], ...]:
    found: list[tuple[int, int, int | None]] = [(0, 1, None)]
    first = None
    for offset, line, step in beginnings(dialect, path, 0, 1):
        if first is None:
            first = step
        elif step <= first:
            found.append((offset, line, step))
            first = step
    return tuple(found)


def beginnings(dialect: Dialect, path: Path, offset: int, line: int) -> Iterator[tuple[int, int, int]]:
    """Where the program begins: offset, line, and the step of the first row behind it."""
    at, rest, marks = offset, b"", 0
    waiting: tuple[int, int] | None = None
    for piece in chunks.blocks(path, offset, chunks.SIZE):
        if at - offset > SCANNED or marks > BEGINNINGS:
            return
        text = rest + piece
        cut = text.rfind(b"\n") + 1
        if not cut and len(text) < chunks.LONGEST:
            rest = text
            continue
        cut = cut or len(text)
        body, rest = text[:cut], text[cut:]
        starts = _starts(body, dialect.begins)
        edges = [0, *starts, cut]
        for number in range(len(edges) - 1):
            if number:
                marks += 1
                waiting = waiting or (at + edges[number], line + body.count(b"\n", 0, edges[number]))
            if waiting is not None and edges[number] < edges[number + 1]:
                step = first_step(dialect, body[edges[number] : edges[number + 1]])
                if step is not None:
                    yield (*waiting, step)
                    waiting = None
        at, line = at + cut, line + body.count(b"\n")


def _starts(body: bytes, words: tuple[bytes, ...]) -> list[int]:
    """Where the lines begin that hold one of the words, other than in a program's text."""
    found = set()
    for word in words:
        at = body.find(word)
        while at >= 0:
            start = body.rfind(b"\n", 0, at) + 1
            if not re.search(rb"[\"'(]", body[start:at][-200:]):
                found.add(start)
            at = body.find(word, at + len(word))
    return sorted(found)


def span(dialect: Dialect, path: Path, key: str, offset: int | None, first: int | None) -> tuple[int, int, int | None]:
    """Offset and line at which a run of a file begins, and the offset at which it ends (None: at the file's end)."""
    if not dialect.begins:
        return 0, 1, None
    number = int(key) - 1 if key.isdigit() else 0
    if offset is not None and first is not None:  # go on: only what is new may hold another beginning
        later = (begin for begin, _, step in beginnings(dialect, path, offset, 1) if step <= first)
        return offset, 1, next(later, None)
    found: list[Any] = parts(dialect, path)
    if number >= len(found):
        raise OSError(f"run {key} is no longer in the file")
    end = found[number + 1][0] if number + 1 < len(found) else None
    return found[number][0], found[number][1], end
