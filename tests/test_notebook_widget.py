"""The widget in a real kernel, and in a real JupyterLab where there is one."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from installed import needs

import barograph

needs("nbformat", "nbclient", "anywidget")

from barograph.views.notebook import widget  # noqa: E402

SOURCE = str(Path(barograph.__file__).parents[1])
CHROMIUM = "/usr/bin/chromium"
built = pytest.mark.skipif(
    not (widget.ASSETS / "widget.js").is_file(), reason="the page is not built: cd web && node build.mjs"
)


def _made(folder: Path, steps: int = 3000) -> barograph.Run:
    run = barograph.init(
        project="p", name="<img src=x onerror=alert(1)>", dir=folder, verbosity=-2, machine=False, git=False
    )
    for step in range(steps):
        run.log({"train/loss": 99.0 if step == 2345 else 5.0 - step / 1000, "train/norm": 1.0}, step=step)
    run.flush()
    return run


def _book(folder: Path, *cells: str) -> Any:
    import nbformat

    first = (
        f"import sys; sys.path.insert(0, {SOURCE!r}); "
        "from barograph.views.notebook.display import charts; import barograph"
    )
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in (first, *cells)])
    made.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return made


def executed(book: Any, **options: Any) -> None:
    import nbclient

    nbclient.NotebookClient(book, timeout=120, **options).execute()


def written(book: Any, path: Path) -> None:
    import nbformat

    nbformat.write(book, path)


@pytest.mark.slow
@built
def test_a_notebook_holds_the_widget_its_state_and_the_still_html(tmp_path: Path) -> None:
    run = _made(tmp_path)
    run.finish()
    book = _book(tmp_path, "import os; os.environ['BAROGRAPH_NOTEBOOK'] = 'widget'", f"charts({str(run.dir)!r})")
    executed(book, store_widget_state=True)
    (output,) = book.cells[2].outputs
    assert set(output.data) == {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"}
    assert "<script" not in output.data["text/html"] and "onerror" not in output.data["text/html"].replace(
        "&lt;img src=x onerror", ""
    )
    identity = output.data["application/vnd.jupyter.widget-view+json"]["model_id"]
    state = book.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"][identity]
    assert [one["path"] for one in state["buffers"]] == [["frame"]]


@built
def test_a_notebook_that_nbconvert_executes_is_a_page_that_needs_no_network(tmp_path: Path) -> None:
    pytest.importorskip("nbconvert")
    with barograph.init(project="p", name="n", dir=tmp_path, verbosity=-2, git=False, notes="one\ntwo") as run:
        for step in range(50):
            run.log({"train/loss": 5.0 - step / 1000}, step=step)
    book = tmp_path / "book.ipynb"
    written(_book(tmp_path, f"barograph.StoredRun({str(run.dir)!r})", f"charts({str(run.dir)!r})"), book)
    command = [sys.executable, "-m", "nbconvert", "--execute", "--to", "html", "--log-level", "ERROR", str(book)]
    environment = {name: value for name, value in os.environ.items() if name != "BAROGRAPH_NOTEBOOK"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr
    page = book.with_suffix(".html").read_text()
    assert page.count('src="data:image/svg+xml;base64,') == 2
    assert "widget-view+json" not in page and "one two" in page and "u000a" not in page


@pytest.mark.slow
def test_without_widgets_the_still_html_is_all(tmp_path: Path) -> None:
    run = _made(tmp_path, 10)
    run.finish()
    book = _book(tmp_path, "import os; os.environ['BAROGRAPH_NOTEBOOK'] = 'still'", f"charts({str(run.dir)!r})")
    executed(book)
    assert set(book.cells[2].outputs[0].data) == {"text/plain", "text/html"}


def test_outside_a_kernel_no_widget_is_made(tmp_path: Path) -> None:
    run = _made(tmp_path, 10)
    run.finish()
    from barograph.views.notebook.display import of_run

    assert set(of_run(barograph.StoredRun(run.dir))) == {"text/plain", "text/html"}


def test_a_range_is_answered_with_its_exact_points(tmp_path: Path) -> None:
    run = _made(tmp_path)
    run.finish()
    from barograph.views.notebook.sources import RunSource

    source = RunSource(barograph.StoredRun(run.dir))
    for low, high, exact in ((2340, 2350, True), (0, 2999, False)):
        answer = widget.answer_to(source, {"kind": "range", "id": 1, "low": low, "high": high, "buckets": 100})
        assert answer is not None
        length = int.from_bytes(answer[:4], "little")
        line = json.loads(answer[4 : 4 + length])["panels"][0]["lines"][0]
        at, n = line["high"]["at"], line["high"]["n"]
        import numpy

        column = numpy.frombuffer(answer[4 + length :], "<f8")[at : at + n]
        assert line["exact"] == exact and column.max() == 99.0 and (n == 11 or n <= 100)


def test_a_live_widget_is_given_new_frames_until_the_run_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from barograph.views.notebook.sources import RunSource

    monkeypatch.setattr(widget, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(widget, "_SHARE", 10.0)
    run = _made(tmp_path, 10)

    class Shown:
        frame = b""
        comm = object()

    shown = Shown()
    stop = widget.follow(shown, RunSource(barograph.StoredRun(run.dir)))

    def points() -> int:
        length = int.from_bytes(shown.frame[:4], "little")
        return json.loads(shown.frame[4 : 4 + length])["panels"][0]["lines"][0]["points"] if shown.frame else 0

    for count in (10, 11):
        until = time.monotonic() + 10
        while points() != count and time.monotonic() < until:
            time.sleep(0.02)
        assert points() == count
        run.log({"train/loss": math.nan, "train/norm": 1.0}, step=10 + count)
        run.flush()
    run.finish()
    until = time.monotonic() + 10
    while stop in widget._followed and time.monotonic() < until:
        time.sleep(0.02)
    assert stop not in widget._followed and b'"live":false' in shown.frame


def test_a_widget_that_is_gone_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from barograph.views.notebook.sources import RunSource

    monkeypatch.setattr(widget, "_LOOK_SECONDS", 0.02)
    run = _made(tmp_path, 3)

    class Shown:
        frame = b""
        comm = None

    stop = widget.follow(Shown(), RunSource(barograph.StoredRun(run.dir)))
    until = time.monotonic() + 10
    while stop in widget._followed and time.monotonic() < until:
        time.sleep(0.02)
    assert stop not in widget._followed
    run.finish()


@contextlib.contextmanager
def _lab(folder: Path) -> Iterator[str]:
    """A JupyterLab of this interpreter; its address with the token."""
    own = {"JUPYTER_CONFIG_DIR": str(folder / "config"), "JUPYTER_DATA_DIR": str(folder / "data")}
    port = 18_000 + os.getpid() % 2000
    arguments = [
        "--allow-root",
        "--no-browser",
        f"--port={port}",
        "--ServerApp.token=t",
        f"--ServerApp.root_dir={folder}",
    ]
    with open(folder / "lab.log", "w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *arguments],
            env={**os.environ, **own}, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            for _ in range(120):
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token=t", timeout=2).close()
                    break
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/lab/tree/book.ipynb?token=t&reset"
        finally:
            server.terminate()
            server.wait(20)


@pytest.mark.slow
@built
@pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="no Chromium here")
def test_in_jupyterlab_a_range_that_is_dragged_shows_the_spike(tmp_path: Path) -> None:
    pytest.importorskip("jupyterlab")
    playwright = pytest.importorskip("playwright.sync_api")
    run = _made(tmp_path / "runs")
    run.finish()
    written(_book(tmp_path, f"charts({str(run.dir)!r})"), tmp_path / "book.ipynb")
    with _lab(tmp_path) as address, playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        told: list[str] = []
        page.on("dialog", lambda dialog: (told.append(dialog.message), dialog.dismiss()))
        page.goto(address)
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
        with contextlib.suppress(playwright.TimeoutError):
            page.get_by_role("button", name="No", exact=True).click(timeout=3000)
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=60_000)
        page.get_by_role("menuitem", name="Run").first.click()
        page.get_by_text("Run All Cells", exact=True).first.click()
        page.wait_for_selector(".barograph .u-wrap", timeout=60_000)
        assert page.locator(".barograph .u-wrap").count() == 2
        detail = ".barograph figcaption .detail"
        assert "3,000 points, minimum to maximum" in page.locator(detail).first.inner_text()  # in 800 buckets
        over = page.locator(".barograph .u-over").first
        box = over.bounding_box()
        assert box is not None
        left, y = box["x"] + box["width"] * 2300 / 3000, box["y"] + box["height"] / 2
        page.mouse.move(left, y)
        page.mouse.down()
        page.mouse.move(left + box["width"] * 100 / 3000 + 5, y, steps=4)
        page.mouse.up()
        page.wait_for_function("selector => !document.querySelector(selector)", arg=detail)
        page.get_by_role("button", name="whole run").first.click()
        page.wait_for_selector(detail)
        assert not told and "<img src=x onerror=alert(1)>" in page.locator(".barograph header").inner_text()
        browser.close()
