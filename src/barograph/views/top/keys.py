"""Keys out of the bytes that a terminal sends.

In:   bytes as they come, a key's code perhaps in two pieces.
Out:  names of keys: a character, or up, down, left, right, home, end, pageup, pagedown, tab, backtab, enter, escape.
"""

from __future__ import annotations

_CODES = {
    "[A": "up", "[B": "down", "[C": "right", "[D": "left", "OA": "up", "OB": "down", "OC": "right", "OD": "left",
    "[H": "home", "[F": "end", "OH": "home", "OF": "end", "[1~": "home", "[4~": "end", "[7~": "home", "[8~": "end",
    "[5~": "pageup", "[6~": "pagedown", "[Z": "backtab",
}  # fmt: skip
_PLAIN = {"\t": "tab", "\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace"}
_LONGEST = 16  # of a code; longer is not a key of ours


class KeyReader:
    """Collects bytes."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def waiting(self) -> bool:
        """Whether a code has begun: a lone Escape, if nothing follows."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        """The keys that are whole now."""
        text = (self._rest + data).decode("utf-8", "ignore")
        self._rest = b""
        result: list[str] = []
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                if text[at] in _PLAIN or text[at].isprintable():
                    result.append(_PLAIN.get(text[at], text[at]))
                at += 1
                continue
            end = _end(text, at)
            if end is None:
                self._rest = text[at:].encode()[:_LONGEST]
                break
            name = _CODES.get(text[at + 1 : end])
            if name is not None:
                result.append(name)
            elif end == at + 1:
                result.append("escape")
            at = end
        return result

    def flush(self) -> list[str]:
        """Nothing followed: a lone Escape is a key, half a code is none."""
        rest, self._rest = self._rest, b""
        return ["escape"] if rest == b"\x1b" else []


def _end(text: str, at: int) -> int | None:
    """Behind the code that begins at an Escape; None if it isn't whole."""
    if at + 1 >= len(text):
        return None
    lead = text[at + 1]
    if lead == "\x1b":
        return at + 1
    if lead == "O":
        return at + 3 if at + 2 < len(text) else None
    if lead != "[":
        return at + 2  # Alt and a key
    for here in range(at + 2, min(len(text), at + _LONGEST)):
        if "@" <= text[here] <= "~":
            return here + 1
    return None if len(text) - at < _LONGEST else at + _LONGEST
