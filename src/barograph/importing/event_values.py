"""What TensorBoard's events hold beside plain scalars: histograms, texts, hyper-parameters, restarts.

In:   one `Event` message.
Out:  its parts by name; `ImportedDistribution` and `Fact` items.

Field numbers: `event.proto`, `summary.proto` of TensorFlow, `plugin_data.proto` of the hparams plugin (Apache-2.0).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barograph.core.media import format_of
from barograph.importing.event_scalars import read_plugin, read_tensor, to_microseconds
from barograph.importing.media import make_media
from barograph.importing.protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    read_double,
    read_fields,
    read_float,
    read_mapping,
    read_text,
    signed,
)
from barograph.importing.source import Fact, ImportedDistribution

_LONGEST_TEXT = 1 << 20  # characters of one text that are kept
_SAMPLE_WORDS = ("sample", "generat", "completion", "prompt")
_CONFIG_TAGS = frozenset({"args", "config", "hparams", "hyperparameters", "model_config", "training_args", "cfg"})
_START = 1  # SessionLog.START: whoever writes begins anew at this event's step
_LARGEST = 1e300  # writers put the largest double where a histogram has no edge


class EventValue(NamedTuple):
    """One `Summary.Value`: its tag, and of what it holds the one that is there; places are in the event's bytes."""

    tag: str
    scalar: float | None = None
    histogram: tuple[int, int] | None = None
    tensor: tuple[int, int] | None = None
    plugin: str = ""
    content: bytes = b""
    other: str = ""  # "images", "audio"
    media: tuple[int, int] | None = None


class Event(NamedTuple):
    """One event: microseconds since 1970, step, and what it holds."""

    time: int
    step: int
    values: list[EventValue]
    starts: bool  # a writer begins anew: what was logged from this step on counts no more
    message: str


def read_event(data: bytes, start: int, stop: int) -> Event:
    """An `Event`. Raises `Malformed`."""
    seconds, step, starts, message = 0.0, 0, False, ""
    values: list[EventValue] = []
    for number, wire, first, last in read_fields(data, start, stop):
        if number == 1 and wire == FIXED64:
            seconds = read_double(data, first)
        elif number == 2 and wire == VARINT:
            step = signed(first)
        elif number == 5 and wire == BYTES:
            for part, part_wire, a, b in read_fields(data, first, last):
                if part == 1 and part_wire == BYTES:
                    values.append(_read_value(data, a, b))
        elif number == 6 and wire == BYTES:
            message = next(
                (read_text(data, a, b) for n, w, a, b in read_fields(data, first, last) if (n, w) == (2, 2)), ""
            )
        elif number == 7 and wire == BYTES:
            starts = any((n, w, a) == (1, VARINT, _START) for n, w, a, _ in read_fields(data, first, last))
    return Event(int(to_microseconds(np.array([seconds]))[0]), step, values, starts, message)


def _read_value(data: bytes, start: int, stop: int) -> EventValue:
    found: dict[str, Any] = {"tag": ""}
    for number, wire, first, last in read_fields(data, start, stop):
        if number == 1 and wire == BYTES:
            found["tag"] = read_text(data, first, last)
        elif number == 2 and wire == FIXED32:
            found["scalar"] = read_float(data, first)
        elif number == 4 and wire == BYTES:
            found["other"], found["media"] = "images", (first, last)
        elif number == 5 and wire == BYTES:
            found["histogram"] = (first, last)
        elif number == 6 and wire == BYTES:
            found["other"], found["media"] = "audio", (first, last)
        elif number == 8 and wire == BYTES:
            found["tensor"] = (first, last)
        elif number == 9 and wire == BYTES:
            found["plugin"], found["content"] = read_plugin(data, first, last)
    return EventValue(**found)


def read_media(data: bytes, value: EventValue, plugin: str, name: str, event: Event) -> list[Fact]:
    """The images or sounds of a value: an `Image` or `Audio` message, or a tensor of files. Raises `Malformed`."""
    if value.media is not None:
        files = [data[a:b] for n, wire, a, b in read_fields(data, *value.media) if n == 4 and wire == BYTES]
    else:
        files = read_tensor(data, *value.tensor).texts if value.tensor is not None else []
    wanted = "image" if (value.other or plugin) == "images" else "audio"
    kept = [file for file in files if format_of(file).type == wanted]  # among an image's width, a sound's label
    facts = (
        make_media(name, file, event.step, event.time, index=at if len(kept) > 1 else None)
        for at, file in enumerate(kept)
    )
    return [fact for fact in facts if fact is not None]


def read_histogram(data: bytes, place: tuple[int, int], name: str, event: Event) -> ImportedDistribution | None:
    """A `HistogramProto`: upper edges of buckets and counts. None if it is empty or no histogram."""
    low, high = np.inf, -np.inf
    packed: dict[int, list[NDArray[np.float64]]] = {6: [], 7: []}
    for number, wire, first, last in read_fields(data, *place):
        if number == 1 and wire == FIXED64:
            low = read_double(data, first)
        elif number == 2 and wire == FIXED64:
            high = read_double(data, first)
        elif number in packed and wire in (BYTES, FIXED64):
            packed[number].append(np.frombuffer(data[first : first + (last - first) // 8 * 8], "<f8"))
    limits, counts = (np.concatenate(packed[number]) if packed[number] else np.zeros(0) for number in (6, 7))
    if not len(limits) or len(limits) != len(counts) or np.isnan(limits).any():
        return None
    # the first bucket has no lower edge and the last one often the largest double: the extremes are known
    lowest = min(low, float(limits[0])) if np.isfinite(low) else float(limits[0])
    edges = np.concatenate([[lowest], limits])
    if len(counts) > 1 and not counts[0] and edges[1] > -_LARGEST:
        edges, counts = edges[1:], counts[1:]
    if abs(edges[-1]) > _LARGEST and np.isfinite(high):
        edges[-1] = max(high, float(edges[-2]))
    return _distribution(name, event, edges, counts)


def read_histogram_tensor(
    values: NDArray[Any], shape: tuple[int, ...], name: str, event: Event
) -> ImportedDistribution | None:
    """Rows of left edge, right edge and count. Between buckets that don't touch stands an empty one."""
    if len(shape) != 2 or shape[1] != 3 or shape[0] < 1 or len(values) != shape[0] * 3:
        return None
    with np.errstate(invalid="ignore"):  # a NaN that signals is a NaN
        rows = values.astype(np.float64).reshape(-1, 3)
    if np.isnan(rows[:, :2]).any():
        return None
    gaps = np.flatnonzero(rows[1:, 0] != rows[:-1, 1]) + 1
    edges = np.append(np.insert(rows[:, 0], gaps, rows[gaps - 1, 1]), rows[-1, 1])
    return _distribution(name, event, edges, np.insert(rows[:, 2], gaps, 0.0))


def _distribution(name: str, event: Event, edges: NDArray[Any], counts: NDArray[Any]) -> ImportedDistribution | None:
    if (
        not np.isfinite(edges).all()
        or (np.diff(edges) < 0).any()
        or not np.isfinite(counts).all()
        or (counts < 0).any()
    ):
        return None
    return ImportedDistribution(name, event.step, event.time, edges, counts)


def read_texts(data: bytes, place: tuple[int, int]) -> list[str]:
    """The texts of a tensor of strings."""
    return [text.decode("utf-8", "replace")[:_LONGEST_TEXT] for text in read_tensor(data, *place).texts]


def make_text_facts(tag: str, texts: list[str], event: Event) -> Iterator[Fact]:
    """Options out of a JSON configuration, samples where the tag says so, messages else."""
    tag = tag.removesuffix("/text_summary")
    if tag.rpartition("/")[2].lower() in _CONFIG_TAGS and len(texts) == 1:
        options = parse_config(texts[0])
        if options:
            prefix = "model_config/" if tag.endswith("model_config") else ""
            yield from make_options({prefix + name: value for name, value in options.items()}, event.time)
            return
    text = "\n".join(texts)
    if any(word in tag.lower() for word in _SAMPLE_WORDS):
        yield Fact("sample", event.step, event.time, {"prompt": tag, "text": text})
    else:
        yield Fact("info", event.step, event.time, {"type": tag, "message": text})


def parse_config(text: str) -> dict[str, Any]:
    """The JSON object in a text, which may be inside a Markdown block; {} if there is none."""
    begin, end = text.find("{"), text.rfind("}")
    try:
        found = json.loads(text[begin : end + 1]) if 0 <= begin < end else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def read_hyperparameters(content: bytes) -> dict[str, Any] | None:
    """The hyper-parameters in a `HParamsPluginData`, if it is a run's beginning. Raises `Malformed`."""
    for number, wire, first, last in read_fields(content):
        if number == 3 and wire == BYTES:  # session_start_info
            return read_mapping(content, first, last)
    return None


def make_options(options: Mapping[str, Any], time: int) -> Iterator[Fact]:
    """One `option` record a value; nested names are joined with `/`."""
    for name, value in flatten(options).items():
        yield Fact("option", 0, time, {"name": name, "value": value})


def is_moderate(value: Any, most: int = 50_000) -> bool:
    """Whether there are at most `most` parts in a value: a YAML file's aliases may make a few lines endless."""
    waiting, looks = [value], 0
    while waiting and looks <= most:
        item = waiting.pop()
        looks += 1
        if isinstance(item, Mapping):
            waiting += item.values()
        elif isinstance(item, (list, tuple, set)):
            waiting += item
    return looks <= most


def flatten(options: Mapping[str, Any], most: int = 20_000) -> dict[str, Any]:
    """Nested names joined with `/`, at most `most` of them: hostile files nest the same part a million times."""
    result: dict[str, Any] = {}
    waiting: list[tuple[str, Any]] = [("", options)]
    looks = 0
    while waiting and looks < most:
        name, value = waiting.pop()
        looks += 1
        if isinstance(value, Mapping) and value and name.count("/") < 20:
            waiting += [(f"{name}/{key}" if name else str(key), item) for key, item in reversed(list(value.items()))]
        elif name:
            result[name] = value
    return result
