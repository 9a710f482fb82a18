"""Where every thread is, and what that means: waiting for other ranks, or busy in the user's code.

In:   the interpreter's frames, or a dump that faulthandler wrote.
Out:  stacks as text, the innermost place in the user's own code, and one sentence for all ranks.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import sys
import sysconfig
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

STACKS_SIGNAL: int = signal.SIGRTMAX - 4 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2
"""What makes a process of a run write its stacks, once `register` was called in it."""
_MOST_THREADS, _MOST_FRAMES = 64, 60
_registered: Any = None  # the file, which faulthandler must find open
_LIBRARIES = tuple(
    os.path.normpath(path) + os.sep
    for path in {*(sysconfig.get_paths().get(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))}
    if path
)
_OWN = str(Path(__file__).parents[2]) + os.sep  # this package
_COLLECTIVE = re.compile(r"torch/distributed/|torch/nn/parallel/distributed|process_group", re.IGNORECASE)
_OWN_WAITS = {"_timed": "a collective", "_swap": "Ranks.reduce"}  # this library's functions that wait for ranks
_WRAPPERS = frozenset({"wrapper", "_wrapper", "wait", "inner", "func", "<lambda>", "__call__", "_call_impl"})
_DUMPED = re.compile(r'^ +File "(.+)", line (\d+) in (.+)$', re.MULTILINE)


def stacks(first: int | None = None) -> list[dict[str, Any]]:
    """Every thread's Python stack, the thread `first` at the head; frames from the outermost to the innermost.

    A frame is `file:line function`. At most 64 threads and 60 frames each, the innermost ones; threads of this
    library are left out.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    result = []
    for ident, frame in sorted(sys._current_frames().items(), key=lambda item: (item[0] != first, item[0])):
        name = names.get(ident, f"thread {ident}")
        if name.startswith("barograph-"):
            continue
        frames: list[str] = []
        walked: Any = frame
        while walked is not None and len(frames) < _MOST_FRAMES:
            frames.append(f"{walked.f_code.co_filename}:{walked.f_lineno} {walked.f_code.co_name}")
            walked = walked.f_back
        result.append({"name": name, "frames": frames[::-1]})
        if len(result) == _MOST_THREADS:
            break
    return result


def stacks_file(folder: Path, writer: str) -> Path:
    """Where a process of a run writes its stacks to when it is asked for them."""
    return folder / f"stacks-{writer}.txt"


def register(folder: Path, writer: str) -> None:
    """Have this process write every thread's stack at `STACKS_SIGNAL`, also while code holds the interpreter's lock.

    Of several runs in one process the last one gets them. A folder that can't be written, and a handler of the user's
    own, leave things as they are.
    """
    global _registered
    with contextlib.suppress(OSError, ValueError, RuntimeError, AttributeError):
        if signal.getsignal(STACKS_SIGNAL) not in (signal.SIG_DFL, None):
            return
        file = stacks_file(folder, writer).open("ab")
        faulthandler.register(STACKS_SIGNAL, file=file, all_threads=True, chain=False)
        _registered = file


def unregister(folder: Path, writer: str) -> None:
    """The run has ended: its file is closed, and goes where nothing was written to it."""
    global _registered
    path = stacks_file(folder, writer)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if _registered is not None and _registered.name == str(path):
            faulthandler.unregister(STACKS_SIGNAL)
            _registered.close()
            _registered = None
        if path.stat().st_size == 0:
            path.unlink()


_FRAME = re.compile(r"(.*):(\d+) (\S+)$", re.DOTALL)


def where(frames: Iterable[str]) -> dict[str, Any]:
    """Where a thread is, in the user's terms: `file`, `line`, `function` of the innermost frame of their own.

    `call` is what that frame has called; `collective` the torch.distributed function it waits in, or, where
    DistributedDataParallel may wait in C++ code, `backward`.
    """
    parsed = [match.groups() for frame in frames if (match := _FRAME.fullmatch(frame))]
    result: dict[str, Any] = {}
    at = -1
    for index, (file, line, function) in enumerate(parsed):
        if not is_library(file):
            result, at = {"file": os.path.basename(file), "line": int(line), "function": function}, index
    inner = [item for item in parsed[at + 1 :] if not item[0].startswith(_OWN)]
    own = [_OWN_WAITS[item[2]] for item in parsed[at + 1 :] if item[0].startswith(_OWN) and item[2] in _OWN_WAITS]
    if own:
        result["collective"] = own[0]
    if inner:
        result["call"] = inner[0][2]
        named = [f for file, _, f in inner if _COLLECTIVE.search(file.replace(os.sep, "/")) and f not in _WRAPPERS]
        if named:
            result["collective"] = named[0]
        elif inner[-1][2] == "_engine_run_backward" and "torch.nn.parallel.distributed" in sys.modules:
            result["collective"] = "backward"
    return result


def is_library(file: str) -> bool:
    """Whether a frame's file is not the user's: Python's, an installed package's, this library's or none."""
    if file.startswith("<") or file.startswith(_OWN) or f"{os.sep}site-packages{os.sep}" in file:
        return True
    return os.path.normpath(file).startswith(_LIBRARIES)


def describe(here: Mapping[str, Any]) -> str:
    """`waits in all_reduce (train.py:88)`, `is in train.py:61 load_batch`."""
    if here.get("gone"):
        return f"is gone (process {here['gone']} on {here.get('host')})"
    if not here.get("file"):
        return f"waits in {here['collective']}" if here.get("collective") else "is in no code of yours"
    place_ = f"{here['file']}:{here['line']}"
    if here.get("collective"):
        return f"waits in {here['collective']} ({place_})"
    call = f", in a call of {here['call']}" if here.get("call") else ""
    return f"is in {place_} {here['function']}{call}"


def summary(
    found: Mapping[int, Mapping[str, Any]], world: int, waited: float, step: int, asked: Iterable[int] | None = None
) -> str:
    """One sentence for all ranks; those in the same place together, those that wait first. asked: the ranks that
    were asked, such as those of one host; all where it is not given."""
    head = f"No step for {waited:.0f} s after step {step}."
    if world == 1:
        return f"{head} The training {describe(found[min(found)])}."
    groups: dict[str, list[int]] = {}
    for rank in sorted(found):
        groups.setdefault(describe(found[rank]), []).append(rank)
    silent = sorted(set(range(world) if asked is None else asked) - set(found))
    parts = []
    for text, ranks in sorted(groups.items(), key=lambda item: (not item[0].startswith("waits"), item[1])):
        many = len(ranks) > 1
        verb, _, rest = text.partition(" ")
        verb = {"waits": "wait", "is": "are"}.get(verb, verb) if many else verb
        parts.append(f"{'ranks' if many else 'rank'} {_listed(ranks)} {verb} {rest}")
    if silent:
        parts.append(f"{'ranks' if len(silent) > 1 else 'rank'} {_listed(silent)} said nothing")
    steps = {rank: item["step"] for rank, item in found.items() if isinstance(item.get("step"), int)}
    if len(set(steps.values())) > 1:
        behind = min(steps, key=lambda rank: (steps[rank], rank))
        parts.append(f"rank {behind} is behind, at step {steps[behind]}")
    text = "; ".join(parts)
    return f"{head} {text[0].upper()}{text[1:]}."


def _listed(ranks: list[int]) -> str:
    """`0, 1, 3`; runs of more than three as `4–7`."""
    parts: list[str] = []
    at = 0
    while at < len(ranks):
        end = at
        while end + 1 < len(ranks) and ranks[end + 1] == ranks[end] + 1:
            end += 1
        if end - at >= 3:
            parts.append(f"{ranks[at]}–{ranks[end]}")
        else:
            parts += [str(rank) for rank in ranks[at : end + 1]]
        at = end + 1
    return ", ".join(parts)


def parse_dump(text: str) -> dict[str, Any]:
    """Where the main thread is in a dump of faulthandler's: threads newest first, frames innermost first."""
    main = re.split(r"^(?:Current thread|Thread) 0x", text, flags=re.MULTILINE)[-1]
    return where(f"{file}:{line} {name}" for file, line, name in reversed(_DUMPED.findall(main)))
