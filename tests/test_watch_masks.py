"""What the watch sees of attention masks: those that are missing, off by one, inverted, and those that are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_columns import findings

import barograph
from barograph.doctor import diagnose
from barograph.doctor.rules.data.examples import PaddingMask

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from barograph.probes.model import attention  # noqa: E402
from barograph.probes.model.activations import ActivationWatch, _each, _inputs, _tokens  # noqa: E402
from barograph.probes.model.forward import ForwardSigns  # noqa: E402
from barograph.probes.model.padding import tails  # noqa: E402

PLACES = 12


def upper(diagonal: int) -> Any:
    return torch.triu(torch.ones(PLACES, PLACES, dtype=torch.bool), diagonal)


MASKS: dict[str, Any] = {
    "causal": upper(1), "none": None, "off by one": upper(2), "inverted": upper(0).T.tril(-1),
    "as numbers": torch.zeros(PLACES, PLACES).masked_fill(upper(1), -torch.inf),
    "of -1e9": torch.zeros(PLACES, PLACES).masked_fill(upper(1), -1e9),
    "of -1e4": torch.zeros(PLACES, PLACES).masked_fill(upper(1), -1e4),
}  # fmt: skip


class Texts(nn.Module):
    """Two of torch's own layers; a mask of the causal kind, and one of padding."""

    def __init__(self, masks: tuple[Any, Any], padding: str = "none"):
        super().__init__()
        self.words, self.head, self.padding = nn.Embedding(30, 16), nn.Linear(16, 30), padding
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True) for _ in range(2))
        self.masks = masks

    def forward(self, tokens: Any) -> Any:
        hidden = {"none": None, "right": tokens == 0, "inverted": tokens != 0}[self.padding]
        stream = self.words(tokens)
        for block, mask in zip(self.blocks, self.masks, strict=True):
            stream = block(stream, src_mask=mask, src_key_padding_mask=hidden)
        return self.head(stream)


class Pairs(nn.Module):
    """An encoder and a decoder."""

    def __init__(self, mask: Any):
        super().__init__()
        self.words, self.head, self.mask = nn.Embedding(30, 16), nn.Linear(16, 30), mask
        self.both = nn.Transformer(16, 2, 1, 1, 32, 0.0, batch_first=True)

    def forward(self, source: Any, target: Any) -> Any:
        padding = source == 0
        return self.head(
            self.both(
                self.words(source), self.words(target), tgt_mask=self.mask, src_key_padding_mask=padding,
                memory_key_padding_mask=padding,
            )
        )  # fmt: skip


def texts(rows: int = 16, places: int = PLACES + 1, padded: bool = False) -> Any:
    tokens = torch.randint(1, 30, (rows, places))
    if padded:
        tokens[torch.arange(places)[None] >= 5 + torch.arange(rows)[:, None] % 6] = 0
    return tokens


def train(folder: Path, model: Any, padded: bool = False, pairs: bool = False, **watched: Any) -> dict[str, Any]:
    """Findings by rule."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    quiet: dict[str, Any] = {"console": "none", "machine": False, "sidecar": False, "git": False}
    run = barograph.init(project="p", name="n", dir=str(folder), **quiet)
    run.watch(model, optimizer, **({"activations": 5} | watched))
    for step in range(24):
        tokens = texts(padded=padded)
        given = (texts(places=PLACES, padded=True), tokens[:, :-1]) if pairs else (tokens[:, :-1],)
        loss = functional.cross_entropy(model(*given).flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()}, step=step)
    run.finish()
    judged = diagnose(barograph.StoredRun(run.dir))["findings"]
    return {part["rule"]: part for one in judged for part in (*one["evidence"].get("story", ()), one)}


@pytest.mark.parametrize("kind", MASKS)
def test_what_a_mask_of_torchs_own_layers_shows_is_seen(kind: str) -> None:
    model = Texts((MASKS[kind], MASKS[kind])).train()
    watch = ActivationWatch(model)
    model(texts(places=PLACES))
    figures = {name: float(value) for name, value in watch.collect()[""].items()}
    wanted = {"none": (1, 1, 1), "off by one": (11 / 66, 1, 1), "inverted": (1, 1, 0)}.get(kind, (0, 0, 1))
    names = ("attention/later", "attention/next", "attention/earlier")
    assert tuple(figures[name] for name in names) == pytest.approx(wanted, abs=1e-6)
    assert figures["attention/logit_max"] > 0 and 0 < figures["attention/entropy"] <= 1


def test_scores_of_torchs_own_layers_are_those_that_their_weights_give() -> None:
    model = Texts((MASKS["causal"], None)).train()
    watch = ActivationWatch(model)
    tokens = texts(2, PLACES)
    model(tokens)
    block: Any = model.blocks[0]
    _, weights = block.self_attn(*[model.words(tokens)] * 3, attn_mask=MASKS["causal"], average_attn_weights=False)
    entropy = torch.special.entr(weights).sum(-1)[..., 1:] / torch.arange(2, PLACES + 1).log()
    assert float(watch.collect()["blocks.0"]["attention_entropy"]) == pytest.approx(
        float(entropy.detach().mean()), rel=1e-4
    )


@pytest.mark.parametrize(
    ("masks", "cause"),
    [
        (("causal", "causal"), ""),
        (("as numbers", "as numbers"), ""),
        (("of -1e9", "of -1e4"), ""),
        (("none", "none"), "no causal mask"),
        (("off by one", "off by one"), "off by one"),
        (("inverted", "inverted"), "inverted"),
        (("causal", "none"), "no causal mask"),  # given to the first layer alone
    ],
)
def test_a_layer_that_shows_the_next_token_is_found(tmp_path: Path, masks: tuple[str, str], cause: str) -> None:
    found = train(tmp_path, Texts((MASKS[masks[0]], MASKS[masks[1]])))
    assert ("later_tokens" in found) == bool(cause)
    if cause:
        assert cause in str(found["later_tokens"]["causes"][0]) and found["later_tokens"]["step"] <= 10


@pytest.mark.parametrize("kind", ["causal", "none"])
def test_a_decoder_without_a_causal_mask_is_found_behind_an_encoder(tmp_path: Path, kind: str) -> None:
    assert ("later_tokens" in train(tmp_path, Pairs(MASKS[kind]), pairs=True)) == (kind == "none")


@pytest.mark.parametrize(
    ("padding", "masks", "severity"),
    [
        ("right", (None, None), None),
        ("inverted", (None, None), "warning"),
        ("none", (None, None), "info"),
        ("none", (MASKS["causal"], MASKS["causal"]), None),  # padding comes last, and is hidden from all before it
    ],
)
def test_a_mask_of_padding_is_seen_to_be_inverted(
    tmp_path: Path, padding: str, masks: tuple[Any, Any], severity: str | None
) -> None:
    found = train(tmp_path, Texts(masks, padding), padded=True).get("padding_mask")
    assert (found and found["severity"]) == severity


@pytest.mark.parametrize(
    ("given", "index", "told"),
    [("right", 0, False), ("inverted", 0, True), ("none", 0, False), ("inverted", None, False), ("right", 29, False)],
)
def test_a_mask_of_few_places_is_seen_to_be_inverted_by_the_padding_of_the_table(
    given: str, index: int | None, told: bool
) -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.letters = nn.Embedding(30, 16, padding_idx=index), nn.Embedding(30, 16)
            self.both = nn.Transformer(16, 2, 1, 1, 32, 0.0, batch_first=True)

        def forward(self, source: Any, target: Any) -> Any:
            hidden = {"none": None, "right": source == 0, "inverted": source != 0}[given]
            return self.both(self.words(source), self.letters(target), src_key_padding_mask=hidden,
                             memory_key_padding_mask=hidden, tgt_key_padding_mask=target == 0)  # fmt: skip

    source, target = torch.tensor([[3, 4, 5, 2, 6], [3, 2, 0, 0, 0], [3, 4, 2, 0, 0]]), texts(3, 9, padded=True)
    target[:, 6:] = 0
    model = Pair().train()
    watch = ActivationWatch(model)
    model(source, target)
    assert (float(watch.collect()[""].get("attention/inverted", torch.nan)) >= 0.9) == told


@pytest.mark.parametrize(("padding", "severity"), [("inverted", "warning"), ("right", None), ("none", "info")])
def test_masks_are_seen_in_the_second_step_however_rarely_activations_are_looked_at(
    tmp_path: Path, padding: str, severity: str | None
) -> None:
    found = train(tmp_path, Texts((None, None), padding), padded=True, activations=1000, budget=1e-4).get(
        "padding_mask"
    )
    assert (found and (found["severity"], found["step"])) == (severity and (severity, 1))


def test_the_early_look_is_one_and_tells_what_no_weights_change() -> None:
    model = Texts((MASKS["causal"], None), "right").train()
    watch, tokens = ActivationWatch(model), texts(places=PLACES, padded=True)
    seen = []
    for _ in range(4):
        watch.arm(False)
        model(tokens)
        seen.append(watch.early())
    first, second, *rest = seen
    assert not first and not any(rest)
    assert float(second["attention/seen_padding"]) == float(second["attention/hidden_tokens"]) == 0
    assert float(second["detached"]) == 0 and not {"attention/logit_max", "attention/entropy"} & set(second)
    assert not watch.collect(), "and leaves nothing for what is looked at later"


@pytest.mark.parametrize("before", ["on", "evaluated"])
def test_an_early_look_is_of_a_pass_of_the_training(before: str) -> None:
    model = Texts((MASKS["causal"], None)).train(before != "evaluated")
    watch, tokens = ActivationWatch(model), texts(places=PLACES)
    for step in range(3):
        watch.arm(before == "on" and not step)
        model(tokens)
        assert not watch.early()


def test_an_early_look_waits_for_a_pass_with_gradients() -> None:
    model = Texts((MASKS["causal"], None)).train()
    watch, tokens = ActivationWatch(model), texts(places=PLACES)
    for _ in range(2):
        watch.arm(False)
        with torch.no_grad():
            model(tokens)
        assert not watch.early()
    model(tokens)
    assert "detached" in watch.early()


def test_texts_within_a_mapping_are_found() -> None:
    tokens = texts()
    given = ({"words": tokens, "mask": tokens}, tokens)
    assert len(_tokens(tuple(_each(given)))) == 2


def test_keys_that_other_queries_see_are_not_said_to_be_hidden() -> None:
    """A window over a long text: its last queries see the padding at its end."""
    tokens = torch.cat([torch.randint(1, 30, (4, 350)), torch.zeros(4, 50, dtype=torch.long)], 1)
    away = torch.arange(400)[:, None] - torch.arange(400)
    scores = torch.zeros(4, 1, 400, 400).masked_fill((away < 0) | (away >= 16), -torch.inf)
    look = attention.AttentionLook([tokens], 0, [tokens])
    with attention.watch(look, ForwardSigns()):
        scores.softmax(-1)
    assert not look.inverted and len(look.padding) == 1


def test_rows_of_one_token_over_and_over_are_not_sure_to_be_padding() -> None:
    padded = texts(8, padded=True)
    assert bool(tails(padded)[1]) and bool((tails(padded)[0] == (padded == 0)).all())
    written = texts(8, padded=True)
    written[0, :4] = 0
    assert not bool(tails(written)[1])
    assert not bool(tails(texts(8))[1])


@pytest.mark.parametrize(("places", "found"), [("zero", True), ("each", False), ("offset", False), ("single", False)])
def test_a_table_of_positions_that_is_asked_for_one_place_is_found(places: str, found: bool) -> None:
    class Placed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.pos = nn.Embedding(30, 16), nn.Embedding(40, 16)
            self.language = nn.Embedding(20, 16)  # one in a batch: no positions

        def forward(self, tokens: Any) -> Any:
            count = torch.arange(tokens.shape[1])
            asked = {"zero": count * 0, "each": count, "offset": count + 2, "single": count[:1]}[places]
            return self.words(tokens) + self.pos(asked) + self.language(tokens * 0)

    model = Placed().train()
    watch = ActivationWatch(model)
    model(texts(places=PLACES))
    assert float(watch.collect().get("", {}).get("one_place", 0.0)) == float(found)


def test_attention_across_is_seen_behind_what_mends_its_numbers() -> None:
    class Across(nn.Module):
        def forward(self, stream: Any) -> Any:
            scores = (stream @ stream.transpose(1, 2)).masked_fill(upper(1), -torch.inf)
            return torch.nan_to_num(scores.softmax(1)) @ stream

    model = Across().train()
    watch = ActivationWatch(model)
    model(torch.randn(2, PLACES, 4, requires_grad=True))
    assert float(watch.collect()[""]["softmax_across"]) == 1


@pytest.mark.parametrize("least", [-torch.inf, -1e4, -1e9, torch.finfo(torch.float32).min])
def test_scores_that_are_filled_by_hand_hide_what_they_hide(least: float) -> None:
    class Own(nn.Module):
        def forward(self, stream: Any) -> Any:
            scores = (stream @ stream.transpose(-1, -2)).masked_fill(upper(1), least)
            return scores.softmax(-1) @ stream

    model = Own().train()
    watch = ActivationWatch(model)
    model(torch.randn(2, 2, PLACES, 4))
    figures = watch.collect()[""]
    assert (float(figures["attention/later"]), float(figures["attention/next"])) == (0, 0)


def test_masks_and_labels_that_are_given_by_name_are_not_taken_for_tokens() -> None:
    tokens, mask = texts(), torch.ones(16, PLACES + 1, dtype=torch.long)
    named = {"input_ids": tokens, "attention_mask": mask, "labels": tokens.clone(), "decoder_input_ids": texts(2, 9)}
    (first, second) = _tokens((*_inputs(named),))
    assert torch.equal(first, tokens) and second.shape == (2, 9)


@pytest.mark.parametrize("cuts", [range(100), [45, 55]])
def test_which_of_two_figures_tells_of_an_inverted_mask_is_the_same_live_and_later(cuts: Any) -> None:
    step = np.arange(0.0, 100.0, 10.0)
    columns = {
        "model/attention/seen_padding": (step, np.where(step < 60, 0.0, 0.95)),
        "model/attention/hidden_tokens": (step, np.full(10, 0.95)),
        "model/attention/inverted": (step, np.where(step < 40, 0.0, 0.95)),
    }
    (whole,), (pieces,) = (findings([PaddingMask()], columns, **one).values() for one in ({}, {"cuts": cuts}))
    assert whole.found == pieces.found == 40 and whole.message == pieces.message
