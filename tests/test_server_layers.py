"""Heat maps, distributions and loads of experts: no extreme lost, the model's order, what is not there said."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from served_runs import QUIET, Browser

import barograph
from barograph.views.server.layers import in_depth, tables

LAYERS = ["embed.weight", *(f"layers.{at}.mlp" for at in range(12)), "head.weight"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    run = barograph.init(project="p", id="a", dir=str(place), **QUIET)
    for step in range(100):
        values = {f"gradients/{layer}/norm": 1.0 + at for at, layer in enumerate(LAYERS)}
        if step == 57:
            values["gradients/layers.3.mlp/norm"] = -1000.0
            values["gradients/layers.4.mlp/norm"] = math.nan
        if step % 2:
            values.pop("gradients/head.weight/norm")
        run.log(values | {"weights/a/b/std": 1.0, "train/loss": 1.0}, step=step)
        run.log({f"moe/layers.{at}/load/{expert}": step + expert for at in (0, 1) for expert in range(4)}, step=step)
        if step % 10 == 0:
            run.log_histogram("weights_hist/a", [1, 2, 3, step], step, edges=np.arange(5.0) * (step + 1))
    run.finish()
    run = barograph.init(project="p", id="plain", dir=str(place), **QUIET)
    run.log({"train/loss": 1.0}, step=0)
    run.finish()
    return place


@pytest.fixture
def browser(root: Path) -> Iterator[Browser]:
    with Browser(root) as made:
        yield made


def test_a_map_of_every_step(browser: Browser) -> None:
    header, columns = browser.frame("/api/runs/p/a/layers?table=gradients&field=norm&buckets=200")
    assert header["layers"] == LAYERS and header["steps"] == 100 and header["tables"] == ["gradients", "weights"]
    value = columns["value"].reshape(len(LAYERS), 100)
    assert columns["step"].tolist() == list(range(100))
    assert value[4, 57] == -1000.0 and value[4, 58] == 5.0
    assert np.isnan(value[13, 1::2]).all() and (value[13, ::2] == 14.0).all()
    assert header["marks"] == [[5, 57, "nan"]] and np.isnan(value[5, 57])


def test_a_spike_stays_in_a_coarse_map(browser: Browser) -> None:
    header, columns = browser.frame("/api/runs/p/a/layers?buckets=7")
    value = columns["value"].reshape(len(header["layers"]), header["steps"])
    assert header["steps"] == 7 and value[4].min() == -1000.0
    assert (value[5] == 6.0).all() and header["marks"] == [[5, int(57 // (100 / 7)), "nan"]]


def test_layers_may_have_slashes(browser: Browser) -> None:
    header, _ = browser.frame("/api/runs/p/a/layers?table=weights")
    assert header["layers"] == ["a/b"] and header["field"] == "std"


def test_what_a_run_has_not_got_is_said(browser: Browser) -> None:
    assert "nothing by layer" in browser.get("/api/runs/p/plain/layers?table=gradients", 404)["error"]
    assert "no table 'nope'" in browser.get("/api/runs/p/a/layers?table=nope", 404)["error"]
    assert "no field 'nope'" in browser.get("/api/runs/p/a/layers?table=gradients&field=nope", 404)["error"]
    assert "no histogram 'x'" in browser.get("/api/runs/p/a/histograms?name=x", 404)["error"]
    assert "no histogram 'x'" in browser.get("/api/runs/p/plain/histograms?name=x", 404)["error"]
    assert "whole number" in browser.get("/api/runs/p/a/layers?buckets=many", 400)["error"]


def test_a_run_with_nothing_of_a_kind_is_answered_with_empty_columns(browser: Browser) -> None:
    for kind, columns in (("layers", "step value"), ("histograms", "edges counts offsets"), ("experts", "step load")):
        header, found = browser.frame(f"/api/runs/p/plain/{kind}")
        assert sorted(found) == sorted(columns.split()) and all(len(column) == 0 for column in found.values())
        assert not header.get("layers") and not header.get("names")


def test_distributions_over_time(browser: Browser) -> None:
    header, columns = browser.frame("/api/runs/p/a/histograms?name=weights_hist/a")
    assert header["steps"] == list(range(0, 100, 10)) and header["total"] == 10
    offsets = columns["offsets"].astype(int)
    for at, step in enumerate(header["steps"]):
        edges = columns["edges"][offsets[at] : offsets[at + 1]]
        counts = columns["counts"][offsets[at] - at : offsets[at + 1] - at - 1]
        assert edges.tolist() == (np.arange(5.0) * (step + 1)).tolist() and counts.tolist() == [1, 2, 3, step]
    header, _ = browser.frame("/api/runs/p/a/histograms?most=3")
    assert header["steps"] == [0, 40, 90] or header["steps"] == [0, 50, 90]


def test_loads_of_experts(browser: Browser) -> None:
    header, columns = browser.frame("/api/runs/p/a/experts?buckets=10")
    assert header["layers"] == ["layers.0", "layers.1"] and header["experts"] == 4
    load = columns["load"].reshape(2, header["steps"], 4)
    assert load[1, 0].tolist() == [4.5, 5.5, 6.5, 7.5], "the mean of steps 0 to 9"


def test_the_order_of_layers_is_the_models() -> None:
    given = ["norm.weight", "layers.10.w", "layers.9.w", "wte.weight", "layers.9.a"]
    assert in_depth(given) == ["wte.weight", "layers.9.a", "layers.9.w", "layers.10.w", "norm.weight"]


def test_ranks_devices_and_numbers_are_no_layers() -> None:
    names = ["gpu/0/power", "gpu/1/power", "ranks/by_rank/0", "a/b/1", "a/c/1", "x/y", "optimizer/w/step_max"]
    assert list(tables(names)) == ["optimizer"]
