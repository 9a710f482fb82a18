"""Keras 3 with a tiny model: batches over all epochs are steps; validations; a run of the program's own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import forked_python
from installed import needs

import barograph

needs("keras")
PROGRAM = """
import numpy, keras, barograph
from barograph.integrations.keras import KerasCallback

def model():
    built = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    built.compile("sgd", "mse", metrics=["mae"])
    return built

xs, ys = numpy.ones((16, 4)), numpy.ones((16, 1))
callback = KerasCallback(project="keras")
for _ in range(2):  # a training after the end of another is a run of its own
    model().fit(xs, ys, batch_size=4, epochs=3, validation_data=(xs, ys), verbose=0, callbacks=[callback])
with barograph.init(project="own", console="none") as run:
    model().fit(xs, ys, batch_size=4, epochs=1, verbose=0, callbacks=[KerasCallback(every=2)])
    assert run.about.status == "running"
with barograph.init(project="twice", console="none") as run:
    model().fit(xs, ys, batch_size=4, epochs=1, verbose=0, callbacks=[KerasCallback(), KerasCallback()])
"""


def test_a_training_is_recorded(tmp_path: Path) -> None:
    paths = os.pathsep.join(filter(None, sys.path))
    quiet = {"BAROGRAPH_BLACKBOX": "false", "BAROGRAPH_GIT": "false", "KERAS_BACKEND": "torch", "PYTHONPATH": paths}
    done = forked_python.run(
        sys.executable,
        "-c",
        PROGRAM,
        cwd=tmp_path,
        env=os.environ | quiet,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    runs = [barograph.StoredRun(path.parent) for path in sorted(tmp_path.glob("runs/keras/*/run_manifest.json"))]
    assert len(runs) == 2
    for run in runs:
        assert list(run.series("train/loss").step) == list(range(12))
        assert list(run.series("eval/mae").step) == [3, 7, 11] == list(run.series("epoch/loss").step)
        assert run.manifest["total_steps"] == 12 and run.manifest["status"] == "finished"
        assert run.manifest["config"]["num_parameters"] == 5
    (own,) = tmp_path.glob("runs/own/*/run_manifest.json")
    assert list(barograph.StoredRun(own.parent).series("train/loss").step) == [0, 2]
    (twice,) = tmp_path.glob("runs/twice/*/run_manifest.json")
    assert list(barograph.StoredRun(twice.parent).series("train/loss").step) == [0, 1, 2, 3]
    assert done.stderr.count("two of KerasCallback record into the run") == 1, done.stderr[-2000:]
