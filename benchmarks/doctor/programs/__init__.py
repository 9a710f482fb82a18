"""Real small trainings, one file a program. Each has CONFIG, EVERY (steps between two evaluations) and `train`."""
