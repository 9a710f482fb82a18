"""Rules of the family speed. In: columns of a run. Out: findings."""
