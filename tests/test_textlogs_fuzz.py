"""Damaged logs: no crash, no hang, no number that isn't in the file."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from textlog_readings import LOGS, find

from barograph.importing.source import FoundRun, ImportedPoints, ImportMark
from barograph.importing.textlogs import SOURCES, templates
from barograph.importing.textlogs.engine import Dialect
from barograph.importing.textlogs.forms import Lines

SAMPLES = sorted(path for path in LOGS.iterdir())
TEXTS = {path.name: path.read_bytes() for path in SAMPLES}


def damage(text: bytes, chance: random.Random) -> bytes:
    """A text with a few of the things that happen to logs."""
    for _ in range(chance.randint(1, 6)):
        at, length = chance.randrange(len(text) + 1), chance.choice((1, 1, 3, 40, 500))
        kind = chance.randrange(8)
        if kind == 0:
            text = text[:at] + text[at + length :]
        elif kind == 1:
            text = text[:at] + chance.randbytes(length) + text[at:]
        elif kind == 2:
            text = text[:at] + text[max(at - length, 0) : at] + text[at:]
        elif kind == 3:
            text = (
                text[:at]
                + chance.choice((b"\r", b"\n", b"\x1b[", b"\0", b"nan", b"1e999", b"{'", b"|", b"-"))
                + text[at:]
            )
        elif kind == 4:
            text = text.replace(b"\n", chance.choice((b"\r\n", b"\r", b" ", b"\n\n")), chance.randint(1, 20))
        elif kind == 5:
            text = text[:at] + chance.choice((b"9", b"a ", b" ", b"(", b"{")) * chance.choice((30, 20_000)) + text[at:]
        elif kind == 6:
            text = chance.choice(list(TEXTS.values()))[:at] + text
        else:
            text = text[:at]
    return text


def drain(dialect: Dialect, found: FoundRun, since: ImportMark | None = None) -> int:
    count = 0
    last: object = None
    for item in dialect.read(found, since):
        last = item
        if isinstance(item, ImportedPoints):
            assert item.values.shape == (len(item.steps), len(item.names))
            assert len(item.times) == len(item.steps)
            count += len(item.steps)
    assert isinstance(last, ImportMark)
    return count


@pytest.mark.parametrize("seed", [7, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (8, 9, 10))])
def test_damaged_logs_are_read_without_a_crash_or_a_hang(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    path = tmp_path / "damaged.log"
    for number in range(300):
        sample = chance.choice(SAMPLES)
        text = damage(TEXTS[sample.name], chance)
        path.write_bytes(text)
        begin = time.process_time()
        for _, found in find(path):
            assert found.path == path
        for dialect in chance.sample(SOURCES, 3):
            count = drain(dialect, FoundRun(dialect.kind, path, "", "damaged"))
            assert count <= 40 * (text.count(b"\n") + text.count(b"\r") + 2), number
        assert time.process_time() - begin < 10, (number, sample)


@given(st.binary(max_size=3000))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_read(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "bytes.log"
    path.write_bytes(text)
    find(path)
    for dialect in SOURCES:
        drain(dialect, FoundRun(dialect.kind, path, "", "bytes"))


WORST = [
    b"step " * 50_000,
    b"a-" * 50_000,
    b"iteration 1/2 |" + b" " * 100_000,
    (b"iteration 1/2 |" + b"a" * 16_000 + b"\n") * 25,
    (b"step 1 " + b"loss " * 790 + b"\n") * 25,
    (b"step 1 " + b"a_" * 1900 + b"\n") * 25,
    b"{'" * 50_000,
    (b"{'loss': 1, " + b"'a" * 8000 + b"\n") * 25,
    b"\x1b[" * 100_000,
    b"\x1b]" + b"x" * 250_000,
    b"\r" * 75_000,
    b"\n" * 75_000,
    b"iter 5: loss 1, time 1ms\niter 4: loss 1, time 1ms\n" * 10_000,
    b"[" * 100_000 + b"step 1 loss 2\n",
    (b'| INFO | train_inner | {"' + b"num_updates" * 1400 + b"\n") * 25,
    (b"validation loss at iteration 1 " + b"x" * 16_000 + b"\n") * 25,
    (b"step: 1  loss:" + b" " * 16_000 + b"\n") * 25,
    b"step 1 loss 1 "
    + b"1," * 40
    + b"x\n"
    + (b"step 1 loss 1 " + b"1," * 40 + b"x\n") * 9
    + b"step 1 loss 1 "
    + b"123," * 900
    + b"\n",
    (b"[T] step 1 [1%] " + b"| a a a a a " * 1300 + b"\n") * 25,
]


@pytest.mark.parametrize("number", range(len(WORST)))
def test_hostile_lines_take_no_longer_than_a_few_seconds(tmp_path: Path, number: int) -> None:
    path = tmp_path / "hostile.log"
    path.write_bytes(WORST[number])
    for dialect in SOURCES:
        begin = time.process_time()
        drain(dialect, FoundRun(dialect.kind, path, "", "hostile"))
        assert time.process_time() - begin < 8, dialect.kind
    begin = time.process_time()
    find(path)
    assert time.process_time() - begin < 20


def parsers() -> list[tuple[str, Lines]]:
    return [(dialect.kind, shape) for dialect in SOURCES for shape in dialect.shapes if isinstance(shape, Lines)]


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_template_reads_a_line_as_its_parser_does(data: st.DataObject) -> None:
    """The fast way and the slow way agree on any line, also with numbers that the template has not seen."""
    line = data.draw(st.sampled_from(sorted({line for text in TEXTS.values() for line in text.splitlines()[-60:]})))
    for _, shape in parsers():
        parsed = shape.parse(line)
        template = templates.learn(line, parsed, shape.parse) if parsed else None
        if template is None:
            continue
        parts = templates.TOKEN.split(line)
        some = st.integers(0, 10**9).map(str) | st.floats(width=32).map(str)
        for index in range(1, len(parts), 2):
            if data.draw(st.booleans()):
                # whole numbers have thousands separators, but not those of JSON
                separated = ["1,234"] if b"." not in parts[index] and b'{"' not in line else []
                more = st.sampled_from(["nan", "inf", "-1.5E-04", *separated])
                parts[index] = data.draw(some | more).encode()
        other = b"".join(parts)
        match = template.match(other)
        if match is None:
            continue
        slow = shape.parse(other)
        if slow is None:  # a fraction where the parser wants a whole number: no harm
            continue
        assert slow[2] == template.names
        assert [match.groups()[pick] for pick in template.picks] == list(slow[3])
        if template.step >= 0:
            assert match.groups()[template.step] == slow[1]


def test_a_number_is_never_cut_at_its_exponent() -> None:
    """Whichever of a line's numbers is written as -1.5E-04 is read as that or not at all."""
    for line in sorted({line for text in TEXTS.values() for line in text.splitlines()[-60:]}):
        parts = templates.TOKEN.split(line)
        for index in range(1, len(parts), 2):
            other = b"".join([*parts[:index], b"-1.5E-04", *parts[index + 1 :]])
            for kind, shape in parsers():
                parsed = shape.parse(other)
                assert parsed is None or not {b"-1.5", -1.5} & set(parsed[3]), (kind, other)
