"""The command: files, what it says of them, and one sentence for what can't be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reported_runs import sound, start, stored

from barograph.views.report.command import report, run_report


def test_a_folder_of_markdown_and_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = sound(tmp_path / "runs")
    out = tmp_path / "report"
    assert run_report([str(run.dir)], out=out) == 0
    shown = capsys.readouterr().out
    assert f"{out}/report.html: {(out / 'report.html').stat().st_size:,} bytes" in shown
    assert (out / "report.md").exists() and (out / "loss.md").exists()
    assert run_report(["sound"], dir=str(tmp_path / "runs"), out=out, html_only=True) == 0
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "report.json"]
    assert report([run], out, markdown_only=True) == 0
    assert not (out / "report.html").exists() and (out / "loss.md").exists()


def test_files_that_are_no_reports_stay(tmp_path: Path) -> None:
    run = sound(tmp_path / "runs")
    out = tmp_path / "report"
    out.mkdir()
    (out / "mine.md").write_text("mine")
    (out / "report.json").write_text('{"files": ["../runs/x.md", "mine.html", 7]}')
    report([run], out, html_only=True)
    assert (out / "mine.md").read_text() == "mine"


def test_json_holds_the_sentences_with_their_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report([sound(tmp_path / "runs")], tmp_path / "out", as_json=True)
    found = json.loads(capsys.readouterr().out)
    (loss,) = (one for one in found["sections"] if one["slug"] == "loss")
    sentences = [one for one in loss["blocks"] if one["kind"] == "sentence"]
    assert any(sentence["figures"] for sentence in sentences)
    assert all(one["text"] in sentence["text"] for sentence in sentences for one in sentence["figures"])
    assert found["files"] and found["out"] == str(tmp_path / "out")


def test_several_runs_are_compared(tmp_path: Path) -> None:
    runs = [sound(tmp_path / "runs", "a"), sound(tmp_path / "runs", "b", lr=2e-3)]
    out = tmp_path / "out"
    assert report(runs, out) == 0
    text = (out / "report.md").read_text()
    assert "## Verdict" in text and "optimizer.lr" in text
    page = (out / "report.html").read_text()
    assert 'id="chart-curves"' in page and 'id="chart-difference"' in page


def test_runs_that_share_no_name_are_a_sentence(tmp_path: Path) -> None:
    for name, series in (("a", "train/loss"), ("b", "score")):
        run = start(tmp_path / "runs", name)
        for step in range(30):
            run.log({series: float(step)}, step=step)
        run.finish()
    runs = [stored(tmp_path / "runs", name) for name in ("a", "b")]
    assert report(runs, tmp_path / "out") == 0
    assert "so their curves can't be compared" in (tmp_path / "out" / "report.md").read_text()


def test_a_log_of_another_tool_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(f"step {at} loss={3 - at / 100:.3f} lr=0.001\n" for at in range(100)))
    assert run_report([str(log)], out=tmp_path / "out") == 0
    text = (tmp_path / "out" / "report.md").read_text()
    assert "read from" in text and "The run time is not recorded." in text


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"html_only": True, "markdown_only": True}, "leave nothing to write"),
        ({"price": -1.0}, "0 or more"),
        ({"price": float("nan")}, "0 or more"),
    ],
)
def test_wrong_options_are_one_sentence(tmp_path: Path, options: dict[str, object], sentence: str) -> None:
    run = sound(tmp_path / "runs", steps=40)
    with pytest.raises(ValueError, match=sentence):
        report([run], tmp_path / "out", **options)  # type: ignore[arg-type]


def test_no_run_and_a_folder_that_is_a_file_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no run to report on"):
        report([], tmp_path / "out")
    (tmp_path / "out").write_text("")
    with pytest.raises(ValueError, match="is a file"):
        report([sound(tmp_path / "runs", steps=40)], tmp_path / "out")
    with pytest.raises(KeyError):
        run_report(["nothing"], dir=str(tmp_path / "runs"), out=tmp_path / "other")
