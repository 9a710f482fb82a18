"""Rules of the family moe. In: columns of a run. Out: findings."""
