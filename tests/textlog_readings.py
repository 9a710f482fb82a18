"""What the tests of printed logs share: a log read into plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from barograph.importing.source import Fact, FoundRun, ImportedPoints, ImportMark, Restart, Unread
from barograph.importing.textlogs import SOURCES
from barograph.importing.textlogs.engine import Dialect

LOGS = Path(__file__).parent / "textlogs"


class Reading(NamedTuple):
    series: dict[str, list[tuple[int, float]]]  # every segment's, one behind the other
    times: dict[str, list[int]]
    axes: dict[str, str]
    restarts: list[Restart]
    unread: list[Unread]
    facts: list[Fact]
    mark: ImportMark

    @property
    def state(self) -> dict[str, Any]:
        return self.mark.state


def find(path: Path) -> list[tuple[Dialect, FoundRun]]:
    with path.open("rb") as file:
        head = file.read(1 << 16)
    return [(dialect, found) for dialect in SOURCES for found in dialect.find(path, head)]


def read(path: Path, key: str = "", since: ImportMark | None = None) -> Reading:
    dialect, found = next(one for one in find(path) if one[1].key == key)
    return collect(dialect, found, since)


def collect(dialect: Dialect, found: FoundRun, since: ImportMark | None = None) -> Reading:
    rows: dict[str, list[tuple[int, int, float, int]]] = {}
    axes: dict[str, str] = {}
    restarts: list[Restart] = []
    unread: list[Unread] = []
    facts: list[Fact] = []
    marks: list[ImportMark] = []
    for item in dialect.read(found, since):
        if isinstance(item, ImportedPoints):
            assert item.values.shape == (len(item.steps), len(item.names)) == (len(item.times), len(item.names))
            for column, name in enumerate(item.names):
                axes[name] = item.x
                for step, time, value in zip(item.steps, item.times, item.values[:, column], strict=True):
                    rows.setdefault(name, []).append((len(restarts), int(step), float(value), int(time)))
        elif isinstance(item, Restart):
            restarts.append(item)
        elif isinstance(item, Unread):
            unread.append(item)
        elif isinstance(item, Fact):
            facts.append(item)
        elif isinstance(item, ImportMark):
            marks.append(item)
    for entries in rows.values():
        entries.sort(key=lambda row: row[:2])  # blocks of different names may be interleaved
    series = {name: [(step, value) for _, step, value, _ in entries] for name, entries in rows.items()}
    times = {name: [time for _, _, _, time in entries] for name, entries in rows.items()}
    return Reading(series, times, axes, restarts, unread, facts, marks[-1])
