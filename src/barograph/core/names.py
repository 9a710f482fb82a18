"""Names: of a run, from its configuration, and of a folder, from any text.

In:   a prefix, a configuration (mapping or object, nested or flat), a time; or hostile text.
Out:  `speedrun_20250831_143022_mup_w1024_base768` (the speedrun-mup metrics analysis); a folder name that every
      system accepts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from barograph.core.patterns import expression

_DEPTH = 3  # config["model"]["width"] and one level more; deeper matches are accidents
_MOST_SECTIONS = 1000

MOST_BYTES = 100  # of a folder's name: file systems take 255, and paths are limited too

# Windows reserves these for devices, in any case and with any extension.
_DEVICE = expression(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.IGNORECASE)


def run_name(prefix: str = "", config: Any = None, now: datetime | None = None) -> str:
    """The name that speedrun-mup gives a run: prefix, local time, `mup`, `w{width}`, `base{base_width}`.

    `base` only with muP; a part whose value is not in the configuration is left out. `width`, `mup` and
    `base_width` may be keys or attributes, at the top or in a section. Never raises for a strange `config`.
    """
    moment = (now or datetime.now()).strftime("%Y%m%d_%H%M%S")
    mup = _is_on(_find(config, "mup"))
    width, base = _part(_find(config, "width")), _part(_find(config, "base_width"))
    parts = [prefix, moment, "mup" if mup else "", f"w{width}" if width else ""]
    parts.append(f"base{base}" if mup and base else "")
    return "_".join(part for part in parts if part)


def folder_name(text: str) -> str:
    """A folder name that keeps the letters, digits and `_-.+=@` of any text and is safe everywhere.

    Everything else becomes `-`. At most 100 bytes of UTF-8; never empty, never a device name of Windows,
    no dot or dash in front, none behind. The same text gives the same name, and a name gives itself;
    different texts may give one name, which is for the caller to settle.
    """
    kept = "".join(letter if _is_kept(letter) else "\0" for letter in unicodedata.normalize("NFC", text))
    name = _trimmed(re.sub("\0+", "-", kept))
    if _DEVICE.fullmatch(name):
        name = _trimmed("_" + name)
    return name or "run"


def _is_kept(letter: str) -> bool:
    return letter in "_-.+=@" or unicodedata.category(letter)[0] in "LNM"  # letters, numbers, marks


def _trimmed(name: str) -> str:
    """At most MOST_BYTES, cut between characters, without dots and dashes at the ends."""
    name = name.lstrip("-.")
    while name and unicodedata.category(name[0])[0] == "M":  # a mark needs a letter to stand on
        name = name[1:].lstrip("-.")
    return name.encode()[:MOST_BYTES].decode(errors="ignore").rstrip("-.")


def _is_on(value: Any) -> bool:
    """Whether a switch is on; a section is on unless its own `enabled` says otherwise."""
    try:
        if isinstance(value, Mapping):
            return bool(value.get("enabled", bool(value)))
        return bool(value)
    except Exception:  # an array, or an object without a truth
        return False


def _part(value: Any) -> str:
    """A width as text: `1024`, also from 1024.0; empty for anything but a number or a short word."""
    if value is None or isinstance(value, bool):
        return ""
    try:
        number = float(value)
        return str(int(number)) if number.is_integer() else f"{number:g}"
    except Exception:
        return value if isinstance(value, str) and 0 < len(value) <= 20 else ""


def _find(config: Any, name: str) -> Any:
    """The first value of that name, the nearest to the top first; None if there is none."""
    level, seen = [config], 0
    for _ in range(_DEPTH):
        for section in level:
            value = _get(section, name)
            if value is not None:
                return value
        below = [item for section in level for item in _sections(section)]
        seen += len(below)
        if seen > _MOST_SECTIONS:
            return None
        level = below
    return None


def _get(section: Any, name: str) -> Any:
    try:
        if isinstance(section, Mapping):
            return section.get(name)
        return getattr(section, name, None)
    except Exception:  # a property that raises
        return None


def _sections(section: Any) -> Iterator[Any]:
    """The mappings and plain objects inside a section."""
    try:
        inside = section if isinstance(section, Mapping) else getattr(section, "__dict__", {})
        for item in list(inside.values()):
            if isinstance(item, Mapping) or hasattr(item, "__dict__"):
                yield item
    except Exception:
        return


def is_vector(layer: str) -> bool:
    """Whether a parameter is by its name a bias or a norm's scale, whose norms do not compare with the others'."""
    last = layer.rsplit(".", 1)[-1]
    head = layer.rpartition(".")[0].rsplit(".", 1)[-1].lower()
    return last in ("bias", "beta", "gamma", "scale") or "norm" in head or head.startswith(("ln", "bn"))
