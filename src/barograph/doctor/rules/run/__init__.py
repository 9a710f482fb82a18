"""Rules of the family run. In: columns of a run. Out: findings."""
