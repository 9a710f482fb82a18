"""A place survives being written down, and never says that a row is dealt with before it is."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.mirrors import position
from barograph.mirrors.position import Place, Position, StorePlace, unpack

KEYS = st.tuples(st.integers(0, 2**53), st.integers(-5, 2**40), st.sampled_from(["", "a", "b/c"]))


@settings(deadline=None)
@given(st.lists(KEYS, unique=True, max_size=60), st.integers(0, 60))
def test_what_was_dealt_with_is_known_after_a_restart_and_what_came_in_order_is_not_forgotten(
    keys: list[position.Key], many: int
) -> None:
    ordered = sorted(keys)
    done, rest = ordered[:many], ordered[many:]
    place = Place({"training.json": 12345})
    store = place.store("writer")
    for key in done:
        store.recent.add(key)
        store.settle()
    again = unpack(json.loads(json.dumps(place.packed())))
    assert again.offsets == place.offsets
    assert all(again.store("writer").has(key) for key in done)
    assert not any(again.store("writer").has(key) for key in rest)


def test_rows_of_one_moment_in_many_names_are_each_their_own() -> None:
    store = StorePlace()
    store.recent.add((5, 1, "hist/a"))
    store.settle()
    assert store.has((5, 1, "hist/a")) and not store.has((5, 1, "hist/b")) and not store.has((5, 1, ""))


def test_what_the_backend_holds_is_dealt_with() -> None:
    place = Place()
    before = place.store("one")
    place.hold({7})
    assert before.has((7, 1, "")) and place.store("two").has((7, 9, "")) and not before.has((8, 1, ""))
    assert unpack(place.packed()).store("one").has((7, 1, "")), "also after the next restart"


def test_a_closed_writer_needs_no_list() -> None:
    store = StorePlace()
    store.recent.add((5, 1, ""))
    store.passed.add((9, 1, ""))
    store.close()
    assert store.has((9, 1, "")) and not store.recent and not store.passed and not store.has((10, 1, ""))


def test_the_file_is_small_however_many_rows_there_were(tmp_path: Path) -> None:
    made = Position(tmp_path / "mirrors" / "wandb.json")
    store = made.place.store("writer")
    for moment in range(20_000):
        store.recent.add((moment * 10, moment, ""))
    store.settle()
    made.write()
    assert made.path.stat().st_size < 200_000
    assert position.read(tmp_path, "wandb").place.store("writer").has((0, 0, ""))


def test_a_damaged_or_missing_file_is_a_beginning(tmp_path: Path) -> None:
    assert position.read(tmp_path, "wandb").place == Place()
    (tmp_path / "mirrors").mkdir()
    for content in ("", "[]", "{", '{"place": {"offsets": [], "stores": {}}}', "null"):
        (tmp_path / "mirrors" / "wandb.json").write_text(content)
        assert position.read(tmp_path, "wandb").place == Place()


def test_a_position_comes_back_as_it_was_written(tmp_path: Path) -> None:
    made = Position(tmp_path / "mirrors" / "aim.json", state={"run_id": "x"}, options={"aim_repo": "here"}, rows=7)
    made.place.offsets["training.json"] = 99
    made.base.offsets["training.json"] = 50
    made.clean = False
    made.write()
    again = position.read(tmp_path, "aim")
    assert (again.state, again.options, again.rows, again.clean) == ({"run_id": "x"}, {"aim_repo": "here"}, 7, False)
    assert again.place.offsets == {"training.json": 99} and again.base.offsets == {"training.json": 50}
