"""Names in one list and their values in another are values with names."""

from __future__ import annotations

from pathlib import Path

from textlog_readings import read

from barograph.importing.textlogs import listed


def test_values_have_the_names_of_the_list_ahead(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(
        f"2021-03-04 10:11:{at:02d}-INFO: epoch:0; batch_id:{at * 20}; ['loss', 'top_1'] = [{2.5 - at / 4}, 0.{at}1]\n"
        for at in range(1, 6)
    ))  # fmt: skip
    series = read(path).series
    assert series["loss"] == [(at * 20, 2.5 - at / 4) for at in range(1, 6)]
    assert series["top_1"][0] == (20, 0.11) and "batch_id" not in series


def test_lists_of_other_lengths_stay() -> None:
    assert listed.named(b"batch 3; ['loss']=[nan]") == b"batch 3; loss: nan"
    assert listed.named(b"['acc', 'top-5'] = [0.71 0.89]") == b"acc: 0.71, top-5: 0.89"
    for text in (b"['a', 'b'] = [0.5]", b"['a'] = ['b']", b"x['a'] = [0.5]", b"[1, 2] = [3, 4]"):
        assert listed.named(text) == text
