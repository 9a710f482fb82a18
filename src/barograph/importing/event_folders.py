"""How folders of event files become runs.

In:   a folder.
Out:  the runs in it, and for each run its files in the order of their making, with the name each tag gets.

A folder with event files is a run. Three kinds of folders below it are parts of that run and no runs of their
own: a split (`train`, `validation`, …: its name leads the tag), one of `add_scalars` (`loss_train` with the tag
`loss`: becomes `loss/train`), and one whose name is a time (the hyper-parameters that torch and HF put aside).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from barograph.importing.event_values import read_event
from barograph.importing.protobuf import Malformed
from barograph.importing.tfrecord import RecordBlock, read_blocks

SPLITS = frozenset({"train", "training", "validation", "val", "valid", "eval", "evaluation", "test"})
_MOMENT = re.compile(r"\d{9,10}(\.\d+)?")
_MADE = re.compile(r"tfevents\.(\d+)")
_MOST_FOLDERS = 100_000
PEEK = 256 << 10  # bytes of a file that are looked at to see what it is


class EventPart(NamedTuple):
    """A file of a run: `role` is "", "split" or "scalars", and `folder` the part's name below the run's folder."""

    file: Path
    folder: str
    role: str
    made: int

    @property
    def key(self) -> str:
        """What the file is called in a mark."""
        return f"{self.folder}/{self.file.name}" if self.folder else self.file.name

    def name(self, tag: str) -> str:
        """A tag's name in the run."""
        if self.role == "split":
            return tag if tag.startswith(f"{self.folder}/") else f"{self.folder}/{tag}"
        if self.role == "scalars" and self.folder.startswith(flat := tag.replace("/", "_") + "_"):
            return f"{tag}/{self.folder[len(flat) :]}"
        return tag


def event_files(folder: Path) -> list[Path]:
    """The event files directly in a folder, by name."""
    try:
        with os.scandir(folder) as entries:
            return sorted(folder / entry.name for entry in entries if "tfevents" in entry.name and entry.is_file())
    except OSError:
        return []


def subfolders(folder: Path) -> list[Path]:
    """The folders directly in a folder, by name; links are not followed."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [folder / name for name in sorted(names) if not name.startswith(".")]


def _role(folder: Path, files: list[Path], alone: bool) -> str | None:
    """What a folder of event files below a run's is to it; None for a run of its own."""
    name = folder.name
    if name.lower() in SPLITS:
        return "split"
    if alone:
        return None
    if _MOMENT.fullmatch(name):
        return ""
    for file in files[:1]:
        tag = _first_tag(file)
        if tag and name.startswith(tag.replace("/", "_") + "_"):
            return "scalars"
    return None


def _first_tag(file: Path) -> str:
    """The tag of a file's first value."""
    try:
        for item in read_blocks(file, chunk=PEEK):
            if not isinstance(item, RecordBlock):
                break
            for start, length in zip(item.starts[:20].tolist(), item.lengths[:20].tolist(), strict=True):
                for value in read_event(item.data, start, start + length).values:
                    return value.tag
            break
    except (OSError, Malformed):
        pass
    return ""


def run_parts(folder: Path) -> tuple[list[EventPart], list[Path]]:
    """A run's files in the order of their making, none if the folder is not a run; and the folders that are not
    parts."""
    own = event_files(folder)
    parts = [_part(file, "", "") for file in own]
    others = []
    below = [(each, event_files(each)) for each in subfolders(folder)]
    # without files of its own a folder is a run only if all that is in it are splits: train, validation
    splits = all(each.name.lower() in SPLITS for each, files in below if files)
    for each, files in below:
        role = _role(each, files, not own) if files and (own or splits) else None
        if role is None:
            others.append(each)
        else:
            parts += [_part(file, each.name, role) for file in files]
    return sorted(parts, key=lambda part: (part.made, part.folder, part.file.name)), others


def single_part(file: Path) -> EventPart:
    """One file by itself; its folder's name leads the tags where it is a part of a run."""
    folder = file.absolute().parent
    role = _role(folder, [file], alone=False)
    return _part(file, folder.name if role else "", role or "")


def _part(file: Path, folder: str, role: str) -> EventPart:
    match = _MADE.search(file.name)
    return EventPart(file, folder, role, int(match[1]) if match and len(match[1]) < 19 else 0)


def runs_below(folder: Path) -> Iterator[tuple[Path, list[EventPart]]]:
    """Every run in a folder: its own folder and its files."""
    waiting, seen = [folder], 0
    while waiting and seen < _MOST_FOLDERS:
        here = waiting.pop()
        seen += 1
        parts, others = run_parts(here)
        if parts:
            yield here, parts
        waiting += reversed(others)
