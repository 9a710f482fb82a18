"""TensorBoard's writer, recorded by Barograph: `from barograph.compat.tensorboard import SummaryWriter`.

In:   the calls of `torch.utils.tensorboard.SummaryWriter`.
Out:  series, histograms, samples of text and files of the run that is open, or of one that the writer begins.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

from barograph.core.values import number, text
from barograph.integrations.compat.unsupported import say_once
from barograph.integrations.compat.wandb_media import (
    WandbAudio,
    WandbFigure,
    WandbImage,
    WandbMedia,
    WandbVideo,
)
from barograph.integrations.shared import SentToWorkers, begin, open_run
from barograph.training.guard import guarded
from barograph.training.run import Run

_writers: dict[str, Run] = {}
"""Runs that writers have begun, by the writer's folder."""
_OTHER_AXIS = re.compile(r" vs\.? (samples|tokens|time)$", re.I)
_FOR_VIEWERS = (
    "add_graph", "add_onnx_graph", "add_embedding", "add_mesh", "add_custom_scalars",
    "add_custom_scalars_multilinechart", "add_custom_scalars_marginchart",
)  # fmt: skip


class SummaryWriter(SentToWorkers):
    """A writer. `barograph`: the run that it records into.

    That is the run that is open (of `barograph.init` or the stand-in for W&B); without one the writer begins a run
    named after `log_dir`, which ends with the writer. Writers of one folder share it.
    """

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
        **options: Any,
    ):
        path = None if log_dir is None else Path(log_dir)
        key = "" if path is None else str(path.absolute())
        shared = _writers.get(key)
        found = shared if shared is not None and shared._ending.is_here else open_run()
        if found is not None and found in _writers.values() and found is not shared:
            found = None  # another writer's, of another folder
        self._own = found is None or found is shared
        if found is None:
            found = begin(name=None if path is None else f"{path.name}{comment}", project=_project(path))
            _writers[key] = found
        self.barograph: Run = found
        self.log_dir = str(path if path is not None else found.dir)
        self._step = found._out.current_step
        if purge_step is not None and found._out.next_step > purge_step:
            found.rewind(purge_step)

    def get_logdir(self) -> str:
        """The folder that was asked for."""
        return self.log_dir

    # -- numbers ----------------------------------------------------------------------------------------------

    @guarded("scalar")
    def add_scalar(self, tag: str, scalar_value: Any, global_step: Any = None, *rest: Any, **options: Any) -> None:
        """One number. A tag such as `loss vs samples` has another axis: it is recorded at the step of the others."""
        axis = _OTHER_AXIS.search(tag)
        if axis is not None and global_step is not None:
            self.barograph.log({tag: scalar_value, axis[1].lower(): number(global_step)}, self._step)
            return
        self.barograph.log({tag: scalar_value}, self._at(global_step))

    @guarded("scalar")
    def add_scalars(self, main_tag: str, tag_scalar_dict: Any, global_step: Any = None, *rest: Any) -> None:
        """Several numbers under one name."""
        values = {f"{main_tag}/{name}": value for name, value in tag_scalar_dict.items()}
        self.barograph.log(values, self._at(global_step))

    @guarded("histogram")
    def add_histogram(
        self, tag: str, values: Any, global_step: Any = None, bins: Any = None, *rest: Any, **options: Any
    ) -> None:
        """A distribution."""
        counted = bins if isinstance(bins, int) else 64
        self.barograph.model.histogram(tag, values, self._at(global_step), bins=counted, advance=False)

    @guarded("histogram")
    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: int,
        sum: float,
        sum_squares: float,
        bucket_limits: Any,
        bucket_counts: Any,
        global_step: Any = None,
        walltime: Any = None,
    ) -> None:
        """A distribution that is counted already: upper limits of the bins."""
        limits = [float(limit) for limit in bucket_limits]
        edges = [float(min) if float(min) < limits[0] else limits[0] - 1e-12, *limits]
        self.barograph.model.histogram(tag, list(bucket_counts), self._at(global_step), edges=edges, advance=False)

    @guarded("tensor")
    def add_tensor(self, tag: str, tensor: Any, global_step: Any = None, *rest: Any) -> None:
        """A tensor of one number; of several, their distribution."""
        many = getattr(tensor, "numel", lambda: 1)() > 1
        (self.add_histogram if many else self.add_scalar)(tag, tensor, global_step)

    @guarded("set of hyperparameters")
    def add_hparams(
        self,
        hparam_dict: Any,
        metric_dict: Any,
        *rest: Any,
        global_step: Any = None,
        **more: Any,
    ) -> None:
        """The configuration, and results by name."""
        self.barograph.config.update(dict(hparam_dict))
        if metric_dict:
            self.barograph.log(dict(metric_dict), self._at(global_step))

    # -- text, pictures, sound ------------------------------------------------------------------------------------

    @guarded("text")
    def add_text(self, tag: str, text_string: Any, global_step: Any = None, walltime: Any = None) -> None:
        """Text, as a sample whose prompt is the tag."""
        self.barograph.data.sample(self._at(global_step), text(text_string), tag)

    @guarded("picture")
    def add_image(
        self, tag: str, img_tensor: Any, global_step: Any = None, walltime: Any = None, dataformats: str = "CHW"
    ) -> None:
        """A picture."""
        self._keep(WandbImage(_channels_last(img_tensor, dataformats)), tag, global_step)

    @guarded("picture")
    def add_images(
        self, tag: str, img_tensor: Any, global_step: Any = None, walltime: Any = None, dataformats: str = "NCHW"
    ) -> None:
        """Several pictures."""
        for image in img_tensor:
            self._keep(WandbImage(_channels_last(image, dataformats.replace("N", ""))), tag, global_step)

    def add_image_with_boxes(
        self, tag: str, img_tensor: Any, box_tensor: Any, global_step: Any = None, *rest: Any, **options: Any
    ) -> None:
        """The picture; boxes are left out."""
        say_once("add_image_with_boxes keeps the picture without its boxes")
        self.add_image(tag, img_tensor, global_step)

    @guarded("figure")
    def add_figure(
        self, tag: str, figure: Any, global_step: Any = None, close: bool = True, walltime: Any = None
    ) -> None:
        """A figure of matplotlib, or several."""
        for each in figure if isinstance(figure, (list, tuple)) else [figure]:
            self._keep(WandbImage(each), tag, global_step)
            if close and callable(getattr(each, "clear", None)):
                each.clear()

    @guarded("film")
    def add_video(self, tag: str, vid_tensor: Any, global_step: Any = None, *rest: Any, **options: Any) -> None:
        """Film, as its frames."""
        self._keep(WandbVideo(vid_tensor), tag, global_step)

    @guarded("sound")
    def add_audio(
        self, tag: str, snd_tensor: Any, global_step: Any = None, sample_rate: int = 44100, walltime: Any = None
    ) -> None:
        """Sound, one channel from -1 to 1."""
        flat = snd_tensor.reshape(-1) if hasattr(snd_tensor, "reshape") else snd_tensor
        self._keep(WandbAudio(flat, sample_rate=sample_rate), tag, global_step)

    @guarded("curve")
    def add_pr_curve(self, tag: str, labels: Any, predictions: Any, global_step: Any = None, **options: Any) -> None:
        """Labels and predictions, as a file."""
        self._keep(WandbFigure({"chart": "pr_curve", "labels": labels, "predictions": predictions}), tag, global_step)

    def add_pr_curve_raw(self, tag: str, *counts: Any, global_step: Any = None, **options: Any) -> None:
        """The curve's points, as a file."""
        self._keep(WandbFigure({"chart": "pr_curve", "arguments": list(counts), **options}), tag, global_step)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("add_"):
            what = "has nothing to draw it with" if name in _FOR_VIEWERS else "does not have this call"
            say_once(f"SummaryWriter.{name} does nothing: Barograph {what}; the training goes on")
            return lambda *arguments, **named: None
        if name == "file_writer":
            return self
        if name == "_out":
            return self.barograph._out
        raise AttributeError(name)

    # -- the end ------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Values that are still on a device are waited for; all else is written when a call returns."""
        self.barograph._out.flush()

    def close(self) -> None:
        """End the run, if the writer began it."""
        if self._own:
            self.barograph.finish()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *problem: Any) -> None:
        if self._own:
            self.barograph.__exit__(*problem)

    def _at(self, step: Any) -> int:
        self._step = self._out.coming if step is None else self._out.step_of(step)
        return self._step

    def _keep(self, item: WandbMedia, tag: str, step: Any) -> None:
        item.keep(self.barograph, tag, self._at(step))


def install() -> None:
    """Take the place of PyTorch's and tensorboardX's writers in this process, in libraries too."""
    for name in ("torch.utils.tensorboard", "torch.utils.tensorboard.writer", "tensorboardX"):
        sys.modules[name] = sys.modules[__name__]


_inside = threading.local()  # in a call of a writer: its own calls of other writers are parts of it
_copy: SummaryWriter | None = None


def copy_writers() -> bool:
    """Record into the open run too what PyTorch's and tensorboardX's writers write from now on; False: neither is
    loaded."""
    global _copy
    _copy = SummaryWriter()
    found = False
    for library, name in (("torch", "torch.utils.tensorboard"), ("tensorboardX", "tensorboardX")):
        if library in sys.modules:
            with contextlib.suppress(ImportError):
                writer = import_module(name).SummaryWriter
                found = True
                if writer is not SummaryWriter and not hasattr(writer, "_barograph"):
                    writer._barograph = True
                    for call in [call for call in vars(SummaryWriter) if call.startswith("add_")]:
                        _copy_call(writer, call)
    return found


def _copy_call(writer: Any, name: str) -> None:
    call = getattr(writer, name, None)
    if call is None:
        return

    @functools.wraps(call)
    def both(self: Any, *arguments: Any, **named: Any) -> Any:
        if getattr(_inside, "call", False) or _copy is None or not _copy.barograph._ending.is_here:
            return call(self, *arguments, **named)
        _inside.call = True
        try:
            result = call(self, *arguments, **named)
        finally:
            _inside.call = False
        getattr(_copy, name)(*arguments, **named)
        return result

    setattr(writer, name, both)


def _project(path: Path | None) -> str | None:
    """The folder above the writer's, where it has a name of its own."""
    name = "" if path is None else path.parent.name
    return name if name not in ("", "runs", "logs", "log", "tensorboard", "..") else None


def _channels_last(image: Any, layout: str) -> Any:
    """As Pillow has pictures: rows, columns, channels."""
    array = image.detach().cpu().numpy() if hasattr(image, "detach") else image
    if len(layout) == 3 and layout != "HWC":
        array = array.transpose([layout.index(axis) for axis in "HWC"])
    return array
