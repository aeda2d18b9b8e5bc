"""The values that params.yaml may hold, and the composition of a profile's from the root's."""
