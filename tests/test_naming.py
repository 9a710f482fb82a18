"""Names of runs and of folders."""

from __future__ import annotations

import argparse
import dataclasses
import unicodedata
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from barograph.core.names import MOST_BYTES, folder_name, run_name

NOW = datetime(2025, 8, 31, 14, 30, 22)


@dataclasses.dataclass
class Model:
    width: int = 1024


@dataclasses.dataclass
class Config:
    mup: bool = True
    base_width: int = 768
    model: Model = dataclasses.field(default_factory=Model)


@pytest.mark.parametrize(
    "config",
    [
        {"mup": True, "width": 1024, "base_width": 768},
        {"model": {"width": 1024}, "mup": {"enabled": True, "base_width": 768}},
        {"mup": 1, "model": {"width": 1024.0, "base_width": "768"}},
        argparse.Namespace(mup=True, width=1024, base_width=768),
        Config(),
        {"train": Config()},
    ],
)
def test_a_run_is_named_as_the_document_shows(config: Any) -> None:
    assert run_name("speedrun", config, NOW) == "speedrun_20250831_143022_mup_w1024_base768"


@pytest.mark.parametrize(
    ("config", "rest"),
    [
        (None, ""),
        ({}, ""),
        ({"mup": False, "width": 1024, "base_width": 768}, "_w1024"),  # base says something with muP only
        ({"mup": True}, "_mup"),
        ({"mup": True, "base_width": 768}, "_mup_base768"),
        ({"mup": {"enabled": False}, "width": 64}, "_w64"),
        ({"mup": None, "width": None}, ""),
        ({"width": True}, ""),
        ({"width": [1, 2]}, ""),
        ({"width": {"hidden": 3}}, ""),
        ({"width": 12, "model": {"width": 99}}, "_w12"),  # the nearest to the top
        ({"a": {"b": {"c": {"width": 9}}}}, ""),
        (3, ""),
        ("text", ""),
    ],
)
def test_what_the_config_does_not_say_is_left_out(config: Any, rest: str) -> None:
    assert run_name("speedrun", config, NOW) == "speedrun_20250831_143022" + rest


def test_an_empty_prefix_leaves_no_underscore() -> None:
    assert run_name("", {"width": 8}, NOW) == "20250831_143022_w8"


def test_a_config_that_raises_or_contains_itself_costs_nothing() -> None:
    class Raises:
        @property
        def width(self) -> int:
            raise RuntimeError

        def __bool__(self) -> bool:
            raise RuntimeError

    loop: dict[str, Any] = {}
    loop["loop"] = loop
    wide: dict[str, Any] = {str(number): {"inner": {}} for number in range(5000)}
    for config in (Raises(), {"mup": Raises()}, loop, wide):
        assert run_name("p", config, NOW) == "p_20250831_143022"


def test_without_a_time_it_is_now() -> None:
    before = datetime.now().replace(microsecond=0)
    made = datetime.strptime(run_name("p"), "p_%Y%m%d_%H%M%S")
    assert before <= made <= datetime.now()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("speedrun_20250831_143022_mup_w1024_base768", "speedrun_20250831_143022_mup_w1024_base768"),
        ("lr=3e-4, seed 1", "lr=3e-4-seed-1"),
        ("../../etc/passwd", "etc-passwd"),
        ("", "run"),
        (".", "run"),
        ("..", "run"),
        ("-rf", "rf"),
        (".hidden", "hidden"),
        ("a/b\\c", "a-b-c"),
        ("line\nbreak\0nul\x1b[31m", "line-break-nul-31m"),
        ("🚀", "run"),
        ("go 🚀 go", "go-go"),
        ("CON", "_CON"),
        ("nul.txt", "_nul.txt"),
        ("com1", "_com1"),
        ("console", "console"),
        ("trailing. ", "trailing"),
        ("größe 模型", "größe-模型"),
        ("a" * 300, "a" * 100),
        ("ü" * 300, "ü" * 50),
        ("con" + "-" * 200 + "x", "_con"),
        ("\u202eevil", "evil"),
        ("re\u0301sume\u0301", "r\u00e9sum\u00e9"),  # however a keyboard composes the letter
        ("\ud800x", "x"),
    ],
)
def test_hostile_text_becomes_a_plain_name(text: str, name: str) -> None:
    assert folder_name(text) == name


_RESERVED = {"con", "prn", "aux", "nul"} | {
    f"{device}{digit}" for device in ("com", "lpt") for digit in "0123456789¹²³"
}


@given(st.one_of(st.text(max_size=300), st.text("conCON.-_ u\u0301=\u0338/12¹é", max_size=150)))
@example("=\u0338")
@example("com¹.x")
@settings(max_examples=500, deadline=None)
def test_any_text_becomes_a_safe_name_that_stays(text: str) -> None:
    name = folder_name(text)
    assert 0 < len(name.encode()) <= MOST_BYTES
    assert name[0] not in "-." and name[-1] not in ". -"
    assert not set(name) & set("<>:\"/\\|?*~$`!;&'")
    assert not any(unicodedata.category(letter)[0] in "CZ" for letter in name)
    assert name.split(".")[0].lower() not in _RESERVED
    assert folder_name(name) == name


@given(st.text(max_size=60))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_name_can_be_made_as_a_folder_directly_inside(tmp_path: Path, text: str) -> None:
    folder = tmp_path / folder_name(text)
    folder.mkdir(exist_ok=True)
    assert folder.resolve().parent == tmp_path.resolve()
