"""The divergence of an autoencoder's latent numbers: its sign and weight, and how the numbers are drawn.

In:   logged terms of the loss; figures of the watch, which knows the graph of the loss.
Out:  findings of `LatentTerm`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import named, newest, usual
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.sums import weights_of
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.data.regression import RECONSTRUCTION

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_PROOF = 0.95
_NOISE = {
    0.0: ("The latent numbers are decoded without noise, and their variance is in the KL alone.",
          "noise missing: the mean is decoded, and nothing is sampled"),
    2.0: ("The noise of the latent numbers is multiplied with their variance, not with its root.",
          "wrong deviation: the noise is multiplied with the variance, `exp(log_variance)`"),
    3.0: ("The noise of the latent numbers is multiplied with the logarithm of their variance.",
          "wrong deviation: the noise is multiplied with the logarithm of the variance"),
}  # fmt: skip
_KL = expression(r"(?:train[/_])?(?:kld?_loss|kld|loss_kld?)")  # beside the role's names


class LatentTerm(WatchRule):
    """The KL term of an autoencoder has the wrong sign, or leaves nothing of the latent.

    KL and reconstruction are logged beside the loss. A KL is never negative: one that is, in all of 32 rows, is the
    negative of it; so is one that the loss, as a sum of the two in all of 64 rows to a thousandth of how it varies,
    takes away. One that has fallen to a tenth of where it began or less, and to a two-hundredth of the reconstruction,
    in 128 rows, has collapsed: the latent says nothing of the input. So it has where it has fallen so far and the
    outputs explain at most a fiftieth of how the inputs, which are the targets, differ between rows. Where targets are
    broadcast, or an output went through a sigmoid twice, that is why. Where the graph of the loss shows no way from the
    rest of it to the latent numbers, they were sampled without a gradient: the encoder learns from the KL alone. Where
    it shows that the noise is multiplied with the variance of the KL or with its logarithm, or that there is no noise,
    the KL is of another distribution than what is decoded. Trainings with a reward have a KL of another kind.

    What to do: a smaller weight, raised from 0 over the first tenth of the training; `reconstruction + weight * kl`.
    """

    name, family, kind, severity = "latent_term", "loss", "config", "warning"
    needs = (
        "kl|=kl_loss|=kld|=kld_loss|=loss_kl|=loss_kld|=model/latent_cut|=train/kl_loss|=train/kld_loss|=train_kl_loss",
        "loss",
    )
    least = 32
    about = "The KL term of an autoencoder has the wrong sign, or leaves nothing of the latent."
    thresholds: ClassVar = {
        "rows": (32.0, "ours"),
        "exact": (1e-3, "of the loss's deviation; ours"),
        "left": (0.1, "of the first KL; ours"),
        "share": (0.005, "of the reconstruction; ours"),
        "rebuilt": (0.02, "of the variance of the inputs, in the mean of eight looks; ours"),
    }
    remedies = ("`loss = reconstruction + weight * kl`, with a weight that rises from 0 to 1 or less",)

    def channel(self, history: RunHistory) -> Channel | None:
        if history.role("reward") is not None:
            return None
        seen = history.channel("model/latent_cut") is not None  # then the graph says what no log does
        return history.role("loss") if seen or _kl_of(history) is not None else None

    def begin(self) -> None:
        self._count, self._first = 0, math.nan

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._count += 1
        if self._count % int(self.at["rows"]):
            return
        place = (place[0] - 1, *place[1:])  # a step whose records are complete
        yield from self._cut(history, place)
        yield from self._noised(history, place)
        kl, other = _kl_of(history), named(history, RECONSTRUCTION)
        if kl is None or other is None:
            return
        values = newest(kl, *place, min(64, self._count - 1))
        values = values[numpy.isfinite(values)]
        if math.isnan(self._first) and len(values):
            self._first = float(numpy.median(values[:8]))
        about: dict[str, Any] = {"found": place[0], "segment": place[2], "confidence": _PROOF}
        weight = self._weight(history, kl, other, place)
        negative = len(values) >= self.at["rows"] - 1 and bool((values < 0).all())
        if (negative or (weight < 0 and bool((values > 0).all()))) and self.first("sign", place[2]):
            what = f"The logged KL is {values[-1]:.3g}" if negative else f"The loss has the KL {weight:.3g} times"
            yield self.finding(
                0, f"{what}: it is rewarded, and grows without end.", key="sign", severity="critical",
                kind="divergence",
                causes=["sign reversed: of the KL term, whose negative is minimised"],
                evidence={"standing": True}, **about,
            )  # fmt: skip
        level = float(numpy.median(values)) if len(values) else math.nan
        beside = usual(other, *place, 64)
        crossed = history.channel("model/loss_crossed")
        why = history.channel("model/loss_widened") is not None or (crossed is not None and crossed.first > 1)
        why |= watched(history, "activation_twice", place) >= 1 or watched(history, "latent_cut", place) == 1
        nothing = usual(history.channel("model/rebuilt"), *place, 8) <= self.at["rebuilt"]
        gone = not why and 0 <= level <= self.at["left"] * self._first
        gone = gone and (nothing or level <= self.at["share"] * beside)
        if self._count >= 4 * self.at["rows"] and gone and self.first("collapsed", place[2]):
            often = f", and is in the loss {weight:.3g} times" if weight > 0 else ""
            yield self.finding(
                0, f"The KL fell from {self._first:.3g} to {level:.3g}, beside a reconstruction of {beside:.3g}{often}:"
                " the latent says nothing of the input.", key="collapsed",
                causes=["KL weight too high: the latent has collapsed to the prior"],
                evidence={"kl": rounded(level), "standing": True}, **about,
            )  # fmt: skip

    def _cut(self, history: RunHistory, place: Place) -> Iterator[Finding]:
        """Latent numbers that nothing but their divergence trains, in all graphs that were seen."""
        seen = history.channel("model/latent_cut")
        if seen is None or not seen.end:
            return
        rows = newest(seen, *place, 64)
        rows = rows[numpy.isfinite(rows)]
        if len(rows) and (rows == 1).all() and self.first("cut", place[2]):
            yield self.finding(
                0, "The loss has the KL of latent numbers, and no way leads from the rest of it to them: the encoder "
                "learns nothing of the reconstruction.", key="cut", kind="frozen", severity="critical",
                found=place[0], segment=place[2], confidence=_PROOF, evidence={"standing": True},
                causes=["graph cut: latent numbers are sampled without a gradient"],
                remedies=["`mean + deviation * torch.randn_like(mean)`, or `Normal(mean, deviation).rsample()`"],
            )  # fmt: skip

    def _noised(self, history: RunHistory, place: Place) -> Iterator[Finding]:
        """Latent numbers that are drawn with another deviation than that of the KL, in all graphs that were seen."""
        seen = history.channel("model/latent_noise")
        if seen is None or not seen.end:
            return
        rows = newest(seen, *place, 64)
        kinds = set(rows[numpy.isfinite(rows)].tolist())
        said = _NOISE.get(next(iter(kinds))) if len(kinds) == 1 else None
        if said is not None and self.first("noise", place[2]):
            yield self.finding(
                0, said[0], key="noise", found=place[0], segment=place[2], confidence=_PROOF, causes=[said[1]],
                remedies=["`mean + (0.5 * log_variance).exp() * torch.randn_like(mean)`"], evidence={"standing": True},
            )  # fmt: skip

    def _weight(self, history: RunHistory, kl: Channel, other: Channel, place: Place) -> float:
        """How often the KL is in the loss; NaN where the two do not add up to the loss."""
        loss = history.role("loss")
        if loss is None or loss.name == other.name or self._count <= 64:
            return math.nan
        target = newest(loss, *place, 64)
        columns = numpy.stack([newest(kl, *place, 64), newest(other, *place, 64)], axis=1)
        weights = weights_of(columns, target, self.at["exact"]) if (columns.std(0) > 0).all() else None
        return float(weights[0]) if weights is not None and weights[0] else math.nan


def _kl_of(history: RunHistory) -> Channel | None:
    """The series of the KL; of several the one that began first: others may come later."""
    series = [channel for channel in (history.role("kl"), named(history, _KL)) if channel is not None]
    return min(series, key=lambda channel: channel.began, default=None)


RULES = (LatentTerm,)
