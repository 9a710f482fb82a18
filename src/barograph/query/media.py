"""Images, sound, tables and other files of a run: what its log says that there is, and the files.

In:   a run's log files; a name, a type, a step.
Out:  `MediaItem`s in the order of steps, those that a resume or rewind superseded left out unless they are asked for.

Live are those of the live branch, of every rank unless one is asked for: images of two ranks are two images. A file
counts as there when it is as long as its record says.
"""

from __future__ import annotations

import builtins
import fnmatch
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from barograph.core import media
from barograph.core.names import folder_name
from barograph.core.record import Record, json_text, restore_non_finite
from barograph.log.files import Owner
from barograph.log.read import records_of

if TYPE_CHECKING:
    from barograph.store.branch import Branch

_FIELDS = ("name", "type", "path", "bytes", "caption", "segment")


@dataclass(frozen=True)
class MediaItem:
    """One image, sound, table or other file. time: seconds since 1970; path: its file; bytes: of that.

    fields: what else the record has, such as `shape`, `rate`, `seconds`, `index`.
    """

    name: str
    type: str
    step: int
    time: float
    path: Path
    bytes: int
    caption: str = ""
    segment: int = 1
    rank: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_there(self) -> bool:
        """Whether the file is there, and whole."""
        try:
            return self.path.stat().st_size == self.bytes
        except OSError:
            return False

    def read(self) -> builtins.bytes:
        """The file's bytes. Raises OSError."""
        return self.path.read_bytes()

    def table(self) -> dict[str, list[Any]]:
        """The columns of a table, by name. Raises OSError, and ValueError for what is not a table."""
        found = json.loads(self.read())
        if self.type != media.TABLE or not isinstance(found, dict):
            raise ValueError(f"{self.name} at step {self.step} is not a table, but of type {self.type}")
        rows = restore_non_finite(found)["data"]
        names: list[str] = []
        for name in found["columns"]:  # a frame may have a name twice
            names.append(name if name not in names else f"{name} ({len(names)})")
        return {name: [row[at] for row in rows] for at, name in enumerate(names)}

    def as_dict(self) -> dict[str, Any]:
        """Plain data, with the path in the run's folder."""
        said: dict[str, Any] = {"name": self.name, "type": self.type, "step": self.step, "time": self.time}
        said |= {"file": self.path.name, "bytes": self.bytes, "caption": self.caption}
        said |= {"segment": self.segment, "rank": self.rank}
        return said | dict(self.fields)


def items(
    folder: Path, logs: Iterable[Path], is_ours: Owner, may_open: Callable[[Path], bool] = lambda path: True
) -> Iterator[MediaItem]:
    """Every file that the logs name, in the order of the logs."""
    for log in logs:
        segment, rank, foreign = 1, 0, False
        for record, _ in records_of(log, ("media", "segment")):
            if record.kind == "segment":
                foreign = not is_ours(record.fields.get("run"))
                segment = _whole(record.fields.get("segment"), segment)
                rank = _whole(record.fields.get("rank"), rank)
            elif not foreign and (found := _item(record, folder, segment, rank)) is not None and may_open(found.path):
                yield found


def _item(record: Record, folder: Path, segment: int, rank: int) -> MediaItem | None:
    """The file that a record names; None where that is not one that a run writes."""
    fields = record.fields
    path, kind = fields.get("path"), fields.get("type")
    if not media.is_path(path) or kind not in media.TYPES:
        return None
    caption = fields.get("caption")
    return MediaItem(
        str(fields.get("name", "")),
        str(kind),
        record.step,
        record.time / 1e6,
        folder / str(path),
        _whole(fields.get("bytes"), 0),
        caption if isinstance(caption, str) else "",
        _whole(fields.get("segment"), segment),
        rank,
        {name: value for name, value in fields.items() if name not in _FIELDS},
    )


def _whole(value: Any, default: int) -> int:
    return value if type(value) is int else default


def on_branch(found: Iterable[MediaItem], branch: Branch) -> Iterator[MediaItem]:
    """Those that no resume, rewind or fork has superseded."""
    for item in found:
        cut = branch.cuts.get(item.segment)
        if branch.whole or (item.segment in branch.cuts and (cut is None or item.step < cut)):
            yield item


def chosen(
    found: Iterable[MediaItem], name: str | None, type: str | None, step: int | None, rank: int | Literal["all"] | None
) -> list[MediaItem]:
    """Those that are asked for, by step. name: exactly, or a shell pattern such as `eval/*`."""
    kept = [
        item
        for item in found
        if (name is None or item.name == name or fnmatch.fnmatchcase(item.name, name))
        and (type is None or item.type == type)
        and (step is None or item.step == step)
        and (rank in (None, "all") or item.rank == rank)
    ]
    return sorted(kept, key=lambda item: (item.step, item.time))


def media_of(
    run: Any,
    name: str | None = None,
    *,
    type: str | None = None,
    step: int | None = None,
    branch: str = "live",
    rank: int | Literal["all"] | None = None,
) -> list[MediaItem]:
    """The images, sounds, tables and other files of a stored run, by step: all, or those of a name (or a pattern such
    as `eval/*`), a type ("image", "audio", "table", "video", "file"), a step, a rank.

    branch: "live", or "all" to see what a resume or rewind superseded too.
    """
    files = run._files
    found = items(run.dir, run.log_files(), Owner(run.dir, files.log is not None), files.may_open)
    held = list(found if branch == "all" else on_branch(found, run.branch()))
    if (origin := run.origin) is not None:
        held += [item for item in media_of(origin[0]) if item.step < origin[1]]
    return chosen(held, name, type, step, rank)


def extract(found: Iterable[MediaItem], out: Path) -> int:
    """Copy the files into a folder, named by what they show, with `media.json` that lists them; returns how many.

    Raises OSError."""
    out.mkdir(parents=True, exist_ok=True)
    taken: set[str] = set()
    listed = []
    for item in found:
        if not item.is_there:
            continue
        suffix = media.TABLE_SUFFIX if item.type == media.TABLE else item.path.suffix
        stem = f"{folder_name(item.name.replace('/', '_'))}_{item.step}"
        name, count = f"{stem}{suffix}", 1
        while name in taken:  # several of a name in a step
            count += 1
            name = f"{stem}_{count}{suffix}"
        taken.add(name)
        shutil.copyfile(item.path, out / name)
        listed.append(item.as_dict() | {"file": name})
    (out / "media.json").write_text(json_text(listed) + "\n", encoding="utf-8")
    return len(taken)


def remove_unnamed(folder: Path, logs: Iterable[Path]) -> int:
    """Remove media files of a run that has ended which no record names: a process was killed between a file and its
    record, or while it wrote. Returns how many."""
    home = folder / media.FOLDER
    if not home.is_dir():
        return 0
    named: set[str] = set()
    tables = []
    for log in logs:
        for record, _ in records_of(log, ("media",)):
            named.add(str(record.fields.get("path")))
            if record.fields.get("type") == media.TABLE and media.is_path(record.fields.get("path")):
                tables.append(folder / record.fields["path"])
    for table in tables:
        named |= set(_in_table(table))
    removed = 0
    for path in home.iterdir():
        if path.is_file() and not path.is_symlink() and f"{media.FOLDER}/{path.name}" not in named:
            shown = path.name[1:].rpartition(".")[0] if path.name.startswith(".") else path.name
            if media.is_path(f"{media.FOLDER}/{shown}"):  # one of ours; others keep theirs
                path.unlink(missing_ok=True)
                removed += 1
    return removed


def _in_table(table: Path) -> Iterator[str]:
    """The images in a table's cells."""
    try:
        held = json.loads(table.read_bytes())
    except (OSError, ValueError):
        return
    for row in held.get("data", ()) if isinstance(held, dict) else ():
        for cell in row if isinstance(row, list) else ():
            if isinstance(cell, dict) and media.is_path(cell.get("media")):
                yield str(cell["media"])
