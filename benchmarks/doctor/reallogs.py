"""The doctor, and others beside it, on a folder of real logs: for a person to judge, and to find crashes and hangs.

    python benchmarks/doctor/reallogs.py [FOLDER OR FILE …] [--peers] [--seconds 120] [--jobs 2] [--json] [--least info]

In:   log files of any kind that Barograph reads; without an argument, the folder that BAROGRAPH_REALLOGS names.
Out:  for each file a line that says what was read and how long it took, and a line for each finding. The exit code
      is 1 if a tool raised or a file took longer than `--seconds`.

Every file has a process of its own, which is killed when its time is over. Peers see the series as our reader gives
them, so that only the rules are compared, not the readers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
if (HERE.parent.parent / "src" / "barograph").is_dir():
    sys.path.insert(0, str(HERE.parent.parent / "src"))

SEVERITIES = ("info", "warning", "critical")
NOT_LOGS = {".md", ".py", ".png", ".svg", ".pdf", ".html"}


def look(path: Path, others: bool) -> dict[str, Any]:
    """What every tool finds in the runs of one file, with the seconds that it took."""
    import barograph

    begun = time.perf_counter()
    try:
        runs = barograph.read(path)
    except (ValueError, OSError) as error:
        return {"unread": str(error).splitlines()[0], "read_seconds": time.perf_counter() - begun}
    except Exception:
        return {"unread": "", "error": traceback.format_exc(), "read_seconds": time.perf_counter() - begun}
    made: dict[str, Any] = {"read_seconds": time.perf_counter() - begun, "runs": []}
    for run in runs:
        made["runs"].append(look_at_run(run, others))
    return made


def look_at_run(run: Any, others: bool) -> dict[str, Any]:
    """What every tool finds in one run."""
    from peers import Columns, peers

    from barograph.doctor import diagnose

    columns = Columns(run)
    loss = columns.role("loss")
    made: dict[str, Any] = {
        "run": run.id,
        "series": len(columns),
        "rows": len(loss.value) if loss is not None else 0,
        "tools": {},
    }
    looking: dict[str, Any] = {"barograph": lambda: diagnose(run)["findings"]}
    if others:
        looking |= {name: lambda doctor=doctor: doctor(columns) for name, doctor in peers().items()}
        columns.rows()
    for name, doctor in looking.items():
        begun = time.perf_counter()
        found, error = [], ""
        try:
            found = doctor()
        except Exception:
            error = traceback.format_exc()
        made["tools"][name] = {"seconds": time.perf_counter() - begun, "findings": found, "error": error}
    return made


def look_apart(path: Path, others: bool, seconds: float) -> dict[str, Any]:
    """`look` in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--one", str(path)] + ["--peers"] * others
    begun = time.perf_counter()
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"hung": True, "read_seconds": time.perf_counter() - begun}
    if ended.returncode != 0:
        return {"error": f"exit {ended.returncode}\n{ended.stderr}", "read_seconds": time.perf_counter() - begun}
    made: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return made


def files_in(paths: Iterable[Path]) -> list[Path]:
    """Every file that may be a log, in order of name."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += [one for one in sorted(path.rglob("*")) if one.is_file() and one.suffix not in NOT_LOGS]
        else:
            found.append(path)
    return found


def lines_of(name: str, made: dict[str, Any], least: str) -> list[str]:
    """One file's result as lines."""
    took = made["read_seconds"]
    if made.get("hung"):
        return [f"{name}: HANGS, killed after {took:.0f} s"]
    if made.get("error"):
        return [f"{name}: RAISES after {took:.2f} s", *("    " + line for line in made["error"].splitlines()[-6:])]
    if "unread" in made:
        return [f"{name}: not read ({took:.2f} s): {made['unread']}"]
    lines = []
    for run in made["runs"]:
        spent = ", ".join(f"{tool} {one['seconds']:.2f}" for tool, one in run["tools"].items())
        lines.append(
            f"{name}: {run['run']}, {run['rows']} rows, {run['series']} series; seconds: read {took:.2f}, {spent}"
        )
        for tool, one in run["tools"].items():
            if one["error"]:
                lines += [f"  {tool:20} RAISES", *("    " + line for line in one["error"].splitlines()[-6:])]
            shown = [each for each in one["findings"] if SEVERITIES.index(each["severity"]) >= SEVERITIES.index(least)]
            lines += [f"  {tool:20} {line}" for line in findings_of(shown)]
    return lines


def findings_of(found: list[dict[str, Any]]) -> list[str]:
    """A line a finding; more than three of one rule and severity are one line."""
    alike: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for finding in found:
        alike.setdefault((finding["severity"], finding["rule"]), []).append(finding)
    lines = []
    for (severity, rule), some in alike.items():
        for finding in some if len(some) <= 3 else some[:1]:
            kinds = "/".join(finding.get("kinds") or (finding["kind"],))
            at = "no step" if finding["step"] is None else f"step {finding['step']}"
            sure = f" {finding['confidence']:.2f}" if "confidence" in finding else ""
            more = f" ({len(some) - 1} more of its kind)" if len(some) > 3 else ""
            lines.append(f"{severity:8} {rule} ({kinds}) {at}{sure}{more}: {finding['message']}")
    return lines


def main(arguments: list[str] | None = None) -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--peers", action="store_true", help="the other doctors too")
    parser.add_argument("--seconds", type=float, default=120.0, help="after so long a file hangs")
    parser.add_argument("--jobs", type=int, default=2, help="files at the same time")
    parser.add_argument("--least", choices=SEVERITIES, default="info", help="the mildest findings that are shown")
    parser.add_argument("--json", action="store_true", help="one JSON object a file")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one is not None:
        print(json.dumps(look(given.one, given.peers)))
        return 0
    paths = given.paths or [Path(one) for one in (os.environ.get("BAROGRAPH_REALLOGS"),) if one]
    if not paths:
        print("name a folder of logs, or set BAROGRAPH_REALLOGS", file=sys.stderr)
        return 2
    missing = [path for path in paths if not path.exists()]
    if missing:
        print(f"{missing[0]} is not there", file=sys.stderr)
        return 2
    files = files_in(paths)
    failed = unread = findings = 0
    begun = time.perf_counter()
    with ThreadPoolExecutor(given.jobs) as workers:
        results = workers.map(lambda path: look_apart(path, given.peers, given.seconds), files)
        for path, made in zip(files, results, strict=True):
            root = next((one for one in paths if one.is_dir() and path.is_relative_to(one)), path.parent)
            name = str(path.relative_to(root))
            print(
                json.dumps({"file": name} | made) if given.json else "\n".join(lines_of(name, made, given.least)),
                flush=True,
            )
            tools = [one for run in made.get("runs", ()) for one in run["tools"].values()]
            failed += bool(made.get("hung") or made.get("error")) + sum(bool(one["error"]) for one in tools)
            unread += "unread" in made
            findings += sum(len(run["tools"]["barograph"]["findings"]) for run in made.get("runs", ()))
    if not given.json:
        print(f"\n{len(files)} files, {unread} not read, {findings} findings of ours, {failed} raised or hung, "
              f"{time.perf_counter() - begun:.1f} s")  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
