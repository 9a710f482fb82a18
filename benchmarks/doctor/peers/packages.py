"""The run doctors on PyPI, run for real on a run's series: runmedic, losslint, gradsnitch.

In:   `Columns`, written to a file of the format each reads.
Out:  their findings as `Alarm`s, by the tables below.

`pip install runmedic losslint gradsnitch`; tried with runmedic 0.1.1, losslint 0.4.1, gradsnitch 0.1.0. One that is
not installed is left out. All three look when the run is over. Their defaults are not touched.

Each table maps a peer's own name to every kind that the name may mean, so a peer is never wrong for being coarse.
A finding without a step is matched by its kind alone.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from peers.alarms import Alarm, alarm
from peers.columns import Columns, write_csv, write_jsonl

RUNMEDIC = {
    "non_finite": ("nonfinite",),
    "divergence": ("divergence",),
    "loss_spikes": ("spike", "data"),
    "no_learning": ("not_learning", "plateau", "frozen"),
    "overfitting": ("overfit",),
    "val_below_train": ("eval",),
    "grad_spikes": ("exploding", "spike"),
    "constant_lr_plateau": ("plateau", "learning_rate"),
    "input_bound": ("input_bound",),
    "slow_steps": ("slowdown", "stall"),
    "slowdown": ("slowdown",),
    "memory_growth": ("memory",),
}
LOSSLINT = {
    "nan_inf": ("nonfinite",),
    "divergence": ("divergence",),
    "loss_spike": ("spike", "data"),
    "step_backtrack": ("logging", "resume"),
    "overfit_onset": ("overfit",),
    "stagnation": ("plateau", "not_learning", "frozen"),
    "parse": ("logging",),
}
GRADSNITCH = {
    "GS001": ("nonfinite",),
    "GS002": ("nonfinite", "exploding"),
    "GS003": ("exploding", "spike"),
    "GS004": ("overfit",),
    "GS005": ("plateau", "not_learning", "frozen"),
    "GS006": ("divergence",),
    "GS007": ("vanishing",),
    "GS008": ("update_ratio", "learning_rate"),
    "GS009": ("divergence", "spike"),
    "GS010": ("learning_rate", "plateau"),
}
SEVERITIES = {"error": "critical", "critical": "critical", "warning": "warning", "info": "info"}
# Steps in gradsnitch's sentences. GS005's "first 60 steps" and GS009's "by step 400" are not beginnings.
_STEP = re.compile(r"(?:at|after|bottomed at|first at|by) step (\d+)")


def runmedic(columns: Columns, folder: Path) -> list[Alarm]:
    """runmedic's checks on a JSONL file."""
    from runmedic.checks import run_checks
    from runmedic.loaders import load
    from runmedic.roles import detect

    rows = columns.rows()
    if not rows:
        return []
    path = folder / "metrics.jsonl"
    write_jsonl(rows, path)
    found = []
    for run in load(str(path)):
        for one in run_checks(run, detect(run)):
            text = " ".join(one.evidence)
            listed = re.search(r"spike steps: ([\d, ]+)", text)
            steps = [int(step) for step in re.findall(r"\d+", listed.group(1))] if listed else []
            kinds = RUNMEDIC.get(one.check, ("logging",))
            found.append(alarm(one.check, kinds, SEVERITIES[one.severity], one.step, one.title, steps=steps))
    return found


def losslint(columns: Columns, folder: Path) -> list[Alarm]:
    """losslint's checks on a JSONL file."""
    from losslint.checks import run_all_checks
    from losslint.parsing import load_run

    rows = columns.rows()
    if not rows:
        return []
    path = folder / "metrics.jsonl"
    write_jsonl(rows, path)
    found = []
    for one in run_all_checks(load_run(path)):
        steps = one.details.get("steps") or [one.details[key] for key in ("since_step",) if key in one.details]
        steps = steps or [step for _, step in one.details.get("backtracks", ())]
        kinds, severity = LOSSLINT.get(one.check, ("logging",)), SEVERITIES[one.severity]
        found.append(alarm(one.check, kinds, severity, steps[0] if steps else None, one.message, steps=steps))
    return found


def gradsnitch(columns: Columns, folder: Path) -> list[Alarm]:
    """gradsnitch's rules on a CSV file."""
    from gradsnitch import lint_csv

    rows = columns.rows()
    if not rows:
        return []
    path = folder / "metrics.csv"
    write_csv(rows, path, {"loss": "train_loss", "eval_loss": "val_loss"})
    found = []
    for one in lint_csv(str(path)):
        match = _STEP.search(one.evidence) if one.code not in ("GS005", "GS009") else None
        step = int(match.group(1)) if match else rows[0]["step"] if one.code == "GS005" else None
        found.append(alarm(one.code, GRADSNITCH[one.code], SEVERITIES[one.severity], step, one.name))
    return found


def _in_folder(doctor: Callable[[Columns, Path], list[Alarm]]) -> Callable[[Columns], list[Alarm]]:
    def examine(columns: Columns) -> list[Alarm]:
        with tempfile.TemporaryDirectory(prefix="barograph-peer-") as folder:
            return doctor(columns, Path(folder))

    return examine


def installed() -> dict[str, Callable[[Columns], list[Alarm]]]:
    """Those of the three that this interpreter has: name → what examines `Columns`."""
    return {one.__name__: _in_folder(one) for one in (runmedic, losslint, gradsnitch) if find_spec(one.__name__)}
