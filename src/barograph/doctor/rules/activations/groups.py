"""Which parameters are trained, and which were left out.

In:   what the watch records of parameters that are frozen.
Out:  findings of `FrozenGroup`, `PretrainedMissing`, `AdaptersDrawn`, `AdaptersZero`, `AdaptersMerged`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import RowCursor, came_by, setting, whole
from barograph.doctor.kernel.curve import again, rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.activations.meant import (
    contradicted,
    in_stages,
    said_frozen,
    said_layers,
    said_none,
    said_part,
    said_table,
    said_thin,
    said_whole,
    texts_of,
    unmatched,
)  # fmt: skip
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, of_look
from barograph.doctor.rules.rl.preference import is_preference

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_PRETRAINED = (
    "pretrained", "use_pretrained", "from_pretrained", "pretrained_weights", "pretrained_path", "pretrained_model",
    "pretrained_checkpoint", "pretrained_backbone", "backbone_weights", "init_checkpoint", "finetune_from",
)  # fmt: skip
_NOT_PRETRAINED = frozenset({"", "none", "null", "no", "false", "scratch", "random", "0"})
_SURE = 0.95
_PART = 0.05  # of all elements, that is frozen
_UNSAID = 0.1  # the same, where the configuration has an empty list of what is frozen
_STANDING = ("drawn", "blocks", "new", "tables", "new body", "new part", "head", "shut")  # findings of the start
_LARGE = 0.25  # the same, where all gains of the model are as they were initialised
_MOST = 0.5  # the same, of a model of which a head alone is trained
_FOR_A_WHILE = ("blocks", "drawn", "tables", "head", "new body", "unsaid")  # what may be trained later
_PROBE = 4  # parameters of a head that is trained on what is frozen: a norm's and a layer's


def why_never(names: list[str]) -> list[str]:
    """Causes where no gradient has ever reached these parameters."""
    alone = all(name.rpartition(".")[2] == "bias" for name in names)
    cancels = ["biases alone: what is added to all scores alike cancels where the loss compares them"] if alone else []
    return [*cancels, "layer frozen: on purpose, or forgotten"]


class FrozenGroup(Rule):
    """Parameters that should be trained are frozen since the start, and others are not.

    Freezing is usual, so an info finding says how much of the model is trained and what is not; where two layers or
    more in front of what is trained are as torch draws them, that nothing may have been loaded. Twelve things are never
    meant, and warn. Adapters, by their names, of which none is trained while other parameters are; or of which those of
    some layers are frozen at 0, while those of others are trained, or one factor at 0 while the other is trained. The
    same, whatever they are called, where two small modules or more have two frozen matrices each that are multiplied
    through fewer dimensions, one of them all zero, and no such pair is trained. The other way round, layers that are
    trained beside the LoRA matrices that are added to them, unless the configuration says that the whole model is
    trained. Layers that are frozen at 0 outside of adapters, as gates that begin shut, or a table that tells nothing. A
    bias or a norm's gains that are all that is trained, beside eight frozen parameters or more; or normalisation layers
    alone, where a configuration of three options or more says nothing of it. Frozen blocks behind parameters that are
    trained, whose normalisation weights are all exactly 1: nobody ever trained these (the same of two such layers or
    more in the frozen model that adapters are for); or any such blocks, where a preference is learnt, unless the
    configuration says how many layers are trained, or held (`num_layers_unfrozen: 2`, `hold_layers: 1`); or a frozen
    layer that is as torch draws it, as a new head is, beside adapters, in a model whose gains show that it was trained.
    And frozen layers whose weights are as torch draws them, uniform up to one over the root of their inputs, while what
    is before them is trained; or where two or more, or recurrent ones, are in front of it, and more than four
    parameters are trained or a contrast of pairs is learnt. An embedding as it was drawn, normally with a deviation of
    1 or 0.02, in a model whose trained gains are all exactly 1; of any other deviation, or evenly, where rows and
    columns are as alike as random numbers are, and a configuration of three options or more does not say it; in no part
    whose gains or biases show that it was trained. A linear probe stays an info finding, but where its body was never
    trained, as gains that are all exactly 1 or two layers as drawn show, and a configuration of three options or more
    says nothing of it: no probe, nothing frozen, no part that is chosen. Gains and biases alone, in a model that is all
    new, are the same, and so is a quarter of all elements in one all of whose gains, frozen and trained, are exactly 1.
    One random projection stays one, too. Of blocks and layers, so does a stage in which less is frozen than before, and
    what the configuration says is to be trained later (`unfreeze_at`, `freeze: gradual`, a number of steps or epochs in
    `freeze_image_steps` or `head_only_epochs`), or to be frozen, by the names of all that is (`frozen_stem`, `freeze:
    stem`); so do adapters at 0 of a part that is named so (`not_adapted: layers.0`). Where nothing is frozen any more
    later in the launch, what was warned of becomes one. And it warns where the configuration names a part that is to be
    frozen (`freeze: stem`, `lock_image`) or to be trained (`trainable: head`, `train_embeddings: true`, `train_vectors:
    true`, without adapters), and that part is trained, or frozen, as a whole, while a twentieth of all elements or more
    is frozen, and nothing of that name is as it is said to be. So it does where an option as `target_modules` names
    frozen layers without adapters beside others that have them; and where an option that lists what is frozen, or kept
    as it is, is there and empty (`freeze: ''`), while a tenth of all elements or more is frozen, all of it in parts
    that are frozen as a whole, unlike what adapters are for.

    What to do: look at the test that chooses what `requires_grad` is set for; most often it is the wrong way round.
    """

    name, family, kind, severity = "frozen_group", "model", "frozen", "warning"
    needs = ("=model/frozen_parameters",)
    about = "Parameters that should be trained are frozen since the start."
    thresholds: ClassVar = {
        "beside": (8.0, "frozen parameters beside a single bias or norm that is trained; ours"),
        "few": (4.0, "the same, beside whole normalisation layers; ours"),
    }
    causes = ("layer frozen: `requires_grad` is off for what should be trained",)
    remedies = ("check what sets `requires_grad`, and print the names that the optimizer is given",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._frozen: dict[int, int] = {}
        self._told: dict[int, Finding] = {}  # what was warned of in a launch

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for (step, time, segment), value in self._cursor.each(history.channel("model/frozen_parameters")):
            count, figures = whole(value), {
                name: of_look(history, name, (step, time, segment))
                for name in ("trained_parameters", "trained_adapters", "frozen_adapters", "frozen_share",
                             "trained_carriers", "frozen_untrained", "frozen_blocks", "frozen_as_drawn",
                             "zero_adapters", "zero_products", "frozen_first_as_drawn", "frozen_recurrent",
                             "frozen_gains_new", "lone_vector", "lone_norms", "frozen_tables", "untrained",
                             "frozen_random_tables", "trained_matrices", "frozen_zero")
            }  # fmt: skip
            carried = figures["trained_carriers"] > 0
            fewer = count < self._frozen.get(segment, 0)  # a stage in which more is trained
            self._frozen[segment] = count
            told = self._told.pop(segment, None) if count == 0 else None
            if told is not None:  # it was so for a while, on purpose
                told.severity, told.confidence = "info", 0.3
                yield again(told)
            if (count > 0 or carried) and figures["trained_parameters"] > 0 and self.first(segment, count):
                said = self._say(history, step, time, segment, count, figures, fewer or in_stages(history))
                if said.severity == "warning" and said.key in _FOR_A_WHILE:
                    self._told[segment] = said
                yield again(said)

    def _say(
        self, history: RunHistory, step: int, time: int, segment: int, count: int, figures: dict[str, float],
        staged: bool,
    ) -> Finding:  # fmt: skip
        trained = whole(figures["trained_parameters"])
        texts = texts_of(history, step, time)
        names = texts.get("frozen", "names are not recorded")
        against = not staged and figures["frozen_share"] >= _PART and contradicted(
            history, texts, alone=count == 1, adapted=figures["trained_adapters"] > 0)  # fmt: skip
        severity, key, causes = "warning", "adapters", list(self.causes)
        behind, front = (max(0.0, figures[name]) for name in ("frozen_as_drawn", "frozen_first_as_drawn"))
        several = front > 1 or (front == 1 and figures["frozen_recurrent"] == 1)
        fresh, adapted = behind > 0 or several, figures["trained_adapters"] > 0
        contrasted = came_by(history.channel("model/loss_pairs"), time)  # a probe would have labels
        told = _of_adapters(figures, list(self.causes))
        if told is None and not staged:
            told = self._of_layers(history, figures, trained, count, names)
        if told is not None:
            key, message, causes = told
        elif figures["frozen_gains_new"] == 1 and adapted:
            key, message = "new", f"Adapters are trained in a model whose frozen normalisation is all new ({names})."
            causes = ["weights not loaded: the frozen model is as it was initialised"]
        elif figures["frozen_gains_new"] == 0 and adapted and behind + front > 0:
            key, layers = "head", whole(behind + front)
            which = f"{layers} layers, as torch draws them, are" if layers > 1 else "One layer, as torch draws it, is"
            message = f"{which} frozen in a model that was trained before, beside adapters that are trained."
            causes = [*causes, "new head not trained: adapters alone are, and what else is new is not named"]
        elif figures["frozen_untrained"] == 1 and not adapted:
            key, blocks = "blocks", whole(figures["frozen_blocks"])
            are = "s behind what is trained are" if blocks > 1 else " behind what is trained is"
            message = f"{blocks} block{are} frozen as initialised ({names})."
        elif figures["frozen_blocks"] > 0 and not adapted and is_preference(history, time):
            key, blocks = "preference", whole(figures["frozen_blocks"])
            message = f"{blocks} block{'s' * (blocks > 1)} behind what is trained, frozen while a preference is learnt."
        elif against:
            key, message = "said", against
        elif adapted and (missed := unmatched(history, texts)):
            key, message, causes = "targets", missed, ["adapters missing: a name that is configured matches no layer"]
        elif figures["untrained"] == 1 and not adapted and (
            figures["frozen_tables"] > 0
            or (figures["frozen_random_tables"] > 0 and not staged and said_table(history) is False)
        ):  # fmt: skip
            key, message = "tables", f"An embedding is frozen as it was drawn, in a model that is all new ({names})."
        elif fresh and not adapted and (behind > 0 or trained > _PROBE or contrasted):
            key, layers = "drawn", whole(behind + front)
            message = f"{layers} layer{'s are' if layers > 1 else ' is'} frozen as drawn by torch ({names})."
        elif not (adapted or staged) and (new := self._of_new(history, figures, trained, count, names, several)):
            key, message, causes = new
        elif not (adapted or staged) and figures["frozen_share"] >= _UNSAID and said_none(history, texts):
            key, share = "unsaid", figures["frozen_share"]
            message = f"{share:.2g} of all elements are frozen ({names}); the configuration's list of such is empty."
        else:
            severity, key, share = "info", "share", 1 - figures["frozen_share"]
            message = (
                f"{trained} of {trained + count} parameters are trained, {share:.2g} of all elements; not: {names}."
            )
            if fresh and not adapted:
                message = f"{message[:-1]}; {front:.0f} layers are as torch draws them."
                causes = ["weights not loaded: frozen layers are as torch draws them", *causes]
        severity = "info" if _is_meant(history, key, names, staged) else severity
        return self.finding(
            step, message, severity=severity, key=key, found=step, segment=segment,
            confidence=0.95 if severity == "warning" else 0.3, causes=causes,
            evidence={"trained": trained, "frozen": count, "frozen_share": figures["frozen_share"]}
            | ({"standing": True} if key in _STANDING else {}),
        )  # fmt: skip

    def _of_layers(
        self, history: RunHistory, figures: Mapping[str, float], trained: int, count: int, names: str
    ) -> tuple[str, str, list[str]] | None:
        """What is wrong with single layers: a key, a sentence and causes."""
        causes = list(self.causes)
        if figures["frozen_zero"] > 0:
            layers = whole(figures["frozen_zero"])
            message = (
                f"{layers} layer{'s are' if layers > 1 else ' is'} frozen at 0, and pass{'es' * (layers == 1)} "
                f"nothing on ({names})."
            )
            return "shut", message, [
                *causes, "layer frozen: one that begins at 0, as a gate or the end of a branch, never opens"
            ]  # fmt: skip
        if figures["lone_vector"] == 1 and count >= self.at["beside"]:
            return (
                "vector",
                f"Only one parameter of {trained + count} is trained, a bias or a norm's ({names}).",
                causes,
            )
        if figures["lone_norms"] > 0 and count >= self.at["few"] and said_thin(history) is False:
            norms = whole(figures["lone_norms"])
            which = f"{norms} normalisation layers are" if norms > 1 else "One normalisation layer is"
            return "norms", f"{which} all that is trained ({names}).", causes
        return None

    def _of_new(
        self, history: RunHistory, figures: Mapping[str, float], trained: int, count: int, names: str, several: bool
    ) -> tuple[str, str, list[str]] | None:
        """What is wrong with much that is frozen as it was initialised, of which the configuration says nothing."""
        share, gains_new = figures["frozen_share"], figures["frozen_gains_new"] == 1
        if said_thin(history) is not False:
            return None
        if share >= _MOST and (_vectors(figures) or ((several or gains_new) and trained <= _PROBE)):
            message = (
                f"Only {trained} of {trained + count} parameters are trained, {1 - share:.2g} of all elements; all "
                f"else is frozen as it was initialised, and the configuration does not say so ({names})."
            )
            unread = "weights not loaded: frozen layers are as they were initialised"
            return "new body", message, [*self.causes, unread]
        if share >= _LARGE and gains_new and figures["untrained"] == 1:
            message = (
                f"{share:.2g} of all elements are frozen as they were initialised, in a model that is all new "
                f"({names}); the configuration does not say so."
            )
            return "new part", message, list(self.causes)
        return None


def _of_adapters(figures: Mapping[str, float], usual: list[str]) -> tuple[str, str, list[str]] | None:
    """What is wrong with adapters: a key, a sentence and causes. usual: causes of what is frozen."""
    carriers, adapters = whole(figures["trained_carriers"]), whole(figures["frozen_adapters"])
    reversed_ = figures["frozen_adapters"] > 0 and not figures["trained_adapters"] > 0
    if carriers > 0 and reversed_:
        message = f"{carriers} layers that have adapters are trained, and none of {adapters} parameters of these."
        return "reversed", message, [
            "layer frozen: the adapters are, and the layers that they are for are trained",
            "base not frozen: the test that sets `requires_grad` is the wrong way round",
        ]  # fmt: skip
    if reversed_:
        others = whole(figures["trained_parameters"])
        return "adapters", f"None of {adapters} parameters of adapters is trained, but {others} others are.", usual
    if carriers > 0:
        causes = ["base not frozen: layers are trained beside the adapters that are added to them"]
        return "carriers", f"{carriers} layers that have adapters are trained themselves.", causes
    if figures["zero_products"] > 1:
        message = (
            f"Products of two matrices in {whole(figures['zero_products'])} layers are frozen at 0, as adapters begin: "
            "they add nothing, and none is trained."
        )
        return "products", message, ["layer frozen: adapters that should be trained are not, by a name that is missed"]
    if figures["zero_adapters"] > 0:
        message = (
            f"Adapters of {whole(figures['zero_adapters'])} layers, or one factor of each, are frozen at 0, where they "
            "add nothing; others are trained."
        )
        return "zero", message, ["layer frozen: adapters that should be trained, or one of their two factors"]
    return None


def _is_meant(history: RunHistory, key: str, names: str, staged: bool) -> bool:
    """Whether the configuration says what is frozen, by these names, or how much of it."""
    counted = key in ("blocks", "preference") and said_layers(history)
    meant = key in ("blocks", "drawn", "tables", "head", "products", "shut") and (staged or said_frozen(history, names))
    meant |= key == "carriers" and said_whole(history)
    return counted or meant or (key in ("zero", "preference") and said_part(history, names))


def _vectors(figures: Mapping[str, float]) -> bool:
    """Whether gains and biases alone are trained, of a model that is all new."""
    return figures["untrained"] == 1 and figures["trained_matrices"] == 0


class PretrainedMissing(WatchRule):
    """The configuration names pretrained weights, and the model's are as torch draws them.

    When the first step begins, four fifths of the linear layers and convolutions or more have weights that are uniform
    up to one over the root of their inputs, as torch draws them. `load_state_dict(strict=False)` says nothing of names
    that match nowhere, as those with a `module.` before them.

    What to do: load with `strict=True` once, or print what `load_state_dict` returns: `missing_keys`.
    """

    name, family, kind, severity = "pretrained_missing", "model", "frozen", "warning"
    series = "model/drawn"
    needs = ("=model/drawn",)
    least = 1
    about = "The configuration names pretrained weights, and the model's are as torch draws them."
    causes = ("weights not loaded: layers are as torch draws them",)
    remedies = (
        "print what `load_state_dict(state, strict=False)` returns: `missing_keys` should be those of the new head",
        "take a prefix such as `module.` or `backbone.` off the names before loading",
    )

    def begin(self) -> None:
        self._looks = 0

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._looks += 1
        said = setting(history, *_PRETRAINED)
        named = said is True or (isinstance(said, str) and said.lower() not in _NOT_PRETRAINED)
        if self._looks == 1 and value == 1 and named and self.first(place[2]):
            yield self.finding(
                place[0], f"The configuration says `{said}` of pretrained weights, and at the first step most layers "
                "are as torch draws them.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"standing": True},
            )  # fmt: skip


_LOADED = ("adapter_checkpoint", "adapter_path", "adapter_name_or_path", "adapter_weights", "lora_checkpoint",
           "lora_path", "lora_weights", "lora_weights_path", "peft_checkpoint", "resume_adapter", "resume_lora",
           "resume_from_adapter")  # fmt: skip


class AdaptersDrawn(WatchRule):
    """Adapters do not begin at zero, so that a fine-tuning begins at another model than the pretrained one.

    When the first step begins, both factors of the adapters beside frozen layers hold random numbers: those of the
    second one have the same size in all layers of one shape and in all columns, columns that resemble each other as
    those of random numbers do, and no heavier tails. Factors that were trained have columns that resemble
    each other, and other sizes; those that are taken from the layer's own singular vectors have columns at right
    angles. Where the configuration names a checkpoint of adapters that the fine-tuning goes on from
    (`adapter_checkpoint`, `lora_weights`, …), it is an info finding: factors that were trained for a few steps look
    random still.

    What to do: `nn.init.zeros_` of the second factor (`lora_B`), and random numbers in the first.
    """

    name, family, kind, severity = "adapters_drawn", "model", "config", "warning"
    series = "model/adapters_drawn"
    needs = ("=model/adapters_drawn",)
    least = 1
    about = "Adapters do not begin at zero."
    causes = ("bad initialisation: both factors of the adapters are random, which spoils the pretrained layers",)
    remedies = ("`nn.init.zeros_(lora_B)`: one of the two factors begins at zero, and only one",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if value == 1 and self.first(place[2]):
            name = setting(history, *_LOADED)
            loaded = isinstance(name, str) and bool(name)
            yield self.finding(
                place[0], "Both factors of the adapters are random when the first step begins: their sum with the "
                "frozen layers is another model than the one that was loaded.", found=place[0], segment=place[2],
                confidence=0.4 if loaded else 0.9, severity="info" if loaded else "warning",
                evidence={"standing": True},
            )  # fmt: skip


class AdaptersZero(WatchRule):
    """Both factors of adapters are zero, so that neither is ever trained.

    When the first step begins, both factors of the adapters of one frozen layer or more are zero throughout. The
    gradient of each is a product with the other: it is zero, and stays so. An adapter begins with one factor at zero,
    and random numbers in the other.

    What to do: `nn.init.kaiming_uniform_(lora_A)`, and `nn.init.zeros_(lora_B)`.
    """

    name, family, kind, severity = "adapters_zero", "model", "frozen", "warning"
    series = "model/adapters_zero"
    needs = ("=model/adapters_zero",)
    least = 1
    about = "Both factors of adapters are zero."
    causes = ("bad initialisation: both factors of the adapters are zero, so that neither gets a gradient",)
    remedies = ("random numbers in one of the two factors: `nn.init.kaiming_uniform_(lora_A)`, zeros in the other",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if value >= 1 and self.first(place[2]):
            layers = f"{value:.0f} layers" if value > 1 else "a layer"
            yield self.finding(
                place[0], f"Both factors of the adapters of {layers} are zero when the first step begins: neither ever "
                "gets a gradient.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"layers": value, "standing": True},
            )  # fmt: skip


class AdaptersMerged(WatchRule):
    """Adapters were added to their frozen layers, and are still added beside them.

    Within ten steps, frozen layers have changed by a multiple of the product of their adapters' factors: of the change
    squared, eight tenths or more are along it; of whole numbers of eight bits, which rounding changes, too, half of it
    in each layer. The adapters are not zero, so from then on they count twice. Merging for an evaluation and taking it
    back changes nothing, and adapters that begin anew at zero resemble nothing that was added.

    What to do: take the product out again after the evaluation, or merge a copy.
    """

    name, family, kind, severity = "adapters_merged", "model", "frozen", "warning"
    series = "model/adapters_merged"
    needs = ("=model/adapters_merged|=model/codes_merged",)
    least = 1
    about = "Adapters were added to their layers, and are still added beside them."
    thresholds: ClassVar = {
        "along": (0.8, "of the squared change of the layers; ours"),
        "rounded": (0.5, "of that of whole numbers, in the layer where it is least; ours"),
    }
    causes = ("adapters merged twice: they were added to their layers, and go on beside them",)
    remedies = ("merge a copy for evaluations and checkpoints, or subtract what was added afterwards",)

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/codes_merged"), self._of_codes)]

    def _of_codes(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        yield from self._merged(value, self.at["rounded"], place)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        yield from self._merged(value, self.at["along"], place)

    def _merged(self, value: float, least: float, place: Place) -> Iterator[Finding]:
        if value >= least and self.first(place[2]):
            yield self.finding(
                place[0], f"Frozen layers have changed, and {100 * value:.0f}% of the squared change is along what "
                "their adapters add: these count twice from here on.", found=place[0], segment=place[2],
                confidence=_SURE, evidence={"along": rounded(value)},
            )  # fmt: skip


RULES = (FrozenGroup, PretrainedMissing, AdaptersDrawn, AdaptersZero, AdaptersMerged)
