"""The frame around every page: which run, how far it is, the tabs, the keys; and where keys lead.

In:   a run or a folder of runs, keys, a size.
Out:  the rows of a terminal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from barograph.core import liveness
from barograph.core.text import columns_of, count, duration, fit, padded, percent, short, width
from barograph.query.catalog import runs
from barograph.query.search import choose
from barograph.query.stored import StoredRun
from barograph.views.overview import summary
from barograph.views.top import machine_pages, overview_page, story_pages
from barograph.views.top.pace import TopPace
from barograph.views.top.place import TopPlace
from barograph.views.top.screen import Row, Span
from barograph.views.top.story_pages import Examination
from barograph.views.top.watching import RunWatch

Wanted = Callable[[RunWatch, TopPlace, int, int], list[str]]
PAGES = ("overview", "time", "machine", "ranks", "experts", "findings", "log")
_TITLES = {"overview": "Overview", "time": "Time", "machine": "Machine", "ranks": "Ranks", "experts": "Experts",
           "findings": "Findings", "log": "Log"}  # fmt: skip
_WANTED: dict[str, Wanted] = {
    "overview": overview_page.wanted,
    "machine": machine_pages.machine_names,
    "experts": machine_pages.experts_names,
}
_FRAME = 3  # rows: head, tabs, keys
_LEAST = (20, 6)  # columns and rows below which nothing is drawn
_SMALL_LOG = 64 << 20  # bytes that the doctor reads unasked
_FEW_SERIES = 5000


_PLAIN = {"…": "~", "↑": "^", "↓": "v", "×": "x", "µ": "u", "°": "'", "█": "#", "▸": ">", "●": "o", "▲": "^", "·": "."}


def _ascii(text: str) -> str:
    """The text where there is nothing but ASCII, one cell a character."""
    return "".join(item if item.isascii() else _PLAIN.get(item, "?" * columns_of(item)) for item in text)


def _figures_of(run: StoredRun) -> tuple[int | None, float | None]:
    try:
        row = summary(run)
    except (OSError, ValueError, KeyError):
        return None, None
    step, loss = row.get("step"), row.get("loss")
    return step if isinstance(step, int) else None, float(loss) if isinstance(loss, (int, float)) else None


def _counted(shown: int, every: int) -> str:
    return f"{count(shown, 'run')}" + (f" of {every:,}" if shown < every else "")


class Viewer:
    """moved: the last key led to another page or run, so what it shows is to be read at once."""

    def __init__(self, run: StoredRun | None, dir: str | None, place: TopPlace):
        self.place, self._dir = place, dir
        self.moved = False
        self._known: list[StoredRun] = []
        self._every: list[StoredRun] = []  # without the filter
        self._filtered, self._refusal = "", ""
        self._figures: dict[str, tuple[int | None, float | None]] = {}
        self._states: dict[str, str] = {}
        self._listing = TopPace(2.0, 0.02)
        self._watch: RunWatch | None = None
        self._examination: Examination | None = None
        self._list_from = place.page
        if run is None:
            place.page = "runs"
        else:
            self._watch = RunWatch(run)

    def close(self) -> None:
        """Let go of files."""
        if self._watch is not None:
            self._watch.close()

    def look(self, columns: int, rows: int) -> bool:
        """See what is new; whether everything the page shows has been read."""
        if self.place.paused:
            return True
        if self._watch is None or self.place.page == "runs":
            if self._listing.due():
                with self._listing:
                    self._every = list(reversed(runs(self._dir)))
                    self._states = {str(run.dir): run.status for run in self._every}
                    for folder in [key for key in self._figures if self._states.get(key) in liveness.OPEN]:
                        del self._figures[folder]  # they have gone on
                    self._filter()
            elif self._filtered != self.place.filter and not self.place.typing:
                self._filter()
            return self._read_figures(rows)
        page = self.place.page
        wanted = _WANTED[page](self._watch, self.place, columns, rows - _FRAME) if page in _WANTED else []
        if page == "findings" and self._examination is None and self._may_examine(self._watch):
            self._examination = Examination(self._watch.run)
        done = self._watch.look(wanted, ask=(page,))
        # names may have been read only now
        again = _WANTED[page](self._watch, self.place, columns, rows - _FRAME) if page in _WANTED else []
        return done and again == wanted

    def complete(self, seconds: float) -> None:
        """See everything that the page shows, for a page that is printed once."""
        end = time.monotonic() + seconds
        for _ in range(2):  # what the first look finds may ask for a second
            while not self.look(100, 60) and time.monotonic() < end:
                pass
        if self._watch is not None:
            self._watch.logbook.wait(max(0.0, end - time.monotonic()))
        if self._examination is not None:
            self._examination.wait(max(0.0, end - time.monotonic()))

    def rows(self, columns: int, rows: int, footer: bool = True) -> list[Row]:
        """What the terminal should show."""
        if columns < _LEAST[0] or rows < _LEAST[1]:
            return [[Span("make the window larger"[:columns], "bold")]]
        made = self._framed(columns, rows, footer)
        return made if self.place.braille else [[Span(_ascii(item.text), item.style) for item in row] for row in made]

    def _framed(self, columns: int, rows: int, footer: bool) -> list[Row]:
        room = rows - _FRAME
        page = self._page(columns, room)[:room]
        head = [self._head(columns), self._tabs(columns)]
        if not footer:
            return [*head, *page]
        return [*head, *page, *([[]] * (room - len(page))), self._keys(columns)]

    def press(self, key: str) -> bool:
        """Go where a key leads; False for the end."""
        place, before = self.place, (self.place.page, self._watch)
        if place.typing:
            place.type(key)
            self.moved = not place.typing
            return True
        if key in ("q", "Q"):
            return False
        if place.help:
            place.help = False
            return True
        tabs = self._pages()
        at = tabs.index(place.page) if place.page in tabs else 0
        if key == "?":
            place.help = True
        elif key == "/":
            self._list_from = place.page if place.page != "runs" else self._list_from
            place.go("runs")
            place.typing = True
        elif key == "escape" and place.page == "runs" and place.filter:
            place.type(key)
        elif key == "r" and place.page != "runs":
            self._list_from = place.page
            place.go("runs")
            self._listing.hurry()
        elif key in ("escape", "backspace") and place.page == "runs" and self._watch is not None:
            place.go(self._list_from)
        elif place.page == "runs" and key == "enter":
            self._open(place.chosen)
        elif key in ("up", "down", "k", "j", "pageup", "pagedown", "home", "end"):
            lines = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -10, "pagedown": 10, "home": -9999, "end": 9999}[
                key
            ]
            place.move(-lines if place.page == "log" else lines)
        elif key in ("+", "="):
            place.zoom(1)
        elif key in ("-", "_"):
            place.zoom(-1)
        elif key == "0":
            place.window = 0
        elif key == "l":
            place.log = not place.log
        elif key == " ":
            place.paused = not place.paused
        elif self._watch is not None:
            if key == "tab":
                place.go(tabs[(at + 1) % len(tabs)] if place.page in tabs else self._list_from)
            elif key == "backtab":
                place.go(tabs[at - 1])
            elif key.isdecimal() and key.isascii() and 1 <= int(key) <= len(tabs):
                place.go(tabs[int(key) - 1])
            elif key == "d":
                place.go("findings")
                self._examination = Examination(self._watch.run)
            elif key in ("n", "p", "right", "left"):
                self._next(1 if key in ("n", "right") else -1)
        self.moved = (place.page, self._watch) != before or key in ("up", "down", "j", "k", "pageup", "pagedown", "d")
        return True

    # -- inside ---------------------------------------------------------------------------------------

    def _pages(self) -> list[str]:
        mixture = self._watch is not None and self._watch.is_mixture
        return [page for page in PAGES if page != "experts" or mixture]

    def _page(self, columns: int, rows: int) -> list[Row]:
        place, watch = self.place, self._watch
        if place.help:
            return story_pages.help_page(place)
        if watch is None or place.page == "runs":
            return story_pages.runs_page(self._known, self._states, place, columns, rows, self._figures, self._refusal)
        if place.page == "findings":
            return story_pages.findings_page(watch, place, columns, rows, self._examination)
        draw = {
            "overview": overview_page.draw, "time": machine_pages.time_page, "machine": machine_pages.machine_page,
            "ranks": machine_pages.ranks_page, "experts": machine_pages.experts_page, "log": story_pages.log_page,
        }[place.page]  # fmt: skip
        return draw(watch, place, columns, rows)

    def _head(self, columns: int) -> Row:
        if self._watch is None or self.place.page == "runs":
            return [
                Span(" barograph top", "bold"),
                Span(f"   {_counted(len(self._known), len(self._every))}", "dim"),
            ]
        watch = self._watch
        step, planned, elapsed, remaining = watch.progress()
        style = {"running": "bold green", "finished": "green", "log file": "dim"}.get(watch.status, "bold red")
        parts = [Span(f" {short(watch.status, 20)}", style)]
        if step is not None:
            share = f" of {planned:,} ({percent(min(1.0, step / planned))})" if planned else ""
            parts.append(Span(f"  step {step:,}{share}"))
        if elapsed:
            parts.append(Span(f"  {duration(elapsed)}", "dim"))
        if remaining is not None:
            parts.append(Span(f"  {duration(remaining)} left", "dim"))
        if self.place.paused:
            parts.append(Span("  held", "bold yellow"))
        room = max(10, columns - sum(width(part.text) for part in parts) - 2)
        name = f"{watch.run.project}/{watch.run.name}"
        return [Span(f" {fit(short(name), room)}", "bold"), *parts]

    def _tabs(self, columns: int) -> Row:
        row: Row = []
        if self._watch is None:
            return [Span(" choose a run", "dim")]
        found = self._watch.logbook.findings()
        bad = sum(item["severity"] != "info" for item in found)
        short = columns < 76
        for number, page in enumerate(self._pages(), 1):
            title = _TITLES[page][: 4 if short else None] + (f" ({bad})" if page == "findings" and bad else "")
            here = page == self.place.page
            alarm = page == "findings" and bad and not here
            row += [Span(f" {number} {title} ", "reverse" if here else "bold red" if alarm else ""), Span(" ")]
        return row

    def _keys(self, columns: int) -> Row:
        if self.place.page == "runs":
            told = " ↑↓ choose  enter open  / filter  ? help  q quit"
        else:
            told = " ? help  q quit  tab page  ↑↓ choose  +- steps  l log  n p run  space pause"
        if not self.place.braille:
            told = told.replace("↑↓", "arrows")
        return [Span(padded(told, columns - 1), "dim")]

    def _filter(self) -> None:
        """The runs that the filter leaves; all where it can't be read, with a sentence."""
        self._filtered, self._refusal = self.place.filter, ""
        self._known = self._every
        if self._filtered.strip():
            try:
                said = self._filtered  # a condition, or words
                self._known = choose(self._every, [said] if set(said) & set("=<>~") else said.split())
            except ValueError as error:
                self._refusal = str(error)

    def _read_figures(self, rows: int) -> bool:
        """Last steps and losses of the runs in sight, as many as a tenth of a second allows; whether all are read."""
        end, first = time.monotonic() + 0.1, max(0, self.place.chosen - rows)
        for run in self._known[first : self.place.chosen + rows]:
            if str(run.dir) in self._figures:
                continue
            if time.monotonic() > end:
                return False
            self._figures[str(run.dir)] = _figures_of(run)
        return True

    def _open(self, number: int) -> None:
        if 0 <= number < len(self._known):
            self.close()
            self._watch, self._examination = RunWatch(self._known[number]), None
            self.place.window = 0
            self.place.go(self._list_from if self._list_from in self._pages() else "overview")

    def _next(self, by: int) -> None:
        if self._watch is None:
            return
        self._known = list(reversed(runs(self._dir)))
        here = [str(run.dir.resolve()) for run in self._known]
        mine = str(self._watch.run.dir.resolve())
        at = here.index(mine) if mine in here else -by
        target = at + by
        if self._known and 0 <= target < len(self._known) and here[target] != mine:
            page = self.place.page
            self.place.chosen = self.place.scroll = 0
            self._list_from = page
            self._open(target)

    @staticmethod
    def _may_examine(watch: RunWatch) -> bool:
        """Whether the doctor looks unasked: the run has ended, nobody examined it live, and it is small."""
        if watch.live or watch.logbook.findings() or watch.logbook.searching or not watch.names:
            return False
        sizes: Sequence[int] = [path.stat().st_size for path in watch.run.log_files() if path.exists()]
        return sum(sizes) < _SMALL_LOG and len(watch.names) < _FEW_SERIES and watch.status not in liveness.OPEN
