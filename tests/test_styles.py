"""The lines of the other documents, to the character."""

import inspect
import math
from typing import Any

import pytest

from barograph.core.options import Settings
from barograph.core.record import Record
from barograph.training.console.console import Console
from barograph.training.logger import TrainingRunLogger

SPEEDRUN = "step:1000/1750 val_loss:3.2847 train_time:180420.0ms step_avg:180.42ms"
PICO = (
    "step 05567/05568 (99.98%) | loss: 2.336916 | lrm: 0.05 | dt: 997.40ms | tok/sec: 1,051,311 | bf16_mfu: 63.45"
    " | epoch: 1 pq: 122 rg: 80 | total time: 92.46m | eta: 0.0m"
)
STEP = {"epoch": 1.0, "step_tokens": 1048576, "duration_ms": 997.398, "norm": 0.1234, "loss": 2.336916, "lr": 0.0002}


def drawn(console: Console, kind: str, step: int, **fields: Any) -> str:
    return "\n".join(console.lines(Record(kind, 0, step, fields)))


def test_modded_nanogpts_line_is_the_documents():
    console = Console(style="modded-nanogpt", total_steps=1750)
    for step in range(1, 1001):
        shown = drawn(console, "step", step, **STEP | {"duration_ms": 180.42})
    assert shown == "step:1000/1750 train_time:180420.0ms step_avg:180.42ms"
    assert drawn(console, "eval", 1000, loss=3.2847) == SPEEDRUN


def test_modded_nanogpts_training_time_survives_a_resume():
    console = Console(style="modded-nanogpt", total_steps=1750)
    drawn(console, "step", 1000, **STEP | {"duration_ms": 180.42})
    assert drawn(console, "eval", 1000, loss=3.2847) == SPEEDRUN
    kept = drawn(console, "eval", 1000, loss=3.2847, training_time_ms=180420.0)
    assert kept == SPEEDRUN


def test_modded_nanogpts_line_before_any_step():
    console = Console(style="modded-nanogpt")
    assert drawn(console, "eval", 0, loss=10.8258) == "step:0 val_loss:10.8258 train_time:0.0ms step_avg:0.00ms"


def test_modded_nanogpts_line_has_no_time_that_nobody_gave():
    console = Console(style="modded-nanogpt")
    assert drawn(console, "step", 7, loss=3.5) == "step:7"
    assert drawn(console, "eval", 7, loss=3.28471) == "step:7 val_loss:3.2847"


def test_modded_nanogpts_line_keeps_the_training_time_of_its_step():
    console = Console(style="modded-nanogpt")
    drawn(console, "step", 10, loss=3.5, training_time_ms=1000.0)
    assert drawn(console, "eval", 10, loss=3.28471) == "step:10 val_loss:3.2847 train_time:1000.0ms step_avg:100.00ms"
    drawn(console, "step", 20, loss=3.5, training_time_ms=1500.0, step_avg_ms=72.0)
    assert drawn(console, "eval", 21, loss=3.28471) == "step:21 val_loss:3.2847"


def test_picollms_line_is_the_documents():
    console = Console(style="picollm", total_steps=5568)
    extra = {"lrm": 0.05, "mfu": 63.45, "pq": 122, "rg": 80}
    usual = (92.46 * 60_000 - 997.398) / (5567 - 10 - 1)
    for step in range(5567):
        drawn(console, "step", step, **STEP | {"duration_ms": usual})
    assert drawn(console, "step", 5567, **STEP, **extra) == PICO


def test_picollms_line_after_a_resume_takes_the_time_from_the_loop():
    console = Console(style="picollm", total_steps=5568)
    extra = {"lrm": 0.05, "bf16_mfu": 63.45, "pq": 122, "rg": 80, "total_training_time": 92.46 * 60}
    assert drawn(console, "step", 5567, **STEP, **extra) == PICO


def test_picollms_eta_comes_after_ten_steps_and_unknown_fields_are_left_out():
    console = Console(style="picollm", total_steps=16704)
    fields = {"step_tokens": 524288, "duration_ms": 658.6, "loss": 7.5}
    for step in range(11):
        shown = drawn(console, "step", step, **fields)
        assert "eta" not in shown
    # the real log's figures at its step 11
    assert drawn(console, "step", 11, **fields) == (
        "step 00011/16704 (0.07%) | loss: 7.500000 | dt: 658.60ms | tok/sec: 796,064 | total time: 0.01m | eta: 183.2m"
    )


def test_picollms_loss_is_debiased_from_the_first_step_and_survives_nan():
    console = Console(style="picollm")

    def loss(value: float) -> str:
        return drawn(console, "step", 40, loss=value).split("loss: ")[1].split(" |")[0]

    assert loss(10.0) == "10.000000"
    assert loss(4.0) == f"{(0.9 * 1.0 + 0.4) / 0.19:.6f}"
    assert loss(float("nan")) == "nan"
    assert loss(4.0) == f"{(0.9 * (0.9 * 1.0 + 0.4) + 0.4) / (1 - 0.9**3):.6f}"


@pytest.mark.parametrize(("epoch", "shown"), [(1, "1"), (3.0, "3"), (0.25, "1"), (1.25, "2")])
def test_picollms_epochs_count_from_one(epoch, shown):
    line = drawn(Console(style="picollm"), "step", 40, epoch=epoch, pq=3)
    assert f"| epoch: {shown} pq: 3 |" in line


def test_picollms_validation_line():
    console = Console(style="picollm")
    assert drawn(console, "eval", 250, loss=2.5, val_bpb=1.086329) == "Step 00250 | Validation bpb: 1.086329"
    assert drawn(console, "eval", 250, loss=2.5) == "Step 00250 | Validation loss: 2.500000"


def test_kempnerforges_line():
    console = Console(style="kempnerforge")
    fields = {"loss": 2.34561, "lr": 2e-4, "norm": 0.1234, "step_tokens": 19547, "duration_ms": 156}
    usage = {"mfu": 0.452, "peak_gb": 61.25, "total_gb": 79.6}
    assert drawn(console, "step", 100, **fields, **usage) == (
        "[step 100] loss=2.3456 | lr=2.00e-04 | grad_norm=0.123 | tok/s=125,301 | mfu=45.2%"
        " | mem=61.2/80GB | step_time=0.16s"
    )
    assert drawn(console, "step", 100, **fields) == (
        "[step 100] loss=2.3456 | lr=2.00e-04 | grad_norm=0.123 | tok/s=125,301 | step_time=0.16s"
    )
    assert drawn(console, "eval", 500, loss=2.1234, eval_tokens=33977, duration_ms=234) == (
        "[step 500] eval/loss=2.1234 | tok/s=145,201 | step_time=0.23s"
    )
    assert drawn(console, "eval", 500, loss=2.1234, perplexity=8.36, accuracy=0.5, name="books") == (
        "[step 500] eval/books/loss=2.1234 | perplexity=8.36 | accuracy=0.5"
    )


@pytest.mark.parametrize("style", ["picollm", "kempnerforge", "modded-nanogpt"])
def test_a_time_that_is_not_known_is_left_out(style):
    console = Console(style=style)
    for kind in ("step", "eval"):
        assert "nan" not in drawn(console, kind, 7, loss=2.5, lr=1e-3, step_tokens=64, duration_ms=math.nan)
    assert style == "modded-nanogpt" or "nan" in drawn(console, "step", 8, loss=math.nan), "a loss is shown"


def test_none_shows_nothing():
    console = Console(style="none", verbosity=1)
    assert drawn(console, "step", 1, **STEP) == drawn(console, "info", 1, message="hello") == ""


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [("picolm", "picollm"), ("Surogate", "surogate"), ("nanogpt", "modded-nanogpt"), ("kempner", "kempnerforge")],
)
def test_an_unknown_style_names_the_nearest(wrong, nearest):
    with pytest.raises(ValueError, match=f"{wrong!r} is unknown; did you mean {nearest!r}"):
        Console(style=wrong)


def test_the_plain_line_names_each_value_and_leaves_out_what_is_missing():
    console = Console(style="plain", total_steps=400, clock=iter(range(0, 1000, 10)).__next__)
    for step in range(1, 12):
        drawn(console, "step", step, **STEP)
    shown = drawn(console, "step", 12, loss=2.31, norm=0.2, lr=3e-4, step_tokens=12_300, duration_ms=1000, mfu=0.4512)
    assert shown.startswith("step 12/400 | loss 2.31 | norm 0.2 | lr 0.0003 | 12.3k tok/s | mfu 45.1%")
    assert drawn(Console(style="plain"), "step", 12, loss=2.31) == "step 12 | loss 2.31"
    assert drawn(Console(style="plain"), "step", 12, loss=float("nan"), lr=0.02) == "step 12 | loss nan | lr 0.02"
    assert drawn(console, "eval", 12, loss=2.25).startswith("eval at step 12/400 | loss 2.25 | gap -0.0")


@pytest.mark.parametrize(
    ("tokens", "shown"),
    [(950, "950"), (9999, "9.999k"), (12_340, "12.34k"), (123_456, "123.5k"), (2.5e9, "2.5B")],
)
def test_the_plain_line_has_tokens_per_second_with_a_letter_for_their_size(tokens: float, shown: str):
    line = drawn(Console(style="plain"), "step", 1, step_tokens=tokens, duration_ms=1000)
    assert line == f"step 1 | {shown} tok/s"


def test_the_plain_line_marks_a_spike_and_says_the_share_of_the_speed_of_light():
    console = Console(style="plain")
    console.lines(Record("sol", 0, 0, {"blocks": 1e9, "lm_head": 1e9, "attention": 1e9, "tps": 2000}))
    for step in range(1, 30):
        quiet = drawn(console, "step", step, loss=2.0, norm=0.5, step_tokens=100, duration_ms=100)
    assert quiet == "step 29 | loss 2 | norm 0.5 | 1k tok/s | sol 50%"
    assert "norm !9" in drawn(console, "step", 30, loss=2.0, norm=9.0, step_tokens=100, duration_ms=100)


def test_without_a_planned_length_the_end_of_an_epoch_is_all_of_it():
    console = Console(style="plain")
    shown = [drawn(console, "step", step, loss=2.0, epoch=step / 4) for step in range(9)]
    assert [line.partition("(")[2].partition(")")[0] for line in shown] == [
        *["0%", "25%", "50%", "75%", "100%", "25%", "50%", "75%", "100%"]
    ]


def test_a_run_speaks_plainly_and_a_training_run_logger_as_its_document_says():
    assert Settings().console == "plain"
    assert inspect.signature(TrainingRunLogger).parameters["console"].default == "surogate"
