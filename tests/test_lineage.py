"""Lineage: segments and forks as a tree, sums that count everything once, old branches, replayed data."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import barograph
from barograph import StoredRun
from barograph.analysis.lineage import lineage, stretches
from barograph.core.text import width
from barograph.training.run import Run
from barograph.views.lineage.command import page_lines, run_lineage
from barograph.views.lineage.drawing import lines


def begin(root: Path, **options: Any) -> Run:
    return barograph.init("p", dir=root, verbosity=-2, doctor=False, **options)


def steps(run: Run, first: int, last: int, loss: float, tokens: int = 100) -> None:
    for step in range(first, last + 1):
        run.log_step(step, 0, tokens, 2.0, 1.0, loss, 1e-3)


@pytest.fixture
def family(tmp_path: Path) -> Path:
    """a: 1–100, resumed at 81 to 150, gone back to 120, to 160. b: forked from a at 100, to 130; then a goes back to 90
    and on to 110. c: forked from b at 120, to 140."""
    run = begin(tmp_path, name="a")
    steps(run, 1, 100, 1.0)
    run.finish("interrupted")
    run = begin(tmp_path, resume="auto")
    steps(run, 81, 150, 2.0)
    run.rewind(120)
    steps(run, 120, 160, 3.0)
    run.finish()
    for name, source, at, last in (("b", "a", 100, 130), ("c", "b", 120, 140)):
        made = barograph.fork(tmp_path / "p" / source, at, name, dir=tmp_path, verbosity=-2, doctor=False)
        steps(made, at, last, 5.0)
        made.finish()
        if name == "b":
            run = begin(tmp_path, resume="a")
            run.rewind(90)
            steps(run, 90, 110, 9.0)
            run.finish()
    return tmp_path / "p"


def test_every_step_is_kept_or_thrown_away_once(family: Path) -> None:
    made = lineage(StoredRun(family / "b"))
    a, b, c = made.trunk.walk()
    assert [one.run.id for one in (a, b, c)] == ["a", "b", "c"] and made.asked is b
    assert (a.kept.steps, a.thrown.steps) == (110, 20 + 31 + 71)
    assert (a.kept.tokens, a.thrown.tokens) == (11_000, 12_200)
    assert (b.kept.steps, b.thrown.steps, b.inherited and b.inherited.steps) == (31, 0, 99)
    assert (c.kept.steps, c.thrown.steps, c.inherited and c.inherited.steps) == (21, 0, 119)
    assert c.inherited is not None and c.inherited.tokens == 11_900
    # steps 90 to 99 were discarded by a, and b goes on from them
    assert a.carried.steps == 10 and a.carried.tokens == 1_000
    assert (made.kept.steps, made.thrown.steps) == (110 + 31 + 21 + 10, 112)
    logged = sum(len(StoredRun(family / name).series("train/loss", branch="all")) for name in "a")
    assert logged == a.kept.steps + a.thrown.steps


def test_the_sums_agree_with_goodput(family: Path) -> None:
    run = StoredRun(family / "a")
    (a, *_), totals = lineage(run).trunk.walk(), run.goodput()
    assert a.thrown.steps == totals.redone_steps
    assert (a.kept.seconds, a.thrown.seconds, a.wall) == (totals.productive, totals.redone, totals.wall)
    assert a.goodput == pytest.approx(totals.productive / totals.wall)


def test_money_and_gpu_hours_are_shared_out_by_time(family: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoredRun, "cost", lambda self: {"gpu_hours": 2.0, "cost": 10.0})
    run = StoredRun(family / "a")
    totals, (a, *_) = run.goodput(), lineage(run).trunk.walk()
    assert a.kept.cost == pytest.approx(10 * totals.productive / totals.held)
    assert a.thrown.gpu_hours == pytest.approx(2 * totals.redone / totals.held)
    assert a.cost == pytest.approx(10.0) and a.gpu_hours == pytest.approx(2.0)


def test_segments_say_what_they_did(family: Path) -> None:
    parts = lineage(StoredRun(family / "a")).trunk.parts
    assert [(one.segment.kind, one.first, one.last, one.kept_to) for one in parts] == [
        ("start", 1, 100, 80),
        ("resume", 81, 150, 89),
        ("rewind", 120, 160, None),
        ("resume", None, None, None),
        ("rewind", 90, 110, 110),
    ]


def test_a_loop_that_logs_every_tenth_step_did_them_all(tmp_path: Path) -> None:
    run = begin(tmp_path, name="sparse")
    for step in range(10, 101, 10):
        run.log_step(step, 0, 100, 2.0, 1.0, 1.0, 1e-3)
    run.rewind(61)
    for step in range(70, 151, 10):
        run.log_step(step, 0, 100, 2.0, 1.0, 1.0, 1e-3)
    run.finish()
    trunk = lineage(StoredRun(run.dir)).trunk
    assert (trunk.kept.steps, trunk.thrown.steps) == (150, 40)
    assert (trunk.kept.tokens, trunk.thrown.tokens) == (15_000, 4_000)


def test_a_killed_run_goes_on_and_loses_what_was_done_again(tmp_path: Path) -> None:
    script = (
        "import barograph, os\n"
        f"run = barograph.init('p', 'k', dir={str(tmp_path)!r}, verbosity=-2)\n"
        "for step in range(1, 51):\n"
        "    run.log_step(step, 0, 10, 2.0, 1.0, 1.0, 1e-3)\n"
        "    if step == 40:\n"
        "        place = run.dir / 'checkpoints' / 'c.pt'\n"
        "        place.parent.mkdir(exist_ok=True)\n"
        "        place.write_bytes(b'weights')\n"
        "        run.checkpoints.save(place, 40)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    run = begin(tmp_path, resume="auto")
    state = run.restore()
    assert run.id == "k" and state is not None and state["step"] == 40
    steps(run, 41, 60, 1.0, 10)
    run.finish()
    trunk = lineage(StoredRun(run.dir)).trunk
    assert (trunk.kept.steps, trunk.thrown.steps) == (60, 10)
    assert trunk.kept.tokens == 600


def test_a_source_that_was_deleted_is_said_to_be(family: Path) -> None:
    shutil.rmtree(family / "a")
    made = lineage(StoredRun(family / "c"))
    assert made.lost == family / "a" and made.trunk.run.id == "b" and made.trunk.inherited is None
    assert "forked from a, which is missing" in "\n".join(lines(made))


def test_runs_that_were_moved_together_find_each_other(family: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.move(family.parent / "p", moved / "p")
    made = lineage(StoredRun(moved / "p" / "c"))
    assert made.lost is None and [one.run.id for one in made.trunk.walk()] == ["a", "b", "c"]


def test_a_plain_run_has_nothing_to_tell(tmp_path: Path) -> None:
    run = begin(tmp_path, name="plain")
    steps(run, 1, 5, 1.0)
    run.finish()
    assert lineage(StoredRun(run.dir)).is_plain and page_lines(StoredRun(run.dir)) == []
    empty = begin(tmp_path, name="empty")
    empty.finish()
    trunk = lineage(StoredRun(empty.dir)).trunk
    assert (trunk.kept.steps, trunk.thrown.steps) == (0, 0)
    assert lines(lineage(StoredRun(empty.dir)))


def test_a_bare_log_has_a_lineage_of_one(tmp_path: Path) -> None:
    path = tmp_path / "some" / "log.json"
    path.parent.mkdir()
    path.write_text('[{"log":"step","time":"2026-01-01T00:00:00.000000","step":1,"loss":1.0}]')
    made = lineage(StoredRun(path))
    assert made.is_plain and made.trunk.kept.steps == 1


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_drawing_fits(family: Path, columns: int) -> None:
    drawn = lines(lineage(StoredRun(family / "a")), columns)
    assert all(width([line]) <= columns for line in drawn)
    text = "\n".join(drawn)
    assert "120–160, all discarded" in text and "fork at step 100" in text and "a ◂" in text


def test_names_drive_no_terminal(tmp_path: Path) -> None:
    run = begin(tmp_path, name="\x1b[31m\u202eevil\n")
    steps(run, 1, 3, 1.0)
    run.rewind(2)
    run.finish()
    assert not set("".join(lines(lineage(StoredRun(run.dir))))) & {"\x1b", "\n", "\u202e"}


def test_many_segments_are_drawn_short(tmp_path: Path) -> None:
    run = begin(tmp_path, name="many")
    for at in range(1, 40):
        steps(run, at, at + 1, 1.0)
        run.rewind(at + 1)
    run.finish()
    drawn = lines(lineage(StoredRun(run.dir)))
    assert len(drawn) < 25 and any("28 segments more" in line for line in drawn)


def test_the_command_prints_data(family: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_lineage(str(family / "b"), as_json=True) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["kept"]["steps"] == 172 and made["tree"]["forks"][0]["fork_step"] == 100
    assert run_lineage(str(family / "b"), dir=str(family.parent)) == 0
    assert "kept, all 3 runs" in capsys.readouterr().out


# -- old branches -------------------------------------------------------------------------------------------


def test_stretches_are_what_was_superseded(family: Path) -> None:
    run = StoredRun(family / "a")
    found = stretches(run, "loss")
    assert found.live.step.tolist() == list(range(1, 111))
    assert [(int(one.step[0]), int(one.step[-1]), float(one.value[0])) for one in found.old] == [
        (81, 100, 1.0), (90, 150, 2.0), (120, 160, 3.0),
    ]  # fmt: skip
    whole = run.series("loss", branch="all")
    assert len(found.live) + sum(map(len, found.old)) == len(whole)


def test_an_old_stretch_lies_where_it_was_trained(family: Path) -> None:
    found = stretches(StoredRun(family / "a"), "loss", x="tokens")
    for one in (found.live, *found.old):
        assert one.x.tolist() == (one.step * 100.0).tolist()
    ahead = stretches(StoredRun(family / "a"), "loss", x="relative")
    assert all((one.x >= 0).all() for one in ahead.old) and ahead.old[-1].x[-1] < ahead.live.x[-1]


def test_a_fork_s_stretches_are_its_own(family: Path) -> None:
    run = begin(family.parent, resume="b")
    run.rewind(110)
    steps(run, 110, 112, 7.0)
    run.finish()
    found = stretches(StoredRun(family / "b"), "loss", x="tokens")
    assert found.live.step[-1] == 112 and [one.step.tolist() for one in found.old] == [list(range(110, 131))]
    assert found.old[0].x[-1] == 13_000


def test_stretches_are_thinned_and_names_resolved(family: Path) -> None:
    found = stretches(StoredRun(family / "a"), "train/loss", max_points=10)
    assert all(len(one) <= 10 for one in (found.live, *found.old))
    with pytest.raises(KeyError, match="nearest"):
        stretches(StoredRun(family / "a"), "train/lozz")


@pytest.mark.parametrize("seed", range(6))
def test_any_history_adds_up(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    run, at = begin(tmp_path, name="r"), 1
    logged = 0
    for _ in range(8):
        count = chance.randrange(0, 12)
        steps(run, at, at + count - 1, float(chance.random()))
        logged, at = logged + count, at + count
        if chance.random() < 0.6:
            at = chance.randrange(1, at + 1)
            run.rewind(at)
        elif chance.random() < 0.5:
            run.finish("interrupted")
            run = begin(tmp_path, resume="r")
            at = max(1, at - chance.randrange(0, 5))
    run.finish()
    stored = StoredRun(run.dir)
    trunk = lineage(stored).trunk
    assert trunk.kept.steps + trunk.thrown.steps == logged
    assert sum(part.kept + part.thrown for part in trunk.parts) == logged
    if logged:
        found = stretches(stored, "train/loss")
        assert trunk.kept.steps == len(found.live) == len(set(found.live.step.tolist()))
        assert trunk.thrown.steps == sum(map(len, found.old))


# -- data that come again -----------------------------------------------------------------------------------


def _train(root: Path, replays: bool, seed: int, stop: int = 120, end: int = 180) -> StoredRun:
    """A small GRU on sequences of a random bigram language, each new once; resumed after `stop` steps.

    replays: the loader that was resumed gives the last 40 batches again, in another order.
    """
    import torch
    from torch import nn

    torch.manual_seed(seed)
    words, length, batch, back = 64, 24, 16, 40
    chance = torch.Generator().manual_seed(seed)
    table = torch.softmax(torch.randn(words, words, generator=chance) * 1.5, -1)
    text = torch.zeros(end * batch, length + 1, dtype=torch.long)
    text[:, 0] = torch.randint(words, (end * batch,), generator=chance)
    for at in range(length):
        text[:, at + 1] = torch.multinomial(table[text[:, at]], 1, generator=chance)[:, 0]
    embed, memory, head = nn.Embedding(words, 128), nn.GRU(128, 384, batch_first=True), nn.Linear(384, words)
    model = nn.ModuleList([embed, memory, head])
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    order = list(range(end))
    if replays:
        order[stop:] = (stop - back + torch.randperm(back, generator=chance)).repeat(2)[: end - stop].tolist()
    run = begin(root, name=f"r{seed}")
    for step, at in enumerate(order, 1):
        if step == stop + 1:
            run.finish("interrupted")
            run = begin(root, resume=f"r{seed}", resume_step=step)
        one = text[at * batch : (at + 1) * batch]
        logits = head(memory(embed(one[:, :-1]))[0])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), one[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log_step(step, 0, batch * length, 5.0, 1.0, loss.item(), 4e-3)
    run.finish()
    return StoredRun(run.dir)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("replays", [True, False])
def test_a_step_down_after_a_resume_is_seen_when_data_are_replayed(tmp_path: Path, seed: int, replays: bool) -> None:
    torch = pytest.importorskip("torch")
    from barograph.doctor.diagnosis import diagnose

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        stored = _train(tmp_path, replays, seed)
    finally:
        torch.set_num_threads(threads)
    loss = stored.series("train/loss").value
    told = [one for one in diagnose(stored)["findings"] if one["rule"] == "data_replay"]
    if replays:
        assert np.median(loss[120:152]) < 0.96 * np.median(loss[100:120]), "the loss does step down"
        assert [(one["step"], "lower than before" in one["message"]) for one in told] == [(121, True)]
    else:
        assert told == []
