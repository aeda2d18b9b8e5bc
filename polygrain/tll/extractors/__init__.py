"""Layers of a frozen network as descriptors, and the published extractors by name."""
