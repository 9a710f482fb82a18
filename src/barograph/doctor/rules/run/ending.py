"""How the run ended, or that it stands still: what nobody may take for a run that is well.

In:   `end` and `hang` records, also of a sidecar; for a run that nobody has said the end of, its status.
Out:  findings of `Crashed` and `Hung`; what `OutOfMemory` needs too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from barograph.core.liveness import LOST
from barograph.core.patterns import expression
from barograph.core.record import Record
from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.rule import Rule

MEMORY = "out of memory"
_MOST_PLACES = 16
_OTHERS = expression(
    r" (?:Process \d{1,9}|Including non-PyTorch memory, this process) has [\d.]{1,9} \w{3,5} memory in use\."
)
_OF_INDEX = ("device-side assert", "assertion", "index out of bounds", "cublas_status_execution_failed")
_KERNEL = ", thread: ["  # of an assertion that one of its threads prints
_COLLECTIVE = "collective operation timeout"  # as PyTorch's watchdog writes it


class Ending(Rule):
    """A rule over how processes of the run ended."""

    kind, severity = "crash", "critical"
    prompt = True
    needs: ClassVar[tuple[str, ...]] = ("!end|lost",)

    def __init__(self, **changed: float):
        super().__init__(**changed)
        self._events = 0
        self._open: Finding | None = None
        self._ended = False

    def is_mine(self, status: str) -> bool:
        """Whether an end of this status is this rule's."""
        raise NotImplementedError

    def describe(self, step: int, fields: Mapping[str, Any]) -> Finding:
        """The finding of such an end."""
        raise NotImplementedError

    def examine(self, history: RunHistory) -> Iterable[Finding]:
        findings: list[Finding] = []
        new, self._events = history.events[self._events :], len(history.events)
        for event in new:
            self.take(event, findings)
        lost = history.facts.get("lost")
        if isinstance(lost, Mapping) and not self._ended and history.facts.get("finished"):
            self._ended = True
            if self.is_mine(str(lost.get("status"))):
                step = max((channel.last_step for channel in history.channels.values()), default=0)
                findings.append(self.describe(step, lost))
        return findings

    def take(self, event: Record, findings: list[Finding]) -> None:
        """One event."""
        another = bool(event.fields.get("rank"))
        if event.kind == "segment" and not another:
            self._ended = False
            if self._open is not None and event.fields.get("kind") != "rewind":
                self._open.severity = "warning"
                self._open.message += " The run went on later."
                findings.append(self._open)
                self._open = None
        elif event.kind == "end":
            self._ended |= not another
            if self.is_mine(str(event.fields.get("status"))):
                self._open = self.describe(event.step, event.fields)
                findings.append(self._open)


class Crashed(Ending):
    """The training's process is gone and did not end the run, or ended it with an exception.

    What is known of it, the signal or exit code and the last lines, comes from the sidecar, which outlives the
    training. Without one only that the process is gone is known. An end by an allocation that failed at that step is
    told by `out_of_memory` alone.
    """

    name, family = "crashed", "run"
    about = "The training ended abnormally."
    sources = ("torchelastic: exit codes and signals",)

    def reset(self) -> None:
        self._memory = -1  # the step at which an allocation failed

    def is_mine(self, status: str) -> bool:
        return status in ("failed", "terminated") or (status in LOST and status != MEMORY)

    def take(self, event: Record, findings: list[Finding]) -> None:
        problem = event.fields.get("exception")
        told = event.kind == "end" and event.step == self._memory and isinstance(problem, Mapping)
        self._memory = event.step if event.kind == "oom" else self._memory
        if told and "out of memory" in str(problem).lower():
            self._ended |= not event.fields.get("rank")  # `out_of_memory` says it
            return
        super().take(event, findings)

    def describe(self, step: int, fields: Mapping[str, Any]) -> Finding:
        problem, after = fields.get("exception"), when(fields, f" after step {step}")
        if isinstance(problem, Mapping):
            told = _OTHERS.sub("", f"{problem.get('type')}: {problem.get('message')}")
            message = f"The training failed{after}: {told[:500]}"
            causes, first = _about_exception(told)
            line = fields.get("line")  # of a log that was imported
            where = f"log above line {line:,}, where the traceback is, if it has one" if isinstance(line, int) else (
                "traceback; `barograph show RUN --blackbox` has the last steps")  # fmt: skip
            remedies = [*first, f"read the {where}"]
        elif fields.get("status") == "failed":
            code, why = fields.get("exit_code"), str(fields.get("reason") or "").rstrip(".")
            said = f", with exit code {code}" if code else f": {why}" if why else ""
            message = f"The training failed{after}{said}."
            causes = ["the program ended itself"] if code else ["an exception"]
            remedies = ["read the last lines of the training's output"]
            if _KERNEL in why and "Assertion" in why:
                causes, remedies = _about_assertion()
        elif fields.get("status") == "terminated":
            message = f"The training was ended by {fields.get('signal') or 'a signal'}{after}."
            causes, remedies = _about_signal(fields)
        else:
            why = str(fields.get("reason") or "the process ended without giving a reason")
            message = f"The run ended{after} without finishing the run: {why}."
            causes, remedies = _about_timeout() if _COLLECTIVE in why else _about_signal(fields)
        return self.finding(
            step,
            message,
            evidence=evidence_of(fields),
            causes=causes,
            remedies=remedies,
            confidence=1.0,
            key=rank_of(fields),
        )


class Hung(Rule):
    """No step for a long time while the processes are alive.

    The sidecar waits for ten times the median step, 120 s at least, and twice the longest pause so far; then it has
    every process write its stacks. It is critical until there are steps again.
    """

    name, family, kind, severity = "hung", "run", "stall", "critical"
    prompt = True
    needs: ClassVar[tuple[str, ...]] = ("!hang",)
    about = "The training hangs."
    sources = ("MegaScale: stacks of all ranks when a training stands still",)

    def __init__(self, **changed: float):
        super().__init__(**changed)
        self._events = 0
        self._open: Finding | None = None

    def examine(self, history: RunHistory) -> Iterable[Finding]:
        findings: list[Finding] = []
        new, self._events = history.events[self._events :], len(history.events)
        for event in new:
            if event.kind == "hang" and event.fields.get("resumed"):
                self._resume(event.fields, findings)
            elif event.kind == "hang":
                self._begin(event.step, event.fields, findings)
        return findings

    def _begin(self, step: int, fields: Mapping[str, Any], findings: list[Finding]) -> None:
        waited = fields.get("waited_seconds")
        message = str(fields.get("summary") or f"No step for {waited} s after step {step}.")
        evidence: dict[str, Any] = {"waited_seconds": waited}
        places = fields.get("ranks")
        stood = [f"{rank}: {where}" for rank, where in places.items()] if isinstance(places, Mapping) else []
        if self._open is not None and self._open.step == step:  # each host's sidecar says where its own ranks are
            stood = [*self._open.evidence.get("ranks", []), *stood]
            message = f"{self._open.message} {message.partition('. ')[2]}".rstrip()
        if stood:
            evidence["ranks"] = stood[:_MOST_PLACES]
        waits = "waits in" in message or "wait in" in message
        self._open = self.finding(
            step, message, evidence=evidence, confidence=0.9,
            causes=["a collective that one rank did not enter"] if waits else
                   ["the code at the top of the stacks does not return"],
            remedies=["read the stacks in the record `hang`: the rank that is not in the collective is the one to "
                      "look at"] if waits else ["look at the line at the top of the stacks"],
        )  # fmt: skip
        findings.append(self._open)

    def _resume(self, fields: Mapping[str, Any], findings: list[Finding]) -> None:
        if self._open is not None:
            stood = fields.get("stood_seconds")
            self._open.severity = "warning"
            self._open.message = f"No step for {stood} s after step {self._open.step}; it has continued."
            self._open.evidence = self._open.evidence | {"stood_seconds": stood}
            findings.append(self._open)
            self._open = None


def rank_of(fields: Mapping[str, Any]) -> str:
    """Which process an end is about, where it is not rank 0's."""
    rank = fields.get("rank")
    return f"rank {rank}" if rank else ""


def when(fields: Mapping[str, Any], words: str) -> str:
    """Words about an event's step; none for an event of a log that had said no step yet."""
    return "" if fields.get("no_step") else words


def evidence_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What an end says for itself."""
    names = ("status", "signal", "exit_code", "oom_kills", "reason", "exception", "last", "no_step")
    return {name: fields[name] for name in names if fields.get(name) is not None}


def _about_exception(told: str) -> tuple[list[str], list[str]]:
    """Of one that ended a training."""
    general, words = "an exception that the training did not catch", told.lower()
    if "out of memory" in words:
        remedies = [
            "lower the batch size, and accumulate gradients over more of them",
            "put the loop within `barograph.memory_guard(run, model)`: it records what filled the memory",
        ]
        return ["out of memory: an allocation failed", general], remedies  # fmt: skip
    if not any(word in words for word in ("cuda error", "hip error", "cublas_", "cudnn_")):
        return [general], []
    causes = ["an error on the device: it works behind the program, and the line in the traceback may be a later one"]
    remedies = ["run it again with CUDA_LAUNCH_BLOCKING=1: the traceback names the line then"]
    if any(word in words for word in _OF_INDEX):
        causes.insert(0, "index out of range on the device: of a token, or of a target")
        remedies.insert(0, "check that ids are below the rows of their embedding, and targets below the outputs")
    return causes, remedies


def _about_assertion() -> tuple[list[str], list[str]]:
    """Of one that failed within a kernel, as CUDA prints it."""
    return [
        "index out of range on the device: of a token, or of a target",
        "values that a loss does not take: NaN, or none between 0 and 1",
    ], [
        "check that ids are below the rows of their embedding, and targets below the outputs",
        "run it again with CUDA_LAUNCH_BLOCKING=1: the traceback names the line then",
    ]  # fmt: skip


def _about_timeout() -> tuple[list[str], list[str]]:
    """Of a collective that took so long that PyTorch ended the processes."""
    return ["a collective that one rank did not enter: it failed, waits for data, or does something else"], [
        "look at the end of each rank's log: the rank without this line is the one to look at"]  # fmt: skip


def _about_signal(fields: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    name = str(fields.get("signal") or "")
    if name == "SIGKILL":
        return ["killed by a user, the scheduler or the kernel"], ["look at the scheduler's log and `dmesg`"]
    if name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGXCPU", "SIGUSR1"):
        return ["the scheduler ended the job: preemption, a time limit"], ["go on from the last checkpoint"]
    if name in ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL"):
        return ["a fault in native code: a kernel, a driver, a library"], ["look at the core dump and the last lines"]
    return ["the process ended without calling `run.finish()`"], ["read the last lines of the training's output"]


RULES = (Crashed, Hung)
