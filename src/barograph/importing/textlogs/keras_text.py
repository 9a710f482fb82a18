"""What Keras prints in `fit`: a line that counts epochs, and under it the last state of its progress bar.

In:   `Epoch 3/50` and then `1563/1563 [======] - 12s 8ms/step - loss: 0.52 - accuracy: 0.81 - val_loss: 0.61`,
      Keras 3's `1563/1563 ━━━━ 12s 8ms/step - accuracy: 0.81 - loss: 0.52`, and `1563/1563 - 12s - loss: 0.52`, of
      which the time may have been taken out.
Out:  the names as printed, x = "epoch": the number that the line before says; rows are numbered where none does.

A bar is drawn again and again; an epoch's row is the last one in which it is full. Lines that say `Epoch 1/1`, each of
a fit of its own, are counted.
"""

from __future__ import annotations

import bisect
from typing import Any, ClassVar

import numpy as np

from barograph.core.patterns import expression
from barograph.importing.textlogs import engine, forms

_EPOCH = expression(  # alone, or with their count behind what a logger writes first
    rb"^(?:\s*`{0,3}Epoch (\d{1,12})(?:/\d{1,12})?|[^\n]{1,120}\sEpoch (\d{1,12})/\d{1,12})\s*:?\s*$"
)
_FULL = expression(  # where frames of tables were taken out, Keras 3's bar is blanks
    rb"(?:^|[\s\x08])(\d{1,12})/\1(?: (?:\[=+>?\]|\xe2[\x80-\xbf\xe2]* ?|-|\s{2,80}(?=\d))[^\n]{0,80}?)??"
    rb"(?= - [a-z_]\w*: )"
)
_ALONE = expression(rb"Epoch 1/1\s*:?\s*$")
_PAIR = expression(rb" - ([A-Za-z][\w/. ]{0,80}): (" + forms.NUMBER + rb")(?=\s|\x08|$)")


def _row(line: bytes) -> forms.Parsed | None:
    found = None
    for found in _FULL.finditer(line):  # noqa: B007 - the last one: the states before it were drawn over
        pass
    if found is None or b"ETA:" in found[0]:
        return None
    names = {name.decode(): value for name, value in _PAIR.findall(line, found.end())}
    return (found.start(1), None, tuple(names), tuple(names.values()), True) if names else None


ALIASES: engine.Aliases = {
    "loss": "train/loss",
    "accuracy": "train/accuracy",
    "acc": "train/accuracy",
    "lr": "train/lr",
    "learning_rate": "train/lr",
    "val_loss": "eval/loss",
    "val_accuracy": "eval/accuracy",
    "val_acc": "eval/accuracy",
    **{f"{kind}_accuracy": "train/accuracy" for kind in ("binary", "categorical", "sparse_categorical")},
    **{f"val_{kind}_accuracy": "eval/accuracy" for kind in ("binary", "categorical", "sparse_categorical")},
}
"""What Keras calls its measures, in lines and in histories."""


class KerasText(engine.Dialect):
    kind = "keras_text"
    about = "what Keras prints in fit"
    hints = (b" - loss: ", b" - accuracy: ", b" - acc: ", b" - mae: ", b"Epoch ")
    shapes = (forms.Lines(_row, x="epoch"),)
    aliases: ClassVar[engine.Aliases] = ALIASES

    def place(self, lines: list[bytes], rows: list[forms.Raw], own: dict[str, Any], ahead: bytes) -> list[forms.Raw]:
        """Epochs for the rows; of several rows under one line only the last."""
        said = [
            (at, self._epoch(line, int(match[1] or match[2]), own))
            for at, line in enumerate(lines)
            if b"Epoch " in line and (match := _EPOCH.match(line))
        ]
        heads = [at for at, _ in said]
        # place among the heads → names and line of the last row under it; an evaluation behind it says fewer
        full: dict[int, tuple[int, int]] = {}
        for row in rows:
            for index in row.where.tolist():
                head = bisect.bisect_right(heads, index)
                full[head] = max(full.get(head, (0, -1)), (len(row.names), index))
        last = {head: index for head, (_, index) in full.items()}
        placed = []
        if not said and not own.get("epochs"):  # nothing counts: every row is an epoch
            order = sorted(index for row in rows for index in row.where.tolist())
            number = {index: int(own.get("row", 0)) + at for at, index in enumerate(order, 1)}
            own["row"] = int(own.get("row", 0)) + len(order)
            return [row._replace(steps=[number[index] for index in row.where.tolist()]) for row in rows]
        own["epochs"] = True
        for row in rows:
            picks = [
                at for at, index in enumerate(row.where.tolist()) if last[bisect.bisect_right(heads, index)] == index
            ]
            if not picks:
                continue
            under = [bisect.bisect_right(heads, int(row.where[at])) for at in picks]
            steps = [said[head - 1][1] if head else int(own.get("epoch", 0)) for head in under]
            columns = [[column[at] for at in picks] for column in row.columns]
            placed.append(
                row._replace(
                    where=np.asarray(row.where)[picks],
                    starts=[row.starts[at] for at in picks],
                    columns=columns,
                    steps=steps,
                )
            )
        if said:
            own["epoch"] = said[-1][1]
        return placed

    def _epoch(self, line: bytes, number: int, own: dict[str, Any]) -> int:
        """The epoch that a line says; of fits of one epoch each, one after the other, which one it is."""
        if not _ALONE.search(line):
            return number
        own["fits"] = int(own.get("fits", 0)) + 1
        return int(own["fits"])


SOURCE = KerasText()
