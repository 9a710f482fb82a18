"""The commands `barograph push`, `pull` and `fleet`.

In:   runs and an address as typed.
Out:  runs sent and fetched, a server's tables; lines of text, or JSON; an exit code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from barograph.core.liveness import OPEN
from barograph.core.record import format_time, json_text
from barograph.core.text import count, escape, number, size, table
from barograph.query.catalog import find, runs
from barograph.query.fleet import Fleet
from barograph.query.folders import own_folder
from barograph.store.clickhouse.address import MARK, is_address, parse_address
from barograph.store.clickhouse.client import Client
from barograph.store.clickhouse.migrate import migrate
from barograph.store.clickhouse.pull import StoredThere, list_runs, pull
from barograph.store.clickhouse.push import push
from barograph.store.clickhouse.registry import identity, read_thinned
from barograph.store.clickhouse.retention import chosen_runs, remove
from barograph.store.clickhouse.schema import check, require
from barograph.store.clickhouse.thinning import thin_run
from barograph.store.clickhouse.verify import differences
from barograph.store.thin import thinned_sentence


def run_push(
    names: Sequence[str], to: str, *, dir: str | None = None, whole: bool = False, as_json: bool = False
) -> int:
    """Send runs to a server; returns 0, or 1 where something of them could not be sent. whole: points too that were
    removed there. Raises KeyError, ValueError and OSError with one sentence."""
    rows, complete = [], True
    with Client(parse_address(to)) as client:
        for run in [find(name, dir) for name in names]:
            sent = push(run.dir, client, final=run.status not in OPEN, whole=whole)
            rows.append({"run": f"{run.project}/{run.dir.resolve().name}", **vars(sent)})
            complete = complete and not sent.left_out
            for sentence in sent.left_out:
                print(f"barograph: {run.id}: {sentence}; it was not sent", file=sys.stderr)
            if not as_json:
                parts = (count(sent.points, "point"), count(sent.histograms, "histogram"), count(sent.files, "file"))
                print(f"{rows[-1]['run']}: sent {', '.join(parts)}")
    if as_json:
        print(json_text(rows))
    return 0 if complete else 1


def run_pull(names: Sequence[str], source: str, *, dir: str | None = None, as_json: bool = False) -> int:
    """Fetch runs from a server, all without names; returns the exit code 0. Raises as `run_push`."""
    root = own_folder(dir or None)
    rows = []
    with Client(parse_address(source)) as client:
        require(client)
        for run in _named(client, names) if names else list_runs(client):
            folder = pull(client, run, root)
            thinned = thinned_sentence(folder)
            rows.append({"run": f"{run.project}/{run.run}", "dir": str(folder), "thinned": thinned})
            if not as_json:
                print(f"{run.project}/{run.run}: {folder}{f' ({thinned})' if thinned else ''}")
    if as_json:
        print(json_text(rows))
    return 0


def run_fleet(
    action: str,
    url: str,
    words: Sequence[str] = (),
    *,
    project: str | None = None,
    points: int | None = None,
    rank: int | None = None,
    older_than: float | None = None,
    steps: int | None = None,
    confirmed: bool = False,
    dir: str | None = None,
    as_json: bool = False,
) -> int:
    """Ask a server; returns the exit code 0, or 1 where `check` has found a difference. Raises as `run_push`."""
    if action in ("series", "ranks") and len(words) != 2:
        raise ValueError(f"`barograph fleet {action} URL RUN SERIES` takes a run and the name of a series")
    if action == "runs":
        rows = Fleet(url).runs(words, project)
        shown = [row._asdict() | {"created": _moment(row.created), "finished": _moment(row.finished)} for row in rows]
        head = [
            "project",
            "run",
            "status",
            "created",
            *words,
            *(["thinned"] if any(row.thinned for row in rows) else []),
        ]
        _print(shown, as_json, head, lambda row: {**row, **row["last"]})
    elif action == "series":
        found = Fleet(url).series(words[0], words[1], points, rank)
        _say_thinned(url, words[0])
        columns = {"step": found.step, "time": found.time, "value": found.value, "rank": found.rank}
        _print(_rows(columns), as_json, list(columns), lambda row: row | {"time": _moment(int(row["time"] * 1e6))})
    elif action == "ranks":
        compared = Fleet(url).ranks(words[0], words[1])
        _say_thinned(url, words[0])
        _print(_rows(compared._asdict()), as_json, list(compared._fields))
    elif action == "remove":
        return _remove(url, words, project, older_than, confirmed, as_json)
    elif action == "thin":
        return _thin(url, words, project, older_than, steps, confirmed, as_json)
    elif action == "migrate":
        with Client(parse_address(url)) as client:
            done = migrate(client)
        print(json_text(done) if as_json else "\n".join(done) or "The tables are up to date.")
    else:
        return _check(url, words, project, dir, as_json)
    return 0


def _check(url: str, words: Sequence[str], project: str | None, dir: str | None, as_json: bool) -> int:
    """What the server is and holds; whether its runs, or these, are as they were sent, and as in their folders."""
    here = {}
    if not is_address(dir or os.environ.get("BAROGRAPH_DIR")):
        here = {identity(run.dir): run for run in runs(dir or None) if not (run.dir / MARK).exists()}
    found: dict[str, list[str]] = {}
    compared = 0
    with Client(parse_address(url)) as client:
        about = check(client)
        if not as_json:
            print("\n".join(f"{name:<8} {value}" for name, value in about.items()))
        for there in _named(client, words) if words else list_runs(client):
            if project in (None, there.project):
                local = here.get((there.project, there.run))
                folder, is_open = (local.dir, local.status in OPEN) if local is not None else (None, False)
                if read_thinned(client, there.project, there.run):
                    folder = None  # it has more than the server is meant to have
                compared += folder is not None
                sentences = differences(client, there.project, there.run, folder, is_open)
                found[f"{there.project}/{there.run}"] = sentences
    wrong = sum(map(bool, found.values()))
    if as_json:
        print(json_text(about | {"checked": len(found), "compared": compared, "differences": found}))
    else:
        for name, sentences in found.items():
            for sentence in sentences:
                print(f"{escape(name)}: {escape(sentence)}")
        outcome = f"{wrong} of them with differences" if wrong else "as they were sent"
        print(f"{'sums':<8} {count(len(found), 'run')}, {compared} of them compared with their folders: {outcome}")
    return 1 if wrong else 0


def _named(client: Client, names: Sequence[str]) -> list[StoredThere]:
    """The runs on the server that are meant. Raises KeyError for a name that means none or several."""
    there, wanted = list_runs(client), []
    for name in names:
        found = [run for run in there if run.has_name(name)]
        if len(found) != 1:
            several = f"means {len(found)} runs; give project/id" if found else "means none of the runs"
            raise KeyError(f"{name!r} {several} on {client.address}")
        wanted += found
    return wanted


def _say_thinned(url: str, run: str) -> None:
    if thinned := Fleet(url).thinned(run):
        print(f"barograph: {escape(run)} was {thinned}", file=sys.stderr)


def _thin(
    url: str,
    words: Sequence[str],
    project: str | None,
    older_than: float | None,
    steps: int | None,
    confirmed: bool,
    as_json: bool,
) -> int:
    """Thin runs that are named, or have ended long ago and are not thinned; without `confirmed`, say what would go."""
    if bool(words) == (older_than is not None) or steps is None or steps < 0:
        raise ValueError("`barograph fleet thin URL` takes runs, or --older-than DAYS, and --steps N, 0 or more")
    rows = []
    with Client(parse_address(url)) as client:
        require(client)
        chosen = chosen_runs(client, words, project, older_than)
        for each in chosen if words else [row for row in chosen if not row.thinned]:
            if each.status in OPEN:
                raise ValueError(f"{each.project}/{each.run} is being written; what is thinned has ended")
            sizes = thin_run(client, each.project, each.run, steps, confirmed)
            rows.append({"run": f"{each.project}/{each.run}", **sizes._asdict(), "thinned": confirmed})
            if not as_json:
                logs = f"logs from {size(sizes.log_bytes)} to {size(sizes.log_bytes_left)}"
                print(
                    f"{'removed' if confirmed else 'would remove'} {sizes.points - sizes.points_left:,} of "
                    f"{count(sizes.points, 'point')} of {each.project}/{each.run}: points from about "
                    f"{size(sizes.point_bytes)} to {size(sizes.point_bytes_left)}, {logs}"
                )
    if as_json:
        print(json_text(rows))
    else:
        print(f"{count(len(rows), 'run')} {'thinned' if confirmed else 'would be thinned; --yes does it'}")
    return 0


def _remove(
    url: str, words: Sequence[str], project: str | None, older_than: float | None, confirmed: bool, as_json: bool
) -> int:
    """Remove runs that are named, or have ended long ago; without `confirmed`, say which these are."""
    if bool(words) == (older_than is not None):
        raise ValueError("`barograph fleet remove URL` takes runs, or --older-than DAYS")
    with Client(parse_address(url)) as client:
        require(client)
        chosen = chosen_runs(client, words, project, older_than)
        if confirmed:
            for each in chosen:
                remove(client, each.project, each.run)
    rows = [{"run": f"{row.project}/{row.run}", "status": row.status, "finished": _moment(row.finished),
             "removed": confirmed} for row in chosen]  # fmt: skip
    if as_json:
        print(json_text(rows))
    else:
        for row in rows:
            print(f"{'removed' if confirmed else 'would remove'} {row['run']} ({row['status']} {row['finished']})")
        print(f"{count(len(rows), 'run')} {'removed' if confirmed else 'would be removed; --yes removes them'}")
    return 0


def _rows(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    values = [column.tolist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def _print(
    rows: list[dict[str, Any]],
    as_json: bool,
    head: Sequence[str],
    flat: Callable[[dict[str, Any]], dict[str, Any]] = lambda row: row,
) -> None:
    if as_json:
        print(json_text(rows))
        return
    cells = [[_cell(flat(row).get(name)) for name in head] for row in rows]
    right = [at for at, name in enumerate(head) if rows and isinstance(flat(rows[0]).get(name), (int, float))]
    print("\n".join(table([list(map(str.upper, head)), *cells], right)))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else number(value) if isinstance(value, float) else escape(value)


def _moment(microseconds: int) -> str:
    return format_time(microseconds)[:19] if microseconds else ""
