"""The model from inside: gradients, weights, updates, activations, spectra, experts; what looks when."""
