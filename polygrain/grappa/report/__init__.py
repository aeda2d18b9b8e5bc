"""The benchmark's tables beside the published ones."""
