"""Every value has one face: what people read is written by `core.text`, and the page writes the same."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.analysis.compare.words import amount
from barograph.core import text
from barograph.views.report import figures

ROOT = Path(__file__).parents[1]
CASES = ROOT / "web" / "tests" / "text_cases.json"

ODD = [math.nan, math.inf, -math.inf, None, True, "7", b"7", object(), [], 10**400, -(10**400)]
VALUES = [
    0, -0.0, 1, 7, -7, 0.1, -0.25, 1.5, 2.34567, 2.999999, 9.99999, 12.3456, 99.9996, 123.456, 999.96, 1000, 1234.5678,
    12345.678, 65536, 99999.6, 1234567, 1234567.891, -1234567, 123456789, 999999999, 1e9, 1.2345678e10, 1e12, 1e15,
    6.02214e23, 1.7976931348623157e308, 0.01234567, 0.001, 0.00123456, 0.0009876543, 0.0003, 0.00012346, 1e-4, 9.99e-5,
    1.23e-5, 6e-5, 1.23456e-8, 1e-300, 5e-324,
]  # fmt: skip
SECONDS = [
    0, 1e-9, 4.5e-5, 0.0009996, 0.00123, 0.0123, 0.34, 0.9994, 0.9996, 1, 1.234, 12.34, 59.94, 59.96, 60, 61, 125,
    3599.4, 3599.6, 3600, 9900, 86399, 100000, 360000, 3.6e6, 3.6e12, 1e15, -5, -125,
]  # fmt: skip
BYTES = [0, 1, 512, 999.7, 1000, 1023, 1024, 1536, 1048576, 1e9, 85899345920, 1.5e12, 2**50, 1e30, -2048]
SHARES = [0, 1e-6, 0.0004, 0.00314, 0.01, 0.0123, 0.1, 0.314159, 0.5, 0.99949, 0.9996, 1, 1.5, 12.34, -0.2]
FUNCTIONS: dict[str, tuple[Callable[..., str], list[float]]] = {
    "number": (text.number, VALUES),
    "compact": (text.compact, VALUES),
    "duration": (text.duration, SECONDS),
    "size": (text.size, BYTES),
    "percent": (text.percent, SHARES),
    "change": (text.change, [100 * share for share in SHARES]),
}
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def cases() -> dict[str, list[list[object]]]:
    """{function: [[value, text], …]}; null stands for a value that is missing, text for one that is not finite."""
    found: dict[str, list[list[object]]] = {}
    for name, (function, values) in FUNCTIONS.items():
        found[name] = [[value, function(value)] for value in values] + [[None, function(None)]]
        found[name] += [[word, function(value)] for word, value in NOT_FINITE.items()]
    found["sparkline"] = [
        [[1, 2, 3, "nan", "inf", "-inf", 3, 4], text.sparkline([1, 2, 3, math.nan, math.inf, -math.inf, 3, 4])],
        [[5, 5, 5], text.sparkline([5, 5, 5])],
        [[], ""],
    ]
    return found


def written() -> str:
    lines = [
        f"  {json.dumps(name)}: [\n"
        + ",\n".join(f"    {json.dumps(case, ensure_ascii=False)}" for case in rows)
        + "\n  ]"
        for name, rows in cases().items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def test_the_cases_that_the_page_is_tested_with_are_those_of_today() -> None:
    """Run this file to write them again: `python tests/test_text.py`."""
    assert CASES.read_text(encoding="utf-8") == written()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (7.0, "7"), (0, "0"), (-0.0, "0"), (1234567, "1,234,567"), (1234567.0, "1,234,567"), (1.23e-5, "1.23e-05"),
        (math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "nan"), (None, "–"), (2.34567, "2.3457"), (3e-4, "0.0003"),
        (-0.5, "-0.5"), (1e-300, "1e-300"), (1.7976931348623157e308, "1.798e+308"), (12345.678, "12,346"),
        (np.float32(0.5), "0.5"), (np.int64(12), "12"), ("7", "–"), (True, "–"), (10**400, "inf"),
    ],
)  # fmt: skip
def test_a_number_has_one_face(value: object, shown: str) -> None:
    assert text.number(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (100_000, "27h46m"), (125, "02m05s"), (59.99, "01m00s"), (12.34, "12.3 s"), (0.34, "340 ms"), (0, "0 s"),
        (4.5e-5, "45 µs"), (0.99999, "1 s"), (3599.9, "01h00m"), (3.6e6, "1,000h00m"), (math.nan, "–"), (None, "–"),
        (math.inf, "inf"), (-math.inf, "-inf"), (-90, "-01m30s"), (1e300, "2.778e+296h"),
    ],
)  # fmt: skip
def test_a_duration_has_one_face(seconds: float, shown: str) -> None:
    assert text.duration(seconds) == shown


@pytest.mark.parametrize(
    ("share", "shown"), [(0, "0%"), (1, "100%"), (0.3, "30%"), (0.123, "12.3%"), (0.9996, "100%"), (4e-4, "0.04%")]
)
def test_a_share_has_one_face(share: float, shown: str) -> None:
    assert text.percent(share) == shown


def test_counts_sizes_changes_and_money() -> None:
    assert [text.compact(one) for one in (950, 12345, 124439808, 999_990, 1.25e9, 3e14, 1e18)] == [
        "950", "12.35k", "124.4M", "1M", "1.25B", "300T", "1e+18",
    ]  # fmt: skip
    assert [text.count(one, "step") for one in (0, 1, 2000)] == ["0 steps", "1 step", "2,000 steps"]
    assert [text.size(one) for one in (12, 2048, 80 * 2**30)] == ["12 B", "2 KiB", "80 GiB"]
    assert [text.change(one) for one in (0.3141, -12.5, 0, None)] == ["+0.314%", "-12.5%", "0%", "–"]
    assert [text.money(one) for one in (1234.5, 0.0042, 0)] == ["1,234.50", "0.0042", "0.00"]
    assert [text.ago(one) for one in (5, 90, 7200, 3 * 86400)] == ["just now", "1 min ago", "2 h ago", "3 d ago"]


@pytest.mark.parametrize(
    "function",
    [text.number, text.compact, text.narrow, text.signed, text.duration, text.milliseconds, text.ago, text.size,
     text.percent, text.change, text.money, text.escape, text.short, text.quoted, text.html, text.markdown],
)  # fmt: skip
def test_nothing_raises_whatever_the_value(function: Callable[[object], str]) -> None:
    for value in [*ODD, *VALUES]:
        assert isinstance(function(value), str)


@pytest.mark.parametrize("value", [7.0, 1234567.0, math.inf, -math.inf, math.nan, 0.0])
def test_reports_rules_and_comparisons_write_the_number_that_the_text_module_writes(value: float) -> None:
    shown = {
        figures.number(value, "").text, amount(value, ""), amount(value, "steps"),
        text.narrow(value), text.number(value),
    }  # fmt: skip
    assert shown == {text.number(value)}


@pytest.mark.parametrize("value", [100_000.0, 59.99, 0.25, 0.0, math.nan, math.inf])
def test_reports_and_comparisons_write_the_duration_that_the_text_module_writes(value: float) -> None:
    shown = {figures.duration(value, "").text, amount(value, "seconds"), text.milliseconds(1000 * value)}
    assert shown == {text.duration(value)}


# where a format is fixed to the letter by a document: its lines are golden in test_lines.py and test_styles.py
CONTRACT = {"training/console/lines.py", "training/console/styles.py"}
MADE_ELSEWHERE = re.compile(
    r"(▁▂▃▄▅▆▇█|h\{minutes:02d\}m|m\{rest:02d\}s|\b(?:KiB|GiB)\"\s*,\s*1 ?<< ?\d0|math\.isinf\(.*\"[+-]?(?:Inf|inf|∞)"
    r"|\"(?:∞|Inf|infinity)\"|else 's'\}|'' if \w+ == 1 else)"
)


def test_no_other_module_has_a_formatter_of_its_own() -> None:
    package, strange = ROOT / "src" / "barograph", []
    for path in package.rglob("*.py"):
        name = path.relative_to(package).as_posix()
        if name == "core/text.py" or name in CONTRACT or name.startswith(("importing/", "trackers/")):
            continue
        lines = enumerate(path.read_text().splitlines(), 1)
        strange += [f"{name}:{number} {line.strip()}" for number, line in lines if MADE_ELSEWHERE.search(line)]
    assert not strange, "core.text writes this"


@given(st.floats(-1e300, 1e300) | st.sampled_from([math.nan, math.inf, -math.inf]))
def test_a_number_reads_back_as_what_it_was(value: float) -> None:
    shown = float(text.number(value).replace(",", ""))
    assert math.isclose(shown, value, rel_tol=6e-4, abs_tol=1e-300) or (shown != shown and value != value)
    assert 1 <= len(text.narrow(value)) <= 9


@given(st.integers(-(10**9) + 1, 10**9 - 1))
def test_whole_numbers_are_shown_whole(value: int) -> None:
    assert int(text.number(value).replace(",", "")) == value


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=90), st.integers(0, 40))
def test_a_row_of_bars_hides_nothing_that_is_not_finite(values: list[float], width: int) -> None:
    drawn = text.sparkline(values, width)
    assert len(drawn) == (min(width, len(values)) or len(values))
    assert any(one in "×^v" for one in drawn) == any(not math.isfinite(value) for value in values)


def test_a_row_of_bars_marks_each_kind() -> None:
    assert text.sparkline([1, 2, 3, math.nan, math.inf, -math.inf, 3, 4]) == "▁▃▆×^v▆█"
    assert text.sparkline([5.0, 5.0]) == "▄▄" and text.sparkline([1e308, -1e308]) == "█▁"


@given(st.text(max_size=60), st.integers(0, 20))
def test_text_is_cut_to_columns(content: str, columns: int) -> None:
    name = text.short(content)
    assert text.width([text.fit(name, columns)]) <= columns >= text.width([text.clip(name, columns)])
    assert text.width([text.padded(name, columns)]) == columns == text.width([text.padded(name, columns, right=True)])
    assert name.isprintable()


def test_a_name_keeps_both_ends_and_a_sentence_its_begin() -> None:
    assert text.fit("train/tokens_per_second", 11) == "train…econd"
    assert text.clip("The loss is NaN since step 3", 12) == "The loss is…"
    assert text.listed(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert text.wrapped("one two three four", 10, "  ") == ["  one two", "    three", "    four"]


@given(st.text(st.characters(codec=None), max_size=50))
def test_what_is_escaped_is_harmless_where_it_goes(hostile: str) -> None:
    assert not any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in text.escape(hostile))
    assert not set("<>\"'") & set(text.html(hostile))
    assert not re.search(r"(?<!\\)[|<>*_`]", text.markdown(hostile).replace("\\\\", ""))


if __name__ == "__main__":
    CASES.write_text(written(), encoding="utf-8")
