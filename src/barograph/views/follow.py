"""The command `barograph tail`: a run's records while another process writes them.

In:   a stored run.
Out:  its latest records, then every new one as it comes, until the run has ended.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from barograph.core.liveness import OPEN
from barograph.core.record import Record, encode
from barograph.log.read import records_from
from barograph.query.catalog import find
from barograph.query.stored import StoredRun
from barograph.training.console.console import Console

_TAIL_BYTES = 4 << 20
_PAUSE = 0.2  # s
# of no interest to somebody who watches
_QUIET = frozenset({"option", "cmd"})
_UNDRAWN = frozenset({"host", "speed", "span", "goodput", "energy", "memory", "data", "ranks", "model"})


def run_tail(name: str, *, dir: str | None = None, lines: int = 20, stay: bool = True, as_json: bool = False) -> int:
    """Print a run's latest records, and with `stay` those that come; returns the exit code 0. Raises KeyError with one
    sentence."""
    run = find(name, dir)
    about = run.manifest
    console = Console(
        1, "plain", total_steps=about.get("total_steps"), total_tokens=about.get("total_tokens"), patient=True
    )
    for record in follow(run, lines, (lambda: time.sleep(_PAUSE)) if stay else None, drawn=not as_json):
        if as_json:
            print(encode(record).decode(), flush=True)
        else:
            console.draw(record)
        if console.gone:
            break
    return 0


def follow(
    run: StoredRun, last: int = 20, wait: Callable[[], Any] | None = None, drawn: bool = True
) -> Iterator[Record]:
    """The `last` records, then those that follow. `wait` is called between looks; None: don't follow.
    `drawn`: only those of kinds that a console may show."""
    quiet = _QUIET | _UNDRAWN if drawn else _QUIET

    def wanted(record: Record) -> bool:
        return record.kind not in quiet and not (record.kind == "info" and record.fields.get("type") == "import")

    offsets: dict[Path, int] = {}
    recent: deque[Record] = deque(maxlen=last)
    for path in run.log_files():
        with contextlib.suppress(OSError):
            offsets[path] = max(0, path.stat().st_size - _TAIL_BYTES)
            for record, end in records_from(path, offsets[path]):
                offsets[path] = end
                if wanted(record):
                    recent.append(record)
    yield from sorted(recent, key=lambda record: record.time)
    while wait is not None:
        ended = run.status not in OPEN
        for path in run.log_files():
            with contextlib.suppress(OSError):
                for record, end in records_from(path, offsets.get(path, 0)):
                    offsets[path] = end
                    if wanted(record):
                        yield record
        if ended:
            return
        wait()
