"""Finding names: by the tree, by patterns that cannot hang."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import patient

from barograph.views.server.names import below, families, matching

NAMES = sorted(
    ["loss", "train/loss", "train/lr", "gradients/a/norm", "gradients/a/mean", "gradients/b/norm", "x/", "/y"]
)

paths = st.lists(st.text("ab/-.0", max_size=8), max_size=30).map(lambda found: sorted(set(found)))


def test_a_step_of_the_tree() -> None:
    assert below(NAMES, "")["leaves"] == ["loss", "x/"]
    assert {(one["name"], one["count"]) for one in below(NAMES, "")["groups"]} == {
        ("", 1),
        ("gradients", 3),
        ("train", 2),
    }
    assert below(NAMES, "gradients")["groups"] == [
        {"name": "a", "prefix": "gradients/a/", "count": 2}, {"name": "b", "prefix": "gradients/b/", "count": 1}
    ]  # fmt: skip
    assert below(NAMES, "train/") == {"groups": [], "leaves": ["train/loss", "train/lr"]}
    assert below(NAMES, "nothing") == {"groups": [], "leaves": []}


@given(paths)
def test_walking_the_tree_meets_every_name_once(names: list[str]) -> None:
    met: list[str] = []

    def walk(prefix: str) -> int:
        found = below(names, prefix)
        met.extend(found["leaves"])
        for group in found["groups"]:
            assert walk(group["prefix"]) == group["count"]
        return len(found["leaves"]) + sum(group["count"] for group in found["groups"])

    walk("")
    assert sorted(met) == names


@settings(deadline=None)
@given(
    st.lists(st.text("abc/_", max_size=6), max_size=20), st.sampled_from(["a", "^a", "b$", "a.*c", "(a|b)+", "[^a]"])
)
def test_patterns_find_what_python_finds(names: list[str], pattern: str) -> None:
    assert matching(names, pattern, 1000)["names"] == [name for name in names if re.search(pattern, name)]


def test_small_letters_stand_for_large_ones_too() -> None:
    assert matching(["Loss", "loss"], "loss", 9)["total"] == 2
    assert matching(["Loss", "loss"], "Loss", 9)["names"] == ["Loss"]


def test_the_limit_bounds_the_names_and_not_the_count() -> None:
    assert matching([f"n{at}" for at in range(100)], "n", 7) == {"names": [f"n{at}" for at in range(7)], "total": 100}


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a*)*b", "(.*)(.*)(.*)(.*)(.*)x", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_patterns_that_hang_others_take_no_time(pattern: str) -> None:
    names = ["a" * 60 + "!" for _ in range(2_000)]
    began = time.monotonic()
    matching(names, pattern, 10)
    assert time.monotonic() - began < patient(2.0)


@pytest.mark.parametrize("pattern", ["(", "[", "(?<=a)b", r"(a)\1", "a{5000}", "((a{900}){900}){900}", "x" * 2000])
def test_a_pattern_that_is_none_is_one_sentence(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"not a regular expression|too long") as told:
        matching(["a"], pattern, 10)
    assert "\n" not in str(told.value)


def test_a_name_with_half_a_character_is_found_too() -> None:
    assert matching(["a\ud800b", "c"], "^a", 10)["names"] == ["a\ud800b"]


def test_families_are_the_first_parts() -> None:
    assert families(NAMES) == {"": 2, "gradients": 3, "train": 2, "x": 1}
