"""Logs in which several programs write: every row is read, and what is not is counted."""

from __future__ import annotations

import functools
import hashlib
import importlib
import itertools
import math
import pkgutil
import re
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from textlog_readings import LOGS, collect, find, read

import barograph
from barograph.core.patterns import LazyPattern
from barograph.doctor import diagnose
from barograph.importing import textlogs
from barograph.importing.textlogs import SOURCES, forms, messages, plain

SAMPLES = sorted(path.name for path in LOGS.iterdir())


def run_of(folder: Path, text: str, name: str = "small.log") -> barograph.StoredRun:
    path = folder / name
    path.write_text(text)
    return barograph.read(path)[0]


def bad_rules(run: barograph.StoredRun) -> dict[str, str]:
    return {one["rule"]: one["severity"] for one in diagnose(run)["findings"] if one["severity"] != "info"}


@functools.cache
def kind_of(name: str) -> str:
    return find(LOGS / name)[0][0].kind


@functools.cache
def row_of(name: str) -> bytes | None:
    """A line of a sample that some dialect takes for its own."""
    lines = (LOGS / name).read_bytes().splitlines()[::-1]
    owners = [dialect for dialect in SOURCES if not dialect.last_resort]
    return next((line for line in lines if any(dialect.rows_in(line)[0] for dialect in owners)), None)


@pytest.mark.parametrize("file", SAMPLES)
def test_a_line_of_another_dialect_takes_no_row_away(tmp_path: Path, file: str) -> None:
    """At the beginning, in the middle or at the end: each other line at one of them, by turns."""
    text = (LOGS / file).read_bytes()
    dialect = find(LOGS / file)[0][0]
    alone = read(LOGS / file).series
    starts = [match.start() for match in re.finditer(rb"(?m)^.*$", text)]
    borders = [at for at in starts if dialect.rows_in(text[at:].split(b"\n")[0])[0]] or [0]
    path = tmp_path / file
    for number, other in enumerate(SAMPLES, SAMPLES.index(file)):
        line = row_of(other)
        if line is None or kind_of(other) == dialect.kind:
            continue
        cut = (0, borders[len(borders) // 2], len(text))[number % 3]
        path.write_bytes(text[:cut] + line + b"\n" + text[cut:])
        runs = find(path)
        assert runs[0][0].kind == dialect.kind or dialect.of_the_rest, (other, line)
        mixed = collect(*next(one for one in runs if one[1].key == "")).series
        for name, points in alone.items():
            assert len(set(mixed.get(name, ()))) >= len(set(points)), (other, name)


FOREIGN = [
    "peak memory consumption: 1000 MiB", "***** Running training *****", "OVERFLOW! Rank 0 Skipping step. Attempted",
    "time (ms) | fwd: 71.12 | bwd: 140.93", "{'train_runtime': 896.0, 'epoch': 3.0}", "iter 5: loss 2.5, time 12.00ms",
    "step 100: train loss 2.5, val loss 2.6",
]  # fmt: skip


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_stray_line_hides_no_nan(tmp_path: Path, foreign: str) -> None:
    def rows(form: str) -> str:
        return "".join(
            form.format(step=step, loss="nan" if step >= 700 else f"{4 - step / 500:.4f}") for step in range(5, 1001, 5)
        )

    for number, form in enumerate(
        [
            "step:{step}/1000, read:9kB, train_loss:{loss} elapsed:3s\n",
            "[{step}] iteration {step} | CrossEntropyLoss {loss}\n",
        ]
    ):
        for where, text in enumerate([rows(form) + foreign + "\n", foreign + "\n" + rows(form)]):
            run = run_of(tmp_path, text, f"small-{number}-{where}.log")
            assert bad_rules(run).get("non_finite_loss") == "critical", form


@pytest.mark.parametrize(
    "form",
    [
        "step:{step}/1000 train_time:900ms step_avg:90.00ms\n(update {step}) mean loss = {loss}\n",
        "step:{step}/1000 train_time:900ms step_avg:90.00ms\n   loss: {loss}\n",
        "iter {step}: time 900.0ms, mfu 38.10%\nupdate {step}, nll: {loss} nats/tok, lr 1e-3\n",
        "step={step}, skipped=0, lr=[0.1], mom=[0.9]\n--- step {step}\n  train loss {loss}\n",
        "Epoch {step} of 1000\n  training loss {loss}, training accuracy 0.5\n  validation loss 2.5\n",
        "## Epoch {step}\nval acc 0.5\ntrain CrossEntropyLoss: {loss}\n",
        "Epoch {step}: train loss {loss}, validation loss 9.9, train acc 0.5, validation acc 0.4\n",
        "update {step}: loss_per_tok={loss}, val_xent=9.9\n",
        "loss: {loss}, norm 0.5\n",
        "2024-01-01 10:00:00 INFO nll {loss}\n",
    ],
)
def test_the_loss_is_read_wherever_it_stands(tmp_path: Path, form: str) -> None:
    losses = [5 - step / 400 for step in range(10, 1001, 10)]
    text = "".join(
        form.format(step=step, loss=f"{loss:.4f}") for step, loss in zip(range(10, 1001, 10), losses, strict=True)
    )
    run = run_of(tmp_path, "the run begins\n" + text)
    judged = diagnose(run)["judged_by"]
    series = run.series(judged)
    np.testing.assert_allclose(series.value, losses, atol=1e-4)
    steps = range(1, 101) if "{step}" not in form else range(10, 1001, 10)
    assert list(series.step) == list(steps)


def test_dicts_behind_a_bar_have_steps_by_their_epochs(tmp_path: Path) -> None:
    bar = "".join(f"\r {at // 3}%|###       | {at}/300 [00:01<01:00,  9.10it/s]" for at in range(0, 301, 10))
    for name, losses in (("loss", [4 - 0.1 * at for at in range(30)]), ("nan", [math.nan] * 30)):
        dicts = "".join(f"{{'loss': {loss}, 'epoch': {at / 10 + 0.1:.2f}}}\n" for at, loss in enumerate(losses))
        series = run_of(tmp_path, bar + "\n" + dicts, f"{name}.log").series("train/loss")
        assert list(series.step) == list(range(10, 301, 10))
        np.testing.assert_allclose(series.value, losses)


def test_dicts_behind_a_bar_without_epochs_are_numbered(tmp_path: Path) -> None:
    bar = "".join(f"\r {at}%|###       | {at}/100 [00:01<01:00,  9.10it/s]" for at in range(101))
    dicts = "".join(f"{{'loss': {5 - at / 10}, 'learning_rate': 0.001}}\n" for at in range(30))
    series = run_of(tmp_path, bar + "\n" + dicts).series("train/loss")
    assert list(series.step) == list(range(1, 31))


def test_lines_that_are_not_understood_are_counted_and_shown_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from barograph.cli import main

    rows = "".join(f"step {at} lr=1e-3 loss=2.5\nstep {at} at last the total loss -> [2.{at}]\n" for at in range(40))
    path = tmp_path / "small.log"
    path.write_text(rows + "step: 7 said, loss = (nothing 2)\n")
    assert main(["doctor", str(path)]) == 0
    second = capsys.readouterr().out.splitlines()[1]
    assert re.search(r"\b\d+ lines not understood, such as line 2: step 0 at last the total loss", second)


def test_without_a_loss_there_is_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from barograph.cli import main

    for name, row in (("memory.csv", "{step},5\n"), ("speed.csv", "{step},7.5\n")):
        path = tmp_path / name
        path.write_text(f"step,{path.stem}\n" + "".join(row.format(step=step) for step in range(50)))
        assert main(["doctor", str(path), "--fail-on", "warning"]) == 4
        out = capsys.readouterr().out
        assert "nothing is wrong" not in out and "no verdict" in out and path.stem in out


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("pair", list(itertools.combinations(range(4), 2)))
def test_two_dialects_with_one_series_give_each_step_once(
    tmp_path: Path, pair: tuple[int, int], order: tuple[int, int]
) -> None:
    forms = (
        "iter {s}: loss {v:.4f}, time 900.0ms, mfu 38.10%\n",
        "update {s}: loss={v:.4f} lr=1e-3\n",
        "[rank0]:[titan] 2025-01-01 10:00:00,000 - root - INFO - step: {s:2}  loss: {v:.4f}  grad_norm: 1.2  "
        "memory: 31.02GiB(39.5%)  tps: 3,712  tflops: 21.5  mfu: 2.2%\n",
        "step:{s}/1000 train_loss:{v:.4f} train_time:900ms step_avg:90.00ms\n",
    )
    first, second = (forms[pair[at]] for at in order)
    steps = range(1, 101)
    values = {step: 2 + 5 / (1 + step / 50) for step in steps}
    halves = [(first if step <= 50 else second).format(s=step, v=values[step]) for step in steps]
    both = [(first + second).format(s=step, v=values[step]) for step in steps]
    for name, lines in (("halves", halves), ("both", both)):
        path = tmp_path / f"{name}.log"
        path.write_text("".join(lines))
        series = barograph.read(path)[0].series("train/loss")
        assert series.step.tolist() == list(steps), name
        assert series.value.tolist() == pytest.approx(list(values.values()), abs=1e-4)


def patterns() -> dict[str, re.Pattern[bytes]]:
    """Every expression of every reader of logs, wherever it is held: in a module, a table, a class, a closure.

    One that two hold is one, and is named by its text: what else has been compiled, and what the memory of an object
    that is gone is used for again, changes neither how many there are nor their names in any process.
    """
    made: dict[str, re.Pattern[bytes]] = {}
    seen: dict[int, Any] = {}
    texts: set[tuple[bytes, int]] = set()
    for module in pkgutil.iter_modules(textlogs.__path__):
        waiting = list(vars(importlib.import_module(f"{textlogs.__name__}.{module.name}")).values())
        while waiting:
            value = waiting.pop()
            if id(value) in seen:
                continue
            seen[id(value)] = value
            if isinstance(value, re.Pattern):
                if isinstance(value.pattern, bytes) and (value.pattern, value.flags) not in texts:
                    texts.add((value.pattern, value.flags))
                    digest = hashlib.sha256(repr((value.pattern, value.flags)).encode()).hexdigest()[:8]
                    made[f"{module.name} {digest}"] = value
            elif isinstance(value, LazyPattern):
                waiting.append(re.compile(*value._given))
            elif isinstance(value, (list, tuple, set, frozenset)):
                waiting += value
            elif isinstance(value, dict):
                waiting += value.values()
            elif isinstance(value, types.BuiltinMethodType):
                waiting.append(value.__self__)  # a pattern's own search
            elif isinstance(value, types.FunctionType):
                waiting += [cell.cell_contents for cell in value.__closure__ or ()]
                waiting += value.__defaults__ or ()
            elif getattr(value, "__module__", "").startswith(textlogs.__name__):
                waiting += vars(value).values() if hasattr(value, "__dict__") else ()
    return made


PATTERNS = patterns()


def test_expressions_that_tables_classes_and_closures_hold_are_found_too() -> None:
    texts = {pattern.pattern for pattern in PATTERNS.values()}
    assert messages._ENDS[0][0].pattern in texts
    for dialect in SOURCES:
        assert dialect.looks is None or dialect.looks.pattern in texts
        for shape in dialect.shapes:
            assert not isinstance(shape, forms.Form) or {shape.pattern.pattern, shape._whole.pattern} <= texts


def near_misses(line: bytes, times: int) -> list[bytes]:
    """A line with one of its parts again and again, and something foreign behind it."""
    parts = re.findall(rb"\w+|\W", line)
    middle = len(parts) // 2
    repeated = [parts[0], parts[middle], b"".join(parts[middle : middle + 4]), b" ", b"\t x\n", b"| a ", b"9,", b"a_"]
    return [line[: len(line) // 2] + one * times + b"\x00" for one in repeated] + [one * times for one in repeated]


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_every_expression_takes_linear_time(name: str) -> None:
    pattern = PATTERNS[name]
    for line in [line for line in map(row_of, SAMPLES) if line][::2]:
        for text in near_misses(line, 1000):
            begin = time.process_time()
            for _ in zip(pattern.finditer(text[: 1 << 14]), range(5000), strict=False):
                pass
            assert time.process_time() - begin < 1.0, (line, text[:200])


def test_an_expressions_own_words_repeated_take_linear_time() -> None:
    for name, pattern in PATTERNS.items():
        for word in sorted({found.lower() for found in re.findall(rb"[A-Za-z]{4,}", pattern.pattern)})[:12]:
            begin = time.process_time()
            for _ in zip(pattern.finditer(word * (3000 // len(word))), range(5000), strict=False):
                pass
            assert time.process_time() - begin < 0.5, (name, word)


@pytest.mark.parametrize("lines", [15, 40, 400])
def test_rows_of_many_lines_are_read_in_linear_time(tmp_path: Path, lines: int) -> None:
    stanza = "".join(f"    optim/quantity_{at}=1.0\n" for at in range(lines))
    text = "".join(f"INFO [step={at}/100,epoch=0]\n    train/CrossEntropyLoss=5.0\n{stanza}" for at in range(3))
    begin = time.process_time()
    reading = read_text(tmp_path, text + "INFO saving\n")
    assert len(reading["train/CrossEntropyLoss"]) == 3
    assert time.process_time() - begin < 5


def read_text(folder: Path, text: str) -> dict[str, list[tuple[int, float]]]:
    path = folder / "text.log"
    path.write_text(text)
    return read(path).series


@pytest.mark.parametrize(
    "line",
    [
        "TrainingArguments(output_dir=out, num_train_epochs=3.0, max_steps=10, prediction_loss_only=0, seed=4)",
        "INFO: Config(step=1, loss=0.5, batch_size=8)",
        "[INFO] [config.py:75:print]   loss_scale ................... 0",
    ],
)
def test_settings_that_are_printed_as_an_object_are_no_rows(tmp_path: Path, line: str) -> None:
    path = tmp_path / "train.log"
    path.write_text(f"{line}\n" * 8 + "{'loss': 2.5, 'epoch': 0.1}\n{'train_runtime': 8.0, 'epoch': 1.0}\n")
    assert [dialect.kind for dialect, _ in find(path)] == ["hf_printed"]
    assert len(read(path).series["loss"]) == 1


def test_sentences_of_the_training_beside_lines_of_the_evaluation_are_of_two_launches(tmp_path: Path) -> None:
    said = "At step {at} the policy_loss was {loss:.3f} (best 2.001), with a learning rate of 3e-4.\n"
    held_out = "Optimizer step {at}\tvalidation/loss = 2.241 (best 2.001)\n"
    texts = [
        "".join(said.format(at=at, loss=2.9 - at / 1000) + (held_out.format(at=at) if at % 50 == 0 else "")
                for at in range(first, last, 10))
        for first, last in ((10, 310), (210, 510))
    ]  # fmt: skip
    path = tmp_path / "train.log"
    path.write_text("$ python train.py --resume\n".join(texts))
    (run,) = barograph.read(path)
    series = run.series(next(name for name in run.names() if "policy" in name))
    assert sorted(set(series.segment.tolist())) == [1, 2] and len(series.value) == 60 - 10


def test_the_last_row_of_several_lines_is_read_once_it_says_what_the_one_before_it_says(tmp_path: Path) -> None:
    head, rest = "INFO [step={at}/90,epoch=0]\n    train/CE loss={loss}\n", "    throughput/tokens_per_second={at}11\n"
    rows = [(head + rest).format(at=at, loss=5 - at / 4) for at in range(1, 6)]
    path = tmp_path / "rows.log"
    path.write_text("".join(rows))
    assert len(read(path).series["train/CE loss"]) == 5
    path.write_text("".join(rows[:4]) + head.format(at=5, loss=3.75))
    assert len(read(path).series["train/CE loss"]) == 4, "it may go on"
    path.write_text("".join(f"[batch={at}/90]:\n\t Train loss/train/total: {9 / at}\n" for at in range(1, 6)))
    assert len(read(path).series["loss/train/total"]) == 5


def test_dicts_behind_the_name_of_their_data(tmp_path: Path) -> None:
    text = "".join(
        f"train: {{'epoch': {at}, 'eta': 22.5, 'loss': {3 / at:.5f}, 'lr': 0.00{at}, 'auc': 0.7}}\n"
        f"val: {{'epoch': {at}, 'loss': {4 / at:.5f}, 'lr': 0, 'auc': 0.6}}\n"
        f"> Epoch {at}: took 24.8s (avg 26.3s) | Best so far: epoch 2\ttrain_loss: 0.1 train_auc: 0.7\tval_loss: 0.9\n"
        for at in range(1, 9)
    )
    path = tmp_path / "train.log"
    path.write_text(text)
    reading = read(path)
    assert reading.series["loss"] == [(at, round(3 / at, 5)) for at in range(1, 9)]
    assert reading.series["val loss"] == [(at, round(4 / at, 5)) for at in range(1, 9)]
    assert reading.series["lr"] == [(at, at / 1000) for at in range(1, 9)]  # an evaluation has no rate
    assert not any("train_" in name for name in reading.series)


def test_evaluations_named_by_their_tasks_are_read(tmp_path: Path) -> None:
    text = "".join(
        f"{{'loss': {3 / at:.5f}, 'learning_rate': 2e-05, 'epoch': {at / 10}}}\n"
        + (f"{{'eval_pairs_loss': {4 / at:.5f}, 'eval_pairs_runtime': 12.5, 'epoch': {at / 10}}}\n" if at % 2 else "")
        for at in range(1, 9)
    )
    path = tmp_path / "train.log"
    path.write_text(text)
    series = read(path).series
    assert series["eval_pairs_loss"] == [(at, round(4 / at, 5)) for at in range(1, 9, 2)]


def test_dicts_below_the_line_that_says_their_step(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    rows = [
        f"fit | step:   {at}0 | steps/sec:    0.5 | output: \n    {{'lr': 0.001,\n     'part_loss': 0.5,\n"
        f"     'training_loss': {3 / at:.5f}}}\n"
        for at in range(1, 9)
    ]
    path.write_text("".join(rows))
    assert read(path).series["training_loss"] == [(10 * at, round(3 / at, 5)) for at in range(1, 9)]
    half = "".join(rows[:3])
    assert plain.hold((half + rows[3][:-30].rpartition("\n")[0] + "\n").encode()) > 60


def test_a_bar_of_numbers_is_no_value(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(
        f"Starting epoch {at}\n\tfitting... 5 10 15 20 25 30 35 40 45 avg_loss={3 / at:.5f} time=9.5\n"
        for at in range(1, 9)
    ))  # fmt: skip
    series = read(path).series
    assert series["avg_loss"] == [(at, round(3 / at, 5)) for at in range(1, 9)] and "fitting" not in series


def test_a_list_that_ends_with_the_step_and_the_rate(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(
        f"2024-01-02 03:04:05,678\tvoice\tINFO\tTrain Epoch: {at} [{at}8%]\n"
        f"2024-01-02 03:04:05,679\tvoice\tINFO\t[{3 / at:.9f}, {7 / at:.9f}, {at}00, 0.000{at}]\n"
        for at in range(1, 9)
    ))  # fmt: skip
    series = read(path).series
    assert series["losses_2"] == [(100 * at, round(7 / at, 9)) for at in range(1, 9)]
    assert series["lr"] == [(100 * at, float(f"0.000{at}")) for at in range(1, 9)]


def test_an_object_that_is_alone_at_first_is_read_once_another_one_comes(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    parts = [
        f"step {at} loss: {9 / at:.4f}\n"
        + (f'{{\n  "eval_loss": {8 / at:.4f},\n  "step": {at}\n}}\n' if at % 3 == 0 else "")
        for at in range(1, 13)
    ]
    path.write_text("".join(parts))
    ((dialect, found), *_) = find(path)
    whole = collect(dialect, found).series
    assert [at for at, _ in whole["eval_loss"]] == [3, 6, 9, 12]
    mark, pieces = None, dict[str, list[tuple[int, float]]]()
    for end in range(2, 13):
        path.write_text("".join(parts[:end]))
        reading = collect(dialect, found, mark)
        mark = reading.mark
        for name, values in reading.series.items():
            pieces[name] = pieces.get(name, []) + values
    assert pieces["loss"] == whole["loss"]
    assert pieces["eval_loss"][-3:] == whole["eval_loss"][-3:]
