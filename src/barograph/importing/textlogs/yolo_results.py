"""YOLO's `results.txt`, rows without a heading: YOLOv5 up to its version 4, YOLOv3 of the same authors, YOLOv7.

In:   `0/49  3.5G  0.1  0.06  0.02  0.18  89  640  0.01  0.02  0.03  0.01  0.07  0.05  0.01`.
Out:  losses of boxes, objects and classes with their sum, precision, recall, mAP, and those on the validation data;
      x = "epoch".

The sum proves what the columns are: rows in which it isn't the sum of the three before it are left to others.
"""

from __future__ import annotations

from typing import Any, ClassVar

from barograph.importing.textlogs import engine, forms

_ROUNDED = 2e-3  # of the sum: values are printed with four digits
_NUMBER = rb"[ \t]{1,12}(" + forms.NUMBER + rb")"


class YoloResults(engine.Dialect):
    kind = "yolo_results"
    about = "YOLO's results.txt, rows without a heading"
    hints = (b"G ",)
    shapes = (
        forms.Form(
            rb"^[ \t]{0,12}(\d{1,9})/\d{1,9}[ \t]{1,12}\d{1,6}(?:\.\d{1,6})?G"
            + 6 * _NUMBER
            + 7 * _NUMBER
            + rb"[ \t]*$",
            (
                "step", "train/box_loss", "train/obj_loss", "train/cls_loss", "total", "_labels", "_size",
                "metrics/precision", "metrics/recall", "metrics/mAP_0.5", "metrics/mAP_0.5:0.95",
                "val/box_loss", "val/obj_loss", "val/cls_loss",
            ),
            x="epoch",
        ),
    )  # fmt: skip
    aliases: ClassVar[engine.Aliases] = {"total": "train/loss"}

    def rows_of(self, lines: list[bytes], picks: list[int], own: dict[str, Any]) -> tuple[list[forms.Raw], list[int]]:
        rows, left = super().rows_of(lines, picks, own)
        added = [_with_sum(row) for row in rows if _add_up(row)]
        return added, left if len(added) == len(rows) else picks


def _with_sum(row: forms.Raw) -> forms.Raw:
    """Rows with the whole loss on the validation data, of which only the parts are printed."""
    parts = [column for name, column in zip(row.names, row.columns, strict=True) if name.startswith("val/")]
    total = [sum(map(float, texts)) for texts in zip(*parts, strict=True)]
    return row._replace(names=(*row.names, "val/loss"), columns=[*row.columns, total])


def _add_up(row: forms.Raw) -> bool:
    """Whether the fourth value is the sum of the three before it, where they are numbers."""
    for texts in zip(*row.columns[:4], strict=True):
        *parts, total = map(float, texts)
        if abs(sum(parts) - total) > _ROUNDED * abs(total):
            return False
    return True


SOURCE = YoloResults()
