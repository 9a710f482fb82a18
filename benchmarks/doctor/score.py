"""Scores the doctor, and others beside it, on the traces of the fault bench.

    python benchmarks/doctor/score.py [--traces FOLDER] [--peers] [--json] [--split tuning|heldout|…] [--misses]

In:   run folders and `labels.json` of `traces.py`; `barograph.doctor.diagnose`; with `--peers` those of `peers/`.
Out:  a table a tool, or JSON. Nothing is kept between two calls.

**When a finding matches.** A run's tolerance is the larger of 2 rows and 5% of the run, in steps (a row: the median
distance of two rows of the loss; for the kinds `MEASURED` of two evaluations, because the last good one is where such
a finding begins). A finding is in time if its step is not before onset − tolerance; no bound on the other side,
lateness is reported apart. It matches if it is in time and its kind is one that the label accepts. A
finding of a peer that names several steps is in time if one of them is; one that names no step is in time.

recall          faults with a match of severity warning or critical, of all faults. Where a label expects an info, info
                counts too.
precision       findings of severity warning or critical that are right, of all in all runs. Right is a match, or a
                finding in time whose kind is a consequence (`CONSEQUENCES`) of a kind that the label accepts. In a
                healthy run none is right, before the onset none is. `strict`: matches alone.
healthy alarmed healthy runs with a warning or worse; and of these the near-misses, and false ones per 1,000 steps
                without a fault (healthy runs, and what stands before the onset in the others).
delay           the step at which the earliest match was known (`found`; the finding's step if it says none), minus the
                onset; 0 if earlier. Median. Unknown for tools that look when the run is over.
within one step hard faults known one row after the onset at the latest, of those hard faults that can be: their
                first kind, which is the fault's own, is in `AT_ONCE`. `delay hard`: of the other hard faults.
onset error     |step − onset| of the best-ranked match, median.
cause           runs in which a fault was found: its true cause is the first, or among the first three, of the causes
                of the run's first-ranked finding of severity warning or worse, right or not. A cause's name is what
                stands before the colon.
Brier           mean of (confidence − right)² over findings of severity warning or worse.

live            runs whose recorded findings, those that came while the training ran, are not those that a look
                afterwards has (rule, key, segment, step, severity).

Held out are the programs that are not in `traces.TUNED`: no threshold may be chosen by looking at them. What
`putaway.py` names is in none of these: `--split putaway` scores what is put away, once; `--split opened` what was
put away before, and is a second half to tune on.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import statistics
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
if (HERE.parent.parent / "src" / "barograph").is_dir():
    sys.path.insert(0, str(HERE.parent.parent / "src"))

from halves import half_of  # noqa: E402
from putaway import part_of  # noqa: E402

OURS = "barograph"
_MANY = 100  # rows of a series that is logged in each step: see `seldom`
SEVERE = ("critical", "warning")
MEASURED = {"overfit", "eval"}
AT_ONCE = {"nonfinite", "frozen", "desync", "missing_zero_grad"}

# What trouble in the training does to its numbers, whatever the trouble is.
EFFECTS = frozenset((
    "nonfinite", "spike", "divergence", "plateau", "not_learning", "zero", "exploding", "vanishing", "clipping",
    "loss_scale", "update_ratio", "weight_growth", "attention", "logits", "activations", "dead", "saturated", "rl",
))  # fmt: skip
_EVALUATED = frozenset(("overfit", "eval", "jump_down"))
_SPEED = frozenset(("slowdown", "stall", "input_bound", "straggler", "hardware", "efficiency", "memory"))
_EXPERTS = frozenset(("routing", "dead_expert"))
CONSEQUENCES: dict[str, frozenset[str]] = {
    **dict.fromkeys(EFFECTS | {"frozen", "epsilon", "learning_rate", "missing_zero_grad", "desync"}, EFFECTS),
    **dict.fromkeys(("data", "padding", "replay", "resume"), EFFECTS | _EVALUATED | {"repeated_data"}),
    "repeated_data": _EVALUATED | {"spike", "zero", "vanishing"},
    **dict.fromkeys(("overfit", "eval", "jump_down"), _EVALUATED),
    **dict.fromkeys(_EXPERTS, EFFECTS | _EXPERTS),
    **dict.fromkeys(_SPEED, _SPEED),
}
"""Kind of a fault → kinds that follow from it in the same incident."""


# -- one run -------------------------------------------------------------------------------------------


def judge(
    findings: Iterable[Mapping[str, Any]], label: Mapping[str, Any], span: tuple[int, int, float, float]
) -> dict[str, Any]:
    """What one tool's findings in one run are worth.

    findings: best first; `kind` or `kinds`, `severity`, `step`, and what else there is of `found`, `steps`, `causes`,
    `confidence`. span: first and last step of the run; the distance of two rows and of two evaluations, in steps.
    """
    first, last, row, evaluation = span
    faulty, onset = label["fault"] is not None, label["onset"] or 0
    accepted = frozenset(label["kinds"])
    following = accepted.union(*(CONSEQUENCES.get(kind, frozenset()) for kind in accepted)) if faulty else accepted
    counting = (*SEVERE, "info") if label.get("expected_severity") == "info" else SEVERE
    ranked = list(findings)
    matches, alarms = [], []
    for one in ranked:
        kinds = set(one.get("kinds") or (one["kind"],))
        tolerance = max(2.0 * (evaluation if kinds <= MEASURED else row), 0.05 * (last - first))
        in_time = faulty and _in_time(one, onset - tolerance)
        if in_time and kinds & accepted and one["severity"] in counting:
            matches.append(one)
        if one["severity"] in SEVERE:
            right = in_time and bool(kinds & following)
            strict = in_time and bool(kinds & accepted)
            alarms.append({"right": right, "strict": strict, "early": faulty and not in_time, "finding": _short(one)}
                          | ({"confidence": float(one["confidence"])} if "confidence" in one else {}))  # fmt: skip
    known = [found for one in matches if (found := _known(one)) is not None]
    begun = next((_nearest(one, onset) for one in matches if _nearest(one, onset) is not None), None)
    leading = next((one for one in ranked if one["severity"] in counting), None)
    named = causes_named(leading, label) if leading is not None and matches else None
    return {
        "found": bool(matches),
        "delay": max(min(known) - onset, 0) if known else None,
        "row": row,
        "onset_error": abs(begun - onset) if begun is not None else None,
        "cause_place": named,
        "has_causes": leading is not None and "causes" in leading,
        "alarms": alarms,
        "calm_steps": (last - first + 1) if not faulty else max(min(onset, last) - first, 0),
    }


def _in_time(one: Mapping[str, Any], begin: float) -> bool:
    steps = one.get("steps") or ([one["step"]] if one.get("step") is not None else [])
    return not steps or any(step >= begin for step in steps)


def _nearest(one: Mapping[str, Any], onset: int) -> int | None:
    """Of the steps that a finding names, the one that is nearest to the onset."""
    steps = one.get("steps") or ([one["step"]] if one.get("step") is not None else [])
    return min((int(step) for step in steps), key=lambda step: abs(step - onset), default=None)


def _known(one: Mapping[str, Any]) -> int | None:
    """When a finding was known. Peers say None where they look at the whole run."""
    found = one.get("found", one.get("step"))
    return None if found is None else int(found)


def causes_named(one: Mapping[str, Any], label: Mapping[str, Any]) -> int | None:
    """The place, from 0, of the true cause among a finding's causes; None if it is not there."""
    true = label["cause"] if isinstance(label["cause"], list) else [label["cause"]]
    wanted = {_plain(cause) for cause in true if cause}
    return next((place for place, cause in enumerate(one.get("causes") or ()) if _plain(cause) in wanted), None)


def _plain(cause: str) -> str:
    return " ".join(str(cause).split(":")[0].replace("-", " ").lower().split()).rstrip(".")


def _short(one: Mapping[str, Any]) -> str:
    kinds = "/".join(one.get("kinds") or (one["kind"],))
    return f"{one['severity']} {one.get('rule', '')} ({kinds}) at step {one.get('step')}: {one.get('message', '')}"


def span_of(columns: Any) -> tuple[int, int, float, float]:
    """First and last step of a run, the median distance of two rows of its loss, and of two evaluations."""
    column, evaluation = columns.role("loss"), columns.role("eval_loss")
    if column is None or not len(column.step):
        named = max((name for name in columns), key=lambda name: len(columns[name]), default=None)
        column = columns.series(named) if named else None
    if column is None or not len(column.step):
        return 0, 0, 1.0, 1.0
    row = _distance(column)
    return int(column.step[0]), int(column.step[-1]), row, _distance(evaluation) if evaluation is not None else row


def _distance(column: Any) -> float:
    import numpy

    gaps = numpy.diff(numpy.unique(column.step))
    return float(numpy.median(gaps)) if len(gaps) else 1.0


# -- all runs ------------------------------------------------------------------------------------------


def examine(task: tuple[str, str, dict[str, Any], bool, bool, int]) -> dict[str, Any]:
    """Every tool's findings in one trace, judged. A tool that raises has found nothing, and that is counted."""
    from peers import Columns, peers

    from barograph.query.stored import StoredRun

    folder, name, label, ours, others, every = task
    columns = Columns(StoredRun(Path(folder) / name))
    span = span_of(columns)
    tools: dict[str, Callable[[], list[dict[str, Any]]]] = {}
    if ours:
        tools[OURS] = lambda: _diagnosed(Path(folder) / name, every)
    if others:
        tools |= {peer: lambda doctor=doctor: doctor(columns) for peer, doctor in peers().items()}  # type: ignore[misc]
        columns.rows()  # read what all of them need before the clock runs
    made: dict[str, Any] = {"trace": name, "label": label, "tools": {}}
    if ours:
        made["live"] = live_apart(Path(folder) / name) if every == 1 else []
    for tool, look in tools.items():
        begun = time.perf_counter()
        error = ""
        try:
            found = look()
        except Exception:
            found, error = [], traceback.format_exc().strip()
        took = time.perf_counter() - begun
        made["tools"][tool] = judge(found, label, span) | {"seconds": took, "error": error}
    return made


def _diagnosed(path: Path, every: int) -> list[dict[str, Any]]:
    from barograph.doctor import diagnose  # type: ignore[import-not-found, unused-ignore]
    from barograph.query.stored import StoredRun

    run = StoredRun(path)
    if every > 1:
        read = run.all_columns
        run.all_columns = lambda *of: seldom(read(*of), every)  # type: ignore[method-assign]
    found: list[dict[str, Any]] = diagnose(run)["findings"]
    return found


def seldom(columns: Mapping[str, Any], every: int) -> dict[str, Any]:
    """Series (step, time, value, segment) as a loop has them that logs each so many steps, the last of each: those with
    more than `_MANY` rows, except what the watch and other parts of Barograph record by themselves."""
    from barograph.core.roles import RECORDED

    often = {name for name, column in columns.items() if len(column[0]) > _MANY and not name.startswith(RECORDED)}
    return {
        name: tuple(part[column[0] % every == every - 1] for part in column) if name in often else column
        for name, column in columns.items()
    }


def live_apart(path: Path) -> list[str]:
    """Findings that live and replay do not share, each with the side that has it."""
    from barograph.doctor import diagnose  # type: ignore[import-not-found, unused-ignore]
    from barograph.query.findings import recorded_findings
    from barograph.query.stored import StoredRun

    if not any(path.glob("sidecar-*.json")):
        return []  # it was over before anything watched it
    run = StoredRun(path)
    names = ("rule", "key", "segment", "severity")
    live = {(record.step, *(str(record.fields.get(name)) for name in names)) for record in recorded_findings(run)}
    after = {(one["step"], *(str(one.get(name)) for name in names)) for one in diagnose(run)["findings"]}
    return [f"live alone: {one}" for one in sorted(live - after)] + [
        f"replay alone: {one}" for one in sorted(after - live)
    ]


def examine_all(
    folder: Path, labels: Mapping[str, Any], *, ours: bool, others: bool, jobs: int, every: int = 1
) -> list[dict[str, Any]]:
    """`examine` of every labelled trace, over this many processes."""
    tasks = [(str(folder), name, dict(label), ours, others, every) for name, label in sorted(labels.items())]
    if jobs < 2:
        return [examine(task) for task in tasks]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        return sorted(pool.imap_unordered(examine, tasks, chunksize=4), key=lambda one: str(one["trace"]))


def figures(examined: list[dict[str, Any]], tool: str) -> dict[str, Any]:
    """One tool's figures over traces; None where there is nothing to take them from."""
    pairs = [(one["label"], one["tools"][tool]) for one in examined if tool in one["tools"]]
    faulty = [(label, made) for label, made in pairs if label["fault"] is not None]
    healthy = [(label, made) for label, made in pairs if label["fault"] is None]
    near = [made for label, made in healthy if label.get("near_miss")]
    alarms = [alarm for _, made in pairs for alarm in made["alarms"]]
    caught = [made for _, made in faulty if made["found"]]
    hard = [(label, made) for label, made in faulty if label.get("hard")]
    timed = any(made["delay"] is not None for made in caught) or not caught
    at_once = [made for label, made in hard if set(label["kinds"][:1]) & AT_ONCE]
    other_hard = [made for label, made in hard if not set(label["kinds"][:1]) & AT_ONCE]
    telling = [made for made in caught if made["has_causes"]]
    rated = [(alarm["confidence"], alarm["right"]) for alarm in alarms if "confidence" in alarm]
    calm = sum(made["calm_steps"] for _, made in pairs)
    false = [alarm for label, made in pairs for alarm in made["alarms"] if label["fault"] is None or alarm["early"]]
    prompt = [made for made in at_once if made["found"] and made["delay"] is not None and made["delay"] <= made["row"]]
    return {
        "faults": len(faulty),
        "recall": _share(len(caught), len(faulty)),
        "recall_hard": _share(sum(made["found"] for _, made in hard), len(hard)),
        "findings": len(alarms),
        "precision": _share(sum(alarm["right"] for alarm in alarms), len(alarms)),
        "precision_strict": _share(sum(alarm["strict"] for alarm in alarms), len(alarms)),
        "healthy": len(healthy),
        "healthy_alarmed": sum(bool(made["alarms"]) for _, made in healthy),
        "near_misses": len(near),
        "near_misses_alarmed": sum(bool(made["alarms"]) for made in near),
        "false_per_1000_steps": 1000.0 * len(false) / calm if calm else None,
        "at_once_within_one_step": _share(len(prompt), len(at_once)) if timed else None,
        "delay_other_hard": _median(made["delay"] for made in other_hard),
        "delay": _median(made["delay"] for made in caught),
        "onset_error": _median(made["onset_error"] for made in caught),
        "cause_first": _share(sum(made["cause_place"] == 0 for made in telling), len(telling)),
        "cause_in_three": _share(
            sum(made["cause_place"] is not None and made["cause_place"] < 3 for made in telling), len(telling)
        ),
        "brier": sum((sure - right) ** 2 for sure, right in rated) / len(rated) if rated else None,
        "errors": sum(bool(made["error"]) for _, made in pairs),
        "ms_per_run": _median(1000.0 * made["seconds"] for _, made in pairs),
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return float(statistics.median(known)) if known else None


# -- the report ------------------------------------------------------------------------------------------


def held_out(program: str) -> bool:
    """Whether thresholds may not be chosen by looking at traces of this program."""
    from traces import TUNED  # type: ignore[import-not-found, unused-ignore]

    return program not in TUNED


def split_of(labels: Mapping[str, Any], split: str) -> dict[str, Any]:
    """The labels of one split: heldout, tuning, all of these, what was opened, or what is put away."""
    parts = {name: part_of(label["program"], label.get("kind", "")) for name, label in labels.items()}
    if split in ("opened", "putaway"):
        return {name: label for name, label in labels.items() if parts[name] == split}
    wanted = {"heldout": (True,), "tuning": (False,), "all": (True, False)}[split]
    return {name: label for name, label in labels.items() if held_out(label["program"]) in wanted and not parts[name]}


def report(examined: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures by tool; ours also by split, program and fault, with what was missed and what was false."""
    tools = list(dict.fromkeys(tool for one in examined for tool in one["tools"]))
    made: dict[str, Any] = {"traces": len(examined), "tools": {tool: figures(examined, tool) for tool in tools}}
    for tool in tools:
        errors = Counter(
            one["tools"][tool]["error"].splitlines()[-1] for one in examined if one["tools"][tool]["error"]
        )
        if errors:
            made["tools"][tool]["errors_said"] = dict(errors.most_common(3))
    lead = OURS if OURS in tools else tools[0] if tools else None
    if lead is None:
        return made
    parts: dict[str, list[dict[str, Any]]] = {}
    for one in examined:
        program = one["label"]["program"]
        parts.setdefault("held out" if held_out(program) else "tuning", []).append(one)
        parts.setdefault(program, []).append(one)
        reported = getattr(half_of(program), "REPORTED", None)
        if reported is not None and (fault := one["label"]["fault"]):
            parts.setdefault("reported" if fault in reported else "fifteen kinds", []).append(one)
    made["parts_of"] = lead
    made["parts"] = {name: figures(some, lead) for name, some in sorted(parts.items(), key=lambda pair: pair[0])}
    by_fault: dict[str, list[dict[str, Any]]] = {}
    for one in examined:
        by_fault.setdefault(one["label"]["fault"] or "healthy", []).append(one)
    made["by_fault"] = {
        name: {"runs": len(some), "found": sum(one["tools"][lead]["found"] for one in some)}
        for name, some in sorted(by_fault.items()) if name != "healthy"
    }  # fmt: skip
    made["missed"] = [one["trace"] for one in examined if one["label"]["fault"] and not one["tools"][lead]["found"]]
    made["cause_missed"] = {
        one["trace"]: one["label"]["cause"]
        for one in examined if one["tools"][lead]["found"] and one["tools"][lead]["cause_place"] != 0
    }  # fmt: skip
    made["live_apart"] = {one["trace"]: one["live"] for one in examined if one.get("live")}
    made["false"] = {
        one["trace"]: wrong
        for one in examined
        if (wrong := [alarm["finding"] for alarm in one["tools"][lead]["alarms"] if not alarm["right"]])
    }
    return made


SHOWN = {
    "recall": "recall", "recall_hard": "hard", "precision": "prec.", "precision_strict": "strict",
    "healthy_alarmed": "healthy alarmed", "near_misses_alarmed": "near-miss", "false_per_1000_steps": "false/1k",
    "at_once_within_one_step": "in 1 step", "delay_other_hard": "delay hard", "delay": "delay",
    "onset_error": "onset ±", "cause_first": "cause 1st", "cause_in_three": "in 3", "brier": "Brier",
    "errors": "errors", "ms_per_run": "ms",
}  # fmt: skip
OF_ALL = {"healthy_alarmed": "healthy", "near_misses_alarmed": "near_misses"}
WHOLE = ("delay_other_hard", "delay", "onset_error", "errors", "ms_per_run")


def table(title: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Figures as aligned text, a line a row."""
    cells = [[title, "runs", *SHOWN.values()]]
    for name, row in rows.items():
        cells.append([name, str(row["faults"] + row["healthy"]), *(_cell(key, row) for key in SHOWN)])
    widths = [max(len(line[place]) for line in cells) for place in range(len(cells[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) if not place else cell.rjust(width) for place, (cell, width) in
                  enumerate(zip(line, widths, strict=True))) for line in cells
    )  # fmt: skip


def _cell(key: str, row: Mapping[str, Any]) -> str:
    value = row[key]
    if value is None:
        return "-"
    if key in OF_ALL:
        return f"{value}/{row[OF_ALL[key]]}"
    return f"{value:.0f}" if key in WHOLE else f"{value:.3f}"


def show(made: Mapping[str, Any], misses: bool) -> str:
    """The report for people."""
    lines = [f"{made['traces']} traces", "", table("tool", made["tools"])]
    if "parts" in made:
        lines += ["", table(f"{made['parts_of']} by part", made["parts"]), "", "found of runs, by fault"]
        lines += [f"  {name:32} {row['found']}/{row['runs']}" for name, row in made["by_fault"].items()
                  if row["found"] < row["runs"] or misses]  # fmt: skip
    if "live_apart" in made:
        lines += ["", f"live is not replay in {len(made['live_apart'])} of {made['traces']} runs"]
    for tool, row in made["tools"].items():
        lines += [f"{tool} raised {times} times: {said}" for said, times in row.get("errors_said", {}).items()]
    if misses and "parts" in made:
        lines += ["", "missed", *(f"  {name}" for name in made["missed"])]
        lines += ["", "first cause is not the true one"]
        lines += [f"  {name}: {true}" for name, true in made["cause_missed"].items()]
        lines += ["", "live is not replay"]
        lines += [f"  {name}\n    {one}" for name, some in made["live_apart"].items() for one in some]
        lines += ["", "false", *(f"  {name}\n    {one}" for name, some in made["false"].items() for one in some)]
    return "\n".join(lines)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=Path, default=HERE / ".traces", help="folder that traces.py made")
    parser.add_argument("--peers", action="store_true", help="the other doctors too")
    parser.add_argument("--only-peers", action="store_true", help="the other doctors alone")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--split", choices=("heldout", "tuning", "all", "opened", "putaway"), default="all")
    parser.add_argument("--only", default="", help="traces whose name contains this")
    parser.add_argument("--misses", action="store_true", help="list what was missed and what was false")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--every", type=int, default=1, help="our doctor, as if each so many steps were logged")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    given = parsed(arguments)
    path = given.traces / "labels.json"
    if not path.is_file():
        print(f"{path} is not there: make the traces with benchmarks/doctor/traces.py", file=sys.stderr)
        return 2
    labels = split_of(json.loads(path.read_text()), given.split)
    labels = {name: label for name, label in labels.items() if given.only in name}
    if not labels:
        print("no trace is left after --split and --only", file=sys.stderr)
        return 2
    begun = time.perf_counter()
    examined = examine_all(
        given.traces, labels, ours=not given.only_peers, others=given.peers or given.only_peers, jobs=given.jobs,
        every=max(1, given.every),
    )  # fmt: skip
    made = report(examined) | {"seconds": time.perf_counter() - begun, "split": given.split}
    if given.json:
        print(json.dumps(made, indent=1))
    else:
        print(show(made, given.misses))
        print(f"\n{made['seconds']:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
