"""The page's filter lets through the runs that Python's does, also when it is asked again and after changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from served_runs import Browser, finished, trained

import barograph
from barograph.query import curation
from barograph.query.filters import FIELDS, FilterError, select

WORDS = ("p", "a", "lr", "sweep", "0.1", "1e-3", "adamw", "*a*", "'long run'", "finished", "true", "null", "5", "19")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A server over runs that ended, one that was edited, and one that goes on."""
    root = tmp_path_factory.mktemp("served")
    finished(root, "a", 20, config={"lr": 0.1, "optim": {"name": "adamw", "fused": True}}, tags=["sweep"])
    finished(root, "b", 6, config={"lr": "1e-3", "optim.name": "sgd", "seed": 5}, notes="long run")
    finished(root, "bare", 0)
    curation.edit(finished(root, "edited", 20, project="q"), name="a", tags=["sweep", "long run"], notes="true")
    run = trained(root, "live", 20, config={"lr": 5})
    with Browser(root) as made:
        yield made
    run.finish()


def asked(browser: Browser, text: str) -> list[str]:
    return sorted(browser.get(f"/api/matching?filter={quote(text)}")["keys"])


def in_python(browser: Browser, text: str) -> list[str]:
    return sorted(
        f"{run.dir.parent.name}/{run.dir.name}" for run in select(barograph.runs(browser.server.places.root), text)
    )


fields = st.sampled_from([*FIELDS, "config.lr", "config.optim", "config.optim.name", "config.seed", "config.none"])
words = st.sampled_from(WORDS)
clauses = st.one_of(
    fields,
    st.builds("{} {} {}".format, fields, st.sampled_from(["=", "!=", "<", ">=", "~", "!~"]), words),
    st.builds("{} in ({}, {})".format, fields, words, words),
)
conditions = st.recursive(
    clauses,
    lambda inner: st.one_of(
        st.builds("not ({})".format, inner),
        st.builds("({}) {} ({})".format, inner, st.sampled_from(["and", "or"]), inner),
    ),
    max_leaves=4,
)


@settings(max_examples=80, deadline=None)
@given(conditions)
def test_a_filter_of_the_page_lets_through_what_python_does(browser: Browser, text: str) -> None:
    try:
        expected = in_python(browser, text)
    except FilterError:  # such as created = adamw
        if any(sign in text for sign in "=<>~"):
            browser.get(f"/api/matching?filter={quote(text)}", 400)
        return
    assert asked(browser, text) == asked(browser, text) == expected
    rows = browser.get(f"/api/runs?filter={quote(text)}")["runs"]
    assert sorted(row["key"] for row in rows) == expected


def test_words_are_looked_for_in_what_the_row_shows(browser: Browser) -> None:
    assert asked(browser, "adamw SWEEP") == ["p/a"] and asked(browser, "long") == ["p/b", "q/edited"]
    assert asked(browser, "") == ["p/a", "p/b", "p/bare", "p/live", "q/edited"]


def test_what_was_kept_of_a_run_goes_when_the_run_changes(tmp_path: Path) -> None:
    folder = finished(tmp_path, "a", 20, config={"lr": 0.1})
    texts = ("name = other", "other", "config.lr = 0.2", "0.2", "tag = new", "status = killed")

    def answers(browser: Browser) -> dict[str, bool]:
        browser.server.table.refresh(force=True)
        return {text: bool(asked(browser, text)) for text in texts}

    def rewrite(**changes: Any) -> None:
        path = folder / "run_manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    with Browser(tmp_path) as browser:
        assert not any(answers(browser).values())
        curation.edit(folder, name="other", tags=["new"])
        assert [text for text, met in answers(browser).items() if met] == ["name = other", "other", "tag = new"]
        rewrite(config={"lr": 0.2}, status="killed")
        assert all(answers(browser).values())


def test_a_run_that_goes_on_is_judged_by_what_it_has_now(tmp_path: Path) -> None:
    run = trained(tmp_path, "a", 20)
    with Browser(tmp_path) as browser:
        assert asked(browser, "step < 25") == ["p/a"] and asked(browser, "step >= 25") == []
        run.log({"train/loss": 1.0}, step=30)
        assert asked(browser, "step < 25") == [] and asked(browser, "step >= 25") == ["p/a"]
    run.finish()
