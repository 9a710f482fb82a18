"""What a training is expected to do on its device: sets the step clock's MFU and writes the `sol` record.

In:   a torch model, a configuration or an `Architecture`; the device, its peak, the precisions.
Out:  the estimate; the clock knows the FLOPs a token and the peak from then on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from barograph.probes.recording import Recording
from barograph.probes.speed import light
from barograph.probes.speed.clock import StepClock
from barograph.probes.speed.configurations import architecture
from barograph.probes.speed.counting import architecture_of
from barograph.probes.speed.flops import flops_per_token, hardware_flops


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

    Raises FlopsError, whose sentence says what is missing or wrong.
    """
    known = {name: value for name, value in given.items() if value is not None}
    if callable(getattr(model, "named_parameters", None)):  # a torch model
        arch = architecture_of(model, **known)
    else:
        arch = architecture(model, **known)
    formula = run.settings.flops_formula
    fields = light.estimate(arch, device=device, dtypes=dtypes, devices=devices, peak_tflops=peak_tflops)
    # the blocks are nearly all of the work: their precision is the one whose peak an MFU is relative to
    peak, source = light.peak_for(fields["device"], fields["blocks_dtype"], peak_tflops)
    clock.formula = formula
    clock.flops_per_token = flops_per_token(arch, formula)
    clock.peak_flops = math.nan if peak is None else peak * 1e12 * devices
    clock.hardware_flops_per_token = math.nan if recompute == "none" else hardware_flops(arch, recompute, formula)
    fields |= {"mfu_formula": formula, "flops_per_token": clock.flops_per_token}
    if peak is not None:
        fields |= {"mfu_peak_tflops": peak, "mfu_peak_source": source}
    run.record("sol", run.current_step, fields, draw=show)
    return fields
