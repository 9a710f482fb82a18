"""Images, sound and tables in other tools' files, as a run keeps them.

In:   bytes, or the path of a file beside what is imported.
Out:  `Fact`s of the kind `media`, whose `content` the collector writes into the run's folder.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from barograph.core import media
from barograph.core.media import Format
from barograph.core.record import encode_fields
from barograph.importing.source import Fact

CONTENT = "content"


def make_media(
    name: str, content: bytes, step: int, time: int, caption: Any = None, suffix: str = "", index: int | None = None
) -> Fact | None:
    """A file of a run; None where nothing is in it, or more than a run keeps. suffix: as the source has it."""
    if not 0 < len(content) <= media.ITEM_BYTES:
        return None
    found, fields = media.format_of(content), {}
    if found is media.UNKNOWN:
        kept = "".join(letter for letter in suffix.lower() if letter.isascii() and letter.isalnum())[:10]
        found = found._replace(suffix=f".{kept}" if kept else found.suffix)
    if found.type == "image" and (size := media.image_size(content)) is not None:
        fields["shape"] = list(size)
    return _fact(name, content, step, time, caption, found, fields | ({} if index is None else {"index": index}))


def make_table(name: str, content: bytes, step: int, time: int) -> Fact | None:
    """A table that is kept as JSON with `columns` and `data`; None where it is none."""
    try:
        held = json.loads(content)
        columns = [str(column) for column in held["columns"]]
        rows = [list(row) for row in held["data"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    written = encode_fields({"columns": columns, "data": rows})
    if len(written) > media.ITEM_BYTES:
        return None
    return _fact(name, written, step, time, None, media.TABLES, {"shape": [len(rows), len(columns)]})


def _fact(name: str, content: bytes, step: int, time: int, caption: Any, found: Format, fields: dict[str, Any]) -> Fact:
    said = {"caption": caption} if isinstance(caption, str) and caption else {}
    about = {"name": name, "type": found.type, "suffix": found.suffix, CONTENT: content}
    return Fact("media", step, time, about | said | fields)


def read_beside(root: Path, path: Any) -> bytes | None:
    """A file that what is imported names, within its own folder; None for every other, and where there is none."""
    if not isinstance(path, str) or "\0" in path:
        return None
    try:
        real = Path(os.path.realpath(root / path))
        if not real.is_relative_to(os.path.realpath(root)) or not real.is_file():
            return None
        return real.read_bytes() if real.stat().st_size <= media.ITEM_BYTES else None
    except (OSError, ValueError):
        return None


def keep(folder: Path, fields: dict[str, Any]) -> dict[str, Any]:
    """A fact's content written into a run's folder; the fields of the record. Raises OSError."""
    rest = {name: value for name, value in fields.items() if name not in (CONTENT, "suffix")}
    path, _ = media.keep(folder, fields[CONTENT], fields["suffix"])
    return rest | {"path": path, "bytes": len(fields[CONTENT])}
