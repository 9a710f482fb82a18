"""Draws docs/pictures/demo.svg: what `barograph demo` shows in a terminal, shortened in the middle.

    python docs/terminal_picture.py [--steps N]

Runs the real demo in a pseudo terminal and turns its screen, colours and all, into a picture.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 108
HERE = Path(__file__).parent


def screen(command: list[str]) -> str:
    """Everything a command writes to a terminal of WIDTH columns."""
    pieces: list[bytes] = []

    def keep(descriptor: int) -> bytes:
        data = os.read(descriptor, 65536)
        pieces.append(data)
        return data

    os.environ |= {"COLUMNS": str(WIDTH), "LINES": "40", "TERM": "xterm-256color"}
    pty.spawn(command, keep)
    return b"".join(pieces).decode("utf-8", "replace").replace("\r\n", "\n")


def shorten(lines: list[str]) -> list[str]:
    """The beginning and the end, and of the steps in between only those around an evaluation."""
    steps = [at for at, line in enumerate(lines) if ":: step" in line]
    if len(steps) < 20:
        return lines
    return [*lines[: steps[5]], "   …", *lines[steps[-6] :]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        words = ["demo"] + (["--steps", str(options.steps)] if options.steps else [])
        text = screen([sys.executable, "-m", "barograph", *words])
    text = re.sub(r"\S*python\S* -m barograph", "barograph", text)
    text = re.sub(r"\x1b\[\d*[A-DJKG]|.*\r(?!\n)", "", text)  # a line drawn over itself: its last state
    lines = ["$ barograph demo", *shorten(text.rstrip().split("\n"))]
    console = Console(record=True, width=WIDTH, file=StringIO(), color_system="truecolor", legacy_windows=False)
    for line in lines:
        console.print(Text.from_ansi(line), no_wrap=True, overflow="ellipsis", crop=True)
    svg = console.export_svg(title="barograph demo")
    # the terminal's own fonts: the picture loads nothing from anywhere
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)
    (HERE / "pictures" / "demo.svg").write_text(svg.replace("Fira Code, monospace", "monospace") + "\n")


if __name__ == "__main__":
    main()
