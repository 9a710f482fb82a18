"""What the terminal shows of runs: aligned, within the width, and nothing hidden."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import barograph
from barograph.core.text import bar, short, sparkline
from barograph.query.goodput import Totals
from barograph.views.overview import cost_lines, detail, page, summary, table, time_lines


def row(**changes: object) -> dict[str, object]:
    base = {
        "project": "gpt",
        "id": "run",
        "status": "running",
        "step": 5,
        "loss": 1.0,
        "eval_loss": None,
        "created": None,
    }
    return base | changes


def test_long_names_lose_their_middle_and_the_table_keeps_its_width() -> None:
    rows = [row(id="a" * 300, project="p" * 200), row(id="b"), row(loss=math.nan, step=10**9)]
    lines = table(rows, width=100).splitlines()
    assert all(len(line) <= 100 for line in lines) and "…" in lines[1] and "nan" in lines[3]
    assert len({line.index("running") for line in lines[1:]}) == 1


@pytest.mark.parametrize("late", [{"eval/loss": 2.9}, {"note": 1.0}])
def test_a_run_is_at_its_highest_step_whatever_was_logged_last(tmp_path: Path, late: dict[str, float]) -> None:
    with barograph.init(project="p", id="r", dir=tmp_path, console="none") as run:
        for step in range(60):
            run.log({"train/loss": 3 - step / 100}, step=step)
        run.log(late, step=20)
    assert summary(barograph.StoredRun(run.dir))["step"] == 59


def test_runs_whose_names_are_not_their_ids_show_both() -> None:
    plain = table([row(id="a", name="a"), row(id="b", name="b")], width=100)
    assert "NAME" not in plain
    both = table([row(id="a", name="a"), row(id="a-2", name="a"), row(id="c", name="n" * 80)], width=100).splitlines()
    assert both[0].endswith("NAME") and both[2].split()[1] == "a-2" and both[2].split()[-1] == "a"
    assert all(len(line) <= 100 for line in both)


def test_a_spike_and_a_nan_stand_out_in_a_sparkline() -> None:
    values = [1.0] * 500
    values[250] = 50.0
    values[400] = math.nan
    drawn = sparkline(values, 20)
    assert len(drawn) == 20 and "█" in drawn and "×" in drawn


@given(st.lists(st.floats()), st.integers(1, 80))
def test_a_sparkline_never_fails_and_never_grows(values: list[float], width: int) -> None:
    assert len(sparkline(values, width)) <= width


@given(st.text())
def test_printable_text_drives_no_terminal(text: str) -> None:
    assert all(char.isprintable() for char in short(text))


SPENT = Totals(
    wall=92_480.5, productive=80_000, data=3000, communication=1200, evaluation=2000, checkpoint=900, startup=600,
    redone=2400, downtime=1800, other=380, idle=200.5, paused=86_400, parts=4, crashes=2, redone_steps=1234,
    names={"sampling\x1b[31m text from the model": 300, "x" * 90: 80},
)  # fmt: skip
COST = {
    "kwh": 2.0535, "watts": 740.0, "gpu_joules": 6.49e6, "cpu_joules": 9e5, "gpus": 16, "gpus_measured": 8,
    "tokens": 523_763_712.0, "tokens_per_joule": 70.85, "gpu_hours": 205.5, "price_per_gpu_hour": 2.5,
    "gpu_cost": 513.75, "price_per_kwh": 0.3, "electricity_cost": 0.61605, "cost": 514.366,
    "price_per_million_tokens": 0.98,
}  # fmt: skip


def test_time_and_cost_fit_a_terminal_of_80_columns_and_drive_none() -> None:
    lines = time_lines(SPENT, price=2.5, gpu_hours=200.0) + cost_lines(COST)
    assert max(map(len, lines)) <= 80 and all(short(line) == line for line in lines)
    shown = [line.split()[0] for line in lines[2:6]]
    assert shown == ["productive", "waiting", "repeated", "evaluation"]  # the largest loss first
    assert "86.5%" in lines[2] and "22h13m" in lines[2] and "441.11" in lines[2]
    wall = next(line for line in lines if "wall time" in line)
    assert wall.split()[-1] == "500.00" and "25h41m" in wall
    down = next(line for line in lines if "down after" in line)
    assert down.rstrip().endswith("1.9%")  # nobody held a device then
    assert any("24h00m" in line for line in lines) and any(
        "1,234 steps done again, 2 restarts" in line for line in lines
    )
    assert any("8 of 16 GPUs measured" in line for line in lines) and any("0.98 per million" in line for line in lines)


def test_without_prices_there_is_no_money_and_without_steps_no_block() -> None:
    assert not any("COST" in line or "441" in line for line in time_lines(SPENT))
    assert time_lines(Totals(wall=5, startup=5)) == [] and cost_lines({}) == [] and cost_lines({"tokens": 5.0}) == []


@given(st.floats(0, 1), st.integers(1, 60))
def test_a_bar_is_as_long_as_its_share_and_never_hides_what_there_is(share: float, width: int) -> None:
    drawn = bar(share, width)
    assert len(drawn) <= width and bool(drawn) == (share > 0)
    assert len(drawn) == pytest.approx(share * width, abs=1.01)


def test_show_has_the_findings_of_a_run_that_nobody_watched_and_a_command_that_finds_it(tmp_path: Path) -> None:
    run = barograph.init(project="p", name="x", dir=str(tmp_path / "a b"), sidecar=False, machine=False, verbosity=-2)
    for step in range(60):
        run.log({"train/loss": math.nan if step > 40 else 3 / (step + 1)}, step=step)
    run.finish()
    stored = barograph.StoredRun(run.dir)
    drawn = page(stored)
    assert "critical  step 41" in drawn and f"barograph doctor '{run.dir}'" in drawn
    shown = [(item["rule"], item["severity"], item["step"]) for item in detail(stored)["findings"]]
    diagnosed = [(item["rule"], item["severity"], item["step"]) for item in barograph.diagnose(stored)["findings"]]
    assert shown == diagnosed and shown
