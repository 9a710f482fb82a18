"""Sentences are made of figures: no number stands in a report that none stands for."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.core import text
from barograph.views.report import figures
from barograph.views.report.content import say, section


def test_a_sentence_takes_no_number_of_its_own() -> None:
    with pytest.raises(ValueError, match="from figures"):
        say("It fell by 3 percent.")


def test_a_sentence_holds_its_figures_with_their_sources() -> None:
    found = say("It fell to {end} at step {step}.", end=figures.number(1.5, "train/loss"), step=figures.count(9, "s"))
    assert found.text == "It fell to 1.5 at step 9."
    assert [(one.value, one.source) for one in found.figures] == [(1.5, "train/loss"), (9, "s")]


def test_a_figure_that_is_missing_is_an_error() -> None:
    with pytest.raises(KeyError):
        say("It fell to {end}.")


@given(st.floats(-1e300, 1e300))
def test_a_number_is_shown_to_four_digits_or_better(value: float) -> None:
    shown = float(text.number(value).replace(",", ""))
    assert math.isclose(shown, value, rel_tol=6e-4, abs_tol=1e-300)


@given(st.integers(-(10**8), 10**8))
def test_whole_numbers_are_shown_whole(value: int) -> None:
    assert int(text.number(value).replace(",", "")) == value


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0.0, "0%"), (1.0, "100%"), (0.3, "30%"), (0.123, "12.3%"), (0.9996, "100%"), (4e-4, "0.04%")],
)
def test_a_share_is_shown_in_percent(share: float, shown: str) -> None:
    assert figures.percent(share, "").text == shown


def test_what_is_not_a_number_says_so() -> None:
    assert [text.number(one) for one in (math.nan, math.inf, -math.inf)] == ["nan", "inf", "-inf"]


def test_words_of_users_can_neither_break_the_line_nor_drive_a_terminal() -> None:
    assert figures.word("a\n\x1b[31mb", "").text == "a\\n\\e[31mb"


def test_a_section_without_anything_to_say_is_none() -> None:
    assert section("a", "A", [None]) is None
