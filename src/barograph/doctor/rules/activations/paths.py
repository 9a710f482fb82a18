"""How layers are put together and begin: skip connections and functions that are forgotten, units that are all alike.

In:   what the watch saw in the graph of a loss, and of weights in the 20th step.
Out:  findings of `SkipMissing`, `FeedingSkipMissing`, `ActivationMissing`, `UnitsAlike`.
"""

from __future__ import annotations

from barograph.core import text
from barograph.doctor.rules.activations.forward import ForwardRule


class SkipMissing(ForwardRule):
    """Layers of attention have no skip connection around them: all that is before them goes through them.

    In the graph of the loss no way leads from the output to what is before a layer of attention but through its
    average of values; so it is in two layers or more, of one shape. Attention that pools a text into one row has
    another shape, and attention from one text to another has the other text beside it. Attention whose scores are sums,
    as in graph attention, is not looked at.

    What to do: `x = x + attention(norm(x))`.
    """

    name, family, kind, severity = "skip_missing", "model", "vanishing", "warning"
    needs = ("=model/attention_unskipped",)
    about = "Attention has no skip connection around it."
    causes = ("residual missing: a block's input is not added to what its attention gives",)
    remedies = ("add the block's input: `x = x + attention(norm(x))`, and the same around what follows",)

    series = "model/attention_unskipped"
    counted = "layers"

    def sentence(self, count: int) -> str:
        return (
            f"{count} layers of attention have no way around them: each gives the next one nothing but averages of its "
            "values, and its input is not added to them."
        )


class FeedingSkipMissing(ForwardRule):
    """Layers between attention have no skip connection around them, and attention has.

    In the graph of the loss no way leads around a function between linear layers, such as ReLU or GELU, that stands
    between two layers of attention of which each has a way around it. Where another such function between them has one,
    it stands for what joins two stages, such as a projector; models with convolutions between are not looked at.

    What to do: `x = x + mlp(norm(x))`.
    """

    name, family, kind, severity = "feeding_skip_missing", "model", "vanishing", "warning"
    needs = ("=model/feeding_unskipped",)
    about = "The layers between attention have no skip connection around them."
    causes = ("residual missing: a block's input is not added to what its feed-forward layers give",)
    remedies = ("add what goes into the feed-forward layers to what they give: `x = x + mlp(norm(x))`",)

    series = "model/feeding_unskipped"
    counted = "layers"

    def sentence(self, count: int) -> str:
        return (
            f"{text.count(count, 'block')} with a skip connection around the attention and none around the "
            "feed-forward layers: all that the block is given goes through these."
        )


class ActivationMissing(ForwardRule):
    """Linear layers stand right behind one another, and no function of single numbers is between the model's layers.

    In the graph of the loss a linear layer's output is the next one's input and nothing else; the width between them is
    that of the narrower side or more, so that both are what one layer would be. A bottleneck, as of adapters and linear
    autoencoders, is narrower. Nothing in the model is a function of single numbers, such as ReLU, GELU or a gate; a
    graph with other operations than matrix products, sums, normalisations and softmax is not looked at.

    What to do: a function between the layers.
    """

    name, family, kind, severity = "activation_missing", "model", "plateau", "warning"
    needs = ("=model/layers_joined",)
    about = "Linear layers stand right behind one another."
    causes = ("activation missing: linear layers with nothing between them are one linear layer",)
    remedies = ("put a function such as `nn.GELU()` or `nn.ReLU()` between linear layers",)

    series = "model/layers_joined"
    counted = "layers"

    def sentence(self, count: int) -> str:
        return (
            f"{text.count(count, 'linear layer')} right behind another one, and no function of single numbers anywhere "
            "between the model's layers: both are what one layer would be."
        )


class UnitsAlike(ForwardRule):
    """All units of a layer are the same, after twenty steps.

    Before the 20th step the weights of a linear layer or a convolution have the same row for all of its units, within
    what rounding leaves: they began with the same numbers, have the same gradients since, and the layer is one unit.
    Layers that begin at 0 on purpose have units with gradients of their own, and differ after the first step.

    What to do: draw the weights by chance: `nn.init.normal_(weight, std=0.02)`, `nn.init.kaiming_uniform_(weight)`.
    """

    name, family, kind, severity = "units_alike", "model", "not_learning", "warning"
    needs = ("=model/equal_units",)
    about = "All units of a layer are the same."
    causes = ("bad initialisation: all units of a layer begin with the same weights, and stay the same",)
    remedies = ("draw weights by chance: `nn.init.normal_(weight, std=0.02)`, `nn.init.kaiming_uniform_(weight)`",)

    series = "model/equal_units"
    counted = "layers"

    def sentence(self, count: int) -> str:
        return (
            f"The units of {text.count(count, 'layer')} all have the same weights before the 20th step: they began "
            "with the same numbers, and get the same gradients."
        )


RULES = (SkipMissing, FeedingSkipMissing, ActivationMissing, UnitsAlike)
