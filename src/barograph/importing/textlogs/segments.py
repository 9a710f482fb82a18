"""Where a file's rows begin anew: at a step that goes back, or at the same one behind the words of another launch.

In:   rows with their steps, and the lines among which they stand.
Out:  the line and the step of each beginning.

What a launch says before its first row is remembered. If one of these lines comes again between two rows of the same
names and the same step, the second one is another launch's; a line behind which the steps rose opens none. Kinds of
rows that take turns and count apart, each of which rises, begin nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.importing.textlogs.blocks import Block, ordered
from barograph.importing.textlogs.times import Times

RESTARTS = 1000  # a file with more of them isn't in order, and its steps are taken as they come
_REMEMBERED = 48  # lines ahead of the first row: as many of the first ones, and of the last
_SHORTEST, _LONGEST = 12, 300  # bytes of such a line: without its numbers, and with them
_NUMBERS = b"0123456789"


class Segments(Times):
    """The part of a reading that says where its segments begin."""

    def restarts(self, lines: list[bytes], main: list[Block], where: Any, steps: Any) -> list[tuple[int, int]]:
        """Where steps of main rows go back, each moved up to the other rows that already belong to the new segment."""
        state = self.state
        at, rows = ordered(main)
        if state["first"] is None:
            state["first"] = int(rows[0])
        before = np.concatenate(([rows[0] if state["last"] is None else state["last"]], rows[:-1]))
        if state["crowded"] is None and len(rows) >= 8:
            # many processes print the same rows and say no rank: the same step and names again and again
            again = sum(int((np.diff(block.steps) == 0).sum()) for block in main if block.steps is not None)
            state["crowded"] = again > 0.3 * len(rows)
        opened = self.opened(lines, main, at, rows, before)
        if state["crowded"]:
            highest = np.maximum.accumulate(np.concatenate((before[:1], rows[:-1])))
            ahead = np.diff(rows)
            gap = float(np.median(ahead[ahead > 0])) if (ahead > 0).any() else 1.0
            back = rows < highest - 3 * gap  # a process may lag behind the others by a row or two
            state["last"] = int(max(highest[-1], rows[-1]))
            if back.any():
                first = int(np.flatnonzero(back)[0])
                back[first + 1 :] = rows[first + 1 :] < before[first + 1 :] - 3 * gap
                state["last"] = int(rows[-1])
        else:
            back = (rows < before) & ~_count_apart(main, at, state["tops"])
            back[list(opened)] = True
            state["last"] = int(rows[-1])
        cuts = []
        for index in np.flatnonzero(back)[: max(RESTARTS - state["restarts"], 0)].tolist():
            low = at[index - 1] if index else -1
            if index in opened:
                cuts.append((opened[index], int(rows[index])))
                continue
            inside = (where > low) & (where < at[index]) & (steps <= rows[index]) & (steps < before[index])
            cuts.append((int(where[inside][0]) if inside.any() else int(at[index]), int(rows[index])))
        return cuts

    def before_rows(self, lines: list[bytes], blocks: list[Block]) -> None:
        """Remember what stands ahead of the file's first row; and a launch's words in lines without main rows."""
        state = self.state
        if state["last"] is None:
            first = min((int(block.where[0]) for block in blocks if block.steps is not None), default=len(lines))
            state["ahead"] = _ahead(state["ahead"], lines[:first])
        elif not any(block.main and block.steps is not None for block in blocks):
            said = [line for _, line in self.spoken(lines) if line not in state["opened"]]
            state["opened"] = list(dict.fromkeys(state["opened"] + said))

    def spoken(self, lines: list[bytes]) -> list[tuple[int, str]]:
        """The lines that say what was said ahead of the first row, and these words."""
        known = {line.encode("latin-1"): line for line in self.state["ahead"]}
        if not known:
            return []
        return [
            (index, known[plain])
            for index, line in enumerate(lines)
            if line and (plain := line.translate(None, _NUMBERS).strip()) in known
        ]

    def opened(
        self, lines: list[bytes], main: list[Block], at: NDArray[Any], rows: NDArray[Any], before: NDArray[Any]
    ) -> dict[int, int]:
        """Which main rows say the step and the names of the row before behind a launch's words, and the line of these.

        at, rows: lines and steps of main rows; before: the step of the row before each.
        """
        state = self.state
        known, same = set(state["ahead"]), _same_names(main, state["tops"])
        found: dict[int, int] = {}
        said = [(-1, line) for line in state["opened"]] + self.spoken(lines)
        state["opened"] = []
        for place, line in said:
            row = int(np.searchsorted(at, place, "right"))
            if line not in known:
                continue
            if row == len(at):
                state["opened"].append(line)
            elif state["last"] is None and row == 0:
                continue
            elif rows[row] > before[row]:
                known.discard(line)
            elif rows[row] == before[row] and int(at[row]) in same and row not in found:
                found[row] = max(place, 0)
        state["ahead"] = [line for line in state["ahead"] if line in known]
        return found


def _count_apart(main: list[Block], at: NDArray[Any], tops: dict[str, int]) -> NDArray[Any]:
    """Whether rows are of other names than the row before, and both kinds only rise, as a learner's updates and an
    environment's steps do. Rows of names that are new stand apart if those of the row before go on behind them."""
    rises, known, goes_on, ends = (np.zeros(len(at), bool) for _ in range(4))
    for block in main:
        assert block.steps is not None
        place = np.searchsorted(at, block.where)
        last = tops.get("\n".join(block.names), -1)
        rises[place] = block.steps > np.concatenate(([last], block.steps[:-1]))
        known[place] = np.arange(len(place)) > 0 if last < 0 else True
        goes_on[place[:-1]] = block.steps[1:] > block.steps[:-1]
        ends[place[-1:]] = True
    before = np.concatenate(([False], goes_on[:-1])), np.concatenate(([True], ends[:-1]))
    return rises & (before[0] | (before[1] & known))


def _same_names(main: list[Block], tops: dict[str, int]) -> set[int]:
    """The lines of rows whose names were those of the row before, at the same step."""
    result: set[int] = set()
    for block in main:
        assert block.steps is not None
        last = tops.get("\n".join(block.names), -1)
        again = block.steps == np.concatenate(([last], block.steps[:-1]))
        result |= set(block.where[again].tolist())
    return result


def _ahead(told: list[str], lines: list[bytes]) -> list[str]:
    """What stands ahead of the first row, without numbers: what a launch says. told: what was ahead of these lines."""
    plain = [line.translate(None, _NUMBERS).strip().decode("latin-1") for line in lines if len(line) <= _LONGEST]
    new = [line for line in plain if len(line) >= _SHORTEST and sum(map(str.isalpha, line)) >= _SHORTEST]
    told = list(dict.fromkeys(told + new))
    return told if len(told) <= 2 * _REMEMBERED else told[:_REMEMBERED] + told[-_REMEMBERED:]
