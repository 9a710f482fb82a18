"""`barograph doctor`: people's report, JSON, exit codes, paths of every kind, silence that is explicit."""

from __future__ import annotations

import io
import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import barograph
from barograph.cli import main
from barograph.doctor.kernel.finding import FAMILIES, KINDS, SEVERITIES
from barograph.doctor.kernel.registry import MODULES, rule_classes
from barograph.doctor.kernel.sources import SOURCES, sources_page
from barograph.doctor.pages import index, page_of, write

DOCS = Path(__file__).parent.parent / "docs"


def losses(steps: int = 300, bad: int | None = None) -> list[float]:
    rng = np.random.default_rng(1)
    made = [2 + 3 * math.exp(-step / 100) + 0.02 * float(rng.standard_normal()) for step in range(steps)]
    return [math.nan if bad is not None and step >= bad else value for step, value in enumerate(made)]


def text_log(path: Path, bad: int | None = None) -> Path:
    path.write_text("".join(f"step {step} loss={value:.4f} lr=1e-3\n" for step, value in enumerate(losses(bad=bad))))
    return path


def stored(folder: Path, bad: int | None = None, name: str = "one") -> Path:
    run = barograph.init(project="p", name=name, id=name, dir=folder, verbosity=-2, git=False, machine=False,
                         doctor=False, watchdog=False)  # fmt: skip
    for step, value in enumerate(losses(bad=bad)):
        run.log_step(step, 0.1, 1000, 12.0, 1.0 + 0.01 * (step % 7), value, 1e-3)
    run.finish()
    return run.dir


def test_json_has_the_documented_shape_for_a_log_of_another_tool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = text_log(tmp_path / "train.log", bad=200)
    assert main(["doctor", str(log), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert set(run) == {
        "run", "source", "headline", "findings", "checklist", "checked", "abstained", "judged_by", "no_verdict",
        "series", "unread", "without_step", "said", "stops",
    } and run["source"] == str(log)  # fmt: skip
    finding = run["findings"][0]
    assert {"rule", "family", "kind", "severity", "step", "last_step", "message", "evidence", "causes", "remedies",
            "confidence"} <= set(finding)  # fmt: skip
    assert (finding["severity"], finding["kind"], finding["step"]) == ("critical", "nonfinite", 200)
    assert finding["evidence"]["spark"]["bars"].count("×") > 10
    assert "loss_spike" in run["checked"] and {"rule", "needs"} == set(run["abstained"][0])
    assert not {one["rule"] for one in run["abstained"]} & set(run["checked"])


def test_a_log_on_standard_input_is_judged_as_its_file_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, answers = text_log(tmp_path / "bad.log", bad=200), []
    for path, text in ((str(bad), b""), ("-", bad.read_bytes())):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        assert main(["doctor", path, "--json", "--fail-on", "critical"]) == 3
        (run,) = json.loads(capsys.readouterr().out)["runs"]
        answers.append((run["source"], run["headline"], run["findings"]))
    assert [answer[0] for answer in answers] == [str(bad), "standard input"] and answers[0][1:] == answers[1][1:]
    assert main(["doctor", "-"]) == 1  # nothing is left on it
    assert "nothing in standard input is a training log" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ((58.1, 66.3, 69.2, 69.9, 70.4, 10.0, 10.0, 10.0), True),
        ((0.41, 0.52, 0.55, 0.25, 0.25, 0.25), True),
        ((58.1, 66.3, 69.2, 69.9, 70.4, 10.0, 10.0), False),  # two
        ((58.1, 66.3, 69.2, 69.9, 70.4, 12.0, 12.0, 12.0), False),  # not 1 over a number of classes
        ((0.81, 0.86, 0.88, 0.5, 0.5, 0.5), False),  # a few examples of two classes
        ((11.0, 16.0, 17.5, 18.0, 10.0, 10.0, 10.0), False),  # little to be lost
    ],
)
def test_a_few_accuracies_tell_that_one_class_is_answered(
    values: tuple[float, ...], told: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(f"epoch: {at:4} test acc: {value:.2f}\n" for at, value in enumerate(values, 1)))
    main(["doctor", str(log), "--json"])
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert [found["rule"] for found in run["findings"]] == ["accuracy_collapse"] * told


@pytest.mark.parametrize("name", ["acc", "val_acc"])
def test_an_accuracy_alone_gives_no_verdict_unless_it_collapses(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(f"epoch {epoch} {name} {0.5 + epoch / 1000:.4f}\n" for epoch in range(200)))
    assert main(["doctor", str(log), "--json", "--fail-on", "info"]) == 4
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    of_evaluations = {"evaluations_still", "ranking_by_heart"} if name == "val_acc" else set()
    assert set(run["checked"]) == {"accuracy_collapse", "non_finite_series", *of_evaluations} and run["series"]
    assert (run["judged_by"], run["findings"]) == (None, [])
    assert run["headline"].startswith("No verdict")
    log.write_text("".join(f"epoch {at} {name} {0.1 + at / 60 * (at < 50):.4f}\n" for at in range(70)))
    assert main(["doctor", str(log), "--json", "--fail-on", "warning"]) == 3
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert [one["rule"] for one in run["findings"]] == ["accuracy_collapse"] and run["judged_by"].endswith("accuracy")


@pytest.mark.parametrize(("text", "judged"), [
    ("model,loss,accuracy\na,0.41,0.91\nb,0.44,0.90\nc,0.91,0.71\nd,nan,0.1\n", False),  # a list of models
    ("id,label,loss\n1,0,0.31\n2,1,9.31\n3,1,0.01\n4,0,nan\n", False),  # of examples
    ("lr,epochs,val_loss\n0.1,10,2.3\n0.01,10,0.6\n0.001,10,0.4\n", False),  # of trials
    ("Epochs,Batch size,val_loss\n10,32,0.52\n10,64,0.55\n20,32,0.49\n", False),  # of trials of other lengths
    ("year,region,loss\n1999,north,1204\n2000,south,980\n2001,north,1533\n2002,south,1103\n", False),  # of money
    ("loss,val_loss\n0.9,0.95\n0.6,0.7\n0.5,0.6\n0.4,nan\n", True),
    ("step,model,loss\n1,a,0.9\n2,a,0.6\n3,a,0.5\n4,a,0.4\n", True),
])  # fmt: skip
def test_a_list_of_models_examples_or_trials_gets_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, judged: bool
) -> None:
    path = tmp_path / "results.csv"
    path.write_text(text)
    assert main(["doctor", str(path), "--json"]) == (0 if judged else 4)
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["judged_by"] is not None) == judged and (judged or not run["findings"])


def test_exit_codes_tell_what_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = text_log(tmp_path / "good.log"), text_log(tmp_path / "bad.log", bad=200)
    assert main(["doctor", str(good), "--fail-on", "warning"]) == 0
    assert main(["doctor", str(bad)]) == 0
    assert main(["doctor", str(good), str(bad), "--fail-on", "critical"]) == 3
    capsys.readouterr()
    assert main(["doctor", str(tmp_path / "none.log")]) == 1
    assert "none.log" in capsys.readouterr().err
    (tmp_path / "junk.txt").write_text("nothing to see\n")
    assert main(["doctor", str(tmp_path / "junk.txt"), str(bad), "--json"]) == 1
    out = capsys.readouterr()
    assert len(json.loads(out.out)["runs"]) == 1 and "junk.txt" in out.err
    (tmp_path / "logs.zip").write_bytes(b"PK\3\4")
    assert main(["doctor", str(tmp_path / "logs.zip")]) == 1
    assert "unpack it first" in capsys.readouterr().err


def test_people_are_told_the_worst_run_first_and_what_was_not_checkable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(tmp_path / "runs", name="calm")
    stored(tmp_path / "runs", bad=150, name="storm")
    assert main(["doctor", str(tmp_path / "runs")]) == 0
    told = capsys.readouterr().out
    assert told.index("storm") < told.index("calm") and "no problems found" in told
    assert "✖ CRITICAL  step 150" in told and "cause   " in told and "try     ·" in told
    assert "could not" in told and "2 runs: 1 with a warning or worse" in told and "\x1b" not in told
    assert max(map(len, told.splitlines())) <= 110


def test_a_run_is_found_by_name_and_without_one_the_newest_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path / "runs", name="calm")
    monkeypatch.chdir(tmp_path)
    for words in (["doctor", "calm"], ["doctor"], ["doctor", "runs/p/calm/training.json"]):
        assert main(words) == 0
    assert "calm" in capsys.readouterr().out
    assert main(["doctor", "storm"]) == 1


def test_thresholds_and_silence_are_told_by_name_and_wrong_names_get_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(text_log(tmp_path / "bad.log", bad=200))
    assert main(["doctor", log, "--rules", "non_finite_loss", "--fail-on", "critical"]) == 3
    assert main(["doctor", log, "--silence", "non_finite_loss", "--fail-on", "critical"]) == 0
    assert main(["doctor", log, "--set", "loss_spike=20", "--set", "non_finite_loss.nonsense=1"]) == 1
    assert main(["doctor", log, "--set", "loss_spike"]) == 1
    assert main(["doctor", log, "--silence", "non_finite_los"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3 and "non_finite_loss" in said[2] and all(line.startswith("barograph: ") for line in said)


def test_hostile_names_reach_no_terminal_raw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = barograph.init(project="p", dir=tmp_path, verbosity=-2, git=False, machine=False, doctor=False)
    for step, value in enumerate(losses(bad=100)):
        run.log({"\x1b[31m/loss": value}, step=step)
    run.finish()
    assert main(["doctor", str(run.dir), "--all"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_every_rule_says_what_it_is_in_the_words_of_the_house() -> None:
    classes = rule_classes()
    assert len(classes) >= 50
    for name, rule in classes.items():
        assert rule.family in FAMILIES and rule.kind in KINDS and rule.severity in SEVERITIES, name
        assert rule.about.endswith(".") and rule.needs and (rule.__doc__ or "").strip(), name
        assert all(why for _, why in rule.thresholds.values()), name
    for module in MODULES:
        assert __import__(f"barograph.doctor.rules.{module}", fromlist=["RULES"]).RULES


def test_every_rule_has_its_page_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "rules")
    made = {path.name: path.read_text() for path in (tmp_path / "rules").glob("*.md")}
    kept = {path.name: path.read_text() for path in (DOCS / "rules").glob("*.md")}
    assert made == kept, "run: python -m barograph.doctor.pages docs/rules"
    assert index() in (DOCS / "doctor.md").read_text(), "replace the table with barograph.doctor.pages.index()"


def test_every_source_of_a_rule_has_an_entry_that_can_be_opened() -> None:
    for name, rule in rule_classes().items():
        assert all(entry.partition(": ")[0] in SOURCES for entry in rule.sources), name
    page = (DOCS / "sources.md").read_text()
    assert page == sources_page(), "run: python -m barograph.doctor.pages docs/rules"
    for source in SOURCES.values():
        assert f"### {source.name}\n" in page and "http" in source.where + "http" * (source.name == "Hampel")
    assert len({source.anchor for source in SOURCES.values()}) == len(SOURCES)


def test_rules_know_core_the_kernel_and_what_time_goes_to_alone() -> None:
    known = re.compile(r"barograph\.(core|doctor\.kernel|doctor\.rules|query\.causes)\b")
    for path in (Path(barograph.__file__).parent / "doctor" / "rules").rglob("*.py"):
        for module in re.findall(r"(?m)^\s*(?:from|import) (barograph[\w.]*)", path.read_text()):
            assert known.match(module), f"{path.name} imports {module}"


def test_no_sign_of_a_document_that_readers_cannot_open_is_left() -> None:
    sign = re.compile(r"\b(?:S[0-4]|R\d\d)\b|field notes")
    package = Path(barograph.__file__).parent / "doctor"
    for path in [*package.rglob("*.py"), *(DOCS / "rules").glob("*.md")]:
        assert not sign.search(path.read_text()), path


def test_a_rule_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--explain", "loss-spike"]) == 0
    assert capsys.readouterr().out == page_of(rule_classes()["loss_spike"])
    assert main(["doctor", "--explain", "loss_spyke"]) == 1


@pytest.mark.parametrize(("rise", "severity"), [(0.05, "warning"), (0.0, None), (0.004, None)])
def test_overfitting_is_seen_in_validation_alone(tmp_path: Path, rise: float, severity: str | None) -> None:
    numbers = np.random.default_rng(2)
    losses = [1 + 3 * math.exp(-at / 4) + max(0, at - 10) * rise for at in range(1, 31)]
    lines = [
        f"[{at:02d}/30] validation loss {loss + 0.003 * numbers.normal():.4f}\n" for at, loss in enumerate(losses, 1)
    ]
    log = tmp_path / "val.log"
    log.write_text("".join(lines))
    findings = [
        item for item in barograph.diagnose(barograph.read(log)[0])["findings"] if item["rule"] == "overfitting"
    ]
    assert [item["severity"] for item in findings] in ([severity] if severity == "warning" else [], [severity])
    assert not findings or (8 <= findings[0]["step"] <= 13 and findings[0]["causes"][0].startswith("overfitting"))


@pytest.mark.parametrize(("fall", "severity"), [(0.0, "warning"), (0.02, None)])
def test_a_loss_that_is_flat_over_dozens_of_epochs_warns_at_any_level(
    tmp_path: Path, fall: float, severity: str | None
) -> None:
    numbers = np.random.default_rng(2)
    table = tmp_path / "run.csv"
    rows = [f"{at},{0.91 * math.exp(-fall * at) * (1 + 0.004 * numbers.normal()):.4f}\n" for at in range(60)]
    table.write_text("epoch,loss\n" + "".join(rows))
    found = {item["rule"]: item["severity"] for item in barograph.diagnose(barograph.read(table)[0])["findings"]}
    assert found.get("not_learning") == severity
    table.write_text("step,loss\n" + "".join(rows))  # steps are not epochs
    found = {item["rule"]: item["severity"] for item in barograph.diagnose(barograph.read(table)[0])["findings"]}
    assert "not_learning" not in found


def test_rows_without_a_step_are_counted_in_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(f"loss={2 + math.exp(-at / 30):.4f} acc={0.5:.2f}\n" for at in range(120)))
    assert main(["doctor", str(log)]) == 0
    assert "the log says no step for 120 rows: they are numbered as they come" in capsys.readouterr().out
    assert barograph.diagnose(barograph.read(text_log(tmp_path / "other.log", bad=200))[0])["without_step"] == 0


@pytest.mark.parametrize(("text", "reason"), [
    ("step 1 loss 2.1\nstep 2 loss 2.0\nstep 3 loss 1.9\n", "too few"),
    ("".join(f"epoch {at} of a rerun, loss 2.{at}1\n" for at in (5, 2, 8, 3, 7, 1, 6, 4, 8, 2, 5, 3)), "in no order"),
    ("".join(f"step {at} Train-Accuracy=0.{at:02d}\n" for at in range(10, 40)), "accuracy alone"),
])  # fmt: skip
def test_what_is_too_little_or_no_training_gets_no_verdict_and_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    path = tmp_path / "train.log"
    path.write_text(text)
    assert main(["doctor", str(path)]) == 4
    out = capsys.readouterr().out
    assert "no problems found" not in out and "no verdict: " in out and reason in out.replace("\n  ", " ")


def test_rules_that_have_nothing_to_look_at_give_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"step {at} loss {3 - at / 40}\n" for at in range(64)))
    for more in ([], ["--fail-on", "info"]):
        assert main(["doctor", str(path), "--rules", "scaled_outputs", *more]) == 4
        out = capsys.readouterr().out.replace("\n ", "")
        assert "no verdict: none of the rules" in out and "0 rules checked" in out
    assert main(["doctor", str(path), "--rules", "loss_spike"]) == 0
    assert "1 rule checked the run." in capsys.readouterr().out


def test_three_rows_with_nan_and_launches_that_begin_at_the_same_step_are_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.log"
    path.write_text("step 1 loss 2.1\nstep 2 loss nan\nstep 3 loss nan\n")
    assert main(["doctor", str(path), "--fail-on", "critical"]) == 3
    path.write_text("".join(f"epoch {at} loss {3 - at / 4}\n" for _ in range(5) for at in (1, 2, 3)))
    capsys.readouterr()
    assert main(["doctor", str(path)]) == 0


def test_a_policy_is_judged_by_its_reward_not_by_its_surrogate_loss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.csv"
    lines = [f"{at},{0.01 * math.sin(at):.4f},{0.3 + 0.01 * at:.3f},{10 + at}\n" for at in range(30)]
    path.write_text("iteration,Loss/surrogate,Loss/value_function,Train/mean_reward\n" + "".join(lines))
    assert main(["doctor", str(path), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["judged_by"] == "Train/mean_reward"


@pytest.mark.parametrize(("steps", "judged"), [
    ([2, 2, 3, 6, 4, 7, 1, 1, 4, 5], False),  # named as they come to mind
    ([1, 2, 3, 1, 2, 3, 1, 2, 3], True),  # three launches
    ([100, 200, 300, 400, 300, 400, 500, 600, 500, 600], True),  # resumed twice
    ([1, 1, 2, 1, 2, 2, 3, 2, 3, 3, 4, 3], True),  # two processes, one behind the other
])  # fmt: skip
def test_steps_without_any_order_are_no_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], steps: list[int], judged: bool
) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"epoch {step}: loss {2.5 - 0.01 * at:.3f}\n" for at, step in enumerate(steps)))
    assert main(["doctor", str(path)]) == (0 if judged else 4), capsys.readouterr().out
