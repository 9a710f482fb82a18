"""Runs on a ClickHouse server of its own: how fast they are sent, how large they are, how fast they are asked for.

    python benchmarks/fleet.py [ingest] [rest] [questions] [ranks] [kills] [--points MILLIONS] [--minutes M]

Needs `clickhouse-server` on the path; server and load share the machine's cores.

ingest      runs of 1,000 series × 20,000 steps, sealed before the clock starts, sent by `push`; in turns with it the
            same columns prepared in memory and inserted bare.
rest        bytes a point at rest, merged: those runs' and a usual run's, with its numbers in the log too or in columns
            alone, on this server, on one that is configured to compress by ZSTD, and on today's engine (chdb), where it
            is installed.
questions   with all of these points on the server: one series to 1,000 exact buckets; the table of 10,000 runs with
            last values of 5 metrics.
ranks       1,024 ranks on 128 simulated hosts, each host with a folder and a sender of its own: 50 metrics a second and
            rank are logged for M minutes; then points are counted on the server. Memory of the process that has all
            writers and senders, as it is at each second; another one seals, as beside a training.
kills       a run that is sent while it is written, and the server killed and started again 20 times.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import multiprocessing
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from clickhouse_server import Server
from written_runs import WrittenRun

import barograph
from barograph.core.columns import buckets
from barograph.core.damage import Problems
from barograph.store.clickhouse import native, schema
from barograph.store.clickhouse.answers import read_points, read_runs
from barograph.store.clickhouse.batches import PartRows
from barograph.store.clickhouse.client import Client, ServerError
from barograph.store.clickhouse.push import push
from barograph.store.clickhouse.send import RunSender
from barograph.store.folder import Folder
from barograph.store.part import GroupCache, numbers
from barograph.store.seal import seal

NAMES, STEPS = 1000, 20_000
PART = NAMES * STEPS


def write_run(root: Path, name: str, seed: int) -> Path:
    """A run of 20 million points, sealed."""
    generator = numpy.random.default_rng(seed)
    names = [f"layers/{number // 8}/statistic_{number % 8}" for number in range(NAMES)]
    run = barograph.init(project="p", id=name, dir=str(root), verbosity=-2, git=False, sidecar=False, machine=False)
    level = numpy.ones(NAMES)
    for step in range(STEPS):
        level = (level + generator.normal(0, 0.01, NAMES)).astype(numpy.float32)
        run.log(dict(zip(names, level.astype(float).tolist(), strict=True)), step=step)
    run.finish()
    seal(run.dir, final=True)
    return Path(run.dir)


_BARE = """CREATE TABLE bare (project String, run String, name String, rank Int32, step Int64, time Int64,
value Float64) ENGINE = MergeTree ORDER BY (project, run, name, rank, step)"""


def rows_of(folder: Path) -> Iterator[tuple[bytes, int]]:
    """The run's points as bodies of INSERTs into a plain table, a row a point."""
    for home in sorted((folder / "store").iterdir()):
        for part in Folder(home, GroupCache(32 << 20), Problems()).parts("points") if home.is_dir() else ():
            for low in range(0, len(part.names), 25):
                names = part.names[low : low + 25]
                start, stop = int(part.starts[low]), int(part.starts[low + len(names)])
                held = {"step": "Int64", "time": "Int64", "value": "Float64"}
                tables = list(part.read(start, stop, tuple(held)))
                columns = {
                    name: native.numbers(kind, numpy.concatenate(
                        [array for table in tables for array in numbers(table, name)]))
                    for name, kind in held.items()
                }  # fmt: skip
                rows = stop - start
                counts = numpy.diff(part.starts[low : low + len(names) + 1]).tolist()
                columns |= {
                    "project": native.repeated(["p"], [rows]),
                    "run": native.repeated([folder.name], [rows]),
                    "name": native.repeated(names, counts),
                    "rank": native.constant("Int32", 0, rows),
                }
                yield native.block(rows, columns), rows


def bodies_of(folder: Path, project: str) -> Iterator[tuple[bytes, int]]:
    """The run's points as bodies of INSERTs."""
    for home in sorted((folder / "store").iterdir()):
        for part in Folder(home, GroupCache(32 << 20), Problems()).parts("points") if home.is_dir() else ():
            rows = PartRows(part, "points", project, folder.name, 1)
            before = 0
            for body in rows.bodies():
                yield body, rows.rows - before
                before = rows.rows


def ingest(server: Server, client: Client, root: Path, millions: int) -> None:
    sent, busy, bare, blocks = [], [], [], []
    other = server.client()
    other.run(_BARE)
    for number in range(max(1, millions * 1_000_000 // PART)):
        folder = write_run(root, f"r{number:03d}", number)
        began, busy_before = time.perf_counter(), time.process_time()
        points = push(folder, client).points
        sent.append(points / (time.perf_counter() - began))
        busy.append((time.process_time() - busy_before) / points * 1e6)
        if number < 3:
            bare.append(insert(other, "bare", rows_of(folder)))
            blocks.append(insert(other, "series", bodies_of(folder, "bare")))
    first = statistics.median(sent[:3])
    print(
        f"sent and confirmed: {statistics.median(sent) / 1e3:,.0f} thousand points a second over {len(sent)} runs of "
        f"{PART:,} (slowest {min(sent) / 1e3:,.0f}), {statistics.median(busy):.2f} µs of the process's CPU a point; "
        f"bare columnar inserts of a row a point: {statistics.median(bare) / 1e3:,.0f} thousand, "
        f"ratio {first / statistics.median(bare):.2f}; of the same arrays, prepared: "
        f"{statistics.median(blocks) / 1e3:,.0f} thousand, ratio {first / statistics.median(blocks):.2f}"
    )


def insert(client: Client, table: str, bodies: Iterator[tuple[bytes, int]]) -> float:
    """Points a second of bodies that are prepared while the clock stands."""
    taken = inserted = 0.0
    for body, rows in bodies:
        began = time.perf_counter()
        client.run(f"INSERT INTO {table} FORMAT Native", body)
        taken += time.perf_counter() - began
        inserted += rows
    return inserted / taken


def write_usual_run(root: Path, name: str = "usual", steps: int = 50_000, **options: Any) -> Path:
    """What a trainer logs: values of tensors, doubles of its own, counters, some of them seldom."""
    generator = numpy.random.default_rng(0)
    quiet: dict[str, Any] = {"verbosity": -2, "git": False, "sidecar": False, "machine": False}
    run = barograph.init(project="p", id=name, dir=str(root), **quiet, **options)
    for step in range(steps):
        tensors = numpy.float32(2 + generator.normal(0, 0.1, 24)) / numpy.arange(1, 25, dtype=numpy.float32)
        row = {f"train/statistic_{number}": value for number, value in enumerate(tensors.astype(float).tolist())}
        row |= {"train/lr": 3e-4 * (1 + math.cos(math.pi * step / steps)) / 2, "train/epoch": step // 5000}
        row |= {"train/step_time": 0.31 + generator.exponential(0.004), "train/tokens": step * 524_288}
        row |= {"train/tokens_per_second": 524_288 / (0.31 + generator.exponential(0.004)), "train/skipped": 0}
        row |= {f"gpu/{number}/memory": 71_000_000_000 + int(step > 9) * (number << 20) for number in range(8)}
        if step % 500 == 0:
            row |= {f"eval/{name}": float(numpy.float32(generator.normal(2))) for name in ("loss", "accuracy")}
        run.log(row, step=step)
    run.finish()
    seal(run.dir, final=True)
    return Path(run.dir)


_ZSTD = """<compression><case><min_part_size>0</min_part_size><min_part_size_ratio>0</min_part_size_ratio>
<method>zstd</method><level>3</level></case></compression>"""


def rest(root: Path) -> None:
    columns = write_usual_run(root, "usual-columns", wide_threshold=1)
    folders = [write_run(root, "layers", 0), write_usual_run(root), columns]
    zstd = Server(root / "zstd")
    zstd.configure(_ZSTD)
    plain = Server(root / "plain")
    for name, server in (("as installed", plain), ("compressing by ZSTD", zstd)):
        server.start()
        try:
            for folder in folders:
                client = server.client()
                version = client.version()
                points = push(folder, client).points
                client.run("OPTIMIZE TABLE series FINAL")
                size, logs = client.rows(
                    "SELECT sumIf(bytes, table = 'series'), sumIf(bytes, table = 'pieces') FROM system.parts "
                    f"WHERE active AND database = '{client.address.database}'"
                )[0]
                print(f"ClickHouse {version[0]}.{version[1]} {name}, {folder.name}: {int(size) / points:.2f} bytes a "
                      f"point at rest of {points:,}; its logs {int(logs) / points:.2f}; together "
                      f"{(int(size) + int(logs)) / points:.2f}")  # fmt: skip
        finally:
            server.stop()
    if importlib.util.find_spec("chdb") is not None:
        arguments = [sys.executable, __file__, "today", *map(str, folders)]
        subprocess.run(arguments, check=True)


def today(folders: list[Path]) -> None:
    """Bytes a point with today's engine, in this process."""
    from chdb.session import Session

    for folder in folders:
        with tempfile.TemporaryDirectory() as home:
            session = Session(home)
            version = str(session.query("SELECT version()", "TSV").bytes(), "ascii").strip()
            session.query("CREATE DATABASE fleet")
            numbers = version.split(".")
            place = schema.TablePlace("fleet")
            for statement in schema.statements(place, (int(numbers[0]), int(numbers[1]))):
                session.query(statement)
            total = 0
            for body, points in bodies_of(folder, "p"):
                Path(home, "rows.native").write_bytes(body)
                columns = ", ".join(column.name for column in schema.TABLES["series"].columns)
                session.query(f"INSERT INTO fleet.series ({columns}) SELECT {columns} FROM "
                              f"file('{home}/rows.native', Native)")  # fmt: skip
                total += points
            session.query("OPTIMIZE TABLE fleet.series FINAL")
            of_parts = "SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND table = 'series'"
            size = int(session.query(of_parts, "TSV").bytes())
            print(f"ClickHouse {version} (chdb), {folder.name}: {size / total:.2f} bytes a point at rest of {total:,}")
            session.close()


def questions(client: Client) -> None:
    held = int(client.rows("SELECT sum(rows) FROM batches")[0][0])
    run = client.rows("SELECT max(run) FROM runs")[0][0]
    name = client.rows(f"SELECT max(name) FROM summaries WHERE run = '{run}'")[0][0]

    def series() -> Any:
        points = read_points(client, "p", run, name)
        return buckets(points.step, points.value, 1000)

    print(f"one series of {STEPS:,} points among {held:,}, to 1,000 exact buckets: {_median(series):.0f} ms")
    registry = client.address.database
    fill_registry(client, 10_000)
    metrics = [f"metric/{number}" for number in range(5)]
    assert len(read_runs(client, metrics, "many")) == 10_000
    print(f"table of 10,000 runs with last values of 5 metrics ({registry}): "
          f"{_median(lambda: read_runs(client, metrics, 'many')):.0f} ms")  # fmt: skip


def fill_registry(client: Client, runs: int) -> None:
    names = [f"run-{number:05d}" for number in range(runs)]
    one = native.constant
    client.run("INSERT INTO runs FORMAT Native", native.block(runs, {
        "project": native.repeated(["many"], [runs]), "run": native.texts(names), "version": one("UInt64", 1, runs),
        "name": native.texts(names), "status": native.repeated(["finished"], [runs]),
        "created": native.numbers("Int64", numpy.arange(runs) + 1), "finished": one("Int64", 2, runs),
        "world_size": one("UInt32", 8, runs), "inherits": one("UInt8", 0, runs),
        "tags": native.text_lists([["sweep"]] * runs),
        "config": native.texts([f'{{"lr": {number / 1e6}, "width": 512, "seed": {number}}}' for number in range(runs)]),
    }))  # fmt: skip
    for metric in range(50):  # of a run's metrics five are asked for
        values = numpy.random.default_rng(metric).normal(size=runs)
        client.run("INSERT INTO summaries FORMAT Native", native.block(runs, {
            "project": native.repeated(["many"], [runs]), "run": native.texts(names),
            "name": native.repeated([f"metric/{metric}"], [runs]), "version": one("UInt64", 1, runs),
            "rank": one("Int32", 0, runs), "points": one("UInt64", 1000, runs), "finite": one("UInt64", 1000, runs),
            "first_step": one("Int64", 0, runs), "last_step": one("Int64", 999, runs),
            "last_time": one("Int64", 0, runs),
            **{name: native.numbers("Float64", values) for name in ("last", "minimum", "maximum", "mean")},
        }))  # fmt: skip


def _median(ask: Callable[[], Any], rounds: int = 9) -> float:
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        ask()
        taken.append((time.perf_counter() - began) * 1e3)
    return statistics.median(taken)


def ranks(server: Server, root: Path, minutes: float, hosts: int = 128, each: int = 8) -> None:
    """Every host has a sender; the logs are written by one thread, as fast as a rank would."""
    client = server.client()
    runs = [WrittenRun(root / str(host) / "p", "many") for host in range(hosts)]
    for host, run in enumerate(runs):
        if host:
            (run.dir / "run_manifest.json").unlink()
    writers = [run.rank(host * each + local) for host, run in enumerate(runs) for local in range(each)]
    ended = threading.Event()
    problems: list[str] = []

    def send(host: int) -> None:
        with server.client(client.address.database) as own:
            sender = RunSender(runs[host].dir, own, problems.append, senders=hosts)
            time.sleep(random.Random(host).random() * sender.pause)
            while not ended.is_set():
                sender.round()
                ended.wait(sender.pause)
            while not sender.round(final=True):
                time.sleep(1.0)

    threads = [threading.Thread(target=send, args=(host,)) for host in range(hosts)]
    sealer = multiprocessing.get_context("spawn").Process(target=seal_all, args=([run.dir for run in runs],))
    sealer.start()
    for thread in threads:
        thread.start()
    until, step, memory = time.monotonic() + minutes * 60, 0, []
    while time.monotonic() < until:
        began = time.monotonic()
        values = {f"metric/{number}": step + number / 50 for number in range(50)}
        for writer in writers:
            writer.metrics(step, **values)
        step += 1
        memory.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6)
        time.sleep(max(0.0, 1.0 - (time.monotonic() - began)))
    logged = time.monotonic()
    for run in runs:
        run.close()
    sealer.kill()
    sealer.join()
    ended.set()
    for thread in threads:
        thread.join()
    found = client.rows("SELECT count(), uniqExact((name, rank, step)), sum(value), uniqExact(rank) FROM all_points")[0]
    wanted = step * len(writers) * 50
    most = ", ".join(f"{max(part):.0f}" for part in numpy.array_split(memory, 6))
    print(
        f"{len(writers):,} ranks, {hosts} senders, {step} s of 50 metrics each: {wanted:,} points; on the server "
        f"{int(found[0]):,}, different {int(found[1]):,}: lost {wanted - int(found[1]):,}, doubled "
        f"{int(found[0]) - int(found[1]):,}; caught up {time.monotonic() - logged:.0f} s after the end; "
        f"{len(set(problems))} problems; memory of the process: {most} MB at most in each sixth of that time"
    )


def seal_all(folders: list[Path]) -> None:
    """What stands in logs alone becomes columns, run by run, again and again."""
    os.nice(19)
    while True:
        for folder in folders:
            seal(folder, final=True)


def kills(server: Server, root: Path, number: int = 20) -> None:
    client = server.client()
    run = WrittenRun(root / "killed" / "p", "killed")
    sender = RunSender(run.dir, server.client(client.address.database), lambda sentence: None, seconds=0.2)
    ended = threading.Event()

    def send() -> None:
        while not ended.is_set():
            seal(run.dir, final=True)
            sender.round()
            ended.wait(0.05)

    thread = threading.Thread(target=send)
    thread.start()
    step, chance = 0, random.Random(0)
    for _ in range(number):
        until = time.monotonic() + chance.uniform(0.5, 3.0)
        while time.monotonic() < until:
            for _ in range(50):
                run.rank().metrics(step, **{f"metric/{number}": step + number / 50 for number in range(50)})
                step += 1
            time.sleep(0.01)
        server.stop()
        time.sleep(chance.uniform(0.0, 0.5))
        server.start()
    run.end()
    ended.set()
    thread.join()
    while not sender.round(final=True):
        time.sleep(0.5)
    with server.client(client.address.database) as own:
        found = own.rows("SELECT count(), uniqExact((name, step)), sum(value) FROM all_points")[0]
    total = sum(each * 50 + 24.5 for each in range(step))
    assert abs(float(found[2]) - total) < 1e-6 * total
    print(f"server killed {number} times during a load of {step * 50:,} points: lost {step * 50 - int(found[1]):,}, "
          f"doubled {int(found[0]) - int(found[1]):,}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="ingest, rest, questions, ranks, kills; all of them")
    parser.add_argument("--points", type=int, default=200, metavar="MILLIONS")
    parser.add_argument("--minutes", type=float, default=1.0, help="of ranks; 1")
    options = parser.parse_args()
    if "MALLOC_ARENA_MAX" not in os.environ:  # a sender is a process of one thread; here one stands for many
        os.environ |= {"MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
        os.execv(sys.executable, [sys.executable, *sys.argv])
    if options.parts[:1] == ["today"]:
        return today([Path(folder) for folder in options.parts[1:]])
    parts = options.parts or ["ingest", "rest", "questions", "ranks", "kills"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        server = Server(root / "server")
        server.start()
        try:
            client = server.client()
            if "ingest" in parts:
                ingest(server, client, root / "runs", options.points)
            if "rest" in parts:
                rest(root / "rest")
            if "questions" in parts:
                questions(client)
            if "ranks" in parts:
                ranks(server, root / "ranks", options.minutes)
            if "kills" in parts:
                kills(server, root, 20)
        except ServerError as error:
            raise SystemExit(f"the server failed: {error}") from None
        finally:
            server.stop()


if __name__ == "__main__":
    main()
