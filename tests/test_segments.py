"""Segments: who continues whom, and which steps are the live branch."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from barograph.core import segments
from barograph.core.segments import Segment, live_cuts


def test_the_first_is_a_start_and_later_ones_continue_the_last(tmp_path: Path) -> None:
    first = segments.begin(tmp_path)
    second = segments.begin(tmp_path, start_step=100)
    third = segments.begin(tmp_path, kind="rewind", start_step=50, parent=1)
    assert (first.number, first.kind, first.parent) == (1, "start", None)
    assert (second.number, second.kind, second.parent, second.start_step) == (2, "resume", 1, 100)
    assert segments.read(tmp_path) == [first, second, third]


def test_ranks_of_one_launch_share_a_segment(tmp_path: Path) -> None:
    assert segments.begin(tmp_path, launch="job1") == segments.begin(tmp_path, launch="job1")
    assert segments.begin(tmp_path, launch="job2").number == 2


def test_a_damaged_entry_is_left_out(tmp_path: Path) -> None:
    segments.begin(tmp_path)
    (tmp_path / "segments" / "0002.json").write_text('{"segment": 2')
    assert [segment.number for segment in segments.read(tmp_path)] == [1]


def test_processes_that_start_at_once_get_numbers_of_their_own(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        made = pool.map(segments.begin, [tmp_path] * 12)
    assert sorted(segment.number for segment in made) == list(range(1, 13))


def test_a_resume_supersedes_the_steps_it_logs_again() -> None:
    chain = [Segment(1), Segment(2, parent=1), Segment(3, parent=2, start_step=30)]
    assert live_cuts(chain, {2: 50}) == {3: None, 2: 30, 1: 30}
    assert live_cuts(chain[:2], {2: 50}) == {2: None, 1: 50}
    assert live_cuts(chain[:2], {}) == {2: None, 1: None}


def test_a_branch_left_behind_is_not_live() -> None:
    tree = [Segment(1), Segment(2, parent=1, start_step=80), Segment(3, parent=1, start_step=60)]
    assert live_cuts(tree, {}) == {3: None, 1: 60}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 100)), max_size=8))
def test_any_step_is_live_in_at_most_one_segment_of_a_chain_of_resumes(rows: list[tuple[int, int]]) -> None:
    chain = [Segment(1)] + [Segment(n, parent=n - 1, start_step=step) for n, (_, step) in enumerate(rows, 2)]
    cuts = live_cuts(chain, {})
    for step in range(101):
        owners = [
            s.number
            for s in chain
            if s.number in cuts and (s.start_step or 0) <= step and (cuts[s.number] is None or step < cuts[s.number])  # type: ignore[operator]
        ]
        assert len(owners) <= 1
