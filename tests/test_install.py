"""A training with nothing installed but msgspec: it records, its sidecar works, and says what it leaves to others."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from patience import patient
from patience import until as until_true
from sidecar_runs import own_records

from barograph.core import manifest
from barograph.query.stored import StoredRun

SOURCE = Path(__file__).parents[1] / "src"
TRAINING = """
import os, sys, time
import barograph
run = barograph.init(project="gpt", name="lean", dir=sys.argv[1], console="none", config={"lr": 0.1})
number = 0
while not os.path.exists(sys.argv[2]):
    with run.step(tokens=100, step=number) as step:
        step.set(loss=3.0 / (number + 1), lr=0.1)
    run.log({"my/metric": number}, step=number)
    run.log({f"wide/{column}": float(number) for column in range(150)}, step=number)
    number += 1
    time.sleep(0.05)
run.finish()
strange = {name.split(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(number, *sorted(name for name in strange if name in ("numpy", "pyarrow", "yaml", "rich", "psutil")))
"""


def lean_python(folder: Path) -> Path:
    """The Python of an empty environment with msgspec alone, and our sources."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    found = importlib.util.find_spec("msgspec")
    assert found is not None and found.origin is not None
    shutil.copytree(Path(found.origin).parent, packages / "msgspec")
    (packages / "source.pth").write_text(f"{SOURCE}\n")
    return folder / "bin" / "python"


def test_a_training_needs_msgspec_alone_and_its_sidecar_says_what_it_leaves(tmp_path: Path) -> None:
    python, gate = lean_python(tmp_path / "env"), tmp_path / "gate"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BAROGRAPH_"))}
    words = [str(python), "-c", TRAINING, str(tmp_path / "runs"), str(gate)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, env=environment, text=True)
    folder = tmp_path / "runs" / "gpt" / "lean"

    def texts() -> list[str]:
        return [record["text"] for record in own_records(folder, "info") if "text" in record]

    try:
        until_true(lambda: all(any(name in text for text in texts()) for name in ("NumPy", "pyarrow")), patient(60))
        said = texts()
    finally:
        gate.touch()
        output, _ = process.communicate(timeout=patient(60))
    assert process.returncode == 0
    assert any("NumPy is not installed" in sentence for sentence in said)
    assert any("pyarrow is not installed" in sentence for sentence in said)
    steps, *loaded = output.split()
    assert not loaded
    assert until_true(lambda: own_records(folder, "goodput"), patient(60))  # what needs neither is done
    assert until_true(lambda: manifest.read(folder).get("status") == "finished", patient(60))
    stored = StoredRun(folder)  # the full installation reads all of it
    for name in ("train/loss", "my/metric", "wide/149"):
        assert stored.series(name).step.tolist() == list(range(int(steps)))
    for command, code, words in (("ls", 0, "lean"), ("doctor", 1, "needs numpy")):
        done = subprocess.run(
            [str(python), "-m", "barograph", command, "--dir", str(tmp_path / "runs")],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code and words in done.stdout + done.stderr and "Traceback" not in done.stderr
