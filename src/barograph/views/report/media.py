"""What the run kept beside its numbers: images at first, half-way and at last; tables at last; a list of the sounds.

In:   the subject of a report.
Out:  a section; none where a run has no media.

Images are within the page, so it has a limit for each and for all, and one of pixels, since a small file can be a
picture of gigabytes. What a file is, is decided by its first bytes alone: no SVG, no HTML.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from barograph.core import media as formats
from barograph.query.media import MediaItem
from barograph.views.report import figures
from barograph.views.report.content import Block, Heading, Picture, ReportTable, Section, say, section
from barograph.views.report.subject import Subject

MOST_NAMES = 8  # of images, and of tables
MOST_AT_A_STEP = 4
IMAGE_BYTES = 1 << 20  # of one image
ALL_BYTES = 4 << 20  # of all
MOST_PIXELS = 1 << 24
MOST_ROWS = 12
MOST_COLUMNS = 8
MOST_CELL = 120  # characters
TABLE_BYTES = 8 << 20  # of a file that is read for its first rows


def media(subject: Subject) -> Section | None:
    """Images, tables and sounds, by name."""
    names: dict[tuple[str, str], list[MediaItem]] = {}
    for item in subject.run.media():
        names.setdefault((item.type, item.name), []).append(item)
    for key, items in names.items():  # images of two ranks are two images: those of the first are shown
        rank = min(item.rank for item in items)
        names[key] = [item for item in items if item.rank == rank]
    kinds = {kind: [items for (type_, _), items in names.items() if type_ == kind] for kind in formats.TYPES}
    blocks = [*_images(kinds["image"]), *_tables(kinds["table"])]
    rest = [items for kind in ("audio", "video", "file") for items in kinds[kind]]
    if rest:
        blocks += [Heading("Sounds and other files"), _listed(rest)]
        if kinds["audio"]:
            blocks.append(
                say("Sounds are not in this file, so that it stays small; `barograph view` plays them.", "dim")
            )
    return section("media", "Images, audio, tables", blocks, "Media")


# -- images -----------------------------------------------------------------------------------------------


def _images(names: list[list[MediaItem]]) -> Iterator[Block]:
    shown = [_ends(items) for items in names[:MOST_NAMES]]
    left = ALL_BYTES
    pictures: dict[int, Picture | None] = {}
    # the last of each name comes first: what does not fit is an earlier one
    for item in sorted((item for items in shown for item in items), key=lambda item: -item.step):
        pictures[id(item)] = found = _picture(item, left)
        left -= len(found.data) if found is not None else 0
    for items in shown:
        yield Heading(figures.word(items[0].name, "", 200).text)
        yield from (found for item in items if (found := pictures[id(item)]) is not None)
        for item in items:
            if pictures[id(item)] is None:
                yield say("That of step {step} ({size}) is not in this page: {path} in the run's folder.", "dim",
                          step=figures.count(item.step, "media record"), size=figures.size(item.bytes, "media record"),
                          path=figures.word(f"{formats.FOLDER}/{item.path.name}", "media record"))  # fmt: skip
    if len(names) > MOST_NAMES:
        shown_, all_ = figures.count(MOST_NAMES, "report"), figures.count(len(names), "media records")
        yield say("Images of {shown} names of {all} are shown.", "dim", shown=shown_, all=all_)


def _ends(items: list[MediaItem]) -> list[MediaItem]:
    """Those of the first step, of one half-way and of the last; of each a few."""
    steps = sorted({item.step for item in items})
    kept = {steps[0], steps[len(steps) // 2], steps[-1]}
    return [item for step in sorted(kept) for item in [one for one in items if one.step == step][:MOST_AT_A_STEP]]


def _picture(item: MediaItem, left: int) -> Picture | None:
    """The image, where it is one, is whole, and is not too large."""
    if item.bytes > min(IMAGE_BYTES, left) or not item.is_there:
        return None
    try:
        data = item.read()
    except OSError:
        return None
    found, size = formats.format_of(data), formats.image_size(data)
    if found.type != "image" or len(data) != item.bytes or size is None or not 0 < size[0] * size[1] <= MOST_PIXELS:
        return None
    caption = figures.word(item.caption, "", 200).text if item.caption else ""
    return Picture(f"step {item.step:,}", caption, found.content, data, size)


# -- tables and the rest ----------------------------------------------------------------------------------


def _tables(names: list[list[MediaItem]]) -> Iterator[Block]:
    for items in names[:MOST_NAMES]:
        last = items[-1]
        try:
            columns = last.table() if last.bytes <= TABLE_BYTES and last.is_there else {}
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            columns = {}
        heads = list(columns)[:MOST_COLUMNS]
        if not heads:
            continue
        source = f"{last.name} at step {last.step:,}"
        rows = len(columns[heads[0]])
        all_rows, all_columns = figures.count(rows, source, "row"), figures.count(len(columns), source, "column")
        cells = [tuple(_cell(columns[head][at], source) for head in heads) for at in range(min(rows, MOST_ROWS))]
        numeric = {at for at, head in enumerate(heads) if all(map(_is_number, columns[head][:MOST_ROWS]))}
        title = figures.word(last.name, "", 200).text
        yield Heading(f"{title}, step {last.step:,}")
        words = tuple(figures.word(head, "", 60).text for head in heads)
        yield ReportTable(title, words, tuple(cells), frozenset(numeric))
        if rows > len(cells):
            yield say("{shown} of {all} are shown.", "dim", shown=figures.count(len(cells), "report"), all=all_rows)
        if len(columns) > len(heads):
            yield say("{shown} of {all} are shown.", "dim", shown=figures.count(len(heads), "report"), all=all_columns)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value: Any, source: str) -> Any:
    if value is None:
        return ""
    if isinstance(value, dict) and formats.is_path(value.get("media")):
        return "(image)"
    if _is_number(value):
        return figures.number(value if abs(value) < 1e300 else math.copysign(math.inf, value), source)
    return figures.word(str(value).lower() if isinstance(value, bool) else value, source, MOST_CELL)


def _listed(names: Iterable[list[MediaItem]]) -> ReportTable:
    rows = []
    for items in names:
        last = items[-1]
        seconds = last.fields.get("seconds")
        rows.append((
            figures.word(last.name, "media record", 200), last.type, figures.count(len(items), "media records"),
            figures.count(last.step, "media record"),
            figures.duration(float(seconds), "media record") if isinstance(seconds, (int, float)) else "",
            figures.size(last.bytes, "media record"),
            figures.word(f"{formats.FOLDER}/{last.path.name}", "media record"),
        ))  # fmt: skip
    heads = ("name", "type", "times", "last step", "length", "size", "the last file")
    return ReportTable("Sounds and other files", heads, tuple(rows), frozenset({2, 3, 4, 5}))
