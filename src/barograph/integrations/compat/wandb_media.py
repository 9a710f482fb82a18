"""W&B's data types: tables, histograms, pictures, sound, film, pages. They are kept as files of the run.

In:   what a program gives `wandb.Table(…)`, `wandb.Image(…)` and so on.
Out:  images, sound, tables and other files of the run, by its own calls; prompts and completions as samples;
      histograms as histograms.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from barograph.core.record import json_text
from barograph.core.values import plain, text
from barograph.integrations.compat.unsupported import say_once
from barograph.training.conversion import copy_of
from barograph.training.run import Run

_MOST_SAMPLES = 64  # rows of one table that become samples; the file has them all
_PROMPTS = ("prompt", "prompts", "question", "input", "instruction")
_COMPLETIONS = ("completion", "completions", "generation", "response", "output", "text", "generated_text", "answer")


class WandbMedia:
    """A value of a log call that is not a number. `keep` records it."""

    kind = "files"

    def __init__(self, data_or_path: Any = None, caption: str | None = None, **options: Any):
        self.data, self.caption, self.options = data_or_path, caption, options

    def keep(self, run: Run, name: str, step: int) -> None:
        """Have the run keep it."""
        if isinstance(self.data, (str, os.PathLike)) and os.path.isfile(self.data):
            run.data.file(name, self.data, step, self.caption)
            return
        content, suffix = self.content()
        if content is None:
            say_once(f"a wandb.{self.kind} of type {type(self.data).__name__} can't be kept; the training goes on")
        else:
            run.data.file(name, content, step, self.caption, suffix=suffix)

    def content(self) -> tuple[bytes | None, str]:
        """What is not a file yet as the bytes of one, None where that is not possible, and its ending."""
        return None, ""


class WandbImage(WandbMedia):
    """An image: whatever `log_image` takes."""

    kind = "Image"

    def keep(self, run: Run, name: str, step: int) -> None:
        """As an image of the run."""
        run.data.image(name, self.data, step, self.caption)


class WandbAudio(WandbMedia):
    """Sound: a path, or samples from -1 to 1 with `sample_rate`."""

    kind = "Audio"

    def keep(self, run: Run, name: str, step: int) -> None:
        """As sound of the run."""
        run.data.audio(name, self.data, step, self.caption, rate=self.options.get("sample_rate") or 16_000)


class WandbVideo(WandbMedia):
    """Film: a path; frames are kept as a NumPy file."""

    kind = "Video"

    def content(self) -> tuple[bytes | None, str]:
        """The frames as they are."""
        numpy = sys.modules.get("numpy")
        if numpy is None:
            return None, ""
        held = io.BytesIO()
        numpy.save(held, numpy.asarray(self.data))
        return held.getvalue(), ".npy"


class WandbHtml(WandbMedia):
    """A page: a path, text, an open file."""

    kind = "Html"

    def content(self) -> tuple[bytes | None, str]:
        """As it is."""
        data = self.data.read() if callable(getattr(self.data, "read", None)) else self.data
        return text(data).encode(), ".html"


class WandbFigure(WandbMedia):
    """A chart of plotly, or of `wandb.plot`."""

    kind = "Plotly"

    def content(self) -> tuple[bytes | None, str]:
        """As JSON."""
        as_json = getattr(self.data, "to_json", None)
        return text(as_json() if callable(as_json) else json_text(_json(self.data))).encode(), ".json"


class WandbObject(WandbMedia):
    """A point cloud, a molecule: a path, or numbers."""

    kind = "Object3D"

    def content(self) -> tuple[bytes | None, str]:
        """As JSON."""
        return json_text({"data": _json(self.data)}).encode(), ".json"


class WandbHistogram(WandbMedia):
    """A distribution: raw values, or counts and edges as `np_histogram`."""

    def __init__(self, sequence: Any = None, np_histogram: Any = None, num_bins: int = 64):
        super().__init__(sequence)
        self.counted, self.bins = np_histogram, min(512, max(1, int(num_bins)))

    def keep(self, run: Run, name: str, step: int) -> None:
        """As a histogram of the run."""
        if self.counted is not None:
            counts, edges = self.counted[0], self.counted[1]
            run.model.histogram(name, counts, step, edges=edges, advance=False)
        else:
            run.model.histogram(name, self.data, step, bins=self.bins, advance=False)


class WandbTable(WandbMedia):
    """Rows and columns. Columns of prompts and completions also become the run's samples."""

    kind = "Table"

    def __init__(
        self,
        columns: Sequence[Any] | None = None,
        data: Any = None,
        rows: Any = None,
        dataframe: Any = None,
        **options: Any,
    ):
        super().__init__(**options)
        if dataframe is None and hasattr(data, "itertuples"):
            dataframe = data
        if dataframe is not None:
            columns, data = list(dataframe.columns), list(dataframe.itertuples(index=False, name=None))
        found = data if data is not None else rows
        found = found.tolist() if hasattr(found, "tolist") else found
        self.columns: list[Any] = list(columns if columns is not None else ["Input", "Output", "Expected"])
        self.data: list[list[Any]] = [list(row) for row in found or ()]

    def add_data(self, *row: Any) -> None:
        """One more row."""
        self.data.append(list(row))

    def add_row(self, *row: Any) -> None:
        """The same, by its old name."""
        self.add_data(*row)

    def add_column(self, name: str, data: Iterable[Any], optional: bool = False) -> None:
        """One more column."""
        values = list(data)
        self.columns.append(name)
        self.data = [[*row, value] for row, value in zip(self.data or [[] for _ in values], values, strict=False)]

    def get_column(self, name: str, convert_to: str | None = None) -> list[Any]:
        """The values of one column."""
        at = self.columns.index(name)
        return [row[at] for row in self.data]

    def get_dataframe(self) -> Any:
        """As a data frame of pandas."""
        pandas: Any = sys.modules.get("pandas") or __import__("pandas")
        return pandas.DataFrame(self.data, columns=self.columns)

    def iterrows(self) -> Iterator[tuple[int, list[Any]]]:
        """Rows with their numbers."""
        yield from enumerate(self.data)

    def keep(self, run: Run, name: str, step: int) -> None:
        """As a table of the run, and samples."""
        rows = [[_cell(value) for value in row] for row in self.data]
        run.data.table(name, rows, step, self.caption, columns=self.columns)
        columns = [text(column).lower() for column in self.columns]
        prompt = next((columns.index(word) for word in _PROMPTS if word in columns), None)
        answer = next((columns.index(word) for word in _COMPLETIONS if word in columns), None)
        if answer is not None:
            for row in rows[:_MOST_SAMPLES]:
                if len(row) > answer:
                    run.data.sample(step, text(row[answer]), "" if prompt is None else text(row[prompt]))


def _cell(value: Any) -> Any:
    if isinstance(value, WandbImage):
        with contextlib.suppress(Exception):
            return copy_of(value.data)
    return f"wandb.{value.kind}" if isinstance(value, WandbMedia) else value


def media(value: Any) -> WandbMedia | None:
    """What a value of a log call is kept as; None if it is a number or a text."""
    if isinstance(value, WandbMedia):
        return value
    if callable(getattr(value, "savefig", None)):  # a figure of matplotlib
        return WandbImage(value)
    if callable(getattr(value, "gcf", None)):  # matplotlib.pyplot itself
        return WandbImage(value.gcf())
    if callable(getattr(value, "to_plotly_json", None)):
        return WandbFigure(value)
    if callable(getattr(value, "itertuples", None)):
        return WandbTable(dataframe=value)
    if callable(getattr(value, "save", None)) and callable(getattr(value, "tobytes", None)):  # a PIL image
        return WandbImage(value)
    size = getattr(value, "numel", None) or getattr(value, "size", None)
    if callable(getattr(value, "tolist", None)) and size is not None:
        with contextlib.suppress(Exception):
            return WandbHistogram(value) if (size() if callable(size) else size) > 1 else None
    return None


def chart(kind: str) -> Any:
    """A function of `wandb.plot`: its arguments are kept."""

    def draw(*arguments: Any, **named: Any) -> WandbFigure:
        return WandbFigure({"chart": kind, "arguments": list(arguments), **named})

    return draw


def _json(value: Any) -> Any:
    """Anything as JSON can hold it."""
    if isinstance(value, WandbTable):
        return {"columns": _json(value.columns), "data": _json(value.data)}
    if isinstance(value, Mapping):
        return {text(name): _json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    if hasattr(value, "tolist"):
        return _json(value.tolist())
    with contextlib.suppress(TypeError, ValueError):
        return json.loads(json.dumps(value, allow_nan=False))
    return plain(value, "", lambda sentence: None)
