"""Watched: a Recorder with the probes a training loop may use: steps, phases, memory, data, ranks, the model.

In:   a loop's calls; each imports its probe when it is first used.
Out:  records of what the probes saw.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import math
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from barograph.values import number
from barograph.writing.recorder import Recorder

if TYPE_CHECKING:
    from barograph.probes.data.batch_watch import DataWatch
    from barograph.probes.memory.usage import ActivationMeter
    from barograph.probes.model.watch import ModelWatch
    from barograph.probes.ranks.reduction import Ranks
    from barograph.probes.speed.clock import Phase, StepClock, StepTime

_POSITION = {"pq_idx": "pq", "rg_idx": "rg"}  # S4's names in the loader's state, and in its line


class Step:
    """One step of `with run.step(...) as step`. What it was is told by `set`, at any time before its end."""

    __slots__ = ("_clock", "_reduced", "_run", "number", "tokens", "values")

    def __init__(self, run: Watched, number: int, tokens: Any):
        self._run, self._clock = run, run.clock
        self.number, self.tokens = number, tokens
        self.values: dict[str, Any] = {}
        self._reduced: dict[str, Any] = {}

    def set(self, **values: Any) -> None:
        """`loss`, `norm` (L2 of the gradients), `lr`, `epoch`, `tokens`, `position` (the loader's {pq_idx,
        rg_idx, epoch}), and anything else that is to stand in the step's record."""
        self.values.update(values)

    def reduce(self, **values: Any) -> None:
        """More numbers of this rank to compare with the other ranks', beside loss and norm."""
        self._reduced.update(values)

    def __enter__(self) -> Step:
        self._clock.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: Any) -> None:
        if problem is not None:
            self._clock.abandon()
            self._run.ended_by(problem)
            return
        try:
            self.tokens = self.values.pop("tokens", self.tokens)
            tokens = number(self.tokens) if self.tokens is not None else math.nan
            timed = self._clock.end(tokens)
            if self.values:
                self._run.log_timed_step(self.number, timed, tokens, self.values)
            self._clock.record(self.number, timed, tokens)
            self._run.compare_ranks(self.number, timed, self.values, self._reduced)
        except Exception as error:
            self._run._failed("timed step", error)


class Watched(Recorder):
    """What a `Run` watches a training with."""

    _ranks: Ranks | None = None
    _data: DataWatch | None = None

    # -- steps and phases ----------------------------------------------------------------------------

    @property
    def clock(self) -> StepClock:
        """Times this run's steps."""
        if self._clock is None:
            from barograph.probes.speed.clock import StepClock

            self._clock = StepClock(self)
            self.at_each_round(self._clock.poll)
            self.at_finish.append(lambda: self._clock.poll(wait=True))
        clock: StepClock = self._clock
        return clock

    def step(self, tokens: int | None = None, step: int | None = None) -> Step:
        """`with run.step(tokens=…) as step:` times one optimizer step and records it.

        tokens: those of all ranks; also by `step.set(tokens=…)`. step: default one more than the last.
        With `step.set(loss=…, norm=…, lr=…)` the step's own record is written too, and shown.
        """
        return Step(self, self._next_step if step is None else self._step(step), tokens)

    def phase(self, name: str) -> Phase:
        """`with run.phase("forward"):` times a part of a step: data, forward, backward, optimizer, or a name
        of yours; or something between steps, such as eval and checkpoint. Phases may stand in phases."""
        return self.clock.phase(name)

    def wrap(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The loader's batches, with the wait for each of them timed as the next step's phase `data`."""
        return self.clock.wrap(loader)

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

        Returns the estimate, which is recorded and (with `show`) drawn; None, with a warning that says what is
        missing, where it can't be made.
        """
        from barograph.probes.speed.expectation import expect

        try:
            return expect(
                self,
                self.clock,
                model,
                {"sequence": sequence, **architecture},
                dtypes=dtypes,
                devices=self.world_size if devices is None else devices,
                device=device,
                peak_tflops=self.settings.peak_tflops if peak_tflops is None else peak_tflops,
                recompute=recompute,
                show=show,
            )
        except ValueError as error:
            if self.strict:
                raise
            self.warn(f"no MFU and no speed of light: {error}")
        except Exception as error:
            self._failed("speed of light", error)
        return None

    def profile_communication(self, every: int = 1000, first: int = 10) -> None:
        """Profile one timed step in `every`, beginning with the `first`: how much of the communication between
        ranks is hidden behind computation, and how much of it the step waits for."""
        from barograph.probes.speed.communication import CommunicationProfile

        self.clock.profile = CommunicationProfile(self, every, first)

    def log_timed_step(
        self, step: int, timed: StepTime, tokens: float, values: Mapping[str, Any], draw: bool = True
    ) -> None:
        """A step's record in S0's order, of what the clock and the loop know; what nobody knows is left out."""
        given = dict(values)
        position = given.pop("position", None)
        if isinstance(position, Mapping):
            self.position = dict(position)
            given |= {short: position[name] for name, short in _POSITION.items() if name in position}
            given.setdefault("epoch", position.get("epoch"))
        fields: dict[str, Any] = {}
        if given.get("epoch") is not None:
            fields["epoch"] = given["epoch"]
        if tokens == tokens:
            fields["step_tokens"] = int(tokens) if tokens % 1 == 0 else tokens
        fields["duration_ms"] = round(timed.seconds * 1000, 3)
        fields |= {name: given[name] for name in ("norm", "loss", "lr") if name in given}
        fields |= {name: value for name, value in given.items() if name not in fields and name != "epoch"}
        if timed.mfu == timed.mfu:
            fields |= {"mfu": timed.mfu, "formula": self.clock.formula, "peak_tflops": self.clock.peak_flops / 1e12}
        if self._phase:
            fields["phase"] = self._phase
        self._typed("step", step, fields, 0, draw)

    # -- the model -------------------------------------------------------------------------------------

    def watch(self, model: Any, optimizer: Any = None, **options: Any) -> ModelWatch | None:
        """Look at the model from inside while it is trained: gradients, weights, updates, activations, experts.

        model: as it is trained (plain, compiled, DDP, FSDP2). optimizer: one or several; found by themselves if
        not given. Options are intervals in steps, 0 is off: `gradients`, `updates`, `weights`, `histograms`,
        `activations`, `spectral`, `optimizer_state`, `moe`; and `scaler`, `budget` (share of the step time),
        `memory_budget_mb`, `modules`: docs/model.md has them all. None, with a warning, where it can't.
        """
        try:
            from barograph.probes.model.watch import ModelWatch

            if not hasattr(model, "named_parameters") or not hasattr(model, "named_modules"):
                kind = type(model).__name__
                self._odd(
                    f"the model is not watched: run.watch takes (model, optimizer), and the first is of type {kind}"
                )
                return None
            known = list(inspect.signature(ModelWatch).parameters)[2:]
            for name in options:
                if name not in known:
                    near = difflib.get_close_matches(name, known, 1, 0.0)[0]
                    raise ValueError(f"there is no option {name!r}; the nearest one is {near!r}")
            if self.settings.verbosity > 0:
                options.setdefault("show", self._console.say)
            made = ModelWatch(self, model, optimizer, **options)
            for earlier in [one for one in self.watches if one.model is model]:
                earlier.close()
                self.watches.remove(earlier)
                self.warn("the model is watched anew; one watch takes several optimizers, as a list", key="watch anew")
            self.watches.append(made)
            self._made_watch(made)
            return made
        except (ValueError, TypeError) as error:
            self._odd(f"the model is not watched: {error}")
        except Exception as error:
            self._failed("watch", error)
        return None

    def _made_watch(self, watch: ModelWatch) -> None:
        """Where a Run tells its debug mode of a watch."""

    # -- ranks -----------------------------------------------------------------------------------------

    def reduce(self, step: int, values: Mapping[str, Any], **about: Any) -> Any:
        """Compare named numbers over the ranks of torch.distributed: minimum, mean, maximum, and which rank.

        Every rank calls it at the same steps with the same names. It returns at once; rank 0 records the result
        when all ranks' values are there. Steps timed by `run.step` or the tracker do it by themselves. about:
        `step_ms`, `wait_ms`, `sums`, `fingerprint` of the batch, `checksum` of what should be equal.
        """
        if self._data is not None and self._data.last_step == step:
            about.setdefault("fingerprint", self._data.last_fingerprint)
        return self.ranks.reduce(self._step(step), values, **about)

    @property
    def ranks(self) -> Ranks:
        """This run's comparison of ranks."""
        if self._ranks is None:
            from barograph.probes.ranks.reduction import Ranks

            self._ranks = Ranks(self)
        return self._ranks

    def watch_ranks(self, model: Any = None) -> None:
        """Measure how long this rank waits for the others: the one that waits least holds them up, and is named.

        model: a DistributedDataParallel model, before its first step; without one, the waits in collectives that
        are called from Python are timed until the run ends. Call it on every rank.
        """
        try:
            from barograph.probes.ranks.waiting import time_collectives, watch_collectives

            if model is not None:
                self.ranks.waits = watch_collectives(model)
            else:
                waits = time_collectives()
                self.ranks.waits = waits.__enter__()
                self.at_finish.append(lambda: waits.__exit__(None, None, None))
        except ValueError as error:
            self._odd(str(error))
        except Exception as error:
            self._failed("measure of waiting", error)

    def compare_ranks(
        self, step: int, timed: StepTime, values: Mapping[str, Any], more: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Reduce a timed step's loss and norm where there are other ranks to compare with."""
        if self.world_size > 1 and self.settings.ranks:
            named = {name: values[name] for name in ("loss", "norm") if name in values}
            self.reduce(step, named | dict(more), step_ms=timed.seconds * 1000)

    # -- memory and data -------------------------------------------------------------------------------

    def log_memory(self, step: int, model: Any = (), optimizer: Any = (), activations: Any = None) -> None:
        """What holds memory, by segment (weights, gradients, optimizer, activations, lora, qlora), and how much
        is in use. model, optimizer: one or several. activations: what `measure_activations` measured."""
        try:
            from barograph.probes.memory import usage

            places = None if activations is None else activations.places
            self.log_allocator(usage.segments(model, optimizer, activations_bytes=places), step)
            usage.record(self, step)
        except Exception as error:
            self._failed("memory table", error)

    def measure_activations(self, model: Any = None) -> ActivationMeter:
        """`with run.measure_activations(model) as meter:` around one step measures what autograd saves."""
        from barograph.probes.memory.usage import ActivationMeter

        return ActivationMeter(model)

    def guard(self, models: Any = (), optimizers: Any = ()) -> Any:
        """`with run.guard(model, optimizer):` around a training: an out-of-memory error leaves in the log what
        held the memory, by name, before it goes on its way."""
        from barograph.probes.memory.out_of_memory import guard

        return guard(self, models, optimizers)

    def watch_data(self, **options: Any) -> DataWatch:
        """A watch whose `observe(batch)` counts tokens and padding and finds batches that come again.

        Options: `pad_id`, `window` (batches), `every` (batches a record), `ranks`, `ignore_id`, `fingerprint`.
        """
        from barograph.probes.data.batch_watch import DataWatch

        watch = self._data = DataWatch(self, **options)
        self.at_each_round(watch.poll)
        return watch

    def look_after(self) -> None:
        """Start the threads that watch the machine, the steps and the process. `init` does it."""
        if self.settings.machine:
            from barograph.probes.machine.sampler import Machine

            Machine(self).start()
        if self.settings.watchdog:
            from barograph.probes.ranks.heartbeat import Heartbeat
            from barograph.probes.ranks.watchdog import Watchdog

            self._beat = Watchdog(self, folder=self._store_folder, busy=self._busy).beat
            Heartbeat(self, self._store_folder, state=self._busy)

    def _busy(self) -> str | None:
        return None if self._clock is None else self._clock.between()

    def ended_by(self, problem: BaseException | None) -> None:
        """An exception is on its way out of a step or of the run: what it takes to understand it is recorded."""
        with contextlib.suppress(Exception):  # the exception that is on its way is the one to see
            from barograph.probes.memory.out_of_memory import is_out_of_memory, snapshot

            if problem is not None and problem is not self._recorded_problem and is_out_of_memory(problem):
                self._recorded_problem = problem
                snapshot(self, problem)
