"""The doctor, examined on text logs and tables: what it finds, what it misses, and where it cries wolf.

    python benchmarks/doctor/examine_logs.py [--split open] [--seed 0] [--each 6] [--only FAMILY …] [--misses]
                                             [--out FOLDER]

In:   a seed; it decides every curve, and which of its formats each is written in.
Out:  a table: troubles found with the right kind and near their onset, healthy trainings and look-alikes that got a
      warning or worse, files that were not read, seconds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
if (HERE.parent.parent / "src" / "barograph").is_dir():
    sys.path.insert(0, str(HERE.parent.parent / "src"))

from logs.case import ALIKE, HEALTHY, TEXT, TROUBLE  # noqa: E402
from logs.examination import SPLITS, Verdict, judge, write_examination  # noqa: E402


def examine(path: Path, label: dict[str, Any]) -> Verdict:
    """What the doctor says of a file, as `barograph doctor PATH` does."""
    from barograph.doctor import diagnose
    from barograph.importing.resolve import resolve

    try:
        results = [diagnose(run, source=source) for run, source in resolve(str(path))]
    except (OSError, ValueError) as error:
        return judge(label, [], str(error).splitlines()[0])
    findings = [finding for result in results for finding in result["findings"]]
    return judge(label, findings, judged=any(result["judged_by"] is not None for result in results))


def table(labels: dict[str, dict[str, Any]], verdicts: dict[str, Verdict], seconds: float) -> list[str]:
    """The figures, a line each."""
    groups: dict[str, list[Verdict]] = defaultdict(list)
    for name, label in labels.items():
        groups[label["group"]].append(verdicts[name])
    ill = groups[TROUBLE]
    figures = {
        "troubles found, right kind, near the onset": (sum(one.right for one in ill), len(ill)),
        "troubles of the right kind elsewhere": (sum(one.kind_only for one in ill), len(ill)),
    }
    for group, words in ((HEALTHY, "healthy with a warning or worse"), (ALIKE, "look-alikes with a warning or worse")):
        alarmed = sum(not one.right and not one.unread for one in groups[group])
        figures[words] = (alarmed, len(groups[group]))
    if groups[TEXT]:
        figures["texts without a training given a verdict"] = (
            sum(not one.right for one in groups[TEXT]), len(groups[TEXT]))  # fmt: skip
    trainings = [verdicts[name] for name, label in labels.items() if label["group"] != TEXT]
    figures["files not read"] = (sum(bool(one.unread) for one in trainings), len(trainings))
    lines = [f"{words:44}{count:5} of {total:4}" for words, (count, total) in figures.items()]
    return [*lines, f"{'seconds':44}{seconds:5.0f}"]


def lines_of_a_miss(name: str, label: dict[str, Any], verdict: Verdict) -> list[str]:
    """A case that went wrong: what was expected, and what was said."""
    about = f"{label['group']}, {label['format']}"
    if label["group"] == TEXT:
        about += ": taken for a training"
    if label["group"] == TROUBLE:
        where = "" if label["window"] is None else " at {:.0f} to {:.0f}".format(*label["window"])
        about += f": expected {'/'.join(label['kinds'])}{where}, {label['least']} or worse"
    said = [
        f"    {one['severity']} {one['rule']} ({one['kind']}) step {one['step']}: {one['message']}"
        for one in verdict.findings
    ]
    return [f"{name} ({about})", *([f"    not read: {verdict.unread}"] if verdict.unread else said[:6])]


def main(arguments: list[str] | None = None) -> int:
    """Write, examine, print. Returns 1 if a file was not read."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", type=int, default=6, help="cases of each family")
    parser.add_argument("--split", choices=SPLITS, default="first", help="the first set, or a half of the second")
    parser.add_argument("--only", nargs="*", metavar="FAMILY", help="these families alone")
    parser.add_argument("--out", type=Path, help="an empty folder, where the logs stay; otherwise a temporary one")
    parser.add_argument("--misses", action="store_true", help="name each case that went wrong")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.only or () if name not in SPLITS[given.split]]
    if unknown:
        parser.error(f"there is no family {unknown[0]}; there are {', '.join(SPLITS[given.split])}")
    with tempfile.TemporaryDirectory(prefix="barograph-logs-") as temporary:
        folder = given.out or Path(temporary)
        labels = write_examination(given.seed, given.each, folder, given.only, given.split)
        begun = time.perf_counter()
        verdicts = {name: examine(folder / label["path"], label) for name, label in labels.items()}
        seconds = time.perf_counter() - begun
    if given.misses:
        for name, verdict in verdicts.items():
            if not verdict.right:
                print("\n".join(lines_of_a_miss(name, labels[name], verdict)))
    print("\n".join(table(labels, verdicts, seconds)))
    unread = any(one.unread and labels[name]["group"] != TEXT for name, one in verdicts.items())
    return 1 if unread else 0


if __name__ == "__main__":
    sys.exit(main())
