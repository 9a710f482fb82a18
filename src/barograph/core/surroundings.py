"""Code, packages, machine and variables of a run, put into its manifest.

In:   a run's folder; the process's own surroundings, which the process beside the training has inherited.
Out:  `environment`, `hardware`, `packages`, `git` and `repo_commit` in the manifest.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

from barograph.core import manifest
from barograph.core.code import environment, git_state, packages
from barograph.core.hardware import hardware
from barograph.core.patterns import expression

_DISTRIBUTION = expression(r"(.+?)-([^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info")


def complete(folder: Path) -> None:
    """Find out what the manifest lacks. Takes up to seconds: for another process. Never raises."""
    with contextlib.suppress(Exception):
        about = manifest.read(folder)
        found: dict[str, Any] = {"environment": environment() | {"process": about.get("pid")}}
        found |= {"hardware": hardware(), "packages": packages()}
        if (about.get("code") or {}).get("git", True):
            state = git_state(about.get("cwd") or os.getcwd())
            found |= {"repo_commit": state.get("commit"), "git": state}
        if folder.is_dir():
            manifest.update(folder, **found)


def quick(git: bool) -> dict[str, Any]:
    """What can be found out in some milliseconds, at the end of a run that had no process beside it."""
    result: dict[str, Any] = {}
    with contextlib.suppress(Exception):
        result["environment"] = environment()
        result["hardware"] = hardware(ask_driver=False)
        result["packages"] = _names_on_the_path()
        if git:
            result["repo_commit"] = _commit(Path.cwd())
    return result


def _names_on_the_path() -> dict[str, str]:
    """Installed distributions by the names of their folders."""
    found: dict[str, str] = {}
    for place in sys.path:
        with contextlib.suppress(OSError):
            for name in os.listdir(place or "."):
                if match := _DISTRIBUTION.fullmatch(name):
                    found.setdefault(match[1].replace("_", "-"), match[2])
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def _commit(folder: Path) -> str | None:
    """The commit that is checked out, from git's own files."""
    for place in (folder, *folder.parents):
        git = place / ".git"
        with contextlib.suppress(OSError, IndexError):
            if git.is_file():  # a worktree
                git = (place / git.read_text().partition(":")[2].strip()).resolve()
            head = (git / "HEAD").read_text().strip()
            if not head.startswith("ref: "):
                return head
            shared = git
            with contextlib.suppress(OSError):
                shared = (git / (git / "commondir").read_text().strip()).resolve()
            name = head[5:]
            with contextlib.suppress(OSError):
                return (shared / name).read_text().strip()
            lines = (shared / "packed-refs").read_text().splitlines()
            return next((line.split()[0] for line in lines if line.endswith(f" {name}")), None)
    return None
