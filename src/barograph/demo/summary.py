"""What the demo prints at its end: what was learned, where it is kept, what to type next.

In:   the finished training, text it wrote before and after, the run's folder.
Out:  plain lines for the screen.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from barograph.core.terminal import wants_colour
from barograph.core.text import escape
from barograph.doctor import diagnose, report
from barograph.query import stored as query
from barograph.views import inside, overview

if TYPE_CHECKING:
    from barograph.demo.loop import Loop

SAMPLE_LINES = 8


def finished(loop: Loop, first_loss: float, before: str, after: str, seconds: float) -> str:
    """The result. first_loss: held-out loss at the start, in nats a byte; seconds: all the demo took."""
    pace = loop.tokens / loop.seconds if loop.seconds else 0.0
    return "\n".join(
        [
            "",
            f"Held-out loss {_both(first_loss)} → {_both(loop.val_loss)}",
            f"{loop.step:,} steps, {loop.tokens:,} tokens, {pace:,.0f} tokens/s; {seconds:.0f} s in all",
            "",
            "Before, the model wrote:",
            *_quoted(before),
            "Now it writes:",
            *_quoted(after),
            "",
            f"Everything is in {_short(loop.run.dir)}",
        ]
    )


def spent(folder: Path) -> str:
    """The model of the run in `folder` from inside; where its time went, and a step's."""
    run = query.StoredRun(folder)
    model = inside.flow_lines(run) + inside.expert_lines(run)
    return "\n".join(model + overview.time_lines(run.goodput()) + overview.phase_lines(run))


def examined(folder: Path, fault: str, steps: int) -> str:
    """What was broken, and what the doctor says of the run in `folder`."""
    from barograph.demo.faults import FAULTS

    broken = f"Broken on purpose from step {max(1, steps * 2 // 5):,} on: {FAULTS[fault].about}."
    width = min(110, shutil.get_terminal_size((100, 24)).columns)
    colour = sys.stdout.isatty() and wants_colour()
    found = report.page(diagnose(query.StoredRun(folder)), width=width, colour=colour)
    return f"\n{broken}\n\nbarograph doctor says:\n\n{found}\n"


def interrupted(folder: Path, step: int) -> str:
    """The result of a training that was stopped after `step`."""
    return f"\nInterrupted after step {step}. What was recorded is in {_short(folder)}"


def what_next(folder: Path, dir: str | os.PathLike[str] | None, goes_on: bool) -> str:
    """Commands that work as they are printed, in the folder that the demo was started in.

    dir: the folder of runs, if one was given; goes_on: whether the run may be continued.
    """
    # an environment's script is not on the path of a shell that has not activated it
    python = shlex.quote(_short(Path(sys.executable)))
    command = "barograph" if shutil.which("barograph") else f"{python} -m barograph"
    run = shlex.quote(_short(folder))
    where = "" if dir is None else f" --dir {shlex.quote(os.fspath(dir))}"
    lines = [
        (f"view{'' if dir is None else ' ' + shlex.quote(os.fspath(dir))}", "all runs in the browser, live"),
        (f"show {run}", "what this run was, and its series"),
        (f"doctor {run}", "what is wrong with it, and what to do"),
        (f"report {run}", "all of it as one HTML file"),
        (f"export {run} --to csv", "its series as a table"),
    ]
    if goes_on and any(folder.glob("checkpoints/*.pt")):
        lines.append((f"demo --resume {run}{where}", "go on from the last checkpoint"))
    width = max(len(words) for words, _ in lines)
    return "\n".join(["Next:", *(f"  {command} {words:<{width}}  # {why}" for words, why in lines)])


def _both(nats: float) -> str:
    return f"{nats:.2f} nats a byte ({nats / math.log(2):.2f} bits)"


def _quoted(sample: str) -> list[str]:
    """The first lines of a sample, safe for any terminal."""
    return [f"   | {escape(row, 100)}" for row in sample.expandtabs(4).splitlines()[:SAMPLE_LINES]]


def _short(path: Path) -> str:
    """The path as seen from here, if it is below."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path.absolute())
