"""Images, sound and tables of a loop as files: a quick copy now, the encoding later.

In:   arrays of NumPy, torch or JAX, images of Pillow, figures of matplotlib, bytes, paths; rows of anything.
Out:  `copy_of`: what no later step changes, taken on the loop's thread; `as_image`, `as_audio`, `as_table`: a file's
      bytes. Raises Unusable, whose sentence says what can be taken.

Neither NumPy nor torch is loaded on our account: who has an array has its library.
"""

from __future__ import annotations

import array
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from barograph.core import media, png
from barograph.core.media import Format
from barograph.core.record import encode_fields
from barograph.core.text import size as size_text
from barograph.core.values import PLAIN, DeviceValues, on_device, plain, text

MOST_ROWS = 100_000
_LEVEL = 4  # of the compression: twice as fast as 6, files some 3% larger
_IMAGES = "an array of height × width, of height × width × channels or of channels × height × width, an image of \
Pillow, a figure of matplotlib, or a path or the bytes of a PNG, JPEG, GIF or WebP file"
_SOUNDS = "samples of one channel or of samples × channels, floats from -1 to 1 or whole numbers of 16 bits, or a path \
or the bytes of a WAV, MP3, Ogg or FLAC file"


class Unusable(ValueError):
    """A value that no file can be made of."""


class Encoded(NamedTuple):
    """A file's bytes, what they are, and further fields of its record."""

    content: bytes
    format: Format
    fields: dict[str, Any]


class Copied(NamedTuple):
    """A value that nobody changes any more. bytes: what it takes in memory; ready: whether it has arrived here."""

    value: Any
    bytes: int
    ready: Callable[[], bool]


def _here() -> bool:
    return True


def copy_of(value: Any) -> Copied:
    """On the loop's thread: a copy of an array in memory, the bytes of a file. Of a tensor on a device the copy is
    only asked for. A figure is drawn, since matplotlib takes no other thread. Raises Unusable, OSError."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        content = bytes(value)
        return Copied(content, len(content), _here)
    if isinstance(value, (str, os.PathLike)):
        size = os.stat(value).st_size
        if size > media.ITEM_BYTES:
            raise Unusable(f"{text(value)[:200]} has {size_text(size)}; {size_text(media.ITEM_BYTES)} are kept at most")
        with open(value, "rb") as file:
            content = file.read()
        return Copied(content, len(content), _here)
    figure = value.gcf() if callable(getattr(value, "gcf", None)) else value
    if callable(getattr(figure, "savefig", None)):
        page = io.BytesIO()
        figure.savefig(page, format="png")
        return Copied(page.getvalue(), page.tell(), _here)
    if _is_pillow(value):
        return Copied(value.copy(), value.width * value.height * 4, _here)
    if callable(getattr(value, "detach", None)):
        size = int(value.numel()) * int(value.element_size())
        if size > media.ITEM_BYTES * 8:
            raise Unusable(f"a tensor of {size_text(size)} is too large")
        if on_device({"": value}):
            arriving = DeviceValues({"": value})
            return Copied(arriving.values[""], size, arriving.ready)
        return Copied(value.detach().clone(), size, _here)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        size = int(getattr(value, "nbytes", 0))
        if size > media.ITEM_BYTES * 8:
            raise Unusable(f"an array of {size_text(size)} is too large")
        return Copied(value.copy() if callable(getattr(value, "copy", None)) else value, size, _here)
    if isinstance(value, (list, tuple)):
        return Copied(list(value), 8 * len(value), _here)
    raise Unusable(f"a value of type {type(value).__name__} can't be kept")


def is_picture(value: Any) -> bool:
    """Whether a value among others, such as a table's cell, is an image on its face."""
    return _is_pillow(value) or callable(getattr(value, "savefig", None))


def _is_pillow(value: Any) -> bool:
    return callable(getattr(value, "tobytes", None)) and hasattr(value, "mode") and hasattr(value, "getbands")


# -- images --------------------------------------------------------------------------------------------------


def as_image(value: Any) -> Encoded:
    """What `copy_of` took, as an image file."""
    if isinstance(value, bytes):
        found = media.format_of(value)
        if found.type != "image":
            raise Unusable(f"these bytes are not a PNG, JPEG, GIF or WebP file; an image is {_IMAGES}")
        size = media.image_size(value)
        return Encoded(value, found, {} if size is None else {"shape": list(size)})
    if _is_pillow(value):
        if value.mode not in ("L", "LA", "RGB", "RGBA"):
            value = value.convert("RGBA" if "transparency" in value.info or value.mode == "PA" else "RGB")
        pixels, (wide, high), channels = value.tobytes(), value.size, len(value.getbands())
    else:
        found = _pixels(value)
        high, wide, channels = found.shape
        pixels = found.tobytes()
    if not pixels:
        raise Unusable("an image of no pixels is not kept")
    content = png.encode(pixels, wide, high, channels, level=_LEVEL)
    return Encoded(content, media.format_of(content), {"shape": [high, wide, channels]})


def _pixels(value: Any) -> Any:
    """An array or tensor as whole numbers of 8 bits, [height, width, channels]."""
    is_tensor = callable(getattr(value, "detach", None))
    found = _as_array(value)
    if found.ndim == 2:
        found = found[:, :, None]
    if found.ndim != 3:
        raise Unusable(f"an array of shape {list(found.shape)} is not an image: that is {_IMAGES}")
    first, last = found.shape[0] in (1, 3, 4), found.shape[2] in (1, 2, 3, 4)
    if first and (is_tensor or not last):  # torch has its channels first
        found = found.transpose(1, 2, 0)
    elif not last:
        raise Unusable(f"an array of shape {list(found.shape)} has no axis of channels: an image is {_IMAGES}")
    if found.dtype.kind == "f":
        numpy: Any = sys.modules["numpy"]
        found = numpy.nan_to_num(found, nan=0.0, posinf=numpy.inf, neginf=-numpy.inf)
        if found.size and found.max() <= 1.0:
            found = found * 255.0
        found = (found.clip(0, 255) + 0.5).astype("uint8")
    elif found.dtype.kind == "b":
        found = found.astype("uint8") * 255
    elif found.dtype.kind in "iu":
        found = found.clip(0, 255).astype("uint8")
    else:
        raise Unusable(f"an array of {found.dtype} is not an image: that is {_IMAGES}")
    return found


def _as_array(value: Any) -> Any:
    if callable(getattr(value, "detach", None)):
        if value.is_floating_point():
            value = value.float()  # NumPy has no bfloat16
        return value.numpy()
    numpy = sys.modules.get("numpy")
    if numpy is None:
        raise Unusable(f"a value of type {type(value).__name__} needs NumPy")
    return numpy.asarray(value)


# -- sound ---------------------------------------------------------------------------------------------------


def as_audio(value: Any, rate: int) -> Encoded:
    """What `copy_of` took, as a sound file; of samples a WAV of 16 bits."""
    if isinstance(value, bytes):
        found = media.format_of(value)
        if found.type != "audio":
            raise Unusable(f"these bytes are not a WAV, MP3, Ogg or FLAC file; a sound is {_SOUNDS}")
        return Encoded(value, found, {})
    if isinstance(value, list):
        channels, samples = 1, _listed_samples(value)
    else:
        samples, channels = _array_samples(_as_array(value))
    if not samples:
        raise Unusable("a sound of no samples is not kept")
    length = len(samples) // 2 // channels
    fields = {"shape": [length, channels], "rate": rate, "seconds": length / rate}
    return Encoded(media.wav(samples, channels, rate), media.WAV, fields)


def _listed_samples(value: list[Any]) -> bytes:
    """Floats from -1 to 1, as a list."""
    try:
        whole = array.array("h", (round(max(-1.0, min(1.0, float(item))) * 32767) for item in value))
    except (TypeError, ValueError, OverflowError):
        raise Unusable(f"this list is not a sound: that is {_SOUNDS}") from None
    if sys.byteorder == "big":
        whole.byteswap()
    return whole.tobytes()


def _array_samples(found: Any) -> tuple[bytes, int]:
    if found.ndim == 2 and found.shape[0] < found.shape[1] and found.shape[0] <= 8:
        found = found.T  # channels × samples
    if found.ndim not in (1, 2) or found.dtype.kind not in "fiu" or (found.ndim == 2 and found.shape[1] > 8):
        raise Unusable(f"an array of shape {list(found.shape)} and {found.dtype} is not a sound: that is {_SOUNDS}")
    if found.dtype.kind == "f":
        numpy: Any = sys.modules["numpy"]
        found = numpy.nan_to_num(found, nan=0.0).clip(-1.0, 1.0) * 32767.0
        found = numpy.rint(found)
    return found.clip(-32768, 32767).astype("<i2").tobytes(), 1 if found.ndim == 1 else int(found.shape[1])


# -- tables --------------------------------------------------------------------------------------------------


class MediaRows(NamedTuple):
    """A table's columns and rows."""

    columns: list[str]
    rows: list[list[Any]]


def rows_of(value: Any, columns: Iterable[Any] | None) -> MediaRows:
    """A table as it stands now, cell by cell unchanged: a data frame, a mapping of columns, rows as mappings or lists.

    Raises Unusable."""
    named = None if columns is None else [text(column) for column in columns]
    if callable(getattr(value, "itertuples", None)):  # pandas
        named = named or [text(column) for column in value.columns]
        found: list[Any] = list(value.head(MOST_ROWS + 1).itertuples(index=False, name=None))
    elif callable(getattr(value, "iter_rows", None)):  # polars
        named = named or [text(column) for column in value.columns]
        found = list(value.head(MOST_ROWS + 1).iter_rows())
    elif isinstance(value, Mapping):
        held = {text(name): _listed(column) for name, column in value.items()}
        named = named or list(held)
        most = max(map(len, held.values()), default=0)
        found = [[column[at] if at < len(column) else None for column in held.values()] for at in range(most)]
    else:
        found = _listed(value)
    if found and isinstance(found[0], Mapping):
        named = named or list(dict.fromkeys(text(name) for row in found if isinstance(row, Mapping) for name in row))
        found = [[row.get(name) if isinstance(row, Mapping) else None for name in named] for row in found]
    if len(found) > MOST_ROWS:
        raise Unusable(f"a table of more than {MOST_ROWS:,} rows is not one to look at; log a part of it")
    rows = [_listed(row) if _is_row(row) else [row] for row in found]
    if named is None:
        named = [str(at) for at in range(max(map(len, rows), default=0))]
    return MediaRows(named, rows)


def _listed(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return list(value)
    if callable(getattr(value, "tolist", None)):
        found = value.tolist()
        return found if isinstance(found, list) else [found]
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        found = []
        for item in value:
            found.append(item)
            if len(found) > MOST_ROWS:
                break
        return found
    raise Unusable(f"a {type(value).__name__} is not a table: that is a data frame, a mapping of columns, or rows")


def _is_row(row: Any) -> bool:
    return isinstance(row, (list, tuple)) or (callable(getattr(row, "tolist", None)) and getattr(row, "ndim", 0) == 1)


def as_table(table: MediaRows, cell: Callable[[Any], Any]) -> Encoded:
    """A table as JSON. cell: what takes the place of a cell that is neither a number nor a text."""
    wide = len(table.columns)
    rows = [
        [item if type(item) in PLAIN or item is None or isinstance(item, str) else cell(item) for item in row[:wide]]
        + [None] * (wide - len(row))
        for row in table.rows
    ]
    content = encode_fields({"columns": table.columns, "data": rows})
    return Encoded(content, media.TABLES, {"shape": [len(rows), wide]})


def cell_of(value: Any) -> Any:
    """Anything as JSON can hold it."""
    if isinstance(value, Mapping):
        return {text(name): cell_of(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [cell_of(item) for item in value]
    if callable(getattr(value, "tolist", None)):
        found = value.tolist()
        return cell_of(found) if isinstance(found, list) else plain(found, "", lambda sentence: None)
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return plain(value, "", lambda sentence: None)
