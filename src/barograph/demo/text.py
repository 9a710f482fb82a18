"""The demo's text: Python source files of the standard library, and the loader that deals them out.

In:   the folder where this Python keeps its library, a seed.
Out:  a `Corpus` (training bytes and held-out bytes), and batches of byte windows from a `TextLoader`
      whose place can be saved and restored.

Pure Python: no torch here, so the text can be checked without it.
"""

from __future__ import annotations

import hashlib
import os
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypedDict

# Folders that are not the library (installed packages, tests, caches), or that hold tables instead of
# programs: `encodings` is character maps, `pydoc_data` the language reference in one string.
SKIPPED_FOLDERS = frozenset(
    ["site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "encodings", "pydoc_data"]
)
# Between two files: a byte that no source file contains.
SEPARATOR = b"\0"
# One file in this many is held out of training.
HOLD_OUT_ONE_IN = 16
# Batches in a shard, so that a short run already crosses from one shard into the next.
SHARD_BATCHES = 32
# A demo sees about a megabyte; four give it fresh text and take a fraction of a second to read.
MAX_TRAIN_BYTES = 4_000_000
MAX_HELD_OUT_BYTES = 400_000


class NoSources(Exception):
    """This Python has no readable source files; the message says where they were looked for."""


class TextLoaderState(TypedDict):
    """Where a `TextLoader` stands: the next batch is number `rg_idx` of shard `pq_idx` in pass `epoch` (from 1)."""

    pq_idx: int
    rg_idx: int
    epoch: int


class Split(NamedTuple):
    """One side of the corpus: the names of its files, and their bytes joined by `SEPARATOR`."""

    files: tuple[str, ...]
    text: bytes


class Corpus(NamedTuple):
    """Training text and held-out text; no file's content is in both."""

    train: Split
    held_out: Split


def read_corpus(
    folder: str | os.PathLike[str] | None = None,
    max_train_bytes: int = MAX_TRAIN_BYTES,
    max_held_out_bytes: int = MAX_HELD_OUT_BYTES,
) -> Corpus:
    """The library's source text, split in two by the hash of each file's content.

    The order is that of the hashes: the same on every machine with the same Python, and mixed, so that
    a limit in bytes takes a fair sample. Equal files fall on the same side.

    Raises `NoSources` where there is nothing to train on or nothing to hold out.
    """
    root = Path(folder) if folder is not None else Path(sysconfig.get_path("stdlib"))
    hashed = sorted((hashlib.sha256(text).hexdigest(), name, text) for name, text in _sources(root))
    train: list[tuple[str, bytes]] = []
    held_out: list[tuple[str, bytes]] = []
    for digest, name, text in hashed:
        (held_out if int(digest, 16) % HOLD_OUT_ONE_IN == 0 else train).append((name, text))
    if not train or not held_out:
        raise NoSources(
            f"There is too little Python source text under {root} to train on; "
            "a standard library kept in a zip file or stripped of its .py files will not do: "
            "run the demo with a Python installed as ordinary files."
        )
    return Corpus(_join(train, max_train_bytes), _join(held_out, max_held_out_bytes))


def _sources(root: Path) -> Iterator[tuple[str, bytes]]:
    """Name below `root` and content of every source file that can be read."""
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
        for file in files:
            path = Path(folder, file)
            if path.suffix != ".py":
                continue
            try:
                text = path.read_bytes()
            except OSError:  # a dangling link, a file of someone else's: the demo does without
                continue
            if text and SEPARATOR not in text:
                yield path.relative_to(root).as_posix(), text


def _join(files: list[tuple[str, bytes]], limit: int) -> Split:
    """The first files whose text fits in `limit` bytes, at least one, the last one cut to fit."""
    names: list[str] = []
    parts: list[bytes] = []
    room = limit
    for name, text in files:
        if room <= 0:
            break
        names.append(name)
        parts.append(text[:room])
        room -= len(text) + len(SEPARATOR)
    return Split(tuple(names), SEPARATOR.join(parts))


class TextLoader:
    """Deals out batches of windows of `context + 1` bytes: the last byte of a window is the next one's first.

    For each pass over the text the windows are shuffled and dealt into shards of `SHARD_BATCHES` batches,
    as a corpus lies in Parquet files and their row groups. Windows that fill no batch sit a pass out.
    """

    def __init__(self, text: bytes, context: int, batch: int, seed: int) -> None:
        """Raises `ValueError` if the text is too short for one batch."""
        self.text, self.context, self.batch, self.seed = text, context, batch, seed
        self.batches_per_epoch = (len(text) - 1) // context // batch
        if self.batches_per_epoch < 1:
            raise ValueError(f"{len(text)} bytes of text are too few for a batch of {batch} × {context}")
        self._start_pass(1)
        self._next = 0

    def _start_pass(self, epoch: int) -> None:
        self._epoch = epoch
        self._order = list(range((len(self.text) - 1) // self.context))
        random.Random(f"{self.seed}:{epoch}").shuffle(self._order)

    def next_batch(self) -> list[bytes]:
        """The next `batch` windows, each of `context + 1` bytes; the text starts over when it is through."""
        if self._next == self.batches_per_epoch:
            self._start_pass(self._epoch + 1)
            self._next = 0
        first = self._next * self.batch
        self._next += 1
        starts = (window * self.context for window in self._order[first : first + self.batch])
        return [self.text[start : start + self.context + 1] for start in starts]

    @property
    def epochs(self) -> float:
        """How many passes were dealt out, such as 1.25 for a quarter of the second."""
        return self._epoch - 1 + self._next / self.batches_per_epoch

    def state(self) -> TextLoaderState:
        """The place of the next batch."""
        if self._next == self.batches_per_epoch:
            return {"pq_idx": 0, "rg_idx": 0, "epoch": self._epoch + 1}
        shard, batch = divmod(self._next, SHARD_BATCHES)
        return {"pq_idx": shard, "rg_idx": batch, "epoch": self._epoch}

    def restore(self, state: TextLoaderState) -> None:
        """Go to a place that `state()` gave; raises `ValueError` where this text has no such place."""
        place = state["pq_idx"] * SHARD_BATCHES + state["rg_idx"]
        if state["epoch"] < 1 or not 0 <= place < self.batches_per_epoch:
            raise ValueError(f"this text has no batch at {state}")
        self._start_pass(state["epoch"])
        self._next = place


def fixed_windows(text: bytes, context: int, count: int) -> list[bytes]:
    """At most `count` windows of `context + 1` bytes, spread evenly over the text: the same at every call."""
    available = (len(text) - 1) // context
    count = min(count, available)
    starts = (number * available // count * context for number in range(count))
    return [text[start : start + context + 1] for start in starts]
