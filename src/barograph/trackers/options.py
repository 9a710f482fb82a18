"""What the backends share: words out of a configuration, numbers as libraries take them.

In:   any object with attributes; plain values.
Out:  text, tags, floats.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from barograph.core.values import text


def word(config: Any, *names: str) -> str:
    """The first of these that the configuration has and that is not empty."""
    return next((text(value) for value in (getattr(config, name, None) for name in names) if value), "")


def tags(config: Any) -> list[str]:
    """The run's tags."""
    return [text(tag) for tag in getattr(config, "tags", None) or ()]


def real(value: Any) -> float:
    """A number as a float; what is too large becomes infinite."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


@contextmanager
def quiet(*names: str) -> Iterator[None]:
    """Without what these loggers tell below a warning, for as long as it lasts."""

    def is_loud(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING

    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addFilter(is_loud)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_loud)
