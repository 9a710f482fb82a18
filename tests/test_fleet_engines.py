"""The SQL that the oldest server takes gives the same on today's engine, in a process of its own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import math, sys
import numpy
from chdb.session import Session
from barograph.store.clickhouse import batches, native, schema

session = Session(sys.argv[1])
session.query("CREATE DATABASE fleet")
version = tuple(int(word) for word in str(session.query("SELECT version()")).strip().strip('"').split(".")[:2])
assert version >= (24, 1), version
for statement in schema.statements(schema.TablePlace("fleet"), version):
    session.query(statement)


def insert(table, rows, columns):
    path = f"{sys.argv[1]}/rows.native"
    with open(path, "wb") as file:
        file.write(native.block(rows, columns))
    session.query(f"INSERT INTO fleet.{table} SELECT * FROM file('{path}', Native)")


def ask(query):
    return [line.split(",") for line in str(session.query(query)).strip().splitlines()]


rows = 6
step, time = numpy.array([-3, 0, 0, 5, 2**53, 6]), numpy.arange(rows) + 1_700_000_000_000_000
value = numpy.array([math.nan, -0.0, 0.0, math.inf, 5e-324, 0.1])
edges = [numpy.arange(row + 2.0) for row in range(rows)]
counts = [numpy.full(row + 1, math.pi) for row in range(rows)]
segment, rank = numpy.ones(rows, numpy.int32), numpy.full(rows, 3, numpy.int32)
common = {
    "project": native.repeated(["p"], [rows]), "run": native.repeated(["r"], [rows]),
    "name": native.repeated(["a", "\\u00fc"], [3, 3]), "rank": native.numbers("Int32", rank),
    "segment": native.numbers("Int32", segment), "step": native.numbers("Int64", step),
    "seq": native.constant("UInt32", 0, rows), "time": native.numbers("Int64", time),
    "batch": native.constant("UInt64", 7, rows),
}
insert("points", rows, common | {"value": native.numbers("Float64", value)})
insert("histograms", rows, common | {"edges": native.lists(edges), "counts": native.lists(counts)})
origin = {"step": step, "time": time, "segment": segment, "rank": rank}
for kind, held in (("points", {"value": value}), ("histograms", {"edges": edges, "counts": counts})):
    wanted = str(batches.checksum(**origin, **held))
    assert ask(f"SELECT {schema.checksum_sql(kind)} FROM fleet.{kind}") == [[wanted]], kind
assert ask("SELECT count() FROM fleet.all_points") == [["0"]], "nothing counts by itself"
batch = "INSERT INTO fleet.batches (project, run, log, kind, first, last, batch) VALUES ('p', 'r', 't', 'points', {})"
for numbers, counted in (("1, 1, 6", "0"), ("1, 1, 7", "6"), ("1, 1, 7", "6"), ("2, 2, 8", "6"), ("1, 2, 5", "0")):
    session.query(batch.format(numbers))
    assert ask("SELECT count() FROM fleet.all_points") == [[counted]], numbers
print("done")
"""


def test_schema_checksums_and_what_counts_are_the_same_on_todays_engine(tmp_path: Path) -> None:
    if importlib.util.find_spec("chdb") is None:
        pytest.skip("chdb is not installed: pip install chdb")
    found = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True)
    assert found.stdout.strip() == "done", found.stderr[-3000:]
