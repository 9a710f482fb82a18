"""The reader under all dialects: restarts, several runs, ranks, wrappings, live logs."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textlog_readings import LOGS, collect, find, read

import barograph
from barograph.importing.registry import identify
from barograph.importing.source import ImportedPoints, ImportMark
from barograph.importing.textlogs import SOURCES, chunks, engine, patterns

DIALECTS = {dialect.kind: dialect for dialect in SOURCES}


def iteration(step: int, loss: float = 2.5) -> str:
    return f"iter {step}: loss {loss:.4f}, time 345.10ms, mfu 38.10%\n"


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def steps(path: Path, name: str = "loss") -> list[int]:
    return [step for step, _ in read(path).series[name]]


def test_a_step_that_goes_back_is_a_restart(tmp_path: Path) -> None:
    path = write(tmp_path / "small.log", "".join(map(iteration, [0, 10, 20, 30, 20, 30, 40])))
    reading = read(path)
    assert [restart.step for restart in reading.restarts] == [20]
    assert [step for step, _ in reading.series["loss"]] == [0, 10, 20, 30, 20, 30, 40]


def test_an_evaluation_before_the_first_row_of_a_restart_belongs_to_it(tmp_path: Path) -> None:
    text = "".join(map(iteration, [0, 10, 20, 30])) + "step 20: train loss 2.4, val loss 2.6\n"
    path = write(tmp_path / "small.log", text + "".join(map(iteration, [20, 30])))
    dialect, found = find(path)[0]
    kinds = [
        type(item).__name__ if not isinstance(item, ImportedPoints) else item.names[0] for item in dialect.read(found)
    ]
    assert kinds.index("Restart") < kinds.index("train loss")


def test_a_program_that_begins_again_at_the_first_step_is_another_run(tmp_path: Path) -> None:
    begin = "tokens per iteration will be: 491,520\n"
    first, resumed = "".join(map(iteration, [0, 10, 20, 30])), "".join(map(iteration, [20, 30, 40]))
    again = "batch_size = 7\n" + begin + "".join(iteration(step, 9.0) for step in (0, 10))
    path = write(tmp_path / "small.log", begin * 8 + first + begin + resumed + again)
    runs = find(path)
    assert [found.key for _, found in runs] == ["", "2"]
    assert runs[1][1].name == "small-2"
    one, two = (collect(dialect, found) for dialect, found in runs)
    assert [step for step, _ in one.series["loss"]] == [0, 10, 20, 30, 20, 30, 40]
    assert [restart.step for restart in one.restarts] == [20]
    assert two.series["loss"] == [(0, 9.0), (10, 9.0)]
    assert not two.restarts


def test_a_second_run_that_is_appended_later_ends_the_first(tmp_path: Path) -> None:
    begin = "tokens per iteration will be: 491,520\n"
    path = write(tmp_path / "small.log", begin + "".join(map(iteration, [0, 10])))
    first = read(path)
    write(
        path, begin + "".join(map(iteration, [0, 10, 20])) + begin + "".join(iteration(step, 9.0) for step in (0, 10))
    )
    later = read(path, since=first.mark)
    assert later.series["loss"] == [(20, 2.5)]
    assert read(path, since=later.mark).series == {}
    assert read(path, key="2").series["loss"] == [(0, 9.0), (10, 9.0)]


@pytest.mark.parametrize("prefix", ["[rank{}]: ", "{}: ", "[default{}]:", "[1,{}]<stdout>:", "2024-01-01 - [Rank {}] "])
def test_the_lowest_rank_that_prints_has_the_rows(tmp_path: Path, prefix: str) -> None:
    lines = [prefix.format(rank) + iteration(step, rank + 1.0) for step in range(30) for rank in (5, 2, 7)]
    reading = read(write(tmp_path / "small.log", "".join(lines)))
    assert reading.series["loss"] == [(step, 3.0) for step in range(30)]
    assert reading.state["other_ranks"] == 60


def test_ranks_without_a_name_are_taken_once_a_step_though_one_lags(tmp_path: Path) -> None:
    order = [0, 0, 0, 1, 1, 0, 1, 2, 2, 1, 2, 3, 3, 3, 2, 4, 4, 3, 4, 5, 5, 5, 4]
    reading = read(write(tmp_path / "small.log", "".join(map(iteration, order))))
    assert [step for step, _ in reading.series["loss"]] == [0, 1, 2, 3, 4, 5]
    assert not reading.restarts


def test_a_restart_shows_among_ranks_without_a_name(tmp_path: Path) -> None:
    order = [step for step in range(60) for _ in range(4)] + [step for step in range(40, 70) for _ in range(4)]
    reading = read(write(tmp_path / "small.log", "".join(map(iteration, order))))
    assert [restart.step for restart in reading.restarts] == [40]
    assert [step for step, _ in reading.series["loss"]] == [*range(60), *range(40, 70)]


def test_wrappings_make_no_difference(tmp_path: Path) -> None:
    text = "".join(iteration(step, 2 + step / 9) for step in range(50))
    wanted = read(write(tmp_path / "plain.log", text)).series
    coloured = text.replace("loss", "\x1b[32mloss\x1b[0m").replace("iter", "\x1b]0;title\x07\x1b[38;2;1;2;3miter")
    wrapped = {
        "windows.log": text.replace("\n", "\r\n").encode(),
        "colours.log": coloured.encode(),
        "wide.log": text.encode("utf-16"),
        "wide_without_mark.log": text.encode("utf-16-le"),
        "packed.log.gz": gzip.compress(text[:600].encode()) + gzip.compress(text[600:].encode()),
        "packed_wide.log.gz": gzip.compress(text.encode("utf-16")),
        "bars.log": text.replace("iter", "\r 50%|####  | 1/2 [00:01<00:01, 1.0it/s]\riter").encode(),
        "marked.log": b"\xef\xbb\xbf" + text.encode(),
    }
    for name, content in wrapped.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert read(path).series == wanted, name


def test_a_gzip_file_that_is_cut_off_gives_what_is_whole(tmp_path: Path) -> None:
    text = "".join(iteration(step, 2 + step / 9) for step in range(5000))
    path = tmp_path / "cut.log.gz"
    path.write_bytes(gzip.compress(text.encode())[:-2000])
    found = read(path).series["loss"]
    assert 100 < len(found) < 5000
    assert found == read(write(tmp_path / "whole.log", text)).series["loss"][: len(found)]


def test_the_last_line_waits_for_its_end(tmp_path: Path) -> None:
    path = write(tmp_path / "small.log", iteration(0) + iteration(10) + "iter 20: loss 2.5, time 34")
    first = read(path)
    assert [step for step, _ in first.series["loss"]] == [0, 10]
    assert not first.unread
    write(path, iteration(0) + iteration(10) + "iter 20: loss 2.5, time 345.10ms, mfu 38.10%\n" + iteration(30))
    later = read(path, since=first.mark)
    assert [step for step, _ in later.series["loss"]] == [20, 30]


def test_a_whole_last_line_needs_no_line_break(tmp_path: Path) -> None:
    path = write(tmp_path / "small.log", iteration(0) + iteration(10) + iteration(20).rstrip("\n"))
    reading = read(path)
    assert [step for step, _ in reading.series["loss"]] == [0, 10, 20]
    write(path, "".join(map(iteration, [0, 10, 20, 30])))
    assert [step for step, _ in read(path, since=reading.mark).series["loss"]] == [30]


@pytest.mark.parametrize("file", sorted(path.name for path in LOGS.iterdir()))
def test_a_log_read_while_it_grows_gives_the_same_points(tmp_path: Path, file: str) -> None:
    text = (LOGS / file).read_bytes()
    dialect, found = find(LOGS / file)[0]
    path = tmp_path / file
    live = found._replace(path=path)
    seen: dict[str, list[tuple[int, float]]] = {}
    mark: ImportMark | None = None
    for end in [*range(len(text) // 3, len(text), max(len(text) // 11, 1)), len(text)]:
        path.write_bytes(text[:end])
        reading = collect(dialect, live, mark)
        mark = reading.mark
        for name, points in reading.series.items():
            seen.setdefault(name, []).extend(points)
    whole = read(LOGS / file)
    assert repr(seen) == repr({name: whole.series[name] for name in seen})
    assert seen.keys() == whole.series.keys()


def test_a_mark_is_plain_json_and_a_file_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    import json

    path = write(tmp_path / "small.log", "".join(map(iteration, range(10))))
    mark = read(path).mark
    assert json.loads(json.dumps(mark.state)) == mark.state
    write(path, "another file\n" + "".join(map(iteration, range(5))))
    assert [step for step, _ in read(path, since=mark).series["loss"]] == list(range(5))


def test_what_looks_like_a_row_and_is_none_is_told_with_its_line(tmp_path: Path) -> None:
    text = "\r 1%\r 2%\n" + iteration(0) + "iter 10: loss 2.5, time 34\x00\x00slurmstepd: error\n" + iteration(20)
    reading = read(write(tmp_path / "small.log", text))
    assert [(unread.where, unread.text[:12]) for unread in reading.unread] == [(3, "iter 10: los")]
    assert reading.state["lines"] == 4
    assert reading.state["matched"] == 2
    assert reading.state["unread"] == 1


def test_a_line_of_many_megabytes_is_dropped_and_told(tmp_path: Path) -> None:
    text = iteration(0) + iteration(5) + "x" * (chunks.LONGEST + 5_000_000) + "\n" + iteration(10)
    reading = read(write(tmp_path / "small.log", text))
    assert [step for step, _ in reading.series["loss"]] == [0, 5, 10]
    assert "more than 8 MB" in reading.unread[0].why


def test_rows_behind_much_source_code_are_found(tmp_path: Path) -> None:
    code = 'print(f"step:{step}/{steps} val_loss:{loss:.4f} train_time:{time:.0f}ms")\n' * 10_000
    rows = "".join(f"step:{step}/99 val_loss:3.5 train_time:{step}ms step_avg:1.00ms\n" for step in range(9))
    path = write(tmp_path / "run.txt", code + rows)
    assert [dialect.kind for dialect, _ in find(path)] == ["modded_nanogpt"]
    reading = read(path)
    assert len(reading.series["val_loss"]) == 9
    assert not reading.unread


@pytest.mark.parametrize(
    "text",
    [
        "nothing to see here\n" * 100,
        "1,2,3\n4,5,6\n" * 100,
        "12 0.5 0.25\n13 0.4 0.23\n",
        "def train(step=1, loss=2):\n    return 3\n" * 30,
        "\x00\x01\x02" * 1000,
        "",
    ],
)
def test_what_is_no_log_is_nobody_s(tmp_path: Path, text: str) -> None:
    assert find(write(tmp_path / "thing.txt", text)) == []


def test_documents_that_quote_a_log_are_read_only_if_they_are_named(tmp_path: Path) -> None:
    rows = "".join(map(iteration, range(9)))
    page = (
        "<!DOCTYPE html>\n<p>A run:</p><pre>"
        + rows.replace("%", "&#37;")
        + "</pre>\n<script>\nstep 4: loss 9\n</script>\n"
    )
    for name, text in (("README.md", f"# A run\n\n```\n{rows}```\n"), ("page.html", page)):
        path = write(tmp_path / name, text)
        assert [step for step, _ in read(path).series["loss"]] == list(range(9))
    assert list(identify(tmp_path)) == []


def test_a_table_of_json_is_left_to_the_reader_of_tables(tmp_path: Path) -> None:
    path = write(tmp_path / "thing.txt", '{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.4}\n' * 10)
    assert [source.kind for source, _ in identify(path)] == ["jsonl"]


COUNTER = """
import resource, sys
from pathlib import Path
from barograph.importing.source import FoundRun, ImportedPoints
from barograph.importing.textlogs import SOURCES
dialect = next(one for one in SOURCES if one.kind == "nanogpt")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = FoundRun(dialect.kind, Path(sys.argv[1]), "", "run")
count = sum(len(item.steps) for item in dialect.read(found) if isinstance(item, ImportedPoints))
print(count, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "small.log"
    with path.open("w") as file:
        for begin in range(0, 300_000, 10_000):
            file.write("".join(iteration(step, 2.5) for step in range(begin, begin + 10_000)))
    found = subprocess.run([sys.executable, "-c", COUNTER, str(path)], capture_output=True, text=True, check=True)
    count, megabytes = map(int, found.stdout.split())
    assert count == 300_000
    assert megabytes < 150  # the file has 16


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("Epoch: [0][100/5005]\tLoss 6.9 (6.9)\nEpoch: [1][100/5005]\tLoss 5.9 (6.1)\n", [(100, 6.9), (5105, 5.9)]),
        ("iter=5 train_loss=0.5\niter=6 train_loss=0.4\n", [(5, 0.5), (6, 0.4)]),
        (
            "epoch 1 step 10: loss 3.0\nepoch 1 step 20: loss 2.5\nepoch 2 step 10: loss 2.0\n",
            [(10, 3.0), (20, 2.5), (30, 2.0)],
        ),
        ("epoch 1 step 10: loss 3.0\nepoch 2 step 20: loss 2.5\n", [(10, 3.0), (20, 2.5)]),
        ("[2024-01-01 10:00:00] INFO step 1/10 loss: nan\n[2024-01-01 10:00:01] INFO step 2/10 loss: 1.23E-4\n", None),
        ("Step 1,000 | Loss: 1e-1\nStep 2,000 | Loss: 2e-1\n", None),
    ],
)
def test_plain_lines_count_as_they_say(tmp_path: Path, lines: str, wanted: list[tuple[int, float]] | None) -> None:
    reading = read(write(tmp_path / "small.log", lines))
    (points,) = (found for name, found in reading.series.items() if "loss" in name.lower())
    if wanted is not None:
        assert points == wanted
    else:
        assert len(points) == 2
    assert not reading.restarts


@pytest.mark.parametrize(
    ("line", "plan"),
    [
        ("step {step:05d}/00400 (1.00%) | loss: 2.5 | lrm: 1.00 | dt: 10.00ms | tok/sec: 1,000 | mfu: 1.0"
         " | total time: 0.1m", 400),
        ("step:{step}/300 train_loss:2.5 train_time:100ms step_avg:10.0ms", 300),
        ("Epoch [1/10] Step [{step}/100] loss: 2.5", None),
        ("step {step} loss: 2.5", None),
    ],
)  # fmt: skip
def test_the_plan_is_read_where_rows_say_it(tmp_path: Path, line: str, plan: int | None) -> None:
    path = tmp_path / "run.log"
    path.write_text("using world size: 4\n" + "".join(line.format(step=step) + "\n" for step in range(20)))
    (run,) = barograph.read(path)
    assert run.config.get("total_steps") == plan and run.config.get("world_size") == 4


def test_the_lines_worth_looking_at_are_those_with_a_hint() -> None:
    lines = [line for path in sorted(LOGS.iterdir()) for line in path.read_bytes()[: 1 << 14].split(b"\n")]
    lines += [b"", b"step 1 " * engine.WIDEST]
    for dialect in DIALECTS.values():
        if type(dialect).candidates is not engine.Dialect.candidates:
            continue  # it looks for more than a hint
        wanted = [
            index
            for index, line in enumerate(lines)
            if len(line) <= engine.WIDEST and any(hint in line for hint in dialect.hints)
        ]
        assert dialect.candidates(lines) == wanted, dialect.kind


@given(
    st.lists(st.binary(min_size=1, max_size=4) | st.text(alphabet="ab.*(", min_size=1, max_size=4).map(str.encode),
             min_size=1, max_size=12),
    st.binary(max_size=12) | st.text(alphabet="ab.*(\n", max_size=12).map(str.encode),
)  # fmt: skip
def test_one_of_many_words_is_found_where_one_of_them_is(words: list[bytes], text: bytes) -> None:
    found = patterns.one_of.__wrapped__(tuple(words)).search(text)
    assert (found is not None) == any(word in text for word in words)
