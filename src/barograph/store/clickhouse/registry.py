"""What a server knows of runs without reading them: the manifest's facts, the live branch, a summary of each series.

In:   a run's folder; a client.
Out:  rows of `runs`, `branches` and `summaries`, each the whole truth at its version: sent twice, late or in another
      order, the highest version counts.

Summaries are counted by the server from the rows that it has confirmed, so they can't differ from them.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from barograph.core import manifest
from barograph.core.record import json_text, parse_time
from barograph.core.segments import Segment, live_cuts
from barograph.store.branch import BEFORE_FORK
from barograph.store.clickhouse import native
from barograph.store.clickhouse.batches import arrived, where
from barograph.store.clickhouse.client import Client, listed, quote
from barograph.store.clickhouse.schema import ONCE, TABLES, VALUE
from barograph.store.run import RunStore
from barograph.store.thin import thinned_sentence

EVERY_STEP = (1 << 63) - 1
LARGEST = "1.7976931348623157e308"  # of doubles
_MOST_FORKS = 100  # of forks
_SHARE = 0.05  # of the sender's time that summaries may take while the run is written


def identity(folder: Path) -> tuple[str, str]:
    """The project and the id that a run has on the server."""
    about = manifest.read(folder)
    resolved = folder.resolve()
    return str(about.get("project") or resolved.parent.name), resolved.name


class RegistrySender:
    """Of one run. main: this is the folder that has the manifest; others say only what nobody else says."""

    def __init__(self, client: Client, project: str, run: str, store: RunStore, main: bool):
        self._client, self._project, self._run, self._main = client, project, run, main
        self._folder, self._look = store.folder, store.look()

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
            "origin": self._origin(),
            "thinned": thinned_sentence(self._folder) or read_thinned(self._client, self._project, self._run),
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
            "origin": native.texts([facts["origin"]]), "thinned": native.texts([facts["thinned"]]),
        })  # fmt: skip

    def _origin(self) -> str:
        first = next(iter(self._look.segments()), None)
        if first is None or not first.source or first.start_step is None:
            return ""
        project, run = identity(Path(first.source))
        return json.dumps({"project": project, "run": run, "step": first.start_step, "time": first.time})

    def say_thinned(self, version: int, sentence: str) -> None:
        """Say it of the run; "": it is whole again."""
        columns = [column.name for column in TABLES["runs"].columns]
        said = {"version": f"toUInt64({version})", "thinned": quote(sentence)}
        chosen = ", ".join(said.get(name, name) for name in columns)
        self._client.run(
            f"INSERT INTO runs ({', '.join(columns)}) SELECT {chosen} FROM ("
            f"SELECT * FROM runs WHERE {self._where} ORDER BY version DESC LIMIT 1)"
        )

    def send_branch(self, version: int) -> bool:
        """Which points count; whether that has changed. By its logs' first steps, so after these were sent."""
        segments, first = self._look.segments(), self._look.first_steps()
        cuts = live_cuts(segments, first)
        numbers = sorted(cuts)
        steps = [EVERY_STEP if (cut := cuts[number]) is None else cut for number in numbers]
        held_segments = [[item.number, item.parent, item.start_step, item.time] for item in segments]
        history = json.dumps({"segments": held_segments, "first": sorted(first.items())})
        held = self._client.rows(
            "SELECT argMax(segments, version), argMax(cuts, version), argMax(history, version), max(version) "
            f"FROM branches WHERE {self._where}"
        )[0]
        same = [list(map(int, held[0])), list(map(int, held[1])), held[2]] == [numbers, steps, history]
        if same or (not self._main and int(held[3]) >= 1 << 32):
            return False
        self._insert("branches", {
            # what a folder without the manifest knows gives way to what the main one says
            "version": native.constant("UInt64", version if self._main else len(numbers), 1),
            "segments": native.number_lists("Int32", [numbers]), "cuts": native.number_lists("Int64", [steps]),
            "history": native.texts([history]),
        })  # fmt: skip
        return True

    @property
    def _where(self) -> str:
        return where(self._project, self._run)

    def _insert(self, table: str, columns: dict[str, tuple[str, bytes]]) -> None:
        identity = {"project": native.texts([self._project]), "run": native.texts([self._run])}
        self._client.run(f"INSERT INTO {table} FORMAT Native", native.block(1, identity | columns))


def send_summaries(client: Client, project: str, run: str, version: int, forks: int = _MOST_FORKS) -> None:
    """Of all series of a run, counted by the server; of those too that go on from another run which it has, and so of
    the runs that go on from this one, and from those. Raises ServerError."""
    live = " UNION ALL ".join(
        live_series(member, arrived(client, member.project, member.run)) for member in lineage(client, project, run)
    )
    client.run(
        "INSERT INTO summaries (project, run, name, version, rank, points, finite, first_step, last_step, "
        "last_time, last, minimum, maximum, mean) "
        f"SELECT {quote(project)}, {quote(run)}, name, toUInt64({version}), rank, "
        "sum(length(step)), sum(length(finite)) AS numbers, min(step[1]), max(step[-1]), maxArray(time), "
        "argMax(value[-1], (segment, step[-1], seq[-1])), if(numbers = 0, nan, minArray(finite)), "
        "if(numbers = 0, nan, maxArray(finite)), if(numbers = 0, nan, sumArray(finite) / numbers) FROM ("
        f"SELECT *, arrayFilter(v -> abs(v) <= {LARGEST}, value) AS finite FROM ({live})) "
        "GROUP BY name, rank ORDER BY name, rank LIMIT 1 BY name"
    )
    about = "SELECT project, run, argMax(origin, version) FROM runs WHERE inherits = 1 GROUP BY project, run"
    for fork_project, fork, text in client.rows(about) if forks else ():
        origin = json.loads(text or "{}")
        if (origin.get("project"), origin.get("run")) == (project, run):
            held = client.rows(f"SELECT max(version) FROM summaries WHERE {where(fork_project, fork)}")[0][0]
            send_summaries(client, fork_project, fork, max(version, int(held) + 1), forks - 1)


class SummaryTurns:
    """When summaries are due: new rows have come, and counting all of them again has not taken more than its share."""

    def __init__(self) -> None:
        self._due = 0.0
        self.owed = True

    def is_due(self, final: bool) -> bool:
        return self.owed and (final or time.monotonic() >= self._due)

    def took(self, seconds: float) -> None:
        self.owed, self._due = False, time.monotonic() + seconds / _SHARE


def read_thinned(client: Client, project: str, run: str) -> str:
    """What was removed of a run's points, "" for nothing."""
    return str(client.rows(f"SELECT argMax(thinned, version) FROM runs WHERE {where(project, run)}")[0][0])


class Ancestor(NamedTuple):
    """A run of which points count in another. cuts: segment → the step before which they do there; None: all do.
    before: the step before which they do here."""

    project: str
    run: str
    cuts: dict[int, int] | None
    before: int | None


def lineage(client: Client, project: str, run: str) -> list[Ancestor]:
    """A run, and those that it goes on from, as they stood when it began, as far as the server has them."""
    found = [Ancestor(project, run, _cuts_there(client, project, run, None), None)]
    while len(found) <= _MOST_FORKS:
        last = found[-1]
        about = where(last.project, last.run)
        text = str(client.rows(f"SELECT argMax(origin, version) FROM runs WHERE {about}")[0][0])
        if not text:
            break
        origin = json.loads(text)
        project, run, step = origin["project"], origin["run"], int(origin["step"])
        if not client.rows(f"SELECT 1 FROM files WHERE {where(project, run)} LIMIT 1"):
            break
        before = step if last.before is None else min(step, last.before)
        found.append(Ancestor(project, run, _cuts_there(client, project, run, int(origin["time"])), before))
    return found


def _cuts_there(client: Client, project: str, run: str, until: int | None) -> dict[int, int] | None:
    """until: only segments that began by then count."""
    held, cuts, history, rows = client.rows(
        "SELECT argMax(segments, version), argMax(cuts, version), argMax(history, version), count() "
        f"FROM branches WHERE {where(project, run)}"
    )[0]
    if not int(rows):
        return None
    if until is None or not history:
        return dict(zip(map(int, held), map(int, cuts), strict=True))
    known = json.loads(history)
    segments = [Segment(number, parent, step, "", time) for number, parent, step, time in known["segments"]]
    chosen = [segment for segment in segments if segment.time <= until] or segments
    found = live_cuts(chosen, dict(known["first"]))
    return {number: EVERY_STEP if cut is None else cut for number, cut in found.items()}


def live_rows(cuts: dict[int, int] | None) -> str:
    """A condition that rows of `series` fulfil of which a resume or rewind has not superseded all points."""
    if not cuts:
        return "1"
    whole = [0, *(number for number, cut in cuts.items() if cut == EVERY_STEP)]
    parts = [f"segment IN {listed(whole)}"]
    parts += [f"(segment = {number} AND first < {cut})" for number, cut in _ended(cuts)]
    return f"({' OR '.join(parts)})"


def live_series(member: Ancestor, condition: str) -> str:
    """A SELECT of rows of `series` with the points that count: name, rank, segment, step, seq, time, value."""
    ends = dict(_ended(member.cuts or {}))
    if member.before is not None:
        condition += f" AND first < {member.before}"
        ends = {number: min(cut, member.before) for number, cut in ends.items()}
    counted = "".join(f"segment = {number}, arrayCount(s -> s < {cut}, step), " for number, cut in ends.items())
    rest = "length(step)" if member.before is None else f"arrayCount(s -> s < {member.before}, step)"
    length = f"multiIf({counted}{rest})" if counted else rest
    whole = not counted and member.before is None
    columns = {"step": "step", "seq": "seq", "time": "time", "value": VALUE}
    chosen = ", ".join(
        f"{column} AS {name}" if whole else f"arraySlice({column}, 1, {length}) AS {name}"
        for name, column in columns.items()
    )
    live = f"{condition} AND {live_rows(member.cuts)} {ONCE['series']}"
    rows = f"SELECT name, rank, segment, {chosen} FROM series WHERE {live}"
    if member.before is None:
        return rows
    return f"SELECT name, rank, toInt32({BEFORE_FORK}) AS segment, step, seq, time, value FROM ({rows})"


def _ended(cuts: dict[int, int]) -> list[tuple[int, int]]:
    return [(number, cut) for number, cut in cuts.items() if number and cut != EVERY_STEP]


def _microseconds(text: Any) -> int:
    return parse_time(text)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 32 else 0
