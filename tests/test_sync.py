"""A sync may die anywhere: nothing is lost and nothing is doubled, as the trackers' own readers see it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import mirror_runs
import pytest
from mirror_runs import Story, as_single, ours, tensorboard_points, wandb_points

from barograph.trackers.position import Turn
from barograph.trackers.send import copy_to_tensorboard, send
from barograph.trackers.sync import sync

pytest.importorskip("tensorboard")


def tensorboard(folder: Path) -> dict[str, str]:
    return {"tensorboard_dir": str(folder / "tb")}


def check_tensorboard(story: Story, folder: Path) -> None:
    points, histograms = tensorboard_points(folder / "tb" / story.dir.name)
    assert ours(points) == as_single(story.points)
    assert histograms == story.histograms


def test_every_point_arrives_once_and_a_second_sync_has_nothing_to_do(tmp_path: Path, capsys: Any) -> None:
    story = Story(tmp_path)
    story.train(range(150))
    story.finish()
    assert sync([story.dir], "tensorboard", out=str(tmp_path / "tb")) == 0
    assert "has everything" in capsys.readouterr().out
    check_tensorboard(story, tmp_path)
    assert sync([story.dir], "tensorboard", as_json=True) == 0
    [told] = json.loads(capsys.readouterr().out)
    assert told["new"] == 0 and told["done"] and told["rows"] > 150
    check_tensorboard(story, tmp_path)


def test_what_comes_later_is_added_whether_the_store_is_live_or_sealed(tmp_path: Path) -> None:
    story = Story(tmp_path)
    for begin in range(0, 400, 100):
        story.train(range(begin, begin + 100))
        story.run.flush()
        if begin == 100:
            story.resume()  # the store's files are sealed, a new writer begins
        assert send(story.dir, "tensorboard", tensorboard(tmp_path)).done
    story.finish()
    assert send(story.dir, "tensorboard").done
    check_tensorboard(story, tmp_path)


def test_rows_sealed_while_they_are_followed_arrive_once(tmp_path: Path) -> None:
    story = Story(tmp_path)
    over = threading.Event()
    results: list[Any] = []
    follower = threading.Thread(
        target=lambda: results.append(send(story.dir, "tensorboard", tensorboard(tmp_path), over=over.is_set))
    )
    follower.start()
    for begin in range(0, 1500, 100):
        story.train(range(begin, begin + 100))
        time.sleep(0.05)
    story.finish()
    over.set()
    follower.join(60)
    assert results and results[0].done
    check_tensorboard(story, tmp_path)


def test_a_run_resumed_while_it_is_followed_arrives_once(tmp_path: Path) -> None:
    story = Story(tmp_path)
    over, shown = threading.Event(), [0]
    results: list[Any] = []

    def told(mirror: Any) -> None:
        shown[0] = mirror.rows

    follower = threading.Thread(
        target=lambda: results.append(
            send(story.dir, "tensorboard", tensorboard(tmp_path), over=over.is_set, told=told)
        )
    )
    follower.start()
    for begin in range(0, 300, 100):
        story.train(range(begin, begin + 100))
        deadline = time.monotonic() + 20
        while shown[0] < begin + 100 and time.monotonic() < deadline:
            time.sleep(0.05)
        story.resume()  # another writer: the log is read for its records from the beginning
    story.finish()
    over.set()
    follower.join(60)
    assert results and results[0].done
    check_tensorboard(story, tmp_path)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_sender_killed_again_and_again_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    generator = random.Random(seed)
    story = Story(tmp_path, seed)
    killed = 0
    for begin in range(0, 600, 200):
        story.train(range(begin, begin + 200))
        story.run.flush()
        if begin == 200:
            story.resume()
        done = mirror_runs.send(story.dir, "tensorboard", tensorboard(tmp_path), generator.randint(1, 400))
        killed += done.returncode == -signal.SIGKILL
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
    story.finish()
    assert killed
    assert send(story.dir, "tensorboard").done
    check_tensorboard(story, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_wandb_offline_holds_each_point_once_after_kills(tmp_path: Path, seed: int) -> None:
    pytest.importorskip("wandb")
    generator = random.Random(seed)
    story = Story(tmp_path, seed)
    variables = mirror_runs.wandb_variables(tmp_path)
    killed = 0
    for begin in range(0, 600, 200):
        story.train(range(begin, begin + 200))
        story.run.flush()
        if begin == 200:
            story.resume()
        done = mirror_runs.send(story.dir, "wandb", {}, generator.randint(1, 500), variables)
        killed += done.returncode == -signal.SIGKILL
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
    story.finish()
    assert killed
    done = mirror_runs.send(story.dir, "wandb", {}, variables=variables)
    assert done.returncode == 0 and "done=True" in done.stdout, done.stderr
    points, histograms, ids = wandb_points(tmp_path)
    assert ours(points) == story.points
    assert histograms == story.histograms
    assert len(set(ids)) == 1 and len(ids) > 1, "one run, in several parts"


def test_a_copy_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.train(range(50))
    story.finish()
    assert send(story.dir, "tensorboard", tensorboard(tmp_path)).new
    for path in (tmp_path / "tb").glob("*/events*"):
        path.unlink()
    assert send(story.dir, "tensorboard").new
    check_tensorboard(story, tmp_path)


def test_a_log_file_alone_is_a_run_too(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    record = {"log": "step", "time": "2026-01-15 10:30:00.123456789", "step": 3, "loss": 2.5, "norm": "nan"}
    path.write_text(f"[\n{json.dumps(record)}\n]")
    assert send(path, "tensorboard", tensorboard(tmp_path)).done
    points, _ = tensorboard_points(tmp_path / "tb" / "old")
    assert sorted(points) == [("train/grad_norm", 3, "nan"), ("train/loss", 3, "2.5"), ("train/norm", 3, "nan")]


def test_two_senders_take_turns(tmp_path: Path, capsys: Any) -> None:
    story = Story(tmp_path)
    story.train(range(5))
    story.finish()
    body = """
        import sys, time
        from pathlib import Path
        from barograph.trackers.position import Turn
        print(Turn(Path(sys.argv[1]), "tensorboard").take(), flush=True)
        time.sleep(60)
    """
    environment = os.environ | {"PYTHONPATH": mirror_runs.SOURCE}
    command = [sys.executable, "-c", textwrap.dedent(body), str(story.dir)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    assert holder.stdout is not None and holder.stdout.readline() == b"True\n"
    assert sync([story.dir], "tensorboard", out=str(tmp_path / "tb")) == 0
    assert "another process is sending" in capsys.readouterr().out
    holder.kill()
    holder.wait()
    holder.stdout.close()
    turn = Turn(story.dir, "tensorboard")
    assert turn.take() and not Turn(story.dir, "tensorboard").take()
    turn.give_back()
    assert sync([story.dir], "tensorboard", out=str(tmp_path / "tb")) == 0
    check_tensorboard(story, tmp_path)


def test_an_export_is_one_event_file_with_the_names_asked_for(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.train(range(60))
    story.finish()
    rows = copy_to_tensorboard(story.dir, tmp_path / "all")
    assert rows > 60 and len(list((tmp_path / "all").iterdir())) == 1
    points, histograms = tensorboard_points(tmp_path / "all")
    assert ours(points) == as_single(story.points) and histograms == story.histograms
    copy_to_tensorboard(story.dir, tmp_path / "some", lambda name: name.startswith("train/l"))
    assert {name for name, _, _ in tensorboard_points(tmp_path / "some")[0]} == {"train/loss", "train/lr"}
    assert not (story.dir / "mirrors").exists()


def test_an_earlier_part_of_a_resumed_run_is_not_sent_again(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.train(range(60))
    story.resume()
    for part in range(1, 5):
        assert send(story.dir, "tensorboard", tensorboard(tmp_path)).done
        time.sleep(0.5)
        story.train(range(part * 60, part * 60 + 60))
        story.run.flush()
    story.finish()
    assert send(story.dir, "tensorboard").done
    check_tensorboard(story, tmp_path)


def test_wide_rows_that_were_sealed_before_they_were_sent_are_sent_once(tmp_path: Path) -> None:
    from barograph.store.seal import seal

    story = Story(tmp_path)
    story.train(range(100))
    assert send(story.dir, "tensorboard", tensorboard(tmp_path)).done
    story.train(range(100, 200))
    story.finish()
    seal(story.dir, final=True)
    assert not list(story.dir.glob("*.wide")), "sealed block files are gone"
    assert send(story.dir, "tensorboard").done
    check_tensorboard(story, tmp_path)
    assert send(story.dir, "tensorboard").new == 0


def test_a_clock_that_goes_back_leaves_out_no_wide_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(tmp_path)
    story.train(range(100))
    assert send(story.dir, "tensorboard", tensorboard(tmp_path)).done
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() - 3600 * 10**9)
    story.train(range(100, 200))
    monkeypatch.undo()
    story.finish()
    assert send(story.dir, "tensorboard").done
    check_tensorboard(story, tmp_path)
