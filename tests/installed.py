"""What is there to test with, without importing it: each worker collects all tests, and runs few of a package's."""

from __future__ import annotations

import importlib.util

import pytest


def needs(*packages: str) -> None:
    """At the top of a module: skips its tests where one of these is not installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed", allow_module_level=True)
