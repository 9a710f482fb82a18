"""Gradients that are missing, and why.

In:   which parameters had a gradient at each step, what a backward pass left, how far the loop is.
Out:  one sentence for each thing that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from barograph.probes.model.adapters import NAMED

AFTER = 5  # steps; a parameter that only some batches use has had its chance
LOOSE = 20  # steps; an optimizer that steps now and then has had its turn
SILENT = 3  # steps in a row without any gradient
REPLAYS = 4  # looks in a row at which the loop had gone on, and no optimizer's step was seen
_NAMED = 8


def listed(names: Iterable[str]) -> str:
    """The first names, and how many more."""
    all_names = list(names)
    more = len(all_names) - _NAMED
    return ", ".join(all_names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


class Witness:
    """Follows which parameters receive gradients. `warn(sentence, key)` is called once for each finding."""

    def __init__(self, warn: Callable[[str, str], object]):
        self._warn = warn
        self.waiting: set[str] = set()  # never had a gradient
        self._known: set[str] = set()  # had a gradient
        self._left_out = 0
        self._adapters: set[str] = set()  # parameters of adapters by their shapes
        self.rounds = 0
        self.backward_left_gradients = False
        self._with_gradients = 0
        self._silent = 0
        self._reported = False
        self._at: tuple[int, int | None] | None = None
        self._replays = 0

    def follow(self, names: Iterable[str], adapters: Iterable[str] = ()) -> None:
        """These parameters learn; those not known before are waited for. adapters: those that are an adapter's by their
        shapes."""
        self.waiting |= set(names)
        self._adapters |= set(adapters)

    def saw(self, present: set[str], names: tuple[str, ...], holds: bool, loose: Collection[str] = frozenset()) -> None:
        """A step: the parameters that had a gradient, all watched ones, and whether the optimizers hold those. loose:
        those that had one and are in no optimizer."""
        self.rounds += 1
        if self.waiting:
            self.waiting -= present | set(loose)
            self.waiting &= set(names)
        if present:
            self._silent = 0
            self._with_gradients += 1
            if self.waiting and self._with_gradients >= AFTER and not self._reported:
                self._reported = True
                self._warn(
                    f"no gradient has reached {len(self.waiting)} of {len(names)} parameters in "
                    f"{self._with_gradients} steps: {listed(sorted(self.waiting))}; they do not learn (freeze them "
                    "with requires_grad_(False) if that is meant)",
                    "never received",
                )
            if loose and self._with_gradients == LOOSE:
                self._warn(
                    f"{len(loose)} of {len(names)} parameters have gradients and are in no optimizer that steps: "
                    f"{listed(sorted(loose))}; they do not learn (add them to it, or freeze them with "
                    "requires_grad_(False) if that is meant)",
                    "in no optimizer",
                )
            return
        self._silent += 1
        if self._silent == SILENT and names:
            self._warn(f"the watch has seen no gradient for {SILENT} steps: {self._reason(holds)}", "no gradient")

    def left_out(self, present: set[str], absent: set[str]) -> dict[str, int]:
        """A step: the parameters with a gradient, and the others of the optimizers that step. `left_out`: how many of
        these others had a gradient before, where it is another number than in the step before; `left_out_adapters`: how
        many of them are an adapter's, by their names or shapes, if some are."""
        lost = absent & self._known
        count, halves = len(lost), sum(name in self._adapters or NAMED.search(name) is not None for name in lost)
        if len(self._known) < len(present | self._known):
            self._known |= present
        said, self._left_out = self._left_out, count
        if not present or count == said:
            return {}
        return {"left_out": count} | ({"left_out_adapters": halves} if halves else {})

    def _reason(self, holds: bool) -> str:
        if not holds and self.backward_left_gradients:
            return (
                "backward leaves some in the watched model, but they are gone when the optimizer steps, which holds "
                "other parameters: those of copies kept by hand, such as fp32 master weights, are not looked at; if "
                "there are no such copies, make the optimizer of the model that is trained"
            )
        if not holds:
            return (
                "the optimizer holds none of the watched model's parameters (the model was replaced, or wrapped after "
                "the optimizer was made); watch the model that is trained"
            )
        if self.backward_left_gradients:
            return (
                "backward left gradients, but they were gone at optimizer.step(); call zero_grad after the step, not "
                "before it"
            )
        return "no backward pass reached the watched model's parameters; watch the model whose loss is trained on"

    def captured(self, step: int, last: int | None) -> None:
        """A CUDA graph was captured, and now and then the run's thread looks. step: of the loop; last: the one of the
        optimizer's step that was seen last."""
        before, self._at = self._at, (step, last)
        if before is None or last != before[1]:
            self._replays = 0
        elif step > before[0]:
            self._replays += 1
            if self._replays == REPLAYS:
                self._warn(
                    "a CUDA graph was captured, and the watch has seen no optimizer step since: what a graph replays "
                    "calls no hooks. Watch a training without graphs to see the model from inside; what the loop logs "
                    "is recorded all the same",
                    "captured",
                )

    def no_steps(self, steps: int, given: bool) -> None:
        """The loop logged this many steps and no watched optimizer made one."""
        what = (
            "the optimizer given to run.watch was never stepped; give the one that the loop calls"
            if given
            else "no torch optimizer stepped its parameters; give it to run.watch(model, optimizer)"
        )
        self._warn(f"the watch has seen no optimizer step in {steps} steps of the run: {what}", "no steps")
