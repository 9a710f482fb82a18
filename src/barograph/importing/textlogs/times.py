"""When rows were printed, where their own lines do not say it.

In:   blocks of rows, and the lines that they stand on.
Out:  times in the blocks: from durations, from lines around them that say a time, from the row before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from barograph.importing.textlogs import prefixes
from barograph.importing.textlogs.blocks import Block

_NAMES = 2000  # sets of names whose rank is remembered


class Times:
    """The part of a reading that gives rows their times, and leaves out those of other ranks.

    state: what is remembered from chunk to chunk.
    """

    state: dict[str, Any]

    def choose_ranks(self, lines: list[bytes], blocks: list[Block], leads: list[bytes] | None) -> list[Block]:
        """Without the rows of other ranks; times from the beginnings of lines, and from `leads` before them."""
        known, kept = self.state["ranks"], []
        for block in blocks:
            behind = prefixes.ranks_behind([lines[index] for index in block.where.tolist()], bool(known))
            if leads is not None or block.starts.any() or (behind >= 0).any():
                before = [lines[index][: min(start, prefixes.LONGEST)] for index, start in block.places()]
                if leads is not None:
                    before = [leads[index] + text for (index, _), text in zip(block.places(), before, strict=True)]
                if not b"".join(before).strip() and (behind < 0).all():  # blanks alone
                    kept.append(block)
                    continue
                block.times = prefixes.times(before)
                ranks = np.maximum(prefixes.ranks(before), behind)
                if (ranks >= 0).any():
                    key = "\n".join(block.names)
                    if key not in known and len(known) < _NAMES:
                        known[key] = int(ranks[ranks >= 0].min())
                    keep = (ranks == known.get(key, 0)) | (ranks < 0)
                    self.state["other_ranks"] += int((~keep).sum())
                    block = block.part(keep)
            if len(block.where):
                kept.append(block)
        return kept

    def tell_time(self, lines: list[bytes], blocks: list[Block]) -> None:
        """Times of rows whose lines say none: from durations, since the last line that said one."""
        state = self.state
        if any(block.times is not None and block.times.any() for block in blocks):
            self.borrow_time(blocks)
            return
        timed = []
        for block in blocks:
            clock = block.reader.dialect.clock
            name = next((name for name in block.names if name in clock), None)
            if name is not None and block.steps is not None:
                how, scale = clock[name]
                timed.append(
                    (block, how, np.clip(np.nan_to_num(block.values[:, block.names.index(name)]), 0.0, 1e12) * scale)
                )
        if not timed:
            return
        where = np.concatenate([block.where for block, _, _ in timed])
        order = np.argsort(where, kind="stable")
        where = where[order]
        spent = np.concatenate([took for _, _, took in timed])[order]
        steps = np.concatenate([block.steps for block, _, _ in timed if block.steps is not None])[order]
        elapsed = timed[0][1] == "elapsed"
        previous = state.get("timed_step")
        ahead = np.diff(steps, prepend=steps[0] - 1 if previous is None else previous)
        if elapsed:  # a counter that begins anew counts from where it was
            spent = np.diff(spent, prepend=state.get("elapsed", 0.0))
            state["elapsed"] = float(state.get("elapsed", 0.0) + spent.sum())
            ahead = np.ones(len(spent), np.int64)
        spent = np.clip(spent, 0.0, 1e12) * np.clip(ahead, 1, 100_000)
        state["timed_step"] = int(steps[-1])
        seen, moments = prefixes.anchors(lines, where.tolist())
        total = np.cumsum(spent)
        base = np.full(len(spent), float(state["clock"]))
        if len(seen):
            index = np.searchsorted(seen, where) - 1
            passed = np.concatenate(([0.0], total))[np.searchsorted(where, seen)]
            base = np.where(index < 0, base, (moments - passed)[np.maximum(index, 0)])
        times = np.where(base > 0, base + total, 0.0) if state["clock"] or len(seen) else np.zeros(len(spent))
        # before the first line that says a time, rows have none
        if not state["clock"] and len(seen):
            times[np.searchsorted(seen, where) == 0] = 0.0
        times = np.clip(times, 0.0, 4e18).astype(np.int64)  # below what 64 bits hold
        state["clock"] = int(max(times[-1], moments[-1] if len(seen) else 0))
        for block in blocks:
            at = np.searchsorted(where, block.where, side="right") - 1
            block.times = np.where(at < 0, 0, times[np.maximum(at, 0)])

    def borrow_time(self, blocks: list[Block]) -> None:
        """Rows whose lines say no time, among rows that do: that of the row before."""
        present = [block for block in blocks if block.times is not None]
        where = np.concatenate([block.where for block in present])
        order = np.argsort(where, kind="stable")
        times = np.concatenate([block.times for block in present if block.times is not None])[order]
        where = where[order]
        times = np.maximum.accumulate(times)
        for block in blocks:
            at = np.searchsorted(where, block.where, side="right") - 1
            before = np.where(at < 0, self.state["clock"], times[np.maximum(at, 0)])
            block.times = before if block.times is None else np.where(block.times > 0, block.times, before)
        self.state["clock"] = int(times[-1])

    @staticmethod
    def time_at(blocks: list[Block], index: int) -> int:
        found = [
            int(block.times[at])
            for block in blocks
            if block.times is not None and (at := int(np.searchsorted(block.where, index))) < len(block.where)
        ]
        return min((time for time in found if time), default=0)
