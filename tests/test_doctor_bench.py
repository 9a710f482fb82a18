"""The fault bench: its tables hold together, and one program does what its labels say."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bench_halves
import forked_python
import pytest
from bench_halves import LATER, LOOP, OPENED, THIRD

from barograph.query.stored import StoredRun

BENCH = Path(__file__).parent.parent / "benchmarks" / "doctor"

PROGRAM = """
import sys
sys.path[:0] = [{bench!r}, {source!r}]
import traces
from pathlib import Path
out = Path({out!r})
for kind in ("plain", "gradient_nonfinite"):
    trace = traces.Trace("dense_gpt", kind, 0)
    traces.make(trace, out, steps=12)
from labels import label
import json
print(json.dumps(label(trace, out, traces.placed(trace, 12))))
"""


@pytest.fixture(scope="module")
def tables() -> Any:
    sys.path.insert(0, str(BENCH))
    try:
        import faults
        import healthy

        yield faults.FAULTS, healthy.HEALTHY
    finally:
        sys.path.remove(str(BENCH))


def test_every_fault_has_kinds_that_findings_have(tables: Any) -> None:
    from barograph.doctor.kernel.finding import KINDS, SEVERITIES

    faults, _ = tables
    assert len(faults) >= 30
    for fault in faults.values():
        assert set(fault.kinds) <= KINDS, fault.name
        assert fault.severity in SEVERITIES
        assert fault.programs and fault.about and fault.cause


def test_onsets_are_in_the_middle_and_the_same_for_the_same_seed(tables: Any) -> None:
    faults, _ = tables
    jump, stale = faults["learning_rate_jump"], faults["optimizer_stale"]
    onsets = [jump.placed(seed, 200, 25, "dense_gpt").onset for seed in range(20)]
    assert all(70 <= onset <= 140 for onset in onsets) and len(set(onsets)) > 10
    assert onsets[3] == jump.placed(3, 200, 25, "dense_gpt").onset
    assert stale.placed(3, 200, 25, "dense_gpt").onset == 0
    resumed = [faults["data_replayed"].placed(seed, 200, 25, "dense_gpt").onset for seed in range(20)]
    assert all(onset % 25 == 0 and onset > 0 for onset in resumed)


def test_half_of_the_healthy_variants_resemble_a_fault(tables: Any) -> None:
    _, healthy = tables
    runs = [(one.near_miss, one.copies * len(one.programs)) for one in healthy.values()]
    near = sum(number for miss, number in runs if miss)
    assert 2 * near >= sum(number for _, number in runs)


def test_a_command_lists_every_program_fault_and_variant(
    tables: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import listing
    from healthy import ALL

    for what, made in zip(("faults", "healthy"), tables, strict=True):
        listing.main([what])
        rows = capsys.readouterr().out.splitlines()[2:]
        assert [row.split(" | ")[0] for row in rows] == [f"| {name}" for name in made]
        for row, one in zip(rows, made.values(), strict=True):
            assert f" | {', '.join(one.programs)} | " in row and one.about in row
    listing.main(["programs"])
    rows = capsys.readouterr().out.splitlines()[2:]
    assert {row.split(" | ")[0] for row in rows} == {f"| {program}" for program in ALL}
    listing.main(["faults", "--program", "vision"])
    assert all(", vision," in f", {row.split(' | ')[2]}," for row in capsys.readouterr().out.splitlines()[2:])
    with pytest.raises(SystemExit, match="no program visions"):
        listing.main(["faults", "--program", "visions"])


@pytest.mark.slow
def test_a_faulty_run_is_the_healthy_one_up_to_its_onset(tmp_path: Path) -> None:
    code = PROGRAM.format(bench=str(BENCH), source=str(BENCH.parent.parent / "src"), out=str(tmp_path))
    done = forked_python.run(sys.executable, "-c", code, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    label = json.loads(done.stdout.splitlines()[-1])
    onset = label["onset"]
    assert 4 <= onset <= 8 and label["cause"] == "non-finite gradient" and label["visible"]
    well, sick = (
        StoredRun(tmp_path / "dense_gpt" / f"{kind}-0").series("train/loss").y.tolist()
        for kind in ("plain", "gradient_nonfinite")
    )
    assert len(well) == len(sick) == 12
    assert sick[: onset + 1] == well[: onset + 1]  # the gradient is bad at the onset, the loss a step later
    assert all(loss != loss for loss in sick[onset + 1 :])
    assert well[-1] < well[0]


@pytest.fixture(scope="module")
def bench() -> Iterator[subprocess.Popen[str]]:
    """A process that has imported what the programs need, and trains each in one forked from it."""
    command = [sys.executable, str(Path(__file__).with_name("bench_program.py"))]
    environment = os.environ | {"BAROGRAPH_SIDECAR": "false"}  # it diagnoses trainings, which nobody looks at here
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    yield process
    with contextlib.suppress(ProcessLookupError):  # with the training of a test that took too long
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def trained(bench: Any, some: dict[str, tuple[int, tuple[str, ...]]], out: Path, again: bool = True) -> Any:
    """What programs say with so few steps, and with these faults; the plain training twice, if `again`."""
    bench.stdin.write(json.dumps({"out": str(out), "some": some, "again": again}) + "\n")
    bench.stdin.flush()
    printed = out / "printed.txt"
    assert bench.stdout.readline() == "0\n", printed.read_text() if printed.exists() else "it did not begin"
    return json.loads((out / "said.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("program", LOOP)
def test_a_newer_program_learns_and_each_of_its_faults_changes_what_it_records(
    bench: Any, tables: Any, program: str, tmp_path: Path
) -> None:
    learns_and_shows_faults(bench, program, 24, shared_out(tables[0])[program], tmp_path)


def shared_out(faults: Any) -> dict[str, tuple[str, ...]]:
    """Faults of the programs over `programs/loop.py`, each asked of one program: most of them are lines of the loop.
    Whether each shows in each program is looked at whenever traces are made."""
    asked: dict[str, list[str]] = {program: [] for program in LOOP}
    for fault in sorted(faults.values(), key=lambda one: (len(set(one.programs) & {*LOOP}), one.name)):
        programs = [program for program in LOOP if program in fault.programs]
        if programs:
            asked[min(programs, key=lambda program: len(asked[program]))].append(fault.name)
    return {program: tuple(names) for program, names in asked.items()}


def test_each_fault_of_the_loop_is_asked_of_a_program_and_each_program_of_some(tables: Any) -> None:
    asked = shared_out(tables[0])
    all_of_them = {name for name, fault in tables[0].items() if set(fault.programs) & {*LOOP}}
    assert sorted(name for names in asked.values() for name in names) == sorted(all_of_them)
    assert all(asked.values())


@pytest.mark.slow
@pytest.mark.parametrize("program", sorted(OPENED | THIRD))
def test_a_program_that_was_put_away_learns_and_a_fault_of_its_changes_what_it_records(
    bench: Any, program: str, tmp_path: Path
) -> None:
    learns_and_shows_faults(bench, program, *(OPENED | THIRD)[program], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("program", sorted(LATER))
def test_a_program_of_a_later_half_records_and_its_faults_give_other_numbers(
    bench: Any, tables: Any, program: str, tmp_path: Path
) -> None:
    """Those that are put away are trained twice: their traces were not looked at yet."""
    import putaway

    away = putaway.part_of(program, "plain") == "putaway"
    said = trained(bench, {program: LATER[program]}, tmp_path, again=away)[program]
    assert said["same"] == [], "the same seed gives other numbers"
    asked = LATER[program][1]
    assert set(said["changed"]) == set(asked) and all(said["changed"].values()), said["changed"]


def learns_and_shows_faults(bench: Any, program: str, steps: int, asked: tuple[str, ...], out: Path) -> None:
    said = trained(bench, {program: (steps, asked)}, out)[program]
    assert said["gained"] > 0, "it does not learn"
    assert said["same"] == [], "the same seed gives other numbers"
    assert set(said["changed"]) == set(asked) and all(said["changed"].values()), said["changed"]


def test_about_half_of_the_newer_trainings_were_opened(tables: Any) -> None:
    faults, healthy = tables
    import putaway
    from healthy import LOOP as newer
    from healthy import NOISY

    pairs = [(program, fault.name) for fault in faults.values() for program in fault.programs if program in newer]
    assert set(newer) == set(LOOP) and len(pairs) >= 80
    assert 0.4 <= sum(putaway.part_of(*pair) == "opened" for pair in pairs) / len(pairs) <= 0.6
    assert set(putaway.OPENED_PROGRAMS) - {*OPENED, *THIRD, *LATER} < set(newer)
    assert set(putaway.OPENED_FAULTS) < set(faults)
    assert not any(putaway.part_of(program, "plain") for program in ("dense_gpt", "vit"))
    assert all(kind in healthy and program in healthy[kind].programs for program, kind in NOISY)


HALVES = ("third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth",
          "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth",
          "nineteenth", "twentieth", "twentyfirst", "twentysecond", "twentythird",
          "twentyfourth", "twentyfifth", "twentysixth", "twentyseventh", "twentyeighth", "twentyninth",
          "thirtieth", "thirtyfirst", "thirtysecond", "thirtythird", "thirtyfourth", "thirtyfifth",
          "thirtysixth")  # fmt: skip


@pytest.mark.parametrize("half", HALVES)
def test_a_half_has_programs_and_faults_of_its_own_beside_known_ones(tables: Any, half: str) -> None:
    faults, healthy = tables
    import halves
    import putaway
    from healthy import ALL

    made, programs = importlib.import_module(f"halves.{half}"), {*getattr(bench_halves, half.upper())}
    part = "putaway" if made is halves.PUT_AWAY else "opened"
    assert made in halves.HALVES
    later = dict.fromkeys(HALVES[HALVES.index("ninth") :], (100, 0.9, 1.0))
    most, least_new, most_new = ({"eighth": (90, 0.1, 0.6)} | later).get(half, (60, 0.4, 0.6))
    others = {*ALL} - programs
    away = [(program, fault) for fault in faults.values() for program in fault.programs if program in programs]
    rows = {name for name, *_ in made.FAULTS}
    new = [fault for _, fault in away if fault.name in rows]
    assert set(made.PROGRAMS) == set(made.STEPS) == programs
    assert len(others) == len({*others, *programs}) - len(programs)
    assert all(putaway.part_of(program, fault.name) == part for program, fault in away)
    assert 40 <= len(away) <= most and least_new <= len(new) / len(away) <= most_new
    for one in programs:
        assert sum(program == one for program, _ in away) >= 5
        assert sum(one in variant.programs for variant in healthy.values()) >= 4  # with the plain one


@pytest.mark.parametrize("half", HALVES[HALVES.index("eighth") :])
def test_a_half_counts_what_people_report_apart_from_the_fifteen_kinds(tables: Any, half: str) -> None:
    faults, healthy = tables
    made = importlib.import_module(f"halves.{half}")
    named = {*made.KNOWN_FAULTS, *(name for name, *_ in made.FAULTS)}
    pairs = [(fault.name, one) for fault in faults.values() for one in fault.programs if one in made.PROGRAMS]
    assert named > made.REPORTED and {name for name, _ in pairs} == named
    assert 10 <= sum(name in made.REPORTED for name, _ in pairs) <= 16
    near = sum(one.near_miss for one in healthy.values() for program in one.programs if program in made.PROGRAMS)
    assert near >= 50


def test_what_is_put_away_is_scored_only_when_it_is_asked_for(tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import putaway
    import score

    monkeypatch.setattr(putaway, "PROGRAMS", ("instruct",))
    names = {"dense_gpt/plain": "", "dpo/plain": "opened", "vit/data_by_length": "opened", "instruct/plain": "putaway"}
    labels = {name: dict(zip(("program", "kind"), name.split("/"), strict=True)) for name in names}
    for part in ("opened", "putaway"):
        assert set(score.split_of(labels, part)) == {name for name in names if names[name] == part}
    assert set(score.split_of(labels, "all")) == set(score.split_of(labels, "tuning")) == {"dense_gpt/plain"}


def test_a_log_of_each_tenth_step_keeps_evaluations_and_what_the_watch_recorded(tables: Any) -> None:
    import numpy
    import score

    steps, at = numpy.arange(160), numpy.arange(19, 160, 20)
    column = steps, steps * 1000, numpy.linspace(3, 1, 160), numpy.ones(160, numpy.int32)
    evaluation = tuple(part[at] for part in column)
    given = {"train/loss": column, "model/grad_norm": column, "val/loss": evaluation}
    kept = score.seldom(given, 10)
    assert (
        kept["train/loss"][0].tolist() == list(range(9, 160, 10)) and len({len(one) for one in kept["train/loss"]}) == 1
    )
    assert kept["model/grad_norm"] is column and kept["val/loss"] is evaluation
