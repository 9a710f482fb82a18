"""Records that are longer than a page of the log, in pieces that are not.

In:   the bytes of a record; parsed objects of a log.
Out:  shorter records; the objects with those pieces put together again.

Metrics become several records of the same step and time. Anything else becomes `part` records that follow each other,
`{"log":"part","time":…,"step":…,"of":kind,"part":2,"parts":5,"json":text}`: the texts one after the other are the
record's own JSON. Pieces of which some are missing are what a kill left, and count for nothing; `REMOVED` is such a
piece, and stands where records were taken out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

KIND = "part"
REMOVED = b'{"log":"part","of":"removed","part":0,"parts":0,"json":""}'
_PIECE_BYTES = 3_300  # of a piece's JSON as text in JSON: 4,096 with what stands around it
_HEAD_KEYS = ("log", "time", "step")


def split(data: bytes) -> list[bytes]:
    """A record's bytes as those of shorter records; itself if it can't be split."""
    try:
        item = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _pieces(data, "", "", 0)
    if item.get("log") == "metrics":
        return [part for group in _groups(item) for part in _pieces_if_long(group)]
    return _pieces(data, str(item.get("log", "")), str(item.get("time", "")), item.get("step", 0))


def _groups(item: dict[str, Any]) -> Iterator[bytes]:
    """Metrics as several records with some of the values each."""
    head = {key: item[key] for key in _HEAD_KEYS if key in item}
    group, size = dict(head), 0
    for name, value in item.items():
        if name in head:
            continue
        added = len(msgspec.json.encode({name: value}))
        if size and size + added > _PIECE_BYTES:
            yield msgspec.json.encode(group)
            group, size = dict(head), 0
        group[name] = value
        size += added
    yield msgspec.json.encode(group)


def _pieces_if_long(data: bytes) -> list[bytes]:
    if len(data) <= _PIECE_BYTES + 500:
        return [data]
    item = msgspec.json.decode(data, type=dict[str, Any])
    return _pieces(data, str(item.get("log", "")), str(item.get("time", "")), item.get("step", 0))


def _pieces(data: bytes, kind: str, time: str, step: Any) -> list[bytes]:
    # ASCII, so that a piece may end between any two characters
    text = json.dumps(json.loads(data), ensure_ascii=True, separators=(",", ":"), allow_nan=False) if kind else ""
    texts: list[str] = []
    start = 0
    while start < len(text):
        end = min(len(text), start + _PIECE_BYTES)
        while len(json.dumps(text[start:end])) > _PIECE_BYTES + 2:  # quotes and backslashes take two
            end = start + (end - start) * 9 // 10
        texts.append(text[start:end])
        start = end
    if not texts:
        return [data]
    head = {"log": KIND, "time": time, "step": step, "of": kind[:200]}
    return [
        msgspec.json.encode({**head, "part": number, "parts": len(texts), "json": piece})
        for number, piece in enumerate(texts, 1)
    ]


class Joiner:
    """Puts pieces together, in the order of the log."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, item: dict[str, Any]) -> dict[str, Any] | None:
        """The object that is whole with this one: itself, if it is not a piece; None while others are to come."""
        if item.get("log") != KIND or "json" not in item:
            self._texts.clear()
            return item
        number, number_of_all, text = item.get("part"), item.get("parts"), item.get("json")
        if number == 1:
            self._texts.clear()
        if number != len(self._texts) + 1 or not isinstance(text, str) or type(number_of_all) is not int:
            self._texts.clear()
            return None
        self._texts.append(text)
        if len(self._texts) < number_of_all:
            return None
        whole, self._texts = "".join(self._texts), []
        try:
            return msgspec.json.decode(whole, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError):
            return None


def joined(items: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Objects of a log with their pieces put together."""
    joiner = Joiner()
    for item in items:
        whole = joiner.add(item)
        if whole is not None:
            yield whole
