"""Rules of the family loss. In: columns of a run. Out: findings."""
