"""What a run's log files say, followed as they grow.

In:   a stored run.
Out:  the latest record of each kind, findings, and the log's lines as the console draws them.

Of a long log only the end is read at first; its findings are looked for by a thread of their own.
"""

from __future__ import annotations

import contextlib
import io
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from barograph.core.record import Record, restore_non_finite
from barograph.core.text import short
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.story import in_order
from barograph.log.files import is_sidecar_name
from barograph.log.read import records_from, records_of
from barograph.query.findings import Findings
from barograph.query.stored import StoredRun
from barograph.training.console.console import Console
from barograph.views.top.pace import TopPace

_TAIL = 1 << 20  # bytes of the main log that are read at first
_OTHERS_TAIL = 64 << 10  # of each other rank's
_MOST_FILES = 256  # ranks whose logs are followed; all of them are in the store
_KEPT = 400  # lines
_RECENT = 200  # steps whose phases are kept
_STEPS = frozenset({"speed", "ranks"})


class Logbook:
    """latest: (kind, which) → record, `which` a device's number, or the file's place in the run's list.
    lines: the last ones drawn. speeds: the last `speed` records. waits: rank → (step, step_ms, wait_ms) of its own."""

    def __init__(self, run: StoredRun):
        self._run = run
        self.latest: dict[tuple[str, str], Record] = {}
        self.lines: deque[str] = deque(maxlen=_KEPT)
        self.speeds: deque[Mapping[str, Any]] = deque(maxlen=_RECENT)
        self.waits: dict[int, tuple[int, float | None, float | None]] = {}
        self._flags: list[Record] = []  # records of findings
        self.records = 0
        self.version = 0  # changes with every finding
        self._files: list[Path] = []
        self._offsets: dict[Path, int] = {}
        self._listing = TopPace(2.0)
        self._stream = io.StringIO()
        about = run.manifest
        self._console = Console(
            0, "plain", stream=self._stream, patient=True,
            total_steps=about.get("total_steps"), total_tokens=about.get("total_tokens"),
        )  # fmt: skip
        self._search: threading.Thread | None = None
        self._found: list[Record] = []
        self._earlier: list[tuple[Path, int]] = []  # logs whose beginning was passed over, and up to which byte
        self._told: tuple[int, list[dict[str, Any]]] = (-1, [])

    def look(self) -> list[Record]:
        """Read what was added; the main log's new records."""
        if self._listing.due():
            with self._listing:
                self._files = self._run.log_files()[:_MOST_FILES]
        new: list[Record] = []
        for place, path in enumerate(self._files):
            with contextlib.suppress(OSError):
                size = path.stat().st_size
                if path not in self._offsets:
                    self._offsets[path] = max(0, size - (_OTHERS_TAIL if place else _TAIL))
                    if self._offsets[path] and (not place or is_sidecar_name(path.name)):
                        self._earlier.append((path, self._offsets[path]))
                elif size < self._offsets[path]:
                    self._offsets[path] = 0  # replaced
                for record, end in records_from(path, self._offsets[path]):
                    self._offsets[path] = end
                    self._take(record, place)
                    if not place:
                        new.append(record)
        if not self.searching:
            if self._found:
                self._flags, self._found = self._found + self._flags, []
                self.version += 1
            if self._earlier:
                self._find_earlier(self._earlier)
                self._earlier = []
        return new

    @property
    def searching(self) -> bool:
        """Whether earlier findings are still being looked for."""
        return self._search is not None and self._search.is_alive()

    def findings(self) -> list[dict[str, Any]]:
        """What was found, what belongs together as one, the worst first; fields of `finding` records."""
        if self._told[0] != self.version:
            made = []
            for record in Findings(self._flags).records():
                with contextlib.suppress(msgspec.ValidationError, TypeError):
                    made.append(msgspec.convert({**record.fields, "step": record.step}, Finding))
            self._told = self.version, [msgspec.structs.asdict(item) for item in in_order(made)]
        return self._told[1]

    def wait(self, seconds: float) -> None:
        """Until earlier findings are known, for a page that is printed once."""
        if self._search is not None:
            self._search.join(seconds)
            self.look()

    # -- inside ---------------------------------------------------------------------------------------

    def _take(self, record: Record, place: int) -> None:
        self.records += 1
        fields = record.fields
        kind = record.kind
        which = f"{place}/{fields.get('id')}" if kind in ("gpu", "gpu-model") else str(place)
        if kind == "ranks" and "by_rank" in fields:
            self._waited(record)
        else:
            self.latest[kind, which] = record
        if kind == "speed" and not place:
            self.speeds.append(fields)
        if kind == "finding":
            self._flags.append(record)
            self.version += 1
        if not place and kind not in _STEPS:
            self._draw(record)

    def _draw(self, record: Record) -> None:
        self._console.draw(record)
        text = self._stream.getvalue()
        if text:
            self.lines.extend(short(line) for line in text.splitlines())
            self._stream.seek(0)
            self._stream.truncate()

    def _waited(self, record: Record) -> None:
        by_rank = record.fields["by_rank"]
        for name, own in by_rank.items() if isinstance(by_rank, dict) else ():
            if str(name).isdecimal() and isinstance(own, dict):
                self.waits[int(name)] = record.step, own.get("step_ms"), own.get("wait_ms")

    def _find_earlier(self, logs: list[tuple[Path, int]]) -> None:
        """Look for the findings of logs before the byte from which on they are read."""

        def search() -> None:
            found = []
            for path, until in logs:
                with contextlib.suppress(OSError):
                    found += [record for record, end in records_of(path, ("finding",)) if end <= until]
            self._found = found

        self._search = threading.Thread(target=search, daemon=True, name="barograph-top-findings")
        self._search.start()


def by_examination(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A diagnosis's findings, NaN and infinities as numbers again."""
    return [restore_non_finite(dict(item)) for item in result["findings"]]
