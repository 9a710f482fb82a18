"""Rules of the family data. In: columns of a run. Out: findings."""
