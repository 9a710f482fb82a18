"""The open half of the second set: troubles, healthy trainings, texts that are no training."""

from __future__ import annotations

from logs import newer_hard, newer_healthy, newer_texts, newer_troubles, newer_ways
from logs.case import Family

FAMILIES: tuple[Family, ...] = (
    *newer_healthy.FAMILIES,
    *newer_ways.FAMILIES,
    *newer_troubles.FAMILIES,
    *newer_hard.FAMILIES,
    *newer_texts.FAMILIES,
)
