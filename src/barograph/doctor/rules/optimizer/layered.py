"""Learning rates by layer that are upside down, or counted by parameter.

In:   how the rates of layers fall, and whether the last layer is as torch draws it; whether rates go from parameter to
      parameter.
Out:  findings of `RatesReversed`, `RatesByParameter`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class RatesReversed(WatchRule):
    """Learning rates fall from the first layers to the last one, which is new and has next to none.

    When the first step begins, matrices have three rates or more that never rise with the depth, that of the last layer
    is the lowest, the first layer's is thirty times that or more, and the last layer is as torch draws it. Rates by
    layer are meant the other way: what comes first was trained before and is to be kept, and a new head has all to
    learn. Two rates are enough where gains of normalisations say that the rest was trained before. Rates that are
    made from the sizes of layers, groups of several methods of training and tables of tokens are left out.

    What to do: turn the exponent round: `lr * decay ** (depth - layer)`, so that the head has the full rate.
    """

    name, family, kind, severity = "rates_reversed", "optimizer", "learning_rate", "warning"
    series = "model/rate_over_last"
    needs = ("=model/rate_over_last",)
    least = 1
    about = "Learning rates by layer fall towards the new head."
    thresholds: ClassVar = {
        "times": (30.0, "the last layer's rate is the first one's; ours"),
        "rates": (3.0, "or more; ours"),
    }
    causes = ("layer frozen: the head's learning rate is next to nothing, as rates by layer are upside down",)
    remedies = ("give the head the highest rate, and less to each layer before it: `lr * decay ** (depth - layer)`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        trained = watched(history, "gains_apart", place) == 1
        enough = watched(history, "falling_rates", place) >= (2 if trained else self.at["rates"])
        new = watched(history, "last_drawn", place) == 1
        if enough and new and value >= self.at["times"] and self.first(place[2]):
            yield self.finding(
                place[0], "The last layer is new, and its learning rate is the lowest: the first layer's is "
                f"{value:.3g} times as high, and rates fall with the depth.", found=place[0],
                segment=place[2], confidence=0.9, evidence={"times": rounded(value), "standing": True},
            )  # fmt: skip


class RatesByParameter(WatchRule):
    """Learning rates that are to fall by layer fall by parameter: each weight and bias counts as a layer.

    When the first step begins, four of five neighbours or more among the model's parameters, of which there are eight
    or more, differ by one and the same factor, and so do the weights and biases within three layers or more. Then the
    exponent of a rate by layer counts parameters, of which there are several times as many as layers: the first ones
    have next to no rate. Where all biases have another rate than their weights by choice, the factor between a bias and
    the next layer's weight is another one. Factors within half a hundredth of 1 say nothing.

    What to do: count layers: one number for all parameters of a block.
    """

    name, family, kind, severity = "rates_by_parameter", "optimizer", "learning_rate", "warning"
    series = "model/rates_by_parameter"
    needs = ("=model/rates_by_parameter",)
    least = 1
    about = "Learning rates by layer are counted by parameter."
    thresholds: ClassVar = {
        "layers": (3.0, "or more, of several parameters with rates of their own; ours"),
        "times": (1.005, "a parameter's rate is that of its neighbour; ours"),
    }
    causes = ("learning rate too low: the exponent of rates by layer counts parameters, and not layers",)
    remedies = ("give all parameters of a block one number: `lr * decay ** (depth - layer_of(name))`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        ratio = watched(history, "rate_ratio", place)
        times = max(ratio, 1 / ratio) if ratio > 0 else 1.0
        if value >= self.at["layers"] and times >= self.at["times"] and self.first(place[2]):
            yield self.finding(
                place[0], f"Each parameter's learning rate is {ratio:.3g} times that of the one before, also within "
                f"{value:.0f} layers: parameters are counted in place of layers.", found=place[0],
                segment=place[2], confidence=0.9, evidence={"ratio": rounded(ratio), "standing": True},
            )  # fmt: skip


RULES = (RatesReversed, RatesByParameter)
