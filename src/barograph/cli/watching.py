"""Commands that show runs while they go on: view, top.

In:   words typed by a person or a script.
Out:  a page in the browser; a view in the terminal.
"""

from __future__ import annotations

import argparse

from barograph.cli.commands import Commands, count


def add(commands: Commands) -> None:
    """Declare them."""
    made = commands.add("view", _view, "show the runs in a browser, live")
    made.add_argument(
        "folder", nargs="?", metavar="DIR", help="the folder of runs (default: $BAROGRAPH_DIR, else runs)"
    )
    made.add_argument("--port", type=count, help="the port to listen at (default: a free one from 6060)")
    made.add_argument("--host", default="127.0.0.1", help="the address to listen at; any but loopback wants a token")
    made.add_argument("--token", help="the word that visitors of another machine must bring (default: one is made)")
    made.add_argument("--no-open", action="store_true", help="print the address and open no browser")

    made = commands.add("top", _top, "show a run live in the terminal")
    made.add_argument("run", nargs="?", metavar="RUN", help="a run or a log (default: the newest that goes on)")
    made.add_argument("--dir", help="the folder of runs (default: $BAROGRAPH_DIR, else runs)")
    made.add_argument("--once", action="store_true", help="print one page and stop")
    made.add_argument("--every", type=float, default=1.0, metavar="SECONDS", help="between two looks (default 1)")
    made.add_argument("--page", default="overview", metavar="NAME", help="the page shown first (default overview)")
    made.add_argument("--ascii", action="store_true", help="no characters beyond ASCII in charts")


def _view(options: argparse.Namespace) -> int:
    from barograph.server.command import view

    return view(options.folder, options.port, options.host, not options.no_open, options.token)


def _top(options: argparse.Namespace) -> int:
    from barograph.top.command import top

    return top(options.run, options.dir, once=options.once, every=options.every, page=options.page, ascii=options.ascii)
