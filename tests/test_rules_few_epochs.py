"""What a few printed rows say of a model that answers by chance, and of an order that holds for the training alone."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import barograph
from barograph.doctor import diagnose

LN4 = f"{math.log(4):.4f}"


def warned(folder: Path, text: str) -> dict[str, str]:
    path = folder / "train.log"
    path.write_text(text)
    findings = diagnose(barograph.read(path)[0])["findings"]
    return {one["rule"]: one["message"] for one in findings if one["severity"] != "info"}


@pytest.mark.parametrize(
    ("first", "later", "evaluated", "says"),
    [
        ("1.3562 - acc: 0.31", LN4 + " - acc: 0.2512", LN4 + " - val_acc: 0.2490", True),
        ("1.3562 - acc: 0.31", LN4 + " - acc: 0.2512", LN4 + " - val_acc: 0.2610", False),
        ("1.3562 - acc: 0.31", LN4 + " - acc: 0.2790", LN4 + " - val_acc: 0.2490", False),
        ("1.3562 - acc: 0.31", "1.3810 - acc: 0.2512", LN4 + " - val_acc: 0.2490", False),
    ],
)
def test_four_epochs_that_are_a_guess_have_learnt_nothing(
    tmp_path: Path, first: str, later: str, evaluated: str, says: bool
) -> None:
    rows = [f"Epoch {at}/9 - loss: {later if at else first} - val_loss: {evaluated}\n" for at in range(4)]
    found = warned(tmp_path, "".join(rows))
    assert ("not_learning" in found) == says
    assert not says or "among 4, but for the training's first" in found["not_learning"]
    assert "not_learning" not in warned(tmp_path, "".join(rows[:3]))


@pytest.mark.parametrize(
    ("trained", "evaluated", "right", "says"),
    [
        ([2.47, 2.37, 2.33, 2.32, 2.315, 2.31], 2.3019, ["10.35"] * 6, True),
        ([2.47, 2.37, 2.33, 2.32, 2.315], 2.3019, ["10.35"] * 5, False),
        ([2.47, 2.37, 2.33, 2.32, 2.315, 2.31], 2.3019, ["10.35"] * 5 + ["10.85"], False),  # it has begun to learn
        ([2.47, 2.37, 2.33, 2.32, 2.28, 2.21], 2.3019, ["10.35"] * 6, False),
        ([2.47, 2.37, 2.33, 2.32, 2.315, 2.31], 2.2519, ["10.35"] * 6, False),
        ([2.47, 2.37, 2.33, 2.32, 2.315, 2.31], 2.3019, ["16.35"] * 6, False),
    ],
)
def test_evaluations_that_are_a_guess_beside_a_loss_that_falls_to_one(
    tmp_path: Path, trained: list[float], evaluated: float, right: list[str], says: bool
) -> None:
    text = "".join(
        f"Epoch {at} of 90 took 31.3s\n  training loss:\t\t{loss}\n  validation loss:\t\t{evaluated + at / 5000:.6f}\n"
        f"  validation accuracy:\t\t{share} %\n"
        for at, (loss, share) in enumerate(zip(trained, right, strict=True), 1)
    )
    found = warned(tmp_path, text)
    assert ("not_learning" in found) == says
    assert (
        not says or "the evaluation's loss and accuracy are those of a uniform guess among 10" in found["not_learning"]
    )


@pytest.mark.parametrize(("near", "says"), [("0.5002", True), ("0.5030", False)])
def test_one_class_for_all_is_told_by_the_evaluation(tmp_path: Path, near: str, says: bool) -> None:
    row = "epoch {at} train loss: {loss}; train acc: {acc} val acc: 0.5000\n"
    losses = (1.3054, 1.0149, 0.7225, 0.7835, 1.1120, 1.3536, 1.3649, 1.1435, 0.8)
    text = "".join(
        row.format(at=170 + at, loss=loss, acc=near if at < 3 else "0.5000") for at, loss in enumerate(losses)
    )
    assert ("not_learning" in warned(tmp_path, text)) == says


@pytest.mark.parametrize(
    ("trained", "evaluated", "says"),
    [
        ([0.99] * 6, [0.52, 0.51, 0.52, 0.5, 0.51, 0.51], True),
        ([0.99] * 6, [0.7] * 6, False),
        ([0.9] * 6, [0.52] * 6, False),
        ([0.99] * 6, [0.5, 0.52, 0.54, 0.56, 0.58, 0.6], False),  # it gets better
        ([0.99] * 4, [0.5] * 4, False),
    ],
)
@pytest.mark.parametrize(
    "row",
    ["[{at}]\ttrain-auc:{one:.5f}\tvalid-auc:{two:.5f}\n", "[1] \"[{at}]:  train's auc:{one}  test's auc:{two}\"\n"],
)
def test_an_order_that_holds_for_the_training_alone_is_learnt_by_heart(
    tmp_path: Path, row: str, trained: list[float], evaluated: list[float], says: bool
) -> None:
    pairs = enumerate(zip(trained, evaluated, strict=True), 85)
    found = warned(tmp_path, "".join(row.format(at=at, one=one, two=two) for at, (one, two) in pairs))
    assert ("ranking_by_heart" in found) == says


@pytest.mark.parametrize(
    ("later", "says"),
    [([0.3, 0.28, 0.27, 0.26, 0.04], True), ([0.3, 0.28, 0.27, 0.26, 0.25], True),
     ([0.44, 0.43, 0.43, 0.42, 0.42], False)],
)  # fmt: skip
def test_a_first_epoch_whose_mean_lies_above_its_evaluation_may_overfit(
    tmp_path: Path, later: list[float], says: bool
) -> None:
    trained = [0.45, *later]
    evaluated = [0.32, 0.36, 0.37, 0.48, 0.6, 0.75]
    pairs = enumerate(zip(trained, evaluated, strict=True), 1)
    row = "Epoch={at},Loss:{one},Accuracy:0.9,Valid Loss:{two},Valid Accuracy:0.85\n"
    text = "".join(row.format(at=at, one=one, two=two) for at, (one, two) in pairs)
    assert ("overfitting" in warned(tmp_path, text)) == says


@pytest.mark.parametrize(
    ("count", "accuracy", "last", "says"),
    [(12, "0.4355", 1.4, True), (11, "0.4355", 1.4, False), (12, "0.44", 1.4, False), (12, "0.4355", 0.9, False),
     (12, "0.9876", 1.4, False)],
)  # fmt: skip
def test_an_accuracy_that_never_changes_is_of_one_class(
    tmp_path: Path, count: int, accuracy: str, last: float, says: bool
) -> None:
    row = "Epoch {at}/100\n62/62 [==============================] - 0s 145us/step - loss: {loss:.4f} - acc: {share}\n"
    losses = [1.5 + (last - 1.5) * at / 11 for at in range(count)]
    text = "".join(row.format(at=41 + at, loss=loss, share=accuracy) for at, loss in enumerate(losses))
    assert ("not_learning" in warned(tmp_path, text)) == says


@pytest.mark.parametrize(
    ("form", "rows", "says"),
    [
        ("Epoch {e}/9, Train Loss: {a}, Test Loss: {b}, Test Acc: 10.00%\n", 8, True),
        ("Epoch {e}/9, Train Loss: {a}, Test Loss: {b}, Test Acc: 1{e}.00%\n", 8, False),
        ("Epoch {e}: train loss {a} val loss {b}\n", 8, True),
        ("Epoch {e}: train loss {a} val loss {b}\n", 7, False),
        ("Epoch 1{e}: train loss {a} val loss {b}\n", 8, False),  # it began elsewhere
        ("Epoch {e}: train loss {b} val loss 2.3{e}\n", 8, False),
        ("Epoch {e}: loss {a}\n", 9, False),
        ("step {e} train loss {a} val loss {b}\n", 9, False),
    ],
)
def test_epochs_whose_losses_are_a_guess_by_themselves_or_beside_an_accuracy_in_percent(
    tmp_path: Path, form: str, rows: int, says: bool
) -> None:
    losses = ["2.3031", "2.3019", "2.3026", "2.3035"]
    text = "".join(form.format(e=1 + at, a=losses[at % 4], b=losses[(at + 2) % 4]) for at in range(rows))
    assert ("not_learning" in warned(tmp_path, text)) == says


@pytest.mark.parametrize(
    ("losses", "says"),
    [
        ([0.69, 1.8, 22.7, 340.1], True),
        ([2.3, 2.1, 15.2, 240.0, 3122.0], True),
        ([0.69, 24.1, 15.3, 702.0], True),  # all behind the first are far above it
        ([0.69, 24.1, 15.3, 80.0], False),
        ([0.69, 24.1, 3.3, 702.0], False),
        ([0.69, 22.7, 340.1], False),
        ([0.69, 1.8, 22.7, 60.0], False),
        ([0.001, 0.002, 0.02, 0.9], False),  # next to nothing
        ([300.0, 40.0, 2.0, 1.0], False),
    ],
)
@pytest.mark.parametrize("beside", ["", " | reward -3.0"])
def test_four_rows_of_which_the_last_two_explode_diverge(
    tmp_path: Path, losses: list[float], says: bool, beside: str
) -> None:
    text = "".join(f"epoch {at} | loss {loss}{beside}\n" for at, loss in enumerate(losses))
    assert ("divergence" in warned(tmp_path, text)) == (says and not beside)


@pytest.mark.parametrize(
    ("evaluated", "trained", "loss", "says"),
    [
        ([0.7, 0.8, 0.85, 0.86, 0.85, 0.82, 0.79, 0.78, 0.77, 0.77], 0.999, 0.55, True),
        ([0.7, 0.8, 0.85, 0.86, 0.85, 0.85, 0.84, 0.83, 0.84, 0.83], 0.999, 0.55, False),  # hardly less
        ([0.7, 0.8, 0.85, 0.86, 0.85, 0.82, 0.79, 0.78, 0.77, 0.85], 0.999, 0.55, False),  # it came back
        ([0.7, 0.9, 0.72, 0.88, 0.71, 0.9, 0.7, 0.75, 0.71, 0.72], 0.999, 0.55, False),  # it always goes up and down
        ([0.7, 0.8, 0.85, 0.86, 0.85, 0.82, 0.79, 0.78, 0.77, 0.77], 0.9, 0.55, False),  # the training learns still
        ([0.7, 0.8, 0.85, 0.86, 0.85, 0.82, 0.79, 0.78, 0.77, 0.77], 0.999, 0.3, False),  # a better loss
        ([0.7, 0.85, 0.86, 0.85, 0.78, 0.77, 0.77], 0.999, 0.55, False),  # too few
    ],
)
def test_an_accuracy_that_is_lost_while_the_trainings_is_whole_is_learnt_by_heart(
    tmp_path: Path, evaluated: list[float], trained: float, loss: float, says: bool
) -> None:
    count = len(evaluated)
    row = "Epoch {at}/10 - loss: {a:.4f} - acc: {b:.4f} - val_loss: {c:.4f} - val_acc: {d:.4f}\n"
    text = "".join(
        row.format(at=1 + at, a=0.6 / (1 + at), b=trained - 0.4 * 0.5**at, c=loss if at > count - 4 else 0.55, d=right)
        for at, right in enumerate(evaluated)
    )
    assert ("learnt_by_heart" in warned(tmp_path, text)) == says


@pytest.mark.parametrize(
    ("first", "later", "evaluated", "rows", "says"),
    [
        ("5.9150 - acc: 0.0607", "5.9150 - acc: 0.0607", "", 5, True),
        ("-4.4077 - acc: 0.3267", "-4.4410 - acc: 0.3268", " - val_loss: -4.3856 - val_acc: 0.3299", 4, True),
        ("5.9150 - acc: 0.0607", "5.9150 - acc: 0.0607", "", 4, False),  # without evaluations
        ("5.9150 - acc: 0.0607", "5.9150 - acc: 0.{n}", "", 6, False),  # the accuracy moves
        ("0.7210 - acc: 0.8150", "0.7210 - acc: 0.8150", " - val_loss: 0.8033 - val_acc: 0.8011", 6, False),  # fitted
        ("2.1000 - acc: 0.1130", "1.9170 - acc: 0.3120", " - val_loss: 1.9010 - val_acc: 0.3020", 6, False),  # learnt
        ("1.9 - acc: 0.31", "1.9 - acc: 0.31", " - val_loss: 1.9 - val_acc: 0.30", 6, False),  # few digits
    ],
)
def test_epochs_in_which_nothing_changes_at_all(
    tmp_path: Path, first: str, later: str, evaluated: str, rows: int, says: bool
) -> None:
    text = "".join(f"Epoch {at}/9 - loss: {later if at else first}{evaluated}\n" for at in range(rows))
    for at in range(rows):
        text = text.replace("{n}", f"061{at}", 1)
    found = warned(tmp_path, text)
    assert ("nothing changes, to the last digit" in found.get("not_learning", "")) == says


@pytest.mark.parametrize(("accuracy", "says"), [("0.18052256", True), ("0.81052256", False), ("0.18", False)])
def test_an_accuracy_of_evaluations_alone_that_never_changes(tmp_path: Path, accuracy: str, says: bool) -> None:
    text = "".join(f"iter: {190 + at}, test accuracy: {accuracy}, test loss: {0.4 - at / 200}\n" for at in range(12))
    assert ("evaluations_still" in warned(tmp_path, text)) == says


@pytest.mark.parametrize(
    ("first", "later", "accuracy", "says"),
    [
        (87.3365, 7.61, "0.0005", True), (7.9, 7.61, "0.0005", False), (87.3365, 7.2, "0.0005", False),
        (87.3365, 7.61, "0.000{n}", False),
    ],
)  # fmt: skip
def test_a_loss_that_drops_to_that_of_a_guess_and_rests_there(
    tmp_path: Path, first: float, later: float, accuracy: str, says: bool
) -> None:
    text = "".join(
        f"iteration {1000 * at} loss: {later + 0.01 * (at % 2) if at else first:.4f} lr: 0.001\n"
        + (f"iteration {1000 * at} test accuracy: {accuracy}\n".replace("{n}", str(4 + at)) if at in (0, 4) else "")
        for at in range(5)
    )
    assert ("not_learning" in warned(tmp_path, text)) == says


@pytest.mark.parametrize(("evaluated", "says"), [((3.75, 3.89), True), ((3.75, 3.70), False), ((1.9, 1.95), False)])
def test_two_evaluations_far_above_the_training(tmp_path: Path, evaluated: tuple[float, float], says: bool) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(
        f"iter {at}: loss {1.1 - at / 40:.4f}, time 700ms\n"
        + (f"step {at}: train loss {1.1 - at / 40:.4f}, val loss {evaluated[at > 10]}\n" if at in (9, 19) else "")
        for at in range(20)
    ))  # fmt: skip
    findings = diagnose(barograph.read(path)[0])["findings"]
    assert ("evaluation_gap" in {one["rule"] for one in findings}) == says


@pytest.mark.parametrize(
    ("loss", "right", "evaluated", "rows", "says"),
    [
        ("11.5{at}", "0.10{at}", "11.59{at} - val_acc: 0.0{nine}", 5, True),
        ("11.5{at}", "0.10{at}", "11.59{at} - val_acc: 0.0{nine}", 4, False),
        ("11.{at}", "0.10{at}", "11.59{at} - val_acc: 0.0{nine}", 5, False),  # it falls
        ("2.5{at}", "0.10{at}", "2.59{at} - val_acc: 0.0{nine}", 5, False),  # near ln 10
        ("11.5{at}", "0.10{at}", "11.59{at} - val_acc: 0.2{at}5", 5, False),  # more are right
        ("7.66{at}", "0.50{at}", "", 8, True),
        ("7.66{at}", "0.50{at}", "", 7, False),
        ("7.66{at}", "0.5{at}", "", 8, False),
    ],
)
def test_a_loss_far_above_a_guess_whose_accuracy_is_one_is_sure_of_an_answer(
    tmp_path: Path, loss: str, right: str, evaluated: str, rows: int, says: bool
) -> None:
    row = f"Epoch {{epoch}}/99 - loss: {loss} - acc: {right}" + (f" - val_loss: {evaluated}" if evaluated else "")
    places = [(1, 0, 3, 2, 4, 0, 1, 2)[at] for at in range(rows)]
    text = "".join(row.format(epoch=4 + at, at=one, nine=95 + one) + "\n" for at, one in enumerate(places))
    assert ("not_learning" in warned(tmp_path, text)) == says


@pytest.mark.parametrize(("evaluated", "says"), [(0.25, True), (0.02, False)])
def test_an_evaluation_whose_name_has_a_number_is_no_term_of_itself(
    tmp_path: Path, evaluated: float, says: bool
) -> None:
    row = "[{at}]\ttraining's multi_logloss: {one:.6f}\tvalid_1's multi_logloss: {two:.6f}\n"
    path = tmp_path / "train.log"
    path.write_text("".join(row.format(at=40 + at, one=0.018 - at / 2000, two=evaluated + at / 999) for at in range(5)))
    findings = diagnose(barograph.read(path)[0])["findings"]
    assert ("evaluation_gap" in {one["rule"] for one in findings}) == says


@pytest.mark.parametrize(
    ("losses", "right", "says"),
    [
        ((2.39, 2.306, 2.311, 2.303, 2.309, 2.304, 2.308, 2.31), (0.098, 0.103, 0.106, 0.095), True),
        ((2.39, 2.306, 2.311, 2.303, 2.309, 2.304, 2.308), (0.098, 0.103, 0.106, 0.095), False),
        ((2.6, 2.306, 2.311, 2.303, 2.309, 2.304, 2.308, 2.31), (0.098, 0.103, 0.106, 0.095), False),  # it fell
        ((2.39, 2.306, 2.311, 2.303, 2.309, 2.304, 2.288, 2.28), (0.098, 0.103, 0.106, 0.095), False),  # it learns
        ((2.39, 2.306, 2.311, 2.303, 2.309, 2.304, 2.308, 2.31), (0.098, 0.103, 0.126, 0.095), False),
        ((2.33, 2.304, 2.305, 2.303, 2.3026, 2.3031), (0.102, 0.101, 0.098, 0.099), True),
        ((2.33, 2.304, 2.305, 2.303, 2.3026), (0.102, 0.101, 0.098, 0.099), False),
        ((2.33, 2.304, 2.305, 2.303, 2.3026, 2.298), (0.102, 0.101, 0.098, 0.099), False),
        ((0.71, 0.6936, 0.6934, 0.6932, 0.6933, 0.6932), (0.502, 0.499, 0.505, 0.497), True),
        ((0.71, 0.6936, 0.6934, 0.6932, 0.6933, 0.6932), (0.502, 0.499, 0.515, 0.487), False),
    ],
)
def test_epochs_without_evaluations_that_stay_a_guess(
    tmp_path: Path, losses: tuple[float, ...], right: tuple[float, ...], says: bool
) -> None:
    rows = [f"Epoch {at}/99 - loss: {one} - acc: {right[at % 4]}\n" for at, one in enumerate(losses, 1)]
    assert ("not_learning" in warned(tmp_path, "".join(rows))) == says


@pytest.mark.parametrize(
    ("losses", "says"),
    [
        ([2.3, 2.0, 1.8, 1.7, 1.65, 1.8, 2.1, 2.9, 4.2, 7.0], True),
        ([2.3, 2.0, 1.8, 1.7, 1.65, 1.8, 2.1, 2.0, 2.2, 2.4], False),  # little above the first
        ([1.0, 0.9, 0.85, 0.8, 0.82, 0.9, 1.0, 1.15, 1.3, 1.5, 1.8, 2.2], True),
        ([1.0, 0.9, 0.85, 0.8, 1.0, 1.3, 1.5, 1.8], False),  # too few that rise, of what fell so little
        ([2.3, 1.5, 1.0, 0.8, 0.7, 2.303, 2.303, 2.303], True),
        ([2.3, 1.5, 1.0, 0.8, 0.7, 2.303, 2.303], False),
        ([2.3, 1.5, 1.0, 0.8, 0.7, 2.303, 2.303, 2.1], False),
        ([2.3, 1.5, 1.6, 0.8, 0.7, 2.303, 2.31, 2.303], False),  # it goes up and down
        ([2.3, 1.9, 1.7, 3.5, 8.9], True),
        ([2.3, 1.9, 1.7, 3.5, 6.0], False),
    ],
)
@pytest.mark.parametrize("beside", ["", " | reward -3.0"])
def test_a_loss_that_fell_and_turned_diverges(tmp_path: Path, losses: list[float], says: bool, beside: str) -> None:
    text = "".join(f"Epoch {at}/99, loss: {one:.4f}{beside}\n" for at, one in enumerate(losses, 1))
    found = warned(tmp_path, text)
    assert ("divergence" in found) == (says and not beside)
    assert not says or beside or f"above its start of {losses[0]:.4g}" in found["divergence"]


@pytest.mark.parametrize(
    ("trained", "evaluated", "beside", "says"),
    [
        ([0.93, 0.96, 0.98, 0.99, 0.995], [0.5, 0.51, 0.5, 0.49, 0.51], "", True),
        ([93.0, 96.0, 98.0, 99.0, 99.5], [50.0, 51.0, 50.0, 49.0, 51.0], "", True),
        ([0.93, 0.96, 0.98, 0.99], [0.5, 0.51, 0.5, 0.49], "", False),
        ([0.93, 0.96, 0.98, 0.99, 0.995], [0.5, 0.51, 0.5, 0.49, 0.54], "", False),  # it gets better
        ([0.93, 0.96, 0.98, 0.99, 0.995], [0.6, 0.61, 0.6, 0.59, 0.61], "", False),
        ([0.8, 0.82, 0.84, 0.86, 0.88], [0.5, 0.51, 0.5, 0.49, 0.51], "", False),
        ([0.93, 0.96, 0.98, 0.99, 0.995], [0.5, 0.51, 0.5, 0.49, 0.51], " - val_loss: 0.71", False),  # for others
    ],
)
def test_answers_that_hold_for_the_training_alone_are_learnt_by_heart(
    tmp_path: Path, trained: list[float], evaluated: list[float], beside: str, says: bool
) -> None:
    pairs = enumerate(zip(trained, evaluated, strict=True), 6)
    row = "Epoch {at}/10 - loss: {loss:.4f} - acc: {one}{beside} - val_acc: {two}\n"
    text = "".join(row.format(at=at, loss=2 / at, one=one, two=two, beside=beside) for at, (one, two) in pairs)
    assert ("ranking_by_heart" in warned(tmp_path, text)) == says


@pytest.mark.parametrize(
    ("losses", "says"),
    [
        ([1.4, 1.3, 1.35, 1.3, 1.45, 1.2, 1.9, 2.2, 2.5], True),
        ([1.4, 1.3, 1.35, 1.3, 1.45, 1.2, 1.6, 2.2, 2.5], False),  # the first of the three is hardly above
        ([1.4, 1.3, 1.35, 1.3, 1.45, 1.2, 1.9, 2.0, 2.1], False),
        ([1.4, 1.3, 1.35, 1.3, 1.45, 1.2, 1.9, 2.5, 2.2], False),
        ([1.4, 1.3, 1.35, 1.2, 1.9, 2.1, 2.4], False),  # few ahead
    ],
)
def test_three_rows_that_rise_one_after_the_other_above_all_before_diverge(
    tmp_path: Path, losses: list[float], says: bool
) -> None:
    text = "".join(f"step {at}00 | loss {loss}\n" for at, loss in enumerate(losses))
    assert ("divergence" in warned(tmp_path, text)) == says


@pytest.mark.parametrize(
    ("accuracies", "cost", "says"),
    [
        ([0.6112, 0.6232, 0.6232, 0.6232], 16.118, True),
        ([0.6112, 0.6732, 0.7232, 0.7532], 16.118, True),  # it learns, and each mistake costs as much
        ([0.5112, 0.5032, 0.5032, 0.5032], 16.03, True),  # wrong zeros and wrong ones
        ([0.6112, 0.6232, 0.6232, 0.6232], 27.631, True),
        ([0.6112, 0.6232, 0.6232, 0.6232], 14.2, False),
        ([0.6112, 0.6232, 0.6232, 0.6232], 100.0, False),  # mistakes in percent
        ([0.6112, 0.6232, 0.6232], 16.118, False),
        ([0.9812, 0.9832, 0.9832, 0.9832], 16.118, False),  # too few mistakes to tell
    ],
)
def test_losses_that_are_the_share_of_mistakes_times_a_constant_are_of_outputs_cut_to_0_and_1(
    tmp_path: Path, accuracies: list[float], cost: float, says: bool
) -> None:
    first = "Epoch 0 - loss: 5.1000 - acc: 0.6000\n"
    text = first + "".join(
        f"Epoch {at} - loss: {(1 - right) * cost:.4f} - acc: {right}\n" for at, right in enumerate(accuracies[1:], 1)
    )
    message = warned(tmp_path, text).get("not_learning", "")
    assert ("share of wrong answers" in message) == says


@pytest.mark.parametrize(
    ("losses", "says"),
    [
        (["9120", "8144", "7011", "0.0", "0.0"], True),
        (["9120", "8144", "7011", "0.0"], False),
        (["9120", "814", "71", "0.0", "0.0"], False),  # it may be fitted
        (["nan", "nan", "0", "0", "0"], True),
        (["nan", "nan", "0", "0", "0.3"], False),
        (["nan", "2.3", "0", "0", "0"], False),
    ],
)
def test_few_zeros_behind_losses_that_are_large_or_nan_are_enough(
    tmp_path: Path, losses: list[str], says: bool
) -> None:
    text = "".join(f"epoch {at} | loss {loss}\n" for at, loss in enumerate(losses))
    assert ("zero_loss" in warned(tmp_path, text)) == says


@pytest.mark.parametrize(
    ("margins", "rates", "says"),
    [
        ([0.0] * 4, [4e-6, 3e-6, 2e-6, 1e-6], True),
        ([0.0] * 4, [1e-6, 2e-6, 3e-6, 4e-6], False),  # a warmup
        ([0.0] * 8, [1e-7 * at for at in range(8)], True),
        ([0.0] * 3, [3e-6, 2e-6, 1e-6], False),
        ([0.0, 0.0, 0.0, 1e-4], [4e-6, 3e-6, 2e-6, 1e-6], False),
    ],
)
def test_a_policy_of_preferences_whose_margin_never_leaves_0_is_its_reference(
    tmp_path: Path, margins: list[float], rates: list[float], says: bool
) -> None:
    text = "".join(
        f"{{'loss': 0.6931, 'learning_rate': {rate}, 'rewards/margins': {margin}, 'epoch': {at / 100}}}\n"
        for at, (margin, rate) in enumerate(zip(margins, rates, strict=True), 1)
    )
    assert ("frozen_loss" in warned(tmp_path, text)) == says
