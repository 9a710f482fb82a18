"""Colour never changes a text, hostile text stays text, spare parts go first."""

import re
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from barograph.core.terminal import TextPart as Part
from barograph.core.terminal import fitted, painted, plain
from barograph.core.text import escape, width

CODES = re.compile("\x1b\\[[0-9]+m")
LINE = (
    Part("step 1"),
    Part(" loss 2", "red"),
    Part(" | tps", "", 1),
    Part(" | eta", "dim", 2),
    Part(" | phase", "", 3),
)


def test_colour_wraps_the_text_and_changes_none_of_it():
    assert painted(LINE) != plain(LINE)
    assert CODES.sub("", painted(LINE)) == plain(LINE)
    assert painted((Part("a", "bold red"),)) == "\x1b[1m\x1b[31ma\x1b[39m\x1b[22m"


def test_the_most_spare_parts_go_first_and_the_others_stay():
    assert fitted(LINE, 100) == fitted(LINE, len(plain(LINE))) == LINE
    assert plain(fitted(LINE, len(plain(LINE)) - 1)) == "step 1 loss 2 | tps | eta"
    assert plain(fitted(LINE, 20)) == "step 1 loss 2 | tps"
    assert plain(fitted(LINE, 3)) == "step 1 loss 2"


@given(st.text(st.characters(codec=None), max_size=50))
def test_escaped_text_holds_nothing_that_drives_a_terminal(hostile):
    shown = escape(hostile)
    assert not any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in shown)
    assert not any(unicodedata.bidirectional(letter) in ("LRO", "RLO", "LRI", "RLI", "FSI", "PDI") for letter in shown)
    shown.encode()


def test_escapes_are_readable():
    assert escape("a\nb\x1b[2J\x07\x9b\u202e") == "a\\nb\\e[2J\\x07\\x9b\\u202e"
    assert escape("plain Ünïcode 漢字 🙂") == "plain Ünïcode 漢字 🙂"


def test_a_long_message_is_cut_and_says_so():
    assert escape("x" * 10_000) == "x" * 4_000 + "… (6,000 more characters)"


def test_wide_and_combining_characters_have_their_width():
    assert width(["ab", "漢字", "e\u0301"]) == 7
