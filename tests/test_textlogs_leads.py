"""What collectors and loggers write before the lines of a log is no part of their rows, and says their times."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from textlog_readings import collect, find, read

from barograph.doctor import diagnose
from barograph.importing.resolve import resolve
from barograph.importing.textlogs import chunks, leads

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks" / "doctor"))

import dialects


def findings(path: Path) -> list[dict[str, Any]]:
    return [one for run, source in resolve(str(path)) for one in diagnose(run, source=source)["findings"]]


ROWS = [(step, f"{6 - step / 20:.3f}") for step in range(3, 60, 2)]
SHAPES = {
    "behind": " {s}: 9.1, {v} avg loss, 0.001 rate, 2.0 seconds, 64 images\n",
    "units": "{s:>5} 231.47 ms run, 2.31 ms python, {v} loss, 0.000300 LR, 8.02 GB used\n",
    "rounds": "[{s}]\ttraining's l2: {v}\tvalid_1's l2: 9.5\n",
    "sentence": "After {s} of 90 steps the loss is {v} at a rate of 0.0003.\n",
    "pairs": "step {s} loss {v}\n",
}
BEFORE = {
    "an editor's": "{n:6d}\t",
    "grep's": "train.log:{n}:",
    "a cluster's": "2025-10-02T12:00:{n:02d}.1184021Z ",
    "compose's": "train_1  | ",
    "a quotation's": "> ",
    "syslog's": "<134>1 2025-10-02T12:00:{n:02d}Z node-3 train 77 - - ",
    "a phone's": "10-02 12:00:{n:02d}.118  4711  4730 I Trainer : ",
    "a robot's": "[INFO] [17594000{n:02d}.118402117] [trainer_node]: ",
    "a logger's": "12:00:{n:02d}.007 train.py:88 I ",
    "a class's": "12:00:{n:02d}.007 [main] INFO  o.e.train.listeners.Listener - ",
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("before", BEFORE)
def test_rows_are_read_behind_what_is_written_before_them(tmp_path: Path, shape: str, before: str) -> None:
    path = tmp_path / "train.log"
    rows = [SHAPES[shape].format(s=step, v=loss) for step, loss in ROWS]
    path.write_text("".join(BEFORE[before].format(n=at + 2) + row for at, row in enumerate(rows)))
    assert dialects.problem_of(path, ROWS) == ""


def test_times_before_the_rows_are_those_of_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    text = "".join(f"2025-10-02T12:00:{step:02d}.500Z step {step} loss {loss}\n" for step, loss in ROWS)
    path.write_text(text)
    (chunk, *_) = chunks.chunks(path)
    assert chunk.leads is not None
    assert chunk.leads[0] == b"2025-10-02T12:00:03.500Z "
    assert [step for step, _ in read(path).series["loss"]] == [step for step, _ in ROWS]


def test_a_table_of_counted_rows_keeps_its_counts() -> None:
    text = b"".join(b"%d\t2.3\t0.1\n" % at for at in range(1, 40))
    assert leads.collected(text) == (text, None)


@pytest.mark.parametrize(
    "text", ["[train] step 5 loss 2.3\n", "val loss 2.3\n", "train: loss 2.3\n", "step 5: loss 2.3\n"]
)
def test_words_for_data_and_counts_are_no_loggers(text: str) -> None:
    whole = (text * 9).encode()
    assert leads.logged(*leads.collected(whole))[0] == whole


def test_lines_keep_their_numbers_where_a_bar_is_drawn() -> None:
    chunk = chunks.Chunk(b"a\nb\nc\nd\n", b"a\rb\rc\nd\n", 10, 0, 0, 0, b"")
    assert [chunk.number(index) for index in range(4)] == [10, 10, 10, 11]


@pytest.mark.parametrize("line", ["best loss 2.31 at step 40, patience 3/10\n", "lowest val loss 2.31 at step 40\n"])
def test_the_best_so_far_is_no_row(tmp_path: Path, line: str) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"step {step} loss {loss}\n{line}" for step, loss in ROWS))
    assert dialects.problem_of(path, ROWS) == ""


@pytest.mark.parametrize("heading", ["step;loss;lr", "Schritt;Verlust;Lernrate", "iteration;train_loss;lr"])
def test_tables_with_semicolons_may_have_commas_in_their_numbers(tmp_path: Path, heading: str) -> None:
    path = tmp_path / "train.log"
    rows = "".join(f"{step};{loss.replace('.', ',')};0,0003\n" for step, loss in ROWS)
    path.write_text(f"some words\n{heading}\n{rows}")
    assert dialects.problem_of(path, ROWS) == ""


def test_commas_of_decimals_and_of_thousands(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "".join(f"Schritt {step}: Verlust = {loss[:-1].replace('.', ',')}; lr = 0,0003\n" for step, loss in ROWS)
    )
    assert dialects.problem_of(path, [(step, loss[:-1]) for step, loss in ROWS]) == ""
    path.write_text("".join(f"step 1,{step:03d}: loss = {loss}\n" for step, loss in ROWS))
    assert dialects.problem_of(path, [(1000 + step, loss) for step, loss in ROWS]) == ""


def test_an_epochs_length_behind_its_steps_places_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    rows = [(step, f"{6 - step / 100:.3f}") for step in range(0, 400, 30)]
    path.write_text("".join(f"Epoch[{1 + s // 90}] Iteration[{s % 90}/90] loss: {v}\n" for s, v in rows))
    assert dialects.problem_of(path, rows) == ""


@pytest.mark.parametrize("before", ["{s}:00:07.118 INFO  ", "2025-10-02T12:00:{s}.118Z ", "    {s}\t"])
def test_what_a_program_says_at_its_end_is_read_whole(tmp_path: Path, before: str) -> None:
    path = tmp_path / "train.log"
    rows = [f"step {step} loss {loss}" for step, loss in ROWS]
    end = [
        "Traceback (most recent call last):",
        '  File "train.py"',
        "torch.cuda.OutOfMemoryError: CUDA out of memory.",
    ]
    if "\t" in before or "Z" in before:  # each line has it
        rows += end
        end = []
    text = [before.format(s=at) + row for at, row in enumerate(rows, 11)]
    path.write_text("\n".join(["     9\tbegun" if "\t" in before else "begun", *text, *end]) + "\n")
    (finding,) = [one for one in findings(path) if one["severity"] == "critical"]
    assert "OutOfMemoryError" in finding["message"] or "memory" in finding["message"]
    assert finding["step"] == 59


@pytest.mark.parametrize(
    ("head", "form"),
    [
        ("train.log:0:step  loss\n", "train.log:{line}:{step}  {loss:.4f}\n"),
        ("", "node12: {step} loss {loss:.4f}\n"),
        ("", "12:{minute} {step} loss {loss:.4f}\n"),
        ("", "{line:6d}\tloss {loss:.4f} lr 0.001\n"),
        ("epoch & loss & lr \\\\\n", "{step} & {loss:.4f} & 0.001 \\\\\n"),
    ],
)
@pytest.mark.parametrize("more", [1, 2])
def test_a_log_that_grows_by_single_lines_is_read_as_one_that_is_whole(
    tmp_path: Path, head: str, form: str, more: int
) -> None:
    path = tmp_path / "train.log"
    rows = [form.format(line=step + 1, step=step, minute=f"{step:02d}", loss=3 - step / 100) for step in range(60)]
    path.write_text(head + "".join(rows))
    ((dialect, found), *_) = find(path)
    whole = collect(dialect, found).series["loss"]
    assert len(whole) >= 59
    mark, pieces = None, []
    for end in range(20, 61, more):
        path.write_text(head + "".join(rows[:end]))
        reading = collect(dialect, found, mark)
        mark, pieces = reading.mark, pieces + reading.series.get("loss", [])
    assert pieces == whole


@pytest.mark.parametrize(("place", "name"), [
    ("app.loop:train_epoch:58", "loss"), ("__main__:<module>:7", "loss"), ("app.loop:validate:71", "val loss"),
])  # fmt: skip
def test_the_place_in_the_program_is_no_value(tmp_path: Path, place: str, name: str) -> None:
    line = "2025-10-02 12:00:{s:02d}.118 | INFO     | {p} - epoch {s} loss: {v}\n"
    path = tmp_path / "fit.log"
    path.write_text("".join(line.format(s=step, v=value, p=place) for step, value in ROWS))
    reading = read(path)
    assert list(reading.series) == [name]
    assert [at for at, _ in reading.series[name]] == [step for step, _ in ROWS]


def test_a_padded_name_ahead_of_a_level_is_no_row(tmp_path: Path) -> None:
    lines = ["Scheduled epochs: 90"]
    for epoch in range(3):
        lines += [
            f"Train: {epoch} [{at:>4}/200 ({at // 2:>3}%)]  Loss: {6 - epoch - at / 300:.3f} (5.1) LR: 1.000e-03"
            for at in (0, 100, 200)
        ]
        lines.append(f"Test: [  50/50]  Time: 0.2 (0.1)  Loss:  {5 - epoch:.4f} (5.0123)")
    path = tmp_path / "fit.log"
    path.write_text("".join(f"2025-10-02 12:00:01,118 -                train: [    INFO] - {line}\n" for line in lines))
    series = read(path).series
    assert set(series) == {"Loss", "LR", "test Loss"}
    assert [at for at, _ in series["Loss"]] == [0, 100, 200, 300, 400, 500, 600]
    assert [at for at, _ in series["test Loss"]] == [200, 400, 600]


def test_what_r_prints_is_unquoted(tmp_path: Path) -> None:
    path = tmp_path / "fit.log"
    path.write_text(
        "".join(f"[1] \"[{at}]:  train's l2:{3 / at:.5f}  eval's l2:{4 / at:.5f}\"\n" for at in range(1, 9))
    )
    series = read(path).series
    assert series["train l2"] == [(at, round(3 / at, 5)) for at in range(1, 9)]
    assert series["eval l2"] == [(at, round(4 / at, 5)) for at in range(1, 9)]


def test_a_tag_that_says_the_data_is_no_name_of_a_logger(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(
        f"[03-14-2021 10:00:0{at}]\t[Fit:train] Iter:{at}\tloss={3 / at:.6f}\n"
        f"[03-14-2021 10:00:0{at}]\t[Eval:test] Iter:{at}\tndcg@5=0.{at}11111\n"
        f"[03-14-2021 10:00:0{at}]\t[Eval:valid] Iter:{at}\tndcg@5=0.{at}22222\n"
        for at in range(1, 9)
    ))  # fmt: skip
    series = read(path).series
    assert series["test ndcg@5"][2] == (3, 0.311111) and series["val ndcg@5"][2] == (3, 0.322222)


def test_a_time_a_loggers_name_and_a_level_in_brackets_stand_before_a_count(tmp_path: Path) -> None:
    path = tmp_path / "fit.log"
    lines = [
        f"[2031-05-07 09:{at:02d}:12,418][pack.fit.part][INFO] - {at}: train loss   0.{900 - at} | t: 6{at}.2"
        for at in range(11, 20)
    ]
    path.write_text("\n".join(lines) + "\n")
    assert read(path).series["train loss"] == [(at, round((900 - at) / 1000, 3)) for at in range(11, 20)]


def test_a_count_and_how_many_there_will_be_begin_a_row(tmp_path: Path) -> None:
    path = tmp_path / "fit.log"
    path.write_text(
        "".join(f"{at}500 / 90000 eps 0.{at}9 |  gain -0.9 | Loss {9 / at:.3e} | Slope 5.5e-03\n" for at in range(3, 9))
    )
    assert [step for step, _ in read(path).series["Loss"]] == [at * 1000 + 500 for at in range(3, 9)]


def test_a_count_in_brackets_is_no_name_of_a_logger(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    losses = [round(6 - at / 9, 3) for at in range(24)]
    form = "2025-10-02 12:00:01,118 - __main__ - INFO - [epoch]: {e}, [batch]: {b}, [loss]: {v}\n"
    path.write_text("".join(form.format(e=at // 8, b=50 * (at % 8 + 1), v=v) for at, v in enumerate(losses)))
    reading = read(path)
    assert reading.series["loss"] == [(50 * at, v) for at, v in enumerate(losses, 1)]
    assert not reading.restarts


def test_numbers_of_lines_without_a_file_are_no_ranks(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    form = "{n}: 2025-10-02 12:00:{n}.118 INFO: Epoch {s}: loss={v}, RMSE=  7.31 meV\n"
    path.write_text("".join(form.format(n=at + 12, s=step, v=loss) for at, (step, loss) in enumerate(ROWS)))
    assert read(path).series["loss"] == [(step, float(loss)) for step, loss in ROWS]
    assert read(path).times["loss"][0] % 60_000_000 == 12_118_000
    ranks = "".join(f"{rank}: 2025-10-02 12:00:07 step {step} loss {v}\n" for step, v in ROWS for rank in range(3))
    path.write_text(ranks)
    reading = read(path)
    assert reading.series["loss"] == [(step, float(loss)) for step, loss in ROWS]
    assert reading.state["other_ranks"] == 2 * len(ROWS)
