"""Pages of every sort of run, printed; and where keys lead."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import barograph
from barograph.core.text import width
from barograph.sidecar.attend import attend
from barograph.views.top.command import top
from barograph.views.top.page import PAGES, Viewer
from barograph.views.top.place import TopPlace
from barograph.views.top.screen import plain


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """A page as `--once` prints it, at 80 × 24."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "25")

    def page(run: object, name: str = "overview", **more: object) -> str:
        assert top(None if run is None else str(run), once=True, page=name, **more) == 0  # type: ignore[arg-type]
        text = capsys.readouterr().out
        lines = text.splitlines()
        assert len(lines) <= 24 and all(width(line) <= 80 for line in lines), text
        return text

    return page


def _run(folder: Path, name: str = "r", steps: int = 40, **more: object) -> barograph.Run:
    run = barograph.init(project="p", name=name, dir=folder, verbosity=-2, machine=False, git=False)
    for step in range(steps):
        run.log({"train/loss": 4.0 / (1 + step), "train/norm": 1.0}, step=step)
    return run


def test_a_run_with_nan_says_where_it_began_and_tells_the_story(tmp_path: Path, printed) -> None:  # type: ignore[no-untyped-def]
    run = barograph.init(project="p", name="bad", dir=tmp_path, verbosity=-2, machine=False, git=False)
    for step in range(60):
        run.log_step(step, 0.0, 4096, 10.0, 1.0 if step < 40 else math.nan, 3.0 if step < 41 else math.nan, 1e-3)
    run.finish()
    attend(run.dir, quiet=True)
    page = printed(run.dir)
    assert "19 not finite, nan from step 41" in page and "×" in page and "critical" in page
    story = printed(run.dir, "findings")
    assert "critical, step 4" in story and "because" in story and "do  " in story


def test_a_run_that_nobody_examined_is_examined_for_its_page(tmp_path: Path, printed) -> None:  # type: ignore[no-untyped-def]
    run = barograph.init(project="p", name="q", dir=tmp_path, verbosity=-2, machine=False, git=False, doctor=False)
    for step in range(60):
        run.log_step(step, 0.0, 4096, 10.0, 1.0, 3.0 if step < 41 else math.nan, 1e-3)
    run.finish()
    assert "not finite" in printed(run.dir, "findings")


def test_runs_without_steps_or_series_have_pages_too(tmp_path: Path, printed) -> None:  # type: ignore[no-untyped-def]
    run = barograph.init(project="p", name="empty", dir=tmp_path, verbosity=-2, machine=False, git=False)
    run.finish()
    for name in PAGES:
        assert "p/empty" in printed(run.dir, name)
    one = _run(tmp_path, "one", steps=1)
    one.finish()
    assert "4" in printed(one.dir)


def test_a_bare_log_file_is_shown(tmp_path: Path, printed) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "training.json"
    log = barograph.TrainingRunLogger(str(path), verbosity=barograph.LogVerbosity.SILENT)
    for step in range(30):
        log.log_step(step, 0.0, 4096, 10.0, 1.0, 5.0 - step / 10, 1e-3)
    log.close()
    page = printed(path)
    assert "train/loss 2.1  " in page
    assert "no problems found" in printed(path, "findings")


def test_where_the_doctor_gives_no_verdict_the_page_says_so(tmp_path: Path, printed) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "train.log"
    path.write_text("step 1 loss 3.0\nstep 2 loss 2.5\nstep 3 loss 2.2\n")
    page = printed(path, "findings")
    assert "no verdict: 3 rows of train/loss are too few" in page.lower() and "no problems" not in page


def test_a_log_of_another_tool_is_read_and_shown(tmp_path: Path, printed) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "train.log"
    path.write_text(
        "".join(f"step {step}: train loss {4 - step / 100:.4f}, val loss 4.0\n" for step in range(0, 90, 10))
    )
    page = printed(path)
    assert "3.2" in page


def test_what_a_device_does_not_tell_is_left_blank(tmp_path: Path, printed) -> None:  # type: ignore[no-untyped-def]
    run = _run(tmp_path)
    run.record("gpu", 39, {"id": 0, "gpu_util": 55})
    run.finish()
    page = printed(run.dir, "machine")
    assert "55%" in page and "NaN" not in page and "None" not in page


def test_ranks_are_shown_with_their_work_and_waiting(tmp_path: Path, printed) -> None:  # type: ignore[no-untyped-def]
    run = _run(tmp_path)
    for rank, own in ((0, 10.0), (1, 10.0), (2, 19.0)):
        run.record("ranks", 39, {"by_rank": {str(rank): {"step_ms": 20.0, "wait_ms": 20.0 - own}}})
    run.record("straggler", 39, {"rank": 2, "host": "n2", "slower_by": 0.9, "since": 20})
    run.finish()
    page = printed(run.dir, "ranks")
    assert "the others wait for rank 2 (n2): 90% more time of its own, since step 20" in page
    rows = [line.split() for line in page.splitlines() if line.strip()[:1] in "012" and "ms" in line]
    assert [row[-2] for row in rows] == ["10", "10", "19"]


def test_devices_and_host_are_shown_as_they_were_looked_at_last(tmp_path: Path, printed) -> None:  # type: ignore[no-untyped-def]
    run = _run(tmp_path)
    run.record("gpu-model", 0, {"id": 0, "name": "H100", "memory": 80 * 2**30})
    fields = {"id": 0, "gpu_util": 97, "power": 650_000, "power_limit": 700_000, "temperature": 88}
    run.record(
        "gpu", 39, {**fields, "temp_slowdown": 89, "dram_free": 10 * 2**30, "throttle": "hw thermal", "clock": 1980}
    )
    run.record(
        "host", 39, {"cpu_util": 50.0, "cpu_cores": 8, "memory_used": 2**30, "memory_limit": 2**31, "oom_kills": 2}
    )
    run.finish()
    page = printed(run.dir, "machine")
    for words in ("H100", "97%", "70.0/80.0 GiB", "650/700 W", "88°C", "hw thermal", "8 cores", "killed"):
        assert words in page, words


def test_experts_that_get_nothing_are_counted(tmp_path: Path, printed) -> None:  # type: ignore[no-untyped-def]
    run = _run(tmp_path)
    loads = [0.5, 0.5, 0.0, 0.0]
    run.log({f"moe/blocks.0/load/{expert}": load for expert, load in enumerate(loads)}, step=40)
    run.finish()
    page = printed(run.dir, "experts")
    assert "blocks.0" in page and "2.00" in page
    assert page.split("blocks.0")[1].split()[2] == "2"


def test_without_a_name_the_newest_live_run_is_shown_else_the_list(tmp_path: Path, printed) -> None:  # type: ignore[no-untyped-def]
    _run(tmp_path, "old").finish()
    live = _run(tmp_path, "live")
    newer = _run(tmp_path, "newer")
    newer.finish()
    live.flush()
    assert "p/live" in printed(None, dir=str(tmp_path))
    live.finish()
    page = printed(None, dir=str(tmp_path))
    assert "3 runs" in page and "RUN" in page and "newer" in page
    assert "there are no runs here" in printed(None, dir=str(tmp_path / "none"))


def test_wrong_words_are_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="there is no run"):
        top("nothing", dir=str(tmp_path), once=True)
    with pytest.raises(ValueError, match="there is no page 'x'"):
        top(None, dir=str(tmp_path), page="x")
    with pytest.raises(ValueError, match="--every"):
        top(None, dir=str(tmp_path), every=0)


def test_keys_lead_to_pages_runs_and_windows(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        _run(tmp_path, name).finish()
    runs = barograph.runs(dir=tmp_path)
    viewer = Viewer(runs[1], str(tmp_path), TopPlace())
    viewer.complete(10)
    for key in ("tab", "tab", "backtab"):
        assert viewer.press(key)
    assert viewer.place.page == "time"
    assert viewer.press("n")
    viewer.complete(10)
    assert "p/a" in plain(viewer.rows(80, 24)) and viewer.place.page == "time"
    viewer.press("p"), viewer.press("p"), viewer.press("p")
    viewer.complete(10)
    assert "p/c" in plain(viewer.rows(80, 24))
    for key in "1+++":
        viewer.press(key)
    viewer.complete(10)
    assert viewer.place.window == 3 and "last 1/8" in plain(viewer.rows(80, 24))
    viewer.press("0")
    assert "last 1/" not in plain(viewer.rows(80, 24))
    assert not viewer.press("q")
    viewer.close()


def test_the_list_has_steps_and_losses_and_a_filter(tmp_path: Path) -> None:
    for name, loss in (("good", 2.5), ("worse", 3.5), ("other", float("nan"))):
        run = barograph.init(project="q" if name == "other" else "p", name=name, dir=tmp_path, verbosity=-2, git=False)
        for step in range(12):
            run.log({"train/loss": loss}, step=1_200 + step)
        run.finish()
    viewer = Viewer(None, str(tmp_path), TopPlace())

    def filtered(words: str, end: str = "enter") -> str:
        for key in ("/", *(["backspace"] * 40), *words, end):
            assert viewer.press(key)
        viewer.complete(30)
        return plain(viewer.rows(100, 24))

    page = filtered("")
    assert page.count("1,211") == 3 and "2.5" in page and "nan" in page.lower() and "3 runs" in page
    page = filtered("loss < 3 and step > 1000")
    assert "p/good" in page and "p/worse" not in page and "1 run of 3" in page
    page = filtered("q other")
    assert "q/other" in page and "p/good" not in page
    assert "q quit" in page and viewer.place.page == "runs"  # letters went into the filter, not to their keys
    assert "expected" in filtered("loss <") and "3 runs" in plain(viewer.rows(100, 24))
    assert "3 runs" in filtered("zzz", "escape")
    viewer.press("enter")
    viewer.complete(30)
    assert "Overview" in plain(viewer.rows(100, 24))
    viewer.close()


def test_progress_is_of_the_configurations_steps_and_the_axis_ends_at_the_last_one(tmp_path: Path) -> None:
    run = barograph.init(project="p", dir=tmp_path, verbosity=-2, git=False, config={"train": {"max_steps": 20_000}})
    for step in range(0, 11_005, 4):
        run.log({"train/loss": 8.0 - 6.0 * step / 11_005, "goodput/crashes": 0.0}, step=step)
    viewer = Viewer(barograph.StoredRun(run.dir), str(tmp_path), TopPlace())
    viewer.complete(30)
    rows = plain(viewer.rows(100, 30)).split("\n")
    assert "step 11,004 of 20,000 (55%)" in rows[0]
    (axis,) = (row for row in rows if "steps 0" in row)
    assert axis.split()[-1] == "11,004"
    labels = [row.split("┤")[0].split("|")[0].strip() for row in rows[3:25] if "┤" in row or "|" in row]
    assert [label for label in labels if label] and all(len(label) <= 4 for label in labels)
    assert not any("goodput" in row for row in rows)
    viewer.close()
    run.finish()


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (40, 10), (20, 6), (200, 60), (5, 2)])
def test_every_page_fits_every_size(tmp_path: Path, size: tuple[int, int]) -> None:
    run = _run(tmp_path)
    run.log({f"series {number}": float(number) for number in range(30)}, step=40)
    run.finish()
    for braille in (True, False):
        for page in (*PAGES, "runs"):
            viewer = Viewer(barograph.StoredRun(run.dir), str(tmp_path), TopPlace(page=page, braille=braille, log=True))
            viewer.complete(10)
            rows = viewer.rows(*size)
            assert len(rows) <= size[1]
            if not braille:
                assert plain(rows).isascii()
            viewer.close()


def test_points_that_come_later_are_read_once_and_none_is_missed(tmp_path: Path) -> None:
    run = _run(tmp_path, steps=100)
    run.flush()
    viewer = Viewer(barograph.StoredRun(run.dir), str(tmp_path), TopPlace())
    viewer.complete(10)
    for step in range(100, 400):
        run.log({"train/loss": 50.0 if step == 250 else 1.0, "train/norm": 1.0}, step=step)
        if step % 60 == 0:
            run.flush()
            viewer.look(80, 24)
    run.flush()
    viewer.look(80, 24)
    watch = viewer._watch
    assert watch is not None
    fold = watch.fold("train/loss")
    assert fold is not None and fold.points == 400 and fold.highest == 50.0 and fold.last_step == 399
    run.rewind(300)
    run.log({"train/loss": 7.0, "train/norm": 1.0}, step=300)
    run.flush()
    watch._state.hurry()
    viewer.complete(10)
    fold = watch.fold("train/loss")
    assert fold is not None and fold.points == 301 and fold.last == 7.0
    assert np.isfinite(fold.lowest)
    viewer.close()
    run.finish()
