"""The documents' own lines, to the character."""

from typing import Any

import pytest

from barograph.core.record import Record
from barograph.core.terminal import plain
from barograph.training.console import lines
from barograph.training.console.console import Console

DENSE = r":: step     100 [ 12.5%] \ loss 2.3456 | norm  0.1234 | 125.3k tps |   156 ms | sol 78.2 | eta 02h15m"
MOE = (
    r":: step     100 [ 12.5%] \ loss 2.3456 | norm  0.1234 | 125.3k tps |   156 ms"
    r" | aux 0.0234 | imbal 1.45 | sol 78.2 | eta 02h15m"
)
SOL_ONLY = r":: step     100 [ 12.5%] \ loss 2.3456 | norm  0.1234 | 125.3k tps |   156 ms | sol 78.2"
EVALUATION = ">> eval                      loss 2.1234 | gap +0.0123 | 145.2k tps |   234 ms"
SPEED_OF_LIGHT = """\
[Speed of Light]
  Peak BF16:    989.5 TFLOP/s
  Blocks:       123.4 GFLOP   in bf16
  LM-Head:       45.6 GFLOP   in bf16
  Attention:     78.9 GFLOP   in bf16
  SOL:          156000 tok/s"""

STEP = {"epoch": 1.125, "step_tokens": 19547, "duration_ms": 156, "norm": 0.1234, "loss": 2.3456, "lr": 0.0002}
EVAL = {"epoch": 1.5, "eval_tokens": 33977, "duration_ms": 234, "loss": 2.1234}
LIGHT = {"blocks": 123.4e9, "lm_head": 45.6e9, "attention": 78.9e9, "tps": 156000, "bf16_peak": 989.5}


def record(kind: str, step: int = 0, /, **fields: Any) -> Record:
    return Record(kind, 0, step, fields)


def drawn(console: Console, kind: str, step: int = 0, /, **fields: Any) -> str:
    return "\n".join(console.lines(record(kind, step, **fields)))


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def at_step_100(console: Console, clock: Clock, pace: float = 0.0, **extra: Any) -> str:
    drawn(console, "sol", tps=19547 / 156 * 1000 / 0.782)
    drawn(console, "step", 99, **STEP | {"loss": 2.5})
    clock.now += pace
    return drawn(console, "step", 100, **STEP | extra)


def test_a_dense_step_is_the_documents_line():
    clock = Clock()
    console = Console(total_steps=800, clock=clock)
    assert at_step_100(console, clock, pace=8100 / 700 + 1e-9) == DENSE


def test_a_mixture_of_experts_step_is_the_documents_line():
    clock = Clock()
    console = Console(total_steps=800, clock=clock)
    extra = {"moe_aux_loss": 0.0234, "moe_z_loss": 0.0012, "moe_load_imbalance": 1.45}
    assert at_step_100(console, clock, pace=8100 / 700 + 1e-9, **extra) == MOE


def test_router_statistics_logged_before_their_step_stand_in_its_line():
    console = Console()
    stats = {"aux_loss": 0.0234, "z_loss": 0.0012, "expert_utilization": 0.9375, "load_imbalance": 1.45}
    assert drawn(console, "moe", 7, **stats) == ""
    assert "ms | aux 0.0234 | imbal 1.45" in drawn(console, "step", 7, **STEP)
    assert "aux" not in drawn(console, "step", 8, **STEP)


def test_without_a_known_length_there_is_no_eta_and_the_epoch_is_the_progress():
    clock = Clock()
    assert at_step_100(Console(clock=clock), clock) == SOL_ONLY


def test_the_length_in_tokens_gives_progress_and_eta():
    clock = Clock()
    console = Console(total_tokens=19547 * 800, clock=clock)
    assert at_step_100(console, clock, pace=8100 / 700 + 1e-9) == DENSE


def test_an_evaluation_is_the_documents_line():
    console = Console()
    for loss in (2.1011, 2.1211):
        drawn(console, "step", 1, **STEP | {"loss": loss})
    assert drawn(console, "eval", 500, **EVAL) == EVALUATION


def test_the_speed_of_light_block_is_the_documents():
    assert drawn(Console(), "sol", **LIGHT) == SPEED_OF_LIGHT


@pytest.mark.parametrize("tps", [-1, 0, None, float("nan")])
def test_an_unknown_speed_of_light_is_unavailable_and_steps_show_no_share_of_it(tps):
    console = Console()
    shown = drawn(console, "sol", **LIGHT | {"tps": tps, "bf16_peak": -1})
    assert shown.endswith("\n  SOL:       unavailable")
    assert "Peak" not in shown
    assert "sol" not in drawn(console, "step", 1, **STEP)


def test_each_precision_in_use_has_its_peak_once():
    shown = drawn(Console(), "sol", **LIGHT, fp8_peak=1978.9, tf32_peak=494.7, blocks_dtype="fp8_e4m3")
    assert shown.splitlines()[1:4] == [
        "  Peak FP8:    1978.9 TFLOP/s",
        "  Peak BF16:    989.5 TFLOP/s",
        "  Blocks:       123.4 GFLOP   in fp8_e4m3",
    ]


@pytest.mark.parametrize(
    ("flop", "shown"),
    [(2e9, "  2000.0 MFLOP"), (2.1e9, "     2.1 GFLOP"), (5e14, "   500.0 TFLOP"), (None, "       - MFLOP")],
)
def test_flop_counts_have_the_unit_that_fits(flop, shown):
    assert f"  Blocks:    {shown}   in bf16" in drawn(Console(), "sol", **LIGHT | {"blocks": flop})


def test_tokens_per_second_are_always_in_k():
    assert lines.thousands(1_300_000.0) == "1300.0k tps"
    assert lines.thousands(99.0) == "  0.1k tps"
    assert lines.thousands(None) == "    -k tps"


def test_non_finite_and_missing_values_keep_their_columns():
    console = Console()
    usual = drawn(console, "step", 1, **STEP)
    odd = drawn(console, "step", 2, **STEP | {"loss": float("nan"), "norm": float("inf"), "duration_ms": 0})
    assert odd == r":: step       2 [ 12.5%]   loss    nan | norm !   inf |     -k tps |     0 ms"
    empty = drawn(console, "step", 3)
    assert empty == r":: step       3 [    -%]   loss      - | norm       - |     -k tps |     - ms"
    assert len(usual) == len(odd) == len(empty)


def test_absurd_values_do_not_fill_the_screen():
    shown = drawn(Console(), "step", 1, **STEP | {"loss": 1e300, "norm": -1e12, "duration_ms": 10**400})
    assert len(shown) < 100


def test_steps_under_ten_milliseconds_show_a_decimal():
    assert "|   0.8 ms" in drawn(Console(), "step", 1, **STEP | {"duration_ms": 0.8})
    assert "|     8 ms" in drawn(Console(), "step", 1, **STEP | {"duration_ms": 8})


def test_the_phase_ends_the_line():
    assert drawn(Console(), "step", 1, **STEP, phase="warm\nup").endswith(r" |   156 ms | warm\nup")


def test_gpu_lines_show_watts_mebibytes_and_what_throttles():
    info = {
        "id": 0, "clock": 1800, "max_clock": 2100, "fan": 65, "power": 350000, "power_limit": 400000,
        "temperature": 72, "temp_slowdown": 83, "gpu_util": 98, "mem_util": 85, "throttle": "power cap",
        "dram_free": 8589934592, "pcie_rx": 1073741824, "pcie_tx": 536870912,
    }  # fmt: skip
    assert drawn(Console(verbosity=1), "gpu", 100, **info).splitlines() == [
        "[G] step   100 [gpu  0] | power  350 W   | temp  72 / 83°C | clock 1800 MHz",
        "                        | util    98 %   | free    8192 MiB | pcie 1024 MiB/s in  512 MiB/s out | power cap",
    ]


def test_what_a_gpu_cannot_tell_is_a_dash():
    shown = drawn(Console(verbosity=1), "gpu", 1, id=0, power=4294967295, gpu_util=-1, pcie_rx=2**64 - 1)
    assert "power    - W" in shown
    assert "util     - %" in shown
    assert "pcie    - MiB/s in" in shown


def test_data_sets_share_one_heading_and_list_ten_files_or_all():
    names = {f"data/{n:02d}.bin": 1000 * n for n in range(12)}
    train = {"split": "train", "files": 12, "file_names": names, "tokens": 1_234_567_890, "seed": 7}
    console, verbose = Console(), Console(verbosity=1)
    shown = drawn(console, "dataset", **train).splitlines()
    assert shown[:2] == ["[Dataset]", "  train: 1.2B tokens, 12 files, seed 7"]
    assert shown[2:] == [f"    {name} : {size:10d}" for name, size in list(names.items())[:10]] + ["    … and 2 more"]
    assert drawn(console, "dataset", split="eval", files=1, tokens=32768) == "  eval:  33k tokens, 1 file"
    assert len(drawn(verbose, "dataset", **train).splitlines()) == 14
    drawn(console, "step", 1, **STEP)
    assert drawn(console, "dataset", split="eval", tokens=10).startswith("[Dataset]\n")


@pytest.mark.parametrize(
    ("tokens", "shown"),
    [(0, "0"), (999, "999"), (1000, "1k"), (1.96e7, "19.6M"), (2.5e7, "25M"), (3e12, "3.0T"), (None, "-")],
)
def test_token_counts_have_the_unit_that_fits(tokens, shown):
    assert drawn(Console(), "dataset", split="train", tokens=tokens).splitlines()[1] == f"  train: {shown} tokens"


def test_memory_by_segment_leaves_out_what_holds_nothing():
    optimizer = {"name": "optimizer", "device": 2 << 30, "managed": 0, "pinned": 8 << 30, "pageable": 0}
    shown = drawn(Console(verbosity=1), "allocator", stats=[optimizer, {"name": "lora"}, "nonsense"])
    assert shown.splitlines() == [
        "[Memory]",
        "  optimizer:       2048.0 MiB device,    8192.0 MiB pinned",
        "  lora:          empty",
    ]


def test_sections_say_how_long_they_took():
    console = Console()
    start, end = {"type": "section-start", "message": "Loading"}, {"type": "section-end", "message": "Loading"}
    assert drawn(console, "info", **start) == "Loading ..."
    assert drawn(console, "info", **end, duration_ms=1999) == "  done in 1999 ms"
    drawn(console, "info", **start)
    drawn(console, "info", type="message", message="half way")
    assert drawn(console, "info", **end, duration_ms=65_900) == "  Loading: done in 65 s"


def test_a_sample_is_a_short_indented_block():
    shown = drawn(Console(), "sample", 250, prompt="def ", text="main():\n\tpass\n" + "x\n" * 20)
    assert shown.splitlines()[:3] == ["-- sample at step 250, prompt 'def '", "   | main():", "   |     pass"]
    assert shown.splitlines()[-1] == "   … 14 more lines"


def test_a_checkpoint_is_one_line():
    shown = drawn(Console(), "checkpoint", 500, path="ckpt/model.pt", metadata="ckpt/meta.json", val_loss=2.1234)
    assert shown == "-- checkpoint at step 500: ckpt/model.pt (val_loss 2.1234)"


def test_only_news_about_segments_and_ends_is_shown():
    console = Console()
    assert drawn(console, "segment", segment=1, kind="start") == ""
    assert drawn(console, "segment", 9, segment=2, kind="resume", start_step=500) == "-- resumed at step 500, segment 2"
    assert drawn(console, "end", 9, status="finished") == ""
    assert drawn(console, "end", 9, status="failed") == "-- the run ended: failed"


def test_plain_lines_have_no_terminal_codes():
    parts = lines.sol_lines(LIGHT)
    assert all("\x1b" not in plain(part) for part in parts)
