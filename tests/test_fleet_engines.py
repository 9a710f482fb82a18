"""What is sent, fetched and asked of the oldest server is the same with today's engine, in a process of its own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import pathlib, re, sys
from chdb.session import Session

sys.path.insert(0, sys.argv[1])
root = pathlib.Path(sys.argv[2])
from test_contract import STATES
from test_fleet_answers import compare
from test_fleet_push import counts, everything, pull_all, push_all
from test_fleet_thinning import check_buckets, check_thinned
from barograph.query.stored import StoredRun
from barograph.store.clickhouse import answers, migrate, schema
from barograph.store.clickhouse.address import parse_address
from barograph.store.clickhouse.client import Client
from barograph.store.clickhouse.thinning import thin_run


class Engine(Client):
    def __init__(self):
        super().__init__(parse_address("clickhouse://nobody@nowhere/fleet"))
        self.session = Session(str(root / "engine"))

    def run(self, statement, data=None, *, database=True):
        if database:
            self.session.query("USE fleet")
        if data is not None and statement.endswith("FORMAT Native"):
            path = root / "rows.native"
            path.write_bytes(data)
            description = self.session.query(f"DESCRIBE file('{path}', Native)", "TSV").bytes().decode()
            columns = ", ".join(line.split("\\t")[0] for line in description.splitlines())
            table = re.fullmatch("INSERT INTO (\\\\w+) FORMAT Native", statement)[1]
            statement = f"INSERT INTO {table} ({columns}) SELECT {columns} FROM file('{path}', Native)"
        elif data is not None:
            statement += " " + data.decode()
        found = re.fullmatch("(.*) FORMAT (\\\\w+)", statement, re.DOTALL)
        if found:
            return self.session.query(found[1], found[2]).bytes()
        return self.session.query(statement, "TSV").bytes()


client = Engine()
assert client.version() >= (24, 1), client.version()
migrate.migrate(client)
for name, state in STATES.items():
    state(root / name)
    push_all(root / name, client)
    again = push_all(root / name, client)
    assert not any(sent.parts for sent in again), "what is there is not sent twice"
    for folder in sorted((root / name).iterdir()):
        compare(client, StoredRun(folder))
for folder in pull_all(client, root / "there"):
    assert everything(StoredRun(folder)) == everything(StoredRun(root / folder.parent.name / folder.name)), folder
run = StoredRun(root / "many_ranks" / "r")
compared = answers.read_ranks(client, run.project, run.id, run.names()[0])
assert compared.ranks.max() > 1 and (compared.minimum <= compared.maximum).all()
for name in ("many_ranks", "rewound_twice_and_sealed", "many_block_files"):
    before = StoredRun(root / name / "r")
    thin_run(client, name, "r", 10, confirmed=True)
    pull_all(client, root / "there")
    check_thinned(before, StoredRun(root / "there" / name / "r"), 10)
    check_buckets(client, before)
    assert not push_all(root / name, client)[0].parts, "what was thinned is not sent again"
print("done")
"""


def test_runs_are_sent_fetched_and_asked_for_with_todays_engine(tmp_path: Path) -> None:
    if importlib.util.find_spec("chdb") is None:
        pytest.skip("chdb is not installed: pip install chdb")
    arguments = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(tmp_path)]
    found = subprocess.run(arguments, capture_output=True, text=True)
    assert found.stdout.strip().endswith("done"), found.stderr[-3000:]
