"""Rules of the family rl. In: columns of a run. Out: findings."""
