"""A place survives being written down, and what can't be read is a beginning that asks the backend what it holds."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as some

from barograph.trackers import position
from barograph.trackers.position import Place, Position, unpack

COUNTS = some.dictionaries(some.sampled_from(["training.json", "training-r0-1.json", "sidecar-a.json"]),
                           some.integers(0, 2**53))  # fmt: skip


@settings(deadline=None)
@given(COUNTS, COUNTS)
def test_a_place_is_the_same_after_a_restart(offsets: dict[str, int], wide: dict[str, int]) -> None:
    place = Place({"training.json": {"end": 7}}, offsets, wide)
    assert unpack(json.loads(json.dumps(place.packed()))) == place


def test_a_damaged_or_missing_file_is_a_beginning(tmp_path: Path) -> None:
    assert position.read(tmp_path, "wandb").place == Place()
    (tmp_path / "mirrors").mkdir()
    for content in ("", "[]", "{", '{"place": {"offsets": [], "wide": {}}}', "null"):
        (tmp_path / "mirrors" / "wandb.json").write_text(content)
        assert position.read(tmp_path, "wandb").place == Place()


def test_of_another_versions_file_the_backends_run_is_kept_and_what_it_holds_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "mirrors").mkdir()
    content = {"state": {"run_id": "x"}, "options": {}, "place": {"bytes": 5}, "clean": True, "rows": 3}
    (tmp_path / "mirrors" / "wandb.json").write_text(json.dumps(content))
    found = position.read(tmp_path, "wandb")
    assert found.state == {"run_id": "x"} and found.place == Place() and not found.clean


def test_a_position_comes_back_as_it_was_written(tmp_path: Path) -> None:
    made = Position(tmp_path / "mirrors" / "aim.json", state={"run_id": "x"}, options={"aim_repo": "here"}, rows=7)
    made.place.offsets["training.json"] = 99
    made.base.offsets["training.json"] = 50
    made.clean = False
    made.write()
    again = position.read(tmp_path, "aim")
    assert (again.state, again.options, again.rows, again.clean) == ({"run_id": "x"}, {"aim_repo": "here"}, 7, False)
    assert again.place.offsets == {"training.json": 99} and again.base.offsets == {"training.json": 50}
