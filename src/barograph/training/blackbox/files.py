"""Black boxes on disk: written whole or not at all, read whole or with a sentence that says what is wrong.

In:   what a box holds; a run's folder.
Out:  `blackbox/{step}-{reason}/`: `box.json`, `records.json`, `wide.npz` with `wide.json`, `rng.json`; and again as
      `Box`.

A box is written beside its place and moved there in one step. What a killed process has left is taken away by the
next one that writes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from barograph.core import place
from barograph.core.record import Record, decode, encode_fields, restore_non_finite
from barograph.training.blackbox.ring import Held, PackedRow

FOLDER = "blackbox"
VERSION = 1
_number = itertools.count()
_STRAY = re.compile(r"\.box-(?P<host>.+)-(?P<pid>\d+)-\d+")


class BoxTable(NamedTuple):
    """Rows of the same names: `steps` and `times` [rows], `values` [rows, names]."""

    names: tuple[str, ...]
    steps: Any
    times: Any
    values: Any


class Box(NamedTuple):
    """A black box that was read. `damage`: "" or one sentence; then what is missing is empty."""

    path: Path
    about: dict[str, Any]
    records: list[Record]
    tables: list[BoxTable]
    damage: str = ""

    @property
    def step(self) -> int:
        """The step at which it was written."""
        step = self.about.get("step", 0)
        return step if isinstance(step, int) else 0

    @property
    def reason(self) -> str:
        """Why it was written."""
        return str(self.about.get("reason", ""))

    def random_states(self) -> dict[str, Any]:
        """The full states of the generators; {} where there are none."""
        try:
            found = json.loads((self.path / "rng.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


# -- writing -------------------------------------------------------------------------------------------------


def write(
    run_folder: Path, name: str, about: dict[str, Any], held: Held, states: Mapping[str, Any], deadline: float
) -> Path:
    """Write a box and return its folder. Raises OSError, and then leaves nothing that could be taken for one.

    deadline: by `time.monotonic`; what has not been written by then is left out, and `about` says so.
    """
    parent = run_folder / FOLDER
    parent.mkdir(exist_ok=True)
    take_away_strays(parent)
    folder = parent / f".box-{place.host()}-{os.getpid()}-{next(_number)}"
    folder.mkdir()
    try:
        missing: list[str] = []
        count = _write_records(folder / "records.json", held)
        tables = 0
        if time.monotonic() < deadline:
            try:
                tables = _write_tables(folder, held)
            except (OSError, MemoryError, ValueError, ImportError) as error:
                missing.append(f"the tables by layer: {type(error).__name__}: {error}")
        elif any(detail.rows for detail in held.details):
            missing.append("the tables by layer: there was no time left")
        (folder / "rng.json").write_bytes(encode_fields(states))
        about = about | {"records": count, "tables": tables, "missing": missing}
        (folder / "box.json").write_bytes(encode_fields(about) + b"\n")
        return _move(folder, parent / name)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _write_records(path: Path, held: Held) -> int:
    """A JSON array, a record a line, the oldest step first."""
    count = 0
    with open(path, "wb") as file:
        file.write(b"[")
        for data in held.records():
            file.write((b",\n" if count else b"\n") + data)
            count += 1
        file.write(b"\n]\n")
    return count


def _write_tables(folder: Path, held: Held) -> int:
    """Rows of the same names as one matrix; the names beside it."""
    groups: dict[int, list[tuple[int, PackedRow]]] = {}
    for detail in held.details:
        for row in detail.rows:
            groups.setdefault(id(row.names), []).append((detail.step, row))
    if not groups:
        return 0
    import numpy

    arrays: dict[str, Any] = {}
    names = []
    for number, rows in enumerate(groups.values()):
        columns = rows[0][1].names
        names.append(list(columns))
        arrays[f"steps_{number}"] = numpy.array([step for step, _ in rows], numpy.int64)
        arrays[f"times_{number}"] = numpy.array([row.time for _, row in rows], numpy.int64)
        values = numpy.frombuffer(b"".join([row.packed for _, row in rows]), "<f8")
        arrays[f"values_{number}"] = values.reshape(len(rows), len(columns))
    numpy.savez(folder / "wide.npz", **arrays)
    (folder / "wide.json").write_bytes(encode_fields({"names": names}))
    return len(groups)


def _move(folder: Path, wanted: Path) -> Path:
    for number in range(1, 1000):
        target = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            if not target.exists():
                os.rename(folder, target)
                return target
        except OSError:
            if not target.exists():
                raise
    raise OSError(17, f"there are a thousand boxes named {wanted.name}")


def take_away_strays(parent: Path) -> None:
    """Remove what processes of this machine that are gone have not finished."""
    with contextlib.suppress(OSError):
        for entry in list(parent.iterdir()):
            match = _STRAY.fullmatch(entry.name)
            if match and match["host"] == place.host() and not _lives(int(match["pid"])):
                shutil.rmtree(entry, ignore_errors=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def keep(run_folder: Path, most: int, rank: int) -> None:
    """Remove a rank's boxes beyond `most`: the first one stays, where it began, and the newest ones."""
    with contextlib.suppress(OSError):
        boxes = [
            entry
            for entry in (run_folder / FOLDER).iterdir()
            if not entry.name.startswith(".") and _rank_of(entry.name) == rank
        ]
        boxes.sort(key=lambda entry: (entry.stat().st_mtime_ns, entry.name))
        for entry in boxes[1 : max(1, len(boxes) - most + 1)] if most > 1 else boxes[:-1]:
            shutil.rmtree(entry, ignore_errors=True)


def _rank_of(name: str) -> int:
    match = re.search(r"-rank(\d+)(-\d+)?$", name)
    return int(match[1]) if match else 0


# -- reading -------------------------------------------------------------------------------------------------


def read_blackbox(run_folder: str | os.PathLike[str]) -> list[Box]:
    """The black boxes of the run in a folder, oldest first; [] where there are none. Never raises: a damaged one
    says so in its `damage`."""
    found = []
    with contextlib.suppress(OSError):
        for entry in (Path(run_folder) / FOLDER).iterdir():
            if not entry.name.startswith(".") and entry.is_dir():
                found.append(_read(entry))
    return sorted(found, key=lambda box: (str(box.about.get("time", "")), box.step, box.path.name))


def _read(path: Path) -> Box:
    try:
        about = restore_non_finite(_object(path / "box.json"))
        written = json.loads((path / "records.json").read_bytes())
        if not isinstance(written, list) or not all(isinstance(item, dict) for item in written):
            raise ValueError("records.json is not a list of records")
        records = [decode(item) for item in written]
        tables = _read_tables(path) if about.get("tables") else []
    except FileNotFoundError as error:
        return Box(path, {}, [], [], f"the black box {path.name} is incomplete: {Path(error.filename).name} is missing")
    except Exception as error:  # a damaged archive may raise anything
        said = (str(error).splitlines() or [""])[0][:200]
        return Box(path, {}, [], [], f"the black box {path.name} is damaged: {said or type(error).__name__}")
    return Box(path, about, records, tables)


def _object(path: Path) -> dict[str, Any]:
    result = json.loads(path.read_bytes())
    if not isinstance(result, dict):
        raise ValueError(f"{path.name} is not an object")
    return result


def _read_tables(path: Path) -> list[BoxTable]:
    import numpy

    names = _object(path / "wide.json")["names"]
    result = []
    with numpy.load(path / "wide.npz", allow_pickle=False) as arrays:
        for number, columns in enumerate(names):
            steps, times, values = (arrays[f"{part}_{number}"] for part in ("steps", "times", "values"))
            if values.shape != (len(steps), len(columns)) or times.shape != steps.shape:
                raise ValueError("wide.npz does not fit its names")
            result.append(BoxTable(tuple(map(str, columns)), steps, times, values))
    return result
