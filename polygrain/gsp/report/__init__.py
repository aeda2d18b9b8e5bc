"""The pages of metric learning: tables beside the published ones, curves, weights of poolings."""
