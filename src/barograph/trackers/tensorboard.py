"""TensorBoard: a run's numbers as an event file.

In:   records from a `LoggingBackend`'s queue.
Out:  `events.out.tfevents.…` in a folder: scalars, histograms, the configuration as text.

The messages are the `tensorboard` package's own; the frame around them is written here, because the
package's writer imports TensorFlow where it is installed, and because a write that fails half way (a
full disk) is taken back, where it would else end the file for every reader.
"""

from __future__ import annotations

import array
import html
import itertools
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from barograph.core.values import flatten, text
from barograph.trackers.backend import LoggingBackend

_MOST_PENDING = 64 << 20  # bytes that wait for a disk with room
_numbers = itertools.count()


class TensorBoardBackend(LoggingBackend):
    """Writes an event file into `config.tensorboard_dir`, from the first `log` on, on rank 0.

    A scalar is kept as TensorBoard keeps it, in 32 bits; NaN and infinity too. Text and None have no
    place in it and are left out with one warning.

    config: anything with `tensorboard_dir`; with `tensorboard_layout` "grouped", tags are those of `grouped`.
    run_config: the training's configuration, kept as a table.
    log_file: where the same records are kept, for the sentences that say what was not sent.
    """

    name, package, install = "TensorBoard", "tensorboard", "pip install tensorboard"

    def __init__(
        self, config: Any, *, run_config: Mapping[str, Any] | None = None, log_file: str | os.PathLike[str] = ""
    ):
        super().__init__(log_file=log_file)
        self._run_config = run_config
        self.folder = text(getattr(config, "tensorboard_dir", "") or "tb_logs")
        self._grouped = getattr(config, "tensorboard_layout", "") == "grouped"
        self.path: Path | None = None  # the event file, once there is one
        self._file = -1
        self._end = 0  # bytes of whole records in the file
        self._pending, self._pending_records = bytearray(), 0

    def rewind(self, step: int) -> None:
        """The training goes back to `step`: viewers hide what was logged from there on."""
        self.sender.put(self._write_rewind, (step, time.time()), 1)

    def _open(self) -> None:
        from tensorboard.compat.proto import event_pb2, tensor_pb2, types_pb2
        from tensorboard.plugins.histogram import metadata as histogram_metadata
        from tensorboard.plugins.text import metadata as text_metadata

        self._event = event_pb2.Event
        self._tensor, self._types = tensor_pb2.TensorProto, types_pb2
        self._session_start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._histogram_metadata = histogram_metadata.create_summary_metadata(None, None)
        self._text_metadata = text_metadata.create_summary_metadata(None, None)
        if "://" in self.folder:
            raise ValueError(f"tensorboard_dir is {self.folder!r}, but it has to be a folder of this machine")
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        earlier = os.path.basename(text(self._before.get("file") or ""))
        if earlier and self._go_on(folder / earlier, int(self._before.get("bytes", 0))):
            return
        while self._file < 0:
            self.path = folder / (
                f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}"
            )
            try:  # containers may share a folder, a host's name and a process's number
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            except FileExistsError:
                continue
        self._append(self._event(wall_time=time.time(), file_version="brain.Event:2"))
        if self._run_config:
            self._write_config(flatten(self._run_config, self.sender.odd))
        self._flush()

    def _go_on(self, path: Path, size: int) -> bool:
        """Write behind the noted bytes of an earlier process's file; what it wrote after that note is cut off.

        False where the file is gone, or shorter after a power cut: the run is to be sent from its beginning.
        """
        self.begins_anew = True
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        if os.fstat(handle).st_size < size:
            os.close(handle)
            os.unlink(path)
            return False
        self.begins_anew = False
        os.ftruncate(handle, size)
        self._file = handle
        os.lseek(self._file, size, os.SEEK_SET)
        self.path, self._end = path, size
        return True

    def _state(self) -> dict[str, Any]:
        os.fsync(self._file)  # a power cut must not leave less than is noted
        return {"file": self.path.name if self.path else "", "bytes": self._end}

    def _tag(self, name: str) -> str:
        return grouped(name) if self._grouped else name

    def _write(self, metrics: dict[str, Any], step: int, seconds: float) -> None:
        event = self._event(wall_time=seconds, step=step)
        for name, value in metrics.items():
            if value is None or isinstance(value, str):
                self.sender.odd(f"{name[:60]!r} is not a number ({value!r:.60}) and was left out")
            else:
                scale = _FACTORS.get(name, 1.0) if self._grouped else 1.0
                number = value * scale if scale != 1.0 else value
                event.summary.value.add(tag=self._tag(name), simple_value=_single(number))
        if event.summary.value:
            self._append(event)

    def _write_histogram(self, name: str, edges: list[float], counts: list[float], step: int, seconds: float) -> None:
        rows = [part for row in zip(edges, edges[1:], counts, strict=False) for part in row]
        tensor = self._tensor(dtype=self._types.DT_DOUBLE, tensor_content=struct.pack(f"<{len(rows)}d", *rows))
        tensor.tensor_shape.dim.add(size=len(counts))
        tensor.tensor_shape.dim.add(size=3)  # left edge, right edge, count
        event = self._event(wall_time=seconds, step=step)
        event.summary.value.add(tag=self._tag(name), tensor=tensor, metadata=self._histogram_metadata)
        self._append(event)

    def _write_config(self, config: dict[str, Any]) -> None:
        lines = ["| option | value |", "|---|---|"]
        lines += [f"| {_cell(name)} | {_cell(value)} |" for name, value in config.items()]
        self._write_markdown("config", "\n".join(lines), 0, time.time())

    def _write_text(self, name: str, content: str, step: int, seconds: float) -> None:
        self._write_markdown(name, html.escape(content).replace("\n", "<br>"), step, seconds)

    def _write_note(self, title: str, content: str, level: str, step: int, seconds: float) -> None:
        shown = f"**{html.escape(level)}: {html.escape(title)}**<br>{html.escape(content)}"
        self._write_markdown("notes", shown.replace("\n", "<br>"), step, seconds)

    def _write_markdown(self, tag: str, content: str, step: int, seconds: float) -> None:
        tensor = self._tensor(dtype=self._types.DT_STRING, string_val=[content.encode()])
        event = self._event(wall_time=seconds, step=step)
        event.summary.value.add(tag=tag, tensor=tensor, metadata=self._text_metadata)
        self._append(event)

    def _write_rewind(self, step: int, seconds: float) -> None:
        self._append(self._event(wall_time=seconds, step=step, session_log=self._session_start))

    def _append(self, event: Any) -> None:
        """A record is length, checksum, message, checksum: tensorflow/core/lib/io/record_writer.h."""
        message = event.SerializeToString()
        length = struct.pack("<Q", len(message))
        self._pending += length + struct.pack("<I", masked_checksum(length))
        self._pending += message + struct.pack("<I", masked_checksum(message))
        self._pending_records += 1

    def _flush(self) -> None:
        """Write what is pending, whole or not at all."""
        try:
            written = 0
            while written < len(self._pending):
                written += os.write(self._file, self._pending[written:])
            self._end += written
            self._forget_pending()
        except OSError:
            os.ftruncate(self._file, self._end)
            os.lseek(self._file, self._end, os.SEEK_SET)
            if len(self._pending) > _MOST_PENDING:
                self.sender.not_sent += self._pending_records
                self._forget_pending()
            raise

    def _forget_pending(self) -> None:
        self._pending.clear()
        self._pending_records = 0

    def _close(self) -> None:
        if self._file >= 0:
            try:
                self._flush()
            finally:
                self.sender.not_sent += self._pending_records
                os.close(self._file)


_GROUPS = {
    "train/loss": "Loss/train", "eval/loss": "Loss/validation", "train/norm": "Gradients/norm_global",
    "train/lr": "Optimization/lr", "model/update_p50": "Optimization/update_ratio",
    "train/tokens_per_second": "Performance/tokens_per_sec", "gpu/0/gpu_util": "Performance/gpu_utilization",
    "memory/allocated_gb": "Performance/memory_mb", "param_norm": "Parameters/norm_global",
}  # fmt: skip
_FACTORS = {"memory/allocated_gb": 1024.0}
_LAYERS = {"gradients": "Gradients", "gradients_hist": "Gradients_Hist", "updates": "Updates", "weights": "Parameters",
           "weights_hist": "Parameters_Hist"}  # fmt: skip


def grouped(name: str) -> str:
    """The tag in the stability guide's folders, such as `Loss/train` and `Gradients/per_layer/{layer}/norm`; a name
    that the guide has no place for stays as it is."""
    family, _, rest = name.partition("/")
    if rest and family in _LAYERS:
        return f"{_LAYERS[family]}/per_layer/{rest}"
    return _GROUPS.get(name, name)


def _single(value: Any) -> float:
    """As 32 bits hold it: what is too large becomes infinite, as a cast does."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _cell(value: Any) -> str:
    """Text for a cell of a Markdown table that may hold HTML."""
    return html.escape(text(value)[:10_000]).replace("|", "&#124;").replace("\n", "<br>")


# ---------------------------------------------------------------------------------------------
# CRC-32C, two bytes a round: three times as fast as a byte a round, which counts here because the
# training's own Python waits meanwhile


def _table() -> list[int]:
    bytewise = []
    for start in range(256):
        value = start
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)  # Castagnoli's polynomial, RFC 3720 B.4
        bytewise.append(value)
    once = (bytewise[pair & 255] ^ (pair >> 8) for pair in range(65536))
    return [bytewise[value & 255] ^ (value >> 8) for value in once]


_pairwise: list[int] = []


def masked_checksum(data: bytes) -> int:
    """CRC-32C, rotated and shifted as event files have it: tensorflow/core/lib/hash/crc32c.h."""
    if not _pairwise:
        _pairwise.extend(_table())
    table, value = _pairwise, 0xFFFFFFFF
    for pair in array.array("H", data[: len(data) & ~1]):
        value = table[(value ^ pair) & 0xFFFF] ^ (value >> 16)
    if len(data) & 1:
        value ^= data[-1]
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    value ^= 0xFFFFFFFF
    return (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF
