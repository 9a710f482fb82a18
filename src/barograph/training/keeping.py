"""Keeping: a run's folder that is moved or deleted while the run goes on, whole or in part.

In:   about once a second, a look at what is there.
Out:  the folder as it was, from what is open and what was read of it; or the place that it was moved to.

A log that is deleted is still open, so all of its records come back. The manifest and the segments were read before.
Wide rows in deleted files are gone: one warning says how many.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barograph.core import manifest, segments
from barograph.log.files import MAIN
from barograph.log.write import JsonLog

if TYPE_CHECKING:
    from barograph.training.recorder import Recorder


class RunFolder:
    """The folder of a recorder. `on_change`: called with the folder when it was written again or has moved."""

    def __init__(self, recorder: Recorder):
        self._out = recorder
        self.on_change: list[Callable[[Path], Any]] = []
        self._kept: dict[str, bytes] = {}  # files of the folder that are written again
        self._seen: dict[str, tuple[int, int]] = {}
        self.keep()

    def look(self) -> None:
        """Never raises."""
        out = self._out
        with contextlib.suppress(OSError):
            changed = self._has_moved()
            if isinstance(out.log, JsonLog):
                changed |= out.log.restore_if_deleted()
                if out.log.was_emptied() and out.segment.number > 1:  # whose the following records are
                    out.opening.emit(out.next_step if out.segment.start_step is None else out.segment.start_step)
            rows = out.wide.blocks.gone()
            if rows:
                sealed = any((out.dir / "store" / out.stem).glob("*.parquet"))
                but = ", but for those that were sealed before" if sealed else ""
                out.warn(f"files of wide rows in {out.dir} were deleted: {rows} rows or histograms are gone{but}")
            if out.is_main:
                changed |= self._restore()
                self.keep()
            if changed:
                for call in self.on_change:
                    call(out.dir)

    def keep(self) -> None:
        """Read the manifest and the segments, where they have changed."""
        folder = self._out.dir
        with contextlib.suppress(OSError):
            if self._has_changed(folder / manifest.FILE):
                content = (folder / manifest.FILE).read_bytes()
                if content.strip():
                    self._kept[manifest.FILE] = content
        with contextlib.suppress(OSError):
            if self._has_changed(folder / segments.FOLDER):
                for path in (folder / segments.FOLDER).glob("[0-9]*.json"):
                    if content := path.read_bytes():
                        self._kept[f"{segments.FOLDER}/{path.name}"] = content

    def _has_changed(self, path: Path) -> bool:
        state = os.stat(path)
        identity = state.st_ino, state.st_mtime_ns
        changed = self._seen.get(path.name) != identity
        self._seen[path.name] = identity
        return changed

    def _restore(self) -> bool:
        """Write again what is missing or empty; whether anything was."""
        folder, log, missing = self._out.dir, self._out.log_path.absolute(), False
        inside = folder / MAIN
        if log.parent != folder.absolute() and not os.path.lexists(inside):  # an option has the log elsewhere
            folder.mkdir(parents=True, exist_ok=True)
            os.symlink(os.path.relpath(log, folder.resolve()), inside)
        for name, content in self._kept.items():
            path = folder / name
            try:
                if os.stat(path).st_size:
                    continue
            except FileNotFoundError:
                pass
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            temporary.write_bytes(content)
            os.replace(temporary, path)
            missing = True
        return missing

    def _has_moved(self) -> bool:
        out = self._out
        if not isinstance(out.log, JsonLog) or out.log.path.parent.absolute() != out.dir.absolute():
            return False
        path = out.log.moved()
        if path is None or path.parent == out.dir.resolve():
            return False
        out.warn(f"{out.dir} was moved while the run went on; it goes on in {path.parent}")
        out.dir, out.log_path = path.parent, path
        out.wide.blocks.move(path.parent)
        self._seen.clear()
        return True
