"""Leaving rows out before a query is answered changes no answer."""

from __future__ import annotations

import json
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.query.pushdown import ANY, EVERYTHING, wanted

duckdb = pytest.importorskip("duckdb")

COLUMNS = {
    "points": frozenset({"project", "run", "name", "step", "value"}),
    "runs": frozenset({"project", "run", "name", "loss"}),
    "configs": frozenset({"project", "run", "key", "number"}),
}
POINTS = [
    {"project": project, "run": run, "name": name, "step": step, "value": float(step + len(run))}
    for project, run in (("p", "a"), ("p", "b"), ("q", "c"))
    for name in ("train/loss", "train/lr", "eval/loss")
    for step in (0, 3)
    if (run, name) != ("b", "eval/loss")
]
POINTS.append({"project": "p", "run": "a", "name": "late", "step": 5, "value": 9.0})
RUNS = [
    {"project": "p", "run": "a", "name": "train/lr", "loss": 1.0},
    {"project": "q", "run": "c", "name": "x", "loss": 2.0},
    {"project": "q", "run": "d", "name": "train/loss", "loss": 3.0},
]
CONFIGS = [
    {"project": "p", "run": "a", "key": "lr", "number": 0.1},
    {"project": "p", "run": "b", "key": "lr", "number": 0.2},
]
TABLES = {"points": POINTS, "runs": RUNS, "configs": CONFIGS}


CONNECTION = duckdb.connect(":memory:")
SCHEMAS = {name: pyarrow.Table.from_pylist(content).schema for name, content in TABLES.items()}


def tree(query: str) -> dict[str, Any]:
    (row,) = CONNECTION.execute("select json_serialize_sql(?)", [query]).fetchall()
    return json.loads(row[0])


def ask(query: str, tables: dict[str, list[dict[str, Any]]]) -> tuple[Any, ...] | None:
    """The rows in a fixed order; None where the query is none."""
    for name, content in tables.items():
        CONNECTION.register(name, pyarrow.Table.from_pylist(content, SCHEMAS[name]))
    try:
        return tuple(sorted(map(repr, CONNECTION.execute(query).fetchall())))
    except duckdb.Error:
        return None


def reduced(query: str) -> dict[str, list[dict[str, Any]]]:
    found = wanted(tree(query), COLUMNS)
    keys = ("project", "run", "name")
    return {
        name: [row for row in content if found.condition(name).allows({key: row[key] for key in keys if key in row})]
        for name, content in TABLES.items()
    }


VALUES = ["train/loss", "train/lr", "eval/loss", "a", "c", "d", "p", "q", "x", "nothing"]
value = st.sampled_from(VALUES).map("'{}'".format)


def conditions(how: str) -> st.SearchStrategy[str]:
    """What can stand in WHERE behind a join: mostly about `p`, of which rows can be left out."""
    columns = ["p.name", "p.run", "p.project"]
    columns += ["name", "run", "project"] if not how else []
    columns += ["run"] if "using (run)" in how else []
    columns += ["r.name", "r.run"] if " runs r" in how and not how.startswith(("semi", "anti")) else []
    column = st.sampled_from(columns)
    test = st.one_of(
        st.builds("{} = {}".format, column, value),
        st.builds("{1} = {0}".format, column, value),
        st.builds("{} in ({}, {})".format, column, value, value),
        st.builds("{} like {}".format, column, st.sampled_from(["'train/%'", "'%loss'", "'_'", "'%'", "'TRAIN/%'"])),
        st.builds("starts_with({}, 'train')".format, column),
        st.sampled_from(["p.name = 'train/lr'", "p.name in ('train/lr', 'eval/loss')", "p.run = 'a'"]),
        st.builds("{} <> {}".format, column, value),
        st.builds("{} not in ({})".format, column, value),
        st.builds("{} not like 'train/%'".format, column),
        st.builds("{} is null".format, column),
        st.builds("coalesce({}, 'x') = {}".format, column, value),
        st.just("p.step > 0"),
        st.just("exists (select 1 from points z where z.run = p.run and z.name = 'eval/loss')"),
        st.just("p.run in (select run from configs where number > 0.1)"),
        st.just("p.run in (select run from runs where name = 'x')"),
    )
    return st.recursive(
        test,
        lambda inner: st.one_of(
            st.builds("({} and {})".format, inner, inner),
            st.builds("({} and {})".format, st.just("p.name = 'train/lr'"), inner),
            st.builds("({} or {})".format, inner, inner),
            st.builds("not ({})".format, inner),
        ),
        max_leaves=4,
    )


join = st.sampled_from(
    [
        "", "join runs r using (run)", "left join runs r using (run)", "right join runs r using (run)",
        "full join runs r using (run)", "join runs r on r.run = p.run and p.name = 'train/lr'",
        "left join runs r on r.run = p.run and r.name = 'x' and p.name = 'train/loss'",
        "full join runs r on r.run = p.run and p.name = 'train/lr'",
        "semi join runs r on r.run = p.run and r.name = 'x'",
        "anti join runs r using (run)", "asof join points r on r.run = p.run and p.step >= r.step", "cross join runs r",
        "positional join runs r", "natural join runs r", ", runs r", "join configs r using (project, run)",
        "left join lateral (select name from runs r2 where r2.run = p.run) r on true",
        "join (select run, name as other from points where name = 'train/lr') r using (run)",
    ]
)  # fmt: skip
select = st.sampled_from(["p.*", "count(*)", "p.run, p.name, p.step", "upper(p.name) as name, p.step", "max(p.value)"])
shape = st.sampled_from(
    [
        "select {0} from points p {1} where {2}",
        "select {0} from points as P {1} where {2}",
        "with s as (select {0} from points p {1} where {2}) select * from s",
        "with points as (select * from points where name = 'train/lr') select {0} from points p {1} where {2}",
        "select * from (select {0} from points p {1} where {2}) s, (select count(*) from points) t",
        "select {0} from points p {1} where {2} union all select {0} from points p where p.name = 'train/lr'",
        "select * from query('select * from points') where exists (select {0} from points p {1} where {2})",
        "select (select count(*) from points p {1} where {2}) n, count(*) from configs",
        "select count(*) from points p(project, name, run, step, value) {1} where {2}",
        "select * from (select max(name) from points), (select {0} from points p {1} where {2}) s",
    ]
)


@st.composite
def queries(draw: st.DrawFn) -> str:
    how = draw(join)
    return draw(shape).format(draw(select), how, draw(conditions(how)))


@settings(max_examples=60, deadline=None)
@given(queries())
def test_the_answer_over_what_is_read_is_the_answer_over_everything(query: str) -> None:
    assert ask(query, reduced(query)) == ask(query, TABLES)


@pytest.mark.parametrize(
    "query",
    [
        "select r.name from configs c asof join points r on r.run = c.run and c.number + 9 >= r.step "
        "where r.name = 'train/lr'",
        "select count(*) from runs r full join points p on r.run = p.run and p.name = 'train/lr' where p.step >= 0",
        "select count(*) from runs r right join points p on r.run = p.run and p.name = 'train/lr'",
        "select count(*) from points p left join runs r on r.run = p.run and p.name = 'train/lr'",
        "select r.run from runs r semi join points p on r.run = p.run where name = 'x'",
        "select r.run from runs r anti join points p on r.run = p.run where name = 'train/loss'",
        "with points as (select run, 'train/loss' as name from points where name = 'late') "
        "select * from points where name = 'train/loss' and run = 'a'",
        "select count(*) from points p(project, name, run, step, value) where p.run = 'late'",
        "select count(*) from points a join points b using (run) where a.name = 'late' and b.name = 'train/lr'",
        "select (select count(*) from points), count(*) from points where name = 'late'",
        "select (select count(*) from query('select 1 from points')), count(*) from points where name = 'late'",
        "select run from runs r where exists (select 1 from points p where p.run = r.run and r.name = 'x')",
        "select p.name from (select name, run from points) p where p.name = 'late'",
        "select count(*) from points where name = 'late' or step = 0",
        "select count(*) from points positional join runs where points.name = 'late'",
        "pivot points on name in ('late', 'train/lr') using count(*) group by run",
    ],
)
def test_joins_and_names_that_could_mislead(query: str) -> None:
    whole = ask(query, TABLES)
    assert whole is not None
    assert ask(query, reduced(query)) == whole


@pytest.mark.parametrize(
    ("query", "names", "runs"),
    [
        ("select avg(value) from points where name = 'train/loss'", {"train/loss"}, None),
        ("select 1 from points p join runs r using (run) where p.name in ('x', 'y') and r.run = 'a'", {"x", "y"}, None),
        ("select 1 from points where (name = 'x' or name = 'y') and run = 'a' and step > 3", {"x", "y"}, {"a"}),
        ("select 1 from points where name = 'x' or step > 3", None, None),
        ("select (select 1 from points where name = 'x'), (select 1 from points where name = 'y')", {"x", "y"}, None),
        ("select 1 from points where name = $1", {"given"}, None),
    ],
)  # fmt: skip
def test_conditions_save_reading(query: str, names: set[str] | None, runs: set[str] | None) -> None:
    found = wanted(tree(query), COLUMNS, {"1": "given"}).condition("points")
    assert found.exact("name") == names
    assert found.exact("run") == runs


def test_what_is_mentioned_is_known_and_whole_rows_mention_all() -> None:
    assert wanted(tree("select run, count(*) from runs group by run"), COLUMNS).columns == {"run"}
    for query in ("select * from runs", "select runs from runs", "select r from runs r", "summarize runs",
                  "select columns('l.*') from runs", "from runs"):  # fmt: skip
        assert wanted(tree(query), COLUMNS).columns is None, query


def test_a_tree_that_is_not_understood_lets_everything_through() -> None:
    strange: list[Any] = [None, {"error": True}, {"type": "SELECT_NODE", "from_table": {"type": "BASE_TABLE"}}]
    for one in strange:
        assert wanted(one, COLUMNS) is EVERYTHING
    assert EVERYTHING.condition("points") is ANY and EVERYTHING.columns is None
