"""A profile for one's own images: what the folders hold, which encoder suits them, and what a run will take."""
