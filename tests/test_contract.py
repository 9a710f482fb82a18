"""Every way to ask for a run's figures gives the same, in every state that a run can be in.

A state is a run as training processes, a sidecar, a sealer, a kill or an accident leave it, with the figures that its
live branch has. All ways are asked for them; then everything derived is deleted, and they are asked again.
"""

from __future__ import annotations

import contextlib
import csv
import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sidecar_runs
from patience import until
from served_runs import Browser
from written_runs import Writer, WrittenRun

import barograph
from barograph.analysis.compare.member import ComparedMember
from barograph.core.options import load
from barograph.doctor import diagnose
from barograph.log import blocks
from barograph.query.export import export
from barograph.query.findings import SEVERITIES, recorded_findings
from barograph.query.frames import frame
from barograph.query.sql import sql
from barograph.query.stored import StoredRun
from barograph.sidecar.loop import Sidecar
from barograph.store.seal import seal
from barograph.views.assistant.answers import Answers
from barograph.views.overview import detail, summary
from barograph.views.report.subject import Subject
from barograph.views.top.logbook import Logbook

Figures = dict[str, list[tuple[int, float]]]

LOSS, WIDE, EVAL = "train/loss", "act/a", "eval/loss"


def train(run: WrittenRun, steps: range, offset: float = 0.0, rank: int = 0) -> None:
    """A loss a step, a wide row each second, an evaluation each tenth."""
    writer = run.rank(rank)
    for step in steps:
        writer.loss(step, loss_at(step, offset))
        if step % 2 == 0:
            writer.wide(step, **{WIDE: step + offset, "act/b": -step - offset})
        if step % 10 == 9:
            writer.record("eval", step, loss=step / 100 + offset)
            writer.histogram(step, "weights", [1.0, step + offset])


def loss_at(step: int, offset: float) -> float:
    return math.nan if step == 7 else math.inf if step == 13 else 3.0 - step / 100 + offset


def figures(*parts: tuple[range, float]) -> Figures:
    return {
        LOSS: [(step, loss_at(step, offset)) for steps, offset in parts for step in steps],
        WIDE: [(step, step + offset) for steps, offset in parts for step in steps if step % 2 == 0],
        EVAL: [(step, step / 100 + offset) for steps, offset in parts for step in steps if step % 10 == 9],
    }


# -- states -------------------------------------------------------------------------------------------

STATES: dict[str, Callable[[Path], Figures]] = {}


def state(build: Callable[[Path], Figures]) -> Callable[[Path], Figures]:
    STATES[build.__name__] = build
    return build


@state
def being_written(root: Path) -> Figures:
    train(WrittenRun(root), range(30))
    return figures((range(30), 0.0))


@state
def sealed_whole(root: Path) -> Figures:
    run = WrittenRun(root)
    train(run, range(30))
    run.end()
    seal(run.dir, final=True)
    return figures((range(30), 0.0))


@state
def sealed_in_part(root: Path) -> Figures:
    run = WrittenRun(root)
    train(run, range(20))
    seal(run.dir, final=True)
    train(run, range(20, 35))
    return figures((range(35), 0.0))


@state
def sealed_many_times_and_merged(root: Path) -> Figures:
    run = WrittenRun(root)
    for start in range(0, 100, 5):
        train(run, range(start, start + 5))
        seal(run.dir, final=True)
    run.end()
    return figures((range(100), 0.0))


@state
def killed(root: Path) -> Figures:
    run = WrittenRun(root)
    train(run, range(25))
    run.rank(0).kill()
    return figures((range(25), 0.0))


@state
def killed_in_the_middle_of_a_record(root: Path) -> Figures:
    run = WrittenRun(root)
    train(run, range(25))
    writer = run.rank(0)
    with open(run.dir / "training.json", "r+b") as file:
        file.seek(writer.log.position)
        file.write(b',\n{"log":"step","time":"2026')
    path = writer.blocks.path
    assert path is not None
    writer.kill()
    with open(path, "ab") as file:
        file.write(b"\x20\0\0\0\1\2\3\4half a block")
    return figures((range(25), 0.0))


@state
def resumed_after_a_kill(root: Path) -> Figures:
    run = WrittenRun(root)
    train(run, range(25))
    seal(run.dir, final=True)
    run.rank(0).kill()
    run.ranks.clear()
    run.resume()
    train(run, range(20, 40), 0.5)  # it began without a step: the first that it logs counts
    run.end()
    return figures((range(20), 0.0), (range(20, 40), 0.5))


@state
def rewound_and_killed(root: Path) -> Figures:
    run = WrittenRun(root)
    train(run, range(30))
    seal(run.dir, final=True)
    train(run, range(30, 40))
    run.new_segment("rewind", 15)
    train(run, range(15, 22), 0.5)
    run.rank(0).kill()
    return figures((range(15), 0.0), (range(15, 22), 0.5))


@state
def rewound_twice_and_sealed(root: Path) -> Figures:
    run = WrittenRun(root)
    train(run, range(40))
    run.new_segment("rewind", 20)
    train(run, range(20, 30), 0.5)
    seal(run.dir, final=True)
    run.new_segment("rewind", 10)
    train(run, range(10, 26), 1.0)
    run.end()
    seal(run.dir, final=True)
    return figures((range(10), 0.0), (range(10, 26), 1.0))


@state
def forked(root: Path) -> Figures:
    source = WrittenRun(root, "source")
    train(source, range(30))
    source.end()
    seal(source.dir, final=True)
    run = WrittenRun(root, "r", fork=(source.dir, 20))
    train(run, range(20, 36), 0.5)
    return figures((range(20), 0.0), (range(20, 36), 0.5))


@state
def many_ranks(root: Path) -> Figures:
    run = WrittenRun(root)
    for rank in (2, 0, 1):
        train(run, range(30), 1000.0 * rank, rank)
    seal(run.dir, final=True)
    for rank in (1, 0, 2):
        train(run, range(30, 34), 1000.0 * rank, rank)
    return figures((range(34), 0.0))


@state
def only_a_higher_rank(root: Path) -> Figures:
    run = WrittenRun(root)
    run.rank(0).record("info", 0, type="x", message="nothing measured here")
    train(run, range(30), 0.0, 3)
    train(run, range(30), 1000.0, 5)
    return figures((range(30), 0.0))


@state
def with_a_sidecars_log(root: Path) -> Figures:
    run = WrittenRun(root)
    train(run, range(20))
    sidecar = Writer(run, "sidecar-host.json", 0)
    sidecar.record("gpu", 19, id=0, power=100.0, at=run.rank(0).log.position)
    sidecar.record("finding", 19, rule="r", severity="info", message="m", at=run.rank(0).log.position)
    run.new_segment("rewind", 10)
    train(run, range(10, 30), 0.5)
    return figures((range(10), 0.0), (range(10, 30), 0.5))


@state
def many_block_files(root: Path) -> Figures:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "PIECE_BYTES", 500)
        run = WrittenRun(root)
        train(run, range(50))
        seal(run.dir, final=True)
        train(run, range(50, 60))
        run.end()
    return figures((range(60), 0.0))


@state
def a_damaged_segment(root: Path) -> Figures:
    found = rewound_twice_and_sealed(root)
    (root / "r" / "segments" / "0003.json").write_bytes(b"\xff{")
    return found


@state
def a_damaged_part_of_narrow_data(root: Path) -> Figures:
    run = WrittenRun(root)
    writer = run.rank(0)
    for step in range(40):
        writer.loss(step, loss_at(step, 0.0))
        if step % 10 == 9:
            seal(run.dir, final=True)
    run.end()
    path = run.dir / "store" / "training" / "000002-000002.points.parquet"
    data = bytearray(path.read_bytes())
    data[200] ^= 0xFF
    path.write_bytes(data)
    return {LOSS: figures((range(40), 0.0))[LOSS]}


@state
def bad_bytes_in_side_files(root: Path) -> Figures:
    found = sealed_whole(root)
    (root / "r" / "run_manifest.json").write_bytes(b"\xee\0{")
    (root / "r" / "curation.json").write_bytes(b"\xee")
    (root / "r" / "store" / "training" / "writer.json").write_bytes(b'{"lo\xee":1}')
    (root / "r" / "store" / "notes.txt").write_bytes(b"mine")
    return found


# -- ways to ask --------------------------------------------------------------------------------------


def same(found: Iterator[tuple[int, float]], wanted: list[tuple[int, float]], way: str) -> None:
    pairs = list(found)
    assert [step for step, _ in pairs] == [step for step, _ in wanted], way
    for (_, value), (_, figure) in zip(pairs, wanted, strict=True):
        assert value == figure or (math.isnan(value) and math.isnan(figure)), way


def ask_everybody(root: Path, wanted: Figures, tmp_path: Path) -> None:
    run = StoredRun(root / "r")
    columns = run.all_columns()
    long = frame(run, list(wanted), layout="long", library="arrow").to_pylist()
    wide = frame(run, list(wanted), library="arrow").to_pylist()
    export(run, "csv", tmp_path / "long.csv", layout="long")
    with open(tmp_path / "long.csv") as file:
        exported = list(csv.DictReader(file))
    rows = sql("select name, step, value from points where run = 'r' order by step", runs=[run]).to_pylist()
    live = sql("select name, step, value, rank from all_points where live order by step", runs=[run]).to_pylist()
    member = ComparedMember(run)
    for name, pairs in wanted.items():
        series = run.series(name)
        same(zip(series.step.tolist(), series.value.tolist(), strict=True), pairs, "series")
        order = sorted(zip(columns[name][0].tolist(), columns[name][2].tolist(), strict=True), key=lambda pair: pair[0])
        same(iter(order), pairs, "all_columns")
        same(((row["step"], row["value"]) for row in long if row["name"] == name), pairs, "long frame")
        same(((row["step"], row[name]) for row in wide if row[name] is not None), pairs, "wide frame")
        found = ((int(row["step"]), float(row["value"])) for row in exported if row["name"] == name)
        same(found, pairs, "export")
        same(((row["step"], row["value"]) for row in rows if row["name"] == name), pairs, "sql")
        lowest = min(row["rank"] for row in live if row["name"] == name)
        found = ((row["step"], row["value"]) for row in live if row["name"] == name and row["rank"] == lowest)
        same(found, pairs, "sql, all points")
        if name in (LOSS, EVAL):
            read = member.read(next(common for common, own in member.names.items() if own == name))
            same(zip(read.step.tolist(), read.value.tolist(), strict=True), pairs, "compare")
    row = summary(run)
    assert (row["step"], row["loss"]) == wanted[LOSS][-1], "ls"
    assert detail(run)["series"][LOSS]["points"] == len(wanted[LOSS]), "show"
    listed = sql("select step, loss from runs", runs=[run]).to_pylist()
    assert (listed[0]["step"], listed[0]["loss"]) == wanted[LOSS][-1], "sql, runs"
    with Browser(root) as browser:
        for name, pairs in wanted.items():
            (entry,) = browser.series(("r", name), buckets=2000)
            shown = zip(entry["columns"]["x"].astype(int).tolist(), entry["columns"]["y"].tolist(), strict=True)
            same(shown, [pair for pair in pairs if math.isfinite(pair[1])] if "nans" in entry else pairs, "page")


def delete_derived(folder: Path) -> None:
    """All that follows from the logs, the block files, and the sealed parts of deleted block files."""
    shutil.rmtree(folder / "segments", ignore_errors=True)
    for path in folder.glob("sidecar-*"):
        path.unlink()
    for home in (folder / "store").glob("*/"):
        if not any(home.glob(f"*{blocks.SEALED_SUFFIX}")):
            shutil.rmtree(home)


@pytest.mark.parametrize("name", STATES)
def test_every_way_to_ask_gives_the_same_figures(name: str, tmp_path: Path) -> None:
    root = tmp_path / "p"
    wanted = STATES[name](root)
    ask_everybody(root, wanted, tmp_path)
    delete_derived(root / "r")
    ask_everybody(root, wanted, tmp_path)
    seal(root / "r", final=True)
    ask_everybody(root, wanted, tmp_path)


def ended(root: Path, build: Callable[[int], dict[str, float]], steps: int) -> Path:
    """A run with its sidecar's findings. build: what each step logs."""
    folder = root / "r"
    training = sidecar_runs.Writer(folder)
    for step in range(steps):
        training.record("step", step, build(step), 0.5)
    training.close()
    sidecar_runs.describe(folder, status="finished")
    with attending(folder) as sidecar:
        sidecar.read()
        assert sidecar.health is not None
        sidecar.health.finish()
    return folder


@contextlib.contextmanager
def attending(folder: Path) -> Iterator[Sidecar]:
    sidecar = Sidecar(folder, load({"machine": False, "watchdog": False}))
    yield sidecar
    sidecar.journal.close()
    sidecar.close()


def noisy(step: int) -> dict[str, float]:
    noise = 0.02 * math.sin(step * 12.9898)
    return {
        "loss": 2 + 3 * math.exp(-step / 120) + noise,
        "norm": 1.0 + 5 * noise,
        "lr": 1e-3 * min(1, (step + 1) / 40),
    }


TROUBLES: dict[str, tuple[int, Callable[[int], dict[str, float]]]] = {
    "healthy": (500, noisy),
    "not finite": (500, lambda step: noisy(step) | ({"loss": math.nan, "norm": math.nan} if step >= 300 else {})),
    "more spikes than are kept apart": (
        6_000,
        lambda step: noisy(step) | ({"loss": 9.0, "norm": 60.0} if step > 400 and step % 110 < 2 else {}),
    ),
    "spikes, then a divergence": (
        1_500,
        lambda step: (
            noisy(step)
            | ({"norm": 40.0} if 300 <= step < 1200 and step % 17 == 0 else {})
            | ({"loss": 2.0 + (step - 1200) * 0.02} if step >= 1200 else {})
        ),
    ),
    "worse step by step": (
        1_500,
        lambda step: (
            noisy(step)
            | {"loss": noisy(step)["loss"] * (1.0 if step < 500 else 1.5 if step < 900 else 3.0)}
            | {"norm": 1.03 ** min(max(step - 900, 0), 300)}
        ),
    ),
    "a stopped optimizer": (800, lambda step: noisy(min(step, 300)) | ({"lr": 0.0} if step > 300 else {})),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_every_way_to_ask_gives_the_same_findings(name: str, tmp_path: Path) -> None:
    """SQL, the runs table, the page's head, its list of findings, `doctor` and the report count the same incidents."""
    steps, build = TROUBLES[name]
    folder = ended(tmp_path / "p", build, steps)
    run = StoredRun(folder)
    wanted = sorted((one["rule"], one["key"], one["step"], one["severity"]) for one in diagnose(run)["findings"])
    assert bool([one for one in wanted if one[3] != "info"]) == (name != "healthy")
    recorded = sorted(
        (str(one.fields["rule"]), str(one.fields["key"]), one.step, str(one.fields["severity"]))
        for one in recorded_findings(run)
    )
    assert recorded == wanted
    counts = {severity: [one[3] for one in wanted].count(severity) for severity in SEVERITIES}
    listed = sql("select severity, count(*) as n from findings group by severity", runs=[run]).to_pylist()
    assert {row["severity"]: row["n"] for row in listed} == {key: n for key, n in counts.items() if n}
    assert dict(Subject(run).counted) == {key: n for key, n in counts.items() if n}, "report"
    logbook = Logbook(run)
    logbook.look()
    logbook.wait(60)
    assert len(logbook.findings()) == len(wanted), "top"
    with Browser(tmp_path / "p") as browser:
        assert browser.get("/api/runs/r")["findings"] == counts, "head"
        assert until(lambda: browser.get("/api/runs")["runs"][0]["findings"] == counts), "runs table, after a while"
        assert len(browser.get("/api/runs/r/findings")["findings"]) == len(wanted)


@pytest.mark.parametrize("name", TROUBLES)
def test_every_way_to_ask_gives_the_same_findings_of_a_run_without_a_sidecar(name: str, tmp_path: Path) -> None:
    """A run too short for a sidecar, or with none, has no `finding` record: each of them asks the doctor."""
    steps, build = TROUBLES[name]
    with barograph.init(
        project="p", id="r", dir=tmp_path, sidecar=False, console="none", git=False, machine=False
    ) as run:
        for step in range(steps):
            run.log({f"train/{key}": value for key, value in build(step).items()}, step=step)
    stored = StoredRun(run.dir)
    assert recorded_findings(stored) == []
    found = diagnose(stored)["findings"]
    wanted = sorted((one["rule"], one["step"], one["severity"], one["message"]) for one in found)
    assert bool([one for one in wanted if one[2] != "info"]) == (name != "healthy")
    listed = sql("select * from findings", runs=[stored]).to_pylist()
    assert sorted((row["rule"], row["step"], row["severity"], row["message"]) for row in listed) == wanted
    assert all(row["time"] is None for row in listed), "nobody has recorded them"
    asked = Answers(str(tmp_path))
    assert len(asked.findings("r")["findings"]) == len(asked.run_summary("r")["findings"]) == len(wanted)
    counts = {severity: [one[2] for one in wanted].count(severity) for severity in SEVERITIES}
    assert dict(Subject(stored).counted) == {key: n for key, n in counts.items() if n}, "report"
    with Browser(tmp_path / "p") as browser:
        assert until(lambda: browser.get("/api/runs")["runs"][0]["findings"] == counts), "runs table, after a while"
        assert len(browser.get("/api/runs/r/findings")["findings"]) == len(wanted)


def test_parts_hold_all_that_the_logs_hold(tmp_path: Path) -> None:
    """A run that is sealed whole is asked without its logs: what was narrow is in the parts too."""
    wanted = sealed_whole(tmp_path)
    os.truncate(tmp_path / "r" / "training.json", 2)
    run = StoredRun(tmp_path / "r")
    for name, pairs in wanted.items():
        series = run.series(name)
        same(zip(series.step.tolist(), series.value.tolist(), strict=True), pairs, name)
