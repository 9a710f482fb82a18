"""Every dialect reads its own lines: names, numbers, steps, times, and nothing else claims its files."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from textlog_readings import LOGS, find, read

from barograph.core.aliases import Names
from barograph.importing.textlogs import SOURCES

# file, dialect, then for some series: name, number of points, first and last point
EXPECTED = [
    ("nanochat.log", "nanochat", [
        ("loss", 40, (0, 10.4), (39, 8.869995)), ("bf16_mfu", 40, (0, 50.1), (39, 50.49)),
        ("tok/sec", 40, (0, 810000), (39, 810039)), ("pq", 40, (0, 1), (39, 1)), ("eta", 29, (11, 2.9), (39, 2.6)),
        ("Validation bpb", 2, (0, 3.167584), (40, 0.753336)), ("CORE metric", 1, (20, 0.1697), (20, 0.1697)),
        ("CORE/copa/centered", 1, (19, 0.32), (19, 0.32)),
    ]),
    ("nanogpt.log", "nanogpt", [
        ("loss", 3, (0, 10.9123), (20, 7.2)), ("mfu", 2, (10, 38.1), (20, 38.2)), ("val loss", 2, (0, 10.8), (20, 7.3)),
    ]),
    ("modded_nanogpt.log", "modded_nanogpt", [
        ("val_loss", 2, (0, 10.8258), (3, 3.2783)), ("train_loss", 1, (2, 9.5), (2, 9.5)),
        ("peak memory allocated", 1, (3, 29863), (3, 29863)),
    ]),
    ("llmc_main.log", "llmc", [
        ("trl", 12, (0, 11.0), (11, 9.7778)), ("tel", 4, (0, 11.0), (12, 3.2722)), ("eval", 1, (12, 0.2463),
        (12, 0.2463)),
    ]),
    ("llmc_screen.log", "llmc", [
        ("loss", 20, (1, 10.888889), (20, 8.777778)), ("MFU", 19, (2, 32.3), (20, 32.3)),
        ("val loss", 2, (0, 11.008742), (20, 4.5)), ("HellaSwag", 1, (20, 0.297849), (20, 0.297849)),
    ]),
    ("llmq.log", "llmq_text", [
        ("time", 2, (1, 512), (2, 100000)), ("tps", 2, (1, 123000), (2, 98765)), ("eval", 1, (2, 2.1), (2, 2.1)),
        ("gpu/3/power", 1, (1, 312000), (1, 312000)),
    ]),
    ("megatron.log", "megatron", [
        ("lm loss", 5, (20, 12.77778), (60, 8.333333)), ("consumed samples", 6, (10, 40), (60, 240)),
        ("validation lm loss value", 1, (60, 2.724416), (60, 2.724416)), ("test lm loss PPL", 1, (60, 13), (60, 13)),
    ]),
    ("megatron_new.log", "megatron", [
        ("lm loss", 19, (1, 8.888889), (19, 6.888889)), ("throughput per GPU (TFLOP/s/GPU)", 19, (1, 412.3),
        (19, 412.3)),
        ("load_balancing_loss", 19, (1, 1.001), (19, 1.019)),
    ]),
    ("deepspeed.log", "deepspeed", [
        ("lr", 14, (1, 1e-05), (14, 1e-06)), ("lr[1]", 14, (1, 2e-05), (14, 2e-05)),
        ("iter time (s)", 14, (1, 0.512), (14, 0.512)), ("loss", 14, (1, 8.8889), (14, 7.4444)),
    ]),
    ("histories.log", "histories", [
        ("loss", 6, (1, 0.9312), (6, 0.4407)), ("val_loss", 6, (1, 0.9518), (6, 0.5126)),
        ("val_acc", 6, (1, 0.412), (6, 0.803)),
    ]),
    ("recurring.log", "recurring", [
        ("learn/loss", 12, (0, 0.6911), (11, 0.5642)), ("test/loss", 12, (0, 0.6920), (11, 0.6035)),
    ]),
    ("fairseq.log", "fairseq", [
        ("loss", 14, (10, 19.75), (140, 16.5)), ("ppl", 14, (10, 1.98043e6), (140, 1.98043e6)),
        ("valid_loss", 1, (140, 8.751), (140, 8.751)), ("train_loss", 1, (140, 9.1), (140, 9.1)),
    ]),
    ("fairseq_old.log", "fairseq", [
        ("loss", 2, (100, 10.2), (200, 9.2)), ("train_loss", 1, (1102, 9.1), (1102, 9.1)),
        ("valid_loss", 1, (1102, 8.1), (1102, 8.1)),
    ]),
    ("fairseq_newer.log", "fairseq", [
        ("loss", 3, (100, 10.2), (300, 8.7)), ("valid_loss", 1, (200, 8.1), (200, 8.1)),
        ("valid_best_loss", 1, (200, 8.1), (200, 8.1)),
    ]),
    ("torchtitan.log", "torchtitan", [
        ("loss", 14, (1, 11.8889), (14, 10.4444)), ("tps", 14, (1, 1001), (14, 1014)),
        ("memory(%)", 14, (1, 42.57), (14, 42.57)), ("validate loss", 1, (14, 4.2), (14, 4.2)),
    ]),
    ("torchtitan_old.log", "torchtitan", [("loss", 14, (1, 11.8889), (14, 10.4444)), ("wps", 14, (1, 1001),
        (14, 1014))]),
    ("kempnerforge.log", "kempnerforge", [
        ("loss", 14, (1, 8.8889), (14, 7.4444)), ("tok/s", 14, (1, 123001), (14, 123014)),
        ("mem_total", 14, (1, 80), (14, 80)),
    ]),
    ("hf_printed.log", "hf_printed", [
        ("loss", 4, (2, 2.2778), (8, 1.6111)), ("eval_loss", 1, (8, 2.1), (8, 2.1)), ("train_loss", 1, (8, 2.2),
        (8, 2.2)),
    ]),
    ("hf_numbered.log", "hf_printed", [("loss", 3, (1, 2.5), (3, 2.3)), ("grad_norm", 3, (1, math.nan),
        (3, math.inf))]),
    ("trainer_log.jsonl", "llamafactory", [
        ("loss", 10, (10, 2.3889), (100, 1.3889)), ("elapsed_time", 11, (10, 86401), (100, 90000)),
        ("eval_loss", 1, (100, 0.9), (100, 0.9)),
    ]),
    ("surogate.log", "surogate_text", [
        ("loss", 14, (1, 8.8889), (14, 7.4444)), ("tps", 14, (1, 123400), (14, 123400)), ("norm", 14, (1, 0.1429),
        (14, 2.0)),
        ("eval loss", 1, (14, 2.1), (14, 2.1)), ("gpu/0/temperature", 1, (14, 61), (14, 61)),
    ]),
    ("keras_text.log", "keras_text", [
        ("loss", 14, (1, 2.3297), (14, 0.6997)), ("val_loss", 14, (1, 2.4297), (14, 0.7997)),
    ]),
    ("stanzas.log", "stanzas", [
        ("train/CrossEntropyLoss", 14, (0, 2.6), (130, 0.753)), ("throughput/total_tokens", 14, (0, 1234), (130, 1234)),
    ]),
    ("yolo_results.txt", "yolo_results", [
        ("total", 14, (0, 0.193), (13, 0.102)), ("val/loss", 14, (0, 0.132), (13, 0.07783)),
        ("metrics/recall", 14, (0, 0), (13, 0.52)),
    ]),
    ("plain_step.log", "plain", [
        ("loss", 8, (100, 0.51), (800, 0.44)), ("lr", 8, (100, 3e-4), (800, 3e-4)), ("val loss", 1, (800, 0.61),
        (800, 0.61)),
    ]),
    ("plain_batch.log", "plain", [("loss", 6, (50, 1.0), (300, 0.33)), ("val_loss", 1, (300, 0.4), (300, 0.4))]),
    ("plain_epoch.log", "plain", [("loss", 8, (1, 1.0), (8, 0.125)), ("val loss", 8, (1, 1.1), (8, 0.138))]),
]  # fmt: skip


def same(point: tuple[int, float], wanted: tuple[int, float]) -> bool:
    equal = point[1] == pytest.approx(wanted[1], rel=1e-9) or (math.isnan(point[1]) and math.isnan(wanted[1]))
    return point[0] == wanted[0] and equal


@pytest.mark.parametrize(
    ("file", "kind", "series"), EXPECTED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_dialect_reads_its_lines(file: str, kind: str, series: list[tuple[str, int, tuple, tuple]]) -> None:
    assert [dialect.kind for dialect, _ in find(LOGS / file)] == [kind]
    reading = read(LOGS / file)
    for name, count, first, last in series:
        points = reading.series[name]
        assert len(points) == count, name
        assert same(points[0], first), (name, points[0])
        assert same(points[-1], last), (name, points[-1])
    assert not reading.restarts
    assert reading.state["matched"] >= max(count for _, count, _, _ in series)
    assert len(reading.unread) == (1 if file == "llmc_screen.log" else 0)


def test_every_dialect_has_a_log_here_and_a_line_in_the_documentation() -> None:
    assert {kind for _, kind, _ in EXPECTED} == {dialect.kind for dialect in SOURCES}
    text = (Path(__file__).parents[1] / "docs" / "reference" / "textlogs.md").read_text()
    for dialect in SOURCES:
        assert dialect.about
        assert f"`{dialect.kind}`" in text


@pytest.mark.parametrize("kind", [dialect.kind for dialect in SOURCES])
def test_losses_have_canonical_names(kind: str) -> None:
    dialect = next(one for one in SOURCES if one.kind == kind)
    names = Names(kind, dialect.aliases)
    file = next(file for file, found, _ in EXPECTED if found == kind)
    found = {names.of(name).name for name in read(LOGS / file).series}
    assert "train/loss" in found or kind in ("deepspeed", "recurring")


def test_percent_becomes_a_fraction_and_seconds_milliseconds() -> None:
    dialects = {one.kind: one for one in SOURCES}
    assert Names("nanochat", dialects["nanochat"].aliases).of("bf16_mfu") == ("train/mfu", 0.01)
    assert Names("kempnerforge", dialects["kempnerforge"].aliases).of("step_time") == ("train/duration_ms", 1000.0)


def test_the_loss_of_each_step_comes_back_from_the_printed_average() -> None:
    reading = read(LOGS / "nanochat.log")  # made from losses 10.4, 10.35, 10.3 …
    raw = reading.series["loss_raw"]
    assert [step for step, _ in raw] == list(range(40))
    assert max(abs(value - (10.4 - 0.05 * step)) for step, value in raw) < 2e-5
    assert [fact.kind for fact in reading.facts] == ["option", "info"]  # the plan, and a word about the average


def test_fine_tuning_s_first_losses_are_corrected_and_the_printed_ones_kept() -> None:
    reading = read(LOGS / "nanochat_sft.log")  # the true average is 10.396 throughout
    assert reading.series["loss_printed"][0] == (1, 5.471579)
    assert all(value == pytest.approx(10.396, abs=1e-5) for _, value in reading.series["loss"])
    assert "0.526" in reading.facts[0].fields["message"]


def test_no_average_is_undone_over_a_gap(tmp_path: Path) -> None:
    lines = (LOGS / "nanochat.log").read_text().splitlines(keepends=True)
    path = tmp_path / "gap.log"
    path.write_text("".join(line for line in lines if not line.startswith(("step 00007", "step 00008"))))
    steps = [step for step, _ in read(path).series["loss_raw"]]
    assert steps == [step for step in range(40) if step not in (7, 8, 9)]


def test_times_come_from_the_line_or_from_durations_after_a_line_that_has_one() -> None:
    megatron = read(LOGS / "megatron_new.log").times["lm loss"]
    assert megatron[0] == 1714557601_000000  # 2024-05-01 10:00:01
    assert megatron[-1] - megatron[0] == 18_000000
    nanochat = read(LOGS / "nanochat.log").times["loss"]
    assert nanochat[0] == 1769978246_202000 + 640_000
    assert nanochat[3] - nanochat[2] == 643_000
    assert set(read(LOGS / "nanogpt.log").times["loss"]) == {0}


def test_a_preamble_becomes_the_configuration() -> None:
    assert find(LOGS / "nanogpt.log")[0][1].config == {
        "batch_size": "12", "learning_rate": "6e-4", "out_dir": "out", "tokens_per_iteration": 491520,
    }  # fmt: skip
    assert find(LOGS / "megatron.log")[0][1].config["hidden_size"] == "1024"
    assert find(LOGS / "llmc_screen.log")[0][1].config["total batch size"] == "524288"
    assert find(LOGS / "nanochat.log")[0][1].config["Vocab size"] == 32768


def test_epochs_are_an_axis_of_their_own_where_nothing_else_is_said() -> None:
    assert read(LOGS / "plain_epoch.log").axes["loss"] == "epoch"
    assert read(LOGS / "plain_batch.log").axes["loss"] == "step"


REAL = os.environ.get("BAROGRAPH_REALLOGS")
REAL_LOGS = [
    ("karpathy__nanochat/speedrun_d24_pretrain.log", "nanochat", {
        "loss": (16704, 2.417931), "loss_raw": (16704, None), "Validation bpb": (68, 0.753336),
        "CORE metric": (6, 0.2633),
        "mfu": (16704, 50.77),
    }),
    ("KellerJordan__modded-nanogpt/records/track_1_short/2024-10-13_llmc/main.log", "llmc", {
        "trl": (19560, 3.2217), "tel": (80, 3.2722),
    }),
    ("KellerJordan__modded-nanogpt/records/track_1_short/2024-10-14_ModernArch/dabaaddd-237c-4ec9-939d-6608a9ed5e27.txt",
     "modded_nanogpt", {"train_loss": (5100, 3.2686), "val_loss": (42, 3.2741)}),
    ("KellerJordan__modded-nanogpt/records/track_1_short/2025-12-22_MultiTokenPrediction/17aaf854-f338-4d0d-9767-a5db30fd7980.txt",
     "modded_nanogpt", {"val_loss": (9, 3.2783), "peak memory allocated": (1, 29863)}),
    ("HectorFCardenas__llm.c/gpt2_train.11672114.log", "llmc", {"loss": (750, 4.763922), "val loss": (4, 4.723455)}),
    ("HectorFCardenas__llm.c/gpt2_train.11679010.log", "llmc", {"loss": (99, math.nan), "ms": (99, 3613.67)}),
    ("innerfirexy__nanoGPT/log_gpt2.txt", "nanogpt", {"loss": (4411, 2.8666), "val loss": (45, 3.0277),
        "mfu": (4410, 22.26)}),
    ("ethellight565__nanogpt-seis/checkpoints/train_mix.log", "nanogpt", {"loss": (800, 2.7499),
        "val loss": (17, 2.6645)}),
    ("bigscience-workshop__bigscience/experiments/gpt2-meg/meg_gpt2_base_n64_dp1_tp4_pp64-1809655.out", "megatron", {
        "lm loss": (5, 16.9694), "grad norm": (4, 14.171), "consumed samples": (6, 240),
    }),
    ("bigscience-workshop__bigscience/experiments/gpt2-hf-ds/hf_ds_gpt2_base_n8-1832573.out", "hf_printed", {
        "train_runtime": (1, 896.0007),
    }),
    ("CqGao112__CN-Mini-Phi3/ds_pretrain.log", "hf_printed", {"loss": (99, 4.2), "train_runtime": (1, 14003.7762)}),
    ("syGOAT__Mistral-v0.2-Translator-bf16/trainer_log.jsonl", "llamafactory", {"loss": (866, 0.1333),
        "epoch": (867, 4.0)}),
    ("pytorch__torchtitan/llama3_cuda.txt", "torchtitan", {"loss": (100, 2.746471643447876)}),
]  # fmt: skip


@pytest.mark.skipif(not REAL, reason="BAROGRAPH_REALLOGS names no folder of real logs")
@pytest.mark.parametrize(
    ("file", "kind", "series"), REAL_LOGS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_real_logs(file: str, kind: str, series: dict[str, tuple[int, float | None]]) -> None:
    path = Path(str(REAL)) / file
    assert [dialect.kind for dialect, _ in find(path)] == [kind]
    reading = read(path)
    for name, (count, last) in series.items():
        points = reading.series[name]
        assert len(points) == count, name
        assert last is None or same(points[-1], (points[-1][0], last)), (name, points[-1])
    torn = file.endswith("11679010.log")
    assert len(reading.unread) == (1 if torn else 0)
    assert not reading.restarts


def written(tmp_path: Path, name: str, lines: list[str]) -> dict[str, list[tuple[int, float]]]:
    """The series of a log of these lines."""
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return {name: [(int(step), value) for step, value in points] for name, points in read(path).series.items()}


@pytest.mark.parametrize(
    ("line", "steps"),
    [
        ("Train Epoch: {epoch} [{batch}/300 (10%)]\tLoss: {loss}", [0, 100, 200, 300, 400, 500]),
        ("Epoch: [{epoch}]  [{batch:3d}/300]  eta: 0:10:00  lr: 0.1  loss: {loss} (2.0)", [0, 100, 200, 300, 400, 500]),
        ("| epoch   {epoch} | {batch:4d}/ 300 batches | lr 20.00 | loss  {loss}", [0, 100, 200, 300, 400, 500]),
        ("2023/05/01 10:00:00 - mmengine - INFO - Epoch(train)  [{epoch}][{batch:4d}/300]  loss: {loss}",
         [0, 100, 200, 300, 400, 500]),
        ("Train: {epoch} [{batch:>4d}/300 ( 5%)]  Loss: {loss} (2.1)  Time: 0.3s", [0, 100, 200, 300, 400, 500]),
        ("Epoch {epoch}:  33%|###   | {batch}/300 [00:10<00:20,  3.2it/s, loss={loss}, v_num=0]",
         [0, 100, 200, 300, 400, 500]),
    ],
)  # fmt: skip
def test_batches_are_counted_on_over_epochs(tmp_path: Path, line: str, steps: list[int]) -> None:
    rows = [(epoch, batch) for epoch in (1, 2) for batch in (0, 100, 200)]
    lines = [line.format(epoch=epoch, batch=batch, loss=3 - at / 10) for at, (epoch, batch) in enumerate(rows)]
    series = written(tmp_path, "train.log", lines)
    loss = series.get("loss") or series["Loss"]
    assert loss == [(step, pytest.approx(3 - at / 10)) for at, step in enumerate(steps)]


def test_bars_without_an_epoch_follow_each_other_and_an_evaluation_s_stands_between(tmp_path: Path) -> None:
    bar = "{lead}{percent}%|####  | {at}/{of} [00:10<00:20,  3.2it/s, loss={loss}]"
    lines = []
    for epoch in range(3):
        lines += [bar.format(lead="", percent=at, at=at, of=100, loss=2 - epoch / 10) for at in range(0, 101, 20)]
        lines += [bar.format(lead="Validation: ", percent=at * 5, at=at, of=20, loss=3 - epoch) for at in (5, 20)]
    series = written(tmp_path, "train.log", lines)
    assert [step for step, _ in series["loss"]] == sorted(
        {at + 100 * epoch for epoch in range(3) for at in range(0, 101, 20)}
    )
    assert series["val loss"] == [(100, 3.0), (200, 2.0), (300, 1.0)]


def test_a_run_whose_loss_is_nan_from_the_first_bar_on_is_read(tmp_path: Path) -> None:
    lines = [f"Training:  {at}%|#  | {at}/100 [00:10<00:20,  3.2it/s, loss=nan]" for at in range(60)]
    loss = written(tmp_path, "train.log", lines)["loss"]
    assert len(loss) == 60 and all(math.isnan(value) for _, value in loss)


@pytest.mark.parametrize(("skipped", "norm", "losses"), [(0, "nan", 4), (1, "nan", 2), (0, "0.752", 2)])
def test_a_loss_that_megatron_leaves_out_beside_a_norm_of_nan_is_nan(
    tmp_path: Path, skipped: int, norm: str, losses: int
) -> None:
    path = tmp_path / "train.log"
    row = (
        " iteration {at:8}/    8000 | lr: 6.6E-06 | {loss}grad norm: {norm} | number of skipped iterations: {off:3} |\n"
    )
    whole = [row.format(at=at, loss=f"lm loss: 7.{at}E-01 | ", norm="0.741", off=0) for at in (1, 2)]
    path.write_text("".join(whole + [row.format(at=at, loss="", norm=norm, off=skipped) for at in (3, 4)]))
    series = read(path).series["lm loss"]
    assert [step for step, value in series if value == value] == [1, 2]
    assert len(series) == losses


def test_printed_dicts_may_say_their_step(tmp_path: Path) -> None:
    lines = [str({"step": 10 * at, "loss": 2 - at / 100, "lr": 1e-3}) for at in range(20)]
    assert written(tmp_path, "out.log", lines)["loss"] == [(10 * at, pytest.approx(2 - at / 100)) for at in range(20)]


def test_a_table_between_dashes_is_a_row(tmp_path: Path) -> None:
    lines = []
    for at in range(1, 5):
        lines += ["-" * 30, "| rollout/      |      |", f"|    ep_rew_mean | {at * 10} |", "| time/ | |",
                  f"|    total_timesteps | {2048 * at} |", "-" * 30]  # fmt: skip
    assert written(tmp_path, "ppo.log", lines)["rollout/ep_rew_mean"] == [(2048 * at, 10.0 * at) for at in range(1, 5)]


@pytest.mark.parametrize("digits", [4, 2])
def test_dicts_of_which_only_some_have_a_bar_behind_them_are_as_far_apart_as_these(tmp_path: Path, digits: int) -> None:
    text = ""
    for step in range(20, 400, 20):
        text += f"{{'loss': {5 - step / 90:.4f}, 'learning_rate': 1e-05, 'epoch': {step / 130:.{digits}f}}}\n"
        text += f" 9%|##   | {step}/390 [00:10<00:20,  1.2it/s]\n" if step in (60, 140, 160, 300) else ""
    path = tmp_path / "dicts.log"
    path.write_text(text)
    assert [step for step, _ in read(path).series["loss"]] == [*range(20, 400, 20)]
