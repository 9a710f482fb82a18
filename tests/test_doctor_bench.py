"""The fault bench: its tables hold together, and one program does what its labels say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from barograph.query.stored import StoredRun

BENCH = Path(__file__).parent.parent / "benchmarks" / "doctor"

PROGRAM = """
import sys
sys.path[:0] = [{bench!r}, {source!r}]
import traces
from pathlib import Path
out = Path({out!r})
for kind in ("plain", "gradient_nonfinite"):
    trace = traces.Trace("dense_gpt", kind, 0)
    traces.make(trace, out, steps=12)
from labels import label
import json
print(json.dumps(label(trace, out, traces.placed(trace, 12))))
"""


@pytest.fixture(scope="module")
def tables() -> Any:
    sys.path.insert(0, str(BENCH))
    try:
        import faults
        import healthy

        yield faults.FAULTS, healthy.HEALTHY
    finally:
        sys.path.remove(str(BENCH))


def test_every_fault_has_kinds_that_findings_have(tables: Any) -> None:
    from barograph.doctor.kernel.finding import KINDS, SEVERITIES

    faults, _ = tables
    assert len(faults) >= 30
    for fault in faults.values():
        assert set(fault.kinds) <= KINDS, fault.name
        assert fault.severity in SEVERITIES
        assert fault.programs and fault.about and fault.cause


def test_onsets_are_in_the_middle_and_the_same_for_the_same_seed(tables: Any) -> None:
    faults, _ = tables
    jump, stale = faults["learning_rate_jump"], faults["optimizer_stale"]
    onsets = [jump.placed(seed, 200, 25, "dense_gpt").onset for seed in range(20)]
    assert all(70 <= onset <= 140 for onset in onsets) and len(set(onsets)) > 10
    assert onsets[3] == jump.placed(3, 200, 25, "dense_gpt").onset
    assert stale.placed(3, 200, 25, "dense_gpt").onset == 0
    resumed = [faults["data_replayed"].placed(seed, 200, 25, "dense_gpt").onset for seed in range(20)]
    assert all(onset % 25 == 0 and onset > 0 for onset in resumed)


def test_half_of_the_healthy_variants_resemble_a_fault(tables: Any) -> None:
    _, healthy = tables
    runs = [(one.near_miss, one.copies * len(one.programs)) for one in healthy.values()]
    near = sum(number for miss, number in runs if miss)
    assert 2 * near >= sum(number for _, number in runs)


@pytest.mark.slow
def test_a_faulty_run_is_the_healthy_one_up_to_its_onset(tmp_path: Path) -> None:
    code = PROGRAM.format(bench=str(BENCH), source=str(BENCH.parent.parent / "src"), out=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    label = json.loads(done.stdout.splitlines()[-1])
    onset = label["onset"]
    assert 4 <= onset <= 8 and label["cause"] == "non-finite gradient" and label["visible"]
    well, sick = (
        StoredRun(tmp_path / "dense_gpt" / f"{kind}-0").series("train/loss").y.tolist()
        for kind in ("plain", "gradient_nonfinite")
    )
    assert len(well) == len(sick) == 12
    assert sick[: onset + 1] == well[: onset + 1]  # the gradient is bad at the onset, the loss a step later
    assert all(loss != loss for loss in sick[onset + 1 :])
    assert well[-1] < well[0]
