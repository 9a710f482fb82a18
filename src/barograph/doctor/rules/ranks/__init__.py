"""Rules of the family ranks. In: columns of a run. Out: findings."""
