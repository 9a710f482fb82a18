"""The command `barograph doctor`.

In:   runs, files and folders as typed.
Out:  a report, or JSON; an exit code: 0, or 1 if a path can't be read, 3 if a finding is as bad as --fail-on, or 4 if
      a run has no loss to judge it by.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from barograph.core.record import json_text
from barograph.core.terminal import wants_colour
from barograph.doctor import report
from barograph.doctor.diagnosis import diagnose
from barograph.doctor.kernel.finding import SEVERITIES
from barograph.doctor.kernel.registry import find_rule, rule_classes
from barograph.doctor.pages import page_of
from barograph.doctor.siblings import compare_spikes
from barograph.importing.resolve import resolve

FOUND = 3
NO_VERDICT = 4


def run_doctor(
    paths: Sequence[str],
    *,
    dir: str | None = None,
    as_json: bool = False,
    fail_on: str | None = None,
    thresholds: Mapping[str, float] | None = None,
    silenced: Sequence[str] = (),
    only: Sequence[str] = (),
    everything: bool = False,
    checklist: bool = False,
) -> int:
    """Examine runs and logs; returns the exit code.

    paths: runs by id or name, folders of runs, logs and folders of any kind that is read; none: the newest run.
    fail_on: a severity. only: names of rules; all if empty. checklist: print the checklist of a healthy training too.
    Raises ValueError or KeyError with one sentence for names that don't exist.
    """
    if only:
        wanted = {find_rule(name).name for name in only}
        silenced = [*silenced, *(name for name in rule_classes() if name not in wanted)]
    results, code = [], 0
    for path in paths or [""]:
        try:
            for run, source in resolve(path, dir, logged=False, endings=True):
                results.append(diagnose(run, thresholds=thresholds, silenced=silenced, source=source))
        except (OSError, KeyError) as error:
            words = error.args[0] if isinstance(error, KeyError) else f"{path}: {error.strerror or error}"
            print(f"barograph: {words}", file=sys.stderr)
            code = 1
        except ValueError as error:
            if Path(path).exists() and path:
                print(f"barograph: {error}", file=sys.stderr)
                code = 1
            else:
                raise
    compare_spikes(results)
    results.sort(key=_badness)
    _print(results, as_json, everything, checklist)
    if fail_on is not None and any(
        SEVERITIES.index(finding["severity"]) <= SEVERITIES.index(fail_on)
        for result in results
        for finding in result["findings"]
    ):
        return FOUND
    return code or (NO_VERDICT if any(result["judged_by"] is None for result in results) else 0)


def explain(name: str) -> str:
    """A rule's page, for the terminal. Raises ValueError with the nearest name for one that doesn't exist."""

    return page_of(find_rule(name))


def _badness(result: Mapping[str, Any]) -> tuple[int, ...]:
    counts = [0] * len(SEVERITIES)
    for finding in result["findings"]:
        counts[SEVERITIES.index(finding["severity"])] -= 1
    return tuple(counts)


def _print(results: Sequence[Mapping[str, Any]], as_json: bool, everything: bool, checklist: bool) -> None:
    if as_json:
        print(json_text({"runs": results}))
        return
    width = min(110, shutil.get_terminal_size((100, 24)).columns)
    colour = sys.stdout.isatty() and wants_colour()
    about: dict[str, Any] = {"width": width, "colour": colour, "everything": everything, "checklist": checklist}
    pages = [report.page(result, **about) for result in results]
    print("\n\n".join(pages))
    if len(results) > 1:
        wrong = sum(any(finding["severity"] != "info" for finding in result["findings"]) for result in results)
        print(f"\n{len(results)} runs: {wrong} with a warning or worse.")
