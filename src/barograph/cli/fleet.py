"""Commands about runs on a ClickHouse server: push, pull, fleet.

In:   words typed by a person or a script.
Out:  runs sent and fetched; a server's tables made and looked at.
"""

from __future__ import annotations

import argparse

from barograph.cli.commands import Commands

ACTIONS = ("check", "migrate", "runs", "series", "ranks", "remove", "thin")
_FLEET = (
    "check [RUN ...]: the server, its rights and what it holds; whether runs are as they were sent, and as in their "
    "folders. migrate: make the tables or bring them up to date. "
    "runs [SERIES ...]: all runs, with last values. series RUN SERIES: its points. ranks RUN SERIES: the "
    "series over the ranks at each step. remove RUN ... or --older-than DAYS: remove runs from the server. "
    "thin, with the same and --steps N: keep of each series the first, lowest, highest and last point of each N "
    "steps. Only thin fetches runs."
)
_ADDRESS = "clickhouse://user@host:8123/database; the password is in BAROGRAPH_CLICKHOUSE_PASSWORD"


def add(commands: Commands) -> None:
    """Declare them."""
    parser = commands.add(
        "push", _push, "exchange", "send runs to a ClickHouse server", "What the server has is not sent again."
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="runs' ids, names or folders")
    parser.add_argument("--to", required=True, metavar="URL", help=_ADDRESS)
    parser.add_argument("--whole", action="store_true", help="send again what was thinned on the server")
    commands.common(parser, run=False)

    parser = commands.add(
        "pull", _pull, "exchange", "fetch runs from a ClickHouse server", "What is there is not fetched again."
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help="runs as project/id, or ids; without any, all")
    parser.add_argument("--from", required=True, dest="source", metavar="URL", help=_ADDRESS)
    commands.common(parser, run=False)

    parser = commands.add(
        "fleet", _fleet, "exchange", "look at a ClickHouse server: its tables, runs and series", _FLEET
    )
    parser.add_argument("action", choices=ACTIONS, help="what to do")
    parser.add_argument("url", metavar="URL", help=_ADDRESS)
    parser.add_argument("words", nargs="*", metavar="WORD", help="of `runs` names of series; else RUN [SERIES]")
    parser.add_argument("--project", metavar="NAME", help="of `check`, `runs`, `remove`, `thin`: of one project")
    parser.add_argument("--points", type=int, metavar="N", help="of `series`: no more than N, with every extreme")
    parser.add_argument("--rank", type=int, metavar="N", help="of `series`: that rank's")
    parser.add_argument(
        "--older-than", type=float, metavar="DAYS", help="of `remove`, `thin`: runs that ended before that"
    )
    parser.add_argument("--steps", type=int, metavar="N", help="of `thin`: steps of a bucket; 0: one bucket a series")
    parser.add_argument("--yes", action="store_true", help="of `remove`, `thin`: do it; without it, what would go")
    commands.common(parser, run=False)


def _push(options: argparse.Namespace) -> int:
    from barograph.views.tables.fleet import run_push

    return run_push(options.runs, options.to, dir=options.dir, whole=options.whole, as_json=options.json)


def _pull(options: argparse.Namespace) -> int:
    from barograph.views.tables.fleet import run_pull

    return run_pull(options.runs, options.source, dir=options.dir, as_json=options.json)


def _fleet(options: argparse.Namespace) -> int:
    from barograph.views.tables.fleet import run_fleet

    return run_fleet(
        options.action,
        options.url,
        options.words,
        project=options.project,
        points=options.points,
        rank=options.rank,
        older_than=options.older_than,
        steps=options.steps,
        confirmed=options.yes,
        dir=options.dir,
        as_json=options.json,
    )
