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


def test_a_row_with_lists_of_texts_is_read(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(
        f"10:11:{at:02d} - INFO - task: ['bike', 'tram'], loss: 0.{9 - at}, parts: ['0.4', '0.{at}'], num: 21.5\n"
        for at in range(6)
    ))  # fmt: skip
    assert [value for _, value in read(path).series["loss"]] == [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]
    assert listed.named(b"loss: 0.4, parts: ['0.4', '0.2']") == b"loss: 0.4, parts: [0.4, 0.2]"
    for text in (b"{'loss': 0.4, 'parts': ['0.4']}", b"devices: ['cpu', 'gpu']", b'loss: 0.4, by: ["it\'s"]'):
        assert listed.named(text) == text
