"""Where a person is: which page, which stretch of the run, which line.

In:   keys.
Out:  the place they lead to.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_WINDOW = 12  # the last 1/4096 of a run


@dataclass
class TopPlace:
    """page: the name of one. window: the charts show the last 1/2^window of the run. log: logarithmic charts.
    chosen: the line that is looked at. scroll: rows that have gone off above. braille: whether the terminal has it."""

    page: str = "overview"
    window: int = 0
    log: bool = False
    chosen: int = 0
    scroll: int = 0
    paused: bool = False
    help: bool = False
    filter: str = ""  # of the list of runs, as `barograph ls` takes it
    typing: bool = False  # keys go into the filter
    braille: bool = True

    def go(self, page: str) -> None:
        """To the top of another page."""
        if page != self.page:
            self.page, self.chosen, self.scroll = page, 0, 0

    def move(self, lines: int) -> None:
        """This many lines down."""
        self.chosen = max(0, self.chosen + lines)
        self.scroll = max(0, self.scroll + lines)

    def type(self, key: str) -> None:
        """A key while the filter is typed."""
        if key in ("enter", "escape"):
            self.typing = False
            self.filter = "" if key == "escape" else self.filter
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1:
            self.filter += key
        self.chosen = 0

    def zoom(self, by: int) -> None:
        """Half (1) or twice (-1) of the steps."""
        self.window = min(MOST_WINDOW, max(0, self.window + by))
