"""A sharded model's figures are the unsharded model's, on real ranks; ranks that differ never wait for each other."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked_python
import pytest

pytest.importorskip("torch")

PROGRAM = Path(__file__).parent / "sharded_program.py"
# a mean is a small difference of large sums: it is held against the deviation, not against itself
MEANS = ("mean", "p50")
OWN = ("residual_growth", "log_z", "embedding_norm", "loss_weight", "passes")  # of the recording rank's batch and rows
# of a process's passes: the whole model has one for each rank's batch, and parts of parameters tell none
OF_PASSES = ("backwards", "loss_undivided", "loss_summed", "loss_classes", "activation_twice", "loss_reversed",
             "loss_multiplied", "label_smoothing", "softmax_over_rows", "nll_of_probabilities", "nll_of_scores",
             "logits_cut", "loss_given", "losses_given", "only_multiplied", "loss_logistic")  # fmt: skip
WHOLE = ("drawn", "gradient_growth")  # seen where a weight, or its gradient, is not cut


def launch(kind: str, size: int, folder: Path) -> list[dict[str, Any]]:
    """What each rank found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    source = str(PROGRAM.parents[1] / "src")
    ranks = [
        forked_python.start(
            sys.executable, PROGRAM, kind, folder / "found",
            needs=("torch.distributed.fsdp", "torch.distributed.tensor.parallel"),
            env=os.environ
            | {
                "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "PYTHONPATH": source,
            },
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(size)
    ]  # fmt: skip
    try:
        for rank in ranks:
            said, _ = rank.communicate(timeout=120)
            assert rank.returncode == 0, said[-2000:]
    finally:
        for rank in ranks:
            rank.kill()
    return [json.loads((folder / f"found.{rank}").read_text()) for rank in range(size)]


def compare(found: dict[str, Any], whole: dict[str, Any]) -> None:
    """All figures of the one are those of the other, to 1e-4."""
    for (step, fields), (other, expected) in zip(found["records"], whole["records"], strict=True):
        assert step == other
        for name, value in expected.items():
            if name in OWN:
                assert math.isfinite(fields[name]), (step, name)
            elif isinstance(value, str):
                assert fields[name] == value, (step, name)
            elif name not in (*OF_PASSES, *WHOLE) and not name.startswith("watch"):
                assert fields[name] == pytest.approx(value, rel=1e-4), (step, name)
    assert found["tables"].keys() == whole["tables"].keys()
    for key, table in whole["tables"].items():
        assert found["tables"][key].keys() == table.keys(), key
        if key.startswith("activations@"):
            continue
        for layer, row in table.items():
            for name, value in row.items():
                error = 1e-5 * row["std"] if name in MEANS and "std" in row else 1e-9
                assert found["tables"][key][layer][name] == pytest.approx(value, rel=1e-4, abs=error), (
                    key,
                    layer,
                    name,
                )
    assert found["histograms"].keys() == whole["histograms"].keys()
    for key, (edges, counts) in whole["histograms"].items():
        mine, amounts = found["histograms"][key]
        assert mine == pytest.approx(edges, rel=1e-4, abs=1e-5 * (edges[-1] - edges[0]))
        assert sum(amounts) == pytest.approx(sum(counts))
        # values beside a bucket's edge may fall to its other side
        assert sum(abs(one - two) for one, two in zip(amounts, counts, strict=True)) <= 0.02 * sum(counts) + 2, key


@pytest.mark.slow
@pytest.mark.parametrize("kind, size", [("fsdp", 2), ("fsdp", 4), ("hybrid", 4), ("tensor", 2), ("ddp", 2)])
def test_sharded_figures_are_those_of_the_whole_model(kind: str, size: int, tmp_path: Path) -> None:
    first, *others = launch(kind, size, tmp_path)
    assert not first["warnings"]
    compare(first, first["whole"])
    for other in others:  # what one rank says for all is not said twice
        assert not other["records"] and not other["tables"]
    if kind == "fsdp":
        assert first["metrics"]["grad_norm"] == pytest.approx(0.5, rel=1e-4)
        assert first["metrics"]["spectral_norm_max"] > 0
        assert all(other["metrics"] == first["metrics"] for other in others)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unequal", "missing"])
def test_ranks_that_watch_differently_train_on_and_say_so(kind: str, tmp_path: Path) -> None:
    first, _ = launch(kind, 2, tmp_path)
    words = "other intervals" if kind == "unequal" else "does not watch"
    assert any(f"rank 1 {words}" in sentence or words in sentence for sentence in first["warnings"])
    assert all(key.startswith("activations@") for key in first["tables"])
    assert all("grad_norm" not in fields for _, fields in first["records"])


@pytest.mark.slow
def test_a_watch_that_starts_later_on_one_rank_is_waited_for(tmp_path: Path) -> None:
    first, _ = launch("late", 2, tmp_path)
    seen = {step: "grad_norm" in fields for step, fields in first["records"]}
    assert seen == {1: False, 2: True, 3: True, 4: True}
    exact = dict(map(tuple, first["whole"]["records"]))
    for step, fields in first["records"][1:]:
        assert fields["param_norm"] == pytest.approx(exact[step]["param_norm"], rel=1e-5)


@pytest.mark.slow
def test_ranks_change_their_intervals_together(tmp_path: Path) -> None:
    first, second = launch("budget", 2, tmp_path)
    assert first["intervals"] == second["intervals"]
    assert first["intervals"]["norms"] > 1
    measured = [fields["grad_norm"] for _, fields in first["records"] if "grad_norm" in fields]
    assert measured and not any(map(math.isnan, measured))
