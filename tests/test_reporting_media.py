"""Images, tables and sounds in a report: within limits, by what their bytes are, and no word of a user is markup."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reported_runs import HOSTILE, start, stored
from test_reporting_webpage import Elements

from barograph.core import media as formats
from barograph.core import png
from barograph.query.stored import StoredRun
from barograph.views.report import markdown, media, webpage
from barograph.views.report.assemble import assemble
from barograph.views.report.content import Picture, ReportTable, Sentence

SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>document.title = "broken"</script></svg>'


def vast(side: int) -> bytes:
    """A PNG of some bytes that is a picture of gigabytes."""
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b""))
    return png.MAGIC + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    folder = tmp_path_factory.mktemp("runs")
    run = start(folder, "seen")
    chance = np.random.default_rng(0)
    for step in range(0, 50, 10):
        run.log({"train/loss": 3.0 - step / 50}, step=step)
        run.log_image(HOSTILE, np.full((8, 12), step, np.uint8), step, caption=HOSTILE)
        run.log_image("batch", [np.full((4, 4), step + at, np.uint8) for at in range(9)], step)
        run.log_audio("speech", np.sin(np.arange(800) / 9), step, rate=8000)
        run.log_table("answers", [{"question": f"{HOSTILE} {at}", HOSTILE: at + step} for at in range(40)], step)
    run.log_image("large", chance.integers(0, 256, (900, 900, 3), np.uint8), 40)
    run.log_image("vast", vast(60_000), 40)
    run.data.file("page", SVG, 40, suffix=".svg")
    run.finish()
    return stored(folder, "seen")


def section_of(run: StoredRun) -> Any:
    return next(section for section in assemble(run).sections if section.slug == "media")


def test_images_are_those_of_the_first_a_middle_and_the_last_step_and_of_each_a_few(seen: StoredRun) -> None:
    pictures = [block for block in section_of(seen).blocks if isinstance(block, Picture)]
    assert [block.label for block in pictures if block.size == (8, 12)] == ["step 0", "step 20", "step 40"]
    assert [block.label for block in pictures if block.size == (4, 4)].count("step 20") == media.MOST_AT_A_STEP
    kept = {item.path.read_bytes() for item in seen.media(type="image")}
    assert all(block.content == "image/png" and block.data in kept for block in pictures)


@pytest.mark.parametrize("name", ["large", "vast"])
def test_what_is_too_large_is_named_and_not_in_the_page(seen: StoredRun, name: str) -> None:
    (item,) = seen.media(name)
    assert item.path.read_bytes() not in [b.data for b in section_of(seen).blocks if isinstance(b, Picture)]
    said = [block.text for block in section_of(seen).blocks if isinstance(block, Sentence)]
    assert any(f"media/{item.path.name}" in text and "is not in this page" in text for text in said)


def test_all_images_together_stay_within_the_limit(seen: StoredRun, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = sorted(len(block.data) for block in section_of(seen).blocks if isinstance(block, Picture))
    monkeypatch.setattr(media, "ALL_BYTES", 3 * sizes[-1])
    kept = [block for block in section_of(seen).blocks if isinstance(block, Picture)]
    assert 0 < sum(len(block.data) for block in kept) <= 3 * sizes[-1]
    assert "step 40" in [block.label for block in kept]  # the last ones are the last to go


def test_a_table_has_its_first_rows_and_sounds_are_listed(seen: StoredRun) -> None:
    tables = {block.label: block for block in section_of(seen).blocks if isinstance(block, ReportTable)}
    answers, rest = tables["answers"], tables["Sounds and other files"]
    assert len(answers.rows) == media.MOST_ROWS and answers.rows[1][1].value == 41
    assert [(row[0].text, row[1]) for row in rest.rows] == [("speech", "audio"), ("page", "file")]
    said = [block.text for block in section_of(seen).blocks if isinstance(block, Sentence)]
    assert "12 of 40 rows are shown." in said
    assert any(text.startswith("Sounds are not in this file") for text in said)


def test_hostile_names_and_files_stay_words(seen: StoredRun) -> None:
    text = webpage.page(assemble(seen))
    found = Elements(text)
    images = [attributes["src"] or "" for tag, attributes in found.found if tag == "img"]
    assert images and all(source.startswith("data:image/png;base64,") for source in images)
    assert {formats.format_of(base64.b64decode(source.partition(",")[2])).content for source in images} == {"image/png"}
    assert HOSTILE not in text and not {"object", "iframe", "embed"} & {tag for tag, _ in found.found}
    assert "svg+xml" not in text and "img-src data:" in text
    joined = markdown.files(assemble(seen))["media.md"]
    assert HOSTILE not in joined and "12 × 8" in joined


def test_a_run_without_media_has_no_such_section(tmp_path: Path) -> None:
    run = start(tmp_path, "plain")
    run.log({"train/loss": 1.0}, step=0)
    run.finish()
    assert "media" not in [section.slug for section in assemble(stored(tmp_path, "plain")).sections]


@pytest.mark.parametrize(
    ("rest", "size"),
    [
        (b"VP8X" + bytes(8) + b"\x0b\0\0\x07\0\0", (8, 12)),
        (b"VP8L" + bytes(4) + b"/" + struct.pack("<I", 11 | 7 << 14) + bytes(9), (8, 12)),
        (b"VP8 " + bytes(4) + b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 12, 8), (8, 12)),
        (b"VP8X", None),
    ],
)
def test_the_size_of_a_webp_is_read(rest: bytes, size: tuple[int, int] | None) -> None:
    assert formats.image_size(b"RIFF\0\0\0\0WEBP" + rest) == size
