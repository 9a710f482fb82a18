"""Rules of the family optimizer. In: columns of a run. Out: findings."""
