"""Which images belong together: drawn from installed packages, by equal names, or as a CSV says."""
