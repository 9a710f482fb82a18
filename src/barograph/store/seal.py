"""Sealing: closed live files become Parquet sorted by series, small sealed files become bigger ones.

In:   a writer's folder. From a shell: `python -m barograph.store.seal FOLDER [--closed]`.
Out:  sealed files; what they cover is deleted after they are safely on the disk.

Killed at any point, nothing is lost and nothing doubled: a new file is written under a temporary
name, synced, renamed, and only then the files it hides are removed (see `schema`). The sealer
never touches the file a live writer has open, and gives way to another sealer at work.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from barograph.store.live import Block, LiveFile, Replaced
from barograph.store.packing import NamesTooLong, PartWriter
from barograph.store.part import DamagedPart, GroupCache, Part
from barograph.store.schema import (
    DAMAGED_SUFFIX,
    SEALING_LOCK,
    TABLES,
    TEMPORARY_PREFIX,
    WRITING_LOCK,
    StoreFile,
    hidden,
    merge_spans,
    parse_names,
    sealed_name,
    sync_folder,
    visible,
)
from barograph.store.sort import Slice, merge_windows, sorted_windows

GROUP_BYTES = 20 << 20  # small live files are sealed together up to this many bytes
MERGE_PARTS = 8  # as many neighbours become one; fewer would rewrite too often
MERGE_ROWS = 100_000_000  # no sealed file grows beyond this


def seal(folder: str | Path, *, closed: bool = False, wait: bool = False) -> list[str] | None:
    """Seal what can be sealed in a writer's folder, then merge. Returns the names of the new files.

    `closed`: the writer is said to be gone, so its last file is sealed too where the writer's lock can't tell;
    where it can, the lock has the word. Another sealer at work: nothing is done, or with `wait` when it has ended.
    A file system without locks: nothing is done. None if nothing was done.
    Raises OSError if the disk does not let it; nothing is lost then.
    """
    folder = Path(folder)
    with _sealing(folder, wait) as mine:
        if not mine:
            return None
        _clean(folder)
        made = []
        for files in _closed_runs(folder, closed):
            with contextlib.suppress(NamesTooLong):  # stays as it is: readable, only bigger
                made += _seal_files(folder, files)
        for table in TABLES:
            with contextlib.suppress(NamesTooLong):
                while name := _merge(folder, table):
                    made.append(name)
        return [name for name in made if (folder / name).exists()]


@contextlib.contextmanager
def _sealing(folder: Path, wait: bool) -> Iterator[bool]:
    """Whether this process is the folder's only sealer."""
    lock = os.open(folder / SEALING_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)


def _clean(folder: Path) -> None:
    """Remove what an earlier sealer left when it was killed. The lock says that none is at work."""
    names = os.listdir(folder)
    for name in names:
        if name.startswith(TEMPORARY_PREFIX):
            os.remove(folder / name)
    files = _readable(folder, parse_names(names))
    for file in hidden(files):
        os.remove(folder / file.name)


def _readable(folder: Path, files: list[StoreFile]) -> list[StoreFile]:
    """The files without damaged sealed ones: those must hide nothing."""
    if not any(file.table != "live" for file in files):
        return files
    cache = GroupCache(0)
    kept = []
    for file in files:
        if file.table != "live":
            try:
                Part(folder / file.name, cache).close()
            except DamagedPart:
                continue
        kept.append(file)
    return kept


# -- live files to sealed ones ------------------------------------------------------------------


def _closed_runs(folder: Path, closed: bool) -> Iterator[list[StoreFile]]:
    """Live files to seal together: neighbours by number, none that a writer may have open."""
    files = parse_names(os.listdir(folder))  # before the lock is looked at: a new writer's files are not in it
    live = [file for file in files if file.table == "live"]
    if live and _writer_lives(folder, unknown=not closed):
        live.pop()
    barriers = [file.first for file in files if file.table != "live"]
    run: list[StoreFile] = []
    size = 0
    for file in live:
        bytes_of = os.stat(folder / file.name).st_size
        apart = run and any(run[-1].last < number < file.first for number in barriers)
        if run and (apart or size + bytes_of > GROUP_BYTES):
            yield run
            run, size = [], 0
        run.append(file)
        size += bytes_of
    if run:
        yield run


def _writer_lives(folder: Path, unknown: bool) -> bool:
    """By its lock; `unknown` on a file system that can't tell."""
    try:
        lock = os.open(folder / WRITING_LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return unknown
    finally:
        os.close(lock)
    return False


def _seal_files(folder: Path, files: list[StoreFile]) -> list[str]:
    """Seal a run of live files. A file that is none of ours stays and ends the run it stands in."""
    blocks: list[Block] = []
    spans: list[tuple[int, int]] = []
    taken: list[StoreFile] = []
    damaged: list[StoreFile] = []
    made: list[str] = []
    for file in files:
        live = LiveFile(folder / file.name, settled=True)
        try:
            new = live.read_new()
        except (FileNotFoundError, Replaced):  # the folder was deleted, or made again
            return made
        if live.foreign:
            made += _write_sealed(folder, taken, blocks, spans, damaged)
            blocks, spans, taken, damaged = [], [], [], []
            continue
        blocks += new
        spans += live.log_spans
        taken.append(file)
        if live.problem:
            damaged.append(file)
    return made + _write_sealed(folder, taken, blocks, spans, damaged)


def _write_sealed(
    folder: Path,
    files: list[StoreFile],
    blocks: list[Block],
    spans: list[tuple[int, int]],
    damaged: list[StoreFile],
) -> list[str]:
    if not files:
        return []
    made = []
    for table in TABLES if blocks or spans else ():
        series, rows, windows = sorted_windows(blocks, table)
        if table == "histograms" and not rows:
            continue
        name = sealed_name(files[0].first, files[-1].last, table)
        _write_part(folder, name, table, series, rows, windows, spans if table == "points" else [])
        made.append(name)
    for file in files:
        if file in damaged:  # kept aside for whoever wants to look at the bytes that could not be read
            os.rename(folder / file.name, folder / (file.name + DAMAGED_SUFFIX))
        else:
            os.remove(folder / file.name)
    return made


def _write_part(
    folder: Path,
    name: str,
    table: str,
    series: int,
    rows: int,
    windows: Iterator[Slice],
    spans: list[tuple[int, int]],
) -> None:
    """Write a sealed file and have it on the disk under its name."""
    temporary = folder / f"{TEMPORARY_PREFIX}{os.getpid()}-{name}"
    writer = PartWriter(temporary, table, rows, series)
    origin: dict[str, set[int]] = {"segment": set(), "rank": set()}
    try:
        for window in windows:
            writer.add(window.names, window.counts, window.rows)
            for column, found in origin.items():
                if len(found) < 2:
                    found.update(window.rows.column(column).unique().to_pylist())
        # a column of one value is said here, so that readers need not decode it
        only = {column: found.pop() if len(found) == 1 else None for column, found in origin.items()}
        writer.close({"log": merge_spans(spans), **only})
    except Exception:
        writer.abort()
        raise
    if writer.rows != rows:
        temporary.unlink()
        raise OSError(f"sealing {name} went wrong: {writer.rows} rows instead of {rows}; nothing was removed")
    os.rename(temporary, folder / name)
    sync_folder(folder)


# -- sealed files to bigger ones ----------------------------------------------------------------


def _merge(folder: Path, table: str) -> str | None:
    """Merge one group of neighbouring sealed files. None if there is nothing worth merging."""
    files = parse_names(os.listdir(folder))
    cache = GroupCache(8 << 20)
    parts: dict[StoreFile, Part] = {}
    try:
        candidates = visible(files, table)
        for file in candidates:
            if file.table == table:
                with contextlib.suppress(DamagedPart):
                    parts[file] = Part(folder / file.name, cache)
        group = choose([(file, parts[file].rows if file in parts else -1) for file in candidates])
        if not group:
            return None
        chosen = [parts[file] for file in group]
        series, rows, windows = merge_windows(chosen, table)
        if windows is None:
            return None
        spans = [span for part in chosen for span in part.log_spans]
        name = sealed_name(group[0].first, group[-1].last, table)
        _write_part(folder, name, table, series, rows, windows, spans)
    finally:
        for part in parts.values():
            part.close()
    for file in group:
        os.remove(folder / file.name)
    return name


def choose(files: list[tuple[StoreFile, int]]) -> list[StoreFile]:
    """Which neighbours to merge, out of (file, rows) by number; rows < 0 marks a file to keep apart.

    At least MERGE_PARTS neighbours of which none holds more than half of the rows: each row is then
    rewritten only when its file at least doubles. The longest such group of at most MERGE_ROWS.
    """
    best: list[StoreFile] = []
    for start in range(len(files)):
        total = largest = 0
        for stop in range(start, len(files)):
            rows = files[stop][1]
            if rows < 0 or total + rows > MERGE_ROWS:
                break
            total, largest = total + rows, max(largest, rows)
            length = stop - start + 1
            if length >= MERGE_PARTS and length > len(best) and 2 * largest <= total:
                best = [file for file, _ in files[start : stop + 1]]
    return best


def main(arguments: list[str] | None = None) -> int:
    """Seal a folder at low priority on one thread."""
    parser = argparse.ArgumentParser(prog="python -m barograph.store.seal", description="Seal a writer's folder.")
    parser.add_argument("folder", type=Path, help="a folder store/<writer> of a run")
    parser.add_argument("--closed", action="store_true", help="the writer is gone: seal its last file too")
    options = parser.parse_args(arguments)
    with contextlib.suppress(OSError):
        os.nice(19)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    try:
        # the last sealing of a run comes while the one before may be at work, and nobody comes after it
        seal(options.folder, closed=options.closed, wait=options.closed)
    except FileNotFoundError:
        print(f"{options.folder} is not there any more; nothing was sealed", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"could not seal {options.folder}: {error}; its files stay as they are", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
