"""The sources there are, and which of them a path belongs to.

In:   a file or a folder that a user named.
Out:  the runs in it, each with the source that reads it; what could not be looked at.

The first source that knows a path has it, so the special ones stand before the general ones. Folders are
walked: links that lead in a circle, sockets, pipes, unreadable files and folders of a million files cost a
note at most.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

from barograph.importing.source import FoundRun, ImportSource, Unread

HEAD_BYTES = 64 << 10

# Modules below `barograph.importing`, in the order in which they are asked.
MODULES = (
    "barograph_json",
    "wandb_offline",
    "tensorboard",
    "mlflow",
    "aim",
    "trackio",
    "huggingface",
    "lightning",
    "wandb_csv",
    "textlogs.mlperf",
    "textlogs.fairseq",
    "textlogs.llamafactory",
    "textlogs.nanochat",
    "textlogs.modded_nanogpt",
    "textlogs.llmc",
    "textlogs.llmq_text",
    "textlogs.surogate_text",
    "textlogs.megatron",
    "textlogs.torchtitan",
    "textlogs.kempnerforge",
    "textlogs.nanogpt",
    "textlogs.hf_printed",
    "textlogs.deepspeed",
    "textlogs.keras_text",
    "textlogs.stanzas",
    "textlogs.yolo_results",
    "tables",
    "textlogs.plain",
    "textlogs.recurring",
    "textlogs.histories",
)

# Files that no training logs into; looked at only when they are named themselves.
_ENDINGS = (
    "py pyi pyc ipynb c cc cpp cu cuh h hpp rs go js ts css html htm md rst toml ini cfg lock sh bat so o a dll exe "
    "pt pth ckpt bin safetensors gguf onnx npy npz pkl pickle h5 hdf5 arrow arrows parquet feather tar gz tgz bz2 xz "
    "zip zst 7z png jpg jpeg gif svg bmp webp pdf mp4 mp3 wav ttf woff woff2 distcp model"
)
_NO_LOGS = frozenset(_ENDINGS.split())
_PACKED_LOGS = (".log.gz", ".txt.gz", ".out.gz", ".jsonl.gz")
_NO_LOG_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages"})
# A folder that one of these claims may hold other tools' logs too: a training's output with its event files.
_SHARING = frozenset({"tensorboard"})
_KEPT_HIDDEN = frozenset({".aim"})


@cache
def sources() -> tuple[ImportSource, ...]:
    """Every source, in the order in which they are asked."""
    found: list[ImportSource] = []
    for name in MODULES:
        module = import_module(f"barograph.importing.{name}")
        several = getattr(module, "SOURCES", None)
        found += several if several is not None else [module.SOURCE]
    return tuple(found)


def source_of(kind: str) -> ImportSource:
    """The source of that kind. Raises ValueError naming those that there are."""
    for source in sources():
        if source.kind == kind:
            return source
    raise ValueError(f"there is no kind of log {kind!r}; there are {', '.join(source.kind for source in sources())}")


def identify(
    path: str | os.PathLike[str], kind: str | None = None, problems: list[Unread] | None = None
) -> Iterator[tuple[ImportSource, FoundRun]]:
    """The runs in a file or folder, each with its source.

    kind: ask this source alone. problems: gets what could not be looked at. Raises OSError if the path itself
    is not there, ValueError if there is no such kind.
    """
    given = Path(path)
    asked = (source_of(kind),) if kind else sources()
    notes = problems if problems is not None else []
    os.stat(given)  # the one path that must be there
    seen: set[tuple[int, int]] = set()
    told: set[tuple[str, Path, str]] = set()
    for several in _paths(given, asked, seen, notes):
        for source, found in several:
            identity = found.kind, found.path, found.key
            if identity not in told:  # several files may lead to one run: each checkpoint has its training's history
                told.add(identity)
                yield source, found


def _paths(
    given: Path, asked: tuple[ImportSource, ...], seen: set[tuple[int, int]], notes: list[Unread]
) -> Iterator[list[tuple[ImportSource, FoundRun]]]:
    """What each path holds; a stack and no recursion, so that no depth of folders is too much."""
    waiting = [(given, asked)]
    while waiting:
        path, asked = waiting.pop()
        try:
            state = os.stat(path)
            identity = state.st_dev, state.st_ino
            if identity in seen:
                continue
            seen.add(identity)
            if stat.S_ISDIR(state.st_mode):
                if _is_import(path) and path != given:
                    continue
                found = _ask(path, b"", asked, notes)
                others = asked
                if found:
                    kind = found[0][0].kind
                    others = tuple(item for item in asked if item.kind != kind) if kind in _SHARING else ()
                if others:
                    waiting += [(below, others) for below in _below(path)]
                yield found
            elif stat.S_ISREG(state.st_mode) and state.st_size:
                with open(path, "rb") as file:
                    head = file.read(HEAD_BYTES)
                yield _ask(path, head, asked, notes)
        except OSError as error:
            notes.append(Unread(path, 0, "", f"could not be read: {error.strerror or error}"))


def _ask(
    path: Path, head: bytes, asked: tuple[ImportSource, ...], notes: list[Unread]
) -> list[tuple[ImportSource, FoundRun]]:
    """The runs that the first source to know the path finds there."""
    for source in asked:
        try:
            result = [(source, item) for item in source.find(path, head)]
        except OSError as error:
            notes.append(Unread(path, 0, "", f"could not be read: {error.strerror or error}"))
            continue
        except Exception as error:  # one source's mistake must not keep the others from looking
            notes.append(Unread(path, 0, "", f"the importer of {source.kind} failed: {type(error).__name__}: {error}"))
            continue
        if result:
            return result
    return []


def _below(folder: Path) -> list[Path]:
    """What is in a folder and may hold logs, the last by name first: it goes on a stack."""
    kept = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if (name.startswith(".") and name not in _KEPT_HIDDEN) or name in _NO_LOG_FOLDERS:
                continue
            # endings are those of files: a folder may be called `exp.bin`
            ending = name.rpartition(".")[2].lower() if "." in name else ""
            packed = name.lower().endswith(_PACKED_LOGS)
            if ending in _NO_LOGS and not packed and ".tfevents." not in name and not entry.is_dir():
                continue
            kept.append(name)
    return [folder / name for name in sorted(kept, reverse=True)]


def _is_import(folder: Path) -> bool:
    """Whether a folder is a run that was imported before: it is not the source of another import."""
    return (folder / ".importing").exists()
