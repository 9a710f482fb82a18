"""Writes the files that are made from the code.

    python docs/generate.py

In:   the package: its options, rules, tables of SQL, devices.
Out:  the tables in docs/reference/options.md, docs/reference/throughput.md, docs/guides/sql.md and docs/doctor.md,
      docs/rules/ and docs/sources.md; the typed options, src/barograph/core/arguments.py; the page's types of what the
      server answers, web/src/api/types.ts. Tests compare each with the code.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from barograph.core.options import options_table
from barograph.doctor import pages
from barograph.probes.speed.peaks import peaks_table
from barograph.query.tables import schema_markdown

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def replace_table(page: Path, table: str) -> None:
    """Puts a table in the place of the one with the same first line."""
    lines = table.rstrip("\n").splitlines()
    pattern = re.compile(rf"^{re.escape(lines[0])}\n(?:\|.*\n?)*", re.MULTILINE)
    text, count = pattern.subn(lambda _: "\n".join(lines) + "\n", page.read_text(), count=1)
    if not count:
        raise SystemExit(f"{page.relative_to(ROOT)} has no table that begins with {lines[0]}")
    page.write_text(text)


def main() -> None:
    replace_table(DOCS / "reference" / "options.md", options_table())
    replace_table(DOCS / "reference" / "throughput.md", peaks_table())
    replace_table(DOCS / "doctor.md", pages.index())
    pages.write(DOCS / "rules")
    sql = DOCS / "guides" / "sql.md"
    schema = f"## Tables\n\n{schema_markdown().strip()}\n\n## Filters\n"
    sql.write_text(re.sub(r"## Tables\n.*## Filters\n", lambda _: schema, sql.read_text(), flags=re.DOTALL))
    types = subprocess.run(
        [sys.executable, ROOT / "tests" / "option_types.py"], capture_output=True, text=True, check=True
    )
    (ROOT / "src" / "barograph" / "core" / "arguments.py").write_text(types.stdout)
    page = ROOT / "web" / "src" / "api" / "types.ts"
    subprocess.run([sys.executable, "-m", "barograph.views.server.typescript", page], check=True)


if __name__ == "__main__":
    main()
