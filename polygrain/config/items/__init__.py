"""The items of the lists in params.yaml, of each paper in a file."""
