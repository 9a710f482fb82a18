"""What a run was: who and what, hardware, time, hyper-parameters, environment.

In:   the subject of a report.
Out:  sections.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from barograph.core import text
from barograph.query.causes import CAUSES
from barograph.query.files import thinned
from barograph.query.keys import plain
from barograph.views.report import figures
from barograph.views.report.content import (
    Block,
    FactList,
    Figure,
    Heading,
    ReportTable,
    Section,
    Sentence,
    TextBlock,
    say,
    section,
)
from barograph.views.report.subject import Subject

_WORDS = {
    "productive": "productive", "data": "waiting for data", "communication": "communication",
    "evaluation": "evaluation", "checkpoint": "checkpoints", "startup": "start-up", "redone": "repeated steps",
    "downtime": "down after a crash", "other": "other", "idle": "idle time",
}  # fmt: skip
_STATUS = {
    "finished": ("good", "finished"), "failed": ("bad", "failed"), "crashed": ("bad", "crashed"),
    "killed": ("bad", "was killed"), "out of memory": ("bad", "was killed because memory ran out"),
    "diverged": ("bad", "diverged: its last loss is not finite,"),
    "hung": ("bad", "hangs: its process is there, and no step comes"), "terminated": ("warn", "was terminated"),
    "interrupted": ("warn", "was interrupted"), "running": ("", "is still running"),
    "silent": ("warn", "is still running, and has logged nothing for a while"),
    "stuck": ("warn", "is still running, and its steps do not advance"),
    "stalled": ("warn", "has not been heard of for a while"),
}  # fmt: skip
MOST_KEYS = 400
MOST_DIFF = 20_000  # characters of a difference of code
_SHAPING = ("torch", "transformers", "numpy", "triton", "deepspeed", "accelerate", "lightning", "jax", "flax",
            "datasets", "tokenizers", "flash-attn", "barograph")  # fmt: skip


def header(subject: Subject) -> Section | None:
    """Who and what."""
    about = subject.about
    # of an imported log without times the manifest has the time of the import
    timed = subject.source is None or _span(subject) is not None
    rows: list[tuple[str, Figure | None]] = [
        ("run", figures.word(subject.name, "manifest: name")),
        ("project", figures.word(subject.run.project, "manifest: project")),
        ("status", figures.word(subject.status, "manifest: status, and whether its process lives")),
        ("started", figures.moment(about.get("created"), "manifest: created") if timed else None),
        ("ended", figures.moment(about.get("finished"), "manifest: finished") if timed else None),
        ("tags", figures.word(", ".join(map(str, subject.run.tags)), "manifest: tags") if subject.run.tags else None),
        ("notes", figures.word(about["notes"], "manifest: notes", 2000) if about.get("notes") else None),
        ("command", _command(about)),
        ("code", _commit(about)),
        ("folder", figures.word(subject.run.dir, "where the run was read") if subject.source is None else None),
    ]
    if subject.source is not None:
        kind = figures.word(subject.source.get("kind", "unknown"), "manifest: source")
        path = figures.word(subject.source.get("path") or subject.source.get("file") or "", "manifest: source")
        rows += [("read from", figures.word(f"{path.text} ({kind.text})" if path.text else kind.text, "manifest"))]
    blocks: list[Block | None] = [FactList(tuple((label, figure) for label, figure in rows if figure is not None))]
    blocks += list(_standing(subject))
    return section("header", "The run", blocks)


def _standing(subject: Subject) -> Iterator[Sentence]:
    """How it ended, how far it came; what there is not to say, and why."""
    name = figures.word(subject.name, "manifest: name")
    mood, words = _STATUS.get(subject.status, ("", ""))
    last, planned = subject.last_step, subject.planned
    if subject.main is None:
        yield say("The run logged no step.", "warn")
    elif len(subject.main) == 1:
        step = figures.count(last or 0, f"step of {subject.main.name}")
        yield say("The run logged a single step, step {step}: it has values but no curves.", "warn", step=step)
    if words and last is not None and subject.main is not None and len(subject.main) > 1:
        step = figures.count(last, f"last step of {subject.main.name}")
        if planned and planned > 0:
            whole = figures.count(planned, "configuration: planned steps", "planned step")
            share = figures.percent(min(1.0, subject.done / planned), "steps")
            template = f"{{name}} {words} at step {{step}}, {{share}} of {{whole}}."
            mood = "" if subject.counted["critical"] else mood
            yield say(template, mood, name=name, step=step, share=share, whole=whole)
        else:
            yield say(f"{{name}} {words} at step {{step}}.", mood, name=name, step=step)
    if subject.is_alive:
        yield say("The values are those at the time of this report.", "dim")
    if not subject.config:
        yield say("No configuration is recorded: hyper-parameters and the planned length are not known.", "dim")
    if subject.source is not None:
        yield say("The run was read from another tool's log; what that log lacks is missing here.", "dim")
    removed = thinned(subject.run)
    if removed:
        yield Sentence((f"This run was {figures.word(removed, '').text}.",), "warn", "store")
    for problem in [problem for problem in subject.run.problems if problem != removed][:5]:
        yield Sentence((f"A file could not be read completely: {figures.word(problem, '').text}",), "warn", "store")


def _command(about: Mapping[str, Any]) -> Figure | None:
    command = about.get("command")
    if not isinstance(command, list) or not command:
        return None
    return figures.word(" ".join(map(str, command)), "manifest: command", 1000)


def _commit(about: Mapping[str, Any]) -> Figure | None:
    git = about.get("git")
    commit = about.get("repo_commit") or (git.get("commit") if isinstance(git, dict) else None)
    if not commit:
        return None
    branch = git.get("branch") if isinstance(git, dict) else None
    dirty = isinstance(git, dict) and git.get("dirty")
    text = f"{str(commit)[:12]}{f' on {branch}' if branch else ''}{', with uncommitted changes' if dirty else ''}"
    return figures.word(text, "manifest: git")


# -- hardware ---------------------------------------------------------------------------------------------


def hardware(subject: Subject) -> Section | None:
    """Devices, processors, memory, ranks; what is not recorded is said to be so."""
    about, rows = subject.about, []
    found = about.get("hardware")
    found = found if isinstance(found, dict) else {}
    gpus = found.get("gpus")
    gpus = [gpu for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []
    models = [record.fields for record in subject.records["gpu-model"]]
    if gpus:
        for name, memory, number in _grouped(gpus):
            text = f"{number} × {name}" + (f", {figures.size(memory, '').text}" if memory else "")
            rows.append(("GPUs on rank zero's machine", figures.word(text, "manifest: hardware")))
    elif models:
        names = sorted({str(model.get("name")) for model in models if model.get("name")})
        rows.append(("GPUs", figures.word(", ".join(names), "gpu-model records")))
    elif found:
        rows.append(("GPUs", figures.word("none recorded", "manifest: hardware")))
    cpu = found.get("cpu")
    if isinstance(cpu, dict) and cpu:
        cores = f"{cpu['cores']} cores" if cpu.get("cores") else ""
        usable = f", {cpu['usable']} usable" if cpu.get("usable") not in (None, cpu.get("cores")) else ""
        text = ", ".join(part for part in (str(cpu.get("model") or ""), f"{cores}{usable}") if part)
        rows.append(("processor", figures.word(text, "manifest: hardware")))
    for key, label in (("memory_bytes", "memory"), ("memory_limit_bytes", "memory limit of the job")):
        if isinstance(found.get(key), (int, float)) and found[key] > 0:
            rows.append((label, figures.size(found[key], "manifest: hardware")))
    world = about.get("world_size")
    if isinstance(world, int) and world > 0:
        rows.append(("processes", figures.count(world, "manifest: world_size")))
    if about.get("host"):
        rows.append(("host", figures.word(about["host"], "manifest: host")))
    light = next(iter(subject.records["sol"]), None)
    if light is not None:
        rows += list(_peak(light.fields))
    if not rows:
        return section("hardware", "Hardware", [say("The hardware is not recorded.", "dim")])
    return section("hardware", "Hardware", [FactList(tuple(rows))])


def _peak(light: Mapping[str, Any]) -> Iterator[tuple[str, Figure]]:
    peak = light.get("mfu_peak_tflops")
    if isinstance(peak, (int, float)) and peak > 0:
        origin = str(light.get("mfu_peak_source") or "source not recorded")
        shown = text.number(peak)
        yield "peak FLOP/s used for MFU", figures.word(f"{shown} TFLOP/s ({origin})", "sol record: mfu_peak_tflops")
    flops = light.get("flops_per_token")
    if isinstance(flops, (int, float)) and flops > 0:
        yield "FLOPs a token", figures.amount(flops, "sol record: flops_per_token")


def _grouped(gpus: list[dict[str, Any]]) -> list[tuple[str, float | None, int]]:
    counted: dict[tuple[str, float | None], int] = {}
    for gpu in gpus:
        key = (str(gpu.get("name") or "unnamed"), gpu.get("memory_bytes"))
        counted[key] = counted.get(key, 0) + 1
    return [(name, memory, number) for (name, memory), number in counted.items()]


# -- time -------------------------------------------------------------------------------------------------


def runtime(subject: Subject) -> Section | None:
    """Wall time and where it went."""
    totals = subject.totals
    if totals is None:
        span = _span(subject)
        if span is None:
            return section("runtime", "Run time", [say("The run time is not recorded.", "dim")])
        words = "From its first logged step to its last the run took {span}; where that time went is not recorded."
        return section("runtime", "Run time", [say(words, span=span)])
    wall = figures.duration(totals.wall, "goodput: wall")
    goodput = figures.percent(totals.goodput, "goodput: productive / wall")
    productive = figures.duration(totals.productive, "goodput: productive")
    blocks: list[Block | None] = [
        say("The run took {wall}; {productive} of it, {goodput}, were steps that were kept.",
            wall=wall, productive=productive, goodput=goodput)
    ]  # fmt: skip
    losses = sorted(((getattr(totals, cause), cause) for cause in CAUSES if cause != "productive"), reverse=True)
    if losses[0][0] > 0.01 * totals.wall:
        lost, cause = losses[0]
        blocks.append(
            say("Most of the rest went to {cause}: {lost}, {share} of the run.",
                cause=figures.word(_WORDS[cause], "goodput"), lost=figures.duration(lost, f"goodput: {cause}"),
                share=figures.percent(lost / totals.wall, f"goodput: {cause} / wall"))
        )  # fmt: skip
    if totals.redone_steps:
        steps = figures.count(totals.redone_steps, "goodput: redone_steps", "step")
        again = figures.duration(totals.redone, "goodput: redone")
        blocks.append(say("{steps} were repeated after a resume or rewind, which took {again}.", "warn",
                          steps=steps, again=again))  # fmt: skip
    if totals.crashes:
        times = figures.count(totals.crashes, "goodput: crashes", "time")
        blocks.append(say("The run crashed {times} and was started again.", "warn", times=times))
    cost = subject.cost
    rate = cost.get("gpu_cost", 0) / totals.held if cost.get("gpu_cost") and totals.held > 0 else None
    rows: list[tuple[str | Figure, ...]] = []
    for cause in CAUSES:
        seconds = getattr(totals, cause)
        if seconds <= 0 and cause != "productive":
            continue
        row: list[str | Figure] = [
            _WORDS[cause], figures.duration(seconds, f"goodput: {cause}"),
            figures.percent(seconds / totals.wall, f"goodput: {cause} / wall"),
        ]  # fmt: skip
        if rate is not None:
            spent = 0.0 if cause == "downtime" else seconds * rate
            row.append(figures.money(spent, f"goodput: {cause} × price of the devices"))
        rows.append(tuple(row))
    heads = ("where the time went", "time", "share") + (("cost",) if rate is not None else ())
    blocks.append(ReportTable("Where the wall time went", heads, tuple(rows), frozenset({1, 2, 3})))
    if totals.paused > 0:
        blocks.append(say("Planned pauses of {paused} are not counted.", "dim",
                          paused=figures.duration(totals.paused, "goodput: paused")))  # fmt: skip
    return section("runtime", "Run time", blocks)


def _span(subject: Subject) -> Figure | None:
    time = subject.main.time if subject.main is not None else None
    if time is None or len(time) < 2 or not time[0] > 86_400 or not time[-1] > time[0]:
        return None
    return figures.duration(float(time[-1] - time[0]), "times of the logged steps")


# -- hyper-parameters -------------------------------------------------------------------------------------


def hyper_parameters(subject: Subject) -> Section | None:
    """The configuration, and what the run was trained on."""
    blocks: list[Block | None] = []
    leaves = list(_leaves(subject.config, ""))
    if leaves:
        rows = tuple((figures.word(key, "configuration", 200), figures.word(value, f"configuration: {key}", 300))
                     for key, value in leaves[:MOST_KEYS])  # fmt: skip
        blocks.append(ReportTable("Configuration", ("key", "value"), rows))
        if len(leaves) > MOST_KEYS:
            more = figures.count(len(leaves) - MOST_KEYS, "configuration", "more key")
            blocks.append(say("The configuration has {more}; they are in the run's manifest.", "dim", more=more))
    else:
        blocks.append(say("No configuration is recorded.", "dim"))
    blocks += list(_data(subject))
    return section("hyper-parameters", "Hyper-parameters and data", blocks, "Hyper-parameters")


def _data(subject: Subject) -> Iterator[Block]:
    records = subject.records["dataset"]
    if records:
        rows = []
        for record in records[:20]:
            fields = record.fields
            rows.append((
                figures.word(fields.get("split", ""), "dataset record: split"),
                figures.amount(fields["tokens"], "dataset record: tokens") if _real(fields.get("tokens")) else "",
                figures.count(fields["files"], "dataset record: files") if _real(fields.get("files")) else "",
            ))  # fmt: skip
        yield Heading("Data")
        yield ReportTable("Data sets", ("split", "tokens", "files"), tuple(rows), frozenset({1, 2}))
    elif isinstance(subject.about.get("dataset"), dict):
        facts = [(str(key), figures.word(value, f"manifest: dataset: {key}"))
                 for key, value in _leaves(subject.about["dataset"], "")]  # fmt: skip
        if facts:
            yield Heading("Data")
            yield FactList(tuple(facts[:40]))


def _real(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """A nested configuration as dotted keys; lists stay as they are written."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif path:
        yield path, "" if value is None else value if isinstance(value, str) else plain(value)


# -- environment ------------------------------------------------------------------------------------------


def environment(subject: Subject) -> Section | None:
    """Python, packages, code; what a rerun needs."""
    about, rows = subject.about, []
    found = about.get("environment")
    found = found if isinstance(found, dict) else {}
    for key in ("python", "platform"):
        if found.get(key):
            rows.append((key, figures.word(found[key], f"manifest: environment: {key}")))
    packages = about.get("packages")
    packages = packages if isinstance(packages, dict) else {}
    for name in _SHAPING:
        if name in packages:
            rows.append((name, figures.word(packages[name], f"manifest: packages: {name}")))
    blocks: list[Block | None] = [FactList(tuple(rows)) if rows else None]
    if packages:
        number = figures.count(len(packages), "manifest: packages", "package")
        blocks.append(say("{number} were installed; the manifest lists them all.", "dim", number=number))
    variables = found.get("variables")
    if isinstance(variables, dict) and variables:
        blocks.append(Heading("Environment variables that affect the training"))
        table = tuple((figures.word(key, "manifest: environment"), figures.word(value, "manifest: environment"))
                      for key, value in list(variables.items())[:60])  # fmt: skip
        blocks.append(ReportTable("Environment variables", ("variable", "value"), table))
    if len(subject.segments) > 1:
        blocks.append(Heading("Starts and resumes"))
        lines = tuple(
            (figures.count(segment.number, "segments"), figures.word(segment.kind, "segments"),
             figures.count(segment.start_step, "segments") if segment.start_step is not None else "")
            for segment in subject.segments[:60]
        )  # fmt: skip
        blocks.append(ReportTable("Segments of the run", ("segment", "kind", "from step"), lines, frozenset({0, 2})))
    diff = (about.get("git") or {}).get("diff") if isinstance(about.get("git"), dict) else None
    if isinstance(diff, str) and diff.strip():
        blocks.append(Heading("Uncommitted changes"))
        blocks.append(TextBlock("The difference to the commit", diff[:MOST_DIFF]))
        if len(diff) > MOST_DIFF:
            more = figures.count(len(diff) - MOST_DIFF, "manifest: git", "more character")
            blocks.append(say("The difference has {more}; the manifest has all of it.", "dim", more=more))
    if not any(block is not None for block in blocks):
        blocks = [say("The environment is not recorded.", "dim")]
    return section("environment", "Environment", blocks)
