"""Public data sets in their published layouts."""
