"""Every rule: what it has found after a record depends on the records alone.

Not on where the stream is cut into pieces, nor on how often rules looked, nor on which names were logged in one record.
"""

from __future__ import annotations

import copy
import random
import re
from collections import defaultdict
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rule_columns import random_columns

from barograph.core.record import Record
from barograph.core.roles import ROLES
from barograph.doctor.kernel.examiner import Examiner
from barograph.doctor.kernel.registry import rule_classes
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.outlook import outlook_of

LAYERS = ("h.0.weight", "h.1.weight", "h.2.weight", "h.2.bias")
WITH = ("train/loss", "train/norm", "train/lr", "eval/loss")  # what nearly every rule reads beside its own series
GROUPS = {
    "gpu": ("gpu/0/temperature", "gpu/0/temp_slowdown", "gpu/0/clock", "gpu/0/gpu_util", "gpu/0/throttled",
            "gpu/0/xid_errors", "gpu/0/xid", "gpu/0/ecc_corrected", "host/cpu_util"),
    "ranks": ("ranks/norm/mean", "ranks/norm/max", "ranks/norm/min", "ranks/drifted", "ranks/drifted_rank",
              "ranks/loss/non_finite", "ranks/loss/max_rank"),
    "moe": tuple(f"moe/h.0/load/{expert}" for expert in range(4)),
    "memory": ("memory/num_alloc_retries", "memory/total_gb", "host/memory_limit", "memory/limit_bytes"),
    "rl": ("train/reward", "train/kl", "train/frac_reward_zero_std",
           "train/sampling/sampling_logp_difference/mean", "train/completions/clipped_ratio"),
    "speed": ("speed/step_ms", "sol/tps"),
    "optimizer": ("model/update_p50", "model/param_norm"),
    "data": ("model/output_spread",),
    "eval": ("model/input_mean", "model/eval_input_mean", "model/passes_without_gradients"),
    "loss": ("model/passes", "model/output_width", "model/softmax_twice", "model/half_parameters"),
    "model": ("model/output_width", "model/untied_copy", "model/unreached_share", "model/trained_parameters",
              "model/trained_adapters", "model/frozen_adapters", "model/frozen_share"),
}  # fmt: skip
COUNTERS = ("repeats", "unchanged", "stale_gradients", "drifted", "non_finite", "oom_kills", "non_finite_weights",
            "xid_errors", "non_finite_tokens", "skipped_steps", "ignored_share", "padding_share",
            "gradients_in_evaluation", "stale_statistics", "trained_adapters", "softmax_twice", "sigmoid_twice",
            "target_shift", "untied_copy", "rewards/chosen")  # fmt: skip
EVENTS: dict[str, list[dict[str, Any]]] = {
    "oom": [{"error": "x", "tried_bytes": 1 << 30}],
    "end": [{"status": "failed"}, {"status": "finished"}],
    "hang": [{"waited_seconds": 130}],
    "straggler": [{"rank": 1, "slower_by": 0.2}, {"rank": 1, "slower_by": 0.05}, {"rank": 1, "recovered": True}],
    "stacks": [{"waited_seconds": 130, "where": "data"}, {"resumed": True, "stood_seconds": 200}],
    "ranks": [
        {"absent": [1]},
        {"same_batch": [[0, 1]]},
        {"batch_behind": [[1, 0, 2]]},
        {"drift": [2]},
        {"world_size_before": 4, "world_size": 3},
    ],
}
FACTS: dict[str, Any] = {"config": {"lr": 1e-3, "weight_decay": 0.1, "grad_clip": 1.0, "fp16": True},
                         "planned_steps": 280, "vocabulary": 50257, "world_size": 4, "target_loss": 0.5}  # fmt: skip
RULES = rule_classes()


_LAYER = re.compile(r"h\.\d\.weight|h\.\d\.bias|(?<=load/)\d")


class Row(NamedTuple):
    """A record of the log: its numbers, or an event."""

    step: int
    time: int
    segment: int
    numbers: dict[str, float]
    event: Record | None = None


def series_of(rule: type[Rule]) -> tuple[list[str], list[str], list[str]]:
    """Names of series, of tables' columns, and kinds of events that a rule may read."""
    names, tables, events = [*WITH, *GROUPS.get(rule.family, ())], [], []
    for need in (one.strip() for needs in rule.needs for one in needs.split("|")):
        if need.startswith("="):
            names.append(need[1:])
        elif need.startswith("!"):
            events.append(need[1:])
        elif need in ROLES:
            names.append(ROLES[need][0][0])
        elif "*" in need:
            family, _, quantity = need.partition("/*")
            names += GROUPS.get(family, ()) if not quantity else ()
            tables += [f"{family}/{layer}{quantity}" for layer in LAYERS] if quantity else []
    return list(dict.fromkeys(names)), tables, events


def log_of(rule: type[Rule], seed: int, long: bool = False) -> list[Row]:
    """A log: random columns, the names of a step in up to three records, evaluations in time or late.

    long: of more rows than channels of layers keep, with tables at each step.
    """
    dice = random.Random(seed)
    names, tables, kinds = series_of(rule)
    zero = [name for name in names if name.rsplit("/", 1)[-1] in COUNTERS]
    shape: dict[str, Any] = {"counts": (900,), "every": 1} if long else {}
    columns: dict[str, dict[int, float]] = {}
    for name, column in random_columns(seed, names, tables, zero, **shape).items():
        steps, values = column if isinstance(column, tuple) else (range(len(column)), column)
        columns[name] = dict(zip(map(int, steps), map(float, values), strict=True))
    count = 1 + max((max(column, default=0) for column in columns.values()), default=0)
    # a table is one record, whatever else is
    table_of = {name: _LAYER.sub("*", name) for name in columns}
    of_table = {table: dice.randrange(3) for table in table_of.values()}
    part_of = {name: of_table[table] for name, table in table_of.items()}
    border, late = (150 if seed % 2 else count), seed % 3 == 0
    rows: list[Row] = []
    for step in range(count):
        segment = 1 if step < border else 2
        parts: dict[int, dict[str, float]] = defaultdict(dict)
        for name, column in columns.items():
            if step in column:
                parts[part_of[name]][name] = column[step]
        rows += [Row(step, 1_000_000 * step + part, segment, parts[part]) for part in sorted(parts)]
        if kinds and dice.random() < 0.1:
            kind = dice.choice(kinds)
            event = Record(kind, 1_000_000 * step + 9, step, dict(dice.choice(EVENTS.get(kind, [{}]))))
            rows.append(Row(step, event.time, segment, {}, event))
    if late:  # the sets of names change half-way
        rows = [
            row for at, row in enumerate(rows) if at % 2 or at < len(rows) // 2 or row.event or len(row.numbers) < 3
        ]
    return rows


def findings(rule: type[Rule], rows: list[Row], cuts: list[int], pieces: random.Random | None) -> list[list[str]]:
    """What a rule has found after all rows, and when the run is over. pieces: how each piece is handed over."""
    examiner = Examiner([rule()], copy.deepcopy(FACTS) | {"outlook": outlook_of})
    edges = [0, *sorted({cut for cut in cuts if cut < len(rows)}), len(rows)]
    for low, high in pairwise(edges):
        if pieces is not None and pieces.random() < 0.3:
            one_by_one(examiner, rows[low:high])
        else:
            as_columns(examiner, rows[low:high])
        examiner.examine(pieces is not None and pieces.random() < 0.3)
    examiner.catch_up()
    found = [plain(examiner)]
    examiner.seen.facts["finished"] = True
    examiner.examine()
    assert not examiner.failed, examiner.failed
    return [*found, plain(examiner)]


def one_by_one(examiner: Examiner, rows: list[Row]) -> None:
    for row in rows:
        if row.event is not None:
            examiner.seen.happened(row.event)
        for name, value in row.numbers.items():
            examiner.seen.add(name, row.step, value, row.time, row.segment)


def as_columns(examiner: Examiner, rows: list[Row]) -> None:
    columns: dict[str, list[tuple[int, float, int, int]]] = defaultdict(list)
    for row in rows:
        if row.event is not None:
            examiner.seen.happened(row.event)
        for name, value in row.numbers.items():
            columns[name].append((row.step, value, row.time, row.segment))
    for name, column in columns.items():
        step, value, time, segment = (numpy.array(one) for one in zip(*column, strict=True))
        examiner.seen.add(name, step, value, time, segment)


def plain(examiner: Examiner) -> list[str]:
    return sorted(repr(sorted(msgspec.structs.asdict(one).items())) for one in examiner.findings)


@pytest.mark.parametrize("name", RULES)
@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(1, 900), max_size=30))
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_rule_finds_the_same_however_its_records_are_cut_and_handed_over(
    name: str, seed: int, cuts: list[int]
) -> None:
    rule = RULES[name]
    rows = log_of(rule, seed)
    whole = findings(rule, rows, [], None)
    assert findings(rule, rows, cuts, random.Random(seed)) == whole
    if seed % 5 == 0:
        assert findings(rule, rows, list(range(1, len(rows))), None) == whole


@pytest.mark.parametrize(
    ("name", "seed"),
    [("sampling_mismatch", 362861), ("clipped_completions", 362861), ("gradient_spread", 15), ("non_finite_loss", 79),
     ("non_finite_loss", 82), ("dead_expert", 94), ("gradient_scale_jump", 735), ("gradient_scale_jump", 580),
     ("step_tokens", 5058), ("evaluation_inputs", 2416), ("model_mode", 5105), ("model_mode", 5219),
     ("target_out_of_reach", 20104), ("gradient_norm_range", 2627), ("latent_term", 127217),
     ("double_softmax", 1817)],
)  # fmt: skip
def test_logs_that_once_gave_other_findings_in_pieces(name: str, seed: int) -> None:
    rows = log_of(RULES[name], seed)
    whole = findings(RULES[name], rows, [], None)
    for cuts, pieces in (([1], random.Random(seed)), ([2], random.Random(seed)), (list(range(1, len(rows))), None)):
        assert findings(RULES[name], rows, cuts, pieces) == whole


def test_losses_that_differ_by_more_than_a_power_can_hold_fail_no_rule() -> None:
    rule = RULES["loss_slide"]
    assert findings(rule, log_of(rule, 576), [], None) == findings(rule, log_of(rule, 576), [50] * 30, None)


def with_two_losses(rows: list[Row], seed: int) -> list[Row]:
    """The same log of a training whose loss is `iter_loss`: `train/loss`, a name that goes before, comes seldom."""
    every = random.Random(seed).choice((8, 12, 30))
    result, count = [], 0
    for row in rows:
        numbers = dict(row.numbers)
        loss = numbers.pop("train/loss", None)
        if loss is not None:
            numbers["iter_loss"] = loss
            if count % every == 0:
                numbers["train/loss"] = loss + 0.5
            count += 1
        result.append(row._replace(numbers=numbers))
    return result


@pytest.mark.parametrize("name", RULES)
@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(1, 900), min_size=3, max_size=30))
@settings(max_examples=1, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_rule_finds_the_same_though_another_series_turns_out_to_be_the_loss(
    name: str, seed: int, cuts: list[int]
) -> None:
    rule = RULES[name]
    rows = with_two_losses(log_of(rule, seed), seed)
    assert findings(rule, rows, cuts, random.Random(seed)) == findings(rule, rows, [], None)
