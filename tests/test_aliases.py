"""Names become canonical where that is certain, and stay what they are where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from barograph.core.aliases import (
    ALIASES,
    CONVERTED,
    Alias,
    AliasError,
    Names,
    normal,
    parse_aliases,
    read_aliases,
)

WORDS = some.sampled_from([*ALIASES, *(one for names in ALIASES.values() for one in names), "foo", "mfu", "x#2", "x"])


@pytest.mark.parametrize(
    ("original", "canonical"),
    [
        ("loss", "train/loss"), ("Train Loss", "train/loss"), ("lm loss", "train/loss"), ("val_loss", "eval/loss"),
        ("grad-norm", "train/norm"), ("Learning Rate", "train/lr"), ("tok/sec", "train/tokens_per_second"),
        ("train/loss", "train/loss"), ("foo/bar", "foo/bar"), ("losses_of_sleep", "losses_of_sleep"),
    ],
)  # fmt: skip
def test_a_name_that_tools_use_becomes_canonical(original: str, canonical: str) -> None:
    assert Names().canonical(original) == Alias(canonical)


def test_a_unit_changes_only_where_the_name_says_it() -> None:
    names = Names()
    assert names.canonical("step_time_sec") == Alias("train/duration_ms", 1000.0)
    assert names.canonical("mfu(%)") == Alias("train/mfu", 0.01)
    assert names.canonical("mfu") == Alias("mfu")  # fraction or percent: nobody knows
    assert names.canonical("dt") == Alias("dt")


def test_no_name_stands_for_two_things() -> None:
    seen: dict[str, str] = {}
    for canonical, names in ALIASES.items():
        for name in (*names, *(name for name, _ in CONVERTED.get(canonical, ()))):
            assert seen.setdefault(normal(name), canonical) == canonical, name


def test_what_a_kind_of_source_knows_goes_before_the_general_table() -> None:
    assert Names("huggingface").canonical("train_loss").name == "train/mean_loss"
    assert Names("huggingface").canonical("eval_bleu").name == "eval/bleu"
    assert Names("huggingface").canonical("rewards/margins").name == "rewards/margins"
    assert Names("x", {"loss": ("eval/loss", 2.0)}).canonical("loss") == Alias("eval/loss", 2.0)
    assert Names("wandb_offline").canonical("system.gpu.3.powerWatts") == Alias("gpu/3/power", 1000.0)


def test_a_users_aliases_go_before_all() -> None:
    names = Names("huggingface", {"loss": "eval/loss"}, {"loss": Alias("mine")})
    assert names.of("loss") == Alias("mine") and names.owners == {"mine": "loss"}


@given(some.lists(WORDS, max_size=12))
def test_different_originals_are_different_series_and_the_same_one_always_the_same(originals: list[str]) -> None:
    names = Names()
    first = [names.of(one).name for one in originals]
    assert [names.of(one).name for one in originals] == first
    assert len({*first}) == len({*originals})
    later = Names()
    later.restore(names.owners, names.factors)
    for original, series in zip(originals, first, strict=True):
        if series in names.owners:
            assert later.of(original).name == series


def test_a_block_has_its_factors_in_its_order() -> None:
    series, factors = Names().take(("lr", "step_time_s", "foo"))
    assert series == ("train/lr", "train/duration_ms", "foo") and factors is not None
    assert factors.tolist() == [1.0, 1000.0, 1.0]
    assert Names().take(("lr", "foo"))[1] is None


def test_aliases_come_from_a_file_of_options(tmp_path: Path) -> None:
    path = tmp_path / "barograph.yaml"
    path.write_text(
        "project: x\naliases:\n  train/loss: my_loss\n  eval/loss: [a, b]\n"
        "  train/duration_ms: {name: iter_seconds, factor: 1000}\n"
    )
    assert read_aliases(path) == {
        "my_loss": Alias("train/loss"),
        "a": Alias("eval/loss"),
        "b": Alias("eval/loss"),
        "iter_seconds": Alias("train/duration_ms", 1000.0),
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("aliases: [1]", "no option `aliases`"), ("- a", "no option `aliases`"),
        ("aliases: {train/loss: 3}", "is not an alias"),
        ("aliases: {a: {name: b, factor: c}}", "must be a number"), ("aliases: {a: [b", "line 1 is not valid YAML"),
    ],
)  # fmt: skip
def test_a_wrong_file_of_aliases_is_told_in_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(AliasError, match=sentence):
        read_aliases(path)
    with pytest.raises(AliasError, match="cannot be read"):
        read_aliases(tmp_path / "nothing.yaml")


def test_an_empty_name_is_no_alias() -> None:
    with pytest.raises(AliasError):
        parse_aliases({"": "x"})
