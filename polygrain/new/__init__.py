"""A profile for one's own images: their counts, the encoder that suits them, and the time of a run."""
