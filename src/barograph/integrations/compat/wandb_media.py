"""W&B's data types: tables, histograms, pictures, sound, film, pages. They are kept as files of the run.

In:   what a program gives `wandb.Table(…)`, `wandb.Image(…)` and so on.
Out:  files under `media/` in the run's folder; prompts and completions as samples; histograms as histograms.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import wave
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from barograph.core.names import folder_name
from barograph.core.record import json_text
from barograph.core.values import number, plain, text
from barograph.integrations.compat.unsupported import say_once
from barograph.training.run import Run

_MOST_SAMPLES = 64  # rows of one table that become samples; the file has them all
_PROMPTS = ("prompt", "prompts", "question", "input", "instruction")
_COMPLETIONS = ("completion", "completions", "generation", "response", "output", "text", "generated_text", "answer")


class WandbMedia:
    """A value of a log call that is not a number. `keep` records it."""

    kind = "files"
    suffix = ""

    def __init__(self, data_or_path: Any = None, caption: str | None = None, **options: Any):
        self.data, self.caption, self.options = data_or_path, caption, options

    def keep(self, run: Run, name: str, step: int) -> None:
        """Write the file, and say in the log where it is."""
        path = self._path(run, name, step)
        if isinstance(self.data, (str, os.PathLike)) and os.path.isfile(self.data):
            path = path.with_suffix(Path(self.data).suffix or self.suffix)
            shutil.copyfile(self.data, path)
        elif not self.write(path):
            say_once(f"a wandb.{self.kind} of type {type(self.data).__name__} can't be kept; the training goes on")
            return
        self.note(run, name, step, path)

    def write(self, path: Path) -> bool:
        """Write what is not a file yet; whether that was possible."""
        return False

    def note(self, run: Run, name: str, step: int, path: Path) -> None:
        """The file's place, as a value of the log."""
        kept = str(path.relative_to(run.dir))
        caption = {f"{name}/caption": self.caption} if isinstance(self.caption, str) else {}
        run.log({name: kept, **caption}, step)

    def _path(self, run: Run, name: str, step: int) -> Path:
        folder = run.dir / "media" / self.kind.lower()
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{folder_name(name.replace('/', '_'))}_{step}"
        path, count = folder / f"{stem}{self.suffix}", 1
        while path.exists():  # several of one name in one step
            count += 1
            path = folder / f"{stem}_{count}{self.suffix}"
        return path


class WandbImage(WandbMedia):
    """A picture: a path, a figure of matplotlib, a PIL image; an array where Pillow is installed."""

    kind, suffix = "Image", ".png"

    def write(self, path: Path) -> bool:
        """As PNG."""
        data = self.data
        if callable(getattr(data, "savefig", None)):
            data.savefig(path)
            return True
        if not callable(getattr(data, "save", None)):
            data = _picture(data)
        if data is None:
            return False
        data.save(path)
        return True


class WandbAudio(WandbMedia):
    """Sound: a path, or numbers from -1 to 1 with `sample_rate`."""

    kind, suffix = "Audio", ".wav"

    def write(self, path: Path) -> bool:
        """As WAV, 16 bits, one channel."""
        values = _numbers(self.data)
        if not values:
            return False
        samples = b"".join(
            int(max(-1.0, min(1.0, value)) * 32767).to_bytes(2, "little", signed=True) for value in values
        )
        with wave.open(str(path), "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(int(self.options.get("sample_rate") or 16_000))
            out.writeframes(samples)
        return True


class WandbVideo(WandbMedia):
    """Film: a path; frames are kept as a NumPy file."""

    kind, suffix = "Video", ".npy"

    def write(self, path: Path) -> bool:
        """The frames as they are."""
        numpy = sys.modules.get("numpy")
        if numpy is None:
            return False
        numpy.save(path, numpy.asarray(self.data))
        return True


class WandbHtml(WandbMedia):
    """A page: a path, text, an open file."""

    kind, suffix = "Html", ".html"

    def write(self, path: Path) -> bool:
        """As it is."""
        data = self.data.read() if callable(getattr(self.data, "read", None)) else self.data
        path.write_text(text(data))
        return True


class WandbFigure(WandbMedia):
    """A chart of plotly, or of `wandb.plot`."""

    kind, suffix = "Plotly", ".json"

    def write(self, path: Path) -> bool:
        """As JSON."""
        as_json = getattr(self.data, "to_json", None)
        path.write_text(as_json() if callable(as_json) else json_text(_json(self.data)))
        return True


class WandbObject(WandbMedia):
    """A point cloud, a molecule: a path, or numbers."""

    kind, suffix = "Object3D", ".json"

    def write(self, path: Path) -> bool:
        """As JSON."""
        path.write_text(json_text({"data": _json(self.data)}))
        return True


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

    kind, suffix = "Table", ".table.json"

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
        """The file, and samples."""
        path = self._path(run, name, step)
        rows = [[self._cell(run, f"{name}_{at}", step, value) for value in row] for at, row in enumerate(self.data)]
        path.write_text(json_text({"columns": [text(column) for column in self.columns], "data": rows}) + "\n")
        self.note(run, name, step, path)
        columns = [text(column).lower() for column in self.columns]
        prompt = next((columns.index(word) for word in _PROMPTS if word in columns), None)
        answer = next((columns.index(word) for word in _COMPLETIONS if word in columns), None)
        if answer is not None:
            for row in rows[:_MOST_SAMPLES]:
                if len(row) > answer:
                    run.data.sample(step, text(row[answer]), "" if prompt is None else text(row[prompt]))

    def _cell(self, run: Run, name: str, step: int, value: Any) -> Any:
        if isinstance(value, WandbMedia):
            with contextlib.suppress(Exception):
                value.keep(run, name, step)
            return f"wandb.{value.kind}"
        return _json(value)


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


def _picture(data: Any) -> Any:
    """An array or tensor as a PIL image; None without Pillow."""
    try:
        from PIL import Image
    except ImportError:
        say_once("keeping an array as a wandb.Image needs Pillow: run pip install pillow")
        return None
    numpy: Any = sys.modules["numpy"]
    tensor = callable(getattr(data, "detach", None))
    array = numpy.asarray(data.detach().cpu() if tensor else data)
    if tensor and array.ndim == 3:  # a tensor has its channels first
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.dtype.kind == "f":
        array = array * 255 if array.size and array.max() <= 1 else array
    return Image.fromarray(array.clip(0, 255).astype("uint8"))


def _numbers(data: Any) -> list[float]:
    values = data.tolist() if hasattr(data, "tolist") else data
    if not isinstance(values, (list, tuple)):
        return []
    return [float(number(value[0] if isinstance(value, (list, tuple)) else value)) for value in values]


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
