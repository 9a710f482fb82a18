"""Lightning's CSVLogger: `metrics.csv` in folders `version_N`, with `hparams.yaml` beside it.

In:   a `metrics.csv` whose header has `epoch` and `step`.
Out:  its rows, each with the columns that it has; the hyper-parameters as configuration.

A row holds what was logged at one moment, so most cells are empty. When a new name appears, the logger writes
the whole file anew with one column more; the rows of before are compared with what was read, so that only new
ones are added.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy

from barograph.importing import delimited
from barograph.importing.source import FoundRun, ImportMark, Item, Unread
from barograph.importing.tables import TableRows

FILE = "metrics.csv"
HPARAMS = "hparams.yaml"
_MOST_HPARAMS = 4 << 20


class LightningSource:
    kind = "lightning"
    about = "Lightning's metrics.csv"
    rewrites = True
    patient = False  # set when a file is followed: a last row without a line break waits for it

    def find(self, path: Path, head: bytes) -> list[FoundRun]:
        if path.name != FILE:
            return []
        columns = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].decode("utf-8", "replace").strip().split(",")
        if not {"epoch", "step"} <= {column.strip('"') for column in columns}:
            return []
        return [FoundRun(self.kind, path, "", _name(path.absolute().parent), config=_hparams(path.with_name(HPARAMS)))]

    def read(self, run: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
        before: dict[str, Any] = since.state if since else {}
        with open(run.path, "rb") as file:
            head = file.read(64 << 10)
        made = delimited.layout(head, len(head) < 64 << 10)
        if made is None:
            yield Unread(run.path, 1, head[:200].decode("utf-8", "replace"), "no header of a table")
            yield since or ImportMark({})
            return
        made.axes = made.axes._replace(step="step", x="step", name=None, value=None, split=None)
        state: dict[str, Any] = {"offset": made.begin, "line": made.lines + 1}
        skip, checked = 0, 0
        if before and before.get("header") == made.columns and _tail(run.path, before["offset"]) == before.get("tail"):
            state = dict(before)
        elif before:  # written anew: the rows that were read stand at the beginning again
            skip = int(before.get("rows", 0))
            if _fingerprint(run.path, made, skip) != before.get("print"):
                yield ImportMark({})  # the rows of another training
                skip = 0
            else:
                state |= {"order": before.get("order"), "words": before.get("words")}
        reader = delimited.DelimitedReader(run.path, made, int(state["offset"]), int(state["line"]), self.patient)
        taker = TableRows(made, run.path, state)
        rows, print_ = int(state.get("rows", 0)), int(state.get("print", 0))

        def mark() -> ImportMark:
            told = {"offset": reader.offset, "line": reader.line, "rows": rows, "print": print_}
            return ImportMark(told | {"header": made.columns, "tail": _tail(run.path, reader.offset)} | taker.state)

        for piece in reader.stretches():
            if isinstance(piece, Unread):
                if checked >= skip:
                    yield piece
                continue
            print_ = _add(print_, rows, piece)
            rows += piece.rows
            dropped = min(skip - checked, piece.rows)
            checked += dropped
            yield from taker.take(_behind(piece, dropped), reader.line)
            if checked >= skip:  # no mark amid the rows that are passed over
                yield mark()
        yield mark()


def _add(print_: int, rows: int, piece: delimited.DelimitedStretch) -> int:
    """A fingerprint of the steps of all rows so far, however they are cut into stretches."""
    counts = piece.cells.get("step", numpy.full(piece.rows, -1.0))  # none in a column of words
    counted = numpy.clip(numpy.nan_to_num(counts, nan=-1.0), -(2.0**53), 2.0**53)
    steps = counted.astype(numpy.int64) + 1
    places = numpy.arange(rows + 1, rows + piece.rows + 1, dtype=numpy.int64)
    return (print_ + int((steps % 1_000_003 * (places % 1_000_003)).sum())) % (1 << 52)


def _fingerprint(path: Path, layout: delimited.Layout, rows: int) -> int:
    """That of a file's first rows; -1 if it has fewer."""
    print_ = seen = 0
    for piece in delimited.DelimitedReader(path, layout, layout.begin, layout.lines + 1).stretches():
        if isinstance(piece, Unread):
            continue
        kept = _behind(piece, 0, rows - seen)
        print_, seen = _add(print_, seen, kept), seen + kept.rows
        if seen >= rows:
            return print_
    return print_ if seen == rows else -1


def _behind(piece: delimited.DelimitedStretch, begin: int, end: int | None = None) -> delimited.DelimitedStretch:
    if not begin and (end is None or end >= piece.rows):
        return piece
    rows = slice(begin, end)
    return delimited.DelimitedStretch(
        {name: column[rows] for name, column in piece.cells.items()},
        {name: column[rows] for name, column in piece.given.items()},
        {name: column[rows] for name, column in piece.words.items()},
        len(range(piece.rows)[rows]),
    )


def _tail(path: Path, offset: int) -> str:
    """What stands before a byte of the file: the same as long as the file only grows."""
    with open(path, "rb") as file:
        file.seek(max(0, offset - 64))
        return hashlib.sha256(file.read(min(64, offset))).hexdigest()[:16]


def _name(folder: Path) -> str:
    """`version_3` says little: the folder of the logger, or the one above, goes before it."""
    above = folder.parent
    if above.name in ("lightning_logs", "csv_logs", "logs") and above.parent.name:
        above = above.parent
    return f"{above.name} {folder.name}" if folder.name.startswith("version_") and above.name else folder.name


def _hparams(path: Path) -> dict[str, Any]:
    """The hyper-parameters beside the metrics; objects of Python in them as what they hold."""
    try:
        if path.stat().st_size > _MOST_HPARAMS:
            return {}
        text = path.read_bytes()
    except OSError:
        return {}
    import yaml

    class LightningLoader(yaml.SafeLoader):
        """Reads foreign tags as plain values, and makes no object."""

    def plain(loader: Any, _: str, node: Any) -> Any:
        if isinstance(node, yaml.MappingNode):
            return loader.construct_mapping(node, deep=True)
        if isinstance(node, yaml.SequenceNode):
            return loader.construct_sequence(node, deep=True)
        return loader.construct_scalar(node)

    LightningLoader.add_multi_constructor("", plain)
    try:
        settings = yaml.load(text, LightningLoader)
    except Exception:  # besides YAMLError: impossible dates, endless nesting
        return {}
    return {str(name): value for name, value in settings.items()} if isinstance(settings, dict) else {}


SOURCE = LightningSource()
