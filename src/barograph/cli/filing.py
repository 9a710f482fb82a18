"""Commands that keep runs in order: mark, delete, restore, projects, search, lineage.

In:   words typed by a person or a script.
Out:  edits, moves to the trash and back, what was found.
"""

from __future__ import annotations

import argparse

from barograph.cli.commands import Commands


def add(commands: Commands) -> None:
    """Declare them."""
    made = commands.add("mark", _mark, "name, tag, annotate, pin or archive runs, also while they go on")
    made.add_argument("runs", nargs="+", metavar="RUN", help="runs' ids, names or folders")
    made.add_argument("--tag", action="append", default=[], metavar="TAG", help="add a tag (may be repeated)")
    made.add_argument("--untag", action="append", default=[], metavar="TAG", help="take a tag away")
    made.add_argument("--note", metavar="TEXT", help="add a line to the notes")
    made.add_argument("--clear-notes", action="store_true", help="begin the notes anew")
    made.add_argument("--name", metavar="NAME", help="call the run so")
    made.add_argument("--pin", action=argparse.BooleanOptionalAction, help="keep it at the top of the page's table")
    made.add_argument("--archive", action=argparse.BooleanOptionalAction, help="leave it out of lists")
    commands.common(made, run=False)

    made = commands.add("delete", _delete, "move runs to the trash, from where restore brings them back")
    made.add_argument("runs", nargs="+", metavar="RUN", help="runs' ids, names or folders")
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument("--force", action="store_true", help="also a run of another machine that fell silent")
    commands.common(made, run=False)

    made = commands.add("restore", _restore, "bring deleted runs back; without an id the one deleted last")
    made.add_argument("ids", nargs="*", metavar="ID", help="ids that delete printed")
    made.add_argument("--list", action="store_true", help="list what is in the trash, and stop")
    commands.common(made, run=False)

    made = commands.add("projects", _projects, "list the projects")
    commands.common(made, run=False)

    made = commands.add("search", _search, "find runs by words of their names, notes, tags, configuration and findings")
    made.add_argument("words", nargs="+", metavar="WORD", help="words, or conditions such as config.lr>1e-4")
    commands.common(made, run=False)

    made = commands.add("lineage", _lineage, "draw a run's resumes, rewinds and forks, with what was kept of each")
    commands.common(made)


def _mark(options: argparse.Namespace) -> int:
    from barograph.keeping.command import run_mark

    return run_mark(
        options.runs,
        dir=options.dir,
        tags=options.tag,
        untags=options.untag,
        note=options.note,
        clear_notes=options.clear_notes,
        name=options.name,
        pin=options.pin,
        archive=options.archive,
        as_json=options.json,
    )


def _delete(options: argparse.Namespace) -> int:
    from barograph.keeping.command import run_delete

    return run_delete(options.runs, dir=options.dir, yes=options.yes, force=options.force, as_json=options.json)


def _restore(options: argparse.Namespace) -> int:
    from barograph.keeping.command import run_restore

    return run_restore(options.ids, dir=options.dir, list_them=options.list, as_json=options.json)


def _projects(options: argparse.Namespace) -> int:
    from barograph.keeping.command import run_projects
    from barograph.reading.catalog import runs

    return run_projects(runs(options.dir), dir=options.dir, as_json=options.json)


def _search(options: argparse.Namespace) -> int:
    from barograph.keeping.command import run_search
    from barograph.reading.catalog import runs

    return run_search(options.words, runs(options.dir), as_json=options.json)


def _lineage(options: argparse.Namespace) -> int:
    from barograph.lineage.command import run_lineage
    from barograph.reading.catalog import find

    return run_lineage(find(options.run, options.dir), dir=options.dir, as_json=options.json)
