"""How trainings of speech, translation and agents are printed: what is a row, at which step, and what is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import read


def series(folder: Path, text: str) -> dict[str, list[tuple[int, float]]]:
    path = folder / "small.log"
    path.write_text(text)
    found = read(path)
    assert not found.restarts
    return found.series


@pytest.mark.parametrize(
    ("line", "name", "steps"),
    [
        ("Epoch {e}, global step {s}: 'val/CER' reached {v} (best {v}), saving model to 'a/step={s}.ckpt' as top 1",
         "val/CER", 100),
        ("Epoch {e}: val_ter reached {v} (best {v}), saving model to a/b.ckpt as top 3", "val_ter", 1),
        ("LOG (train[5.5]:Show():train.cc:43) Average objective function for 'out' for minibatches {e}-{s} is -{v} "
         "over 640 frames.", "out objf", 100),
        ("VLOG[1](train:EvalParallel():a.cc:1) After {s} sequences (3.1Hr): Obj(log[Pzx]) = -{v}   TokenAcc = 9{e}.4% ",
         "objf", 100),
        ("INFO [train.py:9] Process {s}/9272(8.5%) glb avg objf: -{v} over 640.0 frames, cur avg objf: -0.{e} over 64 "
         "frames, val avg objf: -0.{e} over 82.0 frames, epoch 1", "glb avg objf", 100),
        ("Epoch: {e}, Steps: 9 | Train Loss: {v} Vali Loss: {v} Test Loss: 0.{e}", "Val Loss", 9),
        ("epoch {e} INFO [Metrics] NDCG(k=20): {v} - Recall(k=20): 0.{e} - NDCG(k=50): 0.{e}", "NDCG@20", 1),
    ],
)  # fmt: skip
def test_values_in_a_programs_own_words(tmp_path: Path, line: str, name: str, steps: int) -> None:
    values = {epoch: round(0.9 / epoch, 4) for epoch in range(1, 9)}
    found = series(tmp_path, "".join(line.format(e=e, s=100 * e, v=v) + "\n" for e, v in values.items()))
    assert {(step, abs(value)) for step, value in found[name]} == {(steps * e, v) for e, v in values.items()}


def test_scores_of_two_words_stand_at_their_epoch(tmp_path: Path) -> None:
    lines = "Epoch {e}/8\nTraining loss: {v}\nF1 score: {w}\nExact match: {w}\nWord error rate: {v}\n"
    found = series(tmp_path, "".join(lines.format(e=e, v=1 - e / 10, w=e / 10) for e in range(1, 9)))
    assert [step for step, _ in found["F1 score"]] == list(range(1, 9))
    assert len(found["Exact match"]) == len(found["Word error rate"]) == len(found["Training loss"]) == 8


def test_an_evaluation_that_counts_its_own_batches_stands_at_the_last_step(tmp_path: Path) -> None:
    text = ""
    for epoch in range(4):
        text += "".join(f"Epoch {epoch} | Training | Steps: {step} | Loss: {9 - epoch - step / 100}\n"
                        for step in (1, 11, 21))  # fmt: skip
        text += f"Epoch {epoch} | Validation | Steps: 7 | Loss: {9.5 - epoch} | Dataset: small.csv\n"
    found = series(tmp_path, text)
    assert [step for step, _ in found["Loss"]] == [21 * epoch + step for epoch in range(4) for step in (1, 11, 21)]
    assert [step for step, _ in found["val Loss"]] == [21, 42, 63, 84]


def test_rows_called_cv_are_evaluations(tmp_path: Path) -> None:
    text = ""
    for epoch in range(3):
        text += "".join(f"DEBUG TRAIN Batch {epoch}/{batch} loss {90 - 9 * epoch - batch / 100} lr 0.001 rank 0\n"
                        for batch in range(0, 500, 100))  # fmt: skip
        text += f"DEBUG CV Batch {epoch}/0 loss {95 - 9 * epoch} rank 0\nDEBUG CV Batch {epoch}/100 loss 90.5 rank 0\n"
        text += f"INFO Epoch {epoch} CV info cv_loss {94.25 - 9 * epoch}\n"
    found = series(tmp_path, text)
    assert len(found["loss"]) == 15
    assert [value for _, value in found["val cv_loss"]] == [94.25, 85.25, 76.25]
    assert [step for step, _ in found["val cv_loss"]] == [400, 801, 1202]


def test_an_epochs_mean_beside_rows_that_say_the_epoch_alone(tmp_path: Path) -> None:
    text = ""
    for epoch in (1, 2, 3):
        text += "".join(f"Epoch {epoch} - Batch loss: {9 - epoch - at / 40:.3f}\n" for at in range(30))
        text += f"Epoch {epoch} - Average loss: {8.5 - epoch}\n"
    found = series(tmp_path, text)
    assert [step for step, _ in found["Batch loss"]] == list(range(1, 91))
    assert found["Average loss"] == [(30, 7.5), (60, 6.5), (90, 5.5)]


@pytest.mark.parametrize(
    "line",
    [
        "/opt/env/bin/python /tmp/train.py --epoch=100 --lr=5e-4 --batch_size=12",
        "Rooms: 256, Steps: 20000000, LR: 0.0003, Hidden: 12",
        "INFO {'best_train_loss': inf, 'best_valid_loss': inf, 'batch_idx_train': 0, 'log_interval': 50}",
        "INFO {'best_valid_loss': inf, 'warm_step': 2000, 'width': 64}",
        "Reading the model cost 0.644 seconds.",
        "The model is improving acc: 41.2 --> 45.3.",
    ],
)
def test_settings_and_sentences_are_no_rows(tmp_path: Path, line: str) -> None:
    lines = [f"step {step} loss {7 - step / 50:.3f}" for step in range(1, 40)]
    found = series(tmp_path, "\n".join([line, *lines[:20], line, *lines[20:]]) + "\n")
    assert list(found) == ["loss"]
    assert len(found["loss"]) == 39


def test_agents_count_their_time(tmp_path: Path) -> None:
    text = "".join(f"Eval num_timesteps={1000 * at}, episode_reward={at * 2.5:.2f} +/- 1.25\n" for at in range(1, 9))
    path = tmp_path / "small.log"
    path.write_text(text + "".join(f"timestep: {1000 * at}, mean reward: {at * 3.5}\n" for at in range(9, 20)))
    found = read(path).series
    assert [step for step, _ in found["mean reward"]] == [1000 * at for at in range(9, 20)]


def test_a_number_with_its_unit_behind_it_is_that_units(tmp_path: Path) -> None:
    line = "Batch [{s}]\tSpeed: 12.5 samples/sec 345.5 tokens/sec 2.1 updates/sec\tperplexity={v}\n"
    found = series(tmp_path, "".join(line.format(s=step, v=900 - step) for step in range(50, 550, 50)))
    assert {value for _, value in found["tokens/sec"]} == {345.5}


def test_a_difference_in_brackets_is_no_mean(tmp_path: Path) -> None:
    text = ""
    for step in range(0, 400, 25):
        text += f" --> TIME: 10:00:00 -- STEP: {step}/900 -- GLOBAL_STEP: {step}\n"
        text += f"   | > loss: {9 - step / 99:.3f} (8.125)\n"
        text += f" --> EVAL PERFORMANCE\n   | > avg_loss: {7 - step / 99:.3f} ({'+' if step % 2 else '-'}0.250)\n"
    found = series(tmp_path, text)
    assert [round(value, 3) for _, value in found["val avg_loss"]] == [round(7 - s / 99, 3) for s in range(0, 400, 25)]


def test_an_estimators_evaluation_is_one(tmp_path: Path) -> None:
    text = ""
    for step in range(0, 3000, 100):
        text += f"INFO:tensorflow:loss = {9 - step / 999:.4f}, step = {step} (12.3 sec)\n"
        if step % 1000 == 0:
            text += (
                f"INFO:tensorflow:Saving dict for global step {step}: global_step = {step}, loss = {9.5 - step / 999}\n"
            )
    found = series(tmp_path, text)
    assert len(found["loss"]) == 30
    assert [step for step, _ in found["val loss"]] == [0, 1000, 2000]


def test_the_place_in_a_loggers_own_brackets_is_no_value(tmp_path: Path) -> None:
    line = "[NeMo I 2023-01-01 10:00:00 rnnt_wer_bpe:1] Epoch 1, global step {s}: train_loss={v} batch_wer=0.5\n"
    found = series(tmp_path, "".join(line.format(s=step, v=9 - step / 99) for step in range(0, 500, 50)))
    assert set(found) == {"train_loss", "batch_wer"}


def test_the_best_so_far_and_rates_in_another_script_have_no_series(tmp_path: Path) -> None:
    text = ""
    for epoch in range(1, 12):
        text += f"Epoch {epoch}/99 | 课程深度: 2\n训练损失: {32 / epoch:.4f}\n"
        text += f"Epoch {epoch} 完成 | 成功率: {13 + epoch}.5%\n"
        text += f"# Best bleu, step {epoch} lr 1 step-time 0.35s wps 9.83K ppl 8.1 gN 4.3\n"
    found = series(tmp_path, text)
    assert list(found) == ["train loss"]
    assert len(found["train loss"]) == 11


def test_several_measures_of_one_evaluation_are_each_a_series(tmp_path: Path) -> None:
    lines = [
        f"[2024-03-0{at} 10:00:0{place}] [valid] Ep. 1 : Up. {at}000 : {name} : {at * place + 0.25} : {behind}\n"
        for at in range(1, 7)
        for place, name in enumerate(("ce-mean-words", "perplexity", "translation"), 1)
        for behind in ("new best" if at < 5 else "stalled 1 times (last best: 0.5)",)
    ]
    found = series(tmp_path, "".join(lines))
    for place, name in enumerate(("ce-mean-words", "perplexity", "translation"), 1):
        assert found[f"val {name}"] == [(1000 * at, at * place + 0.25) for at in range(1, 7)]
    assert not any("best" in name for name in found)


def test_a_rate_that_is_shortened_with_points(tmp_path: Path) -> None:
    line = "Ep. 2 : Up. {s} : Sen. 4,000 : Cost {v} : Time 3.5s : 2100.5 words/s : gNorm 0.4 : L.r. 2.5e-04\n"
    found = series(tmp_path, "".join(line.format(s=50 * at, v=4 - at / 9) for at in range(1, 7)))
    assert found["L.r"][0] == (50, 2.5e-4)
    assert len(found["Cost"]) == len(found["gNorm"]) == 6


def test_a_word_that_begins_like_infinity_is_no_number(tmp_path: Path) -> None:
    lines = [f"2024-03-01 10:0{at}:00,123 INFO Epoch {at} CV info cv_loss {9 - at / 7:.9f}\n" for at in range(1, 8)]
    found = series(tmp_path, "".join(lines))
    assert {name: values[0] for name, values in found.items()} == {"val cv_loss": (1, 8.857142857)}


RANKED = "2024-03-01 10:00:0{r},{r}00 DEBUG {kind} Batch 3/{b} loss {v} loss_ctc {v} lr 0.00032 rank {r}\n"


def test_rows_of_other_ranks_are_known_by_the_end_of_their_lines(tmp_path: Path) -> None:
    text = "".join(
        RANKED.format(kind="TRAIN", b=b, v=4 + r / 10, r=r) for b in range(100, 700, 100) for r in (2, 0, 1)
    ) + "".join(RANKED.format(kind="CV", b=0, v=5 + r / 10, r=r) for r in (1, 0, 2))
    found = series(tmp_path, text)
    assert found["loss"] == [(b, 4.0) for b in range(100, 700, 100)]
    assert found["val loss"] == [(600, 5.0)]  # of the epoch's batch 0, which is a count of its own


@pytest.mark.parametrize("ranks", [[8] * 6, [7, 12, 9, 3, 11, 5]])
def test_a_rank_that_numbers_no_process_leaves_no_row_out(tmp_path: Path, ranks: list[int]) -> None:
    lines = [f"step {at} loss {3 - at / 9:.4f} lr 0.001, rank {rank}\n" for at, rank in enumerate(ranks, 1)]
    assert len(series(tmp_path, "".join(lines))["loss"]) == 6


def test_a_mean_of_losses_in_brackets_is_read_beside_the_batchs(tmp_path: Path) -> None:
    line = (
        "2024-03-01 10:00:00,5 INFO [t.py:9] Epoch 2, batch {b}, loss[loss={v}, simple_loss=0.4, over 24.0 frames.], "
        "tot_loss[loss={w}, simple_loss=0.5, over 96.12 frames.], batch size: 21, lr: 3.00e-03\n"
    )
    found = series(tmp_path, "".join(line.format(b=50 * at, v=2 - at / 9, w=3 - at / 9) for at in range(1, 8)))
    assert found["loss"][0] == (50, pytest.approx(2 - 1 / 9))
    assert found["tot_loss"][0] == (50, pytest.approx(3 - 1 / 9))
    assert len(found["tot_simple_loss"]) == len(found["simple_loss"]) == 7


def test_a_summary_of_an_epoch_goes_back_to_no_batch(tmp_path: Path) -> None:
    text = "".join(
        f"[pc] 2024-03-0{epoch} 10:0{part}:00,1 (t:7) INFO: {epoch}epoch:train:{part * 50 - 49}-{part * 50}batch: "
        f"loss={3 - part / 9 - epoch / 5:.3f}, lr_0=0.1\n"
        + (
            f"[pc] 2024-03-0{epoch} 10:09:00,1 (t:2) INFO: {epoch}epoch results: [train] loss=2.5, time=1 minute, "
            "[valid] loss=2.25, time=3 seconds\n"
            if part == 4
            else ""
        )
        for epoch in (1, 2, 3)
        for part in (1, 2, 3, 4)
    )
    found = series(tmp_path, text)
    assert [step for step, _ in found["loss"]] == [50 * at for at in range(1, 13)]
    assert found["epoch loss"] == [(200, 2.5), (400, 2.5), (600, 2.5)]
    assert found["val loss"] == [(200, 2.25), (400, 2.25), (600, 2.25)]


def test_an_evaluation_of_each_bucket_is_no_evaluation_of_all(tmp_path: Path) -> None:
    text = "".join(
        f"global step {s} learning rate 0.5 step-time 0.4 perplexity {900 / s}\n"
        + "".join(f"  eval: bucket {number} perplexity {800 / s + number}\n" for number in range(3))
        for s in range(200, 1400, 200)
    )
    found = series(tmp_path, text)
    assert found["val perplexity_bucket_2"][0] == (200, 6.0)
    assert len(found["perplexity"]) == len(found["val perplexity_bucket_0"]) == 6


def test_a_whole_number_of_a_measure_without_a_step_is_its_value(tmp_path: Path) -> None:
    text = "".join(
        f"Epoch {at}, 50/50; ppl: {90 / at}; 5 s elapsed\nTrain accuracy: 0\nValidation perplexity: {95 / at}\n"
        for at in range(1, 6)
    )
    found = series(tmp_path, text)
    assert [value for _, value in found["Train accuracy"]] == [0] * 5
    assert len(found["Validation perplexity"]) == len(found["ppl"]) == 5


def test_names_of_errors_and_perplexities(tmp_path: Path) -> None:
    text = "".join(
        f"[INFO] epoch 1 | step {s} | loss {400 / s} | pplx {500 / s}\n[INFO] valid result: | rmsle {30 / s}\n"
        for s in range(10, 70, 10)
    )
    found = series(tmp_path, text)
    assert len(found["loss"]) == len(found["pplx"]) == len(found["val rmsle"]) == 6


def test_a_remark_in_another_script_belongs_to_no_name(tmp_path: Path) -> None:
    text = "".join(f"#Epoch {at} - Train Loss (平均の誤差): {50 / at}\n" for at in range(1, 6))
    assert series(tmp_path, text)["Train Loss"] == [(at, 50 / at) for at in range(1, 6)]


def test_evaluations_of_nanogpt_with_more_values(tmp_path: Path) -> None:
    text = "".join(
        f"step {s}: train loss {4 - s / 50}, val loss {4.1 - s / 50}, train ppl 50.5, val ppl 52.5\n"
        f"iter {s}: loss {4 - s / 50}, ppl 51.5, time 33.50ms, mfu 0.42%\n"
        for s in range(0, 100, 10)
    )
    found = series(tmp_path, text)
    assert len(found["val loss"]) == len(found["val ppl"]) == len(found["loss"]) == 10
