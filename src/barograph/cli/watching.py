"""Commands that show runs while they go on: view, top, metrics.

In:   words typed by a person or a script.
Out:  a page in the browser; a view in the terminal; a page for Prometheus.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from barograph.cli.commands import Commands, count


def add(commands: Commands) -> None:
    """Declare them."""
    parser = commands.add("view", _view, "look", "show the runs in a browser, live")
    parser.add_argument(
        "folder", nargs="?", metavar="DIR", help="the folder of runs (default: $BAROGRAPH_DIR, else runs)"
    )
    parser.add_argument("--port", type=count, help="the port to listen at (default: a free one from 6060)")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at; any but 127.0.0.1 needs a token")
    parser.add_argument(
        "--token", help="the password for other machines (default: $BAROGRAPH_TOKEN, which no list of processes shows)"
    )
    parser.add_argument(
        "--url", default="", metavar="URL", help="the address that a proxy has for it, such as https://host/barograph"
    )
    parser.add_argument("--no-open", action="store_true", help="print the address and open no browser")

    parser = commands.add("top", _top, "look", "show a run in the terminal, live")
    parser.add_argument("run", nargs="?", metavar="RUN", help="a run or a log (default: the newest running one)")
    parser.add_argument("--dir", help="the folder of runs (default: $BAROGRAPH_DIR, else runs)")
    parser.add_argument("--once", action="store_true", help="print one page and stop")
    parser.add_argument(
        "--every", type=float, default=1.0, metavar="SECONDS", help="seconds between two updates (default 1)"
    )
    parser.add_argument("--page", default="overview", metavar="NAME", help="the page shown first (default overview)")
    parser.add_argument("--ascii", action="store_true", help="draw charts with ASCII characters only")

    parser = commands.add("metrics", _metrics, "look", "give the metrics of running runs to Prometheus (OpenMetrics)")
    parser.add_argument("--port", type=count, default=9464, help="the port to listen at (default 9464; 0: a free one)")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at (default: this machine alone)")
    parser.add_argument("--dir", help="the folder of runs (default: $BAROGRAPH_DIR, else runs)")


def _metrics(options: argparse.Namespace) -> int:
    from barograph.query.openmetrics import serve

    return serve(Path(options.dir) if options.dir else None, options.host, options.port)


def _view(options: argparse.Namespace) -> int:
    from barograph.views.server.command import view

    return view(options.folder, options.port, options.host, not options.no_open, options.token, options.url)


def _top(options: argparse.Namespace) -> int:
    from barograph.views.top.command import top

    return top(options.run, options.dir, once=options.once, every=options.every, page=options.page, ascii=options.ascii)
