"""Commands that draw conclusions: doctor, compare, report, forecast, alerts.

In:   words typed by a person or a script.
Out:  verdicts, as text, Markdown, HTML or JSON.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial

from barograph.cli.commands import Commands, count, words
from barograph.record import json_text


def add(commands: Commands) -> None:
    """Declare them."""
    made = commands.add("doctor", _doctor, "say what is wrong with runs and logs, since when, why, and what to do")
    made.add_argument(
        "paths", nargs="*", metavar="PATH", help="runs, folders, and logs of any kind (default: the newest run)"
    )
    made.add_argument("--fail-on", choices=("critical", "warning", "info"), help="exit with 3 if a finding is as bad")
    made.add_argument("--rules", type=words, default=[], metavar="NAMES", help="only these rules, with commas between")
    made.add_argument("--silence", type=words, default=[], metavar="NAMES", help="not these rules")
    made.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a threshold, such as grad_norm_max=500"
    )
    made.add_argument("--all", action="store_true", help="every remark, and what each rule that could not look lacks")
    made.add_argument("--explain", metavar="RULE", help="print a rule's page and stop")
    commands.common(made, run=False)

    made = commands.add("scaling", _scaling, "fit the scaling law of a family of runs, predict, and split a budget")
    made.add_argument("paths", nargs="*", metavar="RUN", help="runs, folders of runs, logs (default: all runs)")
    made.add_argument("--filter", metavar="CONDITION", help="only runs such as 'config.data = c4'")
    made.add_argument("--metric", metavar="NAME", help="whose final value is the loss (default: the evaluation's)")
    made.add_argument("--parameters", metavar="KEY", help="the key of the configuration that holds N")
    made.add_argument("--predict", action="append", default=[], metavar="N,D", help="the loss of 7B,2T, say")
    made.add_argument("--budget", action="append", default=[], metavar="C", help="the best N and D for C = 6 N D FLOPs")
    made.add_argument("--level", type=float, default=0.95, metavar="P", help="of the intervals (default 0.95)")
    made.add_argument("--anyway", action="store_true", help="also runs that did not end as planned, and mixed losses")
    commands.common(made, run=False)

    made = commands.add("compare", _compare, "say what differs between runs, and whether it lets anything be concluded")
    made.add_argument("paths", nargs="+", metavar="RUN", help="runs, folders of runs (a group each), logs of any kind")
    made.add_argument("--x", choices=("step", "tokens", "samples", "time", "flops"), help="the axis of the curves")
    made.add_argument("--metric", metavar="NAME", help="what to compare (default: the evaluation's loss)")
    made.add_argument("--group", metavar="KEY", help="group by a key of the configuration, such as lr")
    made.add_argument("--baseline", metavar="RUN", help="the run, group or value that the others are set against")
    made.add_argument("--target", type=float, metavar="VALUE", help="the value whose reaching is timed")
    made.add_argument("--level", type=float, default=0.05, metavar="P", help="of all tests together (default 0.05)")
    made.add_argument("--equal", action="store_true", help="the runs should be equal: say where they part; exit with 3")
    made.add_argument("--tolerance", type=float, default=1e-5, metavar="T", help="relative, for --equal (default 1e-5)")
    made.add_argument("--anyway", action="store_true", help="take an axis or metric although it misleads")
    made.add_argument("--to", choices=("text", "md", "html", "json"), default="text", help="the form (default text)")
    made.add_argument("--out", metavar="FILE", help="write there instead of printing")
    commands.common(made, run=False)

    made = commands.add("report", _report, "write what runs were and what came of them, as one HTML file and Markdown")
    made.add_argument("paths", nargs="*", metavar="RUN", help="a run or several (default: the newest), or logs")
    made.add_argument("--out", default="report", metavar="FOLDER", help="where it goes (default report)")
    made.add_argument("--html-only", action="store_true", help="report.html alone")
    made.add_argument("--markdown-only", action="store_true", help="the Markdown files alone")
    made.add_argument("--price", type=float, metavar="PRICE", help="of one device for an hour")
    commands.common(made, run=False)

    made = commands.add("forecast", _forecast, "say what a run will come to: final loss, a target, what the rest takes")
    commands.common(made)
    made.add_argument("--target", type=float, metavar="LOSS", help="the loss to be reached")
    made.add_argument("--steps", type=count, metavar="N", help="planned steps, where the run's configuration has none")
    made.add_argument("--price-per-hour", type=float, metavar="PRICE", help="of all devices together")

    made = commands.add("alerts", _alerts, "send a word to an address that alerts are to go to")
    made.add_argument("what", choices=("test",), help="test: send one message and say whether it was taken")
    made.add_argument("address", metavar="URL", help="an address of Apprise's, such as mailto://… or slack://…")


def _doctor(options: argparse.Namespace) -> int:
    from barograph.config import load
    from barograph.doctor.command import explain, run_doctor

    if options.explain:
        print(explain(options.explain), end="")
        return 0
    settings = load()
    thresholds = dict(settings.thresholds)
    for pair in options.set:
        name, _, value = pair.partition("=")
        try:
            thresholds[name.strip()] = float(value)
        except ValueError:
            raise ValueError(f"--set {pair} is no threshold; write it as grad_norm_max=500") from None
    return run_doctor(
        options.paths,
        dir=options.dir,
        as_json=options.json,
        fail_on=options.fail_on,
        thresholds=thresholds,
        silenced=[*settings.silence, *options.silence],
        only=options.rules,
        everything=options.all,
    )


def _scaling(options: argparse.Namespace) -> int:
    from barograph.comparing.scaling_command import run_scaling
    from barograph.reading.catalog import DEFAULT_DIR

    keep = None
    if options.filter:
        from barograph.ask.filters import matches, parse

        condition = parse(options.filter)
        keep = partial(matches, condition)
    return run_scaling(
        options.paths or [options.dir or os.environ.get("BAROGRAPH_DIR", DEFAULT_DIR)],
        dir=options.dir,
        metric=options.metric,
        parameters=options.parameters,
        keep=keep,
        predict=options.predict,
        budget=options.budget,
        level=options.level,
        anyway=options.anyway,
        as_json=options.json,
    )


def _compare(options: argparse.Namespace) -> int:
    from barograph.comparing.command import run_compare

    return run_compare(
        options.paths,
        dir=options.dir,
        x=options.x,
        metric=options.metric,
        group=options.group,
        baseline=options.baseline,
        target=options.target,
        level=options.level,
        equal=options.equal,
        tolerance=options.tolerance,
        anyway=options.anyway,
        to="json" if options.json else options.to,
        out=options.out,
    )


def _report(options: argparse.Namespace) -> int:
    from barograph.reporting.command import run_report

    return run_report(
        options.paths,
        dir=options.dir,
        out=options.out,
        html_only=options.html_only,
        markdown_only=options.markdown_only,
        as_json=options.json,
        price=options.price,
    )


def _forecast(options: argparse.Namespace) -> int:
    from barograph.forecast import forecast_run, sentences
    from barograph.importing.resolve import resolve

    results = []
    for run, source in resolve(options.run, options.dir):
        outlook = forecast_run(
            run, planned_steps=options.steps, target=options.target, price_per_hour=options.price_per_hour
        )
        results.append({"run": run.id, "source": source} | outlook.as_dict())
        if not options.json:
            print("\n".join([run.id, *(f"  {sentence}" for sentence in sentences(outlook))]))
    if options.json:
        print(json_text(results))
    return 0


def _alerts(options: argparse.Namespace) -> int:
    from barograph.alerts.targets import test_target

    answer = test_target(options.address)
    print(answer.sentence, file=sys.stdout if answer.taken else sys.stderr)
    return 0 if answer.taken else 1
