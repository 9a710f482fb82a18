"""Aim's runs come in from its files alone: closed, killed, damaged, or while a training writes them."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tracker_programs import (
    ODD,
    check_items,
    damaged,
    facts,
    made,
    of_kind,
    points,
    run_program,
    series,
    start_program,
    write_records,
)

from barograph.importing import rocksdb
from barograph.importing.aim import SOURCE, _path, name_of
from barograph.importing.source import FoundRun, ImportedDistribution, ImportedPoints, ImportMark, Item, Unread

MAKE = """
import aim, numpy
for ending in ("closed", "killed"):
    run = aim.Run(repo=ending, experiment="exp é", system_tracking_interval=None, log_system_params=False,
                  capture_terminal_logs=False)
    run.name, run.description = "first", "about it"
    run.add_tag("seed")
    run["__system_params"] = {"env_variables": {"TOKEN": "secret"}}
    run["hparams"] = {"lr": 1.0, "gone": 1}
    run["hparams"] = {"lr": 3e-4, "layers": [1, 2, {"a": None}], "deep": {"x": True}}
    for step, values in json.load(open("logged.json")):
        run.track({name: float(value) for name, value in values.items() if name}, step=step)
    run.track(2, name="epochs", step=1)
    run.track(0.5, name="loss", step=3, context={"subset": "val"})
    run.track(0.25, name="loss", step=3, context={"subset": "val", "rank": 1})
    run.track(7.0, name="again", step=5)
    run.track(8.0, name="again", step=5)
    run.track(aim.Distribution(hist=numpy.array([1, 2, 3]), bin_range=(0.0, 3.0)), name="weights", step=8)
    run.track(aim.Text("hello"), name="sample", step=9)
    run.track(aim.Image(numpy.zeros((4, 4, 3), numpy.uint8)), name="picture", step=9)
    run.track(55.0, name="__system__cpu", step=0)
    if ending == "closed":
        run.close()
os._exit(0)
"""
EXTRA = {
    "epochs": [(1, "2.0")], "val/loss": [(3, "0.5")], "val/loss{rank=1}": [(3, "0.25")], "again": [(5, "8.0")],
}  # fmt: skip


def logged() -> list[tuple[int, dict[str, float]]]:
    return [*made(1, 30), (8000, {name: value for name, value in ODD.items() if name})]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("aim")
    folder = tmp_path_factory.mktemp("stores")
    write_records(folder / "logged.json", logged())
    run_program(MAKE, folder)
    return folder


def find(path: Path) -> list[FoundRun]:
    return list(SOURCE.find(path, b""))


def read(found: FoundRun, since: ImportMark | None = None) -> list[Item]:
    items = list(SOURCE.read(found, since))
    check_items(items)
    return items


@pytest.mark.parametrize("ending", ["closed", "killed"])
def test_every_point_of_aims_own_repository_comes_in(stores: Path, ending: str) -> None:
    [found] = find(stores / ending / ".aim")
    assert (found.name, found.project, found.tags, found.notes) == ("first", "exp é", ("seed",), "about it")
    assert found.config == {"lr": 3e-4, "layers": [1, 2, {"a": None}], "deep": {"x": True}}
    assert abs(found.created - time.time()) < 3600
    assert found.status == ("finished" if ending == "closed" else "running")
    items = read(found)
    expected = {name: sorted(rows) for name, rows in series(logged()).items()} | EXTRA
    found_points = points(items)
    [(_, cpu)] = found_points.pop("__system__cpu")
    assert cpu == "55.0" and found_points == expected
    assert all(abs(item.times[0] / 1e6 - time.time()) < 3600 for item in of_kind(items, ImportedPoints))
    [weights] = of_kind(items, ImportedDistribution)
    assert (weights.name, weights.step, weights.edges.tolist()) == ("weights", 8, [0.0, 1.0, 2.0, 3.0])
    assert weights.counts.tolist() == [1, 2, 3]
    assert [(fact.step, fact.fields) for fact in facts(items, "metrics")] == [(9, {"sample": "hello"})]
    assert [item.why for item in of_kind(items, Unread)] == ["values of the type aim.image were left out"]
    assert not points(read(found, items[-1]))


def test_the_databases_hold_what_aims_own_library_finds_in_them(stores: Path, tmp_path: Path) -> None:
    shutil.copytree(stores / "killed", tmp_path / "copy")
    body = """
        import aimrocks
        from barograph.importing.rocksdb import items
        for folder in sorted(Path("copy").glob(".aim/*/chunks/*")):
            ours = list(items(folder, print))
            iterator = aimrocks.DB(str(folder), aimrocks.Options(), read_only=True).iteritems()
            iterator.seek_to_first()
            assert ours == list(iterator) and len(ours) > 50
            print(len(ours))
    """
    printed, _ = run_program(body, tmp_path)
    assert len(printed.split()) == 2


def test_a_live_repository_is_read_without_its_lock_and_nothing_comes_twice(tmp_path: Path) -> None:
    pytest.importorskip("aim")
    body = """
        import aim
        run = aim.Run(repo=".", system_tracking_interval=None, log_system_params=False, capture_terminal_logs=False)
        print("go", flush=True)
        step = 0
        while step < 300 or not os.path.exists("stop"):
            run.track({"loss": step / 7, "lr": 1.0}, step=step)
            step += 1
        print(step, flush=True)
        os._exit(0)
    """
    with start_program(body, tmp_path) as program:
        assert program.stdout is not None
        program.stdout.readline()
        [found] = find(tmp_path / ".aim")
        items: list[Item] = []
        for _ in range(8):
            items += read(found, items[-1] if items else None)  # type: ignore[arg-type]
        (tmp_path / "stop").touch()
        steps = int(program.stdout.readline())
    items += read(found, items[-1])  # type: ignore[arg-type]
    assert points(items) == {
        "loss": [(step, repr(step / 7)) for step in range(steps)], "lr": [(step, "1.0") for step in range(steps)],
    }  # fmt: skip
    assert not of_kind(items, Unread)


def test_damaged_repositories_cost_sentences_and_no_crash(stores: Path, tmp_path: Path) -> None:
    shutil.copytree(stores / "killed" / ".aim", tmp_path / ".aim")
    files = [path for path in (tmp_path / ".aim").rglob("*") if path.is_file() and path.stat().st_size]
    generator, kept = random.Random(7), 0
    for _ in range(60):
        file = generator.choice(files)
        whole = file.read_bytes()
        file.write_bytes(damaged(whole, generator))
        for found in find(tmp_path / ".aim"):
            kept += sum(map(len, points(read(found)).values()))
        file.write_bytes(whole)
    assert kept > 30 * sum(map(len, series(logged()).values()))


def test_a_repository_is_known_by_its_folders_alone(tmp_path: Path) -> None:
    (tmp_path / ".aim" / "meta").mkdir(parents=True)
    assert not find(tmp_path) and not find(tmp_path / ".aim") and not find(tmp_path / "missing")
    for part in ("meta", "seqs"):
        (tmp_path / ".aim" / part / "chunks" / "abc").mkdir(parents=True)
    [found] = find(tmp_path / ".aim")
    assert (found.key, found.name) == ("abc", "abc")
    assert of_kind(read(found), Unread), "a run without its databases is told"


def test_contexts_stand_where_people_look_for_them() -> None:
    assert name_of("loss", {}) == "loss"
    assert name_of("loss", {"subset": "val"}) == "val/loss"
    assert name_of("val/loss", {"subset": "val"}) == "val/loss"
    assert name_of("loss", {"subset": "val", "rank": 1, "of": "a"}) == "val/loss{rank=1,of=a}"


@given(st.lists(st.text(min_size=1) | st.integers(-(2**63), 2**63 - 1), max_size=6))
def test_keys_of_text_and_numbers_come_apart_again(parts: list[str | int]) -> None:
    encoded = b"".join(
        (part.encode() if isinstance(part, str) else b"\xfe" + part.to_bytes(8, "big", signed=True)) + b"\xfe"
        for part in parts
    )
    assert _path(encoded) == tuple(parts)


# -- RocksDB's log, without its tables ------------------------------------------------------------


def log_file(writes: list[bytes]) -> bytes:
    """Batches as db/log_writer.cc frames them; check sums are not looked at."""
    out = b""
    for batch in writes:
        begun = False
        while True:
            room = 32768 - len(out) % 32768
            if room < 7:
                out += bytes(room)
                continue
            part, batch = batch[: room - 7], batch[room - 7 :]
            kind = (3 if batch else 4) if begun else (2 if batch else 1)
            out += struct.pack("<IHB", 0, len(part), kind) + part
            begun = True
            if not batch:
                break
    return out


def number(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def put(sequence: int, key: bytes, value: bytes) -> bytes:
    body = b"\1" + number(len(key)) + key + number(len(value)) + value
    return struct.pack("<QI", sequence, 1) + body


def delete_range(sequence: int, begin: bytes, end: bytes) -> bytes:
    return struct.pack("<QI", sequence, 1) + b"\x0f" + number(len(begin)) + begin + number(len(end)) + end


def database(folder: Path, log: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "MANIFEST-000001").write_bytes(log_file([b"\x02\x03"]))  # the first log that counts is 3
    (folder / "CURRENT").write_text("MANIFEST-000001\n")
    (folder / "000003.log").write_bytes(log)
    (folder / "000002.log").write_bytes(log_file([put(1, b"old", b"1")]))
    return folder


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 70_000), st.booleans()), max_size=8))
def test_a_log_gives_the_newest_of_each_key_and_nothing_deleted(writes: list[tuple[str, int, bool]]) -> None:
    import tempfile

    batches, expected = [], {}
    for sequence, (letter, size, is_deletion) in enumerate(writes, 1):
        key = letter.encode()
        if is_deletion:
            batches.append(delete_range(sequence, key, chr(ord(letter) + 2).encode()))
            expected = {one: value for one, value in expected.items() if not key <= one < bytes([key[0] + 2])}
        else:
            batches.append(put(sequence, key, bytes(size)))
            expected[key] = bytes(size)
    with tempfile.TemporaryDirectory() as folder:
        told: list[object] = []
        found = dict(rocksdb.items(database(Path(folder), log_file(batches)), lambda *place: told.append(place)))
    assert found == expected and not told


def test_a_torn_log_gives_what_is_whole(tmp_path: Path) -> None:
    whole = [put(sequence, b"key%03d" % sequence, bytes(1000)) for sequence in range(1, 101)]
    log = log_file(whole)
    for cut in range(0, len(log), 977):
        found = list(rocksdb.items(database(tmp_path / "db", log[:cut]), lambda *place: None))
        assert len(found) in (cut // 1030, cut // 1030 - 1, cut // 1030 + 1)


def test_importing_needs_no_aim(stores: Path) -> None:
    program = (
        "import sys; sys.modules['aim'] = sys.modules['aimrocks'] = None\n"
        "from pathlib import Path; from barograph.importing.aim import SOURCE\n"
        "print(sum(1 for found in SOURCE.find(Path(sys.argv[1]), b'') for item in SOURCE.read(found)))"
    )
    path = str(stores / "closed" / ".aim")
    out = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert int(out.stdout) > 10
