"""Lineage: a run's segments and forks as a tree, its totals counted once, its old branches.

In:   stored runs.
Out:  `lineage`, the tree and its sums; `stretches`, a series with what was superseded; lines for a terminal.
"""

from __future__ import annotations

from barograph.analysis.lineage.branches import Stretches, stretches
from barograph.analysis.lineage.tree import Lineage, LineageBranch, lineage

__all__ = ["Lineage", "LineageBranch", "Stretches", "lineage", "stretches"]
