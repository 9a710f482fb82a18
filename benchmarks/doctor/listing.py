"""Prints what the fault bench has, as tables.

    python benchmarks/doctor/listing.py [programs|faults|healthy] [--program NAME]

In:   the tables of faults and healthy variants, the programs' first lines.
Out:  a row for each program, fault or healthy variant; of a fault one of the words for its true cause.
"""

from __future__ import annotations

import argparse
import ast
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from faults import FAULTS
from halves import half_of
from healthy import ALL, HEALTHY
from putaway import part_of

PROGRAMS = Path(__file__).resolve().parent / "programs"


def programs() -> Iterator[tuple[str, ...]]:
    """Each program, the half that it came with, and what it is."""
    for program in ALL:
        half = half_of(program)
        tree = ast.parse((PROGRAMS / f"{program}.py").read_text(encoding="utf-8"))
        came = half.__name__.rpartition(".")[2] if half is not None else "first"
        yield program, came, part_of(program, "") or "first", (ast.get_docstring(tree) or "").splitlines()[0]


def faults() -> Iterator[tuple[str, ...]]:
    for fault in FAULTS.values():
        yield fault.name, fault.begins, ", ".join(fault.programs), fault.about, fault.cause


def healthy() -> Iterator[tuple[str, ...]]:
    for one in HEALTHY.values():
        yield one.name, "near miss" if one.near_miss else "", ", ".join(one.programs), one.about


TABLES = {
    "programs": (programs, ("program", "half", "part", "what it is"), 0),
    "faults": (faults, ("fault", "begins", "programs", "what it does", "true cause"), 2),
    "healthy": (healthy, ("variant", "", "programs", "what it is"), 2),
}
"""What is listed by, its columns, and which of them has programs."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Prints what the fault bench has, as tables.")
    parser.add_argument("what", nargs="?", default="programs", choices=sorted(TABLES))
    parser.add_argument("--program", default="", help="what this program has alone")
    options = parser.parse_args(arguments)
    if options.program and options.program not in ALL:
        raise SystemExit(f"no program {options.program}: `listing.py programs` lists them")
    rows, columns, where = TABLES[options.what]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows():
        if not options.program or options.program in row[where].split(", "):
            print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it without a word
    main()
