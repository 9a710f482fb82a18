"""The command `barograph`.

In:   words typed by a person or a script.
Out:  text, or JSON with --json; exit code 0, 1 for a wrong name or file, 2 for a wrong argument.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barograph import __version__
from barograph.config import BACKENDS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        return int(options.function(options) or 0)
    except BrokenPipeError:  # the reader of a pipe has gone: `barograph ls | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except KeyError as error:
        return _sorry(str(error.args[0]) if error.args else "no such name")
    except ValueError as error:
        return _sorry(str(error))
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return _sorry(f"{error.strerror or error}{where}")


def _sorry(sentence: str) -> int:
    print(f"barograph: {sentence}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="barograph", description="Telemetry for training language models.")
    parser.add_argument("--version", action="version", version=f"barograph {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def command(name: str, function: Any, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        made.set_defaults(function=function)
        return made

    def common(made: argparse.ArgumentParser, run: bool = True, as_json: bool = True) -> None:
        if run:
            made.add_argument("run", metavar="RUN", help="a run's id, name, folder, or a log file")
        made.add_argument("--dir", help="the folder of runs (default: $BAROGRAPH_DIR, else runs)")
        if as_json:
            made.add_argument("--json", action="store_true", help="print JSON")

    made = command("ls", _ls, "list the runs")
    common(made, run=False)
    made.add_argument("--project", help="only this project's runs")

    made = command("show", _show, "show what a run was and where it stands")
    common(made)
    made.add_argument("--names", action="store_true", help="list every series")
    made.add_argument("--blackbox", action="store_true", help="the last steps before something went wrong")

    made = command("tail", _tail, "print a run's latest records and follow it while it goes on")
    common(made)
    made.add_argument("-n", "--lines", type=_count, default=20, help="how many records to begin with (default 20)")
    made.add_argument("--no-follow", action="store_true", help="print and stop")

    made = command("export", _export, "write a run's series to a file")
    common(made, as_json=False)
    made.add_argument("--to", choices=("csv", "jsonl", "parquet", "tensorboard"), default="csv", help="default csv")
    made.add_argument("--out", type=Path, help="the file (default: RUN.FORMAT here)")
    made.add_argument("--layout", choices=("wide", "long"), help="a row a step or a point (Parquet: long)")
    made.add_argument("--series", action="append", default=[], metavar="PATTERN", help="only series such as 'train/*'")
    made.add_argument("--branch", choices=("live", "all"), default="live", help="all: superseded steps too")

    made = command("import", _import, "read other tools' logs and keep them as runs")
    made.add_argument("paths", nargs="+", metavar="PATH", type=Path, help="files and folders of any known kind")
    made.add_argument("--project", help="the project they go to (default: what the source says)")
    made.add_argument("--name", help="what to call the run, where it is one")
    made.add_argument("--kind", help="take the paths for this kind of log instead of finding out")
    made.add_argument("--aliases", type=Path, metavar="FILE", help="a YAML file with names of yours")
    made.add_argument("--follow", action="store_true", help="keep reading while the other program writes")
    made.add_argument("--dry-run", action="store_true", help="say what would be read, and write nothing")
    common(made, run=False)

    made = command("sync", _sync, "send runs to another tracker, live or after the fact, each point once")
    made.add_argument("runs", nargs="+", metavar="RUN", help="runs' ids, names or folders")
    made.add_argument("--to", required=True, choices=BACKENDS, help="the tracker that gets a copy")
    made.add_argument("--follow", action="store_true", help="go on while the run is written")
    made.add_argument("--out", metavar="WHERE", help="the folder, project or address that gets it")
    made.add_argument("--name", metavar="NAME", help="what the run is called there")
    common(made, run=False)

    made = command("doctor", _doctor, "say what is wrong with runs and logs, since when, why, and what to do")
    made.add_argument(
        "paths", nargs="*", metavar="PATH", help="runs, folders, and logs of any kind (default: the newest run)"
    )
    made.add_argument("--fail-on", choices=("critical", "warning", "info"), help="exit with 3 if a finding is as bad")
    made.add_argument("--rules", type=_list, default=[], metavar="NAMES", help="only these rules, with commas between")
    made.add_argument("--silence", type=_list, default=[], metavar="NAMES", help="not these rules")
    made.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a threshold, such as grad_norm_max=500"
    )
    made.add_argument("--all", action="store_true", help="every remark, and what each rule that could not look lacks")
    made.add_argument("--explain", metavar="RULE", help="print a rule's page and stop")
    common(made, run=False)

    made = command("compare", _compare, "say what differs between runs, and whether that lets anything be concluded")
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
    common(made, run=False)

    made = command("sql", _sql, "answer a SELECT over runs, series, configurations and findings")
    made.add_argument("query", nargs="?", metavar="SELECT", help="one SELECT, in DuckDB's language")
    made.add_argument(
        "--format", choices=("table", "csv", "json", "parquet"), help="default: a table, or what --out ends in"
    )
    made.add_argument("--out", type=Path, metavar="FILE", help="write there instead of printing")
    made.add_argument("--schema", action="store_true", help="print what tables there are, and stop")
    common(made, run=False)

    made = command("mcp", _mcp, "serve the runs to a coding assistant, over the Model Context Protocol")
    common(made, run=False, as_json=False)

    made = command("forecast", _forecast, "say what a run will come to: its final loss, a target, what the rest takes")
    common(made)
    made.add_argument("--target", type=float, metavar="LOSS", help="the loss to be reached")
    made.add_argument("--steps", type=_count, metavar="N", help="planned steps, where the run's configuration has none")
    made.add_argument("--price-per-hour", type=float, metavar="PRICE", help="of all devices together")

    made = command("alerts", _alerts, "send a word to an address that alerts are to go to")
    made.add_argument("what", choices=("test",), help="test: send one message and say whether it was taken")
    made.add_argument("address", metavar="URL", help="an address of Apprise's, such as mailto://… or slack://…")

    made = command("gc", _gc, "seal what ended or killed runs left unsealed, and clear leftovers")
    common(made, run=False)

    made = command("bench", _bench, "measure what the device at hand can do, for the speed of light")
    made.add_argument("what", choices=("peak",), help="peak: the achievable TFLOP/s of matrix products")
    made.add_argument("--device", metavar="DEVICE", help="cpu, cuda or cuda:N; the first GPU if there is one")
    made.add_argument("--seconds", type=float, default=3.0, metavar="N", help="seconds for each precision (default 3)")
    made.add_argument("--json", action="store_true", help="print JSON")

    made = command("demo", _demo, "train a small GPT on Python's own source text, with everything on")
    made.add_argument("--steps", type=int, help="optimizer steps (default: about a minute's worth)")
    made.add_argument("--dir", help="the folder of runs (default: $BAROGRAPH_DIR, else runs)")
    made.add_argument("--seed", type=int, default=0, help="the same seed gives the same losses (default 0)")
    made.add_argument("--moe", action="store_true", help="a mixture of experts")
    made.add_argument("--mup", action="store_true", help="check a parametrisation over widths instead of training")
    made.add_argument("--quiet", action="store_true", help="a progress bar and the summary alone")
    made.add_argument("--fault", metavar="KIND", help="break the training on purpose, and have the doctor look at it")
    made.add_argument("--resume", metavar="RUN", help="go on with a demo's run from its last checkpoint")
    return parser


def _list(words: str) -> list[str]:
    return [word.strip() for word in words.split(",") if word.strip()]


def _count(word: str) -> int:
    number = int(word)
    if number < 0:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return number


def _print_json(value: Any) -> None:
    import msgspec

    from barograph.record import mark_non_finite

    print(msgspec.json.format(msgspec.json.encode(mark_non_finite(value)), indent=2).decode())


def _ls(options: argparse.Namespace) -> int:
    from barograph import overview
    from barograph.catalog import runs

    rows = [overview.summary(run) for run in runs(options.dir, options.project)]
    if options.json:
        _print_json(rows)
    elif not rows:
        where = options.dir or os.environ.get("BAROGRAPH_DIR", "runs")
        print(f"No runs in {where} yet. `barograph demo` makes one.")
    else:
        print(overview.table(rows))
    return 0


def _show(options: argparse.Namespace) -> int:
    from barograph import overview
    from barograph.catalog import find

    run = find(options.run, options.dir)
    if options.json:
        _print_json(overview.detail(run))
    elif options.blackbox:
        from barograph.blackbox.files import read
        from barograph.blackbox.table import lines

        boxes = read(run.dir)
        if not boxes:
            raise KeyError(f"{run.id} has no black box: nothing went wrong that would have written one")
        print("\n\n".join("\n".join(lines(box)) for box in boxes))
    elif options.names:
        print("\n".join(overview.printable(name) for name in run.names()))
    else:
        print(overview.page(run))
    return 0


def _tail(options: argparse.Namespace) -> int:
    from barograph.catalog import find
    from barograph.follow import follow

    run = find(options.run, options.dir)
    console = None
    if options.json:
        from barograph.record import Record, encode

        def show(record: Record) -> None:
            print(encode(record).decode(), flush=True)
    else:
        from barograph.sinks.console import Console

        about = run.manifest
        console = Console(1, total_steps=about.get("total_steps"), total_tokens=about.get("total_tokens"), patient=True)
        show = console.draw
    wait = None if options.no_follow else lambda: time.sleep(0.2)
    for record in follow(run, options.lines, wait, drawn=not options.json):
        show(record)
        if console is not None and console.gone:
            return 0
    return 0


def _export(options: argparse.Namespace) -> int:
    from barograph.catalog import find
    from barograph.export import export

    run = find(options.run, options.dir)
    if options.to == "tensorboard":
        from fnmatch import fnmatchcase

        from barograph.mirrors.send import copy_to_tensorboard

        out, patterns = options.out or Path(run.id), options.series
        path = run.log_files()[0] if Path(options.run).is_file() else run.dir
        wanted = (lambda name: any(fnmatchcase(name, one) for one in patterns)) if patterns else None
        print(f"{out}: {copy_to_tensorboard(path, out, wanted):,} rows")
        return 0
    out = options.out or Path(f"{run.id}.{options.to}")
    rows = export(run, options.to, out, layout=options.layout, patterns=tuple(options.series), branch=options.branch)
    print(f"{out}: {rows:,} rows")
    return 0


def _gc(options: argparse.Namespace) -> int:
    from barograph.catalog import runs
    from barograph.liveness import OPEN
    from barograph.spool import carry_leftovers
    from barograph.store.seal import seal

    report = []
    carry_leftovers()
    for run in runs(options.dir):
        for folder in sorted((run.dir / "store").glob("*/")):
            before = _size(folder)
            seal(folder, closed=run.status not in OPEN)
            if (after := _size(folder)) != before:
                report.append({"run": run.id, "writer": folder.name, "bytes_before": before, "bytes_after": after})
    if options.json:
        _print_json(report)
    elif not report:
        print("Nothing to do: every run that ended is sealed.")
    for row in () if options.json else report:
        print(f"{row['run']}  {row['bytes_before']:,} → {row['bytes_after']:,} bytes")
    return 0


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def _demo(options: argparse.Namespace) -> int:
    from barograph.demo.train import run_demo

    if options.mup:
        from barograph.demo.train import run_mup

        return run_mup(options.dir, options.seed)
    given = {"steps": options.steps, "resume": options.resume, "fault": options.fault}
    chosen = {name: value for name, value in given.items() if value is not None}
    return run_demo(dir=options.dir, seed=options.seed, moe=options.moe, quiet=options.quiet, **chosen)


def _bench(options: argparse.Namespace) -> int:
    from barograph.probes.speed.achieved import bench_peak

    return bench_peak(options.device, options.seconds, options.json)


def _import(options: argparse.Namespace) -> int:
    from barograph.importing.command import run_import

    return run_import(
        options.paths,
        project=options.project,
        dir=options.dir,
        follow=options.follow,
        dry_run=options.dry_run,
        as_json=options.json,
        name=options.name,
        kind=options.kind,
        aliases=options.aliases,
    )


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


def _sql(options: argparse.Namespace) -> int:
    from barograph.ask.command import run_sql

    form = "json" if options.json else options.format
    return run_sql(options.query, dir=options.dir, format=form, out=options.out, schema=options.schema)


def _mcp(options: argparse.Namespace) -> int:
    from barograph.ask.command import run_mcp

    return run_mcp(options.dir)


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
        _print_json(results)
    return 0


def _alerts(options: argparse.Namespace) -> int:
    from barograph.alerts.targets import test_target

    answer = test_target(options.address)
    print(answer.sentence, file=sys.stdout if answer.taken else sys.stderr)
    return 0 if answer.taken else 1


def _sync(options: argparse.Namespace) -> int:
    from barograph.catalog import find
    from barograph.mirrors.sync import sync

    found = [find(run, options.dir) for run in options.runs]
    folders = [
        one.log_files()[0] if Path(run).is_file() else one.dir for run, one in zip(options.runs, found, strict=True)
    ]
    return sync(folders, options.to, follow=options.follow, out=options.out, name=options.name, as_json=options.json)
