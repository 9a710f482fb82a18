"""Calls about torch in a process that has none: one clear sentence, and the training goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys, barograph
sys.modules.pop("torch", None)
run = barograph.init(project="p", dir=sys.argv[1], console="none", git=False, machine=False)
run.watch_ranks()
run.ranks.profile_communication(every=1, first=1)
for number in range(3):
    with run.step() as step:
        step.set(loss=1.0)
with run.model.measure_activations() as meter:
    pass
run.model.memory(3)
run.ranks.reduce(3, {"loss": 1.0})
run.finish()
assert "torch" not in sys.modules and meter.peak_bytes == 0
"""


def test_what_needs_torch_says_so_in_one_sentence_each(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and "KeyError" not in done.stderr and "Error" not in done.stderr
    assert any("waits between ranks are not measured: no torch.distributed" in line for line in lines)
    assert any("communication is not profiled: no torch" in line for line in lines)
