"""What the console shows at which verbosity and rank, and that no record can break it."""

import io
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import patient

from barograph.core.record import KINDS, Record
from barograph.training.console.console import Console
from barograph.training.console.styles import STYLES

STEP = {"epoch": 0.125, "step_tokens": 1000, "duration_ms": 10, "norm": 1.0, "loss": 2.0, "lr": 0.1}
RECORDS = {
    "step": STEP,
    "eval": {"epoch": 0.5, "eval_tokens": 1000, "duration_ms": 10, "loss": 2.0},
    "moe": {"aux_loss": 0.1, "z_loss": 0.1, "expert_utilization": 1.0, "load_imbalance": 1.0},
    "gpu": {"id": 0, "power": 350000},
    "gpu-model": {"id": 0, "name": "NVIDIA H100 80GB HBM3", "memory": 80 << 30, "free": 79 << 30, "sm_count": 132},
    "sol": {"blocks": 1e9, "lm_head": 1e9, "attention": 1e9, "tps": 100},
    "allocator": {"stats": [{"name": "weights", "device": 1 << 20}]},
    "dataset": {"split": "train", "files": 2, "tokens": 1_000_000},
    "cmd": {"cmd": ["python", "train.py"]},
    "option": {"name": "model/depth", "value": 12},
    "media": {"name": "val/x", "type": "image", "file": "0f.png", "bytes": 100},
    "info": {"type": "message", "message": "hello"},
    "metrics": {"anything": 1.0},
    "checkpoint": {"path": "model.pt"},
    "finding": {"severity": "critical", "rule": "loss_spike", "message": "The loss jumped.", "causes": ["bad batch"]},
    "alert": {"title": "loss above 10", "text": "it is 12", "level": "warning"},
    "sample": {"text": "once", "prompt": ""},
    "segment": {"kind": "rewind", "start_step": 5, "segment": 2},
    "sidecar": {"run": "r", "rank": 0, "host": "h", "pid": 7, "at": 0},
    "end": {"status": "failed"},
    "host": {"cpu_util": 50.0},
    "speed": {"step_ms": 10.0, "phase": {"forward_ms": 3.0}},
    "span": {"name": "eval", "duration_ms": 100.0},
    "goodput": {"wall_seconds": 10.0},
    "energy": {"kwh": 0.1},
    "memory": {"allocated_gb": 1.0},
    "model": {"grad_norm": 1.0},
    "oom": {"error": "out of memory"},
    "data": {"tokens_seen": 1},
    "ranks": {"loss": {"min": 1.0, "mean": 1.0, "max": 1.0}},
    "straggler": {"straggler": 3},
    "stacks": {"threads": []},
    "hang": {"waited_seconds": 121.0, "ranks": {"0": "is in train.py:61 load_batch"}},
    "alert-request": {"title": "look", "text": "", "level": "info"},
    "alert-rule": {"condition": "loss > 10"},
    "stop-rule": {"condition": "loss > 10"},
}


def shows(console: Console) -> set[str]:
    return {kind for kind, fields in RECORDS.items() if console.lines(Record(kind, 0, 1, dict(fields)))}


def test_every_kind_of_record_is_tried_here():
    assert set(RECORDS) == set(KINDS)


DEFAULT = {
    "step",
    "eval",
    "sol",
    "dataset",
    "info",
    "finding",
    "alert",
    "checkpoint",
    "sample",
    "segment",
    "end",
    "gpu-model",
}


@pytest.mark.parametrize(
    ("verbosity", "rank", "kinds"),
    [
        (-2, 0, set()),
        (-1, 0, {"eval"}),
        (0, 0, DEFAULT),
        (1, 0, DEFAULT | {"moe", "gpu", "allocator", "cmd", "option"}),
        (1, 7, {"info"}),
        (0, 7, {"info"}),
        (-1, 7, set()),
    ],
)
@pytest.mark.parametrize("style", [style for style in STYLES if style != "none"])
def test_each_verbosity_and_rank_shows_its_kinds(verbosity, rank, kinds, style):
    assert shows(Console(verbosity=verbosity, rank=rank, style=style)) == kinds


def test_other_ranks_say_who_they_are():
    console = Console(rank=7)
    assert console.lines(Record("info", 0, 1, {"message": "0/3 (0.00%)"})) == ["Rank 7 | 0/3 (0.00%)"]
    section = Record("info", 0, 1, {"type": "section-start", "message": "Loading"})
    assert console.lines(section) == []
    assert Console(rank=7, verbosity=1).lines(section) == ["Rank 7 | Loading ..."]


def test_the_rank_and_the_length_may_become_known_later():
    console = Console()
    console.total_steps = 4
    assert "[ 25.0%]" in console.lines(Record("step", 0, 1, STEP))[0]
    console.total_steps, console.total_tokens = None, 8000
    assert console.total_tokens == 8000
    assert "[ 25.0%]" in console.lines(Record("step", 0, 2, STEP))[0]
    console.shown.rank = 1
    assert console.lines(Record("step", 0, 3, STEP)) == []


@pytest.mark.parametrize("verbosity", [-2, -1])
def test_what_is_not_shown_is_still_taken_in(verbosity):
    quiet, normal = Console(verbosity=verbosity), Console()
    for console in (quiet, normal):
        for number in range(20):
            console.lines(Record("step", 0, number, STEP))
        console.lines(Record("sol", 0, 0, {"tps": 200_000}))
    quiet.shown.verbosity = 0
    last = Record("step", 0, 20, STEP | {"loss": 1.0, "norm": 6.0})
    shown = quiet.lines(last)
    assert shown == normal.lines(last)
    assert "\\ loss 1.0000 | norm !6.0000" in shown[0]
    assert "sol 50.0" in shown[0]


@pytest.mark.parametrize("hostile", ["a\nb", "\x1b[2J", "\r\x1b]0;title\x07", "\x9b31m", "\u202e", "\ud800"])
def test_a_message_cannot_drive_the_terminal_nor_forge_a_line(hostile):
    stream = io.StringIO()
    console = Console(stream=stream, verbosity=1)
    for fields in (
        {"message": hostile}, {"phase": hostile}, {"name": hostile, "value": hostile}, {"cmd": [hostile]},
        {"path": hostile}, {"stats": [{"name": hostile}]}, {"split": hostile, "file_names": [hostile]},
        {"prompt": hostile, "text": "text"}, {"status": hostile}, {"kind": "fork", "segment": hostile},
        {"blocks_dtype": hostile}, {"throttle": hostile}, {"major": hostile, "cuda_driver": hostile},
    ):  # fmt: skip
        for kind in KINDS:
            lines = console.lines(Record(kind, 0, 1, dict(fields)))
            assert all(line.isprintable() for line in lines), (kind, fields)
            console.draw(Record(kind, 0, 1, dict(fields)))
    assert set(stream.getvalue()) & set("\r\x1b\x07\x9b\u202e\ud800") == set()


def test_a_samples_lines_are_set_off():
    lines = Console().lines(Record("sample", 0, 1, {"text": ":: step       1 [ 50.0%]\n\x1b[2Jend"}))
    assert lines == ["-- sample at step 1", "   | :: step       1 [ 50.0%]", "   | \\e[2Jend"]


NUMBERS = st.one_of(st.floats(), st.integers(), st.booleans())
TEXTS = st.one_of(st.text(st.characters(codec=None), max_size=20), st.binary(max_size=5))
VALUES = st.recursive(
    st.one_of(st.none(), NUMBERS, TEXTS, st.builds(lambda: 10**5000), st.builds(object)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=5,
)
NAMES = sorted({name for fields in RECORDS.values() for name in fields} | {
    "moe_aux_loss", "moe_load_imbalance", "phase", "mfu", "lrm", "pq", "rg", "dtype", "blocks_dtype", "bf16_peak",
    "temperature", "throttle", "seed", "file_names", "peak_gb", "total_gb", "training_time_ms", "val_bpb", "major",
    "total_training_time", "file_index", "cuda_driver", "rank",
})  # fmt: skip
FIELDS = st.dictionaries(st.one_of(st.sampled_from(NAMES), TEXTS), VALUES, max_size=12)
STEPS = st.one_of(st.integers(), st.integers(0, 100))


@settings(max_examples=120, deadline=None)
@given(
    records=st.lists(
        st.tuples(st.one_of(st.sampled_from(sorted(KINDS)), st.text(max_size=5)), STEPS, FIELDS), max_size=8
    ),
    style=st.sampled_from(sorted(STYLES)),
    total=VALUES,
)
def test_no_record_makes_it_raise(records: list[tuple[str, int, dict[str, Any]]], style: str, total: Any):
    stream = io.StringIO()
    console = Console(verbosity=1, style=style, stream=stream, total_steps=total, total_tokens=total)
    for kind, step, fields in records:
        lines = console.lines(Record(kind, 0, step, fields))
        assert all("\n" not in line and "\x1b" not in line for line in lines)
        console.draw(Record(kind, 0, step, fields))
    assert not console.gone


def test_a_clock_that_fails_costs_a_line_and_no_step():
    def clock() -> float:
        raise OSError("no clock")

    Console(stream=io.StringIO(), clock=clock).draw(Record("step", 0, 1, STEP))


def test_what_is_not_drawn_costs_nothing():
    console, metrics = Console(stream=io.StringIO()), Record("metrics", 0, 1, {"loss": 1.0})
    began = time.perf_counter()
    for _ in range(10_000):
        console.draw(metrics)
    assert time.perf_counter() - began < patient(0.1)  # 10 µs a call, some fifty times what it takes


def drawn(rows: list[dict[str, Any]], style: str = "plain", **options: Any) -> list[str]:
    console = Console(style=style, stream=io.StringIO(), **options)
    return [line for step, row in enumerate(rows, 1) for line in console.lines(Record("metrics", 0, step, row))]


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ({"train/loss": 2.5, "train/grad_norm": 1.5, "train/lr": 3e-4}, "step 1 | loss 2.5 | norm 1.5 | lr 0.0003"),
        ({"loss": 2.5, "tok/s": 12_000.0, "mfu_percent": 40.0}, "step 1 | loss 2.5 | 12k tok/s | mfu 40%"),
        ({"lm loss": 2.5, "step_time_sec": 0.5, "step_tokens": 1000}, "step 1 | loss 2.5 | 2k tok/s"),
        ({"val_loss": 2.5, "whatever": 1.0}, "eval at step 1 | loss 2.5"),
        ({"eval/pile/loss": 2.5}, "eval pile at step 1 | loss 2.5"),
        ({"moe/aux_loss": 0.02, "loss": 2.5, "moe/load_imbalance": 1.4},
         "step 1 | loss 2.5 | aux 0.02 | imbalance 1.4"),
    ],
)  # fmt: skip
def test_a_row_with_a_loss_is_drawn_as_the_step_or_the_evaluation_that_it_is(row: dict[str, Any], line: str) -> None:
    assert drawn([row]) == [line]


def test_a_row_of_both_is_two_lines_and_one_of_neither_none() -> None:
    both = {"train/loss": 2.5, "eval/loss": 2.6, "eval/c4/loss": 2.7, "note": None}
    lines = drawn([{"train/lr": 1.0, "gpu": 3.0}, both, {"loss": None, "lr": 1.0}])
    assert [line.split(" | ")[:2] for line in lines] == [
        ["step 2", "loss 2.5"], ["eval at step 2", "loss 2.6"], ["eval c4 at step 2", "loss 2.7"],
    ]  # fmt: skip
    assert drawn([{"training_time_ms": 90.0, "step_avg_ms": 30.5, "val_loss": 3.28471}], "modded-nanogpt") == [
        "step:1 val_loss:3.2847 train_time:90.0ms step_avg:30.50ms"
    ]


def test_rows_of_a_run_that_logs_its_steps_by_their_own_call_are_not_drawn_twice() -> None:
    console = Console(stream=io.StringIO())
    assert len(console.lines(Record("step", 0, 1, {"loss": 2.0}))) == 1
    assert console.lines(Record("metrics", 0, 1, {"train/loss": 2.0})) == []
    assert len(console.lines(Record("metrics", 0, 1, {"eval/loss": 2.0}))) == 1, "evaluations come by rows here"


def test_a_tight_loop_is_not_drawn_row_by_row() -> None:
    now = [0.0]
    stream = io.StringIO()
    console = Console(style="plain", stream=stream, clock=lambda: now[0])
    for step in range(1000):
        now[0] = step / 1000
        console.draw(Record("metrics", 0, step, {"loss": 2.0} if step % 100 else {"loss": 2.0, "val_loss": 2.1}))
    shown = stream.getvalue().splitlines()
    assert 20 <= sum(line.startswith("step") for line in shown) <= 50
    assert sum(line.startswith("eval") for line in shown) == 10, "every evaluation"


@pytest.mark.parametrize("style", [style for style in STYLES if style != "none"])
def test_the_line_of_a_named_evaluation_has_its_name(style: str) -> None:
    console = Console(style=style, stream=io.StringIO())
    lines = console.lines(Record("eval", 0, 1, {"loss": 2.0, "name": "pile"}))
    assert "pile" in lines[0] and "pile" not in console.lines(Record("eval", 0, 1, {"loss": 2.0}))[0]
    assert console.state().get("min_val_loss") == 2.0
