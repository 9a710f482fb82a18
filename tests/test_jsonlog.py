"""The log file is a whole JSON array at every instant, and what was logged is there after any end."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.core.record import Record, decode, encode
from barograph.log.array import PAGE
from barograph.log.parts import split
from barograph.log.read import LogFileBusy, LogFileError, read_log, records_from, records_of
from barograph.log.write import JsonLog


def strict(path: Path) -> list[dict]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def record(step: int, **fields: object) -> bytes:
    return encode(Record("metrics", 1_700_000_000_000_000 + step, step, fields))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "training.json"


def test_a_new_log_is_an_empty_array(path: Path) -> None:
    log = JsonLog(path)
    assert strict(path) == []
    log.close()
    assert path.read_text() == "[\n]\n"


def test_the_file_is_strict_json_after_every_single_record(path: Path) -> None:
    log = JsonLog(path)
    for step in range(300):
        log.append(record(step, text="x" * (step * 37 % 5000), loss=math.nan))
        assert sorted({item["step"] for item in strict(path)}) == list(range(step + 1))
    log.close()
    assert sorted({item["step"] for item in strict(path)}) == list(range(300))


@pytest.mark.parametrize("kind", ["sample", "metrics", "info"])
def test_a_record_longer_than_a_page_is_written_in_pieces_that_fit_one(path: Path, kind: str) -> None:
    fields = {"text": 'ä"\\\n\U0001f600' * 3000, "list": list(range(3000)), "number": 1.5, "nan": math.nan}
    log = JsonLog(path)
    log.append(record(0))
    log.append(encode(Record(kind, 10**15, 7, fields)))
    log.append(record(1))
    log.close()
    data = path.read_bytes()
    for item in strict(path):
        at = data.index(json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode()[:60])
        assert len(data[at : data.index(b"\n", at)]) <= PAGE
    for found in (read_log(path), [item.fields | {"step": item.step} for item, _ in records_from(path)]):
        together: dict = {}
        for item in found[1:-1]:
            together.update(item)
        assert together["text"] == fields["text"] and together["list"] == fields["list"] and together["step"] == 7
        assert math.isnan(together["nan"])
    assert len(list(records_of(path, {kind}))) == len(read_log(path)) - (0 if kind == "metrics" else 2)


def test_many_long_metrics_become_several_records_of_the_step(path: Path) -> None:
    values = {f"layer.{number}.weight": number / 7 for number in range(1000)}
    log = JsonLog(path)
    log.append(record(3, **values))
    log.close()
    assert {item["log"] for item in strict(path)} == {"metrics"}
    assert {item["step"] for item in strict(path)} == {3}
    assert {name: value for item in strict(path) for name, value in item.items() if name in values} == values


def test_pieces_that_a_kill_left_incomplete_count_for_nothing(path: Path) -> None:
    log = JsonLog(path)
    log.append(record(0))
    for piece in split(encode(Record("sample", 1, 1, {"text": "x" * 20_000})))[:-1]:
        log.append(piece)
    log.append(record(1))
    log.append(encode(Record("sample", 1, 2, {"text": "y" * 20_000})))
    log.close()
    assert [item["step"] for item in read_log(path)] == [0, 1, 2]
    assert [record.step for record, _ in records_from(path)] == [0, 1, 2]
    assert [record.step for record, _ in records_of(path, {"sample"})] == [2]


def test_closing_leaves_no_white_space_for_records_to_come(path: Path) -> None:
    log = JsonLog(path)
    log.append(b'{"log":"a"}')
    log.append(b'{"log":"b"}')
    log.close()
    assert path.read_bytes() == b'[\n{"log":"a"},\n{"log":"b"}\n]\n'


def test_a_record_that_fits_a_page_never_straddles_two(path: Path) -> None:
    log = JsonLog(path)
    ends = [log.append(record(step, text="x" * random.Random(step).randrange(1500))) for step in range(500)]
    data = path.read_bytes()
    for end in ends:
        begin = data.rfind(b"\n{", 0, end)
        assert begin // PAGE == (end - 1) // PAGE
    log.close()


def test_reopening_appends(path: Path) -> None:
    for step in range(5):
        log = JsonLog(path)
        log.append(record(step))
        log.close()
    assert [item["step"] for item in strict(path)] == [0, 1, 2, 3, 4]


def test_opening_a_log_again_in_the_same_process_takes_it_over_and_nothing_is_lost(path: Path) -> None:
    first = JsonLog(path)
    first.append(record(0))
    second = JsonLog(path)
    second.append(record(1))
    first.append(record(2))
    second.close()
    assert [item["step"] for item in strict(path)] == [0, 1, 2]


def test_another_process_writing_the_log_is_named_as_the_reason(path: Path) -> None:
    script = (
        "import sys, time; from barograph.log.write import JsonLog; log = JsonLog(sys.argv[1]); "
        "print('open', flush=True); time.sleep(30)"
    )
    other = subprocess.Popen([sys.executable, "-c", script, path], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None and other.stdout.readline() == b"open\n"
        with pytest.raises(LogFileBusy, match="another process"):
            JsonLog(path)
    finally:
        other.kill()
        other.communicate()


@pytest.mark.parametrize(
    "text", ["hello\n", '{"a": 1}', "[1, 2, 3]", '[{"a": 1}, {"b": 2}]', "step 1 loss 2\n" * 1000, "[[]]", "\x00\x01"]
)
def test_a_file_that_is_no_log_is_refused_with_a_sentence_and_left_alone(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(LogFileError, match="move it away or choose another log_file"):
        JsonLog(path)
    assert path.read_text() == text


def test_an_empty_file_becomes_a_log(path: Path) -> None:
    path.write_bytes(b"")
    log = JsonLog(path)
    log.append(record(1))
    log.close()
    assert len(strict(path)) == 1


def test_other_writers_logs_with_records_over_several_lines_are_appended_to(path: Path) -> None:
    path.write_text(json.dumps([{"log": "step", "step": 1, "list": [1, 2]}, {"log": "eval", "step": 2}], indent=2))
    log = JsonLog(path)
    log.append(record(3))
    log.close()
    assert [item["step"] for item in strict(path)] == [1, 2, 3]


def test_a_log_cut_anywhere_is_repaired_and_what_was_whole_stays(tmp_path: Path) -> None:
    path = tmp_path / "whole.json"
    log = JsonLog(path)
    ends = [log.append(record(step, nested={"a": [1, {"b": 2}]}, text="]},{[")) for step in range(6)]
    log.close()
    data = path.read_bytes()
    for cut in range(len(data)):
        torn = tmp_path / f"cut{cut}.json"
        torn.write_bytes(data[:cut])
        log = JsonLog(torn)
        log.append(record(99))
        log.close()
        whole = sum(end <= cut for end in ends)
        steps = [item["step"] for item in strict(torn) if item["log"] == "metrics"]
        assert steps == [*range(whole), 99], f"cut after byte {cut}"


def test_zeros_at_the_end_as_after_a_power_loss_are_repaired(path: Path) -> None:
    log = JsonLog(path)
    log.append(record(0))
    log.close()
    path.write_bytes(path.read_bytes()[:-3] + b"\0" * 5000)
    log = JsonLog(path)
    log.append(record(1))
    log.close()
    assert [item["step"] for item in strict(path) if item["log"] == "metrics"] == [0, 1]


def test_what_a_repair_takes_away_is_kept_beside_the_log(path: Path) -> None:
    path.write_bytes(b'[\n{"log":"a","step":1},\n{"log":"b","st')
    said: list[str] = []
    JsonLog(path, said.append).close()
    assert path.with_name("training.json.torn").read_bytes() == b',\n{"log":"b","st\n'
    assert "ended in the middle of a record" in said[0]


def test_threads_may_share_a_log(path: Path) -> None:
    log = JsonLog(path)

    def work(thread: int) -> None:
        for step in range(500):
            log.append(record(step, thread=thread))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    found = {(item["thread"], item["step"]) for item in strict(path)}
    assert found == {(thread, step) for thread in range(8) for step in range(500)}


def test_a_signal_handler_that_logs_in_the_middle_of_a_log_call_loses_nothing(path: Path) -> None:
    log = JsonLog(path)
    handled = []

    def handler(*_: object) -> None:
        handled.append(len(handled))
        log.append(record(len(handled), by="handler"))

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    try:
        for step in range(20_000):
            log.append(record(step, by="loop"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    log.close()
    items = strict(path)
    assert [item["step"] for item in items if item["by"] == "loop"] == list(range(20_000))
    assert sum(item["by"] == "handler" for item in items) == len(handled) > 0


def test_ctrl_c_in_the_middle_of_a_log_call_keeps_the_file_whole(path: Path) -> None:
    class Interrupt(BaseException):
        pass

    def handler(*_: object) -> None:
        raise Interrupt

    log = JsonLog(path)
    before = signal.signal(signal.SIGALRM, handler)
    returned = []
    step = 0
    until = time.monotonic() + 1.5
    try:
        while time.monotonic() < until:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0003)
                while True:
                    step += 1
                    log.append(record(step, text="x" * (step % 700)))
                    returned.append(step)
            except Interrupt:
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    log.close()
    steps = [item["step"] for item in strict(path)]
    assert len(set(steps)) == len(steps)
    assert set(returned) <= set(steps)


def test_a_follower_misses_no_record_that_is_written_between_two_pages_of_its_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = JsonLog(path)
    real, looks = os.pread, 0

    def torn(file: int, size: int, offset: int) -> bytes:
        """The first read takes a page, and the next one after the writer has filled both."""
        nonlocal looks
        looks += 1
        if looks > 1:
            return real(file, size, offset)
        page = real(file, PAGE, 0)
        for step in range(1, 40):
            log.append(encode(Record("metrics", 1, step, {"text": "x" * 200})))
        return page + real(file, size - len(page), len(page))

    log.append(encode(Record("metrics", 1, 0, {"text": "x" * 200})))
    monkeypatch.setattr("barograph.log.read.os.pread", torn)
    assert [record.step for record, _ in records_from(path)] == list(range(40))
    log.close()


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(0, 400))
@settings(max_examples=60, deadline=None)
def test_no_bytes_make_reading_fail(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], cut: int) -> None:
    path = tmp_path_factory.mktemp("damage") / "log.json"
    whole = b"[\n" + b",\n".join([record(1), *parts, record(2)]) + b"\n]\n"
    path.write_bytes(whole[: len(whole) - cut] if cut < len(whole) else whole)
    found = read_log(path)
    assert isinstance(found, list)
    for item, end in records_from(path):
        assert isinstance(item, Record)
        assert 0 < end <= len(whole)


FIELDS = st.dictionaries(
    st.text(max_size=30),
    st.one_of(
        st.floats(), st.integers(), st.booleans(), st.none(), st.text(max_size=200), st.lists(st.floats(), max_size=5)
    ),
    max_size=12,
)


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), FIELDS), max_size=12), st.data())
@settings(max_examples=80, deadline=None)
def test_any_records_cut_at_any_byte_come_back_whole_up_to_the_cut(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, dict]], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("any") / "log.json"
    log = JsonLog(path)
    records = [Record("metrics", 1_700_000_000_000_000 + at, step, fields) for at, (step, fields) in enumerate(rows)]
    ends = [log.append(encode(item)) for item in records]
    live = path.read_bytes()
    assert len(strict(path)) == len(rows)
    log.close()
    cut = data.draw(st.integers(0, len(live)))
    path.write_bytes(live[:cut])
    back = [item for item, _ in records_from(path)]
    whole = [item for item, end in zip(records, ends, strict=True) if end <= cut]
    assert [(item.step, item.time) for item in back[: len(whole)]] == [(item.step, item.time) for item in whole]
    assert decode(json.loads(encode(records[0]))).step == records[0].step if records else True


def test_a_disk_that_refuses_costs_one_sentence_and_records_wait_until_there_is_room(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    log = JsonLog(path, said.append)
    log.append(record(0))
    real = os.pwrite

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    for step in range(1, 50):
        log.append(record(step))
    assert len(said) == 1 and "No space left" in said[0]
    assert len(strict(path)) == 1
    monkeypatch.setattr(os, "pwrite", real)
    time.sleep(0.55)
    log.append(record(50))
    assert [item["step"] for item in strict(path)] == list(range(51))
    log.close()


def test_a_disk_that_takes_only_part_of_a_record_leaves_no_trace_of_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = JsonLog(path)
    log.append(record(0))
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[: len(data) // 2], at))
    log.append(record(1, text="y" * 300))
    monkeypatch.setattr(os, "pwrite", real)
    time.sleep(0.55)
    log.append(record(2))
    log.close()
    assert [item["step"] for item in strict(path)] == [0, 1, 2]


def test_a_deleted_folder_is_written_again_with_all_its_records(tmp_path: Path) -> None:
    path = tmp_path / "run" / "training.json"
    said: list[str] = []
    log = JsonLog(path, said.append)
    log.append(record(0))
    path.unlink()
    path.parent.rmdir()
    log.append(record(1))
    assert log.restore_if_deleted()
    log.append(record(2))
    log.close()
    assert [item["step"] for item in strict(path)] == [0, 1, 2]
    assert len(said) == 1 and "was deleted while the run went on" in said[0]


def test_logging_after_close_says_so_and_does_not_raise(path: Path) -> None:
    said: list[str] = []
    log = JsonLog(path, said.append)
    log.close()
    log.append(record(1))
    assert "is closed" in said[0]
    assert strict(path) == []


def test_read_log_turns_the_strings_for_non_finite_numbers_back_and_leaves_text_alone(path: Path) -> None:
    path.write_text('[{"log":"step","loss":"NaN","a":"Infinity","b":["-Infinity",1],"message":"NaN"}]')
    (item,) = read_log(path)
    assert math.isnan(item["loss"]) and item["a"] == math.inf and item["b"] == [-math.inf, 1]
    assert item["message"] == "NaN"


def test_records_with_bare_nan_and_inf_are_read_and_appended_to(path: Path) -> None:
    rows = [{"log": "step", "time": "2026-11-21 02:00:20", "step": step, "loss": 1.5} for step in range(3)]
    texts = [json.dumps(row) for row in rows]
    texts[1] = texts[1].replace("1.5", 'nan, "norm": -inf')
    for last in (3, 2):  # in the middle, at the end
        path.write_text("[\n  " + ",\n  ".join(texts[:last]) + "\n]\n")
        found = read_log(path)
        assert [item["step"] for item in found] == list(range(last))
        assert math.isnan(found[1]["loss"]) and found[1]["norm"] == -math.inf
        log = JsonLog(path)
        log.append(record(9))
        log.close()
        assert [item["step"] for item in read_log(path)] == [*range(last), 9]
        assert not path.with_name("training.json.torn").exists()
