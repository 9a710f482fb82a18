"""A file that is a JSON array at every instant: records are written over white space before its closing bracket.

In:   records as bytes; a file that is there already, perhaps with a torn end.
Out:  the array. Whoever appends keeps the order, and writes again what the disk refused: `write`.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from barograph.core import locks
from barograph.core.handlers import Refusals
from barograph.core.record import Record, encode
from barograph.log.read import WHITE, LogFileBusy, is_record, refuse_foreign, scan

PAGE = 4096
_BLANKS = b" " * PAGE
_GROW_LEAST, _GROW_MOST, _GROW_FAST = 4 * PAGE, 32 * PAGE, 256 * PAGE
_SLICE = 8 * PAGE  # white space written at once, ahead of its need
_FILLED = 1 << 20  # bytes of a hole that are filled at once
_END = 4 * _GROW_FAST  # at the end of a file, where its last record is looked for first
_GROWN_OFTEN = 1.0  # seconds between two times that the white space was used up
_LOCK_TRIES, _LOCK_SECONDS = 10, 0.01  # who wonders whether a log is written holds its lock for a moment


class ArrayFile:
    """The file. `position`: bytes up to the end of the last record; `bracket`: where the closing one stands.

    `easy`: bytes of the file up to which a record is one plain write; 0: look closer. `stale`: a write was interrupted,
    `look_up` says where it stopped. `descriptor` is -1 once it is closed.
    """

    def __init__(self, path: Path, trouble: Callable[[str], None]):
        self.path, self.trouble = path, trouble
        self.descriptor = self._stand_in = -1  # and that of a lock elsewhere, where the file system has none
        self.stale = False
        self.position = self.bracket = self.easy = 0
        self._size = 0  # bytes of the file that are known to be white space behind the bracket
        self._ahead: int = 0  # white space is wanted up to this byte,
        self._ahead_from: float = math.inf  # from where `position` is past this one
        self._grown, self._grow_most = -math.inf, _GROW_MOST
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.stat().st_size == 0:
            _create(path)
        self.descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def begin(self) -> None:
        """Lock it and find its end. Raises LogFileError, OSError."""
        self._take_lock()
        self._find_end()

    def identity(self) -> tuple[int, int]:
        """Of the open file."""
        state = os.fstat(self.descriptor)
        return state.st_dev, state.st_ino

    def write(self, data: bytes) -> None:
        position = self.position
        text = b",\n" + data if position > 1 else b"\n" + data
        size = len(text)
        room = PAGE - position % PAGE
        if room < size <= PAGE:
            text = _BLANKS[:room] + text
            size += room
        self.stale = True
        if position + size >= self.bracket:
            self._grow(position + size)
        if os.pwrite(self.descriptor, text, position) != size:
            raise OSError(28, "the disk took only part of a record")
        self.position = position = position + size
        self.stale = False
        # up to there a record needs no more than one write: the page's end, or the bracket
        self.easy = min(position - position % -PAGE, self.bracket - 1)
        if position > self._ahead_from:
            self._blank_ahead()

    def write_text(self, text: bytes) -> None:
        """Add the bytes that follow `position` in another log of the same beginning. Raises OSError."""
        if self.stale:
            self.look_up()
        self.stale, self.easy = True, 0
        if self.position + len(text) >= self.bracket:
            self._grow(self.position + len(text))
        if os.pwrite(self.descriptor, text, self.position) != len(text):
            raise OSError(28, "the disk took only part of a record")
        self.position += len(text)
        self.stale = False

    def _grow(self, needed: int) -> None:
        """Make room for records up to byte `needed`: white space behind the bracket, then the bracket."""
        now = time.monotonic()
        # often is bad: a reader may come between the two writes that move the bracket
        since = now - self._grown
        if since < _GROWN_OFTEN:
            self._grow_most = min(2 * self._grow_most, _GROW_FAST)
        elif since > 5 * _GROWN_OFTEN:
            self._grow_most = _GROW_MOST
        self._grown = now
        self.easy = 0
        self._blank(-(-(needed + _GROW_LEAST) // PAGE) * PAGE)
        self._move_bracket(self._size - 2)
        extra = min(max(_GROW_LEAST, needed // 8), self._grow_most)
        # the next white space is written in slices before it is needed: a megabyte at once takes a millisecond
        self._ahead = self._size + -(-extra // PAGE) * PAGE
        self._ahead_from = needed + (self.bracket - needed) // 2

    def _blank(self, size: int) -> None:
        """White space up to byte `size` of the file, if there isn't."""
        start = max(self._size, self.bracket + 1)
        if size > start:
            if os.pwrite(self.descriptor, b"\r" * (size - start), start) != size - start:
                raise OSError(28, "the disk is full")
            self._size = size

    def _blank_ahead(self) -> None:
        """A slice of the white space that will be needed next. A full disk is seen when it is needed."""
        self._ahead_from = math.inf
        with Refusals():
            self._blank(min(self._ahead, self._size + _SLICE))
            if self._size < self._ahead:
                self._ahead_from = self.position

    def _move_bracket(self, target: int) -> None:
        """The bracket and the line break after it to byte `target`, further on; white space where it was."""
        # in between there are two brackets, which is not JSON: no line of Python runs between the writes
        writes = map(os.pwrite, (self.descriptor, self.descriptor), (b"\n]\n", b"\r"), (target - 1, self.bracket))
        if list(writes) != [3, 1]:
            raise OSError(28, "the disk took only part of a bracket")
        self.bracket = target

    def look_up(self) -> None:
        """Find out where an interrupted append stopped, and take away what is not whole."""
        self.easy = self._size = 0
        descriptor = self.descriptor
        size = os.fstat(descriptor).st_size
        start = self.position
        body = os.pread(descriptor, max(0, size - start), start).rstrip(WHITE)
        text = body.rstrip(b"]" + WHITE)
        if is_record(text.lstrip(WHITE + b",")):
            self.position += len(text)
        elif text:  # half a record: white space again
            os.pwrite(descriptor, b"\r" * len(text), start)
        if body.count(b"]", len(text)) == 1:
            self.bracket = start + body.index(b"]", len(text))
        else:  # the bracket was just being moved
            self.end_here()
        self.stale = False

    def copy_to(self, path: Path) -> None:
        """Go on in a copy at `path`, which is there whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        copy = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        old, stand_in = self.descriptor, -1
        try:
            offset = 0
            while chunk := os.pread(old, 1 << 20, offset):
                offset += os.pwrite(copy, chunk, offset)
            stand_in = locks.take(copy)
            _put_in_place(temporary, path)
        except BaseException:
            os.close(copy)
            if stand_in >= 0:
                os.close(stand_in)
            raise
        finally:
            temporary.unlink(missing_ok=True)
        self.descriptor, self._stand_in, stand_in = copy, stand_in, self._stand_in
        os.close(old)
        if stand_in >= 0:
            os.close(stand_in)

    def _take_lock(self) -> None:
        for attempt in range(_LOCK_TRIES):
            try:
                self._stand_in = locks.take(self.descriptor)
                return
            except BlockingIOError:
                if attempt < _LOCK_TRIES - 1:
                    time.sleep(_LOCK_SECONDS)
            except OSError:
                return  # nothing can be locked here at all
        raise LogFileBusy(f"{self.path} is being written by another process; give this one another log_file")

    def _find_end(self) -> None:
        """Position and bracket of an existing file; a torn tail is repaired, a foreign file refused."""
        descriptor = self.descriptor
        self.fill_hole()
        size = os.fstat(descriptor).st_size
        head = os.pread(descriptor, 1 << 16, 0)
        refuse_foreign(self.path, head, whole=size <= len(head))
        found = end_of(descriptor, size)
        if found is None:
            self._repair(descriptor, size)
            return
        self.position, brackets = found
        if len(brackets) == 1:
            self.bracket = brackets[0]
        else:  # it was just being moved
            self.end_here()

    def fill_hole(self) -> None:
        """Begin the array again where another program has emptied the file while records were added: the kernel shows
        zeros up to those that came later. They stay where they are, because of what was sealed before."""
        descriptor, at = self.descriptor, 0
        if not has_hole(descriptor):
            return
        while chunk := os.pread(descriptor, _FILLED, at):
            zeros = len(chunk) - len(chunk.lstrip(b"\0"))
            at += zeros
            if zeros < len(chunk):
                break
        behind = os.pread(descriptor, 2 * PAGE, at)
        text = behind.lstrip(WHITE + b",")
        if not text.startswith((b'{"log":', b"]")):
            return
        end = at + len(behind) - len(text)
        # the beginning comes last: until then it is a hole that is filled by the next one
        for start in range(1, end, _FILLED):
            _write_all(descriptor, b"\r" * min(_FILLED, end - start), start)
        _write_all(descriptor, b"[", 0)

    def end_here(self) -> None:
        """The bracket right behind the last record, and nothing behind it."""
        # a kill between the two leaves two brackets, as moving one does
        _write_all(self.descriptor, b"\n]\n", self.position)
        os.ftruncate(self.descriptor, self.position + 3)
        self.bracket, self._size = self.position + 1, 0

    def _repair(self, descriptor: int, size: int) -> None:
        text = os.pread(descriptor, size, 0)
        end = 1 + text.index(b"[")
        for _, end in scan(text):  # noqa: B007 - the end of the last whole record
            pass
        rest = text[end:].strip(WHITE + b"]")
        if rest.strip(b","):
            with open(f"{self.path}.torn", "ab") as kept:
                kept.write(rest + b"\n")
        self.position = end
        self.end_here()
        if rest.strip(b","):
            note = (
                f"{self.path.name} ended in the middle of a record; what was whole stays, "
                f"the rest ({len(rest)} bytes) is in {self.path.name}.torn"
            )
            self.trouble(note)
            self.write(encode(Record("info", time.time_ns() // 1000, 0, {"type": "repair", "message": note})))

    def release(self, keep_number: bool) -> None:
        """Close it as it is. keep_number: an interrupted call knows the descriptor's number, and no other file may
        get it."""
        descriptor, self.descriptor = self.descriptor, -1
        stand_in, self._stand_in = self._stand_in, -1
        self.easy = 0
        with Refusals():
            if stand_in >= 0:
                os.close(stand_in)
            if descriptor >= 0:
                if keep_number:
                    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
                    os.dup2(null, descriptor, inheritable=False)
                    descriptor = null
                os.close(descriptor)


def has_hole(descriptor: int) -> bool:
    """Whether a log begins with zeros: it was emptied while it was written."""
    return os.pread(descriptor, 1, 0) == b"\0"


def _write_all(descriptor: int, text: bytes, at: int) -> None:
    while text and (took := os.pwrite(descriptor, text, at)):
        text, at = text[took:], at + took


def end_of(descriptor: int, size: int) -> tuple[int, list[int]] | None:
    """Where a log's last whole record ends, and the brackets behind it; None where that is not at its end."""
    last = max(0, size - _END)
    tail = os.pread(descriptor, size - last, last).rstrip(WHITE)
    records = tail.rstrip(b"]" + WHITE)
    begin = records.rfind(b"\n{")
    if begin < 0:
        begin = records.rfind(b"[{")
    if not (records == b"[" and last == 0) and not (begin >= 0 and is_record(records[begin + 1 :])):
        return None
    brackets, at = [], tail.find(b"]", len(records))
    while at >= 0:
        brackets.append(last + at)
        at = tail.find(b"]", at + 1)
    return last + len(records), brackets


def _create(path: Path) -> None:
    """An empty array, there at once: never a moment without its closing bracket."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    # a log holds the command line: it is its owner's to read
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(b"[" + b"\r" * (PAGE - 4) + b"\n]\n")
        if path.exists():  # an empty file somebody made: keep its name, fill it
            os.replace(temporary, path)
            return
        with contextlib.suppress(FileExistsError):
            _put_in_place(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _put_in_place(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.rename(temporary, path)
