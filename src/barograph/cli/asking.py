"""Commands that answer queries: sql, mcp.

In:   words typed by a person or a script.
Out:  tables; a server on standard input and output.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from barograph.cli.commands import Commands


def add(commands: Commands) -> None:
    """Declare them."""
    made = commands.add("sql", _sql, "answer a SELECT over runs, series, configurations and findings")
    made.add_argument("query", nargs="?", metavar="SELECT", help="one SELECT, in DuckDB's language")
    made.add_argument(
        "--format", choices=("table", "csv", "json", "parquet"), help="default: a table, or what --out ends in"
    )
    made.add_argument("--out", type=Path, metavar="FILE", help="write there instead of printing")
    made.add_argument("--schema", action="store_true", help="print what tables there are, and stop")
    commands.common(made, run=False)

    made = commands.add("mcp", _mcp, "serve the runs to a coding assistant, over the Model Context Protocol")
    commands.common(made, run=False, as_json=False)


def _sql(options: argparse.Namespace) -> int:
    from barograph.ask.command import run_sql

    form = "json" if options.json else options.format
    return run_sql(options.query, dir=options.dir, format=form, out=options.out, schema=options.schema)


def _mcp(options: argparse.Namespace) -> int:
    from barograph.ask.command import run_mcp

    return run_mcp(options.dir)
