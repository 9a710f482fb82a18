"""Sealing: what is in a run's logs and block files alone becomes Parquet, sorted by series.

In:   a run's folder. From a shell: `python -m barograph.store.seal RUN [--final]`.
Out:  sealed parts; block files that are sealed whole and that their writer has left are deleted.

A part says which bytes of its log and of which block files it holds, so that sealing knows from the parts alone what is
left to do. Killed at any point, nothing is lost and nothing doubled: a part is written under a temporary name, synced,
renamed, and only then is deleted what it took the place of. One sealer works at a time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from barograph.core import locks
from barograph.core.lazy import lazy
from barograph.log.blocks import SEALED_SUFFIX, BlockReader, pieces, sealed_ends, sealed_number
from barograph.log.files import MAIN
from barograph.log.spool import best_copy
from barograph.store.columns import Block
from barograph.store.logs import RunLog
from barograph.store.merge import clean, merge_all
from barograph.store.packing import NamesTooLong
from barograph.store.part import DamagedPart, GroupCache, Part
from barograph.store.run import RunStore
from barograph.store.schema import DAMAGED_SUFFIX, SEALING_LOCK, parse_names, sync_folder
from barograph.store.tail import BlockStretch, LogStretch, Mark, Stretch, first_steps, gaps
from barograph.store.write import write_blocks

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy("pyarrow")

SEAL_BYTES = 8 << 20  # of a log, or of its block files, that are worth a part while the run goes on
_LEAST_BYTES = 1 << 16  # without a number in them, fewer are left to readers


def seal(folder: str | Path, *, final: bool = False, wait: bool = False) -> list[Path]:
    """Seal what is worth it, or with `final` everything, and merge. Returns the new parts.

    Another sealer at work: nothing is done, or with `wait` when it has ended. Raises OSError if the disk does not let
    it; nothing is lost then. Of a log that is being written it takes what is there when its turn comes, and not what
    the writer adds meanwhile.
    """
    folder = Path(folder)
    written: list[Path] = []
    with _alone(folder / "store", wait) as alone:
        if not alone:
            return []
        store = RunStore(folder)
        logs = store.find_logs()
        for log in logs:
            log.list_parts()
            for home in log.store:
                clean(home.path)
            if final:
                _set_damaged_aside(folder, log)
            log.list_parts()
        main = next((log for log in logs if log.path.name == MAIN), None)
        for log in logs:
            written += _Sealer(store, log, main).seal(final)
            _delete_sealed_blocks(folder, log)
            for home in log.store:
                written += merge_all(home.path)
    return [path for path in written if path.exists()]


@contextlib.contextmanager
def _alone(store: Path, wait: bool) -> Iterator[bool]:
    """Whether this process is the run's only sealer."""
    store.mkdir(exist_ok=True)
    lock = os.open(store / SEALING_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    stand_in = -1
    try:
        try:
            stand_in = locks.take(lock, wait=wait)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)
        if stand_in >= 0:
            os.close(stand_in)


class _Sealer:
    """Seals one log with its block files. main: the main log, which says what segment a sidecar's record belongs to."""

    def __init__(self, store: RunStore, log: RunLog, main: RunLog | None):
        self._store, self._log = store, log
        self._home = store.folder / "store" / log.stem
        self._segment_at = _segments_of(main, store) if log.is_sidecar and main is not None else None

    def seal(self, final: bool) -> list[Path]:
        written: list[Path] = []
        log = self._log
        files = (best_copy(log.path), *(path for _, path in pieces(self._store.folder, log.stem)))
        sizes = {path.name: _size(path) for path in files}  # a writer may be as quick as this
        while True:
            log.marks = log.sealed_marks(self._store.is_ours)
            stretches = list(self._read(sizes))
            log_bytes, block_bytes = (
                sum(stretch.end - stretch.start for stretch in stretches if isinstance(stretch, kind))
                for kind in (LogStretch, BlockStretch)
            )
            if not stretches or not (final or max(log_bytes, block_bytes) >= SEAL_BYTES):
                break
            if not block_bytes and log_bytes < _LEAST_BYTES and not any(stretch.rows for stretch in stretches):
                break
            self._home.mkdir(exist_ok=True)
            try:
                written += write_blocks(self._home, self._blocks(stretches), self._header(stretches))
            except NamesTooLong:  # stays as it is: readable, only slower
                break
            self._store.find_logs()  # the folder may be new
            log.list_parts()
        return written

    def _read(self, sizes: Mapping[str, int]) -> Iterator[Stretch]:
        """What is in no part, about `SEAL_BYTES` of it: of the log, of the block files, of each up to a size."""
        left = SEAL_BYTES
        for start, stop in gaps(self._log.covered):
            stretch = LogStretch(self._log.path, self._log.mark_at(start), self._store.is_ours, self._segment_at)
            if left > 0 and stretch.read(_least(stop, sizes[self._log.path.name]), left):
                left -= stretch.end - stretch.start
                self._log.marks = sorted({mark.end: mark for mark in (*self._log.marks, *stretch.marks)}.values())
                yield stretch
        left = SEAL_BYTES
        for _, path in pieces(self._store.folder, self._log.stem):
            for start, stop in gaps(self._log.wide.get(path.name, [])):
                rows = BlockStretch(path, start, self._log.rank)
                if left > 0 and rows.read(_least(stop, sizes.get(path.name, 0)), left):
                    left -= rows.end - rows.start
                    yield rows
                rows.close()

    def _blocks(self, stretches: list[Stretch]) -> list[Block]:
        blocks: list[Block] = []
        for stretch in stretches:
            blocks += stretch.blocks([])
            if isinstance(stretch, BlockStretch):
                blocks += stretch.histogram_blocks(self._log.wide_histograms.get(stretch.path.name, []))
        return blocks

    def _header(self, stretches: list[Stretch]) -> dict[str, Any]:
        wide: dict[str, list[tuple[int, int]]] = {}
        spans: list[tuple[int, int]] = []
        first: dict[int, tuple[int, int]] = {}
        marks: list[Mark] = []
        for stretch in stretches:
            span = (stretch.start, stretch.end)
            if isinstance(stretch, BlockStretch):
                wide.setdefault(stretch.path.name, []).append(span)
            else:
                spans.append(span)
                marks += stretch.marks
            first = first_steps(first, stretch.first)
        held = {str(segment): found for segment, found in first.items()}
        return {"log": spans, "wide": wide, "segments": marks, "first": held}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _least(stop: int | None, size: int) -> int:
    return size if stop is None else min(stop, size)


def _segments_of(main: RunLog, store: RunStore) -> Any:
    sealed = main.sealed_marks(store.is_ours)
    behind = main.covered[-1][1] if main.covered else 0
    main.marks = [*sealed, *main.marks_behind(behind, sealed, store.is_ours)]
    return lambda at: main.mark_at(at).segment


def _delete_sealed_blocks(folder: Path, log: RunLog) -> None:
    """Delete block files that are sealed whole and that their writer has left."""
    files = pieces(folder, log.stem)
    gone = not files or not _is_written(log)
    home = folder / "store" / log.stem
    for number, path in files:
        spans = log.wide.get(path.name, [])
        end = spans[0][1] if len(spans) == 1 and spans[0][0] == 0 else 0
        if not gone and number == files[-1][0]:
            continue
        reader = BlockReader(path, end)
        with contextlib.suppress(OSError):
            behind = sum(1 for _ in reader.read())
            if behind or reader.scanned > end:
                continue
            home.mkdir(parents=True, exist_ok=True)  # of a file without a block in it there is no part
            ends = sealed_ends(folder, log.stem) | {path.name: end}
            (home / f"{number:04d}{SEALED_SUFFIX}").write_bytes(msgspec.json.encode(ends))
            sync_folder(home)
            if reader.problem:  # for whoever wants to look at the bytes that could not be read
                os.rename(path, path.with_name(path.name + DAMAGED_SUFFIX))
            else:
                path.unlink()
        reader.close()
    last = sealed_number(folder, log.stem)
    for number in range(1, last):
        (home / f"{number:04d}{SEALED_SUFFIX}").unlink(missing_ok=True)


def _is_written(log: RunLog) -> bool:
    """Whether a process has the log open for writing; so is said where it can't be known."""
    try:
        descriptor = os.open(best_copy(log.path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return locks.is_taken(descriptor, unknown=True)
    finally:
        os.close(descriptor)


def _set_damaged_aside(folder: Path, log: RunLog) -> None:
    """Rename parts that can't be read, so that what they held is sealed anew from the log.

    A part that holds rows of block files which are deleted stays: what can be read of it is all there is of them.
    """
    there = {path.name for _, path in pieces(folder, log.stem)}
    for home in log.store:
        for file in parse_names(os.listdir(home.path)):
            path = home.path / file.name
            if file.table != "points" or _is_readable(path):
                continue
            with contextlib.suppress(DamagedPart):
                part = Part(path, GroupCache(0))
                part.close()
                if not set(part.header.get("wide") or ()) <= there:
                    continue
            os.rename(path, path.with_name(path.name + DAMAGED_SUFFIX))
        home.look_again()


def _is_readable(path: Path) -> bool:
    """Whether every byte of a part is as it was written."""
    try:
        part = Part(path, GroupCache(0))
        for _ in part.read(0, part.rows, ("step", "time", "value")):
            pass
        part.close()
    except DamagedPart:
        return False
    return True


def main(arguments: list[str] | None = None) -> int:
    """Seal a run at low priority on one thread."""
    parser = argparse.ArgumentParser(prog="python -m barograph.store.seal", description="Seal a run's numbers.")
    parser.add_argument("folder", type=Path, help="a run's folder")
    parser.add_argument("--final", action="store_true", help="all of it, though it is not much")
    options = parser.parse_args(arguments)
    with contextlib.suppress(OSError):
        os.nice(19)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    try:
        seal(options.folder, final=options.final, wait=options.final)
    except FileNotFoundError:
        print(f"{options.folder} is not there any more; nothing was sealed", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"could not seal {options.folder}: {error}; its files stay as they are", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
