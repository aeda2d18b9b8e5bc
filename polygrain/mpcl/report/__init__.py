"""The page of a pretraining run, beside the published tables."""
