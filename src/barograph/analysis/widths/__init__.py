"""muP: does a change of width keep activations and the best learning rate where they were."""
