"""What Jupyter is given of a run or a comparison.

In:   the object that stands at a cell's end.
Out:  a bundle: plain text, still HTML, and, where it can be, a widget.

The widget needs `anywidget` and a person before a running kernel. A forge, a printed notebook and a front end without
widgets take the HTML; so does what executes a notebook without a front end (nbconvert, papermill), since a page made of
it would look for the widget's scripts on the network. `BAROGRAPH_NOTEBOOK`: `still` leaves the widget out, `widget` has
it wherever there is a kernel.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barograph.core.options import NOTEBOOK_VARIABLE
from barograph.query.given import stored_run
from barograph.query.stored import StoredRun
from barograph.views.notebook.sources import ComparisonSource, PanelSource, RunSource
from barograph.views.notebook.still import page


class Charts:
    """Charts of a run or a comparison; the last value of a cell shows itself."""

    def __init__(self, source: RunSource | ComparisonSource, words: str):
        self._source, self._words = source, words

    def __repr__(self) -> str:
        return self._words

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return bundle(self._source, self._words)

    def _repr_html_(self) -> str:
        return still(self._source)


def charts(run: Any, *names: str | Sequence[str], x: str = "step") -> Charts:
    """A run's charts of these series, a panel each; a list of names shares a panel. Without any: those that matter.

    run: a run as `barograph.report` takes it, or a comparison. x: as of `StoredRun.series`.
    Raises KeyError naming the nearest for a series that isn't there.
    """
    if hasattr(run, "verdict"):
        return Charts(ComparisonSource(run), repr(run))
    stored = stored_run(run)
    for item in names:
        for name in [item] if isinstance(item, str) else item:
            stored.series(name, x=x, max_points=2)
    return Charts(RunSource(stored, names or None, x), repr(stored))


def of_run(run: StoredRun) -> dict[str, Any]:
    """The bundle of a stored run."""
    return bundle(RunSource(run), repr(run))


def of_folder(folder: str | os.PathLike[str], words: str) -> dict[str, Any]:
    """The bundle of a run in progress, read from its folder as any other process would."""
    return bundle(RunSource(StoredRun(Path(folder))), words)


def of_comparison(made: Any) -> dict[str, Any]:
    """The bundle of a comparison."""
    return bundle(ComparisonSource(made), str(made))


def still(source: PanelSource) -> str:
    """The HTML alone."""

    return page(source)


def bundle(source: RunSource | ComparisonSource, words: str) -> dict[str, Any]:
    """Plain text, HTML and the widget. What can't be made is left out: showing a run never fails."""
    result: dict[str, Any] = {"text/plain": words}
    try:
        result["text/html"] = still(source)
    except (OSError, ValueError, KeyError) as error:
        result["text/plain"] += f"\n(no charts: {error})"
        return result
    if _may_use_widgets():
        from barograph.views.notebook.widget import view

        shown = view(source)
        if shown is not None:
            result |= shown
    return result


def _may_use_widgets() -> bool:
    """In a kernel, and asked by a front end: only there something answers a widget.

    A front end lets the kernel ask its person for input; what executes notebooks by itself does not.
    """
    wanted = os.environ.get(NOTEBOOK_VARIABLE, "")
    if wanted == "still" or "IPython" not in sys.modules:
        return False
    shell = getattr(sys.modules["IPython"], "get_ipython", lambda: None)()
    kernel = getattr(shell, "kernel", None)
    return kernel is not None and (wanted == "widget" or bool(getattr(kernel, "_allow_stdin", True)))
