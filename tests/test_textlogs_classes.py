"""Scores of each class in a list, and the row of all classes in a detector's table."""

from __future__ import annotations

from pathlib import Path

from textlog_readings import find, read

EPOCHS = range(4)


def written(folder: Path, text: str) -> Path:
    path = folder / "train.log"
    path.write_text(text)
    return path


def test_a_list_of_scores_has_a_series_for_each_class(tmp_path: Path) -> None:
    text = "".join(
        f"Epoch {at}\ntrain_loss 0.{90 - at}\nval_loss 0.{95 - at}\nPseudo dice [0.8{at}, 0.5{at}, nan]\n"
        for at in EPOCHS
    )
    series = read(written(tmp_path, text)).series
    assert series["Pseudo dice_1"] == [(at, float(f"0.8{at}")) for at in EPOCHS]
    assert series["Pseudo dice_2"] == [(at, float(f"0.5{at}")) for at in EPOCHS]
    assert "Pseudo dice_3" not in series and len(series["train_loss"]) == len(EPOCHS)


def test_numbers_of_numpy_in_a_list_are_numbers(tmp_path: Path) -> None:
    text = "".join(
        f"Epoch {at}\ntrain_loss 0.{90 - at}\nPseudo dice [np.float32(0.8{at}), np.float32(0.5{at})]\n" for at in EPOCHS
    )
    assert read(written(tmp_path, text)).series["Pseudo dice_2"] == [(at, float(f"0.5{at}")) for at in EPOCHS]


def test_a_history_that_grows_is_no_list_of_classes(tmp_path: Path) -> None:
    shown = [f"0.{40 + at}" for at in range(8)]
    text = "".join(f"Epoch {at}\nloss 0.{90 - at}\nmiou [{', '.join(shown[: at + 2])}]\n" for at in EPOCHS)
    assert set(read(written(tmp_path, text)).series) == {"loss"}


def test_the_row_of_all_classes_is_the_evaluation_of_its_epoch(tmp_path: Path) -> None:
    text = "".join(
        "      Epoch   gpu_mem       box       obj       cls    labels  img_size\n"
        f"       {at}/3     2.64G   0.08{at}   0.03{at}   0.01{at}         4       416: 100%|####| 7/7 [00:15<00:00]\n"
        "               Class     Images     Labels          P          R     mAP@.5 mAP@.5:.95: 100%|#| 1/1 [00:01]\n"
        f"                 all         14         30       0.5{at}       0.4{at}      0.3{at}          0\n"
        f"                 cat         14         30       0.9{at}       0.4{at}      0.3{at}          0\n"
        for at in EPOCHS
    )
    series = read(written(tmp_path, text)).series
    assert series["val precision"] == [(at, float(f"0.5{at}")) for at in EPOCHS]
    assert series["val mAP@.5"] == [(at, float(f"0.3{at}")) for at in EPOCHS]
    assert series["val mAP@.5-.95"] == [(at, 0.0) for at in EPOCHS]
    assert not {"val Images", "val Labels"} & set(series)


def test_a_table_of_classes_alone_is_no_training(tmp_path: Path) -> None:
    text = (
        "   Class     Images  Instances          P          R      mAP50  mAP50-95\n"
        "     all         14         30        0.5        0.4        0.3       0.2\n"
        "     cat          9         12        0.6        0.3        0.3       0.1\n"
    )
    assert not any(found for _, found in find(written(tmp_path, text)))
