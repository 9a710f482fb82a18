"""Where the time goes, and what it could be at best: steps, phases, FLOPs, peaks, energy."""
