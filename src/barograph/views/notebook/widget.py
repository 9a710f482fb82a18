"""The widget: charts that zoom to exact data and follow a run, by the kernel's own channel. No server.

In:   what is shown; ranges that a person zooms to.
Out:  frames of bytes (`panels.frame`).

A live run is looked at by a thread, so its charts go on while a cell trains. Each look waits so long that all of them
cost at most a twentieth of a core.
"""

from __future__ import annotations

import collections
import contextlib
import math
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from barograph.views.notebook.panels import frame
from barograph.views.notebook.sources import ComparisonSource, RunSource

ASSETS = Path(__file__).parents[2] / "assets"
BUCKETS = 800  # of the whole run: twice the dots of a panel of a usual page
_MOST_BUCKETS = 4000
_LOOK_SECONDS, _SHARE = 2.0, 0.05
_MOST_FOLLOWED = 8  # widgets; the one made first stops to follow when there are more

_followed: collections.deque[threading.Event] = collections.deque()
_classes: dict[str, Any] = {}


def view(source: RunSource | ComparisonSource) -> dict[str, Any] | None:
    """The widget's part of a bundle; None where anywidget or the page's script is missing."""
    try:
        import anywidget  # noqa: F401
    except ImportError:
        return None
    script = ASSETS / "widget.js"
    if not script.is_file():
        return None
    made = _class()(source)
    data = made._repr_mimebundle_()
    found = data[0] if isinstance(data, tuple) else data
    return {kind: value for kind, value in (found or {}).items() if kind != "text/plain"}


def _class() -> Any:
    """Made when it is first needed: importing anywidget costs time."""
    if "widget" in _classes:
        return _classes["widget"]
    import anywidget
    import traitlets

    style = ASSETS / "widget.css"

    class BarographWidget(anywidget.AnyWidget):
        """frame: the whole run, for the page. `answer` gives what a page asks for."""

        _esm = (ASSETS / "widget.js").read_text()
        _css = style.read_text() if style.is_file() else ""
        frame = traitlets.Bytes(b"").tag(sync=True)

        def __init__(self, source: RunSource | ComparisonSource):
            self._source = source
            super().__init__(frame=whole(source))
            self.on_msg(self._asked)
            if source.live():
                follow(self, source)

        def _asked(self, _: Any, content: Any, __: Any) -> None:
            answer = answer_to(self._source, content)
            if answer is not None:
                self.send({"kind": "range", "id": content["id"]}, buffers=[answer])

    _classes["widget"] = BarographWidget
    return BarographWidget


def head(source: RunSource | ComparisonSource) -> dict[str, Any]:
    """What the page says beside the charts."""
    table = source.table() if isinstance(source, ComparisonSource) else ([], [])
    return {
        "title": source.title(), "facts": source.facts(), "live": source.live(),
        "heads": table[0], "rows": table[1],
    }  # fmt: skip


def whole(source: RunSource | ComparisonSource) -> bytes:
    """The frame of everything."""
    return frame(head(source), source.panels(BUCKETS))


def answer_to(source: RunSource | ComparisonSource, content: Any) -> bytes | None:
    """The frame that a page asks for by `{"kind": "range", "id", "low", "high", "buckets"}`; None for anything else."""
    if not isinstance(content, dict) or content.get("kind") != "range" or "id" not in content:
        return None
    low, high, most = content.get("low"), content.get("high"), content.get("buckets")
    if not all(isinstance(item, (int, float)) and math.isfinite(item) for item in (low, high)):
        return None
    wanted = int(most) if isinstance(most, (int, float)) and math.isfinite(most) else BUCKETS
    with contextlib.suppress(OSError, KeyError, ValueError):
        return frame({}, source.panels(max(2, min(_MOST_BUCKETS, wanted)), low, high))
    return None


def follow(widget: Any, source: RunSource | ComparisonSource) -> threading.Event:
    """Give a widget new frames while its run is live; set the event to stop."""
    stop = threading.Event()
    _followed.append(stop)
    while len(_followed) > _MOST_FOLLOWED:
        _followed.popleft().set()
    thread = threading.Thread(
        target=_following, args=(weakref.ref(widget), source.again(), stop), daemon=True, name="barograph-notebook"
    )
    thread.start()
    return stop


def _following(widget: Any, source: RunSource | ComparisonSource, stop: threading.Event) -> None:
    pause, live = _LOOK_SECONDS, True
    while live and not stop.wait(pause):
        began = time.thread_time()
        live = source.live()
        made = b""
        with contextlib.suppress(OSError, KeyError, ValueError):
            made = whole(source)
        shown = widget()
        if shown is None or getattr(shown, "comm", None) is None:  # closed
            break
        if made and made != shown.frame:
            try:
                shown.frame = made
            except Exception:  # the kernel ends: nobody is left to tell
                break
        del shown
        pause = max(_LOOK_SECONDS, (time.thread_time() - began) / _SHARE)
    with contextlib.suppress(ValueError):
        _followed.remove(stop)
