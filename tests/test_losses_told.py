"""A loss that its rows tell, since no name does, is the loss of all that shows a run, while it goes on and after.

The runs are recorded for real: what the backward passes were called with is seen by the watch.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served_runs import QUIET, Browser

import barograph
from barograph.analysis.compare.member import ComparedMember
from barograph.analysis.compare.refusals import Obstacles, metric_obstacle
from barograph.analysis.importance.explain import importance
from barograph.analysis.lineage.tracks import Tracks
from barograph.core.record import Record
from barograph.doctor.replay import replay
from barograph.query.export import export
from barograph.query.groups import groups
from barograph.query.losses import RunLosses, losses_of_folder, run_losses
from barograph.query.metrics import last_values
from barograph.query.sql import sql
from barograph.query.stored import StoredRun
from barograph.sidecar.alerts.options import read_threshold
from barograph.sidecar.alerts.watching import Watching
from barograph.training.blackbox.files import Box
from barograph.views import blackbox, overview
from barograph.views.assistant.answers import Answers
from barograph.views.compare.command import run_compare
from barograph.views.notebook.sources import RunSource
from barograph.views.report.command import content
from barograph.views.report.markdown import section
from barograph.views.report.subject import Subject
from barograph.views.server import rows
from barograph.views.server.places import Places
from barograph.views.server.table import RunTable
from barograph.views.tables.listing import run_ls
from barograph.views.top.watching import RunWatch

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

STEPS, EACH = 48, 6
TOLD, NAMED = ("match/nce", "val/masses"), ("train/loss", "eval/loss")


class Training:
    """A small training of a watched model, whose losses have these names."""

    def __init__(self, root: Path, name: str, names: tuple[str, str], seed: int = 0, rate: float = 3e-3):
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
        self.optimizer = torch.optim.Adam(self.model.parameters(), rate)
        self.inputs = torch.randn(64, 6)
        self.targets = (self.inputs[:, 0] > 0).long() + (self.inputs[:, 1] > 0).long()
        self.loss, self.evaluation = names
        self.measure = "reef/accuracy" if self.evaluation == "reef/ce" else "val/accuracy"
        self.run = barograph.init("p", name, {"lr": rate, "seed": seed}, str(root), git=False, sidecar=False, **QUIET)
        self.run.watch(self.model, self.optimizer)
        self.step, self.losses, self.evaluations = 0, [math.nan], [math.nan]

    def train(self, steps: int, broken: bool = False) -> None:
        for _ in range(steps):
            some = torch.randint(0, 64, (16,))
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(self.inputs[some]), self.targets[some])
            loss.backward()
            self.optimizer.step()
            self.losses.append(math.nan if broken else loss.item())
            self.run.log({self.loss: self.losses[-1], "match/rate": 1e-3 / (1 + self.step)}, step=self.step)
            if self.step % EACH == EACH - 1:
                with torch.no_grad():
                    outputs = self.model(self.inputs)
                self.evaluations.append(nn.functional.cross_entropy(outputs, self.targets).item() + 0.1)
                self.run.log({self.evaluation: self.evaluations[-1], self.measure: 0.5}, step=self.step)
            self.step += 1


@pytest.fixture
def trainings(tmp_path: Path) -> Iterator[dict[str, Training]]:
    """One whose losses have names of their own, with a repeat of it, and one whose losses have the usual ones."""
    made = {
        "told": Training(tmp_path, "told", TOLD),
        "again": Training(tmp_path, "again", TOLD, seed=1, rate=1e-3),
        "named": Training(tmp_path, "named", NAMED),
    }
    yield made
    for one in made.values():
        one.run.finish()


def wait_told(training: Training) -> None:
    """What the watch records comes some later than what is logged."""
    deadline = time.monotonic() + 60
    while run_losses(StoredRun(training.run.dir)).evaluation is None and time.monotonic() < deadline:
        time.sleep(0.05)


def test_every_way_out_has_the_same_losses_live_and_after_the_end(
    trainings: dict[str, Training], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for training in trainings.values():
        training.train(STEPS)
    for training in trainings.values():
        wait_told(training)
    ask(trainings, tmp_path, capsys)
    for training in trainings.values():
        training.run.finish()
    assert {run.status for run in barograph.runs(tmp_path)} == {"finished"}
    ask(trainings, tmp_path, capsys)


def ask(trainings: dict[str, Training], root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every way out, of each run."""
    wanted = {name: (one.losses[-1], one.evaluations[-1]) for name, one in trainings.items()}
    runs = {name: StoredRun(one.run.dir) for name, one in trainings.items()}
    names = {name: (one.loss, one.evaluation) for name, one in trainings.items()}
    whole = list(runs.values())

    def pairs(rows: list[dict[str, Any]], key: str) -> dict[str, tuple[float, float]]:
        return {row[key]: (row["loss"], row["eval_loss"]) for row in rows}

    assert {name: run_losses(run) for name, run in runs.items()} == {
        name: RunLosses((loss,), (evaluation,)) for name, (loss, evaluation) in names.items()
    }
    # lists: Python, the command, SQL, the assistant, the page
    assert {name: pairs([overview.summary(run)], "id")[name] for name, run in runs.items()} == wanted
    assert run_ls([], dir=str(root), as_json=True) == 0
    assert pairs(json.loads(capsys.readouterr().out), "id") == wanted
    assert pairs(sql("select run, loss, eval_loss from runs", runs=whole).to_pylist(), "run") == wanted
    evaluated = sql("select run, name, count(*) as n from evaluations group by all", runs=whole).to_pylist()
    assert {(row["run"], row["name"], row["n"]) for row in evaluated} == {
        (name, evaluation, STEPS // EACH) for name, (_, evaluation) in names.items()
    }
    answers = Answers(str(root))
    assert pairs(answers.list_runs()["runs"], "run") == wanted
    table = RunTable(Places(root))
    with Browser(root) as browser:
        browser.server.table.refresh()
        assert browser.server.table.wait_filled(60)
        listed = {row["id"]: row for row in browser.get("/api/runs")["runs"]}
        for name, (loss, evaluation) in names.items():
            for row in (listed[name], table.whole_row(f"p/{name}").data):
                assert (row["loss"], row["eval_loss"]) == (loss, evaluation)
                assert (row["last"][loss], row["last"][evaluation]) == wanted[name]
                assert row["best"][loss] == min(trainings[name].losses[1:])
        pinned = browser.get("/api/groups", params={"by": "lr,seed", "column": [f"last:{TOLD[0]}", f"best:{TOLD[0]}"]})

    for (loss, evaluation), (name, run) in zip(names.values(), runs.items(), strict=True):
        assert one_run(run, root, capsys) == {
            "subject": (loss, wanted[name][0]), "member": (loss, STEPS), "page": (loss, evaluation),
            "answers": (loss, evaluation), "top": (loss, evaluation), "doctor": (loss, evaluation),
            "notebook": (loss, evaluation), "box": True, "export": wanted[name], "lineage": STEPS, "forecast": True,
            "report": True, "alerts": loss,
        }  # fmt: skip

    # several runs
    two = [runs["told"], runs["again"]]
    made = barograph.compare(*two)
    assert made.metric == TOLD[1] and made.rows[0].direction == -1 and any(TOLD[0] in row.name for row in made.rows)
    assert run_compare([str(run.dir) for run in two], to="json") == 0
    assert json.loads(capsys.readouterr().out)["metric"] == TOLD[1]
    assert importance(*two, level=0.5).metric == TOLD[1]
    (group,) = groups(two, "project")
    assert group.losses == RunLosses((TOLD[0],), (TOLD[1],))
    assert group.best(TOLD[0]).best == min(min(trainings[name].losses[1:]) for name in ("told", "again"))
    assert overview.group_table([group]).splitlines()[1].split()[3] != ""
    alone = {each.runs[0].id: each for each in groups(whole, ["lr", "seed"]) if len(each.runs) == 1}
    shown = {each["runs"][0]: each["statistics"] for each in pinned["groups"] if len(each["runs"]) == 1}
    assert shown["p/again"][f"best:{TOLD[0]}"]["best"] == alone["again"].best(TOLD[0]).best


def one_run(run: StoredRun, root: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What each way out says of one run."""
    member = ComparedMember(run)
    subject = Subject(run)
    own = member.names
    assert member.main is not None and subject.loss is not None and member.losses.evaluation is not None
    watch = RunWatch(run)
    watch.look([])
    watch.close()
    seen = replay(run).seen
    judged, held = seen.role("loss"), seen.role("eval_loss")
    assert judged is not None and held is not None
    panel = RunSource(run)._panels_of()[0][1]
    series = [line.split()[0] for line in overview.page(run).partition("  SERIES")[2].splitlines()[1:3]]
    table = root / "table.csv"
    export(run, "csv", table)
    exported = list(csv.DictReader(table.open()))
    last = {name: [float(row[name]) for row in exported if row[name]][-1] for name in panel}
    recorded = [Record("metrics", STEPS - 1, 1, {own[subject.loss]: last[own[subject.loss]]})]
    box = Box(root, {"step": STEPS, "reason": "asked"}, recorded, [])
    drawn = blackbox.lines(box, losses=run_losses(run))
    watching = Watching(lambda: losses_of_folder(run.dir))
    watching.add(read_threshold({"metric": "the_loss", "above": 10.0}, "the alert"), 0.0)
    for step in range(120):
        watching.take((own[subject.loss], "match/rate"), [1.0, 0.1], step, float(step))
    adopted = {name for _, _, watched in watching._entries for name in watched} - {"the_loss"}
    report = "\n".join(section(one) for one in content([run]).sections)
    return {
        "subject": (own[subject.loss], float(subject.series(subject.loss).value[-1])),
        "member": (own.get(member.main.name, member.main.name), len(member.main)),
        "page": tuple(sorted(series, key=lambda name: name.startswith(("val/", "eval/")))),
        "answers": tuple(list(Answers(str(root)).run_summary(run.id)["series"])[:2]),
        "top": (watch.roles["loss"], watch.roles["eval_loss"]),
        "doctor": (judged.name, held.name),
        "notebook": tuple(panel),
        "box": any("LOSS" in line for line in drawn),
        "export": tuple(last.values()),
        "lineage": int(Tracks(run).steps(True)),
        "forecast": "no training loss" not in str(barograph.forecast(run).reason),
        "report": "No loss is recorded" not in report and "training loss" in report,
        "alerts": next(iter(adopted), ""),
    }


def test_the_answer_comes_with_the_rows_and_stays(tmp_path: Path) -> None:
    training = Training(tmp_path, "told", TOLD)
    same, said = StoredRun(training.run.dir), []
    for _ in range(STEPS // 2):
        training.train(2)
        said.append((run_losses(same), run_losses(StoredRun(training.run.dir))))
    training.run.finish()
    said.append((run_losses(StoredRun(training.run.dir)),) * 2)
    for place in (0, 1):
        course = list(dict.fromkeys(pair[place] for pair in said))
        assert course[0] == RunLosses() and course[-1] == RunLosses(TOLD[:1], TOLD[1:]) == said[-1][place]
        changes = sum(said[at][place] != said[at - 1][place] for at in range(1, len(said)))
        assert changes == len(course) - 1, "once known it does not change back"


def test_what_was_told_is_not_asked_again_and_names_that_tell_are_not_asked_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, names in (("told", TOLD), ("named", NAMED)):
        training = Training(tmp_path, name, names)
        training.train(STEPS)
        training.run.finish()
    read: list[str] = []
    columns = StoredRun.columns

    def counted(run: StoredRun, name: str, *others: Any) -> Any:
        read.append(name)
        return columns(run, name, *others)

    monkeypatch.setattr(StoredRun, "columns", counted)
    told, named = (StoredRun(tmp_path / "p" / name) for name in ("told", "named"))
    assert run_losses(named) == RunLosses(NAMED[:1], NAMED[1:]) and not read
    assert run_losses(told) == RunLosses(TOLD[:1], TOLD[1:]) and "model/loss_given" in read


@pytest.mark.parametrize("names", [TOLD, ("fit/bce", "reef/ce")])
def test_a_run_whose_told_loss_ends_as_nan_has_diverged(tmp_path: Path, names: tuple[str, str]) -> None:
    training = Training(tmp_path, "told", names)
    training.train(2 * STEPS)
    training.train(2, broken=True)
    training.run.finish()
    run = StoredRun(training.run.dir)
    assert run.status == "diverged" and RunTable(Places(tmp_path)).whole_row("p/told").data["status"] == "diverged"
    assert math.isnan(last_values(run)[names[0]]) and np.isnan(run.series(names[0]).value[-2:]).all()


def test_a_row_of_the_page_has_the_loss_once_its_rows_have_come_and_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_ASK_SECONDS", 0.0)
    training = Training(tmp_path, "told", TOLD)
    training.train(1)
    table = RunTable(Places(tmp_path))
    assert table.whole_row("p/told").data["loss"] is None
    training.train(STEPS - 1)
    wait_told(training)
    table.advance(["p/told"])
    assert table.wait_filled(60)
    data = table.row("p/told").data
    assert (data["loss"], data["eval_loss"]) == TOLD and data["best"][TOLD[0]] == min(training.losses[1:])
    training.train(4)
    training.losses.append(0.01)
    training.run.log({TOLD[0]: 0.01}, step=training.step)
    table.advance(["p/told"])
    assert table.row("p/told").data["best"][TOLD[0]] == 0.01, "the smallest is followed from then on"
    training.run.finish()
    row = table.whole_row("p/told")
    assert (row.data["loss"], row.data["eval_loss"], row.live) == (*TOLD, False)
    kept = rows.RunRow(row.place)
    kept.restore(row.signature, row.raw, None, row.recorded_json, row.edited, row.written)
    kept.encode()
    assert (kept.data["loss"], kept.data["eval_loss"]) == TOLD, "for the next server"


def test_a_told_loss_is_refused_where_a_named_one_is() -> None:
    reason = Obstacles(
        None, None, "other validation data", "other data", (), RunLosses(("match/nce",), ("gallery/ce",))
    )
    assert [metric_obstacle(name, reason) for name in ("match/nce", "gallery/ce", "match/rate")] == [
        "other data", "other validation data", None
    ]  # fmt: skip
    reason = dataclasses.replace(reason, tokenizer="other tokens")
    assert [metric_obstacle(name, reason) for name in ("match/nce", "match/rate")] == ["other tokens", None]
