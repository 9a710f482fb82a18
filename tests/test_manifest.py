"""The manifest and the checkpoints' metadata: whole or not there, merged without loss, NaN and all."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from patience import patient

from barograph.core import manifest
from barograph.core.manifest import FILE, add_checkpoint, last_checkpoint, read, read_checkpoint, update, write
from barograph.core.manifest import write_checkpoint as checkpoint


def strict(path: Path) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(path.read_text(), parse_constant=refuse)


# -- the manifest


def test_what_is_written_is_read_back_in_the_documented_order(tmp_path: Path) -> None:
    content = {"own": 1, "config": {"model": {"width": 64, "layers": [1, 2]}}, "status": "running", "id": "r1"}
    write(tmp_path, content)
    assert read(tmp_path) == content
    assert list(strict(tmp_path / FILE)) == ["id", "status", "config", "own"]
    assert (tmp_path / FILE).read_text().startswith('{\n  "id": "r1"')
    assert os.listdir(tmp_path) == [FILE]


def test_numbers_that_are_not_finite_are_strict_json_and_come_back(tmp_path: Path) -> None:
    write(tmp_path, {"final_metrics": {"loss": math.nan, "best": [math.inf, -math.inf]}, "cost": 1.5})
    assert strict(tmp_path / FILE)["final_metrics"] == {"loss": "NaN", "best": ["Infinity", "-Infinity"]}
    found = read(tmp_path)
    assert math.isnan(found["final_metrics"]["loss"])
    assert found["final_metrics"]["best"] == [math.inf, -math.inf] and found["cost"] == 1.5


def test_text_that_looks_like_a_number_stays_text(tmp_path: Path) -> None:
    texts = {
        "id": "NaN",
        "name": "Infinity",
        "tags": ["NaN"],
        "notes": "NaN",
        "config": {"missing": "nan", "name": "NaN"},
    }
    write(tmp_path, texts)
    assert read(tmp_path) == texts


def test_hostile_values_are_still_strict_json(tmp_path: Path) -> None:
    write(tmp_path, {"config": {"huge": 10**40, "half": "\ud800", 3: "three", 'quo"te\n': "\0", "odd": object()}})
    assert strict(tmp_path / FILE)["config"]["huge"] == 10**40
    assert read(tmp_path)["config"]["3"] == "three"


def test_update_replaces_whole_keys_and_keeps_the_others(tmp_path: Path) -> None:
    update(tmp_path, id="r", config={"a": 1})
    assert update(tmp_path, config={"b": 2}, status="finished") == {"id": "r", "config": {"b": 2}, "status": "finished"}
    assert read(tmp_path) == {"id": "r", "config": {"b": 2}, "status": "finished"}


def test_a_manifest_cut_anywhere_reads_as_empty(tmp_path: Path) -> None:
    write(tmp_path, {"id": "r", "config": {"text": 'a "quoted" }\n'}, "final_metrics": {"loss": 1.25}})
    whole = (tmp_path / FILE).read_bytes().rstrip()
    for cut in range(len(whole)):
        (tmp_path / FILE).write_bytes(whole[:cut])
        assert read(tmp_path) == {}


@pytest.mark.parametrize("content", [b"", b"[1]", b"3", b"\xff\xfe", b"\0" * 50, b"[" * 100_000, b'{"a":' * 5000])
def test_what_is_no_manifest_reads_as_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert read(tmp_path) == {}


def test_a_missing_manifest_or_folder_reads_as_empty(tmp_path: Path) -> None:
    assert read(tmp_path) == read(tmp_path / "none") == read("a\0b") == {}
    (tmp_path / FILE).mkdir()
    assert read(tmp_path) == {}


def test_a_damaged_manifest_is_kept_when_it_is_updated(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"id": "half')
    update(tmp_path, status="failed")
    assert read(tmp_path) == {"status": "failed"}
    assert (tmp_path / f"{FILE}.damaged").read_text() == '{"id": "half'


def test_a_manifest_that_cannot_be_read_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(OSError):
        update(tmp_path, id="r")
    assert (tmp_path / FILE).is_dir()


def test_a_folder_that_cannot_be_written_raises_and_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        write(tmp_path / "none", {"id": "r"})
    with pytest.raises(OSError):
        update(tmp_path / "none", id="r")
    with pytest.raises(OSError):
        write("/proc/self", {"id": "r"})


def test_a_failed_write_leaves_the_file_of_before_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"id": "before"})

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        update(tmp_path, id="after")
    assert read(tmp_path) == {"id": "before"} and os.listdir(tmp_path) == [FILE]


def test_the_manifest_which_holds_the_command_line_is_its_owners_to_read(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write(tmp_path, {})
    finally:
        os.umask(before)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("locks", [True, False], ids=["with file locks", "without"])
def test_threads_lose_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: bool) -> None:
    monkeypatch.setattr(manifest, "_LOCK_SECONDS", 60.0)
    if not locks:  # as on Windows
        monkeypatch.setattr(manifest, "fcntl", None)

    def work(name: str) -> None:
        for count in range(8):
            update(tmp_path, **{f"{name}-{count}": count})
            add_checkpoint(tmp_path, {"step": count, "path": name})

    threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = read(tmp_path)
    assert len(found.pop("checkpoints")) == 32
    assert set(found) == {f"t{number}-{count}" for number in range(4) for count in range(8)}


_UPDATES = """
import sys
from barograph.core import manifest
manifest._LOCK_SECONDS = 60.0  # a busy disk must not fail the test
for count in range(int(sys.argv[3])):
    manifest.update(sys.argv[1], **{f"{sys.argv[2]}{count % 40}": count, "config": {sys.argv[2]: "x" * 2000}})
"""


def _updating(folder: Path, name: str, times: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", _UPDATES, str(folder), name, str(times)])


def test_two_processes_lose_no_change_and_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    writers = [_updating(tmp_path, name, 40) for name in ("a", "b")]
    seen = 0
    while any(writer.poll() is None for writer in writers):
        if (tmp_path / FILE).exists():
            strict(tmp_path / FILE)
            seen += 1
    assert [writer.returncode for writer in writers] == [0, 0] and seen
    assert set(read(tmp_path)) == {"config"} | {f"{name}{count}" for name in "ab" for count in range(40)}


def test_a_killed_writer_leaves_a_whole_manifest_that_others_can_update(tmp_path: Path) -> None:
    for attempt in range(5):
        writer = _updating(tmp_path, "a", 1_000_000)
        before = (tmp_path / FILE).stat().st_mtime_ns if attempt else 0
        until = time.monotonic() + 20
        while not (tmp_path / FILE).exists() or (tmp_path / FILE).stat().st_mtime_ns == before:
            assert time.monotonic() < until
            time.sleep(0.001 * (attempt + 1))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        assert "a0" in strict(tmp_path / FILE)
        began = time.monotonic()
        update(tmp_path, attempt=attempt)  # the dead process holds no lock
        assert time.monotonic() - began < patient(0.9)
    assert read(tmp_path)["attempt"] == 4


def test_a_holder_that_hangs_costs_a_second_and_not_the_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "_LOCK_SECONDS", 0.05)
    with manifest.turn(tmp_path, manifest._lock, 1.0):
        update(tmp_path, id="r")
    assert read(tmp_path) == {"id": "r"}


def test_an_edit_fails_with_a_sentence_where_its_turn_never_comes(tmp_path: Path) -> None:
    lock = threading.Lock()
    with manifest.turn(tmp_path, lock, 1.0):
        message = pytest.raises(TimeoutError, match=r"has been writing in .* for 0.05 s; try again")
        with message, manifest.turn(tmp_path, lock, 0.05, or_fail=True):
            pytest.fail("two had the turn")
        with pytest.raises(TimeoutError), manifest.turn(tmp_path, threading.Lock(), 0.05, or_fail=True):
            pytest.fail("two processes had the turn")
    with manifest.turn(tmp_path, lock, 0.05, or_fail=True):
        pass


def test_a_file_system_without_locks_does_not_stop_an_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(manifest.fcntl, "flock", without)
    with manifest.turn(tmp_path, threading.Lock(), 0.05, or_fail=True):
        update(tmp_path, id="r")
    assert read(tmp_path) == {"id": "r"}


def test_a_checkpoint_saved_again_is_listed_once(tmp_path: Path) -> None:
    update(tmp_path, checkpoints="damaged by hand")
    add_checkpoint(tmp_path, {"step": 1, "path": "a.pt", "val_loss": 3.0})
    add_checkpoint(tmp_path, {"step": 2, "path": "b.pt"})
    add_checkpoint(tmp_path, {"step": 1, "path": "a.pt", "val_loss": 2.0})
    assert read(tmp_path)["checkpoints"] == [{"step": 2, "path": "b.pt"}, {"step": 1, "path": "a.pt", "val_loss": 2.0}]


def test_cost_is_hours_of_all_gpus_times_their_price() -> None:
    assert manifest.spent(1800.0, 8, 3.0) == {"wall_seconds": 1800.0, "gpu_hours": 4.0, "cost": 12.0}
    assert manifest.spent(1800.0, 0) == {"wall_seconds": 1800.0}, "no GPU is known, so no hours of one"


# three words stand for numbers in every file of ours, so text that is one of them comes back as the number
_words = st.text(st.characters(codec="utf-8"), max_size=8).filter(lambda text: text not in manifest._NON_FINITE)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3),
    max_leaves=10,
)


@given(_json)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_plain_value_survives(tmp_path: Path, value: Any) -> None:
    write(tmp_path, {"config": value})
    strict(tmp_path / FILE)
    assert repr(read(tmp_path)["config"]) == repr(value)  # repr: NaN equals NaN, 1.0 is not 1


# -- checkpoints


def test_metadata_has_the_documents_layout(tmp_path: Path) -> None:
    config = {"model": {"n_layer": 24}, "device_batch_size": 16, "total_batch_size": 524288, "lr": 0.02}
    loop = {"min_val_bpb": math.inf, "smooth_train_loss": 2.336916, "total_training_time": 5547.6}
    loader = {"pq_idx": 122, "rg_idx": 80, "epoch": 1}
    made = checkpoint(
        tmp_path / "model_005568.pt", step=5568, val_bpb=0.71, config=config, loader_state=loader, loop_state=loop,
        extra={"max_seq_len": 2048, "step": 0, "val_bpb": 0},
    )  # fmt: skip
    assert made == tmp_path / "meta_005568.json"
    written = strict(made)
    assert written.pop("time")
    assert written == {
        "step": 5568,
        "val_bpb": 0.71,
        "val_loss": None,
        "model_config": {"n_layer": 24},
        "user_config": config,
        "device_batch_size": 16,
        "total_batch_size": 524288,
        "max_seq_len": 2048,
        "dataloader_state_dict": loader,
        "loop_state": loop | {"min_val_bpb": "Infinity"},
        "checkpoint": "model_005568.pt",
    }
    found = last_checkpoint(tmp_path)
    assert found is not None and found["loop_state"] == loop and found["dataloader_state_dict"] == loader
    assert found["checkpoint_path"] == str(tmp_path / "model_005568.pt")
    assert found["metadata_path"] == str(made)
    assert read_checkpoint(made) == read_checkpoint(tmp_path / "model_005568.pt") == found


def test_the_highest_step_is_the_last_also_beyond_six_digits(tmp_path: Path) -> None:
    for step in (999_999, 1_000_000, 5):
        checkpoint(tmp_path / f"model_{step:06d}.pt", step=step, val_loss=1.0)
    found = last_checkpoint(tmp_path)
    assert found is not None and found["step"] == 1_000_000


def test_torn_metadata_is_passed_over(tmp_path: Path) -> None:
    checkpoint(tmp_path / "a.pt", step=1)
    for step, content in ((2, "[]"), (3, '{"step": "3"}'), (4, "")):
        (tmp_path / f"meta_{step:06d}.json").write_text(content)
    torn = checkpoint(tmp_path / "b.pt", step=5)
    torn.write_bytes(torn.read_bytes()[:-40])
    (tmp_path / "meta_000006.json").mkdir()
    (tmp_path / "meta_x.json").write_text('{"step": 7}')
    found = last_checkpoint(tmp_path)
    assert found is not None and found["step"] == 1
    assert read_checkpoint(torn) is None


def test_a_checkpoint_that_is_torn_or_gone_is_passed_over(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        (tmp_path / f"m{step}.pt").write_bytes(b"x" * 100)
        checkpoint(tmp_path / f"m{step}.pt", step=step)
    (tmp_path / "m3.pt").unlink()
    (tmp_path / "m2.pt").write_bytes(b"x" * 60)
    found = last_checkpoint(tmp_path)
    assert found is not None and found["step"] == 1
    assert read_checkpoint(tmp_path / "m2.pt") is None and read_checkpoint(tmp_path / "m1.pt") == found


def test_the_originals_metadata_is_read_with_its_bare_infinity(tmp_path: Path) -> None:
    (tmp_path / "meta_000100.json").write_text('{"step": 100, "loop_state": {"min_val_bpb": Infinity}}')
    found = read_checkpoint(tmp_path / "model_000100.pt")
    assert found is not None and found["loop_state"]["min_val_bpb"] == math.inf and "checkpoint_path" not in found


def test_a_checkpoint_without_a_number_in_its_name_is_found_by_its_name(tmp_path: Path) -> None:
    checkpoint(tmp_path / "latest.pt", step=3)
    checkpoint(tmp_path / "best.pt", step=2)
    checkpoint(tmp_path / "v2" / "latest.pt", step=9)  # its folder is made
    found = read_checkpoint(tmp_path / "best.pt")
    assert found is not None and found["step"] == 2
    assert read_checkpoint(tmp_path / "other.pt") is None
    checkpoint(tmp_path / "seed_2.pt", step=4)  # the number in a name need not be the step
    found = read_checkpoint(tmp_path / "seed_2.pt")
    assert found is not None and found["step"] == 4


def test_a_checkpoint_may_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-20").mkdir()
    assert checkpoint(tmp_path / "checkpoint-20", step=20) == tmp_path / "meta_000020.json"
    found = read_checkpoint(tmp_path / "checkpoint-20")
    assert found is not None and found["step"] == 20


def test_nothing_to_find_is_none(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none", Path("a\0b")):
        assert last_checkpoint(path) is None
        assert read_checkpoint(path / "model_000001.pt") is None


def test_a_name_that_leaves_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "meta_000001.json").write_text('{"step": 1, "checkpoint": "../../etc/passwd", "checkpoint_bytes": 1}')
    found = last_checkpoint(tmp_path)
    assert found is not None and "checkpoint_path" not in found


@pytest.mark.parametrize("step", [-1, 1.5, "3", None, 10**18])
def test_a_step_that_is_no_whole_number_is_one_sentence(tmp_path: Path, step: Any) -> None:
    with pytest.raises(ValueError, match="give a whole number from 0"):
        checkpoint(tmp_path / "a.pt", step=step)
    assert not os.listdir(tmp_path)


def test_a_numpy_step_is_a_step(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    assert checkpoint(tmp_path / "a.pt", step=numpy.int64(7)).name == "meta_000007.json"
