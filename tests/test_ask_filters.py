"""A filter says what it means, never runs anything, and refuses the rest with a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import barograph
from barograph.query.filters import FIELDS, Clause, FilterError, Group, Value, matches, parse, runs, written


class Run:
    """What a filter asks of a stored run."""

    def __init__(self, **about: Any):
        self.id = about.pop("id", "r1")
        self.status = about.pop("status", "finished")
        self.tags = about.pop("tags", [])
        self.config = about.pop("config", {})
        self.name = about.get("name", "warmup-test")
        self.project = about.get("project", "gpt")
        self.manifest = about


RUN: Any = Run(
    tags=["sweep", "long run"],
    config={"lr": "1e-3", "optim": {"name": "adamw", "eps": 1e-8, "fused": True}, "a.b": {"c": 5}, "none": None,
            "seed": 7},
    created="2026-03-05T10:00:00.000000", wall_seconds=3600.5, repo_commit="abc123", notes="first try",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("config.lr > 1e-4", True), ("config.lr >= 1e-3", True), ("config.lr < 0.001", False),
        ("config.lr = .001", True),
        ("config.optim.name = adamw", True), ("config.optim.name = 'adamw'", True),
        ("config.optim.name = ADAMW", False),
        ("config.optim.name ~ ADAM*", True), ("config.optim.name !~ sgd*", True), ("config.optim.fused = true", True),
        ("config.optim.fused = 1", False), ("config.optim.fused != false", True), ("config.a.b.c = 5", True),
        ("config.seed in (1, 7)", True), ("config.seed not in (1, 7)", False), ("config.seed = '7'", True),
        ("config.missing = 3", False), ("config.missing != 3", False), ("not config.missing = 3", True),
        ("config.missing = null", True), ("config.missing != null", False), ("config.none = null", True),
        ("config.lr", True), ("config.missing", False), ("not config.missing", True), ("config.optim", True),
        ("config.optim.name > 5", False), ("config.seed > abc", False),
        ("tag = sweep", True), ("tag = 'long run'", True), ("tag != sweep", False), ("tag != other", True),
        ("tag in (x, sweep)", True), ("tags ~ long*", True), ("tag = null", False),
        ("status = finished and tag = sweep", True), ("status = failed or tag = sweep", True),
        ("status = failed and tag = x or id = r1", True), ("status = failed and (tag = x or id = r1)", False),
        ("STATUS = finished AND NOT project = other", True), ("name ~ *warm*", True), ("name = warmup-test", True),
        ("created > 2026-03-01", True), ("created < 2026-03-05", False), ("created >= '2026-03-05 10:00'", True),
        ("finished > 2026-01-01", False), ("wall_seconds > 3600", True), ("commit = abc123", True), ("cost > 0", False),
        ("notes ~ '*try'", True), ("project = \"gpt\"", True), ("id = r1", True),
    ],
)  # fmt: skip
def test_a_filter_says_what_it_means(text: str, expected: bool) -> None:
    assert matches(parse(text), RUN) is expected


def test_runs_without_tags_are_found_as_such() -> None:
    bare: Any = Run()
    assert matches(parse("tag = null and not tag"), bare) and matches(parse("tag != sweep"), bare)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "at its end"), ("config.lr >", "at its end.*expected a value"), ("lr > 3", "no field 'lr'.*'config.lr'"),
        ("statu = x", "no field 'statu'; the nearest is 'status'"), ("(status = x", r"expected `\)`"),
        ("status = x tag = y", "character 12.*expected `and`"),
        ("status = 'x", "character 10.*quote that is not closed"),
        ("status == == x", "expected a value"), ("wall_seconds > long", "wall_seconds is a number"),
        ("created > yesterday", "created is a time, such as 2026-01-31"), ("config.lr in ()", "expected a value"),
        ("config.lr in 3", r"expected `\(`"), ("and", "expected a field"), ("config. = 3", "no field"),
        ("__import__('os').system('x')", "no field"), ("not " * 200 + "id", "too many brackets"),
        ("(" * 5000 + "id" + ")" * 5000, "too many brackets"), ("status = x)", "expected `and`"),
        ("'status' = x", "expected a field"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(FilterError, match=sentence) as caught:
        parse(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


pieces = st.sampled_from(
    [*"()=<>~!,'\"", "and", "or", "not", "in", "status", "config.lr", "tag", "1e-3", "null", "<=", " ", "\\"]
)


@given(
    st.one_of(
        st.text(max_size=40), st.lists(pieces, max_size=15).map(" ".join), st.lists(pieces, max_size=15).map("".join)
    )
)
def test_any_text_is_a_condition_or_a_sentence(text: str) -> None:
    try:
        found = parse(text)
    except FilterError as error:
        assert str(error).startswith("the filter cannot be read")
    else:
        assert matches(found, RUN) in (True, False)
        assert parse(written(found)) == found


fields = st.one_of(
    st.sampled_from(sorted(name for name, kind in FIELDS.items() if kind in ("text", "texts") and name != "run")),
    st.from_regex(r"config\.[A-Za-z_][\w./-]{0,8}", fullmatch=True),
)
quoted = st.text(max_size=8).map(
    lambda text: Value("text", text, "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'")
)
bare = st.sampled_from([Value("word", "adamw", "adamw"), Value("flag", True, "true"), Value("null", None, "null")])
decimal = st.floats(allow_nan=False, allow_infinity=False).map(lambda number: Value("number", number, repr(number)))
values = st.one_of(quoted, bare, decimal)
operators = st.sampled_from(["=", "<", "<=", ">", ">=", "~"])
comparisons = st.one_of(
    st.builds(lambda field, op, value: Clause(field, op, (value,)), fields, operators, values),
    st.builds(lambda field, found: Clause(field, "in", tuple(found)), fields, st.lists(values, min_size=1)),
    st.builds(lambda field: Clause(field, "has"), fields),
)  # fmt: skip
conditions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.builds(lambda part: Group("not", (part,)), inner),
        st.builds(lambda op, parts: Group(op, parts), st.sampled_from(["and", "or"]), st.tuples(inner, inner)),
    ),
    max_leaves=6,
)  # fmt: skip


@given(conditions)
def test_a_condition_is_read_back_as_it_was_written(condition: Any) -> None:
    assert parse(written(condition)) == condition


@given(conditions)
def test_not_turns_the_answer_round(condition: Any) -> None:
    assert matches(Group("not", (condition,)), RUN) is not matches(condition, RUN)


def test_stored_runs_are_found_by_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAROGRAPH_DIR", str(tmp_path))
    quiet: dict[str, Any] = {"verbosity": -2, "git": False, "doctor": False, "machine": False, "ranks": False}
    for number in range(2):
        run = barograph.init(project="p", id=f"r{number}", tags=["sweep"], config={"lr": 10.0**-number}, **quiet)
        run.log({"train/loss": 3.0 - number}, step=4)
        run.finish()
    assert [run.id for run in runs(where="config.lr < 1 and tag = sweep")] == ["r1"]
    assert [run.id for run in runs("loss > 2.5 and step = 4")] == ["r0"]
    assert [run.id for run in runs(tmp_path, "p")] == ["r0", "r1"]
