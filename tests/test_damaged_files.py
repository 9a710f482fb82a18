"""Damaged files of a run: what they held is read from elsewhere, or every command that reads says what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from written_runs import WrittenRun

from barograph.cli import main
from barograph.query.stored import StoredRun
from barograph.store.seal import seal

WIDE = [f"act/{n}" for n in range(10)]


def sealed_run(root: Path, wide: bool) -> Path:
    """Four parts of 25 steps; block files are gone."""
    run = WrittenRun(root / "p")
    for step in range(100):
        run.rank(0).loss(step, float(step))
        if wide:
            run.rank(0).wide(step, **dict.fromkeys(WIDE, float(step)))
        if step % 25 == 24:
            seal(run.dir, final=True)
    run.end()
    seal(run.dir, final=True)
    assert not list(run.dir.glob("*.wide"))
    return run.dir


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x10
    path.write_bytes(data)


COMMANDS = [["export", "p/r", "--to", "csv"], ["doctor", "p/r"], ["show", "p/r"], ["sql", "select * from points"]]


@pytest.mark.parametrize("command", COMMANDS, ids=[command[0] for command in COMMANDS])
@pytest.mark.parametrize("wide", [False, True], ids=["in the log too", "nowhere else"])
@pytest.mark.parametrize("how", ["footer", "deleted"])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_part_that_cannot_be_read_is_named_and_what_the_log_has_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    command: list[str], wide: bool, how: str, number: int,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    folder = sealed_run(tmp_path, wide)
    part = folder / "store" / "training" / f"{number:06d}-{number:06d}.points.parquet"
    flip(part, -3) if how == "footer" else part.unlink()
    code = main([*command, "--dir", str(tmp_path)])
    said = capsys.readouterr().err
    assert StoredRun(folder).series("train/loss").step.tolist() == list(range(100))
    if wide:
        assert len(StoredRun(folder).series("act/3")) == 75
        assert "wide rows of 1 block file of training.json are missing" in said
    if how == "footer":
        assert part.name in said and "damaged" in said
    elif not wide:
        assert not said
    assert code == (1 if command[0] == "export" and wide else 0)
    if command[0] == "export":
        assert len((tmp_path / "r.csv").read_text().splitlines()) == 101
        assert main([*command, "--partial", "--dir", str(tmp_path)]) == 0


BYTES = [b"", b"\xee\0\xff", b"null", b"[]", b'{"a": ', b'{"lo\xee": 1}', b"\0" * 100]
SIDE_FILES = [
    "run_manifest.json", "curation.json", "segments/0001.json", "control.jsonl", "sidecar-host.lock",
    "store/training/writer.json", "store/training/heartbeat.json", "store/training/0001.sealed",
]  # fmt: skip


@pytest.mark.parametrize("content", BYTES)
@pytest.mark.parametrize("name", SIDE_FILES)
def test_no_bytes_in_a_side_file_make_a_run_unreadable(tmp_path: Path, name: str, content: bytes) -> None:
    folder = sealed_run(tmp_path, wide=True)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    stored = StoredRun(folder)
    assert stored.series("train/loss").step.tolist() == list(range(100))
    assert stored.series("act/3").step.tolist() == list(range(100))
    for command in (
        ["show", str(folder)],
        ["ls"],
        ["export", str(folder), "--to", "csv", "--out", f"{tmp_path}/o.csv"],
    ):
        assert main([*command, "--dir", str(tmp_path)]) == 0, command
    assert main(["gc", "--dir", str(tmp_path)]) == 0
    assert StoredRun(folder).series("train/loss").step.tolist() == list(range(100))
