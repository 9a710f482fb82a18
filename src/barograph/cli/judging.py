"""Commands that draw conclusions: doctor, compare, report, forecast, alerts.

In:   words typed by a person or a script.
Out:  verdicts, as text, Markdown, HTML or JSON.
"""

from __future__ import annotations

import argparse
import sys

from barograph.cli.commands import Commands, count, words
from barograph.core.cycles import seldom_until_end
from barograph.core.options import load


def add(commands: Commands) -> None:
    """Declare them."""
    for declare in (_add_doctor, _add_scaling, _add_compare, _add_importance, _add_report, _add_forecast, _add_alerts):
        declare(commands)


def _add_doctor(commands: Commands) -> None:
    parser = commands.add("doctor", _doctor, "understand", "find what is wrong with runs or logs, and what to try")
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="runs, folders, logs of any kind; - is standard input (default: the newest run)",
    )
    parser.add_argument(
        "--fail-on", choices=("critical", "warning", "info"), help="exit with 3 if a finding is at least this severe"
    )
    parser.add_argument(
        "--rules", type=words, default=[], metavar="NAMES", help="check only these rules, separated by commas"
    )
    parser.add_argument(
        "--silence", type=words, default=[], metavar="NAMES", help="skip these rules, separated by commas"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="set a threshold, such as grad_norm_max=500"
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="show every info finding, and for each rule that was skipped the metrics it needs",
    )
    parser.add_argument("--checklist", action="store_true", help="also print the checklist of a healthy training")
    parser.add_argument("--explain", metavar="RULE", help="print the documentation of a rule and stop")
    commands.common(parser, run=False)


def _add_scaling(commands: Commands) -> None:
    parser = commands.add("scaling", _scaling, "understand", "fit a scaling law to runs of several sizes, and predict")
    parser.add_argument("paths", nargs="*", metavar="RUN", help="runs, folders of runs, logs (default: all runs)")
    parser.add_argument("--filter", metavar="CONDITION", help="only runs that match, such as 'config.data = c4'")
    parser.add_argument(
        "--metric", metavar="NAME", help="the metric whose final value is the loss (default: the evaluation loss)"
    )
    parser.add_argument("--parameters", metavar="KEY", help="the configuration key that holds the parameter count")
    parser.add_argument(
        "--predict",
        action="append",
        default=[],
        metavar="N,D",
        help="predict the loss of N parameters and D tokens, such as 7B,2T",
    )
    parser.add_argument(
        "--budget", action="append", default=[], metavar="C", help="the best N and D for C = 6 N D FLOPs, such as 1e23"
    )
    parser.add_argument(
        "--level", type=float, default=0.95, metavar="P", help="confidence level of the intervals (default 0.95)"
    )
    parser.add_argument(
        "--anyway",
        action="store_true",
        help="include runs that did not end as planned, and runs whose losses differ in kind",
    )
    commands.common(parser, run=False)


def _add_compare(commands: Commands) -> None:
    parser = commands.add("compare", _compare, "understand", "compare runs: what differs, and is it more than noise")
    parser.add_argument(
        "paths", nargs="+", metavar="RUN", help="runs, folders of runs (each folder is a group), or logs of any kind"
    )
    parser.add_argument("--x", choices=("step", "tokens", "samples", "time", "flops"), help="the axis of the curves")
    parser.add_argument("--metric", metavar="NAME", help="what to compare (default: the evaluation's loss)")
    parser.add_argument("--group", metavar="KEY", help="group the runs by a configuration key, such as lr")
    parser.add_argument("--baseline", metavar="RUN", help="the run, group or value to compare the others with")
    parser.add_argument(
        "--target", type=float, metavar="VALUE", help="measure the steps and time to this value of the metric"
    )
    parser.add_argument(
        "--level", type=float, default=0.05, metavar="P", help="significance level of all tests together (default 0.05)"
    )
    parser.add_argument(
        "--equal",
        action="store_true",
        help="the runs should be identical: print where they first differ, and exit with 3 if they do",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        metavar="T",
        help="differences of this part of the value count as equal (with --equal)",
    )
    parser.add_argument("--anyway", action="store_true", help="use an axis or metric although it would mislead")
    parser.add_argument(
        "--to", choices=("text", "md", "html", "json"), default="text", help="the format (default text)"
    )
    parser.add_argument("--out", metavar="FILE", help="write there instead of printing")
    commands.common(parser, run=False)


def _add_importance(commands: Commands) -> None:
    parser = commands.add(
        "importance", _importance, "understand", "which configuration keys explain a metric, and how sure that is"
    )
    parser.add_argument("paths", nargs="*", metavar="RUN", help="runs, folders of runs, logs (default: all runs)")
    parser.add_argument("--metric", metavar="NAME", help="the metric to explain (default: the evaluation's loss)")
    parser.add_argument("--value", choices=("last", "best"), default="last", help="its last value, or its best")
    parser.add_argument("--filter", metavar="CONDITION", help="only runs that match, such as 'project = sweep'")
    parser.add_argument(
        "--level", type=float, default=0.05, metavar="P", help="significance level of all keys together (default 0.05)"
    )
    parser.add_argument("--to", choices=("text", "md", "json"), default="text", help="the format (default text)")
    commands.common(parser, run=False)


def _add_report(commands: Commands) -> None:
    parser = commands.add("report", _report, "understand", "write a report of runs, as one HTML file and Markdown")
    parser.add_argument("paths", nargs="*", metavar="RUN", help="runs or logs (default: the newest run)")
    parser.add_argument("--out", default="report", metavar="FOLDER", help="the folder to write to (default report)")
    parser.add_argument("--html-only", action="store_true", help="write report.html only")
    parser.add_argument("--markdown-only", action="store_true", help="write the Markdown files only")
    parser.add_argument("--price", type=float, metavar="PRICE", help="price of one device for an hour, in any currency")
    parser.add_argument("--devices", type=count, metavar="N", help="how many devices the run held, if it doesn't say")
    commands.common(parser, run=False)


def _add_forecast(commands: Commands) -> None:
    parser = commands.add(
        "forecast", _forecast, "understand", "predict a run's final loss, and the time and cost to get there"
    )
    commands.common(parser)
    parser.add_argument("--target", type=float, metavar="LOSS", help="also predict when this loss is reached")
    parser.add_argument(
        "--steps", type=count, metavar="N", help="planned steps, if the run's configuration does not say"
    )
    parser.add_argument(
        "--price-per-hour", type=float, metavar="PRICE", help="price of all devices together for an hour"
    )


def _add_alerts(commands: Commands) -> None:
    parser = commands.add("alerts", _alerts, "run", "send a test message to an address for alerts")
    parser.add_argument("what", choices=("test",), help="test: send one message and print whether it was accepted")
    parser.add_argument("address", metavar="URL", help="an Apprise address, such as mailto://… or slack://…")


def _doctor(options: argparse.Namespace) -> int:
    seldom_until_end()
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
            raise ValueError(f"--set {pair} is not a threshold; write it as grad_norm_max=500") from None
    return run_doctor(
        options.paths,
        dir=options.dir,
        as_json=options.json,
        fail_on=options.fail_on,
        thresholds=thresholds,
        silenced=[*settings.silence, *options.silence],
        only=options.rules,
        everything=options.all,
        checklist=options.checklist,
    )


def _scaling(options: argparse.Namespace) -> int:
    from barograph.views.compare.scaling_command import run_scaling

    return run_scaling(
        options.paths,
        dir=options.dir,
        metric=options.metric,
        parameters=options.parameters,
        condition=options.filter,
        predict=options.predict,
        budget=options.budget,
        level=options.level,
        anyway=options.anyway,
        as_json=options.json,
    )


def _compare(options: argparse.Namespace) -> int:
    from barograph.views.compare.command import run_compare

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


def _importance(options: argparse.Namespace) -> int:
    from barograph.views.importance import run_importance

    return run_importance(
        options.paths,
        dir=options.dir,
        metric=options.metric,
        value=options.value,
        condition=options.filter,
        level=options.level,
        to="json" if options.json else options.to,
    )


def _report(options: argparse.Namespace) -> int:
    from barograph.views.report.command import run_report

    return run_report(
        options.paths,
        dir=options.dir,
        out=options.out,
        html_only=options.html_only,
        markdown_only=options.markdown_only,
        as_json=options.json,
        price=options.price,
        devices=options.devices,
    )


def _forecast(options: argparse.Namespace) -> int:
    from barograph.views.compare.forecast_command import run_forecast

    return run_forecast(
        options.run,
        dir=options.dir,
        steps=options.steps,
        target=options.target,
        price_per_hour=options.price_per_hour,
        as_json=options.json,
    )


def _alerts(options: argparse.Namespace) -> int:
    from barograph.sidecar.alerts.targets import test_target

    answer = test_target(options.address)
    print(answer.sentence, file=sys.stdout if answer.taken else sys.stderr)
    return 0 if answer.taken else 1
