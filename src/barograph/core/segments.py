"""Segments: the stretches of a run between starts, resumes, rewinds and forks.

In:   a run's folder.
Out:  `segments/0001.json`, …, and which steps of which segment are the run's live branch.

A segment has a parent and a start step. What the parent logged at that step or later is superseded
by the segment; it stays in the store as the old branch.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

FOLDER = "segments"


class Segment(NamedTuple):
    """`start_step` None: not known beforehand; the first step that the segment logs counts."""

    number: int
    parent: int | None = None
    start_step: int | None = None
    kind: str = "start"  # start, resume, rewind, fork
    time: int = 0
    launch: str | None = None  # shared by the ranks of one launch
    source: str | None = None  # fork: the folder of the run it came from

    def fields(self) -> dict[str, Any]:
        """As the fields of a record or file."""
        fields = {"segment": self.number} | self._asdict()
        del fields["number"], fields["time"]
        return {name: value for name, value in fields.items() if value is not None}


def is_run(folder: Path) -> bool:
    """Whether a folder is a run's."""
    return os.path.isdir(f"{folder}/{FOLDER}") or os.path.isfile(f"{folder}/training.json")


def read(folder: Path) -> list[Segment]:
    """A run's segments in order; damaged entries are left out."""
    found = []
    place = os.path.join(folder, FOLDER)  # no Path for each file: a server reads those of thousands of runs
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(place)):
            if not name[0].isdecimal() or not name.endswith(".json"):
                continue
            with contextlib.suppress(OSError, msgspec.DecodeError, KeyError, TypeError, ValueError):
                with open(f"{place}/{name}", "rb", buffering=0) as file:
                    item = msgspec.json.decode(file.read())
                found.append(
                    Segment(
                        number=int(item["segment"]),
                        parent=item.get("parent"),
                        start_step=item.get("start_step"),
                        kind=str(item.get("kind", "start")),
                        time=int(item.get("time", 0)),
                        launch=item.get("launch"),
                        source=item.get("source"),
                    )
                )
    return sorted(found)


def begin(
    folder: Path,
    *,
    kind: str | None = None,
    start_step: int | None = None,
    parent: int | None = None,
    launch: str | None = None,
    source: str | None = None,
) -> Segment:
    """Start a segment, or join the one that another rank of the same launch has started.

    The first segment of a run is a "start", later ones continue the last one unless `parent` is given.
    launch: as `place.launch_id` has it; with a blank and more behind it, of one occasion within a launch.
    """
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    while True:
        existing = read(folder)
        last = existing[-1] if existing else None
        if last is not None and launch is not None and last.launch == launch:
            return last
        if launch is not None and " " in launch:  # of that name there is one: another rank may be further since
            met = next((item for item in existing if item.launch == launch), None)
            if met is not None:
                return met
        segment = Segment(
            number=last.number + 1 if last else 1,
            parent=parent if parent is not None else (last.number if last else None),
            start_step=start_step,
            kind=kind or ("resume" if last else "start"),
            time=time.time_ns() // 1000,
            launch=launch,
            source=source,
        )
        if _create(folder / FOLDER / f"{segment.number:04d}.json", segment):
            return segment


def join(folder: Path) -> Segment:
    """The segment that is going on, for another process of the same run."""
    existing = read(folder)
    return existing[-1] if existing else begin(folder)


def settle(folder: Path, number: int, step: int) -> None:
    """Note the first step that a segment logged, if it began without one. Raises OSError."""
    for segment in read(folder):
        if segment.number == number and segment.start_step is None and segment.parent is not None:
            path = folder / FOLDER / f"{number:04d}.json"
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            made = segment._replace(start_step=step)
            temporary.write_bytes(msgspec.json.encode(made.fields() | {"time": made.time}) + b"\n")
            os.replace(temporary, path)


def _create(path: Path, segment: Segment) -> bool:
    """Write the file whole or not at all; False if another process was first."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(msgspec.json.encode(segment.fields() | {"time": segment.time}) + b"\n")
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        if path.exists():
            return False
        os.rename(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return True


def live_cuts(segments: list[Segment], first_steps: dict[int, int]) -> dict[int, int | None]:
    """The live branch: segment → the step before which its points count (None: all of them).

    `first_steps` gives the first step that each segment logged, for those that began without one.
    """
    if not segments:
        return {}
    by_number = {segment.number: segment for segment in segments}
    cuts: dict[int, int | None] = {}
    current: Segment | None = segments[-1]
    cut: int | None = None
    while current is not None and current.number not in cuts:
        cuts[current.number] = cut
        start = current.start_step if current.start_step is not None else first_steps.get(current.number)
        if start is not None:
            cut = start if cut is None else min(cut, start)
        current = by_number.get(current.parent) if current.parent is not None else None
    return cuts


class FurthestStep:
    """The furthest step of the live branch, by the records of rank 0 in the order written; None before the first."""

    def __init__(self) -> None:
        self.step: int | None = None
        self._cut = False  # the next step begins a branch, wherever that is

    def begin(self, parent: object, start_step: object) -> None:
        """A segment begins, so that steps from its start on are superseded."""
        self._cut = type(start_step) is not int and parent is not None
        if type(start_step) is int and self.step is not None and self.step >= start_step:
            self.step = start_step - 1 if start_step > 0 else None

    def reach(self, step: int) -> None:
        """Something was logged at a step; an evaluation may come late."""
        self.step = step if self._cut or self.step is None else max(self.step, step)
        self._cut = False
