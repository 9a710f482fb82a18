"""Rules of the family gradient. In: columns of a run. Out: findings."""
