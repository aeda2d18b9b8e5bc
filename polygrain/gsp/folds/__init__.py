"""Metric learning on class-disjoint folds: images, classes and batches, trunk, embedder, early stopping."""
