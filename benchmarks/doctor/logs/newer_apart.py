"""The half of the second set that is put away: whoever changes rules looks at its totals alone."""

from __future__ import annotations

from logs import apart_healthy, apart_texts, apart_troubles
from logs.case import Family

FAMILIES: tuple[Family, ...] = (*apart_healthy.FAMILIES, *apart_troubles.FAMILIES, *apart_texts.FAMILIES)
