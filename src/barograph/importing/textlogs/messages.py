"""What a log says in words: how the program ended, and what went wrong on the way.

In:   the lines of a log that were not read as rows.
Out:  `Message`s: a traceback by its exception, memory that ran out, a kill, a cancelled job, errors of NCCL and CUDA,
      missing files, retries; each with its line.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

from barograph.core.patterns import expression
from barograph.importing.textlogs import overflows
from barograph.importing.textlogs.gist import gist, shape

TEXT = 300  # bytes of a line that are kept
MOST = 2000  # messages of a file
_KILLED = (
    "已杀死 Getötet Processus\u00a0arrêté Убито 強制終了 Terminado\u00a0(killed)"  # as shells of other languages say it
)
_FAULT = (  # the same of a program that reached for memory not its own
    "段错误 Speicherzugriffsfehler Erreur\u00a0de\u00a0segmentation Ошибка\u00a0сегментирования "
    "Violación\u00a0de\u00a0segmento Falha\u00a0de\u00a0segmentação"
)


def _words_of(texts: str) -> list[bytes]:
    """Words and sentences of such a list, between whose own words there are blanks that don't break."""
    return [text.replace("\u00a0", " ").encode() for text in texts.split(" ")]


def _alone_or_job(texts: str) -> re.Pattern[bytes]:
    """A line that says one of them and nothing else, or a script's place and a process ahead of it."""
    words = rb"(?:" + rb"|".join(map(re.escape, _words_of(texts))) + rb")"
    return expression(
        rb"^(?:\s{0,2}\**" + words + rb"\**(?: ?\([^()\n]{1,60}\))?\s*$|"
        rb"[^\n]{1,120}:\s{0,8}\d{1,9}\s{1,8}" + words + rb"(?=\s|$))"
    )


_WORDS = (
    b"error", b"exception", b"traceback", b"killed", b"cancelled", b"time limit", b"out of memory", b"oom",
    b"nccl warn", b"no such file", b"retr", b"timeout", b"timed out", b"fault", b"aborted", b"signal",
    b"keyboardinterrupt",
    b"connection reset", b"failed", b"diverged", b"nan loss", b"inf loss", b"nan grad", b"inf grad", b"is nan",
    b"invalid loss", b"infinite or nan", b"to coordinator",
    b"check failure", b"available ram", b"exit code", b"runlimit", b"memlimit", b"memory limit", b"exceeded limit",
    b"exit status", b"overflow", b"exitcode", b"dumped", b"terminat", b"panic", b"corruption", b"free(): invalid",
    b"have died", b"unknown reason", b"assertion", b"error using", b"exploding",
    b"exited with", b"exited unexpectedly", b"execution halted", b"stopping training", b"illegal instruction",
    b"trap: ", b"process down",
    *(word.lower() for word in (*_words_of(_KILLED), *_words_of(_FAULT))),
)  # fmt: skip
_OPENS = expression(rb"Traceback \(most recent call last\)")
_EXCEPTION = expression(
    rb"((?:[A-Za-z_]\w{0,60}\.){0,8}"
    rb"(?:_?[A-Z]\w{0,80}(?:Error|Exception|Exit|Interrupt|Timeout|Unavailable)|Exception|StopIteration))"
    rb"(?::\s?(.*))?$"
)
_FRAME = expression(rb'File "[^"\n]{1,300}", line \d{1,7}, in ')
_LAST = expression(rb"(?<![A-Za-z_.])[A-Z]\w{0,80}(?:Error|Exception)(?=: )")  # behind frames on one line
_BEHIND_IT, _LEFT = 3, 64  # lines with words behind the last words of a program that has failed; lines looked at
_ALONE = expression(
    rb"\s{0,2}(?:\[?(?:rank|default)\s?\d{0,6}\]?:\s?)?(?=[A-Za-z_])"
)  # before an exception at the margin
_IGNORED = expression(rb"\s*Exception ignored (?:in|on)\b")  # as objects go: the program ends as it would
_MEMORY = expression(
    rb"(?i)CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED|HIP out of memory|"
    rb"CUDA_ERROR_OUT_OF_MEMORY|"
    rb"CUDA(?: runtime)? error.{0,20}out of memory|cudaSuccess.{0,20}out of memory|Out of memory error on GPU|"
    rb"THCudaCheck FAIL .{0,200}: out of memory|OOM when allocating|not enough memory: you tried to allocate|"
    rb"Allocator \(\w{1,40}\) ran out of memory trying to allocate (?![^\n]{0,400}not a failure)|"
    rb"(?:MemoryError|Error: ).{0,20}Unable to allocate \d|"
    rb"Command buffer execution failed: Insufficient Memory|CommandBufferCallbackErrorOutOfMemory"
)
_NUMBERS = b"0123456789"
_OPENING = expression(rb"(?!Traceback|.{0,80}(?i:warn|error))(?=.{16})(?:[^A-Za-z\n]{0,40}[A-Za-z]{2,40}){3}")
_TRIED = expression(rb"(?i)(?:tried|trying) to allocate ([\d.]{1,12}) ?([KMGT])i?B")
_UNITS = {b"K": 1 << 10, b"M": 1 << 20, b"G": 1 << 30, b"T": 1 << 40}
# how a process ends that can't say so itself, the plainest words first: pattern, status, signal
_ENDS: tuple[tuple[re.Pattern[bytes], str, str], ...] = (
    (expression(rb"(?i)Watchdog caught collective operation timeout|collective operation timeout: WorkNCCL|"
                rb"taking the entire process down"), "killed", "SIGABRT"),
    (expression(rb"(?i)oom[-_ ]?kill(?!_disable)|Out of memory: Kill|killed by the OOM|"
                rb"crashed after using all available RAM|TERM_(?:MEM|SWAP)LIMIT|"
                rb"\b(?:job|step|task)\b.{0,60}\bexceeded (?:its |the )?memory limit|"
                rb"\bexceeded (?:its |the )?(?:job|step|task|virtual) memory limit|"
                rb"^srun: error: .{1,60}: tasks? [\d,-]{1,40}: Out Of Memory|"
                rb"\b(?:p?v?mem|p?rss)\s\S{1,24} exceeded limit"), "out of memory", "SIGKILL"),
    (expression(rb"TERM_(?:RUN|CPU)LIMIT|job killed: walltime|\bwalltime\s\S{1,24} exceeded limit|"
                rb"DUE TO TIME LIMIT|DUE TO PREEMPTION|CANCELLED AT|"
                rb"\bJOB \d+ .{0,80}CANCELLED"), "killed", "SIGTERM"),
    (expression(rb"(?:^|\])\s*\**Killed\**(?:: 9)?\s*$|^zsh: killed(?=\s)|"
                rb"^\[\d{1,3}\]\s{0,2}[+-]?\s{1,8}(?:\d{1,9} )?\s{0,8}[Kk]illed\b|"
                rb"\btask \d{1,6}: Killed\b|"
                rb":\s{1,8}(?:line )?\d{1,9}[:\s]{1,8}.{0,40}\bKilled\b|\bSIGKILL\b|exitcode\s{0,3}: -9\b|"
                rb"\b(?:terminated by|exited on) signal 9\b|"
                rb"(?i:\bexit(?:ed with|ing with)? (?:code|status):? 137\b)"),
     "killed", "SIGKILL"),
    (expression(rb"Segmentation fault|^zsh: segmentation fault(?=\s)|"
                rb"^\s{0,2}segmentation fault(?: \(core dumped\))?\s*$|"
                rb"^\[\d{1,3}\]\s{0,2}[+-]?\s{1,8}(?:\d{1,9} )?\s{0,8}segmentation fault\b|"
                rb"\bSIGSEGV\b|exitcode\s{0,3}: -11\b|^Windows fatal exception: access violation|"
                rb"\bfinished with exit code -1073741819\b"), "killed", "SIGSEGV"),
    (_alone_or_job(_KILLED), "killed", "SIGKILL"),
    (_alone_or_job(_FAULT), "killed", "SIGSEGV"),
    (expression(rb"Bus error|\bSIGBUS\b"), "killed", "SIGBUS"),
    (expression(rb"\bFloating point exception\s{1,40}\(core dumped\)|\bSIGFPE\b"), "killed", "SIGFPE"),
    (expression(rb"\bIllegal instruction(?:\s{1,40}\(core dumped\)|: 4\s*$)|\bSIGILL\b|"
                rb"^zsh: illegal hardware instruction(?=\s)"), "killed", "SIGILL"),
    (expression(rb"^(?:Abort trap: 6|Trace/BPT trap: 5)\s*$|^zsh: (?:abort|trace trap)(?=\s)"), "killed", "SIGABRT"),
    (expression(rb"^Terminated(?:: 15)?\s*$|^zsh: terminated(?=\s)"), "killed", "SIGTERM"),
    (expression(rb"^Windows fatal exception: |^Julia has exited unexpectedly \(signal \d"), "killed", ""),
    (expression(rb"\bheap out of memory\s*$"), "out of memory", ""),
    (expression(rb"\bAborted\s{1,40}\(core dumped\)|\bSIGABRT\b|exitcode\s{0,3}: -6\b|terminate called after throwing|"
                rb"^Fatal Python error: Aborted|^libc\+\+abi: terminating\b|^\*?\*?\*? ?(?:Error in .{1,80}: )?"
                rb"(?:double free or corruption|free\(\): invalid|malloc\(\): |munmap_chunk\(\): )|"
                rb"^F\d{4} [\d:.]{8,16}\s{1,8}\d{1,9} [\w./-]{1,80}:\d{1,6}\] Check failed: |"
                rb"^Assertion failed: |^[\w./-]{1,80}: [\w./-]{1,200}:\d{1,6}: .{1,300}: Assertion `.{1,300}' failed|"
                rb"\bfinished with exit code -1073740791\b|"
                rb"^\*\*\* Check failure stack trace: \*\*\*"),
     "killed", "SIGABRT"),
    (expression(rb"^(?:[\w./-]{1,200}\.py|[\w-]{1,60}|python\d? -m [\w.]{1,100}): error: "
                rb"(?:unrecognized arguments|argument\b|the following arguments are required|ambiguous option|"
                rb"too few arguments|no such option)"),
     "failed", ""),
    (expression(rb"^[\w./-]{0,80}python[\d.]{0,6}(?:\.exe)?: can't (?:open file|find '__main__' module) "),
     "failed", ""),
    (expression(rb"^thread 'main' (?:\(\d{1,12}\) )?panicked at |^panic: |^ERROR: LoadError: |"
                rb"^Error using [\w./]{1,80}|"
                rb"\bUnexpected (?:segmentation fault|bus error) encountered in worker\b|"
                rb"\bfinished with exit code (?!0\b|-1\b|130\b)-?\d"), "failed", ""),
    (expression(rb"^Execution halted\s*$|^Unhandled [Ee]xception[.:] System\.|^(?:\S{1,120}: )?[Ff]atal error: |"
                rb"^\*\* \((?:[A-Z][\w.]{0,60}Error|exit|EXIT[^()\n]{0,80})\) |^Uncaught \w{0,40}Error: |"
                rb"\btriggerUncaughtException\(|^Error: .{0,120}\bCUDA_ERROR_[A-Z]"), "failed", ""),
    (expression(rb"\bkernel appears to have died\b|\bcrashed for an unknown reason"), "killed", ""),
    (expression(rb"\bModel diverged with loss = NaN\b|^(?:ERROR|FATAL|CRITICAL)\b.{0,60}\bNaN loss during training\b|"
                rb"\b[Ll]oss is exploding\b.{0,40}\b(?:abort|stop|exit|quit)(?:p?ing|ed)?\b|"
                rb"\bError reported to Coordinator: .{1,200}(?:\b(?:is|are) inf or nan\b|\b(?:NaN|Inf) values\b)|"
                rb"\bLoss became infinite or NaN at iteration=\d|\b[Ll]oss is (?:nan|-?inf), stopping training\b|"
                rb"^ERROR: Loss is (?:NaN|-?Inf(?:inite)?)\s*$|^EXCEPTION occurred: \S"),
     "failed", ""),
    (expression(rb"(?<=: )block: \[\d{1,9},\d{1,9},\d{1,9}\], "
                rb"thread: \[\d{1,9},\d{1,9},\d{1,9}\] Assertion .{1,300} failed"), "failed", ""),
    (expression(rb"\btasks? [\d,-]{1,40}: Exited with exit code [1-9]"), "failed", ""),
    (expression(rb"\bSIGTERM\b|Received signal: 15|exitcode: -15\b"), "killed", "SIGTERM"),
    (expression(rb"^\s*KeyboardInterrupt\s*$|\bSIGINT\b"), "interrupted", "SIGINT"),
)  # fmt: skip
_OF_JOB = expression(  # what ends a job from outside; a row behind it was in a buffer
    rb"slurmstepd: error: |srun: error: .{0,40}\*\*\* |CANCELLED AT|PBS: job killed|TERM_[A-Z]{3,4}LIMIT|OOMKilled"
)
_BEHIND = expression(
    rb"slurmstepd: error: |ProcessGroupNCCL|CANCELLED AT|DUE TO TIME LIMIT|Segmentation fault|"
    rb"\bAborted\s{1,40}\(core dumped\)|\]\s?Killed\s*$"
)
_TROUBLE = expression(
    rb"(?i)CUDA error|CUDA driver error|device-side assert|illegal memory access|uncorrectable ECC|\bXid\b|"
    rb"NCCL (?:WARN|error|operation|timeout)|ncclSystemError|ncclUnhandled|ncclInternalError|"
    rb"collective operation timeout|"
    rb"No such file or directory|FileNotFoundError|\bretry(?:ing)?\b|\bretries\b|connection reset|connection refused|"
    rb"\bdiverged\b|\b(?:nan|inf) loss\b|\b(?:nan|inf) grad(?:ient)?s?[ _]norm\b|"
    rb"\bloss (?:is|was|became) (?:nan|inf)|invalid loss|infinite or nan|"
    rb"timed? ?out|\w{0,40}Error:|\bException: |\bERROR\b|\bfatal\b|failed to "
)
_HARMLESS = expression(
    rb"(?i)\b(?:0|no) (?:errors?|retries)\b|(?:max|num)_retr|retries\s?[=:]|timeout\s?[=:(]|error[_ ]?(?:rate|bars?)\b|"
    rb"\b(?:train|test|val\w{0,8}|eval\w{0,8}|mean|avg|average|relative|absolute|squared|training|best) error\b|"
    rb"\b[a-z]\w{0,40}_error\s?[:=]\s{0,4}\d{1,6}\.\d|"  # `class_error: 80.00`
    rb"\berror norm\b|\berror (?:is )?(?:lower|less|below|under|smaller) |\b(?:low|small) enough error\b|"
    rb"^\W{0,8}(?:[a-z]{1,12} ){0,2}error\s?[:=]\s{0,4}[-+]?\d{0,9}\.\d[\d.e+-]{0,24}%?\s*$"  # `Error: 0.02`
)
_STATEMENT = expression(rb"\s*(?:assert|def|class|print|log(?:ger|ging)?\.\w{1,9})[ (].*\w\([^)\n]{0,80}[\"']")
_CODE = expression(
    rb"^\s*(?:raise|print|except|assert|if|with|log(?:ger|ging)?\.|return|#|//|def|class|import|from|try|else)\b"
    rb"|\w\([rfb]?[\"']|[\"']\);?\s*$|[;{}]\s*$"
)


class Message(NamedTuple):
    """What a line says. `end`: the fields of the program's end if nothing follows, else empty."""

    place: int  # the line's index
    text: str
    end: dict[str, Any]
    memory: dict[str, Any]  # of memory that ran out: what was asked for
    of_job: bool = False  # the end is that of a whole job: few rows behind it were in a buffer
    is_trouble: bool = False  # worth telling without any row


def messages(text: bytes, lines: list[bytes], left: list[bytes], own: dict[str, Any]) -> Iterator[Message]:
    """Messages of a text, in order. left: its lines, b"" for those that were read as rows; own: a traceback that
    goes on in the next text."""
    little = gist(text).lower()
    found = {word for word in _WORDS if shape(word) in little}
    if not found and not own.get("traceback"):
        return
    low = text.lower()
    starts = [0, *itertools.accumulate(len(line) + 1 for line in lines)]
    marked: set[int] = set()
    for word in found:
        at = low.find(word)
        while at >= 0 and len(marked) < 100_000:
            index = bisect_right(starts, at) - 1
            marked.add(index)
            at = low.find(word, starts[index + 1]) if index + 1 < len(starts) else -1
    opened: int | None = own.pop("traceback", None)  # where the words begin on a traceback's lines
    ignored: bool = own.pop("ignored", False)  # the next traceback is of an exception that Python left alone
    for index in sorted(marked):
        line = left[index]
        if (overflow := overflows.told(index, lines[index], own)) is not None:
            yield Message(index, overflow, {}, {}, is_trouble=True)
        if not line and _BEHIND.search(lines[index], 0, 1 << 14):  # another program's words behind half a row
            line = lines[index]
        if not line or len(line) > 1 << 14:
            continue
        if opens := _OPENS.search(line):
            opened = opens.start()
            continue
        if _IGNORED.match(line):
            ignored = True
            continue
        message = _ended(index, line, opened) if opened is not None else None
        if message is not None:
            message = message._replace(end={}) if ignored else message
            opened, ignored = None, False
        else:
            message = _single(index, line, opened is not None)
            if message is not None and "exception" in message.end and _goes_on(lines, left, index):
                message = message._replace(end={})
        if message is not None:
            yield message
    if opened is not None:
        own["traceback"] = opened
    if ignored:
        own["ignored"] = True


def launches(lines: list[bytes], known: list[Any]) -> list[int]:
    """The lines that begin a launch: those that say what the text's first line says, but for its numbers. known: that
    first line, and how often it came in the text ahead."""
    if known[0] is None:
        first = next((line for line in lines if line.strip()), b"")
        known[0] = first.translate(None, _NUMBERS).decode("latin-1") if _OPENING.match(first) else ""
    opening = known[0].encode("latin-1")
    if not opening:
        return []
    head = opening[:4]
    return [
        index
        for index, line in enumerate(lines)
        if head in line[:40].translate(None, _NUMBERS) and line.translate(None, _NUMBERS) == opening
    ]


def _goes_on(lines: list[bytes], left: list[bytes], index: int) -> bool:
    """Whether other words follow an exception without a traceback, before any row: it was caught."""
    count = 0
    for line, other in itertools.islice(zip(lines, left, strict=True), index + 1, index + 1 + _LEFT):
        if line and not other:
            return False  # whether this row is of the same launch, its step says
        count += bool(line.strip())
    return count > _BEHIND_IT


def _ended(index: int, line: bytes, begins: int) -> Message | None:
    """A traceback's last line, which stands as far to the right as its first one, or at the margin."""
    joined = line.count(b'File "') > 1 and sum(1 for _ in _FRAME.finditer(line)) > 1  # its line breaks were lost
    last = max((found.start() for found in _LAST.finditer(line)), default=0) if joined else 0
    for rest in (line[last:] if last else line[begins:], line):
        match = _EXCEPTION.match(rest)
        if match:
            kind, words = _text(match[1]), _text(match[2] or b"")
            fields: dict[str, Any] = {
                "status": "failed",
                "exception": {"type": kind.rpartition(".")[2], "message": words},
            }
            if kind == "KeyboardInterrupt":
                fields = {"status": "interrupted", "signal": "SIGINT"}
            return Message(index, _text(rest), fields, _memory(rest))
    return None


def _single(index: int, line: bytes, within: bool) -> Message | None:
    """What a line says by itself. within: it is a part of a traceback."""
    if _STATEMENT.match(line):
        return None
    if _MEMORY.search(line):
        return None if within else Message(index, _text(line), {}, _memory(line))
    for pattern, status, signal in () if within else _ENDS:
        if found := pattern.search(line):
            bar = b"%|" in line[: found.start()]  # goes ahead of it
            behind = line[found.start() + found[0].startswith(b"]") :] if bar or found[0].startswith(b"]") else line
            of_job = _OF_JOB.search(behind) is not None
            return Message(index, _text(behind), {"status": status, "signal": signal}, {}, of_job)
    if within or not _TROUBLE.search(line) or _HARMLESS.search(line) or _CODE.search(line):
        return None
    if at_margin := _ALONE.match(line):  # of a traceback that went to another file
        return _ended(index, line, at_margin.end()) or Message(index, _text(line), {}, {})
    return Message(index, _text(line), {}, {})


def _memory(line: bytes) -> dict[str, Any]:
    if not _MEMORY.search(line):
        return {}
    tried = _TRIED.search(line)
    fields: dict[str, Any] = {"error": _text(line)}
    if tried:
        with contextlib.suppress(ValueError):
            fields["tried_bytes"] = int(float(tried[1]) * _UNITS[tried[2].upper()])
    return fields


def _text(line: bytes) -> str:
    return line[:TEXT].decode("utf-8", "replace").strip()
