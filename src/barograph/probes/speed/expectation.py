"""What a training is expected to do on its device: sets the step clock's MFU and writes the `sol` record.

In:   a torch model, a configuration or an `Architecture`; the device, its peak, the precisions.
Out:  the estimate; the clock knows the FLOPs a token and the peak from then on.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Any

from barograph.probes.recording import Recording
from barograph.probes.speed import light
from barograph.probes.speed.architecture import Architecture, FlopsError, whole
from barograph.probes.speed.clock import StepClock
from barograph.probes.speed.configurations import architecture, check_names
from barograph.probes.speed.counting import architecture_of
from barograph.probes.speed.flops import FlopsParts, parts, with_recomputation
from barograph.probes.speed.observed import at_first_step, forward_parts


def expect(
    run: Recording,
    clock: StepClock,
    model: Any,
    given: Mapping[str, Any],
    *,
    dtypes: Mapping[str, str] | str,
    devices: int,
    device: str | None,
    peak_tflops: float | None,
    recompute: str,
    show: bool,
) -> dict[str, Any]:
    """The estimate, recorded and (with `show`) drawn. `given`: `sequence` and other fields of `Architecture`.

    Where a torch model's sizes don't tell its FLOPs, they are counted: over a sequence that is made up, or, where the
    model does not take one, at the training's first forward pass; then the answer is {} and the record comes later.
    Raises FlopsError, whose sentence says what is missing or wrong.
    """
    known = {name: value for name, value in given.items() if value is not None}

    def settle(subject: Architecture | FlopsParts) -> dict[str, Any]:
        formula = light.COUNTED if isinstance(subject, FlopsParts) else run.settings.flops_formula
        costs = subject if isinstance(subject, FlopsParts) else parts(subject, formula)
        fields = light.estimate(subject, device=device, dtypes=dtypes, devices=devices, peak_tflops=peak_tflops)
        # the blocks are nearly all of the work: an MFU is relative to the peak of their precision
        peak, source = light.peak_for(fields["device"], fields["blocks_dtype"], peak_tflops)
        repeated = with_recomputation(costs, recompute)
        clock.formula = formula
        clock.flops_per_token = costs.total
        clock.peak_flops = math.nan if peak is None else peak * 1e12 * devices
        clock.hardware_flops_per_token = math.nan if recompute == "none" else repeated
        fields |= {"mfu_formula": formula, "flops_per_token": clock.flops_per_token}
        if peak is not None:
            fields |= {"mfu_peak_tflops": peak, "mfu_peak_source": source}
        run.record("sol", run.current_step, fields, draw=show)
        return fields

    if not callable(getattr(model, "named_parameters", None)):  # not a torch model
        return settle(architecture(model, **known))
    check_names(known)
    sequence = known.get("sequence")
    subject: Architecture | FlopsParts | None = None
    with contextlib.suppress(FlopsError):
        subject = architecture_of(model, **known)
    if subject is None and sequence is not None:
        length = whole(sequence, "sequence")
        with contextlib.suppress(FlopsError):  # it takes something else, which its first step has
            subject = forward_parts(model, length)
    if subject is not None:
        return settle(subject)
    missing = "no MFU and no speed of light: "
    give_up = at_first_step(model, settle, lambda error: run.warn(f"{missing}{error}"))
    run.at_finish.append(give_up)
    return {}
