"""Rules of the family activations. In: columns of a run. Out: findings."""
