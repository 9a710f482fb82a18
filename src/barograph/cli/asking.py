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
    parser = commands.add("sql", _sql, "understand", "query runs, metrics, settings and findings with SQL")
    parser.add_argument("query", nargs="?", metavar="SELECT", help="one SELECT statement, in DuckDB's dialect")
    parser.add_argument(
        "--format",
        choices=("table", "csv", "json", "parquet"),
        help="the format (default: table, or by the ending of --out)",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write there instead of printing")
    parser.add_argument("--schema", action="store_true", help="print the tables and their columns, and stop")
    commands.common(parser, run=False)

    parser = commands.add("mcp", _mcp, "understand", "give a coding assistant read access to the runs (MCP)")
    commands.common(parser, run=False, as_json=False)


def _sql(options: argparse.Namespace) -> int:
    from barograph.views.tables.sql import run_sql

    form = "json" if options.json else options.format
    return run_sql(options.query, dir=options.dir, format=form, out=options.out, schema=options.schema)


def _mcp(options: argparse.Namespace) -> int:
    from barograph.views.assistant.mcp import run_mcp

    return run_mcp(options.dir)
