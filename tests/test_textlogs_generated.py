"""Logs drawn from a generator of dialects: nearly all are read whole, each loss at its step."""

from __future__ import annotations

import gzip
import itertools
import math
import subprocess
import sys
from pathlib import Path

import pytest
from textlog_readings import find, read

import barograph
from barograph.doctor import diagnose
from barograph.importing.registry import identify
from barograph.importing.source import ImportedPoints

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks" / "doctor"))

import dialects
import dialects_families


@pytest.mark.parametrize("seed", [11, 12])
def test_generated_logs_are_read_whole(tmp_path: Path, seed: int) -> None:
    problems = [problem for _, _, problem in dialects.score(dialects.WORDS, seed, 120, tmp_path) if problem]
    assert len(problems) <= 1, problems


@pytest.mark.parametrize("family", ["apart", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"])
def test_other_families_are_read_whole(tmp_path: Path, family: str) -> None:
    scored = dialects.score(dialects_families.FAMILIES[family], 21, 80, tmp_path)
    problems = [problem for _, _, problem in scored if problem]
    assert len(problems) <= 2, problems


@pytest.mark.parametrize("family", ["seventh", "eighth", "ninth", "tenth", "eleventh"])
def test_a_familys_files_hold_what_is_said_to_be_true_of_them(family: str) -> None:
    words = dialects_families.FAMILIES[family]
    layouts = set()
    for seed in range(160):
        drawn = dialects.case(words, seed)
        assert drawn == dialects.case(words, seed)
        layouts.add(drawn.drawn["layout"])
        content = gzip.decompress(drawn.content) if drawn.ending.endswith("gz") else drawn.content
        text = content.decode("utf-16" if drawn.drawn["wrap"] == "utf16" else "utf-8")
        assert len(drawn.truth) >= 20
        at = 0
        for step, shown in drawn.truth:  # each value stands in the text, in the order of the rows
            assert step >= 0
            value = shown.split()[0]
            places = [text.find(one, at) for one in (value, value.replace(".", ","))]
            at = min(place for place in places if place >= 0)
    assert layouts == {layout.__name__ for layout in words.layouts}


@pytest.mark.parametrize(
    "form",
    [
        '<train step="{s}" loss="{v}" lr="1e-3"/>\n',
        "<row step='{s}' train_nll='{v}'/>\n",
        "[{s}/400 steps] loss {v}\n",
        "=== upd {s} ===\n * xe = {v}\n",
        "update {s}: ce {v}/tok | lr 1e-3\n",
        "step {s}: loss {v}/sample\nheld-out loss 9.5\n",
        "step {s}: loss_ema {v}\nheld_out_nll: 9.5\n",
        "it={s} loss: {v} bits/byte\n",
        "Iteration={s}\n-----\nbpb   : {v}\n",
        "StepReport(step={s}, train_nll={v}, lr=0.001)\n",
        "│ step │ mse │ lr │\n│ {s} │ {v} │ 0.1 │\n",
        "step-{s}: loss_without_aux at {v}\n",
        "step {s} out of 400: logloss '{v}'\n",
        "[iter {s}]\nce_loss = {v} (best 1.2)\n",
        "Cost after iteration {s}: {v}\n",
        "Minibatch xent at step {s}: {v}\nMinibatch accuracy: 78.1%\n",
        "[3/25][{s}/400] Loss: {v}\n",
        "Round {s}, mse: {v}\n",
        "Episode {s}, Loss: {v}, mean of games (last 50): 7\n",
        "#   step {s}: loss = {v}\n",
        "> iter {s} loss={v}\n> Update[9]: changed the rate\n",
        "// epoch 1 | step {s} | rmse {v}\n",
    ],
)
def test_rows_as_people_write_them(tmp_path: Path, form: str) -> None:
    path = tmp_path / "small.log"
    path.write_text("".join(form.format(s=s, v=f"{6 - s / 50:.4f}") for s in range(1, 60)))
    truth = [(s, f"{6 - s / 50:.4f}") for s in range(1, 60)]
    assert dialects.problem_of(path, truth) == ""


@pytest.mark.parametrize(
    "form",
    [
        "EPOCH: {e}\nLoss={v} Batch_id=97: 100%|####| 98/98 [00:08<00:00, 11.62it/s]\n\nTest set: Average loss: 0.3\n",
        "Epoch {e}\nLoss = {v} | Batch = 98: 100% 98/98 [00:49<00:00, 15.66it/s]\n",
        "loss={v} batch_id=97: 100%|####| 98/98 [00:21<00:00, 22.06it/s]\n\nTest set: Average loss: 0.338\n",
        "New data, epoch {e}\nStep 0 Loss 2.5\nStep 98 Loss {v}\n",
    ],
)
def test_a_bar_that_is_full_again_is_another_epoch(tmp_path: Path, form: str) -> None:
    path = tmp_path / "bars.log"
    values = [2.0, 1.5, 1.25, 1.125]
    path.write_text("".join(form.format(e=e, v=v) for e, v in enumerate(values, 1)))
    rows = next(rows for name, rows in read(path).series.items() if name.lower().endswith("loss"))
    assert [value for _, value in rows if value != 2.5] == values
    assert all(late > early for (early, _), (late, _) in itertools.pairwise(rows))


@pytest.mark.parametrize(
    "cut", ["step 9 loss 2.slurmstepd: error: *** JOB 7 CANCELLED ***\n", "step 9: loss 2.3-2.5\n"]
)
def test_half_a_number_is_none(tmp_path: Path, cut: str) -> None:
    path = tmp_path / "cut.log"
    path.write_text("".join(f"step {s} loss 3.5\n" for s in range(1, 9)) + cut)
    assert next(iter(read(path).series.values())) == [(s, 3.5) for s in range(1, 9)]


@pytest.mark.parametrize(
    "text",
    [
        'assert run(["loss: nan"] + losses, ["step 20 | loss 9.5"])["step 20"] == 1\ne = run(["step 3 loss nan"])\n',
        "loss: nan from step 1: the rate is too high\n- By step 200: loss should be under 2.0\n",
        'line = "epoch=5 loss=0.3 val_loss=0.4"\n{ text: "[INFO] Epoch 3/10 - Loss: 0.8", delay: 5000 },\n' * 3,
        "| Best step | Best loss | Final loss |\n|---|---|---|\n| 18 | 17.1 | 6.4 |\n| 17 | 16.7 | 6.3 |\n",
    ],
)
def test_programs_sentences_and_summaries_are_no_rows(tmp_path: Path, text: str) -> None:
    path = tmp_path / "alike.log"
    path.write_text(text)
    assert not list(find(path))


def test_rows_that_come_many_times_an_epoch_are_all_read(tmp_path: Path) -> None:
    path = tmp_path / "inner.log"
    rows = [(epoch, 2 / epoch - batch / 100) for epoch in (1, 2, 3) for batch in range(6)]
    path.write_text(
        "".join(f"Epoch {epoch} loss {loss:.4f} valid acc {batch}/16\n" for batch, (epoch, loss) in enumerate(rows))
    )
    assert [value for _, value in read(path).series["loss"]] == [round(loss, 4) for _, loss in rows]
    path.write_text("".join(f"Epoch {epoch} loss {loss:.4f}\n" for epoch, (_, loss) in enumerate(rows)))
    assert read(path).axes == {"loss": "epoch"}


@pytest.mark.parametrize(
    "bar", ["[==========]", "━━━━━━━━━━━━━━━━━━━━", "\x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m"]
)
def test_kerass_epochs_are_read_with_any_bar_and_an_evaluation_behind_them(tmp_path: Path, bar: str) -> None:
    path = tmp_path / "keras.log"
    text = "".join(
        f"Epoch {e}/4\n32/32 {bar} 0s 25ms/step - loss: {3 - e / 2} - val_loss: {4 - e / 2}\n"
        f"Epoch {e}: val_loss improved from 9.5 to {4 - e / 2}, saving model to best.keras\n"
        for e in (1, 2, 3, 4)
    )
    path.write_text(text + f"8/8 {bar} 0s 9ms/step - loss: 9.5\n")
    found = read(path).series
    assert [found["loss"], found["val_loss"]] == [
        [(1, 2.5), (2, 2.0), (3, 1.5), (4, 1.0)], [(1, 3.5), (2, 3.0), (3, 2.5), (4, 2.0)],
    ]  # fmt: skip


def test_a_bar_before_a_row_of_a_table_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "table.log"
    text = "Epoch:   0%|     | 0/9 [00:00<?, ?it/s]epoch      trn_loss   val_loss\n    0      1.5   2.5\n"
    path.write_text(
        text
        + "".join(f"Epoch:  {e}%|##   | {e}/9 [03:19<1:36, 19s/it]    {e}      1.{e}   2.{e}\n" for e in range(1, 5))
    )
    assert [value for _, value in read(path).series["trn_loss"]] == [1.5, 1.1, 1.2, 1.3, 1.4]


def test_a_value_in_a_padded_field_and_behind_another_unit(tmp_path: Path) -> None:
    path = tmp_path / "odd.log"
    path.write_text("".join(f"Epoch[0] Batch [{s}] 181.2 samples/sec mse=nanxxx\n" for s in range(50, 300, 50)))
    assert [step for step, _ in read(path).series["mse"]] == [50, 100, 150, 200, 250]


def test_a_file_that_is_read_wrongly_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "small.log"
    path.write_text("step 1 loss 2.5\nstep 2 loss 2.4\nstep 3 loss 2.3\n")
    truth = [(1, "2.5"), (2, "2.4"), (3, "2.3")]
    assert dialects.problem_of(path, truth) == ""
    for wrong in (truth[:2], [*truth[:2], (4, "2.3")], [*truth[:2], (3, "2.2")], [*truth, (4, "2.2")]):
        assert dialects.problem_of(path, wrong)


@pytest.mark.parametrize("between", ["  ", " | ", "\t"])
@pytest.mark.parametrize("prefix", ["", "[INFO|trainer.py:1] >> ", "[rank0]: ", "12:00:00 | "])
def test_rows_under_a_heading_have_its_names(tmp_path: Path, between: str, prefix: str) -> None:
    names = ["step", "train_xent", "val_xent", "lr"]
    text = prefix + between.join(f"{name:>10}" for name in names) + "\n"
    for step in range(30):
        cells = [str(step), f"{5 - step / 10:.3f}", "-" if step % 5 else "4.5", "1e-3"]
        text += prefix + between.join(f"{cell:>10}" for cell in cells) + "\n"
        text += "saved 3 files\n" * (step % 4 == 0)
    path = tmp_path / "small.log"
    path.write_text(text)
    series = read(path).series
    assert series["train_xent"] == [(step, pytest.approx(5 - step / 10)) for step in range(30)]
    assert [step for step, _ in series["val_xent"]] == list(range(0, 30, 5))


@pytest.mark.parametrize("text", ["the step and the loss are printed\n1 2 3\n4 5 6\n", "step  loss\nnothing  here\n"])
def test_a_sentence_is_no_heading(tmp_path: Path, text: str) -> None:
    path = tmp_path / "small.log"
    path.write_text(text * 5)
    assert find(path) == [] or not read(path).series


@pytest.mark.parametrize("form", ["step {s} train_ppl {p:.4f}\n", "iter {s}: perplexity = {p:.4f}, lr = 1e-3\n"])
def test_a_perplexity_is_judged_by_its_logarithm(tmp_path: Path, form: str) -> None:
    path = tmp_path / "small.log"
    path.write_text("".join(form.format(s=s, p=math.exp(6 - s / 50) if s < 60 else math.nan) for s in range(80)))
    run = barograph.read(path)[0]
    result = diagnose(run)
    assert run.series(result["judged_by"]).value[:3] == pytest.approx([6.0, 5.98, 5.96], abs=1e-4)
    assert [(one["rule"], one["step"]) for one in result["findings"]][:1] == [("non_finite_loss", 60)]
    beside = tmp_path / "both.log"
    beside.write_text("".join(f"step {s} loss {6 - s / 50} ppl {math.exp(6 - s / 50)}\n" for s in range(80)))
    assert "log" not in " ".join(diagnose(barograph.read(beside)[0])["series"])


def test_a_percentage_of_a_bar_is_no_step(tmp_path: Path) -> None:
    path = tmp_path / "small.log"
    path.write_text("".join(f"epoch 3 {at}% step {at}% loss {5 - at / 50}\nstep {at}% loss 1\n" for at in range(100)))
    for source, found in identify(path):
        for item in source.read(found):
            assert not isinstance(item, ImportedPoints) or item.x != "step"


def test_a_mark_behind_a_number_of_a_table_costs_no_row(tmp_path: Path) -> None:
    path = tmp_path / "small.log"
    rows = "".join(f"| {step} | {5 - step / 50:.2f}{'*' * (step % 3 > 0)} | 3e-4 |\n" for step in range(40))
    path.write_text("| Step | token_loss | LR |\n|---:|---:|---:|\n" + rows)
    assert read(path).series["token_loss"] == [(step, pytest.approx(5 - step / 50)) for step in range(40)]


@pytest.mark.parametrize("name", ["xe", "train_xe", "train/xe"])
def test_a_cross_entropy_in_short_is_a_loss(tmp_path: Path, name: str) -> None:
    path = tmp_path / "small.log"
    path.write_text("".join(f"step {step} {name}={'nan' if step > 30 else 2.5}\n" for step in range(60)))
    (stored,) = barograph.read(str(path))
    assert diagnose(stored)["findings"][0]["rule"] == "non_finite_loss"


def test_a_doctor_of_a_log_loads_no_pandas(tmp_path: Path) -> None:
    path = tmp_path / "small.log"
    path.write_text("".join(f"step {step} loss={2 + 1 / (1 + step):.4f} lr=1e-3\n" for step in range(300)))
    program = (
        "import sys; from barograph.cli import main; code = main(['doctor', sys.argv[1]]); "
        "assert 'pandas' not in sys.modules; raise SystemExit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
