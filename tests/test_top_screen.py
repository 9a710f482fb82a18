"""What is sent to a terminal makes it show the rows, and little is sent when little changes."""

from __future__ import annotations

import pyte
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.core.text import clip, fit, padded, short, width
from barograph.views.top.keys import KeyReader
from barograph.views.top.screen import Row, Screen, Span, plain

_TEXTS = st.text(st.sampled_from("ab 12漢é─⠿█"), max_size=14)
_ROWS = st.lists(
    st.lists(st.builds(Span, _TEXTS, st.sampled_from(["", "bold", "red", "bold red", "dim"])), max_size=3), max_size=5
)


def _terminal(columns: int, rows: int) -> tuple[pyte.Screen, pyte.ByteStream]:
    shown = pyte.Screen(columns, rows)
    shown.reset_mode(pyte.modes.DECAWM)
    return shown, pyte.ByteStream(shown)


def _display(shown: pyte.Screen) -> list[str]:
    return [line.rstrip() for line in shown.display]


@settings(max_examples=60, deadline=None)
@given(st.lists(_ROWS, min_size=1, max_size=4))
def test_a_terminal_shows_each_page_after_the_last(pages: list[list[Row]]) -> None:
    shown, stream = _terminal(12, 4)
    screen = Screen(12, 4)
    for page in pages:
        stream.feed(screen.update(page))
        fresh, other = _terminal(12, 4)
        other.feed(Screen(12, 4).update(page))
        # the same as drawn on an empty terminal; the last cell of the last row is never written
        assert _display(shown) == _display(fresh)
        for at, row in enumerate(page[:3]):
            text = plain([row])
            if text.isascii():
                assert shown.display[at].rstrip() == text[:12].rstrip()


def test_the_last_cell_of_the_last_row_is_never_written() -> None:
    shown, stream = _terminal(12, 2)
    screen = Screen(12, 2)
    for text, expected in (("0123456789漢", "0123456789"), ("0123456789ab", "0123456789a"), ("", "")):
        stream.feed(screen.update([[], [Span(text)]]))
        assert _display(shown) == ["", expected]


def test_a_page_that_is_the_same_costs_no_byte_and_a_digit_a_few() -> None:
    rows: list[Row] = [[Span(f"row {at} of a page of many", "cyan")] for at in range(40)]
    screen = Screen(120, 40)
    assert len(screen.update(rows)) < 2500
    assert screen.update(rows) == b""
    rows[7] = [Span("row 9 of a page of many", "cyan")]
    assert 0 < len(screen.update(rows)) < 25


def test_another_size_and_a_redraw_draw_everything_again() -> None:
    screen = Screen(20, 3)
    rows: list[Row] = [[Span("hello")]]
    screen.update(rows)
    screen.resize(30, 5)
    assert screen.update(rows).startswith(b"\x1b[0m\x1b[2J")
    screen.forget()
    assert b"hello" in screen.update(rows)


def test_without_colour_none_is_sent() -> None:
    sent = Screen(20, 2, colour=False).update([[Span("bad", "bold red"), Span("cyan", "cyan")]])
    assert b"\x1b[0;1m" in sent and b"31" not in sent and b"36" not in sent


@given(st.text(max_size=60), st.integers(0, 20))
def test_text_is_cut_to_cells_and_can_not_drive_a_terminal(text: str, cells: int) -> None:
    shown = fit(short(text), cells)
    assert width(shown) <= cells and width(clip(short(text), cells)) <= cells
    assert width(padded(short(text), cells)) == cells
    assert all(one.isprintable() for one in short(text))


def test_a_name_that_is_cut_keeps_both_ends() -> None:
    assert fit("train/tokens_per_second", 11) == "train…econd"
    assert short("\x1b[2J\u202e\x07x") == "\\e[2J\\u202e\\x07x"


def test_keys_come_whole_in_pieces_and_in_a_row() -> None:
    keys = KeyReader()
    assert keys.feed(b"q1\t\x1b[A\x1b[B") == ["q", "1", "tab", "up", "down"]
    assert keys.feed(b"\x1b") == [] and keys.waiting
    assert keys.feed(b"[5~") == ["pageup"] and not keys.waiting
    assert keys.feed(b"\x1b") == [] and keys.flush() == ["escape"]
    assert keys.feed(b"\x1b[<0;12;13Mx") == ["x"]


@given(st.binary(max_size=80))
def test_no_bytes_break_the_reading_of_keys(data: bytes) -> None:
    keys = KeyReader()
    for at in range(0, len(data), 3):
        keys.feed(data[at : at + 3])
    keys.flush()
    assert not keys.waiting
