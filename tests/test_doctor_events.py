"""Events out of a log: the same as a reading of every record finds, in one pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from barograph.doctor import events
from barograph.doctor.kernel.facts import is_event
from barograph.log.read import records_from

LINES = [
    '{"log":"step","time":"2026-01-01T00:00:00.000000","step":1,"loss":2.0}',
    '{"log":"segment","time":"2026-01-01T00:00:01.000000","step":1,"segment":2}',
    '{"log":"model","time":"2026-01-01T00:00:02.000000","step":2,"param_norm":3.0}',
    '{"log":"model","time":"2026-01-01T00:00:03.000000","step":3,"first_non_finite_gradient":"h.0"}',
    '{"log":"model","time":"2026-01-01T00:00:03.000000","step":3,"more":{"first_non_finite_gradient":1}}',
    '{"log":"ranks","time":"2026-01-01T00:00:04.000000","step":3,"absent":[1]}',
    '{"log":"note","time":"2026-01-01T00:00:05.000000","step":3,"text":"{\\"log\\":\\"oom\\""}',
    '{"log":"checkpoint","time":"2026-01-01T00:00:06.000000","step":4,"path":"a"}',
    '{"log":"end","time":"2026-01-01T00:00:07.000000","step":5}',
]


@pytest.mark.parametrize("piece", [1 << 25, 150, 50])
@pytest.mark.parametrize(
    "text",
    [
        "[\n" + ",\n".join(LINES) + "\n]",
        "[" + ",\n".join(LINES) + "]",
        "[\n" + ",\n".join(LINES[:-1]) + ',\n{"log":"end","ti',
        "[\n" + ",\n".join(line.replace('"log":', '"log": ') for line in LINES) + "\n]",
        "[]",
    ],
    ids=["ours", "on one line with the bracket", "torn", "spaced by another program", "empty"],
)
def test_events_are_those_of_all_records(
    text: str, piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_PIECE", piece)
    path = tmp_path / "training.json"
    path.write_text(text)
    expected = [record for record, _ in records_from(path) if is_event(record)]
    assert len(expected) in (0, 4, 5)
    assert list(events.events_of(path)) == expected
