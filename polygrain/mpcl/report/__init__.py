"""What the page of a pretraining run shows, beside the published tables."""
