"""A program run with a stand-in in place: `python -m barograph.compat.wandb train.py --lr 3e-4`.

In:   a function that puts the stand-in in place; the command line.
Out:  the program's own run, as `python train.py --lr 3e-4` would be: its arguments, its folder first in `sys.path`, its
      exit code.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path


def run_program(install: Callable[[], None]) -> None:
    """Run the program that the command line names."""
    words = sys.argv[1:]
    if not words or not Path(words[0]).exists():
        named = f"there is no {words[0]}" if words else "it takes a program"
        sys.exit(f"{named}: python -m barograph.compat.wandb PROGRAM.py [ARGUMENTS]")
    install()
    sys.argv = words
    sys.path[0] = str(Path(words[0]).resolve().parent)
    runpy.run_path(words[0], run_name="__main__")
