"""Damaged logs by the ten thousand: no importer may crash, hang, take more and more memory, or warn.

In:   nothing; small logs of every kind are made (`fuzz_seeds`). From a shell:
          python benchmarks/fuzz_import.py [--count 100000] [--seed 1] [--python INTERPRETER] [--keep FOLDER]
Out:  how many files were read, and each that was not: its number, its kind, what happened. Exit code 1 if there are
      any; they are kept in the folder, with what happened beside them.

Each file is a seed with a few damages: bits flipped, a cut, a piece of another log, lines in another order, numbers
that are too large, checksums made anew, values in a database. It is looked for and read as `barograph import` does;
the seed's own importer reads it also where nobody finds it. Each 25th goes through the whole import, twice: the
second must find nothing new. A number and a seed stand for the same damages in every run; what a tracker's library
has written differs from run to run.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SECONDS = 20.0  # of processor time for one file
MEGABYTES = 200.0  # more than before, because of one file
_WHOLE = 25  # each this many goes through the collector
_AT_ONCE = 500  # files in one process
_BY_KIND = {"own": "barograph_log", "wandb-file": "wandb_offline", "wandb-csv": "wandb_csv", "csv-comma": "csv"}

NUMBER = re.compile(rb"-?\d+\.?\d*(?:[eE][-+]?\d+)?")
ODD = (b"1e999", b"-1e999", b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809", b"1" * 400,
       b"1" * 5000, b"1e-400", b"nan", b"NaN", b"inf", b"-Infinity", b"0x10", b"1_000", b"1,000", b"", b"-", b"null",
       b"1e308", b"99999999999999", b"-1", b"1.7976931348623157e309", b"true", b'"', b"{", b"[" * 2000)  # fmt: skip


class Late(BaseException):
    """A file took too long."""


# -- damage ------------------------------------------------------------------------------------------


def damaged(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """A file as disks, copying, editors and programs of other versions leave them."""
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        data = chance.choice(DAMAGES)(data, others, chance)
    return data[:4_000_000]


def flip(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(chance.choice((1, 3, 30)) if made else 0):
        made[chance.randrange(len(made))] ^= 1 << chance.randrange(8)
    return bytes(made)


def cut(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def drop(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + data[at + chance.choice((1, 7, 100, 4096)) :]


def overwrite(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    at, length = chance.randrange(len(data) + 1), chance.choice((1, 4, 8, 512))
    return data[:at] + chance.choice((bytes, chance.randbytes, lambda n: b"\xff" * n))(length) + data[at + length :]


def splice(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    other = chance.choice(others)
    at, begin = chance.randrange(len(data) + 1), chance.randrange(len(other) + 1)
    return data[:at] + other[begin : begin + chance.choice((20, 500, 20_000))] + data[at:]


def repeat(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    piece = data[at : at + chance.choice((1, 20, 400))]
    return data[:at] + piece * chance.choice((2, 10, 2000)) + data[at:]


def shuffle(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    lines = data.split(b"\n")
    begin = chance.randrange(len(lines))
    some = lines[begin : begin + chance.choice((3, 20, 10_000))]
    chance.shuffle(some)
    return b"\n".join(lines[:begin] + some + lines[begin + len(some) :])


def replace_numbers(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    places = [match.span() for match in NUMBER.finditer(data[:200_000])]
    for begin, end in sorted(chance.sample(places, min(len(places), chance.choice((1, 4)))), reverse=True):
        data = data[:begin] + chance.choice(ODD) + data[end:]
    return data


def change_line_ends(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    return data.replace(b"\n", chance.choice((b"\r\n", b"\r", b" ", b"\n\n", b"")), chance.choice((1, 20, 10_000)))


DAMAGES = (flip, cut, drop, overwrite, splice, repeat, shuffle, replace_numbers, replace_numbers, change_line_ends)


def damage_events(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """An event file with damaged events whose checksums are right."""
    from wire_format import framed

    bodies, at = [], 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        bodies.append(data[at + 12 : at + 12 + length])
        at += length + 16
    for _ in range(chance.choice((1, 5))):
        number = chance.randrange(len(bodies))
        bodies[number] = damaged(bodies[number], others, chance)[:100_000]
    return b"".join(map(framed, bodies))


def damage_wandb(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """A W&B file with flipped bits and right checksums."""
    made, at = bytearray(flip(data[7:], others, chance)), 0
    made[:0] = data[:7]
    at = 7
    while at + 7 <= len(made):
        (length,) = struct.unpack_from("<H", data, at + 4)
        made[at + 4 : at + 7] = data[at + 4 : at + 7]
        struct.pack_into(
            "<I", made, at, zlib.crc32(bytes(made[at + 7 : at + 7 + length]), zlib.crc32(data[at + 6 : at + 7]))
        )
        at += 7 + length
    return bytes(made)


def damage_database(path: Path, chance: random.Random) -> None:
    """Values that no program of the tracker writes, in a whole database."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(chance.choice((1, 3, 10))):
            table = chance.choice(tables)
            columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
            value: Any = chance.choice((*ODD, None, -1, 2**63 - 1, 1e308, float("inf"), "", "{", "[1,", "\0"))
            if isinstance(value, bytes) and chance.random() < 0.7:
                value = value.decode()
            where = f"WHERE rowid % {chance.choice((1, 2, 17))} = 0"
            with contextlib.suppress(sqlite3.Error):
                connection.execute(f'UPDATE "{table}" SET "{chance.choice(columns)}" = ? {where}', (value,))
            if chance.random() < 0.05:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute(f'ALTER TABLE "{table}" DROP COLUMN "{chance.choice(columns)}"')
        connection.commit()


# -- one file ----------------------------------------------------------------------------------------


class Seeds:
    """The seeds and their files in memory."""

    def __init__(self, folder: Path):
        self.folders = sorted(path for path in folder.iterdir() if path.is_dir())
        self.files = {one: [path for path in sorted(one.rglob("*")) if path.is_file()] for one in self.folders}
        self.texts = [path.read_bytes() for files in self.files.values() for path in files if len(files) == 1]

    def write(self, number: int, seed: int, place: Path) -> tuple[str, Path]:
        """The damaged log of that number: its seed's name, and where it is."""
        chance = random.Random(f"{seed}/{number}")
        source = self.folders[number % len(self.folders)]
        folder = place / source.name
        files = self.files[source]
        weights = [0.02 + (path.suffix in (".log", ".wandb", ".db", ".sqlite") or len(files) < 12) for path in files]
        [chosen] = chance.choices(files, weights)
        for path in files:
            to = folder / path.relative_to(source)
            to.parent.mkdir(parents=True, exist_ok=True)
            if path != chosen:
                os.link(path, to)
                continue
            if path.suffix in (".db", ".sqlite") and chance.random() < 0.5:
                shutil.copyfile(path, to)
                damage_database(to, chance)
                continue
            data = path.read_bytes()
            if ".tfevents." in path.name and chance.random() < 0.5:
                data = damage_events(data, self.texts, chance)
            elif path.suffix == ".wandb" and chance.random() < 0.5:
                data = damage_wandb(data, self.texts, chance)
            else:
                data = damaged(data, self.texts, chance)
            to.write_bytes(data)
        return source.name, folder


def read_one(folder: Path, name: str, whole: bool, runs: Path, read: Counter[str]) -> None:
    """Everything that `import` and `read` do with it; raises for what they must not do."""
    from barograph.importing.collect import collect
    from barograph.importing.registry import identify, sources
    from barograph.importing.source import FoundRun, Unread
    from barograph.query.stored import StoredRun

    problems: list[Unread] = []
    found = list(identify(folder, None, problems))
    for one in problems:
        assert " failed: " not in one.why, f"{one.file}: {one.why}"
    for source, one in found[:5]:
        read[source.kind] += 1
        drain(source, one)
    own = _own_kind(name)
    if own and all(source.kind != own for source, _ in found):
        files = [path for path in folder.rglob("*") if path.is_file()]
        source = next(one for one in sources() if one.kind == own)
        if len(files) == 1:
            drain(source, FoundRun(own, files[0], "", name))
    if whole:
        for source, one in found[:2]:
            made, tally = collect(source, one, runs)
            assert not tally.failure, tally.failure
            stored = StoredRun(made)
            for series in stored.names()[:50]:
                stored.series(series)
            again = collect(source, one, runs)[1]
            assert not again.added and not again.failure, f"read again it gave {again.added} more: {again.failure}"


def _own_kind(name: str) -> str:
    if name.startswith("text-"):
        stem = name.removeprefix("text-").partition(".")[0]
        kinds = {
            "llmq": "llmq_text",
            "surogate": "surogate_text",
            "hf_numbered": "hf_printed",
            "trainer_log": "llamafactory",
        }
        from barograph.importing.textlogs import SOURCES

        known = {one.kind for one in SOURCES} | {"mlperf"}
        return kinds.get(stem) or next((kind for kind in known if stem.startswith(kind)), "plain")
    return _BY_KIND.get(name, name if name in ("surogate", "huggingface", "tensorboard", "jsonl", "csv") else "")


def drain(source: Any, found: Any) -> None:
    """Read it all; what a source gives is as `importing/source.py` says."""
    from barograph.importing.source import ImportedPoints, ImportMark

    last: Any = None
    for item in source.read(found):
        if isinstance(item, ImportedPoints):
            assert item.values.shape == (len(item.steps), len(item.names)), source.kind
            assert len(item.times) == len(item.steps), source.kind
        last = item
    assert isinstance(last, ImportMark), f"{source.kind} ends with {last!r:.80}"


# -- many files --------------------------------------------------------------------------------------


def work(seeds: Seeds, seed: int, numbers: range, place: Path, keep: Path, told: int) -> Iterator[str]:
    """In a process of its own: read the files of these numbers; a line for each that went wrong, or the kinds read."""
    warnings.simplefilter("error")
    signal.signal(signal.SIGPROF, _too_late)
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    read: Counter[str] = Counter()
    for number in numbers:
        os.pwrite(told, struct.pack("<q", number), 0)
        here, runs = place / str(number), place / "runs"
        name, folder = seeds.write(number, seed, here)
        before = _peak()
        began = time.process_time()
        problem = ""
        try:
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            read_one(folder, name, number // len(seeds.folders) % _WHOLE == 0, runs, read)
        except Late:
            problem = f"took more than {SECONDS:.0f} s\n{traceback.format_exc()}"
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            problem = traceback.format_exc()
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        grown = _peak() - before
        if not problem and grown > MEGABYTES:
            problem = f"{grown:.0f} MB more memory, {time.process_time() - began:.1f} s"
        if problem:
            keep_it(here, keep, number, problem)
            yield f"{number} {name}: {problem.strip().splitlines()[-1]}"
        shutil.rmtree(here, ignore_errors=True)
        shutil.rmtree(runs, ignore_errors=True)
    yield "read " + " ".join(f"{kind}={count}" for kind, count in read.items())


def keep_it(folder: Path, keep: Path, number: int, problem: str) -> None:
    to = keep / str(number)
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    (to / "problem.txt").write_text(problem)


def _too_late(number: int, frame: Any) -> None:
    raise Late


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2)


def run(seeds: Seeds, seed: int, numbers: range, place: Path, keep: Path) -> tuple[list[str], Counter[str]]:
    """Read the files, some hundred in a process; one that dies or hangs is a fault of the file it was at."""
    faults: list[str] = []
    read: Counter[str] = Counter()
    at = numbers.start
    told = os.open(place / "at", os.O_RDWR | os.O_CREAT)
    while at < numbers.stop:
        some = range(at, min(at + _AT_ONCE, numbers.stop))
        lines = place / "lines"
        process = os.fork()
        if process == 0:
            faulthandler.enable()
            with open(lines, "w") as out:
                for line in work(seeds, seed, some, place, keep, told):
                    print(line, file=out, flush=True)
            os._exit(0)
        state = _wait(process, told)
        for line in lines.read_text().splitlines():
            if line.startswith("read "):
                read.update({kind: int(count) for kind, _, count in (one.partition("=") for one in line.split()[1:])})
            else:
                faults.append(line)
                print(line, flush=True)
        at = some.stop
        if state:
            (number,) = struct.unpack("<q", os.pread(told, 8, 0))
            keep_it(place / str(number), keep, number, state)
            shutil.rmtree(place / str(number), ignore_errors=True)
            faults.append(f"{number}: {state}")
            print(faults[-1], flush=True)
            at = number + 1
        print(f"{at:,} of {numbers.stop:,}, {len(faults)} faults", flush=True)
    os.close(told)
    return faults, read


def _wait(process: int, told: int) -> str:
    """Wait for a process that moves on from file to file; how it ended, "" if well."""
    last, since = b"", time.monotonic()
    while True:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return "" if status == 0 else f"the process ended with {os.waitstatus_to_exitcode(status)}"
        now = os.pread(told, 8, 0)
        if now != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since > 10 * SECONDS:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return "it hangs"
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000, help="files to read (default 100,000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first (default 0)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--python", default=sys.executable, help="interpreter that has aim, mlflow, trackio, wandb")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-faults"), help="folder for what goes wrong")
    options = parser.parse_args()
    import fuzz_seeds

    from barograph.importing.registry import sources

    sources()
    fast = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=fast if fast.is_dir() else None, prefix="fuzz-") as name:
        place = Path(name)
        (place / "seeds").mkdir()
        fuzz_seeds.make(place / "seeds", options.python)
        began = time.monotonic()
        numbers = range(options.first, options.first + options.count)
        faults, read = run(Seeds(place / "seeds"), options.seed, numbers, place, options.keep)
        took = time.monotonic() - began
    print(f"{len(numbers):,} files in {took:.0f} s; read as {', '.join(f'{k} {n:,}' for k, n in sorted(read.items()))}")
    print(f"{len(faults)} faults" + (f"; the files are in {options.keep}" if faults else ""))
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()
