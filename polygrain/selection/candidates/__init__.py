"""The forms in which models can be handed out, which of them is taken, and what its card says."""
