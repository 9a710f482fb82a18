"""What an installation takes on disk, in environments made for it.

    python benchmarks/install.py [--peers]

A row each: what a training needs, all of ours, and with `--peers` other trackers. Packages come from the index that pip
is set to; ours is this folder's, built. The environment's own pip is not counted.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRAINING = ("--no-deps", str(ROOT), "msgspec", "psutil", "nvidia-ml-py")
OURS = {"barograph, a training alone": TRAINING, "barograph": (str(ROOT),)}
PEERS = {"wandb": ("wandb",), "trackio": ("trackio",)}


def megabytes(words: tuple[str, ...]) -> float:
    """The files of an environment with these packages."""
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
        pip = [sys.executable, "-m", "pip", "--python", f"{place}/bin/python", "install", "-q", *words]
        subprocess.run(pip, check=True)
        packages = next(Path(place).glob("lib/python*/site-packages"))
        return sum(path.lstat().st_size for path in packages.rglob("*") if path.is_file()) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", action="store_true", help="also install other trackers")
    options = parser.parse_args()
    for name, words in (OURS | (PEERS if options.peers else {})).items():
        print(f"{name:<30} {megabytes(words):>7.1f} MB", flush=True)


if __name__ == "__main__":
    main()
