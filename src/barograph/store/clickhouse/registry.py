"""What a server knows of runs without reading them: the manifest's facts, the live branch, a summary of each series.

In:   a run's folder; a client.
Out:  rows of `runs`, `branches` and `summaries`, each the whole truth at its version: sent twice, late or in another
      order, the highest version counts.

Summaries are counted by the server from the rows that it has confirmed, so they can't differ from them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from barograph.core import manifest
from barograph.core.record import json_text, parse_time
from barograph.core.segments import live_cuts
from barograph.store.clickhouse import native
from barograph.store.clickhouse.batches import read_batches, where
from barograph.store.clickhouse.client import Client, listed, quote
from barograph.store.clickhouse.schema import VALUE
from barograph.store.run import RunStore

EVERY_STEP = (1 << 63) - 1
LARGEST = "1.7976931348623157e308"  # of doubles
_SHARE = 0.05  # of the sender's time that summaries may take while the run is written


class RegistrySender:
    """Of one run. main: this is the folder that has the manifest; others say only what nobody else says."""

    def __init__(self, client: Client, project: str, run: str, folder: Path, main: bool):
        self._client, self._project, self._run, self._folder, self._main = client, project, run, folder, main
        self._look = RunStore(folder).look()

    def send_run(self, version: int) -> None:
        """The manifest's facts, where the server has others."""
        about = manifest.read(self._folder)
        if not self._main or not about:
            return
        facts: dict[str, Any] = {
            "name": str(about.get("name") or self._run),
            "status": str(about.get("status") or ""),
            "created": _microseconds(about.get("created")),
            "finished": _microseconds(about.get("finished")),
            "world_size": _whole(about.get("world_size")),
            "inherits": int(any(segment.source for segment in self._look.segments()[:1])),
            "tags": [str(tag) for tag in about.get("tags") or ()],
            "config": json_text(about.get("config") or {}),
        }
        columns = ", ".join(facts)
        held = self._client.rows(f"SELECT {columns} FROM runs WHERE {self._where} ORDER BY version DESC LIMIT 1")
        if held and [str(value) for value in held[0]] == [str(value) for value in facts.values()]:
            return
        self._insert("runs", {
            "version": native.constant("UInt64", version, 1),
            "name": native.texts([facts["name"]]), "status": native.texts([facts["status"]]),
            "created": native.numbers("Int64", [facts["created"]]),
            "finished": native.numbers("Int64", [facts["finished"]]),
            "world_size": native.numbers("UInt32", [facts["world_size"]]),
            "inherits": native.numbers("UInt8", [facts["inherits"]]),
            "tags": native.text_lists([facts["tags"]]), "config": native.texts([facts["config"]]),
        })  # fmt: skip

    def send_branch(self, version: int) -> bool:
        """Which points count; whether that has changed. By its logs' first steps, so after these were sent."""
        cuts = live_cuts(self._look.segments(), self._look.first_steps())
        numbers = sorted(cuts)
        steps = [EVERY_STEP if (cut := cuts[number]) is None else cut for number in numbers]
        held = self._client.rows(
            f"SELECT argMax(segments, version), argMax(cuts, version), max(version) FROM branches WHERE {self._where}"
        )[0]
        same = [list(map(int, held[0])), list(map(int, held[1]))] == [numbers, steps]
        if same or (not self._main and int(held[2]) >= 1 << 32):
            return False
        self._insert("branches", {
            # what a folder without the manifest knows gives way to what the main one says
            "version": native.constant("UInt64", version if self._main else len(numbers), 1),
            "segments": native.number_lists("Int32", [numbers]), "cuts": native.number_lists("Int64", [steps]),
        })  # fmt: skip
        return True

    def send_summaries(self, version: int) -> None:
        """Of all series, counted by the server. Raises ServerError."""
        batches, _ = read_batches(self._client, self._project, self._run)
        numbers = listed([batch.number for batch in batches if batch.file.table == "points"])
        live = live_series(
            live_cuts_there(self._client, self._project, self._run), f"{self._where} AND batch IN {numbers}"
        )
        self._client.run(
            "INSERT INTO summaries (project, run, name, version, rank, points, finite, first_step, last_step, "
            "last_time, last, minimum, maximum, mean) "
            f"SELECT {quote(self._project)}, {quote(self._run)}, name, toUInt64({version}), rank, "
            "sum(length(step)), sum(length(finite)) AS numbers, min(step[1]), max(step[-1]), maxArray(time), "
            "argMax(value[-1], (segment, step[-1], seq[-1])), if(numbers = 0, nan, minArray(finite)), "
            "if(numbers = 0, nan, maxArray(finite)), if(numbers = 0, nan, sumArray(finite) / numbers) FROM ("
            f"SELECT *, arrayFilter(v -> abs(v) <= {LARGEST}, value) AS finite FROM ({live})) "
            "GROUP BY name, rank ORDER BY name, rank LIMIT 1 BY name"
        )

    @property
    def _where(self) -> str:
        return where(self._project, self._run)

    def _insert(self, table: str, columns: dict[str, tuple[str, bytes]]) -> None:
        identity = {"project": native.texts([self._project]), "run": native.texts([self._run])}
        self._client.run(f"INSERT INTO {table} FORMAT Native", native.block(1, identity | columns))


class SummaryTurns:
    """When summaries are due: new rows have come, and counting all of them again has not taken more than its share."""

    def __init__(self) -> None:
        self._due = 0.0
        self.owed = True

    def is_due(self, final: bool) -> bool:
        return self.owed and (final or time.monotonic() >= self._due)

    def took(self, seconds: float) -> None:
        self.owed, self._due = False, time.monotonic() + seconds / _SHARE


def live_cuts_there(client: Client, project: str, run: str) -> dict[int, int] | None:
    """Segment → the step before which its points count; None where the server was not told."""
    found = client.rows(
        f"SELECT argMax(segments, version), argMax(cuts, version), count() FROM branches WHERE {where(project, run)}"
    )[0]
    return dict(zip(map(int, found[0]), map(int, found[1]), strict=True)) if int(found[2]) else None


def live_rows(cuts: dict[int, int] | None) -> str:
    """A condition that rows of `series` fulfil of which a resume or rewind has not superseded all points."""
    if not cuts:
        return "1"
    whole = [0, *(number for number, cut in cuts.items() if cut == EVERY_STEP)]
    parts = [f"segment IN {listed(whole)}"]
    parts += [f"(segment = {number} AND first < {cut})" for number, cut in _ended(cuts)]
    return f"({' OR '.join(parts)})"


def live_series(cuts: dict[int, int] | None, condition: str) -> str:
    """A SELECT of rows of `series` with the points that count: name, rank, segment, step, seq, time, value."""
    counted = "".join(f"segment = {number}, arrayCount(s -> s < {cut}, step), " for number, cut in _ended(cuts or {}))
    columns = {"step": "step", "seq": "seq", "time": "time", "value": VALUE}
    chosen = ", ".join(
        f"arraySlice({column}, 1, multiIf({counted}length(step))) AS {name}" if counted else f"{column} AS {name}"
        for name, column in columns.items()
    )
    return f"SELECT name, rank, segment, {chosen} FROM series WHERE {condition} AND {live_rows(cuts)}"


def _ended(cuts: dict[int, int]) -> list[tuple[int, int]]:
    return [(number, cut) for number, cut in cuts.items() if number and cut != EVERY_STEP]


def _microseconds(text: Any) -> int:
    return parse_time(text)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 32 else 0
