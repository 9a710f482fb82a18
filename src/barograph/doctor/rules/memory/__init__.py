"""Rules of the family memory. In: columns of a run. Out: findings."""
