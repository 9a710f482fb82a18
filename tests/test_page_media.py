"""Images, sound and tables in a browser, with the real server over a small real run; what the server hands out."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import barograph

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Page, expect
from served_pages import CONTRAST, NEEDED, SCRIPT, Served, browser, errors, page

__all__ = ["browser", "errors", "page"]  # fixtures

pytestmark = NEEDED


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("media")
    for name, value in (("one", 40), ("two", 200)):
        with barograph.init(project="p", id=name, name=name, dir=made, verbosity=-2, git=False, sidecar=False) as run:
            for step in (0, 10, 20):
                run.log({"train/loss": 1.0}, step)
                pictures = [np.full((8, 8), value + step, np.uint8), np.full((8, 8), value + step + 1, np.uint8)]
                run.log_image(SCRIPT, pictures, step, caption=[SCRIPT, "second"])
                run.log_audio("tone", np.sin(np.arange(800) / 10), step, rate=8000)
                run.log_table("rows", [{"n": n, "word": SCRIPT if n == 70 else f"w{n}"} for n in range(80)], step)
            run.data.file("page", b"<script>document.title = 'broken'</script>", 0, suffix=".html")
            run.data.file("drawing", b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", 0, suffix=".svg")
            run.log_sample(20, SCRIPT, "the prompt")
    return made


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    made = Served(folder)
    yield made
    made.end()


def test_the_slider_goes_through_the_steps_and_the_address_keeps_it(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/run/p/one/media")
    images = page.locator(".media-open img")
    expect(images).to_have_count(2)
    last = images.first.get_attribute("src")
    expect(page.locator(".media-steps output")).to_have_text("step 20")
    page.get_by_role("button", name="Previous step").click()
    expect(page.locator(".media-steps output")).to_have_text("step 10")
    expect(images.first).not_to_have_attribute("src", str(last))
    assert "at=10" in page.url
    page.keyboard.press("[")
    expect(page.locator(".media-steps output")).to_have_text("step 0")
    page.reload()
    expect(page.locator(".media-steps output")).to_have_text("step 0")
    assert page.title() != "broken"
    expect(page.locator(".media-item figcaption").first).to_contain_text("<script>")
    assert all(images.nth(at).evaluate("node => node.decode().then(() => node.naturalWidth)") == 8 for at in range(2))


def test_an_image_opens_large_and_runs_stand_side_by_side(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/run/p/one/media")
    page.locator(".media-open").first.click()
    large = page.get_by_role("dialog")
    expect(large).to_contain_text("step 20")
    page.keyboard.press("ArrowLeft")
    expect(large).to_contain_text("step 10")
    page.keyboard.press("Escape")
    expect(large).to_have_count(0)
    page.get_by_label("Compare with a run").select_option("p/two")
    expect(page.locator(".media-columns").first.locator("h3")).to_have_count(2)
    expect(page.locator(".media-open img")).to_have_count(4)
    assert "with=p/two" in page.url
    page.get_by_role("button", name="Remove p/two").click()
    expect(page.locator(".media-open img")).to_have_count(2)


def test_tables_are_sorted_filtered_and_turned(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/run/p/one/media?type=table")
    cells = page.locator(".media-table tbody tr td:first-child")
    expect(cells.first).to_have_text("0")
    head = page.get_by_role("button", name="n", exact=True)
    head.click()
    head.click()
    expect(cells.first).to_have_text("79")
    page.get_by_role("button", name="Next", exact=True).click()
    expect(cells.first).to_have_text("29")
    page.get_by_label("Filter the rows").fill("<script")
    expect(cells).to_have_text(["70"])
    assert page.title() != "broken"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_media_have_contrast_and_fit_the_screen(
    browser: Browser, served: Served, scheme: Any, width: int, errors: list[str]
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    made = context.new_page()
    made.goto(f"{served.url}/run/p/one/media?with=p/two")
    expect(made.locator(".media-open img").first).to_be_visible()
    expect(made.locator(".media-table tbody tr").first).to_be_visible()
    assert made.evaluate(CONTRAST) == []
    assert made.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


def test_files_are_what_their_bytes_are_and_nothing_in_them_runs(folder: Path, served: Served) -> None:
    run = barograph.StoredRun(folder / "p" / "one")
    wanted = {"image": "image/png", "audio": "audio/wav", "file": "application/octet-stream"}
    for item in run.media():
        if item.type not in wanted:
            continue
        with urllib.request.urlopen(f"{served.url}/api/runs/p/one/media?file={item.path.name}") as answer:
            assert answer.headers["content-type"] == wanted[item.type]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
            assert answer.read() == item.read()
            attached = (answer.headers["content-disposition"] or "").startswith("attachment")
            assert attached == (item.type == "file")


@pytest.mark.parametrize(
    "name", ["../training.json", "training.json", "%2e%2e/run_manifest.json", "/etc/passwd", "", "a" * 32 + ".png"]
)
def test_no_other_file_can_be_had(served: Served, name: str) -> None:
    for asked in ("file", "table"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{served.url}/api/runs/p/one/media?{asked}={name}")
        assert refused.value.code == 404


def test_a_link_out_of_the_folder_is_not_followed(folder: Path, served: Served, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    link = folder / "p" / "two" / "media" / f"{'b' * 32}.png"
    link.symlink_to(tmp_path / "secret")
    try:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{served.url}/api/runs/p/two/media?file={link.name}")
        assert refused.value.code == 404
    finally:
        link.unlink()
