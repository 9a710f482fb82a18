"""Images, sound and tables of a run: kept whole or not at all, by every way back, and never in the loop's way."""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_starts import only, start, strict

import barograph
from barograph.cli import main
from barograph.core import media, png
from barograph.query.media import remove_unnamed

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")


def pixels(data: bytes) -> np.ndarray[Any, Any]:
    """A PNG's pixels, read by Pillow."""
    return np.asarray(Image.open(io.BytesIO(data)))


def plain_png(value: int = 0) -> bytes:
    return png.encode(bytes([value]) * 12, 2, 2, 3)


RED = np.zeros((5, 6, 3), np.uint8) + np.array([255, 0, 0], np.uint8)


def as_bytes(picture: Any) -> bytes:
    held = io.BytesIO()
    picture.save(held, format="PNG")
    return held.getvalue()


@pytest.mark.parametrize(
    "given",
    [
        RED,
        RED.astype(np.float64) / 255,
        RED.astype(np.float32),
        RED.astype(np.int64) * 2,
        torch.tensor(RED).permute(2, 0, 1),
        (torch.tensor(RED).permute(2, 0, 1) / 255).to(torch.bfloat16),
        torch.tensor(RED, requires_grad=False)[None],
        [RED],
        Image.fromarray(RED),
        Image.fromarray(RED).convert("P"),
        as_bytes(Image.fromarray(RED)),
    ],
)  # fmt: skip
def test_an_image_is_the_same_however_it_is_given(tmp_path: Path, given: Any) -> None:
    with start(tmp_path, strict=True) as run:
        run.log_image("a/b", given, 3, caption="red")
    (found,) = only(tmp_path).media("a/b")
    assert (found.step, found.type, found.caption, found.is_there) == (3, "image", "red", True)
    assert np.array_equal(pixels(found.read())[..., :3], RED)
    assert list(found.fields["shape"])[:2] == [5, 6]


def test_grey_images_masks_and_nan_become_pixels(tmp_path: Path) -> None:
    with start(tmp_path, strict=True) as run:
        run.log_image("grey", np.array([[0.0, 0.5], [1.0, np.nan]]), 0)
        run.log_image("mask", np.array([[True, False]]), 0)
        run.log_image("clear", np.full((2, 2, 4), 7, np.uint8), 0)
    found = {item.name: pixels(item.read()) for item in only(tmp_path).media()}
    assert found["grey"].tolist() == [[0, 128], [255, 0]] and found["mask"].tolist() == [[255, 0]]
    assert found["clear"].shape == (2, 2, 4)


def test_what_is_logged_is_what_it_was_when_it_was_logged(tmp_path: Path) -> None:
    picture, tensor, rows = np.full((2, 2), 9, np.uint8), torch.full((2, 2), 9, dtype=torch.uint8), [[1, "a"]]
    drawn = Image.new("L", (2, 2), 9)
    with start(tmp_path) as run:
        run.log_image("array", picture, 0)
        run.log_image("tensor", tensor, 0)
        run.log_image("drawn", drawn, 0)
        run.log_table("table", rows, 0)
        picture[:] = tensor[:] = 0
        drawn.putpixel((0, 0), 0)
        rows[0][0] = 2
        rows.append([3, "b"])
    back = only(tmp_path)
    for name in ("array", "tensor", "drawn"):
        assert (pixels(back.media(name)[0].read()) == 9).all(), name
    assert back.media("table")[0].table() == {"0": [1], "1": ["a"]}


def test_sound_is_a_file_that_pythons_own_reader_takes(tmp_path: Path) -> None:
    wave = pytest.importorskip("wave")
    tone = np.sin(np.arange(800) / 10)
    with start(tmp_path, strict=True) as run:
        run.log_audio("mono", tone, 0, rate=8000)
        run.log_audio("stereo", torch.tensor(np.stack([tone, -tone])), 0, rate=16_000)
        run.log_audio("whole", (tone * 32767).astype(np.int16), 0, rate=8000)
        run.log_audio("listed", [0.0, 2.0, -2.0], 0)
    found = {item.name: item for item in only(tmp_path).media(type="audio")}
    with wave.open(io.BytesIO(found["mono"].read())) as sound:
        assert (sound.getframerate(), sound.getnchannels(), sound.getnframes()) == (8000, 1, 800)
        samples = np.frombuffer(sound.readframes(800), "<i2")
    assert np.abs(samples / 32767 - tone).max() < 1e-4
    with wave.open(io.BytesIO(found["stereo"].read())) as sound:
        assert (sound.getnchannels(), sound.getnframes()) == (2, 800)
    assert found["listed"].fields["seconds"] == 3 / 16_000
    assert struct.unpack("<3h", found["listed"].read()[-6:]) == (0, 32767, -32767)


@pytest.mark.parametrize("shape", ["rows", "mappings", "columns", "pandas", "numpy"])
def test_a_table_is_the_same_however_it_is_given(tmp_path: Path, shape: str) -> None:
    columns = {"n": [1.0, 2.0], "x": [0.5, float("nan")]}
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    with start(tmp_path, strict=True) as run:
        match shape:
            case "rows":
                run.log_table("t", rows, 1, columns=columns)
            case "mappings":
                run.log_table("t", [dict(zip(columns, row, strict=True)) for row in rows], 1)
            case "columns":
                run.log_table("t", columns, 1)
            case "pandas":
                run.log_table("t", pytest.importorskip("pandas").DataFrame(columns), 1)
            case "numpy":
                run.log_table("t", np.array(rows), 1, columns=list(columns))
    (found,) = only(tmp_path).media("t")
    np.testing.assert_equal(found.table(), columns)


def test_a_table_holds_images_and_whatever_else_as_json(tmp_path: Path) -> None:
    with start(tmp_path, strict=True) as run:
        run.log_table("t", [[Image.fromarray(RED), {"a": [1, object]}, None, np.float32(2.5)]], 0)
    (found,) = only(tmp_path).media("t")
    image, other, nothing, number = (column[0] for column in found.table().values())
    assert np.array_equal(pixels((found.path.parents[1] / image["media"]).read_bytes()), RED)
    assert other["a"][0] == 1 and nothing is None and number == 2.5
    assert remove_unnamed(only(tmp_path).dir, only(tmp_path).log_files()) == 0


ODD: list[Any] = [
    None, 3, "/no/such/file", b"", b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", b"<html>", {}, [],
    np.zeros((2, 3, 5)), np.zeros(0), np.zeros((0, 4, 3)), torch.zeros(2, 5, 5, 7), object(), ["text"],
    torch.empty((3, 4, 4), device="meta"), np.array(["a"]), float("nan"),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(ODD)))
def test_no_call_raises_and_nothing_that_is_not_an_image_is_one(tmp_path: Path, at: int) -> None:
    with start(tmp_path) as run:
        run.log({"loss": 1.0}, 0)
        run.log_image(ODD[at], ODD[at], ODD[at], ODD[at])  # type: ignore[arg-type]
        run.log_audio("a", ODD[at], 1, rate=ODD[at])
        run.log_table("t", ODD[at], columns=ODD[at])
        run.data.file("f", ODD[at], 1)
    back = only(tmp_path)
    assert back.series("loss").value.tolist() == [1.0]
    strict(back.log_files()[0])
    assert not [item for item in back.media() if item.type in ("image", "audio")]
    assert all(item.is_there for item in back.media())


def test_a_type_is_decided_by_the_first_bytes_and_scripts_have_none(tmp_path: Path) -> None:
    pages = {"a.svg": b"<svg onload='alert(1)'/>", "b.html": b"<script>", "../../c.png": b"MZ", "d": plain_png()}
    with start(tmp_path) as run:
        for name, content in pages.items():
            run.data.file(name, content, 0, suffix=name)
    found = {item.name: item for item in only(tmp_path).media()}
    assert {item.type for name, item in found.items() if name != "d"} == {"file"} and found["d"].type == "image"
    assert {item.path.parent.name for item in found.values()} == {"media"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p"]


def test_too_much_is_left_out_with_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (8, 512, 512, 3), np.uint8)
    with caplog.at_level(logging.WARNING), start(tmp_path, media_mb=2) as run:
        for step, picture in enumerate(noise):
            run.log_image("noise", picture, step)
        run.data.file("large", b"x" * (media.ITEM_BYTES + 1), 0)
    said = [record.getMessage() for record in caplog.records if "media_mb" in record.getMessage()]
    assert len(said) == 1 and "2" in said[0]
    kept = only(tmp_path).media()
    assert [item.step for item in kept] == list(range(len(kept))) and 1 <= len(kept) < 8
    assert media.kept_bytes(only(tmp_path).dir) <= 2 << 20


def test_the_same_content_is_there_once(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        for step in range(5):
            run.log_image("same", RED, step)
            run.log_image("other name", RED, step)
    back = only(tmp_path)
    assert len(back.media()) == 10 and len(list((back.dir / "media").iterdir())) == 1


def test_a_rewind_and_a_resume_supersede_images_and_a_fork_has_its_sources(tmp_path: Path) -> None:
    with start(tmp_path, id="a") as run:
        for step in range(4):
            run.log({"loss": 1.0}, step)
            run.log_image("x", np.full((2, 2), step, np.uint8), step)
        run.rewind(2)
        run.log_image("x", np.full((2, 2), 200, np.uint8), 2)
    back = only(tmp_path)
    assert [item.step for item in back.media("x")] == [0, 1, 2]
    assert pixels(back.media("x", step=2)[0].read()).max() == 200
    assert len(back.media("x", branch="all")) == 5
    with start(tmp_path, id="a", resume=True, resume_step=1) as run:
        run.log({"loss": 1.0}, 1)
        run.log_image("x", np.full((2, 2), 100, np.uint8), 1)
    assert [item.step for item in only(tmp_path).media("x")] == [0, 1]
    fork = barograph.fork("a", step=1, dir=tmp_path, project="p", name="b", git=False, verbosity=-2)
    fork.log({"loss": 1.0}, 1)
    fork.log_image("x", np.full((2, 2), 50, np.uint8), 1)
    fork.finish()
    forked = barograph.StoredRun(fork.dir).media("x")
    assert [(item.step, item.is_there) for item in forked] == [(0, True), (1, True)]
    assert pixels(forked[1].read()).max() == 50


def test_ranks_keep_theirs_apart(tmp_path: Path) -> None:
    script = (
        "import sys, numpy, barograph; r = barograph.init(project='p', dir=sys.argv[1], id='x', verbosity=-2);"
        "r.log({'loss': 1.0}, 0); r.log_image('i', numpy.full((2, 2), 10 * r.rank + 1, 'uint8'), 0); r.finish()"
    )
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29999", "TORCHELASTIC_RUN_ID": "m"}
    started = [
        subprocess.Popen([sys.executable, "-c", script, tmp_path], env=os.environ | common | {"RANK": str(rank)})
        for rank in range(2)
    ]
    assert [process.wait(120) for process in started] == [0, 0]
    back = only(tmp_path)
    assert {item.rank: int(pixels(item.read()).max()) for item in back.media("i")} == {0: 1, 1: 11}
    assert [item.rank for item in back.media("i", rank=1)] == [1]


def test_a_kill_leaves_no_half_file_in_any_list(tmp_path: Path) -> None:
    script = (
        "import sys, numpy, barograph; r = barograph.init(project='p', dir=sys.argv[1], id='x', verbosity=-2)\n"
        "noise = numpy.random.default_rng(0)\n"
        "for step in range(10**6):\n"
        "    r.log({'loss': 1.0}, step)\n"
        "    r.log_image('i', noise.integers(0, 256, (256, 256, 3), numpy.uint8), step)\n"
        "    r.log_table('t', [[step]], step)\n"
        "    r._out.flush(1.0)\n"
        "    if step == 5: print('going', flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "going\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    back = only(tmp_path)
    found = back.media()
    assert len(found) >= 10
    for item in found:
        assert item.is_there
        if item.type == "image":
            assert pixels(item.read()).shape == (256, 256, 3)
        else:
            assert item.table() == {"0": [item.step]}
    (back.dir / "media" / f".{'0' * 32}.png.1-2").write_bytes(b"half")
    (back.dir / "media" / f"{'1' * 32}.png").write_bytes(b"nobody's")
    (back.dir / "media" / "mine.txt").write_text("a person's")
    before = len(back.media())
    main(["gc", "--dir", str(tmp_path)])
    assert len(back.media()) == before and all(item.is_there for item in back.media())
    left = {path.name for path in (back.dir / "media").iterdir()}
    assert "mine.txt" in left and not left & {f".{'0' * 32}.png.1-2", f"{'1' * 32}.png"}


def test_a_forked_child_keeps_its_own_and_leaves_the_parents_alone(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        run.log({"loss": 1.0}, 0)
        run.log_image("x", RED, 0)
        run._out.flush()
        child = os.fork()
        if child == 0:
            try:
                run.log_image("x", RED + 1, 1)
                run._out.flush()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        run.log_image("x", RED, 2)
    assert [item.step for item in only(tmp_path).media("x")] == [0, 1, 2]


def test_a_full_disk_costs_images_and_not_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with caplog.at_level(logging.WARNING), start(tmp_path) as run:
        monkeypatch.setattr(media, "keep", full)
        for step in range(3):
            run.log({"loss": 1.0}, step)
            run.log_image("x", RED, step)
    assert len([record for record in caplog.records if "No space left" in record.getMessage()]) == 1
    assert not only(tmp_path).media() and len(only(tmp_path).series("loss")) == 3


def test_a_record_cannot_lead_out_of_the_run(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        for path in ("media/../../secret", "/etc/passwd", "media/x.png", f"media/{'a' * 32}.png/../y", 3, None):
            run._out.record("media", 0, {"name": "n", "type": "image", "path": path, "bytes": 1})
        run._out.record("media", 0, {"name": "n", "type": "script", "path": f"media/{'a' * 32}.png", "bytes": 1})
        run._out.record("media", 0, {"name": "gone", "type": "image", "path": f"media/{'a' * 32}.png", "bytes": 1})
    (found,) = only(tmp_path).media()
    assert found.name == "gone" and not found.is_there


def test_the_commands_list_and_extract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with start(tmp_path, id="one") as run:
        run.log_image("eval/grid", [RED, RED + 1], 2, caption=["a", "b"])
        run.log_table("answers", [{"x": 1}], 2)
    assert main(["show", "one", "--dir", str(tmp_path), "--media"]) == 0
    assert capsys.readouterr().out.count("eval/grid") == 2
    assert main(["show", "one", "--dir", str(tmp_path), "--media", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 3
    out = tmp_path / "out"
    assert main(["export", "one", "--dir", str(tmp_path), "--to", "media", "--out", str(out)]) == 0
    names = {path.name for path in out.iterdir()}
    assert names == {"eval_grid_2.png", "eval_grid_2_2.png", "answers_2.table.json", "media.json"}
    assert np.array_equal(pixels((out / "eval_grid_2.png").read_bytes()), RED)
    os.remove(only(tmp_path).media("answers")[0].path)
    command = ["export", "one", "--dir", str(tmp_path), "--to", "media", "--out", str(tmp_path / "again")]
    assert main(command) == 1 and main([*command, "--partial"]) == 0
    assert main([*command, "--series", "eval/*"]) == 0


def test_a_run_that_is_moved_deleted_and_restored_takes_its_media_along(tmp_path: Path) -> None:
    with start(tmp_path, id="one") as run:
        run.log_image("x", RED, 0)
    assert main(["delete", "one", "--yes", "--dir", str(tmp_path)]) == 0
    assert main(["restore", "--dir", str(tmp_path)]) == 0
    assert only(tmp_path).media()[0].is_there
    shutil.move(only(tmp_path).dir, tmp_path / "p" / "two")
    assert np.array_equal(pixels(only(tmp_path).media()[0].read()), RED)


def test_other_tools_images_are_imported(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    with tensorboard.SummaryWriter(str(tmp_path / "tb")) as writer:
        for step in range(3):
            writer.add_scalar("loss", 1.0, step)
            writer.add_image("grid", torch.tensor(RED).permute(2, 0, 1), step)
    assert main(["import", str(tmp_path / "tb"), "--dir", str(tmp_path / "runs")]) == 0
    found = only(tmp_path / "runs").media()
    assert [(item.name, item.step, item.type, item.is_there) for item in found] == [
        ("grid", step, "image", True) for step in range(3)
    ]
    assert np.array_equal(pixels(found[0].read()), RED)
    assert main(["import", str(tmp_path / "tb"), "--dir", str(tmp_path / "runs")]) == 0
    assert len(only(tmp_path / "runs").media()) == 3


def test_a_png_of_ours_is_read_by_others(tmp_path: Path) -> None:
    for channels in (1, 2, 3, 4):
        data = bytes(range(3 * 5 * channels))
        back = pixels(png.encode(data, 5, 3, channels))
        assert back.tobytes() == data
        assert media.image_size(png.encode(data, 5, 3, channels)) == (3, 5)
    damaged = plain_png()[:20]
    assert media.image_size(damaged) is None
