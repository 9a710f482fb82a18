"""Rules of the family evaluation. In: columns of a run. Out: findings."""
