"""Rules of the family machine. In: columns of a run. Out: findings."""
