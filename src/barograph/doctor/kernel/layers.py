"""Rules over tables of layers.

In:   channels of layers, `{family}/{layer}/{quantity}`.
Out:  `TableRule`, given each round of its tables once, in the order in which they were logged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.tables import LayerRound, LayerTable, TableReader


class TableRule(Rule):
    """A rule over tables. tables: family and quantity of each; those of one record come in this order."""

    tables: ClassVar[tuple[tuple[str, str], ...]]

    def reset(self) -> None:
        self._reader = TableReader()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        rounds = [
            (item.segment, item.time, item.step, place, table, item)
            for place, (family, quantity) in enumerate(self.tables)
            for table, item in self._reader.new(history, family, quantity)
        ]
        if len(self.tables) > 1:
            rounds.sort(key=lambda each: each[:4])
        for *_, place, table, item in rounds:
            yield from self.look(history, self.tables[place][0], table, item)

    def look(self, history: RunHistory, family: str, table: LayerTable, current: LayerRound) -> Iterator[Finding]:
        """A new round of a table of that family."""
        raise NotImplementedError
