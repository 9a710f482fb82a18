"""Keys of configurations, facts of runs, and what counts as a change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from compared_runs import make_run
from hypothesis import given
from hypothesis import strategies as st

from barograph.analysis.compare.difference import differences
from barograph.analysis.compare.facts import RunFacts, gather
from barograph.query.keys import flatten, part_of, plain, same, shown


@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("plan.seed", "seed"), ("data_seed", "seed"), ("seed_everything", "seed"), ("wandb.project", "bookkeeping"),
        ("out_dir", "bookkeeping"), ("checkpoint_every", "bookkeeping"), ("activation_checkpointing", "plain"),
        ("val data pattern", "validation"), ("train data pattern", "data"), ("total batch size", "batch"),
        ("vocab_size V", "tokenizer"), ("padded_vocab_size Vp", "plain"), ("val_loss_every", "bookkeeping"),
        ("eval_iters", "validation"), ("block_size", "sequence"), ("max_steps", "length"), ("warmup_steps", "plain"),
        ("num_parameters", "consequence"), ("optimizer.name", "plain"), ("run_name", "bookkeeping"),
        ("tokenizer.path", "tokenizer"), ("data.path", "data"), ("learningRate", "plain"), ("zero_stage", "layout"),
        ("label_smoothing", "loss"), ("dataloader_num_workers", "speed"), ("gradient_accumulation_steps", "batch"),
    ],
)  # fmt: skip
def test_what_a_key_is_about(key: str, part: str) -> None:
    assert part_of(key) == part


def test_numbers_in_text_are_numbers_and_hashes_are_not() -> None:
    assert plain("6.000000e-04") == 0.0006
    assert plain("32") == 32 and isinstance(plain("32"), int)
    assert plain("00012345678901234567890") == "00012345678901234567890"
    assert plain("abc") == "abc"
    assert plain([1, {"a": 2}]) == '[1, {"a": 2}]'


def test_equal_values() -> None:
    assert same(1, 1.0) and same(float("nan"), float("nan")) and same("a", "a")
    assert not same(True, 1) and not same("1", 1) and not same(None, 0)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=6))
def test_any_configuration_is_flat_and_shown(config: dict[str, Any]) -> None:
    flat = flatten(config)
    for key, value in flat.items():
        assert part_of(key)
        assert same(value, plain(value)) or isinstance(value, str)
        assert len(shown(value)) <= 200


def facts(config: dict[str, Any], **values: Any) -> RunFacts:
    made = RunFacts({("config", key): value for key, value in flatten(config).items()}, {"config"} if config else set())
    for part, content in values.items():
        made.known.add(part)
        made.values.update({(part, key): value for key, value in content.items()})
    return made


def test_seeds_names_and_consequences_are_no_changes() -> None:
    one = {"lr": 0.1, "seed": 1, "run_name": "a", "num_parameters": 10}
    found = differences([[facts(one)], [facts(one | {"seed": 2, "run_name": "b", "num_parameters": 20, "lr": 0.2})]])
    assert found.changes == ["lr"]
    assert {each.key for each in found.between} == {"lr", "seed", "run_name", "num_parameters"}


def test_all_packages_are_one_change_and_others_none() -> None:
    one = facts({"lr": 1}, packages={"torch": "2.1", "numpy": "1", "rich": "1"})
    other = facts({"lr": 1}, packages={"torch": "2.2", "numpy": "2", "rich": "2"})
    assert differences([[one], [other]]).changes == ["packages"]
    third = facts({"lr": 1}, packages={"torch": "2.1", "numpy": "1", "rich": "9"})
    assert differences([[one], [third]]).changes == []


def test_a_batch_cut_up_in_another_way_is_no_change() -> None:
    one, other = facts({"batch_size": 8, "grad_accum_steps": 2}), facts({"batch_size": 16, "grad_accum_steps": 1})
    one.batch_tokens = other.batch_tokens = 16384
    assert differences([[one], [other]]).changes == []
    other.batch_tokens = 8192
    assert differences([[one], [other]]).changes == ["batch_size", "grad_accum_steps"]


def test_what_one_side_does_not_know_is_not_said_to_differ() -> None:
    found = differences([[facts({"lr": 1}, packages={"torch": "2"})], [facts({"lr": 1})]])
    assert found.unknown["packages"] == [1] and found.between == []
    assert "config" in found.same


def test_what_varies_within_a_side_is_named() -> None:
    found = differences([[facts({"lr": 1, "wd": 0.1}), facts({"lr": 1, "wd": 0.2})], [facts({"lr": 2, "wd": 0.1})]])
    assert list(found.within) == ["wd"]


def test_the_batch_in_tokens_is_read_from_configurations(tmp_path: Path) -> None:
    def tokens(**config: Any) -> float | None:
        run = make_run(tmp_path, f"r{len(list(tmp_path.glob('p/*')))}", config=config, steps=1)
        return gather(run).batch_tokens

    assert tokens(batch_size=8, block_size=128, gradient_accumulation_steps=4) == 4096
    assert tokens(total_batch_size=524288, device_batch_size=32, max_seq_len=2048) == 524288
    assert tokens(global_batch_size=64, seq_len=1024) == 65536
    assert tokens(per_device_train_batch_size=2, world_size=4, seq_len=100) == 800
    assert tokens(batch_size=8) is None


def test_diffs_are_told_apart_by_their_content(tmp_path: Path) -> None:
    def diff(line: str, at: int) -> str:
        return f"diff --git a/train.py b/train.py\n--- a/train.py\n+++ b/train.py\n@@ -{at},1 +{at},1 @@\n-x\n+{line}\n"

    git = {"commit": "c" * 40, "dirty": True}
    runs = [
        make_run(
            tmp_path, f"r{at}", steps=1, config={"lr": 1}, about={"git": git | {"diff": text}, "repo_commit": "c" * 40}
        )
        for at, text in enumerate([diff("y", 1), diff("y", 9), diff("z", 1)])
    ]
    a, moved, other = map(gather, runs)
    assert a.code_files == moved.code_files
    found = differences([[a], [other]])
    assert found.changes == ["the code"] and found.files == ["train.py"]
