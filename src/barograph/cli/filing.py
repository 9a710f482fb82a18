"""Commands that keep runs in order: mark, delete, restore, projects, search, lineage.

In:   words typed by a person or a script.
Out:  edits, moves to the trash and back, what was found.
"""

from __future__ import annotations

import argparse

from barograph.cli.commands import Commands


def add(commands: Commands) -> None:
    """Declare them."""
    parser = commands.add("mark", _mark, "keep", "name, tag, annotate, pin or archive runs, running ones too")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="runs' ids, names or folders")
    parser.add_argument("--tag", action="append", default=[], metavar="TAG", help="add a tag (may be repeated)")
    parser.add_argument("--untag", action="append", default=[], metavar="TAG", help="remove a tag (may be repeated)")
    parser.add_argument("--note", metavar="TEXT", help="add a line to the notes")
    parser.add_argument("--clear-notes", action="store_true", help="delete the notes")
    parser.add_argument("--name", metavar="NAME", help="give the run this name")
    parser.add_argument(
        "--pin", action=argparse.BooleanOptionalAction, help="keep it at the top of the table in `barograph view`"
    )
    parser.add_argument("--archive", action=argparse.BooleanOptionalAction, help="hide it from lists")
    commands.common(parser, run=False)

    parser = commands.add("delete", _delete, "keep", "move runs to the trash")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="runs' ids, names or folders")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument(
        "--force", action="store_true", help="also delete a run that may still be running on another machine"
    )
    commands.common(parser, run=False)

    parser = commands.add(
        "restore", _restore, "keep", "bring deleted runs back from the trash", "Without an id, the one deleted last."
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="ids that `barograph delete` printed")
    parser.add_argument("--list", action="store_true", help="list the trash and stop")
    commands.common(parser, run=False)

    parser = commands.add("projects", _projects, "look", "list the projects")
    commands.common(parser, run=False)

    parser = commands.add("search", _search, "look", "find runs by words in names, notes, tags, settings, findings")
    parser.add_argument("words", nargs="+", metavar="WORD", help="words, or conditions such as config.lr>1e-4")
    commands.common(parser, run=False)

    parser = commands.add("lineage", _lineage, "understand", "draw a run's resumes, rewinds and forks")
    commands.common(parser)


def _mark(options: argparse.Namespace) -> int:
    from barograph.views.tables.keeping import run_mark

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
    from barograph.views.tables.keeping import run_delete

    return run_delete(options.runs, dir=options.dir, yes=options.yes, force=options.force, as_json=options.json)


def _restore(options: argparse.Namespace) -> int:
    from barograph.views.tables.keeping import run_restore

    return run_restore(options.ids, dir=options.dir, list_them=options.list, as_json=options.json)


def _projects(options: argparse.Namespace) -> int:
    from barograph.views.tables.keeping import run_projects

    return run_projects(dir=options.dir, as_json=options.json)


def _search(options: argparse.Namespace) -> int:
    from barograph.views.tables.keeping import run_search

    return run_search(options.words, dir=options.dir, as_json=options.json)


def _lineage(options: argparse.Namespace) -> int:
    from barograph.views.lineage.command import run_lineage

    return run_lineage(options.run, dir=options.dir, as_json=options.json)
