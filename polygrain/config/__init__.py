"""What params.yaml may hold, and how a profile's is composed from the root's."""
