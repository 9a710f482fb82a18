"""The tables with which a Trainer ends are rows, where the log has no dicts that say the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import find, read

from barograph.importing.textlogs import hf_summaries


def table(data: str, at: int = 1, ahead: str = "", **values: str) -> str:
    rows = {"epoch": f"{at}.0", **values, f"{data}_runtime": f"0:0{at}:12.50", f"{data}_steps_per_second": "0.7"}
    return f"{ahead}***** {data} metrics *****\n" + "".join(f"{ahead}  {k:<24} = {v:>11}\n" for k, v in rows.items())


def written(folder: Path, text: str) -> Path:
    path = folder / "train.log"
    path.write_text(text)
    return path


@pytest.mark.parametrize("ahead", ["", "INFO ", "[INFO|trainer_pt_utils.py:913] 2022-03-04 10:11:12,345 >> "])
def test_the_tables_of_a_training_and_an_evaluation_are_rows(tmp_path: Path, ahead: str) -> None:
    text = table("train", 2, ahead, train_loss="1.4321", total_flos="31415GF") + table(
        "eval", 2, ahead, eval_loss="1.5"
    )
    series = read(written(tmp_path, text)).series
    assert [value for _, value in series["train_loss"]] == [1.4321]
    assert [value for _, value in series["eval_loss"]] == [1.5]
    assert [value for _, value in series["train_runtime"]] == [132.5]
    assert "total_flos" not in series  # rounded, and with a unit


def test_tables_of_several_trainings_are_rows_each(tmp_path: Path) -> None:
    text = "".join(
        table("train", at, train_loss=f"{3 / at:.4f}") + table("eval", at, eval_loss="2.2") for at in (1, 2, 3)
    )
    series = read(written(tmp_path, text)).series
    assert [value for _, value in series["train_loss"]] == [3.0, 1.5, 1.0]
    assert len(series["eval_loss"]) == 3


def test_a_table_that_says_what_a_dict_said_adds_no_row(tmp_path: Path) -> None:
    dicts = "".join(f"{{'loss': {3 / at:.3f}, 'learning_rate': 1e-4, 'epoch': {at}.0}}\n" for at in range(1, 9))
    dicts += "{'train_runtime': 72.5123, 'train_steps_per_second': 0.71, 'train_loss': 1.02345, 'epoch': 8.0}\n"
    series = read(written(tmp_path, dicts + table("train", 1, train_loss="1.0235"))).series
    assert [value for _, value in series["train_loss"]] == [1.02345]
    assert len(series["loss"]) == 8


def test_other_tables_of_names_are_no_rows(tmp_path: Path) -> None:
    path = written(tmp_path, "***** train settings *****\n  epoch = 3.0\n  train_loss = 1.2\n***** end *****\n")
    assert all(not read(path).series for _ in find(path))


def test_a_table_that_may_go_on_is_held() -> None:
    whole = table("train", train_loss="1.2").encode()
    assert hf_summaries.unfinished(whole) == 0
    for cut in range(whole.index(b"\n") + 1, len(whole) - 1):
        if whole[cut - 1 : cut] == b"\n":
            assert hf_summaries.unfinished(b"other\n" + whole[:cut]) == cut
    assert hf_summaries.unfinished(whole + b"done\n") == 0
