"""Images, sound, tables and other files of a run, beside its log.

In:   a loop's images and rows, by name and step.
Out:  files under `media/` in the run's folder, and a `media` record for each, which comes when its file is there.

On the loop's thread stands a copy of what may change; encoding and writing is done by the thread that reads values of
devices. What comes faster than it is written, and what goes beyond the run's limit, is left out, with one warning.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from barograph.core import media
from barograph.core.text import size as size_text
from barograph.core.values import text, whole
from barograph.training import conversion
from barograph.training.conversion import Copied, Encoded, Unusable
from barograph.training.emitter import NoLog
from barograph.training.guard import guarded
from barograph.training.recorder import Recorder

_MOST_WAITING, _MOST_WAITING_BYTES = 512, 256 << 20
_MOST_FILES = 50_000  # of one process: a folder of more is slow to list
_MOST_IN_A_CALL = 64
_MOST_CAPTION = 10_000
_DEVICE_SECONDS = 30.0  # a copy that a device does not give in this time never comes


class _Waiting(NamedTuple):
    type: str
    name: str
    step: int
    segment: int
    moment: int
    fields: dict[str, Any]
    copied: Copied
    encode: Callable[[Any], Encoded]


class RunMedia:
    """`log_image`, `log_audio`, `log_table` of a run, and files of any other kind."""

    def __init__(self, recorder: Recorder):
        self._out = recorder
        self._forget()
        recorder.waits.append(self.flush)

    def _forget(self) -> None:
        """Also in a forked child: what waits is the parent's."""
        self._owner = os.getpid()
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._writing = threading.RLock()
        self._kept: int | None = None  # bytes of the run's media files, counted when the first one is written
        self._files = 0

    # -- calls --------------------------------------------------------------------------------------------------

    @guarded("image")
    def image(self, name: str, image: Any, step: Any = None, caption: Any = None) -> None:
        """An image at a step (default: the one logged last): an array or tensor of height × width, of height × width ×
        channels or of channels × height × width; an image of Pillow, a figure of matplotlib, a path, or the bytes of
        a PNG, JPEG, GIF or WebP file. Several as a list or an array with one axis more, then `caption` may be a list.

        Floats go from 0 to 1 (or to 255, where one is above 1). The call takes the time of a copy; that of a figure
        is drawn in it.
        """
        several = self._several(name, image)
        captions = caption if isinstance(caption, (list, tuple)) else [caption] * len(several)
        for at, each in enumerate(several):
            fields = {"index": at} if len(several) > 1 else {}
            self._take(
                "image", name, step, captions[at] if at < len(captions) else None, each, conversion.as_image, fields
            )

    @guarded("sound")
    def audio(self, name: str, audio: Any, step: Any = None, caption: Any = None, *, rate: int = 16_000) -> None:
        """Sound at a step: samples from -1 to 1 (or whole numbers of 16 bits), of one channel or of samples × channels,
        with `rate` of them a second; a path, or the bytes of a WAV, MP3, Ogg or FLAC file."""
        samples = whole(rate)
        if samples is None or not 1 <= samples <= 1_000_000:
            self._out.odd(f"the sample rate of {text(name)[:80]!r} is {text(rate)[:40]!r}; it is a number a second")
            return
        self._take("audio", name, step, caption, audio, lambda value: conversion.as_audio(value, samples))

    @guarded("table")
    def table(
        self, name: str, rows: Any, step: Any = None, caption: Any = None, *, columns: Iterable[Any] | None = None
    ) -> None:
        """A table at a step: rows as lists or mappings, a mapping of columns, or a data frame of pandas or polars.
        Cells may be numbers, texts, images of Pillow, figures; anything else as JSON or as text. 100,000 rows at most.
        """
        try:
            table = conversion.rows_of(rows, columns)
        except Unusable as error:
            self._out.odd(f"table {text(name)[:80]!r}: {error}")
            return
        pictures = [  # they may change, as any image
            (row, at, cell if isinstance(cell, Copied) else conversion.copy_of(cell))
            for row in table.rows
            for at, cell in enumerate(row)
            if conversion.is_picture(cell) or isinstance(cell, Copied)
        ]
        for row, at, copied in pictures:
            row[at] = copied
        size = sum(copied.bytes for _, _, copied in pictures) + 16 * len(table.rows) * max(1, len(table.columns))
        self._add("table", name, step, caption, Copied(table, size, lambda: True), self._encode_table, {})

    @guarded("file")
    def file(self, name: str, file: Any, step: Any = None, caption: Any = None, *, suffix: str = "") -> None:
        """A file of any kind at a step, by its path or its bytes, to be kept and handed out as it is: a video, a page,
        a model of a molecule. suffix: such as ".html", where the path does not say."""
        if not isinstance(file, (bytes, bytearray, memoryview, str, os.PathLike)):
            self._out.odd(f"file {text(name)[:80]!r} is a {type(file).__name__}; a path or bytes are taken")
            return
        if not suffix and isinstance(file, (str, os.PathLike)):
            suffix = os.path.splitext(os.fspath(file))[1]
        self._take("file", name, step, caption, file, lambda value: _as_file(value, suffix))

    # -- the loop's thread ----------------------------------------------------------------------------------------

    def _several(self, name: str, image: Any) -> list[Any]:
        if isinstance(image, (list, tuple)) or getattr(image, "ndim", 0) == 4:
            if len(image) > _MOST_IN_A_CALL:
                self._out.warn(f"{text(name)[:80]!r}: of {len(image):,} images in a call {_MOST_IN_A_CALL} are kept")
            return list(image[:_MOST_IN_A_CALL])
        return [image]

    def _take(
        self,
        kind: str,
        name: Any,
        step: Any,
        caption: Any,
        value: Any,
        encode: Callable[[Any], Encoded],
        fields: dict[str, Any] | None = None,
    ) -> None:
        if not self._has_room():
            return
        try:
            copied = conversion.copy_of(value)
        except (Unusable, OSError) as error:
            self._out.odd(f"{kind} {text(name)[:80]!r}: {error}")
            return
        self._add(kind, name, step, caption, copied, encode, fields or {})

    def _has_room(self) -> bool:
        """Whether one more may wait; looked at before anything is copied."""
        if os.getpid() != self._owner:
            self._forget()
        if len(self._waiting) < _MOST_WAITING and self._bytes < _MOST_WAITING_BYTES:
            return True
        self._out.warn(
            f"images, sound or tables come faster than they are written: {len(self._waiting)} wait, and what comes "
            "meanwhile is left out; log fewer",
            "media wait",
        )
        return False

    def _add(
        self,
        kind: str,
        name: Any,
        step: Any,
        caption: Any,
        copied: Copied,
        encode: Callable[[Any], Encoded],
        fields: dict[str, Any],
    ) -> None:
        out = self._out
        if out.finished:
            out.refuse()
            return
        if isinstance(out.log, NoLog) or not self._has_room():
            return
        if caption is not None:
            fields = {"caption": text(caption)[:_MOST_CAPTION], **fields}
        at = out.current_step if step is None else out.step_of(step)
        moment = time.time_ns() // 1000
        self._bytes += copied.bytes
        self._waiting.append(_Waiting(kind, text(name)[:1000], at, out.segment.number, moment, fields, copied, encode))
        out.later.call(self._write_next)

    # -- the other thread -------------------------------------------------------------------------------------------

    def flush(self, timeout: float = 10.0) -> bool:
        """Write what waits, for at most about so long; whether nothing is left."""
        if os.getpid() != self._owner:
            self._forget()
        deadline = time.monotonic() + timeout
        if not self._writing.acquire(timeout=max(0.0, timeout)):
            return False
        try:
            while self._waiting and time.monotonic() < deadline:
                self._write_next(deadline)
        finally:
            self._writing.release()
        return not self._waiting

    def left_out(self) -> int:
        """How many wait that will not be written any more: the run has ended."""
        count = len(self._waiting)
        self._waiting.clear()
        return count

    def _write_next(self, deadline: float | None = None) -> None:
        with self._writing:
            if not self._waiting or self._out.closed:
                return
            item = self._waiting.popleft()
            self._bytes -= item.copied.bytes
            try:
                self._write(item, deadline)
            except (Unusable, ValueError) as error:
                self._out.warn(f"{item.type} {item.name[:80]!r} is not kept: {error}", f"media {item.type} {item.name}")
            except Exception as error:
                self._out.warn(
                    f"could not keep {item.type} {item.name[:80]!r}: {type(error).__name__}: {text(error)[:300]}",
                    f"media {type(error)}",
                )

    def _write(self, item: _Waiting, deadline: float | None) -> None:
        limit = time.monotonic() + _DEVICE_SECONDS if deadline is None else deadline
        while not item.copied.ready():
            if time.monotonic() > limit:
                raise Unusable("its copy has not arrived from the device")
            self._out.later.read()  # what is on its way with it
            time.sleep(0.001)
        encoded = item.encode(item.copied.value)
        path = self._keep(item, encoded)
        if path is None:
            return
        fields = {"name": item.name, "type": encoded.format.type, "path": path, "bytes": len(encoded.content)}
        fields |= item.fields | encoded.fields
        if item.segment != self._out.segment.number:  # a rewind came between
            fields["segment"] = item.segment
        self._out.emit("media", item.step, fields, checked=True, moment=item.moment)

    def _keep(self, item: _Waiting, encoded: Encoded) -> str | None:
        """The file's path in the run's folder; None where it is over a limit, which is said once."""
        out, size = self._out, len(encoded.content)
        if self._kept is None:
            self._kept = media.kept_bytes(out.dir)
        if size > media.ITEM_BYTES:
            raise Unusable(f"its file would have {size_text(size)}; {size_text(media.ITEM_BYTES)} are kept at most")
        limit = out.settings.media_mb << 20
        if self._kept + size > limit or self._files >= _MOST_FILES:
            held = f"{self._files:,} files" if self._files >= _MOST_FILES else size_text(self._kept)
            out.warn(
                f"the run has {held} of images, sound, tables and other files: what comes now is left out "
                f"(media_mb is {out.settings.media_mb:,})",
                "media full",
            )
            return None
        path, added = media.keep(out.dir, encoded.content, encoded.format.suffix)
        self._kept += added
        self._files += bool(added)
        return path

    def _encode_table(self, table: conversion.MediaRows) -> Encoded:
        def cell(value: Any) -> Any:
            if not isinstance(value, Copied):
                return conversion.cell_of(value)
            encoded = conversion.as_image(value.value)
            path, added = media.keep(self._out.dir, encoded.content, encoded.format.suffix)
            self._kept = (self._kept or 0) + added
            return {"media": path, "type": "image"}

        if self._kept is None:
            self._kept = media.kept_bytes(self._out.dir)
        return conversion.as_table(table, cell)


def _as_file(content: bytes, suffix: str) -> Encoded:
    found = media.format_of(content)
    if found is media.UNKNOWN:
        kept = "".join(_letters(suffix.lower()))[:10]
        found = found._replace(suffix=f".{kept}" if kept else found.suffix)
    return Encoded(content, found, {})


def _letters(words: str) -> Iterator[str]:
    return (letter for letter in words if letter.isascii() and letter.isalnum())
