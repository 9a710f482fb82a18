"""Images, sounds and tables of a run: the list of them, their files, and tables by the page.

In:   a run, the name of a file as the list has it.
Out:  JSON; the file's bytes under headers that let nothing in it run.

A file is found by its name, which is a digest: no request makes a path. What it is sent as is decided by its own first
bytes. What is neither an image nor sound nor film is handed out to be saved, whatever its name says.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from barograph.core import media
from barograph.core.record import mark_non_finite, restore_non_finite
from barograph.query.media import MediaItem
from barograph.query.stored import StoredRun
from barograph.views.server.answers import json_answer
from barograph.views.server.memory import Memory
from barograph.views.server.places import Places, RunPlace, is_inside
from barograph.views.server.reading import SeriesReading
from barograph.views.server.requests import number_of
from barograph.views.server.schema import AnswerJson
from barograph.views.server.slow import SlowAnswers

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

MOST_ITEMS = 5_000
MOST_ROWS = 500
_TABLE_BYTES = 64 << 20  # tables kept for the next page of them
_FOREVER = "private, max-age=31536000, immutable"  # a file is named by its content
_NOTHING_RUNS = "sandbox; default-src 'none'; media-src 'self'; img-src 'self'; style-src 'unsafe-inline'"


class MediaItemJson(AnswerJson, kw_only=True):
    """An image, a sound, a table or another file. `there`: whether its file is, whole; `shape`: as its record says."""

    name: str
    type: str
    step: int
    time: float
    file: str
    bytes: int
    caption: str
    rank: int
    there: bool
    shape: list[int]
    seconds: float | None


class MediaListJson(AnswerJson, kw_only=True):
    """Those of the live branch, by step; `total`: how many there are, where some are left out."""

    items: list[MediaItemJson]
    total: int


class MediaTableJson(AnswerJson, kw_only=True):
    """Rows of a table from `start` on, sorted and filtered; `total`: those that fit the filter; `every`: all."""

    columns: list[str]
    rows: list[list[Any]]
    start: int
    total: int
    every: int


def listed(run: StoredRun) -> dict[str, Any]:
    """Every file of the live branch, by step; of more than 5,000 evenly many of each name."""
    found = run.media()
    by_name: dict[tuple[str, str], list[MediaItem]] = defaultdict(list)
    for item in found:
        by_name[item.name, item.type].append(item)
    share = max(1, MOST_ITEMS // max(1, len(by_name)))
    kept = [item for each in by_name.values() for item in _evenly(each, share)][:MOST_ITEMS]
    kept.sort(key=lambda item: (item.step, item.time))
    return {"items": [_as_json(item) for item in kept], "total": len(found)}


def _as_json(item: MediaItem) -> dict[str, Any]:
    shape = item.fields.get("shape")
    seconds = item.fields.get("seconds")
    return {
        "name": item.name, "type": item.type, "step": item.step, "time": item.time, "file": item.path.name,
        "bytes": item.bytes, "caption": item.caption, "rank": item.rank, "there": item.is_there,
        "shape": [size for size in shape if type(size) is int] if isinstance(shape, list) else [],
        "seconds": float(seconds) if isinstance(seconds, (int, float)) and math.isfinite(seconds) else None,
    }  # fmt: skip


def _evenly(items: list[MediaItem], most: int) -> list[MediaItem]:
    """`most` of them at most, the first and the last among them."""
    if len(items) <= most:
        return items
    if most == 1:
        return items[-1:]
    return [items[round(at * (len(items) - 1) / (most - 1))] for at in range(most)]


def path_of(folder: Path, root: Path, file: str) -> Path:
    """A media file of a run's folder, within the served one. Raises KeyError."""
    if media.is_path(f"{media.FOLDER}/{file}"):
        path = folder / media.FOLDER / file
        if path.is_file() and is_inside(path, root):
            return path
    raise KeyError(f"the run has no file {file[:80]!r}")


def file_answer(path: Path) -> Response:
    """A file's bytes, parts of them where a player asks for parts."""
    from starlette.responses import FileResponse

    with open(path, "rb") as file:
        found = media.format_of(file.read(64))
    headers = {"content-security-policy": _NOTHING_RUNS, "cache-control": _FOREVER}
    if found is media.UNKNOWN:
        headers["content-disposition"] = f'attachment; filename="{path.name}"'
    return FileResponse(path, headers=headers, media_type=found.content)


class Tables:
    """Pages of tables, sorted and filtered here: a browser never gets 100,000 rows."""

    def __init__(self) -> None:
        self._known = Memory(_TABLE_BYTES)

    def page(self, path: Path, sort: int | None, falling: bool, start: int, most: int, word: str) -> dict[str, Any]:
        """Rows of a table from `start` on. sort: a column; word: only rows with this in a cell. Raises KeyError."""
        columns, rows = self._read(path)
        every = len(rows)
        if word:
            wanted = word.casefold()
            rows = [row for row in rows if any(wanted in str(cell).casefold() for cell in row)]
        if sort is not None and 0 <= sort < len(columns):
            there = [row for row in rows if not _is_empty(row[sort])]
            there.sort(key=lambda row: _order(row[sort]), reverse=falling)
            rows = there + [row for row in rows if _is_empty(row[sort])]  # what is missing stands last, either way
        shown = rows[start : start + min(most, MOST_ROWS)]
        return {"columns": columns, "rows": shown, "start": start, "total": len(rows), "every": every}

    def _read(self, path: Path) -> tuple[list[str], list[list[Any]]]:
        known = self._known.get(path.name)
        if known is not None:
            return known  # type: ignore[no-any-return]
        try:
            held = restore_non_finite(json.loads(path.read_bytes()))
            columns = [str(name) for name in held["columns"]]
            rows = [(row + [None] * len(columns))[: len(columns)] for row in held["data"] if isinstance(row, list)]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise KeyError(f"{path.name} is not a table") from None
        self._known.put(path.name, (columns, rows), path.stat().st_size * 4)
        return columns, rows


def _is_empty(cell: Any) -> bool:
    return cell is None or cell != cell


def _order(cell: Any) -> tuple[int, Any]:
    """Numbers before texts."""
    return (0, cell) if isinstance(cell, (int, float)) else (1, str(cell).casefold())


class MediaAnswers:
    """The media of any run, as answers."""

    def __init__(self, places: Places, reading: SeriesReading, kept: SlowAnswers):
        self._places, self._reading, self._kept = places, reading, kept
        self._tables = Tables()

    def answer(self, request: Request, place: RunPlace) -> Response:
        """The list of a run's images, sounds and tables; `file=`: one of them; `table=`: rows of a table."""
        asked = request.query_params
        if "file" in asked:
            return file_answer(self._file(place, asked["file"]))
        if "table" in asked:
            path = self._file(place, asked["table"])
            sort = number_of(request, "sort", -1, -1, 10_000)
            start = number_of(request, "start", 0, 0, 1 << 30)
            most = number_of(request, "most", 100, 1, MOST_ROWS)
            falling, word = asked.get("falling") == "1", asked.get("word", "")[:200]
            found = self._tables.page(path, sort if sort >= 0 else None, falling, start, most, word)
            return json_answer(request, found)

        def work() -> bytes:
            return msgspec.json.encode(mark_non_finite(listed(self._reading.run(place))))

        return json_answer(request, self._kept.get(("media", place.key), self._reading.state(place), work))

    def _file(self, place: RunPlace, name: str) -> Path:
        """A file of the run, or of one that it was forked from."""
        with contextlib.suppress(KeyError):
            return path_of(place.dir, self._places.root, name)
        run = self._reading.run(place)
        while (origin := run.origin) is not None:
            run = origin[0]
            with contextlib.suppress(KeyError):
                return path_of(run.dir, self._places.root, name)
        return path_of(place.dir, self._places.root, name)
