"""Logs in ways that nobody tuned: how many of them are read whole, each row of the loss at its step.

    python benchmarks/doctor/dialects.py [--seed 0] [--files 1000] [--family apart] [--out FOLDER] [--misses 10]
    python benchmarks/doctor/dialects.py --times

In:   a seed; it draws for each file how a row is laid out, what its step and its loss are called, what stands before,
      between and behind, when rows come, and how often the program was launched.
Out:  the share of files with every row of the loss read at the right step and no other, by what was drawn, the worst
      first. With --times: seconds that `barograph doctor` takes for logs of growing size, beside Python's own start.

Other families are in `dialects_families.py`. Each was scored once before any reader was changed for it: `apart` and
`third` (72 and 83 % of files at first sight), `fourth` (67 %) and `fifth` (50 %) have led to general changes since; so
have the pasted logs whose shapes `sixth` has (38 % before them, 83 % when it was written). `seventh` and `eighth`
(`dialects_seventh.py`, `dialects_eighth.py`: 65 and 70 % of 300 files with seed 1 at first sight) were written by
somebody who writes no reader, and have led to general changes since. So was `ninth` (`dialects_ninth.py`: 66 and
73 % of other seeds before readers were changed for it). `tenth` (`dialects_tenth.py`) has shapes that frameworks and
people print, and `eleventh` (`dialects_eleventh.py`) those of many languages, adversaries, tables and terminals; each
was scored once before a reader was changed for it: 68 % and 56 % of 300 files with seed 1.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
if (HERE.parent.parent / "src" / "barograph").is_dir():
    sys.path.insert(0, str(HERE.parent.parent / "src"))

Row = tuple[int, str]  # step, and the loss as printed


class Draw:
    """What was drawn for a file, by name: `draw("step", [...])` is one of the list, the same each time."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.drawn = chance, dict[str, str]()
        self.choices: dict[str, Any] = {}

    def __call__(self, name: str, choices: list[Any], weights: list[float] | None = None) -> Any:
        if name in self.choices:
            return self.choices[name]
        at = self.chance.choices(range(len(choices)), weights)[0]
        choice = self.choices[name] = choices[at]
        self.drawn[name] = getattr(choice, "__name__", None) or str(choice)
        return choice


class Words(NamedTuple):
    """A family of ways to write: each is a list to draw from."""

    steps: list[str]  # with {s} and {n}
    losses: list[str]
    eval_losses: list[str]
    joints: list[str]  # between a name and its value
    gaps: list[str]  # between two values
    numbers: list[Callable[[float], str]]
    extras: list[str]  # with {lr}, {norm}, {ms}, {tok}
    prefixes: list[Callable[[int, random.Random], str]]
    noise: list[str]
    layouts: list[Callable[..., list[tuple[str, Row | None]]]]
    wraps: list[Callable[[str], tuple[bytes, str]]]  # a text as bytes, and the ending of its file
    counted: tuple[Callable[..., Any], ...] = ()  # layouts that count otherwise than `steps`, without evaluations
    bare: tuple[Callable[..., Any], ...] = ()  # the same, of several lines a row: no prefix, one writer, no resume


class Plan(NamedTuple):
    """The rows of a launch and what they are written with."""

    rows: list[tuple[int, float]]
    total: int
    words: Words
    draw: Draw
    loss: str
    step: str
    joint: str
    gap: str
    number: Callable[[float], str]
    extras: list[str]

    def values(self, at: int) -> list[str]:
        """What stands beside a row's loss."""
        step = self.rows[at][0]
        known = {"lr": f"{3e-4 * (1 - step / (2 * self.total)):.3e}", "norm": f"{1 + (step * 7 % 13) / 10:.3f}",
                 "ms": f"{231 + step * 31 % 17}.{step % 10}", "tok": f"{51_000 + step * 37 % 4001:,}",
                 "frac": f"{100 * step / self.total:.1f}",
                 "eta": f"{(self.total - step) // 60}m{step % 60:02d}s"}  # fmt: skip
        return [extra.format(j=self.joint, **known) for extra in self.extras]


def one_line(plan: Plan) -> list[tuple[str, Row | None]]:
    """Step, loss and the rest on a line."""
    lines: list[tuple[str, Row | None]] = []
    for at, (step, loss) in enumerate(plan.rows):
        shown = plan.number(loss)
        head = plan.step.format(s=step, n=plan.total)
        text = plan.gap.join([head, f"{plan.loss}{plan.joint}{shown}", *plan.values(at)])
        lines.append((text, (step, shown)))
    return lines


def loss_last(plan: Plan) -> list[tuple[str, Row | None]]:
    """The rest first, the loss at the end."""
    lines: list[tuple[str, Row | None]] = []
    for at, (step, loss) in enumerate(plan.rows):
        shown = plan.number(loss)
        head = plan.step.format(s=step, n=plan.total)
        lines.append((plan.gap.join([head, *plan.values(at), f"{plan.loss}{plan.joint}{shown}"]), (step, shown)))
    return lines


def several_lines(plan: Plan) -> list[tuple[str, Row | None]]:
    """A line with the step, and below it a line a value."""
    lines: list[tuple[str, Row | None]] = []
    indent = plan.draw("indent", ["  ", "\t", "    - ", " * "])
    for at, (step, loss) in enumerate(plan.rows):
        shown = plan.number(loss)
        lines.append((plan.step.format(s=step, n=plan.total), None))
        lines.append((f"{indent}{plan.loss}{plan.joint}{shown}", (step, shown)))
        lines += [(f"{indent}{value}", None) for value in plan.values(at)]
    return lines


def printed_dict(plan: Plan) -> list[tuple[str, Row | None]]:
    """A dictionary or an object with the step in it."""
    key = plan.draw("step key", ["step", "global_step", "iter", "iteration"])
    loss_key = plan.loss.strip().replace(" ", "_")
    text = plan.draw("dictionary", ["python", "json", "behind words"])
    lines: list[tuple[str, Row | None]] = []
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        body = {key: step, loss_key: "LOSS", "lr": 3e-4}
        line = (str(body) if text != "json" else json.dumps(body)).replace("'LOSS'", shown).replace('"LOSS"', shown)
        lines.append((("metrics: " if text == "behind words" else "") + line, (step, shown)))
    return lines


def table(plan: Plan) -> list[tuple[str, Row | None]]:
    """A heading with the names once, and rows of numbers."""
    bar = plan.draw("columns", [" | ", "  ", "\t"])
    names = ["step", plan.loss.strip().replace(" ", "_"), "lr"]
    lines: list[tuple[str, Row | None]] = [(bar.join(f"{name:>12}" for name in names), None)]
    if bar == " | ":
        lines.append(("-" * 42, None))
    for step, loss in plan.rows:
        shown = plan.number(loss).split()[0]
        lines.append((bar.join(f"{cell:>12}" for cell in (str(step), shown, "3.000e-04")), (step, shown)))
    return lines


def bar(plan: Plan) -> list[tuple[str, Row | None]]:
    """tqdm with the loss behind it, each state its own line."""
    lines: list[tuple[str, Row | None]] = []
    name = plan.loss.strip().replace(" ", "_")
    for step, loss in plan.rows:
        shown, share = plan.number(loss).split()[0], 100 * step // plan.total
        filled = "#" * (share // 10) + " " * (10 - share // 10)
        clock = f"{step // 600:02d}:{step // 10 % 60:02d}<{(plan.total - step) // 600:02d}:00,  9.1{step % 10}it/s"
        lines.append((f"train: {share:3d}%|{filled}| {step}/{plan.total} [{clock}, {name}={shown}]", (step, shown)))
    return lines


def epochs(plan: Plan) -> list[tuple[str, Row | None]]:
    """An epoch a row, with the losses of both sets on it, or below it."""
    lines: list[tuple[str, Row | None]] = []
    how = plan.draw("epoch", ["on a line", "a heading", "of several lines"])
    loss = plan.draw("epoch's loss", ["train_loss", "Train Loss", "training loss", "loss"])
    other = plan.draw("epoch's other loss", ["val_loss", "Val Loss", "validation loss", "test loss"])
    for at, (_, value) in enumerate(plan.rows, 1):
        shown = plan.number(value)
        mine, its = f"{loss}{plan.joint}{shown}", f"{other}{plan.joint}{plan.number(value + 0.2)}"
        if how == "on a line":
            lines.append(
                (plan.gap.join([f"Epoch {at}/{len(plan.rows)}", mine, its, f"acc{plan.joint}0.91"]), (at, shown))
            )
        elif how == "a heading":
            lines += [
                (f"Epoch {at}/{len(plan.rows)}", None),
                ("-" * 10, None),
                (plan.gap.join([mine, its]), (at, shown)),
            ]
        else:
            lines += [(f"--- epoch {at} ---", None), (mine, (at, shown)), (its, None)]
    return lines


def objects(plan: Plan) -> list[tuple[str, Row | None]]:
    """Values as a library prints its own numbers."""
    form = plan.draw(
        "object", ["tensor({}, device='cuda:0')", "np.float32({})", "tensor({}, grad_fn=<NllLossBackward0>)"]
    )
    lines: list[tuple[str, Row | None]] = []
    for step, value in plan.rows:
        shown = f"{value:.4f}"
        lines.append(
            (
                f"{plan.step.format(s=step, n=plan.total)}{plan.gap}{plan.loss}{plan.joint}{form.format(shown)}",
                (step, shown),
            )
        )
    return lines


def stamp(step: int) -> str:
    return f"{12 + step // 3600 % 12:02d}:{step // 60 % 60:02d}:{step % 60:02d}"


def plain_wrap(text: str) -> tuple[bytes, str]:
    return text.encode(), "log"


def crlf(text: str) -> tuple[bytes, str]:
    return text.replace("\n", "\r\n").encode(), "txt"


def utf16(text: str) -> tuple[bytes, str]:
    return text.encode("utf-16"), "log"


def packed(text: str) -> tuple[bytes, str]:
    return gzip.compress(text.encode(), mtime=0), "log.gz"


def coloured(text: str) -> tuple[bytes, str]:
    return "".join(f"\x1b[32m{line}\x1b[0m\n" for line in text.splitlines()).encode(), "out"


def markdown(text: str) -> tuple[bytes, str]:
    return f"# A run\n\nWhat it printed:\n\n```\n{text}```\n\nIt took 3 hours.\n".encode(), "md"


def html(text: str) -> tuple[bytes, str]:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    page = f"<!DOCTYPE html>\n<html><head><title>step 1 of 2</title></head><body>\n<pre>{escaped}</pre></body></html>\n"
    return page.encode(), "html"


WORDS = Words(
    steps=["step {s}", "Step {s}/{n}", "iter {s}:", "iteration: {s}", "it={s}", "global_step={s}", "update {s}",
           "[step {s}]", "step={s:06d}", "step {s:,}", "train_step: {s}", "steps: {s}", "step:{s}/{n}", "(step {s})",
           "Iteration {s} / {n}", "Step: [{s}/{n}]", "#step {s}", "after {s} steps", "Iter[{s}]", "num_updates: {s}"],
    losses=["loss", "train_loss", "train/loss", "Loss", "lm loss", "lm_loss", "CrossEntropyLoss", "nll", "ce",
            "ce_loss", "xent", "train_xent", "cross_entropy", "loss_per_tok", "training loss", "mean loss", "avg_loss",
            "train/CrossEntropyLoss", "mlm_loss", "Train Loss", "loss/train", "train_nll", "trainLoss"],
    eval_losses=["val_loss", "val loss", "validation loss", "eval/loss", "val_xent", "dev_loss", "test loss",
                 "valid_nll", "Validation Loss", "eval_ce"],
    joints=["=", ": ", " ", " = ", ":", " -> ", ":\t"],
    gaps=[", ", " | ", "  ", "; ", " ", " - ", "\t", " || "],
    numbers=[lambda value: f"{value:.4f}", lambda value: f"{value:.3f}", lambda value: f"{value:.6e}",
             lambda value: f"{value:8.4f}", lambda value: repr(round(value, 9)), lambda value: f"{value:.4f} nats",
             lambda value: f"{value:+.5f}", lambda value: f"{value:.4f} (avg {value * 1.01:.4f})"],
    extras=["lr{j}{lr}", "grad_norm{j}{norm}", "{ms}ms/step", "tok/s{j}{tok}", "time{j}{ms}ms", "({frac}%)",
            "eta{j}{eta}", "gnorm{j}{norm}", "learning rate{j}{lr}", "mem{j}12.3GB"],
    prefixes=[
        lambda step, chance: "", lambda step, chance: "",
        lambda step, chance: f"2024-05-01 {stamp(step)},123 - INFO - ",
        lambda step, chance: f"[2024-05-01 {stamp(step)}] ", lambda step, chance: "INFO:root:",
        lambda step, chance: "[rank0]: ", lambda step, chance: "0: ",
        lambda step, chance: f"I0501 {stamp(step)}.123456 1234 train.py:55] ",
        lambda step, chance: f"{stamp(step)} | ", lambda step, chance: "(train_fn pid=123, ip=10.0.0.1) ",
        lambda step, chance: "[INFO|trainer.py:123] >> ", lambda step, chance: "worker-0 | ",
        lambda step, chance: f"May 01 {stamp(step)} node17 python[4711]: ",
    ],
    noise=["Saving checkpoint to out/step_{s}", "/usr/lib/torch/optim.py:12: UserWarning: call step() before it",
           "peak memory consumption: 1000 MiB", "wandb: syncing run loss-2 at step 0", "", "saved in 3.2s",
           "node17:411:411 [0] NCCL INFO Channel 00/02 : 0 1", "gc: 12 objects", "eval begins ...",
           "Downloading: 100%|##########| 231k/231k [00:00<00:00, 1.2MB/s]", "best so far: 2.31"],
    layouts=[one_line, one_line, one_line, loss_last, several_lines, printed_dict, table, bar, epochs, objects],
    wraps=[plain_wrap] * 6 + [crlf, utf16, packed, coloured, markdown, html],
)  # fmt: skip


class Case(NamedTuple):
    """A file's bytes, its ending, the rows of the loss in it, and what was drawn for it."""

    content: bytes
    ending: str
    truth: list[Row]
    drawn: dict[str, str]


def steps_of(draw: Draw) -> list[int]:
    """When rows come: at equal intervals, or as programs really do."""
    chance, count = draw.chance, draw.chance.randint(24, 90)
    every = chance.choice([1, 1, 5, 10, 25, 100, 250])
    how = draw("intervals", ["equal", "first ones singly", "random", "doubling"], [5, 2, 2, 1])
    begin = chance.choice([0, 1, every, every])
    if how == "equal":
        return [begin + at * every for at in range(count)]
    if how == "first ones singly":
        return [*range(1, 11), *range(20, 20 + 10 * count, 10)]
    if how == "doubling":
        return sorted({round(1.35**at) for at in range(1, 30)})
    steps = [begin]
    while len(steps) < count:
        steps.append(steps[-1] + chance.randint(1, 2 * every))
    return steps


def case(words: Words, seed: int) -> Case:
    """One file, drawn from the words."""
    chance = random.Random(seed)
    draw = Draw(chance)
    layout = draw("layout", words.layouts)
    wrap = draw("wrap", words.wraps)
    bare = layout in words.bare
    prefix = draw.chance.choice([lambda step, chance: ""] if bare else words.prefixes)
    draw.drawn["prefix"] = prefix(7, chance) or "none"
    number = chance.choice(words.numbers)
    draw.drawn["number"] = number(2.5)
    step, loss = draw("step", words.steps), draw("loss", words.losses)
    joint, gap = draw("joint", words.joints), draw("gap", words.gaps)
    extras = chance.sample(words.extras, chance.randint(0, 3))
    steps = steps_of(draw)
    launches = draw("launches", ["one", "a resume", "from the beginning"], [7, 0 if layout is epochs or bare else 2, 1])
    evaluation = draw("evaluation", ["none", "lines of their own"], [1, 1])
    writers = 3 if draw("writers", ["one", "three ranks"], [9, 0 if bare else 1]) == "three ranks" else 1
    eval_loss = draw("eval loss", words.eval_losses) if evaluation != "none" else ""
    if layout in (several_lines, epochs, *words.counted, *words.bare):
        eval_loss = ""  # it would stand in the middle of a row, or count otherwise
    noise = chance.sample(words.noise, chance.randint(0, 4))
    half = len(steps) // 2
    parts = [steps] if launches == "one" else [steps[: half + 3], steps[half:] if launches == "a resume" else steps]
    truth: list[Row] = []
    text: list[str] = []
    for number_of_launch, part in enumerate(parts):
        rows = [(at, 2.0 + 8.0 / (1 + at / 50) + chance.gauss(0, 0.03)) for at in part]
        plan = Plan(rows, steps[-1], words, draw, loss, step, joint, gap, number, extras)
        if number_of_launch:
            text += ["", "$ python train.py --resume" if launches == "a resume" else "$ python train.py"]
        text += [f"using device cuda:0, {12 + number_of_launch} parameters in millions"]
        last = 0
        for at, (line, row) in enumerate(layout(plan)):
            last = row[0] if row else last if words.counted else 0
            for rank in range(writers):
                begin = prefix(last, chance)
                text.append((f"[rank{rank}]: " if writers > 1 else begin) + line)
            if row is None:
                continue
            truth.append(row)
            if noise and chance.random() < 0.1:
                text.append(chance.choice(noise).format(s=row[0]))
            if eval_loss and at % 10 == 9:
                shown = number(2.2 + 8.0 / (1 + last / 50))
                where = step.format(s=last, n=steps[-1])
                text.append(
                    (prefix(last, chance) if writers == 1 else "[rank0]: ") + f"{where}{gap}{eval_loss}{joint}{shown}"
                )
    content, ending = wrap("\n".join(text) + "\n")
    return Case(content, ending, truth, draw.drawn)


def rows_read(path: Path) -> tuple[str, str, list[tuple[int, float]]]:
    """The source, the series that is judged as the loss, and its rows as the doctor reads them."""
    from barograph.core.aliases import Names
    from barograph.core.roles import candidates
    from barograph.importing.registry import identify
    from barograph.importing.source import ImportedPoints, Restart

    series: dict[str, list[tuple[int, int, float]]] = defaultdict(list)
    axes: dict[str, str] = {}
    kind, segment = "", 0
    for source, found in identify(path):
        kind += " " + source.kind
        names = Names(source.kind, getattr(source, "aliases", None))
        segment += 1
        for item in source.read(found):
            segment += isinstance(item, Restart)
            if isinstance(item, ImportedPoints):
                canonical, factors = names.take(item.names)
                values = item.values if factors is None else item.values * factors
                for at, name in enumerate(canonical):
                    axes[name] = item.x
                    series[name] += [
                        (segment, int(s), float(v)) for s, v in zip(item.steps, values[:, at], strict=True)
                    ]
    chosen = candidates("loss", series) or candidates("eval_loss", series)
    if not chosen:
        return kind, "", []
    rows = sorted(series[chosen[0]], key=lambda row: row[:2])
    axis = axes[chosen[0]]
    return kind, f"{chosen[0]}{'' if axis == 'step' else f' by {axis}'}", [row[1:] for row in rows]


def problem_of(path: Path, truth: list[Row]) -> str:
    """Why a file is not read whole; empty if it is."""
    kind, name, rows = rows_read(path)
    wanted = [(step, float(shown.split()[0].split("/")[0].strip("*'[]").replace(",", ""))) for step, shown in truth]
    if not rows:
        return f"no loss read ({kind.strip() or 'no source'})"
    if len(rows) != len(wanted):
        return f"{len(rows)} rows of {len(wanted)} ({kind.strip()}: {name})"
    for read, row in zip(rows, wanted, strict=True):
        if read[0] != row[0] or not math.isclose(read[1], row[1], rel_tol=1e-6):
            return f"{read} instead of {row} ({kind.strip()}: {name})"
    return "" if " by row" not in name else f"not by step ({kind.strip()}: {name})"


def score(words: Words, seed: int, files: int, folder: Path) -> Iterator[tuple[Path, Case, str]]:
    """Each file, and what is wrong with how it is read."""
    for number in range(files):
        drawn = case(words, seed * 1_000_003 + number)
        path = folder / f"{number:05d}.{drawn.ending}"
        path.write_bytes(drawn.content)
        path.with_suffix(".truth").write_text("".join(f"{step} {loss}\n" for step, loss in drawn.truth))
        yield path, drawn, problem_of(path, drawn.truth)


def doctor_times(repeats: int) -> list[str]:
    """Seconds of the command for logs of growing size, and as multiples of Python's start with numpy."""

    def seconds(*command: str) -> float:
        took = []
        for _ in range(repeats):
            begin = time.perf_counter()
            subprocess.run([sys.executable, *command], capture_output=True, check=False)
            took.append(time.perf_counter() - begin)
        return statistics.median(took)

    with tempfile.TemporaryDirectory() as folder:
        alone = seconds("-c", "pass")
        lines = [f"{'Python alone':24}{alone:7.2f} s"]
        for size in (0.25, 1, 4, 16):
            path = Path(folder) / f"{size}.log"
            text, step = [], 0
            while sum(map(len, text[-1:])) * len(text) < size * (1 << 20):
                step += 1
                loss = 2 + 8 / (1 + step / 500) + (step * 7919 % 101) / 5000
                text.append(
                    f"step {step}/999999 | loss {loss:.5f} | lr 3.00e-04 | grad_norm 1.{step % 90 + 10} | 231.5ms\n"
                )
            path.write_text("".join(text))
            took = seconds("-m", "barograph", "doctor", str(path))
            lines.append(f"doctor, {size:5} MB{'':10}{took:7.2f} s{took / alone:8.1f} × Python alone")
    return lines


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", type=int, default=1000)
    families = {"first": WORDS} | importlib.import_module("dialects_families").FAMILIES
    parser.add_argument("--family", default="first", choices=families, help="of words and layouts")
    parser.add_argument("--out", type=Path, help="an empty folder, where the files stay with their truth")
    parser.add_argument("--misses", type=int, default=0, help="show as many files that are not read whole")
    parser.add_argument("--times", action="store_true", help="how long the doctor takes, instead")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if options.times:
        print("\n".join(doctor_times(options.repeats)))
        return 0
    words: Words = families[options.family]
    by_draw: dict[tuple[str, str], list[bool]] = defaultdict(list)
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for path, drawn, problem in score(words, options.seed, options.files, folder):
            for item in drawn.drawn.items():
                by_draw[item].append(bool(problem))
            wrong += bool(problem)
            if problem and wrong <= options.misses:
                print(f"{path.name}: {problem}\n    {drawn.drawn}")
                start = next((at for at, row in enumerate(drawn.content.splitlines()) if b"using device" in row), 0)
                print("\n".join("    " + repr(row)[:170] for row in drawn.content.splitlines()[start : start + 4]))
    print(f"files with every row of the loss read: {options.files - wrong} of {options.files} "
          f"({100 * (1 - wrong / options.files):.2f} %)")  # fmt: skip
    worst = sorted(by_draw.items(), key=lambda item: -sum(item[1]) / len(item[1]))
    for (name, choice), misses in worst[:25]:
        if any(misses):
            print(f"{sum(misses):6} of {len(misses):5} not read   {name}: {choice!r}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
