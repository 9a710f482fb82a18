"""Rules over weights: what must be found, what must not, and the same in pieces of any size."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_columns import findings, noisy, only, random_columns, same_when_cut
from rule_curves import found as found_in

from barograph.core.record import Record
from barograph.doctor.rules.activations.groups import FrozenGroup, PretrainedMissing
from barograph.doctor.rules.activations.unfreezing import FrozenLater
from barograph.doctor.rules.activations.weights import (
    RULES,
    FrozenLayers,
    SpectralChange,
    WeightNonFinite,
    WeightNormGrowth,
)

NAN = float("nan")


def table(family: str, quantity: str, rows: dict, every: int = 10) -> dict:
    return {f"{family}/{name}/{quantity}": (numpy.arange(len(values)) * every, values) for name, values in rows.items()}


def blocks(tables: int = 20) -> dict:
    return {f"h.{at}.{what}": list(noisy(tables, 0.2, 0.1, at)) for at in range(3) for what in ("up", "down", "bias")}


def test_a_block_that_is_not_trained_any_more_warns_once() -> None:
    rows = blocks()
    for what in ("up", "down", "bias"):
        rows[f"h.1.{what}"] = rows[f"h.1.{what}"][:12]  # no row from step 120 on
    (one,) = only(findings([FrozenLayers()], table("gradients", "norm", rows)), "frozen_layer")
    assert (one.severity, one.key, one.step, one.found) == ("warning", "h.1", 120, 130)
    assert one.causes[0].startswith("layer frozen")


def test_layers_of_an_optimizer_that_makes_one_of_several_steps_are_not_frozen_until_they_are() -> None:
    rows = {name: numpy.tile(values, 5) for name, values in blocks().items()}
    absent = numpy.array([*range(10, 40, 4), *range(60, 63), *range(85, 100)])
    for what in ("up", "down", "bias"):
        rows[f"h.1.{what}"][absent] = 0.0
    (one,) = only(findings([FrozenLayers()], table("gradients", "norm", rows, 1)), "frozen_layer")
    assert (one.step, one.found) == (85, 92)


@pytest.mark.parametrize(("until", "told"), [(62, None), (63, None), (66, (60, 63))])
def test_blocks_that_are_left_out_by_chance_are_not_frozen_until_they_are_out_for_longer(
    until: int, told: tuple[int, int] | None
) -> None:
    rows = {name: numpy.tile(values, 5) for name, values in blocks().items()}
    for what in ("up", "down", "bias"):
        rows[f"h.0.{what}"][[20, 40]] = 0.0
        rows[f"h.1.{what}"][60:until] = 0.0
    found = only(findings([FrozenLayers()], table("gradients", "norm", rows, 1)), "frozen_layer")
    assert [(one.step, one.found) for one in found] == [told] * (told is not None)


def test_updates_of_zero_tell_it_to_the_step() -> None:
    rows = {name: numpy.tile(values, 10) for name, values in blocks().items()}
    for what in ("up", "down"):
        rows[f"h.1.{what}"][118:] = 0.0
    columns = table("updates", "ratio", rows, 1) | {"train/lr": numpy.full(200, 1e-3)}
    (one,) = only(findings([FrozenLayers()], columns), "frozen_layer")
    assert (one.step, one.found) == (118, 119)


def test_updates_of_16_bit_weights_that_are_zero_are_rounded_away() -> None:
    rows = {name: numpy.tile(values, 10) for name, values in blocks().items()}
    for what in ("up", "down"):
        rows[f"h.1.{what}"][118:] = 0.0
    half = {"model/half_parameters": (numpy.array([0]), numpy.array([9.0]))}
    (one,) = only(findings([FrozenLayers()], table("updates", "ratio", rows, 1) | half), "frozen_layer")
    assert one.severity == "info" and "lost in rounding" in one.causes[0]
    (one,) = only(findings([FrozenLayers()], table("gradients", "norm", rows, 1) | half), "frozen_layer")
    assert one.severity == "warning", "a gradient is not rounded away"


@pytest.mark.parametrize(
    ("steps", "counts", "told"),
    [
        ([0, 90], [1000, 500], True),
        ([0, 90], [1000, 950], False),  # a gain or two
        ([0, 90], [500, 1000], False),  # what was frozen is trained now
        ([0, 5], [1000, 500], False),  # before the training has begun
        ([0, 90, 91], [1000, 500, 1000], False),  # players in turns
        ([0, 190], [1000, 500], False),  # too new to say
    ],
)
def test_what_is_frozen_while_it_trains_is_found(steps: list[int], counts: list[int], told: bool) -> None:
    columns = {"loss": (numpy.arange(200), noisy(200, 1.0, 0.1, 3)),
               "model/trained_elements": (numpy.array(steps), numpy.array(counts, dtype=float))}  # fmt: skip
    found = only(findings([FrozenLater()], columns), "frozen_later")
    assert [one.step for one in found] == [90] * told


@pytest.mark.parametrize(
    ("config", "drawn", "told"),
    [
        ({"pretrained": True}, [1.0], True),
        ({"model": {"pretrained_path": "backbone.pt"}}, [1.0, 0.0], True),
        ({"pretrained": True}, [0.0, 1.0], False),  # layers that are added later
        ({"pretrained": False}, [1.0], False),
        ({"backbone_weights": "scratch"}, [1.0], False),
        ({}, [1.0], False),
    ],
)
def test_pretrained_weights_that_were_not_loaded_are_found(config: dict, drawn: list[float], told: bool) -> None:
    columns = {"model/drawn": (numpy.arange(len(drawn)) * 50, numpy.array(drawn))}
    found = found_in([PretrainedMissing()], columns, config=config)
    assert len(found) == told


OPTIONS = {"num_heads": 4, "train_size": 640, "lr": 3e-3, "lr_scheduler_type": "linear", "eval_mode": "last"}


@pytest.mark.parametrize(
    ("config", "figures", "severity"),
    [
        (OPTIONS, {}, "warning"),
        (OPTIONS | {"freeze": []}, {}, "warning"),
        (OPTIONS | {"freeze": ""}, {}, "warning"),
        (OPTIONS | {"freeze_backbone": False}, {}, "warning"),
        (OPTIONS | {"output_dir": "/runs/frozen/3", "save_only_model": True}, {}, "warning"),
        (OPTIONS, {"frozen_gains_new": 0, "frozen_first_as_drawn": 3}, "warning"),  # a body without normalisations
        ({}, {}, "info"),  # nobody says anything
        ({"lr": 1e-3}, {}, "info"),
        (OPTIONS | {"output_dir": "/runs/linear_probe"}, {}, "info"),
        (OPTIONS | {"train": "head"}, {}, "info"),
        (OPTIONS | {"mode": "linear_probe"}, {}, "info"),
        (OPTIONS | {"freeze_backbone": True}, {}, "info"),
        (OPTIONS | {"trainable": "classifier"}, {}, "info"),
        (OPTIONS | {"features": {"random_features": 256}}, {}, "info"),
        (OPTIONS | {"feature_extract": True}, {}, "info"),
        (OPTIONS, {"frozen_gains_new": 0}, "info"),  # a body that was loaded
        (OPTIONS, {"frozen_gains_new": 0, "frozen_first_as_drawn": 1}, "info"),  # one random projection
        (OPTIONS, {"frozen_share": 0.2}, "info"),
        (OPTIONS, {"trained_parameters": 20}, "info"),  # of two players, say, one waits
        (OPTIONS, {"frozen_gains_new": 0, "trained_parameters": 20, "trained_matrices": 0, "untrained": 1}, "warning"),
        (OPTIONS, {"frozen_gains_new": 0, "trained_parameters": 20, "trained_matrices": 0, "untrained": 0}, "info"),
        (OPTIONS | {"trainable": "norms"}, {"frozen_gains_new": 0, "trained_matrices": 0, "untrained": 1}, "info"),
    ],
)
def test_a_head_alone_that_is_trained_on_a_new_body_warns_unless_the_configuration_says_so(
    config: dict, figures: dict, severity: str
) -> None:
    figures = {"trained_parameters": 2, "frozen_parameters": 39, "frozen_share": 0.99, "trained_adapters": 0,
               "frozen_adapters": 0, "frozen_gains_new": 1} | figures  # fmt: skip
    columns = {f"model/{name}": (numpy.array([0]), numpy.array([float(value)])) for name, value in figures.items()}
    (one,) = findings([FrozenGroup()], columns, facts={"config": config}).values()
    assert one.severity == severity
    if severity == "warning":
        assert one.causes[0].startswith("layer frozen")


@pytest.mark.parametrize(
    ("config", "severity"),
    [({}, "warning"), ({"frozen_stem": True}, "info"), ({"freeze": "stem"}, "info"),
     ({"frozen_stem": False}, "warning"), ({"freeze_head": True}, "warning"),
     ({"unfreeze_stem": 3}, "info"), ({"frozen": 2}, "warning"), ({"kept_fixed": "stem"}, "info"),
     ({"kept_fixed": "stem.0, stem.2"}, "info"), ({"kept_fixed": "stem.0"}, "warning"),
     ({"tune": "stem"}, "warning")],
)  # fmt: skip
def test_layers_that_the_configuration_names_as_frozen_inform(config: dict, severity: str) -> None:
    figures = {"trained_parameters": 10, "frozen_parameters": 4, "trained_adapters": 0, "frozen_adapters": 0,
               "frozen_first_as_drawn": 2}  # fmt: skip
    columns = {f"model/{name}": (numpy.array([0]), numpy.array([float(value)])) for name, value in figures.items()}
    event = Record("model", 0, 0, {"frozen": "stem.0, stem.2"})
    (one,) = findings([FrozenGroup()], columns, facts={"config": config}, events=[event]).values()
    assert one.severity == severity


@pytest.mark.parametrize(
    ("config", "severity"),
    [({"freeze": "layers.0"}, "info"), ({"freeze": "base, layers.0"}, "info"), ({"freeze": "base"}, "warning"),
     ({"freeze_layers": True}, "warning"), ({"layers": "layers.0"}, "warning"), ({}, "warning"),
     ({"not_adapted": "layers.0"}, "info"), ({"lora.exclude_modules": ["embed", "layers.0"]}, "info"),
     ({"keep_fixed": "layers"}, "warning"), ({"adapted": "layers.0"}, "warning"), ({"notes": "layers.0"}, "warning"),
     ({"not_adapted": ""}, "warning"), ({"prefix": "layers.0"}, "warning")],
)  # fmt: skip
def test_adapters_of_layers_that_an_option_freezes_by_name_inform(config: dict, severity: str) -> None:
    figures = {"trained_parameters": 8, "frozen_parameters": 40, "trained_adapters": 8, "frozen_adapters": 8,
               "zero_adapters": 4}  # fmt: skip
    columns = {f"model/{name}": (numpy.array([0]), numpy.array([float(value)])) for name, value in figures.items()}
    event = Record("model", 0, 0, {"frozen": "embed.weight, layers.0, layers.1.qkv.base"})
    (one,) = findings([FrozenGroup()], columns, facts={"config": config}, events=[event]).values()
    assert one.severity == severity


@pytest.mark.parametrize(
    ("config", "share", "warns"),
    [({"freeze": "patches"}, 0.9, True), ({"freeze_patches": True}, 0.9, True), ({"trainable": "head"}, 0.9, True),
     ({"lock_image": True}, 0.9, True), ({"lock_text": True}, 0.9, False), ({"freeze_body": True}, 0.9, False),
     ({"freeze": "all but patches"}, 0.9, False), ({"freeze_patches": False}, 0.9, False),
     ({"freeze": 2}, 0.9, False),
     ({"train": "patches"}, 0.9, False), ({"freeze_norm": True}, 0.9, False), ({"freeze": "patches"}, 0.01, False)],
)  # fmt: skip
def test_a_part_that_the_configuration_names_and_that_is_not_so_warns(config: dict, share: float, warns: bool) -> None:
    figures = {"trained_parameters": 10, "frozen_parameters": 30, "trained_adapters": 0, "frozen_share": share}
    columns = {f"model/{name}": (numpy.array([0]), numpy.array([float(value)])) for name, value in figures.items()}
    event = Record("model", 0, 0, {
        "frozen": "body.0, body.1, text", "parts_trained": "patches, patches.norm, visual",
        "parts_frozen": "body, text, text.table, head",
    })  # fmt: skip
    (one,) = findings([FrozenGroup()], columns, facts={"config": config}, events=[event]).values()
    assert one.severity == ("warning" if warns else "info")


@pytest.mark.parametrize(
    ("config", "trained", "frozen", "warns"),
    [
        ({"freeze": "backbone"}, "backbone.norm, head", "", False),  # its numbered blocks have no names here
        ({"freeze": "backbone"}, "backbone, backbone.norm", "head", True),
        ({"backbone_frozen": True}, "backbone", "head", True),
        ({"lock_text": True}, "visual, text_projection", "transformer, token_embedding", False),
        ({"freeze_vision": True}, "vision_tower, vision_tower.norm", "language_model", True),
        ({"trainable": "head"}, "classifier", "backbone, backbone.head", False),  # a pretrained backbone's own
        ({"trainable": "head"}, "backbone", "head", True),
        ({"frozen_eval": "head"}, "head", "backbone", False),
        ({"eval_frozen_head": True}, "head", "backbone", False),
        ({"data.train": "text"}, "visual", "text", False),
        ({"train": "shards/text/a"}, "visual", "text", False),
        ({"train": "text"}, "visual", "text", False),
        ({"trainable": "text"}, "visual", "text", True),
        ({"trainable": "adapters,norm"}, "adapters, norm", "backbone", False),
        ({"freeze_bn": True, "freeze_layers": 4, "train_head_only": True}, "bn, head", "layers", False),
        ({"train_vectors": True}, "rnn, tag", "words", True),
        ({"train_vectors": True}, "words, rnn, tag", "places", False),
        ({"train_vectors": True}, "rnn, tag, vectors", "words", False),
    ],
)
def test_what_an_option_names_is_a_part_as_a_whole(config: dict, trained: str, frozen: str, warns: bool) -> None:
    figures = {"trained_parameters": 10, "frozen_parameters": 30, "trained_adapters": 0, "frozen_share": 0.5}
    columns = {f"model/{name}": (numpy.array([0]), numpy.array([float(value)])) for name, value in figures.items()}
    event = Record("model", 0, 0, {"frozen": "a.0, b.1", "parts_trained": trained, "parts_frozen": frozen})
    (one,) = findings([FrozenGroup()], columns, facts={"config": config}, events=[event]).values()
    assert one.severity == ("warning" if warns else "info")


@pytest.mark.parametrize(
    ("config", "figures", "warns"),
    [
        ({"train_embeddings": True}, {}, True),
        ({"embed_trainable": True}, {}, True),
        ({"train_vectors": True}, {}, True),  # those of words, which are loaded
        ({"freeze_glove": False}, {}, True),
        ({"train_vectors": False}, {}, False),
        ({"vectors": "glove", "train_words": True}, {}, False),
        ({"freeze_embed": False}, {}, True),
        ({"train_embeddings": False}, {}, False),
        ({"train_embeddings": 1}, {}, False),
        ({"freeze_embed": True}, {}, False),
        ({"freeze_embed": 0}, {}, False),
        ({"unfreeze_at": 200, "train_embeddings": True}, {}, False),  # later
        ({"train_embeddings": True}, {"trained_adapters": 8.0}, False),
        ({"train_embeddings": True}, {"frozen_share": 0.01}, False),
        ({"train_head": True}, {}, False),
        ({"embed": True}, {}, False),
    ],
)
def test_a_part_that_an_option_has_trained_and_that_is_frozen_warns(
    config: dict, figures: dict[str, float], warns: bool
) -> None:
    """One table alone, with vectors that were loaded: what it was drawn like says nothing."""
    every = {"trained_parameters": 27.0, "frozen_parameters": 1.0, "trained_adapters": 0.0, "frozen_share": 0.16}
    columns = {f"model/{name}": (numpy.array([0]), numpy.array([value])) for name, value in (every | figures).items()}
    event = Record("model", 0, 0, {"frozen": "embed.weight", "parts_trained": "layers, head", "parts_frozen": "embed"})
    (one,) = findings([FrozenGroup()], columns, facts={"config": config}, events=[event]).values()
    assert one.severity == ("warning" if warns else "info")


@pytest.mark.parametrize(
    ("config", "warns"),
    [
        ({"target_modules": "proj qkv"}, True),
        ({"lora": {"target_modules": ["proj", "qkv"]}}, True),
        ({"target_modules": "proj"}, False),
        ({"target_modules": ["proj", "query"]}, False),  # of other models
        ({"target_modules": ["value", "qkv"]}, False),  # adapters that something else has put in
        ({"target_modules": "all-linear"}, False),
        ({}, False),
    ],
)
def test_layers_that_are_to_have_adapters_and_have_none_warn(config: dict, warns: bool) -> None:
    figures = {"trained_parameters": 4, "frozen_parameters": 28, "trained_adapters": 4, "frozen_share": 0.9}
    columns = {f"model/{name}": (numpy.array([0]), numpy.array([float(value)])) for name, value in figures.items()}
    event = Record("model", 0, 0, {"frozen": "a.0", "adapted_layers": "proj", "bare_layers": "qkv, up"})
    (one,) = findings([FrozenGroup()], columns, facts={"config": config}, events=[event]).values()
    assert one.severity == ("warning" if warns else "info")


def test_blocks_behind_what_is_trained_are_never_frozen_on_purpose_in_a_preference() -> None:
    figures = {"trained_parameters": 10, "frozen_parameters": 30, "trained_adapters": 0, "frozen_blocks": 2}
    columns = {f"model/{name}": (numpy.array([0]), numpy.array([float(value)])) for name, value in figures.items()}
    for margins, severity in (({"rewards/margins": numpy.zeros(4)}, "warning"), ({}, "info")):
        (one,) = only(findings([FrozenGroup()], columns | margins), "frozen_group")
        assert one.severity == severity
    for option, severity in (({"hold_layers": 1}, "info"), ({"hold_layers": 0}, "warning")):
        facts = {"config": option}
        (one,) = only(
            findings([FrozenGroup()], columns | {"rewards/margins": numpy.zeros(4)}, facts=facts), "frozen_group"
        )
        assert one.severity == severity


def test_layers_frozen_from_the_start_and_experts_without_tokens_inform() -> None:
    rows = blocks() | {"embedding.weight": [0.0] * 20}
    (one,) = only(findings([FrozenLayers()], table("gradients", "norm", rows)), "frozen_layer")
    assert (one.severity, one.key) == ("info", "start")
    rows = blocks() | {f"moe.experts.{at}": [0.2] * 12 + [0.0] * 8 for at in range(2)}
    assert {one.severity for one in findings([FrozenLayers()], table("gradients", "norm", rows)).values()} <= {"info"}


def test_a_model_that_stands_still_as_a_whole_has_no_frozen_layer() -> None:
    rows = {name: [*values[:10], *[0.0] * 10] for name, values in blocks().items()}
    assert not findings([FrozenLayers()], table("gradients", "norm", rows))


def test_weights_and_moments_that_are_no_numbers_are_critical() -> None:
    norms = noisy(100, 20, 0.001)
    norms[70:] = NAN
    (one,) = only(findings([WeightNonFinite()], {"model/param_norm": norms}), "weight_non_finite")
    assert (one.severity, one.step, one.kind) == ("critical", 70, "nonfinite")
    rows = table("weights", "nan", {"h.0.up": [0, 0, 5.0], "h.1.up": [0, 0, 0]}) | table(
        "optimizer", "non_finite", {"h.0.up": [0, 1.0, 2.0]}
    )
    assert {(one.key, one.step) for one in findings([WeightNonFinite()], rows).values()} == {
        ("weights", 20),
        ("optimizer", 10),
    }
    assert not findings([WeightNonFinite()], {"model/param_norm": numpy.full(50, NAN)})


def test_weights_that_grow_suddenly_warn_and_layers_that_begin_at_zero_do_not() -> None:
    norms = 20 + numpy.arange(100) * 0.01
    norms[60:] *= 3
    (one,) = only(findings([WeightNormGrowth()], {"model/param_norm": norms}), "weight_norm_growth")
    unfrozen = {"model/trained_elements": (numpy.array([0, one.step]), numpy.array([300.0, 4000.0]))}
    assert not findings([WeightNormGrowth()], {"model/param_norm": norms} | unfrozen)
    assert (one.severity, one.step, one.kind) == ("warning", 60, "weight_growth")
    steps = numpy.arange(100)
    for second in (steps % 5 == 0, (steps == 4) | (steps % 40 == 30)):  # of two that step by turns, the norm of one
        assert not findings([WeightNormGrowth()], {"model/param_norm": numpy.where(second, 10.0, 6.0)})
    rows = {f"h.{at}.up": [3.0, 3.1, 3.2, 40.0 if at == 1 else 3.3] for at in range(4)}
    (one,) = only(findings([WeightNormGrowth()], table("weights", "norm", rows)), "weight_norm_growth")
    assert (one.key, one.step, one.evidence["layers"]) == ("sudden", 30, ["h.1.up"])
    adapters = {f"h.{at}.a": [3.0] * 5 for at in range(4)} | {f"h.{at}.b": [1e-4, 0.1, 0.5, 1, 2] for at in range(4)}
    assert not findings([WeightNormGrowth()], table("weights", "norm", adapters))
    larger = {f"h.{at}.a": [3.0] * 5 for at in range(4)} | {f"h.{at}.b": [0.03, 4.5, 5, 5, 5] for at in range(4)}
    assert not findings([WeightNormGrowth()], table("weights", "norm", larger)), "half of all are as small at first"
    zeros = {f"h.{at}.up": [0.1, 0.3, 4.0 if at == 1 else 2.5, 4, 5] for at in range(4)}
    assert not findings([WeightNormGrowth()], table("weights", "norm", zeros)), "one of them is first"
    every = {f"h.{at}.up": [0.03, 4.5, 5, 5, 5] for at in range(4)}
    assert findings([WeightNormGrowth()], table("weights", "norm", every))


@pytest.mark.parametrize(("loss", "severity"), [(2.6, "info"), (3.9, "warning"), (9.0, "warning"), (NAN, "warning")])
def test_small_weights_that_grow_together_while_the_loss_falls_have_learnt(loss: float, severity: str) -> None:
    every = {f"h.{at}.up": [0.03, 0.03, 4.5, 5, 5] for at in range(4)}
    losses = {"train/loss": numpy.where(numpy.arange(50) < 14, 4.1, loss)}
    (one,) = only(findings([WeightNormGrowth()], table("weights", "norm", every) | losses), "weight_norm_growth")
    assert (one.key, one.step, one.severity) == ("sudden", 20, severity)
    rows = {f"h.{at}.up": [3.0, 3.1, 40.0 if at == 1 else 3.2] for at in range(4)}
    (one,) = only(findings([WeightNormGrowth()], table("weights", "norm", rows) | losses), "weight_norm_growth")
    assert one.severity == "warning", "one of them alone"


def test_weights_that_grow_all_along_do_not_jump_where_looks_are_far_apart() -> None:
    steps = numpy.array([*range(0, 90, 5), 140, 145])
    for far, found in ((0.06 * 55, False), (6.0, False), (40.0, True)):
        norms = 4 + 0.06 * steps.astype(float)
        norms[-2:] = norms[-3] + far
        given = {"model/param_norm": (steps, norms)}
        assert bool(findings([WeightNormGrowth()], given)) == found


def test_layers_whose_weights_part_warn() -> None:
    rows = {f"h.{at}.up": [3.0, 3.0, 3.0 * 8.0 ** (at - 2), 3.0 * 30.0 ** (at - 2)] for at in range(4)}
    assert any(one.key == "apart" for one in findings([WeightNormGrowth()], table("weights", "norm", rows)).values())


def test_a_lost_rank_informs_and_warns_where_the_loss_is_worse() -> None:
    rows = table("spectral", "stable_rank", {"h.0.up": [30.0] * 6 + [1.2] * 4})
    (one,) = only(findings([SpectralChange()], rows | {"train/loss": noisy(100, 3, 0.01)}), "spectral_change")
    assert (one.severity, one.step) == ("info", 60)
    worse = {"train/loss": numpy.where(numpy.arange(100) < 62, 3.0, 4.0)}
    (one,) = only(findings([SpectralChange()], rows | worse), "spectral_change")
    assert one.severity == "warning"


TABLES = (("gradients", "/norm"), ("updates", "/ratio"), ("weights", "/norm"), ("weights", "/nan"), ("weights", "/inf"),
          ("spectral", "/norm"), ("spectral", "/stable_rank"), ("optimizer", "/non_finite"))  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_random_columns_give_the_same_in_pieces_and_never_raise(seed: int) -> None:
    names = ("train/loss", "train/lr", "model/param_norm", "model/non_finite_weights")
    tables = [f"{what}/h.{at}.w" + of for at in range(3) for what, of in TABLES]
    same_when_cut(RULES, random_columns(seed, names, tables, ("model/non_finite_weights",)), seed)
