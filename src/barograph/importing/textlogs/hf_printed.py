"""The dicts that Hugging Face's Trainer prints, also TRL's, Accelerate scripts' and Axolotl's.

In:   `{'loss': 2.301, 'grad_norm': 1.23, 'learning_rate': 4.9e-05, 'epoch': 0.04}`,
      `{'eval_loss': 2.1, …}`, `{'train_runtime': 896.0, …}`, `{'step': 10, 'loss': 2.1}`:
      with either quotes, values in quotes, nan, over several lines, progress bars between.
      The tables with which a Trainer ends are read where no dict says the same: `***** train metrics *****`.
Out:  the names as printed. The step is what the dict says, else that of the progress bar behind it, which is exact;
      where several stand behind one bar, their epochs place them. Where there is no bar, rows are numbered 1, 2, 3 and
      a note says so.
      An evaluation has the step of the row before it.

A loss of exactly 0.0 can be a hidden NaN: the Trainer leaves non-finite losses out of its means by default.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from barograph.core.patterns import expression
from barograph.importing.source import ImportedPoints, Item
from barograph.importing.textlogs import engine, forms, hf_summaries

_PAIR = expression(rb"""(['"])([\w./@ -]{1,100})\1: ?['"]?(""" + forms.NUMBER + rb""")['"]?(?=\s*[,}])""")
_START = expression(
    rb"""\{(?=['"][\w./@-])(?=[^{}]*['"]"""
    rb"""(?:loss|eval_(?:\w{1,40}_)?loss|train_loss|train_runtime|eval_runtime|reward)['"]: ?)"""
    rb"""(?=[^{}]*(?:['"](?:epoch|learning_rate|train_runtime|eval_runtime)['"]|'(?:global_)?step'): ?)"""
)
_OPEN = expression(rb"""\{['"][^{}\n]{0,2000}\n(?:[^{}\n]{0,2000}\n){0,60}?[^{}\n]{0,2000}\}""")
_BAR = expression(rb"^(?:\[\d{1,9}\]|\d{1,9}:)?\s*\d+%\|[^|]*\| ?(\d{1,15})/(\d{1,15}) \[")
_TOTAL = expression(rb"Total optimization steps = ([\d,]{1,20})")
_DONE = expression(rb"""['"]global_step/max_steps['"]: ?['"](\d{1,15})/\d""")  # of ms-swift
_STEPS = {"current_steps", "step", "global_step", "iter", "iteration", "batch"}  # JSON that counts itself
_PART = expression(
    rb"""(['"])(?:cur_)?(?:step|iter|iteration|batch)\1: ?['"]\d{1,12}/\d{1,12}['"]"""
)  # `"iter": "5/90"`
_OF_DATA = expression(
    rb"(?i)(?<![a-z])(?:train(?:ing)?|val(?:id(?:ation)?)?|eval|test)[ \t]{0,4}[:=][ \t]{0,4}$"
)  # `val: {…}`
_SPLIT = expression(  # a row of one of several data, which somebody else writes
    rb'"(?:split|phase|mode|stage|subset|train|training|is_train|is_val|is_valid|is_eval)" ?: ?(?:"|true|false)'
)
_NEAR = 4  # lines between a dict and the bar that is drawn again behind it


def _dict(line: bytes) -> forms.Parsed | None:
    match = _START.search(line)
    if match is None or _OF_DATA.search(line, max(match.start() - 40, 0), match.start()):
        return None
    end = line.find(b"}", match.start())
    if end < 0:
        return None
    if line[match.start() + 1 : match.start() + 2] == b'"' and _SPLIT.search(line, match.start(), end):
        return None
    names = {name.decode(): value for _, name, value in _PAIR.findall(line, match.start(), end + 1)}
    step = None
    if line[match.start() + 1 : match.start() + 2] == b"'":  # Python's own way to print a dict; JSON is read elsewhere
        step = names.pop("step", None) or names.pop("global_step", None)
        step = step if step is None or step.isdigit() else None
    if step is None and b"/max_steps" in line and (done := _DONE.search(line, match.start(), end)):
        step = done[1]
    if not names or not names.keys().isdisjoint(_STEPS) or _PART.search(line, match.start(), end):
        return None
    if "train_loss" in names and "loss" not in names and "train_runtime" not in names:
        return None  # an epoch of somebody else's loop
    train = "loss" in names or not any(
        name.startswith(("eval_", "train_runtime", "train_loss", "test_")) for name in names
    )
    return match.start(), step, tuple(names), tuple(names.values()), train


def _epoch(row: forms.Raw, place: int, missing: float = 0.0) -> float:
    """The epoch that a row says."""
    try:
        epoch = float(row.columns[row.names.index("epoch")][place])
    except ValueError:  # none, or no number
        return missing
    return epoch if 0.0 <= epoch < 1e9 else missing  # NaN too


def _between_bars(epochs: list[tuple[float, int]], counts: list[int]) -> dict[int, int]:
    """Steps of rows whose bars were not written, between and beside rows that have one: as many apart as these are, if
    that is a whole number, else by the epoch. epochs: the epoch of each row, and its bar, -1 for none."""
    known = [
        (at, counts[bar], epoch)
        for at, (epoch, bar) in enumerate(epochs)
        if bar >= 0 and epoch > 0 and (at + 1 == len(epochs) or epochs[at + 1][1] != bar)  # the row next to the bar
    ]
    rising = all(one[1] < two[1] and one[2] < two[2] for one, two in itertools.pairwise(known))
    if len(known) < 2 or not rising or len(known) == len(epochs):
        return {}
    apart = [(two[1] - one[1]) / (two[0] - one[0]) for one, two in itertools.pairwise(known)]
    usual = apart[0] if min(apart) == max(apart) and apart[0].is_integer() else 0.0
    found, steps = dict.fromkeys((at for at, _, _ in known), 0), {}
    for at, (epoch, _) in enumerate(epochs):
        if at in found:
            continue
        place = bisect.bisect_left(known, (at,))
        near, step, of_near = known[max(place - 1, 0)]
        span = apart[place - 1] if 0 < place < len(known) else usual
        if not (epoch > of_near if place else epoch < of_near) or (place < len(known) and epoch >= known[place][2]):
            return {}
        steps[at] = int(step + (at - near) * span) if span and span.is_integer() else round(step * epoch / of_near)
    return steps


def _evaluations(rows: list[forms.Raw], own: dict[str, Any]) -> list[forms.Raw]:
    """Evaluations before any row of training, numbered: 0, 1, 2. A log may have nothing else.

    So are the tables of several trainings, each with the evaluation behind it.
    """
    order = sorted(
        (int(index), number, at)
        for number, row in enumerate(rows)
        if row.steps is None and not {"eval_loss", "train_loss"}.isdisjoint(row.names)
        for at, index in enumerate(row.where)
    )
    steps: dict[int, list[int]] = {number: [0] * len(rows[number].where) for _, number, _ in order}
    for _, number, at in order:
        of_training = "eval_loss" not in rows[number].names
        if not (own.get("trained") and not of_training):
            own["evaluations"] = own.get("evaluations", 0) + 1
        own["trained"] = of_training
        steps[number][at] = own["evaluations"] - 1
    return [row._replace(steps=steps[number]) if number in steps else row for number, row in enumerate(rows)]


class PrintedDicts(engine.Dialect):
    kind = "hf_printed"
    about = "dicts that Hugging Face's Trainer and TRL print"
    hints = (b"loss'", b'loss"', b"_runtime'", b'_runtime"', b"%|", b"Total optimization", b" metrics ****")
    looks = expression(rb"""^\s*\{['"](?:loss|eval_loss|train_runtime)['"]: """)
    shapes = (forms.Lines(_dict),)
    begins = (b"***** Running training *****",)
    closers = (b"}",)
    aliases: ClassVar[engine.Aliases] = {
        "loss": "train/loss",
        "grad_norm": "train/norm",
        "learning_rate": "train/lr",
        "epoch": "train/epoch",
        "eval_loss": "eval/loss",
        "eval_runtime": "eval/runtime_seconds",
        "eval_samples_per_second": "eval/samples_per_second",
        "eval_steps_per_second": "eval/steps_per_second",
        "train_loss": "train/mean_loss",
        "train_runtime": "train/runtime_seconds",
        "train_samples_per_second": "train/samples_per_second",
        "train_steps_per_second": "train/steps_per_second",
        "total_flos": "train/total_flos",
    }

    def prepare(self, text: bytes, own: dict[str, Any]) -> bytes:
        text = hf_summaries.as_dicts(text, own)
        if b"{'" not in text and b'{"' not in text:
            return text

        def join(match: re.Match[bytes]) -> bytes:
            found = match[0]
            return b" ".join(found.split()) + b"\n" * found.count(b"\n")

        return _OPEN.sub(join, text)

    def rows_in(self, text: bytes) -> tuple[int, int]:
        """Tables at the end of a training count as its rows, where it left no others."""
        rows, main = super().rows_in(text)
        return rows, main or min(rows, hf_summaries.tables(text))

    def hold(self, text: bytes) -> int:
        if table := hf_summaries.unfinished(text):
            return table
        start = max(text.rfind(b"\n{'"), text.rfind(b'\n{"'), text.rfind(b"\r{'")) + 1
        if not start and not text.startswith((b"{'", b'{"')):
            return 0
        return 0 if len(text) - start > 8192 or b"}" in text[start:] else len(text) - start

    def place(self, lines: list[bytes], rows: list[forms.Raw], own: dict[str, Any], ahead: bytes) -> list[forms.Raw]:
        bars = [(i, int(m[1]), int(m[2])) for i, line in enumerate(lines) if b"%|" in line and (m := _BAR.match(line))]
        for line in lines:
            if b"Total optimization" in line and (match := _TOTAL.search(line)):
                own["total"] = int(match[1].replace(b",", b"") or 0)
        if behind := _BAR.match(ahead.replace(b"\r", b"\n").lstrip(b"\n ")):  # drawn, but its line isn't whole yet
            bars.append((len(lines), int(behind[1]), int(behind[2])))
        where = np.array([bar[0] for bar in bars], np.int64)
        train = [row for row in rows if row.main]
        if bars and "total" not in own:
            own_total = self.total(bars, where, train)
            if own_total:
                own["total"] = own_total
        total, last = own.get("total"), int(own.get("bar", 0))
        chosen_bars = [bar for bar in bars if bar[2] == total]
        if own.get("how") != "bars" and not chosen_bars:
            return self.count(rows, own)
        if own.get("how") == "rows":  # numbered before: a bar that comes later is another one's
            return self.count(rows, own)
        places, counts = [bar[0] for bar in chosen_bars], [bar[1] for bar in chosen_bars]
        steps: dict[int, list[int]] = {}
        order = []  # lines, in order, and the blocks' rows on them
        for number, row in enumerate(rows):
            if row.main and row.steps is None:
                steps[number] = [0] * len(row.where)
                order += [(index, number, place) for place, index in enumerate(row.where.tolist())]
        epochs: list[tuple[float, int]] = []  # of each row, and the bar behind it
        taken = -1  # the bar of the row before
        for index, number, place in sorted(order):
            at = bisect.bisect_left(places, index)
            if at == taken and rows[number].starts[place] and at < len(places) and places[at] == index:
                at += 1  # the bar ahead of this dict was the one before's: its own one comes behind it
            near = at < len(places) and places[at] <= index + _NEAR
            steps[number][place] = counts[at] if near else (counts[at - 1] if at else last)
            taken = at if near else taken
            epochs.append((_epoch(rows[number], place), at if near else -1))
        between = _between_bars(epochs, counts)
        for row_at, (_, number, place) in enumerate(sorted(order)):
            steps[number][place] = between.get(row_at, steps[number][place])
        alone = [one for row_at, one in enumerate(sorted(order)) if epochs[row_at][1] < 0 and row_at not in between]
        if not self.by_epoch(rows, steps, alone):
            return self.count(rows, own)
        if steps:
            own["how"] = "bars"
        if counts:
            own["bar"] = counts[-1]
        return [row._replace(steps=steps[number]) if number in steps else row for number, row in enumerate(rows)]

    @staticmethod
    def by_epoch(rows: list[forms.Raw], steps: dict[int, list[int]], alone: list[tuple[int, int, int]]) -> bool:
        """Several dicts behind one bar, as a buffered output has them: steps by their epochs; whether that is done.

        The bar and the last of them are of the same moment.
        """
        groups: dict[int, list[tuple[int, int, int]]] = {}
        for item in alone:
            groups.setdefault(steps[item[1]][item[2]], []).append(item)
        for count, group in groups.items():
            if len(group) < 2:
                continue
            epochs = [_epoch(rows[number], place) for _, number, place in group]
            placed = [round(count * epoch / epochs[-1]) if epochs[-1] > 0 else 0 for epoch in epochs]
            if any(late <= early for early, late in itertools.pairwise(placed)):
                return False
            for (_, number, place), step in zip(group, placed, strict=True):
                steps[number][place] = step
        return True

    @staticmethod
    def total(bars: list[tuple[int, int, int]], where: Any, train: list[forms.Raw]) -> int:
        """The length of the bar that is drawn again behind the dicts of training."""
        votes: dict[int, int] = {}
        for row in train:
            for index in row.where:
                at = int(np.searchsorted(where, index))
                if at < len(bars) and bars[at][0] <= index + _NEAR:
                    votes[bars[at][2]] = votes.get(bars[at][2], 0) + 1
        if train and not votes:
            for _, _, length in bars:
                votes[length] = votes.get(length, 0) + 1
        return max(votes, key=lambda length: votes[length], default=0)

    @staticmethod
    def count(rows: list[forms.Raw], own: dict[str, Any]) -> list[forms.Raw]:
        """Rows numbered; where the epoch goes back, from about the row that had that epoch."""
        order = sorted(
            (int(index), number, at)
            for number, row in enumerate(rows)
            if row.main and row.steps is None
            for at, index in enumerate(row.where)
        )
        if not order:
            return rows if "how" in own else _evaluations(rows, own)
        own["how"] = "rows"
        steps: dict[int, list[int]] = {
            number: [0] * len(row.where) for number, row in enumerate(rows) if row.main and row.steps is None
        }
        row_number, last_epoch = int(own.get("row", 0)), float(own.get("epoch", 0.0))
        for _, number, at in order:
            epoch = _epoch(rows[number], at, last_epoch)
            if epoch < last_epoch and last_epoch > 0:
                row_number = max(round(row_number * epoch / last_epoch) - 1, 0)
            row_number, last_epoch = row_number + 1, epoch
            steps[number][at] = row_number
        own["row"], own["epoch"] = row_number, last_epoch
        return [row._replace(steps=steps[number]) if number in steps else row for number, row in enumerate(rows)]

    def refine(self, points: ImportedPoints, own: dict[str, Any], segment: int) -> Iterator[Item]:
        if own.get("how") == "rows" and not own.get("told") and "loss" in points.names:
            own["told"] = True
            yield engine.note(
                points, "These lines say no step and no progress bar stands beside them: rows are numbered 1, 2, 3."
            )
        yield points


SOURCE = PrintedDicts()
