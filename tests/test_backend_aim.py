"""What goes in is what Aim's own library finds in its repository; and Aim never holds up a program."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tracker_programs import ODD, facts, made, of_kind, points, run_program, series, write_records

from barograph.importing.aim import SOURCE
from barograph.importing.source import ImportedDistribution, Item
from barograph.trackers.aim import even

CONFIG = """
from barograph.trackers.aim import AimBackend
logging.basicConfig(level=logging.INFO)
AimBackend.stall_seconds = AimBackend.close_seconds = 100  # this machine may be busy
config = SimpleNamespace(aim_repo="repository", project="pretraining", name="first", aim_run_id="",
                         tags=["seed=7"], notes="about it")
"""
SEND = """
backend = AimBackend(config, run_config={"lr": 3e-4, "model": {"width": 768}, "big": 2**70})
for step, metrics in json.load(open("logged.json")):
    backend.log(metrics, step)
backend.log_histogram("gradients", [0.0, 0.5, 1.0], [3, 4], 510)
backend.log_config({"seed": 7})
backend.sender.put(backend._write_text, ("sample", "once upon a time", 520, 1e9), 1)
backend.sender.put(backend._write_note, ("loss is high", "by much", "warning", 521, 1e9), 1)
backend.sender.put(backend._write_parts, ("flops", "FLOPs", {"attention": 0.25}, 522, 1e9), 1)
assert backend.close(), backend.lost
assert config.aim_run_id == backend.run_id
"""
ASK = """
import aim
run = aim.Run(backend.run_id, repo="repository", system_tracking_interval=None, capture_terminal_logs=False)
found = {}
for metric in run.metrics():
    steps, (values, times) = metric.data.view(["val", "time"]).numpy()
    rows = zip(steps, values, times)
    found[metric.name] = [[int(step), repr(float(value)), float(moment)] for step, value, moment in rows]
print(json.dumps([found, run["hparams"], run.name, run.experiment, run.tags, run.description]))
"""


def read(folder: Path) -> tuple[object, list[Item]]:
    [found] = SOURCE.find(folder / ".aim", b"")
    return found, list(SOURCE.read(found))


def test_every_point_arrives_and_comes_back(tmp_path: Path) -> None:
    pytest.importorskip("aim")
    logged = [*made(1, 60), (5000, ODD), (5001, {"": 1.0, "phase": "up", "none": None})]
    write_records(tmp_path / "logged.json", logged)
    began = time.time()
    printed, told = run_program(CONFIG + SEND + ASK, tmp_path)
    found, hparams, name, experiment, tags, description = json.loads(printed.splitlines()[-1])
    assert (name, experiment, description) == ("first", "pretraining", "about it")
    assert sorted(tags) == ["seed=7", "warning"]
    assert hparams == {"lr": 3e-4, "model/width": 768, "big": str(2**70), "seed": 7}
    expected = {one: sorted(rows) for one, rows in series(logged).items()}
    expected["unnamed"] = expected.pop("")
    expected["flops/attention"] = [(522, "0.25")]
    assert {one: [(step, value) for step, value, _ in rows] for one, rows in found.items()} == expected
    for one, rows in found.items():
        if one != "flops/attention":
            assert all(began - 1 < moment < time.time() + 1 for _, _, moment in rows)
    assert found["flops/attention"][0][2] == 1e9, "the time at which it was logged"
    _, items = read(tmp_path / "repository")
    assert points(items) == expected
    [gradients] = of_kind(items, ImportedDistribution)
    assert gradients.edges.tolist() == [0.0, 0.5, 1.0] and gradients.counts.tolist() == [3.0, 4.0]
    texts = {name: text for fact in facts(items, "metrics") for name, text in fact.fields.items()}
    assert texts == {"phase": "up", "sample": "once upon a time", "notes": "loss is high\nby much"}
    assert "WARNING" not in told, told


@pytest.mark.slow
def test_a_run_goes_on_by_its_id_also_after_a_kill(tmp_path: Path) -> None:
    pytest.importorskip("aim")
    send = """
        def send(steps, end=True, **more):
            backend = AimBackend(config, **more)
            for step in steps:
                backend.log({"train/loss": step / 7, "barograph_offset": float(step)}, step)
            if end:
                assert backend.close(), backend.lost
            return backend
    """
    first = """
        backend = send(range(10), end=False, run_config={"lr": 1})
        while not backend.run_id or backend.sender.queue:
            time.sleep(0.05)
        time.sleep(0.3)
        print(backend.run_id, flush=True)
        os._exit(0)
    """
    second = """
        config.aim_run_id = sys.argv[1]
        backend = send(range(8, 20), run_config={"depth": 12})
        assert backend.run_id == sys.argv[1]
        other = AimBackend(SimpleNamespace(aim_repo="repository"))
        other._resume({"run_id": "0" * 24})
        other.log({"x": 1.0}, 1)
        assert other.close() and other.begins_anew and other.run_id != backend.run_id
        third = AimBackend(config)
        third.log({"y": 1.0}, 30)
        while not third.run_id or third.sender.queue:
            time.sleep(0.05)
        assert sorted(third._held("barograph_offset")) == list(range(20)), third._held("barograph_offset")
        assert third._held("missing") == []
        assert third.close()
    """
    body = CONFIG + "if True:" + send
    key, _ = run_program(body + first, tmp_path)
    _, told = run_program(body + second, tmp_path, key.strip())
    assert "WARNING" not in told, told
    by_key = {found.key: found for found in SOURCE.find(tmp_path / "repository" / ".aim", b"")}
    items = list(SOURCE.read(by_key[key.strip()]))
    assert list(points(items)) == ["train/loss", "y"], "a mirror's own numbers stay away"
    assert points(items)["train/loss"] == [(step, repr(step / 7)) for step in range(20)]
    assert by_key[key.strip()].config == {"lr": 1, "depth": 12} and len(by_key) == 2


def test_a_missing_library_costs_one_sentence(tmp_path: Path) -> None:
    body = """
        sys.modules["aim"] = None
        backend = AimBackend(config)
        backend.log({"x": 1.0}, 1)
        assert not backend.close() and backend.lost == 1
    """
    _, told = run_program(CONFIG + "if True:" + body, tmp_path)
    assert told.count("WARNING") == 1 and "pip install aim" in told


@settings(deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40, unique=True).map(sorted),
    st.lists(st.integers(0, 1000), min_size=39, max_size=39),
    st.booleans(),
)
def test_a_histogram_made_even_keeps_its_values_and_its_ends(
    edges: list[float], counts: list[int], is_open: bool
) -> None:
    heights = [float(count) for count in counts[: len(edges) - 1]]
    ends = edges
    if is_open:
        ends, heights = [-math.inf, *edges, math.inf], [2.0, *heights, 3.0]
    made_edges, made_heights = even(list(ends), list(heights))
    assert math.isclose(sum(made_heights), sum(heights), rel_tol=1e-9, abs_tol=1e-6)
    assert made_edges[0] == edges[0] and made_edges[-1] == edges[-1]
    assert len(made_edges) == len(made_heights) + 1 <= 513
    assert all(height >= -1e-6 for height in made_heights)


def test_a_histogram_that_is_even_stays_as_it_is() -> None:
    edges = [0.1 * place for place in range(31)]
    assert even(list(edges), [1.0] * 30) == (edges, [1.0] * 30)
    with pytest.raises(ValueError, match="two edges"):
        even([math.inf, 1.0], [1.0])
