"""Values that are printed again in rows to which they do not belong.

In:   rows of the plain reader: `iter 7 | loss 2.31, val 2.44`, in which `val` is that of the last evaluation, however
      long ago; and bars that are drawn twice for one count, the first time with the value of the count before.
Out:  the same rows with each evaluation once, where it was new; of two such bars the second.

An evaluation is taken as printed again if the row of the very next step has the same figures of a loss, or if they only
ever changed after they had been printed more than once. A bar that counts on and is then given a value is drawn twice
at one time; one that is given a value and then counts on is drawn twice a count too, a step apart, and the first one
is the row. What was seen of rows of the same names is kept in `own`: the answer does not depend on where a text is cut,
but for a bar that is cut between the two.
"""

from __future__ import annotations

import itertools
from typing import Any

from barograph.core.patterns import expression
from barograph.importing.textlogs import forms

_LOSS = expression(r"(?i)(?:.*[^a-z])?(?:[a-z]{0,12}loss|nll|ppl|perplexity)(?:[^a-z].*)?")
_HELD_OUT = expression(r"(?i)(?:^|[^a-z])(?:val|valid|validation|eval|evaluation|dev|test)(?![a-z])")
_DIGITS = 4  # of a figure: with fewer, one evaluation may well be like the next
_CHANGES = 2  # of an evaluation, each after it was printed more than once
_CLOCK = expression(rb"%\|[^|\n]{0,300}\| {0,8}\d{1,15}/\d{1,15} \[([\d:]{1,12})<")  # what a bar says has passed
_DECIDE = 3  # bars drawn again
_KEPT = 100  # kinds of rows that are remembered


def evaluations_once(row: forms.Raw, own: dict[str, Any]) -> forms.Raw:
    """Rows of training with their steps that also say an evaluation, which is left out where it is printed again."""
    places = [at for at, name in enumerate(row.names) if _HELD_OUT.search(name)]
    losses = [at for at in places if _LOSS.fullmatch(row.names[at])]
    if not row.main or not losses or len(places) == len(row.names):
        return row
    known, key = own.setdefault("evaluations", {}), "\n".join(row.names)
    if key not in known and len(known) >= _KEPT:
        return row
    last, at_step, run, changes, alone, again = known.get(key, ["", -1, 0, 0, 0, False])
    columns = [[*column] for column in row.columns]
    for at, step in enumerate(row.steps or ()):
        figures = [row.columns[place][at] for place in places]
        said = b" ".join(figure if isinstance(figure, bytes) else b"%r" % figure for figure in figures).decode()
        if said != last:
            changes, alone = changes + (run > 1), alone + (run == 1)
            last, run, again = said, 1, False
        elif step != at_step:  # else several ranks print the row
            exact = all(sum(map(str.isdigit, str(row.columns[place][at]))) >= _DIGITS for place in losses)
            again = exact and (step == at_step + 1 or (changes >= _CHANGES and not alone))
            run += 1
        if again:
            for place in places:
                columns[place][at] = b""
        at_step = step
    known[key] = [last, at_step, run, changes, alone, again]
    return row._replace(columns=columns)


def bars_once(lines: list[bytes], rows: list[forms.Raw], own: dict[str, Any]) -> list[forms.Raw]:
    """Rows of bars without those that are drawn again, with a new value, right after they have counted on."""
    result = []
    for row in rows:
        if "_batches" not in row.names or all(name[0] == "_" for name in row.names):
            result.append(row)
            continue
        counts = [column for name, column in zip(row.names, row.columns, strict=True) if name[0] == "_"]
        places, clocks = list(zip(*counts, strict=True)), [_CLOCK.search(lines[index]) for index in row.where]
        again = [here == later for here, later in itertools.pairwise([*places, ()])]
        if not any(again) or not all(clocks):
            result.append(row)
            continue
        known, key = own.setdefault("drawn_again", {}), "\n".join(row.names)
        second = known.get(key)
        if second is None:
            still = [early[1] == late[1] for early, late in itertools.pairwise(clocks) if early and late]
            at_once = [is_still for is_still, same in zip(still, again, strict=False) if same]
            after = [is_still for is_still, same in zip(still, again, strict=False) if not same]
            second = sum(at_once) >= 0.9 * len(at_once) and sum(after) <= 0.2 * len(after) and bool(after)
            if len(at_once) >= _DECIDE and len(known) < _KEPT:
                known[key] = second
        result.append(forms.picked(row, [at for at, same in enumerate(again) if not same]) if second else row)
    return result
