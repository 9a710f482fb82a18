"""The parts of a run that look at the training: the model, the data, the ranks.

In:   a loop's models, loaders, tables; each call imports its probe when it is first used.
Out:  records and wide rows of what the probes saw.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from barograph.core import place
from barograph.core.values import number, text
from barograph.training.alerting import RunAlerts
from barograph.training.debugging import DebugMode, WatchIntervals
from barograph.training.guard import guarded
from barograph.training.media import RunMedia
from barograph.training.recorder import Recorder
from barograph.training.skipping import Advice, SkipAdvisor
from barograph.training.steps import Steps

if TYPE_CHECKING:
    from barograph.probes.data.batch_watch import DataWatch
    from barograph.probes.memory.usage import ActivationMeter
    from barograph.probes.model.copies import RankCopies
    from barograph.probes.model.watch import ModelWatch
    from barograph.probes.ranks.reduction import Ranks


class RunModel:
    """`run.model`: the model from inside, its memory, its speed of light; wide rows and histograms.

    `watches`: those that look at models. `on_watch`: called with each new one.
    """

    def __init__(self, recorder: Recorder, steps: Steps, alerts: RunAlerts):
        self._out, self._steps, self._alerts = recorder, steps, alerts
        self._skipping: SkipAdvisor | None = None
        self.watches: list[Any] = []
        self.on_watch: list[Any] = []
        self.wide = recorder.wide.row
        self.layers = recorder.wide.layers
        self.expert_loads = recorder.wide.expert_loads
        self.histogram = recorder.wide.histogram

    @guarded("watch")
    def watch(self, model: Any, optimizer: Any = None, **options: Any) -> ModelWatch | None:
        """See `Run.watch`."""
        out = self._out
        try:
            from barograph.probes.model.watch import ModelWatch

            model = ModelWatch.joined(model)
            if not hasattr(model, "named_parameters") or not hasattr(model, "named_modules"):
                kind = type(model).__name__
                out.odd(
                    f"the model is not watched: run.watch takes (model, optimizer), and the first is of type {kind}"
                )
                return None
            known = list(inspect.signature(ModelWatch).parameters)[2:]
            for name in options:
                if name not in known:
                    near = difflib.get_close_matches(name, known, 1, 0.0)[0]
                    raise ValueError(f"there is no option {name!r}; the nearest one is {near!r}")
            if out.settings.verbosity > 0:
                options.setdefault("show", out.console.say)
            others = [other for other in self.watches if other.model is not model and not other.is_closed]
            if others and place.in_notebook():  # the cell that makes the model was run again
                others[0].close()
            elif others:
                raise ValueError(
                    "the run has one already, and their figures would be one series; watch both at once: "
                    "run.watch([model, other], [optimizer, another])"
                )
            watch = ModelWatch(out, model, optimizer, **options)
        except (ValueError, TypeError) as error:
            out.odd(f"the model is not watched: {error}")
            return None
        for earlier in [other for other in self.watches if other.model is model]:
            earlier.close()
            self.watches.remove(earlier)
            out.warn("the model is watched again; one watch takes several optimizers, as a list", key="watch anew")
        self.watches.append(watch)
        for call in self.on_watch:
            call(watch)
        if self._alerts.debug is not None:
            self._alerts.debug.watch(WatchIntervals.of(watch, out.world_size))
        return watch

    def flush(self) -> None:
        """Write what the watches hold of the steps so far."""
        for watch in self.watches:
            watch.flush()

    def speed_of_light(
        self,
        model: Any,
        *,
        sequence: int | None = None,
        dtypes: Mapping[str, str] | str = "bf16",
        devices: int | None = None,
        device: str | None = None,
        peak_tflops: float | None = None,
        recompute: str = "none",
        show: bool = True,
        **architecture: Any,
    ) -> dict[str, Any] | None:
        """Say what is trained on what: from now on steps have an MFU, and their speed a share of the possible.

        model: a torch model, a configuration (a mapping or object with Hugging Face's or similar names), or
        an `Architecture`; `architecture` gives fields of it that you know better. sequence: tokens of a
        training sequence. dtypes: precision of "blocks", "lm_head", "attention", or one for all. devices: how
        many share the work (default: one a rank). device: its name (default: the one torch uses). peak_tflops:
        of one device, over the table. recompute: "none", "selective" or "full", for the HFU.

        Where a torch model's sizes don't tell its FLOPs they are counted: over one made-up sequence of `sequence`
        tokens, or at the training's first forward pass, where a token is a sample if the inputs hold no whole numbers.

        Returns the estimate, which is recorded and (with `show`) drawn; None where it comes with the first step, or,
        with a warning that says what is missing, where it can't be made.
        """
        out = self._out
        try:
            from barograph.probes.speed.expectation import expect

            found = expect(
                out,
                self._steps.clock,
                model,
                {"sequence": sequence, **architecture},
                dtypes=dtypes,
                devices=out.world_size if devices is None else devices,
                device=device,
                peak_tflops=out.settings.peak_tflops if peak_tflops is None else peak_tflops,
                recompute=recompute,
                show=show,
            )
            return found or None
        except ValueError as error:
            if out.strict:
                raise
            out.warn(f"no MFU and no speed of light: {error}")
        except Exception as error:
            out.failed("speed of light", error)
        return None

    @guarded("memory table")
    def memory(self, step: int, model: Any = (), optimizer: Any = (), activations: Any = None) -> None:
        """What holds memory, by segment (weights, gradients, optimizer, activations, lora, qlora), and how much
        is in use. model, optimizer: one or several. activations: what `measure_activations` measured."""
        from barograph.probes.memory import usage

        places = None if activations is None else activations.places
        rows = []
        for held in usage.memory_segments(model, optimizer, activations_bytes=places):
            sizes = {place: number(held.get(place, 0)) for place in ("device", "managed", "pinned", "pageable")}
            rows.append({"name": text(held.get("name", ""))} | sizes)
        self._out.emit("allocator", step, {"stats": rows}, checked=True)
        usage.record(self._out, step)

    def measure_activations(self, model: Any = None) -> ActivationMeter:
        """`with run.model.measure_activations(model) as meter:` around one step measures what autograd saves."""
        from barograph.probes.memory.usage import ActivationMeter

        return ActivationMeter(model)

    def guard(self, models: Any = (), optimizers: Any = ()) -> Any:
        """`with run.model.guard(model, optimizer):` around a training: an out-of-memory error leaves in the log what
        held the memory, by name, before it goes on its way."""
        from barograph.probes.memory.out_of_memory import memory_guard

        return memory_guard(self._out, models, optimizers)

    def skip_advice(self, loss: float, norm: float) -> Advice:
        """Whether this step's update had better be left out, judged by the run's own recent losses and norms; a few
        microseconds. Call it once a step, before `optimizer.step`; `if run.skip_advice(loss, norm): continue`."""
        if self._skipping is None:
            self._skipping = SkipAdvisor()
        return self._skipping.advise(loss, norm)

    def debug_after_findings(self, **options: Any) -> None:
        """After a critical finding have `watch` look at everything for some steps: `steps`, `severity`, `intervals`."""
        out = self._out
        try:
            mode = DebugMode(
                say=lambda sentence: out.record(
                    "info", out.current_step, {"type": "message", "message": text(sentence)}
                ),
                **options,
            )
        except (ValueError, TypeError) as error:
            out.odd(f"no debug mode: {error}")
            return
        self._alerts.debug = mode
        for watch in self.watches:
            mode.watch(WatchIntervals.of(watch, out.world_size))

    def ended_by(self, problem: BaseException | None) -> None:
        """An exception is on its way out: what held memory is recorded, if that is what was missing."""
        with contextlib.suppress(Exception):  # the exception that is on its way is the one to see
            from barograph.probes.memory.out_of_memory import is_out_of_memory, snapshot

            if problem is not None and is_out_of_memory(problem):
                snapshot(self._out, problem)


class RunData:
    """`run.data`: the batches, the loader; texts, images, sound and tables to look at.

    `position`: of the data loader, as told last: {pq_idx, rg_idx, epoch}.
    """

    def __init__(self, recorder: Recorder, steps: Steps):
        self._out, self._steps = recorder, steps
        self.position: dict[str, Any] | None = None
        self.watching: DataWatch | None = None
        self.media = media = RunMedia(recorder)
        self.image, self.audio, self.table, self.file = media.image, media.audio, media.table, media.file

    def wrap(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The loader's batches, with the wait for each of them timed as the next step's phase `data`."""
        return self._steps.clock.wrap(loader)

    def watch(self, **options: Any) -> DataWatch:
        """A watch whose `observe(batch)` counts tokens and padding and finds batches that come again.

        Options: `pad_id`, `window` (batches), `every` (batches a record), `ranks`, `ignore_id`, `fingerprint`.
        """
        from barograph.probes.data.batch_watch import DataWatch

        watch = self.watching = DataWatch(self._out, **options)
        return watch

    @guarded("sample")
    def sample(self, step: int, sample: str, prompt: str = "") -> None:
        """Text that the model generated."""
        self._out.emit("sample", step, {"prompt": text(prompt), "text": text(sample)}, checked=True)

    def flush(self) -> None:
        """Write what the watch holds of the steps so far."""
        if self.watching is not None:
            self.watching.flush()


class RunRanks:
    """`run.ranks`: the ranks of torch.distributed, compared."""

    def __init__(self, recorder: Recorder, steps: Steps, data: RunData):
        self._out, self._steps, self._data = recorder, steps, data
        self._probe: Ranks | None = None
        self._copies: RankCopies | None = None
        self._stepped = 0  # by the watched optimizer, as long as no loop compares ranks
        self._kept: tuple[int, int, dict[str, Any]] | None = None  # compared unless the loop does it

    def follow(self, watch: ModelWatch) -> None:
        """A model is watched: is it the same on all ranks, and what is each given?"""
        if self._out.world_size > 1 and self._out.settings.ranks:
            from barograph.probes.model.copies import RankCopies

            if self._copies is not None:
                self._copies.close()
            self._copies, self._stepped, self._kept = RankCopies(watch.model), 0, None
            self._out.at_finish.append(self._copies.close)
            watch.at_steps.append(self._steps_now)

    @guarded("comparison of ranks")
    def _steps_now(self, step: int) -> None:
        """The watched optimizer's step begins. From the second one on, watches compare where no loop has done so.

        Here gradients are averaged, and so are weights, however a loop does that.
        """
        if self._copies is None:
            return
        self._copies.see_gradients()
        if self.probe.asked:
            return
        self._stepped += 1
        if self._kept is not None:
            self.probe.compare_copies(*self._kept)
        said = self._copies.take() if self._stepped > 1 else None
        self._kept = (self._stepped, step, said) if said else None

    @property
    def probe(self) -> Ranks:
        """What exchanges the values."""
        if self._probe is None:
            from barograph.probes.ranks.reduction import Ranks

            self._probe = Ranks(self._out)
        return self._probe

    @guarded("comparison of ranks")
    def reduce(self, step: int, values: Mapping[str, Any], **about: Any) -> Any:
        """Compare named numbers over the ranks of torch.distributed: minimum, mean, maximum, and which rank.

        Every rank calls it at the same steps with the same names. It returns at once; rank 0 records the result
        when all ranks' values are there. Steps timed by `run.step` or the tracker do it by themselves. about:
        `step_ms`, `wait_ms`, `sums`, `fingerprint` of the batch, `checksum` of what should be equal.
        """
        watch = self._data.watching
        if watch is not None and watch.last_step == step:
            about.setdefault("fingerprint", watch.last_fingerprint)
            about.setdefault("labels", watch.last_labels)
        if self._copies is not None:
            if not self.probe.asked:
                self._copies.restart()
            about["copies"] = self._copies.take()
        return self.probe.reduce(self._out.step_of(step), values, **about)

    def watch(self, model: Any = None) -> None:
        """Measure how long this rank waits for the others: the one that waits least holds them up, and is named.

        model: a DistributedDataParallel model, before its first step; without one, the waits in collectives that
        are called from Python are timed until the run ends. Call it on every rank.
        """
        out = self._out
        try:
            from barograph.probes.ranks.waiting import time_collectives, watch_collectives

            if model is not None:
                self.probe.waits = watch_collectives(model)
            else:
                waits = time_collectives()
                self.probe.waits = waits.__enter__()
                out.at_finish.append(lambda: waits.__exit__(None, None, None))
        except ValueError as error:
            out.odd(str(error))
        except Exception as error:
            out.failed("measure of waiting", error)

    @guarded("profile of communication")
    def profile_communication(self, every: int = 1000, first: int = 10) -> None:
        """Profile one timed step in `every`, beginning with the `first`: how much of the communication between
        ranks is hidden behind computation, and how much of it the step waits for."""
        from barograph.probes.speed.communication import CommunicationProfile

        self._steps.clock.profile = CommunicationProfile(self._out, every, first)
