"""The assistants' server, spoken to by the protocol's own client, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import barograph
from barograph.core.record import mark_non_finite
from barograph.views.assistant.answers import MOST_BYTES, Answers, bounded

QUIET: dict[str, Any] = {"verbosity": -2, "git": False, "doctor": False, "machine": False, "ranks": False}
PROGRAM = "import sys; from barograph.views.assistant.mcp import run_mcp; sys.exit(run_mcp(sys.argv[1]))"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mcp") / "runs"
    for number in range(2):
        run = barograph.init(
            project="gpt",
            id=f"r{number}",
            dir=str(root),
            tags=["sweep"],
            config={"lr": 0.1 + number, "seed": 1},
            **QUIET,
        )
        for step in range(2000):
            run.log({"train/loss": 99.0 if step == 777 else 2.0 + (step % 7) / 10}, step=step)
        run.record("finding", 777, {"rule": "loss_spike", "severity": "warning", "message": "99 at step 777"})
        run.finish()
    return root


def test_an_assistant_gets_answers_over_the_protocol(folder: Path) -> None:
    pytest.importorskip("duckdb")
    mcp = pytest.importorskip("mcp")
    from mcp.client.stdio import StdioServerParameters, stdio_client

    server = StdioServerParameters(
        command=sys.executable, args=["-c", PROGRAM, str(folder)], env={"PYTHONPATH": ":".join(sys.path)}
    )
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}

    async def talk() -> None:
        async with mcp.Client(stdio_client(server)) as client:

            async def call(tool: str, /, **given: Any) -> tuple[bool, Any]:
                result = await client.call_tool(tool, given)
                (content,) = result.content
                assert len(content.text.encode()) <= MOST_BYTES
                return bool(result.is_error), content.text if result.is_error else json.loads(content.text)

            tools = (await client.list_tools()).tools
            assert {tool.name for tool in tools} == {
                "list_runs", "run_summary", "list_series", "series", "findings", "doctor", "config_diff", "compare",
                "forecast", "scaling", "lineage", "report", "schema", "sql",
            }  # fmt: skip
            assert all(tool.annotations.read_only_hint and tool.description for tool in tools)

            _, said = await call("list_runs", where="config.lr > 1 and tag = sweep")
            assert [(run["run"], run["step"], run["loss"]) for run in said["runs"]] == [("r1", 1999, 2.4)]
            _, said = await call("run_summary", run="r0")
            assert said["config"] == {"lr": 0.1, "seed": 1} and said["series"]["train/loss"]["max_step"] == 777
            assert said["findings"][0]["message"] == "99 at step 777"
            _, said = await call("series", run="r0", name="loss", points=50)
            assert len(said["rows"]) <= 50 and [777, 99.0] in said["rows"] and said["points"] == 2000
            _, said = await call("series", run="r0", name="loss", first_step=10, last_step=12)
            assert said["rows"] == [[10, 2.3], [11, 2.4], [12, 2.5]]
            _, said = await call("list_series", run="r0", pattern="train/*")
            assert said["names"] == ["train/loss"]
            _, said = await call("findings", run="r0")
            assert [one["rule"] for one in said["findings"]] == ["loss_spike"]
            _, said = await call("doctor", run="r0")
            assert {"loss_spike"} <= {one["rule"] for one in said["findings"]}
            _, said = await call("config_diff", runs=["r0", "r1"])
            assert said["differs"] == {"config.lr": {"r0": "0.1", "r1": "1.1"}}
            failed, said = await call("compare", runs=["r0", "r1"])
            assert failed or "verdict" in said
            _, said = await call("report", runs=["r0"], section="loss")
            assert list(said["markdown"]) == ["loss"] and "99" in said["markdown"]["loss"]
            assert {"header", "loss", "findings"} <= set(said["sections"])
            _, said = await call("report", runs=["r0", "r1"])
            assert list(said["markdown"]) == said["sections"]
            _, said = await call("sql", query="select run, max(value) from points where name = 'train/loss' group by 1")
            assert sorted(said["rows"]) == [["r0", 99.0], ["r1", 99.0]]
            _, said = await call("sql", query="select *, repeat('x', 500) from points", limit=500)
            assert "entries" in said["truncated"] and "more" in said["note"]

            for name, given, sentence in (
                ("sql", {"query": "copy runs to '/tmp/x'"}, "COPY is refused"),
                ("sql", {"query": "select * from read_text('/etc/hostname')"}, "disabled"),
                ("series", {"run": "r0", "name": "train/los"}, "the nearest is 'train/loss'"),
                ("series", {"run": str(folder / "gpt" / "r0"), "name": "loss"}, "there is no run"),
                ("run_summary", {"run": "../" * 5000}, "there is no run"),
                ("list_runs", {"where": "lr > 1"}, "the nearest is 'config.lr'"),
                ("config_diff", {"runs": ["r0"]}, "two runs or more"),
                ("report", {"runs": ["r0"], "section": "lss"}, "it has loss, header"),
                ("report", {"runs": []}, "name a run"),
            ):  # fmt: skip
                failed, said = await call(name, **given)
                assert failed and sentence in said and "Traceback" not in said

    asyncio.run(asyncio.wait_for(talk(), 120))
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before, "the server only reads"


def test_a_run_is_found_in_the_folder_alone(folder: Path) -> None:
    answers = Answers(folder)
    assert answers.find("gpt/r0").id == "r0" and answers.find("r1").id == "r1"
    for which in (str(folder / "gpt" / "r0"), "../runs/gpt/r0", "", "r9"):
        with pytest.raises(KeyError, match="there is no run"):
            answers.find(which)


plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=300)),
    lambda inner: st.one_of(st.lists(inner, max_size=30), st.dictionaries(st.text(max_size=20), inner, max_size=15)),
    max_leaves=60,
)


@given(st.dictionaries(st.sampled_from(["rows", "note", "series", "config"]), plain), st.integers(600, 4000))
def test_an_answer_is_json_and_bounded_whatever_it_holds(answer: dict[str, Any], most: int) -> None:
    text = bounded(answer, most)
    assert len(text.encode()) <= most
    said = json.loads(text)
    assert isinstance(said, dict)
    if "truncated" not in said:
        assert said.keys() == answer.keys()


def test_what_is_cut_is_cut_from_the_end_and_told() -> None:
    said = json.loads(bounded({"run": "r", "rows": [[step, math.nan] for step in range(50_000)], "note": "n"}))
    shown = len(said["rows"])
    assert 1000 < shown < 50_000 and said["rows"][-1] == [shown - 1, mark_non_finite(math.nan)]
    assert said["truncated"] == f"rows: the first {shown} of 50000 entries" and said["note"] == "n"


def test_an_argument_that_a_tool_does_not_have_is_refused_with_the_nearest(folder: Path) -> None:
    pytest.importorskip("duckdb")
    pytest.importorskip("mcp")
    from barograph.views.assistant.mcp import make_server

    server = make_server(folder)
    names = {tool.name for tool in asyncio.run(server.list_tools())}
    assert {"forecast", "scaling", "lineage"} <= names
    given = {"series": {"run": "r0", "name": "train/loss", "max_points": 20}, "lineage": {"run": "r0", "depth": 2}}
    for tool, arguments in given.items():
        with pytest.raises(Exception, match=r"there is no argument '(max_points|depth)' of (series|lineage); the near"):
            asyncio.run(server.call_tool(tool, arguments))
    for tool, arguments in {
        "forecast": {"run": "r0", "planned_steps": 4000}, "lineage": {"run": "r0"},
        "compare": {"runs": ["r0", "r1"], "level": 0.01, "group": "lr"},
    }.items():  # fmt: skip
        answer = asyncio.run(server.call_tool(tool, arguments))
        assert json.loads(answer.content[0].text if hasattr(answer, "content") else answer[0].text)
    assert Answers(folder).compare(["r0", "r1"], level=0.01)["level"] == 0.01
